# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta codegen`: what compilers made of one function."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from kdelta import toolchains
from kdelta.archive.apt import Progress
from kdelta.cli.options import KERNEL, json_option, trust_option, words
from kdelta.cli.printing import print_found, print_lines, reporting
from kdelta.codegen import table as tables
from kdelta.errors import KdeltaError
from kdelta.kernels import reference
from kdelta.rendering import codegen as page
from kdelta.source import build, tree_reference
from kdelta.transplant import releases


@click.command()
@click.argument("target", metavar="OBJECT:FUNCTION|FUNCTION")
@click.option("--source", metavar="REFERENCE", help="Source, as in tree:REFERENCE of kdelta run.")
@click.option("--variants", default="", metavar="A,B", help="Variants of the source, in order.")
@click.option("--compilers", default="", metavar="A,B", help="gcc-12,gcc-14,clang-19 ...")
@click.option("--kernels", type=KERNEL, default="", help="Released kernels, not a source.")
@click.option("--arch", default="amd64", show_default=True, help="Of the kernels.")
@click.option("--flavour", default="cloud", show_default=True, help="Of the kernels.")
@click.option("--side-by-side", is_flag=True, help="Print what differs from the first row.")
@trust_option
@json_option
def codegen(target: str, *, as_json: bool, side_by_side: bool, **asked: Any) -> None:
    """Compare the code that compilers made of a function: of a source, or of released kernels.

    What a run executed of it says: kdelta explain RUN OLD NEW --code FUNCTION
    """
    with reporting() as progress:
        if bool(asked["source"]) == bool(asked["kernels"]):
            raise click.UsageError("give either --source or --kernels")
        table = (_of_kernels if asked["kernels"] else _of_source)(target, asked, progress)
    if as_json:
        print_found("json", page, table)
        return
    print_lines(page.show(table))
    if side_by_side:
        for column in table.columns:
            for row in table.rows[1:]:
                first = table.cell(table.rows[0], column)
                print_lines(page.differences(first, table.cell(row, column)))


def _of_kernels(target: str, asked: dict[str, Any], progress: Progress) -> tables.CodeTable:
    if asked["variants"] or asked["compilers"]:
        raise click.UsageError("--variants and --compilers belong to --source")
    names = words(asked["kernels"])
    kernels = []
    asked_for: dict[str, Any] = {name: asked[name] for name in ("arch", "flavour", "trust")}
    for found in releases.resolve_all(names, **asked_for, progress=progress):
        if isinstance(found, KdeltaError):
            raise found
        kernels.append(found)
    return tables.of_kernels(kernels, target.rpartition(":")[2])


def _of_source(target: str, asked: dict[str, Any], progress: Progress) -> tables.CodeTable:
    name, _, function = target.rpartition(":")
    if not (name and function):
        raise click.UsageError("with --source, write OBJECT:FUNCTION, such as mm/mincore.o:NAME")
    text = asked["source"].removeprefix(tree_reference.PREFIX)
    source = tree_reference.parse(tree_reference.PREFIX + text)
    confined = tree_reference.caged(source.variants, source.fragments, trust=asked["trust"])
    base = tree_reference.source(source, progress=progress)
    variants = [tree_reference.of_word(word) for word in words(asked["variants"])]
    trees = [base, *(tree_reference.applied(base, [one]) for one in variants)]
    compilers = words(asked["compilers"])
    if source.compiler and compilers:
        raise click.UsageError("the source names a compiler; leave out cc= or --compilers")
    chains = [toolchains.find(one, progress=progress) for one in dict.fromkeys(compilers)]
    chains = chains or [build.compiler(source.compiler, progress=progress)]
    config = tree_reference.configured(
        source, partial(reference.packaged_config, progress=progress)
    )
    names = ["original", *(tree.variants[-1] for tree in trees[1:])]
    if len(set(names)) < len(names):
        raise click.UsageError("two variants have the same name")
    how: dict[str, Any] = {"config": config, "chains": chains, "confined": confined}
    return tables.of_sources(trees, names, name, function, **how, progress=progress)
