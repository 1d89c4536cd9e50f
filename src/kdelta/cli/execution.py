# SPDX-License-Identifier: GPL-2.0-or-later
"""From a study to a run folder with its answers: what every measuring command does."""

from __future__ import annotations

import os
import platform
import re
import secrets
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from msgspec import structs

from kdelta import cache, data, guest, workload
from kdelta.analysis.findings import enough_valid
from kdelta.cli.options import Means, need
from kdelta.cli.progress import reporting, showing
from kdelta.cli.show import print_report
from kdelta.errors import KdeltaError, SpecError
from kdelta.guests import qemu
from kdelta.host import leases
from kdelta.journal.files import new_folder
from kdelta.journal.run import RunJournal, RunRecord
from kdelta.journal.status import Assignments
from kdelta.kernels import reference
from kdelta.kernels.kernel import Kernel
from kdelta.printable import printable
from kdelta.rendering import bundle
from kdelta.run import arms, exact, timed, traced
from kdelta.run.exact import ExactTrials
from kdelta.run.runner import Runner, Trials
from kdelta.sample import Outcome
from kdelta.study import plan, pools
from kdelta.study.pools import DaskPool, HostPool, LabPools
from kdelta.study.spec import Study, TimeMachine, points
from kdelta.workers.checkpoints import SharedCheckpoints
from kdelta.workers.dask import DaskWorkers, checked, is_open
from kdelta.workers.dispatch import DispatchedTrials

AT_ONCE = 256  # trials of a run that wait for a place, or have one
_QEMU_VERSION = re.compile(r"[0-9]+(\.[0-9]+){1,3}")


def check_scenarios(study: Study) -> None:
    """Raise SpecError for a scenario that does not exist.

    Tell what a user's C file lacks, and of which scenarios the pages stay small whatever is asked.
    """
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
            click.echo(
                f"{place} has no TOML: its page state is compared, and not checked", err=True
            )


def start(study: Study, runs: Path, means: Means, *, summary: bool | None = None) -> None:
    """Begin a run of a study in a new folder under `runs`, measure it and print its answers."""
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
    trials, at_once = _trials(record, kernels, means)
    folder = new_folder(runs, study.name, now)
    journal = RunJournal.create(folder, structs.replace(record, run_id=folder.name))
    _measure(journal, trials, at_once, means, summary=summary)


def execute(journal: RunJournal, means: Means, *, summary: bool | None = None) -> None:
    """Go on with a run: on the very kernels that it began with."""
    record = journal.record()
    study = record.study
    if all(trial.result for trial in record.trials):
        if study.instrument.traits.interleaved and (own := host_pools(study, means)):
            own.give_back(journal)  # killed behind its last trial
        _answer(journal, summary=summary)
        return
    kernels = None
    if not on_host(study):
        kernels = _resolved(study, arms.references(record))
        arms.check_same(record, kernels)
    means = replace(means, wanted_qemu=means.wanted_qemu or qemu_of(record))
    trials, at_once = _trials(record, kernels, means)
    _measure(journal, trials, at_once, means, summary=summary)


def qemu_of(record: RunRecord) -> str:
    """The version of QEMU that a run began with: counts of another one could not be compared.

    "" for several, and for what is no version: a stranger's run names no program of this machine.
    """
    results = [trial.result for trial in record.trials if trial.result]
    found = {each.environment.qemu_version for each in results if each.environment}
    version = found.pop() if len(found) == 1 else ""
    return version if _QEMU_VERSION.fullmatch(version) else ""


_VARIED = (
    "seeds disagree for a C file of yours; each is tried again in ticks, free memory, random"
    " numbers and addresses alone, to see which moves the counts"
)


def on_host(study: Study) -> bool:
    """True when the arms are kernels of this very machine."""
    return study.instrument.traits.interleaved and study.time.machine is TimeMachine.HOST


def _resolved(study: Study, references: Sequence[str]) -> list[Kernel | KdeltaError]:
    """Per arm its kernel, fetched when needed, or why it cannot be had.

    Raises SpecError for a kernel that does not exist.
    """
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
    trials: Trials | timed.HostPools,
    at_once: int,
    means: Means,
    *,
    summary: bool | None,
) -> None:
    try:
        with (
            journal.executing(),
            _placed(journal, trials, means) as placed,
            showing(journal.record()) as report,
        ):
            runner = Runner(journal, placed, report)
            if journal.study.instrument.traits.interleaved:
                runner.run_rounds(lambda: enough_valid(journal.record()))
            else:
                runner.run(at_once)
                if more := plan.sources(journal.record()):
                    click.echo(_VARIED, err=True)
                    journal.extend(more)
                    Runner(journal, placed, report).run(at_once)
    except KeyboardInterrupt:
        click.echo(f"\ninterrupted; go on with: kdelta resume {journal.folder.name}", err=True)
        raise
    _answer(journal, summary=summary)


def _trials(
    record: RunRecord,
    kernels: Sequence[Kernel | KdeltaError] | None,
    means: Means,
) -> tuple[Trials | timed.HostPools, int]:
    """What measures the trials of a run, and how many of them at once."""
    study, traits = record.study, record.instrument.traits
    check_pools(study, means)
    need(record.instrument)
    if traits.interleaved:
        return host_pools(study, means) or _timed(record, kernels, means), 1
    again = means.again and traits.repeats
    with reporting() as progress:
        bench = exact.bench_of(study, means.wanted_qemu, threading.Event(), progress, again=again)
    jobs, machines = means.jobs, arms.machines(study)
    at_once = (AT_ONCE if means.elsewhere else jobs) or leases.at_once(exact.guests_of(study))
    if not traits.repeats:
        return traced.TracedTrials(study.trace, bench, kernels or (), machines, jobs=jobs), at_once
    reuse = study.plan.reuse
    return exact.ExactTrials(bench, kernels or (), machines, reuse=reuse, jobs=jobs), at_once


def _timed(
    record: RunRecord,
    kernels: Sequence[Kernel | KdeltaError] | None,
    means: Means,
) -> Trials:
    study = record.study
    timing = timed.timing_of(study, threading.Event())
    if kernels is not None:
        exact.guests_of(study, cores=len(os.sched_getaffinity(0)))
        machines = arms.machines(study)
        return timed.KvmTrials(timing, study.machine, means.wanted_qemu, kernels, machines)
    references = [arm.kernel.reference for arm in record.arms]
    timed.check_here(study, references)
    return timed.HostTrials(timing, references)


def _answer(journal: RunJournal, *, summary: bool | None) -> None:
    """Write the answers into the run's folder, print them, and exit 1 when a trial failed."""
    record = journal.record()
    bundle.write_run_files(record, journal.folder)
    print_report(record, summary=summary)
    click.echo(f"\nEverything of this run: {journal.folder}")
    good = (Outcome.OK, Outcome.SKIP)
    if any(trial.result and trial.result.outcome not in good for trial in record.trials):
        raise click.exceptions.Exit(1)


def own_version() -> str:
    """kdelta's own, as runs keep it."""
    try:
        return version("kdelta")
    except PackageNotFoundError:
        return "unknown"


def identities() -> list[str]:
    """The version of kdelta, the digests of its own files, and what it counts with unasked."""

    def digest(files: Iterable[Path]) -> str:
        return cache.digest(*(path.read_bytes() for path in files))[:16]

    folders = (data.directory(name) for name in ("guest", "workloads"))
    own, loads = (digest(sorted(folder.glob("*.[ch]"))) for folder in folders)
    plugin, code = qemu.plugin_digest()[:16], digest(data.code())
    counting = os.environ.get("KDELTA_QEMU") or qemu.PINNED
    python = f"Python {platform.python_version()}"
    return [
        f"kdelta {own_version()}",
        f"sources: plugin {plugin}, guest {own}, workloads {loads} (SHA-256)",
        f"code {code}, QEMU {counting}, {python}, {platform.system()} {platform.machine()}",
    ]


def check_pools(study: Study, means: Means) -> None:
    """Raise SpecError for what no pool can measure."""
    if not means.elsewhere:
        return
    if means.scheduler and means.pools:
        raise SpecError("--on and --scheduler exclude each other", action="name it in the file")
    traits = study.instrument.traits
    if not traits.repeats and not (traits.interleaved and means.pools):
        raise SpecError(
            "only exact counts are the same on every machine, and this study is of something else",
            action="leave out --on and --scheduler",
        )
    if traits.repeats:
        checked(_dask_pool(means)[2].scheduler)


def _dask_pool(means: Means) -> tuple[LabPools, str, DaskPool]:
    """The pools, and the name and the one that counts.  Raises SpecError without one."""
    asked = pools.load(means.pools) if means.pools else pools.of_scheduler(means.scheduler)
    for name, pool in asked.pool.items():
        if isinstance(pool, DaskPool):
            return asked, name, pool
    raise SpecError(
        "no pool of the file counts",
        place=str(means.pools),
        action='add one, such as [pool.rack] with kind = "dask" (docs/lab.md)',
    )


def host_pools(study: Study, means: Means) -> timed.HostPools | None:
    """What times the study's trials on machines of the pools that were asked for; None: this one.

    Raises SpecError when no pool could.
    """
    if not means.pools:
        return None
    asked = pools.load(means.pools)
    fitting = {name: pool for name, pool in asked.pool.items() if isinstance(pool, HostPool)}
    if means.pool:
        fitting = {name: pool for name, pool in fitting.items() if name == means.pool}
    if not fitting:
        what = f"no pool for times is called {printable(means.pool, 60)}"
        raise SpecError(
            what if means.pool else "no pool of the file measures times",
            place=str(means.pools),
            action='add one, such as [pool.NAME] with kind = "host" (docs/lab.md)',
        )
    return timed.HostPools(
        tuple(timed.HostPoolTrials(name, pool, study) for name, pool in fitting.items())
    )


@contextmanager
def _placed(
    journal: RunJournal, trials: Trials | timed.HostPools, means: Means
) -> Iterator[Trials]:
    """The trials where they are measured: on the pools that were asked for, or here."""
    assigned = Assignments(journal.folder).tell
    if isinstance(trials, timed.HostPools):
        with trials.placed(journal, assigned) as there:
            yield there
        return
    if journal.study.instrument.traits.interleaved:
        timed.note(journal.folder, "")
    if not (means.elsewhere and isinstance(trials, ExactTrials)):
        yield trials
        return
    asked, name, pool = _dask_pool(means)
    if is_open(pool.scheduler):
        click.echo(
            f"{name}: {printable(pool.scheduler, 200)} is open: whoever reaches it can run"
            " programs as you on every worker; use tls://",
            err=True,
        )
    workers = DaskWorkers(pool.scheduler)
    with TemporaryDirectory(prefix="kdelta-workers-") as scratch:
        try:
            yield DispatchedTrials(
                trials,
                workers,
                checkpoints=SharedCheckpoints(Path(scratch), trials.cancelled),
                twice=asked.check.twice,
                assigned=assigned,
            )
        finally:
            workers.close()
