# SPDX-License-Identifier: GPL-2.0-or-later
"""Rows that stand in data twice, and runs under two arms, are said; what only looks so is not."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from kdelta.foreign import reader


def notes(place: Path, head: str, rows: Sequence[tuple[object, ...]]) -> str:
    (place / "r.csv").write_text(
        "".join(",".join(map(str, row)) + "\n" for row in [tuple(head.split(",")), *rows])
    )
    found = reader.read([place / "r.csv"])[1]
    return " ".join(found.notes)


def drawn(digits: int, count: int = 12) -> list[tuple[str, int, float]]:
    rng = random.Random(digits)  # noqa: S311
    return [
        (arm, boot, round(level + rng.gauss(0, 1), digits))
        for boot in range(1, count + 1)
        for arm, level in (("6.16", 100.0), ("6.17", 120.0))
    ]


def test_a_row_in_the_same_place_of_the_order_is_a_copy(tmp_path: Path) -> None:
    rows = [(arm, boot, 2 * boot + (arm == "6.17"), value) for arm, boot, value in drawn(2)]
    head = "kernel,boot,order,lat_us"
    assert "twice" not in notes(tmp_path, head, rows)
    told = notes(tmp_path, head, [*rows, *rows[:3]])
    assert "r.csv: 3 of 27 rows stand there twice, with the same run" in told


def test_a_block_of_rows_that_stands_there_again_is_a_copy(tmp_path: Path) -> None:
    rows = [(arm, value) for arm, _, value in drawn(4)]
    assert "twice" not in notes(tmp_path, "kernel,lat_us", rows)
    told = notes(tmp_path, "kernel,lat_us", [*rows, *rows[:10]])
    assert "6.16, lat_us: 5 of 17 values" in told


def test_coarse_values_repeat_of_themselves(tmp_path: Path) -> None:
    rows = [(arm, value) for arm, _, value in drawn(0, 200)]
    assert "twice" not in notes(tmp_path, "kernel,lat_us", rows)


def test_a_run_under_two_arms_is_said_and_a_number_is_none(tmp_path: Path) -> None:
    rows = [(arm, boot, f"run{boot}", value) for arm, boot, value in drawn(2)]
    head = "kernel,boot,run_id,lat_us"
    assert "stands under" not in notes(tmp_path, head, rows)
    named = [(arm, boot, f"{1 << 30 | boot:x}-{boot}", value) for arm, boot, _, value in rows]
    assert "run 40000001-1 stands under 6.16 and 6.17, and 11 more runs" in notes(
        tmp_path, head, named
    )


def test_files_that_are_equal_to_the_byte_are_said(tmp_path: Path) -> None:
    for arm, level in (("base", 100.0), ("patched", 100.0)):
        rows = "".join(f"{boot},{level + boot / 7:.6f}\n" for boot in range(9))
        (tmp_path / f"{arm}.csv").write_text(f"boot,lat_us\n{rows}")
    told = " ".join(reader.read([tmp_path])[1].notes)
    assert "base.csv and " in told
    assert "are the same to the byte" in told
