# SPDX-License-Identifier: GPL-2.0-or-later
"""Names of a C program that can go: numbers under another name, what nobody reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kdelta.rendering.c_tree import (
    Edit,
    Given,
    arguments,
    declarators,
    functions,
    gone,
    is_pure,
    named,
    own_lines,
    told,
    walk,
)  # fmt: skip
from kdelta.rendering.c_values import literal

if TYPE_CHECKING:
    from tree_sitter import Node

_WORD = re.compile(r"[A-Za-z_]\w*")
_WORDS_OF_NUMBERS = ("int", "unsigned int", "bool")  # in which a literal is what it was
_NEVER_OF_ZERO = ("<", "<=", ">", ">=", "/", "%")


class Identifiers:
    """Where each identifier of a file is."""

    def __init__(self, root: Node, text: bytes) -> None:
        self._found: dict[str, list[Node]] = {}
        self.in_macros: set[str] = set()
        for node in walk(root):
            if node.type == "preproc_arg":
                self.in_macros.update(_WORD.findall(told(node, text)))
            if node.type == "identifier":
                self._found.setdefault(told(node, text), []).append(node)

    def of(self, name: str, within: Node) -> list[Node]:
        """The uses of a name within a node."""
        first, last = within.start_byte, within.end_byte
        return [one for one in self._found.get(name, ()) if first <= one.start_byte < last]


def constants(root: Node, text: bytes, known: Given) -> Iterator[Edit]:  # noqa: ARG001
    """Locals that are one number for ever, in place of their names."""
    index = Identifiers(root, text)
    for function in functions(root):
        for _, declarator in declarators(function):
            edits = list(_constant(declarator, function, index, text))
            if edits:
                yield from edits
                break


def _constant(declarator: Node, function: Node, index: Identifiers, text: bytes) -> Iterator[Edit]:
    """A number where it is declared, or where it is set, once, before anything else."""
    name = named(declarator)
    if name is None or (name != declarator and name.parent != declarator):
        return
    uses = [use for use in index.of(told(name, text), function) if use != name]
    value = declarator.child_by_field_name("value")
    if value is None and uses and uses[0].parent and _sets(uses[0]):
        value = uses[0].parent.child_by_field_name("right")
        uses = uses[1:]
    if literal(value, text) is None or any(_is_written(use) for use in uses):
        return
    for use in uses:
        yield use.start_byte, use.end_byte, told(value, text).encode()


def _sets(use: Node) -> bool:
    """True for the left side of a plain assignment that is a statement of the function's body."""
    parent = use.parent
    return (
        parent is not None
        and parent.type == "assignment_expression"
        and parent.child_by_field_name("left") == use
        and parent.parent is not None
        and parent.parent.type == "expression_statement"
        and parent.parent.parent is not None
        and parent.parent.parent.parent is not None
        and parent.parent.parent.parent.type == "function_definition"
    )


def _is_written(use: Node) -> bool:
    parent = use.parent
    if parent is None:
        return False
    if parent.type == "assignment_expression":
        return parent.child_by_field_name("left") == use
    return parent.type in ("update_expression", "pointer_expression", "init_declarator") and not (
        parent.type == "init_declarator" and parent.child_by_field_name("value") == use
    )


def dead_locals(root: Node, text: bytes, known: Given) -> Iterator[Edit]:
    """Locals that nobody reads."""
    index = Identifiers(root, text)
    for function in functions(root):
        for declaration, declarator in declarators(function):
            edits = list(_dead(declaration, declarator, function, index, text, known))
            if edits:
                yield from edits
                break


def _dead(
    declaration: Node,
    declarator: Node,
    function: Node,
    index: Identifiers,
    text: bytes,
    known: Given,
) -> Iterator[Edit]:
    name = named(declarator)
    if name is None or declarator.type == "function_declarator":
        return
    left = declarator.child_by_field_name("declarator") or declarator
    inside = {use.start_byte for use in index.of(told(name, text), left)}
    uses = [u for u in index.of(told(name, text), function) if u.start_byte not in inside]
    value = declarator.child_by_field_name("value")
    if uses and all(_is_dropped(use, text, known) for use in uses):
        for use in uses:
            if use.parent and use.parent.parent:
                yield from gone(use.parent.parent, text)
    elif not uses and (value is None or _has_no_effect(value, text, known)):
        yield from _without(declaration, declarator, text)


def _has_no_effect(value: Node | None, text: bytes, known: Given) -> bool:
    return is_pure(value, text, known.aside)


def dead_statics(root: Node, text: bytes, known: Given) -> Iterator[Edit]:
    """Variables of the file that are set and that nobody reads, with what sets them."""
    index = Identifiers(root, text)
    for node in root.children:
        if node.type != "declaration" or node.child_by_field_name("type") is None:
            continue
        for declarator in node.children_by_field_name("declarator"):
            if declarator.type != "identifier" or told(declarator, text) in index.in_macros:
                continue
            uses = [one for one in index.of(told(declarator, text), root) if one != declarator]
            if uses and all(_is_dropped(use, text, known) for use in uses):
                for use in uses:
                    if use.parent and use.parent.parent:
                        yield from gone(use.parent.parent, text)


def _is_dropped(use: Node, text: bytes, known: Given) -> bool:
    """True for a use that sets a value as a statement of its own, by what has no effect."""
    parent = use.parent
    return (
        parent is not None
        and parent.type == "assignment_expression"
        and parent.child_by_field_name("left") == use
        and parent.parent is not None
        and parent.parent.type == "expression_statement"
        and _has_no_effect(parent.child_by_field_name("right"), text, known)
    )


def _without(declaration: Node, declarator: Node, text: bytes) -> Iterator[Edit]:
    """A declaration without one of its names."""
    every = declaration.children_by_field_name("declarator")
    if len(every) == 1:
        yield *own_lines(declaration, text), b""
        return
    at = every.index(declarator)
    if at:
        yield every[at - 1].end_byte, declarator.end_byte, b""
    else:
        yield declarator.start_byte, every[1].start_byte, b""


def constant_parameters(root: Node, text: bytes, known: Given) -> Iterator[Edit]:  # noqa: ARG001
    """Parameters for which every caller gives the same number, in place of their names."""
    index = Identifiers(root, text)
    for function in functions(root):
        name, parameters, body = _signature(function, text)
        uses = index.of(name, root)
        calls = [u.parent for u in uses if u.parent and u.parent.type == "call_expression"]
        if not calls or body is None or not _is_only_called(uses) or name in index.in_macros:
            continue
        for at, parameter in enumerate(parameters):
            if told(parameter.child_by_field_name("type"), text) not in _WORDS_OF_NUMBERS:
                continue
            given = {told(arguments(call)[at], text) for call in calls if len(arguments(call)) > at}
            own = named(parameter)
            inside = index.of(told(own, text), body) if own else []
            if len(given) == 1 and inside and not any(_is_written(use) for use in inside):
                (value,) = given
                if _may_stand(value, inside, text):
                    yield from ((use.start_byte, use.end_byte, value.encode()) for use in inside)
                    return


def _may_stand(value: str, uses: list[Node], text: bytes) -> bool:
    """True for a number where compilers take it: `unsigned < 0` and `/ 0` are warnings."""
    if value in ("0", "false"):
        return not any(
            use.parent is not None
            and use.parent.type == "binary_expression"
            and told(use.parent.child_by_field_name("operator"), text) in _NEVER_OF_ZERO
            for use in uses
        )
    return value.isdigit() or value == "true"


def _signature(function: Node, text: bytes) -> tuple[str, list[Node], Node | None]:
    """Name, parameters and body of a function."""
    declarator = next(one for one in walk(function) if one.type == "function_declarator")
    listed = declarator.child_by_field_name("parameters")
    named = listed.named_children if listed else []
    parameters = [one for one in named if one.type == "parameter_declaration"]
    name = told(declarator.child_by_field_name("declarator"), text)
    return name, parameters, function.child_by_field_name("body")


def dead_parameters(root: Node, text: bytes, known: Given) -> Iterator[Edit]:  # noqa: ARG001
    """Parameters that nobody reads, with what callers give."""
    index = Identifiers(root, text)
    for function in functions(root):
        declarator = next(one for one in walk(function) if one.type == "function_declarator")
        name = told(declarator.child_by_field_name("declarator"), text)
        listed = declarator.child_by_field_name("parameters")
        body = function.child_by_field_name("body")
        if (
            listed is None
            or body is None
            or name == "main"
            or not _is_only_called(index.of(name, root))
            or name in index.in_macros
        ):
            continue
        parameters = [one for one in listed.named_children if one.type == "parameter_declaration"]
        for at, parameter in enumerate(parameters):
            own = named(parameter)
            if own is None or index.of(told(own, text), body):
                continue
            rest = [told(one, text) for one in parameters if one != parameter]
            yield listed.start_byte, listed.end_byte, f"({', '.join(rest) or 'void'})".encode()
            for use in index.of(name, root):
                call = use.parent
                if call is None or call.type != "call_expression":
                    continue
                given = call.child_by_field_name("arguments")
                words = [told(one, text) for one in arguments(call)]
                if given is not None and len(words) == len(parameters):
                    left = ", ".join(words[:at] + words[at + 1 :])
                    yield given.start_byte, given.end_byte, f"({left})".encode()
            return


def dead_returns(root: Node, text: bytes, known: Given) -> Iterator[Edit]:
    """What functions return and nobody takes, where it is one value at the end."""
    index = Identifiers(root, text)
    for function in functions(root):
        name, _, body = _signature(function, text)
        calls = [
            u.parent
            for u in index.of(name, root)
            if u.parent and u.parent.type == "call_expression"
        ]
        kind = function.child_by_field_name("type")
        pointer = function.child_by_field_name("declarator")
        returns = [one for one in walk(function) if one.type == "return_statement"]
        if (
            not calls
            or body is None
            or kind is None
            or pointer is None
            or name in index.in_macros
            or not _is_only_called(index.of(name, root))
            or any(c.parent is None or c.parent.type != "expression_statement" for c in calls)
            or len(returns) != 1
            or returns[0] != body.named_children[-1]
            or not returns[0].named_children
            or not is_pure(value := returns[0].named_children[0], text, known.aside)
            or (value.type == "identifier" and not _is_read(value, body, index, text))
        ):
            continue
        inner = next(one for one in walk(pointer) if one.type == "function_declarator")
        yield kind.start_byte, inner.start_byte, b"void "
        yield *own_lines(returns[0], text), b""
        return


def _is_read(value: Node, body: Node, index: Identifiers, text: bytes) -> bool:
    """True for a variable that is read elsewhere, too: else a compiler would ask what it is for."""
    return any(
        use != value
        and use.parent is not None
        and use.parent.type not in ("assignment_expression", "init_declarator", "declaration")
        for use in index.of(told(value, text), body)
    )


def _is_only_called(uses: list[Node]) -> bool:
    """True when a function is never given to anybody else."""
    return all(
        use.parent is not None
        and use.parent.type in ("call_expression", "function_declarator")
        and use
        in (
            use.parent.child_by_field_name("function"),
            use.parent.child_by_field_name("declarator"),
        )
        for use in uses
    )
