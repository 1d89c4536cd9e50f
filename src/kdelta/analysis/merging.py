# SPDX-License-Identifier: GPL-2.0-or-later
"""One study measured on several machines, as one finding: the machine is a block.

docs/bundle.md has the rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import structs

from kdelta.analysis.findings import report
from kdelta.errors import SpecError
from kdelta.journal.run import RunRecord
from kdelta.ladder.evidence import ITERATION
from kdelta.ladder.ladders import Ladder
from kdelta.printable import printable
from kdelta.sample import ArmRecord
from kdelta.stats.timing import percent
from kdelta.study.spec import Study
from kdelta.verdict.comparison import Comparison, Verdict


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
            own = programs.setdefault((Path(trial.workload).name, trial.scenario), set())
            own.add(environment.program_sha256)
    found.pop("program_sha256", None)  # each scenario has its own
    return found, programs


def _told(values: set[str] | None) -> str:
    return " and ".join(sorted(value or "unknown" for value in values)) if values else "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedMachine:
    """A machine by the bundle that it sent; told: what it says that it is."""

    name: str
    run_id: str
    created: str
    kdelta_version: str
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedCount:
    """A phase of a kernel, per operation on each machine; None: no value.  equal: on all."""

    scenario: str
    arm: str
    phase: str
    values: tuple[float | None, ...]
    equal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedPair:
    """Two kernels in a scenario: the verdict of all machines, and of each.  equal: they agree."""

    scenario: str
    old: str
    new: str
    operation: str
    merged: Comparison
    each: tuple[Comparison | None, ...]
    equal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The finding.  counts: of an exact study, else none.  reasons: what differs by machine."""

    timed: bool
    title: str
    machines: tuple[MergedMachine, ...]
    counts: tuple[MergedCount, ...]
    pairs: tuple[MergedPair, ...]
    reasons: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """True when all counts are, and of times the verdicts."""
        if self.timed:
            return all(pair.equal for pair in self.pairs)
        return bool(self.counts) and all(one.equal for one in self.counts)


def merged(records: Mapping[str, RunRecord]) -> Merged:
    """One finding of the runs of several machines, by the names of their bundles.

    Raises SpecError for runs that are not of one study and the same kernels, for a run that is
    there twice, and for fewer than two.
    """
    if len(records) < 2:
        raise SpecError("one bundle is no several machines", action="name two or more of them")
    _check(records)
    return combined(records)


def combined(records: Mapping[str, RunRecord]) -> Merged:
    """The same of runs that are known to be of one study; the images of kernels may differ."""
    runs = list(records.values())
    timed = not runs[0].instrument.traits.repeats
    found = [report(run) for run in runs]
    machines = tuple(
        MergedMachine(
            name=name,
            run_id=run.run_id,
            created=run.created,
            kdelta_version=run.kdelta_version,
            told="; ".join(dict.fromkeys(m.told for one in own.ladders for m in one.machines)),
        )
        for (name, run), own in zip(records.items(), found, strict=True)
    )
    ladders = list(zip(*(own.ladders for own in found), strict=False))
    differing = (
        f"{name}: {reason}"
        for name, run in list(records.items())[1:]
        for reason in apart(runs[0], run)
    )
    return Merged(
        timed=timed,
        title=runs[0].title or runs[0].name,
        machines=machines,
        counts=() if timed else tuple(one for own in ladders for one in _counts(own)),
        pairs=tuple(_verdicts(tuple(records), ladders, timed=timed)),
        reasons=tuple(dict.fromkeys(differing)),
    )


def _check(records: Mapping[str, RunRecord]) -> None:
    (first, base), *others = records.items()
    seen = {(base.run_id, base.created): first}
    for name, run in others:
        same = seen.setdefault((run.run_id, run.created), name)
        if same != name:
            raise SpecError(f"{same} and {name} are one run", action="name each once")
        part, action = _studies_apart(base.study, run.study), "measure the very same:"
        apart = ""
        if part:
            apart, action = f"studies: {part} differs", "merge bundles of one study:"
        elif kernel := _kernels_apart(base.arms, run.arms):
            apart = f"kernels: {kernel}"
        elif _planned(run) != _planned(base):
            apart = "plans: their trials differ"
        if apart:
            action += f" kdelta bundle reproduce{' makes another' if part else ''}"
            raise SpecError(f"{first} and {name} are of different {apart}", action=action)


def _planned(run: RunRecord) -> list[tuple[int, str, str, int]]:
    return sorted(
        (t.arm, Path(t.workload).name, t.scenario, t.round) for t in run.trials if not t.varies
    )


def _studies_apart(one: Study, other: Study) -> str:
    """Which part of two studies differs, kernels and words for people apart; "": none."""
    for field in structs.fields(one):
        if field.name in ("kernels", "gap", "title", "question"):
            continue
        was, now = (getattr(study, field.name) for study in (one, other))
        if field.name == "plan":  # a repeated study names the seed that was drawn
            was, now = (structs.replace(plan, seed=None) for plan in (was, now))
        if field.name == "scenarios":  # a C file lies elsewhere on each machine
            was, now = ([Path(name).name for name in names] for names in (was, now))
        if was != now:
            return field.encode_name
    return ""


def _kernels_apart(one: Sequence[ArmRecord], other: Sequence[ArmRecord]) -> str:
    if len(one) != len(other):
        return f"{len(one)} of them and {len(other)}"
    for was, now in zip(one, other, strict=True):
        known = [
            (a, b)
            for name in ("image_sha256", "version", "release")
            if (a := getattr(was.kernel, name)) and (b := getattr(now.kernel, name))
        ]
        if was.point != now.point or (known and known[0][0] != known[0][1]):
            return printable(f"{was.label} is not the other's {now.label}", 200)
    return ""


def _counts(ladders: Sequence[Ladder[Any]]) -> Iterator[MergedCount]:
    for rungs in zip(*(ladder.rungs for ladder in ladders), strict=False):
        phases = dict.fromkeys(m.phase for rung in rungs for m in rung.phases)
        for phase in phases:
            own = [next((m for m in r.phases if m.phase == phase), None) for r in rungs]
            yield MergedCount(
                scenario=ladders[0].name,
                arm=rungs[0].label,
                phase=phase,
                values=tuple(m.per_operation if m else None for m in own),
                equal=len({(m.value, m.operations) if m else None for m in own}) == 1,
            )


def _verdicts(
    names: Sequence[str], ladders: Sequence[Sequence[Ladder[Any]]], *, timed: bool
) -> Iterator[MergedPair]:
    """The one verdict, or that the machines have several."""
    every = (
        (own[0], rungs) for own in ladders for rungs in zip(*(o.rungs for o in own), strict=False)
    )
    for ladder, rungs in every:
        each = tuple(rung.comparison for rung in rungs)
        known = [one for one in each if one]
        pairs = {(rung.previous, rung.comparison.verdict) for rung in rungs if rung.comparison}
        if not any(previous for previous, _ in pairs):
            continue
        found = known[0]
        agreed = len(pairs) == 1 and len(known) == len(each)
        if not agreed:
            told = ", ".join(
                f"{name} {one.verdict if one else 'none'}"
                for name, one in zip(names, each, strict=True)
            )
            invalid = any(one.verdict is Verdict.INVALID for one in known)
            found = Comparison(
                verdict=Verdict.INVALID if invalid else Verdict.UNDECIDED,
                grade=found.grade,
                reasons=(f"the machines disagree: {told}",),
            )
        elif timed:  # the ratio and its interval are a machine's
            changes = [
                f"{name} {percent(one.ratio)}" if one.ratio else f"{name}: {'; '.join(one.reasons)}"
                for name, one in zip(names, known, strict=True)
            ]
            reason = f"so says each machine: {', '.join(changes)}"
            found = Comparison(verdict=found.verdict, grade=found.grade, reasons=(reason,))
        yield MergedPair(
            scenario=ladder.name,
            old=next(rung.previous for rung in rungs if rung.previous),
            new=rungs[0].label,
            operation=ladder.operation or ITERATION,
            merged=found,
            each=each,
            equal=agreed,
        )
