# SPDX-License-Identifier: GPL-2.0-or-later
"""The symbol table that a kernel carries in itself (CONFIG_KALLSYMS), read from its bytes.

The table has no header; it is found by its table of tokens and proved part by part: token_index
must fit the tokens, the markers must fit the lengths of all names, the addresses must ascend (but
for some data that early code maps twice), and where the table names a part of itself that must be
where it is.
What does not fit is not guessed: there is then no table.  Layout: scripts/kallsyms.c of Linux
6.1 to 7.3.
"""

from __future__ import annotations

import itertools
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kdelta.kernels.image import Segment, UnpackedKernel

_TOKENS = 256
_DIGITS = b"".join(b"%d\0" % digit for digit in range(10))
_MARKED = 256  # symbols per marker
_MOST = 2_000_000
_LONGEST_NAME = 1024
_HALF = 1 << 63
_COUNT_BYTES = 8
_BIG = 0x80
_ITSELF = "kallsyms_token_table"


@dataclass(frozen=True, slots=True)
class Table:
    """All symbols by address: starts[i] has kinds[i] ("T", "d" ...) and names[i]; ascending."""

    starts: Sequence[int]
    kinds: tuple[str, ...]
    names: tuple[str, ...]

    def at(self, address: int) -> int:
        """Index of the last symbol that starts at or before an address; -1 before the first."""
        return bisect_right(self.starts, address) - 1

    def within(self, start: int, end: int) -> str:
        """The symbols that begin there, and the one before, as it may reach so far."""
        own = range(max(self.at(start), 0), self.at(end - 1) + 1)
        offsets = {self.names[at]: start - self.starts[at] for at in own}
        return ", ".join(f"{name}+{at}" if at > 0 else name for name, at in offsets.items())


class _Tokens(NamedTuple):
    start: int
    end: int  # after token_index
    texts: tuple[str, ...]


class _Names(NamedTuple):
    start: int  # of the count before them
    texts: tuple[str, ...]


def read(kernel: UnpackedKernel) -> Table | None:
    """The kernel's own table; None when it has none or lays it out in a way not known here."""
    for segment in kernel.segments:
        data = bytes(segment.content)
        for tokens in _tokens(data):
            names = _names(data, tokens, segment.start)
            addresses = _addresses(data, segment, tokens, names, kernel) if names else None
            if names and addresses is not None:
                starts, texts = zip(*sorted(zip(addresses, names.texts, strict=True)), strict=True)
                # Most names are those of other kernels, of which a process keeps several.
                called = tuple(sys.intern(text[1:]) for text in texts)
                return Table(array("Q", starts), tuple(text[:1] for text in texts), called)
    return None


def _tokens(data: bytes) -> Iterator[_Tokens]:
    """Places where ten digits are tokens in a row and an index of 256 tokens fits."""
    at = data.find(_DIGITS)
    while at >= 0:
        forward = data[at : at + 64 * _TOKENS].split(b"\0")[: _TOKENS - ord("0")]
        after = at + sum(len(text) + 1 for text in forward)
        for begin in range(after, after + 64):
            if begin + 2 * _TOKENS > len(data):
                break
            index = struct.unpack_from(f"<{_TOKENS}H", data, begin)
            start = at - index[ord("0")]
            if index[0] == 0 and index[ord("9")] - index[ord("0")] == 18 and start > 0:
                texts = data[start:after].split(b"\0")[:-1]
                begins = itertools.accumulate((len(text) + 1 for text in texts), initial=0)
                if len(texts) == _TOKENS and [*begins][:-1] == [*index]:
                    said = tuple(text.decode("latin-1") for text in texts)
                    yield _Tokens(start, begin + 2 * _TOKENS, said)
                    break
        at = data.find(_DIGITS, at + 1)


def _names(data: bytes, tokens: _Tokens, base: int) -> _Names | None:
    """Names lie before the markers, markers before the tokens; the count is before the names."""
    for padding in range(0, 16, 4):
        end = (tokens.start & ~3) - padding
        markers = _markers(data, end)
        if len(markers) > 1:
            found = _names_before(data, end - 4 * len(markers), markers, tokens)
            if found is not None:
                return found
    return _names_after(data, base, tokens)


def _names_before(data: bytes, end: int, markers: list[int], tokens: _Tokens) -> _Names | None:
    # The last marker says where the last names start, and these take at most some 100 KiB.
    last = end - markers[-1] - _COUNT_BYTES
    for at in range(last & ~3, max(last - _MARKED * _LONGEST_NAME, 0), -4):
        (count,) = struct.unpack_from("<I", data, at)
        if -(-count // _MARKED) != len(markers) or count > _MOST:
            continue
        for start in (at + 8, at + 4):
            run = _decoded(data, start, end, _MARKED + 1, tokens.texts)
            if run is None or run[1] != markers[:2]:
                continue
            run = _decoded(data, start, end, count, tokens.texts)
            if run is not None and run[1] == markers and end - run[2] < 16:
                return _Names(at, run[0])
    return None


def _names_after(data: bytes, base: int, tokens: _Tokens) -> _Names | None:
    """Linux 6.1 to 6.3: something follows the markers; the base of addresses precedes the count."""
    pattern = struct.pack("<Q", base)
    at = data.find(pattern, 0, tokens.start)
    while at >= 0:
        (count, padding) = struct.unpack_from("<II", data, at + 8)
        if padding == 0 and _MARKED < count <= _MOST:
            run = _decoded(data, at + 16, tokens.start, count, tokens.texts)
            if run is not None:
                begin = run[2] + 7 & ~7
                said = struct.unpack_from(f"<{len(run[1])}I", data, begin)
                if list(said) == run[1]:
                    return _Names(at + 8, run[0])
        at = data.find(pattern, at + 8, tokens.start)
    return None


def _markers(data: bytes, end: int) -> list[int]:
    """Words before `end`, descending backwards to the first, which is 0."""
    found: list[int] = []
    for at in range(end - 4, -1, -4):
        (word,) = struct.unpack_from("<I", data, at)
        if found and word >= found[-1]:
            return []
        found.append(word)
        if word == 0:
            return found[::-1]
    return []


def _decoded(
    data: bytes, start: int, end: int, count: int, tokens: tuple[str, ...]
) -> tuple[tuple[str, ...], list[int], int] | None:
    """The texts of `count` names, kind first, where every 256th starts, and where they end."""
    at, texts, marks = start, list[str](), list[int]()
    for number in range(count):
        if number % _MARKED == 0:
            marks.append(at - start)
        if at + 2 > end:
            return None
        length = data[at]
        at += 1
        if length & _BIG:
            length = (length & ~_BIG) | data[at] << 7
            at += 1
        if length == 0 or at + length > end:
            return None
        texts.append("".join([tokens[token] for token in data[at : at + length]]))
        at += length
    return tuple(texts), marks, at


def _addresses(
    data: bytes, segment: Segment, tokens: _Tokens, names: _Names, kernel: UnpackedKernel
) -> tuple[int, ...] | None:
    """Numbers lie after token_index (since Linux 6.4), else with their base before the names.  Each
    counts from its own place since Linux 7.0, and lies by four bytes; until then from the base.
    """
    count = len(names.texts)
    after = tokens.end + 7 & ~7
    before = (names.start & ~7) - 8
    first = before - 4 * count & ~7
    places = [(after, after + 4 * count + 7 & ~7), (first, before), (first - 8, before)]
    for at, base in places:
        if at < 0 or at + 4 * count > len(data):
            continue
        words = struct.unpack_from(f"<{count}i", data, at)
        ways: list[Iterator[int]] = []
        if base + 8 <= len(data):
            (relative,) = struct.unpack_from("<Q", data, base)
            # A kernel that relocates itself may be left to fill it in: the lowest address, then.
            start = relative or segment.start
            if any(part.start <= start < part.end for part in kernel.segments):
                ways.append(start + (word & 0xFFFFFFFF) for word in words)
                # Positive: an offset of per-CPU data; negative: from the base, backwards.
                ways.append(word if word >= 0 else start - 1 - word for word in words)
        if at == after:
            own = tokens.end + 3 & ~3
            words = struct.unpack_from(f"<{count}i", data, own)
            ways.append(segment.start + own + 4 * i + word for i, word in enumerate(words))
        for found in map(tuple, ways):
            if _plausible(found, kernel.segments) and _anchored(found, names, segment, tokens):
                return found
    return None


def _anchored(addresses: tuple[int, ...], names: _Names, segment: Segment, tokens: _Tokens) -> bool:
    """The table's symbol for its own tokens, where it has one (CONFIG_KALLSYMS_ALL), is right."""
    # An address table that is read one entry too late ascends as well.
    found = [a for a, text in zip(addresses, names.texts, strict=True) if text[1:] == _ITSELF]
    return not found or segment.start + tokens.start in found


def _plausible(addresses: tuple[int, ...], segments: tuple[Segment, ...]) -> bool:
    """Ascending but for per-CPU offsets, and nearly all within the image or its bss."""
    high = [address for address in addresses if address >= _HALF]
    falls = sum(a > b for a, b in itertools.pairwise(high))
    if not high or len(high) < len(addresses) // 2 or falls > len(high) // 100:
        return False
    code = [part for part in segments if part.executable and part.start >= _HALF]
    high.sort()
    inside = sum(bisect_left(high, part.end) - bisect_left(high, part.start) for part in code)
    return inside > len(high) // 4
