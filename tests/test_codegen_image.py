# SPDX-License-Identifier: GPL-2.0-or-later
"""Functions out of kernel images: unpacking, the image's own symbols, names of addresses."""

from __future__ import annotations

import json
import lzma
import shutil
import struct
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernel_image
from command_line import ended
from kdelta.codegen.table import AlignedRow, Change, changed_names, compare, hunks
from kdelta.disassembly import image, kallsyms, objects
from kdelta.disassembly.code import Code, Flow, Instruction
from kdelta.errors import InfraError, SpecError
from kdelta.kernels.image import unpacked_kernel

CALLEE = bytes.fromhex("c3")


def caller(address: int, callee: int, text: int) -> bytes:
    """mov $text,%rdi; call callee; mov counter(%rip),%rax is not here; ret."""
    load = b"\x48\xc7\xc7" + struct.pack("<I", text & 0xFFFFFFFF)
    return load + (b"\xe8" + struct.pack("<i", callee - (address + len(load) + 5))) + b"\xc3"


def built(layout: str = "base", shift: int = 0) -> bytes:
    """A kernel in which `work_range` prints through `__print`; shift: other code before it."""
    base = kernel_image.BASE
    before = b"\x90" * (16 + 16 * shift)
    at_callee = base + len(before)
    at_caller, at_text = at_callee + 16, at_callee + 32
    return kernel_image.kernel(
        [("t", "before", before), ("T", "__print", CALLEE),
         ("t", "work_range", caller(at_caller, at_callee, at_text + 1)),
         ("r", "strings", b"\0hello %d\n\0")],
        layout,
    )  # fmt: skip


def opened(tmp_path: Path, content: bytes, name: str = "vmlinux") -> image.Image:
    path = tmp_path / name
    path.write_bytes(content)
    return image.opened(path, name)


@pytest.mark.parametrize("layout", ["base", "place", "place4", "percpu", "before"])
def test_calls_and_strings_have_names(tmp_path: Path, layout: str) -> None:
    code = opened(tmp_path, built(layout), layout).function("work_range")
    assert code.normal == ('mov $"hello %d\\n",%rdi', "call __print", "ret")
    assert code.calls == ("__print",)


def test_strings_with_unprintable_characters_are_escaped(tmp_path: Path) -> None:
    # lea strings+1(%rip),%rdi; ret: what printk() is called with
    at = kernel_image.BASE + 16
    load = b"\x48\x8d\x3d" + struct.pack("<i", at + 16 + 1 - (at + 7)) + b"\xc3"
    strings = b"\0\x013no\tmemory\n\0"
    parts = [("t", "", b"\x90" * 16), ("t", "complain", load), ("r", "strings", strings)]
    code = opened(tmp_path, kernel_image.kernel(parts)).function("complain")
    assert code.normal == ('lea "\\x013no\\tmemory\\n"(%rip),%rdi', "ret")


def test_code_that_lies_elsewhere_is_the_same(tmp_path: Path) -> None:
    one = opened(tmp_path, built(), "one").function("work_range")
    other = opened(tmp_path, built(shift=5), "other").function("work_range")
    assert one.normal == other.normal
    assert one.instructions[0].raw != other.instructions[0].raw


@pytest.mark.parametrize("layout", ["base", "place", "place4"])
@pytest.mark.parametrize("astray", [0, 8])
def test_a_table_knows_where_it_is(tmp_path: Path, layout: str, astray: int) -> None:
    """Read one entry too late, its addresses ascend as well."""
    path = tmp_path / "vmlinux"
    path.write_bytes(kernel_image.kernel([("T", "f", b"\xc3")], layout, astray=astray))
    assert (kallsyms.read(unpacked_kernel(path)) is not None) is (astray == 0)


def test_a_damaged_table_is_no_table(tmp_path: Path) -> None:
    whole = built()
    places, at = [], 0
    for token in kernel_image.tokens():
        places.append(at)
        at += len(token) + 1
    index = whole.rindex(struct.pack("<256H", *places))
    path = tmp_path / "vmlinux"
    path.write_bytes(whole[:index] + b"\xff" + whole[index + 1 :])
    assert kallsyms.read(unpacked_kernel(path)) is None
    with pytest.raises(SpecError, match="no symbol table"):
        image.opened(path, "damaged")


def test_names_that_do_not_fit_the_markers_are_no_table(tmp_path: Path) -> None:
    whole = bytearray(built())
    at = whole.index(b"Tbefore"[0:1] + b"before") if b"Tbefore" in whole else whole.index(b"before")
    whole[at - 2] += 1  # the length of a name
    path = tmp_path / "vmlinux"
    path.write_bytes(bytes(whole))
    assert kallsyms.read(unpacked_kernel(path)) is None


def test_payloads_of_every_kind(tmp_path: Path) -> None:
    plain = built()
    packed = {
        "gzip": kernel_image.gzipped(plain),
        "xz": kernel_image.sized(lzma.compress(plain, check=lzma.CHECK_CRC32), plain),
    }
    for tool, options in (("zstd", ["-q"]), ("lz4", ["-l", "-q"])):
        if shutil.which(tool):
            done = subprocess.run(
                [tool, *options, "-c"], input=plain, capture_output=True, check=True
            )
            packed[tool] = kernel_image.sized(done.stdout, plain)
    for kind, content in packed.items():
        code = opened(tmp_path, kernel_image.bzimage(content), kind).function("work_range")
        assert code.calls == ("__print",), kind


def test_a_missing_tool_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfraError, match="zstd is not installed"):
        opened(tmp_path, kernel_image.bzimage(b"\x28\xb5\x2f\xfd" + bytes(100)))


@pytest.mark.parametrize(
    "content",
    [
        b"\0" * 8192, kernel_image.bzimage(b"????" + bytes(100)),
        kernel_image.bzimage(kernel_image.gzipped(b"no kernel" * 1000)),
        kernel_image.bzimage(kernel_image.gzipped(built())[:-40]), built()[:0x1800], built()[:40],
    ],
)  # fmt: skip
def test_what_is_no_kernel_is_an_error(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(SpecError):
        opened(tmp_path, content)


def test_functions_that_are_not_there_or_several(tmp_path: Path) -> None:
    content = kernel_image.kernel([("t", "twice", b"\xc3"), ("t", "twice", b"\x90\xc3")])
    found = opened(tmp_path, content)
    with pytest.raises(SpecError, match="2 functions called twice"):
        found.function("twice")
    known = found.codes(["twice", "missing"])
    both = known["twice"]
    assert not isinstance(both, str)
    assert [code.normal for code in both] == [("ret",), ("nop", "ret")]
    assert known["missing"] == "vmlinux has no function of that name"
    with pytest.raises(SpecError, match="has no function missing"):
        found.function("missing")


def test_numbers_that_only_look_like_addresses_stay(tmp_path: Path) -> None:
    # mov $0xffffffffffffff9f,%rax; movabs $0x7fffffffffffffff,%rdx; ret
    code = bytes.fromhex("48c7c09fffffff 48baffffffffffffff7f c3".replace(" ", ""))
    found = opened(tmp_path, kernel_image.kernel([("T", "f", code)]))
    assert found.function("f").normal == (
        "mov $0xffffffffffffff9f,%rax", "movabs $0x7fffffffffffffff,%rdx", "ret",
    )  # fmt: skip


def feature_test(at: int, field: int, bit: int, yes: int, no: int) -> bytes:
    """testb $bit,field(%rip); jne yes; jmp no, to lie at an address."""
    return (
        b"\xf6\x05" + struct.pack("<i", field - (at + 7)) + bytes([bit])
        + b"\x0f\x85" + struct.pack("<i", yes - (at + 13))
        + b"\xe9" + struct.pack("<i", no - (at + 18))
    )  # fmt: skip


def branching(entry: int, bit: int = 4) -> bytes:
    """A kernel whose `work` jumps to the entry of that number behind the end of init's code."""
    work = kernel_image.BASE + 16
    field, target = work + 32, work + 16
    first = field + 16
    entries = b"".join(
        feature_test(first + 18 * number, field, bit, target, work) for number in range(entry + 1)
    )
    jump = b"\xe9" + struct.pack("<i", first + 18 * entry - (work + 5))
    return kernel_image.kernel(
        [
            ("t", "", b"\x90" * 16), ("T", "work", jump), ("T", "slow", b"\xc3"),
            ("D", "boot_cpu_data", bytes(16)), ("T", "_einittext", entries),
        ]
    )  # fmt: skip


def test_tests_of_a_cpu_feature_are_named_by_what_they_test(tmp_path: Path) -> None:
    """Where the linker put them depends on all code that has one."""
    codes = [
        opened(tmp_path, branching(entry), f"at{entry}").function("work").normal
        for entry in (0, 1, 5)
    ]
    assert codes[0] == ("jmp [boot_cpu_data & 0x4 ? slow : work]",)
    assert codes[0] == codes[1] == codes[2]
    other = opened(tmp_path, branching(1, bit=8), "bit8").function("work").normal
    assert other == ("jmp [boot_cpu_data & 0x8 ? slow : work]",)


# Two listings side by side: every instruction once, and branches by where they go


DATA = Path(__file__).resolve().parent / "data" / "codegen"


def code(*lines: str) -> Code:
    """Instructions of one byte; "je @3" is a branch to the third."""
    made = []
    for at, line in enumerate(lines):
        text, at_sign, to = line.partition("@")
        made.append(
            Instruction(
                offset=at, size=1, text=text + at_sign, raw=line,
                kind=Flow.JUMP if at_sign else Flow.PLAIN, to=int(to) if at_sign else None,
            )
        )  # fmt: skip
    return Code(name="f", size=len(made), instructions=tuple(made))


def changes(rows: list[AlignedRow]) -> Counter[Change]:
    return Counter(row.change for row in rows)


def test_an_insertion_moves_targets_and_changes_nothing_else() -> None:
    left = code("a", "je @3", "b", "c")
    found = compare(left, code("a", "je @4", "b", "new", "c"))
    assert changes(found) == {Change.EQUAL: 4, Change.RIGHT: 1}


def test_the_same_branch_to_another_place_is_seen() -> None:
    found = compare(code("a", "je @2", "b", "c"), code("a", "je @3", "b", "c"))
    assert [row.change for row in found] == [
        Change.EQUAL, Change.TARGET, Change.EQUAL, Change.EQUAL,
    ]  # fmt: skip


def test_hunks_have_context_and_leave_out_the_rest() -> None:
    lines = [str(number) for number in range(30)]
    (hunk,) = hunks(compare(code(*lines), code(*[*lines[:10], "x", *lines[11:]])), 2)
    assert [row.left for row in hunk] == [8, 9, 10, 11, 12]


def test_the_real_difference_is_one_row() -> None:
    left, right = (
        objects.read(DATA / f"{name}.gcc-14.elf", "mincore_pte_range").code
        for name in ("original", "no-batch")
    )
    assert changes(compare(left, right)) == {Change.EQUAL: 146, Change.CHANGED: 1}
    assert {*changes(compare(left, left))} == {Change.EQUAL}


listings = st.lists(
    st.sampled_from(["a", "b", "c", "je @0", "je @1", "jmp @2"]), min_size=3, max_size=25
)


@given(listings, listings)
def test_every_instruction_is_in_one_row_and_in_order(left: list[str], right: list[str]) -> None:
    one, other = code(*left), code(*right)
    found = compare(one, other)
    assert [row.left for row in found if row.left is not None] == list(range(len(left)))
    assert [row.right for row in found if row.right is not None] == list(range(len(right)))
    assert ({*changes(found)} == {Change.EQUAL}) == (one.normal == other.normal)


def test_repetitions_of_names_count() -> None:
    change = changed_names(["lock", "put"], ["lock", "lock", "get"])
    assert [*change["added"].items()] == [("get", 1), ("lock", 1)]
    assert [*change["removed"].items()] == [("put", 1)]
    assert changed_names(["a", "b"], ["b", "a"]) == {"added": {}, "removed": {}}


# `kdelta codegen` and `kdelta tools compiler` as a user meets them, on images made here


BANNER = b"Linux version 6.1.%d-test (kd@kd) (gcc (Debian 12.2.0-1) 12.2.0, GNU ld 2.40) #1\n\0"
# xor %eax,%eax; L: add $1,%rax; cmp %rdi,%rax; jne L; ret
LOOP = bytes.fromhex("31c0 4883c001 4839f8 75f7 c3".replace(" ", ""))
# the same with a test in the loop
LONGER = bytes.fromhex("31c0 4883c001 a808 4839f8 75f5 c3".replace(" ", ""))


@pytest.fixture
def kernels(tmp_path: Path) -> str:
    """Two kernels, as --kernels takes them."""
    paths = []
    for number, code in enumerate((LOOP, LONGER), 1):
        path = tmp_path / f"vmlinux-{number}"
        parts = [("T", "scan", code), ("r", "linux_banner", BANNER % number)]
        path.write_bytes(kernel_image.kernel(parts))
        paths.append(f"file:{path}")
    return ",".join(paths)


def test_two_images_are_compared(kernels: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = ended(capsys, "codegen", "scan", "--kernels", kernels, "--side-by-side")
    assert said.status == 0, said.err
    assert f"{len(LOOP)}/5 A" in said.out
    assert f"{len(LONGER)}/6 B" in said.out
    assert "5 rows equal, 0 changed (!), 0 with another target (~), 0 only left" in said.out
    assert "test $0x8,%al" in said.out
    assert "6.1.1-test" in said.out


def test_json(kernels: str, capsys: pytest.CaptureFixture[str]) -> None:
    content = json.loads(ended(capsys, "codegen", "scan", "--kernels", kernels, "--json").out)
    assert content["function"] == "scan"
    assert [cell["code"]["instructions"] for cell in content["cells"]] == [5, 6]


def test_a_kernel_without_the_function_is_told(
    kernels: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "vmlinux-3"
    other.write_bytes(kernel_image.kernel([("r", "linux_banner", BANNER % 3)]))
    done = ended(capsys, "codegen", "scan", "--kernels", f"{kernels},file:{other}")
    assert done.status == 0
    assert "6.1.3-test has no function scan" in " ".join(done.out.split())
    done = ended(capsys, "codegen", "absent", "--kernels", kernels)
    assert (done.status, "has no function absent" in done.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("scan",), "either --source or --kernels"),
        (("scan", "--source", "x", "--kernels", "6.1"), "either --source or --kernels"),
        (("scan", "--kernels", "6.1", "--compilers", "gcc-12"), "belong to --source"),
        (("scan", "--kernels", "6.1", "--variants", "a"), "belong to --source"),
        (("scan", "--source", "deb:6.17.8"), "write OBJECT:FUNCTION"),
    ],
)
def test_wrong_usage(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = ended(capsys, "codegen", *arguments)
    assert (done.status, words in done.err) == (2, True)
