# SPDX-License-Identifier: GPL-2.0-or-later
"""The answer to one question: did a path get longer between two releases, where, and by what?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kdelta.analysis.claims import Claim, Headline
from kdelta.analysis.explanation import Explanation
from kdelta.ladder.ladders import Ladder, Rung
from kdelta.metric import number
from kdelta.rendering import sentences
from kdelta.rendering.explain import option_sentences
from kdelta.sample import TOTAL
from kdelta.table import counts
from kdelta.table.columns import Line, Tone, paragraph
from kdelta.table.ladders import tables
from kdelta.verdict.comparison import Verdict
from kdelta.workload import Workload

_BACK = 0.1  # share of a step that may be left where the newest kernel no longer has it
_OPEN = (Verdict.UNDECIDED, Verdict.INVALID)


def lines(
    found: Claim, opened: Explanation | None, workloads: Mapping[str, Workload]
) -> Iterator[Line]:
    """The answer in a paragraph, what stays open, and the ladder.

    opened: the largest change that is undecided, by function; None where there is none.
    """
    ladder = found.report.ladders[0]
    for warned in found.report.debugging:
        yield from paragraph(f"{warned}.", Tone.BAD)
    if ladder.failing:
        yield from paragraph(f"{ladder.failing}.", Tone.BAD)
    left = sorted(left_open(ladder), key=change, reverse=True)
    step = [" ".join(_step(found, found.headline, workloads))] if found.headline else []
    told = [_undecided(rung, opened) for rung in left]
    if not step and not left:
        told = [_no_step(found, ladder)]
    # A reader asks for the largest change, whether it is decided or not.
    later = found.headline and left and change(left[0]) > found.headline.step.comparison.factor
    first, *rest = [*told, *step] if later else [*step, *told]
    yield from paragraph(first, Tone.BOLD)
    for text in rest:
        yield from ((), *paragraph(text))
    yield ()
    yield from tables(ladder, counts)


def left_open(ladder: Ladder[Any]) -> list[Rung[Any]]:
    """The kernels whose comparison with the one above says nothing."""
    every = ladder.rungs
    return [rung for rung in every if rung.comparison and rung.comparison.verdict in _OPEN]


def change(rung: Rung[Any]) -> float:
    """How far the path changed against the kernel above, either way: 2 for twice and for half."""
    ratio = rung.ratio(TOTAL).previous
    return max(ratio, 1 / ratio) if ratio else 0.0


def _step(found: Claim, head: Headline, workloads: Mapping[str, Workload]) -> Iterator[str]:
    way = "Yes, since" if head.worse else "It got shorter in"
    yield f"{way} {head.step.new}: {sentences.first_sentence(found, head, workloads)}"
    if found.explanation:
        yield from sentences.difference_sentences(found.explanation, None, None)[1:]
    yield _newest(head)


def _no_step(found: Claim, ladder: Ladder[Any]) -> str:
    if not any(rung.comparison for rung in ladder.rungs):
        return f"Nothing can be said of {ladder.reference}: no two kernels have a count."
    ends = f"{ladder.rungs[0].arm} to {ladder.rungs[-1].arm}"
    alike = f"no step of more than {found.report.step_percent:g} % from {ends}"
    return f"No: {ladder.reference} has {alike} ({sentences.TRUST[ladder.grade]})."


def _undecided(rung: Rung[Any], opened: Explanation | None) -> str:
    judged, ratio = rung.comparison, rung.ratio(TOTAL).previous
    if judged is None:
        return ""
    size = f": x{ratio:.3f}, {judged.verdict}" if ratio else f" is {judged.verdict}"
    text = f"{rung.previous} to {rung.arm}{size}: {'; '.join(judged.reasons)}."
    own = opened is not None and (opened.old, opened.new) == (rung.previous, rung.arm)
    return " ".join([text, *option_sentences(opened)]) if opened and own else text


def _newest(head: Headline) -> str:
    """Whether the newest kernel still has the step: where all between are decided."""
    step, rungs = head.step, head.ladder.rungs
    last = next((one for one in reversed(head.ladder.rungs) if one.total), None)
    if last is None or last.total is None or last.arm == step.new:
        return f"{step.new} is the newest kernel here."
    at = [rung.arm for rung in rungs].index(step.new)
    if any(rung.comparison is None or rung.comparison.verdict in _OPEN for rung in rungs[at + 1 :]):
        return f"Whether {last.arm}, the newest here, still has it is open: see below."
    now = last.total.per_operation
    left = (now - step.old_value) / (step.new_value - step.old_value)
    still = "still" if left > 1 - _BACK else "in part" if left > _BACK else "no longer"
    return f"{last.arm}, the newest here, has it {still}: {number(now)} per {step.operation}."
