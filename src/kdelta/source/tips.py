# SPDX-License-Identifier: GPL-2.0-or-later
"""What is new at the tip of somebody's git tree, and which of it is to be counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kdelta.errors import SpecError
from kdelta.source import git, tree_reference

_MOST_OLDER = 64  # commits that were counted, of which the nearest older one is looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A git tree that is watched.  added: its configuration and the like, from the first "+" on."""

    folder: Path
    branch: str
    added: str

    def reference(self, commit: str) -> str:
        """What names a commit of it in a study."""
        return f"{tree_reference.PREFIX}{self.folder}@{commit}{self.added}"

    def commit(self, reference: str) -> str:
        """The commit that such a reference names, "" when it is of another tree or built so not."""
        start = self.reference("").removesuffix(self.added)
        if not reference.startswith(start) or not reference.endswith(self.added):
            return ""
        found = reference.removeprefix(start).removesuffix(self.added)
        return found if found.isalnum() else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Commits to be counted, oldest first, the tip last.

    before: the counted commit beside which they stand, "" for none.  merges: that are new.
    rewritten: that commit is not in the tip's history.
    """

    tip: str
    before: str
    commits: tuple[str, ...]
    merges: int
    rewritten: bool


def watched(text: str) -> Watched:
    """Take PATH[@BRANCH][+ADDITION...] apart.  Raises SpecError, naming what is wrong."""
    found = tree_reference.parse(tree_reference.PREFIX + text)
    if found.path is None:
        raise SpecError(
            "a release of the archive has no new commits",
            place=text,
            action="name the folder of a git tree",
        )
    return Watched(
        folder=found.path.absolute(),
        branch=found.commit or "HEAD",
        added=tree_reference.added(tree_reference.PREFIX + text),
    )


def news(tree: Watched, counted: Sequence[str], *, most: int) -> Arrivals:
    """What is new.  counted: commits, the newest first; most: merges to count, the tip among them.

    Of more merges than that those are counted which part them evenly.
    Raises SpecError when the tree has no such branch.
    """
    word = f"{tree.branch}^{{commit}}"
    tip = _asked(tree.folder, "rev-parse", "--verify", "--quiet", "--end-of-options", word)
    if not tip:
        raise SpecError(
            f"it has no commit {tree.branch}",
            place=str(tree.folder),
            action="name a git tree, and after an @ a branch of it",
        )
    known = [
        one
        for one in counted[:_MOST_OLDER]
        if one != tip and _holds(tree.folder, "cat-file", "-e", f"{one}^{{commit}}")
    ]
    older = next(
        (one for one in known if _holds(tree.folder, "merge-base", "--is-ancestor", one, tip)), ""
    )
    before = older or next(iter(known), "")
    merges: list[str] = []
    if older:
        span = ("--first-parent", "--min-parents=2", "--reverse", f"{older}..{tip}")
        merges = _asked(tree.folder, "rev-list", *span).split()
    line = [*(one for one in merges if one != tip), tip]
    return Arrivals(
        tip=tip,
        before=before,
        commits=tuple(_spread(line, most)),
        merges=len(merges),
        rewritten=bool(before and not older),
    )


def _spread(line: Sequence[str], most: int) -> Sequence[str]:
    """So many of them, evenly, the last one among them."""
    if len(line) <= most:
        return line
    return [line[(at + 1) * len(line) // most - 1] for at in range(most)]


def _asked(folder: Path, *words: str) -> str:
    done = git.ask(folder, *words)
    return done.stdout.strip() if done.returncode == 0 else ""


def _holds(folder: Path, *words: str) -> bool:
    return git.ask(folder, *words).returncode == 0
