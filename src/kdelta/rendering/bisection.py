# SPDX-License-Identifier: GPL-2.0-or-later
"""A bisection as text and as JSON data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kdelta.bisect import evidence
from kdelta.bisect.commits import Commit
from kdelta.bisect.evidence import BisectionResult, Ending, Findings, NeighbourChange
from kdelta.bisect.journal import BisectStep, Journal, Point
from kdelta.bisect.search import Likeness, Mark
from kdelta.metric import number
from kdelta.table.columns import (
    Column,
    Line,
    Span,
    Tone,
    builds_apart,
    figure,
    headline,
    paragraph,
    short,
    table_lines,
)

_TONES = {
    Likeness.SAME: Tone.GOOD,
    Likeness.DIFFERENT: Tone.BAD,
    Likeness.UNKNOWN: Tone.WARN,
}
_LABEL = 40
_TITLE = 48
_MOST_NAMED = 6


def show(
    journal: Journal, findings: Findings, found: BisectionResult, *, points: str
) -> list[Line]:
    """The points that were measured, in their order, and what they amount to.

    points: how many there are of what ("52 kernels", "64 commits").
    """
    question = journal.state.question
    lines = list(
        paragraph(
            f"{question.scenario}: {short(question.good, _LABEL)} (good) to"
            f" {short(question.bad, _LABEL)} (bad)",
            Tone.BOLD,
        )
    )
    lines += paragraph(f"{findings.unit()}, {question.phase}; {points}, {_effort(journal)}")
    lines += [(), *_table(journal, findings), ()]
    lines += _notes(journal)
    lines += paragraph(
        sentence(found), Tone.BOLD if found.ending in (Ending.STEP, Ending.RANGE) else Tone.WARN
    )
    if found.comparison and found.comparison.differences:
        told = builds_apart(found.good.label, found.bad.label, found.comparison)
        lines += paragraph(f"{told}: the cause may be there, and no commit.", Tone.WARN)
    lines += _more(found)
    return lines


def sentence(found: BisectionResult) -> str:
    """The outcome in one sentence."""
    good, bad = found.good.label, found.bad.label
    values = f"{figure(found.good_value)} -> {figure(found.bad_value)} {found.unit}"
    if found.comparison and found.comparison.ratio:
        values += f" ({100 * (found.comparison.ratio - 1):+.1f} %)"
    why = "; ".join(found.reasons)
    if found.ending is Ending.STEP:
        return f"The change is between {good} and {bad}: {values}{_share(found)}."
    if found.ending is Ending.RANGE:
        return (
            f"The change is between {good} and {bad}: {values}{_share(found)};"
            f" {_listed(found.skipped)} between them could not be measured."
        )
    if found.ending is Ending.GRADUAL:
        return (
            f"There is no single change: it came down to {good} and {bad}, which do not differ:"
            f" {values}."
        )
    if found.ending is Ending.SAME:
        return f"There is nothing to find: {good} and {bad} do not differ: {values}; {why}."
    return f"{found.ending.upper()}: {why}."


def culprit(commit: Commit) -> list[Line]:
    """The commit that was found, and the lines that a report or a fix needs."""
    lines = list(paragraph(f"Culprit: {commit.id}", Tone.BOLD))
    lines += paragraph(f'"{commit.subject}"', indent="  ")
    lines += paragraph(f"by {commit.author} <{commit.email}>, {commit.date}", indent="  ")
    lines += [(), *_verbatim(fixes_line(commit)), *_verbatim(introduced_line(commit))]
    return lines


def candidates(commits: Sequence[Commit]) -> list[Line]:
    """The commits one of which it is, and the line of a report."""
    lines = list(paragraph("The culprit is one of:", Tone.BOLD))
    for commit in commits:
        lines += paragraph(f"{commit.short} {commit.subject}", indent="  ")
    lines += [(), *_verbatim(f"#regzbot introduced: {commits[0].short}^..{commits[-1].short}")]
    return lines


def fixes_line(commit: Commit) -> str:
    """The line by which a fix names what it fixes."""
    return f'Fixes: {commit.short} ("{commit.subject}")'


def introduced_line(commit: Commit) -> str:
    """The line by which a mail tells regzbot, the tracker of regressions, the culprit."""
    return f"#regzbot introduced: {commit.short}"


def commit_data(commit: Commit) -> dict[str, Any]:
    """A commit as JSON data."""
    return {
        "id": commit.id,
        "subject": commit.subject,
        "author": f"{commit.author} <{commit.email}>",
        "date": commit.date,
        "fixes": fixes_line(commit),
        "regzbot": introduced_line(commit),
    }


def _verbatim(text: str) -> Iterator[Line]:
    """A line that is copied elsewhere: never wrapped."""
    yield (Span(text),)


def data(journal: Journal, findings: Findings, found: BisectionResult) -> dict[str, Any]:
    """The bisection as JSON data."""
    question = journal.state.question
    return {
        "run": journal.folder.name,
        "scenario": question.scenario,
        "phase": question.phase,
        "ending": found.ending,
        "reasons": list(found.reasons),
        "unit": found.unit,
        "good": _side(found.good, found.good_value),
        "bad": _side(found.bad, found.bad_value),
        "ratio": found.comparison.ratio if found.comparison else None,
        "verdict": found.comparison.verdict if found.comparison else None,
        "crossing": found.comparison.crossing if found.comparison else "",
        "differences": list(found.comparison.differences) if found.comparison else [],
        "share": found.share,
        "skipped": [point.key for point in found.skipped],
        "others": [
            {
                "old": _side(change.old, change.old_value),
                "new": _side(change.new, change.new_value),
                "ratio": change.comparison.ratio,
                "between": change.between,
            }
            for change in found.others
        ],
        "back": [[first.key, second.key] for first, second in found.back],
        "points": len(journal.state.points),
        "boots": evidence.boots(journal),
        "builds": evidence.builds(journal),
        "steps": [_step(journal, findings, step) for step in journal.state.steps],
    }


def _effort(journal: Journal) -> str:
    boots, builds = evidence.boots(journal), evidence.builds(journal)
    words = f"{boots} boot" + "s" * (boots != 1)
    return f"{builds} build{'s' * (builds != 1)}, {words}" if builds else words


def _table(journal: Journal, findings: Findings) -> Iterator[Line]:
    steps = journal.steps
    ends = {journal.state.points[0].key: "good end", journal.state.points[-1].key: "bad end"}
    order = {step.key: str(at + 1) for at, step in enumerate(journal.state.steps)}
    points = [point for point in journal.state.points if point.key in steps]
    shown = [_standing(steps[point.key], ends.get(point.key)) for point in points]
    columns = [
        Column("kernel", (short(point.label, _LABEL) for point in points)),
        Column("value", _values(points, steps, findings), right=True),
        Column("against good", shown),
        Column("asked", (order[point.key] for point in points), right=True),
    ]
    if any(point.title for point in points):
        titles = tuple(Span(headline(point.title, _TITLE)) for point in points)
        columns.append(Column("subject", titles))
    yield from table_lines(columns)


def _values(
    points: Sequence[Point], steps: Mapping[str, BisectStep], findings: Findings
) -> tuple[Span, ...]:
    found = []
    for point in points:
        value = findings.value(point)
        twin = steps[point.key].same_as
        found.append(Span(f"{figure(value)} (same image)" if twin else figure(value)))
    return tuple(found)


def _standing(step: BisectStep, end: str | None) -> Span:
    if step.mark is Mark.SKIP:
        return Span("skipped", Tone.WARN)
    if end:
        return Span(end)
    if step.standing is None:
        return Span(f"as {step.mark}")
    words = f"{step.standing}, beyond {step.mark}" if step.beyond else str(step.standing)
    return Span(words, _TONES[step.standing])


def _notes(journal: Journal) -> Iterator[Line]:
    steps = journal.steps
    for point in journal.state.points:
        step = steps.get(point.key)
        if step and step.why:
            yield from paragraph(f"{short(point.label, _LABEL)}: {step.why}", Tone.WARN)


def _more(found: BisectionResult) -> Iterator[Line]:
    for change in found.others:
        gap = f", {change.between} not measured between them" if change.between else ""
        yield from paragraph(
            f"Also seen: {change.old.label} -> {change.new.label}: {number(change.old_value)} ->"
            f" {number(change.new_value)}{_percent(change)}{gap}."
        )
    for first, second in found.back:
        yield from paragraph(
            f"The history goes back and forth: {second.label} is like the good end again, after"
            f" {first.label}; there is more than one change.",
            Tone.WARN,
        )


def _percent(change: NeighbourChange) -> str:
    ratio = change.comparison.ratio
    return f" ({100 * (ratio - 1):+.1f} %)" if ratio else ""


def _share(found: BisectionResult) -> str:
    return "" if found.share is None else f", {100 * found.share:.0f} % of the whole change"


def _listed(points: Sequence[Point]) -> str:
    names = ", ".join(short(point.label, _LABEL) for point in points[:_MOST_NAMED])
    more = len(points) - _MOST_NAMED
    return f"{names} and {more} more" if more > 0 else names


def _side(point: Point, value: float | None) -> dict[str, Any]:
    return {"key": point.key, "label": point.label, "value": value}


def _step(journal: Journal, findings: Findings, step: BisectStep) -> dict[str, Any]:
    point = next(point for point in journal.state.points if point.key == step.key)
    return {
        **_side(point, findings.value(point)),
        "mark": step.mark,
        "standing": step.standing,
        "position": step.position,
        "beyond": step.beyond,
        "why": step.why,
        "trials": list(step.trials),
        "same_as": step.same_as or None,
        "build_s": step.build_s,
    }
