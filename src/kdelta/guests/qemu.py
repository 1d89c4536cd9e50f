# SPDX-License-Identifier: GPL-2.0-or-later
"""Which QEMU runs a guest, what its command line is, and our plugin built for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kdelta import arch, build, cache, data, process
from kdelta.errors import InfraError, KdeltaError, SpecError
from kdelta.guests import qemu_archive
from kdelta.guests.emulator import Qemu, examine
from kdelta.machine.axes import MachineSettings

PORT_NAME = "kdelta.0"
_FW_CFG_FOLDER = "opt/org.kdelta"
_FIRMWARE = ("/usr/share/seabios",)
_CC = "gcc"
# First QEMU whose "file:" migration reads a checkpoint by itself; older ones get an open file.
_FILE_MIGRATION = (8, 2)
_SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class Channels:
    """File descriptors that QEMU inherits; qmp and incoming: -1 for none.

    port, serial: the two ways to PID 1; it uses the first that its kernel has.
    """

    port: int
    serial: int
    console: int
    qmp: int = -1
    incoming: int = -1

    @property
    def inherited(self) -> tuple[int, ...]:
        """Those that are there."""
        every = (self.port, self.serial, self.console, self.qmp, self.incoming)
        return tuple(fd for fd in every if fd >= 0)


class Accelerator(StrEnum):
    """What executes a guest's code: TCG can count and is never timed, KVM the other way round."""

    TCG = "tcg"
    KVM = "kvm"


@dataclass(frozen=True, slots=True, kw_only=True)
class CountingFiles:
    """Files of our plugin.  output: the counts; events: kernel entries (attribution.insns)."""

    output: Path
    events: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What a guest starts from and with.

    counting: what our plugin reads and writes, None for no plugin.  program: offered in fw_cfg to
    a guest that cannot take it through its port.  restore: a checkpoint to start from instead of
    booting; serial: the guest in it takes its orders on the serial line.  hugetlb: the guest's
    memory is reserved huge pages of the host, all taken before it starts.  modules: offered like
    the program, by their stem.  disk: a file that the guest sees as an NVMe disk, which no
    checkpoint can have.
    Raises SpecError for a guest under KVM that would count or start from a checkpoint, and for a
    restored one with a disk.
    """

    image: Path
    initramfs: Path
    counting: CountingFiles | None = None
    program: Path | None = None
    restore: Path | None = None
    serial: bool = False
    accelerator: Accelerator = Accelerator.TCG
    hugetlb: bool = False
    modules: tuple[Path, ...] = ()
    disk: Path | None = None

    def __post_init__(self) -> None:
        if self.restore and self.disk:
            raise SpecError("a guest with a disk cannot be restored", action="boot it afresh")
        if self.accelerator is Accelerator.KVM and (self.counting or self.restore):
            raise SpecError(
                "instructions are counted under TCG only, KVM runs no plugin and no checkpoint",
                action='choose the instrument "exact" without KVM, or "time" with it',
            )


def find(target: arch.Arch) -> Iterator[Qemu]:
    """The QEMUs for guests of an architecture, examined one by one: the one on PATH first, then
    those that `kdelta qemu fetch` unpacked, newest first.
    """
    if on_path := process.which(target.qemu):
        yield _own(on_path, target)
    for unpacked in reversed(qemu_archive.unpacked()):
        if unpacked.guest == target.debian:
            yield examine(unpacked)


def choose(target: arch.Arch, wanted: str = "") -> Qemu:
    """The QEMU for guests of an architecture.

    wanted (else the environment's KDELTA_QEMU): a path, or a version such as "10.0" among those
    that are here.  Without it: the one on PATH, else the newest fetched.  Raises InfraError when
    there is none or it does not start, SpecError when the wanted one is not there.
    """
    wanted = wanted or os.environ.get("KDELTA_QEMU", "")
    if "/" in wanted:
        if not Path(wanted).is_file():
            raise SpecError("no such QEMU", place=wanted, action="give the path of the program")
        found = _own(Path(wanted).absolute(), target)
    else:
        fitting = (one for one in find(target) if not wanted or one.is_version(wanted))
        chosen = next(fitting, None)
        if chosen is None:
            raise _none(target, wanted)
        found = chosen
    if found.fault:
        raise InfraError(
            found.fault, place=str(found.program), action="get another with: kdelta qemu fetch"
        )
    return found


def _none(target: arch.Arch, wanted: str) -> KdeltaError:
    if wanted:
        return SpecError(
            f"no QEMU {wanted} here", action=f"get it with: kdelta qemu fetch {wanted}"
        )
    return InfraError(
        f"{target.qemu} is not installed",
        action=f"apt-get install {target.qemu_package}, or, without root: kdelta qemu fetch",
    )


def _own(program: Path, target: arch.Arch) -> Qemu:
    """A QEMU that this machine has: its firmware may lie where only the system's looks."""
    firmware = tuple(word for path in _FIRMWARE if Path(path).is_dir() for word in ("-L", path))
    return examine(Qemu(program=program, arguments=firmware, guest=target.debian))


def plugin(qemu: Qemu) -> Path:
    """Our plugin built for the plugin interface of this QEMU, from the cache when it was before.

    Raises BuildError without a working C compiler, InfraError for a QEMU without plugins.
    """
    if qemu.api is None:
        raise InfraError(
            f"QEMU {qemu.version} has no usable plugin interface",
            place=str(qemu.program),
            action="get another with: kdelta qemu fetch",
        )
    return build.compiled(
        "insns.so",
        _plugin_sources(),
        compiler=_CC,
        flags=[
            *("-std=gnu11", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared"),
            *("-fvisibility=hidden", f"-DKDELTA_API={qemu.api}"),
        ],
        package="gcc libc6-dev",
    )


def plugin_digest() -> str:
    """SHA-256 of the plugin's source: part of what decides a count."""
    return cache.digest(*(path.read_bytes() for path in _plugin_sources()))


def _plugin_sources() -> list[Path]:
    return sorted(data.directory("plugin").glob("*.[ch]"))


def command(qemu: Qemu, settings: MachineSettings, launch: Launch, channels: Channels) -> list[str]:
    """The command line of one guest: no network, no display, no disk but its own, sandbox on."""
    machine = settings.target
    argv = [
        str(qemu.program),
        *qemu.arguments,
        *("-no-user-config", "-nodefaults", "-display", "none", "-nic", "none", "-no-reboot"),
        *("-sandbox", _SANDBOX),
        *("-accel", launch.accelerator, "-M", _machine(machine, launch)),
        *(*settings.qemu_options, *_memory(settings, launch)),
        *(
            "-kernel",
            str(launch.image),
            "-initrd",
            str(launch.initramfs),
            "-append",
            settings.full_cmdline,
        ),
        *("-chardev", f"socket,id=console,fd={channels.console}", "-serial", "chardev:console"),
        *_serial_fallback(machine, channels),
        *("-chardev", f"socket,id=port,fd={channels.port}", "-device", "virtio-serial-pci"),
        *("-device", f"virtserialport,chardev=port,name={PORT_NAME}"),
    ]
    if channels.qmp >= 0:
        argv += ["-chardev", f"socket,id=qmp,fd={channels.qmp}", "-mon", "qmp,mode=control"]
    if machine.serial_fallback:
        argv += _fw_cfg(launch)
    if launch.disk:
        drive = f"if=none,id=disk,format=raw,cache=unsafe,file={_escaped(launch.disk)}"
        argv += ["-drive", drive, "-device", "nvme,drive=disk,serial=kdelta"]
    if launch.counting:
        options = (
            f"out={_escaped(launch.counting.output)},events={_escaped(launch.counting.events)}"
        )
        argv += ["-plugin", f"{_escaped(plugin(qemu))},{options}"]
    if launch.restore:
        argv += ["-incoming", migration(qemu, launch.restore, channels.incoming)]
    return argv


def needs_open_checkpoint(qemu: Qemu) -> bool:
    """True when this QEMU wants the checkpoint as an inherited file (Channels.incoming)."""
    return qemu.release < _FILE_MIGRATION


def migration(qemu: Qemu, state: Path, descriptor: object) -> str:
    """QEMU's word for a checkpoint's file, or for it as a file that it has open already."""
    return f"fd:{descriptor}" if needs_open_checkpoint(qemu) else f"file:{state}"


def _machine(machine: arch.Arch, launch: Launch) -> str:
    options = [machine.machine]
    if launch.accelerator is Accelerator.KVM and machine.debian == "arm64":
        options.append("gic-version=host")  # the interrupt controller that KVM can give
    if launch.hugetlb:
        options.append("memory-backend=ram")
    return ",".join(options)


def _fw_cfg(launch: Launch) -> list[str]:
    """What PID 1 fetches itself where its order port is too slow."""
    files = [(path.stem, path) for path in launch.modules]
    files += [("program", launch.program)] if launch.program else []
    return [
        word
        for name, path in files
        for word in ("-fw_cfg", f"name={_FW_CFG_FOLDER}/{name},file={_escaped(path)}")
    ]


def _memory(settings: MachineSettings, launch: Launch) -> tuple[str, ...]:
    if not launch.hugetlb:
        return ()
    backend = f"memory-backend-memfd,id=ram,size={settings.memory_mib}M,hugetlb=on,prealloc=on"
    return ("-object", backend)


def _serial_fallback(machine: arch.Arch, channels: Channels) -> tuple[str, ...]:
    if not machine.serial_fallback:
        return ()
    return ("-chardev", f"socket,id=serial,fd={channels.serial}", "-serial", "chardev:serial")


def _escaped(path: Path) -> str:
    """QEMU splits options at commas; a doubled comma is a comma."""
    return str(path).replace(",", ",,")
