# SPDX-License-Identifier: GPL-2.0-or-later
"""Functions of a compiled object (ELF, relocatable): their code, with relocations as names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kdelta import arch, elf
from kdelta.disassembly import relocatable
from kdelta.disassembly.code import (
    FEATURE_BYTES,
    FEATURE_SECTION,
    MAX_BYTES,
    Code,
    Function,
    Relocation,
    disassemble,
    feature_test,
    stable,
)
from kdelta.disassembly.relocatable import FUNCTION, Filled, Relocatable, Symbol
from kdelta.errors import InfraError, SpecError

_MAX_OBJECT = 256 << 20
# Relative to the end of their field, which x86 counts from the next instruction.
_RELATIVE = (relocatable.RELATIVE_32, relocatable.CALL_32, relocatable.TABLE_32)
_FIELD_BYTES = 4
_CLONE = re.compile(r"\.(?:isra|constprop|part|llvm)\.\d+|\.(?:isra|constprop|part|lto_priv)")
_STRINGS = re.compile(r"\.rodata.*\.str\d.*")
_SHOWN_STRING = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A function in an object, or its only clone, and the part that was put out of the way."""

    code: Code
    cold: Code | None


def read(path: Path, function: str) -> Compiled:
    """A function of an object.  Raises SpecError without it, InfraError for no object."""
    try:
        if path.stat().st_size > _MAX_OBJECT:
            raise InfraError("the object is too large", place=str(path))
        return _Object(relocatable.read(path.read_bytes()), path).function(function)
    except OSError as error:
        raise InfraError(f"the object cannot be read: {error.strerror}", place=str(path)) from error
    except elf.BadElf as error:
        raise InfraError(f"the object cannot be read: {error}", place=str(path)) from error


@dataclass(frozen=True, slots=True)
class _Object:
    own: Relocatable
    path: Path

    def function(self, name: str) -> Compiled:
        symbols = self.own.symbols
        known = {s.name: s for s in symbols if s.kind == FUNCTION and s.is_defined and s.size}
        symbol = self._choose(known, name)
        cold = known.get(f"{symbol.name}.cold")
        return Compiled(code=self._code(symbol), cold=self._code(cold) if cold else None)

    def _choose(self, known: dict[str, Symbol], name: str) -> Symbol:
        if name in known:
            return known[name]
        clones = [s for s in known.values() if _CLONE.sub("", s.name) == name]
        if len(clones) == 1:
            return clones[0]
        if clones:
            cause = f"{name} was made into {', '.join(sorted(s.name for s in clones))}"
            raise SpecError(cause, place=str(self.path), action="name one of these")
        cause = f"there is no function {name}"
        why = "it may be inlined into its callers, or configured out"
        raise SpecError(f"{cause}: {why}", place=str(self.path))

    def _code(self, symbol: Symbol) -> Code:
        section = self.own.parts[symbol.section].content
        content = section[symbol.value : symbol.value + symbol.size]
        if len(content) != symbol.size or symbol.size > MAX_BYTES:
            raise InfraError(f"the object is damaged: {symbol.name}", place=str(self.path))
        function = Function(
            name=symbol.name,
            code=content,
            start=symbol.value,
            names=partial(self._neighbour, symbol.section),
            relocations={r.offset: r for r in self._relocations(symbol)},
            size=symbol.size,
        )
        return disassemble(function, arch.of("amd64"))

    def _relocations(self, symbol: Symbol) -> Iterator[Relocation]:
        for each in self.own.relocations.get(symbol.section, ()):
            at = each.offset - symbol.value
            if not 0 <= at < symbol.size:
                continue
            target, relative = self.own.symbols[each.symbol], each.kind in _RELATIVE
            addend = each.addend + _FIELD_BYTES * relative
            name, inside = partial(self._name, target, addend), target.value + addend - symbol.value
            own = target.section == symbol.section and 0 <= inside < symbol.size
            before = name if relative else None
            yield Relocation(offset=at, name=name(), inside=inside if own else None, before=before)

    def _tested(self, fields: list[Filled], place: int, at: int, end: int) -> str:
        """What a field of a test of a feature names, that lies at a place of its section."""
        for each in fields:
            if each.offset == place + at and each.kind in _RELATIVE:
                return self._name(self.own.symbols[each.symbol], each.addend + end - at)
        return ""

    def _name(self, target: Symbol, addend: int, left: int = 0) -> str:
        """NAME, NAME+0x8, or the text itself of a string constant; left: added to the addend."""
        addend += left
        if not target.is_defined:  # of another object
            return _plus(target.name or "[unknown]", addend + target.value)
        section, place = self.own.parts[target.section], target.value + addend
        if _STRINGS.fullmatch(section.name):
            return quoted(section.content, place)
        if target.name and not target.name.startswith("."):
            shown = target.name if target.kind == FUNCTION else stable(target.name)
            return _plus(shown, addend)
        if section.name == FEATURE_SECTION:
            content = section.content[place : place + FEATURE_BYTES]
            fields = self.own.relocations.get(target.section, [])
            test = feature_test(content, lambda at, end, _: self._tested(fields, place, at, end))
            if test:
                return test
        return self._neighbour(target.section, place) or _plus(section.name, place)

    def _neighbour(self, section: int, place: int) -> str:
        """What lies at a place of a section by the symbols, or ""."""
        for known in self.own.symbols:
            inside = known.value <= place < known.value + max(known.size, 1)
            if known.section == section and inside and known.name and known.name[0] != ".":
                shown = known.name if known.kind == FUNCTION else stable(known.name)
                return _plus(shown, place - known.value)
        return ""


def _plus(name: str, offset: int) -> str:
    if offset == 0:
        return name
    return f"{name}{'+' if offset > 0 else '-'}{abs(offset):#x}"


def quoted(content: bytes, place: int) -> str:
    """The C string at a place, in quotes and bounded."""
    end = content.find(b"\0", place, place + 4 * _SHOWN_STRING)
    text = content[place : end if end >= 0 else place + _SHOWN_STRING]
    return '"' + text.decode("ascii", "backslashreplace").encode("unicode_escape").decode() + '"'
