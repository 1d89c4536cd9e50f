# SPDX-License-Identifier: GPL-2.0-or-later
"""The analysis stage: a stored run -> Report.  All that the renderers may read.

A pure function of the record: another threshold needs no new measurement.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Generic, NamedTuple, TypeVar

from kdelta.analysis.explanation import PIECE, Explanation, find_point, stored
from kdelta.journal.run import RunRecord
from kdelta.ladder.counts import (
    UNSEEN_PERCENT,
    CountEvidence,
    CountMethod,
    Measure,
    counted,
)
from kdelta.ladder.evidence import (
    ITERATION,
    ArmEvidence,
    M,
    Method,
    compare_arms,
    debugging,
    gather,
    parts,
    points,
    refuse_traced,
)
from kdelta.ladder.ladders import LadderStep, RunLadders, ladders, limits
from kdelta.metric import Assume, Better, Grade, Metric, ReplicateUnit
from kdelta.probes.sharing import FETCHED
from kdelta.sample import (
    TOTAL,
    UNKNOWN,
    ArmRecord,
    FunctionCount,
    HostFacts,
    Instrument,
    MetricValue,
    Outcome,
    Run,
    Skip,
    SkipKind,
    TraceData,
    TracePhase,
    TraceRow,
    TrialRecord,
    TrialResult,
)
from kdelta.stats.detectors import inspect, summarise
from kdelta.stats.series import Boot, Series
from kdelta.stats.timing import compare, correct, shares
from kdelta.study.probes import TracePer
from kdelta.study.spec import Figure, FigureCount, FigurePer, Replicate, TimeMachine
from kdelta.verdict.comparison import LEAST_SEEDS, Comparison, Share, Summary
from kdelta.verdict.windows import LocationKind, representative

# ---- what workloads and studies tell beside the phases, and never judged: metrics and figures ----


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricCell:
    """One metric of one arm over its trials that ended ok.

    median, minimum, maximum: of the n trials that have a value, None without any; ratio: of the
    median to the first arm's, None where there is no such ratio; absent: why trials have no value.
    Neither a value nor a reason: no trial told it.
    """

    arm: str
    median: float | None
    minimum: float | None
    maximum: float | None
    n: int
    ratio: float | None
    absent: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """One metric over the arms of its table, in their order."""

    name: str
    unit: str
    better: Better
    cells: tuple[MetricCell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureCell:
    """One figure of one arm.  value None: there is none, for the reason in `absent`."""

    arm: str
    value: float | None
    absent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureRow:
    """One figure over the arms of its table, in their order; what: its meaning, may be empty."""

    name: str
    what: str
    cells: tuple[FigureCell, ...]


R = TypeVar("R", MetricRow, FigureRow)


@dataclass(frozen=True, slots=True)
class ToldTable(Generic[R]):
    """All rows of one scenario at one point of the study's matrix ("" without one)."""

    workload: str
    scenario: str
    point: str
    arms: tuple[str, ...]
    rows: tuple[R, ...]


MetricTable = ToldTable[MetricRow]
FigureTable = ToldTable[FigureRow]


def metric_tables(record: RunRecord) -> tuple[MetricTable, ...]:
    """The tables of a run, in the order of its matrix and of its scenarios' names."""
    found = []
    for point, part in points(record):
        labels = tuple(arm.label for arm in part.arms)
        for case in sorted({(trial.workload, trial.scenario) for trial in part.trials}):
            own = [t for t in part.trials if (t.workload, t.scenario) == case]
            if rows := _rows(part.arms, own):
                found.append(ToldTable(*case, point, labels, rows))
    return tuple(found)


def _rows(arms: Sequence[ArmRecord], trials: Sequence[TrialRecord]) -> tuple[MetricRow, ...]:
    """In the order in which the program tells them; what belongs to a family stays together."""
    told: dict[str, dict[int, list[MetricValue]]] = {}
    for trial in trials:
        if trial.result and trial.result.outcome is Outcome.OK:
            for metric in trial.result.metrics:
                told.setdefault(metric.name, {}).setdefault(trial.arm, []).append(metric)
    families = list(dict.fromkeys(name.partition(".")[0] for name in told))
    ordered = sorted(told, key=lambda name: families.index(name.partition(".")[0]))
    return tuple(_row(name, arms, told[name]) for name in ordered)


def _row(name: str, arms: Sequence[ArmRecord], told: dict[int, list[MetricValue]]) -> MetricRow:
    example = next(iter(told.values()))[0]
    first: float | None = None
    cells = []
    for at, arm in enumerate(arms):
        own = told.get(arm.index, [])
        values = [one.value for one in own if one.value is not None]
        absent = [one.absent for one in own if one.value is None]
        median = statistics.median(values) if values else None
        first = first if at else median
        cells.append(
            MetricCell(
                arm=arm.label,
                median=median,
                minimum=min(values, default=None),
                maximum=max(values, default=None),
                n=len(values),
                ratio=median / first if median is not None and first else None,
                absent=tuple(dict.fromkeys(absent)),
            )
        )
    return MetricRow(name=name, unit=example.unit, better=example.better, cells=tuple(cells))


def figure_tables(record: RunRecord) -> tuple[FigureTable, ...]:
    """The figures of a run, none when its study asks for none."""
    wanted = record.study.figures
    found = []
    cases = {(trial.workload, trial.scenario) for trial in record.trials if wanted}
    for workload, scenario in sorted(cases):
        arms = {point: counted(part, workload, scenario) for point, part in points(record)}
        every = [arm for own in arms.values() for arm in own]
        ran = {figure.name for figure in wanted if any(_matching(figure, arm) for arm in every)}
        for point, own in arms.items():
            rows = tuple(_figure_row(figure, own, ran=figure.name in ran) for figure in wanted)
            labels = tuple(arm.label for arm in own)
            found.append(ToldTable(workload, scenario, point, labels, rows))
    return tuple(found)


def _figure_row(figure: Figure, arms: Sequence[CountEvidence], *, ran: bool) -> FigureRow:
    """ran: the figure's functions did, under some kernel on some machine of the run."""
    cells = []
    for arm in arms:
        value, absent = _figure_value(figure, arm)
        # A name that runs nowhere is more likely misspelt, inlined or of another kernel than idle.
        if not absent and not ran:
            value, absent = None, f"nothing called {' or '.join(figure.functions)} ran anywhere"
        cells.append(FigureCell(arm=arm.label, value=value, absent=absent))
    return FigureRow(name=figure.name, what=figure.what.strip(), cells=tuple(cells))


def _figure_value(figure: Figure, arm: CountEvidence) -> tuple[float | None, str]:
    """(value, "") or (None, why there is none)."""
    measure = arm.measure(figure.phase or TOTAL)
    if measure is None or not arm.sound:
        reasons = [trial.result.reason for trial in arm.trials if trial.result]
        return None, next(filter(None, (*arm.objections, *reasons)), "it has no counts")
    if not any(stored(arm, one) for one in arm.phases if figure.phase in ("", one.phase)):
        return None, "no functions are stored"
    count = sum(_counted(figure, row) for row in _matching(figure, arm))
    if figure.divide or figure.of:
        whole = figure.divide or _metric(figure.of, arm)
        if whole is None:
            return None, f"the workload told no metric {figure.of}"
        return (whole / count, "") if count else (None, "its functions did not run")
    return (count / measure.operations if figure.per is FigurePer.OPERATION else count), ""


def _metric(name: str, arm: CountEvidence) -> float | None:
    trials = {measure.trial for measure in arm.phases}
    results = [trial.result for trial in arm.used if trial.result and trial.index in trials]
    told = (metric for result in results for metric in result.metrics)
    return next((metric.value for metric in told if metric.name == name), None)


def _matching(figure: Figure, arm: CountEvidence) -> list[FunctionCount]:
    """Rows of the named functions; a name stands for the clones that the compiler made, too."""
    return [
        row
        for measure in arm.phases
        if figure.phase in ("", measure.phase)
        for row in stored(arm, measure)
        if any(
            fnmatchcase(name, pattern)
            for pattern in figure.functions
            for name in {row.function, row.function.partition(".")[0]}
        )
    ]


def _counted(figure: Figure, row: FunctionCount) -> int:
    """A piece that the compiler split off is entered from its own function: that is no call."""
    if figure.count is FigureCount.INSNS:
        return row.insns
    return 0 if PIECE.search(row.function) else row.calls


# ---- lines that CPUs take from each other: told, and judged as instructions are ------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LinesMethod(CountMethod):
    """Lines fetched from other CPUs: one figure a trial, compared by the readings, as counts are.

    Of fewer than LEAST_SEEDS there is no step: what was free at boot decides who shares a line.
    """

    unit = "lines"

    def measures(
        self,
        arm: CountEvidence,
        varied: Sequence[TrialRecord],  # noqa: ARG002
    ) -> tuple[tuple[Measure, ...], Measure | None]:
        """The sum alone, none where a trial has no such figure."""
        used = arm.used
        counts = used[0].exact.phases[0]
        operations = counts.operations * counts.layouts
        told = [one for t in used if t.result for one in t.result.metrics if one.name == FETCHED]
        values = [round((one.value or 0) * operations) for one in told]
        if not values or len(values) < len(used):
            return (), None
        across = representative(values)
        return (), Measure(
            phase=TOTAL,
            operation=counts.operation,
            operations=operations,
            value=across.value,
            user=0,
            kernel=across.value,
            kind=LocationKind.MEAN,
            share=across.share,
            deviation=0,
            trials=across.n,
            seeds=tuple(
                (trial.round, value, value) for trial, value in zip(used, values, strict=True)
            ),
            agree=values.count(across.value),
            trials_range=across.maximum - across.minimum,
            spread=across.maximum - across.minimum,
            unvaried=across.n < LEAST_SEEDS,
        )

    def grade(self, arms: Sequence[CountEvidence]) -> Grade:  # noqa: ARG002
        """No time, and no path."""
        return Grade.EXACT_LINES


def lines_between(record: RunRecord, found: Explanation, point: str | None) -> LadderStep | None:
    """The same of the two kernels of an explanation, step or not; None where it was not counted."""
    method = LinesMethod(step_percent=found.step_percent)
    every = gather(find_point(record, point), found.workload, found.scenario, method)
    old, new = ({arm.label: arm for arm in every}[label] for label in (found.old, found.new))
    known = old.total and new.total
    return LadderStep.of(old, new, compare_arms(method, old, new)) if known else None


# ---- the hits of a traced run, kernel beside kernel, without any verdict -------------------------

# Tracing disturbs what it watches, so nothing here is compared with counts or times.


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


class _Arm(NamedTuple):
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
    case = workload, scenario
    trials = [trial for trial in record.trials if (trial.workload, trial.scenario) == case]
    arms = [_arm(a.label, [t for t in trials if t.arm == a.index]) for a in record.arms]
    every = [data for arm in arms for data in arm.seen]
    doubts = [f"{a.label}: {doubt}" for a in arms for data in a.seen for doubt in data.doubts]
    return TraceTable(
        workload=workload,
        scenario=scenario,
        point=point,
        arms=tuple(arm.label for arm in arms),
        per=every[0].per if every else TracePer.ITERATION,
        phases=every[0].phases if every else (),
        rows=tuple(_hits_rows(arms, record.study.trace.watch)),
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
    told = "its hits do not fit the times that they were counted"
    return _Arm(label, seen, "" if len(seen) == len(good) else told)


def _skips(arms: Sequence[_Arm]) -> tuple[str, ...]:
    found: dict[str, dict[str, None]] = {}
    for arm in arms:
        for one in (one for data in arm.seen for one in data.skipped):
            found.setdefault(f"{one.watch}: {one.reason}", {})[arm.label] = None
    return tuple(
        text if len(arms) == len(labels) > 1 else f"{', '.join(labels)}: {text}"
        for text, labels in found.items()
    )


def _hits_rows(arms: Sequence[_Arm], watched: Sequence[str]) -> list[HitsRow]:
    keys = {_key(row): max(row.hits) for arm in arms for data in arm.seen for row in data.rows}
    told = {key[0] for key in keys}
    graphs = told - {*watched}
    graphed = {name for graph in graphs for name in graph.split(", ")}
    keys |= {(name, "", False): 0 for name in watched if name not in told | graphed}
    order = {name: at for at, name in enumerate([*watched, *sorted(graphs)])}

    def place(key: _Keyed) -> tuple[int, bool, bool, int, str]:
        return order[key[0]], bool(key[1]), key[1].startswith("["), -keys[key], key[1]

    return [
        HitsRow(watch=key[0], key=key[1], whole=key[2], cells=_hits_cells(arms, key))
        for key in sorted(keys, key=place)
    ]


def _hits_cells(arms: Sequence[_Arm], key: _Keyed) -> tuple[HitsCell, ...]:
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


# ---- times: from the samples of trials to one value a boot, and verdicts -------------------------

# What must be the same for two arms: the machine, and how it was set.
_OF_HOST = ("machine", "cpu_model", "microcode", "governor", "epp", "turbo", "smt")
_SEEN = ("clocksource", "thp", "preempt", "cpus")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeMeasure:
    """One phase of one arm, or the sum over its phases, in ns per operation: a value a boot."""

    phase: str
    operation: str
    series: Series
    summary: Summary

    @property
    def per_operation(self) -> float:
        """The median over the boots."""
        return float("nan") if self.summary.median is None else self.summary.median


TimeEvidence = ArmEvidence[TimeMeasure]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeMethod(Method[TimeMeasure]):
    """The time instrument: a value a boot, compared by one test (stats.brunner_munzel).

    guests: it timed KVM guests, and not this host.
    """

    unit = "ns"
    explains = False
    baseline = True
    alpha: float
    seed: int
    guests: bool
    replicate: ReplicateUnit

    def usable(self, result: TrialResult) -> str:
        """Samples of operations, in each phase."""
        phases = result.timed.phases
        whole = all(times.operations > 0 and times.nanoseconds for times in phases)
        return "" if phases and whole else "the stored result has no samples"

    def conditions(self, result: TrialResult) -> Mapping[str, object] | None:
        """The machine and how it was set."""
        return dict(_compared(result)) if result.facts else None

    def machine(self, result: TrialResult) -> str:
        """The same in words, as far as a reader needs it."""
        host, facts = _host(result), result.facts
        model = (host.cpu_model if host else None) or "unknown CPU"
        virtual = host.virtualisation if host else None
        where = f", itself a guest ({virtual})" if virtual not in (None, "none") else ""
        clock = (facts.seen.clocksource if facts else None) or UNKNOWN
        return f"{'KVM guest on ' if self.guests else ''}{model}{where}, clock {clock}"

    def measures(
        self,
        arm: TimeEvidence,
        varied: Sequence[TrialRecord],  # noqa: ARG002
    ) -> tuple[tuple[TimeMeasure, ...], TimeMeasure | None]:
        """Each phase and the sum; none when no trial ended ok."""
        valid = [t.result for t in arm.used if t.result and t.result.outcome is Outcome.OK]
        if not valid:
            return (), None

        def measure(phase: str) -> TimeMeasure:
            operation, _ = per_operation(valid[0], phase)
            series = self.series(arm, phase, operation)
            return TimeMeasure(
                phase=phase, operation=operation, series=series, summary=summarise(series)
            )

        return tuple(measure(one.phase) for one in valid[0].timed.phases), measure(TOTAL)

    def compare(
        self, arms: Sequence[TimeEvidence], phase: str, forbidden: Sequence[str]
    ) -> Comparison:
        """By the values of the boots; three arms are A/B/A."""
        operations = dict.fromkeys(m.operation for arm in arms if (m := arm.measure(phase)))
        apart = (
            [f"operations differ: {' against '.join(operations)}"] if len(operations) > 1 else []
        )
        was, now, *again = (
            self.series(arm, phase, next(iter(operations), ITERATION)) for arm in arms
        )
        return compare(
            was,
            now,
            control=again[0] if again else None,
            grade=self.grade(arms),
            tolerance=self.step_percent / 100,
            alpha=self.alpha,
            seed=self.seed,
            obstacles=(*forbidden, *apart),
        )

    def shares(self, arms: Sequence[TimeEvidence]) -> Sequence[Share]:
        """With intervals that hold together at the run's level."""
        base, regressed, *rest = (self.series(arm, TOTAL) for arm in arms)
        return shares(base, regressed, rest, alpha=self.alpha)

    def grade(self, arms: Sequence[TimeEvidence]) -> Grade:
        """metal-time only where the host says that it is not a virtual machine itself."""
        if self.guests:
            return Grade.GUEST_TIME
        results = [trial.result for arm in arms for trial in arm.used if trial.result]
        virtual = {host.virtualisation if (host := _host(one)) else None for one in results}
        return Grade.METAL_TIME if virtual == {"none"} else Grade.HOST_TIME

    def replicates(self, arms: Sequence[TimeEvidence]) -> ReplicateUnit:  # noqa: ARG002
        """As the study wants it."""
        return self.replicate

    def warnings(self, arms: Sequence[TimeEvidence], verdicts: Sequence[Comparison]) -> list[str]:
        """What speaks against the values, arm by arm, and then against the comparisons."""
        found = [
            caution.sentence
            for arm in arms
            if not arm.skipped
            for caution in inspect(self.series(arm, TOTAL))
        ]
        found += [caution.sentence for each in verdicts for caution in each.cautions]
        return list(dict.fromkeys(found))

    def limits(self, record: Run) -> Iterator[str]:
        """The machine."""
        results = [trial.result for trial in record.trials if trial.result]
        hosts = [host for result in results if (host := _host(result))]
        machines = sorted({m for host in hosts if (m := host.cpu_model or host.machine)})
        if machines:
            yield (
                f"Times are of this machine: {', '.join(machines)}. Another one may answer"
                " otherwise."
            )
        if any(host.virtualisation not in (None, "none") for host in hosts):
            yield "The machine is itself a guest: what its neighbours do is in the numbers."

    def family(self, verdicts: Sequence[Comparison]) -> Sequence[Comparison]:
        """By Holm's correction."""
        return correct(verdicts)

    def series(self, arm: TimeEvidence, phase: str, operation: str = ITERATION) -> Series:
        """An arm's values in one phase (or TOTAL), in ns per operation: what it is of, of none."""
        if measure := arm.measure(phase):
            return measure.series
        planned = [t for t in arm.trials if not (t.result and t.result.outcome is Outcome.SKIP)]
        results = [t.result for t in planned if t.result and t.result.timed.phases]
        seen: dict[str, str] = {}  # a fact that differs between trials is unknown
        for result in results:
            for field in filter(lambda each: each.binding, result.state):
                name = f"{field.name} {field.when}"
                seen[name] = field.value if seen.get(name, field.value) == field.value else UNKNOWN
        return Series(
            arm=arm.label,
            metric=Metric(
                name=f"{phase}_ns_per_{operation}",
                unit=f"ns/{operation}",
                better=Better.LOWER,
                assume=Assume.NOTHING,
            ),
            boots=tuple(self._boot(arm.label, t, t.result, phase) for t in planned if t.result),
            planned=len(planned),
            facts=_compared(results[0]) if results else (),
            state=tuple(seen.items()),
            replicate=self.replicate,
        )

    def _boot(self, arm: str, trial: TrialRecord, result: TrialResult, phase: str) -> Boot:
        values = per_operation(result, phase)[1] if result.outcome is Outcome.OK else ()
        rounds = self.replicate is ReplicateUnit.PROCESS_ROUND
        return Boot(
            label=f"{arm} round {trial.round + 1}",
            position=trial.index,
            values=values,
            failure="" if values else result.reason or result.outcome,
            refilled=trial.attempts > 1,
            boot_id=result.facts.boot_id if result.facts else "",
            run=f"trial {trial.index}" if rounds else "",
        )


def per_operation(result: TrialResult, phase: str) -> tuple[str, tuple[float, ...]]:
    """What the samples of a phase are per, and they, in ns; none of a phase that there is not.

    Of TOTAL: of each iteration the sum over the phases that add, per operation when all of them
    have the same, else per iteration.
    """
    every = phase == TOTAL
    chosen = [one for one in result.timed.phases if one.phase == phase or (every and one.adds)]
    units = {(times.operations, times.operation) for times in chosen}
    operations, operation = units.pop() if len(units) == 1 else (1, ITERATION)
    columns = zip(*(times.nanoseconds for times in chosen), strict=False)
    return operation, tuple(sum(each) / operations for each in columns)


def _compared(result: TrialResult) -> tuple[tuple[str, str], ...]:
    """What must be the same for two arms, by name; what is not known is equal to nothing known."""
    facts = result.facts
    if facts is None:
        return ()
    of_host = () if facts.guest else _OF_HOST
    found = [(name, getattr(facts.host, name, None)) for name in of_host]
    found += [(name, getattr(facts.seen, name)) for name in _SEEN]
    known = [(name, UNKNOWN if value is None else str(value)) for name, value in found]
    # What a kernel sees of the memory is without what it keeps for itself, another part in each.
    own = facts.host.installed_mib if facts.host and not facts.guest else None
    memory = facts.asked.memory_mib if facts.asked else own
    return (*known, *([("memory_mib", str(memory))] if memory else []))


def _host(result: TrialResult) -> HostFacts | None:
    return result.facts.host if result.facts else None


# ---- the method of a run -------------------------------------------------------------------------


def method_of(
    record: RunRecord,
    *,
    step_percent: float | None = None,
    alike: bool = False,
    grade: Grade = Grade.EXACT_PATH,
) -> Method[Any]:
    """How a run measured and decides.  step_percent None: the study's own threshold.

    alike: its kernels were built in one tree, a change apart, and boot alike.  grade: which of the
    things that it counted.  Raises SpecError for a traced run.
    """
    refuse_traced(record)
    if record.instrument is Instrument.TIME:
        return _timing_of(record, step_percent)
    own = record.study.thresholds.step_percent
    counts = LinesMethod if grade is Grade.EXACT_LINES else CountMethod
    return counts(
        step_percent=own if step_percent is None else step_percent,
        unseen_percent=0.0 if alike else UNSEEN_PERCENT,
    )


def _timing_of(record: RunRecord, step_percent: float | None) -> TimeMethod:
    time = record.study.time
    guests = time.machine is TimeMachine.KVM
    rounds = not guests and time.replicate is Replicate.PROCESS
    return TimeMethod(
        step_percent=time.tolerance_percent if step_percent is None else step_percent,
        alpha=time.alpha,
        seed=record.seed,
        guests=guests,
        replicate=ReplicateUnit.PROCESS_ROUND if rounds else ReplicateUnit.BOOT,
    )


def enough_valid(record: RunRecord) -> Skip | None:
    """Why the trials that are left are not needed: enough are valid; None: they are."""
    wanted = record.study.time.want_valid
    every = {(trial.arm, trial.workload, trial.scenario) for trial in record.trials}
    valid = Counter(
        (trial.arm, trial.workload, trial.scenario)
        for trial in record.trials
        if trial.result and trial.result.outcome is Outcome.OK
    )
    if not wanted or min((valid[key] for key in every), default=0) < wanted:
        return None
    said = f"not needed: every arm has {wanted} valid trials"
    return Skip(kind=SkipKind.NOT_NEEDED, sentence=said)


# ---- its report ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(RunLadders[M]):
    """Everything that a run shows.

    limits: what the run cannot say, a sentence each.  metrics: what workloads told beside their
    phases; figures: what the study wants to know of functions.
    """

    record: RunRecord
    limits: tuple[str, ...]
    metrics: tuple[MetricTable, ...]
    figures: tuple[FigureTable, ...]


def report(record: RunRecord, *, step_percent: float | None = None) -> Report[Any]:
    """Analyse a stored run.  step_percent None: the study's own threshold."""
    method = method_of(record, step_percent=step_percent)
    lines = LinesMethod(step_percent=method.step_percent)
    beside = ladders(record, lines) if method.explains else ()
    return Report(
        record=record,
        run_id=record.run_id,
        step_percent=method.step_percent,
        alpha=method.alpha,
        ladders=ladders(record, method),
        beside=tuple(one for one in beside if any(rung.total for rung in one.rungs)),
        debugging=debugging(record.arms),
        done=sum(trial.result is not None for trial in record.trials),
        planned=len(record.trials),
        limits=limits(record, method),
        metrics=metric_tables(record),
        figures=figure_tables(record) if method.explains else (),
    )
