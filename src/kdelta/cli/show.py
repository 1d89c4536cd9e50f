# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta show` and `kdelta explain`: what a stored run says."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kdelta.cli.options import fetch_debug_options, formats, need, output_option, runs_directory
from kdelta.cli.printing import print_found, print_lines, print_raw, write_output
from kdelta.errors import SpecError

if TYPE_CHECKING:
    from kdelta.analysis.calls import CallExplanation
    from kdelta.analysis.explanation import Explanation
    from kdelta.analysis.work import WorkExplanation
    from kdelta.cli.code import Begins, LineMeans, RanCode
    from kdelta.journal.run import RunRecord
    from kdelta.probes.calls import PathNode

    Trees = Sequence[Sequence[PathNode]]

TOP = 15
MANY = 8  # scenarios from which a run is shown as one table
OTHERS = ("benchfmt", "mmtests")  # parts of show in other tools' formats
EXIT_INVALID = 1  # explain: the comparison is INVALID and was refused
PICTURES = ("flame", "folded")
_F = TypeVar("_F", bound=Callable[..., Any])


def percentage(_context: click.Context, _option: click.Parameter, value: float | None) -> Any:
    """A value of --step-percent, refused when it is none."""
    if value is not None and not (math.isfinite(value) and 0 <= value <= 100):
        raise click.BadParameter("a percentage from 0 to 100 is expected")
    return value


def _run_options(command: _F) -> _F:
    """Options that every command reading a stored run has."""
    for option in (
        formats,
        click.option(
            "--step-percent",
            type=float,
            callback=percentage,
            metavar="PERCENT",
            help="Call a change of up to PERCENT the SAME, instead of the study's threshold.",
        ),
        runs_directory,
    ):
        command = option(command)
    return command


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
@click.option(
    "--mmtests", "part", flag_value="mmtests", help="mmtests' JSON, a line for each kernel."
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
@_run_options
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
    if form and part in OTHERS:
        raise click.UsageError(f"--{form} and --{part} exclude each other")
    if not part and beside is None and _print_traced(record, form):
        return
    if part in OTHERS:
        _print_for_others(record, part)
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


def _print_for_others(record: RunRecord, part: str) -> None:
    """For other tools: the samples of timed trials, the count of each exact one."""
    from kdelta.analysis.cases import cases
    from kdelta.analysis.compat import benchfmt, mmtests
    from kdelta.analysis.methods import method_of
    from kdelta.rendering.formats import packed

    own = cases(record, method_of(record))
    if part == "mmtests":
        print_raw("".join(map(packed, mmtests.extracted(own))))
        return
    lines = benchfmt.lines((case.group, case.metric, case.series) for case in own)
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
    from kdelta.analysis.findings import report
    from kdelta.analysis.methods import method_of
    from kdelta.analysis.survey import surveyed
    from kdelta.rendering import show as page

    many = len({(trial.workload, trial.scenario) for trial in record.trials}) > MANY
    if method_of(record, step_percent=step_percent).explains and (
        many if summary is None else summary
    ):
        print_lines(page.show_survey(surveyed(record, step_percent=step_percent)), paged=paged)
        return
    print_lines(page.show(report(record, step_percent=step_percent)), paged=paged)


@click.command()
@click.argument("run")
@click.argument("old", required=False)
@click.argument("new", required=False)
@click.option("--scenario", metavar="NAME", help="Of which scenario, when RUN has several.")
@click.option("--point", metavar="AXES", help="Of which point of the study's matrix: 'cpus=2'.")
@click.option("--phase", metavar="NAME", help="Of one phase only, instead of all.")
@click.option(
    "--top",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"List N functions. [default: {TOP}; with --json and --csv all]",
)
@click.option("--force", is_flag=True, help="List functions although the comparison is INVALID.")
@click.option("--calls", is_flag=True, help="Tell it by call paths (of a run with --probe calls).")
@click.option("--work", "part", flag_value="work", help="Tell it by kinds of instructions.")
@click.option(
    "--memory",
    "part",
    flag_value="memory",
    help="By memory touched (if run with --probe memory).",
)
@click.option(
    "--values", "part", flag_value="values", help="The values that probes of the run read."
)
@click.option(
    "--code",
    "function",
    metavar="FUNCTION",
    help="What ran of a function, side by side.",
)
@click.option("--lines", is_flag=True, help="With source lines, where they are known.")
@fetch_debug_options
@click.option(
    "--as",
    "picture",
    type=click.Choice(PICTURES),
    help="The call paths as a page of flame graphs, or as folded stacks; with -o.",
)
@output_option("File that --as writes.")
@_run_options
def explain(
    run: str,
    runs: Path,
    *,
    form: str,
    calls: bool,
    part: str | None,
    function: str | None,
    lines: bool,
    fetch_debug: bool,
    yes: bool,
    picture: str | None,
    output: Path | None,
    **choice: Any,
) -> None:
    """Rank the functions that the difference between kernels OLD and NEW of RUN is made of.

    OLD and NEW are labels as `kdelta show` prints them, references as the study wrote them, or
    unique beginnings of a release: 6.17. Without them it is the step that a report begins with:
    the largest that got worse. Exits with 1 when the comparison is INVALID.
    """
    from kdelta.analysis import explanation
    from kdelta.cli import code
    from kdelta.journal.run import RUNS
    from kdelta.rendering import explain as page

    if (picture is None) != (output is None):
        raise click.UsageError("--as says what, and -o FILE where to write it")
    if (bool(part), bool(function), calls or bool(picture)).count(True) > 1:
        raise click.UsageError("--calls, --work, --memory, --values and --code exclude each other")
    if lines < fetch_debug or fetch_debug < yes:
        raise click.UsageError("--fetch-debug is for --lines, and --yes for --fetch-debug")
    if choice["top"] is None and not form and not part:
        choice["top"] = TOP
    record = one_record(runs, run)
    old, new = _kernels(record, choice)
    found = explanation.explain(record, old, new, **choice)
    whole = explanation.explain(record, old, new, **choice | {"top": None})
    recorded = Recorded(RUNS.find(runs, run), record, whole, choice["point"])
    means = code.LineMeans(lines, fetch_debug, yes)
    if part:
        told_part = page.WorkPart(recorded.work(), part)
        recorded.print_placed(
            form, page.WORK_VIEW, told_part, page.work_functions(told_part), means
        )
    elif function:
        print_found(
            form, page.CODE_VIEW, code.listing(whole, function, recorded.ran(function), means)
        )
    elif calls or picture:
        _print_calls(form, found, recorded, means)
        if picture and output and not found.refused:
            _write_picture(picture, output, found, recorded, means)
    else:
        told = {} if form else {"sentences": recorded.sentences(found)}
        recorded.print_placed(form, page, found, differing(found), means, **told)
    if found.refused and found.comparison.verdict == "INVALID":
        click.get_current_context().exit(EXIT_INVALID)


def _kernels(record: RunRecord, choice: dict[str, Any]) -> tuple[str, str]:
    """The two kernels of choice, which are taken out of it.

    Where none is named those of the step that a report begins with, and choice gets its scenario
    and point; of a run of two kernels they are those two.  Raises SpecError without a step, and
    where one kernel was named.
    """
    from kdelta.analysis.claims import claim

    old, new = choice.pop("old"), choice.pop("new")
    if new is not None:
        return old, new
    if old is not None:
        raise SpecError(f"{old} is one kernel, a difference has two", action="name the other, too")
    if len(record.arms) == 2:
        return record.arms[0].label, record.arms[1].label
    headline = claim(record, scenario=choice["scenario"] or "").headline
    if headline is None:
        raise SpecError(
            "no step in this run",
            place=f"run {record.run_id}",
            action="name two of its kernels: kdelta explain RUN OLD NEW",
        )
    choice["scenario"] = f"{headline.ladder.workload}:{headline.ladder.scenario}"
    choice["point"] = choice["point"] or headline.ladder.point or None
    return headline.step.old, headline.step.new


class Recorded:
    """What a run kept beside counts of an explanation's windows; raises SpecError for what not."""

    def __init__(
        self, folder: Path, record: RunRecord, whole: Explanation, point: str | None
    ) -> None:
        """whole: the explanation with all functions."""
        self._folder = folder
        self._record = record
        self._whole = whole
        self._point = point
        self._paths: CallExplanation | None = None

    def paths(self, found: Explanation) -> CallExplanation:
        """The difference by call paths; found: the explanation, always the same."""
        from kdelta.analysis.calls import explained

        self._paths = self._paths or explained(found, *self.trees())
        return self._paths

    def trees(self) -> list[Trees]:
        """The call trees of the old and the new kernel."""
        from kdelta.journal import artifacts

        return [
            [artifacts.kept_calls(self._folder, at)[phase] for at, phase in side]
            for side in self._sides
        ]

    def work(self) -> WorkExplanation:
        """Kinds of work, memory and values."""
        from kdelta.analysis.work import compared
        from kdelta.journal import artifacts

        old, new = (
            [(artifacts.kept_details(self._folder, at), phase) for at, phase in side]
            for side in self._sides
        )
        return compared(self._whole, old, new)

    def ran(self, function: str = "") -> tuple[RanCode, RanCode]:
        """What ran under the old and the new kernel, of a function or of all."""
        from kdelta.cli.code import ran

        old, new = (ran(self._folder, self._record, side, function) for side in self._sides)
        return old, new

    def print_placed(
        self,
        form: str,
        view: Any,
        what: object,
        names: Sequence[str],
        means: LineMeans,
        **told: Any,
    ) -> None:
        """Print a view, with where the functions of these names begin where that is wanted."""
        from kdelta.cli.code import placed
        from kdelta.rendering import explain as page

        if not means.wanted:
            print_found(form, view, what, **told)
            return
        print_found(form, page.LINES_VIEW, placed(what, view, names, self.begins(), means), **told)

    def begins(self) -> tuple[Begins, Begins]:
        """Where the functions of the old and the new kernel begin."""
        from kdelta.cli.code import begins

        old, new = (begins(self._folder, self._record, side) for side in self._sides)
        return old, new

    def sentences(self, found: Explanation) -> list[str]:
        """The difference in a few sentences, of what there is."""
        from kdelta.rendering import sentences

        work = difference = None
        with contextlib.suppress(SpecError):
            work = self.work()
        with contextlib.suppress(SpecError):
            difference = self.paths(found).difference
        return sentences.difference_sentences(found, difference, work)

    @property
    def _sides(self) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
        from kdelta.analysis.calls import sources

        return sources(self._record, self._whole, self._point)


def _print_calls(form: str, found: Explanation, recorded: Recorded, means: LineMeans) -> None:
    from kdelta.rendering import explain as page

    told = {} if form else {"sentences": recorded.sentences(found)}
    recorded.print_placed(
        form, page.CALLS_VIEW, recorded.paths(found), differing(found), means, **told
    )


def _write_picture(
    picture: str, output: Path, found: Explanation, recorded: Recorded, means: LineMeans
) -> None:
    from kdelta.cli.code import whereabouts
    from kdelta.rendering import steps

    if picture == "folded":
        write_output(steps.folded(*recorded.trees()), output)
        return
    names = differing(found) if means.wanted else ()
    places, _ = whereabouts(names, recorded.begins(), means) if names else ({}, ())
    write_output(steps.flame_page(recorded.paths(found), places), output)


def differing(found: Explanation) -> list[str]:
    """The listed functions that differ, the largest change first."""
    return [row.function for row in found.functions if row.delta]


def one_record(runs: Path, run: str) -> RunRecord:
    """The stored run that `run` names.  Raises SpecError, StoreError."""
    from kdelta.journal.run import RUNS, RunJournal

    record = RunJournal.open(RUNS.find(runs, run)).record()
    need(record.instrument)
    return record
