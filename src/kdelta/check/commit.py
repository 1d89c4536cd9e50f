# SPDX-License-Identifier: GPL-2.0-or-later
"""One commit: the release that has it, what it changes there, and what that does to each path.

A release that has the commit is counted as it is and with the commit undone.  A commit that none
has is put into the newest one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from kdelta import workload
from kdelta.archive.apt import Progress
from kdelta.check import series as check_series
from kdelta.check.compare import Counted, Counter, changed_code, path_row
from kdelta.check.kernels import Kernels, Transplants, transplants
from kdelta.check.page import TOLERANCE, Effect, PathRow
from kdelta.check.series import CheckedSeries, scenario_name
from kdelta.disassembly.identity import functions_of
from kdelta.errors import InfraError, KdeltaError, SpecError
from kdelta.files import path_of
from kdelta.kernels import reference
from kdelta.kernels.debian import KernelOffer
from kdelta.printable import quoted
from kdelta.procfs import series_number
from kdelta.source import git, patches, tree_reference
from kdelta.source import tree as trees
from kdelta.transplant import objects, releases
from kdelta.verdict.comparison import Verdict

_SHORT = 12
_LEFT = re.compile(r"^(?:@@ [^@]* @@ |[-+](?=\w))(.*)", re.MULTILINE)  # heads of functions
_TRIED = 3  # sources, of 150 MB each
VERDICTS = {
    Effect.MORE: Verdict.REGRESSION,
    Effect.LESS: Verdict.IMPROVEMENT,
    Effect.EQUAL: Verdict.SAME,
    Effect.SLIGHT: Verdict.SAME,
    Effect.SPREAD: Verdict.UNDECIDED,
    Effect.OPEN: Verdict.UNDECIDED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedCommit:
    """A commit of a repository, or a patch file.

    word: what stands for it behind the "+" of a reference.  since: the first tag with it, or "".
    """

    variant: tree_reference.Variant
    name: str
    title: str
    word: str
    since: str = ""


def asked(words: str, tree: Path | None) -> AskedCommit:
    """What a user names.  tree: the repository of a commit.  Raises SpecError."""
    path = path_of(words)
    if path.is_file():
        variant = tree_reference.of_word(str(path))
        with patches.reading([path]) as mails:
            return AskedCommit(variant=variant, name=path.stem, title=mails.title, word=str(path))
    if tree is None:
        action = "name a patch file, or the repository that has the commit: --tree ~/linux"
        raise SpecError(f"{quoted(words)} is no file", action=action)
    commit = trees.of_commit(tree, words).commit
    said = git.ask(tree, "log", "-1", "--no-show-signature", "--format=%s", commit)
    order = ("-c", "versionsort.suffix=-rc")
    listed = ("tag", "--sort=version:refname", "--list", "v[0-9]*", "--contains", commit)
    tags = git.ask(tree, *order, *listed).stdout.split()
    name = commit[:_SHORT]
    return AskedCommit(
        variant=tree_reference.Variant(name=name, path=tree.absolute(), target=commit),
        name=name,
        title=said.stdout.strip(),
        word=f"{tree}@{name}",
        since=next((tag for tag in tags if any(series_number(tag))), ""),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A commit on a base.  series: from the base as it is to the other state of it.

    undone: the base has the commit, the other state is without it.  passed: sentences on releases
    that were tried before.
    """

    asked: AskedCommit
    series: patches.PatchSeries
    undone: bool
    passed: tuple[str, ...] = ()


def on_source(asked: AskedCommit, tree: trees.SourceTree) -> Placed:
    """Undone on a source or, where that has not got it, put into it.  Raises SpecError."""
    why = []
    # A release of that series or later has it: it is not put in twice.
    known = (
        asked.since and not tree.commit and series_number(asked.since) <= series_number(tree.name)
    )
    for undone in (True,) if known else (True, False):
        name = f"{'undo-' * undone}{asked.name}"
        try:
            variant = replace(asked.variant, name=name, undone=undone)
            changed = tree_reference.applied(tree, [variant])
        except SpecError as error:
            why.append(error.cause)
            continue
        step = patches.SeriesStep(asked.title, "", changed)
        series = patches.PatchSeries(title=asked.title, base=tree, steps=(step,))
        return Placed(asked=asked, series=series, undone=undone)
    reasons = "; ".join(dict.fromkeys(each.partition(": ")[2] or each for each in why))
    cause = f"the patch can be neither undone nor applied: {reasons}" if why[1:] else why[0]
    action = "name a release or a source that takes it: --base"
    raise SpecError(cause, place=f"{asked.name} on {tree.title}", action=action)


def on_release(
    asked: AskedCommit,
    base: str,
    without: Sequence[tree_reference.Variant] = (),
    *,
    executed: releases.Executed | None = None,
    confined: bool,
    progress: Progress,
) -> tuple[Placed, Kernels]:
    """Put into the newest release that takes it; base: into this one.  without: undone before.
    executed: see `transplants`.

    Raises SpecError, also for what no release takes, InfraError.
    """
    names = [base] if base else _candidates(asked, reference.listing(progress=progress))
    failed: list[tuple[str, KdeltaError]] = []
    refused = 0
    while names and refused < _TRIED:
        # The first series with a commit takes it most likely, so that it is the last one tried.
        name = names.pop(-1 if asked.since and refused == _TRIED - 1 else 0)
        try:
            ground = releases.ground_of(name, progress=progress)
            refused += 1
            placed = on_source(asked, tree_reference.applied(ground.tree, without))
        except (SpecError, InfraError) as error:
            failed.append((name, error))
            continue
        try:
            made = transplants(
                placed.series, ground, None, executed, confined=confined, progress=progress
            )
        except SpecError as error:
            failed.append((name, error))
            try:
                objects.check_source(ground.tree, placed.series.steps[0].tree)
            except SpecError:
                break  # its text alone forbids it, in any release
            continue
        passed = tuple(f"{name} was passed over: {error.cause}." for name, error in failed)
        return replace(placed, passed=passed), made
    if not refused:
        raise failed[-1][1]
    cause = "; ".join(f"{name}: {error.cause}" for name, error in failed)
    action = "name a release that takes it: --base; or build it and its parent, in minutes: --full"
    action += "; or, with a build of yours, kdelta check"
    raise SpecError(cause, place=asked.name, action=action)


def _candidates(asked: AskedCommit, offered: Sequence[KernelOffer]) -> list[str]:
    """Every series with a commit as tags say, where they say it of none all; the newest first."""
    every = [*dict.fromkeys(one.series for one in reversed(offered) if not one.is_candidate)]
    since = series_number(asked.since)
    return [one for one in every if asked.since and since <= series_number(one)] or every


def of_source(names: Iterable[str], diff: str) -> tuple[str, ...]:
    """Functions as their source names them, those that a diff without context is in first.

    Parts of a function and the entries of a system call are one.
    """
    own = {*re.findall(r"\w+", "\n".join(_LEFT.findall(diff)))}
    return tuple(sorted({*map(objects.plain, names)}, key=lambda name: (name not in own, name)))


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitAnswer:
    """What a commit does to the paths that execute it.

    kernels: references to the release without and with it, none where kernels are built.
    functions: that it changes, as the source names them, those that its lines are in first; none
    where the code is the same.  unseen: those of them that no scenario executes.  looked: how many
    scenarios are known.  executing: those of them that execute what it changes, with which
    functions.  paths: before is without the commit, after with it; none where nothing was counted.
    skipped: scenarios without a count, with the reason.  untried: the survey's others.  verdict: of
    the path that changes most, None where nothing was counted.
    """

    name: str
    title: str
    since: str
    base: str
    undone: bool
    passed: tuple[str, ...]
    kernels: tuple[str, ...]
    functions: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    looked: int = 0
    executing: Mapping[str, Sequence[str]]
    paths: tuple[PathRow, ...] = ()
    skipped: Mapping[str, str]
    untried: tuple[str, ...] = ()
    verdict: Verdict | None = None


def answer(
    placed: Placed,
    kernels: Kernels,
    scenarios: Sequence[str],
    counter: Counter,
    each: Callable[[int], None],
    *,
    count: bool,
) -> CommitAnswer:
    """Compile, compare and count.  each: gets the number of scenarios that are counted so far.

    count False: of the base only what is stored is looked at.
    Raises SpecError where a kernel does not compile, boot or count, InfraError.
    """
    own, tree = placed.asked, placed.series.steps[0].tree
    base, other = kernels.of(placed.series.base), kernels.of(tree)
    names, lines = changed_code(base, other)
    functions = of_source(names, next(placed.series.changes()))
    pair = [base.reference, f"{base.reference}+{'undo=' * placed.undone}{own.word}"]
    pair = pair[:: -1 if placed.undone else 1] if isinstance(kernels, Transplants) else []
    found = CommitAnswer(
        name=own.name, title=own.title, since=own.since, base=placed.series.base.name,
        undone=placed.undone, passed=placed.passed, kernels=tuple(pair),
        functions=functions, executing={}, skipped={}, verdict=Verdict.SAME,
    )  # fmt: skip
    if base.image_sha256 == other.image_sha256 or lines:
        return found
    if not count:
        stored = [counter.stored(base, name) for name in scenarios]
        known = [one for one in stored if one and one.result.exact.functions]
        tried = {one.scenario for one in known}
        untried = tuple(scenario_name(name) for name in scenarios if name not in tried)
        return replace(_looked(found, known, names), untried=untried, verdict=None)
    counts = check_series.checked(
        placed.series, scenarios, kernels, counter, lambda *_: None,
        each_row=lambda _found, at: each(at),
    )  # fmt: skip
    if why := counts.patches[0].wrong:
        raise SpecError(f"the changed kernel {why}", place=tree.title)
    found = _looked(found, [one.counted[0][1] for one in counts.counts], names)
    paths = _paths(counts, counter, undone=placed.undone)
    skipped = {scenario_name(name): why for name, why in counts.unmeasured.items()}
    return replace(
        found, unseen=_unseen(found, counts.executed), paths=paths, skipped=skipped,
        verdict=_verdict(paths),
    )  # fmt: skip


def largest(paths: Sequence[PathRow]) -> PathRow | None:
    """The path that changes most."""
    moved = [row for row in paths if row.change.moved]
    return max(moved, key=lambda row: abs(row.percent), default=None)


def _verdict(paths: Sequence[PathRow]) -> Verdict:
    if most := largest(paths):
        return VERDICTS[most.change]
    same = paths and all(VERDICTS[row.change] is Verdict.SAME for row in paths)
    return Verdict.SAME if same else Verdict.UNDECIDED


def _looked(found: CommitAnswer, known: Sequence[Counted], names: frozenset[str]) -> CommitAnswer:
    """With the scenarios that execute one of these functions."""
    ran = {scenario_name(one.scenario): functions_of(one.functions) & names for one in known}
    executing = {name: sorted(own) for name, own in ran.items() if own}
    unseen = _unseen(found, {name for own in ran.values() for name in own})
    return replace(found, looked=len(known), executing=executing, unseen=unseen)


def _unseen(found: CommitAnswer, ran: Iterable[str]) -> tuple[str, ...]:
    seen = {*map(objects.plain, ran)}
    return tuple(name for name in found.functions if name not in seen)


def _paths(found: CheckedSeries, counter: Counter, *, undone: bool) -> tuple[PathRow, ...]:
    """The rows of the scenarios that execute changed code, the largest change first."""

    def row(old: Counted, new: Counted) -> PathRow:
        made = path_row(*((new, old) if undone else (old, new)), TOLERANCE)
        why = found.apart.get(old.scenario) or found.unproven.get(old.scenario)
        return structs.replace(made, change=Effect.OPEN, reason=why, functions=()) if why else made

    sides = {one.scenario: (one.counted[0][1], one.last) for one in found.executing}
    rows = {name: row(*pair) for name, pair in sides.items()}
    # Chance may have a part in these: another seed shows it.
    unsure = [
        name
        for name, one in rows.items()
        if one.change is Effect.SPREAD or workload.is_file(name.rpartition(":")[0])
    ]

    def again(name: str) -> tuple[str, PathRow]:
        old, new = map(counter.with_seeds, sides[name])
        return name, row(old, new)

    rows |= dict(counter.each(again, unsure))
    return tuple(sorted(rows.values(), key=lambda one: (-abs(one.percent), one.scenario)))
