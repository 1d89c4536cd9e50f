# SPDX-License-Identifier: GPL-2.0-or-later
"""Call paths of a program whose tree is known, and of kernels: every sum closes.

The tree is that of tests/data/programs/paths.c.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from boot import lab
from boot.command import Command
from kdelta import data
from kdelta.attribution import insns
from kdelta.journal import artifacts
from kdelta.journal.run import RunJournal
from kdelta.probes.calls import PathNode
from kdelta.probes.calls import tree as tree_of

pytestmark = pytest.mark.boot

DEPTH = 40


def trees(machine: lab.Machine, source: Path, *arguments: object) -> list[tuple[PathNode, ...]]:
    """The call tree of each window of a program."""
    counted, functions = machine.followed(source, *arguments)
    assert counted.status == 0, counted.printed
    found = [tree_of(window, functions.names) for window in counted.windows]
    for window, tree in zip(counted.windows, found, strict=True):
        assert sum(node.insns for node in tree) == window.total
        by_name = Counter[str]()
        for node in tree:
            by_name[node.function] += node.insns
        for row in insns.by_function(window, counted.table, ""):
            alone = counted.table.names.count(row.function) == 1 if row.insns else False
            if alone and not row.function.endswith(".cold"):
                cold = counted.instructions(window, f"{row.function}.cold")
                assert by_name[row.function] == row.insns + cold, row.function
    return found


def path(tree: tuple[PathNode, ...], at: int) -> tuple[str, ...]:
    names = []
    while at >= 0:
        names.append(tree[at].function)
        at = tree[at].parent
    return tuple(reversed(names))


def calls(tree: tuple[PathNode, ...], entries: tuple[str, ...]) -> dict[tuple[str, ...], int]:
    """Calls of user functions by their path, within window().  entries: the kernel's."""
    return {
        path(tree, at)[1:]: node.calls
        for at, node in enumerate(tree)
        if not {*entries} & {*path(tree, at)} and len(path(tree, at)) > 1
    }


def test_the_tree_of_a_program_is_the_known_one(machine: lab.Machine) -> None:
    known_trees(trees(machine, lab.PROGRAMS / "paths.c", DEPTH), ("asm_exc_page_fault",))


@pytest.mark.parametrize(
    ("architecture", "entries"),
    [
        ("riscv64", ("handle_exception",)),
        # The labels of its assembly, in and out.
        ("arm64", ("vectors", "el0t_64_sync", "__bp_harden_el1_vectors", "ret_to_user")),
    ],
)
def test_the_tree_of_a_program_of_another_architecture_is_the_known_one(
    architecture: str, entries: tuple[str, ...]
) -> None:
    machine = lab.of_arch("7.2", architecture)
    known_trees(trees(machine, lab.PROGRAMS / "paths.c", DEPTH), entries)


def known_trees(found_trees: list[tuple[PathNode, ...]], entries: tuple[str, ...]) -> None:
    """Fail unless each is that of paths.c.  entries: of the kernel, that of a fault first."""
    for tree in found_trees:
        assert tree[0].function == "main"
        library = [way for way in calls(tree, entries) if any("jmp" in name for name in way)]
        found = {way: count for way, count in calls(tree, entries).items() if way not in library}
        assert {way[:2] for way in library} >= {("window", "first")}
        down = [("window", *["recur"] * depth) for depth in range(1, DEPTH + 1)]
        assert found == {
            ("window",): 1, ("window", "branch"): 6, ("window", "branch", "leaf"): 12,
            ("window", "tail"): 1, ("window", "tail", "leaf"): 1, **dict.fromkeys(down, 1),
            ("window", "first"): 1, ("window", "first", "second"): 1,
            ("window", "first", "second", "third"): 1, ("window", "leaf"): 1,
            ("window", "touch"): 1, ("window", "touch", "leaf"): 1,
        }  # fmt: skip
        faults = [path(tree, at) for at, n in enumerate(tree) if n.function == entries[0]]
        assert ("main", "window", "touch", entries[0]) in faults


def test_a_stack_of_ten_thousand_frames(machine: lab.Machine) -> None:
    for tree in trees(machine, lab.PROGRAMS / "paths.c", 10_000):
        assert sum(node.calls for node in tree if node.function == "recur") == 10_000


def test_a_thread_that_goes_from_stack_to_stack(machine: lab.Machine) -> None:
    """No sum is wrong, no call is lost or made up, and no path grows without end."""
    for tree in trees(machine, lab.PROGRAMS / "contexts.c", 1000):
        entered = Counter[str]()
        for node in tree:
            entered[node.function] += node.calls
        assert (entered["step"], entered["deeper"], entered["window"]) == (2000, 2000, 1)
        assert max(len(path(tree, at)) for at in range(len(tree))) < 20


def test_a_run_keeps_paths_counts_as_without_and_explains_by_them(tmp_path: Path) -> None:
    command = Command(tmp_path / "runs", data.directory("workloads"))
    scenario = "mprotect:shared_dirty_full_toggle_16m"
    probed = command.run("run", scenario, "--kernels", "6.16,6.17", "--probe", "calls")
    folder = command.folder()
    text = command.run("explain", "latest", "6.16", "6.17", "--calls")
    assert re.search(r"prot_commit_flush_ptes is newly called in change_pte_range", text)
    assert "part of its code moved into change_pte_range" in text
    place = tmp_path / "f.html"
    said = command.run("explain", "latest", "6.16", "6.17", "--as", "flame", "-o", str(place))
    assert f"wrote {place} (flame graphs)" in said
    assert place.exists()
    record = RunJournal.open(folder).record()
    for trial in record.trials:
        assert trial.result is not None
        for one in trial.result.exact.phases:
            tree = artifacts.kept_calls(folder, trial.index, one.phase)
            rows = [row for row in trial.result.exact.functions if row.phase == one.phase]
            assert sum(node.insns for node in tree) == sum(row.insns for row in rows)
    plain = Command(tmp_path / "plain", data.directory("workloads"))
    ladder = re.compile(r"^6\.1\S+ .*$", re.MULTILINE)
    counted = plain.run("run", scenario, "--kernels", "6.16,6.17")
    assert ladder.findall(counted) == ladder.findall(probed)
    assert "--probe calls" in plain.run("explain", "latest", "6.16", "6.17", "--calls", status=2)
