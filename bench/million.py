# SPDX-License-Identifier: GPL-2.0-or-later
"""How long the judging of a million samples takes, and how much memory.

.venv/bin/python bench/million.py
"""

from __future__ import annotations

import resource
import time

import numpy as np

from kdelta.metric import Assume, Better, Grade, Metric
from kdelta.stats.series import Boot, Series
from kdelta.stats.timing import compare
from kdelta.verdict.comparison import Comparison
from simulation import SEED, Array

METRIC = Metric(name="simulated", unit="ns/page", better=Better.LOWER, assume=Assume.NOTHING)


def series(arm: str, values: Array, *, first: int) -> Series:
    """An arm of an interleaved session of two, from samples (boots x samples)."""
    boots = tuple(
        Boot(
            label=f"{arm} r{index}",
            position=2 * index + (first + index) % 2,
            values=tuple(row),
        )
        for index, row in enumerate(values.tolist())
    )
    return Series(arm=arm, metric=METRIC, boots=boots, planned=len(boots))


def judge_many(samples: int, boots: int, seed: int) -> tuple[Comparison, float]:
    """Judge `samples` samples in two arms; the verdict, and seconds."""
    generator = np.random.default_rng([seed, 4])
    shape = (boots, samples // (2 * boots))
    arms = [
        series(name, 1e3 * mean * (1 + 0.03 * generator.standard_normal(shape)), first=index)
        for index, (name, mean) in enumerate((("old", 1.0), ("new", 1.05)))
    ]
    begun = time.perf_counter()
    found = compare(arms[0], arms[1], grade=Grade.HOST_TIME, seed=seed)
    return found, time.perf_counter() - begun


def print_speed(seed: int) -> None:
    """How long a million samples take."""
    for boots in (10, 1000, 50_000):
        found, seconds = judge_many(1_000_000, boots, seed)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"1,000,000 samples in 2 x {boots} boots: {found.verdict} in {seconds:.2f} s;"
            f" largest memory so far {memory:.0f} MB",
            flush=True,
        )


if __name__ == "__main__":
    print_speed(SEED)
