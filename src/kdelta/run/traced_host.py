# SPDX-License-Identifier: GPL-2.0-or-later
"""Trials of the trace instrument on this host: its program alone, in an instance of our own."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from kdelta import arch, guest, output, process, workload
from kdelta.attribution import symbols
from kdelta.errors import KdeltaError
from kdelta.host import cpus, facts, native
from kdelta.host import tracing as host
from kdelta.host.native import NativeRun
from kdelta.host.tracing import HostTracefs
from kdelta.machine.axes import MachineSettings, with_needs
from kdelta.run import traced
from kdelta.run.host_graph import HostGraph
from kdelta.run.observers import Observing
from kdelta.run.timed import host_kernel
from kdelta.run.trial import Ran, framed, judged, not_for, told
from kdelta.run.trials import AS_PLANNED, How, Trials
from kdelta.sample import Instrument, MachineFacts, TraceData, TrialRecord, TrialResult
from kdelta.study.tracing import (
    HOST,
    PROGRAMS,
    TraceSettings,
    Watch,
    WatchKind,
    map_of,
    watch,
)
from kdelta.tracing import formats, seeing, setting
from kdelta.tracing.seeing import Key
from kdelta.tracing.setting import Probe, Refused

_KALLSYMS = Path("/proc/kallsyms")
_EVERYBODY = "hits of tracefs are of all tasks of this host: a task of the kernel does the work"


class HostTracedTrials(Trials):
    """Traces the kernel that runs now; tracefs and bpftrace are root's alone."""

    def __init__(
        self,
        trace: TraceSettings,
        timeout_s: float,
        cancelled: threading.Event,
        root: Path = host.ROOT,
    ) -> None:
        """timeout_s: of one run of the program.  Raises SpecError, InfraError (host.tracing)."""
        self.cancelled = cancelled
        self._trace = trace
        self._watched = tuple(map(watch, trace.watch))
        self._none = _without_tracefs(self._watched, root)
        self._timeout_s = timeout_s
        self._root = root

    def measure(self, trial: TrialRecord, folder: Path, _how: How = AS_PLANNED) -> TrialResult:
        """Run the workload's program several times, each watched by its process number."""
        load = workload.load(trial.workload)
        scenario = load.scenario(trial.scenario)
        if skip := not_for(Instrument.TIME, scenario):
            return skip
        before = facts.read()
        count = min(with_needs(MachineSettings(), scenario.needs).cpus, len(cpus.cores()))

        def measure() -> TrialResult:
            with cpus.lease(count, self.cancelled) as leased, ExitStack() as held:
                tracefs = None
                if not self._none:
                    tracefs = held.enter_context(host.instance(self.cancelled, self._root))
                raw: list[str] = tracefs.raw if tracefs else []
                try:
                    return self._traced((tracefs, raw), load, scenario, leased, folder)
                finally:
                    traced.keep_raw(folder, "".join(raw))

        kernel = host_kernel(HOST, before)
        return framed(folder, measure, kernel=kernel, facts=MachineFacts(host=before))

    def _traced(
        self,
        tracing: tuple[HostTracefs | None, list[str]],
        load: workload.Workload,
        scenario: workload.Scenario,
        leased: Sequence[int],
        folder: Path,
    ) -> TrialResult:
        tracefs, raw = tracing
        binary = guest.program(load.program, arch.native(), theirs=scenario.outside)
        probes, refused = _set(tracefs, self._watched) if tracefs else ([], self._refused)
        first, runs = traced.schedule(self._trace, scenario)
        command = native.command(binary, first, leased)
        (folder / "command.txt").write_text(process.quote(command) + "\n")

        place = _Place(tracefs, raw, binary, leased, every_task=load.every_task)
        programs = [one for one in self._watched if one.kind in PROGRAMS]
        graphs = seeing.of_kind(self._watched, WatchKind.GRAPH)
        graph = HostGraph(tracefs, graphs) if tracefs and graphs else None
        uncounted = self._run(place, first, graph=graph).ran
        seen = [self._run(place, arguments, probes, programs) for arguments in runs]
        ran = next((one for one in (uncounted, *(s.ran for s in seen)) if one.status), seen[-1].ran)
        (folder / "workload.txt").write_text(ran.printed)
        refused += [one for each in seen for one in each.refused]
        refused += graph.refused if graph else []
        left_out = {each.watch for each in refused}
        usable = [one for one in probes if one.watch not in left_out]

        def data(last: output.Reading) -> tuple[TraceData, list[str]]:
            counted = [(each.ran, *each.hits(usable, left_out)) for each in seen]
            found = traced.data_of(
                self._trace, (load, scenario), [(one, hits) for one, hits, _ in counted], last
            )
            doubts = dict.fromkeys(doubt for *_, lost in counted for doubt in lost)
            if load.every_task and any(one.watch.kind not in PROGRAMS for one in usable):
                doubts |= {_EVERYBODY: None}
            rows = found.rows
            if graph and (recorded := graph.seen):
                called, lost = seeing.graphed(recorded)
                rows, doubts = (*rows, *called), {**doubts, **dict.fromkeys(lost)}
            return replace(
                found, rows=rows, skipped=seeing.skips(refused), doubts=tuple(map(told, doubts))
            ), []

        return judged(ran, load, scenario, data)

    def _run(
        self,
        place: _Place,
        arguments: Sequence[str],
        of: Sequence[Probe] = (),
        beside: Sequence[Watch] = (),
        graph: HostGraph | None = None,
    ) -> _Seen:
        every, tracefs = place.every_task, place.tracefs
        watching = _Watching(tracefs, of, every_task=every) if tracefs else None
        with Observing(self._trace.programs, beside, place.raw) as observing:
            done = native.run(
                place.binary,
                arguments,
                place.leased,
                timeout=self._timeout_s,
                cancelled=self.cancelled,
                begin=lambda pid: _begin(pid, observing, watching, graph),
            )
            if graph:
                graph.end()
            if watching:
                watching.end()
            observing.end()
        return _Seen(_ran(done), watching, observing)

    @property
    def _refused(self) -> list[Refused]:
        """What only tracefs could tell, where there is none to be had."""
        asked = (one for one in self._watched if one.kind not in PROGRAMS)
        return [Refused(watch=one, reason=self._none) for one in asked]


def _without_tracefs(watched: Sequence[Watch], root: Path) -> str:
    """Why tracefs is not used, "" when it is.  Raises KdeltaError when nothing else is watched."""
    programs = [one for one in watched if one.kind in PROGRAMS]
    if len(programs) == len(watched):
        return "nothing of it is watched"
    try:
        host.check(root)
    except KdeltaError as error:
        if not programs:
            raise
        return error.cause
    return ""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a program runs, and what is told of it."""

    tracefs: HostTracefs | None
    raw: list[str]
    binary: Path
    leased: Sequence[int]
    every_task: bool = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class _Seen:
    """One run of the program, and what watched it."""

    ran: Ran
    watching: _Watching | None
    observing: Observing

    @property
    def refused(self) -> list[Refused]:
        return [*(self.watching.refused if self.watching else ()), *self.observing.refused]

    def hits(
        self, probes: Sequence[Probe], left_out: Collection[Watch]
    ) -> tuple[dict[Key, int], list[str]]:
        """What the process did, and what was lost of it.  Raises GuestError."""
        hits, doubts = self.watching.hits(probes) if self.watching else ({}, [])
        for one, (found, lost) in self.observing.told.items():
            if one not in left_out:
                hits |= {
                    (map_of(one.text, name), key, None): count
                    for (name, key), count in found.items()
                }
                doubts += [f"{one.text}: {lost} events were lost"] if lost else []
        return hits, doubts


def _begin(
    pid: int, observing: Observing, watching: _Watching | None, graph: HostGraph | None
) -> None:
    observing.begin(pid)
    for one in (watching, graph):
        if one:
            one.begin(pid)


def _ran(done: NativeRun) -> Ran:
    return Ran(printed=done.text, status=done.status, permitted=os.geteuid() == 0)


def _set(tracefs: HostTracefs, watched: Sequence[Watch]) -> tuple[list[Probe], list[Refused]]:
    """Make the kprobes of what is watched; those that this kernel took, and what it refused."""
    names = symbols.parse(_KALLSYMS.read_text()).names
    probes, refused = setting.probes(watched, names, tracefs.group)
    refused += _guests_only(watched)
    kept = []
    for probe in probes:
        defined = tracefs.define(probe.definition) if probe.definition else 0
        shape = tracefs.read(f"{probe.folder}/format")
        if reason := setting.why(probe, defined, shape, 0):
            refused.append(Refused(watch=probe.watch, reason=reason))
        else:
            kept.append(probe)
    return kept, refused


def _guests_only(watched: Sequence[Watch]) -> Iterator[Refused]:
    """The profiler counts what all tasks of a host do."""
    for one in seeing.of_kind(watched, WatchKind.PROFILE):
        yield Refused(watch=one, reason="a profile, which is of all tasks, is made in guests only")


class _Watching:
    """The histograms of one run of a program: of its first thread, or of all tasks."""

    def __init__(
        self, tracefs: HostTracefs, probes: Sequence[Probe], *, every_task: bool = False
    ) -> None:
        """every_task: a task of the kernel does what is watched, so all tasks count."""
        self._tracefs = tracefs
        self._every_task = every_task
        self._probes = tuple(probes)
        self._set: list[tuple[Probe, str]] = []
        self._texts: dict[str, str | None] = {}
        self._missed_before: dict[str, int] = {}
        self._missed_after: dict[str, int] = {}
        self.refused: list[Refused] = []

    def begin(self, pid: int) -> None:
        """Count from now on what a process does, or all tasks do."""
        self._missed_before = self._all_missed()
        for probe in self._probes:
            trigger = probe.trigger(None if self._every_task else pid)
            if status := self._tracefs.write(f"{probe.folder}/trigger", trigger):
                reason = setting.why(probe, 0, self._shape(probe), status)
                self.refused.append(Refused(watch=probe.watch, reason=reason))
            else:
                self._set.append((probe, trigger))

    def end(self) -> None:
        """Read the histograms, and remove them."""
        for probe, trigger in self._set:
            self._texts[probe.name] = self._tracefs.read(f"{probe.folder}/hist")
            self._tracefs.write(f"{probe.folder}/trigger", f"!{trigger}")
        self._missed_after = self._all_missed()

    def hits(self, probes: Sequence[Probe]) -> tuple[dict[Key, int], list[str]]:
        """What the process did, and what was lost of it.  Raises GuestError."""
        texts = {one.name: self._texts.get(one.name) or "" for one in probes}
        shapes = {one.name: self._shape(one) or "" for one in probes}
        hits, doubts = seeing.counted(probes, texts, shapes)
        lost = {
            name: count - self._missed_before.get(name, 0)
            for name, count in self._missed_after.items()
        }
        return dict(hits), [*doubts, *seeing.lost_hits(probes, lost)]

    def _shape(self, probe: Probe) -> str | None:
        return self._tracefs.read(f"{probe.folder}/format")

    def _all_missed(self) -> dict[str, int]:
        return formats.missed(self._tracefs.read(setting.MISSED, whole=True) or "")
