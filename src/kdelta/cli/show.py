# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta show` and `kdelta audit`: what a stored run says, and what its trials ran on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kdelta.cli.options import formats, json_option, need, runs_directory, step_percent_option
from kdelta.cli.printing import print_found, print_lines, print_raw

if TYPE_CHECKING:
    from kdelta.journal.run import RunRecord

EXIT_FAILED = 1  # audit: a trial failed, or a fact does not hold
MANY = 8  # scenarios from which a run is shown as one table


@click.command()
@click.argument("run")
@click.option(
    "--beside",
    metavar="RUN",
    help="A run of the other instrument: path length and time of the same kernels side by side.",
)
@click.option(
    "--benchfmt", "part", flag_value="benchfmt", help="The Go benchmark format, for benchstat."
)
@click.option("--comparisons", "part", flag_value="comparisons", help="A row for each comparison.")
@click.option(
    "--metrics", "part", flag_value="metrics", help="Only the figures that workloads told."
)
@click.option(
    "--summary/--full",
    "summary",
    default=None,
    help="One table of all scenarios, or each in full.  [default: by their number]",
)
@runs_directory
@step_percent_option
@formats
def show(
    run: str,
    runs: Path,
    step_percent: float | None,
    beside: str | None,
    *,
    part: str | None,
    summary: bool | None,
    form: str,
) -> None:
    """Print what RUN measured: each kernel, the verdicts, and the step where it changed.

    RUN is the identifier of a run, a unique beginning of it, "latest", or a run folder.
    """
    from kdelta.analysis.findings import report
    from kdelta.rendering import comparisons
    from kdelta.rendering import show as page

    record = one_record(runs, run)
    if form and part == "benchfmt":
        raise click.UsageError(f"--{form} and --benchfmt exclude each other")
    if not part and beside is None and _print_traced(record, form):
        return
    if part == "benchfmt":
        _print_benchfmt(record)
    elif part == "metrics":
        _print_metrics(record, form)
    elif part == "comparisons":
        print_found(form, comparisons, report(record, step_percent=step_percent))
    elif beside is not None:
        if form:
            raise click.UsageError("--beside prints text; take --json or --csv of each run")
        _print_beside(record, one_record(runs, beside), step_percent)
    elif form:
        print_found(form, page, report(record, step_percent=step_percent))
    else:
        print_report(record, step_percent=step_percent, summary=summary, paged=True)


def _print_traced(record: RunRecord, form: str) -> bool:
    """Print what a traced run saw; False for a run of another instrument."""
    from kdelta.analysis.traces import traced
    from kdelta.rendering import show as page

    found = traced(record)
    if found:
        print_found(form, page.TRACES_VIEW, found)
    return found is not None


def _print_benchfmt(record: RunRecord) -> None:
    """The samples of timed trials, the count of each exact one."""
    from kdelta.analysis import benchfmt
    from kdelta.analysis.findings import method_of

    lines = benchfmt.lines(benchfmt.cases(record, method_of(record)))
    print_raw("".join(f"{line}\n" for line in lines))


def _print_metrics(record: RunRecord, form: str) -> None:
    from kdelta.analysis.metrics import tables
    from kdelta.rendering import show as page

    if form == "json":
        raise click.UsageError("the JSON of a run holds its metrics: take it without --metrics")
    print_found(form, page.METRICS_VIEW, tables(record))


def _print_beside(one: RunRecord, other: RunRecord, step_percent: float | None) -> None:
    from kdelta.analysis.findings import report
    from kdelta.rendering import comparisons

    print_lines(
        comparisons.show_side_by_side(
            *(report(each, step_percent=step_percent) for each in (one, other))
        )
    )


def print_report(
    record: RunRecord,
    *,
    step_percent: float | None = None,
    summary: bool | None = None,
    paged: bool = False,
) -> None:
    """Print the ladders of a run as text; of many scenarios, unless told, as one table.

    Of a traced run what it saw.
    """
    if _print_traced(record, ""):
        return
    from kdelta.analysis.findings import method_of, report
    from kdelta.analysis.survey import surveyed
    from kdelta.rendering import show as page

    many = len({(trial.workload, trial.scenario) for trial in record.trials}) > MANY
    if method_of(record, step_percent=step_percent).explains and (
        many if summary is None else summary
    ):
        print_lines(page.show_survey(surveyed(record, step_percent=step_percent)), paged=paged)
        return
    print_lines(page.show(report(record, step_percent=step_percent)), paged=paged)


def one_record(runs: Path, run: str) -> RunRecord:
    """The stored run that `run` names.  Raises SpecError, StoreError."""
    from kdelta.journal.run import RUNS, RunJournal

    record = RunJournal.open(RUNS.find(runs, run)).record()
    need(record.instrument)
    return record


@click.command()
@click.argument("run")
@click.option("--ktap", is_flag=True, help="Print KTAP (docs.kernel.org) instead of tables.")
@json_option
@click.option("--all", "every", is_flag=True, help="Also the facts that are told and do not bind.")
@runs_directory
def audit(run: str, runs: Path, *, ktap: bool, as_json: bool, every: bool) -> None:
    """Show what the machine and the pages of each trial of RUN were, and whether that holds.

    Exits with 1 when a trial failed, a fact does not hold, or kernels differ in one that binds.
    """
    from kdelta.analysis.audit import audited
    from kdelta.rendering import audit as page

    if ktap and as_json:
        raise click.UsageError("--ktap and --json exclude each other")
    found = audited(one_record(runs, run))
    if ktap:
        print_raw(page.ktap(found))
    else:
        print_found("json" if as_json else "", page, found, every=every)
    if not found.passed:
        raise click.exceptions.Exit(EXIT_FAILED)
