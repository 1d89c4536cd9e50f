# SPDX-License-Identifier: GPL-2.0-or-later
"""`git bisect` over real repositories, which are only ever read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from git_history import Repository
from kdelta.bisect.history import Candidates, Contradiction, Culprit, History, Next
from kdelta.bisect.search import Mark
from kdelta.errors import SpecError


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "linux")


def linear(repository: Repository, count: int) -> list[str]:
    return [
        repository.commit(f"change {at}", {"mm/a.c": f"{at}\n", f"mm/f{at % 3}.c": f"{at}\n"})
        for at in range(count)
    ]


def opened(repository: Repository, tmp_path: Path, good: str, bad: str) -> History:
    history = History(repository.folder, good, bad)
    history.open(tmp_path / "run" / "git")
    return history


def searched(
    history: History, truth: Callable[[str], Mark], paths: tuple[str, ...] = ()
) -> tuple[Culprit | Candidates, list[str]]:
    asked = []
    found = history.start(paths)
    while isinstance(found, Next):
        assert found.commit not in asked
        asked.append(found.commit)
        found = history.mark(found.commit, truth(found.commit))
    assert not isinstance(found, Contradiction)
    return found, asked


@pytest.mark.parametrize("culprit", [1, 7, 16])
def test_the_first_bad_commit_of_a_line(
    repository: Repository, tmp_path: Path, culprit: int
) -> None:
    commits = linear(repository, 17)
    before = repository.state()
    history = opened(repository, tmp_path, commits[0], "main")
    assert history.commits() == tuple(commits[1:])

    def truth(commit: str) -> Mark:
        return Mark.BAD if commits.index(commit) >= culprit else Mark.GOOD

    found, asked = searched(history, truth)
    assert found == Culprit(commit=commits[culprit])
    assert len(asked) <= 4
    assert repository.state() == before, "the user's repository was written to"


def test_skips_leave_candidates(repository: Repository, tmp_path: Path) -> None:
    commits = linear(repository, 9)
    history = opened(repository, tmp_path, commits[0], commits[8])

    def truth(commit: str) -> Mark:
        at = commits.index(commit)
        return Mark.SKIP if at in (4, 5) else Mark.BAD if at >= 5 else Mark.GOOD

    found, _ = searched(history, truth)
    assert isinstance(found, Candidates)
    assert set(found.commits) == set(commits[4:7])


def test_a_bisection_is_begun_anew_with_what_is_known(
    repository: Repository, tmp_path: Path
) -> None:
    commits = linear(repository, 17)
    first = opened(repository, tmp_path, commits[0], commits[16])
    step = first.start()
    assert isinstance(step, Next)
    second = first.mark(step.commit, Mark.GOOD)
    again = opened(repository, tmp_path, commits[0], commits[16])
    assert again.start() == step
    assert again.mark(step.commit, Mark.GOOD) == second


def test_merges_are_searched(repository: Repository, tmp_path: Path) -> None:
    base = repository.commit("base", {"a": "0"})
    repository.git("checkout", "-q", "-b", "side")
    side = [repository.commit(f"side {at}", {"s": str(at)}) for at in range(3)]
    repository.git("checkout", "-q", "main")
    repository.commit("main 1", {"a": "1"})
    repository.git("merge", "-q", "--no-ff", "side", "-m", "merge side")
    tip = repository.commit("after", {"a": "2"})
    history = opened(repository, tmp_path, base, tip)
    bad = set(history._lines("rev-list", tip, f"^{side[0]}"))

    def truth(commit: str) -> Mark:
        has = history._git("merge-base", "--is-ancestor", side[1], commit, check=False)
        return Mark.GOOD if has.returncode else Mark.BAD

    found, _ = searched(history, truth)
    assert found == Culprit(commit=side[1])
    assert side[1] in bad


def test_only_what_touches_a_path(repository: Repository, tmp_path: Path) -> None:
    commits = linear(repository, 13)
    history = opened(repository, tmp_path, commits[0], commits[12])
    touching = history.commits(("mm/f1.c",))
    assert touching == tuple(commits[at] for at in (1, 4, 7, 10))
    found, asked = searched(
        history,
        lambda commit: Mark.BAD if commits.index(commit) >= 7 else Mark.GOOD,
        ("mm/f1.c",),
    )
    assert found == Culprit(commit=commits[7])
    assert set(asked) <= set(touching)


def test_a_commit_is_told(repository: Repository, tmp_path: Path) -> None:
    commits = linear(repository, 3)
    history = opened(repository, tmp_path, commits[0], commits[2])
    commit = history.commit(commits[2])
    assert (commit.author, commit.email) == ("A U Thor", "author@example.org")
    assert (commit.subject, commit.short) == ("change 2", commits[2][:12])
    assert commit.parents == (commits[1],)
    assert commit.date.startswith("2023-11-14T22:")


def test_picking_keeps_all_other_files(repository: Repository, tmp_path: Path) -> None:
    commits = linear(repository, 10)
    before = repository.state()
    history = opened(repository, tmp_path, commits[0], commits[9])
    made = history.pick(["mm/f1.c", "mm/f2.c"])
    assert list(made.values()) == [commits[at] for at in (1, 2, 4, 5, 7, 8)]
    for new, original in made.items():
        files = ("mm/f1.c", "mm/f2.c")
        same = [history._lines("ls-tree", commit, "--", *files) for commit in (new, original)]
        assert same[0] == same[1]
        assert blob(history, new, "mm/a.c") == blob(history, commits[0], "mm/a.c")
    assert history.bad == list(made)[-1]
    assert history.commits() == tuple(made)
    assert history.commit(history.bad).subject == "change 8"
    assert history.commit(history.bad).author == "A U Thor"
    assert repository.state() == before


def test_picking_twice_makes_the_same_commits(repository: Repository, tmp_path: Path) -> None:
    commits = linear(repository, 8)
    first = opened(repository, tmp_path, commits[0], commits[7]).pick(["mm/f1.c"])
    again = opened(repository, tmp_path / "other", commits[0], commits[7]).pick(["mm/f1.c"])
    assert first == again


def test_picking_a_folder_with_files_that_come_and_go(
    repository: Repository, tmp_path: Path
) -> None:
    good = repository.commit("first", {"mm/a.c": "1\n", "fs/x.c": "1\n"})
    repository.commit("new file", {"mm/b.c": "1\n", "fs/x.c": "2\n"})
    (repository.folder / "mm" / "a.c").unlink()
    bad = repository.commit("old file goes", {"fs/x.c": "3\n"})
    history = opened(repository, tmp_path, good, bad)
    made = history.pick(["mm"])
    assert len(made) == 2
    names = history._lines("ls-tree", "-r", "--name-only", history.bad)
    assert names == ["fs/x.c", "mm/b.c"]
    assert blob(history, history.bad, "fs/x.c") == blob(history, good, "fs/x.c")


def blob(history: History, commit: str, name: str) -> str:
    return history._lines("rev-parse", f"{commit}:{name}")[0]


def test_functions_are_looked_for_where_they_are_defined(
    repository: Repository, tmp_path: Path
) -> None:
    good = repository.commit("first", {"mm/a.c": "static int walk(void)\n{\n\treturn 0;\n}\n"})
    other = "int other(void)\n{\n\treturn walk();\n}\n"
    changed = "static int walk(void)\n{\n\treturn 1;\n}\n"
    files = {"mm/a.c": changed, "mm/b.c": other, "doc": "int walk(\n"}
    bad = repository.commit("second", files)
    repository.commit("third", {"fs/c.c": "int walk(int more)\n{\n}\n"})
    history = opened(repository, tmp_path, good, bad)
    assert history.files_with(["walk", "no;such"], bad) == ("mm/a.c",)
    assert history.files_with([], bad) == ()
    assert history.files_with(["walk"], good) == (), "nothing has changed"


@pytest.mark.parametrize(
    ("good", "bad", "cause"),
    [
        ("nonsense", "main", "no commit nonsense"),
        ("--help", "main", "no commit"),
        ("main", "main", "same commit"),
        ("main", "main~1", "not an ancestor"),
    ],
)
def test_ends_that_are_none(
    repository: Repository, tmp_path: Path, good: str, bad: str, cause: str
) -> None:
    linear(repository, 3)
    with pytest.raises(SpecError, match=cause):
        opened(repository, tmp_path, good, bad)


def test_picking_what_nothing_touches_is_refused(repository: Repository, tmp_path: Path) -> None:
    commits = linear(repository, 3)
    history = opened(repository, tmp_path, commits[0], commits[2])
    with pytest.raises(SpecError, match=r"no commit .* changes no\.c"):
        history.pick(["no.c"])
