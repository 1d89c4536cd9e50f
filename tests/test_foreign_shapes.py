# SPDX-License-Identifier: GPL-2.0-or-later
"""Shapes of tables whose settings, percentiles or arms are easily lost: none is read wrongly."""

from __future__ import annotations

from pathlib import Path

import pytest

import foreign_files as files
import foreign_marked as marked
import foreign_shapes as shapes
import foreign_turned as turned
from kdelta.foreign import words
from kdelta.metric import Better

_READ = (*shapes.READ, *files.READ, *turned.READ, *marked.READ)
_ASKED = (*shapes.ASKED, *files.ASKED, *turned.ASKED, *marked.ASKED)
_EVERY = [*_READ, *shapes.EITHER, *_ASKED]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("maker", _EVERY, ids=lambda maker: maker.__name__)
def test_a_shape_is_read_as_it_was_made(maker: shapes.Maker, seed: int, tmp_path: Path) -> None:
    shape = shapes.drawn(maker, seed)
    how, found = shapes.read(shape, tmp_path)
    if maker in _READ:
        assert how == "read"
    if maker in _ASKED:
        assert how == "asked"
    assert shapes.cells(found) <= shapes.everything(shape)
    assert shapes.cells(found) >= shapes.wanted(shape)


HIGHER = (
    "MB/s, pages/ms, ops per us, req/min, rows/hour, time (more is better), bogo ops per second"
)
LOWER = "ns/op, cycles per instruction, lat_us, score (lower is better), seconds per MB, fault_ns"
UNKNOWN = (
    "errors/s, faults per second, context switches/s, time_saved_ms, idle_time_s, throughput_ns,"
    " latency score, timeout_ms, ops/time, instructions per cycle, uptime_s, dropped packets/s"
)


@pytest.mark.parametrize(
    ("names", "better"), [(HIGHER, Better.HIGHER), (LOWER, Better.LOWER), (UNKNOWN, None)]
)
def test_a_direction_is_told_by_all_words_of_a_name(names: str, better: Better | None) -> None:
    assert {name: words.said(name).better for name in names.split(", ")} == dict.fromkeys(
        names.split(", "), better
    )
