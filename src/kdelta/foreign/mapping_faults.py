# SPDX-License-Identifier: GPL-2.0-or-later
"""What is wrong in a mapping file, in the words of TOML: the line, the key, and what may stand."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping as Dict
from collections.abc import Sequence

from kdelta.errors import SpecError
from kdelta.printable import printable, quoted

_FAULT = re.compile(r"(?P<what>.*?)(?: - at `(?P<path>[^`]*)`)?\Z", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<key>[^`]*)`")
_TYPE = re.compile(
    r"Expected `(?P<wanted>[^`]*)`(?P<limit>.*?)(?:, got `(?P<got>[^`]*)`)?\Z", re.DOTALL
)
_ENUM = re.compile(r"Invalid enum value '(?P<text>.*)'", re.DOTALL)
_KINDS = {
    "object": "a table of keys",
    "array": 'a list, as ["one", "two"]',
    "str": "text in quotes",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
}
# What may stand behind a key, where a type does not say it.
_CHOICES = {
    "better": '"lower", "higher" or "none"',
    "replicate": '"boot" or "process round"',
    "assume": '"nothing" or "exact"',
    "decimal": '"." or ","',
    "delimiter": '"," ";" "|" "\\t" or "blanks"',
    "planned": "a whole number from 1 to 1000000",
}
_DOCS = "see docs/foreign.md"


def fault(error: Exception, text: str, name: str, keys: Dict[str, Sequence[str]]) -> SpecError:
    """The error of a mapping whose TOML does not say what a mapping does.

    text, name: of the file.  keys: by path ("", "columns", "metrics.*") the keys that there are.
    """
    found = _FAULT.match(str(error))
    what, path = (found["what"], _path(found["path"] or "")) if found else (str(error), [])
    unknown = _UNKNOWN.match(what)
    if unknown:
        return _unknown(unknown["key"], path, text, name, keys)
    key = next((part for part in reversed(path) if part != "*"), "")
    enum = _ENUM.match(what)
    return SpecError(
        f"{_shown(path)} {_wrong(what)}".strip(),
        place=_place(name, text, key, enum["text"] if enum else ""),
        action=f"write {_CHOICES[key]}" if key in _CHOICES else _DOCS,
    )


def _path(text: str) -> list[str]:
    """The keys of a path as the decoder writes it: $.metrics[...].better; "*" for any name."""
    parts = re.findall(r"[^.$\[\]]+|\[\.\.\.\]", re.sub(r"\[\d+\]", "", text))
    return ["*" if part == "[...]" else part for part in parts]


def _shown(path: Sequence[str]) -> str:
    return ".".join("NAME" if part == "*" else part for part in path)


def _wrong(what: str) -> str:
    enum, typed = _ENUM.match(what), _TYPE.match(what)
    if enum:
        return f"= {quoted(enum['text'])} says nothing that is known"
    if not typed:
        return printable(what.replace("`", ""), 200)
    limit = "" if "regex" in typed["limit"] else typed["limit"]
    wanted = _KINDS.get(typed["wanted"].partition(" ")[0], typed["wanted"])
    if typed["got"]:
        return f"must be {wanted}{limit}, and is {_KINDS.get(typed['got'], typed['got'])}"
    return f"must be {wanted}{limit}" if limit else "is none of what it may be"


def _unknown(
    key: str, path: Sequence[str], text: str, name: str, keys: Dict[str, Sequence[str]]
) -> SpecError:
    there = keys.get(".".join(path), ())
    near = difflib.get_close_matches(key, there, n=1)
    where = f"[{_shown(path)}]" if path else "a mapping"
    action = f"write {near[0]}" if near else f"there are {', '.join(there)}"
    return SpecError(
        f"{where} has no key {quoted(key)}", place=_place(name, text, key, ""), action=action
    )


def _place(name: str, text: str, key: str, value: str) -> str:
    """The file with the line that has the key, where just one has it."""
    if not key:
        return name
    named = re.compile(
        rf"\s*[\"']?{re.escape(key)}[\"']?\s*=|\s*\[+[^\]]*(?<!\w){re.escape(key)}(?!\w)"
    )
    lines = [
        number
        for number, line in enumerate(text.splitlines(), start=1)
        if named.match(line) and value in line
    ]
    return f"{name}: line {lines[0]}" if len(lines) == 1 else name
