# SPDX-License-Identifier: GPL-2.0-or-later
"""Any two kernels of a lab in every scenario that has both.

A lab of many point releases has thousands of pairs, and most of its kernels count the same: what
was decided of two kernels holds for all that are like them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from kdelta.analysis.counts import CountEvidence, CountMethod
from kdelta.analysis.evidence import compare_arms, obstacles
from kdelta.analysis.neighbours import Counted, both
from kdelta.journal.run import RunRecord
from kdelta.procfs import compiler_family
from kdelta.sample import TOTAL
from kdelta.stats.verdict import Comparison, CountReading, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRow:
    """A scenario on two kernels.  same_code: neither was measured anew, their code is one.

    comparison: of their builds, it says the compilers only.
    """

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


class _Kind(NamedTuple):
    """What a verdict on the sum over the phases looks at.  setting: a number for all the rest."""

    setting: int
    reading: CountReading | None
    compiler: str
    source: str


class _Scenario:
    """One scenario, and what was decided of its kernels so far."""

    def __init__(self, name: str, every: Counted) -> None:
        self._name, self._every = name, every
        self._settings: dict[tuple[object, ...], int] = {}
        self._kind_of: dict[int, _Kind] = {}
        self._obstacles: dict[tuple[int, int], Sequence[str]] = {}
        self._decided: dict[tuple[_Kind, _Kind, float], Comparison] = {}

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
        method = CountMethod(step_percent=record.study.thresholds.step_percent)
        if not (was.sound and now.sound):  # why not names the kernel
            return compare_arms(method, was, now)
        old, new = self._kind(was), self._kind(now)
        key = old, new, method.step_percent
        found = self._decided.get(key)
        if found is None:
            found = _general(method.compare((was, now), TOTAL, self._between(was, now)), old, new)
            self._decided[key] = found
        return found

    def _between(self, was: CountEvidence, now: CountEvidence) -> Sequence[str]:
        """Why the two must not be compared; all with settings like theirs neither."""
        key = self._kind(was).setting, self._kind(now).setting
        found = self._obstacles.get(key)
        if found is None:
            found = self._obstacles[key] = obstacles(CountMethod(), was, now)
        return found

    def _kind(self, arm: CountEvidence) -> _Kind:
        """What sound arms share of which a comparison cannot tell one from the other."""
        known = self._kind_of.get(id(arm))
        if known is None:
            kernel = arm.kernel
            setting = self._settings.setdefault(_setting(arm), len(self._settings))
            compiler = compiler_family(kernel.compiler)
            reading = arm.total.reading if arm.total else None
            known = self._kind_of[id(arm)] = _Kind(setting, reading, compiler, kernel.source)
        return known


def _general(found: Comparison, old: _Kind, new: _Kind) -> Comparison:
    """With two compilers as `builds.weighed` has it; told of other kernels, too, it names none."""
    crossed = f"{old.compiler} -> {new.compiler}" if old.compiler != new.compiler else ""
    if not (crossed and old.compiler and new.compiler):
        return found
    one_source = bool(old.source) and old.source == new.source
    if one_source or not (found.verdict.is_step or found.signless):
        return replace(found, crossing=crossed)
    why = f"two compilers, {crossed}: part of it may be theirs"
    return replace(found, crossing=crossed, verdict=Verdict.UNDECIDED, reasons=(why,))


def _setting(arm: CountEvidence) -> tuple[object, ...]:
    """All of a sound arm that obstacles look at: page state, machine and phases."""
    result = arm.used[0].result
    return (
        arm.state,
        tuple(measure.phase for measure in arm.phases),
        result.state if result else (),
        repr(CountMethod().conditions(result)) if result else "",
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
