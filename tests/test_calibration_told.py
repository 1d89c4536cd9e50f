# SPDX-License-Identifier: GPL-2.0-or-later
"""What is printed of published changes, and that README and document say the same of them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kdelta.check.calibration import CaseAnswer, CountsSay, PublishedCase
from kdelta.rendering import calibration as view
from test_calibration import answer, case


def told(expect: str, said: CountsSay, note: str = "") -> CaseAnswer:
    case = PublishedCase(id="x", expect=expect, kind="path", note=note)
    right = said.value == expect
    return CaseAnswer(case=case, said=said, why="w", right=right, scenario="s", total=1.0)


def test_the_matrix_is_printed() -> None:
    right, wrong = told("more", CountsSay.MORE), told("less", CountsSay.MORE, "why")
    summary, matrix, lines = view.text([right, wrong, right]).strip().split("\n\n")
    assert summary.startswith("2 of 3 published changes")
    assert [line.split() for line in matrix.splitlines()] == [
        ["expected", "more", "less", "same", "undecided", "not", "had"],
        ["more", "2", ".", ".", ".", "."],
        ["less", "1", ".", ".", ".", "."],
    ]
    assert ["; why" in line for line in lines.splitlines()] == [False, True, False]


def test_how_many_have_a_function_of_theirs_is_told() -> None:
    bare = told("more", CountsSay.MORE)
    named = msgspec.structs.replace(bare, found=("f", "g"))
    first = msgspec.structs.replace(named, first=("f",))
    said = view.summary([bare, named, first])
    assert "3 were found (100 %), 2 with a function of theirs, 1 of them with one that" in said


def test_the_readme_says_what_the_document_says() -> None:
    root = Path(__file__).parents[1]
    said = next(
        line for line in (root / "docs" / "calibration.md").read_text().splitlines()
        if "published changes that could be judged" in line
    )  # fmt: skip
    assert said in " ".join((root / "README.md").read_text().split())


def test_how_much_a_path_explains(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path of 25 % more instructions is a rate of 80 %."""
    found = answer(monkeypatch, case(functions=()), 125.0, 0.0, wide=False)
    assert "Path length explains 20.0 of 37.3 %" in view.explained(found, -37.3)
    assert "Path length explains 25.0 of 37.3 %" in view.explained(found, 37.3, of_time=True)
    assert "Not explained by path length" in view.explained(found, -37.3, of_time=True)
    said = " ".join(view.explained(found, +5.0).split())
    assert "Not explained by path length: " in said
    assert "what this commit alone did" in said  # an interval does not say
    built = msgspec.structs.replace(found, built=True)
    assert "Not a path length, which went the other way" in view.explained(built, +5.0)
