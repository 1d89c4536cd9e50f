# SPDX-License-Identifier: GPL-2.0-or-later
"""What runs on a worker, and the two messages: an order to count one trial, and the reply.

Both are bytes of JSON, read strictly; kdelta unpickles nothing of a reply.  A result is the record
of a journal, and its files are bytes.  A worker counts with its own cache.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import platform
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from kdelta import build, cache
from kdelta.errors import Cancelled, GuestFault, InfraError, KdeltaError, SpecError
from kdelta.files import decoded
from kdelta.guests import qemu
from kdelta.journal.files import disk_errors
from kdelta.journal.results import trial_folder
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import MachineSettings
from kdelta.printable import printable
from kdelta.run.exact import ExactTrials
from kdelta.run.guest_trial import Bench
from kdelta.run.runner import How
from kdelta.run.trial import bounded
from kdelta.sample import KernelIdentity, TrialRecord, TrialResult
from kdelta.workers import checkpoints
from kdelta.workers.checkpoints import SentCheckpoint

FORMAT = 4
_MOST_REPLY = 512 << 20
_MOST_FILES = 32
_KEPT = re.compile(r"result\.json|console-[0-9]+\.log")  # the journal's, and of tries before
_FILE = re.compile(r"[a-z][a-z0-9]*(-[0-9]+)?(\.[a-z0-9]+){1,3}")
_INPUT = "program"  # the one file of an input, whatever it is
_never = threading.Event()  # a worker is ended with its process
_T = TypeVar("_T")


class TrialOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One trial to be counted.

    kernel: its fields without the files.  qemu: package version or version.  programs: by the key
    of kdelta.build, their SHA-256.  fresh_boot, other_seed: how this attempt differs from what was
    planned (run.runner.How).  files: of a user's own workload, by name their SHA-256.
    """

    format: int = FORMAT
    trial: TrialRecord
    kernel: dict[str, str]
    settings: MachineSettings
    qemu: str
    bench_fresh_boot: bool
    timeout_s: float
    again: bool
    probes: tuple[str, ...]
    fresh_boot: bool
    other_seed: bool
    programs: dict[str, str]
    files: dict[str, str] = {}
    checkpoint: SentCheckpoint | None = None

    @property
    def inputs(self) -> set[str]:
        """SHA-256 of all that the worker must have."""
        own = {self.kernel["image_sha256"], *self.programs.values(), *self.files.values()}
        return own | {self.checkpoint.packed} if self.checkpoint else own


class Reply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a worker answers: the address that it found itself, why there is no result (fault), and
    files of the trial's folder by name.
    """

    format: int = FORMAT
    worker: str
    address: str = ""
    fault: str = ""
    result: TrialResult | None = None
    files: dict[str, bytes] = {}


def fields_of(kernel: Kernel) -> dict[str, str]:
    """A kernel as an order has it."""
    found = ((each.name, getattr(kernel, each.name)) for each in dataclasses.fields(kernel))
    return {name: value for name, value in found if isinstance(value, str)}


# ---- on the worker ---------------------------------------------------------------------------


def counted(message: bytes, digests: Sequence[str], *contents: bytes) -> bytes:
    """The reply to an order.  digests, contents: SHA-256 of what it needs, and the bytes."""
    scratch = Path(tempfile.mkdtemp(prefix="kdelta-worker-"))
    try:
        order = _order(message)
        for digest, content in zip(digests, contents, strict=True):
            _keep(digest, content)
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


def _order(message: bytes) -> TrialOrder:
    order = _read(message, TrialOrder, "order")
    if order.format != FORMAT:
        raise _foreign("order", f"its format is {order.format}, here {FORMAT}")
    return order


def _read(message: bytes, kind: type[_T], what: str) -> _T:
    try:
        return decoded(message, kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _foreign(what, str(error)) from error


def _keep(digest: str, content: bytes) -> None:
    if not checkpoints.KEY.fullmatch(digest):
        raise InfraError("an input's name is no SHA-256")

    def make(folder: Path) -> None:
        if hashlib.sha256(content).hexdigest() != digest:
            raise InfraError(f"an input arrived with another content than {digest[:16]}")
        (folder / _INPUT).write_bytes(content)

    cache.entry("inputs", digest, make)


def _input(digest: str) -> Path:
    found = cache.found("inputs", digest)
    if found is None:
        raise InfraError(f"the input {digest[:16]} was not sent, or is not here any more")
    return found / _INPUT


def _fault(why: str) -> Reply:
    return Reply(worker=_name(), fault=bounded(why))


def _name() -> str:
    return f"{platform.node()[:60]}:{os.getpid()}"


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
    return Reply(worker=_name(), address=address, result=result, files=files)


def _trials(order: TrialOrder) -> ExactTrials:
    target = order.settings.target
    qemu.obtained(target, order.qemu)
    image = _input(order.kernel["image_sha256"])
    try:
        kernel = Kernel(**order.kernel, image=image, config=None)
    except TypeError as error:
        raise _foreign("order", str(error)) from error
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
    trial = replace(order.trial, arm=0, attempts=0, result=None)
    if not order.files:
        yield trial
        return
    sources = [name for name in order.files if name.endswith(".c")]
    if len(sources) != 1 or any(Path(name).name != name for name in order.files):
        raise SpecError("a C file has another name than files have")
    with tempfile.TemporaryDirectory(prefix="kdelta-file-") as scratch:
        for name, digest in order.files.items():
            shutil.copyfile(_input(digest), Path(scratch) / name)
        yield replace(trial, workload=f"{scratch}/{sources[0]}")


# ---- at who asked ----------------------------------------------------------------------------


def reply_of(message: bytes, index: int) -> Reply:
    """The reply in a worker's answer to the order for a trial.  Raises InfraError."""
    if len(message) > _MOST_REPLY:
        raise _foreign("result", f"it has {len(message)} bytes")
    reply = _read(message, Reply, "result")
    strange = [name for name in reply.files if not _FILE.fullmatch(name) or name == "result.json"]
    named = [Path(path).name for path in reply.result.artifacts.values()] if reply.result else []
    expected = [f"trials/{index:04d}/{name}" for name in named]
    if strange or len(reply.files) > _MOST_FILES or reply.format != FORMAT:
        raise _foreign("result", "its files are none of a trial")
    if reply.result and (
        list(reply.result.artifacts.values()) != expected or not set(named) <= set(reply.files)
    ):
        raise _foreign("result", "its artifacts are none of its files")
    return reply


def unpacked(reply: Reply, folder: Path, identity: KernelIdentity) -> TrialResult:
    """The result of a reply, its files put into folder; of the kernel (identity) only what the
    guest said is the worker's.  Raises InfraError without a result, StoreError.
    """
    if reply.result is None:
        raise InfraError(bounded(f"{printable(reply.worker, 80)}: {printable(reply.fault, 300)}"))
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.iterdir():  # of an attempt whose controller was killed
            if left.name not in reply.files and not _KEPT.fullmatch(left.name):
                left.unlink()
        for name, content in reply.files.items():
            (folder / name).write_bytes(content)
    read = reply.result.kernel
    own = replace(identity, build_id=read.build_id, compiler=read.compiler) if read else identity
    return replace(reply.result, kernel=own)


def essence(result: TrialResult) -> bytes:
    """What must be equal in two results of one trial: all but when and where it was counted."""
    bare = replace(result, kernel=None, stored="", wall_s=0.0, artifacts={}, tries=(), facts=None)
    return hashlib.sha256(msgspec.json.encode(bare)).digest()


def _foreign(what: str, why: str) -> InfraError:
    cause = f"a worker's {what} is none: {printable(why, 200)}"
    return InfraError(cause, action="are controller and workers one version of kdelta?")
