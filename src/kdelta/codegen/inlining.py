# SPDX-License-Identifier: GPL-2.0-or-later
"""What a compiler says it inlined into one function, from its remarks; and sizes of GCC's dumps."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

_GCC = re.compile(
    r": optimized:\s+(?:Inlining|Inlined) ([\w.$]{1,200})/\d+ into ([\w.$]{1,200})/\d+"
)
_CLANG = re.compile(r"remark: '?([\w.$]{1,200})'? inlined into '?([\w.$]{1,200})'? with")
_MOST_LINES = 2_000_000
_NUMBERED = re.compile(r"\.(?:isra|constprop|part|cold)\b.*")


def inlined(remarks: str, function: str) -> tuple[str, ...]:
    """Names of all functions that went into a function, through others too, sorted."""
    into: defaultdict[str, set[str]] = defaultdict(set)
    for pattern in (_GCC, _CLANG):
        for match in pattern.finditer(remarks):
            into[_NUMBERED.sub("", match[2])].add(_NUMBERED.sub("", match[1]))
    found: set[str] = set()
    waiting = [function]
    while waiting:
        for name in into[waiting.pop()] - found:
            found.add(name)
            waiting.append(name)
    return tuple(sorted(found - {function}))


def dump_lines(dump: Path, function: str) -> int | None:
    """Lines that a dump of GCC has for a function, without empty ones; None when it has none."""
    count: int | None = None
    inside = False
    with dump.open(errors="replace") as stream:
        for number, line in enumerate(stream):
            if number > _MOST_LINES:
                return None
            if line.startswith(";; Function "):
                inside = _function_of(line) == function
                if inside and count is None:
                    count = 0
            if inside and line.strip():
                count = (count or 0) + 1
    return count


def _function_of(line: str) -> str:
    """ ";; Function mincore_pte_range (mincore_pte_range, funcdef_no=5 ...)": the second one."""
    match = re.match(r";; Function \S{1,300} \(([\w.$]{1,300}),", line)
    return match[1] if match else ""
