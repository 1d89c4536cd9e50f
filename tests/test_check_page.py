# SPDX-License-Identifier: GPL-2.0-or-later
"""The page of a check: its sentence, its bounds, its decision, claims, and the version before."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec
import pytest

from kdelta.check import page as pages
from kdelta.check import series as check_series
from kdelta.check.page import (
    CheckPage,
    ClaimVerdict,
    Direction,
    Effect,
    Elsewhere,
    FunctionPart,
    JudgedClaim,
    PatchPart,
    PatchRow,
    PathRow,
    Ruling,
)
from kdelta.errors import SpecError
from kdelta.rendering import check as view


def row(name: str, percent: float, change: Effect | None = None, pages: str = "base") -> PathRow:
    sign = Effect.MORE if percent > 0 else Effect.LESS if percent < 0 else Effect.EQUAL
    return PathRow(
        scenario=name, what=f"{name.replace(':', ' ').replace('_', ' ')}", pages=pages,
        operation="page", before=200.0, after=200.0 * (1 + percent / 100), change=change or sign,
        patch=1, functions=(FunctionPart(function="change_pte_range", delta=2 * percent),),
    )  # fmt: skip


def made(*rows: PathRow, patches: int = 1, **other: object) -> CheckPage:
    found = CheckPage(
        title="mm: a series", base="6.17.8", config="config deb", compiler="gcc-14 (Debian)",
        qemu="QEMU 10.0.13", kdelta="0.1.0", decision=Ruling.ACCEPT, why="no path got longer",
        tolerance=1.0,
        patches=tuple(
            PatchRow(
                number=n, title=f"mm: patch {n}", longer=1, worst="fork:base", worst_percent=2.0
            )
            for n in range(1, patches + 1)
        ),
        paths=rows, identical=("mincore:scan",), unseen=(),
        null="Null: the base built twice differs by 0, the same image to the byte.",
        state=("10 of 10 facts are as wanted",), limits=("Not measured: time.",), since=(),
        command="kdelta check series.mbox --base deb:6.17.8",
    )  # fmt: skip
    return msgspec.structs.replace(found, **other)


def claim(name: str) -> JudgedClaim:
    return JudgedClaim(
        scenario=name, direction=Direction.LESS, percent=5.0, place="patch 1",
        verdict=ClaimVerdict.CONTRADICTED, why="200.00 -> 212.20 a page (+6.10 %)",
        before=200.0, after=212.2,
    )  # fmt: skip


def test_the_sentence_counts_longer_shorter_and_identical() -> None:
    found = made(row("fork:base", 6.1), row("mprotect:x", -3.0, pages="2M"), row("mincore:y", 0))
    assert view.headline(found) == (
        "1 of 3 paths that execute changed code got longer, the worst +6.10 % (fork:base, base"
        " pages); 1 shorter, the best -3.00 % (mprotect:x, 2M pages); 1 identical to the"
        " instruction."
    )
    assert view.headline(made()) == "No path of 1 executes changed code."
    said = view.headline(made(row("fork:base", -0.04, Effect.SLIGHT)))
    assert "shorter" not in said
    assert "1 changed by less than 0.05 %" in said
    slight = [row(f"fork:{at}", -0.04, Effect.SLIGHT) for at in range(4)]
    told = view.text(made(*slight))
    assert told.count("200.00 -> 199.92 a page (-0.04 %)") == 2
    assert "and 2 more paths (--json)" in told
    open_ = row("fork:base", -3.0, Effect.OPEN)
    said = view.headline(made(open_, row("mincore:y", 0)))
    assert said.startswith("None of 1 paths that execute changed code and could be compared got")
    assert said.endswith("1 identical to the instruction; 1 not compared.")
    alone = made(open_, row("fork:other", 2.0, Effect.OPEN))
    assert view.headline(alone) == ("None of 2 paths that execute changed code could be compared.")
    lent = msgspec.structs.replace(row("fork:base", 0), reason="-4,096 bytes")
    said = view.headline(made(lent, row("mincore:y", 0)))
    assert "2 identical to the instruction (1 with fewer bytes to copy or clear)" in said


def test_the_largest_page_keeps_to_its_lines_and_columns() -> None:
    """A hundred patches, a thousand functions, the longest names."""
    rows = [row(f"workload:scenario_{'x' * 50}_{n}", n - 50 or 1) for n in range(100)]
    said = view.text(
        made(
            *rows, patches=100, unseen=tuple(f"function_{'y' * 60}_{n}" for n in range(1000)),
            limits=tuple("A sentence that is long enough. " * 4 for _ in range(9)),
            claims=tuple(claim(f"workload:scenario_{'z' * 50}_{n}") for n in range(100)),
            sentences=tuple(f"It is {n} % faster, {'a word ' * 40}." for n in range(50)),
            command="kdelta check " + "patch.mbox " * 30,
        )
    )  # fmt: skip
    lines = said.splitlines()
    assert len(lines) <= view.MOST_LINES
    assert max(map(len, lines)) <= view.WIDTH
    assert "Again:" in lines
    assert any("cut here" in line for line in lines)


def test_a_claim_is_shown_with_its_figures() -> None:
    page = made(row("fork:base", 6.1), claims=(claim("fork:base"),))
    line = "fork:base less 5 (patch 1): contradicted, 200.00 -> 212.20 a page (+6.10 %)"
    assert line in " ".join(view.text(page).split())
    assert "<td>contradicted</td>" in view.html(page)


def test_parts_stand_in_their_order() -> None:
    said = view.text(
        made(
            row("fork:base", 6.1), unseen=("do_brk_flags",), claims=(claim("fork:base"),),
            sentences=("fork() becomes 5 % faster.",), against="v1.json",
            program="kdelta workload export fork",
        )
    )  # fmt: skip
    words = ["got longer", "Null:", "  1  mm: patch 1", "200.00 -> 212.20", "silence is not SAME",
             "State:", "Not measured",
             "and not judged", "contradicted", "Since v1.json", "export fork"]  # fmt: skip
    places = [said.index(word) for word in words]
    assert places == sorted(places)


def test_a_page_is_read_back_and_nothing_else_is(tmp_path: Path) -> None:
    path = tmp_path / "page.json"
    alone = made(row("fork:base", 6.1), claims=(claim("fork:base"),), sentences=("It is 5 %.",))
    both = made(row("fork:base", 6.1), elsewhere=(beside(row("fork:base", -2.0)),))
    for page in (alone, both):
        path.write_bytes(msgspec.json.encode(page))
        assert pages.read(path) == page
    assert both.arches == ("amd64", "arm64")
    for text in ("{}", "[1, 2", '{"format": 7}'):
        path.write_text(text)
        with pytest.raises(SpecError):
            pages.read(path)


def test_the_html_escapes_what_strangers_wrote() -> None:
    text = view.html(made(row("fork:base", 6.1), title="<script>alert(1)</script>"))
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


def beside(*rows: PathRow, **other: object) -> Elsewhere:
    return Elsewhere(
        arch="arm64",
        compiler="aarch64-linux-gnu-gcc (Debian)",
        null="Null: every image was in the cache, none was built now.",
        patches=(PatchRow(number=1, title="mm: patch 1", shorter=1, worst="fork:base"),),
        paths=tuple(msgspec.structs.replace(row, arch="arm64") for row in rows),
        **other,  # type: ignore[arg-type]
    )


def test_architectures_stand_side_by_side() -> None:
    page = made(row("fork:base", 6.1), row("mincore:y", 0.0), elsewhere=(
        beside(row("fork:base", -2.0), row("only:arm", 3.0), unseen=("arm_only",)),
    ))  # fmt: skip
    said = view.text(page)
    assert max(map(len, said.splitlines())) <= view.WIDTH
    lines = [" ".join(line.split()) for line in said.splitlines()]
    assert "x86-64 arm64" in lines
    assert "fork:base (base pages) +6.10 % -2.00 %" in lines
    assert "only:arm (base pages) same +3.00 %" in lines
    assert "x86-64: more work, patch 1, 200.00 -> 212.20 a page" in lines
    assert "arm64: also arm_only" in lines
    patch = "1 mm: patch 1: 1 longer, fork:base +2.00 %; arm64 1 shorter, fork:base +0.00 %"
    assert patch in " ".join(lines)
    assert ">executes no changed code, or was not counted<" in view.html(page)


def test_fewer_paths_are_told_before_anything_is_cut() -> None:
    rows = [row(f"mprotect:{'x' * 30}_{n}", n - 5 or 1) for n in range(12)]
    said = view.text(made(*rows, patches=8, unseen=tuple(f"function_{n}" for n in range(30))))
    assert "cut here" not in said
    assert "silence is not SAME" in said
    assert len(said.splitlines()) <= view.MOST_LINES


def test_a_column_without_a_kernel_is_no_same() -> None:
    wrong = PatchRow(number=1, title="x", wrong="mm/x.c:1: expected ;")
    broken = Elsewhere(arch="arm64", compiler="x", null="Null.", patches=(wrong,))
    said = view.text(made(row("fork:base", 6.1), elsewhere=(broken,)))
    lines = [" ".join(line.split()) for line in said.splitlines()]
    assert "fork:base (base pages) +6.10 % ?" in lines
    assert "arm64: No path was compared." in lines


def test_a_figure_and_its_percent_are_never_on_two_lines() -> None:
    """Whatever the length of the name, no line begins with the sign."""
    for length in range(1, 60):
        lines = view.text(made(row(f"fork:{'x' * length}", 2.0))).splitlines()
        assert not [line for line in lines if line.strip().startswith("%")]
        assert max(map(len, lines)) <= view.WIDTH


def test_a_small_difference_of_a_large_figure_is_seen() -> None:
    part = (FunctionPart(function="mincore_pte_range", delta=0.0039),)
    small = msgspec.structs.replace(
        row("mincore:pmd", 0.18), before=2.1660, after=2.1699, functions=part
    )
    shown = view.text(made(small))
    assert "2.1660 -> 2.1699 a page (+0.18 %)" in shown
    assert "mincore_pte_range +0.0039" in shown


def test_what_was_not_asked_again_is_no_answer_that_changed() -> None:
    """A path of the old page that the new one has not counted did not become +0.0 %."""
    before = made(
        row("mprotect:a", 20.0), row("mincore:b", 5.0), row("unmap:c", 3.0), row("lock:d", 9.0),
        identical=("fault:anon", "fault:thp"),
    )  # fmt: skip
    open_ = msgspec.structs.replace(row("unmap:c", 3.0, Effect.OPEN), after=None)
    now = made(
        row("mprotect:a", 4.0), row("fault:thp", -2.0), open_, row("lock:d", 9.0),
        identical=("fault:anon",), against="v1/page.json",
    )  # fmt: skip
    page = check_series.compared_with(now, before)
    assert [(each.scenario, round(each.was), round(each.now)) for each in page.since] == [
        ("fault:thp", 0, -2),
        ("mprotect:a", 20, 4),
    ]
    assert page.apart == 2  # mincore:b was not asked, unmap:c has no answer
    said = view.text(page)
    assert "Since v1/page.json; 2 paths are on one of the two pages only:" in said
    assert said.index("  mprotect:a +20.0 % -> +4.0 %") < said.index("  fault:thp +0.0 % -> -2.0 %")


def by_patch(name: str, *parts: tuple[int, float], percent: float) -> PathRow:
    found = row(name, percent)
    steps = tuple(
        PatchPart(patch=n, percent=p, change=Effect.MORE if p > 0 else Effect.LESS)
        for n, p in parts
    )
    return msgspec.structs.replace(found, parts=steps)


def test_who_pays_and_who_gains_stands_by_patch_and_path() -> None:
    page = made(
        by_patch("fork:base", (1, -9.0), (3, -2.0), percent=-10.8),
        by_patch("mincore:rare", (1, 4.0), (2, -1.0), percent=3.0),
        patches=3,
    )
    lines = view.text(page).splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("Who pays, who gains"))
    assert [line.split("  ") for line in lines[start : start + 3]] == [
        line.split("  ")
        for line in (
            "Who pays, who gains             patch 1    patch 2    patch 3        all",
            "mincore:rare (base pages)       +4.00 %    -1.00 %       same    +3.00 %",
            "fork:base (base pages)          -9.00 %       same    -2.00 %   -10.80 %",
        )
    ]
    assert view.html(page).count("<th>patch 2</th>") == 1
    alone = view.text(made(by_patch("fork:base", (1, 9.0), percent=9.0)))
    assert "Who pays" not in alone  # one patch: the paths say it


def test_patches_and_paths_beyond_the_table_are_counted() -> None:
    rows = [
        by_patch(f"fork:{n}", *((at, n - 6.5 + at / 10) for at in range(1, 6)), percent=n - 6.5)
        for n in range(12)
    ]
    lines = view.text(made(*rows, patches=5)).splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("Who pays, who gains"))
    shown = [line.split(" ")[0] for line in lines[start + 1 : lines.index("", start)]]
    assert shown[0] == "fork:11"  # it pays most
    assert shown[-2] == "fork:0"  # it gains most
    assert lines[start + len(shown)] == "of 12 paths and 5 patches; all of them: --html"
    assert len(lines) <= view.MOST_LINES


def test_a_change_from_none_has_no_percent() -> None:
    changed = msgspec.structs.replace(row("turns:dup", 6.1), before=0.0, after=1.0)
    said = view.text(made(changed))
    assert "0.00 -> 1.00" in said
    assert "from none" in said
    assert "99999" not in said


def test_a_comment_is_short_and_ends_in_the_command() -> None:
    long = msgspec.structs.replace(
        row(f"mprotect:{'x' * 60}", 6.1),
        functions=(
            FunctionPart(function="3 others", delta=9.0),
            *(FunctionPart(function=f"f_{'y' * 50}_{n}", delta=n) for n in range(1, 5)),
        ),
    )
    unseen = tuple(f"unseen_{n}" for n in range(40))
    command = f"kdelta check {'x' * 60}.mbox --base 6.17.8 --only 'mincore:*' --claim 'a:b less 1'"
    page = made(
        long, row("fork:base", -3.0), row("mincore:z", 0.0), title="mm: " + "a word " * 25,
        decision=Ruling.REJECT, unseen=unseen, command=f"{command} --format comment --runs /tmp/x",
    )  # fmt: skip
    lines = view.comment(page).splitlines()
    assert len(lines) <= 15
    assert max(map(len, lines)) <= 75
    assert " ".join(lines[:2]) == (
        "kdelta REJECT (advisory): a path got longer by more than 1 %. 1 longer,"
        " 1 shorter, 1 unchanged, 1 without changed code"
    )
    again = "\n".join(lines).partition("again: ")[2]
    assert shlex.split(again.replace("\\\n", "")) == shlex.split(command)
    said = " ".join(view.comment(made(row("mprotect:a", 6.1), row("fork:base", -3.0))).split())
    assert "worst: mprotect:a, base pages: +6.10 %, 200.00 -> 212.20 a page" in said
    assert "212.20 a page change_pte_range +12.2 best: fork:base, base pages: -3.00 %" in said
    assert "194.00 a page change_pte_range -6.0 again: kdelta check" in said
    assert "others" not in said
    wrong = (PatchRow(number=1, title="a", wrong=f"{'mm/x.c:1: expected ' * 9};"),)
    why = "patch 1 does not build: mm/x.c:1: expected ;"
    undecided = msgspec.structs.replace(made(decision=Ruling.UNDECIDED, why=why), patches=wrong)
    said = " ".join(view.comment(undecided).split())
    assert said.startswith(f"kdelta UNDECIDED (advisory): {why}. 0 longer")
    assert f"patch 1: {'mm/x.c:1: expected ' * 9};" in said
    quiet = PatchRow(number=1, title="a")  # of a series, the patch that moves paths is named
    two = msgspec.structs.replace(page, patches=(quiet, made(patches=2).patches[1]), unseen=())
    assert "\npatch 2: 1 longer, fork:base +2.00 %\n" in view.comment(two)
    assert "worst" not in view.comment(made())
    assert view.comment(made()).endswith("again: kdelta check series.mbox --base deb:6.17.8\n")


def test_the_page_of_a_check_that_goes_on_loads_itself_again() -> None:
    page = made(row("mprotect:a", 6.1), decision=Ruling.REJECT)
    html = view.html(page, so_far="3 of 131 scenarios")
    assert '<meta http-equiv="refresh" content="5">' in html
    assert "<h1>So far (3 of 131 scenarios): REJECT</h1>" in html
    assert "mprotect:a" in html
    assert 'http-equiv="refresh"' not in view.html(page)
