# SPDX-License-Identifier: GPL-2.0-or-later
"""Trials of the trace instrument, in guests under emulation: what the kernel's own tracing counts.

One guest runs its program several times, with more and more iterations, so that the difference of
two runs is of iterations alone.  No plugin counts meanwhile and no time is read.  The guest gets
all orders before it starts.  An order that its kernel refuses costs only what it is for.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from kdelta import output, workload
from kdelta.attribution.symbols import UNKNOWN
from kdelta.errors import GuestError, KdeltaError
from kdelta.guests import checkpoint, orders
from kdelta.guests.orders import Answers, Order, SwapBacking
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import Lacking, MachineSettings
from kdelta.machine.identity import GuestIdentity
from kdelta.run.exact import ExactTrials
from kdelta.run.guest_trial import Bench, GuestTrial
from kdelta.run.runner import How
from kdelta.run.trial import TRACEFS, bounded, framed, ran_as, set_up
from kdelta.sample import TraceData, TracePhase, TraceRow, TraceSkip, TrialResult
from kdelta.study.probes import TraceSettings, Watch, WatchKind, watch
from kdelta.tracing import tracefs
from kdelta.tracing.tracefs import Key, Probe

ROOT = "/sys/kernel/tracing"
_BUFFER_KB = 8192  # of each CPU, for a graph
_ALIKE = "write /proc/sys/kernel/randomize_va_space 0"  # runs of a program differ in nothing else
# Off: keep the beginning of a graph, without interrupts.
_GRAPH_OPTIONS = ("options/overwrite", "options/funcgraph-irqs")


class GuestTrace:
    """Runs the program once unwatched, or for a graph, then once for each of `runs`."""

    def __init__(
        self,
        before: Sequence[Order],
        watched: Sequence[Watch],
        probes: Sequence[Probe],
        *,
        first: Sequence[str],
        runs: Sequence[Sequence[str]],
        cpus: int,
    ) -> None:
        """before: other orders.  first, runs: the program's arguments in each of its runs."""
        self._before, self._probes = tuple(before), tuple(probes)
        self._graphs = tuple(one for one in watched if one.kind is WatchKind.GRAPH)
        self._cpus, self._runs = range(cpus), range(len(runs))
        self._named: dict[str, Order] = {}
        self._answers: dict[str, str] = {}
        self._add("mounted", "tracefs")
        self._add("alike", _ALIKE)
        self._order_graph(first)
        for probe in self._probes:
            if probe.definition:
                self._write(f"define {probe.name}", "kprobe_events", probe.definition)
            self._read(f"format {probe.name}", f"{probe.folder}/format")
            self._write(f"trigger {probe.name}", f"{probe.folder}/trigger", probe.trigger)
        for at, arguments in enumerate(runs):
            self._add(f"run {at}", orders.run(arguments).line)
            for probe in self._probes:
                self._read(f"hist {at} {probe.name}", f"{probe.folder}/hist")
            self._read(f"missed {at}", "kprobe_profile")
        self._read("errors", "error_log")

    def _order_graph(self, first: Sequence[str]) -> None:
        for one in self._graphs:
            # A name that no blank ends is looked up when the file is closed, where errors are lost.
            self._write(f"choose {one.name}", "set_graph_function", f"{one.name} ")
        if self._graphs:
            for option in _GRAPH_OPTIONS:
                self._write(option, option, 0)
            self._write("buffer", "buffer_size_kb", _BUFFER_KB)
            self._write("tracer", "current_tracer", "function_graph")
        self._add("first", orders.run(first).line)
        if self._graphs:
            self._write("stop", "tracing_on", 0)
            self._read("graph", "trace")
            for cpu in self._cpus:
                self._read(f"lost {cpu}", f"per_cpu/cpu{cpu}/stats")
            self._write("no tracer", "current_tracer", "nop")

    def _add(self, name: str, line: str) -> None:
        self._named[name] = orders.attempt(line)

    def _write(self, name: str, file: str, value: object) -> None:
        self._add(name, f"write {ROOT}/{file} {value}")

    def _read(self, name: str, file: str) -> None:
        self._add(name, f"whole {ROOT}/{file}")

    @property
    def orders(self) -> tuple[Order, ...]:
        """All orders."""
        return (*self._before, *self._named.values())

    def answered(self, answers: Answers) -> str:
        """Take the answers; returns them as text, each behind its order."""
        texts = [text for text, _ in answers.answered[len(self._before) :]]
        self._answers = dict(zip(self._named, texts, strict=False))
        return "".join(f"==> {self._named[at].line}\n{t}\n" for at, t in self._answers.items())

    def _told(self, name: str) -> tuple[str, int]:
        """The answer to an order, and its errno or exit status."""
        if name not in self._answers:
            raise GuestError("the guest did not do all its orders")
        return orders.attempted(self._answers[name])

    def _text(self, name: str) -> str | None:
        text, status = self._told(name)
        return None if status else text

    def ran(self) -> list[tuple[str, int]]:
        """What each run of the program printed, and its exit status; the unwatched one first."""
        return [self._told(name) for name in ("first", *(f"run {at}" for at in self._runs))]

    def refused(self) -> list[TraceSkip]:
        """What this kernel does not let be watched; each once."""
        found = [*self._refused_probes(), *self._refused_graphs()]
        return list({one.watch: one for one in reversed(found)}.values())[::-1]

    def _refused_probes(self) -> Iterator[TraceSkip]:
        for probe in self._probes:
            defined = self._told(f"define {probe.name}")[1] if probe.definition else 0
            shape, hist = self._text(f"format {probe.name}"), self._told(f"trigger {probe.name}")
            why = self._without_tracefs() or tracefs.why(probe, defined, shape, hist[1])
            if why:
                yield TraceSkip(watch=probe.watch.text, reason=why)

    def _without_tracefs(self) -> str:
        status = self._told("mounted")[1]
        return tracefs.refusal(status, "tracefs") if status else ""

    def _refused_graphs(self) -> Iterator[TraceSkip]:
        for one in self._graphs:
            reason = self._without_tracefs()
            if not reason and (status := self._told("tracer")[1]):
                reason = tracefs.refusal(status, "function_graph")
            if not reason and self._told(f"choose {one.name}")[1]:
                reason = f"ftrace cannot trace {one.name}: inlined, notrace, or not there"
            if reason:
                yield TraceSkip(watch=one.text, reason=reason)

    def graph(self) -> tuple[list[TraceRow], list[str]]:
        """Calls below the functions that have a graph, and what was lost of them."""
        refused = {one.watch for one in self._refused_graphs()}
        watched = [watch for watch in self._graphs if watch.text not in refused]
        if not watched:
            return [], []
        lost = sum(tracefs.lost(self._text(f"lost {cpu}") or "") for cpu in self._cpus)
        return tracefs.graph_rows(watched, tracefs.graph(self._text("graph") or ""), lost)

    def hits(self) -> tuple[list[dict[Key, int]], list[str]]:
        """Of each run what happened in it, and what was lost of it."""
        refused = {one.watch for one in self._refused_probes()}
        probes = [probe for probe in self._probes if probe.watch.text not in refused]
        before: Counter[Key] = Counter()
        found, doubts = [], dict[str, None]()
        for at in self._runs:
            so_far, lost = self._until(at, probes)
            found.append(tracefs.between(so_far, before))
            doubts |= dict.fromkeys(lost)
            before = so_far
        return found, list(doubts)

    def _until(self, at: int, probes: Sequence[Probe]) -> tuple[Counter[Key], list[str]]:
        texts = {one.name: self._text(f"hist {at} {one.name}") or "" for one in probes}
        shapes = {one.name: self._text(f"format {one.name}") or "" for one in probes}
        found, doubts = tracefs.counted(probes, texts, shapes)
        missed = tracefs.missed(self._text(f"missed {at}") or "")
        for probe in probes:
            if probe.definition and (count := missed.get(probe.event, 0)):
                doubts.append(f"{probe.watch.text}: {count} hits were missed")
        return found, doubts


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
        self, bench: Bench, kernel: Kernel, scenario: workload.Scenario, folder: Path, _how: How
    ) -> TrialResult:
        program = workload.load(scenario.workload).program
        trial = _TracedGuest(bench, kernel, scenario, program, folder)
        result = partial(trial.result, self._trace)
        return framed(folder, result, kernel=kernel.identity(), fresh_boot=bench.fresh_boot)


class _TracedGuest(GuestTrial):
    def result(self, settings: TraceSettings) -> TrialResult:
        _, (trace, absent, identity) = self._used(partial(self._run, settings))
        rans = [
            ran_as(identity, self._bench.settings, self._kernel.release, printed, status)
            for printed, status in trace.ran()
        ]
        ran = next((one for one in rans if one.status), rans[-1])
        (self._folder / "workload.txt").write_text(ran.printed)

        def measured(last: output.Reading) -> tuple[TraceData, list[str]]:
            """Raises GuestError for garbage, Lacking for a program without iterations."""
            counted, doubts = trace.hits()
            made = []
            for each in rans[1:]:
                reading = output.parse_output(each.printed, self._workload, self._scenario)
                made.append(len(reading.samples) // max(len(reading.phases), 1))
            turns, rows = tracefs.rows(settings.hits_per, made, counted)
            if min(turns) < 1:
                raise Lacking('its program is said no iterations: trace it with hits_per = "run"')
            called, lost = trace.graph()
            phases = (
                TracePhase(phase=one.name, operations=one.operations, operation=one.operation)
                for one in last.phases
            )
            found = TraceData(
                phases=tuple(phases),
                per=settings.hits_per,
                turns=turns,
                rows=(*rows, *called),
                skipped=(*absent, *trace.refused()),
                doubts=tuple(map(bounded, [*doubts, *lost])),
            )
            return found, []

        return self._judged(ran, identity, measured)

    def _run(
        self, settings: TraceSettings, point: checkpoint.Checkpoint, given: SwapBacking
    ) -> tuple[GuestTrace, list[TraceSkip], GuestIdentity]:
        bench = self._bench
        watched = tuple(map(watch, settings.watch))
        names = [name for name in self._guest.symbols(point).names if name != UNKNOWN]
        probes, absent = tracefs.probes(watched, names)
        runs = tracefs.schedule(settings.hits_per, settings.turns)
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
