# SPDX-License-Identifier: GPL-2.0-or-later
"""The orders by which a guest traces its program, and what its answers amount to.

The guest gets all orders before it starts.  An order that its kernel refuses costs only what it is
for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from kdelta.errors import GuestError
from kdelta.guests import orders
from kdelta.guests.orders import Answers, Order
from kdelta.sample import TraceRow, TraceSkip
from kdelta.study.tracing import Watch, WatchKind
from kdelta.tracing import hits as tracing
from kdelta.tracing import tracefs
from kdelta.tracing.hits import Key
from kdelta.tracing.tracefs import Probe

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
        self._before = tuple(before)
        self._probes = tuple(probes)
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
        for watch in self._graphs:
            # A name that no blank ends is looked up when the file is closed, where errors are lost.
            self._write(f"choose {watch.name}", "set_graph_function", f"{watch.name} ")
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
        """A file's content, None when it cannot be read."""
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
            if reason := self._without_tracefs() or self._why(probe):
                yield TraceSkip(watch=probe.watch.text, reason=reason)

    def _why(self, probe: Probe) -> str:
        defined = self._told(f"define {probe.name}")[1] if probe.definition else 0
        shape, triggered = self._text(f"format {probe.name}"), self._told(f"trigger {probe.name}")
        return tracefs.why(probe, defined, shape, triggered[1])

    def _without_tracefs(self) -> str:
        status = self._told("mounted")[1]
        return tracefs.refusal(status, "tracefs") if status else ""

    def _refused_graphs(self) -> Iterator[TraceSkip]:
        for watch in self._graphs:
            reason = self._without_tracefs()
            if not reason and (status := self._told("tracer")[1]):
                reason = tracefs.refusal(status, "function_graph")
            if not reason and self._told(f"choose {watch.name}")[1]:
                reason = f"ftrace cannot trace {watch.name}: inlined, notrace, or not there"
            if reason:
                yield TraceSkip(watch=watch.text, reason=reason)

    def graph(self) -> tuple[list[TraceRow], list[str]]:
        """Calls below the functions that have a graph, and what was lost of them."""
        refused = {one.watch for one in self._refused_graphs()}
        watched = [watch for watch in self._graphs if watch.text not in refused]
        if not watched:
            return [], []
        lost = sum(tracefs.lost(self._text(f"lost {cpu}") or "") for cpu in self._cpus)
        return tracing.graph_rows(watched, tracefs.graph(self._text("graph") or ""), lost)

    def hits(self) -> tuple[list[dict[Key, int]], list[str]]:
        """Of each run what happened in it, and what was lost of it."""
        refused = {one.watch for one in self._refused_probes()}
        probes = [probe for probe in self._probes if probe.watch.text not in refused]
        before: Counter[Key] = Counter()
        found, doubts = [], dict[str, None]()
        for at in self._runs:
            so_far, lost = self._until(at, probes)
            found.append(tracing.between(so_far, before))
            doubts |= dict.fromkeys(lost)
            before = so_far
        return found, list(doubts)

    def _until(self, at: int, probes: Sequence[Probe]) -> tuple[Counter[Key], list[str]]:
        """All hits from the beginning to the end of a run."""
        texts = {one.name: self._text(f"hist {at} {one.name}") or "" for one in probes}
        shapes = {one.name: self._text(f"format {one.name}") or "" for one in probes}
        hits, doubts = tracing.counted(probes, texts, shapes)
        missed = tracefs.missed(self._text(f"missed {at}") or "")
        for probe in probes:
            if probe.definition and (count := missed.get(probe.event, 0)):
                doubts.append(f"{probe.watch.text}: {count} hits were missed")
        return hits, doubts
