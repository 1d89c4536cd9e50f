# SPDX-License-Identifier: GPL-2.0-or-later
"""The promise on false alarms and power, by a small seeded simulation (whole: bench/power.py)."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parent.parent / "bench"))

import power
from kdelta.metric import Grade
from kdelta.stats.permutation import shift
from kdelta.stats.timing import ALPHA, compare
from kdelta.stats.verdict import Verdict
from simulation import Noise, sessions

SEED = 7
SESSIONS = 300


@pytest.mark.parametrize("noise", list(Noise))
@pytest.mark.parametrize("rounds", [5, 9])
def test_false_alarms_and_power(noise: Noise, rounds: int) -> None:
    generator = np.random.default_rng([SEED, rounds, list(Noise).index(noise)])
    equal, moved = (
        sessions(noise, rounds=rounds, count=SESSIONS, change=change, generator=generator)
        for change in (0.0, 0.05)
    )
    alarms = float((power.ours(equal, SEED) <= ALPHA).mean())
    assert alarms <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / SESSIONS)
    seen = (power.ours(moved, SEED) <= ALPHA).astype(float)
    gain = seen - (power.mann_whitney(moved, SEED) <= ALPHA)
    if rounds >= 9:
        assert gain.mean() >= -3 * gain.std() / math.sqrt(SESSIONS)
    assert seen.mean() > (0.1 if rounds == 5 else 0.25)


def test_verdicts_on_equal_arms_are_never_steps_more_often_than_promised() -> None:
    """Whole comparisons, not only their p: 40 equal sessions, at most 3 steps (chance 7e-4)."""
    generator = np.random.default_rng(SEED)
    these = sessions(Noise.DRIFT, rounds=7, count=40, change=0.0, generator=generator)
    steps = 0
    for row in these.values:
        old = power.series("old", row[:7, np.newaxis], first=0)
        new = power.series("new", row[7:, np.newaxis], first=1)
        steps += compare(old, new, grade=Grade.HOST_TIME).verdict.is_step
    assert steps <= 3


def test_intervals_hold_the_truth() -> None:
    generator = np.random.default_rng(SEED)
    these = sessions(Noise.OUTLIERS, rounds=6, count=100, change=0.05, generator=generator)
    missed = 0
    for row in these.values:
        found = shift(row[:6].tolist(), row[6:].tolist(), alpha=0.05, seed=SEED, when=these.when)
        missed += not found.low <= 1.05 <= found.high
    assert missed <= 12  # 5 expected; more than 12 has a chance of 5e-4


def test_a_million_samples_are_judged() -> None:
    """How long that takes is for bench/power.py to say."""
    found, _ = power.judge_many(1_000_000, 10, SEED)
    assert found.verdict is Verdict.REGRESSION
