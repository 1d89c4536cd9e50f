# SPDX-License-Identifier: GPL-2.0-or-later
"""Lines of a page for a terminal, a mail or a file: at most WIDTH columns, colour kept apart.

rich lays tables out; a line is kept as spans, so that one page is printed with and without colour.
What depends on the width is laid out last, when a page becomes text: a terminal may be narrower.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import Literal

from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from kdelta.metric import number
from kdelta.printable import printable
from kdelta.verdict.comparison import Comparison, Verdict

WIDTH = 100
ABSENT = "-"
CROSSED = "*"  # beside a ratio of two kernels that were built differently
_GAP = 2
_NARROWEST = 20  # of the column that is wrapped
_TOGETHER = "\N{NO-BREAK SPACE}"  # where a line is not broken: what counts stays beside its unit
_COMMAND = re.compile("`kdelta [^`]+`")
_GOES_ON = "\x1f"  # behind a word of a command, until its lines are made
_LAYOUT = Console(width=100_000, color_system=None)  # a table is as wide as it is


class Tone(StrEnum):
    """How a line or a cell looks where colour is allowed; the value is its SGR code."""

    PLAIN = ""
    BOLD = "1"
    FAINT = "2"
    BAD = "31"
    GOOD = "32"
    WARN = "33"


VERDICT_TONES = {
    Verdict.REGRESSION: Tone.BAD,
    Verdict.IMPROVEMENT: Tone.GOOD,
    Verdict.SAME: Tone.PLAIN,
    Verdict.UNDECIDED: Tone.WARN,
    Verdict.INVALID: Tone.WARN,
}


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a line in one tone; its text is printable, whatever it was made from."""

    text: str
    tone: Tone = Tone.PLAIN

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", printable(self.text))


Spans = tuple[Span, ...]
# Or lines that depend on how wide the page is, in characters: wider only where they have to be.
Line = Spans | Callable[[int], Iterator[Spans]]


def plain(lines: Iterable[Line], width: int = WIDTH) -> str:
    """The lines without colour, trailing blanks removed, each ended by a newline."""
    spans = _laid(lines, width)
    return "".join("".join(span.text for span in line).rstrip() + "\n" for line in spans)


def coloured(lines: Iterable[Line], width: int = WIDTH) -> str:
    """The lines with SGR colours."""
    painted = (
        "".join(f"\x1b[{one.tone}m{one.text}\x1b[0m" if one.tone else one.text for one in line)
        for line in _laid(lines, width)
    )
    return "".join(f"{text.rstrip()}\n" for text in painted)


def _laid(lines: Iterable[Line], width: int) -> Iterator[Spans]:
    for line in lines:
        if isinstance(line, tuple):
            yield line
        else:
            yield from line(width)


class Column:
    """A column of a table: its head, one cell for each row; `right`: figures align right.

    tone: of cells that are text alone.
    """

    def __init__(
        self,
        head: str,
        cells: Iterable[Span | str],
        tone: Tone = Tone.PLAIN,
        *,
        right: bool = False,
    ) -> None:
        self.head = head
        self.cells = tuple(c if isinstance(c, Span) else Span(c, tone) for c in cells)
        self.right = right

    @property
    def width(self) -> int:
        """Characters that its widest cell takes."""
        return max(cell_len(self.head), *(cell_len(cell.text) for cell in self.cells), 0)


def figure(value: float | None) -> str:
    """A value as a person reads it, ABSENT for none."""
    return ABSENT if value is None else number(value)


def verdict_span(found: Comparison) -> Span:
    """A verdict in its tone."""
    return Span(found.verdict, VERDICT_TONES[found.verdict])


def table_lines(columns: Sequence[Column]) -> Iterator[Spans]:
    """The table of `columns`, its heads first; all columns have the same number of cells."""
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="")
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.right else "left"
        table.add_column(_text(Span(column.head, Tone.FAINT)), justify=justify, no_wrap=True)
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*map(_text, cells))
    for segments in _LAYOUT.render_lines(table, pad=False):
        styled = ((each.text, each.style) for each in segments)
        yield tuple(
            Span(text, Tone(style.meta.get("tone", Tone.PLAIN)) if style else Tone.PLAIN)
            for text, style in styled
        )


def table_of(
    heads: Sequence[str],
    rows: Iterable[Iterable[Span | str]],
    *,
    right: Collection[str] = (),
    wrap: str = "",
) -> Iterator[Line]:
    """The table of rows of cells, as wide as the page: one column, that of the head `wrap` or the
    last, takes the lines that it needs.  right: heads of figures.  Heads that are all empty are
    left out.
    """
    at = heads.index(wrap) if wrap else len(heads) - 1
    cells = [[c if isinstance(c, Span) else Span(c) for c in row] for row in rows]

    def laid(width: int) -> Iterator[Spans]:
        columns = [Column(head, each) for head, *each in zip(heads, *cells, strict=True)]
        left = width - table_width(columns) + columns[at].width
        table: list[list[Span | str]] = []
        for row in cells:
            text = row[at].text
            later = " " * (len(text) - len(text.lstrip()))
            parts = filled(text, max(left, _NARROWEST), later=later) or [""]
            for place, line in enumerate(parts):
                others = ["" if place else cell for cell in row]
                table.append([*others[:at], Span(line, row[at].tone), *others[at + 1 :]])
        every = list(zip(*table, strict=True)) or [()] * len(heads)
        both = zip(heads, every, strict=True)
        lines = table_lines([Column(head, each, right=head in right) for head, each in both])
        yield from islice(lines, int(not any(heads)), None)

    yield laid


def _text(span: Span) -> Text:
    """A cell for rich; it carries its tone as a style's name."""
    return Text(span.text, style=Style(meta={"tone": span.tone}))


def tables_that_fit(names: Sequence[Column], columns: Sequence[Column]) -> Iterator[Line]:
    """As many tables below each other as the width asks for, `names` repeated in each.

    Without further columns there is one table, of the names.
    """
    yield partial(_tables, tuple(names), tuple(columns))


def _tables(names: Sequence[Column], columns: Sequence[Column], width: int) -> Iterator[Spans]:
    left = list(columns)
    while True:
        part = list(names)
        while left and (len(part) == len(names) or table_width([*part, left[0]]) <= width):
            part.append(left.pop(0))
        yield from table_lines(part)
        if not left:
            return
        yield ()


def first_that_fits(tables: Sequence[Sequence[Column]], *others: Line) -> Iterator[Line]:
    """The first of several tables that the width allows; else the other lines, or the last."""

    def laid(width: int) -> Iterator[Spans]:
        fitting = (table for table in tables if table_width(table) <= width)
        chosen = next(fitting, None if others else tables[-1])
        yield from table_lines(chosen) if chosen is not None else _laid(others, width)

    yield laid


def table_width(columns: Sequence[Column]) -> int:
    """Characters that `table_lines` takes at most."""
    return sum(column.width for column in columns) + _GAP * (len(columns) - 1)


def short(text: str, width: int) -> str:
    """Long names are cut in the middle: they differ at either end."""
    if len(text) <= width:
        return text
    tail = (width - 2) // 2
    return f"{text[: width - 2 - tail]}..{text[-tail:]}"


def headline(text: str, width: int) -> str:
    """A sentence, cut behind a word where it is too long."""
    return textwrap.shorten(printable(text), width, placeholder=" ...")


def shortened(texts: Sequence[str], width: int) -> tuple[str, ...]:
    """The texts cut to a width, or to the next larger one at which those that differ still do."""
    for at_most in range(width, max(map(len, texts), default=0)):
        found = tuple(short(text, at_most) for text in texts)
        if len(set(found)) == len(set(texts)):
            return found
    return tuple(texts)


def crossed_by(found: Iterable[Comparison | None]) -> str:
    """How the kernels differ that bear the mark: "by different compilers"; "" where none does."""
    crossed = [one for one in found if one and one.crossing]
    compilers = any(one.crossing != ", ".join(one.options) for one in crossed)
    options = any(one.options for one in crossed)
    words = ["by different compilers"] * compilers + ["with different options"] * options
    return " or ".join(words)


def builds_apart(old: str, new: str, found: Comparison) -> str:
    """What of the builds of two kernels differs, which no commit between them says."""
    return f"builds differ, {old} -> {new}: {', '.join(found.differences)}"


def paragraph(text: str, tone: Tone = Tone.PLAIN, indent: str = "") -> Iterator[Line]:
    """Text wrapped to the page, following lines indented, over-long words cut."""
    text = printable(text)
    yield lambda width: ((Span(line, tone),) for line in filled(text, width, indent, indent + "  "))


def filled(
    text: str, width: int, first: str = "", later: str = "", *, whole: bool = False
) -> list[str]:
    """Text in lines of a width; first, later: what begins them.  "25 %" stays together, and so
    does a command between backticks; one that no line takes goes on behind a backslash.

    whole: words that are too long for a line are not broken; those of a command never are.
    """

    def in_lines(command: re.Match[str]) -> str:
        if len(later) + len(command[0]) <= width - len("."):
            return command[0].replace(" ", _TOGETHER)
        pair = re.compile(rf"(`kdelta|--[\w-]+) (?=\S{{1,{max(width - 20, 1)}}}[ `])")
        return pair.sub(rf"\1{_TOGETHER}", command[0]).replace(" ", f"{_GOES_ON} ")

    marked = _COMMAND.sub(in_lines, text)
    lines = textwrap.wrap(
        marked.replace(" %", f"{_TOGETHER}%"),
        width - 1 if _GOES_ON in marked else width,
        initial_indent=first,
        subsequent_indent=later,
        break_on_hyphens=False,
        break_long_words=not whole and marked == text,
    )
    ended = (re.sub(f"{_GOES_ON}$", r" \\", line.replace(_TOGETHER, " ")) for line in lines)
    return [line.replace(_GOES_ON, "") for line in ended]


def shell_lines(width: int, *parts: str, first: str = " ") -> list[str]:
    """A command in lines as a shell takes them.  parts: quoted; first: begins the first line."""
    lines = [first]
    for part in parts:
        if lines[-1] != first and len(lines[-1]) + len(part) > width - len("  \\"):
            lines[-1] += " \\"
            lines.append("     ")
        lines[-1] += f" {part}"
    return lines
