# SPDX-License-Identifier: GPL-2.0-or-later
"""What takes too long for the gates: bisections over the whole archive and over built commits.

    .venv/bin/python bench/full_bisect.py [--seed N] [archive] [tree] [git]

Prints what it finds, and fails when that is wrong or took more than it may.  `tree` and `git` make
a history below build/; with the seed of an earlier call its kernels come from the cache.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kernel_history

ROOT = Path(__file__).resolve().parent.parent
MPROTECT = "mprotect:shared_dirty_full_toggle_64m"
MINCORE = "mincore:no_thp_pte_scan_64m"
MOST_BOOTS = 7
MOST_BUILDS = 10  # the ends, six halvings, one that does not build, one that does not boot
WARM_S = 15.0
START = "import sys; from kdelta.cli.main import main; main(sys.argv[1:])"


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@contextmanager
def started(runs: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`kdelta` with these arguments, ended when the context ends."""
    argv = [sys.executable, "-c", START, *arguments, "--runs", str(runs), "--json"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def bisected(runs: Path, *arguments: str) -> dict[str, Any]:
    """What `kdelta bisect ... --json` prints."""
    with started(runs, "bisect", *arguments) as process:
        out, _ = process.communicate()
        if process.returncode:
            raise SystemExit(f"kdelta bisect ended with {process.returncode}")
    found: dict[str, Any] = json.loads(out)
    return found


def require(condition: bool, what: str) -> None:  # noqa: FBT001
    """End with an error unless it holds."""
    if not condition:
        raise SystemExit(f"wrong: {what}")


def archive(runs: Path) -> None:
    """The two steps of the seeds, over every release from the first 6.12 to 7.3."""
    wanted = {MPROTECT: ("6.16.12", "6.17.8"), MINCORE: ("6.18.15", "6.19.6")}
    for scenario, pair in wanted.items():
        found = bisected(runs, "releases", scenario, "--good", "6.12.43", "--bad", "7.3")
        say(
            f"{scenario}: {found['good']['label']} -> {found['bad']['label']},"
            f" {found['good']['value']:.2f} -> {found['bad']['value']:.2f},"
            f" {found['boots']} boots of {found['points']} releases"
        )
        require((found["good"]["label"], found["bad"]["label"]) == pair, f"not {pair}")
        require(found["boots"] <= MOST_BOOTS, f"more than {MOST_BOOTS} boots")


def tree(runs: Path, seed: int) -> None:
    """64 commits over a kernel: the culprit, although it is killed in the middle."""
    folder = ROOT / "build" / "bisect-history"
    made = kernel_history.make(folder, seed)
    say(
        f"seed {seed}: culprit {made.culprit}, unbuildable {made.unbuildable},"
        f" unbootable {made.unbootable}, no-op {made.no_op} of {kernel_history.COUNT}"
    )
    ends = ("--tree", str(folder), "--good", made.commits[0], "--bad", "main")
    with started(runs, "bisect", "commits", MPROTECT, *ends) as process:
        while process.poll() is None and _steps(runs) < 4:
            time.sleep(0.2)
        require(process.poll() is None, "it ended before it could be killed")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    say(f"killed after {_steps(runs)} commits")
    found = bisected(runs, "commits", MPROTECT, *ends)
    times = [step["build_s"] for step in found["steps"]]
    say(
        f"culprit {made.commits.index(found['culprit']['id'])}: {found['culprit']['fixes']}\n"
        f"{found['good']['value']:.1f} -> {found['bad']['value']:.1f};"
        f" {found['builds']} builds ({', '.join(f'{each:.0f}' for each in times)} s),"
        f" {found['boots']} boots"
    )
    for step in found["steps"]:
        if step["why"] or step["same_as"]:
            say(f"{step['label']}: {step['why'] or 'same image as ' + step['same_as'][:12]}")
    require(found["culprit"]["id"] == made.commits[made.culprit], "another culprit")
    require(found["builds"] <= MOST_BUILDS, f"more than {MOST_BUILDS} builds")
    busy = max(1.0, os.getloadavg()[1] / (os.cpu_count() or 1))  # by others, too
    warm = statistics.median([each for each in times[1:] if each] or [0.0])
    require(warm <= WARM_S * busy, f"warm builds take over {WARM_S} s")


def git(seed: int) -> None:
    """The same culprit by git itself, with the script of docs/bisect.md."""
    folder = ROOT / "build" / "bisect-history"
    made = kernel_history.make(folder, seed)
    _git(folder, "reset", "--quiet", "--hard", "main")
    _git(folder, "bisect", "start", "main", made.commits[0])
    (script,) = re.findall(r"```sh\n(.*?)```", (ROOT / "docs/bisect.md").read_text(), re.DOTALL)
    with tempfile.TemporaryDirectory(prefix="kdelta-full-") as name:
        count = Path(name, "count.sh")
        count.write_text(script.replace("tree:.@v6.16", f"tree:.@{made.commits[0]}"))
        os.environ["KDELTA_RUNS"] = name
        os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        out = _git(folder, "bisect", "run", "sh", str(count))
    say("\n".join(line for line in out.splitlines() if re.match("(PASS|FAIL|UNDECIDED): ", line)))
    wanted = f"{made.commits[made.culprit]} is the first bad commit"
    require(wanted in out, f"not {wanted}:\n{out}")
    say(f"git bisect run: {wanted}")


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    require(done.returncode == 0, f"git {arguments[0]}: {done.stderr}\n{done.stdout}")
    return done.stdout


def _steps(runs: Path) -> int:
    for path in runs.glob("*/bisect.json"):
        return len(json.loads(path.read_bytes())["steps"])
    return 0


def main() -> None:
    """Run what is asked for, or all."""
    parser = argparse.ArgumentParser(description="Bisections that take minutes.")
    parser.add_argument("what", nargs="*", choices=["archive", "tree", "git", []])
    parser.add_argument("--seed", type=int, default=7)
    chosen = parser.parse_args()
    for what in chosen.what or ["archive", "tree", "git"]:
        with tempfile.TemporaryDirectory(prefix="kdelta-full-") as name:
            if what == "archive":
                archive(Path(name))
            elif what == "tree":
                tree(Path(name), chosen.seed)
            else:
                git(chosen.seed)


if __name__ == "__main__":
    main()
