# SPDX-License-Identifier: GPL-2.0-or-later
"""kdelta killed in each stage of a study on another machine: it goes on, and gives that back."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

import fake_host
from fake_host import BROKEN, DEFAULT, OTHER, FakeHost
from kdelta.journal.run import RUNS, RunJournal
from killing import OF_STUDY, START, Killer, boots

# A played machine boots in less than the two seconds after which a real one is asked again.
_QUICK = """
from kdelta.host import ssh_host
from kdelta.run import timed
ssh_host._POLL_S, timed.SETTLE_S = 0.05, 0.5
"""
_STUDY = fake_host.STUDY.format(
    scenario="control:user_loop", old=DEFAULT, new=OTHER, broken=BROKEN, rounds=2, iterations=1,
    warmup=0,
)  # fmt: skip


@pytest.mark.program
def test_killed_in_each_stage_a_study_loses_nothing_and_gives_the_machine_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeHost(tmp_path / "machine")
    fake.takes_long()
    monkeypatch.setenv("PATH", f"{fake.folder}/ssh:{os.environ['PATH']}")
    (tmp_path / "study.toml").write_text(_STUDY)
    (tmp_path / "lab.toml").write_text('[pool.box]\nkind = "host"\naddress = "ssh://me@box"\n')
    killer = Killer(tmp_path, fake.console, _QUICK + START, left={*OF_STUDY})
    cut = killer.executed()
    assert killer.left == set(), "a stage that a study never has"
    run = RUNS.find(tmp_path / "runs", "latest")
    record = RunJournal.open(run).record()
    ended = Counter(
        (record.arms[trial.arm].kernel.reference, trial.result.outcome.blames)
        for trial in record.trials
        if trial.result
    )
    assert ended == {
        (f"host:{DEFAULT}", False): 2, (f"host:{OTHER}", False): 2, (f"host:{BROKEN}", True): 2,
    }  # fmt: skip
    assert len({*boots(run)}) == len(boots(run)) == 4
    assert len(cut) == 1
    assert not cut & {*boots(run)}, "a boot in which a program was cut short has a trial"
    assert fake.boots[-1] == DEFAULT
    assert not fake.home.exists()
    assert not (fake.folder / "loaded").exists()
