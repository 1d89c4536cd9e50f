# SPDX-License-Identifier: GPL-2.0-or-later
"""From contents to what can be judged: for each group and metric, the series of every arm."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from kdelta.foreign import words
from kdelta.foreign.arms import in_order
from kdelta.foreign.record import (
    ArmFacts,
    Contents,
    ForeignReading,
    Pairs,
    Published,
    PublishedRules,
)
from kdelta.foreign.wordlists import vocabulary
from kdelta.metric import Metric
from kdelta.verdict.series import Boot, ReplicateUnit, Series

_BLOCK = 2  # runs of an arm after each other, at least, are a block of the session
# The one dimension that is also a request to the machine.
_CPUS = vocabulary(
    "cpu cpus ncpu ncpus nr_cpu nr_cpus vcpu vcpus smp guest_cpu guest_cpus num_cpus"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One metric in one group.

    series:    of each arm, oldest version first where the names are versions; without boots when
               only summaries were published.
    published: what others printed of the arms.
    roles:     arm -> role, where the data names roles (parent, child).
    details:   of each arm what is no condition of the machine: commit, lost runs ...
    remarks:   sentences on sources that contradict each other.
    ordered:   how it is known which arm is older: "given", "versions", "words"; "": it is not.
    """

    group: Pairs
    metric: Metric
    series: tuple[Series, ...]
    published: tuple[Published, ...]
    roles: Pairs = ()
    details: tuple[tuple[str, Pairs], ...] = ()
    rules: PublishedRules | None = None
    remarks: tuple[str, ...] = ()
    ordered: str = ""

    def detail(self, arm: str, name: str) -> str:
        """One detail of an arm; "" when it is not known."""
        return dict(dict(self.details).get(arm, ())).get(name, "")

    def arm(self, name: str) -> Series | None:
        """The series of that arm."""
        return next((series for series in self.series if series.arm == name), None)


def cases(contents: Contents) -> tuple[Case, ...]:
    """Every (group, metric) with its arms, in the order of the sources."""
    metrics = {metric.name: metric for metric in contents.metrics}
    readings: dict[tuple[Pairs, str], dict[str, list[ForeignReading]]] = {}
    for item in contents.readings:
        readings.setdefault((item.group, item.metric), {}).setdefault(item.arm, []).append(item)
    said: dict[tuple[Pairs, str], list[Published]] = {}
    for one in contents.published:
        said.setdefault((one.group, one.metric), []).append(one)
    known = _Known.of(contents)
    keys = dict.fromkeys([*readings, *said])
    return tuple(
        _case(key[0], metrics[key[1]], readings.get(key, {}), said.get(key, []), known)
        for key in keys
        if key[1] in metrics
    )


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


def audits(contents: Contents) -> tuple[GroupAudit, ...]:
    """What was audited, for each group; "" where an arm has no value of a field."""
    known = _Known.of(contents)
    found = []
    for group in dict.fromkeys(item.group for item in contents.audited):
        mine = [item for item in contents.audited if item.group == group]
        arms, _ = known.ranked(item.arm for item in mine)
        texts = {(item.arm, item.field): ", ".join(item.values) for item in mine}
        fields = dict.fromkeys(item.field for item in mine)
        facts = {arm: dict(_details(known.about(arm, group))) for arm in arms}
        found.append(
            GroupAudit(
                group=group,
                arms=tuple(arms),
                fields=tuple(
                    (name, tuple(texts.get((arm, name), "") for arm in arms)) for name in fields
                ),
                runs=tuple((arm, facts[arm]["runs"]) for arm in arms if "runs" in facts[arm]),
            )
        )
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Known:
    """The facts and states of contents, found by arm."""

    arms: Mapping[str, tuple[ArmFacts, ...]]
    states: Mapping[str, tuple[tuple[Pairs, str, str], ...]]
    rules: tuple[PublishedRules, ...]
    order: tuple[str, ...]
    met: Mapping[str, int]

    @classmethod
    def of(cls, contents: Contents) -> _Known:
        arms: dict[str, list[ArmFacts]] = {}
        for item in contents.arms:
            arms.setdefault(item.arm, []).append(item)
        states: dict[str, list[tuple[Pairs, str, str]]] = {}
        for field in contents.audited:
            text = ", ".join(field.values)
            states.setdefault(field.arm, []).append((field.group, field.field, text))
        return cls(
            {arm: tuple(items) for arm, items in arms.items()},
            {arm: tuple(items) for arm, items in states.items()},
            contents.rules,
            contents.order,
            {arm: at for at, arm in enumerate(dict.fromkeys(_every_arm(contents)))},
        )

    def ranked(self, names: Iterable[str]) -> tuple[list[str], str]:
        """Arms, oldest first; where nothing tells, as the whole import has them, not one group."""
        return in_order(sorted(set(names), key=self.met.__getitem__), self.order)

    def about(self, arm: str, group: Pairs) -> list[ArmFacts]:
        items = (*self.arms.get("", ()), *self.arms.get(arm, ()))
        return [item for item in items if _within(item.group, group)]

    def state(self, arm: str, group: Pairs) -> Pairs:
        found = {
            field: text for where, field, text in self.states.get(arm, ()) if _within(where, group)
        }
        return tuple(sorted(found.items()))


def _every_arm(contents: Contents) -> Iterator[str]:
    for part in (contents.readings, contents.published, contents.audited):
        yield from (item.arm for item in part)


def _within(part: Pairs, whole: Pairs) -> bool:
    return set(part) <= set(whole)


def _case(
    group: Pairs,
    metric: Metric,
    readings: Mapping[str, list[ForeignReading]],
    said: Sequence[Published],
    known: _Known,
) -> Case:
    arms, ordered = known.ranked([*readings, *(one.arm for one in said)])
    series, remarks = [], []
    for arm in arms:
        published = [one for one in said if one.arm == arm]
        made = _series(arm, metric, group, readings.get(arm, []), published, known)
        series.append(made)
        remarks += [text for one in published for text in _contradicted(made, one)]
    if not said and (three := _sandwiched(series, ordered)):
        series, ordered = three, ordered or "given"
    roles = {
        arm: item.role for arm in arms for item in known.about(arm, group) if item.role and item.arm
    }
    return Case(
        group=group,
        metric=metric,
        series=tuple(series),
        published=tuple(said),
        roles=tuple(roles.items()),
        details=tuple((arm, tuple(_details(known.about(arm, group)))) for arm in arms),
        rules=next((rule for rule in known.rules if _within(rule.group, group)), None),
        remarks=tuple(dict.fromkeys(remarks)),
        ordered=ordered,
    )


def _sandwiched(series: Sequence[Series], ordered: str) -> list[Series]:
    """A, B and A again, where the places of two arms say A...A B...B A...A; else nothing.

    The arm that was measured twice is the old one, unless their names say otherwise.
    """
    if len(series) != 2 or any(boot.position is None for one in series for boot in one.boots):
        return []
    placed = sorted(
        ((boot.position or 0, at) for at, one in enumerate(series) for boot in one.boots)
    )
    blocks = [(at, len(list(each))) for at, each in groupby(placed, key=lambda pair: pair[1])]
    twice = blocks[0][0] if len(blocks) == 3 else -1
    # Three boots in all that have values are one each: their midpoint and drift are told.
    whole = len(placed) == len(blocks) and all(boot.values for one in series for boot in one.boots)
    least = 1 if whole else _BLOCK
    if twice < 0 or min(count for _, count in blocks) < least or (ordered and twice != 0):
        return []
    old, new = series[twice], series[1 - twice]
    boots = sorted(old.boots, key=lambda boot: boot.position or 0)
    cut, lost = blocks[0][1], max(old.planned - len(boots), 0)
    first = replace(old, boots=tuple(boots[:cut]), planned=cut + lost)
    again = f"{old.arm} again"
    rest = tuple(boots[cut:])
    return [first, new, replace(old, arm=again, boots=rest, planned=len(rest))]


def _details(about: Sequence[ArmFacts]) -> Iterator[tuple[str, str]]:
    found = dict(pair for item in about for pair in item.details)
    yield from found.items()
    if not any(item.replicate for item in about):
        yield "replicate", "not said"


def _series(
    arm: str,
    metric: Metric,
    group: Pairs,
    readings: Sequence[ForeignReading],
    published: Sequence[Published],
    known: _Known,
) -> Series:
    about = known.about(arm, group)
    boots = tuple(_boots(readings))
    facts = dict(pair for item in about for pair in item.facts)
    _cpus(facts, group)
    replicate = next((item.replicate for item in about if item.replicate), None)
    planned = next((item.planned for item in about if item.planned), None)
    if planned is None:
        counts = [(one.ok or 0) + (one.failed or 0) for one in published]
        planned = len(boots) or max(counts, default=0)
    return Series(
        arm=arm,
        metric=metric,
        boots=boots,
        planned=planned,
        facts=tuple(facts.items()),
        state=known.state(arm, group),
        replicate=replicate or ReplicateUnit.PROCESS_ROUND,
    )


def _cpus(facts: dict[str, str], group: Pairs) -> None:
    named = (text for name, text in group if "_".join(words.words(name)) in _CPUS)
    requested = facts.get("requested_cpus") or next(named, None)
    if requested:
        facts["requested_cpus"] = requested
        if facts.get("seen_cpus") == "as requested":
            facts["seen_cpus"] = requested


def _boots(readings: Sequence[ForeignReading]) -> Iterator[Boot]:
    """Replicates in the order of the session where known, each with its samples in order."""
    grouped: dict[tuple[str, str], list[ForeignReading]] = {}
    for item in readings:
        grouped.setdefault((item.replicate, item.run), []).append(item)
    made = []
    for (label, run), items in grouped.items():
        values = tuple(item.value for item in items if item.value is not None)
        failure = next((item.failure for item in items if item.failure), "")
        made.append(
            Boot(
                label=label,
                position=items[0].position,
                values=values,
                failure="" if values else failure or "no value",
                refilled=any(item.refilled for item in items),
                round=items[0].round,
                boot_id=items[0].boot_id,
                run=run,
            )
        )
    if all(boot.position is not None for boot in made):
        made.sort(key=lambda boot: boot.position or 0)
    yield from made


def _rounded(printed: float, mean: float) -> float:
    """How far a printed mean may be from that of the values: it has the digits that it has."""
    digits = len(f"{printed:.9f}".rstrip("0").partition(".")[2])
    return max(6e-4, 1e-5 * abs(mean), 0.6 * 10.0**-digits)


def _contradicted(series: Series, one: Published) -> Iterator[str]:
    """Sentences where a published summary is not that of the values."""
    values = series.values
    if not values:
        return
    mean = statistics.fmean(values)
    if one.mean is not None and abs(one.mean - mean) > _rounded(one.mean, mean):
        yield f"{series.arm}: a mean of {one.mean:g} is published, its values make {mean:.6g}"
    if one.ok is not None and one.ok != len(values):
        yield f"{series.arm}: {one.ok} runs are published, {len(values)} values are there"
    if one.cv is None or len(values) < 2 or not mean:
        return
    sample, population = statistics.stdev(values) / mean, statistics.pstdev(values) / mean
    slack = 0.6 * 10.0**-one.cv_digits
    if abs(one.cv - sample) > slack:
        form = ", the population form" if math.isclose(one.cv, population, abs_tol=slack) else ""
        yield (
            f"{series.arm}: a CV of {100 * one.cv:.3f} % is published{form};"
            f" the sample form is {100 * sample:.3f} %"
        )
