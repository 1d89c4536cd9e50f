# SPDX-License-Identifier: GPL-2.0-or-later
"""Does kdelta hold out: a thousand warm trials in a row?

    .venv/bin/python bench/soak.py [--trials 1000] [--kernel 6.17]

One run; prints how many failed, and what files, descriptors, processes and memory there were after
a tenth of them, half, nine tenths and all.  bench/kills.py ends runs at all moments.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from commands import DOWNLOADED, cold_cache
from kdelta.journal.run import RUNS, RunJournal
from kdelta.sample import Outcome, TrialResult

_WARMED = "control:getppid"
_SOAKED = (
    *("control:getppid", "control:pipe", "control:pipe_switch", "control:futex_wake"),
    *("control:futex_wait", "control:signal", "fault:anon", "advise:dontneed"),
    *("process:thread", "mincore:no_thp_pte_scan_4m"),
)
_POLL_S = 0.2
_OWN = ("warm", "runs", "said", "cache")


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What is there at a moment.  finished: trials; files: in the cache but for results, and in
    the folder of scratch files but for the run.
    """

    finished: int
    descriptors: int
    memory_mib: float
    files: int
    processes: int

    def __str__(self) -> str:
        return (
            f"after {self.finished:5} trials: {self.descriptors} descriptors, "
            f"{self.memory_mib:.1f} MiB, {self.files} files beside results, "
            f"{self.processes} processes"
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
        processes=sum(len(path.read_text().split()) for path in proc.glob("task/*/children")),
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
    for tenths in (1, 5, 9, 10):  # the last is from when the answer is written
        print(next((one for one in seen if one.finished * 10 >= trials * tenths), ""))
    print(f"files after its end: {_files(scratch)}")
    return not bad and len(results) == trials


def main() -> None:
    """All on one kernel."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--kernel", default="6.17")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kdelta-soak-") as name, cold_cache() as home:
        scratch = Path(name)
        (scratch / "cache").symlink_to(home)
        _start(
            scratch / "warm", scratch, _WARMED, "--kernels", chosen.kernel
        ).wait()  # its checkpoint
        good = soak(chosen.trials, chosen.kernel, scratch)
    sys.exit(not good)


if __name__ == "__main__":
    main()
