# SPDX-License-Identifier: GPL-2.0-or-later
"""What the machine and its running kernel offer: memory, disk, PMU, pages."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import shutil
import struct
import tempfile
from pathlib import Path

from kdelta import process
from kdelta.doctor.capabilities import Tried, Usability
from kdelta.errors import as_root
from kdelta.procfs import chosen, meminfo

GIB = 1 << 30
NEEDED_MEMORY = 3 * GIB // 2  # one guest of 1 GiB, QEMU's own memory, kdelta
NEEDED_DISK = 2 * GIB  # nine kernels (~15 MB each), their checkpoints (~100 MB each), packages

_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241, "riscv64": 241}
_ATTR_SIZE = 64  # PERF_ATTR_SIZE_VER0
_HARDWARE, _INSTRUCTIONS = 0, 1
_EXCLUDE_KERNEL_AND_HV = (1 << 5) | (1 << 6)

_THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_HUGEPAGES = Path("/sys/kernel/mm/hugepages")

_NAMESPACE_SWITCHES = (
    ("user.max_user_namespaces", "0", "15000"),
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
)


def memory() -> Tried:
    """Memory that a new guest could take now."""
    free = meminfo(Path("/"))["MemAvailable"] * 1024
    detail = f"{free / GIB:.1f} GiB available, {len(os.sched_getaffinity(0))} CPUs"
    if free >= NEEDED_MEMORY:
        return Tried(Usability.OK, detail)
    return Tried(Usability.UNUSABLE, detail, "free some memory: exact runs need 1.5 GiB")


def disk(cache: Path) -> Tried:
    """Room for, and permission to write, the cache."""
    place = next(path for path in (cache, *cache.parents) if path.is_dir())
    free = shutil.disk_usage(place).free
    detail = f"{free / GIB:.1f} GiB free for {cache}"
    if refused := _refused(place):
        remedy = "set XDG_CACHE_HOME to a directory that you can write"
        return Tried(Usability.UNUSABLE, f"{detail}, not writable: {refused}", remedy)
    if free < NEEDED_DISK:
        remedy = "free 2 GiB, or set XDG_CACHE_HOME to a directory on a larger disk"
        return Tried(Usability.UNUSABLE, detail, remedy)
    return Tried(Usability.OK, detail)


def _refused(directory: Path) -> str:
    """Why no file can be made in a directory; empty when one can (it leaves no trace)."""
    try:
        with tempfile.TemporaryFile(dir=directory):
            return ""
    except OSError as error:
        return (error.strerror or str(error)).lower()


def pmu() -> Tried:
    """Whether the hardware counts instructions for us."""
    number = _PERF_EVENT_OPEN.get(platform.machine())
    if number is None:
        detail = f"no system call number known for {platform.machine()}"
        return Tried(Usability.UNUSABLE, detail)
    count, error = count_instructions(number)
    if not error and count > 0:
        return Tried(Usability.OK, f"counted {count} instructions in user space")
    why = f"perf_event_open: {errno.errorcode.get(error, error)}" if error else "counts nothing"
    if error in (errno.EACCES, errno.EPERM):
        return Tried(Usability.UNUSABLE, why, as_root("sysctl kernel.perf_event_paranoid=2"))
    return Tried(Usability.ABSENT, why)


def count_instructions(number: int) -> tuple[int, int]:
    """(instructions counted over a short loop, 0), or (0, errno) when they cannot be counted."""
    attr = struct.pack(
        "<IIQQQQQ", _HARDWARE, _ATTR_SIZE, _INSTRUCTIONS, 0, 0, 0, _EXCLUDE_KERNEL_AND_HV
    ).ljust(_ATTR_SIZE, b"\0")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    this_task, any_cpu, no_group, no_flags = (ctypes.c_long(value) for value in (0, -1, -1, 0))
    fd = libc.syscall(
        ctypes.c_long(number), ctypes.c_char_p(attr), this_task, any_cpu, no_group, no_flags
    )
    if fd < 0:
        return 0, ctypes.get_errno()
    try:
        sum(range(1000))
        return struct.unpack("<Q", os.read(fd, 8))[0], 0
    except OSError as error:
        return 0, error.errno or errno.EIO
    finally:
        os.close(fd)


def hugepages() -> Tried:
    """THP mode and reserved hugetlb pages of the running kernel."""
    if not _THP.exists() and not _HUGEPAGES.exists():
        return Tried(Usability.ABSENT, "this kernel has neither THP nor hugetlb")
    mode = chosen(_THP.read_text().strip()) if _THP.exists() else "not built in"
    pools = []
    for pool in sorted(_HUGEPAGES.glob("hugepages-*")) if _HUGEPAGES.exists() else ():
        count = (pool / "nr_hugepages").read_text().strip()
        pools.append(f"{count} x {int(pool.name.removeprefix('hugepages-')[:-2]) // 1024} MiB")
    return Tried(Usability.OK, f"THP {mode}; reserved: {', '.join(pools) or 'no hugetlb'}")


def user_namespaces() -> Tried:
    """Whether an ordinary user can make a user namespace."""
    done = process.run(["unshare", "--user", "--map-root-user", "true"], timeout=5.0, check=False)
    if done.returncode == 0:
        return Tried(Usability.OK, "can be made")
    return Tried(Usability.UNUSABLE, done.last_words, _namespace_switch())


def _namespace_switch() -> str:
    """The setting that forbids user namespaces, turned; empty when it is something else."""
    for name, off, on in _NAMESPACE_SWITCHES:
        path = Path("/proc/sys", name.replace(".", "/"))
        if path.exists() and path.read_text().strip() == off:
            return as_root(f"sysctl {name}={on}")
    return ""
