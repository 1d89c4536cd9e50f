# SPDX-License-Identifier: GPL-2.0-or-later
"""One kernel against a baseline in every scenario: may it go in?"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kdelta.analysis.explanation import find_arm
from kdelta.analysis.findings import method_of
from kdelta.errors import SpecError
from kdelta.journal.run import RunRecord
from kdelta.ladder.evidence import ArmEvidence, compare_arms, debugging, gather, parts
from kdelta.ladder.ladders import LadderStep
from kdelta.metric import Grade
from kdelta.printable import told_name
from kdelta.verdict.comparison import Comparison, Verdict


class Bar(StrEnum):
    """What a gate may be closed by."""

    MORE_WORK = "more-work"
    LESS_WORK = "less-work"
    UNDECIDED = "undecided"


_BARS = {
    Verdict.REGRESSION: Bar.MORE_WORK,
    Verdict.IMPROVEMENT: Bar.LESS_WORK,
    Verdict.UNDECIDED: Bar.UNDECIDED,
    Verdict.INVALID: Bar.UNDECIDED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCase:
    """One scenario.  old, new: per operation; None: no value.  closes: it is one to fail on."""

    name: str
    operation: str
    old: float | None
    new: float | None
    skipped: str
    comparison: Comparison
    closes: bool

    @property
    def why(self) -> str:
        """The reasons of its verdict."""
        return "; ".join(self.comparison.reasons)

    def step(self, old: str, new: str) -> LadderStep | None:
        """From a kernel to another; None where one was not counted."""
        if self.old is None or self.new is None:
            return None
        return LadderStep(
            old=old, new=new, old_value=self.old, new_value=self.new,
            operation=self.operation, comparison=self.comparison,
        )  # fmt: skip

    @property
    def open_question(self) -> bool:
        """True when it does not close the gate and yet says nothing."""
        return (
            not self.closes
            and not self.skipped
            and _BARS.get(self.comparison.verdict) is Bar.UNDECIDED
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """All scenarios.  unit: of the values ("instructions", "ns").  debugging: see RunLadders."""

    run_id: str
    baseline_run: str
    old: str
    new: str
    unit: str
    cases: tuple[GateCase, ...]
    debugging: tuple[str, ...] = ()

    @property
    def closed(self) -> bool:
        """True when there is something to fail on."""
        return any(case.closes for case in self.cases)

    @property
    def undecided(self) -> bool:
        """True when something is left open, or nothing was compared at all."""
        compared = [case for case in self.cases if not case.skipped]
        return not compared or any(case.open_question for case in compared)


def gate(
    record: RunRecord,
    baseline: RunRecord | None = None,
    *,
    against: str = "",
    kernel: str = "",
    fail_on: Collection[Bar] = (Bar.MORE_WORK,),
    step_percent: float | None = None,
    alike: bool = False,
    grade: Grade = Grade.EXACT_PATH,
) -> GateResult:
    """Compare a kernel of a run (the last) with one (the first) of it, or of the baseline's run.

    alike, grade: see method_of.

    Raises SpecError for runs of two instruments, and for kernels that are not in them.
    """
    old_run = baseline or record
    if len({old_run.instrument, record.instrument}) > 1:
        raise SpecError(
            "the baseline is of another instrument", action="give two runs of the same one"
        )
    method = method_of(record, step_percent=step_percent, alike=alike, grade=grade)
    theirs = {
        (point, workload, scenario): part for point, part, workload, scenario in parts(old_run)
    }
    cases, names = [], ("", "")
    for point, part, workload, scenario in parts(record):
        own = [arm for arm in gather(part, workload, scenario, method) if not arm.arm.control]
        other = theirs.get((point, workload, scenario))
        if other is None:
            continue  # the baseline never measured it: nothing to compare
        olds: list[ArmEvidence[Any]] = list(gather(other, workload, scenario, method))
        first = [arm for arm in olds if not arm.arm.control]
        old = find_arm(first, against) if against else first[0]
        new = find_arm(own, kernel) if kernel else own[-1]
        if old.label == new.label and (baseline or record).run_id == record.run_id:
            cause = f"{old.label} would be compared with itself"
            action = "name two kernels with --against and --kernel"
            raise SpecError(cause, place=f"run {record.run_id}", action=action)
        names = old.label, new.label
        again = [arm for arm in olds if arm.arm.control and method.baseline]
        found = compare_arms(method, old, new, *again[:1])
        name = f"{told_name(workload, scenario)} {point}".strip()
        cases.append(_case(name, old, new, found, fail_on))
    return GateResult(
        run_id=record.run_id,
        baseline_run=old_run.run_id,
        old=names[0],
        new=names[1],
        unit=method.unit,
        cases=tuple(cases),
        debugging=debugging(record.arms),
    )


def _case(
    name: str,
    old: ArmEvidence[Any],
    new: ArmEvidence[Any],
    found: Comparison,
    fail_on: Collection[Bar],
) -> GateCase:
    skipped = new.skipped or old.skipped
    return GateCase(
        name=name,
        operation=next((arm.total.operation for arm in (new, old) if arm.total), "operation"),
        old=old.total.per_operation if old.total else None,
        new=new.total.per_operation if new.total else None,
        skipped=skipped,
        comparison=found,
        closes=not skipped and _BARS.get(found.verdict) in fail_on,
    )
