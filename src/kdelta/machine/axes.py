# SPDX-License-Identifier: GPL-2.0-or-later
"""The machine that a study asks for: one table, an entry for each axis that a study can vary.

An entry is a field of `MachineSettings`: its name and limits in a study's file, its default, and
an `Axis` that says how it reaches a guest and what the guest must say of it.  The study's tables
[machine] and [matrix], the needs of scenarios, the options of commands and the documents follow;
so does the check that a guest got what was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from kdelta.arch import ARCHES, Arch, of
from kdelta.machine import cpu
from kdelta.machine.identity import GuestIdentity, MachineSeen
from kdelta.procfs import chosen

_THP = "/sys/kernel/mm/transparent_hugepage"

Word = Annotated[
    str,
    Meta(
        pattern=r"\A[A-Za-z0-9][A-Za-z0-9_.,+=-]{0,199}\Z",
        description="one word of letters, digits and _ . , + = -",
    ),
]


@dataclass(frozen=True, slots=True)
class Axis:
    """How one setting reaches a guest, and how it is read back.

    what: for documents and help; own: what its default "" means there.  An `option` of QEMU (or
    `qemu`: several), a `parameter` of the kernel, or `files`, (path, text) written in the running
    guest and read back, set it.  seen: where a MachineSeen has it; fits: whether that is what was
    asked for; lacks: why this kernel cannot have it, "" when it can.
    """

    what: str
    own: str = "the kernel's own"
    option: str = ""
    qemu: Callable[[MachineSettings], list[str]] = lambda _machine: []
    parameter: str = ""
    files: Callable[[Any], Iterable[tuple[str, str]]] | None = None
    seen: str = ""
    fits: Callable[[Any, Any], bool] = lambda asked, seen: asked in ("", seen)
    lacks: Callable[[Any, GuestIdentity], str] = lambda _asked, _identity: ""


def _cpu(machine: MachineSettings) -> list[str]:
    return ["-cpu", cpu.of_qemu(machine.cpu_model, machine.arch)]


def _is_preset(asked: str, seen: str | None) -> bool:
    """Whether that is the preset's CPU; a model of QEMU's own has no fixed features to check."""
    wanted = [one.seen for arch in ARCHES if (one := cpu.preset(asked, arch))]
    return not any(wanted) or (seen or "") in wanted


def _nodes(machine: MachineSettings) -> list[str]:
    """NUMA nodes of equal memory; CPUs go round, so that a node may have none."""
    argv: list[str] = []
    for node, (name, _) in enumerate(machine.memory if machine.nodes > 1 else ()):
        cpus = "".join(f",cpus={cpu}" for cpu in range(node, machine.cpus, machine.nodes))
        argv += ["-numa", f"node,nodeid={node},memdev={name}{cpus}"]
    return argv


def _thp(mode: str) -> Iterable[tuple[str, str]]:
    return [(f"{_THP}/enabled", mode)]


def _mthp(asked: str) -> Iterable[tuple[str, str]]:
    for size, _, mode in (pair.partition("=") for pair in asked.split(",")):
        yield f"{_THP}/hugepages-{size}/enabled", mode


def _pool(kb: int) -> Callable[[int], Iterable[tuple[str, str]]]:
    path = f"/sys/kernel/mm/hugepages/hugepages-{kb}kB/nr_hugepages"
    return lambda count: [(path, str(count))]


def _lacks_preemption(asked: str, identity: GuestIdentity) -> str:
    models = identity.preempt_models
    if not models:
        return f"preempt={asked}: the kernel does not choose its preemption at boot"
    offers = f"preempt={asked}: the kernel offers only {', '.join(models)}"
    return "" if asked in models else offers


LEFT_OUT = " cryptomgr.notests=1 initcall_blacklist=jent_mod_init"


class MachineSettings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The machine of an arm.  arch, flavour: Debian's words; the axes follow.  Annotations are
    evaluated apart: a lambda in them sees no name of this module.
    """

    arch: Annotated[Word, "Debian's name of the architecture"] = "amd64"
    flavour: Annotated[Word, "Debian's kernel flavour"] = "cloud"
    cpus: Annotated[
        int, Meta(ge=1, le=64), Axis(what="virtual CPUs", option="-smp", seen="cpus")
    ] = 1
    memory_mib: Annotated[
        int,
        Meta(ge=256, le=65536),
        Axis(
            what="memory in MiB; with less than 1024, THP is off in the guest",
            option="-m",
            seen="memory_mib",
            fits=lambda asked, seen: 0.8 * asked <= seen <= asked,  # the kernel keeps the rest
        ),
    ] = 1024
    cpu_model: Annotated[
        Word,
        Axis(
            what='CPU: one of kdelta\'s presets, or a model of QEMU ("max", "qemu64,+avx2")',
            qemu=_cpu,
            seen="cpu",
            fits=_is_preset,
        ),
    ] = cpu.EVERYDAY
    cmdline: Annotated[
        str,
        Meta(
            pattern=r"\A[\x20-\x7e]{0,1000}\Z",
            description="printable ASCII of at most 1000 characters",
        ),
        Axis(what="added to the kernel command line that kdelta gives", own="empty"),
    ] = ""
    nodes: Annotated[
        int,
        Meta(ge=1, le=4),
        Axis(
            "NUMA nodes of equal memory; CPUs are dealt to them in turn", qemu=_nodes, seen="nodes"
        ),
    ] = 1
    thp: Annotated[
        Literal["", "always", "madvise", "never"],
        Axis(what="mode of transparent huge pages", files=_thp, seen="thp"),
    ] = ""
    mthp: Annotated[
        str,
        Meta(
            pattern=r"\A(?:[0-9]{2,4}kB=(?:always|madvise|never|inherit)(?:,(?!\Z)|\Z))*\Z",
            description='sizes of multi-size THP and their modes, such as "64kB=always"',
        ),
        Axis(what="multi-size THP", files=_mthp),
    ] = ""
    preempt: Annotated[
        Literal["", "none", "voluntary", "full", "lazy"],
        Axis("preemption model", parameter="preempt", seen="preempt", lacks=_lacks_preemption),
    ] = ""
    mitigations: Annotated[
        Literal["", "off", "auto"],
        Axis(what="mitigations of the CPU's faults", parameter="mitigations"),
    ] = ""
    swap: Annotated[  # turned on by guests.swap
        Literal["", "disk", "zram"],
        Axis(
            what="what the guest swaps to",
            own="none",
            seen="swap_kind",
            fits=lambda asked, seen: seen == (asked or "none"),
        ),
    ] = ""
    hugepages_2m: Annotated[
        int,
        Meta(ge=0, le=32768),
        Axis(what="huge pages of 2 MiB in hugetlb's pool", files=_pool(2 << 10)),
    ] = 0
    hugepages_1g: Annotated[
        int,
        Meta(ge=0, le=64),
        Axis(what="huge pages of 1 GiB in hugetlb's pool", files=_pool(1 << 20)),
    ] = 0

    @property
    def target(self) -> Arch:
        """The architecture.  Raises SpecError for one that is not in the table."""
        return of(self.arch)

    @property
    def memory(self) -> tuple[tuple[str, int], ...]:
        """Name and MiB of each part of the memory: one, or one for each node."""
        if self.nodes == 1:
            return (("ram", self.memory_mib),)
        each, rest = divmod(self.memory_mib, self.nodes)
        sizes = (each + rest, *[each] * (self.nodes - 1))
        return tuple((f"node{node}", size) for node, size in enumerate(sizes))

    @property
    def qemu_options(self) -> list[str]:
        """QEMU's options for the axes."""
        words: list[str] = []
        for name, axis in AXES.items():
            words += [axis.option, str(getattr(self, name))] if axis.option else axis.qemu(self)
        return words

    @property
    def full_cmdline(self) -> str:
        """The kernel command line.  nokaslr: addresses mean the same in every boot.

        No path depends on what boots leave out: tests of cryptography, and entropy from jitter.  A
        kernel ignores the names of what it does not have, so all kernels have one line.
        """
        words = [f"console={self.target.console} quiet nokaslr panic=-1{LEFT_OUT}"]
        for name, axis in AXES.items():
            if axis.parameter and (value := getattr(self, name)):
                words.append(f"{axis.parameter}={value}")
        return " ".join([*words, self.cmdline] if self.cmdline else words)

    @property
    def files(self) -> tuple[tuple[str, str], ...]:
        """What is set in the running guest: (path, text)."""
        return tuple(
            pair
            for name, axis in AXES.items()
            if axis.files and (value := getattr(self, name))
            for pair in axis.files(value)
        )


_FIELDS = msgspec.structs.fields(MachineSettings)
AXES = {f.name: note for f in _FIELDS for note in f.type.__metadata__ if isinstance(note, Axis)}
"""Every axis by its name, in the order of documents and tables."""

_KINDS = {field.name: field.type for field in _FIELDS if field.name in AXES}

if TYPE_CHECKING:  # their fields come from the table and are never spelled out
    Matrix = Struct
    Needs = Struct
else:
    _STRICT = {"frozen": True, "forbid_unknown_fields": True, "kw_only": True}
    _LISTS = {k: Annotated[tuple[v, ...], Meta(max_length=16)] for k, v in _KINDS.items()}
    Matrix = msgspec.defstruct("Matrix", [(k, v, ()) for k, v in _LISTS.items()], **_STRICT)
    Needs = msgspec.defstruct("Needs", [(k, v | None, None) for k, v in _KINDS.items()], **_STRICT)


NO_NEEDS = Needs()


def words(needs: Needs) -> tuple[str, ...]:
    """What a scenario cannot do without, such as "nodes 2"."""
    return tuple(f"{name} {value}" for name, value in _given(needs))


def _given(needs: Needs) -> Iterable[tuple[str, Any]]:
    return ((name, value) for name in AXES if (value := getattr(needs, name)) is not None)


def described() -> Iterable[tuple[str, Any, str]]:
    """Every key of a machine, its type, and what documents and help say of it."""
    for field in _FIELDS:
        notes = (getattr(note, "what", note) for note in field.type.__metadata__)
        yield field.name, field.type.__origin__, next(n for n in notes if isinstance(n, str))


def with_needs(machine: MachineSettings, needs: Needs) -> MachineSettings:
    """The machine with the larger number, or the word where the study has the default, of needs."""
    changed: dict[str, Any] = {}
    for name, need in _given(needs):
        own, default = getattr(machine, name), getattr(MachineSettings(), name)
        changed[name] = max(own, need) if isinstance(own, int) else need if own == default else own
    return msgspec.structs.replace(machine, **changed)


class Lacking(Exception):  # noqa: N818  no error: the trial is skipped
    """The kernel does not have what was asked for; the text says what."""


def lacking(machine: MachineSettings, identity: GuestIdentity) -> str:
    """What was asked for and the kernel lacks, a phrase: the trial is skipped; "" for nothing."""
    for name, axis in AXES.items():
        asked = getattr(machine, name)
        if asked and (phrase := axis.lacks(asked, identity)):
            return phrase
        for path, text in axis.files(asked) if asked and axis.files else ():
            got = identity.files.get(path, "")
            if text.isdecimal() and got.isdecimal() and int(got) < int(text):
                return f"{name}: the kernel gave {got} of {text}"
    return ""


def mismatches(machine: MachineSettings, release: str, identity: GuestIdentity) -> tuple[str, ...]:
    """What the guest did not get as asked, one phrase each; empty when all was read back."""
    found = []
    if release and identity.release != release:
        found.append(f"kernel release is {identity.release}, the image says {release}")
    if identity.machine != machine.target.uname:
        found.append(f"machine is {identity.machine}, asked for {machine.target.uname}")
    if (seen := identity.seen.cmdline) != machine.full_cmdline:
        found.append(f"command line is {seen!r}, asked for {machine.full_cmdline!r}")
    return (*found, *unlike(machine, identity.seen), *_unlike_files(machine, identity))


def unlike(machine: MachineSettings, told: MachineSeen) -> Iterator[str]:
    """What the guest says of itself, and was not asked to be."""
    for name, axis in AXES.items():
        asked = getattr(machine, name)
        if axis.seen and not axis.fits(asked, seen := getattr(told, axis.seen)):
            yield f"{name} is {seen or 'unknown'}, asked for {asked or axis.own}"


def _unlike_files(machine: MachineSettings, identity: GuestIdentity) -> Iterator[str]:
    for name, axis in AXES.items():
        asked = getattr(machine, name)
        if not axis.seen and asked and axis.files:
            for path, text in axis.files(asked):
                if (got := chosen(identity.files.get(path, ""))) != text:
                    yield f"{name}: {path} is {got or 'unknown'}, asked for {text}"
