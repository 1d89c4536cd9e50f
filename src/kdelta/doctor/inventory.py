# SPDX-License-Identifier: GPL-2.0-or-later
"""What this machine can do for kdelta: every row of `kdelta doctor`, found out by trying."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from functools import cache as remember
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


def inventory(
    cache: Path, *, online: bool = False, tries: Callable[[str], None] = lambda _: None
) -> tuple[Capability, ...]:
    """Try everything; a probe that goes wrong becomes a row, never an exception.

    cache is kdelta's cache directory (it need not exist).  The network is used only when online.
    tries: called with the name of each row before it is found out.  Takes seconds; up to a minute
    where a guest hangs under KVM.
    """
    rows = []
    for name, purpose, probe in _probes(cache, online=online):
        tries(name)
        rows += [
            Capability(
                name=name, purpose=purpose, state=one.state, detail=one.detail, remedy=one.remedy
            )
            for one in _tried(probe)
        ]
    return tuple(rows)


def _tried(probe: Probe) -> Sequence[Tried]:
    try:
        found = probe()
    except (KdeltaError, OSError, ValueError, LookupError) as error:
        cause = error.cause if isinstance(error, KdeltaError) else str(error)
        return (Tried(Usability.UNUSABLE, f"cannot be found out: {cause}"),)
    return (found,) if isinstance(found, Tried) else found


def _probes(cache: Path, *, online: bool) -> Iterator[tuple[str, str, Probe]]:
    """Every row: its name, what it is for, and how it is found out."""
    sources = remember(partial(toolchain.debian_sources, online=online))
    yield "Python", "kdelta itself", toolchain.python
    for one in ARCHES.values():
        yield f"QEMU ({one.debian})", f"exact runs, {one.debian}", partial(_qemus, one, sources)
    for one in ARCHES.values():
        plugin = "; QEMU plugin" if one.uname == platform.machine() else ""
        purpose = f"guests and kernels, {one.debian}{plugin}"
        yield f"C compiler ({one.debian})", purpose, partial(toolchain.compiler, one)
    yield "memory", "1.5 GiB a guest", hardware.memory
    yield "cache", "kernels, checkpoints", partial(hardware.disk, cache)
    yield "Debian sources", "kernels by release", sources
    yield "KVM", "timed runs in a guest", _kvm
    yield "PMU", "timed runs: counters", hardware.pmu
    yield "hugepages", "timed runs: large pages", hardware.hugepages
    yield "user namespaces", "builds without root", hardware.user_namespaces
    yield "kernel builds", "kernels from source, bisection over commits", _builds
    yield "clang", "a second compiler", partial(toolchain.tool, "clang", "clang")
    yield "bubblewrap", "strangers' builds", partial(toolchain.tool, "bwrap", "bubblewrap")
    yield "ccache", "faster rebuilds", partial(toolchain.tool, "ccache", "ccache")
    yield "ssh", "other machines that time", partial(toolchain.tool, "ssh", "openssh-client", "-V")


def _builds() -> Tried:
    """What building kernels from source needs."""
    if packages := make.missing():
        return Tried(Usability.MISSING, f"no {', '.join(packages)}", install(*packages))
    return Tried(Usability.OK, "all tools are there")


def _qemus(target: Arch, sources: Callable[[], Tried]) -> Sequence[Tried]:
    """Those that are here; where none counts, also whether the first run can fetch one."""
    found = [_qemu(one) for one in qemu.find(target)]
    if any(one.state is Usability.OK for one in found):
        return found
    return [*found, _fetched(target, sources)]


def _qemu(found: Qemu) -> Tried:
    if qemu.counts(found):
        return Tried(Usability.OK, f"counts: {found.version}, {found.program}")
    what = f"does not count: {found.version}" if found.version else f"{found.fault}: does not start"
    return Tried(Usability.UNUSABLE, f"{what}, {found.program}")


def _fetched(target: Arch, sources: Callable[[], Tried]) -> Tried:
    """The QEMU that counts and is not here yet, by what apt can reach."""
    archive = sources()
    if archive.state is Usability.OK:
        detail = f"{qemu.PINNED} is fetched by the first run that needs it; Debian sources"
        return Tried(Usability.FETCHED, f"{detail} {archive.detail}")
    detail = f"no {target.qemu} that counts, and none can be fetched: {archive.detail}"
    other = f"bring a QEMU {qemu.PINNED} here and name it: KDELTA_QEMU=PATH"
    return Tried(Usability.MISSING, detail, archive.remedy or other)


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
