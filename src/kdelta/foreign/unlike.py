# SPDX-License-Identifier: GPL-2.0-or-later
"""What of a table differs between the arms beside the figures, and is no name of a kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from kdelta.foreign import marked, words
from kdelta.foreign.arms import is_version
from kdelta.foreign.mapping import Mapping
from kdelta.foreign.tables import TableRow
from kdelta.foreign.words import Part
from kdelta.printable import printable

_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?", re.ASCII)
_ENOUGH = 3  # runs of an arm, for what all of them have to be no chance


def sentences(found: Sequence[TableRow], name: str, mapping: Mapping) -> Iterator[str]:
    """Sentences on columns that are not read or say more of the arm, where arms differ in them."""
    yield from _conditions(found, name, mapping)
    yield from _beside(found, name, mapping)


def _conditions(found: Sequence[TableRow], name: str, mapping: Mapping) -> Iterator[str]:
    """Sentences on what a machine was at (freq_mhz), where no two runs of different arms agree."""
    arm = mapping.columns.arm
    for column in mapping.ignore if arm else ():
        if not marked.is_condition(column):
            continue
        spans: dict[str, list[str]] = {}
        for row in found:
            if _NUMBER.fullmatch(row[column].text):
                spans.setdefault(row.text(arm), []).append(row[column].text)
        ends = sorted((min(map(float, s)), max(map(float, s)), one) for one, s in spans.items())
        apart = all(low[1] < high[0] for low, high in pairwise(ends))
        if len(ends) > 1 and apart and min(map(len, spans.values())) >= _ENOUGH:
            listed = ", ".join(f"{low:g} to {high:g} of {one}" for low, high, one in ends[:4])
            yield (
                f"{name}: {printable(column, 60)} differs between the arms,"
                f" {printable(listed, 160)}: was the machine the same?"
            )


def _beside(found: Sequence[TableRow], name: str, mapping: Mapping) -> Iterator[str]:
    """Sentences on columns that change with the arm and are not called after one: HZ, an option."""
    arm = mapping.columns.arm
    for column in mapping.details.values() if arm else ():
        if words.said(column).part is Part.ARM:
            continue
        held = {row.text(arm): row.text(column) for row in found}
        if all(is_version(text) or text in one or one in text for one, text in held.items()):
            continue  # it names the arm once more: version_family
        if len(set(held.values())) > 1:
            listed = ", ".join(f"{text} of {one}" for one, text in list(held.items())[:4])
            yield (
                f"{name}: {printable(column, 60)} changes with the arm, {printable(listed, 160)}:"
                " is the kernel all that differs?"
            )
