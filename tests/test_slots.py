# SPDX-License-Identifier: GPL-2.0-or-later
"""How many guests run at once, over threads and processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kdelta.errors import Cancelled, InfraError
from kdelta.run import slots

HOLD = """
import threading, time
from kdelta.run import slots
with slots.lease(1, threading.Event()):
    print("held", flush=True)
    time.sleep(60)
"""


def test_the_limit_is_cores_and_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meminfo = tmp_path / "meminfo"
    monkeypatch.setattr(slots, "_MEMINFO", meminfo)
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: set(range(8)))
    meminfo.write_text("MemTotal: 99999999 kB\nMemAvailable: 8388608 kB\n")
    assert slots.available_mib() == 8192
    assert slots.limit(1, 1024) == 6
    assert slots.limit(4, 1024) == 2
    assert slots.limit(16, 65536) == 1
    meminfo.write_text("nothing\n")
    assert slots.limit(1, 1024) == 1


def test_no_more_than_that_many_at_once() -> None:
    inside, most = 0, 0
    mutex = threading.Lock()

    def work(_number: int) -> None:
        nonlocal inside, most
        with slots.lease(2, threading.Event()):
            with mutex:
                inside += 1
                most = max(most, inside)
            time.sleep(0.1)
            with mutex:
                inside -= 1

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert most == 2


def test_another_process_counts_and_may_be_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        cancelled = threading.Event()
        threading.Timer(0.3, cancelled.set).start()
        with pytest.raises(Cancelled), slots.lease(1, cancelled):
            pass
        other.send_signal(signal.SIGKILL)
    began = time.monotonic()
    with slots.lease(1, threading.Event()):
        assert time.monotonic() - began < 2


def test_an_unusable_cache_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    with (
        pytest.raises(InfraError, match="the cache cannot be"),
        slots.lease(1, threading.Event()),
    ):
        pass
