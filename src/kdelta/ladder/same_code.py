# SPDX-License-Identifier: GPL-2.0-or-later
"""What of a step is the same code on other data: a longer table, a deeper tree, a fuller chunk.

A function is of the same code when its instructions are, and those of all that it calls by name.
Entered as often on both kernels, it executes other numbers of instructions only by its data.  What
it calls more or less often for that, and is of the same code, is its data's, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from kdelta.sample import TrialRecord, TrialResult
from kdelta.verdict.comparison import Comparison, CountReading, Verdict

_PASSES = 20  # so deep are calls followed
_NAMED = 3
_TELLING = 0.1  # of the threshold


def other_data(old: TrialResult, new: TrialResult) -> dict[str, float]:
    """Function -> instructions that it executes more by its data, in the windows that stand."""
    same = _same(old, new)
    entered, insns = (_more(old, new, field) for field in ("calls", "insns"))
    calls: defaultdict[str, Counter[str]] = defaultdict(Counter)
    direct: Counter[str] = Counter()
    for sign, side in ((-1, old), (1, new)):
        for one in side.code:
            more = {callee: sign * times for callee, times in one.calls.items()}
            calls[one.function].update(more)
            direct.update(more)
    part = {name: float(not entered[name]) for name in same}
    for _ in range(_PASSES):
        theirs: defaultdict[str, float] = defaultdict(float)
        for name in filter(part.get, same):
            for callee, times in calls[name].items():
                theirs[callee] += part[name] * times
        pointed = {n: entered[n] - direct[n] for n in same}  # which do not say who did
        pointed = {n: times for n, times in pointed.items() if times * theirs[""] > 0}
        for name, times in pointed.items():
            theirs[name] += times * min(1.0, theirs[""] / sum(pointed.values()))
        for name, times in ((n, entered[n]) for n in same if entered[n]):
            part[name] = min(1.0, max(0.0, theirs[name] / times))
    return {name: part[name] * insns[name] for name in same if part[name] * insns[name]}


def _more(old: TrialResult, new: TrialResult, field: str) -> Counter[str]:
    """By function, how much more the new one has of a field of its rows."""
    found: Counter[str] = Counter()
    for sign, side in ((-1, old), (1, new)):
        for row in side.exact.functions:
            found[row.function] += sign * getattr(row, field)
    return found


def _same(*sides: TrialResult) -> set[str]:
    """Functions of the same code; what one kernel alone ran has no other code on the other one."""
    ran = [{row.function for row in side.exact.functions} for side in sides]
    codes = [{one.function: one for one in side.code} for side in sides]
    same = {
        name
        for name in {*codes[0], *codes[1]}
        if len({code[name].code if name in code else "" for code in codes}) == 1
        or not all(name in names for names in ran)
    }
    while other := {
        name
        for name in same
        for code in codes
        if name in code and not {*code[name].calls} - {""} <= same
    }:
        same -= other
    return same


def weighed_by_data(
    found: Comparison,
    old: Sequence[TrialRecord],
    new: Sequence[TrialRecord],
    reading: CountReading,
    step_percent: float,
) -> Comparison:
    """A comparison with what of it is other data, by trials of one round whose code is known.

    reading: of the old arm.
    """
    if found.verdict in (Verdict.UNDECIDED, Verdict.INVALID):
        return found
    operations, step = reading.operations, step_percent / 100 * reading.per_operation
    theirs = {trial.round: trial.result for trial in new}
    pairs = ((trial.result, theirs.get(trial.round)) for trial in old)
    each = [other_data(was, now) for was, now in pairs if was and now and was.code and now.code]
    if not each:
        return found
    rows = sorted(each, key=lambda one: sum(one.values()))[len(each) // 2]
    whole, more = found.difference or 0.0, sum(rows.values()) / operations
    if abs(more) < _TELLING * step:
        return found
    largest = sorted(rows, key=lambda name: -abs(rows[name]))[:_NAMED]
    named = ", ".join(f"{name}() {rows[name] / operations:+,.1f}" for name in largest)
    told = f"the same code on other data makes {more:+,.1f} of {whole:+,.1f} ({named})"
    rest = whole - more
    if (abs(rest) > step) is not found.verdict.is_step or rest * whole < 0:
        reason = (
            f"{'; '.join(found.reasons)}; but {told}, such as a longer table or a fuller chunk,"
            " which may be no change of the kernel's code: take calls that depend less on it"
        )
        return replace(found, verdict=Verdict.UNDECIDED, reasons=(reason,))
    within = ", ".join(filter(None, (found.within, told))) if abs(more) > step else found.within
    return replace(found, within=within, reasons=("; ".join((*found.reasons, told)),))
