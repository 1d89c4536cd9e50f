# SPDX-License-Identifier: GPL-2.0-or-later
"""Student's t, where there are no values to permute: published summaries, and contrasts of means.

scipy belongs to the extra `time` and is imported when it is needed: reading a result must work
without it.
"""

from __future__ import annotations

import math


def two_sided_p(t: float, freedom: float) -> float:
    """Chance that |T| with this many degrees of freedom exceeds |t|."""
    from scipy.special import stdtr

    return float(2 * stdtr(freedom, -abs(t)))


def ratio_reach(*, old: float, new: float, freedom: tuple[int, int], alpha: float) -> float:
    """By what factor a ratio of means may be off, at 1 - alpha (Welch 1947).

    old, new: variance of each mean, relative to its square.  freedom: of each variance, n - 1.
    """
    from scipy.special import stdtrit

    whole = old + new
    if not whole:
        return 1.0
    degrees = whole**2 / (old**2 / freedom[0] + new**2 / freedom[1])
    return math.exp(-float(stdtrit(degrees, alpha / 2)) * math.sqrt(whole))
