# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta import` and `kdelta judge`: results that others published, judged by our rules."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click

from kdelta import workload
from kdelta.analysis import judgement
from kdelta.check import commit, compare, robot
from kdelta.cli import options
from kdelta.cli.printing import print_found, print_json, reporting, say
from kdelta.errors import SpecError
from kdelta.imports import files, mapping, reader, record
from kdelta.metric import plural
from kdelta.printable import few
from kdelta.rendering import check as check_page
from kdelta.rendering import judge as page
from kdelta.rendering import show
from kdelta.rendering.formats import picked
from kdelta.sample import Instrument
from kdelta.study.probes import SHARING

EXIT_INVALID = 1  # judge: the comparison that was asked for is INVALID


@click.command("import")
@click.argument(
    "paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH..."
)
@click.option(
    "--mapping",
    "mappings",
    type=options.FILE,
    multiple=True,
    metavar="FILE",
    help="TOML file that says what the columns of a table are; may be given for each table.",
)
@click.option(
    "--encoding", default="utf-8", show_default=True, help="How the text of the files is encoded."
)
@click.option(
    "--replicate",
    type=click.Choice(("boot", "round", "none")),
    help="What was repeated in a table that needs no other mapping.",
)
@click.option("--old", metavar="ARM", help="Judge it at once: the arm that the change is against.")
@click.option("--new", metavar="ARM", help="Judge it at once: the arm that changed.")
@options.runs_directory
def import_command(
    paths: tuple[Path, ...],
    mappings: tuple[Path, ...],
    encoding: str,
    replicate: str | None,
    old: str | None,
    new: str | None,
    runs: Path,
) -> None:
    """Store the results in PATH..., files or folders, so that `kdelta judge` can judge them.

    Nothing is changed in PATH; every line is kept, with the SHA-256 of its file. Declared formats
    are recognised by their structure. A table (CSV, TSV, JSON lines) is read by a mapping; one
    whose columns all have well-known names, as kernel,boot,ns, needs none.
    """
    known = [mapping.parse(files.load(path, str(path)).text, str(path)) for path in mappings]
    try:
        with reporting() as progress:
            sources, contents, kind = reader.read(paths, known, encoding, progress, replicate or "")
    except SpecError as error:
        if error.lines:
            stem = Path(error.place).stem
            names = (f"{stem}{number or ''}.mapping.toml" for number in itertools.count())
            file = next(name for name in names if not Path(name).exists())
            given = [word for each in (*mappings, file) for word in ("--mapping", str(each))]
            words = ["kdelta", "import", *map(str, paths), *given]
            words += ["--encoding", encoding] * (encoding != "utf-8")
            of = [f"files = [{mapping.toml_text(error.place)}]"] * (paths != (Path(error.place),))
            end = ["END", shlex.join(words)]
            error.lines = [f"cat > {shlex.quote(file)} <<'END'", *of, *error.lines, *end]
        raise
    now, stem = datetime.now(UTC), (paths[0].name or paths[0].resolve().name).partition(".")[0]
    found = record.Import(
        name=re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-_")[:64] or "import",
        created=f"{now:%Y-%m-%dT%H:%M:%S.%fZ}",
        kind=kind,
        sources=sources,
        contents=contents,
        kdelta_version=options.VERSION,
    )
    place = record.write(runs, found, now)
    if old is not None or new is not None:
        _judge(place, judgement.JudgementChoice(old=old, new=new))
        return
    say(f"{place.name}: {_counted(found)}")
    say(*(f"  {text}" for text in contents.how))
    arms = dict.fromkeys(one.arm for one in contents.arms)
    ordered = contents.roles or contents.order or record.in_order(arms) or len(arms) < 2
    ends = "" if ordered else f" --old ARM --new ARM, which are {few([*arms], 4)}"
    say(f"judge it with: kdelta judge {place.name}{ends}")


def _counted(found: record.Import) -> str:
    contents = found.contents
    parts = [f"{plural(len(found.sources), 'file')} as {found.kind}"]
    parts += [plural(len(contents.readings), "value")] if contents.readings else []
    parts += [plural(len(contents.published), "published value")] if contents.published else []
    parts += [plural(len(contents.audited), "audited field")] if contents.audited else []
    return ", ".join(parts)


def _percent(name: str, default: float, text: str) -> Callable[..., Any]:
    return click.option(
        f"--{name}-percent",
        name,
        type=options.Percent(0, 100, min_open=True, max_open=True),
        default=default,
        show_default=True,
        callback=lambda _context, _option, value: value / 100,
        metavar="PERCENT",
        help=text,
    )


@click.command()
@click.argument("imported", metavar="IMPORT")
@click.option("--old", metavar="ARM", help="The arm that the change is against.")
@click.option("--new", metavar="ARM", help="The arm that changed.")
@click.option("--metric", metavar="NAME", help="Judge one metric only.")
@_percent("tolerance", 3.0, "Call a change within PERCENT the SAME.")
@_percent("alpha", 1.0, "How often a verdict of change may be wrong.")
@click.option(
    "--details/--no-details",
    default=None,
    help="Show every metric and setting after the answer. [default: where they are few]",
)
@options.formats
@options.runs_directory
def judge(imported: str, runs: Path, *, details: bool | None, form: str, **choice: Any) -> None:
    """Judge IMPORT: the answer first, then verdict and warnings of each metric.

    IMPORT is the name of an import, a unique beginning of it, "latest", or its folder. Without
    --old and --new, arms are compared by their declared roles, else each with the one before it in
    the declared order, or in that of kernel versions. Exits with 1 when the comparison asked for
    is INVALID.
    """
    place = record.IMPORTS.find(runs, imported)
    _judge(place, judgement.JudgementChoice(**choice), form, details=details)


def _judge(
    place: Path,
    wanted: judgement.JudgementChoice,
    form: str = "",
    *,
    details: bool | None = None,
) -> None:
    found = record.load(place)
    options.need(Instrument.TIME)
    with reporting() as progress:
        judged = judgement.judge(place.name, found, wanted, progress)
    print_found(form, page, judged, details=details)
    asked = wanted.old is not None
    if asked and any(p.comparison.verdict == "INVALID" for f in judged.findings for p in f.pairs):
        click.get_current_context().exit(EXIT_INVALID)


EXIT_UNDECIDED = 4
_NO_CODE = "it changes no function of the kernel (but data, a vDSO or a program)"


@click.command()
@click.argument("mail", type=options.FILE)
@click.option(
    "--kernels",
    type=options.KERNEL,
    metavar="OLD,NEW",
    help="The kernels to count: 6.16,6.17.",
)
@click.option("--scenario", type=options.SCENARIO, default="", help="The loop of the test.")
@click.option("--metric", default="", metavar="NAME", help="The row of the table to answer.")
@click.option(
    "--better",
    type=click.Choice(["more", "less"]),
    help="What is better of the metric, where the robot declares nothing.",
)
@options.json_option
@options.here_options
def ask(mail: Path, *, as_json: bool, **asked: Any) -> None:
    """Answer a report of the kernel test robot: does path length explain its change?

    Read are the table of the MAIL and its declared fields: commit, testcase, parameters. What they
    do not declare has to be given as an option. Where the table has rows of perf stat, its own
    figures are answered first, without a boot. Of a test of several tasks, the lines that they
    take from each other are counted, too. Exits with 4 when the counts decide nothing, or nothing
    proves that the commit lies between the kernels.
    """
    told, own = list[str](), dict[str, Any]()

    def tell(*texts: str) -> None:
        told.extend(texts)
        if not as_json:
            say(*texts)

    status = _answered(tell, own, mail, **asked)
    if as_json:
        print_json(show.answer("ask", told, **own))
    click.get_current_context().exit(status)


def _answered(
    tell: Callable[..., None],
    known: dict[str, Any],
    mail: Path,
    kernels: str | None,
    scenario: str,
    metric: str,
    better: str | None,
    means: options.Means,
) -> int:
    """Tell the answer, as soon as it is known; the exit code.  known: gets what else JSON has."""
    if scenario:
        workload.parse_reference(scenario)
    report = robot.read(mail)
    row = robot.chosen(report, metric)
    direction = robot.direction(report, row, better or "")
    own, unlike = robot.split(report, row, direction)
    heading = [*check_page.robot_heading(report, row), *filter(None, [unlike and f"{unlike}."])]
    known |= {"commit": report.commit, "split": own, **picked(row, ("metric", "percent"))}
    if row.within:
        tell(*heading)
        return EXIT_UNDECIDED
    if not scenario and (place := robot.outside(report, row)):
        tell(f"The test runs in {place}: no path of the kernel.", *heading)
        return 0
    turns = robot.in_turns(report, own)
    both = f"tree:PATH@{report.parent},tree:PATH@{report.commit[:12]}"
    if own and kernels is None:
        what = "functions, and which lines its tasks share" if turns else "functions"
        more = f"Which {what}: `kdelta ask {shlex.quote(str(mail))} --kernels {both}`"
        tell(check_page.robot_split(own, row), *heading, more)
        return EXIT_UNDECIDED if own.deviates else 0
    known["scenario"] = loop = scenario or robot.scenario_of(report, row)
    old, new = _two(kernels, report, both, unlike)
    apart = robot.apart(report, old, new)  # the wrong order is told before anything is counted
    counting = picked(means, ("wanted_qemu", "jobs", "again", "trust"))
    count = partial(compare.count_pair, old, new, report=partial(say, err=True), **counting)
    with reporting() as progress:
        ((before, after),) = count(scenarios=[loop], progress=progress)
    case, why = compare.between(before, after)
    known["step"] = case.step(old, new)
    other = robot.other_faults(report, before.faults)
    diff = "" if apart or other else robot.diff(report, new, old)
    lost = "" if apart or other else _not_executed(before, after, diff)
    asked = [*([check_page.robot_split(own, row, concluded=not lost)] if own else []), *heading]
    apart = "" if other else apart  # the counts say nothing at all
    told = partial(check_page.robot_answer, row, direction, case, other or why)
    where = f"{loop}, {old} -> {new}"
    first = [lost] if lost else [*told(where, own=own, apart=apart)]
    tell(*((*asked, *first) if apart and own else (*first, *asked)))
    with reporting() as progress:
        shared = count(scenarios=turns, progress=progress, probes=[SHARING]) if turns else []
    for one in shared:
        tell(*check_page.robot_lines(*compare.between(*one), compare.objects(*one)))
    return EXIT_UNDECIDED if apart or other or (why and not lost) else 0


def _two(kernels: str | None, report: robot.RobotReport, both: str, unlike: str) -> list[str]:
    """The two kernels to count.  both: how they would be named.  Raises SpecError; unlike: why its
    own figures do not answer.
    """
    words = options.words(kernels or "")
    if len(words) != 2:
        none = "the mail names no kernels of here"
        cause = (
            f"{kernels} are not two kernels" if kernels else "; ".join(filter(None, [unlike, none]))
        )
        action = f"name the kernels without and with the commit: --kernels {both}"
        raise SpecError(cause, place="--kernels" if kernels else report.place, action=action)
    return words


def _not_executed(before: compare.Counted, after: compare.Counted, diff: str) -> str:
    """That no function which differs between two kernels was executed; "" where one was."""
    ran = before.functions | after.functions
    changed, _ = compare.changed_code(before.kernel, after.kernel)
    if not (before.functions and after.functions) or changed & ran:
        return ""
    lost = f"{few(commit.of_source(changed, diff), 3)} did not run" if changed else _NO_CODE
    return f"Your test does not execute this commit: {lost}."
