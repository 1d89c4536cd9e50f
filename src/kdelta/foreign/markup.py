# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables of web pages, of Jira and of reStructuredText as the tables of Markdown: | a | b |.

A cell that spans columns stands in the first of them, one that spans rows in each of them, as a
page means it; headings become the lines above a table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import unescape

from kdelta.errors import SpecError
from kdelta.foreign import arms

PAGES = (".html", ".htm", ".xhtml")
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6", "caption", "p")
_MARK = re.compile(
    r"(?P<comment><!--)|<(?P<end>/?)(?P<tag>[a-zA-Z][a-zA-Z0-9]{0,15})\b(?P<said>[^<>]*)>|<![^<>]*>"
)
_COMMENTED = re.compile("-->")
_UNSEEN = {
    tag: re.compile(f"</{tag}[^<>]*>", re.IGNORECASE)
    for tag in ("script", "style", "head", "template")
}
_SPAN = re.compile(r"\b(colspan|rowspan)\s*=\s*[\"']?(\d{1,3})\b")
_FIGURE = re.compile(r"\|[^|\w]*\d[^|]*")  # a cell that begins with a number
_SPANNED = 200_000  # cells that the spans of a page may fill; no page of results has as many
_WIDEST = 501  # columns of a row: one more than a table may have, which is refused
_RULED = re.compile(r"=+(?: +=+)+\s*\Z")
_JIRA = re.compile(r"\s*\|\|.*\|\|\s*\Z")


def plain(text: str, suffix: str) -> str:
    """The text with its tables as Markdown has them; any other text as it is.

    suffix: of the file, in lower case.
    """
    if suffix in PAGES or text[:200].lstrip().lower().startswith(("<!doctype html", "<html")):
        return _Page().of(text)
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
    made[head] = f"|{'---|' * len(spans)}"
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
    lines = _with_figures(text.splitlines())
    inside = [line.strip()[:1] in ("|", "+") for line in lines]
    rows = [line.strip() for line in lines if line.strip().startswith("|")]
    others = any(line.strip() and not one for line, one in zip(lines, inside, strict=True))
    whole = sum(row.endswith("|") for row in rows)
    if len(rows) < 2 or whole < len(rows) or not (others or lines[0].strip()[:1] == "+"):
        return text if lines == text.splitlines() else "\n".join(lines) + "\n"
    titles = _titles(lines, inside)
    return "\n".join(
        "" if not one or titles.get(at) == "" else f"{line.rstrip()}{titles.get(at, '')}"
        for at, (line, one) in enumerate(zip(lines, inside, strict=True))
    )


def _with_figures(lines: list[str]) -> list[str]:
    """The lines without tables that hold no figure, as pages have for their layout."""
    blocks = [block for block in _blocks(lines) if block]
    held = [any(_FIGURE.search(lines[at]) for at in block[1:]) for block in blocks]
    # One that is as wide may be a head line above an empty line.
    wide = {lines[block[0]].count("|") for block, one in zip(blocks, held, strict=True) if one}
    held = [
        one or lines[block[0]].count("|") in wide for block, one in zip(blocks, held, strict=True)
    ]
    if not any(held) or all(held):
        return lines
    gone = {at for block, one in zip(blocks, held, strict=True) if not one for at in block}
    return ["" if at in gone else line for at, line in enumerate(lines)]


def _blocks(lines: Sequence[str]) -> list[list[int]]:
    """The places of the lines of each table."""
    found: list[list[int]] = [[]]
    for at, line in enumerate(lines):
        if line.strip()[:1] in ("|", "+"):
            found[-1].append(at)
        elif found[-1]:
            found.append([])
    return found


def check_heads(text: str, name: str) -> None:
    """Raise SpecError for a text in which unlike head lines stand, each with a rule below it."""
    lines = text.splitlines()
    found = {
        lines[block[0]].strip()
        for block in _blocks(lines)
        if len(block) > 1 and _is_rule(lines[block[1]].strip())
    }
    if len(found) > 1:
        raise SpecError(
            f"{len(found)} tables of unlike head lines",
            place=name,
            action="put each table into a file of its own",
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


class _Page:
    """Rows and headings of a page, each at its line as far as no two are in one.

    Not html.parser: it takes a minute for 60 KB of "<a " one after the other.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._number = 1  # of the line that is read
        self._depth = 0  # tables within each other: those inside are text of a cell
        self._row: list[str] | None = None
        self._cell: list[str] | None = None
        self._wide = self._high = 1
        self._spanned = 0  # cells that spans were to fill
        self._below: dict[int, tuple[str, int]] = {}  # column -> a cell from above, rows left
        self._title: list[str] | None = None

    def of(self, text: str) -> str:
        """The tables and titles of a page."""
        at = 0
        while found := _MARK.search(text, at):
            self._data(text[at : found.start()])
            self._number += text.count("\n", at, found.end())
            end = found.end()
            tag = (found["tag"] or "").lower()
            if found["comment"]:
                at = _behind(text, end, _COMMENTED)
            elif tag in _UNSEEN and not found["end"]:
                at = _behind(text, end, _UNSEEN[tag])
            elif found["end"]:
                at = end
                self._ended(tag)
            else:
                at = end
                self._began(tag, found["said"] or "")
            self._number += text.count("\n", end, at)
        self._ended("table")
        return "\n".join(self._lines) + "\n"

    def _began(self, tag: str, said: str) -> None:
        if tag == "table":
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
            spans = dict(_SPAN.findall(said.lower()))
            self._wide, self._high = (_bounded(spans.get(f"{one}span")) for one in ("col", "row"))
        elif tag in _HEADINGS and self._cell is None:
            self._title = []
        elif tag == "br":
            self._data(" ")

    def _ended(self, tag: str) -> None:
        if tag == "table":
            if self._depth == 1:
                self._end_row()
                self._put("")
            self._depth = max(0, self._depth - 1)
        elif tag == "tr" and self._depth == 1:
            self._end_row()
        elif tag in ("td", "th") and self._depth == 1:
            self._end_cell()
        elif tag in _HEADINGS and self._title is not None:
            if title := " ".join(unescape("".join(self._title)).split()):
                self._put(title.replace("|", "/"))
            self._title = None

    def _data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)
        elif self._title is not None:
            self._title.append(data)

    def _put(self, line: str) -> None:
        self._lines += [""] * (self._number - 1 - len(self._lines))
        self._lines.append(line)

    def _end_cell(self) -> None:
        if self._cell is None or self._row is None:
            return
        self._from_above()
        text = " ".join(unescape("".join(self._cell)).split()).replace("|", "/")
        if self._wide * self._high > 1:
            self._spanned += self._wide * self._high
        if self._spanned > _SPANNED:
            self._wide = self._high = 1
        for at in range(min(self._wide, _WIDEST - len(self._row))):
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


def _behind(text: str, start: int, end: re.Pattern[str]) -> int:
    """Where a part that is not seen ends; at the end of the text when nothing ends it."""
    found = end.search(text, start)
    return found.end() if found else len(text)


def _bounded(said: str | None) -> int:
    return min(max(int(said), 1), _WIDEST) if said else 1
