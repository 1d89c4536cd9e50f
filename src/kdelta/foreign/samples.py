# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables that have a column for each run: r1, r2, r3, or boot_1_ns, boot_2_ns, boot_3_ns."""

from __future__ import annotations

import re

from kdelta.foreign import words
from kdelta.foreign.columns import Cells, Holds
from kdelta.foreign.wordlists import vocabulary
from kdelta.foreign.words import Part, Said
from kdelta.foreign.work import Work
from kdelta.verdict.series import ReplicateUnit

_NUMBERED = re.compile(
    r"(?P<word>[^\d]*?)[\s_#.-]*(?P<number>\d{1,4})(?:[\s_(]+(?P<rest>[^\d)]+)\)?)?\Z"
)
# The numbers of runs, and no quantity: v1 may be a version, x2 a factor.
_RUNS = vocabulary(
    "r run runs rep repeat repetition sample samples value i iter iteration trial round try"
    " attempt pass measurement obs"
)
_PERHAPS = vocabulary("t v x y s")
_ALIKE = 1.3  # times: medians of runs in columns that only a number names
_BOOTS = vocabulary("b boot reboot")


def is_run(word: str) -> bool:
    """True for run1, r2, boot3, or 4: a word that numbers runs."""
    cut = _NUMBERED.match(word)
    if cut is None or cut["rest"]:
        return False
    return cut["word"].strip().lower() in (*_RUNS, *_BOOTS, "")


def middle(cells: Cells) -> float:
    """The median of a column of numbers; 0.0 for none, and where one of them is none."""
    try:
        values = sorted(float(text.replace(",", ".").rstrip("%")) for text in cells.texts if text)
    except ValueError:
        return 0.0
    return values[len(values) // 2] if values else 0.0


def columns(work: Work) -> None:
    """Take columns that are numbered 1, 2, 3 ... as the runs of one metric."""
    found: dict[tuple[str, str], dict[int, str]] = {}
    for name, said in work.left.items():
        cut = _NUMBERED.match(name)
        if cut and said.part in (
            Part.UNKNOWN,
            Part.TIME,
            Part.STATISTIC,
            Part.NOTE,
            Part.DIMENSION,
        ):
            key = _of_what(cut["word"].strip().lower(), cut["rest"] or "")
            found.setdefault(key, {})[int(cut["number"])] = name
    runs = {key: names for key, names in found.items() if _are_runs(work, key[0], names)}
    if len(runs) != 1:
        return
    ((word, rest), names) = next(iter(runs.items()))
    listed = tuple(names[at] for at in sorted(names))
    if word in _BOOTS:
        work.replicate = ReplicateUnit.BOOT
    for name in listed:
        work.take(name, "values", "it is numbered as a run is")
    one = f"{listed[0]} ... {listed[-1]}"
    if word in _PERHAPS:
        work.doubts.append(f"are {one} runs of one metric?")
    texts = zip(*(work.cells(name).texts for name in listed), strict=True)
    work.table.cells[one] = Cells(one, tuple(" ".join(filter(None, each)) for each in texts))
    work.samples[one] = listed
    if not rest and words.said(word).part is Part.TIME:
        rest = word
    said = words.said(rest)
    timed = said.part is Part.TIME
    work.left[one] = Said(
        part=Part.TIME if timed else Part.VALUES,
        statistic="values",
        metric=rest,
        unit=said.unit,
        better=said.better,
    )


def _of_what(word: str, rest: str) -> tuple[str, str]:
    """The word that numbers runs and what they are of: iperf run 1 (Mbit/s) is a run of iperf."""
    before, _, last = word.replace("_", " ").rpartition(" ")
    if before and len(last) > 1 and last in (*_RUNS, *_BOOTS):
        return last, f"{before} {rest}".strip()
    return word, rest


def _are_runs(work: Work, word: str, names: dict[int, str]) -> bool:
    """True for at least three, from 0 or 1 on without a gap, that hold numbers."""
    numbers = sorted(names)
    whole = numbers[0] in (0, 1) and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    if len(numbers) < 3 or not whole:
        return False
    named = word in (*_RUNS, *_BOOTS)
    perhaps = word in _PERHAPS and not any(re.search(r"\d\D+\Z", name) for name in names.values())
    timed = words.said(word).part is Part.TIME  # lat_us_1, lat_us_2
    if not (named or timed or perhaps or not word) or any(
        work.cells(name).holds is not Holds.NUMBERS for name in names.values()
    ):
        return False
    middles = [middle(work.cells(name)) for name in names.values()]
    # 1, 2, 3, 4 alone may be numbers of threads: then figures change with them.
    return named or max(middles) <= _ALIKE * min(middles)
