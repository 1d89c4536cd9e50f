# SPDX-License-Identifier: GPL-2.0-or-later
"""Counts against what is known beforehand: loops written in assembly, faults made on purpose.

Each test names the number of instructions that its loop has; see tests/data/programs/oracle.c.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from boot import lab
from boot.lab import Machine
from kdelta import guest
from kdelta.attribution import insns
from kdelta.guests import orders

pytestmark = pytest.mark.boot

PAGES = 512
ROUNDS = 10_000
KIB = 1024
PAGE_BYTES = 4096
COPIES = ("_copy_from_iter", "copy_page_from_iter")  # from a process into the kernel


def test_a_loop_counts_exactly(machine: Machine) -> None:
    counted = machine.oracle("loop", ROUNDS, 8)
    assert counted.user() == [1 + 2 * ROUNDS] * 8
    assert {window.kernel for window in counted.windows} == {0}
    assert not any(window.switched for window in counted.windows)


def test_nothing_is_counted_behind_the_last_window(machine: Machine) -> None:
    program = lab.PROGRAMS / "oracle.c"
    alone = machine.count(program, "child", 3, 4)
    told = machine.count(program, "child", 3, 4, told=4)
    # Not windows themselves: the numbers of their slots are of code in the order of translation.
    assert [summary(window) for window in alone.windows] == [
        summary(window) for window in told.windows
    ]
    with pytest.raises(AssertionError, match="counting began, or after it had ended"):
        machine.count(program, "loop", ROUNDS, 4, told=3)


def test_a_loop_that_crosses_a_page_of_code_counts_exactly(machine: Machine) -> None:
    # QEMU before 8.1 announces the crossing instruction in a block that ends before it.
    assert machine.oracle("cross", ROUNDS, 4).user() == [2 + 4 * ROUNDS] * 4


@pytest.mark.parametrize(
    ("cpus", "what", "user"),
    [
        ("machine", "touch", 2 + 6 * PAGES),
        ("pair", "touch", 2 + 6 * PAGES),
        ("machine", "touch-last", 3 + 4 * PAGES),  # the last instruction of a block faults
    ],
)
def test_a_fault_in_every_round_neither_adds_nor_loses(
    cpus: str, what: str, user: int, request: pytest.FixtureRequest
) -> None:
    counted = request.getfixturevalue(cpus).oracle(what, PAGES, 4)
    assert counted.user() == [user] * 4
    for window in counted.windows:
        assert counted.calls(window, "asm_exc_page_fault") == PAGES


def test_rep_counts_once_and_tells_its_bytes(machine: Machine) -> None:
    # The first window faults its bytes in, page by page: it is still one execution.
    counted = machine.oracle("fill", 5 * KIB, 4)
    assert counted.user() == [1] * 4
    assert own_strings(counted) == [("rep stosb", 1, 5 * KIB)] * 4


def test_string_instructions_do_by_words_what_they_do_by_bytes(machine: Machine) -> None:
    program = guest.program(lab.PROGRAMS / "strings.c", machine.settings.target)
    assert machine.answers(orders.run([]), program=program).ran() == ("5325 are right\n", 0)


@pytest.mark.parametrize("what", ["touch", "fill", "child"])
def test_counts_are_those_of_a_qemu_that_flushes(machine: Machine, what: str) -> None:
    flushing = replace(machine, emulator=replace(machine.emulator, patch=""))
    asked = lab.PROGRAMS / "oracle.c", what, PAGES, 4
    assert machine.emulator.patch
    assert machine.count(*asked, told=4).windows == flushing.count(*asked, told=4).windows


def test_interrupts_amid_a_string_instruction_neither_add_nor_lose(machine: Machine) -> None:
    # The pinned QEMU is patched to leave one each 65,536 rounds; the other leaves it each round.
    for each in (machine, replace(machine, emulator=lab.other_emulator())):
        counted = each.oracle("fill", KIB * KIB, 6)
        assert counted.user() == [1] * 6
        assert own_strings(counted) == [("rep stosb", 1, KIB * KIB)] * 6
    assert any(window.interrupts for window in counted.windows)


def test_a_string_instruction_is_not_confused_with_what_lies_behind_it(machine: Machine) -> None:
    # As often as it is executed, the instruction behind it is reached without it, and first.
    counted = machine.oracle("fill-often", ROUNDS, 4)
    assert counted.user() == [1 + 9 * ROUNDS] * 4
    assert own_strings(counted) == [("rep stosb", ROUNDS, 100 * ROUNDS)] * 4


def test_a_copy_that_meets_a_hole_has_bytes_and_is_no_execution(machine: Machine) -> None:
    # Two pages are to be copied, and 100 bytes of the second are not there.
    counted = machine.oracle("write-hole", 1, 4)
    for window in counted.windows:
        copies = [row for row in window.strings if counted.holder(row.address) in COPIES]
        assert [(row.ends, row.bytes) for row in copies] == [(1, 2 * PAGE_BYTES - 100)]


def test_each_window_adds_up(machine: Machine) -> None:
    for window in machine.oracle("touch", PAGES, 4).windows:
        halves = Counter[bool]()
        for address, count in lab.by_address(window).items():
            halves[address >= 1 << 63] += count
        assert (halves[False], halves[True]) == (window.user, window.kernel)
        assert window.total == window.user + window.kernel


def test_interrupts_are_left_out(pair: Machine) -> None:
    """A window of several ticks counts as many calls as windows too short for one."""
    short, long = 100, 10_000
    each = mode([window.kernel for window in pair.oracle("calls", short, 16).windows]) / short
    assert each == int(each) > 0
    many = pair.oracle("calls", long, 32)
    assert many.user() == [1 + 4 * long] * 32
    hit = [window for window in many.windows if window.interrupts]
    assert len(hit) >= 4
    # Now and then a tick leaves work to the task itself, done when its call returns.
    assert mode([window.kernel for window in hit]) == each * long


def test_the_way_to_an_interrupt_is_left_out_too() -> None:
    """Without the timer of the CPU, a tick comes through a stub of two or three instructions.

    A window that has left ticks out has no instruction of the kernel's, like one without ticks.
    """
    machine = lab.machine("6.17", cmdline="nolapic_timer")
    rounds = 5_000_000
    counted = machine.oracle("loop", rounds, 16)
    assert counted.user() == [1 + 2 * rounds] * 16
    hit = [window for window in counted.windows if window.interrupts]
    assert len(hit) >= 4
    # Now and then a tick leaves work to the task itself.
    assert mode([window.kernel for window in hit]) == 0
    for window in hit:
        assert not counted.instructions(window, "irq_entries_start")


def test_other_tasks_are_left_out(machine: Machine) -> None:
    """While it sleeps the idle task runs."""
    counted = machine.oracle("sleep", 20, 8)
    for window in counted.windows:
        assert not window.switched
        assert counted.instructions(window, "do_idle") == 0
        assert counted.calls(window, "__schedule") >= 1
    # The way into sleep and out of it, and no more.
    assert max(window.total for window in counted.windows) < 10_000
    assert len(set(counted.user())) == 1


def test_a_window_whose_task_gave_way_is_flagged(machine: Machine) -> None:
    """A tick finds that a kernel thread's turn has come: the way there is no part of the path."""
    counted = machine.oracle("calls", 200_000, 24)
    gave_way = [bool(counted.calls(window, "__schedule")) for window in counted.windows]
    assert [window.switched for window in counted.windows] == gave_way
    assert set(gave_way) == {True, False}


@pytest.mark.parametrize("what", ["child", "partner"])
def test_a_child_of_the_window_or_from_before_it_is_counted(machine: Machine, what: str) -> None:
    """It runs a loop of known length and ends, while its parent waits; or waits and is woken."""
    short, long = (machine.oracle(what, rounds, 4) for rounds in (ROUNDS, 2 * ROUNDS))
    assert mode(long.user()) - mode(short.user()) == 2 * ROUNDS
    for window in long.windows:
        assert what != "child" or long.calls(window, "do_exit") == 1


def test_only_the_cpu_of_the_marks_is_counted(pair: Machine) -> None:
    """The other CPU runs a busy process all the time."""
    rounds = 10_000_000
    counted = pair.oracle("noisy-loop", rounds, 3)
    assert counted.printed == "cpu 1\n"
    assert {window.vcpu for window in counted.windows} == {1}
    assert counted.user()[1:] == [1 + 2 * rounds] * 2


def summary(window: insns.CountedWindow) -> tuple[object, ...]:
    """What a window counted, whatever the numbers of its slots."""
    counts = (window.user, window.kernel, window.interrupts, window.switched)
    return counts, lab.by_address(window), window.strings


def own_strings(counted: lab.Counted) -> list[tuple[str, int, int]]:
    """The string instructions of user space, (name, executions, bytes), one a window."""
    rows = [row for window in counted.windows for row in window.strings if row.address < 1 << 63]
    assert len(rows) == len(counted.windows)
    return [(row.name, row.ends, row.bytes) for row in rows]


def mode(values: list[int]) -> int:
    return Counter(values).most_common(1)[0][0]
