# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads what a booted guest says of itself and its machine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from kdelta.errors import GuestError
from kdelta.procfs import chosen, compiler_in

SWAP_DEVICES = {"disk": "/dev/nvme0n1", "zram": "/dev/zram0"}
_MAX_LINE = 4096
# What a guest must say of itself, and which of it are numbers.
_SAID = (
    "port", "release", "machine", "build", "version", "build-id", "cmdline", "thp", "thp-shmem",
    "preempt", "clocksource", "swap", "cpus", "memory-mib", "nodes", "cpu",
)  # fmt: skip
_NUMBERS = ("cpus", "memory-mib", "nodes")


class MachineSeen(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a kernel says of its machine; None: it cannot tell, "": there is none.  cpu:
    "GenuineIntel 606a0 ..." or "midr 413fd0c1", see guest/cpu.h.  swap: "/dev/zram0 262140", device
    and KiB.
    """

    cpu: str | None = None
    cpus: int | None = None
    memory_mib: int | None = None
    nodes: int | None = None
    cmdline: str | None = None
    thp: str | None = None
    preempt: str | None = None
    swap: str | None = None
    clocksource: str | None = None
    mitigations: tuple[str, ...] = ()

    @property
    def swap_kind(self) -> str:
        """What is swapped to: "disk", "zram", "none", or what else the guest says."""
        kinds = {device: kind for kind, device in SWAP_DEVICES.items()}
        told = self.swap or "none"
        return kinds.get(told.partition(" ")[0], told)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestIdentity:
    """What a guest says of itself.  Empty string: it cannot tell."""

    release: str
    machine: str
    version: str
    build_id: str
    preempt_models: tuple[str, ...]  # models that the kernel can be set to
    seen: MachineSeen
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
        elif key in _SAID:
            words[key] = value.strip()
        else:
            raise GuestError(f"the guest says something unknown of itself: {line[:60]!r}")
    missing = [key for key in _SAID if key not in words]
    bad = [key for key in _NUMBERS if not words.get(key, "").isdecimal()]
    if missing or bad:
        raise GuestError(f"the guest does not say its {(missing or bad)[0]}")
    own: dict[str, Any] = {k: words[k] for k in ("release", "machine", "version")}
    numbers: dict[str, Any] = {key.replace("-", "_"): int(words[key]) for key in _NUMBERS}
    return GuestIdentity(
        **own,
        build_id=words["build-id"],
        preempt_models=tuple(re.findall(r"\w+", words["preempt"])),
        seen=MachineSeen(
            **numbers,
            cpu=words["cpu"] or None,
            cmdline=words["cmdline"],
            thp=chosen(words["thp"]) or None,
            preempt=chosen(words["preempt"]) or None,
            swap=words["swap"],
            clocksource=words["clocksource"] or None,
            mitigations=tuple(mitigations),
        ),
    )
