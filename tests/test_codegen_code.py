# SPDX-License-Identifier: GPL-2.0-or-later
"""Machine code as named instructions: from real objects, and from bytes whose meaning is known."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as replace_struct

from kdelta import arch
from kdelta.codegen.table import Cell, CodeTable
from kdelta.disassembly import objects
from kdelta.disassembly.code import (
    Code,
    Flow,
    Function,
    Piece,
    Relocation,
    Row,
    completed_pages,
    disassemble,
    named,
    parse,
    rows,
    stable,
    with_page_name,
)
from kdelta.errors import InfraError, SpecError
from kdelta.rendering import codegen
from kdelta.rendering.formats import written
from kdelta.table.columns import plain

DATA = Path(__file__).resolve().parent / "data" / "codegen"
X86 = arch.of("amd64")
FUNCTION = "mincore_pte_range"


def made(code: str, **known: Any) -> Code:
    """The function `f` of these bytes (hexadecimal)."""
    return disassemble(Function(name="f", code=bytes.fromhex(code), **known), X86)


@pytest.mark.parametrize(
    ("name", "size", "instructions"),
    [
        ("original.gcc-12", 591, 148), ("present-first.gcc-12", 619, 153),
        ("original.gcc-14", 589, 147), ("no-batch.gcc-14", 589, 147),
    ],
)  # fmt: skip
def test_sizes_are_those_of_nm_and_objdump(name: str, size: int, instructions: int) -> None:
    found = objects.read(DATA / f"{name}.elf", FUNCTION)
    assert found.code.name == FUNCTION
    assert found.cold is None
    assert (found.code.size, len(found.code.instructions)) == (size, instructions)
    assert sum(instruction.size for instruction in found.code.instructions) == size


def test_calls_and_data_have_the_names_that_relocations_give_them() -> None:
    code = objects.read(DATA / "original.gcc-12.elf", FUNCTION).code
    words = ("readelf", "-rsW", str(DATA / "original.gcc-12.elf"))
    listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    start = int(re.search(rf"([0-9a-f]{{16}}) .* {FUNCTION}$", listed, re.MULTILINE)[1], 16)  # type: ignore[index]
    rows = re.findall(r"^([0-9a-f]{16}) +\S+ R_X86_64_(\w+) +\S+ ([\w.]+)", listed, re.MULTILINE)
    inside = [row for row in rows if start <= int(row[0], 16) < start + code.size]
    called = sorted(name for _, kind, name in inside if kind == "PLT32")
    # A static function of the same section needs no relocation: the assembler knew where it is.
    assert sorted(code.calls) == sorted([*called, "__mincore_unmapped_range"])
    assert code.data == ("__ref_stack_chk_guard", "__ref_stack_chk_guard", "swapper_spaces")
    assert "add swapper_spaces(,%rax,8),%rdi" in code.normal


FEATURE = """\
	.text
	.globl	work
	.type	work, @function
work:	jmp	6f
2:	testb	$1, balancing(%rip)
	cmpl	$70000, balancing+8(%rip)
	ret
3:	nop
	ret
	.size	work, .-work
	.section .altinstr_aux, "ax"
	nop
6:	testb	$4, boot_cpu_data+0x72(%rip)
	jnz	2b
	jmp	3b
"""


def test_the_test_of_a_feature_has_the_name_that_an_image_gives_it(tmp_path: Path) -> None:
    """static_cpu_has() of an object was `.altinstr_aux+0x1`, and so no code of any kernel."""
    source, made_ = tmp_path / "f.s", tmp_path / "f.o"
    source.write_text(FEATURE)
    subprocess.run(["gcc", "-c", str(source), "-o", str(made_)], check=True)
    code = objects.read(made_, "work").code
    assert code.normal[0] == "jmp [boot_cpu_data+0x72 & 0x4 ? work+0x5 : work+0x17]"
    # An immediate behind an address is a part of what the address is relative to.
    assert code.normal[1:3] == (
        "testb $0x1,balancing(%rip)", "cmpl $0x11170,balancing+0x8(%rip)"
    )  # fmt: skip


def test_branches_inside_count_by_instruction() -> None:
    code = objects.read(DATA / "original.gcc-12.elf", FUNCTION).code
    branches = [i for i in code.instructions if i.to is not None]
    assert branches
    for branch in branches:
        assert branch.to is not None
        target = code.instructions[branch.to].offset
        assert int(branch.raw.split()[-1], 16) == target + 0x290  # where the function starts
        assert branch.shown == f"{branch.text}{branch.to}"


def test_the_same_code_elsewhere_is_the_same() -> None:
    # test %eax,%eax; je +2; inc %eax; call +0x100; ret
    code = "85c0 7402 ffc0 e800010000 c3"
    called = {0x10B: "helper", 0x410B: "helper", 0x20B: "other"}
    first, second = (
        made(code, start=start, names=lambda a: called.get(a, "")) for start in (0, 0x4000)
    )
    assert first.normal == second.normal == (
        "test %eax,%eax", "je @3", "inc %eax", "call helper", "ret",
    )  # fmt: skip
    assert first.instructions[3].kind is Flow.CALL
    assert made(code, start=0x100, names=lambda a: called.get(a, "")).normal != first.normal


@pytest.mark.parametrize(
    ("code", "relocation", "text"),
    [
        ("488b0500000000", Relocation(offset=3, name="jiffies"), "mov jiffies(%rip),%rax"),
        ("48c7c700000000", Relocation(offset=3, name="table"), "mov $table,%rdi"),
        ("488b04c500000000", Relocation(offset=4, name="table"), "mov table(,%rax,8),%rax"),
        # Both fields are 0: the displacement comes first, then the immediate.
        ("48c704c50000000000000000", Relocation(offset=4, name="t"), "movq $0x0,t(,%rax,8)"),
        ("48c704c50000000000000000", Relocation(offset=8, name="t"), "movq $t,0x0(,%rax,8)"),
        ("e800000000", Relocation(offset=1, name="memset"), "call memset"),
        ("7400", Relocation(offset=1, name="f", inside=0), "je @"),
    ],
)  # fmt: skip
def test_a_field_that_the_linker_fills_is_its_symbol(
    code: str, relocation: Relocation, text: str
) -> None:
    assert made(code, relocations={relocation.offset: relocation}).instructions[0].text == text


def test_padding_after_the_end_is_no_code() -> None:
    found = made("c3" + "cc" * 5 + "662e0f1f840000000000")
    assert found.normal == ("ret",)
    assert found.size == 1
    with pytest.raises(SpecError, match="padding only"):
        made("90" * 8)


HEAD = "\nx:     file format elf64-x86-64\n\n\nDisassembly of section .f0:\n\n0000 <.f0>:\n"


@pytest.mark.parametrize(
    "text",
    [
        "   0:\tret\n   0:\tret\n",  # not ascending
        "   4:\tret\n",  # does not begin at the start
        "",
        "   0:\tret\nrm -rf /\n",
        "   0:\tret\n   9:\tret\n",  # beyond the end
        "   0:\tret\nDisassembly of section .f1:\n   1:\tret\n",  # of no piece
    ],
)
def test_what_objdump_does_not_say_is_refused(text: str) -> None:
    with pytest.raises(InfraError, match="objdump"):
        parse(HEAD + text, [Piece(start=0, code=bytes(8))])
    with pytest.raises(InfraError, match="not understood"):
        parse(text or "x", [Piece(start=0, code=bytes(8))])


def test_comments_and_places_are_not_part_of_an_instruction() -> None:
    text = HEAD + "  10:\tmov    0x8(%rip),%rax        # 1f <.f0+0xf>\n  17:\tjne    10 <.f0>\n"
    ((load, branch),) = parse(text, [Piece(start=16, code=bytes(9))])
    assert (load.text, load.address, load.size) == ("mov 0x8(%rip),%rax", 0x1F, 7)
    assert (branch.text, branch.address, branch.size) == ("jne 0x10", None, 2)


def test_many_pieces_are_what_each_is_alone() -> None:
    high = 0xFFFFFFFF81000000
    codes = ("c3", "e8fbffffff 7400 c3", "488b0510000000 c3", "e9aabbccdd")
    pieces = [
        Piece(start=high + 0x1000 * number, code=bytes.fromhex(code))
        for number, code in enumerate(codes)
    ]
    together = rows(pieces, X86)
    assert together == tuple(rows([piece], X86)[0] for piece in pieces)
    assert together[1][0].text == f"call {high + 0x1000:#x}"
    assert together[2][0].address == high + 0x2017
    assert rows([], X86) == ()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("descriptor.12", "descriptor"), ("__func__.3.4", "__func__"),
        ("__UNIQUE_ID_ddebug730.6", "__UNIQUE_ID_ddebug"),
        ("__BTF_ID__struct__sock__194211780", "__BTF_ID__struct__sock__"),
        ("jiffies_64", "jiffies_64"), ("v1.2x", "v1.2x"),
    ],
)  # fmt: skip
def test_numbers_that_compilers_count_are_no_names(name: str, shown: str) -> None:
    assert stable(name) == shown


def test_a_function_that_is_not_there_says_what_may_be() -> None:
    with pytest.raises(SpecError, match="no function nothing: it may be inlined"):
        objects.read(DATA / "original.gcc-12.elf", "nothing")


@pytest.mark.parametrize("cut", [0, 3, 70, 900, 4000])
def test_a_damaged_object_is_an_error(tmp_path: Path, cut: int) -> None:
    broken = tmp_path / "broken.o"
    broken.write_bytes((DATA / "original.gcc-12.elf").read_bytes()[:cut])
    with pytest.raises((InfraError, SpecError)):
        objects.read(broken, FUNCTION)


def test_clones_and_cold_parts_are_found(tmp_path: Path) -> None:
    source = tmp_path / "f.c"
    source.write_text(
        "void cold_call(const char *) __attribute__((cold));\n"
        "__attribute__((noinline)) static int wanted(int a, int b) {\n"
        '  if (__builtin_expect(a == 7, 0)) cold_call("seven\\n");\n  return a * 3; }\n'
        "int f(int x) { return wanted(x, 1) + wanted(x + 2, 1); }\n"
    )
    made = tmp_path / "f.o"
    subprocess.run(
        ["gcc", "-O2", "-fno-pic", "-fno-pie", "-mcmodel=kernel", "-c", "-o", str(made),
         str(source)], check=True,
    )  # fmt: skip
    found = objects.read(made, "wanted")
    assert found.code.name.startswith("wanted")
    whole = (*found.code.normal, *(found.cold.normal if found.cold else ()))
    assert any("cold_call" in line for line in whole)
    assert any('"seven\\n"' in line for line in whole)


PAGE = 0xFFFF800081234000


LOW, ADDED = f"adrp x0, {PAGE:#x}", "add x0, x0, #0x230"
BOTH = {0: PAGE + 0x230, 2: PAGE + 0x230}


@pytest.mark.parametrize(
    ("texts", "targets", "found"),
    [
        ([LOW, "nop", ADDED, "ldr x1, [x0, #8]"], set(), BOTH),
        ([f"adrp x21, {PAGE:#x}", "ldr w0, [x21, #64]", "str w0, [x21, #72]", "ldrb w2, [x21]"],
         set(), {0: PAGE + 64, 1: PAGE + 64, 2: PAGE + 72, 3: PAGE}),
        # The register was written again.
        *(([LOW, between, ADDED], set(), {}) for between in (
            "mov x0, x5", "ldr x0, [x9]", "ldp x1, x0, [sp]", "bl 0xffff800080000000", "blr x3")),
        # It was only read.
        *(([LOW, between, "add x2, x0, #0x230"], set(), BOTH) for between in (
            "str x0, [x9]", "cmp x0, x1", "mov x1, x0", "stp x1, x0, [sp]")),
        # Behind the target of a branch nothing is certain.
        ([LOW, "nop", ADDED], {1}, {}), ([LOW, "nop", ADDED], {0}, BOTH),
    ],
)  # fmt: skip
def test_a_page_and_its_offset_are_one_address(
    texts: list[str], targets: set[int], found: dict[int, int]
) -> None:
    assert completed_pages(texts, targets) == found


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (f"adrp x0, {PAGE:#x}", "adrp x0, jiffies"), ("add x0, x0, #0x230", "add x0, x0, jiffies"),
        ("ldr w1, [x0, #8]", "ldr w1, [x0, jiffies]"), ("ldr w1, [x0]", "ldr w1, [x0, jiffies]"),
    ],
)  # fmt: skip
def test_the_numbers_become_the_name(text: str, named: str) -> None:
    assert with_page_name(text, "jiffies") == named


START = 0xFFFFFFFF80010000


def texts(*rows: tuple[str, int | None]) -> list[str]:
    """What instructions of 4 bytes look like; rows: as objdump says them, and its comment."""
    built = [
        Row(offset=4 * at, size=4, text=text, address=address)
        for at, (text, address) in enumerate(rows)
    ]
    function = Function(
        name="f", code=bytes(4 * len(built)), start=START,
        names=lambda place: {0x1010: "jiffies", 0x2020: "callee"}.get(place, ""),
    )  # fmt: skip
    return [each.text for each in named(function, built, arch.of("riscv64")).instructions]


@pytest.mark.parametrize(
    ("rows", "shown"),
    [
        ([("auipc a5,0x10", None), ("ld a4,16(a5)", 0x1010)], ["auipc a5", "ld a4,jiffies(a5)"]),
        ([("auipc a1,0x30", None), ("add a1,a1,4", 0x1010)], ["auipc a1", "add a1,a1,jiffies"]),
        ([("auipc ra,0x1", None), ("jalr 8(ra)", 0x2020)], ["auipc ra", "jalr callee(ra)"]),
        ([("auipc t1,0x1", None), ("jr 8(t1)", 0x2020)], ["auipc t1", "jr callee(t1)"]),
        # Else two functions that mean places 4 KiB apart would look the same.
        *(([("auipc a5,0x10", None), ("ld a4,16(a5)", at)], ["auipc a5,0x10", "ld a4,16(a5)"])
          for at in (None, 0x3030)),
        # Of two upper halves the one of the register is completed.
        ([("auipc a3,0x20", None), ("auipc a5,0x10", None), ("auipc a3,0x21", None),
          ("sd a3,16(a5)", 0x1010), ("ld a2,32(a3)", 0x2020)],
         ["auipc a3,0x20", "auipc a5", "auipc a3", "sd a3,jiffies(a5)", "ld a2,callee(a3)"]),
    ],
)  # fmt: skip
def test_both_halves_of_an_address_are_one_name(
    rows: list[tuple[str, int | None]], shown: list[str]
) -> None:
    assert texts(*rows) == shown


# How a matrix looks as text, JSON and HTML; and what it says of equal and different code


def code(name: str) -> Code:
    return objects.read(DATA / f"{name}.elf", FUNCTION).code


def cell(row: str, column: str) -> Cell:
    return Cell(row=row, column=column, code=code(f"{row}.{column}"))


def matrix() -> CodeTable:
    broken = Cell(row="no-batch", column="gcc-12", problem="mm/mincore.c:1:1: error: <b>&")
    return CodeTable(
        function=FUNCTION, place="mm/mincore.o", title="6.17.8, configuration deb",
        rows=("original", "present-first", "no-batch"), columns=("gcc-12", "gcc-14"),
        banners={"gcc-12": "gcc-12 (Debian) 12.2.0", "gcc-14": "gcc-14 (Debian) 14.2.0"},
        cells=(cell("original", "gcc-12"), cell("original", "gcc-14"),
               cell("present-first", "gcc-12"),
               Cell(row="present-first", column="gcc-14", problem="not made for this test"), broken,
               cell("no-batch", "gcc-14")),
        notes=("a note",),
    )  # fmt: skip


Check = Callable[[str, str], None]


def test_the_tables(golden: Check) -> None:
    golden("codegen/matrix.txt", plain(codegen.show(matrix())))


def test_side_by_side(golden: Check) -> None:
    made = matrix()
    first = made.cell("original", "gcc-12")
    shown = plain(codegen.differences(first, made.cell("present-first", "gcc-12")))
    golden("codegen/side-by-side.txt", shown)
    assert max(len(line) for line in shown.splitlines()) <= 100


def test_json_has_it_all_and_null_where_nothing_is_known() -> None:
    content = written("json", codegen, matrix())
    assert json.loads(content)["format"] == 1
    cells = {(row["row"], row["column"]): row for row in json.loads(content)["cells"]}
    listing = cells["original", "gcc-12"]["code"]["listing"]
    assert [row["text"] for row in listing] == list(code("original.gcc-12").normal)
    assert cells["present-first", "gcc-14"]["code"] is None
    assert cells["no-batch", "gcc-14"]["same_code"] == "B"


def test_equal_code_has_the_same_letter() -> None:
    made = matrix()
    assert made.groups("gcc-14") == {"original": "A", "no-batch": "B"}
    same = replace(made.cell("original", "gcc-14"), row="no-batch")
    cells = tuple(same if (c.row, c.column) == ("no-batch", "gcc-14") else c for c in made.cells)
    assert replace(made, cells=cells).groups("gcc-14") == {"original": "A", "no-batch": "A"}


def test_more_compilers_than_fit_take_another_table() -> None:
    made = matrix()
    names = tuple(f"gcc-{number}" for number in range(10, 25))
    first = made.cells[0]
    wide = replace(
        made, rows=("original",), columns=names,
        cells=tuple(replace(first, column=name) for name in names),
    )  # fmt: skip
    shown = plain(codegen.show(wide)).splitlines()
    assert max(map(len, shown)) <= 100
    assert sum(line.count("591/148 A") for line in shown) == len(names)


def test_everything_that_is_shown_is_escaped() -> None:
    evil = "\x1b[31mred"
    made = matrix()
    first = made.cells[0]
    assert first.code is not None
    instruction = replace_struct(first.code.instructions[0], text=evil, references=(evil,))
    changed = replace(first.code, instructions=(instruction, *first.code.instructions[1:]))
    spoiled = replace(
        made, function=evil, title=evil, place=evil, banners={"gcc-12": evil}, notes=(evil,),
        cells=(replace(first, code=changed, problem=evil), *made.cells[1:]),
    )  # fmt: skip
    shown = plain(codegen.show(spoiled))
    assert "\x1b" not in shown
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", shown)
