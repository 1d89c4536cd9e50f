# SPDX-License-Identifier: GPL-2.0-or-later
"""kdelta.study.plan: every trial once, interleaved, and the same order for ever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdelta.data import directory
from kdelta.study import spec
from kdelta.study.plan import _below, make_plan


def text_of(study: spec.Study, seed: int) -> str:
    head = f"seed {seed}\nrounds {study.plan.rounds}\n"
    return head + "".join(
        f"{one.index} {one.round} {one.arm} {one.workload} {one.scenario}\n"
        for one in make_plan(study, seed)
    )


Check = Callable[[str, str], None]


def test_the_shipped_ladder_with_seed_1(golden: Check) -> None:
    study = spec.load(directory("studies") / "mprotect-shared-dirty.toml")
    golden("plan/ladder.txt", text_of(study, 1))


def test_three_rounds_of_two_scenarios(golden: Check) -> None:
    study = spec.from_arguments(["mprotect:a", "mincore:b"], ["6.1", "6.12", "6.17"], rounds=3)
    golden("plan/rounds.txt", text_of(study, 2**63 - 1))


@st.composite
def studies(draw: st.DrawFn) -> spec.Study:
    scenarios = draw(st.integers(1, 6))
    arms = draw(st.integers(1, 12))
    return spec.from_arguments(
        [f"w{at % 2}:s{at}" for at in range(scenarios)],
        [f"6.{at}" for at in range(arms)],
        rounds=draw(st.integers(1, 8)),
    )


seeds = st.integers(0, 2**63 - 1)


@given(studies(), seeds)
def test_every_trial_once_and_rounds_in_order(study: spec.Study, seed: int) -> None:
    trials = make_plan(study, seed)
    assert [one.index for one in trials] == list(range(len(trials)))
    assert [one.round for one in trials] == sorted(one.round for one in trials)
    for round_ in range(study.plan.rounds):
        count = Counter(
            (one.arm, f"{one.workload}:{one.scenario}") for one in trials if one.round == round_
        )
        assert count == {
            (arm, name): 1 for arm in range(len(study.kernels)) for name in study.scenarios
        }
    assert all(one.result is None and one.attempts == 0 for one in trials)


@given(studies(), seeds)
def test_more_rounds_do_not_change_the_first_ones(study: spec.Study, seed: int) -> None:
    longer = spec.with_settings(study, rounds=study.plan.rounds + 1)
    trials = make_plan(study, seed)
    assert make_plan(longer, seed)[: len(trials)] == trials


def test_every_order_is_about_equally_likely() -> None:
    study = spec.from_arguments(["w:s"], ["a", "b", "c"])
    orders = Counter(tuple(one.arm for one in make_plan(study, seed)) for seed in range(1200))
    # Six orders, 200 expected of each; chi-square with 5 degrees of freedom passes 20.5 at p 0.001.
    assert len(orders) == 6
    assert sum((count - 200) ** 2 / 200 for count in orders.values()) < 20.5


def test_words_of_the_uneven_end_are_refused() -> None:
    assert _below(3, iter([2**64 - 1, 5])) == 2
    with pytest.raises(StopIteration):
        _below(3, iter([2**64 - 1]))


def test_every_point_of_a_matrix_has_every_kernel_and_its_own_control() -> None:
    settings: dict[str, object] = {
        "scenarios": ["a:b"], "kernels": ["6.12", "6.17"], "name": "m", "title": "m",
    }  # fmt: skip
    exact = spec.from_text(_toml(settings) + "[matrix]\ncpus = [1, 2, 4]\n", "m")
    assert sorted(trial.arm for trial in make_plan(exact, 1)) == [0, 1, 2, 3, 4, 5]
    timed = 'instrument = "time"\n[time]\nmachine = "kvm"\n[matrix]\ncpus = [1, 2]\n'
    arms = [t.arm for t in make_plan(spec.from_text(_toml(settings) + timed, "m"), 1)]
    assert set(arms[:2]) == {0, 3}, "first arms open the round"
    assert set(arms[2:4]) == {1, 4}
    assert set(arms[4:]) == {2, 5}, "controls close it"


def _toml(settings: dict[str, object]) -> str:
    return "".join(f"{name} = {value!r}\n" for name, value in settings.items())
