# SPDX-License-Identifier: GPL-2.0-or-later
"""What the cache holds: its kinds, in one table, and how much of each."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from kdelta.errors import SpecError


@dataclass(frozen=True, slots=True)
class CacheKind:
    """One kind of thing that the cache holds.

    limit_mib: beyond it the longest unused ones go; the environment variable `variable` sets
    another one.  read: which files of an entry are read and compared with their SHA-256 when a
    process first uses it; of the others the size is.  in_place: they change in a workplace alone.
    """

    name: str  # of its folder
    holds: str
    again: str  # how one that is gone comes back
    limit_mib: int | None = None
    read: tuple[str, ...] = ("*",)
    in_place: bool = False

    @property
    def variable(self) -> str:
        """The environment variable that sets the limit; "" without one."""
        return f"KDELTA_{self.name.upper()}_MIB" if self.limit_mib is not None else ""

    @property
    def limit_bytes(self) -> int | None:
        """Most that all of them may take on disk.  Raises SpecError for a bad setting."""
        text = os.environ.get(self.variable, str(self.limit_mib)) if self.variable else None
        if text is not None and not re.fullmatch(r"[0-9]{1,9}", text):
            raise SpecError(f"not a number of MiB: {text[:80]!r}", place=self.variable)
        return None if text is None else int(text) << 20


_FETCHED, _COMPILED = "fetched from the archive", "compiled on this machine"
_ALL = (
    CacheKind("apt", "private apt roots: package lists, downloads under way",
              "fetched from the mirror"),
    CacheKind("images", "kernel images and their configurations", _FETCHED),
    CacheKind("modules", "kernel modules in loading order (zram)", _FETCHED),
    CacheKind("emulators", "QEMU versions of the archive, unpacked", _FETCHED, read=()),
    CacheKind("toolchains", "compilers of the archive, unpacked", _FETCHED, read=()),
    CacheKind("build", "plugin, PID 1, workload programs", _COMPILED),
    CacheKind("initramfs", "PID 1 in an archive", _COMPILED),
    CacheKind("checkpoints", "booted guests to restore trials from, about 110 MB each",
              "booted", limit_mib=4096, read=("meta.json", "state")),
    CacheKind("symbols", "functions of kernels by address", "read from a booted guest"),
    CacheKind("events", "where kernels enter interrupts, exceptions and other tasks",
              "found in the symbols"),
    CacheKind("selftests", "QEMUs that counted known programs right", "tested again"),
    CacheKind("results", "what was counted: results of trials, in 256 folders",
              "counted again", limit_mib=1024),
    CacheKind("programs", "programs that `kdelta run --` took, with their libraries",
              "taken again by the same command"),
    CacheKind("inputs", "images and programs that a controller sent to a worker here",
              "sent again", limit_mib=2048),
    CacheKind("vmlinux", "kernels unpacked from their images, for their code",
              "unpacked", limit_mib=1024),
    CacheKind("options", "where functions of a kernel have the code of options",
              "read from the image", limit_mib=64),
    CacheKind("sources", "source trees of kernels, as git objects",
              "fetched from the archive, or read again"),
    CacheKind("trees", "checked-out sources with warm build directories, about 2 GB each",
              "checked out and built", limit_mib=20480, in_place=True),
    CacheKind("builds", "kernels built from source", "built", limit_mib=8192),
    CacheKind("transplants", "images of releases with the functions that a patch changes",
              "compiled", limit_mib=2048),
    CacheKind("build-logs", "what make said of sources that do not build", "built"),
    CacheKind("ccache", "compilers' results, of ccache, which keeps its limit of 4 GiB itself",
              "built"),
)  # fmt: skip
KINDS = {kind.name: kind for kind in _ALL}
