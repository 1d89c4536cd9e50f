# SPDX-License-Identifier: GPL-2.0-or-later
"""Sessions that never happened: boots of two arms with a known difference and a known noise.

A session has n rounds; in each, both arms boot once, in random order.  All values are relative to
the old arm without noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

CV = 0.03
DRIFT = 0.03  # over the session
OUTLIER_SHARE = 0.10
OUTLIER_FACTOR = 1.3
LATTICE_STEP = 0.02  # two thirds of a standard deviation: coarser than most published values
SAMPLES = 20  # within a boot, where they are simulated
CORRELATION = 0.8  # of successive samples within a boot


class Noise(StrEnum):
    """How boots scatter."""

    NORMAL = "normal"
    LOGNORMAL = "lognormal"
    DRIFT = "3 % drift"
    OUTLIERS = "10 % outliers"
    LATTICE = "lattice"
    CORRELATED = "correlated"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sessions:
    """Many sessions of one design.

    values: one per boot (sessions x 2n), the old arm's n rounds first.
    samples: what the boots' medians were taken of (sessions x 2n x SAMPLES); None: not simulated.
    """

    values: Array
    samples: Array | None
    rounds: int

    @property
    def when(self) -> list[float]:
        """The round of each column."""
        return [float(index) for index in [*range(self.rounds), *range(self.rounds)]]


def sessions(
    noise: Noise, *, rounds: int, count: int, change: float, generator: np.random.Generator
) -> Sessions:
    """`count` sessions in which the new arm's true value is 1 + change."""
    boots = 2 * rounds
    z = generator.standard_normal((count, boots))
    values = np.exp(CV * z) if noise is Noise.LOGNORMAL else 1 + CV * z
    samples = None
    if noise is Noise.DRIFT:
        values *= 1 + DRIFT * _positions(rounds, count, generator) / (boots - 1)
    elif noise is Noise.OUTLIERS:
        wild = generator.random((count, boots)) < OUTLIER_SHARE
        values *= np.where(wild, OUTLIER_FACTOR, 1.0)
    values[:, rounds:] *= 1 + change
    if noise is Noise.LATTICE:
        values = np.floor(values / LATTICE_STEP) * LATTICE_STEP
    elif noise is Noise.CORRELATED:
        samples = values[:, :, np.newaxis] * (1 + CV * _walk(count, boots, generator))
        values = np.median(samples, axis=2)
    return Sessions(values=values, samples=samples, rounds=rounds)


def _positions(rounds: int, count: int, generator: np.random.Generator) -> Array:
    """Place in the session of each column, from 0: the order within a round is a coin's."""
    first = generator.random((count, rounds)) < 0.5
    start = 2 * np.arange(rounds)
    return np.concatenate([start + ~first, start + first], axis=1).astype(np.float64)


def _walk(count: int, boots: int, generator: np.random.Generator) -> Array:
    """Samples that resemble their predecessor (AR(1)), with standard deviation 1."""
    steps = generator.standard_normal((count, boots, SAMPLES))
    found = np.empty_like(steps)
    found[:, :, 0] = steps[:, :, 0]
    scale = np.sqrt(1 - CORRELATION**2)
    for index in range(1, SAMPLES):
        found[:, :, index] = CORRELATION * found[:, :, index - 1] + scale * steps[:, :, index]
    return found
