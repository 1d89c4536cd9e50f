# SPDX-License-Identifier: GPL-2.0-or-later
"""kdelta's own command line: run as a user does, or timed in a cache of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kdelta import cache
from kdelta.attribution.symbols import Symbols
from kdelta.journal import artifacts
from kdelta.journal.run import RUNS, RunJournal
from kdelta.sample import Outcome

HERE = Path(__file__).resolve().parent
# What a cold run finds in the cache: what was downloaded, and nothing that kdelta made of it.
DOWNLOADED = ("apt", "images", "packages", "emulators")
_LAST_LINES = 15
_MAIN = "from kdelta.cli.main import main; main()"


class BenchError(Exception):
    """Something could not be measured; the text says what and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one run of kdelta took.

    own_cpu_s: CPU seconds of kdelta's own process.  trials_s: wall time of each trial, as kdelta
    stored it.
    """

    wall_s: float
    own_mib: float
    qemu_mib: float
    own_cpu_s: float
    trials_s: tuple[float, ...] = ()


@contextmanager
def cold_cache() -> Iterator[Path]:
    """A cache home that has the downloads of the user's cache by link and is empty otherwise."""
    real = cache.root()
    real.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kdelta-bench-", dir=real.parent) as scratch:
        home = Path(scratch)
        (home / "kdelta").mkdir()
        for name in DOWNLOADED:
            (real / name).mkdir(exist_ok=True)
            (home / "kdelta" / name).symlink_to(real / name)
        yield home


def said(*words: str, may: tuple[int, ...] = ()) -> str:
    """Run kdelta as a user does, and what it printed; it may end with these statuses too.

    The command, and what it says on stderr, are seen meanwhile.  Raises BenchError.
    """
    print("$ kdelta", *words, file=sys.stderr, flush=True)
    argv = [sys.executable, "-c", _MAIN, *words]
    wide = {**os.environ, "COLUMNS": "100"}  # as the documents are that show it
    done = subprocess.run(argv, check=False, env=wide, stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, *may):
        raise BenchError(f"exit status {done.returncode} of kdelta {' '.join(words)[:300]}")
    return done.stdout


def kdelta(home: Path, *arguments: str) -> Usage:
    """Run kdelta with that cache home.  Raises BenchError when it fails."""
    peaks = home / "peaks.json"
    argv = [sys.executable, str(HERE / "measured.py"), str(peaks), *arguments]
    wall = wall_s(argv, {"XDG_CACHE_HOME": str(home)})
    told = json.loads(peaks.read_text())
    own_mib, qemu_mib = told["own_kib"] / 1024, told["qemu_kib"] / 1024
    return Usage(wall_s=wall, own_mib=own_mib, qemu_mib=qemu_mib, own_cpu_s=told["own_cpu_s"])


def kdelta_run(home: Path, *arguments: str, command: str = "run") -> Usage:
    """Run `kdelta run`, or `survey`, with that cache home; its trials' own times too."""
    with tempfile.TemporaryDirectory(prefix="runs-", dir=home) as runs:
        usage = kdelta(home, command, "--new", "--again", "--runs", runs, *arguments)
        folder = RUNS.find(Path(runs), "latest")
        record = RunJournal.open(folder).record()
    results = [trial.result for trial in record.trials if trial.result]
    if any(result.outcome not in (Outcome.OK, Outcome.SKIP) for result in results):
        raise BenchError(f"a trial failed: {[result.reason for result in results]}"[:500])
    return replace(usage, trials_s=tuple(result.wall_s for result in results))


def symbols_of(folder: Path, index: int) -> Symbols:
    """The functions of the kernel of a trial, as the run in a folder kept them."""
    places = artifacts.kept_details(folder, index).functions
    starts = sorted((start, name) for name, own in places.items() for start, _ in own)
    return Symbols([start for start, _ in starts], [name for _, name in starts])


def wall_s(argv: list[str], environment: dict[str, str] | None = None) -> float:
    """Seconds that a command takes.  Raises BenchError with its last lines when it fails."""
    merged = {**os.environ, **(environment or {})}
    begun = time.monotonic()
    done = subprocess.run(
        argv,
        env=merged,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    taken = time.monotonic() - begun
    if done.returncode:
        last = "\n".join(done.stdout.splitlines()[-_LAST_LINES:])
        raise BenchError(f"exit status {done.returncode} of {' '.join(argv)[:300]}\n{last}")
    return taken
