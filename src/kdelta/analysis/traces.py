# SPDX-License-Identifier: GPL-2.0-or-later
"""The hits of a traced run, kernel beside kernel; pure, and without any verdict.

Tracing disturbs what it watches, so nothing here is compared with counts or times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kdelta.journal.run import RunRecord
from kdelta.ladder.evidence import parts
from kdelta.sample import Outcome, TraceData, TracePhase, TraceRow, TrialRecord
from kdelta.study.probes import TracePer

_Keyed = tuple[str, str, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class HitsCell:
    """Hits on one kernel: the fewest and the most per iteration, or per run.

    None where there are none, for the reason in `absent`.  ratio: to the first kernel, where both
    repeat and neither is zero.
    """

    arm: str
    fewest: float | None = None
    most: float | None = None
    ratio: float | None = None
    absent: str = ""

    @property
    def repeats(self) -> bool:
        """True when it was the same number each time."""
        return self.fewest is not None and self.fewest == self.most


@dataclass(frozen=True, slots=True, kw_only=True)
class HitsRow:
    """Something that is watched, or one of its values.  whole: of one whole run, with set-up."""

    watch: str
    key: str
    whole: bool
    cells: tuple[HitsCell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceTable:
    """One scenario at one point of the matrix.

    per: iteration or run.  phases: what an iteration does.  rows: what is watched in the study's
    order, each with its values behind it.  doubts: what was not counted, reasons: why something was
    not watched at all; one sentence each.
    """

    workload: str
    scenario: str
    point: str
    arms: tuple[str, ...]
    per: str
    phases: tuple[TracePhase, ...]
    rows: tuple[HitsRow, ...]
    doubts: tuple[str, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTraces:
    """A traced run."""

    run_id: str
    title: str
    tables: tuple[TraceTable, ...]


def traced(record: RunRecord) -> RunTraces | None:
    """The tables of a traced run; None for a run of another instrument."""
    if record.instrument.traits.judged:
        return None
    tables = (_table(part, point, *case) for point, part, *case in parts(record))
    return RunTraces(run_id=record.run_id, title=record.title, tables=tuple(tables))


@dataclass(frozen=True, slots=True)
class _Arm:
    """An arm's valid trials, and why there are none."""

    label: str
    seen: tuple[TraceData, ...]
    fault: str

    def samples(self, key: _Keyed) -> list[float]:
        """Hits of a row each time that they were counted, per turn."""
        found: list[float] = []
        for data in self.seen:
            turns = (1,) if key[2] else data.turns
            row = next((row for row in data.rows if _key(row) == key), None)
            hits = row.hits if row else (0,) * len(turns)
            found += [count / each for count, each in zip(hits, turns, strict=True)]
        return found

    def absent(self, watch: str) -> str:
        """Why it was not watched, "" when it was."""
        if not self.seen:
            return self.fault or "not yet traced"
        if any(row.watch == watch for data in self.seen for row in data.rows):
            return ""  # a graph of several functions is one, and has what could be had of them
        named = {one.watch: one.reason for data in self.seen for one in data.skipped}
        return named.get(watch, "not watched there")


def _key(row: TraceRow) -> _Keyed:
    return row.watch, row.key, row.whole


def _table(record: RunRecord, point: str, workload: str, scenario: str) -> TraceTable:
    arms = []
    for arm in record.arms:
        case = arm.index, workload, scenario
        own = [t for t in record.trials if (t.arm, t.workload, t.scenario) == case]
        arms.append(_arm(arm.label, own))
    every = [data for arm in arms for data in arm.seen]
    doubts = [f"{a.label}: {doubt}" for a in arms for data in a.seen for doubt in data.doubts]
    return TraceTable(
        workload=workload,
        scenario=scenario,
        point=point,
        arms=tuple(arm.label for arm in arms),
        per=every[0].per if every else TracePer.ITERATION,
        phases=every[0].phases if every else (),
        rows=tuple(_rows(arms, record.study.trace.watch)),
        doubts=tuple(dict.fromkeys(doubts)),
        reasons=(*(f"{arm.label}: {arm.fault}" for arm in arms if arm.fault), *_skips(arms)),
    )


def _arm(label: str, trials: Sequence[TrialRecord]) -> _Arm:
    ended = [trial.result for trial in trials if trial.result]
    bad = [one for one in ended if one.outcome is not Outcome.OK]
    good = [one.traced for one in ended if one.outcome is Outcome.OK]
    seen = tuple(
        data
        for data in good
        if data
        and min(data.turns, default=0) > 0
        and all(len(row.hits) == (1 if row.whole else len(data.turns)) for row in data.rows)
    )
    if bad:
        return _Arm(label, seen, f"{bad[0].outcome}: {bad[0].reason or 'it gave no reason'}")
    whole = len(seen) == len(good)
    return _Arm(
        label, seen, "" if whole else "its hits do not fit the times that they were counted"
    )


def _skips(arms: Sequence[_Arm]) -> tuple[str, ...]:
    found: dict[str, dict[str, None]] = {}
    for arm in arms:
        for one in (one for data in arm.seen for one in data.skipped):
            found.setdefault(f"{one.watch}: {one.reason}", {})[arm.label] = None
    return tuple(
        text if len(arms) == len(labels) > 1 else f"{', '.join(labels)}: {text}"
        for text, labels in found.items()
    )


def _rows(arms: Sequence[_Arm], watched: Sequence[str]) -> list[HitsRow]:
    keys = {_key(row): max(row.hits) for arm in arms for data in arm.seen for row in data.rows}
    told = {key[0] for key in keys}
    graphs = told - {*watched}
    graphed = {name for graph in graphs for name in graph.split(", ")}
    keys |= {(name, "", False): 0 for name in watched if name not in told | graphed}
    order = {name: at for at, name in enumerate([*watched, *sorted(graphs)])}

    def place(key: _Keyed) -> tuple[int, bool, bool, int, str]:
        return order[key[0]], bool(key[1]), key[1].startswith("["), -keys[key], key[1]

    return [
        HitsRow(watch=key[0], key=key[1], whole=key[2], cells=_cells(arms, key))
        for key in sorted(keys, key=place)
    ]


def _cells(arms: Sequence[_Arm], key: _Keyed) -> tuple[HitsCell, ...]:
    found: list[HitsCell] = []
    for arm in arms:
        if absent := arm.absent(key[0]):
            found.append(HitsCell(arm=arm.label, absent=absent))
            continue
        samples = arm.samples(key)
        fewest, most, ratio = min(samples), max(samples), None
        if found and found[0].repeats and found[0].fewest and fewest == most != 0:
            ratio = fewest / found[0].fewest
        found.append(HitsCell(arm=arm.label, fewest=fewest, most=most, ratio=ratio))
    return tuple(found)
