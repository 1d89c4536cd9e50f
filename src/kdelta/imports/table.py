# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables: CSV, TSV or JSON lines with one head line and strict cells, read by a mapping.

Lines that begin with { are JSON, a head line with a tab is TSV.  Errors name file, line, column.
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from collections.abc import Mapping as Dictionary
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from kdelta.archive.apt import Progress
from kdelta.errors import SpecError
from kdelta.imports.files import parsed_json
from kdelta.imports.mapping import Figures, Mapping, MetricKeys, direction, toml_text
from kdelta.imports.record import (
    ArmFacts,
    Contents,
    ImportReading,
    Line,
    Pairs,
    Published,
    Roles,
    SourceFile,
    audited,
)
from kdelta.metric import Assume, Better, Metric, ReplicateUnit
from kdelta.printable import few, known, meant, printable, quoted

# ---- figures are collected, and directions settled -----------------------------------------------

Sources = Sequence[tuple[int, SourceFile]]  # with the number of each
Labels = Dictionary[int, str]  # of each source, what names its arm where nothing in it does


@dataclass(slots=True)
class Collected:
    """The figures that were read so far; skipped: metrics that nothing gives a direction."""

    mapping: Mapping | None
    metrics: dict[str, Metric] = field(default_factory=dict)
    skipped: dict[str, None] = field(default_factory=dict)
    readings: list[ImportReading] = field(default_factory=list)
    published: list[Published] = field(default_factory=list)
    counts: Counter[tuple[str, Pairs, str]] = field(default_factory=Counter)

    def judged(
        self,
        name: str,
        unit: str,
        better: Better | None,
        place: str,
        assume: Assume = Assume.NOTHING,
    ) -> bool:
        """True for a metric with a direction: the mapping's, else better.  Raises SpecError."""
        keys = (self.mapping.metrics.get(name) if self.mapping else None) or MetricKeys(
            assume=assume
        )
        better = direction(keys.better) if keys.better else better
        if better is None:
            self.skipped[name] = None
            return False
        found = Metric(name=name, unit=keys.unit or unit, better=better, assume=keys.assume)
        before = self.metrics.setdefault(name, found)
        if before != found:
            units = f"{quoted(found.unit)} here and in {quoted(before.unit)} above"
            cause = f"{printable(name, 60)} is in {units}"
            raise SpecError(cause, place=place, action="import what was measured in one unit")
        return True

    def value(
        self,
        source: int,
        line: int,
        arm: str,
        metric: str,
        value: float | None,
        replicate: str = "",
        **more: Any,
    ) -> None:
        """Keep a value of a replicate, else of the next of its arm; more: fields of a reading."""
        if len(self.readings) >= MAX_VALUES:
            action = "import a part of it"
            raise SpecError(f"more than {MAX_VALUES} values", place=f"line {line}", action=action)
        key = (arm, more.get("group", ()), metric)
        self.counts[key] += 1
        fields = {"round": self.counts[key]} | more
        self.readings.append(
            ImportReading(
                source=source,
                line=line,
                arm=arm,
                metric=metric,
                value=value,
                replicate=f"{arm} {replicate or f'r{self.counts[key]}'}",
                **fields,
            )
        )

    def summary(self, source: int, line: int, arm: str, metric: str, **more: Any) -> None:
        """Keep what somebody computed; more: other fields of `Published`."""
        said = Published(source=source, line=line, arm=arm, metric=metric, **more)
        self.published.append(said)

    def contents(self, replicate: ReplicateUnit | None, **more: Any) -> Contents:
        """All of it; more: other fields of contents.  Raises SpecError for a mapping's typo."""
        names = [*self.metrics, *self.skipped]
        for name in self.mapping.metrics if self.mapping else ():
            if name not in names:
                cause = f"the mapping names the metric {quoted(name)}, and nothing has it"
                action = known(name, (printable(one, 60) for one in names[:20]))
                raise SpecError(cause, place="--mapping", action=action)
        notes = []
        if names := [printable(name, 60) for name in self.skipped]:
            line = f'[metrics."{names[0]}"] better = "less"'
            told = f"not judged, no direction is declared: {few(names, 5)}"
            notes.append(f"{told}; a mapping can, as in {line}")
        figures: list[ImportReading | Published] = [*self.readings, *self.published]
        arms = dict.fromkeys((item.arm, item.group) for item in figures)
        found = Contents(
            metrics=tuple(self.metrics.values()),
            readings=tuple(self.readings),
            published=tuple(self.published),
            arms=tuple(ArmFacts(arm=arm, group=g, replicate=replicate) for arm, g in arms),
            notes=tuple(notes),
        )
        return replace(found, **more)


def one_table(sources: Sources) -> tuple[int, SourceFile]:
    """The only source.  Raises SpecError for several: their arms have no common order."""
    if len(sources) > 1:
        cause = "it is one of several tables"
        raise SpecError(cause, place=sources[1][1].name, action="import one")
    return sources[0]


# ---- cells and rows ------------------------------------------------------------------------------


MAX_VALUES = 500_000  # and lines
MAX_CELLS = 6_000_000
_TOLD = 10_000  # of them, between two times when the user sees how many there were
MAX_LINE = 4 << 20
MAX_COLUMNS = 500
MAX_CELL = 65536
# Sums of squares of larger figures are no longer finite, and nothing that is measured is as large.
_LARGEST = 1e30
_EXACT = 2.0**53  # up to here a float holds every whole number
_SMALLEST = 1e-30  # but zero: of quotients of smaller ones nothing is left
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,4})?", re.ASCII)
_INTEGER = re.compile(r"\d{1,15}(?:\.0+)?", re.ASCII)  # some write a count as 9.0
_LIST = re.compile(r"[;|,\s]+")
# Beside a blank or a semicolon, a comma within digits is that of a decimal or of thousands.
_WITHIN = re.compile(r"\d,\d")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_ROLES = ("old", "new", "control")


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

    def parts(self) -> tuple[str, ...]:
        """What it lists, separated by blanks, semicolons, bars or commas, at least one."""
        parts = tuple(part for part in _LIST.split(self.text) if part)
        if not parts or (_WITHIN.search(self.text) and re.search(r"[;|\s]", self.text)):
            raise self.wrong("a list of numbers with one separator")
        return parts

    def wrong(self, wanted: str) -> SpecError:
        """The error that this cell is not what was wanted."""
        place = f"{self.source}: line {self.line}, column {printable(self.column, 80)}"
        action = "correct the cell, or import the other rows without it"
        return SpecError(f"{quoted(self.text)} is not {wanted}", place=place, action=action)


@dataclass(frozen=True, slots=True)
class TableRow:
    """One line of a table by the names of its columns; missing: cells that say nothing."""

    source: str
    line: int
    index: Dictionary[str, int]
    cells: tuple[str, ...]
    missing: Collection[str] = ()

    def __getitem__(self, column: str) -> TableCell:
        text = self.cells[self.index[column]]
        return TableCell("" if text in self.missing else text, self.source, self.line, column)

    def text(self, column: str | None) -> str:
        """The cell of a column that the table has; "" for None."""
        return self[column].text if column else ""


def table(source: SourceFile, progress: Progress | None = None) -> SourceFile:
    """The source with columns and lines in place of its text.  Raises SpecError."""
    name, text = source.name, source.text
    rows_ = _objects(text, name) if text.lstrip()[:1] == "{" else _cut(text, name)
    number, head = next(rows_, (1, []))
    if len(head) == 1 and text.lstrip()[:1] != "{":
        cause = f"the head line has one column, {quoted(head[0])}"
        action = "name the columns in line 1, and separate the cells by commas or tabs"
        raise SpecError(cause, place=f"{name}: line {number}", action=action)
    columns = _columns(head, f"{name}: line {number}")
    lines, whole = [], text.count("\n") + 1
    for line in _lines(rows_, columns, name):
        lines.append(line)
        if progress and len(lines) % _TOLD == 0:
            progress(f"reading {name}", 100 * len(lines) / whole)
    if not lines:
        raise SpecError("there is no row below the head line", place=name, action="add the rows")
    return replace(source, columns=columns, lines=tuple(lines), text="")


def _cut(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    head = next((match[0] for match in _LINE.finditer(text) if match[0].strip()), "")
    limit = csv.field_size_limit(MAX_LINE)
    begun = 1
    reader = csv.reader(_physical(text, name), delimiter="\t" if "\t" in head else ",", strict=True)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, cells
            begun = reader.line_num + 1
    except csv.Error as error:
        unclosed = "unexpected end" in str(error)
        what = "a quote is opened and never closed" if unclosed else str(error)
        place = f"{name}: line {begun if unclosed else reader.line_num}"
        raise SpecError(f"not a table: {what}", place=place, action="correct the line") from error
    finally:
        csv.field_size_limit(limit)


def _physical(text: str, name: str) -> Iterator[str]:
    for at, match in enumerate(_LINE.finditer(text), start=1):
        if at > MAX_VALUES or len(match[0]) > MAX_LINE:
            cause = f"more than {MAX_VALUES} lines, or than {MAX_LINE >> 20} MiB in one"
            raise SpecError(cause, place=f"{name}: line {at}", action="import a part of it")
        yield match[0]


def _objects(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """The names of the first object, then the cells of every object, which has the same names."""
    columns: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):  # text in JSON may hold others
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
            cause = f"it has other names than the first object: {names}"
            action = "give every object the same names; null says that a value is missing"
            raise SpecError(cause, place=place, action=action)
        yield number, [_plain(found[column], f"{place}, {column}") for column in columns]


def _plain(value: object, place: str) -> str:
    if isinstance(value, dict | list):
        cause = "a value holds other values"
        raise SpecError(cause, place=place, action="write text, numbers or null")
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _columns(head: list[str], place: str) -> tuple[str, ...]:
    if not any(cell.strip() for cell in head):
        raise SpecError("there is no head line", place=place, action="name the columns in line 1")
    if len(head) > MAX_COLUMNS:
        cause = f"{len(head)} columns, more than {MAX_COLUMNS}"
        action = "put values below each other: a line for each, and a column for the arm"
        raise SpecError(cause, place=f"{place}, column {MAX_COLUMNS + 1}", action=action)
    columns = tuple(cell.strip() for cell in head)
    for at, column in enumerate(columns):
        cause, action = "a column has no name", "name it"
        if column in columns[:at]:
            cause, action = f"two columns are called {quoted(column)}", "rename one of them"
        elif len(column) > 200:
            cause, action = "the name of a column is longer than 200 characters", "cut it"
        elif column:
            continue
        raise SpecError(cause, place=f"{place}, column {at + 1}", action=action)
    return columns


def _lines(
    found: Iterator[tuple[int, list[str]]], columns: tuple[str, ...], name: str
) -> Iterator[Line]:
    most = min(MAX_VALUES, MAX_CELLS // len(columns))
    for count, (number, cells) in enumerate(found):
        place = f"{name}: line {number}"
        if count >= most:
            cause = f"more than {most} lines of {len(columns)} columns"
            raise SpecError(cause, place=place, action="import a part of it")
        if len(cells) != len(columns):
            at = columns[min(len(cells), len(columns) - 1)]
            cause = f"{len(cells)} cells where the head has {len(columns)}"
            action = "put one table into a file, a cell for each column, and quote separators"
            raise SpecError(cause, place=f"{place}, column {printable(at, 80)}", action=action)
        for column, cell in zip(columns, cells, strict=True):
            if len(cell) > MAX_CELL:
                cause = f"{len(cell)} characters, more than {MAX_CELL}"
                place = f"{place}, column {printable(column, 80)}"
                action = "put a long list of values below each other, one line for each"
                raise SpecError(cause, place=place, action=action)
        line = Line(number=number, cells=tuple(cell.strip() for cell in cells))
        if line.cells == columns:
            raise SpecError("the head line again", place=place, action="put one table into a file")
        yield line


def rows(source: SourceFile, *, missing: Collection[str] = ()) -> Iterator[TableRow]:
    """The lines of a table source by column name."""
    index = {column: at for at, column in enumerate(source.columns)}
    for line in source.lines:
        yield TableRow(source.name, line.number, index, line.cells, missing)


def plain_number(text: str) -> str:
    """A number written one way, so that 100.000000 and 100 are the same; other text as it is."""
    if not _NUMBER.fullmatch(text):
        return text
    found = float(text)
    exact = found.is_integer() and abs(found) < _EXACT
    return str(int(found)) if exact else f"{found:.12g}"


def json_number(value: object, place: str, name: str) -> float:
    """A number of a JSON file, within the bounds of a cell; name: of the figure.  SpecError."""
    cell = TableCell(str(value), place, 1, name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise cell.wrong("a number")
    return cell.number()


_Key = tuple[str, Pairs, str]  # arm, setting, metric or field


@dataclass(slots=True, kw_only=True)
class _Rows(Collected):
    """What has been read of a table so far; place, failure: of its row."""

    number: int
    mapping: Mapping
    row: TableRow
    place: int | None = None
    failure: str = ""
    states: dict[_Key, set[str]] = field(default_factory=dict)
    facts: dict[tuple[str, Pairs], dict[str, str]] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    summarised: set[_Key] = field(default_factory=set)

    def arms(self) -> list[str]:
        """Every arm, in the order of the table."""
        figures: list[ImportReading | Published] = [*self.readings, *self.published]
        return list(dict.fromkeys([*(one.arm for one in figures), *(key[0] for key in self.facts)]))


def read(number: int, source: SourceFile, mapping: Mapping) -> Contents:
    """What a table says by its mapping; number: its place.  Raises SpecError."""
    _check_columns(source, mapping)
    found = list(rows(source, missing=frozenset(mapping.missing)))
    for column, good in mapping.good_cells():  # none at all: mistyped, not all runs bad
        cells = dict.fromkeys(row.text(column) for row in found)
        if not set(map(plain_number, good)) & set(map(plain_number, cells)):
            near = next((one for one in cells if one.casefold() == good[0].casefold()), "")
            wanted = " or ".join(map(quoted, good))
            cause = f"no cell of {quoted(column)} is {wanted}, as [success] says"
            action = f"did you mean {toml_text(near)}? " if near else ""
            action += f"the cells are {', '.join(quoted(one) for one in list(cells)[:5])}"
            raise SpecError(cause, place=source.name, action=action)
    places = _places(found, mapping.columns.position)
    kept = _Rows(number=number, mapping=mapping, row=found[0])
    for at, row in enumerate(found):
        _row(kept, row, places[at] if places else None)
    roles = _roles(kept, source.name)
    names, order = kept.arms(), mapping.order
    if order and (left := [arm for arm in names if arm not in order]):
        cause = f"the order of the mapping does not name {_listed(left[:5])}"
        action = "name every arm in order, oldest first"
        raise SpecError(cause, place=source.name, action=action)
    shared = ArmFacts(
        arm="", group=(), replicate=mapping.unit_of_replicate, planned=mapping.planned
    )
    arms = (
        replace(shared, arm=arm, group=group, facts=tuple((mapping.facts | own).items()))
        for (arm, group), own in kept.facts.items()
    )
    return Contents(
        metrics=tuple(kept.metrics.values()),
        readings=tuple(kept.readings),
        published=tuple(kept.published),
        audited=audited(kept.states),
        arms=tuple(arms),
        order=order,
        roles=roles,
    )


def _check_columns(source: SourceFile, mapping: Mapping) -> None:
    """Raise SpecError for a column that is in the mapping or the table and not in the other."""
    named, columns = dict.fromkeys(mapping.named()), source.columns
    place = f"{source.name}: line 1"
    for column in named:
        if column not in columns:
            cause = f"there is no column {quoted(column)}, which the mapping names"
            action = f"{meant(column, columns)}the columns are {_listed(columns[:20])}"
            raise SpecError(cause, place=place, action=action)
    if left := [column for column in columns if column not in named]:
        are, each = ("is", "it") if len(left) == 1 else ("are", "each")
        cause = f"the mapping does not say what {_listed(left[:20])} {are}"
        action = f"map {each}, or write ignore = [{', '.join(map(toml_text, left[:20]))}]"
        raise SpecError(cause, place=place, action=action)


def check_names(mapping: Mapping, sources: Sequence[SourceFile]) -> None:
    """Raise SpecError for a metric of the mapping that no row of its tables names."""
    column = mapping.columns.metric
    if column is None:
        return
    there = dict.fromkeys(row[column].text for source in sources for row in rows(source))
    parts = {"[metrics]": mapping.metrics, "skip": mapping.skip, "states": mapping.states}
    for key, names in parts.items():
        for name in names:
            if name != "*" and name not in there:
                cause = f"{key} names {quoted(name)}, and no row has it as its metric"
                action = known(name, (printable(one, 60) for one in list(there)[:20]))
                raise SpecError(cause, place=sources[0].name, action=action)


def _moments(cells: Sequence[TableCell]) -> list[float] | None:
    """Seconds of ISO dates or times, all with a zone or all without; None: there is other text."""
    try:
        times = [datetime.fromisoformat(cell.text) for cell in cells]
    except ValueError:
        return None
    for cell, time in zip(cells, times, strict=True):
        if (time.tzinfo is None) != (times[0].tzinfo is None):
            raise cell.wrong("a time with a zone, as all or none must be")
    return [time.replace(tzinfo=time.tzinfo or UTC).timestamp() for time in times]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(printable(name, 60) for name in names)


def _places(found: Sequence[TableRow], column: str | None) -> list[int] | None:
    """The rank of each row in the order of execution; rows of one place keep their order."""
    if column is None:
        return None
    cells = [row[column] for row in found]
    keys = _moments(cells) or [cell.number() for cell in cells]
    if len(set(keys)) == 1 < len(keys):
        cause = f"column {quoted(column)} is the same in every row, so it tells no order"
        action = f"write ignore = [{toml_text(column)}]"
        raise SpecError(cause, place=cells[0].source, action=action)
    places = [0] * len(found)
    for rank, at in enumerate(sorted(range(len(found)), key=keys.__getitem__)):
        places[at] = rank
    return places


def _row(kept: _Rows, row: TableRow, place: int | None) -> None:
    mapping = kept.mapping
    group = tuple((name, text) for name in mapping.columns.dimensions if (text := row.text(name)))
    kept.row, kept.place, kept.failure = row, place, failure_of(row, mapping)
    if mapping.arms:
        for arm, figures in mapping.figures_of_arms():
            _arm(kept, (arm, group))
            _named(kept, (arm, group), figures)
        return
    key = (_arm_of(kept, row), group)
    _arm(kept, key)
    if mapping.columns.measured:
        _named(kept, key, mapping.columns)
        return
    for name, keys in mapping.metrics.items():
        _figures(kept, (*key, name), keys)


def _arm_of(kept: _Rows, row: TableRow) -> str:
    """The arm of a row; the old arm measured again has a name of its own."""
    columns = kept.mapping.columns
    cell = row[str(columns.arm)]
    if not cell.text:
        raise cell.wrong("the name of an arm")
    if columns.role is None:
        return cell.text
    role = row[columns.role]
    if role.text not in _ROLES:
        raise role.wrong('a role: "old", "new" or "control"')
    arm = f"{cell.text} again" if role.text == "control" else cell.text
    if kept.roles.setdefault(arm, role.text) != role.text:
        raise role.wrong(f"the role of {printable(arm, 60)} in the rows above")
    return arm


def _arm(kept: _Rows, key: tuple[str, Pairs]) -> None:
    mapping, row = kept.mapping, kept.row
    facts = kept.facts.setdefault(key, {})
    for fact, column in mapping.read_back.items():
        text = row.text(column)
        if text and facts.setdefault(fact, text) != text:
            raise row[column].wrong(f"the {fact} of {printable(key[0], 60)} in the rows above")
    if not kept.failure:
        for column in mapping.columns.state:
            _state(kept, (*key, column), row.text(column))


def _state(kept: _Rows, key: _Key, text: str) -> None:
    if text:
        kept.states.setdefault(key, set()).add(plain_number(text))


def failure_of(row: TableRow, mapping: Mapping) -> str:
    """Why a run does not count; "" for one that does."""
    for column, good in mapping.good_cells():
        text = row.text(column)
        if plain_number(text) not in set(map(plain_number, good)):
            return row.text(mapping.columns.reason) or f"{column} is {text or 'empty'}"
    return ""


def _named(kept: _Rows, key: tuple[str, Pairs], figures: Figures) -> None:
    """The figures of a row whose metric a column names, or that is the only one."""
    mapping, row, column = kept.mapping, kept.row, kept.mapping.columns.metric
    if column is None:
        (name,) = mapping.metrics
    else:
        name = row[column].text
        if not name:
            raise row[column].wrong("the name of a metric")
        if name in mapping.skip:
            return
        if name in mapping.states or "*" in mapping.states:
            if not kept.failure:
                _state_of(kept, (*key, name), figures)
            return
        declared = mapping.better and (mapping.unit or mapping.columns.unit)
        if name not in mapping.metrics and not declared:
            part = f"[metrics.{toml_text(name)}]"
            place = f"{row.source}: line {row.line}, column {printable(column, 80)}"
            action = f"write {part} with unit and better, or name it in skip or states"
            raise SpecError(
                f"the mapping does not say what {quoted(name)} is", place=place, action=action
            )
    _figures(kept, (*key, name), figures)


def _state_of(kept: _Rows, key: _Key, figures: Figures) -> None:
    row, several = kept.row, figures.values or ()
    if column := figures.value or figures.mean or figures.median:
        _state(kept, key, row.text(column))
        return
    for column in (several,) if isinstance(several, str) else several:
        for text in row[column].parts():
            _state(kept, key, text)


def _figures(kept: _Rows, key: _Key, figures: Figures) -> None:
    row, columns, name = kept.row, kept.mapping.columns, key[2]
    metric = kept.mapping.metric(name, row.text(columns.unit))
    if not metric.unit:
        raise row[str(columns.unit)].wrong(f"the unit of {printable(name, 60)}")
    if kept.metrics.setdefault(name, metric) != metric:
        held = kept.metrics[name].unit
        raise row[str(columns.unit)].wrong(f"the unit of {printable(name, 60)} above, {held}")
    said = _published(kept, key, figures)
    if said:
        if key in kept.summarised:
            cause = f"a second summary of {printable(name, 60)} for {printable(key[0], 60)}"
            action = "name the column that tells them apart in dimensions"
            raise SpecError(cause, place=f"{row.source}: line {row.line}", action=action)
        kept.summarised.add(key)
        kept.published.append(said)
    boot, turn = row.text(columns.boot), row.text(columns.round)
    of_boots = kept.mapping.unit_of_replicate is ReplicateUnit.BOOT
    more: dict[str, Any] = {"group": key[1], "position": kept.place, "run": row.text(columns.run)}
    more |= {"round": int(turn)} if turn.isdecimal() and len(turn) < 16 else {}
    more |= {} if of_boots else {"boot_id": boot}
    for value, why in _values(row, figures, kept.failure, said):
        if columns.boot and not boot:
            raise row[columns.boot].wrong("the name of a boot")
        replicate = boot if of_boots else ""
        kept.value(kept.number, row.line, key[0], name, value, replicate, failure=why, **more)


def _values(
    row: TableRow, figures: Figures, failure: str, said: Published | None
) -> Iterator[tuple[float | None, str]]:
    """(value, why there is none) of each value that a row holds."""
    if isinstance(figures.values, str):
        cell = row[figures.values]
        parts = cell.parts() if cell.text and not failure else ()
        values = [replace(cell, text=part).number() for part in parts]
        if values and said and said.ok is not None and said.ok != len(values):
            raise cell.wrong(f"a list of {said.ok} values, as the row says")
        yield from ((value, "") for value in values)
        if failure:
            yield None, failure
        return
    for column in (figures.value,) if figures.value else figures.values or ():
        cell = row[column]
        if failure or not cell.text:
            yield None, failure or "no value was written"
        else:
            yield cell.number(), ""


def _published(kept: _Rows, key: _Key, figures: Figures) -> Published | None:
    """What a row says of an arm without showing the values; None: nothing.  Raises SpecError."""
    row, shared = kept.row, kept.mapping.columns
    if not (row.text(figures.mean) or row.text(figures.median)):
        return None
    spread = row.text(figures.cv or figures.cv_percent).removesuffix("%").strip()
    percent = figures.cv is None
    cv = _spread(row, figures.cv or figures.cv_percent)
    return Published(
        source=kept.number,
        line=row.line,
        arm=key[0],
        metric=key[2],
        group=key[1],
        mean=_number(row, figures.mean),
        median=_number(row, figures.median),
        sd=_spread(row, figures.sd),
        cv=cv / 100 if percent and cv is not None else cv,
        cv_digits=len(spread.partition(".")[2]) + 2 * percent if spread else 0,
        ok=_count(row, figures.n or shared.n),
        failed=_count(row, figures.failed or shared.failed),
        failure=kept.failure or row.text(shared.reason),
    )


def _number(row: TableRow, column: str | None) -> float | None:
    text = row.text(column).removesuffix("%").strip()
    return replace(row[column], text=text).number() if column and text else None


def _spread(row: TableRow, column: str | None) -> float | None:
    found = _number(row, column)
    if column and found is not None and found < 0:
        raise row[column].wrong("a spread: zero or more")
    return found


def _count(row: TableRow, column: str | None) -> int | None:
    return row[column].integer() if column and row.text(column) else None


def _roles(kept: _Rows, name: str) -> Roles | None:
    """The roles that a column or the mapping gives.  Raises SpecError for arms not in the table."""
    declared, arms = kept.mapping.declared_roles, kept.arms()
    if declared is None and kept.roles:
        old, new, control = ([a for a, r in kept.roles.items() if r == one] for one in _ROLES)
        for role, own in (("old", old), ("control", control)):
            if len(own) > 1:
                cause = f"several arms have the role {role}: {_listed(own)}"
                raise SpecError(cause, place=name, action="give one arm that role")
        if not (old and new):
            cause = "no arm is old, or none is new"
            raise SpecError(cause, place=name, action="give each arm its role")
        return Roles(old=old[0], new=tuple(new), control=next(iter(control), ""))
    named = (declared.old, *declared.new, declared.control) if declared else ()
    for arm in filter(None, named):
        if arm not in arms:
            cause = f"[roles] names {quoted(arm)}, which is no arm of the table"
            action = f"{meant(arm, arms)}the arms are {_listed(arms[:10])}"
            raise SpecError(cause, place=name, action=action)
    return declared
