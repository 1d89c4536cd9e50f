# SPDX-License-Identifier: GPL-2.0-or-later
"""Which environments may be compared, when QEMUs were tested; see tests/boot/test_selftest.py."""

from __future__ import annotations

from msgspec.structs import replace

from kdelta.analysis.findings import report
from kdelta.sample import TrialResult
from kdelta.stats.verdict import Verdict
from ladder_records import ENVIRONMENT, Trial, result, run


def verdict(old: TrialResult, new: TrialResult) -> tuple[Verdict, str]:
    (ladder,) = report(run({"6.16.1": [old], "6.17.1": [new]})).ladders
    comparison = ladder.rungs[1].comparison
    assert comparison is not None
    return comparison.verdict, "; ".join(comparison.reasons)


def of(version: str, self_test: str) -> TrialResult:
    environment = replace(ENVIRONMENT, qemu_version=version, self_test=self_test)
    return replace(result(Trial(per_page=300)), environment=environment)


def test_versions_of_qemu_are_compared_when_both_passed_the_same_test() -> None:
    assert verdict(of("10.0.2", "a"), of("10.0.8", "a"))[0] is Verdict.SAME
    for old, new in (
        (of("10.0.2", ""), of("10.0.8", "")),
        (of("10.0.2", "a"), of("10.0.8", "")),
        (of("10.0.2", "a"), of("10.0.2", "b")),
    ):
        found, reason = verdict(old, new)
        assert found is Verdict.INVALID
        assert "environments differ" in reason
