# SPDX-License-Identifier: GPL-2.0-or-later
"""The Go benchmark format, which benchstat reads: `benchstat -col arm FILE`.

Boots are named in comments, which benchstat passes over: as configuration they would split its
table.  `kdelta import` reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from kdelta.metric import Metric
from kdelta.printable import printable
from kdelta.verdict.series import Series

_WORD = re.compile(r"[^\w.+/-]")


def lines(cases: Iterable[tuple[Sequence[tuple[str, str]], Metric, Sequence[Series]]]) -> list[str]:
    """All samples of (group, metric, series): unit lines, then for each arm and boot its results.

    A benchmark's name is the metric and the group's parts, such as
    BenchmarkMprotect_ns/cpu=1; each sample is one result of one iteration.
    """
    found = list(cases)
    units = {unit(metric): metric for _, metric, _ in found}
    head = [
        f"Unit {name} assume={metric.assume} better={metric.better}"
        for name, metric in units.items()
    ]
    arms = dict.fromkeys(series.arm for _, _, many in found for series in many)
    return [*head, *(text for arm in arms for text in _arm(arm, found))]


def unit(metric: Metric) -> str:
    """The unit as one word."""
    return _WORD.sub("_", metric.unit)


def _arm(
    arm: str, cases: Sequence[tuple[Sequence[tuple[str, str]], Metric, Sequence[Series]]]
) -> Iterator[str]:
    yield f"arm: {_line(arm)}"
    for group, metric, many in cases:
        for series in many:
            if series.arm != arm:
                continue
            for boot in series.valid:
                yield f"# boot: {_line(boot.label)}"
                for value in boot.values:
                    yield f"Benchmark{_name(group, metric)} 1 {value!r} {unit(metric)}"


def _line(text: str) -> str:
    """Text that stays on its line, and does nothing to a terminal."""
    return printable(" ".join(text.split())) or "-"


def _name(group: Sequence[tuple[str, str]], metric: Metric) -> str:
    """Benchmark names begin with a capital, and parts are key=value."""
    title = _WORD.sub("_", metric.name)
    parts = [f"{_WORD.sub('_', key)}={_WORD.sub('_', text)}" for key, text in group]
    return "/".join([title[:1].upper() + title[1:], *parts])
