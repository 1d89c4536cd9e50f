# SPDX-License-Identifier: GPL-2.0-or-later
"""The value of an expression of a C program, where it is known without running it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kdelta.errors import SpecError
from kdelta.rendering.c_tree import Given, callee, parse, told, walk

if TYPE_CHECKING:
    from tree_sitter import Node

_NUMBER = re.compile(r"(0[xX][0-9a-fA-F]+|\d+)[uUlL]*\Z")
_BINARY: dict[str, Callable[[int, int], int]] = {
    "&": int.__and__, "|": int.__or__, "^": int.__xor__, "+": int.__add__, "-": int.__sub__,
    "*": int.__mul__, "<<": int.__lshift__, ">>": int.__rshift__,
    "==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b), ">": lambda a, b: int(a > b),
    "<=": lambda a, b: int(a <= b), ">=": lambda a, b: int(a >= b),
    "&&": lambda a, b: int(bool(a and b)), "||": lambda a, b: int(bool(a or b)),
}  # fmt: skip


def value_of(node: Node | None, text: bytes, known: Given) -> int | None:
    """The value of an expression, None where it is not known."""
    if node is None:
        return None
    inner = [child for child in node.named_children if child.type != "comment"]
    kind, words = node.type, told(node, text)
    if kind == "number_literal":
        return _of_c(found[1]) if (found := _NUMBER.match(words)) else None
    if kind in ("identifier", "true", "false"):
        return {"true": 1, "false": 0}.get(words, known.numbers.get(words))
    if kind == "field_expression":
        return _number(field_of(node, text, known))
    if kind == "call_expression":
        return known.calls.get(callee(node, text))
    if kind == "parenthesized_expression" and len(inner) == 1:
        return value_of(inner[0], text, known)
    if kind == "unary_expression":
        value = value_of(node.child_by_field_name("argument"), text, known)
        operator = told(node.child_by_field_name("operator"), text)
        if value is None:
            return None
        return {"!": int(not value), "-": -value, "+": value, "~": ~value}.get(operator)
    if kind == "binary_expression":
        left = value_of(node.child_by_field_name("left"), text, known)
        right = value_of(node.child_by_field_name("right"), text, known)
        operation = _BINARY.get(told(node.child_by_field_name("operator"), text))
        return (
            operation(left, right) if operation and left is not None and right is not None else None
        )
    return None


def _of_c(digits: str) -> int:
    """0600 is octal in C, and an error in Python."""
    octal = digits.isdigit() and digits.startswith("0")
    return int(digits, 8 if octal else 0)


def _number(word: str | None) -> int | None:
    return int(word) if word and word.isdigit() else None


def field_of(node: Node, text: bytes, known: Given) -> str | None:
    """What stands for a field of the scenario, None for any other field."""
    owner = told(node.child_by_field_name("argument"), text)
    if owner != "s" and not owner.endswith("scenario"):
        return None
    return known.fields.get(told(node.child_by_field_name("field"), text))


def is_of_scenario(node: Node, text: bytes, known: Given) -> bool:
    """True for what depends on the scenario."""
    return any(
        (one.type == "field_expression" and field_of(one, text, known) is not None)
        or callee(one, text) in known.calls
        for one in walk(node)
    )


def literal(node: Node | None, text: bytes) -> int | None:
    """The value of a number, or of `!` and a number."""
    while node is not None and node.type == "parenthesized_expression":
        node = node.named_children[0]
    if node is not None and node.type in ("number_literal", "true", "false"):
        return value_of(node, text, Given(numbers={}, fields={}))
    if node is not None and node.type == "unary_expression" and told(node, text)[0] == "!":
        inner = literal(node.child_by_field_name("argument"), text)
        return None if inner is None else int(not inner)
    return None


def computed(expression: str, numbers: Mapping[str, int]) -> int:
    """The value of an expression of names that have one."""
    text = f"int x = {expression};".encode()
    declarator = next(one for one in walk(parse(text)) if one.type == "init_declarator")
    value = value_of(
        declarator.child_by_field_name("value"), text, Given(numbers=numbers, fields={})
    )
    if value is None:
        raise SpecError(f"{expression} is no number that the program says, so it cannot be cut")
    return value
