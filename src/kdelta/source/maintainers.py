# SPDX-License-Identifier: GPL-2.0-or-later
"""Who a mail about files goes to: a kernel tree's own get_maintainer.pl is asked.

It is the one program of a tree that is started, and only when the tree is named for that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kdelta import process
from kdelta.errors import InfraError, SpecError
from kdelta.printable import printable
from kdelta.source import git

_SCRIPT = "scripts/get_maintainer.pl"
_TIMEOUT_S = 120.0
_ROLE = re.compile(r"(.*?)\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)$")
_FIRST = ("maintainer", "supporter")
_MOST = 40  # people; more is a mistake


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipients:
    """to: those who maintain the files; cc: the rest."""

    to: tuple[str, ...]
    cc: tuple[str, ...]


def recipients(tree: Path, files: Sequence[str]) -> Recipients:
    """Who is to hear of files of a tree.  Raises SpecError, InfraError."""
    script = tree / _SCRIPT
    if not script.is_file():
        raise SpecError(
            f"not a kernel tree: it has no {_SCRIPT}",
            place=str(tree),
            action="name one with --tree",
        )
    argv = ["perl", str(script.resolve()), "--no-git", "--no-git-fallback", "--rolestats"]
    done = process.run([*argv, "-f", *files], timeout=_TIMEOUT_S, cwd=tree, check=False)
    if done.returncode:
        raise InfraError(f"get_maintainer.pl failed: {printable(done.last_words)}", place=str(tree))
    to: list[str] = []
    cc: list[str] = []
    for line in done.stdout.splitlines()[:_MOST]:
        match = _ROLE.match(line.strip())
        who, role = (match[1], match[2]) if match else (line.strip(), "")
        if "@" in who:
            (to if role.startswith(_FIRST) else cc).append(printable(who))
    return Recipients(to=tuple(to), cc=tuple(cc))


def as_fixed(tree: Path, commit: str) -> str:
    """A commit as `Fixes:` writes it: 12 digits and its subject.  Raises SpecError."""
    done = git.ask(tree, "log", "-1", "--abbrev=12", '--format=%h ("%s")', f"{commit}^{{commit}}")
    if done.returncode or not commit or commit.startswith("-"):
        raise SpecError(
            f"the tree has no commit {printable(commit, 80)}",
            place=str(tree),
            action="fetch it there, or name another with --introduced",
        )
    return printable(done.stdout.strip(), 300)
