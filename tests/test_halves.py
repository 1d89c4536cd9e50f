# SPDX-License-Identifier: GPL-2.0-or-later
"""arm64 functions whose addresses are made far from where they are completed, and what differs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from kdelta import process
from kdelta.disassembly import identity
from kdelta.disassembly.code import Flow, Instruction
from kdelta.disassembly.image import Image
from kdelta.disassembly.kallsyms import Table
from kdelta.kernels.image import unpacked_kernel

CROSS = "aarch64-linux-gnu-gcc"
OLD, NEW = 0x10000, 0x14000
# What lies where in the old kernel; 0x4230 bytes further in the new one.
PLACES, SHIFT = (0x30010, 0x30020, 0x31000), 0x4230


def same(x: int, y: int) -> bool:
    return x in PLACES and y == x + SHIFT


def listed(texts: list[str], shift: int = 0) -> list[Instruction]:
    """Instructions; "PAGE 0x30010" and "LOW 0x30010" are halves, "@3" goes to the fourth."""

    def half(match: re.Match[str]) -> str:
        address = int(match[2], 16) + shift
        return f"{address & ~0xFFF:#x}" if match[1] == "PAGE" else f"#{address & 0xFFF:#x}"

    found = []
    for number, text in enumerate(texts):
        to = re.search(r"@(\d+)", text)
        raw = re.sub(r"(PAGE|LOW) (0x[0-9a-f]+)", half, text.replace("@", "0x"))
        kind = Flow.CALL if raw.startswith("bl ") else Flow.JUMP if to else Flow.PLAIN
        index = int(to[1]) if to else None
        found.append(Instruction(offset=4 * number, size=4, text=raw, raw=raw, kind=kind, to=index))
    return found


def alike(texts: list[str], other: list[str] | None = None) -> bool:
    one, two = listed(texts), listed(other or texts, SHIFT)
    return identity.same_instructions(one, two, same, lambda at: one[at].text == two[at].text)


LATER = ["adrp x19, PAGE 0x30010", "bl 0x9", "cbz x0, @4", "ret", "add x0, x19, LOW 0x30010", "ret"]
COPIED = ["adrp x1, PAGE 0x30010", "mov x20, x1", "bl 0x9", "ldr x0, [x20, LOW 0x30010]", "ret"]
SPILLED = ["adrp x1, PAGE 0x30010", "stp x1, x0, [sp, #32]", "bl 0x9", "ldr x2, [sp, #32]",
           "str w3, [x2, LOW 0x30010]", "ret"]  # fmt: skip
EITHER = ["adrp x3, PAGE 0x30010", "cbz x0, @3", "adrp x3, PAGE 0x30010",
          "add x3, x3, LOW 0x30010", "ret"]  # fmt: skip
BY_TABLE = ["adrp x5, PAGE 0x31000", "br x0", "ldrb w0, [x5, LOW 0x31000]", "ret"]


@pytest.mark.parametrize("code", [LATER, COPIED, SPILLED, EITHER, BY_TABLE])
def test_halves_that_are_far_apart_are_one_place(code: list[str]) -> None:
    assert alike(code)


@pytest.mark.parametrize("code", [LATER, COPIED, SPILLED, BY_TABLE])
@pytest.mark.parametrize("half", ["PAGE", "LOW"])
def test_another_place_is_a_difference(code: list[str], half: str) -> None:
    """One half of the new kernel's means something else."""
    other = [re.sub(rf"{half} 0x3(\w)0(\w\w)", rf"{half} 0x3\g<1>1\g<2>", text) for text in code]
    if half == "PAGE":
        other = [re.sub(r"PAGE 0x3\w", "PAGE 0x38", text) for text in code]
    assert other != code
    assert not alike(code, other)


@pytest.mark.parametrize("page", [0, 2])
def test_each_page_that_a_register_may_hold_is_looked_at(page: int) -> None:
    other = list(EITHER)
    other[page] = "adrp x3, PAGE 0x39010"
    assert not alike(EITHER, other)


@pytest.mark.parametrize(
    "code",
    [
        ["adrp x0, PAGE 0x30010", "ret"],
        ["adrp x0, PAGE 0x30010", "cmp x0, x1", "add x0, x0, LOW 0x30010", "ret"],
        ["adrp x0, PAGE 0x30010", "str x0, [x1, #8]", "add x0, x0, LOW 0x30010", "ret"],
        ["adrp x0, PAGE 0x30010", "movk x0, #0x1", "add x0, x0, LOW 0x30010", "ret"],
        ["adrp x0, PAGE 0x30010", "bl 0x9", "add x0, x0, LOW 0x30010", "ret"],
        ["adrp x0, PAGE 0x30010", "str x0, [sp, #8]", "sub sp, sp, #0x10", "ldr x0, [sp, #8]",
         "add x0, x0, LOW 0x30010", "ret"],
    ],
    ids=["open", "compared", "stored", "changed", "lost in a call", "another frame"],
)  # fmt: skip
def test_what_is_not_certain_is_a_difference(code: list[str]) -> None:
    assert not alike(code)


def test_other_instructions_have_to_be_the_same() -> None:
    assert not alike(LATER, [*LATER[:3], "nop", *LATER[4:]])
    assert not alike(LATER, LATER[:-1])


PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
int main(int count, char **words)
{
	time_t now = time(0);

	qsort(words, count, sizeof(*words), (void *)getenv);
	return printf("%s %s", asctime(localtime(&now)), words[0]);
}
"""


def linked(folder: Path, before: int) -> Image:
    """A program and its C library as a kernel, behind so many other bytes of each kind."""
    (folder / "main.c").write_text(PROGRAM)
    names = f"const char text[{before}] = {{ 1 }}; char data[{before}] = {{ 1 }}, bss[{before}];"
    code = f'void first(void) {{ __asm__ volatile(".skip {before}"); }}'
    (folder / "first.c").write_text(f"{names}\n{code}\n")
    low = "-Wl,-Ttext-segment=0xffff800080000000"
    argv = [CROSS, "-O2", "-static", "-w", low, "first.c", "main.c", "-o", f"k{before}"]
    process.run(argv, timeout=120, cwd=folder)
    path = folder / f"k{before}"
    rows = []
    with path.open("rb") as stream:
        file = ELFFile(stream)
        table = file.get_section_by_name(".symtab")
        assert isinstance(table, SymbolTableSection)
        for symbol in table.iter_symbols():
            section, kind = symbol["st_shndx"], symbol["st_info"]["type"]
            if isinstance(section, int) and kind in ("STT_FUNC", "STT_OBJECT", "STT_NOTYPE"):
                code_of = file.get_section(section)["sh_flags"] & 4
                if symbol.name and not symbol.name.startswith("$"):
                    rows.append((symbol["st_value"], "T" if code_of else "D", symbol.name))
    starts, kinds, labels = (tuple(column) for column in zip(*sorted(rows), strict=True))
    return Image(unpacked_kernel(path), Table(starts, kinds, labels), path.name)


@pytest.mark.program
@pytest.mark.skipif(process.which(CROSS) is None, reason=f"{CROSS} is not installed")
def test_a_whole_c_library_that_moved_is_the_same_but_for_a_few(tmp_path: Path) -> None:
    """Of some 1300 functions that are the same, 1 % at most look changed; 5 % did by halves."""
    old, new = linked(tmp_path, 64), linked(tmp_path, 5000)
    found = identity.difference(old, new)
    assert len(old.extents()) > 1000
    assert "first" in found.changed
    assert (found.added, found.removed) == ((), ())
    assert len(found.changed) <= len(old.extents()) // 100
