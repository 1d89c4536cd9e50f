# SPDX-License-Identifier: GPL-2.0-or-later
"""What `kdelta explain` and `coverage` print: functions, paths, kinds of work, code, pictures."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from difflib import SequenceMatcher
from operator import itemgetter
from typing import Any, Self

from kdelta.analysis.calls import (
    DEEPER,
    DEEPEST,
    Branch,
    CallDifference,
    CallExplanation,
    Cause,
    CauseKind,
    walked,
)
from kdelta.analysis.explanation import Coverage, Explanation, FunctionDelta, Presence, akin
from kdelta.analysis.work import FieldPair, KindDelta, ValueDelta, WorkExplanation, objects_moved
from kdelta.disassembly.code import ExecutedInsn
from kdelta.errors import SpecError
from kdelta.ladder.ladders import LadderStep
from kdelta.metric import decimals, number, plural
from kdelta.printable import few, printable, told_name
from kdelta.probes.calls import PathNode
from kdelta.rendering.formats import COUNTED, Cell, View, asset, picked, template
from kdelta.sample import TOTAL
from kdelta.table import counts
from kdelta.table.columns import (
    ABSENT,
    VERDICT_TONES,
    Column,
    Line,
    Span,
    Tone,
    builds_apart,
    crossed_by,
    first_that_fits,
    paragraph,
    short,
    table_of,
)
from kdelta.verdict.comparison import Verdict

PATH_LENGTH = "This is path length. Whether it costs time is for a timing run on real hardware."
_LEGEND = "x without: new/old of all, if the function cost nothing on both kernels."
_NAME_WIDTH = 40
_OPTION_FUNCTIONS = 6  # of the code of options, by name
_FIRST = 2  # sentences: how much, and by which functions
_BYTES = "bytes by string instructions"
# Of an explanation, which windows it is of.
_WINDOWS = ("run_id", "workload", "scenario", "phase", "old", "new", "operation", "operations")
_HEAD = (
    "run", "workload", "scenario", "phase", "old_arm", "new_arm", "verdict", "grade", "function",
    "status", "operation", "operations", "old", "new", "delta", "old_per_operation",
    "new_per_operation", "delta_per_operation", "share_percent", "ratio_without", "calls_old",
    "calls_new", "reasons",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scale:
    """How counts of one explanation are written: per operation, all in the same decimals."""

    operations: int
    places: int

    @property
    def least(self) -> float:
        """The count from which one is not printed as zero."""
        return 0.5 * 10.0**-self.places * self.operations

    @classmethod
    def of(cls, explanation: Explanation) -> Self:
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
        """The same in words: once for many operations is written as that."""
        each = count / self.operations
        if 0 < each < _SELDOM:
            return f"once in {1 / each:.0f}"
        told = _short(each)
        return "once" if told == "1" else f"{told} times"


def _short(each: float) -> str:
    return f"{each:.0f}" if abs(each) >= 1000 else f"{each:.3g}"


def _opening(found: Explanation, sentences: Sequence[str] = ()) -> list[Line]:
    phase = "" if found.phase == TOTAL else f", phase {found.phase}"
    comparison, name = found.comparison, told_name(found.workload, found.scenario)
    claim = f"{name}{phase}: {comparison.verdict} from {found.old} to {found.new}"
    reasons = f"{comparison.grade}: {'; '.join(comparison.reasons)}"
    invalid, tone = comparison.verdict is Verdict.INVALID, VERDICT_TONES[comparison.verdict]
    if invalid or not sentences:  # no claim is before its reasons
        lines = [*paragraph(f"{claim}, {reasons}", tone)]
    else:
        how = crossed_by([comparison]) if comparison.verdict is Verdict.UNDECIDED else ""
        (net, *why), sentences = sentences[:_FIRST], sentences[_FIRST:]
        told = " ".join((f"{net[:1].lower()}{net[1:]}", *why))
        lines = [*paragraph(f"{claim}{f', built {how}' * bool(how)}: {told}", tone)]
        lines += paragraph(f"{reasons}.")
    for warned in found.debugging:
        lines += paragraph(warned, Tone.BAD)
    if comparison.failing:
        lines += paragraph(comparison.failing, Tone.BAD)
    if comparison.differences:
        lines += paragraph(builds_apart(found.old, found.new, comparison), Tone.WARN)
    for copy in found.copies:
        lines += paragraph(copy, Tone.FAINT)
    if invalid and not found.refused:
        lines += paragraph("shown by --force: INVALID, no claim rests on this table", Tone.BAD)
    if sentences:
        lines += [(), *paragraph(" ".join(sentences))]
    if found.refused:
        forced = "No function is ranked; --force ranks them, marked INVALID."
        lines += paragraph(forced if invalid else "There is nothing to rank.")
    return lines


def show(explanation: Explanation, sentences: Sequence[str], *, details: bool = True) -> list[Line]:
    """What `kdelta explain` prints; sentences: with which it begins.  details: legends."""
    lines = _opening(explanation, sentences)
    if explanation.refused:
        return lines
    unit = (
        "instructions retired by the guest, user + kernel, per"
        f" {explanation.operation or 'operation'}; path length, never a time"
    )
    lines += [(), *paragraph(f"{unit}; run {explanation.run_id}")]
    lines += [*_functions(explanation), ()]
    lines += paragraph(renamed(explanation.functions), Tone.FAINT)
    if not details:
        return lines
    lines += paragraph(_LEGEND, Tone.FAINT)
    for name, clones in explanation.folded:
        lines += paragraph(f"{name}: includes {', '.join(clones)}", Tone.FAINT)
    return lines


def option_sentences(found: Explanation) -> list[str]:
    """How much of the difference is the code of options, at least, and in which functions."""
    scale, told = Scale.of(found), []
    for own in found.options:
        listed = [f"{short(name, _NAME_WIDTH)} {scale.plain(abs(n))}" for name, n in own.functions]
        size, whole = scale.signed(own.delta), scale.signed(found.delta or 0)
        part = f"At least {size.lstrip('+')} of {whole} are"
        if own.delta * (found.delta or 0) <= 0:
            part = f"In the {whole} are, the other way, at least {size} of"
        told.append(
            f"{part} {own.called} ({', '.join(own.options)}):"
            f" {few(listed, _OPTION_FUNCTIONS)}."
            " What else they cost, in registers and loads, is not seen."
        )
    return told


def more(delta: float) -> str:
    """A difference in words: "368.1 more", "22.0 fewer"."""
    return f"{number(abs(delta))} {'more' if delta > 0 else 'fewer'}"


def renamed(listed: Iterable[FunctionDelta]) -> str:
    """Which two functions stand in one row; "" where none do."""
    rows = [row for row in listed if row.was]
    parts = [
        f"{short(row.function, _NAME_WIDTH)} was {short(row.was, _NAME_WIDTH)}" for row in rows
    ]
    return f"Renamed, by name and number of calls: {', '.join(parts)}." if parts else ""


def has_shares(own: Explanation) -> bool:
    """Whether the sum is more than a rest of rows that cancel, whose shares would say nothing."""
    return all(row.share is not None and abs(row.share) <= _CANCELS for row in own.functions)


def called(row: FunctionDelta) -> str:
    """A function in a sentence: its name, and what it was called before."""
    before = f" (before: {short(row.was, _NAME_WIDTH)})" if row.was else ""
    return f"{short(row.function, _NAME_WIDTH)}{before}"


# Of a row name, status, counts with the share and the ratio without it, and calls; no status: what
# is no function.
_Row = tuple[
    str,
    str | None,
    tuple[int | None, int | None, int | None, float | None, float | None],
    tuple[int | None, int | None],
]


def _ranking(own: Explanation) -> Iterator[_Row]:
    """The functions, then those not listed as one, then the sum; last bytes, which are no count."""
    for row in own.functions:
        counts = (row.old, row.new, row.delta, row.share, own.without(row))
        status = "renamed" if row.was else row.status
        yield row.function, status, counts, (row.calls_old, row.calls_new)
    none = (None, None)
    if (rest := own.rest) and rest.count:
        counts = (rest.old, rest.new, rest.delta, rest.share, own.without(rest))
        yield f"other {rest.count} functions", None, counts, none
    share = 100.0 if own.delta else None
    yield "sum", None, (own.old_value, own.new_value, own.delta, share, None), none
    if strings := own.strings:
        yield _BYTES, None, (strings.old, strings.new, strings.delta, None, None), none


def function_cells(own: Explanation) -> Iterator[tuple[str, str | None, int, Sequence[str]]]:
    """Of each row name, status and difference, and the cells that stand between name and status."""
    scale = Scale.of(own)
    for name, status, (old, new, delta, _, without), calls in _ranking(own):
        if name != _BYTES or max(old or 0, new or 0) >= scale.least:
            both = (ABSENT if n is None and status else scale.fixed(n or 0) for n in (old, new))
            often = (ABSENT if each is None else scale.each(each) for each in calls)
            size = scale.signed(delta or 0)
            yield name, status, delta or 0, (*both, size, counts.times(without), *often)


def _functions(own: Explanation) -> Iterator[Line]:
    table = []
    for name, status, _, cells in function_cells(own):
        if status is None:
            tone = Tone.FAINT if name == _BYTES else Tone.BOLD
        else:
            tone = Tone.PLAIN if status == Presence.BOTH else Tone.WARN
        words = (short(name, _NAME_WIDTH), *cells, status or "")
        table.append([Span(cell, tone) for cell in words])
    heads = ("function", "old", "new", "delta", "x without", "calls old", "calls new", "status")
    columns = [
        Column(head, cells, right=head in heads[1:-1])
        for head, cells in zip(heads, zip(*table, strict=True), strict=True)
    ]
    # Where the width does not take all, the calls go, then the status: JSON and CSV have them.
    return first_that_fits([columns, [*columns[:5], columns[-1]], columns[:5]])


def document(explanation: Explanation) -> tuple[str, dict[str, Any]]:
    """See formats.View: every field of Explanation and what it holds."""
    comparison = picked(explanation.comparison, COUNTED)
    functions = [
        picked(row, [*_names(FunctionDelta), "without"], without=explanation.without(row))
        for row in explanation.functions
    ]
    names = _names(Explanation)
    return "explain", picked(explanation, names, comparison=comparison, functions=functions)


def table(explanation: Explanation) -> tuple[Sequence[str], list[tuple[Cell, ...]]]:
    """One row for each function, the others and the sum last, and bytes by string instructions.

    A refused comparison is one row with its verdict and reasons and no function.
    """
    return _HEAD, [*_rows(explanation)]


def _rows(own: Explanation) -> Iterator[tuple[Cell, ...]]:
    refused: list[_Row] = [("", "", (None, None, None, None, None), (None, None))]
    scale = own.operations
    for name, status, (*totals, share, without), calls in refused if own.refused else _ranking(own):
        yield (
            own.run_id, own.workload, own.scenario, own.phase, own.old, own.new,
            own.comparison.verdict, own.comparison.grade,
            f"[{name}]" if status is None else name, status or "", own.operation, scale,
            *totals, *(None if count is None else count / scale for count in totals), share,
            without, *calls, "; ".join(own.comparison.reasons),
        )  # fmt: skip


_CANCELS = 1000  # percent of the sum
_CAUSES = 8  # causes in the text; JSON and CSV have all
_TELLING = 0.005  # share of the difference from which a cause has a line
_SMALL = 0.02  # share of the difference below which a branch of the tree is left out
_CALLED_WIDTH = 48
_PIECES = 2  # functions that code moved into, by name
_PARTS = 4  # what a function calls, told with it
_BRANCHES = 14  # lines of the tree in the text
_SELDOM = 0.1  # calls per operation below which it is said for how many there is one
_DEEPEST = 24  # levels of the tree that are indented


def _show_calls(
    found: CallExplanation, *, sentences: Sequence[str] = (), details: bool = True
) -> list[Line]:
    explanation, difference = found.explanation, found.difference
    lines = _opening(explanation, sentences)
    if difference is None:
        return lines
    scale, causes, whole = Scale.of(explanation), difference.causes, difference.root.delta
    per = explanation.operation or "operation"
    if not causes:
        return [*lines, (), *paragraph(f"Every call path is the same, per {per} and in all.")]
    lines += [(), *paragraph(f"Per {per} {scale.signed(whole)}, and it is this:", Tone.BOLD)]
    listed = _telling(difference)
    rows = [(cause.delta, cause_sentence(cause, scale), Tone.PLAIN) for cause in listed]
    if others := causes[len(listed) :]:
        count = plural(len(others), "smaller one")
        rows.append((sum(cause.delta for cause in others), count, Tone.FAINT))
    rows.append((whole, "sum", Tone.BOLD))
    table = []
    for delta, text, tone in rows:
        share = f"{round(100 * delta / whole)} %" if whole and has_shares(explanation) else "-"
        table.append([Span(cell, tone) for cell in (scale.signed(delta), share, text)])
    lines += table_of(("delta", "share", "cause"), table, right=("delta", "share"))
    found_branches = branches(difference.root, causes)
    cells = [branch_cells(row, scale) for row in found_branches[:_BRANCHES]]
    lines += [(), *table_of(("delta", "own", "calls", "path"), cells, right=("delta", "own"))]
    if (left := len(found_branches) - len(cells)) > 0:
        lines += paragraph(f"and {left} more branches; --json has all of them", Tone.FAINT)
    return [*lines, (), *paragraph(PATH_LENGTH)] if details else lines


def _telling(difference: CallDifference) -> Sequence[Cause]:
    least = _TELLING * abs(difference.root.delta)
    large = [cause for cause in difference.causes if abs(cause.delta) >= least]
    return (large or difference.causes)[:_CAUSES]


def told_causes(difference: CallDifference | None, scale: Scale) -> list[tuple[str, str]]:
    """The change and the words of each of them."""
    causes = _telling(difference) if difference else ()
    return [(scale.signed(one.delta), cause_sentence(one, scale)) for one in causes]


def cause_sentence(cause: Cause, scale: Scale) -> str:
    """One cause in words."""
    name = short(cause.function, _CALLED_WIDTH)
    pieces = few([short(piece, _CALLED_WIDTH) for piece in cause.into], _PIECES)
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
            if cause.into == (cause.caller,):
                no_longer = "on other paths than before"
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
    least = max(1.0, _SMALL * max(abs(root.delta), most))
    found: list[tuple[int, Branch, Sequence[str]]] = []
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
        found.append((depth, branch, above))
        waiting += [(depth + 1, child, ()) for child in reversed(large)]
    return found


def branch_cells(row: tuple[int, Branch, Sequence[str]], scale: Scale) -> tuple[str, ...]:
    """A line of the tree: delta, own delta, calls (old and new where they differ), path."""
    depth, branch, above = row
    old, new = scale.each(branch.calls_old), scale.each(branch.calls_new)
    hidden = f"... {len(above)} above > " if above else ""
    note = f"  ({branch.note})" if branch.note else ""
    return (
        scale.signed(branch.delta),
        scale.signed(branch.own_new - branch.own_old),
        new if old == new else f"{old} -> {new}",
        f"{'  ' * min(depth, _DEEPEST)}{hidden}{short(branch.function, _CALLED_WIDTH)}{note}",
    )


def _names(kind: type, *without: str) -> list[str]:
    return [field.name for field in fields(kind) if field.name not in without]


def _calls_document(found: CallExplanation) -> tuple[str, dict[str, Any]]:
    explanation, difference = found.explanation, found.difference
    return "calls", picked(
        explanation,
        (*_WINDOWS, "refused", "old_value", "new_value", "delta", "causes", "tree"),
        causes=[
            picked(cause, [*_names(Cause), "delta"])
            for cause in (difference.causes if difference else ())
        ],
        tree=[
            {"depth": len(above), **picked(branch, _names(Branch, "children"))}
            for above, branch in (walked(difference.root) if difference else ())
        ],
    )


WORK, MEMORY, SHARING, VALUES = "work", "memory", "sharing", "values"
_KIND_WIDTH = 32
_PAIRS = 6  # of members that are named
_LEAST_LISTED = 0.05  # lines per operation from which an object is listed
_VALUES_LISTED = 24  # values of a histogram in the text
_WORK_HEAD = ("group", "kind", "old", "new", "delta", "where")
_NO_MODEL = {
    MEMORY: "Lines and pages are what was asked for; whether a cache had them is for a run on"
    " hardware.",
    SHARING: "Lines of 64 bytes that coherence moves when CPUs take turns, and no time: how long"
    " CPUs wait for each other depends on how many come at once.",
}
KINDS = {
    "load": "loads",
    "store": "stores",
    "atomic": "atomic instructions",
    "fence": "fences",
    "serialising": "serialising instructions",
    "tlb": "TLB maintenance",
    "control": "control-register writes",
    "indirect": "indirect branches",
    "division": "divisions",
    "string": "string instructions",
}


# What was found, and the part of it that is said: WORK, MEMORY, SHARING or VALUES.
WorkPart = tuple[WorkExplanation, str]


def _work_rows(found: WorkExplanation, part: str) -> tuple[KindDelta, ...]:
    """The rows of all but VALUES.  Raises SpecError where they were not recorded."""
    if part == WORK:
        return found.work
    rows = found.memory if part == MEMORY else found.sharing
    if rows is None:
        what = "memory is touched" if part == MEMORY else "lines CPUs share"
        action = f"count again with: kdelta run ... --probe {part}"
        raise SpecError(f"the run did not record which {what}", action=action)
    return rows


def _show_work(told: WorkPart, *, details: bool = True) -> list[Line]:
    found, part = told
    explanation = found.explanation
    lines = _opening(explanation)
    if explanation.refused:
        return lines
    if part == VALUES:
        return [*lines, *_histograms(found.values)]
    scale, every = Scale.of(explanation), _work_rows(found, part)
    if part == SHARING and found.lines:
        lines += [(), *paragraph(_lines_claim(found, found.lines), Tone.BOLD)]
    if part == SHARING:
        lines += [line for each in found.layout[:_PAIRS] for line in paragraph(_pair(found, each))]
    least = _LEAST_LISTED * explanation.operations if part == SHARING else scale.least
    for group in dict.fromkeys(row.group for row in every):
        rows = [row for row in every if row.group == group]
        shown = [row for row in rows if max(row.old, row.new) >= least]
        table = []
        for row in shown:
            counts = scale.plain(row.old), scale.plain(row.new), scale.signed(row.delta)
            cells = (kind_named(row), *counts, mostly_in(row, scale))
            table.append([Span(cell, Tone.PLAIN if row.delta else Tone.FAINT) for cell in cells])
        if shown:
            heads = (group, "old", "new", "delta", "mostly in")
            lines += [(), *table_of(heads, table, right=heads[1:-1])]
        if details and (none := [kind_named(row) for row in rows if row not in shown]):
            less = f"Less than {least / explanation.operations:g} of either"
            lines += paragraph(f"{less}: {', '.join(none)}.", Tone.FAINT)
    if not details:
        return lines
    per = explanation.operation or "operation"
    length = "" if part == SHARING else f" {PATH_LENGTH}"
    lines += [(), *paragraph(f"Per {per}; exact counts of one window.{length}")]
    return [*lines, *paragraph(_NO_MODEL[part])] if part in _NO_MODEL else lines


def _lines_claim(found: WorkExplanation, step: LadderStep) -> str:
    """How many lines are fetched, and the objects of the largest changes."""
    told = [f"{counts.change(step, 'lines')}: {'; '.join(step.comparison.reasons)}"]
    moved = objects_moved(found.sharing or (), found.explanation.operations)
    return "; ".join([*told, *(f"{said} ({lines:+.3g})" for said, lines in moved)])


def _pair(found: WorkExplanation, pair: FieldPair) -> str:
    """Which members share a line on one kernel alone."""
    kernels = found.explanation.new, found.explanation.old
    here, there = kernels if pair.new else kernels[::-1]
    how = "written" if pair.both else "read"
    return (
        f"struct {pair.struct}: {pair.first} (written in {pair.written}()) and {pair.other} ({how}"
        f" in {pair.used}()) share line {pair.line} on {here}, not on {there}."
    )


def kind_named(row: KindDelta) -> str:
    """A kind in words."""
    return KINDS.get(row.kind, row.kind)


def mostly_in(row: KindDelta, scale: Scale) -> str:
    """The functions of a kind's change."""
    told = [(short(name, _KIND_WIDTH), scale.signed(change)) for name, change in row.where[:2]]
    return ", ".join(f"{name} {change}" for name, change in told if change.strip("+-0."))


def _histograms(values: Sequence[ValueDelta]) -> Iterator[Line]:
    if not values:
        action = "count again with, for example: kdelta run ... --probe 'FUNCTION(NAME=arg1)'"
        raise SpecError("the run read no values of functions", action=action)
    for value in values:
        yield ()
        yield from paragraph(f"{value.probe}: how often each value, per window", Tone.BOLD)
        sides = {"old": value.old, "new": value.new}
        known = [side for side in sides.values() if side]
        for name, side in sides.items():
            if side and side.missing:
                yield from paragraph(f"{name}: {side.missing}")
            elif side and not side.values:
                yield from paragraph(f"{name}: it was not called, or returned by a jump")
        keys = sorted(
            dict.fromkeys(key for side in known for key in side.values),
            key=lambda key: -max(side.values.get(key, 0) for side in known),
        )
        if not keys:
            continue
        listed = sorted(keys[:_VALUES_LISTED], key=int)
        read = [side.values if side and not side.missing else None for side in sides.values()]
        rows = (
            (key, *("-" if n is None else f"{n.get(key, 0):,}" for n in read)) for key in listed
        )
        heads = ("value", *sides)
        yield from table_of(heads, rows, right=heads)
        others = len(keys) - len(listed) + max(side.others for side in known)
        if others:
            yield from paragraph(f"and {others} other values", Tone.FAINT)


def _work_document(told: WorkPart) -> tuple[str, dict[str, Any]]:
    found, part = told
    explanation = found.explanation
    if part == VALUES:
        return VALUES, picked(explanation, (*_WINDOWS, "values"), values=found.values)
    rows = [
        picked(row, _WORK_HEAD, where=[{"function": name, "delta": n} for name, n in row.where])
        for row in (() if explanation.refused else _work_rows(found, part))
    ]
    data = picked(explanation, (*_WINDOWS, "refused", "rows"), rows=rows)
    if part == SHARING and (step := found.lines):
        judged = picked(step.comparison, COUNTED)
        data["lines"] = picked(step, ("old_value", "new_value", "comparison"), comparison=judged)
        data["layout"] = found.layout
    return part, data


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


def _show_code(found: ExecutedCode) -> list[Line]:
    lines = _opening(found.explanation)
    if found.explanation.refused:
        return lines
    scale = Scale.of(found.explanation)
    before, after = (scale.plain(sum(one.count for one in side)) for side in (found.old, found.new))
    table = []
    for old, new in found.pairs():
        tone = Tone.BAD if new else Tone.GOOD
        if old and new:
            tone = Tone.FAINT if old.count == new.count else Tone.PLAIN
        sides = [
            (scale.each(one.count), f"+{one.offset:#x}") if one else ("", "") for one in (old, new)
        ]
        text = next(one.text for one in (new, old) if one)
        table.append([Span(cell, tone) for cell in (*sides[0], *sides[1], text)])
    per = found.explanation.operation or "operation"
    was, now = found.explanation.names(found.function)
    name = now if was == now else f"{now} (before: {was})"
    claim = f"{name}: {before} -> {after} instructions per {per}"
    heads = ("old", "at", "new", "at", "executed")
    lines += [(), *paragraph(claim, Tone.BOLD), *table_of(heads, table, right=heads[:-1])]
    told = f"How often each instruction retires per {per}; addresses are the new kernel's."
    return [*lines, (), *paragraph(f"{told} {PATH_LENGTH}")]


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


_INLINED = "What the compiler inlined is part of its caller, and is not seen as a function."


def _show_coverage(found: Coverage) -> list[Line]:
    head = f"run {found.run_id}: {len(found.functions)} functions of the kernel ran in"
    head += f" {plural(len(found.scenarios), 'scenario')}, on {', '.join(found.kernels)}"
    heads = ("scenario", "functions", "in no other")
    rows = ((name, f"{count:,}", f"{alone:,}") for name, count, alone in found.scenarios)
    lines = [*paragraph(head, Tone.BOLD), *table_of(heads, rows, right=heads[1:]), ()]
    return [*lines, *paragraph(f"{_INLINED} --csv has each function with its scenarios.")]


def _coverage_table(found: Coverage) -> tuple[Sequence[str], list[tuple[Cell, ...]]]:
    return ("function", "scenario", "instructions"), [
        (row.function, name, insns) for row in found.functions for name, insns in row.scenarios
    ]


CALLS_VIEW = View(show=_show_calls, document=_calls_document)
WORK_VIEW = View(show=_show_work, document=_work_document)
CODE_VIEW = View(show=_show_code, document=code_document)
COVERAGE_VIEW = View(
    show=_show_coverage, document=lambda found: ("coverage", found), table=_coverage_table
)


Stack = tuple[str, ...]
ROW = 18  # height of a frame in CSS pixels
_NARROWEST = 0.0004  # share of a picture's width below which a frame is left out
_SHADES = (0.02, 0.1, 0.4)  # share of the largest change of own code from which a frame is darker
_ALL = "all"


def folded(*sides: Sequence[Sequence[PathNode]]) -> str:
    """A line for each path: functions with semicolons, then old and new; for flamegraph.pl.

    sides: call trees of the old and of the new kernel, phase by phase.
    """
    was, now = map(_stacks, sides)
    lines = [
        f"{';'.join(re.sub('[; ]', '_', name) for name in path)} {was[path]} {now[path]}\n"
        for path in sorted({*was, *now})
    ]
    return "".join(lines)


def _stacks(trees: Iterable[Sequence[PathNode]]) -> Counter[Stack]:
    found: Counter[Stack] = Counter()
    for tree in trees:
        paths: list[Stack] = []
        for node in tree:
            above = paths[node.parent] if node.parent >= 0 else ()
            name = printable(node.function) if len(above) < DEEPEST else DEEPER
            paths.append(above if len(above) > DEEPEST else (*above, name))
            if node.insns:
                found[paths[-1]] += node.insns
    return found


def flame_page(found: CallExplanation) -> str:
    """The whole file; its template, style and script lie beside this module."""
    scale, difference = Scale.of(found.explanation), found.difference
    causes = told_causes(difference, scale)
    return template("flame.html").render(
        style=asset("flame.css"),
        script=asset("flame.js"),
        explanation=found.explanation,
        pictures=flame_graphs(difference, scale),
        causes=causes,
        others=len(difference.causes) - len(causes) if difference else 0,
        delta=scale.signed(difference.root.delta) if difference else "",
        row=ROW,
    )


def flame_graphs(
    found: CallDifference | None, scale: Scale, *, narrowest: float = _NARROWEST
) -> list[dict[str, Any]]:
    """As wide as the new kernel's paths; and as the old one's, where those that vanished are.

    narrowest: share of the width below which a frame is left out.  A picture for the templates has
    its height in CSS pixels, and its frames: a function on a path as a box; x, width: share of the
    picture's; row: 0 is the root's; shade: -3 (much less of its own code) to 3 (much more).
    """
    if found is None:
        return []
    return [_picture(found.root, scale, key, narrowest) for key in ("new", "old")]


def _picture(root: Branch, scale: Scale, key: str, narrowest: float) -> dict[str, Any]:
    def size(branch: Branch) -> int:
        return branch.all_new if key == "new" else branch.all_old

    most = max(abs(branch.own_new - branch.own_old) for _, branch in walked(root))
    whole = size(root) or 1
    frames: list[dict[str, Any]] = []
    left_out = 0
    waiting = [(root, 0, 0)]
    while waiting:
        branch, row, start = waiting.pop()
        if size(branch) < narrowest * whole:
            left_out += size(branch) > 0
            continue
        change = branch.own_new - branch.own_old
        shade = sum(abs(change) > share * most for share in _SHADES)
        box = {"row": row, "x": start / whole, "width": size(branch) / whole}
        box["shade"] = shade if change > 0 else -shade
        words = {"function": branch.function or _ALL, "told": _frame_told(branch, scale)}
        frames.append({**box, **words, "note": branch.note})
        at = start
        for child in sorted(branch.children, key=lambda one: one.function):
            waiting.append((child, row + 1, at))
            at += size(child)
    frames.sort(key=itemgetter("row", "x"))
    height = ROW * (1 + max((frame["row"] for frame in frames), default=0))
    told = {"key": key, "title": f"the {key} kernel", "frames": frames, "height": height}
    return {**told, "left_out": left_out}


def _frame_told(branch: Branch, scale: Scale) -> str:
    """What a frame is, in words: a picture says it to nobody who cannot see it."""
    note = f" ({branch.note})" if branch.note else ""
    calls = f"called {scale.each(branch.calls_old)} -> {scale.each(branch.calls_new)} times, "
    return (
        f"{branch.function or _ALL}{note}: {calls if branch.function else ''}"
        f"own {scale.plain(branch.own_old)} -> {scale.plain(branch.own_new)}"
        f" ({scale.signed(branch.own_new - branch.own_old)}),"
        f" with all below {scale.plain(branch.all_old)} -> {scale.plain(branch.all_new)}"
        f" ({scale.signed(branch.delta)})"
    )
