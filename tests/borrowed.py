# SPDX-License-Identifier: GPL-2.0-or-later
"""What asks the machine that a test plays: a plugin of the tests that borrow one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from kdelta.host.ssh_host import SshHost, connection
from kdelta.study.pools import HostPool

if TYPE_CHECKING:
    from fake_host import FakeHost


@pytest.fixture
def ssh_host(fake: FakeHost) -> Iterator[SshHost]:
    """`fake` is the test's own machine."""
    assert fake
    with connection("box", "ssh://me@box", threading.Event()) as connected:
        yield SshHost(connected, HostPool(address="ssh://box", boot_s=5, most_boots=4))
