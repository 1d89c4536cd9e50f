# SPDX-License-Identifier: GPL-2.0-or-later
"""A history of 64 commits over mm/ of a real kernel, with one culprit, to bisect.

    .venv/bin/python bench/kernel_history.py FOLDER [--seed N]

makes a git repository at FOLDER whose first commit is 6.17.8 with a short path for single PTEs in
mprotect().  One of the next 64 takes that path away again; one does not build and one does not
boot, each mended by the one after it; one changes nothing in the image; the others add functions
that nobody calls, to files of mm/ and often to mm/mprotect.c itself.  Its files lie in kdelta's
cache, which the repository borrows from.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from kdelta import data
from kdelta.source import git, patches, tree_reference

RELEASE = "6.17.8"
COUNT = 64
VARIANT = "mprotect-single-pte-fast-path.patch"
SLOW = "mm/mprotect.c"
OTHERS = ("mm/mincore.c", "mm/mlock.c", "mm/mremap.c", "mm/msync.c", "mm/madvise.c")
_OLD_COMMENT = "/* Set nr_ptes number of ptes, starting from idx */"
_NEW_COMMENT = "/* Set so many of the ptes, from number idx onwards */"
_CLOCK = 1_750_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A history: its commits from good (index 0) to the last, and which is what."""

    commits: tuple[str, ...]
    culprit: int
    unbuildable: int
    unbootable: int
    no_op: int


def make(folder: Path, seed: int) -> Made:
    """Make the repository; an earlier one at `folder` is replaced."""
    tree = tree_reference.of_release(RELEASE).tree
    fast = patches.applied(tree, [data.directory("variants") / VARIANT])
    repository = Repository(folder)
    contents = {name: repository.read(fast, name) for name in (SLOW, *OTHERS)}
    way = _difference(contents[SLOW], repository.read(tree, SLOW))
    roles = _roles(seed)
    chance = random.Random(seed)  # noqa: S311
    commits = [repository.commit(fast, {}, "mm: mprotect: a short path for single ptes")]
    for number in range(1, COUNT + 1):
        role = roles.get(number, "")
        before = dict(contents)
        subject = _change(contents, role, number, chance, way)
        changed = {name: text for name, text in contents.items() if text != before[name]}
        commits.append(repository.commit(commits[-1], changed, subject))
    repository.finish(commits[-1])
    at = {role: number for number, role in roles.items()}
    return Made(
        commits=tuple(commits),
        culprit=at["culprit"],
        unbuildable=at["unbuildable"],
        unbootable=at["unbootable"],
        no_op=at["no-op"],
    )


def _roles(seed: int) -> dict[int, str]:
    """Which commits are special: never the last one, and none in another's way."""
    chance = random.Random(f"roles {seed}")  # noqa: S311
    while True:
        culprit, unbuildable, unbootable, no_op = chance.sample(range(1, COUNT), 4)
        roles = {
            culprit: "culprit",
            unbuildable: "unbuildable",
            unbuildable + 1: "mended build",
            unbootable: "unbootable",
            unbootable + 1: "mended boot",
            no_op: "no-op",
        }
        if len(roles) == 6:
            return roles


def _change(
    contents: dict[str, str],
    role: str,
    number: int,
    chance: random.Random,
    way: tuple[str, str],
) -> str:
    """Change a file's text as the role wants it; the commit's subject.  way: fast, slow."""
    broken = "\n\nint mm_broken(void);\nint mm_broken(void)\n{\n\treturn no_such_name;\n}\n"
    if role == "culprit":
        contents[SLOW] = contents[SLOW].replace(*way)
        return "mm: mprotect: always take the way of batches"
    if role == "unbuildable":
        contents[SLOW] += broken
        return "mm: mprotect: count what is broken"
    if role == "mended build":
        contents[SLOW] = contents[SLOW].replace(broken, "")
        return "mm: mprotect: do not count what is broken"
    if role in ("unbootable", "mended boot"):
        name = "mm/msync.c"
        panic = (
            "\n\n#include <linux/init.h>\n#include <linux/panic.h>\n"
            'static int __init msync_check(void)\n{\n\tpanic("msync: not ready");\n}\n'
            "subsys_initcall(msync_check);\n"
        )
        added = contents[name] + panic
        contents[name] = added if role == "unbootable" else contents[name].replace(panic, "")
        return f"mm: msync: {'check' if role == 'unbootable' else 'do not check'} early"
    if role == "no-op":
        contents[SLOW] = contents[SLOW].replace(_OLD_COMMENT, _NEW_COMMENT)
        return "mm: mprotect: say it in other words"
    name = SLOW if chance.random() < 0.1 else chance.choice(OTHERS)
    contents[name] += (
        f"\n\nint mm_note_{number}(int pages);\n"
        f"noinline int mm_note_{number}(int pages)\n{{\n\treturn pages * 13 + {number};\n}}\n"
    )
    return f"{name.removesuffix('.c').replace('/', ': ')}: note {number}"


def _difference(fast: str, slow: str) -> tuple[str, str]:
    """The lines in which the two differ, as one stretch of each."""
    old, new = fast.split("\n"), slow.split("\n")
    first = next(at for at in range(len(new)) if old[at] != new[at])
    shift = 0
    while new[first:][:40] != old[first + shift :][:40] and first + shift < len(old):
        shift += 1
    if first + shift >= len(old):
        raise AssertionError("the variant is not one stretch of added lines")
    return "\n".join(old[first - 1 : first + shift + 1]), "\n".join(new[first - 1 : first + 1])


class Repository:
    """A git repository without checked-out files that borrows from kdelta's."""

    def __init__(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._folder = folder
        self._git("init", "-q", "-b", "main")
        alternates = folder / ".git" / "objects" / "info" / "alternates"
        alternates.write_text(f"{git.repository() / 'objects'}\n")
        self._clock = _CLOCK

    def read(self, tree: str, name: str) -> str:
        """The text of a file."""
        return self._git("cat-file", "blob", f"{tree}:{name}")

    def commit(self, base: str, files: dict[str, str], subject: str) -> str:
        """A commit of base's tree with other files; base: a commit, its parent, or a tree."""
        self._git("read-tree", base)
        for name, text in files.items():
            blob = self._git("hash-object", "-w", "--stdin", text=text).strip()
            self._git("update-index", "--cacheinfo", f"100644,{blob},{name}")
        tree = self._git("write-tree").strip()
        kind = self._git("cat-file", "-t", base).strip()
        return self.take(tree, base if kind == "commit" else "", subject)

    def take(self, tree: str, parent: str, subject: str) -> str:
        """A commit of a tree; parent: "" for the first."""
        self._clock += 3600
        parents = ("-p", parent) if parent else ()
        return self._git("commit-tree", tree, *parents, "-m", subject).strip()

    def finish(self, tip: str) -> None:
        """Make a commit the newest of the branch."""
        self._git("update-ref", "refs/heads/main", tip)

    def tag(self, name: str, commit: str) -> None:
        """Tag a commit."""
        self._git("tag", "-f", name, commit)

    def _git(self, *arguments: str, text: str | None = None) -> str:
        clock = f"{getattr(self, '_clock', _CLOCK)} +0000"
        who = {"NAME": "A U Thor", "EMAIL": "author@example.org", "DATE": clock}
        env = {f"GIT_{role}_{key}": who[key] for role in ("AUTHOR", "COMMITTER") for key in who}
        done = subprocess.run(
            ["git", *arguments],
            cwd=self._folder,
            env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", **env},
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout


def main() -> None:
    """Make a history and say which commits are what."""
    parser = argparse.ArgumentParser(description="Make a history of a kernel to bisect.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    made = make(chosen.folder, chosen.seed)
    lines = [f"good {made.commits[0]}", f"bad {made.commits[-1]}"]
    for role in ("culprit", "unbuildable", "unbootable", "no_op"):
        number = getattr(made, role)
        lines.append(f"{role} {made.commits[number]} (number {number})")
    sys.stdout.write("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
