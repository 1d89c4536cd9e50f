# SPDX-License-Identifier: GPL-2.0-or-later
"""One commit: which release it is tried on, what it changes there, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner
from msgspec import structs

import kernel_tree
import test_check_decision as series_of
from kdelta.check import commit as commits
from kdelta.check import series as check_series
from kdelta.check.compare import Counted, Counter, path_row
from kdelta.check.page import Effect
from kdelta.cli.main import cli
from kdelta.errors import InfraError, SpecError
from kdelta.guests import qemu
from kdelta.kernels import reference
from kdelta.kernels.kernel import Kernel
from kdelta.rendering import commit as page
from kdelta.run import exact
from kdelta.source.patches import PatchSeries
from kdelta.source.tree import of_folder
from kdelta.source.tree_reference import Variant
from kdelta.table.columns import plain
from kdelta.transplant import releases
from kdelta.verdict.comparison import Verdict

COMMIT = commits.AskedCommit(
    variant=Variant(name="c", path=Path()), name="c0ffee", title="mm: a", word="t@c", since="v6.17"
)
OTHER = kernel_tree.MINCORE.replace("FIRST", "FIRST + 7")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Its second commit is in v6.17-rc2 and later, its last one in none."""
    root = kernel_tree.committed(tmp_path / "linux")
    kernel_tree.git(root, "tag", "v6.16")
    kernel_tree.commit(root, OTHER, "mm: seven")
    for tag in ("v6.17", "v6.17-rc2", "v6.17.3", "not-a-release"):
        kernel_tree.git(root, "tag", tag)
    kernel_tree.commit(root, OTHER + "\nint newer;\n", "mm: newer")
    return root


def offered(*names: str) -> tuple[Any, ...]:
    return tuple(SimpleNamespace(series=one, is_candidate=False) for one in names)


def test_a_commit_has_its_first_tag_and_is_undone_where_it_is(
    repository: Path, tmp_path: Path
) -> None:
    old, new = (commits.asked(words, repository) for words in ("HEAD~1", "HEAD"))
    assert (old.title, old.since, new.since) == ("mm: seven", "v6.17-rc2", "")
    release = of_folder(kernel_tree.make(tmp_path / "release"))
    (tmp_path / "release/mm/mincore.c").write_text(OTHER)
    later = of_folder(tmp_path / "release")
    placed = commits.on_source(old, later)
    assert (placed.undone, placed.series.steps[0].tree.tree) == (True, release.tree)
    assert not commits.on_source(new, later).undone
    with pytest.raises(SpecError, match=r"cannot be undone: mm/mincore.c:\d+; name"):
        commits.on_source(old, replace(release, name="6.18.9"))  # it has it, and is not given twice


@pytest.mark.parametrize(
    ("since", "series"),
    [
        ("v6.17-rc2", ["7.0", "6.18", "6.17"]), ("v7.3", ["7.0", "6.18", "6.17", "6.12"]),
        ("", ["7.0", "6.18", "6.17", "6.12"]),
    ],
)  # fmt: skip
def test_releases_without_a_source_are_passed_and_the_first_with_it_comes_last(
    monkeypatch: pytest.MonkeyPatch, since: str, series: list[str]
) -> None:
    asked, every = replace(COMMIT, since=since), ["6.12", "6.17", "6.18", "7.0"]
    assert commits._candidates(asked, offered(*every)) == series
    tried: list[str] = []

    def ground_of(name: str, **_: object) -> Any:
        if name == "7.0":
            raise InfraError("no source")
        return SimpleNamespace(tree=name)

    def on_source(_asked: commits.AskedCommit, tree: str) -> commits.Placed:
        tried.append(tree)
        if tree != tried[0] and tree == series[-1]:
            return commits.Placed(asked=asked, series=series_of.series("1"), undone=True)
        raise SpecError("cannot be undone")

    monkeypatch.setattr(reference, "listing", lambda **_: offered(*every))
    monkeypatch.setattr(releases, "ground_of", ground_of)
    monkeypatch.setattr(commits, "on_source", on_source)
    monkeypatch.setattr(commits, "transplants", lambda *_, **__: None)
    how: dict[str, Any] = {"confined": False, "progress": lambda *_: None}
    placed, _ = commits.on_release(asked, "", **how)
    assert tried == series[1:]
    assert placed.passed[0] == "7.0 was passed over: no source."
    with pytest.raises(SpecError, match=r"c0ffee: 6\.18: cannot be undone; .*--base.*--full"):
        commits.on_release(asked, "6.18", **how)
    with pytest.raises(InfraError, match="no source"):
        commits.on_release(asked, "7.0", **how)


class Counts(series_of.Counts):
    def with_seeds(self, counted: Counted) -> Counted:
        return replace(counted, more=(counted.result,) * 2)

    def stored(self, kernel: Kernel, scenario: str) -> Counted | None:
        return self.one(kernel, scenario) if scenario == series_of.SCENARIOS[1] else None


def answered(
    monkeypatch: pytest.MonkeyPatch, name: str, changed: str, *, undone: bool, count: bool = True
) -> tuple[commits.CommitAnswer, str]:
    """Without or with a commit a path has as many instructions as the name says; else 1000."""
    known = frozenset(changed.split())
    for module in (commits, check_series):
        monkeypatch.setattr(module, "changed_code", lambda _old, _new: (known, False))
    monkeypatch.setattr(check_series, "_aliases", lambda _kernel, _names: {})
    own = "@@ -1 +1 @@ int never_run(int a)\n-\tchange_pte_range();\n"
    monkeypatch.setattr(PatchSeries, "changes", lambda _: iter([own]))
    placed = commits.Placed(asked=COMMIT, series=series_of.series(name), undone=undone)
    made, counts = cast("Any", series_of.Made()), cast("Any", Counts())
    every = series_of.SCENARIOS
    found = commits.answer(placed, made, every, counts, lambda _at: None, count=count)
    return found, " ".join(plain(page.lines(found)).split())


@pytest.mark.parametrize(
    ("undone", "verdict", "said"),
    [
        (True, Verdict.IMPROVEMENT, "10.00 fewer {} -9.09 % (change_pte_range -10.0): "),
        (False, Verdict.REGRESSION, "10.00 more {} +10.00 % (change_pte_range +10.0): "),
    ],
)
def test_the_first_sentence_is_of_the_commit_and_not_of_its_undoing(
    monkeypatch: pytest.MonkeyPatch,
    undone: bool,  # noqa: FBT001
    verdict: Verdict,
    said: str,
) -> None:
    changed = "change_pte_range never_run never_run.cold"
    found, text = answered(monkeypatch, "1100", changed, undone=undone)
    scope = "instructions per page in mprotect:anon_toggle_4m than without it,"
    assert text.startswith(f"base with c0ffee executes {said.format(scope)}{verdict}.")
    assert (found.verdict, found.unseen, found.looked) == (verdict, ("never_run",), 2)
    assert found.executing == {"mprotect:anon_toggle_4m": ["change_pte_range"]}
    assert "It changes 2 functions: never_run, change_pte_range." in text
    assert commits.of_source(["__x64_sys_a", "__ia32_sys_a", "a.cold", "b"], "") == ("a", "b")
    assert "1 of 2 paths execute it: 1 " in text
    assert "In no scenario: never_run." in text


def test_what_nothing_executes_is_said_with_what_was_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, text = answered(monkeypatch, "1100", "never_run", undone=True)
    assert text.startswith("No scenario executes what c0ffee changes in base (2 looked at): UNDEC")
    found, text = answered(monkeypatch, "1100", "change_pte_range", undone=True, count=False)
    assert text.startswith(
        "What c0ffee changes in base is executed by 1 of 1 scenario; nothing was"
    )
    assert (found.untried, found.verdict) == (("mincore:no_thp_pte_scan_4m",), None)
    _, text = answered(monkeypatch, "base", "", undone=True)
    assert text.startswith("c0ffee changes no code of base: SAME.")
    _, text = answered(monkeypatch, "1000", "change_pte_range", undone=True)
    assert text.startswith("base executes as much with c0ffee as without it in 1 scenario that")


def test_chance_is_settled_by_more_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    def spread(old: Counted, new: Counted, tolerance: float) -> Any:
        row = path_row(old, new, tolerance)
        return row if old.more and new.more else structs.replace(row, change=Effect.SPREAD)

    monkeypatch.setattr(commits, "path_row", spread)
    found, _ = answered(monkeypatch, "1100", "change_pte_range", undone=True)
    assert [row.change for row in found.paths] == [Effect.LESS]


def test_what_is_not_enough_is_asked_for(tmp_path: Path) -> None:
    patch = tmp_path / "one.patch"
    patch.write_text("--- a/mm/x.c\n+++ b/mm/x.c\n@@ -1 +1 @@\n-a\n+b\n")
    for words, said in (
        (["f822a9a81a31"], "is no file; name a patch file, or the repository"),
        ([str(patch), "--full", "--trust"], "a patch has no parent; name what it is for: --base"),
    ):
        ended = CliRunner().invoke(cli, ["commit", *words, "--only", "mincore:*"])
        assert said in str(getattr(ended.exception, "sentence", str)())


def test_a_commit_and_its_parent_are_built_whole(
    monkeypatch: pytest.MonkeyPatch, repository: Path
) -> None:
    """Nothing is booted; the images, which are two, have no symbols."""
    images: set[str] = set()

    def changed_code(old: Kernel, new: Kernel) -> tuple[frozenset[str], bool]:
        images.update((old.image_sha256, new.image_sha256))
        return frozenset({"present"}), False

    monkeypatch.setattr(commits, "changed_code", changed_code)
    monkeypatch.setattr(qemu, "for_counting", lambda *_: SimpleNamespace(version="10"))
    monkeypatch.setattr(exact, "check_cpu", lambda *_: None)
    monkeypatch.setattr(Counter, "stored", lambda *_: None)
    words = ["commit", "HEAD~1", "--tree", str(repository), "--full", "--no-count", "--only"]
    ended = CliRunner().invoke(cli, [*words, "mincore:*"])
    assert ended.exit_code == 4, ended.output
    said = " ".join(ended.stdout.split())
    assert "No scenario was looked at: none was counted on 6.17.8-g" in said
    assert "It changes 1 function: present." in said
    assert len(images) == 2
    assert "Not tried: mincore:no_thp_pte_scan_4m, mincore:" in said
