# SPDX-License-Identifier: GPL-2.0-or-later
"""Which scenarios a survey counts, and in which order a study's trials run.

The order is pure, and the same for a seed on every machine.

Rounds come one after the other, each with every arm and scenario once in an order of its own, so
that a drift of the machine meets all arms alike.
"""

from __future__ import annotations

import hashlib
import itertools
import struct
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from kdelta import workload
from kdelta.ladder.counts import CountEvidence, counted
from kdelta.ladder.evidence import scenarios
from kdelta.sample import Run, Source, TrialRecord
from kdelta.study.spec import Study, has_control, points
from kdelta.verdict.comparison import STEP_PERCENT, Verdict, compare

TURNS = "turns"  # the workload of tasks that take turns, of which shared lines are counted


def surveyed(
    only: Sequence[str] = (), *, field: bool = False, probe: str | None = None
) -> list[str]:
    """Scenarios of the survey that fit `only`.  field: those that have a robot's name, too.  probe:
    SHARING for those in turns instead.
    """
    return [
        one.reference
        for name in ((TURNS,) if probe else workload.names())
        for one in workload.load(name).scenarios
        if (probe or one.survey or (one.robots and (field or only)))
        and (not only or any(fnmatchcase(one.reference, pattern) for pattern in only))
    ]


def make_plan(study: Study, seed: int) -> tuple[TrialRecord, ...]:
    """Plan every arm and scenario once a round, shuffled by `seed`; in a sandwich the first arm
    opens each round and the control closes it.  `arm` indexes the arms of the first point of the
    study's matrix, then of the next: kernels and, in a sandwich, the control.
    """
    trials: list[TrialRecord] = []
    for round_ in range(study.plan.rounds):
        for arm, load, name in _round(study, f"{seed}:{round_}"):
            at = len(trials)
            trials.append(
                TrialRecord(index=at, round=round_, arm=arm, workload=load, scenario=name)
            )
    return tuple(trials)


def sources(record: Run, step_percent: float = STEP_PERCENT) -> tuple[TrialRecord, ...]:
    """The trials that tell what moves the counts of a C file of the user's own, where seeds move
    them so far that they leave a verdict open.

    record: a run that is done.  Each seed after the first is tried again in one source alone, for
    each arm that disagrees with itself; none are planned twice.
    """
    if not record.instrument.traits.repeats or any(one.varies for one in record.trials):
        return ()
    rounds = {trial.round for trial in record.trials} - {0}
    wanted = [
        (number, source, arm.arm.index, workload, scenario)
        for workload, scenario in scenarios(record)
        for arm in _undecided(counted(record, workload, scenario), step_percent)
        if arm.used and arm.used[0].outside and (total := arm.total)
        # Further apart than a step may be.
        if 100 * total.trials_range > STEP_PERCENT / 3 * total.value
        for number in sorted(rounds)
        for source in Source
    ]
    first = 1 + max(trial.index for trial in record.trials)
    return tuple(
        TrialRecord(
            index=index, round=number, arm=arm, workload=workload, scenario=scenario, varies=source
        )
        for index, (number, source, arm, workload, scenario) in enumerate(wanted, first)
    )


def _undecided(arms: Sequence[CountEvidence], step_percent: float) -> list[CountEvidence]:
    """Those whose counts alone do not decide against the first, or the one before."""
    open_ = set[int]()
    for at, new in enumerate(arms):
        for other in {0, at - 1} - {at} if at else ():
            old = arms[other]
            if old.total and new.total:
                found = compare(old.total.reading, new.total.reading, step_percent=step_percent)
                open_ |= {at, other} if found.verdict is Verdict.UNDECIDED else set()
    return [arms[at] for at in sorted(open_)]


def _round(study: Study, key: str) -> list[tuple[int, str, str]]:
    kernels, count = len(study.kernels), len(points(study))
    if not has_control(study):
        return _shuffled(_pairs(study, range(kernels * count)), key)
    each = kernels + 1
    first = range(0, each * count, each)
    control = [arm + kernels for arm in first]
    rest = [arm for arm in range(each * count) if arm not in {*first, *control}]
    return [
        *_shuffled(_pairs(study, first), f"{key}:first"),
        *_shuffled(_pairs(study, rest), key),
        *_shuffled(_pairs(study, control), f"{key}:control"),
    ]


def _pairs(study: Study, arms: Iterable[int]) -> list[tuple[int, str, str]]:
    scenarios = [name.partition(":") for name in study.scenarios]
    return [(arm, workload, name) for arm in arms for workload, _, name in scenarios]


def _shuffled(pairs: list[tuple[int, str, str]], key: str) -> list[tuple[int, str, str]]:
    """A Fisher-Yates shuffle.  `random` does not promise one order for all Python versions."""
    order = list(pairs)
    words = _words(key)
    for last in range(len(order) - 1, 0, -1):
        other = _below(last + 1, words)
        order[last], order[other] = order[other], order[last]
    return order


def _below(bound: int, words: Iterator[int]) -> int:
    """A number from 0 to bound - 1, each equally likely: words of the uneven end are refused."""
    fair = 2**64 - 2**64 % bound
    return next(word for word in words if word < fair) % bound


def _words(key: str) -> Iterator[int]:
    for counter in itertools.count():
        block = hashlib.sha256(f"kdelta-plan-1:{key}:{counter}".encode()).digest()
        yield from struct.unpack(">4Q", block)
