# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables and JSON as subcommands print them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from kdelta.printable import printable

if TYPE_CHECKING:
    from rich.console import JustifyMethod
    from rich.text import Text

WIDTH = 100
_GAP = 2
_NARROWEST = 20  # of the column that is wrapped


def print_json(value: Any) -> None:
    """Print a value as indented JSON; an infinity or NaN is null."""
    from kdelta.rendering.formats import indented

    click.echo(indented(value), nl=False)


def print_table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    right: Collection[str] = (),
    wrap: str = "",
    at_most: Mapping[str, int] = MappingProxyType({}),
    indent: int = 0,
) -> None:
    """Print a table as wide as the terminal, at most 100; heads that are all empty are left out.

    right: heads of columns that align right.  wrap: head of the column that is wrapped so that
    the table fits; without one it is the last.  at_most: widths of columns that are wrapped always.
    """
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    cells = [[Text(printable(c)) if isinstance(c, str) else c for c in row] for row in rows]
    widest = [
        max(len(head), *(len(row[at]) for row in cells if row), 0) for at, head in enumerate(heads)
    ]
    widths = [min(wide, at_most.get(head, wide)) for wide, head in zip(widest, heads, strict=True)]
    wrapped = heads.index(wrap) if wrap else len(heads) - 1
    others = sum(widths) - widths[wrapped] + _GAP * (len(heads) - 1)
    widths[wrapped] = max(width - indent - others, _NARROWEST)
    table = Table(
        box=None,
        pad_edge=False,
        padding=(0, _GAP, 0, 0),
        header_style="bold",
        show_header=any(heads),
    )
    for head, most in zip(heads, widths, strict=True):
        justify: JustifyMethod = "right" if head in right else "left"
        table.add_column(head, justify=justify, max_width=most, overflow="fold")
    for row in cells:
        table.add_row(*row)
    console = Console(highlight=False, width=indent + sum(widths) + _GAP * len(heads))
    with console.capture() as capture:
        console.print(Padding(table, (0, 0, 0, indent)))
    for line in capture.get().splitlines():
        click.echo(line.rstrip())
