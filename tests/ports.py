# SPDX-License-Identifier: GPL-2.0-or-later
"""Ports of this machine for servers of tests and benches."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        number: int = own.getsockname()[1]
        return number
