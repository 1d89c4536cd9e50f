# SPDX-License-Identifier: GPL-2.0-or-later
"""Any two kernels of a lab as one table, out of which a page's script shows the two that are asked.

A pair is a letter for each scenario; values are told once for a kernel, since most pairs share
them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from kdelta.analysis.pairs import Pair, PairRow
from kdelta.metric import number
from kdelta.printable import printable
from kdelta.stats.verdict import Verdict

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


def table(
    kernels: Sequence[str], pairs: Sequence[Pair], page: Callable[[str], str]
) -> dict[str, Any]:
    """All pairs.  page: of a scenario, by its name.

    words: what a letter means.  scenarios: name, page, operation.  values: by scenario, for each
    kernel what is told and the number, null without one.  pairs: numbers of the two kernels, a
    letter for each scenario ("-": not counted on both), numbers of the reasons of each "U" and "X"
    in that order, and where another run's values were compared: scenario, and values as above.
    """
    operations = {row.name: row.operation for pair in pairs for row in pair.rows}
    names = sorted(operations)
    values = _usual(pairs)
    reasons: dict[str, int] = {}
    return {
        "words": _WORDS,
        "kernels": [printable(kernel) for kernel in kernels],
        "scenarios": [[printable(name), page(name), printable(operations[name])] for name in names],
        "values": [[_told(values[name].get(kernel)) for kernel in kernels] for name in names],
        "pairs": [_packed(pair, kernels, names, values, reasons) for pair in pairs],
        "reasons": list(reasons),
    }


def anchor(old: str, new: str) -> str:
    """The part of an address that chooses two kernels, as the page's script reads it."""
    return "#" + "..".join(quote(printable(name), safe="") for name in (old, new))


def changed(pair: Pair) -> int:
    """How many scenarios the newer kernel changed."""
    return sum(row.comparison.verdict.is_step for row in pair.rows)


def _usual(pairs: Sequence[Pair]) -> dict[str, dict[str, float]]:
    """By scenario the value of each kernel that most of its pairs have."""
    seen: dict[tuple[str, str], Counter[float]] = defaultdict(Counter)
    for pair in pairs:
        for row in pair.rows:
            seen[row.name, pair.old][row.old] += 1
            seen[row.name, pair.new][row.new] += 1
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for (name, kernel), values in seen.items():
        found[name][kernel] = values.most_common(1)[0][0]
    return found


def _packed(
    pair: Pair,
    kernels: Sequence[str],
    names: Sequence[str],
    values: dict[str, dict[str, float]],
    reasons: dict[str, int],
) -> list[object]:
    rows = {row.name: row for row in pair.rows}
    own = [rows.get(name) for name in names]
    why = [
        reasons.setdefault(printable("; ".join(row.comparison.reasons)), len(reasons))
        for row in own
        if row and _letter(row) in "UX"
    ]
    apart = [
        [at, _told(row.old), _told(row.new)]
        for at, row in enumerate(own)
        if row and (values[row.name][pair.old], values[row.name][pair.new]) != (row.old, row.new)
    ]
    letters = "".join(_letter(row) if row else _ABSENT for row in own)
    return [kernels.index(pair.old), kernels.index(pair.new), letters, why, apart]


def _letter(row: PairRow) -> str:
    return _SAME_CODE if row.same_code else _LETTERS[row.comparison.verdict]


def _told(value: float | None) -> list[object] | None:
    return None if value is None else [number(value), float(f"{value:.{_DIGITS}g}")]


def cells(kernels: Sequence[str], pairs: Sequence[Pair]) -> Iterator[tuple[str, list[str]]]:
    """Rows of the overview: the old kernel, and by the new ones "3 of 94", "" where none."""
    known = {(pair.old, pair.new): f"{changed(pair)} of {len(pair.rows)}" for pair in pairs}
    for old in kernels:
        yield old, [known.get((old, new), "") for new in kernels]
