# SPDX-License-Identifier: GPL-2.0-or-later
"""What runs on a worker: it says what it lacks, takes that, and counts a trial with its own cache.

A controller calls four functions there: `lacking`, `take`, `counted` and `checkpoint`.  They take
and give bytes and texts.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from kdelta import build, cache
from kdelta.errors import Cancelled, GuestFault, InfraError, KdeltaError, SpecError
from kdelta.guests import checkpoint as guest_checkpoint
from kdelta.guests import qemu
from kdelta.journal.results import trial_folder
from kdelta.run.exact import ExactTrials
from kdelta.run.guest_trial import Bench
from kdelta.run.runner import How
from kdelta.run.trial import bounded
from kdelta.sample import TrialRecord, TrialResult
from kdelta.workers import checkpoints
from kdelta.workers.messages import FORMAT, MOST_INPUT, Reply, TrialOrder, order_of

INPUT = "program"  # the one file of an input, whatever it is
_never = threading.Event()  # a worker is ended with its process


def lacking(digests: Sequence[str]) -> list[str]:
    """Which of these inputs the worker does not have, whole."""
    return [digest for digest in digests if cache.found("inputs", _key(digest)) is None]


def take(digest: str, content: bytes) -> None:
    """Keep an input.  Raises InfraError for one that is not what its SHA-256 says."""
    if len(content) > MOST_INPUT or hashlib.sha256(content).hexdigest() != _key(digest):
        raise InfraError(f"an input arrived with another content than {digest[:16]}")

    def make(folder: Path) -> None:
        (folder / INPUT).write_bytes(content)

    cache.entry("inputs", digest, make)


def counted(message: bytes) -> bytes:
    """The reply to an order: what was counted, or why nothing was."""
    order = order_of(message)
    scratch = Path(tempfile.mkdtemp(prefix="kdelta-worker-"))
    try:
        reply = _counted(order, trial_folder(scratch, order.trial.index))
    except Cancelled:
        reply = _fault("the worker is being ended")
    except GuestFault:
        raise  # a bug: such a fault is a result
    except KdeltaError as error:
        reply = _fault(error.sentence())
    except OSError as error:
        reply = _fault(f"{error.filename or scratch}: {error.strerror or error}")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return msgspec.json.encode(reply)


def checkpoint(message: bytes, key: str) -> bytes:
    """The checkpoint of an order's guest, packed; made here where there is none; empty when its
    kernel does not come up.

    key: that it must have.  Raises InfraError when it is another one's, or does not come to be.
    """
    order = order_of(message)
    programs = {key: _input(digest) for key, digest in order.programs.items()}
    try:
        with build.given(programs), _loaded(order) as trial:
            trials = _trials(order)
            bench, own, kernel = trials.given(trial)
            settings = checkpoints.settings_of(trial, own)
            if guest_checkpoint.key(bench.emulator, settings, kernel.image) != key:
                raise InfraError("it has another QEMU, or another kdelta")
            with (
                trials.slot(trial),
                tempfile.TemporaryDirectory(prefix="kdelta-checkpoint-") as scratch,
            ):
                packed = Path(scratch) / "packed"
                checkpoints.pack(checkpoints.made(bench, settings, kernel, _never), packed)
                if packed.stat().st_size > MOST_INPUT:
                    raise InfraError("its checkpoint is too large to be sent")
                return packed.read_bytes()
    except GuestFault:
        return b""
    except (KdeltaError, OSError) as error:  # one kind of error that the controller can read
        raise InfraError(bounded(str(error))) from None


def name() -> str:
    """Who this worker is, for people."""
    return f"{platform.node()[:60]}:{os.getpid()}"


def _fault(why: str) -> Reply:
    return Reply(worker=name(), fault=bounded(why), format=FORMAT)


def _counted(order: TrialOrder, folder: Path) -> Reply:
    programs = {key: _input(digest) for key, digest in order.programs.items()}
    with build.given(programs), _loaded(order) as trial:
        trials = _trials(order)
        how = How(fresh_boot=order.fresh_boot, other_seed=order.other_seed)
        address = trials.address(trial, how)
        if order.checkpoint:
            checkpoints.arrive(order.checkpoint, _input(order.checkpoint.packed))
        with trials.slot(trial):
            result: TrialResult = trials.measure(trial, folder, how)
        files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    return Reply(worker=name(), address=address, result=result, files=files)


def _trials(order: TrialOrder) -> ExactTrials:
    target = order.settings.target
    qemu.obtained(target, order.qemu)
    kernel = order.kernel.at(_input(order.kernel.image_sha256))
    bench = Bench(
        emulator=qemu.for_counting(target, order.qemu),
        settings=order.settings,
        fresh_boot=order.bench_fresh_boot,
        timeout_s=order.timeout_s,
        cancelled=_never,
        again=order.again,
        probes=order.probes,
    )
    return ExactTrials(bench, [kernel], [order.settings])


@contextmanager
def _loaded(order: TrialOrder) -> Iterator[TrialRecord]:
    """The trial as it is here: of the one kernel, and of the file that was sent."""
    trial = msgspec.structs.replace(order.trial, arm=0, attempts=0, result=None)
    sent = order.file
    if sent is None:
        yield trial
        return
    if Path(sent.name).name != sent.name or not sent.name.endswith(".c"):
        raise SpecError("a C file has another name than files have")
    with tempfile.TemporaryDirectory(prefix="kdelta-file-") as scratch:
        file = Path(scratch) / sent.name
        shutil.copyfile(_input(sent.source), file)
        if sent.toml:
            shutil.copyfile(_input(sent.toml), file.with_suffix(".toml"))
        yield msgspec.structs.replace(trial, workload=str(file))


def _input(digest: str) -> Path:
    found = cache.found("inputs", _key(digest))
    if found is None:
        raise InfraError(f"the input {digest[:16]} is not here any more", action="send it again")
    return found / INPUT


def _key(digest: str) -> str:
    if len(digest) != 64 or set(digest) - set("0123456789abcdef"):
        raise InfraError("an input's name is no SHA-256")
    return digest
