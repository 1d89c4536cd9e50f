# SPDX-License-Identifier: GPL-2.0-or-later
"""Guests for time, under KVM: whether KVM boots a kernel here, and a guest with pinned CPUs.

KVM may be there and still never boot a stock kernel: seen on a nested host whose instruction
emulator lacks the BMI2 instruction SHLX that the kernel's decompressor uses.  So the probe boots
one.  A timed guest has no plugin and no checkpoint: each trial boots.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kdelta import cache, guest, process
from kdelta.errors import InfraError, SpecError, as_root
from kdelta.guests import qemu
from kdelta.guests.orders import Order, SwapBacking
from kdelta.guests.qemu import Qemu
from kdelta.guests.session import Guest
from kdelta.kernels import image
from kdelta.machine.axes import MachineSettings
from kdelta.procfs import meminfo

DEVICE = Path("/dev/kvm")

_KERNEL_S = 20.0
_POLL_S = 0.05
_CONSOLE_BYTES = 1 << 20

_KERNEL_SPOKE = re.compile(rb"Linux version (\S+)")
_GAVE_UP = re.compile(rb"KVM internal error[^\n]*|KVM: entry failed[^\n]*|error: [^\n]*")

_EMULATION = "Suberror: 1"  # KVM_INTERNAL_ERROR_EMULATION, linux/kvm.h


@dataclass(frozen=True, slots=True, kw_only=True)
class KvmProbe:
    """Whether KVM boots a kernel here, one clause on what was seen, and what may help."""

    boots: bool
    detail: str
    remedy: str = ""


def denied() -> KvmProbe | None:
    """Why this user has no KVM; None: the device can be opened."""
    try:
        os.close(os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        remedy = "load kvm_intel or kvm_amd; in a guest, enable nesting first"
        return KvmProbe(boots=False, detail=f"no {DEVICE}", remedy=remedy)
    except OSError as error:
        remedy = as_root("adduser $USER kvm") + ", then log in again"
        return KvmProbe(boots=False, detail=f"{DEVICE}: {error.strerror}", remedy=remedy)
    return None


def probe(qemu: Qemu) -> KvmProbe:
    """Boot the start of a stock kernel of the cache or of /boot under KVM, for at most 20 s.

    qemu is a qemu-system-x86_64.  Raises InfraError only when it cannot be started at all.
    """
    if why := denied():
        return why
    if kernel := kernel_at_hand():
        with tempfile.TemporaryDirectory(prefix="kdelta-doctor-") as scratch:
            return _judge_kernel(qemu, *kernel, Path(scratch))
    remedy = "fetch a kernel and ask again: kdelta kernels fetch 6.12"
    return KvmProbe(boots=False, detail="no kernel at hand to try", remedy=remedy)


def kernel_at_hand(boot: Path = Path("/boot")) -> tuple[Path, str] | None:
    """The newest bzImage among the kernels of the cache, else in /boot, and its release."""
    cached = [folder / "vmlinuz" for folder in cache.entries("images")]
    for places in (cached, list(boot.glob("vmlinuz*"))):
        for path in sorted(places, key=lambda path: path.stat().st_mtime, reverse=True):
            with contextlib.suppress(image.BadImage, OSError):
                facts = image.inspect(path)
                if facts.format == "bzImage":
                    return path, facts.release
    return None


def _judge_kernel(qemu: Qemu, kernel: Path, release: str, scratch: Path) -> KvmProbe:
    """On the CPU that a timed guest would get."""
    argv = [
        *(str(qemu.program), *qemu.arguments, "-accel", "kvm", "-cpu", "host", "-machine", "pc"),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-m", "1024"),
        *("-append", "console=ttyS0 earlyprintk=serial panic=-1", "-serial", "stdio"),
        *("-kernel", str(kernel)),
    ]
    ended, log = _watch(qemu, argv, scratch / "kernel.log")
    if spoke := _KERNEL_SPOKE.search(log):
        detail = f"stock kernel {spoke[1].decode(errors='replace')} starts"
        return KvmProbe(boots=True, detail=detail)
    return KvmProbe(
        boots=False, detail=f"stock kernel {release} does not start: {_why(ended, log)}"
    )


def _why(ended: int | None, log: bytes) -> str:
    if gave_up := _GAVE_UP.search(log):
        words = gave_up[0].decode(errors="replace").strip()
        return words + (", an instruction it cannot emulate" if words.endswith(_EMULATION) else "")
    if ended is not None:
        return f"QEMU ended with status {ended}: {_last_line(log)}"
    said = f', last words "{_last_line(log)}"' if _last_line(log) else ""
    return f"no kernel message in {_KERNEL_S:.0f} s{said}"


def _watch(qemu: Qemu, argv: list[str], log: Path) -> tuple[int | None, bytes]:
    """Run argv until it ends, speaks, gives up (QEMU only pauses then), or its time is up."""
    deadline = time.monotonic() + _KERNEL_S
    with log.open("wb") as sink:
        child = process.start(argv, stdout=sink, stderr=sink, env=qemu.environment)
        try:
            while child.poll() is None and time.monotonic() < deadline:
                if _KERNEL_SPOKE.search(_head(log)) or _GAVE_UP.search(_head(log)):
                    break
                time.sleep(_POLL_S)
            status = child.poll()
        finally:
            process.end(child)
    return status, _head(log)


def _head(log: Path) -> bytes:
    with log.open("rb") as stream:
        return stream.read(_CONSOLE_BYTES)


def _last_line(log: bytes) -> str:
    lines = log.decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else ""


_QMP_S = 60.0
_NO_KVM = 'time on this machine itself (machine "host"), or count with the instrument "exact"'


def require(settings: MachineSettings) -> None:
    """Make sure that guests may be timed here; whether they boot, their trials say.  Raises
    SpecError, InfraError.
    """
    if settings.target.uname != platform.machine():
        cause = f"KVM runs {platform.machine()} guests on this machine, not {settings.target.uname}"
        raise SpecError(cause, action="time each architecture on a machine of its own")
    if why := denied():
        cause = f"no guest can be timed here: {why.detail}"
        raise InfraError(cause, action=f"{why.remedy}; or {_NO_KVM}")


def require_hugepages(memory_mib: int, root: Path = Path("/")) -> None:
    """Raise InfraError when too few huge pages of the default size are free for a guest."""
    fields = meminfo(root)
    size_kib, free = fields.get("Hugepagesize", 0), fields.get("HugePages_Free", 0)
    if not size_kib:
        cause = "this kernel has no huge pages to reserve (CONFIG_HUGETLBFS=y)"
        raise InfraError(cause, action="leave the huge pages out of the study")
    if memory_mib * 1024 % size_kib:
        cause = f"{memory_mib} MiB is no multiple of a huge page of {size_kib // 1024} MiB"
        raise SpecError(cause, action="choose another memory_mib")
    needed = memory_mib * 1024 // size_kib
    if free < needed:
        total = fields.get("HugePages_Total", 0) - free + needed
        cause = f"{needed} huge pages of {size_kib} KiB are needed and {free} are free"
        raise InfraError(cause, action=f"reserve them with: sudo sysctl vm.nr_hugepages={total}")


def cpu_model(settings: MachineSettings) -> str:
    """QEMU's CPU model for a timed guest: this machine's own."""
    # Only a guest that never migrates may see that the TSC is invariant, and so use it as clock.
    return "host,migratable=off" if settings.arch == "amd64" else "host"


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
        backing: SwapBacking | None = None,
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
            initramfs=guest.initramfs(settings.target, image),
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
        import asyncio

        from qemu.qmp import QMPError

        async def answer() -> object:
            async with self.control() as qmp:
                return await asyncio.wait_for(qmp.execute("query-cpus-fast"), _QMP_S)

        try:
            threads = vcpu_threads(asyncio.run(answer()))
        except (QMPError, EOFError, OSError) as error:
            raise self.without_control(error) from error
        if len(threads) != len(cpus):
            raise InfraError(f"QEMU has {len(threads)} vCPU threads, {len(cpus)} were asked for")
        pinned = dict(zip(threads, cpus, strict=True))
        _set_affinities(self._child.pid, pinned)
        return pinned


def vcpu_threads(answer: object) -> tuple[int, ...]:
    """Thread numbers of the virtual CPUs, by CPU, out of query-cpus-fast.  Raises InfraError."""
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
    """Pin threads of a process; its others keep away from those CPUs, where there are others."""
    others = os.sched_getaffinity(pid) - set(pinned.values())
    try:
        for thread, cpu in pinned.items():
            os.sched_setaffinity(thread, {cpu})
    except OSError as error:
        cause = f"a virtual CPU cannot be pinned to CPU {cpu}: {error.strerror}"
        raise InfraError(cause, action="is it in this process's cpuset?") from error
    for task in Path(f"/proc/{pid}/task").iterdir():
        if others and int(task.name) not in pinned:
            with contextlib.suppress(OSError):  # it has ended meanwhile
                os.sched_setaffinity(int(task.name), others)
