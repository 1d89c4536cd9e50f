# SPDX-License-Identifier: GPL-2.0-or-later
"""What the readers of declared formats share: figures are collected, and directions settled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping as Dictionary
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kdelta.errors import SpecError
from kdelta.imports.mapping import Mapping, MetricKeys, direction
from kdelta.imports.record import ArmFacts, Contents, ImportReading, Pairs, Published, SourceFile
from kdelta.metric import Assume, Better, Metric
from kdelta.printable import known, printable, quoted
from kdelta.verdict.series import ReplicateUnit

Sources = Sequence[tuple[int, SourceFile]]  # with the number of each
Labels = Dictionary[int, str]  # of each source, what names its arm where nothing in it does


@dataclass(slots=True)
class Collected:
    """The figures that were read so far; skipped: metrics that nothing gives a direction."""

    mapping: Mapping | None
    metrics: dict[str, Metric] = field(default_factory=dict)
    skipped: dict[str, None] = field(default_factory=dict)
    readings: list[ImportReading] = field(default_factory=list)
    published: list[Published] = field(default_factory=list)
    counts: Counter[tuple[str, Pairs, str]] = field(default_factory=Counter)

    def judged(
        self,
        name: str,
        unit: str,
        better: Better | None,
        place: str,
        assume: Assume = Assume.NOTHING,
    ) -> bool:
        """True for a metric with a direction: the mapping's, else better.  Raises SpecError."""
        keys = (self.mapping.metrics.get(name) if self.mapping else None) or MetricKeys(
            assume=assume
        )
        better = direction(keys.better) if keys.better else better
        if better is None:
            self.skipped[name] = None
            return False
        found = Metric(name=name, unit=keys.unit or unit, better=better, assume=keys.assume)
        before = self.metrics.setdefault(name, found)
        if before != found:
            units = f"{quoted(found.unit)} here and in {quoted(before.unit)} above"
            cause = f"{printable(name, 60)} is in {units}"
            raise SpecError(cause, place=place, action="import what was measured in one unit")
        return True

    def value(
        self,
        source: int,
        line: int,
        arm: str,
        metric: str,
        value: float | None,
        replicate: str = "",
        **more: Any,
    ) -> None:
        """Keep a value of a replicate, else of the next of its arm; more: fields of a reading."""
        key = (arm, more.get("group", ()), metric)
        self.counts[key] += 1
        fields = {"round": self.counts[key]} | more
        self.readings.append(
            ImportReading(
                source=source,
                line=line,
                arm=arm,
                metric=metric,
                value=value,
                replicate=f"{arm} {replicate or f'r{self.counts[key]}'}",
                **fields,
            )
        )

    def summary(self, source: int, line: int, arm: str, metric: str, **more: Any) -> None:
        """Keep what somebody computed; more: other fields of `Published`."""
        said = Published(source=source, line=line, arm=arm, metric=metric, **more)
        self.published.append(said)

    def contents(self, replicate: ReplicateUnit | None, **more: Any) -> Contents:
        """All of it; more: other fields of contents.  Raises SpecError for a mapping's typo."""
        names = [*self.metrics, *self.skipped]
        for name in self.mapping.metrics if self.mapping else ():
            if name not in names:
                cause = f"the mapping names the metric {quoted(name)}, and nothing has it"
                action = known(name, (printable(one, 60) for one in names[:20]))
                raise SpecError(cause, place="--mapping", action=action)
        notes = []
        if names := [printable(name, 60) for name in self.skipped]:
            shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if names[5:] else "")
            line = f'[metrics."{names[0]}"] better = "less"'
            text = f"not judged, no direction is declared: {shown}; a mapping can, as in {line}"
            notes.append(text)
        figures: list[ImportReading | Published] = [*self.readings, *self.published]
        arms = dict.fromkeys((item.arm, item.group) for item in figures)
        found = Contents(
            metrics=tuple(self.metrics.values()),
            readings=tuple(self.readings),
            published=tuple(self.published),
            arms=tuple(ArmFacts(arm=arm, group=g, replicate=replicate) for arm, g in arms),
            notes=tuple(notes),
        )
        return replace(found, **more)


def one_table(sources: Sources) -> tuple[int, SourceFile]:
    """The only source.  Raises SpecError for several: their arms have no common order."""
    if len(sources) > 1:
        cause = "it is one of several tables"
        raise SpecError(cause, place=sources[1][1].name, action="import one")
    return sources[0]
