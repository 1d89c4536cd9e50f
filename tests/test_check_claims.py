# SPDX-License-Identifier: GPL-2.0-or-later
"""Declared claims: their form, the counts that judge them, and sentences that nothing judges."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from kdelta.check import series as check_series
from kdelta.check.page import ClaimVerdict, DeclaredClaim, Direction, Effect, PathRow
from kdelta.check.series import judged, parse, scenario_name, sentences
from kdelta.cli.main import cli
from kdelta.errors import SpecError
from kdelta.source.patches import PatchSeries, SeriesStep
from kdelta.source.tree import SourceTree

BASE = SourceTree(name="base", tree="base", line="line")


def series(*texts: str, cover: str = "") -> PatchSeries:
    steps = tuple(SeriesStep(title="mm: x", text=text, tree=BASE) for text in texts)
    return PatchSeries(title="t", cover=cover, base=BASE, steps=steps, own=True)


def declared(sent: PatchSeries, options: list[str]) -> tuple[DeclaredClaim, ...]:
    return check_series.declared(sent.cover, sent.steps, options)


def row(percent: float, change: Effect | None = None) -> PathRow:
    sign = Effect.MORE if percent > 0 else Effect.LESS if percent < 0 else Effect.EQUAL
    return PathRow(
        scenario="unmap:munmap", what="munmap()", pages="base", operation="page", before=200.0,
        after=200.0 * (1 + percent / 100), change=change or sign, reason="why",
    )  # fmt: skip


def test_claims_are_read_from_cover_letter_patches_and_options() -> None:
    found = declared(
        series(
            "Makes it shorter.\n\nSigned-off-by: A <a@b.c>\nKdelta-claim: unmap:munmap less 12.5\n",
            "kdelta-claim:mprotect:anon_toggle_4m.64K  same\n> Kdelta-claim: quoted is none\n",
            "Kdelta-claim: unmap:munmap less 12.5\n",
            cover="title\nKdelta-claim: fault:anon more 0.5\n",
        ),
        ["mincore:no_thp_pte_scan_4m less"],
    )
    assert [(one.scenario, one.direction, one.percent, one.place) for one in found] == [
        ("mincore:no_thp_pte_scan_4m", "less", None, "--claim"),
        ("fault:anon", "more", 0.5, "the cover letter"),
        ("unmap:munmap", "less", 12.5, "patch 1"),
        ("mprotect:anon_toggle_4m.64K", "same", None, "patch 2"),
    ]


@pytest.mark.parametrize(
    ("words", "cause", "action"),
    [
        ("", "is no claim", "write SCENARIO less|more|same [PERCENT]"),
        ("unmap:munmap faster 12", "is no direction", "known: less, more, same"),
        ("unmap:munmap lesss 12", "is no direction", "did you mean less?"),
        ("unmap:munmap less 12 %", "is no claim", "write SCENARIO"),
        ("unmap:munmap less nan", "is no percent", "a number alone"),
        ("unmap:munmap less \u0661\u0662", "is no percent", "a number alone"),
        ("unmap:munmap less 0", "is out of range", "from above 0 to 100"),
        ("unmap:munmap less 100.1", "is out of range", "from above 0 to 100"),
        ("unmap:munmap more 0", "is out of range", "from above 0 to 99999"),
        ("unmap:munmap more 100000", "is no percent", "a number alone"),
        ("unmap:munmap same 101", "is out of range", "from 0 to 100"),
        ("unmap:munmapp less 12", "has no scenario", "did you mean munmap?"),
        ("unnmap:munmap less 12", "unknown workload", "did you mean unmap?"),
        ("munmap less 12", "names no scenario", "write WORKLOAD:SCENARIO"),
        ("unmap:* less 12", "has no scenario", "known"),
    ],
)
def test_a_claim_that_is_not_in_the_form_is_an_error(words: str, cause: str, action: str) -> None:
    with pytest.raises(SpecError) as error:
        declared(series(f"Text.\n\nKdelta-claim: {words}\n"), [])
    assert cause in error.value.sentence()
    assert action in error.value.sentence()
    assert error.value.place == "patch 1"
    with pytest.raises(SpecError, match="--claim"):
        declared(series(""), [words])


def test_a_mail_names_no_file_and_an_option_may(tmp_path: Path) -> None:
    loop = tmp_path / "loop.c"
    loop.write_text("int main(void) { return 0; }\n")
    with pytest.raises(SpecError, match="a mail can name a shipped scenario only"):
        declared(series(f"Kdelta-claim: {loop}:main less"), [])
    assert scenario_name(parse(f"{loop}:main less").scenario) == "loop:main"


def test_ten_thousand_trailers_are_refused_at_once() -> None:
    text = "".join(f"Kdelta-claim: unmap:munmap less {n % 90 + 1}.{n}\n" for n in range(10_000))
    begun = time.monotonic()
    with pytest.raises(SpecError, match="declares 10000 claims, more than 100"):
        declared(series(text), [])
    assert len(sentences(series(text + "It is 5 % faster. " * 100_000))) == 1
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    ("words", "percent", "verdict"),
    [
        ("less", -0.05, ClaimVerdict.SUPPORTED), ("less", -0.04, ClaimVerdict.CONTRADICTED),
        ("less", 3.0, ClaimVerdict.CONTRADICTED), ("less 12", -12.0, ClaimVerdict.SUPPORTED),
        ("less 12", -11.9, ClaimVerdict.CONTRADICTED), ("more", 0.06, ClaimVerdict.SUPPORTED),
        ("more 3", 3.0, ClaimVerdict.SUPPORTED), ("more 3", 2.9, ClaimVerdict.CONTRADICTED),
        ("more 3", -5.0, ClaimVerdict.CONTRADICTED), ("same", 0.0, ClaimVerdict.SUPPORTED),
        ("same", 0.06, ClaimVerdict.CONTRADICTED), ("same 0", 0.01, ClaimVerdict.CONTRADICTED),
        ("same 1", -1.0, ClaimVerdict.SUPPORTED), ("same 1", 1.1, ClaimVerdict.CONTRADICTED),
    ],
)  # fmt: skip
def test_counted_change_judges_claim(words: str, percent: float, verdict: ClaimVerdict) -> None:
    (found,) = judged([parse(f"unmap:munmap {words}")], "amd64", [row(percent)], (), (), {})
    assert found.verdict is verdict
    assert found.why.startswith("200.00 -> ")
    assert (found.before, found.after) == (200.0, row(percent).after)


@pytest.mark.parametrize("effect", [Effect.OPEN, Effect.SPREAD])
def test_what_is_not_compared_decides_no_claim(effect: Effect) -> None:
    (found,) = judged([parse("unmap:munmap less")], "amd64", [row(-3.0, effect)], (), (), {})
    assert (found.verdict, found.why) == (ClaimVerdict.UNDECIDED, f"{effect}: why")


def test_why_a_scenario_was_not_counted_is_said() -> None:
    claim = parse("unmap:munmap less")
    (found,) = judged([claim], "amd64", [], (), (), {"unmap:munmap": "the kernel has no such call"})
    assert (found.verdict, found.before) == (ClaimVerdict.UNDECIDED, None)
    assert found.why == "it was not counted: the kernel has no such call"


def test_a_path_without_changed_code_is_the_same() -> None:
    both = [parse("unmap:munmap same 0"), parse("unmap:munmap less")]
    same, less = judged(both, "amd64", [], ["unmap:munmap"], (), {})
    assert (same.verdict, less.verdict) == (ClaimVerdict.SUPPORTED, ClaimVerdict.CONTRADICTED)
    assert less.why == "it executes no changed code"


def test_a_sentence_with_figures_is_quoted_and_judged_by_nothing() -> None:
    """It was "supported" by mremap, whose summary has the word "after"."""
    text = (
        "Some words before it.\n\nBefore: 100 RPS\nAfter: 101 RPS\n\nNo figure.\n"
        "Improves munmap() by 12 %, it is 2.5x as fast. Kdelta-claim: not a trailer 1.\n\n"
        "Kdelta-claim: unmap:munmap less 12\nLink: https://example.org/20260101\n"
        'Fixes: 0123456789ab ("x")\nSigned-off-by: A 1 <a@b.c>\n'
    )
    found = sentences(series(text, text))
    assert found == (
        "Before: 100 RPS After: 101 RPS",
        "No figure. Improves munmap() by 12 %, it is 2.5x as fast.".partition(". ")[2],
        "Kdelta-claim: not a trailer 1.",
    )
    none = (
        "Since 61ef18655704 nobody does.\n\nA B (3): mm: x\n\nPatches 2 and 3 drop find_x2().\n\n"
    )
    assert sentences(series(f"{none}On Linux 6.17.8 and v6.18-rc3. It was 488220 us.")) == (
        "It was 488220 us.",
    )
    assert judged([], "amd64", [row(-12.0)], (), (), {}) == ()
    (only,) = declared(series(text), [])
    assert only == DeclaredClaim(
        scenario="unmap:munmap", direction=Direction.LESS, percent=12.0, place="patch 1"
    )


def test_the_command_refuses_a_wrong_claim_before_a_source_is_read(tmp_path: Path) -> None:
    patch = tmp_path / "a.patch"
    patch.write_text("x")
    words = ["check", str(patch), "--base", "deb:6.17.8", "--claim", "unmap:munmapp less"]
    ended = CliRunner().invoke(cli, words)
    assert isinstance(ended.exception, SpecError)
    assert "did you mean munmap?" in ended.exception.sentence()
