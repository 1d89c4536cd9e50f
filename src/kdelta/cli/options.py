# SPDX-License-Identifier: GPL-2.0-or-later
"""Options that several subcommands have."""

from __future__ import annotations

from pathlib import Path

import click

runs_directory = click.option(
    "--runs",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="KDELTA_RUNS",
    default="kdelta-runs",
    show_default=True,
    help="Directory of the runs.",
)
