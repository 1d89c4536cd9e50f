# SPDX-License-Identifier: GPL-2.0-or-later
"""Objects compiled again from kbuild's saved command, with a variant's files, by a real gcc."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kdelta import process
from kdelta.codegen.table import BuildFolder, check_object, command, compile_object
from kdelta.disassembly import objects
from kdelta.errors import BuildError, InfraError, SpecError
from kdelta.toolchains import Family, Toolchain

SOURCE = {
    "mm/walk.c": '#include <linux/step.h>\n#include "internal.h"\n'
    "int walk(int n) { return helper(n) + STEP + WORD; }\n",
    "mm/internal.h": "#define WORD 0x1000\nint outside(int);\n"
    "static inline int helper(int n) { return outside(n) * 3; }\n",
    "include/linux/step.h": "#define STEP 0x20\n",
    "mm/nested.c": '#include "outer.h"\nint nested(void) { return WORD; }\n',
    "mm/outer.h": '#include "internal.h"\n',
    "mm/far.c": '#include "sub/inner.h"\nint far(void) { return WORD; }\n',
    "mm/sub/inner.h": '#include "../internal.h"\n',
}


@pytest.fixture
def folder(tmp_path: Path) -> BuildFolder:
    """A source, and a build folder inside it as kdelta's builds have it, after make."""
    source = tmp_path / "src"
    for name, content in SOURCE.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(content)
    out = source / "kdelta-out"
    (out / "mm").mkdir(parents=True)
    for name in ("walk", "nested", "far"):
        words = (
            f"gcc -Wp,-MMD,mm/.{name}.o.d -I../include -I./include -O2 -fno-pie -mcmodel=kernel "
            f"-DNAME='\"mm/{name}\"' -DCOST=$$5 -I../mm -c -o mm/{name}.o ../mm/{name}.c"
        )
        (out / f"mm/.{name}.o.cmd").write_text(
            f"savedcmd_mm/{name}.o := ccache {words} ; ./tools/objtool/objtool mm/{name}.o\n\n"
            f"source_mm/{name}.o := ../mm/{name}.c\n"
        )
    program = process.which("gcc")
    assert program is not None
    chain = Toolchain(
        name="gcc-12", family=Family.GCC, version="", cc=program, tools=None, banner="gcc"
    )
    return BuildFolder(source=source, out=out, toolchain=chain)


def normal(made: Path, function: str = "walk") -> tuple[str, ...]:
    return objects.read(made, function).code.normal


def test_the_saved_command_is_repeated(folder: BuildFolder, tmp_path: Path) -> None:
    words = command(folder, "mm/walk.o", None)
    assert words[0] == "gcc"
    assert '-DNAME="mm/walk"' in words
    assert "-DCOST=$5" in words
    assert not [word for word in words if "MMD" in word or word == "-o" or "objtool" in word]
    subprocess.run([*words, "-o", str(tmp_path / "plain.o")], cwd=folder.out, check=True)
    made = compile_object(folder, "mm/walk.o", tmp_path / "t", {})
    assert made.read_bytes() == (tmp_path / "plain.o").read_bytes()


@pytest.fixture(autouse=True)
def _target(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()


@pytest.mark.parametrize(
    ("path", "old", "new", "constant"),
    [
        ("mm/walk.c", "STEP +", "STEP + 1 +", "0x1021"),
        ("mm/internal.h", "0x1000", "0x3000", "0x3020"),
        ("include/linux/step.h", "0x20", "0x44", "0x1044"),
    ],
)
def test_changed_files_come_before_the_sources(
    folder: BuildFolder, tmp_path: Path, path: str, old: str, new: str, constant: str
) -> None:
    before = {name: (folder.source / name).read_bytes() for name in SOURCE}
    changed = {path: SOURCE[path].replace(old, new).encode()}
    made = compile_object(folder, "mm/walk.o", tmp_path / "t", changed)
    assert any(constant in line for line in normal(made))
    assert {name: (folder.source / name).read_bytes() for name in SOURCE} == before


def test_an_unchanged_copy_gives_the_same_object(folder: BuildFolder, tmp_path: Path) -> None:
    (tmp_path / "u").mkdir()
    same = {"mm/walk.c": SOURCE["mm/walk.c"].encode()}
    one = compile_object(folder, "mm/walk.o", tmp_path / "t", {})
    other = compile_object(folder, "mm/walk.o", tmp_path / "u", same)
    assert normal(one) == normal(other)


def test_a_neighbour_includes_the_changed_header(folder: BuildFolder, tmp_path: Path) -> None:
    changed = {"mm/internal.h": SOURCE["mm/internal.h"].replace("0x1000", "0x3000").encode()}
    made = compile_object(folder, "mm/nested.o", tmp_path / "t", changed)
    assert any("0x3000" in line for line in normal(made, "nested"))


def test_header_that_is_reached_another_way_is_refused(folder: BuildFolder, tmp_path: Path) -> None:
    """Otherwise the variant would silently be compiled with the source's own."""
    changed = {"mm/internal.h": SOURCE["mm/internal.h"].replace("0x1000", "0x3000").encode()}
    with pytest.raises(SpecError, match=r"mm/internal\.h is included by its place beside"):
        compile_object(folder, "mm/far.o", tmp_path / "t", changed)


def test_the_compilers_error_is_told(folder: BuildFolder, tmp_path: Path) -> None:
    changed = {"mm/walk.c": b"int walk(int n) { return nothing; }\n"}
    with pytest.raises(BuildError, match=r"mm/walk\.c:1:\d+: error: .*nothing.* undeclared"):
        compile_object(folder, "mm/walk.o", tmp_path / "t", changed)


@pytest.mark.parametrize(
    "name", ["mincore.o", "../mm/walk.o", "mm/walk.c", "/mm/walk.o", "m m/a.o"]
)
def test_only_objects_of_a_tree_are_named(name: str) -> None:
    with pytest.raises(SpecError, match="not an object"):
        check_object(name)


@pytest.mark.parametrize("line", ["", "cmd := gcc", "savedcmd_mm/walk.o := gcc -c -o other.o x.c"])
def test_a_strange_command_is_not_run(folder: BuildFolder, line: str) -> None:
    (folder.out / "mm/.walk.o.cmd").write_text(f"{line}\n")
    with pytest.raises(InfraError, match=r"noted no command|not understood"):
        command(folder, "mm/walk.o", None)
    with pytest.raises(InfraError, match="noted no command"):
        command(folder, "mm/absent.o", None)


@pytest.mark.parametrize("path", ["/etc/passwd", "../outside.c"])
def test_a_variant_stays_in_the_source(folder: BuildFolder, tmp_path: Path, path: str) -> None:
    with pytest.raises(SpecError, match="not in the source"):
        compile_object(folder, "mm/walk.o", tmp_path / "t", {path: b""})
