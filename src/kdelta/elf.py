# SPDX-License-Identifier: GPL-2.0-or-later
"""ELF files and notes, through pyelftools: any garbage in them is one kind of error."""

from __future__ import annotations

import contextlib
import io
import mmap
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

MAGIC = b"\x7fELF"
_BUILD_ID = "NT_GNU_BUILD_ID"
_BUILD_ID_BYTES = 32


class BadElf(ValueError):  # noqa: N818  callers turn it into an error that says whose fault it is
    """The file is no ELF file, or a damaged one; the text says why."""


@contextlib.contextmanager
def opened(stream: IO[bytes] | mmap.mmap | bytes) -> Iterator[ELFFile]:
    """An ELF file, of which the body reads what it wants.  Raises BadElf, also out of the body."""
    from elftools.elf.elffile import ELFFile

    try:
        source: Any = io.BytesIO(stream) if isinstance(stream, bytes) else stream
        yield ELFFile(source)
    except BadElf:
        raise
    except _faults() as error:
        raise BadElf(f"its ELF structure is damaged: {error}") from error


def _faults() -> tuple[type[Exception], ...]:
    """What pyelftools raises at garbage."""
    from elftools.common.exceptions import ELFError
    from elftools.construct import ConstructError

    return (ELFError, ConstructError, ValueError, LookupError, AttributeError, TypeError)


def functions(program: bytes) -> Iterator[tuple[int, int, str]]:
    """(address, size in bytes, name) of every function in its symbol table.  Raises BadElf."""
    from elftools.elf.sections import SymbolTableSection

    with opened(program) as file:
        table = file.get_section_by_name(".symtab")
        symbols = table.iter_symbols() if isinstance(table, SymbolTableSection) else ()
        for symbol in symbols:
            if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_size"]:
                yield symbol["st_value"], symbol["st_size"], str(symbol.name)


def ranges_of_units(stream: IO[bytes]) -> Iterator[tuple[int, int, int]]:
    """(address, address behind, offset of its unit in .debug_info) of code that DWARF knows.

    Raises BadElf.
    """
    with opened(stream) as file:
        part = file.get_section_by_name(".debug_aranges")
        if part is None:
            return
        from elftools.dwarf.aranges import ARanges
        from elftools.dwarf.structs import DWARFStructs

        structs = DWARFStructs(little_endian=file.little_endian, dwarf_format=32, address_size=8)
        for row in ARanges(io.BytesIO(part.data()), part.data_size, structs).entries:
            yield row.begin_addr, row.begin_addr + row.length, row.info_offset


def build_id(notes: bytes) -> str:
    """The GNU build id among the notes of a 64-bit kernel, in hexadecimal; "" without one."""
    from elftools.elf.notes import iter_notes
    from elftools.elf.structs import ELFStructs

    structs = ELFStructs(little_endian=True, elfclass=64)
    structs.create_basic_structs()
    structs.create_advanced_structs()
    blob: Any = _Blob(io.BytesIO(notes), structs)
    with contextlib.suppress(*_faults()):
        for note in iter_notes(blob, 0, len(notes)):
            if note["n_type"] == _BUILD_ID and note["n_name"] == "GNU":
                return str(note["n_desc"])[: 2 * _BUILD_ID_BYTES]
    return ""


class _Blob:
    """Notes without a file around them, as much of an ELFFile as their reader looks at."""

    elfclass = 64

    def __init__(self, stream: IO[bytes], structs: Any) -> None:
        self.stream = stream
        self.structs = structs
