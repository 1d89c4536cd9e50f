# SPDX-License-Identifier: GPL-2.0-or-later
"""Traps in timings: each is found where it is, and not where it is not."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from kdelta.metric import Grade
from kdelta.stats import detectors
from kdelta.stats.detectors import inspect
from kdelta.stats.series import Boot, Series, Trap
from kdelta.stats.timing import compare
from kdelta.verdict.comparison import Verdict
from timing_series import METRIC, arm, noisy

TICK = 4_000_250


def traps(series: Series) -> set[str]:
    return {caution.trap for caution in inspect(series)}


def test_clean_values_have_no_trap() -> None:
    assert inspect(arm("old", [round(v, 3) for v in noisy(1000, 9, cv=0.02, seed=5)])) == ()


def test_refined_tick_is_the_kernels() -> None:
    assert detectors.refined_tick_ns(250) == TICK


@pytest.mark.parametrize("rounds", [5, 20, 30])
def test_lattice_of_means_per_page_is_found(rounds: int) -> None:
    generator = random.Random(rounds)  # noqa: S311  not for secrets
    ticks = [round(generator.gauss(70 * rounds / 30, 6)) for _ in range(12)]
    found = detectors.find_lattice([float(k * TICK // (rounds * 16384)) for k in ticks])
    assert found is not None
    assert found.hz == 250
    assert found.step == pytest.approx(TICK / (rounds * 16384), rel=1e-6)


def test_lattice_of_whole_ticks_and_of_means_of_calls_is_found() -> None:
    whole = detectors.find_lattice([50.0 * TICK, 40.0 * TICK, 33.0 * TICK])
    assert whole is not None
    assert (whole.step, whole.hz) == (float(TICK), 250)
    calls = [float(k * TICK // n) for k, n in ((50, 29), (51, 29), (47, 28), (52, 30))]
    mean = detectors.find_lattice(calls)
    assert mean is not None
    assert mean.hz == 250


@pytest.mark.parametrize("n", [4, 9])
def test_chance_is_rarely_taken_for_a_lattice(n: int) -> None:
    generator = random.Random(n)  # noqa: S311  not for secrets
    found = 0
    for _ in range(200):
        values = [float(round(generator.gauss(600, 18))) for _ in range(n)]
        found += detectors.find_lattice(values) is not None
    assert found <= 2


def test_lattice_is_a_caution_only_where_it_is_coarse() -> None:
    assert Trap.LATTICE in traps(arm("old", [float(k * TICK) for k in (50, 40, 33, 45, 47)]))
    fine = arm("old", [float(k * TICK) for k in (5000, 5040, 5033, 5045, 5047)])
    assert Trap.LATTICE not in traps(fine)


def test_jiffies_are_named_from_the_clocksource_alone() -> None:
    facts = (("clocksource", "refined-jiffies"), ("hz", "250"))
    assert Trap.CLOCK in traps(arm("old", noisy(1000, 9, cv=0.02, seed=5), facts=facts))


def test_whole_numbers_matter_when_values_are_small() -> None:
    assert Trap.TRUNCATED in traps(arm("old", [37.0, 38.0, 38.0, 39.0, 37.0]))
    assert Trap.TRUNCATED not in traps(arm("old", [3700.0, 3801.0, 3822.0, 3913.0, 3707.0]))


@pytest.mark.parametrize(("n", "cv", "wild"), [(9, 2.978, True), (9, 0.15, False), (9, 4, False)])
def test_wild_run_shows_in_published_figures(n: int, cv: float, *, wild: bool) -> None:
    assert bool(detectors.wild("v7.0.9", n=n, cv=cv)) is wild


def test_one_wild_value_gives_the_root_of_n() -> None:
    assert Trap.WILD in traps(arm("old", [18000.0 + i for i in range(8)] + [22_000_000.0]))


@pytest.mark.parametrize("n", [5, 9, 15])
def test_one_clean_arm_in_a_hundred_has_an_outlier(n: int) -> None:
    """1 % of 1000 arms; 2.2 % has a chance of 5e-4.  By 5 scales of the MAD it was 11 % of 5."""
    arms = (arm("old", noisy(1000, n, cv=0.02, seed=seed)) for seed in range(1000))
    assert 1 <= sum(any(detectors.outliers(each)) for each in arms) <= 22


def test_a_value_far_from_equal_ones_is_far() -> None:
    found = inspect(arm("old", [8.0] * 12 + [90.0]))
    assert Trap.OUTLIER in {caution.trap for caution in found}
    assert any("one wild run carries the mean" in caution.sentence for caution in found)
    assert Trap.OUTLIER not in traps(arm("old", [8.0] * 12 + [9.0]))  # one step of the print


def drifting(name: str, slope: float, *, first: int, cv: float = 0.002) -> Series:
    values = noisy(1000, 12, cv=cv, seed=first + 1)
    return arm(
        name, [value * (1 + slope * at / 11) for at, value in enumerate(values)], first=first
    )


def test_opposite_drifts_do_not_cancel() -> None:
    old, new = drifting("old", 0.05, first=0), drifting("new", -0.05, first=1)
    pooled = detectors.trend([old, new])
    assert pooled is not None
    assert pooled[1] > 0.01
    told = [caution.sentence for caution in detectors.session([old, new])]
    assert any(text.startswith("old: values moved by +") for text in told)
    assert any(text.startswith("new: values moved by -") for text in told)
    assert any("old and new drift unlike each other" in text for text in told)
    steady = [drifting("old", 0.0, first=0), drifting("new", 0.0, first=1)]
    assert not [c for c in detectors.session(steady) if c.trap is Trap.TREND]


def test_arms_that_drift_against_each_other_are_undecided() -> None:
    old, new = drifting("old", 0.06, first=0), drifting("new", -0.06, first=1)
    for shift in (1.0, 1.3):
        later = arm("new", [shift * value for value in new.values], first=1)
        found = compare(old, later, grade=Grade.HOST_TIME)
        assert found.verdict is Verdict.UNDECIDED
        assert "old and new drift in opposite directions" in found.reasons[0]
        assert found.in_these_boots
    later = arm("new", [1.3 * value for value in drifting("new", 0.03, first=1).values], first=1)
    assert compare(old, later, grade=Grade.HOST_TIME).verdict is Verdict.REGRESSION


def test_a_drift_over_a_lattice_is_not_told_as_nothing() -> None:
    old = arm("old", [37.0] * 8 + [38.0] * 7)
    new = arm("new", [37.0] * 7 + [38.0] * 8, first=1)
    (told,) = [c.sentence for c in detectors.session([old, new]) if "old, new" in c.sentence]
    assert "+2.7 %" in told


def test_values_that_hardly_differ_have_no_scatter() -> None:
    assert Trap.LATTICE in traps(arm("old", [4000.0] * 9))
    assert Trap.LATTICE in traps(arm("old", [4000.0] * 5 + [8000.0] * 4))
    assert Trap.LATTICE not in traps(arm("old", noisy(4000, 9, cv=0.01, seed=1)))


def test_negative_times_are_negative() -> None:
    found = inspect(arm("old", [5.0, -3.0, 4.0, 6.0, 5.0, 0.0]))
    told = [caution.sentence for caution in found if caution.trap is Trap.ZERO]
    assert "1 of 6 samples are negative" in told[0]
    assert "1 of 6 samples are zero" in told[1]


def test_a_run_under_two_arms_is_counted_once() -> None:
    old, new = arm("old", [5.0, 6.0, 7.0]), arm("new", [5.0, 8.0, 9.0], first=1)
    named = [
        replace(each, boots=tuple(replace(b, run=f"{at}") for at, b in enumerate(each.boots)))
        for each in (old, new)
    ]
    assert detectors.obstacles(named) == ("run 0 is counted for old and for new",)


def test_double_counts_are_found_in_figures_and_values() -> None:
    text = detectors.counted_twice("6.12", claimed=10, planned=5)[0].sentence
    assert f"{math.sqrt(8 / 9):.3f}" in text
    assert not detectors.counted_twice("6.12", claimed=5, planned=5)
    values = [301.0, 298.0, 305.0, 300.0, 309.0]
    assert Trap.DOUBLE_COUNT in traps(arm("old", [value for value in values for _ in range(2)]))
    twice = arm("old", noisy(300, 10, cv=0.01, seed=1), planned=5)
    assert Trap.DOUBLE_COUNT in traps(twice)
    assert "old: 10 results of 5 runs" in detectors.obstacles([twice])[0]
    assert Trap.DOUBLE_COUNT not in traps(arm("old", [*values, 300.0]))
    same = Boot(label="a", position=0, values=(1.5, 2.5, 3.5))
    copied = Series(arm="old", metric=METRIC, boots=(same, replace(same, label="b")), planned=2)
    assert Trap.DOUBLE_COUNT in traps(copied)


@pytest.mark.parametrize(("cv", "near"), [(0.1002, True), (0.0998, True), (0.03, False)])
def test_limits_close_to_the_cv_are_flagged(cv: float, *, near: bool) -> None:
    assert bool(detectors.near_limit("new", n=9, cv=cv, limit=0.10)) is near


def test_refilled_and_failed_boots_are_flagged() -> None:
    series = arm("old", noisy(1000, 8, cv=0.01, seed=1))
    late = replace(series.boots[0], refilled=True)
    failed = Boot(label="old r8", position=None, values=(), failure="exit status 139")
    found = inspect(replace(series, boots=(late, *series.boots[1:], failed), planned=9))
    assert {caution.trap for caution in found} == {Trap.REFILLED, Trap.FAILED}
    assert any("8/9 boots" in caution.sentence and "139" in caution.sentence for caution in found)


def test_interleaving_is_seen_in_the_order() -> None:
    old, new = arm("old", [1.0] * 9), arm("new", [1.0] * 9, first=1)
    assert detectors.interleaved([old, new]) is True
    later = tuple(replace(boot, position=100 + (boot.position or 0)) for boot in new.boots)
    assert detectors.interleaved([old, replace(new, boots=later)]) is False
    unknown = tuple(replace(boot, position=None) for boot in new.boots)
    assert detectors.interleaved([old, replace(new, boots=unknown)]) is None


def test_difference_between_arms_is_no_trend() -> None:
    old = arm("old", noisy(1000, 15, cv=0.02, seed=1))
    moved = detectors.trend([old, arm("new", noisy(1500, 15, cv=0.02, seed=2), first=1)])
    assert moved is not None
    assert moved[1] > 0.01


def test_a_sample_must_be_a_number_and_a_failure_has_none() -> None:
    with pytest.raises(ValueError, match="finite"):
        Boot(label="a", position=None, values=(math.nan,))
    with pytest.raises(ValueError, match="both"):
        Boot(label="a", position=None, values=(1.0,), failure="crashed")


@pytest.mark.parametrize("scale", [1e-9, 1e-6, 1.0])
def test_small_figures_are_not_printed_in_steps_of_one(scale: float) -> None:
    """5e-10 s is within 1e-9 of nothing, which was taken for what binary fractions leave."""
    assert detectors.resolution([0.5 * scale, 0.75 * scale]) in (0.0, 0.01)
