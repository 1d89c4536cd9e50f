# SPDX-License-Identifier: GPL-2.0-or-later
"""Published performance changes: the cases, what the counts say of each, and how that is shown.

A case is counted in one of two ways.  Where a patch of bench/variants takes the change back, or
makes it, a release is counted with and without it: both differ in the change alone, so the whole
path decides.  Where it cannot be put into the release, two builds of the source are counted.
Otherwise the two series of the archive are counted between which its release came.  Such an
interval holds other changes too, so the functions that the case names decide; the whole path
decides only where the interval is of one release and no function is named.
"""

from __future__ import annotations

import collections
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path

import msgspec

from kdelta.analysis.explanation import base_name
from kdelta.analysis.gate import gate
from kdelta.check.compare import Counted, explained, part_of, record_of
from kdelta.check.page import LEAST_PERCENT, FunctionPart
from kdelta.disassembly import image
from kdelta.disassembly.identity import functions_of
from kdelta.verdict.comparison import Verdict

_RELEASE = re.compile(r"(\d{1,2})\.(\d{1,3})(?!\d)")
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s?%")
_LITTLE = 4  # a path that got longer by less than this part of what was published is little
_SAME = 1.0  # percent
_OTHERS = "the interval holds other changes; only a kernel with and without it would show this one"
Series = tuple[int, int]
DISPATCHED = 100


class Expected(StrEnum):
    """What a count has to find by what was published."""

    MORE = "more"
    LESS = "less"
    SAME = "same"
    SAME_OR_LITTLE = "same-or-little"
    BOTH = "both"
    OPEN = "open"


class CountsSay(StrEnum):
    """What the counts say of a case."""

    MORE = "more"
    LESS = "less"
    SAME = "same"
    UNDECIDED = "undecided"
    NOT_COUNTED = "not counted"


class CountDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario on two kernels, in instructions per operation.

    sure: the windows agree on the difference, or on there being none; reason: why not.
    signless: why the sign of the difference means nothing; "" where it does.
    functions: all that differ.  leading: those that an explanation begins with.
    """

    before: float | None
    after: float | None
    sure: bool
    reason: str
    functions: tuple[FunctionPart, ...]
    signless: str = ""
    leading: tuple[str, ...] = ()


def count_difference(before: Counted, after: Counted) -> CountDifference:
    """Compare two kernels that may be built differently, as far as that is possible."""
    record = record_of(before, after)
    found, case = explained(record), gate(record).cases[0]
    exactly = gate(record, step_percent=LEAST_PERCENT).cases[0].comparison
    return CountDifference(
        before=case.old,
        after=case.new,
        sure=case.comparison.verdict not in (Verdict.UNDECIDED, Verdict.INVALID),
        reason=case.skipped or case.why,
        functions=tuple(part_of(row, found) for row in found.functions if row.delta)
        if found
        else (),
        signless=exactly.signless,
        leading=tuple(row.function for row in (*found.rising, *found.falling)) if found else (),
    )


class PublishedCase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One case.

    release: begins with the one that it came with.  kind: words joined by "+": path, contention,
    device, layout, memory, state, null, wrong-sign, open.  functions: patterns of the change's own.
    undone_by, done_by: patches of bench/variants that take the change back, or make it in base.
    lacks: why released kernels do not show it.  note: what a count found where that was not
    expected.  rate: the published change in percent of a rate, where one was published.
    """

    id: str
    title: str
    release: str
    workload: str
    reported: str
    kind: str
    expect: Expected
    source: str
    commit: str = ""
    scenario: str = ""
    functions: tuple[str, ...] = ()
    lacks: str = ""
    undone_by: str = ""
    done_by: str = ""
    base: str = "6.17.8"
    rate: float | None = None
    note: str = ""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The words of its kind."""
        return tuple(self.kind.split("+"))

    @property
    def is_built(self) -> bool:
        """True where a release with and without it shows it."""
        return bool(self.undone_by or self.done_by)


class CaseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the counts say of a case.

    old, new: the kernels.  total, own: percent of the count before, of the whole path and of the
    change's own functions.  right: None where no answer is right or wrong.  found: its own
    functions that changed, the largest first; leading: those that an explanation begins with.
    """

    case: PublishedCase
    said: CountsSay
    why: str
    right: bool | None = None
    old: str = ""
    new: str = ""
    total: float | None = None
    own: float | None = None
    found: tuple[str, ...] = ()
    leading: tuple[str, ...] = ()
    built: bool = False


# ---- cases ------------------------------------------------------------------------------------


def read(path: Path) -> tuple[PublishedCase, ...]:
    """The cases of a TOML file.  Raises ValueError for one that is not in the form."""
    rows = tomllib.loads(path.read_text()).get("case", [])
    cases = msgspec.convert(rows, tuple[PublishedCase, ...])
    for case in cases:
        if not (case.scenario or case.lacks):
            raise ValueError(f"{path.name}: {case.id} has neither a scenario nor what it lacks")
    if len({case.id for case in cases}) < len(cases):
        raise ValueError(f"{path.name}: two cases have the same id")
    return cases


def interval(case: PublishedCase, offered: Sequence[Series]) -> tuple[Series, Series] | None:
    """The two neighbours among the offered series between which the case's release came."""
    if not (match := _RELEASE.match(case.release)):
        return None
    release = int(match[1]), int(match[2])
    pairs = pairwise(sorted(set(offered)))
    return next((pair for pair in pairs if pair[0] < release <= pair[1]), None)


def is_wide(between: tuple[Series, Series]) -> bool:
    """True for an interval of several releases."""
    (major, minor), new = between
    return new not in ((major, minor + 1), (major + 1, 0))


def watched(kernel: image.Image, executed: Iterable[str]) -> tuple[str, ...]:
    """The executed functions of a kernel and those that they call directly, sorted.

    executed: names as counts have them, also "[user]" and "rep movsb in NAME".  Names that the
    kernel does not have are passed on.
    Of a function that calls more than DISPATCHED others (the table of system calls) only those
    count that were executed themselves.
    """
    names = functions_of(executed)
    called: set[str] = set()
    for codes in kernel.codes(sorted(names)).values():
        for code in codes if not isinstance(codes, str) else ():
            calls = {call.partition("+")[0] for call in code.calls}
            called |= calls if len(calls) <= DISPATCHED else set()
    return tuple(sorted(names | {name for name in called if name in kernel}))


def own_functions(old: Counted, new: Counted, changed: frozenset[str]) -> frozenset[str]:
    """The changed functions and, below them, those that are called more or less often.

    A change that calls a function once where it called it four times has its price there, and what
    it adds may be inlined.  changed: by code, between the two kernels.
    """
    calls = [_calls(side) for side in (old, new)]
    moved = {name for name in {*calls[0], *calls[1]} if calls[0][name] != calls[1][name]}
    kernels = [
        image.opened(side.kernel.image, side.kernel.name or "a build") for side in (old, new)
    ]
    found, last = set(changed), changed & functions_of(old.functions | new.functions)
    while last:
        below = {name for kernel in kernels for name in watched(kernel, last)}
        last = frozenset(below & moved - found)
        found |= last
    return frozenset(found)


def _calls(side: Counted) -> collections.Counter[str]:
    """How often each function was called in the windows that stand for phases."""
    found: collections.Counter[str] = collections.Counter()
    for row in side.result.exact.functions:
        found[row.function] += row.calls
    return found


# ---- answers ----------------------------------------------------------------------------------


def not_counted(case: PublishedCase, why: str) -> CaseAnswer:
    """The answer to a case without counts."""
    return CaseAnswer(case=case, said=CountsSay.NOT_COUNTED, why=why)


def answered(
    case: PublishedCase,
    old: Counted,
    new: Counted,
    names: tuple[str, str],
    *,
    wide: bool = False,
    built: bool = False,
    changed: Collection[str] = (),
) -> CaseAnswer:
    """What the counts of both kernels say.

    wide: the interval holds several releases.  built: the kernels differ in the change alone, and
    `changed` are its own functions, too.
    """
    seen = count_difference(old, new)
    if not seen.before or seen.after is None:
        return not_counted(case, seen.reason[:200])
    theirs = {base_name(name) for name in changed}
    parts = [row for row in seen.functions if is_own(row.function, case, theirs)]
    has_own = theirs or case.functions
    own = 100 * sum(row.delta for row in parts) / seen.before if has_own else None
    total = 100 * (seen.after / seen.before - 1)
    if seen.signless and (built or not own):
        said, why = CountsSay.UNDECIDED, seen.signless
    elif built:
        said, why = _said_of_builds(total, sure=seen.sure)
    else:
        said, why = _said_of_interval(case, total, own, sure=seen.sure, wide=wide)
    right = is_right(case, said, total, built=built)
    if right is False and not built and case.expect in (Expected.SAME, Expected.SAME_OR_LITTLE):
        said, why, right = CountsSay.UNDECIDED, _OTHERS, None
    return CaseAnswer(
        case=case,
        said=said,
        why=why,
        right=right,
        old=names[0],
        new=names[1],
        total=total,
        own=own,
        found=tuple(row.function for row in parts if row.delta)[:4],
        leading=tuple(
            row.function for row in parts if row.function.partition(" ")[0] in seen.leading
        ),
        built=built,
    )


def is_own(function: str, case: PublishedCase, changed: Collection[str] = ()) -> bool:
    """Whether a function, "name" or "name (before: name)", is one of a change's own."""
    names = function.removesuffix(")").split(" (before: ")
    own = (fnmatchcase(name, one) for name in names for one in case.functions)
    return any(own) or not {*names}.isdisjoint(changed)


def _said_of_builds(total: float, *, sure: bool) -> tuple[CountsSay, str]:
    if not total:
        return CountsSay.SAME, "the change alone, equal to the instruction"
    if not sure:
        return CountsSay.UNDECIDED, "the count scatters more than it differs"
    if abs(total) < LEAST_PERCENT:
        return CountsSay.SAME, f"the change alone, by less than {LEAST_PERCENT:g} %"
    return (CountsSay.MORE if total > 0 else CountsSay.LESS), "the change alone"


def _said_of_interval(
    case: PublishedCase, total: float, own: float | None, *, sure: bool, wide: bool
) -> tuple[CountsSay, str]:
    apart = own is not None and own * total < 0
    if case.functions and own:
        if wide and abs(own) < _SAME:
            return CountsSay.UNDECIDED, f"its own functions moved by less than {_SAME:g} %"
        if wide and apart:
            return CountsSay.UNDECIDED, "its own functions and the whole path have two signs"
        return (CountsSay.MORE if own > 0 else CountsSay.LESS), "its own functions"
    if wide:
        return CountsSay.UNDECIDED, "several releases, and none of its own functions"
    if not sure:
        return CountsSay.UNDECIDED, "the count scatters more than it differs"
    if abs(total) <= _SAME:
        return CountsSay.SAME, "the whole path"
    return (CountsSay.MORE if total > 0 else CountsSay.LESS), "the whole path"


def is_right(case: PublishedCase, said: CountsSay, total: float, *, built: bool) -> bool | None:
    """Whether an answer is the expected one; None where no answer is right or wrong."""
    if said is CountsSay.UNDECIDED or case.expect in (Expected.BOTH, Expected.OPEN):
        return None
    if "state" in case.kinds:  # the counts are of two kinds of pages
        return None
    if case.expect is Expected.SAME_OR_LITTLE:
        published = [float(number) for number in _PERCENT.findall(case.reported)]
        return said is CountsSay.SAME or abs(total) <= max(published, default=0.0) / _LITTLE
    if case.expect is Expected.SAME and built:
        return total == 0
    return said.value == case.expect.value


# ---- what `kdelta why` says -------------------------------------------------------------------

_FIRST_WORDS = {
    "Yes:": CountsSay.MORE, "No, it got shorter": CountsSay.LESS, "No:": CountsSay.SAME,
    "Undecided": CountsSay.UNDECIDED, "Longer from": CountsSay.UNDECIDED,
    "Shorter from": CountsSay.UNDECIDED,
}  # fmt: skip
_TAKES = re.compile(r" takes ~?([\d.]+) instructions per .*?, ~?([\d.]+) on ")
_FUNCTIONS = re.compile(r"By function it is (.*?)(?:\. |\.?$)")
_NAMED = re.compile(r"([\w.]+(?: \(before: [\w.]+\))?) [+-][\d.]+")
_CAUSES = re.compile(r"(?:Largest cause: |Then )[+-][\d.]+, ([\w.]+)")


def of_why(case: PublishedCase, text: str) -> CaseAnswer:
    """From what a reader reads of `kdelta why`; found: the functions that it names.

    Raises ValueError for a first line of another form.
    """
    line = " ".join(text.split())
    said = next((say for words, say in _FIRST_WORDS.items() if line.startswith(words)), None)
    if said is None:
        raise ValueError(f"{case.id}: {line[:80]}")
    new, old = map(float, takes.groups()) if (takes := _TAKES.search(line)) else (1.0, 1.0)
    total = 100 * (new / old - 1)
    told = _FUNCTIONS.search(line)
    named = _NAMED.findall(told[1]) if told else _CAUSES.findall(line)
    right = is_right(case, said, total, built=False)
    same = case.expect in (Expected.SAME, Expected.SAME_OR_LITTLE)
    return CaseAnswer(
        case=case, said=said, why="", right=right or (None if same else right), total=total,
        found=tuple(named), leading=tuple(name for name in named if is_own(name, case)),
    )  # fmt: skip


def why_table(answers: Sequence[CaseAnswer]) -> Iterator[str]:
    """The rows of docs/calibration.md, and their sum."""
    yield "| case | published | why says | first function | of the change |"
    yield "|---|---|---|---|---|"
    for each in answers:
        first = f"`{each.found[0]}`" if each.found else ""
        own = ", ".join(f"`{name}`" for name in each.leading) or "none" * bool(first)
        said = f"{each.said} ({each.total:+.1f} %)" if each.total else each.said
        said += " (wrong)" * (each.right is False)
        yield f"| {each.case.id} | {each.case.expect} | {said} | {first} | {own} |"


# ---- text -------------------------------------------------------------------------------------


def summary(answers: Sequence[CaseAnswer]) -> str:
    """The result in a paragraph."""
    judged = [each for each in answers if each.right is not None]
    right = sum(bool(each.right) for each in judged)
    absent = sum(each.said is CountsSay.NOT_COUNTED for each in answers)
    undecided = sum(each.said is CountsSay.UNDECIDED for each in answers)
    paths = [each for each in answers if "path" in each.case.kinds]
    found = [
        each for each in paths if each.right or (each.case.expect is Expected.BOTH and each.found)
    ]
    missed = ", ".join(each.case.id for each in paths if each not in found) or "none"
    return (
        f"{right} of {len(judged)} judged cases have the published sign; {undecided} undecided,"
        f" {absent} not counted, of {len(answers)}. Of {len(paths)} changes of a path {len(found)}"
        f" were found, {sum(bool(each.found) for each in found)} with a function of theirs,"
        f" {sum(bool(each.leading) for each in found)} with one that the explanation begins with;"
        f" not found: {missed}."
    )


def table(answers: Sequence[CaseAnswer]) -> Iterator[str]:
    """The rows of docs/calibration.md."""
    yield "| case | kernels | scenario | path % | own % | expected, said |"
    yield "|---|---|---|---|---|---|"
    for each in answers:
        if each.total is None:
            yield f"| {each.case.id} | {each.why} |||| {each.case.expect}, {each.said} |"
            continue
        own = f"{each.own:+.1f}" if each.own is not None else ""
        path = (
            "0" if not each.total else f"{each.total:+.2f}" if each.built else f"{each.total:+.1f}"
        )
        wrong = " (wrong)" if each.right is False else ""
        agree = each.said.value == each.case.expect.value
        said = each.said.value if agree else f"{each.case.expect}, {each.said}{wrong}"
        kernels = f"{each.old}, {each.new}"
        yield f"| {each.case.id} | {kernels} | `{each.case.scenario}` | {path} | {own} | {said} |"


def details(answers: Sequence[CaseAnswer]) -> Iterator[str]:
    """A line for each case, for a terminal."""
    for each in answers:
        mark = {True: "right", False: "WRONG", None: "-"}[each.right]
        path = f", path {each.total:+.2f} %" if each.total is not None else ""
        own = f", own functions {each.own:+.1f} %" if each.own is not None else ""
        names = f" ({', '.join(each.found)})" if each.found else ""
        note = f"; {each.case.note}" if each.case.note and each.right is not True else ""
        yield (
            f"{each.case.id}: {mark}: expected {each.case.expect}, counts say {each.said}:"
            f" {each.why}{path}{own}{names}{note}"
        )
