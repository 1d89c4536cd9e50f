# SPDX-License-Identifier: GPL-2.0-or-later
"""What `kdelta show` prints of a run of the time instrument."""

from __future__ import annotations

from collections.abc import Iterator

from kdelta.analysis.times import TimedArm, TimedLadder, TimedReport
from kdelta.analysis.variants import closes
from kdelta.metric import Grade
from kdelta.rendering import metrics
from kdelta.rendering.columns import (
    ABSENT,
    VERDICT_TONES,
    Column,
    Line,
    Span,
    Tone,
    paragraph,
    short,
    shortened,
    table_lines,
)
from kdelta.rendering.formats import Cell, csv_text, json_text
from kdelta.rendering.show import limits_of
from kdelta.sample import TOTAL
from kdelta.stats.summary import Summary
from kdelta.stats.verdict import Verdict

# The largest that a ladder's longest total reaches gives the unit of its table.
_UNITS = ((1e9, "seconds"), (1e6, "milliseconds"), (1.0, "nanoseconds"))
_WHERE = {
    Grade.HOST_TIME: "on this host",
    Grade.METAL_TIME: "on this machine",
    Grade.GUEST_TIME: "in a guest of this host",
}

_HEAD = (
    "run",
    "workload",
    "scenario",
    "point",
    "arm",
    "control",
    "release",
    "phase",
    "unit",
    "median",
    "mean",
    "sd",
    "cv",
    "mad",
    "minimum",
    "maximum",
    "valid",
    "planned",
    "replicate",
    "ratio_first",
    "low",
    "high",
    "alpha",
    "verdict",
    "grade",
    "reasons",
)


def show(report: TimedReport) -> list[Line]:
    """The whole page."""
    lines = list(paragraph(report.title or report.name, Tone.BOLD))
    lines += paragraph(
        f"run {report.run_id}, study {report.name}, {report.created}, seed {report.seed},"
        f" rounds {report.rounds}, kdelta {report.kdelta_version}"
    )
    if report.done < report.planned:
        lines += paragraph(
            f"{report.done}/{report.planned} trials done; go on with: kdelta resume"
            f" {report.run_id}",
            Tone.WARN,
        )
    for ladder in report.ladders:
        lines += [(), *_ladder(report, ladder)]
    return [*lines, *metrics.show(report.metrics), *limits_of(report.limits)]


def _ladder(report: TimedReport, ladder: TimedLadder) -> Iterator[Line]:
    at = f", {ladder.point}" if ladder.point else ""
    yield from paragraph(f"{ladder.workload}:{ladder.scenario}{at}", Tone.BOLD)
    if ladder.machine:
        yield from paragraph(ladder.machine)
    if all(arm.skipped for arm in ladder.arms):
        for reason in dict.fromkeys(arm.skipped for arm in ladder.arms):
            yield from paragraph(f"skipped: {reason}", Tone.FAINT)
        return
    scale, unit = _unit(ladder)
    yield from paragraph(
        f"{unit} per {ladder.operation}, median over the {ladder.replicate.value}s;"
        f" grade {ladder.grade}"
    )
    yield ()
    yield from table_lines(_columns(ladder, scale))
    yield from paragraph(
        f"x first: new/old against {ladder.arms[0].arm} with the"
        f" {percent_level(report.alpha)} interval; SAME: the whole interval"
        f" within {report.tolerance:.3g} of 1; n: valid/planned"
        f" {ladder.replicate.value}s; verdict: at most {report.alpha:.2g} false alarms",
        Tone.FAINT,
    )
    yield from _reasons(ladder)
    if ladder.published:
        yield ()
        yield from paragraph("in seconds, as mmtests prints it; its star is not our verdict:")
        yield from ((Span(line),) for line in ladder.published)
    yield ()
    for arm in ladder.arms:
        yield from paragraph(_sentence(ladder, arm), Tone.BOLD)
    for share in ladder.shares:
        yield from paragraph(closes(share, ladder.gap) + ".", Tone.BOLD)


def _unit(ladder: TimedLadder) -> tuple[float, str]:
    """What the times of a ladder are shown in, and how many ns that are."""
    longest = max((arm.total.median or 0.0 for arm in ladder.arms), default=0.0)
    return next((unit for unit in _UNITS if longest >= unit[0]), _UNITS[-1])


def _columns(ladder: TimedLadder, scale: float) -> list[Column]:
    arms = ladder.arms
    names = [name for name, _ in arms[0].phases]
    return [
        Column(
            "kernel", tuple(Span(n, Tone.BOLD) for n in shortened([arm.arm for arm in arms], 24))
        ),
        *(
            Column(
                short(name, 12),
                tuple(Span(_number(arm.phases[at][1].median, scale)) for arm in arms),
                right=True,
            )
            for at, name in enumerate(names)
        ),
        Column("CV", tuple(Span(_percent(arm.total)) for arm in arms), right=True),
        Column("n", tuple(Span(f"{arm.total.n}/{arm.total.planned}") for arm in arms)),
        Column("x first", tuple(Span(_ratio(arm)) for arm in arms)),
        Column("verdict", tuple(_verdict(arm) for arm in arms)),
    ]


def percent_level(alpha: float) -> str:
    """The level of an interval: "99 %"."""
    return f"{100 * (1 - alpha):.6g} %"


def _number(value: float | None, scale: float) -> str:
    if value is None:
        return ABSENT
    shown = value / scale
    return f"{shown:.3f}" if shown < 100 else f"{shown:.1f}"


def _percent(total: Summary) -> str:
    return ABSENT if total.cv is None else f"{total.cv:.1%}"


def _ratio(arm: TimedArm) -> str:
    found = arm.comparison
    if found is None or found.ratio is None or found.low is None or found.high is None:
        return ABSENT
    return f"x{found.ratio:.3f} ({found.low:.3f}-{found.high:.3f})"


def _verdict(arm: TimedArm) -> Span:
    if arm.skipped:
        return Span("skip", Tone.FAINT)
    if arm.comparison is None:
        return Span("control" if arm.control else ABSENT)
    return Span(arm.comparison.verdict, VERDICT_TONES[arm.comparison.verdict])


def _reasons(ladder: TimedLadder) -> Iterator[Line]:
    lines = [line for arm in ladder.arms for line in _troubles(arm)]
    for arm in ladder.arms:
        if arm.comparison:
            tone = VERDICT_TONES[arm.comparison.verdict]
            for reason in arm.comparison.reasons:
                lines += paragraph(f"{arm.arm}: {arm.comparison.verdict}: {reason}", tone)
    for caution in ladder.cautions:
        lines += paragraph(f"warning: {caution}", Tone.WARN)
    for doubt in ladder.doubts:
        lines += paragraph(f"this machine: {doubt}", Tone.WARN)
    if lines:
        yield ()
        yield from lines


def _troubles(arm: TimedArm) -> Iterator[Line]:
    """Why there are no times, or not all of them."""
    for failure in arm.failures:
        yield from paragraph(f"failed: {arm.arm}: {failure}", Tone.BAD)
    if arm.skipped:
        yield from paragraph(f"skipped: {arm.arm}: {arm.skipped}", Tone.FAINT)


def _sentence(ladder: TimedLadder, arm: TimedArm) -> str:
    """What a careful person would write of one comparison; "" when there is none."""
    found = arm.comparison
    if found is None:
        return ""
    count = ladder.replicate.counted(min(found.old.n, found.new.n))
    drift = f", drift {found.sandwich.drift:+.2%}" if found.sandwich else ""
    old = ladder.arms[0].arm
    if found.ratio is None or found.low is None or found.high is None:
        return f"{arm.arm} against {old}: {found.verdict}."
    claim = {
        Verdict.REGRESSION: f"takes {found.ratio:.3f}x the time of {old}",
        Verdict.IMPROVEMENT: f"takes {found.ratio:.3f}x the time of {old}",
        Verdict.SAME: f"takes the same time as {old}, within {found.tolerance:.1%}",
    }.get(found.verdict, f"against {old} is {found.verdict}: ratio {found.ratio:.3f}")
    return (
        f"{_WHERE[ladder.grade].capitalize()}, {arm.arm} {claim}"
        f" ({percent_level(found.alpha)} interval {found.low:.3f}-{found.high:.3f},"
        f" {count}{drift})."
    )


def show_json(report: TimedReport) -> str:
    """The whole report; names are those of kdelta.analysis.times, "format" is 1."""
    return json_text("show-time", report)


def show_csv(report: TimedReport) -> str:
    """A row per arm and phase, the verdict in the row of the total (RFC 4180)."""
    rows = [
        _row(report, ladder, arm, name, summary)
        for ladder in report.ladders
        for arm in ladder.arms
        for name, summary in arm.phases
    ]
    return csv_text(_HEAD, rows)


def _row(
    report: TimedReport, ladder: TimedLadder, arm: TimedArm, name: str, summary: Summary
) -> tuple[Cell, ...]:
    found = arm.comparison if name == TOTAL else None
    return (
        *(report.run_id, ladder.workload, ladder.scenario, ladder.point),
        *(arm.arm, int(arm.control), arm.release, name),
        *(f"ns/{ladder.operation}", summary.median, summary.mean, summary.sd),
        *(summary.cv, summary.mad, summary.minimum, summary.maximum),
        *(summary.n, summary.planned, summary.replicate),
        *((found.ratio, found.low, found.high) if found else (None,) * 3),
        *((found.alpha, found.verdict) if found else (None,) * 2),
        *((found.grade, "; ".join(found.reasons)) if found else (None,) * 2),
    )
