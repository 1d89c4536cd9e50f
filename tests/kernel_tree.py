# SPDX-License-Identifier: GPL-2.0-or-later
"""A source tree that builds as a kernel's does, in a tenth of a second: kbuild's targets, O=,
relative paths, notes of commands, warm rebuilds.  Its image is the code of mm/mincore.c, linked."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

MAKEFILE = r"""
VERSION = 6
PATCHLEVEL = 17
SUBLEVEL = 8
EXTRAVERSION =

ifndef inside
TARGETS := tinyconfig olddefconfig bzImage mm/mincore.o
.PHONY: $(TARGETS)
$(TARGETS):
	@$(MAKE) --no-print-directory -C $(O) -f ../Makefile inside=1 $@
else
IMAGE := arch/x86/boot/bzImage
.PHONY: tinyconfig olddefconfig bzImage
tinyconfig:
	@printf 'CONFIG_TINY=y\n# CONFIG_SMP is not set\n' > .config
olddefconfig:
	@grep -v CONFIG_REFUSED .config > .config.new; mv .config.new .config
bzImage: $(IMAGE)
mm/mincore.o: ../mm/mincore.c ../include/linux/mm.h
	@echo "  CC      $@"
	@mkdir -p mm
	@$(CC) $(KCFLAGS) -O1 -I../include -c -o $@ $<
	@printf 'savedcmd_$@ := %s\n' '$(CC) -O1 -I../include -c -o $@ $<' > mm/.mincore.o.cmd
vmlinux: mm/mincore.o
	@echo "  LD      $@"
	@ld -s -e 0 -Ttext=0xffffffff81000000 -o $@ $<
$(IMAGE): vmlinux
	@mkdir -p arch/x86/boot include/config
	@cat vmlinux > $@; echo $(KBUILD_BUILD_USER) $(KBUILD_BUILD_TIMESTAMP) >> $@
	@echo 6.17.8-kdelta > include/config/kernel.release
endif
"""
MINCORE = """\
#include <linux/mm.h>

int present(int pte);

/* Counts what is there. */
int present(int pte)
{
\treturn pte + FIRST;
}
"""


def diff(new: str, old: str = "pte + FIRST") -> str:
    """A patch of MINCORE, which changes what present() returns."""
    return f"""\
diff --git a/mm/mincore.c b/mm/mincore.c
--- a/mm/mincore.c
+++ b/mm/mincore.c
@@ -5,5 +5,5 @@ int present(int pte);
 /* Counts what is there. */
 int present(int pte)
 {{
-\treturn {old};
+\treturn {new};
 }}
"""


def make(folder: Path) -> Path:
    """Write the tree into a folder."""
    files = {
        "Makefile": MAKEFILE, "Kbuild": "# nothing\n", "Kconfig": "# nothing\n",
        ".gitignore": "*.o\n/.config\n", "mm/mincore.c": MINCORE, "mm/mprotect.c": "int other;\n",
        "include/linux/mm.h": "#define FIRST 1\n",
    }  # fmt: skip
    return written(folder, files)


def written(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files, by their paths in a folder; the folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def script(path: Path, text: str) -> Path:
    """Write a program of the shell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def git(folder: Path, *arguments: str) -> str:
    """Run git in a repository of the test's."""
    return subprocess.run(
        ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *arguments], cwd=folder,
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip


def committed(folder: Path) -> Path:
    """The tree in a repository with one commit."""
    make(folder)
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=first")
    return folder


def commit(folder: Path, text: str, message: str) -> str:
    """Commit another mm/mincore.c; returns the commit."""
    (folder / "mm/mincore.c").write_text(text)
    git(folder, "commit", "--quiet", "--all", f"--message={message}")
    return git(folder, "rev-parse", "HEAD")
