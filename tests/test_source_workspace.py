# SPDX-License-Identifier: GPL-2.0-or-later
"""A workspace knows which files a tree changed, and how many objects were made of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdelta.source import workspace
from kdelta.source.tree import SourceTree, of_folder

MAKEFILE = "VERSION = 6\nPATCHLEVEL = 17\nSUBLEVEL = 8\nEXTRAVERSION =\n"
NOTE = """savedcmd_mm/{name}.o := gcc -I../include -c -o mm/{name}.o ../mm/{name}.c
source_mm/{name}.o := ../mm/{name}.c

deps_mm/{name}.o := \\
  ../include/linux/{header}.h \\
    $(wildcard include/config/SMP) \\

mm/{name}.o: $(deps_mm/{name}.o)
"""


def folder(place: Path, **files: str) -> SourceTree:
    for name, text in files.items():
        path = place / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return of_folder(place)


def test_files_that_another_tree_has_are_told_when_it_is_checked_out(tmp_path: Path) -> None:
    first = folder(tmp_path / "one", Makefile=MAKEFILE, Kbuild="#\n", mm__a="1\n", mm__b="1\n")
    second = folder(tmp_path / "two", Makefile=MAKEFILE, Kbuild="#\n", mm__a="2\n", mm__c="1\n")
    with workspace.opened("line") as there:
        assert there.check_out(first) == frozenset()  # nothing was there
        assert there.check_out(first) == frozenset()
        assert there.check_out(second) == {"mm/a", "mm/b", "mm/c"}
        assert (there.source / "mm/a").read_text() == "2\n"


@pytest.mark.parametrize(
    ("changed", "objects"),
    [
        ((), 0),
        (("mm/x.c",), 1),
        (("include/linux/mm.h",), 2),
        (("include/linux/mm.h", "mm/y.c", "mm/z.c"), 3),
        (("include/linux/m.h", "linux/mm.h", "Makefile"), 0),
    ],
)
def test_objects_that_are_compiled_again_are_counted(
    tmp_path: Path, changed: tuple[str, ...], objects: int
) -> None:
    (tmp_path / "mm").mkdir()
    for name, header in (("x", "mm"), ("y", "mm"), ("z", "fs")):
        (tmp_path / f"mm/.{name}.o.cmd").write_text(NOTE.format(name=name, header=header))
    (tmp_path / "mm/.built-in.a.cmd").write_text("../mm/x.c\n")
    (tmp_path / "mm/.folder.o.cmd").mkdir()
    assert workspace.outdated(tmp_path, frozenset(changed)) == objects
