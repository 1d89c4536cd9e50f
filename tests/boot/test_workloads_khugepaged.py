# SPDX-License-Identifier: GPL-2.0-or-later
"""khugepaged in guests before and after the series that changed it, and promises that fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from boot import lab
from boot.lab import Machine, betrayed, run_scenario
from kdelta.sample import Outcome, TrialResult

pytestmark = pytest.mark.boot

STEPPED = "khugepaged:hot_cold_hot_16m"
TRACED = "khugepaged:scan_status_16m"
RANGES = 8  # of 2 MiB in a task's memory


@pytest.fixture(scope="module")
def before() -> Machine:
    """A kernel without the series, and without DAMON_STAT, which marks folios as accessed."""
    return lab.machine("6.12")


@pytest.fixture(scope="module")
def after() -> Machine:
    return lab.machine("7.1")


def told(result: TrialResult) -> dict[str, float | None]:
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    return {metric.name: metric.value for metric in result.metrics}


def test_a_cold_task_delays_a_hot_one_until_the_series(
    before: Machine, after: Machine, tmp_path: Path
) -> None:
    old = run_scenario(before, STEPPED, tmp_path / "old")
    assert told(old) == {
        "passes.hot1": RANGES,
        "passes.cold": None,  # its memory is nobody's any more
        "passes.hot2": 3 * RANGES,  # behind hot1's ranges and the cold ones
        "full_scans": 0,
        "pages_collapsed": 2 * RANGES,
        "idle_passes": 3 * RANGES + 1,  # each range is charged for 512 pages, and then the end
    }
    new = run_scenario(after, STEPPED, tmp_path / "new")
    assert told(new) == {
        **told(old),
        "passes.hot2": 2 * RANGES,  # cold ranges are charged for a page
        "idle_passes": 1,
    }
    executed = [
        min(phase.kernel)
        for result in (old, new)
        for phase in result.exact.phases
        if phase.phase == "scan"
    ]
    assert executed[0] > 5 * executed[1]  # 4096 PTEs of cold memory are not looked at


def test_the_statuses_of_a_full_scan(before: Machine, after: Machine, tmp_path: Path) -> None:
    old = told(run_scenario(before, TRACED, tmp_path / "old"))
    assert old == {
        "first_status.succeeded": 2 * RANGES, "first_status.lack_referenced_page": RANGES,
        "first_progress": 3 * RANGES * 512, "first_sleep": 30,
        "idle_status.page_pmd_mapped": 2 * RANGES, "idle_status.lack_referenced_page": RANGES,
        "idle_progress": 3 * RANGES * 512, "idle_sleep": 30,
    }  # fmt: skip
    new = told(run_scenario(after, TRACED, tmp_path / "new"))
    progress = {name: new.pop(name) or 0 for name in ("first_progress", "idle_progress")}
    assert new == {
        "first_status.succeeded": 2 * RANGES, "first_status.page_lazyfree": RANGES,
        "first_sleep": 30, "idle_status.page_pmd_mapped": 2 * RANGES,
        "idle_status.page_lazyfree": RANGES, "idle_sleep": 10,
    }  # fmt: skip
    # A page for each range and each mapping; 512 for what was collapsed.
    assert 3 * RANGES < progress["idle_progress"] < 200
    assert 0 < progress["first_progress"] - 2 * RANGES * 512 < 200


@pytest.mark.parametrize(
    ("honest", "broken", "fact"),
    [
        ("	give(&tasks[COLD], FREE);\n", "", "cold_lazyfree_kb_first during is 0, not 16384"),
        ("	kd_no_thp(start - KD_HUGE, bytes + 2 * KD_HUGE);\n",
         "	madvise(start, bytes, MADV_HUGEPAGE);\n", "hot1_huge_kb_first during is 16384, not 0"),
        ('	tell_state(s, "last", true);\n',
         '	kill(tasks[HOT2].pid, SIGKILL);\n	sleep(1);\n	tell_state(s, "last", true);\n',
         "hot2_huge_kb_last during is unknown, not 16384"),
    ],
)  # fmt: skip
def test_a_broken_promise_is_invalid(
    honest: str, broken: str, fact: str, before: Machine, tmp_path: Path
) -> None:
    betrayed(before, STEPPED, honest, broken, fact, folder=tmp_path)


def test_without_huge_pages_it_is_skipped(before: Machine, tmp_path: Path) -> None:
    never = replace(before, settings=structs.replace(before.settings, thp="never"))
    result = run_scenario(never, STEPPED, tmp_path)
    assert result.outcome is Outcome.SKIP
    assert "transparent huge pages are off" in result.reason


def test_a_guest_cannot_build(before: Machine, tmp_path: Path) -> None:
    result = run_scenario(before, "kernbench:tiny", tmp_path)
    assert (result.outcome, result.reason) == (Outcome.SKIP, "make is not installed here")
