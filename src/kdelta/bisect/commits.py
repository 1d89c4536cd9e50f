# SPDX-License-Identifier: GPL-2.0-or-later
"""The commits from a good one to a bad one, in rows that can be searched, and their kernels.

The user's repository is only read: ours borrows its objects (git's alternates).  Nothing is checked
out in it.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kdelta import process
from kdelta.archive.apt import Progress
from kdelta.bisect.journal import Point
from kdelta.errors import InfraError, SpecError
from kdelta.kernels import reference
from kdelta.kernels.kernel import Kernel
from kdelta.source import build, git, kconfig
from kdelta.source import tree as trees
from kdelta.source.tree import SourceTree

_TIMEOUT_S = 600.0
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_FIELDS = "%H%x00%P%x00%an%x00%ae%x00%aI%x00%s"
_MOST_TEXT = 200


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

    @property
    def point(self) -> Point:
        """The commit as a point of a bisection."""
        return Point(key=self.id, label=self.short, title=self.subject)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCommit:
    """A commit of a row; weight: how many of the commits that are searched it brings."""

    commit: str
    weight: int


class History:
    """The commits that lead from a good one to a bad one."""

    def __init__(self, source: Path, good: str, bad: str, *, paths: Sequence[str] = ()) -> None:
        """source: the user's repository; good, bad: commits of it, as git takes them.

        paths: only commits that touch these are searched.  Raises SpecError when there is no such
        commit.
        """
        self._source = source
        self._folder = source
        self._names = (good, bad)
        self._paths = tuple(paths)
        self._parents: dict[str, tuple[str, ...]] = {}
        self._searched: frozenset[str] = frozenset()
        self._places: dict[str, int] = {}
        self.good, self.bad = (self._resolved(name) for name in (good, bad))

    def open(self, folder: Path) -> None:
        """Work in a repository of our own at `folder`, made anew: what lies there may not be ours.

        Raises SpecError when good does not lead to bad, or nothing between touches the paths.
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
        self._read()

    def __len__(self) -> int:
        """Commits that are searched."""
        return len(self._searched)

    @property
    def objects(self) -> Path:
        """The object directory in which all commits and trees are found."""
        return self._folder / "objects"

    def row(self, tip: str, outside: frozenset[str] = frozenset()) -> list[RowCommit]:
        """The first parents from tip back, the oldest first, without those `outside`.

        Of a change that one commit made, which is not outside, a prefix of them is good and the
        rest bad.  Those that bring none of the commits that are searched are left out; tip is not.
        """
        line = []
        while tip in self._parents and tip not in outside:
            line.append(tip)
            tip = next(iter(self._parents[tip]), "")
        seen = set(outside)
        row = []
        for commit in reversed(line):
            brought = self._reach(commit, seen)
            seen |= brought
            row.append(RowCommit(commit=commit, weight=len(brought & self._searched)))
        return [each for each in row[:-1] if each.weight] + row[-1:]

    def reached(self, commit_id: str) -> frozenset[str]:
        """The commits after good that lead to one, itself included."""
        return frozenset(self._reach(commit_id, set()))

    def place(self, commit_id: str) -> float:
        """Where a commit stands in the history; what is not of it, a parent from before good."""
        return self._places.get(commit_id, 0.5)

    def commit(self, commit_id: str) -> Commit:
        """All about one commit; its texts are bounded."""
        out = self._git("log", "-1", "--no-show-signature", f"--format={_FIELDS}", commit_id)
        fields = out.stdout.rstrip("\n").split("\0")
        if len(fields) != 6:
            raise InfraError(f"git does not show commit {commit_id}", place=str(self._source))
        found, parents, *texts = fields
        author, email, date, subject = (text[:_MOST_TEXT] for text in texts)
        return Commit(
            id=found,
            parents=tuple(parents.split()),
            author=author,
            email=email,
            date=date,
            subject=subject,
        )

    def tree(self, commit_id: str) -> str:
        """The id of a commit's tree."""
        return self._lines("rev-parse", "--verify", f"{commit_id}^{{tree}}")[0]

    def _read(self) -> None:
        """Which commits there are, with their parents, and which of them are searched."""
        span = f"{self.good}..{self.bad}"
        lines = [
            line.split() for line in self._lines("rev-list", "--topo-order", "--parents", span)
        ]
        self._parents = {commit: tuple(parents) for commit, *parents in lines}
        self._places = {commit: at for at, (commit, *_) in enumerate(reversed(lines), 1)}
        self._places[self.good] = 0
        self._searched = frozenset(self._parents)
        if self._paths:
            told = self._lines("rev-list", "--full-history", span, "--", *self._paths)
            self._searched = frozenset(told)
        if not self._searched:
            raise SpecError(
                f"no commit from {self._names[0]} to {self._names[1]} touches"
                f" {', '.join(self._paths)}",
                place=str(self._source),
                action="name other files with --path",
            )

    def _reach(self, commit_id: str, seen: set[str]) -> set[str]:
        """The commits of the history that lead to one, but for those seen."""
        found: set[str] = set()
        left = [commit_id]
        while left:
            at = left.pop()
            if at in self._parents and at not in seen and at not in found:
                found.add(at)
                left += self._parents[at]
        return found

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
        done = git.ask(self._source, "rev-parse", "--git-path", name)
        return (self._source / done.stdout.rstrip("\n")).resolve()

    def _resolved(self, name: str) -> str:
        argv = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        done = git.ask(self._source, *argv)
        found = done.stdout.strip()
        if "dubious ownership" in done.stderr:
            raise InfraError(
                "git refuses the repository because another user owns it",
                place=str(self._source),
                action="allow it with: git config --global --add safe.directory PATH",
            )
        if done.returncode or not _COMMIT.fullmatch(found):
            raise SpecError(
                f"the repository has no commit {name}",
                place=str(self._source),
                action="name a commit, a tag or a branch of it",
            )
        return found

    def _git(self, *arguments: str, check: bool = True) -> process.Completed:
        return git.run_in(self._folder, *arguments, timeout=_TIMEOUT_S, check=check)

    def _lines(self, *arguments: str) -> list[str]:
        return self._git(*arguments).stdout.splitlines()


def _remove(path: Path) -> None:
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A kernel of a commit; seconds: that its build took, 0: it was in the cache."""

    kernel: Kernel
    seconds: float


Builder = Callable[[str], Built]
"""The kernel of a commit.

Raises SourceError when it does not build, InfraError when this machine is at fault.
"""


class TreeBuilder:
    """Builds commits of one history in one warm build directory."""

    def __init__(
        self,
        history: History,
        source: Path,
        *,
        configs: Sequence[str] = (),
        fragments: Sequence[Path] = (),
        compiler: str = "",
        progress: Progress | None = None,
    ) -> None:
        """source: the user's repository.  Raises SpecError for what is no kernel's source."""
        self._history = history
        self._source = source
        self._config = kconfig.named(configs or (kconfig.DEFAULT,), fragments)
        self._chain = build.compiler(compiler, progress=progress)
        self._line = trees.of_commit(source, history.good).line
        self._progress = progress

    def __call__(self, commit_id: str) -> Built:
        """See Builder."""
        tree = SourceTree(
            name=commit_id[:12],
            tree=self._history.tree(commit_id),
            line=self._line,
            commit=commit_id,
            objects=self._history.objects,
        )
        begun = time.monotonic()
        made = build.build(tree, self._config, self._chain, progress=self._progress)
        kernel = reference.of_build(f"tree:{self._source}@{commit_id}", made)
        seconds = 0.0 if made.cached else round(time.monotonic() - begun, 1)
        return Built(kernel=kernel, seconds=seconds)
