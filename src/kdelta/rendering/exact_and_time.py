# SPDX-License-Identifier: GPL-2.0-or-later
"""Path length and time of the same kernels side by side, each with its own grade."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kdelta.analysis.findings import Report
from kdelta.analysis.times import TimeMeasure
from kdelta.errors import SpecError
from kdelta.ladder.counts import Measure
from kdelta.ladder.ladders import Ladder, Rung
from kdelta.rendering.times import counted, drift, level, ratio
from kdelta.sample import Instrument
from kdelta.table.columns import ABSENT, Column, Line, Tone, paragraph, shortened, table_lines
from kdelta.verdict.comparison import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide:
    """One kernel in both runs; the same release, whatever each run calls it."""

    exact: Rung[Measure]
    timed: Rung[TimeMeasure]


def show(one: Report[Any], other: Report[Any]) -> list[Line]:
    """Both runs' scenarios that have kernels in common.  Raises SpecError when none has."""
    runs = {report.instrument: report for report in (one, other)}
    if len(runs) < 2:
        raise SpecError(
            "both runs are of the same instrument", action="give one exact run and one of time"
        )
    exact: Report[Measure]
    timed: Report[TimeMeasure]
    exact, timed = runs[Instrument.EXACT], runs[Instrument.TIME]
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


def _case(ladder: Ladder[Any]) -> tuple[str, str, str]:
    return ladder.workload, ladder.scenario, ladder.point


def _pairs(left: Ladder[Measure], right: Ladder[TimeMeasure]) -> list[SideBySide]:
    """Kernels of both runs, in the order of the timed one; [] without its first, the baseline."""
    exact = {rung.release: rung for rung in left.rungs if rung.total and rung.release}
    arms = [rung for rung in right.rungs if not rung.control]
    if arms[0].release not in exact:
        return []
    return [SideBySide(exact=exact[arm.release], timed=arm) for arm in arms if arm.release in exact]


def _section(
    left: Ladder[Measure], right: Ladder[TimeMeasure], pairs: list[SideBySide]
) -> Iterator[Line]:
    yield from paragraph(f"{left.workload}:{left.scenario}", Tone.BOLD)
    yield from paragraph(
        f"instructions per {left.operation} (exact-path, never a time) beside nanoseconds per"
        f" {right.operation} ({right.grade}); ratios new/old against {pairs[0].exact.arm}"
    )
    yield ()
    yield from table_lines(
        [
            Column("kernel", shortened([p.exact.arm for p in pairs], 24), Tone.BOLD),
            Column("insns", (_insns(p) for p in pairs), right=True),
            Column("x insns", (_times(_path_ratio(pairs, p)) for p in pairs)),
            Column("ns", (_ns(p) for p in pairs), right=True),
            Column("x time", (ratio(p.timed.comparison) for p in pairs)),
            Column("verdict of time", (_verdict(p) for p in pairs)),
        ]
    )
    yield ()
    for pair in pairs[1:]:
        yield from paragraph(_sentence(right, pairs, pair), Tone.BOLD)


def _insns(pair: SideBySide) -> str:
    return f"{pair.exact.total.per_operation:.1f}" if pair.exact.total else ABSENT


def _ns(pair: SideBySide) -> str:
    return f"{pair.timed.total.per_operation:.2f}" if pair.timed.total else ABSENT


def _path_ratio(pairs: list[SideBySide], pair: SideBySide) -> float | None:
    old, new = pairs[0].exact.total, pair.exact.total
    if pair is pairs[0] or old is None or new is None or not old.per_operation:
        return None
    return new.per_operation / old.per_operation


def _times(ratio: float | None) -> str:
    return ABSENT if ratio is None else f"x{ratio:.3f}"


def _verdict(pair: SideBySide) -> str:
    return pair.timed.comparison.verdict if pair.timed.comparison else ABSENT


def _sentence(right: Ladder[TimeMeasure], pairs: list[SideBySide], pair: SideBySide) -> str:
    path = _path_ratio(pairs, pair)
    head = f"{pair.exact.arm} executes {_plain(path)} the instructions of {pairs[0].exact.arm}"
    found = pair.timed.comparison
    if found is None or found.ratio is None or found.interval is None:
        return f"{head}; its time was not decided."
    if found.verdict in (Verdict.UNDECIDED, Verdict.INVALID):
        return f"{head}; its time is {found.verdict}."
    low, high = found.interval
    return (
        f"{head}; it takes {found.ratio:.2f}x the time ({right.grade}),"
        f" {level(found.alpha)} interval {low:.2f}-{high:.2f}, {counted(found)}{drift(found, 1)}."
    )


def _plain(ratio: float | None) -> str:
    return "an unknown multiple of" if ratio is None else f"{ratio:.2f}x"
