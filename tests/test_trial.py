# SPDX-License-Identifier: GPL-2.0-or-later
"""What a program's end and output amount to, whichever instrument measures it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kdelta import workload
from kdelta.errors import BootError, GuestError
from kdelta.journal import artifacts
from kdelta.machine.axes import Lacking
from kdelta.output import Reading
from kdelta.run.trial import TRACEFS, Ran, blame, framed, judged
from kdelta.sample import ExactData, KernelIdentity, Outcome, SkipKind, TimeData, TrialResult

LOAD, SCENARIO = workload.parse_reference("mincore:no_thp_pte_scan_4m")
HEAD = f"kdelta-workload 1 {LOAD.name} {SCENARIO.name}\n"
KERNEL = KernelIdentity(
    reference="6.17", release="6.17.1", version="", arch="amd64", flavour="", image_sha256=""
)


def printed(*, status: int = 0, **values: str) -> str:
    """What the program prints when all is as wanted but for these facts."""
    lines = [
        f"phase {window.id} {window.name} {window.operation} {window.operations}"
        for window in SCENARIO.windows
    ]
    lines += [
        f"state {when} {fact.name} {values.get(fact.name, wanted(fact.want))} {fact.want}"
        for when, facts in (
            ("before", SCENARIO.contract),
            ("after", SCENARIO.contract),
            ("during", SCENARIO.during),
        )
        for fact in facts
    ]
    lines += [f"sample {w.name} 0 1000 {w.operations}" for w in SCENARIO.windows]
    lines += [f"note it says {status}"] if status else []
    return HEAD + "\n".join([*lines, f"end {status}", ""])


def wanted(want: str) -> str:
    return "0" if want in ("same", "free") else want


def exact(_reading: Reading) -> tuple[ExactData, tuple[str, ...]]:
    return ExactData(), ()


def timed(_reading: Reading) -> tuple[TimeData, tuple[str, ...]]:
    return TimeData(), ()


def judge(ran: Ran, measured: Callable[..., object] = exact) -> TrialResult:
    return judged(ran, LOAD, SCENARIO, measured)  # type: ignore[arg-type]


BINDING = next(fact.name for fact in SCENARIO.contract if fact.want not in ("same", "free"))
each_instrument = pytest.mark.parametrize("measured", [exact, timed])


@each_instrument
def test_what_is_as_wanted_is_ok(measured: Callable[..., object]) -> None:
    result = judge(Ran(printed=printed(), status=0), measured)
    assert (result.outcome, result.reasons, result.skip) == (Outcome.OK, (), None)
    assert result.data == measured(None)[0]  # type: ignore[index]
    assert result.state


@each_instrument
@pytest.mark.parametrize(
    ("status", "told"),
    [
        (3, "3"),
        (99, "99"),
        (126, "126"),
        (128, "128"),
        (137, "137 (as by SIGKILL)"),
        (139, "139 (as by SIGSEGV)"),
        (255, "255"),
    ],
)
def test_a_status_that_no_workload_has_is_the_guests_fault(
    status: int, told: str, measured: Callable[..., object]
) -> None:
    with pytest.raises(GuestError, match=re.escape(f'status {told}: "Killed"')):
        judge(Ran(printed="some\nKilled\n", status=status), measured)
    with pytest.raises(GuestError, match=re.escape(f"status {told}: it printed nothing")):
        judge(Ran(printed="\n", status=status), measured)


@each_instrument
def test_a_program_that_says_another_end_than_it_has_is_no_result(
    measured: Callable[..., object],
) -> None:
    with pytest.raises(GuestError, match="says end 0 and ended with 1"):
        judge(Ran(printed=printed(), status=1), measured)


@each_instrument
def test_what_the_kernel_lacks_is_skipped(measured: Callable[..., object]) -> None:
    ran = Ran(printed=f"{HEAD}note no mseal() here\nend 77\n", status=77)
    result = judge(ran, measured)
    assert result.outcome is Outcome.SKIP
    assert result.skip
    assert (result.skip.kind, result.reason) == (SkipKind.UNSUPPORTED, "no mseal() here")


@each_instrument
def test_a_program_that_gives_up_is_the_guests_fault(measured: Callable[..., object]) -> None:
    ran = Ran(printed=f"{HEAD}note mmap: no memory\nend 1\n", status=1)
    with pytest.raises(GuestError, match="the workload failed: mmap: no memory"):
        judge(ran, measured)


@each_instrument
def test_every_reason_is_told_as_one_of_its_own(measured: Callable[..., object]) -> None:
    ran = Ran(
        printed=printed(status=1, **{BINDING: "777"}), status=1, wrong=("2 CPUs; asked for 1",)
    )
    result = judge(ran, measured)
    assert result.outcome is Outcome.INVALID
    assert result.reasons[0] == "2 CPUs; asked for 1"
    assert any(text.startswith(f"{BINDING} before is 777, not ") for text in result.reasons[1:])
    assert result.data is not None


@each_instrument
def test_a_contract_that_only_the_program_saw_broken_is_invalid(
    measured: Callable[..., object],
) -> None:
    result = judge(Ran(printed=printed(status=1), status=1), measured)
    assert (result.outcome, result.reasons) == (Outcome.INVALID, ("it says 1",))


def test_what_only_root_may_read_is_skipped_for_others() -> None:
    text = printed(status=1, **{fact.name: "unknown" for fact in SCENARIO.contract})
    result = judge(Ran(printed=text, status=1, permitted=False))
    assert result.skip
    assert result.skip.kind is SkipKind.NOT_PERMITTED
    assert judge(Ran(printed=text, status=1)).outcome is Outcome.INVALID


def test_blame() -> None:
    assert blame(BootError("x")) is Outcome.BOOT_ERROR
    assert blame(GuestError("x")) is Outcome.GUEST_ERROR


def test_a_fault_becomes_a_result_with_the_console(tmp_path: Path) -> None:
    def faults() -> TrialResult:
        raise BootError("it panicked", console="Kernel panic")

    result = framed(tmp_path / "trials" / "0003", faults, kernel=KERNEL, fresh_boot=True)
    assert (result.outcome, result.reasons) == (Outcome.BOOT_ERROR, ("it panicked",))
    assert (result.kernel, result.fresh_boot) == (KERNEL, True)
    assert result.artifacts == {"console": "trials/0003/console.log"}
    assert (tmp_path / "trials/0003/console.log").read_text() == "Kernel panic"


def test_what_a_kernel_does_not_have_becomes_a_skip(tmp_path: Path) -> None:
    def lacks() -> TrialResult:
        raise Lacking("preempt=full: the kernel does not choose")

    result = framed(tmp_path, lacks, kernel=KERNEL)
    assert result.skip
    assert result.skip.kind is SkipKind.UNSUPPORTED
    assert result.artifacts == {}


def test_all_that_a_trial_keeps_is_its_artifact(tmp_path: Path) -> None:
    """The store and a worker's parcel hold artifacts alone; the kinds of work were none."""
    names = {
        *("command.txt", "console.log", "counts.bin.gz", "workload.txt"),
        *(artifacts.DETAILS, artifacts.CALLS, TRACEFS),
    }

    def counts() -> TrialResult:
        for name in names:
            (tmp_path / name).write_text(name)
        (tmp_path / "counts.bin").write_text("what is kept packed")
        return TrialResult(outcome=Outcome.OK)

    kept = framed(tmp_path, counts, kernel=KERNEL).artifacts
    assert {Path(path).name for path in kept.values()} == names
    assert len(kept) == len(names)
