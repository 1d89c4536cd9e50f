# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta new`: the pair of files that a workload of one's own starts from."""

from __future__ import annotations

import re
from pathlib import Path

import click

from kdelta.errors import SpecError

SUFFIXES = (".c", ".toml")


@click.command("new")
@click.argument("name")
def new(name: str) -> None:
    """Write NAME.c and NAME.toml here, which measure something, to start from."""
    from kdelta import data
    from kdelta.cli.printing import write_output

    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", name):
        raise SpecError(
            f"{name!r} is no name for a workload", action="take lower-case letters, digits and _"
        )
    files = [Path(f"{name}{suffix}") for suffix in SUFFIXES]
    for file in files:
        if file.exists():
            raise SpecError("is there already", place=str(file), action="take another name")
    for file in files:
        template = data.directory("templates") / f"new{file.suffix}"
        write_output(template.read_text(encoding="ascii").replace("@NAME@", name), file)
    click.echo(
        f"wrote {name}.c and {name}.toml; measure: kdelta run ./{name}.c --kernels 6.16,6.17"
    )
