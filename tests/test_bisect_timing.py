# SPDX-License-Identifier: GPL-2.0-or-later
"""Bisection on times of simulated boots: the right neighbours, or an honest "undecided"."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import pytest

from bisect_bench import BOOT_FAILURE, journal, kernel, question
from kdelta.bisect import journal as journals
from kdelta.bisect.bisection import ReleaseBisection
from kdelta.bisect.evidence import BisectionResult, Ending, boots, record
from kdelta.bisect.measuring import BlockTiming, TrialMeasure, measure_of
from kdelta.bisect.search import Likeness, Mark
from kdelta.errors import InfraError, SpecError
from kdelta.kernels.kernel import Kernel
from kdelta.run.runner import AS_PLANNED, How
from kdelta.sample import (
    Instrument,
    MachineFacts,
    PhaseTimes,
    StateField,
    TimeData,
    TrialRecord,
    TrialResult,
)
from kdelta.sample import Outcome as Ended
from kdelta.study import spec
from timed_records import HOST, STATE

SCENARIO = "mprotect:shared_dirty_full_toggle_64m"


STUDY = msgspec.structs.replace(
    question().study,
    instrument=Instrument.TIME,
    time=spec.TimeSettings(machine=spec.TimeMachine.KVM),
)
QUESTION = replace(question(phase="total"), study=STUDY)


@dataclass
class Machine:
    """Boots that take a kernel's time, with scatter, a drift and now and then a wild one.

    values: ns per page by the kernel's reference, or None: it does not boot.
    """

    values: Mapping[str, float | None]
    sd: float = 0.02
    drift: float = 0.0
    seed: int = 1
    kernels: list[Kernel] = field(default_factory=list)
    booted: list[str] = field(default_factory=list)
    states: Mapping[str, tuple[StateField, ...]] = field(default_factory=dict)
    fails_at: int | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)

    def slot(self, trial: TrialRecord) -> AbstractContextManager[None]:
        assert trial.result is None
        return nullcontext()

    def ready(self, trial: TrialRecord) -> None:
        assert trial.workload == "mprotect"

    def waits(self, trial: TrialRecord) -> bool:
        del trial
        return False

    def known(self, *_: object) -> None:
        return None

    def measure(self, trial: TrialRecord, folder: Path, _how: How = AS_PLANNED) -> TrialResult:
        del folder
        if len(self.booted) == self.fails_at:
            self.fails_at = None
            raise InfraError("QEMU is gone")
        name = self.kernels[trial.arm].reference
        self.booted.append(name)
        value = self.values[name]
        if value is None:
            return BOOT_FAILURE
        chance = random.Random(f"{self.seed} {len(self.booted)}")  # noqa: S311
        value *= math.exp(chance.gauss(0, self.sd) + self.drift * len(self.booted) / 100)
        samples = tuple(round(value * 1000 * (1 + chance.gauss(0, 0.001))) for _ in range(5))
        times = (
            PhaseTimes(phase="protect", operations=1000, operation="page", nanoseconds=samples),
        )
        return TrialResult(
            outcome=Ended.OK,
            data=TimeData(phases=times),
            state=self.states.get(name, STATE),
            facts=MachineFacts(host=HOST),
        )


def timed(machine: Machine, root: Path) -> tuple[BisectionResult, journals.Journal]:
    own = journal(root, list(machine.values), QUESTION)
    return go_on(machine, own), own


def go_on(machine: Machine, own: journals.Journal) -> BisectionResult:
    study = spec.from_arguments([SCENARIO], ["6.16", "6.17"], max_attempts=1)
    measure = TrialMeasure(study, machine, machine.kernels)
    points = len(machine.values)
    instrument = BlockTiming(own, measure, lambda point: kernel(point.key), points)
    ladder = ReleaseBisection(own, instrument, lambda point: kernel(point.key), lambda _news: None)
    return ladder.run()


def stepped(count: int, bad: int, *, old: float = 100.0, new: float = 130.0) -> dict[str, float]:
    return {f"k{at}": old if at < bad else new for at in range(count)}


def pair(found: BisectionResult) -> tuple[str, str]:
    return found.good.key, found.bad.key


@pytest.mark.parametrize("bad", [1, 6, 11])
@pytest.mark.parametrize("drift", [0.0, 0.3])
def test_the_step_is_found_although_the_machine_drifts(
    tmp_path: Path, bad: int, drift: float
) -> None:
    machine = Machine(stepped(12, bad), drift=drift)
    found, own = timed(machine, tmp_path)
    assert found.ending is Ending.STEP, found.reasons
    assert pair(found) == (f"k{bad - 1}", f"k{bad}")
    assert found.comparison is not None
    assert found.comparison.ratio == pytest.approx(1.3, rel=0.05)
    assert found.comparison.grade == "guest-time"
    assert boots(own) == len(machine.booted)
    assert boots(own) <= 1 + 2 * 10 + 4 * 3 * 10
    assert found.unit == "ns per page"


def test_an_improvement_is_a_change_too(tmp_path: Path) -> None:
    found, _ = timed(Machine(stepped(9, 4, old=130.0, new=100.0)), tmp_path)
    assert pair(found) == ("k3", "k4")
    assert found.comparison is not None
    assert found.comparison.verdict == "IMPROVEMENT"


def test_ends_that_do_not_differ_are_the_same(tmp_path: Path) -> None:
    found, own = timed(Machine(stepped(9, 4, new=100.1), sd=0.005), tmp_path)
    assert found.ending is Ending.SAME
    assert boots(own) <= 1 + 2 * 20


def test_scatter_that_hides_everything_is_undecided(tmp_path: Path) -> None:
    found, own = timed(Machine(stepped(9, 4, new=103.0), sd=0.2), tmp_path)
    assert found.ending is Ending.UNDECIDED
    assert boots(own) == 1 + 2 * 20
    assert "more boots an arm would decide" in found.reasons[0]


def test_a_point_in_the_middle_stays_undecided_and_is_told(tmp_path: Path) -> None:
    values: dict[str, float | None] = {"k0": 100.0, "k1": 118.3, "k2": 140.0}
    found, own = timed(Machine(values), tmp_path)
    step = own.steps["k1"]
    assert step.standing is Likeness.UNKNOWN
    assert step.mark is Mark.SKIP
    assert "undecided after 20 blocks" in step.why
    assert found.ending is Ending.RANGE


def test_what_does_not_boot_is_left_out_after_one_block(tmp_path: Path) -> None:
    values: dict[str, float | None] = {**stepped(7, 4), "k3": None}
    found, own = timed(Machine(values), tmp_path)
    assert own.steps["k3"].why == "boot-error: it panicked; it died in 2 of 2 guests"
    assert len(own.steps["k3"].blocks) == 1
    assert pair(found) == ("k2", "k4")
    assert found.ending is Ending.RANGE


def test_a_point_whose_page_state_is_another_is_left_out(tmp_path: Path) -> None:
    same = msgspec.structs.replace(STATE[0], want="same")
    machine = Machine(stepped(7, 4), states={f"k{at}": (same,) for at in range(7)})
    machine.states = {**machine.states, "k3": (msgspec.structs.replace(same, value="8192"),)}
    found, own = timed(machine, tmp_path)
    assert own.steps["k3"].why.startswith("page states differ: present_pages before (")
    assert pair(found) == ("k2", "k4")
    assert found.ending is Ending.RANGE


def test_a_good_end_that_does_not_boot_is_invalid(tmp_path: Path) -> None:
    values: dict[str, float | None] = {**stepped(5, 2), "k0": None}
    found, own = timed(Machine(values), tmp_path)
    assert found.ending is Ending.INVALID
    assert boots(own) == 1


def test_it_goes_on_after_a_fault_of_the_machine(tmp_path: Path) -> None:
    machine = Machine(stepped(12, 6), fails_at=30)
    own = journal(tmp_path, list(machine.values), QUESTION)
    with pytest.raises(InfraError, match="QEMU is gone"):
        go_on(machine, own)
    again = journals.find(tmp_path, QUESTION)
    assert again is not None
    before = len(again.state.steps)
    assert before >= 2
    assert pair(go_on(machine, again)) == ("k5", "k6")
    assert again.state.steps[:before] == own.state.steps


def test_the_record_is_a_timed_run_with_all_boots(tmp_path: Path) -> None:
    _, own = timed(Machine(stepped(6, 3)), tmp_path)
    run = record(own)
    assert run.instrument == "time"
    assert len(run.trials) == boots(own)
    assert len({trial.index for trial in run.trials}) == len(run.trials)
    assert {arm.label for arm in run.arms} == set(own.steps)


def test_the_wrong_neighbours_are_rare(tmp_path: Path) -> None:
    wrong = 0
    for seed in range(3):
        machine = Machine(stepped(9, 1 + seed % 8), sd=0.05, seed=seed)
        found, _ = timed(machine, tmp_path / str(seed))
        if found.ending is Ending.STEP:
            wrong += pair(found) != (f"k{seed % 8}", f"k{1 + seed % 8}")
    assert wrong == 0


def test_a_study_that_times_the_host_is_refused() -> None:
    study = spec.from_arguments(["mincore:no_thp_pte_scan_4m"], ["host"], instrument="time")
    with pytest.raises(SpecError, match="cannot boot this machine itself"):
        measure_of(study, "", threading.Event())
