# SPDX-License-Identifier: GPL-2.0-or-later
"""Student's t, for the two places that need it."""

from __future__ import annotations


def two_sided_p(t: float, freedom: float) -> float:
    """Chance that |T| with this many degrees of freedom exceeds |t|."""
    # scipy belongs to the extra `time`: reading a result must work without it.
    from scipy.special import stdtr

    return float(2 * stdtr(freedom, -abs(t)))
