# SPDX-License-Identifier: GPL-2.0-or-later
"""Which functions of the kernel a run's scenarios executed; pure.

Only functions that the compiler left to themselves are seen: what was inlined is its caller.
"""

from __future__ import annotations

from dataclasses import dataclass

from kdelta.analysis.explanation import USER, base_name
from kdelta.journal.run import RunRecord
from kdelta.ladder.counts import counted
from kdelta.ladder.evidence import scenarios


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveredFunction:
    """A function that ran.  scenarios: that executed it, with the most instructions in a window."""

    function: str
    scenarios: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Of a run: functions by name, and of each scenario how many, and how many it has alone."""

    run_id: str
    kernels: tuple[str, ...]
    functions: tuple[CoveredFunction, ...]
    scenarios: tuple[tuple[str, int, int], ...]


def coverage(record: RunRecord) -> Coverage:
    """What ran in the windows of every scenario of a run, on any of its kernels."""
    found: dict[str, dict[str, int]] = {}
    names = list(dict.fromkeys(scenarios(record)))
    for workload, scenario in names:
        reference = f"{workload}:{scenario}"
        for arm in counted(record, workload, scenario):
            for trial in arm.used:
                for row in trial.result.exact.functions if trial.result else ():
                    name = base_name(row.function)
                    if row.insns and name != USER and not name.startswith("["):
                        own = found.setdefault(name, {})
                        own[reference] = max(own.get(reference, 0), row.insns)
    references = [":".join(name) for name in names]
    alone = [next(iter(own)) for own in found.values() if len(own) == 1]
    return Coverage(
        run_id=record.run_id,
        kernels=tuple(arm.label for arm in record.arms),
        functions=tuple(
            CoveredFunction(
                function=name,
                scenarios=tuple(sorted(own.items(), key=lambda row: (-row[1], row[0]))),
            )
            for name, own in sorted(found.items())
        ),
        scenarios=tuple(
            (one, sum(one in own for own in found.values()), alone.count(one)) for one in references
        ),
    )
