# SPDX-License-Identifier: GPL-2.0-or-later
"""What is asked of a machine, and what the booted guest says it got."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from kdelta.arch import Arch
from kdelta.errors import GuestError
from kdelta.host.procfs import chosen, compiler_in

_MAX_LINE = 4096
_LEAST_MEMORY = 0.8  # of what was asked for: the kernel keeps the rest for itself
_WORDS = (
    "port",
    "release",
    "machine",
    "build",
    "version",
    "build-id",
    "cmdline",
    "thp",
    "thp-shmem",
    "preempt",
    "clocksource",
    "swap",
)
_NUMBERS = ("cpus", "memory-mib", "nodes", "hugepages-2m", "hugepages-1g")
_THP = "/sys/kernel/mm/transparent_hugepage"
_POOLS = {"hugepages_2m": 2048, "hugepages_1g": 1048576}  # kB of a page
SWAP_DEVICES = {"disk": "/dev/nvme0n1", "zram": "/dev/zram0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The machine that a study asks for.  cmdline: added to kdelta's own.

    From nodes on: 1, 0 or "" leaves the kernel's own; the values are those of a study's [machine].
    """

    arch: Arch
    cpus: int = 1
    memory_mib: int = 1024
    cpu_model: str = "max"
    cmdline: str = ""
    nodes: int = 1
    thp: str = ""
    mthp: str = ""
    preempt: str = ""
    mitigations: str = ""
    swap: str = ""
    hugepages_2m: int = 0
    hugepages_1g: int = 0

    @property
    def full_cmdline(self) -> str:
        """The kernel command line.  nokaslr: addresses mean the same in every boot."""
        words = [f"console={self.arch.console} quiet nokaslr panic=-1"]
        words += [f"preempt={self.preempt}"] if self.preempt else []
        words += [f"mitigations={self.mitigations}"] if self.mitigations else []
        words += [self.cmdline] if self.cmdline else []
        return " ".join(words)

    @property
    def knobs(self) -> tuple[tuple[str, str], ...]:
        """What is set in the running guest: (file, value)."""
        found = [(f"{_THP}/enabled", self.thp)] if self.thp else []
        for pair in filter(None, self.mthp.split(",")):
            size, _, mode = pair.partition("=")
            found.append((f"{_THP}/hugepages-{size}/enabled", mode))
        for name, kb in _POOLS.items():
            if count := getattr(self, name):
                pool = f"/sys/kernel/mm/hugepages/hugepages-{kb}kB/nr_hugepages"
                found.append((pool, str(count)))
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What the guest sees of itself.  Empty string: the guest cannot tell."""

    port: str  # what carries orders: "virtio" or "serial"
    release: str
    machine: str
    build: str
    version: str
    build_id: str
    cmdline: str
    cpus: int
    memory_mib: int
    nodes: int
    thp: str
    thp_shmem: str
    preempt: str
    preempt_models: tuple[str, ...]  # those that the kernel can be told to have
    hugepages_2m: int
    hugepages_1g: int
    swap: str  # "/dev/zram0 262140": device and KiB of each
    clocksource: str
    mitigations: tuple[str, ...]  # "spectre_v2 Mitigation: Retpolines ..."

    @property
    def compiler(self) -> str:
        """The compiler that /proc/version names: "gcc-14 (Debian 14.2.0-19) 14.2.0"."""
        return compiler_in(self.version)


def parse_identity(lines: Iterable[str]) -> Identity:
    """Read the guest's answer to the order "identity".  Raises GuestError for garbage."""
    words: dict[str, str] = {}
    mitigations: list[str] = []
    for line in lines:
        key, _, value = line.partition(" ")
        if len(line) > _MAX_LINE or not line.isprintable():
            raise GuestError(f"the guest says garbage of itself: {line[:60]!r}")
        if key == "mitigation" and len(mitigations) < 256:
            mitigations.append(value)
        elif key in _WORDS or key in _NUMBERS:
            words[key] = value.strip()
        else:
            raise GuestError(f"the guest says something unknown of itself: {line[:60]!r}")
    missing = [key for key in (*_WORDS, *_NUMBERS) if key not in words]
    bad = [key for key in _NUMBERS if not words.get(key, "").isdecimal()]
    if missing or bad:
        raise GuestError(f"the guest does not say its {(missing or bad)[0]}")
    return Identity(
        port=words["port"],
        release=words["release"],
        machine=words["machine"],
        build=words["build"],
        version=words["version"],
        build_id=words["build-id"],
        cmdline=words["cmdline"],
        cpus=int(words["cpus"]),
        memory_mib=int(words["memory-mib"]),
        nodes=int(words["nodes"]),
        thp=chosen(words["thp"]),
        thp_shmem=chosen(words["thp-shmem"]),
        preempt=chosen(words["preempt"]),
        preempt_models=tuple(re.findall(r"\w+", words["preempt"])),
        hugepages_2m=int(words["hugepages-2m"]),
        hugepages_1g=int(words["hugepages-1g"]),
        swap=words["swap"],
        clocksource=words["clocksource"],
        mitigations=tuple(mitigations),
    )


def mismatches(settings: Settings, release: str, identity: Identity) -> tuple[str, ...]:
    """What the guest did not get as asked, one phrase each; empty when all was read back."""
    found = []
    if release and identity.release != release:
        found.append(f"kernel release is {identity.release}, the image says {release}")
    if identity.machine != settings.arch.uname:
        found.append(f"machine is {identity.machine}, asked for {settings.arch.uname}")
    if identity.cpus != settings.cpus:
        found.append(f"{identity.cpus} CPUs, asked for {settings.cpus}")
    if not _LEAST_MEMORY * settings.memory_mib <= identity.memory_mib <= settings.memory_mib:
        found.append(f"{identity.memory_mib} MiB memory, asked for {settings.memory_mib}")
    if identity.cmdline != settings.full_cmdline:
        found.append(f"command line is {identity.cmdline!r}, asked for {settings.full_cmdline!r}")
    if identity.nodes != settings.nodes:
        found.append(f"{identity.nodes} NUMA nodes, asked for {settings.nodes}")
    if settings.thp and identity.thp != settings.thp:
        found.append(f"THP mode is {identity.thp or 'none'}, asked for {settings.thp}")
    if settings.preempt and identity.preempt != settings.preempt:
        found.append(f"preemption is {identity.preempt or 'unknown'}, asked for {settings.preempt}")
    if identity.swap.partition(" ")[0] != SWAP_DEVICES.get(settings.swap, ""):
        found.append(f"swap is {identity.swap or 'none'}, asked for {settings.swap or 'none'}")
    return tuple(found)


def lacking(settings: Settings, identity: Identity) -> str:
    """What this kernel does not have of what was asked for, one phrase; "" when nothing.

    That is no failure: such a trial is skipped.
    """
    models = identity.preempt_models
    if settings.preempt and not models:
        return f"preempt={settings.preempt}: the kernel does not choose its preemption at boot"
    if settings.preempt and settings.preempt not in models:
        return f"preempt={settings.preempt}: the kernel offers only {', '.join(models)}"
    for name in _POOLS:
        got, asked = getattr(identity, name), getattr(settings, name)
        if got < asked:
            return f"{name}: the kernel gave {got} of {asked} huge pages"
    return ""


class Lacking(Exception):  # noqa: N818  no error: the trial is skipped
    """The kernel does not have what the settings ask for; the text says what."""
