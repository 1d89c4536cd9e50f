# SPDX-License-Identifier: GPL-2.0-or-later
"""Path length and time of the same kernels side by side, each with its own grade."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kdelta.analysis.findings import Ladder, Report, Rung
from kdelta.analysis.times import TimedArm, TimedLadder, TimedReport
from kdelta.errors import SpecError
from kdelta.rendering.columns import (
    ABSENT,
    Column,
    Line,
    Span,
    Tone,
    paragraph,
    shortened,
    table_lines,
)
from kdelta.rendering.times import percent_level
from kdelta.stats.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide:
    """One kernel in both runs; the same release, whatever each run calls it."""

    exact: Rung
    timed: TimedArm


def show(exact: Report, timed: TimedReport) -> list[Line]:
    """Both runs' scenarios that have kernels in common.  Raises SpecError when none has."""
    lines: list[Line] = []
    for left in exact.ladders:
        for right in timed.ladders:
            pairs = _pairs(left, right)
            if _case(left) == _case(right) and pairs:
                lines += [*([()] if lines else []), *_section(left, right, pairs)]
    if not lines:
        raise SpecError(
            f"{exact.run_id} and {timed.run_id} have no scenario with a kernel in common",
            action="give two runs of one scenario over the same kernels",
        )
    return lines


def _case(ladder: Ladder | TimedLadder) -> tuple[str, str, str]:
    return ladder.workload, ladder.scenario, ladder.point


def _pairs(left: Ladder, right: TimedLadder) -> list[SideBySide]:
    """Kernels of both runs, in the order of the timed one; [] without its first, the baseline."""
    exact = {rung.release: rung for rung in left.rungs if rung.total and rung.release}
    arms = [arm for arm in right.arms if not arm.control]
    if arms[0].release not in exact:
        return []
    return [SideBySide(exact=exact[arm.release], timed=arm) for arm in arms if arm.release in exact]


def _section(left: Ladder, right: TimedLadder, pairs: list[SideBySide]) -> Iterator[Line]:
    yield from paragraph(f"{left.workload}:{left.scenario}", Tone.BOLD)
    yield from paragraph(
        f"instructions per {left.operation} (exact-path, never a time) beside nanoseconds per"
        f" {right.operation} ({right.grade}); ratios new/old against {pairs[0].exact.arm}"
    )
    yield ()
    yield from table_lines(
        [
            Column(
                "kernel",
                tuple(Span(n, Tone.BOLD) for n in shortened([p.exact.arm for p in pairs], 24)),
            ),
            Column("insns", tuple(Span(_insns(p)) for p in pairs), right=True),
            Column("x insns", tuple(Span(_times(_path_ratio(pairs, p))) for p in pairs)),
            Column("ns", tuple(Span(_ns(p)) for p in pairs), right=True),
            Column("x time", tuple(Span(_time_ratio(p)) for p in pairs)),
            Column("verdict of time", tuple(Span(_verdict(p)) for p in pairs)),
        ]
    )
    yield ()
    for pair in pairs[1:]:
        yield from paragraph(_sentence(right, pairs, pair), Tone.BOLD)


def _insns(pair: SideBySide) -> str:
    return f"{pair.exact.total.per_operation:.1f}" if pair.exact.total else ABSENT


def _ns(pair: SideBySide) -> str:
    median = pair.timed.total.median
    return ABSENT if median is None else f"{median:.2f}"


def _path_ratio(pairs: list[SideBySide], pair: SideBySide) -> float | None:
    old, new = pairs[0].exact.total, pair.exact.total
    if pair is pairs[0] or old is None or new is None or not old.per_operation:
        return None
    return new.per_operation / old.per_operation


def _times(ratio: float | None) -> str:
    return ABSENT if ratio is None else f"x{ratio:.3f}"


def _time_ratio(pair: SideBySide) -> str:
    found = pair.timed.comparison
    if found is None or found.ratio is None or found.low is None or found.high is None:
        return ABSENT
    return f"x{found.ratio:.3f} ({found.low:.3f}-{found.high:.3f})"


def _verdict(pair: SideBySide) -> str:
    return pair.timed.comparison.verdict if pair.timed.comparison else ABSENT


def _sentence(right: TimedLadder, pairs: list[SideBySide], pair: SideBySide) -> str:
    path = _path_ratio(pairs, pair)
    head = f"{pair.exact.arm} executes {_plain(path)} the instructions of {pairs[0].exact.arm}"
    found = pair.timed.comparison
    if found is None or found.ratio is None or found.low is None or found.high is None:
        return f"{head}; its time was not decided."
    if found.verdict in (Verdict.UNDECIDED, Verdict.INVALID):
        return f"{head}; its time is {found.verdict}."
    drift = f", drift {found.sandwich.drift:+.1%}" if found.sandwich else ""
    return (
        f"{head}; it takes {found.ratio:.2f}x the time ({right.grade}),"
        f" {percent_level(found.alpha)} interval {found.low:.2f}-{found.high:.2f},"
        f" {right.replicate.counted(min(found.old.n, found.new.n))}{drift}."
    )


def _plain(ratio: float | None) -> str:
    return "an unknown multiple of" if ratio is None else f"{ratio:.2f}x"
