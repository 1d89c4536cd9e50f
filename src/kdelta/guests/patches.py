# SPDX-License-Identifier: GPL-2.0-or-later
"""What kdelta changes in the QEMU that it fetches: the table `patches.toml`, and nothing else."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from pathlib import Path

import msgspec

from kdelta import cache, elf
from kdelta.errors import InfraError


class PatchEdit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change of QEMU's source, in words.  places: of how many of a build's bytes."""

    name: str
    source: str
    why: str
    places: int = 1


class PatchPlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where an edit is in a program; `octets` reads old, new and pattern."""

    offset: int
    old: str
    new: str
    pattern: str


class PatchedBuild(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A program of the archive, with the places of each edit."""

    package: str
    sha256: str
    bytes: tuple[PatchPlace, ...]


class PatchTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole of patches.toml.  turns: of a copy; section: "" is the whole file."""

    mark: str
    edit: tuple[PatchEdit, ...]
    build: tuple[PatchedBuild, ...]
    flags: int = 0
    section: str = ""
    turns: PatchTable | None = None

    def build_of(self, program: Path) -> PatchedBuild | None:
        """The build that a program is; None for one that is not in the table."""
        with contextlib.suppress(elf.BadElf):
            part = elf.section(program, self.section) if self.section else program.read_bytes()
            own = hashlib.sha256(part).hexdigest()
            return next((one for one in self.build if one.sha256 == own), None)
        return None

    def digest(self) -> str:
        """Of what decides a patched program, for cache keys."""
        return cache.digest(self.mark, msgspec.json.encode(self.build))[:8]


def octets(text: str) -> bytes:
    """Bytes of hexadecimal words; 00*9: nine times the word."""
    words = (word.partition("*") for word in text.split())
    return b"".join(bytes.fromhex(word) * int(times or 1) for word, _, times in words)


@functools.cache
def table() -> PatchTable:
    """The table."""
    return msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=PatchTable)


def apply(program: Path, known: PatchTable) -> str:
    """Patch a program of the archive in place; returns the table's mark, "" for an unknown one.

    Raises InfraError for a table that does not fit; then nothing is written.
    """
    build = known.build_of(program)
    if build is None:
        return ""
    content = bytearray(program.read_bytes())
    for place in build.bytes:
        old, new, pattern = map(octets, (place.old, place.new, place.pattern))
        start, end = place.offset, place.offset + len(old)
        there = content.find(pattern)
        inside = there <= start and end <= there + len(pattern)
        if content.count(pattern) != 1 or not inside or content[start:end] != old:
            cause = f"the table of patches does not fit {build.package} at {start:#x}"
            raise InfraError(cause, action="correct src/kdelta/guests/patches.toml")
        content[start:end] = new
    program.write_bytes(content)
    return known.mark
