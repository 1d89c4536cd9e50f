# SPDX-License-Identifier: GPL-2.0-or-later
"""What the QEMU plugin wrote: windows of exact counts per instruction address.

Each of the stream's records (plugin/stream.h) is described at its emit_*() in plugin/*.c.  Counts
are instructions retired by the vCPU that executed the marks.
"""

from __future__ import annotations

import fnmatch
import operator
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

from kdelta.arch import Arch
from kdelta.attribution import stream
from kdelta.attribution.symbols import UNKNOWN, Symbols
from kdelta.errors import GuestError, InfraError
from kdelta.sample import ExactData, FunctionCount, PhaseCounts
from kdelta.verdict.windows import choose

MOST_BYTES = 1 << 26  # five times the most that a trial wrote
_KERNEL_HALF = 1 << 63
_LONGEST = 15  # bytes of an instruction
_USER = "[user]"

# enum event in plugin/events.h
_INTERRUPT, _EXCEPTION, _SWITCH, _STUB, _NEW_TASK, _TRAP = 1, 2, 4, 16, 32, 64
_WAKE, _ANSWER = 128, 256
# string_kind() in plugin/insn_bytes.c
_STRINGS = ("movs", "stos", "lods", "cmps", "scas", "ins", "outs")
_STRING_NAMES = {
    ord(letter) << 8 | ord(width): f"rep {name}{width}"
    for letter, name in zip("mslcaio", _STRINGS, strict=True)
    for width in "bwlq"
}

_ERRORS = {
    1: "a window was opened inside a window",
    2: "a window was closed that was not open",
    3: "a window was closed as another phase than it was opened",
    4: "a window was opened before counting began, or after it had ended",
    5: "more code was executed than the plugin can count",
    6: "more windows were opened than the plugin can count",
    7: "a string instruction was interrupted where no entry of the kernel is known",
    8: "there were more call paths than the plugin can tell apart",
    9: "a window touched more memory than the plugin can tell apart",
    10: "arguments had more values than the plugin can tell apart",
    11: "a window made more kinds of system calls and errors than the plugin can tell apart",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StringCount:
    """A REP string instruction of x86-64, such as "rep stosb".

    ends: how often it was executed to its end, whatever the number of its rounds; also its own
    count of instructions.  bytes: what its rounds handled, those of one that a fault cut off, too.
    """

    address: int
    name: str
    ends: int
    bytes: int


@dataclass(frozen=True, slots=True)
class CountedContext:
    """A function on a call path of one window; number 0 is the root, whose parent is itself.

    function: its number in the list that the plugin was given, 0 for code in none.  calls: how
    often it was entered; insns: instructions of its own.
    """

    number: int
    parent: int
    function: int
    calls: int
    insns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """Memory that one window touched, as words of the plugin (plugin/memory.c).

    pages: rows of (address | how it was found, flags, mapping, type); lines: rows of (function,
    address | 1 read | 2 written).  slabs, shared, areas: as SLABS etc. there.
    """

    pages: array[int]
    lines: array[int]
    slabs: array[int] = field(default_factory=lambda: array("Q"))
    shared: array[int] = field(default_factory=lambda: array("Q"))
    areas: array[int] = field(default_factory=lambda: array("Q"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedWindow:
    """One window.  user, kernel: instructions.

    rows: slot, count, slot, count ...; code: the addresses of each slot, all of which retired as
    often as it counts; encodings: of each instruction of a slot two words, see instruction().
    touched, values: memory, and rows of (probe, value, how often) of arguments, when they were
    asked for.  interrupts: how many interrupts were left out of the counts.  switched:
    the vCPU went to another task inside the window and the plugin could not tell whose it was, so
    that the counts are not the workload's alone.  strings: the REP string instructions.  contexts:
    call paths, callers before those they call; none unless the plugin was asked for them.  Those of
    several windows that were added up stand side by side.  syscalls: rows of (number, errno, how
    often), errno 0 for all calls of a number; None in streams of before they were recorded.  wakes:
    how often a task that is not the workload's was woken.  scalars: rows of (number, which, least,
    most, sum, digest), see plugin/syscalls.c.  behind: what the workload's other tasks executed of
    the kernel until the next window opens (plugin/behind.h), None of the last one.  outside: of a
    program that is watched there (plugin/outside.h), until this window opened, its instructions in
    user space and then rows as of syscalls; outside_scalars: as scalars.  spent: rows of (number of
    a system call, instructions that the kernel executed for it), see plugin/syscalls.c.  own: pages
    that the program itself touched and a digest of them, and the same until this window opened; of
    both a digest of their order.  order: digests of the order of calls, as own.
    """

    vcpu: int
    phase: int
    user: int
    kernel: int
    interrupts: int
    switched: bool
    rows: array[int]
    code: Mapping[int, array[int]]
    strings: tuple[StringCount, ...] = ()
    contexts: tuple[CountedContext, ...] = ()
    encodings: Mapping[int, array[int]] = field(default_factory=dict)
    touched: tuple[Touched, ...] = ()
    values: array[int] = field(default_factory=lambda: array("Q"))
    syscalls: array[int] | None = None
    wakes: int = 0
    scalars: array[int] = field(default_factory=lambda: array("Q"))
    behind: int | None = None
    outside: array[int] | None = None
    outside_scalars: array[int] = field(default_factory=lambda: array("Q"))
    spent: array[int] = field(default_factory=lambda: array("Q"))
    own: array[int] | None = None
    order: array[int] | None = None

    @property
    def total(self) -> int:
        """Instructions in user space and kernel."""
        return self.user + self.kernel

    def groups(self) -> Iterator[tuple[array[int], int]]:
        """(addresses, how often each of them retired)."""
        for slot, count in zip(self.rows[::2], self.rows[1::2], strict=True):
            yield self.code[slot], count

    def instructions(self, only: Container[int] | None = None) -> Iterator[tuple[int, bytes, int]]:
        """(address, its bytes, count), of all or of these; REP string ones are among them."""
        for slot, count in zip(self.rows[::2], self.rows[1::2], strict=True):
            words = iter(self.encodings[slot])
            for address, *code in zip(self.code[slot], words, words, strict=True):
                if only is None or address in only:
                    yield address, instruction(*code), count


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """One trial's windows in execution order, and what the plugin complains about."""

    armed: bool
    windows: tuple[CountedWindow, ...]
    errors: tuple[str, ...]


@lru_cache(1 << 16)
def instruction(first: int, second: int) -> bytes:
    """The bytes of an instruction out of two words, of which the last byte is their number."""
    content = first.to_bytes(8, "little") + second.to_bytes(8, "little")
    return content[: min(content[-1], _LONGEST)]


def read(path: Path) -> Counts:
    """Read a stream; a record cut short at its end (QEMU was killed) is left out.

    Raises InfraError when there is no stream or it is not one.
    """
    try:
        if (size := path.stat().st_size) > MOST_BYTES:
            raise InfraError(f"the plugin wrote {size >> 20} MiB of counts", place=str(path))
        written = path.read_bytes()
    except OSError as error:
        cause = f"the plugin's counts cannot be read: {error.strerror}"
        raise InfraError(cause, place=str(path)) from error
    return of(written, str(path))


def of(written: bytes, place: str, *, paths: bool = True) -> Counts:
    """The same of what such a file holds; place: of it, for complaints.

    paths: call paths, too, which are most of one that has them.
    """
    opened = stream.opened(written, place)
    reader = _Reader(place)
    for kind, record in opened.records(() if paths else (stream.CONTEXTS, stream.CALLS)):
        reader.take(kind, record)
    windows, errors = tuple(reader.windows), tuple(reader.errors)
    return Counts(armed=reader.armed, windows=windows, errors=errors)


class _Reader:
    """What the records behind the header amount to; place: of the stream, for complaints."""

    def __init__(self, place: str) -> None:
        self.armed = False
        self.windows: list[CountedWindow] = []
        self.errors: list[str] = []
        self._place = place
        self._code: dict[int, array[int]] = {}
        self._sizes: dict[int, int] = {}  # instructions of each slot
        self._strings: tuple[StringCount, ...] = ()  # told before the window that they belong to
        self._callers: list[tuple[int, int]] = []  # parent and function of each context
        self._encodings: dict[int, array[int]] = {}  # of each slot, see instruction()
        self._beside: dict[int, array[int]] = {}  # by kind, as the strings

    def take(self, kind: int, words: array[int]) -> None:
        """One record.  Raises InfraError for one that does not fit those before it."""
        if kind == stream.CODE:
            if words[0] in self._code:
                raise self._damaged("code is recorded twice")
            self._code[words[0]] = words[1:]
            self._sizes[words[0]] = len(words) - 1
        elif kind == stream.STRINGS:
            self._strings = tuple(self._string(words[i : i + 4]) for i in range(0, len(words), 4))
        elif kind == stream.CONTEXTS:
            self._learn(words)
        elif kind == stream.BYTES:
            if len(words) - 1 != 2 * self._sizes.get(words[0], -1):
                raise self._damaged("bytes of other code")
            self._encodings[words[0]] = words[1:]
        elif kind in stream.BESIDE:
            self._beside[kind] = words
        elif kind == stream.WINDOW:
            self.windows.append(self._window(words))
            self._strings, self._beside = (), {}
        elif kind == stream.ERROR:
            self.errors.append(_ERRORS.get(words[0], "unknown complaint of the plugin"))
        self.armed |= kind == stream.ARMED

    def _string(self, words: Sequence[int]) -> StringCount:
        address, kind, ends, size = words
        name = _STRING_NAMES.get(kind)
        if name is None:
            raise self._damaged("no string")
        return StringCount(address=address, name=name, ends=ends, bytes=size)

    def _touched(self, lines: array[int]) -> Touched:
        kinds = (stream.PAGES, stream.SLABS, stream.SHARED, stream.AREAS)
        pages, slabs, shared, areas = (self._beside.get(kind, array("Q")) for kind in kinds)
        return Touched(pages=pages, lines=lines, slabs=slabs, shared=shared, areas=areas)

    def _window(self, words: array[int]) -> CountedWindow:
        vcpu, phase, user, kernel, interrupts, switched = words[:6]
        calls, lines = self._beside.get(stream.CALLS), self._beside.get(stream.LINES)
        if self.windows and (behind := self._beside.get(stream.BEHIND)):
            self.windows[-1] = replace(self.windows[-1], behind=behind[0])
        window = CountedWindow(
            vcpu=vcpu,
            phase=phase,
            user=user,
            kernel=kernel,
            interrupts=interrupts,
            switched=bool(switched),
            rows=words[6:],
            code=self._code,
            strings=self._strings,
            contexts=() if calls is None else self._contexts(calls, user + kernel),
            encodings=self._encodings,
            touched=() if lines is None else (self._touched(lines),),
            values=self._beside.get(stream.ARGUMENTS, array("Q")),
            syscalls=self._beside.get(stream.SYSCALLS),
            wakes=sum(self._beside.get(stream.WAKES, ())),
            scalars=self._beside.get(stream.SCALARS, array("Q")),
            outside=self._beside.get(stream.OUTSIDE),
            outside_scalars=self._beside.get(stream.OUTSIDE_SCALARS, array("Q")),
            spent=self._beside.get(stream.SPENT, array("Q")),
            own=self._beside.get(stream.TOUCHED),
            order=self._beside.get(stream.ORDER),
        )
        try:
            sizes = map(self._sizes.__getitem__, window.rows[::2])
            counted = sum(map(operator.mul, sizes, window.rows[1::2]))
        except KeyError:
            raise self._damaged("a window has code that was not told") from None
        if counted != window.total:
            raise self._damaged(f"a window of {window.total} instructions has {counted}")
        return window

    def _learn(self, words: array[int]) -> None:
        for number, parent, function in zip(words[::3], words[1::3], words[2::3], strict=True):
            if number != len(self._callers) or parent > max(0, number - 1):
                raise self._damaged("a call path without its begin")
            self._callers.append((parent, function))

    def _contexts(self, words: array[int], total: int) -> tuple[CountedContext, ...]:
        """Of a window, with the callers of all that ran in it."""
        every = zip(words[::3], words[1::3], words[2::3], strict=True)
        rows = {number: (calls, insns) for number, calls, insns in every}
        if any(number >= len(self._callers) for number in rows):
            raise self._damaged("a call path that was not told")
        if (counted := sum(insns for _, insns in rows.values())) != total:
            raise self._damaged(f"call paths of {counted} instructions in a window of {total}")
        wanted: set[int] = set()
        for number in rows:
            while number not in wanted:
                wanted.add(number)
                number = self._callers[number][0]  # noqa: PLW2901  up to the root
        return tuple(
            CountedContext(number, *self._callers[number], *rows.get(number, (0, 0)))
            for number in sorted(wanted)
        )

    def _damaged(self, how: str) -> InfraError:
        return stream.damaged(how, self._place)


def typical(windows: Sequence[CountedWindow], layouts: int = 1) -> CountedWindow:
    """The window that stands for those of one phase, or the sum of those that do.

    See verdict.windows.choose.
    """
    totals = [window.total for window in windows]
    found = choose(totals, [window.switched for window in windows], layouts)
    chosen = [windows[index] for index in found.indices]
    return _added(chosen) if layouts > 1 else chosen[0]


def _added(windows: Sequence[CountedWindow]) -> CountedWindow:
    counts: defaultdict[int, int] = defaultdict(int)  # of a few hundred thousand rows
    for window in windows:
        for slot, count in zip(window.rows[::2], window.rows[1::2], strict=True):
            counts[slot] += count

    def joined(name: str) -> Iterator[Any]:
        return chain.from_iterable(getattr(window, name) or () for window in windows)

    summed = ("user", "kernel", "interrupts", "wakes")
    sums: dict[str, Any] = {name: sum(map(attrgetter(name), windows)) for name in summed}
    return replace(
        windows[0],
        **sums,
        switched=any(window.switched for window in windows),
        rows=array("Q", chain.from_iterable(counts.items())),
        strings=tuple(joined("strings")),
        touched=tuple(joined("touched")),
        values=array("Q", joined("values")),
        spent=array("Q", joined("spent")),
        syscalls=None if windows[0].syscalls is None else array("Q", joined("syscalls")),
        contexts=tuple(sorted(joined("contexts"), key=attrgetter("number"))),
    )


def by_function(window: CountedWindow, symbols: Symbols, phase: str) -> tuple[FunctionCount, ...]:
    """The window's instructions per function, most first; "[user]" is all of user space.

    UNKNOWN is what is in no function that the kernel lists: BPF programs, modules loaded since.

    The sum over functions is the window's total, to the instruction.  A REP string instruction
    has a row of its own behind them, "rep stosb in clear_page_erms": its calls are executions to
    the end, its bytes what they handled, and it has no instructions, since they are the function's.
    """
    insns: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    handled: Counter[str] = Counter()
    for addresses, count in window.groups():
        if addresses[0] < _KERNEL_HALF:
            insns[_USER] += count * len(addresses)
            continue
        for name, entries, held in _functions(addresses, symbols):
            insns[name] += count * held
            if entries and name != UNKNOWN:
                calls[name] += count * entries
    if insns.total() != window.total:
        raise GuestError(f"functions sum to {insns.total()} instructions, not {window.total}")
    for string in window.strings:
        kernel = string.address >= _KERNEL_HALF
        name = f"{string.name} in {symbols.find(string.address)[0] if kernel else _USER}"
        insns[name] += 0
        calls[name] += string.ends
        handled[name] += string.bytes
    rows = (
        FunctionCount(phase=phase, function=name, insns=n, calls=calls[name], bytes=handled[name])
        for name, n in insns.items()
    )
    return tuple(sorted(rows, key=lambda row: (-row.insns, row.function)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """A phase as its program announced it: `operations` times `operation` in each window.

    id: that its marks carry.  windows: how many the program said that it opened.
    """

    id: int
    name: str
    operation: str
    operations: int
    windows: int


Asked = Callable[[CountedWindow, Sequence[CountedWindow]], Mapping[str, Any]]


def counted(
    counts: Counts, symbols: Symbols, phases: Sequence[Marked], asked: Asked, layouts: int = 1
) -> tuple[dict[str, CountedWindow], ExactData]:
    """The window that stands for each phase; counts per phase, and the functions of that window.

    asked: what the window that stands, and all of them, asked the kernel for, as fields of the
    counts.  layouts: that the windows of a phase go through in turn.  Raises GuestError when the
    marks are not those that the program announced.
    """
    if not counts.armed:
        raise GuestError("the program made no mark that the plugin saw")
    if counts.errors:
        raise GuestError(f"the marks do not fit: {counts.errors[0]}")
    rows: list[PhaseCounts] = []
    functions: list[FunctionCount] = []
    chosen: dict[str, CountedWindow] = {}
    for phase in phases:
        windows = [window for window in counts.windows if window.phase == phase.id]
        if not windows or len(windows) != phase.windows:
            told = f"{len(windows)} windows, {phase.windows} iterations"
            raise GuestError(f"phase {phase.name}: {told}")
        chosen[phase.name] = typical(windows, layouts)
        rows.append(
            PhaseCounts(
                phase=phase.name,
                operations=phase.operations,
                operation=phase.operation,
                user=tuple(window.user for window in windows),
                kernel=tuple(window.kernel for window in windows),
                switched=tuple(window.switched for window in windows),
                layouts=layouts,
                **asked(chosen[phase.name], windows),
            )
        )
        functions += by_function(chosen[phase.name], symbols, phase.name)
    return chosen, ExactData(phases=tuple(rows), functions=tuple(functions))


def _functions(addresses: Sequence[int], symbols: Symbols) -> Iterator[tuple[str, int, int]]:
    """(function, how many of the addresses are its first, how many are in it): often only one."""
    low, high = min(addresses), max(addresses)
    name, offset = symbols.find(low)
    if symbols.find(high) == (name, high - low + offset):
        yield name, addresses.count(low) if offset == 0 else 0, len(addresses)
        return
    for address in addresses:
        name, offset = symbols.find(address)
        yield name, offset == 0, 1


def events(symbols: Symbols, architecture: Arch) -> str:
    """Where a kernel enters interrupts, exceptions and other tasks: "BITS START END NAME"."""
    kinds = (
        (_INTERRUPT, architecture.interrupts),
        (_EXCEPTION, architecture.exceptions),
        (_TRAP, architecture.traps),
        (_SWITCH, architecture.switches),
        (_NEW_TASK, architecture.new_tasks),
        (_WAKE, (("try_to_wake_up", 0),)),
        (_ANSWER, (("netlink_ack", 0),)),
    )
    patterns = [fnmatch.translate(pattern) for _, entries in kinds for pattern, _ in entries]
    entry = re.compile("|".join(patterns)) if patterns else re.compile("(?!)")
    every = zip(symbols.starts, symbols.names, strict=True)
    named = [(start, name) for start, name in every if entry.match(name)]  # few of 160,000
    lines = [
        f"{bits} {start + offset:x} {start + offset + 1:x} {name}\n"
        for bits, entries in kinds
        for pattern, offset in entries
        for start, name in named
        if fnmatch.fnmatchcase(name, pattern)
    ]
    lines += [
        f"{_STUB} {start + low:x} {min(start + high, end):x} {name}\n"
        for start, end, name in zip(symbols.starts, symbols.starts[1:], symbols.names, strict=False)
        for stub, low, high in architecture.stubs
        if stub == name and low < end - start
    ]
    return "".join(lines)
