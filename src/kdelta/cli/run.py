# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta run`, `survey` and `resume`, and the study that a command line names."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click

from kdelta import data, toolchains, workload
from kdelta.analysis.survey import STEP_PERCENT
from kdelta.cli import execution, options
from kdelta.cli.progress import reporting
from kdelta.errors import SpecError
from kdelta.journal.run import RUNS, RunJournal, unfinished
from kdelta.kernels import debian, reference
from kdelta.kernels.debian import KernelOffer
from kdelta.printable import meant
from kdelta.source import tree_reference
from kdelta.study import plan, spec
from kdelta.study.spec import Study
from kdelta.verdict.comparison import LEAST_SEEDS


@click.command()
@click.argument("what", nargs=-1, required=True, metavar="STUDY|WORKLOAD:SCENARIO...")
@click.option("--kernels", help="Kernels in table order, commas between: 6.12..7.2,file:bzImage.")
@click.option(
    "--compilers", metavar="A,B", help="Build each tree: kernel by each: gcc-12,gcc-14,clang-19."
)
@click.option(
    "--rounds",
    type=int,
    help="Trials of each arm and scenario, each of another seed.  [default: 1; 3 of your C file]",
)
@click.option("--seed", type=int, help="Seed of the order of trials.  [default: chosen, recorded]")
@options.machine_options
@click.option("--timeout", "timeout_s", type=int, help="Seconds for a boot, and for a workload.")
@click.option(
    "--fresh-boot", is_flag=True, default=None, help="Boot every trial instead of restoring."
)
@click.option(
    "--probe",
    "probes",
    multiple=True,
    callback=lambda _context, _option, given: given or None,
    metavar="PROBE",
    help="Record beside the counts: calls (call paths), memory (what is touched), or a value:"
    " 'FUNCTION(NAME=arg4)', 'FUNCTION(NAME=ret:i32)'.",
)
@click.option(
    "--trace",
    "watch",
    multiple=True,
    callback=lambda _context, _option, given: given or None,
    metavar="WATCH",
    help="Trace instead of counting: how often a FUNCTION is entered, 'FUNCTION(NAME=arg4)',"
    " 'SYSTEM:EVENT(FIELD)', 'graph(FUNCTION)'.  Hits, never times or verdicts.",
)
@click.option("--new", "fresh_run", is_flag=True, help="Do not resume an unfinished run of it.")
@options.means_options
@options.runs_directory
def run(
    what: tuple[str, ...],
    kernels: str | None,
    compilers: str | None,
    runs: Path,
    means: options.Means,
    *,
    fresh_run: bool,
    **settings: Any,
) -> None:
    """Measure a study, or scenarios over kernels.

    The study is a TOML file or the name of one that kdelta ships; or give one or more
    WORKLOAD:SCENARIO ('mprotect:*' is all that fit) together with --kernels; ./loop.c:name is a C
    file of yours, with its TOML or without (kdelta workload new writes both).  A series means its
    newest package of the compiler that the other kernels have, 6.12..7.2 all series between the
    two.  An unfinished run of the same study is resumed.
    """
    if settings["watch"]:
        settings["instrument"] = "trace"
    study = _gated(expanded(_study(what, kernels, settings)))
    if compilers is not None:
        study = built_by(study, options.words(compilers))
    execution.check_scenarios(study)
    _start_or_resume(study, runs, means, "another run of it", fresh=fresh_run)


def _start_or_resume(
    study: Study,
    runs: Path,
    means: options.Means,
    what: str,
    *,
    fresh: bool,
    summary: bool | None = None,
) -> None:
    known = None if fresh else unfinished(runs, study)
    if known:
        click.echo(f"resuming {known.name} ({what}: --new)", err=True)
        execution.execute(RunJournal.open(known), means, summary=summary)
    else:
        execution.start(study, runs, means, summary=summary)


@click.command()
@click.argument("run_id", metavar="RUN", default="latest")
@options.means_options
@options.runs_directory
def resume(run_id: str, runs: Path, means: options.Means) -> None:
    """Finish an interrupted RUN (default: the latest)."""
    opened = RunJournal.open(RUNS.find(runs, run_id))
    with opened.executing():
        again = opened.replan_failures()
    if again:
        click.echo(f"{again} trials that failed for this machine's fault are tried again", err=True)
    execution.check_scenarios(opened.study)
    execution.execute(opened, means)


def _gated(study: Study) -> Study:
    """The study with the reverse gates of its workloads, when it measures variants."""
    variants = [name for name in study.kernels if name.startswith("tree:") and "+" in name]
    if not variants or not study.plan.gates or not study.instrument.traits.repeats:
        return study
    loaded = [workload.parse_reference(name)[0] for name in study.scenarios]
    gates = [f"{load.name}:{gate}" for load in loaded for gate in load.gates]
    added = [name for name in dict.fromkeys(gates) if name not in study.scenarios]
    if not added:
        return study
    click.echo(f"reverse gates, measured too: {', '.join(added)}", err=True)
    return spec.with_settings(study, scenarios=[*study.scenarios, *added])


def _study(what: Sequence[str], kernels: str | None, settings: dict[str, Any]) -> Study:
    refs = options.words(kernels) if kernels is not None else None
    named = [word for word in what if workload.is_reference(word)]
    if not named and len(what) == 1:
        study = loaded(what[0])
        return spec.with_settings(study, kernels=refs, **settings)
    if len(named) != len(what):
        raise SpecError("give one study file, or scenarios only", action="see: kdelta run --help")
    if not refs:
        raise SpecError("a scenario needs kernels", action="add, for example, --kernels 6.12,6.17")
    here = [workload.absolute(word, Path.cwd()) for word in named]
    if settings["rounds"] is None and any(workload.is_file(one.rpartition(":")[0]) for one in here):
        settings = {**settings, "rounds": LEAST_SEEDS}
    return spec.from_arguments(here, refs, **settings)


_QUESTION = """
Which paths of memory management and its callers became longer or shorter in which release, and by
which functions?  Each scenario is short; a step is a reason for a study of its own.
"""


@click.command()
@click.option("--kernels", help="Kernels, 6.12..7.2 a range.  [default: all series]")
@options.only_option
@options.field_option
@options.kernel_options
@click.option("--rounds", type=int, default=1, show_default=True, help="Trials of each arm.")
@click.option("--list", "list_only", is_flag=True, help="Only list scenarios and kernels.")
@click.option("--new", "fresh_run", is_flag=True, help="Do not resume an unfinished survey.")
@options.means_options
@options.runs_directory
def survey(
    kernels: str | None,
    only: tuple[str, ...],
    arch: str,
    flavour: str,
    rounds: int,
    runs: Path,
    means: options.Means,
    *,
    field: bool,
    list_only: bool,
    fresh_run: bool,
) -> None:
    """Count every scenario of the survey on every release, and tell which path changed where.

    An interrupted survey is resumed by the same command.  `kdelta show RUN --summary` prints its
    table again.
    """
    names = surveyed(only, field=field)
    references = (
        every_kernel(options.words(kernels), arch, flavour)
        if kernels
        else list(debian.every_series(_offers(arch, flavour)))
    )
    if list_only:
        click.echo("".join(f"{name}\n" for name in names), nl=False)
        click.echo(f"over {', '.join(references)}")
        return
    study = spec.from_arguments(
        names,
        references,
        name="survey",
        title=f"survey of {len(names)} scenarios over {len(references)} kernels",
        question=_QUESTION.strip(),
        arch=arch,
        flavour=flavour,
        rounds=rounds,
        step_percent=STEP_PERCENT,
    )
    _start_or_resume(study, runs, means, "another one", fresh=fresh_run, summary=True)


def surveyed(only: tuple[str, ...], *, field: bool = False) -> list[str]:
    """The scenarios of the survey, of patterns those that fit.  Raises SpecError for none."""
    found = plan.surveyed(only, field=field)
    if not found:
        raise SpecError(
            f"no scenario of the survey fits {', '.join(only)}",
            action="see: kdelta survey --field --list",
        )
    return found


def study_file(name: str) -> Path:
    """The file itself, else the study of that name that kdelta ships.  Raises SpecError."""
    path = Path(name)
    if path.exists() or "/" in name:
        return path
    shipped = data.directory("studies") / f"{name.removesuffix('.toml')}.toml"
    if shipped.is_file():
        return shipped
    known = sorted(file.stem for file in shipped.parent.glob("*.toml"))
    action = f"{meant(name, known)}give a TOML file, or one of: {', '.join(known)}"
    raise SpecError("no such study", place=name, action=action)


def loaded(name: str) -> Study:
    """The study of a file or name; a C file that it names lies beside it.  Raises SpecError."""
    path = study_file(name)
    study = spec.load(path)
    there = [workload.absolute(word, path.absolute().parent) for word in study.scenarios]
    return study if there == list(study.scenarios) else spec.with_settings(study, scenarios=there)


def expanded(study: Study) -> Study:
    """The study with every range of kernels and every pattern of scenarios written out.

    Raises SpecError for one that stands for nothing.
    """
    machine = study.machine
    names = every_kernel(study.kernels, machine.arch, machine.flavour)
    found = every_scenario(study.scenarios)
    if (names, found) == (list(study.kernels), list(study.scenarios)):
        return study
    return spec.with_settings(study, kernels=names, scenarios=found)


def every_kernel(references: Sequence[str], arch: str, flavour: str) -> list[str]:
    """The references with 6.12..7.2 as every series of the archive between the two."""
    if not any(map(spec.is_range, references)):
        return list(references)
    return list(debian.expanded(references, _offers(arch, flavour)))


def _offers(arch: str, flavour: str) -> Sequence[KernelOffer]:
    with reporting() as progress:
        return reference.listing(arch, flavour, progress=progress)


def every_scenario(named: Sequence[str]) -> list[str]:
    """The scenarios with mprotect:* as every one that fits."""
    found: dict[str, None] = {}
    for name in named:
        fitting = [name]
        if spec.is_pattern(name):
            place, _, _ = name.rpartition(":")
            loads = [place] if workload.is_file(place) else workload.names()
            every = (one for load in loads for one in workload.load(load).scenarios)
            fitting = [one.reference for one in every if fnmatchcase(one.reference, name)]
        if not fitting:
            raise SpecError(f"no scenario fits {name}", action=spec.LIST_SCENARIOS)
        found.update(dict.fromkeys(fitting))
    return list(found)


def built_by(study: Study, compilers: Sequence[str]) -> Study:
    """The study with each of its trees built by each of the compilers.

    Of one source the difference is what the compiler alone does.  Raises SpecError for a kernel
    that is not built here, or that names its compiler itself.
    """
    for name in compilers:
        toolchains.parse(name)
    for kernel in study.kernels:
        if not kernel.startswith(tree_reference.PREFIX) or "+cc=" in kernel:
            raise SpecError(
                f"{kernel} is not a source that --compilers could build",
                place="--compilers",
                action="name kernels as tree:PATH or tree:deb:6.17.8, without +cc=",
            )
    named = [f"{kernel}+cc={name}" for kernel in study.kernels for name in compilers]
    return spec.with_settings(study, kernels=named)
