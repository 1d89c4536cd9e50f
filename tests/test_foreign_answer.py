# SPDX-License-Identifier: GPL-2.0-or-later
"""The answer to a whole import: what holds, what does not, and what nobody can say from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foreign_records import imported, noise
from kdelta.analysis import judgement
from kdelta.analysis.judgement import Judgement, JudgementChoice
from kdelta.rendering import judge as page
from kdelta.rendering.formats import written
from kdelta.table.columns import plain
from kdelta.verdict.comparison import Verdict

BOOTS = 9


def measured(path: Path, levels: dict[str, float], **columns: str) -> Path:
    """A table of boots in turn: arm -> level; columns: of every row."""
    jitter = noise(len(path.name))
    head = ["order", "kernel", "boot", "t_us", *columns]
    rows: list[list[str]] = []
    for boot in range(BOOTS):
        for arm, level in levels.items():
            value = f"{jitter.gauss(level, level / 300):.3f}"
            rows.append([str(len(rows)), arm, f"{arm} b{boot}", value, *columns.values()])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(",".join(row) + "\n" for row in [head, *rows]))
    return path


def judged(*paths: Path) -> Judgement:
    return judgement.judge("test", imported(*paths), JudgementChoice())


def verdicts(found: Judgement) -> list[Verdict]:
    return [pair.comparison.verdict for one in found.findings for pair in one.pairs]


def text(found: Judgement) -> str:
    return plain(page.show(found))


def test_the_answer_names_what_holds_and_what_is_incomplete(tmp_path: Path) -> None:
    path = measured(tmp_path / "a.csv", {"6.16": 25, "6.17": 37}, status="ok")
    lines = path.read_text().splitlines()
    lines[2] = lines[2].replace(",ok", ",crashed")
    path.write_text("\n".join(lines) + "\n")
    found = judged(path)
    (holds,) = found.answer.holds
    assert holds.startswith("6.16 -> 6.17: REGRESSION in t_us +4")
    assert found.answer.missing == ("runs without a value: 6.17 8/9 boots (t_us)",)
    shown = text(found).splitlines()
    assert shown[2].startswith("holds: 6.16 -> 6.17: REGRESSION")


def test_nine_tiny_files_are_one_page(tmp_path: Path) -> None:
    for number in range(9):
        levels = {"6.16": 25.0, "6.17": 25.0 + 4 * (number % 3)}
        measured(tmp_path / "d" / f"part{number}" / "r.csv", levels)
    found = judged(tmp_path / "d")
    assert len(verdicts(found)) == 9
    shown = text(found).splitlines()
    assert len(shown) <= 60
    assert max(map(len, shown)) <= 100
    assert "--details" in shown[-1]
    assert len(plain(page.show(found, details=True)).splitlines()) > 200


def test_a_better_target_and_a_worse_gate_are_rejected(tmp_path: Path) -> None:
    target = measured(tmp_path / "t" / "a.csv", {"base": 50, "fix": 40}, scenario="target_scan")
    gate = tmp_path / "g" / "a.csv"
    worse = judged(target, measured(gate, {"base": 50, "fix": 60}, scenario="reverse_thp"))
    (decision,) = worse.answer.decisions
    assert (decision.decision, decision.old, decision.new) == ("REJECT", "base", "fix")
    assert "better in t_us" in decision.sentence
    assert text(worse).splitlines()[2].startswith("base -> fix: REJECT: better in")
    stored = json.loads(written("json", page, worse))
    assert stored["answer"]["decisions"][0]["decision"] == "REJECT"
    same = judged(target, measured(gate, {"base": 50, "fix": 50}, scenario="reverse_thp"))
    assert [one.decision for one in same.answer.decisions] == ["ACCEPT"]
    idle = judged(
        measured(target, {"base": 50, "fix": 50}, scenario="target_scan"),
        measured(gate, {"base": 50, "fix": 50}, scenario="reverse_thp"),
    )
    assert [one.decision for one in idle.answer.decisions] == ["REJECT"]


def test_no_gates_are_seen_where_none_are_named(tmp_path: Path) -> None:
    found = judged(measured(tmp_path / "a.csv", {"base": 50, "fix": 40}, scenario="scan"))
    assert found.answer.decisions == ()


def test_an_arm_of_several_sets_is_one_line_with_its_levels(tmp_path: Path) -> None:
    measured(tmp_path / "d" / "may" / "r.csv", {"6.16": 25, "6.17": 37})
    measured(tmp_path / "d" / "june" / "r.csv", {"6.16": 25, "6.17": 30})
    answer = judged(tmp_path / "d").answer
    spread = {one.arm: (one.reproduced, len(one.levels)) for one in answer.levels}
    assert spread == {"6.16": (True, 2), "6.17": (False, 2)}
    (line,) = answer.unlike
    assert line.startswith("6.17, t_us: ")
    assert "(d/june)" in line
    assert "(d/may)" in line


def test_a_state_that_differs_elsewhere_leaves_a_timing_undecided(tmp_path: Path) -> None:
    timing = measured(tmp_path / "d" / "timing" / "r.csv", {"6.12": 25, "6.19": 37})
    assert verdicts(judged(timing)) == [Verdict.REGRESSION]
    audit = tmp_path / "d" / "audit" / "state.csv"
    audit.parent.mkdir()
    audit.write_text("kernel,anon_huge_kb\nv6.12,0\nv6.19,16384\n")
    found = judged(tmp_path / "d")
    assert verdicts(found) == [Verdict.UNDECIDED]
    assert "anon_huge_kb 0 against 16384; here it was not audited" in found.answer.open[0]
    measured(timing, {"6.12": 25, "6.19": 37}, anon_huge_kb="0")
    assert verdicts(judged(tmp_path / "d")) == [Verdict.REGRESSION]


def test_a_figure_without_a_direction_is_never_a_step(tmp_path: Path) -> None:
    path = measured(tmp_path / "a.csv", {"6.16": 25, "6.17": 37})
    path.write_text(path.read_text().replace("t_us", "value"))
    found = judged(path)
    assert verdicts(found) == [Verdict.UNDECIDED]
    assert "nothing says which direction is better" in found.answer.open[0]
    assert any(need.startswith("unit and direction") for need in found.answer.needs)
    assert "mmtests" not in text(found)


def test_what_must_not_be_compared_has_no_change(tmp_path: Path) -> None:
    sound = measured(tmp_path / "a.csv", {"6.12": 25, "6.14": 37})
    path = measured(tmp_path / "b.csv", {"6.16": 25, "6.17": 37}, anon_huge_kb="0")
    lines = path.read_text().replace("t_us", "u_us").splitlines()
    lines = [line[:-1] + "16384" if ",6.17," in line else line for line in lines]
    path.write_text("\n".join(lines) + "\n")
    found = judged(sound, path)
    assert sorted(verdicts(found)) == [Verdict.INVALID, Verdict.REGRESSION]
    rows = [
        line.split() for line in text(found).splitlines() if line.startswith(("t_us ", "u_us "))
    ]
    assert {row[-1]: row[-2] == "-" for row in rows} == {"REGRESSION": False, "INVALID": True}


def test_arms_that_nothing_orders_are_said_to_be_so(tmp_path: Path) -> None:
    path = measured(tmp_path / "a.csv", {"zeta": 25, "alpha": 37})
    found = judged(path)
    assert [(p.old, p.new) for one in found.findings for p in one.pairs] == [("zeta", "alpha")]
    assert "nothing says which arm is the old one" in text(found)
    chosen = JudgementChoice(old="alpha", new="zeta")
    asked = judgement.judge("test", imported(path), chosen)
    assert "nothing says which arm is the old one" not in text(asked)


@pytest.mark.parametrize(
    ("head", "row", "needs"),
    [
        ("kernel,ns", "{arm},{value}", ("the boot of each value", "the order", "the page state")),
        ("kernel,boot,ns", "{arm},{boot},{value}", ("the order", "the page state")),
        ("kernel,mean_ns,sd,n", "", ("the values themselves",)),
    ],
)
def test_what_a_newcomer_lacks_is_said(
    tmp_path: Path, head: str, row: str, needs: tuple[str, ...]
) -> None:
    jitter = noise(3)
    rows = [
        row.format(arm=arm, boot=boot, value=f"{jitter.gauss(30, 2):.2f}")
        for boot in range(6)
        for arm in ("6.16", "6.17")
    ]
    rows = rows if row else ["6.16,30,2,6", "6.17,31,2,6"]
    path = tmp_path / "a.csv"
    path.write_text("\n".join([head, *rows]) + "\n")
    said = judged(path).answer.needs
    assert all(any(one.startswith(need) for one in said) for need in needs), said


def test_sets_named_as_target_and_gate_are_these_whatever_the_folder_is_called(
    tmp_path: Path,
) -> None:
    place = tmp_path / "gates"
    measured(place / "target.csv", {"base": 50, "fix": 40})
    measured(place / "reverse.csv", {"base": 50, "fix": 60})
    found = judged(place)
    (decision,) = found.answer.decisions
    assert decision.decision == "REJECT"
    assert "better in" in decision.sentence
    assert not found.answer.unlike  # other things are measured there


def test_levels_that_were_reproduced_are_a_line_with_their_spread(tmp_path: Path) -> None:
    for name, level in (("may", 25.0), ("june", 25.2)):
        measured(tmp_path / "d" / name / "r.csv", {"6.16": level, "6.17": 1.5 * level})
    found = judged(tmp_path / "d")
    assert found.answer.unlike == ()
    first, second = found.answer.reproduced
    assert first.startswith("6.16, t_us: ")
    assert first.endswith(" % apart")
    assert "(d/may)" in second
    assert f"reproduced: {first.partition(' us')[0]}" in " ".join(text(found).split())


def test_means_and_medians_stand_beside_the_estimate(tmp_path: Path) -> None:
    path = measured(tmp_path / "a.csv", {"6.16": 25, "6.17": 37})
    pair = judged(path).findings[0].pairs[0].comparison
    mean, median = (
        f"{100 * ((ratio or 0) - 1):+.2f} %" for ratio in (pair.mean_ratio, pair.median_ratio)
    )
    assert f"means {mean}, medians {median}" in text(judged(path))


@pytest.mark.parametrize(
    ("old", "new", "told", "interval"),
    [
        ("100,2", "120,3", "the published means differ by +20.00 %", True),
        ("100,0", "120,3", "6.16: a standard deviation of 0 is of a clock or a print", False),
        ("-5,1", "120,3", "6.16: a negative mean (-5)", False),
        ("100,2", "0,0", "6.17: a mean of 0, below what the clock or the print can tell", False),
    ],
)
def test_summaries_that_no_time_has_have_no_interval(
    tmp_path: Path, old: str, new: str, told: str, *, interval: bool
) -> None:
    path = tmp_path / "s.csv"
    path.write_text(f"kernel,mean_ns,sd_ns,n\n6.16,{old},9\n6.17,{new},9\n")
    found = judged(path).findings[0].pairs[0].comparison
    assert found.verdict is Verdict.UNDECIDED
    assert told in found.reasons[0]
    assert (found.interval is not None) == interval


def test_medians_alone_still_tell_the_change(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    path.write_text("kernel,median_ns,n\n6.16,100,9\n6.17,112,9\n")
    assert "medians differ by +12.00 %" in judged(path).answer.open[0]


def test_a_share_is_told_without_an_interval_where_its_pair_is_open(tmp_path: Path) -> None:
    path = measured(tmp_path / "d" / "timing" / "r.csv", {"6.12": 25, "6.16": 37, "6.17": 30})
    (share,) = (gap.share for gap in judged(path).findings[0].gaps)
    assert share.low is not None
    state = tmp_path / "d" / "audit" / "state.csv"
    state.parent.mkdir()
    state.write_text("kernel,anon_huge_kb\n6.16,0\n6.17,16384\n")
    (share,) = (gap.share for gap in judged(tmp_path / "d").findings[0].gaps)
    assert (share.low, share.reason) == (None, "6.16 -> 6.17 is UNDECIDED")


def test_one_boot_each_of_a_b_a_tells_midpoint_and_drift(tmp_path: Path) -> None:
    rows = [
        f"{turn * 9 + at},{arm},boot{turn},{level + at / 9:.3f}"
        for turn, (arm, level) in enumerate((("6.16", 100), ("6.17", 150), ("6.16", 103)))
        for at in range(9)
    ]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["order,kernel,boot,t_us", *rows]) + "\n")
    (pair,) = judged(path).findings[0].pairs
    assert pair.control == "6.16 again"
    assert pair.comparison.in_these_boots
    assert "drift +2.99 %" in pair.comparison.reasons[0]
    assert "against the midpoint of the old arms" in pair.comparison.reasons[0]


def test_values_beside_a_summary_are_no_other_metric(tmp_path: Path) -> None:
    """What the summary's runs repeated nobody said, and that made it INVALID."""
    measured(tmp_path / "d" / "a.csv", {"6.16": 25})
    (tmp_path / "d" / "b.csv").write_text("kernel,mean_t_us,sd_t_us,n\n6.17,30,0.1,9\n")
    (found,) = (pair.comparison for one in judged(tmp_path / "d").findings for pair in one.pairs)
    assert found.verdict is Verdict.UNDECIDED
    assert found.reasons[0].startswith("of 6.17 only summaries are published")
    assert found.ratio == pytest.approx(1.2, abs=0.01)
    assert found.interval is not None


def test_a_drift_of_arms_in_a_row_is_of_each_arms_part(tmp_path: Path) -> None:
    levels = {"base-a": 100, "patch": 130, "base-b": 100}
    rows = [
        f"{turn * 9 + at},{arm},{arm}/{at},{level * (1 + 0.004 * (turn * 9 + at)):.3f}"
        for turn, (arm, level) in enumerate(levels.items())
        for at in range(9)
    ]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["order,kernel,boot,t_us", *rows]) + "\n")
    shown = " ".join(text(judged(path)).split())
    assert "from the first third of each arm's part to the last" in shown
    assert "of the session to the last" not in shown


def test_rows_whose_boot_is_empty_are_one_boot(tmp_path: Path) -> None:
    """Each was counted as a boot of its own, so that two named ones made a verdict."""
    path = measured(tmp_path / "a.csv", {"6.16": 25, "6.17": 37}, status="ok")
    rows = [line.split(",") for line in path.read_text().splitlines()]
    blank = [[*row[:2], "", *row[3:]] if at > 4 else row for at, row in enumerate(rows)]
    path.write_text("".join(",".join(row) + "\n" for row in blank))
    found = judged(path)
    (pair,) = found.findings[0].pairs
    assert pair.comparison.verdict is Verdict.UNDECIDED
    assert pair.comparison.in_these_boots
    assert pair.comparison.replicates == 3
    assert any("taken as one boot" in note for note in found.notes)
    blank[6][-1], blank[8][-1] = "crashed", "crashed"  # each of these is a run that was lost
    path.write_text("".join(",".join(row) + "\n" for row in blank))
    assert {arm.arm: arm.of_planned for arm in judged(path).findings[0].arms}["6.17"] == "3/5"


def test_an_arm_is_one_with_and_without_the_v_of_its_version(tmp_path: Path) -> None:
    measured(tmp_path / "d" / "may" / "r.csv", {"6.16": 25, "6.17": 37})
    measured(tmp_path / "d" / "june" / "r.csv", {"v6.16": 31, "v6.17": 37})
    answer = judged(tmp_path / "d").answer
    assert [one.reproduced for one in answer.levels] == [False, True]
    assert "(d/june)" in answer.unlike[0]
