# SPDX-License-Identifier: GPL-2.0-or-later
"""What a trial amounts to, and how the trials of a plan are run, tried again and stored."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

import run_records
from kdelta import cache, workload
from kdelta.errors import BootError, Cancelled, GuestError, InfraError, StoreError
from kdelta.journal import artifacts
from kdelta.journal.run import RunJournal
from kdelta.machine.axes import Lacking
from kdelta.output import Reading
from kdelta.run import runner
from kdelta.run.runner import AS_PLANNED, Event, How, Runner, Trials, TrialStep
from kdelta.run.trial import TRACEFS, Ran, framed, judged
from kdelta.sample import (
    Copied,
    ExactData,
    KernelIdentity,
    Outcome,
    SkipKind,
    TrialRecord,
    TrialResult,
)

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


def judge(ran: Ran) -> TrialResult:
    return judged(ran, LOAD, SCENARIO, exact)


BINDING = next(fact.name for fact in SCENARIO.contract if fact.want not in ("same", "free"))


def test_what_is_as_wanted_is_ok() -> None:
    result = judge(Ran(printed=printed(), status=0))
    assert (result.outcome, result.reasons, result.skip) == (Outcome.OK, (), None)
    assert result.data == ExactData()
    assert result.state


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (3, "3"), (99, "99"), (126, "126"), (128, "128"), (137, "137 (as by SIGKILL)"),
        (139, "139 (as by SIGSEGV)"), (255, "255"),
    ],
)  # fmt: skip
def test_a_status_that_no_workload_has_is_the_guests_fault(status: int, told: str) -> None:
    with pytest.raises(GuestError, match=re.escape(f'status {told}: "Killed"')):
        judge(Ran(printed="some\nKilled\n", status=status))
    with pytest.raises(GuestError, match=re.escape(f"status {told}: it printed nothing")):
        judge(Ran(printed="\n", status=status))


def test_a_program_that_says_another_end_than_it_has_is_no_result() -> None:
    with pytest.raises(GuestError, match="says end 0 and ended with 1"):
        judge(Ran(printed=printed(), status=1))


def test_what_the_kernel_lacks_is_skipped() -> None:
    result = judge(Ran(printed=f"{HEAD}note no mseal() here\nend 77\n", status=77))
    assert result.outcome is Outcome.SKIP
    assert result.skip
    assert (result.skip.kind, result.reason) == (SkipKind.UNSUPPORTED, "no mseal() here")


def test_a_program_that_gives_up_is_the_guests_fault() -> None:
    ran = Ran(printed=f"{HEAD}note mmap: no memory\nend 1\n", status=1)
    with pytest.raises(GuestError, match="the workload failed: mmap: no memory"):
        judge(ran)


def test_every_reason_is_told_as_one_of_its_own() -> None:
    ran = Ran(
        printed=printed(status=1, **{BINDING: "777"}), status=1, wrong=("2 CPUs; asked for 1",)
    )
    result = judge(ran)
    assert result.outcome is Outcome.INVALID
    assert result.reasons[0] == "2 CPUs; asked for 1"
    assert any(text.startswith(f"{BINDING} before is 777, not ") for text in result.reasons[1:])
    assert result.data is not None


def test_contract_that_only_program_saw_broken_is_invalid() -> None:
    result = judge(Ran(printed=printed(status=1), status=1))
    assert (result.outcome, result.reasons) == (Outcome.INVALID, ("it says 1",))


def test_what_only_root_may_read_is_skipped_for_others() -> None:
    text = printed(status=1, **{fact.name: "unknown" for fact in SCENARIO.contract})
    result = judge(Ran(printed=text, status=1, permitted=False))
    assert result.skip
    assert result.skip.kind is SkipKind.NOT_PERMITTED
    assert judge(Ran(printed=text, status=1)).outcome is Outcome.INVALID


def test_a_fault_becomes_a_result_with_the_console(tmp_path: Path) -> None:
    def faults() -> TrialResult:
        raise BootError("it panicked", console="Kernel panic")

    (tmp_path / "trials").mkdir()
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


COPIED = Copied(sentence="same image as 6.0", trial=99)
Measure = Callable[[TrialRecord, Path], TrialResult]


@dataclass
class FakeTrials(Trials):
    """An instrument of this test."""

    measuring: Measure
    cancelled: threading.Event = field(default_factory=threading.Event)
    waiting: frozenset[int] = frozenset()  # arms that may be the first one's twins
    makes: bool = False  # the first trial of an arm makes what the others find
    asked: list[How] = field(default_factory=list)

    @contextmanager
    def slot(self, trial: TrialRecord) -> Iterator[None]:
        assert trial.result is None
        if self.cancelled.is_set():
            raise Cancelled
        yield

    def waits(self, trial: TrialRecord) -> bool:
        return trial.arm in self.waiting

    def prepares(self, trial: TrialRecord) -> int | None:
        return trial.arm if self.makes else None

    def known(self, trial: TrialRecord, finished: Sequence[TrialRecord]) -> TrialResult | None:
        mine = [each.result for each in finished if each.arm == 0 and each.round == trial.round]
        return replace(mine[0], copied=COPIED) if mine and mine[0] else None

    def measure(self, trial: TrialRecord, folder: Path, how: How = AS_PLANNED) -> TrialResult:
        self.asked.append(how)
        return self.measuring(trial, folder)


@pytest.fixture
def journal(tmp_path: Path) -> RunJournal:
    return RunJournal.create(tmp_path / "run", run_records.new_run(arms=2, rounds=2))


def execute(
    journal: RunJournal, trials: FakeTrials | Measure, jobs: int = 1, **more: Callable[[], object]
) -> list[Event]:
    events: list[Event] = []
    fake = trials if isinstance(trials, FakeTrials) else FakeTrials(trials)
    with journal.executing():
        Runner(journal, fake, events.append).run(jobs, **more)
    return events


def ok(trial: TrialRecord, _folder: Path) -> TrialResult:
    return run_records.result_of(trial.index)


def outcomes(journal: RunJournal) -> list[str]:
    trials = journal.record().trials
    return [str(trial.result.outcome) if trial.result else "none" for trial in trials]


def test_every_trial_is_measured_and_told(journal: RunJournal) -> None:
    events = execute(journal, ok, jobs=3)
    assert outcomes(journal) == ["ok"] * 8
    finished = [event for event in events if event.step is TrialStep.FINISHED]
    assert [event.done for event in finished] == list(range(1, 9))
    assert {event.total for event in events} == {8}
    assert sum(event.step is TrialStep.STARTED for event in events) == 8
    assert journal.record().trials[5].result == run_records.result_of(5)


@pytest.mark.parametrize("makes", [True, False])
def test_no_trial_waits_for_what_another_one_makes(journal: RunJournal, makes: bool) -> None:  # noqa: FBT001
    planned = [trial.arm for trial in journal.plan.trials]
    assert planned[:3] == [planned[0], planned[0], 1 - planned[0]]
    begun: list[int] = []
    two = threading.Barrier(2)

    def measure(trial: TrialRecord, folder: Path) -> TrialResult:
        begun.append(trial.index)
        if len(begun) <= 2:
            two.wait(20)
        return ok(trial, folder)

    execute(journal, FakeTrials(measure, makes=makes), jobs=2)
    assert set(begun[:2]) == ({0, 2} if makes else {0, 1})
    assert sorted(begun) == list(range(8))


def dying(*endings: str, console: bool = False) -> Measure:
    """Trial 0 ends in these ways, one attempt after the other; all others are ok."""
    left = list(endings)

    def measure(trial: TrialRecord, folder: Path) -> TrialResult:
        if trial.index:
            return ok(trial, folder)
        ending = left.pop(0)
        if ending == "infra":
            raise InfraError("QEMU was ended by signal 9")
        if ending == "ok":
            return ok(trial, folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "console.log").write_text(ending)
        artifacts = {"console": "trials/0000/console.log"} if console else {}
        return TrialResult(outcome=Outcome(ending), reasons=(ending,), artifacts=artifacts)

    return measure


DIED, BOOTED = "guest-error", "boot-error"


@pytest.mark.parametrize(
    ("endings", "outcome", "reasons"),
    [
        ([DIED, DIED], DIED, (DIED, "it failed in 2 of 2 guests")),
        ([BOOTED, DIED], DIED, (DIED, "it failed in 2 of 2 guests")),
        ([DIED, "ok", "ok"], "ok", ()),
        ([DIED, "ok", DIED], DIED, (DIED, "it failed in 2 of 3 guests")),
        ([DIED, "skip", "skip"], "skip", ("skip",)),
        (["program-error"], "program-error", ("program-error",)),
        (["infra", DIED, DIED], DIED, (DIED, "it failed in 2 of 2 guests")),
        ([DIED, "infra", "ok", "ok"], "ok", ()), (["infra", "ok"], "ok", ()),
        ([DIED, "infra", "infra"], "infra-error", ("QEMU was ended by signal 9",)),
    ],
)  # fmt: skip
def test_a_kernel_is_blamed_when_its_guest_dies_twice(
    endings: list[str], outcome: str, reasons: tuple[str, ...], journal: RunJournal
) -> None:
    events = execute(journal, dying(*endings))
    first = journal.record().trials[0]
    assert first.result is not None
    assert (first.result.outcome, first.result.reasons) == (outcome, reasons)
    assert first.attempts == len(endings)
    told = [one.outcome for one in first.result.tries]
    assert told == [end if end != "infra" else "infra-error" for end in endings[:-1]]
    retried = [event.reason for event in events if event.step is TrialStep.RETRIED]
    assert len(retried) == len(endings) - 1
    assert retried.count("QEMU was ended by signal 9") == endings[:-1].count("infra")
    assert outcomes(journal)[1:] == ["ok"] * 7


def test_a_guest_that_died_is_followed_by_fresh_boots(journal: RunJournal) -> None:
    trials = FakeTrials(dying(DIED, "ok", "ok"))
    execute(journal, trials)
    other = How(fresh_boot=True, other_seed=True)
    assert trials.asked[:3] == [AS_PLANNED, other, How(fresh_boot=True)]
    assert set(trials.asked[3:]) == {AS_PLANNED}


def test_the_console_of_a_guest_that_died_is_kept(journal: RunJournal) -> None:
    execute(journal, dying(DIED, BOOTED, console=True))
    result = journal.record().trials[0].result
    assert result is not None
    assert result.tries[0].console == "trials/0000/console-1.log"
    assert (journal.folder / "trials/0000/console-1.log").read_text() == DIED
    assert (journal.folder / "trials/0000/console.log").read_text() == BOOTED


def test_the_budget_of_attempts_ends(journal: RunJournal) -> None:
    def fails(_trial: TrialRecord, _folder: Path) -> TrialResult:
        raise InfraError("x" * 1000, action="do this")

    execute(journal, fails)
    assert outcomes(journal) == ["infra-error"] * 8
    trial = journal.record().trials[0]
    assert trial.attempts == 2
    assert trial.result is not None
    assert len(trial.result.reason) == 400


@pytest.mark.parametrize(
    "error", [StoreError("the disk is full"), cache.disk_full(Path("cache")), RuntimeError("a bug")]
)
def test_what_is_no_trials_fault_ends_the_run(journal: RunJournal, error: Exception) -> None:
    def fails(trial: TrialRecord, folder: Path) -> TrialResult:
        if trial.index == 3:
            raise error
        return ok(trial, folder)

    with pytest.raises(type(error), match=str(error)):
        execute(journal, fails)
    assert outcomes(journal)[:4] == ["ok"] * 3 + ["none"]
    execute(journal, ok)
    assert outcomes(journal) == ["ok"] * 8


@pytest.mark.parametrize("last", [False, True])
def test_a_folder_that_is_removed_is_not_made_again(journal: RunJournal, *, last: bool) -> None:
    def removes(trial: TrialRecord, folder: Path) -> TrialResult:
        if not last or len(outcomes(journal)) - outcomes(journal).count("none") == 7:
            shutil.rmtree(journal.folder)
        return ok(trial, folder)

    with pytest.raises(StoreError, match="No such file or directory"):
        execute(journal, removes)
    assert not journal.folder.exists()


def cannot_write(_trial: TrialRecord, _folder: Path) -> TrialResult:
    raise InfraError("QEMU: kdelta plugin: cannot write the counts")


def writes(_trial: TrialRecord, _folder: Path) -> TrialResult:
    with Path("/dev/full").open("wb", buffering=0) as stream:
        stream.write(b"x")
    raise AssertionError


@pytest.mark.parametrize(
    ("measure", "others"), [(dying(DIED, DIED), "ok"), (cannot_write, "none"), (writes, "none")]
)
def test_a_full_disk_never_becomes_a_result(
    journal: RunJournal, measure: Measure, others: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if measure is not writes:
        monkeypatch.setattr(runner, "_LEAST_FREE", 1 << 62)
    with pytest.raises(StoreError, match="the disk is full"):
        execute(journal, measure)
    assert outcomes(journal)[0] == "none"
    assert set(outcomes(journal)) <= {"none", others}


def test_an_interrupt_stops_running_trials_and_keeps_finished_ones(journal: RunJournal) -> None:
    trials = FakeTrials(ok)

    def wait_for_it(trial: TrialRecord, folder: Path) -> TrialResult:
        if trial.index < 2:
            return ok(trial, folder)
        assert trials.cancelled.wait(10)
        raise Cancelled

    def interrupted() -> None:
        deadline = time.monotonic() + 10
        while outcomes(journal).count("ok") < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        raise KeyboardInterrupt

    trials.measuring = wait_for_it
    with pytest.raises(KeyboardInterrupt):
        execute(journal, trials, jobs=2, meanwhile=interrupted)
    assert outcomes(journal) == ["ok"] * 2 + ["none"] * 6
    execute(journal, ok)
    assert outcomes(journal) == ["ok"] * 8


def test_only_what_is_left_is_measured_again(journal: RunJournal) -> None:
    seen: list[int] = []

    def note(trial: TrialRecord, folder: Path) -> TrialResult:
        seen.append(trial.index)
        if trial.index == 4 and len(seen) == 5:
            raise StoreError("gone")
        return ok(trial, folder)

    with pytest.raises(StoreError):
        execute(journal, note)
    events = execute(journal, note)
    # Trial 5 may have begun before the end of the run was noticed; it is not lost either.
    assert sorted(seen) == [0, 1, 2, 3, 4, 4, 5, 6, 7]
    assert events[0].done == 8 - len({event.trial.index for event in events})


def test_the_guests_fault_is_not_retried(journal: RunJournal) -> None:
    def raises(_trial: TrialRecord, _folder: Path) -> TrialResult:
        raise GuestError("an instrument turns these into results itself")

    with pytest.raises(GuestError):
        execute(journal, raises)


def test_what_another_arm_is_comes_last_and_is_not_measured(journal: RunJournal) -> None:
    measured: list[int] = []

    def measure(trial: TrialRecord, _folder: Path) -> TrialResult:
        measured.append(trial.arm)
        return run_records.result_of(trial.index)

    execute(journal, FakeTrials(measure, waiting=frozenset({1})), jobs=2)
    found = [trial for trial in journal.record().trials if trial.arm == 1]
    assert all(trial.result and trial.result.copied == COPIED for trial in found)
    assert set(measured) == {0}
