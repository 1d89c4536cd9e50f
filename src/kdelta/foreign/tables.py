# SPDX-License-Identifier: GPL-2.0-or-later
"""Strict, bounded reading of files that strangers wrote; errors name file, line and column."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kdelta.errors import SpecError
from kdelta.foreign.record import Line, SourceFile
from kdelta.printable import quoted

MAX_BYTES = 64 * 2**20
MAX_LINES = 2_000_000
MAX_COLUMNS = 500
MAX_CELL = 65536
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,4})?", re.ASCII)
_INTEGER = re.compile(r"\d{1,15}", re.ASCII)


@dataclass(frozen=True, slots=True)
class TableCell:
    """One cell with the place to name in an error."""

    text: str
    source: str
    line: int
    column: str

    def number(self) -> float:
        """The finite decimal number it holds.  Raises SpecError."""
        found = float(self.text) if _NUMBER.fullmatch(self.text) else math.nan
        if not math.isfinite(found):
            raise self.wrong("a number")
        return found

    def integer(self) -> int:
        """The whole number from 0 that it holds.  Raises SpecError."""
        if not _INTEGER.fullmatch(self.text):
            raise self.wrong("a whole number from 0")
        return int(self.text)

    def numbers(self) -> tuple[float, ...]:
        """The numbers it lists, separated by blanks or semicolons, at least one."""
        parts = [part for part in re.split(r"[;\s]+", self.text) if part]
        if not parts:
            raise self.wrong("a list of numbers")
        return tuple(
            TableCell(part, self.source, self.line, self.column).number() for part in parts
        )

    def wrong(self, wanted: str) -> SpecError:
        """The error that this cell is not what was wanted."""
        return SpecError(
            f"{quoted(self.text)} is not {wanted}",
            place=f"{self.source}: line {self.line}, column {self.column}",
            action="correct the file, or import the others without it",
        )


@dataclass(frozen=True, slots=True)
class TableRow:
    """One line of a table by the names of its columns."""

    source: str
    line: int
    columns: tuple[str, ...]
    cells: tuple[str, ...]

    def __contains__(self, column: str) -> bool:
        return column in self.columns

    def __getitem__(self, column: str) -> TableCell:
        return TableCell(self.cells[self.columns.index(column)], self.source, self.line, column)

    def text(self, *columns: str) -> str:
        """The cell of the first of these columns that the table has; "" without one."""
        return next((self[column].text for column in columns if column in self), "")


def load(path: Path, name: str) -> tuple[bytes, SourceFile]:
    """A file's content and its SourceFile without lines.  Raises SpecError."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise SpecError(
            f"it cannot be read: {error.strerror or error}", place=name, action="check the path"
        ) from error
    if len(data) > MAX_BYTES:
        raise SpecError(
            f"it is larger than {MAX_BYTES // 2**20} MiB", place=name, action="import a part of it"
        )
    return data, SourceFile(name=name, sha256=hashlib.sha256(data).hexdigest(), size=len(data))


def decoded(data: bytes, name: str) -> str:
    """The text of a file: UTF-8, with an optional mark, no NUL.  Raises SpecError."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise SpecError("not UTF-8", place=f"{name}: line {number}") from error
    if "\0" in text:
        number = text.count("\n", 0, text.index("\0")) + 1
        raise SpecError("it holds a NUL character", place=f"{name}: line {number}")
    return text


def table(data: bytes, name: str, delimiter: str) -> tuple[tuple[str, ...], tuple[Line, ...]]:
    """Columns and lines of a CSV or TSV file with a head line.  Raises SpecError."""
    text = decoded(data, name)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        head = next(reader, [])
        columns = _columns(head, name)
        lines = tuple(_lines(reader, columns, name))
    except csv.Error as error:
        raise SpecError(f"not a table: {error}", place=f"{name}: line {reader.line_num}") from error
    return columns, lines


def _columns(head: list[str], name: str) -> tuple[str, ...]:
    place = f"{name}: line 1"
    if not any(head):
        raise SpecError("there is no head line", place=place, action="name the columns in line 1")
    if len(head) > MAX_COLUMNS:
        raise SpecError(f"more than {MAX_COLUMNS} columns", place=place)
    columns = tuple(cell.strip() for cell in head)
    for at, column in enumerate(columns):
        if not column:
            raise SpecError("a column has no name", place=f"{place}, column {at + 1}")
        if column in columns[:at]:
            raise SpecError(f"two columns are called {quoted(column)}", place=place)
    return columns


def _lines(reader: Any, columns: tuple[str, ...], name: str) -> Iterator[Line]:
    for count, cells in enumerate(reader):
        number = reader.line_num
        if not cells:
            continue
        place = f"{name}: line {number}"
        if count >= MAX_LINES:
            raise SpecError(f"more than {MAX_LINES} lines", place=place)
        if len(cells) != len(columns):
            raise SpecError(
                f"{len(cells)} cells where the head has {len(columns)}",
                place=f"{place}, column {columns[min(len(cells), len(columns) - 1)]}",
            )
        for column, cell in zip(columns, cells, strict=True):
            if len(cell) > MAX_CELL:
                raise SpecError(
                    f"more than {MAX_CELL} characters", place=f"{place}, column {column}"
                )
        yield Line(number=number, cells=tuple(cell.strip() for cell in cells))


def rows(source: SourceFile) -> Iterator[TableRow]:
    """The lines of a table source by column name."""
    for line in source.lines:
        yield TableRow(source.name, line.number, source.columns, line.cells)


def json_object(text: str, name: str) -> dict[str, Any]:
    """The object that a JSON file holds; no NaN, no name twice.  Raises SpecError."""
    # Not msgspec: of a name that stands twice it takes the last without a word.
    try:
        found = json.loads(text, parse_constant=_refuse, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        place = f"{name}: line {error.lineno}, column {error.colno}"
        raise SpecError(f"not JSON: {error.msg}", place=place) from error
    except (ValueError, RecursionError) as error:
        raise SpecError(f"not JSON that can be used: {error}", place=name) from error
    if not isinstance(found, dict):
        raise SpecError("it holds no JSON object", place=f"{name}: line 1, column 1")
    return found


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in an object")
    return found
