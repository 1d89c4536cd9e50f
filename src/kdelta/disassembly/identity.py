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

Of arm64 moves with the code: branches relative to themselves, and addresses that are made of a page
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce

from kdelta.disassembly.code import Flow, Instruction
from kdelta.disassembly.image import Image, is_mark

# ---- arm64: code that moved -------------------------------------------------------------------

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
_REGISTER_BYTES = 8
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
        place = _STACK[kept[3]] + int(kept[4] or "0") + _REGISTER_BYTES * number
        register = int(name[1:]) if name != "xzr" else -1
        yield (place, register) if text.startswith("st") else (register, place)


def _left(place: int, instruction: Instruction) -> bool:
    """True for a place on the stack that cannot be found by its offset any more."""
    changed = _FRAME.match(instruction.raw)
    first = _STACK[changed[1] or changed[2]] if changed else 0
    return changed is not None and first <= place < 2 * first


def _written(text: str) -> list[int]:
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


# ---- two kernels ------------------------------------------------------------------------------

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


def functions_of(names: Iterable[str]) -> set[str]:
    """Functions of the kernel among the names that counts have ("rep movsb in NAME", "[user]")."""
    return {_STRING_INSTRUCTION.sub("", name) for name in names} - {_USER}


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
    ours, others = old.codes(suspects), new.codes(suspects)

    def same(name: str) -> bool:
        one, other = ours[name], others[name]
        if isinstance(one, str) or isinstance(other, str) or len(one) != len(other):
            return False
        if sorted(code.normal for code in one) == sorted(code.normal for code in other):
            return True
        places = ([start for start, _ in extents[name]] for extents in (mine, theirs))
        whole = zip(*places, one, other, strict=True)
        return all(
            _each_instruction(old, new, (a, i.instructions), (b, j.instructions))
            for a, b, i, j in whole
        )

    return ImageDifference(
        changed=tuple(name for name in suspects if not same(name)),
        added=tuple(sorted(theirs.keys() - mine.keys())),
        removed=tuple(sorted(mine.keys() - theirs.keys())),
    )


def only_lines(old: Image, new: Image) -> bool:
    """True when two images differ in nothing but line numbers of warnings and their build ids.

    So do those of a source and of the same with another comment: the table of warnings holds the
    line of each (struct bug_entry of x86-64, with CONFIG_DEBUG_BUGVERBOSE).
    """
    start, stop = (min(old.addresses(of), default=0) for of in (_WARNINGS, _AFTER_WARNINGS))
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
