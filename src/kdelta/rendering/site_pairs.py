# SPDX-License-Identifier: GPL-2.0-or-later
"""Any two kernels of a lab as one table, out of which a page's script shows the two that are asked.

Most kernels are alike in most scenarios, and so are their rows against all newer ones: such a row
is told once.  An answer is told once in a scenario, the words of a reason once for all.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any
from urllib.parse import quote

from kdelta.analysis.pairs import Pair, PairRow
from kdelta.metric import number
from kdelta.printable import printable
from kdelta.verdict.comparison import Verdict

_ABSENT = "-"
_SAME_CODE = "="
_LETTERS = {
    Verdict.REGRESSION: "R",
    Verdict.IMPROVEMENT: "I",
    Verdict.SAME: "S",
    Verdict.UNDECIDED: "U",
    Verdict.INVALID: "X",
}
_WORDS = {
    "R": "more work",
    "I": "less work",
    "S": "the same work",
    _SAME_CODE: "identical by code",
    "U": "undecided",
    "X": "cannot be compared",
}
_DIGITS = 9  # of a value: ratios of what is told have three decimals
_NUMBER = re.compile(r"(\d(?:[\d,.]*\d)?)")


def table(
    kernels: Sequence[str], pairs: Sequence[Pair], page: Callable[[str], str]
) -> dict[str, Any]:
    """All pairs.  page: of a scenario, by its name.

    words: what a letter means ("-": not compared, or not counted on both).  reasons: of "U" and
    "X", the pieces of text around their numbers.  scenarios: name, page, operation, and in

    * values: what is told and the number; of: which of them each kernel has, null for none
    * answers: a letter, and for "U" and "X" the number of the reason with its own numbers
    * runs: answers to a kernel and each newer one, as how many of which, ending at the newest
    * rows: which of `runs` is each older kernel's, to be read from its end
    * apart: of two kernels another run's values were compared: old, new, and these.
    """
    places = {kernel: at for at, kernel in enumerate(kernels)}
    own: dict[str, dict[tuple[int, int], PairRow]] = defaultdict(dict)
    for pair in pairs:
        for row in pair.rows:
            own[row.name][places[pair.old], places[pair.new]] = row
    reasons: dict[tuple[str, ...], int] = {}
    told = [_scenario(name, page(name), own[name], len(kernels), reasons) for name in sorted(own)]
    return {
        "words": _WORDS,
        "kernels": [printable(kernel) for kernel in kernels],
        "reasons": list(reasons),
        "scenarios": told,
    }


def _scenario(
    name: str,
    page: str,
    rows: dict[tuple[int, int], PairRow],
    kernels: int,
    reasons: dict[tuple[str, ...], int],
) -> dict[str, Any]:
    usual = _usual(rows)
    values: dict[float, int] = {}
    answers: dict[tuple[object, ...], int] = {}
    cells = [
        [
            answers.setdefault(_answer(rows.get((old, new)), reasons), len(answers))
            for new in range(old + 1, kernels)
        ]
        for old in range(kernels - 1)
    ]
    shared, chosen = _shared(cells)
    return {
        "name": printable(name),
        "page": page,
        "operation": printable(next(iter(rows.values())).operation),
        "of": [
            values.setdefault(usual[at], len(values)) if at in usual else None
            for at in range(kernels)
        ],
        "values": [_told(value) for value in values],
        "answers": list(answers),
        "runs": [_counted(one) for one in shared],
        "rows": chosen,
        "apart": [
            [old, new, _told(row.old), _told(row.new)]
            for (old, new), row in rows.items()
            if (usual[old], usual[new]) != (row.old, row.new)
        ],
    }


def _usual(rows: dict[tuple[int, int], PairRow]) -> dict[int, float]:
    """The value of each kernel that most of its pairs have."""
    seen: dict[int, Counter[float]] = defaultdict(Counter)
    for (old, new), row in rows.items():
        seen[old][row.old] += 1
        seen[new][row.new] += 1
    return {kernel: values.most_common(1)[0][0] for kernel, values in seen.items()}


def _shared(cells: Sequence[list[int]]) -> tuple[list[list[int]], list[int]]:
    """The rows that are not the end of one before; and which of them each row is the end of."""
    found: list[list[int]] = []
    chosen = []
    for row in cells:
        at = next((n for n, one in enumerate(found) if one[-len(row) :] == row), len(found))
        if at == len(found):
            found.append(row)
        chosen.append(at)
    return found, chosen


def _counted(row: Sequence[int]) -> list[int]:
    """How many of which, after each other."""
    return [number for one, own in groupby(row) for number in (len(list(own)), one)]


def _answer(row: PairRow | None, reasons: dict[tuple[str, ...], int]) -> tuple[object, ...]:
    """A letter; of one that is no answer also the reason's number, and the numbers in it."""
    letter = _letter(row) if row else _ABSENT
    if row is None or letter not in "UX":
        return (letter,)
    pieces = _NUMBER.split(printable("; ".join(row.comparison.reasons)))
    return letter, reasons.setdefault(tuple(pieces[::2]), len(reasons)), *pieces[1::2]


def begin(kernels: Sequence[str], pairs: Sequence[Pair]) -> Pair | None:
    """The two that a page begins with: the newest that one compiler built, else the newest.

    Of two compilers most of a page is undecided, next to two kernels of which it can be said.
    """
    places = {kernel: at for at, kernel in enumerate(kernels)}
    newest = sorted(pairs, key=lambda pair: (places[pair.old], places[pair.new]), reverse=True)
    return next((pair for pair in newest if _judged(pair) and not crossing(pair)), None) or next(
        iter(newest), None
    )


def left_out(kernels: Sequence[str], pairs: Sequence[Pair]) -> list[tuple[str, str]]:
    """Kernels newer than those, for their compiler; with the two that stand between."""
    chosen = begin(kernels, pairs)
    if chosen is None or crossing(chosen):
        return []
    between = {pair.new: crossing(pair) for pair in pairs if pair.old == chosen.new}
    newer = kernels[kernels.index(chosen.new) + 1 :]
    return [(new, between[new]) for new in newer if between.get(new)]


def _judged(pair: Pair) -> bool:
    return any(row.comparison.verdict is not Verdict.INVALID for row in pair.rows)


def crossing(pair: Pair) -> str:
    """The two compilers that built the kernels, as "gcc 14 -> gcc 16"; "": one did."""
    return next((row.comparison.crossing for row in pair.rows if row.comparison.crossing), "")


def anchor(old: str, new: str) -> str:
    """The part of an address that chooses two kernels, as the page's script reads it."""
    return "#" + "..".join(quote(printable(name), safe="") for name in (old, new))


def changed(pair: Pair) -> int:
    """How many scenarios the newer kernel changed."""
    return sum(row.comparison.verdict.is_step for row in pair.rows)


def _letter(row: PairRow) -> str:
    return _SAME_CODE if row.same_code else _LETTERS[row.comparison.verdict]


def _told(value: float) -> list[object]:
    return [number(value), float(f"{value:.{_DIGITS}g}")]


def cells(kernels: Sequence[str], pairs: Sequence[Pair]) -> Iterator[tuple[str, list[str]]]:
    """Rows of the overview: the old kernel, and by the new ones "3 of 94", "" where none."""
    known = {(pair.old, pair.new): f"{changed(pair)} of {len(pair.rows)}" for pair in pairs}
    for old in kernels:
        yield old, [known.get((old, new), "") for new in kernels]
