# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs of the time instrument as analysed and shown: verdicts, drift, early stopping."""

from __future__ import annotations

import csv
import io
import json
import math
import random
import re

import pytest
from msgspec.structs import replace

from kdelta.analysis import findings, judgement, times
from kdelta.analysis.compat import benchfmt
from kdelta.errors import SpecError
from kdelta.journal.run import RunRecord
from kdelta.rendering import beside, judge
from kdelta.rendering import columns as page
from kdelta.rendering import times as timed_page
from kdelta.run import arms
from kdelta.sample import (
    Environment,
    ExactData,
    HostFacts,
    Instrument,
    KernelIdentity,
    MachineFacts,
    MachineSeen,
    Outcome,
    PhaseCounts,
    PhaseTimes,
    Skip,
    SkipKind,
    StateField,
    TimeData,
    TrialResult,
)
from kdelta.stats.verdict import Verdict
from kdelta.study import plan, spec
from ladder_records import failed

HOST = HostFacts(
    cpu_model="A CPU",
    governor="performance",
    virtualisation="none",
    seen=MachineSeen(thp="always"),
)
STATE = (StateField(when="before", name="present_pages", value="4096", want="4096"),)
ENVIRONMENT = Environment(
    accelerator="tcg",
    qemu_version="10.0.2",
    plugin_sha256="0" * 64,
    machine="q35",
    cpu_model="max",
    cpus=1,
    memory_mib=1024,
    cmdline="quiet",
    mitigations="",
)


def kernel(arm: int) -> KernelIdentity:
    return KernelIdentity(
        reference=f"host:6.{arm}",
        release=f"6.{arm % 3}.1",
        version="",
        arch="amd64",
        flavour="host",
        image_sha256="",
    )


def run(levels: list[float], *, rounds: int = 9, sequential: bool = False) -> RunRecord:
    """A run of arms whose samples lie around levels[arm] ns a page; the last arm is the control."""
    names = [f'"host:6.{arm}"' for arm in range(len(levels) - 1)]
    study = spec.from_text(
        'name = "t"\ntitle = "t"\ninstrument = "time"\nscenarios = ["mprotect:single_protect"]\n'
        f"kernels = [{', '.join(names)}]\n[plan]\nrounds = {rounds}\n"
        f'[time]\nreplicate = "boot"\nsequential = {str(sequential).lower()}\n',
        "t.toml",
    )
    noise = random.Random(7)  # noqa: S311  seeded noise
    trials = []
    for trial in plan.make_plan(study, 1).trials:
        boot = levels[trial.arm] * noise.gauss(1, 0.01)
        samples = tuple(int(boot * 4096 * noise.gauss(1, 0.003)) for _ in range(16))
        result = TrialResult(
            outcome=Outcome.OK,
            kernel=kernel(trial.arm),
            data=TimeData(
                phases=(
                    PhaseTimes(phase="a", operations=4096, operation="page", nanoseconds=samples),
                )
            ),
            state=STATE,
            facts=MachineFacts(host=replace(HOST, boot_id=f"b{trial.index}")),
        )
        trials.append(replace(trial, attempts=1, result=result))
    return RunRecord(
        run_id="t-1",
        name="t",
        title="t",
        seed=1,
        rounds=rounds,
        created="2026-01-01",
        kdelta_version="0",
        study=study,
        arms=arms.records(study, None),
        trials=tuple(trials),
    )


def verdicts(record: RunRecord) -> list[Verdict]:
    found = [arm.comparison for arm in times.report(record).ladders[0].arms]
    return [comparison.verdict for comparison in found if comparison]


def test_a_slower_kernel_is_a_regression_and_the_control_its_own_noise() -> None:
    record = run([20.0, 22.0, 20.0])
    ladder = times.report(record).ladders[0]
    assert verdicts(record) == [Verdict.REGRESSION]
    assert [arm.comparison is None for arm in ladder.arms] == [True, False, True]
    found = ladder.arms[1].comparison
    assert found is not None
    assert found.sandwich is not None
    assert abs(found.sandwich.drift) < 0.02
    assert found.low is not None
    assert found.high is not None
    assert found.low < 1.1 < found.high
    assert ladder.grade == "metal-time"
    text = page.plain(timed_page.show(times.report(record)))
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
    once, million = (times.report(record).ladders[0].arms for record in (short, long))
    assert [name for name, _ in million[0].phases] == ["user", "a", "total"]
    for one, other in zip(once, million, strict=True):
        assert one.total.median is not None
        assert other.total.median == pytest.approx(1_000_000 * one.total.median)
    assert verdicts(long) == [Verdict.REGRESSION]
    text = page.plain(timed_page.show(times.report(long)))
    assert "seconds per page, median over" in text
    assert re.search(r"^host:6\.0 +0\.000 +(2\.9|3\.0)\d+ +", text, re.MULTILINE)


def test_what_a_fix_closes_of_the_gap_has_an_interval() -> None:
    record = run([20.0, 30.0, 24.0, 20.0])
    study = replace(record.study, gap=("host:6.0", "host:6.1"))
    record = replace(record, study=study)
    (ladder,) = times.report(record).ladders
    assert ladder.gap == "host:6.0 -> host:6.1"
    (share,) = ladder.shares
    assert share.value is not None
    assert share.low is not None
    assert share.high is not None
    assert share.low < 0.6 < share.high
    text = " ".join(page.plain(timed_page.show(times.report(record))).split())
    assert f"host:6.2 closes {100 * share.value:.1f} % of host:6.0 -> host:6.1 (interval" in text
    assert times.report(run([20.0, 30.0, 24.0, 20.0])).ladders[0].shares == ()


def skipped(record: RunRecord, arms_: tuple[int, ...], scenario: str) -> RunRecord:
    """The same trials of another scenario, which these arms cannot run."""
    reason = "8 workers need as many CPUs, there are 2"
    lacking = replace(failed(Outcome.SKIP, reason), kernel=kernel(0))
    more = tuple(
        replace(
            trial,
            index=trial.index + len(record.trials),
            scenario=scenario,
            result=lacking if trial.arm in arms_ else trial.result,
        )
        for trial in record.trials
    )
    return replace(record, trials=(*record.trials, *more))


def test_a_skipped_scenario_is_neither_a_number_nor_invalid() -> None:
    report = times.report(skipped(run([20.0, 22.0, 20.0]), (0, 1, 2), "eight"))
    assert [ladder.scenario for ladder in report.ladders] == ["single_protect", "eight"]
    assert [arm.comparison for arm in report.ladders[1].arms] == [None, None, None]
    found = report.ladders[0].arms[1].comparison
    assert found is not None
    assert found.verdict is Verdict.REGRESSION
    text = page.plain(timed_page.show(report))
    part = text[text.index("mprotect:eight") : text.index("Limits")]
    assert part.split("\n", 1)[1].strip() == "skipped: 8 workers need as many CPUs, there are 2"
    assert "INVALID" not in text


def test_one_arm_that_skips_is_compared_with_nothing() -> None:
    record = skipped(run([20.0, 22.0, 20.0]), (1,), "eight")
    ladder = times.report(record).ladders[1]
    assert [bool(arm.skipped) for arm in ladder.arms] == [False, True, False]
    assert ladder.arms[1].comparison is None
    text = page.plain(timed_page.show(times.report(record)))
    assert re.search(r"^host:6\.1 .* skip$", text, re.MULTILINE)
    assert "skipped: host:6.1: 8 workers need as many CPUs, there are 2" in text


def test_a_machine_against_itself_is_never_a_regression() -> None:
    assert verdicts(run([20.0, 20.0])) == [Verdict.SAME]
    assert verdicts(run([20.0, 20.0], rounds=3)) == [Verdict.UNDECIDED]


def test_a_drift_of_the_control_decides_nothing() -> None:
    assert verdicts(run([20.0, 22.0, 21.5])) == [Verdict.UNDECIDED]


@pytest.mark.parametrize("broken", ["state", "facts"])
def test_arms_that_differ_are_invalid(broken: str) -> None:
    record = run([20.0, 22.0, 20.0])
    other = {
        "state": {"state": (replace(STATE[0], value="4000"),)},
        "facts": {"facts": MachineFacts(host=replace(HOST, governor="powersave"))},
    }[broken]
    trials = tuple(
        replace(trial, result=replace(trial.result, **other))  # type: ignore[type-var,arg-type]
        if trial.arm == 1
        else trial
        for trial in record.trials
    )
    assert verdicts(replace(record, trials=trials)) == [Verdict.INVALID]


def with_facts(record: RunRecord, facts: MachineFacts) -> RunRecord:
    """The run with other facts of its trials' machine."""
    own = [replace(t, result=replace(t.result, facts=facts)) for t in record.trials if t.result]
    return replace(record, trials=tuple(own))


def test_an_objection_with_a_command_in_it_is_one_doubt() -> None:
    loop = "the energy preference is power: sh -c 'for f in a b; do echo performance > $f; done'"
    facts = MachineFacts(host=HOST, doubts=(loop, "swap is in use (5 MiB)"))
    record = with_facts(run([20.0, 22.0, 20.0]), facts)
    assert times.report(record).ladders[0].doubts == (loop, "swap is in use (5 MiB)")


@pytest.mark.parametrize(("virtual", "said"), [("kvm", True), ("none", False), (None, False)])
def test_that_the_machine_is_itself_a_guest_is_said(virtual: str | None, said: bool) -> None:  # noqa: FBT001
    facts = MachineFacts(host=replace(HOST, virtualisation=virtual))
    record = with_facts(run([20.0, 22.0, 20.0]), facts)
    found = any("is itself a guest" in text for text in times.report(record).limits)
    assert found is said


def test_facts_that_bind_nobody_decide_nothing() -> None:
    record = run([20.0, 22.0, 20.0])

    def told(want: str) -> RunRecord:
        trials = []
        for trial in record.trials:
            value = str(trial.index)  # another one in each trial
            fact = StateField(when="during", name="pswpout", value=value, want=want)
            assert trial.result
            trials.append(replace(trial, result=replace(trial.result, state=(*STATE, fact))))
        return replace(record, trials=tuple(trials))

    assert verdicts(told("free")) == [Verdict.REGRESSION]
    assert verdicts(told("same")) == [Verdict.INVALID]


def test_a_sequential_run_stops_when_all_is_decided_and_pays_for_its_looks() -> None:
    record = run([20.0, 30.0, 20.0], rounds=12, sequential=True)

    def after(rounds: int) -> RunRecord:
        kept = (t if t.round < rounds else replace(t, result=None) for t in record.trials)
        return replace(record, trials=tuple(kept))

    assert times.decided(after(4)) is None
    stops = [rounds for rounds in range(5, 12) if times.decided(after(rounds))][:1]
    assert stops
    assert times.decided(record) is None
    assert times.report(after(stops[0])).alpha < 0.01
    fixed = spec.with_settings(record.study, sequential=False)
    assert times.decided(replace(after(stops[0]), study=fixed)) is None


def test_a_run_that_has_the_valid_trials_it_wants_stops() -> None:
    record = run([20.0, 20.0], rounds=8)
    broken = record.trials[0]
    trials = [t if t.round < 5 else replace(t, result=None) for t in record.trials]
    wanting = replace(
        record, study=spec.with_settings(record.study, want_valid=5), trials=tuple(trials)
    )
    assert times.decided(wanting) == Skip(
        kind=SkipKind.NOT_NEEDED, sentence="not needed: every arm has 5 valid trials"
    )
    trials[broken.index] = replace(
        broken, result=TrialResult(outcome=Outcome.GUEST_ERROR, reasons=("panic",))
    )
    assert times.decided(replace(wanting, trials=tuple(trials))) is None


def test_many_scenarios_are_one_family() -> None:
    record = run([20.0, 20.3, 20.0])
    alone = verdicts(record)
    names = [f"s{number}" for number in range(12)]
    trials = [
        replace(trial, index=at * 1000 + trial.index, scenario=name)
        for at, name in enumerate(names)
        for trial in record.trials
    ]
    family = times.report(replace(record, trials=tuple(trials)))
    judged = [ladder.arms[1].comparison for ladder in family.ladders]
    assert all(each is not None for each in judged)
    steps = sum(each.verdict.is_step for each in judged if each)
    assert steps <= 12 * sum(verdict.is_step for verdict in alone)
    assert len(judged) == len(names)


def test_other_tools_see_the_same_samples() -> None:
    record = run([20.0, 22.0, 20.0])
    cases = times.cases(record)
    assert [case.metric.name for case in cases] == ["total_ns_per_page"]
    lines = benchfmt.lines((case.group, case.metric, case.series) for case in cases)
    assert lines[0] == "Unit ns/page assume=nothing better=lower"
    assert sum(line.startswith("Benchmark") for line in lines) == 3 * 9 * 16
    found = judgement.beside(cases, times.report(record).ladders[0].grade, tolerance=0.02)
    text = page.plain(judge.others(found))
    assert "mmtests" in text
    assert max(map(len, text.splitlines())) <= page.WIDTH


def test_json_and_csv_hold_the_same_figures() -> None:
    report = times.report(run([20.0, 22.0, 20.0]))
    content = json.loads(timed_page.show_json(report))
    rows = list(csv.DictReader(io.StringIO(timed_page.show_csv(report))))
    totals = [row for row in rows if row["phase"] == "total"]
    assert [row["verdict"] for row in totals] == ["", "REGRESSION", ""]
    shown = content["ladders"][0]["arms"][1]["comparison"]
    assert float(totals[1]["ratio_first"]) == shown["ratio"]
    assert (content["format"], content["kind"]) == (1, "show-time")


def test_an_interval_without_a_bound_is_null_in_json_and_empty_in_csv() -> None:
    record = run([20.0, 22.0, 20.0], rounds=5)
    strict = replace(record, study=spec.with_settings(record.study, alpha=1e-6))
    report = times.report(strict)
    found = report.ladders[0].arms[1].comparison
    assert found is not None
    assert found.high == math.inf
    content = json.loads(timed_page.show_json(report))
    assert content["ladders"][0]["arms"][1]["comparison"]["high"] is None
    rows = list(csv.DictReader(io.StringIO(timed_page.show_csv(report))))
    assert [row["high"] for row in rows] == ["", "", ""]


def test_no_spreadsheet_takes_a_reason_for_a_formula() -> None:
    text = timed_page.show_csv(times.report(run([20.0, 22.0, 20.0])))
    reasons = [row["reasons"] for row in csv.DictReader(io.StringIO(text))]
    assert reasons[1].startswith("'+9.71 %")


def exact_run(timed: RunRecord) -> RunRecord:
    """The same kernels counted: 300 instructions a page, then 670."""
    counts = {0: 300, 1: 670}
    trials = [
        replace(
            trial,
            result=TrialResult(
                outcome=Outcome.OK,
                kernel=kernel(trial.arm),
                environment=ENVIRONMENT,
                state=STATE,
                data=ExactData(
                    phases=(
                        PhaseCounts(
                            phase="a",
                            operations=4096,
                            operation="page",
                            user=(0,) * 4,
                            kernel=(counts[trial.arm] * 4096,) * 4,
                        ),
                    )
                ),
            ),
        )
        for trial in timed.trials
        if trial.round == 0 and trial.arm in counts
    ]
    return replace(
        timed,
        run_id="e-1",
        study=replace(timed.study, instrument=Instrument.EXACT),
        rounds=1,
        trials=tuple(trials),
    )


def test_path_length_and_time_stand_side_by_side() -> None:
    timed = run([20.0, 28.0, 20.0])
    lines = beside.show(findings.report(exact_run(timed)), times.report(timed))
    text = " ".join(page.plain(lines).split())
    assert "executes 2.23x the instructions of" in text
    assert "it takes 1.39x the time" in text
    assert "(metal-time)" in text
    strangers = replace(
        timed,
        trials=tuple(
            replace(t, result=replace(t.result, kernel=replace(kernel(0), release=f"9.{t.arm}")))
            for t in timed.trials
            if t.result
        ),
    )
    with pytest.raises(SpecError, match="no scenario with a kernel in common"):
        beside.show(findings.report(exact_run(timed)), times.report(strangers))
