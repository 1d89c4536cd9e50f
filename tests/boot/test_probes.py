# SPDX-License-Identifier: GPL-2.0-or-later
"""Kinds of work, memory touched and values of functions, of programs of which they are known."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from boot import lab
from boot.command import Command
from kdelta import data
from kdelta.journal import artifacts
from kdelta.journal.run import RunJournal
from kdelta.probes import memory
from kdelta.probes.work import Kind, work

pytestmark = pytest.mark.boot

ROUNDS = 1000
PAGES = 512


def test_a_program_of_a_known_mix(machine: lab.Machine) -> None:
    """tests/data/programs/mix.c; the call of its function adds a store and a load."""
    counted = machine.count(lab.PROGRAMS / "mix.c", ROUNDS)
    assert counted.status == 0, counted.printed
    found = Counter[Kind]()
    for row in work(counted.windows[-1], counted.table, lab.ARCH):
        found[row.kind] += row.count if row.function == "[user]" else 0
    assert {kind: round(count / ROUNDS, 1) for kind, count in found.items()} == {
        Kind.LOAD: 5,  # mov, both, two atomic ones, ret
        Kind.STORE: 5,  # mov, both, two atomic ones, call
        Kind.ATOMIC: 2, Kind.FENCE: 2, Kind.SERIALISING: 1, Kind.DIVISION: 1, Kind.INDIRECT: 1,
        Kind.STRING: 1,
    }  # fmt: skip


def test_pages_touched_are_as_many_as_there_are(machine: lab.Machine) -> None:
    """Lines of user memory, and of their page tables; each window the same."""
    lines: dict[memory.What, int] = {}
    alone = machine.oracle("protect", PAGES, 4)
    places = memory.of(lab.ARCH.debian, machine.kernel.release)
    assert places
    counted, functions = machine.followed(
        lab.PROGRAMS / "oracle.c", "protect", PAGES, 4, probes={"memory": places.option}
    )
    assert [w.total for w in counted.windows] == [w.total for w in alone.windows]
    release = machine.kernel.release
    told = [
        memory.memory(window.touched, functions.names, counted.table, release, places)
        for window in counted.windows
        if not window.switched
    ]
    # Each system call begins at a random depth of its stack (randomize_kstack_offset).
    steady = [[row for row in rows if row.what is not memory.What.STACK] for rows in told]
    assert steady[0] == steady[1]
    for row in told[0]:
        if row.function == memory.EVERYWHERE:
            lines[row.what] = row.lines
    assert PAGES * 64 <= lines[memory.What.USER] <= PAGES * 64 + 16
    assert PAGES * 8 // 64 <= lines[memory.What.PAGE_TABLE] <= PAGES * 8 // 64 + 16
    assert lines[memory.What.STACK] < 64


def test_a_run_keeps_what_probes_said_and_counts_as_without(tmp_path: Path) -> None:
    """6.17 looks at the struct page of each page and commits each alone."""
    scenario = "mprotect:shared_dirty_full_toggle_16m"
    value = "prot_commit_flush_ptes(nr=arg6:u32)"
    command = Command(tmp_path / "runs", data.directory("workloads"))
    again = Command(tmp_path / "again", data.directory("workloads"))
    for one in (command, again):
        del one.environment["KDELTA_RESULTS_MIB"]
    both = ("run", scenario, "--kernels", "6.16,6.17")
    probed = command.run(*both, "--probe", "memory", "--probe", value)
    folder = command.folder()
    record = RunJournal.open(folder).record()
    by_kernel = {
        record.arms[trial.arm].kernel.release[:4]: artifacts.kept_details(folder, trial.index)
        for trial in record.trials
    }
    struct_pages = {
        name: sum(
            row.lines
            for row in (told.memory or {})["protect"]
            if row.function == memory.EVERYWHERE and row.what is memory.What.STRUCT_PAGE
        )
        for name, told in by_kernel.items()
    }
    assert struct_pages["6.16"] < 16
    assert 4096 <= struct_pages["6.17"] < 4112
    assert by_kernel["6.17"].values["protect"][value].values == {"1": 4096}
    assert "no function" in by_kernel["6.16"].values["protect"][value].missing
    asked = ("explain", "latest", "6.16", "6.17", "--json")
    assert "from the store" in again.run(*both, "--probe", "memory", "--probe", value)
    for index in (0, 1):
        assert artifacts.kept_details(again.folder(), index) in by_kernel.values()
    listing = json.loads(command.run(*asked, "--code", "prot_commit_flush_ptes"))
    rows = json.loads(command.run(*asked))["functions"]
    counted = next(row["new"] for row in rows if row["function"] == "prot_commit_flush_ptes")
    assert sum(row["count"] for row in listing["new_code"]) == counted
    assert listing["old_code"] == []
    ladder = re.compile(r"^6\.1\S+ .*$", re.MULTILINE)
    plain = Command(tmp_path / "plain", data.directory("workloads"))
    assert ladder.findall(plain.run(*both)) == ladder.findall(probed)


@pytest.mark.parametrize(
    "machine", [("--arch", "riscv64", "--kernels", "7.2"), ("--cpus", "2", "--kernels", "6.17")]
)
def test_values_are_read_of_other_machines(machine: tuple[str, ...], tmp_path: Path) -> None:
    """Arguments and a return value that the scenario decides: what lies between, and its pages."""
    scenario = "mprotect:shared_dirty_full_toggle_16m"
    asked = [f"change_protection({value}:u64)" for value in ("start=arg3", "end=arg4", "pages=ret")]
    command = Command(tmp_path / "runs", data.directory("workloads"))
    command.run("run", scenario, *machine, *(word for one in asked for word in ("--probe", one)))
    told = artifacts.kept_details(command.folder(), 0).values
    for phase in ("protect", "restore"):
        start, end, pages = (told[phase][one].values for one in asked)
        assert (len(start), len(end), pages) == (1, 1, {"4096": 1})
        assert int(*end) - int(*start) == 16 << 20
    assert not any(histogram.values for histogram in told["touch"].values())
