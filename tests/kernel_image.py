# SPDX-License-Identifier: GPL-2.0-or-later
"""A kernel image made by hand: an ELF file with code, strings and its own table of symbols.

The table is laid out as scripts/kallsyms.c of the kernel does it, written from that description
and not from the reader that is tested with it.
"""

from __future__ import annotations

import functools
import gzip
import struct
from collections.abc import Sequence

BASE = 0xFFFFFFFF81000000
_LONG = 0x80

Symbol = tuple[int, str, str]  # address, kind, name


@functools.cache
def tokens() -> tuple[bytes, ...]:
    """A token for every printable character, "t_" and "__" as others are, the rest unused."""
    table = [bytes([code]) if 0x20 < code < 0x7F else b"" for code in range(256)]
    table[1], table[200] = b"__", b"_range"
    return tuple(table)


def _encoded(text: str) -> bytes:
    out = bytearray()
    rest = text.encode()
    while rest:
        for code in (200, 1):
            if rest.startswith(tokens()[code]):
                out.append(code)
                rest = rest[len(tokens()[code]) :]
                break
        else:
            out.append(rest[0])
            rest = rest[1:]
    size = len(out)
    head = bytes([size]) if size < _LONG else bytes([size & 0x7F | _LONG, size >> 7])
    return head + bytes(out)


def _padded(data: bytes, to: int = 8) -> bytes:
    return data + bytes(-len(data) % to)


def table(symbols: Sequence[Symbol], at: int, layout: str) -> bytes:
    """The symbols' table, to lie at the address `at`.

    layout: "base" (offsets after the tokens, Linux 6.4), "place" (each from its own place, by four
    bytes, 7.0), "place4" (the same four bytes further), "percpu" (as "base", positive offsets are
    absolute), "before" (offsets first, 6.1).
    """
    named = _named(symbols, layout)
    index, offset = [], 0
    for token in tokens():
        index.append(offset)
        offset += len(token) + 1
    aligned = 4 if layout.startswith("place") else 8
    tail = _padded(b"".join(token + b"\0" for token in tokens()), aligned)
    tail += _padded(struct.pack("<256H", *index), aligned)
    base = struct.pack("<Q", BASE)
    if layout == "before":
        more = bytes(3 * len(symbols))  # kallsyms_seqs_of_names
        return _padded(_numbers(symbols, 0, layout)) + base + named + _padded(more) + tail
    numbers = _padded(_numbers(symbols, at + len(named) + len(tail), layout))
    return named + tail + numbers + (b"" if layout.startswith("place") else base)


def _named(symbols: Sequence[Symbol], layout: str) -> bytes:
    """Count, names and markers; the tokens follow."""
    names, marks = bytearray(), []
    for number, (_, kind, name) in enumerate(symbols):
        if number % 256 == 0:
            marks.append(len(names))
        names += _encoded(kind + name)
    count = _padded(struct.pack("<I", len(symbols)))
    markers = _padded(struct.pack(f"<{len(marks)}I", *marks))
    return count + _padded(bytes(names)) + markers + bytes(4 if layout == "place4" else 0)


def _numbers(symbols: Sequence[Symbol], place: int, layout: str) -> bytes:
    words = []
    for number, (address, _, _) in enumerate(symbols):
        if layout.startswith("place"):
            words.append(address - (place + 4 * number))
        elif layout in ("percpu", "before"):
            words.append(address if address < BASE else BASE - 1 - address)
        else:
            words.append(address - BASE)
    return struct.pack(f"<{len(words)}i", *words)


def kernel(
    parts: Sequence[tuple[str, str, bytes]],
    layout: str = "base",
    more: int = 600,
    astray: int | None = None,
    code: int | None = None,
) -> bytes:
    """An ELF kernel whose segment holds (kind, name, content) one after the other, 16-aligned.

    more: functions that are added, since a kernel has some.  astray: with a symbol for the tokens
    of the table itself, so many bytes from where they are.  code: so many bytes at the beginning
    are a section of code, and the file says so.
    """
    body, symbols = bytearray(), [(BASE, "T", "_text")]
    for kind, name, content in parts:
        body += b"\x90" * (-len(body) % 16)
        if name:
            symbols.append((BASE + len(body), kind, name))
        body += content
    for number in range(more):
        body += b"\x90" * (-len(body) % 16)
        long = "_" + "x" * 150 if number == 7 else ""
        symbols.append((BASE + len(body), "t", f"filler_{number}{long}"))
        body += b"\xc3"
    body += b"\x90" * (-len(body) % 16)
    symbols.append((BASE + len(body), "R", "__end_code"))
    if astray is not None:
        at = BASE + len(body)
        itself = (at, "D", "kallsyms_token_table")
        symbols.append(((at + len(_named([*symbols, itself], layout))) + astray, *itself[1:]))
    body += table(symbols, BASE + len(body), layout) + bytes(64)
    return elf(bytes(body), code)


def elf(body: bytes, code: int | None = None, machine: int = 62) -> bytes:
    """An ELF file of one segment at BASE; with `code`, also of a section of that size there."""
    offset = 0x1000
    names = b"\0.text\0.shstrtab\0"
    at = offset + len(_padded(body))
    tail = b"" if code is None else _sections(offset, code, at, names)
    places = (0, 0, 0) if code is None else (64, 3, 2)  # of the headers: size, how many, names'
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQ", 2, machine, 1, BASE, 64, at + len(_padded(names)) if tail else 0)
    head += struct.pack("<IHHHHHH", 0, 64, 56, 1, *places)
    segment = struct.pack("<IIQQQQQQ", 1, 7, offset, BASE, 0, len(body), len(body), 0x1000)
    whole = (head + segment).ljust(offset, b"\0") + body
    return _padded(whole) + tail if tail else whole


def _sections(offset: int, code: int, at: int, names: bytes) -> bytes:
    """The names of sections, to lie at `at`, and the headers of nothing, the code and the names."""
    headers = bytes(64)
    headers += struct.pack("<IIQQQQIIQQ", 1, 1, 6, BASE, offset, code, 0, 0, 16, 0)
    headers += struct.pack("<IIQQQQIIQQ", 7, 3, 0, 0, at, len(names), 0, 0, 1, 0)
    return _padded(names) + headers


def bzimage(payload: bytes) -> bytes:
    """A bzImage with a payload, as its header says it (Documentation/arch/x86/boot.rst)."""
    setup = bytearray(2 * 512)
    setup[0x1F1] = 1
    setup[0x202:0x206] = b"HdrS"
    struct.pack_into("<II", setup, 0x248, 16, len(payload))
    return bytes(setup) + bytes(16) + payload


def gzipped(content: bytes) -> bytes:
    """As the kernel's build packs it: gzip ends with the size itself."""
    return gzip.compress(content, mtime=0)


def sized(packed: bytes, content: bytes) -> bytes:
    """As the kernel's build packs with all others: the size is appended."""
    return packed + struct.pack("<I", len(content))
