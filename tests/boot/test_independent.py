# SPDX-License-Identifier: GPL-2.0-or-later
"""Counts against others' of the same execution, made in another way.

In the guest: tests/data/plugin_steps.c, a plugin that looks at nothing but the order in which
instructions start, beside ours in one QEMU.  Of user space: Callgrind, on this host.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from boot import lab
from boot.lab import Machine
from kdelta import guest, process
from kdelta.attribution.calls import PathNode
from kdelta.attribution.calls import tree as tree_of
from kdelta.guests import qemu

pytestmark = pytest.mark.boot

OWN_TASKS = ("partner", "child")  # windows that go from one task of the program to another
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
        ("loop", 10_000),
        ("cross", 10_000),
        ("calls", 1_000),
        ("touch", 100),
        ("touch-last", 100),
        ("fill", 5_000),
        ("fill", 1 << 20),
        ("fill-often", 1_000),
        ("write-hole", 1),
        ("partner", 1_000),
        ("child", 1_000),
        ("protect", 512),
    ],
)
def test_another_algorithm_agrees_to_the_instruction(
    machine: Machine, others: Path, what: str, n: int
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


def test_callgrind_agrees_on_user_space(machine: Machine, tmp_path: Path) -> None:
    """Of a function without string instructions, which Callgrind counts round by round."""
    windows = 3
    source = lab.PROGRAMS / "callgrind.c"
    counted = machine.count(source, windows)
    binary = guest.program(source, lab.ARCH)
    written = tmp_path / "callgrind.out"
    options = ["--tool=callgrind", "--toggle-collect=work", f"--callgrind-out-file={written}"]
    done = process.run(["valgrind", *options, str(binary), str(windows)], timeout=120)
    assert done.stdout == counted.printed
    summary = re.search(r"^(?:summary|totals): (\d+)$", written.read_text(), re.MULTILINE)
    assert summary
    each, rest = divmod(int(summary[1]), windows)
    assert rest == 0
    assert each > 500_000
    # The call itself is in the window, and not in the function that is called.
    assert counted.user() == [each + 1] * windows
    for window in counted.windows:
        assert counted.calls(window, "asm_exc_page_fault") >= 40


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


def by_paths(tree: tuple[PathNode, ...]) -> dict[str, Spent]:
    """The same of our paths, without what the kernel did below them."""
    found: dict[str, Spent] = {}
    above: list[frozenset[str]] = []
    for node in tree:
        over = above[node.parent] if node.parent >= 0 else frozenset[str]()
        if "asm_exc_page_fault" in {node.function, *over}:
            above.append(over | {node.function, "asm_exc_page_fault"})
            continue
        above.append(over | {node.function})
        own = found.setdefault(node.function, Spent())
        own.own += node.insns
        own.calls += node.calls
        for name in above[-1]:
            found[name].all += node.insns
    return found


def test_callgrind_agrees_on_each_function(machine: Machine, tmp_path: Path) -> None:
    """Ir, calls and inclusive cost of a static program's functions; no string instructions."""
    source = lab.PROGRAMS / "callgrind.c"
    counted, functions = machine.followed(source, 1)
    written = tmp_path / "callgrind.out"
    options = ["--tool=callgrind", "--toggle-collect=work", f"--callgrind-out-file={written}"]
    process.run(["valgrind", *options, str(guest.program(source, lab.ARCH)), "1"], timeout=120)
    theirs = by_callgrind(written.read_text())
    (window,) = counted.windows
    ours = by_paths(tree_of(window, functions.names))
    assert {"work", "sort", "divide", "fold", "average"} <= theirs.keys() & ours.keys()
    for name in ("sort", "divide", "fold", "average"):
        assert ours[name] == theirs[name], name
    assert ours["work"].own == theirs["work"].own
    assert ours["work"].all == sum(one.own for one in theirs.values())
