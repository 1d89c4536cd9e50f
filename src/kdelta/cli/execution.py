# SPDX-License-Identifier: GPL-2.0-or-later
"""From a study to a run folder with its answers: what every measuring command does."""

from __future__ import annotations

import os
import re
import secrets
import threading
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kdelta.cli.means import Means
from kdelta.cli.options import need
from kdelta.errors import KdeltaError

if TYPE_CHECKING:
    from kdelta.journal.run import RunJournal, RunRecord
    from kdelta.kernels.kernel import Kernel
    from kdelta.run.runner import Trials
    from kdelta.run.timed import HostPools
    from kdelta.sample import Skip
    from kdelta.study.spec import Study

_QEMU_VERSION = re.compile(r"[0-9]+(\.[0-9]+){1,3}")


def check_scenarios(study: Study) -> None:
    """Raise SpecError for a scenario that does not exist.

    Tell what a user's C file lacks, and of which scenarios the pages stay small whatever is asked.
    """
    from kdelta import guest, workload
    from kdelta.study.spec import points

    larger = any("=always" in p.machine.mthp or "=madvise" in p.machine.mthp for p in points(study))
    told: set[str] = set()
    for name in study.scenarios:
        load, scenario = workload.parse_reference(name)
        if larger and workload.Fact(name="compound_heads", want="0") in scenario.contract:
            cells = ", ".join(f"{name}.{folio}" for folio in scenario.folios)
            instead = f"; in folios it is {cells}" if cells else ""
            click.echo(f"note: {name} keeps to base pages whatever mthp is{instead}", err=True)
        place = str(load.program)
        if not workload.is_file(name.rpartition(":")[0]) or place in told:
            continue
        told.add(place)
        click.echo(guest.warnings(load.program, study.machine.target), err=True, nl=False)
        if load.declared:
            click.echo(f"{place} has no TOML: its page state is told, none is wanted", err=True)


def start(
    study: Study,
    runs: Path,
    means: Means,
    *,
    summary: bool | None = None,
) -> None:
    """Begin a run of a study in a new folder under `runs`, measure it and print its answers."""
    from msgspec import structs

    from kdelta.journal.files import new_folder
    from kdelta.journal.run import RunJournal, RunRecord
    from kdelta.run import arms
    from kdelta.study import plan

    kernels = None if on_host(study) else _resolved(study, arms.planned(study))
    now = datetime.now(UTC)
    seed = study.plan.seed if study.plan.seed is not None else secrets.randbits(32)
    planned = plan.make_plan(study, seed)
    own = arms.records(study, kernels)
    record = RunRecord(
        run_id="",
        name=study.name,
        title=study.title,
        seed=seed,
        rounds=planned.rounds,
        created=now.isoformat(timespec="seconds"),
        kdelta_version=own_version(),
        study=study,
        arms=own,
        subjects=arms.subjects(own),
        trials=planned.trials,
    )
    # Before there is a folder: what cannot be measured here leaves none behind.
    measured = _trials(record, kernels, means)
    folder = new_folder(runs, study.name, now)
    journal = RunJournal.create(folder, structs.replace(record, run_id=folder.name))
    _measure(journal, study, measured, means, summary)


def execute(journal: RunJournal, means: Means, *, summary: bool | None = None) -> None:
    """Go on with a run: on the very kernels that it began with."""
    from kdelta.cli import pools
    from kdelta.journal import results
    from kdelta.run import arms

    record = journal.record()
    study = record.study
    if all(trial.result for trial in record.trials):
        if study.instrument.traits.interleaved and (own := pools.timing(study, means)):
            own.give_back(journal)  # killed behind its last trial
        _answer(journal, summary=summary)
        return
    kernels = None
    if not on_host(study):
        kernels = _resolved(study, arms.references(record))
        arms.check_same(record, kernels)
    means = replace(means, wanted_qemu=means.wanted_qemu or qemu_of(record))
    boots = results.boots(journal.folder)
    _measure(journal, study, _trials(record, kernels, means, boots), means, summary)


def qemu_of(record: RunRecord) -> str:
    """The version of QEMU that a run began with: counts of another one could not be compared.

    "" for several, and for what is no version: a stranger's run names no program of this machine.
    """
    found = {
        t.result.environment.qemu_version
        for t in record.trials
        if t.result and t.result.environment
    }
    version = found.pop() if len(found) == 1 else ""
    return version if _QEMU_VERSION.fullmatch(version) else ""


def on_host(study: Study) -> bool:
    """True when the arms are kernels of this very machine."""
    from kdelta.study.spec import TimeMachine

    return study.instrument.traits.interleaved and study.time.machine is TimeMachine.HOST


def _resolved(study: Study, references: Sequence[str]) -> list[Kernel | KdeltaError]:
    """Per arm its kernel, fetched when needed, or why it cannot be had.

    Raises SpecError for a kernel that does not exist.
    """
    from kdelta.cli.download import reporting
    from kdelta.kernels import reference

    machine = study.machine
    with reporting() as progress:
        found: list[Kernel | KdeltaError] = [
            *reference.resolve_all(references, machine.arch, machine.flavour, progress=progress)
        ]
    broken = [item for item in found if isinstance(item, KdeltaError)]
    if len(broken) == len(found):
        raise broken[0]
    for reason in broken:
        click.echo(f"kdelta: {reason.sentence()}", err=True)
    return found


def _measure(
    journal: RunJournal,
    study: Study,
    measured: tuple[Trials | HostPools, int],
    means: Means,
    summary: bool | None,  # noqa: FBT001
) -> None:
    trials, at_once = measured
    from kdelta.cli.pools import measuring
    from kdelta.cli.progress import showing
    from kdelta.run.runner import Runner

    try:
        with (
            journal.executing(),
            measuring(journal, trials, means) as measured_by,
            showing(journal.record()) as report,
        ):
            runner = Runner(journal, measured_by, report)
            if study.instrument.traits.interleaved:
                runner.run_rounds(lambda: _decided(journal))
            else:
                runner.run(at_once)
    except KeyboardInterrupt:
        click.echo(f"\ninterrupted; go on with: kdelta resume {journal.folder.name}", err=True)
        raise
    _answer(journal, summary=summary)


def _decided(journal: RunJournal) -> Skip | None:
    from kdelta.analysis.findings import decided

    return decided(journal.record())


def _trials(
    record: RunRecord,
    kernels: Sequence[Kernel | KdeltaError] | None,
    means: Means,
    boots: Collection[str] = (),
) -> tuple[Trials | HostPools, int]:
    """What measures the trials of a run, and how many of them at once.

    boots: in which a timed program of the run was begun before.
    """
    from kdelta.cli import pools
    from kdelta.sample import Instrument

    pools.check(record.study, means)
    need(record.instrument)
    measured_by = {
        Instrument.EXACT: _counting,
        Instrument.TIME: _timing,
        Instrument.TRACE: _tracing,
    }
    return measured_by[record.instrument](record, kernels, means, boots)


def _counting(
    record: RunRecord,
    kernels: Sequence[Kernel | KdeltaError] | None,
    means: Means,
    _boots: Collection[str],
) -> tuple[Trials | HostPools, int]:
    from kdelta.cli import pools
    from kdelta.cli.download import reporting
    from kdelta.host import leases
    from kdelta.run import arms, exact

    study, cancelled = record.study, threading.Event()
    with reporting() as progress:
        bench = exact.bench_of(study, means.wanted_qemu, cancelled, progress, again=means.again)
    at_once = pools.AT_ONCE if means.elsewhere else means.jobs
    at_once = at_once or leases.at_once(exact.guests_of(study))
    machines = arms.machines(study)
    reuse = study.plan.reuse
    counting = exact.ExactTrials(bench, kernels or (), machines, reuse=reuse, jobs=means.jobs)
    return counting, at_once


def _timing(
    record: RunRecord,
    kernels: Sequence[Kernel | KdeltaError] | None,
    means: Means,
    boots: Collection[str],
) -> tuple[Trials | HostPools, int]:
    from kdelta.cli import pools
    from kdelta.run import arms, exact, timed
    from kdelta.study.spec import Replicate

    study = record.study
    if there := pools.timing(study, means):
        return there, 1
    timing = timed.timing_of(study, threading.Event())
    if kernels is not None:
        exact.guests_of(study, cores=len(os.sched_getaffinity(0)))
        own = arms.machines(study)
        return timed.KvmTrials(timing, study.machine, means.wanted_qemu, kernels, own), 1
    results = [trial.result for trial in record.trials]
    used = [*boots, *(each.facts.boot_id for each in results if each and each.facts)]
    references = [arm.kernel.reference for arm in record.arms]
    per_boot = study.time.replicate is Replicate.BOOT
    return timed.HostTrials(timing, references, per_boot=per_boot, used=used), 1


def _tracing(
    record: RunRecord,
    kernels: Sequence[Kernel | KdeltaError] | None,
    means: Means,
    _boots: Collection[str],
) -> tuple[Trials | HostPools, int]:
    from kdelta.cli.download import reporting
    from kdelta.host import leases
    from kdelta.run import arms, exact, traced

    study, cancelled = record.study, threading.Event()
    with reporting() as progress:
        bench = exact.bench_of(study, means.wanted_qemu, cancelled, progress)
    at_once = means.jobs or leases.at_once(exact.guests_of(study))
    own = arms.machines(study)
    return traced.TracedTrials(study.trace, bench, kernels or (), own, jobs=means.jobs), at_once


def _answer(journal: RunJournal, *, summary: bool | None) -> None:
    """Write the answers into the run's folder, print them, and exit 1 when a trial failed."""
    from kdelta.cli.show import print_report
    from kdelta.rendering import bundle
    from kdelta.sample import Outcome

    record = journal.record()
    bundle.write_run_files(record, journal.folder)
    print_report(record, summary=summary)
    click.echo(f"\nEverything of this run: {journal.folder}")
    if _failed(record, Outcome.OK, Outcome.SKIP):
        raise click.exceptions.Exit(1)


def _failed(record: RunRecord, *good: object) -> bool:
    return any(trial.result and trial.result.outcome not in good for trial in record.trials)


def own_version() -> str:
    """kdelta's own, as runs keep it."""
    try:
        return version("kdelta")
    except PackageNotFoundError:
        return "unknown"


def identities() -> list[str]:
    """The version of kdelta, the digests of its own files, and what it counts with unasked."""
    import os
    import platform

    from kdelta import cache, data
    from kdelta.guests import qemu

    def of(folder: str) -> str:
        files = sorted(data.directory(folder).glob("*.[ch]"))
        return cache.digest(*(path.read_bytes() for path in files))[:16]

    plugin = qemu.plugin_digest()[:16]
    code = cache.digest(*(path.read_bytes() for path in data.code()))[:16]
    counting = os.environ.get("KDELTA_QEMU") or qemu.PINNED
    python = f"Python {platform.python_version()}"
    return [
        f"kdelta {own_version()}",
        f"sources: plugin {plugin}, guest {of('guest')}, workloads {of('workloads')} (SHA-256)",
        f"code {code}, QEMU {counting}, {python}, {platform.system()} {platform.machine()}",
    ]
