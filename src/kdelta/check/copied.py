# SPDX-License-Identifier: GPL-2.0-or-later
"""Bytes that string instructions handle: one copies a page and counts as one instruction.

A path that copies where it did not before may have fewer instructions and is more work.  So where
bytes and instructions do not go one way, counts have no sign.
"""

from __future__ import annotations

from kdelta.check.counter import Counted

_LEAST = 64.0  # bytes per operation, below which a difference is a structure's
_LEAST_PART = 0.02  # of the bytes before


def opposed(before: Counted, after: Counted, delta: float) -> str:
    """Why a difference of so many instructions per operation has no sign; "" where it has one."""
    old, new = _bytes(before), _bytes(after)
    more = new - old
    if abs(more) < max(_LEAST, _LEAST_PART * old) or delta * more > 0 or (more < 0 and not delta):
        return ""
    return (
        f"{delta:+,.0f} instructions and {more:+,.0f} bytes that string instructions copy or clear,"
        " each of which counts as one: no sign"
    )


def _bytes(side: Counted) -> float:
    """Of the windows that stand for each phase, per operation."""
    exact = side.result.exact
    operations = {phase.phase: phase.operations for phase in exact.phases}
    return sum(row.bytes / operations.get(row.phase, 1) for row in exact.functions)
