# SPDX-License-Identifier: GPL-2.0-or-later
"""What an option costs: the largest steps of a pair of releases, split into option and kernel.

    .venv/bin/python bench/options.py [--runs FOLDER] [SCENARIO...]

Debian turned UBSAN_BOUNDS and UBSAN_SHIFT on between its 6.12 and 6.16.  The archive no longer has
6.16's source, so the option is measured on the next release that has it on, against itself without:
same source, compiler and configuration.  Without scenarios, the ten largest steps of the survey.
It ends with 1 when the checks that are counted exceed what leaving them out saves.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from commands import said
from kdelta.analysis import explanation
from kdelta.journal.run import RUNS, RunJournal, RunRecord
from kdelta.ladder.evidence import scenarios

BEFORE, AFTER, WITH, OPTION = "6.12", "6.16", "6.17", "UBSAN"
MOST = 10
WIDTH = 34
HEADS = ("scenario", BEFORE, AFTER, WITH, "without", "step", "option", "checks", "rest")


def counted(runs: Path, *words: str) -> RunRecord:
    """The run that a command makes."""
    said(*words, "--runs", str(runs), may=(1,))
    return RunJournal.open(RUNS.find(runs, "latest")).record()


def values(record: RunRecord, scenario: str) -> list[float]:
    """What an operation takes on each arm after the first, behind what it takes there."""
    labels = [arm.label for arm in record.arms]
    rows = [
        explanation.explain(record, labels[0], label, scenario=scenario, force=True)
        for label in labels[1:]
    ]
    return [
        float(value or 0) / rows[0].operations
        for value in (rows[0].old_value, *(row.new_value for row in rows))
    ]


def checks(record: RunRecord, scenario: str) -> float:
    """How many instructions of an operation are surely checks, on the release that has them; 0
    where that is not known.
    """
    old, new = record.arms[0].label, record.arms[2].label
    row = explanation.explain(record, old, new, scenario=scenario, force=True)
    return sum(share.delta for share in row.options) / row.operations


def main() -> int:
    """1 when a lower bound is none."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", nargs="*")
    parser.add_argument("--runs", type=Path, default=Path("kdelta-runs", "options"))
    asked = parser.parse_args()
    named = asked.scenario
    if not named:
        survey = counted(asked.runs / "survey", "survey", "--kernels", f"{BEFORE},{AFTER}")
        steps = {}
        for load, name in scenarios(survey):
            one, two = values(survey, f"{load}:{name}")
            steps[f"{load}:{name}"] = abs(math.log(two / one)) if one and two else 0.0
        named = sorted(steps, key=lambda name: -steps[name])[:MOST]
    kernels = f"{BEFORE},{AFTER},{WITH},{WITH}+without={OPTION}"
    record = counted(asked.runs / "split", "run", *named, "--kernels", kernels)
    print(f"{HEADS[0]:{WIDTH}}", *(f"{head:>9}" for head in HEADS[1:]))
    print("kernels:", ", ".join(arm.label for arm in record.arms))
    wrong = 0
    for name in named:
        before, after, own, without = values(record, name)
        least = checks(record, name)
        cost = own - without
        wrong += least > cost
        figures = (before, after, own, without, after - before, cost, least, without - before)
        print(f"{name:{WIDTH}}", *(f"{figure:9.2f}" for figure in figures))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
