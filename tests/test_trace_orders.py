# SPDX-License-Identifier: GPL-2.0-or-later
"""What a guest is told to trace, against a tracefs made of Python; tests/boot has a real one."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from kdelta.errors import GuestError
from kdelta.guests import orders
from kdelta.guests.orders import Answers, Order
from kdelta.run.traced import ROOT, GuestTrace
from kdelta.study.probes import watch
from kdelta.tracing import tracefs
from test_tracing_formats import FORMAT, GRAPH, STATS

BEFORE = (Order("identity"), Order("seed 1"))
HITS = 100  # of each probe in a run


@dataclass
class FakeTracefs:
    """Answers of a kernel.  refuses: what it is told that fails, and with which errno."""

    refuses: dict[str, int] = field(default_factory=dict)
    runs: int = 0
    triggers: dict[str, list[str]] = field(default_factory=dict)

    def answer(self, order: Order) -> tuple[str, int]:
        if not order.line.startswith("try "):
            return "", 0
        text, status = self._tried(order.line.removeprefix("try "))
        return f"{text}\n{status}\n", 0

    def _tried(self, line: str) -> tuple[str, int]:
        for part, status in self.refuses.items():
            if part in line:
                return "", status
        word, _, rest = line.partition(" ")
        if word == "run":
            self.runs += 1
            return f"ran {rest}", 0
        path, _, value = rest.partition(" ")
        name = path.removeprefix(ROOT)
        if name.endswith("/trigger"):
            key = value.removeprefix("hist:keys=").partition(":")[0]
            self.triggers.setdefault(name.removesuffix("trigger"), []).append(key)
        return (self._file(name), 0) if word == "whole" else ("", 0)

    def _file(self, name: str) -> str:
        if name.endswith("/hist"):
            return "\n".join(map(self._hist, self.triggers.get(name.removesuffix("hist"), [])))
        files = {"/kprobe_profile": " w0_0 100 3\n", "/trace": GRAPH}
        files |= {"/per_cpu/cpu0/stats": STATS}
        return files.get(name, FORMAT if name.endswith("/format") else "")

    def _hist(self, key: str) -> str:
        counted = self.runs * HITS
        row = f"{{ {key}:  1 }} hitcount:  {counted}\n\n" if counted else ""
        head = f"# event histogram\n#\n# trigger info: hist:keys={key}:size=4096 [active]\n#\n\n"
        return f"{head}{row}Totals:\n    Hits: {counted}\n    Entries: {int(bool(row))}\n"


def traced(kernel: FakeTracefs, *watched: str, runs: int = 2) -> tuple[GuestTrace, str]:
    things = [*map(watch, watched)]
    names = {one.name for one in things}
    probes, _ = tracefs.probes(things, names)
    trace = GuestTrace(
        BEFORE, things, probes, first=["0"], runs=[[str(n)] for n in range(1, runs + 1)], cpus=1
    )
    told = trace.orders
    raw = trace.answered(Answers(told, tuple(map(kernel.answer, told))))
    return trace, raw


def lines(trace: GuestTrace) -> list[str]:
    return [order.line.removeprefix(f"try write {ROOT}/") for order in trace.orders]


def test_hits_are_those_of_each_run_though_histograms_go_on() -> None:
    trace, raw = traced(FakeTracefs(), "f", "s:e(status)", "s:e")
    hits, doubts = trace.hits()
    per_run = {
        ("f", "", None): HITS,
        ("s:e(status)", "succeeded", 1): HITS,
        ("s:e", "", None): HITS,
    }
    assert [{key: run[key] for key in per_run} for run in hits][1] == per_run
    assert doubts == ["f: 3 hits were missed"]
    assert [text for text, _ in trace.ran()] == ["ran 0", "ran 1", "ran 2"]
    assert not trace.refused()
    assert trace.graph() == ([], [])
    assert "==> try run 1\nran 1\n0\n" in raw
    assert "identity" not in raw


def test_a_graph_is_of_the_first_run_alone() -> None:
    trace, _ = traced(FakeTracefs(), "graph(f)", "f")
    rows, lost = trace.graph()
    assert [row.hits for row in rows if row.key == "do_mprotect_pkey"] == [(1,)]
    assert lost == ["graph(f): 9 entries did not fit into the buffer"]
    told = lines(trace)
    first = told.index("try run 0")
    assert told.index("set_graph_function f ") < told.index("current_tracer function_graph") < first
    assert first < told.index("current_tracer nop") < told.index("kprobe_events p:kdelta/w1_0 f")


@pytest.mark.parametrize(
    ("refuses", "reasons"),
    [
        ({"p:kdelta/w0_0": errno.EINVAL}, {"f": "lets nobody trace it"}),
        (
            {"s/e/format": errno.ENOENT, "s/e/trigger": errno.ENOENT},
            {"s:e(status)": "no event s:e"},
        ),
        ({"set_graph_function f": errno.EINVAL}, {"graph(f)": "ftrace cannot trace f"}),
        ({"current_tracer function_graph": errno.EINVAL}, {"graph(f)": "no function_graph"}),
    ],
)
def test_what_is_refused_costs_itself_alone(
    refuses: dict[str, int], reasons: dict[str, str]
) -> None:
    names = ("f", "s:e(status)", "graph(f)", "other")
    kernel = FakeTracefs(refuses)
    trace, _ = traced(kernel, *names)
    found = {one.watch: one.reason for one in trace.refused()}
    assert set(found) == set(reasons)
    for name, reason in reasons.items():
        assert reason in found[name]
    hits, _ = trace.hits()
    watched = {key[0] for key in hits[0]}
    assert watched == {*names} - {"graph(f)", *reasons}
    assert (trace.graph() == ([], [])) == ("graph(f)" in reasons)


def test_without_tracefs_nothing_is_watched() -> None:
    for status in (errno.ENODEV, errno.EPERM):
        trace, _ = traced(FakeTracefs({"tracefs": status, "tracing": status}), "f", "graph(g)")
        assert {one.watch for one in trace.refused()} == {"f", "graph(g)"}
        assert all(one.reason.startswith("no tracefs") for one in trace.refused())
        hits, _ = trace.hits()
        assert hits == [{}, {}]


@pytest.mark.parametrize("cut", [lambda told: told[:-3], lambda told: [("", 0) for _ in told]])
def test_answers_that_are_missing_or_none(
    cut: Callable[[Sequence[tuple[str, int]]], Sequence[tuple[str, int]]],
) -> None:
    trace, _ = traced(FakeTracefs(), "f")
    told = tuple(map(FakeTracefs().answer, trace.orders))
    trace.answered(Answers(trace.orders, tuple(cut(told))))
    with pytest.raises(GuestError):
        trace.hits()


def test_an_order_that_is_tried_tells_its_status_behind_its_answer() -> None:
    assert orders.attempt("read /sys/x").line == "try read /sys/x"
    assert orders.attempted("a\nb\n\n22\n") == ("a\nb\n", 22)
    assert orders.attempted("\n0\n") == ("", 0)
    for text in ("", "a\n", "a\nx\n"):
        with pytest.raises(GuestError):
            orders.attempted(text)
