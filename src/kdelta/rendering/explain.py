# SPDX-License-Identifier: GPL-2.0-or-later
"""What `kdelta explain` prints: functions, call paths, kinds of work, code; as text, JSON, CSV."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from difflib import SequenceMatcher
from typing import Any

from kdelta.analysis.calls import Branch, CallDifference, CallExplanation, Cause, CauseKind
from kdelta.analysis.explanation import Explanation, FunctionDelta, Presence, Rest, StringBytes
from kdelta.analysis.resemblance import akin
from kdelta.analysis.work import KindDelta, ValueDelta, WorkExplanation
from kdelta.disassembly.objdump import ExecutedInsn
from kdelta.errors import SpecError
from kdelta.metric import decimals, number, plural
from kdelta.rendering.formats import COUNTED, Cell, View, picked
from kdelta.sample import TOTAL
from kdelta.table.columns import (
    ABSENT,
    VERDICT_TONES,
    Column,
    Line,
    Span,
    Tone,
    builds_apart,
    paragraph,
    short,
    table_lines,
)
from kdelta.verdict.comparison import Verdict

PATH_LENGTH = "This is path length. Whether it costs time is for a timing run on real hardware."
_NAME_WIDTH = 40
_OPTION_FUNCTIONS = 6  # of the code of options, by name
_BYTES = "bytes by string instructions"
# Of an explanation, which windows it is of.
_WINDOWS = ("run_id", "workload", "scenario", "phase", "old", "new", "operation", "operations")
_HEAD = (
    "run", "workload", "scenario", "phase", "old_arm", "new_arm", "verdict", "grade", "function",
    "status", "operation", "operations", "old", "new", "delta", "old_per_operation",
    "new_per_operation", "delta_per_operation", "share_percent", "calls_old", "calls_new",
    "reasons",
)  # fmt: skip


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
        return self.fixed(count) if count else "0"

    def fixed(self, count: int) -> str:
        """A count, none with the decimals of the others."""
        return f"{count / self.operations:.{self.places}f}"

    def each(self, count: int) -> str:
        """A count, or a number of calls, of which less than one per operation may be told."""
        return _short(count / self.operations)

    def signed(self, count: int) -> str:
        """A change."""
        return f"{count / self.operations:+.{self.places}f}" if count else "0"

    def times(self, count: int) -> str:
        """The same in words: once for many operations is told as that."""
        each = count / self.operations
        if 0 < each < _SELDOM:
            return f"once in {1 / each:.0f}"
        told = _short(each)
        return "once" if told == "1" else f"{told} times"


def _short(each: float) -> str:
    return f"{each:.0f}" if abs(each) >= 1000 else f"{each:.3g}"


def opening(explanation: Explanation, sentences: Sequence[str] = ()) -> list[Line]:
    """What is compared, the verdict on it, and the difference in a few sentences."""
    lines = list(paragraph(_heading(explanation), Tone.BOLD))
    for told in explanation.debugging:
        lines += paragraph(told, Tone.BAD)
    per = f"per {explanation.operation}" if explanation.operation else "per operation"
    lines += paragraph(
        f"instructions retired by the guest, user + kernel, {per}; path length, never a time"
    )
    comparison = explanation.comparison
    claim = f"{comparison.verdict} ({comparison.grade}): {'; '.join(comparison.reasons)}"
    lines += [(), *paragraph(claim, VERDICT_TONES[comparison.verdict])]
    if comparison.differences:
        told = builds_apart(explanation.old, explanation.new, comparison)
        lines += paragraph(told, Tone.WARN)
    for copy in explanation.copies:
        lines += paragraph(copy, Tone.FAINT)
    if comparison.verdict is Verdict.INVALID and not explanation.refused:
        lines += paragraph("shown by --force: INVALID, no claim rests on this table", Tone.BAD)
    if sentences:
        lines += [(), *paragraph(" ".join(sentences))]
    return lines


def show(explanation: Explanation, *, sentences: Sequence[str] = ()) -> list[Line]:
    """What `kdelta explain` prints; sentences: with which it begins."""
    lines = opening(explanation, sentences)
    if explanation.refused:
        return [*lines, *refusal(explanation)]
    if not sentences:
        lines += paragraph(sentence(explanation))
        for told in option_sentences(explanation):
            lines += paragraph(told, Tone.BOLD)
    lines += [(), *_functions(explanation), ()]
    names = (row.function for row in explanation.functions)
    lines += paragraph(renamed(explanation, names), Tone.FAINT)
    for name, clones in explanation.folded:
        lines += paragraph(f"{name}: includes {', '.join(clones)}", Tone.FAINT)
    return [*lines, *paragraph(PATH_LENGTH)]


def option_sentences(found: Explanation) -> list[str]:
    """How much of the difference is the code of options, at least, and in which functions."""
    scale, told = Scale.of(found), []
    for own in found.options:
        listed = [f"{short(name, _NAME_WIDTH)} {scale.plain(abs(n))}" for name, n in own.functions]
        others = f" and {plural(len(listed) - _OPTION_FUNCTIONS, 'other')}"
        told.append(
            f"At least {scale.signed(own.delta).lstrip('+')} of {scale.signed(found.delta or 0)}"
            f" are {own.called} ({', '.join(own.options)}):"
            f" {', '.join(listed[:_OPTION_FUNCTIONS])}"
            f"{others if len(listed) > _OPTION_FUNCTIONS else ''}."
            " What else they cost, in registers and loads, is not seen."
        )
    return told


def more(delta: float) -> str:
    """A difference in words: "368.1 more", "22.0 fewer", "as many"."""
    if not delta:
        return "as many"
    return f"{number(abs(delta))} {'more' if delta > 0 else 'fewer'}"


def renamed(explanation: Explanation, listed: Iterable[str]) -> str:
    """Which two of the listed functions are taken for one; "" where none are."""
    names = set(listed)
    parts = [
        f"{short(row.function, _NAME_WIDTH)} was {short(row.was, _NAME_WIDTH)}"
        f" ({more(row.delta / explanation.operations)})"
        for row in explanation.renamed
        if {row.function, row.was} & names
    ]
    return f"Taken for one, by name and number of calls: {', '.join(parts)}." if parts else ""


def refusal(explanation: Explanation) -> Iterator[Line]:
    """Why nothing is ranked."""
    if explanation.comparison.verdict is Verdict.INVALID:
        yield from paragraph("No function is ranked; --force ranks them, marked INVALID.")
    else:
        yield from paragraph("There is nothing to rank.")


def _heading(explanation: Explanation) -> str:
    phase = "all phases" if explanation.phase == TOTAL else f"phase {explanation.phase}"
    return (
        f"{explanation.workload}:{explanation.scenario}, {phase}:"
        f" {explanation.old} -> {explanation.new} (run {explanation.run_id})"
    )


def sentence(explanation: Explanation) -> str:
    """The difference in one sentence of words, functions with their change per operation."""
    if explanation.delta is None or explanation.old_value is None or explanation.new_value is None:
        return "Nothing can be said of the functions."
    old, new = (
        number(value / explanation.operations)
        for value in (explanation.old_value, explanation.new_value)
    )
    signed = Scale.of(explanation).signed(explanation.delta)
    change = f"{old} -> {new} instructions per {explanation.operation} ({signed})"
    if not explanation.delta:
        return f"{change}: the totals are equal."
    parts = [
        f"{', '.join(_named(row, explanation) for row in rows)} {direction}"
        for rows, direction in ((explanation.rising, "up"), (explanation.falling, "down"))
        if rows
    ]
    return f"{change}: {'; '.join(parts) or 'no function stands out'}."


def _named(row: FunctionDelta, explanation: Explanation) -> str:
    of_what = " of the difference" if row in (*explanation.rising, *explanation.falling)[:1] else ""
    share = f", {row.share:.0f} %{of_what}" if row.share is not None else ""
    return f"{called(row)} ({Scale.of(explanation).signed(row.delta)}{share})"


def called(row: FunctionDelta) -> str:
    """A function in a sentence: its name, and what it was called before."""
    before = f" (before: {short(row.was, _NAME_WIDTH)})" if row.was else ""
    return f"{short(row.function, _NAME_WIDTH)}{before}"


def _functions(explanation: Explanation) -> Iterator[Line]:
    """The ranking, then a row for the functions not listed, then the sum; last what is no count."""
    rows: list[FunctionDelta | Rest] = list(explanation.functions)
    rest = explanation.rest
    if rest and rest.count:
        rows.append(rest)
    total = explanation.delta or 0
    rows.append(
        Rest(
            count=0,
            old=explanation.old_value or 0,
            new=explanation.new_value or 0,
            delta=sum(row.delta for row in rows),
            share=100 * sum(row.delta for row in rows) / total if total else None,
        )
    )
    table = [_function_cells(row, explanation) for row in rows]
    if explanation.strings:
        table.append(_string_cells(explanation.strings, Scale.of(explanation)))
    heads = ("function", "old", "new", "delta", "share %", "calls old", "calls new", "status")
    columns = [
        Column(head, cells, right=0 < at < len(heads) - 1)
        for at, (head, cells) in enumerate(zip(heads, zip(*table, strict=True), strict=True))
    ]
    yield from table_lines(columns)


def _function_cells(row: FunctionDelta | Rest, explanation: Explanation) -> tuple[Span, ...]:
    if isinstance(row, Rest):
        name = f"other {row.count} functions" if row.count else "sum"
        tone, calls, status = Tone.BOLD, (ABSENT, ABSENT), ""
    else:
        name, status = short(row.function, _NAME_WIDTH), row.status
        tone = Tone.WARN if row.status is not Presence.BOTH else Tone.PLAIN
        calls = (_calls(row.calls_old, explanation), _calls(row.calls_new, explanation))
    scale = Scale.of(explanation)
    values = (ABSENT if count is None else scale.fixed(count) for count in (row.old, row.new))
    share = ABSENT if row.share is None else f"{row.share:.1f}"
    cells = (name, *values, scale.signed(row.delta), share, *calls, status)
    return tuple(Span(cell, tone) for cell in cells)


def _string_cells(strings: StringBytes, scale: Scale) -> tuple[Span, ...]:
    """Bytes beside the instructions: their share is of nothing, and nothing calls them."""
    values = (scale.fixed(strings.old), scale.fixed(strings.new), scale.signed(strings.delta))
    return tuple(Span(cell, Tone.FAINT) for cell in (_BYTES, *values, *(ABSENT,) * 3, ""))


def _calls(calls: int | None, explanation: Explanation) -> str:
    if calls is None:
        return ABSENT
    per_operation = calls / explanation.operations
    if 0 < per_operation < 0.0005:
        return "<0.001"
    return f"{per_operation:.3f}" if per_operation < 1000 else f"{per_operation:.0f}"


def document(explanation: Explanation) -> tuple[str, dict[str, Any]]:
    """See formats.View: every field of Explanation and what it holds."""
    names = [field.name for field in fields(explanation)]
    comparison = picked(explanation.comparison, COUNTED)
    return "explain", picked(explanation, names, comparison=comparison)


def table(explanation: Explanation) -> tuple[Sequence[str], list[tuple[Cell, ...]]]:
    """One row for each function, the others and the sum last, and bytes by string instructions.

    A refused comparison is one row with its verdict and reasons and no function.
    """
    if explanation.refused:
        return _HEAD, [_row(explanation, "", "", (None,) * 4, (None,) * 2)]
    rows = [
        _row(
            explanation,
            row.function,
            row.status,
            (row.old, row.new, row.delta, row.share),
            (row.calls_old, row.calls_new),
        )
        for row in explanation.functions
    ]
    rest = explanation.rest
    if rest and rest.count:
        others = (rest.old, rest.new, rest.delta, rest.share)
        name = f"[other {rest.count} functions]"
        rows.append(_row(explanation, name, "", others, (None, None)))
    share = 100.0 if explanation.delta else None
    sums = (explanation.old_value, explanation.new_value, explanation.delta, share)
    rows.append(_row(explanation, "[sum]", "", sums, (None, None)))
    if strings := explanation.strings:
        counts = (strings.old, strings.new, strings.delta, None)
        rows.append(_row(explanation, f"[{_BYTES}]", "", counts, (None, None)))
    return _HEAD, rows


def _row(
    explanation: Explanation,
    function: str,
    status: str,
    counts: tuple[int | None, int | None, int | None, float | None],
    calls: tuple[int | None, int | None],
) -> tuple[Cell, ...]:
    own, scale = explanation, explanation.operations
    *totals, share = counts
    return (
        own.run_id, own.workload, own.scenario, own.phase, own.old, own.new,
        own.comparison.verdict, own.comparison.grade, function, status, own.operation, scale,
        *totals, *(None if count is None else count / scale for count in totals), share,
        *calls, "; ".join(own.comparison.reasons),
    )  # fmt: skip


_CAUSES = 8  # causes in the text; JSON and CSV have all
_TELLING = 0.005  # share of the difference from which a cause has a line
_SMALL = 0.02  # share of the difference below which a branch of the tree is left out
_CALLED_WIDTH = 48
_PIECES = 2  # functions that code moved into, by name
_PARTS = 4  # what a function calls, told with it
_BRANCHES = 14  # lines of the tree in the text
_SELDOM = 0.1  # calls per operation below which it is told for how many there is one
_DEEPEST = 24  # levels of the tree that are indented


def show_calls(found: CallExplanation, *, sentences: Sequence[str] = ()) -> list[Line]:
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
    lines += [(), *paragraph(claim, Tone.BOLD), *_cause_lines(difference, scale), ()]
    lines += _tree(difference.root, difference.causes, scale)
    return [*lines, (), *paragraph(PATH_LENGTH)]


def _cause_lines(difference: CallDifference, scale: Scale) -> Iterator[Line]:
    whole = difference.root.delta
    listed = telling(difference)
    others = difference.causes[len(listed) :]
    rows = [(cause.delta, cause_sentence(cause, scale), Tone.PLAIN) for cause in listed]
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
    return (large or difference.causes)[:_CAUSES]


def _share(delta: int, whole: int) -> str:
    return f"{round(100 * delta / whole)} %" if whole else "-"


def cause_sentence(cause: Cause, scale: Scale) -> str:
    """One cause in words."""
    name = short(cause.function, _CALLED_WIDTH)
    pieces = ", ".join(short(piece, _CALLED_WIDTH) for piece in cause.into[:_PIECES])
    pieces += f" and {len(cause.into) - _PIECES} more" if len(cause.into) > _PIECES else ""
    verb = "is" if len(cause.into) == 1 else "are"
    caller = short(cause.caller, _CALLED_WIDTH)
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
        name = "its own code" if own else short(part.function, _CALLED_WIDTH)
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
        Column("calls", [calls_of(branch, scale) for _, branch, _ in rows]),
        Column("path", [path_to(*row) for row in rows], right=False),
    )
    yield from table_lines(columns)
    if len(found) > len(rows):
        told = f"and {len(found) - len(rows)} more branches; --json has all of them"
        yield from paragraph(told, Tone.FAINT)


def calls_of(branch: Branch, scale: Scale) -> str:
    """How often, old and new where they differ."""
    old, new = scale.each(branch.calls_old), scale.each(branch.calls_new)
    return new if old == new else f"{old} -> {new}"


def path_to(depth: int, branch: Branch, above: Sequence[str]) -> str:
    """A branch's line of the tree."""
    indent = "  " * min(depth, _DEEPEST)
    hidden = f"... {len(above)} above > " if above else ""
    note = f"  ({branch.note})" if branch.note else ""
    return f"{indent}{hidden}{short(branch.function, _CALLED_WIDTH)}{note}"


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


def calls_document(found: CallExplanation) -> tuple[str, dict[str, Any]]:
    """See formats.View: the explanation's head, every cause, and the tree where it differs."""
    explanation, difference = found.explanation, found.difference
    return "calls", picked(
        explanation,
        (*_WINDOWS, "refused", "old_value", "new_value", "delta", "causes", "tree"),
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


def calls_table(found: CallExplanation) -> tuple[Sequence[str], list[tuple[Cell, ...]]]:
    """One row for each cause."""
    head = ("kind", "function", "caller", "into", "old", "new", "delta", "calls_old", "calls_new")
    return head, [
        (
            cause.kind, cause.function, cause.caller, " ".join(cause.into),
            cause.old, cause.new, cause.delta, cause.calls_old, cause.calls_new,
        )
        for cause in (found.difference.causes if found.difference else ())
    ]  # fmt: skip


WORK, MEMORY, VALUES = "work", "memory", "values"
_KIND_WIDTH = 32
_VALUES_LISTED = 24  # values of a histogram in the text
_WORK_HEAD = ("group", "kind", "old", "new", "delta", "where")
_NO_MODEL = (
    "Lines and pages are what was asked for; whether a cache had them is for a run on hardware."
)
KINDS = {
    "load": "loads",
    "store": "stores",
    "atomic": "locked or LSE atomics",
    "fence": "fences",
    "serialising": "serialising instructions",
    "tlb": "TLB maintenance",
    "control": "control-register writes",
    "indirect": "indirect branches",
    "division": "divisions",
    "string": "string instructions",
}


@dataclass(frozen=True, slots=True)
class WorkPart:
    """One part of what was found.  part: WORK, MEMORY or VALUES."""

    found: WorkExplanation
    part: str

    @property
    def rows(self) -> tuple[KindDelta, ...]:
        """Its rows.  Raises SpecError where they were not recorded."""
        if self.part == WORK:
            return self.found.work
        if self.found.memory is None:
            raise SpecError(
                "the run did not record which memory is touched",
                action="count again with: kdelta run ... --probe memory",
            )
        return self.found.memory


def show_work(told: WorkPart) -> list[Line]:
    """The part as text."""
    explanation = told.found.explanation
    lines = opening(explanation)
    if explanation.refused:
        return [*lines, *refusal(explanation)]
    scale = Scale.of(explanation)
    if told.part == VALUES:
        return [*lines, *_histograms(told.found.values)]
    groups = dict.fromkeys(row.group for row in told.rows)
    for group in groups:
        lines += [(), *_kinds(group, [row for row in told.rows if row.group == group], scale)]
    per = explanation.operation or "operation"
    lines += [(), *paragraph(f"Per {per}; exact counts of one window. {PATH_LENGTH}")]
    return [*lines, *paragraph(_NO_MODEL)] if told.part == MEMORY else lines


def kind_named(row: KindDelta) -> str:
    """A kind in words."""
    return KINDS.get(row.kind, row.kind)


def _kinds(group: str, rows: Sequence[KindDelta], scale: Scale) -> Iterator[Line]:
    shown = [row for row in rows if row.old or row.new]
    absent = [kind_named(row) for row in rows if not (row.old or row.new)]
    if shown:
        tones = [Tone.PLAIN if row.delta else Tone.FAINT for row in shown]
        texts = (
            (group, [kind_named(row) for row in shown], False),
            ("old", [scale.plain(row.old) for row in shown], True),
            ("new", [scale.plain(row.new) for row in shown], True),
            ("delta", [scale.signed(row.delta) for row in shown], True),
            ("mostly in", [mostly_in(row, scale) for row in shown], False),
        )
        yield from table_lines(
            [Column(head, map(Span, cells, tones), right=right) for head, cells, right in texts]
        )
    if absent:
        yield from paragraph(f"None of either: {', '.join(absent)}.", Tone.FAINT)


def mostly_in(row: KindDelta, scale: Scale) -> str:
    """The functions of a kind's change."""
    told = [(short(name, _KIND_WIDTH), scale.signed(change)) for name, change in row.where[:2]]
    return ", ".join(f"{name} {change}" for name, change in told if change.strip("+-0."))


def _histograms(values: Sequence[ValueDelta]) -> Iterator[Line]:
    if not values:
        raise SpecError(
            "the run read no values of functions",
            action="count again with, for example: kdelta run ... --probe 'FUNCTION(NAME=arg1)'",
        )
    for value in values:
        yield ()
        yield from paragraph(f"{value.probe}: how often each value, per window", Tone.BOLD)
        sides = [side for side in (value.old, value.new) if side]
        for name, side in (("old", value.old), ("new", value.new)):
            if side and side.missing:
                yield from paragraph(f"{name}: {side.missing}")
            elif side and not side.values:
                yield from paragraph(f"{name}: it was not called, or returned by a jump")
        keys = sorted(
            dict.fromkeys(key for side in sides for key in side.values),
            key=lambda key: -max(side.values.get(key, 0) for side in sides),
        )
        if not keys:
            continue
        listed = sorted(keys[:_VALUES_LISTED], key=int)
        yield from table_lines(
            [
                Column("value", listed, right=True),
                *(
                    Column(name, [_value_count(side, key) for key in listed], right=True)
                    for name, side in (("old", value.old), ("new", value.new))
                ),
            ]
        )
        others = len(keys) - len(listed) + max(side.others for side in sides)
        if others:
            yield from paragraph(f"and {others} other values", Tone.FAINT)


def _value_count(side: Any, key: str) -> str:
    return f"{side.values.get(key, 0):,}" if side and not side.missing else "-"


def work_document(told: WorkPart) -> tuple[str, dict[str, Any]]:
    """See formats.View."""
    explanation = told.found.explanation
    if told.part == VALUES:
        return VALUES, picked(explanation, (*_WINDOWS, "values"), values=told.found.values)
    rows = [
        picked(row, _WORK_HEAD, where=[{"function": name, "delta": n} for name, n in row.where])
        for row in (() if explanation.refused else told.rows)
    ]
    return told.part, picked(explanation, (*_WINDOWS, "refused", "rows"), rows=rows)


def work_table(told: WorkPart) -> tuple[Sequence[str], list[tuple[Cell, ...]]]:
    """One row for each kind, or for each value."""
    if told.part == VALUES:
        return ("probe", "value", "old", "new"), [
            (value.probe, key, *(side.values.get(key, 0) if side else None for side in sides))
            for value in told.found.values
            for sides in [(value.old, value.new)]
            for key in dict.fromkeys(key for side in sides if side for key in side.values)
        ]
    rows = () if told.found.explanation.refused else told.rows
    return _WORK_HEAD, [
        (row.group, row.kind, row.old, row.new, row.delta, " ".join(name for name, _ in row.where))
        for row in rows
    ]


_TEXT_WIDTH = 30
_ADDRESSES = re.compile(r"\+?0x[0-9a-f]+|\b[0-9a-f]{6,}\b")
InsnPair = tuple[ExecutedInsn | None, ExecutedInsn | None]


@dataclass(frozen=True, slots=True)
class ExecutedCode:
    """What ran of a function in an explanation's windows."""

    explanation: Explanation
    function: str
    old: tuple[ExecutedInsn, ...]
    new: tuple[ExecutedInsn, ...]

    def pairs(self) -> Iterator[InsnPair]:
        """Old and new in order; instructions that differ in addresses alone are side by side."""
        was, now = ([_ADDRESSES.sub("", one.text) for one in side] for side in (self.old, self.new))
        matcher = SequenceMatcher(None, was, now, autojunk=False)
        for tag, a, b, c, d in matcher.get_opcodes():
            if tag == "equal":
                yield from zip(self.old[a:b], self.new[c:d], strict=True)
            else:
                yield from ((one, None) for one in self.old[a:b])
                yield from ((None, one) for one in self.new[c:d])


def show_code(found: ExecutedCode) -> list[Line]:
    """The listing as text."""
    lines = opening(found.explanation)
    if found.explanation.refused:
        return [*lines, *refusal(found.explanation)]
    scale = Scale.of(found.explanation)
    totals = [sum(one.count for one in side) for side in (found.old, found.new)]
    claim = f"{found.function}: {scale.plain(totals[0])} -> {scale.plain(totals[1])} instructions"
    pairs = [*found.pairs()]
    tones = [_row_tone(*pair) for pair in pairs]
    columns = []
    for name, side in (("old", 0), ("new", 1)):
        own = [pair[side] for pair in pairs]
        told = (
            (name, [scale.each(one.count) if one else "" for one in own], True),
            ("at", [f"+{one.offset:#x}" if one else "" for one in own], True),
            ("executed", [short(one.text, _TEXT_WIDTH) if one else "" for one in own], False),
        )
        columns += [
            Column(head, map(Span, cells, tones), right=right) for head, cells, right in told
        ]
    per = found.explanation.operation or "operation"
    lines += [(), *paragraph(f"{claim} per {per}", Tone.BOLD), *table_lines(columns)]
    return [*lines, (), *paragraph(f"How often each instruction retires per {per}. {PATH_LENGTH}")]


def _row_tone(old: ExecutedInsn | None, new: ExecutedInsn | None) -> Tone:
    if old and new:
        return Tone.FAINT if old.count == new.count else Tone.PLAIN
    return Tone.BAD if new else Tone.GOOD


def code_document(found: ExecutedCode) -> tuple[str, dict[str, Any]]:
    """See formats.View."""
    sides = {
        f"{name}_code": [
            picked(one, ("offset", "size", "count", "text")) for one in getattr(found, name)
        ]
        for name in ("old", "new")
    }
    head = picked(found.explanation, _WINDOWS)
    return "code", {**head, "function": found.function, **sides}


def code_table(found: ExecutedCode) -> tuple[Sequence[str], list[tuple[Cell, ...]]]:
    """A row for each line of the listing."""
    names = ("count", "offset", "text")
    head = tuple(f"{side}_{name}" for side in ("old", "new") for name in names)
    return head, [
        tuple(getattr(one, name) if one else None for one in pair for name in names)
        for pair in found.pairs()
    ]


CALLS_VIEW = View(show=show_calls, document=calls_document, table=calls_table)
WORK_VIEW = View(show=show_work, document=work_document, table=work_table)
CODE_VIEW = View(show=show_code, document=code_document, table=code_table)
