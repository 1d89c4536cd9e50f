# SPDX-License-Identifier: GPL-2.0-or-later
"""What runs on a worker, and the two messages: an order to count one trial, and the reply.

Both are bytes of JSON, read strictly; kdelta unpickles nothing of a reply.  A result is the record
of a journal, and its files are bytes.  A worker counts with its own cache.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
import os
import platform
import re
import shutil
import tarfile
import tempfile
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from kdelta import build, cache, workload
from kdelta.errors import Cancelled, GuestFault, InfraError, KdeltaError, SpecError
from kdelta.files import decoded, digest_of, listed
from kdelta.guests import checkpoint, qemu
from kdelta.host import leases
from kdelta.journal.files import disk_errors
from kdelta.journal.results import trial_folder
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import MachineSettings, with_needs
from kdelta.printable import printable
from kdelta.run.exact import ExactTrials
from kdelta.run.guest_trial import Bench
from kdelta.run.runner import How
from kdelta.run.trial import bounded
from kdelta.sample import KernelIdentity, TrialRecord, TrialResult
from kdelta.study import probes

log = logging.getLogger(__name__)
KEY = re.compile(r"[0-9a-f]{64}")
MOST_INPUT = 256 << 20  # bytes of a packed checkpoint
_KIND, _BROUGHT = "checkpoints", "brought"
_NAMES = frozenset({"meta.json", "ram", "state", "console.log"})
_MOST_FILE = 1 << 40
_ZEROS = bytes(1 << 16)
_DAMAGED = (
    *(tarfile.TarError, gzip.BadGzipFile, zlib.error),
    *(EOFError, ValueError, FileExistsError),
)


class SentCheckpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A checkpoint that is sent: its key, the SHA-256 of what is sent, the digest of its files."""

    key: str
    packed: str
    listed: str


class SharedCheckpoints:
    """The checkpoints that a run's workers get; this machine makes and keeps each of them."""

    def __init__(self, scratch: Path, cancelled: threading.Event) -> None:
        """scratch: a folder for what is sent."""
        self._scratch, self._cancelled = scratch, cancelled
        self._known: dict[str, tuple[SentCheckpoint, Path] | None] = {}
        self._mutex, self._locks = threading.Lock(), dict[str, threading.Lock]()

    def of(
        self, trial: TrialRecord, how: How, bench: Bench, own: MachineSettings, kernel: Kernel
    ) -> tuple[SentCheckpoint, Path] | None:
        """A trial's checkpoint and file; None where a guest boots itself, or does not boot."""
        scenario = workload.load(trial.workload).scenario(trial.scenario)
        settings = with_needs(own, scenario.needs)
        if bench.fresh_boot or how.fresh_boot or settings.swap == "disk":
            return None
        key = checkpoint.key(bench.emulator, settings, kernel.image, bench.seed.boot)
        with self._mutex:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._known:
                self._known[key] = self._packed(key, bench, settings, kernel)
            return self._known[key]

    def _packed(
        self, key: str, bench: Bench, settings: MachineSettings, kernel: Kernel
    ) -> tuple[SentCheckpoint, Path] | None:
        try:
            folder = self._found(key, bench, settings, kernel)
        except (GuestFault, InfraError) as error:
            log.warning("no checkpoint of %s goes to the workers: %s", kernel.release, error)
            return None
        file = self._scratch / key
        pack(folder, file)
        if file.stat().st_size > MOST_INPUT:
            file.unlink()
            return None
        return SentCheckpoint(key=key, packed=digest_of(file), listed=_content(folder)), file

    def _found(self, key: str, bench: Bench, settings: MachineSettings, kernel: Kernel) -> Path:
        if there := cache.found(_KIND, key):
            if cache.unchanged(there):
                return there
            cache.discard(there)
        guest = bench.emulator, settings, kernel.image, bench.seed.boot
        lent = checkpoint.lent(*guest, timeout=bench.timeout_s, cancelled=self._cancelled)
        with leases.lease_guest(settings, self._cancelled), lent as found:
            cache.keep(found.folder)
            return found.folder


def arrive(sent: SentCheckpoint, packed: Path) -> None:
    """Put a checkpoint that was sent where trials look for it.  Raises InfraError."""
    if not KEY.fullmatch(sent.key):
        raise InfraError("a checkpoint's name is no SHA-256")

    def make(place: Path) -> None:
        unpack(packed, place)
        (place / _BROUGHT).write_text(sent.packed)

    for _ in range(2):
        folder = cache.entry(_KIND, sent.key, make)
        # A file with holes is listed by what lies between them, and these may be others there.
        brought = folder / _BROUGHT
        own = brought.read_bytes() if brought.is_file() else b""
        if _content(folder) == sent.listed or own == sent.packed.encode():
            return
        cache.discard(folder)  # of another boot
    raise InfraError("a checkpoint that was sent is not the one that was announced")


def _content(folder: Path) -> str:
    rows = [row for row in listed(folder) if row.path in _NAMES]
    return cache.digest(*(f"{row.path} {row.size} {row.sha256}" for row in rows))


def pack(folder: Path, target: Path) -> None:
    """Write a checkpoint's files into one; its holes are zeros, which take no room there."""
    with tarfile.open(target, "w:gz", compresslevel=1) as packed:
        for path in sorted(folder.iterdir()):
            if path.name in _NAMES:
                packed.add(path, path.name)


def unpack(packed: Path, folder: Path) -> None:
    """The files of a packed checkpoint with their holes, into a folder.  Raises InfraError."""
    try:
        with tarfile.open(packed, "r:gz") as files:
            for member in files:
                content = files.extractfile(member) if member.isreg() else None
                if member.name not in _NAMES or content is None or member.size > _MOST_FILE:
                    raise ValueError("another file than a checkpoint has")
                with (folder / member.name).open("xb") as out:
                    while piece := content.read(len(_ZEROS)):
                        if _ZEROS.startswith(piece):
                            out.seek(len(piece), os.SEEK_CUR)
                        else:
                            out.write(piece)
                    out.truncate(member.size)
    except _DAMAGED as error:
        raise InfraError(f"a checkpoint that was sent is damaged: {error}") from error


FORMAT = 5
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
    of kdelta.build, their SHA-256.  how: this attempt differs from what was planned.  files: of a
    user's own workload, by name their SHA-256.
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
    how: How
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


# ---- on the worker ---------------------------------------------------------------------------


def counted(message: bytes, digests: Sequence[str], *contents: bytes) -> bytes:
    """The reply to an order.  digests, contents: SHA-256 of what it needs, and the bytes."""
    scratch = Path(tempfile.mkdtemp(prefix="kdelta-worker-"))
    try:
        order = _read(message, TrialOrder, "order")
        if order.format != FORMAT:
            raise _foreign("order", f"its format is {order.format}, here {FORMAT}")
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


def _read(message: bytes, kind: type[_T], what: str) -> _T:
    try:
        return decoded(message, kind)
    except (msgspec.MsgspecError, ValueError) as error:
        raise _foreign(what, str(error)) from error


def _keep(digest: str, content: bytes) -> None:
    if not KEY.fullmatch(digest):
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
        address = trials.address(trial, order.how)
        if order.checkpoint:
            arrive(order.checkpoint, _input(order.checkpoint.packed))
        with trials.slot(trial):
            result: TrialResult = trials.measure(trial, folder, order.how)
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
    emulator = qemu.for_counting(target, order.qemu)
    bench = Bench(
        emulator=qemu.in_turns(emulator) if probes.SHARING in order.probes else emulator,
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
