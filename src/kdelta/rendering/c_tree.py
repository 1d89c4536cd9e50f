# SPDX-License-Identifier: GPL-2.0-or-later
"""The syntax tree of C programs, with the place of each part in the text.

It knows the C of our own workloads (kernel style, no preprocessor in functions), not all of C.
Changes are ranges of bytes in the text, so what stays is as its author laid it out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache as remember
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

# Macros that the grammar takes for types: parsed as words of the same length.
_STAND_INS = ((b"noinline", b"volatile"), (b"kd_api", b"static"))
_LOOKING = frozenset({
    "kd_minor_faults", "kd_waits", "kd_present", "kd_vmas", "kd_pagemap_count", "kd_file_number",
    "kd_keyed", "kd_usage", "kd_now", "kd_audit", "getenv", "sbrk",
    "strlen", "strcmp", "strncmp", "strchr", "strrchr", "strstr",
})  # fmt: skip

Edit = tuple[int, int, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What is known of a program that does one thing only.

    numbers: enumerators and macros by value; fields: what stands for `s->NAME`; calls: functions
    without arguments by value; aside: functions whose calls are left out; replaced: statements that
    call one of these with so many arguments become the text, with {0}, {1} for these; part: True
    for a text whose functions are also called from elsewhere.
    """

    numbers: Mapping[str, int]
    fields: Mapping[str, str]
    calls: Mapping[str, int] = field(default_factory=dict)
    aside: frozenset[str] = frozenset()
    replaced: Mapping[tuple[str, int], str] = field(default_factory=dict)
    part: bool = False


@remember
def _parser() -> Parser:
    import tree_sitter
    import tree_sitter_c

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_c.language()))


def parse(text: bytes) -> Node:
    """The syntax tree of a text, with its offsets."""
    for word, same in _STAND_INS:
        text = text.replace(word, same)
    return _parser().parse(text).root_node


def walk(node: Node) -> Iterator[Node]:
    """A node and all below it, from the left."""
    left = [node]
    while left:
        one = left.pop()
        yield one
        left += reversed(one.children)


def applied(text: bytes, edits: Iterable[Edit]) -> bytes:
    """The outermost of the edits, from the last to the first."""
    kept: list[Edit] = []
    for edit in sorted(edits, key=lambda one: (one[0], -one[1])):
        if not kept or edit[0] >= kept[-1][1]:
            kept.append(edit)
    for start, end, new in reversed(kept):
        text = text[:start] + new + text[end:]
    return text


def told(node: Node | None, text: bytes) -> str:
    """The text of a node."""
    return text[node.start_byte : node.end_byte].decode() if node else ""


def own_lines(node: Node, text: bytes) -> tuple[int, int]:
    """The range of a statement with its indentation, its line's end and a comment before it."""
    before = node.prev_sibling
    first = node.start_byte
    if before is not None and before.type == "comment":
        own = text.rfind(b"\n", 0, before.start_byte) + 1
        if (
            not text[own : before.start_byte].strip()
            and before.end_point[0] + 1 == node.start_point[0]
        ):
            first = before.start_byte
    start = text.rfind(b"\n", 0, first) + 1
    end = text.find(b"\n", node.end_byte) + 1
    rest = text[node.end_byte : end].strip()
    if text[start:first].strip() or (rest and not rest.startswith(b"/*")):
        return node.start_byte, node.end_byte
    return start, end


def callee(node: Node, text: bytes) -> str:
    """The name of the function that a node calls, else nothing."""
    if node.type == "call_expression":
        return told(node.child_by_field_name("function"), text)
    return ""


def arguments(call: Node) -> list[Node]:
    """What a call gives."""
    found = call.child_by_field_name("arguments")
    return [child for child in found.named_children if child.type != "comment"] if found else []


def gone(statement: Node, text: bytes) -> Iterator[Edit]:
    """A statement left out, with what hangs on it."""
    parent = statement.parent
    if parent is None or parent.type == "compound_statement":
        yield *own_lines(statement, text), b""
    elif parent.type == "else_clause":
        yield parent.start_byte, parent.end_byte, b""
    elif parent.type == "if_statement" and parent.child_by_field_name("alternative") is None:
        yield from gone(parent, text)
    elif told(statement, text) != ";":
        yield statement.start_byte, statement.end_byte, b";"


def functions(root: Node) -> Iterator[Node]:
    """The functions that a file defines."""
    yield from (node for node in root.children if node.type == "function_definition")


def declarators(function: Node) -> Iterator[tuple[Node, Node]]:
    """Declarations in a function with each of their declarators."""
    for node in walk(function):
        if node.type == "declaration":
            for child in node.children_by_field_name("declarator"):
                yield node, child


def named(declarator: Node) -> Node | None:
    """The name that a declarator declares."""
    return next((one for one in walk(declarator) if one.type == "identifier"), None)


def is_pure(node: Node | None, text: bytes, aside: Collection[str] = ()) -> bool:
    """True when nothing happens by an expression: macros in capitals compute."""
    return node is None or not any(
        (
            one.type == "call_expression"
            and not _looks(name := callee(one, text))
            and name not in aside
        )
        or one.type in ("assignment_expression", "update_expression")
        for one in walk(node)
    )


def _looks(name: str) -> bool:
    """True for a macro that computes, and for a function of kdelta.h that changes nothing."""
    return name.isupper() or name in _LOOKING
