# SPDX-License-Identifier: GPL-2.0-or-later
"""GNU objdump over pieces of code: many at once, read strictly; what a function executed."""

from __future__ import annotations

import itertools
import re
import struct
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from kdelta import process
from kdelta.arch import Arch
from kdelta.errors import InfraError, SpecError
from kdelta.printable import printable

MAX_BYTES = 1 << 20  # of one piece
MOST_PIECES = 4096  # of one call
_MAX_LINE = 500
_OBJDUMP_S = 300.0
_MACHINE = {"amd64": 62, "arm64": 183, "riscv64": 243}
_ROW = re.compile(r"\s*([0-9a-f]+):\t(\S.*)")
_SECTION = re.compile(r"Disassembly of section \.f(\d{1,6}):")
_HEAD = re.compile(r"\s*|.*:\s+file format elf64-\S+|[0-9a-f]+ <\.f\d+>:")
# "call ffff8000 <.f3+0x10>": the sections' names mean nothing.
_PLACE = re.compile(r"(?<=[ ,])([0-9a-f]+) <[^<>]{1,100}>$")
_COMMENT = re.compile(r"\s+(?:#|//)\s+(?:(?:0x)?([0-9a-f]+)(?: <[^<>]{1,100}>)?$)?.*$")
_ELF_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
_PROGBITS, _STRTAB = 1, 3
_EXECUTABLE = 6  # SHF_ALLOC, SHF_EXECINSTR
_ADDRESS = re.compile(r"\b(?:0x)?([0-9a-f]{12,16})\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Code and the address at which it lies."""

    start: int
    code: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One instruction as objdump says it, one blank between words, comment apart.

    offset: from the piece's start; address: what the comment resolves to, if anything.
    """

    offset: int
    size: int
    text: str
    address: int | None


def rows(pieces: Sequence[Piece], architecture: Arch) -> tuple[tuple[Row, ...], ...]:
    """The instructions of each piece.  Raises InfraError; SpecError: it is empty or too large."""
    for piece in pieces:
        if not 0 < len(piece.code) <= MAX_BYTES:
            raise SpecError(f"{len(piece.code)} bytes of code are none, or too many to look at")
    found: list[tuple[Row, ...]] = []
    for first in range(0, len(pieces), MOST_PIECES):
        part = pieces[first : first + MOST_PIECES]
        found += parse(_run(part, architecture), part)
    return tuple(found)


def parse(text: str, pieces: Sequence[Piece]) -> list[tuple[Row, ...]]:
    """Read what objdump prints of pieces.  Raises InfraError at any other line."""
    lines: list[list[tuple[int, str, int | None]]] = [[] for _ in pieces]
    current: int | None = None
    for line in text.splitlines():
        head = _SECTION.fullmatch(line)
        if head is not None and int(head[1]) < len(pieces):
            current = int(head[1])
            continue
        row = _ROW.fullmatch(line[:_MAX_LINE])
        if row is None or current is None:
            if head is None and _HEAD.fullmatch(line[:_MAX_LINE]):
                continue
            raise InfraError(f"objdump says what is not understood: {line[:80]!r}")
        words = " ".join(row[2].split())
        comment = _COMMENT.search(words)
        address = int(comment[1], 16) if comment and comment[1] else None
        words = _PLACE.sub(r"0x\1", _COMMENT.sub("", words))
        lines[current].append((int(row[1], 16) - pieces[current].start, words, address))
    return [_whole(found, piece) for found, piece in zip(lines, pieces, strict=True)]


def _whole(found: list[tuple[int, str, int | None]], piece: Piece) -> tuple[Row, ...]:
    offsets = [row[0] for row in found]
    ascending = all(a < b for a, b in itertools.pairwise([*offsets, len(piece.code)]))
    if not found or offsets[0] != 0 or not ascending:
        raise InfraError("objdump does not list all instructions")
    ends = [*offsets[1:], len(piece.code)]
    return tuple(
        Row(offset=offset, size=end - offset, text=words, address=address)
        for (offset, words, address), end in zip(found, ends, strict=True)
    )


def _run(pieces: Sequence[Piece], architecture: Arch) -> str:
    from kdelta import toolchains  # needs the archive; what shows stored results does without

    if architecture.debian not in _MACHINE:
        raise SpecError(f"code of {architecture.debian} cannot be disassembled here")
    with tempfile.NamedTemporaryFile(prefix="kdelta-code-") as file:
        file.write(_elf(pieces, architecture))
        file.flush()
        program = toolchains.binutils("objdump", architecture)
        argv = [program, "-d", "-z", "-w", "--no-show-raw-insn", file.name]
        return process.run(argv, timeout=_OBJDUMP_S, env={"LC_ALL": "C"}).stdout


def _elf(pieces: Sequence[Piece], architecture: Arch) -> bytes:
    """An ELF file with a section .fN for each piece, at its address."""
    names = [b"", *(b".f%d" % number for number in range(len(pieces))), b".shstrtab"]
    table = b"\0".join(names) + b"\0"
    at = list(itertools.accumulate((len(name) + 1 for name in names), initial=0))
    body, headers = bytearray(), [_SECTION_HEADER.pack(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)]
    sections = [(_PROGBITS, _EXECUTABLE, piece.start, piece.code) for piece in pieces]
    for number, (kind, flags, start, code) in enumerate([*sections, (_STRTAB, 0, 0, table)], 1):
        place = kind, flags, start, _ELF_HEADER.size + len(body), len(code)
        headers.append(_SECTION_HEADER.pack(at[number], *place, 0, 0, 1, 0))
        body += code
    head = _ELF_HEADER.pack(
        b"\x7fELF\x02\x01\x01".ljust(16, b"\0"), 2, _MACHINE[architecture.debian], 1, 0, 0,
        _ELF_HEADER.size + len(body), 0, _ELF_HEADER.size, 0, 0, _SECTION_HEADER.size,
        len(headers), len(headers) - 1,
    )  # fmt: skip
    return head + bytes(body) + b"".join(headers)


@dataclass(frozen=True, slots=True)
class ExecutedInsn:
    """An instruction that ran.  offset: from the function's begin; count: per window."""

    offset: int
    size: int
    count: int
    text: str


def executed(
    instructions: Iterable[tuple[int, bytes, int]],
    start: int,
    end: int,
    architecture: Arch,
    names: Mapping[int, str] = MappingProxyType({}),
) -> tuple[ExecutedInsn, ...]:
    """Those of a function, by address.

    instructions: (address, its bytes, how often) of all that ran.  Addresses within the function
    are told from its begin, others by the name that `names` has for them.  Raises InfraError
    without an objdump for the architecture.
    """
    counts: Counter[int] = Counter()
    codes: dict[int, bytes] = {}
    for address, code, count in instructions:
        if start <= address < end and code:
            codes[address] = code
            counts[address] += count
    if not counts:
        return ()

    def near(seen: re.Match[str]) -> str:
        address = int(seen[1], 16)
        if start <= address < end:
            return f"+{address - start:#x}"
        return printable(names.get(address, f"{address:#x}"))

    pieces = [Piece(start=address, code=code) for address, code in sorted(codes.items())]
    found = []
    for piece, told in zip(pieces, rows(pieces, architecture), strict=True):
        offset, text = piece.start - start, _ADDRESS.sub(near, told[0].text)
        found.append(ExecutedInsn(offset, len(piece.code), counts[piece.start], text))
    return tuple(found)
