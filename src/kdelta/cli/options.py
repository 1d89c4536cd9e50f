# SPDX-License-Identifier: GPL-2.0-or-later
"""Options that several subcommands have."""

from __future__ import annotations

from pathlib import Path

import click

from kdelta.errors import InfraError


def need_time() -> None:
    """Raise InfraError when what judges times is not installed (the extra "time")."""
    from importlib.util import find_spec

    missing = [name for name in ("numpy", "scipy") if find_spec(name) is None]
    if missing:
        raise InfraError(
            f"times are judged with {' and '.join(missing)}, which is not installed",
            action="pip install 'kdelta[time]'",
        )


qemu_option = click.option(
    "--qemu",
    "wanted_qemu",
    default="",
    envvar="KDELTA_QEMU",
    metavar="PATH|VERSION",
    help="Which QEMU: a path, or a version fetched with `kdelta qemu fetch`.",
)
runs_directory = click.option(
    "--runs",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="KDELTA_RUNS",
    default="kdelta-runs",
    show_default=True,
    help="Directory of the runs.",
)
