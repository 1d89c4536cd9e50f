# SPDX-License-Identifier: GPL-2.0-or-later
"""What this machine can do for kdelta: every row of `kdelta doctor`, found out by trying."""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable
from pathlib import Path

from kdelta.arch import ARCHES, Arch
from kdelta.doctor import hardware, toolchain
from kdelta.doctor.capabilities import Capability, Usability, install
from kdelta.errors import KdeltaError
from kdelta.guests import kvm, qemu
from kdelta.guests.emulator import Qemu
from kdelta.guests.kvm import Reach
from kdelta.source import make

Probe = Callable[[], tuple[Capability, ...]]

_TOOLS = (
    ("perf", "timed runs: profiles", "linux-perf"),
    ("llvm-mca", "predictions of codegen", "llvm"),
    ("clang", "a second compiler", "clang"),
    ("ccache", "faster rebuilds", "ccache"),
)
_KVM_STATES = {
    Reach.NO_DEVICE: Usability.ABSENT,
    Reach.KERNEL: Usability.OK,
}  # the others: unusable


def inventory(cache: Path, *, online: bool = False) -> tuple[Capability, ...]:
    """Try everything; a probe that goes wrong becomes a row, never an exception.

    cache is kdelta's cache directory (it need not exist).  The network is used only when online.
    Takes seconds; up to a minute where a guest hangs under KVM.
    """
    rows = (_guarded(name, probe) for name, probe in _probes(cache, online=online))
    return tuple(row for found in rows for row in found)


def _guarded(name: str, probe: Probe) -> tuple[Capability, ...]:
    try:
        return probe()
    except (KdeltaError, OSError, ValueError, LookupError) as error:
        cause = error.cause if isinstance(error, KdeltaError) else str(error)
        detail = f"cannot be found out: {cause}"
        return (Capability(name=name, state=Usability.UNUSABLE, detail=detail, purpose=""),)


def _probes(cache: Path, *, online: bool) -> tuple[tuple[str, Probe], ...]:
    hosts: tuple[tuple[str, Callable[[], Capability]], ...] = (
        ("memory", hardware.memory),
        ("cache", functools.partial(hardware.disk, cache)),
        ("Debian sources", functools.partial(toolchain.debian_sources, online=online)),
        ("KVM", _kvm),
        ("PMU", hardware.pmu),
        ("hugepages", hardware.hugepages),
        ("tracefs", hardware.tracing),
        ("user namespaces", hardware.user_namespaces),
        ("kernel builds", _builds),
        *((name, functools.partial(toolchain.tool, name, *rest)) for name, *rest in _TOOLS),
    )
    return (
        ("Python", lambda: (toolchain.python(),)),
        *((f"QEMU ({t.debian})", functools.partial(_qemus, t)) for t in ARCHES.values()),
        *((f"C compiler ({t.debian})", functools.partial(_compilers, t)) for t in ARCHES.values()),
        *((name, functools.partial(_single, probe)) for name, probe in hosts),
    )


def _builds() -> Capability:
    """What building kernels from source needs."""
    packages = make.missing()
    return Capability(
        name="kernel builds",
        state=Usability.MISSING if packages else Usability.OK,
        detail=f"no {', '.join(packages)}" if packages else "all tools are there",
        purpose="kernels from source, bisection over commits",
        remedy=install(*packages) if packages else "",
    )


def _single(probe: Callable[[], Capability]) -> tuple[Capability, ...]:
    return (probe(),)


def _compilers(target: Arch) -> tuple[Capability, ...]:
    return (toolchain.compiler(target),)


def _qemus(target: Arch) -> tuple[Capability, ...]:
    name = f"QEMU ({target.debian})"
    purpose = f"exact runs, {target.debian}"
    found = tuple(qemu.find(target))
    if found:
        return tuple(_qemu_row(one, target, name, purpose) for one in found)
    return (
        Capability(
            name=name,
            state=Usability.MISSING,
            detail=f"no {target.qemu}",
            purpose=purpose,
            remedy=_get_qemu(target),
        ),
    )


def _get_qemu(target: Arch) -> str:
    without_root = ", or without root: kdelta qemu fetch" if target.debian == "amd64" else ""
    return install(target.qemu_package) + without_root


def _qemu_row(found: Qemu, target: Arch, name: str, purpose: str) -> Capability:
    usable = found.api is not None
    missing = "no plugins" if found.version else found.fault
    ability = f"plugin API {found.api}" if usable else missing
    return Capability(
        name=name,
        state=Usability.OK if usable else Usability.UNUSABLE,
        detail=f"{ability}: {found.version or 'does not start'}, {found.program}",
        purpose=purpose,
        remedy="" if usable else _get_qemu(target),
    )


def _kvm() -> Capability:
    name, purpose = "KVM", "timed runs in a guest"
    host = ARCHES["amd64"]
    found = next(qemu.find(host), None)
    if platform.machine() != host.uname:
        detail = f"not tried: the probe's boot sector is for {host.uname}"
        return Capability(name=name, state=Usability.UNUSABLE, detail=detail, purpose=purpose)
    if found is None:
        detail = f"not tried: no {host.qemu} to try it with"
        remedy = install(host.qemu_package)
        return Capability(
            name=name, state=Usability.UNUSABLE, detail=detail, purpose=purpose, remedy=remedy
        )
    seen = kvm.probe(found)
    remedy = kvm.REMEDIES[seen.reach]
    if seen.reach is Reach.BOOT_SECTOR and not seen.kernel_tried:
        remedy = "fetch a kernel and ask again: kdelta kernels fetch 6.12"
    state = _KVM_STATES.get(seen.reach, Usability.UNUSABLE)
    return Capability(name=name, state=state, detail=seen.detail, purpose=purpose, remedy=remedy)
