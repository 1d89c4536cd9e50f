# SPDX-License-Identifier: GPL-2.0-or-later
"""A run on other machines: what its options mean, and what measures in each kind of pool."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from kdelta.errors import SpecError
from kdelta.printable import printable
from kdelta.study import pools
from kdelta.study.pools import DaskPool, HostPool, LabPools, LocalPool
from kdelta.study.slurm import SlurmPool

if TYPE_CHECKING:
    from kdelta.cli.means import Means
    from kdelta.journal.run import RunJournal
    from kdelta.run.elsewhere import TimingPool, TimingPools
    from kdelta.run.spread import Workers
    from kdelta.run.trials import Trials
    from kdelta.study.spec import Study

AT_ONCE = 256  # trials of a run that wait for a place, or have one


def check(study: Study, means: Means) -> None:
    """Raise SpecError for what no pool can measure."""

    if not means.spread:
        return
    if means.scheduler and means.pools:
        raise SpecError("--on and --scheduler exclude each other", action="name it in the file")
    timed_there = study.instrument.traits.interleaved and means.pools
    if not study.instrument.traits.repeats and not timed_there:
        raise SpecError(
            "only exact counts are the same on every machine, and this study is of something else",
            action="leave out --on and --scheduler",
        )
    from kdelta.run.cluster import checked

    for pool in _asked(means).pool.values():
        if isinstance(pool, DaskPool):
            checked(pool.scheduler)


def _asked(means: Means) -> LabPools:
    return pools.load(means.pools) if means.pools else pools.of_scheduler(means.scheduler)


def placed(study: Study, means: Means) -> TimingPools | None:
    """What times the study's trials on machines of the pools that were asked for; None: this one.

    Raises SpecError when no pool could.
    """
    from kdelta.run.elsewhere import TimingPools

    if not means.pools:
        return None
    asked = pools.load(means.pools)
    fitting = {name: pool for name, pool in asked.pool.items() if type(pool) in TIMING}
    if means.pool:
        fitting = {name: pool for name, pool in fitting.items() if name == means.pool}
    if not fitting:
        what = f"no pool for times is called {printable(means.pool, 60)}"
        raise SpecError(
            what if means.pool else "no pool of the file measures times",
            place=str(means.pools),
            action='add one, such as [pool.NAME] with kind = "host" (docs/lab.md)',
        )
    return TimingPools(
        tuple(TIMING[type(pool)](name, pool, study, means) for name, pool in fitting.items())
    )


@contextmanager
def spread(journal: RunJournal, trials: Trials | TimingPools, means: Means) -> Iterator[Trials]:
    """What measures the trials: the pools that were asked for, or the trials themselves."""
    from kdelta.journal.doing import Doing
    from kdelta.run import elsewhere
    from kdelta.run.elsewhere import TimingPools
    from kdelta.run.exact import ExactTrials

    if isinstance(trials, TimingPools):
        with trials.placed(journal, Doing(journal.folder).tell) as measuring:
            yield measuring
        return
    if journal.study.instrument.traits.interleaved:
        elsewhere.note(journal.folder, "")
    if not means.spread or not isinstance(trials, ExactTrials):
        yield trials
        return
    from kdelta.run.cluster import ManyWorkers
    from kdelta.run.spread import SpreadTrials
    from kdelta.run.travel import Points

    asked = _asked(means)
    workers = ManyWorkers(_workers(asked, journal, means))
    doing = Doing(journal.folder)
    with TemporaryDirectory(prefix="kdelta-spread-") as scratch:
        points = Points(Path(scratch), trials.cancelled)
        try:
            yield SpreadTrials(
                trials, workers, points=points, twice=asked.check.twice, doing=doing.tell
            )
        finally:
            workers.close()


def _workers(asked: LabPools, journal: RunJournal, means: Means) -> list[Workers]:
    """The workers of all pools that count; those that time are left alone."""
    counting = {name: pool for name, pool in asked.pool.items() if type(pool) in COUNTING}
    if not counting:
        raise SpecError(
            "no pool of the file counts",
            place=str(means.pools),
            action='add one, such as [pool.here] with kind = "local"',
        )
    return [COUNTING[type(pool)](name, pool, journal, means) for name, pool in counting.items()]


def _local(_name: str, pool: LocalPool, journal: RunJournal, means: Means) -> Workers:
    from kdelta.host import slots
    from kdelta.run import exact
    from kdelta.run.cluster import LocalWorkers

    return LocalWorkers(pool.jobs or means.jobs or slots.at_once(exact.guests_of(journal.study)))


def _dask(name: str, pool: DaskPool, _journal: RunJournal, _means: Means) -> Workers:
    from kdelta.run.cluster import DaskWorkers, is_open

    if is_open(pool.scheduler):
        click.echo(
            f"{name}: {printable(pool.scheduler, 200)} is open: whoever reaches it can run"
            " programs as you on every worker; use tls://",
            err=True,
        )
    return DaskWorkers(pool.scheduler)


def _slurm(name: str, pool: SlurmPool, study: Study, means: Means) -> TimingPool:
    from kdelta.cli.execution import identities
    from kdelta.journal.blocks import BlockOrder
    from kdelta.run.blocks import SlurmTrials
    from kdelta.run.slurm import Slurm

    order = BlockOrder(kdelta=tuple(identities()[:2]), wanted_qemu=means.wanted_qemu)
    return SlurmTrials(Slurm(name, pool), pool, study, order)


def _host(name: str, pool: HostPool, study: Study, _means: Means) -> TimingPool:
    from kdelta.run.hosted import HostedTrials

    return HostedTrials(name, pool, study)


# Per kind of pool what measures there: exact trials, which any of them may have, and timed ones.
COUNTING: Mapping[type, Callable[[str, Any, RunJournal, Means], Workers]] = {
    LocalPool: _local,
    DaskPool: _dask,
}
TIMING: Mapping[type, Callable[[str, Any, Study, Means], TimingPool]] = {
    HostPool: _host,
    SlurmPool: _slurm,
}
