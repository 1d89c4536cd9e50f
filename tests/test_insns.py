# SPDX-License-Identifier: GPL-2.0-or-later
"""The plugin's stream read back, and counts by function."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from counts_stream import ARMED, END, HEADER, KERNEL, strings, window, write
from kdelta import arch
from kdelta.attribution import insns
from kdelta.attribution.symbols import Symbols
from kdelta.errors import GuestError, InfraError

TABLE = Symbols((KERNEL, KERNEL + 0x40, KERNEL + 0x100), ("first", "second", "third"))
COUNTS = {0x401000: 7, 0x401004: 7, KERNEL: 3, KERNEL + 4: 3, KERNEL + 0x48: 5}


def test_windows_are_read_in_order(tmp_path: Path) -> None:
    path = write(
        tmp_path / "counts",
        HEADER,
        ARMED,
        window(COUNTS, phase=1, interrupts=2),
        window({KERNEL: 1}, phase=0, switched=1),
        END,
    )
    counts = insns.read(path)
    assert (counts.api, counts.armed, counts.errors) == (4, True, ())
    first, second = counts.windows
    assert (first.phase, first.user, first.kernel, first.total) == (1, 14, 11, 25)
    assert (first.interrupts, first.switched) == (2, False)
    assert dict(first.addresses()) == COUNTS
    assert (second.phase, second.total, second.switched) == (0, 1, True)


def test_a_killed_qemu_leaves_whole_windows(tmp_path: Path) -> None:
    path = write(tmp_path / "counts", HEADER, ARMED, window(COUNTS), window(COUNTS))
    whole = path.read_bytes()
    second = len(whole) - 8 * len(window(COUNTS))
    for end in range(second, len(whole)):
        path.write_bytes(whole[:end])
        assert [one.total for one in insns.read(path).windows] == [25]


@pytest.mark.parametrize("words", [[], [1, 2], [1, 0x31, 4, 4, 1], [9, 9, 9, 9, 9]])
def test_what_is_no_stream_says_that_the_plugin_did_not_load(
    tmp_path: Path, words: list[int]
) -> None:
    with pytest.raises(InfraError, match="it did not load") as caught:
        insns.read(write(tmp_path / "counts", words))
    assert caught.value.place == str(tmp_path / "counts")


def test_a_missing_file_and_an_unknown_record(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="cannot be read: No such file"):
        insns.read(tmp_path / "nothing")
    with pytest.raises(InfraError, match="damaged at word 5"):
        insns.read(write(tmp_path / "counts", HEADER, [77]))
    with pytest.raises(InfraError, match="damaged at word 5"):
        insns.read(write(tmp_path / "counts", HEADER, HEADER))


def test_complaints_of_the_plugin(tmp_path: Path) -> None:
    path = write(tmp_path / "counts", HEADER, [3, 4, 0, 0], [3, 2, 0, 1], [3, 99, 0, 0])
    counts = insns.read(path)
    assert not counts.armed
    assert counts.errors == (
        "a window was opened before counting began",
        "a window was closed that was not open",
        "unknown complaint of the plugin",
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 9), max_size=60))
def test_any_words_are_read_or_refused(tmp_path: Path, words: list[int]) -> None:
    path = write(tmp_path / "counts", HEADER, words)
    with contextlib.suppress(InfraError):
        counts = insns.read(path)
        assert all(len(one.pairs) % 2 == 0 for one in counts.windows)


def test_by_function_adds_up_and_counts_calls(tmp_path: Path) -> None:
    # The same address twice: two translated blocks hold it.
    doubled = window(COUNTS)
    doubled[4] += 2
    doubled[7] += 1
    doubled += [KERNEL, 2]
    (read,) = insns.read(write(tmp_path / "counts", HEADER, ARMED, doubled)).windows
    rows = insns.by_function(read, TABLE, "scan")
    assert [(row.function, row.insns, row.calls) for row in rows] == [
        ("[user]", 14, 0),
        ("first", 8, 5),
        ("second", 5, 0),
    ]
    assert {row.phase for row in rows} == {"scan"}
    assert sum(row.insns for row in rows) == read.total


def test_string_instructions_belong_to_the_next_window(tmp_path: Path) -> None:
    rows = strings((KERNEL + 0x48, "s", "b", 513), (KERNEL, "m", "q", 2), (0x401000, "s", "w", 1))
    path = write(
        tmp_path / "counts", HEADER, ARMED, window(COUNTS), rows, window(COUNTS), window(COUNTS)
    )
    before, own, after = insns.read(path).windows
    assert before.strings == after.strings == ()
    assert [(row.name, row.ends) for row in own.strings] == [
        ("rep stosb", 513),
        ("rep movsq", 2),
        ("rep stosw", 1),
    ]
    counted = insns.by_function(own, TABLE, "scan")
    assert sum(row.insns for row in counted) == own.total
    assert counted[:3] == insns.by_function(before, TABLE, "scan")
    assert [(row.function, row.insns, row.calls) for row in counted[3:]] == [
        ("rep movsq in first", 0, 2),
        ("rep stosb in second", 0, 513),
        ("rep stosw in [user]", 0, 1),
    ]


def test_a_string_instruction_at_two_places_of_a_function_is_one_row(tmp_path: Path) -> None:
    rows = strings((KERNEL + 4, "s", "b", 5), (KERNEL + 8, "s", "b", 7))
    path = write(tmp_path / "counts", HEADER, ARMED, rows, window(COUNTS))
    (read,) = insns.read(path).windows
    found = insns.by_function(read, TABLE, "scan")
    assert [row.calls for row in found if row.function == "rep stosb in first"] == [12]


def test_strings_without_their_window_are_cut_off_and_unknown_ones_refused(tmp_path: Path) -> None:
    rows = strings((KERNEL, "s", "b", 1))
    cut = write(tmp_path / "cut", HEADER, ARMED, window(COUNTS), rows)
    assert len(insns.read(cut).windows) == 1
    for end in range(len(cut.read_bytes()) - 8 * len(rows), len(cut.read_bytes())):
        (tmp_path / "short").write_bytes(cut.read_bytes()[:end])
        assert len(insns.read(tmp_path / "short").windows) == 1
    for kind in (0, ord("s"), ord("x") << 8 | ord("b")):
        path = write(tmp_path / "bad", HEADER, [6, 1, KERNEL, kind, 1], window(COUNTS))
        with pytest.raises(InfraError, match="damaged: no string"):
            insns.read(path)


def test_a_window_whose_sum_is_wrong_is_refused(tmp_path: Path) -> None:
    wrong = window(COUNTS)
    wrong[3] += 1
    (read,) = insns.read(write(tmp_path / "counts", HEADER, ARMED, wrong)).windows
    with pytest.raises(GuestError, match="functions sum to 25 instructions, not 26"):
        insns.by_function(read, TABLE, "scan")


def test_an_address_before_all_symbols(tmp_path: Path) -> None:
    (read,) = insns.read(write(tmp_path / "counts", HEADER, ARMED, window({KERNEL - 8: 2}))).windows
    (row,) = insns.by_function(read, TABLE, "scan")
    assert (row.function, row.insns, row.calls) == ("[unknown]", 2, 0)


def test_an_address_behind_all_symbols_is_a_row_of_its_own(tmp_path: Path) -> None:
    table = Symbols((KERNEL, KERNEL + 0x40), ("last", "[unknown]"))
    seen = window({KERNEL + 0x3F: 2, KERNEL + 0x40: 5, KERNEL + 0x4000: 7})
    (read,) = insns.read(write(tmp_path / "counts", HEADER, ARMED, seen)).windows
    rows = insns.by_function(read, table, "scan")
    assert [(row.function, row.insns, row.calls) for row in rows] == [
        ("[unknown]", 12, 0),
        ("last", 2, 0),
    ]


def test_events_are_this_kernels_entries() -> None:
    names = {
        0x08: "irq_entries_start",
        0x10: "asm_exc_page_fault",
        0x20: "asm_sysvec_apic_timer_interrupt",
        0x30: "asm_common_interrupt",
        0x40: "__switch_to_asm",
        0x50: "do_syscall_64",
    }
    table = Symbols(tuple(names), tuple(names.values()))
    lines = insns.events(table, arch.of("amd64")).splitlines()
    assert sorted(lines) == ["1 20 21", "1 30 31", "16 8 10", "2 10 11", "4 40 41"]


def test_events_of_arm64_lie_in_its_vector_table() -> None:
    table = Symbols((0x1000, 0x9000), ("vectors", "cpu_switch_to"))
    lines = insns.events(table, arch.of("arm64")).splitlines()
    assert sorted(lines) == [
        *("1 1280 1281", "1 1300 1301", "1 1480 1481", "1 1500 1501"),
        *("2 1200 1201", "2 1380 1381", "2 1400 1401", "2 1580 1581"),
        "4 9000 9001",
    ]
