# SPDX-License-Identifier: GPL-2.0-or-later
"""Functions of a kernel image, without source and without a boot.

What a kernel patches while it boots is seen as it was built, not as it runs (docs/codegen.md).
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from kdelta import arch
from kdelta.attribution.symbols import TEXT_MARK
from kdelta.disassembly import code, kallsyms
from kdelta.disassembly.code import (
    FEATURE_BYTES,
    MAX_BYTES,
    Code,
    Function,
    Piece,
    disassemble,
    feature_test,
    named,
    stable,
)
from kdelta.errors import SpecError
from kdelta.kernels.image import UnpackedKernel, replaced_in, unpacked_kernel

_CODE = frozenset("tTwW")
_HALF = 1 << 63
_LONGEST_STRING = 4096
_CONSTANT = 16  # bytes: the largest constant that the linker merges
_STRING = re.compile(rb"[\x01\t\n -~]+")
_PAGE = 1 << 12
PIECE = 64
_OPEN = 12  # images that a process keeps at once, each of some 6 MB: as many as have series
# Tables that the linker collects: where an entry lies in them says nothing.
_END = re.compile(r"_*(?:end|stop)_\w+|\w+_end|_e(?:text|data|nd)|__bss_stop")
# x86 collects the slow half of each static_cpu_has() from the end of init's code on, without a
# symbol: testb $MASK,FIELD(%rip); jne YES; jmp NO.
_LAST_CODE = "_einittext"
_PADDING = ("__pfx_", "__cfi_")
_COLLECTED = re.compile(r"__start_\w+|__bug_table|__(?:start|stop)___\w+")


class Image:
    """The code of one kernel image, by function name."""

    def __init__(
        self,
        kernel: UnpackedKernel,
        table: kallsyms.Table,
        label: str,
        elsewhere: frozenset[str] = frozenset(),
    ) -> None:
        """elsewhere: functions whose code is not the image's own, but what it brings along."""
        self.label = label
        self._elsewhere = elsewhere
        self.arch: arch.Arch = arch.of(kernel.arch)
        self._kernel = kernel
        self.bytes_at = kernel.read
        self._table = table
        self._low_end = max((s for s in table.starts if s < _HALF), default=-_PAGE) + _PAGE
        self._first = next((s for s in table.starts if s >= _HALF), _HALF)
        # Places in the table by name: a tenth of the memory of a dictionary, made as fast.
        self._by_name = array("I", sorted(range(len(table.names)), key=table.names.__getitem__))

    def __contains__(self, name: str) -> bool:
        return bool(self.starts(name))

    def _called(self, name: str) -> list[int]:
        """All symbols of a name, of any kind."""
        key = self._table.names.__getitem__
        first = bisect_left(self._by_name, name, key=key)
        return self._by_name[first : bisect_right(self._by_name, name, first, key=key)].tolist()

    def extents(self) -> dict[str, tuple[tuple[int, int], ...]]:
        """All functions: the start and size of each that has a name, by address."""
        found: dict[str, dict[int, int]] = {}
        table = self._table
        for start, kind, name in zip(table.starts, table.kinds, table.names, strict=True):
            if kind in _CODE and start >= _HALF:
                found.setdefault(name, {})[start] = self.size(start)
        return {name: tuple(own.items()) for name, own in found.items()}

    def place(self, address: int) -> tuple[frozenset[str], int] | None:
        """The symbols that an address is in, and the offset into them; None outside all of them."""
        if not self._first <= address <= self._table.starts[-1]:
            return None
        at = self._table.at(address)
        names = frozenset(self._table.names[i] for i in self._same(at))
        return names, address - self._table.starts[at]

    def constant(self, address: int) -> str:
        """The string or merged constant at an address, as `function` shows it; "" for neither."""
        name = self._name(address)
        return name if name.startswith(('"', "[")) else ""

    def beside(self, other: Image) -> Iterator[tuple[int, bytes, bytes]]:
        """Where the contents of two images of one layout differ, in pieces of PIECE bytes: address
        and both contents.  Raises ValueError when they are not of one layout.
        """
        mine, theirs = self._kernel.segments, other._kernel.segments
        layout, same = ([(one.start, len(one.content)) for one in of] for of in (mine, theirs))
        if layout != same or self._table != other._table:
            raise ValueError("not of one layout")
        for one, two in zip(mine, theirs, strict=True):
            for at in range(0, len(one.content), PIECE):
                x, y = one.content[at : at + PIECE], two.content[at : at + PIECE]
                if x != y:
                    yield one.start + at, bytes(x), bytes(y)

    def addresses(self, name: str, *, shared: bool = False) -> frozenset[int]:
        """The addresses of all symbols of a name, of any kind; shared: without static ones."""
        starts, kinds = self._table.starts, self._table.kinds
        return frozenset(
            starts[at] for at in self._called(name) if kinds[at].isupper() or not shared
        )

    def size(self, start: int) -> int:
        """Bytes from the start of a function to the next symbol, or to where its section ends."""
        starts, ends = self._table.starts, self._kernel.code_ends
        at, section = self._table.at(start) + 1, bisect_right(ends, start)
        symbol = starts[at] if at < len(starts) else start
        return (min(symbol, ends[section]) if section < len(ends) else symbol) - start

    def starts(self, name: str) -> list[int]:
        """The addresses of all functions of a name, ascending."""
        starts, kinds = self._table.starts, self._table.kinds
        return sorted({starts[at] for at in self._called(name) if kinds[at] in _CODE})

    def function(self, name: str) -> Code:
        """A function's code.  Raises SpecError when it is not there exactly once, or not whole."""
        found = self.starts(name)
        if len(found) == 1:
            return disassemble(self._function(name, found[0]), self.arch)
        if found:
            raise SpecError(f"{self.label} has {len(found)} functions called {name}")
        action = "it may be inlined into its callers there, or be called otherwise"
        raise SpecError(f"{self.label} has no function {name}", action=action)

    def codes(self, names: Iterable[str]) -> dict[str, tuple[Code, ...] | str]:
        """The code of functions by name, all at once: of each all of that name (static ones may
        share one), by address; or why it cannot be read.
        """
        found: dict[str, list[Function]] = {}
        result: dict[str, tuple[Code, ...] | str] = {}
        for name in names:
            result[name] = f"{self.label} has no function of that name"
            try:
                found[name] = [self._function(name, s) for s in self.starts(name)]
            except SpecError as error:
                result[name] = error.cause
        pieces = [Piece(start=f.start, code=f.code) for part in found.values() for f in part]
        rows = iter(code.rows(pieces, self.arch))
        for name, part in found.items():
            own = [(function, next(rows)) for function in part]
            try:
                if own:
                    result[name] = tuple(named(f, r, self.arch) for f, r in own)
            except SpecError as error:
                result[name] = error.cause
        self._kernel.forget()
        return result

    def _function(self, name: str, start: int) -> Function:
        if name in self._elsewhere:
            raise SpecError(
                f"{self.label} brings another {name} than its image has",
                action="see what ran with: kdelta explain --code",
            )
        size = self.size(start)
        content = self.bytes_at(start, min(size, MAX_BYTES))
        if len(content) != size or not size:
            raise SpecError(f"{self.label} does not hold the code of {name}")
        return Function(name=name, code=content, start=start, names=self._name)

    def _name(self, address: int) -> str:
        """NAME, NAME+0x8, or a string constant in quotes; "" where nothing is known to be."""
        if not (self._first <= address <= self._table.starts[-1] or 0 <= address < self._low_end):
            return ""
        at = self._table.at(address)
        if at < 0:
            return ""
        start, is_code = self._table.starts[at], self._table.kinds[at] in _CODE
        names, kinds = self._table.names, self._table.kinds
        # A shared one first, then one without an underscore, the shortest.
        best = min(
            (kinds[i].islower(), names[i].startswith("_"), len(names[i]), names[i])
            for i in self._same(at)
        )[-1]
        if best == _LAST_CODE:  # a test of a feature: what it reads, and where it goes
            content = self.bytes_at(address, FEATURE_BYTES)
            if test := feature_test(content, lambda _, end, to: self._name(address + end + to)):
                return test
        if address != start and not is_code:
            # The linker puts merged strings after the kernel's own table of symbols.
            after_all = best.startswith("kallsyms_")
            text = self._string(address, empty=after_all)
            if text or after_all:
                return text
        best = best if is_code else stable(best)
        if address == start or _COLLECTED.fullmatch(best):
            return best
        if (TEXT_MARK if is_code else _END).fullmatch(best):
            return ""  # a number that only looks like an address: nothing lies there
        return f"{best}+{address - start:#x}"

    def _same(self, at: int) -> range:
        first = at
        while first > 0 and self._table.starts[first - 1] == self._table.starts[at]:
            first -= 1
        return range(first, at + 1)

    def _string(self, address: int, *, empty: bool) -> str:
        """The C string at an address; empty: or a zero byte, or a constant of some bytes."""
        content = self.bytes_at(address - 1, _LONGEST_STRING)
        end = content.find(b"\0", 1)
        if end == 1 and empty:
            return '""'
        if end < (2 if empty else 3) or not _STRING.fullmatch(content[1:end]):
            return f"[{content[1 : max(end, _CONSTANT + 1)].hex()}]" if empty and end > 1 else ""
        return '"' + content[1:end].decode("ascii").encode("unicode_escape").decode() + '"'


def is_mark(name: str) -> bool:
    """True for a symbol that is no function: where a section begins or ends, and the padding in
    front of a function (CONFIG_CALL_PADDING), which nothing executes.
    """
    return name.startswith(_PADDING) or TEXT_MARK.fullmatch(name) is not None


@lru_cache(maxsize=_OPEN)
def opened(path: Path, label: str) -> Image:
    """The code in a kernel image; label: for errors.  Raises SpecError without a symbol table."""
    kernel = unpacked_kernel(path)
    table = kallsyms.read(kernel)
    kernel.forget()
    if table is None:
        cause = f"{label} has no symbol table that kdelta can read"
        action = "it needs CONFIG_KALLSYMS=y, and CONFIG_KALLSYMS_ALL=y for names of data"
        raise SpecError(cause, place=str(path), action=action)
    return Image(kernel, table, label, replaced_in(path))
