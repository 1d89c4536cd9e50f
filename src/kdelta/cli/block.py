# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta block`: what a job of a cluster runs on its node."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import click

from kdelta.errors import InfraError
from kdelta.printable import printable


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def block(folder: Path) -> None:
    """Measure the block of a timed run in FOLDER, and leave its results there.

    A job of a cluster runs this; nobody else need.
    """
    from kdelta.cli import execution
    from kdelta.cli.means import Means
    from kdelta.journal import blocks

    order = blocks.order_of(folder)
    if blocks.is_done(folder):  # by another job of it
        return
    own = tuple(execution.identities()[:2])
    if own != order.kdelta:
        raise InfraError(
            f"{platform.node()[:60]} has another kdelta: {'; '.join(own)},"
            f" not {printable('; '.join(order.kdelta), 300)}",
            action="install the same one, or name its command by kdelta in lab.toml",
        )
    job = os.environ.get("SLURM_JOB_ID", "0")
    restart = os.environ.get("SLURM_RESTART_COUNT", "0")
    node = os.environ.get("SLURMD_NODENAME", "") or platform.node()
    machine = blocks.BlockMachine(job=job[:20], restart=restart[:20], node=node[:100])
    attempt = blocks.attempt(folder, f"{int(job)}-{int(restart)}")
    execution.measure_all(attempt, Means(wanted_qemu=order.wanted_qemu))
    if not blocks.finish(folder, attempt, machine):
        click.echo("another attempt was first", err=True)
