# SPDX-License-Identifier: GPL-2.0-or-later
"""The answer to one question: did a path get longer between two releases, where, and by what?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kdelta.analysis.calls import CallExplanation
from kdelta.analysis.claims import Claim
from kdelta.analysis.explanation import USER, Explanation, base_name, explain
from kdelta.check.interval import Undone
from kdelta.ladder import calls
from kdelta.ladder.evidence import NOT_KNOWN
from kdelta.ladder.ladders import Ladder, LadderStep, Rung
from kdelta.metric import plural
from kdelta.printable import few
from kdelta.rendering import sentences, show
from kdelta.rendering.explain import more, option_sentences
from kdelta.sample import TOTAL
from kdelta.table import counts
from kdelta.table.columns import (
    ABSENT,
    Column,
    Line,
    Tone,
    builds_apart,
    crossed_by,
    first_that_fits,
    paragraph,
    short,
)
from kdelta.table.ladders import tables
from kdelta.verdict.comparison import Comparison, Verdict
from kdelta.workload import Workload, is_file

_PAIR = 2  # kernels; of more some lie between the two that were asked for
_ANSWERS = {
    Verdict.REGRESSION: "Yes",
    Verdict.IMPROVEMENT: "No, it got shorter",
    Verdict.SAME: "No",
    Verdict.UNDECIDED: "Undecided",
    Verdict.INVALID: "Undecided, not comparable",
}
_OPEN = (Verdict.UNDECIDED, Verdict.INVALID)
_MOST = 0.5  # share of a step from which a commit is named
_FUNCTION, _LISTED = 24, 12  # characters of its name in a table of commits; commits that are named
_TITLES = (60, 38, 24)  # characters of theirs


# By function and, where a run has them, by call paths.
Change = tuple[Explanation, CallExplanation | None]


def lines(
    found: Claim,
    told: Sequence[Change],
    workloads: Mapping[str, Workload],
    newer: str = "",
) -> Iterator[Line]:
    """The answer, its steps and functions, the ladder, and what stays open.

    told: the changes of it that are explained.  newer: what was not counted, a sentence.
    """
    ladder, both = found.report.ladders[0], whole(found)
    yield from paragraph(_answer(found, both, workloads), Tone.BOLD)
    for warned in found.report.debugging:
        yield from paragraph(f"{warned}.", Tone.BAD)
    if ladder.failing:
        yield from paragraph(f"{ladder.failing}.", Tone.BAD)
    yield from paragraph(counts.not_meant(ladder))
    for text in _beside(found, told):
        yield from paragraph(text)
    yield ()
    yield from tables(ladder, counts)
    yield from paragraph("; ".join(counts.marks(ladder)), Tone.FAINT)
    for text in ladder.warnings if is_file(ladder.workload) else ():
        yield from paragraph(f"warning: {text}", Tone.BAD)
    for text in filter(None, (newer, *_open_ends(found, both, told))):
        yield from ((), *paragraph(text))


def fields(
    found: Claim, told: Sequence[Change], workloads: Mapping[str, Workload], **own: Any
) -> dict[str, Any]:
    """The same as JSON, with what else is known."""
    ladder, both = found.report.ladders[0], whole(found)
    more = (*_beside(found, told), *found.report.debugging, *_open_ends(found, both, told))
    ends = [rung for rung in ladder.rungs if both and rung.label in (both.old, both.new)]
    return show.answer(
        "why",
        [_answer(found, both, workloads), *filter(None, more)],
        ladder.reference,
        LadderStep.of(ends[0], ends[1], both.comparison) if both else None,
        **own,
        **show.document(found.report)[1],
    )


def left_open(ladder: Ladder[Any]) -> list[Rung[Any]]:
    """The kernels whose comparison with the one above says nothing."""
    return [rung for rung in ladder.rungs if rung.comparison and rung.comparison.verdict in _OPEN]


def change(rung: Rung[Any]) -> float:
    """How far the path changed against the kernel above, either way: 2 for twice and for half."""
    ratio = rung.ratio(TOTAL).previous
    return max(ratio, 1 / ratio) if ratio else 0.0


def changes(found: Claim) -> tuple[Explanation, ...]:
    """The largest decided step, and behind it a larger change that is undecided, by function."""
    if found.exact is None:
        return ()
    ladder = found.report.ladders[0]
    ends = [(step.old, step.new) for step in ladder.steps[:1]]
    largest = max(left_open(ladder), key=change, default=None)
    decided = max((step.comparison.factor for step in ladder.steps[:1]), default=0.0)
    if largest and largest.previous and change(largest) > decided:
        ends.append((largest.previous, largest.label))
    told = (explain(found.exact, *pair, scenario=ladder.reference) for pair in ends)
    return tuple(one for one in told if one.delta)


def functions(found: Explanation) -> list[str]:
    """The functions that a change is made of, as a source names them."""
    rows = ((row.function, row.was) for row in found.leading)
    names = (base_name(name) for both in rows for name in both if name)
    return [name for name in dict.fromkeys(names) if name != USER]


def whole(found: Claim) -> Explanation | None:
    """The first kernel that was counted against the last one; None where no two were."""
    ladder = found.report.ladders[0]
    counted = [rung.label for rung in ladder.rungs if rung.total]
    if len(counted) < _PAIR or found.exact is None:
        return None
    both = explain(found.exact, counted[0], counted[-1], scenario=ladder.reference)
    # Where options differ on the way, an end that does not say its own decides nothing.
    crossed = any(rung.comparison.crossing for rung in left_open(ladder) if rung.comparison)
    if not crossed or both.comparison.verdict in _OPEN or not (own := _unknown(both.comparison)):
        return both
    judged = calls.left_open(both.comparison, f"{own}, and options differ on the way")
    return replace(both, comparison=judged)


def _unknown(judged: Comparison) -> str:
    """Whose configuration the archive lost; "" where both are known, or neither."""
    return next((one for one in judged.differences if one.endswith(NOT_KNOWN)), "")


def _answer(found: Claim, both: Explanation | None, workloads: Mapping[str, Workload]) -> str:
    ladder, percent = found.report.ladders[0], found.report.step_percent
    if both is None:
        return f"Undecided: of {ladder.name} no two kernels have a count."
    judged, ends = both.comparison, (both.old, both.new)
    old, new = (rung.total for rung in ladder.rungs if rung.total and rung.label in ends)
    was, now = (counts.value(each, 1.0).text for each in (old, new))
    size = counts.times(new.per_operation / old.per_operation, percent)
    how = ""
    if judged.verdict is Verdict.UNDECIDED:
        how = f"the two were built {built}" if (built := crossed_by([judged])) else _unknown(judged)
    within = f", within {percent:g} %" * (judged.verdict is Verdict.SAME) + judged.hidden
    answer = _ANSWERS[judged.verdict]
    if judged.verdict in _OPEN and ladder.steps:  # what is decided comes first
        step = ladder.steps[0]
        way = "Longer" if step.comparison.verdict is Verdict.REGRESSION else "Shorter"
        decided = f"{way} from {step.old} to {step.new}, {counts.times(step.comparison.ratio)}"
        answer = f"{decided}; from {both.old} to {both.new} {answer.lower()}"
    done = sentences.subject(ladder, ladder.point, workloads)
    done = done[:1].lower() + done[1:] if done[1:2].islower() else done
    return (
        f"{answer}{f', since {how}' * bool(how)}:"
        f" {done} takes {now} instructions per"
        f" {both.operation} on {both.new}, {was} on {both.old}: {size}{within}."
    )


def _beside(found: Claim, told: Sequence[Change]) -> Iterator[str]:
    """What the largest changes are made of, and of several kernels the decided steps."""
    rungs, percent = found.report.ladders[0].rungs, found.report.step_percent
    steps = [_told_step(rung, percent) for rung in rungs if rung.total]
    several, decided = len(steps) > _PAIR, [*filter(None, steps)]
    for one, paths in told:
        open_ = one.comparison.verdict in _OPEN
        longer = (one.delta or 0) > 0
        size = f"{counts.times(one.comparison.ratio, percent)}, {'longer' if longer else 'shorter'}"
        size += ", undecided" * open_
        head = f"The largest {'change' if open_ else 'step'} is {one.old} -> {one.new}, {size}. "
        why = sentences.by_path(paths) if paths else ""
        yield head * several + (why or sentences.by_function(one))
    if several and len(decided) > len(found.report.ladders[0].steps[:1]):
        yield f"Decided steps: {', '.join(decided)}."


def _open_ends(found: Claim, both: Explanation | None, told: Sequence[Change]) -> Iterator[str]:
    """Reasons and commands, and what options make of the largest change."""
    ladder = found.report.ladders[0]
    left = sorted(left_open(ladder), key=change, reverse=True)
    for rung in left:
        reasons = rung.comparison.reasons if rung.comparison else ()
        why = counts.two_lengths(ladder, rung) or "; ".join(reasons)
        yield f"Undecided in {rung.label}: {why}."
    if both and not left and both.comparison.verdict in _OPEN:
        yield f"Why undecided: {'; '.join(both.comparison.reasons)}."
    for one, _ in told[-1:]:
        yield " ".join(option_sentences(one))
    for one, _ in told:
        if one.comparison.differences and not one.comparison.crossing:
            yield f"{builds_apart(one.old, one.new, one.comparison)}."


def _told_step(rung: Rung[Any], percent: float) -> str:
    """A kernel with its step, and with those of its phases that go another way; "" without."""
    judged = rung.comparison
    if judged is None or not (judged.verdict.is_step or judged.within) or judged.verdict in _OPEN:
        return ""
    size = f" {counts.times(judged.ratio, percent)}" if judged.verdict.is_step else ""
    return f"{rung.previous} -> {rung.label}{size}" + f" ({judged.within})" * bool(judged.within)


def commit_lines(
    found: Sequence[Undone], change: Explanation, tags: tuple[str, str]
) -> Iterator[Line]:
    """Which commit explains a change, what the others do, which were not undone, and why.

    found: in the order in which they were undone.
    """
    step = step_of(change)
    done = [one for one in found if one.change is not None]
    best = max(done, key=lambda one: one.share(step), default=None)
    if best and best.share(step) >= _MOST:
        beside = f" ({plural(best.beside, 'newer commit')} undone on both sides)"
        first = (
            f'It is {best.name} ("{best.title}"): {best.base} with it executes'
            f" {more(best.change or 0.0)} instructions per {change.operation} than without"
            f" it{beside * bool(best.beside)}, {100 * best.share(step):.0f} % of the step."
        )
    else:
        first = (
            f"No commit is named: of {plural(len(found), 'commit')} from {' to '.join(tags)} to the"
            f" files of {', '.join(functions(change))}, {len(done)} could be undone, and none"
            f" makes most of the step, {more(step)} per {change.operation}."
        )
    yield from paragraph(first, Tone.BOLD)
    if done:
        changes = [f"{one.change:+.2f} ({100 * one.share(step):.0f} %)" for one in done]
        yield from ((), *commits(done, Column("with it", changes, right=True)))
    if failed := [f"{one.name}: {one.reason}" for one in found if one.reason and one.change != 0]:
        yield from ((), *paragraph(f"Without an answer: {few(failed, _LISTED, '; ')}."))
    if untried := [one for one in found if not (one.base or one.reason)]:
        yield from ((), *paragraph(f"Not tried: {plural(len(untried), 'commit')}:"))
        yield from commits(untried[:_LISTED])


def commits(found: Sequence[Undone], *figures: Column) -> Iterator[Line]:
    """A line each: the commit, the function of the change that it is in, its subject."""
    names = [short(few(one.functions, 1) or ABSENT, _FUNCTION) for one in found]
    columns = [Column("commit", [one.name for one in found]), *figures, Column("function", names)]
    titles = ([short(one.title, wide) for one in found] for wide in _TITLES)
    return first_that_fits([[*columns, Column("subject", each)] for each in titles])


def step_of(change: Explanation) -> float:
    """A change in instructions per operation."""
    return (change.delta or 0) / change.operations
