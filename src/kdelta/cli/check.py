# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta check` and `kdelta commit`: what a patch series, or one commit, does to paths."""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import structs

from kdelta import arch as architectures
from kdelta import cache, workload
from kdelta.archive.apt import Progress
from kdelta.check import commit as commits
from kdelta.check import compare, kernels
from kdelta.check import series as check_series
from kdelta.check.page import HOME, CheckPage, DeclaredClaim, Ruling, read
from kdelta.check.series import CheckedSeries, declared, parse, scenario_name
from kdelta.cli import options
from kdelta.cli.printing import print_json, print_lines, reporting, say
from kdelta.cli.run import check_scenarios, every_scenario, go_on
from kdelta.errors import Cancelled, InfraError, KdeltaError, SpecError, StoreError
from kdelta.files import given, path_of
from kdelta.journal import files
from kdelta.journal.run import RUNS, is_finished
from kdelta.kernels import reference
from kdelta.kernels.kernel import Kernel
from kdelta.printable import quoted
from kdelta.rendering import check as view
from kdelta.rendering import commit as commit_page
from kdelta.rendering.formats import json_fields
from kdelta.run import exact
from kdelta.source import build, kconfig, make, own_build, patches, tree_reference
from kdelta.source.patches import PatchSeries, SeriesMails
from kdelta.source.tree_reference import TreeReference
from kdelta.study import plan, spec
from kdelta.transplant import engine
from kdelta.transplant.releases import Executed
from kdelta.verdict.comparison import Verdict


class _Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was asked, in which folder: the words behind `kdelta check`."""

    folder: str
    words: tuple[str, ...]


_STATUS = {Ruling.ACCEPT: 0, Ruling.REJECT: 1, Ruling.UNDECIDED: 4}
_FEW = 24
_MEANS = ("wanted_qemu", "jobs", "again", "trust")
_ASKED, _HTML, _PAGE = "check.json", "page.html", "page.json"  # first, while it works, last
_FORMS: dict[str, Callable[[CheckPage], str]] = {
    "text": view.text,
    "comment": view.comment,
    "json": view.json,
    "html": view.html,
}


class _Command(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keeps the words as they were written."""
        ctx.meta[_ASKED] = tuple(args)
        return super().parse_args(ctx, args)


@click.command(cls=_Command)
@click.argument("series", nargs=-1, required=True)
@click.option(
    "--base",
    type=options.KERNEL,
    required=True,
    metavar="TREE[@COMMIT]",
    help="What it applies to: a folder, PATH@COMMIT, 6.17.8, 6.17 (the newest that is there).",
)
@click.option(
    "--config",
    default="",
    help="Build whole kernels, with this one, as after tree:PATH+config=.  Without it a patch is"
    " put into the released base; deb, where that cannot be.",
)
@click.option(
    "--build",
    "built",
    type=click.Path(path_type=Path),
    help="Your own build of the base, an O= folder or one in place: only what patches touch is"
    " built.  It is only read.",
)
@options.only_option
@options.field_option
@options.sharing_option
@options.also_option
@click.option(
    "--pages",
    default=",".join(compare.PAGE_SIZES),
    show_default=True,
    metavar="SIZES",
    help="Cells: base pages and folios, where a scenario has them.",
)
@click.option(
    "--arch",
    default="",
    metavar="ARCHES",
    help="On these, too: arm64, riscv64.  Cross-built; amd64 is always checked.",
)
@click.option(
    "--tolerance",
    type=options.PERCENT,
    default=1.0,
    show_default=True,
    help="Percent by which a path may get longer.",
)
@click.option(
    "--claim",
    "claims",
    multiple=True,
    metavar='"SCENARIO less|more|same [PERCENT]"',
    help="A claim to judge, as the trailer Kdelta-claim of a mail.",
)
@click.option(
    "--against", type=click.Path(path_type=Path), help="The page.json of the version before."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(_FORMS),
    default="text",
    show_default=True,
    help="What to print; comment: at most 15 lines for a bot.",
)
@click.option("--json", "form", flag_value="json", help="Print JSON.")
@click.option("--html", "form", flag_value="html", help="Print HTML.")
@options.here_options
@options.runs_directory
def check(
    series: tuple[str, ...],
    only: tuple[str, ...],
    also: tuple[str, ...],
    pages: str,
    arch: str,
    claims: tuple[str, ...],
    against: Path | None,
    built: Path | None,
    probe: str | None,
    *,
    field: bool,
    form: str,
    **given: Any,
) -> None:
    """Say what a patch series does to the paths that execute it.

    SERIES is a mailbox (b4 am, a thread), patch files, a range A..B or a branch of the base's
    repository.  Patches are put into a released base, or base and patches are built.  Kernels are
    compared function by function, and only the scenarios that execute a changed function are
    counted again.  A claim changes neither the decision nor the exit code.

    \b
    Exits with 0 for ACCEPT, 1 for REJECT (a path got longer by more than
    the tolerance), 4 for UNDECIDED.
    """
    means, runs = given["means"], given.pop("runs")  # "Again:" names a page below runs
    for words in claims:
        parse(words)  # a mistake in an option is reported before a source is fetched
    scenarios, uncelled = _scenarios(only, also, pages, field=field, probe=probe)
    _look_at(scenarios, probe)
    before = read(against if against.exists() else runs / against, probe) if against else None
    arches = [n for n in dict.fromkeys(options.words(arch)) if architectures.of(n).debian != HOME]
    asked, alone = _base(given.pop("base"), given["config"])
    whole = bool(asked.path) or not alone
    own = _own(built, alone=alone and not arches)
    for one in (HOME, *arches):
        _check_tools(asked, one, probe)
    with _kept(runs, means) as (folder, command), reporting() as progress:
        with _opened(series, asked, claims, trust=means.trust) as found_on:
            source = tree_reference.located(asked, progress=progress)
            if source != asked:
                _report(f"base: {source.release}, the newest of {asked.release} with a source")
            release = "" if whole or own or means.again else source.release
            ahead = _ahead(release, scenarios, probe, means, progress)
            found = found_on(source, progress)
        caged = not (found.own or means.trust)
        _report(*uncelled, *check_series.warnings(found, confined=caged))
        if len(found.steps) > _FEW:
            found = _shortened(found)
        claimed = declared(found.cover, found.steps, claims)
        counted = list(dict.fromkeys([*scenarios, *(claim.scenario for claim in claimed)]))
        _look_at(counted[len(scenarios) :], probe)
        checking = _Check(
            source=source, series=found, scenarios=counted, caged=caged, folder=folder, probe=probe,
            command=command, whole=whole, own=own, ahead=ahead, **given,
        )  # fmt: skip
        page = checking.page(arches, claimed, before, _elsewhere(str(against or "")), progress)
    click.echo(_FORMS[form](page), nl=False)
    click.get_current_context().exit(_STATUS[page.decision])


def _ahead(
    release: str,
    scenarios: Sequence[str],
    probe: str | None,
    means: options.Means,
    progress: Progress,
) -> threading.Event:
    """Fetch a released base and count it, while its source is fetched and patched, until the event
    is set or the command ends.  All is asked for again, and found in the cache; so are the errors.
    """
    stop = threading.Event()

    def work() -> None:
        with contextlib.suppress(KdeltaError, Cancelled), cache.passing("results") as scratch:
            kernel = reference.resolve(release, progress=progress)
            engine.compiler_of(kernel, progress=progress)
            study = _study(scenarios, probe)
            bench = exact.bench_of(study, means.wanted_qemu, stop, progress)
            counter = compare.Counter(study, bench, scratch, lambda *_: None, 1)
            for name in scenarios:
                if stop.is_set():
                    return
                counter.one(kernel, name)

    click.get_current_context().call_on_close(stop.set)
    if release:
        threading.Thread(target=work, daemon=True).start()
    return stop


def _study(scenarios: Sequence[str], probe: str | None) -> spec.Study:
    """For the machine and its time limits; of lines all scenarios need several CPUs."""
    one = scenarios if probe else scenarios[:1]
    return spec.from_arguments(one, ["base"], single_kernel=True, probes=probe and [probe])


@contextlib.contextmanager
def _kept(runs: Path, means: options.Means) -> Iterator[tuple[Path, str]]:
    """The check's folder and command; says how an interrupted check goes on."""
    folder: Path | None = click.get_current_context().obj
    if folder is None:
        words = click.get_current_context().meta[_ASKED]
        if odd := [word for word in words if word.encode(errors="replace").decode() != word]:
            raise SpecError("it is no UTF-8", place=quoted(odd[0]), action="rename it")
        folder = files.new_folder(runs, "check", datetime.now(UTC))
        files.write(folder / _ASKED, _Asked(str(Path.cwd()), tuple(words)))
    with files.held(folder):  # or the page is another process's
        try:
            words = map(_elsewhere, _asked(folder).words)
            yield folder, shlex.join(["kdelta", "check", *words])
        except (KeyboardInterrupt, InfraError):
            (folder / _HTML).unlink(missing_ok=True)  # it would load itself for ever
            again = ["kdelta", "resume", str(folder), *["--trust"] * means.trust]
            again += ["--qemu", means.wanted_qemu] if means.wanted_qemu else []
            _report(f"kept: downloads, builds and counts; go on with: {shlex.join(again)}")
            raise
        except SpecError:
            for name in (_HTML, _ASKED, "lock"):  # what was asked cannot be checked
                (folder / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                folder.rmdir()
            raise


def _elsewhere(word: str) -> str:
    """A word of the command as others read it: without folders of this machine.

    All pages are called alike, so one keeps the folder of its check, which --runs has.
    """
    path = Path(word)
    kept = 2 if path.name == _PAGE else 1
    return str(Path(*path.parts[-kept:])) if word.startswith("/") else word


@click.command()
@click.argument("run_id", type=options.RUN, metavar="RUN", default="latest")
@options.means_options
@options.runs_directory
def resume(run_id: str, runs: Path, means: options.Means) -> None:
    """Finish an interrupted RUN or check (default: the latest that is not finished).

    A RUN that is named and has ended tries again what failed for this machine's fault.
    """
    found = runs / run_id if (runs / run_id).is_dir() else Path(run_id)
    if run_id == "latest":
        known = [*runs.glob(f"*/{_ASKED}"), *runs.glob(f"*/{RUNS.file}")]
        known.sort(key=lambda each: each.parent.stat().st_mtime, reverse=True)
        newest = next((each.parent for each in known if _is_open(each)), None)
        if known and newest is None and means.pools:
            newest = known[0].parent  # killed behind its last trial, it gives a machine back
        if known and newest is None:
            say(f"nothing to resume: every run in {runs} has ended")
            return
        found, run_id = newest or found, newest.name if newest else run_id
    if (found / _ASKED).is_file() and (found / _PAGE).exists():
        say(f"nothing to resume: the check has ended; its page: {found / 'page.txt'}")
        return
    if not (found / _ASKED).is_file():
        go_on(RUNS.find(runs, run_id), means)
        return
    asked, place = _asked(found), found.absolute()
    if "\0" in asked.folder or not Path(asked.folder).is_dir():
        where, action = quoted(asked.folder), "give the command again where the series is now"
        raise StoreError("the folder of the check is gone", place=where, action=action)
    os.chdir(asked.folder)
    with check.make_context("kdelta check", [*asked.words], obj=place) as own:
        # With what it is counted, and whether its patches are trusted, is said each time.
        own.params |= {name: getattr(means, name) for name in _MEANS}
        check.invoke(own)


def _is_open(file: Path) -> bool:
    """True for a check without its page, and for a run with trials to do."""
    folder = file.parent
    return not (folder / _PAGE).exists() if file.name == _ASKED else not is_finished(folder)


def _asked(folder: Path) -> _Asked:
    """What a check was asked.  Raises StoreError."""
    found = files.read(folder / _ASKED, _Asked)
    if found is None:
        raise StoreError("what was checked is gone", place=str(folder), action="check it again")
    return found


def _shortened(found: PatchSeries) -> PatchSeries:
    count = len(found.steps)
    _report(f"{count} patches: only the whole is made; check a part of them for each")
    texts = "\n\n".join(step.text for step in found.steps)
    whole = replace(found.steps[-1], title=f"all {count} patches", text=texts)
    return replace(found, title=f"{found.title}, {count} patches as one", steps=(whole,))


@dataclass(kw_only=True)
class _Check:
    source: TreeReference
    series: PatchSeries
    scenarios: list[str]
    probe: str | None
    caged: bool
    config: str
    tolerance: float
    means: options.Means
    folder: Path
    command: str
    whole: bool
    own: own_build.OwnBuild | None
    ahead: threading.Event
    qemu: str = ""
    known: list[CheckedSeries] = field(default_factory=list)

    def page(
        self,
        arches: Sequence[str],
        claims: Sequence[DeclaredClaim],
        before: CheckPage | None,
        against: str,
        progress: Progress,
    ) -> CheckPage:
        """Build, count, and write the page into the folder."""
        sides: list[CheckedSeries] = []
        try:
            for arch in (HOME, *arches):
                self.known = [*sides]
                sides.append(self._side(arch, sides, progress))
        except KeyboardInterrupt:
            _report(check_series.so_far(self.known, self.scenarios))
            raise
        page = self._made(sides, before, against, claims)
        for form, name in (("text", "page.txt"), ("html", _HTML), ("json", _PAGE)):
            files.write_bytes(self.folder / name, _FORMS[form](page).encode())
        _report(f"all of it: {self.folder}")
        return page

    def _made(
        self,
        sides: Sequence[CheckedSeries],
        before: CheckPage | None = None,
        against: str = "",
        claims: Sequence[DeclaredClaim] = (),
    ) -> CheckPage:
        return check_series.page(
            self.series, sides, before, against, claims,
            config=f"config {_elsewhere(self.config)}", qemu=f"QEMU {self.qemu}",
            kdelta=options.VERSION, command=self.command, confined=self.caged,
        )  # fmt: skip

    def _side(self, arch: str, sides: Sequence[CheckedSeries], progress: Progress) -> CheckedSeries:
        """The series on one architecture.  A tenth of the time goes into page.html, so far."""
        study = spec.with_settings(_study(self.scenarios, self.probe), arch=arch)
        means = self.means
        stop = threading.Event()
        bench = exact.bench_of(study, means.wanted_qemu, stop, progress, again=means.again)
        self.qemu = self.qemu or bench.emulator.version
        counter = compare.Counter(study, bench, self.folder / arch, _report, means.jobs)

        def executed(kernel: Kernel) -> frozenset[str]:
            self.ahead.set()
            return counter.executed(kernel, self.scenarios)

        try:
            made_by = self._kernels(arch, executed, progress)
        finally:
            self.ahead.set()
        every, at_last = len(self.scenarios), 0.0

        def each_row(so_far: CheckedSeries, at: int) -> None:
            nonlocal at_last
            self.known = [*sides, so_far]
            progress(f"counting, {arch}", 100 * at / every)
            begun = time.monotonic()
            if begun >= at_last:
                known = replace(so_far, compiler=made_by.compiler, null="The null comes last.")
                said = f"{at} of {every} scenarios{f' on {arch}' if sides else ''}"
                page = structs.replace(self._made([*sides, known]), unseen=())  # not known yet
                html = view.html(page, so_far=said)
                files.write_bytes(self.folder / _HTML, html.encode())
                at_last = time.monotonic() + 10 * (time.monotonic() - begun)

        progress(f"counting, {arch}", 0)
        found = check_series.checked(
            self.series, self.scenarios, made_by, counter, _report, self.tolerance, each_row
        )
        null = made_by.proof() if found.executing else ""
        return replace(found, compiler=made_by.compiler, null=null)

    def _kernels(self, arch: str, executed: Executed, progress: Progress) -> kernels.Kernels:
        how: dict[str, Any] = {"confined": self.caged, "progress": progress}
        own = self.own
        if own:
            own_build.check_source(own, self.series.base)
            self.config = f"that of --build {own.folder.name}"
        if own or (arch == HOME and not self.whole):
            try:
                found = kernels.transplants(self.series, self.source, own, executed, **how)
            except SpecError as error:
                way = (
                    "the build is made on in a private place" if own else "whole kernels are built"
                )
                _report(f"{error.cause}; so {way}")
            else:
                self.config = self.config or f"that of {found.ground.kernel.version}"
                return found
        if own:
            return kernels.OwnBuilds(own=own, base=self.series.base, **how)
        self.config = self.config or "deb"
        return kernels.builds(self.source, arch, **how)


def _base(name: str, config: str | None) -> tuple[TreeReference, bool]:
    """The base as a source, and whether it is named alone, so that nothing has to be built."""
    base = tree_reference.PREFIX + name.removeprefix(tree_reference.PREFIX)
    full = base if "+config=" in base else f"{base}+config={config or 'deb'}"
    found = tree_reference.parse(full)
    added = found.variants or found.fragments or found.compiler or "+config=" in base
    return found, not (config or added)


def _own(built: Path | None, *, alone: bool) -> own_build.OwnBuild | None:
    """The user's build.  Raises SpecError for one that is none, or beside other ways."""
    if built and not alone:
        cause = "--build has a configuration and an architecture of its own"
        raise SpecError(cause, action="leave out --config, what follows a + and --arch")
    return own_build.read(built) if built else None


_report = partial(say, err=True)


@contextlib.contextmanager
def _opened(
    words: Sequence[str], base: TreeReference, claims: Sequence[str], *, trust: bool
) -> Iterator[Callable[[TreeReference, Progress], PatchSeries]]:
    """What gives the series on its base.  All that needs no source is looked at: SpecError."""
    named = [Path(word) for word in words]
    missing = next((str(each) for each in named if not each.is_file()), "")
    if not missing:
        with patches.reading(named) as mails:
            declared(mails.cover, mails.letters, claims)
            if not trust:
                make.check_confinement()
            yield partial(_sent, mails)
    elif len(named) == 1 and base.path:
        yield partial(_commits, base.path, missing)
    else:
        action = "name mailboxes and patches, or a range A..B of the base's repository"
        given(Path(missing), 0, action)  # says what it is, as it is no file


def _check_tools(base: TreeReference, arch: str, probe: str | None = None) -> None:
    """Raise InfraError for a program that a build will need and this machine lacks."""
    if probe and arch != HOME:
        cause = f"lines that CPUs share are counted on {HOME} alone"
        raise SpecError(cause, place="--arch", action="leave it out")
    packaged = tree_reference.PACKAGE in base.configs and arch == HOME
    make.check_tools(kconfig.DEBIANS if packaged else kernels.configured(base, arch).enabled)
    if arch != HOME:
        build.compiler(base.compiler, target=arch)


def _commits(path: Path, words: str, base: TreeReference, progress: Progress) -> PatchSeries:
    own = None if ".." in words else tree_reference.source(base, progress=progress)
    return patches.of_commits(path, words, own)


def _sent(mails: SeriesMails, base: TreeReference, progress: Progress) -> PatchSeries:
    """The series on the base-commit of its mails where the base is a repository and names none."""
    if base.release and not tree_reference.is_here(base.release):
        _report(f"whether the series applies is known when the source of {base.release} is here")
    wanted = mails.base_commit if base.path and not base.commit else ""
    base = replace(base, commit=wanted or base.commit)
    try:
        return mails.on(tree_reference.source(base, progress=progress))
    except SpecError as error:
        if not wanted or wanted not in error.cause:
            raise
        cause = f"the repository has no commit {wanted[:12]}, which the series names as its"
        action = "fetch it, or name the commit that the series applies to: --base PATH@COMMIT"
        raise SpecError(f"{cause} base-commit", place=error.place, action=action) from error


def _scenarios(
    only: tuple[str, ...],
    also: tuple[str, ...],
    pages: str,
    *,
    field: bool,
    probe: str | None = None,
) -> tuple[list[str], list[str]]:
    """The scenarios to count, and why some are counted in one size of page alone."""

    def fits(name: str) -> bool:
        return not only or any(fnmatchcase(name, one) for one in only)

    wanted = compare.page_sizes(pages)
    surveyed = plan.surveyed(field=field or bool(only), probe=probe)
    cells = [""] + [f".{cell}" for cell in wanted if cell != compare.BASE_PAGES]
    meant = [name for name in surveyed if any(fits(name + cell) for cell in cells)]
    every, why = compare.in_sizes(meant, wanted)
    found = [name for name in every if fits(name)]
    if probe or (len(wanted) == 1 and compare.BASE_PAGES in wanted):
        why = []
    own = [workload.full_reference(name) for name in also]
    found = list(dict.fromkeys([*every_scenario(own), *found]))
    if not found:
        no_cell = f": {why[0]}" if why else ""
        action = "see: kdelta survey --list; one that is not there is named by --also"
        raise SpecError(f"no scenario fits {', '.join(only)}{no_cell}", action=action)
    return found, why


def _look_at(scenarios: Sequence[str], probe: str | None = None) -> None:
    """Raise SpecError for what cannot be counted, before anything is fetched."""
    for name in scenarios:
        check_scenarios(_study([name], probe))


# ---- one commit --------------------------------------------------------------------------------

_SIZES = ",".join(compare.PAGE_SIZES)


@click.command()
@click.argument("what", metavar="COMMIT|PATCH")
@click.option("--tree", type=options.OLD_FOLDER, help="The repository that has COMMIT.")
@click.option(
    "--base",
    type=options.KERNEL,
    default="",
    metavar="RELEASE",
    help="Which one to undo it in or, without it, to put it into.  [default: the newest that takes"
    " it; with --full the commit itself]",
)
@click.option("--full", is_flag=True, help="Build both kernels whole, which takes minutes.")
@click.option("--no-count", is_flag=True, help="Boot nothing: look at what is counted of the base.")
@options.only_option
@options.field_option
@options.also_option
@options.json_option
@options.here_options
def commit(
    what: str,
    tree: Path | None,
    only: tuple[str, ...],
    also: tuple[str, ...],
    *,
    no_count: bool,
    field: bool,
    as_json: bool,
    means: options.Means,
    **given: Any,
) -> None:
    """Say what one commit does: to which functions, in which release, to which paths.

    The newest release that has COMMIT is counted as it is and with the commit undone; one that no
    release has is put into the newest.  Changed functions are found by compiling.

    \b
    Exits with 0 for an answer, 4 where there is none: no scenario executes
    what it changes, or the counts decide nothing.
    """
    scenarios, _ = _scenarios(only, also, _SIZES, field=field)
    every, _ = _scenarios((), (), _SIZES, field=True)
    _look_at(scenarios)
    asked = commits.asked(what, tree)
    confined = path_of(what).is_file() and not means.trust
    if confined:
        make.check_confinement()
    with reporting() as progress, tempfile.TemporaryDirectory(prefix="kdelta-commit-") as scratch:
        qemu, stop = means.wanted_qemu, threading.Event()
        study = _study(scenarios, None)
        bench = exact.bench_of(study, qemu, stop, progress, again=means.again)
        counter = compare.Counter(study, bench, Path(scratch), _report, means.jobs)
        executed = partial(counter.executed, scenarios=scenarios, stored=no_count)
        how: dict[str, Any] = {"confined": confined, "progress": progress}
        placed, made = _placed(asked, executed, **given, **how)
        _report(*check_series.warnings(placed.series, confined=confined))

        def each(at: int) -> None:
            progress("counting", 100 * at / len(scenarios))

        each(0)
        found = commits.answer(placed, made, scenarios, counter, each, count=not no_count)
        if found.paths:
            made.proof()
    left = [scenario_name(name) for name in every if name not in scenarios]
    found = replace(found, untried=(*found.untried, *left))
    if as_json:
        print_json(json_fields("commit", found))
    else:
        print_lines(commit_page.lines(found))
    open_ = found.verdict is Verdict.UNDECIDED or (no_count and not found.executing)
    click.get_current_context().exit(_STATUS[Ruling.UNDECIDED] if open_ else 0)


def _placed(
    asked: commits.AskedCommit, executed: Executed, base: str, *, full: bool, **how: Any
) -> tuple[commits.Placed, kernels.Kernels]:
    if not full:
        return commits.on_release(asked, base, executed=executed, **how)
    if not (base or asked.variant.target):
        raise SpecError("a patch has no parent", action="name what it is for: --base RELEASE")
    named, _ = _base(base or f"{asked.variant.path}@{asked.variant.target}", "deb")
    named = tree_reference.located(named, progress=how["progress"])
    _check_tools(named, HOME)
    placed = commits.on_source(asked, tree_reference.source(named, progress=how["progress"]))
    return placed, kernels.builds(named, HOME, **how)
