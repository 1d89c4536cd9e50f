# SPDX-License-Identifier: GPL-2.0-or-later
"""What a booted guest says that it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kdelta.errors import GuestError
from kdelta.procfs import chosen, compiler_in

_MAX_LINE = 4096
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
_NUMBERS = ("cpus", "memory-mib", "nodes")


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestIdentity:
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
    swap: str  # "/dev/zram0 262140": device and KiB of each
    clocksource: str
    mitigations: tuple[str, ...]  # "spectre_v2 Mitigation: Retpolines ..."
    files: Mapping[str, str] = field(default_factory=dict)  # what was set in it, read back

    @property
    def compiler(self) -> str:
        """The compiler that /proc/version names: "gcc-14 (Debian 14.2.0-19) 14.2.0"."""
        return compiler_in(self.version)


def parse_identity(lines: Iterable[str]) -> GuestIdentity:
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
    return GuestIdentity(
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
        swap=words["swap"],
        clocksource=words["clocksource"],
        mitigations=tuple(mitigations),
    )
