# SPDX-License-Identifier: GPL-2.0-or-later
"""Lines that CPUs share: from the plugin's words to rows and figures; the types of a kernel."""

from __future__ import annotations

import struct
from array import array
from dataclasses import replace
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
from kdelta.probes.sharing import Naming, SharingRow
from kdelta.sample import ExactData, FunctionCount, PhaseCounts

FETCHED, TAKEN, ATOMIC = 4, 8, 16
PAGE, DATA, USER = 0xFFFF_8880_0010_0000, 0xFFFF_FFFF_8200_0000, 0x1000
AREA = 0xFFFF_8880_0020_0000  # of a CPU
NAME = (int.from_bytes(b"mm_struc", "little"), int.from_bytes(b"t\0junk..", "little"), 0)
TOUCHED = Touched(
    # A page of a slab by its type, which begins at the page before.
    pages=array("Q", (PAGE, 0, 0, 0xF5 << 24, DATA, 0, 0, (1 << 32) - 1)),
    lines=array("Q"),
    slabs=array("Q", (PAGE, PAGE - 0x1000, 1 << 32 | 1000, *NAME)),
    shared=array(
        "Q",
        (
            *(1, PAGE + 64 | FETCHED | TAKEN | ATOMIC, 0xF, 0, 0xF000, 2),
            *(2, PAGE + 64, 0xF0, 0xF0, 0xF0F0, 0),  # another function reads what others wrote
            *(3, DATA + 128 | FETCHED | ATOMIC, 0xF << 16, 3 << 16, 1 << 16, 2),
            *(3, AREA + 0x140 | FETCHED, 2, 2, 2, 0),
            *(2, USER | FETCHED | TAKEN, 0xFF, 0, 0xF0F, 2),  # it touches nothing that others wrote
        ),
    ),
    areas=array("Q", (0, AREA)),
)
LOCK = "_raw_spin_lock"


def test_rows_are_by_function_and_by_object() -> None:
    places = memory.of("amd64", "6.17")
    assert places
    table = Table((0x141, DATA, DATA + 145), ("A", "d", "d"), ("queue", "before", "lock"))
    found = sharing.sharing(
        (TOUCHED, TOUCHED), ("", "f", "g", LOCK), Symbols((), ()), "6.17", places,
        Naming(table.within, lambda of, at: "mmap_lock" * ((of, at // 4) == ("mm_struct", 41)),
               (0x100, 0x200)),
    )  # fmt: skip
    slab, data = "mm_struct.mmap_lock", "before+144, lock"
    user = "byte 4, beside byte 8 of g()"
    everywhere = {row for row in found if row.function == EVERYWHERE}
    assert everywhere == {
        SharingRow(EVERYWHERE, What.SLAB, slab, 2, 2, 2, 0),
        SharingRow(EVERYWHERE, What.DATA, data, 2, 0, 2, 0, 2),
        SharingRow(EVERYWHERE, What.USER, user, 2, 2, 0, 2),
        SharingRow(EVERYWHERE, What.PER_CPU, "queue", 2, 0, 0, 0, 2),
    }
    assert {*found} - everywhere == {
        SharingRow("f", What.SLAB, slab, 2, 2, 2, 0),
        SharingRow(LOCK, What.DATA, data, 2, 0, 2, 0, 2),
        SharingRow("g", What.USER, user, 2, 2, 0, 2),
        SharingRow(LOCK, What.PER_CPU, "queue", 2, 0, 0, 0, 2),
    }


def test_members_of_moved_lines_are_told_by_function() -> None:
    """Of objects that begin with a line; where members are is told of all that were touched."""
    places = memory.of("amd64", "6.17")
    assert places
    naming = Naming(
        lambda _start, _end: "", lambda _of, at: "count" if at % 4096 < 66 else "lock",
        members=lambda _of: {"count": 64, "lock": 66},
    )  # fmt: skip
    aligned = array("Q", (PAGE, PAGE - 0x1000, 1 << 32 | 4096, *NAME))
    for slabs, found in ((aligned, {("count", 64, "f"), ("lock", 66, "f"), ("lock", 68, "g")}),
                         (TOUCHED.slabs, set())):  # fmt: skip
        window = replace(TOUCHED, slabs=slabs)
        rows = sharing.fields((window, window), ("", "f", "g"), "6.17", places, naming)
        assert {(row.member, row.at, row.function) for row in rows} == found
        assert sharing.members((window,), naming) == {"mm_struct": {"count": 64, "lock": 66}}


def test_figures_are_per_operation() -> None:
    window = CountedWindow(
        vcpu=0, phase=0, user=1, kernel=0, interrupts=0, switched=False,
        rows=array("Q"), code={}, touched=(TOUCHED, TOUCHED),
    )  # fmt: skip
    phase = PhaseCounts(
        phase="call", operations=2, operation="call", user=(1, 1), kernel=(0, 0), layouts=2
    )
    flush = FunctionCount(phase="call", function="native_flush_tlb_multi", insns=9, calls=2)
    data = ExactData(phases=(phase,), functions=(flush,))
    figures = {one.name: one.value for one in sharing.told({"call": window}, data)}
    assert figures == {
        "fetched_lines": 2, "taken_lines": 1, "lines_by_atomics": 1, "falsely_shared_lines": 0.5,
        "tlb_flushes_sent": 0.5,
    }  # fmt: skip


def test_members_are_where_the_types_say() -> None:
    """An integer, an array, a function, padding and a union stand before the struct."""
    strings = b"\0mm\0count\0flag\0pad\0one\0other\0mm_struct\0"

    def at(name: str) -> int:
        return strings.index(b"\0%b\0" % name.encode()) + 1 if name else 0

    def composed(name: str, kind: int, size: int, *members: tuple[str, int, int]) -> bytes:
        packed = (struct.pack("<3I", at(member), of, bits) for member, of, bits in members)
        return struct.pack("<3I", at(name), kind << 24 | len(members), size) + b"".join(packed)

    types = struct.pack("<4I", 0, 1 << 24, 4, 32)
    types += struct.pack("<6I", 0, 3 << 24, 0, 1, 1, 4)
    types += struct.pack("<5I", 0, 13 << 24 | 1, 1, 0, 1)
    types += composed("", 4, 0, ("other", 2, 0))
    types += composed("", 5, 8, ("one", 1, 0), ("other", 1, 0))
    bit_fields = 4 | 1 << 7
    types += composed(
        "mm", bit_fields, 32, ("pad", 4, 64), ("count", 1, 64), ("flag", 1, 1 << 24 | 96),
        ("", 5, 128),
    )  # fmt: skip
    header = struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(types), len(types), len(strings))
    cut = header[:-16] + struct.pack("<4I", 0, 1 << 30, 1 << 30, 8)  # of a program of the kernel's
    content = memoryview(b"other" + cut + header + types + strings)
    segment = Segment(start=DATA, content=content, executable=False)
    found = btf.read(UnpackedKernel(arch="amd64", segments=(segment,)))
    assert found
    assert found.offsets("mm") == {"count": 8, "flag": 12, "one": 16, "other": 16}
    assert not found.offsets("count")
    members = {at: found.member("mm", at) for at in (0, 8, 15, 16, 31, 32)}
    assert members == {0: "", 8: "count", 15: "flag", 16: "one", 31: "one", 32: ""}
    assert found.member("mm_struct", 0) == ""
    assert btf.read(UnpackedKernel(arch="amd64", segments=())) is None


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
    assert not qemu.can_turn(found)
