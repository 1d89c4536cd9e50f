# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta explain`: which functions make two kernels of a stored run differ."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kdelta.cli.code import LineMeans
from kdelta.cli.options import (
    fetch_debug_options,
    formats,
    output_option,
    runs_directory,
    step_percent_option,
)
from kdelta.cli.printing import print_found, write_output
from kdelta.cli.show import one_record
from kdelta.errors import SpecError

if TYPE_CHECKING:
    from kdelta.analysis.explanation import Explanation
    from kdelta.codegen.recorded import Recorded
    from kdelta.journal.run import RunRecord

TOP = 15
EXIT_INVALID = 1  # the comparison is INVALID and was refused
PICTURES = ("flame", "folded")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the command line asks for: the two kernels and their windows, then the view of them.

    old, new: None for the kernels of the step that a report begins with.  part: "work", "memory"
    or "values".  function: the one whose code is listed.  form: of rendering's formats, "": text.
    """

    old: str | None
    new: str | None
    scenario: str | None
    point: str | None
    phase: str | None
    step_percent: float | None
    force: bool
    top: int | None
    calls: bool
    part: str | None
    function: str | None
    means: LineMeans
    picture: str | None
    output: Path | None
    form: str

    def check(self) -> None:
        """Raise UsageError for options that exclude each other, or lack another one."""
        if (self.picture is None) != (self.output is None):
            raise click.UsageError("--as says what, and -o FILE where to write it")
        paths = self.calls or bool(self.picture)
        if (bool(self.part), bool(self.function), paths).count(True) > 1:
            raise click.UsageError(
                "--calls, --work, --memory, --values and --code exclude each other"
            )
        if self.means.fetch and not self.means.wanted:
            raise click.UsageError("--fetch-debug is for --lines")

    @property
    def listed(self) -> int | None:
        """How many functions are listed; None: all."""
        return TOP if self.top is None and not self.form and not self.part else self.top


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
@click.option(
    "--as",
    "picture",
    type=click.Choice(PICTURES),
    help="The call paths as a page of flame graphs, or as folded stacks; with -o.",
)
@output_option("File that --as writes.")
@fetch_debug_options
@runs_directory
@step_percent_option
@formats
def explain(run: str, runs: Path, **given: Any) -> None:
    """Rank the functions that the difference between kernels OLD and NEW of RUN is made of.

    OLD and NEW are labels as `kdelta show` prints them, references as the study wrote them, or
    unique beginnings of a release: 6.17. Without them it is the step that a report begins with:
    the largest that got worse. Exits with 1 when the comparison is INVALID.
    """
    from kdelta.analysis import explanation
    from kdelta.codegen.recorded import Recorded
    from kdelta.journal.run import RUNS

    wanted = Wanted(**given)
    wanted.check()
    record = one_record(runs, run)
    wanted, old, new = _with_kernels(wanted, record)
    whole = explanation.explain(
        record,
        old,
        new,
        scenario=wanted.scenario,
        phase=wanted.phase,
        point=wanted.point,
        step_percent=wanted.step_percent,
        force=wanted.force,
    )
    _print(wanted, whole, Recorded(RUNS.find(runs, run), record, whole, wanted.point))
    if whole.refused and whole.comparison.verdict == "INVALID":
        click.get_current_context().exit(EXIT_INVALID)


def _print(wanted: Wanted, whole: Explanation, recorded: Recorded) -> None:
    """Print the view that is asked for, and write its picture."""
    from kdelta.analysis import explanation
    from kdelta.cli import code
    from kdelta.rendering import explain as page

    form, means = wanted.form, wanted.means
    if wanted.part:
        part = page.WorkPart(recorded.work(), wanted.part)
        _print_placed(recorded, form, page.WORK_VIEW, part, page.work_functions(part), means)
        return
    if wanted.function:
        sides = recorded.ran(wanted.function)
        print_found(form, page.CODE_VIEW, code.listing(whole, wanted.function, sides, means))
        return
    found = explanation.shortened(whole, wanted.listed)
    told = {} if form else {"sentences": _sentences(recorded, found)}
    if not wanted.calls and not wanted.picture:
        _print_placed(recorded, form, page, found, differing(found), means, **told)
        return
    paths = recorded.paths(found)
    _print_placed(recorded, form, page.CALLS_VIEW, paths, differing(found), means, **told)
    if wanted.picture and wanted.output and not found.refused:
        _write_picture(wanted.picture, wanted.output, found, recorded, means)


def _with_kernels(wanted: Wanted, record: RunRecord) -> tuple[Wanted, str, str]:
    """The two kernels.

    Where none is named they are those of the step that a report begins with, and its scenario and
    point become those that are wanted; of a run of two kernels they are those two.  Raises
    SpecError without a step, and where one kernel was named.
    """
    from kdelta.analysis.claims import claim

    if wanted.old is not None and wanted.new is not None:
        return wanted, wanted.old, wanted.new
    if wanted.old is not None:
        raise SpecError(
            f"{wanted.old} is one kernel, a difference has two", action="name the other, too"
        )
    if len(record.arms) == 2:
        return wanted, record.arms[0].label, record.arms[1].label
    headline = claim(record, scenario=wanted.scenario or "").headline
    if headline is None:
        raise SpecError(
            "no step in this run",
            place=f"run {record.run_id}",
            action="name two of its kernels: kdelta explain RUN OLD NEW",
        )
    scenario = f"{headline.ladder.workload}:{headline.ladder.scenario}"
    point = wanted.point or headline.ladder.point or None
    return replace(wanted, scenario=scenario, point=point), headline.step.old, headline.step.new


def _print_placed(
    recorded: Recorded,
    form: str,
    view: Any,
    what: object,
    names: Sequence[str],
    means: LineMeans,
    **told: Any,
) -> None:
    """Print a view, with where the functions of these names begin where that is wanted."""
    from kdelta.cli.code import placed
    from kdelta.rendering.explain import LINES_VIEW

    if not means.wanted:
        print_found(form, view, what, **told)
        return
    at = placed(what, view, names, recorded.begins(), means)
    print_found(form, LINES_VIEW, at, **told)


def _sentences(recorded: Recorded, found: Explanation) -> list[str]:
    """The difference in a few sentences, of what there is."""
    from kdelta.rendering.sentences import difference_sentences

    work = difference = None
    with contextlib.suppress(SpecError):
        work = recorded.work()
    with contextlib.suppress(SpecError):
        difference = recorded.paths(found).difference
    return difference_sentences(found, difference, work)


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
