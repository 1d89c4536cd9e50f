# SPDX-License-Identifier: GPL-2.0-or-later
"""What goes to a worker and what comes back: bytes of JSON, read strictly on both sides.

kdelta unpickles nothing of it: a result is the record of a journal, and its files are bytes.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import msgspec
from msgspec.structs import replace

from kdelta.errors import InfraError
from kdelta.files import decoded
from kdelta.journal.files import disk_errors
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import MachineSettings
from kdelta.printable import printable
from kdelta.run.trial import bounded
from kdelta.sample import KernelIdentity, TrialRecord, TrialResult

FORMAT = 3
MOST_INPUT = 256 << 20  # bytes of an image or a program
_MOST_REPLY = 512 << 20
_MOST_FILES = 32
_KEPT = re.compile(r"result\.json|console-[0-9]+\.log")  # the journal's, and of tries before
_FILE = re.compile(r"[a-z][a-z0-9]*(-[0-9]+)?(\.[a-z0-9]+){1,3}")


class SentKernel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kernel without its files; its image is found by its SHA-256."""

    reference: str
    release: str
    version: str
    arch: str
    flavour: str
    image_sha256: str
    build_id: str
    suite: str
    package: str
    name: str
    source: str
    compiler: str

    def at(self, image: Path) -> Kernel:
        """The kernel whose image is there.  Which options it was built with its sender knows."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return Kernel(**fields, image=image, config=None, config_sha256="")


class SentFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A user's C file: its name, and the SHA-256 of it and of the TOML beside it, "" without."""

    name: str
    source: str
    toml: str


class SentCheckpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A checkpoint that is sent (workers.checkpoints): its key in the cache, the SHA-256 of what is
    sent, and the digest of what its files hold.
    """

    key: str
    packed: str
    listed: str


class TrialOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One trial to be counted.

    qemu: package version or version.  programs: by the key of kdelta.build, their SHA-256.
    fresh_boot, other_seed: how this attempt differs from what was planned (trials.How).
    """

    format: int = FORMAT
    trial: TrialRecord
    kernel: SentKernel
    settings: MachineSettings
    qemu: str
    bench_fresh_boot: bool
    timeout_s: float
    again: bool
    probes: tuple[str, ...]
    fresh_boot: bool
    other_seed: bool
    programs: dict[str, str]
    file: SentFile | None = None
    checkpoint: SentCheckpoint | None = None

    @property
    def inputs(self) -> set[str]:
        """SHA-256 of all that the worker must have."""
        own = {self.kernel.image_sha256, *self.programs.values()}
        own |= {self.checkpoint.packed} if self.checkpoint else set()
        return own | ({self.file.source, self.file.toml} - {""} if self.file else set())


class Reply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a worker answers.

    address: of what it counted, as it found it itself.  fault: why there is no result, "" when
    there is one.  files: of the trial's folder, by name.
    """

    format: int = FORMAT
    worker: str
    address: str = ""
    fault: str = ""
    result: TrialResult | None = None
    files: dict[str, bytes] = {}


def sent(kernel: Kernel) -> SentKernel:
    """A kernel as an order has it."""
    return SentKernel(**{name: getattr(kernel, name) for name in SentKernel.__struct_fields__})


def order_of(message: bytes) -> TrialOrder:
    """The order in a message.  Raises InfraError."""
    try:
        order = decoded(message, TrialOrder)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _foreign("order", str(error)) from error
    if order.format != FORMAT:
        raise _foreign("order", f"its format is {order.format}, here {FORMAT}")
    return order


def reply_of(message: bytes, index: int) -> Reply:
    """The reply in a worker's answer to the order for a trial.  Raises InfraError."""
    if len(message) > _MOST_REPLY:
        raise _foreign("result", f"it has {len(message)} bytes")
    try:
        reply = decoded(message, Reply)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _foreign("result", str(error)) from error
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
    """The result of a reply, its files put into the trial's folder.

    identity: of the kernel as this machine knows it; only what the guest said of it is the
    worker's.  Raises InfraError for a reply without a result, StoreError.
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
    return InfraError(
        f"a worker's {what} is none: {printable(why, 200)}",
        action="are controller and workers one version of kdelta?",
    )
