# SPDX-License-Identifier: GPL-2.0-or-later
"""Progress of trials, downloads and builds on stderr: bars on a terminal, else plain lines."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from kdelta.archive.apt import Progress
from kdelta.journal.run import RunRecord
from kdelta.run.runner import Event, Report, TrialStep
from kdelta.sample import Outcome

if TYPE_CHECKING:
    import rich.progress


_STEP_PERCENT = 25.0


def _bar(*columns: Any) -> rich.progress.Progress:
    from rich.console import Console
    from rich.progress import Progress

    return Progress(*columns, console=Console(stderr=True), transient=True)


def _left(seconds: float, done: float, total: float) -> str:
    """How long the rest takes if it goes on as it went; "" for less than a minute."""
    minutes = seconds / done * (total - done) / 60 if done else 0.0
    return f"about {minutes:.0f} min left" if minutes >= 1 else ""


@contextlib.contextmanager
def showing(record: RunRecord) -> Iterator[Report]:
    """A report function for as long as the run lasts."""
    labels = [arm.label for arm in record.arms]
    click.echo(
        f"{record.run_id}: {len(record.trials)} trials, {len(labels)} kernels, seed {record.seed}",
        err=True,
    )
    begun = time.monotonic()
    before: list[int] = []  # trials that an earlier kdelta had ended

    def left(event: Event) -> str:
        if not before:
            before.append(event.done - (event.result is not None))
        return _left(time.monotonic() - begun, event.done - before[0], event.total - before[0])

    def line(event: Event) -> None:
        words = left(event)
        if event.step is not TrialStep.STARTED:
            said = f"[{event.done}/{event.total}] {_said(labels, event)}"
            click.echo(f"{said}; {words}" if words else said, err=True)

    with (
        _trial_bar(labels, left) if sys.stderr.isatty() else contextlib.nullcontext(line) as report
    ):
        yield report


def _said(labels: list[str], event: Event) -> str:
    trial, result = event.trial, event.result
    name = f"{labels[trial.arm]} {trial.workload}:{trial.scenario}"
    if result is None:
        return f"{name}: again, because {event.reason}"
    if result.copied:
        return f"{name}: not booted: {result.copied.sentence}"
    if result.stored:
        return f"{name}: {result.outcome}, from the store, {result.stored.partition('T')[0]}"
    if result.outcome is Outcome.OK:
        return f"{name}: ok, {result.wall_s:.1f} s"
    return f"{name}: {result.outcome}: {result.reason}"


@contextlib.contextmanager
def _trial_bar(labels: list[str], left: Any) -> Iterator[Report]:
    from rich import progress as rich

    from kdelta.run.runner import TrialStep

    running: dict[int, str] = {}
    with _bar(
        rich.SpinnerColumn(),
        rich.MofNCompleteColumn(),
        rich.BarColumn(bar_width=30),
        rich.TimeElapsedColumn(),
        rich.TextColumn("{task.description}", markup=False),
    ) as bar:
        task = bar.add_task("starting", total=None)

        def report(event: Event) -> None:
            if event.step is TrialStep.STARTED:
                running[event.trial.index] = labels[event.trial.arm]
            elif event.step is TrialStep.FINISHED:
                running.pop(event.trial.index, None)
            failed = event.result and event.result.outcome is not Outcome.OK
            if failed or event.step is TrialStep.RETRIED:
                bar.console.print(_said(labels, event), markup=False, highlight=False)
            words = (left(event), ", ".join(running.values())[:50])
            description = "; ".join(word for word in words if word)
            bar.update(task, completed=event.done, total=event.total, description=description)

        yield report


@contextlib.contextmanager
def reporting() -> Iterator[Progress]:
    """A callback for downloads and builds, for as long as the context lasts."""
    terminal = sys.stderr.isatty()
    with _percent_bar() if terminal else contextlib.nullcontext(_percent_lines()) as show:
        yield show


def _percent_lines() -> Progress:
    shown: dict[str, float] = {}
    begun: dict[str, float] = {}

    def report(label: str, percent: float) -> None:
        now = time.monotonic()
        begun.setdefault(label, now)
        step = percent // _STEP_PERCENT * _STEP_PERCENT
        if step > shown.get(label, -1.0):
            shown[label] = step
            left = _left(now - begun[label], percent, 100)
            click.echo(f"{label}: {step:.0f} %{left and f', {left}'}", err=True)

    return report


@contextlib.contextmanager
def _percent_bar() -> Iterator[Progress]:
    from rich import progress as rich

    with _bar(
        rich.TextColumn("{task.description}"),
        rich.BarColumn(bar_width=30),
        rich.TaskProgressColumn(),
        rich.TimeRemainingColumn(compact=True),
    ) as bar:
        tasks = {}

        def report(label: str, percent: float) -> None:
            if label not in tasks:
                tasks[label] = bar.add_task(label, total=100.0)
            bar.update(tasks[label], completed=percent)

        yield report
