# SPDX-License-Identifier: GPL-2.0-or-later
"""Which guest a trial of the exact instrument gets, and which one this machine cannot hold."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kdelta import workload
from kdelta.errors import InfraError, SpecError
from kdelta.files import sha256_of
from kdelta.guests.qemu import Qemu
from kdelta.host import leases
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import NO_NEEDS, MachineSettings, Needs, with_needs
from kdelta.run import exact
from kdelta.run.guest_trial import Bench
from kdelta.sample import Outcome, TrialRecord
from kdelta.study import spec

SETTINGS = MachineSettings()
BENCH = Bench(
    emulator=Qemu(program=Path("qemu")), settings=SETTINGS, fresh_boot=False, timeout_s=1,
    cancelled=threading.Event(),
)  # fmt: skip


def kernel(image: Path) -> Kernel:
    return Kernel(
        reference="6.17", release="6.17.1", arch="amd64", image=image, image_sha256=sha256_of(image)
    )


def trial(scenario: str) -> TrialRecord:
    load, _, name = scenario.partition(":")
    return TrialRecord(index=0, round=0, arm=0, workload=load, scenario=name)


def study(**settings: object) -> spec.Study:
    return spec.from_arguments(["mincore:no_thp_pte_scan_4m"], ["6.12", "6.17"], **settings)


def test_a_scenario_gets_what_it_needs_and_the_study_what_it_asks_for() -> None:
    needs = Needs(nodes=2, memory_mib=2048, swap="zram", thp="never", hugepages_2m=4)
    given = with_needs(SETTINGS, needs)
    assert (given.nodes, given.memory_mib, given.swap, given.thp) == (2, 2048, "zram", "never")
    assert given.hugepages_2m == 4
    given = with_needs(MachineSettings(memory_mib=4096, thp="always", hugepages_2m=8), needs)
    assert (given.memory_mib, given.thp, given.hugepages_2m) == (4096, "always", 8)
    assert with_needs(SETTINGS, NO_NEEDS) == SETTINGS


def test_the_guests_of_a_matrix() -> None:
    text = spec.to_toml(study()).replace("[matrix]\ncpus = []", "[matrix]\ncpus = [1, 4]")
    assert "cpus = [1, 4]" in text
    guests = exact.guests_of(spec.from_text(text, "m"))
    assert [(guest.cpus, guest.memory_mib) for guest in guests] == [(1, 1024), (4, 1024)]


def test_what_this_machine_cannot_hold_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leases, "memory_mib", lambda: 2000)
    assert [guest.memory_mib for guest in exact.guests_of(study(memory_mib=1024))] == [1024]
    with pytest.raises(SpecError, match="2048 MiB does not fit into this machine's 2000 MiB"):
        exact.guests_of(study(memory_mib=2048))
    with pytest.raises(SpecError, match="8 CPUs is timed on as many cores; this machine has 2"):
        exact.guests_of(study(cpus=8), cores=2)
    assert exact.guests_of(study(cpus=8))[0].cpus == 8, "emulated CPUs need no cores"


def test_an_image_that_changed_since_is_not_measured(tmp_path: Path) -> None:
    image = tmp_path / "bzImage"
    image.write_bytes(b"one kernel")
    trials = exact.ExactTrials(BENCH, [kernel(image)])
    image.write_bytes(b"six kernel")
    for _ in range(2):
        with pytest.raises(InfraError, match="another one than when this began"):
            trials.measure(trial("mprotect:shared_dirty_full_toggle_16m"), tmp_path / "0000")
    image.unlink()
    with pytest.raises(InfraError, match="cannot be read: No such file"):
        trials.measure(trial("mprotect:shared_dirty_full_toggle_16m"), tmp_path / "0000")


def test_trials_that_are_only_timed_are_skipped(tmp_path: Path) -> None:
    timed = next(
        scenario.reference
        for name in workload.names()
        for scenario in workload.load(name).scenarios
        if scenario.instruments == ("time",)
    )
    image = tmp_path / "bzImage"
    image.write_bytes(b"one kernel")
    result = exact.ExactTrials(BENCH, [kernel(image)]).measure(trial(timed), tmp_path)
    assert result.outcome is Outcome.SKIP
    assert "is only timed" in result.reason
