# SPDX-License-Identifier: GPL-2.0-or-later
"""What a study watches: how it is worded, set, refused and counted."""

from __future__ import annotations

import errno

import pytest

from kdelta.errors import SpecError
from kdelta.sample import Instrument, TraceSkip
from kdelta.study import spec
from kdelta.study.probes import TracePer, WatchKind, watch
from kdelta.tracing import hits, tracefs
from kdelta.tracing.hits import Key
from test_tracing_formats import FORMAT

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
    "text",
    [
        "a b",
        "f;g",
        "../x",
        "graph()",
        "f(nr=arg7)",
        "a:b:c",
        "f\n",
        "p:x/y",
        "-x",
        "*",
        "perf(cycles)",
    ],
)
def test_what_is_no_word_for_something_to_watch(text: str) -> None:
    with pytest.raises(SpecError, match="expected FUNCTION"):
        spec.from_arguments(["mprotect:a"], ["6.17"], instrument="trace", watch=[text])


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        ({"instrument": "trace"}, "has to watch something"),
        ({"watch": ["f"]}, "only the trace instrument"),
        ({"instrument": "time", "watch": ["f"]}, "only the trace instrument"),
        ({"instrument": "trace", "watch": ["f"], "probes": ["calls"]}, "beside counts"),
        ({"instrument": "trace", "watch": ["f", "f"]}, "stands twice"),
    ],
)
def test_what_does_not_go_together(settings: dict[str, object], cause: str) -> None:
    with pytest.raises(SpecError, match=cause):
        spec.from_arguments(["mprotect:a"], ["6.16", "6.17"], **settings)


@pytest.mark.parametrize("kernels", [["host"], ["host", "6.17"], ["host:6.17.1"]])
def test_this_host_is_not_traced(kernels: list[str]) -> None:
    head = 'name = "a"\ntitle = "a"\nscenarios = ["mprotect:a"]\ninstrument = "trace"\n'
    tables = f'kernels = {kernels}\n[trace]\nwatch = ["f"]\n[plan]\nsingle_kernel = true\n'
    with pytest.raises(SpecError, match="are traced in guests only"):
        spec.from_text(head + tables, "study.toml")


def test_a_trace_leaves_the_digest_of_other_studies_as_it_was() -> None:
    study = spec.from_arguments(["mprotect:a"], ["6.16", "6.17"])
    assert study.instrument is Instrument.EXACT
    assert "trace" not in spec._told(study)


def probes(*texts: str) -> tuple[list[tracefs.Probe], list[TraceSkip]]:
    return tracefs.probes([*map(watch, texts)], NAMES)


def test_events_that_count() -> None:
    found, refused = probes(
        "change_pte_range", "change_pte_range(nr=arg6:i32)", "plain(r=ret)", "commit", "a:b(c)"
    )
    assert [one.definition for one in found] == [
        "p:kdelta/w0_0 change_pte_range",
        "p:kdelta/w1_0 change_pte_range v_nr=$arg6:s32",
        "r:kdelta/w2_0 plain v_r=$retval:u64",
        "p:kdelta/w3_0 commit.isra.0",
        "",
    ]
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
        ("succeeded", 1): 3,
        ("odd", -2): 1,
        ("9", None): 2,
    }
    (value,), _ = probes("change_pte_range(nr=arg6:i32)")
    assert tracefs.values(value, {str(2**64 - 1): 4}, "") == {("-1", None): 4}


def test_hits_per_iteration_are_differences_of_runs() -> None:
    key, one = ("f(n=arg1)", "", None), ("f(n=arg1)", "1", None)
    runs: list[dict[Key, int]] = [{key: 0, one: 7 + 16 * n, ("g", "", None): 0} for n in (2, 4, 6)]
    turns, rows = hits.rows(TracePer.ITERATION, (2, 4, 6), runs)
    assert turns == (2, 2)
    assert {(row.watch, row.key): row.hits for row in rows} == {
        ("f(n=arg1)", ""): (32, 32),
        ("f(n=arg1)", "1"): (32, 32),
        ("f(n=arg1)", hits.SUM): (32, 32),
        ("g", ""): (0, 0),
    }
    turns, rows = hits.rows(TracePer.RUN, (2, 4), runs[:2])
    assert (turns, rows[0].hits) == ((1, 1), (39, 71))
    assert hits.schedule(TracePer.ITERATION, 2) == (2, 4, 6)
    assert hits.schedule(TracePer.RUN, 2) == (2, 2)


def test_many_values_are_kept_as_the_most_and_the_rest() -> None:
    counted: dict[Key, int] = {("f(n=arg1)", str(n), None): n for n in range(1000)}
    _, rows = hits.rows(TracePer.RUN, (1,), [counted])
    assert len(rows) == hits.MOST_KEYS + 2
    assert rows[0].hits == (sum(range(1000)),)
    assert rows[1].key == "999"
    assert rows[-2].key == "[744 others]"
    assert sum(row.hits[0] for row in rows[1:-1]) == sum(range(1000))
    assert (rows[-1].key, rows[-1].hits) == (hits.SUM, (sum(n * n for n in range(1000)),))


@pytest.mark.parametrize(("value", "name"), [("18446744073709551615", None), ("failed", 3)])
def test_addresses_and_names_have_no_sum(value: str, name: int | None) -> None:
    counted: dict[Key, int] = {("s:e(x)", value, name): 2}
    _, rows = hits.rows(TracePer.RUN, (1,), [counted])
    assert [row.key for row in rows] == ["", value]


def test_a_graph_says_what_it_lost() -> None:
    watched = (watch("graph(f)"),)
    rows, doubts = hits.graph_rows(watched, {"g": 3}, 5)
    assert [(row.watch, row.key, row.hits, row.whole) for row in rows] == [
        ("graph(f)", "g", (3,), True)
    ]
    assert doubts == ["graph(f): 5 entries did not fit into the buffer"]
