# SPDX-License-Identifier: GPL-2.0-or-later
"""What lies between a good and a bad end: commits in rows, and their kernels; releases in order.

The user's repository is only read, and nothing is checked out in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from debian.debian_support import Version

from kdelta.archive.apt import Progress
from kdelta.archive.index import upstream_of
from kdelta.bisect.journal import Point
from kdelta.errors import InfraError, SpecError
from kdelta.kernels import debian, reference
from kdelta.kernels.kernel import Flavour, Kernel
from kdelta.procfs import series_number
from kdelta.source import build, git, tree_reference
from kdelta.source import tree as trees
from kdelta.source.tree_reference import TreeReference

_FIELDS = "%H%x00%P%x00%an%x00%ae%x00%aI%x00%s"
_MOST_TEXT = 200


@dataclass(frozen=True, slots=True)
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


class History:
    """The commits that lead from a good one to a bad one."""

    def __init__(self, source: Path, good: str, bad: str, *, paths: Sequence[str] = ()) -> None:
        """source: the user's repository; good, bad: commits of it, as git takes them.

        paths: only commits that touch these are searched.  Raises SpecError when there is no such
        commit, good does not lead to bad, or nothing between them touches the paths.
        """
        self._source = source
        self.good, self.bad = (trees.of_commit(source, name).commit for name in (good, bad))
        if self.good == self.bad:
            raise SpecError(f"{good} and {bad} are the same commit", action="name two")
        ahead = git.ask(source, "merge-base", "--is-ancestor", self.good, self.bad)
        if ahead.returncode > 1:
            raise InfraError(f"git cannot read the history: {ahead.last_words}")
        if ahead.returncode:
            action = "name a good commit from which the history leads to the bad one: stable"
            action += " releases are on branches of their own, v6.16 and v6.17 are not"
            raise SpecError(f"{good} is not an ancestor of {bad}", place=str(source), action=action)
        span = f"{self.good}..{self.bad}"
        walk = self._lines("rev-list", "--topo-order", "--parents", span)
        lines = [line.split() for line in walk]
        self._parents = {commit: tuple(parents) for commit, *parents in lines}
        self._places = {commit: at for at, (commit, *_) in enumerate(reversed(lines), 1)}
        self._places[self.good] = 0
        self._searched = frozenset(self._parents)
        if paths:
            self._searched = frozenset(
                self._lines("rev-list", "--full-history", span, "--", *paths)
            )
        if not self._searched:
            cause = f"no commit from {good} to {bad} touches {', '.join(paths)}"
            action = "name other files with --path"
            raise SpecError(cause, place=str(source), action=action)

    def __len__(self) -> int:
        """Commits that are searched."""
        return len(self._searched)

    def row(self, tip: str, outside: frozenset[str] = frozenset()) -> list[tuple[str, int]]:
        """The first parents from tip back, the oldest first, without those `outside`: each with
        the number of the commits that are searched which it brings.

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
            brought = self.reached(commit, seen)
            seen |= brought
            row.append((commit, len(brought & self._searched)))
        return [each for each in row[:-1] if each[1]] + row[-1:]

    def reached(self, commit_id: str, seen: Collection[str] = ()) -> frozenset[str]:
        """The commits after good that lead to one, itself included, without those of `seen`."""
        found: set[str] = set()
        left = [commit_id]
        while left:
            at = left.pop()
            if at in self._parents and at not in seen and at not in found:
                found.add(at)
                left += self._parents[at]
        return frozenset(found)

    def place(self, commit_id: str) -> float:
        """Where a commit stands in the history; what is not of it, a parent from before good."""
        return self._places.get(commit_id, 0.5)

    def commit(self, commit_id: str) -> Commit:
        """All about one commit; its texts are bounded."""
        out = self._lines("log", "-1", "--no-show-signature", f"--format={_FIELDS}", commit_id)
        fields = "\n".join(out).split("\0")
        if len(fields) != 6:
            raise InfraError(f"git does not show commit {commit_id}", place=str(self._source))
        found, parents, *texts = fields
        return Commit(found, tuple(parents.split()), *(text[:_MOST_TEXT] for text in texts))

    def _lines(self, *arguments: str) -> list[str]:
        done = git.ask(self._source, *arguments)
        if done.returncode:
            raise InfraError(
                f"git {arguments[0]} failed: {done.last_words}", place=str(self._source)
            )
        return done.stdout.splitlines()


class Built(NamedTuple):
    """A kernel of a commit; seconds: that its build took, 0: it was in the cache."""

    kernel: Kernel
    seconds: float


Builder = Callable[[str], Built]
"""The kernel of a commit.

Raises SourceError when it does not build, InfraError when this machine is at fault.
"""


def tree_builder(source: Path, how: TreeReference, *, progress: Progress | None = None) -> Builder:
    """Builds commits of `source` in one warm build directory; how: its configuration and compiler.

    Raises SpecError.
    """
    packaged = partial(reference.packaged_config, progress=progress)
    config = tree_reference.configured(how, packaged)
    chain = build.compiler(how.compiler, progress=progress)

    def built(commit_id: str) -> Built:
        tree = trees.of_commit(source, commit_id)
        begun = time.monotonic()
        made = build.build(tree, config, chain, progress=progress)
        kernel = reference.of_build(f"tree:{source}@{commit_id}", made)
        return Built(kernel, 0.0 if made.cached else round(time.monotonic() - begun, 1))

    return built


# ---- releases ---------------------------------------------------------------------------------

# Beside a whole release of mainline, how likely a stable point release brings the change.
_POINT_RELEASE = 0.02


def between(
    offers: Sequence[debian.KernelOffer],
    good: str,
    bad: str,
    *,
    arch: str,
    flavour: Flavour,
) -> tuple[Point, ...]:
    """The releases from good to bad, both included; backwards when bad is the older one.

    good, bad: references, as `kdelta run` takes them.  Of several packages of one upstream version
    only the newest; all of one compiler, when the ends are.  Raises SpecError for references that
    are not in the archive, or are one kernel.
    """
    first, last = debian.choose_together((good, bad), offers, arch, flavour)
    if first == last:
        raise SpecError(
            f"{good} and {bad} are the same kernel, {first.version}",
            action="name a good and a bad one; see what there is with: kdelta kernels list",
        )
    low, high = sorted((first, last), key=_order)
    inside = [
        offer
        for offer in sorted(offers, key=_order)
        if _order(low) < _order(offer) < _order(high)
        and (first.compiler != last.compiler or offer.compiler in ("", first.compiler))
    ]
    newest = {offer.upstream: offer for offer in inside}
    ends = {low.upstream, high.upstream}
    chosen = [low, *(offer for name, offer in newest.items() if name not in ends), high]
    names = [offer.upstream for offer in chosen]
    releases = tuple(
        Point(
            key=f"deb:{offer.version}",
            label=offer.version if names.count(offer.upstream) > 1 else offer.upstream,
        )
        for offer in chosen
    )
    return releases if first == low else releases[::-1]


def package_version(point: Point) -> str:
    """Version of a point's package."""
    return point.key.removeprefix("deb:")


def tags(good: Point, bad: Point) -> tuple[str, str]:
    """Tags between which a history of commits runs through the change.

    Point releases of one series follow each other; those of two series are on branches of their
    own, and the change is on mainline between the releases that these began with.
    """
    whole = _series(good) == _series(bad)

    def tag(point: Point) -> str:
        name = upstream_of(package_version(point))
        return f"v{name}" if whole or "-rc" in name else "v{}.{}".format(*_series(point))

    return tag(good), tag(bad)


def weights(points: Sequence[Point]) -> list[float]:
    """How likely the change is between each release and the next, for search.next_step.

    A release of mainline has some 13000 commits and a point release some hundred, so where a
    series begins is where to look first.
    """
    found = []
    for one, other in pairwise(_series(point) for point in points):
        low, high = sorted((one, other))
        # The number of the last minor release is not in the version: 6.19 to 7.0 is 1.
        releases = high[1] - low[1] if low[0] == high[0] else 1 + high[1]
        found.append(float(releases) or _POINT_RELEASE)
    return found


def _order(offer: debian.KernelOffer) -> tuple[object, object]:
    """Upstream version first: a package of an older upstream may have been made later."""
    whole = Version(offer.version)
    return Version(whole.upstream_version or ""), whole


def _series(point: Point) -> tuple[int, int]:
    return series_number(package_version(point))
