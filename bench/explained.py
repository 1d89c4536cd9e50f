# SPDX-License-Identifier: GPL-2.0-or-later
"""How well explain explains, what its probes cost, and the page that shows it.

    python bench/explained.py RUN...         of runs with --probe calls: how much the first row is
    python bench/explained.py --write FILE   measure four steps, and write docs/explain.md;
                                             with RUN... of these, which have been measured

A first row explains a step when it is at least 80 % of the net, and not more than 120 %.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from kdelta.analysis import calls, explanation
from kdelta.analysis.evidence import points, scenarios
from kdelta.errors import KdeltaError
from kdelta.journal import calls as kept
from kdelta.journal.run import RunJournal, RunRecord
from kdelta.stats.verdict import Verdict

_ENOUGH, _TOO_MUCH = 0.8, 1.2
_STEPS = (
    ("mprotect:shared_dirty_full_toggle_16m", "6.16", "6.17"),
    ("mincore:no_thp_pte_scan_4m", "6.18", "6.19"),
    ("unmap:munmap", "6.12", "6.16"),
    ("process:thread", "7.0", "7.1"),
)
_PROBES = ("--probe", "calls", "--probe", "memory")
_HEAD = """# Four steps, explained

What `kdelta explain --calls` says of four steps between releases: first the sentences, then the
causes, which sum to the net, then the paths on which it lies. Made by

    python bench/explained.py --write docs/explain.md

which measures them with the newest kernels of the archive; how to read it is told in
[method.md](method.md#by-call-path).
"""


def main() -> None:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN")
    parser.add_argument("--write", type=Path, metavar="FILE")
    given = parser.parse_args()
    if given.write:
        given.write.write_text(_page(given.runs))
    elif given.runs:
        _first_rows(given.runs)


def _first_rows(folders: list[Path]) -> None:
    explained = total = 0
    for folder in folders:
        for name, share in _steps(folder, RunJournal.open(folder).record()):
            total += 1
            explained += _ENOUGH <= share <= _TOO_MUCH
            print(f"{100 * share:6.0f} %  {name}")
    print(f"the first row explains at least 80 % of the net in {explained} of {total} steps")


def _steps(folder: Path, record: RunRecord) -> Iterator[tuple[str, float]]:
    """Every step between neighbours, and the share of its net that the first row has."""
    for point, _ in points(record):
        for workload, scenario in scenarios(record):
            for old, new in pairwise(arm.label for arm in record.arms):
                name = f"{workload}:{scenario}"
                try:
                    found = explanation.explain(record, old, new, scenario=name, point=point)
                    if found.comparison.verdict not in (Verdict.REGRESSION, Verdict.IMPROVEMENT):
                        continue
                    sides = calls.sources(record, found, point)
                    trees = ([kept.kept(folder, at)[phase] for at, phase in s] for s in sides)
                    difference = calls.explained(found, *trees).difference
                except KdeltaError as error:
                    print(f"     -    {name}, {old} -> {new}: {error}")
                    continue
                if difference and difference.causes and difference.root.delta:
                    share = difference.causes[0].delta / difference.root.delta
                    yield f"{name}, {old} -> {new}", share


def _kdelta(*arguments: str) -> str:
    command = [sys.executable, "-c", "from kdelta.cli.main import main; main()", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _page(runs: list[Path]) -> str:
    """The page, of runs in the order of the steps or of new ones."""
    parts = [_HEAD]
    with tempfile.TemporaryDirectory(prefix="kdelta-bench-") as scratch:
        for number, (scenario, old, new) in enumerate(_STEPS):
            kernels = f"{old},{new}"
            if not runs:
                _kdelta("run", scenario, "--kernels", kernels, *_PROBES, "--runs", scratch)
            run = str(runs[number]) if runs else "latest"
            told = _kdelta("explain", run, old, new, "--calls", "--runs", scratch)
            made = f"kdelta run {scenario} --kernels {kernels} {' '.join(_PROBES)}"
            shown = f"kdelta explain latest {old} {new} --calls"
            parts.append(f"## {scenario}, {old} to {new}\n\n```\n$ {made}\n$ {shown}\n{told}```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    main()
