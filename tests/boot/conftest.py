# SPDX-License-Identifier: GPL-2.0-or-later
"""The machines of boot tests: each boots once for the whole session, then restores."""

from __future__ import annotations

from pathlib import Path

import pytest

from boot import lab
from boot.command import Command
from kdelta import data


@pytest.fixture(autouse=True)
def _counted_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an earlier session counted shows nothing."""
    monkeypatch.setenv("KDELTA_RESULTS_MIB", "0")


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path / "runs", data.directory("workloads"))


@pytest.fixture(scope="session")
def machine() -> lab.Machine:
    """One CPU."""
    return lab.machine("6.17")


@pytest.fixture(scope="session")
def pair() -> lab.Machine:
    """Two CPUs, that really run at the same time."""
    return lab.machine("6.17", cpus=2)
