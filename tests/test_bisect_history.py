# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows of commits of real repositories, which are only ever read."""

from __future__ import annotations

from pathlib import Path

import pytest

from git_history import Repository
from kdelta.bisect.commits import History
from kdelta.errors import SpecError


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "linux")


def linear(repository: Repository, count: int) -> list[str]:
    return [
        repository.commit(f"change {at}", {"mm/a.c": f"{at}\n", f"mm/f{at % 3}.c": f"{at}\n"})
        for at in range(count)
    ]


def ids(history: History, tip: str, outside: frozenset[str] = frozenset()) -> list[str]:
    return [commit for commit, _ in history.row(tip, outside)]


def test_a_line_is_one_row(repository: Repository) -> None:
    commits = linear(repository, 17)
    before = repository.state()
    history = History(repository.folder, commits[0], "main")
    assert len(history) == 16
    assert ids(history, history.bad) == commits[1:]
    assert {weight for _, weight in history.row(history.bad)} == {1}
    assert [history.place(commit) for commit in commits] == [*range(17)]
    assert repository.state() == before, "the user's repository was written to"


def test_a_merge_brings_a_row_of_its_own(repository: Repository) -> None:
    base = repository.commit("base", {"a": "0"})
    repository.git("checkout", "-q", "-b", "side")
    side = [repository.commit(f"side {at}", {"s": str(at)}) for at in range(3)]
    repository.git("checkout", "-q", "main")
    first = repository.commit("main 1", {"a": "1"})
    repository.git("merge", "-q", "--no-ff", "side", "-m", "merge side")
    merge = repository.git("rev-parse", "HEAD").strip()
    tip = repository.commit("after", {"a": "2"})
    history = History(repository.folder, base, tip)
    assert history.row(tip) == [*((first, 1), (merge, 4), (tip, 1))]
    assert ids(history, side[-1], history.reached(first)) == side
    assert history.reached(merge) == {first, merge, *side}
    assert len(history) == 6


def test_only_what_touches_a_path(repository: Repository) -> None:
    commits = linear(repository, 13)
    history = History(repository.folder, commits[0], commits[12], paths=["mm/f1.c"])
    assert ids(history, history.bad) == [*(commits[at] for at in (1, 4, 7, 10)), commits[12]]
    assert len(history) == 4


def test_a_commit_is_told(repository: Repository) -> None:
    commits = linear(repository, 3)
    history = History(repository.folder, commits[0], commits[2])
    commit = history.commit(commits[2])
    assert (commit.author, commit.email) == ("A U Thor", "author@example.org")
    assert (commit.subject, commit.short) == ("change 2", commits[2][:12])
    assert commit.parents == (commits[1],)
    assert commit.date.startswith("2023-11-14T22:")


@pytest.mark.parametrize(
    ("good", "bad", "cause"),
    [
        ("nonsense", "main", "no commit nonsense"),
        ("--help", "main", "no commit"),
        ("main", "main", "same commit"),
        ("main", "main~1", "not an ancestor"),
    ],
)
def test_ends_that_are_none(repository: Repository, good: str, bad: str, cause: str) -> None:
    linear(repository, 3)
    with pytest.raises(SpecError, match=cause):
        History(repository.folder, good, bad)


def test_a_path_that_nothing_touches_is_refused(repository: Repository) -> None:
    commits = linear(repository, 3)
    with pytest.raises(SpecError, match=r"no commit .* touches no\.c"):
        History(repository.folder, commits[0], commits[2], paths=["no.c"])
