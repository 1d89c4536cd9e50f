# SPDX-License-Identifier: GPL-2.0-or-later
"""Timed runs as a journal would return them: boots with scatter, every trial ok."""

from __future__ import annotations

import random

from msgspec.structs import replace

from kdelta.journal.run import RunRecord
from kdelta.machine.identity import MachineSeen
from kdelta.run import arms
from kdelta.sample import (
    Environment,
    HostFacts,
    KernelIdentity,
    MachineFacts,
    Outcome,
    PhaseTimes,
    StateField,
    TimeData,
    TrialResult,
)
from kdelta.study import plan, spec

HOST = HostFacts(
    cpu_model="A CPU", governor="performance", virtualisation="none", seen=MachineSeen(thp="always")
)
STATE = (StateField(when="before", name="present_pages", value="4096", want="4096"),)
ENVIRONMENT = Environment(
    accelerator="tcg", qemu_version="10.0.2", plugin_sha256="0" * 64, machine="q35",
    cpu_model="max", cpus=1, memory_mib=1024, cmdline="quiet", mitigations="",
)  # fmt: skip


def kernel(arm: int) -> KernelIdentity:
    return KernelIdentity(
        reference=f"host:6.{arm}", release=f"6.{arm % 3}.1", version="", arch="amd64",
        flavour="host", image_sha256="",
    )  # fmt: skip


def run(levels: list[float], *, rounds: int = 9) -> RunRecord:
    """A run of arms whose samples lie around levels[arm] ns a page; the last arm is the control."""
    names = [f'"host:6.{arm}"' for arm in range(len(levels) - 1)]
    study = spec.from_text(
        'name = "t"\ntitle = "t"\ninstrument = "time"\nscenarios = ["mprotect:single_protect"]\n'
        f"kernels = [{', '.join(names)}]\n[plan]\nrounds = {rounds}\n"
        '[time]\nreplicate = "boot"\n',
        "t.toml",
    )
    noise = random.Random(7)  # noqa: S311  seeded noise
    trials = []
    for trial in plan.make_plan(study, 1):
        boot = levels[trial.arm] * noise.gauss(1, 0.01)
        samples = tuple(int(boot * 4096 * noise.gauss(1, 0.003)) for _ in range(16))
        result = TrialResult(
            outcome=Outcome.OK, kernel=kernel(trial.arm),
            data=TimeData(
                phases=(
                    PhaseTimes(phase="a", operations=4096, operation="page", nanoseconds=samples),
                )
            ),
            state=STATE, facts=MachineFacts(host=replace(HOST, boot_id=f"b{trial.index}")),
        )  # fmt: skip
        trials.append(replace(trial, attempts=1, result=result))
    return RunRecord(
        run_id="t-1", name="t", title="t", seed=1, rounds=rounds, created="2026-01-01",
        kdelta_version="0", study=study, arms=arms.records(study, None), trials=tuple(trials),
    )  # fmt: skip
