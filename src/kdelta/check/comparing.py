# SPDX-License-Identifier: GPL-2.0-or-later
"""One scenario before and after a series: more work or less, and by which functions."""

from __future__ import annotations

from dataclasses import dataclass

from kdelta import workload
from kdelta.analysis.explanation import Explanation, explain, once
from kdelta.analysis.gate import gate
from kdelta.check.counter import Counted
from kdelta.check.moved import netted
from kdelta.check.page import LEAST_PERCENT, Effect, FunctionPart, PathRow
from kdelta.check.pairs import Paired, paired
from kdelta.errors import SpecError
from kdelta.journal.run import RunRecord
from kdelta.machine import folios
from kdelta.sample import ArmRecord, TrialRecord
from kdelta.study import spec
from kdelta.verdict.comparison import Verdict
from kdelta.workload import Feature

_OLD, _NEW = "before", "after"
_SHOWN = 4
_SPREADS = 3  # a difference of fewer spreads is not told from it
OTHERS = "others"
_BYTES = "bytes that string instructions copy or clear"


def path_row(before: Counted, after: Counted, tolerance: float) -> PathRow:
    """What became of a scenario between two kernels that were built alike.

    tolerance: percent by which it may get longer.
    """
    load, scenario = workload.parse_reference(before.scenario)
    record = _record(before, after)
    case = gate(record, step_percent=LEAST_PERCENT, alike=True).cases[0]
    pair = paired(before.result.exact.phases, after.result.exact.phases)
    change, reason = _change(
        case.comparison.verdict, case.old, case.new, case.comparison.spread, pair
    )
    if change is Effect.OPEN:
        reason = case.skipped or "; ".join(case.comparison.reasons)
    elif change is not Effect.SPREAD and (why := _may_be_more(record, tolerance)):
        change, reason = Effect.OPEN, why
    elif change is Effect.EQUAL and case.comparison.signless:
        reason = f"{case.comparison.handled:+,.0f} {_BYTES}"
    told = change in (Effect.MORE, Effect.LESS, Effect.SLIGHT)
    return PathRow(
        scenario=f"{load.name}:{scenario.name}",
        what=f"{load.title}, {scenario.summary}" if not scenario.declared else scenario.summary,
        pages=pages_of(scenario),
        operation=case.operation,
        before=case.old,
        after=case.new,
        change=change,
        reason=reason,
        functions=_parts(record) if told else (),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Both:
    """A scenario on two kernels, per operation.  functions: all that differ; sure: it is a
    difference, or none, beyond what windows differ by; signless: why its sign says nothing.
    first: the functions that an explanation begins with.
    """

    before: float | None
    after: float | None
    sure: bool
    reason: str
    functions: tuple[FunctionPart, ...]
    signless: str = ""
    first: tuple[str, ...] = ()


def both(before: Counted, after: Counted) -> Both:
    """Two kernels that may be built differently, as far as they can be compared."""
    record = _record(before, after)
    found = _explained(record)
    case = gate(record).cases[0]
    verdict = case.comparison.verdict
    exactly = gate(record, step_percent=LEAST_PERCENT).cases[0].comparison
    return Both(
        before=case.old,
        after=case.new,
        sure=verdict not in (Verdict.UNDECIDED, Verdict.INVALID),
        reason=case.skipped or "; ".join(case.comparison.reasons),
        functions=tuple(
            FunctionPart(function=row.function, delta=row.delta / found.operations)
            for row in found.functions
            if row.delta
        )
        if found
        else (),
        signless=exactly.signless,
        first=tuple(row.function for row in (*found.rising, *found.falling)) if found else (),
    )


def _may_be_more(record: RunRecord, tolerance: float) -> str:
    """Why bytes leave open whether a path got longer, or by how much; it did not when all is less.

    A little more by instructions may be much more by bytes, so both thresholds are asked.
    """
    for percent in (LEAST_PERCENT, tolerance):
        found = gate(record, step_percent=percent, alike=True).cases[0].comparison
        less = (found.difference or 0.0) <= 0 and (found.handled or 0.0) < 0
        if found.signless and not less:
            return found.signless
    return ""


def pages_of(scenario: workload.Scenario) -> str:
    """What the memory of a scenario is mapped by, in a word."""
    name = scenario.name
    if cell := folios.cell_of(name):
        return cell.pages
    if "hugetlb" in name or any("hugetlb" in fact.name and fact.want not in ("0", "same", "free")
                                for fact in scenario.contract):  # fmt: skip
        return "hugetlb"
    if "mthp" in name or "64k" in name.split("_") or getattr(scenario.needs, "mthp", None):
        return "64K"
    if "pte_mapped" in name:
        return "PTE-mapped 2M"
    if Feature.THP in scenario.features or (
        "thp" in name.split("_") and "no" not in name.split("_")
    ):
        return "2M"
    return "base"


def _change(
    verdict: Verdict,
    old: float | None,
    new: float | None,
    spread: float | None,
    pair: Paired | None = None,
) -> tuple[Effect, str]:
    if verdict is Verdict.INVALID or old is None or new is None:
        return Effect.OPEN, ""
    if old == new:
        return Effect.EQUAL, ""
    told = pair is not None and pair.clear and (pair.difference > 0) == (new > old)
    if spread and abs(new - old) < _SPREADS * spread and not told:
        return Effect.SPREAD, f"{new - old:+.4g}, and its windows differ by {spread:.4g}"
    if 100 * abs(new - old) < LEAST_PERCENT * old:
        return Effect.SLIGHT, f"{new - old:+.4g}"
    return (Effect.MORE if new > old else Effect.LESS), ""


def _record(before: Counted, after: Counted) -> RunRecord:
    """A run of the two, in memory."""
    arch = before.kernel.arch
    study = spec.from_arguments([before.scenario], [_OLD, _NEW], name="check", arch=arch)
    place, _, name = before.scenario.rpartition(":")
    sides = (before, after)
    return RunRecord(
        run_id="check",
        name=study.name,
        title=study.title,
        seed=0,
        rounds=1,
        created="",
        kdelta_version="",
        study=study,
        arms=tuple(
            ArmRecord(index=at, label=(_OLD, _NEW)[at], kernel=side.kernel.identity())
            for at, side in enumerate(sides)
        ),
        trials=tuple(
            TrialRecord(
                index=at, round=0, arm=at, workload=place, scenario=name, result=side.result
            )
            for at, side in enumerate(sides)
        ),
    )


def _explained(record: RunRecord) -> Explanation | None:
    """The functions of the difference; None where nothing may be claimed of them."""
    try:
        found = explain(record, _OLD, _NEW, step_percent=0.0)
    except SpecError:
        return None
    return None if found.refused or found.delta is None else found


def _parts(record: RunRecord) -> tuple[FunctionPart, ...]:
    """What the difference is made of, per operation: the largest parts, and the others as one."""
    found = _explained(record)
    if found is None:
        return ()
    rows = [
        FunctionPart(function=part.name, delta=part.delta / found.operations)
        for part in netted(once(found.functions, found.renamed))
    ]
    shown, rest = rows[:_SHOWN], rows[_SHOWN:]
    if rest:
        left = sum(row.delta for row in rest)
        shown.append(FunctionPart(function=f"{len(rest)} {OTHERS}", delta=left))
    return tuple(shown)
