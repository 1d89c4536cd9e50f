# SPDX-License-Identifier: GPL-2.0-or-later
"""The page of a run's ladders as text, for either instrument: overview, tables, what they say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from kdelta.ladder.ladders import Failure, Ladder, Machine, Rung, RunLadders
from kdelta.printable import told_name
from kdelta.sample import Outcome
from kdelta.table.columns import (
    ABSENT,
    VERDICT_TONES,
    Column,
    Line,
    Span,
    Tone,
    builds_apart,
    first_that_fits,
    paragraph,
    short,
    shortened,
    tables_that_fit,
    verdict_span,
)
from kdelta.verdict.comparison import Verdict

_HEAD_WIDTH = 28


class LadderView(Protocol):
    """How the ladders of one instrument look: a module for each."""

    COUNTED: bool
    """Whether the total stands before the phases, and packages and compilers are said."""
    TOLD: tuple[Verdict, ...]
    """Of which verdicts the reasons are said."""

    def scale(self, ladders: Sequence[Ladder[Any]]) -> tuple[float, str]:
        """The unit of values in a table, and its name."""

    def value(self, measure: Any, unit: float) -> Span:
        """A value, in that unit; None: there is none."""

    def heading(self, ladder: Ladder[Any]) -> str:
        """What was measured."""

    def columns(self, ladder: Ladder[Any]) -> list[Column]:
        """What stands between the values and the verdict."""

    def legend(self, report: RunLadders[Any], ladder: Ladder[Any]) -> Iterator[str]:
        """What the columns mean, a clause each; none when nothing can be said."""

    def conclusion(self, report: RunLadders[Any], ladder: Ladder[Any]) -> Iterator[Line]:
        """What a ladder says."""

    def findings(self, report: RunLadders[Any]) -> Iterator[str]:
        """What a run of several scenarios says of each, and of all together."""


def page(
    report: RunLadders[Any], view: LadderView, tables: Sequence[Line] = (), *, details: bool = True
) -> list[Line]:
    """What the run says, then its tables.

    tables: others of the run, behind its ladders.  details: machines and legends.
    """
    lines = [line for warned in report.debugging for line in paragraph(warned, Tone.BAD)]
    if report.done < report.planned:
        state = f"{report.done}/{report.planned} trials done; resume with: kdelta resume "
        lines += paragraph(state + report.run_id, Tone.WARN)
    if report.done:
        for sentence in view.findings(report):
            lines += paragraph(f"{sentence}.", Tone.BOLD)
    lines += _overview(report.ladders, view)
    told: set[str] = set()
    for ladder in (*report.ladders, *report.beside):
        lines += [*[()] * bool(lines), *_ladder(report, ladder, view, told, details=details)]
    return [*lines, *tables]


def _overview(ladders: Sequence[Ladder[Any]], view: LadderView) -> Iterator[Line]:
    """A matrix at one glance: per scenario kernels by points; nothing for a run of one point."""
    groups: dict[tuple[str, str], list[Ladder[Any]]] = {}
    for ladder in ladders:
        groups.setdefault((ladder.workload, ladder.scenario), []).append(ladder)
    for (workload, scenario), group in groups.items():
        if len(group) < 2:
            continue
        unit, name = view.scale(group)
        operation = next((ladder.operation for ladder in group if ladder.operation), "operation")
        yield from (
            (),
            *paragraph(f"{told_name(workload, scenario)}: {name} per {operation}", Tone.BOLD),
        )
        labels = shortened([rung.label for rung in group[0].rungs], 20)
        columns = [
            Column(
                short(ladder.point, _HEAD_WIDTH),
                (_glance(rung, unit, view) for rung in ladder.rungs),
                right=True,
            )
            for ladder in group
        ]
        yield from tables_that_fit([Column("kernel", labels, Tone.BOLD)], columns)


def _glance(rung: Rung[Any], unit: float, view: LadderView) -> Span:
    if rung.total is None:
        return Span("skip" if rung.skipped else ABSENT, Tone.FAINT)
    return Span(view.value(rung.total, unit).text.removeprefix("~"))


def _ladder(
    report: RunLadders[Any], ladder: Ladder[Any], view: LadderView, told: set[str], *, details: bool
) -> Iterator[Line]:
    """One scenario.  told: what the page has said, of machines and legends, and says once."""
    conclusion = [*view.conclusion(report, ladder)]
    yield from (*conclusion, ()) if conclusion else paragraph(ladder.name, Tone.BOLD)
    if all(rung.skipped for rung in ladder.rungs):
        for reason in dict.fromkeys(rung.skipped for rung in ladder.rungs):
            yield from paragraph(f"skipped: {reason}", Tone.FAINT)
        return
    if details or len(ladder.machines) > 1:
        yield from _machines(ladder.machines, told)
    heading, _, claim = view.heading(ladder).partition("; ")
    yield from paragraph("; ".join([heading, *_news(filter(None, [claim]), told)]))
    if ladder.failing:
        yield from paragraph(ladder.failing, Tone.BAD)
    yield ()
    yield from tables(ladder, view)
    if details:
        yield from paragraph("; ".join(_news(view.legend(report, ladder), told)), Tone.FAINT)
    yield from _problems(ladder, view, told, details=details)


def _news(sentences: Iterable[str], told: set[str]) -> list[str]:
    """Those that are not told yet, which they are then."""
    fresh = [text for text in sentences if text not in told]
    told.update(fresh)
    return fresh


def _machines(machines: Sequence[Machine], told: set[str]) -> Iterator[Line]:
    if len(machines) == 1:
        for text in _news([machines[0].told], told):
            yield from paragraph(text)
        return
    for machine in machines:
        yield from paragraph(f"{machine.told}: {', '.join(machine.arms)}", Tone.WARN)


def tables(ladder: Ladder[Any], view: LadderView) -> Iterator[Line]:
    """The values of a ladder and its verdicts, a row for each kernel."""
    rungs = ladder.rungs
    unit, _ = view.scale([ladder])
    names = Column("kernel", shortened([rung.label for rung in rungs], 24), Tone.BOLD)
    total = Column("total", (view.value(rung.total, unit) for rung in rungs), right=True)
    phases = [
        Column(
            short(phase, 16), (view.value(rung.measure(phase), unit) for rung in rungs), right=True
        )
        for phase in (ladder.phases if len(ladder.phases) > 1 else ())  # else it is the total
    ]
    rest = [*view.columns(ladder), Column("verdict", (_verdict(rung) for rung in rungs))]
    values = [total, *phases] if view.COUNTED else [*phases, total]
    whole = [names, *values, *rest]
    apart = [*tables_that_fit([names], [total, *rest])]
    if phases:
        apart += [(), *tables_that_fit([names], phases)]
    yield from first_that_fits([whole], *apart)


def _verdict(rung: Rung[Any]) -> Span:
    if rung.skipped:
        return Span("skip", Tone.FAINT)
    if rung.comparison is None:
        return Span("control" if rung.arm.control else ABSENT)
    return verdict_span(rung.comparison)


def _problems(
    ladder: Ladder[Any], view: LadderView, told: set[str], *, details: bool
) -> Iterator[Line]:
    """told: what was said of a ladder before, and holds for this one, too.  details: also facts of
    the machine, which decide nothing.
    """
    apart = [
        builds_apart(rung.previous, rung.label, rung.comparison)
        for rung in ladder.rungs
        if rung.previous and rung.comparison and rung.comparison.differences
    ]
    blocks = [
        *(
            paragraph(text, Tone.FAINT if text.startswith("skipped") else Tone.BAD)
            for text in failures_told(ladder.failures)
        ),
        *(
            paragraph(f"{', '.join(arms)}: {verdict}: {reason}", VERDICT_TONES[verdict])
            for (verdict, reason), arms in _open(ladder, view).items()
        ),
        *(
            paragraph(note, Tone.WARN)
            for note in _news(dict.fromkeys([*apart, *caveats(ladder, facts=details)]), told)
        ),
    ]
    if blocks:
        yield ()
    for block in blocks:
        yield from block


def caveats(ladder: Ladder[Any], *, facts: bool) -> Iterator[str]:
    """What stands against its values, whoever reads them, and facts that may."""
    yield from (f"warning: {warning}" for warning in ladder.warnings)
    yield from (f"this machine: {doubt}" for doubt in ladder.doubts)
    yield from (f"beside the counts: {fact}" for fact in ladder.beside if facts)


def _open(ladder: Ladder[Any], view: LadderView) -> dict[tuple[Verdict, str], list[str]]:
    """The verdicts whose reasons are said, each with its kernels."""
    told: dict[tuple[Verdict, str], list[str]] = {}
    for rung in ladder.rungs:
        if rung.comparison and rung.comparison.verdict in view.TOLD:
            for reason in rung.comparison.reasons:
                said = rung.comparison.verdict, reason.removeprefix(f"{rung.label}: ")
                told.setdefault(said, []).append(rung.label)
    return told


def failures_told(failures: Sequence[Failure]) -> Iterator[str]:
    """One sentence for each way that trials failed; it names them by arm."""
    alike: dict[tuple[str, str], list[Failure]] = {}
    for failure in failures:
        alike.setdefault((failure.outcome, failure.reason), []).append(failure)
    for (outcome, reason), group in alike.items():
        arms: dict[str, list[str]] = {}
        for failure in group:
            arms.setdefault(failure.arm, []).append(f"{failure.trial}")
        trials = " and ".join(f"{', '.join(own)} ({arm})" for arm, own in arms.items())
        name = f"trial{'s' * (len(group) > 1)} {trials}"
        if outcome == Outcome.SKIP:
            yield f"skipped: {name}: {reason}"
            continue
        console = next(
            (f"; console of trial {f.trial}: {f.console}" for f in group if f.console), ""
        )
        yield f"failed: {name}: {outcome}: {reason or 'no reason was recorded'}{console}"
