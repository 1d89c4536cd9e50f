# SPDX-License-Identifier: GPL-2.0-or-later
"""From addresses of a kernel to source lines and the functions inlined there: GNU addr2line over
the DWARF of an ELF file, many addresses at once, read strictly."""

from __future__ import annotations

import posixpath
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from kdelta import process, toolchains
from kdelta.arch import Arch
from kdelta.errors import InfraError
from kdelta.printable import printable

_ADDR2LINE_S = 300.0
_MOST_BYTES = 1 << 30  # of a file
_DEEPEST = 64  # functions inlined into each other
_LONGEST = 200  # characters of a name
_ADDRESS = re.compile(r"0x([0-9a-f]{16})")
_PLACE = re.compile(r"(.*):(\d{1,9}|\?)(?: \(discriminator \d+\))?")
# Where a kernel's source begins in a path that its builder had.
_ROOT = re.compile(
    r"^.*?(?<![^/])(?=(?:arch|block|certs|crypto|drivers|fs|include|init|io_uring|ipc|kernel|lib|mm"
    r"|net|rust|security|sound|usr|virt)/)"
)


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the source, in the function that it was written in; "" and 0: not known.

    file: from the source's root: "mm/mprotect.c".
    """

    file: str
    line: int
    function: str


Chain = tuple[SourceLine, ...]
"""An address's line, then where that function was inlined, and so on to the one that was called."""


def chains(path: Path, addresses: Iterable[int], architecture: Arch) -> dict[int, Chain]:
    """The lines of addresses by the DWARF of the ELF file that they are of.

    What it does not know is left out.  Raises InfraError when it cannot be read.
    """
    wanted = sorted(set(addresses))
    if not wanted:
        return {}
    if not path.is_file() or path.stat().st_size > _MOST_BYTES:
        raise InfraError("its line tables are gone, or too large", place=str(path))
    with tempfile.NamedTemporaryFile(prefix="kdelta-lines-") as asked:
        asked.write("".join(f"{address:#x}\n" for address in wanted).encode())
        asked.seek(0)
        argv = [toolchains.binutils("addr2line", architecture), "-afi", "-e", str(path)]
        done = process.run(argv, timeout=_ADDR2LINE_S, env={"LC_ALL": "C"}, stdin=asked)
    return parse(done.stdout, wanted)


def parse(text: str, wanted: list[int]) -> dict[int, Chain]:
    """Read what addr2line prints of ascending addresses.  Raises InfraError at any other line."""
    found: dict[int, Chain] = {}
    lines = iter(text.removesuffix("\n").split("\n"))
    line = next(lines, "")
    for address in wanted:
        head = _ADDRESS.fullmatch(line)
        if head is None or int(head[1], 16) != address:
            raise _strange(line)
        chain: list[SourceLine] = []
        while (line := next(lines, "")) and not _ADDRESS.fullmatch(line):
            place = next(lines, "")
            told = _PLACE.fullmatch(place)
            if told is None or len(chain) == _DEEPEST:
                raise _strange(place)
            chain.append(_line(told[1], told[2], line))
        if chain and chain[0].line:
            found[address] = tuple(chain)
    if line:
        raise _strange(line)
    return found


@lru_cache(maxsize=1 << 18)  # each line of the source is one object, however often it is told
def _line(path: str, number: str, function: str) -> SourceLine:
    return SourceLine(_file(path), 0 if number == "?" else int(number), _function(function))


@lru_cache(maxsize=1 << 16)
def _file(path: str) -> str:
    if path == "??":
        return ""
    return printable(_ROOT.sub("", posixpath.normpath(path)), _LONGEST)


def _function(name: str) -> str:
    return "" if name == "??" else printable(name, _LONGEST)


def _strange(line: str) -> InfraError:
    return InfraError(f"addr2line says what is not understood: {line[:80]!r}")
