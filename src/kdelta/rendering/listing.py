# SPDX-License-Identifier: GPL-2.0-or-later
"""What `kdelta explain --code FUNCTION` prints: what ran of it, old and new side by side."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from kdelta.analysis.explanation import Explanation
from kdelta.disassembly.executed import ExecutedInsn
from kdelta.rendering.calls import Scale
from kdelta.rendering.explain import PATH_LENGTH, opening, refusal
from kdelta.rendering.formats import Cell, picked
from kdelta.table.columns import Column, Line, Span, Tone, paragraph, short, table_lines

_TEXT_WIDTH = 30
_PLACES = re.compile(r"\+?0x[0-9a-f]+|\b[0-9a-f]{6,}\b")
Pair = tuple[ExecutedInsn | None, ExecutedInsn | None]


@dataclass(frozen=True, slots=True)
class Listing:
    """What ran of a function in an explanation's windows."""

    explanation: Explanation
    function: str
    old: tuple[ExecutedInsn, ...]
    new: tuple[ExecutedInsn, ...]

    def pairs(self) -> Iterator[Pair]:
        """Old and new in order; instructions that differ in addresses alone are side by side."""
        was, now = ([_PLACES.sub("", one.text) for one in side] for side in (self.old, self.new))
        matcher = SequenceMatcher(None, was, now, autojunk=False)
        for tag, a, b, c, d in matcher.get_opcodes():
            if tag == "equal":
                yield from zip(self.old[a:b], self.new[c:d], strict=True)
            else:
                yield from ((one, None) for one in self.old[a:b])
                yield from ((None, one) for one in self.new[c:d])


def show(found: Listing) -> list[Line]:
    """The listing as text."""
    lines = opening(found.explanation)
    if found.explanation.refused:
        return [*lines, *refusal(found.explanation)]
    scale = Scale.of(found.explanation)
    totals = [sum(one.count for one in side) for side in (found.old, found.new)]
    claim = f"{found.function}: {scale.plain(totals[0])} -> {scale.plain(totals[1])} instructions"
    pairs = [*found.pairs()]
    tones = [_tone(*pair) for pair in pairs]
    columns = []
    for name, side in (("old", 0), ("new", 1)):
        own = [pair[side] for pair in pairs]
        told = (
            (name, [scale.each(one.count) if one else "" for one in own], True),
            ("at", [f"+{one.offset:#x}" if one else "" for one in own], True),
            ("executed", [short(one.text, _TEXT_WIDTH) if one else "" for one in own], False),
        )
        columns += [
            Column(head, map(Span, cells, tones), right=right) for head, cells, right in told
        ]
    per = found.explanation.operation or "operation"
    lines += [(), *paragraph(f"{claim} per {per}", Tone.BOLD), *table_lines(columns)]
    return [*lines, (), *paragraph(f"How often each instruction retires per {per}. {PATH_LENGTH}")]


def _tone(old: ExecutedInsn | None, new: ExecutedInsn | None) -> Tone:
    if old and new:
        return Tone.FAINT if old.count == new.count else Tone.PLAIN
    return Tone.BAD if new else Tone.GOOD


def document(found: Listing) -> tuple[str, dict[str, Any]]:
    """See formats.View."""
    names = ("run_id", "workload", "scenario", "phase", "old", "new", "operation", "operations")
    sides = {
        f"{name}_code": [
            picked(one, ("offset", "size", "count", "text")) for one in getattr(found, name)
        ]
        for name in ("old", "new")
    }
    head = picked(found.explanation, names)
    return "code", {**head, "function": found.function, **sides}


def table(found: Listing) -> tuple[Sequence[str], list[tuple[Cell, ...]]]:
    """A row for each line of the listing."""
    names = ("count", "offset", "text")
    head = tuple(f"{side}_{name}" for side in ("old", "new") for name in names)
    return head, [
        tuple(getattr(one, name) if one else None for one in pair for name in names)
        for pair in found.pairs()
    ]
