# SPDX-License-Identifier: GPL-2.0-or-later
"""Along a series: what is counted again, what a patch that has no kernel does to the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec import structs

import kernel_tree
import run_records
from kdelta import process
from kdelta.check import series as check_series
from kdelta.check.compare import Counted
from kdelta.check.page import CheckPage, ClaimVerdict, DeclaredClaim, Effect, Ruling
from kdelta.cli.check import _Check
from kdelta.cli.main import cli
from kdelta.errors import KdeltaError, SpecError, StoreError
from kdelta.journal.files import held
from kdelta.kernels.kernel import Kernel
from kdelta.metric import Grade
from kdelta.rendering import check as view
from kdelta.sample import ExactData, FunctionCount, Outcome, PhaseCounts, StateField, TrialResult
from kdelta.source import make, tree_reference
from kdelta.source.patches import PatchSeries, SeriesStep
from kdelta.source.tree import SourceTree

SCENARIOS = ("mincore:no_thp_pte_scan_4m", "mprotect:anon_toggle_4m")
EXECUTED = {SCENARIOS[0]: "mincore_pte_range", SCENARIOS[1]: "change_pte_range"}


@pytest.fixture(autouse=True)
def one_name_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are no images whose symbols could be looked up."""
    monkeypatch.setattr(check_series, "_aliases", lambda _kernel, _names: {})


def tree(name: str) -> SourceTree:
    return SourceTree(name=name, tree=name, line="line")


def kernel(source: SourceTree) -> Kernel:
    if source.name == "broken":
        raise make.SourceError("6.17", first="../mm/x.c:1: expected ;", log=Path("log"))
    return Kernel(
        reference=source.name, release="6.17.8", arch="amd64", flavour="deb",
        image=Path("/none"), image_sha256=source.name.removesuffix("-again"), name=source.name,
        source=f"tree {source.name}", compiler="gcc",
    )  # fmt: skip


class Counts:
    """Counts: of a kernel's name its number of instructions; "panics" does not boot."""

    grade = Grade.EXACT_PATH

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def each(
        self, count: Callable[[str], check_series.ScenarioCounts], scenarios: Sequence[str]
    ) -> Iterator[check_series.ScenarioCounts]:
        for scenario in scenarios:
            yield count(scenario)

    def one(self, kernel: Kernel, scenario: str, *, used: bool | None = None) -> Counted:
        """used: False: what a base of 1000 counts.  "1050@1000": 1050 by memory alone."""
        self.asked.append((kernel.name, scenario))
        name, _, used_name = kernel.name.partition("@")
        names = {None: name, False: "1000", True: used_name or name}
        return Counted(scenario=scenario, kernel=kernel, result=result(names[used], scenario))

    def again(self) -> set[tuple[str, str]]:
        """What was counted on kernels of patches."""
        return {(name, scenario) for name, scenario in self.asked if name != "base"}


def result(name: str, scenario: str) -> TrialResult:
    if name == "panics":
        return TrialResult(outcome=Outcome.BOOT_ERROR, reasons=("Kernel panic",))
    if name == "oopses":
        return TrialResult(outcome=Outcome.GUEST_ERROR, reasons=("Oops: 0002",))
    head, _, copied = name.partition("-")[0].partition("+")
    value = int(head) if name[0].isdigit() else 1000
    counts = PhaseCounts(
        phase="work", operations=10, operation="page", user=(0,) * 4, kernel=(value,) * 4,
        switched=(False,) * 4,
    )  # fmt: skip
    return TrialResult(
        outcome=Outcome.OK,
        environment=run_records.result_of(0).environment,
        facts=run_records.result_of(0).facts,
        data=ExactData(
            phases=(counts,),
            functions=(
                FunctionCount(phase="work", function=EXECUTED[scenario], insns=value, calls=1),
                *copies(copied),
            ),
        ),
        state=(StateField(when="before", name="present_pages", value="4", want="4"),),
    )


def copies(copied: str) -> tuple[FunctionCount, ...]:
    """One string instruction, whose own count is in its function's."""
    name = f"rep movsb in {EXECUTED[SCENARIOS[1]]}"
    row = FunctionCount(phase="work", function=name, insns=0, calls=1, bytes=int(copied or 0))
    return (row,) if copied else ()


class Made:
    """Kernels of trees by their names; null: the name of one that must count as the base does."""

    def __init__(self, null: str = "") -> None:
        self._null = null

    def of(self, own: SourceTree) -> Kernel:
        return kernel(own)

    def null(self, _last: SourceTree) -> Kernel | None:
        return kernel(tree(self._null)) if self._null else None


def series(*names: str, base: str = "base") -> PatchSeries:
    steps = [SeriesStep(title=f"mm: {n}", text="", tree=tree(n)) for n in names]
    return PatchSeries(title="t", cover="", base=tree(base), steps=tuple(steps), own=True)


Along = Callable[..., tuple[check_series.CheckedSeries, Counts]]


@pytest.fixture
def along(monkeypatch: pytest.MonkeyPatch) -> Along:
    """Checks a series of kernels of these names: what is found, and what was counted."""

    def check(
        *names: str, base: str = "base", changed: str = "change_pte_range", lines: bool = False,
        made: Made | None = None, counts: Counts | None = None, **how: Any,
    ) -> tuple[check_series.CheckedSeries, Counts]:  # fmt: skip
        known = frozenset(changed.split())
        monkeypatch.setattr(check_series, "changed_code", lambda _old, _new: (known, lines))
        counts, steps = counts or Counts(), series(*names, base=base)
        how = {"report": lambda _line: None, "tolerance": 1.0, **how}
        found = check_series.checked(steps, SCENARIOS, made or Made(), counts, **how)  # type: ignore[arg-type]
        return found, counts

    return check


def paged(
    sent: PatchSeries,
    found: check_series.CheckedSeries,
    *sides: check_series.CheckedSeries,
    declared: Sequence[DeclaredClaim] = (),
) -> CheckPage:
    home = replace(found, compiler="g", null="n")
    return check_series.page(
        sent, [home, *sides], None, "", declared,
        config="c", qemu="q", kdelta="k", command="c", confined=False,
    )  # fmt: skip


def ruling_of(found: check_series.CheckedSeries) -> Ruling:
    return paged(series(), found).decision


def test_only_what_executes_a_changed_function_is_counted_again(along: Along) -> None:
    found, counts = along("1100")
    assert counts.again() == {("1100", SCENARIOS[1])}
    (path,) = check_series.path_rows(found)
    assert (path.change, path.before, path.after, path.patch) == (Effect.MORE, 100, 110, 1)
    assert [(f.function, f.delta) for f in path.functions] == [("change_pte_range", 10)]
    assert ruling_of(found) is Ruling.REJECT


def test_hundredths_of_percent_are_told_and_are_no_change(along: Along) -> None:
    every = " ".join(EXECUTED.values())
    found, _ = along("100040", base="100000", changed=every)
    assert {(path.change, path.reason) for path in check_series.path_rows(found)} == {
        (Effect.SLIGHT, "+4")
    }
    assert (found.patches[0].longer, found.patches[0].shorter) == (0, 0)
    assert ruling_of(found) is Ruling.ACCEPT


@pytest.mark.parametrize(
    ("name", "tolerance", "change", "ruling"),
    [
        ("1000+40960", 1, Effect.OPEN, Ruling.UNDECIDED),  # a page each, by as many instructions
        ("900+40960", 1, Effect.OPEN, Ruling.UNDECIDED),  # by fewer
        ("1100+40960", 1, Effect.MORE, Ruling.REJECT),
        ("900+80", 1, Effect.LESS, Ruling.ACCEPT),  # a field of a structure
        ("900+360", 1, Effect.LESS, Ruling.ACCEPT),  # 36 bytes are worth 9 instructions of 10
        ("990+2560", 1, Effect.OPEN, Ruling.UNDECIDED),  # 256 are worth 64, of one fewer
        ("1005+2560", 1, Effect.OPEN, Ruling.UNDECIDED),  # 256 bytes are worth up to 64 %
        ("1005+2560", 70, Effect.MORE, Ruling.ACCEPT),
        ("1005+40960", 1, Effect.OPEN, Ruling.UNDECIDED),  # within the tolerance or far not
        ("1005+40960", 70, Effect.OPEN, Ruling.UNDECIDED),
        ("1005+40960", 0.1, Effect.MORE, Ruling.REJECT),  # whatever they are worth
        ("1005+40960", 0, Effect.MORE, Ruling.REJECT),
    ],
)
def test_a_page_that_is_copied_by_one_instruction_is_no_less_work(
    along: Along, name: str, tolerance: float, change: Effect, ruling: Ruling
) -> None:
    found, _ = along(name, tolerance=tolerance)
    (path,) = check_series.path_rows(found)
    assert path.change is change
    assert (" bytes that string instructions" in path.reason) is (change is Effect.OPEN)
    assert ruling_of(found) is ruling


def test_a_path_of_as_many_instructions_that_clears_less_is_no_question(along: Along) -> None:
    found, _ = along("1000", base="1000+40960")
    reasons = {(path.change, path.reason) for path in check_series.path_rows(found)}
    assert reasons == {(Effect.EQUAL, "-4,096 bytes that string instructions copy or clear")}
    assert ruling_of(found) is Ruling.ACCEPT


def test_the_patch_with_the_largest_part_is_named(along: Along) -> None:
    found, _ = along("1010", "1110", "1100")
    (path,) = check_series.path_rows(found)
    assert (path.patch, path.after) == (2, 110)
    assert [row.longer for row in found.patches] == [1, 1, 0]
    assert [row.shorter for row in found.patches] == [0, 0, 1]


@pytest.mark.parametrize("wrong", ["broken", "panics"])
def test_the_others_go_on_without_a_patch_that_has_no_kernel(along: Along, wrong: str) -> None:
    found, _ = along(wrong, "1005")
    said = {"broken": "expected ;", "panics": "does not boot"}[wrong]
    assert said in found.patches[0].wrong
    assert check_series.path_rows(found)[0].after == 100.5
    assert ruling_of(found) is Ruling.UNDECIDED


def test_a_kernel_that_dies_on_a_path_is_the_first_line(along: Along) -> None:
    said: list[str] = []
    found, counts = along("oopses", base="1000", report=said.append)
    assert counts.asked.count(("oopses", SCENARIOS[1])) == 1  # it is not kept, and takes a minute
    page = paged(series("oopses"), found)
    assert (page.decision, page.why) == (
        "UNDECIDED", "the patched kernel died on 1 path: Oops: 0002",
    )  # fmt: skip
    assert page.paths[0].reason == "oopses: Oops: 0002"
    assert f"{SCENARIOS[1]} (base pages): not compared, oopses: Oops: 0002" in "".join(said)


def test_what_names_a_changed_function_is_counted_first_and_told_at_once(along: Along) -> None:
    said: list[str] = []
    so_far: list[tuple[int, str, int]] = []

    def each_row(found: check_series.CheckedSeries, at: int) -> None:
        page = paged(series("1100"), found)
        so_far.append((at, page.decision, page.patches[0].longer))

    _, counts = along("1100", base="1000", report=said.append, each_row=each_row)
    assert so_far == [(1, "REJECT", 1), (2, "REJECT", 1)]
    assert counts.asked[-3:] == [
        ("1100", SCENARIOS[1]), ("1000", SCENARIOS[1]), ("1000", SCENARIOS[0]),
    ]  # fmt: skip
    row = f"{SCENARIOS[1]} (base pages) +10.00 %"
    left = f"not yet: 1 more ({SCENARIOS[0]}), the null"
    assert said[-3:] == [
        f"[1/2] {row}: more work",
        f"so far: REJECT: {row}; counted: 1 of 2 scenarios; {left}",
        "1 of 2 are known to execute no changed code",
    ]


def test_each_patch_has_its_part_of_a_path(along: Along) -> None:
    found, _ = along("1100", "990", base="1000")
    (path,) = check_series.path_rows(found)
    assert [(part.patch, round(part.percent, 2), part.change) for part in path.parts] == [
        (1, 10.0, Effect.MORE), (2, -10.0, Effect.LESS),
    ]  # fmt: skip
    assert round(path.percent, 2) == -1.0
    part = structs.replace(path.parts[1], percent=-50.0)
    other = structs.replace(path, scenario="b", parts=(part,))
    rows = check_series._with_paths(found, [path, other])
    assert [row.worst for row in rows] == [path.scenario, "b"]  # patch 2 made none longer


def test_who_pays_for_patch_1_and_who_gains_by_patch_3(along: Along) -> None:
    names = ("1100", "1100", "900")
    found, _ = along(*names, base="1000")
    page = paged(series(*names, base="1000"), found)
    assert [(row.longer, row.shorter) for row in page.patches] == [(1, 0), (0, 0), (0, 1)]
    text = " ".join(view.text(page).split())
    assert "Who pays, who gains patch 1 patch 3 all" in text
    assert f"{SCENARIOS[1]} (base pages) +10.00 % -18.18 % -10.00 %" in text
    rows = json.loads(view.json(page))["paths"][0]["parts"]
    assert [(row["patch"], round(row["percent"], 2)) for row in rows] == [(1, 10.0), (3, -18.18)]
    cells = "".join(f'<td class="number">{n} %</td>' for n in ("+10.00", "-18.18", "-10.00"))
    assert cells in view.html(page)


def test_a_kernel_whose_changes_nothing_executes_has_to_boot(along: Along) -> None:
    found, counts = along("panics", changed="kernel_init")
    assert "does not boot: Kernel panic" in found.patches[0].wrong
    assert ruling_of(found) is Ruling.UNDECIDED
    found, counts = along("1100", changed="kernel_init")
    assert counts.again() == {("1100", SCENARIOS[0])}
    assert not found.patches[0].wrong
    assert not check_series.path_rows(found)  # one count of it is no answer


@pytest.mark.parametrize(("name", "lines"), [("base-again", False), ("1000-comment", True)])
def test_an_image_that_is_the_same_or_of_other_line_numbers_is_not_counted(
    along: Along, *, name: str, lines: bool
) -> None:
    found, counts = along(name, changed="", lines=lines)
    assert found.patches[0].same_image
    assert not counts.again()
    assert ruling_of(found) is Ruling.ACCEPT


def test_another_image_without_a_changed_function_is_counted_whole(along: Along) -> None:
    """What differs is data, and data decide paths."""
    found, counts = along("1000-data", changed="")
    assert counts.again() == {("1000-data", name) for name in SCENARIOS}
    assert {path.change for path in check_series.path_rows(found)} == {Effect.EQUAL}
    assert found.data_only
    assert ruling_of(found) is Ruling.ACCEPT


def test_silence_is_not_the_same(along: Along) -> None:
    found, _ = along("1100", changed="never_run")
    assert check_series.path_rows(found) == ()
    assert ruling_of(found) is Ruling.UNDECIDED


def test_another_name_of_what_is_executed_is_executed(
    along: Along, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system call has two, and counts have one of them."""
    both = frozenset(["mincore_pte_range", "__do_sys_it"])
    monkeypatch.setattr(check_series, "_aliases", lambda _kernel, _names: dict.fromkeys(both, both))
    found, _ = along("1100")
    assert both <= found.executed
    assert "change_pte_range" in found.executed
    assert "never_run" not in found.executed


def test_a_base_that_counts_nothing_is_an_error(along: Along) -> None:
    with pytest.raises(SpecError, match="Kernel panic"):
        along(base="panics")


def test_the_title_of_a_cover_letter_is_no_part_of_its_first_sentence(along: Along) -> None:
    found, _ = along("1100")
    letter = replace(series("1100"), cover="mm: a series of 2\nmprotect() becomes 12 % faster.")
    page = paged(letter, found)
    assert page.sentences == ("mprotect() becomes 12 % faster.",)
    assert page.claims == ()


def test_claims_are_judged_on_every_architecture_and_change_no_decision(along: Along) -> None:
    found, _ = along("995")
    arm, _ = along("1005")
    arm.base = replace(arm.base, arch="arm64")
    side = replace(arm, compiler="cross", null="n")
    words = [f"{SCENARIOS[1]} less 0.4", f"{SCENARIOS[0]} same", "unmap:munmap less"]
    declared = check_series.declared("", (), words)
    page = paged(series("995"), found, side, declared=declared)
    said = [(each.arch, each.scenario, each.verdict) for each in page.claims]
    assert said == [
        ("amd64", SCENARIOS[1], ClaimVerdict.SUPPORTED),
        ("amd64", SCENARIOS[0], ClaimVerdict.SUPPORTED),  # it executes no changed code
        ("amd64", "unmap:munmap", ClaimVerdict.UNDECIDED),  # nobody counted it
        ("arm64", SCENARIOS[1], ClaimVerdict.CONTRADICTED),
        ("arm64", SCENARIOS[0], ClaimVerdict.SUPPORTED),
        ("arm64", "unmap:munmap", ClaimVerdict.UNDECIDED),
    ]
    assert page.decision is paged(series("995"), found, side).decision


MAIL = f"""\
From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: A <a@b.c>
Subject: [PATCH] mm: shorter

Before: 100 RPS
After: 101 RPS

Kdelta-claim: %s
Signed-off-by: A <a@b.c>
---
{kernel_tree.diff("pte + 2")}--\x20
2.39
"""


def test_the_command_counts_and_judges_what_a_mail_declares(
    along: Along, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Builds and guests apart, from the mail to the page and the exit code."""
    found, _ = along("900")
    counted: list[str] = []

    def side(self: _Check, *_: object) -> check_series.CheckedSeries:
        counted.extend(self.scenarios)
        return replace(found, compiler="gcc", null="n")

    monkeypatch.setattr(_Check, "_side", side)
    root = kernel_tree.committed(tmp_path / "linux")
    box = tmp_path / "a.mbox"
    words = ["check", str(box), "--base", str(root), "--trust", "--only", "mincore:*"]
    words += ["--runs", str(tmp_path / "runs"), "--claim", f"{SCENARIOS[1]} more"]
    box.write_text(MAIL % "mprotect:anon_toggle_4m less 10")
    ended = CliRunner().invoke(cli, words)
    assert ended.exit_code == 0, ended.output
    said = " ".join(ended.stdout.split())
    assert SCENARIOS[1] in counted  # whatever --only says
    assert '- "Before: 100 RPS After: 101 RPS"' in said
    assert f"{SCENARIOS[1]} less 10 (patch 1): supported, 100.00 -> 90.00 a page (-10.00 %)" in said
    assert f"{SCENARIOS[1]} more (--claim): contradicted, 100.00 -> 90.00" in said
    counted.clear()
    box.write_text(MAIL % "mprotect:anon_togle_4m less 10")
    ended = CliRunner().invoke(cli, words)
    assert isinstance(ended.exception, SpecError)
    assert "patch 1: mprotect has no scenario" in ended.exception.sentence()
    assert not counted  # nothing was built


def test_an_interrupted_check_says_what_is_kept_and_is_resumed(
    along: Along, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found, _ = along("900")
    ends: list[type[BaseException]] = [KeyboardInterrupt]

    def side(self: _Check, *_: object) -> check_series.CheckedSeries:
        if ends:
            self.known = [found]
            raise ends.pop()
        return replace(found, compiler="gcc", null="n")

    monkeypatch.setattr(_Check, "_side", side)
    runs, box = tmp_path / "runs", tmp_path / "a.mbox"
    box.write_text(MAIL % "mprotect:anon_toggle_4m less 10")
    base = str(kernel_tree.committed(tmp_path / "linux"))
    words = ["check", "a.mbox", "--base", base, "--trust", "--runs", str(runs)]
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(cli, words)
    (folder,) = runs.iterdir()
    said = " ".join(ended.stderr.split())
    assert f"go on with: kdelta resume {folder} --trust" in said
    assert "so far: ACCEPT: no path got longer; best mprotect:anon_toggle_4m" in said
    assert "; counted: 2 of " in said
    assert " more), the null" in said
    assert {each.name for each in folder.iterdir()} == {"check.json", "lock"}
    monkeypatch.chdir("/")
    again = ["resume", "--runs", str(runs), "-j", "3", "--trust"]
    asked = (folder / "check.json").read_text()
    for bad, why in (
        ('["/", "cache", "clear"]', "the file is damaged"),
        ('{"folder": "/x\\u0000", "words": ["a"]}', "the folder of the check is gone"),
        ('{"folder": "/", "words": ["workload", "new", "x"]}', "Missing option '--base'"),
    ):
        (folder / "check.json").write_text(bad)
        ended = CliRunner().invoke(cli, again)
        assert why in f"{ended.output} {ended.exception}"
    (folder / "check.json").write_text(asked)
    (folder / "page.html").write_text("of who holds it")
    with held(folder):
        assert "is being executed by" in str(CliRunner().invoke(cli, again).exception)
    assert (folder / "page.html").read_text() == "of who holds it"
    (folder / "page.json").symlink_to(tmp_path / "elsewhere")
    assert isinstance(CliRunner().invoke(cli, again).exception, StoreError)
    (folder / "page.json").unlink()
    ended = CliRunner().invoke(cli, again)
    assert ended.exit_code == 0, ended.output
    assert ended.stdout.startswith("ACCEPT: ")
    assert "kdelta check a.mbox --base" in (folder / "page.json").read_text()
    assert [*runs.iterdir()] == [folder]
    ended = CliRunner().invoke(cli, ["resume", "--runs", str(runs)])
    assert f"nothing to resume: every run in {runs} has ended" in " ".join(ended.output.split())
    short = f"--against {folder.name}/page.json"
    for against in (f"--against {folder}/page.json", short):
        said = CliRunner().invoke(cli, [*words, *against.split()]).stdout
        assert short in " ".join(said.replace("\\", "").split())
    assert "\n  gcc -O2 -static mprotect.c -o mprotect\n" in said


def test_all_that_needs_no_source_is_said_before_one_is_fetched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fetched(*_: object, **__: object) -> None:
        pytest.fail("a source was asked for")

    monkeypatch.setattr(tree_reference, "located", fetched)
    monkeypatch.setattr(tree_reference, "source", fetched)

    def unconfined() -> None:
        raise SpecError("bubblewrap is not installed")

    box = tmp_path / "a.mbox"
    box.write_text(MAIL % "mprotect:anon_togle_4m less")
    words = ["check", str(box), "--base", "6.17", "--runs", str(tmp_path / "runs")]
    said = [CliRunner().invoke(cli, words).exception]
    box.write_text(MAIL % "mprotect:anon_toggle_4m less")
    monkeypatch.setattr(make, "check_confinement", unconfined)
    said.append(CliRunner().invoke(cli, words).exception)
    monkeypatch.setattr(process, "which", lambda name: None if name == "pahole" else "/x")
    make.check_tools.cache_clear()
    said.append(CliRunner().invoke(cli, [*words, "--trust", "--config", "package"]).exception)
    make.check_tools.cache_clear()
    for error, words_of_it in zip(said, ("no scenario", "bubblewrap", "dwarves"), strict=True):
        assert isinstance(error, KdeltaError)
        assert words_of_it in error.sentence()


def test_no_claim_is_judged_where_a_patch_has_no_kernel(along: Along) -> None:
    found, _ = along("broken", "900")
    declared = check_series.declared("", (), [f"{SCENARIOS[1]} less"])
    (claim,) = paged(series("900"), found, declared=declared).claims
    assert (claim.verdict, claim.why) == (ClaimVerdict.UNDECIDED, "there is no kernel of patch 1")


@pytest.mark.parametrize(("names", "paths"), [(("broken",), 0), (("1100", "broken"), 1)])
def test_nothing_is_the_same_by_a_patch_that_does_not_build(
    along: Along, names: tuple[str, ...], paths: int
) -> None:
    found, counts = along(*names, base="1000", tolerance=20.0)
    assert len(counts.asked) == (4 if paths else 1)  # that the base boots
    page = paged(series(*names), found)
    assert page.why == f"patch {len(names)} does not build: mm/x.c:1: expected ;"
    assert (len(page.paths), page.identical) == (paths, ())
    said = f"{view.text(page)}{view.comment(page)}"
    assert "identical by proof" not in said
    assert ("No path was compared." in said) is not bool(paths)
    assert len(check_series.so_far([found], SCENARIOS).splitlines()) == 1


def test_another_architecture_rejects_too(along: Along) -> None:
    found, _ = along("1005")
    arm, _ = along("1100")
    arm.base = replace(arm.base, arch="arm64")
    side = replace(arm, compiler="cross", null="n")
    page = paged(series("1005"), found, side)
    assert page.decision is Ruling.REJECT
    assert page.why == "mprotect:anon_toggle_4m (base pages, arm64) +10.00 %"
    assert [row.arch for row in page.every] == ["amd64", "arm64"]
    assert any("architectures than x86-64, arm64" in each for each in page.limits)


def test_a_null_that_counts_otherwise_ends_the_check(along: Along) -> None:
    found, _ = along("1100", base="1000", made=Made("1000"))
    assert len(found.executing) == 1
    with pytest.raises(SpecError, match=r"the null differs from the base: .*\+10\.00 %"):
        along("1100", base="1000", made=Made("1100"))


def test_a_path_that_the_null_counts_otherwise_is_not_compared(along: Along) -> None:
    class Apart(Counts):
        def one(self, kernel: Kernel, scenario: str, *, used: bool | None = None) -> Counted:
            other = kernel.name == "1000-again" and scenario == SCENARIOS[0]
            own = replace(kernel, name="1001") if other else kernel
            return super().one(own, scenario, used=used)

    every = " ".join(EXECUTED.values())
    made, steps = Made("1000-again"), series("1100", base="1000")
    found, _ = along("1100", base="1000", changed=every, made=made, counts=Apart())
    page = paged(steps, found)
    assert [(row.change, row.reason) for row in page.paths] == [
        (Effect.OPEN, "the null differs from the base by +0.10 %: mincore_pte_range +0.1"),
        (Effect.MORE, ""),
    ]
    assert (page.decision, page.patches[0].longer) == (Ruling.REJECT, 1)
    page = paged(steps, replace(found, tolerance=20.0))
    assert page.decision is Ruling.UNDECIDED
    assert page.why.startswith("the null differs from the base on 1 path; build whole kernels")


def test_a_path_that_memory_alone_moves_is_counted_in_one_guest(along: Along) -> None:
    found, _ = along("1200", "1005", base="1000", made=Made("1050@1000"))
    assert not found.apart
    (path,) = check_series.path_rows(found)
    assert (path.before, path.after, path.change) == (100, 100.5, Effect.MORE)
    page = paged(series("1200", "1005", base="1000"), found)
    assert page.decision is Ruling.ACCEPT
    assert "moves 1 path by up to +5.00 % (mprotect:anon_toggle_4m)" in page.null


def test_the_null_is_of_the_last_patch_that_has_a_kernel(along: Along) -> None:
    asked = list[SourceTree]()

    class Asked(Made):
        def null(self, last: SourceTree) -> Kernel | None:
            asked.append(last)
            return super().null(last)

    found, _ = along("1100", "broken", made=Asked("base"))
    assert asked == [tree("1100")]
    assert not found.apart
