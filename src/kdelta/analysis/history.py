# SPDX-License-Identifier: GPL-2.0-or-later
"""Many runs as one lab: scenarios over kernels, their steps, any two kernels, a function's history.

Only counts, and only those of one kind of machine: others are left out, and said to be.  Of any two
kernels those of one run are compared where one has both, else the newest of each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kdelta.analysis.explanation import Explanation, profile
from kdelta.analysis.findings import Report, report
from kdelta.analysis.lines import line, ordered, reference
from kdelta.analysis.neighbours import Neighbour, beside, is_ladder
from kdelta.analysis.pairs import Pair, compared
from kdelta.analysis.survey import SurveyStep, surveyed
from kdelta.journal.run import RunRecord
from kdelta.ladder.counts import CountEvidence, CountMethod, Measure
from kdelta.ladder.evidence import ScenarioEvidence, gathered
from kdelta.ladder.ladders import Ladder
from kdelta.sample import TOTAL
from kdelta.verdict.comparison import Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPoint:
    """One kernel in one scenario, by the newest run that has it.

    value: instructions per operation, None for the reason in `note`.  comparison: with the kernel
    `previous` of the same run; same_code: it was not measured, its code is that kernel's.
    """

    kernel: str
    value: float | None
    note: str
    previous: str
    comparison: Comparison | None
    same_code: str
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioHistory:
    """A scenario over all kernels, oldest first."""

    name: str
    operation: str
    points: tuple[HistoryPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabStep:
    """A step with the run that shows it.  point: of its study's matrix, "" without one.

    alone: that run has the newer kernel only, and another the older.  kernels: what means the two
    in a command.
    """

    run_id: str
    alone: bool
    kernels: tuple[str, str]
    point: str
    created: str
    name: str
    explanation: Explanation
    phases: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionHistory:
    """A function that a step names: instructions per operation by scenario and kernel."""

    name: str
    rows: tuple[tuple[str, tuple[float | None, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """All that the runs of a lab show together.  left_out: a sentence for each run that is not."""

    machine: str
    newest: str
    kernels: tuple[str, ...]
    scenarios: tuple[ScenarioHistory, ...]
    steps: tuple[LabStep, ...]
    pairs: tuple[Pair, ...]
    functions: tuple[FunctionHistory, ...]
    runs: tuple[tuple[str, str, str], ...]
    left_out: tuple[str, ...]


def lab(records: Iterable[RunRecord], *, most_pairs: int, aside: Collection[str] = ()) -> Lab:
    """The runs as one; most_pairs: beyond so many, neighbours and each with the newest only.

    records: with names of kernels that are unique in all of them (`lines.named`).  aside: runs, by
    id, of which only the steps are taken: commits that were bisected are no kernels of the lab.
    """
    every = sorted(records, key=lambda one: one.created, reverse=True)
    used, machine, left_out = _of_one_machine(every)
    all_of = _Gathered()
    for own in used:
        all_of.add(own, only_steps=own.record.run_id in aside)
    names = {kernel for points in all_of.points.values() for kernel in points}
    kernels = ordered((one.record for one in used), names)
    all_of.climb(kernels)
    steps, points = all_of.steps.values(), all_of.points
    return Lab(
        machine=machine,
        newest=used[0].record.created if used else "",
        kernels=kernels,
        scenarios=tuple(
            ScenarioHistory(
                name=name,
                operation=all_of.operations[name],
                points=tuple(own[kernel] for kernel in kernels if kernel in own),
            )
            for name, own in sorted(points.items())
        ),
        steps=tuple(sorted(steps, key=_size, reverse=True)),
        pairs=tuple(compared(all_of.arms, kernels, all_of.copied, most=most_pairs)),
        functions=tuple(_functions(steps, kernels, all_of.arms)),
        runs=tuple(
            (one.run_id, one.created, one.title or one.name) for one in (u.record for u in used)
        ),
        left_out=left_out,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Used:
    """A run of the lab: what its trials amount to, and what it shows."""

    record: RunRecord
    evidence: tuple[ScenarioEvidence[Measure], ...]
    found: Report[Measure]
    machine: str


@dataclass(slots=True)
class _Gathered:
    """What the runs have, the newest first, by scenario and kernel."""

    points: dict[str, dict[str, HistoryPoint]] = field(default_factory=dict)
    operations: dict[str, str] = field(default_factory=dict)
    steps: dict[tuple[str, str, str, str], LabStep] = field(default_factory=dict)
    references: dict[str, str] = field(default_factory=dict)
    arms: dict[str, list[tuple[RunRecord, dict[str, CountEvidence]]]] = field(default_factory=dict)

    def add(self, own: _Used, *, only_steps: bool) -> None:
        record = own.record
        for arm in record.arms:
            self.references.setdefault(arm.label, reference(arm.label, arm.kernel))
        if only_steps or not _in_one_line(record):
            for change in surveyed(record).changes:
                self.steps.setdefault(_key(change), _lab_step(record, change, self.references))
        if only_steps:
            return
        for ladder in own.found.ladders:
            name = _name(ladder.workload, ladder.scenario, ladder.point)
            self.operations.setdefault(name, ladder.operation or "operation")
            points = self.points.setdefault(name, {})
            for kernel, seen in _points(record, ladder):
                known = points.get(kernel)
                if known is None or (known.value is None and seen.value is not None):
                    points[kernel] = seen
        for one in own.evidence:
            arms = {arm.arm.label: arm for arm in one.arms}
            name = _name(one.workload, one.scenario, one.point)
            self.arms.setdefault(name, []).append((record, arms))

    def copied(self, name: str, old: str, new: str) -> bool:
        """True when the newer kernel was not measured, since its code is the older one's."""
        point = self.points[name][new]
        return bool(point.same_code and point.previous == old)

    def climb(self, kernels: Sequence[str]) -> None:
        """Put each kernel beside its neighbour, with the steps between them."""
        for name, every in self.arms.items():
            own = self.points[name]
            for one in beside([row for row in every if is_ladder(row[0])], kernels):
                own[one.kernel] = _placed(own[one.kernel], one)
                for change in one.steps:
                    step = _lab_step(one.record, change, self.references, alone=one.alone)
                    self.steps.setdefault(_key(change), step)


def _in_one_line(record: RunRecord) -> bool:
    """True for a run whose steps are those between neighbours of the lab."""
    return is_ladder(record) and len({line(arm.kernel) for arm in record.arms}) == 1


def _placed(point: HistoryPoint, found: Neighbour) -> HistoryPoint:
    """The point beside its neighbour; what its own run compared it with is not that."""
    same = point.same_code if point.previous == found.previous else ""
    return replace(point, previous=found.previous, comparison=found.comparison, same_code=same)


def _of_one_machine(
    every: Sequence[RunRecord],
) -> tuple[list[_Used], str, tuple[str, ...]]:
    """The runs of the machine that has most values; why the others are not among them."""
    left_out: list[str] = []
    machines: list[_Used] = []
    weight: Counter[str] = Counter()
    for record in every:
        if not record.instrument.traits.repeats:
            left_out.append(f"{record.run_id}: it is of times, and these pages are of counts")
            continue
        evidence = gathered(record, CountMethod())
        found = report(record, known=evidence)
        told = {machine.told for ladder in found.ladders for machine in ladder.machines}
        if len(told) != 1:
            why = "it has no value yet" if not told else "its trials were on several machines"
            left_out.append(f"{record.run_id}: {why}")
            continue
        (machine,) = told
        own = _Used(record=record, evidence=evidence, found=found, machine=machine)
        machines.append(own)
        weight[machine] += sum(bool(r.total) for one in found.ladders for r in one.rungs)
    if not weight:
        return [], "", tuple(left_out)
    chosen = weight.most_common(1)[0][0]
    left_out += [
        f"{one.record.run_id}: counted on another machine ({one.machine})"
        for one in machines
        if one.machine != chosen
    ]
    return [one for one in machines if one.machine == chosen], chosen, tuple(left_out)


def _name(workload: str, scenario: str, point: str) -> str:
    return f"{workload}:{scenario} {point}".strip()


def _key(change: SurveyStep) -> tuple[str, str, str, str]:
    own = change.explanation
    return _step_name(change), own.old, own.new, own.phase


def _step_name(change: SurveyStep) -> str:
    return f"{change.reference} {change.point}".strip()


def _points(record: RunRecord, ladder: Ladder[Measure]) -> Iterable[tuple[str, HistoryPoint]]:
    copies = {
        record.arms[trial.arm].label: trial.result.copied.sentence
        for trial in record.trials
        if (trial.workload, trial.scenario) == (ladder.workload, ladder.scenario)
        and trial.result
        and trial.result.copied
    }
    for rung in ladder.rungs:
        note = "" if rung.total else "not supported" if rung.skipped else "no value"
        yield (
            rung.arm,
            HistoryPoint(
                kernel=rung.arm,
                value=rung.total.per_operation if rung.total else None,
                note=note,
                previous=rung.previous or "",
                comparison=rung.comparison if rung.total else None,
                same_code=copies.get(rung.arm, ""),
                run_id=record.run_id,
            ),
        )


def _lab_step(
    record: RunRecord, change: SurveyStep, known: Mapping[str, str], *, alone: bool = False
) -> LabStep:
    own = change.explanation
    return LabStep(
        run_id=record.run_id,
        alone=alone,
        kernels=(known.get(own.old, own.old), known.get(own.new, own.new)),
        point=change.point,
        created=record.created,
        name=_step_name(change),
        explanation=change.explanation,
        phases=change.phases,
    )


def _size(step: LabStep) -> float:
    ratio = step.explanation.comparison.ratio or 1.0
    return max(ratio, 1 / ratio) if ratio > 0 else 0.0


def _functions(
    steps: Iterable[LabStep],
    kernels: Sequence[str],
    arms: dict[str, list[tuple[RunRecord, dict[str, CountEvidence]]]],
) -> Iterable[FunctionHistory]:
    named = {
        name
        for step in steps
        for row in (*step.explanation.rising, *step.explanation.falling)
        for name in (row.function, row.was)
        if name
    }
    table: dict[str, dict[str, dict[str, float]]] = {}
    for name, every in arms.items():
        for _, own in every:
            for kernel, arm in own.items():
                if not arm.total:
                    continue
                for function, counts in profile(arm, TOTAL).functions.items():
                    if function in named:
                        row = table.setdefault(function, {}).setdefault(name, {})
                        row.setdefault(kernel, counts[0] / arm.total.operations)
    for function, rows in sorted(table.items()):
        yield FunctionHistory(
            name=function,
            rows=tuple(
                (name, tuple(own.get(kernel) for kernel in kernels))
                for name, own in sorted(rows.items())
            ),
        )
