# SPDX-License-Identifier: GPL-2.0-or-later
"""Kills at moments all over a run: of kdelta, its guests, a worker, the scheduler.

    PYTHONPATH=tests .venv/bin/python bench/kills.py [--times 10] [--each 4] [--only WHO]

SIGKILL, and SIGINT of kdelta.  After each the run goes on.  It then must have every trial once,
with the result that was counted undisturbed.  Of a run without workers nothing may be left: no
result lost, no guest that outlives it, no scratch file.  An interrupted one ends at once and says
that it was; one whose guests were killed ends with 0, or with 1 and a trial that says so.
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
from collections import Counter
from contextlib import ExitStack, suppress
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
ALONE = {"run": signal.SIGKILL, "interrupt": signal.SIGINT, "guests": signal.SIGKILL}
WHO = (*ALONE, "controller", "worker", "scheduler")
_STARTED_S = 1.0  # for Python to start
_GONE_S = 5.0  # a guest must be gone so long after its run
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


def kdelta(*words: str, scratch: Path | None = None) -> subprocess.Popen[bytes]:
    """A command that is not waited for; scratch: of its temporary files, and of what it says."""
    argv = [sys.executable, "-c", _START, *words]
    own = {**os.environ, **({"TMPDIR": str(scratch / "tmp")} if scratch else {})}
    with (scratch / "said" if scratch else Path(os.devnull)).open("wb") as said:
        return subprocess.Popen(argv, env=own, stdout=said, stderr=said)


def begin(runs: Path, *more: str, scratch: Path | None = None) -> subprocess.Popen[bytes]:
    """The run that is disturbed."""
    what = ("run", "control:getppid", "--kernels", "6.12", "--rounds", str(ROUNDS), "--seed", "1")
    return kdelta(*what, "--again", "--runs", str(runs), *more, scratch=scratch)


def found(runs: Path) -> Found:
    """What the run has, by trial; its results lie in files, one each."""
    if not list(runs.glob("*/run.json")):  # killed before there was one
        return []
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
    child = begin(runs, "--on", _lab(cluster, runs))
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
    words = ("latest", "--again", "--runs", str(runs), "--on", _lab(cluster, runs))
    return kdelta("resume", *words)


def _lab(cluster: Cluster, runs: Path) -> str:
    """The file that names its scheduler."""
    file = runs.with_suffix(".toml")
    file.write_text(f'[pool.rack]\nkind = "dask"\nscheduler = "{cluster.address}"\n')
    return str(file)


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


def alone_killed(who: str, times: int, length_s: float, expected: Found, scratch: Path) -> None:
    """So many kills of runs without workers, at moments spread over their whole length."""
    (scratch / "tmp").mkdir(exist_ok=True)
    runs, ends, made, at = scratch / who, list[str](), 0, 0
    while len(ends) < times:
        at += 1
        before = found(runs) if runs.exists() else []
        if len(before) == ROUNDS:
            shutil.rmtree(runs)
            before, made = [], made + 1
        moment = length_s * (1 - len(before) / ROUNDS) * (at * 0.6180339887 % 1)
        child = gone_on_alone(runs, scratch)
        with suppress(subprocess.TimeoutExpired):
            child.wait(moment)
        if who == "guests":
            ends += _guests_killed(child, runs, scratch)
        elif child.poll() is None:
            child.send_signal(ALONE[who])
            child.wait(timeout=60)
            ends.append(f"exit {child.returncode}")
            interrupted = child.returncode == 130 and b"interrupted" in _said(scratch)
            interrupted |= b"Everything of this run" in _said(scratch)  # it was at its end
            if who == "interrupt" and not interrupted and moment > _STARTED_S:
                raise SystemExit(f"an interrupted run said {_said(scratch)[-300:]!r}")
        after = found(runs)
        if lost := [one for one in before if one not in after]:
            raise SystemExit(f"{len(lost)} results were lost or changed")
        if wrong := [one for one in after if one not in expected]:
            raise SystemExit(f"another result: {str(wrong)[:300]}")
        _nothing_left(runs, scratch)
    if who == "interrupt" and "exit 130" not in ends:
        raise SystemExit(f"no run was interrupted: {dict(Counter(ends))}")
    last = gone_on_alone(runs, scratch)
    if last.wait(timeout=600) or found(runs) != expected:
        raise SystemExit(f"the run did not become whole: {_said(scratch)[-300:]!r}")
    told = f"{times} kills within {length_s:.1f} s, {made + 1} runs became whole, the same"
    print(f"{who}: {told}; {dict(Counter(ends))}", flush=True)
    shutil.rmtree(runs)


def gone_on_alone(runs: Path, scratch: Path) -> subprocess.Popen[bytes]:
    """The run again, by its name where it has one."""
    if list(runs.glob("*/run.json")):
        return kdelta("resume", "latest", "--again", "--runs", str(runs), scratch=scratch)
    return begin(runs, scratch=scratch)


def _guests_killed(child: subprocess.Popen[bytes], runs: Path, scratch: Path) -> list[str]:
    """Kill all that a run has started, as pkill -9 -P does, wait for its end, and go on with it."""
    killed, words = False, ["pkill", "-9", "-P", str(child.pid)]
    while child.poll() is None and not killed:
        killed = subprocess.run(words, check=False).returncode == 0
        time.sleep(0.02)
    status, said = child.wait(timeout=1200), _said(scratch)
    if not list(runs.glob("*/run.json")):  # QEMU was killed in its probe
        if status != 3 or said.count(b"\n") != 1:
            raise SystemExit(f"before it began a run ended with {status}: {said[-300:]!r}")
        return ["exit 3, not begun"]
    record = RunJournal.open(RUNS.find(runs, "latest")).record()
    failed = [one.result for one in record.trials if one.result and one.result.outcome != "ok"]
    if status not in (0, 1) or bool(failed) != (status == 1):
        raise SystemExit(f"a run whose guests were killed ended with {status}: {said[-300:]!r}")
    if any("signal 9" not in one.reason for one in failed):
        raise SystemExit(f"a trial whose guest was killed says {failed}")
    if failed and gone_on_alone(runs, scratch).wait(timeout=600):
        raise SystemExit(f"the run was not completed: {_said(scratch)[-300:]!r}")
    again = sum(bool(one.result.tries) for one in record.trials if one.result)
    return [f"exit {status}, {len(failed)} told, {again} tried again"] if killed else []


def _nothing_left(runs: Path, scratch: Path) -> None:
    until = time.monotonic() + _GONE_S
    while subprocess.run(["pgrep", "-f", str(runs)], check=False, capture_output=True).stdout:
        if time.monotonic() > until:
            raise SystemExit("a guest outlived its run")
        time.sleep(0.1)
    if left := list((scratch / "tmp").iterdir()):
        raise SystemExit(f"left in the folder of scratch files: {left}")


def _said(scratch: Path) -> bytes:
    return (scratch / "said").read_bytes()


def main() -> None:
    """Kill, go on, compare; exits with 1 at the first difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--each", type=int, default=4, help="kills in one run")
    parser.add_argument("--only", choices=WHO)
    chosen = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job has none
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kdelta-kills-")))
        alone, begun = scratch / "alone", time.monotonic()
        if begin(alone).wait(timeout=600) != 0:
            raise KdeltaError("the run alone failed")
        expected, length_s = found(alone), time.monotonic() - begun
        if len(expected) != ROUNDS:
            raise KdeltaError(f"the run alone has {len(expected)} trials")
        for who in WHO:
            if chosen.only in (None, who) and who in ALONE:
                alone_killed(who, chosen.times, length_s, expected, scratch)
            elif chosen.only in (None, who):
                runs_killed(who, chosen.times, chosen.each, expected, scratch)
    print("nothing lost, nothing twice, the same results")


if __name__ == "__main__":
    main()
