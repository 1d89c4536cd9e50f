# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernel images of every format, whole and damaged, and kernels named by file:."""

from __future__ import annotations

import gzip
import os
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdelta.errors import SpecError
from kdelta.kernels.image import BadImage, ImageFacts, inspect
from kdelta.kernels.reference import resolve

GCC = "aarch64-linux-gnu-gcc-14 (Debian 14.2.0-19) 14.2.0"
BANNER = (
    f"Linux version 6.17.8-arm64 (debian-kernel@lists.debian.org) ({GCC}, GNU ld (GNU Binutils "
    "for Debian) 2.44) # SMP Debian 6.17.8-1 (2025-11-20)\n"
)


def bzimage(release: str = "6.17.8-cloud-amd64") -> bytearray:
    """Set-up code of 4 sectors and 64 paragraphs... of payload, as boot.rst lays them out."""
    data = bytearray(5 * 512 + 4096)
    data[0x1F1] = 4
    struct.pack_into("<I", data, 0x1F4, 4096 // 16)
    data[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", data, 0x20E, 0x300)
    text = f"{release} (me@host) #1 SMP Debian 6.17.8-1 (2025-11-20)".encode()
    data[0x500 : 0x500 + len(text)] = text
    return data


def flat(magic: bytes = b"ARM\x64", *, sections_end: int = 8192) -> bytearray:
    """An Image with a PE header of one section that ends at sections_end."""
    data = bytearray(8192)
    data[0:2] = b"MZ"
    data[0x38:0x3C] = magic
    struct.pack_into("<I", data, 0x3C, 0x40)
    data[0x40:0x44] = b"PE\0\0"
    struct.pack_into("<HH", data, 0x44, 0xAA64, 1)
    struct.pack_into("<H", data, 0x40 + 20, 0)
    struct.pack_into("<II", data, 0x40 + 24 + 16, sections_end - 4096, 4096)
    data[5000 : 5000 + len(BANNER)] = BANNER.encode()
    return data


def zboot(inner: bytes, kind: bytes = b"gzip") -> bytearray:
    packed = gzip.compress(inner) if kind == b"gzip" else inner
    data = bytearray(4096) + packed
    data[0:2] = b"MZ"
    data[4:8] = b"zimg"
    struct.pack_into("<II", data, 8, 4096, len(packed))
    data[0x18 : 0x18 + len(kind)] = kind
    struct.pack_into("<I", data, 0x3C, 0x80)
    data[0x80:0x84] = b"PE\0\0"
    struct.pack_into("<HH", data, 0x84, 0xAA64, 0)
    return data


def elf() -> bytes:
    """A vmlinux as far as its ELF header, one note segment and its banner go."""
    data = bytearray(8192)
    data[0:6] = b"\x7fELF\x02\x01"
    struct.pack_into("<H", data, 18, 62)
    struct.pack_into("<Q", data, 32, 64)
    struct.pack_into("<HH", data, 54, 56, 1)
    struct.pack_into("<IIQQQQ", data, 64, 4, 4, 0x100, 0, 0, 36)
    struct.pack_into("<III4s", data, 0x100, 4, 20, 3, b"GNU")
    data[5000 : 5000 + len(BANNER)] = BANNER.encode()
    return bytes(data)


def facts(tmp_path: Path, content: bytes | bytearray) -> ImageFacts:
    path = tmp_path / "image"
    path.write_bytes(content)
    return inspect(path)


def test_bzimage(tmp_path: Path) -> None:
    found = facts(tmp_path, bzimage())
    assert (found.format, found.arch, found.release) == ("bzImage", "amd64", "6.17.8-cloud-amd64")
    assert found.banner.endswith("Debian 6.17.8-1 (2025-11-20)")
    signed = facts(tmp_path, bzimage() + b"certificate")
    assert signed.release == found.release


@pytest.mark.parametrize(
    ("magic", "arch"), [(b"ARM\x64", "arm64"), (b"RSC\x05", "riscv64")], ids=["arm64", "riscv64"]
)
def test_flat_images(tmp_path: Path, magic: bytes, arch: str) -> None:
    found = facts(tmp_path, flat(magic))
    assert (found.format, found.arch, found.release) == ("Image", arch, "6.17.8-arm64")
    assert found.compiler == GCC


def test_compressed_images(tmp_path: Path) -> None:
    # incompressible padding, so that the compressed file is of a kernel's least size
    inner = bytes(flat()) + os.urandom(8192)
    assert facts(tmp_path, zboot(inner)).release == "6.17.8-arm64"
    assert facts(tmp_path, gzip.compress(inner)).format == "gzip"
    other = facts(tmp_path, zboot(b"\x28\xb5\x2f\xfd" * 2000, b"zstd"))
    assert (other.format, other.arch, other.release) == ("zboot", "arm64", "")


def test_vmlinux_carries_its_build_id(tmp_path: Path) -> None:
    source = tmp_path / "vmlinux.c"
    text = BANNER.strip().replace("arm64", "amd64")
    source.write_text(
        f'__attribute__((used)) static const char banner[] = "{text}";\nvoid _start(void) {{ }}\n'
    )
    path = tmp_path / "vmlinux"
    build_id = "0123456789abcdef0123456789abcdef01234567"
    argv = ["cc", "-static", "-nostdlib", f"-Wl,--build-id=0x{build_id}"]
    subprocess.run([*argv, "-o", str(path), str(source)], check=True)
    found = inspect(path)
    assert (found.format, found.release, found.build_id) == ("vmlinux", "6.17.8-amd64", build_id)
    kernel = resolve(f"file:{path}", found.arch)
    assert kernel.identity().build_id == build_id
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadImage):
        inspect(path)


WHOLE: dict[str, bytes] = {
    "bzImage": bytes(bzimage()),
    "Image": bytes(flat()),
    "zboot": bytes(zboot(bytes(flat()) + os.urandom(8192))),
    "gzip": gzip.compress(bytes(flat()) + os.urandom(8192)),
    "vmlinux": elf(),
}

DAMAGED = {
    "empty": b"",
    "text": b"# a shell script\n" * 1000,
    "zeros": bytes(10000),
    "truncated bzImage": bytes(bzimage()[:5000]),
    "bzImage without release": bytes(bzimage(release="\xff\xfe")),
    "truncated Image": bytes(flat(sections_end=9000)),
    "Image without banner": bytes(flat()).replace(b"Linux version", b"Unix version "),
    "gzip of text": gzip.compress(os.urandom(9000)),
    "truncated gzip": gzip.compress(bytes(flat()) + os.urandom(9000))[:6000],
    "zboot cut": bytes(zboot(bytes(flat()) + os.urandom(9000))[:8000]),
    "ELF magic only": b"\x7fELF" + bytes(8000),
    "ELF of garbage": b"\x7fELF\x02\x01\x01" + os.urandom(8000),
    "PE header out of the file": bytes(flat()[:0x3C]) + b"\xf0\xff\xff\xff" + bytes(8000),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_images_are_one_sentence(tmp_path: Path, name: str) -> None:
    path = tmp_path / "image"
    path.write_bytes(DAMAGED[name])
    for arch in ("amd64", "arm64"):
        with pytest.raises(SpecError) as caught:
            resolve(f"file:{path}", arch)
        assert "not a usable kernel image" in str(caught.value)
        assert caught.value.place == str(path)


@given(
    name=st.sampled_from(("bzImage", "Image", "zboot", "gzip", "vmlinux")),
    changes=st.lists(st.tuples(st.integers(0, 0x240), st.integers(0, 255)), max_size=8),
    length=st.integers(0, 16384),
)
def test_no_content_breaks_the_reader(
    tmp_path_factory: pytest.TempPathFactory, name: str, changes: list[tuple[int, int]], length: int
) -> None:
    content = bytearray(WHOLE[name])
    for at, value in changes:
        content[at] = value
    path = tmp_path_factory.getbasetemp() / "mutated"
    path.write_bytes(content[:length])
    try:
        found = inspect(path)
    except BadImage:
        return
    assert found.format


def test_file_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bzImage"
    path.write_bytes(bzimage())
    monkeypatch.chdir(tmp_path)
    kernel = resolve("file:bzImage")
    assert kernel.image == path
    assert (kernel.release, kernel.version, kernel.flavour) == ("6.17.8-cloud-amd64", "", "")
    assert kernel.config is None
    with pytest.raises(SpecError, match="is for amd64, not for arm64"):
        resolve("file:bzImage", "arm64")
    with pytest.raises(SpecError, match="No such file"):
        resolve("file:absent")
    with pytest.raises(SpecError, match="cannot be read: Is a directory"):
        resolve(f"file:{tmp_path}")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SpecError, match="not a regular file"):
        resolve("file:pipe")
