# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures that are totals: the time of all iterations of a row, beside how many there were.

Rows of 100 and of 1000 iterations are no runs of one thing until each is divided by its count.
What tells is not a name: a total grows with a column of whole numbers that nothing else explains.
"""

from __future__ import annotations

import math
import statistics
from itertools import pairwise

from kdelta.foreign import words
from kdelta.foreign.columns import Holds
from kdelta.foreign.wordlists import vocabulary
from kdelta.foreign.work import Work
from kdelta.metric import Better

_STILL = 0.002  # scatter of logs of a time that was asked for
_MOVES = 10.0  # times as much what was done in it scatters
_LEAST = 0.0002
_BOOTS = 6
_IN_A_BOOT = 3
_RUNS = 5
_DIFFERS = 0.01
_WHOLE = {*vocabulary("duration elapsed total time runtime wall walltime wallclock")}
_BEFORE = {*vocabulary("initial init connection connect setup startup start")}
_AMOUNTS = {
    *vocabulary("requests reqs ops operations transactions txns queries packets events calls"),
    *vocabulary("bytes messages files commits"),
}
_FEW_ROWS = 4
_GROWS = 0.25  # scatter of logs within arms, above which a count does vary
_LESS = 0.3  # of its scatter is left once a total is divided


def asked(work: Work) -> None:
    """Doubt figures that grow as a count beside them does, or on and on within each boot."""
    for figure in work.figures:
        if _counts_on(work, figure):
            work.doubts.append(
                f"does {figure} count on within each boot? then put the differences into the file"
            )
            return
        if _adds_up(work, figure):
            work.doubts.append(
                f"does {figure} count on from run to run? then put the differences into the file"
            )
            return
    counts = [name for name in work.ignore if _is_count(work, name)]
    for figure in work.figures:
        for count in counts:
            lower = work.figures[figure].better is Better.LOWER
            read = figure != count and figure not in work.ignore
            if read and lower and _was_set(work, figure, count):
                _leave(work, figure, count)
                return
            if figure != count and _total(work, figure, count):
                work.doubts.append(
                    f"is {figure} the total of the {count} of its row? then divide it by {count}"
                    " in the file, for what one takes"
                )
                return
            if read and lower and _for_many(work, figure, count):
                work.doubts.append(
                    f"is {figure} the time of the {count} of its row, which differ? then put what"
                    " one took into the file"
                )
                return


def _leave(work: Work, figure: str, count: str) -> None:
    """A time that was set is not read beside what says how much was done; alone it is asked."""
    mine = [name for name, keys in work.metrics.items() if keys.value == figure]
    others = [keys for name, keys in work.metrics.items() if name not in mine]
    if not mine or not any(keys.better is Better.HIGHER for keys in others):
        work.doubts.append(
            f"was {figure} set, and is {count} what was measured? then leave out {figure}"
        )
        return
    for name in mine:
        del work.metrics[name]
    work.told = [one for one in work.told if one.column != figure]
    work.leave(figure, f"it hardly moves, and {count} does: it was set")


def _was_set(work: Work, figure: str, count: str) -> bool:
    """True for a time that hardly moves while what was done in it does: it was asked for."""
    for group in work.table.groups((*work.arm, *work.dimensions)):
        pairs = [
            (_number(work.cells(figure).texts[at]), _number(work.cells(count).texts[at]))
            for at in group
        ]
        if len(pairs) < _FEW_ROWS or min(min(pair) for pair in pairs) <= 0:
            return False
        times, done = (statistics.stdev(map(math.log, each)) for each in zip(*pairs, strict=True))
        if times > _STILL or done < _MOVES * max(times, _LEAST):
            return False
    return True


def _counts_on(work: Work, figure: str) -> bool:
    """True for figures that rise from the first to the last in every boot of several."""
    boot = work.keys.get("boot")
    metric = work.keys.get("metric")
    keyed = [name for name in (boot, metric) if isinstance(name, str)]
    if boot is None or figure in keyed or work.cells(figure).holds is not Holds.NUMBERS:
        return False
    groups = work.table.groups((*work.arm, *work.dimensions, *keyed))
    listed = [[_number(work.cells(figure).texts[at]) for at in group] for group in groups]
    rising = [
        values[0] > 0 and all(one < other for one, other in pairwise(values)) for values in listed
    ]
    # By chance three values rise in 1 of 6 boots.
    return len(listed) >= _BOOTS and min(map(len, listed)) >= _IN_A_BOOT and all(rising)


def _adds_up(work: Work, figure: str) -> bool:
    """True for figures that rise from run to run of every arm, to about as many as there are."""
    keyed = [name for key in ("boot", "metric") if isinstance(name := work.keys.get(key), str)]
    if figure in keyed or work.cells(figure).holds is not Holds.NUMBERS:
        return False
    by = (*work.arm, *work.dimensions, *keyed[1:])
    groups = [
        [_number(work.cells(figure).texts[at]) for at in group] for group in work.table.groups(by)
    ]
    return len(groups) > 1 and all(
        len(values) >= _RUNS
        and values[0] > 0
        and all(one < other for one, other in pairwise(values))
        and values[-1] > values[0] * len(values) / 2
        for values in groups
    )


def _for_many(work: Work, figure: str, count: str) -> bool:
    """True for a time beside what was done in it, by its name, which differs within an arm."""
    timed = {*words.words(figure)}
    before = timed & _BEFORE
    if "per" in timed or before or not timed & _WHOLE or not {*words.words(count)} & _AMOUNTS:
        return False
    for group in work.table.groups((*work.arm, *work.dimensions)):
        done = [_number(work.cells(count).texts[at]) for at in group]
        if min(done) > 0 and max(done) > min(done) * (1 + _DIFFERS):
            return True
    return False


def _is_count(work: Work, name: str) -> bool:
    cells = work.cells(name)
    return cells.holds is Holds.NUMBERS and cells.whole and not cells.constant


def _total(work: Work, figure: str, count: str) -> bool:
    by = (*work.arm, *work.dimensions)
    amount, ratio, rows = 0.0, 0.0, 0
    for group in work.table.groups(by):
        pairs = [
            (value, number)
            for at in group
            if (value := _number(work.cells(figure).texts[at])) > 0
            and (number := _number(work.cells(count).texts[at])) > 0
        ]
        if len(pairs) < _FEW_ROWS:
            continue
        rows += len(pairs)
        amount = max(amount, statistics.stdev([math.log(value) for value, _ in pairs]))
        ratio = max(ratio, statistics.stdev([math.log(value / number) for value, number in pairs]))
    return rows > 0 and amount > _GROWS and ratio < _LESS * amount


def _number(text: str) -> float:
    try:
        found = float(text.replace(",", "."))
    except ValueError:
        return 0.0
    return found if math.isfinite(found) else 0.0
