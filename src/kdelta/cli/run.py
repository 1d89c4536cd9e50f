# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta run` and `kdelta resume`: from a study to a run folder with its answers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from kdelta import workload
from kdelta.analysis.survey import STEP_PERCENT
from kdelta.cli import execution, studies
from kdelta.cli.options import (
    Means,
    field_option,
    machine_options,
    means_options,
    only_option,
    runs_directory,
)
from kdelta.cli.progress import reporting
from kdelta.errors import SpecError
from kdelta.host import facts, loaders, reboot
from kdelta.journal.run import RUNS, RunJournal, unfinished
from kdelta.kernels import alike, reference
from kdelta.run.timed import NextBootError
from kdelta.study import plan, spec
from kdelta.study.spec import Study


@click.command()
@click.argument("what", nargs=-1, required=True, metavar="STUDY|WORKLOAD:SCENARIO...")
@click.option("--kernels", help="Kernels in table order, commas between: 6.12..7.2,file:bzImage.")
@click.option(
    "--compilers", metavar="A,B", help="Build each tree: kernel by each: gcc-12,gcc-14,clang-19."
)
@click.option("--rounds", type=int, help="Trials of each arm and scenario.")
@click.option("--seed", type=int, help="Seed of the order of trials.  [default: chosen, recorded]")
@machine_options
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
@means_options
@runs_directory
def run(
    what: tuple[str, ...],
    kernels: str | None,
    compilers: str | None,
    runs: Path,
    means: Means,
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
    study = _gated(studies.expanded(_study(what, kernels, settings)))
    if compilers is not None:
        study = studies.built_by(study, [word.strip() for word in compilers.split(",")])
    execution.check_scenarios(study)
    known = None if fresh_run else unfinished(runs, study)
    if known:
        click.echo(f"resuming {known.name} (another run of it: --new)", err=True)
        execution.execute(RunJournal.open(known), means)
    else:
        execution.start(study, runs, means)


@click.command()
@click.argument("run_id", metavar="RUN", default="latest")
@click.option(
    "--install-resume",
    "unattended",
    is_flag=True,
    help="Boot what the plan needs, and go on after each boot (systemd, root); removes itself.",
)
@means_options
@runs_directory
def resume(run_id: str, runs: Path, means: Means, *, unattended: bool) -> None:
    """Finish an interrupted RUN (default: the latest)."""
    opened = RunJournal.open(RUNS.find(runs, run_id))
    again = 0
    if not reboot.goes_on():  # else two kernels that fail would boot each other for ever
        with opened.executing():
            again = opened.replan_failures()
    if again:
        click.echo(f"{again} trials that failed for this machine's fault are tried again", err=True)
    execution.check_scenarios(opened.study)
    if unattended:
        _go_on(opened)
    else:
        execution.execute(opened, means)


def _go_on(journal: RunJournal) -> None:
    """Measure what this boot can; then boot what the plan needs next, or, done, stay here."""
    if not execution.on_host(journal.study):
        raise SpecError("--install-resume is for runs over boots of this host")
    try:
        ended = sum(trial.result is not None for trial in journal.record().trials)
        reboot.check_progress(journal.folder / "boots.json", ended)
        reboot.check_arrived(facts.read().release or "")
        execution.execute(journal, Means())
    except NextBootError as needed:
        program = str(Path(sys.argv[0]).absolute())
        runs = str(journal.folder.parent.absolute())
        again = [program, "resume", journal.folder.name, "--install-resume", "--runs", runs]
        reboot.install_resume(again, expected=needed.release)
        click.echo(f"booting {needed.release}", err=True)
        loaders.boot_once(needed.release)
    except BaseException:
        reboot.remove_resume()
        raise
    else:
        reboot.remove_resume()


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
    refs = [word.strip() for word in kernels.split(",")] if kernels is not None else None
    named = [word for word in what if workload.is_reference(word)]
    if not named and len(what) == 1:
        study = studies.loaded(what[0])
        return spec.with_settings(study, kernels=refs, **settings)
    if len(named) != len(what):
        raise SpecError("give one study file, or scenarios only", action="see: kdelta run --help")
    if not refs:
        raise SpecError("a scenario needs kernels", action="add, for example, --kernels 6.12,6.17")
    here = [workload.absolute(word, Path.cwd()) for word in named]
    return spec.from_arguments(here, refs, **settings)


_QUESTION = """
Which paths of memory management and its callers became longer or shorter in which release, and by
which functions?  Each scenario is short; a step is a reason for a study of its own.
"""


@click.command()
@click.option("--kernels", help="Kernels, 6.12..7.2 a range.  [default: all series]")
@only_option
@field_option
@click.option("--arch", default="amd64", show_default=True, help="Debian's architecture name.")
@click.option("--flavour", default="cloud", show_default=True, help="Debian's kernel flavour.")
@click.option("--rounds", type=int, default=1, show_default=True, help="Trials of each arm.")
@click.option("--list", "list_only", is_flag=True, help="Only list scenarios and kernels.")
@click.option("--new", "fresh_run", is_flag=True, help="Do not resume an unfinished survey.")
@means_options
@runs_directory
def survey(
    kernels: str | None,
    only: tuple[str, ...],
    arch: str,
    flavour: str,
    rounds: int,
    runs: Path,
    means: Means,
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
        studies.kernels([word.strip() for word in kernels.split(",")], arch, flavour)
        if kernels
        else _ladder(arch, flavour)
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
    known = None if fresh_run else unfinished(runs, study)
    if known:
        click.echo(f"resuming {known.name} (another one: --new)", err=True)
        execution.execute(RunJournal.open(known), means, summary=True)
    else:
        execution.start(study, runs, means, summary=True)


def surveyed(only: tuple[str, ...], *, field: bool = False) -> list[str]:
    """The scenarios of the survey, of patterns those that fit.  Raises SpecError for none."""
    found = plan.surveyed(only, field=field)
    if not found:
        raise SpecError(
            f"no scenario of the survey fits {', '.join(only)}",
            action="see: kdelta survey --field --list",
        )
    return found


def _ladder(arch: str, flavour: str) -> list[str]:
    """The newest kernel of each series, and each candidate, oldest first."""
    with reporting() as progress:
        offered = reference.listing(arch, flavour, progress=progress)
    return list(alike.every_series(offered))
