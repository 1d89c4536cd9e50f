# SPDX-License-Identifier: GPL-2.0-or-later
"""What the runs of a lab have counted, for `kdelta site watch`, which counts the rest.

Nothing of it is kept anywhere: the runs themselves say what was counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kdelta.journal.run import RunRecord
from kdelta.machine.axes import MachineSettings
from kdelta.sample import Outcome

NAME = "watch"  # of its studies


def counted(
    records: Iterable[RunRecord], scenarios: Collection[str], machine: MachineSettings
) -> frozenset[str]:
    """The kernels that were counted in all of these scenarios on such a machine, as `keys` are.

    What a watch has planned counts as counted: its run is gone on with, and not begun again.
    """
    done: dict[str, set[str]] = {}
    for record in records:
        if not record.instrument.traits.repeats or record.study.machine != machine:
            continue
        for trial in record.trials:
            arm = record.arms[trial.arm]
            ended = trial.result and trial.result.outcome is not Outcome.INFRA_ERROR
            if arm.point or not (ended or record.name == NAME):
                continue
            for key in (arm.kernel.version, arm.kernel.reference):
                done.setdefault(key, set()).add(f"{trial.workload}:{trial.scenario}")
    wanted = set(scenarios)
    return frozenset(key for key, own in done.items() if key and wanted <= own)


def references(records: Iterable[RunRecord]) -> list[str]:
    """References of the kernels that have a count, those of the newest record first."""
    found: dict[str, None] = {}
    for record in records:
        have = {
            trial.arm
            for trial in record.trials
            if trial.result and trial.result.outcome is Outcome.OK
        }
        for arm in reversed(record.arms):
            if arm.index in have and not arm.point:
                found[arm.kernel.reference] = None
    return list(found)


def flavoured(records: Iterable[RunRecord], arch: str, flavour: str) -> list[RunRecord]:
    """The runs of one architecture and flavour: a version is a package of each."""
    return [
        record
        for record in records
        if all((arm.kernel.arch, arm.kernel.flavour) == (arch, flavour) for arm in record.arms)
    ]
