# SPDX-License-Identifier: GPL-2.0-or-later
"""Two arms of which an arm is only a published mean, standard deviation and number of runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kdelta.imports.record import Published
from kdelta.verdict.comparison import Comparison
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
    return _said(said) if said and said.mean is not None else None


def _said(said: Published) -> _Figures:
    mean = said.mean or 0.0
    sd = said.sd if said.sd is not None else None if said.cv is None else said.cv * mean
    return _Figures(mean=mean, median=said.median, sd=sd, n=said.ok or 0)


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.2f} %"
