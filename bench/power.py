# SPDX-License-Identifier: GPL-2.0-or-later
"""Does the verdict on times keep its promise?  Seeded simulation, beside what others would say.

    .venv/bin/python bench/power.py              # all figures, most of an hour on two cores
    .venv/bin/python bench/power.py --quick      # a tenth of the sessions
    .venv/bin/python bench/power.py --docs docs/method.md    # and put the table there
    .venv/bin/python bench/power.py --keep cells.jsonl       # go on where it was stopped
    .venv/bin/python bench/power.py --design 9:9             # the cells of so many boots alone

False alarms: the share of sessions of two equal arms in which a rule sees a difference.  Power: the
share of the first of these sessions, with a true change of 5 %, in which it does (common random
numbers: rules and changes are compared on the same sessions).  Coverage: the share of sessions
whose interval holds the true change; as a shift of logs moves interval and truth alike, that is the
share of no false alarms, except where the clock is coarse, which has sessions of its own.

Exits 1 when kdelta's false alarms are above the level, its coverage is below 98.5 %, or, where arms
have boots enough to show modes, its power is below 0.95 of the better of Welch's and of Mann and
Whitney's tests, where both keep the level (at most 1.1 % in 400,000 sessions); each by more than
the simulation's own error can explain (three standard errors).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

from kdelta.analysis.compat import mmtests_significant
from kdelta.metric import Better
from kdelta.stats import published_rules, ranks, sequential
from kdelta.stats.scatter import SHOWN_MODES
from kdelta.stats.shift import batch_p_values, shift
from kdelta.stats.timing import ALPHA
from kdelta.stats.welch import Spread
from simulation import SEED, SYMMETRIC, Array, Design, Noise, Sessions, sessions

EVEN = (Design(old=5, new=5), Design(old=9, new=9), Design(old=15, new=15))
DOUBLE = (Design(old=10, new=5), Design(old=18, new=9))  # the old arm before and after (A/B/A)
CHANGE = 0.05
AT_ONCE = 20_000  # sessions
LARGE_CHANGE = 0.25  # what few boots are asked for
COVERAGE = 0.985  # the least, of intervals that promise 99 %
KEPT = 0.011  # false alarms of a test of others that keeps the level of 1 %
POWER = 0.95  # of the better of Welch's and of Mann and Whitney's test
TOLERANCE = 0.05  # of the rule with a maximal CV, as published
MAX_CV = 0.10
ERRORS = 3.0
BASE = (
    *(Noise.NORMAL, Noise.LOGNORMAL, Noise.DRIFT, Noise.OUTLIERS, Noise.LATTICE),
    Noise.CORRELATED,
)
MARKS = ("<!-- printed by bench/power.py --docs -->", "<!-- end of what bench/power.py prints -->")
Values = Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many sessions of each kind a figure is made of; rivals: their false alarms."""

    level: int
    power: int
    rivals: int
    others: int
    coverage: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Rates (0..1) of one rule in one cell."""

    level: float
    power: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One design and one noise: what each rule does, and what kdelta's interval covers.

    large: kdelta's power and the better of the others' for LARGE_CHANGE; None: not asked.
    """

    design: Design
    noise: Noise
    rules: dict[str, Rule]
    coverage: float
    large: tuple[float, float] | None


OTHERS: dict[str, Callable[[Values, Values], bool]] = {
    "benchstat, 5 %": lambda old, new: published_rules.benchstat(old, new).change is not None,
    "mmtests' star, 5 %": lambda old, new: mmtests_significant(old, new, Better.LOWER),
    "lkp": published_rules.lkp_changed,
    "tolerance 5 %, CV 10 %": lambda old, new: bool(
        published_rules.within_tolerance(old, new, tolerance=TOLERANCE, max_cv=MAX_CV)
    ),
}


def ours(these: Sessions, seed: int) -> Array:
    """kdelta's p of each session; those well above the level are not refined."""
    return batch_p_values(
        these.logs, n_old=these.design.old, seed=seed, when=these.design.when, up_to=2 * ALPHA
    )


def welch(these: Sessions) -> Array:
    """Welch's p of each session, of log values, with his own degrees of freedom."""
    from scipy.special import stdtr

    n_old = these.design.old
    spread = Spread.of(these.logs, n_old)
    size = np.abs(these.logs[:, n_old:].mean(axis=1) - these.logs[:, :n_old].mean(axis=1))
    whole = np.maximum(spread.old + spread.new, 1e-300)
    freedom = whole**2 / (
        np.maximum(spread.old, 1e-150) ** 2 / spread.freedom[0]
        + np.maximum(spread.new, 1e-150) ** 2 / spread.freedom[1]
    )
    return np.asarray(2 * stdtr(freedom, -size / np.sqrt(whole)))


def mann_whitney(these: Sessions) -> Array:
    """Mann and Whitney's exact p of each session, by middle ranks where values are equal."""
    n_old, n_new = these.design.old, these.design.new
    placed = rankdata(these.logs, axis=1)[:, n_old:].sum(axis=1) - n_new * (n_new + 1) / 2
    return ranks.chance(n_old, n_new, np.floor(np.minimum(placed, n_old * n_new - placed)))


RIVALS: dict[str, Callable[[Sessions], Array]] = {"Welch": welch, "M-W": mann_whitney}


def judged(these: Sessions, seed: int) -> dict[str, Array]:
    """Whether each rule at the level of 1 % sees a difference (0 or 1), session by session."""
    found = {"kdelta": ours(these, seed)} | {name: rule(these) for name, rule in RIVALS.items()}
    return {name: np.asarray(p <= ALPHA, dtype=np.float64) for name, p in found.items()}


def cells() -> Iterator[tuple[Design, Noise]]:
    """All of the table."""
    for design in (*EVEN, *DOUBLE):
        for noise in Noise:
            if design in EVEN and noise in SYMMETRIC:
                continue
            yield design, noise


def few(design: Design) -> bool:
    """True when all boots of an arm may be of one mode more often than the level allows."""
    return min(design.old, design.new) < SHOWN_MODES


def levels(design: Design, noise: Noise, count: int, seed: int) -> dict[str, float]:
    """The false alarms of the two others, of so many sessions that error hides nothing."""
    generator = np.random.default_rng([seed, 6, design.old, design.new, list(Noise).index(noise)])
    hits, done = dict.fromkeys(RIVALS, 0), 0
    while done < count:
        some = min(count - done, AT_ONCE)
        these = sessions(noise, design=design, count=some, change=0.0, generator=generator)
        for name, rule in RIVALS.items():
            hits[name] += int((rule(these) <= ALPHA).sum())
        done += len(these.logs)
    return {name: found / done for name, found in hits.items()}


def cell(design: Design, noise: Noise, counts: Counts, seed: int) -> Cell:
    """Simulate one cell of the table."""
    generator = np.random.default_rng([seed, design.old, design.new, list(Noise).index(noise)])
    equal = sessions(noise, design=design, count=counts.level, change=0.0, generator=generator)
    moved = equal.moved(CHANGE, counts.power)
    alarms, seen = judged(equal, seed), judged(moved, seed)
    rules = {
        name: Rule(level=float(alarms[name].mean()), power=float(seen[name].mean()))
        for name in alarms
    }
    if not few(design):
        known = levels(design, noise, counts.rivals, seed)
        rules |= {name: Rule(level=known[name], power=rules[name].power) for name in known}
    coverage = 1 - rules["kdelta"].level
    if equal.read is not None:
        moved.logs[:, design.old :] -= math.log1p(CHANGE)
        coverage = float((ours(moved, seed) > ALPHA).mean())
    large = None
    if few(design):
        found = judged(equal.moved(LARGE_CHANGE, counts.power), seed)
        large = (
            float(found["kdelta"].mean()),
            max(float(found[name].mean()) for name in ("Welch", "M-W")),
        )
    return Cell(design=design, noise=noise, rules=rules, coverage=coverage, large=large)


def faults(found: Cell, counts: Counts) -> list[str]:
    """What of the promise does not hold in a cell."""
    own = found.rules["kdelta"]
    most = ALPHA + ERRORS * math.sqrt(ALPHA * (1 - ALPHA) / counts.level)
    wrong = []
    if own.level > most:
        wrong.append(f"false alarms {100 * own.level:.2f} %")
    asked = counts.power if found.noise is Noise.LATTICE else counts.level
    least = COVERAGE - ERRORS * math.sqrt(COVERAGE * (1 - COVERAGE) / asked)
    if found.coverage < least:
        wrong.append(f"coverage {100 * found.coverage:.2f} %")
    best = max(found.rules[name].power for name in RIVALS)
    error = math.sqrt(max(best * (1 - best), 1e-4) / counts.power)
    both = len(keeping(found)) == len(RIVALS)
    if both and own.power < POWER * best - ERRORS * error:
        wrong.append(f"power {100 * own.power:.1f} % of {100 * best:.1f} %")
    return wrong


def keeping(found: Cell) -> list[str]:
    """Which of the two others keep the level in a cell where power is asked for."""
    if few(found.design):
        return []
    return [name for name in RIVALS if found.rules[name].level <= KEPT]


def part(found: Cell) -> str:
    """kdelta's power as a part of the better of those that keep the level, and who they are."""
    kept = keeping(found)
    best = max((found.rules[name].power for name in kept), default=0.0)
    if not best:
        return "-"
    who = "" if len(kept) == len(RIVALS) else f" ({kept[0]})"
    return f"{found.rules['kdelta'].power / best:.2f}{who}"


def row(found: Cell, counts: Counts) -> str:
    """A cell as a line of the table."""
    own, *rivals = (
        f"{100 * rule.level:.2f} / {100 * rule.power:.1f}" for rule in found.rules.values()
    )
    large = " / ".join(f"{100 * power:.1f}" for power in found.large or ()) or "-"
    said = ", ".join(faults(found, counts))
    cells = (
        *(str(found.design), found.noise, own, f"{100 * found.coverage:.1f}", *rivals),
        *(part(found), large),
    )
    return f"| {' | '.join(cells)} | {said} |"


LARGE = f"{100 * LARGE_CHANGE:g} %"
HEAD = f"| boots | noise | kdelta | coverage | Welch | Mann-Whitney | part | {LARGE} | |"


def kept(
    path: Path | None, told: str, make: Callable[[], tuple[str, list[str]]]
) -> tuple[str, list[str]]:
    """A line of the table and its faults: of a file of such, else made and put there.

    told: all that the line depends on but the code; a file is for one state of that.
    """
    if path and path.exists():
        for text in path.read_text().splitlines():
            found = json.loads(text)
            if found["of"] == told:
                return found["line"], found["faults"]
    line, wrong = make()
    if path:
        with path.open("a") as stream:
            stream.write(json.dumps({"of": told, "line": line, "faults": wrong}) + "\n")
    return line, wrong


def print_cells(
    counts: Counts, seed: int, path: Path | None, only: Design | None
) -> tuple[list[str], list[str]]:
    """The table of false alarms and power: its lines, and what does not hold.  only: of this."""
    print(f"false alarms / power for {100 * CHANGE:g} %, in percent; level {100 * ALPHA:g} %")
    lines, wrong = [HEAD, "|---" * 9 + "|"], []
    print("\n".join(lines))
    for design, noise in cells():
        if only not in (None, design):
            continue

        def make(design: Design = design, noise: Noise = noise) -> tuple[str, list[str]]:
            found = cell(design, noise, counts, seed)
            return row(found, counts), faults(found, counts)

        line, said = kept(path, f"{design}, {noise}, {counts}, seed {seed}", make)
        lines.append(line)
        print(line, flush=True)
        wrong += [f"{design}, {noise}: {text}" for text in said]
    of = [100 * math.sqrt(ALPHA * (1 - ALPHA) / count) for count in (counts.level, counts.rivals)]
    error = (
        f"{counts.level} and {counts.power} sessions, seed {seed}; standard errors: {of[0]:.2f} of"
        f" 1 % false alarms (from 9 boots on {of[1]:.2f} of the others', of {counts.rivals}"
        f" sessions), {50 / math.sqrt(counts.power):.1f} of a power of 50 %"
    )
    print(error)
    return [*lines, "", f"{error}."], wrong


def put(lines: Sequence[str], path: Path) -> None:
    """Replace what stands between the marks of a page."""
    before, rest = path.read_text().split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    path.write_text("\n".join((f"{before}{MARKS[0]}", "", *lines, "", f"{MARKS[1]}{after}")))


def print_others(counts: Counts, seed: int) -> list[str]:
    """What the rules of other tools do in the first cells, at their own levels: a table."""
    lines = [f"| boots | noise | {' | '.join(OTHERS)} |", f"|---|---|{'---|' * len(OTHERS)}"]
    print("\n" + "\n".join(lines))
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
            lines.append(f"| {design} | {noise} | {shown} |")
            print(lines[-1], flush=True)
    return lines


def print_pooled(counts: Counts, seed: int) -> None:
    """What the same test says when samples are taken for boots."""
    generator = np.random.default_rng([seed, 1])
    alarms = 0
    count = max(counts.coverage, 100)
    these = sessions(Noise.CORRELATED, design=EVEN[1], count=count, change=0.0, generator=generator)
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
    print(f"{'boots':>7} {'noise':14}{'kdelta':>18}{'bootstrap':>18}")
    for design in EVEN[:2]:
        rounds = design.old
        for noise in (Noise.NORMAL, Noise.OUTLIERS, Noise.CORRELATED):
            generator = np.random.default_rng([seed, 2, rounds])
            these = sessions(
                noise, design=design, count=counts.coverage, change=CHANGE, generator=generator
            )
            held: dict[str, list[tuple[bool, float]]] = {"kdelta": [], "bootstrap": []}
            for index in range(counts.coverage):
                row = np.exp(these.logs[index])
                found = shift(
                    row[:rounds].tolist(),
                    row[rounds:].tolist(),
                    alpha=ALPHA,
                    seed=seed,
                    when=design.when,
                )
                for name, (low, high) in (
                    ("kdelta", (found.low, found.high)),
                    ("bootstrap", bootstrap(these, index, generator)),
                ):
                    held[name].append((low <= 1 + CHANGE <= high, high - low))
            shown = "".join(_held(each) for each in held.values())
            print(f"{design!s:>7} {noise:14}{shown}", flush=True)
    print(f"standard error {100 * math.sqrt(ALPHA * (1 - ALPHA) / counts.coverage):.2f}")


def _held(pairs: Sequence[tuple[bool, float]]) -> str:
    share = 100 * sum(hit for hit, _ in pairs) / len(pairs)
    width = 100 * float(np.median([size for _, size in pairs]))
    return f"{share:>8.1f} ({width:6.1f})"


def bootstrap(these: Sessions, index: int, generator: np.random.Generator) -> tuple[float, float]:
    """Percentile interval of the ratio of medians: boots drawn, then the samples within them."""
    draws, n = 999, these.design.old
    sides = []
    for start in (0, n):
        chosen = start + generator.integers(0, n, (draws, n))
        if these.samples is None:
            values = np.exp(these.logs[index, chosen])
        else:
            samples = these.samples[index]
            within = generator.integers(0, samples.shape[1], (draws, n, samples.shape[1]))
            values = np.median(samples[chosen[:, :, np.newaxis], within], axis=2)
        sides.append(np.median(values, axis=1))
    low, high = np.quantile(sides[1] / sides[0], [ALPHA / 2, 1 - ALPHA / 2])
    return float(low), float(high)


def print_sequential(counts: Counts, seed: int) -> list[str]:
    """False alarms of a session that looks after every round from 5 to 15, and stops at a step."""
    budget = EVEN[-1].old
    looks = list(range(5, budget + 1))
    levels = sequential.levels(looks, budget=budget, alpha=ALPHA)
    shown, wrong = [], []
    for change, count in ((0.0, counts.level), (CHANGE, counts.power)):
        generator = np.random.default_rng([seed, 3])
        these = sessions(
            Noise.NORMAL, design=EVEN[-1], count=count, change=change, generator=generator
        )
        stopped = np.zeros(count, dtype=bool)
        used = np.full(count, budget)
        naive = np.zeros(count, dtype=bool)
        for n, level in zip(looks, levels, strict=True):
            columns = [*range(n), *range(budget, budget + n)]
            part = Sessions(logs=these.logs[:, columns], samples=None, design=Design(old=n, new=n))
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


def design_of(text: str) -> Design:
    """One of the table's designs, as OLD:NEW."""
    known = {f"{each.old}:{each.new}": each for each in (*EVEN, *DOUBLE)}
    if text not in known:
        raise argparse.ArgumentTypeError(f"no design of the table; it has {', '.join(known)}")
    return known[text]


def closed(wrong: Sequence[str]) -> int:
    """Say what does not hold; 1 when anything does not."""
    print("\n" + ("does not hold: " + "; ".join(wrong) if wrong else "all promises hold"))
    return 1 if wrong else 0


def main() -> int:
    """Print everything; 1 when a promise does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the sessions")
    parser.add_argument("--docs", type=Path, metavar="PAGE", help="put the table there")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="cells made so far, of this code")
    parser.add_argument("--design", type=design_of, metavar="OLD:NEW", help="its cells alone")
    parser.add_argument("--seed", type=int, default=SEED)
    asked = parser.parse_args()
    share = 10 if asked.quick else 1
    counts = Counts(
        level=12_000 // share,
        power=6_000 // share,
        rivals=400_000 // share,
        others=500 // share,
        coverage=100 // share,
    )
    lines, wrong = print_cells(counts, asked.seed, asked.keep, asked.design)
    if asked.design:
        return closed(wrong)
    told = f"What other tools would do, each at its own level ({counts.others} sessions):"
    lines += ["", told, "", *print_others(counts, asked.seed)]
    if asked.docs:
        put(lines, asked.docs)
    wrong += print_sequential(counts, asked.seed)
    print_pooled(counts, asked.seed)
    print_coverage(counts, asked.seed)
    return closed(wrong)


if __name__ == "__main__":
    sys.exit(main())
