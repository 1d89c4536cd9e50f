# SPDX-License-Identifier: GPL-2.0-or-later
"""What a failed make's output means: whose fault, and the first error."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdelta import arch as arches
from kdelta.errors import InfraError
from kdelta.source import make
from kdelta.source.make import SourceError
from kdelta.toolchains import Family, Toolchain

HERE = Path("/somewhere")


def failure(text: str) -> SourceError | InfraError:
    return make.failure("6.17.8", text, HERE / "log", HERE)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (
            ("  CC      mm/mincore.o\n../mm/mincore.c: In function 'x':\n"
            "../mm/mincore.c:12:5: warning: unused\n"
            "../mm/mincore.c:130:3: error: 'vec' undeclared (first use in this function)\n"
            "../mm/mincore.c:131:3: error: another\n"
            "make[4]: *** [../scripts/Makefile.build:287: mm/mincore.o] Error 1\n"),
            "../mm/mincore.c:130: 'vec' undeclared (first use in this function)",
        ),
        (
            "../mm/a.c:1:10: fatal error: linux/none.h: No such file or directory\n",
            "../mm/a.c:1: linux/none.h: No such file or directory",
        ),
        (
            ("ld: vmlinux.o: in function `do_mincore':\n"
            "mincore.c:(.text+0x1f): undefined reference to `gone'\nmake: *** Error\n"),
            "mincore.c: undefined reference to `gone'",
        ),
        ("ld: mm/a.o: file not recognized: file truncated\n",
         "mm/a.o: file not recognized: file truncated"),
        ("ld.lld: error: undefined symbol: gone\n", "undefined symbol: gone"),
        ("gcc: error: unrecognized command-line option '-fnone'\n",
         "gcc: unrecognized command-line option '-fnone'"),
        ("../mm/Makefile:7: *** missing separator.  Stop.\n",
         "../mm/Makefile:7: missing separator"),
        ("make[2]: *** No rule to make target 'mm/none.o', needed by 'mm/'.  Stop.\n",
         "No rule to make target 'mm/none.o', needed by 'mm/'"),
        ("../mm/a.c:9:1: internal compiler error: Segmentation fault\n",
         "../mm/a.c:9: internal compiler error: Segmentation fault"),
    ],
)  # fmt: skip
def test_the_source_is_blamed_with_its_first_error(text: str, first: str) -> None:
    error = failure(text)
    assert isinstance(error, SourceError)
    assert error.first == first
    assert error.sentence() == (f"6.17.8 does not build: {first}; the whole log is {HERE / 'log'}")
    assert error.exit_code == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("/tmp/cc.s: No space left on device\n../mm/a.c:1:1: error: x\n", "disk is full"),
        ("gcc: fatal error: Killed signal terminated program cc1\n", "memory ran out"),
        ("/bin/sh: 1: flex: not found\n", "apt-get install flex"),
        ("/bin/sh: line 1: bc: command not found\n", "apt-get install bc"),
        ("elf.c:16:10: fatal error: gelf.h: No such file or directory\n", "libelf-dev"),
        ("a.c:1:1: fatal error: openssl/bio.h: No such file or directory\n", "libssl-dev"),
        ("", "without saying why"),
    ],
)
def test_the_machine_is_blamed_for_what_it_lacks(text: str, words: str) -> None:
    error = failure(text)
    assert not isinstance(error, SourceError)
    assert words in error.sentence()
    assert error.exit_code == 3


def test_missing_tools_are_named_as_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "make").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path))
    make.check_tools.cache_clear()
    with pytest.raises(InfraError, match=r"apt-get install bc binutils bison flex gcc git lz4"):
        make.check_tools()
    make.check_tools.cache_clear()


def test_options_that_need_a_tool_more_name_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "dwarves" not in make.missing()
    assert "dwarves" in make.missing(frozenset({"DEBUG_INFO_BTF", "MM"}))


def test_jobs_are_bounded_by_processors() -> None:
    import os

    assert 1 <= make.jobs() <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("target", "arch"), [("arm64", "arm64"), ("riscv64", "riscv")])
def test_a_cross_compiler_is_for_its_own_architecture(target: str, arch: str) -> None:
    gnu = arches.of(target).gnu
    chain = Toolchain(
        name=f"{gnu}-gcc", family=Family.GCC, version="", cc=Path(f"/usr/bin/{gnu}-gcc"),
        tools=None, banner="", target=target,
    )  # fmt: skip
    words = make.arguments(chain)
    assert f"ARCH={arch}" in words
    assert f"CROSS_COMPILE=/usr/bin/{gnu}-" in words
    assert [word.partition("/")[2] for word in words if word.startswith("CC=")] == [
        f"usr/bin/{gnu}-gcc"
    ]


def test_a_compiler_of_this_machine_crosses_nothing() -> None:
    chain = Toolchain(name="gcc-12", family=Family.GCC, version="", cc=Path("/usr/bin/gcc-12"),
                      tools=None, banner="")  # fmt: skip
    words = make.arguments(chain)
    assert words[0] == "ARCH=x86_64"
    assert not [word for word in words if word.startswith("CROSS")]
