# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta workloads` lists and describes them; `kdelta export` writes a scenario as one C file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from kdelta import data
from kdelta.cli.options import json_option
from kdelta.cli.printing import page_width, print_json, print_table, write_output
from kdelta.machine.axes import words
from kdelta.rendering.export import exported
from kdelta.table.columns import filled
from kdelta.workload import Scenario, Workload, is_file, load, names

_LAYOUTS = "{} of the kernel's trees and lists, a window of each phase in each; shown is their mean"
HEADER = "kdelta.h"
_BATCHES = "{} pages are whole batches of 15 and of 31, by which kernels fill the lists of reclaim"


@click.command("workloads")
@click.argument("reference", metavar="[WORKLOAD[:SCENARIO]]", required=False)
@json_option
def workloads(*, reference: str | None, as_json: bool) -> None:
    """List the workloads, or describe one workload or one of its scenarios."""
    if as_json:
        print_json(_documents(reference))
        return
    if reference is None:
        for at, name in enumerate(names()):
            click.echo("\n" * bool(at), nl=False)
            _print_list(load(name))
        return
    workload, scenario = _found(reference)
    if workload.declared:
        click.echo(f"{workload.name}: {workload.description}")
    elif scenario:
        _print_scenario(workload, workload.scenario(scenario))
    else:
        _print_workload(workload)


def _found(reference: str) -> tuple[Workload, str]:
    """A workload, and the name of its scenario where one is named."""
    name, colon, scenario = reference.rpartition(":")
    if not colon:
        name, scenario = reference, ""
    return load(str(Path(name).resolve()) if is_file(name) else name), scenario


def _documents(reference: str | None) -> list[dict[str, Any]]:
    """The workloads, all or one, with the scenarios, all or one."""
    if reference is None:
        return [_document(load(name), "") for name in names()]
    return [_document(*_found(reference))]


def _document(workload: Workload, scenario: str) -> dict[str, Any]:
    chosen = [workload.scenario(scenario)] if scenario else workload.scenarios
    return {
        "name": workload.name,
        "title": workload.title,
        "description": workload.description,
        "path": workload.path,
        "source": workload.mail,
        "phases": [{"name": phase.name, "what": phase.what} for phase in workload.phases],
        "scenarios": [_scenario_document(each) for each in chosen],
    }


def _scenario_document(scenario: Scenario) -> dict[str, Any]:
    return {
        "reference": scenario.reference,
        "summary": scenario.summary,
        "pages": scenario.pages,
        "needs": [*scenario.features, *words(scenario.needs)],
        "instruments": [*scenario.instruments],
        "survey": scenario.survey,
        "robots": [*scenario.robots],
        "layouts": scenario.layouts,
        "windows": [
            {"phase": each.name, "operations": each.operations, "operation": each.operation}
            for each in scenario.windows
        ],
        "contract": {fact.name: fact.want for fact in scenario.contract},
        "during": {fact.name: fact.want for fact in scenario.during},
    }


@click.command("export")
@click.argument("reference", metavar="WORKLOAD[:SCENARIO]")
@click.option(
    "-o",
    "output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write, instead of standard output.",
)
def export_command(*, reference: str, output: Path | None) -> None:
    """Write the program that is counted as one C file that builds and runs without kdelta.

    It runs SCENARIO, or the one that is its argument. `kdelta export kdelta.h` writes the header
    alone, which has the marks.
    """
    if reference == HEADER:
        source = (data.directory("guest") / HEADER).read_text()
    else:
        workload, scenario = _found(reference)
        source = exported(workload, workload.scenario(scenario) if scenario else None)
    if output is None:
        click.echo(source, nl=False)
    else:
        write_output(source, output)


def _print_list(workload: Workload) -> None:
    click.echo(f"{workload.name}: {workload.title}")
    _print_rows((scenario.reference, scenario.summary) for scenario in workload.scenarios)


def _print_workload(workload: Workload) -> None:
    click.echo(f"{workload.name}: {workload.title}\n")
    click.echo("\n".join((*filled(workload.description, page_width()), "")))
    print_table(("", ""), [("path", workload.path), ("source", workload.mail)])
    click.echo("\nphases")
    _print_rows((phase.name, phase.what) for phase in workload.phases)
    click.echo("\nscenarios")
    _print_rows((scenario.name, scenario.summary) for scenario in workload.scenarios)


def _print_scenario(workload: Workload, scenario: Scenario) -> None:
    what = {phase.name: phase.what for phase in workload.phases}
    facts = [
        ("pages", f"{scenario.pages} base pages resident"),
        ("needs", ", ".join((*scenario.features, *words(scenario.needs))) or "nothing special"),
        ("instruments", ", ".join(scenario.instruments)),
        ("survey", "yes" if scenario.survey else "no"),
    ]
    gates = [name for name in workload.gates if name != scenario.name]
    facts += [("of robots", ", ".join(scenario.robots))] if scenario.robots else []
    facts += [("reverse gates", ", ".join(gates))] if gates else []
    facts += [("layouts", _LAYOUTS.format(scenario.layouts))] if scenario.layouts > 1 else []
    whole = scenario.layouts * max(window.operations for window in scenario.windows)
    facts += [("batches", _BATCHES.format(whole))] if scenario.whole_batches else []
    windows = [
        (window.name, f"{window.operations} x {window.operation}: {what[window.name]}")
        for window in scenario.windows
    ]
    state = "page state, before the first window and after the last"
    told = [(metric.name, f"{metric.what} ({metric.unit})") for metric in scenario.metrics]
    click.echo(f"{scenario.reference}: {scenario.summary}\n")
    print_table(("", ""), facts)
    for title, rows in (
        ("one window of each phase", windows),
        (state, [(fact.name, fact.want) for fact in scenario.contract]),
        ("over all windows", [(fact.name, fact.want) for fact in scenario.during]),
        ("what it tells", told),
    ):
        if rows:
            click.echo(f"\n{title}")
            _print_rows(rows)


def _print_rows(rows: Iterable[tuple[str, str]]) -> None:
    print_table(("", ""), rows, indent=2)
