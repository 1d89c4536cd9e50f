# SPDX-License-Identifier: GPL-2.0-or-later
"""What a bundle says of itself: its files, its counts, its figures, and the same run again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kdelta.analysis.merging import Reproduction
from kdelta.journal.bundle import RUN, Difference
from kdelta.journal.run import RunRecord
from kdelta.metric import number, plural
from kdelta.rendering.answers import answers
from kdelta.table.columns import ABSENT, Column, Line, Tone, paragraph, shortened, table_lines

_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """One thing that was checked; looked_at: what of, in words."""

    what: str
    looked_at: str
    differences: tuple[Difference, ...]


def figures(folder: Path, record: RunRecord) -> Verified:
    """The answers that lie beside a run against those that its results give now."""
    found, seen = [], 0
    for name, text in answers(record):
        path = folder / name
        if not path.is_file():
            found.append(Difference(file=f"{RUN}/{name}", what="is missing"))
            continue
        seen += 1
        stored = path.read_bytes()
        if stored != text.encode():
            found.append(Difference(file=f"{RUN}/{name}", what=_apart(name, stored, text)))
    told = f"{plural(seen, 'file')} of figures, each made again from the results"
    return Verified(what="figures", looked_at=told, differences=tuple(found))


def _apart(name: str, stored: bytes, text: str) -> str:
    """Where two versions of an answer differ first."""
    if name.endswith(".json"):
        try:
            where = next(_differences(json.loads(stored), json.loads(text), ""), "")
        except (ValueError, RecursionError):
            return "is no JSON"
        if where:
            return f"differs from what the results give: {where}"
    lines = stored.decode(errors="replace").splitlines()
    for at, (old, new) in enumerate(zip(lines, text.splitlines(), strict=False), start=1):
        if old != new:
            return f'differs from what the results give: line {at}: "{old[:120]}"'
    return "is longer or shorter than what the results give"


def _differences(old: Any, new: Any, place: str) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            yield from _differences(old.get(key), new.get(key), f"{place}.{key}".lstrip("."))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for at, pair in enumerate(zip(old, new, strict=True)):
            yield from _differences(*pair, f"{place}[{at}]")
    elif old != new:
        yield f"{place} is {json.dumps(old)[:80]}, and is {json.dumps(new)[:80]} by the results"


def show(parts: Sequence[Verified], absent: Sequence[str]) -> list[Line]:
    """What `kdelta bundle verify` prints."""
    lines: list[Line] = []
    for part in parts:
        good = not part.differences
        tone = Tone.GOOD if good else Tone.BAD
        lines += paragraph(f"{'ok' if good else 'DIFFERS'}: {part.what}: {part.looked_at}", tone)
        for each in part.differences[:_SHOWN]:
            lines += paragraph(f"{each.file}: {each.what}", indent="  ")
        if (more := len(part.differences) - _SHOWN) > 0:
            lines += paragraph(f"and {more} more", indent="  ")
    for text in absent:
        lines += paragraph(f"not in the bundle: {text}", Tone.WARN)
    return lines


def show_again(found: Reproduction) -> list[Line]:
    """What `kdelta bundle reproduce` prints."""
    rows = found.rows
    lines: list[Line] = list(
        table_lines(
            [
                Column("scenario", shortened([row.scenario for row in rows], 36)),
                Column("kernel", shortened([row.arm for row in rows], 20), Tone.BOLD),
                Column("phase", (row.phase for row in rows)),
                Column("theirs", (_value(row.theirs) for row in rows), right=True),
                Column("here", (_value(row.ours) for row in rows), right=True),
                Column("", (_word(found, equal=row.equal) for row in rows)),
            ]
        )
    )
    lines.append(())
    equal = sum(row.equal for row in rows)
    what = "verdicts are" if found.timed else "counts are equal to the instruction,"
    told = f"{equal} of {len(rows)} {what}{' the same' if found.timed else ' theirs and here'}."
    lines += paragraph(told, Tone.GOOD if found.equal else Tone.BAD)
    for reason in found.reasons:
        lines += paragraph(f"what else differs: {reason}", Tone.WARN)
    if not found.equal and not found.reasons:
        lines += paragraph("nothing that was recorded explains it", Tone.WARN)
    return lines


def _word(found: Reproduction, *, equal: bool) -> str:
    if found.timed:
        return "same verdict" if equal else "ANOTHER VERDICT"
    return "equal" if equal else "DIFFERS"


def _value(value: float | None) -> str:
    return ABSENT if value is None else number(value)
