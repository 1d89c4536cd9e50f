# SPDX-License-Identifier: GPL-2.0-or-later
"""Lines that CPUs share: from the plugin's words to rows and figures; the types of a kernel."""

from __future__ import annotations

import struct
from array import array
from pathlib import Path

import pytest

from kdelta.attribution.insns import CountedWindow, Touched
from kdelta.attribution.symbols import Symbols
from kdelta.disassembly import btf
from kdelta.disassembly.kallsyms import Table
from kdelta.errors import SpecError
from kdelta.guests import patches, qemu
from kdelta.guests.qemu import Qemu
from kdelta.kernels.image import Segment, UnpackedKernel
from kdelta.probes import memory, sharing
from kdelta.probes.memory import EVERYWHERE, What
from kdelta.probes.sharing import SharingRow
from kdelta.sample import PhaseCounts

READ, WRITTEN, FETCHED, TAKEN, BYTES, ATOMIC = 1, 2, 4, 8, 16, 32
PAGE, DATA, USER = 0xFFFF_8880_0010_0000, 0xFFFF_FFFF_8200_0000, 0x1000
NAME = (int.from_bytes(b"mm_struc", "little"), int.from_bytes(b"t\0junk..", "little"), 0)
TOUCHED = Touched(
    # A page of a slab by its type, which begins at the page before.
    pages=array("Q", (PAGE, 0, 0, 0xF5 << 24, DATA, 0, 0, (1 << 32) - 1)),
    lines=array(
        "Q",
        (
            *(1, PAGE + 64 | READ | WRITTEN | FETCHED | TAKEN | ATOMIC),
            *(2, PAGE + 64 | READ | BYTES),  # another function reads what the other CPU wrote
            *(2, DATA + 128 | READ | FETCHED | BYTES),
            *(2, USER | WRITTEN | FETCHED | TAKEN),  # and touches nothing that another wrote
            *(2, USER + 64 | READ),
        ),
    ),
    slabs=array("Q", (PAGE, PAGE - 0x1000, 1000, *NAME)),
)


def test_rows_are_by_function_and_by_object() -> None:
    places = memory.of("amd64", "6.17")
    assert places
    table = Table((DATA, DATA + 150), ("d", "d"), ("before", "lock"))
    found = sharing.sharing(
        (TOUCHED, TOUCHED), ("", "f", "g"), Symbols((), ()), "6.17", places,
        lambda line: table.within(line, line + 64),
    )  # fmt: skip
    slab, data = f"mm_struct+{(0x1000 + 64) % 1000}", "before+128, lock"
    everywhere = {row for row in found if row.function == EVERYWHERE}
    assert everywhere == {
        SharingRow(EVERYWHERE, What.SLAB, slab, 2, 2, 2, 0),
        SharingRow(EVERYWHERE, What.DATA, data, 2, 0, 0, 0),
        SharingRow(EVERYWHERE, What.USER, "", 2, 2, 0, 2),
    }
    assert {*found} - everywhere == {
        SharingRow("f", What.SLAB, slab, 2, 2, 2, 0),
        SharingRow("g", What.DATA, data, 2, 0, 0, 0),
        SharingRow("g", What.USER, "", 2, 2, 0, 2),
    }


def test_figures_are_per_operation() -> None:
    window = CountedWindow(
        vcpu=0, phase=0, user=1, kernel=0, interrupts=0, switched=False,
        rows=array("Q"), code={}, touched=(TOUCHED, TOUCHED),
    )  # fmt: skip
    phase = PhaseCounts(
        phase="call", operations=2, operation="call", user=(1, 1), kernel=(0, 0), layouts=2
    )
    figures = {one.name: one.value for one in sharing.told({"call": window}, (phase,))}
    assert figures == {
        "fetched_lines": 1.5, "taken_lines": 1, "lines_by_atomics": 0.5,
        "falsely_shared_lines": 0.5,
    }  # fmt: skip


def test_members_are_where_the_types_say() -> None:
    """An integer, an array and a function stand before the struct, which has a bit field."""
    strings = b"\0mm\0count\0flag\0mm_struct\0"
    at = {name: strings.index(b"\0" + name + b"\0") + 1 for name in (b"mm", b"count", b"flag")}
    types = struct.pack("<4I", 0, 1 << 24, 4, 32)
    types += struct.pack("<6I", 0, 3 << 24, 0, 1, 1, 4)
    types += struct.pack("<5I", 0, 13 << 24 | 1, 1, 0, 1)
    types += struct.pack("<3I", at[b"mm"], 4 << 24 | 2 | 1 << 31, 32)
    types += struct.pack("<3I", at[b"count"], 1, 64) + struct.pack(
        "<3I", at[b"flag"], 1, 1 << 24 | 96
    )
    header = struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(types), len(types), len(strings))
    cut = header[:-16] + struct.pack("<4I", 0, 1 << 30, 1 << 30, 8)  # of a program of the kernel's
    content = memoryview(b"other" + cut + header + types + strings)
    segment = Segment(start=DATA, content=content, executable=False)
    kernel = UnpackedKernel(arch="amd64", segments=(segment,))
    wanted = {"mm": ("count", "flag", "gone"), "count": ("mm",)}
    assert btf.offsets(kernel, wanted) == {("mm", "count"): 8, ("mm", "flag"): 12}
    assert btf.offsets(UnpackedKernel(arch="amd64", segments=()), wanted) == {}


def test_turns_need_a_qemu_that_knows_its_cpus(tmp_path: Path) -> None:
    """Any other would tell the plugin a wrong CPU."""
    turns = patches.table().turns
    assert turns
    assert turns.digest() != patches.table().digest()
    for build in turns.build:
        assert len(build.bytes) == len(turns.edit)
    program = tmp_path / "q"
    program.write_bytes(b"another build")
    found = Qemu(program=program, banner="QEMU", version="10.0.2", plugins=True)
    with pytest.raises(SpecError, match="tells plugins a wrong CPU"):
        qemu.in_turns(found)
