# SPDX-License-Identifier: GPL-2.0-or-later
"""demand_fault in guests: it holds, fails and is skipped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from boot import lab
from boot.lab import Machine, betrayed, run_scenario
from kdelta.sample import Outcome, TrialResult

pytestmark = pytest.mark.boot

PAGES = 512


@pytest.fixture(scope="module")
def guest() -> Machine:
    """A kernel that clears page by page, with 8 huge pages in its pool."""
    plain = lab.machine("6.17")
    return replace(plain, settings=structs.replace(plain.settings, thp="madvise", hugepages_2m=8))


def calls(result: TrialResult, function: str) -> int:
    return sum(row.calls for row in result.exact.functions if row.function == function)


@pytest.mark.parametrize(
    ("name", "pages"), [("base_465", 465), ("thp_16m", 4096), ("hugetlb_2m_16m", 4096)]
)
def test_every_page_is_cleared_once(guest: Machine, name: str, pages: int, tmp_path: Path) -> None:
    result = run_scenario(guest, f"demand_fault:{name}", tmp_path)
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    cleared = calls(result, "rep stosb in clear_page_erms")
    tables = 8 if name == "thp_16m" else 0  # each huge page brings a page table for its split
    assert cleared == calls(result, "clear_page_erms") == pages + tables
    # What a row of its own counts is not counted again.
    total = sum(row.insns for row in result.exact.functions)
    windows = result.exact.phases[0]
    assert total in [u + k for u, k in zip(windows.user, windows.kernel, strict=True)]


@pytest.mark.parametrize(
    ("name", "honest", "broken", "fact"),
    [
        ("thp_16m", "bytes, MADV_HUGEPAGE)", "bytes, MADV_NOHUGEPAGE)", "thp_pages before is 0"),
        ("hugetlb_2m_16m", "MAP_HUGETLB | MAP_HUGE_2MB : 0", "0 : 0",
         "pool_pages_taken before is 0, not 8"),
        ("base_465", 'kd_state(when, "unclean_words"',
         'region->start[100] = 1;\n\tkd_state(when, "unclean_words"',
         "unclean_words before is 1, not 0"),
        ("base_465", "kd_audit_state(when, region->start, s->bytes",
         "munmap(region->start, KD_PAGE);\n\tkd_audit_state(when, region->start, s->bytes",
         "present_pages before is 464, not 465"),
        ("base_465", "KD_WINDOW(FAULT, kd_touch(region.start, region.faults, region.page))",
         "KD_WINDOW(FAULT, kd_touch(region.start, region.faults - 1, region.page))",
         "window_faults during is 464, not 465"),
    ],
)  # fmt: skip
def test_a_broken_contract_is_betrayed(
    guest: Machine, name: str, honest: str, broken: str, fact: str, tmp_path: Path
) -> None:
    betrayed(guest, f"demand_fault:{name}", honest, broken, fact, folder=tmp_path)


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("hugetlb_2m_16m", {"hugepages_2m": 0},
         "hugetlb has 0 free pages of 2048 kB, 8 are needed"),
        ("thp_16m", {"thp": "never"}, "transparent huge pages are off"),
    ],
)  # fmt: skip
def test_what_the_machine_lacks_is_skipped(
    guest: Machine, name: str, settings: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    result = run_scenario(guest, f"demand_fault:{name}", tmp_path, **settings)
    assert result.outcome is Outcome.SKIP
    assert reason in result.reason
    assert not result.exact.phases


def test_cond_resched_is_called_for_each_page_unless_preemptible(
    guest: Machine, tmp_path: Path
) -> None:
    none, full = (
        run_scenario(guest, "demand_fault:hugetlb_2m_16m", tmp_path / model, preempt=model)
        for model in ("none", "full")
    )
    assert none.outcome is full.outcome is Outcome.OK
    assert calls(none, "__cond_resched") >= 4096
    assert calls(full, "__cond_resched") == 0


def test_a_page_is_cleared_by_one_string_instruction(guest: Machine) -> None:
    for window in guest.oracle("touch", PAGES, 4).windows:
        whole = [row for row in window.strings if row.bytes == 4096 * row.ends >= 4096 * PAGES]
        (cleared,) = whole  # others, for each fault, are of a few bytes
        assert cleared.ends in (PAGES, PAGES + 1)  # a page table, now and then
        assert cleared.name == "rep stosb"
