# SPDX-License-Identifier: GPL-2.0-or-later
"""The one kind of table that is read: CSV, TSV or JSON lines with one head line; strict cells.

The head line tells the separator: a line that begins with { is an object a line, a head line with
a tab is TSV, and any other is CSV.  Errors name file, line and column.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from kdelta.errors import SpecError
from kdelta.imports.files import MAX_BYTES, parsed_json
from kdelta.imports.record import Line, SourceFile
from kdelta.printable import printable, quoted

MAX_LINES = 2_000_000
MAX_COLUMNS = 500
MAX_CELL = 65536
# Sums of squares of larger figures are no longer finite, and nothing that is measured is as large.
_LARGEST = 1e30
_SMALLEST = 1e-30  # but zero: of quotients of smaller ones nothing is left
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,4})?", re.ASCII)
_INTEGER = re.compile(r"\d{1,15}(?:\.0+)?", re.ASCII)  # some write a count as 9.0
_LIST = re.compile(r"[;|,\s]+")


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
        if abs(found) > _LARGEST:
            raise self.wrong(f"a number up to {_LARGEST:.0e}, as measured figures are")
        if 0 < abs(found) < _SMALLEST:
            raise self.wrong(f"zero or a number from {_SMALLEST:.0e}, as measured figures are")
        return found

    def integer(self) -> int:
        """The whole number from 0 that it holds.  Raises SpecError."""
        if not _INTEGER.fullmatch(self.text):
            raise self.wrong("a whole number from 0")
        return int(self.text.partition(".")[0])

    def numbers(self) -> tuple[float, ...]:
        """The numbers it lists, separated by blanks, semicolons, bars or commas, at least one."""
        parts = [part for part in _LIST.split(self.text) if part]
        if not parts:
            raise self.wrong("a list of numbers")
        return tuple(replace(self, text=part).number() for part in parts)

    def wrong(self, wanted: str) -> SpecError:
        """The error that this cell is not what was wanted."""
        return SpecError(
            f"{quoted(self.text)} is not {wanted}",
            place=f"{self.source}: line {self.line}, column {printable(self.column, 80)}",
            action="correct the cell, or import the other rows without it",
        )


@dataclass(frozen=True, slots=True)
class TableRow:
    """One line of a table by the names of its columns; missing: cells that say nothing."""

    source: str
    line: int
    index: Mapping[str, int]
    cells: tuple[str, ...]
    missing: Collection[str] = ()

    def __getitem__(self, column: str) -> TableCell:
        text = self.cells[self.index[column]]
        return TableCell("" if text in self.missing else text, self.source, self.line, column)

    def text(self, column: str | None) -> str:
        """The cell of a column that the table has; "" for None."""
        return self[column].text if column else ""


def table(source: SourceFile) -> SourceFile:
    """The source with columns and lines in place of its text.  Raises SpecError."""
    name, text = source.name, source.text
    rows_ = _objects(text, name) if text.lstrip()[:1] == "{" else _cut(text, name)
    number, head = next(rows_, (1, []))
    columns = _columns(head, f"{name}: line {number}")
    lines = tuple(_lines(rows_, columns, name))
    if not lines:
        raise SpecError("there is no row below the head line", place=name, action="add the rows")
    return replace(source, columns=columns, lines=lines, text="")


def _cut(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of all lines that are not empty."""
    head = next((line for line in text.splitlines() if line.strip()), "")
    limit = csv.field_size_limit(MAX_BYTES)
    begun = 1
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter="\t" if "\t" in head else ",", strict=True
    )
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, cells
            begun = reader.line_num + 1
    except csv.Error as error:
        unclosed = "unexpected end" in str(error)
        what = "a quote is opened and never closed" if unclosed else str(error)
        raise SpecError(
            f"not a table: {what}",
            place=f"{name}: line {begun if unclosed else reader.line_num}",
            action="correct the line",
        ) from error
    finally:
        csv.field_size_limit(limit)


def _objects(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """The names of the first object, then the cells of every object, which has the same names."""
    columns: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        found = parsed_json(line, name, number, as_written=True)
        place = f"{name}: line {number}"
        if not isinstance(found, dict):
            raise SpecError("it is no JSON object", place=place, action="write one object a line")
        if not columns:
            columns = list(found)
            yield number, columns
        if set(found) != set(columns):
            names = ", ".join(quoted(each) for each in sorted(set(found) ^ set(columns))[:5])
            raise SpecError(
                f"it has other names than the first object: {names}",
                place=place,
                action="give every object the same names; null says that a value is missing",
            )
        yield number, [_plain(found[column], f"{place}, {column}") for column in columns]


def _plain(value: object, place: str) -> str:
    if isinstance(value, dict | list):
        raise SpecError(
            "a value holds other values", place=place, action="write text, numbers or null"
        )
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _columns(head: list[str], place: str) -> tuple[str, ...]:
    if not any(cell.strip() for cell in head):
        raise SpecError("there is no head line", place=place, action="name the columns in line 1")
    if len(head) > MAX_COLUMNS:
        raise SpecError(
            f"{len(head)} columns, more than {MAX_COLUMNS}",
            place=f"{place}, column {MAX_COLUMNS + 1}",
            action="put values below each other: a line for each, and a column for the arm",
        )
    columns = tuple(cell.strip() for cell in head)
    for at, column in enumerate(columns):
        where = f"{place}, column {at + 1}"
        if not column:
            raise SpecError("a column has no name", place=where, action="name it")
        if column in columns[:at]:
            raise SpecError(
                f"two columns are called {quoted(column)}", place=where, action="rename one of them"
            )
        if len(column) > 200:
            raise SpecError(
                "the name of a column is longer than 200 characters", place=where, action="cut it"
            )
    return columns


def _lines(
    found: Iterator[tuple[int, list[str]]], columns: tuple[str, ...], name: str
) -> Iterator[Line]:
    for count, (number, cells) in enumerate(found):
        place = f"{name}: line {number}"
        if count >= MAX_LINES:
            raise SpecError(
                f"more than {MAX_LINES} lines", place=place, action="import a part of it"
            )
        if len(cells) != len(columns):
            at = columns[min(len(cells), len(columns) - 1)]
            raise SpecError(
                f"{len(cells)} cells where the head has {len(columns)}",
                place=f"{place}, column {printable(at, 80)}",
                action="put one table into a file, a cell for each column, and quote separators",
            )
        for column, cell in zip(columns, cells, strict=True):
            if len(cell) > MAX_CELL:
                raise SpecError(
                    f"{len(cell)} characters, more than {MAX_CELL}",
                    place=f"{place}, column {printable(column, 80)}",
                    action="put a long list of values below each other, one line for each",
                )
        yield Line(number=number, cells=tuple(cell.strip() for cell in cells))


def rows(source: SourceFile, *, missing: Collection[str] = ()) -> Iterator[TableRow]:
    """The lines of a table source by column name."""
    index = {column: at for at, column in enumerate(source.columns)}
    for line in source.lines:
        yield TableRow(source.name, line.number, index, line.cells, missing)


def plain_number(text: str) -> str:
    """A number written one way, so that 100.000000 and 100 are the same; other text as it is."""
    return f"{float(text):.12g}" if _NUMBER.fullmatch(text) else text


def json_number(value: object, place: str, name: str) -> float:
    """A number of a JSON file, within the bounds of a cell; name: of the figure.  SpecError."""
    cell = TableCell(str(value), place, 1, name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise cell.wrong("a number")
    return cell.number()
