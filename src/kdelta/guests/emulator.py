# SPDX-License-Identifier: GPL-2.0-or-later
"""A QEMU: where it lies, how it is started, and what it is; the one place that examines one."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache as remember
from pathlib import Path

from kdelta import cache, elf, process
from kdelta.arch import Arch
from kdelta.errors import InfraError
from kdelta.files import read_once

_TIMEOUT_S = 20.0
_VERSION = re.compile(r"QEMU emulator version (\d+)\.(\d+)\.(\d+)")
_PLUGINS = "qemu_plugin_register_vcpu_tb_trans_cb"  # exported where plugins are built in


@dataclass(frozen=True, slots=True, kw_only=True)
class Qemu:
    """A QEMU program for one guest architecture, as `examine` saw it.

    environment, arguments: what it needs to start.  package: the Debian version of an unpacked
    one.  banner: first line of --version, with the distribution's build; version: "10.0.2".
    plugins: it takes any.  fault: why it does not start, "" when it does; then banner and version
    are empty.
    """

    program: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    guest: str = ""
    package: str = ""
    banner: str = ""
    version: str = ""
    plugins: bool = False
    fault: str = ""

    @property
    def release(self) -> tuple[int, int]:
        """(major, minor)."""
        major, minor, *_ = self.version.split(".")
        return int(major), int(minor)

    def is_version(self, wanted: str) -> bool:
        """True when "10.0", "10.0.2" or a package's whole version means this one."""
        return means(wanted, self.version) or means(wanted, self.package)


def means(wanted: str, version: str) -> bool:
    """True when a version, or its beginning, is the wanted one: "10.0" of "1:10.0.2+ds-2"."""
    number = version.rpartition(":")[2]
    return wanted in (version, number) or number.startswith((f"{wanted}.", f"{wanted}+"))


def examine(place: Qemu) -> Qemu:
    """The QEMU, with what starting it showed; never raises when it does not start."""
    try:
        modified = place.program.stat().st_mtime_ns
    except OSError as error:
        return replace(place, fault=f"cannot be read: {error.strerror}")
    banner, fault = _banner(place.program, tuple(place.environment.items()), modified)
    match = _VERSION.match(banner)
    if fault or not match:
        return replace(place, fault=fault or f"not a QEMU: it says {banner[:80]!r}")
    return replace(
        place,
        banner=banner,
        version=".".join(match.groups()),
        plugins=_has_plugins(place.program, modified),
    )


@remember
def _banner(
    program: Path, environment: tuple[tuple[str, str], ...], _modified: int
) -> tuple[str, str]:
    """First line of --version, and why there is none."""
    argv = [str(program), "--version"]
    try:
        done = process.run(argv, timeout=_TIMEOUT_S, env=dict(environment) or None)
    except InfraError as error:
        return "", error.cause
    return done.stdout.partition("\n")[0].strip(), ""


@remember
def _has_plugins(program: Path, _modified: int) -> bool:
    """False for a program that was built without plugins; a script is assumed to have them."""
    with program.open("rb") as stream, contextlib.suppress(elf.BadElf), elf.opened(stream) as file:
        # Only its names are read: parsing the hash table of so many symbols slows every command.
        names = file.get_section_by_name(".dynstr")
        return names is not None and b"\0%b\0" % _PLUGINS.encode() in names.data()
    return True


def firmware_digest(qemu: Qemu, target: Arch) -> str:
    """SHA-256 over the files that this QEMU loads into guests of an architecture.

    They lie in the folders that -L names, else in those beside its program.
    """
    told = [Path(word) for word in qemu.arguments if not word.startswith("-")]
    beside = qemu.program.resolve().parent.parent / "share"
    folders = [*told, beside / "qemu", beside / "seabios"]
    parts = []
    for name in target.firmware:
        files = (folder / name for folder in folders)
        content = next((read_once(file) for file in files if file.is_file()), b"none")
        parts += [name.encode(), content]
    return cache.digest(*parts)
