# SPDX-License-Identifier: GPL-2.0-or-later
"""Sessions that never happened: boots of two arms with a known difference and a known noise.

A session has rounds; in each, the new arm boots once and the old one once, or twice (2:1), in
random order.  All values are logs, relative to the old arm without noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

SEED = 20260513  # of what the documents print
CV = 0.03
WALK = 0.8  # of successive boots, where they resemble each other (AR(1))
OUTLIER_SHARE = 0.10
OUTLIER_FACTOR = 1.3
LATTICE_STEP = 0.02  # two thirds of a standard deviation: coarser than most published values
LOWER_SHARE = 0.15  # of values that are not on the one step of the others
SAMPLES = 20  # within a boot, where they are simulated
CORRELATION = 0.8  # of successive samples within a boot


class Noise(StrEnum):
    """How boots scatter: both arms alike, one arm more than the other, over the session."""

    NORMAL = "normal"
    LOGNORMAL = "lognormal"
    OUTLIERS = "10 % outliers"
    T2 = "t, 2 degrees"
    CAUCHY = "Cauchy"
    MODES_NEAR = "both bimodal 8 %"
    MODES = "both bimodal 12 %"
    MODES_FAR = "both bimodal 30 %"
    LATTICE = "lattice"
    ONE_STEP = "one step, few lower"
    CORRELATED = "correlated"
    DRIFT = "3 % drift"
    STEEP_DRIFT = "10 % drift"
    WALKING = "AR(1) drift"
    NEW_2 = "new 2 x wider"
    NEW_3 = "new 3 x wider"
    NEW_5 = "new 5 x wider"
    OLD_2 = "old 2 x wider"
    OLD_3 = "old 3 x wider"
    OLD_5 = "old 5 x wider"
    ONE_BIMODAL = "new bimodal 10 %"
    ONE_BIMODAL_FAR = "new bimodal 20 %"


SYMMETRIC = frozenset({Noise.OLD_2, Noise.OLD_3, Noise.OLD_5})  # as NEW_* where arms have one size


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """So many boots of each arm; the old one has as many as the new one, or twice as many."""

    old: int
    new: int

    def __str__(self) -> str:
        return f"{self.old} : {self.new}"

    @property
    def count(self) -> int:
        """Boots of a session."""
        return self.old + self.new


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sessions:
    """Many sessions of one design.

    logs: log value of each boot (sessions x boots), the old arm's first.
    samples: what the boots' medians were taken of (sessions x boots x SAMPLES), not logs; None: not
    simulated.
    read: logs as they were before a coarse clock read them; None: it is not coarse.
    """

    logs: Array
    samples: Array | None
    design: Design
    read: Array | None = None

    def moved(self, change: float, count: int) -> Sessions:
        """The first `count` sessions with another true change of the new arm (no samples)."""
        logs = (self.logs if self.read is None else self.read)[:count].copy()
        logs[:, self.design.old :] += math.log1p(change)
        if self.read is None:
            return Sessions(logs=logs, samples=None, design=self.design)
        return Sessions(logs=_coarse(logs), samples=None, design=self.design, read=logs)


def sessions(
    noise: Noise, *, design: Design, count: int, change: float, generator: np.random.Generator
) -> Sessions:
    """`count` sessions in which the new arm's true value is 1 + change."""
    logs = _SCATTER[noise](design, count, generator)
    logs[:, design.old :] += math.log1p(change)
    samples = None
    if noise is Noise.LATTICE:
        return Sessions(logs=_coarse(logs), samples=None, design=design, read=logs)
    if noise is Noise.CORRELATED:
        within = 1 + CV * _walk((count, design.count, SAMPLES), CORRELATION, generator)
        samples = np.exp(logs)[:, :, np.newaxis] * within
        logs = np.log(np.median(samples, axis=2))
    return Sessions(logs=logs, samples=samples, design=design)


def _coarse(logs: Array) -> Array:
    return np.asarray(np.log(np.floor(np.exp(logs) / LATTICE_STEP) * LATTICE_STEP))


Scatter = Callable[[Design, int, np.random.Generator], Array]


def _normal(design: Design, count: int, generator: np.random.Generator) -> Array:
    return np.log1p(CV * generator.standard_normal((count, design.count)))


def _lognormal(design: Design, count: int, generator: np.random.Generator) -> Array:
    return CV * generator.standard_normal((count, design.count))


def _outliers(design: Design, count: int, generator: np.random.Generator) -> Array:
    wild = generator.random((count, design.count)) < OUTLIER_SHARE
    return _normal(design, count, generator) + np.where(wild, math.log(OUTLIER_FACTOR), 0.0)


def _student(freedom: float) -> Scatter:
    def scatter(design: Design, count: int, generator: np.random.Generator) -> Array:
        return CV * generator.standard_t(freedom, (count, design.count))

    return scatter


def _modes(apart: float, *, cv: float, old: bool = True) -> Scatter:
    """Half of the boots faster, half slower, `apart` from each other; old: of both arms."""

    def scatter(design: Design, count: int, generator: np.random.Generator) -> Array:
        side = np.where(generator.random((count, design.count)) < 0.5, apart / 2, -apart / 2)
        if not old:
            side[:, : design.old] = 0.0
        return np.asarray(side + cv * generator.standard_normal((count, design.count)))

    return scatter


def _wider(factor: float, *, new: bool) -> Scatter:
    def scatter(design: Design, count: int, generator: np.random.Generator) -> Array:
        logs = _lognormal(design, count, generator)
        logs[:, slice(design.old, None) if new else slice(0, design.old)] *= factor
        return logs

    return scatter


def _one_step(design: Design, count: int, generator: np.random.Generator) -> Array:
    lower = generator.random((count, design.count)) < LOWER_SHARE
    steps = generator.integers(1, 3, (count, design.count))
    return np.asarray(np.log1p(-LATTICE_STEP * lower * steps))


def _drift(size: float) -> Scatter:
    def scatter(design: Design, count: int, generator: np.random.Generator) -> Array:
        place = _positions(design, count, generator) / (design.count - 1)
        return _normal(design, count, generator) + np.log1p(size * place)

    return scatter


def _walking(design: Design, count: int, generator: np.random.Generator) -> Array:
    walk = CV * _walk((count, design.count), WALK, generator)
    place = _positions(design, count, generator).astype(int)
    white = CV / 3 * generator.standard_normal((count, design.count))
    return np.asarray(white + np.take_along_axis(walk, place, axis=1))


_SCATTER: dict[Noise, Scatter] = {
    Noise.NORMAL: _normal,
    Noise.LOGNORMAL: _lognormal,
    Noise.OUTLIERS: _outliers,
    Noise.T2: _student(2),
    Noise.CAUCHY: _student(1),
    Noise.MODES_NEAR: _modes(0.08, cv=0.01),
    Noise.MODES: _modes(0.12, cv=0.01),
    Noise.MODES_FAR: _modes(0.30, cv=CV),
    Noise.LATTICE: _normal,
    Noise.ONE_STEP: _one_step,
    Noise.CORRELATED: _normal,
    Noise.DRIFT: _drift(0.03),
    Noise.STEEP_DRIFT: _drift(0.10),
    Noise.WALKING: _walking,
    Noise.NEW_2: _wider(2, new=True),
    Noise.NEW_3: _wider(3, new=True),
    Noise.NEW_5: _wider(5, new=True),
    Noise.OLD_2: _wider(2, new=False),
    Noise.OLD_3: _wider(3, new=False),
    Noise.OLD_5: _wider(5, new=False),
    Noise.ONE_BIMODAL: _modes(0.10, cv=CV, old=False),
    Noise.ONE_BIMODAL_FAR: _modes(0.20, cv=CV, old=False),
}


def _positions(design: Design, count: int, generator: np.random.Generator) -> Array:
    """Place in the session of each boot, from 0: the order within a round is drawn."""
    share = design.count // design.new
    order = np.argsort(generator.random((count, design.new, share)), axis=2)
    place = np.argsort(order, axis=2) + share * np.arange(design.new)[:, np.newaxis]
    old = place[:, :, : share - 1].reshape(count, design.old)
    return np.concatenate([old, place[:, :, share - 1]], axis=1).astype(np.float64)


def _walk(shape: tuple[int, ...], correlation: float, generator: np.random.Generator) -> Array:
    """Values that resemble their predecessor along the last axis, with standard deviation 1."""
    steps = generator.standard_normal(shape)
    scale = math.sqrt(1 - correlation**2)
    for index in range(1, shape[-1]):
        steps[..., index] = correlation * steps[..., index - 1] + scale * steps[..., index]
    return steps
