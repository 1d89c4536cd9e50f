# SPDX-License-Identifier: GPL-2.0-or-later
"""What windows asked the kernel for: system calls by name, with what, their errors, and clocks."""

from __future__ import annotations

import errno
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean
from typing import Any

from kdelta.attribution.insns import CountedWindow, instruction
from kdelta.sample import INSTRUCTIONS

_VDSO = "vDSO"
# Of arm64 and riscv64 it has the return from a signal's handler, too: two instructions.
_SIGRETURN = {*map(bytes.fromhex, ("681180d2", "010000d4", "9308b008", "73000000"))}
# A timer that is set in a window ends it, as a clock that is read there does.
_CLOCK_CALLS = (
    *("clock_gettime", "getrusage", "gettimeofday", "time", "times"),
    *("alarm", "setitimer", "timer_settime", "timerfd_settime"),
    *("getitimer", "timer_gettime", "timerfd_gettime"),
)
_KERNEL_HALF = 1 << 63
# By architecture what reads a clock in user space: its name, and a pattern of its bytes.
_CLOCKS = {
    "amd64": ("rdtsc", rb"\x0f(?:\x31|\x01\xf9)"),  # and rdtscp
    # mrs of cntpct_el0, cntvct_el0, cntpctss_el0 and cntvctss_el0
    "arm64": ("cntvct_el0", rb"[\x20-\x5f\xa0-\xdf]\xe0\x3b\xd5"),
    "riscv64": ("rdtime", rb"[\x73\xf3][\x20-\x2f][\x00\x10]\xc0"),  # and rdcycle
}
# Of a call the places of its arguments that are numbers: lengths, counts, flags, operations; r: it
# returns a count.  The others are addresses, tasks and files, or mean nothing by themselves.
_NUMBERS = """
    accept4:4 bpf:13 chmod:2 clone:1 close_range:3 copy_file_range:5r epoll_ctl:2 epoll_pwait:34r
    epoll_pwait2:3r epoll_wait:34r eventfd2:12 fadvise64:234 fallocate:234 fchmod:2 fcntl:2
    fgetxattr:r flistxattr:r ftruncate:2 futex:2r futex_waitv:23 getdents64:3r getrandom:23r
    getxattr:r io_getevents:23r io_submit:2r io_uring_enter:234r io_uring_register:24
    io_uring_setup:1 ioctl:2 ioprio_set:13 listen:2 listxattr:r lseek:23 madvise:23 mbind:23
    membarrier:12 memfd_create:2 migrate_pages:r mincore:2 mlock:2 mlock2:23 mlockall:1 mmap:2346
    mount:4 move_pages:26r mprotect:23 mremap:234 mseal:23 msgrcv:35r msgsnd:34 msync:23 munlock:2
    munmap:2 open:23 openat:34 personality:1 pipe2:2 pkey_mprotect:234 poll:23r ppoll:2r prctl:12
    pread64:34r preadv:34r preadv2:346r prlimit64:2 process_madvise:34r process_vm_readv:35r
    process_vm_writev:35r pselect6:1r pwrite64:34r pwritev:34r pwritev2:346r read:3r readahead:23
    readlink:r readlinkat:r readv:3r recvfrom:34r recvmmsg:34r recvmsg:3r sched_setscheduler:2
    seccomp:12 select:1r semop:3 sendfile:4r sendmmsg:34r sendmsg:3r sendto:34r set_mempolicy:1
    setns:2 setpriority:13 setrlimit:1 setsockopt:235 socket:123 socketpair:123 splice:56r statx:34
    tee:34r truncate:2 umount2:2 unshare:1 userfaultfd:1 vmsplice:34r write:3r writev:3r
"""
# The same of arguments that are strings; w: it writes the second, i: an ioctl, x: starts over.
_STRINGS = """
    access:1 chdir:1 chmod:1 chown:1 chroot:1 creat:1 execve:1x execveat:2x faccessat:2
    faccessat2:2 fchmodat:2 fchmodat2:2 fchownat:2 fgetxattr:2 fsconfig:34 fsetxattr:2 fsopen:1
    fstatat:2 getxattr:12 inotify_add_watch:2 ioctl:i lchown:1 lgetxattr:12 link:12 linkat:24
    listxattr:1 lsetxattr:12 lstat:1 memfd_create:1 mkdir:1 mkdirat:2 mknod:1 mknodat:2 mount:1235
    move_mount:24 newfstatat:2 open:1 open_tree:2 openat:2 openat2:2 pivot_root:12 pwrite64:w
    readlink:1 readlinkat:2 removexattr:12 rename:12 renameat:24 renameat2:24 rmdir:1 setxattr:12
    stat:1 statfs:1 statx:2 swapoff:1 swapon:1 symlink:12 symlinkat:13 truncate:1 umount2:1
    unlink:1 unlinkat:2 utimensat:2 write:w
"""
_RESULT = 6  # behind the arguments
_NUMBERS_OF, _STRINGS_OF = (
    dict(re.findall(r"(\w+):(\w+)", table)) for table in (_NUMBERS, _STRINGS)
)


def strings(names: Mapping[int, str]) -> str:
    """The plugin's option strings= for system calls of these numbers: see plugin/outside.h."""
    return ":".join(
        f"{number}.{sum(1 << '123456wix'.index(one) for one in _STRINGS_OF[name])}"
        for number, name in sorted(names.items())
        if name in _STRINGS_OF
    )


@dataclass(frozen=True, slots=True)
class Calls:
    """How the system calls of an architecture, and its clocks, are known.

    architecture: Debian's name.  names: by number.  by_design: errors and clocks that a scenario
    declares.  vdso: where the code of the vDSO lies, which reads some clocks from memory.
    """

    architecture: str
    names: Mapping[int, str]
    by_design: tuple[str, ...] = ()
    vdso: range = range(0)

    def asked(self, chosen: CountedWindow, windows: Sequence[CountedWindow]) -> dict[str, Any]:
        """Fields of the counts of a phase, by the window that stands for it and by all of them."""
        made, failed = self.of(chosen.syscalls)
        behind = [one.behind for one in windows if one.behind is not None]
        return {
            "syscalls": made,
            "errors": failed,
            "clock": self.clock(windows),
            "by_design": self.by_design,
            "wakes": chosen.wakes,
            "scalars": self.scalars(window.scalars for window in windows) or None,
            "outside": next(filter(None, map(self.outside, reversed(windows))), None),
            "behind": round(fmean(behind)) if behind else None,
        }

    def of(self, words: Sequence[int] | None) -> tuple[dict[str, int] | None, dict[str, int]]:
        """How often each call was made, and how often it returned an error: "madvise EINVAL"."""
        if words is None:
            return None, {}
        made: Counter[str] = Counter()
        failed: Counter[str] = Counter()
        rows = iter(words)
        for number, error, count in zip(rows, rows, rows, strict=True):
            name = self.names.get(number, f"call {number}")
            if error:
                failed[f"{name} {errno.errorcode.get(error, error)}"] += count
            else:
                made[name] += count
        return dict(sorted(made.items())), dict(sorted(failed.items()))

    def scalars(self, rows: Iterable[Sequence[int]]) -> dict[str, tuple[int, ...]]:
        """The values of arguments and results in all rows: see PhaseCounts."""
        found: dict[str, tuple[int, ...]] = {}
        words = chain.from_iterable(rows)
        for number, which, least, most, total, digest in zip(*[words] * 6, strict=True):
            call = self.names.get(number, "")
            place = "r" if which == _RESULT else str(which + 1)
            if which > _RESULT:
                place = str(which - _RESULT)
                name = f"{call} string {place}" if place in _STRINGS_OF[call] else f"{call} data"
                found[name] = 0, 0, 0, found.get(name, (0,) * 4)[3] + digest
            elif place in _NUMBERS_OF.get(call, ""):
                name = f"{call} {'result' if place == 'r' else f'argument {place}'}"
                low, high, whole, mixed = found.get(name, (least, most, 0, 0))
                found[name] = min(low, least), max(high, most), whole + total, mixed + digest
        return {name: _normal(*found[name]) for name in sorted(found)}

    def outside(self, window: CountedWindow) -> dict[str, tuple[int, ...]] | None:
        """What the program asked for outside its windows until this one: see PhaseCounts."""
        if window.outside is None:
            return None
        made, failed = self.of(window.outside[1:])
        counts = {**failed, **(made or {}), INSTRUCTIONS: window.outside[0]}
        asked = self.scalars([window.outside_scalars])
        told = {name: (n, n, 0, 0) for name, n in counts.items()}
        return told | {name: asked[name] for name in asked if not name.endswith(" result")}

    def clock(self, windows: Sequence[CountedWindow]) -> dict[str, int] | None:
        """How often the windows of a phase read a clock, by what reads it."""
        if windows[0].syscalls is None:
            return None
        name, pattern = _CLOCKS[self.architecture]
        reads = re.compile(pattern, re.DOTALL).fullmatch
        found: Counter[str] = Counter()
        known: dict[int, tuple[int, int]] = {}  # of a slot: what reads one, what may
        for window in windows:
            for call, count in (self.of(window.syscalls)[0] or {}).items():
                found[call] += count if call in _CLOCK_CALLS else 0
            for slot, count in zip(window.rows[::2], window.rows[1::2], strict=True):
                if slot not in known:
                    words = iter(window.encodings[slot])
                    code = [instruction(*pair) for pair in zip(words, words, strict=True)]
                    at = window.code[slot][0]
                    known[slot] = (
                        len([*filter(reads, code)]) if at < _KERNEL_HALF else 0,
                        len({*code} - _SIGRETURN) if at in self.vdso else 0,
                    )
                found[name] += known[slot][0] * count
                found[_VDSO] += known[slot][1] * count
        if found[name]:
            del found[_VDSO]
        return dict(sorted((+found).items()))


def _normal(least: int, most: int, total: int, digest: int) -> tuple[int, ...]:
    """With a sign; of one value it does not matter how often it came.  Strings have only 0."""
    low, high, whole = ((n + (1 << 63)) % (1 << 64) - (1 << 63) for n in (least, most, total))
    return (low, high, 0, 0) if low == high and least else (low, high, whole, digest % (1 << 32))
