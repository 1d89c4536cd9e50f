# SPDX-License-Identifier: GPL-2.0-or-later
"""Lines of a log that say under what the figures below them were measured, and are no figures.

"Running in process mode with 10 groups" above "Time: 0.51" is a setting where other such lines say
4 groups: figures below unlike lines are no runs of one thing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

Lines = Sequence[tuple[int, str]]

_VARIES = re.compile(r"'[^']*'|\"[^\"]*\"|\d+(?:\.\d+)?")
_LETTERS = re.compile(r"[A-Za-z]{2,}")
_NAME = "said"  # no word that any table uses for what it measures
_MOST = 6  # wordings; a text of more is prose
_LONGEST = 200  # characters that are kept of a line


def wording(line: str) -> str:
    """A line with each number, and each name in quotes, as 0."""
    return _VARIES.sub("0", line)


def settings(lines: Lines) -> dict[int, tuple[str, str]]:
    """Number of a line -> (name of its wording, the line), where unlike lines are of one.

    lines: what is neither a figure nor a title.
    """
    found: dict[str, dict[int, str]] = {}
    for number, line in lines:
        text = line.strip().lstrip("#").strip()
        if _LETTERS.search(text) and _VARIES.search(text):
            found.setdefault(wording(text), {})[number] = text[:_LONGEST]
    varied = [said for said in found.values() if len(set(said.values())) > 1]
    if len(varied) > _MOST:
        return {}
    return {
        number: (_NAME if at == 0 else f"{_NAME} {at + 1}", text)
        for at, said in enumerate(varied)
        for number, text in said.items()
    }


def before(lines: Lines, taken: Collection[int]) -> dict[int, dict[str, str]]:
    """What the lines above each taken line say; nothing where the first of all says none."""
    said = settings([(number, line) for number, line in lines if number not in taken])
    first = min(taken, default=0)
    if not said or min(said) > first:
        return {}
    found: dict[int, dict[str, str]] = {}
    now: dict[str, str] = {}
    for number, _ in lines:
        if number in said:
            name, text = said[number]
            now = {**now, name: text}
        elif number in taken:
            found[number] = now
    return found
