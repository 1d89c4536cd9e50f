# SPDX-License-Identifier: GPL-2.0-or-later
"""Published performance changes held against counts: which of them a path length tells.

A case is of a release.  The two kernels of the archive whose interval holds that release are
counted.  An interval holds more than one change, so what is asked is whether the functions of the
change got longer or shorter; the whole count decides only where the interval is of one release.
Where a variant of ours takes the change back, two builds of one source are counted: these differ in
nothing else, so the whole count decides, to the instruction.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from pathlib import Path

import msgspec

from kdelta import files, workload
from kdelta.analysis.explanation import base_name
from kdelta.check.comparing import both
from kdelta.check.counter import Counted
from kdelta.check.matching import functions, is_one_of, meant, named
from kdelta.check.page import LEAST_PERCENT
from kdelta.errors import SpecError
from kdelta.printable import printable

_MOST_BYTES = 1 << 20
_MOST_CASES = 1000
_MOST_TEXT = 400
_MOST_FUNCTIONS = 40
_LEAST_COMMIT = 7  # digits that name one
_PLACED = ("scenario", "functions", "lacks", "undone_by", "done_by")
_SERIES = re.compile(r"(?<![\d.])(\d{1,2})\.(\d{1,3})(?!\d)")
# Two releases between which a change came, the older one without it.
_BETWEEN = re.compile(
    r"(?<![\d.])v?(\d{1,2})\.(\d{1,3})(?:\.\d+)?(?:-rc\d+)?\s*(?:-+>|\.\.+|→|to\b|-)\s*"
    r"v?(\d{1,2})\.(\d{1,3})(?!\d)"
)
_LAST = {3: 19, 4: 20, 5: 19, 6: 19}  # minor of the last release before the next major one
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s?%")
_LITTLE = 4  # a path that got longer by less than this part of what was published is little
_SAME = 1.0  # percent
_JUDGED = ("more", "less", "same", "same-or-little")
_OTHERS = (
    "the interval holds other changes, and only two builds of one source would show this one alone"
)
EXPECTED = ("more", "less", "same", "same-or-little", "both", "open")
Series = tuple[int, int]


class CountsSay(StrEnum):
    """What counts say of a case."""

    MORE = "more"
    LESS = "less"
    SAME = "same"
    UNDECIDED = "undecided"
    NOT_HAD = "not had"


class PublishedCase(msgspec.Struct, frozen=True, kw_only=True):
    """One case.  What a file does not say of it is empty.

    scenario, functions: empty where they are to be found by its words.

    undone_by: a variant that takes the change back in a source that has it.  done_by: one that
    makes it, in a source that lacks it or has repaired it since.  lacks: why two packages of the
    archive do not show it.  note: what a count found, where that is not what was expected.
    """

    id: str
    title: str = ""
    release: str = ""
    workload: str = ""
    reported: str = ""
    kind: str = ""
    expect: str = ""
    source: str = ""
    commit: str = ""
    scenario: str = ""
    functions: tuple[str, ...] = ()
    lacks: str = ""
    undone_by: str = ""
    done_by: str = ""
    note: str = ""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The words of its kind: "path+contention" is of two."""
        return tuple(word.strip() for word in self.kind.split("+"))

    @property
    def is_built(self) -> bool:
        """True where two builds of one source show it."""
        return bool(self.scenario and (self.undone_by or self.done_by))


class CaseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was said of a case.

    old, new: the kernels; total, own: percent of the count before, of everything and of the
    functions of the change; right: None where no answer is right or wrong.  built: of one source,
    by us.  found: its own functions, the largest first; first: those that an explanation begins
    with.
    """

    case: PublishedCase
    said: CountsSay
    why: str
    right: bool | None
    old: str = ""
    new: str = ""
    scenario: str = ""
    total: float | None = None
    own: float | None = None
    found: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    built: bool = False


def read(path: Path) -> tuple[PublishedCase, ...]:
    """The cases of a TOML file, each with an id of its own.  Raises SpecError for what is none.

    A case that is written wrongly is one that lacks something: the others can be answered.
    """
    try:
        rows = tomllib.loads(files.content(path, _MOST_BYTES).decode()).get("case", [])
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror}", place=str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SpecError(f"is no list of cases: {error}", place=str(path)) from error
    if not isinstance(rows, list) or not 0 < len(rows) <= _MOST_CASES:
        raise SpecError(
            f"is no list of 1 to {_MOST_CASES} cases",
            place=str(path),
            action="write each below a line of its own: [[case]]",
        )
    return _distinct([_of_row(row, number) for number, row in enumerate(rows, start=1)])


def _of_row(row: object, number: int) -> PublishedCase:
    """A table of the file; numbers are taken as texts, what is neither is told."""
    if not isinstance(row, dict):
        return PublishedCase(id=f"case-{number}", lacks="it is no table")
    wrong, known = [], {"id": f"case-{number}"}
    for name in PublishedCase.__struct_fields__:
        value = row.get(name, "")
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            known[name] = printable(str(value).strip(), _MOST_TEXT) or known.get(name, "")
        elif name != "functions":
            wrong.append(name)
    for name in ("kind", "expect"):
        known[name] = known.get(name, "").lower()
    listed = row.get("functions", [])
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        wrong.append("functions")
        listed = []
    if wrong:
        known["lacks"] = f"its {' and '.join(wrong)} cannot be read"
    return msgspec.convert({**known, "functions": listed[:_MOST_FUNCTIONS]}, type=PublishedCase)


def _distinct(cases: Sequence[PublishedCase]) -> tuple[PublishedCase, ...]:
    seen: Counter[str] = Counter()
    found = []
    for case in cases:
        seen[case.id] += 1
        again = f"{case.id}-{seen[case.id]}"
        found.append(msgspec.structs.replace(case, id=again) if seen[case.id] > 1 else case)
    return tuple(found)


def placed(case: PublishedCase, known: Sequence[PublishedCase] = ()) -> PublishedCase:
    """The case with its scenario and functions, by its words where it names none.

    known: cases whose scenario, functions and variants are taken where it is one of them.
    """
    if case.scenario:
        try:
            workload.parse_reference(case.scenario)
        except SpecError as error:
            lacks = case.lacks or error.cause
            return msgspec.structs.replace(case, scenario="", lacks=lacks)
        return case
    same = next((each for each in known if _same(case, each)), None)
    if same is not None and not case.lacks:
        taken = {name: getattr(same, name) for name in _PLACED}
        return msgspec.structs.replace(case, **taken)
    found = meant(case.workload) or named(case.title)
    told = functions(f"{case.title} {case.workload} {case.reported}")
    return msgspec.structs.replace(
        case, scenario=found.scenario if found else "", functions=case.functions or told
    )


def _same(case: PublishedCase, other: PublishedCase) -> bool:
    """True for the same change: its commit, by as much as both give of it, or its title."""
    one, two = case.commit.lower(), other.commit.lower()
    if min(len(one), len(two)) >= _LEAST_COMMIT:
        return one.startswith(two) or two.startswith(one)
    titles = [" ".join(each.title.lower().split()) for each in (case, other)]
    return bool(titles[0]) and titles[0] == titles[1]


def interval(case: PublishedCase, offered: Sequence[Series]) -> tuple[Series, Series] | None:
    """The two neighbours among offered series between which the case's release came; of two
    releases ("6.16 -> 6.17") those that are nearest outside of them.
    """
    every = sorted(set(offered))
    release_of = (
        case.release.replace(" and ", " to ") if "between" in case.release else case.release
    )
    if match := _BETWEEN.search(release_of):
        without, with_it = (int(match[1]), int(match[2])), (int(match[3]), int(match[4]))
        before = [each for each in every if each <= without]
        behind = [each for each in every if each >= with_it]
        return (before[-1], behind[0]) if before and behind and without < with_it else None
    match = _SERIES.search(case.release)
    if match is None or "or later" in case.release:
        return None
    release = int(match[1]), int(match[2])
    if release[1] > _LAST.get(release[0], release[1]):
        return None
    for old, new in pairwise(every):
        if old < release <= new:
            return old, new
    return None


def lacking(case: PublishedCase, between: tuple[Series, Series] | None) -> str:
    """Why a case cannot be counted here, or ""."""
    if case.lacks:
        return case.lacks
    if "device" in case.kinds:
        return "it is a device's time, and a count knows no device"
    if not case.scenario:
        return "no scenario is known to execute what it says"
    if not _SERIES.search(case.release):
        return "it names no release, and so no two kernels"
    if between is None:
        return f"no two kernels of the archive have {case.release} between them"
    return ""


def refused(case: PublishedCase, why: str) -> CaseAnswer:
    """The answer of one that cannot be had."""
    return CaseAnswer(
        case=case, said=CountsSay.NOT_HAD, why=why, right=None, scenario=case.scenario
    )


def answered(
    case: PublishedCase,
    old: Counted,
    new: Counted,
    names: tuple[str, str],
    *,
    wide: bool = False,
    built: bool = False,
    changed: frozenset[str] = frozenset(),
) -> CaseAnswer:
    """What the counts of both kernels say.  wide: the interval holds several releases; built: they
    differ in the change alone, and these functions are its own, too: see check.own.
    """
    seen = both(old, new)
    if seen.before is None or seen.after is None or not seen.before:
        return refused(case, f"it was not counted: {seen.reason}"[:200])
    theirs = {base_name(name) for name in changed}
    parts = [
        row
        for row in seen.functions
        if row.function in theirs or is_one_of(row.function, case.functions)
    ]
    known = theirs or case.functions
    own = 100 * sum(row.delta for row in parts) / seen.before if known else None
    total = 100 * (seen.after / seen.before - 1)
    if built:
        said, why = _said_of_builds(total, sure=seen.sure)
    else:
        said, why = _said(case, total, own, sure=seen.sure, wide=wide)
    if seen.signless and (built or not own):
        said, why = CountsSay.UNDECIDED, seen.signless
    right = _right(case, said, total, built=built)
    if right is False and not built and case.expect in ("same", "same-or-little"):
        said, why, right = CountsSay.UNDECIDED, _OTHERS, None
    return CaseAnswer(
        case=case,
        said=said,
        why=why,
        right=right,
        old=names[0],
        new=names[1],
        scenario=case.scenario,
        total=total,
        own=own,
        found=tuple(row.function for row in parts if row.delta)[:4],
        first=tuple(row.function for row in parts if row.function in seen.first),
        built=built,
    )


def _said_of_builds(total: float, *, sure: bool) -> tuple[CountsSay, str]:
    if not total:
        return CountsSay.SAME, "two builds, equal to the instruction"
    if not sure:
        return CountsSay.UNDECIDED, "the count scatters more than it differs"
    if abs(total) < LEAST_PERCENT:
        return CountsSay.SAME, f"two builds, by less than {LEAST_PERCENT:g} %"
    return (CountsSay.MORE if total > 0 else CountsSay.LESS), "two builds, which differ in it alone"


def _said(
    case: PublishedCase, total: float, own: float | None, *, sure: bool, wide: bool
) -> tuple[CountsSay, str]:
    apart = bool(own) and (own or 0.0) * total < 0
    if case.functions and own and wide and abs(own) < _SAME:
        return CountsSay.UNDECIDED, (
            f"over several releases its own functions moved by less than {_SAME:g} %, as others'"
            " changes can"
        )
    if case.functions and own and not (wide and apart):
        beside = "; the whole path has the other sign" if apart else ""
        return (CountsSay.MORE if own > 0 else CountsSay.LESS), f"its own functions{beside}"
    if wide and apart:
        return CountsSay.UNDECIDED, (
            "over several releases its own functions and the whole path have two signs"
        )
    if wide:
        return (
            CountsSay.UNDECIDED,
            "several releases lie between, and no function of its own is seen",
        )
    if not sure:
        return CountsSay.UNDECIDED, "the count scatters more than it differs"
    if abs(total) <= _SAME:
        return CountsSay.SAME, "the whole path"
    return (CountsSay.MORE if total > 0 else CountsSay.LESS), "the whole path"


def _right(case: PublishedCase, said: CountsSay, total: float, *, built: bool) -> bool | None:
    if said in (CountsSay.UNDECIDED, CountsSay.NOT_HAD) or case.expect not in _JUDGED:
        return None
    if "state" in case.kinds:  # two things were counted
        return None
    if case.expect == "same-or-little":
        published = [float(number) for number in _PERCENT.findall(case.reported)]
        most = max(published, default=0.0) / _LITTLE
        return said is CountsSay.SAME or abs(total) <= most
    if case.expect == CountsSay.SAME and built:
        return total == 0
    return said.value == case.expect
