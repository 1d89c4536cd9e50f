# SPDX-License-Identifier: GPL-2.0-or-later
"""A git history between two commits, and `git bisect` over it, in a repository of our own.

The user's repository is only read: ours borrows its objects (git's alternates) and has the refs,
the log and the commits that a bisection makes.  Nothing is checked out.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kdelta import process
from kdelta.bisect.search import Mark
from kdelta.errors import InfraError, SpecError
from kdelta.source import git

_TIMEOUT_S = 600.0
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_FIRST_BAD = re.compile(rf"^({_COMMIT.pattern}) is the first bad commit", re.MULTILINE)
_CANDIDATE = re.compile(rf"^({_COMMIT.pattern})$", re.MULTILINE)
_ONLY_SKIPPED = "only 'skip'ped commits left"
_NOT_ANCESTORS = "good revs are not ancestors of the bad rev"
_MERGE_BASE = "merge base"
_FIELDS = "%H%x00%P%x00%an%x00%ae%x00%aI%x00%s"
_MOST_SUBJECT = 200
_AT_ONCE = 1000  # files on one command line


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit; date: of the author, ISO 8601."""

    id: str
    parents: tuple[str, ...]
    author: str
    email: str
    date: str
    subject: str

    @property
    def short(self) -> str:
        """Twelve digits, as the kernel's Fixes: lines have them."""
        return self.id[:12]


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """Measure this commit next."""

    commit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """The first bad commit."""

    commit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The first bad commit is one of these; all but the bad one were skipped."""

    commits: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """What was marked is no history in which something changed once.  why: git's words."""

    why: str


Answer = Next | Culprit | Candidates | Contradiction


class History:
    """The commits that lead from a good one to a bad one."""

    def __init__(self, source: Path, good: str, bad: str) -> None:
        """source: the user's repository; good, bad: commits of it, as git takes them.

        Raises SpecError when there is no such commit.
        """
        self._source = source
        self._folder = source
        self._names = (good, bad)
        self.good, self.bad = (self._resolved(reference) for reference in (good, bad))

    def open(self, folder: Path) -> None:
        """Work in a repository of our own at `folder`, made anew: what lies there may not be ours.

        Raises SpecError when good does not lead to bad.
        """
        self._folder = folder.absolute()
        self._make()
        good, bad = self._names
        if self.good == self.bad:
            raise SpecError(f"{good} and {bad} are the same commit", action="name two")
        ahead = self._git("merge-base", "--is-ancestor", self.good, self.bad, check=False)
        if ahead.returncode > 1:
            raise InfraError(f"git cannot read the history: {ahead.last_words}")
        if ahead.returncode:
            raise SpecError(
                f"{good} is not an ancestor of {bad}",
                place=str(self._source),
                action="name a good commit from which the history leads to the bad one: stable"
                " releases are on branches of their own, v6.16 and v6.17 are not",
            )

    @property
    def objects(self) -> Path:
        """The object directory in which all commits and trees are found."""
        return self._folder / "objects"

    def commits(self, paths: Sequence[str] = ()) -> tuple[str, ...]:
        """Commits after good up to bad, parents before children; that touch paths, if any."""
        found = self._lines(
            "rev-list", "--topo-order", "--reverse", f"{self.good}..{self.bad}", "--", *paths
        )
        return tuple(found)

    def commit(self, commit_id: str) -> Commit:
        """All about one commit; its texts are bounded."""
        out = self._git("log", "-1", "--no-show-signature", f"--format={_FIELDS}", commit_id)
        fields = out.stdout.rstrip("\n").split("\0")
        if len(fields) != 6:
            raise InfraError(f"git does not show commit {commit_id}", place=str(self._source))
        found, parents, author, email, date, subject = fields
        return Commit(
            id=found,
            parents=tuple(parents.split()),
            author=author[:_MOST_SUBJECT],
            email=email[:_MOST_SUBJECT],
            date=date[:_MOST_SUBJECT],
            subject=subject[:_MOST_SUBJECT],
        )

    def tree(self, commit_id: str) -> str:
        """The id of a commit's tree."""
        return self._lines("rev-parse", "--verify", f"{commit_id}^{{tree}}")[0]

    def start(self, paths: Sequence[str] = ()) -> Answer:
        """Begin `git bisect` anew over the whole history, or over what touches paths."""
        self._git("bisect", "reset", check=False)
        self._git("update-ref", "--no-deref", "HEAD", self.bad)
        done = self._git("bisect", "start", "--no-checkout", self.bad, self.good, "--", *paths)
        return self._said(done)

    def mark(self, commit_id: str, mark: Mark) -> Answer:
        """Tell `git bisect` what a commit is."""
        return self._said(self._git("bisect", mark.value, commit_id, check=False))

    def pick(self, paths: Sequence[str]) -> dict[str, str]:
        """Replace the history by one of the changes to `paths` alone, on top of good.

        Each commit's change of these files is applied to the tree of good; where it does not
        apply, the files are taken as the commit has them.  The last one has them as bad has.
        Returns the commits of that history with those that they stand for, and makes good and
        bad its ends.  Raises SpecError when no commit touches the paths.
        """
        originals = self.commits(paths)
        originals = tuple(one for one in originals if len(self.commit(one).parents) == 1)
        if not originals:
            raise SpecError(
                f"no commit from {self.good[:12]} to {self.bad[:12]} changes {', '.join(paths)}",
                action="name other files with --pick",
            )
        made: dict[str, str] = {}
        parent, tree = self.good, self.tree(self.good)
        last = self._with_files(tree, self.bad, paths)
        for at, original in enumerate(originals):
            new = self._applied(tree, original, paths)
            new = last if at == len(originals) - 1 else new
            if new != tree:
                parent, tree = self._committed(new, parent, self.commit(original)), new
                made[parent] = original
        if tree == self.tree(self.good):
            raise SpecError(
                f"{', '.join(paths)} are the same in {self.good[:12]} and {self.bad[:12]}",
                action="name other files with --pick",
            )
        self.bad = parent
        return made

    def files_with(self, functions: Sequence[str], commit_id: str) -> tuple[str, ...]:
        """Files that good and a commit do not share and that seem to define one of these."""
        names = [name for name in functions if re.fullmatch(r"[A-Za-z_]\w{0,127}", name)]
        if not names:
            return ()
        pattern = rf"^[A-Za-z_][^;=]*\b({'|'.join(names)})\("
        changed = self._lines(
            "diff", "--name-only", "--no-renames", self.good, commit_id, "--", "*.c", "*.h"
        )
        found: list[str] = []
        for at in range(0, len(changed), _AT_ONCE):
            files = changed[at : at + _AT_ONCE]
            argv = ("grep", "-l", "-E", "-e", pattern, commit_id, "--", *files)
            done = self._git(*argv, check=False)
            found += [line.partition(":")[2] for line in done.stdout.splitlines()]
        return tuple(found)

    def _make(self) -> None:
        _remove(self._folder)
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        aside = self._folder.with_name(f".{self._folder.name}.new")
        _remove(aside)
        git.make(aside)
        objects = self._of_source("objects")
        (aside / "objects" / "info").mkdir(exist_ok=True)
        (aside / "objects" / "info" / "alternates").write_text(f"{objects}\n")
        shallow = self._of_source("shallow")
        if shallow.is_file():
            shutil.copyfile(shallow, aside / "shallow")
        aside.rename(self._folder)

    def _of_source(self, name: str) -> Path:
        """Where the user's repository has one of its files."""
        done = self._ask("rev-parse", "--git-path", name)
        return (self._source / done.stdout.rstrip("\n")).resolve()

    def _resolved(self, reference: str) -> str:
        done = self._ask(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{reference}^{{commit}}"
        )
        found = done.stdout.strip()
        if "dubious ownership" in done.stderr:
            raise InfraError(
                "git refuses the repository because another user owns it",
                place=str(self._source),
                action="allow it with: git config --global --add safe.directory PATH",
            )
        if done.returncode or not _COMMIT.fullmatch(found):
            raise SpecError(
                f"the repository has no commit {reference}",
                place=str(self._source),
                action="name a commit, a tag or a branch of it",
            )
        return found

    def _ask(self, *arguments: str) -> process.Completed:
        """Ask the user's repository, as its user."""
        return git.ask(self._source, *arguments)

    def _git(
        self,
        *arguments: str,
        check: bool = True,
        env: Mapping[str, str] | None = None,
    ) -> process.Completed:
        return git.run_in(self._folder, *arguments, env=env, timeout=_TIMEOUT_S, check=check)

    def _lines(self, *arguments: str, env: Mapping[str, str] | None = None) -> list[str]:
        return self._git(*arguments, env=env).stdout.splitlines()

    def _said(self, done: process.Completed) -> Answer:
        """What `git bisect` wants or found."""
        if found := _FIRST_BAD.search(done.stdout):
            return Culprit(commit=found[1])
        if _ONLY_SKIPPED in done.stdout:
            return Candidates(commits=tuple(_CANDIDATE.findall(done.stdout)))
        if done.returncode and (_NOT_ANCESTORS in done.stderr or _MERGE_BASE in done.stderr):
            return Contradiction(why=" ".join(done.stderr.split())[:_MOST_SUBJECT])
        head = self._git("rev-parse", "--verify", "--quiet", "BISECT_HEAD", check=False)
        if done.returncode or not _COMMIT.fullmatch(head.stdout.strip()):
            raise InfraError(f"git bisect stopped: {done.last_words}", place=str(self._folder))
        return Next(commit=head.stdout.strip())

    def _with_files(self, tree: str, commit_id: str, paths: Sequence[str]) -> str:
        """A tree with what a commit has at paths."""
        found = self._changed(tree, tree, commit_id, paths)
        if not found:
            raise InfraError("git cannot apply its own difference", place=str(self._folder))
        return found

    def _applied(self, tree: str, commit_id: str, paths: Sequence[str]) -> str:
        """A tree with a commit's change of paths."""
        found = self._changed(tree, f"{commit_id}^", commit_id, paths)
        return found or self._with_files(tree, commit_id, paths)

    def _changed(self, tree: str, old: str, new: str, paths: Sequence[str]) -> str:
        """A tree with the difference from old to new at paths; "": it does not apply."""
        patch = self._folder / "pick.patch"
        self._git(
            "diff-tree", "-p", "--binary", "--full-index", "--no-renames", f"--output={patch}",
            old, new, "--", *paths,
        )  # fmt: skip
        if not patch.stat().st_size:
            return tree
        env = {"GIT_INDEX_FILE": str(self._index(tree))}
        argv = ("apply", "--cached", "--whitespace=nowarn", str(patch))
        if self._git(*argv, env=env, check=False).returncode:
            return ""
        return self._lines("write-tree", env=env)[0]

    def _index(self, tree: str) -> Path:
        """An index file that holds a tree."""
        index = self._folder / "pick.index"
        index.unlink(missing_ok=True)
        self._git("read-tree", tree, env={"GIT_INDEX_FILE": str(index)})
        return index

    def _committed(self, tree: str, parent: str, original: Commit) -> str:
        """A commit of a tree that tells of the original; equal for equal ones."""
        who = {
            "GIT_AUTHOR_NAME": original.author or "unknown",
            "GIT_AUTHOR_EMAIL": original.email or "unknown",
            "GIT_AUTHOR_DATE": original.date,
            "GIT_COMMITTER_NAME": "kdelta",
            "GIT_COMMITTER_EMAIL": "kdelta@localhost",
            "GIT_COMMITTER_DATE": original.date,
        }
        message = f"{original.subject}\n\n(cherry picked from commit {original.id})\n"
        return self._lines("commit-tree", tree, "-p", parent, "-m", message, env=who)[0]


def _remove(path: Path) -> None:
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)
