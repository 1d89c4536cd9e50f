# SPDX-License-Identifier: GPL-2.0-or-later
"""What a guest is told to trace its program, and what its answers amount to.

All orders are given before the guest starts; one that its kernel refuses costs only what it is for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kdelta.errors import GuestError
from kdelta.guests import orders
from kdelta.guests.orders import Answers, Order
from kdelta.study.tracing import Watch, WatchKind
from kdelta.tracing import formats, seeing, setting
from kdelta.tracing.seeing import Key, SeenGraph
from kdelta.tracing.setting import Probe, Refused

ROOT = "/sys/kernel/tracing"
_BUFFER_KB = 8192  # of each CPU, for a graph
_ALIKE = "write /proc/sys/kernel/randomize_va_space 0"  # runs of a program differ in nothing else
_GRAPH_OPTIONS = (
    "options/overwrite",
    "options/funcgraph-irqs",
)  # off: keep the beginning, no ticks


class _Script:
    """Orders, and their answers by the place of each."""

    def __init__(self, before: Sequence[Order]) -> None:
        self._before = len(before)
        self.orders = [*before]
        self._answers: tuple[tuple[str, int], ...] = ()

    def add(self, line: str) -> int:
        self.orders.append(orders.attempt(line))
        return len(self.orders) - 1

    def write(self, file: str, value: object) -> int:
        return self.add(f"write {ROOT}/{file} {value}")

    def choose(self, file: str, function: str) -> int:
        # A name that no blank ends is looked up when the file is closed, where nobody hears of it.
        return self.write(file, f"{function} ")

    def read(self, file: str) -> int:
        return self.add(f"whole {ROOT}/{file}")

    def answered(self, answers: Answers) -> None:
        self._answers = answers.answered

    def told(self, at: int) -> tuple[str, int]:
        if at >= len(self._answers):
            raise GuestError("the guest did not do all its orders")
        return orders.attempted(self._answers[at][0])

    def text(self, at: int) -> str | None:
        """A file's content, None when it cannot be read."""
        text, status = self.told(at)
        return None if status else text

    def status(self, at: int) -> int:
        return self.told(at)[1]

    def raw(self) -> str:
        """All that tracefs and the program said, each behind its order."""
        pairs = zip(self.orders, self._answers, strict=False)
        kept = [(order, text) for order, (text, _) in pairs][self._before :]
        return "".join(f"==> {order.line}\n{text}\n" for order, text in kept)


@dataclass(frozen=True, slots=True)
class _Made:
    """Where it is told how an event came to be: its kprobe, its shape and its histogram."""

    defined: int | None
    shape: int
    triggered: int


@dataclass(frozen=True, slots=True)
class _Read:
    """Where it is told what one run of the program printed, and what tracefs said after it."""

    run: int
    hists: tuple[int, ...]
    missed: int
    profiles: tuple[int, ...]


class GuestTrace:
    """What a guest is told.  Runs the program once unwatched, or for a graph, then once for each of
    `runs`, which are its arguments.
    """

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
        """before: what else is ordered.  first: arguments of the run that nobody counts."""
        self._script = _Script(before)
        self._probes = tuple(probes)
        self._cpus = cpus
        self._mounted = self._script.add("tracefs")
        self._script.add(_ALIKE)
        self._graphs = seeing.of_kind(watched, WatchKind.GRAPH)
        self._profiled = seeing.of_kind(watched, WatchKind.PROFILE)
        self._order_graph(first)
        self._made = {probe.name: self._order_probe(probe) for probe in self._probes}
        self._order_profile()
        self._reads = [self._order_run(arguments) for arguments in runs]
        self._script.read("error_log")

    @property
    def orders(self) -> tuple[Order, ...]:
        """All orders."""
        return tuple(self._script.orders)

    def answered(self, answers: Answers) -> str:
        """Take the answers; all of them as text, to be kept."""
        self._script.answered(answers)
        return self._script.raw()

    def _order_graph(self, arguments: Sequence[str]) -> None:
        write, read = self._script.write, self._script.read
        self._chosen = [
            self._script.choose("set_graph_function", watch.name) for watch in self._graphs
        ]
        if self._graphs:
            for option in _GRAPH_OPTIONS:
                write(option, 0)
            write("buffer_size_kb", _BUFFER_KB)
            self._tracer = write("current_tracer", "function_graph")
        self._first = self._script.add(orders.run(arguments).line)
        if self._graphs:
            write("tracing_on", 0)
            self._recorded = read("trace")
            self._lost = [read(f"per_cpu/cpu{cpu}/stats") for cpu in range(self._cpus)]
            write("current_tracer", "nop")

    def _order_probe(self, probe: Probe) -> _Made:
        write, read = self._script.write, self._script.read
        return _Made(
            defined=write(setting.KPROBES, probe.definition) if probe.definition else None,
            shape=read(f"{probe.folder}/format"),
            triggered=write(f"{probe.folder}/trigger", probe.trigger()),
        )

    def _order_profile(self) -> None:
        names = [self._script.choose("set_ftrace_filter", one.name) for one in self._profiled]
        self._filtered = names
        if names:
            self._enabled = self._script.write("function_profile_enabled", 1)

    def _order_run(self, arguments: Sequence[str]) -> _Read:
        read = self._script.read
        cpus = range(self._cpus) if self._profiled else ()
        return _Read(
            run=self._script.add(orders.run(arguments).line),
            hists=tuple(read(f"{probe.folder}/hist") for probe in self._probes),
            missed=read(setting.MISSED),
            profiles=tuple(read(f"trace_stat/function{cpu}") for cpu in cpus),
        )

    def ran(self) -> list[tuple[str, int]]:
        """What each run of the program printed, and its exit status; the uncounted one first."""
        return [self._script.told(at) for at in (self._first, *(read.run for read in self._reads))]

    def refused(self) -> list[Refused]:
        """What this kernel does not let be watched."""
        return [*self._refused_probes(), *self._refused_graphs(), *self._refused_profiles()]

    def _refused_probes(self) -> Iterator[Refused]:
        for probe in self._probes:
            if reason := self._why(probe):
                yield Refused(watch=probe.watch, reason=reason)

    def _why(self, probe: Probe) -> str:
        if reason := self._without_tracefs():
            return reason
        made, status = self._made[probe.name], self._script.status
        defined = status(made.defined) if made.defined is not None else 0
        shape = self._script.text(made.shape)
        return setting.why(probe, defined, shape, status(made.triggered))

    def _without_tracefs(self) -> str:
        status = self._script.status(self._mounted)
        return setting.refusal(status, "tracefs") if status else ""

    def _refused_graphs(self) -> Iterator[Refused]:
        for watch, at in zip(self._graphs, self._chosen, strict=True):
            reason = self._without_tracefs()
            if not reason and (status := self._script.status(self._tracer)):
                reason = setting.refusal(status, "function_graph")
            if not reason and self._script.status(at):
                reason = f"ftrace cannot trace {watch.name}: inlined, notrace, or not there"
            if reason:
                yield Refused(watch=watch, reason=reason)

    def _refused_profiles(self) -> Iterator[Refused]:
        for watch, at in zip(self._profiled, self._filtered, strict=True):
            reason = self._without_tracefs()
            if not reason and self._script.status(self._enabled):
                reason = "no function profiler in this kernel (CONFIG_FUNCTION_PROFILER)"
            if not reason and self._script.status(at):
                reason = f"ftrace cannot trace {watch.name}: inlined, notrace, or not there"
            if reason:
                yield Refused(watch=watch, reason=reason)

    def graph(self) -> SeenGraph | None:
        """What was recorded below the functions that could be watched."""
        refused = {one.watch for one in self._refused_graphs()}
        watched = tuple(watch for watch in self._graphs if watch not in refused)
        if not watched:
            return None
        texts = [self._script.text(at) or "" for at in self._lost]
        return SeenGraph(
            watched=watched,
            calls=formats.graph(self._script.text(self._recorded) or ""),
            lost=sum(map(formats.lost, texts)),
        )

    def hits(self) -> tuple[list[dict[Key, int]], list[str]]:
        """Of each run what happened in it, and what was lost of it."""
        refused = {one.watch for one in self.refused()}
        probes = [probe for probe in self._probes if probe.watch not in refused]
        profiled = [watch for watch in self._profiled if watch not in refused]
        before: Counter[Key] = Counter()
        found, doubts = [], dict[str, None]()
        for read in self._reads:
            so_far, lost = self._after(read, probes, profiled)
            found.append(seeing.between(so_far, before))
            doubts |= dict.fromkeys(lost)
            before = so_far
        return found, list(doubts)

    def _after(
        self, read: _Read, probes: Sequence[Probe], profiled: Sequence[Watch]
    ) -> tuple[Counter[Key], list[str]]:
        """All hits from the beginning up to the end of a run."""
        texts = dict(zip((one.name for one in self._probes), read.hists, strict=True))
        hists = {one.name: self._script.text(texts[one.name]) or "" for one in probes}
        shapes = {p.name: self._script.text(self._made[p.name].shape) or "" for p in probes}
        hits, doubts = seeing.counted(probes, hists, shapes)
        doubts += seeing.lost_hits(probes, formats.missed(self._script.text(read.missed) or ""))
        for at in read.profiles if profiled else ():
            told = formats.profile(self._script.text(at) or "")
            for watch in profiled:
                hits[watch.text, "", None] += told.get(watch.name, 0)
        return hits, doubts
