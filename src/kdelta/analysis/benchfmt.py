# SPDX-License-Identifier: GPL-2.0-or-later
"""The Go benchmark format, which benchstat reads: `benchstat -col arm FILE`.

Boots are named in comments, which benchstat passes over: as configuration they would split its
table.  `kdelta import` reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from kdelta.imports.record import Case
from kdelta.journal.run import RunRecord
from kdelta.ladder.evidence import ITERATION, Method, gather, parts
from kdelta.metric import Metric
from kdelta.printable import printable
from kdelta.sample import TOTAL

_WORD = re.compile(r"[^\w.+/-]")


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


def lines(found: Sequence[Case]) -> list[str]:
    """All samples: unit lines, then for each arm and boot its results.

    A benchmark's name is the metric and the group's parts, such as
    BenchmarkMprotect_ns/cpu=1; each sample is one result of one iteration.
    """
    units = {_unit(case.metric): case.metric for case in found}
    head = [
        f"Unit {name} assume={metric.assume} better={metric.better}"
        for name, metric in units.items()
    ]
    arms = dict.fromkeys(series.arm for case in found for series in case.series)
    return [*head, *(text for arm in arms for text in _arm(arm, found))]


def _unit(metric: Metric) -> str:
    return _WORD.sub("_", metric.unit)


def _arm(arm: str, found: Sequence[Case]) -> Iterator[str]:
    yield f"arm: {_line(arm)}"
    for case in found:
        own = (boot for series in case.series if series.arm == arm for boot in series.valid)
        for boot in own:
            yield f"# boot: {_line(boot.label)}"
            for value in boot.values:
                yield f"Benchmark{_name(case)} 1 {value!r} {_unit(case.metric)}"


def _line(text: str) -> str:
    """Text that stays on its line, and does nothing to a terminal."""
    return printable(" ".join(text.split())) or "-"


def _name(case: Case) -> str:
    """Benchmark names begin with a capital, and parts are key=value."""
    title = _WORD.sub("_", case.metric.name)
    parts = [f"{_WORD.sub('_', key)}={_WORD.sub('_', text)}" for key, text in case.group]
    return "/".join([title[:1].upper() + title[1:], *parts])
