# SPDX-License-Identifier: GPL-2.0-or-later
"""What kind of work a window did: exact counts of instructions, told apart by their bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from kdelta.arch import Arch
from kdelta.attribution.insns import CountedWindow
from kdelta.attribution.symbols import Symbols
from kdelta.probes import work_arm64, work_riscv64, work_x86
from kdelta.probes.work_kinds import Kind

_KERNEL_HALF = 1 << 63
_USER = "[user]"
_INDIRECT_THUNK = "__x86_indirect_"  # where a kernel with retpolines goes instead


class WorkRow(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """How often instructions of a kind retired in a function; "[user]" is all of user space."""

    function: str
    kind: Kind
    count: int


@dataclass(frozen=True, slots=True)
class _Reader:
    kinds: Callable[[bytes], frozenset[Kind]]
    target: Callable[[bytes, int], int | None]


_READERS = {
    "amd64": _Reader(lru_cache(1 << 16)(work_x86.kinds), work_x86.target),
    "arm64": _Reader(lru_cache(1 << 16)(work_arm64.kinds), lambda _code, _at: None),
    "riscv64": _Reader(lru_cache(1 << 16)(work_riscv64.kinds), lambda _code, _at: None),
}


def known(architecture: Arch) -> bool:
    """True where instructions can be told apart."""
    return architecture.debian in _READERS


def work(window: CountedWindow, symbols: Symbols, architecture: Arch) -> tuple[WorkRow, ...]:
    """The kinds of work of a window by function, most first; none where they are not known.

    A string instruction is one, however often it goes round, and no load nor store.  A call of a
    thunk that a kernel has for its indirect branches is one such branch; the thunk's own is not.
    """
    reader = _READERS.get(architecture.debian)
    if reader is None:
        return ()
    found: Counter[tuple[str, Kind]] = Counter()
    for address, code, count in window.instructions():
        kinds = reader.kinds(code)
        if to := reader.target(code, address):
            kinds |= _branch(to, symbols)
        if not kinds:
            continue
        name = symbols.find(address)[0] if address >= _KERNEL_HALF else _USER
        if name.startswith(_INDIRECT_THUNK):
            kinds -= {Kind.INDIRECT}
        for kind in kinds:
            found[name, kind] += count
    rows = sorted(found.items(), key=lambda row: (-row[1], row[0]))
    return tuple(WorkRow(name, kind, count) for (name, kind), count in rows)


def _branch(to: int, symbols: Symbols) -> frozenset[Kind]:
    thunk = to >= _KERNEL_HALF and symbols.find(to)[0].startswith(_INDIRECT_THUNK)
    return frozenset({Kind.INDIRECT}) if thunk else frozenset()
