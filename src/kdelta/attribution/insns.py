# SPDX-License-Identifier: GPL-2.0-or-later
"""What the QEMU plugin wrote: windows of exact counts per instruction address.

The stream's records are described at emit_*() in plugin/insns.c.  Counts are instructions
retired by the vCPU that executed the marks.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path

from kdelta import cache
from kdelta.arch import Arch
from kdelta.attribution.symbols import UNKNOWN, Symbols
from kdelta.errors import GuestError, InfraError
from kdelta.sample import FunctionCount
from kdelta.stats.layouts import choose

_MAGIC = 0x31574154454C444B
_HEADER, _WINDOW, _ERROR, _ARMED, _END, _STRINGS = range(1, 7)
_LENGTH = {_HEADER: 5, _WINDOW: 8, _ERROR: 4, _ARMED: 1, _END: 3, _STRINGS: 2}
_ROWS = {_WINDOW: (7, 2), _STRINGS: (1, 3)}  # where the number of rows stands, words of a row
_MAX_BYTES = 1 << 31
_KERNEL_HALF = 1 << 63
_USER = "[user]"

_INTERRUPT, _EXCEPTION, _SWITCH, _STUB = 1, 2, 4, 16  # enum event in plugin/insns.c
# string_kind() in plugin/insn_bytes.h
_STRING_NAMES = {
    ord(letter) << 8 | ord(width): f"rep {name}{width}"
    for letter, name in (("m", "movs"), ("s", "stos"))
    for width in "bwlq"
}

_ERRORS = {
    1: "a window was opened inside a window",
    2: "a window was closed that was not open",
    3: "a window was closed as another phase than it was opened",
    4: "a window was opened before counting began",
    5: "more code was executed than the plugin can count",
    6: "more windows were opened than the plugin can count",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StringCount:
    """A REP string instruction of x86-64, such as "rep stosb".

    ends: how often it was executed to its end, whatever the number of its rounds; 0 is left out.
    """

    address: int
    name: str
    ends: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedWindow:
    """One window.  user, kernel: instructions; pairs: address, count, address, count ...

    interrupts: how many interrupts were left out of the counts.  switched: the vCPU went to
    another task inside the window, so that the counts are not the workload's alone.  strings: the
    REP string instructions; their rounds are in the other counts as QEMU has them.
    """

    vcpu: int
    phase: int
    user: int
    kernel: int
    interrupts: int
    switched: bool
    pairs: array[int]
    strings: tuple[StringCount, ...] = ()

    @property
    def total(self) -> int:
        """Instructions in user space and kernel."""
        return self.user + self.kernel

    def addresses(self) -> Iterator[tuple[int, int]]:
        """(address, count); an address that lies in several translated blocks comes as often."""
        return zip(self.pairs[::2], self.pairs[1::2], strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """One trial's windows in execution order, and what the plugin complains about."""

    api: int
    armed: bool
    windows: tuple[CountedWindow, ...]
    errors: tuple[str, ...]


def read(path: Path) -> Counts:
    """Read a stream; a record cut short at its end (QEMU was killed) is left out.

    Raises InfraError when there is no stream or it is not one.
    """
    words = _words(path)
    if len(words) < _LENGTH[_HEADER] or words[0] != _HEADER or words[1] != _MAGIC:
        raise InfraError("the plugin wrote no counts: it did not load", place=str(path))
    windows: list[CountedWindow] = []
    errors: list[str] = []
    strings: tuple[StringCount, ...] = ()  # told before the window that they belong to
    armed = False
    for record in _records(words, str(path)):
        if record[0] == _STRINGS:
            strings = tuple(_strings(record, str(path)))
        elif record[0] == _WINDOW:
            windows.append(_window(record, strings))
            strings = ()
        elif record[0] == _ERROR:
            errors.append(_ERRORS.get(record[1], "unknown complaint of the plugin"))
        elif record[0] == _ARMED:
            armed = True
    return Counts(api=words[2], armed=armed, windows=tuple(windows), errors=tuple(errors))


def _records(words: array[int], place: str) -> Iterator[array[int]]:
    """The whole records behind the header.  Raises InfraError for what is none."""
    at = _LENGTH[_HEADER]
    while at < len(words):
        kind = words[at]
        length = _LENGTH.get(kind)
        if length is None or kind == _HEADER:
            raise InfraError(f"the plugin's counts are damaged at word {at}", place=place)
        if kind in _ROWS and at + length <= len(words):
            number, width = _ROWS[kind]
            length += width * words[at + number]
        if at + length > len(words):
            return
        yield words[at : at + length]
        at += length


def typical(windows: Sequence[CountedWindow], layouts: int = 1) -> CountedWindow:
    """The window that stands for those of one phase, or the sum of those that do.

    See stats.layouts.choose.
    """
    totals = [window.total for window in windows]
    found = choose(totals, [window.switched for window in windows], layouts)
    chosen = [windows[index] for index in found.indices]
    return _added(chosen) if layouts > 1 else chosen[0]


def _added(windows: Sequence[CountedWindow]) -> CountedWindow:
    counts: Counter[int] = Counter()
    for window in windows:
        for address, count in window.addresses():
            counts[address] += count
    return replace(
        windows[0],
        user=sum(window.user for window in windows),
        kernel=sum(window.kernel for window in windows),
        interrupts=sum(window.interrupts for window in windows),
        switched=any(window.switched for window in windows),
        pairs=array("Q", chain.from_iterable(counts.items())),
        strings=tuple(string for window in windows for string in window.strings),
    )


def by_function(window: CountedWindow, symbols: Symbols, phase: str) -> tuple[FunctionCount, ...]:
    """The window's instructions per function, most first; "[user]" is all of user space.

    UNKNOWN is what is in no function that the kernel lists: BPF programs, modules loaded since.

    The sum over functions is the window's total, to the instruction.  A REP string instruction
    that ended has a row of its own behind them, "rep stosb in clear_page_erms": its calls are
    executions to the end, and it has no instructions, since they are the function's.
    """
    insns: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for address, count in window.addresses():
        if address < _KERNEL_HALF:
            insns[_USER] += count
            continue
        name, offset = symbols.find(address)
        insns[name] += count
        if offset == 0 and name != UNKNOWN:
            calls[name] += count
    if insns.total() != window.total:
        raise GuestError(f"functions sum to {insns.total()} instructions, not {window.total}")
    for string in window.strings:
        name = f"{string.name} in {_place(string.address, symbols)}"
        insns[name] += 0
        calls[name] += string.ends
    rows = sorted(insns.items(), key=lambda row: (-row[1], row[0]))
    return tuple(
        FunctionCount(phase=phase, function=name, insns=count, calls=calls[name])
        for name, count in rows
    )


def _place(address: int, symbols: Symbols) -> str:
    return symbols.find(address)[0] if address >= _KERNEL_HALF else _USER


def events_file(build_id: str, load: Callable[[], Symbols], architecture: Arch) -> Path:
    """The plugin's file events= for one kernel, from the cache or made of its symbols."""
    key = cache.digest(build_id, repr(architecture))

    def make(folder: Path) -> None:
        (folder / "events").write_text(events(load(), architecture))

    return cache.entry("events", key, make) / "events"


def events(symbols: Symbols, architecture: Arch) -> str:
    """Where a kernel enters interrupts, exceptions and other tasks: lines "BITS START END"."""
    kinds = (
        (_INTERRUPT, architecture.interrupts),
        (_EXCEPTION, architecture.exceptions),
        (_SWITCH, architecture.switches),
    )
    lines = [
        f"{bits} {start + offset:x} {start + offset + 1:x}\n"
        for bits, entries in kinds
        for pattern, offset in entries
        for start, name in zip(symbols.starts, symbols.names, strict=True)
        if fnmatchcase(name, pattern)
    ]
    ends = zip(symbols.starts, symbols.starts[1:], symbols.names, strict=False)
    lines += [f"{_STUB} {a:x} {b:x}\n" for a, b, name in ends if name in architecture.stubs]
    return "".join(lines)


def _words(path: Path) -> array[int]:
    try:
        size = path.stat().st_size
        if size > _MAX_BYTES:
            raise InfraError(f"the plugin wrote {size >> 20} MiB of counts", place=str(path))
        data = path.read_bytes()
    except OSError as error:
        raise InfraError(
            f"the plugin's counts cannot be read: {error.strerror}", place=str(path)
        ) from error
    words: array[int] = array("Q")
    words.frombytes(data[: len(data) // 8 * 8])
    if sys.byteorder == "big":
        words.byteswap()
    return words


def _strings(words: array[int], place: str) -> Iterator[StringCount]:
    for address, kind, ends in zip(words[2::3], words[3::3], words[4::3], strict=True):
        name = _STRING_NAMES.get(kind)
        if name is None:
            raise InfraError("the plugin's counts are damaged: no string", place=place)
        yield StringCount(address=address, name=name, ends=ends)


def _window(words: array[int], strings: tuple[StringCount, ...]) -> CountedWindow:
    _, vcpu, phase, user, kernel, interrupts, switched, _ = words[:8]
    return CountedWindow(
        vcpu=vcpu,
        phase=phase,
        user=user,
        kernel=kernel,
        interrupts=interrupts,
        switched=bool(switched),
        pairs=words[8:],
        strings=strings,
    )
