# SPDX-License-Identifier: GPL-2.0-or-later
"""Many metrics, shares of a gap, and the rules that others published."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from scipy import stats as reference

from kdelta.analysis.compat import mmtests_significant
from kdelta.metric import Better, Grade
from kdelta.stats import published_rules
from kdelta.stats.brunner_munzel import least_p
from kdelta.stats.decomposition import gap_closed, shares, two_sided_p
from kdelta.stats.multiplicity import copies, correct, holm
from kdelta.stats.timing import compare
from kdelta.verdict.comparison import Comparison, Verdict
from timing_series import arm, bundle, noisy


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx((0.03, 0.06, 0.06))
    assert holm([]) == ()
    assert holm([0.9, 0.8]) == (1.0, 1.0)


def comparison(p: float, verdict: Verdict) -> Comparison:
    old = arm("old", noisy(1000, 5, cv=0.01, seed=1))
    found = compare(old, arm("new", old.values, first=1), grade=Grade.HOST_TIME)
    return replace(found, p=p, verdict=verdict)


def test_many_metrics_cost_the_weakest_claims() -> None:
    family = [
        comparison(0.0001, Verdict.REGRESSION),
        comparison(0.008, Verdict.REGRESSION),
        comparison(0.5, Verdict.SAME),
    ]
    kept, lost, same = correct(family)
    assert kept == replace(family[0], hypotheses=3)
    assert lost.verdict is Verdict.UNDECIDED
    assert "Holm" in lost.reasons[-1]
    assert same == replace(family[2], hypotheses=3)


def test_copies_of_a_metric_are_one_hypothesis() -> None:
    family = [comparison(0.006, Verdict.REGRESSION) for _ in range(3)]
    assert {each.verdict for each in correct(family)} == {Verdict.UNDECIDED}
    one = correct(family, copies=["time", "time", "time"])
    assert [each.verdict for each in one] == [Verdict.REGRESSION] * 3
    two = correct(family, copies=["time", "time", "memory"])
    assert {each.verdict for each in two} == {Verdict.UNDECIDED}
    assert {each.hypotheses for each in two} == {2}


def test_too_many_metrics_for_so_few_boots_say_how_many_would_do() -> None:
    """Of five boots an arm no p is below 0.8 %: among twenty metrics nothing can survive."""
    family = [comparison(0.002, Verdict.REGRESSION), *[comparison(0.5, Verdict.SAME)] * 19]
    lost = correct(family)[0]
    assert lost.verdict is Verdict.UNDECIDED
    assert lost.more
    enough = 5 + lost.more
    assert f"about {enough} boots an arm would do" in lost.reasons[-1]
    assert least_p(enough, enough) <= 0.01 / 20 < least_p(5, 5)


@pytest.mark.parametrize(("cpus", "percent"), [("1cpu", 17.9), ("2cpu", 36.9), ("8cpu", 23.1)])
def test_published_gaps_are_closed_as_published(cpus: str, percent: float) -> None:
    arms = bundle(f"mprotect-qemu/mm-unstable-20260520/{cpus}", "cycle_ns_per_page")
    fix = next(name for name in arms if "mm-unstable" in name)
    found = gap_closed(arms["6.12.77"], arms["6.19.9"], arms[fix])
    assert found.value is not None
    assert 100 * found.value == pytest.approx(percent, abs=0.05)
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.value < found.high


def test_share_has_no_interval_without_a_certain_gap() -> None:
    base = arm("base", noisy(1000, 9, cv=0.05, seed=1))
    same = arm("regressed", noisy(1001, 9, cv=0.05, seed=2))
    found = gap_closed(base, same, arm("fix", noisy(1000, 9, cv=0.05, seed=3)))
    assert found.low is None
    assert found.reason == "the gap itself is not certain"
    few = gap_closed(arm("base", [1.0]), arm("regressed", [2.0]), arm("fix", [1.5]))
    assert (few.value, few.low) == (0.5, None)


def test_fieller_covers_the_true_share() -> None:
    missed = 0
    for seed in range(300):
        base, worse, fix = (
            arm(name, noisy(mean, 7, cv=0.02, seed=3 * seed + index))
            for index, (name, mean) in enumerate((("b", 100), ("r", 140), ("f", 120)))
        )
        found = gap_closed(base, worse, fix, alpha=0.05)
        assert found.low is not None
        assert found.high is not None
        missed += not found.low <= 0.5 <= found.high
    assert 3 <= missed <= 30  # 15 expected


def test_shares_of_probes_are_parts_of_the_gap() -> None:
    base, worse = arm("base", [100.0] * 5), arm("regressed", [140.0] * 5)
    probes = [arm("batching", [115.0] * 5), arm("flags", [136.0] * 5)]
    found = shares(base, worse, probes)
    assert [share.value for share in found] == pytest.approx([0.625, 0.1])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([1.0, 2, 3, 4, 5], [6.0, 7, 8, 9, 10]),
        ([1.0, 5, 9, 11, 4, 7], [2.0, 6, 12, 13, 14]),
        (noisy(10, 9, cv=0.1, seed=1), noisy(11, 15, cv=0.1, seed=2)),
    ],
)
def test_mann_whitney_agrees_with_the_reference(old: Sequence[float], new: Sequence[float]) -> None:
    expected = reference.mannwhitneyu(old, new, method="exact").pvalue
    assert published_rules.mann_whitney(old, new) == pytest.approx(expected)


def test_mann_whitney_with_ties_counts_every_assignment() -> None:
    old, new = [1.0, 1.0, 2.0, 3.0], [2.0, 3.0, 3.0, 4.0]
    values = [*old, *new]
    ranks = reference.rankdata(values)
    sums = [sum(ranks[list(chosen)]) for chosen in itertools.combinations(range(8), 4)]
    seen = abs(sum(ranks[4:]) - 18)
    expected = sum(abs(total - 18) >= seen for total in sums) / len(sums)
    assert published_rules.mann_whitney(old, new) == pytest.approx(expected)


def test_mann_whitney_of_many_is_the_normal_one() -> None:
    old, new = noisy(10, 60, cv=0.1, seed=1), noisy(10.2, 60, cv=0.1, seed=2)
    expected = reference.mannwhitneyu(old, new, method="asymptotic").pvalue
    assert published_rules.mann_whitney(old, new) == pytest.approx(expected)


def test_benchstat_says_tilde_or_the_change_of_medians() -> None:
    same = published_rules.benchstat([1.0, 2, 3, 4], [1.0, 2, 3, 5])
    assert same.change is None
    assert same.old_interval == (-math.inf, math.inf)  # 4 values cannot give 95 %
    moved = published_rules.benchstat([10.0, 11, 12, 13, 14, 15], [20.0, 21, 22, 23, 24, 25])
    assert moved.change == pytest.approx(22.5 / 12.5 - 1)
    assert moved.old_interval == (10.0, 15.0)


def test_other_rules_on_examples_worked_by_hand() -> None:
    steady, slower = [10.0, 10.0, 10.0], [11.0, 11.0, 11.0]
    assert mmtests_significant(steady, slower, Better.LOWER)
    assert not mmtests_significant(steady, steady, Better.LOWER)
    assert not mmtests_significant([9.0, 10.0, 11.0], [9.5, 10.5, 11.5], Better.LOWER)
    assert published_rules.lkp_changed([1.0, 2.0, 3.0], [2.5, 4.0, 5.0])
    assert not published_rules.lkp_changed([1.0, 2.0, 3.0], [1.5, 4.0, 5.0])


def test_student_tail_is_the_table_value() -> None:
    assert two_sided_p(3.355, 8) == pytest.approx(0.01, abs=1e-4)


def test_a_share_is_no_surer_than_the_comparison_of_its_arms() -> None:
    """Fieller's test knows no margin of few boots, and no arm that drifts alone."""
    base, worse = (arm(name, noisy(m, 6, cv=0.002, seed=m)) for name, m in (("b", 100), ("r", 150)))
    near, far = (arm(name, noisy(m, 6, cv=0.002, seed=m)) for name, m in (("f", 140), ("g", 110)))
    some, most = shares(base, worse, [near, far])
    assert (some.low, some.reason) == (None, "r -> f is UNDECIDED")
    assert some.value == pytest.approx(0.2, abs=0.02)
    assert most.low is not None
    assert most.low > 0.7
    old, bad = (arm(name, noisy(m, 12, cv=0.002, seed=m)) for name, m in (("b", 100), ("r", 150)))
    (share,) = shares(old, bad, [arm("f", [110.0 + 3 * at for at in range(12)])])
    assert (share.low, share.reason) == (None, "r -> f is UNDECIDED")
    (nothing,) = shares(old, bad, [arm("f", noisy(150, 12, cv=0.002, seed=7))])
    assert nothing.low is not None, "an interval around no share claims nothing"
    assert nothing.low < 0 < (nothing.high or 0)


def test_copies_are_found_as_far_as_they_were_printed() -> None:
    """2.00 us beside 1000.7 ns: six such metrics were six hypotheses, and five boots no step."""
    old, new = ([round(v, 1) for v in noisy(m, 5, cv=0.01, seed=m)] for m in (1000, 1500))
    exact = [old, new]
    rounded = [[round(2 * v / 1000, 2) for v in each] for each in exact]
    rates = [[round(1e9 / v) for v in each] for each in exact]
    exact_rates = [[1e9 / v for v in each] for each in exact]
    other = [[v * (1 + 0.01 * (-1) ** at) for at, v in enumerate(each)] for each in exact]
    coarse = [[round(v / 1000) for v in each] for each in exact]
    one, *rest, not_it, no_digits = copies([exact, rounded, rates, exact_rates, other, coarse])
    assert set(rest) == {one}
    assert one != not_it != no_digits != one
    assert len(set(copies([coarse, [[3 * v for v in each] for each in coarse]]))) == 1
    assert copies([[[], []], [[], []], [[0.0], [1.0]]]) == (0, 1, 2)
