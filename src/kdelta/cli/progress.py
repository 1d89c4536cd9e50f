# SPDX-License-Identifier: GPL-2.0-or-later
"""How a run shows its progress on stderr: a bar on a terminal, a line per trial elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kdelta.journal.run import RunRecord
    from kdelta.run.runner import Event, Report


@contextlib.contextmanager
def showing(record: RunRecord) -> Iterator[Report]:
    """A report function for as long as the run lasts."""
    labels = [arm.label for arm in record.arms]
    head = (
        f"{record.run_id}: {len(record.trials)} trials, {len(labels)} kernels, seed {record.seed}"
    )
    click.echo(head, err=True)
    if sys.stderr.isatty():
        with _bar(labels) as report:
            yield report
    else:
        yield lambda event: _line(labels, event)


def _line(labels: list[str], event: Event) -> None:
    from kdelta.run.runner import TrialStep

    if event.step is not TrialStep.STARTED:
        click.echo(f"[{event.done}/{event.total}] {_said(labels, event)}", err=True)


def _said(labels: list[str], event: Event) -> str:
    from kdelta.sample import Outcome

    trial = event.trial
    name = f"{labels[trial.arm]} {trial.workload}:{trial.scenario}"
    if event.result is None:
        return f"{name}: again, because {event.reason}"
    if event.result.copied:
        return f"{name}: not booted: {event.result.copied.sentence}"
    if event.result.stored:
        day = event.result.stored.partition("T")[0]
        return f"{name}: {event.result.outcome}, from the store, {day}"
    if event.result.outcome is Outcome.OK:
        return f"{name}: ok, {event.result.wall_s:.1f} s"
    return f"{name}: {event.result.outcome}: {event.result.reason}"


@contextlib.contextmanager
def _bar(labels: list[str]) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    from kdelta.run.runner import TrialStep
    from kdelta.sample import Outcome

    columns = (
        SpinnerColumn(),
        MofNCompleteColumn(),
        BarColumn(bar_width=30),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    running: dict[int, str] = {}
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def report(event: Event) -> None:
            if event.step is TrialStep.STARTED:
                running[event.trial.index] = labels[event.trial.arm]
            elif event.step is TrialStep.FINISHED:
                running.pop(event.trial.index, None)
            if event.step is TrialStep.RETRIED or (
                event.result and event.result.outcome is not Outcome.OK
            ):
                bar.console.print(_said(labels, event), markup=False, highlight=False)
            description = ", ".join(running.values())[:50]
            bar.update(task, completed=event.done, total=event.total, description=description)

        yield report
