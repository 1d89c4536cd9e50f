# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernel images: is the file whole, which release is it, and what lies at which address?

Formats: x86 bzImage (Documentation/arch/x86/boot.rst), arm64 and riscv64 Image
(Documentation/arch/arm64/booting.rst), the same compressed as an EFI zboot program or by gzip,
and vmlinux (ELF).  A bzImage's payload is an ELF file (xz, lz4, zstd, gzip or bzip2), whose
segments say their addresses.  arm64's Image lies as a whole at the address that
its kernel is linked for.
"""

from __future__ import annotations

import bz2
import itertools
import lzma
import mmap
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kdelta import arch, cache, elf, process
from kdelta.errors import InfraError, SpecError
from kdelta.files import decoded, digest_of, opened, words_of

_BANNER = re.compile(rb"Linux version (\d[!-~]{2,127}) (\([ -~]{1,500})")
_RELEASE = re.compile(r"\d+\.\d[\w.+~-]{0,120}")
_COMPILER = re.compile(r"^\([^()]*\) \((.+?(?:\(.*?\).*?)?), (?:GNU ld|LLD)")
IMAGE_MAGIC = {b"ARM\x64": "arm64", b"RSC\x05": "riscv64"}
_PE_MACHINE = {0x8664: "amd64", 0xAA64: "arm64", 0x5064: "riscv64"}
_SMALLEST_BYTES, _LARGEST_BYTES = 4096, 2 << 30
_CONFIG_BEGINS, _CONFIG_ENDS = b"IKCFG_ST", b"IKCFG_ED"
_MOST_CONFIG = 4 << 20
_BITS = 64


class BadImage(ValueError):  # noqa: N818  callers turn it into a SpecError or an InfraError
    """The file is not a whole kernel image; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFacts:
    """What an image says of itself.  "": not known from the image."""

    format: str  # "bzImage", "Image", "zboot", "gzip", "vmlinux"
    arch: str  # Debian's name
    release: str  # uname -r
    banner: str  # version line without "Linux version"
    compiler: str = ""
    build_id: str = ""  # vmlinux only


def inspect(path: Path) -> ImageFacts:
    """Facts of the image at `path`.  Raises BadImage when it is not one, or not whole."""
    with opened(path) as stream:
        if not _SMALLEST_BYTES <= (size := path.stat().st_size) <= _LARGEST_BYTES:
            wrong = "small" if size < _SMALLEST_BYTES else "large"
            raise BadImage(f"the file is too {wrong} for a kernel")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _read(data, lambda found: found.facts(data))


Data = mmap.mmap | bytes
Answer = TypeVar("Answer")


def _read(data: Data, ask: Callable[[_Format], Answer]) -> Answer:
    found = next((kind for kind in _FORMATS if kind.recognised(data)), None)
    if found is None:
        raise BadImage("it is neither a bzImage, an Image nor a vmlinux")
    try:
        return ask(found)
    except elf.BadElf as error:
        raise BadImage(str(error)) from error
    except (struct.error, OverflowError, IndexError) as error:
        raise BadImage("its header is damaged") from error


def _bzimage(data: Data) -> ImageFacts:
    setup_sectors = data[0x1F1] or 4
    (paragraphs,) = struct.unpack_from("<I", data, 0x1F4)
    whole = (setup_sectors + 1) * 512 + paragraphs * 16
    if len(data) < whole:
        raise BadImage(f"it is truncated: {len(data)} of {whole} bytes")
    _check_sections(data)
    protocol, most = struct.unpack_from("<H36xI", data, 0x206)
    if protocol >= 0x203 and not most:
        raise BadImage("its header leaves no place for an initramfs")
    (offset,) = struct.unpack_from("<H", data, 0x20E)
    text = data[offset + 0x200 : offset + 0x200 + 512].split(b"\0")[0].decode(errors="replace")
    release, _, rest = text.partition(" ")
    if not offset or not _RELEASE.fullmatch(release):
        raise BadImage("its header names no release")
    return ImageFacts(format="bzImage", arch="amd64", release=release, banner=f"{release} {rest}")


def _plain_image(data: Data) -> ImageFacts:
    _check_sections(data)
    return _by_banner(data, "Image", IMAGE_MAGIC[data[0x38:0x3C]])


def _zboot(data: Data) -> ImageFacts:
    _check_sections(data)
    kind = data[0x18:0x38].split(b"\0")[0]
    (header,) = struct.unpack_from("<I", data, 0x3C)
    (machine,) = struct.unpack_from("<H", data, header + 4)
    found = _PE_MACHINE.get(machine, "")
    if kind != b"gzip":  # nothing here reads the others; the guest will say its release
        return ImageFacts(format="zboot", arch=found, release="", banner="")
    return _by_banner(decompressed(_zboot_payload(data)), "zboot", found)


def _gzip(data: Data) -> ImageFacts:
    inner = decompressed(data[:_LIMIT_BYTES])
    if found := IMAGE_MAGIC.get(inner[0x38:0x3C]):
        return _by_banner(inner, "gzip", found)
    raise BadImage("what it holds compressed is not a kernel Image")


def _vmlinux(data: Data) -> ImageFacts:
    with elf.opened(data) as file:
        found = arch.of_elf(file["e_machine"])
        if found is None or file.elfclass != _BITS or not file.little_endian:
            raise BadImage("it is an ELF file, but no kernel of a known architecture")
        parts = [part.header for part in itertools.islice(file.iter_segments(), _MOST_SEGMENTS)]
    end = max((part["p_offset"] + part["p_filesz"] for part in parts), default=0)
    if len(data) < end:
        raise BadImage(f"it is truncated: {len(data)} of {end} bytes")
    notes = (part for part in parts if part["p_type"] == "PT_NOTE")
    ids = (elf.build_id(data[p["p_offset"] : p["p_offset"] + p["p_filesz"]]) for p in notes)
    facts = _by_banner(data, "vmlinux", found.debian)
    return replace(facts, build_id=next(filter(None, ids), ""))


def _by_banner(data: Data, kind: str, arch: str) -> ImageFacts:
    match = _BANNER.search(data)
    if match is None:
        raise BadImage("it holds no 'Linux version' banner")
    release, rest = match[1].decode(), match[2].decode().strip()
    by = _COMPILER.match(rest)
    facts = ImageFacts(format=kind, arch=arch, release=release, banner=f"{release} {rest}")
    return replace(facts, compiler=by[1]) if by else facts


def _check_sections(data: Data) -> None:
    """Every section of the PE header, where there is one, lies within the file."""
    (header,) = struct.unpack_from("<I", data, 0x3C)
    if not header or data[header : header + 4] != b"PE\0\0":
        return
    (count,) = struct.unpack_from("<H", data, header + 6)
    (optional,) = struct.unpack_from("<H", data, header + 20)
    for at in range(count):
        size, start = struct.unpack_from("<II", data, header + 24 + optional + at * 40 + 16)
        if start + size > len(data):
            raise BadImage(f"it is truncated: {len(data)} of {start + size} bytes")


def _bzimage_payload(data: Data) -> bytes:
    offset, size = struct.unpack_from("<II", data, 0x248)
    return _within(data, ((data[0x1F1] or 4) + 1) * 512 + offset, size)


def _zboot_payload(data: Data) -> bytes:
    return _within(data, *struct.unpack_from("<II", data, 8))


def _within(data: Data, begin: int, size: int) -> bytes:
    if not size or begin + size > len(data):
        raise BadImage(f"its payload is not in the file, which has {len(data)} bytes")
    return data[begin : begin + size]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Format:
    """A kind of image.  payload: the packed kernel in it; None where it is the kernel itself."""

    recognised: Callable[[Data], bool]
    facts: Callable[[Data], ImageFacts]
    payload: Callable[[Data], bytes] | None = None


_FORMATS = (
    _Format(recognised=lambda d: d[:4] == elf.MAGIC, facts=_vmlinux),
    _Format(recognised=lambda d: d[:2] == b"\x1f\x8b", facts=_gzip, payload=bytes),
    _Format(
        recognised=lambda d: d[0x202:0x206] == b"HdrS", facts=_bzimage, payload=_bzimage_payload
    ),
    _Format(recognised=lambda d: d[4:8] == b"zimg", facts=_zboot, payload=_zboot_payload),
    _Format(recognised=lambda d: d[0x38:0x3C] in IMAGE_MAGIC, facts=_plain_image),
)


_LIMIT_BYTES = 256 << 20  # unpacked
_PIECE = 1 << 12  # packed, of which xz and bzip2 make some 30 MB at most
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
    """An unpacked kernel.  code_ends: the address after each section of code, where told."""

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

    def forget(self) -> None:
        """Unmap the pages of the file that were read: what is needed again is mapped again."""
        for segment in self.segments:
            if isinstance(segment.content.obj, mmap.mmap):
                segment.content.obj.madvise(mmap.MADV_DONTNEED)


def unpacked_kernel(image: Path) -> UnpackedKernel:
    """The kernel in an image, kept in the cache.  Raises SpecError, InfraError."""
    try:
        with image.open("rb") as stream:
            is_elf = stream.read(len(elf.MAGIC)) == elf.MAGIC
        # A user's own file may be written to meanwhile; what the cache holds never changes.
        content = image.read_bytes() if is_elf else _kept(image)
        return _of_elf(content) if content[:4] == elf.MAGIC else _of_plain_image(content)
    except OSError as error:
        raise InfraError(f"it cannot be read: {error.strerror}", place=str(image)) from error
    except ValueError as error:
        raise SpecError(f"the kernel in it cannot be read: {error}", place=str(image)) from error


def configuration(image: Path) -> str:
    """The configuration that a kernel holds of itself (CONFIG_IKCONFIG), "" for none.

    Raises as `unpacked_kernel` does.
    """
    for segment in unpacked_kernel(image).segments:
        content = bytes(segment.content)
        packed = content.partition(_CONFIG_BEGINS)[2].partition(_CONFIG_ENDS)[0]
        if packed.startswith(b"\x1f\x8b"):
            inflater = zlib.decompressobj(zlib.MAX_WBITS | 16)
            return inflater.decompress(packed, _MOST_CONFIG).decode("ascii", errors="replace")
    return ""


_BRINGS = b"kdelta-brings-01"
_SIZES = struct.Struct("<QQ")


def bringing(image: bytes, archive: bytes, told: bytes) -> bytes:
    """An image with an initramfs at its end, which its guests get, and words about it."""
    return image + archive + told + _SIZES.pack(len(archive), len(told)) + _BRINGS


def brought(image: Path) -> tuple[bytes, bytes]:
    """The initramfs and the words at the end of an image; empty for one that has none."""
    with image.open("rb") as stream:
        size = stream.seek(0, 2)
        tail = _SIZES.size + len(_BRINGS)
        stream.seek(max(0, size - tail))
        end = stream.read()
        if not end.endswith(_BRINGS) or len(end) < tail:
            return b"", b""
        archive, told = _SIZES.unpack_from(end)
        stream.seek(max(0, size - tail - archive - told))
        return stream.read(archive), stream.read(told)


class Transplanted(msgspec.Struct, frozen=True, kw_only=True):
    """What an image with changed functions says of itself: names of functions, but for objects.

    base: SHA-256 of the image without them.  added: new ones, and those that only others reach.
    code: of both, a digest of what each does.  kept: functions that may have the code of before.
    """

    base: str
    objects: tuple[str, ...]
    replaced: tuple[str, ...]
    added: tuple[str, ...]
    gone: tuple[str, ...]
    code: dict[str, str]
    kept: tuple[str, ...] = ()


def transplanted(image: Path) -> Transplanted | None:
    """What an image says of changed functions that it brings; None for one that has none."""
    told = brought(image)[1]
    return decoded(told, Transplanted) if told else None


def replaced_in(image: Path) -> frozenset[str]:
    """The functions of an image that it brings others for."""
    found = transplanted(image)
    return frozenset(found.replaced if found else ())


def _kept(image: Path) -> mmap.mmap:
    def make(folder: Path) -> None:
        data = image.read_bytes()
        packed = _read(data, lambda found: found.payload(data) if found.payload else None)
        with (folder / "vmlinux").open("wb") as stream:
            stream.writelines([data] if packed is None else _unpacked(packed))

    with (
        cache.lent("vmlinux", digest_of(image), make) as folder,
        (folder / "vmlinux").open("rb") as stream,
    ):
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)


def _of_elf(content: Data) -> UnpackedKernel:
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


def _of_plain_image(content: Data) -> UnpackedKernel:
    found = IMAGE_MAGIC.get(content[0x38:0x3C], "")
    if found not in _LINKED:
        raise BadImage("it is neither an ELF file nor an Image of arm64 or riscv64")
    whole = Segment(start=_LINKED[found], content=memoryview(content), executable=True)
    return UnpackedKernel(arch=found, segments=(whole,))


def decompressed(packed: bytes, most: int = _LIMIT_BYTES) -> bytes:
    """What is packed by one of the kernel's programs, fewer bytes than `most`.  Raises BadImage."""
    return b"".join(_unpacked(packed, most))


def _unpacked(packed: bytes, most: int = _LIMIT_BYTES) -> Iterator[bytes]:
    """The same, piece by piece."""
    # The build appends the unpacked size to every format but gzip, which ends with it.
    unpack = next((own for magic, own in _PACKINGS if packed.startswith(magic)), None)
    if unpack is None:
        how = packed[:4].hex()
        raise BadImage(f"its payload is packed in a way that kdelta does not know ({how})")
    try:
        for piece in unpack(packed):
            if (most := most - len(piece)) <= 0:
                break
            yield piece
    except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) as error:
        raise BadImage(f"its payload is damaged: {words_of(error)}") from error
    if most <= 0:
        raise BadImage("its payload is too large")


def _whole(inflater: Any, packed: bytes) -> Iterator[bytes]:
    """All of one stream, by a standard decompressor, without the appended size."""
    for at in range(0, len(packed), _PIECE):
        yield inflater.decompress(packed[at : at + _PIECE])
        if inflater.eof:
            return
    raise ValueError("it is truncated")


def _by_program(*command: str) -> Callable[[bytes], Iterator[bytes]]:
    """Unpack with a program that takes IN -o OUT; the size at the end is not for it."""

    def unpack(packed: bytes) -> Iterator[bytes]:
        import tempfile

        if process.which(command[0]) is None:
            action = f"apt-get install {command[0]}"
            raise InfraError(f"{command[0]} is not installed", action=action)
        with tempfile.TemporaryDirectory(prefix="kdelta-payload-") as scratch:
            source, target = Path(scratch, "packed"), Path(scratch, "plain")
            source.write_bytes(memoryview(packed)[:-4])
            argv = [*command, str(source), *(() if command[0] == "lz4" else ("-o",)), str(target)]
            done = process.run(argv, timeout=_UNPACK_S, check=False)
            if done.returncode:
                raise ValueError(f"{command[0]} does not unpack it")
            if not target.is_file():
                cause, action = f"{command[0]} wrote nothing", process.action(command[0])
                raise InfraError(cause, action=action)
            with target.open("rb") as stream:
                yield from iter(lambda: stream.read(1 << 20), b"")

    return unpack


_PACKINGS: tuple[tuple[bytes, Callable[[bytes], Iterator[bytes]]], ...] = (
    (b"\x1f\x8b", lambda packed: _whole(zlib.decompressobj(wbits=31), packed)),
    (b"\xfd7zXZ\x00", lambda packed: _whole(lzma.LZMADecompressor(), packed)),
    (b"BZh", lambda packed: _whole(bz2.BZ2Decompressor(), packed)),
    (b"\x28\xb5\x2f\xfd", _by_program("zstd", "-d", "-q", "-f")),
    (b"\x02\x21\x4c\x18", _by_program("lz4", "-d", "-q", "-f")),
)
