# SPDX-License-Identifier: GPL-2.0-or-later
"""Workload programs on this very machine: for time, under the kernel that runs now."""

from __future__ import annotations

import os
import selectors
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kdelta import process
from kdelta.errors import Cancelled, GuestError

_MAX_OUTPUT = 64 << 20
_MAX_STDERR = 1 << 16
_CHUNK = 1 << 16
_POLL_S = 0.5
# The size of the environment moves a program's stack, and with it its time: Mytkowicz et al.,
# "Producing wrong data without doing anything obviously wrong!", ASPLOS 2009.  So it is the same
# for everyone.
_ENVIRONMENT = ("env", "-i", "LC_ALL=C", "PATH=/usr/bin:/bin")
_PASSED = ("KDELTA_WORKLOAD_TREE",)  # what a workload can be told; equal for all arms of a run


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeRun:
    """What one run of a program showed; status: its exit status, 128 + N after signal N."""

    text: str
    errors: str
    status: int
    argv: tuple[str, ...]


def run(
    program: Path,
    arguments: Sequence[str],
    cpus: Sequence[int],
    *,
    timeout: float,
    cancelled: threading.Event,
) -> NativeRun:
    """Run a program pinned to leased CPUs, as whoever runs kdelta.  Raises GuestError when it does
    not end within timeout seconds or prints without end, InfraError, Cancelled.
    """
    argv = command(program, arguments, cpus)
    child = process.start(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=Path("/"), die_with_caller=True
    )
    try:
        reader = Reader(child, program.name)
        reader.read_all(timeout, cancelled)
        status = child.returncode
    finally:
        process.end(child)
    return NativeRun(
        text=reader.stdout.decode(errors="replace"),
        errors=reader.stderr.decode(errors="replace").strip(),
        status=status if status >= 0 else 128 - status,
        argv=tuple(argv),
    )


def command(program: Path, arguments: Sequence[str], cpus: Sequence[int]) -> list[str]:
    """The whole command line: a fixed environment, the CPUs, the program."""
    chosen = ",".join(map(str, cpus))
    told = [f"{name}={os.environ[name]}" for name in _PASSED if name in os.environ]
    return [*_ENVIRONMENT, *told, "taskset", "-c", chosen, str(program.absolute()), *arguments]


class Reader:
    """Takes what a child prints until it ends, within bounds."""

    def __init__(self, child: subprocess.Popen[bytes], name: str) -> None:
        self._child, self._name = child, name
        self.stdout, self.stderr = bytearray(), bytearray()

    def read_all(self, timeout: float, cancelled: threading.Event) -> None:
        """Read until the child has ended.  Raises GuestError or Cancelled."""
        deadline = time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            for name in ("stdout", "stderr"):
                if (stream := getattr(self._child, name)) is not None:
                    selector.register(stream, selectors.EVENT_READ, getattr(self, name))
            while selector.get_map():
                self._check(deadline, timeout, cancelled)
                for key, _ in selector.select(min(_POLL_S, max(0.0, deadline - time.monotonic()))):
                    if not self._take(key.fileobj, key.data):  # type: ignore[arg-type]
                        selector.unregister(key.fileobj)
        while self._child.poll() is None:  # it closed its streams and works on
            self._check(deadline, timeout, cancelled)
            cancelled.wait(0.01)

    def _take(self, stream: IO[bytes], buffer: bytearray) -> bool:
        data: bytes = stream.read1(_CHUNK)  # type: ignore[attr-defined]
        if buffer is self.stdout or len(buffer) < _MAX_STDERR:
            buffer += data
        if len(buffer) > _MAX_OUTPUT:
            raise GuestError(f"{self._name} printed more than {_MAX_OUTPUT >> 20} MiB")
        return bool(data)

    def _check(self, deadline: float, timeout: float, cancelled: threading.Event) -> None:
        if cancelled.is_set():
            raise Cancelled
        if time.monotonic() > deadline:
            raise GuestError(f"{self._name} did not end within {timeout:.0f} s")
