# SPDX-License-Identifier: GPL-2.0-or-later
"""A survey by one worker, and by two of which one is killed in the middle: the same bytes?

    PYTHONPATH=tests .venv/bin/python bench/dispatch.py [--kernels A,B,C] [SCENARIO]...

The survey's scenarios of three workloads.  Both runs have one seed, since that orders the trials.

Scheduler and workers are real ones on loopback, each worker with a store and inputs of its own.
All files of all trials and the answers are compared byte for byte, and by what they say: without
when and how long, and the paths of a worker's cache.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from boot.test_workers import busy, cache_of, program
from kdelta.attribution.insns import CountedWindow
from kdelta.journal import artifacts
from kdelta.journal.run import RUNS, RunJournal
from ports import free_port

KERNELS = "6.12,6.17,6.18"
SCENARIOS = """
control:user_loop control:getppid control:pipe control:pipe_switch control:futex_wake
control:futex_wait control:signal mprotect:shared_dirty_full_toggle_16m mprotect:anon_toggle_4m
mprotect:thp_toggle_16m mprotect:pte_mapped_thp mprotect:split_pages mincore:no_thp_pte_scan_4m
mincore:thp_pmd_shortcut_4m
"""
_WHEN = re.compile(rb"[a-z-]+-\d{8}-\d{6}|\d{4}-\d\d-\d\dT[0-9:+]{14}|[0-9.]+ s\b")


def survey(runs: Path, workers: int, words: list[str], scratch: Path) -> tuple[int, str]:
    """Seconds that it took, and what was killed when; more than one worker loses one."""
    head, numbers, killed = free_port(), {}, "nobody"
    address = f"tcp://127.0.0.1:{head}"
    with ExitStack() as stack:
        stack.enter_context(program("dask_scheduler", "--host", "127.0.0.1", "--port", str(head)))
        for _ in range(workers):
            port = free_port()
            own = ("--nthreads", "1", "--no-nanny", "--host", "127.0.0.1")
            place = cache_of(scratch / f"{runs.name}-{port}")
            started = program(
                "dask_worker", address, *own, "--worker-port", str(port), cache_home=place
            )
            numbers[f"tcp://127.0.0.1:{port}"] = stack.enter_context(started)
        lab = scratch / f"{runs.name}.toml"
        lab.write_text(f'[pool.rack]\nkind = "dask"\nscheduler = "{address}"\n')
        argv = [
            "run",
            *words,
            "--seed",
            "1",
            "--again",
            "--on",
            str(lab),
            "--runs",
            str(runs),
        ]
        begun = time.monotonic()
        start = "from kdelta.cli.main import main; main()"
        child = subprocess.Popen([sys.executable, "-c", start, *argv], stdout=subprocess.DEVNULL)
        while child.poll() is None:
            ended = len(list(runs.glob("*/trials/*/result.json")))
            # In the middle, and with a trial.
            if workers > 1 and killed == "nobody" and ended >= _total(runs) // 3 > 0:
                victims = sorted(busy(runs) & set(numbers))
                if len(victims) > 1:
                    os.kill(numbers[victims[0]], signal.SIGKILL)
                    killed = f"one of them, with a trial, after {ended} of {_total(runs)}"
            time.sleep(0.05)
        if child.returncode:
            raise SystemExit(f"the survey by {workers} failed: exit status {child.returncode}")
    return round(time.monotonic() - begun), killed


def _total(runs: Path) -> int:
    for path in runs.glob("*/run.json"):
        return len(json.loads(path.read_bytes())["trials"])
    return 0


def contents(runs: Path, caches: Path) -> dict[str, tuple[str, str]]:
    """Of each file of a run its digest, and that of what it says without when, where, how long."""
    folder = RUNS.find(runs, "latest")
    record = RunJournal.open(folder).record()
    found = {}
    for trial in record.trials:
        place = folder / "trials" / f"{trial.index:04d}"
        if trial.result is None:
            raise SystemExit(f"trial {trial.index} has no result")
        for path in sorted(place.iterdir()):
            found[f"{place.name}/{path.name}"] = digest(path.read_bytes()), said(path, caches)
    for path in sorted(folder.iterdir()):
        if path.suffix in (".csv", ".txt") or path.name.startswith("explain-"):
            text = path.read_bytes()
            found[f"answers/{path.suffix}/{path.name}"] = digest(text), digest(_WHEN.sub(b"", text))
    return found


def said(path: Path, caches: Path) -> str:
    """What a file of a trial says, as a digest.

    Raw counts: each window with how often each address retired; the plugin numbers blocks of code
    in the order in which QEMU's threads translate them.
    """
    data = path.read_bytes()
    if path.name == "result.json":
        kept = json.loads(data)
        kept["run"] = kept["attempts"] = kept["result"]["wall_s"] = 0
        data = json.dumps(kept, sort_keys=True).encode()
    elif path.name == "command.txt":
        data = re.sub(
            re.escape(str(caches).encode()) + rb"/by-\d-\d+|/kdelta-worker-\w+|fd[/=]\d+", b"", data
        )
    elif path.name == "counts.bin.gz":
        data = repr([*map(_window, artifacts.read_counts(path).windows)]).encode()
    return digest(data)


def _window(window: CountedWindow) -> object:
    retired: Counter[int] = Counter()
    for slot, count in zip(window.rows[::2], window.rows[1::2], strict=True):
        for address in window.code[slot]:
            retired[address] += count
    told = (window.vcpu, window.phase, window.user, window.kernel, window.interrupts)
    return told, window.switched, window.strings, sorted(retired.items())


def digest(data: bytes) -> str:
    """Of a file."""
    return hashlib.sha256(data).hexdigest()


def compared(one: dict[str, tuple[str, str]], two: dict[str, tuple[str, str]]) -> int:
    """Print what is the same; how many files say another thing."""
    names, none = sorted({*one, *two}), ("", "")
    same = [name for name in names if one.get(name, none)[0] == two.get(name, none)[0]]
    other = [name for name in names if one.get(name, none)[1] != two.get(name, none)[1]]
    for kind, every in sorted(Counter(map(_kind, names)).items()):
        print(f"{kind}: {sum(_kind(name) == kind for name in same)} of {every} are the same bytes")
    for name in other:
        print(f"NOT THE SAME: {name}")
    print(f"{len(names)} files, {len(other)} of them say another thing")
    return len(other)


def _kind(name: str) -> str:
    first, _, rest = name.partition("/")
    return first if first == "answers" else rest


def main() -> None:
    """Both surveys; exits with 1 at a difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", default=KERNELS)
    parser.add_argument("scenarios", nargs="*")
    parser.add_argument("--keep", type=Path, help="a folder to leave the two runs in")
    chosen = parser.parse_args()
    words = [*(chosen.scenarios or SCENARIOS.split()), "--kernels", chosen.kernels]
    with ExitStack() as stack:
        scratch = chosen.keep or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="kdelta-spread-"))
        )
        found = []
        for workers in (1, 2):
            runs = scratch / f"by-{workers}"
            seconds, killed = survey(runs, workers, words, scratch)
            found.append(contents(runs, scratch))
            print(f"{workers} workers: {_total(runs)} trials, {len(found[-1])} files, {seconds} s;"
                  f" killed: {killed}", flush=True)  # fmt: skip
        raise SystemExit(bool(compared(*found)))


if __name__ == "__main__":
    main()
