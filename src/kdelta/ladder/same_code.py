# SPDX-License-Identifier: GPL-2.0-or-later
"""What of a step is the same code on other data: a longer table, a deeper tree, a fuller chunk.

A function is of the same code when its instructions are, and those of all that it calls by name
more often or less.  Entered as often on both kernels, it executes other numbers of instructions
only by its data.  What it calls more or less often for that is its data's, too: of the same code
all of it, of other code as many entries more, at the least that one takes on either kernel.

A long loop is taken for one over a table, whatever it calls: kernels that are neighbours have
tables of nearly one length, and code that changed what it does seldom makes many rounds a few more.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kdelta.ladder.calls import left_open
from kdelta.sample import CodeRan, TrialRecord, TrialResult
from kdelta.verdict.comparison import Comparison, CountReading, Verdict

_PASSES = 20  # so deep are calls followed
_NAMED = 3
_TELLING = 0.1  # of the threshold
_LONG = 64  # rounds of a loop each time its function is entered
_CALLS = 16  # calls of one function each time, by such a loop
_NEAR = 1.25  # tables of two kernels differ by no larger factor
_Sides = list[Counter[str]]


def other_data(old: TrialResult, new: TrialResult) -> dict[str, float]:
    """Function -> instructions that it executes more by its data, in the windows that stand."""
    same, calls, insns = _same(old, new), *(_sums((old, new), one) for one in ("calls", "insns"))
    made = [{one.function: Counter(one.calls) for one in side.code} for side in (old, new)]
    entered = {n: more for n in sorted({*calls[0], *calls[1]}) if (more := _more(calls, n))}
    rounds = [Counter({one.function: one.rounds for one in side.code}) for side in (old, new)]
    loops = {name for name in rounds[0] if _is_loop(rounds, name, _LONG * calls[0][name])}
    steady = dict.fromkeys(sorted({*same, *loops} - {*entered}), 1.0)

    def theirs_of(name: str, figures: _Sides, key: str) -> float:
        """How much more its data makes of a figure of a function that others enter by theirs."""
        if name in same:
            return _more(figures, key)
        looped = name in loops and min(own[key] for own in figures) >= _CALLS * calls[0][name]
        times = rounds if looped else calls
        if not (looped or name in entered) or not (times[0][name] and times[1][name]):
            return 0.0
        return _more(times, name) * min(figures[at][key] / times[at][name] for at in (0, 1))

    part = {**steady, **dict.fromkeys(entered, 0.0)}
    made_by = {name: [own.get(name, Counter()) for own in made] for name in part}
    passed = {
        name: {callee: theirs_of(name, own, callee) for callee in {*own[0], *own[1]}}
        for name, own in made_by.items()
    }
    direct = [_added(own.values()) for own in made]
    for _ in range(_PASSES):
        theirs: defaultdict[str, float] = defaultdict(float)
        for name in filter(part.get, part):
            for callee, times in passed[name].items():
                theirs[callee] += part[name] * times
        pointed = {n: entered[n] - _more(direct, n) for n in entered}  # which do not say who did
        pointed = {n: times for n, times in pointed.items() if times * theirs[""] > 0}
        for name, times in pointed.items():
            theirs[name] += times * min(1.0, theirs[""] / sum(pointed.values()))
        for name, times in entered.items():
            part[name] = min(1.0, max(0.0, theirs[name] / times))
    found = {name: share * theirs_of(name, insns, name) for name, share in part.items()}
    return {name: more for name, more in found.items() if more}


def _sums(sides: Sequence[TrialResult], field: str) -> _Sides:
    """By function, a field of its rows on each side."""
    found = [Counter[str](), Counter[str]()]
    for own, side in zip(found, sides, strict=True):
        for row in side.exact.functions:
            own[row.function] += getattr(row, field)
    return found


def _more(sides: _Sides, key: str) -> int:
    return sides[1][key] - sides[0][key]


def _is_loop(rounds: _Sides, name: str, least: int) -> bool:
    """Of at least so many rounds on both, and no more than _NEAR apart."""
    low, high = sorted(own[name] for own in rounds)
    return max(1, least) <= low and high <= _NEAR * low


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
        if name in code and any(callee not in same for callee in _moved(codes, name))
    }:
        same -= other
    return same


def _moved(codes: Sequence[Mapping[str, CodeRan]], name: str) -> set[str]:
    """What a function calls more or less often: what else it calls explains no further rounds."""
    calls = [dict(code[name].calls) if name in code else {} for code in codes]
    return {one for one in {*calls[0], *calls[1]} - {""} if calls[0].get(one) != calls[1].get(one)}


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
    mostly = abs(more) > max(step, abs(rest))
    if mostly or (abs(rest) > step) is not found.verdict.is_step or rest * whole < 0:
        return left_open(
            found,
            f"{told}, such as a longer table or a fuller chunk, which may be no change of the"
            " kernel's code: take calls that depend less on it",
        )
    within = ", ".join(filter(None, (found.within, told))) if abs(more) > step else found.within
    return replace(found, within=within, reasons=("; ".join((*found.reasons, told)),))


def _added(counters: Iterable[Counter[str]]) -> Counter[str]:
    """Their sum, in place: sum() makes a new one for each."""
    total = Counter[str]()
    for one in counters:
        total.update(one)
    return total
