# SPDX-License-Identifier: GPL-2.0-or-later
"""A Slurm cluster of one's own on loopback: munge, a controller and two nodes, gone after.

Debian's packages slurm-wlm and munge, whose slurmd runs several nodes on one machine (-N).  The
nodes run jobs as whoever submits them, so all of it is started by root.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ports import free_port

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel")
NODES = ("n1", "n2")
_CONF = """\
ClusterName=loop
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.sock
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmdSpoolDir={folder}/%n
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
ReturnToService=2
SlurmdTimeout=5
SlurmctldTimeout=10
MessageTimeout=5
KillWait=2
MinJobAge=300
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
"""


class Cluster:
    """The cluster; its commands find it by `environment`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._conf = folder / "slurm.conf"
        self.environment = {"SLURM_CONF": str(self._conf)}

    def start(self) -> None:
        """Start all of it, and wait until the nodes are there."""
        # munge wants a folder that others cannot write to, all the way up.
        (self.folder / "state").mkdir(parents=True)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        self.folder.chmod(0o755)
        ports = [free_port() for _ in (*NODES, "controller")]
        host = socket.gethostname().partition(".")[0]
        text = _CONF.format(host=host, folder=self.folder, port=ports[-1])
        for name, port in zip(NODES, ports, strict=False):
            text += f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2\n"
        every = ",".join(NODES)
        text += f"PartitionName=bench Nodes={every} Default=YES MaxTime=60 PriorityTier=1\n"
        text += f"PartitionName=urgent Nodes={every} MaxTime=60 PriorityTier=9 PreemptMode=OFF\n"
        self._conf.write_text(text)
        names = ("key-file", "socket", "pid-file", "log-file", "seed-file")
        files = ("munge.key", "munge.sock", "munged.pid", "munged.log", "munged.seed")
        given = [f"--{n}={self.folder / f}" for n, f in zip(names, files, strict=True)]
        self._run("munged", "--force", *given)
        self.start_controller()
        for name in NODES:
            (self.folder / name).mkdir()
            self.start_node(name)
        self.wait_for_nodes(len(NODES))

    def start_controller(self) -> None:
        """Start slurmctld, which finds its jobs again."""
        self._run("slurmctld", "-f", str(self._conf))

    def start_node(self, name: str) -> None:
        """Start a node's slurmd."""
        self._run("slurmd", "-N", name, "-f", str(self._conf))

    def wait_for_nodes(self, number: int) -> None:
        """Until so many nodes take jobs."""
        ends = time.monotonic() + 60
        while True:
            told = self.command("sinfo", "-h", "-p", "bench", "-t", "idle,alloc", "-o", "%D")
            if told.strip() == str(number):
                return
            if time.monotonic() > ends:
                raise TimeoutError(f"{told.strip() or 'no'} nodes of {number}: see {self.folder}")
            time.sleep(0.2)

    def kill_controller(self) -> None:
        """Kill slurmctld as a crash does."""
        os.kill(self._number("slurmctld.pid"), signal.SIGKILL)

    def kill_node(self, name: str) -> None:
        """Kill a node as a loss of power does: its slurmd first, so that it cannot say so."""
        parents, scripts = {}, []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                words = place.joinpath("cmdline").read_bytes()
                given = place.joinpath("environ").read_bytes()
                parent = place.joinpath("stat").read_text().rpartition(")")[2].split()[1]
            except OSError:
                continue
            parents[int(place.name)] = int(parent)
            ours = f"SLURM_CONF={self._conf}\0".encode() in given
            there = f"SLURMD_NODENAME={name}\0".encode() in given
            if (ours and there) or f"{self.folder / name}/job".encode() in words:
                scripts.append(int(place.name))
        first = [self._number(f"{name}.pid"), *(parents[number] for number in scripts)]
        victims = [number for number in (*first, *scripts) if number > 1]
        for number in victims:  # grows: what the job has started dies with it
            victims += [one for one, own in parents.items() if own == number and one not in victims]
        for number in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)

    def command(self, *argv: str) -> str:
        """What a command of Slurm prints."""
        env = {**os.environ, **self.environment}
        done = subprocess.run(
            argv, env=env, capture_output=True, text=True, timeout=60, check=False
        )
        return done.stdout

    def stop(self) -> None:
        """End all that was started here."""
        self.command("scancel", "--me")
        for name in NODES:
            if (self.folder / f"{name}.pid").exists():
                self.kill_node(name)
        for file in ("slurmctld.pid", "munged.pid"):
            if (self.folder / file).exists():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._number(file), signal.SIGKILL)

    def _number(self, file: str) -> int:
        return int((self.folder / file).read_text())

    def _run(self, *argv: str) -> None:
        env = {**os.environ, **self.environment}
        path = f"{env.get('PATH', os.defpath)}:/usr/sbin:/sbin"
        program = shutil.which(argv[0], path=path) or argv[0]
        subprocess.run(
            [program, *argv[1:]],
            env=env,
            cwd=self.folder,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=60,
        )


def missing() -> list[str]:
    """Programs that are not installed; root is one."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    lacking = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    return lacking or ([] if os.geteuid() == 0 else ["root"])


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A running cluster, ended and removed after."""
    folder = Path(tempfile.mkdtemp(prefix="kdelta-slurm-"))
    own = Cluster(folder)
    try:
        own.start()
        yield own
    finally:
        own.stop()
        shutil.rmtree(folder, ignore_errors=True)
