# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta run` and `kdelta resume`: from a study to a run folder with its answers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kdelta.cli import execution, studies
from kdelta.cli.means import Means, means_options
from kdelta.cli.options import machine_options, runs_directory
from kdelta.errors import SpecError

if TYPE_CHECKING:
    from kdelta.journal.run import RunJournal
    from kdelta.study.spec import Study


@click.command()
@click.argument("what", nargs=-1, required=True, metavar="STUDY|WORKLOAD:SCENARIO...")
@click.option(
    "--kernels",
    help="Kernels in table order, commas between: 6.12..7.2,file:bzImage.",
)
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
    from kdelta.journal.run import RunJournal, unfinished

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
    from kdelta.host import reboot
    from kdelta.journal.run import RUNS, RunJournal

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
    from kdelta.host import facts, reboot
    from kdelta.run.timed import NextBootError

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
        reboot.boot_once(needed.release)
    except BaseException:
        reboot.remove_resume()
        raise
    else:
        reboot.remove_resume()


def _gated(study: Study) -> Study:
    """The study with the reverse gates of its workloads, when it measures variants."""
    from kdelta import workload
    from kdelta.study import spec

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
    from kdelta import workload
    from kdelta.study import spec

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
