# SPDX-License-Identifier: GPL-2.0-or-later
"""Which functions of the kernel a run's scenarios executed, and those of a patch among them; pure.

Only functions that the compiler left to themselves are seen: what was inlined is its caller.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kdelta.analysis.explanation import USER, base_name
from kdelta.errors import SpecError
from kdelta.journal.run import RunRecord
from kdelta.ladder.counts import counted
from kdelta.ladder.evidence import scenarios

_FILE = re.compile(r"\+\+\+ (?:b/)?(\S+)")
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)(?:,\d+)? @@")
# A definition begins at the left edge, ends no statement there, and names itself before a "(".
_BEGIN = re.compile(r"[A-Za-z_][\w\s*]*?\b(?P<name>[A-Za-z_]\w*)\s*\((?!.*;\s*$)")
_NO_NAMES = frozenset(("if", "for", "while", "switch", "return", "sizeof", "do", "else"))
# SYSCALL_DEFINE3(mincore, ...) becomes __do_sys_mincore, and these around it.
_PREFIXES = ("", "__do_sys_", "__x64_sys_", "__arm64_sys_")
_CALLS = re.compile(r"(?:COMPAT_)?SYSCALL_DEFINE\d?\((\w+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveredFunction:
    """A function that ran.  scenarios: that executed it, with the most instructions in a window."""

    function: str
    scenarios: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Of a run: functions by name, and of each scenario how many, and how many it has alone."""

    run_id: str
    kernels: tuple[str, ...]
    functions: tuple[CoveredFunction, ...]
    scenarios: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedFunction:
    """A function that a patch changes, in a file.  executed: by which scenarios, most first."""

    file: str
    function: str
    executed: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Relevance:
    """Of a patch over a run.  elsewhere: files in which a change is in no function."""

    run_id: str
    changed: tuple[ChangedFunction, ...]
    elsewhere: tuple[str, ...]


def coverage(record: RunRecord) -> Coverage:
    """What ran in the windows of every scenario of a run, on any of its kernels."""
    found: dict[str, dict[str, int]] = {}
    names = list(dict.fromkeys(scenarios(record)))
    for workload, scenario in names:
        reference = f"{workload}:{scenario}"
        for arm in counted(record, workload, scenario):
            for trial in arm.used:
                for row in trial.result.exact.functions if trial.result else ():
                    name = base_name(row.function)
                    if row.insns and name != USER and not name.startswith("["):
                        own = found.setdefault(name, {})
                        own[reference] = max(own.get(reference, 0), row.insns)
    references = [":".join(name) for name in names]
    alone = [next(iter(own)) for own in found.values() if len(own) == 1]
    return Coverage(
        run_id=record.run_id,
        kernels=tuple(arm.label for arm in record.arms),
        functions=tuple(
            CoveredFunction(
                function=name,
                scenarios=tuple(sorted(own.items(), key=lambda row: (-row[1], row[0]))),
            )
            for name, own in sorted(found.items())
        ),
        scenarios=tuple(
            (one, sum(one in own for own in found.values()), alone.count(one)) for one in references
        ),
    )


def relevance(patch: str, covered: Coverage) -> Relevance:
    """Which scenarios execute what a patch, or several behind each other, changes.

    Raises SpecError where its code does not show which function a change is in.
    """
    by_name = {row.function: row.scenarios for row in covered.functions}
    changed = dict.fromkeys(changes(patch.splitlines()))
    return Relevance(
        run_id=covered.run_id,
        changed=tuple(
            ChangedFunction(
                file=file,
                function=name,
                executed=next(
                    (ran for prefix in _PREFIXES if (ran := by_name.get(f"{prefix}{name}"))), ()
                ),
            )
            for file, name in changed
            if name
        ),
        elsewhere=tuple(file for file, name in changed if not name),
    )


def changes(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(file, function) of each changed line of C in a unified diff; "" outside of functions.

    The function is the one whose definition the diff shows above.  The text behind the second @@
    says nothing.  Raises SpecError for a change in the middle of a file below no definition.
    """
    file, function, start = "", "", ""
    for line in lines:
        if found := _FILE.match(line):
            file = found[1]
        elif found := _HUNK.match(line):
            start, function, known = found[1], "", int(found[1]) < 2
        elif line.startswith(("diff ", "--- ", "-- ")):
            start = ""
        elif start and file.endswith((".c", ".h")) and line[:1] in (" ", "+", "-"):
            function = _named(line[1:]) or function
            known = known or bool(function)
            if line[0] != " " and line[1:].strip():
                if not known:
                    raise SpecError(
                        f"the patch does not show which function its part at line {start} changes",
                        place=file,
                        action="name two commits, --patch OLD..NEW, or make the patch with:"
                        " git diff --unified=1000000",
                    )
                yield file, function
            if line[1:].startswith("}"):
                function, known = "", True


def _named(text: str) -> str:
    """The function whose definition begins on a line, "" for any other line."""
    if call := _CALLS.match(text):
        return call[1]
    found = _BEGIN.match(text)
    return found["name"] if found and found["name"] not in _NO_NAMES else ""
