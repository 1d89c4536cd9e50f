# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta show`, `audit`, `runs` and `gate`: what stored runs say."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from kdelta.analysis.findings import report, traced
from kdelta.analysis.gate import Bar
from kdelta.analysis.gate import gate as judged
from kdelta.cli import options
from kdelta.cli.printing import (
    page_width,
    print_found,
    print_json,
    print_lines,
    print_raw,
    print_table,
    say,
)
from kdelta.errors import StoreError
from kdelta.journal.artifacts import kept_calls
from kdelta.journal.files import is_held
from kdelta.journal.run import RUNS, RunJournal, RunRecord
from kdelta.journal.status import Status
from kdelta.journal.status import status as run_status
from kdelta.printable import printable
from kdelta.rendering import gate as gate_page
from kdelta.rendering import show as page
from kdelta.rendering.formats import FORMATS, picked
from kdelta.sample import Outcome
from kdelta.study.probes import CALLS
from kdelta.table.columns import Column, Line, Span, Tone, headline, table_lines

EXIT_FAILED = 1  # audit: a trial failed, or a fact does not hold
MANY = 8  # scenarios from which a run is shown as one table


@click.command()
@options.run_argument
@click.option(
    "--summary/--full",
    "summary",
    default=None,
    help="One table of all scenarios, or each in full.  [default: by their number]",
)
@click.option("--details", is_flag=True, help="Also the machine, the legend, builds and limits.")
@options.runs_directory
@options.step_percent_option
@options.formats
def show(
    run: str,
    runs: Path,
    step_percent: float | None,
    *,
    summary: bool | None,
    details: bool,
    form: str,
) -> None:
    """Print what RUN measured: each kernel, the verdicts, and the step where it changed.

    RUN is the identifier of a run, a unique beginning of it, "latest", or a run folder.
    """
    folder = RUNS.find(runs, run)
    record = one_record(runs, str(folder))
    if form and not _print_traced(record, form):
        print_found(form, page, report(record, step_percent=step_percent))
    elif not form:
        print_report(
            record, folder, step_percent=step_percent, summary=summary, details=details, paged=True
        )


def _print_traced(record: RunRecord, form: str) -> bool:
    """Print what a traced run saw; False for a run of another instrument."""
    found = traced(record)
    if found:
        print_found(form, page.TRACES_VIEW, found)
    return found is not None


def print_report(
    record: RunRecord,
    folder: Path,
    *,
    step_percent: float | None = None,
    summary: bool | None = None,
    details: bool = False,
    paged: bool = False,
) -> None:
    """Print the ladders of a run as text; of many scenarios, unless told, as one table.

    Of a traced run what it saw.
    """
    if _print_traced(record, ""):
        return
    many = len({(trial.workload, trial.scenario) for trial in record.trials}) > MANY
    short = many if summary is None else summary
    if short and record.instrument.traits.repeats:
        from kdelta.analysis.lab import surveyed

        lines = page.show_survey(surveyed(record, step_percent=step_percent), details=details)
    else:
        found = report(record, step_percent=step_percent)
        kept = partial(kept_calls, folder) if CALLS in record.study.plan.probes else None
        lines = page.show(found, details=details, kept=kept)
    print_lines(lines, paged=paged)


def one_record(runs: Path, run: str) -> RunRecord:
    """The stored run that `run` names.  Raises SpecError, StoreError."""
    record = RunJournal.open(RUNS.find(runs, run)).record()
    options.need(record.instrument)
    return record


@click.command()
@options.run_argument
@options.json_option
@click.option("--all", "every", is_flag=True, help="Also the facts that are said and do not bind.")
@options.runs_directory
def audit(run: str, runs: Path, *, as_json: bool, every: bool) -> None:
    """Show what the machine and the pages of each trial of RUN were, and whether that holds.

    Exits with 1 when a trial failed, a fact does not hold, or kernels differ in one that binds.
    """
    from kdelta.analysis.audit import audited
    from kdelta.rendering import audit as audit_page

    found = audited(one_record(runs, run))
    print_found("json" if as_json else "", audit_page, found, every=every)
    if not found.passed:
        raise click.exceptions.Exit(EXIT_FAILED)


@click.group()
def runs() -> None:
    """List runs, and show how far one is."""


@runs.command("list")
@options.json_option
@options.runs_directory
def list_command(runs: Path, *, as_json: bool) -> None:
    """List the runs, newest first: how many trials are done, and of which study."""
    found = [_fields(folder) for folder in RUNS.folders(runs)]
    if as_json:
        print_json(found)
    elif found:
        print_lines(_lines(found))
    else:
        say(f"no runs in {printable(str(runs))}; make one with: kdelta run STUDY")


def _lines(found: Sequence[Mapping[str, Any]]) -> Iterator[Line]:
    """Below each run what it is of."""
    names = Column("run", [each["run"] for each in found])
    done = ("" if each["fault"] else _done(each) for each in found)
    head, *rows = table_lines((names, Column("trials", done, right=True)))
    yield head
    for row, each in zip(rows, found, strict=True):
        title = headline(each["fault"] or each["title"], page_width() - 2)
        yield from (row, (Span(f"  {title}", Tone.FAINT),))


def _done(each: Mapping[str, Any]) -> str:
    state = "" if each["done"] == each["trials"] else " interrupted"
    ok = f", {each['ok']} ok" * (each["ok"] < each["done"])
    return f"{each['done']}/{each['trials']}{' running' if each['executing'] else state}{ok}"


def _fields(folder: Path) -> dict[str, Any]:
    """A run in figures; fault: why it cannot be read, and then there is nothing else."""
    try:
        record = RunJournal.open(folder).record()
    except StoreError as error:
        return {"run": printable(folder.name), "fault": error.cause}
    ended = [trial.result.outcome for trial in record.trials if trial.result]
    told = {"run": printable(folder.name), "fault": "", "trials": len(record.trials)}
    told |= {"done": len(ended), "executing": is_held(folder)}
    told["ok"] = ended.count(Outcome.OK)
    return told | picked(record, ("title", "created", "instrument"))


@runs.command()
@click.argument("run", type=options.RUN, default="latest")
@options.json_option
@options.runs_directory
def status(run: str, runs: Path, *, as_json: bool) -> None:
    """Show how far RUN is (default: the latest).

    What is done, who does what, what is left, and when it will be done.
    """
    from kdelta.run import timed  # loads all that boots a guest

    folder = RUNS.find(runs, run)
    record = RunJournal.open(folder).record()
    found = run_status(record, folder, executing=is_held(folder), now=time.time())
    busy = [
        (who, trial.index, record.arms[trial.arm].label, f"{trial.workload}:{trial.scenario}", s)
        for trial, who, s in found.busy
    ]
    if as_json:
        state = picked(found, ("ended", "failed", "executing", "left_s"))
        names = ("worker", "trial", "kernel", "scenario", "seconds")
        rows = [dict(zip(names, (*row, round(s, 1)), strict=True)) for *row, s in busy]
        print_json({"run": found.run_id, "trials": found.total, **state, "busy": rows})
        return
    say(_sentence(found, timed.pool_of(folder)))
    if busy:
        table = [(who, kernel, name, f"{s:.0f} s") for who, _, kernel, name, s in busy]
        heads = ("worker", "kernel", "scenario", "for")
        print_table(heads, table, right=("for",), wrap="scenario")


def _sentence(found: Status, pool: str) -> str:
    """pool: that the run is timed on, "" for none."""
    left = found.total - found.ended
    said = f"{found.run_id}: {found.ended} of {found.total} trials have ended, {left} are left"
    if found.failed:
        said += f"; {found.failed} failed for a machine's fault"
    if not left:
        return f"{said}."
    if not found.executing:
        there = f" --on LAB.TOML, with the pool {printable(pool, 60)}" if pool else ""
        return f"{said}; nobody works on it: kdelta resume {found.run_id}{there}"
    if found.left_s is None:
        return f"{said}; nobody can say yet when it will be done."
    minutes = max(1, round(found.left_s / 60))
    return f"{said}; done in about {minutes} min if it goes on so."


EXIT_CLOSED, EXIT_UNDECIDED = 1, 4
_kernel = partial(click.option, type=options.RUN_KERNEL, default="", metavar="KERNEL")


@click.command()
@options.run_argument
@_kernel("--against", help="The old one.  [default: the first]")
@_kernel("--kernel", help="The new one.  [default: the last]")
@options.other_run("--baseline", help="The run that the old one is in, if another.")
@click.option(
    "--fail-on",
    type=click.Choice([bar.value for bar in Bar]),
    multiple=True,
    default=(Bar.MORE_WORK.value,),
    show_default=True,
    help="What closes the gate; may be given several times.",
)
@options.step_percent_option
@options.choice_of({**FORMATS, **gate_page.FOR_CI})
@options.runs_directory
def gate(
    run: str, runs: Path, baseline: str | None, fail_on: tuple[str, ...], form: str, **given: Any
) -> None:
    """Compare a kernel of RUN with a baseline in every scenario, for CI.

    Exits with 0 when there is nothing to fail on, with 1 when there is, and with 4 when there is
    not but a scenario could not be judged: that is no pass.
    """
    old = one_record(runs, baseline) if baseline else None
    found = judged(one_record(runs, run), old, fail_on=[*map(Bar, fail_on)], **given)
    if form in gate_page.FOR_CI:
        print_raw(gate_page.FOR_CI[form][1](found))
    else:
        print_found(form, gate_page, found)
    if found.closed or found.undecided:
        raise click.exceptions.Exit(EXIT_CLOSED if found.closed else EXIT_UNDECIDED)
