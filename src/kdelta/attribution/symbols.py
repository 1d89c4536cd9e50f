# SPDX-License-Identifier: GPL-2.0-or-later
"""Address to function for one kernel, from what the guest's /proc/kallsyms says (nokaslr)."""

from __future__ import annotations

import bisect
import re
import sys
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import overload

from kdelta import cache
from kdelta.errors import GuestError, InfraError

_LINE = re.compile(r"([0-9a-f]{8,16}) ([A-Za-z?]) ([^\s\[\]]{1,511})(?:\s+\[([^\s\]]{1,64})\])?")
_CODE_TYPES = frozenset("tTwW")
_DATA_TYPES = frozenset("bBdDrRvV")
_MAX_LINES = 2_000_000
_FEWEST = 1000
_LAST = (1 << 64) - 1  # address
_LONGEST = 1 << 16  # bytes of a function behind which no symbol stands
UNKNOWN = "[unknown]"
_STARTS, _ENDS, _NAMES = "starts", "ends", "names"
_FORMAT = 4  # of what is kept: it changes when the same text gives other functions


@dataclass(frozen=True, slots=True)
class Symbols:
    """Functions of one kernel: starts[i] is the address of names[i], ascending.

    UNKNOWN stands where functions end and something else begins.
    """

    starts: Sequence[int]
    names: Sequence[str]

    def find(self, address: int) -> tuple[str, int]:
        """Name of the function that holds an address and the offset into it, in bytes.

        An address in none, such as that of a BPF program, has the name UNKNOWN.
        """
        at = bisect.bisect_right(self.starts, address) - 1
        if at < 0:
            return UNKNOWN, address
        return self.names[at], address - self.starts[at]

    def end(self, start: int) -> int:
        """The first address behind the function that begins at one."""
        at = bisect.bisect_right(self.starts, start)
        return self.starts[at] if at < len(self.starts) else _LAST

    def with_modules(self, text: str) -> Symbols:
        """These and the functions of modules that were loaded later: their lines of kallsyms.

        Raises GuestError when the text is no such thing.
        """
        return _sorted(dict(zip(self.starts, self.names, strict=True)) | _best(text))


def parse(text: str) -> Symbols:
    """Read the text of /proc/kallsyms.

    Of several names at one address the global one wins, then the one without leading
    underscores, then the shorter.  Raises GuestError when the text is not a symbol table.
    """
    best = _best(text)
    functions = sum(name != UNKNOWN for name in best.values())
    if functions < _FEWEST or 0 in best:
        raise GuestError(
            f"the guest's symbols hold {functions} usable functions",
            action="the kernel needs CONFIG_KALLSYMS=y and a PID 1 that may read addresses",
        )
    return _sorted(best)


def _sorted(names: Mapping[int, str]) -> Symbols:
    starts = array("Q", sorted(names))
    return Symbols(starts, [names[start] for start in starts])


def _best(text: str) -> dict[int, str]:
    """The name of each address that code begins at, UNKNOWN where it ends.

    Raises GuestError for garbage.
    """
    best: dict[int, tuple[tuple[bool, bool, int, str], str]] = {}
    data: set[int] = set()
    lines = text.splitlines()
    if len(lines) > _MAX_LINES:
        raise GuestError(f"the guest sent more than {_MAX_LINES} symbols")
    for number, line in enumerate(lines, 1):
        match = _LINE.fullmatch(line)
        if not match:
            raise GuestError(f"line {number} of the guest's symbols is garbage: {line[:60]!r}")
        address, kind, name = int(match[1], 16), match[2], match[3]
        if kind in _DATA_TYPES:
            data.add(address)
        if kind not in _CODE_TYPES or name.startswith(("__pfx_", "__cfi_")):
            continue
        rank = (kind not in "TW", name.startswith("_"), len(name), name)
        if address not in best or rank < best[address][0]:
            best[address] = (rank, name)
    names = {address: name for address, (_, name) in best.items()}
    return names | dict.fromkeys(_ends(names, data), UNKNOWN)


def _ends(functions: Collection[int], data: Collection[int]) -> Iterator[int]:
    """Where code ends: at the first data behind a function."""
    within = False
    for address in sorted({*functions, *data}):
        if within and address not in functions:
            yield address
        within = address in functions
    if within:
        yield min(max(functions) + _LONGEST, _LAST)


def load(image: str, fetch: Callable[[], str]) -> Symbols:
    """Symbols of the kernel image with this SHA-256, from the cache or else from `fetch`.

    fetch returns the text of /proc/kallsyms; it is asked at most once per image.  The key is what
    the image is, not what its guest says of itself.  Raises GuestError when the text is unusable.
    """

    def make(folder: Path) -> None:
        _write(parse(fetch()), folder)

    return _read(cache.entry("symbols", f"{image}-{_FORMAT}", make))


def _write(symbols: Symbols, folder: Path) -> None:
    """Files that are read at once: 160,000 lines take a quarter of a second to parse."""
    names = [name.encode() for name in symbols.names]
    (folder / _STARTS).write_bytes(_little(array("Q", symbols.starts)))
    (folder / _ENDS).write_bytes(_little(array("Q", accumulate(map(len, names)))))
    (folder / _NAMES).write_bytes(b"".join(names))


def _read(folder: Path) -> Symbols:
    """Addresses as little-endian words, where each name ends, and names.  Raises InfraError."""
    starts = _words((folder / _STARTS).read_bytes())
    names = _Names((folder / _NAMES).read_bytes(), _words((folder / _ENDS).read_bytes()))
    if len(names) != len(starts):
        raise InfraError(
            "the cached symbols are damaged", place=str(folder), action="kdelta cache clear symbols"
        )
    return Symbols(starts, names)


class _Names(Sequence[str]):
    """Names in a row, each made a text when it is asked for: a trial asks for some hundred."""

    def __init__(self, text: bytes, ends: array[int]) -> None:
        """ends: of each name, in the text."""
        self._text = text
        self._ends = ends

    def __len__(self) -> int:
        return len(self._ends)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(self._text)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...
    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        at = range(len(self))[at]
        return self._text[self._ends[at - 1] if at else 0 : self._ends[at]].decode()


def _little(words: array[int]) -> bytes:
    if sys.byteorder == "big":
        words.byteswap()
    return words.tobytes()


def _words(data: bytes) -> array[int]:
    words: array[int] = array("Q")
    words.frombytes(data)
    if sys.byteorder == "big":
        words.byteswap()
    return words
