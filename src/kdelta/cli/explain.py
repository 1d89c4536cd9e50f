# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta explain` and `coverage`: what ran in a stored run, and what differs; `codegen`: what
compilers made of one function.
"""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import Any

import click

from kdelta import workload
from kdelta.analysis import explanation
from kdelta.analysis.claims import claim
from kdelta.analysis.explanation import Explanation
from kdelta.archive.apt import Progress
from kdelta.cli import options
from kdelta.cli.printing import STDOUT, print_found, print_lines, reporting, write_output
from kdelta.cli.show import one_record
from kdelta.codegen import table as tables
from kdelta.codegen.table import Recorded
from kdelta.errors import KdeltaError, SpecError
from kdelta.journal.run import RUNS, RunRecord
from kdelta.printable import quoted
from kdelta.rendering import codegen as codes
from kdelta.rendering import explain as page
from kdelta.rendering.explain import ExecutedCode
from kdelta.rendering.sentences import difference_sentences

EXIT_INVALID = 1  # the comparison is INVALID and was refused


# Which view of an explanation is asked for.
_VIEW = ("top", "details", "calls", "part", "function", "picture", "output")


@click.command()
@options.run_argument
@click.argument("old", type=options.RUN_KERNEL, required=False)
@click.argument("new", type=options.RUN_KERNEL, required=False)
@options.scenario_of_run("Of which scenario, when RUN has several.")
@click.option("--point", metavar="AXES", help="Of which point of the study's matrix: 'cpus=2'.")
@click.option("--phase", metavar="NAME", help="Of one phase only, instead of all.")
@click.option(
    "--top",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"List N functions. [default: {explanation.TOP}; with --json and --csv all]",
)
@click.option("--details", is_flag=True, help="Also the legend, and what is nearly zero.")
@click.option("--force", is_flag=True, help="List functions although the comparison is INVALID.")
@click.option("--calls", is_flag=True, help="Tell it by call paths (of a run with --probe calls).")
@click.option("--work", "part", flag_value="work", help="Tell it by kinds of instructions.")
@click.option(
    "--memory", "part", flag_value="memory", help="By memory touched (if run with --probe memory)."
)
@click.option(
    "--sharing", "part", flag_value="sharing", help="By lines moved between CPUs (so probed)."
)
@click.option(
    "--values", "part", flag_value="values", help="The values that probes of the run read."
)
@click.option(
    "--code", "function", metavar="FUNCTION", help="What ran of a function, side by side."
)
@click.option(
    "--as",
    "picture",
    type=click.Choice(("flame", "folded")),
    help="The call paths as a page of flame graphs, or as folded stacks; with -o.",
)
@options.output_option("File that --as writes.")
@options.runs_directory
@options.step_percent_option
@options.formats
def explain(
    run: str, runs: Path, old: str | None, new: str | None, *, form: str, **given: Any
) -> None:
    """Rank the functions that the difference between kernels OLD and NEW of RUN is made of.

    OLD and NEW are labels as `kdelta show` prints them, references as the study wrote them, or
    unique beginnings of a release: 6.17. Without them it is the step that a report begins with:
    the largest that got worse. Exits with 1 when the comparison is INVALID.
    """
    view = {name: given.pop(name) for name in _VIEW}
    if (view["picture"] is None) != (view["output"] is None):
        raise click.UsageError("--as and -o FILE need each other: what to write, and where")
    view["calls"] = view["calls"] or bool(view["picture"])
    asked = sum(bool(view[name]) for name in ("part", "function", "calls")) + (form == "csv")
    if asked > 1:
        raise click.UsageError(
            "--calls, --work, --memory, --sharing, --values, --code and --csv exclude each other"
        )
    record = one_record(runs, run)
    given["scenario"] = workload.full_reference(given["scenario"]) or None
    if old is None or new is None:
        old, new = _kernels(record, old, given)
    whole = explanation.explain(record, old, new, **given)
    recorded = Recorded(RUNS.find(runs, run), record, whole, given["point"])
    _print(form, whole, recorded, **view)
    if whole.refused and whole.comparison.verdict == "INVALID":
        click.get_current_context().exit(EXIT_INVALID)


def _print(
    form: str,
    whole: Explanation,
    recorded: Recorded,
    *,
    top: int | None,
    details: bool,
    calls: bool,
    part: str | None,
    function: str | None,
    picture: str | None,
    output: Path | None,
) -> None:
    if part:
        print_found(form, page.WORK_VIEW, (recorded.work(), part), details=details)
        return
    if function:
        old, new = recorded.ran(function)
        if not (old or new or whole.refused):
            action = "name one that kdelta explain lists"
            raise SpecError(f"nothing of {quoted(function)} ran in these windows", action=action)
        print_found(form, page.CODE_VIEW, ExecutedCode(whole, function, old, new))
        return
    at_most = explanation.TOP if top is None and not form else top
    least = 0.0 if details or form else page.Scale.of(whole).least
    found = explanation.shortened(whole, at_most, least)
    work = difference = None
    with contextlib.suppress(SpecError):
        work = None if form else recorded.work()
    with contextlib.suppress(SpecError):
        difference = None if form else recorded.paths(found).difference
    sentences = difference_sentences(whole, difference, work)
    told: dict[str, Any] = {"details": details, "sentences": sentences}
    if not calls:
        print_found(form, page, found, **told)
        return
    if output != STDOUT or found.refused:
        print_found(form, page.CALLS_VIEW, recorded.paths(found), **told)
    if output and not found.refused:
        folded = picture == "folded"
        text = page.folded(*recorded.trees()) if folded else page.flame_page(recorded.paths(found))
        write_output(text, output)
        what = "folded stacks" if folded else "flame graphs"
        click.echo(f"wrote {output} ({what})", err=True)


def _kernels(record: RunRecord, old: str | None, given: dict[str, Any]) -> tuple[str, str]:
    """The kernels of a run of two, else of the step that a report begins with: its scenario and
    point become those that are wanted.  Raises SpecError without one, and where one was named.
    """
    if old is not None:
        raise SpecError(f"{old} is one kernel, a difference has two", action="name the other, too")
    if len(record.arms) == 2:
        return record.arms[0].label, record.arms[1].label
    headline = claim(record, scenario=given["scenario"] or "").headline
    if headline is None:
        action = "name two of its kernels: kdelta explain RUN OLD NEW"
        raise SpecError("no step in this run", place=f"run {record.run_id}", action=action)
    given["scenario"] = f"{headline.ladder.workload}:{headline.ladder.scenario}"
    given["point"] = given["point"] or headline.ladder.point or None
    return headline.step.old, headline.step.new


@click.command()
@options.run_argument
@options.formats
@options.runs_directory
def coverage(run: str, runs: Path, form: str) -> None:
    """Show which functions of the kernel the scenarios of RUN executed.

    Of stored counts: nothing is booted.  A survey's run covers all short scenarios.
    """
    print_found(form, page.COVERAGE_VIEW, explanation.coverage(one_record(runs, run)))


@click.command()
@click.argument("target", metavar="OBJECT:FUNCTION|FUNCTION")
@click.option("--source", metavar="REFERENCE", help="Source, as in tree:REFERENCE of kdelta run.")
@click.option("--variants", default="", metavar="A,B", help="Variants of the source, in order.")
@click.option("--compilers", default="", metavar="A,B", help="gcc-12,gcc-14,clang-19 ...")
@click.option("--kernels", type=options.KERNEL, default="", help="Released kernels, not a source.")
@click.option("--arch", default="amd64", show_default=True, help="Of the kernels.")
@click.option("--flavour", default="cloud", show_default=True, help="Of the kernels.")
@click.option("--side-by-side", is_flag=True, help="Print what differs from the first row.")
@options.trust_option
@options.json_option
def codegen(target: str, *, as_json: bool, side_by_side: bool, **asked: Any) -> None:
    """Compare the code that compilers made of a function: of a source, or of released kernels.

    What a run executed of it says: kdelta explain RUN OLD NEW --code FUNCTION
    """
    with reporting() as progress:
        if bool(asked["source"]) == bool(asked["kernels"]):
            raise click.UsageError("give either --source or --kernels")
        table = (_of_kernels if asked["kernels"] else _of_source)(target, asked, progress)
    if as_json:
        print_found("json", codes, table)
        return
    print_lines(codes.show(table))
    if side_by_side:
        for column in table.columns:
            for row in table.rows[1:]:
                first = table.cell(table.rows[0], column)
                print_lines(codes.differences(first, table.cell(row, column)))


def _of_kernels(target: str, asked: dict[str, Any], progress: Progress) -> tables.CodeTable:
    from kdelta.transplant import releases

    if asked["variants"] or asked["compilers"]:
        raise click.UsageError("--variants and --compilers belong to --source")
    names = options.words(asked["kernels"])
    kernels = []
    asked_for: dict[str, Any] = {name: asked[name] for name in ("arch", "flavour", "trust")}
    for found in releases.resolve_all(names, **asked_for, progress=progress):
        if isinstance(found, KdeltaError):
            raise found
        kernels.append(found)
    return tables.of_kernels(kernels, target.rpartition(":")[2])


def _of_source(target: str, asked: dict[str, Any], progress: Progress) -> tables.CodeTable:
    from kdelta import toolchains
    from kdelta.kernels import reference
    from kdelta.source import build, tree_reference

    name, _, function = target.rpartition(":")
    if not (name and function):
        raise click.UsageError("with --source, write OBJECT:FUNCTION, such as mm/mincore.o:NAME")
    text = asked["source"].removeprefix(tree_reference.PREFIX)
    source = tree_reference.parse(tree_reference.PREFIX + text)
    confined = tree_reference.caged(source.variants, source.fragments, trust=asked["trust"])
    base = tree_reference.source(source, progress=progress)
    variants = [tree_reference.of_word(word) for word in options.words(asked["variants"])]
    trees = [base, *(tree_reference.applied(base, [one]) for one in variants)]
    compilers = options.words(asked["compilers"])
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
