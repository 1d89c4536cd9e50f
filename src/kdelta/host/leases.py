# SPDX-License-Identifier: GPL-2.0-or-later
"""Waiting for what all kdelta processes of a user share: locks, free again however one ends."""

from __future__ import annotations

import threading
from contextlib import ExitStack

from kdelta import cache
from kdelta.errors import Cancelled
from kdelta.locks import BusyError

_POLL_S = 0.05


def take(name: str, held: ExitStack) -> bool:
    """Hold a lock until `held` is left; False when another process has it."""
    try:
        held.enter_context(cache.locked(name, timeout=0))
    except BusyError:
        return False
    return True


def wait(name: str, held: ExitStack, cancelled: threading.Event) -> None:
    """Hold a lock until `held` is left, when it is free.  Raises Cancelled."""
    while not take(name, held):
        pause(cancelled)


def pause(cancelled: threading.Event) -> None:
    """Let a moment pass.  Raises Cancelled when `cancelled` is set."""
    if cancelled.wait(_POLL_S):
        raise Cancelled
