# SPDX-License-Identifier: GPL-2.0-or-later
"""How a run shows its progress on stderr: a bar on a terminal, a line per trial elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
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
        left = _Left()
        yield lambda event: _line(labels, event, left)


def _line(labels: list[str], event: Event, left: _Left) -> None:
    from kdelta.run.runner import TrialStep

    rest = left.after(event)
    if event.step is not TrialStep.STARTED:
        said = f"[{event.done}/{event.total}] {_said(labels, event)}"
        click.echo(f"{said}; {rest}" if rest else said, err=True)


class _Left:
    """How long the rest takes, if it goes on as it went since this began."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._before: int | None = None  # trials that an earlier kdelta had ended

    def after(self, event: Event) -> str:
        """In words; "" while nothing is known, and of less than a minute."""
        if self._before is None:
            self._before = event.done - (event.result is not None)
        ended, rest = event.done - self._before, event.total - event.done
        if not ended:
            return ""
        minutes = round((time.monotonic() - self._begun) / ended * rest / 60)
        return f"about {minutes} min left" if minutes else ""


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
    left = _Left()
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
            words = (left.after(event), ", ".join(running.values())[:50])
            description = "; ".join(word for word in words if word)
            bar.update(task, completed=event.done, total=event.total, description=description)

        yield report
