# SPDX-License-Identifier: GPL-2.0-or-later
"""What a table says of its own rows and figures: warm-ups, directions, a unit in each row.

As in `layout`, what is done here depends on the text alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from kdelta.foreign import arms, words, written
from kdelta.foreign.plain_tables import Plain
from kdelta.foreign.record import Line
from kdelta.foreign.wordlists import vocabulary
from kdelta.foreign.words import Part
from kdelta.metric import Better
from kdelta.printable import printable

_TRUE = vocabulary("yes true y 1 t on")
_FALSE = vocabulary("no false n 0 f off")
_WARM_FLAGS = vocabulary(
    "warmup warm_up is_warmup iswarmup warmup_run discard discarded excluded exclude"
)
_WARM = vocabulary("warmup warm_up warming_up")
_HIGHER = vocabulary(
    "higher_is_better bigger_is_better more_is_better larger_is_better higher_better hib"
)
_LOWER = vocabulary(
    "lower_is_better smaller_is_better less_is_better fewer_is_better lower_better lib"
)
_PLANNED = vocabulary(
    "planned runs_planned planned_runs n_planned expected_runs runs_expected boots_planned"
    " planned_boots runs_wanted target_runs requested_runs"
)
# What stands where a run that ended otherwise would have its figure.
_ENDED = vocabulary(
    "fail failed failure error err crash crashed timeout timed_out killed hung hang oom aborted"
    " panic panicked dnf did_not_finish broken lost skipped skip"
)
_UNKNOWN = ("?", "??", "---", "----", "-----", "tbd", "tba", "...", "\u2026", "x")
_PLAIN_FIGURE = re.compile(r"[-+]?(?:\d[\d,.]*|\.\d+)(?:[eE][-+]?\d{1,3})?", re.ASCII)
_SESSIONS = vocabulary("session session_id block part batch leg_no segment night day phase_no")
# What a machine was at while it measured, in numbers.
_CONDITIONS = vocabulary(
    "freq frequency mhz ghz temp temperature celsius degc load loadavg watts throttled throttling"
)
_PHRASE = re.compile(
    r"\b(?:(?P<lower>lower|smaller|less|fewer|shorter)|(?P<higher>higher|larger|bigger|more|greater))"
    r"\s+(?:(?:values?|numbers?|scores?|figures?)\s+)?(?:is|are|=+|means?)\s+(?:better|faster)\b",
    re.IGNORECASE,
)
_ARM_OF_RUN = re.compile(
    r"(?P<arm>\S+?)(?:[-_ #.]*(?P<word>run|rep|iter|iteration|trial|round|boot)[-_ #]?|[-_#])"
    r"(?P<number>\d{1,3})",
    re.IGNORECASE | re.ASCII,
)
_NUMBERS = (Part.ROUND, Part.RUN, Part.BOOT)
_FEW_RUNS = 2  # as many numbers may be of two machines, or of A and A again
_COMMENTS = ("#", "//", "%", "*", ">")
_SCALED = ("mean", "median", "sd", "min", "max", "values")


def plain(found: Plain) -> Plain:
    """The table without warm-ups, with a direction in words, and with one unit for one metric."""
    for step in (
        _runs_in_names,
        _without_warm_ups,
        _failures,
        _directions,
        _units,
        _one_unit,
        _again,
    ):
        found = step(found)
    return found


def direction(text: str, delimiter: str) -> tuple[Better | None, tuple[str, ...]]:
    """The direction that a title, a comment or a note says is better, and doubts about it."""
    said: set[Better] = set()
    for line in text.splitlines():
        cut = line.strip()
        cells = [cell for cell in cut.strip("|").split(delimiter) if cell.strip()]
        if len(cells) > 1 and not cut.startswith(_COMMENTS):
            continue  # a head line or a row: what it says is said of one column, or one row
        said |= {Better.LOWER if one["lower"] else Better.HIGHER for one in _PHRASE.finditer(cut)}
    if len(said) < 2:
        return next(iter(said), None), ()
    return None, ("lines beside the table say that lower and that higher is better: of what?",)


def directed(found: Plain) -> bool:
    """True when each cell of some column says a direction: latency (lower is better)."""
    columns = ({line.cells[at] for line in found.lines} for at in range(len(found.columns)))
    return any(cells and all(map(_PHRASE.search, cells)) for cells in columns)


def is_plan(name: str) -> bool:
    """True for a column that says how many runs were asked for."""
    return _word(name) in _PLANNED


def is_condition(name: str) -> bool:
    """True for what a machine was at in a run, in numbers: freq_mhz, temp_c."""
    return bool(set(words.words(name)) & {*_CONDITIONS})


def _cells(found: Plain, at: int) -> list[str]:
    return [line.cells[at] for line in found.lines]


def _word(text: str) -> str:
    return "_".join(words.words(text))


def _runs_in_names(found: Plain) -> Plain:
    """6.16_1, 6.16_2 ... beside 6.17_1, 6.17_2 ...: the arms, and a column with the number."""
    numbers = any(words.said(name).part in _NUMBERS for name in found.columns)
    for at, name in enumerate(found.columns):
        cut = [_ARM_OF_RUN.fullmatch(cell) for cell in _cells(found, at)]
        parts = [one for one in cut if one]
        held: dict[str, set[int]] = {}
        for one in parts:
            held.setdefault(one["arm"], set()).add(int(one["number"]))
        runs = next(iter(held.values()), set())
        whole = len(runs) > _FEW_RUNS and runs in ({*range(len(runs))}, {*range(1, len(runs) + 1)})
        if numbers or not parts or len(parts) < len(cut) or len(held) < 2 or not whole:
            continue
        if any(each != runs for each in held.values()) or not all(map(_is_arm, held)):
            continue
        word = next((one["word"].lower() for one in parts if one["word"]), "run")
        lines = tuple(
            Line(
                number=line.number,
                cells=(*line.cells[:at], one["arm"], one["number"], *line.cells[at + 1 :]),
            )
            for line, one in zip(found.lines, parts, strict=True)
        )
        asked = f"is {printable(parts[0][0], 40)} of {printable(name, 40)} a run of"
        sure = any(one["word"] for one in parts)
        return Plain(
            columns=(*found.columns[: at + 1], word, *found.columns[at + 1 :]),
            lines=lines,
            doubts=(*found.doubts, *(() if sure else (f"{asked} {parts[0]['arm']}?",))),
            notes=found.notes,
        )
    return found


def _is_arm(text: str) -> bool:
    return arms.is_version(text) or bool(arms.side(text))


def _without_warm_ups(found: Plain) -> Plain:
    """Rows that say they warm up, in a column of yes and no or in one of words, are no runs."""
    for at, name in enumerate(found.columns):
        cells = _cells(found, at)
        filled = {cell.lower() for cell in cells if cell}
        if _word(name) in _WARM_FLAGS and filled <= {*_TRUE, *_FALSE}:
            gone = [cell.lower() in _TRUE for cell in cells]
        else:
            gone = [_word(cell) in _WARM for cell in cells]
        if any(gone) and not all(gone):
            kept = tuple(line for line, one in zip(found.lines, gone, strict=True) if not one)
            said = printable(name, 60)
            note = f"{sum(gone)} rows warm up or are set apart, as {said} says: no runs"
            return replace(found, lines=kept, notes=(*found.notes, note))
    return found


def _failures(found: Plain) -> Plain:
    """FAILED or timeout where all other cells are figures: a run without one, and that is said."""
    changed: dict[int, Sequence[str]] = {}
    said: dict[str, int] = {}
    for at in range(len(found.columns)):
        cells = _cells(found, at)
        ended = [cell for cell in cells if _word(cell) in _ENDED or cell.lower() in _UNKNOWN]
        rest = [cell for cell in cells if cell and cell not in ended]
        figures = sum(bool(_PLAIN_FIGURE.fullmatch(cell)) for cell in rest)
        if ended and figures == len(rest) > len(ended):
            changed[at] = ["" if cell in ended else cell for cell in cells]
            for cell in ended:
                said[cell] = said.get(cell, 0) + 1
    if not changed:
        return found
    listed = ", ".join(f"{n} x {printable(cell, 20)}" for cell, n in said.items())
    note = f"cells that say {listed} have no figure: failed runs"
    return replace(found, lines=_with(found, changed), notes=(*found.notes, note))


def _directions(found: Plain) -> Plain:
    """higher_is_better yes or no becomes a column `better` of higher and lower."""
    for at, name in enumerate(found.columns):
        word, cells = _word(name), _cells(found, at)
        if word not in (*_HIGHER, *_LOWER) or "better" in found.columns:
            continue
        if not all(cell.lower() in (*_TRUE, *_FALSE) for cell in cells):
            continue
        made = [
            Better.HIGHER if (cell.lower() in _TRUE) == (word in _HIGHER) else Better.LOWER
            for cell in cells
        ]
        columns = (*found.columns[:at], "better", *found.columns[at + 1 :])
        return replace(found, columns=columns, lines=_with(found, {at: made}))
    return found


def _units(found: Plain) -> Plain:
    """A column of units whose name does not say so (Einheit) is called unit."""
    parts = [words.said(name).part for name in found.columns]
    if Part.UNIT in parts or "unit" in found.columns:
        return found
    for at, name in enumerate(found.columns):
        cells = set(_cells(found, at))
        if parts[at] is Part.UNKNOWN and cells and all(map(written.is_unit, cells)):
            columns = (*found.columns[:at], "unit", *found.columns[at + 1 :])
            note = f"column {printable(name, 60)} holds units: it is read as unit"
            return replace(found, columns=columns, notes=(*found.notes, note))
    return found


def _with(found: Plain, changed: dict[int, Sequence[str]]) -> tuple[Line, ...]:
    """The lines with other cells in some columns."""
    return tuple(
        Line(
            number=line.number,
            cells=tuple(
                str(changed[at][row]) if at in changed else cell
                for at, cell in enumerate(line.cells)
            ),
        )
        for row, line in enumerate(found.lines)
    )


def _one_unit(found: Plain) -> Plain:
    """15 us in one row and 15200 ns in another are figures of one metric: all in the smaller unit.

    Where a column of words has one unit for each word, the word names the metric, and no figure is
    touched.
    """
    said = [words.said(name) for name in found.columns]
    places = [at for at, one in enumerate(said) if one.part is Part.UNIT]
    if len(places) != 1:
        return found
    units = _cells(found, places[0])
    small = written.common(set(units)) if all(units) and len(set(units)) > 1 else None
    if not small or any(_owns(found, at, units) for at in range(len(found.columns))):
        return found
    changed: dict[int, Sequence[str]] = {places[0]: [small] * len(units)}
    for at, one in enumerate(said):
        figure = one.part in (Part.VALUE, Part.TIME) or one.statistic in _SCALED
        if figure and not written.is_unit(one.unit):
            plain = written.pointed_decimals(_cells(found, at))
            if plain is None:
                return found
            pairs = zip(plain, units, strict=True)
            made = [written.in_unit(cell, unit, small) for cell, unit in pairs]
            if None in made:
                return found
            changed[at] = [cell or "" for cell in made]
    if len(changed) == 1:
        return found
    listed = ", ".join(dict.fromkeys(units))
    note = f"rows are in {printable(listed, 40)}: all were put into {small}"
    return replace(found, lines=_with(found, changed), notes=(*found.notes, note))


def _again(found: Plain) -> Plain:
    """Three sessions of base, patched and base: the third measures base again, as a control."""
    arms_ = [at for at, name in enumerate(found.columns) if words.said(name).part is Part.ARM]
    arms_ = [at for at in arms_ if len(set(_cells(found, at))) == 2]
    sessions = [at for at, name in enumerate(found.columns) if _word(name) in _SESSIONS]
    if len(arms_) != 1 or not sessions:
        return found
    held: dict[str, set[str]] = {}
    for session, arm in zip(_cells(found, sessions[0]), _cells(found, arms_[0]), strict=True):
        held.setdefault(session, set()).add(arm)
    order = [next(iter(each)) for each in held.values() if len(each) == 1]
    if len(held) != 3 or len(order) != 3 or order[0] != order[2] or order[0] == order[1]:
        return found
    last = list(held)[-1]
    made = [
        f"{arm} again" if session == last else arm
        for session, arm in zip(_cells(found, sessions[0]), _cells(found, arms_[0]), strict=True)
    ]
    name = printable(found.columns[sessions[0]], 60)
    note = f"{name} {printable(last, 40)} measures {printable(order[0], 60)} again: it is a control"
    return replace(found, lines=_with(found, {arms_[0]: made}), notes=(*found.notes, note))


def _owns(found: Plain, at: int, units: Sequence[str]) -> bool:
    """True for a column of words, no arm's, that has one unit for each word."""
    cells = _cells(found, at)
    part = words.said(found.columns[at]).part
    if part not in (Part.METRIC, Part.UNKNOWN, Part.DIMENSION, Part.NOTE):
        return False
    texts = set(cells)
    if len(texts) < 2 or all(arms.is_version(text) or arms.side(text) for text in texts):
        return False
    return len(set(zip(cells, units, strict=True))) == len(texts) < len(cells)
