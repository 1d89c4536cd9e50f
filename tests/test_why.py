# SPDX-License-Identifier: GPL-2.0-or-later
"""One question, one answer: the largest change first, decided or not; is it still so?"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

import kernel_tree
import ladder_records
from kdelta import workload
from kdelta.analysis.calls import explained
from kdelta.analysis.claims import claim
from kdelta.check import commit, interval
from kdelta.check.interval import Undone
from kdelta.check.page import Effect
from kdelta.cli import why as asked
from kdelta.cli.main import cli
from kdelta.errors import SpecError
from kdelta.journal.run import RunRecord
from kdelta.probes.calls import PathNode
from kdelta.rendering import sentences, why
from kdelta.sample import TrialResult
from kdelta.source.tree_reference import Variant
from kdelta.table.columns import plain
from kdelta.workload import load

BACK = {"6.16.12": 400.0, "6.17.13": 800.0, "6.18.15": 403.0}
PART = {**BACK, "6.18.15": 600.0}


def run_of(totals: dict[str, float]) -> RunRecord:
    one = {label: ladder_records.Trial(per_page=total) for label, total in totals.items()}
    return ladder_records.run({label: [ladder_records.result(one[label])] * 3 for label in one})


def answered(record: RunRecord) -> str:
    found = claim(record)
    changes = [(one, None) for one in why.changes(found)]
    told = why.lines(found, changes, {"mprotect": load("mprotect")}, "7.3 was not counted.")
    return " ".join(plain(told).split())


@pytest.mark.parametrize(
    ("record", "first", "later"),
    [
        (ladder_records.ladder(), "Yes: @ takes 788.0 instructions per page on 7.2.1, 369",
         "The largest step is 6.16.12 -> 6.17.13, x1.916, longer. By function it is prot_"),
        (ladder_records.part_of("6.12.107", "6.16.12"), "No: @ takes 401.7 instr", "within 1 %."),
        (run_of(BACK), "No: @ takes 403.0 instructions per page on 6.18.15, 400.0 on 6.16.12: x1.0",
         "Decided steps: 6.16.12 -> 6.17.13 x2.000, 6.17.13 -> 6.18.15 x0.504."),
        (run_of({"6.16.12": 110.0, "6.17.13": 110.5, "6.18.15": 220.0}), "Yes: @ takes 220.0",
         "Decided steps: 6.16.12 -> 6.17.13 (protect x1.050), 6.17.13 -> 6.18.15 x1.991."),
        (run_of({"6.16.12": 110.0, "6.17.13": 110.5}), "No: @ takes 110.5",
         "x1.005, within 1 %; but within it: protect x1.050."),
        (run_of({"6.16.12": 400.0, "6.17.13": 500.0}), "Yes: @ takes 500.0", "x1.250. By function"),
        (run_of({"6.16.12": 400.0, "6.17.13": 300.0}), "No, it got shorter: @ takes 300.0",
         "x0.750. By function it is "),
    ],
)  # fmt: skip
def test_the_answer_comes_first(record: RunRecord, first: str, later: str) -> None:
    text = answered(record)
    done = "mprotect() of resident memory (all of 64 MiB, shared anonymous)"
    assert text.startswith(first.replace("@", done))
    assert later in text
    assert text.index(later) < text.index("kernel total") < text.index("7.3 was not counted.")


def test_a_larger_change_that_is_undecided_comes_before_the_step() -> None:
    record = ladder_records.with_kernels(
        run_of({"6.12.107": 200.0, "6.16.12": 400.0, "6.17.13": 420.0}),
        lambda arm: {"options": ("UBSAN_BOUNDS=y",) * bool(arm.index) or ("SMP=y",)},
    )
    text = answered(record)
    assert text.startswith(
        "Longer from 6.16.12 to 6.17.13, x1.050; from 6.12.107 to 6.17.13 undecided, since the two"
        " were built with different options: mprotect("
    )
    answer, _, below = text.partition("kernel total")
    assert "The largest step is 6.16.12 -> 6.17.13, x1.050, longer. By function" in answer
    assert "The largest change is 6.12.107 -> 6.16.12, x2.000, longer, undecided. By" in answer
    assert "Decided steps" not in answer
    assert "Undecided in 6.16.12: up by 100 %, threshold 1 %; but the" in below
    assert "*: the two were built with different options" in below
    assert below.count("alike (two kernel builds, up to a quarter of an hour each)") == 1
    assert (below.count("may be theirs"), "To decide" in answer) == (1, False)


def test_an_end_of_unknown_options_decides_nothing_behind_a_kernel_of_others() -> None:
    options = (("SMP=y",), ("SMP=y", "UBSAN_BOUNDS=y"), ())
    record = ladder_records.with_kernels(
        run_of({"6.12.107": 200.0, "6.16.12": 400.0, "7.1.13": 420.0}),
        lambda arm: {"options": options[arm.index], "version": f"{arm.label}-1"},
    )
    text = answered(record)
    assert text.startswith(
        "Longer from 6.16.12 to 7.1.13, x1.050; from 6.12.107 to 7.1.13 undecided, since the"
        " configuration of 7.1.13-1 is not known: mprotect("
    )
    assert "builds differ, 6.16.12 -> 7.1.13: the configuration of 7.1.13-1 is not known." in text
    assert why.fields(claim(record), (), {})["step"]["comparison"]["verdict"] == "UNDECIDED"


def test_seeds_are_added_where_only_the_whole_may_be_chance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rounds = []

    def counted(study: Any, *_: object) -> Any:
        rounds.append(study.plan.rounds)
        takes = {"get_page_from_freelist": 1.0}
        each = {"6.16.12": 400.0, "6.17.13": 403.0, "6.18.15": 406.0}.items()
        ran = {
            label: [ladder_records.result(ladder_records.Trial(per_page=n, functions=takes))]
            for label, n in each
        }
        return claim(ladder_records.run(ran)), SimpleNamespace(folder=Path("run"))

    monkeypatch.setattr(asked, "_counted", counted)
    monkeypatch.setattr(asked, "expanded", lambda study: study)
    words = ["why", "munmap", "6.16", "6.18"]
    told = CliRunner().invoke(cli, words)
    assert rounds == [1, 3], told.output
    held = json.loads(CliRunner().invoke(cli, [*words, "--json"]).stdout)
    assert held["sentences"][0] in " ".join(told.stdout.split())
    assert held["step"]["new"] == held["ladders"][0]["rungs"][-1]["arm"] == "6.18.15"
    assert "count with 3 seeds (--rounds 3)." in " ".join(told.stdout.split())


def test_a_later_kernel_that_cannot_be_compared_leaves_it_open() -> None:
    record = ladder_records.with_kernels(
        run_of(BACK), lambda arm: {"options": ("UBSAN_BOUNDS=y",) if arm.index == 2 else ("SMP=y",)}
    )
    assert "Undecided in 6.18.15: down by 49.6 %, threshold 1 %; but the" in answered(record)
    for one, told in ((record, "is open."), (run_of(BACK), "no longer"), (run_of(PART), "in part")):
        head = claim(one).headline
        assert head
        assert told in sentences.newest(head)


def test_a_change_that_is_spread_names_its_first_functions() -> None:
    def ran(at: float) -> TrialResult:
        names = {f"f{one:02}": at for one in range(12)}
        return ladder_records.result(ladder_records.Trial(per_page=280 + 12 * at, functions=names))

    text = answered(ladder_records.run({"6.16.12": [ran(10)], "6.17.13": [ran(20)]}))
    said = "the largest parts are f00 +10.0, f01 +10.0, f02 +10.0, all others +90.0."
    assert said in text, text


def test_the_change_is_told_by_call_paths_where_they_are_known() -> None:
    record = ladder_records.ladder()
    found, known = claim(record), {"mprotect": load("mprotect")}
    own = found.explanation
    assert own
    sides = [[[PathNode(-1, "walk", 1, n)]] for n in (own.old_value or 0, own.new_value or 0)]
    changes = [(own, explained(own, *sides))]
    told = " ".join(plain(why.lines(found, changes, known)).split())
    assert "The largest step is 6.16.12 -> 6.17.13, x1.916, longer. Largest cause: +" in told
    assert "walk: its own code, called" in told
    assert "By function" not in told
    assert any("walk: its own" in one for one in why.fields(found, changes, known)["sentences"])


@pytest.mark.parametrize(
    ("word", "means"),
    [
        ("munmap", "unmap:munmap"), ("mmap1", "loops_mm:mmap_128m"), ("lseek", "loops:lseek"),
        ("will-it-scale.mmap1.threads", "loops_mm:mmap_128m"), ("aim9.page_test",
         "unmap:brk_touch_page"), ("will-it-scale.page_fault1.processes", "loops_mm:page_fault1"),
        ("page_fault1.threads", "loops_mm:page_fault1_threads"),
    ],
)  # fmt: skip
def test_a_word_means_a_scenario(word: str, means: str) -> None:
    assert workload.chosen(word) == means


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("mincore", "names 6 scenarios; choose one: kdelta why SCENARIO 6.16"),
        ("pipe", "names 15 scenarios; choose one: kdelta why"),
        ("munmapp", "did you mean munmap?"),
        ("mprotekt", "did you mean mprotect?"),
        (
            "page faults",
            "names 46 scenarios; choose one, of these or of kdelta workload list: kdelta",
        ),
        ("nowhere", "names no scenario"),
    ],
)
def test_a_word_that_means_several_or_none_is_answered_with_a_list(word: str, told: str) -> None:
    ended = CliRunner().invoke(cli, ["why", word, "6.16", "6.17"])
    assert isinstance(ended.exception, SpecError)
    assert told in str(ended.exception)
    listed = [line.split()[0] for line in ended.exception.lines]
    assert ("mincore:no_thp_pte_scan_64m" in listed) is (word == "mincore")


# ---- the commits of the interval -----------------------------------------------------------------


@pytest.fixture
def history(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """Between v6.16 and v6.17: what is in the function, beside it, and in another file."""
    root = kernel_tree.committed(tmp_path / "linux")
    kernel_tree.git(root, "tag", "v6.16")
    inside = kernel_tree.MINCORE.replace("FIRST", "FIRST + 7")
    ids = {"old": kernel_tree.commit(root, inside, "mm: inside, the older")}
    inside = inside.replace("+ 7", "+ 8")
    ids["new"] = kernel_tree.commit(root, inside, "mm: inside, the newer")
    ids["beside"] = kernel_tree.commit(root, f"int b;\n{inside}", "mm: beside")
    (root / "mm/mprotect.c").write_text("int present;\n")
    kernel_tree.git(root, "commit", "--quiet", "--all", "--message=mm: elsewhere")
    kernel_tree.git(root, "tag", "v6.17")
    return root, ids


def test_commits_in_the_function_come_first_and_the_newest_of_them(
    history: tuple[Path, dict[str, str]],
) -> None:
    root, ids = history
    (root / "mm/mincore.c").unlink()  # the work tree is not looked at
    found = interval.touching(root, "v6.16", "v6.17", ["present"])
    assert [one.name for one in found] == [ids[which][:12] for which in ("new", "old", "beside")]
    assert found[0].title == "mm: inside, the newer"
    with pytest.raises(SpecError, match=r"no C file of v6\.17 defines absent"):
        interval.touching(root, "v6.16", "v6.17", ["absent"])
    with pytest.raises(SpecError, match=r"git lists no v6\.1\.\.v6\.17"):
        interval.touching(root, "v6.1", "v6.17", ["present"])


def undone(
    monkeypatch: pytest.MonkeyPatch, effects: dict[str, float | str], *, most: int = 9
) -> list[Undone]:
    """Commits with these effects, the newest first, in a step of +100; text: why it fails alone."""

    def on_release(asked: Any, _base: str, without: Any, **_: object) -> Any:
        effect = effects[asked.name]
        if isinstance(effect, str) and not (effect == "in the way" and without):
            raise SpecError(effect)
        return SimpleNamespace(undone=True, effect=effect), None

    def answer(placed: Any, *_: object, **__: object) -> Any:
        change = 90.0 if placed.effect == "in the way" else placed.effect
        effect = Effect.OPEN if change == 99 else Effect.SLIGHT if change == 3 else Effect.MORE
        if change == 7:
            return SimpleNamespace(base="6.17.8", paths=(), skipped={"x": "no zram"})
        row = SimpleNamespace(before=1000.0, after=1000.0 + change, change=effect, reason="why")
        return SimpleNamespace(base="6.17.8", paths=(row,), skipped={}, functions=("f",))

    asked = lambda name, _tree: commit.AskedCommit(  # noqa: E731
        variant=Variant(name=name, path=Path()), name=name, title=name, word=name
    )
    for name, made in (("asked", asked), ("on_release", on_release), ("answer", answer)):
        monkeypatch.setattr(commit, name, made)
    listed = [Undone(name=name, title=f"mm: {name}") for name in effects]
    how: dict[str, Any] = {"counter": None, "most": most, "progress": lambda *_: None}
    return [*interval.undone(listed, Path(), "6.17", "mprotect:x", 100.0, **how)]


def told(found: list[Undone]) -> str:
    change = claim(run_of({"6.16.12": 400.0, "6.17.13": 500.0})).explanation
    assert change
    return " ".join(plain(why.commit_lines(found, change, ("v6.16", "v6.17"))).split())


def test_commits_are_undone_until_one_explains_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    found = undone(
        monkeypatch, {"a": 3.0, "b": "no C file", "o": 99.0, "s": 7.0, "c": 95.0, "d": 4.0}
    )
    assert [one.change for one in found] == [3.0, None, 99.0, None, 95.0, None]
    text = told(found)
    assert text.startswith('It is c ("mm: c"): 6.17.8 with it executes 95.00 more instructions per')
    assert "without it, 95 % of the step." in text
    assert "Without an answer: b: no C file; o: why; s: no zram." in text
    assert text.endswith("Not tried: 1 commit: commit function subject d - mm: d")


def test_at_most_so_many_are_counted_and_none_is_named_for_a_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = told(undone(monkeypatch, {"a": -60.0, "b": "gone", "c": 40.0, "d": 95.0}, most=2))
    assert text.startswith("No commit is named: of 4 commits from v6.16 to v6.17 to the files of")
    assert "2 could be undone, and none makes most of the step, 100.0 more per page." in text
    assert text.endswith("Not tried: 1 commit: commit function subject d - mm: d")


def test_commits_that_cannot_be_undone_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    found = undone(monkeypatch, dict.fromkeys("abcdef", "does not compile"), most=1)
    assert [bool(one.reason) for one in found] == [True] * 4 + [False] * 2


def test_what_newer_commits_are_in_the_way_of_is_undone_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = undone(monkeypatch, {"a": 0.0, "b": "in the way"})
    assert [one.beside for one in found] == [0, 1]
    assert "without it (1 newer commit undone on both sides), 90 % of the step" in told(found)
    assert "in the way" in told(undone(monkeypatch, {"a": "no C file", "b": "in the way"}))


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        (["6.16", "file:bzImage"], "the repository has no commit vfile:bzImage"),
        (["6.16", "6.18"], "the repository has no commit v6.18"),
    ],
)
def test_a_tree_that_cannot_have_the_interval_is_refused_before_anything_is_counted(
    history: tuple[Path, dict[str, str]], ends: list[str], said: str
) -> None:
    words = ["why", "unmap:munmap", *ends, "--tree", str(history[0])]
    assert said in str(CliRunner().invoke(cli, words).exception)
