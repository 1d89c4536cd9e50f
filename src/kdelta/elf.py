# SPDX-License-Identifier: GPL-2.0-or-later
"""ELF files and notes, through pyelftools: any garbage in them is one kind of error."""

from __future__ import annotations

import contextlib
import errno
import io
import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

MAGIC = b"\x7fELF"
_NOTE = struct.Struct("<III")
_BUILD_ID = 3  # NT_GNU_BUILD_ID
_BUILD_ID_BYTES = 32
_MOST_SECTIONS = 100_000
_MOST_HEADERS = 1 << 16  # bytes of those of segments, see load_elf_phdrs()


class BadElf(ValueError):  # noqa: N818  callers turn it into an error that says whose fault it is
    """The file is no ELF file, or a damaged one; the text says why."""


@contextlib.contextmanager
def opened(stream: IO[bytes] | mmap.mmap | bytes) -> Iterator[ELFFile]:
    """An ELF file, of which the body reads what it wants.  Raises BadElf, also out of the body."""
    from elftools.common.exceptions import ELFError
    from elftools.construct import ConstructError
    from elftools.elf.elffile import ELFFile

    plain = (ValueError, LookupError, ArithmeticError, AttributeError, TypeError)
    try:
        source: Any = io.BytesIO(stream) if isinstance(stream, bytes) else stream
        yield _bounded(ELFFile(source))
    except BadElf:
        raise
    except (ELFError, ConstructError, OSError, *plain) as error:  # what it raises at garbage
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # of a place beyond a file
            raise
        raise BadElf(f"its ELF structure is damaged: {error}") from error


def _bounded(file: ELFFile) -> ELFFile:
    if file.num_sections() > _MOST_SECTIONS:
        raise BadElf(f"it has more than {_MOST_SECTIONS} sections")
    return file


def section(program: Path | bytes, name: str) -> bytes:
    """What a section has, nothing without one.  Raises BadElf, OSError."""
    with contextlib.ExitStack() as stack:
        stream = program if isinstance(program, bytes) else stack.enter_context(program.open("rb"))
        found = stack.enter_context(opened(stream)).get_section_by_name(name)
        return bytes(found.data()) if found else b""


def end(program: bytes) -> int:
    """The address behind a program in memory, 0 of one that lies anywhere.  Raises BadElf."""
    with opened(program) as file:
        if file["e_type"] != "ET_EXEC":
            return 0
        loaded = (one for one in file.iter_segments() if one["p_type"] == "PT_LOAD")
        return max(int(one["p_vaddr"] + one["p_memsz"]) for one in loaded)


def functions(program: bytes) -> Iterator[tuple[int, int, str]]:
    """(address, size in bytes, name) of every function in its symbol table.  Raises BadElf."""
    with opened(program) as file:
        for symbol in _symbols(file):
            if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_size"]:
                yield symbol["st_value"], symbol["st_size"], str(symbol.name)


def _symbols(file: ELFFile) -> Iterator[Any]:
    from elftools.elf.sections import SymbolTableSection

    table = file.get_section_by_name(".symtab")
    return iter(table.iter_symbols() if isinstance(table, SymbolTableSection) else ())


def parts(made: bytes) -> tuple[dict[str, int], dict[str, str]]:
    """Of an object file the sizes of its sections in bytes, and the types of what it defines for
    other files.  Raises BadElf.
    """
    with opened(made) as file:
        sizes = {section.name: int(section["sh_size"]) for section in file.iter_sections()}
        every = [one for one in _symbols(file) if one["st_shndx"] != "SHN_UNDEF"]
        shown = (one for one in every if one["st_info"]["bind"] != "STB_LOCAL")
        return sizes, {str(one.name): one["st_info"]["type"] for one in shown}


@dataclass(frozen=True, slots=True, kw_only=True)
class Linked:
    """What an ELF file asks the dynamic loader for.

    machine: "EM_X86_64".  interpreter: the loader's path, "" without one.  needed: libraries.
    searched: folders, as the file words them; below: also for the libraries of its libraries.
    """

    machine: str
    interpreter: str
    needed: tuple[str, ...]
    searched: tuple[str, ...]
    below: bool


def linked(path: Path) -> Linked:
    """What a program or a library is linked with.  Raises BadElf, OSError."""
    with path.open("rb") as stream, opened(stream) as file:
        if file["e_type"] not in ("ET_EXEC", "ET_DYN"):
            raise BadElf("it is no program")
        if file["e_phnum"] * file["e_phentsize"] > _MOST_HEADERS:
            raise BadElf("it has more segments than Linux takes")
        parts: list[Any] = [*file.iter_segments()]
        if not any(one["p_type"] == "PT_LOAD" for one in parts):
            raise BadElf("nothing of it is loaded")
        loaders = [one.get_interp_name() for one in parts if one["p_type"] == "PT_INTERP"]
        tags = [tag for one in parts if one["p_type"] == "PT_DYNAMIC" for tag in one.iter_tags()]
        folders = [tag.runpath for tag in tags if tag.entry.d_tag == "DT_RUNPATH"]
        every = folders or [tag.rpath for tag in tags if tag.entry.d_tag == "DT_RPATH"]
        return Linked(
            machine=file["e_machine"],
            interpreter=next(iter(loaders), ""),
            needed=tuple(tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"),
            searched=tuple(folder for text in every for folder in text.split(":")),
            below=not folders,
        )


def build_id(notes: bytes) -> str:
    """The GNU build id among the notes of a 64-bit kernel, in hexadecimal; "" without one.

    Format: elf(5), "Notes (Nhdr)".
    """
    at = 0
    while at + _NOTE.size <= len(notes):
        name_size, size, kind = _NOTE.unpack_from(notes, at)
        name = at + _NOTE.size
        content = name + _aligned(name_size)
        at = content + _aligned(size)
        if (kind, notes[name : name + name_size]) == (_BUILD_ID, b"GNU\0") and at <= len(notes):
            return notes[content : content + min(size, _BUILD_ID_BYTES)].hex()
    return ""


def _aligned(size: int) -> int:
    return (size + 3) // 4 * 4
