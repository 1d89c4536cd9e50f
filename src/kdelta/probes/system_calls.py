# SPDX-License-Identifier: GPL-2.0-or-later
"""What windows asked the kernel for: system calls by name, with what, their errors, and clocks."""

from __future__ import annotations

import errno
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from kdelta.attribution.insns import CountedWindow, instruction
from kdelta.sample import (
    EMULATED,
    INSTRUCTIONS,
    OF_FILE,
    OF_LOADER,
    OF_POINTER,
    OF_VDSO,
    OLD_CALL,
    ORDER,
    OUTSIDE,
    PLACE,
    REORDERED,
    TOUCHED,
)
from kdelta.verdict.windows import is_near, median

_VDSO = "vDSO"
_PLACE_SHIFT = 52  # of places of calls, above their instructions: see plugin/syscalls.c
_MOST_ALIKE = 32  # windows that say what a place takes
_MOST_LENGTHS = 8  # of windows, beside the common one
_CLOCK_READ, _CLOCK_PAGE = 2 << 32, 3 << 32  # plugin/syscalls.h
# Of arm64 and riscv64 it has the return from a signal's handler, too: two instructions.
_SIGRETURN = {*map(bytes.fromhex, ("681180d2", "010000d4", "9308b008", "73000000"))}
# A timer that is set in a window ends it, as a clock that is read there does.
_CLOCK_CALLS = (
    *("clock_gettime", "getrusage", "gettimeofday", "time", "times"),
    *("alarm", "setitimer", "timer_settime", "timerfd_settime"),
    *("getitimer", "timer_gettime", "timerfd_gettime"),
    *("adjtimex", "clock_adjtime", "sysinfo", "perf_event_open"),
)
_RUSAGE = {"wait4": 3, "waitid": 4}  # arguments, from 0, where the time of a child is asked for
# A file that is stamped and looked at is a clock, too.
_STAMPS = {"utime", "utimes", "futimesat", "utimensat"}
_STATS = {"stat", "lstat", "fstat", "newfstatat", "statx"}
_KERNEL_HALF = 1 << 63
# By architecture what reads a clock in user space: its name, and a pattern of its bytes.
_CLOCKS = {
    # and rdpmc, rdtscp, with prefixes that say nothing
    "amd64": ("rdtsc", rb"[&.6>\x40-\x4f\x64-\x67\xf2\xf3]*\x0f(?:[\x31\x33]|\x01\xf9)"),
    # mrs of cntpct_el0, cntvct_el0, cntpctss_el0 and cntvctss_el0
    "arm64": ("cntvct_el0", rb"[\x20-\x5f\xa0-\xdf]\xe0\x3b\xd5"),
    "riscv64": ("rdtime", rb"[\x73\xf3][\x20-\x2f][\x00\x10\x20]\xc0"),  # and rdcycle, rdinstret
}
# What arguments point at, in the order of plugin/pointed.h.
_KINDS = "sabgviwdmknfoctjrHhexpMURONBTGQCWKY"
_RESULT = 6  # behind the arguments
_CONTENTS = _RESULT + 8  # of what the kernel wrote, behind the call and its arguments


@dataclass(frozen=True, slots=True)
class _Call:
    """A row of the table.  arguments: a letter for each; result: "" for a number."""

    arguments: str
    result: str
    pointed: tuple[tuple[str, ...], ...]

    def places(self, kind: str) -> int:
        """A bit for each argument of a kind."""
        return sum(1 << at for at, letter in enumerate(self.arguments) if letter == kind)

    def is_number(self, which: int) -> bool:
        """Is an argument one, from 0, or the result?"""
        numbers = self.places("n") | self.places("t")
        return not self.result if which == _RESULT else bool(numbers >> which & 1)


@cache
def table() -> dict[str, _Call]:
    """System calls by name: system_calls.txt."""
    rows: dict[str, _Call] = {}
    for line in Path(__file__).with_suffix(".txt").read_text().splitlines():
        if line[0] != "#":
            name, asked, *words = line.split()
            arguments, _, result = asked.partition("=")
            rows[name] = _Call(arguments, result, tuple(map(_pointer, words)))
    return rows


def _pointer(word: str) -> tuple[str, ...]:
    (found,) = re.findall(r"\A(\d)(\w)(\d*)(?:\*(\d))?(?:\+(\d+))?(?:&(\d+))?\Z", word)
    return tuple(found)


_UNKNOWN = _Call("", "a", ())  # of which nothing is compared but that it is made


def pointed(names: Mapping[int, str]) -> str:
    """The plugin's option pointed= for system calls of these numbers: see plugin/pointed.h."""
    return ":".join(row for number in sorted(names) for row in _rows(number, names[number]))


def _rows(number: int, name: str) -> Iterator[str]:
    call = table().get(name, _UNKNOWN)
    files, numbers, tasks = (call.places(letter) for letter in "fnt")
    if files or numbers or tasks:
        yield f"{number}.0.{_KINDS.index('N')}.1.0.{files}.{numbers | tasks}"
    if tasks:
        yield f"{number}.0.{_KINDS.index('Y')}.1.0.0.{tasks}"
    for argument, kind, each, count, base, words in call.pointed:
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
        last = next((one for one in reversed(windows) if one.outside is not None), None)
        return {
            "syscalls": made,
            "errors": failed,
            "clock": self.clock(windows, last),
            "by_design": self.by_design,
            "wakes": chosen.wakes,
            "scalars": self._inside(windows) or None,
            "outside": self.outside(last) if last else None,
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
        kind, own = divmod(number, 1 << 32)
        clocks = _CLOCKS[self.architecture][0], _VDSO
        looks = OF_VDSO, OF_POINTER, "auxv", ORDER, EMULATED
        kinds = f"call {own}", OLD_CALL, *clocks, *looks, f"exception {own}", OF_FILE
        return self.names.get(number) or kinds[kind if kind < len(kinds) else 1]

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
        for number, packed, *values in zip(*[words] * 6, strict=True):
            least, most, total, digest = values
            call = self._name(number)
            place, which = divmod(packed, 256)
            if place:
                name = f"{call}{' ' * bool(which)}{_what(call, which)}{PLACE}{place}"
                found[name] = tuple(map(int.__add__, found.get(name, (0,) * 4), values))
            elif which > _RESULT:
                name = f"{call} {_what(call, which)}"
                found[name] = 0, 0, 0, found.get(name, (0,) * 4)[3] + digest
            elif table().get(call, _UNKNOWN).is_number(which):
                name = f"{call} {'result' if which == _RESULT else f'argument {which + 1}'}"
                low, high, whole, mixed = found.get(name, (least, most, 0, 0))
                found[name] = min(low, least), max(high, most), whole + total, mixed + digest
        return {n: found[n] if PLACE in n else _normal(*found[n]) for n in sorted(found)}

    def _inside(self, windows: Sequence[CountedWindow]) -> dict[str, tuple[int, ...]]:
        touched = [window.own for window in windows if window.own is not None]
        found = self.scalars(window.scalars for window in windows)
        if touched:
            pages, digests = [own[0] for own in touched], [own[1] for own in touched]
            found[TOUCHED] = min(pages), max(pages), sum(pages), sum(digests) % (1 << 32)
            if any(order := [sum(own[4:5]) for own in touched]):
                found[REORDERED] = 0, 0, 0, sum(order) % (1 << 32)
        return found

    def outside(self, window: CountedWindow) -> dict[str, tuple[int, ...]]:
        """What the program asked for outside its windows until this one: see PhaseCounts."""
        user, *calls = window.outside or (0,)
        made, failed = self.of(calls)
        counts = {**failed, **(made or {}), INSTRUCTIONS: user}
        asked = self.scalars([window.outside_scalars])
        told = {name: (n, n, 0, 0) for name, n in counts.items()}
        if window.own is not None:
            told[TOUCHED] = window.own[2], window.own[2], 0, window.own[3] % (1 << 32)
            if window.own[5:]:
                told[REORDERED] = 0, 0, 0, window.own[5] % (1 << 32)
        return told | asked

    def clock(
        self, windows: Sequence[CountedWindow], last: CountedWindow | None
    ) -> dict[str, int] | None:
        """How often the windows of a phase read a clock, and the program outside of any.

        By what reads it.  last: the window that tells what was done outside until then.
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
            found.update(self._clocks_asked(made, window.scalars))
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
        if last and last.outside is not None:
            asked = self._clocks_asked(self.of(last.outside[1:])[0] or {}, last.outside_scalars)
            found.update({f"{read}{OUTSIDE}": count for read, count in asked.items()})
        return dict(sorted((+found).items()))

    def _clocks_asked(self, made: Mapping[str, int], values: Sequence[int]) -> dict[str, int]:
        """How often the calls that were made, with these values, tell the time."""
        clocks = {*_CLOCK_CALLS, self._name(_CLOCK_READ), self._name(_CLOCK_PAGE)}
        clocks |= _STAMPS if _STATS & {*made} else set()
        for number, which, _, most, *_ in zip(*[iter(values)] * 6, strict=True):
            if most and which == _RUSAGE.get(call := self._name(number)):
                clocks.add(call)
        return {call: count for call, count in made.items() if call in clocks}


def _asked_for(window: CountedWindow) -> tuple[Sequence[int], Sequence[int]]:
    return (window.order or array("Q"))[:1], (window.own or array("Q"))[:2]


def _what(call: str, which: int) -> str:
    """What the plugin made one number of: "string 2" or "address 2" of an argument, "contents"."""
    if not which:
        return ""
    if which == _CONTENTS:
        return "contents"
    at = str(which - _RESULT - 1)
    kind = next((row[1] for row in table().get(call, _UNKNOWN).pointed if row[0] == at), "")
    return f"{ {'s': 'string', 'a': 'address', 'H': 'address'}.get(kind, 'data') } {at}"


def _normal(least: int, most: int, total: int, digest: int) -> tuple[int, ...]:
    """With a sign; of one value it does not matter how often it came.  Strings have only 0."""
    low, high, whole = ((n + (1 << 63)) % (1 << 64) - (1 << 63) for n in (least, most, total))
    return (low, high, 0, 0) if low == high and least else (low, high, whole, digest % (1 << 32))
