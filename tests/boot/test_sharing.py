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
from kdelta.probes.sharing import Naming

pytestmark = pytest.mark.boot

TURNS = 62  # of two CPUs, whole batches of each
BESIDE = {f"byte {own}, beside byte {4 - own} of one_line()" for own in (0, 4)}


@pytest.fixture(scope="module")
def turns() -> Machine:
    """Two CPUs that take turns."""
    return replace(lab.machine("6.17", cpus=2), emulator=qemu.in_turns(lab.emulator()))


def moved(machine: Machine, what: str) -> list[tuple[int, ...]]:
    """Of each window its CPU and lines of user memory: fetched, taken, by atomics, false, locks."""
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
            window.touched, functions.names, counted.table, machine.kernel.release, places,
            Naming(lambda _start, _end: "", lambda _of, _at: ""),
        )  # fmt: skip
        own = [row for row in rows if row.function == EVERYWHERE and row.what is What.USER]
        parts = ("fetched", "taken", "atomic", "false", "lock")
        found.append((window.vcpu, *(sum(getattr(row, part) for row in own) for part in parts)))
        assert {row.object for row in own} <= {"", *BESIDE}
    return found


@pytest.mark.parametrize(
    ("what", "each"),
    [
        ("one_line", ((1, 1, 0, 1, 0), (1, 1, 0, 1, 0))),
        ("two_lines", ((0, 0, 0, 0, 0), (0, 0, 0, 0, 0))),
        ("refcount", ((1, 1, 1, 0, 0), (1, 1, 1, 0, 0))),
        ("rwsem", ((1, 1, 1, 0, 0), (1, 1, 1, 0, 0))),
        ("seqlock", ((0, 2, 0, 0, 0), (2, 0, 0, 0, 0))),
        ("lock", ((1, 1, 1, 0, 1), (1, 1, 1, 0, 1))),
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
        (0, *5 * [0]): 30, (1, *5 * [0]): 30, (0, 1, 1, 0, 0, 0): 1, (1, 1, 1, 0, 0, 0): 1,
    }  # fmt: skip


@pytest.mark.parametrize("what", ["page_fault1", "lseek_one_file"])
def test_restores_move_the_same_lines(what: str, turns: Machine) -> None:
    """Each window, to the byte; a seek takes the reference and the lock of its file."""
    places = memory.of(lab.ARCH.debian, turns.kernel.release)
    assert places
    seen = set()
    for _ in range(5):
        counted, _functions = turns.followed(
            data.directory("workloads") / "turns.c", "--protocol", what,
            probes={"memory": places.option, "sharing": True},
        )  # fmt: skip
        assert counted.status == 0, counted.printed
        assert len(counted.windows) == TURNS
        seen.add(tuple(window.touched[0].shared.tobytes() for window in counted.windows))
        if what == "lseek_one_file":
            each = [{word >> 6 for word in w.touched[0].shared[1::6]} for w in counted.windows]
            assert median(map(len, each)) == 2
    assert len(seen) == 1
