# SPDX-License-Identifier: GPL-2.0-or-later
"""A run on other machines: what --scheduler, --on and --pool mean, and what measures there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from kdelta.errors import SpecError
from kdelta.printable import printable
from kdelta.study import pools
from kdelta.study.pools import DaskPool, HostPool, LabPools

if TYPE_CHECKING:
    from kdelta.cli.means import Means
    from kdelta.journal.run import RunJournal
    from kdelta.run.exact import ExactTrials
    from kdelta.run.runner import Trials
    from kdelta.run.timed import HostPools
    from kdelta.study.spec import Study

AT_ONCE = 256  # trials of a run that wait for a place, or have one


def check(study: Study, means: Means) -> None:
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
        from kdelta.workers.dask import checked

        checked(_counting(means)[1].scheduler)


def _asked(means: Means) -> LabPools:
    return pools.load(means.pools) if means.pools else pools.of_scheduler(means.scheduler)


def _counting(means: Means) -> tuple[str, DaskPool]:
    """The pool that counts, by its name.  Raises SpecError without one."""
    for name, pool in _asked(means).pool.items():
        if isinstance(pool, DaskPool):
            return name, pool
    raise SpecError(
        "no pool of the file counts",
        place=str(means.pools),
        action='add one, such as [pool.rack] with kind = "dask" (docs/lab.md)',
    )


def timing(study: Study, means: Means) -> HostPools | None:
    """What times the study's trials on machines of the pools that were asked for; None: this one.

    Raises SpecError when no pool could.
    """
    from kdelta.run.timed import HostPools, HostPoolTrials

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
    return HostPools(tuple(HostPoolTrials(name, pool, study) for name, pool in fitting.items()))


@contextmanager
def measuring(journal: RunJournal, trials: Trials | HostPools, means: Means) -> Iterator[Trials]:
    """What measures the trials: the pools that were asked for, or the trials themselves."""
    from kdelta.journal.status import Assignments
    from kdelta.run import timed
    from kdelta.run.exact import ExactTrials

    if isinstance(trials, timed.HostPools):
        with trials.placed(journal, Assignments(journal.folder).tell) as there:
            yield there
        return
    if journal.study.instrument.traits.interleaved:
        timed.note(journal.folder, "")
    if means.elsewhere and isinstance(trials, ExactTrials):
        with _on_workers(journal, trials, means) as there:
            yield there
    else:
        yield trials


@contextmanager
def _on_workers(journal: RunJournal, trials: ExactTrials, means: Means) -> Iterator[Trials]:
    from kdelta.journal.status import Assignments
    from kdelta.workers.checkpoints import SharedCheckpoints
    from kdelta.workers.dask import DaskWorkers, is_open
    from kdelta.workers.dispatch import DispatchedTrials

    name, pool = _counting(means)
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
                twice=_asked(means).check.twice,
                assigned=Assignments(journal.folder).tell,
            )
        finally:
            workers.close()
