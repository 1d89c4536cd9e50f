# SPDX-License-Identifier: GPL-2.0-or-later
"""What a number means: unit, direction and assumption live with the metric; a count, its word."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum


class Better(StrEnum):
    """Which direction of a metric is an improvement."""

    LOWER = "lower"
    HIGHER = "higher"
    NONE = "none"  # it is said, and never judged


class Assume(StrEnum):
    """What may be assumed of repeated readings: equal to the digit, or nothing."""

    EXACT = "exact"
    NOTHING = "nothing"


class Grade(StrEnum):
    """What kind of claim a number can carry; path length is never a time."""

    EXACT_PATH = "exact-path"
    EXACT_LINES = "exact-lines"
    GUEST_TIME = "guest-time"
    HOST_TIME = "host-time"
    METAL_TIME = "metal-time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A named quantity.  `unit` is printed beside every value of it."""

    name: str
    unit: str
    better: Better
    assume: Assume


def number(value: float) -> str:
    """Instructions per operation: two decimals below 100, one below 100000, else none.

    Without separators, as all figures per operation; whole counts have them.
    """
    return f"{value:.{decimals(value)}f}"


def decimals(value: float) -> int:
    """How many decimals `number` gives a value."""
    return 2 if abs(value) < 99.995 else 1 if abs(value) < 99999.95 else 0


def few(names: Collection[str], most: int = 3, between: str = ", ") -> str:
    """The first of several, and how many more there are."""
    more = len(names) - most
    return between.join([*names][:most]) + (f" and {more} more" if more > 0 else "")


def plural(count: int, noun: str) -> str:
    """ "1 kernel", "9 kernels"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
