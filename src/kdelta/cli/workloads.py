# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta workloads` lists and describes them; `kdelta export` writes one as a lone C file."""

from __future__ import annotations

import textwrap
from pathlib import Path

import click

from kdelta.errors import SpecError
from kdelta.workload import Scenario, Workload, exported_source, load, names

_WIDTH = 100


@click.command("workloads")
@click.argument("reference", metavar="[WORKLOAD[:SCENARIO]]", required=False)
def workloads(*, reference: str | None) -> None:
    """List the workloads, or describe one workload or one of its scenarios."""
    if reference is None:
        click.echo("\n\n".join(_listed(load(name)) for name in names()))
        return
    name, colon, scenario = reference.partition(":")
    workload = load(name)
    if colon:
        click.echo(_scenario_described(workload, workload.scenario(scenario)))
    else:
        click.echo(_described(workload))


@click.command("export")
@click.argument("workload")
@click.option(
    "-o",
    "output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write, instead of standard output.",
)
def export_command(*, workload: str, output: Path | None) -> None:
    """Write a workload as one C file that builds and runs without kdelta."""
    source = exported_source(load(workload))
    if output is None:
        click.echo(source, nl=False)
        return
    try:
        output.write_text(source, encoding="ascii")
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise SpecError(
            f"cannot be written: {error.strerror}",
            place=str(output),
            action="choose another file with -o",
        ) from error


def _columns(rows: list[tuple[str, str]], indent: str = "  ") -> str:
    width = max(len(first) for first, _ in rows)
    return "\n".join(
        textwrap.fill(
            second,
            _WIDTH,
            initial_indent=f"{indent}{first:<{width}}  ",
            subsequent_indent=indent + " " * (width + 2),
        )
        for first, second in rows
    )


def _listed(workload: Workload) -> str:
    rows = [(scenario.reference, scenario.summary) for scenario in workload.scenarios]
    return f"{workload.name}: {workload.title}\n{_columns(rows)}"


def _described(workload: Workload) -> str:
    scenarios = [(scenario.name, scenario.summary) for scenario in workload.scenarios]
    return "\n".join(
        [
            f"{workload.name}: {workload.title}",
            "",
            textwrap.fill(workload.description, _WIDTH),
            "",
            _columns([("path", workload.path), ("source", workload.mail)], indent=""),
            "",
            "phases",
            _columns([(phase.name, phase.what) for phase in workload.phases]),
            "",
            "scenarios",
            _columns(scenarios),
        ]
    )


_WHEN = "before the first window and after the last"


def _scenario_described(workload: Workload, scenario: Scenario) -> str:
    what = {phase.name: phase.what for phase in workload.phases}
    windows = [
        (window.name, f"{window.operations} x {window.operation}: {what[window.name]}")
        for window in scenario.windows
    ]
    facts = [
        ("pages", f"{scenario.pages} base pages resident"),
        ("needs", ", ".join((*scenario.features, *scenario.needs.words())) or "nothing special"),
        ("instruments", ", ".join(scenario.instruments)),
        ("survey", "yes" if scenario.survey else "no"),
    ]
    gates = [name for name in workload.gates if name != scenario.name]
    facts += [("reverse gates", ", ".join(gates))] if gates else []
    state = [(fact.name, fact.want) for fact in scenario.contract]
    during = [(fact.name, fact.want) for fact in scenario.during]
    told = [(metric.name, f"{metric.what} ({metric.unit})") for metric in scenario.metrics]
    return "\n".join(
        [
            f"{scenario.reference}: {scenario.summary}",
            "",
            _columns(facts, indent=""),
            "",
            "one window of each phase",
            _columns(windows),
            *(["", f"page state, {_WHEN}", _columns(state)] if state else []),
            *(["", "over all windows", _columns(during)] if during else []),
            *(["", "what it tells", _columns(told)] if told else []),
        ]
    )
