# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel inside an image, unpacked: what of it lies at which address.

A bzImage's payload is an ELF file (xz, lz4, zstd, gzip or bzip2), whose segments say their
addresses.  arm64's Image lies as a whole at the address that its kernel is linked for.
"""

from __future__ import annotations

import bz2
import lzma
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kdelta import cache, process
from kdelta.errors import InfraError, SpecError
from kdelta.files import sha256_of

_LIMIT_BYTES = 512 << 20  # unpacked
_UNPACK_S = 120.0
_PT_LOAD = 1
_SEGMENT = struct.Struct("<IIQQQQQQ")
_MAX_SEGMENTS = 64
_MACHINES = {62: "amd64", 183: "arm64"}
_ELF = b"\x7fELF\x02\x01"
_ARM64_LINKED = 0xFFFF800080000000  # KIMAGE_VADDR with 48 or 52 bits, since Linux 6.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Bytes of a kernel, and the address that they are linked for."""

    start: int
    content: memoryview
    executable: bool

    @property
    def end(self) -> int:
        """The address after its last byte."""
        return self.start + len(self.content)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpackedKernel:
    """An unpacked kernel.  arch: Debian's name."""

    arch: str
    segments: tuple[Segment, ...]

    def read(self, start: int, size: int) -> bytes:
        """Bytes at an address; fewer, or none, where the image has none."""
        for segment in self.segments:
            if segment.start <= start < segment.end:
                at = start - segment.start
                return bytes(segment.content[at : at + size])
        return b""


def unpacked(image: Path) -> UnpackedKernel:
    """The kernel in a bzImage, Image (plain, gzip, zboot) or vmlinux.

    Unpacked once and kept in the cache.  Raises SpecError when there is none to be found,
    InfraError when a tool that unpacks it is missing.
    """
    try:
        with image.open("rb") as stream:
            head = stream.read(0x1000)
        if head.startswith(_ELF):
            return _elf(image.read_bytes(), image)
        key = sha256_of(image)

        def make(folder: Path) -> None:
            (folder / "vmlinux").write_bytes(_plain(image.read_bytes(), image))

        content = (cache.entry("vmlinux", key, make) / "vmlinux").read_bytes()
    except OSError as error:
        raise InfraError(f"it cannot be read: {error.strerror}", place=str(image)) from error
    return _elf(content, image) if content.startswith(_ELF) else _flat(content, image)


def _plain(data: bytes, image: Path) -> bytes:
    """The kernel proper of an image's bytes."""
    if data[0x202:0x206] == b"HdrS":
        sectors = data[0x1F1] or 4
        offset, size = struct.unpack_from("<II", data, 0x248)
        begin = (sectors + 1) * 512 + offset
        # The build appends the unpacked size to every format but gzip, which ends with it.
        return _decompressed(data[begin : begin + size], image)
    if data[4:8] == b"zimg":
        offset, size = struct.unpack_from("<II", data, 8)
        return _decompressed(data[offset : offset + size], image)
    if data[:2] == b"\x1f\x8b":
        return _decompressed(data, image)
    return data


def _elf(content: bytes, image: Path) -> UnpackedKernel:
    try:
        (machine,) = struct.unpack_from("<H", content, 18)
        (table,) = struct.unpack_from("<Q", content, 32)
        entry, count = struct.unpack_from("<HH", content, 54)
        if _MACHINES.get(machine) is None or entry != _SEGMENT.size or count > _MAX_SEGMENTS:
            raise SpecError("the kernel in it is of no known architecture", place=str(image))
        found = list(_segments(content, table, count))
    except (struct.error, ValueError) as error:
        raise SpecError(f"the kernel in it is damaged: {error}", place=str(image)) from error
    if not found:
        raise SpecError("the kernel in it has no code", place=str(image))
    segments = tuple(sorted(found, key=lambda part: part.start))
    return UnpackedKernel(arch=_MACHINES[machine], segments=segments)


def _segments(content: bytes, table: int, count: int) -> Iterator[Segment]:
    view = memoryview(content)
    for at in range(table, table + count * _SEGMENT.size, _SEGMENT.size):
        kind, flags, offset, address, _, size, *_ = _SEGMENT.unpack_from(content, at)
        if kind == _PT_LOAD and size:
            if offset + size > len(content):
                raise ValueError("it is truncated")
            part = view[offset : offset + size]
            yield Segment(start=address, content=part, executable=bool(flags & 1))


def _flat(content: bytes, image: Path) -> UnpackedKernel:
    if content[0x38:0x3C] != b"ARM\x64":
        raise SpecError("no kernel is found in it", place=str(image))
    whole = Segment(start=_ARM64_LINKED, content=memoryview(content), executable=True)
    return UnpackedKernel(arch="arm64", segments=(whole,))


def _decompressed(packed: bytes, image: Path) -> bytes:
    for magic, unpack in _FORMATS:
        if packed.startswith(magic):
            try:
                plain = unpack(packed)
            except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) as error:
                raise SpecError(f"its payload is damaged: {error}", place=str(image)) from error
            if len(plain) >= _LIMIT_BYTES:
                raise SpecError("its payload is too large", place=str(image))
            return plain
    raise SpecError(
        f"its payload is packed in a way that kdelta does not know ({packed[:4].hex()})",
        place=str(image),
    )


def _whole(inflater: _Inflater, packed: bytes) -> bytes:
    """All that one stream holds; what follows it, the appended size, is not of it."""
    plain = inflater.decompress(packed, _LIMIT_BYTES)
    if not inflater.eof and len(plain) < _LIMIT_BYTES:
        raise ValueError("it is truncated")
    return plain


class _Inflater(Protocol):
    """What the standard library's decompressors have in common."""

    @property
    def eof(self) -> bool:
        """True after the end of the stream."""

    def decompress(self, data: bytes, limit: int, /) -> bytes:
        """Up to `limit` bytes of what data holds."""


def _by_program(*command: str) -> Callable[[bytes], bytes]:
    """Unpack with a program that takes IN -o OUT; the size at the end is not for it."""

    def unpack(packed: bytes) -> bytes:
        import tempfile

        if process.which(command[0]) is None:
            package = command[0]
            raise InfraError(f"{package} is not installed", action=f"apt-get install {package}")
        with tempfile.TemporaryDirectory(prefix="kdelta-payload-") as scratch:
            source, target = Path(scratch, "packed"), Path(scratch, "plain")
            source.write_bytes(packed[:-4])
            argv = [*command, str(source), *(() if command[0] == "lz4" else ("-o",)), str(target)]
            done = process.run(argv, timeout=_UNPACK_S, check=False)
            if done.returncode:
                raise ValueError(done.last_words)
            with target.open("rb") as stream:
                return stream.read(_LIMIT_BYTES)

    return unpack


_FORMATS: tuple[tuple[bytes, Callable[[bytes], bytes]], ...] = (
    (b"\x1f\x8b", lambda packed: _whole(zlib.decompressobj(wbits=31), packed)),
    (b"\xfd7zXZ\x00", lambda packed: _whole(lzma.LZMADecompressor(), packed)),
    (b"BZh", lambda packed: _whole(bz2.BZ2Decompressor(), packed)),
    (b"\x28\xb5\x2f\xfd", _by_program("zstd", "-d", "-q", "-f")),
    (b"\x02\x21\x4c\x18", _by_program("lz4", "-d", "-q", "-f")),
)
