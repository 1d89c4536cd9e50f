# SPDX-License-Identifier: GPL-2.0-or-later
"""Bisection: measures the points that `search` asks for, until the change is found.

Releases lie in one row, commits in several (docs/bisect.md).
Every step is in the journal before the next one begins.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kdelta.bisect import evidence
from kdelta.bisect.history import Builder, Commit, History
from kdelta.bisect.journal import BisectStep, Journal, Point
from kdelta.bisect.search import Found, Mark, next_step
from kdelta.errors import InfraError, SpecError
from kdelta.kernels.kernel import Kernel
from kdelta.source.make import SourceError

_AWAY = 2  # kernels in a row that could not be had: then the mirror is away, not a kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """A point before (step None) or after it was measured; left: measurements, at most."""

    point: Point
    left: int
    step: BisectStep | None = None
    value: float | None = None
    unit: str = ""


Tell = Callable[[News], None]


@dataclass(slots=True)
class Bisection(ABC):
    """What bisections of releases and of commits share."""

    journal: Journal
    instrument: evidence.PointCounting
    tell: Tell

    def run(self) -> evidence.BisectionResult:
        """Go on to the end.  Raises InfraError when this machine is at fault; call it again."""
        self.journal.reopen()
        found = self._found()
        self.journal.write(ended=True)
        return found

    @abstractmethod
    def _found(self) -> evidence.BisectionResult:
        """Search to the end."""

    @abstractmethod
    def _measured(self, point: Point) -> BisectStep:
        """Measure a point, and say which end it is like."""

    def _of_ends(self) -> evidence.BisectionResult | None:
        return evidence.of_ends(self.instrument.findings())

    def _visit(self, point: Point, left: int) -> BisectStep:
        """Measure a point, keep its step, and tell it.  left: measurements, this one included."""
        self.tell(News(point=point, left=left))
        step = self._measured(point)
        self.journal.write(steps=(*self.journal.state.steps, step))
        seen = self.instrument.findings()
        value = seen.value(point) if step.trials or step.same_as else None
        left = max(0, left - 1)
        self.tell(News(point=point, left=left, step=step, value=value, unit=seen.unit()))
        return step


@dataclass(slots=True)
class ReleaseBisection(Bisection):
    """Measures release after release, until two neighbours are left.

    resolve: a point's kernel; raises SpecError or InfraError.  weights: of next_step.
    """

    resolve: Callable[[Point], Kernel]
    weights: Sequence[float]
    _absent: int = 0

    def _found(self) -> evidence.BisectionResult:
        points = self.journal.state.points
        while not (ended := self._of_ends()):
            asked = next_step(self.journal.marks, self.weights)
            if isinstance(asked, Found):
                return evidence.of_pair(
                    self.instrument.findings(),
                    points[asked.good],
                    points[asked.bad],
                    skipped=[points[at] for at in asked.skipped],
                )
            self._visit(points[asked.point], asked.left)
        return ended

    def _measured(self, point: Point) -> BisectStep:
        try:
            kernel = self.resolve(point)
        except (InfraError, SpecError) as error:
            self._absent += 1
            if self._absent >= _AWAY or point in self.journal.ends:
                raise
            why = f"it cannot be had: {error}"
            return BisectStep(key=point.key, mark=Mark.SKIP, temporary=True, why=why)
        self._absent = 0
        return self.instrument.step(point, kernel, None)


@dataclass(slots=True)
class CommitBisection(Bisection):
    """Builds and measures commit after commit.

    history: opened.  build: raises SourceError for a commit that does not build.
    """

    history: History
    build: Builder

    def _found(self) -> evidence.BisectionResult:
        for end in (self.history.good, self.history.bad):
            if not self._of_ends() and end not in self.journal.steps:
                self._visit(self._placed(end), 0)
        if ended := self._of_ends():
            return ended
        good, tip, outside = self.history.good, self.history.bad, frozenset[str]()
        while True:
            row = self.history.row(tip, outside)
            keys = (good, *(commit for commit, _ in row))
            found = self._searched(keys, [float(weight) for _, weight in row])
            if found.skipped:
                return self._range(keys[found.good], keys[found.good + 1 : found.bad + 1])
            commit = self.history.commit(keys[found.bad])
            known = self.journal.steps
            steps = [known.get(one) or self._visit(self._placed(one), 1) for one in commit.parents]
            later = next((step for step in steps[1:] if step.mark is Mark.BAD), None)
            if later is None or steps[0].mark is Mark.BAD:
                return self._judged(commit, steps)
            good = steps[0].key if steps[0].mark is Mark.GOOD else keys[found.good]
            tip = later.key
            outside = self.history.reached(good)

    def _searched(self, keys: Sequence[str], weights: Sequence[float]) -> Found:
        """Search a row of commits, of which the first is good and the last bad."""
        while True:
            steps = self.journal.steps
            marks = {at: steps[key].mark for at, key in enumerate(keys) if key in steps}
            # What a row begins with has been measured beside other commits, or stands for good.
            asked = next_step(marks | {0: Mark.GOOD}, weights)
            if isinstance(asked, Found):
                return asked
            self._visit(self._placed(keys[asked.point]), asked.left)

    def _judged(self, commit: Commit, parents: Sequence[BisectStep]) -> evidence.BisectionResult:
        own = self.journal.steps[commit.id]
        if any(step.mark is Mark.BAD for step in parents):
            why = f"{commit.short} is the first bad commit, but its parent is bad as well"
            return self._invalid(why)
        if skipped := [step.key for step in parents if step.mark is Mark.SKIP]:
            return self._range(None, (*skipped, commit.id))
        if own.same_as and own.same_as in commit.parents:
            return self._invalid(f"{commit.short} changes nothing in the image")
        pair = self._placed(commit.parents[0]), self._placed(commit.id)
        return replace(evidence.of_pair(self.instrument.findings(), *pair), culprit=commit)

    def _range(self, good: str | None, keys: Sequence[str]) -> evidence.BisectionResult:
        """The verdict when skipped commits hide the first bad one, the last of keys."""
        if good is None:
            marked = [step for step in self.journal.state.steps if step.mark is Mark.GOOD]
            good = max((step.key for step in marked), key=self.history.place)
        *between, bad = map(self._placed, keys)
        found = self.instrument.findings()
        result = evidence.of_pair(found, self._placed(good), bad, skipped=between)
        return replace(result, candidates=tuple(map(self.history.commit, keys)))

    def _invalid(self, why: str) -> evidence.BisectionResult:
        found = evidence.of_pair(self.instrument.findings(), *self.journal.ends)
        return replace(found, ending=evidence.Ending.INVALID, reasons=(why,), share=None)

    def _measured(self, point: Point) -> BisectStep:
        begun = time.monotonic()
        try:
            built = self.build(point.key)
        except SourceError as error:
            taken, why = round(time.monotonic() - begun, 1), f"it does not build: {error.first}"
            return BisectStep(key=point.key, mark=Mark.SKIP, why=why, build_s=taken)
        image = built.kernel.image_sha256
        booted = (each for each in self.journal.state.steps if each.trials)
        same = next((s for s in booted if s.kernel and s.kernel.image_sha256 == image), None)
        if same is None:
            return self.instrument.step(point, built.kernel, built.seconds)
        # The bad end is bad even when it is the image of the good one: then the ends are the same.
        mark = Mark.BAD if point.key == self.history.bad else same.mark
        return replace(
            same, key=point.key, trials=(), same_as=same.key, build_s=built.seconds, mark=mark
        )

    def _placed(self, commit_id: str) -> Point:
        """A commit as one of the journal's points, which are in the order of the history."""
        points = self.journal.state.points
        known = next((point for point in points if point.key == commit_id), None)
        if known is None:
            known = self.history.commit(commit_id).point
            every = sorted((*points, known), key=lambda point: self.history.place(point.key))
            self.journal.write(points=tuple(every))
        return known
