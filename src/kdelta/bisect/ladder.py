# SPDX-License-Identifier: GPL-2.0-or-later
"""Bisection over points that lie in a row: the releases of the archive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kdelta.bisect import outcome
from kdelta.bisect.journal import BisectStep, Journal, Point
from kdelta.bisect.judging import PointInstrument
from kdelta.bisect.outcome import BisectionResult
from kdelta.bisect.search import Ask, Found, Mark, audit_point, next_step
from kdelta.errors import InfraError, SpecError
from kdelta.kernels.kernel import Kernel

_AWAY = 2  # kernels in a row that could not be had: then the mirror is away, not a kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """Something to show: a point, before (step None) or after it was measured.

    left: further measurements, at most, unless some fail; value: per operation.  note: something
    else to say, of no point in particular.
    """

    point: Point
    left: int
    step: BisectStep | None = None
    value: float | None = None
    unit: str = ""
    note: str = ""


Tell = Callable[[News], None]


class LadderSearch:
    """Measures point after point until two neighbours are left; every step is in the journal."""

    def __init__(
        self,
        journal: Journal,
        instrument: PointInstrument,
        resolve: Callable[[Point], Kernel],
        tell: Tell,
        *,
        weights: Sequence[float] | None = None,
        audits: int = 0,
    ) -> None:
        """resolve: a point's kernel; raises SpecError or InfraError.

        weights: as search.next_step takes them.  audits: points to measure beyond the result,
        where least is known, which shows a history that goes back and forth.
        """
        self._journal = journal
        self._instrument = instrument
        self._resolve = resolve
        self._tell = tell
        self._weights = weights
        self._audits = audits
        self._absent = 0

    def run(self) -> BisectionResult:
        """Go on to the end.  Raises InfraError when this machine is at fault; call it again."""
        self._journal.reopen()
        while True:
            findings = self._instrument.findings()
            ended = outcome.of_ends(self._journal, findings)
            asked = None if ended else self._next()
            if isinstance(asked, Found):
                ended = outcome.of_search(self._journal, findings, asked)
            if ended:
                self._journal.end()
                return ended
            if isinstance(asked, Ask):
                self._visit(asked)

    def _next(self) -> Ask | Found:
        points, marks = self._journal.state.points, self._journal.marks
        asked = next_step(len(points), marks, weights=self._weights)
        audits = self._audits - self._audited()
        if isinstance(asked, Found) and audits > 0:
            point = audit_point(len(points), marks)
            if point is not None:
                return Ask(point=point, left=audits)
        return asked

    def _audited(self) -> int:
        """Steps that were made after the search had its first result."""
        points = self._journal.state.points
        numbers = {point.key: number for number, point in enumerate(points)}
        marks: dict[int, Mark] = {}
        for at, step in enumerate(self._journal.state.steps):
            if len(marks) > 1 and isinstance(
                next_step(len(points), marks, weights=self._weights), Found
            ):
                return len(self._journal.state.steps) - at
            marks[numbers[step.key]] = step.mark
        return 0

    def _visit(self, asked: Ask) -> None:
        point = self._journal.state.points[asked.point]
        self._tell(News(point=point, left=asked.left))
        step = self._measured(point)
        self._journal.add(step)
        seen = self._instrument.findings()
        value = seen.value(point) if step.trials else None
        self._tell(News(point=point, left=asked.left - 1, step=step, value=value, unit=seen.unit()))

    def _measured(self, point: Point) -> BisectStep:
        try:
            kernel = self._resolve(point)
        except (InfraError, SpecError) as error:
            self._absent += 1
            ends = self._journal.state.points[0], self._journal.state.points[-1]
            if self._absent >= _AWAY or point in ends:
                raise
            return BisectStep(
                key=point.key, mark=Mark.SKIP, temporary=True, why=f"it cannot be had: {error}"
            )
        self._absent = 0
        return self._instrument.step(point, kernel, None)
