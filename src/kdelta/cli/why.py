# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta why`: one question, one answer."""

from __future__ import annotations

import contextlib
import re
import shlex
import tempfile
import threading
from functools import partial
from pathlib import Path
from typing import Any

import click

from kdelta import workload
from kdelta.analysis import claims
from kdelta.analysis.calls import CallExplanation
from kdelta.analysis.explanation import Explanation
from kdelta.bisect import history
from kdelta.bisect.journal import Point
from kdelta.check import compare, interval
from kdelta.check.interval import Undone
from kdelta.cli import options
from kdelta.cli.options import Means
from kdelta.cli.printing import print_json, print_lines, reporting, say
from kdelta.cli.report import not_counted
from kdelta.cli.run import answered, check_scenarios, expanded, started
from kdelta.codegen.table import Recorded
from kdelta.errors import KdeltaError, SpecError
from kdelta.journal.run import RunJournal
from kdelta.kernels import debian
from kdelta.printable import quoted
from kdelta.rendering import sentences
from kdelta.rendering import why as page
from kdelta.run import exact
from kdelta.source import tree as trees
from kdelta.study import spec
from kdelta.study.probes import CALLS
from kdelta.table.columns import short
from kdelta.verdict.comparison import LEAST_SEEDS, Verdict

_LISTED = 16  # scenarios to choose from


@click.command()
@click.argument("what", metavar="WORD|WORKLOAD:SCENARIO", type=options.SCENARIO)
@click.argument("old", type=options.KERNEL)
@click.argument("new", type=options.KERNEL)
@click.option(
    "--tree",
    type=options.OLD_FOLDER,
    help="A repository with the tags of both: its commits are undone, until one is named.",
)
@options.json_option
@options.means_options
@options.runs_directory
def why(
    what: str, old: str, new: str, runs: Path, means: Means, tree: Path | None, *, as_json: bool
) -> None:
    """Answer whether a path got longer from OLD to NEW: since when, how much, by which function.

    A word is enough where it names one scenario: munmap, mmap1, a C file.  Of two series all
    between them are counted, of other kernels these two.  Seeds are added until a step is decided.
    """
    if old == new:
        raise SpecError(f"{old} and {new} are one kernel", action="name two")
    named = _one(workload.full_reference(what), old, new)
    if tree:
        if means.pools:
            raise SpecError("commits are counted on this machine", action="leave out --on")
        for end in (old, new):  # before anything is counted
            trees.of_commit(tree, "v" + re.sub(r"^(?:deb:)?(\d+\.\d+).*", r"\1", end))
    between = debian.is_open(old) and debian.is_open(new)
    kernels = [f"{old}..{new}"] if between else [old, new]
    rounds = LEAST_SEEDS if workload.is_file(named.rpartition(":")[0]) else 1
    study = expanded(spec.from_arguments([named], kernels, rounds=rounds))
    check_scenarios(study)
    found, journal = _decided(study, runs, means)
    known = workload.loadable([named.rpartition(":")[0]])
    newest = not_counted(found.report.ladders[0])
    changes = [(one, _paths(one, found, journal)) for one in page.changes(found)]
    if not as_json:
        again = shlex.join(["kdelta", "why", what, old, newest])
        newer = f"{newest}, the newest kernel of the archive, was not counted: `{again}`."
        print_lines(page.lines(found, changes, known, newer * bool(newest)))
    made = list[Undone]()
    if tree and changes:
        made = _name_commit(found, changes[-1][0], tree, means, silent=as_json)
    elif tree and not as_json:
        say("\nNo commit is searched: there is no change that functions explain.")
    if as_json:
        own = {"not_counted": newest or None, "commits": made}
        print_json(page.fields(found, changes, known, **own))
    else:
        arms, last = journal.plan.arms, changes[-1][0] if changes else None
        ends = [last.old, last.new] if last else [arms[0].label, arms[-1].label]
        words = shlex.join(["kdelta", "explain", journal.folder.name, *ends])
        say(f"\nMore: `{words}`; all of it: {journal.folder}")


def _one(what: str, old: str, new: str) -> str:
    """The one scenario that is asked for.  Raises SpecError with a list to choose from."""
    several = [] if workload.is_reference(what) else workload.fitting(what)
    if len(several) < 2:
        return workload.chosen(what)
    words = [word.removesuffix("s") for word in what.lower().split()]
    shown = sorted(several, key=lambda name: -sum(word in name for word in words))[:_LISTED]
    wide, rest = max(map(len, shown)), len(several) - len(shown)
    asked = shlex.join(["kdelta", "why", "SCENARIO", old, new])
    told = ((name, workload.parse_reference(name)[1].summary) for name in shown)
    raise SpecError(
        f"{quoted(what)} names {len(several)} scenarios",
        action=f"choose one{', of these or of kdelta workload list' * bool(rest)}: {asked}",
        lines=[f"  {name:<{wide}}  {short(said, 75 - wide)}" for name, said in told],
    )


def _decided(study: spec.Study, runs: Path, means: Means) -> tuple[claims.Claim, RunJournal]:
    """With more seeds where one leaves open whether a step is chance, and with call paths where
    functions alone leave open what is code that moved.
    """
    found, journal = _counted(study, runs, means)
    while more := _left_open(found, study):
        say(f"{' and '.join(why for why, _ in more)}: counted again", err=True)
        study = spec.with_settings(study, **dict(setting for _, setting in more))
        try:
            found, journal = _counted(study, runs, means)
        except KdeltaError as error:  # what is known is printed, whatever ends this
            say(f"it stays open: {error}", err=True)
            break
    return found, journal


def _left_open(found: claims.Claim, study: spec.Study) -> list[tuple[str, tuple[str, Any]]]:
    """What a count leaves open, and the setting that tells."""
    left = [rung.comparison for rung in page.left_open(found.report.ladders[0])]
    left += [whole.comparison] if (whole := page.whole(found)) else []
    chance = any(c and c.verdict is Verdict.UNDECIDED and not c.crossing for c in left)
    moved = any(map(sentences.may_have_moved, page.changes(found)))
    more: list[tuple[str, tuple[str, Any]]] = []
    if study.plan.rounds < LEAST_SEEDS and chance:
        more.append(("a step may be chance", ("rounds", LEAST_SEEDS)))
    if CALLS not in study.plan.probes and moved:
        more.append(("code may have moved between functions", ("probes", [CALLS])))
    return more


def _counted(study: spec.Study, runs: Path, means: Means) -> tuple[claims.Claim, RunJournal]:
    journal = started(study, runs, means)
    return claims.claim(answered(journal)), journal


def _paths(change: Explanation, found: claims.Claim, journal: RunJournal) -> CallExplanation | None:
    """A change by call paths, where the run has them."""
    with contextlib.suppress(SpecError):
        return Recorded(journal.folder, found.report.record, change, None).paths(change)
    return None


def _name_commit(
    found: claims.Claim, change: Explanation, tree: Path, means: Means, *, silent: bool
) -> list[Undone]:
    """Print, unless silent, which commit of the change's interval makes it; what was tried."""
    rungs = {rung.label: rung for rung in found.report.ladders[0].rungs}
    ends = (rungs[change.old], rungs[change.new])
    old, new = (Point(key=f"deb:{rung.kernel.version}", label=rung.label) for rung in ends)
    tags = history.tags(old, new)
    listed = interval.touching(tree, *tags, page.functions(change))
    (scenario,) = found.report.record.study.scenarios
    study = spec.from_arguments([scenario], ["base"], single_kernel=True)
    with reporting() as progress, tempfile.TemporaryDirectory(prefix="kdelta-why-") as scratch:
        base = interval.nearest(new.label, progress)
        bench = exact.bench_of(study, means.wanted_qemu, threading.Event(), progress)
        report = partial(say, err=True)
        counter = compare.Counter(study, bench, Path(scratch), report, means.jobs)
        step = page.step_of(change)
        made = list[Undone]()
        try:  # what is known is printed, whatever ends the search
            asked = listed, tree, base, scenario, step, counter
            for one in interval.undone(*asked, progress=progress):
                made.append(one)
        finally:
            if not silent:
                print_lines(((), *page.commit_lines(made, change, tags)))
    return made
