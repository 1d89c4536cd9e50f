# SPDX-License-Identifier: GPL-2.0-or-later
"""From contents to what can be judged: for each group and metric, the series of every arm."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kdelta.imports.record import (
    Audited,
    Contents,
    ImportReading,
    Pairs,
    Published,
    PublishedRules,
    Roles,
    in_order,
)
from kdelta.metric import Metric
from kdelta.verdict.series import Boot, ReplicateUnit, Series


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One metric in one group.

    series:    of each arm, oldest first where that is declared; without boots when only
               summaries were published.
    published: what others printed of the arms.
    ordered:   the arms stand in a declared order, or in that of their versions.
    roles:     which arms are compared, where that was declared.
    details:   of each arm what is no condition of the machine: lost runs ...
    """

    group: Pairs
    metric: Metric
    series: tuple[Series, ...]
    published: tuple[Published, ...] = ()
    ordered: bool = True
    roles: Roles | None = None
    details: tuple[tuple[str, Pairs], ...] = ()
    rules: PublishedRules | None = None

    def detail(self, arm: str, name: str) -> str:
        """One detail of an arm; "" when it is not known."""
        return dict(dict(self.details).get(arm, ())).get(name, "")

    def arm(self, name: str) -> Series | None:
        """The series of that arm."""
        return next((series for series in self.series if series.arm == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAudit:
    """The page state of the arms of one group; runs: arm -> how many of how many were audited."""

    group: Pairs
    arms: tuple[str, ...]
    fields: tuple[tuple[str, tuple[str, ...]], ...]
    runs: Pairs

    @property
    def differing(self) -> tuple[str, ...]:
        """Fields that are not the same in every arm that has them."""
        return tuple(name for name, texts in self.fields if len({t for t in texts if t}) > 1)


def cases(contents: Contents) -> tuple[Case, ...]:
    """Every (group, metric) with its arms, in the order of the sources."""
    metrics = {metric.name: metric for metric in contents.metrics}
    readings: defaultdict[_Key, dict[str, list[ImportReading]]] = defaultdict(dict)
    for item in contents.readings:
        readings[item.group, item.metric].setdefault(item.arm, []).append(item)
    said: defaultdict[_Key, list[Published]] = defaultdict(list)
    for one in contents.published:
        said[one.group, one.metric].append(one)
    known, keys = _Known(contents), dict.fromkeys([*readings, *said])
    return tuple(_case(key[0], metrics[key[1]], readings[key], said[key], known) for key in keys)


def audits(contents: Contents) -> tuple[GroupAudit, ...]:
    """What was audited, for each group; "" where an arm has no value of a field."""
    known, found = _Known(contents), []
    by_group: defaultdict[Pairs, list[Audited]] = defaultdict(list)
    for item in contents.audited:
        by_group[item.group].append(item)
    for group, mine in by_group.items():
        arms, _ = known.ranked(item.arm for item in mine)
        texts = {(item.arm, item.field): ", ".join(item.values) for item in mine}
        details = {arm: known.details(arm, group) for arm in arms}
        names = dict.fromkeys(item.field for item in mine)
        said = tuple((n, tuple(texts.get((arm, n), "") for arm in arms)) for n in names)
        runs = tuple((arm, details[arm]["runs"]) for arm in arms if "runs" in details[arm])
        found.append(GroupAudit(group=group, arms=tuple(arms), fields=said, runs=runs))
    return tuple(found)


_T = TypeVar("_T")
_Key = tuple[Pairs, str]  # group, metric


class _ByGroup(Generic[_T]):
    """Items of arms and groups; an item holds for every group that has the pairs of its own.

    They are found by the names in their groups, of which there are few sets: a search through all
    items for each of thousands of settings would take minutes.
    """

    def __init__(self, items: Iterable[tuple[str, Pairs, _T]]) -> None:
        self._names: dict[str, dict[frozenset[str], None]] = {}
        self._items: dict[tuple[str, frozenset[tuple[str, str]]], list[_T]] = {}
        for arm, group, item in items:
            self._names.setdefault(arm, {})[frozenset(name for name, _ in group)] = None
            self._items.setdefault((arm, frozenset(group)), []).append(item)

    def of(self, arm: str, group: Pairs) -> list[_T]:
        """What holds for that arm in that group."""
        keys = (frozenset(p for p in group if p[0] in names) for names in self._names.get(arm, {}))
        return [item for key in dict.fromkeys(keys) for item in self._items.get((arm, key), ())]


class _Known:
    """The facts, states and rules of contents, found by arm and group."""

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        self.arms = _ByGroup((one.arm, one.group, one) for one in contents.arms)
        self.states = _ByGroup(
            (one.arm, one.group, (one.field, ", ".join(one.values))) for one in contents.audited
        )
        self.rules = _ByGroup(("", one.group, one) for one in contents.rules)
        figures: Iterable[ImportReading | Published] = (*contents.readings, *contents.published)
        names = [*(item.arm for item in figures), *(item.arm for item in contents.audited)]
        self._met = {arm: at for at, arm in enumerate(dict.fromkeys(names))}

    def ranked(self, names: Iterable[str]) -> tuple[list[str], bool]:
        """The arms, oldest first, and True; as the whole import has them, where nothing tells."""
        arms, order = sorted(set(names), key=self._met.__getitem__), self.contents.order
        if all(arm in order for arm in arms):
            return sorted(arms, key=order.index), True
        known = in_order(arms)
        return (arms, len(arms) < 2) if known is None else (known, True)

    def details(self, arm: str, group: Pairs) -> dict[str, str]:
        about = self.arms.of(arm, group)
        found = dict(pair for item in about for pair in item.details)
        return found if any(item.replicate for item in about) else found | {"replicate": "not said"}


def _case(
    group: Pairs,
    metric: Metric,
    readings: Mapping[str, list[ImportReading]],
    said: Sequence[Published],
    known: _Known,
) -> Case:
    arms, ordered = known.ranked([*readings, *(one.arm for one in said)])
    series = (_series(arm, metric, group, readings.get(arm, []), said, known) for arm in arms)
    return Case(
        group=group,
        metric=metric,
        series=tuple(series),
        published=tuple(said),
        ordered=ordered,
        roles=known.contents.roles,
        details=tuple((arm, tuple(known.details(arm, group).items())) for arm in arms),
        rules=next(iter(known.rules.of("", group)), None),
    )


def _series(
    arm: str,
    metric: Metric,
    group: Pairs,
    readings: Sequence[ImportReading],
    said: Sequence[Published],
    known: _Known,
) -> Series:
    about = known.arms.of(arm, group)
    boots = tuple(_boots(readings))
    counts = [(one.ok or 0) + (one.failed or 0) for one in said if one.arm == arm]
    planned = [item.planned for item in about if item.planned]
    planned += [len(boots) or max(counts, default=0)]
    replicates = [item.replicate for item in about if item.replicate]
    return Series(
        arm=arm,
        metric=metric,
        boots=boots,
        planned=planned[0],
        facts=tuple(dict(pair for item in about for pair in item.facts).items()),
        state=tuple(sorted(dict(known.states.of(arm, group)).items())),
        replicate=[*replicates, ReplicateUnit.PROCESS_ROUND][0],
    )


def _boots(readings: Sequence[ImportReading]) -> list[Boot]:
    """Replicates in the order of the session where known, each with its samples in order."""
    grouped: defaultdict[str, list[ImportReading]] = defaultdict(list)
    for item in readings:
        grouped[item.replicate].append(item)
    made = []
    for label, items in grouped.items():
        first, values = items[0], tuple(item.value for item in items if item.value is not None)
        boot = Boot(
            label=label,
            position=first.position,
            values=values,
            failure="" if values else next((i.failure for i in items if i.failure), "no value"),
            refilled=any(item.refilled for item in items),
            round=first.round,
            boot_id=first.boot_id,
            run=first.run,
        )
        made.append(boot)
    if all(boot.position is not None for boot in made):
        made.sort(key=lambda boot: boot.position or 0)
    return made
