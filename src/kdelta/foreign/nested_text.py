# SPDX-License-Identifier: GPL-2.0-or-later
"""YAML as programs write it: mappings and lists within each other, by their indentation.

Scalars stay as they were written, so 6.10 is no 6.1.  Anchors, tags, blocks of text and lists of
several lines in brackets are not read: then this says nothing, and the text is taken otherwise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

MAX_DEPTH = 20
_KEY = re.compile(
    r"(?P<key>\"[^\"]*\"|'[^']*'|[^\s#&*!|>%@`\"'\[\]{},-][^#:]*?|-[^\s:#]+)\s*:(?:\s+(?P<rest>.*))?\Z"
)
_COMMENT = re.compile(r"(?:\A|\s)#.*\Z")
_SPECIAL = ("&", "*", "!", "|", ">", "%", "@", "`")


class _NoYamlError(ValueError):
    """What this does not read."""


@dataclass(slots=True)
class _Lines:
    """The lines that say something: (indentation, text), and how many are read."""

    lines: list[tuple[int, str]]
    at: int = 0

    @property
    def depth(self) -> int:
        """The indentation of the next line; -1 at the end."""
        return self.lines[self.at][0] if self.at < len(self.lines) else -1

    @property
    def text(self) -> str:
        """The next line."""
        return self.lines[self.at][1]


def loaded(text: str) -> Any:
    """The value of a YAML text, every scalar a string; None: it is none that is read here."""
    lines = []
    for raw in text.splitlines():
        bare = _COMMENT.sub("", raw).rstrip() if "#" in raw else raw.rstrip()
        if not bare.strip() or bare.strip() in ("---", "..."):
            continue
        if "\t" in bare[: len(bare) - len(bare.lstrip())]:
            return None
        lines.append((len(bare) - len(bare.lstrip()), bare.strip()))
    found = _Lines(lines)
    try:
        value = _value(found, found.depth, 0)
    except _NoYamlError:
        return None
    return value if found.depth == -1 else None


def _value(lines: _Lines, depth: int, level: int) -> Any:
    """The mapping or list that begins at the next line."""
    if lines.depth != depth or depth < 0 or level > MAX_DEPTH:
        raise _NoYamlError
    dashed = lines.text == "-" or lines.text.startswith("- ")
    return _listed(lines, depth, level) if dashed else _mapped(lines, depth, level)


def _listed(lines: _Lines, depth: int, level: int) -> list[Any]:
    found: list[Any] = []
    while lines.depth == depth and (lines.text == "-" or lines.text.startswith("- ")):
        rest = lines.text[1:].lstrip()
        if not rest:
            lines.at += 1
            found.append(_value(lines, lines.depth, level + 1) if lines.depth > depth else "")
        elif _KEY.match(rest):
            # What follows the dash is a mapping of its own, indented as it stands.
            inner = depth + len(lines.text) - len(rest)
            lines.lines[lines.at] = (inner, rest)
            found.append(_value(lines, inner, level + 1))
        else:
            lines.at += 1
            found.append(_scalar(rest, level))
    return found


def _mapped(lines: _Lines, depth: int, level: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    while lines.depth == depth:
        cut = _KEY.match(lines.text)
        if cut is None:
            raise _NoYamlError
        key, rest = cut["key"].strip("\"'"), (cut["rest"] or "").strip()
        lines.at += 1
        if key in found:
            raise _NoYamlError
        if rest:
            found[key] = _scalar(rest, level)
        elif lines.depth > depth or (lines.depth == depth and lines.text.startswith("- ")):
            found[key] = _value(lines, lines.depth, level + 1)
        else:
            found[key] = ""
    return found


def _scalar(text: str, level: int) -> Any:
    """A cell, or a list or mapping in brackets on one line."""
    if text[0] in "[{":
        value, rest = _in_brackets(text, level + 1)
        if rest.strip():
            raise _NoYamlError
        return value
    if text.startswith(_SPECIAL):
        raise _NoYamlError
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _in_brackets(text: str, level: int) -> tuple[Any, str]:
    """What stands in brackets at the beginning of a text, and what follows."""
    if level > MAX_DEPTH:
        raise _NoYamlError
    close, rest = ("]" if text[0] == "[" else "}"), text[1:].lstrip()
    listed: list[Any] = []
    mapped: dict[str, Any] = {}
    while not rest.startswith(close):
        key = ""
        if close == "}":
            cut = re.match(r"\s*(?P<key>\"[^\"]*\"|'[^']*'|[^\s:,{}\[\]]+)\s*:\s*", rest)
            if cut is None:
                raise _NoYamlError
            key, rest = cut["key"].strip("\"'"), rest[cut.end() :]
        if rest[:1] in ("[", "{"):
            value, rest = _in_brackets(rest, level + 1)
        else:
            cut = re.match(r"\"(?P<one>[^\"]*)\"|'(?P<two>[^']*)'|(?P<bare>[^,\[\]{}]*)", rest)
            if cut is None:
                raise _NoYamlError
            value = next((part for part in cut.groups() if part is not None), "").strip()
            rest = rest[cut.end() :]
        listed.append(value)
        mapped[key] = value
        rest = rest.lstrip()
        if rest.startswith(","):
            rest = rest[1:].lstrip()
        elif not rest.startswith(close):
            raise _NoYamlError
    return (mapped if close == "}" else listed), rest[1:]
