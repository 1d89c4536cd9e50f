# SPDX-License-Identifier: GPL-2.0-or-later
"""The answer to a whole import: what holds, what does not, and what nobody can say from it."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from posixpath import commonpath
from typing import TYPE_CHECKING

from kdelta.analysis import lacking
from kdelta.analysis.lacking import alike, place, some
from kdelta.analysis.standing import UNORDERED, without_v
from kdelta.foreign.record import Pairs
from kdelta.foreign.sets import SET
from kdelta.foreign.summaries import Dimension
from kdelta.verdict.comparison import Trap, Verdict

if TYPE_CHECKING:
    from kdelta.analysis.judgement import Finding, JudgedPair

# The words by which people call what a change must not make worse, and what it shall improve.
_GATE = re.compile(r"(?:\b|_)(?:reverse|gate|guard|guardrail|sanity|must_not)(?:\b|_)")
_TARGET = re.compile(r"(?:\b|_)target(?:\b|_)")
_CORRECTED = "Holm's correction"  # what of a step did not survive is said with it


class Decision(StrEnum):
    """What the gates of a change say together."""

    ACCEPT = "ACCEPT"
    REJECT = "REJECT"
    UNDECIDED = "UNDECIDED"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateDecision:
    """One change over its target and its gates: metrics or settings that must not become worse."""

    old: str
    new: str
    decision: Decision
    targets: tuple[str, ...]
    gates: tuple[str, ...]
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """One arm, metric and setting that was measured in several sets: the level in each.

    spread: highest over lowest level, minus 1.
    """

    arm: str
    metric: str
    unit: str
    group: Pairs
    levels: tuple[tuple[str, float], ...]
    spread: float
    reproduced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportAnswer:
    """Sentences on an import, the most important first, and what they were made of.

    holds: changes and equalities that were shown.  open: what was compared and not decided.
    invalid: what is not comparable.  unlike: what was not reproduced, reproduced: what was.
    missing: what is incomplete.  doubtful: what makes the data less than it looks.  needs: what
    would have to be known where something is open.  unknown: what nothing says, though no verdict
    waits for it.
    """

    counts: tuple[tuple[str, int], ...]
    holds: tuple[str, ...]
    open: tuple[str, ...]
    invalid: tuple[str, ...]
    unlike: tuple[str, ...]
    reproduced: tuple[str, ...]
    doubtful: tuple[str, ...]
    missing: tuple[str, ...]
    needs: tuple[str, ...]
    unknown: tuple[str, ...]
    decisions: tuple[GateDecision, ...]
    levels: tuple[Levels, ...]


def answer(
    findings: Sequence[Finding],
    dimensions: Sequence[Dimension],
    notes: Sequence[str],
    *,
    tolerance: float,
) -> ImportAnswer:
    """The answer to all findings of an import together."""
    pairs = [(finding, pair) for finding in findings for pair in finding.pairs]
    verdicts = Counter(pair.comparison.verdict for _, pair in pairs)
    levels = tuple(_levels(findings, tolerance))
    waited = tuple(lacking.needs(findings))
    unknown = tuple(text for text in lacking.unknown(findings) if text not in waited)
    return ImportAnswer(
        counts=tuple((str(verdict), verdicts[verdict]) for verdict in Verdict if verdicts[verdict]),
        holds=tuple(_holds(pairs)),
        open=tuple(_reasons(pairs, Verdict.UNDECIDED)),
        invalid=(*_unsound(dimensions), *_reasons(pairs, Verdict.INVALID), *_alone(findings)),
        unlike=(*map(_apart, (one for one in levels if not one.reproduced)), *_wrong(findings)),
        reproduced=tuple(map(_apart, (one for one in levels if one.reproduced))),
        doubtful=tuple(lacking.doubtful(findings, notes)),
        missing=(*lacking.lost(findings), *_unread(notes)),
        needs=(*waited, *unknown) if verdicts[Verdict.UNDECIDED] else (),
        unknown=unknown,
        decisions=tuple(_decisions(pairs)),
        levels=levels,
    )


def change(pair: JudgedPair) -> str:
    """The change with its interval, in percent; "" where none may be told, as of INVALID pairs."""
    found = pair.comparison
    if found.ratio is None:
        return ""
    text = f"{100 * (found.ratio - 1):+.2f} %"
    if found.interval is None:
        return text
    if math.isinf(found.interval[1]):
        return f"{text} (no interval)"
    low, high = (100 * (bound - 1) for bound in found.interval)
    return f"{text} ({low:+.2f} to {high:+.2f})"


def _holds(pairs: Sequence[tuple[Finding, JudgedPair]]) -> Iterator[str]:
    """A sentence for each change of arms and verdict, with the places where it was found."""
    found: dict[tuple[str, str, Verdict], list[str]] = {}
    turnable: set[tuple[str, str]] = set()
    for finding, pair in pairs:
        verdict = pair.comparison.verdict
        if verdict.is_step or verdict is Verdict.SAME:
            text = f"{place(finding)} {change(pair)}".strip()
            found.setdefault((pair.old, pair.new, verdict), []).append(text)
            if any(UNORDERED in caution.sentence for caution in finding.cautions):
                turnable.add((pair.old, pair.new))
    for (old, new, verdict), places in found.items():
        told = f"{old} -> {new}: {verdict} in {some(places)}"
        if verdict.is_step and (old, new) in turnable:
            told += f", if {old} is the old one: nothing says so, --old and --new would"
        yield told


def _reasons(pairs: Sequence[tuple[Finding, JudgedPair]], verdict: Verdict) -> Iterator[str]:
    """The reasons of one verdict, the most frequent first, with how often it was given."""
    told = []
    for finding, pair in pairs:
        if pair.comparison.verdict is verdict:
            first, *others = pair.comparison.reasons or ("no reason",)
            first = "; ".join((first, *(text for text in others if _CORRECTED in text)))
            before = f"{pair.old} -> {pair.new}, {place(finding)}: "
            told.append((before, first, f"{pair.old}\n{pair.new}"))
    return alike(told)


def _unsound(dimensions: Sequence[Dimension]) -> Iterator[str]:
    texts = [f"dimension {one.name}: {one.sentence}" for one in dimensions if not one.sound]
    for text, count in Counter(texts).items():
        yield text + (f" (in {count} sets)" if count > 1 else "")


def _alone(findings: Sequence[Finding]) -> Iterator[str]:
    alone = [place(finding) for finding in findings if not finding.pairs]
    if alone:
        yield f"one arm only, so nothing to compare: {some(alone)}"


def _levels(findings: Sequence[Finding], tolerance: float) -> Iterator[Levels]:
    found: dict[tuple[str, str, Pairs], list[tuple[str, float]]] = {}
    units: dict[str, str] = {}
    names: dict[tuple[str, str, Pairs], str] = {}
    common = _common(findings)
    for finding in findings:
        where = dict(finding.group)
        home = where.pop(SET, "")
        own = _plain(home[common:])
        if _GATE.search(own) or _TARGET.search(own):
            continue  # it is another thing that is measured there
        units[finding.metric.name] = finding.metric.unit
        for arm, level in _of_arms(finding):
            key = (without_v(arm), finding.metric.name, tuple(sorted(where.items())))
            names.setdefault(key, arm)
            found.setdefault(key, []).append((home, level))
    for key, levels in found.items():
        (_, metric, group), arm = key, names[key]
        if len({home for home, _ in levels}) < 2 or min(level for _, level in levels) <= 0:
            continue
        spread = max(level for _, level in levels) / min(level for _, level in levels) - 1
        yield Levels(
            arm=arm,
            metric=metric,
            unit=units[metric],
            group=group,
            levels=tuple(levels),
            spread=spread,
            reproduced=spread <= tolerance,
        )


def _of_arms(finding: Finding) -> Iterator[tuple[str, float]]:
    """The level of each arm: the median of its values, else what was published."""
    with_values = {arm.arm for arm in finding.arms if arm.median is not None}
    for arm in finding.arms:
        if arm.median is not None:
            yield arm.arm, arm.median
    for one in finding.published:
        level = one.median if one.median is not None else one.mean
        if one.arm not in with_values and level is not None:
            yield one.arm, level


def _apart(one: Levels) -> str:
    where = "".join(f", {name} {text}" for name, text in one.group)
    listed = ", ".join(f"{level:g} ({home})" for home, level in one.levels)
    return f"{one.arm}, {one.metric}{where}: {listed} {one.unit}, {100 * one.spread:.1f} % apart"


def _wrong(findings: Sequence[Finding]) -> Iterator[str]:
    texts = [
        caution.sentence
        for finding in findings
        for caution in finding.cautions
        if caution.trap is Trap.FACTS and "published" in caution.sentence
    ]
    if texts:
        yield f"published, and not what the values make: {some(list(dict.fromkeys(texts)))}"


def _unread(notes: Sequence[str]) -> Iterator[str]:
    files = [note for note in notes if "kept as it is" in note or "kept and not judged" in note]
    if len(files) == 1:
        yield files[0]
    elif files:
        names = list(dict.fromkeys(note.partition(": ")[0] for note in files))
        yield f"{len(files)} things are kept and not judged, in {some(names)} (notes below)"


def _decisions(pairs: Sequence[tuple[Finding, JudgedPair]]) -> Iterator[GateDecision]:
    """For each change of arms whose data names gates: whether it passes them."""
    changes: dict[tuple[str, str], list[tuple[str, Verdict, bool]]] = {}
    common = _common([finding for finding, _ in pairs])
    named = any(_is(_GATE, finding, common) for finding, _ in pairs)
    aimed = any(_is(_TARGET, finding, common) for finding, _ in pairs)
    for finding, pair in pairs if named else ():
        gate = _is(_GATE, finding, common)
        if gate or not aimed or _is(_TARGET, finding, common):
            entry = (place(finding), pair.comparison.verdict, gate)
            changes.setdefault((pair.old, pair.new), []).append(entry)
    for (old, new), entries in changes.items():
        targets = [(where, verdict) for where, verdict, gate in entries if not gate]
        gates = [(where, verdict) for where, verdict, gate in entries if gate]
        if targets and gates:
            yield _decided(old, new, targets, gates)


def _is(pattern: re.Pattern[str], finding: Finding, common: int) -> bool:
    parts = [
        part
        for name, text in finding.group
        for part in ((text[common:],) if name == SET else (name, text))
    ]
    return any(pattern.search(_plain(text)) for text in (finding.metric.name, *parts))


def _plain(text: str) -> str:
    return text.lower().replace("-", "_")


def _common(findings: Sequence[Finding]) -> int:
    """How many characters the paths of all sets have in common: these tell none of them apart."""
    homes = {dict(finding.group).get(SET, "") for finding in findings}
    return len(commonpath(homes)) if homes and all(homes) else 0


def _decided(
    old: str,
    new: str,
    targets: Sequence[tuple[str, Verdict]],
    gates: Sequence[tuple[str, Verdict]],
) -> GateDecision:
    worse = [where for where, verdict in (*gates, *targets) if verdict is Verdict.REGRESSION]
    better = [where for where, verdict in targets if verdict is Verdict.IMPROVEMENT]
    open_ = [
        where
        for where, verdict in (*targets, *gates)
        if verdict in (Verdict.UNDECIDED, Verdict.INVALID)
    ]
    if worse:
        decision, why = Decision.REJECT, f"worse in {some(worse)}"
    elif open_:
        decision, why = Decision.UNDECIDED, f"not decided in {some(open_)}"
    elif better:
        decision, why = Decision.ACCEPT, "no gate is worse"
    else:
        decision, why = Decision.REJECT, "the target is no better"
    gained = f"better in {some(better)}; " if better else ""
    return GateDecision(
        old=old,
        new=new,
        decision=decision,
        targets=tuple(where for where, _ in targets),
        gates=tuple(where for where, _ in gates),
        sentence=f"{old} -> {new}: {decision}: {gained}{why}",
    )
