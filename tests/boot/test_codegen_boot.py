# SPDX-License-Identifier: GPL-2.0-or-later
"""Code read out of images against what their guests say and execute."""

from __future__ import annotations

from pathlib import Path

import pytest

from boot.lab import Machine
from kdelta import workload
from kdelta.attribution import symbols
from kdelta.codegen import table
from kdelta.disassembly import image, kallsyms
from kdelta.disassembly.identity import Sameness, compare
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
    for row in (row for row in result.exact.functions if row.function == FUNCTION):
        start = opened.start(FUNCTION)
        found = table.hottest(tmp_path, 0, result, row.phase, start, code, "run")
        assert sum(found.counts) + found.elsewhere == row.insns
        assert found.counts[0] == row.calls
        # One loop per page: what is on the hot path is executed about once for each.
        assert all(found.rate(i) == pytest.approx(1, abs=0.01) for i in found.path)
        assert len(found.path) > 5
    executed = {row.function for row in result.exact.functions}
    same = compare(opened, opened, executed)
    assert same.sameness is not Sameness.DIFFERENT
    assert FUNCTION in same.identical
