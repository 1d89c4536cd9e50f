# SPDX-License-Identifier: GPL-2.0-or-later
"""What the plugin takes an instruction for by its bytes, which mean others elsewhere."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kdelta import data, process

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include "insn_bytes.h"

int main(int argc, char **argv)
{
	struct code code = { .size = argc - 2 };

	for (int i = 2; i < argc; i++)
		code.bytes[i - 2] = strtoul(argv[i], NULL, 16);
	printf("%x %d\n", mark_code(atoi(argv[1]), &code), is_return(atoi(argv[1]), &code));
	return 0;
}
"""
X86, ARM64, RISCV64 = "1", "2", "3"


@pytest.mark.skipif(process.which("gcc") is None, reason="gcc is not installed")
def test_marks_and_returns_are_those_of_the_architecture(tmp_path: Path) -> None:
    source = tmp_path / "asked.c"
    source.write_text(PROGRAM)
    program = tmp_path / "asked"
    folder = f"-I{data.directory('plugin')}"
    module = str(data.directory("plugin") / "insn_bytes.c")
    subprocess.run(["gcc", folder, str(source), module, "-o", str(program)], check=True)

    def asked(target: str, code: str) -> tuple[str, bool]:
        words = [str(program), target, *code.split()]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        mark, returns = done.stdout.split()
        return mark, returns == "1"

    iretq, eret, sret = "48 cf", "e0 03 9f d6", "73 00 20 10"
    for own, code in ((X86, iretq), (ARM64, eret), (RISCV64, sret)):
        assert [asked(each, code)[1] for each in (X86, ARM64, RISCV64)] == [
            each == own for each in (X86, ARM64, RISCV64)
        ]
    nopl, movz, lui = "0f 1f 80 02 01 64 6b", "5f 20 9a d2", "37 20 10 6b"
    marks = {X86: nopl, ARM64: movz, RISCV64: lui}
    for own, code in marks.items():
        for each in marks:
            assert (asked(each, code)[0] != "0") == (each == own), (own, each)
