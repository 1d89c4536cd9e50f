# SPDX-License-Identifier: GPL-2.0-or-later
"""What windows asked the kernel for: system calls by name, their errors, and clocks."""

from __future__ import annotations

import errno
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kdelta.attribution.insns import CountedWindow, instruction

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
        made, failed = self.of(chosen)
        return {
            "syscalls": made,
            "errors": failed,
            "clock": self.clock(windows),
            "by_design": self.by_design,
            "wakes": chosen.wakes,
        }

    def of(self, window: CountedWindow) -> tuple[dict[str, int] | None, dict[str, int]]:
        """How often each call was made, and how often it returned an error: "madvise EINVAL"."""
        if window.syscalls is None:
            return None, {}
        made: Counter[str] = Counter()
        failed: Counter[str] = Counter()
        rows = iter(window.syscalls)
        for number, error, count in zip(rows, rows, rows, strict=True):
            name = self.names.get(number, f"call {number}")
            if error:
                failed[f"{name} {errno.errorcode.get(error, error)}"] += count
            else:
                made[name] += count
        return dict(sorted(made.items())), dict(sorted(failed.items()))

    def clock(self, windows: Sequence[CountedWindow]) -> dict[str, int] | None:
        """How often the windows of a phase read a clock, by what reads it."""
        if windows[0].syscalls is None:
            return None
        name, pattern = _CLOCKS[self.architecture]
        reads = re.compile(pattern, re.DOTALL).fullmatch
        found: Counter[str] = Counter()
        known: dict[int, tuple[int, int]] = {}  # of a slot: what reads one, what may
        for window in windows:
            for call, count in (self.of(window)[0] or {}).items():
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
