# SPDX-License-Identifier: GPL-2.0-or-later
"""Strict, bounded reading of files that strangers wrote; errors name file, line and column."""

from __future__ import annotations

import csv
import hashlib
import io
import math
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kdelta.errors import SpecError
from kdelta.foreign import aggregates, layout, marked, shapes
from kdelta.foreign.numerals import PLAIN
from kdelta.foreign.plain_tables import Plain
from kdelta.foreign.record import Line, SourceFile
from kdelta.printable import printable, quoted

MAX_BYTES = 64 * 2**20
MAX_LINES = 2_000_000
MAX_COLUMNS = 500
MAX_CELL = 65536
_LOOKED_AT = 65536  # characters that tell the delimiter
_TITLES = 20  # lines that do
_DELIMITERS = ("\t", ";", ",", "|")
BLANKS = "blanks"  # the delimiter of a table that is aligned for the eye
# Sums of squares of larger figures are no longer finite, and nothing that is measured is as large.
_LARGEST = 1e30
_SMALLEST = 1e-30  # but zero: of quotients of smaller ones nothing is left
_NUMBER = re.compile(PLAIN, re.ASCII)
_BOUND = re.compile(r"(?:[<>]=?|\u2264|\u2265)\s*\d.*")  # >10s
_INTEGER = re.compile(r"\d{1,15}", re.ASCII)
_IN_QUOTES = re.compile(r"(?<!\S)\"(?P<inner>(?:\S(?:[^\"]*[^\"\s])?)?)\"(?!\S)")
_CELL = re.compile(rf"{_IN_QUOTES.pattern}|\S+")
_SEPARATOR = re.compile(r"sep=(?P<mark>[,;|\t])\r?\n")  # as spreadsheets write before the head
_BOLD = re.compile(r"(?P<mark>\*\*|`)(?P<text>[^*`]+)(?P=mark)")
_SIGN = re.compile(
    "\\A\\s*[\U0001f300-\U0001faff\u2600-\u27bf\ufe0f]+\\s+(?=\\S)"
)  # a red dot before -3 %
_SEPARATED = (".csv", ".tsv", ".psv", ".tab")
_BETWEEN_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_WIDE = re.compile(r"\S\s{2,}\S")
_LIST = re.compile(r"[;|\s]+|,\s*")


@dataclass(frozen=True, slots=True)
class TableCell:
    """One cell with the place to name in an error; decimal: the sign before its decimals."""

    text: str
    source: str
    line: int
    column: str
    decimal: str = "."

    def number(self) -> float:
        """The finite decimal number it holds.  Raises SpecError."""
        text = self.text.replace(",", ".") if self.decimal == "," else self.text
        if _BOUND.fullmatch(self.text):
            raise SpecError(
                f"{quoted(self.text)} is a bound and no value: how long the run took is not known",
                place=f"{self.source}: line {self.line}, column {printable(self.column, 80)}",
                action="leave the cell empty, so that the run counts as failed, or measure it",
            )
        found = float(text) if _NUMBER.fullmatch(text) else math.nan
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
        return int(self.text)

    def numbers(self) -> tuple[float, ...]:
        """The numbers it lists, separated by blanks, semicolons, bars or commas, at least one."""
        text = self.text.strip("[](){} ")
        split = re.compile(r"[;|\s]+") if self.decimal == "," else _LIST
        parts = [part for part in split.split(text) if part]
        if not parts:
            raise self.wrong("a list of numbers")
        return tuple(
            TableCell(part, self.source, self.line, self.column, self.decimal).number()
            for part in parts
        )

    def wrong(self, wanted: str) -> SpecError:
        """The error that this cell is not what was wanted."""
        return SpecError(
            f"{quoted(self.text)} is not {wanted}",
            place=f"{self.source}: line {self.line}, column {printable(self.column, 80)}",
            action="correct the file, or import the others without it",
        )


@dataclass(frozen=True, slots=True)
class TableRow:
    """One line of a table by the names of its columns."""

    source: str
    line: int
    index: Mapping[str, int]
    cells: tuple[str, ...]
    decimal: str = "."
    missing: Collection[str] = ()

    def __contains__(self, column: str) -> bool:
        return column in self.index

    def __getitem__(self, column: str) -> TableCell:
        text = self.cells[self.index[column]]
        return TableCell(
            "" if text in self.missing else text, self.source, self.line, column, self.decimal
        )

    def text(self, *columns: str | None) -> str:
        """The cell of the first of these columns that the table has; "" without one."""
        return next(
            (self[column].text for column in columns if column and column in self.index), ""
        )


def load(path: Path, name: str) -> tuple[bytes, SourceFile]:
    """A file's content and its SourceFile without lines.  Raises SpecError."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise SpecError(
                "it is no plain file", place=name, action="copy what it holds into a file"
            )
        with path.open("rb") as stream:
            before = os.fstat(stream.fileno())
            data = stream.read(MAX_BYTES + 1)
            after = os.fstat(stream.fileno())
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise SpecError(f"it cannot be read: {why}", place=name, action="check the path") from error
    if len(data) > MAX_BYTES:
        raise SpecError(
            f"it is larger than {MAX_BYTES // 2**20} MiB", place=name, action="import a part of it"
        )
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise changed(name)
    return data, SourceFile(name=name, sha256=hashlib.sha256(data).hexdigest(), size=len(data))


def changed(name: str) -> SpecError:
    """The error of a file that somebody writes while it is imported."""
    return SpecError(
        "it changed while it was read", place=name, action="import it when it is written"
    )


def delimiter_of(text: str, suffix: str) -> str:
    """What separates the cells of a table: what cuts its first lines alike, and its head most."""
    if marked := _SEPARATOR.match(text):
        return marked["mark"]
    lines = [line for line in text[:_LOOKED_AT].splitlines() if line.strip(" #\t")]
    if all("," not in _BETWEEN_THOUSANDS.sub("", line) and _WIDE.search(line) for line in lines):
        lines = [_BETWEEN_THOUSANDS.sub("", line) for line in lines]  # 3,733,815   3,796,993
    plain = [line for line in lines if not line.lstrip().startswith("#")]
    if len(plain) > 1 and not any(each in line for line in plain for each in _DELIMITERS):
        lines = plain  # a comma in a remark cuts nothing
    # A title above the head may hold a comma; the lines below it do not lie.
    head = next((line for line in lines if _cuts(lines, line)), lines[0] if lines else "")
    if suffix == ".tsv" and "\t" in head:
        return "\t"
    counts = {each: head.count(each) for each in _DELIMITERS}
    best = max(counts, key=lambda each: counts[each])
    if counts[best]:
        return best
    return BLANKS if suffix not in (".csv", ".tsv") and len(head.split()) > 1 else ","


def _cuts(lines: Sequence[str], head: str) -> bool:
    """True when another of the first lines is cut by one sign as often as this one."""
    counts = [(each, head.count(each)) for each in _DELIMITERS if each in head]
    return any(
        line.count(each) == count
        for each, count in counts
        for line in lines[:_TITLES]
        if line is not head
    )


def table(text: str, name: str, delimiter: str) -> Plain:
    """Columns and lines of a table with a head line, as plain as they can be had.

    Lines that begin with # are left out.  Raises SpecError with file, line and column.
    """
    # An empty line in its place keeps the numbers of the lines.
    bare = _SEPARATOR.sub("\n", text, count=1)
    rows_ = list(_rows(bare, name, delimiter))
    rows_ = shapes.indexed(rows_) if delimiter == BLANKS else rows_
    found, doubts = shapes.headed(layout.trimmed(rows_))
    number, head = found[0] if found else (1, [])
    if len(found) > 1 and layout.headless([cell.strip() for cell in head]):
        found, head = shapes.bare(found), shapes.bare(found)[0][1]
        doubts = (*doubts, shapes.BARE)
    columns = _columns(head, f"{name}: line {number}")
    lines = tuple(_lines(iter(found[1:]), columns, name, blanks=delimiter == BLANKS))
    shown = layout.plain(*shapes.runs_below(columns, lines))
    shown = marked.plain(replace(shown, doubts=(*doubts, *shown.doubts)))
    return aggregates.apart(shown)


def _rows(text: str, name: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of all lines that hold cells; the head line may follow a #."""
    started = False
    first = next((line for line in text.splitlines() if line.strip()), "").strip()
    framed = delimiter == "|" and first.startswith("|") and first.endswith("|")
    below: list[str] | None = None
    if first.startswith("#"):
        cut = (row for _, row in _cut(text, name, delimiter))
        filled = (row for row in cut if any(cell.strip() for cell in row))
        below = next((row for row in filled if not row[0].lstrip().startswith("#")), None)
    for number, raw in _cut(text, name, delimiter):
        if not any(cell.strip() for cell in raw) and (delimiter == BLANKS or len(raw) < 2):
            continue
        marked = raw[0].lstrip().startswith("#")
        if marked and (started or len(raw) < 2 or not _heads(raw, below, delimiter)):
            continue
        cells = _unmarked(raw, delimiter) if marked else raw
        if framed:
            cells = _inner(cells)
        if cells:
            started = True
            yield number, cells


def _heads(cells: list[str], below: list[str] | None, delimiter: str) -> bool:
    """False for a remark: the first line without a # is as wide, or wider, and itself a head line.

    What has figures in the line below it is a head line: # kernel ns.
    """
    if below and delimiter == BLANKS and len(_unmarked(cells, delimiter)) > len(below) + 1:
        return False  # words above a table that is not as wide
    if below is None or any(_NUMBER.fullmatch(cell.strip()) for cell in below):
        return True
    return len(_unmarked(cells, delimiter)) > len(below)


def _unmarked(cells: list[str], delimiter: str) -> list[str]:
    """A head line without the # before it; a column may be called # itself."""
    first = cells[0].lstrip().lstrip("#")
    if first.strip():
        return [first, *cells[1:]]
    return cells[1:] if delimiter == BLANKS else cells


def _inner(cells: list[str]) -> list[str]:
    """A line of a table as web pages have it, | a | b |; of the rule below the head nothing."""
    inner = [_SIGN.sub("", _BOLD.sub(r"\g<text>", cell)).strip() for cell in cells[1:-1]]
    rule = all(cell.strip() and set(cell.strip()) <= set("-:+") for cell in inner)
    return [] if rule else inner


def _cut(text: str, name: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    if delimiter == BLANKS:
        # Two blanks separate columns whose cells hold one blank themselves.
        lines = [line for line in text.splitlines() if line.strip()]
        titles = next((at for at, line in enumerate(lines[:_TITLES]) if _WIDE.search(line)), 0)
        lines = lines[titles:] if len(lines) > titles + 2 else lines
        wide = all(_WIDE.search(line) for line in lines)
        cut = re.compile(r"\s{2,}" if wide and not _narrow(lines) else r"\s+")
        cells = [line for line in lines if '"' in line]
        quoted = bool(cells) and not any('"' in _IN_QUOTES.sub("", line) for line in cells)
        for number, line in enumerate(text.splitlines(), start=1):
            yield number, _unquoted(line) if quoted else cut.split(line.strip())
        return
    limit = csv.field_size_limit(MAX_BYTES)
    begun = 1
    try:
        first = next((line.strip() for line in text.splitlines() if line.strip()), "")
        mark = "'" if len(first) > 1 and first[0] == first[-1] == "'" else '"'
        stream = io.StringIO(text, newline="")
        reader = csv.reader(stream, delimiter=delimiter, quotechar=mark, strict=True)
        for cells in reader:
            yield reader.line_num, cells
            begun = reader.line_num + 1
    except csv.Error as error:
        unclosed = "unexpected end" in str(error)
        what = "a quote is opened and never closed" if unclosed else str(error)
        raise SpecError(
            f"not a table: {what}",
            place=f"{name}: line {begun if unclosed else reader.line_num}",
            action="close it, or take it out" if unclosed else "correct the line",
        ) from error
    finally:
        csv.field_size_limit(limit)


def _unquoted(line: str) -> list[str]:
    """The cells of a line with blanks between them, some in quotes, as R's write.table has them."""
    found = _CELL.finditer(line)
    return [cut["inner"] if cut["inner"] is not None else cut[0] for cut in found]


def _narrow(lines: Sequence[str]) -> bool:
    """True where one blank separates cells, too: only so all rows are as wide as the head line.

    R and pandas print the names of columns right above figures, and number the rows.
    """
    wide, narrow = (
        [len(cut.split(line.strip())) for line in lines]
        for cut in (re.compile(r"\s{2,}"), re.compile(r"\s+"))
    )
    alike = len(set(narrow[1:])) == 1 and narrow[0] in (narrow[1], narrow[1] - 1)
    return len(lines) > 2 and len(set(wide)) > 1 and alike


def _columns(head: list[str], place: str) -> tuple[str, ...]:
    if not any(cell.strip() for cell in head):
        cause = "there is no head line" if head else "there is no head line: the file is empty"
        raise SpecError(cause, place=place, action="name the columns in line 1")
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
    found: Iterator[tuple[int, list[str]]], columns: tuple[str, ...], name: str, *, blanks: bool
) -> Iterator[Line]:
    for count, (number, cells) in enumerate(found):
        place = f"{name}: line {number}"
        if count >= MAX_LINES:
            raise SpecError(
                f"more than {MAX_LINES} lines", place=place, action="import a part of it"
            )
        if len(cells) != len(columns):
            action = "quote cells that hold the separator, and fill those that are missing"
            if blanks or not name.lower().endswith(_SEPARATED):
                action = "if it is no table, put what was measured into one: kernel,boot,ns"
            raise SpecError(
                f"{len(cells)} cells where the head has {len(columns)}",
                place=f"{place}, column {columns[min(len(cells), len(columns) - 1)]}",
                action=action,
            )
        if count and cells != list(columns) and _begins(cells, columns):
            raise SpecError(
                f"another table begins: {quoted(', '.join(map(str.strip, cells)))}",
                place=place,
                action="put each table into a file of its own",
            )
        for column, cell in zip(columns, cells, strict=True):
            if len(cell) > MAX_CELL:
                raise SpecError(
                    f"{len(cell)} characters, more than {MAX_CELL}",
                    place=f"{place}, column {column}",
                    action="put a long list of values below each other, one line for each",
                )
        yield Line(number=number, cells=tuple(cell.strip() for cell in cells))


def _begins(cells: Sequence[str], columns: Sequence[str]) -> bool:
    """True for the head line of another table: its first cell is called as the first column is."""
    named = [cell.strip() for cell in cells]
    figures = any(_NUMBER.fullmatch(cell) for cell in named)
    return len(named) > 1 and named[0] == columns[0] and all(named) and not figures


def rows(
    source: SourceFile, *, decimal: str = ".", missing: Collection[str] = ()
) -> Iterator[TableRow]:
    """The lines of a table source by column name."""
    index = {column: at for at, column in enumerate(source.columns)}
    for line in source.lines:
        yield TableRow(source.name, line.number, index, line.cells, decimal, missing)


def plain_number(text: str) -> str:
    """A number written one way, so that 100.000000 and 100 are the same state; other text as is."""
    return f"{float(text):.12g}" if _NUMBER.fullmatch(text) else text
