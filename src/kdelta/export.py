# SPDX-License-Identifier: GPL-2.0-or-later
"""The program that is counted, as one C file that builds and runs without kdelta.

Nothing of it is rewritten: a head comment and one #define are added, and each header of ours
replaces its #include.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from kdelta import data
from kdelta.machine.axes import words
from kdelta.workload import Scenario, Workload, is_file, names, parse_reference, speaks, text_of

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"\n]+)"[^\n]*\n', re.MULTILINE)
_SPDX = re.compile(r"// SPDX-License-Identifier: ([^\n]+)\n")
_MADE = re.compile(r"^ \* Made by:  kdelta workload export (([a-z0-9_]+):\S+)$", re.MULTILINE)
_WRITTEN = re.compile(
    r"\A(?:/[^\n]*\n)?/\*\n"
    r"(?: \* kdelta\.h - |(?: \*[^\n]*\n)+? \* Made by:  kdelta workload export )"
)
_COLUMNS = 74


def exported(
    workload: Workload, scenario: Scenario | None = None, headers: Path | None = None
) -> str:
    """The C file of a workload.

    scenario: the one that it runs without an argument; without it, the file takes a scenario as
    its argument.  headers: the folder of the guest's, if not the own.  Raises SpecError when a
    file cannot be read.
    """
    text = text_of(workload.program)
    licence = _SPDX.match(text)
    top, body = (licence[0], text[licence.end() :]) if licence else ("", text)
    comment = "\n".join(
        f" * {line}".replace("*/", "* /").rstrip()
        for line in _head(workload, scenario, licence[1] if licence else "")
    )
    own = headers or data.directory("guest")
    inlined = _with_headers(body, (workload.program.parent, own), set())
    chosen = f'#define KD_SCENARIO "{scenario.name}"\n' if scenario and scenario.speaks else ""
    return f"{top}/*\n{comment}\n */\n{chosen}{inlined}"


def file_name(workload: str, scenario: str) -> str:
    """What the C file of a scenario is called: never as the user's own that it is made of."""
    own = f"{Path(workload).stem}-" if is_file(workload) else ""
    return f"{own}{scenario}.c"


def is_written(path: Path) -> bool:
    """True for a file that an export wrote, as its head says: another may replace it."""
    return _WRITTEN.match(text_of(path)) is not None


def is_export(program: Path) -> bool:
    """True for a shipped scenario's program as exported() writes it here, to the byte."""
    text = text_of(program)
    made = _MADE.search(text)
    return bool(made and made[2] in names() and text == exported(*parse_reference(made[1])))


def _with_headers(text: str, folders: tuple[Path, Path], done: set[Path]) -> str:
    """The text with each header beside it, or of the guest, in place of its first #include."""

    def content(found: re.Match[str]) -> str:
        places = [folder / found[1] for folder in folders]
        path = next((place.resolve() for place in places if place.is_file()), None)
        if path is None:
            return found[0]
        if path in done:
            return ""
        done.add(path)
        return _with_headers(text_of(path), (path.parent, folders[1]), done)

    return _INCLUDE.sub(content, text)


def _head(workload: Workload, scenario: Scenario | None, licence: str) -> Iterator[str]:
    file = file_name(scenario.workload, scenario.name) if scenario else f"{workload.name}.c"
    name = file.removesuffix(".c")
    yield f"{file} - {scenario.summary if scenario else workload.title}"
    yield ""
    if not workload.declared:
        yield from textwrap.wrap(workload.description, _COLUMNS, break_on_hyphens=False)
        yield ""
        yield from _row("Path", workload.path)
        yield from _row("Source", workload.mail)
    if scenario and scenario.robots:
        yield from _row("Robots", ", ".join(scenario.robots))
    if needs := (*scenario.features, *words(scenario.needs)) if scenario else ():
        yield from _row("Needs", ", ".join(needs))
    yield f"Build:    gcc -O2 -static {file} -o {name}"
    yield f"Run:      ./{name}{_argument(workload, scenario)}"
    if licence:
        yield from _row("Licence", licence)
    ours = workload.program.parent == data.directory("workloads")
    place = workload.name if ours else f"./{workload.program.name}"
    yield f"Made by:  kdelta workload export {place}{f':{scenario.name}' if scenario else ''}"
    yield ""
    printed = (
        "  It prints the page state before and after, and the time of each phase.  As root, or part"
        " of the page state stays unknown."
    )
    yield from textwrap.wrap(
        "This is the program that kdelta counts, its headers in place of their #includes."
        f"{printed * speaks(workload.program)}",
        _COLUMNS,
    )


def _argument(workload: Workload, scenario: Scenario | None) -> str:
    if scenario is None:
        return f" {workload.scenarios[0].name}" if workload.scenarios else " SCENARIO"
    return "" if scenario.speaks else f" {scenario.name}"


def _row(label: str, text: str) -> list[str]:
    return textwrap.wrap(
        f"{label + ':':<10}{text}", _COLUMNS, subsequent_indent=" " * 10, break_on_hyphens=False
    )
