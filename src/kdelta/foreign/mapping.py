# SPDX-License-Identifier: GPL-2.0-or-later
"""Any CSV, read by a mapping: a TOML file that says what its columns are (docs/foreign.md)."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from kdelta.errors import SpecError
from kdelta.foreign.points import plain_number
from kdelta.foreign.record import Contents, ForeignReading, Pairs, SourceFile, audited, each_arm
from kdelta.foreign.tables import TableRow, rows
from kdelta.metric import Assume, Better, Metric
from kdelta.printable import quoted
from kdelta.stats.series import ReplicateUnit

_Text = Annotated[str, Meta(min_length=1, max_length=200)]
_Names = Annotated[tuple[_Text, ...], Meta(max_length=50)]


class MetricKeys(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[metrics.NAME]: `column` for a wide table; unit and direction where no column tells."""

    column: _Text | None = None
    unit: _Text | None = None
    better: Better | None = None
    assume: Assume = Assume.NOTHING


class ColumnKeys(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[columns]: the name of the column for each part of a reading."""

    arm: _Text
    metric: _Text | None = None
    value: _Text | None = None
    boot: _Text | None = None
    position: _Text | None = None
    round: _Text | None = None
    run: _Text | None = None
    status: _Text | None = None
    failure: _Text | None = None
    unit: _Text | None = None
    better: _Text | None = None
    group: _Names = ()
    state: _Names = ()


class Mapping(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mapping file."""

    columns: ColumnKeys
    delimiter: Annotated[str, Meta(pattern=r"\A[,;\t|]\Z")] = ","
    replicate: ReplicateUnit = ReplicateUnit.PROCESS_ROUND
    planned: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    ok: _Names = ("ok",)
    facts: dict[_Text, _Text] = {}
    metrics: dict[_Text, MetricKeys] = {}


def parse(text: str, name: str) -> Mapping:
    """The mapping that a TOML file holds.  Raises SpecError naming the key."""
    try:
        found = msgspec.convert(tomllib.loads(text), Mapping)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"not TOML: {error}", place=name) from error
    except msgspec.ValidationError as error:
        raise SpecError(
            str(error).replace("`", ""), place=name, action="see docs/foreign.md"
        ) from error
    columns = found.columns
    wide = [key for key in found.metrics.values() if key.column]
    if bool(columns.metric and columns.value) == bool(wide):
        raise SpecError(
            "either columns.metric and columns.value, or a column in each [metrics.NAME]",
            place=f"{name}: columns",
        )
    return found


def read(sources: Sequence[tuple[int, SourceFile]], mapping: Mapping) -> Contents:
    """The readings of tables with this mapping.  Raises SpecError."""
    readings: list[ForeignReading] = []
    metrics: dict[str, Metric] = {}
    states: dict[tuple[str, Pairs, str], set[str]] = {}
    counts: Counter[tuple[str, Pairs, str]] = Counter()
    for number, source in sources:
        _check_columns(source, mapping)
        for row in rows(source):
            arm, group = _arm(row, mapping), _group(row, mapping)
            for field in mapping.columns.state:
                if text := row[field].text:
                    states.setdefault((arm, group, field), set()).add(plain_number(text))
            for metric, column in _values(row, mapping):
                counts[arm, group, metric.name] += 1
                if metrics.setdefault(metric.name, metric) != metric:
                    raise row[column].wrong(f"in the unit and direction of {metric.name} above")
                number_of = counts[arm, group, metric.name]
                readings.append(
                    _reading(number, row, (arm, group, metric.name), column, mapping, number_of)
                )
    return Contents(
        metrics=tuple(metrics.values()),
        readings=tuple(readings),
        audited=audited(states),
        arms=each_arm(
            readings,
            mapping.replicate,
            facts=tuple(mapping.facts.items()),
            planned=mapping.planned,
        ),
    )


def _check_columns(source: SourceFile, mapping: Mapping) -> None:
    keys = mapping.columns
    named = [(f"columns.{key}", value) for key, value in msgspec.structs.asdict(keys).items()]
    named += [(f"metrics.{key}.column", value.column) for key, value in mapping.metrics.items()]
    for key, value in named:
        for column in (value,) if isinstance(value, str) else value or ():
            if column not in source.columns:
                raise SpecError(
                    f"there is no column {quoted(column)}, which the mapping's {key} names",
                    place=f"{source.name}: line 1",
                    action=f"the columns are {', '.join(source.columns[:20])}",
                )


def _arm(row: TableRow, mapping: Mapping) -> str:
    cell = row[mapping.columns.arm]
    if not cell.text:
        raise cell.wrong("the name of an arm")
    return cell.text


def _group(row: TableRow, mapping: Mapping) -> Pairs:
    return tuple((name, row[name].text) for name in mapping.columns.group if row[name].text)


def _values(row: TableRow, mapping: Mapping) -> Iterator[tuple[Metric, str]]:
    """(metric, column of its value) of a row."""
    keys = mapping.columns
    if keys.metric and keys.value:
        name = row[keys.metric].text
        if not name:
            raise row[keys.metric].wrong("the name of a metric")
        yield _metric(row, name, mapping), keys.value
        return
    for name, metric in mapping.metrics.items():
        if metric.column:
            yield _metric(row, name, mapping), metric.column


def _metric(row: TableRow, name: str, mapping: Mapping) -> Metric:
    known = mapping.metrics.get(name, MetricKeys())
    unit = row[mapping.columns.unit].text if mapping.columns.unit else known.unit
    if not unit:
        raise SpecError(
            f"the unit of {quoted(name)} is not known",
            place=f"{row.source}: line {row.line}",
            action=f"name a column in columns.unit, or write unit in [metrics.{name}]",
        )
    better = known.better
    if mapping.columns.better:
        cell = row[mapping.columns.better]
        if cell.text not in list(Better):
            raise cell.wrong('"lower" or "higher"')
        better = Better(cell.text)
    if better is None:
        raise SpecError(
            f"which direction of {quoted(name)} is better is not known",
            place=f"{row.source}: line {row.line}",
            action=f"name a column in columns.better, or write better in [metrics.{name}]",
        )
    return Metric(name=name, unit=unit, better=better, assume=known.assume)


def _reading(
    number: int,
    row: TableRow,
    key: tuple[str, Pairs, str],
    column: str,
    mapping: Mapping,
    count: int,
) -> ForeignReading:
    keys, (arm, group, metric) = mapping.columns, key
    status = row[keys.status].text if keys.status else mapping.ok[0]
    failed = status not in mapping.ok
    if not failed and not row[column].text:
        raise row[column].wrong("a number, and nothing says that the run failed")
    boot = row[keys.boot].text if keys.boot else ""
    reason = row[keys.failure].text if keys.failure else ""
    return ForeignReading(
        source=number,
        line=row.line,
        arm=arm,
        metric=metric,
        value=None if failed else row[column].number(),
        failure=(reason or status or "no reason given") if failed else "",
        replicate=f"{arm} {boot or f'r{count}'}",
        group=group,
        position=row[keys.position].integer() if keys.position else None,
        round=row[keys.round].integer() if keys.round else count,
        run=row[keys.run].text if keys.run else "",
    )
