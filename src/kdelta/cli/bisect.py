# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta bisect`: the release or the commit of a change."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from kdelta import workload
from kdelta.analysis import explanation
from kdelta.bisect import evidence, history
from kdelta.bisect import journal as journals
from kdelta.bisect.bisection import Bisection, CommitBisection, News, ReleaseBisection
from kdelta.bisect.journal import Journal, Point, Question
from kdelta.check import interval
from kdelta.cli import options
from kdelta.cli.printing import print_json, print_lines, reporting, say
from kdelta.cli.run import loaded
from kdelta.errors import SpecError
from kdelta.guests import qemu
from kdelta.journal.files import held
from kdelta.journal.run import RunJournal
from kdelta.kernels import reference as references
from kdelta.kernels.kernel import Kernel
from kdelta.metric import number
from kdelta.printable import printable
from kdelta.rendering import bisection, bundle, explain, why
from kdelta.rendering.formats import json_fields
from kdelta.rendering.sentences import difference_sentences
from kdelta.run import exact
from kdelta.source import tree_reference
from kdelta.study import spec
from kdelta.study.spec import Study
from kdelta.table.columns import Line, paragraph

TOP = 8  # functions that are listed
EXIT_NOTHING = 1  # no change was found: the ends do not differ, or cannot be compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is bisected, and how: the study of one scenario between two kernels."""

    study: Study
    phase: str
    runs: Path
    wanted_qemu: str
    again: bool
    fresh: bool
    as_json: bool
    top: int


_end = partial(click.option, type=options.KERNEL, required=True, metavar="REF")

# The options of every bisection, for _asked.
_bisect_options = options.in_order(
    _end("--good", help="A kernel before the change."),
    _end("--bad", help="A kernel after the change."),
    click.option("--step-percent", type=options.PERCENT, help="A smaller change is none."),
    click.argument("what", type=options.SCENARIO, metavar="STUDY|WORKLOAD:SCENARIO"),
    click.option("--scenario", metavar="NAME", help="Which, when the study has several."),
    click.option("--phase", metavar="NAME", default="total", help="Of one phase, not of all."),
    options.machine_options,
    click.option("--timeout", "timeout_s", type=int, help="Seconds for a boot, or a workload."),
    options.qemu_option,
    options.again_option,
    options.runs_directory,
    click.option("--new", "fresh", is_flag=True, help="Do not go on with an earlier one."),
    click.option("--top", type=click.IntRange(min=1), default=TOP, help="List N functions."),
    options.json_option,
)


def _asked(what: str, good: str, bad: str, scenario: str | None, **given: Any) -> Asked:
    """What the options of every bisection say; the rest of them are settings of the study."""
    if good == bad:
        raise SpecError(f"--good and --bad are both {good}", action="name two kernels")
    own = ("phase", "runs", "wanted_qemu", "again", "fresh", "as_json", "top")
    choice = {name: given.pop(name) for name in own}
    return Asked(study=one_scenario(what, scenario, (good, bad), given), **choice)


@click.group()
def bisect() -> None:
    """Find the release or the commit in which the path of a scenario changed."""


@bisect.command("releases")
@_bisect_options
def releases_command(**given: Any) -> None:
    """Find the release between GOOD and BAD in which a scenario's path changed.

    All releases that the archive offers between the two are candidates.  The ends are measured
    first, then as few as halving takes.  What cannot be measured is left out.  The same command
    goes on with what an earlier one, ended however, has measured.
    """
    asked = _asked(**given)
    study, machine = asked.study, asked.study.machine
    environment, measure = _measure(asked)

    def points() -> tuple[Point, ...]:
        with reporting() as progress:
            offers = references.listing(machine.arch, machine.flavour, progress=progress)
        arch, flavour = machine.arch, references.flavour_of(machine.flavour, machine.arch)
        return history.between(offers, *study.kernels, arch=arch, flavour=flavour)

    journal = _opened("releases", asked, {"environment": environment}, points)
    kernels = journal.state.points
    search = ReleaseBisection(
        journal,
        evidence.PointCounting(journal, measure),
        tell,
        lambda point: _kernel(study, point.key),
        history.weights(kernels),
    )
    where = partial(_where_to_look, study.scenarios[0])
    carried_out(asked, search, f"{len(kernels)} kernels", where)


@bisect.command("commits")
@click.option(
    "--tree",
    required=True,
    metavar="PATH[+config=NAME][+cc=NAME]",
    help="The git repository, GOOD and BAD are commits of it; how they are built.",
)
@click.option(
    "--path",
    "paths",
    multiple=True,
    metavar="FILE",
    help="Only commits that touch this file or folder; repeatable.",
)
@_bisect_options
def commits_command(*, tree: str, paths: tuple[str, ...], **given: Any) -> None:
    """Find the commit from GOOD to BAD, of a git repository, in which a scenario's path changed.

    Commits are built in kdelta's cache and never checked out in the repository itself.  What
    cannot be built or measured is left out.  The same command goes on with what an earlier one,
    ended however, has measured.
    """
    asked = _asked(**given)
    study = asked.study
    if study.machine.arch != "amd64":
        raise SpecError(
            f"kernels are built for amd64 only, not for {study.machine.arch}", place="--arch"
        )
    how = tree_reference.parse(f"{tree_reference.PREFIX}{tree}")
    if how.path is None or how.commit or how.variants:
        cause = f"{printable(tree, 200)} is no repository with what its builds are made by"
        action = "write PATH, and after it +config=NAME, +fragment=FILE or +cc=gcc-14"
        raise SpecError(cause, place="--tree", action=action)
    commits = history.History(how.path, *study.kernels, paths=paths)
    environment, measure = _measure(asked)
    given_options = {
        "tree": str(how.path.resolve()),
        "how": repr((how.configs, how.fragments, how.compiler)),
        "good": commits.good,
        "bad": commits.bad,
        "paths": "\n".join(paths),
        "environment": environment,
    }
    ends = tuple(commits.commit(one).point for one in (commits.good, commits.bad))
    journal = _opened("tree", asked, given_options, lambda: ends)
    with reporting() as progress:
        builder = history.tree_builder(how.path, how, progress=progress)
        instrument = evidence.PointCounting(journal, measure)
        search = CommitBisection(journal, instrument, tell, commits, builder)
        carried_out(asked, search, f"{len(commits)} commits", partial(_culprit, how.path))


def one_scenario(
    what: str, scenario: str | None, kernels: tuple[str, ...], settings: dict[str, Any]
) -> Study:
    """The study, of one scenario on one machine, over the given kernels.  Raises SpecError."""
    own = {name: value for name, value in settings.items() if value is not None}
    if workload.is_reference(what):
        study = spec.from_arguments([workload.full_reference(what)], list(kernels), **own)
    else:
        study = loaded(what)
        names = [
            name for name in study.scenarios if scenario in (None, name, name.rpartition(":")[2])
        ]
        if len(names) != 1:
            cause = f"the study has no one scenario {scenario}"
            cause = f"the study has {len(study.scenarios)} scenarios" if scenario is None else cause
            action = f"name one with --scenario: {', '.join(study.scenarios)}"
            raise SpecError(cause, place=what, action=action)
        study = spec.with_settings(study, kernels=list(kernels), scenarios=names, **own)
    if len(spec.points(study)) > 1:
        cause = "a bisection is on one machine, and the study has a matrix of them"
        raise SpecError(cause, place=what, action="name a study without [matrix]")
    workload.parse_reference(study.scenarios[0])
    return study


def _measure(asked: Asked) -> tuple[str, evidence.Measurer]:
    """With what the scenario is counted, as results of others cannot be compared; what counts it,
    and tries this machine's faults again within the study's budget.
    """
    study = asked.study
    if not study.instrument.traits.repeats:
        cause = f"a bisection counts, and this study's instrument is {study.instrument}"
        action = 'write instrument = "exact", or judge times by hand with: git bisect'
        raise SpecError(cause, place="instrument", action=action)
    wanted, stop = asked.wanted_qemu, threading.Event()
    with reporting() as progress:
        bench = exact.bench_of(study, wanted, stop, progress, again=asked.again)
    exact.guests_of(study)
    count = partial(exact.SingleTrials(study, bench).of, study.scenarios[0])
    return f"QEMU {bench.emulator.version}, plugin {qemu.plugin_digest()}", count


def _kernel(study: Study, reference: str) -> Kernel:
    machine = study.machine
    with reporting() as progress:
        return references.resolve(reference, machine.arch, machine.flavour, progress=progress)


def _opened(
    kind: str, asked: Asked, options: dict[str, str], points: Callable[[], tuple[Point, ...]]
) -> Journal:
    """The earlier bisection of the same question, else a new one over these points."""
    study = asked.study
    question = Question(kind=kind, phase=asked.phase, study=study, options=options)
    found = None if asked.fresh else journals.find(asked.runs, question)
    if found is None:
        return journals.create(asked.runs, f"bisect-{study.name}"[:64], question, points())
    done = f"{len(found.state.steps)} points (another one: --new)"
    say(f"going on with {found.folder.name}, which has {done}", err=True)
    return found


def tell(news: News) -> None:
    """Show a step on stderr: a line before it and a line after it."""
    label = printable(news.point.label)
    if news.step is None:
        left = f"at most {news.left} to go, this one included" if news.left else "an end"
        say(f"{label}: measuring ({left})", err=True)
        return
    value = "" if news.value is None else f"{number(news.value)} {news.unit}, "
    words = news.step.standing or news.step.mark
    why = f": {printable(news.step.why)}" if news.step.why else ""
    say(f"{label}: {value}{words}{why}", err=True)


def carried_out(
    asked: Asked,
    search: Bisection,
    points: str,
    more: Callable[[evidence.BisectionResult, Sequence[str]], tuple[list[Line], dict[str, Any]]],
) -> None:
    """Search to the end, leave a run folder, print the answer; exits 1 when there is no change.

    points: how many there are of what.  more: further lines of the answer, and the same as data, by
    functions of the change.
    """
    journal = search.journal
    with held(journal.folder):
        found = search.run()
        # The bisection as a run, for every command that reads runs.
        record = replace(evidence.record(journal), kdelta_version=options.VERSION)
        if record.trials:  # else nothing could be built
            RunJournal.create(journal.folder, record, anew=True)
            bundle.write_run_files(record, journal.folder)
    findings, explained = search.instrument.findings(), None
    if found.comparison and found.comparison.verdict.is_step and findings.method.explains:
        ends = (findings.booted(point).label for point in (found.good, found.bad))
        explained = explanation.explain(record, *ends, phase=findings.phase, top=asked.top)
    lines, fields = more(found, why.functions(explained) if explained else ())
    if asked.as_json:
        content = bisection.document(findings, found) | fields
        content["functions"] = json_fields(*explain.document(explained)) if explained else None
        print_json(json_fields(journal.state.question.kind, content))
    else:
        page = bisection.show(findings, found, points=points)
        page += [(), *explain.show(explained, difference_sentences(explained))] if explained else []
        print_lines([*page, *lines])
        say(f"\nEverything of it: {journal.folder}")
    if found.ending not in (evidence.Ending.STEP, evidence.Ending.RANGE):
        raise click.exceptions.Exit(EXIT_NOTHING)


def _where_to_look(
    scenario: str, found: evidence.BisectionResult, _functions: Sequence[str]
) -> tuple[list[Line], dict[str, Any]]:
    ends = (found.good, found.bad)
    versions, tags = [history.package_version(point) for point in ends], history.tags(*ends)
    old, new = versions
    packages = f"Packages: linux {old} -> {new}; what Debian changed: apt changelog linux={new}"
    words = f"{shlex.quote(scenario)} --tree ~/linux --good {tags[0]} --bad {tags[1]}"
    commit = f"The commit, in a clone of Linux: `kdelta bisect commits {words}`"
    lines = [(), *paragraph(packages), *paragraph(commit)]
    return lines, {"packages": versions, "tags": list(tags)}


def _culprit(
    tree: Path, found: evidence.BisectionResult, functions: Sequence[str]
) -> tuple[list[Line], dict[str, Any]]:
    one, several = found.culprit, () if found.culprit else found.candidates
    lines = list[Line]()
    if several:
        named = interval.listed(tree, functions, "--no-walk=unsorted", *(c.id for c in several))
        lines = bisection.candidates(several, named)
    lines = bisection.culprit(one) if one else lines
    told = bisection.commit_data
    data = {"culprit": told(one) if one else None, "candidates": [*map(told, several)]}
    return [(), *lines] if lines else [], data
