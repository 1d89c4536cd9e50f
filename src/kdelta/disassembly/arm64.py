# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether two pieces of arm64 code are one although they lie elsewhere; pure.

What moves with the code: branches relative to themselves, and addresses that are made of a page
(adrp) and an offset in it (add, loads, stores).  `same_words` compares words of four bytes.
`same_instructions` follows the registers: offsets are added behind branches, after calls, from a
copy of the register.  Both functions have the same instructions but for these numbers, so one walk
over the branches says which pages each register may hold where; what an offset completes has to be
the same place in both kernels for every one of them.  A page that nothing completes, or that
something else looks at, is a difference, and so is what this cannot follow: it errs to "differs".
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce

from kdelta.disassembly.code import Flow, Instruction

_SIZE = 4
_BRANCH_BITS, _BRANCH = 0x7C000000, 0x14000000  # b, bl
_ADRP_BITS, _ADRP = 0x9F000000, 0x90000000
_ADD_BITS, _ADD_WORD = 0xFFC00000, 0x91000000  # add (64-bit), an immediate without shift
_MEMORY_BITS, _MEMORY = 0x3B000000, 0x39000000  # loads and stores, an unsigned offset
_VECTOR = 0x04000000
_OFFSET_BITS = 0xFFF << 10

Same = Callable[[int, int], bool]
"""True when an address of one kernel is the same place as an address of the other."""
Alike = Callable[[int], bool]
"""True when the instructions of that index are the same by what they say themselves."""
_Pages = dict[int, frozenset[int]]
"""Register, or place on the stack, -> indices of the instructions whose page it may hold."""

_ELSE = -1  # or something that is no page of this function, and the same in both
_PAGE = re.compile(r"adrp x(\d+), 0x([0-9a-f]+)")
_ADD = re.compile(r"add x(\d+), x(\d+), #(0x[0-9a-f]+|\d+)")
_COPY = re.compile(r"mov x(\d+), x(\d+)")
_LOAD = re.compile(r"(ld(?:r|u|a|x|p)\w*|prfm) (.*), \[(?:x(\d+)|sp)(?:, #(0x[0-9a-f]+|\d+))?\]")
_STORE = re.compile(r"(st(?:r|u|p|l)\w*) (.*), \[(?:x(\d+)|sp)(?:, #(0x[0-9a-f]+|\d+))?\]")
# Registers kept on the stack: "stp x1, x0, [sp, #112]".
_KEPT = re.compile(r"(?:ldr|str|ldp|stp) (x\d+|xzr)(?:, (x\d+|xzr))?, \[(sp|x29)(?:, #(\d+))?\]")
_FRAME = re.compile(r"\w+ (sp|x29),|.*\[(sp|x29)(?:\], #|, #\S+\]!)")
_STACK = {"sp": 1 << 20, "x29": 1 << 21}
_WORD = 8
_REGISTER = re.compile(r"\b[wx](\d+)\b")
_OFFSET = re.compile(r"#(?:0x[0-9a-f]+|\d+)(?=\]?$)")
# These read what they seem to write, or write nothing.
_READS_ALL = re.compile(
    r"(?:st|cmp|cmn|ccm|tst|cb|tb|br|blr|ret|movk|bf|msr|sys|dc|ic|cas|swp|ld(?:add|clr|set|eor|u?max|u?min))"
)
_ENDS = re.compile(r"(?:b 0x|br |ret\b|eret\b)")
_KEPT_IN_CALLS = range(19, 30)


def same_words(one: bytes, other: bytes, a: int, b: int, same: Same) -> bool:
    """True when two pieces of equal size at a and b are surely the same: the quick test."""
    if len(one) != len(other) or len(one) % _SIZE:
        return False
    pages: dict[int, tuple[int, int]] = {}  # register -> page of each
    open_pages: set[int] = set()  # registers whose pages nothing showed to be the same yet
    words = zip(struct.iter_unpack("<I", one), struct.iter_unpack("<I", other), strict=True)
    for number, ((x,), (y,)) in enumerate(words):
        at = number * _SIZE
        if _is_page(x) and _is_page(y) and x & 0x1F == y & 0x1F:
            register = x & 0x1F
            if register in open_pages:
                return False
            pages[register] = _page(x, a + at), _page(y, b + at)
            open_pages.add(register)
            continue
        base, differing = (x >> 5) & 0x1F, x ^ y
        in_page = x & _ADD_BITS == _ADD_WORD or x & _MEMORY_BITS == _MEMORY
        if base in pages and in_page and not differing & ~_OFFSET_BITS:
            mine, theirs = pages[base]
            if not same(mine + _offset_in(x), theirs + _offset_in(y)):
                return False
            open_pages.discard(base)
            written = x & 0x1F
            if (x & _ADD_BITS == _ADD_WORD or written == base) and written not in open_pages:
                pages.pop(written, None)
            continue
        if not differing:
            continue
        branches = x & _BRANCH_BITS == _BRANCH == y & _BRANCH_BITS
        if not branches or (x ^ y) >> 26 or not same(_target(x, a + at), _target(y, b + at)):
            return False
    return not open_pages


def _is_page(word: int) -> bool:
    return word & _ADRP_BITS == _ADRP


def _page(word: int, at: int) -> int:
    high = (word >> 5) & 0x7FFFF
    return (at & ~0xFFF) + (_signed(high << 2 | (word >> 29) & 3, 21) << 12)


def _offset_in(word: int) -> int:
    number = (word >> 10) & 0xFFF
    if word & _MEMORY_BITS != _MEMORY:
        return number
    of_16_bytes = word & _VECTOR and (word >> 23) & 1
    return number << (4 if of_16_bytes else word >> 30)


def _target(word: int, at: int) -> int:
    return at + (_signed(word & 0x3FFFFFF, 26) << 2)


def _signed(number: int, bits: int) -> int:
    return number - (1 << bits) if number >> (bits - 1) else number


@dataclass(slots=True)
class _Walk:
    """What is known before each instruction, and which pages something completed."""

    one: Sequence[Instruction]
    other: Sequence[Instruction]
    pages: dict[int, tuple[int, int]]  # by index of their adrp, of both
    before: list[_Pages | None]
    completed: set[int] = field(default_factory=set)


def same_instructions(
    one: Sequence[Instruction], other: Sequence[Instruction], same: Same, alike_at: Alike
) -> bool:
    """True when two functions are surely the same; alike_at: for what has to do with no page."""
    if len(one) != len(other):
        return False
    pages = {}
    for index, (i, j) in enumerate(zip(one, other, strict=True)):
        mine, theirs = _PAGE.fullmatch(i.raw), _PAGE.fullmatch(j.raw)
        if mine and theirs and mine[1] == theirs[1]:
            pages[index] = int(mine[2], 16), int(theirs[2], 16)
        elif i.to != j.to or i.size != j.size:
            return False
    walk = _Walk(one=one, other=other, pages=pages, before=[None] * len(one))
    _spread(walk, 0, {})
    for index in range(len(one)):
        if walk.before[index] is None:
            _spread(walk, index, _elsewhere(walk))
    right = all(_right(walk, index, same, alike_at) for index in range(len(one)))
    return right and all(index in walk.completed or same(*pages[index]) for index in pages)


def _elsewhere(walk: _Walk) -> _Pages:
    """What may be known where no branch is seen to go: by tables of jumps, else by a fault or a
    jump that is patched in, with any page in its register.
    """
    beside = zip(walk.before, walk.one, strict=True)
    if tables := [known for known, i in beside if known is not None and i.raw.startswith("br ")]:
        return reduce(_merged, tables)
    every: dict[int, frozenset[int]] = {}
    for index in walk.pages:
        if made := _PAGE.fullmatch(walk.one[index].raw):
            every[int(made[1])] = every.get(int(made[1]), frozenset({_ELSE})) | {index}
    return every


def _spread(walk: _Walk, start: int, known: _Pages) -> None:
    """Carry what is known to all that follows, until nothing is added anywhere."""
    left = [(start, known)]
    while left:
        index, known = left.pop()
        while index < len(walk.one):
            merged = _merged(walk.before[index], known)
            if merged == walk.before[index]:
                break
            walk.before[index] = merged
            known = _after(walk, index, merged)
            instruction = walk.one[index]
            if instruction.to is not None and instruction.kind is not Flow.CALL:
                left.append((instruction.to, known))
            if _ENDS.match(instruction.raw):
                break
            index += 1


def _merged(old: _Pages | None, new: _Pages) -> _Pages:
    if old is None:
        return new
    if old == new:
        return old
    none = frozenset({_ELSE})
    return {r: old.get(r, none) | new.get(r, none) for r in old.keys() | new.keys()}


def _after(walk: _Walk, index: int, known: _Pages) -> _Pages:
    """What registers may hold behind an instruction."""
    instruction = walk.one[index]
    if index in walk.pages:
        made = _PAGE.fullmatch(instruction.raw)
        return known | ({int(made[1]): frozenset({index})} if made else {})
    if instruction.kind is Flow.CALL or instruction.raw.startswith("blr "):
        return {r: held for r, held in known.items() if r in _KEPT_IN_CALLS or r >= _STACK["sp"]}
    copied = _COPY.fullmatch(instruction.raw)
    if copied and int(copied[2]) in known:
        return known | {int(copied[1]): known[int(copied[2])]}
    moved = dict(_moved(instruction.raw))
    gone = {*moved, *_written(instruction.raw)}
    found = {r: held for r, held in known.items() if r not in gone and not _left(r, instruction)}
    return found | {to: known[origin] for to, origin in moved.items() if origin in known}


def _moved(text: str) -> Iterator[tuple[int, int]]:
    """(to, from) of registers that are put on the stack or taken from it."""
    kept = _KEPT.fullmatch(text)
    if kept is None:
        return
    for number, name in enumerate(part for part in kept.groups()[:2] if part):
        place = _STACK[kept[3]] + int(kept[4] or "0") + _WORD * number
        register = int(name[1:]) if name != "xzr" else -1
        yield (place, register) if text.startswith("st") else (register, place)


def _left(place: int, instruction: Instruction) -> bool:
    """True for a place on the stack that cannot be found by its offset any more."""
    changed = _FRAME.match(instruction.raw)
    first = _STACK[changed[1] or changed[2]] if changed else 0
    return changed is not None and first <= place < 2 * first


def _written(text: str) -> list[int]:
    """Registers that surely have another value now."""
    load = _LOAD.fullmatch(text)
    if load is not None:
        return [] if load[1] == "prfm" else [int(r) for r in _REGISTER.findall(load[2])]
    if _READS_ALL.match(text) or text.startswith(("b ", "b.")):
        return []
    return [int(first) for first in re.findall(r"\A\w+ [wx](\d+)\b", text)]


def _right(walk: _Walk, index: int, same: Same, alike_at: Alike) -> bool:
    """True when an instruction does the same in both, as far as pages go."""
    known = walk.before[index] or {}
    mine, theirs = walk.one[index].raw, walk.other[index].raw
    if index in walk.pages:
        return True
    use = _ADD.fullmatch(mine) or _LOAD.fullmatch(mine) or _STORE.fullmatch(mine)
    held = known.get(int((use[2] if use.re is _ADD else use[3]) or _ELSE)) if use else None
    if use is None or held is None or held == {_ELSE}:
        return alike_at(index) and (bool(_KEPT.fullmatch(mine)) or not _looks_at(mine, known))
    if _OFFSET.sub("#", mine) != _OFFSET.sub("#", theirs):
        return False
    if use.re is _STORE and any(int(r) in known for r in _REGISTER.findall(use[2])):
        return False
    # The linker fills in an offset or does not: what completes a page on one way does on all.
    made = sorted(held - {_ELSE})
    walk.completed |= {*made}
    pages = [walk.pages[at] for at in made]
    return all(same(one + _low(mine), other + _low(theirs)) for one, other in pages)


def _low(text: str) -> int:
    found = _OFFSET.search(text)
    return int(found[0][1:], 0) if found else 0


def _looks_at(text: str, known: _Pages) -> bool:
    """True for what reads a page otherwise.  What it leaves in a register at a call is dead."""
    if _COPY.fullmatch(text) or text.startswith(("bl ", "ret")):
        return False
    read = Counter(int(r) for r in _REGISTER.findall(text)) - Counter(_written(text))
    return any(known.get(r, frozenset()) - {_ELSE} for r in read)
