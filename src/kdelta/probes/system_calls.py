# SPDX-License-Identifier: GPL-2.0-or-later
"""What windows asked the kernel for: system calls by name, with what, their errors, and clocks."""

from __future__ import annotations

import errno
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean
from typing import Any

from kdelta.attribution.insns import CountedWindow, instruction
from kdelta.sample import INSTRUCTIONS, OF_LOADER, OLD_CALL, ORDER, PART, TOUCHED
from kdelta.verdict.windows import is_near, median

_VDSO = "vDSO"
_PLACE_SHIFT = 52  # of places of calls, above their instructions: see plugin/syscalls.c
_MOST_ALIKE = 32  # windows that say what a place takes
_MOST_LENGTHS = 8  # of windows, beside the common one
_OLD_CALLS = 1 << 32  # their numbers from here on: see plugin/syscalls.c
# Of arm64 and riscv64 it has the return from a signal's handler, too: two instructions.
_SIGRETURN = {*map(bytes.fromhex, ("681180d2", "010000d4", "9308b008", "73000000"))}
# A timer that is set in a window ends it, as a clock that is read there does.
_CLOCK_CALLS = (
    *("clock_gettime", "getrusage", "gettimeofday", "time", "times"),
    *("alarm", "setitimer", "timer_settime", "timerfd_settime"),
    *("getitimer", "timer_gettime", "timerfd_gettime"),
    *("adjtimex", "clock_adjtime", "sysinfo"),
)
# A file that is stamped and looked at is a clock, too.
_STAMPS = {"utime", "utimes", "futimesat", "utimensat"}
_STATS = {"stat", "lstat", "fstat", "newfstatat", "statx"}
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
# The same of open files, which matter only beside what else is asked for, in which order.
_FILES = """
    accept4:1 bind:1 close:1 connect:1 copy_file_range:13 dup:1 dup2:12 dup3:12 epoll_ctl:13
    epoll_pwait:1 epoll_wait:1 fallocate:1 fchdir:1 fchmod:1 fchown:1 fcntl:1 fdatasync:1 flock:1
    fstat:1 fsync:1 ftruncate:1 getdents64:1 inotify_add_watch:1 ioctl:1 listen:1 lseek:1 mmap:5
    openat:1 pread64:1 preadv:1 preadv2:1 pwrite64:1 pwritev:1 pwritev2:1 read:1 readv:1 recvfrom:1
    recvmsg:1 sendfile:12 sendmsg:1 sendto:1 setsockopt:1 splice:13 write:1 writev:1
"""
# Of a call what its arguments point at: the argument, a letter of _KINDS, a size in bytes, * the
# argument that says how many, + bytes in front, & the words of each that are addresses.  Argument
# 0: of the call itself.  plugin/pointed.h says what the letters mean, in the same order.
_KINDS = "sabgviwdmknfoctjrhexpMURONBT"
_POINTED = """
    accept4:2a access:1s add_key:1s,2s,3b1*4 bind:2n*3 bpf:2j brk:1a,0B cachestat:2b16
    capset:1b8,2b24 chdir:1s chmod:1s chown:1s chroot:1s clock_nanosleep:3b16 clock_settime:2b16
    clone3:1b1*2&123578 connect:2n*3 copy_file_range:2b8,4b8 creat:1s epoll_ctl:4b4
    epoll_pwait2:2a,4b16,5b8 epoll_pwait:2a,5b8 execve:1s,2v,3v,0x,0e execveat:2s,3v,4v,0x,0e
    exit:0e exit_group:0e faccessat2:2s faccessat:2s fchmodat2:2s fchmodat:2s fchownat:2s fcntl:3c
    fgetxattr:2s,3a finit_module:2s fremovexattr:2s fsconfig:3s,4s fsetxattr:2s,3b1*4 fsopen:1s
    fspick:2s fstatat:2s futex:1a,0T futex_waitv:1b24*2&1,4b16 futimesat:2s,3b32 getdents64:2a
    getrandom:1a getxattr:1s,2s,3a inotify_add_watch:2s io_setup:2a io_submit:3a io_uring_setup:2b40
    ioctl:3t landlock_add_rule:3b16 landlock_create_ruleset:1b1*2 lchown:1s lgetxattr:1s,2s,3a
    link:1s,2s linkat:2s,4s listmount:1b24 listxattr:1s lremovexattr:1s lsetxattr:1s,2s,3b1*4
    lstat:1s madvise:1a+1 mbind:1a,4g*5 memfd_create:1s migrate_pages:3g*2,4g*2 mincore:1a+1
    mkdir:1s mkdirat:2s mknod:1s mknodat:2s mlock2:1a+1 mlock:1a+1 mmap:1a,0M modify_ldt:2b1*3
    mount:1s,2s,3s,5s mount_setattr:2s,4b1*5 move_mount:2s,4s move_pages:3b8*2&0,4b4*2 mprotect:1a+1
    mq_open:1s,4b32 mq_timedreceive:2a,5b16 mq_timedsend:2d*3,5b16 mq_unlink:1s mremap:1a,5a,0R
    mseal:1a msgrcv:2a msgsnd:2b1*3+8 msync:1a+1 munlock:1a+1 munmap:1a+1,0U name_to_handle_at:2s
    nanosleep:1b16 newfstatat:2s open:1s,1O open_tree:2s openat2:2s,3b1*4,2O openat:2s,2O
    pivot_root:1s,2s pkey_mprotect:1a+1 poll:1b8*2 ppoll:1b8*2,3b16,4b1*5 prctl:3f22 pread64:2a,2h
    preadv2:2i*3 preadv:2i*3 prlimit64:3b16 process_madvise:2i*3 process_vm_readv:2i*3,4i*5
    process_vm_writev:2w*3,4i*5 pselect6:2g*1,3g*1,4g*1,5b16 pwrite64:2d*3,0p pwritev2:2w*3,0p
    pwritev:2w*3,0p quotactl:2s,4a read:2a,2h readahead:1a readlink:1s readlinkat:2s readv:2i*3
    recvfrom:2a recvmmsg:2m64*3,5b16 recvmsg:2m remap_file_pages:1a removexattr:1s,2s rename:1s,2s
    renameat2:2s,4s renameat:2s,4s request_key:1s,2s,3s restart_syscall:0T rmdir:1s
    rt_sigaction:2b32&02 rt_sigprocmask:2b1*4 rt_sigreturn:0T rt_sigsuspend:1b1*2
    rt_sigtimedwait:1b1*4,3b16 sched_setaffinity:3b1*2 sched_setattr:2b48 sched_setparam:2b4
    sched_setscheduler:3b4 sched_yield:0T seccomp:3f1 select:2g*1,3g*1,4g*1,5b16 semctl:4a
    semop:2b6*3 semtimedop:2b6*3,4b16 sendfile:3b8 sendmmsg:2k64*3 sendmsg:2k sendto:2d*3,5n*6
    set_mempolicy:2g*3 set_robust_list:1r setdomainname:1b1*2 setgroups:2b4*1 sethostname:1b1*2
    setitimer:2b32 setrlimit:2b16 setsockopt:4o setxattr:1s,2s,3b1*4 shmat:2a shmdt:1a
    sigaltstack:1b24&0 signalfd4:2b1*3 splice:2b8,4b8 stat:1s statfs:1s statmount:1b24 statx:2s
    swapoff:1s swapon:1s symlink:1s,2s symlinkat:1s,3s syslog:2a timer_create:2b16&0
    timer_settime:3b32 timerfd_settime:3b32 truncate:1s umount2:1s unlink:1s unlinkat:2s
    utime:1s,2b16 utimensat:2s,3b32 utimes:1s,2b32 vmsplice:2w*3 write:2d*3,0p writev:2w*3,0p
"""
_RESULT = 6  # behind the arguments
_CONTENTS = _RESULT + 8  # of what the kernel wrote, behind the call and its arguments
_NUMBERS_OF, _FILES_OF = (dict(re.findall(r"(\w+):(\w+)", text)) for text in (_NUMBERS, _FILES))
_POINTED_OF = {
    name: re.findall(r"(\d)(\w)(\d*)(?:\*(\d))?(?:\+(\d+))?(?:&(\d+))?", text)
    for name, text in re.findall(r"(\w+):(\S+)", _POINTED)
}


def pointed(names: Mapping[int, str]) -> str:
    """The plugin's option pointed= for system calls of these numbers: see plugin/pointed.h."""
    return ":".join(row for number in sorted(names) for row in _rows(number, names[number]))


def _rows(number: int, name: str) -> Iterator[str]:
    masks = [
        sum(1 << int(n) - 1 for n in of.get(name, "") if n != "r")
        for of in (_FILES_OF, _NUMBERS_OF)
    ]
    if any(masks):
        yield f"{number}.0.{_KINDS.index('N')}.1.0.{masks[0]}.{masks[1]}"
    for argument, kind, each, count, base, words in _POINTED_OF.get(name, ()):
        size = each or (56 if kind in "mk" else 1)
        mask = sum(1 << int(word) for word in words)
        yield f"{number}.{argument}.{_KINDS.index(kind)}.{size}.{count or 0}.{base or 0}.{mask}"


@dataclass(frozen=True, slots=True)
class Calls:
    """How the system calls of an architecture, and its clocks, are known.

    architecture: Debian's name.  names: by number.  by_design: errors and clocks that a scenario
    declares.  vdso: where the code of the vDSO lies, which reads some clocks from memory.
    loader: where the dynamic loader of a program lies, which is started in the windows.
    """

    architecture: str
    names: Mapping[int, str]
    by_design: tuple[str, ...] = ()
    vdso: range = range(0)
    loader: range = range(0)

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
            "scalars": self._inside(windows) or None,
            "outside": next(filter(None, map(self.outside, reversed(windows))), None),
            "behind": round(fmean(behind)) if behind else None,
            "spent": {name: sum(own.values()) for name, own in self._spent(chosen.spent).items()},
            "places": self._places(chosen, windows),
            "rarer": self._rarer(chosen, windows),
        }

    def _spent(self, words: Sequence[int]) -> dict[str, Counter[int]]:
        """Instructions of the calls of one name, by their places in the window."""
        found: defaultdict[str, Counter[int]] = defaultdict(Counter)
        for number, counted in zip(words[::2], words[1::2], strict=True):
            place, insns = divmod(counted, 1 << _PLACE_SHIFT)
            found["" if number >> 63 else self._name(number)][place] += insns
        return dict(sorted(found.items()))

    def _places(
        self, chosen: CountedWindow, windows: Sequence[CountedWindow]
    ) -> dict[str, tuple[int, ...]]:
        """What each place takes at most in half of the windows that asked for the same.

        A batch that a place moves now and then is chance.  {} where several windows stand.
        """
        if chosen.outside is None or not any(one is chosen for one in windows):
            return {}
        alike = [one for one in windows if _asked_for(one) == _asked_for(chosen)][:_MOST_ALIKE]
        spent = [self._spent(one.spent) for one in alike]
        rows: dict[str, tuple[int, ...]] = {}
        for name in dict.fromkeys(chain.from_iterable(spent)):
            each = [own.get(name, Counter[int]()) for own in spent]
            places = sorted(set().union(*each))
            rows[name] = tuple(median([own[place] for own in each]) for place in places)
        return rows

    def _rarer(
        self, chosen: CountedWindow, windows: Sequence[CountedWindow]
    ) -> dict[int, dict[str, tuple[int, ...]]]:
        """The same of other lengths that repeat, by the first window that asked for the same."""
        found: dict[int, dict[str, tuple[int, ...]]] = {}
        asked = [_asked_for(one) for one in windows]
        rest = [one for one in windows if not (one.switched or is_near(one.total, chosen.total))]
        while rest and len(found) < _MOST_LENGTHS:
            near = [one for one in rest if is_near(one.total, rest[0].total)]
            rest = [one for one in rest if not is_near(one.total, near[0].total)]
            if len(near) > 1 and (rows := self._places(near[0], near)):
                found.setdefault(asked.index(_asked_for(near[0])), rows)
        return found

    def _name(self, number: int) -> str:
        return OLD_CALL if number >= _OLD_CALLS else self.names.get(number, f"call {number}")

    def of(self, words: Sequence[int] | None) -> tuple[dict[str, int] | None, dict[str, int]]:
        """How often each call was made, and how often it returned an error: "madvise EINVAL"."""
        if words is None:
            return None, {}
        made: Counter[str] = Counter()
        failed: Counter[str] = Counter()
        rows = iter(words)
        for number, error, count in zip(rows, rows, rows, strict=True):
            name = self._name(number)
            if error:
                failed[f"{name} {errno.errorcode.get(error, error)}"] += count
            else:
                made[name] += count
        return dict(sorted(made.items())), dict(sorted(failed.items()))

    def scalars(self, rows: Iterable[Sequence[int]]) -> dict[str, tuple[int, ...]]:
        """The values of arguments and results in all rows: see PhaseCounts."""
        found: dict[str, tuple[int, ...]] = {}
        words = chain.from_iterable(rows)
        for number, packed, least, most, total, digest in zip(*[words] * 6, strict=True):
            call = self.names.get(number, "")
            part, which = divmod(packed, 256)
            place = "r" if which == _RESULT else str(which + 1)
            if which > _RESULT:
                name = f"{call} {_what(call, which)}{f'{PART}{part}' if part else ''}"
                found[name] = 0, 0, 0, found.get(name, (0,) * 4)[3] + digest
            elif place in _NUMBERS_OF.get(call, ""):
                name = f"{call} {'result' if place == 'r' else f'argument {place}'}"
                low, high, whole, mixed = found.get(name, (least, most, 0, 0))
                found[name] = min(low, least), max(high, most), whole + total, mixed + digest
        return {name: _normal(*found[name]) for name in sorted(found)}

    def _inside(self, windows: Sequence[CountedWindow]) -> dict[str, tuple[int, ...]]:
        touched = [window.own for window in windows if window.own is not None]
        found = self.scalars(window.scalars for window in windows)
        if touched:
            pages, digests = [own[0] for own in touched], [own[1] for own in touched]
            found[TOUCHED] = min(pages), max(pages), sum(pages), sum(digests) % (1 << 32)
        if any(order := [window.order[0] for window in windows if window.order is not None]):
            found[ORDER] = 0, 0, 0, sum(order) % (1 << 32)
        return found

    def outside(self, window: CountedWindow) -> dict[str, tuple[int, ...]] | None:
        """What the program asked for outside its windows until this one: see PhaseCounts."""
        if window.outside is None:
            return None
        made, failed = self.of(window.outside[1:])
        counts = {**failed, **(made or {}), INSTRUCTIONS: window.outside[0]}
        asked = self.scalars([window.outside_scalars])
        told = {name: (n, n, 0, 0) for name, n in counts.items()}
        if window.own is not None:
            told[TOUCHED] = window.own[2], window.own[2], 0, window.own[3] % (1 << 32)
        if window.order is not None:
            told[ORDER] = 0, 0, 0, window.order[1] % (1 << 32)
        return told | {name: asked[name] for name in asked if not name.endswith(" result")}

    def clock(self, windows: Sequence[CountedWindow]) -> dict[str, int] | None:
        """How often the windows of a phase read a clock, by what reads it.

        A loader times its own start for LD_DEBUG.  An instruction of it that is executed at most
        once for each program that is started waits for nothing, and is named apart.
        """
        if windows[0].syscalls is None:
            return None
        name, pattern = _CLOCKS[self.architecture]
        reads = re.compile(pattern, re.DOTALL).fullmatch
        found: Counter[str] = Counter()
        known: dict[int, tuple[int, int]] = {}  # of a slot: what reads one, what may
        for window in windows:
            made, failed = self.of(window.syscalls)
            made = made or {}
            starts = made.get("execve", 0) - sum(failed[n] for n in failed if n[:7] == "execve ")
            clocks = {*_CLOCK_CALLS, *(_STAMPS if _STATS & {*made} else ())}
            found.update({call: count for call, count in made.items() if call in clocks})
            for slot, count in zip(window.rows[::2], window.rows[1::2], strict=True):
                at = window.code[slot][0]
                if at >= _KERNEL_HALF and at not in self.vdso:
                    continue  # most: nothing of it is decoded
                if slot not in known:
                    words = iter(window.encodings[slot])
                    code = [instruction(*pair) for pair in zip(words, words, strict=True)]
                    known[slot] = (
                        len([*filter(reads, code)]) if at < _KERNEL_HALF else 0,
                        len({*code} - _SIGRETURN) if at in self.vdso else 0,
                    )
                starting = at in self.loader and count <= starts
                found[name + OF_LOADER * starting] += known[slot][0] * count
                found[_VDSO] += known[slot][1] * count
        if found[name]:
            del found[_VDSO]
        return dict(sorted((+found).items()))


def _asked_for(window: CountedWindow) -> tuple[Sequence[int], Sequence[int]]:
    return (window.order or array("Q"))[:1], (window.own or array("Q"))[:2]


def _what(call: str, which: int) -> str:
    """What the plugin made one number of: "string 2" or "address 2" of an argument, "contents"."""
    if which == _CONTENTS:
        return "contents"
    at = str(which - _RESULT - 1)
    kind = next((row[1] for row in _POINTED_OF.get(call, ()) if row[0] == at), "")
    return f"{ {'s': 'string', 'a': 'address'}.get(kind, 'data') } {at}"


def _normal(least: int, most: int, total: int, digest: int) -> tuple[int, ...]:
    """With a sign; of one value it does not matter how often it came.  Strings have only 0."""
    low, high, whole = ((n + (1 << 63)) % (1 << 64) - (1 << 63) for n in (least, most, total))
    return (low, high, 0, 0) if low == high and least else (low, high, whole, digest % (1 << 32))
