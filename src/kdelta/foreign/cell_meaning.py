# SPDX-License-Identifier: GPL-2.0-or-later
"""What a column is rather than what its name says: its cells cannot be that."""

from __future__ import annotations

import re
from itertools import pairwise

from kdelta.foreign import quantities, words
from kdelta.foreign.columns import Cells, Holds
from kdelta.foreign.tidy import is_moment
from kdelta.foreign.wordlists import vocabulary
from kdelta.foreign.words import Part, Said
from kdelta.foreign.work import Work

_CLOCKS = {*vocabulary("ktime monotonic boottime ts tsc clock now since")}
_SHARE = re.compile(r"[-+]?\d+(?:\.\d+)?\s*[%x]\Z")  # +39.8%, 1.67x
_HAS_FIGURE = re.compile(r"[-+]?\.?\d", re.ASCII)
_SPAN_END = r"\d[\d.]*\s*[A-Za-z]*"
_RANGE = re.compile(  # 0-100, [1], [2, 4), 100..200, >1ms
    rf"(?:[\[(]\s*{_SPAN_END}(?:\s*,\s*{_SPAN_END})?\s*[\])]"
    rf"|{_SPAN_END}\s*(?:-|\.\.+|to|->)\s*{_SPAN_END}|[<>]=?\s*{_SPAN_END})\Z",
    re.ASCII,
)
_PERCENT = re.compile(r"(?:\d{1,2}(?:\.\d{1,4})?|100(?:\.0*)?)%?", re.ASCII)
_SECONDS = re.compile(r"(?:9[5-9]\d|1\d{3}|[23]\d{3})\d{6}(?:\.\d{1,9}|\d{3})?", re.ASCII)
_NAMES_RUN = re.compile(  # run 1, rep-2, iteration #3
    r"(?P<word>run|rep|repetition|repeat|round|iter|iteration|trial|attempt|boot)[ _#-]*\d{1,6}",
    re.IGNORECASE | re.ASCII,
)
_LETTERED = re.compile(r"[pq]\d{1,2}", re.ASCII)
_FEWEST_RUNS = 3
_LONG = 4  # moments of a run that make an axis
_AXES = {*quantities.TIME_UNITS.values()}
_MOMENTS = {*vocabulary("t time elapsed at uptime second seconds timestamp")}
_MAY_NAME_RUNS = (Part.UNKNOWN, Part.DIMENSION, Part.ARM, Part.POSITION)
_COUNTED = ("samples", "observations", "measurements", "points", "readings")


def correct(work: Work, name: str) -> None:
    """Correct what a name says where the cells cannot be that."""
    said, cells = work.left[name], work.cells(name)
    if cells.holds is Holds.NOTHING:
        work.take(name, "not read", "it is empty")
    elif _percentiles(cells):
        work.left[name] = Said(part=Part.DIMENSION)
    elif said.part in _MAY_NAME_RUNS and (run := _named_run(cells)):
        work.left[name] = Said(part=run)
    elif said.part is Part.UNKNOWN and all(map(is_moment, cells.distinct)):
        if cells.constant and work.table.rows > 1:
            work.leave(name, "one moment for all rows")
        else:
            work.left[name] = Said(part=Part.POSITION)
    elif said.part is Part.UNKNOWN and _epoch(cells):
        work.left[name] = Said(part=Part.POSITION)
    elif said.part is Part.POSITION and _words_of_order(name, cells):
        work.left[name] = Said(part=Part.UNKNOWN)
    elif said.part in (Part.UNKNOWN, Part.DIMENSION) and is_share(cells):
        work.left[name] = Said(part=Part.DERIVED)
    elif said.part in (Part.TIME, Part.STATISTIC):
        _figure(work, name, said, cells)
    else:
        work.left[name] = Said(part=part) if (part := _part(said.part, cells)) else said


def is_share(cells: Cells) -> bool:
    """True for +3.1% or 1.2x in every cell: made of what was measured."""
    return all(map(_SHARE.match, cells.distinct))


def _epoch(cells: Cells) -> bool:
    """True for several moments of this century, in seconds or milliseconds since 1970."""
    return len(cells.distinct) > 1 and all(map(_SECONDS.fullmatch, cells.distinct))


def _words_of_order(name: str, cells: Cells) -> bool:
    """True for words where an order is expected: when before, after."""
    if cells.holds is not Holds.TEXT or words.words(name)[-1] in ("step", "order"):
        return False
    return not any(character.isdigit() for text in cells.distinct for character in text)


def _named_run(cells: Cells) -> Part | None:
    """What cells that say run 1, run 2, run 3 number, whatever the column is called."""
    found = [_NAMES_RUN.fullmatch(text.strip()) for text in cells.distinct]
    words_ = {one["word"].lower() if one else "" for one in found}
    if len(found) < _FEWEST_RUNS or len(words_) > 1 or "" in words_:
        return None
    return Part.BOOT if words_ == {"boot"} else Part.ROUND


def _percentiles(cells: Cells) -> bool:
    """True for what figures of a distribution were taken at: p50, p99, or 50, 99 of percentile."""
    named = words.names_percentiles(cells.name)
    if cells.holds is Holds.TEXT:
        return len(cells.distinct) > 1 and all(map(words.is_percentile, cells.distinct))
    sure = named == 2 or (named == 1 and 2 * len(cells.distinct) <= len(cells.texts))
    return sure and all(_PERCENT.fullmatch(text) for text in cells.distinct)


def _part(part: Part, cells: Cells) -> Part | None:
    """What a column is rather than what its name says; None: its name is right."""
    text, lists = cells.holds is Holds.TEXT, cells.holds is Holds.LISTS
    numbers = cells.holds is Holds.NUMBERS
    found: dict[Part, Part | None] = {
        Part.VALUES: _listed(cells),
        Part.COUNT: Part.VALUES if lists else Part.UNKNOWN if text else None,
        Part.VALUE: Part.VALUES if lists else Part.UNKNOWN if text else None,
        Part.FAILED: Part.GATE if text else None,
        Part.STATUS: Part.VALUE if numbers and set(cells.distinct) - {"0", "1"} else None,
        Part.FAILURE: Part.GATE if numbers else None,
        Part.RUN: Part.ROUND if cells.whole and cells.counts_up else None,
    }
    for word in (Part.METRIC, Part.UNIT, Part.BETTER):
        found[word] = None if text else Part.UNKNOWN
    if numbers and "measure" in "_".join(words.words(cells.name)):
        found[Part.METRIC] = Part.VALUE  # measurement 0.31, measure 12.5
    return found.get(part)


def _listed(cells: Cells) -> Part | None:
    """What a column called values or samples is: lists, one value each, or how many there were."""
    if cells.holds is Holds.NUMBERS:
        return Part.COUNT if cells.whole and words.words(cells.name)[-1] in _COUNTED else Part.VALUE
    digits = all(text[:1].isdigit() for text in cells.distinct)
    return Part.UNKNOWN if cells.holds is Holds.TEXT and not digits else None


def queries(work: Work) -> None:
    """q1 and q3 beside q2 and q4 are queries and no quartiles."""
    others = {
        word
        for name, one in work.left.items()
        if one.part is not Part.STATISTIC and not one.statistic
        for word in words.words(name)
        if _LETTERED.fullmatch(word)
    }
    for name in work.of(Part.STATISTIC):
        called = work.left[name].statistic
        if _LETTERED.fullmatch(called) and any(word[0] == called[0] for word in others):
            work.left[name] = words.unstatistical(name)


def _is_moment(name: str) -> bool:
    """True for t_s, elapsed, seconds: the time since something began, or what something took."""
    return {*words.words(name)} <= {*_CLOCKS, *_MOMENTS, *quantities.TIME_UNITS}


def _is_axis(work: Work, cells: Cells, *, moment: bool) -> bool:
    """True for times that rise alike again and again, or as a moment by one step: they were set.

    0, 5, 10 ... of a log of one run, and of the next, are no times that the runs took.
    """
    try:
        values = [float(text) for text in cells.texts]
    except ValueError:
        return False
    starts = [at for at, value in enumerate(values) if not at or value <= values[at - 1]]
    ends = [*starts[1:], len(values)]
    runs = [values[start:end] for start, end in zip(starts, ends, strict=True)]
    beside = any(
        name != cells.name
        and work.cells(name).holds is Holds.NUMBERS
        and len({*work.cells(name).texts[: ends[0]]}) > 1
        for name in work.of(Part.UNKNOWN, Part.TIME, Part.VALUE)
    )
    if not beside or min(map(len, runs)) < _LONG or len({len(run) for run in runs}) > 1:
        return False
    steps = {round(later - first, 6) for run in runs for first, later in pairwise(run)}
    return (moment and len(steps) == 1) or (len(runs) > 1 and all(run == runs[0] for run in runs))


def _figure(work: Work, name: str, said: Said, cells: Cells) -> None:
    if cells.holds is Holds.LISTS:
        work.left[name] = Said(
            part=said.part,
            statistic="values",
            metric=said.metric,
            unit=said.unit,
            better=said.better,
        )
    elif (
        not said.unit
        and said.part is Part.TIME  # the bounds of an interval may rise, too
        and cells.rises
        and any(
            one.unit and other != name for other, one in work.left.items() if one.part is Part.TIME
        )
    ):
        work.left[name] = Said(part=Part.POSITION)
    elif said.unit in _AXES and _is_axis(work, cells, moment=(moment := _is_moment(name))):
        work.left[name] = Said(part=Part.ROUND if moment else Part.DIMENSION)
    elif cells.rises and _CLOCKS & {*words.words(name)}:
        work.left[name] = Said(part=Part.POSITION)  # nanoseconds since the machine began
    elif cells.holds is Holds.TEXT and all(map(_RANGE.match, cells.distinct)):
        work.left[name] = Said(part=Part.DIMENSION)  # buckets of a histogram
    elif cells.holds is Holds.TEXT and not said.unit:
        moment = all(is_moment(text) for text in cells.distinct)
        work.left[name] = Said(part=Part.POSITION if moment else Part.UNKNOWN)
    elif (
        cells.holds is Holds.TEXT
        and name.rstrip().endswith((")", "]"))
        and not any(map(_HAS_FIGURE.match, cells.distinct))
    ):
        # benchmark (us): the unit is that of the figures beside.
        work.left[name], work.beside = Said(part=Part.UNKNOWN), said
