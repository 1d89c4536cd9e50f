# SPDX-License-Identifier: GPL-2.0-or-later
"""The page of a check as values: what its text, its JSON and a later comparison read."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec

from kdelta import files
from kdelta.errors import SpecError
from kdelta.metric import Grade

FORMAT = 1
MOST_PERCENT = 99999.0  # what a change from none counts as
LEAST_PERCENT = 0.05  # a path that changes by less counts as unchanged in words
TOLERANCE = 1.0  # percent by which a path may get longer, by default
HOME = "amd64"  # the architecture that is always checked, by Debian's name
_MOST_BYTES = 32 << 20


class Ruling(StrEnum):
    """May the series go in, as far as path lengths say?"""

    ACCEPT = "ACCEPT"
    REJECT = "REJECT"
    UNDECIDED = "UNDECIDED"


class Effect(StrEnum):
    """What became of a path."""

    MORE = "more work"
    LESS = "less work"
    EQUAL = "identical"
    SPREAD = "within its spread"
    SLIGHT = "below 0.05 %"  # LEAST_PERCENT
    OPEN = "not compared"

    @property
    def moved(self) -> bool:
        """True when the path got longer or shorter."""
        return self in (Effect.MORE, Effect.LESS)


def sized(percent: float) -> str:
    """A change in words: "+18.72 %", "from none"."""
    return "from none" if percent == MOST_PERCENT else f"{percent:+.2f} %"


class Words(NamedTuple):
    """How a page tells a metric: what a path did that is worse; paths that are worse, better and
    alike; what is counted, before "a page" and as a whole; what it is not.
    """

    worse: str
    more: str
    less: str
    alike: str
    each: str
    counted: str
    means: str


WORDS = {
    Grade.EXACT_PATH: Words(
        "got longer", "longer", "shorter", "to the instruction", "",
        "instructions retired", "a path length, never a time",
    ),
    Grade.EXACT_LINES: Words(
        "fetched more lines", "with more", "with fewer", "in lines", "lines ",
        "lines fetched from other CPUs in turns", "no time, as nobody waits",
    ),
}  # fmt: skip


class Direction(StrEnum):
    """How a path changes, as a claim declares it."""

    LESS = "less"
    MORE = "more"
    SAME = "same"


class ClaimVerdict(StrEnum):
    """What the counts say of a claim."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    UNDECIDED = "undecided"


class FunctionPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a path's difference, in instructions per operation: they add up to it."""

    function: str
    delta: float

    @property
    def size(self) -> str:
        """The part, signed, as a page has it."""
        return f"{self.delta:+.2g}" if abs(self.delta) < 1 else f"{self.delta:+,.1f}"


class PatchPart(msgspec.Struct, frozen=True, kw_only=True):
    """What one patch did to a path, in percent of its length before that patch."""

    patch: int
    percent: float
    change: Effect


class PathRow(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario that executes changed code, before and after the whole series.

    before, after: instructions per operation; None where there is no count.  pages: how the memory
    is mapped.  patch: number of the patch with the largest part, 0 for none.  parts: of each patch
    that changed code of the path.  arch: Debian's name of the architecture.
    """

    scenario: str
    what: str
    pages: str
    operation: str
    before: float | None
    after: float | None
    change: Effect
    reason: str = ""
    patch: int = 0
    functions: tuple[FunctionPart, ...] = ()
    arch: str = HOME
    parts: tuple[PatchPart, ...] = ()

    @property
    def named(self) -> list[str]:
        """Its functions, without "3 others", each with its part."""
        own = (part for part in self.functions if part.function[:1].isidentifier())
        return [f"{part.function} {part.size}" for part in own]

    @property
    def percent(self) -> float:
        """The change in percent of before, MOST_PERCENT from none; 0 where a count is missing."""
        if not self.before or self.after is None:
            return MOST_PERCENT if self.before == 0 and self.after else 0.0
        return 100.0 * (self.after / self.before - 1)


class PatchRow(msgspec.Struct, frozen=True, kw_only=True):
    """One patch.  wrong: "does not build: ..." where it has no kernel.

    functions: the names of those that it changed.
    same_image: nothing in the image differs but line numbers of warnings.
    """

    number: int
    title: str
    wrong: str = ""
    same_image: bool = False
    functions: tuple[str, ...] = ()
    longer: int = 0
    shorter: int = 0
    worst: str = ""
    worst_percent: float = 0.0


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """The series on one architecture.

    paths: scenarios that execute changed code.  identical: counted scenarios that do not.
    unseen: changed functions that no scenario executes.  null: what building the base twice shows.
    """

    compiler: str
    null: str
    patches: tuple[PatchRow, ...] = ()
    paths: tuple[PathRow, ...] = ()
    identical: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()


class Elsewhere(Side, frozen=True, kw_only=True):
    """The series on another architecture than the page's own."""

    arch: str


class DeclaredClaim(msgspec.Struct, frozen=True, kw_only=True):
    """One claim.  percent: the least change, of `same` the largest one; None: none is declared.

    scenario: as it can be counted: of a C file with the file's whole path.
    place: who declared it: "--claim", "the cover letter", "patch 2".
    """

    scenario: str
    direction: Direction
    percent: float | None
    place: str


class JudgedClaim(DeclaredClaim, frozen=True, kw_only=True):
    """A declared claim with its verdict on one architecture; the scenario as the page has it.

    before, after: instructions per operation; None where there is no row.
    """

    verdict: ClaimVerdict
    why: str
    before: float | None = None
    after: float | None = None
    arch: str = HOME


class Since(msgspec.Struct, frozen=True, kw_only=True):
    """A path whose answer differs from that of the page before."""

    scenario: str
    was: float
    now: float
    arch: str = HOME


class CheckPage(Side, frozen=True, kw_only=True):
    """A whole page.

    claims: on every architecture.  sentences: those of the mails with a figure, quoted, not judged.
    apart: how many paths have an answer on one of this page and the page before, and not on both.
    grade: of all counts.
    """

    format: int = FORMAT
    title: str
    base: str
    config: str
    qemu: str
    kdelta: str
    decision: Ruling
    why: str
    tolerance: float
    claims: tuple[JudgedClaim, ...] = ()
    sentences: tuple[str, ...] = ()
    since: tuple[Since, ...]
    against: str = ""
    apart: int = 0
    command: str = ""
    program: str = ""
    elsewhere: tuple[Elsewhere, ...] = ()
    grade: Grade = Grade.EXACT_PATH

    @property
    def words(self) -> Words:
        """How it tells what was counted."""
        return WORDS[self.grade]

    @property
    def arches(self) -> tuple[str, ...]:
        """The architectures, amd64 first."""
        return (HOME, *(each.arch for each in self.elsewhere))

    @property
    def every(self) -> tuple[PathRow, ...]:
        """The paths of all architectures."""
        return (*self.paths, *(row for each in self.elsewhere for row in each.paths))

    @property
    def answers(self) -> dict[tuple[str, str], float]:
        """The change in percent of each path that has an answer, by architecture and scenario."""
        same = [(HOME, self.identical), *((each.arch, each.identical) for each in self.elsewhere)]
        answered = (row for row in self.every if row.change is not Effect.OPEN)
        return {(arch, name): 0.0 for arch, names in same for name in names} | {
            (row.arch, row.scenario): row.percent for row in answered
        }


def read(path: Path, probe: str | None = None) -> CheckPage:
    """A page that --json wrote.  Raises SpecError for another file, or of other counts."""
    try:
        page = files.decoded(files.given(path, _MOST_BYTES), CheckPage)
    except (msgspec.MsgspecError, ValueError) as error:
        cause = f"is no page of kdelta check: {error}"
        action = "give the file that kdelta check --json wrote"
        raise SpecError(cause, place=str(path), action=action) from error
    if page.format != FORMAT:
        raise SpecError(f"is of format {page.format}, not {FORMAT}", place=str(path))
    if (page.grade is Grade.EXACT_LINES) is not bool(probe):
        cause, action = f"counts {page.words.counted}", "give a page of the same --probe"
        raise SpecError(cause, place=str(path), action=action)
    return page
