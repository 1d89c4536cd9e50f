# SPDX-License-Identifier: GPL-2.0-or-later
"""What a run cannot say, in sentences: they belong to its findings as much as the verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kdelta.journal.run import RunRecord
from kdelta.sample import CopyKind, Instrument, Outcome, TrialResult

_STRINGS = ("memset", "memcpy", "memmove", "clear_page", "copy_page", "rep_movs", "rep_stos")
_NOTABLE = 0.02  # share of a trial's instructions in string functions from which it is said


def limits(record: RunRecord) -> tuple[str, ...]:
    """Sentences about what was not measured, or only under conditions; the general ones first."""
    results = [trial.result for trial in record.trials if trial.result]
    said = (
        [*_of_exact(record, results)]
        if record.instrument is Instrument.EXACT
        else [*_of_time(results)]
    )
    return tuple(dict.fromkeys([*said, *_of_trials(record), *_of_metrics(results)]))


def _of_exact(record: RunRecord, results: list[TrialResult]) -> Iterator[str]:
    yield (
        "Instructions were counted, under emulation. Nothing here says how long they take: cycles,"
        " caches, TLB and branch prediction do not exist there."
    )
    environments = {(e.machine, e.cpu_model) for r in results if (e := r.environment)}
    for machine, model in sorted(environments):
        yield f"One kind of machine: {machine}, CPU model {model}, and the paths that it selects."
    flavours = {(arm.kernel.arch, arm.kernel.flavour) for arm in record.arms}
    named = ", ".join(sorted(f"{flavour} ({arch})" for arch, flavour in flavours))
    yield (
        f"Kernels as they were built: flavour {named}. Another configuration or compiler executes"
        " another number of instructions."
    )
    if any(result.copied and result.copied.kind is CopyKind.SAME_CODE for result in results):
        yield (
            "Same code means: equal instructions in every function that was executed or is called"
            " from there. Contents of data, and what the kernel patches at boot, are not compared."
        )
    versions = sorted({e.qemu_version for r in results if (e := r.environment)})
    if any(_string_share(result) > _NOTABLE for result in results):
        yield (
            f"String instructions (clearing and copying pages) count as often as QEMU"
            f" {', '.join(versions)} steps through them, which is not how hardware executes them."
        )


def _string_share(result: TrialResult) -> float:
    total = sum(row.insns for row in result.exact.functions)
    inside = sum(row.insns for row in result.exact.functions if row.function.startswith(_STRINGS))
    return inside / total if total else 0.0


def _of_time(results: list[TrialResult]) -> Iterator[str]:
    hosts = [facts.host for r in results if (facts := r.facts) and facts.host]
    machines = sorted({m for host in hosts if (m := host.cpu_model or host.machine)})
    if machines:
        yield f"Times are of this machine: {', '.join(machines)}. Another one may answer otherwise."
    if any(host.virtualisation not in (None, "none") for host in hosts):
        yield "The machine is itself a guest: what its neighbours do is in the numbers."


def _of_trials(record: RunRecord) -> Iterator[str]:
    labels = {arm.index: f"{arm.label} {arm.point}".strip() for arm in record.arms}
    missing: dict[str, list[str]] = {}
    for trial in record.trials:
        if trial.result and trial.result.outcome is Outcome.SKIP:
            name = f"{trial.workload}:{trial.scenario} on {labels[trial.arm]}"
            missing.setdefault(trial.result.reason, []).append(name)
    for reason, names in missing.items():
        found = list(dict.fromkeys(names))
        more = f" and {len(found) - 2} more" if len(found) > 2 else ""
        yield f"Not measured: {', '.join(found[:2])}{more}: {reason}."
    failed = Counter(
        trial.result.outcome
        for trial in record.trials
        if trial.result and trial.result.outcome not in (Outcome.OK, Outcome.SKIP)
    )
    if failed:
        told = ", ".join(f"{count} {outcome}" for outcome, count in failed.items())
        count = f"{sum(failed.values())} of {len(record.trials)} trials"
        yield f"{count} carry no valid result: {told}."


def _of_metrics(results: list[TrialResult]) -> Iterator[str]:
    absent: dict[str, dict[str, None]] = {}
    for result in results:
        for metric in result.metrics:
            if metric.value is None:
                absent.setdefault(metric.absent, {})[metric.name] = None
    for reason, names in absent.items():
        yield f"Absent, not zero: {', '.join(names)}: {reason}."
