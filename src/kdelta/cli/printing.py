# SPDX-License-Identifier: GPL-2.0-or-later
"""How subcommands print: pages, tables, JSON and CSV."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TextIO

import click

from kdelta.errors import SpecError
from kdelta.printable import printable
from kdelta.rendering.formats import indented, written
from kdelta.table.columns import Line, coloured, plain

if TYPE_CHECKING:
    from rich.console import JustifyMethod
    from rich.text import Text


WIDTH = 100
_ELSEWHERE = 80  # columns where no terminal and no COLUMNS say how many there are
_GAP = 2
_NARROWEST_PAGE = 40
_NARROWEST = 20  # of the column that is wrapped


def wants_colour(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """True for a terminal that takes colours, unless NO_COLOR (no-color.org) is set to anything."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def print_lines(lines: Iterable[Line], *, paged: bool = False) -> None:
    """Print a page, in colour where the terminal takes it.

    paged: through the user's pager, when it is longer than the terminal.
    """
    colour, width = wants_colour(sys.stdout, os.environ), page_width()
    content = coloured(lines, width) if colour else plain(lines, width)
    encoding = sys.stdout.encoding or "ascii"
    content = content.encode(encoding, "replace").decode(encoding)
    if paged and sys.stdout.isatty() and content.count("\n") > shutil.get_terminal_size().lines:
        click.echo_via_pager(content, color=colour)
        return
    click.echo(content, nl=False, color=colour)


def page_width() -> int:
    """Columns that a page may take, at most WIDTH: COLUMNS says them, or the terminal does.

    Of a pipe it is the terminal that its errors go to, which a pager shows it on, too.
    """
    return max(_NARROWEST_PAGE, min(_columns(sys.stdout, sys.stderr), WIDTH))


def _columns(*streams: TextIO) -> int:
    """What COLUMNS says, else the first of the streams that is a terminal, else _ELSEWHERE."""
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told):
        return int(told)
    for stream in streams:
        try:
            if columns := os.get_terminal_size(stream.fileno()).columns:
                return columns
        except (OSError, ValueError, AttributeError):  # closed, not a terminal, or not a file
            continue
    return _ELSEWHERE


def print_found(form: str, view: Any, found: object, **choice: Any) -> None:
    """Print findings by their view in rendering, in one of its formats; "": as text."""
    if form:
        print_raw(written(form, view, found))
    else:
        print_lines(view.show(found, **choice))


def print_raw(content: str) -> None:
    """Write bytes, so that no platform changes the line ends of CSV."""
    click.echo(content.encode(), nl=False)


def write_output(content: str | bytes, path: Path) -> None:
    """Write what would be printed into a file that the user named.  Raises SpecError."""
    try:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        raise SpecError(
            f"cannot be written: {error.strerror}", place=str(path), action="choose another file"
        ) from error


def print_json(value: Any) -> None:
    """Print a value as indented JSON; an infinity or NaN is null."""
    print_raw(indented(value))


def print_table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    right: Collection[str] = (),
    wrap: str = "",
    at_most: Mapping[str, int] = MappingProxyType({}),
    indent: int = 0,
) -> None:
    """Print a table as wide as a page; heads that are all empty are left out.

    right: heads of columns that align right.  wrap: head of the column that is wrapped so that
    the table fits; without one it is the last.  at_most: widths of columns that are wrapped always.
    """
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    width = page_width()
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
