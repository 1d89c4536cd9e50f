# SPDX-License-Identifier: GPL-2.0-or-later
"""Facts that differ by architecture, in one table."""

from __future__ import annotations

import platform
from dataclasses import dataclass

from kdelta.errors import SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class Arch:
    """One architecture that a guest can have.

    firmware: whether QEMU needs a directory of PC firmware to boot a kernel directly.
    """

    debian: str  # "amd64": the name used in studies, kernels and results
    uname: str  # uname -m
    gnu: str  # prefix of its tool chain
    qemu: str  # its QEMU program
    qemu_package: str  # the Debian package that has it
    machine: str  # QEMU machine type
    console: str  # kernel console on that machine's serial port
    firmware: bool


ARCHES = {
    arch.debian: arch
    for arch in (
        Arch(
            debian="amd64",
            uname="x86_64",
            gnu="x86_64-linux-gnu",
            qemu="qemu-system-x86_64",
            qemu_package="qemu-system-x86",
            machine="q35",
            console="ttyS0",
            firmware=True,
        ),
        Arch(
            debian="arm64",
            uname="aarch64",
            gnu="aarch64-linux-gnu",
            qemu="qemu-system-aarch64",
            qemu_package="qemu-system-arm",
            machine="virt",
            console="ttyAMA0",
            firmware=False,
        ),
        Arch(
            debian="riscv64",
            uname="riscv64",
            gnu="riscv64-linux-gnu",
            qemu="qemu-system-riscv64",
            qemu_package="qemu-system-misc",
            machine="virt",
            console="ttyS0",
            firmware=True,
        ),
    )
}


def of(debian: str) -> Arch:
    """The architecture of that Debian name.  Raises SpecError that lists the known ones."""
    try:
        return ARCHES[debian]
    except KeyError:
        known = ", ".join(ARCHES)
        raise SpecError(f"unknown architecture {debian!r}", action=f"known: {known}") from None


def compiler(arch: Arch) -> str:
    """The C compiler that makes guest programs: the native one, or Debian's cross compiler."""
    return "gcc" if platform.machine() == arch.uname else f"{arch.gnu}-gcc"


def compiler_package(arch: Arch) -> str:
    """The Debian packages that bring `compiler` and its static C library."""
    if platform.machine() == arch.uname:
        return "gcc libc6-dev"
    return f"gcc-{arch.gnu.replace('_', '-')} libc6-dev-{arch.debian}-cross"
