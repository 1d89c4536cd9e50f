# SPDX-License-Identifier: GPL-2.0-or-later
"""The machines of boot tests: each boots once for the whole session, then restores."""

from __future__ import annotations

import pytest

from boot import lab


@pytest.fixture(scope="session", params=["old", "new"])
def generation(request: pytest.FixtureRequest) -> str:
    """The two generations of QEMU's plugin interface."""
    return str(request.param)


@pytest.fixture(scope="session")
def machine(generation: str) -> lab.Machine:
    """One CPU."""
    return lab.machine(generation, "6.17")


@pytest.fixture(scope="session")
def pair(generation: str) -> lab.Machine:
    """Two CPUs, that really run at the same time."""
    return lab.machine(generation, "6.17", cpus=2)
