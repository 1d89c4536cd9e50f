# SPDX-License-Identifier: GPL-2.0-or-later
"""Which window of a stored trial stands for a phase, and what raw counts are refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from msgspec.structs import replace

import counts_stream
import run_records
from kdelta.errors import SpecError, StoreError
from kdelta.journal.artifacts import typical_windows
from kdelta.sample import PhaseCounts, TrialResult
from ladder_records import recounted

COUNTS = {counts_stream.KERNEL + at: 1000 for at in (0, 4, 8)}
TOTAL = sum(COUNTS.values())


def phase(*counts: int, name: str = "scan") -> PhaseCounts:
    return PhaseCounts(
        phase=name, operations=1000, operation="page", user=tuple(0 for _ in counts), kernel=counts
    )


@pytest.fixture
def result(tmp_path: Path) -> TrialResult:
    """That of trial 0 below tmp_path, which kept a window of one phase and three of another."""
    trial = tmp_path / "trials" / "0000"
    trial.mkdir(parents=True)
    longer = COUNTS | {counts_stream.KERNEL + 0x200: 40}
    raw = counts_stream.write(
        tmp_path / "counts.bin", counts_stream.HEADER, counts_stream.ARMED,
        counts_stream.window({counts_stream.KERNEL: 5}, phase=1),
        counts_stream.window(COUNTS, phase=5), counts_stream.window(longer, phase=5),
        counts_stream.window(COUNTS, phase=5), counts_stream.END,
    )  # fmt: skip
    (trial / "counts.bin.gz").write_bytes(gzip.compress(raw.read_bytes()))
    phases = (phase(5, name="open"), phase(TOTAL, TOTAL + 40, TOTAL))
    return replace(recounted(run_records.result_of(0), phases=phases), artifacts={})


def test_a_phase_is_known_by_its_totals_and_has_its_modal_window(
    result: TrialResult, tmp_path: Path
) -> None:
    found = typical_windows(tmp_path, 0, result)
    assert {name: window.total for name, window in found.items()} == {"open": 5, "scan": TOTAL}
    with pytest.raises(StoreError, match="another trial's"):
        typical_windows(tmp_path, 0, recounted(result, phases=(phase(7, 7, 7),)))


def test_damaged_or_missing_counts_are_errors(result: TrialResult, tmp_path: Path) -> None:
    kept = tmp_path / "trials" / "0000" / "counts.bin.gz"
    kept.write_bytes(kept.read_bytes()[:-20])
    with pytest.raises(StoreError, match="cannot be read"):
        typical_windows(tmp_path, 0, result)
    kept.unlink()
    with pytest.raises(SpecError, match="kept no raw counts"):
        typical_windows(tmp_path, 0, result)
