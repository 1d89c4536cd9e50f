# SPDX-License-Identifier: GPL-2.0-or-later
"""What `kdelta explain --calls` prints: the causes that a difference consists of, and its tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from kdelta.analysis.calls import Branch, CallDifference, CallExplanation, Cause, CauseKind
from kdelta.analysis.explanation import Explanation
from kdelta.analysis.resemblance import akin
from kdelta.metric import decimals, plural
from kdelta.rendering.explain import PATH_LENGTH, opening, refusal
from kdelta.rendering.formats import Cell, picked
from kdelta.table.columns import Column, Line, Span, Tone, paragraph, short, table_lines

_LISTED = 8  # causes in the text; JSON and CSV have all
_TELLING = 0.005  # share of the difference from which a cause has a line
_SMALL = 0.02  # share of the difference below which a branch of the tree is left out
_NAME_WIDTH = 48
_PIECES = 2  # functions that code moved into, by name
_PARTS = 4  # what a function calls, told with it
_BRANCHES = 14  # lines of the tree in the text
_SELDOM = 0.1  # calls per operation below which it is told for how many there is one
_DEEPEST = 24  # levels of the tree that are indented


def show(found: CallExplanation, *, sentences: Sequence[str] = ()) -> list[Line]:
    """What `kdelta explain --calls` prints; sentences: with which it begins."""
    explanation, difference = found.explanation, found.difference
    lines = opening(explanation, sentences)
    if difference is None:
        return [*lines, *refusal(explanation)]
    scale = Scale.of(explanation)
    per = explanation.operation or "operation"
    if not difference.causes:
        return [*lines, (), *paragraph(f"Every call path is the same, per {per} and in all.")]
    claim = f"Per {per} {scale.signed(difference.root.delta)}, and it is this:"
    lines += [(), *paragraph(claim, Tone.BOLD), *_causes(difference, scale), ()]
    lines += _tree(difference.root, difference.causes, scale)
    return [*lines, (), *paragraph(PATH_LENGTH)]


@dataclass(frozen=True, slots=True)
class Scale:
    """How counts of one explanation are written: per operation, all in the same decimals."""

    operations: int
    places: int

    @classmethod
    def of(cls, explanation: Explanation) -> Scale:
        """The scale of an explanation."""
        most = max(explanation.old_value or 0, explanation.new_value or 0)
        return cls(explanation.operations, decimals(most / explanation.operations))

    def plain(self, count: int) -> str:
        """A count."""
        return f"{count / self.operations:.{self.places}f}" if count else "0"

    def each(self, count: int) -> str:
        """A count of which fewer than one per operation may be worth a word."""
        return _short(count / self.operations)

    def signed(self, count: int) -> str:
        """A change."""
        return f"{count / self.operations:+.{self.places}f}" if count else "0"

    def calls(self, count: int) -> str:
        """How often something was called."""
        return _short(count / self.operations)

    def times(self, count: int) -> str:
        """The same in words: once for many operations is told as that."""
        each = count / self.operations
        if 0 < each < _SELDOM:
            return f"once in {1 / each:.0f}"
        told = _short(each)
        return "once" if told == "1" else f"{told} times"


def _short(each: float) -> str:
    return f"{each:.0f}" if abs(each) >= 1000 else f"{each:.3g}"


def _causes(difference: CallDifference, scale: Scale) -> Iterator[Line]:
    whole = difference.root.delta
    listed = telling(difference)
    others = difference.causes[len(listed) :]
    rows = [(cause.delta, sentence(cause, scale), Tone.PLAIN) for cause in listed]
    if others:
        count = plural(len(others), "smaller one")
        rows.append((sum(cause.delta for cause in others), count, Tone.FAINT))
    rows.append((whole, "sum", Tone.BOLD))
    columns = (
        Column("delta", [Span(scale.signed(delta), tone) for delta, _, tone in rows]),
        Column("share", [Span(_share(delta, whole), tone) for delta, _, tone in rows]),
        Column("cause", [Span(text, tone) for _, text, tone in rows], right=False),
    )
    yield from table_lines(columns)


def telling(difference: CallDifference) -> Sequence[Cause]:
    """The causes that have a line."""
    least = _TELLING * abs(difference.root.delta)
    large = [cause for cause in difference.causes if abs(cause.delta) >= least]
    return (large or difference.causes)[:_LISTED]


def _share(delta: int, whole: int) -> str:
    return f"{round(100 * delta / whole)} %" if whole else "-"


def sentence(cause: Cause, scale: Scale) -> str:
    """One cause in words."""
    name = short(cause.function, _NAME_WIDTH)
    pieces = ", ".join(short(piece, _NAME_WIDTH) for piece in cause.into[:_PIECES])
    pieces += f" and {len(cause.into) - _PIECES} more" if len(cause.into) > _PIECES else ""
    verb = "is" if len(cause.into) == 1 else "are"
    caller = short(cause.caller, _NAME_WIDTH)
    where = f"in {caller}" if caller else "from several places"
    often, before = scale.times(cause.calls_new), scale.times(cause.calls_old)
    called = f"called {often}" if often == before else f"called {often} (before: {before})"
    match cause.kind:
        case CauseKind.NEW:
            through = f"; {pieces} {verb} called through it" if pieces else ""
            return f"{name} is newly called {where}, {often}, with all below{through}"
        case CauseKind.VANISHED:
            direct = f"; {pieces} {verb} called without it" if pieces else ""
            told = f"is no longer called {where} (before: {before})"
            return f"{name} {told}, with all below{direct}"
        case CauseKind.SPLIT:
            return f"{name}: net, part of its code moved into {pieces}"
        case CauseKind.INLINED:
            return f"{name}: net, {pieces} became part of it"
        case CauseKind.RENAMED:
            same = all(akin(cause.function, old) for old in cause.into)
            return f"{name}, {'which was' if same else 'in the place of'} {pieces}: its own code"
        case CauseKind.CHANGED:
            return f"{name}: its own code, {called}"
        case CauseKind.MOVED:
            told = f"called in {caller}" if caller else "called from elsewhere"
            no_longer = f"no longer in {pieces}" if pieces else "no longer where it was"
            return f"{name} is {told}, {no_longer}, with all below"
        case CauseKind.TOGETHER:
            return f"{name} and what it calls, {called}: {_parts(cause, scale)}"


def _parts(cause: Cause, scale: Scale) -> str:
    told = []
    for part in cause.parts[:_PARTS]:
        own = part.function == cause.function
        name = "its own code" if own else short(part.function, _NAME_WIDTH)
        notes = {CauseKind.NEW: " (new)", CauseKind.VANISHED: " (gone)"}
        told.append(f"{name} {scale.signed(part.delta)}{notes.get(part.kind, '')}")
    more = cause.parts[_PARTS:]
    rest = f" and {len(more)} more {scale.signed(sum(one.delta for one in more))}" if more else ""
    return ", ".join(told) + rest


def branches(root: Branch, causes: Sequence[Cause]) -> list[tuple[int, Branch, Sequence[str]]]:
    """(depth, branch, functions above it that only pass the difference on), where it lies."""
    most = max((abs(cause.delta) for cause in causes), default=0)
    return [*_branches(root, max(abs(root.delta), most))]


def _tree(root: Branch, causes: Sequence[Cause], scale: Scale) -> Iterator[Line]:
    found = branches(root, causes)
    rows = found[:_BRANCHES]
    columns = (
        Column("delta", [scale.signed(branch.delta) for _, branch, _ in rows]),
        Column("own", [scale.signed(branch.own_new - branch.own_old) for _, branch, _ in rows]),
        Column("calls", [called(branch, scale) for _, branch, _ in rows]),
        Column("path", [path_to(*row) for row in rows], right=False),
    )
    yield from table_lines(columns)
    if len(found) > len(rows):
        told = f"and {len(found) - len(rows)} more branches; --json has all of them"
        yield from paragraph(told, Tone.FAINT)


def called(branch: Branch, scale: Scale) -> str:
    """How often, old and new where they differ."""
    old, new = scale.calls(branch.calls_old), scale.calls(branch.calls_new)
    return new if old == new else f"{old} -> {new}"


def path_to(depth: int, branch: Branch, above: Sequence[str]) -> str:
    """A branch's line of the tree."""
    indent = "  " * min(depth, _DEEPEST)
    hidden = f"... {len(above)} above > " if above else ""
    note = f"  ({branch.note})" if branch.note else ""
    return f"{indent}{hidden}{short(branch.function, _NAME_WIDTH)}{note}"


def _branches(root: Branch, whole: int) -> Iterator[tuple[int, Branch, Sequence[str]]]:
    """Those of branches; whole: what a share is of."""
    least = max(1.0, _SMALL * abs(whole))
    waiting: list[tuple[int, Branch, tuple[str, ...]]] = [
        (0, child, ()) for child in reversed(root.children) if abs(child.delta) >= least
    ]
    while waiting:
        depth, branch, above = waiting.pop()
        large = [child for child in branch.children if abs(child.delta) >= least]
        own = branch.own_new - branch.own_old
        if len(large) == 1 and abs(own) < least and not branch.note:
            waiting.append((depth, large[0], (*above, branch.function)))
            continue
        yield depth, branch, above
        waiting += [(depth + 1, child, ()) for child in reversed(large)]


def document(found: CallExplanation) -> tuple[str, dict[str, Any]]:
    """See formats.View: the explanation's head, every cause, and the tree where it differs."""
    explanation, difference = found.explanation, found.difference
    names = ("run_id", "workload", "scenario", "phase", "old", "new", "operation", "operations")
    return "calls", picked(
        explanation,
        (*names, "refused", "old_value", "new_value", "delta", "causes", "tree"),
        causes=[
            {field.name: getattr(cause, field.name) for field in fields(cause)}
            | {"delta": cause.delta}
            for cause in (difference.causes if difference else ())
        ],
        tree=[
            {"depth": depth, **_flat(branch)}
            for depth, branch in (_walked(difference.root) if difference else ())
        ],
    )


def _flat(branch: Branch) -> dict[str, Any]:
    names = [field.name for field in fields(branch) if field.name != "children"]
    return picked(branch, names)


def _walked(root: Branch) -> Iterator[tuple[int, Branch]]:
    waiting = [(0, root)]
    while waiting:
        depth, branch = waiting.pop()
        yield depth, branch
        waiting += [(depth + 1, child) for child in reversed(branch.children)]


def table(found: CallExplanation) -> tuple[Sequence[str], list[tuple[Cell, ...]]]:
    """One row for each cause."""
    head = ("kind", "function", "caller", "into", "old", "new", "delta", "calls_old", "calls_new")
    return head, [
        (
            cause.kind, cause.function, cause.caller, " ".join(cause.into),
            cause.old, cause.new, cause.delta, cause.calls_old, cause.calls_new,
        )
        for cause in (found.difference.causes if found.difference else ())
    ]  # fmt: skip
