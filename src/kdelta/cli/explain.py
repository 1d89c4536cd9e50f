# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta explain` and `kdelta coverage`: what ran in a stored run, and what differs."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from kdelta.analysis import coverage as by_source
from kdelta.analysis import explanation
from kdelta.analysis.calls import explained, windows
from kdelta.analysis.claims import claim
from kdelta.analysis.coverage import Relevance, SourceCoverage, relevance
from kdelta.analysis.coverage import coverage as covered
from kdelta.analysis.explanation import Explanation, find_counted, find_named
from kdelta.archive.apt import Progress
from kdelta.cli import options
from kdelta.cli.printing import print_found, write_output
from kdelta.cli.progress import reporting
from kdelta.cli.show import one_record
from kdelta.codegen import source_lines
from kdelta.codegen.recorded import Begins, RanCode, Recorded, reached, reached_functions
from kdelta.codegen.source_lines import Located, RanFunction
from kdelta.disassembly.addr2line import SourceLine
from kdelta.errors import InfraError, KdeltaError, SpecError
from kdelta.journal.run import RUNS, RunJournal, RunRecord
from kdelta.kernels import packages, reference
from kdelta.ladder.evidence import parts, points, refuse_traced
from kdelta.printable import printable, quoted
from kdelta.rendering import coverage as coverage_page
from kdelta.rendering import explain as page
from kdelta.rendering import steps
from kdelta.rendering.explain import ExecutedCode, Places, WithLines
from kdelta.rendering.sentences import difference_sentences
from kdelta.rendering.steps import StepDetail
from kdelta.sample import KernelIdentity
from kdelta.source import git

MOST_PLACED = 50  # functions whose lines a view tells; an own build's objects are compiled for it


@dataclass(frozen=True, slots=True)
class LineMeans:
    """How lines may be had.  fetch: their packages may be fetched, and unasked with yes."""

    wanted: bool
    fetch: bool
    yes: bool


def listing_of(
    whole: Explanation, function: str, sides: tuple[RanCode, RanCode], means: LineMeans
) -> ExecutedCode:
    """What ran of a function, with source lines if wanted.

    Raises SpecError for a function of which nothing ran.
    """
    missing: list[str] = []
    code = []
    for side in sides:
        lined = _lined(side, means)
        missing += lined.missing
        code.append(
            tuple(
                replace(one, lines=lined.chains.get(piece.start + one.offset, one.lines))
                for piece in side.pieces
                for one in piece.instructions
            )
        )
    if not any(code) and not whole.refused:
        raise SpecError(
            f"nothing of {quoted(function)} ran in these windows",
            action="name one that kdelta explain lists",
        )
    return ExecutedCode(whole, function, code[0], code[1], tuple(dict.fromkeys(missing)))


def placed(
    found: object, view: Any, names: Sequence[str], kept: tuple[Begins, Begins], means: LineMeans
) -> WithLines:
    """A view's findings with where functions begin, the first MOST_PLACED of `names`."""
    places, missing = whereabouts(names, kept, means)
    return WithLines(view, found, places, missing)


def whereabouts(
    names: Sequence[str], kept: tuple[Begins, Begins], means: LineMeans
) -> tuple[dict[str, Places], tuple[str, ...]]:
    """Where functions begin in the old and in the new kernel, the first MOST_PLACED of `names`.

    And why others are not known, sentences.
    """
    wanted = list(dict.fromkeys(names))[:MOST_PLACED]
    missing: list[str] = []
    sides: list[dict[str, SourceLine]] = []
    for side in kept:
        own = {name: side.functions[name] for name in wanted if name in side.functions}
        told = located(side.kernel, [*own.values()], means)
        missing += told.missing
        first = {name: told.chains.get(each.start, ()) for name, each in own.items()}
        sides.append({name: chain[-1] for name, chain in first.items() if chain})
    places = {name: (sides[0].get(name), sides[1].get(name)) for name in wanted}
    return places, tuple(dict.fromkeys(missing))


def _lined(side: RanCode, means: LineMeans) -> Located:
    functions = [
        RanFunction(
            name=piece.symbol,
            start=piece.start,
            addresses=tuple(piece.start + one.offset for one in piece.instructions),
        )
        for piece in side.pieces
        if piece.instructions and means.wanted
    ]
    return located(side.kernel, functions, means)


def located(
    kernel: KernelIdentity | None,
    functions: Sequence[RanFunction],
    means: LineMeans,
    under: str = "",
) -> Located:
    """The lines of functions of a kernel, as codegen.source_lines has them; progress is told."""
    if kernel is None or not functions:
        return Located(chains={})
    with reporting() as progress:
        fetch = partial(_fetched, yes=means.yes, progress=progress) if means.fetch else None
        return source_lines.located(kernel, functions, fetch=fetch, under=under, progress=progress)


def _fetched(kernel: KernelIdentity, *, yes: bool, progress: Progress) -> Path:
    """The line tables of a package's kernel, when whoever asks wants so much fetched."""
    archive = reference.opened(kernel.arch)
    package = packages.debug_package(kernel.release, kernel.version, archive)
    if package is None:
        raise SpecError(
            f"the archive has no linux-image-{kernel.release}-dbg {kernel.version}",
            action="only kernels that Debian still supports have one",
        )
    size = f"{package.size >> 20} MiB to fetch, about 280 MiB are kept"
    click.echo(f"{package.name} {package.version}: {size}", err=True)
    if not yes and not (sys.stdin.isatty() and click.confirm("fetch it?", err=True)):
        raise InfraError("it was not fetched", action="say yes, or give --yes")
    flavour = kernel.flavour or "cloud"
    found = reference.resolve(f"deb:{kernel.version}", kernel.arch, flavour, progress=progress)
    if found.image_sha256 != kernel.image_sha256:
        raise SpecError("the archive has another image of that version now")
    return packages.fetch_lines(package, found, archive, progress)


def fetch_debug_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How lines of packages may be fetched, --fetch-debug and --yes; the command gets `means`."""

    def means(*, fetch_debug: bool, yes: bool, lines: bool = False) -> LineMeans:
        if yes and not fetch_debug:
            raise click.UsageError("--yes is for --fetch-debug")
        return LineMeans(lines, fetch_debug, yes)

    return options.in_order(
        click.option(
            "--fetch-debug",
            is_flag=True,
            help="Fetch what tells the lines of packages, after its size was told.",
        ),
        click.option("--yes", is_flag=True, help="Of --fetch-debug: do not ask."),
    )(options.gathered(command, "means", means, ("fetch_debug", "yes", "lines")))


TOP = 15
EXIT_INVALID = 1  # the comparison is INVALID and was refused
PICTURES = ("flame", "folded")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the command line asks for: the two kernels and their windows, then the view of them.

    old, new: None for the kernels of the step that a report begins with.  part: "work", "memory"
    or "values".  function: the one whose code is listed.  form: of rendering's formats, "": text.
    """

    old: str | None
    new: str | None
    scenario: str | None
    point: str | None
    phase: str | None
    step_percent: float | None
    force: bool
    top: int | None
    calls: bool
    part: str | None
    function: str | None
    means: LineMeans
    picture: str | None
    output: Path | None
    form: str

    def check(self) -> None:
        """Raise UsageError for options that exclude each other, or lack another one."""
        if (self.picture is None) != (self.output is None):
            raise click.UsageError("--as says what, and -o FILE where to write it")
        paths = self.calls or bool(self.picture)
        if (bool(self.part), bool(self.function), paths).count(True) > 1:
            raise click.UsageError(
                "--calls, --work, --memory, --values and --code exclude each other"
            )
        if self.means.fetch and not self.means.wanted:
            raise click.UsageError("--fetch-debug is for --lines")

    @property
    def listed(self) -> int | None:
        """How many functions are listed; None: all."""
        return TOP if self.top is None and not self.form and not self.part else self.top


@click.command()
@click.argument("run")
@click.argument("old", required=False)
@click.argument("new", required=False)
@click.option("--scenario", metavar="NAME", help="Of which scenario, when RUN has several.")
@click.option("--point", metavar="AXES", help="Of which point of the study's matrix: 'cpus=2'.")
@click.option("--phase", metavar="NAME", help="Of one phase only, instead of all.")
@click.option(
    "--top",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"List N functions. [default: {TOP}; with --json and --csv all]",
)
@click.option("--force", is_flag=True, help="List functions although the comparison is INVALID.")
@click.option("--calls", is_flag=True, help="Tell it by call paths (of a run with --probe calls).")
@click.option("--work", "part", flag_value="work", help="Tell it by kinds of instructions.")
@click.option(
    "--memory", "part", flag_value="memory", help="By memory touched (if run with --probe memory)."
)
@click.option(
    "--values", "part", flag_value="values", help="The values that probes of the run read."
)
@click.option(
    "--code", "function", metavar="FUNCTION", help="What ran of a function, side by side."
)
@click.option("--lines", is_flag=True, help="With source lines, where they are known.")
@click.option(
    "--as",
    "picture",
    type=click.Choice(PICTURES),
    help="The call paths as a page of flame graphs, or as folded stacks; with -o.",
)
@options.output_option("File that --as writes.")
@fetch_debug_options
@options.runs_directory
@options.step_percent_option
@options.formats
def explain(run: str, runs: Path, **given: Any) -> None:
    """Rank the functions that the difference between kernels OLD and NEW of RUN is made of.

    OLD and NEW are labels as `kdelta show` prints them, references as the study wrote them, or
    unique beginnings of a release: 6.17. Without them it is the step that a report begins with:
    the largest that got worse. Exits with 1 when the comparison is INVALID.
    """
    wanted = Wanted(**given)
    wanted.check()
    record = one_record(runs, run)
    wanted, old, new = _with_kernels(wanted, record)
    whole = explanation.explain(
        record,
        old,
        new,
        scenario=wanted.scenario,
        phase=wanted.phase,
        point=wanted.point,
        step_percent=wanted.step_percent,
        force=wanted.force,
    )
    _print(wanted, whole, Recorded(RUNS.find(runs, run), record, whole, wanted.point))
    if whole.refused and whole.comparison.verdict == "INVALID":
        click.get_current_context().exit(EXIT_INVALID)


def _print(wanted: Wanted, whole: Explanation, recorded: Recorded) -> None:
    """Print the view that is asked for, and write its picture."""
    form, means = wanted.form, wanted.means
    if wanted.part:
        part = page.WorkPart(recorded.work(), wanted.part)
        _print_placed(recorded, form, page.WORK_VIEW, part, page.work_functions(part), means)
        return
    if wanted.function:
        sides = recorded.ran(wanted.function)
        print_found(form, page.CODE_VIEW, listing_of(whole, wanted.function, sides, means))
        return
    found = explanation.shortened(whole, wanted.listed)
    told = {} if form else {"sentences": _sentences(recorded, found)}
    if not wanted.calls and not wanted.picture:
        _print_placed(recorded, form, page, found, differing(found), means, **told)
        return
    paths = recorded.paths(found)
    _print_placed(recorded, form, page.CALLS_VIEW, paths, differing(found), means, **told)
    if wanted.picture and wanted.output and not found.refused:
        _write_picture(wanted.picture, wanted.output, found, recorded, means)


def _with_kernels(wanted: Wanted, record: RunRecord) -> tuple[Wanted, str, str]:
    """The two kernels.

    Where none is named they are those of the step that a report begins with, and its scenario and
    point become those that are wanted; of a run of two kernels they are those two.  Raises
    SpecError without a step, and where one kernel was named.
    """
    if wanted.old is not None and wanted.new is not None:
        return wanted, wanted.old, wanted.new
    if wanted.old is not None:
        raise SpecError(
            f"{wanted.old} is one kernel, a difference has two", action="name the other, too"
        )
    if len(record.arms) == 2:
        return wanted, record.arms[0].label, record.arms[1].label
    headline = claim(record, scenario=wanted.scenario or "").headline
    if headline is None:
        raise SpecError(
            "no step in this run",
            place=f"run {record.run_id}",
            action="name two of its kernels: kdelta explain RUN OLD NEW",
        )
    scenario = f"{headline.ladder.workload}:{headline.ladder.scenario}"
    point = wanted.point or headline.ladder.point or None
    return replace(wanted, scenario=scenario, point=point), headline.step.old, headline.step.new


def _print_placed(
    recorded: Recorded,
    form: str,
    view: Any,
    what: object,
    names: Sequence[str],
    means: LineMeans,
    **told: Any,
) -> None:
    """Print a view, with where the functions of these names begin where that is wanted."""
    if not means.wanted:
        print_found(form, view, what, **told)
        return
    at = placed(what, view, names, recorded.begins(), means)
    print_found(form, page.LINES_VIEW, at, **told)


def _sentences(recorded: Recorded, found: Explanation) -> list[str]:
    """The difference in a few sentences, of what there is."""
    work = difference = None
    with contextlib.suppress(SpecError):
        work = recorded.work()
    with contextlib.suppress(SpecError):
        difference = recorded.paths(found).difference
    return difference_sentences(found, difference, work)


def _write_picture(
    picture: str, output: Path, found: Explanation, recorded: Recorded, means: LineMeans
) -> None:
    if picture == "folded":
        write_output(steps.folded(*recorded.trees()), output)
        return
    names = differing(found) if means.wanted else ()
    places, _ = whereabouts(names, recorded.begins(), means) if names else ({}, ())
    write_output(steps.flame_page(recorded.paths(found), places), output)


def step_detail(recorded: Recorded, whole: Explanation) -> StepDetail:
    """What a run kept beside its counts, as far as it can be read."""
    work = calls = None
    with contextlib.suppress(KdeltaError):
        work = recorded.work()
    with contextlib.suppress(KdeltaError):
        calls = explained(whole, *recorded.trees())
    return StepDetail(work=work, calls=calls)


def differing(found: Explanation) -> list[str]:
    """The listed functions that differ, the largest change first."""
    return [row.function for row in found.functions if row.delta]


_MOST = 32 << 20  # characters of a patch
_UNDER = "mm"
_COMMITS = re.compile(r"[^-.\s:][^\s:]*?\.\.\.?[^-.\s:][^\s:]*")
_FOLDER = re.compile(r"(?:[A-Za-z0-9_-]+/?)+")


@click.command()
@click.argument("run")
@click.option("--source", is_flag=True, help="By source files, with the lines that ran.")
@click.option("--kernel", metavar="LABEL", help="Of --source: on which kernel. [default: the last]")
@click.option(
    "--under",
    default=_UNDER,
    show_default=True,
    metavar="FOLDER",
    help="Of --source: files below this folder of the source; '' for all.",
)
@click.option(
    "--patch",
    metavar="PATCH",
    help="Which scenarios execute what PATCH changes, and which changed functions none does: a"
    " unified diff or a series ('-': standard input), or two commits, OLD..NEW.",
)
@click.option(
    "--tree",
    type=options.OLD_FOLDER,
    metavar="FOLDER",
    help="Of --patch OLD..NEW: the git tree, or a folder of it. [default: this one]",
)
@fetch_debug_options
@options.formats
@options.runs_directory
def coverage(
    run: str,
    runs: Path,
    *,
    source: bool,
    kernel: str | None,
    under: str,
    patch: str | None,
    tree: Path | None,
    means: LineMeans,
    form: str,
) -> None:
    """Show which functions of the kernel the scenarios of RUN executed.

    Of stored counts: nothing is booted.  A survey's run covers all short scenarios.  --source
    tells lines where they are known, as kdelta explain --lines does.
    """
    if not source and (kernel or means.fetch or under != _UNDER):
        raise click.UsageError("--kernel, --under and --fetch-debug belong to --source")
    if (source and patch) or (tree and not patch):
        raise click.UsageError("--tree belongs to --patch, which excludes --source")
    if source:
        journal = RunJournal.open(RUNS.find(runs, run))
        options.need(journal.study.instrument)
        print_found(
            form, coverage_page, _by_file(journal, kernel, under, replace(means, wanted=True))
        )
    elif patch:
        print_found(
            form, coverage_page, _of_patch(_diff(patch, tree or Path()), one_record(runs, run))
        )
    else:
        print_found(form, coverage_page, covered(one_record(runs, run)))


def _by_file(
    journal: RunJournal, kernel: str | None, under: str, means: LineMeans
) -> SourceCoverage:
    """What one kernel of a run executed, by files of its source."""
    if under and not _FOLDER.fullmatch(under):
        raise SpecError(f"{quoted(under)} is no folder of a source", action="write --under mm")
    plan = journal.plan
    refuse_traced(plan)
    label = kernel or plan.arms[-1].label
    named = [find_named(part.arms, label) for _, part in points(plan)]
    record = journal.record({arm.index for arm in named})
    identity = None
    ran: dict[str, set[int]] = {}
    places: dict[int, tuple[int, str]] = {}
    for _, part, workload, scenario in parts(record):
        (arm,) = find_counted(part, (workload, scenario), label)
        label, identity = arm.arm.label, arm.arm.kernel
        addresses, own = reached(journal.folder, part, windows(part, arm))
        ran.setdefault(f"{workload}:{scenario}", set()).update(addresses)
        places |= own
    functions = reached_functions(set().union(*ran.values()), places)
    told = located(identity, functions, means, under)
    executed = {}
    for name, addresses in ran.items():  # lines are hashed slowly, and most are there often
        chains = {
            id(one): one for one in map(told.chains.__getitem__, addresses & told.chains.keys())
        }
        executed[name] = {id(line): line for chain in chains.values() for line in chain}.values()
    return SourceCoverage(
        run_id=record.run_id,
        kernel=label,
        under=under.rstrip("/"),
        scenarios=tuple(ran),
        files=by_source.by_file(executed, under),
        missing=told.missing,
    )


def _of_patch(text: str, record: RunRecord) -> Relevance:
    """The scenarios that execute what a patch changes.  Raises SpecError for what is no patch."""
    if len(text) > _MOST:
        raise SpecError("the patch has more than 32 MiB", action="give a part of it: --tree, mm")
    found = relevance(text, covered(record))
    if not found.changed and not found.elsewhere:
        raise SpecError(
            "no change of C code is in the patch",
            action="give a unified diff, as git format-patch and git diff write it",
        )
    return found


def _diff(patch: str, tree: Path) -> str:
    """The text of a patch: standard input's, a file's, or between two commits."""
    if patch != "-" and _COMMITS.fullmatch(patch) and not Path(patch).exists():
        asked = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--end-of-options", patch)
        done = git.ask(tree, *asked, "--", ".")
        if done.returncode:
            raise SpecError(
                f"git knows no {quoted(patch)}: {printable(done.last_words, 200)}",
                place=str(tree),
                action="name two commits of the tree that --tree gives",
            )
        return done.stdout
    try:
        with click.open_file(patch, encoding="utf-8", errors="replace") as file:
            return str(file.read(_MOST + 1))
    except OSError as error:
        raise SpecError(
            f"the patch cannot be read: {error.strerror}",
            place=patch,
            action="name a file, -, or two commits: OLD..NEW",
        ) from error
