# SPDX-License-Identifier: GPL-2.0-or-later
"""What `kdelta explain --code FUNCTION` prints: what ran of it, old and new side by side."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from kdelta.analysis.explanation import Explanation
from kdelta.disassembly.addr2line import Chain
from kdelta.disassembly.objdump import ExecutedInsn
from kdelta.rendering.calls import Scale
from kdelta.rendering.explain import PATH_LENGTH, opening, refusal
from kdelta.rendering.formats import Cell, picked
from kdelta.table.columns import Column, Line, Span, Tone, paragraph, short, table_lines

_TEXT_WIDTH = 30
_LINES = (
    "Above instructions their source line, then, behind each <, where its function was inlined."
)
_PLACES = re.compile(r"\+?0x[0-9a-f]+|\b[0-9a-f]{6,}\b")
Pair = tuple[ExecutedInsn | None, ExecutedInsn | None]


@dataclass(frozen=True, slots=True)
class Listing:
    """What ran of a function in an explanation's windows.

    missing: why lines that were asked for are not known, sentences.
    """

    explanation: Explanation
    function: str
    old: tuple[ExecutedInsn, ...]
    new: tuple[ExecutedInsn, ...]
    missing: tuple[str, ...] = ()

    @property
    def lined(self) -> bool:
        """True when some instruction has its source line."""
        return any(one.lines for one in (*self.old, *self.new))

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
    head, *rows = table_lines(columns)
    lines += [(), *paragraph(f"{claim} per {per}", Tone.BOLD), head]
    lines += _under_lines(found, rows) if found.lined else rows
    lines += [(), *paragraph(f"How often each instruction retires per {per}. {PATH_LENGTH}")]
    if found.lined:
        lines += paragraph(_LINES)
    for sentence in found.missing:
        lines += paragraph(f"{sentence}.", Tone.WARN)
    return lines


def _under_lines(found: Listing, rows: Sequence[Line]) -> Iterator[Line]:
    """The rows, and above each that is not of the source told last, its source."""
    lined = [any(one.lines for one in side) for side in (found.old, found.new)]
    told: list[Chain | None] = [None, None]
    for pair, row in zip(found.pairs(), rows, strict=True):
        own = [one.lines if one and known else None for one, known in zip(pair, lined, strict=True)]
        if any(chain is not None and chain != last for chain, last in zip(own, told, strict=True)):
            yield from _source(*own)
            told = own
        yield row


def _source(old: Chain | None, new: Chain | None) -> Iterator[Line]:
    """The source of a row: once where both kernels have it in one place of the source."""
    if old is not None and new is not None and _place(old) == _place(new):
        yield from paragraph(worded(old, new), Tone.BOLD)
        return
    for name, chain in (("old", old), ("new", new)):
        if chain is not None:
            yield from paragraph(f"{name} {worded(chain, chain)}", Tone.BOLD)


def _place(chain: Chain) -> list[tuple[str, str]]:
    return [(one.file, one.function) for one in chain]


def worded(old: Chain, new: Chain) -> str:
    """Where code comes from, the innermost first; two chains that differ in line numbers alone."""
    if not old:
        return "no line is known"
    parts = []
    for was, now in zip(old, new, strict=True):
        numbers = " -> ".join(dict.fromkeys(str(one.line or "?") for one in (was, now)))
        parts.append(f"{was.file or '?'}:{numbers} {was.function}".rstrip())
    return " < ".join(parts)


def _tone(old: ExecutedInsn | None, new: ExecutedInsn | None) -> Tone:
    if old and new:
        return Tone.FAINT if old.count == new.count else Tone.PLAIN
    return Tone.BAD if new else Tone.GOOD


def document(found: Listing) -> tuple[str, dict[str, Any]]:
    """See formats.View."""
    names = ("run_id", "workload", "scenario", "phase", "old", "new", "operation", "operations")
    sides = {name: _told(getattr(found, name)) for name in ("old", "new")}
    own = {f"{name}_code": told for name, told in sides.items()}
    head = picked(found.explanation, names)
    more = {"function": found.function, "missing": list(found.missing)}
    return "code", {**head, **more, **own}


def _told(side: Sequence[ExecutedInsn]) -> list[dict[str, Any]]:
    return [picked(one, ("offset", "size", "count", "text", "lines")) for one in side]


def table(found: Listing) -> tuple[Sequence[str], list[tuple[Cell, ...]]]:
    """A row for each line of the listing."""
    names = ("count", "offset", "text", "source")
    head = tuple(f"{side}_{name}" for side in ("old", "new") for name in names)
    return head, [
        tuple(cell for one in pair for cell in (_cells(one) if one else (None,) * len(names)))
        for pair in found.pairs()
    ]


def _cells(one: ExecutedInsn) -> tuple[Cell, ...]:
    return one.count, one.offset, one.text, worded(one.lines, one.lines) if one.lines else None
