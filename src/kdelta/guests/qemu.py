# SPDX-License-Identifier: GPL-2.0-or-later
"""Which QEMU runs a guest, what its command line is, and our plugin built for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from pathlib import Path

import msgspec

from kdelta import arch, build, cache, data, process
from kdelta.archive.apt import Progress
from kdelta.errors import InfraError, KdeltaError, SpecError
from kdelta.files import read_once
from kdelta.guests import emulator
from kdelta.guests.emulator import Qemu, examine
from kdelta.guests.orders import Order
from kdelta.machine.axes import MachineSettings

# One version for everybody, in Debian 12's backports and in Debian 13's security archive: two
# versions of a series count alike, but boot a guest into slightly different states.
PINNED = "10.0.2"
_SERIES = "10.0"
# They have plugin interface 4 (include/qemu/qemu-plugin.h); QEMU 11 has none before 7.
_FIRST, _BEYOND = (10, 0), (11, 0)
_VARIABLE = "KDELTA_QEMU"
PORT_NAME = "kdelta.0"
_FW_CFG_FOLDER = "opt/org.kdelta"
_FIRMWARE = ("/usr/share/seabios",)
_CC = "gcc"
STATE = "state"  # of a saved guest, all but its memory
# Memory that the state leaves out, because it is in files of its own.
SHARED_IS_THERE = {"capabilities": [{"capability": "x-ignore-shared", "state": True}]}
_ICOUNT = "shift=1,sleep=off"  # an instruction takes 2 ns, and idle time none
_RTC = "base=2026-01-01T00:00:00,clock=vm"
MIGRATION = "file:/dev/fdset/1"  # QEMU's word for the inherited descriptor Channels.state
_SANDBOX = "on,obsolete=deny,elevateprivileges={},spawn=deny,resourcecontrol=deny"
_NOBODY = "65534:65534"
_RUN_WITH = (9, 1)  # the first QEMU whose -run-with names the user; older ones have -runas


@dataclass(frozen=True, slots=True, kw_only=True)
class Channels:
    """File descriptors that QEMU inherits; -1 for none.

    port, serial: files for what PID 1 answers, on the first of the two that its kernel has.
    orders: the file of its orders.  qmp: a socket.  state: of a guest that is saved or restored.
    """

    port: int
    serial: int
    console: int
    orders: int
    qmp: int = -1
    state: int = -1

    @property
    def inherited(self) -> tuple[int, ...]:
        """Those that are there."""
        every = (self.port, self.serial, self.console, self.orders, self.qmp, self.state)
        return tuple(fd for fd in every if fd >= 0)


class Accelerator(StrEnum):
    """What executes a guest's code: TCG can count and is never timed, KVM the other way round."""

    TCG = "tcg"
    KVM = "kvm"


@dataclass(frozen=True, slots=True, kw_only=True)
class CountingFiles:
    """What our plugin writes and reads.

    output: the counts; events: kernel entries (attribution.insns); functions: addresses of the
    kernel's functions (attribution.calls).  calls: follow them; memory: the kernel's layout, to
    classify what is touched (attribution.memory); both need functions.  arguments: which to record
    (attribution.arguments).  windows: how many there will be, 0 when unknown; behind the last one
    the plugin stops preparing code for counting, which costs time.
    """

    output: Path
    events: Path
    windows: int = 0
    functions: Path | None = None
    calls: bool = False
    memory: str = ""
    arguments: Path | None = None

    def options(self) -> str:
        """As QEMU's option -plugin has them."""
        files = {"out": self.output, "events": self.events, "functions": self.functions}
        files["arguments"] = self.arguments
        given = {name: _escaped(path) for name, path in files.items() if path}
        words = {"calls": "on" if self.calls else "", "memory": self.memory}
        words["windows"] = str(self.windows) if self.windows else ""
        given |= {name: word for name, word in words.items() if word}
        return ",".join(f"{name}={text}" for name, text in given.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What a guest starts from and with.

    orders: what PID 1 is to do; without any it stops the machine to be saved.  program, modules:
    that the orders speak of; modules go by their stem.  counting: what our plugin reads and
    writes, None for no plugin.  save: a folder that gets the memory of a guest that is to be
    saved.  restore: a folder with a saved guest to start from instead of booting.  hugetlb: the
    guest's memory is reserved huge pages of the host, all taken before it starts.  disk: a file
    that the guest sees as an NVMe disk, which no checkpoint can have.
    Raises SpecError for a guest under KVM that would count or start from a checkpoint, and for a
    restored one with a disk.
    """

    image: Path
    initramfs: Path
    orders: tuple[Order, ...] = ()
    program: Path | None = None
    modules: tuple[Path, ...] = ()
    counting: CountingFiles | None = None
    save: Path | None = None
    restore: Path | None = None
    accelerator: Accelerator = Accelerator.TCG
    hugetlb: bool = False
    disk: Path | None = None

    def __post_init__(self) -> None:
        if self.restore and self.disk:
            raise SpecError("a guest with a disk cannot be restored", action="boot it afresh")
        if self.accelerator is Accelerator.KVM and (self.counting or self.restore):
            cause = "instructions are counted under TCG only, KVM runs no plugin and no checkpoint"
            action = 'choose the instrument "exact" without KVM, or "time" with it'
            raise SpecError(cause, action=action)


def find(target: arch.Arch) -> Iterator[Qemu]:
    """The QEMUs for guests of an architecture, examined one by one: the one on PATH first, then
    those that were unpacked from the archive, newest first.
    """
    if on_path := process.which(target.qemu):
        yield _own(on_path, target)
    yield from _fetched(target)


def _fetched(target: arch.Arch, first: str = "") -> Iterator[Qemu]:
    """Those of the archive, newest first, but for packages of one version that come before."""
    newest = reversed(emulator.unpacked_qemus())
    for unpacked in sorted(newest, key=lambda one: not (first and one.is_version(first))):
        if unpacked.guest == target.debian:
            yield examine(unpacked)


def choose(target: arch.Arch, wanted: str = "") -> Qemu:
    """The QEMU for guests of an architecture that are not counted.

    wanted (else the environment's KDELTA_QEMU): a path, or a version such as "10.0" among those
    that are here.  Without it: the one on PATH, else the newest fetched.  Raises InfraError when
    there is none or it does not start, SpecError when the wanted one is not there.
    """
    wanted = wanted or os.environ.get(_VARIABLE, "")
    if "/" in wanted:
        if not Path(wanted).is_file():
            raise SpecError("no such QEMU", place=wanted, action="give the path of the program")
        found = _own(Path(wanted).absolute(), target)
    else:
        fitting = (one for one in find(target) if not wanted or one.is_version(wanted))
        if (chosen := next(fitting, None)) is None:
            raise _none(target, wanted)
        found = chosen
    if found.fault:
        action = "get another with: kdelta tools qemu fetch"
        raise InfraError(found.fault, place=str(found.program), action=action)
    return found


def for_counting(target: arch.Arch, wanted: str = "", progress: Progress | None = None) -> Qemu:
    """The QEMU that counts: the wanted one, as in `choose`, else the pinned one.

    A pinned QEMU that is neither fetched nor on PATH is fetched from the archive and verified.
    When it cannot be had, another one that can count is used, and its version stands beside its
    counts.  Then our plugin is built.  Raises SpecError for a wanted one that cannot count,
    InfraError when there is none.
    """
    if wanted or os.environ.get(_VARIABLE):
        found = choose(target, wanted)
    else:
        found = _pinned(target, progress)
    if not counts(found):
        cause = f"QEMU {found.version} cannot count: 10.x with plugins is needed"
        action = f"leave out --qemu and {_VARIABLE}: kdelta then fetches {PINNED} for itself"
        raise SpecError(cause, place=str(found.program), action=action)
    plugin()
    return found


def obtained(target: arch.Arch, version: str, progress: Progress | None = None) -> bool:
    """True when a QEMU of that version is here or can be fetched now.  Raises InfraError."""
    if any(one.is_version(version) for one in find(target)):
        return True
    try:
        emulator.fetch_qemu(version, target.debian, progress=progress)
    except SpecError:
        return False
    return True


def counts(qemu: Qemu) -> bool:
    """True for a QEMU that can count: it has the plugin interface and devices that this takes."""
    return not qemu.fault and qemu.plugins and _FIRST <= qemu.release < _BEYOND


def _pinned(target: arch.Arch, progress: Progress | None) -> Qemu:
    able: list[Qemu] = []
    # Examining a QEMU starts it, so the search ends at the pinned one.
    for one in chain(_fetched(target, PINNED), (own for own in find(target) if not own.package)):
        if counts(one):
            if one.is_version(PINNED):
                return one
            able.append(one)
    try:
        return emulator.fetch_qemu(PINNED, target.debian, progress=progress)
    except (InfraError, SpecError):
        if able:
            return able[0]
    return emulator.fetch_qemu(_SERIES, target.debian, progress=progress)


def _none(target: arch.Arch, wanted: str) -> KdeltaError:
    if wanted:
        cause = f"no QEMU {wanted} here"
        return SpecError(cause, action=f"get it with: kdelta tools qemu fetch {wanted}")
    action = f"apt-get install {target.qemu_package}, or, without root: kdelta tools qemu fetch"
    return InfraError(f"{target.qemu} is not installed", action=action)


def _own(program: Path, target: arch.Arch) -> Qemu:
    """A QEMU of this machine: its firmware may lie where only the system's QEMU looks."""
    firmware = tuple(word for path in _FIRMWARE if Path(path).is_dir() for word in ("-L", path))
    return examine(Qemu(program=program, arguments=firmware, guest=target.debian))


def plugin() -> Path:
    """Our plugin, from the cache when it was built before.  Raises BuildError."""
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "-fvisibility=hidden"]
    return build.compiled(
        "insns.so", _plugin_sources(), compiler=_CC, flags=flags, package="gcc libc6-dev"
    )


def plugin_digest() -> str:
    """SHA-256 of the plugin's source: part of what decides a count."""
    return cache.digest(*map(read_once, _plugin_sources()))


def _plugin_sources() -> list[Path]:
    return sorted(data.directory("plugin").glob("*.[ch]"))


def command(qemu: Qemu, settings: MachineSettings, launch: Launch, channels: Channels) -> list[str]:
    """The command line of one guest: no network, no display, no disk but its own, sandbox on."""
    machine = settings.target
    argv = [
        str(qemu.program),
        *qemu.arguments,
        *("-no-user-config", "-nodefaults", "-display", "none", "-nic", "none", "-no-reboot"),
        *_confined(qemu),
        *("-accel", launch.accelerator, "-M", _machine(settings, launch)),
        *(*settings.qemu_options, *_memory(settings, launch), *_clock(settings, launch)),
        *("-kernel", str(launch.image), "-initrd", str(launch.initramfs)),
        *("-append", settings.full_cmdline),
        *(*_file("console", channels.console), "-serial", "chardev:console"),
    ]
    if machine.serial_fallback:
        argv += [*_file("serial", channels.serial), "-serial", "chardev:serial"]
    # Without an event file descriptor the guest itself, and no other thread, does its output.
    argv += [*_file("port", channels.port), "-device", "virtio-serial-pci,ioeventfd=off"]
    argv += ["-device", f"virtserialport,chardev=port,name={PORT_NAME}", "-device", "i6300esb"]
    # What PID 1 fetches itself.  Orders and program are always there, if only as empty files.
    files = [("orders", f"/proc/self/fd/{channels.orders}")]
    files += [("program", _escaped(launch.program) if launch.program else os.devnull)]
    files += [(path.stem, _escaped(path)) for path in launch.modules]
    given = [("-fw_cfg", f"name={_FW_CFG_FOLDER}/{name},file={path}") for name, path in files]
    argv += [*chain.from_iterable(given)]
    if channels.state >= 0:
        argv += ["-add-fd", f"fd={channels.state},set=1"]
    if channels.qmp >= 0:
        argv += ["-chardev", f"socket,id=qmp,fd={channels.qmp}", "-mon", "qmp,mode=control"]
    if launch.disk:
        drive = f"if=none,id=disk,format=raw,cache=unsafe,file={_escaped(launch.disk)}"
        argv += ["-drive", drive, "-device", "nvme,drive=disk,serial=kdelta"]
    if launch.counting:
        argv += ["-plugin", f"{_escaped(plugin())},{launch.counting.options()}"]
    if launch.save:
        argv += ["-action", "watchdog=pause"]
    if launch.restore:
        argv += ["-incoming", "defer"]
    return argv


def _confined(qemu: Qemu) -> list[str]:
    """What QEMU may not do; started by root, it becomes nobody before the guest runs."""
    if os.geteuid() != 0:
        return ["-sandbox", _SANDBOX.format("deny")]
    # "deny" and "children" would end QEMU when it changes its user, which it cannot undo.
    able = not qemu.version or qemu.release >= _RUN_WITH
    user = ["-run-with", f"user={_NOBODY}"] if able else ["-runas", _NOBODY]
    return ["-sandbox", _SANDBOX.format("allow"), *user]


def restoring() -> bytes:
    """The commands on QEMU's control channel that restore a guest, all before it starts."""
    orders = (
        {"execute": "qmp_capabilities"},
        {"execute": "migrate-set-capabilities", "arguments": SHARED_IS_THERE},
        {"execute": "migrate-incoming", "arguments": {"uri": MIGRATION}},
    )
    return b"".join(msgspec.json.encode(order) + b"\n" for order in orders)


def repeats(settings: MachineSettings) -> bool:
    """True when a guest of this machine executes the same instructions in every restore."""
    # QEMU 10.0 tells plugins a wrong virtual CPU where several are counted by turns.
    return settings.cpus == 1


def _machine(settings: MachineSettings, launch: Launch) -> str:
    options = [settings.target.machine]
    if launch.accelerator is Accelerator.KVM and settings.arch == "arm64":
        options.append("gic-version=host")  # the interrupt controller that KVM can give
    if settings.nodes == 1:
        options.append("memory-backend=ram")
    return ",".join(options)


def _clock(settings: MachineSettings, launch: Launch) -> list[str]:
    """A clock that only instructions move, and no randomness: a guest that repeats itself."""
    if launch.accelerator is Accelerator.KVM:
        return []
    # The saved state does not say that the guest was stopped: a restored one runs at once.
    argv = ["-seed", "1", "-global", "migration.store-global-state=off", "-rtc", _RTC]
    return [*argv, "-icount", _ICOUNT] if repeats(settings) else argv


def _memory(settings: MachineSettings, launch: Launch) -> list[str]:
    """The guest's memory: of a saved guest a file, of a restored one that file, unchanged."""
    kind, how = "ram", ""
    if launch.hugetlb:
        kind, how = "memfd", ",hugetlb=on,prealloc=on"
    elif launch.save or launch.restore:
        kind, how = "file", ",share=on" if launch.save else ",share=off,readonly=on,rom=off"
    argv, folder = [], launch.save or launch.restore
    for name, mib in settings.memory:
        path = f",mem-path={_escaped(folder / name)}" if folder and kind == "file" else ""
        argv += ["-object", f"memory-backend-{kind},id={name},size={mib}M{path}{how}"]
    return argv


def _file(name: str, descriptor: int) -> tuple[str, str]:
    return "-chardev", f"file,id={name},path=/proc/self/fd/{descriptor}"


def _escaped(path: Path) -> str:
    """QEMU splits options at commas; a doubled comma is a comma."""
    return str(path).replace(",", ",,")
