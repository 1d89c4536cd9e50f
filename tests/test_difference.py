# SPDX-License-Identifier: GPL-2.0-or-later
"""Which functions of two whole images differ: moved code does not, other code does."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

import kernel_image
from kdelta.disassembly import image
from kdelta.disassembly.difference import difference, only_lines

pytestmark = pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump is missing")


def kernel(path: Path, *, before: int = 16, name: str = "helper", add: int = 1) -> image.Image:
    """`work` calls a helper and adds a number; `before`: bytes of other code before both."""
    at = kernel_image.BASE + before
    call = b"\xe8" + struct.pack("<i", at - (at + 16 + 5))
    work = call + b"\x48\x83\xc0" + bytes([add]) + b"\xc3"
    content = kernel_image.kernel(
        [
            ("t", "first", b"\x90" * before),
            ("t", name, b"\xc3".ljust(16, b"\xcc")),
            ("T", "work", work.ljust(16, b"\xcc")),
            ("r", "strings", b"\0hello\0"),
        ]
    )
    path.write_bytes(content)
    return image.opened(path, path.name)


def test_code_that_moved_is_the_same(tmp_path: Path) -> None:
    found = difference(kernel(tmp_path / "a"), kernel(tmp_path / "b", before=64))
    assert (found.changed, found.added, found.removed) == (("first",), (), ())


def test_a_constant_is_a_difference(tmp_path: Path) -> None:
    found = difference(kernel(tmp_path / "a"), kernel(tmp_path / "b", add=2))
    assert found.names == {"work"}


def test_another_callee_at_the_same_place_is_a_rename(tmp_path: Path) -> None:
    """The bytes are equal; the name is told, and what calls it has the same code."""
    found = difference(kernel(tmp_path / "a"), kernel(tmp_path / "b", name="other"))
    assert (found.added, found.removed) == (("other",), ("helper",))


def warned(path: Path, table: bytes) -> image.Image:
    """A kernel with two warnings; table: address, file, line and flags of each."""
    content = kernel_image.kernel(
        [
            ("T", "work", b"\xc3".ljust(16, b"\xcc")),
            ("d", "__start___bug_table", table),
            ("d", "__stop___bug_table", b"\0" * 16),
        ]
    )
    path.write_bytes(content)
    return image.opened(path, path.name)


def test_only_lines_of_warnings_are_no_difference(tmp_path: Path) -> None:
    def entry(line: int, flags: int = 1) -> bytes:
        return struct.pack("<iiHH", -5, -7, line, flags)

    def table(*lines: int, flags: int = 1) -> bytes:
        return b"".join(entry(line, flags) for line in lines)

    old = warned(tmp_path / "a", table(10, 20, 30, 40))
    assert only_lines(old, warned(tmp_path / "b", table(11, 21, 31, 41)))
    assert not only_lines(old, warned(tmp_path / "c", table(11, 21, 31, 41, flags=2)))
    assert not only_lines(old, warned(tmp_path / "d", table(*range(8))))
