# SPDX-License-Identifier: GPL-2.0-or-later
"""A run and its reproduction elsewhere: which figures are equal, and what else differs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kdelta.analysis.findings import report
from kdelta.journal.run import RunRecord
from kdelta.ladder.ladders import Ladder


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeated:
    """One kernel in a scenario and phase; None: no value.  equal: counts are, of times verdicts."""

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
    for was, now in zip(left.rungs, right.rungs, strict=False):
        verdicts = {rung.comparison.verdict if rung.comparison else None for rung in (was, now)}
        # No time is equal to another one: the verdict has to be.
        theirs = (was.total,) if timed else was.phases
        ours = {m.phase: m for m in ((now.total,) if timed else now.phases) if m}
        for measure in theirs if was.total else ():
            again = ours.get(measure.phase)
            same = (
                len(verdicts) == 1
                if timed
                else again
                and (again.value, again.operations) == (measure.value, measure.operations)
            )
            yield Repeated(
                scenario=left.name,
                arm=was.arm,
                phase=measure.phase,
                theirs=measure.per_operation,
                ours=again.per_operation if again else None,
                equal=bool(again and same),
            )


def apart(theirs: RunRecord, ours: RunRecord) -> Iterator[str]:
    """What else of two runs of one study differs, a sentence each."""
    for was, now in zip(theirs.arms, ours.arms, strict=False):
        if was.kernel.image_sha256 != now.kernel.image_sha256:
            yield f"{was.label}: another image ({was.kernel.version} and {now.kernel.version})"
    (left, was_run), (right, now_run) = map(_identities, (theirs, ours))
    both = was_run.keys() & now_run.keys()
    unknown = sum("" in was_run[name] | now_run[name] for name in both)
    known = (name for name in both if "" not in was_run[name] | now_run[name])
    others = sum(was_run[name] != now_run[name] for name in known)
    if unknown:
        yield f"which program ran is not recorded of {unknown} of {len(both)} scenarios"
    if others:
        text = f"another program ran in {others} of {len(both)} scenarios: of another source, or"
        yield f"{text} built by another compiler or with another C library"
    for name in left.keys() | right.keys():
        if left.get(name) != right.get(name):
            yield f"{name} was {_told(left.get(name))} and is {_told(right.get(name))}"
    if theirs.kdelta_version != ours.kdelta_version:
        yield f"kdelta {theirs.kdelta_version} measured theirs, {ours.kdelta_version} ours"
    for trial in ours.trials:
        if trial.result and trial.result.reason and not trial.result.skip:
            yield f"trial {trial.index} of ours is {trial.result.outcome}: {trial.result.reason}"


def _identities(record: RunRecord) -> tuple[dict[str, set[str]], dict[tuple[str, str], set[str]]]:
    """What environments were, by name, and the binaries of each scenario ("": unknown)."""
    found: dict[str, set[str]] = {}
    programs: dict[tuple[str, str], set[str]] = {}
    for trial in record.trials:
        if trial.result and (environment := trial.result.environment):
            for name, value in environment.identity.items():
                found.setdefault(name, set()).add(str(value))
            own = programs.setdefault((trial.workload, trial.scenario), set())
            own.add(environment.program_sha256)
    found.pop("program_sha256", None)  # each scenario has its own
    return found, programs


def _told(values: set[str] | None) -> str:
    return " and ".join(sorted(value or "unknown" for value in values)) if values else "unknown"
