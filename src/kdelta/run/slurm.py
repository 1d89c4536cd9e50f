# SPDX-License-Identifier: GPL-2.0-or-later
"""Slurm's own commands: a job given, asked for by its name, and taken back."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from kdelta import process
from kdelta.errors import InfraError, PoolError, SpecError
from kdelta.printable import printable
from kdelta.study.slurm import SlurmPool

_COMMAND_S = 60.0
_LOST_S = 180.0  # without an answer of Slurm
_MOST_LINES = 100_000
_LINE = re.compile(r"(\d{1,10})\|([^|]*)\|([A-Z_]{1,40})(?: by \d+|\+)?\|([^|]*)\|(.*)")
_HELD = frozenset({"REQUEUE_HOLD", "SPECIAL_EXIT"})  # somebody has to let it go
_ACTIVE = _HELD | {
    "PENDING",
    "CONFIGURING",
    "RUNNING",
    "COMPLETING",
    "SUSPENDED",
    "STOPPED",
    "SIGNALING",
    "STAGE_OUT",
    "RESIZING",
    "REQUEUED",
    "REQUEUE_FED",
    "RESV_DEL_HOLD",
}
# Of a job that waits for what does not come by itself.
_HOPELESS = {
    "PartitionTimeLimit",
    "PartitionNodeLimit",
    "BadConstraints",
    "InvalidAccount",
    "InvalidQOS",
    "JobHeldAdmin",
    "JobHeldUser",
    "JobHoldMaxRequeue",
    "AssocMaxWallDurationPerJobLimit",
    "QOSMaxWallDurationPerJobLimit",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as Slurm tells of it.  reason: why it waits; node: that it has, or had."""

    number: int
    name: str
    state: str
    node: str
    reason: str

    @property
    def active(self) -> bool:
        """True while it may still come to its end by itself."""
        return self.state in _ACTIVE

    @property
    def hopeless(self) -> str:
        """What it waits for in vain; "" for a job that goes on."""
        if self.state in _HELD:
            return self.state
        reason = self.reason.split(",")[0].strip("() ")
        held = reason.startswith("launch failed requeued held")
        return reason if self.state == "PENDING" and (held or reason in _HOPELESS) else ""


class Slurm:
    """A cluster, asked by the commands of the machine that we are on."""

    def __init__(self, name: str, pool: SlurmPool) -> None:
        """name: of the pool, for sentences.

        Raises InfraError without Slurm's commands, SpecError for what Slurm would refuse.
        """
        self.name, self._pool = name, pool
        missing = [one for one in ("sbatch", "squeue", "scancel") if process.which(one) is None]
        if missing:
            raise InfraError(
                f"pool {name}: Slurm's {missing[0]} is not installed here",
                action="give the command where the cluster's users log in",
            )
        self._heard = time.monotonic()
        self._check()

    def submit(self, name: str, script: Path, output: Path, node: str, comment: str) -> int:
        """Give Slurm a job, and return its number.  Raises InfraError, SpecError."""
        # One of a name at a time: a block that was given twice is never measured by both.
        options = ["--parsable", f"--job-name={name}", "--dependency=singleton", "--requeue"]
        options += [f"--output={output}", "--open-mode=append", f"--comment={comment}"]
        options += [f"--chdir={script.parent}", f"--time={self._pool.minutes}"]
        options += self._options(node)
        done = process.run(["sbatch", *options, str(script)], timeout=_COMMAND_S, check=False)
        number = done.stdout.strip().partition(";")[0]
        if done.returncode or not re.fullmatch(r"\d{1,10}", number):
            raise self._refused(done)
        return int(number)

    def jobs(self, names: Collection[str]) -> list[Job]:
        """All jobs of these names that Slurm still knows.

        Raises InfraError when it does not answer, PoolError when it has not for long.
        """
        if not names:
            return []
        try:
            found = self._queued(names)
        except InfraError as error:
            if time.monotonic() - self._heard > _LOST_S:
                raise self._silent(error.cause) from error
            raise
        self._heard = time.monotonic()
        return [*found, *self._remembered(set(names) - {job.name for job in found})]

    def _queued(self, names: Collection[str]) -> list[Job]:
        form = ["--noheader", "--states=all", "--format=%A|%j|%T|%N|%r"]
        argv = ["squeue", "--me", *form, f"--name={','.join(sorted(names))}"]
        done = process.run(argv, timeout=_COMMAND_S, check=False)
        if done.returncode:
            raise InfraError(f"squeue: {printable(done.last_words, 200)}")
        return _jobs(done.stdout)

    def cancel(self, numbers: Iterable[int]) -> None:
        """Take jobs back; one that has ended already is none of it."""
        argv = ["scancel", *map(str, numbers)]
        if argv[1:]:
            process.run(argv, timeout=_COMMAND_S, check=False)

    def _remembered(self, names: Collection[str]) -> list[Job]:
        """What the accounting says of jobs that have left the queue; none without it."""
        if not names or process.which("sacct") is None:
            return []
        form = ["--noheader", "--parsable2", "--allocations", "--format=JobIDRaw,JobName,State"]
        when = ["--starttime=now-30days", f"--name={','.join(sorted(names))}"]
        done = process.run(["sacct", *form, *when], timeout=_COMMAND_S, check=False)
        if done.returncode:
            return []
        return _jobs("".join(f"{line}||\n" for line in done.stdout.splitlines()))

    def _check(self) -> None:
        """Have Slurm say whether it would take such a job."""
        options = ["--test-only", f"--time={self._pool.minutes}", *self._options("")]
        argv = ["sbatch", *options, "--wrap=true"]
        done = process.run(argv, timeout=_COMMAND_S, check=False)
        if done.returncode:
            raise self._refused(done)

    def _options(self, node: str) -> list[str]:
        """The whole of one node, as the pool wants it; no more of our environment than is needed.

        node: where it must be, "" for anywhere.
        """
        names = ("partition", "constraint", "account", "qos", "reservation")
        own = {name: getattr(self._pool, name) for name in names}
        own["nodelist"] = node or self._pool.node
        given = [f"--{name}={value}" for name, value in own.items() if value]
        return ["--exclusive", "--nodes=1", "--ntasks=1", "--export=HOME,PATH,USER,LANG", *given]

    def _refused(self, done: process.Completed) -> InfraError | SpecError:
        said = next((line for line in done.stderr.splitlines() if "error:" in line), "")
        why = printable((said or done.last_words).rpartition("error:")[2].strip(), 200)
        if re.search(r"contact|connect|Unable|timed out|authentication|plugin", why):
            return self._silent(why)
        return SpecError(
            f"pool {self.name}: Slurm takes no such block: {why}",
            action=f"correct the pool in lab.toml{self._partitions()}",
        )

    def _partitions(self) -> str:
        """The partitions that there are, as the end of an action."""
        try:
            done = process.run(["sinfo", "--noheader", "--format=%R"], timeout=_COMMAND_S)
        except InfraError:
            return ""
        names = ", ".join(sorted(set(done.stdout.split()))[:20])
        return f"; partitions here: {printable(names, 200)}" if names else ""

    def _silent(self, why: str) -> PoolError:
        return PoolError(
            f"pool {self.name}: Slurm does not answer: {printable(why, 200)}",
            action="jobs that it has go on; when it is back: kdelta resume",
        )


def _jobs(text: str) -> list[Job]:
    """The jobs of a listing: number, name, state, nodes and reason between bars."""
    found = []
    for line in filter(str.strip, text.splitlines()[:_MOST_LINES]):
        parts = _LINE.fullmatch(line.strip())
        if parts is None:
            raise InfraError(f"Slurm lists a job in other words: {printable(line, 100)}")
        number, name, state, node, reason = parts.groups()
        node, reason = printable(node, 100), printable(reason, 100)
        found.append(Job(number=int(number), name=name, state=state, node=node, reason=reason))
    return found
