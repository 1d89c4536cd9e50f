# SPDX-License-Identifier: GPL-2.0-or-later
"""Changes in words: "2.22 times the instructions (more work)", never a bare sign."""

from __future__ import annotations

from kdelta.metric import Grade, number
from kdelta.verdict.comparison import Comparison, Verdict

_TWICE = 1.995  # from here on "times" reads better than percent

# What a verdict of a grade rests on, for who has never seen one.
TRUST = {
    Grade.EXACT_PATH: "counted exactly, under emulation; how long it takes was not measured",
    Grade.GUEST_TIME: "timed in KVM guests",
    Grade.HOST_TIME: "timed on a machine that is itself a guest, or may be",
    Grade.METAL_TIME: "timed on real hardware",
}


def change(ratio: float | None, what: str) -> str:
    """How much more or less: "2.22 times the instructions", "3.1 % fewer instructions".

    what: "instructions" or "time".
    """
    if ratio is None:
        return f"{what} where there were none"
    if ratio >= _TWICE:
        return f"{ratio:.2f} times the {what}"
    percent = (
        f"{100 * abs(ratio - 1):.2g}" if abs(ratio - 1) < 0.1 else f"{100 * abs(ratio - 1):.0f}"
    )
    if ratio == 1:
        return f"the same {what}"
    less = "fewer" if what.endswith("s") else "less"
    return f"{percent} % {'more' if ratio > 1 else less} {what}"


def against(ratio: float | None, what: str, old: str) -> str:
    """The same in a sentence: "3.1 % fewer instructions than on 6.12"."""
    joined = "than" if ratio is not None and ratio < _TWICE and ratio != 1 else "as"
    if ratio is not None and ratio >= _TWICE:
        return f"{change(ratio, what)} that it takes on {old}"
    return f"{change(ratio, what)} {joined} on {old}"


def effort(found: Comparison, *, timed: bool) -> str:
    """A verdict in words that need no convention."""
    what = "time" if timed else "work"
    return {
        Verdict.REGRESSION: f"more {what}",
        Verdict.IMPROVEMENT: f"less {what}",
        Verdict.SAME: f"the same {what}",
        Verdict.UNDECIDED: "undecided",
        Verdict.INVALID: "cannot be compared",
    }[found.verdict]


def more(delta: float) -> str:
    """A difference in words: "368.1 more", "22.0 fewer", "as many"."""
    if not delta:
        return "as many"
    return f"{number(abs(delta))} {'more' if delta > 0 else 'fewer'}"
