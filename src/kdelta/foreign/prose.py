# SPDX-License-Identifier: GPL-2.0-or-later
"""A table that stands in the text of a mail, aligned by blanks or tabs: only the table is left."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kdelta.foreign import words
from kdelta.foreign.words import Part

_CUT = re.compile(r"\t+|[ \t]{2,}")
_FIGURE = re.compile(r"[-+]?\d[\d.,]*(?:\s*(?:\+-|\+/-|\u00b1).*|\s?[%\w/]*)?")
_DELTA = re.compile(r"[ \t]+(?=[-+]\d[\d.]*\s?%\s*\Z)")
_CHANGE = re.compile(r"[-+]\d[\d.]*\s?%")
_SAYS = re.compile(r"\w.*[A-Za-z]:|[A-Z][\w-]+-by: .*")  # With this patch: and who signed it
_WORDS = 4  # of a line that cannot be a row
_FEWEST = 3  # lines of a table, with its head


def table_in(text: str) -> str:
    """The text with only its table, a tab between cells; as it is where there is not exactly one.

    Lines keep their numbers.  A head line may lack the name of its first column.
    """
    lines = text.splitlines()
    if not any(_is_prose(line) for line in lines):
        return text
    found = [span for span in _blocks(lines) if _rows(lines[slice(*span)])]
    if len(found) != 1:
        return text
    start, end = found[0]
    rows = _rows(lines[start:end])
    return "\n".join([*[""] * start, *("\t".join(row) for row in rows)]) + "\n"


def _is_prose(line: str) -> bool:
    """True for a sentence, or a part of one."""
    said = len(line.split()) >= _WORDS or bool(_SAYS.fullmatch(line.strip()))
    return said and len(_CUT.split(line.strip())) == 1


def _blocks(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    start = 0
    for at, line in enumerate([*lines, ""]):
        if not line.strip():
            if at - start >= _FEWEST:
                yield start, at
            start = at + 1


def _rows(block: Sequence[str]) -> list[list[str]]:
    """The cells of each line, head first; none where it is no table."""
    rows = [_CUT.split(_DELTA.sub("\t", line.strip())) for line in block]
    head, below = rows[0], rows[1:]
    changes = all(len(row) > len(head) and _CHANGE.fullmatch(row[-1]) for row in below)
    if changes and words.said(head[-1]).part is not Part.DERIVED:
        head = [*head, "change"]  # which a head line that names the arms may lack
    width = len(below[0])
    if width < 2 or any(len(row) != width for row in below):
        return []
    if len(head) == width - 1 and block[0][:1].isspace():
        head = ["case", *head]
    figures = all(any(map(_FIGURE.fullmatch, row[1:])) for row in below)
    if len(head) != width or not figures or any(map(_FIGURE.fullmatch, head[1:])):
        return []
    return [head, *below]
