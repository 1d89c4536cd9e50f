# SPDX-License-Identifier: GPL-2.0-or-later
"""Code that options of a configuration put into functions, by the patterns of kdelta.options.

A branch is surely a check's when one of its sides runs straight to a handler and comes back to
exactly the other side (or a handler that never returns).  The comparison before it is the check's,
too, where nothing but the branch uses it.  Two checks that share a handler are counted once.
Whether a function has any such code at all is exact for what a pattern names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from msgspec import Struct

from kdelta import options
from kdelta.disassembly.code import Code, Flow, Instruction
from kdelta.disassembly.image import Image
from kdelta.options import Pattern

_ALWAYS = ("jmp", "b", "j")  # of branches
_COMPARES = re.compile(r"(?:cmp|test|cmn|tst)[bwlq]? ")
_USES_FLAGS = re.compile(r"j(?!mp)[a-z]+ |set[a-z]+ |cmov|adc|sbb|b\.|cs(?:el|et|inc|inv|neg)|ccmp")
_WITH_FLAGS = re.compile(r"j(?!mp|[er]?cxz)[a-z]+ |b\.")
_TARGET = re.compile(r"0x([0-9a-f]+)$")
_ENDBR = 4  # bytes: where a function may begin with one
_LONGEST_WAY = 40  # instructions to a handler and back


class CodeOfOption(Struct, frozen=True):
    """What a function has of a pattern.

    places: how many.  certain: instructions that are surely the option's, by address their bytes in
    the image, b"" where the kernel may change them when it boots.
    """

    places: int
    certain: dict[int, bytes]


def of_functions(
    image: Image, names: Collection[str], wanted: Collection[Pattern]
) -> dict[str, dict[str, CodeOfOption] | None]:
    """Function -> pattern -> its code; None for one whose code cannot be read, or not all of it."""
    codes = image.codes(sorted(names))
    read = {name: found for name, found in codes.items() if not isinstance(found, str)}
    called = {
        n: [each.partition("+")[0] for one in own for each in one.calls] for n, own in read.items()
    }
    # The parts of functions that the compiler put elsewhere.
    cold = {n: {name for name in own if name.endswith(".cold")} for n, own in called.items()}
    apart = image.codes(sorted(frozenset().union(*cold.values())))
    lost = {name for name, found in apart.items() if isinstance(found, str)}
    result: dict[str, dict[str, CodeOfOption] | None] = dict.fromkeys(codes)
    for name, found in ((n, found) for n, found in read.items() if not cold[n] & lost):
        own = _placed(image, name, found)
        every = dict(own)
        for part in cold[name]:
            every |= _placed(image, part, apart[part])
        seen = ((one.name, _found(image, one, own, every)) for one in wanted)
        result[name] = {code: found for code, found in seen if found.places}
    return result


def known(names: Collection[str], architecture: str) -> tuple[Pattern, ...]:
    """The patterns of these names that are known for an architecture."""
    found = (options.patterns()[name] for name in sorted(names))
    return tuple(one for one in found if not one.arch or architecture in one.arch)


def _placed(image: Image, name: str, codes: tuple[Code, ...] | str) -> dict[int, Instruction]:
    if isinstance(codes, str):
        return {}
    return {
        start + one.offset: one
        for start, code in zip(image.starts(name), codes, strict=True)
        for one in code.instructions
    }


def _found(
    image: Image, pattern: Pattern, own: Mapping[int, Instruction], every: Mapping[int, Instruction]
) -> CodeOfOption:
    """own: a function's instructions; every: with its parts elsewhere."""
    if pattern.entry:
        first = re.compile(pattern.entry)
        begins = (at for at, one in own.items() if one.offset <= _ENDBR)
        entries = [at for at in begins if first.fullmatch(own[at].text)]
        return CodeOfOption(len(entries), dict.fromkeys(entries, b""))
    every_name = (*pattern.calls, *pattern.references, *pattern.handlers)
    calls, named = map(options.matching, (pattern.calls, every_name))
    places = sum(any(map(named.match, _names(one))) for one in every.values() if one.references)
    if not places:
        return CodeOfOption(0, {})
    going = {at: one for at, one in own.items() if one.kind is not Flow.PLAIN}
    certain = {at for at, one in going.items() if any(map(calls.match, _names(one)))}
    if pattern.handlers:
        walk = _Walk(every, options.matching(pattern.handlers), returns=pattern.returns)
        certain = certain.union(*map(walk.check, going))
    return CodeOfOption(places, {at: image.bytes_at(at, every[at].size) for at in certain})


def _names(one: Instruction) -> Iterator[str]:
    return (name.partition("+")[0] for name in one.references)


class _Walk:
    """Ways through a function's instructions, by address."""

    def __init__(
        self, code: Mapping[int, Instruction], handlers: re.Pattern[str], *, returns: bool
    ) -> None:
        self._code, self._handlers, self._returns = code, handlers, returns
        following = {at + one.size: at for at, one in code.items()}
        self._before = {at: before for at, before in following.items() if at in code}

    def check(self, at: int) -> set[int]:
        """The addresses of the branch there and its comparison, if it is surely a check's."""
        one = self._code[at]
        target = self._target(one)
        if target is None or one.raw.split()[0] in _ALWAYS:
            return set()
        after = at + one.size
        sides = ((target, after), (after, target))
        goes_on = next((back for side, back in sides if self._fails(side, back)), None)
        if goes_on is None:
            return set()
        compare = self._before.get(at)
        theirs = (
            compare is not None
            and _WITH_FLAGS.match(one.raw)
            and _COMPARES.match(self._code[compare].raw)
            and not (goes_on in self._code and _USES_FLAGS.match(self._code[goes_on].raw))
        )
        return {at, compare} if theirs and compare is not None else {at}

    def _fails(self, at: int, back: int) -> bool:
        """True when a way leads only to a handler and then, if that returns, back."""
        handled = False
        for _ in range(_LONGEST_WAY):
            if at == back or at not in self._code:
                return handled and at == back
            one = self._code[at]
            if one.kind is Flow.CALL:
                if handled or not any(map(self._handlers.match, _names(one))):
                    return False
                if not self._returns:
                    return True
                handled = True
            target = self._target(one)
            if target is None and one.kind is Flow.JUMP:
                return False
            if target is not None and one.raw.split()[0] not in _ALWAYS:
                return False
            at = at + one.size if target is None else target
        return False

    def _target(self, one: Instruction) -> int | None:
        """Where a branch goes; None for what is none, and for an unknown place."""
        found = _TARGET.search(one.raw) if one.kind is Flow.JUMP else None
        return int(found[1], 16) if found else None
