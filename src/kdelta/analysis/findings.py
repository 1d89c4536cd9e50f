# SPDX-License-Identifier: GPL-2.0-or-later
"""The analysis stage: a stored run -> Report.  All that the renderers may read.

A pure function of the record: another threshold needs no new measurement.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from kdelta.analysis import metrics
from kdelta.analysis.metrics import FigureTable, MetricTable
from kdelta.errors import SpecError
from kdelta.imports.record import Case
from kdelta.journal.run import RunRecord
from kdelta.ladder.counts import UNSEEN_PERCENT, CountMethod
from kdelta.ladder.evidence import (
    ITERATION,
    ArmEvidence,
    M,
    Method,
    ScenarioEvidence,
    gather,
    gathered,
    parts,
    refuse_traced,
)
from kdelta.ladder.ladders import RunLadders, of_run
from kdelta.metric import Assume, Better, Grade, Metric
from kdelta.printable import printable
from kdelta.sample import (
    TOTAL,
    UNKNOWN,
    ArmRecord,
    HostFacts,
    Instrument,
    Outcome,
    Run,
    Skip,
    SkipKind,
    TrialRecord,
    TrialResult,
)
from kdelta.stats.detectors import inspect, summarise
from kdelta.stats.timing import compare, correct, shares
from kdelta.study.spec import Replicate, TimeMachine
from kdelta.verdict.comparison import Comparison, Share
from kdelta.verdict.series import Boot, ReplicateUnit, Series, Summary

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
        arm: ArmRecord,
        trials: Sequence[TrialRecord],
        used: Sequence[TrialRecord],
        varied: Sequence[TrialRecord] = (),  # noqa: ARG002
    ) -> tuple[tuple[TimeMeasure, ...], TimeMeasure | None]:
        """Each phase and the sum; none when no trial ended ok."""
        valid = [t.result for t in used if t.result and t.result.outcome is Outcome.OK]
        if not valid:
            return (), None

        def measure(phase: str) -> TimeMeasure:
            operation, _ = per_operation(valid[0], phase)
            series = self._series(arm, trials, phase, operation)
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
        """See Method: the samples of each boot."""
        measure = arm.measure(phase)
        return measure.series if measure else self._series(arm.arm, arm.trials, phase, operation)

    def _series(
        self, arm: ArmRecord, trials: Sequence[TrialRecord], phase: str, operation: str
    ) -> Series:
        """The values of an arm's trials in one phase (or TOTAL), in ns per operation."""
        planned = [t for t in trials if not (t.result and t.result.outcome is Outcome.SKIP)]
        results = [t.result for t in planned if t.result and t.result.timed.phases]
        return Series(
            arm=arm.label,
            metric=Metric(
                name=f"{phase}_ns_per_{operation}",
                unit=f"ns/{operation}",
                better=Better.LOWER,
                assume=Assume.NOTHING,
            ),
            boots=tuple(self._boot(arm, t, t.result, phase) for t in planned if t.result),
            planned=len(planned),
            facts=_compared(results[0]) if results else (),
            state=_state(results),
            replicate=self.replicate,
        )

    def _boot(self, arm: ArmRecord, trial: TrialRecord, result: TrialResult, phase: str) -> Boot:
        values = per_operation(result, phase)[1] if result.outcome is Outcome.OK else ()
        rounds = self.replicate is ReplicateUnit.PROCESS_ROUND
        return Boot(
            label=f"{arm.label} round {trial.round + 1}",
            position=trial.index,
            values=values,
            failure="" if values else result.reason or result.outcome,
            refilled=trial.attempts > 1,
            round=trial.round,
            boot_id=result.facts.boot_id if result.facts else "",
            run=f"trial {trial.index}" if rounds else "",
        )


def per_operation(result: TrialResult, phase: str) -> tuple[str, tuple[float, ...]]:
    """What the samples of a phase are per, and they, in ns; none of a phase that there is not.

    Of TOTAL: of each iteration the sum over the phases that add, per operation when all of them
    have the same, else per iteration.
    """
    chosen = [times for times in result.timed.phases if times.counts_for(phase)]
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


def _state(results: Sequence[TrialResult]) -> tuple[tuple[str, str], ...]:
    """The audited facts of an arm that bind; one that differs between its trials is unknown."""
    seen: dict[str, str] = {}
    for result in results:
        for field in filter(lambda each: each.binding, result.state):
            name = f"{field.name} {field.when}"
            seen[name] = field.value if seen.get(name, field.value) == field.value else UNKNOWN
    return tuple(seen.items())


def _host(result: TrialResult) -> HostFacts | None:
    return result.facts.host if result.facts else None


# ---- the method of a run -------------------------------------------------------------------------


def method_of(
    record: RunRecord, *, step_percent: float | None = None, alike: bool = False
) -> Method[Any]:
    """How a run measured and decides.  step_percent None: the study's own threshold.

    alike: its kernels were built in one tree, a change apart, and boot alike.  Raises SpecError for
    a traced run.
    """
    refuse_traced(record)
    if record.instrument is Instrument.TIME:
        return timing_of(record, step_percent=step_percent)
    own = record.study.thresholds.step_percent
    return CountMethod(
        step_percent=own if step_percent is None else step_percent,
        unseen_percent=0.0 if alike else UNSEEN_PERCENT,
    )


def timing_of(record: RunRecord, *, step_percent: float | None = None) -> TimeMethod:
    """The method of a timed run.  Raises SpecError for a run of another instrument."""
    if not record.instrument.traits.interleaved:
        raise SpecError(
            f"other tools judge times; the instrument of this run is {record.instrument}",
            place=record.run_id,
        )
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

    metrics: what workloads told beside their phases; figures: what the study wants to know of
    functions.
    """

    metrics: tuple[MetricTable, ...]
    figures: tuple[FigureTable, ...]


def report(
    record: RunRecord,
    *,
    step_percent: float | None = None,
    known: Sequence[ScenarioEvidence[Any]] | None = None,
) -> Report[Any]:
    """Analyse a stored run.  step_percent None: the study's own threshold.  known: its evidence."""
    method = method_of(record, step_percent=step_percent)
    every = gathered(record, method) if known is None else known
    found = of_run(record, method, every)
    own = {field.name: getattr(found, field.name) for field in fields(found)}
    return Report(
        **own,
        metrics=metrics.tables(record),
        figures=metrics.figure_tables(record) if method.explains else (),
    )


# ---- the Go benchmark format, which benchstat reads: benchstat -col arm FILE ---------------------

# Boots are named in comments, which benchstat passes over: as configuration they would split its
# table.  `kdelta import` reads them.


_WORD = re.compile(r"[^\w.+/-]")


def benchfmt_cases(record: RunRecord, method: Method[Any]) -> list[Case]:
    """Every metric of a run, the phases' and their total's, as series per arm."""
    found = []
    for point, part, workload, scenario in parts(record):
        arms = gather(part, workload, scenario, method)
        known = next((arm for arm in arms if arm.total), None)
        phases = [measure.phase for measure in known.phases] if known else []
        for phase in (*(phases if len(phases) > 1 else ()), TOTAL):
            measure = known.measure(phase) if known else None
            operation = measure.operation if measure else ITERATION
            series = tuple(method.series(arm, phase, operation) for arm in arms)
            found.append(
                Case(
                    group=(("scenario", f"{workload}:{scenario} {point}".strip()),),
                    metric=series[0].metric,
                    series=series,
                )
            )
    return found


def benchfmt_lines(found: Sequence[Case]) -> list[str]:
    """All samples: unit lines, then for each arm and boot its results.

    A benchmark's name is the metric and the group's parts, such as
    BenchmarkMprotect_ns/cpu=1; each sample is one result of one iteration.
    """
    units = {_unit(case.metric): case.metric for case in found}
    head = [
        f"Unit {name} assume={metric.assume} better={metric.better}"
        for name, metric in units.items()
    ]
    arms = dict.fromkeys(series.arm for case in found for series in case.series)
    return [*head, *(text for arm in arms for text in _of_arm(arm, found))]


def _unit(metric: Metric) -> str:
    return _WORD.sub("_", metric.unit)


def _of_arm(arm: str, found: Sequence[Case]) -> Iterator[str]:
    yield f"arm: {_line(arm)}"
    for case in found:
        # Benchmark names begin with a capital, and parts are key=value.
        title = _WORD.sub("_", case.metric.name)
        keyed = [f"{_WORD.sub('_', key)}={_WORD.sub('_', text)}" for key, text in case.group]
        name = "/".join([title[:1].upper() + title[1:], *keyed])
        for boot in (boot for one in case.series if one.arm == arm for boot in one.valid):
            yield f"# boot: {_line(boot.label)}"
            for value in boot.values:
                yield f"Benchmark{name} 1 {value!r} {_unit(case.metric)}"


def _line(text: str) -> str:
    return printable(" ".join(text.split())) or "-"
