# SPDX-License-Identifier: GPL-2.0-or-later
"""Workload programs on this very machine: for time, under the kernel that runs now."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from kdelta import process
from kdelta.errors import Cancelled, GuestError

_MAX_OUTPUT = 64 << 20
_MAX_STDERR = 1 << 16
# The size of the environment moves a program's stack, and with it its time: Mytkowicz et al.,
# "Producing wrong data without doing anything obviously wrong!", ASPLOS 2009.  So it is the same
# for everyone.
_ENVIRONMENT = ("env", "-i", "LC_ALL=C", "PATH=/usr/bin:/bin")
_PASSED = ("KDELTA_WORKLOAD_TREE",)  # what a workload can be told; equal for all arms of a run


def run(
    program: Path,
    arguments: Sequence[str],
    cpus: Sequence[int],
    *,
    timeout: float,
    cancelled: threading.Event,
) -> process.Completed:
    """Run a program pinned to leased CPUs, as whoever runs kdelta; 128 + N after signal N.  Raises
    GuestError when it does not end in timeout seconds or prints on, InfraError, Cancelled.
    """
    argv = command(program, arguments, cpus)
    child = process.start(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=Path("/"), die_with_caller=True
    )
    try:
        text, errors = read(child, program.name, timeout, cancelled)
    finally:
        process.end(child)
    status = child.returncode if child.returncode >= 0 else 128 - child.returncode
    return process.Completed(
        name=argv[0], argv=tuple(argv), returncode=status, stdout=text, stderr=errors
    )


def command(program: Path, arguments: Sequence[str], cpus: Sequence[int]) -> list[str]:
    """The whole command line: a fixed environment, the CPUs, the program."""
    chosen = ",".join(map(str, cpus))
    told = [f"{name}={os.environ[name]}" for name in _PASSED if name in os.environ]
    return [*_ENVIRONMENT, *told, "taskset", "-c", chosen, str(program.absolute()), *arguments]


def read(
    child: subprocess.Popen[bytes],
    name: str,
    timeout: float,
    cancelled: threading.Event,
    *,
    quick: bool = False,
) -> tuple[str, str]:
    """What a child prints to its end, of its errors the first; quick: it should not take long."""
    watch = process.Standstill(child.pid, name, quick=quick)

    def look(_: Sequence[object]) -> bool:
        watch.look()
        if cancelled.is_set():
            raise Cancelled
        return False

    try:
        text, errors = process.printed(child, name, timeout, look, _MAX_OUTPUT)
    except process.SlowError as error:
        raise GuestError(error.cause) from error
    return text.decode(errors="replace"), errors[:_MAX_STDERR].decode(errors="replace")
