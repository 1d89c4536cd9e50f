# SPDX-License-Identifier: GPL-2.0-or-later
"""Functions of a compiled object (ELF, relocatable): their code, with relocations as names."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kdelta import arch, elf
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
from kdelta.errors import InfraError, SpecError

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

_MAX_OBJECT = 256 << 20
# Relative to the end of their field, which x86 counts from the next instruction.
_RELATIVE = {"R_X86_64_PC32", "R_X86_64_PLT32", "R_X86_64_GOTPCREL"}
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
    with _opened(path) as known:
        return known.function(function)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[_Object]:
    try:
        if path.stat().st_size > _MAX_OBJECT:
            raise InfraError("the object is too large", place=str(path))
        with path.open("rb") as stream, elf.opened(stream) as file:
            yield _Object(file, path)
    except OSError as error:
        raise InfraError(f"the object cannot be read: {error.strerror}", place=str(path)) from error
    except elf.BadElf as error:
        raise InfraError(f"the object is damaged: {error}", place=str(path)) from error


@dataclass(frozen=True, slots=True)
class _Symbol:
    name: str
    section: int
    start: int
    size: int
    is_function: bool

    @property
    def shown(self) -> str:
        """Its name as listings have it."""
        return self.name if self.is_function else stable(self.name)


class _Object:
    def __init__(self, file: ELFFile, path: Path) -> None:
        found = arch.of_elf(file["e_machine"])
        if found is None or file["e_type"] != "ET_REL" or file.elfclass != 64:
            raise InfraError("it is not an object of a known architecture", place=str(path))
        self._arch = found
        self._elf: Any = file
        self._path = path
        table: Any = file.get_section_by_name(".symtab")
        if table is None:
            raise InfraError("the object has no symbols", place=str(path))
        self._symbols = [_symbol(entry) for entry in table.iter_symbols()]

    def function(self, name: str) -> Compiled:
        known = {s.name: s for s in self._symbols if s.is_function and s.size and s.name}
        symbol = self._choose(known, name)
        cold = known.get(f"{symbol.name}.cold")
        return Compiled(code=self._code(symbol), cold=self._code(cold) if cold else None)

    def _choose(self, known: dict[str, _Symbol], name: str) -> _Symbol:
        if name in known:
            return known[name]
        clones = [s for s in known.values() if _CLONE.sub("", s.name) == name]
        if len(clones) == 1:
            return clones[0]
        if clones:
            cause = f"{name} was made into {', '.join(sorted(s.name for s in clones))}"
            raise SpecError(cause, place=str(self._path), action="name one of these")
        cause = f"there is no function {name}"
        why = "it may be inlined into its callers, or configured out"
        raise SpecError(f"{cause}: {why}", place=str(self._path))

    def _code(self, symbol: _Symbol) -> Code:
        section = self._elf.get_section(symbol.section)
        content: bytes = section.data()[symbol.start : symbol.start + symbol.size]
        if len(content) != symbol.size or symbol.size > MAX_BYTES:
            raise InfraError(f"the object is damaged: {symbol.name}", place=str(self._path))
        function = Function(
            name=symbol.name,
            code=content,
            start=symbol.start,
            names=partial(self._neighbour, symbol.section),
            relocations={r.offset: r for r in self._relocations(symbol)},
            size=symbol.size,
        )
        return disassemble(function, self._arch)

    def _relocations(self, symbol: _Symbol) -> Iterator[Relocation]:
        for entry, kind in self._entries(self._elf.get_section(symbol.section).name):
            at = entry["r_offset"] - symbol.start
            if not 0 <= at < symbol.size:
                continue
            target, relative = self._symbols[entry["r_info_sym"]], kind in _RELATIVE
            addend = entry["r_addend"] + _FIELD_BYTES * relative
            name, inside = partial(self._name, target, addend), target.start + addend - symbol.start
            own = target.section == symbol.section and 0 <= inside < symbol.size
            before = name if relative else None
            yield Relocation(offset=at, name=name(), inside=inside if own else None, before=before)

    def _entries(self, section_name: str) -> Iterator[tuple[Any, str]]:
        from elftools.elf.enums import ENUM_RELOC_TYPE_AARCH64, ENUM_RELOC_TYPE_x64

        kinds = ENUM_RELOC_TYPE_x64 if self._arch.debian == "amd64" else ENUM_RELOC_TYPE_AARCH64
        by_number = {number: kind for kind, number in kinds.items() if isinstance(number, int)}
        section = self._elf.get_section_by_name(f".rela{section_name}")
        if section is not None:
            for entry in section.iter_relocations():
                yield entry, by_number.get(entry["r_info_type"], "")

    def _tested(self, place: int, at: int, end: int) -> str:
        """What a field of a test of a feature names, that lies at a place of its section."""
        for entry, kind in self._entries(FEATURE_SECTION):
            if entry["r_offset"] == place + at and kind in _RELATIVE:
                return self._name(self._symbols[entry["r_info_sym"]], entry["r_addend"] + end - at)
        return ""

    def _name(self, target: _Symbol, addend: int, left: int = 0) -> str:
        """NAME, NAME+0x8, or the text itself of a string constant; left: added to the addend."""
        addend += left
        if target.name and target.size == 0 and target.section == 0:
            return _plus(target.name, addend)  # of another object
        section = self._elf.get_section(target.section) if target.section else None
        place = target.start + addend
        if section is not None and _STRINGS.fullmatch(section.name):
            return quoted(section.data(), place)
        if target.name and not target.name.startswith("."):
            return _plus(target.shown, addend)
        if section is not None and section.name == FEATURE_SECTION:
            content = section.data()[place : place + FEATURE_BYTES]
            if test := feature_test(content, lambda at, end, _: self._tested(place, at, end)):
                return test
        near = self._neighbour(target.section, place)
        return near or _plus(section.name if section is not None else "[unknown]", place)

    def _neighbour(self, section: int, place: int) -> str:
        for known in self._symbols:
            inside = known.start <= place < known.start + max(known.size, 1)
            if known.section == section and inside and known.name and known.name[0] != ".":
                return _plus(known.shown, place - known.start)
        return ""


def _symbol(entry: Any) -> _Symbol:
    at, is_function = entry["st_shndx"], entry["st_info"]["type"] == "STT_FUNC"
    section = at if isinstance(at, int) else 0
    return _Symbol(entry.name, section, entry["st_value"], entry["st_size"], is_function)


def _plus(name: str, offset: int) -> str:
    if offset == 0:
        return name
    return f"{name}{'+' if offset > 0 else '-'}{abs(offset):#x}"


def quoted(content: bytes, place: int) -> str:
    """The C string at a place, in quotes and bounded."""
    end = content.find(b"\0", place, place + 4 * _SHOWN_STRING)
    text = content[place : end if end >= 0 else place + _SHOWN_STRING]
    return '"' + text.decode("ascii", "backslashreplace").encode("unicode_escape").decode() + '"'
