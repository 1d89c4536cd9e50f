# SPDX-License-Identifier: GPL-2.0-or-later
"""The promise on false alarms and power, by a small seeded simulation (whole: bench/power.py)."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parent.parent / "bench"))

import million
import power
from kdelta.metric import Grade
from kdelta.stats.shift import shift
from kdelta.stats.timing import ALPHA, compare
from kdelta.verdict.comparison import Verdict
from simulation import Design, Noise, sessions

SEED = 7
SESSIONS = 300
NINE = Design(old=9, new=9)
ALIKE = (Noise.CAUCHY, Noise.MODES_FAR, Noise.STEEP_DRIFT, Noise.ONE_STEP)
UNLIKE = (Noise.NEW_5, Noise.OLD_3)
ONE_ARM = (Noise.ONE_BIMODAL, Noise.ONE_BIMODAL_FAR)
PAGE = Path(__file__).resolve().parent.parent / "docs" / "method.md"


@pytest.mark.parametrize("noise", [*ALIKE, *UNLIKE])
def test_equal_arms_are_rarely_different(noise: Noise) -> None:
    """Two old boots a new one: where the wide arm is the small one, ranks are wrong in 3 to 5 %."""
    design = Design(old=10, new=5) if noise in UNLIKE else NINE
    count = 4 * SESSIONS if noise in UNLIKE else SESSIONS
    generator = np.random.default_rng([SEED, list(Noise).index(noise)])
    these = sessions(noise, design=design, count=count, change=0.0, generator=generator)
    alarms = float((power.ours(these, SEED) <= ALPHA).mean())
    assert alarms <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / count)


@pytest.mark.parametrize("noise", ONE_ARM)
@pytest.mark.parametrize("design", [Design(old=5, new=5), NINE, Design(old=18, new=9)])
def test_an_arm_with_two_modes_is_rarely_different(design: Design, noise: Noise) -> None:
    """Of five boots all are of one mode in 6 %, of nine all but one in 4 %: tests believed that."""
    count = 3 * SESSIONS
    generator = np.random.default_rng([SEED, 3, list(Noise).index(noise)])
    these = sessions(noise, design=design, count=count, change=0.0, generator=generator)
    alarms = float((power.ours(these, SEED) <= ALPHA).mean())
    assert alarms <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / count)


def test_the_table_of_the_docs_is_of_all_cells_and_keeps_the_promises() -> None:
    """It is what `bench/power.py --docs` prints: head, cells and faults are that program's."""
    table = PAGE.read_text().split(power.MARKS[0])[1].split(power.MARKS[1])[0]
    lines = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")]
    assert power.HEAD in table
    rows = {(cells[0].strip(), cells[1].strip()): cells for cells in lines if len(cells) == 9}
    told = re.search(r"(\d+) and \d+ sessions, seed", table)
    assert told
    error = math.sqrt(ALPHA * (1 - ALPHA) / int(told[1]))
    for design, noise in power.cells():
        cells = rows[str(design), noise]
        level, coverage = float(cells[2].split("/")[0]), float(cells[3])
        assert level <= 100 * (ALPHA + power.ERRORS * error), cells
        assert coverage >= 98.5, cells
        assert not cells[8].strip(), cells


@pytest.mark.parametrize(
    "noise", [Noise.NORMAL, Noise.OUTLIERS, Noise.T2, Noise.MODES, Noise.MODES_NEAR]
)
def test_a_change_is_seen_about_as_often_as_the_better_classical_test_sees_it(noise: Noise) -> None:
    generator = np.random.default_rng([SEED, 2, list(Noise).index(noise)])
    these = sessions(noise, design=NINE, count=SESSIONS, change=0.05, generator=generator)
    seen = {name: float(found.mean()) for name, found in power.judged(these, SEED).items()}
    best = max(seen["Welch"], seen["M-W"])
    assert seen["kdelta"] >= 0.95 * best - 2 * math.sqrt(best * (1 - best) / SESSIONS)


def test_two_modes_near_each_other_are_no_dearer_than_for_welch() -> None:
    """On common sessions, so 2000 tell 0.95 from the 0.88 that arrangements left of his power."""
    generator = np.random.default_rng([SEED, 4])
    these = sessions(Noise.MODES_NEAR, design=NINE, count=2000, change=0.05, generator=generator)
    seen = {name: float(found.mean()) for name, found in power.judged(these, SEED).items()}
    assert seen["kdelta"] >= 0.95 * seen["Welch"]


def test_verdicts_on_equal_arms_are_never_steps_more_often_than_promised() -> None:
    """Whole comparisons, not only their p: 20 equal sessions, at most 2 steps (chance 1e-3)."""
    generator = np.random.default_rng(SEED)
    design = Design(old=6, new=6)
    these = sessions(Noise.DRIFT, design=design, count=20, change=0.0, generator=generator)
    steps = 0
    for row in np.exp(these.logs):
        old = million.series("old", row[:6, np.newaxis], first=0)
        new = million.series("new", row[6:, np.newaxis], first=1)
        steps += compare(old, new, grade=Grade.HOST_TIME).verdict.is_step
    assert steps <= 2


def test_intervals_hold_the_truth_and_their_own_estimate() -> None:
    generator = np.random.default_rng(SEED)
    design = Design(old=6, new=6)
    these = sessions(Noise.OUTLIERS, design=design, count=25, change=0.05, generator=generator)
    missed = 0
    for row in np.exp(these.logs):
        found = shift(row[:6].tolist(), row[6:].tolist(), alpha=0.05, seed=SEED, when=design.when)
        assert found.low <= found.ratio <= found.high
        assert (found.p <= 0.05) == (found.low > 1 or found.high < 1)
        missed += not found.low <= 1.05 <= found.high
    assert missed <= 5  # more has a chance of 1e-3


def test_a_million_samples_are_judged() -> None:
    """How long that takes is for bench/million.py to say."""
    found, _ = million.judge_many(1_000_000, 10, SEED)
    assert found.verdict is Verdict.REGRESSION
