# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings for programs and browsers: JSON, CSV (docs/formats.md), HTML."""

from __future__ import annotations

import base64
import csv
import functools
import hashlib
import io
import math
import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from kdelta.printable import printable
from kdelta.table.columns import Line

if TYPE_CHECKING:
    from jinja2 import Environment, Template

FORMAT = 1
_FORMULA = ("=", "+", "-", "@")
_NOTHING: tuple[object, ...] = (None, "", [], (), {})
_BEYOND_ASCII = re.compile(r"[^\x00-\x7e]")
# Of a comparison of counts.
COUNTED = (
    "verdict", "grade", "reasons", "crossing", "options", "proven", "differences", "failing",
    "ratio", "difference", "spread",
)  # fmt: skip
Cell = str | int | float | None


def picked(value: object, names: Sequence[str], **own: object) -> dict[str, Any]:
    """Fields of a value by name, in that order; `own` stands for those that it has not so."""
    return {name: own[name] if name in own else getattr(value, name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """How findings are printed.  A module of this room with these functions is a view, too.

    show: as text.  document: what kind of JSON they are, and its fields.  table: head and rows of
    CSV, of those that are one table.
    """

    show: Callable[..., list[Line]]
    document: Callable[[Any], tuple[str, object]]
    table: Callable[[Any], tuple[Sequence[str], Iterable[Sequence[Cell]]]] | None = None


def _csv(view: Any, found: object) -> str:
    """RFC 4180, and safe to open in a spreadsheet."""
    head, rows = view.table(found)
    text = io.StringIO()
    safe = ([_cell(cell) for cell in row] for row in (head, *rows))
    csv.writer(text, lineterminator="\r\n").writerows(safe)
    return text.getvalue()


# What `kdelta show` and its like print beside text: by option and suffix, what help calls it and
# how it is written.
FORMATS: dict[str, tuple[str, Callable[[Any, Any], str]]] = {
    "json": ("JSON (format 1)", lambda view, found: indented(json_fields(*view.document(found)))),
    "csv": ("CSV (RFC 4180)", _csv),
}


def written(form: str, view: object, found: object) -> str:
    """Findings in one of the formats."""
    return FORMATS[form][1](view, found)


def json_fields(kind: str, found: object, form: int = FORMAT) -> dict[str, Any]:
    """What JSON holds: every field of `found` and of what it holds.  form: the format's number."""
    return {"format": form, "kind": kind, **_with_per_operation(msgspec.to_builtins(found))}


def indented(value: object) -> str:
    """Any value as JSON for people too: ASCII, whatever it names.

    A number that JSON cannot hold (an interval without a bound) is null.
    """
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return _BEYOND_ASCII.sub(_escaped, text) + "\n"


def packed(value: object) -> str:
    """The same for programs alone: on one line."""
    return _BEYOND_ASCII.sub(_escaped, msgspec.json.encode(value).decode()) + "\n"


def columnar(value: Any) -> Any:
    """The same in fewer words: of a record what is null or empty is left out, and records in a list
    are a table: "columns", and "rows" in their order.  Text is cut where it would be on a page.
    """
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {key: columnar(inner) for key, inner in value.items() if inner not in _NOTHING}
    if not isinstance(value, list | tuple):
        return value
    if len(value) > 1 and all(isinstance(inner, dict) for inner in value):
        columns = dict.fromkeys(key for row in value for key in row)
        told = [key for key in columns if any(row.get(key) not in _NOTHING for row in value)]
        return {
            "columns": told,
            "rows": [[columnar(row.get(key)) for key in told] for row in value],
        }
    return [columnar(inner) for inner in value]


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"\\u{unit:04x}" for unit in array("H", found[0].encode("utf-16-le")))


def _with_per_operation(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_with_per_operation(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    found = {key: _with_per_operation(inner) for key, inner in value.items()}
    if "value" in found and "operations" in found:
        found["per_operation"] = found["value"] / found["operations"]
        found.pop("places", None)  # thousands, which the trials have
    return found


def _cell(cell: Cell) -> str | int | float:
    """A text that a spreadsheet would run as a formula gets a leading apostrophe."""
    if cell is None or (isinstance(cell, float) and not math.isfinite(cell)):
        return ""
    if not isinstance(cell, str):
        return cell
    safe = printable(str(cell).strip())
    return f"'{safe}" if safe.startswith(_FORMULA) else safe


class Asset(str):
    """A page's own style or script, which goes in as it is: nothing of a run is in it.

    digest: its SHA-256 as a Content-Security-Policy names it (W3C CSP Level 3, 2.3.1).
    """

    __slots__ = ()

    @property
    def digest(self) -> str:
        """In base64."""
        return base64.b64encode(hashlib.sha256(self.encode()).digest()).decode()

    def __html__(self) -> str:
        return str(self)


def template(name: str) -> Template:
    """A template by its file's name."""
    return _environment().get_template(name)


def asset(name: str) -> Asset:
    """A style or script by its file's name."""
    return Asset(template(name).render())


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("kdelta.rendering", ""),
        autoescape=True,
        # What a template's own macros made stays as it is.
        finalize=lambda value: printable(value) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
