# SPDX-License-Identifier: GPL-2.0-or-later
"""A run's folder: its study, its plan, how often each trial was begun, and what each yielded.

RUN/study.toml                 the study as it is run; for people, and decoded here alone
RUN/run.json                   the plan; its presence makes a folder a run
RUN/attempts.json              how often each trial was begun, written before it begins
RUN/lock                       held by the executing process
RUN/trials/0007/result.json    what trial 7 yielded (kdelta.journal.results)

Every file is written aside and renamed, so a process that is killed at any moment leaves each
trial with its whole result or with none.
"""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from kdelta.errors import SpecError, StoreError
from kdelta.files import write_aside
from kdelta.journal import files, results
from kdelta.sample import ArmRecord, Count, Instrument, Outcome, TrialRecord, TrialResult
from kdelta.study import spec
from kdelta.study.plan import make_plan

FORMAT = 6
RUNS = files.FolderKind(file="run.json", word="run", first="make one with: kdelta run STUDY")
_STUDY, _ATTEMPTS, _FINISHED = "study.toml", "attempts.json", ".finished.json"
_of_what = attrgetter("arm", "round", "workload", "scenario")  # of a trial
_BEHIND = re.compile(r"(?: \(\d+\))?(?: again)?$")  # the label of an arm
_AGAIN = "measure it again with: kdelta run --new"


class _Planned(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is beside its study."""

    run_id: str
    name: str
    title: str  # the study's, or what a bisection is of
    seed: int
    rounds: int
    created: str  # ISO 8601, UTC
    kdelta_version: str
    arms: tuple[ArmRecord, ...]
    trials: tuple[TrialRecord, ...]
    subjects: dict[str, str] = {}  # label of an arm -> what its commit is called
    bisection: bool = False  # its arms and trials were chosen on the way

    def fields(self) -> dict[str, Any]:
        """These fields by name."""
        return {name: getattr(self, name) for name in _Planned.__struct_fields__}


class RunRecord(_Planned, frozen=True, kw_only=True):
    """A whole run: all that the analysis may look at."""

    study: spec.Study

    @property
    def instrument(self) -> Instrument:
        """What measured it."""
        return self.study.instrument

    @property
    def scenarios(self) -> tuple[str, ...]:
        """What its study measures, in the study's order."""
        return self.study.scenarios

    @property
    def gap(self) -> tuple[str, ...]:
        """References of the good and the regressed kernel that its study names; may be empty."""
        return self.study.gap

    def part(self, arms: Sequence[ArmRecord]) -> RunRecord:
        """The run with these arms alone, and with their trials."""
        own = {arm.index for arm in arms}
        trials = tuple(trial for trial in self.trials if trial.arm in own)
        return replace(self, arms=tuple(arms), trials=trials)


class _Plan(_Planned, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of run.json; its trials have no results."""

    format: int
    study_digest: str

    def __post_init__(self) -> None:
        datetime.fromisoformat(self.created)


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """What of run.json tells whether the rest can be read, and which study it is of."""

    format: int = 1
    kdelta_version: str = ""
    study_digest: str = ""


class RunJournal:
    """One run's folder.  Reading needs no lock; writing happens inside `executing()`.

    Safe to use from several threads.  Every method raises StoreError when the folder cannot be
    read or written, with what to do about it.
    """

    def __init__(self, folder: Path, plan: RunRecord) -> None:
        """plan: the run without results."""
        self.folder = folder
        self.plan = plan
        self._mutex = threading.Lock()
        self._held = False
        self._attempts: dict[int, int] = {}
        # How trials ended, while the run is executed.  What they yielded stays on the disk: a long
        # run would fill the memory with it.
        self._ended: dict[int, Outcome] = {}

    @classmethod
    def create(cls, folder: Path, run: RunRecord, *, anew: bool = False) -> RunJournal:
        """Make `folder` the run `run`, without results; anew: whatever run it was before."""
        if (folder / RUNS.file).exists() and not anew:
            raise StoreError("there is a run already", place=str(folder))
        run = replace(run, trials=tuple(map(_without_result, run.trials)))
        files.write_bytes(folder / _STUDY, spec.to_toml(run.study).encode())
        _write(folder, run)
        return cls(folder, run)

    @classmethod
    def open(cls, folder: Path) -> RunJournal:
        """The journal of an existing run, of a format known here."""
        return cls(folder, _plan_of(folder))

    @property
    def study(self) -> spec.Study:
        """What the run is of."""
        return self.plan.study

    @contextmanager
    def executing(self) -> Iterator[None]:
        """Hold the run for this process.  Raises StoreError while another process holds it."""
        with files.held(self.folder):
            self._attempts = self._read_attempts()
            kept = self._read_kept(self.plan.trials)
            self._ended = {at: one.result.outcome for at, one in kept.items()}
            self._held = True
            try:
                yield
            finally:
                self._held = False
                if len(self._ended) == len(self.plan.trials):
                    with suppress(OSError):
                        write_aside(self.folder / _FINISHED, _seen(self.folder))

    def pending(self) -> list[TrialRecord]:
        """Trials without a result, in plan order; some may have been begun by a killed process."""
        if not self._held:
            return [trial for trial in self.record().trials if trial.result is None]
        left = (trial for trial in self.plan.trials if trial.index not in self._ended)
        return [replace(trial, attempts=self._attempts.get(trial.index, 0)) for trial in left]

    def is_finished(self) -> bool:
        """True when every trial has a result, whatever its outcome."""
        return not self.pending()

    def claim(self, index: int) -> int:
        """Note that a trial begins: the number of this attempt, from 1.  Raises ValueError."""
        with self._writing():
            if index in self._ended or index not in {trial.index for trial in self.plan.trials}:
                raise ValueError(f"trial {index} is done or not planned")
            self._attempts[index] = self._attempts.get(index, 0) + 1
            files.write(self.folder / _ATTEMPTS, self._attempts)
            return self._attempts[index]

    def finish(self, index: int, result: TrialResult) -> None:
        """Keep a claimed trial's result.  Raises ValueError for one that is not running."""
        with self._writing():
            if index in self._ended or index not in self._attempts:
                raise ValueError(f"trial {index} is not running")
            run_id, attempts = self.plan.run_id, self._attempts[index]
            kept = results.KeptResult(run=run_id, index=index, attempts=attempts, result=result)
            results.keep(self.folder, kept)
            self._ended[index] = result.outcome

    def replan_failures(self) -> int:
        """Plan again the trials that ended for a fault of this machine; how many they are."""
        with self._writing():
            failed = [index for index, end in self._ended.items() if end is Outcome.INFRA_ERROR]
            if failed:
                self._attempts = {at: n for at, n in self._attempts.items() if at not in failed}
                files.write(self.folder / _ATTEMPTS, self._attempts)
            for index in failed:
                results.forget(self.folder, index)
                del self._ended[index]
        return len(failed)

    def extend(self, trials: Sequence[TrialRecord]) -> None:
        """Plan more trials, behind those that there are."""
        with self._writing():
            self.plan = replace(self.plan, trials=(*self.plan.trials, *trials))
            _write(self.folder, self.plan)

    def record(self) -> RunRecord:
        """Everything as one value."""
        return replace(self.plan, trials=self._with_results(self.plan.trials))

    def of_scenario(self, workload: str, scenario: str) -> tuple[TrialRecord, ...]:
        """The trials of a scenario, with what they yielded."""
        wanted = workload, scenario
        own = [trial for trial in self.plan.trials if (trial.workload, trial.scenario) == wanted]
        return self._with_results(own)

    def _with_results(self, trials: Sequence[TrialRecord]) -> tuple[TrialRecord, ...]:
        begun = self._attempts if self._held else self._read_attempts()
        kept = self._read_kept(trials)
        attempts = begun | {at: one.attempts for at, one in kept.items()}
        found = {at: one.result for at, one in kept.items()}
        own = ((one, attempts.get(one.index, 0), found.get(one.index)) for one in trials)
        return tuple(replace(one, attempts=n, result=result) for one, n, result in own)

    def _read_kept(self, trials: Sequence[TrialRecord]) -> dict[int, results.KeptResult]:
        run_id = self.plan.run_id
        found = (
            results.kept(self.folder, run_id, trial.index, self.plan.arms[trial.arm].kernel)
            for trial in trials
        )
        return {kept.index: kept for kept in found if kept}

    def _read_attempts(self) -> dict[int, int]:
        path = self.folder / _ATTEMPTS
        action = "remove it: only how often unfinished trials were begun is lost"
        return files.read(path, dict[int, Count], action=action) or {}

    @contextmanager
    def _writing(self) -> Iterator[None]:
        if not self._held:
            raise RuntimeError("the journal is written to outside executing()")
        with self._mutex:
            with files.disk_errors(self.folder):  # a folder that was removed is not made again
                (self.folder / RUNS.file).stat()
                (self.folder / "trials").mkdir(exist_ok=True)
            yield


def unfinished(root: Path, study: spec.Study) -> Path | None:
    """The newest run under `root` of this very study that has trials to do, if any."""
    digest = spec.digest(study)
    for folder in RUNS.folders(root, but=_is_noted):
        try:
            head = files.read(folder / RUNS.file, _Head)
        except StoreError:
            continue
        is_it = head and head.format == FORMAT and head.study_digest == digest
        if is_it and not is_finished(folder):
            return folder
    return None


def _write(folder: Path, run: RunRecord) -> None:
    plan = _Plan(format=FORMAT, study_digest=spec.digest(run.study), **run.fields())
    files.write(folder / RUNS.file, plan)


def is_finished(folder: Path) -> bool:
    """True when each trial has a result: by the note that it left, else by reading all of them."""
    return _is_noted(folder) or RunJournal.open(folder).is_finished()


def _is_noted(folder: Path) -> bool:
    with suppress(OSError):
        return (folder / _FINISHED).read_bytes() == _seen(folder)
    return False


def _seen(folder: Path) -> bytes:
    """What changes when the plan or a result of a run does.  Raises OSError."""
    facts = [(folder.name, os.lstat(folder / RUNS.file))]
    with os.scandir(folder / "trials") as trials:
        for name in sorted(trial.name for trial in trials):
            with suppress(FileNotFoundError, NotADirectoryError):
                # A Path for each of a thousand would take longest.
                facts.append((name, os.lstat(f"{folder}/trials/{name}/result.json")))
    seen = [(name, one.st_ino, one.st_size, one.st_ctime_ns) for name, one in facts]
    return msgspec.json.encode(seen)


def _plan_of(folder: Path) -> RunRecord:
    path = folder / RUNS.file
    action = f"the results of its trials can still be read in {folder / 'trials'}"
    head = files.read(path, _Head, action=action)
    if head is None:
        cause = f"not a run: it has no {RUNS.file}"
        raise StoreError(cause, place=str(folder), action="list the runs with: kdelta runs list")
    if head.format > FORMAT:
        cause = f"the run has format {head.format}, this kdelta knows up to {FORMAT}"
        newer = f"use kdelta {head.kdelta_version} or newer, which wrote it"
        raise StoreError(cause, place=str(path), action=newer)
    if head.format != FORMAT:
        raise StoreError("the run is of an earlier kdelta", place=str(path), action=_AGAIN)
    plan = files.read(path, _Plan, action=action)
    if plan is None or not _sound(plan):
        raise files.damaged(
            path,
            "its trials are not those of its arms, or its arms have no names of their own",
            action=action,
        )
    own = plan.fields() | {"trials": tuple(map(_without_result, plan.trials))}
    run = RunRecord(study=_study_of(folder, plan.study_digest), **own)
    if not _follows(run):
        cause = f"its title, rounds or trials are not those of {_STUDY} and its seed"
        raise files.damaged(path, cause, action=action)
    return run


def _follows(run: RunRecord) -> bool:
    """True when a run has the arms and trials that its study plans, and those added behind.

    Whether their order is that of its seed, a bundle is asked.
    """
    study, machines = run.study, [point.axes for point in spec.points(run.study)]
    planned = Counter(map(_of_what, make_plan(study, run.seed)))
    own = Counter(_of_what(one) for one in run.trials if not one.varies)
    plain = (run.title, run.name, run.rounds) == (study.title, study.name, study.plan.rounds)
    each = len(run.arms) // len(machines)
    placed = [arm.axes for arm in run.arms] == [axes for axes in machines for _ in range(each)]
    whole = len({arm for arm, *_ in planned}) == len(run.arms)
    return run.bisection or (plain and own == planned and placed and whole)


def _without_result(trial: TrialRecord) -> TrialRecord:
    return replace(trial, attempts=0, result=None)


def _sound(plan: _Plan) -> bool:
    """True when each trial is once there and of an arm, no two arms are called the same, and a
    shell takes the name as it stands.
    """
    once = len({trial.index for trial in plan.trials if trial.index >= 0}) == len(plan.trials)
    arms = [arm.index for arm in plan.arms]
    few = len(plan.trials) <= 2 * spec.MAX_TRIALS  # some are tried again with other seeds
    of_arms = {trial.arm for trial in plan.trials} <= set(arms)
    named = re.fullmatch(r"[\w.+~=@,-]*", plan.run_id)
    labels = {(arm.label, arm.point) for arm in plan.arms if _is_called(arm)}
    told = bool(named and arms) and len(labels) == len(arms)
    return told and once and few and of_arms and arms == list(range(len(arms)))


def _is_called(arm: ArmRecord) -> bool:
    """True when an arm has the name of its own kernel, whatever is told behind it."""
    name, own = _BEHIND.sub("", arm.label), arm.kernel
    names = own.name, own.version.replace("~", "-"), own.release, own.reference
    known = name.isprintable() and any(each.startswith(name) for each in names)
    return bool(name) and known and arm.control is arm.label.endswith(" again")


def _study_of(folder: Path, digest: str) -> spec.Study:
    path = folder / _STUDY
    try:
        study = spec.load(path)
    except SpecError as error:
        raise StoreError(error.cause, place=error.place, action=_AGAIN) from error
    if spec.digest(study) != digest:
        cause = "it is not the study that the run began with"
        action = "put that back, or begin another run with: kdelta run --new"
        raise StoreError(cause, place=str(path), action=action)
    return study
