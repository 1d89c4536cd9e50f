# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables of points, steps and summaries, as the bare-metal sets publish them.

What a column is follows from its name (kdelta.foreign.columns).  A row of a wide table is one run
of one arm; a row of a long table is one arm and one metric.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import msgspec

from kdelta.errors import SpecError
from kdelta.foreign import columns
from kdelta.foreign.record import (
    ArmFacts,
    Audited,
    Contents,
    ForeignReading,
    Pairs,
    Published,
    SourceFile,
    audited,
    each_arm,
    merged,
)
from kdelta.foreign.tables import TableCell, TableRow, rows
from kdelta.metric import Metric
from kdelta.stats.series import ReplicateUnit

_SANDWICH = ("parent_a", "child", "parent_b")
_TRACED = "function_profile_enabled"


def read(sources: Sequence[tuple[int, SourceFile]]) -> Contents:
    """What the tables of one folder say; each comes with its number.  Raises SpecError."""
    parts = []
    for number, source in sources:
        found = list(rows(source))
        reader = _reader(source)
        parts.append(reader(number, found) if reader else Contents(notes=(_left(source),)))
    return _each_once(merged(tuple(parts)))


def _each_once(contents: Contents) -> Contents:
    """Where two tables list the values of an arm, keep those of the table that tells more."""
    chosen: list[ForeignReading] = []
    notes: list[str] = []
    alike: dict[tuple[str, Pairs, str], dict[int, list[ForeignReading]]] = {}
    for item in contents.readings:
        key = (item.arm, item.group, item.metric)
        alike.setdefault(key, {}).setdefault(item.source, []).append(item)
    for by_source in alike.values():
        best, *others = sorted(by_source.values(), key=_detail)
        chosen += best
        values = sorted(item.value for item in best if item.value is not None)
        notes += [
            f"{best[0].arm}: two tables list different values of {best[0].metric}; those with"
            " more detail are used"
            for items in others
            if sorted(item.value for item in items if item.value is not None) != values
        ]
    return replace(contents, readings=tuple(chosen), notes=(*contents.notes, *notes))


def _detail(items: Sequence[ForeignReading]) -> tuple[bool, int, int]:
    """Sorts first what tells most: a known order, a line for each value, many values."""
    return (
        any(item.position is None for item in items),
        -len({item.line for item in items}),
        -len(items),
    )


def _left(source: SourceFile) -> str:
    return f"{source.name}: kept as it is, no column names an arm and a measured time"


def _reader(source: SourceFile) -> Callable[[int, list[TableRow]], Contents] | None:
    names = source.columns
    if "metric" in names:
        if all(name in names for name in _SANDWICH):
            return _sandwich
        return _long if _arm_column(names) else _arms_in_columns
    return _wide if _arm_column(names) else None


def _arm_column(names: Iterable[str]) -> str | None:
    have = set(names)
    return next((name for name in columns.ARM if name in have), None)


def _arm(row: TableRow) -> str:
    return row.text(*columns.ARM)


def group_of(row: TableRow) -> Pairs:
    """The dimensions of a row that must be equal in a comparison; empty cells are left out."""
    return tuple((name, row[name].text) for name in columns.DIMENSIONS if row.text(name))


def plain_number(text: str) -> str:
    """A number written one way, so that 100.000000 and 100 are the same state; other text as is."""
    try:
        value = TableCell(text, "", 0, "").number()
    except SpecError:  # what is no number is a word
        return text
    return f"{value:.12g}"


def _wide(number: int, found: list[TableRow]) -> Contents:
    names = found[0].columns if found else ()
    times = [name for name in names if columns.is_time(name)]
    parts = [
        Contents(arms=tuple(_facts(found))),
        Contents(audited=_audited(found, [n for n in names if columns.is_state(n)])),
    ]
    if times:
        parts.append(_wide_readings(number, found, times))
    parts.append(_in_order(merged(tuple(_wide_summary(number, row) for row in found))))
    return merged(tuple(parts))


def _in_order(listed: Contents) -> Contents:
    """Listed values have the place of their row: rank them, so that each has its own."""
    if any(reading.position is None for reading in listed.readings):
        return listed
    ranked = sorted(listed.readings, key=lambda reading: (reading.position, reading.round))
    return replace(
        listed,
        readings=tuple(
            msgspec.structs.replace(item, position=rank) for rank, item in enumerate(ranked)
        ),
    )


def _wide_readings(number: int, found: list[TableRow], times: list[str]) -> Contents:
    order = next((name for name in columns.ORDER if name in found[0]), None)
    turns = next((name for name in columns.ROUND if name in found[0]), None)
    key = [
        (row[order].integer() if order else 0, row[turns].integer() if turns else 0)
        for row in found
    ]
    position = {at: rank for rank, at in enumerate(sorted(range(len(found)), key=key.__getitem__))}
    shared = max(Counter(place for place, _ in key).values()) > 1
    seen: Counter[tuple[str, Pairs]] = Counter()
    readings = []
    for at, row in enumerate(found):
        arm, group = _arm(row), group_of(row)
        seen[arm, group] += 1
        boot_id = f"{order} {key[at][0]}" if order and shared else ""
        readings += [
            ForeignReading(
                source=number,
                line=row.line,
                arm=arm,
                metric=name,
                value=row[name].number() if row[name].text else None,
                failure="" if row[name].text else "no value was written",
                replicate=f"{arm} r{seen[arm, group]}",
                group=group,
                position=position[at] if order else None,
                round=key[at][1] if turns else seen[arm, group],
                boot_id=boot_id,
            )
            for name in times
        ]
    return Contents(
        metrics=_metrics(times),
        readings=tuple(readings),
        arms=each_arm(readings, _repeated(order=bool(order), shared=shared)),
    )


def _repeated(*, order: bool, shared: bool) -> ReplicateUnit | None:
    if not order:
        return None
    return ReplicateUnit.PROCESS_ROUND if shared else ReplicateUnit.BOOT


def _metrics(names: Iterable[str]) -> tuple[Metric, ...]:
    return tuple(metric for name in names if (metric := columns.metric_of(name)))


def _wide_summary(number: int, row: TableRow) -> Contents:
    """Statistics in columns such as mean_x_ns, x_ns_cv, n, and a list of the values."""
    words: dict[str, dict[str, TableCell]] = {}
    for name in row.columns:
        if found := columns.statistic(name):
            words.setdefault(found[1], {})[found[0]] = row[name]
    if not words:
        return Contents()
    alone = len(words) == 1
    published = tuple(
        _published(number, row, metric, cells, alone=alone) for metric, cells in words.items()
    )
    said = Contents(metrics=_metrics(words), published=published)
    if row.text("values") and alone:
        return merged((said, _listed(number, row, next(iter(words)), row["values"])))
    return said


def _published(
    number: int, row: TableRow, metric: str, cells: dict[str, TableCell], *, alone: bool
) -> Published:
    cv = cells.get("cv")
    percent = row["cv_pct"] if alone and row.text("cv_pct") else None
    sd = cells.get("sd") or (row["sd"] if alone and row.text("sd") else None)
    return Published(
        source=number,
        line=row.line,
        arm=_arm(row),
        metric=metric,
        group=group_of(row),
        mean=_optional(cells.get("mean")),
        median=_optional(cells.get("median")),
        sd=_optional(sd),
        cv=cv.number() if cv else percent.number() / 100 if percent else None,
        cv_digits=_digits(cv) if cv else _digits(percent) + 2 if percent else 0,
        ok=_count(row, columns.OK),
        failed=_count(row, ("failed_runs",)),
    )


def _optional(cell: TableCell | None) -> float | None:
    return cell.number() if cell and cell.text else None


def _count(row: TableRow, names: Sequence[str]) -> int | None:
    return next((row[name].integer() for name in names if row.text(name)), None)


def _digits(cell: TableCell) -> int:
    return len(cell.text.partition(".")[2])


def _listed(number: int, row: TableRow, metric: str, cell: TableCell) -> Contents:
    """All values of one arm in one cell."""
    arm, group = _arm(row), group_of(row)
    values = cell.numbers()
    counted = _count(row, columns.OK)
    if counted is not None and counted != len(values):
        raise cell.wrong(f"a list of {counted} values, as the row says")
    order = next((name for name in columns.ORDER if row.text(name)), None)
    place = row[order].integer() if order else None
    readings = tuple(
        ForeignReading(
            source=number,
            line=row.line,
            arm=arm,
            metric=metric,
            value=value,
            replicate=f"{arm} r{at}",
            group=group,
            position=place,
            round=at,
            boot_id=f"{order} {place}" if order else "",
        )
        for at, value in enumerate(values, start=1)
    )
    what = ReplicateUnit.PROCESS_ROUND if order else ReplicateUnit.BOOT if "runs" in row else None
    return Contents(
        metrics=_metrics([metric]),
        readings=readings,
        arms=(ArmFacts(arm=arm, group=group, facts=(), replicate=what),),
    )


def _long(number: int, found: list[TableRow]) -> Contents:
    parts = []
    for row in found:
        metric = row["metric"].text
        if columns.is_state(metric):
            parts.append(Contents(audited=tuple(_long_state(row, metric))))
        elif columns.is_time(metric):
            parts.append(_long_summary(number, row, metric))
            if row.text("values"):
                parts.append(_listed(number, row, metric, row["values"]))
        else:
            parts.append(Contents(notes=(_unjudged(row.source, metric),)))
    return merged(tuple(parts))


def _unjudged(source: str, metric: str) -> str:
    return (
        f"{source}: {metric} is kept and not judged, its name says neither unit nor direction;"
        " a mapping can"
    )


def _long_state(row: TableRow, field: str) -> Iterator[Audited]:
    text = row.text("values") or row.text(*columns.MEAN)
    values = {plain_number(part) for part in text.replace(";", " ").split()}
    if values:
        yield Audited(arm=_arm(row), group=group_of(row), field=field, values=tuple(sorted(values)))


def _long_summary(number: int, row: TableRow, metric: str) -> Contents:
    cv = row["cv"] if row.text("cv") else None
    published = Published(
        source=number,
        line=row.line,
        arm=_arm(row),
        metric=metric,
        group=group_of(row),
        mean=_first(row, columns.MEAN),
        median=_first(row, columns.MEDIAN),
        sd=_first(row, columns.SD),
        cv=_optional(cv),
        cv_digits=_digits(cv) if cv else 0,
        ok=_count(row, columns.OK),
        failed=_count(row, ("failed_runs",)),
        status=row.text("status"),
        failure=row.text("failure_reasons", "note"),
    )
    return Contents(metrics=_metrics([metric]), published=(published,))


def _first(row: TableRow, names: Sequence[str]) -> float | None:
    return next((row[name].number() for name in names if row.text(name)), None)


def _sandwich(number: int, found: list[TableRow]) -> Contents:
    """metric, parent_a, child, parent_b: one figure of each arm of an A/B/A session."""
    published, notes = [], []
    for row in found:
        metric = row["metric"].text
        if not columns.is_time(metric):
            notes.append(_unjudged(row.source, metric))
            continue
        published += [
            Published(source=number, line=row.line, arm=arm, metric=metric, mean=row[arm].number())
            for arm in _SANDWICH
        ]
    arms = tuple(
        ArmFacts(arm=arm, group=(), facts=(), role=arm.partition("_")[0]) for arm in _SANDWICH
    )
    return Contents(
        metrics=_metrics(item.metric for item in published),
        published=tuple(published),
        arms=arms if published else (),
        notes=tuple(notes),
    )


def _arms_in_columns(number: int, found: list[TableRow]) -> Contents:  # noqa: ARG001
    """metric, then a column for each arm: read where the metric is a field of the audit."""
    audited = [
        Audited(arm=arm, group=(), field=row["metric"].text, values=(plain_number(row[arm].text),))
        for row in found
        if columns.is_state(row["metric"].text)
        for arm in row.columns
        if arm not in ("metric", "note") and row[arm].text
    ]
    notes = {
        _unjudged(r.source, r["metric"].text)
        for r in found
        if not columns.is_state(r["metric"].text)
    }
    return Contents(audited=tuple(audited), notes=tuple(sorted(notes)))


def _audited(found: list[TableRow], fields: list[str]) -> tuple[Audited, ...]:
    values: dict[tuple[str, Pairs, str], set[str]] = {}
    for row in found:
        for field in fields:
            if row[field].text:
                key = (_arm(row), group_of(row), field)
                values.setdefault(key, set()).add(plain_number(row[field].text))
    return audited(values)


def _facts(found: list[TableRow]) -> Iterator[ArmFacts]:
    """Roles, boots, CPUs that were seen, lost runs: what a row tells beside values."""
    for row in found:
        facts = [
            (fact, row[name].text)
            for name, fact in (
                ("requested_cpu", "requested_cpus"),
                ("seen_cpu", "seen_cpus"),
                ("kernel_release", "kernel_release"),
                ("boot_id", "boot_id"),
                ("commit", "commit"),
            )
            if row.text(name)
        ]
        if row.text(_TRACED).lower() in columns.TRUE:
            facts.append(("coverage", "yes"))
        code = row.text("returncode")
        if code and row["returncode"].number():
            facts.append(("lost_run", f"repeat {row.text(*columns.ROUND)}: return code {code}"))
        if facts or row.text("role"):
            yield ArmFacts(
                arm=_arm(row), group=group_of(row), facts=tuple(facts), role=row.text("role")
            )
