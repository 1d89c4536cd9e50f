# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta codegen`: what compilers made of one function."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kdelta.cli.download import reporting
from kdelta.cli.options import json_option, runs_directory

if TYPE_CHECKING:
    from kdelta.archive.apt import Progress
    from kdelta.codegen.table import CodeTable
    from kdelta.journal.run import RunRecord
    from kdelta.kernels.kernel import Kernel


@click.command()
@click.argument("target", metavar="OBJECT:FUNCTION|FUNCTION")
@click.option("--source", metavar="REFERENCE", help="Source, as in tree:REFERENCE of kdelta run.")
@click.option("--variants", default="", metavar="A,B", help="Variants of the source, in order.")
@click.option("--compilers", default="", metavar="A,B", help="gcc-12,gcc-14,clang-19 ...")
@click.option("--kernels", default="", metavar="A,B", help="Released kernels, instead of a source.")
@click.option("--arch", default="amd64", show_default=True, help="Of the kernels.")
@click.option("--flavour", default="cloud", show_default=True, help="Of the kernels.")
@click.option("--run", "run_id", metavar="RUN", help="Mark what this exact run executed.")
@click.option("--scenario", metavar="NAME", help="Which of the run's scenarios.")
@click.option(
    "--measure",
    metavar="WORKLOAD:SCENARIO",
    help="Link every object into the first compiler's kernel, boot it, and mark what it executed.",
)
@click.option("--phase", default="", metavar="NAME", help="Of what ran; by default the hottest.")
@click.option("--side-by-side", is_flag=True, help="Print what differs from the first row.")
@click.option("--listing", is_flag=True, help="Print whole listings, with counts.")
@json_option
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False, writable=True),
    help="Write a page with all listings side by side.",
)
@runs_directory
def codegen(
    target: str,
    runs: Path,
    html: Path | None,
    *,
    as_json: bool,
    side_by_side: bool,
    listing: bool,
    **choice: str | None,
) -> None:
    """Compare the code that compilers made of a function.

    \b
    Of a source, variants of it and several compilers:
      kdelta codegen mm/mincore.o:mincore_pte_range --source deb:6.17.8 \\
        --variants mincore-present-first --compilers gcc-12,gcc-14,clang-19
    Of released kernels, from their images:
      kdelta codegen mincore_pte_range --kernels 6.16,6.17

    With --run, instructions that an exact run executed are marked wherever the code is the same
    as what ran; with --measure, each object of a source is linked and booted for it.
    """
    from kdelta.cli.printing import print_found, print_lines
    from kdelta.rendering import codegen
    from kdelta.rendering import codegen as page

    with reporting() as progress:
        table = _table(target, choice, runs, progress)
    if html is not None:
        html.write_text(codegen.show_html(table))
        click.echo(f"wrote {html}", err=True)
    if as_json:
        print_found("json", page, table)
        return
    print_lines(page.show(table))
    if side_by_side:
        for column in table.columns:
            for row in table.rows[1:]:
                first = table.cell(table.rows[0], column)
                print_lines(page.differences(first, table.cell(row, column)))
    if listing:
        for cell in table.cells:
            print_lines(page.listing(cell))


def _table(target: str, choice: dict[str, str | None], runs: Path, progress: Progress) -> CodeTable:
    asked = {key: value for key, value in choice.items() if isinstance(value, str)}
    if bool(asked.get("source")) == bool(asked["kernels"]):
        raise click.UsageError("give either --source or --kernels")
    if asked.get("scenario") and not asked.get("run_id"):
        raise click.UsageError("--scenario belongs to --run")
    ran = _run(asked["run_id"], runs, asked.get("scenario")) if asked.get("run_id") else None
    if asked["kernels"]:
        if asked["variants"] or asked["compilers"] or asked.get("measure"):
            raise click.UsageError("--variants, --compilers and --measure belong to --source")
        table = _of_kernels(target, asked, progress)
    else:
        table = _of_source(target, asked, progress)
    if ran is not None:
        table = _marked(table, *ran, asked["phase"], progress)
    return table


def _of_kernels(target: str, asked: dict[str, str], progress: Progress) -> CodeTable:
    from kdelta.codegen import images
    from kdelta.errors import KdeltaError
    from kdelta.kernels import reference

    kernels = []
    for found in reference.resolve_all(
        _list(asked["kernels"]), asked["arch"], asked["flavour"], progress=progress
    ):
        if isinstance(found, KdeltaError):
            raise found
        kernels.append(found)
    return images.of_kernels(kernels, target.rpartition(":")[2])


def _of_source(target: str, asked: dict[str, str], progress: Progress) -> CodeTable:
    from kdelta import toolchains
    from kdelta.codegen import table
    from kdelta.kernels.reference import packaged_config
    from kdelta.source import build, tree_reference

    name, _, function = target.rpartition(":")
    if not name:
        raise click.UsageError("with --source, write OBJECT:FUNCTION, such as mm/mincore.o:NAME")
    text = asked["source"].removeprefix(tree_reference.PREFIX)
    reference = tree_reference.parse(tree_reference.PREFIX + text)
    base = tree_reference.source(reference, progress=progress)
    words = _list(asked["variants"])
    trees = [
        base,
        *(tree_reference.applied(base, [tree_reference.of_word(word)]) for word in words),
    ]
    compilers = _list(asked["compilers"])
    if reference.compiler and compilers:
        raise click.UsageError("the source names a compiler; leave out cc= or --compilers")
    chains = [toolchains.find(one, progress=progress) for one in dict.fromkeys(compilers)]
    chains = chains or [build.compiler(reference.compiler, progress=progress)]
    packaged = partial(packaged_config, progress=progress)
    config = tree_reference.configured(reference, packaged)
    names = ["original", *(tree.variants[-1] for tree in trees[1:])]
    if len(set(names)) < len(names):
        raise click.UsageError("two variants have the same name")
    with tempfile.TemporaryDirectory(prefix="kdelta-codegen-") as folder:
        keep = Path(folder)
        made = table.of_sources(
            trees, names, name, function,
            config=config, chains=chains, keep=keep, progress=progress,
        )  # fmt: skip
        if not asked.get("measure"):
            return made
        from kdelta.codegen import images

        return images.measured(
            made, keep, asked["measure"],
            tree=base, config=config, chain=chains[0], phase=asked["phase"], progress=progress,
        )  # fmt: skip


def _run(name: str, runs: Path, scenario: str | None) -> tuple[Path, RunRecord, tuple[str, str]]:
    """A run's folder, what it holds, and which of its scenarios is meant.

    Wrong ones are told before anything is compiled.
    """
    from kdelta.analysis.explanation import find_scenario
    from kdelta.journal.run import RUNS, RunJournal

    folder = RUNS.find(runs, name)
    record = RunJournal.open(folder).record()
    return folder, record, find_scenario(record, scenario)


def _marked(
    table: CodeTable,
    folder: Path,
    record: RunRecord,
    scenario: tuple[str, str],
    phase: str,
    progress: Progress,
) -> CodeTable:
    from dataclasses import replace

    from kdelta.codegen import images
    from kdelta.codegen.table import marked

    found, problems = images.executed(
        folder, record, table, phase, _resolver(progress), scenario=scenario
    )
    result = marked(table, found)
    return replace(result, notes=(*result.notes, *problems))


def _resolver(progress: Progress) -> Callable[[str, str, str], Kernel]:
    from kdelta.kernels import reference

    def resolve(name: str, arch: str, flavour: str) -> Kernel:
        return reference.resolve(name, arch, flavour, progress=progress)

    return resolve


def _list(text: str) -> list[str]:
    return [word for word in text.split(",") if word]
