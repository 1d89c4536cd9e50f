# SPDX-License-Identifier: GPL-2.0-or-later
"""An exported file on a real kernel: its windows have the counts of the workload's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kdelta.cli.main import cli

SCENARIOS = ["mprotect:shared_dirty_full_toggle_16m", "unmap:munmap"]


@pytest.mark.boot
@pytest.mark.parametrize("reference", SCENARIOS)
def test_an_export_is_counted_as_the_workload_is(
    reference: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is another program to kdelta, built from one file, with a contract of its own."""
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    assert runner.invoke(cli, ["workload", "export", reference, "-o", "it.c"]).exit_code == 0
    done = runner.invoke(cli, ["run", "./it.c", reference, "--kernels", "6.17", "--rounds", "1"])
    assert done.exit_code == 0, done.output
    results = sorted(tmp_path.glob("kdelta-runs/*/trials/*/result.json"))
    own, theirs = (json.loads(path.read_bytes())["result"] for path in results)
    assert own["outcome"] == theirs["outcome"] == "ok"
    for phase in (*own["data"]["phases"], *theirs["data"]["phases"]):
        for name in ("outside", "scalars", "places"):  # are recorded of files of one's own
            phase.pop(name, None)
    assert own["data"] == theirs["data"]  # every window, and every function of them
    assert all(len(phase["kernel"]) >= 8 for phase in own["data"]["phases"])
    assert any(min(phase["kernel"]) > 0 for phase in own["data"]["phases"])
