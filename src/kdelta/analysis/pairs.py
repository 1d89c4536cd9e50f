# SPDX-License-Identifier: GPL-2.0-or-later
"""Any two kernels of a lab in every scenario that has both.

A lab of many point releases has thousands of pairs, and most of its kernels count the same: what
was decided of two kernels holds for all that are like them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from kdelta.analysis.counts import CountEvidence, CountMethod
from kdelta.analysis.evidence import compare_arms
from kdelta.analysis.neighbours import Counted, both
from kdelta.journal.run import RunRecord
from kdelta.stats.verdict import Comparison, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRow:
    """A scenario on two kernels.  same_code: neither was measured anew, their code is one."""

    name: str
    operation: str
    old: float
    new: float
    comparison: Comparison
    same_code: bool
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two kernels in every scenario that has both; the largest change first."""

    old: str
    new: str
    rows: tuple[PairRow, ...]


def compared(
    arms: Mapping[str, Counted],
    kernels: Sequence[str],
    copied: Callable[[str, str, str], bool],
    *,
    most: int,
) -> Iterator[Pair]:
    """All pairs.  kernels: oldest first; beyond so many pairs neighbours, and each with the newest.

    copied: of a scenario, whether the newer kernel is the older by its code.
    """
    scenarios = [_Scenario(name, every) for name, every in arms.items()]
    for old, new in _wanted(kernels, most):
        every = (one.row(old, new, copied) for one in scenarios)
        rows = [row for row in every if row]
        if rows:
            yield Pair(old=old, new=new, rows=tuple(sorted(rows, key=_distance, reverse=True)))


class _Scenario:
    """One scenario, and what was decided of its kernels so far."""

    def __init__(self, name: str, every: Counted) -> None:
        self._name, self._every = name, every
        self._kinds: dict[Any, int] = {}
        self._kind_of: dict[int, int] = {}
        self._decided: dict[tuple[int, int, float], Comparison] = {}

    def row(self, old: str, new: str, copied: Callable[[str, str, str], bool]) -> PairRow | None:
        found = both(self._every, old, new)
        if found is None:
            return None
        _, record, was, now = found
        if was.total is None or now.total is None:
            return None
        return PairRow(
            name=self._name,
            operation=now.total.operation,
            old=was.total.per_operation,
            new=now.total.per_operation,
            comparison=self._comparison(record, was, now),
            same_code=copied(self._name, old, new),
            run_id=record.run_id,
        )

    def _comparison(self, record: RunRecord, was: CountEvidence, now: CountEvidence) -> Comparison:
        percent = record.study.thresholds.step_percent
        if not (was.sound and now.sound):  # why not names the kernel
            return compare_arms(CountMethod(step_percent=percent), was, now)
        key = self._kind(was), self._kind(now), percent
        found = self._decided.get(key)
        if found is None:
            found = _general(compare_arms(CountMethod(step_percent=percent), was, now))
            self._decided[key] = found
        return found

    def _kind(self, arm: CountEvidence) -> int:
        """A number that sound arms share of which a comparison cannot tell one from the other."""
        known = self._kind_of.get(id(arm))
        if known is None:
            known = self._kinds.setdefault(_content(arm), len(self._kinds))
            self._kind_of[id(arm)] = known
        return known


def _general(found: Comparison) -> Comparison:
    """A comparison whose reasons name no kernel, since it is told of others, too."""
    if not found.crossing or found.verdict is not Verdict.UNDECIDED:
        return found
    why = f"two compilers, {found.crossing}: part of it may be theirs"
    return replace(found, reasons=(why,))


def _content(arm: CountEvidence) -> tuple[object, ...]:
    """All of an arm that verdicts look at: counts, page state, machine, and how it was built."""
    kernel = arm.kernel
    results = [trial.result for trial in arm.used if trial.result]
    return (
        arm.state,
        tuple(result.exact.phases for result in results),
        tuple(measure.handled for measure in arm.phases),
        tuple(result.state for result in results),
        tuple(repr(CountMethod().conditions(result)) for result in results),
        (kernel.compiler, kernel.options, kernel.source, kernel.config_sha256),
    )


def _wanted(kernels: Sequence[str], most: int) -> list[tuple[str, str]]:
    every = [(a, b) for at, a in enumerate(kernels) for b in kernels[at + 1 :]]
    if len(every) <= most:
        return every
    near = set(pairwise(kernels)) | {(a, kernels[-1]) for a in kernels[:-1]}
    return [pair for pair in every if pair in near][:most]


def _distance(row: PairRow) -> float:
    ratio = row.comparison.ratio
    return max(ratio, 1 / ratio) if ratio else 0.0
