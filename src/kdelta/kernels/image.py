# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads kernel images: is the file whole, for which architecture, and which release is it?

Formats: x86 bzImage (Documentation/arch/x86/boot.rst), arm64 and riscv64 Image
(Documentation/arch/arm64/booting.rst), the same compressed as an EFI zboot program or by gzip,
and vmlinux (ELF).
"""

from __future__ import annotations

import mmap
import re
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

_BANNER = re.compile(rb"Linux version (\d[!-~]{2,127}) (\([ -~]{1,500})")
_RELEASE = re.compile(r"\d+\.\d[\w.+~-]{0,120}")
_COMPILER = re.compile(r"^\([^()]*\) \((.+?(?:\(.*?\).*?)?), (?:GNU ld|LLD)")
_IMAGE_MAGIC = {b"ARM\x64": "arm64", b"RSC\x05": "riscv64"}
_ELF_MACHINE = {62: "amd64", 183: "arm64", 243: "riscv64"}
_PE_MACHINE = {0x8664: "amd64", 0xAA64: "arm64", 0x5064: "riscv64"}
_ELF64_LITTLE = b"\x02\x01"
_PT_NOTE = 4
_NT_GNU_BUILD_ID = 3
_BUILD_ID_BYTES = 32
_LIMIT_BYTES = 256 << 20
_SMALLEST_BYTES = 4096


class BadImage(ValueError):  # noqa: N818  callers turn it into a SpecError or an InfraError
    """The file is not a whole kernel image; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFacts:
    """What an image says of itself.  "": it does not say."""

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
        for recognised, reader in _READERS:
            if recognised(data):
                try:
                    return reader(data)
                except (struct.error, OverflowError) as error:
                    raise BadImage("its header is damaged") from error
    raise BadImage("it is neither a bzImage, an Image nor a vmlinux")


Data = mmap.mmap | bytes


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
    return _by_banner(data, "Image", _IMAGE_MAGIC[bytes(data[0x38:0x3C])])


def _zboot(data: Data) -> ImageFacts:
    _check_sections(data)
    offset, size = struct.unpack_from("<II", data, 8)
    kind = bytes(data[0x18:0x38]).split(b"\0")[0]
    (header,) = struct.unpack_from("<I", data, 0x3C)
    (machine,) = struct.unpack_from("<H", data, header + 4)
    arch = _PE_MACHINE.get(machine, "")
    if kind != b"gzip":  # nothing here reads the others; the guest will say its release
        return ImageFacts(format="zboot", arch=arch, release="", banner="")
    return _by_banner(_inflate(bytes(data[offset : offset + size])), "zboot", arch)


def _gzip(data: Data) -> ImageFacts:
    inner = _inflate(bytes(data[:]))
    magic = inner[0x38:0x3C]
    if magic not in _IMAGE_MAGIC:
        raise BadImage("what it holds compressed is not a kernel Image")
    return _by_banner(inner, "gzip", _IMAGE_MAGIC[magic])


def _vmlinux(data: Data) -> ImageFacts:
    arch = _ELF_MACHINE.get(struct.unpack_from("<H", data, 18)[0], "")
    if data[4:6] != _ELF64_LITTLE or not arch:
        raise BadImage("it is an ELF file, but no kernel of a known architecture")
    (table,) = struct.unpack_from("<Q", data, 32)
    entry, count = struct.unpack_from("<HH", data, 54)
    end, build_id = 0, ""
    for at in range(count):
        kind, _, offset, _, _, size = struct.unpack_from("<IIQQQQ", data, table + at * entry)
        end = max(end, offset + size)
        if kind == _PT_NOTE and offset + size <= len(data):
            build_id = build_id or build_id_in(bytes(data[offset : offset + size]))
    if len(data) < end:
        raise BadImage(f"it is truncated: {len(data)} of {end} bytes")
    return replace(_by_banner(data, "vmlinux", arch), build_id=build_id)


def build_id_in(notes: bytes) -> str:
    """The GNU build id among ELF notes (elf(5)), "" when there is none."""
    at = 0
    while at + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, at)
        start = at + 12 + (name_size + 3 & ~3)
        if kind == _NT_GNU_BUILD_ID and notes[at + 12 : at + 12 + name_size] == b"GNU\0":
            return notes[start : start + min(size, _BUILD_ID_BYTES)].hex()
        at = start + (size + 3 & ~3)
    return ""


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
    if not header or bytes(data[header : header + 4]) != b"PE\0\0":
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


_READERS: tuple[tuple[Callable[[Data], bool], Callable[[Data], ImageFacts]], ...] = (
    (lambda d: bytes(d[:4]) == b"\x7fELF", _vmlinux),
    (lambda d: bytes(d[:2]) == b"\x1f\x8b", _gzip),
    (lambda d: bytes(d[0x202:0x206]) == b"HdrS", _bzimage),
    (lambda d: bytes(d[4:8]) == b"zimg", _zboot),
    (lambda d: bytes(d[0x38:0x3C]) in _IMAGE_MAGIC, _flat),
)
