# SPDX-License-Identifier: GPL-2.0-or-later
"""A timed run's trials on a Slurm cluster: a row of the matrix in a round is a block, one job.

All kernels of a row are timed in one go on one node, which nobody else has meanwhile; the row stays
on that node in all rounds.  What came to its end lies in the block's folder, and what Slurm has is
found again by its name: so the controller may die at any moment, and nothing is timed twice.
"""

from __future__ import annotations

import hashlib
import logging
import re
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from kdelta.errors import Cancelled, InfraError, PoolError, SpecError
from kdelta.journal import blocks
from kdelta.journal.blocks import BlockOrder
from kdelta.journal.files import disk_errors
from kdelta.journal.run import RunJournal, RunRecord
from kdelta.printable import printable
from kdelta.run.elsewhere import TimingPool
from kdelta.run.slurm import Job, Slurm
from kdelta.run.trials import AS_PLANNED, How, Trials
from kdelta.sample import Outcome, TrialRecord, TrialResult
from kdelta.study.slurm import SlurmPool
from kdelta.study.spec import Replicate, Study, TimeMachine, has_control

log = logging.getLogger(__name__)
_SUBMISSIONS = 4  # of a block in one run: nodes fail, and jobs are preempted
_LAG_S = 60.0  # until a shared folder shows what a job has written
_POLL_S = 2.0
_AGAIN = ("NODE_FAIL", "PREEMPTED", "REVOKED")
_START = "from kdelta.cli.main import main; main()"
_MENDS = {
    "TIMEOUT": "give a block more minutes in lab.toml",
    "DEADLINE": "give a block more minutes in lab.toml",
    "OUT_OF_MEMORY": "choose nodes with more memory by constraint in lab.toml",
    "CANCELLED": "somebody took it back: ask who",
    "NODE_FAIL": "choose other nodes by constraint in lab.toml",
    "launch": "ask those who keep the cluster why the node cannot start it",
    "PREEMPTED": "choose a partition or QOS that is not preempted in lab.toml",
}


@dataclass(slots=True, kw_only=True)
class _Block:
    """A block of this run.  old: jobs of its name that ended without it; told: what was last said.

    gone: when it was first seen that no job of it is left, though it is not done.
    """

    name: str
    row: int
    folder: Path
    trials: tuple[TrialRecord, ...]
    old: set[int] = field(default_factory=set)
    job: Job | None = None
    submissions: int = 0
    told: str = ""
    gone: float = 0.0
    results: Mapping[int, TrialResult] | None = None


class SlurmTrials(TimingPool, Trials):
    """Times a study on a Slurm cluster."""

    def __init__(
        self,
        slurm: Slurm,
        pool: SlurmPool,
        study: Study,
        order: BlockOrder,
        *,
        poll_s: float = _POLL_S,
    ) -> None:
        """Raises SpecError for a study whose trials no block can hold."""
        _check(study)
        self.pool = slurm.name
        self.cancelled = threading.Event()
        self._slurm, self._pool, self._order, self._poll_s = slurm, pool, order, poll_s
        self._blocks: dict[tuple[int, int], _Block] = {}
        self._each = len(study.kernels) + has_control(study)
        self._doing: Callable[[int, str], None] = lambda _index, _who: None
        self._run: RunRecord | None = None
        self._folder = self._base = Path()

    @contextmanager
    def placed(self, journal: RunJournal, doing: Callable[[int, str], None]) -> Iterator[Trials]:
        """See TimingPool.  An interrupt takes the jobs back; killed, they go on."""
        self._folder, self._doing, self._run = journal.folder, doing, journal.record()
        self._base = _base(self._pool, journal.folder, self._run.run_id)
        for trial in self._run.trials:
            self._blocks.setdefault(self._key(trial), self._block(trial))
        pending = [block for block in self._blocks.values() if self._lacks(block)]
        for block in pending:
            self._renew(block)
        names = self._names(pending)
        for job in self._slurm.jobs(names):  # of an earlier process
            if not job.active or job.hopeless:
                names[job.name].old.add(job.number)
            if job.hopeless:
                self._slurm.cancel([job.number])
        try:
            yield self
        except (KeyboardInterrupt, Cancelled):
            self._slurm.cancel(b.job.number for b in self._blocks.values() if b.job)
            raise

    def ready(self, trial: TrialRecord) -> None:
        """Wait until the block of a trial is there.  Raises PoolError, SpecError, InfraError."""
        block = self._blocks[self._key(trial)]
        round_ = [b for (number, _), b in self._blocks.items() if number == trial.round]
        open_ = [each for each in round_ if self._lacks(each)]
        while not self._taken(block):
            self._look([each for each in open_ if not self._taken(each)])
            if not self._taken(block) and self.cancelled.wait(self._poll_s):
                raise Cancelled
        for each in block.trials:
            self._doing(each.index, "")

    def waits(self, trial: TrialRecord) -> bool:  # noqa: ARG002
        """Each trial's result is known from its block when it is ready."""
        return True

    def known(
        self,
        trial: TrialRecord,
        finished: Sequence[TrialRecord],  # noqa: ARG002
    ) -> TrialResult | None:
        """What the block has of it."""
        block = self._blocks[self._key(trial)]
        machine = blocks.machine_of(block.folder)
        if block.results is None or machine is None:
            raise InfraError("the block is gone", place=str(block.folder))
        result = block.results[trial.index]
        blocks.bring(block.folder, trial.index, result, self._folder)
        own = self._node_of(block.row)
        if own and machine.node != own:
            why = f"timed on {printable(machine.node, 80)}, the others of its row on {own}"
            bad = result.outcome if result.data is None else Outcome.INVALID
            return replace(result, outcome=bad, reasons=(*result.reasons, why))
        return result

    def measure(self, trial: TrialRecord, _folder: Path, _how: How = AS_PLANNED) -> TrialResult:
        """Nothing is measured here."""
        raise InfraError(f"trial {trial.index} is of no block")

    # ---- blocks and their folders ----------------------------------------------------------

    def _key(self, trial: TrialRecord) -> tuple[int, int]:
        return trial.round, trial.arm // self._each

    def _block(self, trial: TrialRecord) -> _Block:
        """The block of a trial, where it stands in the run's folder."""
        number, row = key = self._key(trial)
        name = f"r{number:03d}-p{row:03d}"
        own = tuple(one for one in self._whole().trials if self._key(one) == key)
        again = sorted(self._base.glob(f"{name}.[0-9]*"), key=lambda path: int(path.suffix[1:]))
        folder = again[-1] if again else self._base / name
        return _Block(name=folder.name, row=row, folder=folder, trials=own)

    def _whole(self) -> RunRecord:
        if self._run is None:
            raise RuntimeError("the run is not executed")
        return self._run

    def _lacks(self, block: _Block) -> bool:
        """True when the run has no result of some of its trials."""
        return any(trial.result is None for trial in block.trials)

    def _renew(self, block: _Block) -> None:
        """Begin a block anew when a trial that is to be measured again failed in it."""
        if not blocks.is_done(block.folder):
            return
        had = blocks.results(block.folder)
        if not any(
            trial.result is None and had[trial.index].outcome is Outcome.INFRA_ERROR
            for trial in block.trials
        ):
            return
        first, _, number = block.name.partition(".")
        block.name = f"{first}.{int(number or 0) + 1}"
        block.folder = self._base / block.name

    def _taken(self, block: _Block) -> bool:
        """True when the block is done; then its results are read."""
        if block.results is None and blocks.is_done(block.folder):
            block.results = blocks.results(block.folder)
            blocks.tidy(block.folder)
        return block.results is not None

    def _node_of(self, row: int) -> str:
        """The node that a row is timed on: its first block's; "" while none is done."""
        for (_, number), block in sorted(self._blocks.items(), key=lambda item: item[0]):
            if number == row and (machine := blocks.machine_of(block.folder)):
                return machine.node
        return ""

    # ---- jobs ------------------------------------------------------------------------------

    def _names(self, of: Sequence[_Block]) -> dict[str, _Block]:
        """The blocks by the names of their jobs: of this very folder, on whatever machine."""
        token = hashlib.sha256(str(self._base.resolve()).encode()).hexdigest()[:12]
        return {f"kdelta-{token}-{block.name}": block for block in of}

    def _look(self, open_: Sequence[_Block]) -> None:
        """See what has become of these blocks; give Slurm those that it does not have."""
        names = self._names(open_)
        try:
            jobs = self._slurm.jobs(names)
        except PoolError:
            raise
        except InfraError as error:  # for a while Slurm may be restarted
            log.warning("%s; asked again", error.sentence())
            return
        for name, block in names.items():
            own = [job for job in jobs if job.name == name and job.number not in block.old]
            active = sorted((job for job in own if job.active), key=lambda job: job.number)
            if not own:
                self._submit(name, block)
            elif active:
                self._follow(block, active[0])
            else:
                self._ended(block, max(own, key=lambda job: job.number))

    def _submit(self, name: str, block: _Block) -> None:
        if block.submissions >= _SUBMISSIONS:
            raise self._given_up(block, f"{block.submissions} jobs of it came to", "nothing")
        if block.job and not self._waited(block):
            return  # Slurm knew a job a moment ago
        block.submissions += 1
        place = block.folder
        blocks.make(place, self._whole(), [_bare(one) for one in block.trials], self._order)
        script = place / "job.sh"
        with disk_errors(place):
            script.write_text(_script(self._pool, place))
        comment = f"kdelta {self._whole().run_id} {block.name}"
        node = self._node_of(block.row)
        number = self._slurm.submit(name, script, place / "said.txt", node, comment)
        block.job = Job(number=number, name=name, state="PENDING", node="", reason="")
        block.gone = 0.0

    def _follow(self, block: _Block, job: Job) -> None:
        """Tell of a job that goes on.  Raises PoolError for one that never will."""
        block.job, block.gone = job, 0.0
        if job.hopeless:
            self._slurm.cancel([job.number])
            raise self._given_up(block, f"job {job.number} would wait for ever:", job.hopeless)
        node = self._node_of(block.row)
        where = f"on {job.node}" if job.node else f"waits{f' for {node}' if node else ''}"
        why = (
            f" ({job.reason})" if job.state == "PENDING" and job.reason not in ("", "None") else ""
        )
        said = f"{self._slurm.name}: job {job.number} {where}{why}"
        if said == block.told:
            return
        block.told = said
        for trial in block.trials:
            self._doing(trial.index, said)
        if why:
            log.warning("block %s: %s", block.name, said)

    def _ended(self, block: _Block, job: Job) -> None:
        """A block's last job has ended, and the block is not seen yet."""
        if not self._waited(block) and job.state == "COMPLETED":
            return
        if self._taken(block):
            return
        if job.state in _AGAIN and block.submissions < _SUBMISSIONS:
            log.warning("block %s: job %d ended as %s; again", block.name, job.number, job.state)
            block.old.add(job.number)
            block.job, block.gone = None, 0.0
            return
        ended = "" if job.state in ("FAILED", "COMPLETED") else " ended as"
        raise self._given_up(block, f"job {job.number} on {job.node or '?'}{ended}", job.state)

    def _waited(self, block: _Block) -> bool:
        """True when a block without a job has had the time to be seen here."""
        block.gone = block.gone or time.monotonic()
        return time.monotonic() - block.gone > min(_LAG_S, 30 * self._poll_s)

    def _given_up(self, block: _Block, what: str, state: str) -> PoolError:
        """Why the run ends here; state: that a job ended in, or what it waits for in vain."""
        said = block.folder / "said.txt"
        last = _last_line(said) if state == "FAILED" else ""
        if last:
            why, mend = f" ended as FAILED: {last}", f"see {said}"
        elif state in ("FAILED", "COMPLETED"):
            why = f" ended as {state} and left nothing in the block's folder"
            mend = "name a folder that the nodes see, too, by shared in lab.toml"
        else:
            why = f" {state}"
            mend = _MENDS.get(state.partition(" ")[0], "correct the pool in lab.toml")
        return PoolError(
            f"pool {self._slurm.name}, block {block.name}: {what}{why}",
            action=f"{mend}, then: kdelta resume --on LAB.TOML",
        )


def _check(study: Study) -> None:
    """Raise SpecError for what a job of a cluster cannot do."""
    if study.time.replicate is Replicate.BOOT and study.time.machine is TimeMachine.HOST:
        raise SpecError(
            "a job does not boot its node, and the study wants a boot for each trial",
            action='set time.replicate = "process", or time.machine = "kvm"',
        )
    other = [name for name in study.kernels if name != "host"]
    if study.time.machine is TimeMachine.HOST and other:
        raise SpecError(
            f"{printable(other[0], 80)}: a job does not boot its node into another kernel",
            action='time the kernels in guests, time.machine = "kvm", or "host" alone',
        )


def _base(pool: SlurmPool, folder: Path, run_id: str) -> Path:
    """Where the blocks of a run are: in its own folder, or in a shared one."""
    if not pool.shared:
        return folder.absolute() / "slurm"
    own = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]
    return Path(pool.shared) / f"{run_id}-{own}"


def _bare(trial: TrialRecord) -> TrialRecord:
    return replace(trial, attempts=0, result=None)


def _script(pool: SlurmPool, folder: Path) -> str:
    """What a job runs: kdelta, as it is on the node."""
    own = [sys.executable, "-c", _START]
    command = shlex.join([*(shlex.split(pool.kdelta) or own), "block", str(folder)])
    return f"#!/bin/sh\nexec {command}\n"


def _last_line(path: Path) -> str:
    """The last words of a job."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - 4096))
            text = stream.read(4096).decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    own = [line for line in lines if not re.match(r"slurmstepd|srun", line)] or lines
    return printable(own[-1], 300) if own else ""
