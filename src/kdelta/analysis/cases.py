# SPDX-License-Identifier: GPL-2.0-or-later
"""A run of either instrument as series, a boot for each trial, as other tools take them."""

from __future__ import annotations

from typing import Any

from kdelta.imports.series import Case
from kdelta.journal.run import RunRecord
from kdelta.ladder.evidence import ITERATION, Method, gather, parts
from kdelta.sample import TOTAL


def cases(record: RunRecord, method: Method[Any]) -> list[Case]:
    """Every metric of a run, the phases' and their total's, as series per arm."""
    found = []
    for point, part, workload, scenario in parts(record):
        arms = gather(part, workload, scenario, method)
        known = next((arm for arm in arms if arm.total), None)
        phases = [measure.phase for measure in known.phases] if known else []
        for phase in (*(phases if len(phases) > 1 else ()), TOTAL):
            measure = known.measure(phase) if known else None
            operation = measure.operation if measure else ITERATION
            series = tuple(method.series(arm, phase, operation) for arm in arms)
            found.append(
                Case(
                    group=(("scenario", f"{workload}:{scenario} {point}".strip()),),
                    metric=series[0].metric,
                    series=series,
                )
            )
    return found
