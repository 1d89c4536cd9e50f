# SPDX-License-Identifier: GPL-2.0-or-later
"""Which QEMU runs a guest, what its command line is, and our plugin built for it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache as remember
from pathlib import Path

from kdelta import arch, build, cache, data, process
from kdelta.errors import InfraError, SpecError
from kdelta.guests import qemu_archive
from kdelta.machine.axes import MachineSettings

PORT_NAME = "kdelta.0"
_FW_CFG_FOLDER = "opt/org.kdelta"
_VERSION_TIMEOUT_S = 20.0
_VERSION = re.compile(r"QEMU emulator version (\d+)\.(\d+)\.(\d+)")
_FIRMWARE = ("/usr/share/seabios",)
_CC = "gcc"
# First QEMU whose "file:" migration reads a checkpoint by itself; older ones get an open file.
_FILE_MIGRATION = (8, 2)
_API_OF_VERSION = (((9, 2), 4), ((9, 1), 3), ((9, 0), 2), ((4, 2), 1))
_SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"


@dataclass(frozen=True, slots=True, kw_only=True)
class Qemu:
    """One QEMU program that is ready to run.

    banner: first line of --version, with the distribution's build; part of a checkpoint's key.
    api: plugin interface version that our plugin is built for.
    """

    program: Path
    banner: str
    version: str
    api: int
    environment: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()

    @property
    def release(self) -> tuple[int, int]:
        """(major, minor)."""
        major, minor, *_ = self.version.split(".")
        return int(major), int(minor)


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
class Counting:
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
    counting: Counting | None = None
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


def choose(architecture: arch.Arch, wanted: str = "") -> Qemu:
    """The QEMU for guests of an architecture.

    wanted (else the environment's KDELTA_QEMU): a path, or a version such as "10.0" among those
    that `kdelta qemu fetch` unpacked.  Without it: the one on PATH, else the newest fetched.
    Raises InfraError when there is none, SpecError when the wanted one is not there.
    """
    wanted = wanted or os.environ.get("KDELTA_QEMU", "")
    trees = [tree for tree in qemu_archive.installed() if tree.guest_arch == architecture.debian]
    if "/" in wanted:
        if not Path(wanted).is_file():
            raise SpecError("no such QEMU", place=wanted, action="give the path of the program")
        return examine(Path(wanted).absolute())
    if wanted:
        for tree in reversed(trees):
            if _has_version(tree.version, wanted):
                return _of_tree(tree)
    on_path = process.which(architecture.qemu)
    if on_path and (not wanted or _has_version(examine(on_path).version, wanted)):
        return examine(on_path)
    if wanted:
        raise SpecError(f"no QEMU {wanted} here", action=f"get it with: kdelta qemu fetch {wanted}")
    if trees:
        return _of_tree(trees[-1])
    raise InfraError(
        f"{architecture.qemu} is not installed",
        action=f"apt-get install {architecture.qemu_package}, or, without root: kdelta qemu fetch",
    )


@remember
def examine(program: Path) -> Qemu:
    """The QEMU at a path.  Raises InfraError when it does not run or is too old."""
    return _examined(program, {}, ())


def plugin(qemu: Qemu) -> Path:
    """Our plugin built for the plugin interface of this QEMU, from the cache when it was before.

    Raises BuildError without a working C compiler.
    """
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
    if launch.restore and qemu.release >= _FILE_MIGRATION:
        argv += ["-incoming", f"file:{launch.restore}"]
    elif launch.restore:
        argv += ["-incoming", f"fd:{channels.incoming}"]
    return argv


def needs_open_checkpoint(qemu: Qemu) -> bool:
    """True when this QEMU wants the checkpoint as an inherited file (Channels.incoming)."""
    return qemu.release < _FILE_MIGRATION


def _examined(program: Path, environment: dict[str, str], arguments: tuple[str, ...]) -> Qemu:
    done = process.run(
        [str(program), "--version"], timeout=_VERSION_TIMEOUT_S, env=environment or None
    )
    banner = done.stdout.partition("\n")[0].strip()
    match = _VERSION.match(banner)
    if not match:
        raise InfraError(f"not a QEMU: it says {banner[:80]!r}", place=str(program))
    release = int(match[1]), int(match[2])
    api = next((api for since, api in _API_OF_VERSION if release >= since), None)
    if api is None:
        raise InfraError(
            f"QEMU {match[1]}.{match[2]} has no usable plugin interface",
            place=str(program),
            action="get a newer one with: kdelta qemu fetch",
        )
    return Qemu(
        program=program,
        banner=banner,
        version=".".join(match.groups()),
        api=api,
        environment=environment,
        arguments=arguments or _firmware(),
    )


def _of_tree(tree: qemu_archive.QemuTree) -> Qemu:
    return _examined(tree.program, tree.environment, tree.arguments)


def _firmware() -> tuple[str, ...]:
    return tuple(word for path in _FIRMWARE if Path(path).is_dir() for word in ("-L", path))


def _has_version(have: str, wanted: str) -> bool:
    number = have.partition(":")[2] or have
    return number == wanted or number.startswith((f"{wanted}.", f"{wanted}+"))


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
