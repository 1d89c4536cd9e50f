# SPDX-License-Identifier: GPL-2.0-or-later
"""How downloads and builds show on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator

import click

from kdelta.archive.apt import Progress

_STEP_PERCENT = 25.0


@contextlib.contextmanager
def reporting() -> Iterator[Progress]:
    """A progress callback for as long as the context lasts."""
    with _bar() if sys.stderr.isatty() else contextlib.nullcontext(_plain()) as show:
        yield show


def _plain() -> Progress:
    shown: dict[str, float] = {}
    begun: dict[str, float] = {}

    def report(label: str, percent: float) -> None:
        now = time.monotonic()
        begun.setdefault(label, now)
        step = percent // _STEP_PERCENT * _STEP_PERCENT
        if step > shown.get(label, -1.0):
            shown[label] = step
            left = _left(now - begun[label], percent)
            click.echo(f"{label}: {step:.0f} %{left}", err=True)

    return report


def _left(seconds: float, percent: float) -> str:
    """How long it goes on when it goes on as until now, from a minute on."""
    minutes = seconds * (100 - percent) / percent / 60 if percent else 0.0
    return f", about {minutes:.0f} min left" if minutes >= 1 else ""


@contextlib.contextmanager
def _bar() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TaskProgressColumn(),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks = {}

        def report(label: str, percent: float) -> None:
            if label not in tasks:
                tasks[label] = bar.add_task(label, total=100.0)
            bar.update(tasks[label], completed=percent)

        yield report
