# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether two kernels have the same code for the functions that a workload executes.

Two functions are the same when their instructions are, one by one, after this: branches inside
count by instruction, and addresses of functions, data and string constants become names (with the
offset into them), or the string itself; numbers that compilers count up in names of static data
(`descriptor.12`) are left out.  Constants stay, and with them offsets into structures.

What this cannot see, so that "identical" means equal code and not equal behaviour: contents of
data; what the kernel patches into its code at boot (alternatives, static keys, static calls);
functions reached through pointers that are not among those named.  It errs to the other side too:
a rename or another order of merged data makes equal code look different.

`difference` compares whole images.  Code that did not change has other bytes when what it calls
lies elsewhere.  So functions of equal size are first compared byte by byte, where four bytes may
differ that name the same place in both kernels, relative to the instruction or absolute; only what
is left is disassembled and compared in normal form, and what differs there once more, instruction
by instruction, where either form may show that two are one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from kdelta import cache
from kdelta.disassembly.arm64 import same_instructions, same_words
from kdelta.disassembly.code import Instruction
from kdelta.disassembly.image import Image, is_mark

_FORMAT = "2"
DISPATCHED = 100
_USER = "[user]"
_STRING_INSTRUCTION = re.compile(r"^rep\w* \S+ in ")  # counted apart from the rest of a function
_FIELD = 4
_WARNINGS, _AFTER_WARNINGS = "__start___bug_table", "__stop___bug_table"
_ENTRY, _LINE = 12, (8, 9)  # bytes: two addresses of 4, the line of 2, flags of 2
_ID_BYTES = 20
_NOTE = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0"
_WORD = (1 << 64) - 1
_MAP = 0xFFFFFFFF80000000  # __START_KERNEL_map of x86-64
_NUMBER = re.compile(r"\$0x([0-9a-f]{16})\b")  # of x86-64, sign-extended
_RELATIVE = re.compile(r"lea +(-?0x[0-9a-f]+)\(%rip\)")
_AFTER = (0, 1, 2, 4)  # bytes of an immediate between a relative address and its instruction's end

Place = tuple[frozenset[str], int]
Extents = Sequence[tuple[int, int]]


class Sameness(StrEnum):
    """What is known of the code of all watched functions."""

    IDENTICAL = "identical"
    DIFFERENT = "different"
    UNKNOWN = "unknown"  # no difference is known, but not all code could be read


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """Code of the watched functions of one kernel: name -> digest; unknown: name -> why."""

    arch: str
    digests: dict[str, str]
    unknown: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeIdentity:
    """The verdict on two kernels and the names behind it; `only` are functions of one of them."""

    sameness: Sameness
    identical: tuple[str, ...]
    different: tuple[str, ...]
    only: tuple[str, ...]
    unknown: dict[str, str]


def watched(image: Image, executed: Iterable[str]) -> tuple[str, ...]:
    """The executed functions of an image and those that they call directly, sorted.

    executed: names as counts have them, also "[user]" and "rep movsb in NAME".  Names that the
    image does not have are passed on, so that `fingerprint` says of them that they are unknown.
    Of a function that calls more than DISPATCHED others (the table of system calls) only those
    count that were executed themselves.
    """
    names = functions_of(executed)
    called: set[str] = set()
    for codes in image.codes(sorted(names)).values():
        for code in codes if not isinstance(codes, str) else ():
            calls = {call.partition("+")[0] for call in code.calls}
            called |= calls if len(calls) <= DISPATCHED else set()
    return tuple(sorted(names | {name for name in called if name in image}))


def functions_of(names: Iterable[str]) -> set[str]:
    """Functions of the kernel among the names that counts have ("rep movsb in NAME", "[user]")."""
    return {_STRING_INSTRUCTION.sub("", name) for name in names} - {_USER}


def fingerprint(image: Image, names: Iterable[str]) -> Fingerprint:
    """The code of functions of an image.  What cannot be read is unknown, with the reason."""
    digests: dict[str, str] = {}
    unknown: dict[str, str] = {}
    wanted = sorted(functions_of(names))
    for name, codes in image.codes(wanted).items():
        if isinstance(codes, str):
            unknown[name] = codes
        else:
            own = (cache.digest(_FORMAT, code.arch, *code.normal) for code in codes)
            digests[name] = cache.digest(*sorted(own))
    return Fingerprint(arch=image.arch.debian, digests=digests, unknown=unknown)


def compare(one: Image, other: Image, executed: Iterable[str]) -> CodeIdentity:
    """Compare the code of executed functions and of what they call, in two images."""
    names = set(executed)
    both = set(watched(one, names)) | set(watched(other, names))
    return judge(fingerprint(one, both), fingerprint(other, both))


def judge(one: Fingerprint, other: Fingerprint) -> CodeIdentity:
    """The verdict on two fingerprints; a function that only one has makes them different."""
    mine, theirs = one.digests, other.digests
    both = sorted(mine.keys() & theirs.keys())
    identical = tuple(name for name in both if mine[name] == theirs[name])
    different = tuple(name for name in both if mine[name] != theirs[name])
    only = tuple(sorted(mine.keys() ^ theirs.keys()))
    left = sorted({*one.unknown, *other.unknown} - {*mine, *theirs})
    causes = other.unknown | {name: why for name, why in one.unknown.items() if why}
    unknown = {name: causes.get(name) or "not looked at" for name in left}
    sameness = Sameness.UNKNOWN if unknown or not identical else Sameness.IDENTICAL
    if one.arch != other.arch or different or only:
        sameness = Sameness.DIFFERENT
    return CodeIdentity(
        sameness=sameness, identical=identical, different=different, only=only, unknown=unknown
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDifference:
    """Functions of two images by name, sorted.

    changed: in both, of other code, or not readable in one; added, removed: in one of them.
    """

    changed: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]

    @property
    def names(self) -> frozenset[str]:
        """All of them."""
        return frozenset((*self.changed, *self.added, *self.removed))


def difference(old: Image, new: Image) -> ImageDifference:
    """Compare every function that either image has."""
    mine, theirs = ({n: e for n, e in i.extents().items() if not is_mark(n)} for i in (old, new))
    both = sorted(mine.keys() & theirs.keys())
    suspects = [name for name in both if not _alike(old, new, mine[name], theirs[name])]
    found = judge(fingerprint(old, suspects), fingerprint(new, suspects))
    different = [n for n in found.different if not _by_instruction(old, new, n, mine, theirs)]
    return ImageDifference(
        changed=tuple(sorted((*different, *found.only, *found.unknown))),
        added=tuple(sorted(theirs.keys() - mine.keys())),
        removed=tuple(sorted(mine.keys() - theirs.keys())),
    )


def only_lines(old: Image, new: Image) -> bool:
    """True when two images differ in nothing but line numbers of warnings and their build ids.

    So do those of a source and of the same with another comment: the table of warnings holds the
    line of each (struct bug_entry of x86-64, with CONFIG_DEBUG_BUGVERBOSE).
    """
    start, stop = old.address(_WARNINGS) or 0, old.address(_AFTER_WARNINGS) or 0
    lines = range(start, stop) if (stop - start) % _ENTRY == 0 else range(0)
    try:
        return all(
            (at + offset in lines and (at + offset - start) % _ENTRY in _LINE)
            or _is_build_id(old, at + offset)
            for at, mine, theirs in old.beside(new)
            for offset, (x, y) in enumerate(zip(mine, theirs, strict=True))
            if x != y
        )
    except ValueError:
        return False


def _is_build_id(image: Image, address: int) -> bool:
    before = image.bytes_at(address - _ID_BYTES - len(_NOTE), 2 * (_ID_BYTES + len(_NOTE)))
    at = before.find(_NOTE)
    begin = address - _ID_BYTES - len(_NOTE) + at + len(_NOTE)
    return at >= 0 and begin <= address < begin + _ID_BYTES


def _alike(old: Image, new: Image, mine: Extents, theirs: Extents) -> bool:
    """True when all functions of a name are surely the same; mine, theirs: start and size."""
    return [size for _, size in mine] == [size for _, size in theirs] and all(
        _same(old, new, a, b, size) for (a, size), (b, _) in zip(mine, theirs, strict=True)
    )


def _same(old: Image, new: Image, a: int, b: int, size: int) -> bool:
    one, other = old.bytes_at(a, size), new.bytes_at(b, size)
    if len(one) != size or len(other) != size:
        return False
    if old.arch.debian == "arm64":
        return same_words(one, other, a, b, partial(_is_one_or_text, old, new))
    if old.arch.debian != "amd64":
        return one == other and a == b
    at = 0
    for first, (x, y) in enumerate(zip(one, other, strict=True) if one != other else ()):
        if x == y or first < at:
            continue  # equal, or of the field that was just passed
        starts = range(first, max(at, first - _FIELD + 1) - 1, -1)  # of fields with this byte
        end = _field(old, new, (a, one), (b, other), starts)
        if end is None:
            return False
        at = end
    return True


def _field(
    old: Image, new: Image, mine: tuple[int, bytes], theirs: tuple[int, bytes], starts: range
) -> int | None:
    """The end of a field from one of these starts on that names one place; else None."""
    (a, one), (b, other) = mine, theirs
    for start in starts:
        end = start + _FIELD
        if end > len(one):
            continue
        x, y = (int.from_bytes(c[start:end], "little", signed=True) for c in (one, other))
        meant = [(a + end + after + x, b + end + after + y) for after in _AFTER]
        meant.append((x & _WORD, y & _WORD))
        meant.append((x + _MAP, y + _MAP))  # what setup code takes for a physical address
        if any(_is_one(old, new, *pair) for pair in meant):
            return end
    return None


def _is_one(old: Image, new: Image, x: int, y: int) -> bool:
    """True when two addresses are one place: so far behind a symbol, or the last byte before it."""
    after = old.place(x + 1)
    return _share(old.place(x), new.place(y)) or (
        after is not None and after[1] == 0 and _share(after, new.place(y + 1))
    )


def _is_one_or_text(old: Image, new: Image, x: int, y: int) -> bool:
    """True for one place, and for equal strings and merged constants."""
    return _is_one(old, new, x, y) or old.constant(x) == new.constant(y) != ""


def _share(one: Place | None, other: Place | None) -> bool:
    """True for as many bytes behind a symbol that both images have there."""
    return one is not None and other is not None and one[1] == other[1] and bool(one[0] & other[0])


def _by_instruction(
    old: Image, new: Image, name: str, mine: Mapping[str, Extents], theirs: Mapping[str, Extents]
) -> bool:
    """True when all functions of a name are the same, each instruction by its text or its bytes."""
    one, other = old.codes([name])[name], new.codes([name])[name]
    if isinstance(one, str) or isinstance(other, str) or len(one) != len(other):
        return False
    mine_at, theirs_at = ([start for start, _ in extents[name]] for extents in (mine, theirs))
    ours = zip(mine_at, (code.instructions for code in one), strict=True)
    others = zip(theirs_at, (code.instructions for code in other), strict=True)
    return all(_each_instruction(old, new, *pair) for pair in zip(ours, others, strict=True))


def _each_instruction(
    old: Image,
    new: Image,
    mine: tuple[int, Sequence[Instruction]],
    theirs: tuple[int, Sequence[Instruction]],
) -> bool:
    """mine, theirs: where a function starts, and its instructions."""
    (a, one), (b, other) = mine, theirs

    def alike(index: int) -> bool:
        i, j = one[index], other[index]
        return i.shown == j.shown or _instruction(old, new, (a, i), (b, j))

    if len(one) != len(other):
        return False
    if old.arch.debian == "arm64":
        return same_instructions(one, other, partial(_is_one_or_text, old, new), alike)
    return all(map(alike, range(len(one))))


def _instruction(
    old: Image, new: Image, mine: tuple[int, Instruction], theirs: tuple[int, Instruction]
) -> bool:
    """True for two of different texts that name one place; mine, theirs: start of the function."""
    (a, i), (b, j) = mine, theirs
    a, b = a + i.offset, b + j.offset
    if i.size != j.size or i.to is not None or j.to is not None:
        return False
    x, y = _pointer(a, i), _pointer(b, j)
    # The end of a table is what follows it, and another thing may follow now.
    ends = [(x - back, y - back) for back in (0, 1)] if x is not None and y is not None else []
    if any(_share(old.place(mine), new.place(theirs)) for mine, theirs in ends):
        return True
    # Equal bytes of different texts are other places at one distance.
    moved = old.bytes_at(a, i.size) != new.bytes_at(b, j.size)
    return moved and _same(old, new, a, b, i.size)


def _pointer(at: int, instruction: Instruction) -> int | None:
    """The address that an instruction takes without looking there; None for all others."""
    if number := _NUMBER.search(instruction.raw):
        return int(number[1], 16)
    relative = _RELATIVE.match(instruction.raw)
    return at + instruction.size + int(relative[1], 16) if relative else None
