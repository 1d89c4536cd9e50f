# SPDX-License-Identifier: GPL-2.0-or-later
"""What this machine can do for kdelta: every row of `kdelta doctor`, found out by trying."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from kdelta.arch import ARCHES, Arch
from kdelta.doctor import hardware, toolchain
from kdelta.doctor.capabilities import Capability, Tried, Usability, install
from kdelta.errors import KdeltaError
from kdelta.guests import kvm, qemu
from kdelta.guests.emulator import Qemu
from kdelta.guests.kvm import Reach
from kdelta.source import make

Probe = Callable[[], Tried | Sequence[Tried]]

# The others: unusable.
_KVM_STATES = {Reach.NO_DEVICE: Usability.ABSENT, Reach.KERNEL: Usability.OK}


def inventory(cache: Path, *, online: bool = False) -> tuple[Capability, ...]:
    """Try everything; a probe that goes wrong becomes a row, never an exception.

    cache is kdelta's cache directory (it need not exist).  The network is used only when online.
    Takes seconds; up to a minute where a guest hangs under KVM.
    """
    return tuple(
        Capability(
            name=name, purpose=purpose, state=found.state, detail=found.detail, remedy=found.remedy
        )
        for name, purpose, probe in _probes(cache, online=online)
        for found in _tried(probe)
    )


def _tried(probe: Probe) -> Sequence[Tried]:
    try:
        found = probe()
    except (KdeltaError, OSError, ValueError, LookupError) as error:
        cause = error.cause if isinstance(error, KdeltaError) else str(error)
        return (Tried(Usability.UNUSABLE, f"cannot be found out: {cause}"),)
    return (found,) if isinstance(found, Tried) else found


def _probes(cache: Path, *, online: bool) -> Iterator[tuple[str, str, Probe]]:
    """Every row: its name, what it is for, and how it is found out."""
    yield "Python", "kdelta itself", toolchain.python
    for one in ARCHES.values():
        yield f"QEMU ({one.debian})", f"exact runs, {one.debian}", partial(_qemus, one)
    for one in ARCHES.values():
        plugin = "; QEMU plugin" if one.uname == platform.machine() else ""
        purpose = f"guests, {one.debian}{plugin}"
        yield f"C compiler ({one.debian})", purpose, partial(toolchain.compiler, one)
    yield "memory", "1.5 GiB a guest", hardware.memory
    yield "cache", "kernels, checkpoints", partial(hardware.disk, cache)
    sources = partial(toolchain.debian_sources, online=online)
    yield "Debian sources", "kernels by release", sources
    yield "KVM", "timed runs in a guest", _kvm
    yield "PMU", "timed runs: counters", hardware.pmu
    yield "hugepages", "timed runs: large pages", hardware.hugepages
    yield "tracefs", "tracing runs", hardware.tracing
    yield "user namespaces", "builds without root", hardware.user_namespaces
    yield "kernel builds", "kernels from source, bisection over commits", _builds
    yield "perf", "timed runs: profiles", partial(toolchain.tool, "perf", "linux-perf")
    yield "llvm-mca", "predictions of codegen", partial(toolchain.tool, "llvm-mca", "llvm")
    yield "clang", "a second compiler", partial(toolchain.tool, "clang", "clang")
    yield "ccache", "faster rebuilds", partial(toolchain.tool, "ccache", "ccache")


def _builds() -> Tried:
    """What building kernels from source needs."""
    if packages := make.missing():
        return Tried(Usability.MISSING, f"no {', '.join(packages)}", install(*packages))
    return Tried(Usability.OK, "all tools are there")


def _qemus(target: Arch) -> Sequence[Tried]:
    found = [_qemu(one, target) for one in qemu.find(target)]
    return found or [Tried(Usability.MISSING, f"no {target.qemu}", _get_qemu(target))]


def _qemu(found: Qemu, target: Arch) -> Tried:
    if qemu.counts(found):
        return Tried(Usability.OK, f"counts: {found.version}, {found.program}")
    what = f"does not count: {found.version}" if found.version else f"{found.fault}: does not start"
    return Tried(Usability.UNUSABLE, f"{what}, {found.program}", _get_qemu(target))


def _get_qemu(target: Arch) -> str:
    return f"kdelta qemu fetch {qemu.PINNED} --arch {target.debian}"


def _kvm() -> Tried:
    host = ARCHES["amd64"]
    if platform.machine() != host.uname:
        detail = f"not tried: the probe's boot sector is for {host.uname}"
        return Tried(Usability.UNUSABLE, detail)
    found = next(qemu.find(host), None)
    if found is None:
        detail = f"not tried: no {host.qemu} to try it with"
        return Tried(Usability.UNUSABLE, detail, install(host.qemu_package))
    seen = kvm.probe(found)
    remedy = kvm.REMEDIES[seen.reach]
    if seen.reach is Reach.BOOT_SECTOR and not seen.kernel_tried:
        remedy = "fetch a kernel and ask again: kdelta kernels fetch 6.12"
    return Tried(_KVM_STATES.get(seen.reach, Usability.UNUSABLE), seen.detail, remedy)
