# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel inside an image, unpacked: what of it lies at which address.

A bzImage's payload is an ELF file (xz, lz4, zstd, gzip or bzip2), whose segments say their
addresses.  arm64's Image lies as a whole at the address that its kernel is linked for.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kdelta import arch, cache, elf, process
from kdelta.errors import InfraError, SpecError
from kdelta.files import sha256_of
from kdelta.kernels.image import IMAGE_MAGIC, BadImage, payload

_LIMIT_BYTES = 512 << 20  # unpacked
_UNPACK_S = 120.0
_MOST_SEGMENTS = 64
_EXECUTABLE = 1  # PF_X
_OF_CODE = 0x2 | 0x4  # SHF_ALLOC, SHF_EXECINSTR
# What a flat image's kernel is linked for: arm64's KIMAGE_VADDR with 48 or 52 bits, since
# Linux 6.1; riscv64's KERNEL_LINK_ADDR.
_LINKED = {"arm64": 0xFFFF800080000000, "riscv64": 0xFFFFFFFF80000000}


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
    """An unpacked kernel.

    arch: Debian's name; code_ends: the address after each section of code, where sections are told.
    """

    arch: str
    segments: tuple[Segment, ...]
    code_ends: tuple[int, ...] = ()

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
            is_elf = stream.read(len(elf.MAGIC)) == elf.MAGIC
        content = image.read_bytes() if is_elf else _kept(image)
        segments = _of_elf(content) if content.startswith(elf.MAGIC) else _flat(content)
    except OSError as error:
        raise InfraError(f"it cannot be read: {error.strerror}", place=str(image)) from error
    except ValueError as error:
        raise SpecError(f"the kernel in it cannot be read: {error}", place=str(image)) from error
    return segments


def _kept(image: Path) -> bytes:
    """The unpacked kernel of an image, of the cache."""

    def make(folder: Path) -> None:
        content = image.read_bytes()
        packed = payload(content)
        (folder / "vmlinux").write_bytes(content if packed is None else _decompressed(packed))

    with cache.lent("vmlinux", sha256_of(image), make) as folder:
        return (folder / "vmlinux").read_bytes()


def _of_elf(content: bytes) -> UnpackedKernel:
    with elf.opened(content) as file:
        found = arch.of_elf(file["e_machine"])
        if found is None or file.num_segments() > _MOST_SEGMENTS:
            raise BadImage("it is of no known architecture")
        headers = [part.header for part in file.iter_segments("PT_LOAD")]
        code = [
            part["sh_addr"] + part["sh_size"]
            for part in file.iter_sections()
            if part["sh_flags"] & _OF_CODE == _OF_CODE
        ]
    view = memoryview(content)
    segments = [
        Segment(
            start=part["p_vaddr"],
            content=view[part["p_offset"] : part["p_offset"] + part["p_filesz"]],
            executable=bool(part["p_flags"] & _EXECUTABLE),
        )
        for part in headers
        if part["p_filesz"]
    ]
    if not segments:
        raise BadImage("it has no code")
    if any(part["p_offset"] + part["p_filesz"] > len(content) for part in headers):
        raise BadImage("it is truncated")
    return UnpackedKernel(
        arch=found.debian,
        segments=tuple(sorted(segments, key=lambda part: part.start)),
        code_ends=tuple(sorted(set(code))),
    )


def _flat(content: bytes) -> UnpackedKernel:
    found = IMAGE_MAGIC.get(content[0x38:0x3C], "")
    if found not in _LINKED:
        raise BadImage("it is neither an ELF file nor an Image of arm64 or riscv64")
    whole = Segment(start=_LINKED[found], content=memoryview(content), executable=True)
    return UnpackedKernel(arch=found, segments=(whole,))


def _decompressed(packed: bytes) -> bytes:
    # The build appends the unpacked size to every format but gzip, which ends with it.
    for magic, unpack in _FORMATS:
        if packed.startswith(magic):
            try:
                plain = unpack(packed)
            except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) as error:
                raise BadImage(f"its payload is damaged: {error}") from error
            if len(plain) >= _LIMIT_BYTES:
                raise BadImage("its payload is too large")
            return plain
    raise BadImage(f"its payload is packed in a way that kdelta does not know ({packed[:4].hex()})")


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
