# SPDX-License-Identifier: GPL-2.0-or-later
"""What makes a measurement less than it looks: told beside a verdict, and never removed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Trap(StrEnum):
    """What was detected."""

    LATTICE = "lattice"
    CLOCK = "clock"
    TRUNCATED = "truncated"
    ZERO = "zero"
    OUTLIER = "outlier"
    WILD = "wild"
    DOUBLE_COUNT = "double-count"
    FEW = "few"
    NEAR_LIMIT = "near-limit"
    REFILLED = "refilled"
    FAILED = "failed"
    TREND = "trend"
    ORDER = "order"
    REPLICATE = "replicate"
    STATE = "state"
    FACTS = "facts"
    CONTROL = "control"
    MEANS = "means"
    UNITS = "units"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caution:
    """One thing to know before believing a number: a sentence that names the arm."""

    trap: Trap
    sentence: str
