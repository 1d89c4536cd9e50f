# SPDX-License-Identifier: GPL-2.0-or-later
"""What tracefs says, as Debian's 6.17 said it, cut off and garbled: a guest may say all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdelta.errors import GuestError
from kdelta.tracing import tracefs

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
        "do_mprotect_pkey": 1,
        "down_write_killable": 1,
        "can_vma_merge_left.constprop.0": 1,
        "nf_hook": 1,
    }
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
