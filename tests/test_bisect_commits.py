# SPDX-License-Identifier: GPL-2.0-or-later
"""Bisection over commits of real repositories, whose "kernels" are what their files say."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bisect_bench import BOOT_FAILURE, counted, kernel, question
from git_history import Repository
from kdelta.bisect import journal as journals
from kdelta.bisect.bisection import CommitBisection, News
from kdelta.bisect.evidence import BisectionResult, Ending, Findings, PointCounting, boots, builds
from kdelta.bisect.history import Built, History
from kdelta.errors import InfraError, SpecError
from kdelta.kernels.kernel import Kernel
from kdelta.rendering import bisection as outcome_text
from kdelta.sample import TrialResult
from kdelta.source.make import SourceError
from kdelta.table.columns import plain

SLOW = "mm/mprotect.c"
BODY = "long change_pte_range(int nr)\n{{\n\treturn {cost};\n}}\n"


@dataclass
class Shop:
    """Builds and measures: a commit's image is its files without comments; it costs what they say.

    BROKEN does not build, PANIC does not boot; `fail_at`: the build of this number fails for a
    fault of the machine.
    """

    history: History
    built: list[str] = field(default_factory=list)
    booted: list[str] = field(default_factory=list)
    fail_at: int | None = None

    def files(self, commit: str) -> str:
        return "\n".join(self.history._lines("grep", "-h", "-e", "", commit))

    def build(self, commit_id: str) -> Built:
        if len(self.built) == self.fail_at:
            self.fail_at = None
            raise InfraError("no space")
        self.built.append(commit_id)
        text = self.files(commit_id)
        if "BROKEN" in text:
            raise SourceError(commit_id, first="mm/a.c:1: BROKEN undeclared", log=Path("log"))
        return Built(kernel=kernel(commit_id, re.sub(r"/\*.*?\*/", "", text)), seconds=5.0)

    def measure(self, kernel: Kernel, trial: int, folder: Path) -> TrialResult:
        del trial, folder
        self.booted.append(kernel.reference)
        text = self.files(kernel.reference)
        if "PANIC" in text:
            return BOOT_FAILURE
        found = re.search(r"return (\d+);", text)
        cost = float(found[1]) if found else 0.0
        return counted(cost, {"change_pte_range": cost - 150})


class Line:
    """A line of commits over a few files; `made` writes them into a repository."""

    def __init__(self, tmp_path: Path) -> None:
        self.repository = Repository(tmp_path / "linux")
        self._files = {SLOW: BODY.format(cost=264)} | {f"mm/f{n}.c": "int x;\n" for n in range(6)}
        self._changes: list[tuple[str, dict[str, str]]] = [("base", dict(self._files))]
        self.commits: list[str] = []

    def add(self, subject: str, name: str, old: str, new: str) -> int:
        """Replace the first `old` of a file, or append to it; the number of that commit."""
        text = self._files[name]
        self._files[name] = text.replace(old, new, 1) if old else text + new
        self._changes.append((subject, {name: self._files[name]}))
        return len(self._changes) - 1

    def note(self, name: str = "") -> int:
        at = len(self._changes)
        return self.add(f"note {at}", name or f"mm/f{at % 6}.c", "", f"int note_{at};\n")

    def made(self) -> list[str]:
        """The commits, written when they are first asked for."""
        self.commits = self.commits or self.repository.line(self._changes)
        return self.commits


@pytest.fixture
def line(tmp_path: Path) -> Line:
    return Line(tmp_path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """A bisection with all its parts."""

    journal: journals.Journal
    shop: Shop
    verdict: BisectionResult
    news: list[News]


def search(
    tmp_path: Path,
    line: Line,
    *,
    shop: Shop | None = None,
    own: journals.Journal | None = None,
    paths: Sequence[str] = (),
) -> Search:
    history = History(line.repository.folder, line.made()[0], "main", paths=paths)
    ends = tuple(history.commit(end).point for end in (history.good, history.bad))
    journal = own or journals.create(tmp_path / "runs", "bisect-test", question("tree"), ends)
    maker = shop or Shop(history)
    maker.history = history
    news: list[News] = []
    instrument = PointCounting(journal, maker.measure)
    commits = CommitBisection(journal, instrument, news.append, history, maker.build)
    return Search(journal=journal, shop=maker, verdict=commits.run(), news=news)


def culprit(found: Search, line: Line) -> int:
    assert found.verdict.culprit is not None, found.verdict
    return line.commits.index(found.verdict.culprit.id)


def slow(line: Line) -> int:
    return line.add("the slow way", SLOW, "return 264;", "return 405;")


@pytest.mark.parametrize("seed", range(3))
def test_64_commits_with_all_that_goes_wrong(line: Line, tmp_path: Path, seed: int) -> None:
    wanted = hard_history(line, seed)
    line.made()
    before = line.repository.state()
    found = search(tmp_path, line)
    assert line.repository.state() == before
    assert culprit(found, line) == wanted
    assert found.verdict.ending is Ending.STEP
    ends = (found.verdict.good, found.verdict.bad)
    assert [*map(Findings(found.journal).value, ends)] == [264, 405]
    assert builds(found.journal) <= 2 + 6 + 2  # the ends, halvings, skipped ones
    assert len(set(found.shop.built)) == len(found.shop.built) == builds(found.journal)
    assert len(found.shop.booted) == boots(found.journal)


def hard_history(line: Line, seed: int) -> int:
    """One culprit, one broken build, one boot failure (each mended by the next), one no-op."""
    chance = random.Random(seed)  # noqa: S311
    while True:
        bad, broken, panic, no_op = chance.sample(range(1, 64), 4)
        if len({bad, broken, broken + 1, panic, panic + 1, no_op}) == 6:
            break
    wanted = 0
    for at in range(1, 65):
        if at == bad:
            wanted = slow(line)
        elif at in (broken, broken + 1):
            line.add("build", SLOW, *("", "BROKEN\n") if at == broken else ("BROKEN\n", ""))
        elif at in (panic, panic + 1):
            line.add("boot", "mm/f2.c", *(("", "PANIC\n") if at == panic else ("PANIC\n", "")))
        elif at == no_op:
            line.add("words", SLOW, "\n{", "\n/* now */{")
        else:
            line.note(SLOW if chance.random() < 0.1 else "")
    return wanted


def test_a_commit_that_does_not_build_is_skipped_and_told(line: Line, tmp_path: Path) -> None:
    for _ in range(3):
        line.note()
    line.add("broken", "mm/f0.c", "", "BROKEN\n")
    line.add("mended", "mm/f0.c", "BROKEN\n", "")
    wanted = slow(line)
    line.note()
    found = search(tmp_path, line)
    assert culprit(found, line) == wanted
    skipped = [step for step in found.journal.state.steps if step.why]
    assert all(step.why == "it does not build: mm/a.c:1: BROKEN undeclared" for step in skipped)


def test_a_culprit_among_broken_commits_is_a_range(line: Line, tmp_path: Path) -> None:
    line.note()
    last = line.note()
    line.add("broken", "mm/f0.c", "", "BROKEN\n")
    slow(line)
    line.add("mended", "mm/f0.c", "BROKEN\n", "")
    line.note()
    found = search(tmp_path, line)
    assert found.verdict.culprit is None
    assert found.verdict.ending is Ending.RANGE
    assert found.verdict.good.key == line.commits[last]
    assert [one.subject for one in found.verdict.candidates] == ["broken", "the slow way", "mended"]


def test_a_commit_with_the_same_image_is_not_booted(line: Line, tmp_path: Path) -> None:
    for at in range(7):
        line.add(f"words {at}", SLOW, "\n{", "\n/* w */{")
    wanted = slow(line)
    for at in range(8):
        line.add(f"words after {at}", SLOW, "\n{", "\n/* w */{")
    found = search(tmp_path, line)
    assert culprit(found, line) == wanted
    assert boots(found.journal) == 2
    assert builds(found.journal) >= 5
    twins = [step for step in found.journal.state.steps if step.same_as]
    assert len(twins) == builds(found.journal) - 2


def test_ends_with_the_same_image_have_nothing_to_find(line: Line, tmp_path: Path) -> None:
    line.add("words", SLOW, "\n{", "\n/* w */{")
    found = search(tmp_path, line)
    assert found.verdict.ending is Ending.SAME
    assert boots(found.journal) == 1


def test_an_end_that_does_not_build_is_invalid(line: Line, tmp_path: Path) -> None:
    line.note()
    line.add("broken", "mm/f0.c", "", "BROKEN\n")
    found = search(tmp_path, line)
    assert found.verdict.ending is Ending.INVALID
    assert "the bad end" in found.verdict.reasons[0]
    assert "does not build" in found.verdict.reasons[0]


def test_it_goes_on_after_a_fault_of_the_machine(tmp_path: Path) -> None:
    whole, line = Line(tmp_path / "a"), Line(tmp_path / "b")
    for one in (whole, line):
        hard_history(one, 3)
    first = search(tmp_path / "a", whole)
    history = History(line.repository.folder, line.made()[0], "main")
    shop = Shop(history, fail_at=4)
    ends = tuple(history.commit(end).point for end in (history.good, history.bad))
    own = journals.create(tmp_path / "b" / "runs", "bisect-test", question("tree"), ends)
    with pytest.raises(InfraError, match="no space"):
        search(tmp_path / "b", line, shop=shop, own=own)
    found = journals.find(tmp_path / "b" / "runs", question("tree"))
    assert found is not None
    again = search(tmp_path / "b", line, shop=shop, own=found)
    assert culprit(again, line) == culprit(first, whole)
    assert len(shop.built) == len(set(shop.built)) == builds(first.journal)


def test_only_commits_of_a_path(line: Line, tmp_path: Path) -> None:
    for at in range(30):
        if at == 12:
            wanted = slow(line)
        line.note(SLOW if at % 5 == 0 else "")
    found = search(tmp_path, line, paths=[SLOW])
    assert culprit(found, line) == wanted
    assert builds(found.journal) <= 2 + 3 + 1  # of 7 commits, and the culprit's parent


def test_a_change_by_another_path_is_invalid(line: Line, tmp_path: Path) -> None:
    for at in range(12):
        if at == 5:
            line.add("through a header", "mm/f0.c", "int x;", "return 405;")
        line.note(SLOW if at % 4 == 0 else "mm/f1.c")
    found = search(tmp_path, line, paths=[SLOW])
    assert found.verdict.ending is Ending.INVALID
    assert "its parent is bad as well" in found.verdict.reasons[0]


def test_a_side_branch_from_before_the_good_end(line: Line, tmp_path: Path) -> None:
    repository = line.repository
    repository.commit("base", {SLOW: BODY.format(cost=264), "mm/f.c": "int x;\n"})
    repository.git("checkout", "-q", "-b", "side")
    wanted = repository.commit("the slow way", {SLOW: BODY.format(cost=405)})
    repository.git("checkout", "-q", "main")
    good = repository.commit("good", {"mm/f.c": "int y;\n"})
    repository.git("merge", "-q", "--no-ff", "side", "-m", "merge side")
    line.commits = [good, wanted]
    found = search(tmp_path, line)
    assert culprit(found, line) == 1
    assert found.verdict.good.title == "base"


@pytest.mark.parametrize("seed", range(4))
def test_a_culprit_below_merges_of_merges(line: Line, tmp_path: Path, seed: int) -> None:
    repository, chance = line.repository, random.Random(seed)  # noqa: S311
    base = repository.commit("base", {SLOW: BODY.format(cost=264), "mm/f.c": "int x;\n"})
    names: list[str] = []
    wanted = chance.randrange(24)
    for branch in range(4):
        repository.git("checkout", "-q", "-b", f"b{branch}")
        for at in range(6):
            number = len(names)
            files = {f"mm/b{branch}.c": f"int v{at};\n"}
            if number == wanted:
                files = {SLOW: BODY.format(cost=405)}
            names.append(repository.commit(f"change {number}", files))
    for branch in (2, 1, 0):  # each branch is merged into the one that it left
        repository.git("checkout", "-q", f"b{branch}")
        repository.commit(f"beside {branch}", {f"mm/own{branch}.c": "int y;\n"})
        repository.git("merge", "-q", "--no-ff", f"b{branch + 1}", "-m", f"merge {branch}")
    repository.git("checkout", "-q", "main")
    repository.git("merge", "-q", "--no-ff", "b0", "-m", "the last merge")
    line.commits = [base, *names]
    found = search(tmp_path, line)
    assert culprit(found, line) == 1 + wanted
    assert found.verdict.ending is Ending.STEP
    assert len(set(found.shop.built)) == len(found.shop.built) == builds(found.journal)


def test_a_merge_that_is_the_culprit_itself(line: Line, tmp_path: Path) -> None:
    repository = line.repository
    base = repository.commit("base", {SLOW: BODY.format(cost=264), "mm/f.c": "int x;\n"})
    repository.git("checkout", "-q", "-b", "side")
    repository.commit("side", {"mm/a.c": "int a;\n"})
    repository.git("checkout", "-q", "main")
    repository.commit("main", {"mm/f.c": "int y;\n"})
    repository.git("merge", "-q", "--no-ff", "--no-commit", "side")
    line.commits = [base, repository.commit("an evil merge", {SLOW: BODY.format(cost=405)})]
    assert culprit(search(tmp_path, line), line) == 1


def test_a_second_change_in_the_history_is_told(line: Line, tmp_path: Path) -> None:
    line.add("small", SLOW, "return 264;", "return 300;")
    for _ in range(6):
        line.note()
    wanted = line.add("large", SLOW, "return 300;", "return 600;")
    line.note()
    found = search(tmp_path, line)
    assert culprit(found, line) == wanted
    page = outcome_text.show(Findings(found.journal), found.verdict, points="9 commits")
    text = " ".join(plain(page).split())
    assert "Also seen:" in text
    assert "264.0 -> 300.0" in text
    assert "9 commits, " in text


def test_the_lines_for_a_fix_and_for_regzbot(line: Line, tmp_path: Path) -> None:
    wanted = slow(line)
    line.note()
    found = search(tmp_path, line)
    assert found.verdict.culprit is not None
    text = plain(outcome_text.culprit(found.verdict.culprit))
    assert f'Fixes: {line.commits[wanted][:12]} ("the slow way")\n' in text
    assert f"#regzbot introduced: {line.commits[wanted][:12]}\n" in text
    assert f"Culprit: {line.commits[wanted]}\n" in text
    assert "A U Thor <author@example.org>, 2023-11-14T22:" in text


def test_control_characters_of_a_subject_stay_out(line: Line, tmp_path: Path) -> None:
    line.add("\x1b[31mred\x07", SLOW, "return 264;", "return 405;")
    found = search(tmp_path, line)
    assert found.verdict.culprit is not None
    assert "\x1b" not in plain(outcome_text.culprit(found.verdict.culprit))


# Rows of commits of real repositories, which are only ever read


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
    commit = History(repository.folder, commits[0], commits[2]).commit(commits[2])
    assert (commit.author, commit.email) == ("A U Thor", "author@example.org")
    assert (commit.subject, commit.short) == ("change 2", commits[2][:12])
    assert commit.parents == (commits[1],)
    assert commit.date.startswith("2023-11-14T22:")


@pytest.mark.parametrize(
    ("good", "bad", "cause"),
    [
        ("nonsense", "main", "no commit nonsense"), ("--help", "main", "no commit"),
        ("main", "main", "same commit"), ("main", "main~1", "not an ancestor"),
    ],
)  # fmt: skip
def test_ends_that_are_none(repository: Repository, good: str, bad: str, cause: str) -> None:
    linear(repository, 3)
    with pytest.raises(SpecError, match=cause):
        History(repository.folder, good, bad)


def test_a_path_that_nothing_touches_is_refused(repository: Repository) -> None:
    commits = linear(repository, 3)
    with pytest.raises(SpecError, match=r"no commit .* touches no\.c"):
        History(repository.folder, commits[0], commits[2], paths=["no.c"])
