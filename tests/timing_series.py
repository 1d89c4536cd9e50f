# SPDX-License-Identifier: GPL-2.0-or-later
"""Series for tests: from plain values, and from the published evidence under tests/data."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Sequence
from pathlib import Path

from kdelta.metric import Assume, Better, Metric
from kdelta.verdict.series import Boot, ReplicateUnit, Series

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
            label=f"{name} r{index}",
            position=arms * index + (first + index) % arms,
            values=(value,),
            round=index,
            boot_id=boot_id,
        )
        for index, value in enumerate(values)
    )
    return Series(
        arm=name,
        metric=metric,
        boots=boots,
        planned=planned or len(values),
        facts=facts,
        state=state,
        replicate=replicate,
    )


def noisy(mean: float, n: int, *, cv: float, seed: int) -> list[float]:
    generator = random.Random(seed)  # noqa: S311  not for secrets
    return [mean * (1 + cv * generator.gauss(0, 1)) for _ in range(n)]


def points(folder: str, column: str) -> dict[str, Series]:
    """Process rounds of a session that measured one kernel after the other."""
    path = EVIDENCE / folder / "measurements.tsv"
    boots: dict[str, list[Boot]] = {}
    with path.open(newline="") as stream:
        for position, row in enumerate(csv.DictReader(stream, delimiter="\t")):
            boot = Boot(
                label=f"{row['point']} {row['round']}",
                position=position,
                round=int(row["round"]),
                values=(float(row[column]),),
                boot_id=row["point"],
            )
            boots.setdefault(row["point"], []).append(boot)
    return {
        name: Series(
            arm=name,
            metric=METRIC,
            boots=tuple(found),
            planned=len(found),
            replicate=ReplicateUnit.PROCESS_ROUND,
        )
        for name, found in boots.items()
    }


def bundle(folder: str, metric: str) -> dict[str, Series]:
    """Boots of a framework bundle, with their real order, by kernel version."""
    order = json.loads((EVIDENCE / folder / "execution_order.json").read_text())["steps"]
    boots: dict[str, list[Boot]] = {}
    with (EVIDENCE / folder / "raw.csv").open(newline="") as stream:
        for row in csv.DictReader(stream):
            if row["metric"] != metric:
                continue
            step = next((s for s in order if row["run_id"].startswith(s["suite_name"])), None)
            boot = Boot(
                label=row["run_id"],
                position=step["sequence"] - 1 if step else None,
                round=step["repeat"] if step else None,
                values=(float(row["value"]),) if row["value"] else (),
                failure=row["failure_reason"],
                run=row["run_id"],
            )
            boots.setdefault(row["exact_version"], []).append(boot)
    return {
        name: Series(arm=name, metric=METRIC, boots=tuple(found), planned=len(found))
        for name, found in boots.items()
    }
