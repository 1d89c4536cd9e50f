# SPDX-License-Identifier: GPL-2.0-or-later
"""The plugin's stream read back, and counts by function."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import counts_stream
from counts_stream import ARMED, END, HEADER, KERNEL, bare, code, strings, window, write
from kdelta import arch, data, process
from kdelta.attribution import insns
from kdelta.attribution.symbols import Symbols
from kdelta.errors import InfraError
from kdelta.run import guest_trial

TABLE = Symbols((KERNEL, KERNEL + 0x40, KERNEL + 0x100), ("first", "second", "third"))
COUNTS = {0x401000: 7, 0x401004: 7, KERNEL: 3, KERNEL + 4: 3, KERNEL + 0x48: 5}


def addresses(window: insns.CountedWindow) -> list[tuple[int, int]]:
    return [(address, count) for group, count in window.groups() for address in group]


def test_windows_are_read_in_order(tmp_path: Path) -> None:
    path = write(
        tmp_path / "counts", HEADER, ARMED, window(COUNTS, phase=1, interrupts=2),
        window({KERNEL: 1}, phase=0, switched=1), END,
    )  # fmt: skip
    counts = insns.read(path)
    assert (counts.armed, counts.errors) == (True, ())
    first, second = counts.windows
    assert (first.phase, first.user, first.kernel, first.total) == (1, 14, 11, 25)
    assert (first.interrupts, first.switched) == (2, False)
    assert dict(addresses(first)) == COUNTS
    assert (second.phase, second.total, second.switched) == (0, 1, True)


def test_a_killed_qemu_leaves_whole_windows(tmp_path: Path) -> None:
    last = window(COUNTS)
    path = write(tmp_path / "counts", HEADER, ARMED, window(COUNTS), last)
    whole = path.read_bytes()
    for end in range(len(whole) - 8 * len(last), len(whole)):
        path.write_bytes(whole[:end])
        assert [one.total for one in insns.read(path).windows] == [25]


@pytest.mark.parametrize(
    "words", [[], [1, 2], HEADER[:5], [1, 4, 0x31, 4, 4, 1], [1, 3, *HEADER[2:]], [9] * 9]
)
def test_what_is_no_stream_says_that_plugin_did_not_load(tmp_path: Path, words: list[int]) -> None:
    with pytest.raises(InfraError, match="it did not load, or is another's") as caught:
        insns.read(write(tmp_path / "counts", words))
    assert caught.value.place == str(tmp_path / "counts")


def test_a_missing_file_and_an_unknown_record(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="cannot be read: No such file"):
        insns.read(tmp_path / "nothing")
    # No such kind; a second header; words that a record cannot have.
    for record in ([77, 0], HEADER, [4, 1, 0], [2, 5, 0, 0, 0, 0, 0], [2, 7, *[0] * 7], [6, 3, 0]):
        with pytest.raises(InfraError, match="damaged: at word 6"):
            insns.read(write(tmp_path / "counts", HEADER, [*record, 0]))


def test_slots_are_told_once_and_before_their_windows(tmp_path: Path) -> None:
    rows = [(3, 2), (7, 5)]
    told = [*code(3, KERNEL, KERNEL + 4), *code(7, 0x401000)]
    (read,) = insns.read(write(tmp_path / "counts", HEADER, told, bare(rows, 5, 4))).windows
    assert addresses(read) == [(KERNEL, 2), (KERNEL + 4, 2), (0x401000, 5)]
    broken = {
        "code that was not told": [bare(rows, 5, 4), told],
        "code is recorded twice": [told, bare(rows, 5, 4), code(7, KERNEL)],
        "a window of 8 instructions has 9": [told, bare(rows, 5, 3)],
    }
    for message, records in broken.items():
        with pytest.raises(InfraError, match=message):
            insns.read(write(tmp_path / "counts", HEADER, *records))


def test_call_paths_come_with_their_callers(tmp_path: Path) -> None:
    path = counts_stream.write(
        tmp_path / "c", counts_stream.HEADER,
        counts_stream.contexts((0, 0, 0), (1, 0, 7), (2, 1, 9)), counts_stream.calls((2, 4, 5)),
        counts_stream.window({0x1000: 5}), counts_stream.window({0x1000: 5}),
    )  # fmt: skip
    with_paths, without = insns.read(path).windows
    assert [(c.number, c.parent, c.function, c.calls, c.insns) for c in with_paths.contexts] == [
        (0, 0, 0, 0, 0), (1, 0, 7, 0, 0), (2, 1, 9, 4, 5),
    ]  # fmt: skip
    assert without.contexts == ()
    unasked = insns.of(path.read_bytes(), str(path), paths=False).windows
    assert [window.contexts for window in unasked] == [(), ()]
    assert [window.total for window in unasked] == [5, 5]


@pytest.mark.parametrize(
    ("contexts", "calls", "words"),
    [
        ([(0, 0, 0)], [(1, 1, 5)], "a call path that was not told"),
        ([(0, 0, 0), (2, 0, 1)], [(0, 1, 5)], "a call path without its begin"),
        ([(0, 0, 0), (1, 1, 1)], [(1, 1, 5)], "a call path without its begin"),
        ([(0, 0, 0)], [(0, 1, 4)], "call paths of 4 instructions in a window of 5"),
    ],
)
def test_call_paths_that_do_not_fit_are_refused(
    tmp_path: Path,
    contexts: list[tuple[int, int, int]],
    calls: list[tuple[int, int, int]],
    words: str,
) -> None:
    path = counts_stream.write(
        tmp_path / "c", counts_stream.HEADER, counts_stream.contexts(*contexts),
        counts_stream.calls(*calls), counts_stream.window({0x1000: 5}),
    )  # fmt: skip
    with pytest.raises(InfraError, match=words):
        insns.read(path)


def test_complaints_of_the_plugin(tmp_path: Path) -> None:
    path = write(tmp_path / "counts", HEADER, [3, 3, 4, 0, 0], [3, 3, 2, 0, 1], [3, 3, 99, 0, 0])
    counts = insns.read(path)
    assert not counts.armed
    assert counts.errors == (
        "a window was opened before counting began, or after it had ended",
        "a window was closed that was not open",
        "unknown complaint of the plugin",
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 9), max_size=60))
def test_any_words_are_read_or_refused(tmp_path: Path, words: list[int]) -> None:
    path = write(tmp_path / "counts", HEADER, words)
    with contextlib.suppress(InfraError):
        for one in insns.read(path).windows:
            assert sum(count for _, count in addresses(one)) == one.total


def test_by_function_adds_up_and_counts_calls(tmp_path: Path) -> None:
    # The same address twice: two translated blocks hold it.
    told = [*code(1, 0x401000, 0x401004), *code(2, KERNEL, KERNEL + 4), *code(3, KERNEL)]
    told += code(4, KERNEL + 0x48)
    counted = bare([(1, 7), (2, 3), (3, 2), (4, 5)], 14, 13)
    (read,) = insns.read(write(tmp_path / "counts", HEADER, ARMED, told, counted)).windows
    rows = insns.by_function(read, TABLE, "scan")
    assert [(row.function, row.insns, row.calls) for row in rows] == [
        ("[user]", 14, 0), ("first", 8, 5), ("second", 5, 0),
    ]  # fmt: skip
    assert {row.phase for row in rows} == {"scan"}
    assert sum(row.insns for row in rows) == read.total


def test_string_instructions_belong_to_the_next_window(tmp_path: Path) -> None:
    rows = strings(
        (KERNEL + 0x48, "s", "b", 513, 513 * 4096),
        (KERNEL, "m", "q", 2, 80),
        (0x401000, "s", "w", 1, 10),
    )
    path = write(
        tmp_path / "counts", HEADER, ARMED, window(COUNTS), rows, window(COUNTS), window(COUNTS)
    )
    before, own, after = insns.read(path).windows
    assert before.strings == after.strings == ()
    assert [(row.name, row.ends, row.bytes) for row in own.strings] == [
        ("rep stosb", 513, 513 * 4096), ("rep movsq", 2, 80), ("rep stosw", 1, 10),
    ]  # fmt: skip
    counted = insns.by_function(own, TABLE, "scan")
    assert sum(row.insns for row in counted) == own.total
    assert counted[:3] == insns.by_function(before, TABLE, "scan")
    assert [(row.function, row.insns, row.calls, row.bytes) for row in counted[3:]] == [
        ("rep movsq in first", 0, 2, 80),
        ("rep stosb in second", 0, 513, 513 * 4096),
        ("rep stosw in [user]", 0, 1, 10),
    ]


def test_a_string_instruction_at_two_places_of_a_function_is_one_row(tmp_path: Path) -> None:
    rows = strings((KERNEL + 4, "s", "b", 5, 50), (KERNEL + 8, "s", "b", 7, 9))
    (read,) = insns.read(write(tmp_path / "counts", HEADER, ARMED, rows, window(COUNTS))).windows
    found = insns.by_function(read, TABLE, "scan")
    (row,) = (row for row in found if row.function == "rep stosb in first")
    assert (row.calls, row.bytes) == (12, 59)


def test_strings_without_their_window_are_cut_off_and_unknown_ones_refused(tmp_path: Path) -> None:
    rows = strings((KERNEL, "s", "b", 1, 1))
    cut = write(tmp_path / "cut", HEADER, ARMED, window(COUNTS), rows)
    assert len(insns.read(cut).windows) == 1
    for end in range(len(cut.read_bytes()) - 8 * len(rows), len(cut.read_bytes())):
        (tmp_path / "short").write_bytes(cut.read_bytes()[:end])
        assert len(insns.read(tmp_path / "short").windows) == 1
    for kind in (0, ord("s"), ord("x") << 8 | ord("b")):
        path = write(tmp_path / "bad", HEADER, [6, 4, KERNEL, kind, 1, 1], window(COUNTS))
        with pytest.raises(InfraError, match="damaged: no string"):
            insns.read(path)


def test_a_group_across_functions_is_told_apart(tmp_path: Path) -> None:
    # A block goes on where one function falls through into the next.
    told = code(1, KERNEL + 0x3C, KERNEL + 0x40, KERNEL + 0x44)
    (read,) = insns.read(write(tmp_path / "counts", HEADER, told, bare([(1, 9)], 0, 27))).windows
    rows = insns.by_function(read, TABLE, "scan")
    assert [(row.function, row.insns, row.calls) for row in rows] == [
        ("second", 18, 9),
        ("first", 9, 0),
    ]


def test_addresses_outside_all_symbols_are_a_row_of_their_own(tmp_path: Path) -> None:
    table = Symbols((KERNEL, KERNEL + 0x40), ("last", "[unknown]"))
    seen = window({KERNEL - 8: 2, KERNEL + 0x3F: 2, KERNEL + 0x40: 5, KERNEL + 0x4000: 7})
    (read,) = insns.read(write(tmp_path / "counts", HEADER, ARMED, seen)).windows
    rows = insns.by_function(read, table, "scan")
    assert [(row.function, row.insns, row.calls) for row in rows] == [
        ("[unknown]", 14, 0),
        ("last", 2, 0),
    ]


def test_events_are_this_kernels_entries() -> None:
    names = {
        0x08: "irq_entries_start", 0x10: "asm_exc_page_fault",
        0x20: "asm_sysvec_apic_timer_interrupt", 0x30: "asm_common_interrupt",
        0x40: "__switch_to_asm", 0x50: "wake_up_new_task", 0x60: "do_syscall_64",
    }  # fmt: skip
    table = Symbols(tuple(names), tuple(names.values()))
    lines = insns.events(table, arch.of("amd64")).splitlines()
    kinds = {0x08: 16, 0x10: 2, 0x20: 1, 0x30: 1, 0x40: 4, 0x50: 32}
    ends = {at: 0x10 if at == 0x08 else at + 1 for at in kinds}
    assert {*lines} == {f"{kinds[at]} {at:x} {ends[at]:x} {names[at]}" for at in kinds}


def test_where_every_task_counts_none_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    table = Symbols((KERNEL, KERNEL + 0x40), ("wake_up_new_task", "__switch_to_asm"))
    amd64 = arch.of("amd64")
    some, every = (
        guest_trial.events_file("1", lambda: table, amd64, every_task=each).read_text()
        for each in (False, True)
    )
    assert f"32 {KERNEL:x}" in some
    assert "32 " not in every
    assert f"4 {KERNEL + 0x40:x}" in every


def test_the_one_entry_of_riscv64_is_a_trap() -> None:
    table = Symbols((0x1000, 0x2000, 0x9000), ("handle_exception", "__switch_to", "__switch_to_x"))
    lines = insns.events(table, arch.of("riscv64")).splitlines()
    assert lines == ["64 1000 1001 handle_exception", "4 2000 2001 __switch_to"]


def test_events_of_arm64_lie_in_its_vector_tables() -> None:
    names = ("vectors", "__bp_harden_el1_vectors", "cpu_switch_to")
    told = insns.events(Symbols((0x1000, 0x2000, 0x9000), names), arch.of("arm64"))
    lines = [line.rpartition(" ")[0] for line in told.splitlines()]
    plain = {
        *("1 1280 1281", "1 1300 1301", "1 1480 1481", "1 1500 1501"),
        *("2 1200 1201", "2 1380 1381", "2 1400 1401", "2 1580 1581"),
        "4 9000 9001",
    }
    # A hardened table of user space goes on to the second instruction of these.
    second = {"1 1484 1485", "1 1504 1505", "2 1404 1405", "2 1584 1585"}
    tables = (0x2000, 0x2800, 0x3000)
    entries = ((1, 0x280), (1, 0x300), (2, 0x200), (2, 0x380))
    hardened = {f"{bits} {t + at:x} {t + at + 1:x}" for t in tables for bits, at in entries}
    stubs = {f"16 {t + 0x480:x} {t + 0x580:x}" for t in tables}
    assert set(lines) == plain | second | hardened | stubs
    assert len(lines) == len(set(lines))


# What the plugin takes an instruction for by its bytes, which mean others elsewhere


PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include "insn_bytes.h"

int main(int argc, char **argv)
{
	struct code code = { .size = argc - 2 };

	for (int i = 2; i < argc; i++)
		code.bytes[i - 2] = strtoul(argv[i], NULL, 16);
	enum target target = atoi(argv[1]);

	printf("%x %d ", mark_code(target, &code), is_return(target, &code));
	printf("%d%d", is_syscall(target, &code), is_old_syscall(target, &code));
	printf("%d\n", is_clock(target, &code));
	return 0;
}
"""
X86, ARM64, RISCV64 = "1", "2", "3"


@pytest.mark.skipif(process.which("gcc") is None, reason="gcc is not installed")
def test_marks_and_returns_are_those_of_the_architecture(tmp_path: Path) -> None:
    source = tmp_path / "asked.c"
    source.write_text(PROGRAM)
    program = tmp_path / "asked"
    folder = f"-I{data.directory('plugin')}"
    module = str(data.directory("plugin") / "insn_bytes.c")
    subprocess.run(["gcc", folder, str(source), module, "-o", str(program)], check=True)

    def asked(target: str, code: str) -> tuple[str, bool, str]:
        words = [str(program), target, *code.split()]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        mark, returns, kinds = done.stdout.split()
        return mark, returns == "1", kinds

    iretq, eret, sret = "48 cf", "e0 03 9f d6", "73 00 20 10"
    for own, text in ((X86, iretq), (ARM64, eret), (RISCV64, sret)):
        assert [asked(each, text)[1] for each in (X86, ARM64, RISCV64)] == [
            each == own for each in (X86, ARM64, RISCV64)
        ]
    nopl, movz, lui = "0f 1f 80 02 01 64 6b", "5f 20 9a d2", "37 20 10 6b"
    marks = {X86: nopl, ARM64: movz, RISCV64: lui}
    for own, text in marks.items():
        for each in marks:
            assert (asked(each, text)[0] != "0") == (each == own), (own, each)
    for text, kinds in {
        "0f 05": "100", "66 48 0f 05": "100", "cd 80": "010", "2e cd 80": "010", "0f 34": "010",
        "0f 31": "001", "66 0f 31": "001", "f3 48 0f 31": "001", "0f 01 f9": "001",
        "48 66 0f 31": "001", "0f 30": "000", "48": "000",
    }.items():  # fmt: skip
        assert asked(X86, text)[2] == kinds, text
