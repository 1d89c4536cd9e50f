# SPDX-License-Identifier: GPL-2.0-or-later
"""How well a survey spreads over 1 to 16 workers, by the costs that its trials had.

    .venv/bin/python bench/workers.py RUN [--boot SECONDS]

A simulation: the trials of a stored run, each as long as it took there (the median of its scenario
where it was not measured anew), are given to workers by the rule that `kdelta run --scheduler` has
(workers/dispatch.choice).  The first worker that gets a kernel boots it; its checkpoint goes by the
controller to every other one.
"""

from __future__ import annotations

import argparse
import heapq
import statistics
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from kdelta.journal.run import RunJournal, RunRecord
from kdelta.sample import Outcome
from kdelta.workers.dispatch import choice

CONTROLLER_S = 0.02  # that the controller is busy with one result: checked, written, told
MOST = 16


@dataclass(frozen=True, slots=True)
class Cost:
    """A trial: its kernel, and seconds on a worker that has it."""

    kernel: str
    seconds: float


def by_scenario(record: RunRecord) -> dict[str, list[float]]:
    """What the trials of a run that were counted took, by scenario."""
    own: dict[str, list[float]] = {}
    for trial in record.trials:
        result = trial.result
        if result and result.outcome is Outcome.OK and not result.copied and not result.stored:
            own.setdefault(trial.scenario, []).append(result.wall_s)
    return own


def costs(record: RunRecord) -> list[Cost]:
    """The trials of a run in their order."""
    typical = {name: statistics.median(found) for name, found in by_scenario(record).items()}
    # What is longer than twice its median made the checkpoint, too: that is counted apart.
    return [
        Cost(str(trial.arm), min(trial.result.wall_s, 2 * typical[trial.scenario])
             if trial.result and trial.result.wall_s and not trial.result.stored
             else typical[trial.scenario])
        for trial in record.trials
        if trial.scenario in typical
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Points:
    """Checkpoints: seconds to make one, and until one has come from a worker or to one."""

    boot_s: float
    sent_s: float


def elapsed(trials: list[Cost], workers: int, points: Points) -> float:
    """Seconds until all trials are done."""
    names = [f"worker {at}" for at in range(workers)]
    kernels: dict[str, set[str]] = {}
    left, waiting = list(trials), Counter(each.kernel for each in trials)
    busy: list[tuple[float, str]] = []
    free, now, controller = list(names), 0.0, 0.0
    made = dict[str, float]()
    while left or busy:
        given = True
        while given and free and left:
            given = False
            for at, trial in enumerate(left):
                chosen = choice(trial.kernel, free, kernels, waiting)
                if chosen is None:
                    continue
                if trial.kernel not in made:
                    made[trial.kernel] = now + points.boot_s + points.sent_s
                there = now
                if trial.kernel not in kernels.get(chosen, ()):
                    there = max(now, made[trial.kernel]) + points.sent_s
                kernels.setdefault(chosen, set()).add(trial.kernel)
                waiting[trial.kernel] -= 1
                heapq.heappush(busy, (there + trial.seconds, chosen))
                free.remove(chosen)
                del left[at]
                given = True
                break
        ended, name = heapq.heappop(busy)
        controller = max(controller, ended) + CONTROLLER_S
        now = controller
        free.append(name)
    return now


def main() -> None:
    """Print the table of docs/lab.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--boot", type=float, default=10.0, help="seconds to make a checkpoint")
    parser.add_argument("--sent", type=float, default=2.0, help="seconds to send one")
    parser.add_argument("--scenarios", type=int, help="so many, on so many kernels")
    parser.add_argument("--kernels", type=int)
    chosen = parser.parse_args()
    record = RunJournal.open(chosen.run).record()
    trials = costs(record)
    if chosen.scenarios and chosen.kernels:
        typical = [statistics.median(own) for own in by_scenario(record).values()]
        typical = typical[: chosen.scenarios]
        trials = [Cost(str(at), each) for each in typical for at in range(chosen.kernels)]
    points = Points(chosen.boot, chosen.sent)
    kernels = len({each.kernel for each in trials})
    total = sum(each.seconds for each in trials)
    print(
        f"{len(trials)} trials over {kernels} kernels, {total:.0f} s, a boot is {chosen.boot:g} s"
    )
    print("| workers | seconds | efficiency |\n|--:|--:|--:|")
    alone = elapsed(trials, 1, points)
    worst = 1.0
    for number in range(1, MOST + 1):
        took = elapsed(trials, number, points)
        worst = min(worst, alone / took / number)
        print(f"| {number} | {took:.0f} | {alone / took / number:.2f} |")
    print(f"the least: {worst:.2f} x linear")


if __name__ == "__main__":
    main()
