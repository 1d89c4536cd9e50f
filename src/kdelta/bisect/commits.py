# SPDX-License-Identifier: GPL-2.0-or-later
"""Bisection over a git history: builds and measures what `git bisect` asks for.

When the ends are measured it is known which functions changed, and so which files are suspected.
The commits that touch those are searched first.  That is only a short cut: what it leads to is the
culprit only if its parent, built and measured, is good; else the whole history is searched, with
all that is known by then.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kdelta.analysis import explanation
from kdelta.bisect import judging, outcome
from kdelta.bisect.building import Builder, SourceError
from kdelta.bisect.history import Candidates, Commit, Contradiction, Culprit, History, Next
from kdelta.bisect.journal import BisectStep, Journal, Point
from kdelta.bisect.judging import PointInstrument
from kdelta.bisect.ladder import News, Tell
from kdelta.bisect.outcome import BisectionResult, Ending
from kdelta.bisect.search import Mark
from kdelta.kernels.kernel import Kernel

_SUSPECT_SHARE = 5.0  # percent of the change that a function has to make to be suspected
_MOST_FILES = 16  # suspected files; more tell nothing
_MOST_LABEL = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult:
    """What a bisection over commits came to; culprit: None when no single commit was found."""

    outcome: BisectionResult
    culprit: Commit | None
    candidates: tuple[Commit, ...] = ()


class Commits:
    """Builds and measures commit after commit; every step is in the journal."""

    def __init__(
        self,
        journal: Journal,
        history: History,
        build: Builder,
        instrument: PointInstrument,
        tell: Tell,
        *,
        paths: Sequence[str] = (),
        originals: Mapping[str, str] | None = None,
    ) -> None:
        """history: opened.  paths: only commits that touch these are searched.

        originals: of a picked history, the commits that its commits stand for.
        """
        self._journal = journal
        self._history = history
        self._build = build
        self._instrument = instrument
        self._tell = tell
        self._paths = tuple(paths)
        self._originals = originals or {}
        order = history.commits()
        self._order = {commit: at for at, commit in enumerate((history.good, *order))}
        self.count = len(order)

    def run(self) -> CommitResult:
        """Go on to the end.  Raises InfraError when this machine is at fault; call it again."""
        self._journal.reopen()
        for end in (self._history.good, self._history.bad):
            ended = outcome.of_ends(self._journal, self._instrument.findings())
            if ended:
                return self._ended(ended)
            if end not in self._journal.steps:
                self._visit(end, 0)
        ended = outcome.of_ends(self._journal, self._instrument.findings())
        if ended:
            return self._ended(ended)
        for paths in (self._suspects(), self._paths):
            found = self._search(paths) if paths is not None else None
            verdict = self._judged(found) if found is not None else None
            if verdict and (verdict.outcome.ending is Ending.STEP or paths == self._paths):
                return self._ended(verdict.outcome, verdict)
        raise AssertionError("the last search ends in a verdict")

    def original(self, commit_id: str) -> Commit:
        """The commit of the user's history that a commit is, or stands for."""
        return self._history.commit(self._originals.get(commit_id, commit_id))

    def _ended(self, found: BisectionResult, verdict: CommitResult | None = None) -> CommitResult:
        self._journal.end()
        return verdict or CommitResult(outcome=found, culprit=None)

    def _search(self, paths: Sequence[str]) -> Culprit | Candidates | Contradiction:
        """Let `git bisect` lead, over the commits that touch paths, from what is known already."""
        answer = self._history.start(paths)
        ends = (self._history.good, self._history.bad)
        for step in self._journal.state.steps:
            if step.key not in ends and not isinstance(answer, Contradiction):
                answer = self._history.mark(step.key, step.mark)
        while isinstance(answer, Next):
            step = self._visit(answer.commit, self._halvings(paths))
            answer = self._history.mark(answer.commit, step.mark)
        return answer

    def _halvings(self, paths: Sequence[str]) -> int:
        """Commits that are left to be asked for at most, if none is skipped."""
        steps = self._journal.state.steps
        low = max(self._at(step.key) for step in steps if step.mark is Mark.GOOD)
        high = min(self._at(step.key) for step in steps if step.mark is Mark.BAD)
        inside = [one for one in self._history.commits(paths) if low < self._at(one) <= high]
        return max(1, (len(inside) - 1).bit_length())

    def _judged(self, found: Culprit | Candidates | Contradiction) -> CommitResult:
        """The verdict on what a search led to: a culprit is held against its parents."""
        if isinstance(found, Contradiction):
            return CommitResult(outcome=self._invalid(found.why), culprit=None)
        if isinstance(found, Candidates):
            return self._range(found)
        commit = self._history.commit(found.commit)
        steps = [self._known(parent) for parent in commit.parents]
        for step in steps:
            if step.mark is Mark.BAD:
                why = f"{commit.short} is the first bad commit, but its parent is bad as well"
                return CommitResult(outcome=self._invalid(why), culprit=None)
            if step.mark is Mark.SKIP:
                return self._range(Candidates(commits=(step.key, commit.id)))
        own = self._journal.steps[commit.id]
        if own.same_as and own.same_as in commit.parents:
            why = f"{commit.short} changes nothing in the image"
            return CommitResult(outcome=self._invalid(why), culprit=None)
        parent = self._point(commit.parents[0])
        result = outcome.of_pair(
            self._journal, self._instrument.findings(), parent, self._point(commit.id)
        )
        return CommitResult(outcome=result, culprit=self.original(commit.id))

    def _known(self, commit_id: str) -> BisectStep:
        """The step of a commit, made now when there is none."""
        return self._journal.steps.get(commit_id) or self._visit(commit_id, 1)

    def _range(self, found: Candidates) -> CommitResult:
        """The verdict when skipped commits hide the first bad one."""
        steps = self._journal.state.steps
        good = max((s for s in steps if s.mark is Mark.GOOD), key=lambda s: self._at(s.key))
        bad = min((s for s in steps if s.mark is Mark.BAD), key=lambda s: self._at(s.key))
        skipped = sorted({*found.commits} - {bad.key}, key=self._at)
        for commit in skipped:
            self._place(commit)
        result = outcome.of_pair(
            self._journal,
            self._instrument.findings(),
            self._point(good.key),
            self._point(bad.key),
            skipped=[self._point(commit) for commit in skipped],
        )
        every = (*skipped, bad.key)
        return CommitResult(
            outcome=result,
            culprit=None,
            candidates=tuple(self.original(commit) for commit in every),
        )

    def _invalid(self, why: str) -> BisectionResult:
        points = self._journal.state.points
        found = outcome.of_pair(self._journal, self._instrument.findings(), points[0], points[-1])
        return replace(found, ending=Ending.INVALID, reasons=(why,), share=None)

    def _visit(self, commit_id: str, left: int) -> BisectStep:
        """Build, measure and keep one commit."""
        self._place(commit_id)
        point = self._point(commit_id)
        self._tell(News(point=point, left=left))
        step = self._built_and_measured(point)
        self._journal.add(step)
        seen = self._instrument.findings()
        self._tell(
            News(point=point, left=left, step=step, value=seen.value(point), unit=seen.unit())
        )
        return step

    def _built_and_measured(self, point: Point) -> BisectStep:
        begun = time.monotonic()
        try:
            built = self._build(point.key)
        except SourceError as error:
            seconds = round(time.monotonic() - begun, 1)
            why = f"it does not build: {error.first}"
            return BisectStep(key=point.key, mark=Mark.SKIP, why=why, build_s=seconds)
        twin = self._twin(built.kernel)
        if twin is not None:
            return replace(
                twin,
                key=point.key,
                trials=(),
                same_as=twin.key,
                build_s=built.seconds,
                mark=self._end_mark(point) or twin.mark,
            )
        return self._instrument.step(point, built.kernel, built.seconds)

    def _twin(self, kernel: Kernel) -> BisectStep | None:
        """A step that measured the very same image."""
        for step in self._journal.state.steps:
            own = step.kernel
            if step.trials and own and own.image_sha256 == kernel.image_sha256:
                return step
        return None

    def _end_mark(self, point: Point) -> Mark | None:
        """The bad end has its mark even when it is the same image as the good one."""
        return Mark.BAD if point.key == self._history.bad else None

    def _place(self, commit_id: str) -> None:
        """Make a commit one of the journal's points, in the order of the history."""
        points = self._journal.state.points
        if any(point.key == commit_id for point in points):
            return
        every = (*points, self._described(commit_id))
        self._journal.arrange(tuple(sorted(every, key=lambda point: self._at(point.key))))

    def _at(self, commit_id: str) -> float:
        """Where a commit stands in the history; what is not of it, a parent from before good."""
        return self._order.get(commit_id, 0.5)

    def _described(self, commit_id: str) -> Point:
        return described(self.original(commit_id), commit_id)

    def _point(self, commit_id: str) -> Point:
        return next(point for point in self._journal.state.points if point.key == commit_id)

    def _suspects(self) -> tuple[str, ...] | None:
        """Files of the functions that changed; None when they do not narrow the search down."""
        if self._paths or not self._instrument.findings().method.explains:
            return None
        points, question = self._journal.state.points, self._journal.state.question
        found = explanation.explain(
            judging.record(self._journal),
            points[0].label,
            points[-1].label,
            phase=question.phase,
        )
        functions = [
            row.function
            for row in found.functions
            if row.share is not None and abs(row.share) >= _SUSPECT_SHARE
        ]
        files = self._history.files_with(functions, self._history.bad)
        touching = len(self._history.commits(files)) if 0 < len(files) <= _MOST_FILES else 0
        # It costs one more build, of the parent; so it has to save at least two.
        if not touching or 4 * touching > self.count:
            return None
        named = f"{', '.join(functions[:3])} in {', '.join(files[:3])}"
        note = f"suspected: {named}; first the {touching} commits of {self.count} that touch it"
        self._tell(News(point=points[0], left=0, note=note))
        return files


def described(commit: Commit, key: str) -> Point:
    """A commit as a point; key: its own id, or that of the picked commit that stands for it."""
    return Point(key=key, label=commit.short[:_MOST_LABEL], title=commit.subject)
