# SPDX-License-Identifier: GPL-2.0-or-later
"""Code read out of images against what their guests say and execute."""

from __future__ import annotations

from pathlib import Path

import pytest

from boot.lab import Machine
from kdelta import workload
from kdelta.attribution import symbols
from kdelta.disassembly import image, kallsyms
from kdelta.disassembly.code import executed_code
from kdelta.journal import artifacts
from kdelta.kernels.image import unpacked_kernel
from kdelta.run.counting import run_trial
from kdelta.sample import Outcome

pytestmark = pytest.mark.boot

FUNCTION = "mincore_pte_range"


def test_an_images_own_symbols_are_what_its_guest_says(machine: Machine) -> None:
    said = machine.functions()
    table = kallsyms.read(unpacked_kernel(machine.kernel.image))
    assert table is not None
    own = set(zip(table.starts, table.names, strict=True))
    functions = zip(said.starts, said.names, strict=True)
    assert {row for row in functions if row[1] != symbols.UNKNOWN} <= own


def test_a_functions_instructions_add_up_to_its_count(machine: Machine, tmp_path: Path) -> None:
    load = workload.load("mincore")
    scenario = load.scenario("no_thp_pte_scan_64m")
    folder = tmp_path / "trials" / "0000"
    result = run_trial(machine.bench(), machine.kernel, scenario, load.program, folder)
    assert result.outcome is Outcome.OK, result.reason
    opened = image.opened(machine.kernel.image, machine.kernel.release)
    code = opened.function(FUNCTION)
    windows = artifacts.typical_windows(tmp_path, 0, result)
    for row in (row for row in result.exact.functions if row.function == FUNCTION):
        counted = windows[row.phase].instructions()
        (start,) = opened.starts(FUNCTION)
        found = executed_code(counted, start, start + code.size, opened.arch, {})
        assert sum(one.count for one in found) == row.insns
        assert found[0].count == row.calls
        # One loop per page: most of what ran, ran about once for each.
        pages = next(one.operations for one in result.exact.phases if one.phase == row.phase)
        often = [one for one in found if one.count > pages / 2]
        assert len(often) > 5
        assert all(one.count == pytest.approx(pages, rel=0.01) for one in often)
