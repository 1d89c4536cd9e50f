# SPDX-License-Identifier: GPL-2.0-or-later
"""What memory a window touched: lines of 64 bytes and pages, by function and by what they are.

Nothing here is a model of a cache: it says which memory was asked for, not where it was found.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from kdelta.attribution.insns import Touched
from kdelta.attribution.symbols import UNKNOWN, Symbols
from kdelta.sample import Count

_READ, WRITTEN = 1, 2
_VIA_STACK, _VIA_PER_CPU = 1, 2
_LOW = 0xFFF
LINE = ~63 & ((1 << 64) - 1)
PAGE = ~_LOW & ((1 << 64) - 1)
EVERYWHERE = ""


class What(StrEnum):
    """What a page of memory is."""

    USER = "user memory"  # by the program's own addresses
    STRUCT_PAGE = "struct page"
    PAGE_TABLE = "page tables"
    STACK = "kernel stack"
    PER_CPU = "per-CPU data"
    SLAB = "slab objects"
    ANON = "anonymous pages"  # by the kernel's addresses, as the following
    FILE = "file pages"
    RESERVED = "boot-time memory"
    PAGES = "other pages"
    VMALLOC = "vmalloc memory"
    TEXT = "kernel text"
    DATA = "kernel data"
    MODULE = "modules"
    OTHER = "other"


class MemoryRow(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Distinct lines and pages per window that a function touched; EVERYWHERE: all functions.

    A line that is read and written is in both.  Of EVERYWHERE what several touch is one.
    """

    function: str
    what: What
    lines: Count
    read: Count
    written: Count
    pages: Count


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a kernel has its memory when it is not randomised: Linux's x86/x86_64/mm.rst,
    arm64/memory.rst with arch/arm64/include/asm/memory.h, and riscv/vm-layout.rst.

    Each part: its first address and the first behind it.
    """

    direct: tuple[int, int]
    vmalloc: tuple[int, int]
    pages: tuple[int, int]

    def find(self, address: int) -> What | None:
        """What lies at an address; None elsewhere."""
        kinds = {What.PAGES: self.direct, What.VMALLOC: self.vmalloc, What.STRUCT_PAGE: self.pages}
        return next((what for what, (at, end) in kinds.items() if at <= address < end), None)


# Page tables of four levels, and of five; no address belongs to both.
_LAYOUTS = (
    Layout(
        direct=(0xFFFF_8880_0000_0000, 0xFFFF_C880_0000_0000),
        vmalloc=(0xFFFF_C900_0000_0000, 0xFFFF_E900_0000_0000),
        pages=(0xFFFF_EA00_0000_0000, 0xFFFF_EB00_0000_0000),
    ),
    Layout(
        direct=(0xFF11_0000_0000_0000, 0xFF91_0000_0000_0000),
        vmalloc=(0xFFA0_0000_0000_0000, 0xFFD2_0000_0000_0000),
        pages=(0xFFD4_0000_0000_0000, 0xFFD6_0000_0000_0000),
    ),
)


@dataclass(frozen=True, slots=True)
class Map:
    """All of a kernel's addresses.  image: of it and its data; modules: of theirs, behind or before
    it.  Both are asked before the layouts.
    """

    layouts: tuple[Layout, ...]
    image: tuple[int, int]
    modules: tuple[int, int]

    def find(self, address: int) -> What:
        """What lies at an address."""
        if self.image[0] <= address < self.image[1]:
            return What.DATA
        if self.modules[0] <= address < self.modules[1]:
            return What.MODULE
        return next(filter(None, (one.find(address) for one in self.layouts)), What.OTHER)

    @property
    def option(self) -> str:
        """The plugin's option memory=."""
        parts = ((*one.direct, one.pages[0]) for one in self.layouts)
        return "+".join(f"{first:x}:{end:x}:{pages:x}" for first, end, pages in parts)


_AMD64 = Map(
    layouts=_LAYOUTS,
    image=(0xFFFF_FFFF_8000_0000, 0xFFFF_FFFF_C000_0000),
    modules=(0xFFFF_FFFF_C000_0000, 0xFFFF_FFFF_FF00_0000),
)


def _arm64(image: int, pages: int) -> Map:
    """4 KiB pages, 48 bits; image: its first address; pages: the first struct page."""
    first, half = 0xFFFF_0000_0000_0000, 0xFFFF_8000_0000_0000
    rest = image + 0x800_0000  # it ends somewhere before
    layout = Layout(
        direct=(first, half),
        vmalloc=(rest, pages - 0x4000_0000),
        pages=(pages, pages + (half - first >> 6)),
    )
    return Map(layouts=(layout,), image=(image, rest), modules=(half, image))


_ARM64_OLD = _arm64(0xFFFF_8000_0800_0000, 0xFFFF_FC00_0000_0000)
_ARM64 = _arm64(0xFFFF_8000_8000_0000, 0xFFFF_FDFF_C000_0000)
_ARM64_SINCE = (6, 9)


def _riscv64(first: int) -> Map:
    """Sv39, Sv48, Sv57; first: the physical page whose struct page is the first."""
    unseen = 64 * (_RISCV64_MEMORY - first)
    layouts = (
        Layout(
            direct=(direct << 32, end << 32),
            vmalloc=(vmalloc << 32, direct << 32),
            pages=((vmemmap << 32) + unseen, vmalloc << 32),
        )
        for vmemmap, vmalloc, direct, end in (
            (0xFFFFFFC5, 0xFFFFFFC6, 0xFFFFFFD6, 0xFFFFFFF6),
            (0xFFFF8D80, 0xFFFF8F80, 0xFFFFAF80, 0xFFFFEF80),
            (0xFF1C0000, 0xFF200000, 0xFF600000, 0xFFDF0000),
        )
    )
    return Map(
        layouts=tuple(layouts),
        image=(0xFFFF_FFFF_8000_0000, 1 << 64),
        modules=(0xFFFF_FFFF_0000_0000, 0xFFFF_FFFF_8000_0000),
    )


_RISCV64_MEMORY = 0x8000_0000 >> 12  # where the memory of QEMU's machine "virt" begins
# First and last release that was seen to have it; those between were not looked at.
_RISCV64 = (((6, 17), (6, 17), _riscv64(_RISCV64_MEMORY)), ((7, 2), (9, 99), _riscv64(0)))


def of(architecture: str, release: str) -> Map | None:
    """The addresses of a kernel that is not randomised, None: unknown; release: "" for any."""
    if architecture == "arm64":
        return _ARM64 if _version(release) >= _ARM64_SINCE else _ARM64_OLD
    if architecture == "riscv64":
        version = _version(release) if release else _RISCV64[0][0]
        return next((one for low, high, one in _RISCV64 if low <= version <= high), None)
    return _AMD64 if architecture == "amd64" else None


@dataclass(frozen=True, slots=True)
class _Coding:
    """How a kernel writes into a struct page what it is: bits of flags; types by byte or bits."""

    reserved: int
    slab_flag: int
    table: int
    slab: int
    by_byte: bool

    def has(self, word: int, kind: int) -> bool:
        """Is that the type of a page?"""
        if self.by_byte:
            return word >> 24 == kind
        return bool(kind) and word >> 28 == 0xF and not word & kind


_OLD = _Coding(reserved=1 << 12, slab_flag=1 << 9, table=0x200, slab=0, by_byte=False)
_NEW = _Coding(reserved=1 << 13, slab_flag=0, table=0xF2, slab=0xF5, by_byte=True)
_CODINGS = (((6, 1), (6, 1), _OLD), ((6, 12), (9, 99), _NEW))  # first and last that has it


def _version(release: str) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", release)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def memory(
    touched: Sequence[Touched], names: Sequence[str], symbols: Symbols, release: str, places: Map
) -> tuple[MemoryRow, ...]:
    """What windows touched, summed, most first; names: of functions by the plugin's numbers."""
    found: Counter[tuple[str, What, str]] = Counter()
    for window in touched:
        kinds = kinds_of(window, release, places)
        everywhere: Counter[int] = Counter()
        pages: defaultdict[tuple[str, What], set[int]] = defaultdict(set)

        def add(name: str, word: int) -> None:
            address = word & LINE
            what = kind_at(address, kinds, symbols)  # noqa: B023  it is called here alone
            pages[name, what].add(address & PAGE)  # noqa: B023
            found[name, what, "lines"] += 1
            found[name, what, "read"] += bool(word & _READ)
            found[name, what, "written"] += bool(word & WRITTEN)

        for function, word in rows(window.lines, 2):
            everywhere[word & LINE] |= word & 3
            add(names[function] if function < len(names) else UNKNOWN, word)
        for address, how in everywhere.items():
            add(EVERYWHERE, address | how)
        for (name, what), distinct in pages.items():
            found[name, what, "pages"] += len(distinct)
    every = {(name, what) for name, what, _ in found}
    parts = ("lines", "read", "written", "pages")
    made = (MemoryRow(*row, *(found[*row, part] for part in parts)) for row in every)
    return tuple(sorted(made, key=lambda row: (-row.lines, row.function, row.what)))


def kinds_of(touched: Touched, release: str, places: Map) -> dict[int, What]:
    """What each page of the kernel's is that a window touched, by its address."""
    version = _version(release)
    code = next((one for first, last, one in _CODINGS if first <= version <= last), None)
    return {
        word & PAGE: _kind(word, flags, mapping, form, code, places)
        for word, flags, mapping, form in rows(touched.pages, 4)
    }


def kind_at(address: int, kinds: Mapping[int, What], symbols: Symbols) -> What:
    """What lies at an address; kinds: of the window that touched it."""
    what = kinds.get(address & PAGE, What.USER)
    return What.TEXT if what is What.DATA and symbols.find(address)[0] != UNKNOWN else what


def rows(words: Sequence[int], width: int) -> Iterator[tuple[int, ...]]:
    """Words of the plugin, so many in a row."""
    return zip(*(words[at::width] for at in range(width)), strict=True)


def _kind(
    word: int, flags: int, mapping: int, form: int, code: _Coding | None, places: Map
) -> What:
    """What a page of the kernel's is: by how it was found, where it lies, and its struct page."""
    address, via = word & PAGE, word & _LOW
    if via & _VIA_PER_CPU:
        return What.PER_CPU
    if via & _VIA_STACK:
        return What.STACK
    what, form = places.find(address), form & 0xFFFF_FFFF
    if what is not What.PAGES or code is None:
        return what
    if code.has(form, code.table):
        return What.PAGE_TABLE
    if code.has(form, code.slab) or flags & code.slab_flag:
        return What.SLAB
    if mapping & 1:
        return What.ANON
    if mapping:
        return What.FILE
    return What.RESERVED if flags & code.reserved else What.PAGES
