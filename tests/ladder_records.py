# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs as a journal would return them, built by hand for the tests of findings and renderers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from kdelta.journal.run import RunRecord
from kdelta.sample import (
    ArmRecord,
    Environment,
    ExactData,
    FunctionCount,
    KernelIdentity,
    Outcome,
    PhaseCounts,
    Skip,
    SkipKind,
    StateField,
    TrialRecord,
    TrialResult,
)
from kdelta.study import spec
from kdelta.verdict.windows import representative

PAGES = 16384
WORKLOAD = "mprotect"
SCENARIO = "shared_dirty_full_toggle_64m"
STUDY = """name = "mprotect-shared-dirty"
title = "mprotect() on shared dirty pages"
scenarios = ["mprotect:shared_dirty_full_toggle_64m"]
kernels = ["6.16", "6.17"]
[thresholds]
step_percent = 1.0
"""
ENVIRONMENT = Environment(
    accelerator="tcg", qemu_version="10.0.2", plugin_sha256="ab" * 32, machine="q35",
    cpu_model="max", cpus=1, memory_mib=1024, cmdline="nokaslr quiet",
    mitigations="meltdown: Mitigation: PTI", program_sha256="ef" * 32,
)  # fmt: skip
STATE = (
    StateField(when="before", name="present_pages", value="16384", want="16384"),
    StateField(when="before", name="anon_huge_kb", value="0", want="0"),
    StateField(when="after", name="vma_count", value="1", want="1"),
)
# Instructions per page; the seven named kernels as the prototype measured them.
TOTALS = {
    "6.1.176": 269.3, "6.12.107": 301.7, "6.16.12": 301.7, "6.17.13": 669.8, "6.18.15": 692.2,
    "6.19.10": 696.0, "7.0.9": 695.9, "7.1.3": 695.9, "7.2.1": 688.0,
}  # fmt: skip
OLD_FUNCTIONS = {"change_protection": 270.0, "change_pte_range": 12.0}
NEW_FUNCTIONS = {
    "change_pte_range.isra.0": 250.1, "prot_commit_flush_ptes": 328.0, "vm_normal_page": 66.0,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How the trials of one arm go; the defaults are a trial in which all is well."""

    per_page: float
    functions: Mapping[str, float] = field(default_factory=dict)
    windows: Sequence[int] = (0, 0, 900, 0, 0, 0, 0, 0)  # what each has more than the value
    environment: Environment | None = ENVIRONMENT
    state: tuple[StateField, ...] = STATE


def result(trial: Trial) -> TrialResult:
    """An ok trial of two phases, touch of 100 per page and protect of the rest."""
    protect = round((trial.per_page - 100) * PAGES)
    touch = 100 * PAGES
    shown = protect + representative(trial.windows).value
    return TrialResult(
        outcome=Outcome.OK, environment=trial.environment,
        data=ExactData(phases=(_phase("protect", protect, trial.windows),
                               _phase("touch", touch, (0,) * 8)),
                       functions=(*functions("protect", shown, trial.functions),
                                  *functions("touch", touch, {"handle_mm_fault": 40.0}))),
        state=trial.state, fresh_boot=True, artifacts={"console": "trials/0000/console.log"},
    )  # fmt: skip


def recounted(result: TrialResult, **data: object) -> TrialResult:
    """The result with other counts: phases=..., functions=..."""
    return replace(result, data=replace(result.exact, **data))


def handling(trial: TrialResult, *handled: int) -> TrialResult:
    """The same, whose first phase has string instructions that handled so many bytes."""
    phase = trial.exact.phases[0].phase
    rows = [
        FunctionCount(phase=phase, function=f"rep stosb in f{at}", insns=0, calls=PAGES, bytes=size)
        for at, size in enumerate(handled)
    ]
    return replace(trial, data=replace(trial.exact, functions=(*trial.exact.functions, *rows)))


def _phase(name: str, value: int, extra: Sequence[int]) -> PhaseCounts:
    user = min(5 * PAGES, value)
    return PhaseCounts(
        phase=name, operations=PAGES, operation="page", user=(user,) * len(extra),
        kernel=tuple(value - user + more for more in extra),
    )  # fmt: skip


def functions(phase: str, value: int, named: Mapping[str, float]) -> list[FunctionCount]:
    """Function counts that sum to value: user space, those named, and the system call's entry."""
    counts = {"[user]": min(5 * PAGES, value)}
    counts.update({name: round(per_page * PAGES) for name, per_page in named.items()})
    counts["entry_SYSCALL_64"] = value - sum(counts.values())
    return [
        FunctionCount(phase=phase, function=name, insns=insns, calls=PAGES if name in named else 1)
        for name, insns in counts.items()
    ]


def arm(index: int, label: str, **identity: str) -> ArmRecord:
    """A Debian cloud kernel as the study resolved it."""
    kernel = KernelIdentity(
        reference=".".join(label.split(".")[:2]), release=f"{label}+deb13-cloud-amd64",
        version=f"{label}-1~bpo13+1", arch="amd64", flavour="cloud", image_sha256="cd" * 32,
    )  # fmt: skip
    return ArmRecord(index=index, label=label, kernel=replace(kernel, **identity))


def counting(per_page: Mapping[str, float]) -> RunRecord:
    """A run of a trial of each kernel: label -> instructions per page."""
    return run({name: [result(Trial(per_page=value))] for name, value in per_page.items()})


def run(
    arms: Mapping[str, Sequence[TrialResult | None]],
    *,
    scenario: str = SCENARIO,
    study: str = STUDY,
) -> RunRecord:
    """A run of one scenario: label -> results of its trials, one a round (None: not run yet)."""
    rounds = max((len(results) for results in arms.values()), default=0)
    trials = [
        TrialRecord(
            index=turn * len(arms) + index, round=turn, arm=index, workload=WORKLOAD,
            scenario=scenario, result=results[turn],
        )
        for turn in range(rounds)
        for index, results in enumerate(arms.values())
        if turn < len(results)
    ]  # fmt: skip
    return RunRecord(
        run_id="20261120-101500-5eed", name="mprotect-shared-dirty",
        title="mprotect() on shared dirty pages", seed=7, rounds=rounds,
        created="2026-11-20T10:15:00Z", kdelta_version="0.1.0",
        study=spec.from_text(study, "study.toml"),
        arms=tuple(arm(index, label) for index, label in enumerate(arms)), trials=tuple(trials),
    )  # fmt: skip


def with_kernels(
    record: RunRecord, change: Callable[[ArmRecord], Mapping[str, object]]
) -> RunRecord:
    """The run whose arms' kernels have other fields."""
    arms = (replace(arm, kernel=replace(arm.kernel, **change(arm))) for arm in record.arms)
    return replace(record, arms=tuple(arms))


def with_results(
    record: RunRecord, change: Callable[[TrialRecord], Mapping[str, object]]
) -> RunRecord:
    """The run whose trials' results have other fields; trials without one are left out."""
    trials = tuple(
        replace(one, result=replace(one.result, **change(one)))
        for one in record.trials
        if one.result
    )
    return replace(record, trials=trials)


def named_functions(label: str) -> Mapping[str, float]:
    """What the mprotect ladder runs before and after the step."""
    return OLD_FUNCTIONS if label in ("6.12.107", "6.16.12") else NEW_FUNCTIONS


def ladder(rounds: int = 4) -> RunRecord:
    """The nine-kernel ladder, every trial ok."""
    return part_of(*TOTALS, rounds=rounds)


def part_of(*labels: str, rounds: int = 1) -> RunRecord:
    """Some kernels of the ladder, every trial ok."""
    return run({label: [result(trial_of(label))] * rounds for label in labels})


def trial_of(label: str) -> Trial:
    """One trial of the ladder."""
    names = {} if label == "6.1.176" else named_functions(label)
    return Trial(per_page=TOTALS[label] + 100, functions=names)


def failed(outcome: Outcome, reason: str) -> TrialResult:
    """A trial that ended without data."""
    skip = Skip(kind=SkipKind.UNSUPPORTED, sentence=reason) if outcome is Outcome.SKIP else None
    return TrialResult(
        outcome=outcome, skip=skip, reasons=() if skip else (reason,),
        artifacts={"console": "trials/0005/console.log"},
    )  # fmt: skip
