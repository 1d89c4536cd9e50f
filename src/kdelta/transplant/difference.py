# SPDX-License-Identifier: GPL-2.0-or-later
"""What a patch changes in an object: its functions, its data, and what cannot be transplanted.

Both objects are made by one compiler with one set of flags, so equal code has equal bytes, and its
fields mean the same by name.  The entries of tables that belong to a function (alternatives, jump
labels, exceptions, warnings) are part of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from kdelta.disassembly import relocatable
from kdelta.disassembly.code import stable
from kdelta.disassembly.relocatable import DATA, FUNCTION, Filled
from kdelta.elf import BadElf
from kdelta.transplant.proof import Listing, Place, functions_of

COLD = ".cold"
_ENDBR, _CALL, _JUMP_BYTES = bytes.fromhex("f30f1efa"), 0xE8, 5
_TRACED = "__fentry__"
# Tables that belong to functions: how many fields an entry has, of which the first is in code.
_TABLES = {
    "__jump_table": 3, ".altinstructions": 2, "__ex_table": 2, ".smp_locks": 1, "__bug_table": 2,
}  # fmt: skip
_BUGS, _LINE = "__bug_table", slice(-4, -2)  # fields of 4 bytes, then the line and flags
_REPLACEMENT = ".altinstr_replacement"
_UNNAMED_BYTES = 32
_TEST, _TEST_BYTES = ".altinstr_aux", 18
# Data of its function alone, which may begin anew: what was said once, who was told of.
_ITS_OWN = re.compile(
    r"__already_done|__func__|__PRETTY_FUNCTION__|__warned|__UNIQUE_ID_\w+|_entry|_rs|__key"
    r"|descriptor|___once_key|___done"
)
_NUMBERED = re.compile(r".+\.\d+")
# Sections whose content says where in the source something is, which every patch changes.
_PLACES = re.compile(r"__dyndbg|\.data\.\.Lubsan.*|\.discard.*|__bug_table|\.debug.*|\.data\.once")

# Tables of what the kernel calls once, before a module is loaded.
_AT_BOOT = re.compile(
    r"(?:\.rela)?(?:\.initcall|\.con_initcall|\.init\.setup|\.init_array|\.ctors)"
)

Field = tuple[int, int, object]
Normal = tuple[tuple[object, ...], tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Entry:
    """How a function begins.

    after: the offset behind the call of the tracer, a NOP at boot; of one that is not traced behind
    its mark, in whose place the jump is.
    """

    has_mark: bool  # endbr64
    after: int
    is_traced: bool = True


class Normals:
    """The functions and data of an object in a form that does not depend on where they lie."""

    def __init__(self, listing: Listing) -> None:
        self.listing, self.own = listing, listing.own

    @cached_property
    def names(self) -> dict[int, str]:
        """The name of each function and piece of data, one number up for each of the same base."""
        seen: Counter[str] = Counter()
        found = {}
        for index, symbol in enumerate(self.own.symbols):
            if not symbol.is_defined or symbol.kind not in (DATA, FUNCTION):
                continue
            name = symbol.name
            if symbol.kind == DATA and _NUMBERED.fullmatch(name):
                base = stable(name)
                name = base if _ITS_OWN.fullmatch(base) else f"{base}#{seen[base]}"
                seen[base] += 1
            found[index] = name
        return found

    def bases(self) -> Counter[str]:
        """How often each numbered name is there."""
        return Counter(name.partition("#")[0] for name in self.names.values() if "#" in name)

    @cached_property
    def functions(self) -> dict[str, int]:
        """The functions that stay after boot, by name."""
        return {self.own.symbols[index].name: index for index in functions_of(self.own)}

    @cached_property
    def data(self) -> dict[str, int]:
        """The data with names of their own, by `names`."""
        return {
            name: index
            for index, name in self.names.items()
            if self.own.symbols[index].kind == DATA
            and self.own.symbols[index].size
            and not _ITS_OWN.fullmatch(name)
            and not self.part(index).startswith(".discard")
        }

    def part(self, index: int) -> str:
        """The name of the section that a symbol lies in."""
        return self.own.parts[self.own.symbols[index].section].name

    def normal(self, index: int) -> Normal:
        """A function or piece of data.  Lines of the source are left out of its entries."""
        if self.own.symbols[index].kind != FUNCTION:
            return self._piece(index, 0, self.own.symbols[index].size), ()
        code = list[object]()
        for row in self.listing.rows(index):
            piece = self._piece(index, row.offset, row.size)
            branch = self.listing.branch(index, row)
            if branch is None:
                code.append(piece)
                continue
            words, place = branch
            # As far as instructions go: branches may be short or long.
            to: object = self._named(place, index) if place and not piece[1] else "nowhere"
            code.append((words, piece[1][0][2] if piece[1] else to))
        return tuple(code), tuple(self._entries.get(index, ()))

    def _named(self, place: Place, inside: int) -> object:
        index, offset = place
        if index != inside:
            return self.names[index], offset
        rows = self.listing.rows(index)
        return "@", next((n for n, row in enumerate(rows) if row.offset == offset), -1)

    def _piece(self, index: int, start: int, size: int) -> tuple[bytes, tuple[Field, ...]]:
        symbol = self.own.symbols[index]
        content, fields = bytearray(self.own.content(index)[start : start + size]), list[Field]()
        for each in self.own.fields(index, start, size):
            at, wide = each.offset - start, relocatable.SIZES.get(each.kind, 0)
            content[at : at + wide] = bytes(wide)
            placed = replace(each, offset=each.offset + symbol.value)
            fields.append((at, each.kind, self.meaning(symbol.section, placed, index)))
        return bytes(content), tuple(fields)

    def meaning(self, section: int, each: Filled, inside: int = -1) -> object:
        """What a field means, by name or content.  inside: the function that the field is of."""
        index, offset = self.listing.meant(section, each)
        symbol = self.own.symbols[index]
        if index == inside and symbol.kind == FUNCTION:
            return self._named((index, offset), inside)
        if not symbol.is_defined:
            return symbol.name, offset
        if index in self.names and symbol.size:
            return self.names[index], offset
        part, at = self.own.parts[symbol.section], symbol.value + offset
        if part.flags & relocatable.STRINGS:
            return part.content[at : part.content.find(b"\0", at)]
        if part.flags & relocatable.MERGED:
            return part.content[at : at + part.entry]
        if part.name == _TEST:
            return part.content[at : at + _TEST_BYTES]
        if part.flags & relocatable.WRITABLE:
            return part.name  # of a sanitizer: what it says is wrong, and where
        return part.name, part.content[at : at + _UNNAMED_BYTES]

    @cached_property
    def _entries(self) -> dict[int, list[object]]:
        found: dict[int, list[object]] = {}
        for section, fields in self.own.relocations.items():
            part = self.own.parts[section]
            inside = _TABLES.get(part.name, 0)
            if part.name == _BUGS and part.size > 4 * len(fields):  # 7.0 added one: the format
                inside = 4 * len(fields) // (part.size - 4 * len(fields))
            size = part.size * inside // len(fields) if fields else 0
            entries: dict[int, list[Filled]] = {}
            for each in fields if inside else ():
                entries.setdefault(each.offset // size, []).append(each)
            for number, inner in sorted(entries.items()):
                inner.sort(key=lambda each: each.offset)
                if len(inner) != inside:
                    raise BadElf(f"entries of {part.name} are not as expected")
                owner, _ = self.listing.meant(section, inner[0])
                row = bytearray(part.content[number * size : (number + 1) * size])
                for each in inner:
                    at, wide = each.offset - number * size, relocatable.SIZES[each.kind]
                    row[at : at + wide] = bytes(wide)
                if part.name == _BUGS:
                    row[_LINE] = bytes(2)
                means = [self._entry_field(section, each, row, owner) for each in inner]
                found.setdefault(owner, []).append((part.name, bytes(row), tuple(means)))
        return found

    def user_names(self, name: str) -> set[str]:
        """The functions and data that name a piece of data."""
        users = self.users.get(self.data[name], set()) - {-1}
        return {self.own.symbols[index].name for index in users}

    def _entry_field(
        self, section: int, each: Filled, row: bytes | bytearray, owner: int
    ) -> object:
        index, offset = self.listing.meant(section, each)
        symbol = self.own.symbols[index]
        if not symbol.is_defined or self.part(index) != _REPLACEMENT:
            return self.meaning(section, each, owner)
        begin = symbol.value + offset
        end = begin + row[-1]
        content = bytearray(self.own.parts[symbol.section].content[begin:end])
        fields = []
        for one in self.own.relocations.get(symbol.section, ()):
            if begin <= one.offset < end:
                at = one.offset - begin
                content[at : at + 4] = bytes(4)
                fields.append((at, self.meaning(symbol.section, one, owner)))
        return bytes(content), tuple(fields)

    def entry(self, index: int) -> Entry | None:
        """How a function begins; None for one that has no place for a jump."""
        content = self.own.content(index)
        marked = content.startswith(_ENDBR)
        at = len(_ENDBR) if marked else 0
        for each in self.own.fields(index):
            if each.offset == at + 1 and self.own.symbols[each.symbol].name == _TRACED:
                return Entry(marked, at + _JUMP_BYTES) if content[at] == _CALL else None
        if not marked or len(content) < _JUMP_BYTES:
            return None
        branches = (self.listing.branch(index, row) for row in self.listing.rows(index))
        back = (found[1] for found in branches if found and found[1])
        within = any(to == index and 0 < offset < _JUMP_BYTES for to, offset in back)
        return None if within else Entry(marked, at, is_traced=False)

    @cached_property
    def users(self) -> dict[int, set[int]]:
        """Functions and data -> the ones that name them; -1 for others, such as tables."""
        found: dict[int, set[int]] = {}
        for section, fields in self.own.relocations.items():
            part = self.own.parts[section]
            if says_where(part.name) or not part.flags & relocatable.ALLOCATED:
                continue
            for each in fields:
                index, _ = self.listing.meant(section, each)
                symbol = self.own.symbols[index]
                if symbol.is_defined and symbol.kind in (DATA, FUNCTION):
                    user = self.own.holder(section, each.offset)
                    found.setdefault(index, set()).add(-1 if user is None else user)
        for user in functions_of(self.own):
            for row in self.listing.rows(user):
                branch = self.listing.branch(user, row)
                if branch and branch[1]:
                    found.setdefault(branch[1][0], set()).add(user)
        return found


def says_where(section: str) -> bool:
    """True for a section that only says where code of its object is."""
    return section in _TABLES or section.startswith(_MERE)


_MERE = (
    "__mcount_loc", "__patchable_function_entries", "runtime_", ".static_call_sites", _REPLACEMENT,
    ".retpoline_sites", ".return_sites", ".call_sites", ".ibt_endbr_seal", ".orc_", _TEST,
    ".discard", ".debug",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What a patch changes in one object.

    replaced: functions of the patched object that take the place of the image's, and kept: these,
    the new ones and cold halves, as indices of symbols.  same: functions and data that are in both,
    patched -> unpatched.  gone: names of functions that are no more.  refused: sentences, why it
    cannot be transplanted.  left: names of changed functions that stay the image's.
    """

    replaced: tuple[int, ...]
    kept: frozenset[int]
    same: Mapping[int, int]
    gone: tuple[str, ...]
    refused: tuple[str, ...]
    left: frozenset[str] = frozenset()


def difference(
    old: Normals, new: Normals, *, one_source: bool = False, stay: Collection[str] = ()
) -> Changes:
    """Compare an object as it is with the patched one.

    one_source: both are of the same source, compiled in two ways, so that each function may stay
    the image's: those that ran at boot, those that nothing can lead to, and those of `stay`.
    """
    others = changed(old, new)
    replaced = {index for name, index in new.functions.items() if name in others}
    untraced = set(_widened(old, new, replaced))
    refused, left = list[str](), frozenset[str]()
    if one_source:
        kept_back = {_whole(name) for name in stay}
        left = _left(old, new, replaced, untraced | kept_back)
        replaced = {at for at in replaced if _whole(new.own.symbols[at].name) not in left}
        left -= kept_back - others - untraced
    else:
        refused += (
            f"{name}() is not traced, so that nothing can lead from it to the changed one"
            for name in sorted(untraced)
        )
    kept = frozenset(replaced)
    same = {
        index: old.functions[name] for name, index in new.functions.items() if index not in kept
    }
    lost = _unclear(old, new)
    refused += (f"which static variable {name} is which is not known" for name in sorted(lost))
    for name in old.data.keys() & new.data.keys():
        if name.partition("#")[0] not in lost:
            same[new.data[name]] = old.data[name]
    refused += _data(old, new, same)
    refused += () if one_source else _boot(old, new)
    return Changes(
        replaced=tuple(at for at in new.functions.values() if at in kept and _leads(old, new, at)),
        kept=kept,
        same=same,
        gone=tuple(sorted(old.functions.keys() - new.functions.keys())),
        refused=tuple(refused),
        left=left,
    )


def changed(old: Normals, new: Normals) -> set[str]:
    """The functions that are not the same in two objects, each with its cold half."""
    both = old.functions.keys() & new.functions.keys()
    every = old.functions.keys() | new.functions.keys()
    equal = {n for n in both if old.normal(old.functions[n]) == new.normal(new.functions[n])}
    whole = {_whole(name) for name in every - equal}
    return {name for name in every if _whole(name) in whole}


def _leads(old: Normals, new: Normals, index: int) -> bool:
    """True when a jump can lead from the image's function to the changed one."""
    name = new.own.symbols[index].name
    if name.endswith(COLD) or name not in old.functions:
        return False
    before, after = old.entry(old.functions[name]), new.entry(index)
    return bool(before and after and before.is_traced == after.is_traced)


def _left(
    old: Normals, new: Normals, changed: Collection[int], untraced: Collection[str]
) -> frozenset[str]:
    """Names of changed functions that the image goes on to execute, since nothing can lead from
    them or from their callers to the changed ones.
    """
    within = {at for at in changed if not _leads(old, new, at)}
    left, before = set(untraced), -1
    while before != len(left):
        before = len(left)
        for index in within:
            name = _whole(new.own.symbols[index].name)
            users = (new.own.symbols[user].name for user in new.users.get(index, ()) if user >= 0)
            if name in old.functions and not left.isdisjoint(map(_whole, users)):
                left.add(name)
    return frozenset(left)


def _whole(name: str) -> str:
    """The function that a cold half is of."""
    return name.removesuffix(COLD)


def _widened(old: Normals, new: Normals, changed: set[int]) -> Iterable[str]:
    """Add the callers of changed functions that cannot be jumped out of; names of those that have
    others.
    """
    left = list(changed)
    while left:
        index = left.pop()
        name = new.own.symbols[index].name
        if name.endswith(COLD) or name not in old.functions:
            continue
        if _leads(old, new, index):
            continue
        users = new.users.get(index, set()) - {index}
        code = all(user >= 0 and new.own.symbols[user].kind == FUNCTION for user in users)
        if new.own.symbols[index].binding != relocatable.LOCAL or not code:
            yield name
            continue
        for user in users - changed:
            whole = _whole(new.own.symbols[user].name)
            more = {new.functions[n] for n in (whole, whole + COLD) if n in new.functions}
            left += more - changed
            changed |= more


def _unclear(old: Normals, new: Normals) -> set[str]:
    """Numbered names of which it is not known which is which: others use them, or more."""
    mine, theirs = old.bases(), new.bases()
    found = {name for name in mine.keys() & theirs.keys() if mine[name] != theirs[name]}
    for name in old.data.keys() & new.data.keys():
        base, numbered, _ = name.partition("#")
        if numbered and mine[base] > 1 and old.user_names(name) != new.user_names(name):
            found.add(base)
    return found


def _data(old: Normals, new: Normals, same: Mapping[int, int]) -> Iterable[str]:
    for index, before in same.items():
        if new.own.symbols[index].kind != DATA or _PLACES.fullmatch(new.part(index)):
            continue
        if new.normal(index) != old.normal(before):
            yield f"the data {new.own.symbols[index].name} is another one from the begin"


def _boot(old: Normals, new: Normals) -> Iterable[str]:
    """Functions that only run while the kernel boots."""
    mine, theirs = (
        {one.own.symbols[i].name: i for i in functions_of(one.own, boot=True)} for one in (old, new)
    )
    for name in sorted(mine.keys() | theirs.keys()):
        both = name in mine and name in theirs
        if not both or old.normal(mine[name]) != new.normal(theirs[name]):
            yield f"{name}() runs while the kernel boots"
    lists = (
        sorted(
            (part.name, len(part.content)) for part in one.own.parts if _AT_BOOT.match(part.name)
        )
        for one in (old, new)
    )
    if next(lists) != next(lists):
        yield "what the kernel calls while it boots (initcalls, parameters) is another list"
