# SPDX-License-Identifier: GPL-2.0-or-later
"""Bytes that string instructions handle: one copies a page and counts as one instruction.

A path that copies where it did not before may have fewer instructions and is more work.  So where
bytes and instructions do not go one way, counts have no sign.
"""

from __future__ import annotations

from kdelta.analysis.counts import bytes_per_operation, differ_in_bytes
from kdelta.check.counter import Counted


def opposed(before: Counted, after: Counted, delta: float) -> str:
    """Why a difference of so many instructions per operation has no sign; "" where it has one."""
    old, new = (bytes_per_operation(side.result) for side in (before, after))
    more = new - old
    if not differ_in_bytes(old, new) or delta * more > 0 or (more < 0 and not delta):
        return ""
    return (
        f"{delta:+,.0f} instructions and {more:+,.0f} bytes that string instructions copy or clear,"
        " each of which counts as one: no sign"
    )
