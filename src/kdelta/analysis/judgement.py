# SPDX-License-Identifier: GPL-2.0-or-later
"""The analysis of an import: what kdelta says of others' data, and what their own tools say."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from kdelta.analysis import summarised
from kdelta.analysis.answer import ImportAnswer, answer
from kdelta.analysis.compat import framework, lkp, mmtests
from kdelta.analysis.standing import limited, untold
from kdelta.errors import SpecError
from kdelta.foreign import clocks, summaries
from kdelta.foreign.arms import count_on, in_order, stem
from kdelta.foreign.record import Foreign, ImportFormat, Pairs, Published
from kdelta.foreign.series import Case, GroupAudit, audits, cases
from kdelta.foreign.summaries import Dimension
from kdelta.metric import Better, Grade, Metric
from kdelta.stats import detectors, multiplicity, published_rules, timing
from kdelta.stats.decomposition import shares
from kdelta.verdict.comparison import Caution, Comparison, Share, Trap, Verdict
from kdelta.verdict.series import Series, Summary, summarise

# What is said of values that were not published would only repeat that they were not.
_ABOUT_VALUES = (Trap.FEW, Trap.FAILED, Trap.ORDER, Trap.REPLICATE, Trap.CONTROL)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgementChoice:
    """What to judge: arms and metric by name or unique beginning; None: as the data suggests."""

    old: str | None = None
    new: str | None = None
    control: str | None = None
    metric: str | None = None
    grade: Grade | None = None
    tolerance: float = timing.TOLERANCE
    alpha: float = timing.ALPHA
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPair:
    """Two arms of a finding and the verdict on them."""

    old: str
    new: str
    control: str | None
    comparison: Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """How much of the step old -> new a later arm closes."""

    old: str
    new: str
    share: Share


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """A pair by the rules of others: benchstat's test, mmtests' star, lkp's line and change."""

    old: str
    new: str
    benchstat: published_rules.Benchstat
    star: bool | None
    lkp_line: str
    lkp_changed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Compat:
    """What other tools make of the same values, for a finding; never used for a verdict.

    rules: tolerance, CV limit and baseline arm of the framework's columns; own: they are its own,
    and not kdelta's default for data of another kind.
    others: what benchstat, mmtests and lkp would decide on each pair.
    """

    framework: tuple[framework.FrameworkRow, ...]
    baseline: str
    tolerance: float
    max_cv: float
    own: bool
    mmtests: tuple[mmtests.MmtestsRow, ...]
    mmtests_arms: tuple[str, ...]
    others: tuple[Others, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One metric in one group."""

    group: Pairs
    metric: Metric
    arms: tuple[Summary, ...]
    published: tuple[Published, ...]
    pairs: tuple[JudgedPair, ...]
    gaps: tuple[Gap, ...]
    cautions: tuple[Caution, ...]
    compat: Compat


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """All that may be printed of an import; how: what the columns of each file were taken for."""

    answer: ImportAnswer
    name: str
    read_as: str
    created: str
    sources: tuple[tuple[str, str, int], ...]
    findings: tuple[Finding, ...]
    audits: tuple[GroupAudit, ...]
    dimensions: tuple[Dimension, ...]
    notes: tuple[str, ...]
    how: tuple[str, ...] = ()


def judge(name: str, foreign: Foreign, choice: JudgementChoice) -> Judgement:
    """Judge an import.  Raises SpecError for an arm or a metric that it does not have."""
    found = cases(foreign.contents)
    wanted = _of_metric(found, choice.metric)
    plans = [(case, _pairs(case, choice)) for case in found]
    if choice.old or choice.new:
        plans = [(case, pairs) for case, pairs in plans if pairs]
        if not any(case in wanted for case, _ in plans):
            raise _no_such_arm(wanted, choice)
    judged = [
        tuple(_pair(case, old, new, control, choice) for old, new, control in pairs)
        for case, pairs in plans
    ]
    shared = _Shared.of(found, foreign.contents.published)
    audited = audits(foreign.contents)
    # All metrics are one family, also when only one is to be shown.
    stand = [
        tuple(
            _standing(case, pair, audited, table=foreign.kind == ImportFormat.TABLE)
            for pair in pairs
        )
        for (case, _), pairs in zip(plans, _corrected(plans, judged), strict=True)
    ]
    findings = tuple(
        _finding(case, pairs, choice, shared)
        for (case, _), pairs in zip(plans, stand, strict=True)
        if case in wanted
    )
    dimensions = summaries.cpus(found)
    notes = foreign.contents.notes
    return Judgement(
        answer=answer(findings, dimensions, notes, tolerance=choice.tolerance),
        name=name,
        read_as=foreign.kind,
        created=foreign.created,
        sources=tuple((s.name, s.sha256, s.size) for s in foreign.sources),
        findings=findings,
        audits=audited,
        dimensions=dimensions,
        notes=notes,
        how=foreign.contents.how,
    )


def _standing(
    case: Case, pair: JudgedPair, audited: Sequence[GroupAudit], *, table: bool
) -> JudgedPair:
    """A pair with its verdict as far as the whole import lets it stand."""
    old, new = case.arm(pair.old), case.arm(pair.new)
    if old is None or new is None:
        return pair
    return replace(pair, comparison=limited(old, new, pair.comparison, audited, table=table))


def beside(found: Sequence[Case], grade: Grade, *, tolerance: float) -> tuple[Finding, ...]:
    """Our own measurements as other tools would see them, neighbours compared."""
    choice = JudgementChoice(grade=grade, tolerance=tolerance)
    shared = _Shared.of(found, ())
    return tuple(
        _finding(
            case,
            tuple(_pair(case, old, new, None, choice) for old, new in pairwise(case.series)),
            choice,
            shared,
        )
        for case in found
    )


@dataclass(frozen=True, slots=True)
class _Shared:
    """What only shows over several metrics."""

    paired: bool
    ticks: Mapping[tuple[Pairs, str], clocks.Tick | None]

    @classmethod
    def of(cls, found: Sequence[Case], published: Sequence[Published]) -> _Shared:
        alike: dict[tuple[Pairs, str], list[Case]] = {}
        for case in found:
            alike.setdefault((case.group, case.metric.unit), []).append(case)
        ticks = {key: clocks.shared_tick(members) for key, members in alike.items()}
        return cls(summaries.counted_in_pairs(published), ticks)


def _corrected(
    plans: Sequence[tuple[Case, object]], judged: Sequence[tuple[JudgedPair, ...]]
) -> list[tuple[JudgedPair, ...]]:
    """Verdicts with Holm's correction over the metrics of one pair of arms in one group."""
    families: dict[tuple[Pairs, str, str], list[tuple[int, int]]] = {}
    for at, ((case, _), pairs) in enumerate(zip(plans, judged, strict=True)):
        for index, pair in enumerate(pairs):
            families.setdefault((case.group, pair.old, pair.new), []).append((at, index))
    found = [list(pairs) for pairs in judged]
    for family in families.values():
        members = [found[at][index] for at, index in family]
        decided = multiplicity.correct(
            [pair.comparison for pair in members],
            multiplicity.copies(
                [_values(plans[at][0], pair) for (at, _), pair in zip(family, members, strict=True)]
            ),
        )
        for (at, index), pair, comparison in zip(family, members, decided, strict=True):
            found[at][index] = replace(pair, comparison=comparison)
    return [tuple(pairs) for pairs in found]


def _values(case: Case, pair: JudgedPair) -> list[tuple[float, ...]]:
    """All values of a pair, arm by arm."""
    names = (pair.old, pair.new, pair.control)
    return [arm.values for name in names if name and (arm := case.arm(name))]


def _of_metric(found: Sequence[Case], name: str | None) -> Sequence[Case]:
    if name is None:
        return found
    names = tuple(dict.fromkeys(case.metric.name for case in found))
    metric = _named(name, names)
    if metric is None:
        listed = ", ".join(names) or "none"
        raise SpecError(
            f'no metric is called "{name}"', place="--metric", action=f"there are {listed}"
        )
    return [case for case in found if case.metric.name == metric]


def _named(text: str, names: Sequence[str]) -> str | None:
    """The name that `text` is, or is the only beginning of."""
    if text in names:
        return text
    found = [name for name in names if name.startswith(text)]
    return found[0] if len(found) == 1 else None


def _no_such_arm(found: Sequence[Case], choice: JudgementChoice) -> SpecError:
    arms = dict.fromkeys(series.arm for case in found for series in case.series)
    asked = ", ".join(text for text in (choice.old, choice.new, choice.control) if text)
    return SpecError(
        f'no metric has arms called "{asked}"',
        place="--old, --new, --control",
        action=f"there are {', '.join(arms) or 'none'}",
    )


def _pairs(case: Case, choice: JudgementChoice) -> list[tuple[Series, Series, Series | None]]:
    """(old, new, control) to compare."""
    if choice.old or choice.new or choice.control:
        return _asked(case, choice)
    sandwich = _sandwich(case)
    if sandwich:
        return [sandwich]
    return [(old, new, None) for old, new in zip(case.series, case.series[1:], strict=False)]


def _asked(case: Case, choice: JudgementChoice) -> list[tuple[Series, Series, Series | None]]:
    if not (choice.old and choice.new):
        raise SpecError(
            "--old and --new go together", place="kdelta judge", action="give both, or neither"
        )
    names = [series.arm for series in case.series]
    wanted = [choice.old, choice.new, *([choice.control] if choice.control else [])]
    arms = [case.arm(name) for text in wanted if (name := _named(text, names))]
    if len(arms) < len(wanted) or len({arm.arm for arm in arms if arm}) < len(wanted):
        return []
    old, new, *rest = [arm for arm in arms if arm]
    return [(old, new, rest[0] if rest else None)]


def _sandwich(case: Case) -> tuple[Series, Series, Series] | None:
    """A, B, A where two of three arms have one role, one commit, or one name but for a or b."""
    if len(case.series) != 3:
        return None
    roles = dict(case.roles)
    names = [series.arm for series in case.series]
    for key in (
        [roles.get(series.arm, "") for series in case.series],
        [case.detail(series.arm, "commit") for series in case.series],
        [] if count_on(names) else [stem(name) for name in names],
    ):
        twice = next((word for word in key if word and key.count(word) == 2), None)
        if twice is not None:
            same = [s for s, word in zip(case.series, key, strict=True) if word == twice]
            other = next(s for s, word in zip(case.series, key, strict=True) if word != twice)
            ranked, how = in_order([twice, other.arm])
            if how in ("versions", "words") and ranked[0] == other.arm and not roles:
                continue  # vanilla, patchA, patchB: two new arms
            first, second = sorted(same, key=_began)
            return first, other, second
    return None


def _began(series: Series) -> int:
    return min((boot.position for boot in series.boots if boot.position is not None), default=0)


def _finding(
    case: Case, pairs: tuple[JudgedPair, ...], choice: JudgementChoice, shared: _Shared
) -> Finding:
    from_pairs = [caution for pair in pairs for caution in pair.comparison.cautions]
    alone = [] if pairs else _alone(case)
    remarks = [Caution(trap=Trap.FACTS, sentence=text) for text in case.remarks]
    published = list(summaries.cautions(case, paired=shared.paired))
    clock = clocks.cautions(case, shared.ticks.get((case.group, case.metric.unit)))
    unknown = [*_unknown_replicates(case), *untold(case, asked=choice.old is not None)]
    every = [*published, *clock, *from_pairs, *alone, *remarks, *unknown]
    return Finding(
        group=case.group,
        metric=case.metric,
        arms=tuple(summarise(series) for series in case.series),
        published=case.published,
        pairs=pairs,
        gaps=tuple(_gaps(case, pairs, choice)),
        cautions=tuple(dict.fromkeys(every)),
        compat=_compat(case, pairs),
    )


def _gaps(case: Case, pairs: Sequence[JudgedPair], choice: JudgementChoice) -> Iterator[Gap]:
    """For a step between two arms: the share of it that each later arm closes."""
    for pair in pairs:
        old, new = case.arm(pair.old), case.arm(pair.new)
        if not (pair.comparison.verdict.is_step and old and new) or pair.control:
            continue
        arms = case.series[case.series.index(new) + 1 :]
        # The shares claim no more than the step does: its level, and all arms together.
        level = choice.alpha / pair.comparison.hypotheses
        open_ = {one.new for one in pairs if one.old == pair.new and _left_open(one.comparison)}
        for share in shares(old, new, arms, alpha=level):
            told = share
            if share.arm in open_:
                told = share.unsure(f"{pair.new} -> {share.arm} is {Verdict.UNDECIDED}")
            yield Gap(old=pair.old, new=pair.new, share=told)


def _left_open(found: Comparison) -> bool:
    """True where it is no interval around no change that leaves it undecided."""
    if found.verdict is not Verdict.UNDECIDED:
        return False
    if found.interval is None or found.in_these_boots:
        return True
    low, high = found.interval
    return not low <= 1 <= high


def _alone(case: Case) -> list[Caution]:
    limit = case.rules.max_cv if case.rules else None
    return [
        caution
        for series in case.series
        if series.boots
        for caution in detectors.inspect(series, max_cv=limit)
    ]


def _unknown_replicates(case: Case) -> Iterator[Caution]:
    arms = [s.arm for s in case.series if s.boots and case.detail(s.arm, "replicate")]
    if arms:
        text = f"{', '.join(arms)}: nothing says whether runs are boots; taken as process rounds"
        yield Caution(trap=Trap.REPLICATE, sentence=text)


def _pair(
    case: Case, old: Series, new: Series, control: Series | None, choice: JudgementChoice
) -> JudgedPair:
    grade = choice.grade or _grade(old)
    comparison = timing.compare(
        old,
        new,
        control=control,
        grade=grade,
        tolerance=choice.tolerance,
        alpha=choice.alpha,
        seed=choice.seed,
        max_cv=case.rules.max_cv if case.rules else None,
    )
    arms = [series for series in (old, new, control) if series]
    if not all(series.boots for series in arms):
        kept = tuple(c for c in comparison.cautions if c.trap not in _ABOUT_VALUES)
        comparison = replace(comparison, cautions=kept)
        if comparison.verdict is Verdict.UNDECIDED:
            comparison = summarised.compare(case, comparison, arms)
    return JudgedPair(
        old=old.arm,
        new=new.arm,
        control=control.arm if control else None,
        comparison=comparison,
    )


def _grade(series: Series) -> Grade:
    """A guest when the data names the guest's memory; a bare machine is for the user to name."""
    return Grade.GUEST_TIME if series.fact("requested_memory_mib") else Grade.HOST_TIME


def _compat(case: Case, pairs: Sequence[JudgedPair]) -> Compat:
    with_values = [series for series in case.series if series.values]
    runs = [
        framework.Runs(
            arm=series.arm,
            values=tuple(statistics.fmean(boot.values) for boot in series.valid),
            failures=tuple(boot.failure for boot in series.boots if boot.failure),
        )
        for series in case.series
        if series.boots
    ]
    rules = case.rules
    baseline = _baseline(case, pairs)
    tolerance = rules.tolerance if rules else framework.TOLERANCE
    max_cv = rules.max_cv if rules else framework.MAX_CV
    first = pairs[0].old if pairs else case.series[0].arm
    ordered = sorted(with_values, key=lambda series: series.arm != first)
    return Compat(
        framework=framework.rows(
            runs,
            baseline=baseline,
            tolerance=tolerance,
            max_cv=max_cv,
            lower_is_better=case.metric.better is Better.LOWER,
        ),
        baseline=baseline,
        tolerance=tolerance,
        max_cv=max_cv,
        own=rules is not None,
        mmtests=(
            mmtests.table([series.values for series in ordered], case.metric.better)
            if ordered
            else ()
        ),
        mmtests_arms=tuple(series.arm for series in ordered),
        others=tuple(
            _others(case.metric, old, new)
            for pair in pairs
            if (old := case.arm(pair.old)) and (new := case.arm(pair.new))
            if old.values and new.values
        ),
    )


def _others(metric: Metric, old: Series, new: Series) -> Others:
    enough = min(len(old.values), len(new.values)) > 1
    return Others(
        old=old.arm,
        new=new.arm,
        benchstat=published_rules.benchstat(old.values, new.values),
        star=mmtests.significant(old.values, new.values, metric.better) if enough else None,
        lkp_line=lkp.line(metric.name, old.values, new.values),
        lkp_changed=published_rules.lkp_changed(old.values, new.values),
    )


def _baseline(case: Case, pairs: Sequence[JudgedPair]) -> str:
    """The framework's baseline: its own is a version family; else the old arm."""
    if case.rules:
        for series in case.series:
            if case.detail(series.arm, "version_family") == case.rules.baseline:
                return series.arm
    return pairs[0].old if pairs else case.series[0].arm
