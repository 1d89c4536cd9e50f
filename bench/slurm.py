# SPDX-License-Identifier: GPL-2.0-or-later
"""A timed study on a loopback Slurm cluster that is disturbed in every way that clusters know.

    PYTHONPATH=tests .venv/bin/python bench/slurm.py [--only WHAT]

Debian's slurm-wlm and munge, two nodes on this machine, all private.  After each disturbance every
trial must be there once, out of one block each, and each row on one node; faults of the user's are
one sentence.  The times themselves are of a busy loopback machine, and nothing is said of them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import private_slurm
from kdelta.journal.run import RUNS, RunJournal
from private_slurm import Cluster

_START = "from kdelta.cli.main import main; main()"
_ROUNDS = 3
_STUDY = f"""\
name = "loop"
title = "getppid on a node"
instrument = "time"
scenarios = ["control:getppid"]
kernels = ["host"]
[plan]
rounds = {_ROUNDS}
[time]
iterations = 16
"""
# Slow nodes: so that a block is met in the middle.
_SLOW = "sh -c 'sleep {seconds}; exec \"$0\" \"$@\"' {python} -c '{start}'"


class Lab:
    """One study in a folder, and the cluster that times it."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        folder.mkdir()
        (folder / "study.toml").write_text(_STUDY)
        self.pool()

    def pool(self, *lines: str, seconds: float = 0.0) -> None:
        """Write lab.toml."""
        slow = _SLOW.format(seconds=seconds, python=sys.executable, start=_START)
        command = json.dumps(slow if seconds else "")
        own = ['kind = "slurm"', f"kdelta = {command}", *lines]
        (self.folder / "lab.toml").write_text("\n".join(["[pool.nodes]", *own]) + "\n")

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """A command that is not waited for."""
        argv = [*(words or ("run", "study.toml")), "--on", "lab.toml", "--runs", "runs"]
        return subprocess.Popen(
            [sys.executable, "-c", _START, *argv],
            cwd=self.folder,
            env={**os.environ, **self.cluster.environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def jobs(self) -> list[tuple[int, str, str]]:
        """Number, state and node of all jobs that Slurm knows, oldest first."""
        form = ("--me", "--noheader", "--states=all", "--format=%A|%T|%N")
        lines = self.cluster.command("squeue", *form).splitlines()
        rows = [line.split("|") for line in lines if line.count("|") == 2]
        return sorted((int(number), state, node) for number, state, node in rows)

    def until_running(self) -> tuple[int, str]:
        """Wait for a running job: its number and its node."""
        ends = time.monotonic() + 120
        while time.monotonic() < ends:
            for number, state, node in self.jobs():
                if state == "RUNNING" and list(self.folder.glob("runs/*/slurm/*/job.sh")):
                    time.sleep(1)
                    return number, node
            time.sleep(0.1)
        raise TimeoutError("no job runs")

    def whole(self) -> str:
        """What is wrong with the run, "" when nothing is."""
        folder = RUNS.find(self.folder / "runs", "latest")
        trials = RunJournal.open(folder).record().trials
        bad = [t.index for t in trials if t.result is None or t.result.outcome != "ok"]
        broken = [t.index for t in trials if t.attempts != 1]
        done = [json.loads(p.read_bytes()) for p in folder.glob("slurm/*/done/machine.json")]
        nodes = {one["node"] for one in done}
        if bad or broken or len(trials) != 2 * _ROUNDS:
            return f"trials {bad} are not ok, {broken} not in one attempt, of {len(trials)}"
        if len(done) != _ROUNDS or len(nodes) != 1:
            return f"{len(done)} blocks on {sorted(nodes)}"
        return ""


def undisturbed(lab: Lab) -> str:
    """Nothing happens."""
    return _ends(lab.begin(), 0)


def node_killed(lab: Lab) -> str:
    """The node dies in the first block; the job goes to the other one."""
    lab.pool(seconds=8)
    child = lab.begin()
    _, node = lab.until_running()
    lab.cluster.kill_node(node)
    lab.pool()
    said = _ends(child, 0, limit_s=400)
    lab.cluster.start_node(node)
    lab.cluster.wait_for_nodes(2)
    return said


def preempted(lab: Lab) -> str:
    """Two jobs of more right take both nodes in the middle of a block."""
    lab.pool("partition = 'bench'", seconds=8)
    child = lab.begin()
    lab.until_running()
    for _ in private_slurm.NODES:
        lab.cluster.command("sbatch", "-p", "urgent", "--exclusive", "-N1", "--wrap", "sleep 5")
    return _ends(child, 0, limit_s=400)


def requeued(lab: Lab) -> str:
    """Somebody requeues the job."""
    lab.pool(seconds=5)
    child = lab.begin()
    number, _ = lab.until_running()
    lab.cluster.command("scontrol", "requeue", str(number))
    return _ends(child, 0, limit_s=400)


def controller_killed(lab: Lab) -> str:
    """kdelta is killed while a job runs; resumed, it finds that again."""
    lab.pool(seconds=5)
    child = lab.begin()
    number, _ = lab.until_running()
    child.send_signal(signal.SIGKILL)
    child.wait()
    before = len(lab.jobs())
    said = _ends(lab.begin("resume", "latest"), 0)
    more = len(lab.jobs()) - before
    return said if more == _ROUNDS - 1 else f"{more} further jobs than job {number} for the rest"


def slurmctld_killed(lab: Lab) -> str:
    """Slurm's controller dies while a job runs, and is started again."""
    lab.pool(seconds=20)
    child = lab.begin()
    lab.until_running()
    time.sleep(10)  # by then it has saved that the job runs; else it drains the node
    lab.cluster.kill_controller()
    time.sleep(5)
    lab.cluster.start_controller()
    return _ends(child, 0, limit_s=400)


def time_limit(lab: Lab) -> str:
    """A block is longer than its minutes; then it gets more."""
    lab.pool("minutes = 1", seconds=600)
    said = _ends(lab.begin(), 3, "give a block more minutes", limit_s=400)
    lab.pool("minutes = 5")
    return said or _ends(lab.begin("resume", "latest"), 0)


def cancelled(lab: Lab) -> str:
    """Somebody takes the job back."""
    lab.pool(seconds=20)
    child = lab.begin()
    number, _ = lab.until_running()
    lab.cluster.command("scancel", str(number))
    said = _ends(child, 3, "ended as CANCELLED; somebody took it back")
    lab.pool()
    return said or _ends(lab.begin("resume", "latest"), 0)


def wrong_partition(lab: Lab) -> str:
    """There is no such partition; nothing is left behind."""
    lab.pool('partition = "nope"')
    said = _ends(lab.begin(), 2, "invalid partition specified: nope; correct the pool in lab.toml")
    left = list((lab.folder / "runs").glob("*"))
    lab.pool()
    return said or (f"{left} is left" if left else "") or _ends(lab.begin(), 0)


def too_long(lab: Lab) -> str:
    """More minutes than the partition gives to anybody."""
    lab.pool("minutes = 600")
    said = _ends(lab.begin(), 3, "PartitionTimeLimit; correct the pool in lab.toml")
    lab.pool()
    return said or _ends(lab.begin("resume", "latest"), 0)


def no_kdelta(lab: Lab) -> str:
    """The command is not on the nodes."""
    lab.pool()
    text = (lab.folder / "lab.toml").read_text().replace('kdelta = ""', 'kdelta = "/opt/none"')
    (lab.folder / "lab.toml").write_text(text)
    said = _ends(lab.begin(), 3, "ended as FAILED")
    lab.pool()
    return said or _ends(lab.begin("resume", "latest"), 0)


def elsewhere(lab: Lab) -> str:
    """A run that was begun there is not gone on with here."""
    lab.pool(seconds=5)
    child = lab.begin()
    lab.until_running()
    child.send_signal(signal.SIGKILL)
    child.wait()
    argv = [sys.executable, "-c", _START, "resume", "latest", "--runs", "runs"]
    here = subprocess.run(argv, cwd=lab.folder, capture_output=True, text=True, check=False)
    if here.returncode != 2 or "its times are of the pool nodes" not in here.stderr:
        return f"resumed here: {here.returncode} {here.stderr}"
    return _ends(lab.begin("resume", "latest"), 0)


def _ends(child: subprocess.Popen[str], code: int, said: str = "", limit_s: float = 240) -> str:
    """What is wrong with the end of a command, "" when nothing is."""
    try:
        _, errors = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        child.kill()
        return f"it did not end within {limit_s} s: {child.communicate()[1][-500:]}"
    last = errors.strip().splitlines()[-1:]
    if said and last:
        print(f"    {last[0]}")
    wrong = child.returncode != code or said not in errors
    return f"exit status {child.returncode}, not {code}: {errors[-500:]}" if wrong else ""


WHAT: tuple[Callable[[Lab], str], ...] = (
    undisturbed,
    wrong_partition,
    too_long,
    no_kdelta,
    cancelled,
    requeued,
    preempted,
    controller_killed,
    elsewhere,
    slurmctld_killed,
    node_killed,
    time_limit,
)


def results(cluster: Cluster, scratch: Path, only: str | None) -> Iterator[tuple[str, str]]:
    """Each disturbance, and what is wrong after it."""
    for what in WHAT:
        if only in (None, what.__name__):
            print(f"{what.__name__}: {what.__doc__}", flush=True)
            lab = Lab(cluster, scratch / what.__name__)
            yield what.__name__, what(lab) or lab.whole()


def main() -> None:
    """Disturb, and say what came of it; exits with 1 when something was lost, or there twice."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=[what.__name__ for what in WHAT])
    chosen = parser.parse_args()
    if lacking := private_slurm.missing():
        raise SystemExit(
            f"not here: {', '.join(lacking)}; apt-get install slurm-wlm munge, as root"
        )
    wrong = 0
    with (
        private_slurm.cluster() as cluster,
        tempfile.TemporaryDirectory(prefix="kdelta-slurm-runs-") as scratch,
    ):
        for name, why in results(cluster, Path(scratch), chosen.only):
            wrong += bool(why)
            print(f"    {name}: {why or 'all trials once, one node'}", flush=True)
    print(f"{wrong} of {len(WHAT) if chosen.only is None else 1} went wrong")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
