# SPDX-License-Identifier: GPL-2.0-or-later
"""What a study watches, what tracefs says of it, and the orders by which a guest traces."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdelta.errors import GuestError, SpecError
from kdelta.guests import orders
from kdelta.run.traced import ROOT, GuestTrace
from kdelta.sample import TraceSkip
from kdelta.study import spec
from kdelta.study.probes import TracePer, WatchKind, watch
from kdelta.tracing import tracefs
from kdelta.tracing.tracefs import Key

NAMES = (
    *("change_pte_range", "commit.isra.0", "commit.part.0", "commit.cold", "twice", "twice"),
    *("commitment", "plain", "plain.constprop.0.isra.1"),
)


@pytest.mark.parametrize(
    ("text", "kind", "name", "field"),
    [
        ("change_pte_range", WatchKind.HITS, "change_pte_range", ""),
        ("f.isra.0", WatchKind.HITS, "f.isra.0", ""),
        ("f(nr=arg6:u32)", WatchKind.VALUES, "f", "nr"),
        ("huge_memory:mm_scan", WatchKind.EVENTS, "mm_scan", ""),
        ("huge_memory:mm_scan(status)", WatchKind.FIELDS, "mm_scan", "status"),
        ("graph(do_mincore)", WatchKind.GRAPH, "do_mincore", ""),
    ],
)
def test_the_words_of_a_study(text: str, kind: WatchKind, name: str, field: str) -> None:
    study = spec.from_arguments(["mprotect:a"], ["6.17"], instrument="trace", watch=[text])
    (found,) = map(watch, study.trace.watch)
    assert (found.text, found.kind, found.name, found.field) == (text, kind, name, field)
    assert spec.from_text(spec.to_toml(study), "again") == study


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        ({"instrument": "trace"}, "has to watch something"),
        ({"watch": ["f"]}, "only the trace instrument"),
        ({"instrument": "time", "watch": ["f"]}, "only the trace instrument"),
        ({"instrument": "trace", "watch": ["f"], "probes": ["calls"]}, "beside counts"),
        ({"instrument": "trace", "watch": ["f", "f"]}, "stands twice"),
        *(
            ({"instrument": "trace", "watch": [text]}, "expected FUNCTION")
            for text in ("a b", "f;g", "../x", "graph()", "f(nr=arg7)", "a:b:c", "f\n", "p:x/y",
                         "-x", "*", "perf(cycles)")
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_watched_or_does_not_go_together(
    settings: dict[str, object], cause: str
) -> None:
    with pytest.raises(SpecError, match=cause):
        spec.from_arguments(["mprotect:a"], ["6.16", "6.17"], **settings)


@pytest.mark.parametrize("kernels", [["host"], ["host", "6.17"], ["host:6.17.1"]])
def test_this_host_is_not_traced(kernels: list[str]) -> None:
    head = 'name = "a"\ntitle = "a"\nscenarios = ["mprotect:a"]\ninstrument = "trace"\n'
    tables = f'kernels = {kernels}\n[trace]\nwatch = ["f"]\n[plan]\nsingle_kernel = true\n'
    with pytest.raises(SpecError, match="are traced in guests only"):
        spec.from_text(head + tables, "study.toml")


def probes(*texts: str) -> tuple[list[tracefs.Probe], list[TraceSkip]]:
    return tracefs.probes([*map(watch, texts)], NAMES)


def test_events_that_count() -> None:
    found, refused = probes(
        "change_pte_range", "change_pte_range(nr=arg6:i32)", "plain(r=ret)", "commit", "a:b(c)"
    )
    assert [one.definition for one in found] == [
        "p:kdelta/w0_0 change_pte_range", "p:kdelta/w1_0 change_pte_range v_nr=$arg6:s32",
        "r:kdelta/w2_0 plain v_r=$retval:u64", "p:kdelta/w3_0 commit.isra.0", "",
    ]  # fmt: skip
    assert [one.trigger for one in found][1::3] == [
        "hist:keys=v_nr:size=4096",
        "hist:keys=c:size=4096",
    ]
    assert not refused


def test_functions_that_this_kernel_has_not_or_has_twice() -> None:
    found, refused = probes("nonsense", "twice", "plain", "commit(nr=arg1)")
    assert [one.definition for one in found] == [
        "p:kdelta/w2_0 plain",
        "p:kdelta/w2_1 plain.constprop.0.isra.1",
    ]
    assert [(one.watch, one.reason.split(" (")[0]) for one in refused] == [
        ("nonsense", "no function nonsense of its own"),
        ("twice", "there are 2 functions twice"),
        ("commit(nr=arg1)", "no function commit of its own"),
    ]


def test_why_an_event_does_not_count() -> None:
    found, _ = probes("plain", "huge_memory:mm_scan(status)", "huge_memory:x(nix)")
    entered, scan, other = found[0], found[2], found[3]
    assert tracefs.why(entered, 0, "", 0) == ""
    assert "lets nobody trace it" in tracefs.why(entered, errno.EINVAL, None, 0)
    assert "lockdown" in tracefs.why(entered, errno.EPERM, None, 0)
    assert (
        tracefs.why(entered, errno.ENOENT, None, 0) == "no probe there: the kernel has no kprobes"
    )
    assert tracefs.why(scan, 0, None, errno.ENOENT) == "no event huge_memory:mm_scan"
    assert tracefs.why(scan, 0, FORMAT, 0) == ""
    assert "no hist triggers" in tracefs.why(scan, 0, FORMAT, errno.EINVAL)
    assert "no field nix, but mm, name, status" in tracefs.why(other, 0, FORMAT, errno.EINVAL)
    assert tracefs.refusal(errno.ENOENT, "tracefs").endswith("no such file in tracefs")


def test_values_have_the_names_that_the_event_prints() -> None:
    (scan,), _ = probes("huge_memory:mm_scan(status)")
    found = {"1": 3, str(2**64 - 2): 1, "9": 2}
    assert tracefs.values(scan, found, FORMAT) == {
        ("succeeded", 1): 3, ("odd", -2): 1, ("9", None): 2,
    }  # fmt: skip
    (value,), _ = probes("change_pte_range(nr=arg6:i32)")
    assert tracefs.values(value, {str(2**64 - 1): 4}, "") == {("-1", None): 4}


def test_hits_per_iteration_are_differences_of_runs() -> None:
    key, one = ("f(n=arg1)", "", None), ("f(n=arg1)", "1", None)
    runs: list[dict[Key, int]] = [{key: 0, one: 7 + 16 * n, ("g", "", None): 0} for n in (2, 4, 6)]
    turns, rows = tracefs.rows(TracePer.ITERATION, (2, 4, 6), runs)
    assert turns == (2, 2)
    assert {(row.watch, row.key): row.hits for row in rows} == {
        ("f(n=arg1)", ""): (32, 32), ("f(n=arg1)", "1"): (32, 32),
        ("f(n=arg1)", tracefs.SUM): (32, 32), ("g", ""): (0, 0),
    }  # fmt: skip
    turns, rows = tracefs.rows(TracePer.RUN, (2, 4), runs[:2])
    assert (turns, rows[0].hits) == ((1, 1), (39, 71))
    assert tracefs.schedule(TracePer.ITERATION, 2) == (2, 4, 6)
    assert tracefs.schedule(TracePer.RUN, 2) == (2, 2)


def test_many_values_are_kept_as_the_most_and_the_rest() -> None:
    counted: dict[Key, int] = {("f(n=arg1)", str(n), None): n for n in range(1000)}
    _, rows = tracefs.rows(TracePer.RUN, (1,), [counted])
    assert len(rows) == tracefs.MOST_KEYS + 2
    assert rows[0].hits == (sum(range(1000)),)
    assert rows[1].key == "999"
    assert rows[-2].key == "[744 others]"
    assert sum(row.hits[0] for row in rows[1:-1]) == sum(range(1000))
    assert (rows[-1].key, rows[-1].hits) == (tracefs.SUM, (sum(n * n for n in range(1000)),))


@pytest.mark.parametrize(("value", "name"), [("18446744073709551615", None), ("failed", 3)])
def test_addresses_and_names_have_no_sum(value: str, name: int | None) -> None:
    counted: dict[Key, int] = {("s:e(x)", value, name): 2}
    _, rows = tracefs.rows(TracePer.RUN, (1,), [counted])
    assert [row.key for row in rows] == ["", value]


def test_a_graph_says_what_it_lost() -> None:
    watched = (watch("graph(f)"),)
    rows, doubts = tracefs.graph_rows(watched, {"g": 3}, 5)
    assert [(row.watch, row.key, row.hits, row.whole) for row in rows] == [
        ("graph(f)", "g", (3,), True)
    ]
    assert doubts == ["graph(f): 5 entries did not fit into the buffer"]


HIST = """\
# event histogram
#
# trigger info: hist:keys=v_nr:vals=hitcount:sort=hitcount:size=4096 [active]
#

{ v_nr:          1 } hitcount:      32773
{ v_nr:        511 } hitcount:         16

Totals:
    Hits: 32789
    Entries: 2
    Dropped: 0
"""
OTHER = """\
# event histogram
#
# trigger info: hist:keys=common_pid:vals=hitcount:sort=hitcount:size=4096 if common_pid == 7
#

{ common_pid:          7 } hitcount:          3

Totals:
    Hits: 3
    Entries: 1
    Dropped: 2
"""
FORMAT = """\
name: mm_khugepaged_scan_pmd
ID: 713
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;

\tfield:struct mm_struct * mm;\toffset:8;\tsize:8;\tsigned:0;
\tfield:char name[16];\toffset:8;\tsize:8;\tsigned:0;
\tfield:int status;\toffset:36;\tsize:4;\tsigned:1;

print fmt: "%s", __print_symbolic(REC->status, {0, "failed"}, { 1, "succeeded" }, {-2, "odd"})
"""
GRAPH = """\
# tracer: function_graph
#
# CPU  DURATION                  FUNCTION CALLS
# |     |   |                     |   |   |   |
 0)               |  do_mprotect_pkey() {
 0)   1.504 us    |    down_write_killable();
 0)               |    /* kdelta */
 0)   ==========> |
 0)   <========== |
 ------------------------------------------
 0)  workloa-123   =>  kworker-7
 ------------------------------------------

 0)   1.516 us    |    can_vma_merge_left.constprop.0();
 0)   1.516 us    |    nf_hook [nf_tables]();
 0) # 9158.663 us |    } /* change_pte_range */
 0) * 74352.40 us |  }
"""
STATS = """\
entries: 216643
overrun: 7
commit overrun: 0
bytes: 7820732
oldest event ts:     7.735138
now ts:    12.227513
dropped events: 2
read events: 0
"""


def test_a_histogram_is_found_among_those_of_its_event() -> None:
    assert tracefs.histogram(HIST + OTHER, "v_nr") == ({"1": 32773, "511": 16}, 0)
    assert tracefs.histogram(HIST + OTHER, "common_pid") == ({"7": 3}, 2)
    with pytest.raises(GuestError, match="is not there"):
        tracefs.histogram(HIST, "common_pid")


@given(st.integers(min_value=0, max_value=HIST.index("Entries: 2")))
def test_a_histogram_that_is_cut_off_is_none(length: int) -> None:
    with pytest.raises(GuestError):
        tracefs.histogram(HIST[:length], "v_nr")


@pytest.mark.parametrize(
    "line", ["{ v_nr: 1 } hitcount: x", "{ v_other: 1 } hitcount: 1", "{ v_nr: 1 } hitcount: 9"]
)
def test_a_histogram_with_garbage_is_none(line: str) -> None:
    with pytest.raises(GuestError, match="something unknown"):
        tracefs.histogram(HIST.replace("\nTotals", f"{line}\n\nTotals"), "v_nr")


def test_hits_that_kprobes_missed() -> None:
    text = "  w0_0          66               0\n  w1_0       32773               5\n"
    assert tracefs.missed(text) == {"w0_0": 0, "w1_0": 5}
    with pytest.raises(GuestError):
        tracefs.missed("w0_0 many\n")


def test_fields_and_the_names_of_their_values() -> None:
    fields = tracefs.fields(FORMAT)
    assert set(fields) == {"common_type", "mm", "name", "status"}
    assert fields["status"].symbols == {0: "failed", 1: "succeeded", -2: "odd"}
    assert fields["status"].read((1 << 64) - 2) == -2
    assert fields["mm"].read((1 << 64) - 2) == (1 << 64) - 2
    assert fields["mm"].symbols == {}


def test_a_graph_is_how_often_each_function_was_called() -> None:
    assert tracefs.graph(GRAPH) == {
        "do_mprotect_pkey": 1, "down_write_killable": 1, "can_vma_merge_left.constprop.0": 1,
        "nf_hook": 1,
    }  # fmt: skip
    with pytest.raises(GuestError, match="something unknown"):
        tracefs.graph(GRAPH + "what is this\n")


def test_what_did_not_fit_into_a_buffer() -> None:
    assert tracefs.lost(STATS) == 9
    with pytest.raises(GuestError, match="nothing of what was lost"):
        tracefs.lost(STATS.replace("overrun: 7\n", "", 1))


@pytest.mark.parametrize("end", ["", "x", "}"])
def test_long_lines_are_not_even_looked_at(end: str) -> None:
    for read in (tracefs.missed, tracefs.graph, tracefs.lost, tracefs.fields):
        with pytest.raises(GuestError, match="more than"):
            read(f" 0) {' ' * (1 << 20)}{end}\n")
    with pytest.raises(GuestError, match="more than"):
        tracefs.histogram(HIST.replace("          1", " " * (1 << 20) + end), "v_nr")


def test_what_has_too_many_lines_is_not_read() -> None:
    with pytest.raises(GuestError, match="more than"):
        tracefs.missed("\n" * (tracefs.MOST_LINES + 1))


BEFORE = (orders.Order("identity"), orders.Order("seed 1"))
HITS = 100  # of each probe in a run


@dataclass
class FakeTracefs:
    """Answers of a kernel.  refuses: what it is told that fails, and with which errno."""

    refuses: dict[str, int] = field(default_factory=dict)
    runs: int = 0
    triggers: dict[str, list[str]] = field(default_factory=dict)

    def answer(self, order: orders.Order) -> tuple[str, int]:
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
    raw = trace.answered(orders.Answers(told, tuple(map(kernel.answer, told))))
    return trace, raw


def lines(trace: GuestTrace) -> list[str]:
    return [order.line.removeprefix(f"try write {ROOT}/") for order in trace.orders]


def test_hits_are_those_of_each_run_though_histograms_go_on() -> None:
    trace, raw = traced(FakeTracefs(), "f", "s:e(status)", "s:e")
    hits, doubts = trace.hits()
    per_run = {
        ("f", "", None): HITS, ("s:e(status)", "succeeded", 1): HITS, ("s:e", "", None): HITS,
    }  # fmt: skip
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
        ({"s/e/format": errno.ENOENT, "s/e/trigger": errno.ENOENT},
         {"s:e(status)": "no event s:e"}),
        ({"set_graph_function f": errno.EINVAL}, {"graph(f)": "ftrace cannot trace f"}),
        ({"current_tracer function_graph": errno.EINVAL}, {"graph(f)": "no function_graph"}),
    ],
)  # fmt: skip
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
    trace.answered(orders.Answers(trace.orders, tuple(cut(told))))
    with pytest.raises(GuestError):
        trace.hits()


def test_an_order_that_is_tried_tells_its_status_behind_its_answer() -> None:
    assert orders.attempt("read /sys/x").line == "try read /sys/x"
    assert orders.attempted("a\nb\n\n22\n") == ("a\nb\n", 22)
    assert orders.attempted("\n0\n") == ("", 0)
    for text in ("", "a\n", "a\nx\n"):
        with pytest.raises(GuestError):
            orders.attempted(text)
