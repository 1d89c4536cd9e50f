# SPDX-License-Identifier: GPL-2.0-or-later
"""What a run proves: the one change that a report begins with, and how far the claim goes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from msgspec import structs

from kdelta.analysis.audit import ScenarioAudit, audited
from kdelta.analysis.explanation import Explanation, explain, find_named
from kdelta.analysis.findings import Report, method_of, report
from kdelta.errors import SpecError
from kdelta.journal.run import RunRecord
from kdelta.ladder.evidence import refuse_traced
from kdelta.ladder.ladders import Ladder, LadderStep, Rung, limits
from kdelta.sample import Instrument
from kdelta.verdict.comparison import Verdict


class Tag(StrEnum):
    """What the subject of a mail claims; the value is what stands in it."""

    REGRESSION = "[REGRESSION]"  # it takes longer, and a longer path is a reason
    RFC = "[RFC]"  # one of the two: more work of unknown price, or more time of unknown cause
    NONE = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The change that a report begins with: the largest that is worse, else the largest."""

    ladder: Ladder[Any]
    step: LadderStep

    @property
    def worse(self) -> bool:
        """True when it is a REGRESSION."""
        return self.step.comparison.verdict is Verdict.REGRESSION

    @property
    def rungs(self) -> tuple[Rung[Any], Rung[Any]]:
        """The old and the new kernel."""
        rungs = {rung.label: rung for rung in self.ladder.rungs}
        return rungs[self.step.old], rungs[self.step.new]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a run proves.

    report: of that run; exact: the path length, of the same run or of one
    beside it, None without.  headline None: nothing changed.  support: the step in path length
    between the same kernels, when the claim is on time.  explanation: by function, where there are
    counts.  audit: of the headline's scenario, or of all.  missing: why a claim on time has no
    support.
    """

    exact: RunRecord | None
    report: Report[Any]
    headline: Headline | None
    support: Headline | None
    explanation: Explanation | None
    audits: tuple[ScenarioAudit, ...]
    missing: str

    @property
    def timed(self) -> bool:
        """True when the claim is on time."""
        return not self.report.record.instrument.traits.repeats

    @property
    def ladder(self) -> Ladder[Any]:
        """That of the headline, else the first."""
        return self.headline.ladder if self.headline else self.report.ladders[0]

    @property
    def decided(self) -> bool:
        """True when at least one comparison says more than that nothing can be said."""
        rungs = (rung for ladder in self.report.ladders for rung in ladder.rungs)
        verdicts = {rung.comparison.verdict for rung in rungs if rung.comparison}
        return any(verdict.is_step or verdict is Verdict.SAME for verdict in verdicts)

    @property
    def tag(self) -> Tag:
        """REGRESSION only for more time with more work between the same kernels."""
        if self.headline is None or not self.headline.worse:
            return Tag.NONE
        proven = self.timed and self.support is not None and self.support.worse
        return Tag.REGRESSION if proven else Tag.RFC


def claim(
    record: RunRecord,
    beside: RunRecord | None = None,
    *,
    scenario: str = "",
    pair: tuple[str, str] | None = None,
) -> Claim:
    """What a run proves, with a run of the other instrument as its support.

    scenario: "workload:scenario", the only one to be told.  pair: the kernels of the step to begin
    with.  Raises SpecError when the two runs do not fit, and for a pair that has no step.
    """
    if beside is not None:
        runs = {run.instrument: run for run in (record, beside)}
        if len(runs) < 2:
            raise SpecError(
                "both runs are of the same instrument", action="give one exact run and one of time"
            )
        for run in runs.values():
            refuse_traced(run)
        record, beside = runs[Instrument.TIME], runs[Instrument.EXACT]
    found = report(record)
    found = _narrowed(found, scenario) if scenario else found
    every = [Headline(ladder=each, step=step) for each in found.ladders for step in each.steps]
    if pair:
        arms = {arm.label: arm for arm in record.arms}  # a matrix has each at every point
        ends = tuple(find_named([*arms.values()], name).label for name in pair)
        every = [one for one in every if (one.step.old, one.step.new) == ends]
        if not every:
            cause = f"no step from {ends[0]} to {ends[1]} is decided"
            raise SpecError(cause, place=f"run {record.run_id}", action="see: kdelta show")
    headline = max(every, key=lambda each: (each.worse, each.step.size), default=None)
    exact = beside or (record if record.instrument.traits.repeats else None)
    support, missing = _support(headline, beside)
    counted = support if beside else headline
    told = {(each.workload, each.scenario, each.point) for each in found.ladders}
    return Claim(
        exact=exact,
        report=found,
        headline=headline,
        support=support,
        explanation=explain(
            exact,
            counted.step.old,
            counted.step.new,
            scenario=counted.ladder.reference,
            point=counted.ladder.point or None,
        )
        if exact and counted
        else None,
        audits=tuple(
            one
            for one in audited(record).scenarios
            if (one.workload, one.scenario, one.point) in told
        ),
        missing=missing,
    )


def _narrowed(found: Report[Any], scenario: str) -> Report[Any]:
    """The findings on one scenario, judged among all; what others lack is no limit of it."""
    kept = tuple(one for one in found.ladders if scenario in (one.scenario, one.reference))
    if not kept:
        known = ", ".join(ladder.reference for ladder in found.ladders)
        raise SpecError(
            f"no scenario {scenario} in this run", place=f"run {found.run_id}", action=known
        )
    names = {ladder.reference for ladder in kept}
    own = tuple(one for one in found.record.trials if f"{one.workload}:{one.scenario}" in names)
    method = method_of(found.record, step_percent=found.step_percent)
    part = structs.replace(found.record, trials=own)
    return replace(found, ladders=kept, limits=limits(part, method))


def _support(headline: Headline | None, beside: RunRecord | None) -> tuple[Headline | None, str]:
    """The comparison in path length of the headline's two kernels, not always neighbours there."""
    if headline is None or beside is None:
        return None, ""
    old, new = headline.rungs
    releases = {rung.kernel.release for rung in (old, new)} - {""}
    pair = beside.part([arm for arm in beside.arms if arm.kernel.release in releases])
    if len(pair.arms) != 2:
        return None, f"run {beside.run_id} does not have both kernels"
    wanted = headline.ladder.reference, headline.ladder.point
    for ladder in report(pair).ladders:
        if (ladder.reference, ladder.point) == wanted:
            steps = [Headline(ladder=ladder, step=step) for step in ladder.steps]
            if steps and steps[0].rungs[0].kernel.release == old.kernel.release:
                return steps[0], ""
            return None, f"run {beside.run_id} finds no step in path length between them"
    return None, f"run {beside.run_id} does not have the scenario"
