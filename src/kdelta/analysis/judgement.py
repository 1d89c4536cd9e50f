# SPDX-License-Identifier: GPL-2.0-or-later
"""The analysis of an import: what kdelta says of others' data, and what their own tools say.

Every pair of arms gets a verdict by the rules of `stats`; the answer sums them up in sentences.
Where an arm is only a published mean, standard deviation and number of runs, it says what these say
of the change; where the values are there, too, whether they make the summary.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from kdelta.archive.apt import Progress
from kdelta.errors import SpecError
from kdelta.imports.record import SET, Case, GroupAudit, Import, Pairs, Published, audits, cases
from kdelta.metric import Better, Grade, Metric
from kdelta.printable import few
from kdelta.stats import detectors, timing
from kdelta.stats.series import Series, Trap
from kdelta.stats.timing import percent, shares
from kdelta.verdict.comparison import Caution, Comparison, Share, Summary, Verdict

# What is said of values that were not published would only repeat that they were not.
_TOLD = 50  # metrics, between two times when the user sees how many were judged
_BOOTS = "at least 5 boots an arm"
_CORRECTED = "Holm's correction"  # what of a step did not survive is said with it
_ABOUT_VALUES = (Trap.FEW, Trap.FAILED, Trap.ORDER, Trap.REPLICATE, Trap.CONTROL)
_FAMILY = "version_family"


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgementChoice:
    """What to judge: arms and metric by name or unique beginning; None: as the data suggests."""

    old: str | None = None
    new: str | None = None
    metric: str | None = None
    tolerance: float = timing.TOLERANCE
    alpha: float = timing.ALPHA


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
class Compat:
    """What the published framework makes of the same values; never used for a verdict.

    rules: tolerance, CV limit and baseline arm of the framework's columns; own: they are its own,
    and not kdelta's default for data of another kind.
    """

    framework: tuple[FrameworkRow, ...]
    baseline: str
    tolerance: float
    max_cv: float
    own: bool


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
class ImportAnswer:
    """Sentences on an import, the most important first.

    counts:  how often each verdict was given.
    holds:   changes and equalities that were shown.  open: what was compared and not decided.
    invalid: what is not comparable.  contradicted: published figures that the values do not make.
    doubtful: what makes the data less than it looks.  missing: what is incomplete.
    needs:   what would have to be known where something is open.
    """

    counts: tuple[tuple[str, int], ...]
    holds: tuple[str, ...]
    open: tuple[str, ...]
    invalid: tuple[str, ...]
    contradicted: tuple[str, ...]
    doubtful: tuple[str, ...]
    missing: tuple[str, ...]
    needs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """A condition that the arms were measured under at several settings.

    sound: whether every setting was read back as requested; sentence: why, or why not.
    where: the table or bundle, when there are several.
    """

    name: str
    settings: tuple[str, ...]
    sound: bool
    sentence: str
    where: str = ""


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


def judge(
    name: str, found: Import, choice: JudgementChoice, progress: Progress | None = None
) -> Judgement:
    """Judge an import.

    Raises SpecError for an arm or a metric that it does not have, and where nothing says which of
    several arms is the old one.
    """
    every = cases(found.contents)
    wanted: Sequence[Case] = every
    if choice.metric is not None:
        names = tuple(dict.fromkeys(case.metric.name for case in every))
        if (metric := _named(choice.metric, names)) is None:
            cause, told = f'no metric is called "{choice.metric}"', ", ".join(names) or "none"
            raise SpecError(cause, place="--metric", action=f"there are {told}")
        wanted = [case for case in every if case.metric.name == metric]
    plans = [(case, _pairs(case, choice)) for case in every]
    if choice.old or choice.new:
        plans = [(case, pairs) for case, pairs in plans if pairs]
        if not any(case in wanted for case, _ in plans):
            arms = dict.fromkeys(series.arm for case in wanted for series in case.series)
            asked = ", ".join(text for text in (choice.old, choice.new) if text)
            cause = f'no metric has arms called "{asked}"'
            action = f"there are {', '.join(arms) or 'none'}"
            raise SpecError(cause, place="--old, --new", action=action)
    judged = []
    for at, (case, pairs) in enumerate(plans):
        if progress and at % _TOLD == _TOLD - 1:
            progress("judging", 100 * at / len(plans))
        judged.append(tuple(_pair(case, *arms, choice) for arms in pairs))
    # All metrics are one family, also when only one is to be shown.
    findings = tuple(
        _finding(case, pairs, choice)
        for (case, _), pairs in zip(plans, _corrected(plans, judged), strict=True)
        if case in wanted
    )
    dimensions = tuple(_cpus(every))
    return Judgement(
        answer=_answer(findings, dimensions, found.contents.notes),
        name=name,
        read_as=found.kind,
        created=found.created,
        sources=tuple((s.name, s.sha256, s.size) for s in found.sources),
        findings=findings,
        audits=audits(found.contents),
        dimensions=dimensions,
        notes=found.contents.notes,
        how=found.contents.how,
    )


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
        decided = timing.correct([pair.comparison for pair in members])
        for (at, index), pair, comparison in zip(family, members, decided, strict=True):
            found[at][index] = replace(pair, comparison=comparison)
    return [tuple(pairs) for pairs in found]


def _named(text: str, names: Sequence[str]) -> str | None:
    """The name that `text` is, or is the only beginning of."""
    if text in names:
        return text
    found = [name for name in names if name.startswith(text)]
    return found[0] if len(found) == 1 else None


def _pairs(case: Case, choice: JudgementChoice) -> list[tuple[Series, Series, Series | None]]:
    if choice.old or choice.new:
        return _asked(case, choice)
    if case.roles:
        base, again = case.arm(case.roles.old), case.arm(case.roles.control)
        newer = [arm for name in case.roles.new if (arm := case.arm(name))]
        return [(base, arm, again) for arm in newer if base]
    if not case.ordered:
        arms = [series.arm for series in case.series]
        cause = f"nothing says which arm is the old one: {', '.join(arms[:8])}"
        action = "give --old ARM and --new ARM"
        raise SpecError(cause, place=case.metric.name, action=action)
    return [(old, new, None) for old, new in pairwise(case.series)]


def _asked(case: Case, choice: JudgementChoice) -> list[tuple[Series, Series, Series | None]]:
    if not (choice.old and choice.new):
        raise SpecError(
            "--old and --new go together", place="kdelta judge", action="give both, or neither"
        )
    names = [series.arm for series in case.series]
    found = [_named(text, names) for text in (choice.old, choice.new)]
    old, new = (name and case.arm(name) for name in found)
    return [(old, new, None)] if old and new and old is not new else []


def _finding(case: Case, pairs: tuple[JudgedPair, ...], choice: JudgementChoice) -> Finding:
    from_pairs = [caution for pair in pairs for caution in pair.comparison.cautions]
    limit = case.rules.max_cv if case.rules else None
    alone = [series for series in case.series if series.boots and not pairs]
    from_arms = [caution for arm in alone for caution in detectors.inspect(arm, max_cv=limit)]
    remarks = [
        Caution(trap=Trap.FACTS, sentence=text)
        for one in case.published
        if (series := case.arm(one.arm)) and series.values
        for text in _other_summaries(one.arm, series.values, one)
    ]
    every = [*_cautions(case), *from_pairs, *from_arms, *remarks]
    if told := [s.arm for s in case.series if s.boots and case.detail(s.arm, "replicate")]:
        text = f"{', '.join(told)}: nothing says whether runs are boots; taken as process rounds"
        every.append(Caution(trap=Trap.REPLICATE, sentence=text))
    return Finding(
        group=case.group,
        metric=case.metric,
        arms=tuple(detectors.summarise(series) for series in case.series),
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
            why = f"{pair.new} -> {share.arm} is {Verdict.UNDECIDED}"
            told = share.unsure(why) if share.arm in open_ else share
            yield Gap(old=pair.old, new=pair.new, share=told)


def _left_open(found: Comparison) -> bool:
    """True where it is no interval around no change that leaves it undecided."""
    if found.verdict is not Verdict.UNDECIDED:
        return False
    if found.interval is None or found.in_these_boots:
        return True
    low, high = found.interval
    return not low <= 1 <= high


def _pair(
    case: Case, old: Series, new: Series, control: Series | None, choice: JudgementChoice
) -> JudgedPair:
    # A guest when the data names the guest's memory; nothing tells a bare machine.
    guest = bool(old.fact("requested_memory_mib"))
    comparison = timing.compare(
        old,
        new,
        control=control,
        grade=Grade.GUEST_TIME if guest else Grade.HOST_TIME,
        tolerance=choice.tolerance,
        alpha=choice.alpha,
        max_cv=case.rules.max_cv if case.rules else None,
    )
    arms = [series for series in (old, new, control) if series]
    if not all(series.boots for series in arms):
        kept = tuple(c for c in comparison.cautions if c.trap not in _ABOUT_VALUES)
        comparison = replace(comparison, cautions=kept)
        if comparison.verdict is Verdict.UNDECIDED:
            comparison = _of_summaries(case.published, comparison, arms)
    return JudgedPair(
        old=old.arm, new=new.arm, control=control.arm if control else None, comparison=comparison
    )


def _compat(case: Case, pairs: Sequence[JudgedPair]) -> Compat:
    rules = case.rules
    # The framework's own baseline is a version family.
    own = (s.arm for s in case.series if rules and case.detail(s.arm, _FAMILY) == rules.baseline)
    baseline = next(own, pairs[0].old if pairs else case.series[0].arm)
    tolerance = rules.tolerance if rules else TOLERANCE
    max_cv = rules.max_cv if rules else MAX_CV
    return Compat(
        framework=framework_rows(
            [series for series in case.series if series.boots],
            baseline=baseline,
            tolerance=tolerance,
            max_cv=max_cv,
        ),
        baseline=baseline,
        tolerance=tolerance,
        max_cv=max_cv,
        own=rules is not None,
    )


# ---- published summaries -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Figures:
    """What is known of one arm; None: it was not said."""

    mean: float
    median: float | None
    sd: float | None


def _of_summaries(
    published: Sequence[Published], comparison: Comparison, arms: Sequence[Series]
) -> Comparison:
    """The same verdict, with what the summaries of old, new (and old again) say of the change."""
    silent = [series.arm for series in arms if not series.values]
    whose = "" if len(silent) == len(arms) else f"of {', '.join(silent)} "
    text = f"{whose}only summaries are published, no values: nothing can be tested"
    figures = [_figures(published, series) for series in arms]
    known = [each for each in figures if each and each.mean > 0]
    if len(known) < len(arms):
        told = "; ".join((text, *_without_means(published, arms, figures)))
        return replace(comparison, reasons=(told,), more=None, ratio=None, low=None, high=None)
    old, new, *control = known
    first = [old, *control]
    middle = statistics.fmean(each.mean for each in first)
    ratio = new.mean / middle
    parts = [text, f"the published means differ by {percent(new.mean / old.mean)}"]
    for again in control:
        drift = (again.mean - old.mean) / middle
        parts.append(
            f"against the old arm repeated {percent(new.mean / again.mean)}, against the midpoint"
            f" {percent(ratio)}; drift {100 * drift:+.2f} % of the midpoint"
        )
    medians = [each.median for each in known]
    if all(medians):
        before = [each.median or 0.0 for each in first]
        change = (new.median or 0.0) * len(before) / math.fsum(before)
        parts.append(f"medians {percent(change)}")
    still = [arm.arm for arm, each in zip(arms, known, strict=True) if each.sd == 0]
    if still:
        parts.append(f"{', '.join(still)}: a standard deviation of 0 is of a clock or a print")
    found = replace(comparison, reasons=("; ".join(parts),), more=None, p=None)
    return replace(found, ratio=ratio, mean_ratio=ratio, low=None, high=None, in_these_boots=True)


def _without_means(
    published: Sequence[Published], arms: Sequence[Series], figures: Sequence[_Figures | None]
) -> Iterator[str]:
    """Where means of all arms are not there: what is wrong with some, the change of medians."""
    for arm, each in zip(arms, figures, strict=True):
        if each and each.mean < 0:
            text = f"{arm.arm}: a negative mean ({each.mean:g})"
            yield f"{text}: the clock or the arithmetic is wrong"
        elif each and each.mean == 0:
            yield f"{arm.arm}: a mean of 0, below what the clock or the print can tell"
    said = {one.arm: one.median for one in published}
    old, new, *control = (said.get(arm.arm) or 0.0 for arm in arms)
    if min(old, new, *control) > 0:
        before = [old, *control]
        yield f"the published medians differ by {percent(new * len(before) / math.fsum(before))}"


def _figures(published: Sequence[Published], series: Series) -> _Figures | None:
    if series.values:
        own = detectors.summarise(series)
        return _Figures(own.mean or 0.0, own.median, own.sd)
    said = next((one for one in published if one.arm == series.arm), None)
    if said is None or said.mean is None:
        return None
    sd = said.cv * said.mean if said.sd is None and said.cv is not None else said.sd
    return _Figures(said.mean, said.median, sd)


def _cautions(case: Case) -> Iterator[Caution]:
    for one in case.published:
        series = case.arm(one.arm)
        if series is None or series.boots:
            continue  # its values say more
        n = one.ok or 0
        if n > series.planned:
            yield from detectors.counted_twice(one.arm, claimed=n, planned=series.planned)
        yield from detectors.wild(one.arm, n=n, cv=one.cv)
        if one.failed:
            text = f"{one.arm}: {n}/{n + one.failed} runs ended ok"
            reason = f": {one.failure}" if one.failure else ""
            yield Caution(trap=Trap.FAILED, sentence=text + reason)
        elif one.failure:
            text = f"{one.arm}: runs behind the summary failed: {one.failure}"
            yield Caution(trap=Trap.FAILED, sentence=text)
        if n and not one.failed and n < detectors.MIN_REPLICATES:
            text = f"{one.arm}: {n} runs, {detectors.MIN_REPLICATES} are the least"
            yield Caution(trap=Trap.FEW, sentence=text)


def _other_summaries(arm: str, values: Sequence[float], one: Published) -> Iterator[str]:
    """Sentences where a published summary is not that of the values."""
    mean = statistics.fmean(values)
    # A printed mean has the digits that it has.
    digits = len(f"{one.mean or 0:.9f}".rstrip("0").partition(".")[2])
    printed = max(6e-4, 1e-5 * abs(mean), 0.6 * 10.0**-digits)
    if one.mean is not None and abs(one.mean - mean) > printed:
        yield f"{arm}: a mean of {one.mean:g} is published, its values make {mean:.6g}"
    if one.ok is not None and one.ok != len(values):
        yield f"{arm}: {one.ok} runs are published, {len(values)} values are there"
    if one.cv is None or len(values) < 2 or not mean:
        return
    sample, population = statistics.stdev(values) / mean, statistics.pstdev(values) / mean
    slack = 0.6 * 10.0**-one.cv_digits
    if abs(one.cv - sample) > slack:
        form = ", the population form" if math.isclose(one.cv, population, abs_tol=slack) else ""
        yield (
            f"{arm}: a CV of {100 * one.cv:.3f} % is published{form};"
            f" the sample form is {100 * sample:.3f} %"
        )


# ---- the answer ----------------------------------------------------------------------------------


def change(pair: JudgedPair) -> str:
    """The change with its interval, in percent; "" where there is none, as of INVALID pairs."""
    found = pair.comparison
    if found.ratio is None:
        return ""
    text = percent(found.ratio)
    if found.interval is None:
        return text
    if math.isinf(found.interval[1]):
        return f"{text} (no interval)"
    low, high = (100 * (bound - 1) for bound in found.interval)
    return f"{text} ({low:+.2f} to {high:+.2f})"


def _cpus(cases: Sequence[Case]) -> Iterator[Dimension]:
    """Whether each table may be read as a matrix over CPUs, where several numbers were requested.

    Without SMP, or with maxcpus=1, a guest runs on one CPU whatever QEMU was given.
    """
    sets: dict[str, list[Series]] = {}
    for case in cases:
        sets.setdefault(dict(case.group).get(SET, ""), []).extend(
            series for series in case.series if series.fact("requested_cpus")
        )
    for where, every in sets.items():
        asked = {series.fact("requested_cpus") or "" for series in every}
        if len(asked) < 2:
            continue
        settings = tuple(sorted(asked, key=lambda text: (len(text), text)))
        listed, why = ", ".join(settings), _not_as_asked(every)
        text = f"the guests saw the CPUs that were requested: {listed}"
        if why:
            text = f"{listed} CPUs are what was requested; {why}"
        yield Dimension(name="cpu", settings=settings, sound=not why, sentence=text, where=where)


def _not_as_asked(every: Sequence[Series]) -> str:
    """Why the CPUs that were requested are not known to be those that were used; else ""."""
    if any(series.fact("smp") == "no" for series in every):
        return "the kernels are without SMP, so they used one"
    if all(series.fact("seen_cpus") == series.fact("requested_cpus") for series in every):
        return ""
    seen = sorted({s.fact("seen_cpus") or "" for s in every} - {""})
    if seen and not all(series.fact("seen_cpus") for series in every):
        return "for some of them nothing says what the guest saw"
    return f"the guests saw {', '.join(seen)}" if seen else "nothing says what the guests saw"


def _answer(
    findings: Sequence[Finding], dimensions: Sequence[Dimension], notes: Sequence[str]
) -> ImportAnswer:
    """The answer to all findings of an import together."""
    pairs = [(finding, pair) for finding in findings for pair in finding.pairs]
    verdicts = Counter(pair.comparison.verdict for _, pair in pairs)
    alone = [_place(finding) for finding in findings if not finding.pairs]
    unsound = [f"dimension {one.name}: {one.sentence}" for one in dimensions if not one.sound]
    return ImportAnswer(
        counts=tuple((str(verdict), verdicts[verdict]) for verdict in Verdict if verdicts[verdict]),
        holds=tuple(_holds(pairs)),
        open=tuple(_reasons(pairs, Verdict.UNDECIDED)),
        invalid=(
            *dict.fromkeys(unsound),
            *_reasons(pairs, Verdict.INVALID),
            *([f"one arm only, so nothing to compare: {few(alone, apart='; ')}"] if alone else ()),
        ),
        contradicted=tuple(_contradicted(findings)),
        doubtful=tuple(_doubtful(findings)),
        missing=(*_lost(findings), *notes),
        needs=tuple(_needs(findings)),
    )


def _place(finding: Finding) -> str:
    where = ", ".join(f"{name} {text}" for name, text in finding.group)
    return f"{finding.metric.name} ({where})" if where else finding.metric.name


def _alike(told: Sequence[tuple[str, str, Sequence[str]]]) -> Iterator[str]:
    """Of (before it, a sentence, names), those alike but for figures and names as one."""
    found: dict[str, list[str]] = {}
    for before, sentence, names in told:
        bare = sentence
        for name in names:
            bare = bare.replace(name, "#")
        found.setdefault(re.sub(r"[-+]?\d+(?:\.\d+)?", "#", bare), []).append(before + sentence)
    for texts in sorted(found.values(), key=len, reverse=True):
        yield texts[0] + (f" (and {len(texts) - 1} alike)" if len(texts) > 1 else "")


def _holds(pairs: Sequence[tuple[Finding, JudgedPair]]) -> Iterator[str]:
    """A sentence for each change of arms and verdict, with the places where it was found."""
    found: dict[tuple[str, str, Verdict], list[str]] = {}
    for finding, pair in pairs:
        verdict = pair.comparison.verdict
        if verdict.is_step or verdict is Verdict.SAME:
            text = f"{_place(finding)} {change(pair)}".strip()
            found.setdefault((pair.old, pair.new, verdict), []).append(text)
    for (old, new, verdict), places in found.items():
        yield f"{old} -> {new}: {verdict} in {few(places, apart='; ')}"


def _reasons(pairs: Sequence[tuple[Finding, JudgedPair]], verdict: Verdict) -> Iterator[str]:
    """The reasons of one verdict, the most frequent first, with how often it was given."""
    told = []
    for finding, pair in pairs:
        if pair.comparison.verdict is verdict:
            first, *others = pair.comparison.reasons or ("no reason",)
            first = "; ".join((first, *(text for text in others if _CORRECTED in text)))
            before = f"{pair.old} -> {pair.new}, {_place(finding)}: "
            told.append((before, first, (pair.old, pair.new)))
    return _alike(told)


def _contradicted(findings: Sequence[Finding]) -> Iterator[str]:
    cautions = (caution for finding in findings for caution in finding.cautions)
    of_facts = (one.sentence for one in cautions if one.trap is Trap.FACTS)
    if texts := dict.fromkeys(text for text in of_facts if "published" in text):
        yield f"published, and not what the values make: {few([*texts], apart='; ')}"


def _doubtful(findings: Sequence[Finding]) -> Iterator[str]:
    """What makes the data less than it looks: counted twice, or on a clock that ticks."""
    told = []
    for finding in findings:
        verdicts = {pair.comparison.verdict for pair in finding.pairs}
        decided = any(verdict.is_step or verdict is Verdict.SAME for verdict in verdicts)
        traps = (Trap.DOUBLE_COUNT, *((Trap.LATTICE, Trap.CLOCK) if decided else ()))
        names = tuple(arm.arm for arm in finding.arms)
        # Where all pairs are INVALID, that says more.
        cautions = finding.cautions if verdicts != {Verdict.INVALID} else ()
        told += [("", one.sentence, names) for one in cautions if one.trap in traps]
    return _alike(list(dict.fromkeys(told)))


def _lost(findings: Sequence[Finding]) -> Iterator[str]:
    texts = dict.fromkeys(
        f"{arm.arm} {arm.of_planned} {arm.replicate}s ({_place(finding)})"
        for finding in findings
        for arm in _ran(finding)
        if arm.n < arm.planned
    )
    said = dict.fromkeys(
        f"{one.arm} {one.ok or 0}/{(one.ok or 0) + one.failed} ({_place(finding)})"
        for finding in findings
        for one in finding.published
        if one.failed
    )
    if texts or said:
        yield f"runs without a value: {few([*(texts or said)], apart='; ')}"


def _ran(finding: Finding) -> Iterator[Summary]:
    """The arms of which runs are known; of the others there are summaries alone."""
    said = {one.arm for one in finding.published}
    yield from (arm for arm in finding.arms if arm.n or (arm.planned and arm.arm not in said))


def _needs(findings: Sequence[Finding]) -> Iterator[str]:
    """What a verdict waits for where there is none, in the terms of somebody who can add it."""
    waiting = [
        (finding, pair)
        for finding in findings
        for pair in finding.pairs
        if pair.comparison.verdict is Verdict.UNDECIDED
    ]
    if not waiting:
        return
    if any(len(list(_ran(finding))) < len(finding.arms) for finding, _ in waiting):
        yield "the values themselves, one for each run"
    if any(not arm.n for finding, _ in waiting for arm in _ran(finding)):
        yield "runs that do not fail"
    traps = {caution.trap for finding, _ in waiting for caution in finding.cautions}
    more = [pair.comparison.more for _, pair in waiting if pair.comparison.more]
    if any(timing.OF_UNKNOWN in text for _, pair in waiting for text in pair.comparison.reasons):
        yield f"the boot of each value (boot in a mapping), {_BOOTS}"
    elif Trap.FEW in traps:
        yield _BOOTS
    elif more:
        yield f"about {max(more):,} more boot{'s' * (max(more) > 1)} an arm"
    cautions = [caution for finding, _ in waiting for caution in finding.cautions]
    if any(detectors.IN_TURN in caution.sentence for caution in cautions):
        yield "runs of the arms in turn, or the old arm once more behind the new"
    if any(detectors.UNKNOWN_ORDER in caution.sentence for caution in cautions):
        yield "the order in which they were run (position in a mapping)"
    if any(caution.trap is Trap.STATE for caution in cautions):
        yield "the page state (state in a mapping)"


# ---- what the published framework makes of the same values ---------------------------------------

# Never used for a verdict.  These are the columns of its summary.csv; the formulas were found from
# the published bundles and reproduce every cell of them (tests).  One run has a CV of 0 there and
# so is `stable`, and a difference is classified without any interval.


MAX_CV = 0.10
TOLERANCE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkRow:
    """One row of summary.csv; figures are None when no run ended ok.

    cv is sample sd / mean, mad the median distance from the median, mad_ratio mad / median; each
    is 0 for one run, and 0 where it would divide by 0.
    """

    arm: str
    value: float | None = None
    median_value: float | None = None
    stdev_value: float | None = None
    cv: float | None = None
    mad_value: float | None = None
    mad_ratio: float | None = None
    min_value: float | None = None
    max_value: float | None = None
    baseline_value: float | None = None
    delta_vs_baseline: float | None = None
    baseline_median_value: float | None = None
    delta_vs_baseline_median: float | None = None
    classification: str = "unsupported"
    status: str = "unsupported"
    stable: bool = False
    robust_stable: bool = False
    semantic_warning: bool = False  # of its audit of the results; true in no published bundle
    semantic_warning_reasons: str = ""
    comparison_reliable: bool = False
    comparison_robust_reliable: bool = False
    run_count: int
    ok_runs: int
    failed_runs: int
    failure_reasons: str

    @property
    def label(self) -> str:
        """How the framework's own reports call a row."""
        if self.status == "partial":
            return "partial"
        if self.comparison_reliable:
            return "reliable"
        return "robust-only" if self.comparison_robust_reliable else "unreliable"

    def cell(self, column: str) -> str:
        """The cell of a column as summary.csv prints it."""
        found = getattr(self, column)
        if isinstance(found, bool):
            return "yes" if found else "no"
        if isinstance(found, float):
            return f"{found:.6f}"
        return "" if found is None else str(found)


def framework_rows(
    arms: Sequence[Series], *, baseline: str, tolerance: float, max_cv: float
) -> tuple[FrameworkRow, ...]:
    """The rows of all arms of one metric; `baseline` is the arm that deltas are against."""
    own = [_row(series, max_cv) for series in arms]
    base = next((row for row in own if row.arm == baseline), None)
    if base is None:
        return tuple(own)

    def against(row: FrameworkRow) -> FrameworkRow:
        delta, kind = _delta(row.value, base.value), "unsupported"
        if delta is not None:
            lower_is_better = arms[0].metric.better is Better.LOWER
            kind = "regression" if (delta > 0) == lower_is_better else "improvement"
            kind = "neutral" if abs(delta) <= tolerance else kind
        return replace(
            row,
            baseline_value=base.value,
            delta_vs_baseline=delta,
            baseline_median_value=base.median_value,
            delta_vs_baseline_median=_delta(row.median_value, base.median_value),
            classification=kind,
            comparison_reliable=row.stable and base.stable,
            comparison_robust_reliable=row.robust_stable and base.robust_stable,
        )

    return tuple(against(row) for row in own)


def _row(series: Series, max_cv: float) -> FrameworkRow:
    """Steady is an arm all of whose runs ended ok, with a CV or MAD ratio of at most the limit."""
    values = [statistics.fmean(boot.values) for boot in series.valid]
    failures = [boot.failure for boot in series.boots if boot.failure]
    whole = not failures
    counted = FrameworkRow(
        arm=series.arm,
        run_count=len(values) + len(failures),
        ok_runs=len(values),
        failed_runs=len(failures),
        failure_reasons=";".join(dict.fromkeys(failures)),
    )
    if not values:
        return counted
    mean, median = float(statistics.mean(values)), float(statistics.median(values))
    sd = float(statistics.stdev(values)) if len(values) > 1 else 0.0
    mad = float(statistics.median(abs(value - median) for value in values))
    cv, mad_ratio = sd / mean if mean else 0.0, mad / median if median else 0.0
    return replace(
        counted,
        value=mean,
        median_value=median,
        stdev_value=sd,
        cv=cv,
        mad_value=mad,
        mad_ratio=mad_ratio,
        min_value=min(values),
        max_value=max(values),
        status="ok" if whole else "partial",
        stable=whole and cv <= max_cv,
        robust_stable=whole and mad_ratio <= max_cv,
    )


def _delta(value: float | None, base: float | None) -> float | None:
    if value is None or base is None:
        return None
    return (value - base) / base if base else 0.0
