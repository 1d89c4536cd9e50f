# SPDX-License-Identifier: GPL-2.0-or-later
"""From a table and its mapping to readings, published figures, audited state and facts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from kdelta.errors import SpecError
from kdelta.imports.mapping import Figures, Mapping, toml_text
from kdelta.imports.record import (
    ArmFacts,
    Contents,
    ImportReading,
    Pairs,
    Published,
    Roles,
    SourceFile,
    audited,
)
from kdelta.imports.table import TableRow, plain_number, rows
from kdelta.imports.versions import in_order
from kdelta.metric import Metric
from kdelta.printable import printable, quoted
from kdelta.verdict.series import ReplicateUnit

# ISO dates and times sort as text.
_WHEN = re.compile(r"\d{4}-?\d\d-?\d\d(?:[T ][\d:]+(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?)?", re.ASCII)
_ROLES = ("old", "new", "control")


@dataclass(slots=True)
class _Rows:
    """What has been read of a table so far."""

    number: int
    mapping: Mapping
    metrics: dict[str, Metric] = field(default_factory=dict)
    readings: list[ImportReading] = field(default_factory=list)
    published: list[Published] = field(default_factory=list)
    states: dict[tuple[str, Pairs, str], set[str]] = field(default_factory=dict)
    facts: dict[tuple[str, Pairs], dict[str, str]] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    counts: Counter[tuple[str, Pairs, str]] = field(default_factory=Counter)

    def arms(self) -> list[str]:
        """Every arm, in the order of the table."""
        figures: list[ImportReading | Published] = [*self.readings, *self.published]
        return list(dict.fromkeys([*(one.arm for one in figures), *(key[0] for key in self.facts)]))


def read(number: int, source: SourceFile, mapping: Mapping) -> Contents:
    """What a table says by its mapping; number: its place among the sources.

    Raises SpecError where the table does not fit the mapping, or nothing orders its arms.
    """
    _check_columns(source, mapping)
    found = list(rows(source, missing=frozenset(mapping.missing)))
    places = _places(found, mapping.columns.position)
    kept = _Rows(number, mapping)
    for at, row in enumerate(found):
        _row(kept, row, places[at] if places else None)
    roles = _roles(kept, source.name)
    _check_order(kept, roles, source.name)
    return Contents(
        metrics=tuple(kept.metrics.values()),
        readings=tuple(kept.readings),
        published=tuple(kept.published),
        audited=audited(kept.states),
        arms=tuple(_arms(kept)),
        order=mapping.order,
        roles=roles,
    )


def _check_columns(source: SourceFile, mapping: Mapping) -> None:
    """Raise SpecError for a column that is in the mapping or the table and not in the other."""
    named = dict.fromkeys(mapping.named())
    place = f"{source.name}: line 1"
    for column in named:
        if column not in source.columns:
            raise SpecError(
                f"there is no column {quoted(column)}, which the mapping names",
                place=place,
                action=f"the columns are {_listed(source.columns[:20])}",
            )
    left = [column for column in source.columns if column not in named]
    if left:
        raise SpecError(
            f"the mapping does not say what {_listed(left[:20])}"
            f" {'is' if len(left) == 1 else 'are'}",
            place=place,
            action=f"map {'it' if len(left) == 1 else 'each'}, or write ignore ="
            f" [{', '.join(map(toml_text, left[:20]))}]",
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(printable(name, 60) for name in names)


def _places(found: Sequence[TableRow], column: str | None) -> list[int] | None:
    """The rank of each row in the order of execution; rows of one place keep their order."""
    if column is None:
        return None
    cells = [row[column] for row in found]
    dates = all(_WHEN.fullmatch(cell.text) for cell in cells)
    keys = [(0.0, cell.text) if dates else (cell.number(), "") for cell in cells]
    places = [0] * len(found)
    for rank, at in enumerate(sorted(range(len(found)), key=keys.__getitem__)):
        places[at] = rank
    return places


def _row(kept: _Rows, row: TableRow, place: int | None) -> None:
    mapping = kept.mapping
    group = tuple((name, text) for name in mapping.columns.dimensions if (text := row.text(name)))
    failure = failure_of(row, mapping)
    if mapping.arms:
        for arm, figures in mapping.figures_of_arms():
            _arm(kept, row, (arm, group), failure)
            _named(kept, row, (arm, group), figures, place, failure)
        return
    key = (_arm_of(kept, row), group)
    _arm(kept, row, key, failure)
    if mapping.columns.measured:
        _named(kept, row, key, mapping.columns, place, failure)
        return
    for name, keys in mapping.metrics.items():
        _figures(kept, row, (*key, name), keys, place, failure)


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


def _arm(kept: _Rows, row: TableRow, key: tuple[str, Pairs], failure: str) -> None:
    """What a row says of its arm, beside figures."""
    mapping = kept.mapping
    facts = kept.facts.setdefault(key, {})
    for fact, column in mapping.read_back.items():
        text = row.text(column)
        if text and facts.setdefault(fact, text) != text:
            raise row[column].wrong(f"the {fact} of {printable(key[0], 60)} in the rows above")
    if not failure:
        for column in mapping.columns.state:
            _state(kept, (*key, column), row.text(column))


def _state(kept: _Rows, key: tuple[str, Pairs, str], text: str) -> None:
    if text:
        kept.states.setdefault(key, set()).add(plain_number(text))


def failure_of(row: TableRow, mapping: Mapping) -> str:
    """Why a run does not count; "" for one that does."""
    for column, wanted in mapping.success.items():
        good = wanted if isinstance(wanted, tuple) else (wanted,)
        text = row.text(column)
        if plain_number(text) not in {plain_number(str(one)) for one in good}:
            return row.text(mapping.columns.reason) or f"{column} is {text or 'empty'}"
    return ""


def _named(
    kept: _Rows,
    row: TableRow,
    key: tuple[str, Pairs],
    figures: Figures,
    place: int | None,
    failure: str,
) -> None:
    """The figures of a row whose metric a column names, or that is the only one."""
    mapping, column = kept.mapping, kept.mapping.columns.metric
    if column is None:
        (name,) = mapping.metrics
    else:
        name = row[column].text
        if not name:
            raise row[column].wrong("the name of a metric")
        if name in mapping.skip:
            return
        if name in mapping.states or "*" in mapping.states:
            if not failure:
                _state_of(kept, row, (*key, name), figures)
            return
        declared = mapping.better and (mapping.unit or mapping.columns.unit)
        if name not in mapping.metrics and not declared:
            raise SpecError(
                f"the mapping does not say what {quoted(name)} is",
                place=f"{row.source}: line {row.line}, column {printable(column, 80)}",
                action=f"write [metrics.{toml_text(name)}] with unit and better, or name it"
                " in skip or states",
            )
    _figures(kept, row, (*key, name), figures, place, failure)


def _state_of(kept: _Rows, row: TableRow, key: tuple[str, Pairs, str], figures: Figures) -> None:
    """A field of page state that stands in a row of its own."""
    if figures.value or figures.mean or figures.median:
        _state(kept, key, row.text(figures.value or figures.mean or figures.median))
        return
    for column in _columns_of(figures):
        for value in row[column].numbers():
            _state(kept, key, f"{value:g}")


def _columns_of(figures: Figures) -> tuple[str, ...]:
    found = figures.values
    return (found,) if isinstance(found, str) else found or ()


def _figures(
    kept: _Rows,
    row: TableRow,
    key: tuple[str, Pairs, str],
    figures: Figures,
    place: int | None,
    failure: str,
) -> None:
    """The figures of one arm and metric in a row."""
    columns, name = kept.mapping.columns, key[2]
    metric = kept.mapping.metric(name, row.text(columns.unit))
    if not metric.unit:
        raise row[str(columns.unit)].wrong(f"the unit of {printable(name, 60)}")
    if kept.metrics.setdefault(name, metric) != metric:
        held = kept.metrics[name].unit
        raise row[str(columns.unit)].wrong(f"the unit of {printable(name, 60)} above, {held}")
    said = _published(kept, row, key, figures, failure)
    if said:
        kept.published.append(said)
    for value, why in _values(row, figures, failure, said):
        kept.counts[key] += 1
        made = _reading(kept, row, key, place)
        kept.readings.append(msgspec.structs.replace(made, value=value, failure=why))


def _values(
    row: TableRow, figures: Figures, failure: str, said: Published | None
) -> Iterator[tuple[float | None, str]]:
    """(value, why there is none) of each value that a row holds."""
    if isinstance(figures.values, str):
        cell = row[figures.values]
        values = cell.numbers() if cell.text and not failure else ()
        if values and said and said.ok is not None and said.ok != len(values):
            raise cell.wrong(f"a list of {said.ok} values, as the row says")
        yield from ((value, "") for value in values)
        if failure:
            yield None, failure
        return
    columns = (figures.value,) if figures.value else _columns_of(figures)
    for column in columns:
        cell = row[column]
        if failure or not cell.text:
            yield None, failure or "no value was written"
        else:
            yield cell.number(), ""


def _reading(
    kept: _Rows, row: TableRow, key: tuple[str, Pairs, str], place: int | None
) -> ImportReading:
    (arm, group, metric), columns = key, kept.mapping.columns
    count, boot, turn = kept.counts[key], row.text(columns.boot), row.text(columns.round)
    if columns.boot and not boot:
        raise row[columns.boot].wrong("the name of a boot")
    of_boots = kept.mapping.unit_of_replicate is ReplicateUnit.BOOT
    return ImportReading(
        source=kept.number,
        line=row.line,
        arm=arm,
        metric=metric,
        value=None,
        replicate=f"{arm} {boot if of_boots and boot else f'r{count}'}",
        group=group,
        position=place,
        round=int(turn) if turn.isdecimal() and len(turn) < 16 else count,
        run=row.text(columns.run),
        boot_id="" if of_boots else boot,
    )


def _published(
    kept: _Rows, row: TableRow, key: tuple[str, Pairs, str], figures: Figures, failure: str
) -> Published | None:
    """What a row says of an arm without showing the values; None: nothing.  Raises SpecError."""
    shared = kept.mapping.columns
    if not (row.text(figures.mean) or row.text(figures.median)):
        return None
    spread = row.text(figures.cv or figures.cv_percent).removesuffix("%").strip()
    percent = figures.cv is None
    cv = _number(row, figures.cv or figures.cv_percent)
    return Published(
        source=kept.number,
        line=row.line,
        arm=key[0],
        metric=key[2],
        group=key[1],
        mean=_number(row, figures.mean),
        median=_number(row, figures.median),
        sd=_number(row, figures.sd),
        cv=cv / 100 if percent and cv is not None else cv,
        cv_digits=len(spread.partition(".")[2]) + 2 * percent if spread else 0,
        ok=_count(row, figures.n or shared.n),
        failed=_count(row, figures.failed or shared.failed),
        failure=failure or row.text(shared.reason),
    )


def _number(row: TableRow, column: str | None) -> float | None:
    text = row.text(column).removesuffix("%").strip()
    return replace(row[column], text=text).number() if column and text else None


def _count(row: TableRow, column: str | None) -> int | None:
    return row[column].integer() if column and row.text(column) else None


def _arms(kept: _Rows) -> Iterator[ArmFacts]:
    """What is known of every arm and setting: facts, what was repeated, how many were planned."""
    for (arm, group), facts in kept.facts.items():
        yield ArmFacts(
            arm=arm,
            group=group,
            facts=tuple((kept.mapping.facts | facts).items()),
            replicate=kept.mapping.unit_of_replicate,
            planned=kept.mapping.planned,
        )


def _roles(kept: _Rows, name: str) -> Roles | None:
    """The roles that a column or the mapping gives.  Raises SpecError for arms not in the table."""
    declared = kept.mapping.declared_roles
    if declared is None and kept.roles:
        by_role = {role: [a for a, r in kept.roles.items() if r == role] for role in _ROLES}
        for role in ("old", "control"):
            if len(by_role[role]) > 1:
                raise SpecError(
                    f"several arms have the role {role}: {_listed(by_role[role])}",
                    place=name,
                    action="give one arm that role",
                )
        if not (by_role["old"] and by_role["new"]):
            raise SpecError(
                "no arm is old, or none is new", place=name, action="give each arm its role"
            )
        control = next(iter(by_role["control"]), "")
        return Roles(old=by_role["old"][0], new=tuple(by_role["new"]), control=control)
    if declared:
        arms = kept.arms()
        for arm in (declared.old, *declared.new, *filter(None, (declared.control,))):
            if arm not in arms:
                raise SpecError(
                    f"[roles] names {quoted(arm)}, which is no arm of the table",
                    place=name,
                    action=f"the arms are {_listed(arms[:10])}",
                )
    return declared


def _check_order(kept: _Rows, roles: Roles | None, name: str) -> None:
    """Raise SpecError for several arms that nothing puts in order."""
    arms, order = kept.arms(), kept.mapping.order
    left = [arm for arm in arms if arm not in order]
    if order and left:
        raise SpecError(
            f"the order of the mapping does not name {_listed(left[:5])}",
            place=name,
            action="name every arm in order, oldest first",
        )
    if len(arms) > 1 and not order and roles is None and in_order(arms) is None:
        told = ", ".join(map(toml_text, arms[:10]))
        raise SpecError(
            "nothing says which arm is the old one",
            place=name,
            action=f"write order = [{told}] into the mapping, oldest first, or give [roles]",
        )
