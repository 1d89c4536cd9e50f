# SPDX-License-Identifier: GPL-2.0-or-later
"""How well explain explains, what its probes cost, and the page that shows it.

    python bench/explained.py RUN...         of runs with --probe calls: how much the first row is
    python bench/explained.py --survey RUN   count the steps of a survey with --probe calls, and
                                             say it of each; what was counted is not counted again
    python bench/explained.py --write FILE   measure two steps, and write docs/explain.md;
                                             with RUN... of these, which have been measured

A first row explains a step when it is at least 80 % of the net, and not more than 120 %.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from commands import BenchError, said
from steps import TOO_MUCH, FirstRow, of_run, of_survey

_STEPS = (
    ("mprotect:shared_dirty_full_toggle_16m", "6.16", "6.17"),
    ("mincore:no_thp_pte_scan_4m", "6.18", "6.19"),
)
_KEPT = "\n## The steps of a survey\n"  # what stands from there on is not made here
_PROBES = ("--probe", "calls", "--probe", "memory")
_HEAD = """# Two steps, explained

For readers who want to see `kdelta explain --calls` at work: the sentences, the causes, which
sum to the net, and the paths on which it lies. Made by

    python bench/explained.py --write docs/explain.md

which measures both steps with the newest kernels of the archive. How to read them is in
[explaining.md](explaining.md#by-call-path).
"""


def main() -> None:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ran", nargs="*", type=Path, metavar="RUN")
    parser.add_argument("--survey", type=Path, metavar="RUN")
    parser.add_argument("--runs", type=Path, default=Path("kdelta-runs"))
    parser.add_argument("--write", type=Path, metavar="FILE")
    given = parser.parse_args()
    try:
        if given.write:
            kept = given.write.read_text() if given.write.exists() else ""
            given.write.write_text(_page(given.ran) + _KEPT + kept.partition(_KEPT)[2])
        elif given.survey:
            _say(of_survey(given.survey, given.runs))
        else:
            _say(row for folder in given.ran for row in of_run(folder))
    except BenchError as error:
        sys.exit(str(error))


def _say(rows: Iterable[FirstRow]) -> None:
    explained = total = beyond = 0
    for row in rows:
        total += not row.missing
        explained += row.explains
        beyond += not (row.missing or 0 <= row.share <= TOO_MUCH)
        said_first = f"{row.net} {row.words}" if row.words else row.missing
        share = f"{100 * row.share:.0f} %" if row.words else "-"
        print(f"{share:>7}  {row.step}: {said_first}", flush=True)
    less = total - explained - beyond
    print(f"the first row is 80 to 120 % of the net in {explained} of {total} steps,")
    print(f"less in {less}, and more, or against it, in {beyond}")


def _page(runs: list[Path]) -> str:
    """The page, of runs in the order of the steps or of new ones."""
    parts = [_HEAD]
    with tempfile.TemporaryDirectory(prefix="kdelta-bench-") as scratch:
        for number, (scenario, old, new) in enumerate(_STEPS):
            kernels = f"{old},{new}"
            if not runs:
                said("run", scenario, "--kernels", kernels, *_PROBES, "--runs", scratch)
            run = str(runs[number]) if runs else "latest"
            told = said("explain", run, old, new, "--calls", "--runs", scratch)
            made = f"kdelta run {scenario} --kernels {kernels} {' '.join(_PROBES)}"
            shown = f"kdelta explain latest {old} {new} --calls"
            parts.append(f"## {scenario}, {old} to {new}\n\n```\n$ {made}\n$ {shown}\n{told}```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    main()
