# SPDX-License-Identifier: GPL-2.0-or-later
"""What this user has counted: results of trials by the content of all that they depend on.

<cache>/results/ab/abcd...: one file each, its SHA-256 before it.  Only what a kernel did is kept,
never a fault; a run has its own copy, so that nothing is lost when one goes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache as remember
from pathlib import Path

import msgspec
from msgspec.structs import replace

from kdelta import cache, data, files
from kdelta.kernels.kernel import Kernel
from kdelta.kinds import KINDS
from kdelta.sample import Outcome, SkipKind, TrialResult

_KIND = "results"
_FORMAT = 1
_FOLDERS = 256
_MOST_BYTES = 64 << 20
_WRITTEN_S = 600.0  # longer than a file takes to be written
# Every module that can change what is kept: all that run/counting.py imports, and what that
# imports, but for BROUGHT (tests/test_store.py holds both against the imports).
DECISIVE = (
    "arch.py", "attribution", "elf.py", "errors.py", "files.py", "guest.py",
    *(f"guests/{name}.py" for name in (
        "__init__", "checkpoint", "orders", "qemu", "session",
    )),
    *(f"disassembly/{name}.py" for name in ("__init__", "btf", "kallsyms")),
    *(f"journal/{name}.py" for name in ("__init__", "artifacts")),
    *(f"kernels/{name}.py" for name in ("__init__", "kernel", "modules")),
    *("machine", "metric.py", "output.py", "printable.py", "process.py", "procfs.py"),
    *(f"run/{name}.py" for name in (
        "__init__", "counting", "exact", "guest_trial", "selftest", "store", "trial",
    )),
    *("probes", "probes/system_calls.txt"),
    *("sample.py", "source/__init__.py", "source/kconfig.py"),
    *("verdict/__init__.py", "verdict/windows.py"),
    *("study/__init__.py", "study/probes.py", "workload.py"),
)  # fmt: skip
# What only brings bytes and folders.  The bytes are in the address (image, QEMU's package, patch
# and firmware, plugin, PID 1, program, TOML, the version that modules come from), or are verified;
# the options of a kernel's configuration are recorded anew.
BROUGHT = (
    "archive", "build.py", "cache.py", "data.py", "journal/files.py", "journal/results.py",
    "export.py", "guests/patches.py", "kernels/debian.py", "kernels/image.py",
    "kernels/reference.py", "locks.py", "options.py", "source", "toolchains.py",
)  # fmt: skip


class _Kept(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of the file at `key`.  artifacts: by their names in the trial's folder."""

    key: str
    counted: str
    result: TrialResult
    artifacts: dict[str, bytes]


def address(parts: Sequence[bytes | str]) -> str:
    """The address of a trial's result: what it depends on, and the code that makes it of counts."""
    return cache.digest(str(_FORMAT), _own_code(), *parts)


def found(key: str, kernel: Kernel, folder: Path) -> TrialResult | None:
    """The result at an address as one of this kernel, its artifacts put into the trial's folder;
    None when none is whole.  Raises OSError when the folder cannot be written.
    """
    place = _place(key)
    kept = files.kept(place, _MOST_BYTES, _Kept) if _limit() else None
    if kept is None or kept.key != key:
        return None
    cache.mark_used(place)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in kept.artifacts.items():
        (folder / name).write_bytes(content)
    read = kept.result.kernel
    own = kernel.identity()
    return replace(
        kept.result,
        kernel=replace(own, build_id=read.build_id, compiler=read.compiler) if read else own,
        stored=kept.counted,
        wall_s=0.0,
        artifacts={
            label: f"{folder.parent.name}/{folder.name}/{Path(path).name}"
            for label, path in kept.result.artifacts.items()
        },
    )


def keep(key: str, result: TrialResult, folder: Path) -> None:
    """Keep a trial's result and artifacts, when it is lasting and the cache can be written."""
    unsupported = result.skip is not None and result.skip.kind is SkipKind.UNSUPPORTED
    if not (result.outcome is Outcome.OK or unsupported) or not _limit():
        return  # only counts last, and what a kernel does not have
    names = [Path(path).name for path in result.artifacts.values()]
    place = _place(key)
    with contextlib.suppress(OSError):
        kept = _Kept(
            key=key,
            counted=datetime.now(UTC).isoformat(timespec="seconds"),
            result=result,
            artifacts={name: (folder / name).read_bytes() for name in names},
        )
        place.parent.mkdir(parents=True, exist_ok=True)
        files.keep(place, msgspec.json.encode(kept))
        _make_room(place)


def _place(key: str) -> Path:
    return cache.root() / _KIND / key[:2] / key


def _make_room(place: Path) -> None:
    """Remove the longest unused beside a file, and what killed processes had not put in place."""
    total, now, beside = 0, time.time(), []
    for path in place.parent.iterdir():
        with contextlib.suppress(FileNotFoundError):  # removed by another process
            facts = path.stat()
            beside.append((facts.st_mtime, facts.st_size, path))
    for used, size, path in sorted(beside, reverse=True):
        total += size
        left = path.name.startswith(".") and now - used > _WRITTEN_S
        if left or total > _limit() // _FOLDERS:
            path.unlink(missing_ok=True)


def _limit() -> int:
    """Most bytes that all results may take; 0: none is kept and none is used."""
    return KINDS[_KIND].limit_bytes or 0


@remember
def _own_code() -> str:
    return cache.digest(*(path.read_bytes() for path in data.code(DECISIVE)))
