# SPDX-License-Identifier: GPL-2.0-or-later
"""Sessions with one thing planted: the answer is the one that is known by construction."""

from __future__ import annotations

from pathlib import Path

import pytest

import session_twins
from foreign_records import imported
from kdelta.analysis import judgement
from kdelta.analysis.judgement import JudgementChoice
from kdelta.rendering import judge as page
from kdelta.table.columns import plain

CASES = [(rule, seed) for rule in session_twins.RULES for seed in range(3)]


def test_there_are_cases_enough() -> None:
    assert len(CASES) >= 60


@pytest.mark.parametrize(("rule", "seed"), CASES)
def test_what_was_planted_is_found(rule: str, seed: int, tmp_path: Path) -> None:
    twin = session_twins.twin(rule, seed)
    found = judgement.judge("test", imported(twin.write(tmp_path)), JudgementChoice())
    verdicts = [pair.comparison.verdict for one in found.findings for pair in one.pairs]
    assert sorted(verdicts) == sorted(twin.verdicts)
    text = " ".join(plain(page.show(found, compat=False, details=True)).split())
    assert all(" ".join(words.split()) in text for words in twin.words), text
    assert not any(words in text for words in twin.absent), text
