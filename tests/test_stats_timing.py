# SPDX-License-Identifier: GPL-2.0-or-later
"""Verdicts on times: the rules in their order, on made and on published data."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from scipy import stats as reference

from kdelta.metric import Assume, Better, Grade, Metric, ReplicateUnit
from kdelta.stats import detectors
from kdelta.stats.brunner_munzel import least_p
from kdelta.stats.series import Boot, Series, Trap
from kdelta.stats.timing import compare, correct, gap_closed, holm, shares, unread
from kdelta.verdict.comparison import Comparison, Verdict
from timing_series import METRIC, arm, noisy

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

import published_rules

GUEST = Grade.GUEST_TIME
SLOWER = Verdict.REGRESSION


def pair(change: float, *, n: int = 9, cv: float = 0.01) -> tuple[Series, Series]:
    old = arm("old", noisy(1000, n, cv=cv, seed=1))
    return old, arm("new", noisy(1000 * (1 + change), n, cv=cv, seed=2), first=1)


def traps(found: Comparison) -> set[str]:
    return {caution.trap for caution in found.cautions}


@pytest.mark.parametrize(
    ("change", "verdict"),
    [(0.10, Verdict.REGRESSION), (-0.10, Verdict.IMPROVEMENT), (0.0, Verdict.SAME)],
)
def test_verdict_follows_the_change(change: float, verdict: Verdict) -> None:
    found = compare(*pair(change), grade=GUEST)
    assert found.verdict is verdict
    assert found.grade is GUEST
    assert found.ratio is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.ratio < found.high
    assert found.low <= 1 + change <= found.high
    assert found.mean_ratio == pytest.approx(1 + change, abs=0.01)


@pytest.mark.parametrize(
    ("better", "change", "verdict"),
    [
        (Better.HIGHER, 0.10, Verdict.IMPROVEMENT),
        (Better.NONE, 0.10, Verdict.UNDECIDED),
        (Better.NONE, 0.0, Verdict.SAME),
    ],
)
def test_the_metric_says_what_a_change_is(better: Better, change: float, verdict: Verdict) -> None:
    metric = Metric(name="rate", unit="GB/s", better=better, assume=Assume.NOTHING)
    found = compare(*(replace(each, metric=metric) for each in pair(change)), grade=GUEST)
    assert found.verdict is verdict
    assert found.ratio == pytest.approx(1 + change, abs=0.02)
    undirected = better is Better.NONE and change > 0
    assert ("which direction is better" in found.reasons[0]) == undirected


def test_scatter_is_undecided_and_says_how_many_boots_it_takes() -> None:
    old, new = pair(0.02, cv=0.06)
    found = compare(old, new, grade=GUEST)
    assert found.verdict is Verdict.UNDECIDED
    assert found.more is not None
    assert f"about {found.more} more boots an arm" in found.reasons[0]
    enough = compare(*pair(0.02, cv=0.06, n=9 + found.more), grade=GUEST)
    assert enough.low is not None
    assert found.low is not None
    assert enough.low > found.low


def test_four_boots_are_too_few_and_five_can_decide() -> None:
    few = compare(*pair(0.5, n=4), grade=GUEST)
    assert few.verdict is Verdict.UNDECIDED
    assert few.more == 1
    assert few.in_these_boots
    assert few.p is None
    assert few.ratio == pytest.approx(1.5, abs=0.02)
    assert few.reasons[0].startswith("in these boots +50.14 % (")
    assert "4 boots of 4 planned" in few.reasons[0]
    assert "each arm needs at least 5 boots, 1 more" in few.reasons[0]
    assert compare(*pair(0.5, n=5), grade=GUEST).verdict is Verdict.REGRESSION


def test_one_wild_boot_neither_hides_nor_makes_a_change() -> None:
    for change, verdict in ((0.10, Verdict.REGRESSION), (0.0, Verdict.SAME)):
        old, new = pair(change, n=15)
        wild = replace(new.boots[3], values=(90_000.0,))
        new = replace(new, boots=(*new.boots[:3], wild, *new.boots[4:]))
        found = compare(old, new, grade=GUEST)
        assert found.verdict is verdict
        assert {Trap.WILD, Trap.OUTLIER} <= traps(found)
        assert found.new
        assert found.new.maximum == 90_000.0  # shown, not removed


def test_a_trend_of_the_session_is_told_and_hits_both_arms() -> None:
    """Rounds are shuffled, so a trend costs power and makes no difference between the arms."""
    for change, verdict in ((0.0, Verdict.UNDECIDED), (0.05, Verdict.UNDECIDED), (1.0, SLOWER)):
        old, new = (
            replace(
                each,
                boots=tuple(
                    replace(b, values=(b.value * (1 + 0.3 * (b.position or 0) / 17),))
                    for b in each.boots
                ),
            )
            for each in pair(change)
        )
        found = compare(old, new, grade=GUEST)
        assert found.verdict is verdict
        assert found.trend == pytest.approx(1.3, abs=0.05)
        assert Trap.TREND in traps(found)


def test_arms_measured_one_after_the_other_need_a_control() -> None:
    old, new = pair(0.10)
    apart = tuple(replace(boot, position=9 + index) for index, boot in enumerate(new.boots))
    before = tuple(replace(boot, position=index) for index, boot in enumerate(old.boots))
    old, new = replace(old, boots=before), replace(new, boots=apart)
    found = compare(old, new, grade=GUEST)
    assert found.verdict is Verdict.UNDECIDED
    assert "one after the other" in found.reasons[0]
    again = replace(
        arm("old again", noisy(1000, 9, cv=0.01, seed=3)),
        boots=tuple(replace(boot, position=18 + index) for index, boot in enumerate(before)),
    )
    assert compare(old, new, control=again, grade=GUEST).verdict is Verdict.REGRESSION


@pytest.mark.parametrize(
    ("moved", "change", "verdict"),
    [
        (0.005, 0.10, Verdict.REGRESSION),
        (0.05, 0.40, Verdict.UNDECIDED),  # above 3 %
        (0.025, 0.05, Verdict.UNDECIDED),  # above a third of the effect
    ],
)
def test_drift_of_control_limits_claim(moved: float, change: float, verdict: Verdict) -> None:
    old = arm("old", noisy(1000, 9, cv=0.002, seed=1), arms=3)
    new = arm("new", noisy(1000 * (1 + change), 9, cv=0.002, seed=2), first=1, arms=3)
    control = arm("again", noisy(1000 * (1 + moved), 9, cv=0.002, seed=3), first=2, arms=3)
    found = compare(old, new, control=control, grade=GUEST)
    assert found.verdict is verdict
    assert found.sandwich is not None
    assert found.sandwich.drift == pytest.approx(moved, abs=0.003)
    assert found.control is not None


def rounds(series: Series, boots: int) -> Series:
    """The same values as process rounds, in turn of so many boots; 0: of unknown ones."""
    named = tuple(
        replace(boot, boot_id=f"{series.arm} b{at % boots}" if boots else "")
        for at, boot in enumerate(series.boots)
    )
    return replace(series, boots=named, replicate=ReplicateUnit.PROCESS_ROUND)


@pytest.mark.parametrize("boots", [0, 1, 4])
@pytest.mark.parametrize("change", [0.10, 0.0])
def test_rounds_of_few_boots_are_of_these_boots_only(boots: int, change: float) -> None:
    """A hundred rounds of one boot say nothing of the next boot: more boots would."""
    old, new = (rounds(each, boots) for each in pair(change, n=30))
    again = rounds(arm("again", noisy(1000, 30, cv=0.01, seed=3), first=2), boots)
    for control in (None, again):
        found = compare(old, new, control=control, grade=Grade.METAL_TIME)
        assert found.verdict is Verdict.UNDECIDED
        assert found.in_these_boots
        assert found.reasons[0].startswith("in these boots ")
        assert "more rounds of one boot do not count" in found.reasons[0]
        assert found.more == 5 - max(boots, 1)
        assert found.ratio == pytest.approx(1 + change, abs=0.01)
        assert Trap.REPLICATE in traps(found)


def test_a_round_of_an_unknown_boot_makes_no_replicates_of_the_others() -> None:
    old, new = (rounds(each, 6) for each in pair(0.1, n=30))
    some = replace(new, boots=(replace(new.boots[0], boot_id=""), *new.boots[1:]))
    assert compare(old, new, grade=Grade.METAL_TIME).replicates == 6
    found = compare(old, some, grade=Grade.METAL_TIME)
    assert found.in_these_boots
    assert "30 process rounds in an unknown number of boots; each arm needs" in found.reasons[0]


def test_rounds_of_five_boots_are_five_values() -> None:
    old, new = (rounds(each, 5) for each in pair(0.25, n=30))
    found = compare(old, new, grade=GUEST)
    assert found.verdict is Verdict.REGRESSION
    assert found.replicates == 5
    assert not found.in_these_boots


@pytest.mark.parametrize(("n", "verdict"), [(8, Verdict.UNDECIDED), (9, SLOWER)])
def test_so_few_boots_may_all_be_of_one_mode(n: int, verdict: Verdict) -> None:
    """Of 8 boots all fall on one of two modes in 2 / 2^8 = 0.8 % of sessions, of 9 in 0.4 %."""
    old, new = pair(0.08, n=n)
    found = compare(old, new, grade=GUEST)
    assert found.verdict is verdict
    assert ("with 10 % for modes that 8 an arm do not show" in found.reasons[0]) == (n == 8)
    assert found.more == (1 if n == 8 else None)


def test_the_headline_is_never_outside_its_interval() -> None:
    """One wild boot carries the mean far away from everything that the interval allows."""
    old, new = pair(0.03, n=15, cv=0.003)
    wild = arm("new", [*new.values[:-1], 9000.0], first=1)
    for arms in ((old, wild), (arm("old", [9000.0, *old.values[1:]]), new)):
        found = compare(*arms, grade=GUEST)
        low, high = found.interval or (0.0, 0.0)
        assert found.verdict is SLOWER
        assert low <= (found.ratio or 0) <= high
        assert not low <= (found.mean_ratio or 0) <= high
        assert 1 < (found.median_ratio or 0) <= high
        assert Trap.MEANS in traps(found)
        assert found.reasons[0].startswith(f"{100 * ((found.ratio or 0) - 1):+.2f} %")
    assert Trap.MEANS not in traps(compare(*pair(0.1), grade=GUEST))


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        ((("requested_cpus", "4"), ("seen_cpus", "1")), "4 CPUs were requested and 1 were seen"),
        ((("requested_cpus", "4"), ("smp", "n")), "without SMP"),
        ((("coverage", "true"),), "coverage on"),
        ((("accelerator", "tcg"),), "emulated"),
        ((("clocksource", "tsc"),), "clocksource differs: hpet (old) against tsc (new)"),
    ],
)
def test_facts_that_forbid_a_comparison(facts: tuple[tuple[str, str], ...], word: str) -> None:
    old, new = pair(0.10)
    old = replace(old, facts=(("clocksource", "hpet"),))
    found = compare(old, replace(new, facts=facts), grade=GUEST)
    assert found.verdict is Verdict.INVALID
    assert word in " ".join(found.reasons)
    assert found.ratio is None


def test_state_decides_before_numbers() -> None:
    old, new = pair(0.10)
    huge = (("anon_huge_kb", "16384"),)
    none = (("anon_huge_kb", "0"),)
    mixed = compare(replace(old, state=none), replace(new, state=huge), grade=GUEST)
    assert mixed.verdict is Verdict.INVALID
    assert "anon_huge_kb 0 (old) against 16384 (new)" in mixed.reasons[0]
    equal = compare(replace(old, state=none), replace(new, state=none), grade=GUEST)
    assert equal.verdict is Verdict.REGRESSION
    assert Trap.STATE not in traps(equal)
    unaudited = compare(old, new, grade=GUEST)
    assert unaudited.verdict is Verdict.REGRESSION
    assert Trap.STATE in traps(unaudited)
    unknown = replace(old, state=(("anon_huge_kb", "unknown"),))
    assert Trap.STATE in traps(compare(unknown, replace(new, state=none), grade=GUEST))


def test_who_names_the_obstacles_has_looked_at_facts_and_state() -> None:
    old, new = pair(0.10)
    fast = replace(new, facts=(("governor", "performance"),), state=(("anon_huge_kb", "0"),))
    slow = replace(old, facts=(("governor", "powersave"),), state=(("anon_huge_kb", "4"),))
    assert compare(slow, fast, grade=GUEST).verdict is Verdict.INVALID
    assert compare(slow, fast, grade=GUEST, obstacles=()).verdict is Verdict.REGRESSION
    found = compare(old, new, grade=GUEST, obstacles=["compilers differ"])
    assert (found.verdict, found.reasons) == (Verdict.INVALID, ("compilers differ",))


def test_a_run_counted_twice_is_invalid() -> None:
    old, new = pair(0.10)
    twice = tuple(replace(boot, run=f"run-{index // 2}") for index, boot in enumerate(new.boots))
    found = compare(old, replace(new, boots=twice), grade=GUEST)
    assert found.verdict is Verdict.INVALID
    assert Trap.DOUBLE_COUNT in traps(found)


def test_exact_metrics_and_grades_are_refused() -> None:
    old, new = pair(0.1)
    with pytest.raises(ValueError, match="grade"):
        compare(old, new, grade=Grade.EXACT_PATH)
    exact = replace(METRIC, assume=Assume.EXACT)
    found = compare(replace(old, metric=exact), replace(new, metric=exact), grade=GUEST)
    assert found.verdict is Verdict.INVALID


def test_zero_times_decide_nothing() -> None:
    found = compare(arm("old", [0.0] * 9), arm("new", [1.0] * 9, first=1), grade=GUEST)
    assert found.verdict is Verdict.UNDECIDED
    assert Trap.ZERO in traps(found)


def test_equal_coarse_readings_are_not_equal_times() -> None:
    """8 against 8 ns may be 8.0 against 8.9: the step of the reading is in the interval."""
    found = compare(arm("old", [8.0] * 9), arm("new", [8.0] * 9, first=1), grade=GUEST)
    assert found.verdict is Verdict.UNDECIDED
    assert found.high == pytest.approx(9 / 8, rel=1e-3)
    assert Trap.TRUNCATED in traps(found)
    # No clock of steps of 1 reads 8000 eighteen times: its step is another, and nobody knows it.
    fine = compare(arm("old", [8000.0] * 9), arm("new", [8000.0] * 9, first=1), grade=GUEST)
    assert fine.verdict is Verdict.UNDECIDED
    assert "how coarse the clock is nobody can tell" in fine.reasons[0]
    near = [8000.0, 8001.0, 7999.0] * 3
    fine = compare(arm("old", near), arm("new", [*near[1:], 8002.0], first=1), grade=GUEST)
    assert fine.verdict is Verdict.SAME


def test_summary_counts_failures_and_keeps_the_metric_unit() -> None:
    series = arm("old", [1.0, 2.0, 6.0], planned=4)
    failed = Boot(label="old r3", position=9, values=(), failure="guest panicked")
    found = detectors.summarise(replace(series, boots=(*series.boots, failed)))
    assert (found.of_planned, found.median, found.mean, found.mad) == ("3/4", 2.0, 3.0, 1.0)
    assert found.sd == pytest.approx(7**0.5)
    assert found.cv == pytest.approx(7**0.5 / 3)
    empty = detectors.summarise(replace(series, boots=(failed,)))
    assert (empty.n, empty.median, empty.cv) == (0, None, None)


def test_the_boot_counts_and_not_its_samples() -> None:
    """A thousand samples in each of three boots are three replicates."""
    boots = tuple(Boot(label=f"b{i}", position=i, values=(1.0, 2.0) * 500) for i in range(3))
    series = Series(arm="old", metric=METRIC, boots=boots, planned=3)
    found = compare(series, replace(series, arm="new"), grade=GUEST)
    assert found.verdict is Verdict.UNDECIDED
    assert found.replicates == 3


# ---- what an UNDECIDED still tells


@pytest.mark.parametrize(
    ("old", "new", "known"),
    [
        (100.0, 110.0, False),  # whole milliseconds, and ticks of ten of them
        (40.0, 44.0, False),
        (100.0, 100.0, False),
        (100.0, 101.0, True),  # no step but 1 has both
        (3.0, 7.0, True),
    ],
)
def test_of_equal_readings_the_step_is_the_largest_that_they_may_have(
    old: float, new: float, *, known: bool
) -> None:
    found = compare(arm("old", [old] * 9), arm("new", [new] * 9, first=1), grade=GUEST)
    assert ("how coarse the clock is" in found.reasons[0]) != known
    assert known or found.verdict is Verdict.UNDECIDED
    assert found.ratio == pytest.approx(new / old)


def test_no_number_of_boots_is_told_where_the_reading_leaves_it_open() -> None:
    found = compare(
        arm("old", [8.0] * 8 + [9.0]), arm("new", [8.0] * 7 + [9.0, 9.0], first=1), grade=GUEST
    )
    assert found.verdict is Verdict.UNDECIDED
    assert "a finer clock would decide" in found.reasons[0]
    assert found.more is None


def test_an_interval_that_bounds_nothing_is_none() -> None:
    """At 0.1 % no five boots an arm can reject: 2 of 252 assignments are 0.8 %."""
    old, new = (
        arm(n, noisy(m, 5, cv=0.01, seed=m), first=m % 2) for n, m in (("a", 100), ("b", 131))
    )
    found = compare(old, new, grade=GUEST, alpha=0.001)
    assert found.verdict is Verdict.UNDECIDED
    assert found.ratio == pytest.approx(1.3, abs=0.03)
    assert found.interval is None
    assert found.more == 4
    assert "too few for an interval" in found.reasons[0]
    assert "at least 9 would" in found.reasons[0]


@pytest.mark.parametrize(("bad", "word"), [(0.0, "times of zero"), (-3.0, "negative times")])
def test_values_that_no_time_has_leave_the_medians(bad: float, word: str) -> None:
    old = arm("old", [100.0, bad, *[100.5] * 4, *[99.5] * 3])
    found = compare(old, arm("new", noisy(130, 9, cv=0.001, seed=1), first=1), grade=GUEST)
    assert found.verdict is Verdict.UNDECIDED
    assert word in found.reasons[0]
    assert "by medians +30." in found.reasons[0]
    assert "medians" not in compare(old, arm("new", [bad] * 9, first=1), grade=GUEST).reasons[0]


def test_one_negative_sample_is_a_negative_time() -> None:
    """The median of its boot hides it, and the clock is as wrong."""
    old, new = (arm(name, noisy(level, 9, cv=0.01, seed=3)) for name, level in (("a", 1), ("b", 2)))
    first = Boot(label="b r0", position=1, values=(2.0, -0.1, 2.01))
    found = compare(old, replace(new, boots=(first, *new.boots[1:])), grade=GUEST)
    assert found.verdict is Verdict.UNDECIDED
    assert "negative times" in found.reasons[0]


def test_values_of_both_arms_show_a_lattice_that_neither_does() -> None:
    """Means of 8 readings of a tick of 4 ms: every half of a millisecond, few of them an arm."""
    old = arm("old", [42.5, 43.0, 41.5, 42.5, 43.5, 42.5, 43.0, 42.5, 43.0])
    new = arm("new", [55.0, 56.5, 56.0, 56.0, 55.5, 56.0, 55.0, 56.5, 56.0], first=1)
    (told,) = (c.sentence for c in compare(old, new, grade=GUEST).cautions if c.trap == "lattice")
    assert told.startswith("old, new: all values together lie on a lattice of step 0.5 ns/page")
    fine = arm("new", [*new.values[:-1], 56.1], first=1)
    assert not [c for c in compare(old, fine, grade=GUEST).cautions if c.trap == "lattice"]
    still = [arm(name, [level] * 8 + [level + 0.5]) for name, level in (("old", 40), ("new", 50.5))]
    assert unread(still) == 0.0, "three values in all are too few to tell"


def test_a_lattice_of_both_arms_is_in_the_interval() -> None:
    values = ([42.5, 43.0, 42.0, 42.5, 42.5], [55.0, 56.5, 54.5, 57.0, 58.0])
    still = [arm(name, [*([own[0]] * 40), *own]) for name, own in zip("ab", values, strict=True)]
    assert unread(still) == pytest.approx(math.log1p(0.5 / 42.5))


def test_of_two_lattices_the_coarser_one_is_told() -> None:
    """A tick over 32 calls is also one over 1024 pages, whose step hides nothing."""
    values = [math.floor(k * 4_000_250 / 32) for k in (5, 6, 7, 5, 6, 7, 6, 6, 5)]
    found = detectors.find_lattice(values)
    assert found is not None
    assert found.step == pytest.approx(4_000_250 / 32)
    assert found.hz == 250


# Many metrics, shares of a gap, and the rules that others published


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


def test_too_many_metrics_for_so_few_boots_say_how_many_would_do() -> None:
    """Of five boots an arm no p is below 0.8 %: among twenty metrics nothing can survive."""
    family = [comparison(0.002, Verdict.REGRESSION), *[comparison(0.5, Verdict.SAME)] * 19]
    lost = correct(family)[0]
    assert lost.verdict is Verdict.UNDECIDED
    assert lost.more
    enough = 5 + lost.more
    assert f"about {enough} boots an arm would do" in lost.reasons[-1]
    assert least_p(enough, enough) <= 0.01 / 20 < least_p(5, 5)


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
    assert [share.value for share in shares(base, worse, probes)] == pytest.approx([0.625, 0.1])


@pytest.mark.parametrize(
    ("old", "new", "method"),
    [
        ([1.0, 2, 3, 4, 5], [6.0, 7, 8, 9, 10], "exact"),
        ([1.0, 5, 9, 11, 4, 7], [2.0, 6, 12, 13, 14], "exact"),
        (noisy(10, 9, cv=0.1, seed=1), noisy(11, 15, cv=0.1, seed=2), "exact"),
        # Of many it is the normal one.
        (noisy(10, 60, cv=0.1, seed=1), noisy(10.2, 60, cv=0.1, seed=2), "asymptotic"),
    ],
)
def test_mann_whitney_agrees_with_the_reference(
    old: Sequence[float], new: Sequence[float], method: str
) -> None:
    expected = reference.mannwhitneyu(old, new, method=method).pvalue
    assert published_rules.mann_whitney(old, new) == pytest.approx(expected)


def test_mann_whitney_with_ties_counts_every_assignment() -> None:
    old, new = [1.0, 1.0, 2.0, 3.0], [2.0, 3.0, 3.0, 4.0]
    ranks = reference.rankdata([*old, *new])
    sums = [sum(ranks[list(chosen)]) for chosen in itertools.combinations(range(8), 4)]
    seen = abs(sum(ranks[4:]) - 18)
    expected = sum(abs(total - 18) >= seen for total in sums) / len(sums)
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
    assert published_rules.mmtests_significant(steady, slower, Better.LOWER)
    assert not published_rules.mmtests_significant(steady, steady, Better.LOWER)
    assert not published_rules.mmtests_significant(
        [9.0, 10.0, 11.0], [9.5, 10.5, 11.5], Better.LOWER
    )


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
