# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta bisect`: the release or the commit in which a count changed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kdelta.cli import bisect_tree
from kdelta.cli.bisect_tree import CommitSource
from kdelta.cli.bisecting import TOP, BisectChoice
from kdelta.cli.options import (
    again_option,
    json_option,
    machine_options,
    qemu_option,
    runs_directory,
)
from kdelta.errors import SpecError

if TYPE_CHECKING:
    from kdelta.bisect.journal import Point
    from kdelta.bisect.outcome import BisectionResult
    from kdelta.kernels.kernel import Kernel
    from kdelta.study.spec import Study
    from kdelta.table.columns import Line


@click.command()
@click.argument("what", metavar="STUDY|WORKLOAD:SCENARIO")
@click.option("--good", required=True, metavar="REF", help="A kernel before the change.")
@click.option("--bad", required=True, metavar="REF", help="A kernel after the change.")
@click.option("--scenario", metavar="NAME", help="Which scenario, when the study has several.")
@click.option("--phase", metavar="NAME", default="total", help="Of one phase, instead of all.")
@click.option(
    "--tree",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="PATH",
    help="Over the commits of this git repository instead; GOOD and BAD are commits of it.",
)
@click.option(
    "--pick",
    multiple=True,
    metavar="FILE",
    help="With --tree: only the changes to this file or folder, on top of GOOD; repeatable.",
)
@click.option(
    "--path",
    "paths",
    multiple=True,
    metavar="FILE",
    help="With --tree: only commits that touch this file or folder; repeatable.",
)
@click.option("--config", "configs", multiple=True, help="With --tree: min, deb, xenpv or a file.")
@click.option(
    "--fragment",
    "fragments",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="With --tree: options to add to the configuration; repeatable.",
)
@click.option("--cc", "compiler", default="", help="With --tree: a compiler, such as gcc-14.")
@click.option("--skip", multiple=True, metavar="REF", help="Leave a release out; repeatable.")
@click.option(
    "--every-package", is_flag=True, help="Every package of a release, not only the newest."
)
@click.option(
    "--audit",
    "audits",
    type=click.IntRange(0, 100),
    default=0,
    metavar="N",
    help="Then measure N more where least is known: does the history go back and forth?",
)
@click.option(
    "--instrument",
    type=click.Choice(["exact", "time"]),
    help="Count instructions, or time KVM guests.  [default: the study's; exact]",
)
@click.option("--step-percent", type=click.FloatRange(0, 100), help="A smaller change is none.")
@machine_options
@click.option("--timeout", "timeout_s", type=int, help="Seconds for a boot, and for a workload.")
@click.option("--new", "fresh", is_flag=True, help="Do not go on with an earlier one.")
@click.option("--top", type=click.IntRange(min=1), default=TOP, help="List N functions.")
@json_option
@qemu_option
@again_option
@runs_directory
def bisect(
    what: str,
    good: str,
    bad: str,
    scenario: str | None,
    phase: str,
    skip: tuple[str, ...],
    *,
    tree: Path | None,
    pick: tuple[str, ...],
    paths: tuple[str, ...],
    configs: tuple[str, ...],
    fragments: tuple[Path, ...],
    compiler: str,
    every_package: bool,
    runs: Path,
    wanted_qemu: str,
    again: bool,
    fresh: bool,
    as_json: bool,
    top: int,
    audits: int,
    **settings: Any,
) -> None:
    """Find the release, or the commit, between GOOD and BAD in which a scenario's path changed.

    All releases that the archive offers between the two are candidates; with --tree all commits,
    which are built and never checked out in the repository itself.  The ends are measured first,
    then as few as halving takes.  What cannot be built or measured is left out.  The same command
    goes on with what an earlier one, ended however, has measured.
    """
    if good == bad:
        raise SpecError(f"--good and --bad are both {good}", action="name two kernels")
    choice = BisectChoice(
        runs=runs,
        wanted_qemu=wanted_qemu,
        again=again,
        fresh=fresh,
        as_json=as_json,
        top=top,
        audits=audits,
    )
    instrument = settings.pop("instrument")
    study = one_scenario(what, scenario, (good, bad), settings)
    study = _by_instrument(study, instrument)
    source = CommitSource(
        tree=tree,
        pick=pick,
        paths=paths,
        configs=configs,
        fragments=fragments,
        compiler=compiler,
    )
    if tree is None:
        source.refuse_without_tree()
        _releases(study, phase, choice, skip=skip, every_package=every_package)
        return
    if skip or every_package or audits:
        raise SpecError("--skip, --every-package and --audit are for releases, not with --tree")
    bisect_tree.commits(study, phase, choice, source)


def one_scenario(
    what: str, scenario: str | None, kernels: tuple[str, ...], settings: dict[str, Any]
) -> Study:
    """The study, of one scenario on one machine, over the given kernels.  Raises SpecError."""
    from kdelta import workload
    from kdelta.cli.studies import loaded
    from kdelta.study import spec

    if workload.is_reference(what):
        here = workload.absolute(what, Path.cwd())
        study = spec.from_arguments([here], list(kernels), **_table_keys(settings))
    else:
        study = loaded(what)
        names = [
            name for name in study.scenarios if scenario in (None, name, name.rpartition(":")[2])
        ]
        if len(names) != 1:
            raise SpecError(
                f"the study has {len(study.scenarios)} scenarios"
                if scenario is None
                else f"the study has no one scenario {scenario}",
                place=what,
                action=f"name one with --scenario: {', '.join(study.scenarios)}",
            )
        study = spec.with_settings(
            study, kernels=list(kernels), scenarios=names, **_table_keys(settings)
        )
    if len(spec.points(study)) > 1:
        raise SpecError(
            "a bisection is on one machine, and the study has a matrix of them",
            place=what,
            action="name a study without [matrix]",
        )
    workload.parse_reference(study.scenarios[0])
    return study


def _by_instrument(study: Study, instrument: str | None) -> Study:
    """The study with the instrument of the command line: times are those of KVM guests."""
    import msgspec

    from kdelta.cli.options import need
    from kdelta.sample import Instrument
    from kdelta.study import spec

    if instrument is not None:
        chosen = Instrument(instrument)
        timing = msgspec.structs.replace(study.time, machine=spec.TimeMachine.KVM)
        study = msgspec.structs.replace(study, instrument=chosen, time=timing)
    need(study.instrument)
    return study


def _table_keys(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _releases(
    study: Study, phase: str, choice: BisectChoice, *, skip: tuple[str, ...], every_package: bool
) -> None:
    from kdelta.bisect import releases
    from kdelta.bisect.ladder import LadderSearch
    from kdelta.bisect.measuring import measure_of
    from kdelta.cli import bisecting
    from kdelta.cli.download import reporting

    with reporting() as progress:
        measure = measure_of(
            study, choice.wanted_qemu, threading.Event(), progress, again=choice.again
        )
    options = {"skip": ",".join(sorted(skip)), "every_package": str(every_package)}
    question = bisecting.question("releases", study, phase, measure, options)
    journal = bisecting.opened(
        question,
        choice,
        study,
        lambda: _points(study, skip, every_package=every_package),
    )
    resolve = _resolver(study)
    count = len(journal.state.points)
    instrument = bisecting.instrument_of(journal, study, measure, resolve, count)
    ladder = LadderSearch(
        journal,
        instrument,
        resolve,
        bisecting.tell,
        weights=releases.weights(journal.state.points),
        audits=choice.audits,
    )
    bisecting.carried_out(
        journal,
        instrument,
        ladder.run,
        choice,
        points=f"{count} kernels",
        more=_where_to_look,
    )


def _where_to_look(found: BisectionResult) -> tuple[list[Line], dict[str, Any]]:
    """What says what changed between the two releases."""
    from kdelta.bisect import releases
    from kdelta.table.columns import paragraph

    ends = (found.good, found.bad)
    versions = [releases.package_version(point) for point in ends]
    tags = releases.tags(*ends)
    lines = [
        (),
        *paragraph(
            f"Packages: linux {' -> '.join(versions)}; what Debian changed: apt changelog"
            f" linux={versions[1]}"
        ),
        *paragraph(
            f"The commit: kdelta bisect ... --tree LINUX --good {tags[0]} --bad {tags[1]},"
            " in a clone of Linux"
        ),
    ]
    return lines, {"packages": versions, "tags": list(tags)}


def _points(study: Study, skip: tuple[str, ...], *, every_package: bool) -> tuple[Point, ...]:
    """The kernels between the study's two."""
    from kdelta.bisect import releases
    from kdelta.cli.download import reporting
    from kdelta.kernels import reference

    arch = study.machine.arch
    good, bad = study.kernels
    with reporting() as progress:
        offers = reference.listing(arch, study.machine.flavour, progress=progress)
    flavour = reference.flavour_of(study.machine.flavour, arch)
    points = releases.between(
        offers, good, bad, arch=arch, flavour=flavour, every_package=every_package
    )
    return releases.without(points, offers, skip, arch=arch, flavour=flavour)


def _resolver(study: Study) -> Callable[[Point], Kernel]:
    from kdelta.cli.download import reporting
    from kdelta.kernels import reference

    def resolve(point: Point) -> Kernel:
        with reporting() as progress:
            return reference.resolve(
                point.key, study.machine.arch, study.machine.flavour, progress=progress
            )

    return resolve
