# SPDX-License-Identifier: GPL-2.0-or-later
"""Address to function for one kernel, from what the guest's /proc/kallsyms says (nokaslr)."""

from __future__ import annotations

import bisect
import re
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kdelta.errors import GuestError

_LINE = re.compile(r"([0-9a-f]{8,16}) ([A-Za-z?]) ([^\s\[\]]{1,511})(?:\s+\[([^\s\]]{1,64})\])?")
_CODE_TYPES = frozenset("tTwW")
_DATA_TYPES = frozenset("bBdDrRvV")
# Where a section begins or ends, maybe at a function: names one by one, since shmem_write_end(),
# end_page_writeback() and stop_machine() are functions.
TEXT_MARK = re.compile(r"_[es]?text|_[es](?:init|exit)text|__\w*text_(?:start|end)|__bhi_args_end")
_MAX_LINES = 2_000_000
_FEWEST = 1000
_LAST = (1 << 64) - 1  # address
_LONGEST = 1 << 16  # bytes of a function behind which no symbol stands
UNKNOWN = "[unknown]"


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

    Of several names at one address a function's wins, then the global one, then the one without
    leading underscores, then the shorter.  Raises GuestError when the text is not a symbol table.
    """
    best = _best(text)
    functions = sum(name != UNKNOWN for name in best.values())
    if functions < _FEWEST or 0 in best:
        action = "the kernel needs CONFIG_KALLSYMS=y and a PID 1 that may read addresses"
        raise GuestError(f"the guest's symbols hold {functions} usable functions", action=action)
    return _sorted(best)


def _sorted(names: Mapping[int, str]) -> Symbols:
    starts = array("Q", sorted(names))
    return Symbols(starts, [names[start] for start in starts])


def _best(text: str) -> dict[int, str]:
    """The name of each address that code begins at, UNKNOWN where it ends.  Raises GuestError."""
    best: dict[int, tuple[str, str]] = {}  # kind, name
    data, edges = set[int](), {"_sdata": 1, "_edata": 0}
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
        if name in edges:
            edges[name] = address
        if kind not in _CODE_TYPES or name.startswith(("__pfx_", "__cfi_")):
            continue
        if address not in best or _rank(kind, name) < _rank(*best[address]):
            best[address] = kind, name
    within = range(edges["_sdata"], edges["_edata"] + 1)  # executable, in Linux 6.17, and yet data
    data.update(address for address in best if address in within)
    names = {address: name for address, (_, name) in best.items() if address not in within}
    return names | dict.fromkeys(_ends(names, data), UNKNOWN)


def _rank(kind: str, name: str) -> tuple[bool, bool, bool, int, str]:
    is_mark = bool(TEXT_MARK.fullmatch(name))
    return is_mark, kind not in "TW", name[0] == "_", len(name), name


def _ends(functions: Collection[int], data: Collection[int]) -> Iterator[int]:
    """Where code ends: at the first data behind a function."""
    within = False
    for address in sorted({*functions, *data}):
        if within and address not in functions:
            yield address
        within = address in functions
    if within:
        yield min(max(functions) + _LONGEST, _LAST)
