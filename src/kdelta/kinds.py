# SPDX-License-Identifier: GPL-2.0-or-later
"""What the cache holds: its kinds, in one table, and how much of each."""

from __future__ import annotations

import os
from dataclasses import dataclass

from kdelta.errors import SpecError


@dataclass(frozen=True, slots=True)
class CacheKind:
    """One kind of thing that the cache holds.

    limit_mib: beyond it the longest unused ones go; the environment variable `variable` sets
    another one.  read: which files of an entry are read and compared with their SHA-256 when a
    process first uses it; of the others the size is.
    """

    name: str  # of its folder
    holds: str
    key: str  # what one of them is found by
    again: str  # how one that is gone comes back
    limit_mib: int | None = None
    read: tuple[str, ...] = ("*",)

    @property
    def variable(self) -> str:
        """The environment variable that sets the limit; "" without one."""
        return f"KDELTA_{self.name.upper()}_MIB" if self.limit_mib is not None else ""

    @property
    def limit_bytes(self) -> int | None:
        """Most that all of them may take on disk.  Raises SpecError for a bad setting."""
        text = os.environ.get(self.variable, str(self.limit_mib)) if self.variable else None
        if text is not None and not text.isdecimal():
            raise SpecError(f"not a number of MiB: {text!r}", place=self.variable)
        return None if text is None else int(text) << 20

    @property
    def limit(self) -> str:
        """How it is bounded, in words."""
        if self.limit_mib is None:
            return "none"
        return f"{self.limit_mib} MiB, `{self.variable}`; the longest unused go first"


_FETCHED, _COMPILED = "fetched from the archive", "compiled on this machine"
_ALL = (
    CacheKind("apt", "private apt roots: package lists, downloads under way", "architecture",
              "fetched from the mirror"),
    CacheKind("images", "kernel images and their configurations", "SHA-256 of their package",
              _FETCHED),
    CacheKind("modules", "kernel modules in loading order (zram)", "SHA-256 of their package",
              _FETCHED),
    CacheKind("emulators", "QEMU versions of the archive, unpacked",
              "package version, guest, patches", _FETCHED, read=()),
    CacheKind("toolchains", "compilers of the archive, unpacked", "package version",
              _FETCHED, read=()),
    CacheKind("build", "plugin, PID 1, workload programs", "sources, flags, compiler", _COMPILED),
    CacheKind("initramfs", "PID 1 in an archive", "its content", _COMPILED),
    CacheKind("checkpoints", "booted guests to restore trials from, about 110 MB each",
              "image, initramfs, machine, QEMU build", "booted",
              limit_mib=4096, read=("meta.json", "state")),
    CacheKind("symbols", "functions of kernels by address", "SHA-256 of the image",
              "read from a booted guest"),
    CacheKind("events", "where kernels enter interrupts, exceptions and other tasks",
              "SHA-256 of the image, architecture", "found in the symbols"),
    CacheKind("selftests", "QEMUs that counted known programs right",
              "QEMU build, CPU model, plugin, program", "tested again"),
    CacheKind("results", "what was counted: results of trials, in 256 folders",
              "all that a trial depends on", "counted again", limit_mib=1024),
    CacheKind("inputs", "images and programs that a controller sent to a worker here",
              "SHA-256 of their content", "sent again", limit_mib=2048),
    CacheKind("vmlinux", "kernels unpacked from their images, for their code", "image",
              "unpacked", limit_mib=1024),
    CacheKind("options", "where functions of a kernel have the code of options",
              "image, patterns", "read from the image", limit_mib=64),
    CacheKind("sources", "source trees of kernels, as git objects", "git tree id",
              "fetched from the archive, or read again"),
    CacheKind("trees", "checked-out sources with warm build directories, about 2 GB each",
              "line of trees", "checked out and built", limit_mib=20480),
    CacheKind("builds", "kernels built from source", "tree, configuration, compiler",
              "built", limit_mib=8192),
    CacheKind("transplants", "images of releases with the functions that a patch changes",
              "image, source, patched source, compiler", "compiled",
              limit_mib=2048),
    CacheKind("build-logs", "what make said of sources that do not build", "as builds", "built"),
    CacheKind("ccache", "compilers' results, of ccache, which keeps its limit of 4 GiB itself",
              "ccache's", "built"),
)  # fmt: skip
KINDS = {kind.name: kind for kind in _ALL}
