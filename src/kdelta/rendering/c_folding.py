# SPDX-License-Identifier: GPL-2.0-or-later
"""C programs that do one thing only: constants _folded, branches not taken left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kdelta.rendering.c_names import (
    constant_parameters,
    constants,
    dead_locals,
    dead_parameters,
    dead_returns,
    dead_statics,
)  # fmt: skip
from kdelta.rendering.c_tree import (
    Edit,
    Given,
    applied,
    arguments,
    callee,
    functions,
    gone,
    is_pure,
    own_lines,
    parse,
    told,
    walk,
)  # fmt: skip
from kdelta.rendering.c_values import field_of, is_of_scenario, literal, value_of

if TYPE_CHECKING:
    from tree_sitter import Node

_NEEDS_PARENTHESES = (
    "if_statement", "while_statement", "switch_statement", "do_statement", "sizeof_expression",
    "preproc_def", "cast_expression",
)  # fmt: skip
_NOTED = ("kd_all", "kd_state")  # what notes a value
_MOST_ROUNDS = 300


def specialised(text: bytes, known: Given) -> bytes:
    """The program with what is known put in, as often as that shows more."""
    steps = [_left_out, _folded, _branches, constants, dead_locals, _unreached]
    if not known.part:
        steps += [constant_parameters, dead_statics, dead_parameters, dead_returns]
    for _ in range(_MOST_ROUNDS):
        for step in steps:
            edits = list(step(parse(text), text, known))
            if edits:
                text = applied(text, edits)
                break
        else:
            return text
    raise AssertionError("folding does not end")


# ---- what is left out ----------------------------------------------------------------------


def _left_out(root: Node, text: bytes, known: Given) -> Iterator[Edit]:
    idle = {_name_of(one, text) for one in functions(root) if _is_idle(one)} - {"kd_look"}
    for node in walk(root):
        if node.type == "expression_statement" and node.named_children:
            inner = node.named_children[0]
            name = callee(inner, text)
            if inner.type == "assignment_expression":
                name = callee(inner.child_by_field_name("right") or inner, text)
            if name in _NOTED and name in known.aside:
                yield from _unnoted(node, inner, text, known)
            elif name in known.aside or name in idle or _states_nothing(inner, name, text):
                yield from gone(node, text)
            elif name and inner.type == "call_expression":
                words = [told(one, text) for one in arguments(inner)]
                if form := known.replaced.get((name, len(words))):
                    yield node.start_byte, node.end_byte, form.format(*words).encode()
        elif node.type == "field_declaration" and "struct kd_scenario *" in told(node, text):
            yield *own_lines(node, text), b""


def _unnoted(statement: Node, call: Node, text: bytes, known: Given) -> Iterator[Edit]:
    """A note left out; what it notes is done all the same where it does something."""
    done = next((a for a in arguments(call) if not is_pure(a, text, known.aside)), None)
    if done is None or done.type != "call_expression":
        yield from gone(statement, text)
    else:
        yield statement.start_byte, statement.end_byte, f"{told(done, text)};".encode()


def _is_idle(function: Node) -> bool:
    body = function.child_by_field_name("body")
    return body is not None and all(one.type == "comment" for one in body.named_children)


def _name_of(function: Node, text: bytes) -> str:
    declarator = next(one for one in walk(function) if one.type == "function_declarator")
    return told(declarator.child_by_field_name("declarator"), text)


def _states_nothing(call: Node, name: str, text: bytes) -> bool:
    """True for a fact of which nothing is wanted."""
    return name == "kd_state" and told(arguments(call)[-1], text) in ("KD_FREE", "KD_SAME")


def _folded(root: Node, text: bytes, known: Given) -> Iterator[Edit]:
    """Fields of the scenario, and what can be computed of them."""
    for node in walk(root):
        if node.type == "field_expression" and (word := field_of(node, text, known)) is not None:
            yield node.start_byte, node.end_byte, word.encode()
        elif node.type in ("binary_expression", "unary_expression", "call_expression"):
            value = value_of(node, text, known)
            if value is not None and is_of_scenario(node, text, known):
                yield node.start_byte, node.end_byte, str(value).encode()
            elif (kept := _short(node, text, known)) is not None:
                yield node.start_byte, node.end_byte, kept.encode()
        elif node.type == "parenthesized_expression" and node.parent is not None:
            yield from _unwrapped(node, text)
        elif node.type == "conditional_expression":
            value = literal(node.child_by_field_name("condition"), text)
            if value is not None:
                side = "consequence" if value else "alternative"
                yield _kept(node, node.child_by_field_name(side), text)
        elif node.type == "subscript_expression":
            yield from _picked(root, node, text, known)


def _kept(node: Node, part: Node | None, text: bytes) -> Edit:
    return node.start_byte, node.end_byte, told(part, text).encode()


def _short(node: Node, text: bytes, known: Given) -> str | None:
    """`!0`, `1 && x`, `0 || x` and their like in short."""
    if node.type == "unary_expression":
        value = literal(node, text)
        return None if value is None else str(value)
    if node.type != "binary_expression":
        return None
    operator = told(node.child_by_field_name("operator"), text)
    sides = [node.child_by_field_name(side) for side in ("left", "right")]
    values = [literal(side, text) for side in sides]
    if operator in ("&&", "||"):
        decides = operator == "||"
        for at, value in enumerate(values):
            if (
                value is not None
                and bool(value) is decides
                and (at == 0 or is_pure(sides[0], text))
            ):
                return str(int(decides))
            if value is not None and bool(value) is not decides:
                return told(sides[1 - at], text)
    elif (operator == "&" and told(sides[0], text).isdigit()) or (  # a scenario's flags, put in
        operator not in ("<<", ">>") and all(told(side, text).isdigit() for side in sides)
    ):
        value = value_of(node, text, known)
        return None if value is None else str(value)
    return None


def _unwrapped(node: Node, text: bytes) -> Iterator[Edit]:
    """A number in parentheses that no statement needs."""
    inner = node.named_children
    parent = node.parent
    if (
        len(inner) == 1
        and inner[0].type == "number_literal"
        and parent is not None
        and parent.type not in _NEEDS_PARENTHESES
    ):
        yield node.start_byte, node.end_byte, told(inner[0], text).encode()


def _picked(root: Node, node: Node, text: bytes, known: Given) -> Iterator[Edit]:
    """An element of a list `[NAME] = function` whose number is known."""
    index = value_of(node.child_by_field_name("index"), text, known)
    name = told(node.child_by_field_name("argument"), text)
    parent = node.parent
    if index is None or parent is None or parent.type in ("array_declarator", "init_declarator"):
        return
    for pair in (one for one in walk(root) if one.type == "initializer_pair"):
        owner = pair.parent.parent if pair.parent else None
        if owner is None or not re.search(
            rf"\b{re.escape(name)}\b", told(owner, text).split("=")[0]
        ):
            continue
        designator = pair.child_by_field_name("designator")
        if designator is None or not designator.named_children:
            continue
        if value_of(designator.named_children[0], text, known) == index:
            yield _kept(node, pair.child_by_field_name("value"), text)
            return


# ---- branches ------------------------------------------------------------------------------


def _branches(root: Node, text: bytes, known: Given) -> Iterator[Edit]:  # noqa: ARG001
    for node in walk(root):
        if node.type != "if_statement":
            continue
        value = literal(node.child_by_field_name("condition"), text)
        if _is_empty(node, text):
            yield from gone(node, text)
        if value is None:
            continue
        clause = node.child_by_field_name("alternative")
        other = (
            next((c for c in clause.named_children if c.type != "comment"), None)
            if clause
            else None
        )
        taken = node.child_by_field_name("consequence") if value else other
        if taken is None or told(taken, text) == ";":
            yield from gone(node, text)
        else:
            yield from _instead(node, taken, text)


def _unreached(root: Node, text: bytes, known: Given) -> Iterator[Edit]:  # noqa: ARG001
    """Statements after a `return` of the same block."""
    for node in walk(root):
        if (
            node.type == "return_statement"
            and node.parent
            and node.parent.type == "compound_statement"
        ):
            after = node.next_named_sibling
            while after is not None:
                yield *own_lines(after, text), b""
                after = after.next_named_sibling


def _is_empty(node: Node, text: bytes) -> bool:
    """True for an `if` that decides nothing any more."""
    return (
        told(node.child_by_field_name("consequence"), text).strip() in (";", "{\n}")
        and node.child_by_field_name("alternative") is None
        and is_pure(node.child_by_field_name("condition"), text)
    )


def _instead(node: Node, taken: Node, text: bytes) -> Iterator[Edit]:
    """A branch in place of its `if`, at its depth."""
    parent = node.parent
    block = taken.type == "compound_statement"
    if parent is None or parent.type != "compound_statement":
        if parent is not None and parent.type == "else_clause" and taken.type != "if_statement":
            yield parent.start_byte, parent.end_byte, b"else " + _moved(taken, node, text)
        else:
            yield node.start_byte, node.end_byte, _moved(taken, node, text)
        return
    declares = any(child.type == "declaration" for child in taken.children)
    if not block or declares:
        yield node.start_byte, node.end_byte, _moved(taken, node, text)
        return
    inner = text[taken.start_byte + 1 : taken.end_byte - 1].rstrip().lstrip(b"\n")
    lines = [line.removeprefix(b"\t") for line in inner.split(b"\n")]
    yield *own_lines(node, text), b"\n".join(lines) + b"\n"


def _moved(taken: Node, node: Node, text: bytes) -> bytes:
    """The text of a statement, its further lines moved to the left as it is."""
    depth = _tabs(taken, text) - _tabs(node, text)
    lines = text[taken.start_byte : taken.end_byte].split(b"\n")
    if taken.type == "compound_statement":
        depth = 0
    return b"\n".join([lines[0], *(line.removeprefix(b"\t" * max(depth, 0)) for line in lines[1:])])


def _tabs(node: Node, text: bytes) -> int:
    start = text.rfind(b"\n", 0, node.start_byte) + 1
    line = text[start : node.start_byte]
    return len(line) - len(line.lstrip(b"\t"))
