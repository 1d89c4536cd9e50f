# SPDX-License-Identifier: GPL-2.0-or-later
"""The machine that a study asks for, and the matrix of machines that it may vary."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

Word = Annotated[
    str,
    Meta(
        pattern=r"\A[A-Za-z0-9][A-Za-z0-9_.,+=-]{0,199}\Z",
        description="one word of letters, digits and _ . , + = -",
    ),
]
CommandLine = Annotated[
    str,
    Meta(
        pattern=r"\A[\x20-\x7e]{0,1000}\Z",
        description="printable ASCII of at most 1000 characters",
    ),
]


class Thp(StrEnum):
    """Mode of transparent huge pages; UNSET: the kernel's own."""

    UNSET = ""
    ALWAYS = "always"
    MADVISE = "madvise"
    NEVER = "never"


class Preempt(StrEnum):
    """The kernel's preemption model; UNSET: its own."""

    UNSET = ""
    NONE = "none"
    VOLUNTARY = "voluntary"
    FULL = "full"
    LAZY = "lazy"


class Mitigations(StrEnum):
    """What mitigations= is set to; UNSET: the kernel's own."""

    UNSET = ""
    OFF = "off"
    AUTO = "auto"


class Swap(StrEnum):
    """What guests swap to."""

    NONE = ""
    DISK = "disk"
    ZRAM = "zram"


Mthp = Annotated[
    str,
    Meta(
        pattern=r"\A(?:[0-9]{2,4}kB=(?:always|madvise|never|inherit)(?:,(?!\Z)|\Z))*\Z",
        description='sizes of multi-size THP and their modes, such as "64kB=always"',
    ),
]
Cpus = Annotated[int, Meta(ge=1, le=64)]
Memory = Annotated[int, Meta(ge=256, le=65536)]
Nodes = Annotated[int, Meta(ge=1, le=4)]
Hugepages2m = Annotated[int, Meta(ge=0, le=32768)]
Hugepages1g = Annotated[int, Meta(ge=0, le=64)]


class MachineSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The machine that every arm of a study gets.

    arch and flavour are Debian's words; cpu_model is QEMU's; cmdline is added to the kernel's own.
    What is set beyond that is set in the guest and read back; a kernel without it is skipped.
    """

    arch: Word = "amd64"
    flavour: Word = "cloud"
    cpus: Cpus = 1
    memory_mib: Memory = 1024
    cpu_model: Word = "max"
    cmdline: CommandLine = ""
    nodes: Nodes = 1
    thp: Thp = Thp.UNSET
    mthp: Mthp = ""
    preempt: Preempt = Preempt.UNSET
    mitigations: Mitigations = Mitigations.UNSET
    swap: Swap = Swap.NONE
    hugepages_2m: Hugepages2m = 0
    hugepages_1g: Hugepages1g = 0


class Matrix(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Machines that every kernel is measured on: each key lists values of a key of `machine`.

    The points of the matrix are all combinations.  Kernels are compared within a point.
    """

    cpus: Annotated[tuple[Cpus, ...], Meta(max_length=16)] = ()
    memory_mib: Annotated[tuple[Memory, ...], Meta(max_length=16)] = ()
    cpu_model: Annotated[tuple[Word, ...], Meta(max_length=16)] = ()
    cmdline: Annotated[tuple[CommandLine, ...], Meta(max_length=16)] = ()
    nodes: Annotated[tuple[Nodes, ...], Meta(max_length=4)] = ()
    thp: Annotated[tuple[Thp, ...], Meta(max_length=4)] = ()
    mthp: Annotated[tuple[Mthp, ...], Meta(max_length=16)] = ()
    preempt: Annotated[tuple[Preempt, ...], Meta(max_length=5)] = ()
    mitigations: Annotated[tuple[Mitigations, ...], Meta(max_length=3)] = ()
    swap: Annotated[tuple[Swap, ...], Meta(max_length=3)] = ()
    hugepages_2m: Annotated[tuple[Hugepages2m, ...], Meta(max_length=16)] = ()
    hugepages_1g: Annotated[tuple[Hugepages1g, ...], Meta(max_length=16)] = ()
