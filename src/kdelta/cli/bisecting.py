# SPDX-License-Identifier: GPL-2.0-or-later
"""How a bisection is begun, gone on with, shown and ended, whatever its points are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kdelta.analysis.explanation import Explanation
    from kdelta.bisect.journal import Journal, Point, Question
    from kdelta.bisect.judging import Findings, PointInstrument
    from kdelta.bisect.ladder import News
    from kdelta.bisect.measuring import TrialMeasure
    from kdelta.bisect.outcome import BisectionResult
    from kdelta.journal.run import RunRecord
    from kdelta.kernels.kernel import Kernel
    from kdelta.study.spec import Study
    from kdelta.table.columns import Line

TOP = 8  # functions that are listed
EXIT_NOTHING = 1  # no change was found: the ends do not differ, or cannot be compared


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectChoice:
    """How the command line wants it done."""

    runs: Path
    wanted_qemu: str
    again: bool
    fresh: bool
    as_json: bool
    top: int
    audits: int = 0


def question(
    kind: str, study: Study, phase: str, measure: TrialMeasure, options: dict[str, str]
) -> Question:
    """What is asked, by which an earlier bisection of the same is found."""
    from kdelta.bisect.journal import Question

    good, bad = study.kernels
    return Question(
        kind=kind,
        scenario=study.scenarios[0],
        phase=phase,
        good=good,
        bad=bad,
        study=study,
        options=options | {"environment": measure.environment},
    )


def opened(
    asked: Question, choice: BisectChoice, study: Study, points: Callable[[], tuple[Point, ...]]
) -> Journal:
    """The earlier bisection of the same question, else a new one over these points."""
    from kdelta.bisect import journal as journals

    found = None if choice.fresh else journals.find(choice.runs, asked)
    if found is None:
        return journals.create(choice.runs, f"bisect-{study.name}"[:64], asked, points())
    done = len(found.state.steps)
    click.echo(
        f"going on with {found.folder.name}, which has {done} points (another one: --new)", err=True
    )
    return found


def instrument_of(
    journal: Journal,
    study: Study,
    measure: TrialMeasure,
    kernel_of: Callable[[Point], Kernel],
    points: int,
) -> PointInstrument:
    """The study's instrument.  kernel_of: an end's kernel; points: there are to search."""
    from kdelta.bisect.judging import PointCounting
    from kdelta.bisect.timing import BlockTiming

    if study.instrument.traits.interleaved:
        return BlockTiming(journal, measure, kernel_of, points)
    return PointCounting(journal, measure)


def tell(news: News) -> None:
    """Show a step on stderr: a line before it and a line after it."""
    from kdelta.metric import number
    from kdelta.printable import printable

    label = printable(news.point.label)
    if news.note:
        click.echo(printable(news.note), err=True)
        return
    if news.step is None:
        click.echo(f"{label}: measuring ({_to_go(news.left)})", err=True)
        return
    value = "" if news.value is None else f"{number(news.value)} {news.unit}, "
    words = news.step.standing or news.step.mark
    why = f": {printable(news.step.why)}" if news.step.why else ""
    click.echo(f"{label}: {value}{words}{why}", err=True)


def _to_go(left: int) -> str:
    return f"at most {left} to go, this one included" if left else "an end"


def carried_out(
    journal: Journal,
    instrument: PointInstrument,
    search: Callable[[], BisectionResult],
    choice: BisectChoice,
    *,
    points: str,
    more: Callable[[BisectionResult], tuple[list[Line], dict[str, Any]]],
) -> None:
    """Search to the end, leave a run folder, print the answer; exits 1 when there is no change.

    points: how many there are of what.  more: further lines of the answer, and the same as data.
    """
    from kdelta.bisect.outcome import Ending
    from kdelta.cli.printing import print_json, print_lines
    from kdelta.journal.folders import held
    from kdelta.rendering import bisection, explain
    from kdelta.rendering.formats import told

    try:
        with held(journal.folder):
            found = search()
            record = _finished(journal)
    except KeyboardInterrupt:
        click.echo("\ninterrupted; the same command goes on", err=True)
        raise
    findings = instrument.findings()
    explained = _explained(journal, findings, found, record, choice.top)
    lines, fields = more(found)
    if choice.as_json:
        content = bisection.data(journal, findings, found) | fields
        content["functions"] = told(*explain.document(explained)) if explained else None
        print_json(told(journal.state.question.kind, content))
    else:
        page = bisection.show(journal, findings, found, points=points)
        page += [(), *explain.show(explained)] if explained else []
        print_lines([*page, *lines])
        click.echo(f"\nEverything of it: {journal.folder}")
    if found.ending not in (Ending.STEP, Ending.RANGE):
        raise click.exceptions.Exit(EXIT_NOTHING)


def _finished(journal: Journal) -> RunRecord:
    """The bisection as a run, in its folder, for every command that reads runs."""
    from msgspec.structs import replace

    from kdelta.bisect import judging
    from kdelta.cli.execution import own_version
    from kdelta.journal.run import RunJournal
    from kdelta.rendering import bundle

    record = replace(judging.record(journal), kdelta_version=own_version())
    if not record.trials:  # nothing could be built
        return record
    folder = journal.folder
    RunJournal.create(folder, record, anew=True)
    bundle.write_run_files(record, folder)
    return record


def _explained(
    journal: Journal, findings: Findings[Any], found: BisectionResult, record: RunRecord, top: int
) -> Explanation | None:
    """The functions of the change that was found."""
    from kdelta.analysis import explanation

    is_step = found.comparison is not None and found.comparison.verdict.is_step
    if not is_step or not findings.method.explains:
        return None
    good, bad = (findings.booted(point).label for point in (found.good, found.bad))
    return explanation.explain(record, good, bad, phase=journal.state.question.phase, top=top)
