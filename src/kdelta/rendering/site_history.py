# SPDX-License-Identifier: GPL-2.0-or-later
"""A scenario's history: kernels of one line of which a page tells the same stand in one row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kdelta.analysis.history import HistoryPoint, ScenarioHistory
from kdelta.metric import number
from kdelta.verdict.comparison import Verdict

Stretch = Sequence[HistoryPoint]
_DIGITS = 9  # of a value, as in the table of pairs


def stretches(history: ScenarioHistory) -> list[Stretch]:
    """The kernels, oldest first; each of a stretch was compared with the one before it there."""
    found: list[list[HistoryPoint]] = []
    last: dict[str, list[HistoryPoint]] = {}
    for point in history.points:
        own = last.get(point.previous)
        if own and own[-1].kernel == point.previous and _told(own[-1]) == _told(point):
            own.append(point)
        else:
            own = [point]
            found.append(own)
        last[point.kernel] = own
    return list(found)


def _told(point: HistoryPoint) -> tuple[object, ...]:
    """What a row says besides the kernel; why it is the same work, the values tell."""
    own = point.comparison
    verdict = own.verdict if own else None
    return (
        None if point.value is None else number(point.value),
        verdict,
        own.reasons if own and verdict is not Verdict.SAME else (),
        own.differences if own else (),
        (point.note, point.same_code, point.run_id),
    )


def document(history: ScenarioHistory) -> dict[str, Any]:
    """As JSON: `values` and `spread` are one for all kernels of a row, or one for each.

    Ratio and difference are those of the values; a reason of SAME is the first kernel's.
    """
    return {
        "name": history.name,
        "operation": history.operation,
        "points": [_row(one) for one in stretches(history)],
    }


def _row(own: Stretch) -> dict[str, Any]:
    first = own[0]
    judged = first.comparison
    told: dict[str, Any] = {
        "kernels": [point.kernel for point in own],
        "values": _each([_rounded(point.value) for point in own]),
        "note": first.note,
        "previous": first.previous,
        "same_code": first.same_code,
        "run_id": first.run_id,
    }
    if judged is None:
        return told
    spreads = [_rounded(point.comparison.spread) if point.comparison else None for point in own]
    return told | {
        "verdict": judged.verdict,
        "reasons": judged.reasons,
        "differences": judged.differences,
        "spread": _each(spreads),
    }


def _each(values: Sequence[float | None]) -> object:
    return values[0] if len(set(values)) == 1 else values


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{_DIGITS}g}")


def names(own: Stretch) -> str:
    """ "6.1.170", "6.1.172 to 6.1.190"."""
    first, last = own[0].kernel, own[-1].kernel
    return first if len(own) == 1 else f"{first} to {last}"


def why(own: Stretch) -> str:
    """Why the first of them has its verdict, or its run; and which others it stands for."""
    first = own[0]
    reasons = "; ".join(first.comparison.reasons) if first.comparison else ""
    text = first.same_code or first.note or reasons or first.run_id
    if len(own) == 1:
        return text
    others = ", ".join(point.kernel for point in own[1:])
    return f"{text}; then as much on {others}"
