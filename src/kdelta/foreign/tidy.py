# SPDX-License-Identifier: GPL-2.0-or-later
"""From a table and its mapping to tidy rows: readings, published figures, audits and facts.

A tidy row has an arm, dimensions, a metric with unit and direction, and what was measured: one
value, a list of them, or mean, sd and n.  Whatever a table looks like, it becomes these.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from kdelta.foreign import directions, fitting, published, unlike, words
from kdelta.foreign import mapping as mappings
from kdelta.foreign.arms import is_version
from kdelta.foreign.mapping import Figures, MetricKeys
from kdelta.foreign.record import (
    ArmFacts,
    Contents,
    ForeignReading,
    Pairs,
    Published,
    SourceFile,
    audited,
)
from kdelta.foreign.sets import SET
from kdelta.foreign.tables import MAX_CELL, TableCell, TableRow, plain_number, rows
from kdelta.metric import Assume, Metric
from kdelta.printable import printable
from kdelta.verdict.series import ReplicateUnit

TRUE = ("true", "yes", "1", "on", "y")
_UNITS = re.compile(
    r"(?P<number>\d+(?:\.\d+)?)\s*(?:v?cpus?|cores?|threads?|jobs?|workers?)\Z", re.ASCII | re.I
)
# ISO dates and times sort as text; other words do not.
_WHEN = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?\Z")
_STAMP = re.compile(r"\d{8}T\d{6}Z?\Z")
_STATISTIC = re.compile(r"[_ ](?:mean|avg|median)\Z", re.IGNORECASE)  # of the runs of an arm
_NO_BOOT = "boot not told"
_UNNAMED = "rows whose boot is empty may all be of one: of each arm they are taken as one boot"
_Key = tuple[str, Pairs]


@dataclass(slots=True)
class _Read:
    """What has been read of a table so far."""

    number: int
    metrics: dict[str, Metric] = field(default_factory=dict)
    readings: list[ForeignReading] = field(default_factory=list)
    published: list[Published] = field(default_factory=list)
    states: dict[tuple[str, Pairs, str], set[str]] = field(default_factory=dict)
    facts: list[ArmFacts] = field(default_factory=list)
    counts: Counter[tuple[str, Pairs, str]] = field(default_factory=Counter)
    gates: dict[tuple[str, Pairs, str], str] = field(default_factory=dict)
    left: dict[str, None] = field(default_factory=dict)
    arms: dict[_Key, bool] = field(default_factory=dict)


def read(number: int, source: SourceFile, mapping: mappings.Mapping, arm: str = "") -> Contents:
    """What a table says by its mapping.  Raises SpecError.

    number: the table's place among the sources; arm: of a table without a column of arms.
    """
    fitting.columns(source, mapping)
    found = list(rows(source, decimal=mapping.decimal, missing=frozenset(mapping.missing)))
    places = _places(found, mapping.columns.position, mapping.columns.round)
    kept = _Read(number)
    for at, row in enumerate(found):
        _row(kept, row, mapping, (places[at] if places else None), arm)
    arms = [*(one.arm for one in kept.readings), *(one.arm for one in kept.published)]
    fitting.order(arms, source, mapping)
    gated = _gated(kept)
    blocks = not mapping.columns.boot and _in_blocks(gated)
    readings = _placed(gated, boots=blocks)
    unnamed = mapping.columns.boot is not None and any(map(_of_no_boot, readings))
    if unnamed:
        readings = tuple(map(_in_one, readings))
    notes = (
        *([f"{source.name}: {_UNNAMED}"] if unnamed else []),
        *unlike.sentences(found, source.name, mapping),
        *(
            f"{source.name}: {printable(name, 60)} is kept and not judged, nothing says which"
            " direction is better; a mapping can"
            for name in kept.left
        ),
    )
    return Contents(
        metrics=tuple(kept.metrics.values()),
        readings=readings,
        published=tuple(kept.published),
        audited=audited(kept.states),
        arms=(*kept.facts, *_replicates(readings, mapping, blocks=blocks)),
        order=mapping.order,
        notes=notes,
    )


def _of_no_boot(item: ForeignReading) -> bool:
    """True of a value in whose row the cell of the boot is empty."""
    return item.value is not None and item.replicate.startswith(f"{item.arm} {_NO_BOOT}")


def _in_one(item: ForeignReading) -> ForeignReading:
    """Values of unnamed boots of an arm may all be of one: they are one, as its samples."""
    if not _of_no_boot(item):
        return item
    return msgspec.structs.replace(item, replicate=f"{item.arm} {_NO_BOOT}")


def is_moment(text: str) -> bool:
    """True for an ISO date or time, which sorts as text."""
    return bool(_WHEN.match(text) or _STAMP.match(text))


def _places(found: Sequence[TableRow], column: str | None, turn: str | None) -> list[int] | None:
    """The rank of each row in the order of execution; rows of one place share none."""
    if column is None:
        return None
    keys: list[tuple[float, str, float]] = []
    for row in found:
        cell = row[column]
        later = row[turn].text if turn else ""
        by_turn = float(later) if later.isdigit() else 0.0
        if is_moment(cell.text):
            keys.append((0.0, cell.text, by_turn))
        elif "." in cell.text:
            keys.append((cell.number(), "", by_turn))
        else:
            keys.append((float(cell.integer()), "", by_turn))
    ranked = sorted(range(len(found)), key=keys.__getitem__)
    places = [0] * len(found)
    for rank, at in enumerate(ranked):
        places[at] = rank
    return places


def _row(
    kept: _Read, row: TableRow, mapping: mappings.Mapping, place: int | None, arm: str
) -> None:
    columns = mapping.columns
    group = group_of(row, mapping)
    failure = failure_of(row, mapping)
    for name, keys, figures in _targets(row, mapping, arm):
        _facts(kept, row, name, group, mapping)
        if not failure:
            gates = (column for column in columns.gates if words.is_state(column))
            for column in (*columns.state, *gates):
                _state(kept, (name, group, column), row[column].text)
        _figures(kept, row, (name, group), keys, figures, mapping, place, failure)


def _targets(
    row: TableRow, mapping: mappings.Mapping, arm: str
) -> Iterator[tuple[str, tuple[str, MetricKeys], Figures]]:
    """(arm, (metric, what is known of it), its columns) of everything that a row holds."""
    columns = mapping.columns
    if mapping.arms:
        for name, figures in mapping.arm_keys():
            for metric in _metrics_of(row, mapping):
                yield name, metric, figures
        return
    if columns.arm:
        cell = row[columns.arm]
        if not cell.text:
            raise cell.wrong("the name of an arm")
        arm = cell.text
    if columns.metric or columns.measured:
        for metric in _metrics_of(row, mapping):
            yield arm, metric, columns
        return
    wide = False
    for name, keys in mapping.metrics.items():
        wide = True
        yield arm, (name, keys), keys
    if not wide:
        yield arm, ("", MetricKeys()), Figures()


def _metrics_of(row: TableRow, mapping: mappings.Mapping) -> Iterator[tuple[str, MetricKeys]]:
    column = mapping.columns.metric
    if column:
        name = row[column].text
        if not name:
            raise row[column].wrong("the name of a metric")
        yield name, mapping.metrics.get(name, MetricKeys())
    else:
        yield from mapping.metrics.items()


def group_of(row: TableRow, mapping: mappings.Mapping) -> Pairs:
    """The dimensions of a row; empty cells are left out."""
    found: list[tuple[str, str]] = []
    for name in mapping.settings:
        if name == mapping.columns.arm:  # the arm is never a dimension
            continue
        text = row[name].text
        split = mapping.split.get(name)
        if split and text:
            parts = [part.strip() for part in text.split(split.at)]
            if len(parts) > len(split.into):
                raise row[name].wrong(f"{len(split.into)} settings separated by {split.at}")
            found += [(key, _setting(part)) for key, part in zip(split.into, parts, strict=False)]
        elif text:
            # `set` is what the files of an import are told apart by; 6.10 is not 6.1.
            exact = text.endswith("0") and is_version(text)
            key = f"{name} of rows" if name == SET else name
            found.append((key, text if exact else plain_number(text)))
    return tuple(found)


def _setting(text: str) -> str:
    """8CPU as 8, so that it is the 8 of another table; a size keeps its unit."""
    counted = _UNITS.match(text)
    return plain_number(
        counted["number"] if counted else re.sub(r"(?<=\d)\s+(?=[A-Za-z])", "", text)
    )


def failure_of(row: TableRow, mapping: mappings.Mapping) -> str:
    """Why a run does not count; "" for one that does."""
    columns = mapping.columns
    status = row.text(columns.status)
    reason = row.text(columns.failure)
    fine = {word.lower() for word in mapping.ok}
    if columns.status and status.lower() not in fine:
        return reason or status or "no status"
    code = row.text(mapping.read_back.get("returncode"))
    if code not in ("", "0"):
        return f"return code {code}"
    for name in columns.gates:
        if words.fails(name, row[name].text):
            return f"{name} {row[name].text}"
    return ""


def _facts(kept: _Read, row: TableRow, arm: str, group: Pairs, mapping: mappings.Mapping) -> None:
    """Roles, boots, CPUs that were seen, lost runs: what a row tells beside values."""
    details = [
        (name, text) for name, column in mapping.details.items() if (text := row.text(column))
    ]
    facts = []
    for fact, column in mapping.read_back.items():
        text = row.text(column)
        if fact == "coverage":
            facts += [("coverage", "yes")] if text.lower() in TRUE else []
        elif fact == "returncode" and text not in ("", "0"):
            again = row.text(mapping.columns.round)
            details.append(("lost_run", f"repeat {again}: return code {text}"))
        elif fact != "returncode" and text:
            facts.append((fact, text))
    role = row.text(mapping.columns.role)
    if facts or details or role:
        one = ArmFacts(arm=arm, group=group, facts=tuple(facts), details=tuple(details), role=role)
        if not kept.facts or kept.facts[-1] != one:
            kept.facts.append(one)


def _state(kept: _Read, key: tuple[str, Pairs, str], text: str) -> None:
    if text:
        kept.states.setdefault(key, set()).add(plain_number(text))


def _figures(
    kept: _Read,
    row: TableRow,
    key: _Key,
    named: tuple[str, MetricKeys],
    figures: Figures,
    mapping: mappings.Mapping,
    place: int | None,
    failure: str,
) -> None:
    """The figures of one arm and metric in a row."""
    name, keys = named
    if not name or not figures.measured:
        return
    if mapping.columns.metric and (words.is_state(_STATISTIC.sub("", name)) or words.is_gate(name)):
        _audited(kept, row, key, name, figures)
        return
    metric = _metric(row, name, keys, mapping)
    if metric is None:
        kept.left[name] = None
        return
    if kept.metrics.setdefault(name, metric) != metric:
        held = kept.metrics[name].unit
        if mapping.columns.unit and not metric.unit:
            raise row[mapping.columns.unit].wrong(f"the unit of {name}")
        also = f": {held} there, {metric.unit} here" if held != metric.unit else ""
        raise _first(row, figures).wrong(f"in the unit and direction of {name} above{also}")
    cells = [row[column] for column in _listed(figures)]
    if figures.value is not None:
        cells = [row[figures.value]]
    said = published.of_row(kept.number, row, key, name, figures, mapping, failure)
    if said:
        kept.published.append(said)
    count = row.text(figures.n or mapping.columns.n)
    for at, (value, why) in enumerate(_values(cells, figures, failure, mapping, said, count)):
        kept.counts[*key, name] += 1
        made = _reading(kept, row, (*key, name), mapping)
        position = None if place is None else place * MAX_CELL + at
        kept.readings.append(
            msgspec.structs.replace(made, value=value, failure=why, position=position)
        )


def _first(row: TableRow, figures: Figures) -> TableCell:
    return next(row[column] for _, column in figures.named())


def _listed(figures: Figures) -> tuple[str, ...]:
    found = figures.values
    return (found,) if isinstance(found, str) else found or ()


def _values(
    cells: Sequence[TableCell],
    figures: Figures,
    failure: str,
    mapping: mappings.Mapping,
    said: Published | None,
    count: str,
) -> Iterator[tuple[float | None, str]]:
    """(value, why there is none) of each value that a row lists; count: how many, as it says."""
    listed = isinstance(figures.values, str) and figures.value is None
    wanted = int(count) if count.isdecimal() and len(count) < 6 else 0
    for cell in cells:
        if failure:
            yield None, failure
        elif not cell.text and (listed or len(cells) > 1 or mapping.arms):
            continue
        elif not cell.text:
            if mapping.columns.status:
                raise cell.wrong("a number, and nothing says that the run failed")
            yield None, "no value was written"
        elif listed:
            values = cell.numbers()
            if said and said.ok is not None and said.ok != len(values):
                raise cell.wrong(f"a list of {said.ok} values, as the row says")
            for value in values:
                yield value, ""
            for _ in range(wanted - len(values)):
                yield None, "fewer values than runs"
        else:
            yield cell.number(), ""


def _reading(
    kept: _Read,
    row: TableRow,
    key: tuple[str, Pairs, str],
    mapping: mappings.Mapping,
) -> ForeignReading:
    columns, (arm, group, metric) = mapping.columns, key
    count = kept.counts[key]
    boot = row.text(columns.boot)
    turn = row.text(columns.round)
    return ForeignReading(
        source=kept.number,
        line=row.line,
        arm=arm,
        metric=metric,
        value=None,
        replicate=f"{arm} {boot or (f'{_NO_BOOT} {count}' if columns.boot else f'r{count}')}",
        group=group,
        round=int(turn) if turn.isdecimal() and len(turn) < 16 else count,
        run=row.text(columns.run),
        boot_id=f"{columns.position} {row[columns.position].text}" if columns.position else "",
    )


def _in_blocks(readings: Sequence[ForeignReading]) -> bool:
    """True when rows share places of the order, and no place is that of two arms.

    Such a place is a block: rounds within one boot.  One that arms share is the number of a round,
    and one of its own for each row says nothing of boots.
    """
    arms: dict[str, set[str]] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for item in readings:
        arms.setdefault(item.boot_id, set()).add(item.arm)
        counts[item.boot_id, item.metric] += 1
    return max(counts.values(), default=0) > 1 and all(len(names) == 1 for names in arms.values())


def _placed(readings: Sequence[ForeignReading], *, boots: bool) -> tuple[ForeignReading, ...]:
    """Places as ranks over the table; what is no boot is not called one."""
    known = sorted({item.position for item in readings if item.position is not None})
    rank = {position: at for at, position in enumerate(known)}
    return tuple(
        msgspec.structs.replace(
            item,
            position=None if item.position is None else rank[item.position],
            boot_id=item.boot_id if boots else "",
        )
        for item in readings
    )


def _metric(
    row: TableRow, name: str, known: MetricKeys, mapping: mappings.Mapping
) -> Metric | None:
    """The metric of a row; None when nothing says which direction is better."""
    from_name = words.metric_of(name)
    # What a metric's own column or the mapping says comes before a unit for all of a row.
    unit = known.unit or row.text(mapping.columns.unit) or (from_name.unit if from_name else "")
    if mapping.columns.unit and not unit and not mapping.columns.better:
        raise row[mapping.columns.unit].wrong(f"the unit of {name}")
    better = known.better or directions.of(name, unit)
    if mapping.columns.better:
        cell = row[mapping.columns.better]
        found = directions.told(cell.text)
        if found is None:
            raise cell.wrong('"lower" or "higher"')
        better = found
    told = known.better or mapping.columns.better
    said = words.said(name)
    spread = said.part is words.Part.STATISTIC and said.statistic not in ("mean", "median")
    if better is None or (spread and not told):
        return None
    return Metric(name=name, unit=unit, better=better, assume=known.assume or Assume.NOTHING)


def _audited(kept: _Read, row: TableRow, key: _Key, name: str, figures: Figures) -> None:
    """A row of a long table that is no time but a field of the audit, or a gate."""
    texts = [row.text(figures.value or figures.mean or figures.median)]
    if not texts[0] or _listed(figures):
        texts = [
            part for column in _listed(figures) for part in re.split(r"[;|\s]+", row.text(column))
        ] or texts
    kept.counts[*key, name] += 1
    for text in filter(None, texts):
        if words.is_gate(name) and figures.value and words.fails(name, text):
            kept.gates[*key, f"r{kept.counts[*key, name]}"] = f"{name} {text}"
        else:
            _state(kept, (*key, name), text)


def _gated(kept: _Read) -> tuple[ForeignReading, ...]:
    """The readings, without the values of runs whose results were not as they must be."""
    if not kept.gates:
        return tuple(kept.readings)
    seen: Counter[tuple[str, Pairs, str]] = Counter()
    found = []
    for item in kept.readings:
        key = (item.arm, item.group, item.metric)
        seen[key] += 1
        why = kept.gates.get((item.arm, item.group, f"r{seen[key]}"))
        found.append(
            msgspec.structs.replace(item, value=None, failure=item.failure or why) if why else item
        )
    return tuple(found)


def _replicates(
    readings: Sequence[ForeignReading], mapping: mappings.Mapping, *, blocks: bool
) -> Iterator[ArmFacts]:
    """What was repeated, for every arm and setting that has readings."""
    unit = mapping.replicate
    if unit is None and mapping.columns.boot:
        unit = ReplicateUnit.BOOT
    if unit is None and blocks:
        unit = ReplicateUnit.PROCESS_ROUND
    facts: Mapping[str, str] = mapping.facts
    if mapping.columns.unit:
        facts = {mappings.UNITS: "as each row says"} | dict(facts)
    for arm, group in dict.fromkeys((item.arm, item.group) for item in readings):
        yield ArmFacts(
            arm=arm,
            group=group,
            facts=tuple(facts.items()),
            replicate=unit,
            planned=mapping.planned,
        )
