# SPDX-License-Identifier: GPL-2.0-or-later
"""Published changes of contention: does `--probe sharing` see them, and by which line?

    .venv/bin/python bench/contention.py [--runs DIRECTORY] [--rounds N] [--id ID ...] [CASES.toml]

Counts the scenario of each case on its two kernels, in as many rounds, and prints a row of
docs/sharing.md for it: lines fetched per operation before and after, the verdict, and the line that
the change moved, of all that kdelta names.  A case is right when the lines go the way that it says
and its line moves the same way.  Exits 1 when one is that its file says is missed, or the reverse.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

_HERE = Path(__file__).resolve().parent
_KDELTA = str(_HERE.parent / ".venv" / "bin" / "kdelta")
_LEAST = 0.05  # lines per operation that a line has moved by

Case = dict[str, Any]


def counted(cases: list[Case], rounds: int, runs: Path) -> str:
    """Run the scenarios of cases on their two kernels; the run."""
    scenarios = dict.fromkeys(case["scenario"] for case in cases)
    means = ["--probe", "sharing", "--rounds", str(rounds), "--runs", str(runs), "--new"]
    done = subprocess.run(
        [_KDELTA, "run", *scenarios, "--kernels", cases[0]["kernels"], *means],
        check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return Path(done.stdout.rsplit("Everything of this run:", 1)[1].strip()).name


def row(case: Case, run: str, runs: Path) -> tuple[str, bool]:
    """A line of the table, and whether the case is right."""
    means = ["--scenario", case["scenario"], "--sharing", "--json", "--runs", str(runs)]
    told = subprocess.run(
        [_KDELTA, "explain", run, *means], check=True, stdout=subprocess.PIPE, text=True
    )
    found = json.loads(told.stdout)
    judged = found["lines"]
    before, after = judged["old_value"], judged["new_value"]
    way = "same" if before == after else "fewer" if after < before else "more"
    sign = -1 if case["fetched"] == "fewer" else 1
    moved = [
        one
        for one in found["rows"]
        if re.search(case["line"], one["kind"])
        and one["group"] == "fetched from another CPU"
        and one["delta"] * sign >= _LEAST * found["operations"]
    ]
    named = max(moved, key=lambda one: abs(one["delta"]), default=None)
    line = f"`{named['kind']}` {named['delta'] / found['operations']:+.2g}" if named else "none"
    right = way == case["fetched"] and (way == "same" or named is not None)
    values = f"{before:.2f} -> {after:.2f}"
    verdict = judged["comparison"]["verdict"]
    if verdict == "UNDECIDED":
        scattered = "spread" in judged["comparison"]["reasons"][0]
        verdict += " by seeds" if scattered else " by options"
    cells = (f"{case['id']}, {case['release']}", f"`{case['scenario']}`", values, verdict, line)
    answer = "yes" if right else f"no: {case.get('missed', 'not as known')}"
    return f"| {' | '.join(cells)} | {answer} |", right


def main() -> None:
    """Count all cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=Path, default=Path("kdelta-runs"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--id", action="append")
    parser.add_argument("cases", nargs="?", type=Path, default=_HERE / "contention.toml")
    chosen = parser.parse_args()
    cases = tomllib.loads(chosen.cases.read_text())["case"]
    pairs: defaultdict[str, list[Case]] = defaultdict(list)
    for case in cases:
        if not chosen.id or case["id"] in chosen.id:
            pairs[case["kernels"]].append(case)
    rows: dict[str, tuple[str, bool]] = {}
    for own in pairs.values():
        run = counted(own, chosen.rounds, chosen.runs)
        rows |= {case["id"]: row(case, run, chosen.runs) for case in own}
    print("| change | scenario | lines fetched | verdict | its line | right |")
    print("|---|---|---|---|---|---|")
    for text, _ in rows.values():
        print(text)
    right = {name for name, (_, each) in rows.items() if each}
    print(f"{len(right)} of {len(rows)} right")
    sys.exit(any((one["id"] in right) == ("missed" in one) for one in cases if one["id"] in rows))


if __name__ == "__main__":
    main()
