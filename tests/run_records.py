# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs and results to put into a journal, each result recognisably of its own trial."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from kdelta import sample
from kdelta.journal import results
from kdelta.journal.run import RunJournal, RunRecord
from kdelta.study import spec
from kdelta.study.plan import make_plan

NOW = datetime(2026, 11, 20, 10, 15, 0, tzinfo=UTC)


def kernel(reference: str) -> sample.KernelIdentity:
    return sample.KernelIdentity(
        reference=reference, release=f"{reference}.1-cloud-amd64", version=f"{reference}.1-1",
        arch="amd64", flavour="cloud", image_sha256="ab" * 32,
    )  # fmt: skip


def new_run(*, arms: int = 3, rounds: int = 2, name: str = "demo", run_id: str = "") -> RunRecord:
    study = spec.from_arguments(
        ["mprotect:a", "mincore:b"], [f"6.{at}" for at in range(arms)], rounds=rounds, name=name
    )
    return RunRecord(
        run_id=run_id or name, name=name, title=study.title, seed=2**63 - 1, rounds=rounds,
        created=NOW.isoformat(), kdelta_version="0.1.0", study=study,
        arms=tuple(
            sample.ArmRecord(index=at, label=f"6.{at}", kernel=replace(
                kernel(f"6.{at}"), release="", image_sha256=""  # any kernel's trials are its
            ))
            for at in range(arms)
        ),
        trials=make_plan(study, 5),
    )  # fmt: skip


def result_of(index: int, functions: int = 3) -> sample.TrialResult:
    """A result that only this trial can have, with numbers beyond 64 bits."""
    return sample.TrialResult(
        outcome=sample.Outcome.OK,
        kernel=replace(kernel("6.1"), version="", build_id="f0" * 20, compiler="gcc 14"),
        environment=sample.Environment(
            accelerator="tcg", qemu_version="10.0.2", plugin_sha256="cd" * 32, machine="q35",
            cpu_model="max", cpus=1, memory_mib=1024, cmdline="nokaslr", mitigations="0123",
        ),
        data=_counts(index, functions),
        state=(sample.StateField(when="before", name="present", value="16384", want="16384"),
               sample.StateField(when="after", name="thp", value="0", want="0")),
        fresh_boot=index % 2 == 0, wall_s=0.1 + index,
        artifacts={"console": f"trials/{index:04d}/console.log", "b": "x"},
    )  # fmt: skip


def _counts(index: int, functions: int) -> sample.ExactData:
    return sample.ExactData(
        phases=(
            sample.PhaseCounts(phase="protect", operations=16384, operation="page",
                               user=(1, 2**62, 2**61 + index), kernel=(index, 2**63 - 1)),
            sample.PhaseCounts(phase="x", operations=2**62, operation="io", user=(0,), kernel=(1,)),
        ),
        functions=(sample.FunctionCount(phase="x", function="f", insns=1, calls=1), *(
            sample.FunctionCount(
                phase="protect", function=f"f{at}", insns=2**62 + at * (index + 1), calls=2**62 + at
            )
            for at in range(functions)
        )),
    )  # fmt: skip


def of_its_arms(record: RunRecord) -> RunRecord:
    """The run as one of a study that names its arms, and as many rounds."""
    kernels = tuple(arm.kernel.reference for arm in record.arms if not arm.control)
    plan = replace(record.study.plan, rounds=record.rounds)
    study = replace(record.study, kernels=kernels, plan=plan)
    return replace(record, study=study, title=study.title, name=study.name)


def kept(record: RunRecord, folder: Path) -> Path:
    """The run on the disk, with the results that its trials have; its folder."""
    if not record.bisection:
        record = of_its_arms(record)
    RunJournal.create(folder, record)
    for trial in record.trials:
        if trial.result:
            one = results.KeptResult(
                run=record.run_id, index=trial.index, attempts=1, result=trial.result
            )
            results.keep(folder, one)
    return folder


def execute(journal: RunJournal, count: int | None = None) -> None:
    with journal.executing():
        for trial in journal.pending()[:count]:
            journal.claim(trial.index)
            journal.finish(trial.index, result_of(trial.index))
