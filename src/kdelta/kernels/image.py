# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads kernel images: is the file whole, for which architecture, and which release is it?

Formats: x86 bzImage (Documentation/arch/x86/boot.rst), arm64 and riscv64 Image
(Documentation/arch/arm64/booting.rst), the same compressed as an EFI zboot program or by gzip,
and vmlinux (ELF).
"""

from __future__ import annotations

import itertools
import mmap
import re
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from kdelta import arch, elf

_BANNER = re.compile(rb"Linux version (\d[!-~]{2,127}) (\([ -~]{1,500})")
_RELEASE = re.compile(r"\d+\.\d[\w.+~-]{0,120}")
_COMPILER = re.compile(r"^\([^()]*\) \((.+?(?:\(.*?\).*?)?), (?:GNU ld|LLD)")
IMAGE_MAGIC = {b"ARM\x64": "arm64", b"RSC\x05": "riscv64"}
_PE_MACHINE = {0x8664: "amd64", 0xAA64: "arm64", 0x5064: "riscv64"}
_LIMIT_BYTES = 256 << 20
_SMALLEST_BYTES = 4096
_BITS = 64
_MOST_SEGMENTS = 64


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
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise BadImage("it is not a regular file")
    if path.stat().st_size < _SMALLEST_BYTES:
        raise BadImage("the file is too small for a kernel")
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _read(data, lambda found: found.facts(data))


def payload(data: bytes) -> bytes | None:
    """The packed kernel in an image; None when the image is the kernel.  Raises BadImage."""
    return _read(data, lambda found: found.payload(data) if found.payload else None)


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
    (offset,) = struct.unpack_from("<H", data, 0x20E)
    text = data[offset + 0x200 : offset + 0x200 + 512].split(b"\0")[0].decode(errors="replace")
    release, _, rest = text.partition(" ")
    if not offset or not _RELEASE.fullmatch(release):
        raise BadImage("its header names no release")
    return ImageFacts(format="bzImage", arch="amd64", release=release, banner=f"{release} {rest}")


def _flat(data: Data) -> ImageFacts:
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
    return _by_banner(_inflate(_zboot_payload(data)), "zboot", found)


def _gzip(data: Data) -> ImageFacts:
    inner = _inflate(data[:])
    magic = inner[0x38:0x3C]
    if magic not in IMAGE_MAGIC:
        raise BadImage("what it holds compressed is not a kernel Image")
    return _by_banner(inner, "gzip", IMAGE_MAGIC[magic])


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
    compiler = _COMPILER.match(rest)
    return ImageFacts(
        format=kind,
        arch=arch,
        release=release,
        banner=f"{release} {rest}",
        compiler=compiler[1] if compiler else "",
    )


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


def _inflate(packed: bytes) -> bytes:
    try:
        inflater = zlib.decompressobj(wbits=31)
        plain = inflater.decompress(packed, _LIMIT_BYTES)
    except zlib.error as error:
        raise BadImage(f"its compressed part is damaged: {error}") from error
    if not inflater.eof:
        raise BadImage("its compressed part is truncated")
    return plain


def _bzimage_payload(data: Data) -> bytes:
    offset, size = struct.unpack_from("<II", data, 0x248)
    begin = ((data[0x1F1] or 4) + 1) * 512 + offset
    return data[begin : begin + size]


def _zboot_payload(data: Data) -> bytes:
    offset, size = struct.unpack_from("<II", data, 8)
    return data[offset : offset + size]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Format:
    """A kind of image.  payload: the packed kernel in it; None where it is the kernel itself."""

    recognised: Callable[[Data], bool]
    facts: Callable[[Data], ImageFacts]
    payload: Callable[[Data], bytes] | None = None


_FORMATS = (
    _Format(recognised=lambda d: d[:4] == elf.MAGIC, facts=_vmlinux),
    _Format(recognised=lambda d: d[:2] == b"\x1f\x8b", facts=_gzip, payload=lambda d: d[:]),
    _Format(
        recognised=lambda d: d[0x202:0x206] == b"HdrS", facts=_bzimage, payload=_bzimage_payload
    ),
    _Format(recognised=lambda d: d[4:8] == b"zimg", facts=_zboot, payload=_zboot_payload),
    _Format(recognised=lambda d: d[0x38:0x3C] in IMAGE_MAGIC, facts=_flat),
)
