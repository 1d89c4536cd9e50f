# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta workload`: describe workloads, write a scenario as one C file, start a new one."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from kdelta import data
from kdelta.cli import options
from kdelta.cli.printing import print_json, print_table, say, write_output
from kdelta.errors import SpecError
from kdelta.export import exported, is_written
from kdelta.machine.axes import words
from kdelta.rendering.formats import picked
from kdelta.workload import BATCHES, Scenario, Workload, is_file, load, names

_LAYOUTS = "{} of the kernel's trees and lists, a window of each phase in each; shown is their mean"
HEADER = "kdelta.h"
SUFFIXES = (".c", ".toml")
_BATCHES = "{} pages are whole batches of 15 and of 31, by which kernels fill the lists of reclaim"


@click.group()
def workload() -> None:
    """List, show, export and start workloads."""


@workload.command("list")
@options.json_option
def list_command(*, as_json: bool) -> None:
    """List the workloads and their scenarios."""
    if as_json:
        print_json([_document(load(name), "") for name in names()])
        return
    for at, name in enumerate(names()):
        own = load(name)
        say("\n" * bool(at) + f"{own.name}: {own.title}")
        rows = [(scenario.reference, scenario.summary) for scenario in own.scenarios]
        print_table(("", ""), rows, indent=2)


@workload.command()
@click.argument("reference", type=options.SCENARIO, metavar="WORKLOAD[:SCENARIO]")
@options.json_option
def show(*, reference: str, as_json: bool) -> None:
    """Describe one workload, or one of its scenarios."""
    own, scenario = _found(reference)
    if as_json:
        print_json([_document(own, scenario)])
    elif own.declared:
        click.echo(f"{own.name}: {own.description}")
    elif scenario:
        _print_scenario(own, own.scenario(scenario))
    else:
        say(f"{own.name}: {own.title}", "", own.description, "")
        print_table(("", ""), [("path", own.path), ("source", own.mail)])
        _print_rows("phases", [(phase.name, phase.what) for phase in own.phases])
        _print_rows("scenarios", [(each.name, each.summary) for each in own.scenarios])


def _found(reference: str) -> tuple[Workload, str]:
    name, colon, scenario = reference.rpartition(":")
    if not colon:
        name, scenario = reference, ""
    return load(str(Path(name).absolute()) if is_file(name) else name), scenario


def _document(own: Workload, scenario: str) -> dict[str, Any]:
    chosen = [own.scenario(scenario)] if scenario else own.scenarios
    return {
        **picked(own, ("name", "title", "description", "path")),
        "source": own.mail,
        "phases": [picked(phase, ("name", "what")) for phase in own.phases],
        "scenarios": [_scenario_document(each) for each in chosen],
    }


def _scenario_document(scenario: Scenario) -> dict[str, Any]:
    return {
        **picked(scenario, ("reference", "summary", "pages")),
        "needs": [*scenario.features, *words(scenario.needs)],
        **picked(scenario, ("instruments", "survey", "robots", "layouts")),
        "windows": [
            {"phase": each.name, **picked(each, ("operations", "operation"))}
            for each in scenario.windows
        ],
        "contract": {fact.name: fact.want for fact in scenario.contract},
        "during": {fact.name: fact.want for fact in scenario.during},
    }


@workload.command("export")
@click.argument("reference", type=options.SCENARIO, metavar="WORKLOAD[:SCENARIO]")
@options.output_option("File to write.  [default: standard output]", default="-")
def export_command(*, reference: str, output: Path) -> None:
    """Write the program that is counted as one C file that builds and runs without kdelta.

    It runs SCENARIO, or the one that is its argument. `kdelta workload export kdelta.h` writes the
    header alone, which has the marks.
    """
    if reference == HEADER:
        program = data.directory("guest") / HEADER
        source = program.read_text()
    else:
        own, scenario = _found(reference)
        program = own.program
        source = exported(own, own.scenario(scenario) if scenario else None)
    if output.is_file() and (output.samefile(program) or not is_written(output)):
        cause = "is there, and is the program or a file that no export wrote"
        raise SpecError(cause, place=str(output), action="name another file")
    write_output(source, output)


@workload.command()
@click.argument("name")
def new(name: str) -> None:
    """Write NAME.c and NAME.toml here, which measure something, to start from."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name):
        action = "take lower-case letters, digits and _"
        raise SpecError(f"{name!r} is no name for a workload", action=action)
    files = [Path(f"{name}{suffix}") for suffix in SUFFIXES]
    for file in files:
        if os.path.lexists(file):  # also a link to nothing, which would be followed
            raise SpecError("is there already", place=str(file), action="take another name")
    for file in files:
        template = data.directory("templates") / f"new{file.suffix}"
        write_output(template.read_text(encoding="ascii").replace("@NAME@", name), file)
    measure = f"kdelta run ./{name}.c --kernels 6.16,6.17"
    say(f"wrote {name}.c and {name}.toml; measure: {measure}")


def _print_scenario(own: Workload, scenario: Scenario) -> None:
    what = {phase.name: phase.what for phase in own.phases}
    pages = [scenario.layouts * window.operations for window in scenario.windows]
    whole = all(count % BATCHES == 0 for count in pages)
    facts = {
        "pages": f"{scenario.pages} base pages resident",
        "needs": ", ".join((*scenario.features, *words(scenario.needs))) or "nothing special",
        "instruments": ", ".join(scenario.instruments),
        "survey": "yes" if scenario.survey else "no",
        "of robots": ", ".join(scenario.robots),
        "reverse gates": ", ".join(name for name in own.gates if name != scenario.name),
        "layouts": _LAYOUTS.format(scenario.layouts) if scenario.layouts > 1 else "",
        "batches": _BATCHES.format(max(pages)) if whole else "",
    }
    windows = [
        (window.name, f"{window.operations} x {window.operation}: {what[window.name]}")
        for window in scenario.windows
    ]
    state = "page state, before the first window and after the last"
    click.echo(f"{scenario.reference}: {scenario.summary}\n")
    print_table(("", ""), [(name, told) for name, told in facts.items() if told])
    _print_rows("one window of each phase", windows)
    _print_rows(state, [(fact.name, fact.want) for fact in scenario.contract])
    _print_rows("over all windows", [(fact.name, fact.want) for fact in scenario.during])
    metrics = [(metric.name, f"{metric.what} ({metric.unit})") for metric in scenario.metrics]
    _print_rows("what it tells", metrics)


def _print_rows(title: str, rows: Sequence[tuple[str, str]]) -> None:
    if rows:
        click.echo(f"\n{title}")
        print_table(("", ""), rows, indent=2)
