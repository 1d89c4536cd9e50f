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
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from pathlib import Path

import msgspec

from kdelta import files, workload
from kdelta.check.comparing import both
from kdelta.check.counter import Counted
from kdelta.check.matching import functions, is_one_of, meant
from kdelta.check.page import LEAST_PERCENT
from kdelta.errors import SpecError

_MOST_BYTES = 1 << 20
_SERIES = re.compile(r"\b(\d+)\.(\d+)\b")
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s?%")
_LITTLE = 4  # a path that got longer by less than this part of what was published is little
_SAME = 1.0  # percent
Series = tuple[int, int]


class CountsSay(StrEnum):
    """What counts say of a case."""

    MORE = "more"
    LESS = "less"
    SAME = "same"
    UNDECIDED = "undecided"
    NOT_HAD = "not had"


class PublishedCase(msgspec.Struct, frozen=True, kw_only=True):
    """One case.  scenario, functions: empty where they are to be found by its words.

    undone_by: a variant that takes the change back in a source that has it.  lacks: why two
    packages of the archive do not show it.
    """

    id: str
    title: str
    release: str
    workload: str
    reported: str
    kind: str
    expect: str
    source: str
    commit: str = ""
    scenario: str = ""
    functions: tuple[str, ...] = ()
    lacks: str = ""
    undone_by: str = ""


class CaseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was said of a case.

    old, new: the kernels; total, own: percent of the count before, of everything and of the
    functions of the change; right: None where no answer is right or wrong.  built: of one source,
    by us.
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
    built: bool = False


def read(path: Path) -> tuple[PublishedCase, ...]:
    """The cases of a TOML file.  Raises SpecError for what is none."""
    try:
        text = files.content(path, _MOST_BYTES).decode()
        table = tomllib.loads(text).get("case", [])
        return tuple(msgspec.convert(table, type=list[PublishedCase]))
    except OSError as error:
        raise SpecError(f"cannot be read: {error.strerror}", place=str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise SpecError(f"is no list of cases: {error}", place=str(path)) from error


def placed(case: PublishedCase) -> PublishedCase:
    """The case with its scenario and functions, by its words where it names none."""
    if case.scenario:
        workload.parse_reference(case.scenario)
        return case
    found = meant(case.workload) or meant(f"{case.workload} {case.title}")
    named = functions(f"{case.title} {case.workload} {case.reported}")
    return msgspec.structs.replace(
        case, scenario=found.scenario if found else "", functions=case.functions or named
    )


def interval(case: PublishedCase, offered: Sequence[Series]) -> tuple[Series, Series] | None:
    """The two neighbours among offered series between which the case's release came."""
    match = _SERIES.search(case.release)
    if match is None or "or later" in case.release:
        return None
    release = int(match[1]), int(match[2])
    for old, new in pairwise(sorted(set(offered))):
        if old < release <= new:
            return old, new
    return None


def lacking(case: PublishedCase, between: tuple[Series, Series] | None) -> str:
    """Why a case cannot be counted here, or ""."""
    if case.lacks:
        return case.lacks
    if between is None:
        return f"no two kernels of the archive have {case.release} between them"
    if not case.scenario:
        return "no scenario is known to execute what it says"
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
) -> CaseAnswer:
    """What the counts of both kernels say.  wide: the interval holds several releases; built: they
    differ in the change alone.
    """
    seen = both(old, new)
    if seen.before is None or seen.after is None or not seen.before:
        return refused(case, f"it was not counted: {seen.reason}"[:200])
    parts = [row for row in seen.functions if is_one_of(row.function, case.functions)]
    own = 100 * sum(row.delta for row in parts) / seen.before if case.functions else None
    total = 100 * (seen.after / seen.before - 1)
    if built:
        said, why = _said_of_builds(total, sure=seen.sure)
    else:
        said, why = _said(case, total, own, sure=seen.sure, wide=wide)
    return CaseAnswer(
        case=case,
        said=said,
        why=why,
        right=_right(case, said, total),
        old=names[0],
        new=names[1],
        scenario=case.scenario,
        total=total,
        own=own,
        found=tuple(row.function for row in parts if row.delta)[:4],
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


def _right(case: PublishedCase, said: CountsSay, total: float) -> bool | None:
    if said in (CountsSay.UNDECIDED, CountsSay.NOT_HAD) or case.expect in ("open", "both"):
        return None
    if case.expect == "same-or-little":
        published = [float(number) for number in _PERCENT.findall(case.reported)]
        most = max(published, default=0.0) / _LITTLE
        return said is CountsSay.SAME or abs(total) <= most
    return said.value == case.expect
