# SPDX-License-Identifier: GPL-2.0-or-later
"""A bisection as text and as JSON data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kdelta.bisect import evidence
from kdelta.bisect.evidence import BisectionResult, Ending, Findings
from kdelta.bisect.history import Commit
from kdelta.bisect.journal import BisectStep, Point
from kdelta.bisect.search import Likeness, Mark
from kdelta.check.interval import Undone
from kdelta.metric import plural
from kdelta.printable import few
from kdelta.rendering import why
from kdelta.rendering.formats import picked
from kdelta.table.columns import (
    Line,
    Span,
    Tone,
    builds_apart,
    figure,
    headline,
    paragraph,
    short,
    table_of,
)

_TONES = {Likeness.SAME: Tone.GOOD, Likeness.DIFFERENT: Tone.BAD, Likeness.UNKNOWN: Tone.WARN}
_LABEL = 40
_TITLE = 48
_MOST_NAMED = 6
_STEP = ("mark", "standing", "position", "beyond", "why", "trials", "same_as", "build_s")


def show(findings: Findings, found: BisectionResult, *, points: str) -> list[Line]:
    """The points that were measured, in their order, and what they amount to.

    points: how many there are of what ("52 kernels", "64 commits").
    """
    journal, steps = findings.journal, findings.journal.steps
    question = journal.state.question
    good, bad = (short(name, _LABEL) for name in question.study.kernels)
    builds = evidence.builds(journal)
    effort = f"{plural(builds, 'build')}, " if builds else ""
    effort += plural(evidence.boots(journal), "boot")
    sure = found.ending in (Ending.STEP, Ending.RANGE)
    lines = list(paragraph(sentence(found, findings), Tone.BOLD if sure else Tone.WARN))
    lines += [(), *paragraph(f"{question.study.scenarios[0]}: {good} (good) to {bad} (bad)")]
    lines += paragraph(f"{findings.unit()}, {question.phase}; {points}, {effort}")
    lines += [(), *_table(findings), ()]
    for point in journal.state.points:
        if (step := steps.get(point.key)) and step.why:
            lines += paragraph(f"{short(point.label, _LABEL)}: {step.why}", Tone.WARN)
    if found.comparison and found.comparison.differences:
        told = builds_apart(found.good.label, found.bad.label, found.comparison)
        lines += paragraph(f"{told}: the cause may be there, and no commit.", Tone.WARN)
    for change in found.others:
        gap = f", {change.between} not measured between them" if change.between else ""
        was, now = map(figure, map(findings.value, (change.old, change.new)))
        lines += paragraph(
            f"Also seen: {change.old.label} -> {change.new.label}: {was} -> {now}"
            f"{_percent(change.comparison.ratio)}{gap}."
        )
    return lines


def sentence(found: BisectionResult, findings: Findings) -> str:
    """The outcome in one sentence."""
    judged = found.comparison
    ends = f"{found.good.label} and {found.bad.label}"
    was, now = map(figure, map(findings.value, (found.good, found.bad)))
    values = f"{was} -> {now} {findings.unit()}"
    values += _percent(judged.ratio) if judged else ""
    why = "; ".join(found.reasons)
    share = "" if found.share is None else f", {100 * found.share:.0f} % of the whole change"
    skipped = few([short(point.label, _LABEL) for point in found.skipped], _MOST_NAMED)
    change, alike = f"The change is between {ends}: {values}{share}", f"do not differ: {values}"
    told = {
        Ending.STEP: f"{change}.",
        Ending.RANGE: f"{change}; {skipped} between them could not be measured.",
        Ending.GRADUAL: f"There is no single change: it came down to {ends}, which {alike}.",
        Ending.SAME: f"There is nothing to find: {ends} {alike}; {why}.",
    }
    return told.get(found.ending) or f"{found.ending.upper()}: {why}."


def culprit(commit: Commit) -> list[Line]:
    """The commit that was found, and the lines that a report or a fix needs, never wrapped."""
    told = commit_data(commit)
    lines = list(paragraph(f"Culprit: {commit.id}", Tone.BOLD))
    lines += paragraph(f'"{commit.subject}"', indent="  ")
    lines += paragraph(f"by {told['author']}, {commit.date}", indent="  ")
    return [*lines, (), (Span(told["fixes"]),), (Span(told["regzbot"]),)]


def candidates(commits: Sequence[Commit], listed: Sequence[Undone]) -> list[Line]:
    """The commits one of which it is, as they are listed, and the line of a report."""
    lines = [*paragraph("The culprit is one of:", Tone.BOLD), *why.commits(listed)]
    return [*lines, (), (Span(f"#regzbot introduced: {commits[0].short}^..{commits[-1].short}"),)]


def commit_data(commit: Commit) -> dict[str, Any]:
    """A commit as JSON data, with the lines for a fix and for regzbot, which tracks regressions."""
    return {
        "id": commit.id,
        "subject": commit.subject,
        "author": f"{commit.author} <{commit.email}>",
        "date": commit.date,
        "fixes": f'Fixes: {commit.short} ("{commit.subject}")',
        "regzbot": f"#regzbot introduced: {commit.short}",
    }


def document(findings: Findings, found: BisectionResult) -> dict[str, Any]:
    """The bisection as JSON data."""
    journal, judged = findings.journal, found.comparison
    points = {point.key: point for point in journal.state.points}
    none: dict[str, Any] = {"ratio": None, "verdict": None, "crossing": "", "differences": []}
    return {
        "run": journal.folder.name,
        "scenario": journal.state.question.study.scenarios[0],
        "phase": findings.phase,
        **picked(found, ("ending", "reasons")),
        "unit": findings.unit(),
        "good": _side(found.good, findings),
        "bad": _side(found.bad, findings),
        **(picked(judged, tuple(none)) if judged else none),
        "share": found.share,
        "skipped": [point.key for point in found.skipped],
        "others": [
            {
                "old": _side(change.old, findings),
                "new": _side(change.new, findings),
                "ratio": change.comparison.ratio,
                "between": change.between,
            }
            for change in found.others
        ],
        "points": len(points),
        "boots": evidence.boots(journal),
        "builds": evidence.builds(journal),
        "steps": [
            {
                **_side(points[step.key], findings),
                **picked(step, _STEP, same_as=step.same_as or None),
            }
            for step in journal.state.steps
        ],
    }


def _table(findings: Findings) -> Iterator[Line]:
    journal, steps = findings.journal, findings.journal.steps
    ends = {journal.state.points[0].key: "good end", journal.state.points[-1].key: "bad end"}
    order = {step.key: str(at + 1) for at, step in enumerate(journal.state.steps)}
    points = [point for point in journal.state.points if point.key in steps]
    titled = any(point.title for point in points)
    rows: list[list[Span | str]] = []
    for point in points:
        step = steps[point.key]
        value = figure(findings.value(point)) + " (same image)" * bool(step.same_as)
        cells = short(point.label, _LABEL), value, _standing(step, ends.get(point.key))
        title = [headline(point.title, _TITLE)] if titled else []
        rows.append([*cells, order[point.key], *title])
    heads = ("kernel", "value", "against good", "asked", *["subject"] * titled)
    return table_of(heads, rows, right=("value", "asked"))


def _standing(step: BisectStep, end: str | None) -> Span:
    if step.mark is Mark.SKIP:
        return Span("skipped", Tone.WARN)
    if end:
        return Span(end)
    if step.standing is None:
        return Span(f"as {step.mark}")
    words = f"{step.standing}, beyond {step.mark}" if step.beyond else str(step.standing)
    return Span(words, _TONES[step.standing])


def _percent(ratio: float | None) -> str:
    return f" ({100 * (ratio - 1):+.1f} %)" if ratio else ""


def _side(point: Point, findings: Findings) -> dict[str, Any]:
    return {"key": point.key, "label": point.label, "value": findings.value(point)}
