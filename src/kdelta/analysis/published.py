# SPDX-License-Identifier: GPL-2.0-or-later
"""What published summaries say, where values are missing and where they are there.

Two arms of which an arm is only a published mean, standard deviation and number of runs; a wild run
behind a mean, runs that replaced lost ones; and summaries that the values do not make.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kdelta.imports.record import Published
from kdelta.imports.series import Case
from kdelta.stats import detectors
from kdelta.verdict.comparison import Caution, Comparison, Trap
from kdelta.verdict.series import Series, summarise

_ASSUMED = "from summaries, normal scatter assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Figures:
    """What is known of one arm; None: it was not said."""

    mean: float
    median: float | None
    sd: float | None
    n: int

    @property
    def variance(self) -> float | None:
        """Of the mean; None too where nothing is said to scatter, which no time does."""
        return self.sd**2 / self.n if self.sd and self.n > 1 else None


def compare(
    published: Sequence[Published], comparison: Comparison, arms: Sequence[Series]
) -> Comparison:
    """The same verdict, with what the summaries of old, new (and old again) say of the change.

    The interval is Welch's, of logs of means; of A/B/A the old arms are taken as one.
    """
    silent = [series.arm for series in arms if not series.values]
    whose = "" if len(silent) == len(arms) else f"of {', '.join(silent)} "
    text = f"{whose}only summaries are published, no values: nothing can be tested"
    figures = [_figures(published, series) for series in arms]
    known = [each for each in figures if each and each.mean > 0]
    if len(known) < len(arms):
        told = "; ".join((text, *_no_time(arms, figures), *_of_medians(published, arms)))
        return replace(comparison, reasons=(told,), more=None, ratio=None, low=None, high=None)
    old, new, *control = known
    first = [old, *control]
    ratio = new.mean / _middle(first)
    low, high = _interval(first, new, ratio, comparison.alpha or 0.01)
    parts = [text, f"the published means differ by {_percent(new.mean / old.mean)}"]
    parts += [_again(old, new, each) for each in control]
    medians = [each.median for each in known]
    if all(medians):
        before = [each.median or 0.0 for each in first]
        change = (new.median or 0.0) * len(before) / math.fsum(before)
        parts.append(f"medians {_percent(change)}")
    if low is not None and high is not None:
        level = f"{100 * (1 - (comparison.alpha or 0.01)):g} % interval"
        bounds = f"{level} {_percent(low)} to {_percent(high)}"
        parts.append(f"{_ASSUMED}: {_percent(ratio)} ({bounds})")
    still = [arm.arm for arm, each in zip(arms, known, strict=True) if each.sd == 0]
    if still:
        parts.append(f"{', '.join(still)}: a standard deviation of 0 is of a clock or a print")
    found = replace(comparison, reasons=("; ".join(parts),), more=None, p=None)
    return replace(found, ratio=ratio, mean_ratio=ratio, low=low, high=high, in_these_boots=True)


def _no_time(arms: Sequence[Series], figures: Sequence[_Figures | None]) -> Iterator[str]:
    """Means that no time has, in words."""
    for arm, each in zip(arms, figures, strict=True):
        if each and each.mean < 0:
            text = f"{arm.arm}: a negative mean ({each.mean:g})"
            yield f"{text}: the clock or the arithmetic is wrong"
        elif each and each.mean == 0:
            yield f"{arm.arm}: a mean of 0, below what the clock or the print can tell"


def _of_medians(published: Sequence[Published], arms: Sequence[Series]) -> Iterator[str]:
    """The change of published medians, where means of all arms are not there."""
    said = {one.arm: one.median for one in published}
    old, new, *control = (said.get(arm.arm) or 0.0 for arm in arms)
    if min(old, new, *control) > 0:
        before = [old, *control]
        yield f"the published medians differ by {_percent(new * len(before) / math.fsum(before))}"


def _interval(
    first: Sequence[_Figures], new: _Figures, ratio: float, alpha: float
) -> tuple[float | None, float | None]:
    """Of the ratio of means, at 1 - alpha; None where a scatter or a number is not known."""
    # numpy belongs to the extra `time`: reading a result must work without it.
    from kdelta.stats.decomposition import ratio_reach

    before = [each.variance for each in first]
    after = new.variance
    if after is None or None in before:
        return None, None
    known = math.fsum(each or 0.0 for each in before)
    reach = ratio_reach(
        old=known / (len(first) * _middle(first)) ** 2,
        new=after / new.mean**2,
        freedom=(sum(each.n - 1 for each in first), new.n - 1),
        alpha=alpha,
    )
    return ratio / reach, ratio * reach


def _again(old: _Figures, new: _Figures, control: _Figures) -> str:
    """Against the old arm repeated, against the midpoint of both, and how far they are apart."""
    middle = _middle([old, control])
    drift = (control.mean - old.mean) / middle
    return (
        f"against the old arm repeated {_percent(new.mean / control.mean)}, against the midpoint"
        f" {_percent(new.mean / middle)}; drift {100 * drift:+.2f} % of the midpoint"
    )


def _middle(arms: Sequence[_Figures]) -> float:
    return math.fsum(each.mean for each in arms) / len(arms)


def _figures(published: Sequence[Published], series: Series) -> _Figures | None:
    if series.values:
        own = summarise(series)
        return _Figures(mean=own.mean or 0.0, median=own.median, sd=own.sd, n=own.n)
    said = next((one for one in published if one.arm == series.arm), None)
    if said is None or said.mean is None:
        return None
    sd = said.cv * said.mean if said.sd is None and said.cv is not None else said.sd
    return _Figures(mean=said.mean, median=said.median, sd=sd, n=said.ok or 0)


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.2f} %"


def cautions(case: Case) -> Iterator[Caution]:
    """Traps that the published figures of a case show."""
    limit = case.rules.max_cv if case.rules else None
    for one in case.published:
        series = case.arm(one.arm)
        if series is None or series.boots:
            continue  # its values say more
        n = one.ok or 0
        if n > series.planned:
            yield from detectors.counted_twice(one.arm, claimed=n, planned=series.planned)
        yield from detectors.wild(one.arm, n=n, cv=one.cv)
        if limit is not None:
            yield from detectors.near_limit(one.arm, n=n, cv=one.cv, limit=limit)
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
    yield from _replaced(case)


def _replaced(case: Case) -> Iterator[Caution]:
    for series in case.series:
        lost = case.detail(series.arm, "lost_run")
        one = next((one for one in case.published if one.arm == series.arm), None)
        if lost and one and one.ok and not one.failed:
            text = (
                f"{series.arm}: a run was lost ({lost}) and yet {one.ok} are counted: a later run"
                " took its place, which breaks the interleaving"
            )
            yield Caution(trap=Trap.REFILLED, sentence=text)


def _rounded(printed: float, mean: float) -> float:
    """How far a printed mean may be from that of the values: it has the digits that it has."""
    digits = len(f"{printed:.9f}".rstrip("0").partition(".")[2])
    return max(6e-4, 1e-5 * abs(mean), 0.6 * 10.0**-digits)


def contradicted(case: Case) -> Iterator[str]:
    """Sentences where published summaries are not those of the values."""
    for one in case.published:
        series = case.arm(one.arm)
        if series and series.values:
            yield from _contradicted(series.arm, series.values, one)


def _contradicted(arm: str, values: Sequence[float], one: Published) -> Iterator[str]:
    mean = statistics.fmean(values)
    if one.mean is not None and abs(one.mean - mean) > _rounded(one.mean, mean):
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
