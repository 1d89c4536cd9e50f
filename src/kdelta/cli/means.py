# SPDX-License-Identifier: GPL-2.0-or-later
"""With what a study is measured: QEMU, jobs, and the machines that measure; options for them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from kdelta.cli.options import again_option, qemu_option

_Command = TypeVar("_Command", bound=Callable[..., Any])

_at_most = click.option(
    "-j",
    "--jobs",
    type=click.IntRange(1, 256),
    help="Guests at once.  [default: what cores and memory allow]",
)


_scheduler = click.option(
    "--scheduler",
    default="",
    metavar="ADDRESS",
    help="Count on the workers of a Dask scheduler, as tcp://127.0.0.1:8786 (docs/lab.md).",
)
_pools = click.option(
    "--on",
    "pools",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="LAB.TOML",
    help="Measure on the pools that this file names.",
)
_pool = click.option(
    "--pool",
    default="",
    metavar="NAME",
    help="With --on, of several pools for times this one; else the first that is free.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """With what a study is measured here; no part of it.

    wanted_qemu: "" for the usual one.  jobs: guests at once, None for what fits.  again: whatever
    was counted before.  scheduler: of the Dask workers that count.  pools: a file of pools; pool:
    the one of them for times, "" for the first that is free.
    """

    wanted_qemu: str = ""
    jobs: int | None = None
    again: bool = False
    scheduler: str = ""
    pools: Path | None = None
    pool: str = ""

    @property
    def elsewhere(self) -> bool:
        """True when other machines measure."""
        return bool(self.scheduler or self.pools)


def means_options(command: _Command) -> _Command:
    """The options for Means; the command gets them as `means`."""

    names = ("wanted_qemu", "jobs", "again", "scheduler", "pools", "pool")

    @functools.wraps(command)
    def chosen(*args: Any, **given: Any) -> Any:
        means = Means(**{name: given.pop(name) for name in names})
        return command(*args, means=means, **given)

    wrapped: Any = again_option(_pool(_pools(_scheduler(chosen))))
    return qemu_option(_at_most(wrapped))  # type: ignore[no-any-return]
