# SPDX-License-Identifier: GPL-2.0-or-later
"""From addresses of a kernel to source lines and the functions inlined there: GNU addr2line over
the DWARF of an ELF file, many addresses at once, read strictly."""

from __future__ import annotations

import itertools
import posixpath
import re
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from kdelta import elf, process, toolchains
from kdelta.arch import Arch
from kdelta.errors import InfraError
from kdelta.printable import printable

_ADDR2LINE_S = 300.0
_MOST_BYTES = 1 << 30  # of a file
_DEEPEST = 64  # functions inlined into each other
_LONGEST = 200  # characters of a name
_OBJDUMP_S = 300.0
_ADDRESS = re.compile(r"^0x([0-9a-f]{16})\n", re.MULTILINE)
_UNIT = re.compile(r"\s*Compilation Unit @ offset ((?:0x)?[0-9a-f]+):")
_UNIT_NAME = re.compile(r"\s*<[0-9a-f]+>\s+DW_AT_name\s*:(?: \([^)]*\):)? (\S+)\s*")
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


class Unit(NamedTuple):
    """Code that was compiled in one go: its first address, the one behind it, its source."""

    low: int
    high: int
    file: str


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
    before, *rows = _ADDRESS.split(text)
    if before or len(rows) != 2 * len(wanted):
        raise _strange(before.split("\n")[0] if before else f"{len(rows) // 2} addresses")
    found: dict[int, Chain] = {}
    chains: dict[str, Chain] = {}  # neighbours often have the same
    for address, head, body in zip(wanted, rows[::2], rows[1::2], strict=True):
        if int(head, 16) != address:
            raise _strange(f"0x{head}")
        chain = chains.get(body)
        if chain is None:
            chain = chains[body] = _chain(body)
        if chain and chain[0].line:
            found[address] = chain
    return found


def _chain(body: str) -> Chain:
    """What is told of one address: a line with a function and one with its place, and so on."""
    lines = body.removesuffix("\n").split("\n") if body else []
    if len(lines) > 2 * _DEEPEST:
        raise _strange(lines[2 * _DEEPEST])
    chain = []
    for function, place in itertools.zip_longest(lines[::2], lines[1::2], fillvalue=""):
        told = _PLACE.fullmatch(place)
        if told is None:
            raise _strange(place)
        chain.append(_line(told[1], told[2], function))
    return tuple(chain)


def units(path: Path, architecture: Arch) -> list[Unit]:
    """The units that the code of an ELF file was compiled in, by its DWARF, ascending.

    Raises InfraError when it cannot be read.
    """
    argv = [toolchains.binutils("objdump", architecture), "--dwarf=info", "--dwarf-depth=1"]
    done = process.run([*argv, str(path)], timeout=_OBJDUMP_S, env={"LC_ALL": "C"})
    names: dict[int, str] = {}
    offset = -1
    for line in done.stdout.splitlines():
        if begin := _UNIT.fullmatch(line):
            offset = int(begin[1], 0)
        elif name := _UNIT_NAME.fullmatch(line):
            names.setdefault(offset, _file(name[1]))
    try:
        with path.open("rb") as stream:
            ranges = list(elf.ranges_of_units(stream))
    except elf.BadElf as error:
        raise InfraError(f"its line tables are damaged: {error}", place=str(path)) from error
    return sorted(Unit(low, high, names[at]) for low, high, at in ranges if at in names)


@lru_cache(maxsize=1 << 18)  # each line of the source is one object, however often it is told
def _line(path: str, number: str, function: str) -> SourceLine:
    name = "" if function == "??" else printable(function, _LONGEST)
    return SourceLine(_file(path), 0 if number == "?" else int(number), name)


@lru_cache(maxsize=1 << 16)
def _file(path: str) -> str:
    if path == "??":
        return ""
    return printable(_ROOT.sub("", posixpath.normpath(path)), _LONGEST)


def _strange(line: str) -> InfraError:
    return InfraError(f"addr2line says what is not understood: {line[:80]!r}")
