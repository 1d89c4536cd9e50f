# SPDX-License-Identifier: GPL-2.0-or-later
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdelta.verdict.windows import RARE, LocationKind, representative

WINDOWS = st.lists(st.integers(min_value=0, max_value=2**63), min_size=1, max_size=60)


@pytest.mark.parametrize("often", [5, 6])
def test_a_second_length_that_repeats_is_scatter_and_named(often: int) -> None:
    """brk() and a touched page: 12,806 or 15,311 instructions by an LRU batch of 31."""
    found = representative([12806] * often + [15311] * (8 - often))
    assert (found.value, found.deviation) == (12806, 2505)


@pytest.mark.parametrize(
    ("windows", "value", "kind"),
    [
        ([9, 7, 9, 7], 7, LocationKind.MODE),  # of a tie the smallest
        ([5, 5, *range(100, 106)], 5, LocationKind.MODE),  # 2 of 8 are the share
        ([5, 5, *range(100, 107)], 102, LocationKind.MEDIAN),  # 2 of 9 are below it
        ([1004, 1001, 1003, 1002], 1002, LocationKind.MEDIAN),
        ([42], 42, LocationKind.MODE),
        ([1000, 1000, 1000, 1009, 1009, 1000], 1000, LocationKind.MODE),  # 1009 is too near
    ],
)
def test_the_mode_or_else_the_lower_median(
    windows: list[int], value: int, kind: LocationKind
) -> None:
    found = representative(windows)
    assert (found.value, found.kind) == (value, kind)


def test_no_windows_have_no_representative() -> None:
    with pytest.raises(ValueError, match="no windows"):
        representative([])


@given(WINDOWS)
def test_the_value_was_observed_at_the_index_first(windows: list[int]) -> None:
    found = representative(windows)
    assert windows[found.index] == found.value
    assert found.value not in windows[: found.index]
    assert found.share * found.n == pytest.approx(windows.count(found.value))
    assert found.minimum <= found.value <= found.maximum


@given(WINDOWS)
def test_four_of_five_windows_lie_within_the_deviation(windows: list[int]) -> None:
    found = representative(windows)
    near = sum(abs(window - found.value) <= found.deviation for window in windows)
    assert RARE * near >= (RARE - 1) * len(windows)


@given(WINDOWS, st.randoms())
def test_the_value_does_not_depend_on_order(windows: list[int], random: object) -> None:
    shuffled = list(windows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert representative(shuffled).value == representative(windows).value


@given(st.lists(st.integers(min_value=1, max_value=10**6), min_size=1, max_size=9))
def test_ticks_in_one_of_five_windows_change_nothing(ticks: list[int]) -> None:
    found = representative([5000 + tick for tick in ticks] + [5000] * (RARE - 1) * len(ticks))
    assert (found.value, found.deviation) == (5000, 0)


def test_windows_in_which_another_task_ran_are_left_out() -> None:
    found = representative([10, 999, 10, 12, 10, 888], [False, True, False, False, False, True])
    assert (found.value, found.index, found.n, found.left_out) == (10, 0, 4, 2)
    assert (found.minimum, found.maximum) == (10, 999)
    assert found.share == 0.75


def test_a_path_that_switches_tasks_itself_keeps_its_windows() -> None:
    found = representative([30, 30, 10, 30, 30, 10], [True, True, False, True, True, False])
    assert (found.value, found.left_out, found.n) == (30, 0, 6)
    assert representative([30, 30, 31], [True, True, True]).left_out == 0


def test_the_chosen_window_is_never_a_disturbed_one() -> None:
    found = representative([7, 7, 5, 6, 5, 7], [True, True, False, False, False, True])
    assert (found.value, found.index) == (5, 2)
