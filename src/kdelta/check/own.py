# SPDX-License-Identifier: GPL-2.0-or-later
"""Which functions of two builds are a change's own, by their code and not by a list of names."""

from __future__ import annotations

from collections import Counter

from kdelta.check.counter import Counted
from kdelta.disassembly import image
from kdelta.disassembly.difference import difference, only_lines
from kdelta.disassembly.identity import functions_of, watched
from kdelta.kernels.kernel import Kernel


def changed_code(old: Kernel, new: Kernel) -> tuple[frozenset[str], bool]:
    """Functions that the two do not have in common; True when all that differs is line numbers."""
    one = image.opened(old.image, old.name or "the base")
    other = image.opened(new.image, new.name or "the patched")
    names = difference(one, other).names
    return names, not names and only_lines(one, other)


def own_functions(old: Counted, new: Counted, changed: frozenset[str]) -> frozenset[str]:
    """The functions whose code differs and, below them, those that are called more or less often.

    A change that calls a function once where it called it four times has its price there, and what
    it adds may be inlined.  changed: between the two kernels.
    """
    calls = [_calls(side) for side in (old, new)]
    moved = {name for name in {*calls[0], *calls[1]} if calls[0][name] != calls[1][name]}
    kernels = [
        image.opened(side.kernel.image, side.kernel.name or "a build") for side in (old, new)
    ]
    found, last = set(changed), changed & (functions_of(old.functions | new.functions))
    while last:
        below = {name for kernel in kernels for name in watched(kernel, last)}
        last = frozenset(below & moved - found)
        found |= last
    return frozenset(found)


def _calls(side: Counted) -> Counter[str]:
    """How often each function was called in the windows that stand for phases."""
    found: Counter[str] = Counter()
    for row in side.result.exact.functions:
        found[row.function] += row.calls
    return found
