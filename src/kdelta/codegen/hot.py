# SPDX-License-Identifier: GPL-2.0-or-later
"""How often an exact run executed each instruction of a function, per operation.

A trial of an exact run keeps its counts per address (counts.bin.gz).  The run's own image says
which instruction an address is; a listing from elsewhere may be marked with these counts only
when its code is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kdelta.attribution.insns import CountedWindow
from kdelta.disassembly.code import Code
from kdelta.errors import SpecError
from kdelta.journal import raw_counts
from kdelta.sample import PhaseCounts, TrialResult

HOT = 0.5  # executed at least so often per operation


@dataclass(frozen=True, slots=True, kw_only=True)
class Hot:
    """Counts of a function in one window.

    counts: executions of each instruction, by its index.  elsewhere: executions in the function
    at addresses where the image has no instruction: code that the kernel patched at boot.
    """

    source: str  # run, kernel and phase, for people
    operation: str  # "page"
    operations: int
    counts: tuple[int, ...]
    elsewhere: int

    @property
    def per_operation(self) -> float:
        """Instructions of the function per operation, all of them."""
        return (sum(self.counts) + self.elsewhere) / self.operations

    @property
    def path(self) -> tuple[int, ...]:
        """Indices of the instructions executed at least HOT times per operation."""
        return tuple(i for i, n in enumerate(self.counts) if n >= HOT * self.operations)

    def rate(self, index: int) -> float:
        """Executions of an instruction per operation."""
        return self.counts[index] / self.operations


def of_phase(
    folder: Path, index: int, result: TrialResult, phase: str, start: int, code: Code, label: str
) -> Hot:
    """Counts of a function that starts at an address, in the window that stands for a phase.

    folder, index: of the run and the trial; label: of run and kernel, for people.  Raises SpecError
    when the trial has no such phase or kept no counts, StoreError when these are damaged.
    """
    found = next((row for row in result.exact.phases if row.phase == phase), None)
    if found is None:
        known = ", ".join(row.phase for row in result.exact.phases)
        raise SpecError(f"the run has no phase {phase!r}", action=f"it has: {known}")
    window = raw_counts.typical_windows(folder, index, result)[phase]
    return of_window(window, start, code, found, f"{label}, phase {phase}")


def hottest(
    folder: Path, index: int, result: TrialResult, phase: str, start: int, code: Code, label: str
) -> Hot:
    """As of_phase; without a phase, in the one that executed most of the function.

    Raises SpecError when the function was not executed.
    """
    names = [phase] if phase else [row.phase for row in result.exact.phases]
    counts = [of_phase(folder, index, result, name, start, code, label) for name in names]
    best = max(counts, key=lambda row: row.per_operation, default=None)
    if best is None or best.per_operation == 0:
        raise SpecError(f"it did not execute {code.name}")
    return best


def of_window(
    window: CountedWindow, start: int, code: Code, phase: PhaseCounts, source: str
) -> Hot:
    """Counts of a function that starts at an address, in one window."""
    at = {instruction.offset: i for i, instruction in enumerate(code.instructions)}
    counts = [0] * len(code.instructions)
    elsewhere = 0
    for address, count in window.addresses():
        offset = address - start
        if 0 <= offset < code.size:
            index = at.get(offset)
            if index is None:
                elsewhere += count
            else:
                counts[index] += count
    return Hot(
        source=source,
        operation=phase.operation,
        operations=phase.operations * phase.layouts,
        counts=tuple(counts),
        elsewhere=elsewhere,
    )


def trace(hot: Hot, code: Code) -> tuple[int, ...]:
    """The hot instructions in the order in which they run, from the head of the hot loop.

    Where a branch may go both ways the more frequent one is followed.  Without a loop: by address.
    """
    path = hot.path
    if not path:
        return ()
    most = max(hot.counts[i] for i in path)
    inside = set(path)
    for head in (i for i in path if hot.counts[i] * 2 >= most):
        found = _loop(head, inside, hot.counts, code)
        if found:
            return found
    return path


def _loop(head: int, inside: set[int], counts: Sequence[int], code: Code) -> tuple[int, ...]:
    """Instructions from a head back to it; empty when the way leaves the hot ones."""
    at, way, seen = head, [head], {head}
    while True:
        instruction = code.instructions[at]
        onwards = [] if instruction.raw.split()[0] in ("jmp", "b") else [at + 1]
        if instruction.to is not None:
            onwards.append(instruction.to)
        nexts = [i for i in onwards if i in inside]
        if not nexts:
            return ()
        at = max(nexts, key=lambda i: (counts[i], i == head))
        if at == head:
            return tuple(way)
        if at in seen:
            return ()
        seen.add(at)
        way.append(at)
