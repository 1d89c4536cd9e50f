# SPDX-License-Identifier: GPL-2.0-or-later
"""How long a site takes to write, how large it is, and how long its pages take to open.

    .venv/bin/python bench/lab_site.py RUNS [--kernels 76] [--browser]

RUNS is a directory of runs.  --kernels: where it has fewer, its kernels are copied under made-up
versions until there are so many, each with the counts of a real one; then only the time and the
sizes mean something, which the first line says.  --browser: opens the largest page of each kind
in headless Chromium (chromedriver on PATH), each five times, and prints the longest.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from kdelta.analysis.lab import named, version_key
from kdelta.journal.results import KeptResult, keep
from kdelta.journal.run import RUNS, RunJournal, RunRecord
from kdelta.sample import ArmRecord, TrialRecord

LIMIT_S, LIMIT_MB, LIMIT_PAGE_MS = 30.0, 10.0, 1000.0
PORT = 9517
OPENED = 5


def measured(records: list[RunRecord]) -> list[tuple[ArmRecord, dict[str, TrialRecord]]]:
    """Each kernel of the runs with one trial of each scenario, oldest first."""
    found: dict[str, tuple[ArmRecord, dict[str, TrialRecord]]] = {}
    for record in named(records):
        for trial in record.trials:
            arm = record.arms[trial.arm]
            if trial.result and not arm.control:
                own = found.setdefault(arm.label, (arm, {}))[1]
                own.setdefault(f"{trial.workload}:{trial.scenario}", trial)
    return [found[name] for name in sorted(found, key=version_key)]


def widened(records: list[RunRecord], runs: Path, kernels: int) -> None:
    """Write a run of so many kernels into `runs`: each a copy of one that was counted."""
    have = measured(records)
    every = {name: trial for _, own in have for name, trial in own.items()}
    for at in range(0, kernels, 32):
        arms: list[ArmRecord] = []
        trials: list[TrialRecord] = []
        for index in range(min(32, kernels - at)):
            arm, own = have[(at + index) * len(have) // kernels]
            version = f"{6 + (at + index) // 20}.{(at + index) % 20}.1"
            kernel = replace(arm.kernel, version=f"{version}-1", reference=f"deb:{version}-1")
            arms.append(replace(arm, index=index, label=version, kernel=kernel))
            trials += [
                replace(own.get(name, one), index=len(trials) + more, arm=index, round=0)
                for more, (name, one) in enumerate(every.items())
            ]
        study = replace(
            records[0].study,
            kernels=tuple(arm.kernel.reference for arm in arms),
            scenarios=tuple(every),
            plan=replace(records[0].study.plan, rounds=1),
        )
        record = replace(
            records[0],
            run_id=f"copies-{at}",
            study=study,
            arms=tuple(arms),
            trials=tuple(trials),
            rounds=1,
        )
        RunJournal.create(runs / record.run_id, record)
        for trial in trials:
            if trial.result:
                result = replace(trial.result, kernel=arms[trial.arm].kernel)
                kept = KeptResult(run=record.run_id, index=trial.index, attempts=1, result=result)
                keep(runs / record.run_id, kept)


def asked(path: str, body: dict[str, Any] | None = None, method: str = "") -> Any:
    """An answer of chromedriver."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}{path}",
        data=None if body is None else json.dumps(body).encode(),
        method=method or ("GET" if body is None else "POST"),
    )
    with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310
        return json.load(answer)["value"]


@contextmanager
def browser(width: int = 1280) -> Iterator[str]:
    """A session of headless Chromium; the path of its commands."""
    driver = subprocess.Popen(
        ["chromedriver", f"--port={PORT}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(100):
            try:
                asked("/status")
                break
            except OSError:
                time.sleep(0.1)
        words = ["--headless=new", "--no-sandbox", f"--window-size={width},900"]
        options = {"browserName": "chrome", "goog:chromeOptions": {"args": words}}
        session = asked("/session", {"capabilities": {"alwaysMatch": options}})["sessionId"]
        yield f"/session/{session}"
        asked(f"/session/{session}", method="DELETE")
    finally:
        driver.terminate()
        driver.wait()


def opened(out: Path) -> Iterator[tuple[str, int, float]]:
    """The largest page of each kind, its size, and the longest time until it is loaded, in ms."""
    kinds: dict[str, Path] = {}
    for page in sorted(out.rglob("*.html"), key=lambda one: one.stat().st_size):
        kinds[page.parent.name if page.parent != out else page.name] = page
    script = "return performance.getEntriesByType('navigation')[0].loadEventEnd"
    with browser() as session:
        for page in kinds.values():
            longest = 0.0
            for _ in range(OPENED):
                asked(f"{session}/url", {"url": page.as_uri()})
                taken = asked(f"{session}/execute/sync", {"script": script, "args": []})
                longest = max(longest, float(taken))
            yield page.relative_to(out).as_posix(), page.stat().st_size, longest


def main() -> int:
    """Write the site, look at it, print what it took; 1 for more than is allowed."""
    asking = argparse.ArgumentParser(description=__doc__)
    asking.add_argument("runs", type=Path)
    asking.add_argument("--kernels", type=int, default=0)
    asking.add_argument("--browser", action="store_true")
    own = asking.parse_args()
    with tempfile.TemporaryDirectory(prefix="kdelta-site-") as place:
        records = [RunJournal.open(folder).record() for folder in RUNS.folders(own.runs)]
        counted = len(measured(records))
        runs, out = own.runs, Path(place) / "site"
        if counted < own.kernels:
            runs = Path(place) / "runs"
            widened(records, runs, own.kernels)
            print(
                f"{own.kernels} kernels, copies of {counted}: only times and sizes mean something"
            )
        else:
            print(f"{counted} kernels as counted")
        command = [
            str(Path(sys.executable).parent / "kdelta"),
            "site",
            str(out),
            "--runs",
            str(runs),
        ]
        began = time.monotonic()
        subprocess.run([*command, "--address", "https://lab.example.org/"], check=True)
        wall = time.monotonic() - began
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = used.ru_utime + used.ru_stime
        print(
            f"written in {wall:.1f} s, {spent:.1f} s of them a processor's (at most {LIMIT_S:.0f})"
        )
        size = sum(page.stat().st_size for page in out.rglob("*") if page.is_file()) / 1e6
        print(f"{size:.1f} MB ({LIMIT_MB:.0f} allowed)")
        fine = spent <= LIMIT_S and size <= LIMIT_MB
        for name, length, taken in opened(out) if own.browser else ():
            print(f"{name}: {length / 1e3:.0f} kB, opened in {taken:.0f} ms")
            fine = fine and taken <= LIMIT_PAGE_MS
    return 0 if fine else 1


if __name__ == "__main__":
    raise SystemExit(main())
