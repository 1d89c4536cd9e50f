# SPDX-License-Identifier: GPL-2.0-or-later
"""What is asked of a machine, and what the booted guest says it got."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from kdelta.arch import Arch
from kdelta.errors import GuestError

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
)
_NUMBERS = ("cpus", "memory-mib", "nodes")
_CHOSEN = re.compile(r"[\[(](\w+)[\])]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The machine that a study asks for.  cmdline: added to kdelta's own."""

    arch: Arch
    cpus: int = 1
    memory_mib: int = 1024
    cpu_model: str = "max"
    cmdline: str = ""

    @property
    def full_cmdline(self) -> str:
        """The kernel command line.  nokaslr: addresses mean the same in every boot."""
        own = f"console={self.arch.console} quiet nokaslr panic=-1"
        return f"{own} {self.cmdline}".strip()


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
    clocksource: str
    mitigations: tuple[str, ...]  # "spectre_v2 Mitigation: Retpolines ..."

    @property
    def compiler(self) -> str:
        """The compiler that /proc/version names: "gcc-14 (Debian 14.2.0-19) 14.2.0"."""
        return compiler_in(self.version)


def compiler_in(version: str) -> str:
    """The compiler that a text of /proc/version names, such as "gcc-14 (Debian 14.2.0-19)"."""
    match = re.search(r"\(((?:[\w.-]*gcc|clang)\b[^()]*(?:\([^()]*\)[^(),]*)?)", version)
    return match[1].strip() if match else ""


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
    return tuple(found)


def chosen(text: str) -> str:
    """The bracketed word of "always [madvise] never"; the whole text when none is."""
    match = _CHOSEN.search(text)
    return match[1] if match else text
