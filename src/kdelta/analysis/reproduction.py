# SPDX-License-Identifier: GPL-2.0-or-later
"""The same study measured twice, here and elsewhere: equal, or apart and for which reasons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kdelta.analysis.findings import report
from kdelta.journal.run import RunRecord
from kdelta.ladder.ladders import Ladder, Rung
from kdelta.sample import TOTAL, TrialRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """One kernel in one scenario and phase, theirs and ours; None: no value.

    equal: counts are, to the instruction; of times: the verdicts are.
    """

    scenario: str
    arm: str
    phase: str
    theirs: float | None
    ours: float | None
    equal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """rows: every figure of theirs.  reasons: what else differs, and may be why."""

    timed: bool
    rows: tuple[Repeated, ...]
    reasons: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """True when there is something, and all of it is equal."""
        return bool(self.rows) and all(row.equal for row in self.rows)


def compared(theirs: RunRecord, ours: RunRecord) -> Reproduction:
    """Two runs of one study; kernels are the same by the place in it."""
    timed = not theirs.instrument.traits.repeats
    pairs = zip(report(theirs).ladders, report(ours).ladders, strict=False)
    rows = [row for left, right in pairs for row in _rows(left, right, timed=timed)]
    return Reproduction(
        timed=timed, rows=tuple(rows), reasons=tuple(dict.fromkeys(apart(theirs, ours)))
    )


def _rows(left: Ladder[Any], right: Ladder[Any], *, timed: bool) -> Iterator[Repeated]:
    name = f"{left.workload}:{left.scenario} {left.point}".strip()
    for was, now in zip(left.rungs, right.rungs, strict=False):
        if was.total is None:
            continue
        if timed:
            yield _timed(name, was, now)
            continue
        own = {measure.phase: measure for measure in now.phases}
        for measure in was.phases:
            again = own.get(measure.phase)
            yield Repeated(
                scenario=name,
                arm=was.arm,
                phase=measure.phase,
                theirs=measure.per_operation,
                ours=again.per_operation if again else None,
                equal=again is not None
                and (again.value, again.operations) == (measure.value, measure.operations),
            )


def _timed(name: str, was: Rung[Any], now: Rung[Any]) -> Repeated:
    """No time is equal to another one: the verdict has to be."""
    verdicts = [rung.comparison.verdict if rung.comparison else None for rung in (was, now)]
    return Repeated(
        scenario=name,
        arm=was.arm,
        phase=TOTAL,
        theirs=was.total.per_operation if was.total else None,
        ours=now.total.per_operation if now.total else None,
        equal=verdicts[0] == verdicts[1] and now.total is not None,
    )


def apart(theirs: RunRecord, ours: RunRecord) -> Iterator[str]:
    """What else of two runs of one study differs, a sentence each."""
    for was, now in zip(theirs.arms, ours.arms, strict=False):
        if was.kernel.image_sha256 != now.kernel.image_sha256:
            yield f"{was.label}: another image ({was.kernel.version} and {now.kernel.version})"
    yield from _programs_apart(theirs, ours)
    left, right = (_environments(record.trials) for record in (theirs, ours))
    for name in left.keys() | right.keys():
        if left.get(name) != right.get(name):
            yield f"{name} was {_told(left.get(name))} and is {_told(right.get(name))}"
    if theirs.kdelta_version != ours.kdelta_version:
        yield f"kdelta {theirs.kdelta_version} measured theirs, {ours.kdelta_version} ours"
    for trial in ours.trials:
        if trial.result and trial.result.reason and not trial.result.skip:
            yield f"trial {trial.index} of ours is {trial.result.outcome}: {trial.result.reason}"


def _environments(trials: tuple[TrialRecord, ...]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for trial in trials:
        if trial.result and trial.result.environment:
            for name, value in trial.result.environment.identity.items():
                found.setdefault(name, set()).add(str(value))
    found.pop("program_sha256", None)  # of each scenario its own: see _programs_apart
    return found


def _programs_apart(theirs: RunRecord, ours: RunRecord) -> Iterator[str]:
    """Of how many scenarios another binary ran."""
    left, right = (_programs(record.trials) for record in (theirs, ours))
    both = left.keys() & right.keys()
    unknown = sum("" in left[name] | right[name] for name in both)
    others = sum(left[name] != right[name] for name in both if "" not in left[name] | right[name])
    if unknown:
        yield f"which program ran is not recorded of {unknown} of {len(both)} scenarios"
    if others:
        yield (
            f"another program ran in {others} of {len(both)} scenarios: of another source, or built"
            " by another compiler or with another C library"
        )


def _programs(trials: tuple[TrialRecord, ...]) -> dict[tuple[str, str], set[str]]:
    """The binaries of each scenario; "" for one that is not known."""
    found: dict[tuple[str, str], set[str]] = {}
    for trial in trials:
        if trial.result and (environment := trial.result.environment):
            own = found.setdefault((trial.workload, trial.scenario), set())
            own.add(environment.program_sha256)
    return found


def _told(values: set[str] | None) -> str:
    return " and ".join(sorted(value or "unknown" for value in values)) if values else "unknown"
