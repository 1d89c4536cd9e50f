# SPDX-License-Identifier: GPL-2.0-or-later
"""How subcommands print: pages, tables, JSON and CSV; progress on stderr."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TextIO

import click

from kdelta.archive.apt import Progress
from kdelta.errors import SpecError
from kdelta.files import is_full, write_aside
from kdelta.journal.run import RUNS, RunRecord
from kdelta.metric import plural
from kdelta.printable import printable, told_name
from kdelta.rendering.formats import indented, written
from kdelta.run.runner import Event, Report, TrialStep
from kdelta.sample import Outcome
from kdelta.table.columns import WIDTH, Line, coloured, filled, plain, table_of

if TYPE_CHECKING:
    import rich.progress


STDOUT = Path("-")
_ELSEWHERE = 80  # columns where no terminal and no COLUMNS say how many there are
_NARROWEST_PAGE = 40


def wants_colour(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """True for a terminal that takes colours, unless NO_COLOR (no-color.org) is set to anything."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def print_lines(lines: Iterable[Line], *, paged: bool = False) -> None:
    """Print a page, in colour where the terminal takes it.

    paged: through the user's pager, when it is longer than the terminal.
    """
    colour, width = wants_colour(sys.stdout, os.environ), page_width()
    content = coloured(lines, width) if colour else plain(lines, width)
    encoding = sys.stdout.encoding or "ascii"
    content = content.encode(encoding, "replace").decode(encoding)
    if paged and sys.stdout.isatty() and content.count("\n") > shutil.get_terminal_size().lines:
        click.echo_via_pager(content, color=colour)
        return
    click.echo(content, nl=False, color=colour)


def say(*texts: str, err: bool = False) -> None:
    """Print sentences in lines as wide as a page; a word stays whole, as a path has to."""
    for line in (line for text in texts for line in text.split("\n")):
        lines = filled(printable(line), page_width(), later="  ", whole=True)
        click.echo("\n".join(lines), err=err)


def page_width() -> int:
    """Columns that a page may take, at most WIDTH: COLUMNS says them, or the terminal does.

    Of a pipe it is the terminal that its errors go to, which a pager shows it on, too.
    """
    return max(_NARROWEST_PAGE, min(_columns(sys.stdout, sys.stderr), WIDTH))


def _columns(*streams: TextIO) -> int:
    """What COLUMNS says, else the first of the streams that is a terminal, else _ELSEWHERE."""
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told):
        return int(told)
    for stream in streams:
        try:
            if columns := os.get_terminal_size(stream.fileno()).columns:
                return columns
        except (OSError, ValueError, AttributeError):  # closed, not a terminal, or not a file
            continue
    return _ELSEWHERE


def print_found(form: str, view: Any, found: object, **choice: Any) -> None:
    """Print findings by their view in rendering, in one of its formats; "": as text."""
    if form:
        print_raw(written(form, view, found))
    else:
        print_lines(view.show(found, **choice))


def print_raw(content: str) -> None:
    """Write bytes, so that no platform changes the line ends of CSV."""
    click.echo(content.encode(), nl=False)


def output_path(path: Path, *, folder: bool = False) -> Path:
    """Where an output goes that the user named: for a link, where that leads.  Raises SpecError for
    what it must not replace: a device, a pipe, another run's files.
    """
    found, kind = Path(os.path.realpath(path)), "folder" if folder else "plain file"
    run = next((each for each in (found, *found.parents) if (each / RUNS.file).is_file()), None)
    wrong = f"lies in the run {run.name}, which keeps only its own files" if run else ""
    if found.exists() and not (found.is_dir() if folder else found.is_file()):
        wrong = f"is there, and is no {kind}"
    if path == STDOUT:
        wrong = "standard output takes only text"
    if wrong:
        raise SpecError(wrong, place=str(path), action=f"name another {kind}")
    return found


def write_output(content: str | bytes, path: Path) -> None:
    """Write what would be printed into a file that the user named; "-": print it.  Raises SpecError
    for a file that cannot be written, or must not (output_path).
    """
    data = content.encode() if isinstance(content, str) else content
    if path == STDOUT:
        click.echo(data, nl=False)
        return
    try:
        write_aside(output_path(path), data)
    except OSError as error:
        if is_full(error):
            raise
        cause = f"cannot be written: {error.strerror}"
        raise SpecError(cause, place=str(path), action="choose another file") from error


def print_json(value: Any) -> None:
    """Print a value as indented JSON; an infinity or NaN is null."""
    print_raw(indented(value))


def print_table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Collection[str] = (),
    wrap: str = "",
    indent: int = 0,
) -> None:
    """Print a table as wide as a page, behind blanks (table.columns.table_of)."""
    table = table_of(heads, [row or [""] * len(heads) for row in rows], right=right, wrap=wrap)
    for line in plain(table, page_width() - indent).splitlines():
        click.echo(f"{' ' * indent}{line}".rstrip())


P = ParamSpec("P")
_STEP_PERCENT = 25.0
_SILENT_S = 5.0  # that a long step in a pipe goes on without a line


def _bar(*columns: Any) -> rich.progress.Progress:
    from rich.console import Console
    from rich.progress import Progress

    # Of the last half minute alone an estimate jumps with each large file.
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, speed_estimate_period=3600)


def _left(seconds: float, done: float, total: float) -> str:
    """How long the rest takes if it goes on as it went; "" for less than a minute."""
    minutes = seconds / done * (total - done) / 60 if done else 0.0
    return f"about {minutes:.0f} min left" if minutes >= 1 else ""


@contextlib.contextmanager
def showing(record: RunRecord) -> Iterator[Report]:
    """A report function for as long as the run lasts."""
    labels = [arm.label for arm in record.arms]
    size = f"{len(record.trials)} trials, {len(labels)} kernels"
    say(f"{record.run_id}: {size}, seed {record.seed}", err=True)
    begun = time.monotonic()
    said = partial(_said, labels, set[str]())
    before: list[int] = []  # trials that an earlier kdelta had ended
    stored = 0

    def left(event: Event) -> str:
        if not before:
            before.append(event.done - (event.result is not None))
        return _left(time.monotonic() - begun, event.done - before[0], event.total - before[0])

    def line(event: Event) -> bool:
        nonlocal stored
        words = left(event)
        if event.result and event.result.stored:
            stored += 1
            return False
        if event.step is TrialStep.STARTED:
            return False
        line = f"[{event.done}/{event.total}] {said(event)}"
        say(f"{line}; {words}" if words else line, err=True)
        return True

    with _trial_bar(labels, left, said) if sys.stderr.isatty() else _beating(line) as report:
        yield report
    if stored:
        say(f"{stored} of {plural(len(record.trials), 'trial')} from the store", err=True)


def _said(labels: list[str], told: set[str], event: Event) -> str:
    trial, result = event.trial, event.result
    name = f"{labels[trial.arm]} {told_name(trial.workload, trial.scenario)}"
    if result is None:
        return f"{name}: again, because {event.reason}"
    if result.copied:
        return f"{name}: not booted: {result.copied.sentence}"
    if result.outcome is Outcome.OK:
        return f"{name}: ok, {result.wall_s:.1f} s"
    reason = "as before" if result.reason in told else result.reason
    told.add(result.reason)
    return f"{name}: {result.outcome}: {reason}"


@contextlib.contextmanager
def _trial_bar(labels: list[str], left: Any, said: Any) -> Iterator[Report]:
    from rich import progress as rich

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
                bar.console.print(said(event), markup=False, highlight=False)
            words = (left(event), ", ".join(running.values())[:50])
            description = "; ".join(word for word in words if word)
            bar.update(task, completed=event.done, total=event.total, description=description)

        yield report


@contextlib.contextmanager
def reporting() -> Iterator[Progress]:
    """A callback for downloads and builds, for as long as the context lasts."""
    with _percent_bar() if sys.stderr.isatty() else _percent_lines() as show:
        yield show


def _percent_lines() -> contextlib.AbstractContextManager[Progress]:
    shown: dict[str, tuple[float, float]] = {}  # of a label: percent, when
    begun: dict[str, float] = {}

    def report(label: str, percent: float) -> bool:
        now = time.monotonic()
        start = begun.setdefault(label, now)
        if not 0 <= percent < 100:
            del begun[label]
        last, when = shown.get(label, (-_STEP_PERCENT, now))
        silent = now - when >= _SILENT_S and percent >= last + 1
        if not silent and percent // _STEP_PERCENT <= last // _STEP_PERCENT:
            return False
        shown[label] = percent, now
        left = _left(now - start, percent, 100)
        click.echo(f"{label}: {percent:.0f} %{left and f', {left}'}", err=True)
        return True

    return _beating(report, lambda: next(reversed([*begun]), ""))


@contextlib.contextmanager
def _beating(
    report: Callable[P, bool], doing: Callable[[], str] = str
) -> Iterator[Callable[P, None]]:
    """The same; where that printed nothing (False) for seconds, a line says that it is at work, and
    doing what.
    """
    told, ended = [time.monotonic()], threading.Event()

    def reporting(*args: P.args, **kwargs: P.kwargs) -> None:
        if report(*args, **kwargs):
            told[0] = time.monotonic()

    def beat(begun: float) -> None:
        while not ended.wait(_SILENT_S / 5):
            now = time.monotonic()
            if now - told[0] >= 1.5 * _SILENT_S:
                told[0] = now
                with contextlib.suppress(OSError, ValueError):  # nobody reads it
                    what = doing()
                    click.echo(f"{what}{what and ': '}at work for {now - begun:.0f} s", err=True)

    thread = threading.Thread(target=beat, args=(told[0],), daemon=True)
    thread.start()
    try:
        yield reporting
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def _percent_bar() -> Iterator[Progress]:
    from rich import progress as rich

    with _bar(
        rich.TextColumn("{task.description}"),
        rich.BarColumn(bar_width=30),
        rich.TaskProgressColumn(),
        rich.TimeElapsedColumn(),
        rich.TimeRemainingColumn(compact=True),
    ) as bar:
        tasks = {}

        def report(label: str, percent: float) -> None:
            if label not in tasks:
                tasks[label] = bar.add_task(label, total=100.0)
            bar.update(tasks[label], completed=percent, visible=0 <= percent < 100)

        yield report
