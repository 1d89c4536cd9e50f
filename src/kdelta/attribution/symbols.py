# SPDX-License-Identifier: GPL-2.0-or-later
"""Address to function for one kernel, from what the guest's /proc/kallsyms says (nokaslr)."""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kdelta import cache
from kdelta.errors import GuestError

_LINE = re.compile(r"([0-9a-f]{8,16}) ([A-Za-z?]) ([^\s\[\]]{1,511})(?:\s+\[([^\s\]]{1,64})\])?")
_CODE_TYPES = frozenset("tTwW")
_DATA_TYPES = frozenset("bBdDrRvV")
_MAX_LINES = 2_000_000
_FEWEST = 1000
_LONGEST = 1 << 16  # bytes of a function behind which no symbol stands
_BUILD_ID = re.compile(r"[0-9a-f]{16,64}")
UNKNOWN = "[unknown]"
_FORMAT = 2  # of what is kept: it changes when the same text gives other functions


@dataclass(frozen=True, slots=True)
class Symbols:
    """Functions of one kernel: starts[i] is the address of names[i], ascending.

    UNKNOWN stands where functions end and something else begins.
    """

    starts: tuple[int, ...]
    names: tuple[str, ...]

    def find(self, address: int) -> tuple[str, int]:
        """Name of the function that holds an address and the offset into it, in bytes.

        An address in none, such as that of a BPF program, has the name UNKNOWN.
        """
        at = bisect.bisect_right(self.starts, address) - 1
        if at < 0:
            return UNKNOWN, address
        return self.names[at], address - self.starts[at]

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
    starts = tuple(sorted(names))
    return Symbols(starts, tuple(names[start] for start in starts))


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
        yield max(functions) + _LONGEST


def load(build_id: str, fetch: Callable[[], str]) -> Symbols:
    """Symbols of the kernel with this GNU build id, from the cache or else from `fetch`.

    fetch returns the text of /proc/kallsyms; it is asked at most once per build id.
    Raises GuestError when the build id or the text is unusable.
    """
    if not _BUILD_ID.fullmatch(build_id):
        raise GuestError(f"the guest says no usable build id: {build_id[:80]!r}")

    def make(folder: Path) -> None:
        symbols = parse(fetch())
        rows = zip(symbols.starts, symbols.names, strict=True)
        text = "".join(f"{start:x} {name}\n" for start, name in rows)
        (folder / "functions").write_text(text)

    return _read(cache.entry("symbols", f"{build_id}-{_FORMAT}", make) / "functions")


def _read(path: Path) -> Symbols:
    rows = [line.split(" ", 1) for line in path.read_text().splitlines()]
    return Symbols(tuple(int(row[0], 16) for row in rows), tuple(row[1] for row in rows))
