# SPDX-License-Identifier: GPL-2.0-or-later
"""A user's own build: what is none is refused, what is made of it is right, and it is only read."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import kernel_tree
from kdelta.cli.main import cli
from kdelta.errors import SpecError
from kdelta.source import own_build, tree_reference
from kdelta.source.tree import SourceTree, of_folder

FIX = kernel_tree.diff("pte + 2 * FIRST")
NAME_SPACES = ["--user", "--map-root-user"] if os.geteuid() else []


@pytest.fixture
def overlays(tmp_path: Path) -> None:
    for name in ("lower", "upper", "work"):
        (tmp_path / name).mkdir()
    option = "userxattr," + ",".join(f"{name}dir={name}" for name in ("lower", "upper", "work"))
    argv = ["unshare", *NAME_SPACES, "--mount", "mount", "-t", "overlay", "x", "lower", "-o"]
    if subprocess.run([*argv, option], cwd=tmp_path, check=False, capture_output=True).returncode:
        pytest.skip("no overlay can be mounted here")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A build in a folder of its source, made as a user makes it."""
    source = kernel_tree.make(tmp_path / "linux")
    folder = source / "out"
    folder.mkdir()
    make = ["make", f"O={folder}", "CC=gcc"]
    for target in ("tinyconfig", "bzImage"):
        subprocess.run([*make, target], cwd=source, check=True, capture_output=True)
    banner = subprocess.run(["gcc", "--version"], check=True, capture_output=True, text=True).stdout
    first = banner.partition("\n")[0]
    files = {
        "Makefile": f"include {source}/Makefile\n",
        ".config": "CONFIG_X86_64=y\n",
        "include/generated/compile.h": f'#define LINUX_COMPILER "{first}, GNU ld 2"\n',
        "init/.main.o.cmd": "savedcmd_init/main.o := gcc -O1 -c -o init/main.o ../init/main.c\n",
    }
    return kernel_tree.written(folder, files)


def base_and_patched(folder: Path) -> tuple[own_build.OwnBuild, SourceTree, SourceTree]:
    base, fix = of_folder(folder.parent), folder.parent.parent / "fix.patch"
    fix.write_text(FIX)
    patched = tree_reference.applied(base, [tree_reference.of_word(str(fix))])
    return own_build.read(folder), base, patched


def state(folder: Path) -> list[object]:
    """Everything below a folder that a write could change."""
    paths = sorted([folder, *folder.rglob("*")])
    content = [path.read_bytes() for path in paths if path.is_file()]
    seen = [path.lstat() for path in paths]
    return [paths, content, [(one.st_ino, one.st_mtime_ns, one.st_ctime_ns) for one in seen]]


def code(image: Path) -> str:
    return subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", image], check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.usefixtures("overlays")
def test_make_goes_on_with_what_a_patch_touches_and_writes_nothing_there(folder: Path) -> None:
    own, base, patched = base_and_patched(folder)
    own_build.check_source(own, base)
    before = state(folder.parent)
    image, release = own_build.made(own, base, patched, confined=False)
    assert state(folder.parent) == before
    assert release == "6.17.8-kdelta"
    assert "0x2(%rdi)" in code(image)
    assert "0x1(%rdi)" in code(own.image)
    again, _ = own_build.made(own, base, base, confined=False)
    assert code(again).partition("\n\n")[2] == code(own.image).partition("\n\n")[2]
    # Of what no patch touches nothing is made.
    (folder.parent / "mm/mincore.c").write_text("#error\n")
    os.utime(folder.parent / "mm/mincore.c", (1, 1))
    own.config.touch()
    with own_build.opened(own) as maker:
        maker.run(["bzImage"])


@pytest.mark.usefixtures("overlays")
def test_a_patched_object_is_compiled_beside_the_build(folder: Path) -> None:
    own, base, patched = base_and_patched(folder)
    before = state(folder.parent)
    sizes = []
    with own_build.opened(own) as maker:
        for tree in (base, patched, base):
            made = maker.desk / "made.o"
            with own_build.changed_to(tree, base, maker) as other:
                assert not other.compiled("mm/mincore.o", made).returncode
            sizes.append("0x2(%rdi)" in code(made))
        # Compilers see it read-only.
        for place in (own.source, own.folder):
            argv = maker.isolated(["touch", str(place / "new")], place, writable=False)
            assert subprocess.run(argv, check=False, capture_output=True).returncode
    assert sizes == [False, True, False]
    # Patched files are seen over the source, wherever the build is.
    own = replace(own, folder=shutil.copytree(folder, folder.parent.parent / "a-build"))
    with own_build.opened(own) as maker, own_build.changed_to(patched, base, maker):
        for name, count in ((own.source / "mm/mincore.c", 1), (own.folder / "mm/mincore.c", 0)):
            argv = maker.isolated(["grep", "2 [*] FIRST", str(name)], own.source, writable=True)
            seen = subprocess.run(argv, check=False, capture_output=True, text=True).stdout
            assert seen.count("2 * FIRST") == count
    assert state(folder.parent) == before
    assert not maker.desk.exists()


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        (".config", None, r"no whole build of a kernel: /.*/\.config: No such file"),
        ("arch/x86/boot/bzImage", None, "no whole build of a kernel: /.*/bzImage: No such file"),
        ("init/.main.o.cmd", None, r"no whole build of a kernel: /.*/init/\.main\.o\.cmd: No such"),
        ("Makefile", "include /absent/Makefile\n", "its source is not at /absent"),
        ("Makefile", "include /with, comma/Makefile\n", "/with, comma cannot be overlaid"),
        (
            "include/generated/compile.h",
            '#define LINUX_COMPILER "gcc (Other) 9.9.9, GNU ld"\n',
            r"was made by gcc \(Other\) 9\.9\.9, and gcc is gcc",
        ),
        ("include/generated/compile.h", "\n", "was made by an unknown compiler"),
        (
            "init/.main.o.cmd",
            "savedcmd_init/main.o := gcc-absent -c -o init/main.o ../init/main.c\n",
            "and gcc-absent is none",
        ),
    ],
)
def test_what_is_no_whole_build_of_this_machine_is_refused(
    folder: Path, name: str, text: str | None, why: str
) -> None:
    (folder / name).unlink()
    if text is not None:
        (folder / name).write_text(text)
    with pytest.raises(SpecError, match=why):
        own_build.read(folder)


def test_the_source_of_a_build_has_to_be_the_base(folder: Path, tmp_path: Path) -> None:
    own, base, patched = base_and_patched(folder)
    with pytest.raises(SpecError, match=r"not the base .*: mm/mincore\.c differs"):
        own_build.check_source(own, patched)
    other = of_folder(kernel_tree.committed(tmp_path / "other"))
    own_build.check_source(own, other)  # the same files, in a repository
    (folder.parent / "notes.txt").write_text("beside it\n")
    own_build.check_source(own, base)


def test_a_build_is_given_alone(folder: Path) -> None:
    words = ["check", __file__, "--base", str(folder.parent), "--build", str(folder)]
    ended = CliRunner().invoke(cli, [*words, "--config", "min"])
    assert "--build has a configuration and an architecture of its own" in str(ended.exception)
