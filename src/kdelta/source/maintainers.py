# SPDX-License-Identifier: GPL-2.0-or-later
"""Who a mail about files goes to: a kernel tree's own get_maintainer.pl is asked.

It is the one program of a tree that is started, and only when the tree is named for that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
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


def recipients(tree: Path, files: Sequence[str]) -> tuple[list[str], list[str]]:
    """To: those who maintain files of a tree; Cc: the rest.  Raises SpecError, InfraError."""
    script = tree / _SCRIPT
    if not script.is_file():
        action = "name one with --tree"
        raise SpecError(f"not a kernel tree: it has no {_SCRIPT}", place=str(tree), action=action)
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
    return to, cc


def as_fixed(tree: Path, commit: str) -> str:
    """A commit as `Fixes:` writes it: 12 digits and its subject.  Raises SpecError."""
    done = git.ask(tree, "log", "-1", "--abbrev=12", '--format=%h ("%s")', f"{commit}^{{commit}}")
    if done.returncode or not commit or commit.startswith("-"):
        cause = f"the tree has no commit {printable(commit, 80)}"
        action = "fetch it there, or name another with --introduced"
        raise SpecError(cause, place=str(tree), action=action)
    return printable(done.stdout.strip(), 300)
