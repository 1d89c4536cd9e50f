# SPDX-License-Identifier: GPL-2.0-or-later
"""Windows of several layouts: each counts once, their sum is exact, the dear ones are counted."""

from __future__ import annotations

import pytest

from kdelta import data
from kdelta.verdict.windows import BATCH, HIT_PERCENT, Layouts, LocationKind, choose, representative


def test_one_layout_is_the_window_that_stands_for_all() -> None:
    windows = [10, 11, 10, 10]
    found = choose(windows, (), 1)
    assert found.location == representative(windows)
    assert (found.indices, found.layouts) == ((0,), None)


def test_several_layouts_are_added_up() -> None:
    # Three layouts, twice each: the second is dear, and the third differs in its first window.
    found = choose([100, 200, 90, 100, 200, 91], (), 3)
    assert found.location.value == sum([100, 200, 90][i % 3] for i in found.indices) == 390
    assert found.indices == (0, 1, 2)
    assert found.location.kind is LocationKind.MEAN
    assert (found.location.minimum, found.location.maximum) == (270, 600)
    assert found.layouts == Layouts(counts=(100, 200, 90), hit=1)


def test_a_layout_passes_over_its_disturbed_windows() -> None:
    found = choose([500, 20, 10, 20, 10, 20, 10, 20], [True, *[False] * 7], 2)
    assert (found.location.value, found.location.left_out) == (30, 1)
    assert found.indices == (2, 1)


@pytest.mark.parametrize(("dear", "hit"), [(100 + HIT_PERCENT, 0), (101 + HIT_PERCENT, 1)])
def test_a_layout_is_hit_beyond_a_share_of_the_median(dear: int, hit: int) -> None:
    assert Layouts.of([100, dear, 100]).hit == hit


def test_what_is_usual_leaves_out_the_layouts_that_are_hit() -> None:
    assert Layouts.of([100, 104, 220, 96]).usual == 400
    assert Layouts.of([100, 104, 120, 96]).usual == 420


def test_the_dear_layout_of_a_batch_is_usual() -> None:
    """The batch moves on in it, whatever the program's mappings are."""
    assert Layouts.of(2 * ([100] * (BATCH - 1) + [200])).usual == 2 * (100 * BATCH + 100)
    found = Layouts.of([100] * (BATCH - 1) + [200])
    assert (found.hit, found.usual) == (1, 100 * (BATCH - 1) + 200)
    assert f"#define KD_BATCH	{BATCH}\n" in (data.directory("guest") / "kdelta.h").read_text()


def test_every_layout_has_as_many_windows() -> None:
    with pytest.raises(ValueError, match="5 windows of 3 layouts"):
        choose([1, 2, 3, 4, 5], (), 3)
