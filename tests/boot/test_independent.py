# SPDX-License-Identifier: GPL-2.0-or-later
"""Counts against others' of the same execution, made in another way.

In the guest: tests/data/plugin_steps.c, a plugin that looks at nothing but the order in which
instructions start, beside ours in one QEMU.  Of user space: Callgrind.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from boot import callgrind, lab
from kdelta import elf, guest
from kdelta.guests import qemu
from kdelta.probes.calls import PathNode
from kdelta.probes.calls import tree as tree_of

pytestmark = pytest.mark.boot

OWN_TASKS = ("partner", "child")  # windows that go from one task of the program to another
# Where the kernel is entered by a fault, and the labels that its way out goes through.
ENTRIES = {
    "amd64": ("asm_exc_page_fault",),
    "arm64": ("vectors", "el0t_64_sync", "__bp_harden_el1_vectors", "ret_to_user"),
    "riscv64": ("handle_exception",),
}
KERNEL = 1 << 63
STEPS = Path(__file__).parents[1] / "data" / "plugin_steps.c"


@dataclass(frozen=True, slots=True)
class Window:
    """What the other plugin saw: instructions by address, bytes that string ones stored."""

    switched: bool
    stored: int
    counts: Counter[int]


def windows(path: Path) -> list[Window]:
    found: list[Window] = []
    for line in path.read_text().splitlines():
        if line.startswith("window"):
            _, _, switched, stored = line.split()
            found.append(Window(switched == "1", int(stored), Counter()))
        else:
            address, count = line.split()
            found[-1].counts[int(address, 16)] += int(count)
    return found


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the other plugin writes, which every counting QEMU loads."""
    library, output = tmp_path / "steps.so", tmp_path / "steps.txt"
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, "-fvisibility=hidden", "-o", library, STEPS], check=True)
    plain = qemu.command

    def both(*given: Any) -> list[str]:
        counting = given[2].counting
        other = ["-plugin", f"{library},out={output},events={counting.events}"] if counting else []
        return [*plain(*given), *other]

    monkeypatch.setattr(qemu, "command", both)
    return output


@pytest.mark.parametrize(
    ("what", "n"),
    [
        ("loop", 10_000), ("cross", 10_000), ("calls", 1_000), ("touch", 100), ("touch-last", 100),
        ("fill", 5_000), ("fill", 1 << 20), ("fill-often", 1_000), ("write-hole", 1),
        ("partner", 1_000), ("child", 1_000), ("protect", 512),
    ],
)  # fmt: skip
def test_another_algorithm_agrees_to_the_instruction(
    machine: lab.Machine, others: Path, what: str, n: int
) -> None:
    ours = machine.oracle(what, n, 6)
    theirs = windows(others)
    assert len(theirs) == len(ours.windows)
    # It cannot tell tasks apart: where others ran, nothing can be compared.
    pairs = list(zip(theirs, ours.windows, strict=True))
    alone = [pair for pair in pairs if not pair[0].switched]
    if what in OWN_TASKS:
        alone = [pair for pair in pairs if pair[0].counts.total() <= pair[1].total]
    assert len(alone) >= 2
    for other, own in alone:
        assert other.counts == lab.by_address(own)
        stored = [row.bytes for row in own.strings if "movs" in row.name or "stos" in row.name]
        assert other.stored == sum(stored)


def of_arch(name: str, own: lab.Machine) -> lab.Machine:
    return own if name == lab.ARCH.debian else lab.of_arch("7.2", name)


def by_instruction(text: str) -> Counter[int]:
    """How often each instruction was executed, by callgrind.out with uncompressed positions."""
    found = Counter[int]()
    call = False
    for line in text.splitlines():
        cost = re.fullmatch(r"(0x[0-9a-f]+) \d+ (\d+)", line)
        if cost and not call:
            found[int(cost[1], 16)] += int(cost[2])
        call = line.startswith("calls=")
    return found


@pytest.mark.parametrize("architecture", ENTRIES)
def test_callgrind_agrees_on_each_instruction(
    machine: lab.Machine, architecture: str, tmp_path: Path
) -> None:
    """Of functions without string instructions, which Callgrind counts round by round."""
    windows = 3
    source = lab.PROGRAMS / "callgrind.c"
    machine = of_arch(architecture, machine)
    target = machine.settings.target
    printed, written = callgrind.run(
        source, target, (windows,), tmp_path / "out", "--dump-instr=yes", "--compress-pos=no"
    )
    theirs = by_instruction(written)
    counted = machine.count(source, windows)
    assert counted.printed == printed
    own = {
        at
        for start, size, name in elf.functions(guest.program(source, target).read_bytes())
        if name in ("work", "sort", "divide", "fold", "average")
        for at in range(start, start + size)
    }
    for window in counted.windows:
        ours = {at: n for at, n in lab.by_address(window).items() if at < KERNEL}
        assert sum(ours.values()) == window.user > 400_000
        # All that is not of these functions is the call of work() itself, one instruction.
        assert [n for at, n in ours.items() if at not in own] == [1]
        assert {at: n * windows for at, n in ours.items() if at in own} == {
            at: n for at, n in theirs.items() if at in own
        }
        faults = {"arm64": "do_page_fault"}.get(architecture, ENTRIES[architecture][0])
        assert counted.calls(window, faults) >= 40


@dataclass(slots=True)
class Spent:
    """What a function did, in instructions: its own, and with all that it calls."""

    own: int = 0
    calls: int = 0
    all: int = 0


def by_callgrind(text: str) -> dict[str, Spent]:
    """Functions of callgrind.out; of a recursion only calls from outside have what is below."""
    names: dict[str, str] = {}
    found: dict[str, Spent] = {}
    inside, called = "", ""
    for line in text.splitlines():
        named = re.fullmatch(r"(c?fn)=(\(\d+\))(?: (.+))?", line)
        cost = re.fullmatch(r"[+\-*\d]\S* (\d+)", line)
        if named:
            name = names.setdefault(named[2], (named[3] or "").partition("'")[0])
            inside, called = (inside, name) if named[1] == "cfn" else (name, "")
        elif line.startswith("calls="):
            found.setdefault(called, Spent()).calls += int(line.split()[0][6:])
        elif cost and called:
            if called != inside:
                found[called].all += int(cost[1])
            called = ""
        elif cost:
            found.setdefault(inside, Spent()).own += int(cost[1])
    return found


def by_paths(tree: tuple[PathNode, ...], entries: tuple[str, ...]) -> dict[str, Spent]:
    """The same of our paths, without what the kernel did below its entries."""
    found: dict[str, Spent] = {}
    above: list[frozenset[str]] = []
    for node in tree:
        over = above[node.parent] if node.parent >= 0 else frozenset[str]()
        if entries[0] in over or node.function in entries:
            above.append(over | {node.function, entries[0]})
            continue
        above.append(over | {node.function})
        own = found.setdefault(node.function, Spent())
        own.own += node.insns
        own.calls += node.calls
        for name in above[-1]:
            found[name].all += node.insns
    return found


@pytest.mark.parametrize("architecture", ["amd64", "riscv64"])
def test_callgrind_agrees_on_each_function(
    machine: lab.Machine, architecture: str, tmp_path: Path
) -> None:
    """Ir, calls and inclusive cost of a static program's functions; no string instructions.

    On arm64 Callgrind's call stack does not close: there it goes on where work() has returned.
    """
    source = lab.PROGRAMS / "callgrind.c"
    machine = of_arch(architecture, machine)
    target = machine.settings.target
    written = callgrind.run(source, target, (1,), tmp_path / "out", "--toggle-collect=work")[1]
    theirs = by_callgrind(written)
    counted, functions = machine.followed(source, 1)
    (window,) = counted.windows
    ours = by_paths(tree_of(window, functions.names), ENTRIES[architecture])
    assert {"work", "sort", "divide", "fold", "average"} <= theirs.keys() & ours.keys()
    for name in ("sort", "divide", "fold", "average"):
        assert ours[name] == theirs[name], name
    assert ours["work"].own == theirs["work"].own
    assert ours["work"].all == sum(one.own for one in theirs.values())
