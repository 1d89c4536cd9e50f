# SPDX-License-Identifier: GPL-2.0-or-later
"""Does kdelta hold out: a thousand warm trials in a row, and kill -9 at hundreds of moments?

    .venv/bin/python bench/soak.py [--trials 1000] [--kills 200] [--kernel 6.17]

trials: one run; prints how many failed, and what files, descriptors and memory there were after a
tenth of them and at the end.  kills: a run is killed with SIGKILL at moments spread over its whole
length, then started again until it is whole; prints results that were lost or changed, guests that
outlived their run, and files that nobody owns any more.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from commands import DOWNLOADED, cold_cache
from kdelta.journal.run import RUNS, RunJournal
from kdelta.sample import Outcome, TrialResult

_KILLED = "control:getppid"
_SOAKED = (
    *("control:getppid", "control:pipe", "control:pipe_switch", "control:futex_wake"),
    *("control:futex_wait", "control:signal", "fault:anon", "advise:dontneed"),
    *("process:thread", "mincore:no_thp_pte_scan_4m"),
)
_POLL_S = 0.2
_OWN = ("warm", "runs", "killed", "said", "cache")
_ORPHAN_S = 5.0  # a guest must be gone so long after the run that it belonged to


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What is there at a moment.  finished: trials; files: in the cache but for results, and in
    the folder of scratch files but for the run.
    """

    finished: int
    descriptors: int
    memory_mib: float
    files: int

    def __str__(self) -> str:
        return (
            f"after {self.finished:5} trials: {self.descriptors} descriptors, "
            f"{self.memory_mib:.1f} MiB, {self.files} files beside results"
        )


def _start(runs: Path, scratch: Path, *arguments: str) -> subprocess.Popen[bytes]:
    program = str(Path(sys.executable).with_name("kdelta"))
    argv = [program, "run", "--runs", str(runs), *arguments]
    with (scratch / "said").open("ab") as said:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(scratch), "XDG_CACHE_HOME": str(scratch / "cache")},
        )


def _files(scratch: Path) -> int:
    every = (scratch / "cache" / "kdelta").iterdir()
    kinds = (path for path in every if path.name not in ("results", "locks", *DOWNLOADED))
    own = (path for path in scratch.iterdir() if path.name not in _OWN)
    return sum(path.is_file() + _inside(path) for path in (*kinds, *own))


def _inside(folder: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(folder))


def _results(runs: Path) -> dict[int, TrialResult]:
    """Of the newest run, by trial; nothing where it has not got so far."""
    with contextlib.suppress(Exception):  # killed before the folder was whole
        record = RunJournal.open(RUNS.find(runs, "latest")).record()
        return {at: trial.result for at, trial in enumerate(record.trials) if trial.result}
    return {}


def _held(process: subprocess.Popen[bytes], runs: Path, scratch: Path) -> Held:
    proc = Path("/proc", str(process.pid))
    status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
    return Held(
        finished=sum(1 for _ in runs.glob("*/trials/*/result.json")),
        descriptors=len(list((proc / "fd").iterdir())),
        memory_mib=int(status["VmRSS"].split()[0]) / 1024,
        files=_files(scratch),
    )


def soak(trials: int, kernel: str, scratch: Path) -> bool:
    """Warm trials in a row, in one process; True when all were counted."""
    runs = scratch / "runs"
    rounds = str(trials // len(_SOAKED))
    begun = time.monotonic()
    process = _start(
        runs, scratch, *_SOAKED, "--kernels", kernel, "--rounds", rounds, "--again", "--new"
    )
    seen: list[Held] = []
    while process.poll() is None:
        with contextlib.suppress(OSError, KeyError):  # it ends meanwhile
            seen.append(_held(process, runs, scratch))
        time.sleep(max(_POLL_S, trials / 500))
    results = _results(runs)
    bad = [one for one in results.values() if one.outcome is not Outcome.OK]
    print(
        f"{len(results)} of {trials} trials of {len(_SOAKED)} scenarios on {kernel} in "
        f"{time.monotonic() - begun:.0f} s, {len(bad)} of them failed, exit {process.returncode}"
    )
    tenth = [one for one in seen if one.finished >= trials // 10]
    for one in (*tenth[:1], *tenth[-1:]):
        print(one)
    print(f"files after its end: {_files(scratch)}")
    return not bad and len(results) == trials


def _guests(runs: Path) -> list[int]:
    """QEMUs that write into a folder of runs."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(runs).encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def _outlived(runs: Path) -> int:
    """Guests that are there although their run is not."""
    until = time.monotonic() + _ORPHAN_S
    while (left := _guests(runs)) and time.monotonic() < until:
        time.sleep(_POLL_S)
    return len(left)


def _moments(count: int, length_s: float) -> Iterator[float]:
    """Spread evenly over a run, early and late ones in turns."""
    for at in range(count):
        yield length_s * (at * 0.6180339887 % 1)


def kills(count: int, kernel: str, scratch: Path) -> None:
    """SIGKILL at many moments of one run after the other, each gone on with until it is whole."""
    runs = scratch / "killed"
    arguments = (_KILLED, "--kernels", kernel, "--rounds", "4", "--again", "--seed", "1")
    begun = time.monotonic()
    whole = _start(runs, scratch, *arguments, "--new")
    whole.wait()
    length_s = time.monotonic() - begun
    expected = {at: result.data for at, result in _results(runs).items()}
    lost = changed = outlived = runs_made = 0
    fresh = True
    after: dict[int, TrialResult] = {}
    for moment in _moments(count, length_s):
        process = _start(runs, scratch, *arguments, *(("--new",) if fresh else ()))
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(moment)
        before = {**after, **_results(runs)} if not fresh else {}
        process.send_signal(signal.SIGKILL)
        process.wait()
        after = _results(runs)
        outlived += _outlived(runs)
        lost += len(before.keys() - after.keys())
        changed += sum(one.data != expected[at] for at, one in after.items())
        fresh = len(after) == len(expected)
        runs_made += fresh
    last = _start(runs, scratch, *arguments)
    last.wait()
    final = {at: result.data for at, result in _results(runs).items()}
    print(
        f"{count} kills over {length_s:.1f} s each, {runs_made} runs became whole meanwhile: "
        f"{lost} results lost, {changed} changed, {outlived} guests outlived their run; "
        f"the last run is {'whole and equal' if final == expected else 'NOT as it was'}, "
        f"exit {last.returncode}"
    )
    left = [path.name for path in scratch.iterdir() if path.name not in _OWN]
    print(f"left in the folder of scratch files: {len(left)} {' '.join(left[:5])}")


def main() -> None:
    """Both, on one kernel."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--kernel", default="6.17")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kdelta-soak-") as name, cold_cache() as home:
        scratch = Path(name)
        (scratch / "cache").symlink_to(home)
        _start(
            scratch / "warm", scratch, _KILLED, "--kernels", chosen.kernel
        ).wait()  # its checkpoint
        good = not chosen.trials or soak(chosen.trials, chosen.kernel, scratch)
        if chosen.kills:
            kills(chosen.kills, chosen.kernel, scratch)
    sys.exit(not good)


if __name__ == "__main__":
    main()
