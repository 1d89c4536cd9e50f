# SPDX-License-Identifier: GPL-2.0-or-later
"""Bisection over points in a row: what is measured, kept, gone on with, and said in the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bisect_bench import (
    BOOT_FAILURE,
    Bench,
    MachineFaultError,
    counted,
    journal,
    of_releases,
    question,
)
from kdelta.bisect import journal as journals
from kdelta.bisect.evidence import BisectionResult, Ending, Findings, PointCounting, boots, record
from kdelta.bisect.search import Likeness, Mark
from kdelta.errors import InfraError, StoreError
from kdelta.journal import results
from kdelta.journal.files import held
from kdelta.kernels.kernel import Kernel
from kdelta.rendering.bisection import document, sentence, show
from kdelta.sample import KernelIdentity, TrialResult
from kdelta.table.columns import plain

GOOD, BAD = 301.7, 669.8
Values = Mapping[str, float | TrialResult | Exception]


def named(values: Sequence[float | TrialResult | Exception]) -> Values:
    return {f"k{at}": value for at, value in enumerate(values)}


def searched(root: Path, values: Values) -> tuple[BisectionResult, journals.Journal, Bench]:
    own, bench = journal(root, list(values)), Bench(values)
    return of_releases(own, bench).run(), own, bench


def pair(found: BisectionResult) -> tuple[str, str]:
    return found.good.key, found.bad.key


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_single_step_is_found_anywhere(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    count = data.draw(st.integers(2, 20))
    bad = data.draw(st.integers(1, count - 1))
    values = named([GOOD if at < bad else BAD for at in range(count)])
    found, own, _ = searched(tmp_path_factory.mktemp("runs"), values)
    assert pair(found) == (f"k{bad - 1}", f"k{bad}")
    assert found.ending is Ending.STEP
    assert found.share == pytest.approx(1)
    assert boots(own) <= 2 + (count - 2).bit_length()


def test_values_near_an_end_are_like_it(tmp_path: Path) -> None:
    values = named([293.4, 301.3, 301.3, 301.3, 669.4, 692.2, 696.0, 695.9, 700.5])
    found, own, _ = searched(tmp_path, values)
    assert pair(found) == ("k3", "k4")
    assert found.comparison is not None
    assert found.comparison.ratio == pytest.approx(669.4 / 301.3, rel=1e-4)
    assert {step.standing for step in own.state.steps[2:]} <= {Likeness.SAME, Likeness.DIFFERENT}
    seen = {(change.old.key, change.new.key): change.between for change in found.others}
    assert all(between >= 0 for between in seen.values())
    assert ("k3", "k4") not in seen


def test_what_does_not_boot_is_left_out(tmp_path: Path) -> None:
    values = named([GOOD] * 4 + [BOOT_FAILURE, BOOT_FAILURE] + [BAD] * 3)
    found, own, _ = searched(tmp_path, values)
    assert found.ending is Ending.RANGE
    assert pair(found) == ("k3", "k6")
    assert [point.key for point in found.skipped] == ["k4", "k5"]
    assert own.steps["k4"].why == "boot-error: it panicked"
    assert "k4, k5 between them could not be measured" in sentence(found, Findings(own))


def test_a_second_step_is_told_and_the_larger_one_found(tmp_path: Path) -> None:
    values = named([100.0] * 4 + [170.0] * 4 + [400.0] * 9)
    found, own, _ = searched(tmp_path, values)
    assert pair(found) == ("k7", "k8")
    assert found.share == pytest.approx(0.617, abs=0.001)
    assert [(c.old.key, c.new.key) for c in found.others] == [("k0", "k4")]
    standings = {key: step.standing for key, step in own.steps.items() if key in ("k4", "k6", "k7")}
    assert set(standings.values()) == {Likeness.UNKNOWN}
    assert "like neither end" in own.steps["k4"].why


def test_equal_steps_do_not_end_at_the_smallest(tmp_path: Path) -> None:
    values = named([100.0, 100.0, 195.0, 205.0, 400.0, 400.0])
    found, _, _ = searched(tmp_path, values)
    assert found.share is not None
    assert found.share > 0.4


def test_many_small_changes_are_no_step(tmp_path: Path) -> None:
    values = named([100 * 1.009**at for at in range(17)])
    found, own, _ = searched(tmp_path, values)
    assert found.ending is Ending.GRADUAL
    assert "no single change" in sentence(found, Findings(own))


def test_ends_that_do_not_differ_are_an_answer(tmp_path: Path) -> None:
    found, own, _ = searched(tmp_path, named([GOOD, BAD, GOOD * 1.001]))
    assert found.ending is Ending.SAME
    assert boots(own) == 2
    assert "do not differ" in sentence(found, Findings(own))


@pytest.mark.parametrize(("at", "side", "boots_used"), [(0, "good", 1), (2, "bad", 2)])
def test_an_end_that_does_not_boot_is_invalid(
    tmp_path: Path, at: int, side: str, boots_used: int
) -> None:
    values: list[float | TrialResult | Exception] = [GOOD, GOOD, BAD]
    values[at] = BOOT_FAILURE
    found, own, _ = searched(tmp_path, named(values))
    assert found.ending is Ending.INVALID
    assert boots(own) == boots_used
    assert f"the {side} end k{at} cannot be measured: boot-error" in sentence(found, Findings(own))


def test_a_kernel_that_cannot_be_had_is_tried_again_later(tmp_path: Path) -> None:
    values = dict(named([GOOD, GOOD, GOOD, BAD, BAD]))
    values["k2"] = InfraError("the mirror no longer has it")
    found, own, bench = searched(tmp_path, values)
    assert found.ending is Ending.RANGE
    assert pair(found) == ("k1", "k3")
    assert own.steps["k2"].temporary
    before = len(bench.asked)
    bench.values = {**values, "k2": GOOD}
    again = of_releases(own, bench).run()
    assert pair(again) == ("k2", "k3")
    assert bench.asked[before:] == ["k2"]


def test_two_in_a_row_that_cannot_be_had_mean_that_the_mirror_is_away(tmp_path: Path) -> None:
    away = InfraError("no route")
    with pytest.raises(InfraError, match="no route"):
        searched(tmp_path, named([GOOD, away, away, away, BAD]))


def test_a_fault_of_this_machine_ends_it_and_the_next_call_goes_on(tmp_path: Path) -> None:
    values = dict(named([GOOD] * 8 + [BAD] * 9))
    own = journal(tmp_path, list(values))
    bench = Bench({**values, "k4": MachineFaultError("no memory")})
    with pytest.raises(InfraError):
        of_releases(own, bench).run()
    found = journals.find(tmp_path, question())
    assert found is not None
    assert found.state == own.state
    fresh = Bench(values)
    result = of_releases(found, fresh).run()
    assert pair(result) == ("k7", "k8")
    assert fresh.asked[0] == "k4"
    assert not set(fresh.asked[1:]) & set(bench.asked)


class Killed(BaseException):
    """Stands for a kill: nothing after it runs."""


@pytest.mark.parametrize("survived", range(1, 6))
def test_a_kill_at_any_point_costs_one_measurement(tmp_path: Path, survived: int) -> None:
    values = named([GOOD] * 5 + [BAD] * 12)
    _, _, whole = searched(tmp_path / "whole", values)
    own, bench = journal(tmp_path / "killed", list(values)), Bench(values)

    def measure(kernel: Kernel, trial: int, folder: Path) -> TrialResult:
        if len(bench.asked) == survived:
            raise Killed
        return bench.measure(kernel, trial, folder)

    search = of_releases(own, bench)
    search.instrument = PointCounting(own, measure)
    with pytest.raises(Killed):
        search.run()
    again = journals.find(tmp_path / "killed", question())
    assert again is not None
    result = of_releases(again, bench).run()
    assert pair(result) == ("k4", "k5")
    assert bench.asked == whole.asked


def test_an_ended_bisection_answers_without_measuring(tmp_path: Path) -> None:
    first, own, bench = searched(tmp_path, named([GOOD, GOOD, BAD]))
    count = len(bench.asked)
    again = of_releases(own, bench).run()
    assert again == first
    assert len(bench.asked) == count


def test_one_phase_can_be_bisected_alone(tmp_path: Path) -> None:
    values = named([GOOD, GOOD, BAD])
    own = journal(tmp_path, list(values), question(phase="touch"))
    bench = Bench(values)
    found = of_releases(own, bench).run()
    assert found.ending is Ending.SAME
    assert Findings(own).value(found.good) == 100


def test_a_phase_that_is_not_there_is_said(tmp_path: Path) -> None:
    own = journal(tmp_path, ["k0", "k1"], question(phase="nonsense"))
    bench = Bench(named([GOOD, BAD]))
    found = of_releases(own, bench).run()
    assert found.ending is Ending.INVALID
    assert "no phase nonsense" in found.reasons[0]


def test_the_page_and_the_data(tmp_path: Path) -> None:
    values = named([GOOD, GOOD, BOOT_FAILURE, GOOD, BAD, BAD])
    found, own, _ = searched(tmp_path, values)
    text = shown(own, found)
    assert (
        "The change is between k3 and k4: 301.7 -> 669.8 instructions per page (+122.0 %)" in text
    )
    assert "6 kernels" in text
    counts = PointCounting(own, Bench({}).measure).findings()
    data = document(counts, found)
    assert data["good"] == {"key": "k3", "label": "k3", "value": pytest.approx(301.7, rel=1e-3)}
    assert data["boots"] == boots(own)
    assert [step["key"] for step in data["steps"]] == [step.key for step in own.state.steps]


def shown(own: journals.Journal, found: BisectionResult) -> str:
    counts = PointCounting(own, Bench({}).measure).findings()
    lines = show(counts, found, points=f"{len(own.state.points)} kernels")
    return " ".join(plain(lines).split())


def test_the_record_is_a_run_of_the_booted_points_in_order(tmp_path: Path) -> None:
    _, own, _ = searched(tmp_path, named([GOOD] * 6 + [BAD] * 3))
    run = record(own)
    labels = [arm.label for arm in run.arms]
    assert labels == sorted(labels)
    assert len(run.trials) == len(run.arms) == boots(own)
    assert all(trial.result for trial in run.trials)


def test_a_bisection_is_found_by_what_it_asks(tmp_path: Path) -> None:
    own = journal(tmp_path, ["a", "b"])
    found = journals.find(tmp_path, question())
    assert found is not None
    assert found.folder == own.folder
    assert journals.find(tmp_path, question(phase="other")) is None
    assert journals.find(tmp_path / "nowhere", question()) is None


@pytest.mark.parametrize("content", [b"", b"{}", b'{"format": 1', b"\xff", b"[" * 100_000])
def test_a_damaged_journal_is_left_out(tmp_path: Path, content: bytes) -> None:
    own = journal(tmp_path, ["a", "b"])
    (own.folder / journals.BISECTIONS.file).write_bytes(content)
    assert journals.find(tmp_path, question()) is None


def test_a_journal_that_was_tampered_with_is_left_out(tmp_path: Path) -> None:
    own = journal(tmp_path, ["a", "b"])
    path = own.folder / journals.BISECTIONS.file
    path.write_bytes(path.read_bytes().replace(b'"phase":"total"', b'"phase":"touch"'))
    assert journals.find(tmp_path, question()) is None
    assert journals.find(tmp_path, question(phase="touch")) is None


@pytest.mark.parametrize(
    ("steps", "labels"),
    [
        ([("a", Mark.BAD, (0,), "")], "ab"),
        ([("b", Mark.GOOD, (0,), "")], "ab"),
        ([("a", Mark.GOOD, (), "")], "ab"),
        ([("a", Mark.GOOD, (), "a")], "ab"),
        ([("a", Mark.GOOD, (0,), ""), ("b", Mark.BAD, (0,), "")], "ab"),
        ([("x", Mark.SKIP, (), "")], "ab"),
        ([], "aa"),
        ([], "a"),
    ],
)
def test_steps_that_no_search_takes_are_left_out(
    tmp_path: Path, steps: list[tuple[str, Mark, tuple[int, ...], str]], labels: str
) -> None:
    own = journal(tmp_path, ["a", "b"])
    points = tuple(journals.Point(key=each, label=each) for each in labels)
    taken = (
        journals.BisectStep(key=key, mark=mark, trials=trials, same_as=same)
        for key, mark, trials, same in steps
    )
    own.write(steps=tuple(taken), points=points)
    assert journals.find(tmp_path, question()) is None


def test_only_one_process_bisects(tmp_path: Path) -> None:
    own = journal(tmp_path, ["a", "b"])
    with (
        held(own.folder),
        pytest.raises(StoreError, match="is being executed by process"),
        held(own.folder),
    ):
        pass
    with held(own.folder):
        pass


def test_a_result_that_is_gone_is_said(tmp_path: Path) -> None:
    _, own, _ = searched(tmp_path, named([GOOD, BAD]))
    (own.folder / "trials" / "0000" / "result.json").unlink()
    with pytest.raises(StoreError, match=r"trial 0 is gone.*--new"):
        record(own)


def test_news_come_before_and_after_each_point(tmp_path: Path) -> None:
    _, own, bench = searched(tmp_path, named([GOOD, GOOD, BAD]))
    assert [news.step is None for news in bench.told] == [True, False] * 3
    assert bench.told[-1].value == pytest.approx(GOOD, rel=1e-3)
    assert own.steps["k1"].mark is Mark.GOOD


def test_a_result_is_read_again_only_when_its_file_was_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, reads, kept = journal(tmp_path, ["a", "b"]), [], results.kept

    def noted(
        folder: Path, run: str, index: int, of: KernelIdentity | None
    ) -> results.KeptResult | None:
        reads.append(index)
        return kept(folder, run, index, of)

    monkeypatch.setattr(results, "kept", noted)
    own.keep(0, counted(GOOD))
    own.keep(1, counted(BAD))
    assert [own.result(trial) for trial in (0, 1, 0)] == list(map(counted, (GOOD, BAD, GOOD)))
    assert reads == [0, 1]
    own.keep(0, counted(BAD))
    assert own.result(0) == counted(BAD)
    assert reads == [0, 1, 0]
    results.forget(own.folder, 1)
    with pytest.raises(StoreError, match="the result of trial 1 is gone"):
        own.result(1)
