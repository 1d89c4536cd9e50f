# SPDX-License-Identifier: GPL-2.0-or-later
"""The answer to one question: did a path get longer between two releases, where, and by what?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kdelta.analysis.claims import Claim, Headline
from kdelta.analysis.explanation import USER, Explanation, base_name, explain
from kdelta.check.interval import Undone
from kdelta.ladder.ladders import Ladder, Rung
from kdelta.metric import number, plural
from kdelta.printable import few
from kdelta.rendering import sentences
from kdelta.rendering.explain import more
from kdelta.sample import TOTAL
from kdelta.table import counts
from kdelta.table.columns import (
    ABSENT,
    Column,
    Line,
    Tone,
    crossed_by,
    first_that_fits,
    paragraph,
    short,
)
from kdelta.table.ladders import tables
from kdelta.verdict.comparison import Comparison, Verdict
from kdelta.workload import Workload, is_file

_SEVERAL = 3  # kernels from which the two that were asked for have others between them
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


def lines(
    found: Claim, opened: Explanation | None, workloads: Mapping[str, Workload]
) -> Iterator[Line]:
    """The answer in a paragraph, what stays open, and the ladder.

    opened: the largest change that is undecided, by function; None where there is none.
    """
    ladder = found.report.ladders[0]
    left = sorted(left_open(ladder), key=change, reverse=True)
    ends, said = _ends(found, ladder)
    step = [" ".join(_step(found, found.headline, workloads, ends))] if found.headline else []
    told = [_undecided(found, rung, opened, workloads, said) for rung in left]
    if not (step or left or ends):
        told = [_no_step(found, ladder)]
    largest = [*step, *told] if _decided_first(found) else [*told, *step]
    first, *rest = [ends, *largest] if ends else largest
    yield from paragraph(first, Tone.BOLD)
    for warned in found.report.debugging:
        yield from paragraph(f"{warned}.", Tone.BAD)
    if ladder.failing:
        yield from paragraph(f"{ladder.failing}.", Tone.BAD)
    yield from paragraph(counts.huge_pages(ladder))
    for text in rest:
        yield from ((), *paragraph(text))
    yield ()
    yield from tables(ladder, counts)
    yield from paragraph("; ".join(counts.marks(ladder)), Tone.FAINT)
    for text in ladder.warnings if is_file(ladder.workload) else ():
        yield from paragraph(f"warning: {text}", Tone.BAD)


def left_open(ladder: Ladder[Any]) -> list[Rung[Any]]:
    """The kernels whose comparison with the one above says nothing."""
    return [rung for rung in ladder.rungs if rung.comparison and rung.comparison.verdict in _OPEN]


def change(rung: Rung[Any]) -> float:
    """How far the path changed against the kernel above, either way: 2 for twice and for half."""
    ratio = rung.ratio(TOTAL).previous
    return max(ratio, 1 / ratio) if ratio else 0.0


def _decided_first(found: Claim) -> bool:
    """A reader asks for the largest change, whether it is decided or not."""
    largest = max(map(change, left_open(found.report.ladders[0])), default=0.0)
    return found.headline is not None and largest <= found.headline.step.comparison.factor


def first_change(found: Claim, opened: Explanation | None) -> Explanation | None:
    """The change that the answer begins with, by function; None where there is none."""
    first = found.explanation if _decided_first(found) else opened
    return first if first and first.delta else None


def functions(found: Explanation) -> list[str]:
    """The functions that a change is made of, as a source names them."""
    rows = ((row.function, row.was) for row in found.leading)
    names = (base_name(name) for both in rows for name in both if name)
    return [name for name in dict.fromkeys(names) if name != USER]


def whole(found: Claim) -> Explanation | None:
    """The kernels that were asked for against each other; None where they stand beside each other
    or were timed.
    """
    ladder = found.report.ladders[0]
    counted = [rung.label for rung in ladder.rungs if rung.total]
    if len(counted) < _SEVERAL or found.exact is None:
        return None
    return explain(found.exact, counted[0], counted[-1], scenario=ladder.reference)


def _ends(found: Claim, ladder: Ladder[Any]) -> tuple[str, str]:
    """What whole() says, and what of their builds forbids a verdict."""
    if (both := whole(found)) is None:
        return "", ""
    judged, percent = both.comparison, found.report.step_percent
    per = {rung.label: rung.total.per_operation for rung in ladder.rungs if rung.total}
    was, now = per[both.old], per[both.new]
    steps = [told for rung in ladder.rungs if rung.total and (told := _told_step(rung, percent))]
    within = f", within {percent:g} %" * (judged.verdict is Verdict.SAME) + judged.hidden
    head = (
        f"{_ANSWERS[judged.verdict]}{_since(judged)}: {both.new} executes {number(now)}"
        f" instructions per {both.operation}, {both.old} {number(was)}:"
        f" {counts.times(now / was, percent)}{within}."
    )
    decided = f"Decided steps: {', '.join(steps)}." if steps else ""
    open_ = f"Why: {'; '.join(judged.reasons)}." if judged.verdict in _OPEN else ""
    return " ".join(filter(None, (head, decided, open_))), judged.crossing if open_ else ""


def _told_step(rung: Rung[Any], percent: float) -> str:
    """A kernel with its step, and with those of its phases that go another way; "" without."""
    judged = rung.comparison
    if judged is None or not (judged.verdict.is_step or judged.within) or judged.verdict in _OPEN:
        return ""
    size = f" {counts.times(judged.ratio, percent)}" if judged.verdict.is_step else ""
    return f"{rung.previous} -> {rung.label}{size}" + f" ({judged.within})" * bool(judged.within)


def _step(
    found: Claim, head: Headline, workloads: Mapping[str, Workload], ends: str
) -> Iterator[str]:
    way = "Yes, since" if head.worse else "No, it got shorter in"
    if ends:
        way = f"The largest decided {'in' if head.worse else 'de'}crease is in"
    yield f"{way} {head.step.new}: {sentences.first_sentence(found, head, workloads)}"
    if found.explanation:
        yield from sentences.difference_sentences(found.explanation, None, None)[1:]
    yield sentences.newest(head)


def _no_step(found: Claim, ladder: Ladder[Any]) -> str:
    if not any(rung.comparison for rung in ladder.rungs):
        return f"Undecided: of {ladder.name} no two kernels have a count."
    ends = f"{ladder.rungs[0].label} to {ladder.rungs[-1].label}"
    alike = f"no step of more than {found.report.step_percent:g} % from {ends}"
    alike += "".join(rung.comparison.hidden for rung in ladder.rungs if rung.comparison)
    return f"No: {ladder.name} has {alike} ({sentences.trust(ladder)})."


def _undecided(
    found: Claim,
    rung: Rung[Any],
    opened: Explanation | None,
    workloads: Mapping[str, Workload],
    said: str,
) -> str:
    """said: what of the builds forbids a verdict, and has been told."""
    judged, ratio = rung.comparison, rung.ratio(TOTAL).previous
    if judged is None:
        return ""
    why, began = "; ".join(judged.reasons), f"Undecided in {rung.label}{_since(judged)}"
    if lengths := counts.two_lengths(found.report.ladders[0], rung):
        return f"{began}: {lengths}."
    if opened and opened.delta and (opened.old, opened.new) == (rung.previous, rung.label):
        # What of the builds differs stands in the reasons.
        same = replace(judged, crossing="", options=(), differences=())
        opened, point = replace(opened, comparison=same), found.report.ladders[0].point
        head = sentences.first_of_counts(opened, point, workloads)
        told = sentences.difference_sentences(opened, None, None)[1:]
        why = f"Why undecided: {why}." if not said or judged.crossing != said else ""
        return " ".join(filter(None, [f"{began}: {head}", *told, why]))
    size = f", x{ratio:.3f} of {rung.previous}" if ratio else ""
    return f"{began}{size}: {why}."


def _since(judged: Comparison) -> str:
    """Why a change is undecided, where the builds are why."""
    how = crossed_by([judged]) if judged.verdict is Verdict.UNDECIDED else ""
    return f", since the two were built {how}" * bool(how)


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
