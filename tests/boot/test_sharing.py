# SPDX-License-Identifier: GPL-2.0-or-later
"""Lines that CPUs take from each other, where the program says how many; and that they repeat."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from statistics import median

import pytest

from boot import lab
from boot.lab import Machine
from kdelta import data
from kdelta.guests import qemu
from kdelta.probes import memory, sharing
from kdelta.probes.memory import EVERYWHERE, What
from kdelta.probes.sharing import SharingRow

pytestmark = pytest.mark.boot

TURNS = 62  # of two CPUs, whole batches of each


@pytest.fixture(scope="module")
def turns() -> Machine:
    """Two CPUs that take turns."""
    return replace(lab.machine("6.17", cpus=2), emulator=qemu.in_turns(lab.emulator()))


def moved(machine: Machine, what: str) -> list[tuple[int, ...]]:
    """Of each window its CPU and the lines of user memory: fetched, taken, by atomics, false."""
    places = memory.of(lab.ARCH.debian, machine.kernel.release)
    assert places
    counted, functions = machine.followed(
        lab.PROGRAMS / "shared.c", "--protocol", "--iterations", 8, "--warmup", 2, what,
        probes={"memory": places.option, "sharing": True},
    )  # fmt: skip
    assert counted.status == 0, counted.printed
    assert [window.vcpu for window in counted.windows] == [0, 1] * (TURNS // 2)
    found: list[tuple[int, ...]] = []
    for window in counted.windows:
        rows = sharing.sharing(
            window.touched, functions.names, counted.table, machine.kernel.release, places, str
        )
        own = [row for row in rows if row.function == EVERYWHERE and row.what is What.USER]
        total = own[0] if own else SharingRow(EVERYWHERE, What.USER, "", 0, 0, 0, 0)
        found.append((window.vcpu, total.fetched, total.taken, total.atomic, total.false))
    return found


@pytest.mark.parametrize(
    ("what", "each"),
    [
        ("one_line", ((1, 1, 0, 1), (1, 1, 0, 1))),
        ("two_lines", ((0, 0, 0, 0), (0, 0, 0, 0))),
        ("refcount", ((1, 1, 1, 0), (1, 1, 1, 0))),
        ("rwsem", ((1, 1, 1, 0), (1, 1, 1, 0))),
        ("seqlock", ((0, 2, 0, 0), (2, 0, 0, 0))),
    ],
)
def test_lines_are_as_many_as_the_program_shares(
    what: str, each: tuple[tuple[int, ...], ...], turns: Machine
) -> None:
    """A writer takes both lines of a sequence count from the reader, who fetches them again."""
    assert moved(turns, what) == [(cpu, *each[cpu]) for cpu in (0, 1)] * (TURNS // 2)


def test_a_counter_of_each_cpu_is_added_once_in_a_batch(turns: Machine) -> None:
    """992 turns of each warm up; of the 31 that follow one is the 1008th."""
    seen = Counter(moved(turns, "batch"))
    assert seen == {
        (0, 0, 0, 0, 0): 30, (1, 0, 0, 0, 0): 30, (0, 1, 1, 0, 0): 1, (1, 1, 1, 0, 0): 1,
    }  # fmt: skip


def test_a_seek_takes_the_reference_and_the_lock_of_its_file(turns: Machine) -> None:
    """Two lines of struct file, in most windows of each restore; a few differ: docs/sharing.md."""
    places = memory.of(lab.ARCH.debian, turns.kernel.release)
    assert places
    for _ in range(3):
        counted, _functions = turns.followed(
            data.directory("workloads") / "turns.c", "--protocol", "lseek_one_file",
            probes={"memory": places.option, "sharing": True},
        )  # fmt: skip
        assert counted.status == 0, counted.printed
        assert len(counted.windows) == TURNS
        each = [
            {word >> 6 for word in w.touched[0].lines[1::2] if word & 4} for w in counted.windows
        ]
        assert median(map(len, each)) == 2
