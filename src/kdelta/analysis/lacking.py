# SPDX-License-Identifier: GPL-2.0-or-later
"""What an import lacks: runs that are lost, data that may not be what it says, and what is needed.

Each is a sentence for somebody who can add it or look it up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kdelta.analysis.standing import ELSEWHERE, SAME_UNITS
from kdelta.foreign import words
from kdelta.foreign.repeats import COPIED, MISPLACED
from kdelta.metric import Better
from kdelta.stats.detectors import IN_TURN, UNKNOWN_ORDER
from kdelta.verdict.comparison import Trap, Verdict

if TYPE_CHECKING:
    from kdelta.analysis.judgement import Finding, JudgedPair
    from kdelta.verdict.comparison import Caution
    from kdelta.verdict.series import Summary

_SHOWN = 3  # of things of one kind that a sentence names
_COARSE = (Trap.LATTICE, Trap.CLOCK)  # of a verdict; of what is not decided others are said first
_BOOTS = "at least 5 boots an arm"
_UNITS = 'whether the units are the same (units = "same" under [facts] of a mapping)'
_ORDER = "the order in which they were run (a column order)"
_STATE = "the page state (columns such as anon_huge_kb)"


def place(finding: Finding) -> str:
    """Metric and setting in words."""
    where = ", ".join(f"{name} {text}" for name, text in finding.group)
    return f"{finding.metric.name} ({where})" if where else finding.metric.name


def some(texts: Sequence[str]) -> str:
    """The first of several things, and how many more there are."""
    more = len(texts) - _SHOWN
    return "; ".join(texts[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def alike(told: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    """Sentences that differ in figures and names alone as one, the most frequent first.

    told: (what comes before it, the sentence, names that may differ, a line each).
    """
    found: dict[str, list[str]] = {}
    for before, sentence, names in told:
        bare = sentence
        for name in names.splitlines():
            bare = bare.replace(name, "#")
        found.setdefault(re.sub(r"[-+]?\d+(?:\.\d+)?", "#", bare), []).append(before + sentence)
    for texts in sorted(found.values(), key=len, reverse=True):
        yield texts[0] + (f" (and {len(texts) - 1} alike)" if len(texts) > 1 else "")


def lost(findings: Sequence[Finding]) -> Iterator[str]:
    """Runs of which there is no value, and those whose results were found wrong."""
    texts = dict.fromkeys(
        f"{arm.arm} {arm.of_planned} {arm.replicate}s ({place(finding)}{_why(finding, arm.arm)})"
        for finding in findings
        for arm in _ran(finding)
        if arm.n < arm.planned
    )
    said = dict.fromkeys(
        f"{one.arm} {_runs(one.ok, one.failed)}({place(finding)}{_because(one.failure)})"
        for finding in findings
        for one in finding.published
        if one.failed or _because(one.failure)
    )
    listed = [*texts, *(text for text in said if not texts)]
    if listed:
        failed = any("; " in text.rpartition(" (")[2] for text in listed)
        yield f"runs {'that failed or are ' if failed else ''}without a value: {some(listed)}"


def _ran(finding: Finding) -> Iterator[Summary]:
    """The arms of which runs are known; of the others there are summaries alone."""
    said = {one.arm for one in finding.published}
    yield from (arm for arm in finding.arms if arm.n or (arm.planned and arm.arm not in said))


def _runs(ok: int | None, failed: int | None) -> str:
    return f"{ok or 0}/{(ok or 0) + failed} " if failed else ""


def _why(finding: Finding, arm: str) -> str:
    mark = f"{arm}: "
    for caution in finding.cautions:
        if caution.trap is Trap.FAILED and caution.sentence.startswith(mark):
            return _because(caution.sentence.removeprefix(mark).partition(": ")[2])
    return ""


def _because(reason: str) -> str:
    """The check of results that failed: the run ended, and its value is not counted."""
    return f"; {reason}" if words.is_gate(reason.partition(" ")[0]) else ""


def doubtful(findings: Sequence[Finding], notes: Sequence[str]) -> Iterator[str]:
    """What makes the data less than it looks: counted twice, copied, on a clock that ticks."""
    told = [
        ("", caution.sentence, "\n".join(arm.arm for arm in finding.arms))
        for finding in findings
        for caution in finding.cautions
        if _less(finding, caution)
    ]
    yield from alike(list(dict.fromkeys(told)))
    yield from (note for note in notes if COPIED in note or MISPLACED in note)


def _less(finding: Finding, caution: Caution) -> bool:
    if finding.pairs and all(p.comparison.verdict is Verdict.INVALID for p in finding.pairs):
        return False  # that says more
    if caution.trap is Trap.DOUBLE_COUNT:
        return True
    decided = any(
        pair.comparison.verdict.is_step or pair.comparison.verdict is Verdict.SAME
        for pair in finding.pairs
    )
    return decided and caution.trap in _COARSE


def needs(findings: Sequence[Finding]) -> Iterator[str]:
    """What a verdict waits for where there is none, in the terms of somebody who can add it."""
    waiting = [
        (finding, pair)
        for finding in findings
        for pair in finding.pairs
        if pair.comparison.verdict is Verdict.UNDECIDED
    ]
    if not waiting:
        return
    reasons = [text for _, pair in waiting for text in pair.comparison.reasons]
    yield from _values(waiting)
    yield from _boots(waiting)
    if any(SAME_UNITS in text for text in reasons):
        yield _UNITS
    said = [caution.sentence for finding, _ in waiting for caution in finding.cautions]
    if any(IN_TURN in text for text in said):
        yield "runs of the arms in turn, or the old arm once more behind the new"
    if any(ELSEWHERE in text for text in reasons):
        yield _STATE


def _values(waiting: Sequence[tuple[Finding, JudgedPair]]) -> Iterator[str]:
    if any(len(list(_ran(finding))) < len(finding.arms) for finding, _ in waiting):
        yield "the values themselves, one for each run"
    if any(not arm.n for finding, _ in waiting for arm in _ran(finding)):
        yield "runs that do not fail"
    if any(finding.metric.better is Better.NONE for finding, _ in waiting):
        yield "unit and direction (a column ns, or [metrics.NAME] in a mapping)"


def _boots(waiting: Sequence[tuple[Finding, JudgedPair]]) -> Iterator[str]:
    traps = {caution.trap for finding, _ in waiting for caution in finding.cautions}
    more = [pair.comparison.more for _, pair in waiting if pair.comparison.more]
    if Trap.REPLICATE in traps and any(arm.n for finding, _ in waiting for arm in finding.arms):
        yield f"the boot of each value (a column boot), {_BOOTS}"
    elif Trap.FEW in traps:
        yield _BOOTS
    elif more:
        yield f"about {max(more):,} more boot{'s' * (max(more) > 1)} an arm"


def unknown(findings: Sequence[Finding]) -> Iterator[str]:
    """What nothing says and no verdict waits for, though each would stand firmer with it."""
    cautions = [caution for finding in findings for caution in finding.cautions]
    values = any(arm.n for finding in findings for arm in finding.arms)
    if values and any(UNKNOWN_ORDER in caution.sentence for caution in cautions):
        yield _ORDER
    if any(caution.trap is Trap.STATE for caution in cautions):
        yield _STATE
