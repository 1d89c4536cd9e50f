# SPDX-License-Identifier: GPL-2.0-or-later
"""Address to function for one kernel, from what the guest's /proc/kallsyms says (nokaslr)."""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kdelta import cache
from kdelta.errors import GuestError

_LINE = re.compile(r"([0-9a-f]{8,16}) ([A-Za-z?]) ([^\s\[\]]{1,511})(?:\s+\[([^\s\]]{1,64})\])?")
_CODE_TYPES = frozenset("tTwW")
_MAX_LINES = 2_000_000
_FEWEST = 1000
_BUILD_ID = re.compile(r"[0-9a-f]{16,64}")


@dataclass(frozen=True, slots=True)
class Symbols:
    """Functions of one kernel: starts[i] is the address of names[i], ascending."""

    starts: tuple[int, ...]
    names: tuple[str, ...]

    def find(self, address: int) -> tuple[str, int]:
        """Name of the function that holds an address and the offset into it, in bytes.

        An address before the first symbol has the name "[unknown]".
        """
        at = bisect.bisect_right(self.starts, address) - 1
        if at < 0:
            return "[unknown]", 0
        return self.names[at], address - self.starts[at]

    def with_modules(self, text: str) -> Symbols:
        """These and the functions of modules that were loaded later: their lines of kallsyms.

        Raises GuestError when the text is no such thing.
        """
        every = dict(zip(self.starts, self.names, strict=True)) | _best(text)
        starts = tuple(sorted(every))
        return Symbols(starts, tuple(every[start] for start in starts))


def parse(text: str) -> Symbols:
    """Read the text of /proc/kallsyms.

    Of several names at one address the global one wins, then the one without leading
    underscores, then the shorter.  Raises GuestError when the text is not a symbol table.
    """
    best = _best(text)
    if len(best) < _FEWEST or 0 in best:
        raise GuestError(
            f"the guest's symbols hold {len(best)} usable functions",
            action="the kernel needs CONFIG_KALLSYMS=y and a PID 1 that may read addresses",
        )
    starts = tuple(sorted(best))
    return Symbols(starts, tuple(best[start] for start in starts))


def _best(text: str) -> dict[int, str]:
    """The name of each address that code begins at.  Raises GuestError for garbage."""
    best: dict[int, tuple[tuple[bool, bool, int, str], str]] = {}
    lines = text.splitlines()
    if len(lines) > _MAX_LINES:
        raise GuestError(f"the guest sent more than {_MAX_LINES} symbols")
    for number, line in enumerate(lines, 1):
        match = _LINE.fullmatch(line)
        if not match:
            raise GuestError(f"line {number} of the guest's symbols is garbage: {line[:60]!r}")
        kind, name = match[2], match[3]
        if kind not in _CODE_TYPES or name.startswith(("__pfx_", "__cfi_")):
            continue
        address = int(match[1], 16)
        rank = (kind not in "TW", name.startswith("_"), len(name), name)
        if address not in best or rank < best[address][0]:
            best[address] = (rank, name)
    return {address: name for address, (_, name) in best.items()}


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

    return _read(cache.entry("symbols", build_id, make) / "functions")


def _read(path: Path) -> Symbols:
    rows = [line.split(" ", 1) for line in path.read_text().splitlines()]
    return Symbols(tuple(int(row[0], 16) for row in rows), tuple(row[1] for row in rows))
