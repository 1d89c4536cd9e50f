# SPDX-License-Identifier: GPL-2.0-or-later
"""Hits of the guest's own tracing are the calls that the plugin counts of the same scenario."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from boot.command import Command
from kdelta import data
from kdelta.analysis.findings import traced
from kdelta.journal import artifacts
from kdelta.journal.run import RunJournal
from kdelta.run.trial import TRACEFS

pytestmark = pytest.mark.boot

SCENARIO = ("mprotect:shared_dirty_full_toggle_16m", "--kernels", "6.17")
ENTERED, BATCH = "change_pte_range", "prot_commit_flush_ptes"
VALUE = f"{BATCH}(nr=arg6:u32)"


def test_hits_are_the_calls_that_are_counted(tmp_path: Path) -> None:
    counted = Command(tmp_path / "counted", data.directory("workloads"))
    counted.run("run", *SCENARIO, "--probe", "calls")
    phases = RunJournal.open(counted.folder()).record().trials[0].exact.phases
    nodes = [n for p in phases for n in artifacts.kept_calls(counted.folder(), 0, p.phase)]
    calls = {
        name: sum(node.calls for node in nodes if node.function == name)
        for name in (ENTERED, BATCH)
    }
    command = Command(tmp_path / "traced", data.directory("workloads"))
    watch = (ENTERED, VALUE, "graph(tlb_finish_mmu)", "exc_page_fault", "nothing_of_this_name")
    text = command.run("run", *SCENARIO, *(word for name in watch for word in ("--trace", name)))
    found = traced(RunJournal.open(command.folder()).record())
    assert found is not None
    (table,) = found.tables
    hits = {(row.watch, row.key): row.cells[0] for row in table.rows}
    assert calls[BATCH] == 2 * 4096
    for key, name in (((ENTERED, ""), ENTERED), ((VALUE, ""), BATCH), ((VALUE, "1"), BATCH)):
        assert hits[key].repeats
        assert hits[key].fewest == calls[name]
    most = hits["graph(tlb_finish_mmu)", "tlb_finish_mmu"].fewest
    assert most is not None
    assert most > 2  # as often as in an iteration, and in set-up and audit
    assert "lets nobody trace it" in hits["exc_page_fault", ""].absent
    assert "no function nothing_of_this_name" in hits["nothing_of_this_name", ""].absent
    assert "REGRESSION" not in text
    raw = gzip.decompress((command.folder() / "trials/0000" / TRACEFS).read_bytes()).decode()
    assert "current_tracer function_graph" in raw
