# SPDX-License-Identifier: GPL-2.0-or-later
"""Facts that differ by architecture, in one table."""

from __future__ import annotations

import platform
from dataclasses import dataclass

from kdelta.errors import SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class Arch:
    """One architecture that a guest can have.

    interrupts, exceptions: (symbol pattern, byte offset) of every place where the kernel is
    entered asynchronously and synchronously; traps: where either way, which a register tells apart;
    switches: where it goes to another task; new_tasks: where it wakes one for the first time.
    stubs: (symbol, first byte, first byte behind) of what holds nothing but what vectors execute on
    their way to one of `interrupts`.
    firmware: what QEMU loads into such a guest out of its data folders; firmware_package: Debian's
    package of what is not in QEMU's own.
    cloud: Debian has kernels of that flavour; where it has none its generic one is taken.
    kbuild: its ARCH=; image: the file below arch/ that kbuild is asked for.
    """

    debian: str  # "amd64": the name used in studies, kernels and results
    uname: str  # uname -m
    gnu: str  # prefix of its tool chain
    elf: str  # its machine in ELF headers
    qemu: str  # its QEMU program
    qemu_package: str  # the Debian package that has it
    machine: str  # QEMU machine type
    console: str  # kernel console on that machine's serial port
    serial_fallback: bool  # a second serial port and fw_cfg ports for kernels without virtio
    switches: tuple[tuple[str, int], ...]
    kbuild: str
    image: str
    interrupts: tuple[tuple[str, int], ...] = ()
    exceptions: tuple[tuple[str, int], ...] = ()
    new_tasks: tuple[tuple[str, int], ...] = (("wake_up_new_task", 0),)
    stubs: tuple[tuple[str, int, int], ...] = ()
    traps: tuple[tuple[str, int], ...] = ()
    firmware: tuple[str, ...] = ()
    firmware_package: str = "seabios"
    cloud: bool = True


_WHOLE = 1 << 20  # bytes: beyond any symbol of stubs
# CPUs with a defence against branch history injection enter a kernel of arm64 through one of three
# tables of 2 KiB; from user space these go on to the second instruction of the entry in `vectors`.
_HARDENED = tuple(0x800 * table for table in range(3))
_SECOND = 4


ARCHES = {
    arch.debian: arch
    for arch in (
        Arch(
            debian="amd64",
            uname="x86_64",
            gnu="x86_64-linux-gnu",
            elf="EM_X86_64",
            qemu="qemu-system-x86_64",
            qemu_package="qemu-system-x86",
            machine="q35",
            firmware=("bios-256k.bin", "kvmvapic.bin", "linuxboot_dma.bin", "pvh.bin"),
            console="ttyS0",
            serial_fallback=True,
            # arch/x86/include/asm/idtentry.h
            interrupts=(
                ("asm_sysvec_*", 0),
                ("asm_common_interrupt", 0),
                ("asm_spurious_interrupt", 0),
            ),
            exceptions=(("asm_exc_*", 0),),
            switches=(("__switch_to_asm", 0),),
            kbuild="x86_64",
            image="x86/boot/bzImage",
            stubs=(("irq_entries_start", 0, _WHOLE), ("spurious_entries_start", 0, _WHOLE)),
        ),
        Arch(
            debian="arm64",
            uname="aarch64",
            gnu="aarch64-linux-gnu",
            elf="EM_AARCH64",
            qemu="qemu-system-aarch64",
            qemu_package="qemu-system-arm",
            machine="virt",
            console="ttyAMA0",
            serial_fallback=False,
            # The vector table of arch/arm64/kernel/entry.S: 16 entries of 128 bytes; EL1 with
            # SP_EL1 from 0x200, 64-bit EL0 from 0x400, each sync, irq, fiq, error.
            interrupts=(
                *(("vectors", at) for at in (0x280, 0x300, 0x480, 0x500)),
                *(("vectors", at + _SECOND) for at in (0x480, 0x500)),
                *(("__bp_harden_el1_vectors", t + at) for t in _HARDENED for at in (0x280, 0x300)),
            ),
            exceptions=(
                *(("vectors", at) for at in (0x200, 0x380, 0x400, 0x580)),
                *(("vectors", at + _SECOND) for at in (0x400, 0x580)),
                *(("__bp_harden_el1_vectors", t + at) for t in _HARDENED for at in (0x200, 0x380)),
            ),
            stubs=tuple(("__bp_harden_el1_vectors", t + 0x480, t + 0x580) for t in _HARDENED),
            switches=(("cpu_switch_to", 0),),
            kbuild="arm64",
            image="arm64/boot/Image",
        ),
        Arch(
            debian="riscv64",
            uname="riscv64",
            gnu="riscv64-linux-gnu",
            elf="EM_RISCV",
            qemu="qemu-system-riscv64",
            qemu_package="qemu-system-riscv",
            machine="virt",
            firmware=("opensbi-riscv64-generic-fw_dynamic.bin",),
            firmware_package="opensbi",
            cloud=False,
            console="ttyS0",
            serial_fallback=False,
            traps=(("handle_exception", 0),),
            switches=(("__switch_to", 0),),
            kbuild="riscv",
            image="riscv/boot/Image",
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


def of_elf(machine: str) -> Arch | None:
    """The architecture of ELF files for a machine ("EM_X86_64"), if it is a known one."""
    return next((arch for arch in ARCHES.values() if arch.elf == machine), None)


def native() -> Arch:
    """This machine's own architecture.  Raises SpecError for one that is not in the table."""
    for arch in ARCHES.values():
        if arch.uname == platform.machine():
            return arch
    raise SpecError(f"this machine's architecture, {platform.machine()}, is not supported")


def compiler(arch: Arch) -> str:
    """The C compiler that makes guest programs: the native one, or Debian's cross compiler."""
    return "gcc" if platform.machine() == arch.uname else f"{arch.gnu}-gcc"


def compiler_package(arch: Arch) -> str:
    """The Debian packages that bring `compiler` and its static C library."""
    if platform.machine() == arch.uname:
        return "gcc libc6-dev"
    return f"gcc-{arch.gnu.replace('_', '-')} libc6-dev-{arch.debian}-cross"
