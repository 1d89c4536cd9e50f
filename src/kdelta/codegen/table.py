# SPDX-License-Identifier: GPL-2.0-or-later
"""The table of one function's code: variants of a source by compilers, or released kernels.

Everything that is shown is decided here; rendering.codegen lays it out.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from enum import StrEnum
from itertools import groupby, zip_longest
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from kdelta import arch
from kdelta.analysis import calls
from kdelta.analysis.calls import CallExplanation
from kdelta.analysis.explanation import Explanation, base_name
from kdelta.analysis.findings import lines_between
from kdelta.analysis.work import WorkExplanation, compared
from kdelta.archive.apt import Progress
from kdelta.disassembly import objects
from kdelta.disassembly.code import Code, ExecutedInsn, executed_code
from kdelta.disassembly.image import opened
from kdelta.errors import KdeltaError, SpecError
from kdelta.journal import artifacts
from kdelta.journal.run import RunRecord
from kdelta.kernels.kernel import Kernel
from kdelta.probes.calls import PathNode
from kdelta.source import build
from kdelta.source.build import Beside
from kdelta.source.kconfig import Config
from kdelta.source.tree import SourceTree, changes
from kdelta.toolchains import Toolchain

_OBJECT = re.compile(r"(?:[A-Za-z0-9_.-]+/)+[A-Za-z0-9_.-]+\.o")
_ERROR = re.compile(r"^(\S+?:\d+:(?:\d+:)? (?:fatal )?error: .+)$", re.MULTILINE)
_OF_BUILD = ("Kconfig", "Makefile", "Kbuild")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One variant with one compiler, or one kernel; problem: why code is None."""

    row: str  # the variant or kernel
    column: str  # the compiler; "" in a table of kernels
    code: Code | None = None
    cold: Code | None = None
    problem: str = ""

    @property
    def normal(self) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """What makes two cells have the same code: the normal form, with its cold part."""
        if self.code is None:
            return None
        return self.code.normal, self.cold.normal if self.cold is not None else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeTable:
    """All cells, row by row; the first row is what the others are compared with."""

    function: str
    place: str  # "mm/mincore.o", "released images"
    title: str  # of the source, or ""
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    banners: Mapping[str, str]  # of the compilers, or of what the kernels say of theirs
    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()

    def cell(self, row: str, column: str) -> Cell:
        """The cell of a row and column."""
        return next(cell for cell in self.cells if (cell.row, cell.column) == (row, column))

    def groups(self, column: str) -> dict[str, str]:
        """Row -> letter: rows of a column with the same letter have the same code."""
        letters: dict[tuple[tuple[str, ...], tuple[str, ...]], str] = {}
        found = {}
        for cell in (self.cell(row, column) for row in self.rows):
            if cell.normal is not None:
                number = len(letters)
                letter = chr(ord("A") + number % 26) + (str(number // 26) if number > 25 else "")
                found[cell.row] = letters.setdefault(cell.normal, letter)
        return found

    def changed(self, row: str, column: str, kind: str) -> dict[str, dict[str, int]] | None:
        """What differs from the first row in "calls" (and jumps out) or "data", all other names."""
        cells = [self.cell(one, column) for one in (self.rows[0], row)]
        if any(cell.code is None for cell in cells):
            return None
        before, after = (
            [name for code in (cell.code, cell.cold) if code for name in getattr(code, kind)]
            for cell in cells
        )
        return changed_names(before, after)


def of_sources(
    trees: Sequence[SourceTree],
    names: Sequence[str],
    target: str,
    function: str,
    *,
    config: Config,
    chains: Sequence[Toolchain],
    confined: bool = False,
    progress: Progress | None = None,
) -> CodeTable:
    """Compile one object of a source and its variants with several compilers.

    trees: the source first, then variants of it; names: of the rows.  confined: the source is
    made as a stranger's; of variants only a compiler reads a text.  Nothing is linked or booted.
    A variant that does not compile is a cell with its problem.
    """
    if not _OBJECT.fullmatch(target) or ".." in PurePosixPath(target).parts:
        cause = f"{target[:80]!r} is not an object of a kernel"
        raise SpecError(cause, action="name one: mm/mincore.o")
    for tree in trees[1:]:
        _check(trees[0], tree)
    cells: dict[tuple[str, str], Cell] = {}
    lost: dict[str, None] = {}
    how: dict[str, Any] = {"targets": [target], "progress": progress, "confined": confined}
    for chain in chains:
        with build.prepared(trees[0], config, chain, **how) as maker:
            given = (maker.output / ".config").read_text(errors="replace")
            lost |= dict.fromkeys(f"{chain.name}: without {line}" for line in config.lost(given))
            for name, tree in zip(names, trees, strict=True):
                with build.beside(maker, trees[0], tree, [target]) as place:
                    cells[name, chain.name] = compiled(place, target, function, name)
    columns = tuple(chain.name for chain in chains)
    table = CodeTable(
        function=function,
        place=target,
        title=f"{trees[0].title}, configuration {config.name}",
        rows=tuple(names),
        columns=columns,
        banners={chain.name: chain.banner for chain in chains},
        cells=tuple(cells[row, column] for row in names for column in columns),
    )
    return replace(table, notes=(*_notes(table), *lost))


def _check(base: SourceTree, tree: SourceTree) -> None:
    """Raise SpecError for a variant that removes a file, or changes one of the build."""
    for path, status in changes(base, tree).items():
        if status not in ("A", "M") or Path(path).name.startswith(_OF_BUILD):
            cause = f"the variant {tree.title} removes {path} or changes how it is built"
            action = "build both trees and compare images: kdelta codegen FUNCTION --kernels"
            raise SpecError(cause, action=action)


def compiled(place: Beside, target: str, function: str, name: str) -> Cell:
    """The cell of a row, made of the source as it is now."""
    column = place.maker.chain.name
    with tempfile.TemporaryDirectory(prefix="kdelta-codegen-") as scratch:
        made = Path(scratch, "made.o")
        done = place.compiled(target, made)
        if done.returncode or not made.exists():
            error = _ERROR.search(done.stderr)
            why = error[1][:300] if error else done.last_words
            problem = f"{target} does not compile with {column}: {why}"
            return Cell(row=name, column=column, problem=problem)
        try:
            found = objects.read(made, function)
        except SpecError as error:
            return Cell(row=name, column=column, problem=error.cause)
    return Cell(row=name, column=column, code=found.code, cold=found.cold)


def _notes(table: CodeTable) -> Iterable[str]:
    clones = {cell.code.name for cell in table.cells if cell.code} - {table.function}
    if clones:
        yield f"some compilers made a clone of the function: {', '.join(sorted(clones))}"
    if len(table.rows) > 1:
        for column in table.columns:
            letters = table.groups(column)
            first = letters.get(table.rows[0])
            same = [r for r in table.rows[1:] if letters.get(r) == first and first is not None]
            if same:
                yield f"{column} makes the code of {table.rows[0]} of {' and of '.join(same)}"


References = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]
"""The first row's calls, and of the others row and words."""


def reference_changes(table: CodeTable) -> dict[References, list[str]]:
    """What a function calls and refers to, in words, with the columns that say the same."""
    found: dict[References, list[str]] = {}
    for column in table.columns:
        first = table.cell(table.rows[0], column)
        if first.code is not None:
            calls = tuple(sorted(set(first.code.calls)))
            others = tuple((row, _words(table, row, column)) for row in table.rows[1:])
            found.setdefault((calls, others), []).append(column)
    return found


def _words(table: CodeTable, row: str, column: str) -> str:
    same, parts = [], []
    for what in ("calls", "data"):
        if (change := table.changed(row, column, what)) is None:
            continue
        signed = [("+", *each) for each in change["added"].items()]
        signed += [("-", *each) for each in change["removed"].items()]
        words = (f"{sign}{name}{f' (x{n})' if n > 1 else ''}" for sign, name, n in signed)
        if signed:
            parts.append(f"{what} {' '.join(words)}")
        else:
            same.append(what)
    first = [f"the same {', '.join(same)}"] if same else []
    return "; ".join(first + parts) or "no code"


class Change(StrEnum):
    """How the two sides of a row relate, as the mark between them says."""

    EQUAL = " "
    TARGET = "~"  # the same branch, to places that do not correspond
    CHANGED = "!"
    LEFT = "<"  # only there
    RIGHT = ">"


class AlignedRow(NamedTuple):
    """One row: indices of the instructions side by side, None where a side has none."""

    change: Change
    left: int | None
    right: int | None


def hunks(rows: Sequence[AlignedRow], context: int) -> Iterator[tuple[AlignedRow, ...]]:
    """Stretches of rows around the differences, with so many equal rows on each side."""
    changed = [at for at, row in enumerate(rows) if row.change is not Change.EQUAL]
    wanted = {near for at in changed for near in range(at - context, at + context + 1)}
    for want, places in groupby(range(len(rows)), wanted.__contains__):
        if want:
            yield tuple(rows[at] for at in places)


def compare(left: Code, right: Code) -> list[AlignedRow]:
    """Align two listings; branches inside count as equal when their targets are aligned."""
    ours = [instruction.text for instruction in left.instructions]
    theirs = [instruction.text for instruction in right.instructions]
    matcher = SequenceMatcher(None, ours, theirs, autojunk=False)
    pairs = [
        (one, other, tag == "equal")
        for tag, a, end_a, b, end_b in matcher.get_opcodes()
        for one, other in zip_longest(range(a, end_a), range(b, end_b))
    ]
    across = {a: b for a, b, same in pairs if a is not None and b is not None and same}
    rows = []
    for a, b, same in pairs:
        if a is None or b is None:
            change = Change.RIGHT if a is None else Change.LEFT
        elif not same:
            change = Change.CHANGED
        else:
            to, other = left.instructions[a].to, right.instructions[b].to
            fits = to is None or other == across.get(to)
            change = Change.EQUAL if fits else Change.TARGET
        rows.append(AlignedRow(change, a, b))
    return rows


def changed_names(before: Sequence[str], after: Sequence[str]) -> dict[str, dict[str, int]]:
    """What of two collections of names is "added" and "removed", with how many times more."""
    old, new = Counter(before), Counter(after)
    sides = {"added": new - old, "removed": old - new}
    return {side: dict(sorted(more.items())) for side, more in sides.items()}


# ---- one function in kernel images, and what a stored exact run kept beside its counts -----------


COLUMN = "image"
PATCHED = (
    "Code as in the images' files: what a kernel patches while it boots (alternatives, static "
    "keys, static calls) is shown as it was built"
)


def of_kernels(kernels: Sequence[Kernel], function: str) -> CodeTable:
    """The function in each image; one without it is a cell with its problem."""
    rows = tuple(dict.fromkeys(kernel.reference for kernel in kernels))
    by_reference = {kernel.reference: kernel for kernel in kernels}
    cells = tuple(_cell(by_reference[row], function) for row in rows)
    if all(cell.code is None for cell in cells):
        raise SpecError(cells[0].problem if cells else "no kernels are given")
    notes = [PATCHED]
    if len({kernel.arch for kernel in kernels}) > 1:
        notes.append("the kernels are of several architectures")
    others = (kernel for reference, kernel in by_reference.items() if reference != kernel.release)
    notes += [f"{kernel.reference} is {kernel.release}" for kernel in others]
    return CodeTable(
        function=function,
        place="in kernel images",
        title="",
        rows=rows,
        columns=(COLUMN,),
        banners={},
        cells=cells,
        notes=tuple(notes),
    )


def _cell(kernel: Kernel, function: str) -> Cell:
    try:
        image, name = opened(kernel.image, kernel.release), f"{function}.cold"
        code = image.function(function)
        cold = image.function(name) if name in image else None
        return Cell(row=kernel.reference, column=COLUMN, code=code, cold=cold)
    except KdeltaError as error:
        return Cell(row=kernel.reference, column=COLUMN, problem=error.cause)


Trees = Sequence[Sequence[PathNode]]


def ran(
    folder: Path, record: RunRecord, side: Sequence[tuple[int, str]], function: str
) -> tuple[ExecutedInsn, ...]:
    """What ran of a function and its clones; side: trial and phase of each window of a kernel."""
    counted: list[tuple[int, bytes, int]] = []
    places: dict[tuple[int, int], None] = {}
    names: dict[int, str] = {}
    architecture = arch.native()
    for index, phase in side:
        told = artifacts.kept_details(folder, index).functions
        for name in told:
            if function in (name, base_name(name)):
                places |= dict.fromkeys(told[name])
        names |= {start: name for name in told for start, _ in told[name]}
        trial = next(one for one in record.trials if one.index == index)
        if trial.result is None:
            continue
        architecture = arch.of(record.arms[trial.arm].kernel.arch)
        counted += artifacts.typical_windows(folder, index, trial.result)[phase].instructions()
    return tuple(
        one
        for start, end in places
        for one in executed_code(counted, start, end, architecture, names)
    )


@dataclass(slots=True)
class Recorded:
    """What a run kept beside counts; raises SpecError for what not.  whole: with all functions."""

    folder: Path
    record: RunRecord
    whole: Explanation
    point: str | None
    _paths: CallExplanation | None = None

    def paths(self, found: Explanation) -> CallExplanation:
        """The difference by call paths; found: the explanation, always the same."""
        self._paths = self._paths or calls.explained(found, *self.trees())
        return self._paths

    def trees(self) -> list[Trees]:
        """The call trees of the old and the new kernel."""
        kept = artifacts.kept_calls
        return [[kept(self.folder, *one) for one in side] for side in self._sides]

    def work(self) -> WorkExplanation:
        """Kinds of work, memory, shared lines and values."""
        kept = artifacts.kept_details
        old, new = ([(kept(self.folder, *one), one[1]) for one in side] for side in self._sides)
        found = compared(self.whole, old, new)
        if found.sharing is None:
            return found
        return replace(found, lines=lines_between(self.record, self.whole, self.point))

    def ran(self, function: str) -> tuple[tuple[ExecutedInsn, ...], tuple[ExecutedInsn, ...]]:
        """What ran of a function under the old and the new kernel, whatever each calls it."""
        named = zip(self._sides, self.whole.names(function), strict=True)
        old, new = (ran(self.folder, self.record, side, name) for side, name in named)
        return old, new

    @property
    def _sides(self) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
        return calls.sources(self.record, self.whole, self.point)
