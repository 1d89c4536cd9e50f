# SPDX-License-Identifier: GPL-2.0-or-later
"""Variants of one source: what each is compared with, what it wins, and where it loses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kdelta.journal.run import RunRecord
from kdelta.sample import KernelIdentity
from kdelta.stats.decomposition import Share
from kdelta.stats.verdict import Verdict

if TYPE_CHECKING:
    from kdelta.analysis.evidence import Method
    from kdelta.analysis.findings import Ladder


def gap(record: RunRecord) -> tuple[str, str] | None:
    """References of the good and the regressed kernel that the study names, None without."""
    named = record.study.gap
    return (named[0], named[1]) if named else None


def ends(record: RunRecord) -> tuple[str, str]:
    """The arms that are the good and the regressed kernel of the study's gap, "" without one."""
    own = {arm.kernel.reference: arm.label for arm in record.arms if not arm.control}
    good, bad = gap(record) or ("", "")
    return own.get(good, ""), own.get(bad, "")


def baseline(record: RunRecord, method: Method[Any]) -> str:
    """The arm that all others are compared with: "" for a ladder of releases.

    By a method that has one it is the first; else the regressed kernel of the study's gap, or the
    first of several kernels that are all built from one source.
    """
    arms = [arm for arm in record.arms if not arm.control]
    if method.baseline:
        return arms[0].label
    if gap(record):
        return ends(record)[1]
    if len(arms) > 1 and all(arm.kernel.source for arm in arms):
        return arms[0].label if len({_source(arm.kernel) for arm in arms}) == 1 else ""
    return ""


def _source(kernel: KernelIdentity) -> str:
    """ "6.17.8" of "6.17.8+mincore-present-first,min"."""
    return re.split(r"[+,]", kernel.name, maxsplit=1)[0]


def closed(good: float | None, bad: float | None, value: float | None) -> float | None:
    """The share of the gap good -> bad that a value closes: 1 all, 0 nothing; None: no gap."""
    if good is None or bad is None or value is None or good == bad:
        return None
    return (bad - value) / (bad - good)


def closes(share: Share, step: str) -> str:
    """How much of a step ("6.16 -> 6.17") an arm takes back, in words."""
    if share.value is None:
        return f"{share.arm}: share of {step}: unknown: {share.reason}"
    interval = (
        f"interval {100 * share.low:.1f} to {100 * share.high:.1f} %"
        if share.low is not None and share.high is not None
        else share.reason
    )
    return f"{share.arm} closes {100 * share.value:.1f} % of {step} ({interval})"


def conclusions(ladders: Sequence[Ladder[Any]]) -> Iterator[str]:
    """For each variant of several scenarios: where its path is shorter, and where longer."""
    changed: dict[str, dict[Verdict, list[str]]] = {}
    left: Counter[str] = Counter()
    for ladder in ladders:
        if not ladder.baseline:
            continue
        for rung in ladder.rungs:
            if rung.arm == ladder.goal:
                continue
            if rung.comparison and rung.comparison.verdict.is_step:
                name = f"{ladder.workload}:{ladder.scenario} {ladder.point}".strip()
                own = changed.setdefault(rung.arm, {})
                own.setdefault(rung.comparison.verdict, []).append(name)
            elif rung.comparison and rung.comparison.verdict is not Verdict.SAME:
                left[rung.arm] += 1
    for arm, verdicts in changed.items():
        shorter = ", ".join(verdicts.get(Verdict.IMPROVEMENT, []))
        longer = ", ".join(verdicts.get(Verdict.REGRESSION, []))
        if shorter and longer:
            yield f"{arm} does not pass: shorter in {shorter}, but longer in {longer}"
        elif longer:
            yield f"{arm}: longer in {longer}, shorter nowhere"
        else:
            open_ = f"; {left[arm]} not decided" if left[arm] else ""
            yield f"{arm}: shorter in {shorter}, longer in none of {len(ladders)} scenarios{open_}"
