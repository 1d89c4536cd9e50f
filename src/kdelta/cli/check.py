# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta check`: from a patch series to the page of what it does."""

from __future__ import annotations

import shlex
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from kdelta import arch as architectures
from kdelta import workload
from kdelta.archive.apt import Progress
from kdelta.check import compare
from kdelta.check import series as check_series
from kdelta.check.page import CheckPage, read
from kdelta.check.series import CheckedArch, DeclaredClaim, declared, parse
from kdelta.cli import options
from kdelta.cli.printing import reporting
from kdelta.cli.run import check_scenarios, every_scenario
from kdelta.errors import SpecError
from kdelta.journal.files import new_folder
from kdelta.kernels import reference
from kdelta.kernels.kernel import Kernel
from kdelta.rendering import check as view
from kdelta.run import exact
from kdelta.source import build, make, patches, tree_reference
from kdelta.source.build import Build
from kdelta.source.kconfig import Config
from kdelta.source.patches import PatchSeries
from kdelta.source.tree import SourceTree
from kdelta.source.tree_reference import TreeReference
from kdelta.study import plan, spec
from kdelta.toolchains import Toolchain

_HOME = "amd64"
EXIT_REJECT, EXIT_UNDECIDED = 1, 4
_FEW = 24
_PAGES = ("4K", "64K", "2M", "2M-ptes")


@click.command()
@click.argument("series", nargs=-1, required=True)
@click.option(
    "--base",
    required=True,
    metavar="TREE[@COMMIT]",
    help="What it applies to: a folder, PATH@COMMIT, deb:6.17.8.",
)
@click.option("--config", default="deb", show_default=True, help="As after tree:PATH+config=.")
@options.only_option
@options.field_option
@click.option(
    "--also", multiple=True, metavar="WORKLOAD:SCENARIO", help="And this one, or ./loop.c:name."
)
@click.option(
    "--pages",
    default=",".join(_PAGES),
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
    type=click.FloatRange(0, 100),
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
@click.option("--each", is_flag=True, help=f"Build each of more than {_FEW} patches, too.")
@click.option("--trust", is_flag=True, help="Build a stranger's source as you, not confined.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--html", "as_html", is_flag=True, help="Print HTML.")
@options.means_options
@options.runs_directory
def check(
    series: tuple[str, ...],
    only: tuple[str, ...],
    also: tuple[str, ...],
    pages: str,
    arch: str,
    claims: tuple[str, ...],
    against: Path | None,
    *,
    field: bool,
    each: bool,
    trust: bool,
    as_json: bool,
    as_html: bool,
    **given: Any,
) -> None:
    """Say what a patch series does to the paths that execute it.

    SERIES is a mailbox (b4 am, a thread), patch files, a range A..B or a branch of the base's
    repository.  Base and each patch are built, their images compared function by function, and
    only the scenarios that execute a changed function are counted again.  A claim changes neither
    the decision nor the exit code.

    \b
    Exits with 0 for ACCEPT, 1 for REJECT (a path got longer by more than
    the tolerance), 4 for UNDECIDED, 2 for an input that is wrong, 3 when
    this machine is.

    \b
    Example:
      kdelta check series.mbox --base ~/linux@v6.17
    """
    for words in claims:
        parse(words)  # a mistake in an option is reported before a source is fetched
    scenarios, uncelled = _scenarios(only, also, pages, field=field)
    before = read(against) if against else None
    named = dict.fromkeys(filter(None, options.words(arch)))
    arches = [name for name in named if architectures.of(name).debian != _HOME]
    base = tree_reference.PREFIX + given.pop("base").removeprefix(tree_reference.PREFIX)
    if "+config=" not in base:
        base += f"+config={given['config']}"
    source = tree_reference.parse(base)
    found = _series(series, source)
    claimed = declared(found, claims)
    _report(*filter(None, [found.order]))
    if not each and len(found.steps) > _FEW:
        found = _shortened(found)
    caged = not (found.own or trust)
    if caged:
        make.check_confinement()
    _report(*uncelled)
    counted = list(dict.fromkeys([*scenarios, *(claim.scenario for claim in claimed)]))
    checking = _Check(source=source, series=found, scenarios=counted, caged=caged, **given)
    page = checking.page(arches, claimed, before, str(against or ""))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(page)).decode())
    else:
        click.echo(view.html(page) if as_html else view.text(page), nl=False)
    status = {"ACCEPT": 0, "REJECT": EXIT_REJECT, "UNDECIDED": EXIT_UNDECIDED}[page.decision]
    click.get_current_context().exit(status)


def _shortened(found: PatchSeries) -> PatchSeries:
    last = next((step for step in found.steps if step.tree is None), found.steps[-1])
    count = len(found.steps)
    _report(f"{count} patches: only base and whole are built; --each builds every one")
    texts = "\n\n".join(step.text for step in found.steps)
    whole = replace(last, title=f"all {count} patches", text=texts)
    return replace(found, title=f"{found.title}, {count} patches as one", steps=(whole,))


@dataclass(kw_only=True)
class _Check:
    source: TreeReference
    series: PatchSeries
    scenarios: list[str]
    caged: bool
    config: str
    tolerance: float
    runs: Path
    means: options.Means
    qemu: str = ""

    def page(
        self,
        arches: Sequence[str],
        claims: Sequence[DeclaredClaim],
        before: CheckPage | None,
        against: str,
    ) -> CheckPage:
        """Build, count, and write the page into a folder of its own."""
        study = spec.from_arguments(self.scenarios[:1], ["base"], single_kernel=True)
        for name in self.scenarios:
            check_scenarios(spec.with_settings(study, scenarios=[name]))
        folder = new_folder(self.runs, "check", datetime.now(UTC))
        with reporting() as progress:
            for arch in arches:  # a missing compiler is an error before anything is built
                self._means(arch, progress)
            home, *others = (self._side(arch, folder / arch, progress) for arch in (_HOME, *arches))
        setting = check_series.Setting(
            config=f"config {self.config}",
            compiler=home.compiler,
            qemu=f"QEMU {self.qemu}",
            kdelta=options.VERSION,
            command=shlex.join(["kdelta", *sys.argv[1:]]),
            null=home.null,
            confined=self.caged,
        )
        page = check_series.page(self.series, home.found, setting, before, against, others, claims)
        (folder / "page.json").write_bytes(msgspec.json.format(msgspec.json.encode(page)))
        (folder / "page.txt").write_text(view.text(page))
        (folder / "page.html").write_text(view.html(page))
        _report(f"all of it: {folder}")
        return page

    def _side(self, arch: str, folder: Path, progress: Progress) -> CheckedArch:
        config, chain = self._means(arch, progress)
        built: list[Build] = []

        def builder(tree: SourceTree) -> Kernel:
            one = build.build(tree, config, chain, progress=progress, confined=self.caged)
            built.append(one)
            return reference.of_build(f"tree {tree.title}", one)

        study = spec.from_arguments(self.scenarios[:1], ["base"], single_kernel=True, arch=arch)
        means = self.means
        stop = threading.Event()
        bench = exact.bench_of(study, means.wanted_qemu, stop, progress, again=means.again)
        self.qemu = self.qemu or bench.emulator.version
        counter = compare.Counter(study, bench, folder, _report, means.jobs)
        found = check_series.checked(
            self.series, self.scenarios, builder, counter, _report, self.tolerance
        )
        null = "Null: every image was in the cache, none was built now."
        if not all(one.cached for one in built):
            base = built[0]
            again = build.made_again(base, config, chain, progress=progress, confined=self.caged)
            if again != base.image_sha256:
                raise SpecError(
                    "the base built twice gives two images, so no difference would mean anything",
                    place=base.title,
                    action="look for what its build takes from the time or the machine",
                )
            null = "Null: the base built twice differs by 0, the same image to the byte."
        return CheckedArch(arch=arch, found=found, compiler=built[0].compiler, null=null)

    def _means(self, arch: str, progress: Progress) -> tuple[Config, Toolchain]:
        packaged = partial(reference.packaged_config, progress=progress)
        config = tree_reference.configured(self.source, packaged, target=arch)
        return config, build.compiler(self.source.compiler, target=arch, progress=progress)


def _report(*lines: str) -> None:
    for line in lines:
        click.echo(line, err=True)


def _series(words: Sequence[str], base: TreeReference) -> PatchSeries:
    """The series on its base; on the base-commit of its mails where the base names none."""
    files = [Path(word) for word in words if Path(word).is_file()]
    with reporting() as progress:
        if len(files) == len(words):
            wanted = patches.base_commit(files) if base.path and not base.commit else ""
            if wanted:
                base = replace(base, commit=wanted)
            try:
                applied_to = tree_reference.source(base, progress=progress)
            except SpecError as error:
                raise _without_base(error, wanted) from error
            return patches.of_files(files, applied_to)
        if len(words) != 1 or base.path is None:
            missing = next(word for word in words if not Path(word).is_file())
            raise SpecError(
                "there is no such file",
                place=missing,
                action="name mailboxes and patches, or a range A..B of the base's repository",
            )
        own = None if ".." in words[0] else tree_reference.source(base, progress=progress)
        return patches.of_commits(base.path, words[0], own)


def _without_base(error: SpecError, wanted: str) -> SpecError:
    """The error; with another action where the missing commit is the base-commit of a mail."""
    if not wanted or wanted not in error.cause:
        return error
    return SpecError(
        f"the repository has no commit {wanted[:12]}, which the series names as its base-commit",
        place=error.place,
        action="fetch it, or name the commit that the series applies to: --base PATH@COMMIT",
    )


def _scenarios(
    only: tuple[str, ...], also: tuple[str, ...], pages: str, *, field: bool
) -> tuple[list[str], list[str]]:
    """The scenarios to count, and why some have no cells of folios."""

    def fits(name: str) -> bool:
        return not only or any(fnmatchcase(name, one) for one in only)

    wanted = compare.page_sizes(pages)
    surveyed = plan.surveyed(field=field or bool(only))
    meant = [
        name
        for name in surveyed
        if fits(name)
        or any(fits(f"{name}.{cell}") for cell in wanted if cell != compare.BASE_PAGES)
    ]
    every, why = compare.in_sizes(meant, wanted)
    found = [name for name in every if fits(name)]
    if len(wanted) == 1 and compare.BASE_PAGES in wanted:
        why = []
    own = [workload.absolute(name, Path.cwd()) for name in also]
    found = list(dict.fromkeys([*every_scenario(own), *found]))
    if not found:
        no_cell = f": {why[0]}" if why else ""
        raise SpecError(
            f"no scenario fits {', '.join(only)}{no_cell}", action="see: kdelta survey --list"
        )
    return found, why
