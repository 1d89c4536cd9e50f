# SPDX-License-Identifier: GPL-2.0-or-later
"""How much of a step the first row of `kdelta explain --calls` is, for steps of many runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from commands import said
from kdelta.analysis import calls, explanation
from kdelta.analysis.lab import surveyed
from kdelta.errors import KdeltaError
from kdelta.journal import artifacts
from kdelta.journal.run import RUNS, RunJournal, RunRecord
from kdelta.ladder.evidence import points, scenarios
from kdelta.rendering.explain import Scale, cause_sentence
from kdelta.sample import TOTAL

ENOUGH, TOO_MUCH = 0.8, 1.2  # a first row explains a step when its share is between these


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step between two kernels of a scenario, of one phase or of all (TOTAL)."""

    scenario: str
    old: str
    new: str
    phase: str = TOTAL
    point: str | None = None

    def __str__(self) -> str:
        phase = "" if self.phase == TOTAL else f", {self.phase} alone"
        return f"{self.scenario}{phase}: {self.old} -> {self.new}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRow:
    """What explain --calls says of a step first; share: of its net.  missing: why it says none."""

    step: Step
    net: str = ""
    share: float = 0.0
    words: str = ""
    missing: str = ""

    @property
    def explains(self) -> bool:
        """True when it is the step, by and large."""
        return ENOUGH <= self.share <= TOO_MUCH


def of_survey(folder: Path, runs: Path) -> Iterator[FirstRow]:
    """Of each step of a survey, the largest first; its kernels are counted with call paths.

    Each scenario is counted once on each kernel that has a part in a step of it; what was counted
    before is not counted again.
    """
    survey = RunJournal.open(folder).record()
    steps = [
        Step(
            scenario=change.name,
            old=change.explanation.old,
            new=change.explanation.new,
            phase=change.explanation.phase,
        )
        for change in surveyed(survey).changes
    ]
    counted = _counted(survey, steps, runs)
    for step in steps:
        yield first_row(counted[step.scenario], step)


def _counted(survey: RunRecord, steps: list[Step], runs: Path) -> dict[str, Path]:
    """The run of each scenario, on all kernels of its steps."""
    ends: dict[str, set[str]] = {}
    for step in steps:
        ends.setdefault(step.scenario, set()).update((step.old, step.new))
    alike: dict[tuple[str, ...], list[str]] = {}
    for scenario, labels in ends.items():
        kernels = tuple(f"deb:{arm.kernel.version}" for arm in survey.arms if arm.label in labels)
        alike.setdefault(kernels, []).append(scenario)
    machine = survey.study.machine
    of = ("--arch", machine.arch, "--flavour", machine.flavour, "--probe", "calls", "--new")
    found: dict[str, Path] = {}
    for number, (kernels, named) in enumerate(alike.items()):
        own = runs / f"{number:02d}"  # where the latest run is this one
        said("run", *named, "--kernels", ",".join(kernels), *of, "--runs", str(own), may=(1,))
        found |= dict.fromkeys(named, RUNS.find(own, "latest"))
    return found


def of_run(folder: Path) -> Iterator[FirstRow]:
    """Of every step between neighbours of a run with --probe calls."""
    record = RunJournal.open(folder).record()
    for point, _ in points(record):
        for workload, scenario in scenarios(record):
            for old, new in pairwise(arm.label for arm in record.arms):
                step = Step(scenario=f"{workload}:{scenario}", old=old, new=new, point=point)
                row = first_row(folder, step)
                if row.missing or row.words:
                    yield row


def first_row(folder: Path, step: Step) -> FirstRow:
    """Of one step, out of a run with --probe calls; of what is none it says nothing."""
    record = RunJournal.open(folder).record()
    try:
        found = explanation.explain(
            record, step.old, step.new, scenario=step.scenario, phase=step.phase, point=step.point
        )
        if not found.comparison.verdict.is_step:
            return FirstRow(step=step)
        sides = calls.sources(record, found, step.point)
        trees = ([artifacts.kept_calls(folder, *one) for one in side] for side in sides)
        difference = calls.explained(found, *trees).difference
    except KdeltaError as error:
        return FirstRow(step=step, missing=str(error))
    if not (difference and difference.causes and difference.root.delta):
        return FirstRow(step=step, missing="no call path differs")
    scale, first = Scale.of(found), difference.causes[0]
    return FirstRow(
        step=step,
        net=scale.signed(difference.root.delta),
        share=first.delta / difference.root.delta,
        words=cause_sentence(first, scale),
    )
