# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings for programs: the one writer of JSON and the one of CSV (format 1, docs/method.md)."""

from __future__ import annotations

import csv
import io
import math
import re
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from kdelta.printable import printable

FORMAT = 1
_FORMULA = ("=", "+", "-", "@")
_BEYOND_ASCII = re.compile(r"[^\x00-\x7e]")
# Of a comparison of counts.
COUNTED = (
    *("verdict", "grade", "reasons", "crossing", "differences", "ratio", "difference", "noise"),
)
Cell = str | int | float | None


def picked(value: object, names: Sequence[str], **own: object) -> dict[str, Any]:
    """Fields of a value by name, in that order; `own` stands for those that it has not so."""
    return {name: own[name] if name in own else getattr(value, name) for name in names}


def json_text(kind: str, found: object) -> str:
    """Findings as JSON: every field of `found` and of what it holds."""
    return indented(document(kind, found))


def document(kind: str, found: object) -> dict[str, Any]:
    """What that JSON holds."""
    return {"format": FORMAT, "kind": kind, **_told(msgspec.to_builtins(found))}


def indented(value: object) -> str:
    """Any value as JSON for people too: ASCII, whatever it names.

    A number that JSON cannot hold (an interval without a bound) is null.
    """
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return _BEYOND_ASCII.sub(_escaped, text) + "\n"


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"\\u{unit:04x}" for unit in array("H", found[0].encode("utf-16-le")))


def csv_text(head: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """Rows under their head as CSV (RFC 4180), safe to open in a spreadsheet."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(head)
    for row in rows:
        writer.writerow([_cell(cell) for cell in row])
    return text.getvalue()


def _told(value: Any) -> Any:
    """The figure per operation is added wherever a window's value stands."""
    if isinstance(value, dict):
        found = {key: _told(inner) for key, inner in value.items()}
        if "value" in found and "operations" in found:
            found["per_operation"] = found["value"] / found["operations"]
        return found
    if isinstance(value, list | tuple):
        return [_told(inner) for inner in value]
    return value


def _cell(cell: Cell) -> str | int | float:
    """A text that a spreadsheet would run as a formula gets a leading apostrophe."""
    if cell is None or _unbounded(cell):
        return ""
    if isinstance(cell, str):
        safe = printable(str(cell).strip())
        return f"'{safe}" if safe.startswith(_FORMULA) else safe
    return cell


def _unbounded(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
