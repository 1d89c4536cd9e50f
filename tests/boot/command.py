# SPDX-License-Identifier: GPL-2.0-or-later
"""Starts the `kdelta` command as a user does, in a process of its own."""

from __future__ import annotations

import contextlib
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
            **os.environ, "KDELTA_RUNS": str(runs), "KDELTA_TEST_WORKLOADS": str(workloads),
        }  # fmt: skip

    def start(self, *arguments: str, prefix: Sequence[str] = ()) -> Process:
        """Start it.  prefix: a command that runs it."""
        process = subprocess.Popen(
            [*prefix, sys.executable, str(LAUNCH), *arguments], env=self.environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
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
        runs = os.fsencode(self.runs)
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                words = (path / "cmdline").read_bytes()
                # Forks of other tests' commands, that run beside this one, are not ours.
                forked = os.fsencode(LAUNCH) in words and runs in (path / "environ").read_bytes()
            except OSError:
                continue
            if (runs in words or forked) and int(path.name) not in self._started:
                found.append(int(path.name))
        return found

    def no_guests(self) -> None:
        """Fail when a guest is left, or comes up late."""
        until(lambda: not self.guests(), 30)
        time.sleep(0.5)
        assert self.guests() == []


def ended(process: Process, status: int) -> str:
    """Both outputs of a started command, whose exit status has to be this."""
    out, err = outputs(process)
    assert process.returncode == status, f"status {process.returncode}\n{out}\n{err}"
    return out + err


def outputs(process: Process) -> tuple[str, str]:
    """Both outputs of a started command, which may take as long as it works."""
    patience = _Patience(process)
    while True:
        try:
            return process.communicate(timeout=1)
        except subprocess.TimeoutExpired:
            patience.check()


def until(condition: Callable[[], object], seconds: float = WAIT_S) -> None:
    """Wait until the condition holds; so long as what we started works, the time does not run."""
    patience = _Patience(None, seconds)
    while not condition():
        patience.check()
        time.sleep(0.02)


class _Patience:
    """For as long as processes use a CPU, and at most ten times its seconds."""

    def __init__(self, process: Process | None, seconds: float = WAIT_S) -> None:
        self._root = process.pid if process else os.getpid()
        self._seconds = seconds
        self._worked = 0
        self._begun = self._since = time.monotonic()

    def check(self) -> None:
        """Fail when nothing was done for so long."""
        now = time.monotonic()
        worked = cpu_ticks(self._root)
        if worked > self._worked + os.sysconf("SC_CLK_TCK") // 10:
            self._worked, self._since = worked, now
        assert now < self._since + self._seconds, "nothing happened for too long"
        assert now < self._begun + 10 * self._seconds, "it did not happen in time"


def cpu_ticks(root: int) -> int:
    """Time on a CPU of the processes below one, and of that one if it is not ourselves."""
    parents, ticks = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            words = path.read_text().rpartition(")")[2].split()
            pid = int(path.parent.name)
            parents[pid] = int(words[1])
            ticks[pid] = sum(map(int, words[11:15]))  # its own, and of children that have ended
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sum(ticks.get(pid, 0) for pid in found - {os.getpid()})
