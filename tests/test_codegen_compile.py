# SPDX-License-Identifier: GPL-2.0-or-later
"""Objects compiled again from kbuild's saved command, by a real gcc."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kdelta import process
from kdelta.codegen import table
from kdelta.errors import InfraError, SpecError
from kdelta.source import kconfig
from kdelta.source.build import Beside
from kdelta.source.make import Make
from kdelta.source.tree import SourceTree
from kdelta.toolchains import Family, Toolchain
from kernel_tree import written

SOURCE = {
    "mm/walk.c": '#include <linux/step.h>\n#include "internal.h"\n'
    "int walk(int n) { return helper(n) + STEP + WORD; }\n",
    "mm/internal.h": "#define WORD 0x1000\nint outside(int);\n"
    "static inline int helper(int n) { return outside(n) * 3; }\n",
    "include/linux/step.h": "#define STEP 0x20\n",
}


@pytest.fixture
def maker(tmp_path: Path) -> Make:
    """A source, and a build folder inside it as kdelta's builds have it, after make."""
    source = written(tmp_path / "src", SOURCE)
    out = source / "kdelta-out"
    (out / "mm").mkdir(parents=True)
    words = (
        "gcc -Wp,-MMD,mm/.walk.o.d -I../include -I./include -O2 -fno-pie -mcmodel=kernel "
        "-DNAME='\"mm/walk\"' -DCOST=$$5 -I../mm -c -o mm/walk.o ../mm/walk.c"
    )
    (out / "mm/.walk.o.cmd").write_text(
        f"savedcmd_mm/walk.o := {words} ; ./tools/objtool/objtool mm/walk.o\n\n"
        "source_mm/walk.o := ../mm/walk.c\n"
    )
    program = process.which("gcc")
    assert program is not None
    chain = Toolchain(name="gcc-12", family=Family.GCC, cc=program, tools=None, banner="gcc")
    log = tmp_path / "log"
    return Make(source=source, output=out, chain=chain, title="a source", log=log, busy=0)


def beside(maker: Make, *changed: str) -> Beside:
    others = frozenset((maker.source / name).resolve() for name in changed)
    return Beside(maker=maker, source=maker.source, changed=others)


def test_a_file_that_is_read_where_another_should_be_is_an_error(
    maker: Make, tmp_path: Path
) -> None:
    assert not beside(maker, "mm/other.h").compiled("mm/walk.o", tmp_path / "made.o").returncode
    with pytest.raises(InfraError, match=r"mm/walk\.o reads \S*internal\.h by a way"):
        beside(maker, "mm/internal.h").compiled("mm/walk.o", tmp_path / "made.o")


def test_the_saved_command_is_repeated(
    maker: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = list[str]()
    real = process.run

    def noted(argv: list[str], **how: object) -> process.Completed:
        ran.extend(argv)
        return real(argv, **how)  # type: ignore[arg-type]

    monkeypatch.setattr("kdelta.source.build.process.run", noted)
    made = tmp_path / "made.o"
    assert not beside(maker).compiled("mm/walk.o", made).returncode
    words = ran[ran.index("gcc") :]
    assert '-DNAME="mm/walk"' in words
    assert "-DCOST=$5" in words
    assert [word for word in words if "MMD" in word] == [f"-Wp,-MMD,{made.with_suffix('.d')}"]
    assert "objtool" not in " ".join(words)
    plain = [*words[: words.index("-o")], "../mm/walk.c", "-o", str(tmp_path / "plain.o")]
    subprocess.run(plain, cwd=maker.output, check=True)
    assert made.read_bytes() == (tmp_path / "plain.o").read_bytes()
    assert not (maker.output / "mm/walk.o").exists()


@pytest.mark.parametrize(
    ("path", "old", "new", "constant"),
    [
        ("mm/walk.c", "STEP +", "STEP + 1 +", "0x1021"),
        ("mm/internal.h", "0x1000", "0x3000", "0x3020"),
        ("include/linux/step.h", "0x20", "0x44", "0x1044"),
    ],
)
def test_a_cell_has_the_code_of_the_source_as_it_is(
    maker: Make, path: str, old: str, new: str, constant: str
) -> None:
    (maker.source / path).write_text(SOURCE[path].replace(old, new))
    cell = table.compiled(beside(maker), "mm/walk.o", "walk", "variant")
    assert cell.code is not None
    assert any(constant in line for line in cell.code.normal)
    assert (cell.row, cell.column) == ("variant", "gcc-12")


def test_the_compilers_error_is_told(maker: Make) -> None:
    (maker.source / "mm/walk.c").write_text("int walk(int n) { return nothing; }\n")
    cell = table.compiled(beside(maker), "mm/walk.o", "walk", "variant")
    assert "mm/walk.o does not compile with gcc-12: " in cell.problem
    assert "mm/walk.c:1:26: error: " in cell.problem


@pytest.mark.parametrize(
    "name", ["mincore.o", "../mm/walk.o", "mm/walk.c", "/mm/walk.o", "m m/a.o"]
)
def test_only_objects_of_a_tree_are_named(name: str) -> None:
    tree = SourceTree(name="a", tree="1", line="a")
    with pytest.raises(SpecError, match="not an object"):
        table.of_sources([tree], ["original"], name, "walk", config=kconfig.named(), chains=[])


@pytest.mark.parametrize("line", ["", "cmd := gcc", "savedcmd_mm/walk.o := gcc -c -o other.o x.c"])
def test_a_strange_command_is_not_run(maker: Make, tmp_path: Path, line: str) -> None:
    (maker.output / "mm/.walk.o.cmd").write_text(f"{line}\n")
    with pytest.raises(InfraError, match=r"noted no command|not understood"):
        beside(maker).compiled("mm/walk.o", tmp_path / "made.o")
    with pytest.raises(InfraError, match="noted no command"):
        beside(maker).compiled("mm/absent.o", tmp_path / "made.o")
