# SPDX-License-Identifier: GPL-2.0-or-later
"""What a bisection has done so far, on the disk after every step, so that a kill costs one step.

FOLDER/bisect.json               the question and all steps (written whole or not at all)
FOLDER/trials/0003/result.json   what trial 3 measured, as in the folder of a run
FOLDER/run.json, store.sqlite    once it has ended: a run, for `kdelta show` and `kdelta explain`
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from kdelta import runfolder
from kdelta.bisect.place import Standing
from kdelta.bisect.search import Mark
from kdelta.errors import StoreError
from kdelta.files import write_aside
from kdelta.sample import KernelIdentity, TrialRecord, TrialResult

log = logging.getLogger(__name__)

FILE = "bisect.json"
FORMAT = 1
_NOT_OURS = (msgspec.MsgspecError, ValueError, RecursionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked; equal questions are one bisection, which the second one goes on with.

    kind: "releases" or "tree".  scenario: "workload:name".  study_toml: how it is measured.
    options: whatever else decides which points there are.
    """

    kind: str
    scenario: str
    phase: str
    good: str
    bad: str
    study_toml: str
    options: dict[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Equal for equal questions."""
        return hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One place in the history.

    key: names it exactly (a package reference, a commit).  label: what tables call it.  title: the
    subject of a commit.
    """

    key: str
    label: str
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What became of one point.

    trials: of the folder, empty when it was not booted.  mark: what the search was told; standing
    and position: place.Place, None when it was not measured or is an end.  why: one sentence for a
    SKIP and for whatever is to be told.  same_as: the key of the point with the same image, whose
    measurement counts for this one too.  build_s: seconds that its build took, failed or not, 0: it
    was in the cache, None: there was none.
    """

    key: str
    mark: Mark
    trials: tuple[int, ...] = ()
    standing: Standing | None = None
    position: float | None = None
    beyond: bool = False
    why: str = ""
    kernel: KernelIdentity | None = None
    same_as: str = ""
    build_s: float | None = None
    blocks: tuple[tuple[int, int, int], ...] = ()
    temporary: bool = False  # this machine's fault: tried again when the bisection goes on


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The content of bisect.json.  points: in order, from the good to the bad end."""

    format: int
    digest: str
    question: Question
    created: str
    points: tuple[Point, ...]
    steps: tuple[Step, ...] = ()
    ended: bool = False


class Journal:
    """One bisection's folder.  Raises StoreError when it cannot be read or written."""

    def __init__(self, folder: Path, state: State) -> None:
        self.folder = folder
        self.state = state

    @property
    def steps(self) -> dict[str, Step]:
        """The steps by their point's key, in the order in which they were made."""
        return {step.key: step for step in self.state.steps}

    @property
    def marks(self) -> dict[int, Mark]:
        """The steps as the search takes them: number of a point -> mark."""
        numbers = {point.key: number for number, point in enumerate(self.state.points)}
        return {numbers[step.key]: step.mark for step in self.state.steps}

    def add(self, step: Step) -> None:
        """Keep a step; its results must be on the disk already."""
        self._write(replace(self.state, steps=(*self.state.steps, step)))

    def arrange(self, points: tuple[Point, ...]) -> None:
        """Replace the points, of which those that have steps must be some."""
        self._write(replace(self.state, points=points))

    def end(self) -> None:
        """Nothing is left to do."""
        self._write(replace(self.state, ended=True))

    def reopen(self) -> None:
        """Forget what was only this machine's fault."""
        kept = tuple(step for step in self.state.steps if not step.temporary)
        if self.state.ended or kept != self.state.steps:
            self._write(replace(self.state, steps=kept, ended=False))

    def new_trial(self) -> int:
        """The number of a trial that no step has."""
        used = {number for step in self.state.steps for number in step.trials}
        used |= {n for step in self.state.steps for block in step.blocks for n in block}
        return 1 + max(used, default=-1)

    def keep(self, trial: int, result: TrialResult) -> None:
        """Write a trial's result."""
        with runfolder.disk_errors(self.folder):
            runfolder.write_result(self.folder, trial, 1, result)

    def result(self, trial: int) -> TrialResult:
        """A trial's result.  Raises StoreError when it is gone."""
        empty = TrialRecord(index=trial, round=0, arm=0, workload="", scenario="")
        found = runfolder.read_result(self.folder, empty).result
        if found is None:
            raise StoreError(
                f"the result of trial {trial} is gone",
                place=str(self.folder),
                action="start again with: kdelta bisect --new",
            )
        return found

    def _write(self, state: State) -> None:
        with runfolder.disk_errors(self.folder):
            write_aside(self.folder / FILE, msgspec.json.encode(state))
        self.state = state


def create(root: Path, name: str, question: Question, points: tuple[Point, ...]) -> Journal:
    """A new bisection in a folder of its own under `root`."""
    now = datetime.now(UTC)
    folder = runfolder.new_run_folder(root, name, now)
    state = State(
        format=FORMAT,
        digest=question.digest,
        question=question,
        created=now.isoformat(timespec="seconds"),
        points=points,
    )
    journal = Journal(folder, state)
    journal._write(state)  # noqa: SLF001
    return journal


def find(root: Path, question: Question) -> Journal | None:
    """The newest bisection under `root` that asks the same, ended or not."""
    with runfolder.disk_errors(root):
        folders = sorted((path.parent for path in root.glob(f"*/{FILE}")), reverse=True)
    found = [journal for journal in map(_read, folders) if journal is not None]
    fitting = [journal for journal in found if journal.state.digest == question.digest]
    return max(fitting, key=lambda journal: journal.state.created, default=None)


@contextmanager
def held(journal: Journal) -> Iterator[None]:
    """Hold a bisection for this process.  Raises StoreError while another process holds it."""
    import filelock

    lock = filelock.FileLock(journal.folder / "lock")
    with runfolder.disk_errors(journal.folder):
        try:
            lock.acquire(blocking=False)
        except filelock.Timeout:
            raise StoreError(
                f"{journal.folder.name} is being bisected by another process",
                action="wait for it, or end that process first",
            ) from None
    try:
        yield
    finally:
        lock.release()


def _read(folder: Path) -> Journal | None:
    """The bisection of a folder, None when it is damaged or of another format."""
    try:
        state = msgspec.json.decode((folder / FILE).read_bytes(), type=State)
    except (OSError, *_NOT_OURS) as error:
        log.warning("%s: left out, it cannot be read: %s", folder / FILE, error)
        return None
    keys = {point.key for point in state.points}
    sound = state.format == FORMAT and keys.issuperset(step.key for step in state.steps)
    return Journal(folder, state) if sound and state.digest == state.question.digest else None
