# SPDX-License-Identifier: GPL-2.0-or-later
"""A patched object made part of a kernel that runs: what did not change is the kernel's own.

The object stays whole, with all tables that the loader of modules needs.  What names data of the
image, or a function of it from afar, names an absolute symbol instead, whose value is the address
in the image.  So nothing has two states; code that is there twice is equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from kdelta.disassembly import relocatable
from kdelta.disassembly.image import Image
from kdelta.disassembly.relocatable import (
    ABSOLUTE,
    ALLOCATED,
    CALL_32,
    DATA,
    FUNCTION,
    LOCAL,
    Filled,
    Symbol,
)
from kdelta.transplant.difference import COLD, Changes, Normals, says_where
from kdelta.transplant.objects import cannot
from kdelta.transplant.proof import Proven, is_of_boot

_NOP_BYTES = 5
_PER_CPU = ".data..percpu"
_CONSTANT = re.compile(r"runtime_(?P<kind>ptr|shift)_(?P<name>\w+)")
_CONSTANT_BYTES = {"ptr": 8, "shift": 1}
# What the loader would act upon: it belongs to the image, where it has been done.
_ACTED_UPON = re.compile(
    r"__param|__modver|__ksymtab\w*|__kcrctab\w*|_ftrace_events|_ftrace_eval_map"
    r"|__tracepoints_ptrs|__bpf_raw_tp_map|_error_injection_whitelist|_kprobe_blacklist"
    r"|__syscalls_metadata|\.printk_index|\.kunit\w*|\.ctors.*|\.init_array.*|\.initcall.*"
    r"|\.con_initcall.*|\.init\.setup|__earlycon_table|___srcu_struct_ptrs|__trace_printk_fmt"
    r"|__tracepoint_str|__obsparm"
)
_LEFT_OUT = {".export_symbol": ".discard.kdelta_exports", ".modinfo": ".discard.kdelta_info"}
# include/asm-generic/vmlinux.lds.h and arch/x86/kernel/vmlinux.lds.S
_ALIASES = {"__ref_stack_chk_guard": "__stack_chk_guard"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Jump:
    """nop, start: addresses in the image; to: name of a symbol of the object, and an offset.

    nop: 0 for a function that is not traced, at whose start the mark is.
    """

    nop: int
    start: int
    to: str
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """where: name of a symbol of the object; value: where the image has the number."""

    where: str
    value: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Grafted:
    """An object to link.  needed: addresses of what it leaves undefined, by name."""

    content: bytes
    jumps: tuple[Jump, ...]
    constants: tuple[Constant, ...]
    needed: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patched:
    """One object: as it is, where that lies in the image, patched, and what is between them."""

    path: str  # mm/mincore.o
    old: Normals
    proven: Proven
    new: Normals
    difference: Changes

    def address(self, index: int, image: Image) -> int | None:
        """Where the image has a function or piece of data of the patched object."""
        before = self.difference.same.get(index)
        if before is None:
            return None
        symbol = self.old.own.symbols[before]
        if symbol.kind == FUNCTION and symbol.name not in self.proven.differing:
            return self.proven.functions.get(before)
        if before in self.proven.data:
            return self.proven.data[before]
        known = image.addresses(symbol.name)
        return next(iter(known)) if len(known) == 1 else None


def shared(patched: Patched, image: Image) -> dict[str, int]:
    """Addresses of what an object defines for others and did not change, by name."""
    found = {}
    for index in patched.difference.same:
        symbol = patched.new.own.symbols[index]
        address = patched.address(index, image)
        if symbol.binding != LOCAL and address is not None:
            found[symbol.name] = address
    return found


class Graft:
    """A patched object as part of an image; number: for names; others: `shared` of all objects."""

    def __init__(
        self, patched: Patched, image: Image, number: int, others: Mapping[str, int]
    ) -> None:
        self.patched, self.image, self.number, self.others = patched, image, number, others
        self.new, self.own = patched.new, patched.new.own
        self.added: dict[tuple[int, int], int] = {}  # section, value -> number of a symbol

    def made(self) -> Grafted:
        """The object to link.  Raises NotTransplantedError."""
        relocations = {
            section: [self._redirected(section, each) for each in fields]
            for section, fields in self.own.relocations.items()
        }
        jumps, constants = tuple(self._jumps()), tuple(self._constants())
        # objtool takes one in code that is not of data for a function.
        added = (Symbol(self._named(*at), at[1], 0, DATA, section=at[0]) for at in self.added)
        changed = relocatable.Relocatable(
            list(self._parts()), [*self.own.symbols, *added], relocations
        )
        return Grafted(
            content=relocatable.written(changed),
            jumps=jumps,
            constants=constants,
            needed=dict(self._needed()),
        )

    def _named(self, section: int, value: int) -> str:
        """The name of the symbol that is added for a place."""
        at = self.added.setdefault((section, value), len(self.added))
        return f"kd_new_{self.number}_{at}"

    def _redirected(self, section: int, each: Filled) -> Filled:
        index, offset = self.new.listing.meant(section, each)
        symbol = self.own.symbols[index]
        address: int | None = None
        if not symbol.is_defined:
            address = self.others.get(symbol.name)
        elif symbol.kind == DATA or (
            symbol.kind == FUNCTION and not offset and not says_where(self.own.parts[section].name)
        ):
            if symbol.name.endswith(COLD) or is_of_boot(self.new.part(index)):
                return each
            address = self.patched.address(index, self.image)
            at_entry = index in self.patched.difference.replaced and each.kind != CALL_32
            if at_entry:  # who compares it with a table's means the image's, where the jump is
                address = self.patched.proven.functions[self.patched.old.functions[symbol.name]]
            flags, both = self.own.parts[symbol.section].flags, ALLOCATED | relocatable.WRITABLE
            lost = address is None and index in self.patched.difference.same
            if lost and symbol.kind == DATA and flags & both == both:  # not to be there twice
                raise cannot(f"where the image has the data {symbol.name} is not known")
        if address is None:
            return each
        at = self.added.setdefault((ABSOLUTE, address), len(self.added))
        behind = self.new.listing.behind(section, each)
        return replace(each, symbol=len(self.own.symbols) + at, addend=offset - behind)

    def _jumps(self) -> Iterator[Jump]:
        for index in self.patched.difference.replaced:
            symbol = self.own.symbols[index]
            before = self.patched.old.functions[symbol.name]
            address = self.patched.proven.functions.get(before)
            if before in self.patched.proven.overridden:
                raise cannot(f"{symbol.name}() is weak, and the image has another one")
            old, new = self.patched.old.entry(before), self.new.entry(index)
            if address is None or old is None or new is None:
                raise cannot(f"where the image has {symbol.name}() is not known")
            alias = self._named(symbol.section, symbol.value)
            if not old.is_traced:
                yield Jump(nop=0, start=address, to=alias, offset=new.after)
                continue
            nop = address + old.after - _NOP_BYTES
            # As many instructions as with the mark that the new one has, or has not.
            skipped = old.has_mark and not new.has_mark
            offset = new.after - (_NOP_BYTES if new.has_mark and not old.has_mark else 0)
            yield Jump(nop=nop, start=address if skipped else nop, to=alias, offset=offset)

    def _constants(self) -> Iterator[Constant]:
        for section, fields in self.own.relocations.items():
            found = _CONSTANT.fullmatch(self.own.parts[section].name)
            for each in fields:
                if found is None:
                    break
                size = _CONSTANT_BYTES[found["kind"]]
                value = self._address(found["name"]) or self._written(found[0], size)
                if value is None:
                    raise cannot(f"the image has no {found['name']}")
                symbol = self.own.symbols[each.symbol]
                alias = self._named(symbol.section, symbol.value + each.addend)
                yield Constant(where=alias, value=value, size=size)

    def _written(self, table: str, size: int) -> int | None:
        """Where the boot writes one into the image's code, which has the object's number there."""
        old, functions = self.patched.old, self.patched.proven.functions
        for section, fields in old.own.relocations.items():
            for each in fields if old.own.parts[section].name == table else ():
                index, at = old.listing.meant(section, each)
                held = old.own.content(index)[at : at + size] if index in functions else b""
                if held and self.image.bytes_at(functions[index] + at, size) == held:
                    return functions[index] + at
        return None

    def _address(self, name: str) -> int | None:
        known = self.image.addresses(_ALIASES.get(name, name), shared=True)
        return next(iter(known)) if len(known) == 1 else None

    def _needed(self) -> Iterator[tuple[str, int]]:
        old = self.patched.old.own
        told = {
            old.symbols[index].name: address
            for index, address in self.patched.proven.data.items()
            if not old.symbols[index].is_defined
        }
        for symbol in self.own.symbols:
            if symbol.section == relocatable.UNDEFINED and symbol.name:
                address = told.get(symbol.name) or self._address(symbol.name)
                if address is not None:
                    yield symbol.name, address

    def _parts(self) -> Iterator[relocatable.Part]:
        """The sections, without what the loader would do again."""
        for section, part in enumerate(self.own.parts):
            name, flags = _LEFT_OUT.get(part.name, part.name), part.flags
            if name.startswith(_PER_CPU):
                own = self.own.held.get(section, [])
                if any(self.patched.address(index, self.image) is None for index in own):
                    name = _PER_CPU  # the one that the loader knows
                else:
                    flags &= ~ALLOCATED
            elif _ACTED_UPON.fullmatch(name):
                flags &= ~ALLOCATED
            yield replace(part, name=name, flags=flags)
