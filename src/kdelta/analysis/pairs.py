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

from kdelta.analysis.neighbours import Counted, both
from kdelta.journal.run import RunRecord
from kdelta.ladder.counts import CountEvidence, CountMethod
from kdelta.ladder.evidence import compare_arms, obstacles
from kdelta.procfs import compiler_family
from kdelta.verdict.comparison import Comparison, CountReading, Verdict


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


class _Arm(NamedTuple):
    """What a pair takes of a kernel in a run.  kind: its number, -1 of an arm that is not sound."""

    record: RunRecord
    evidence: CountEvidence
    value: float
    operation: str
    kind: int


class _Scenario:
    """One scenario, and what was decided of its kernels so far."""

    def __init__(self, name: str, every: Counted) -> None:
        self._name, self._every = name, every
        self._settings: dict[tuple[object, ...], int] = {}
        self._numbers: dict[_Kind, int] = {}
        self._kinds: list[_Kind] = []
        self._obstacles: dict[tuple[int, int], Sequence[str]] = {}
        self._decided: dict[tuple[int, int, float], Comparison] = {}
        self._arms: dict[int, _Arm] = {}
        self._of: dict[str, list[_Arm]] = {}
        for record, own in every:
            for kernel, arm in own.items():
                if arm.total:
                    found = self._arms[id(arm)] = _Arm(
                        record,
                        arm,
                        arm.total.per_operation,
                        arm.total.operation,
                        self._kind(arm) if arm.sound else -1,
                    )
                    self._of.setdefault(kernel, []).append(found)

    def row(self, old: str, new: str, copied: Callable[[str, str, str], bool]) -> PairRow | None:
        before, after = self._of.get(old), self._of.get(new)
        if not before or not after:
            return None
        if len(before) == len(after) == 1:
            was, now = before[0], after[0]
        else:
            found = both(self._every, old, new)
            if found is None:
                return None
            was, now = (self._arms[id(arm)] for arm in found[2:])
        return PairRow(
            name=self._name,
            operation=now.operation,
            old=was.value,
            new=now.value,
            comparison=self._comparison(was, now),
            same_code=copied(self._name, old, new),
            run_id=now.record.run_id,
        )

    def _comparison(self, was: _Arm, now: _Arm) -> Comparison:
        percent = now.record.study.thresholds.step_percent
        old, new = was.evidence, now.evidence
        if was.kind < 0 or now.kind < 0:  # why not names the kernel
            return compare_arms(CountMethod(step_percent=percent), old, new)
        key = was.kind, now.kind, percent
        found = self._decided.get(key)
        if found is None:
            method = CountMethod(step_percent=percent)
            kinds = self._kinds[was.kind], self._kinds[now.kind]
            forbidden = self._between(old, new, (kinds[0].setting, kinds[1].setting))
            judged = method.judged(kinds[0].reading, kinds[1].reading, forbidden)
            found = _general(judged, *kinds)
            self._decided[key] = found
        return found

    def _between(
        self, was: CountEvidence, now: CountEvidence, settings: tuple[int, int]
    ) -> Sequence[str]:
        """Why the two must not be compared; all with settings like theirs neither."""
        found = self._obstacles.get(settings)
        if found is None:
            found = self._obstacles[settings] = obstacles(CountMethod(), was, now)
        return found

    def _kind(self, arm: CountEvidence) -> int:
        """The number of what sound arms share where no comparison can tell one from the other."""
        kernel = arm.kernel
        own = _Kind(
            self._settings.setdefault(_setting(arm), len(self._settings)),
            arm.total.reading if arm.total else None,
            compiler_family(kernel.compiler),
            kernel.source,
        )
        if own not in self._numbers:
            self._numbers[own] = len(self._kinds)
            self._kinds.append(own)
        return self._numbers[own]


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
