# SPDX-License-Identifier: GPL-2.0-or-later
"""A run on other machines' guests: which workers a command's options mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from kdelta.errors import SpecError
from kdelta.printable import printable

if TYPE_CHECKING:
    from kdelta.cli.execution import Means
    from kdelta.journal.run import RunJournal
    from kdelta.run.spread import Workers
    from kdelta.run.trials import Trials
    from kdelta.study.pools import LabPools
    from kdelta.study.spec import Study

AT_ONCE = 256  # trials of a run that wait for a place, or have one


def check(study: Study, means: Means) -> None:
    """Raise SpecError for what cannot be spread."""
    from kdelta.sample import Instrument

    if not means.spread:
        return
    if study.instrument is not Instrument.EXACT:
        raise SpecError(
            "only exact counts are the same on every machine, and this study is of something else",
            action="leave out --on and --scheduler",
        )
    if means.scheduler and means.pools:
        raise SpecError("--on and --scheduler exclude each other", action="name it in the file")


@contextmanager
def spread(journal: RunJournal, trials: Trials, means: Means) -> Iterator[Trials]:
    """What measures the trials: the pools that were asked for, or the trials themselves."""
    from kdelta.run.exact import ExactTrials

    if not means.spread or not isinstance(trials, ExactTrials):
        yield trials
        return
    from kdelta.journal.doing import Doing
    from kdelta.run.cluster import ManyWorkers
    from kdelta.run.spread import SpreadTrials
    from kdelta.study import pools

    asked = pools.load(means.pools) if means.pools else pools.of_scheduler(means.scheduler)
    workers = ManyWorkers(_pools(asked, journal, means))
    doing = Doing(journal.folder)
    try:
        yield SpreadTrials(trials, workers, twice=asked.check.twice, doing=doing.tell)
    finally:
        workers.close()


def _pools(asked: LabPools, journal: RunJournal, means: Means) -> list[Workers]:
    from kdelta.host import slots
    from kdelta.run import exact
    from kdelta.run.cluster import DaskWorkers, LocalWorkers, is_open
    from kdelta.study.pools import DaskPool

    found: list[Workers] = []
    for name, pool in asked.pool.items():
        if isinstance(pool, DaskPool):
            if is_open(pool.scheduler):
                click.echo(
                    f"{name}: {printable(pool.scheduler, 200)} is open: whoever reaches it can run"
                    " programs as you on every worker; use tls://",
                    err=True,
                )
            found.append(DaskWorkers(pool.scheduler))
        else:
            jobs = pool.jobs or means.jobs or slots.at_once(exact.guests_of(journal.study))
            found.append(LocalWorkers(jobs))
    return found
