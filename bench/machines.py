# SPDX-License-Identifier: GPL-2.0-or-later
"""How often equal kernels are called different over several machines: the level over machines.

    .venv/bin/python bench/machines.py [SESSIONS]

Prints, for each number of machines and boots and each kind of scatter, the share of sessions of
equal arms that are rejected at 1 %; machines differ in speed and in scatter.
"""

from __future__ import annotations

import sys

import numpy as np

from kdelta.stats.brunner_munzel import p_over

ALPHA = 0.01
SCATTERS = ("normal", "heavy tails", "two modes", "skewed")


def drawn(kind: str, boots: int, generator: np.random.Generator) -> np.ndarray:
    """Deviations of so many boots, about as wide as a normal one's."""
    if kind == "normal":
        return generator.normal(0, 1, boots)
    if kind == "heavy tails":
        return generator.standard_t(2, boots)
    if kind == "two modes":
        return generator.normal(0, 0.3, boots) + 3.0 * generator.integers(0, 2, boots)
    return np.exp(generator.normal(0, 1, boots))


def machine(
    kind: str, boots: int, generator: np.random.Generator
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """A machine that measured two equal arms."""
    speed, scatter = generator.choice([1, 2, 5]), 0.01 * generator.choice([0.5, 1, 3])
    old, new = (
        tuple((speed * np.exp(scatter * drawn(kind, boots, generator))).tolist()) for _ in range(2)
    )
    return old, new


def main() -> None:
    """Print the table."""
    sessions = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    generator = np.random.default_rng(5)
    for machines in (2, 3):
        for boots in (5, 9, 12):
            for kind in SCATTERS:
                rejected = sum(
                    p_over([machine(kind, boots, generator) for _ in range(machines)], 0.0, seed=1)
                    <= ALPHA
                    for _ in range(sessions)
                )
                told = f"{100 * rejected / sessions:.2f} %"
                print(f"{machines} machines  {boots:2} boots an arm  {kind:12} {told}", flush=True)


if __name__ == "__main__":
    main()
