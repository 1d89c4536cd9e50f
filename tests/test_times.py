# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs of the time instrument as analysed and shown: verdicts, drift, stopping."""

from __future__ import annotations

import csv
import io
import json
import math
import re

import pytest
from msgspec.structs import replace

from kdelta.analysis.findings import enough_valid, report
from kdelta.journal.run import RunRecord
from kdelta.machine.axes import MachineSettings
from kdelta.machine.identity import MachineSeen
from kdelta.rendering import show as page_of
from kdelta.rendering.formats import written
from kdelta.sample import MachineFacts, Outcome, Skip, SkipKind, StateField, TimeData, TrialResult
from kdelta.study import spec
from kdelta.table import columns as page
from kdelta.verdict.comparison import Verdict
from ladder_records import failed, with_results
from timed_records import HOST, STATE, kernel, run


def verdicts(record: RunRecord) -> list[Verdict]:
    found = [arm.comparison for arm in report(record).ladders[0].rungs]
    return [comparison.verdict for comparison in found if comparison]


def test_a_slower_kernel_is_a_regression_and_the_control_its_own_noise() -> None:
    record = run([20.0, 22.0, 20.0])
    ladder = report(record).ladders[0]
    assert verdicts(record) == [Verdict.REGRESSION]
    assert [arm.comparison is None for arm in ladder.rungs] == [True, False, True]
    found = ladder.rungs[1].comparison
    assert found is not None
    assert found.sandwich is not None
    assert abs(found.sandwich.drift) < 0.02
    assert found.low is not None
    assert found.high is not None
    assert found.low < 1.1 < found.high
    assert ladder.grade == "metal-time"
    text = page.plain(page_of.show(report(record)))
    assert "REGRESSION" in text
    assert max(map(len, text.splitlines())) <= page.WIDTH


def builds(record: RunRecord) -> RunRecord:
    """The same run, a million times as long, as a build: CPU time beside the elapsed time."""

    def of_build(result: TrialResult) -> TrialResult:
        elapsed = tuple(1_000_000 * ns for ns in result.timed.phases[0].nanoseconds)
        cpu = replace(
            result.timed.phases[0], phase="user", nanoseconds=(1,) * len(elapsed), adds=False
        )
        wall = replace(cpu, phase="a", nanoseconds=elapsed, adds=True)
        return replace(result, data=TimeData(phases=(cpu, wall)))

    trials = tuple(
        replace(trial, result=of_build(trial.result)) if trial.result else trial
        for trial in record.trials
    )
    return replace(record, trials=trials)


def test_what_another_phase_holds_is_not_in_the_total() -> None:
    short, long = (run([3e3, 3.3e3, 3e3]), builds(run([3e3, 3.3e3, 3e3])))
    once, million = (report(record).ladders[0].rungs for record in (short, long))
    assert [measure.phase for measure in million[0].phases] == ["user", "a"]
    for one, other in zip(once, million, strict=True):
        assert one.total
        assert other.total
        assert other.total.per_operation == pytest.approx(1_000_000 * one.total.per_operation)
    assert verdicts(long) == [Verdict.REGRESSION]
    text = page.plain(page_of.show(report(long)))
    assert "seconds per page, median over" in text
    assert re.search(r"^host:6\.0 +0\.000 +(2\.9|3\.0)\d+ +", text, re.MULTILINE)


def test_a_total_over_unequal_operations_is_per_iteration_for_whoever_asks() -> None:
    def of_two(result: TrialResult) -> TrialResult:
        (pages,) = result.timed.phases
        calls = replace(pages, phase="b", operations=2, operation="call", nanoseconds=(7_000,) * 16)
        return replace(result, data=TimeData(phases=(pages, calls)))

    record = run([20.0, 22.0, 20.0])
    own = [replace(t, result=of_two(t.result)) for t in record.trials if t.result]
    rung = report(replace(record, trials=tuple(own))).ladders[0].rungs[0]
    assert rung.total
    assert rung.total.operation == "iteration"
    assert rung.total.per_operation == pytest.approx(20 * 4096 + 7_000, rel=0.01)


def test_what_a_fix_closes_of_the_gap_has_an_interval() -> None:
    record = run([20.0, 30.0, 24.0, 20.0])
    record = replace(record, study=replace(record.study, gap=("host:6.0", "host:6.1")))
    (ladder,) = report(record).ladders
    assert (ladder.goal, ladder.regressed) == ("host:6.0", "host:6.1")
    (share,) = (rung.share for rung in ladder.rungs if rung.share)
    assert share.value is not None
    assert share.low is not None
    assert share.high is not None
    assert share.low < 0.6 < share.high
    text = " ".join(page.plain(page_of.show(report(record))).split())
    assert f"host:6.2 closes {100 * share.value:.1f} % of host:6.0 -> host:6.1 (interval" in text
    assert not any(rung.share for rung in report(run([20.0, 30.0, 24.0, 20.0])).ladders[0].rungs)


def skipped(record: RunRecord, arms_: tuple[int, ...], scenario: str) -> RunRecord:
    """The same trials of another scenario, which these arms cannot run."""
    reason = "8 workers need as many CPUs, there are 2"
    lacking = replace(failed(Outcome.SKIP, reason), kernel=kernel(0))
    more = tuple(
        replace(
            trial, index=trial.index + len(record.trials), scenario=scenario,
            result=lacking if trial.arm in arms_ else trial.result,
        )
        for trial in record.trials
    )  # fmt: skip
    return replace(record, trials=(*record.trials, *more))


def test_a_skipped_scenario_is_neither_a_number_nor_invalid() -> None:
    whole = report(skipped(run([20.0, 22.0, 20.0]), (0, 1, 2), "eight"))
    assert [ladder.scenario for ladder in whole.ladders] == ["single_protect", "eight"]
    assert [arm.comparison for arm in whole.ladders[1].rungs] == [None, None, None]
    found = whole.ladders[0].rungs[1].comparison
    assert found is not None
    assert found.verdict is Verdict.REGRESSION
    text = page.plain(page_of.show(whole))
    part = text[text.index("mprotect:eight") :]
    assert part.split("\n")[1] == "skipped: 8 workers need as many CPUs, there are 2"
    assert "INVALID" not in text


def test_one_arm_that_skips_is_compared_with_nothing() -> None:
    record = skipped(run([20.0, 22.0, 20.0]), (1,), "eight")
    ladder = report(record).ladders[1]
    assert [bool(arm.skipped) for arm in ladder.rungs] == [False, True, False]
    assert ladder.rungs[1].comparison is None
    text = page.plain(page_of.show(report(record)))
    assert re.search(r"^host:6\.1 .* skip$", text, re.MULTILINE)
    said = " ".join(text.split())
    assert "skipped: trials 28," in said
    assert "(host:6.1): 8 workers need as many CPUs, there are 2" in said


def test_a_machine_against_itself_is_never_a_regression() -> None:
    assert verdicts(run([20.0, 20.0])) == [Verdict.SAME]
    assert verdicts(run([20.0, 20.0], rounds=3)) == [Verdict.UNDECIDED]


@pytest.mark.parametrize(
    "other",
    [
        {"state": (replace(STATE[0], value="4000"),)},
        {"state": (replace(STATE[0], value="unknown", want="same"),)},
        {"state": ()},  # it was not audited
        {"facts": MachineFacts(host=replace(HOST, governor="powersave"))},
    ],
)
def test_arms_that_differ_are_invalid(other: dict[str, object]) -> None:
    told = with_results(run([20.0, 22.0, 20.0]), lambda one: other if one.arm == 1 else {})
    assert verdicts(told) == [Verdict.INVALID]


ASKED = MachineSettings(memory_mib=16384)


@pytest.mark.parametrize(
    ("own", "other", "verdict"),
    [
        (  # what each kernel sees of one machine
            MachineFacts(
                host=replace(HOST, installed_mib=16384, seen=MachineSeen(memory_mib=16006))
            ),
            MachineFacts(
                host=replace(HOST, installed_mib=16384, seen=MachineSeen(memory_mib=16003))
            ),
            Verdict.REGRESSION,
        ),
        (MachineFacts(host=HOST), MachineFacts(host=HOST), Verdict.REGRESSION),
        (MachineFacts(host=replace(HOST, installed_mib=16384)),
         MachineFacts(host=replace(HOST, installed_mib=32768)), Verdict.INVALID),
        (MachineFacts(host=HOST, asked=ASKED, guest=MachineSeen(memory_mib=16006)),
         MachineFacts(host=HOST, asked=ASKED, guest=MachineSeen(memory_mib=16003)),
         Verdict.REGRESSION),
        (MachineFacts(host=HOST, asked=ASKED, guest=MachineSeen(memory_mib=16006)),
         MachineFacts(host=HOST, asked=MachineSettings(), guest=MachineSeen(memory_mib=16006)),
         Verdict.INVALID),
    ],
)  # fmt: skip
def test_memory_is_compared_as_it_was_asked_for_or_installed(
    own: MachineFacts, other: MachineFacts, verdict: Verdict
) -> None:
    record = run([20.0, 22.0, 20.0])
    told = with_results(record, lambda one: {"facts": other if one.arm == 1 else own})
    assert verdicts(told) == [verdict]


def test_an_objection_with_a_command_in_it_is_one_doubt() -> None:
    loop = "the energy preference is power: sh -c 'for f in a b; do echo performance > $f; done'"
    facts = MachineFacts(host=HOST, doubts=(loop, "swap is in use (5 MiB)"))
    record = with_results(run([20.0, 22.0, 20.0]), lambda _: {"facts": facts})
    assert report(record).ladders[0].doubts == (loop, "swap is in use (5 MiB)")


@pytest.mark.parametrize(("virtual", "said"), [("kvm", True), ("none", False), (None, False)])
def test_that_the_machine_is_itself_a_guest_is_said(virtual: str | None, said: bool) -> None:  # noqa: FBT001
    facts = MachineFacts(host=replace(HOST, virtualisation=virtual))
    record = with_results(run([20.0, 22.0, 20.0]), lambda _: {"facts": facts})
    assert any("is itself a guest" in text for text in report(record).limits) is said


def test_facts_that_bind_nobody_decide_nothing() -> None:
    record = run([20.0, 22.0, 20.0])

    def told(want: str) -> RunRecord:
        fact = StateField(when="during", name="pswpout", value="", want=want)
        return with_results(  # another one in each trial
            record, lambda one: {"state": (*STATE, replace(fact, value=str(one.index)))}
        )

    assert verdicts(told("free")) == [Verdict.REGRESSION]
    assert verdicts(told("same")) == [Verdict.INVALID, Verdict.INVALID]


def test_a_run_that_has_the_valid_trials_it_wants_stops() -> None:
    record = run([20.0, 20.0], rounds=8)
    broken = record.trials[0]
    trials = [t if t.round < 5 else replace(t, result=None) for t in record.trials]
    wanting = replace(
        record, study=spec.with_settings(record.study, want_valid=5), trials=tuple(trials)
    )
    assert enough_valid(wanting) == Skip(
        kind=SkipKind.NOT_NEEDED, sentence="not needed: every arm has 5 valid trials"
    )
    trials[broken.index] = replace(
        broken, result=TrialResult(outcome=Outcome.GUEST_ERROR, reasons=("panic",))
    )
    assert enough_valid(replace(wanting, trials=tuple(trials))) is None


def test_trials_that_were_not_needed_are_not_missing() -> None:
    record = run([20.0, 21.0, 20.0], rounds=8)
    left = TrialResult(
        outcome=Outcome.SKIP, skip=Skip(kind=SkipKind.NOT_NEEDED, sentence="not needed")
    )
    trials = tuple(t if t.round < 5 else replace(t, result=left) for t in record.trials)
    (ladder,) = report(replace(record, trials=trials)).ladders
    assert (ladder.rungs[1].ok, len(ladder.rungs[1].trials)) == (5, 5)
    assert ladder.failures == ()


def test_many_scenarios_are_one_family() -> None:
    record = run([20.0, 20.3, 20.0])
    alone = verdicts(record)
    names = [f"s{number}" for number in range(12)]
    trials = [
        replace(trial, index=at * 1000 + trial.index, scenario=name)
        for at, name in enumerate(names)
        for trial in record.trials
    ]
    family = report(replace(record, trials=tuple(trials)))
    judged = [ladder.rungs[1].comparison for ladder in family.ladders]
    assert all(each is not None for each in judged)
    steps = sum(each.verdict.is_step for each in judged if each)
    assert steps <= 12 * sum(verdict.is_step for verdict in alone)
    assert len(judged) == len(names)


def test_json_and_csv_hold_the_same_figures() -> None:
    whole = report(run([20.0, 22.0, 20.0]))
    content = json.loads(written("json", page_of, whole))
    rows = list(csv.DictReader(io.StringIO(written("csv", page_of, whole))))
    totals = [row for row in rows if row["phase"] == "total"]
    assert [row["verdict"] for row in totals] == ["", "REGRESSION", ""]
    shown = content["ladders"][0]["arms"][1]["comparison"]
    assert float(totals[1]["ratio_first"]) == shown["ratio"]
    assert (content["format"], content["kind"]) == (1, "show-time")


def test_an_interval_without_a_bound_is_null_in_json_and_empty_in_csv() -> None:
    record = run([20.0, 22.0, 20.0], rounds=5)
    whole = report(replace(record, study=spec.with_settings(record.study, alpha=1e-6)))
    found = whole.ladders[0].rungs[1].comparison
    assert found is not None
    assert found.high == math.inf
    content = json.loads(written("json", page_of, whole))
    assert content["ladders"][0]["arms"][1]["comparison"]["high"] is None
    rows = list(csv.DictReader(io.StringIO(written("csv", page_of, whole))))
    assert [row["high"] for row in rows] == ["", "", ""]


def test_another_tolerance_needs_no_new_run() -> None:
    record = run([20.0, 20.8, 20.0])
    assert verdicts(record) == [Verdict.REGRESSION]
    (ladder,) = report(record, step_percent=10).ladders
    assert ladder.rungs[1].comparison
    assert ladder.rungs[1].comparison.verdict is Verdict.SAME
    assert "within 0.1 of 1" in page.plain(page_of.show(report(record, step_percent=10)))


def test_trials_of_one_kernel_on_machines_that_differ_are_invalid() -> None:
    record = run([20.0, 22.0, 20.0])
    slow = MachineFacts(host=replace(HOST, governor="powersave"))
    told = with_results(record, lambda one: {"facts": slow} if one.index in (1, 4) else {})
    found = report(told).ladders[0].rungs[1].comparison
    assert found
    assert found.verdict is Verdict.INVALID
    assert "governor (" in found.reasons[0]
