# SPDX-License-Identifier: GPL-2.0-or-later
"""Which functions of two whole images differ: moved code does not, other code does."""

from __future__ import annotations

import shutil
import struct
import sys
from pathlib import Path

import pytest

import kernel_image
from kdelta.disassembly import image
from kdelta.disassembly.identity import difference, only_lines

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))
import calibration

pytestmark = pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump is missing")


def opened(path: Path, *parts: tuple[str, str, bytes], code: int | None = None) -> image.Image:
    path.write_bytes(kernel_image.kernel(parts, code=code))
    return image.opened(path, path.name)


def kernel(
    path: Path, *, before: int = 16, name: str = "helper", helper: bytes = b"\xc3", add: int = 1
) -> image.Image:
    """`work` calls a helper and adds a number; `before`: bytes of other code before both."""
    at = kernel_image.BASE + before
    call = b"\xe8" + struct.pack("<i", at - (at + 16 + 5))
    work = call + b"\x48\x83\xc0" + bytes([add]) + b"\xc3"
    return opened(
        path, ("t", "first", b"\x90" * before), ("t", name, helper.ljust(16, b"\xcc")),
        ("T", "work", work.ljust(16, b"\xcc")), ("r", "strings", b"\0hello\0"),
    )  # fmt: skip


def test_code_that_moved_is_the_same(tmp_path: Path) -> None:
    found = difference(kernel(tmp_path / "a"), kernel(tmp_path / "b", before=64))
    assert (found.changed, found.added, found.removed) == (("first",), (), ())


def test_a_constant_is_a_difference(tmp_path: Path) -> None:
    assert difference(kernel(tmp_path / "a"), kernel(tmp_path / "b", add=2)).names == {"work"}


def test_another_callee_at_the_same_place_is_a_rename(tmp_path: Path) -> None:
    """The bytes are equal; the name is told, and what calls it has the same code."""
    found = difference(kernel(tmp_path / "a"), kernel(tmp_path / "b", name="other"))
    assert (found.added, found.removed) == (("other",), ("helper",))


FUNCTIONS = ("shmem_write_end", "end_page_writeback", "stop_machine", "__hugetlb_zap_end")
ENDS = ("_etext", "_einittext", "__sched_text_end", "__bhi_args_end")


@pytest.mark.parametrize("name", [*FUNCTIONS, *ENDS])
def test_the_end_of_a_section_of_code_is_no_function_and_all_else_is(
    tmp_path: Path, name: str
) -> None:
    one, other = (
        kernel(tmp_path / f"{name}.{code[0]:x}", name=name, helper=code)
        for code in (b"\xc3", b"\x90\xc3")
    )
    assert difference(one, other).names == ({name} if name in FUNCTIONS else set())


def test_the_padding_in_front_of_a_function_is_no_function(tmp_path: Path) -> None:
    found = difference(
        kernel(tmp_path / "a", name="__pfx_work"), kernel(tmp_path / "b", name="__cfi_work")
    )
    assert (found.added, found.removed) == ((), ())


@pytest.mark.parametrize(("section", "changed"), [(16, set()), (None, {"work"})])
def test_what_lies_behind_a_section_is_no_code_of_its_last_function(
    tmp_path: Path, section: int | None, changed: set[str]
) -> None:
    """Where the file tells sections, data of another behind `work` is not compared with it."""

    def made(path: Path, behind: bytes) -> image.Image:
        work = b"\x90\xc3".ljust(16, b"\xcc") + behind.ljust(32, b"\0")
        return opened(path, ("T", "work", work), code=section)

    one, other = made(tmp_path / "a", b"\x01\x02"), made(tmp_path / "b", b"\x31\xc0\xc3")
    assert difference(one, other).names == changed
    if section:
        assert one.function("work").normal == ("nop", "ret")


def warned(path: Path, table: bytes) -> image.Image:
    """A kernel with two warnings; table: address, file, line and flags of each."""
    return opened(
        path, ("T", "work", b"\xc3".ljust(16, b"\xcc")), ("d", "__start___bug_table", table),
        ("d", "__stop___bug_table", b"\0" * 16),
    )  # fmt: skip


def test_only_lines_of_warnings_are_no_difference(tmp_path: Path) -> None:
    def entry(line: int, flags: int = 1) -> bytes:
        return struct.pack("<iiHH", -5, -7, line, flags)

    def table(*lines: int, flags: int = 1) -> bytes:
        return b"".join(entry(line, flags) for line in lines)

    old = warned(tmp_path / "a", table(10, 20, 30, 40))
    assert only_lines(old, warned(tmp_path / "b", table(11, 21, 31, 41)))
    assert not only_lines(old, warned(tmp_path / "c", table(11, 21, 31, 41, flags=2)))
    assert not only_lines(old, warned(tmp_path / "d", table(*range(8))))


def table(path: Path, code: bytes, *after: tuple[str, bytes], before: int = 16) -> image.Image:
    """`work` is that code, with the address behind a table of 16 bytes for $END."""
    end = struct.pack("<I", (kernel_image.BASE + before + 32 + 16) & 0xFFFFFFFF)
    work = code.replace(b"$END", end).ljust(32, b"\xcc")
    parts = [("r", "first", b"\0" * before), ("T", "work", work), ("r", "table", b"\1" * 16)]
    return opened(path, *parts, *(("r", *one) for one in after))


COMPARED = b"\x48\x81\xff$END\xc3"  # cmp $END,%rdi; ret
TAKEN = b"\x48\xc7\xc7$END\xc3"  # mov $END,%rdi; ret
READ = b"\x8b\x04\x25$END\xc3"  # mov END,%eax; ret
OLD, NEW = ("other", b"\2" * 16), ("inserted", b"\3" * 16)


@pytest.mark.parametrize("code", [COMPARED, TAKEN, READ], ids=["compared", "taken", "read"])
def test_the_end_of_a_table_is_what_follows_it_only_where_that_is_read(
    tmp_path: Path, code: bytes
) -> None:
    """An instruction that looks there means that variable, and now it is another one."""
    moved = table(tmp_path / "b", code, NEW, OLD, before=64)
    found = difference(table(tmp_path / "a", code, OLD), moved).names
    assert found == ({"work"} if code == READ else set())


def merged(path: Path, constant: bytes, *, before: bytes = b"text\0") -> image.Image:
    """`work` reads two bytes that the linker put behind the kernel's own table of symbols."""
    place = struct.pack("<I", (kernel_image.BASE + 16 + 16 + len(before)) & 0xFFFFFFFF)
    work = (b"\x0f\xb7\x04\x25" + place + b"\xc3").ljust(16, b"\xcc")
    behind = b"\0" * 16 + before + constant + b"a text behind it\0"
    return opened(path, ("T", "work", work), ("r", "kallsyms_names", behind))


def test_constants_that_the_linker_merges_are_known_by_their_content(tmp_path: Path) -> None:
    old = merged(tmp_path / "a", b"\x04\x02")
    moved = merged(tmp_path / "b", b"\x04\x02", before=b"a longer text\0")
    other = merged(tmp_path / "c", b"\x04\x03", before=b"a longer text\0")
    assert difference(old, moved).names == set()
    assert difference(old, other).names == {"work"}


def test_a_long_text_that_moved_is_the_same(tmp_path: Path) -> None:
    text = b"active_anon:%lu " * 40 + b"\0"
    old = merged(tmp_path / "a", text)
    assert difference(old, merged(tmp_path / "b", text, before=b"more\0" * 4)).names == set()


def call(place: int, to: int) -> bytes:
    return b"\xe8" + struct.pack("<i", to - (place + 5)) + b"\xc3"


def made(tmp_path: Path, name: str, *, constant: int = 1, extra: bytes = b"", callee: str = "leaf",
         leaf: bytes = b"\xc3") -> image.Image:  # fmt: skip
    """`hot` loads a constant and calls a function that comes after it."""
    load = b"\xb8" + struct.pack("<I", constant)
    before = b"\xff\xc0" * 16 + extra
    at_hot = kernel_image.BASE + len(before) + (-len(before) % 16)
    hot = load + call(at_hot + 5, at_hot + 16)
    return opened(tmp_path / name, ("t", "before", before), ("T", "hot", hot), ("t", callee, leaf))


def test_what_is_watched_is_what_ran_and_what_it_calls(tmp_path: Path) -> None:
    one = made(tmp_path, "one")
    assert calibration.watched(one, ["rep movsb in hot", "[user]"]) == ("hot", "leaf")
    assert calibration.watched(one, ["leaf", "module_function"]) == ("leaf", "module_function")


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"extra": b"\x90" * 160}, set[str]()),  # all moved
        ({"constant": 2}, {"hot"}),  # an offset into a structure is such a constant
        ({"leaf": b"\x90\xc3"}, {"leaf"}),
        ({"callee": "other_leaf"}, {"leaf", "other_leaf"}),
    ],
)
def test_other_code_is_different(
    tmp_path: Path, change: dict[str, object], names: set[str]
) -> None:
    other = made(tmp_path, "other", **change)  # type: ignore[arg-type]
    assert difference(made(tmp_path, "one"), other).names == names


def test_of_a_dispatcher_only_what_ran_counts(tmp_path: Path) -> None:
    count = calibration.DISPATCHED + 1
    first = kernel_image.BASE + 16 * (5 * count // 16 + 2)
    calls = b"".join(call(kernel_image.BASE + 5 * at, first + 16 * at)[:5] for at in range(count))
    parts = [("T", "table", calls.ljust(first - kernel_image.BASE, b"\x90"))]
    parts += [("t", f"entry_{at}", b"\xc3") for at in range(count)]
    one = opened(tmp_path / "one", *parts)
    assert len(set(one.function("table").calls)) == count
    assert calibration.watched(one, ["table", "entry_9"]) == ("entry_9", "table")
