# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables of web pages, of Jira and of reStructuredText as the tables of Markdown: | a | b |.

A cell that spans columns stands in the first of them, one that spans rows in each of them, as a
page means it; headings become the lines above a table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html.parser import HTMLParser

from kdelta.foreign import arms

PAGES = (".html", ".htm", ".xhtml")
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6", "caption", "p")
_UNSEEN = ("script", "style", "head", "template")
_WIDEST = 500  # columns that a cell may span
_RULED = re.compile(r"=+(?: +=+)+\s*\Z")
_JIRA = re.compile(r"\s*\|\|.*\|\|\s*\Z")


def plain(text: str, suffix: str) -> str:
    """The text with its tables as Markdown has them; any other text as it is.

    suffix: of the file, in lower case.
    """
    if suffix in PAGES or text[:200].lstrip().lower().startswith(("<!doctype html", "<html")):
        page = _Page()
        page.feed(text)
        page.close()
        return page.text()
    lines = text.splitlines()
    if sum(bool(_JIRA.match(line)) for line in lines) and not suffix.endswith(("sv", "md")):
        return "\n".join(line.replace("||", "|") for line in lines) + "\n"
    ruled = [at for at, line in enumerate(lines) if _RULED.match(line)]
    if len(ruled) == 3 and len({lines[at].rstrip() for at in ruled}) == 1:
        return _of_rules(lines, ruled)
    return text


def _of_rules(lines: list[str], ruled: list[int]) -> str:
    """A simple table of reStructuredText: === === above, below the head line and at its end."""
    first, head, last = ruled
    spans = [found.span() for found in re.finditer("=+", lines[first])]
    ends = [start for start, _ in spans[1:]]
    made = [""] * len(lines)
    for at in range(first + 1, last):
        line = lines[at]
        cells = [
            line[start : end if end else len(line)].strip()
            for (start, _), end in zip(spans, [*ends, 0], strict=True)
        ]
        if at != head and any(cells):
            made[at] = f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
    return "\n".join(made) + "\n"


def framed(text: str) -> str:
    """A text in which a table stands between other lines (| a | b |): only the table is left.

    Lines keep their numbers.
    """
    lines = text.splitlines()
    inside = [line.strip()[:1] in ("|", "+") for line in lines]
    rows = [line.strip() for line in lines if line.strip().startswith("|")]
    others = any(line.strip() and not one for line, one in zip(lines, inside, strict=True))
    whole = sum(row.endswith("|") for row in rows)
    if len(rows) < 2 or whole < len(rows) or not (others or lines[0].strip()[:1] == "+"):
        return text
    titles = _titles(lines, inside)
    return "\n".join(
        "" if not one or titles.get(at) == "" else f"{line.rstrip()}{titles.get(at, '')}"
        for at, (line, one) in enumerate(zip(lines, inside, strict=True))
    )


def _titles(lines: Sequence[str], inside: Sequence[bool]) -> dict[int, str]:
    """What is added to each line, a cell, where tables of one head line have titles.

    "" at a head line that stands again.  Nothing: there is one table, its head lines differ, or
    the titles do not tell tables apart.
    """
    found: dict[int, str] = {}
    heads: list[str] = []
    named: list[str] = []
    title, begun = "", False
    for at, (line, one) in enumerate(zip(lines, inside, strict=True)):
        text = line.strip()
        if not one:
            title, begun = text.strip("#*=: ").replace("|", "/") or title, False
            continue
        if not begun:
            heads.append(text)
            named.append(title)
            found[at], begun = ("" if heads[1:] else " section |"), True
        elif _is_rule(text):
            found[at] = "---|"
        else:
            found[at] = f" {title} |"
    if all(map(arms.is_version, named)):
        found = {at: cell.replace(" section |", " kernel |") for at, cell in found.items()}
    several = len(heads) > 1 and len(set(heads)) == 1
    return found if several and len(set(named)) == len(named) and all(named) else {}


def _is_rule(text: str) -> bool:
    return set(text) <= set("-=+:|_ ") and ("--" in text or "==" in text)


class _Page(HTMLParser):
    """Rows and headings of a page, each at its line as far as no two are in one."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._lines: list[str] = []
        self._depth = 0  # tables within each other: those inside are text of a cell
        self._hidden = 0
        self._row: list[str] | None = None
        self._cell: list[str] | None = None
        self._wide = self._high = 1
        self._below: dict[int, tuple[str, int]] = {}  # column -> a cell from above, rows left
        self._title: list[str] | None = None

    def text(self) -> str:
        """What was found."""
        return "\n".join(self._lines) + "\n"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a table, a row, a cell or a heading."""
        said = dict(attrs)
        if tag in _UNSEEN:
            self._hidden += 1
        elif tag == "table":
            self._depth += 1
            if self._depth == 1:
                self._below = {}
                self._put("")
        elif tag == "tr" and self._depth == 1:
            self._end_row()
            self._row = []
        elif tag in ("td", "th") and self._depth == 1:
            self._end_cell()
            self._row = [] if self._row is None else self._row
            self._cell = []
            self._wide, self._high = _span(said.get("colspan")), _span(said.get("rowspan"))
        elif tag in _HEADINGS and self._cell is None:
            self._title = []
        elif tag == "br":
            self.handle_data(" ")

    def handle_endtag(self, tag: str) -> None:
        """End what began."""
        if tag in _UNSEEN:
            self._hidden = max(0, self._hidden - 1)
        elif tag == "table":
            if self._depth == 1:
                self._end_row()
                self._put("")
            self._depth = max(0, self._depth - 1)
        elif tag == "tr" and self._depth == 1:
            self._end_row()
        elif tag in ("td", "th") and self._depth == 1:
            self._end_cell()
        elif tag in _HEADINGS and self._title is not None:
            if title := " ".join("".join(self._title).split()):
                self._put(title.replace("|", "/"))
            self._title = None

    def handle_data(self, data: str) -> None:
        """Text of a cell, or of a heading."""
        if self._hidden:
            return
        if self._cell is not None:
            self._cell.append(data)
        elif self._title is not None:
            self._title.append(data)

    def _put(self, line: str) -> None:
        number, _ = self.getpos()
        self._lines += [""] * (number - 1 - len(self._lines))
        self._lines.append(line)

    def _end_cell(self) -> None:
        if self._cell is None or self._row is None:
            return
        self._from_above()
        text = " ".join("".join(self._cell).split()).replace("|", "/")
        for at in range(self._wide):
            if self._high > 1:
                self._below[len(self._row)] = ("" if at else text, self._high - 1)
            self._row.append("" if at else text)
        self._cell = None

    def _from_above(self) -> None:
        while self._row is not None and (held := self._below.pop(len(self._row), None)):
            text, left = held
            if left > 1:
                self._below[len(self._row)] = (text, left - 1)
            self._row.append(text)

    def _end_row(self) -> None:
        self._end_cell()
        self._from_above()
        if self._row:
            self._put(f"| {' | '.join(self._row)} |")
        self._row = None


def _span(said: str | None) -> int:
    number = int(said) if said and said.isdecimal() and len(said) < 4 else 1
    return min(max(number, 1), _WIDEST)
