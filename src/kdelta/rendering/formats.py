# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings for programs: the one writer of JSON and the one of CSV (format 1, docs/method.md)."""

from __future__ import annotations

import csv
import io
import math
import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

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


class View(Protocol):
    """A module of this room as the formats use it; one may lack what its findings cannot be."""

    def document(self, found: Any) -> tuple[str, object]:
        """What kind of JSON the findings are, and its fields."""

    def table(self, found: Any) -> tuple[Sequence[str], Iterable[Sequence[Cell]]]:
        """Head and rows of CSV."""


def _json(view: View, found: object) -> str:
    return indented(told(*view.document(found)))


def _csv(view: View, found: object) -> str:
    """RFC 4180, and safe to open in a spreadsheet."""
    head, rows = view.table(found)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(head)
    for row in rows:
        writer.writerow([_cell(cell) for cell in row])
    return text.getvalue()


# What `kdelta show` and its like print beside text, and leave in a run's folder: by option and
# suffix, what help calls it and how it is written.
FORMATS: dict[str, tuple[str, Callable[[Any, Any], str]]] = {
    "json": ("JSON (format 1)", _json),
    "csv": ("CSV (RFC 4180)", _csv),
}


def written(form: str, view: object, found: object) -> str:
    """Findings in one of the formats."""
    return FORMATS[form][1](view, found)


def told(kind: str, found: object) -> dict[str, Any]:
    """What JSON holds: every field of `found` and of what it holds."""
    return {"format": FORMAT, "kind": kind, **_told(msgspec.to_builtins(found))}


def indented(value: object) -> str:
    """Any value as JSON for people too: ASCII, whatever it names.

    A number that JSON cannot hold (an interval without a bound) is null.
    """
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return _BEYOND_ASCII.sub(_escaped, text) + "\n"


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"\\u{unit:04x}" for unit in array("H", found[0].encode("utf-16-le")))


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
