# SPDX-License-Identifier: GPL-2.0-or-later
"""Callgrind of any architecture: this host's, or the archive's of another one, a static program
that runs under QEMU's user emulation.  It decodes and counts with nothing of ours, nor of QEMU's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from debian.debian_support import Version

from kdelta import arch, cache, guest, process
from kdelta.archive import deb
from kdelta.archive.apt import Archive
from kdelta.archive.index import Package
from kdelta.errors import InfraError

_STATIC = 20 << 20  # bytes; of other versions the package is empty, its programs are elsewhere
_USER = {"arm64": "qemu-aarch64-static", "riscv64": "qemu-riscv64-static"}
_TOOLS = "usr/libexec/valgrind"
_RUN_S = 300.0


def run(
    source: Path, target: arch.Arch, arguments: Sequence[object], written: Path, *options: str
) -> tuple[str, str]:
    """What a program printed, and what Callgrind wrote of it.

    Skips the test where Callgrind of the architecture cannot be had.
    """
    told = ["--tool=callgrind", *options, f"--callgrind-out-file={written}"]
    words = [*told, str(guest.program(source, target)), *map(str, arguments)]
    if target == arch.native():
        done = process.run(["valgrind", *words], timeout=_RUN_S)
    else:
        folder = _tools(target)
        tool = folder / _TOOLS / f"callgrind-{target.debian}-linux"
        argv = [str(folder / _USER[target.debian]), str(tool), *words]
        env = {"VALGRIND_LIB": str(folder / _TOOLS), "VALGRIND_LAUNCHER": str(tool)}
        done = process.run(argv, timeout=_RUN_S, env=env)
    return done.stdout, written.read_text()


def _tools(target: arch.Arch) -> Path:
    """Where QEMU's user emulation and Valgrind of an architecture lie, fetched when not here."""
    try:
        user = _newest(arch.native().debian, "qemu-user-static", _STATIC)
        valgrind = _newest(target.debian, "valgrind")

        def make(folder: Path) -> None:
            name = _USER[target.debian]
            with Archive(arch.native().debian).fetched(user) as file:
                deb.extract(file, {f"usr/bin/{name}": folder / name})
            (folder / name).chmod(0o755)
            with Archive(target.debian).fetched(valgrind) as file:
                deb.unpack(file, folder)

        key = cache.digest("callgrind", target.debian, user.version, valgrind.version)
        return cache.entry("build", key, make)
    except InfraError as error:
        pytest.skip(f"Callgrind of {target.debian} cannot be had here: {error}")


def _newest(architecture: str, name: str, least: int = 0) -> Package:
    archive = Archive(architecture)
    archive.refresh()
    found: Sequence[Package] = archive.packages(f"oracle-{name}", name)
    fitting = [package for package in found if package.size >= least]
    if not fitting:
        raise InfraError(f"the archive has no {name} for {architecture} that is static")
    return max(fitting, key=lambda package: Version(package.version))
