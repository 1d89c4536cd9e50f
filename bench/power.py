# SPDX-License-Identifier: GPL-2.0-or-later
"""Does the verdict on times keep its promise?  Seeded simulation, beside what others would say.

    .venv/bin/python bench/power.py              # all figures, a few minutes
    .venv/bin/python bench/power.py --quick      # a tenth of the sessions
    .venv/bin/python bench/power.py --docs docs/times.md     # and put the tables there
    .venv/bin/python bench/power.py --design 9:9             # the cells of so many boots alone

Level: the share of sessions of two equal arms in which a rule sees a difference.  Power: the share
of sessions with a true change of 5 %, and of 25 %, in which it does.  A shift of logs moves the
interval and the truth alike, so the share of intervals that hold the truth is that of no false
alarms.  Where the clock is coarse it is not, and the level is the larger one of both.

Exits 1 when kdelta's false alarms are above the level by more than the simulation's own error can
explain (three standard errors).  The power is what it is.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import mannwhitneyu, ttest_ind

import published_rules
from kdelta.metric import Better
from kdelta.stats.brunner_munzel import guarded_p
from kdelta.stats.timing import ALPHA
from published_rules import mmtests_significant
from simulation import SEED, SYMMETRIC, Array, Design, Noise, Sessions, sessions

EVEN = (Design(old=5, new=5), Design(old=9, new=9), Design(old=15, new=15))
DOUBLE = (Design(old=10, new=5), Design(old=18, new=9))  # the old arm before and after (A/B/A)
CHANGE, LARGE_CHANGE = 0.05, 0.25
TOLERANCE = 0.05  # of the rule with a maximal CV, as published
MAX_CV = 0.10
ERRORS = 3.0
BASE = (
    *(Noise.NORMAL, Noise.LOGNORMAL, Noise.DRIFT, Noise.OUTLIERS, Noise.LATTICE),
    Noise.CORRELATED,
)
MARKS = ("<!-- printed by bench/power.py --docs -->", "<!-- end of what bench/power.py prints -->")
HEAD = "| boots | noise | level | 5 % | 25 % | Welch | Mann-Whitney |"
Values = Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many sessions a figure is made of."""

    level: int
    power: int
    others: int

    @property
    def tied(self) -> Counts:
        """Fewer where each session has other equal values, and so assignments of its own."""
        return Counts(level=self.level // 5, power=self.power // 5, others=self.others)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Rates (0..1) in one design and one noise.  others: level and power of the other tests."""

    level: float
    power: float
    large: float
    others: tuple[tuple[float, float], ...]


OTHERS: dict[str, Callable[[Values, Values], bool]] = {
    "benchstat, 5 %": lambda old, new: published_rules.benchstat(old, new).change is not None,
    "mmtests' star, 5 %": lambda old, new: mmtests_significant(old, new, Better.LOWER),
    "tolerance 5 %, CV 10 %": lambda old, new: bool(
        within_tolerance(old, new, tolerance=TOLERANCE, max_cv=MAX_CV)
    ),
}


def within_tolerance(
    old: Sequence[float], new: Sequence[float], *, tolerance: float, max_cv: float
) -> bool | None:
    """The published framework's rule: means that differ by more than tolerance of old.

    None: it calls the pair not comparable, because a sample CV is above max_cv.
    """
    for values in (old, new):
        mean = statistics.fmean(values)
        if mean == 0 or (len(values) > 1 and statistics.stdev(values) / mean > max_cv):
            return None
    was = statistics.fmean(old)
    return abs(statistics.fmean(new) - was) > tolerance * was


def ours(these: Sessions, seed: int) -> Array:
    """kdelta's p of each session."""
    return guarded_p(these.logs, these.design.old, seed=seed)


def welch(these: Sessions) -> Array:
    """Welch's p of each session, of log values; of arms without any scatter none."""
    n_old = these.design.old
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        p = ttest_ind(these.logs[:, :n_old], these.logs[:, n_old:], axis=1, equal_var=False).pvalue
    return np.asarray(np.nan_to_num(p, nan=1.0))


def mann_whitney(these: Sessions) -> Array:
    """Mann and Whitney's p of each session: exact, or nearly so where values are equal."""
    n_old = these.design.old
    old, new = these.logs[:, :n_old], these.logs[:, n_old:]
    tied = bool((np.diff(np.sort(these.logs, axis=1), axis=1) == 0).any())
    with np.errstate(all="ignore"):
        found = mannwhitneyu(old, new, axis=1, method="asymptotic" if tied else "exact")
    return np.asarray(np.nan_to_num(found.pvalue, nan=1.0))


TESTS: dict[str, Callable[[Sessions], Array]] = {"Welch": welch, "Mann-Whitney": mann_whitney}


def cells() -> Iterator[tuple[Design, Noise]]:
    """All of the table."""
    for design in (*EVEN, *DOUBLE):
        for noise in Noise:
            if design in EVEN and noise in SYMMETRIC:
                continue
            yield design, noise


def rejected(p: Array) -> float:
    """The share of sessions in which a test at ALPHA sees a difference."""
    return float((p <= ALPHA).mean())


def cell(design: Design, noise: Noise, counts: Counts, seed: int) -> Cell:
    """Simulate one cell of the table."""
    counts = counts.tied if noise is Noise.LATTICE else counts
    generator = np.random.default_rng([seed, design.old, design.new, list(Noise).index(noise)])
    equal = sessions(noise, design=design, count=counts.level, change=0.0, generator=generator)
    moved, far = (equal.moved(change, counts.power) for change in (CHANGE, LARGE_CHANGE))
    level = rejected(ours(equal, seed))
    power, large = (rejected(ours(these, seed)) for these in (moved, far))
    others = tuple((rejected(test(equal)), rejected(test(moved))) for test in TESTS.values())
    if equal.read is not None:
        moved.logs[:, design.old :] -= math.log1p(CHANGE)
        level = max(level, rejected(ours(moved, seed)))
    return Cell(level=level, power=power, large=large, others=others)


def most(count: int) -> float:
    """The largest share of false alarms that simulation error explains at the level."""
    return ALPHA + ERRORS * math.sqrt(ALPHA * (1 - ALPHA) / count)


def row(design: Design, noise: Noise, found: Cell) -> str:
    """A cell as a line of the table."""
    others = (f"{100 * level:.2f} / {100 * power:.1f}" for level, power in found.others)
    own = (f"{100 * found.level:.2f}", f"{100 * found.power:.1f}", f"{100 * found.large:.1f}")
    return f"| {' | '.join((str(design), noise, *own, *others))} |"


def print_cells(counts: Counts, seed: int, only: Design | None) -> tuple[list[str], list[str]]:
    """Every cell, as it is made; the table of a document, and what does not hold.

    only: of this design.
    """
    print(f"level and power for {100 * CHANGE:g} % and {100 * LARGE_CHANGE:g} %, in percent")
    print(HEAD + "\n" + "|---" * 7 + "|")
    short: dict[Noise, dict[Design, str]] = {}
    wrong = []
    for design, noise in cells():
        if only not in (None, design):
            continue
        found = cell(design, noise, counts, seed)
        print(row(design, noise, found), flush=True)
        told = f"{100 * found.level:.2f}/{100 * found.power:.1f}/{100 * found.large:.1f}"
        short.setdefault(noise, {})[design] = told
        if found.level > most(counts.tied.power if noise is Noise.LATTICE else counts.level):
            wrong.append(f"{design}, {noise}: level {100 * found.level:.2f} %")
    error = (
        f"{counts.level} sessions a level and {counts.power} a power, of a lattice a fifth, seed"
        f" {seed}; standard errors: {100 * math.sqrt(ALPHA * (1 - ALPHA) / counts.level):.2f} of a"
        f" level of 1 %, {50 / math.sqrt(counts.power):.1f} of a power of 50 %."
    )
    print(error)
    return [*table(short), "", error], wrong


def table(short: dict[Noise, dict[Design, str]]) -> list[str]:
    """A line for each noise, and a column for each design: level, power for both changes."""
    designs = [*EVEN, *DOUBLE]
    lines = [f"| noise | {' | '.join(str(each).replace(' ', '') for each in designs)} |"]
    lines.append("|---" * (1 + len(designs)) + "|")
    for noise, found in short.items():
        lines.append(f"| {noise} | {' | '.join(found.get(each, '') for each in designs)} |")
    return lines


def put(lines: Sequence[str], path: Path) -> None:
    """Replace what stands between the marks of a page."""
    before, rest = path.read_text().split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    path.write_text("\n".join((f"{before}{MARKS[0]}", "", *lines, "", f"{MARKS[1]}{after}")))


def print_others(counts: Counts, seed: int) -> None:
    """What the rules of other tools do in the first cells, at their own levels: a table."""
    print(f"\nwhat other tools would do, each at its own level ({counts.others} sessions)")
    print(f"| boots | noise | {' | '.join(OTHERS)} |\n|---|---|{'---|' * len(OTHERS)}")
    for design in EVEN:
        for noise in BASE:
            generator = np.random.default_rng([seed, 5, design.old, list(Noise).index(noise)])
            rates: dict[str, list[float]] = {name: [] for name in OTHERS}
            for change in (0.0, CHANGE):
                these = sessions(
                    noise, design=design, count=counts.others, change=change, generator=generator
                )
                values = np.exp(these.logs)
                arms = [(row[: design.old].tolist(), row[design.old :].tolist()) for row in values]
                for name, rule in OTHERS.items():
                    rates[name].append(sum(rule(old, new) for old, new in arms) / len(arms))
            shown = " | ".join(f"{100 * a:.2f} / {100 * b:.1f}" for a, b in rates.values())
            print(f"| {design} | {noise} | {shown} |", flush=True)


def print_pooled(counts: Counts, seed: int) -> None:
    """What the same test says when samples are taken for boots."""
    generator = np.random.default_rng([seed, 1])
    alarms = 0
    count = max(counts.others // 5, 100)
    these = sessions(Noise.CORRELATED, design=EVEN[1], count=count, change=0.0, generator=generator)
    assert these.samples is not None  # noqa: S101  this noise always has samples
    for row in these.samples:
        old, new = row[:9].ravel().tolist(), row[9:].ravel().tolist()
        alarms += published_rules.benchstat(old, new).change is not None
    print(
        "\nsamples taken for boots (9 boots, correlated, equal arms): benchstat sees a difference"
        f" in {100 * alarms / count:.0f} % of sessions"
    )


def design_of(text: str) -> Design:
    """One of the table's designs, as OLD:NEW."""
    known = {f"{each.old}:{each.new}": each for each in (*EVEN, *DOUBLE)}
    if text not in known:
        raise argparse.ArgumentTypeError(f"no design of the table; it has {', '.join(known)}")
    return known[text]


def main() -> int:
    """Print everything; 1 when a promise does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the sessions")
    parser.add_argument("--docs", type=Path, metavar="PAGE", help="put the tables there")
    parser.add_argument("--design", type=design_of, metavar="OLD:NEW", help="its cells alone")
    parser.add_argument("--seed", type=int, default=SEED)
    asked = parser.parse_args()
    share = 10 if asked.quick else 1
    counts = Counts(level=20_000 // share, power=4_000 // share, others=500 // share)
    lines, wrong = print_cells(counts, asked.seed, asked.design)
    if not asked.design:
        print_others(counts, asked.seed)
        print_pooled(counts, asked.seed)
        if asked.docs:
            put(lines, asked.docs)
    print("\n" + ("does not hold: " + "; ".join(wrong) if wrong else "the level holds"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
