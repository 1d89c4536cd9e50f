# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta run` and `kdelta resume`: from a study to a run folder with its answers."""

from __future__ import annotations

import secrets
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kdelta.cli.options import need_time, runs_directory
from kdelta.errors import InfraError, KdeltaError, SpecError, StoreError

if TYPE_CHECKING:
    from kdelta.kernels.kernel import Kernel
    from kdelta.run.runner import Trials
    from kdelta.sample import RunRecord
    from kdelta.store import Store
    from kdelta.study.spec import Study

_QEMU = click.option(
    "--qemu",
    "wanted_qemu",
    default="",
    envvar="KDELTA_QEMU",
    metavar="PATH|VERSION",
    help="Which QEMU: a path, or a version fetched with `kdelta qemu fetch`.",
)
_JOBS = click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, 256),
    help="Guests at once.  [default: what cores and memory allow]",
)


@click.command()
@click.argument("what", nargs=-1, required=True, metavar="STUDY|WORKLOAD:SCENARIO...")
@click.option("--kernels", help="Kernels in table order, commas between: 6.12,6.17,file:bzImage.")
@click.option("--arch", help="Debian's architecture name (amd64, arm64).")
@click.option("--flavour", help="Debian's kernel flavour (cloud, generic, rt).")
@click.option("--rounds", type=int, help="Trials of each arm and scenario.")
@click.option("--seed", type=int, help="Seed of the order of trials.  [default: chosen, recorded]")
@click.option("--cpus", type=int, help="CPUs of a guest.")
@click.option("--memory-mib", type=int, help="Memory of a guest in MiB.")
@click.option("--timeout", "timeout_s", type=int, help="Seconds for a boot, and for a workload.")
@click.option(
    "--fresh-boot", is_flag=True, default=None, help="Boot every trial instead of restoring."
)
@click.option("--new", "fresh_run", is_flag=True, help="Do not resume an unfinished run of it.")
@_QEMU
@_JOBS
@runs_directory
def run(
    what: tuple[str, ...],
    kernels: str | None,
    runs: Path,
    wanted_qemu: str,
    jobs: int | None,
    *,
    fresh_run: bool,
    **settings: Any,
) -> None:
    """Measure a study, or scenarios over kernels.

    The study is a TOML file or the name of one that kdelta ships; or give one or more
    WORKLOAD:SCENARIO together with --kernels.  An unfinished run of the same study is resumed.
    """
    from kdelta import store as stores
    from kdelta.study import spec

    study = _study(what, kernels, settings)
    _check_scenarios(study)
    known = None if fresh_run else stores.unfinished(runs, spec.digest(study))
    if known:
        click.echo(f"resuming {known.name} (another run of it: --new)", err=True)
        _execute(stores.Store.open(known), study, wanted_qemu, jobs)
    else:
        _start(study, runs, wanted_qemu, jobs)


@click.command()
@click.argument("run_id", metavar="RUN", default="latest")
@click.option(
    "--install-resume",
    "unattended",
    is_flag=True,
    help="Boot what the plan needs, and go on after each boot (systemd, root); removes itself.",
)
@_QEMU
@_JOBS
@runs_directory
def resume(
    run_id: str, runs: Path, wanted_qemu: str, jobs: int | None, *, unattended: bool
) -> None:
    """Finish an interrupted RUN (default: the latest).

    A run whose store is damaged is rebuilt from its trials' files first.
    """
    from kdelta import runfolder
    from kdelta import store as stores
    from kdelta.study import spec

    folder = runfolder.find_run(runs, run_id)
    try:
        opened = stores.Store.open(folder)
    except StoreError as error:
        click.echo(f"rebuilding the store: {error.sentence()}", err=True)
        opened = stores.rebuild(folder)
    with opened.executing():
        again = opened.replan_failures()
    if again:
        click.echo(f"{again} trials that failed for this machine's fault are tried again", err=True)
    record = opened.record()
    study = spec.from_text(record.study_toml, str(folder / "study.toml"))
    _check_scenarios(study)
    if unattended:
        _go_on(opened, study)
    else:
        _execute(opened, study, wanted_qemu, jobs)


def _go_on(store: Store, study: Study) -> None:
    """Measure what this boot can; then boot what the plan needs next, or, done, stay here."""
    from kdelta.machines import preflight, reboot
    from kdelta.run.timed import NextBootError

    if not _on_host(study):
        raise SpecError("--install-resume is for runs over boots of this host")
    try:
        reboot.check_arrived(preflight.facts())
        _execute(store, study, "", None)
    except NextBootError as needed:
        program = str(Path(sys.argv[0]).absolute())
        runs = str(store.folder.parent.absolute())
        again = [program, "resume", store.folder.name, "--install-resume", "--runs", runs]
        reboot.install_resume(again, expected=needed.release)
        click.echo(f"booting {needed.release}", err=True)
        reboot.boot_once(needed.release)
    except BaseException:
        reboot.remove_resume()
        raise
    else:
        reboot.remove_resume()


def _study(what: Sequence[str], kernels: str | None, settings: dict[str, Any]) -> Study:
    from kdelta.study import spec

    refs = [word.strip() for word in kernels.split(",")] if kernels is not None else None
    named = [word for word in what if ":" in word and not word.endswith(".toml")]
    if not named and len(what) == 1:
        study = spec.load(_study_file(what[0]))
        return spec.with_settings(study, kernels=refs, **settings)
    if len(named) != len(what):
        raise SpecError("give one study file, or scenarios only", action="see: kdelta run --help")
    if not refs:
        raise SpecError("a scenario needs kernels", action="add, for example, --kernels 6.12,6.17")
    return spec.from_arguments(named, refs, **settings)


def _study_file(name: str) -> Path:
    """The file itself, else the study of that name that kdelta ships."""
    from kdelta import data

    path = Path(name)
    if path.exists() or "/" in name:
        return path
    shipped = data.directory("studies") / f"{name.removesuffix('.toml')}.toml"
    if shipped.is_file():
        return shipped
    known = ", ".join(sorted(file.stem for file in shipped.parent.glob("*.toml")))
    raise SpecError("no such study", place=name, action=f"give a TOML file, or one of: {known}")


def _check_scenarios(study: Study) -> None:
    from kdelta import workload

    for name in study.scenarios:
        workload.parse_reference(name)


def _start(study: Study, runs: Path, wanted_qemu: str, jobs: int | None) -> None:
    from kdelta import runfolder
    from kdelta.run import arms
    from kdelta.sample import RunRecord
    from kdelta.store import Store
    from kdelta.study import plan, spec

    kernels = None if _on_host(study) else _resolved(study, arms.planned(study))
    now = datetime.now(UTC)
    seed = study.plan.seed if study.plan.seed is not None else secrets.randbits(32)
    planned = plan.make_plan(study, seed)
    record = RunRecord(
        run_id="",
        name=study.name,
        title=study.title,
        seed=seed,
        rounds=planned.rounds,
        created=now.isoformat(timespec="seconds"),
        kdelta_version=_version(),
        study_toml=spec.to_toml(study),
        instrument=study.instrument,
        study_digest=spec.digest(study),
        arms=arms.records(study, kernels),
        trials=planned.trials,
    )
    # Before there is a folder: what cannot be measured here leaves none behind.
    trials, at_once = _trials(record, study, kernels, wanted_qemu, jobs)
    folder = runfolder.new_run_folder(runs, study.name, now)
    _measure(Store.create(folder, replace(record, run_id=folder.name)), study, trials, at_once)


def _execute(store: Store, study: Study, wanted_qemu: str, jobs: int | None) -> None:
    """Go on with a run: on the very kernels that it began with."""
    from kdelta.run import arms

    record = store.record()
    if store.is_finished():
        _answer(store)
        return
    kernels = None
    if not _on_host(study):
        kernels = _resolved(study, arms.references(record))
        arms.check_same(record, kernels)
    trials, at_once = _trials(record, study, kernels, wanted_qemu, jobs)
    _measure(store, study, trials, at_once)


def _on_host(study: Study) -> bool:
    """True when the arms are kernels of this very machine."""
    from kdelta.study.spec import Instrument, TimeMachine

    return study.instrument is Instrument.TIME and study.time.machine is TimeMachine.HOST


def _resolved(study: Study, references: Sequence[str]) -> list[Kernel | KdeltaError]:
    """Per arm its kernel, fetched when needed, or why it cannot be had.

    Raises SpecError for a kernel that does not exist.
    """
    from kdelta.cli.download import reporting
    from kdelta.kernels import reference

    found: list[Kernel | KdeltaError] = []
    with reporting() as progress:
        for name in references:
            try:
                found.append(
                    reference.resolve(
                        name, study.machine.arch, study.machine.flavour, progress=progress
                    )
                )
            except InfraError as error:
                found.append(error)
    broken = [item for item in found if isinstance(item, KdeltaError)]
    if len(broken) == len(found):
        raise broken[0]
    for reason in broken:
        click.echo(f"kdelta: {reason.sentence()}", err=True)
    return found


def _measure(store: Store, study: Study, trials: Trials, at_once: int) -> None:
    from kdelta.cli.progress import showing
    from kdelta.run.runner import Runner

    try:
        with store.executing(), showing(store.record()) as report:
            runner = Runner(store, study, trials, report)
            if study.instrument == "time":
                runner.run_rounds(lambda: _decided(store))
            else:
                runner.run(at_once)
    except KeyboardInterrupt:
        click.echo(f"\ninterrupted; go on with: kdelta resume {store.folder.name}", err=True)
        raise
    _answer(store)


def _decided(store: Store) -> str:
    from kdelta.report import times

    return times.decided(store.record())


def _trials(
    record: RunRecord,
    study: Study,
    kernels: Sequence[Kernel | KdeltaError] | None,
    wanted_qemu: str,
    jobs: int | None,
) -> tuple[Trials, int]:
    """What measures the study's trials, and how many of them at once."""
    from kdelta.run import exact, slots, timed
    from kdelta.study.spec import Instrument, Replicate

    cancelled = threading.Event()
    if study.instrument is Instrument.TIME:
        need_time()
    if study.instrument is Instrument.EXACT:
        bench = exact.bench_of(study, wanted_qemu, cancelled)
        at_once = jobs or slots.limit(study.machine.cpus, study.machine.memory_mib)
        return exact.ExactTrials(bench, kernels or ()), at_once
    timing = timed.Timing(
        iterations=study.time.iterations,
        warmup=study.time.warmup,
        timeout_s=study.plan.timeout_s,
        cancelled=cancelled,
        hugepages=study.time.hugepages,
    )
    if kernels is not None:
        settings = exact.settings_of(study.machine)
        return timed.KvmTrials(timing, settings, wanted_qemu, kernels), 1
    used = [trial.result.facts.get("boot_id", "") for trial in record.trials if trial.result]
    references = [arm.kernel.reference for arm in record.arms]
    per_boot = study.time.replicate is Replicate.BOOT
    return timed.HostTrials(timing, references, per_boot=per_boot, used=used), 1


def _answer(store: Store) -> None:
    """Write the answers into the run's folder, print them, and exit 1 when a trial failed."""
    from kdelta.cli.show import print_report
    from kdelta.report import bundle
    from kdelta.sample import Outcome

    record = store.record()
    bundle.write_answers(record, store.folder)
    print_report(record)
    click.echo(f"\nEverything of this run: {store.folder}")
    if _failed(record, Outcome.OK, Outcome.SKIP):
        raise click.exceptions.Exit(1)


def _failed(record: RunRecord, *good: object) -> bool:
    return any(trial.result and trial.result.outcome not in good for trial in record.trials)


def _version() -> str:
    try:
        return version("kdelta")
    except PackageNotFoundError:
        return "unknown"
