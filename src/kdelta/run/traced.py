# SPDX-License-Identifier: GPL-2.0-or-later
"""Trials of the trace instrument, in guests under emulation: what the kernel's own tracing counts.

One guest runs its program several times, with more and more iterations, so that the difference of
two runs is of iterations alone.  No plugin counts meanwhile and no time is read.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from kdelta import output, workload
from kdelta.attribution.symbols import UNKNOWN
from kdelta.errors import KdeltaError
from kdelta.guests import checkpoint, swap
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import MachineSettings
from kdelta.machine.identity import GuestIdentity
from kdelta.machine.readback import Lacking
from kdelta.run.exact import ExactTrials
from kdelta.run.guest_trial import GuestTrial
from kdelta.run.restoring import Bench
from kdelta.run.trace_orders import GuestTrace
from kdelta.run.trial import TRACEFS, Ran, framed, ran_as, set_up, told
from kdelta.run.trials import How
from kdelta.sample import TraceData, TracePhase, TrialResult
from kdelta.study import tracing
from kdelta.study.tracing import TraceSettings
from kdelta.tracing import seeing, setting
from kdelta.tracing.seeing import Key, SeenRun
from kdelta.tracing.setting import Refused

_GROUP = "kdelta"


class TracedTrials(ExactTrials):
    """Traces trials, in guests like those that are counted."""

    def __init__(
        self,
        trace: TraceSettings,
        bench: Bench,
        kernels: Sequence[Kernel | KdeltaError],
        machines: Sequence[MachineSettings] = (),
        *,
        jobs: int | None = None,
    ) -> None:
        """See ExactTrials."""
        super().__init__(bench, kernels, machines, jobs=jobs)
        self._trace = trace

    def _measured(
        self,
        bench: Bench,
        kernel: Kernel,
        scenario: workload.Scenario,
        program: Path,
        folder: Path,
        _how: How,
    ) -> TrialResult:
        trial = _TracedGuest(self._trace, bench, kernel, scenario, program, folder)
        return framed(folder, trial.result, kernel=kernel.identity(), fresh_boot=bench.fresh_boot)


class _TracedGuest(GuestTrial):
    def __init__(
        self,
        trace: TraceSettings,
        bench: Bench,
        kernel: Kernel,
        scenario: workload.Scenario,
        program: Path,
        folder: Path,
    ) -> None:
        super().__init__(bench, kernel, scenario, program, folder)
        self._trace = trace
        self._watched = tuple(map(tracing.watch, trace.watch))
        self._refused: list[Refused] = []

    def result(self) -> TrialResult:
        """Trace, and read what was seen."""
        _, (trace, identity) = self._used(self._run)
        rans = [
            ran_as(identity, self._bench.settings, self._kernel.release, printed, status)
            for printed, status in trace.ran()
        ]
        ran = next((one for one in rans if one.status), rans[-1])
        (self._folder / "workload.txt").write_text(ran.printed)
        return self._judged(ran, identity, lambda last: self._seen(trace, rans[1:], last))

    def _run(
        self, point: checkpoint.Checkpoint, given: swap.Backing
    ) -> tuple[GuestTrace, GuestIdentity]:
        bench = self._bench
        names = [name for name in self._guest.symbols(point).names if name != UNKNOWN]
        probes, self._refused = setting.probes(self._watched, names, _GROUP)
        self._refused += setting.host_only(self._watched)
        first, runs = schedule(self._trace, self._scenario)
        trace = GuestTrace(
            set_up(bench.settings, given, bench.seed),
            self._watched,
            probes,
            first=first,
            runs=runs,
            cpus=bench.settings.cpus,
        )
        launch = self._launched(point, given, trace.orders)
        answers = self._asked(point, launch, lambda machine: machine.finish(bench.timeout_s))
        keep_raw(self._folder, trace.answered(answers))
        return trace, answers.identity(bench.settings)

    def _seen(
        self, trace: GuestTrace, rans: Sequence[Ran], last: output.Reading
    ) -> tuple[TraceData, list[str]]:
        """What was seen; none of it makes a trial invalid."""
        hits, doubts = trace.hits()
        found = data_of(self._trace, self._case, list(zip(rans, hits, strict=True)), last)
        rows = found.rows
        if graph := trace.graph():
            called, lost = seeing.graphed(graph)
            rows, doubts = (*rows, *called), [*doubts, *lost]
        return replace(
            found,
            rows=rows,
            skipped=seeing.skips([*self._refused, *trace.refused()]),
            doubts=tuple(map(told, doubts)),
        ), []

    @property
    def _case(self) -> tuple[workload.Workload, workload.Scenario]:
        return self._workload, self._scenario


def schedule(
    trace: TraceSettings, scenario: workload.Scenario
) -> tuple[list[str], list[list[str]]]:
    """A program's arguments in the run that nobody counts, and in those that are watched."""
    runs = seeing.schedule(trace.hits_per, trace.turns)
    return _arguments(scenario, 1), [_arguments(scenario, turns) for turns in runs]


def _arguments(scenario: workload.Scenario, turns: int) -> list[str]:
    """turns: of all layouts of the kernel's trees."""
    layouts = scenario.layouts
    return scenario.arguments(iterations=turns * layouts, warmup=layouts)


def data_of(
    trace: TraceSettings,
    case: tuple[workload.Workload, workload.Scenario],
    seen: Sequence[tuple[Ran, Mapping[Key, int]]],
    last: output.Reading,
) -> TraceData:
    """The hits of watched runs.  last: what the last printed.

    Raises GuestError for a run that printed garbage, Lacking for a program without iterations.
    """
    runs = []
    for ran, hits in seen:
        reading = output.parse_output(ran.printed, *case)
        iterations = len(reading.samples) // max(len(reading.phases), 1)
        runs.append(SeenRun(iterations=iterations, hits=hits))
    turns, rows = seeing.rows(trace.hits_per, runs)
    if min(turns) < 1:
        raise Lacking('its program is told no iterations: trace it with hits_per = "run"')
    return TraceData(
        phases=tuple(
            TracePhase(phase=one.name, operations=one.operations, operation=one.operation)
            for one in last.phases
        ),
        per=trace.hits_per,
        turns=turns,
        rows=tuple(rows),
    )


def keep_raw(folder: Path, text: str) -> None:
    """Keep all that tracefs said in a trial's folder."""
    (folder / TRACEFS).write_bytes(gzip.compress(text.encode(), compresslevel=3, mtime=0))
