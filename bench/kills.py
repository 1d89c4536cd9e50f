# SPDX-License-Identifier: GPL-2.0-or-later
"""kill -9 at random moments: of the controller, a worker, the scheduler.

    PYTHONPATH=tests .venv/bin/python bench/kills.py [--times 10] [--each 4] [--only WHO]

After each kill the run goes on.  It then must have every trial once, with the result that one
machine alone counted.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from msgspec import to_builtins

from boot.test_workers import cache_of
from kdelta import cache, data
from kdelta.errors import KdeltaError
from kdelta.journal.run import RUNS, RunJournal
from kdelta.run.store import DECISIVE
from kdelta.workers.worker import essence
from ports import free_port

ROUNDS, WORKERS = 20, 2
WHO = ("controller", "worker", "scheduler")
_START = "from kdelta.cli.main import main; main()"
Found = list[tuple[int, bytes, str]]


class Cluster:
    """A scheduler with workers on loopback, which start again what was killed."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self.address = f"tcp://127.0.0.1:{free_port()}"
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes] | None] = [None] * WORKERS

    def complete(self) -> None:
        """Start what does not run."""
        if self.scheduler is None or self.scheduler.poll() is not None:
            port = self.address.rpartition(":")[2]
            self.scheduler = _dask("dask_scheduler", "--host", "127.0.0.1", "--port", port)
            for worker in self.workers:
                if worker:
                    worker.kill()
                    worker.wait()
        for at, worker in enumerate(self.workers):
            if worker is None or worker.poll() is not None:
                place = self._scratch / f"cache-{at}"
                if not place.exists():
                    cache_of(place)
                words = (self.address, "--nthreads", "1", "--no-nanny", "--host", "127.0.0.1")
                self.workers[at] = _dask("dask_worker", *words, home=place)

    def close(self) -> None:
        """Kill all."""
        for child in (self.scheduler, *self.workers):
            if child:
                child.kill()
                child.wait()


def _dask(program: str, *words: str, home: Path | None = None) -> subprocess.Popen[bytes]:
    own = {**os.environ, **({"XDG_CACHE_HOME": str(home)} if home else {})}
    argv = [sys.executable, "-m", f"distributed.cli.{program}", "--no-dashboard", *words]
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(argv, env=own, stdout=nowhere, stderr=nowhere)


def kdelta(*words: str) -> subprocess.Popen[bytes]:
    """A command that is not waited for."""
    argv = [sys.executable, "-c", _START, *words]
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(argv, stdout=nowhere, stderr=nowhere)


def begin(runs: Path, *more: str) -> subprocess.Popen[bytes]:
    """The run that is disturbed."""
    what = ("run", "control:getppid", "--kernels", "6.12", "--rounds", str(ROUNDS), "--seed", "1")
    return kdelta(*what, "--again", "--runs", str(runs), *more)


def found(runs: Path) -> Found:
    """What the run has, by trial; its results lie in files, one each."""
    record = RunJournal.open(RUNS.find(runs, "latest")).record()
    return [(t.index, essence(t.result), t.result.address) for t in record.trials if t.result]


def code() -> str:
    """What of kdelta decides an address; who is resumed with another one counts something else."""
    return cache.digest(*(path.read_bytes() for path in data.code(DECISIVE)))


def told(runs: Path, alone: Path) -> list[str]:
    """Where the results of two runs differ: trial, then field by field."""
    expected, got = (
        {t.index: t.result for t in RunJournal.open(RUNS.find(place, "latest")).record().trials}
        for place in (alone, runs)
    )
    lines = []
    for index, one in expected.items():
        other = got.get(index)
        if one is None or other is None:
            lines.append(f"trial {index}: has no result")
        elif essence(one) != essence(other) or one.address != other.address:
            found_there = _differing(to_builtins(one), to_builtins(other))
            lines += [f"trial {index}{line}" for line in found_there]
    return lines


def _differing(one: object, other: object, place: str = "") -> list[str]:
    """Paths of fields that are not equal, with both values."""
    if isinstance(one, dict) and isinstance(other, dict):
        pairs = [(f".{key}", one.get(key), other.get(key)) for key in {**one, **other}]
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple):
        longest = max(len(one), len(other))
        both = ([*each, *[None] * (longest - len(each))] for each in (one, other))
        pairs = [(f"[{at}]", a, b) for at, (a, b) in enumerate(zip(*both, strict=True))]
    else:
        return [] if one == other else [f"{place}: {str(one)[:60]} | {str(other)[:60]}"]
    return [line for key, a, b in pairs for line in _differing(a, b, place + key)]


def disturb(who: str, cluster: Cluster, runs: Path, moments: int) -> tuple[list[int], int]:
    """Kill one of them so many times in a run, and go on until it is done.

    Returns how many trials had ended at each kill, and how often the run was gone on with.
    """
    cluster.complete()
    child = begin(runs, "--scheduler", cluster.address)
    _until_begun(runs, child)
    kills: list[int] = []
    resumed = 0
    for wanted in sorted(random.randrange(ROUNDS) for _ in range(moments)):  # noqa: S311
        _until_ended(runs, child, wanted)
        time.sleep(random.uniform(0.0, 4.0))  # noqa: S311 no secret
        before = len(found(runs))
        victim = {"controller": child, "scheduler": cluster.scheduler}.get(who)
        victim = victim or random.choice([each for each in cluster.workers if each])  # noqa: S311
        if child.poll() is not None:  # the run was quicker
            break
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        kills.append(before)
        if who == "worker":
            cluster.complete()
        elif child.wait(timeout=1200) != 0:
            resumed += 1
            child = gone_on(cluster, runs)
    while child.wait(timeout=1200) != 0 and resumed < moments + 5:
        resumed += 1
        child = gone_on(cluster, runs)
    return kills, resumed


def gone_on(cluster: Cluster, runs: Path) -> subprocess.Popen[bytes]:
    """The run again, with all that was killed started anew."""
    cluster.complete()
    words = ("latest", "--again", "--runs", str(runs), "--scheduler", cluster.address)
    return kdelta("resume", *words)


def _until_begun(runs: Path, child: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + 1200
    while not list(runs.glob("*/doing.json")) and child.poll() is None:
        if time.monotonic() > ends:
            raise TimeoutError("the run does not begin")
        time.sleep(0.05)


def _until_ended(runs: Path, child: subprocess.Popen[bytes], wanted: int) -> None:
    """Wait until so many trials have ended, so that kills come everywhere in a run."""
    ends = time.monotonic() + 1200
    while len(list(runs.glob("*/trials/*/result.json"))) < wanted and child.poll() is None:
        if time.monotonic() > ends:
            raise TimeoutError(f"the run does not come to {wanted} trials")
        time.sleep(0.02)


def runs_killed(who: str, times: int, each: int, expected: Found, scratch: Path) -> None:
    """So many kills of one kind, a few in each run."""
    cluster = Cluster(scratch)
    killed, begun = 0, code()
    try:
        while killed < times:
            runs = scratch / f"{who}-{killed}"
            kills, resumed = disturb(who, cluster, runs, min(each, times - killed))
            killed += len(kills)
            got = found(runs)
            if code() != begun:
                raise SystemExit("kdelta's own code was changed meanwhile: begin again")
            if len(got) != ROUNDS:
                raise SystemExit(f"the run did not end: {len(got)} of {ROUNDS} trials, {resumed=}")
            same = got == expected
            print(f"{who} {killed}: killed after {kills} of {ROUNDS} trials, resumed {resumed}"
                  f" times: {'the same' if same else 'ANOTHER RESULT'}", flush=True)  # fmt: skip
            if not same:
                print("\n".join(told(runs, scratch / "alone")[:40]), flush=True)
                kept = shutil.copytree(scratch, Path(f"kept-{who}-{os.getpid()}"))
                raise SystemExit(f"all of it is kept in {kept}")
            shutil.rmtree(runs)
    finally:
        cluster.close()


def main() -> None:
    """Kill, go on, compare; exits with 1 at the first difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--each", type=int, default=4, help="kills in one run")
    parser.add_argument("--only", choices=WHO)
    chosen = parser.parse_args()
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kdelta-kills-")))
        alone = scratch / "alone"
        if begin(alone).wait(timeout=600) != 0:
            raise KdeltaError("the run alone failed")
        expected = found(alone)
        if len(expected) != ROUNDS:
            raise KdeltaError(f"the run alone has {len(expected)} trials")
        for who in WHO:
            if chosen.only in (None, who):
                runs_killed(who, chosen.times, chosen.each, expected, scratch)
    print("nothing lost, nothing twice, the same results")


if __name__ == "__main__":
    main()
