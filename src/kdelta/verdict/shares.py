# SPDX-License-Identifier: GPL-2.0-or-later
"""How much of a gap between two kernels another one closes: 0 nothing, 1 all."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Part of the gap that one arm closes: 0 nothing, 1 all; None with the reason why not.

    low and high: interval at 1 - alpha, None when the data do not bound it (reason says why).
    """

    arm: str
    value: float | None
    low: float | None
    high: float | None
    reason: str

    def unsure(self, reason: str) -> Share:
        """The same without an interval, where it has one."""
        return self if self.low is None else replace(self, low=None, high=None, reason=reason)


def closed(good: float | None, bad: float | None, value: float | None) -> float | None:
    """The share of the gap good -> bad that a value closes: 1 all, 0 nothing; None: no gap."""
    if good is None or bad is None or value is None or good == bad:
        return None
    return (bad - value) / (bad - good)


def closes(share: Share, step: str) -> str:
    """How much of a step ("6.16 -> 6.17") an arm takes back, in words."""
    if share.value is None:
        return f"{share.arm}: share of {step}: unknown: {share.reason}"
    interval = (
        f"interval {100 * share.low:.1f} to {100 * share.high:.1f} %"
        if share.low is not None and share.high is not None
        else share.reason
    )
    return f"{share.arm} closes {100 * share.value:.1f} % of {step} ({interval})"
