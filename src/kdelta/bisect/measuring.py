# SPDX-License-Identifier: GPL-2.0-or-later
"""Counts a point, and says which end it is like.

The ends decide what a point is called.  Which way the search goes on is decided between the two
points that enclose the change so far: so it follows the larger part of what is left, and a second
change is told, not forced to one side.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from kdelta.archive.apt import Progress
from kdelta.bisect.evidence import Findings
from kdelta.bisect.journal import BisectStep, Journal, Point
from kdelta.bisect.search import LIKE, Likeness, Mark, Position, locate
from kdelta.errors import SpecError
from kdelta.guests import qemu
from kdelta.kernels.kernel import Kernel
from kdelta.ladder.counts import CountEvidence, CountMethod
from kdelta.ladder.evidence import compare_arms
from kdelta.run import exact
from kdelta.sample import TrialResult
from kdelta.study.spec import Study

Measurer = Callable[[Kernel, int, Path], TrialResult]
"""Measures a kernel once: as trial number N of the run in a folder, which gets its artifacts.

A fault of the kernel is a result that says so.  Raises InfraError when this machine is at fault,
Cancelled when the work was ended.
"""


class TrialMeasure:
    """Measures the one scenario of a study by counting."""

    def __init__(
        self,
        study: Study,
        wanted_qemu: str,
        cancelled: threading.Event,
        progress: Progress | None = None,
        *,
        again: bool = False,
    ) -> None:
        """Raises InfraError; SpecError, also for a study of another instrument."""
        if not study.instrument.traits.repeats:
            raise SpecError(
                f"a bisection counts, and this study's instrument is {study.instrument}",
                place="instrument",
                action='write instrument = "exact", or judge times by hand with: git bisect',
            )
        bench = exact.bench_of(study, wanted_qemu, cancelled, progress, again=again)
        # Results of different ones cannot be compared.
        self.environment = f"QEMU {bench.emulator.version}, plugin {qemu.plugin_digest()}"
        exact.guests_of(study)
        self._scenario = study.scenarios[0]
        self._trials = exact.SingleTrials(study, bench)

    def __call__(self, kernel: Kernel, trial: int, folder: Path) -> TrialResult:
        """See Measurer.  This machine's faults are tried again within the study's budget."""
        return self._trials.of(kernel, trial, self._scenario, folder)


class PointCounting:
    """Counts points, one trial each, and says what they are like."""

    def __init__(self, journal: Journal, measure: Measurer) -> None:
        self._journal = journal
        self._measure = measure

    def findings(self, extra: BisectStep | None = None) -> Findings:
        """What the journal has by now."""
        return Findings(self._journal, extra=extra)

    def step(self, point: Point, kernel: Kernel, build_s: float | None) -> BisectStep:
        """Measure a point; its results are on the disk, and the step not yet in the journal.

        Raises InfraError when this machine is at fault, Cancelled when the work was ended.
        """
        trial = self._journal.new_trial()
        result = self._measure(kernel, trial, self._journal.folder)
        self._journal.keep(trial, result)
        identity = result.kernel or kernel.identity()
        step = BisectStep(
            key=point.key, mark=Mark.SKIP, trials=(trial,), kernel=identity, build_s=build_s
        )
        counts = self.findings(step)
        if why := counts.fault(point):
            return replace(step, why=why)
        good, bad = self._journal.ends
        if point in (good, bad):
            return replace(step, mark=Mark.GOOD if point == good else Mark.BAD)
        points = {each.key: each for each in self._journal.state.points}
        last = {each.mark: points[each.key] for each in self._journal.state.steps}
        # The points last marked enclose what is searched.
        ends, inner = _located(counts, point, good, bad), (last[Mark.GOOD], last[Mark.BAD])
        nearer = _located(counts, point, *inner).nearer
        end, other = inner if nearer is Mark.GOOD else inner[::-1]
        if why := bytes_forbid(counts.arm(point), counts.arm(end), counts.arm(other), counts.phase):
            return replace(step, why=why)
        return replace(
            step,
            mark=nearer,
            standing=ends.likeness,
            position=round(ends.position, 4),
            beyond=ends.beyond,
            why=_unlike(ends),
        )


def bytes_forbid(
    arm: CountEvidence | None,
    like: CountEvidence | None,
    unlike: CountEvidence | None,
    phase: str,
) -> str:
    """Why bytes by string instructions forbid to say that a point is like one end, "" where they
    do not: from one that copies by other instructions the counts tell nothing.

    like: the end that it is nearer to, by instructions; unlike: the other one.
    """
    if not (arm and like and unlike):
        return ""
    near, far = like.measure(phase), unlike.measure(phase)
    if near is None or far is None:
        return ""
    ratio = near.per_operation / far.per_operation
    percent = 100 * (max(ratio, 1 / ratio) ** LIKE - 1)
    why = compare_arms(CountMethod(step_percent=percent), like, arm, phase=phase).signless
    return f"beside {like.arm.label}: {why}" if why else ""


def _located(counts: Findings, point: Point, good: Point, bad: Point) -> Position:
    measure, low, high = counts.measure(point), counts.value(good), counts.value(bad)
    if measure is None or low is None or high is None:
        raise ValueError("positions are between measured points")
    spread = measure.reading.spread / measure.operations
    return locate(measure.per_operation, good=low, bad=high, spread=spread)


def _unlike(found: Position) -> str:
    if found.likeness is not Likeness.UNKNOWN:
        return ""
    way = f"{100 * found.position:.0f} % of the way from the good end to the bad one"
    return f"like neither end: {f'beyond the {found.nearer} one' if found.beyond else way}"
