# SPDX-License-Identifier: GPL-2.0-or-later
"""The audit of a run: asked for and seen, wanted and found, as table and as KTAP."""

from __future__ import annotations

import json
import re

import pytest
from msgspec.structs import replace

import ladder_records as records
from kdelta.analysis.audit import Answer, Audit, audited
from kdelta.journal.run import RunRecord
from kdelta.machine.axes import MachineSettings
from kdelta.machine.identity import MachineSeen
from kdelta.rendering import audit
from kdelta.rendering.formats import written
from kdelta.sample import MachineFacts, Outcome, StateField, TrialResult
from kdelta.table import columns as page

ASKED = MachineSettings(cpus=2, cmdline="mem=1G")
SEEN = MachineSeen(
    cpus=2, memory_mib=983, cmdline=ASKED.full_cmdline, thp="always", preempt="lazy",
    clocksource="tsc",
)  # fmt: skip


def result(
    *state: StateField, asked: MachineSettings = ASKED, seen: MachineSeen = SEEN
) -> TrialResult:
    good = records.result(records.trial_of("6.17.13"))
    facts = MachineFacts(asked=asked, guest=seen, workload_exit=0)
    return replace(good, facts=facts, state=state or good.state)


def fact(name: str, value: str, want: str, when: str = "before") -> StateField:
    return StateField(when=when, name=name, value=value, want=want)


def text(found: Audit, *, every: bool = False) -> str:
    return page.plain(audit.show(found, every=every))


def run(**arms: TrialResult | None) -> RunRecord:
    return records.run({f"6.{label[1:]}": [one] for label, one in arms.items()})


def test_a_clean_run_passes() -> None:
    found = audited(run(k16=result(), k17=result()))
    assert found.passed
    assert (found.all_cpu_match, found.any_noapic) == (Answer.YES, Answer.NO)
    assert (found.all_init_exit0, found.all_semantic_ok) == (Answer.YES, Answer.YES)
    assert (found.completed, found.planned) == (2, 2)
    assert "completed 2/2" in text(found)
    assert text(found).startswith("As the study asks: 2 of 2 trials ended well, machines and page")


@pytest.mark.parametrize(
    ("broken", "flag"),
    [
        (result(seen=replace(SEEN, cpus=1)), "all_cpu_match no"),
        (result(asked=replace(ASKED, cmdline="noapic"),
                seen=replace(SEEN, cmdline=replace(ASKED, cmdline="noapic").full_cmdline)),
         "any_noapic yes"),
        (result(fact("thp_pages", "512", "0")), "all_semantic_ok no"),
        (result(fact("thp_pages", "unknown", "0")), "all_semantic_ok no"),
        (replace(result(), state=()), "all_semantic_ok no"),
        (records.failed(Outcome.GUEST_ERROR, "panic"), "all_init_exit0 no"),
        (None, "completed 1/2"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_flagged(broken: TrialResult | None, flag: str) -> None:
    found = audited(run(k16=result(), k17=broken))
    assert not found.passed
    assert flag in text(found)
    said = " ".join(text(found).split())
    assert re.match(r"NOT as the study asks: [12] of 2 trials ended well(; [\w ']+)* \(run", said)


def test_what_was_not_recorded_is_unknown_and_never_yes() -> None:
    found = audited(run(k16=replace(result(), facts=None)))
    assert found.all_cpu_match is Answer.UNKNOWN
    assert found.any_noapic is Answer.UNKNOWN


def test_kernels_that_differ_in_a_binding_fact_fail_and_are_named() -> None:
    old = result(fact("anon_huge_kb", "0", "same"), fact("soft_dirty_pages", "7", "free"))
    new = result(fact("anon_huge_kb", "16384", "same"), fact("soft_dirty_pages", "9", "free"))
    found = audited(run(k12=old, k19=new))
    assert not found.passed
    shown = text(found)
    assert "DIFFERS  0: 6.12; 16384: 6.19" in shown
    assert "soft_dirty_pages" not in shown
    assert "soft_dirty_pages  before  -" in text(found, every=True)


def test_a_skipped_trial_is_no_failure() -> None:
    found = audited(run(k16=records.failed(Outcome.SKIP, "no mseal() before 6.10"), k17=result()))
    assert found.passed
    assert "(1 skipped)" in text(found)
    assert "no mseal() before 6.10" in text(found)


def test_json_holds_everything() -> None:
    found = json.loads(written("json", audit, audited(run(k16=result()))))
    assert found["kind"] == "audit"
    assert found["scenarios"][0]["machines"][0]["cpus"] == "yes"


def test_no_line_is_wider_than_a_page() -> None:
    long = "x" * 60
    found = audited(run(k16=result(fact("f" * 30, long, long), fact("g", "1", "same"))))
    assert max(map(len, text(found).splitlines())) <= page.WIDTH
