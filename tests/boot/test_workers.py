# SPDX-License-Identifier: GPL-2.0-or-later
"""Trials on two real workers of a real scheduler on loopback, one of them killed in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest

from kdelta import cache
from kdelta.journal.run import RUNS, RunJournal
from kdelta.journal.status import NAME, Busy
from kdelta.workers.worker import essence
from ports import free_port

pytestmark = pytest.mark.boot
_ROUNDS = 20  # so many that a second worker is worth its boot
# Of each worker alone; who shares entries must share the locks under which they are made.
_OWN = ("results", "inputs", "checkpoints")


@contextmanager
def program(name: str, *words: str, cache_home: Path | None = None) -> Iterator[int]:
    """A program of Dask, by its number; killed at the end."""
    argv = [sys.executable, "-m", f"distributed.cli.{name}", "--no-dashboard", *words]
    home = {"XDG_CACHE_HOME": str(cache_home)} if cache_home else {}
    child = subprocess.Popen(
        argv, env={**os.environ, **home}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield child.pid
    finally:
        child.kill()
        child.wait()


def cache_of(place: Path) -> Path:
    """A cache for a worker, which need not boot or compile what this user's has."""
    own = place / "kdelta"
    own.mkdir(parents=True)
    for folder in cache.root().iterdir():
        if folder.name not in _OWN:
            (own / folder.name).symlink_to(folder)
    return place


def run(runs: Path, *more: str) -> subprocess.Popen[bytes]:
    start = "from kdelta.cli.main import main; main()"
    argv = ["run", "control:getppid", "--kernels", "6.12", "--rounds", str(_ROUNDS)]
    words = [*argv, "--seed", "1", "--again", "--runs", str(runs), *more]
    return subprocess.Popen([sys.executable, "-c", start, *words], stdout=subprocess.DEVNULL)


def essences(runs: Path) -> list[tuple[bytes, str]]:
    record = RunJournal.open(RUNS.find(runs, "latest")).record()
    assert len(record.trials) == _ROUNDS
    return [(essence(t.result), t.result.address) for t in record.trials if t.result]


def busy(runs: Path) -> set[str]:
    for path in runs.glob(f"*/{NAME}"):
        return {
            one.who for one in msgspec.json.decode(path.read_bytes(), type=dict[int, Busy]).values()
        }
    return set()


def test_two_workers_of_which_one_is_killed_count_what_one_machine_does(tmp_path: Path) -> None:
    alone, spread = tmp_path / "alone", tmp_path / "spread"
    assert run(alone).wait(timeout=300) == 0
    head, ports = free_port(), [free_port(), free_port()]
    address = f"tcp://127.0.0.1:{head}"
    with ExitStack() as stack:
        stack.enter_context(program("dask_scheduler", "--host", "127.0.0.1", "--port", str(head)))
        numbers = {}
        for port in ports:
            words = [
                "--nthreads", "1", "--no-nanny", "--host", "127.0.0.1", "--worker-port", str(port),
            ]  # fmt: skip
            place = tmp_path / str(port)
            own = program("dask_worker", address, *words, cache_home=cache_of(place))
            numbers[f"tcp://127.0.0.1:{port}"] = stack.enter_context(own)
        lab = tmp_path / "lab.toml"
        lab.write_text(f'[pool.rack]\nkind = "dask"\nscheduler = "{address}"\n')
        child = run(spread, "--on", str(lab))
        ends = time.monotonic() + 120
        while len(busy(spread)) < 2 and child.poll() is None and time.monotonic() < ends:
            time.sleep(0.05)
        os.kill(numbers[sorted(busy(spread))[0]], signal.SIGKILL)
        assert child.wait(timeout=300) == 0
    assert essences(spread) == essences(alone)
    # Neither worker had a checkpoint, and both restore the controller's.
    points = list(tmp_path.glob("*/kdelta/checkpoints/[!.]*"))
    assert points
    for point in points:
        here = cache.root() / "checkpoints" / point.name
        assert (point / "ram").read_bytes() == (here / "ram").read_bytes()
