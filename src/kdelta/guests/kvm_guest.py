# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest for time: the kernel booted directly under KVM, every virtual CPU on a core of its own.

No plugin, no checkpoint: each trial boots.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from kdelta import guest
from kdelta.errors import InfraError, SpecError
from kdelta.guests import kvm, qemu
from kdelta.guests.emulator import Qemu
from kdelta.guests.kvm import Reach
from kdelta.guests.orders import Order
from kdelta.guests.session import Guest
from kdelta.guests.swap import Backing
from kdelta.machine.axes import MachineSettings
from kdelta.procfs import meminfo

_CPU_MODELS = {
    # Only a guest that never migrates may see that the TSC is invariant, and so use it as clock.
    "amd64": "host,migratable=off",
}

_QMP_S = 60.0
_NO_KVM = 'time on this machine itself (machine "host"), or count with the instrument "exact"'


def require(emulator: Qemu, settings: MachineSettings) -> None:
    """Make sure that guests can be timed here, by starting one; takes seconds, at most 40.

    Raises SpecError for a guest of another architecture than this machine's, InfraError with what
    `kdelta doctor` would say when KVM does not boot a kernel here.
    """
    if settings.target.uname != platform.machine():
        raise SpecError(
            f"KVM runs {platform.machine()} guests on this machine, not {settings.target.uname}",
            action="time each architecture on a machine of its own",
        )
    if platform.machine() != "x86_64":  # the probe's boot sector is for PCs
        if not os.access(kvm.DEVICE, os.R_OK | os.W_OK):
            cause = f"no guest can be timed here: no access to {kvm.DEVICE}"
            raise InfraError(cause, action=_NO_KVM)
        return
    seen = kvm.probe(emulator)
    if seen.reach is Reach.KERNEL or (seen.reach is Reach.BOOT_SECTOR and not seen.kernel_tried):
        return
    remedy = kvm.REMEDIES[seen.reach]
    raise InfraError(
        f"no guest can be timed here, KVM does not boot a kernel: {seen.detail}",
        action=f"{remedy}; or {_NO_KVM}" if remedy else _NO_KVM,
    )


def require_hugepages(memory_mib: int, root: Path = Path("/")) -> None:
    """Raise InfraError when too few huge pages of the default size are free for a guest."""
    fields = meminfo(root)
    size_kib, free = fields.get("Hugepagesize", 0), fields.get("HugePages_Free", 0)
    if not size_kib:
        raise InfraError(
            "this kernel has no huge pages to reserve (CONFIG_HUGETLBFS=y)",
            action="leave the huge pages out of the study",
        )
    if memory_mib * 1024 % size_kib:
        raise SpecError(
            f"{memory_mib} MiB is no multiple of a huge page of {size_kib // 1024} MiB",
            action="choose another memory_mib",
        )
    needed = memory_mib * 1024 // size_kib
    if free < needed:
        total = fields.get("HugePages_Total", 0) - free + needed
        raise InfraError(
            f"{needed} huge pages of {size_kib} KiB are needed and {free} are free",
            action=f"reserve them with: sudo sysctl vm.nr_hugepages={total}",
        )


def cpu_model(settings: MachineSettings) -> str:
    """QEMU's CPU model for a timed guest: this machine's own."""
    return _CPU_MODELS.get(settings.arch, "host")


class KvmGuest(Guest):
    """One QEMU process under KVM, its virtual CPUs pinned.  Use as a context manager, as Guest."""

    def __init__(
        self,
        emulator: Qemu,
        settings: MachineSettings,
        image: Path,
        cpus: Sequence[int],
        *,
        orders: Sequence[Order] = (),
        program: Path | None = None,
        hugetlb: bool = False,
        backing: Backing | None = None,
        cancelled: threading.Event | None = None,
    ) -> None:
        """Start QEMU and pin it; the guest boots meanwhile.

        cpus: leased ones of this host (cpus.lease), one for each of the guest's.  orders, program:
        as in Launch.  backing: of its swap.  Raises InfraError, SpecError.
        """
        if len(cpus) != settings.cpus:
            raise SpecError(f"{settings.cpus} virtual CPUs cannot be pinned to {len(cpus)} CPUs")
        if hugetlb:
            require_hugepages(settings.memory_mib)
        launch = qemu.Launch(
            image=image,
            initramfs=guest.initramfs(settings.target),
            orders=tuple(orders),
            program=program,
            accelerator=qemu.Accelerator.KVM,
            hugetlb=hugetlb,
            modules=backing.modules if backing else (),
            disk=backing.disk if backing else None,
        )
        asked = msgspec.structs.replace(settings, cpu_model=cpu_model(settings))
        super().__init__(emulator, asked, launch, with_qmp=True, cancelled=cancelled)
        try:
            self.pinned = self._pin(cpus)
        except BaseException:
            self.close()
            raise

    def _pin(self, cpus: Sequence[int]) -> dict[int, int]:
        """Put each vCPU's thread on its CPU and QEMU's other threads elsewhere: thread -> CPU."""
        from qemu.qmp import QMPError

        try:
            threads = asyncio.run(self._vcpu_threads())
        except (QMPError, EOFError, OSError) as error:
            raise self.without_control(error) from error
        if len(threads) != len(cpus):
            raise InfraError(f"QEMU has {len(threads)} vCPU threads, {len(cpus)} were asked for")
        pinned = dict(zip(threads, cpus, strict=True))
        _set_affinities(self.pid, pinned)
        return pinned

    async def _vcpu_threads(self) -> tuple[int, ...]:
        async with self.control() as qmp:
            return vcpu_threads(await asyncio.wait_for(qmp.execute("query-cpus-fast"), _QMP_S))


def vcpu_threads(answer: object) -> tuple[int, ...]:
    """Thread numbers of the virtual CPUs, by CPU, out of QMP's answer to query-cpus-fast.

    Raises InfraError for anything else.
    """
    rows = answer if isinstance(answer, list) else [answer]
    found: dict[int, int] = {}
    for row in rows:
        index = row.get("cpu-index") if isinstance(row, dict) else None
        thread = row.get("thread-id") if isinstance(row, dict) else None
        if not isinstance(index, int) or not isinstance(thread, int) or thread <= 0:
            raise InfraError(f"QEMU does not tell its vCPU threads: {str(row)[:100]}")
        found[index] = thread
    return tuple(found[index] for index in sorted(found))


def _set_affinities(pid: int, pinned: Mapping[int, int]) -> None:
    """Pin threads of a process; its other threads use other CPUs, if there are any."""
    others = os.sched_getaffinity(pid) - set(pinned.values())
    try:
        for thread, cpu in pinned.items():
            os.sched_setaffinity(thread, {cpu})
    except OSError as error:
        raise InfraError(
            f"a virtual CPU cannot be pinned to CPU {cpu}: {error.strerror}",
            action="is it in this process's cpuset?",
        ) from error
    for task in Path(f"/proc/{pid}/task").iterdir():
        if others and int(task.name) not in pinned:
            with contextlib.suppress(OSError):  # it has ended meanwhile
                os.sched_setaffinity(int(task.name), others)
