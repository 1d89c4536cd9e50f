# SPDX-License-Identifier: GPL-2.0-or-later
"""A run as rows of the catalogue: bounded, in characters that every database takes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kdelta.analysis.explanation import profile
from kdelta.analysis.lab import version_key
from kdelta.analysis.survey import surveyed
from kdelta.errors import KdeltaError
from kdelta.files import digest_of
from kdelta.journal.files import disk_errors
from kdelta.journal.run import RUNS, RunRecord
from kdelta.ladder.counts import counted
from kdelta.ladder.evidence import parts
from kdelta.printable import printable
from kdelta.sample import TOTAL, ArmRecord, Instrument

NAME, SENTENCE = 200, 400  # characters of a name and of a sentence
_MOST_TRIALS = 1_000_000
_MOST_FUNCTIONS = 20_000  # of one scenario on one kernel
_LARGEST = (1 << 62) - 1  # that a column of whole numbers takes everywhere
_LARGEST_REAL = 1e300
_NAMED = 3  # functions of a step


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseKernel:
    """A kernel as an arm names it.  place: sorts kernels by their versions."""

    label: str
    version: str
    image_sha256: str
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRow:
    """A scenario on one kind of machine."""

    name: str
    machine: str
    operation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRow:
    """One trial.  address: of what was counted (run.store), "" where it is not known."""

    number: int
    round: int
    kernel: CaseKernel
    case: CaseRow
    outcome: str
    reason: str
    address: str
    wall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFigure:
    """What one kernel does in one case; per_operation None for the reason in note.

    ratio: new/old against the kernel `previous` of the same run.
    """

    case: CaseRow
    kernel: CaseKernel
    per_operation: float | None
    previous: str
    ratio: float | None
    verdict: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRow:
    """Instructions per operation of one function."""

    function: str
    case: CaseRow
    kernel: CaseKernel
    per_operation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """A step between two kernels.  size: how many times, whichever way."""

    case: CaseRow
    phase: str
    old: CaseKernel
    new: CaseKernel
    ratio: float
    size: float
    verdict: str
    functions: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRows:
    """All rows of a run.  fault: why there are only trials, "" where there is all."""

    trials: tuple[TrialRow, ...]
    figures: tuple[CaseFigure, ...]
    profiles: tuple[ProfileRow, ...]
    steps: tuple[StepRow, ...]
    fault: str


def content_of(folder: Path) -> str:
    """The address of what a run's folder holds, of which the rows are made.  Raises StoreError."""
    total = hashlib.sha256()
    with disk_errors(folder):
        names = (RUNS.file, "study.toml", *_results(folder))
        for name in names:
            total.update(f"{name}\0{digest_of(folder / name)}\n".encode())
    return total.hexdigest()


def _results(folder: Path) -> list[str]:
    found = (folder / "trials").glob("*/result.json")
    return sorted(path.relative_to(folder).as_posix() for path in found if path.is_file())


def rows_of(record: RunRecord) -> RunRows:
    """The rows of a run.  Pure; what of it cannot be analysed is told in `fault`."""
    kernels = {arm.index: _kernel(arm) for arm in record.arms}
    if record.instrument is not Instrument.EXACT:
        trials = _trials(record, kernels, {})
        return RunRows(trials=trials, figures=(), profiles=(), steps=(), fault="")
    try:
        return _counted(record, kernels)
    except KdeltaError as error:
        return RunRows(
            trials=_trials(record, kernels, {}),
            figures=(),
            profiles=(),
            steps=(),
            fault=text(error.sentence(), SENTENCE),
        )


def _counted(record: RunRecord, kernels: dict[int, CaseKernel]) -> RunRows:
    found = surveyed(record)
    labels = {(arm.point, arm.label): kernels[arm.index] for arm in record.arms}
    cases: dict[tuple[str, str, str], CaseRow] = {}
    figures = []
    for ladder in found.report.ladders:
        machine = "; ".join(sorted({one.told for one in ladder.machines}))
        case = CaseRow(
            name=text(f"{ladder.workload}:{ladder.scenario} {ladder.point}".strip()),
            machine=text(machine, SENTENCE),
            operation=text(ladder.operation or "operation"),
        )
        cases[ladder.workload, ladder.scenario, ladder.point] = case
        for rung in ladder.rungs:
            judged = rung.comparison if rung.total else None
            figures.append(
                CaseFigure(
                    case=case,
                    kernel=labels[ladder.point, rung.arm],
                    per_operation=real(rung.total.per_operation) if rung.total else None,
                    previous=text(rung.previous or ""),
                    ratio=real(judged.ratio) if judged else None,
                    verdict=str(judged.verdict) if judged else "",
                    note="" if rung.total else text(rung.skipped or "no value"),
                )
            )
    steps = []
    for change in found.changes:
        own = change.explanation
        if own.comparison.ratio:
            case = cases[own.workload, own.scenario, change.point]
            named = [row.function for row in own.rising or own.falling][:_NAMED]
            steps.append(
                StepRow(
                    case=case,
                    phase=text(own.phase),
                    old=labels[change.point, own.old],
                    new=labels[change.point, own.new],
                    ratio=real(own.comparison.ratio) or 0.0,
                    size=real(max(own.comparison.ratio, 1 / own.comparison.ratio)) or 0.0,
                    verdict=str(own.comparison.verdict),
                    functions=text(", ".join(named), SENTENCE),
                )
            )
    return RunRows(
        trials=_trials(record, kernels, cases),
        figures=tuple(figures),
        profiles=tuple(_profiles(record, labels, cases)),
        steps=tuple(steps),
        fault="",
    )


def _profiles(
    record: RunRecord,
    labels: dict[tuple[str, str], CaseKernel],
    cases: dict[tuple[str, str, str], CaseRow],
) -> Iterator[ProfileRow]:
    for point, part, workload, scenario in parts(record):
        case = cases.get((workload, scenario, point))
        for arm in counted(part, workload, scenario) if case else ():
            if not arm.total or not case or arm.arm.control:
                continue
            functions = profile(arm, TOTAL).functions
            known: set[str] = set()
            for name, (insns, _) in [*functions.items()][:_MOST_FUNCTIONS]:
                value, bounded = real(insns / arm.total.operations), text(name)
                if bounded not in known and value is not None:
                    known.add(bounded)
                    yield ProfileRow(
                        function=bounded,
                        case=case,
                        kernel=labels[point, arm.arm.label],
                        per_operation=value,
                    )


def _trials(
    record: RunRecord,
    kernels: dict[int, CaseKernel],
    cases: dict[tuple[str, str, str], CaseRow],
) -> tuple[TrialRow, ...]:
    points = {arm.index: arm.point for arm in record.arms}
    rows = []
    for trial in record.trials[:_MOST_TRIALS]:
        point, result = points[trial.arm], trial.result
        name = f"{trial.workload}:{trial.scenario} {point}".strip()
        plain = CaseRow(name=text(name), machine="", operation="operation")
        if result:
            rows.append(
                TrialRow(
                    number=min(max(trial.index, 0), _LARGEST),
                    round=min(max(trial.round, 0), _LARGEST),
                    kernel=kernels[trial.arm],
                    case=cases.get((trial.workload, trial.scenario, point), plain),
                    outcome=str(result.outcome),
                    reason=text(result.reason, SENTENCE),
                    address=text(result.address, 64),
                    wall_s=real(result.wall_s) or 0.0,
                )
            )
    return tuple(rows)


def _kernel(arm: ArmRecord) -> CaseKernel:
    return CaseKernel(
        label=text(arm.label),
        version=text(arm.kernel.version),
        image_sha256=text(arm.kernel.image_sha256, 64),
        place=place_of(arm.label),
    )


def place_of(label: str) -> str:
    """Sorts as the kernel's version does: numbers of one width, a candidate before its release."""
    parts_ = [
        f"{min(number, 10**8 - 1):08d}" if kind else "0-" for kind, number in version_key(label)
    ]
    return ".".join(parts_)[:128]


def text(words: str, most: int = NAME) -> str:
    """Somebody's text as a column takes it: one line, no controls, bounded."""
    return printable(words, most)


def real(value: float | None) -> float | None:
    """A number that every database and JSON takes, else None."""
    if value is None or not math.isfinite(value):
        return None
    return max(-_LARGEST_REAL, min(float(value), _LARGEST_REAL))
