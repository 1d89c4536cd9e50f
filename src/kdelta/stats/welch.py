# SPDX-License-Identifier: GPL-2.0-or-later
"""Two means whose scatters may differ: Welch's test, with Aspin's second-order term.

Welch's degrees of freedom alone let 1.3 to 1.5 % through at a promised 1 % where one of two arms of
5 and 10 values scatters two or three times as much as the other.  Added is what Aspin's series
(1948) of the critical value has beyond that of Student's t with Welch's degrees: it vanishes
when one arm is all the scatter, and is exact to the second order in 1 / n.

numpy and scipy (extra `time`) are imported here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri, stdtrit

Array = npt.NDArray[np.float64]

_FURTHEST = 8.0  # standard deviations; a p below 1e-15 says nothing more
_TINY = 1e-300


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spread:
    """What is known of the error of a difference of two means; arrays of one shape.

    old, new: variance of each mean (not of the values).  freedom: of each variance, n - 1.
    """

    old: Array
    new: Array
    freedom: tuple[int, int]

    @classmethod
    def of(cls, values: Array, n_old: int) -> Spread:
        """Of each row of values (data sets x values), the old arm's first."""
        n_new = values.shape[1] - n_old
        return cls(
            old=values[:, :n_old].var(axis=1, ddof=1) / n_old,
            new=values[:, n_old:].var(axis=1, ddof=1) / n_new,
            freedom=(n_old - 1, n_new - 1),
        )

    @property
    def error(self) -> Array:
        """Standard error of the difference."""
        return np.asarray(np.sqrt(self.old + self.new))

    def critical(self, deviate: Array) -> Array:
        """The |t| that is as rare, at equal means, as this |standard normal deviate|."""
        whole = np.maximum(self.old + self.new, _TINY)
        was, now = self.old / whole, self.new / whole
        first, second = self.freedom
        plain = was**2 / first + now**2 / second
        squared = was**2 / first**2 + now**2 / second**2
        cubed = was**3 / first**2 + now**3 / second**2
        square = deviate**2
        term = (1 + square) / 2 * (plain**2 - squared)
        term += (3 + 5 * square + square**2) / 3 * (cubed - plain**2)
        welch = -stdtrit(1 / np.maximum(plain, _TINY), ndtr(-deviate))
        return np.asarray(welch + deviate * term)

    def reach(self, alpha: float) -> Array:
        """Half the width of the interval of the difference at 1 - alpha."""
        return self.critical(np.asarray(-ndtri(alpha / 2))) * self.error

    def p_values(self, difference: Array) -> Array:
        """Two-sided p of equal means; without any scatter 1 of equal means, else the least."""
        size = np.abs(difference)
        error = self.error
        t = np.where(error > 0, size / np.where(error > 0, error, 1.0), np.where(size > 0, 1e9, 0))
        low, high = np.zeros_like(t), np.full_like(t, _FURTHEST)
        for _ in range(40):  # the critical value rises with the deviate
            middle = (low + high) / 2
            below = self.critical(middle) < t
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.asarray(2 * ndtr(-low))


def ratio_reach(*, old: float, new: float, freedom: tuple[int, int], alpha: float) -> float:
    """By what factor a ratio of means may be off, at 1 - alpha, from published figures.

    old, new: variance of each mean, relative to its square.
    """
    spread = Spread(old=np.array([old]), new=np.array([new]), freedom=freedom)
    return float(np.exp(spread.reach(alpha)[0]))
