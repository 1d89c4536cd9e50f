# SPDX-License-Identifier: GPL-2.0-or-later
"""Which arms need no boot: those of equal images."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

import run_records
from kdelta.errors import InfraError
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import MachineSettings
from kdelta.run import arms
from kdelta.sample import Copied, Outcome, TrialRecord, TrialResult

ONE, TWO = MachineSettings(), MachineSettings(cpus=2)


def kernel(name: str, sha: str, *, source: str = "tree abc") -> Kernel:
    return Kernel(
        reference=f"tree:{name}", release="6.17.8-kdelta", arch="amd64", flavour="source",
        image=Path(f"{name}/bzImage"), image_sha256=sha, name=name, source=source,
    )  # fmt: skip


ORIGINAL, NULL, VARIANT = kernel("a", "11"), kernel("a+null", "11"), kernel("a+fast", "22")


def trial(arm: int, result: TrialResult | None = None, *, round_: int = 0) -> TrialRecord:
    return TrialRecord(
        index=arm, round=round_, arm=arm, workload="mincore", scenario="x", result=result
    )


def good(arm: int) -> TrialRecord:
    return trial(arm, run_records.result_of(arm))


def test_the_same_image_is_not_booted_and_says_whose_it_is() -> None:
    found = arms.IdenticalArms([ORIGINAL, NULL], [ONE, ONE])
    assert [found.waits(arm) for arm in (0, 1)] == [False, True]
    result = found.result(trial(1), [good(0)])
    assert result is not None
    assert result.copied == Copied(sentence="same image as a, to the byte", trial=0)
    assert result.exact.phases == run_records.result_of(0).exact.phases
    assert result.kernel == replace(NULL.identity(), build_id="f0" * 20, compiler="gcc 14")
    assert result.artifacts == {}, "its console and counts are those of the other arm"


def test_another_image_is_counted_whatever_its_code() -> None:
    found = arms.IdenticalArms([ORIGINAL, VARIANT], [])
    assert not found.waits(1)
    assert found.result(trial(1), [good(0)]) is None


def test_a_leader_without_a_good_result_gives_nothing() -> None:
    found = arms.IdenticalArms([ORIGINAL, NULL], [])
    bad = TrialResult(outcome=Outcome.GUEST_ERROR, reasons=("panic",))
    assert found.result(trial(1), [trial(0, bad)]) is None
    assert found.result(trial(1), []) is None


def test_the_result_of_the_same_round_is_taken() -> None:
    found = arms.IdenticalArms([ORIGINAL, NULL], [])
    rounds = [
        replace(trial(0, replace(run_records.result_of(n), fresh_boot=bool(n)), round_=n), index=n)
        for n in (0, 1)
    ]
    result = found.result(trial(1, round_=1), rounds)
    assert result is not None
    assert result.fresh_boot
    assert result.copied
    assert result.copied.trial == 1


def test_other_machines_and_released_kernels_lead_nobody() -> None:
    assert not arms.IdenticalArms([ORIGINAL, NULL], [ONE, TWO]).waits(1)
    released = kernel("6.17.8", "33", source="")
    assert not arms.IdenticalArms([ORIGINAL, released], [ONE, ONE]).waits(1)
    assert not arms.IdenticalArms([InfraError("no mirror"), NULL], [ONE, ONE]).waits(1)
    assert not arms.IdenticalArms([], []).waits(0)
