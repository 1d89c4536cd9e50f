# SPDX-License-Identifier: GPL-2.0-or-later
"""One question, one answer: the largest change first, decided or not; is it still so?"""

from __future__ import annotations

import pytest
from click.testing import CliRunner

import ladder_records
from kdelta import workload
from kdelta.analysis.claims import claim
from kdelta.analysis.explanation import explain
from kdelta.cli.main import cli
from kdelta.journal.run import RunRecord
from kdelta.rendering import why
from kdelta.table.columns import plain
from kdelta.workload import load

BACK = {"6.16.12": 400.0, "6.17.13": 800.0, "6.18.15": 403.0}
PART = {**BACK, "6.18.15": 600.0}


def run_of(totals: dict[str, float]) -> RunRecord:
    one = {label: ladder_records.Trial(per_page=total) for label, total in totals.items()}
    return ladder_records.run({label: [ladder_records.result(one[label])] * 3 for label in one})


def answered(record: RunRecord, *opened: str) -> str:
    found = explain(record, *opened) if opened else None
    told = why.lines(claim(record), found, {"mprotect": load("mprotect")})
    return " ".join(plain(told).split())


@pytest.mark.parametrize(
    ("record", "first", "later"),
    [
        (ladder_records.ladder(), "Yes, since 6.17.13: mprotect() of resident memory",
         "7.2.1, the newest here, has it still: 788.0 per page."),
        (ladder_records.part_of("6.12.107", "6.16.12"), "No: mprotect:shared_dirty",
         "no step of more than 1 % from 6.12.107 to 6.16.12 (counted exactly"),
        (run_of(BACK), "Yes, since 6.17.13", "has it no longer: 403.0 per page."),
        (run_of(PART), "Yes, since 6.17.13", "has it in part: 600.0 per page."),
        (run_of({"6.16.12": 400.0, "6.17.13": 300.0}), "It got shorter in 6.17.13",
         "6.17.13 is the newest kernel here."),
    ],
)  # fmt: skip
def test_the_answer_comes_first(record: RunRecord, first: str, later: str) -> None:
    text = answered(record)
    assert text.startswith(first)
    assert later in text
    assert text.index(later) < text.index("kernel total")


def test_a_larger_change_that_is_undecided_comes_before_the_step() -> None:
    record = ladder_records.with_kernels(
        run_of({"6.12.107": 200.0, "6.16.12": 400.0, "6.17.13": 420.0}),
        lambda arm: {"options": ("UBSAN_BOUNDS=y",) * bool(arm.index) or ("SMP=y",)},
    )
    text = answered(record, "6.12.107", "6.16.12")
    assert text.startswith("6.12.107 to 6.16.12: x2.000, UNDECIDED:")
    assert text.index("UBSAN_BOUNDS") < text.index("Yes, since 6.17.13")


def test_a_later_kernel_that_cannot_be_compared_leaves_it_open() -> None:
    record = ladder_records.with_kernels(
        run_of(BACK), lambda arm: {"options": ("UBSAN_BOUNDS=y",) if arm.index == 2 else ("SMP=y",)}
    )
    text = answered(record)
    assert text.startswith("Yes, since 6.17.13")
    assert "Whether 6.18.15, the newest here, still has it is open" in text
    assert "no longer" not in text


@pytest.mark.parametrize(
    ("word", "means"),
    [("munmap", "unmap:munmap"), ("mmap1", "loops_mm:mmap_128m"), ("lseek", "loops:lseek")],
)
def test_a_word_means_a_scenario(word: str, means: str) -> None:
    assert workload.chosen(word) == means


@pytest.mark.parametrize(
    ("word", "told"),
    [("mincore", "names 6 scenarios; did you mean mincore:"), ("nothing", "names no scenario")],
)
def test_a_word_that_means_several_or_none_is_answered_with_a_list(word: str, told: str) -> None:
    ended = CliRunner().invoke(cli, ["why", word, "6.16", "6.17"])
    assert ended.exception
    assert told in str(ended.exception)
