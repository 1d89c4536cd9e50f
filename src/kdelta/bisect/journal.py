# SPDX-License-Identifier: GPL-2.0-or-later
"""What a bisection has done so far, on the disk after every step, so that a kill costs one step.

FOLDER/bisect.json               the question and all steps (written whole or not at all)
FOLDER/trials/0003/result.json   what trial 3 measured, as in the folder of a run
FOLDER/run.json, study.toml      once it has ended: a run, for `kdelta show` and `kdelta explain`
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from kdelta.bisect.search import Likeness, Mark
from kdelta.errors import StoreError
from kdelta.journal import files, results
from kdelta.sample import KernelIdentity, TrialResult
from kdelta.study.spec import Study

log = logging.getLogger(__name__)

BISECTIONS = files.FolderKind(
    file="bisect.json", word="bisection", first="make one with: kdelta bisect releases"
)
FORMAT = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked; equal questions are one bisection, which the second one goes on with.

    kind: "releases" or "tree".  study: its one scenario, measured on its two kernels, good and bad.
    options: whatever else decides which points there are.
    """

    kind: str
    phase: str
    study: Study
    options: dict[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Equal for equal questions."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A place in the history, by its exact key.  label: for tables; title: of a commit."""

    key: str
    label: str
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectStep:
    """What became of one point.

    trials: of the folder, empty when it was not booted.  mark: what the search was told.
    standing, position and beyond: see search.Position; None when it was not measured or is an
    end.  why: one sentence for a SKIP and for whatever is to be told.  same_as: the key of the
    point with the same image, whose measurement counts for this one too.  build_s: seconds that
    its build took, failed or not; 0: it was in the cache; None: there was none.
    """

    key: str
    mark: Mark
    trials: tuple[int, ...] = ()
    standing: Likeness | None = None
    position: float | None = None
    beyond: bool = False
    why: str = ""
    kernel: KernelIdentity | None = None
    same_as: str = ""
    build_s: float | None = None
    temporary: bool = False  # this machine's fault: tried again when the bisection goes on


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectState:
    """The content of bisect.json.  points: in order, from the good to the bad end."""

    format: int
    run_id: str
    digest: str
    question: Question
    created: str
    points: tuple[Point, ...]
    steps: tuple[BisectStep, ...] = ()
    ended: bool = False


class Journal:
    """One bisection's folder.  Raises StoreError when it cannot be read or written."""

    def __init__(self, folder: Path, state: BisectState) -> None:
        self.folder = folder
        self.state = state
        self._read: dict[int, tuple[object, TrialResult]] = {}  # with what tells a file's change

    @property
    def steps(self) -> dict[str, BisectStep]:
        """The steps by their point's key, in the order in which they were made."""
        return {step.key: step for step in self.state.steps}

    @property
    def ends(self) -> tuple[Point, Point]:
        """The good end and the bad one."""
        return self.state.points[0], self.state.points[-1]

    @property
    def marks(self) -> dict[int, Mark]:
        """The steps as the search takes them, in their order: number of a point -> mark."""
        numbers = {point.key: number for number, point in enumerate(self.state.points)}
        return {numbers[step.key]: step.mark for step in self.state.steps}

    def reopen(self) -> None:
        """Forget what was only this machine's fault, and ends that could not be measured."""
        ends = {end.key for end in self.ends}
        kept = tuple(
            step for step in self.state.steps
            if not (step.temporary or (step.mark is Mark.SKIP and step.key in ends))
        )  # fmt: skip
        if self.state.ended or kept != self.state.steps:
            self.write(steps=kept, ended=False)

    def keep(self, trial: int, result: TrialResult) -> None:
        """Write a trial's result."""
        kept = results.KeptResult(run=self.state.run_id, index=trial, attempts=1, result=result)
        results.keep(self.folder, kept)

    def result(self, trial: int) -> TrialResult:
        """A trial's result; read again if written to.  StoreError: it is gone."""
        facts = results.facts(self.folder, trial)
        if facts is not None and (read := self._read.get(trial)) and read[0] == facts:
            return read[1]
        of = next((one.kernel for one in self.state.steps if trial in one.trials), None)
        kept = results.kept(self.folder, self.state.run_id, trial, of)
        if kept is None:
            cause = f"the result of trial {trial} is gone"
            action = "start again: the same command with --new"
            raise StoreError(cause, place=str(self.folder), action=action)
        self._read[trial] = facts, kept.result
        return kept.result

    def write(self, **changes: Any) -> None:
        """Change the state, and write it.  Of points those that have steps must be some, and of
        steps the results are on the disk already.
        """
        state = replace(self.state, **changes)
        files.write(self.folder / BISECTIONS.file, state)
        self.state = state


def create(root: Path, name: str, question: Question, points: tuple[Point, ...]) -> Journal:
    """A new bisection in a folder of its own under `root`."""
    now = datetime.now(UTC)
    folder = files.new_folder(root, name, now)
    state = BisectState(
        format=FORMAT,
        run_id=folder.name,
        digest=question.digest,
        question=question,
        created=now.isoformat(timespec="seconds"),
        points=points,
    )
    journal = Journal(folder, state)
    journal.write()
    return journal


def find(root: Path, question: Question) -> Journal | None:
    """The newest bisection under `root` that asks the same, ended or not.  Raises StoreError."""
    digest = question.digest
    if found := next((each for each in every(root) if each.state.digest == digest), None):
        files.check_plain(found.folder)
    return found


def every(root: Path) -> list[Journal]:
    """Every bisection under `root` that can be read, newest first; the others are said."""
    return [found for folder in BISECTIONS.folders(root) if (found := _read(folder))]


def _read(folder: Path) -> Journal | None:
    try:
        state = files.read(folder / BISECTIONS.file, BisectState)
    except StoreError as error:
        log.warning("%s; the bisection is left out", error.sentence())
        return None
    if state is None or state.format != FORMAT:
        return None
    if state.digest != state.question.digest or not _is_sound(state):
        log.warning("%s: its question or steps are not those of a search; it is left out", folder)
        return None
    return Journal(folder, state)


def _is_sound(state: BisectState) -> bool:
    """True when points, labels, steps and trials are once there, no end has the other's mark, and
    each step is of a point, and a SKIP, measured, or of the image of one that was.
    """
    keys = [point.key for point in state.points]
    steps = {step.key: step for step in state.steps}
    trials = [trial for step in state.steps for trial in step.trials]
    once = (keys, [point.label for point in state.points], trials, [s.key for s in state.steps])
    if len(keys) < 2 or any(len({*names}) != len(names) for names in once):
        return False
    marked = [step for step in state.steps if step.mark is not Mark.SKIP]
    booted = {key for key, step in steps.items() if step.trials}
    wrong = {(keys[0], Mark.BAD), (keys[-1], Mark.GOOD)} & {(one.key, one.mark) for one in marked}
    measured = all(one.key in booted or one.same_as in booted for one in marked)
    return measured and not wrong and {*keys} >= {*steps}
