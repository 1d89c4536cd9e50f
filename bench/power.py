# SPDX-License-Identifier: GPL-2.0-or-later
"""Does the verdict on times keep its promise?  Seeded simulation, beside what others would say.

    .venv/bin/python bench/power.py              # all figures, some minutes
    .venv/bin/python bench/power.py --quick      # a tenth of the sessions

False alarms: the share of sessions of two equal arms in which a rule sees a difference.  Power: the
share of sessions with a true change of 5 % in which it does.  Exits 1 when kdelta's false alarms
are above the level, or its power below Mann-Whitney's at the same level for 9 or 15 boots, by more
than the simulation's own error can explain (three standard errors).
"""

from __future__ import annotations

import argparse
import math
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from kdelta.analysis.compat import mmtests
from kdelta.metric import Assume, Better, Grade, Metric
from kdelta.stats import published_rules, sequential
from kdelta.stats.permutation import batch_p_values, shift
from kdelta.stats.series import Boot, Series
from kdelta.stats.timing import ALPHA, compare
from kdelta.stats.verdict import Comparison
from simulation import Array, Noise, Sessions, sessions

SEED = 20260513
ROUNDS = (5, 9, 15)
CHANGE = 0.05
TOLERANCE = 0.05  # of the rule with a maximal CV, as published
MAX_CV = 0.10
ERRORS = 3.0
METRIC = Metric(name="simulated", unit="ns/page", better=Better.LOWER, assume=Assume.NOTHING)
Values = Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many sessions of each kind a figure is made of."""

    level: int
    power: int
    others: int
    coverage: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Rates (0..1) of one number of rounds and one noise: [false alarms, power] by rule."""

    rounds: int
    noise: Noise
    rates: dict[str, tuple[float, float]]
    gain_error: float  # standard error of kdelta's power minus Mann-Whitney's, from pairs


OTHERS: dict[str, Callable[[Values, Values], bool]] = {
    "benchstat": lambda old, new: published_rules.benchstat(old, new).change is not None,
    "mmtests *": lambda old, new: mmtests.significant(old, new, Better.LOWER),
    "lkp": published_rules.lkp_changed,
    "tol+cv": lambda old, new: bool(
        published_rules.within_tolerance(old, new, tolerance=TOLERANCE, max_cv=MAX_CV)
    ),
}


def ours(these: Sessions, seed: int) -> Array:
    """kdelta's p of each session."""
    logs = np.log(these.values)
    return batch_p_values(logs, n_old=these.rounds, seed=seed, when=these.when)


def mann_whitney(these: Sessions, seed: int) -> Array:
    """Exact Mann-Whitney p of each session, ties and all."""

    def ranks(values: Array) -> Array:
        return np.asarray(rankdata(values, axis=1), dtype=np.float64)

    return batch_p_values(these.values, n_old=these.rounds, seed=seed, scores=ranks)


def cell(noise: Noise, rounds: int, counts: Counts, seed: int) -> Cell:
    """Simulate one cell of the table."""
    generator = np.random.default_rng([seed, rounds, list(Noise).index(noise)])
    rates: dict[str, list[float]] = {}
    paired = np.zeros(1)
    for change, count in ((0.0, counts.level), (CHANGE, counts.power)):
        these = sessions(noise, rounds=rounds, count=count, change=change, generator=generator)
        seen = {
            "kdelta": ours(these, seed) <= ALPHA,
            "M-W 1 %": mann_whitney(these, seed) <= ALPHA,
        }
        for name, found in seen.items():
            rates.setdefault(name, []).append(float(found.mean()))
        paired = seen["kdelta"].astype(float) - seen["M-W 1 %"]
        arms = [(row[:rounds].tolist(), row[rounds:].tolist()) for row in these.values]
        for name, rule in OTHERS.items():
            some = [rule(old, new) for old, new in arms[: counts.others]]
            rates.setdefault(name, []).append(sum(some) / len(some))
    return Cell(
        rounds=rounds,
        noise=noise,
        rates={name: (found[0], found[1]) for name, found in rates.items()},
        gain_error=float(paired.std() / math.sqrt(len(paired))),
    )


def faults(found: Cell, counts: Counts) -> list[str]:
    """What of the promise does not hold in a cell."""
    level, power = found.rates["kdelta"]
    where = f"{found.rounds} boots, {found.noise}"
    error = math.sqrt(ALPHA * (1 - ALPHA) / counts.level)
    wrong = []
    if level > ALPHA + ERRORS * error:
        wrong.append(f"{where}: false alarms {100 * level:.2f} %")
    least = found.rates["M-W 1 %"][1] - ERRORS * found.gain_error
    if found.rounds >= 9 and power < least:
        wrong.append(f"{where}: power {100 * power:.1f} % is below Mann-Whitney's")
    return wrong


def print_cells(counts: Counts, seed: int) -> list[str]:
    """The table of false alarms and power; returns what does not hold."""
    names = ["kdelta", "M-W 1 %", *OTHERS]
    print(f"false alarms / power for {100 * CHANGE:g} %, in percent; level {100 * ALPHA:g} %")
    print(f"{'boots':>5} {'noise':14}" + "".join(f"{name:>14}" for name in names))
    wrong = []
    for rounds in ROUNDS:
        for noise in Noise:
            found = cell(noise, rounds, counts, seed)
            shown = "".join(
                f"{100 * found.rates[name][0]:>7.2f}/{100 * found.rates[name][1]:5.1f} "
                for name in names
            )
            print(f"{rounds:>5} {noise:14}{shown}", flush=True)
            wrong += faults(found, counts)
    errors = [math.sqrt(ALPHA * (1 - ALPHA) / count) for count in (counts.level, counts.others)]
    print(
        f"Monte-Carlo standard error of a rate of 1 %: {100 * errors[0]:.2f} for the first two,"
        f" {100 * errors[1]:.2f} for the others; of a power of 50 %:"
        f" {50 / math.sqrt(counts.power):.2f} and {50 / math.sqrt(counts.others):.2f}"
    )
    return wrong


def print_pooled(counts: Counts, seed: int) -> None:
    """What the same test says when samples are taken for boots."""
    generator = np.random.default_rng([seed, 1])
    alarms = 0
    count = max(counts.coverage, 100)
    these = sessions(Noise.CORRELATED, rounds=9, count=count, change=0.0, generator=generator)
    assert these.samples is not None  # noqa: S101  this noise always has samples
    for row in these.samples:
        old, new = row[:9].ravel().tolist(), row[9:].ravel().tolist()
        alarms += published_rules.benchstat(old, new).change is not None
    print(
        "\nsamples taken for boots (9 boots, correlated, equal arms): benchstat sees a difference"
        f" in {100 * alarms / count:.0f} % of sessions"
    )


def print_coverage(counts: Counts, seed: int) -> None:
    """How often 99 % intervals hold the truth, ours and a hierarchical bootstrap's."""
    print(f"\ncoverage of {100 * (1 - ALPHA):g} % intervals (median width), percent")
    print(f"{'boots':>5} {'noise':14}{'kdelta':>18}{'bootstrap':>18}")
    for rounds in (5, 9):
        for noise in (Noise.NORMAL, Noise.OUTLIERS, Noise.CORRELATED):
            generator = np.random.default_rng([seed, 2, rounds])
            these = sessions(
                noise, rounds=rounds, count=counts.coverage, change=CHANGE, generator=generator
            )
            held: dict[str, list[tuple[bool, float]]] = {"kdelta": [], "bootstrap": []}
            for index in range(counts.coverage):
                row = these.values[index]
                found = shift(
                    row[:rounds].tolist(),
                    row[rounds:].tolist(),
                    alpha=ALPHA,
                    seed=seed,
                    when=these.when,
                )
                for name, (low, high) in (
                    ("kdelta", (found.low, found.high)),
                    ("bootstrap", bootstrap(these, index, generator)),
                ):
                    held[name].append((low <= 1 + CHANGE <= high, high - low))
            shown = "".join(_held(each) for each in held.values())
            print(f"{rounds:>5} {noise:14}{shown}", flush=True)
    print(f"standard error {100 * math.sqrt(ALPHA * (1 - ALPHA) / counts.coverage):.2f}")


def _held(pairs: Sequence[tuple[bool, float]]) -> str:
    share = 100 * sum(hit for hit, _ in pairs) / len(pairs)
    width = 100 * float(np.median([size for _, size in pairs]))
    return f"{share:>8.1f} ({width:6.1f})"


def bootstrap(these: Sessions, index: int, generator: np.random.Generator) -> tuple[float, float]:
    """Percentile interval of the ratio of medians: boots drawn, then the samples within them."""
    draws, n = 999, these.rounds
    sides = []
    for start in (0, n):
        chosen = start + generator.integers(0, n, (draws, n))
        if these.samples is None:
            values = these.values[index, chosen]
        else:
            samples = these.samples[index]
            within = generator.integers(0, samples.shape[1], (draws, n, samples.shape[1]))
            values = np.median(samples[chosen[:, :, np.newaxis], within], axis=2)
        sides.append(np.median(values, axis=1))
    low, high = np.quantile(sides[1] / sides[0], [ALPHA / 2, 1 - ALPHA / 2])
    return float(low), float(high)


def print_sequential(counts: Counts, seed: int) -> list[str]:
    """False alarms of a session that looks after every round from 5 to 15, and stops at a step."""
    budget = ROUNDS[-1]
    looks = list(range(5, budget + 1))
    levels = sequential.levels(looks, budget=budget, alpha=ALPHA)
    shown, wrong = [], []
    for change, count in ((0.0, counts.level), (CHANGE, counts.power)):
        generator = np.random.default_rng([seed, 3])
        these = sessions(
            Noise.NORMAL, rounds=budget, count=count, change=change, generator=generator
        )
        stopped = np.zeros(count, dtype=bool)
        used = np.full(count, budget)
        naive = np.zeros(count, dtype=bool)
        for n, level in zip(looks, levels, strict=True):
            columns = [*range(n), *range(budget, budget + n)]
            part = Sessions(values=these.values[:, columns], samples=None, rounds=n)
            p = ours(part, seed)
            used[(p <= level) & ~stopped] = n
            stopped |= p <= level
            naive |= p <= ALPHA
        shown.append(f"{100 * stopped.mean():.2f} % (naive {100 * naive.mean():.1f} %)")
        error = math.sqrt(ALPHA * (1 - ALPHA) / count)
        if not change and stopped.mean() > ALPHA + ERRORS * error:
            wrong.append(f"sequential: false alarms {100 * stopped.mean():.2f} %")
        if change:
            shown.append(f"{used.mean():.1f} of {budget} boots used")
    print("\nlooking after every boot from the 5th: false alarms, power, boots:", "; ".join(shown))
    return wrong


def series(arm: str, values: Array, *, first: int) -> Series:
    """An arm of an interleaved session of two, from samples (boots x samples)."""
    boots = tuple(
        Boot(
            label=f"{arm} r{index}",
            position=2 * index + (first + index) % 2,
            round=index,
            values=tuple(row),
        )
        for index, row in enumerate(values.tolist())
    )
    return Series(arm=arm, metric=METRIC, boots=boots, planned=len(boots))


def judge_many(samples: int, boots: int, seed: int) -> tuple[Comparison, float]:
    """Judge `samples` samples in two arms; the verdict, and seconds."""
    generator = np.random.default_rng([seed, 4])
    shape = (boots, samples // (2 * boots))
    arms = [
        series(name, 1e3 * mean * (1 + 0.03 * generator.standard_normal(shape)), first=index)
        for index, (name, mean) in enumerate((("old", 1.0), ("new", 1.05)))
    ]
    begun = time.perf_counter()
    found = compare(arms[0], arms[1], grade=Grade.HOST_TIME, seed=seed)
    return found, time.perf_counter() - begun


def print_speed(seed: int) -> None:
    """How long a million samples take."""
    for boots in (10, 1000, 50_000):
        found, seconds = judge_many(1_000_000, boots, seed)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"1,000,000 samples in 2 x {boots} boots: {found.verdict} in {seconds:.2f} s;"
            f" largest memory so far {memory:.0f} MB",
            flush=True,
        )


def main() -> int:
    """Print everything; 1 when a promise does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the sessions")
    parser.add_argument("--seed", type=int, default=SEED)
    asked = parser.parse_args()
    part = 10 if asked.quick else 1
    counts = Counts(
        level=20_000 // part, power=10_000 // part, others=4000 // part, coverage=500 // part
    )
    print(f"seed {asked.seed}")
    print_speed(asked.seed)
    wrong = print_cells(counts, asked.seed)
    print_pooled(counts, asked.seed)
    print_coverage(counts, asked.seed)
    wrong += print_sequential(counts, asked.seed)
    print("\n" + ("does not hold: " + "; ".join(wrong) if wrong else "all promises hold"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
