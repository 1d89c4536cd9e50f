# SPDX-License-Identifier: GPL-2.0-or-later
"""The commits between two releases that may make a step, and what each of them does to its path."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from kdelta.archive.apt import Progress
from kdelta.check import commit as commits
from kdelta.check.compare import Counter
from kdelta.errors import InfraError, SpecError
from kdelta.kernels import reference
from kdelta.procfs import series_number
from kdelta.source import git
from kdelta.source.tree_reference import Variant
from kdelta.transplant import objects, releases
from kdelta.verdict.comparison import Verdict

_WHOLE = 0.8  # share of a step from which no other commit is tried
_MOST = 8  # commits that are counted
_TRIES = 4  # times as many are tried: what does not compile or boot takes minutes, too
_HUNK = re.compile(r"^(?:@@ [^@]* @@|[+-])(.*)", re.MULTILINE)
_LOG = ("log", "--no-merges", "--no-show-signature", "--no-ext-diff", "--no-textconv", "--no-color")


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """What a commit does to a path.

    functions: of the change, that its diff is in or names.  base: the release in which it was
    undone, "" where it was not.  beside: how many newer ones were undone with it, since it cannot
    be undone alone.  change: what the path has more with it, in instructions per operation.
    reason: why that is not known, or not decided; both None and "" where it was not tried.
    """

    name: str
    title: str
    functions: tuple[str, ...] = ()
    base: str = ""
    beside: int = 0
    change: float | None = None
    reason: str = ""

    def share(self, step: float) -> float:
        """How much of a step it surely is: 1 all, less than 0 the other way."""
        return 0.0 if self.reason else (self.change or 0.0) / step


def touching(tree: Path, old: str, new: str, functions: Sequence[str]) -> list[Undone]:
    """The commits from old to new that change the C files that define functions.

    None is tried.  Those in the functions, or that name them, come first, and of each kind the
    newest.  old, new: of the repository at `tree`.  Raises SpecError where it has no such interval
    or no such function.
    """
    files = [f"{name[:-2]}.c" for name in objects.defining(functions, tree, new)]
    if not files:
        cause = f"no C file of {new} defines {', '.join(functions)}"
        action = "search without files: kdelta bisect commits"
        raise SpecError(cause, place=str(tree), action=action)
    found = listed(tree, functions, f"{old}..{new}", "--", *files)
    return sorted(found, key=lambda one: not one.functions)


def listed(tree: Path, functions: Sequence[str], *which: str) -> list[Undone]:
    """Commits, in git's order, each with those of the functions that its diff is in or names.

    which: words of git log.  Raises SpecError where it has none of these.
    """
    done = git.ask(tree, *_LOG, "-U0", "-p", "--format=%x00%H %s", *which)
    if done.returncode:
        raise SpecError(f"git lists no {which[0]}: {done.last_words}", place=str(tree))
    found = []
    for part in done.stdout.split("\0")[1:]:
        head, _, diff = part.partition("\n")
        name, _, title = head.partition(" ")
        said = {*re.findall(r"\w+", "\n".join(_HUNK.findall(diff)))}
        own = tuple(each for each in functions if each in said)
        found.append(Undone(name=name[:12], title=title, functions=own))
    return found


def nearest(series: str, progress: Progress) -> str:
    """A release of a series or, where the archive has no source of it, of the next one.

    Raises InfraError.
    """
    offered = (one.series for one in reference.listing(progress=progress) if not one.is_candidate)
    for name in dict.fromkeys(offered):
        if series_number(name) >= series_number(series):
            with contextlib.suppress(InfraError, SpecError):
                ground = releases.ground_of(name, progress=progress)
                return f"deb:{ground.kernel.version}"
    raise InfraError(f"the archive has no source of {series} or a later series")


def undone(
    found: Sequence[Undone],
    tree: Path,
    base: str,
    scenario: str,
    step: float,
    counter: Counter,
    *,
    progress: Progress,
    most: int = _MOST,
) -> Iterator[Undone]:
    """Each commit undone in a release, until one explains the step; then those that were not tried.

    step: in instructions per operation.  most: commits that are counted.  Raises InfraError.
    """

    def done(one: Undone, asked: commits.AskedCommit, beside: Sequence[Variant]) -> Undone:
        """beside: what is undone on both sides."""
        try:
            executed = partial(Counter.executed, counter, scenarios=[scenario])
            how: dict[str, Any] = {"executed": executed, "confined": False, "progress": progress}
            placed, made = commits.on_release(asked, base, beside, **how)
            if not placed.undone:
                return replace(one, reason=f"{placed.series.base.name} is without it")
            said = commits.answer(placed, made, [scenario], counter, lambda _at: None, count=True)
        except SpecError as error:
            return replace(one, reason=error.cause)
        undone = replace(one, base=said.base, beside=len(beside), change=0.0)
        if row := next(iter(said.paths), None):
            known = row.before is not None and row.after is not None
            is_open = commits.VERDICTS[row.change] is Verdict.UNDECIDED
            change = (row.after or 0.0) - (row.before or 0.0) if known else None
            return replace(undone, change=change, reason=row.reason if is_open else "")
        why = next(iter(said.skipped.values()), "")
        return replace(undone, change=None, reason=why) if why else undone

    newer: list[Variant] = []
    tries = _TRIES * most
    for at, one in enumerate(found):
        if not most or at >= tries:
            yield one
            continue
        progress(f"undoing {one.name}", 100 * at / len(found))
        asked = commits.asked(one.name, tree)
        made = done(one, asked, ())
        if newer and not made.base:  # what came later may be in its way
            again = done(one, asked, newer)
            made = again if again.base else made
        if made.base:
            newer.append(replace(asked.variant, name=f"undo-{one.name}", undone=True))
        yield made
        most = 0 if made.share(step) >= _WHOLE else most - bool(made.base)
