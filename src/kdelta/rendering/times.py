# SPDX-License-Identifier: GPL-2.0-or-later
"""How timed ladders look: their cells, columns, words and fields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kdelta.analysis.findings import Report, TimeMeasure
from kdelta.ladder.evidence import ITERATION
from kdelta.ladder.ladders import Ladder, Rung, RunLadders
from kdelta.metric import Grade
from kdelta.rendering.formats import Cell, picked
from kdelta.sample import TOTAL
from kdelta.table.columns import ABSENT, CROSSED, Column, Line, Span, Tone, crossed_by, paragraph
from kdelta.verdict.comparison import Comparison, Share, Verdict

COUNTED = False
TOLD: tuple[Verdict, ...] = tuple(Verdict)
# The largest that a ladder's longest total reaches gives the unit of its table.
_UNITS = ((1e9, "seconds"), (1e6, "milliseconds"), (1.0, "nanoseconds"))
_WHERE = {
    Grade.HOST_TIME: "on this host",
    Grade.METAL_TIME: "on this machine",
    Grade.GUEST_TIME: "in a guest of this host",
}
_REPORT = ("tolerance", "alpha", "done", "planned", "ladders", "metrics", "limits")
_LADDER = (
    "workload", "scenario", "point", "operation", "replicate", "grade", "arms", "cautions",
    "doubts", "machine", "gap", "shares",
)  # fmt: skip
_ARM = ("arm", "control", "release", "compiler", "phases", "comparison", "failures", "skipped")
_COMPARISON = (
    "verdict", "grade", "reasons", "crossing", "options", "proven", "differences", "cautions",
    "old", "new", "control", "alpha", "tolerance", "ratio", "low", "high", "p", "mean_ratio",
    "median_ratio", "in_these_boots", "sandwich", "trend", "more",
)  # fmt: skip
HEAD: tuple[str, ...] = (
    "run", "workload", "scenario", "point", "arm", "control", "release", "phase", "unit",
    "median", "mean", "sd", "cv", "mad", "minimum", "maximum", "valid", "planned",
    "replicate", "ratio_first", "low", "high", "alpha", "verdict", "grade", "reasons",
)  # fmt: skip


def closes(share: Share, step: str) -> str:
    """How much of a step ("6.16 -> 6.17") an arm takes back, in words."""
    if share.value is None:
        return f"{share.arm}: share of {step}: unknown: {share.reason}"
    interval = (
        f"interval {100 * share.low:.1f} to {100 * share.high:.1f} %"
        if share.low is not None and share.high is not None
        else share.reason
    )
    return f"{share.arm} closes {100 * share.value:.1f} % of {step} ({interval})"


def scale(ladders: Sequence[Ladder[TimeMeasure]]) -> tuple[float, str]:
    """What the times of ladders are shown in, and how many ns that are."""
    totals = [rung.total for ladder in ladders for rung in ladder.rungs]
    longest = max((total.per_operation for total in totals if total), default=0.0)
    return next((unit for unit in _UNITS if longest >= unit[0]), _UNITS[-1])


def value(measure: TimeMeasure | None, unit: float) -> Span:
    """The median over the boots."""
    if measure is None:
        return Span(ABSENT)
    shown = measure.per_operation / unit
    return Span(f"{shown:.3f}" if shown < 100 else f"{shown:.1f}")


def heading(ladder: Ladder[TimeMeasure]) -> str:
    """What is timed, per what."""
    _, unit = scale([ladder])
    return (
        f"{unit} per {_operation(ladder)}, median over the {ladder.replicates}s;"
        f" grade {ladder.grade}"
    )


def _operation(ladder: Ladder[TimeMeasure]) -> str:
    return ladder.operation or ITERATION


def columns(ladder: Ladder[TimeMeasure]) -> list[Column]:
    """Scatter over the boots, and the ratio with its interval."""
    rungs = ladder.rungs
    scatter = [rung.total.summary.cv if rung.total else None for rung in rungs]
    shown = (ABSENT if cv is None else f"{cv:.1%}" for cv in scatter)
    return [
        Column("CV", (text for text in shown), right=True),
        Column("n", (f"{rung.ok}/{len(rung.trials)}" for rung in rungs)),
        Column("x first", (ratio(rung.comparison) for rung in rungs)),
    ]


def ratio(found: Comparison | None) -> str:
    """A ratio with its interval: "x1.096 (1.082-1.111)"."""
    if found is None or found.ratio is None or found.interval is None:
        return ABSENT
    low, high = found.interval
    mark = CROSSED if found.crossing else ""
    return f"x{found.ratio:.3f}{mark} ({low:.3f}-{high:.3f})"


def legend(report: RunLadders[TimeMeasure], ladder: Ladder[TimeMeasure]) -> Iterator[str]:
    """What the columns mean, a clause each."""
    yield f"x first: new/old against {ladder.baseline} with the {level(report.alpha)} interval"
    yield f"SAME: the whole interval within {report.step_percent / 100:.3g} of 1"
    yield f"n: valid/planned {ladder.replicates}s"
    yield f"verdict: at most {report.alpha:.2g} false alarms"
    if how := crossed_by(rung.comparison for rung in ladder.rungs):
        yield f"{CROSSED}: the two were built {how}"


def level(alpha: float | None) -> str:
    """The level of an interval: "99 %"."""
    return f"{100 * (1 - (alpha or 0.0)):.6g} %"


def conclusion(
    report: RunLadders[TimeMeasure],  # noqa: ARG001
    ladder: Ladder[TimeMeasure],
) -> Iterator[Line]:
    """Each comparison in a sentence."""
    for rung in ladder.rungs:
        if rung.comparison:
            said = _sentence(ladder, rung.label, rung.comparison)
            yield from paragraph(f"{ladder.name}: {said}", Tone.BOLD)
    for share in (rung.share for rung in ladder.rungs if rung.share):
        yield from paragraph(closes(share, _gap(ladder)) + ".", Tone.BOLD)


def _sentence(ladder: Ladder[TimeMeasure], arm: str, found: Comparison) -> str:
    old, ratio = ladder.baseline, found.ratio
    if ratio is None or found.interval is None:
        return f"{arm} against {old}: {found.verdict}."
    low, high = found.interval
    claim = f"against {old} is {found.verdict}: ratio {ratio:.3f}"
    if found.verdict.is_step:
        claim = f"takes {ratio:.3f}x the time of {old}"
    elif found.verdict is Verdict.SAME:
        claim = f"takes the same time as {old}, within {found.tolerance or 0.0:.1%}"
    where = _WHERE[ladder.grade].capitalize() + ", in these boots" * found.in_these_boots
    drift = f", drift {found.sandwich.drift:+.2%}" if found.sandwich else ""
    return (
        f"{where}, {arm} {claim} ({level(found.alpha)} interval {low:.3f}-{high:.3f},"
        f" {counted(found)}{drift}){found.hidden}."
    )


def counted(found: Comparison) -> str:
    """The replicates of the arm that has fewer: "9 boots"."""
    return found.old.replicate.counted(found.replicates) if found.old else ""


def findings(report: RunLadders[TimeMeasure]) -> Iterator[str]:  # noqa: ARG001
    """Every ladder ends with its sentences."""
    return iter(())


def _gap(ladder: Ladder[TimeMeasure]) -> str:
    known = ladder.goal and ladder.regressed
    return f"{ladder.goal} -> {ladder.regressed}" if known else ""


def data(report: Report[TimeMeasure]) -> dict[str, Any]:
    """The fields of JSON, format 1."""
    return picked(
        report,
        _REPORT,
        tolerance=report.step_percent / 100,
        ladders=[
            picked(
                ladder,
                _LADDER,
                operation=_operation(ladder),
                replicate=ladder.replicates,
                arms=[_arm(ladder, rung) for rung in ladder.rungs],
                cautions=ladder.warnings,
                machine=next((machine.told for machine in ladder.machines), ""),
                gap=_gap(ladder),
                shares=[rung.share for rung in ladder.rungs if rung.share],
            )
            for ladder in report.ladders
        ],
    )


def _arm(ladder: Ladder[TimeMeasure], rung: Rung[TimeMeasure]) -> dict[str, Any]:
    failures = [one for one in ladder.failures if one.arm == rung.label and not rung.skipped]
    return picked(
        rung,
        _ARM,
        **picked(rung.kernel, ("release", "compiler")),
        arm=rung.label,
        control=rung.arm.control,
        phases=[(measure.phase, measure.summary) for measure in _measures(rung)],
        comparison=picked(rung.comparison, _COMPARISON) if rung.comparison else None,
        failures=[f"trial {one.trial}: {one.outcome}: {one.reason}" for one in failures],
    )


def _measures(rung: Rung[TimeMeasure]) -> list[TimeMeasure]:
    phases = rung.phases if len(rung.phases) > 1 else ()
    return [*phases, rung.total] if rung.total else []


def rows(report: Report[TimeMeasure]) -> Iterator[tuple[Cell, ...]]:
    """A row per arm and phase, the verdict in the row of the total."""
    for ladder, rung in ((each, rung) for each in report.ladders for rung in each.rungs):
        for measure in _measures(rung) or (None,):
            phase = measure.phase if measure else TOTAL
            found = rung.comparison if phase == TOTAL else None
            own = measure.summary if measure else None
            yield (
                report.run_id, ladder.workload, ladder.scenario, ladder.point,
                rung.label, int(rung.arm.control), rung.kernel.release,
                phase, f"ns/{_operation(ladder)}",
                *(getattr(own, name, None) for name in HEAD[9:16]),
                rung.ok, len(rung.trials), ladder.replicates,
                *(getattr(found, name, None) for name in ("ratio", *HEAD[20:25])),
                "; ".join(found.reasons) if found else None,
            )  # fmt: skip
