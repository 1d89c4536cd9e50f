# SPDX-License-Identifier: GPL-2.0-or-later
"""What each trial's machine and pages were: asked for, seen, wanted, and equal in all kernels?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kdelta.journal.run import RunRecord
from kdelta.ladder.evidence import parts
from kdelta.sample import UNKNOWN, MachineFacts, Outcome, TrialRecord

_ENDED_BADLY = (*filter(lambda one: one.value.endswith("-error"), Outcome),)
_UNASKED = "noapic"  # a word of the command line that makes an SMP result one of something else


class Answer(StrEnum):
    """What can be said of a question; UNKNOWN is never yes."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCheck:
    """One trial: what its machine was asked to be and is.  "": not recorded."""

    trial: int
    round: int
    arm: str
    outcome: Outcome | None  # None: not run yet
    reason: str
    cpus: Answer
    memory: Answer
    cmdline: Answer
    noapic: Answer
    thp: str
    preempt: str
    clocksource: str
    workload_exit: str
    semantic: Answer  # the page state held, and every counter that was wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class FactCheck:
    """One audited fact over all trials of a scenario.

    values: each value and the arms that had it; one value in all arms, or the arms differ.
    """

    when: str
    name: str
    want: str
    values: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def differs(self) -> bool:
        """True when two arms had different values."""
        return len(self.values) > 1

    @property
    def verdict(self) -> str:
        """ "ok", "told" for a fact that does not bind, or what is wrong with it."""
        if self.want == "free":
            return "told"
        if any(value == UNKNOWN for value, _ in self.values):
            return UNKNOWN
        if self.want == "same":
            return "DIFFERS" if self.differs else "ok"
        return "ok" if all(value == self.want for value, _ in self.values) else "FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioAudit:
    """All trials of one scenario at one point of the matrix."""

    workload: str
    scenario: str
    point: str
    machines: tuple[MachineCheck, ...]
    facts: tuple[FactCheck, ...]

    @property
    def reference(self) -> str:
        """ "mprotect:anon_full_toggle", with its point."""
        return f"{self.workload}:{self.scenario} {self.point}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """A whole run.  completed: trials that ended ok or were skipped for a reason, of planned."""

    run_id: str
    scenarios: tuple[ScenarioAudit, ...]
    all_cpu_match: Answer
    any_noapic: Answer
    all_init_exit0: Answer
    all_semantic_ok: Answer
    completed: int
    skipped: int
    planned: int

    @property
    def passed(self) -> bool:
        """True when nothing stands against the run."""
        return (
            self.completed == self.planned
            and self.any_noapic is Answer.NO
            and Answer.NO not in (self.all_cpu_match, self.all_init_exit0, self.all_semantic_ok)
            and all(
                fact.verdict in ("ok", "told") for each in self.scenarios for fact in each.facts
            )
        )


def audited(record: RunRecord) -> Audit:
    """Read the machine and the page state of every trial of a stored run."""
    labels = {arm.index: arm.label for arm in record.arms}
    found = []
    for point, part, workload, scenario in parts(record):
        own = [t for t in part.trials if (t.workload, t.scenario) == (workload, scenario)]
        found.append(
            ScenarioAudit(
                workload=workload,
                scenario=scenario,
                point=point,
                machines=tuple(_machine(trial, labels[trial.arm]) for trial in own),
                facts=_facts(own, labels),
            )
        )
    checks = [check for each in found for check in each.machines]
    ran = [check for check in checks if check.outcome in (Outcome.OK, Outcome.INVALID)]
    ended = [check.outcome for check in checks if check.outcome]
    return Audit(
        run_id=record.run_id,
        scenarios=tuple(found),
        all_cpu_match=_together(check.cpus for check in ran),
        any_noapic=_together((check.noapic for check in ran), Answer.YES),
        all_init_exit0=_together(
            Answer.NO if outcome in _ENDED_BADLY else Answer.YES for outcome in ended
        ),
        all_semantic_ok=_together(check.semantic for check in ran),
        completed=sum(outcome in (Outcome.OK, Outcome.SKIP) for outcome in ended),
        skipped=ended.count(Outcome.SKIP),
        planned=len(checks),
    )


def _machine(trial: TrialRecord, arm: str) -> MachineCheck:
    result = trial.result
    facts = (result.facts if result else None) or MachineFacts()
    asked, seen = facts.asked, facts.seen
    cmdline, state = seen.cmdline, result.state if result else ()
    told = state or (result and result.data and not trial.outside)  # its contract wants some
    given, shown = asked.memory_mib if asked else None, seen.memory_mib
    return MachineCheck(
        trial=trial.index,
        round=trial.round,
        arm=arm,
        outcome=result.outcome if result else None,
        reason=result.reason if result else "",
        cpus=_equal(asked.cpus if asked else None, seen.cpus),
        # The kernel keeps some for itself: what it shows is less than what it was given.
        memory=_equal(given and shown and 0.8 * given <= shown <= given, seen=True),
        cmdline=_equal(asked.full_cmdline if asked else None, cmdline),
        noapic=Answer.UNKNOWN
        if cmdline is None
        else _equal(_UNASKED in cmdline.split(), seen=True),
        thp=seen.thp or "",
        preempt=seen.preempt or "",
        clocksource=seen.clocksource or "",
        workload_exit="" if facts.workload_exit is None else str(facts.workload_exit),
        semantic=_equal(
            bool(state) and all(one.holds for one in state) if told else None, seen=True
        ),
    )


def _equal(asked: object, seen: object) -> Answer:
    if asked is None or seen is None:
        return Answer.UNKNOWN
    return Answer.YES if asked == seen else Answer.NO


def _together(answers: Iterable[Answer], decides: Answer = Answer.NO) -> Answer:
    """The answer of all: one that decides is enough, and none may be unknown for the other."""
    given = list(answers)
    if decides in given:
        return decides
    if Answer.UNKNOWN in given or not given:
        return Answer.UNKNOWN
    return Answer.YES if decides is Answer.NO else Answer.NO


def _facts(trials: Sequence[TrialRecord], labels: dict[int, str]) -> tuple[FactCheck, ...]:
    wants: dict[tuple[str, str], str] = {}
    values: dict[tuple[str, str], dict[str, dict[str, None]]] = {}
    for trial in trials:
        for field in trial.result.state if trial.result else ():
            key = field.when, field.name
            wants[key] = field.want
            values.setdefault(key, {}).setdefault(field.value, {})[labels[trial.arm]] = None
    return tuple(
        FactCheck(
            when=when,
            name=name,
            want=wants[when, name],
            values=tuple((value, tuple(arms)) for value, arms in found.items()),
        )
        for (when, name), found in values.items()
    )
