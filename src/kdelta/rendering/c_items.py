# SPDX-License-Identifier: GPL-2.0-or-later
"""What a C file defines: items with what each needs, enumerators, its table of scenarios."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kdelta.errors import SpecError
from kdelta.rendering.c_tree import Edit, Given, applied, named, parse, told, walk
from kdelta.rendering.c_values import value_of

if TYPE_CHECKING:
    from tree_sitter import Node

_WORD = re.compile(r"[A-Za-z_]\w*")
_NAMES = ("identifier", "type_identifier")


# ---- the table of scenarios ----------------------------------------------------------------


def enumerators(text: bytes) -> dict[str, int]:
    """The enumerators of a file whose value is plain, by name."""
    found: dict[str, int] = {}
    for node in walk(parse(text)):
        if node.type != "enumerator_list":
            continue
        following = 0
        for one in (child for child in node.named_children if child.type == "enumerator"):
            given = one.child_by_field_name("value")
            value = value_of(given, text, Given(numbers=found, fields={})) if given else following
            if value is not None:
                found[told(one.child_by_field_name("name"), text)] = value
                following = value + 1
    return found


def row(program: str, name: str) -> tuple[str, str, str]:
    """Bytes, flags and calls of a scenario as its program's table says them."""
    text = _expanded(program).encode()
    for node in walk(parse(text)):
        if node.type != "initializer_list":
            continue
        words = [told(one, text) for one in node.named_children if one.type != "comment"]
        if len(words) == 5 and "".join(re.findall(r'"([^"]*)"', words[0])) == name:
            return words[2], words[3], words[4]
    raise SpecError(f"the program has no table with {name}, so it cannot be cut")


def _expanded(program: str) -> str:
    """The program with macros that make rows of a table in place of their names."""
    text = program
    for name, listed, body in re.findall(
        r"#define (\w+)\(([\w, ]+)\)\s*\\\n((?:.*\\\n)*.*\n)", program
    ):
        parameters = [word.strip() for word in listed.split(",")]

        def row_of(found: re.Match[str], body: str = body, own: list[str] = parameters) -> str:
            given = dict(zip(own, (word.strip() for word in found[1].split(",")), strict=True))
            made = body.replace("\\\n", "\n")
            made = re.sub(r"#(\w+)", lambda one: f'"{given[one[1]]}"', made)
            return _WORD.sub(lambda one: given.get(one[0], one[0]), made)

        text = re.sub(rf"^\t{name}\((.*)\)", row_of, text, flags=re.MULTILINE)
    return text


def bare(text: str, *, strings: bool = False) -> str:
    """Code without its comments and, unless `strings`, without what is quoted in it."""
    data = text.encode()
    kinds = ("comment",) if strings else ("comment", "string_literal", "char_literal")
    edits: list[Edit] = []
    for node in walk(parse(data)):
        if node.type not in kinds:
            continue
        start, end = node.start_byte, node.end_byte
        if node.type == "comment" and b"fall through" not in data[start:end]:
            line = data.rfind(b"\n", 0, start) + 1
            rest = data[end : data.find(b"\n", end) if b"\n" in data[end:] else len(data)]
            if not data[line:start].strip() and not rest.strip():
                start, end = line, end + len(rest) + 1
            else:
                start = len(data[:start].rstrip(b" \t"))
        elif node.type == "comment":
            continue  # the compiler reads it
        edits.append((start, end, b""))
    return applied(data, edits).decode()


# ---- items ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A definition at the top of a file: what it names, what it needs, its text and comment."""

    names: frozenset[str]
    needs: frozenset[str]
    comment: str
    text: str


def items(text: bytes) -> Iterator[Item]:
    """All but the #includes; comments go with what follows them."""
    comment = ""
    for node in parse(text).children:
        words = told(node, text).strip()
        if node.type == "comment":
            comment = words
        elif words and node.type not in ("preproc_include", ";"):
            end = node.next_sibling
            tail = ";" if end is not None and end.type == ";" else ""
            found = _defined(node, text)
            needs = _needed(node, text) - found
            yield Item(names=found, needs=needs, comment=comment, text=words + tail)
            comment = ""


def _defined(node: Node, text: bytes) -> frozenset[str]:
    if node.type.startswith("preproc"):
        words = told(node, text)
        made = re.findall(r"^#\s*define\s+(\w+)", words, re.MULTILINE)
        return frozenset((*made, *re.findall(r"^struct (\w+) \{", words, re.MULTILINE)))
    found = {
        told(one.child_by_field_name("name"), text)
        for one in walk(node)
        if one.type == "enumerator"
    }
    for one in walk(node):
        if one.type in ("struct_specifier", "enum_specifier") and one.child_by_field_name("body"):
            found.add(told(one.child_by_field_name("name"), text))
    if node.type == "function_definition":
        declarator = next(one for one in walk(node) if one.type == "function_declarator")
        found = {told(declarator.child_by_field_name("declarator"), text)}
    elif node.type == "declaration":
        for child in node.children_by_field_name("declarator"):
            name = named(child)
            found.add(told(name, text))
    elif node.type == "type_definition":
        found.add(told(node.child_by_field_name("declarator"), text))
    return frozenset(found - {""})


def _needed(node: Node, text: bytes) -> frozenset[str]:
    if node.type in ("preproc_ifdef", "preproc_if"):
        return frozenset()  # what a header may lack: it needs headers only
    if node.type.startswith("preproc"):
        listed = node.child_by_field_name("parameters")
        own_words = _WORD.findall(told(listed, text)) if listed else []
        return frozenset(_WORD.findall(told(node, text))) - set(own_words)
    own: set[str] = set()
    if node.type == "function_definition":
        for one in walk(node):
            if one.type in ("parameter_declaration", "declaration"):
                for child in one.children_by_field_name("declarator"):
                    own.add(told(named(child), text))
    return frozenset(
        word
        for one in walk(node)
        if one.type in _NAMES
        and ((word := told(one, text)) not in own or one.type == "type_identifier")
    )
