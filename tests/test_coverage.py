# SPDX-License-Identifier: GPL-2.0-or-later
"""Which scenarios execute which functions."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from kdelta.analysis.explanation import coverage
from kdelta.cli.explain import coverage as coverage_command
from ladder_records import ladder
from test_explained_work import stored


def test_what_ran_is_told_by_function_and_scenario() -> None:
    found = coverage(ladder())
    assert found.scenarios[0][0] == "mprotect:shared_dirty_full_toggle_64m"
    assert found.scenarios[0][1] == found.scenarios[0][2] == len(found.functions)
    names = [row.function for row in found.functions]
    assert "change_pte_range" in names
    assert not any(name.startswith("[") or ".isra" in name for name in names)


def test_the_command_prints_it(tmp_path: Path) -> None:
    record = stored(tmp_path)
    place = ["--runs", str(tmp_path)]
    done = CliRunner().invoke(coverage_command, [record.run_id, *place])
    assert done.exit_code == 0, done.output
    assert "mprotect:shared_dirty_full_toggle_64m" in done.output
    done = CliRunner().invoke(coverage_command, [record.run_id, "--csv", *place])
    assert "change_pte_range,mprotect:shared_dirty_full_toggle_64m," in done.output
