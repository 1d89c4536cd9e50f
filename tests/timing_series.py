# SPDX-License-Identifier: GPL-2.0-or-later
"""Series for tests: from plain values, and from the published evidence under tests/data."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from kdelta.metric import Assume, Better, Metric, ReplicateUnit
from kdelta.stats.series import Boot, Series

EVIDENCE = Path(__file__).parent / "data" / "evidence"
METRIC = Metric(name="cycle", unit="ns/page", better=Better.LOWER, assume=Assume.NOTHING)


def arm(
    name: str,
    values: Sequence[float],
    *,
    first: int = 0,
    arms: int = 2,
    planned: int = 0,
    facts: tuple[tuple[str, str], ...] = (),
    state: tuple[tuple[str, str], ...] = (),
    replicate: ReplicateUnit = ReplicateUnit.BOOT,
    boot_id: str = "",
    metric: Metric = METRIC,
) -> Series:
    """An arm of an interleaved session of `arms`, one value per boot."""
    boots = tuple(
        Boot(
            label=f"{name} r{index}", position=arms * index + (first + index) % arms,
            values=(value,), boot_id=boot_id,
        )
        for index, value in enumerate(values)
    )  # fmt: skip
    return Series(
        arm=name, metric=metric, boots=boots, planned=planned or len(values), facts=facts,
        state=state, replicate=replicate,
    )  # fmt: skip


def noisy(mean: float, n: int, *, cv: float, seed: int) -> list[float]:
    generator = random.Random(seed)  # noqa: S311  not for secrets
    return [mean * (1 + cv * generator.gauss(0, 1)) for _ in range(n)]
