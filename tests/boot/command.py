# SPDX-License-Identifier: GPL-2.0-or-later
"""Starts the `kdelta` command as a user does, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

LAUNCH = Path(__file__).parent / "launch.py"
WAIT_S = 600.0

Process = subprocess.Popen[str]


class Command:
    """`kdelta` with its runs in a directory of the test."""

    def __init__(self, runs: Path, workloads: Path) -> None:
        self.runs = runs
        self._started: set[int] = set()
        self.environment = {
            **os.environ,
            "KDELTA_RUNS": str(runs),
            "KDELTA_TEST_WORKLOADS": str(workloads),
        }

    def start(self, *arguments: str, prefix: Sequence[str] = ()) -> Process:
        """Start it.  prefix: a command that runs it."""
        process = subprocess.Popen(
            [*prefix, sys.executable, str(LAUNCH), *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._started.add(process.pid)
        return process

    def run(self, *arguments: str, status: int = 0, prefix: Sequence[str] = ()) -> str:
        """Run it to its end; both its outputs.  Fails when it ends with another status."""
        return ended(self.start(*arguments, prefix=prefix), status)

    def folder(self) -> Path:
        """The only run."""
        (folder,) = self.runs.iterdir()
        return folder

    def results(self) -> dict[str, bytes]:
        """Content of every trial's result so far."""
        return {
            path.parent.name: path.read_bytes() for path in self.runs.glob("*/trials/*/result.json")
        }

    def guests(self) -> list[int]:
        """Processes of this test, `kdelta` itself apart: those that name its runs, and forks."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes()
            except OSError:
                continue
            ours = os.fsencode(self.runs) in words or os.fsencode(LAUNCH) in words
            if ours and int(path.parent.name) not in self._started:
                found.append(int(path.parent.name))
        return found

    def no_guests(self) -> None:
        """Fail when a guest is left, or comes up late."""
        until(lambda: not self.guests(), 5)
        time.sleep(0.5)
        assert self.guests() == []


def ended(process: Process, status: int) -> str:
    """Both outputs of a started command, whose exit status has to be this."""
    out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == status, f"status {process.returncode}\n{out}\n{err}"
    return out + err


def until(condition: Callable[[], object], seconds: float = WAIT_S) -> None:
    """Wait until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
