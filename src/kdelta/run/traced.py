# SPDX-License-Identifier: GPL-2.0-or-later
"""Trials of the trace instrument, in guests under emulation: what the kernel's own tracing counts.

One guest runs its program several times, with more and more iterations, so that the difference of
two runs is of iterations alone.  No plugin counts meanwhile and no time is read.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from kdelta import output, workload
from kdelta.attribution.symbols import UNKNOWN
from kdelta.errors import KdeltaError
from kdelta.guests import checkpoint
from kdelta.guests.orders import SwapBacking
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import Lacking, MachineSettings
from kdelta.machine.identity import GuestIdentity
from kdelta.run.exact import ExactTrials
from kdelta.run.guest_trial import Bench, GuestTrial
from kdelta.run.runner import How
from kdelta.run.trace_orders import GuestTrace
from kdelta.run.trial import TRACEFS, Ran, bounded, framed, ran_as, set_up
from kdelta.sample import TraceData, TracePhase, TraceSkip, TrialResult
from kdelta.study import tracing
from kdelta.study.tracing import TraceSettings
from kdelta.tracing import hits, tracefs


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
        trial = _TracedGuest(bench, kernel, scenario, program, folder)
        result = partial(trial.result, self._trace)
        return framed(folder, result, kernel=kernel.identity(), fresh_boot=bench.fresh_boot)


class _TracedGuest(GuestTrial):
    def result(self, settings: TraceSettings) -> TrialResult:
        """Trace, and read what was counted."""
        _, (trace, absent, identity) = self._used(partial(self._run, settings))
        rans = [
            ran_as(identity, self._bench.settings, self._kernel.release, printed, status)
            for printed, status in trace.ran()
        ]
        ran = next((one for one in rans if one.status), rans[-1])
        (self._folder / "workload.txt").write_text(ran.printed)

        def measured(last: output.Reading) -> tuple[TraceData, list[str]]:
            found = self._data(settings, trace, rans[1:], last)
            return replace(found, skipped=(*absent, *trace.refused())), []

        return self._judged(ran, identity, measured)

    def _run(
        self, settings: TraceSettings, point: checkpoint.Checkpoint, given: SwapBacking
    ) -> tuple[GuestTrace, list[TraceSkip], GuestIdentity]:
        bench = self._bench
        watched = tuple(map(tracing.watch, settings.watch))
        names = [name for name in self._guest.symbols(point).names if name != UNKNOWN]
        probes, absent = tracefs.probes(watched, names)
        runs = hits.schedule(settings.hits_per, settings.turns)
        trace = GuestTrace(
            set_up(bench.settings, given, bench.seed),
            watched,
            probes,
            first=self._arguments(1),
            runs=[self._arguments(turns) for turns in runs],
            cpus=bench.settings.cpus,
        )
        launch = self._launched(point, given, trace.orders)
        answers = self._asked(point, launch, lambda machine: machine.finish(bench.timeout_s))
        raw = trace.answered(answers).encode()
        (self._folder / TRACEFS).write_bytes(gzip.compress(raw, compresslevel=3, mtime=0))
        return trace, absent, answers.identity(bench.settings)

    def _arguments(self, turns: int) -> list[str]:
        """turns: of all layouts of the kernel's trees."""
        layouts = self._scenario.layouts
        return self._scenario.arguments(iterations=turns * layouts, warmup=layouts)

    def _data(
        self, settings: TraceSettings, trace: GuestTrace, rans: Sequence[Ran], last: output.Reading
    ) -> TraceData:
        """What was counted.  last: what the last run printed.

        Raises GuestError for a run that printed garbage, Lacking for a program without iterations.
        """
        counted, doubts = trace.hits()
        turns, rows = hits.rows(settings.hits_per, list(map(self._iterations, rans)), counted)
        if min(turns) < 1:
            raise Lacking('its program is told no iterations: trace it with hits_per = "run"')
        called, lost = trace.graph()
        return TraceData(
            phases=tuple(
                TracePhase(phase=one.name, operations=one.operations, operation=one.operation)
                for one in last.phases
            ),
            per=settings.hits_per,
            turns=turns,
            rows=(*rows, *called),
            doubts=tuple(map(bounded, [*doubts, *lost])),
        )

    def _iterations(self, ran: Ran) -> int:
        reading = output.parse_output(ran.printed, self._workload, self._scenario)
        return len(reading.samples) // max(len(reading.phases), 1)
