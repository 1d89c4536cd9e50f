# SPDX-License-Identifier: GPL-2.0-or-later
"""Which QEMU runs a guest, what it is and can give, its command line, our plugin built for it.

QEMUs of other Debian suites are unpacked into kdelta's cache without root:
<cache>/emulators/<version>_<guest>_<table>/ holds the packages of one QEMU and the libraries that
it needs; <table> is the digest of what kdelta patches in it.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache as remember
from itertools import chain
from pathlib import Path

import msgspec
from debian.debian_support import Version

from kdelta import arch, build, cache, data, elf, process
from kdelta.arch import Arch
from kdelta.archive import deb
from kdelta.archive.apt import Archive, Progress
from kdelta.archive.index import Package
from kdelta.errors import InfraError, KdeltaError, SpecError
from kdelta.files import decoded, read_once, sha256_of
from kdelta.guests import patches
from kdelta.guests.orders import Order
from kdelta.machine import cpu
from kdelta.machine.axes import MachineSettings

_TIMEOUT_S = 20.0
_VERSION = re.compile(r"QEMU emulator version (\d+)\.(\d+)\.(\d+)")
_PLUGINS = "qemu_plugin_register_vcpu_tb_trans_cb"  # exported where plugins are built in


@dataclass(frozen=True, slots=True, kw_only=True)
class Qemu:
    """A QEMU program for one guest architecture, as `examine` saw it.

    environment, arguments: what it needs to start.  package: the Debian version of an unpacked
    one; patch: its mark where kdelta has patched it.  banner: first line of --version, with the
    distribution's build; version: "10.0.2"; a patch's mark stands at the end of both.
    plugins: it takes any.  turns: several CPUs of a guest take turns, by instructions.  fault: why
    it does not start, "" when it does; then banner and version are empty.
    """

    program: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    guest: str = ""
    package: str = ""
    patch: str = ""
    banner: str = ""
    version: str = ""
    plugins: bool = False
    turns: bool = False
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
    version = ".".join(match.groups())
    plugins = place.plugins or _has_plugins(place.program)
    banner, version = f"{banner} {place.patch}".rstrip(), version + place.patch
    return replace(place, banner=banner, version=version, plugins=plugins)


@remember
def _banner(
    program: Path, environment: tuple[tuple[str, str], ...], _modified: int
) -> tuple[str, str]:
    """First line of --version, and why there is none."""
    argv = [str(program), "--version"]
    try:
        done = process.run(argv, timeout=_TIMEOUT_S, env=dict(environment) or None, quick=True)
    except InfraError as error:
        return "", error.cause
    return done.stdout.partition("\n")[0].strip(), ""


def _has_plugins(program: Path) -> bool:
    """False for a program that was built without plugins; a script is assumed to have them."""
    with contextlib.suppress(elf.BadElf):
        # Only its names are read: parsing the hash table of so many symbols slows every command.
        return b"\0%b\0" % _PLUGINS.encode() in elf.section(program, ".dynstr")
    return True


def firmware_digest(qemu: Qemu, target: Arch) -> str:
    """SHA-256 over the files that this QEMU loads: from the folders of -L, else beside it."""
    told = [Path(word) for word in qemu.arguments if not word.startswith("-")]
    beside = qemu.program.resolve().parent.parent / "share"
    folders = [*told, beside / "qemu", beside / "seabios"]
    parts = []
    for name in target.firmware:
        files = (folder / name for folder in folders)
        content = next((read_once(file) for file in files if file.is_file()), b"none")
        parts += [name.encode(), content]
    return cache.digest(*parts)


_MAIN = r"qemu-system-(?:x86|arm|riscv|common|data)|seabios|opensbi"
GUESTS = tuple(arch.ARCHES)  # architectures whose QEMU is unpacked
_RECORD = "kdelta-qemu.json"


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    guest_arch: str
    patch: str
    plugins: bool


def qemu_offers(archive: Archive, guest_arch: str) -> tuple[Package, ...]:
    """Every QEMU for a guest architecture in the index, oldest version first."""
    name = arch.of(guest_arch).qemu_package
    own = [package for package in archive.packages("qemu", _MAIN) if package.name == name]
    return tuple(sorted(own, key=lambda p: Version(p.version)))


def unpacked_qemus(guest: str = "") -> tuple[Qemu, ...]:
    """The QEMUs for a guest architecture, by default for any, that are unpacked in the cache,
    oldest first, not examined; a damaged one is removed.

    One that was patched by another table, or by none, is not among them.
    """
    found = []
    patched = f"_{guest}" * bool(guest) + f"_{patches.table().digest()}"
    for path in cache.children("emulators"):
        if not path.name.endswith(patched):
            continue
        if cache.unchanged(path) and cache.keep(path):
            found.append(_unpacked(path))
        else:
            cache.discard(path)
    return tuple(sorted(found, key=lambda qemu: Version(qemu.package)))


def fetch_qemu(wanted: str | None, guest_arch: str, *, progress: Progress | None = None) -> Qemu:
    """The QEMU of a suite, or of a Debian or upstream version, unpacked and seen to run.

    None means the newest of this machine's Debian release and its backports.  Raises SpecError
    when there is none, InfraError when it cannot be fetched or does not run here.
    """
    archive = Archive(arch.native().debian)
    archive.refresh(progress=progress)
    codename = ""
    with contextlib.suppress(OSError):
        codename = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    offer, suite = choose_offer(wanted, qemu_offers(archive, guest_arch), codename)
    number = offer.version.rpartition(":")[2]  # a colon would end a path in a search list
    known = patches.table()
    key = f"{number}_{guest_arch}_{known.digest()}"
    program = arch.of(guest_arch).qemu

    def fill(folder: Path) -> None:
        marks = []
        own = qemu_members(archive.packages("qemu", _MAIN), offer, suite, arch.of(guest_arch))
        place = cache.folder("emulators") / key
        deb.unpack_programs(
            own,
            folder,
            final=place,
            archive=archive,
            suite=suite,
            linked=own,
            progress=progress,
            edit=lambda: marks.append(patches.apply(folder / "usr" / "bin" / program, known)),
        )
        record = _Record(
            version=offer.version,
            guest_arch=guest_arch,
            patch=marks[0],
            plugins=_has_plugins(folder / "usr" / "bin" / program),
        )
        (folder / _RECORD).write_bytes(msgspec.json.encode(record))

    return examine(_unpacked(cache.entry("emulators", key, fill, check=_check)))


def choose_offer(
    wanted: str | None, offered: tuple[Package, ...], codename: str
) -> tuple[Package, str]:
    """The offer that a suite or version means, own and newest first; its companions' suite."""
    own = (codename, f"{codename}-security", f"{codename}-updates", f"{codename}-backports")
    ours = [offer for offer in offered if set(offer.suites) & set(own)]
    others = [offer for offer in offered if offer not in ours]
    fitting = ours
    if wanted is not None:
        every = [*others, *ours]
        fitting = [o for o in every if wanted in o.suites or means(wanted, o.version)]
    if fitting:
        offer = fitting[-1]
        mine = [suite for suite in offer.suites if suite in (wanted, *own)]
        return offer, (mine or list(offer.suites))[-1]
    what = wanted or f"for this machine's release ({codename or '?'})"
    action = "see what is offered with: kdelta tools qemu list"
    raise SpecError(f"the archive has no QEMU {what}", action=action)


def qemu_members(
    packages: Iterable[Package], offer: Package, suite: str, target: Arch
) -> list[Package]:
    """The packages that make up one QEMU: its program, what it shares, its firmware."""
    near = [p for p in packages if set(p.suites) & set(deb.family(suite))]
    this = Version(offer.version)
    versions = {p.version: Version(p.version) for p in near}
    # The package of data is of no architecture: it is not rebuilt (+b3), as the others may be.
    same = [p for p in near if versions[p.version].upstream_version == this.upstream_version]

    def newest(name: str, among: Iterable[Package]) -> Package:
        fitting = [p for p in among if p.name == name]
        if not fitting:
            cause = f"the archive's {suite} lacks {name} for QEMU {offer.version}"
            raise InfraError(cause, action="choose another version from: kdelta tools qemu list")
        return max(fitting, key=lambda p: versions[p.version])

    return [
        offer,
        newest("qemu-system-common", [p for p in near if p.version == offer.version]),
        newest("qemu-system-data", [p for p in same if versions[p.version] <= this]),
        newest(target.firmware_package, near),
    ]


def _unpacked(root: Path) -> Qemu:
    record = decoded((root / _RECORD).read_bytes(), _Record)
    return Qemu(
        program=root / "usr" / "bin" / arch.of(record.guest_arch).qemu,
        environment={"QEMU_MODULE_DIR": str(root / "usr/lib" / arch.native().gnu / "qemu")},
        arguments=("-L", str(root / "usr/share/qemu"), "-L", str(root / "usr/share/seabios")),
        guest=record.guest_arch,
        package=record.version,
        patch=record.patch,
        plugins=record.plugins,
    )


def _check(root: Path) -> None:
    place = _unpacked(root)
    if fault := examine(place).fault:
        raise InfraError(f"QEMU {place.package} does not run here: {fault}")


_CPU_S = 30.0
_LACKED = re.compile(r"support requested feature: \S+?\.([\w.-]+) \[bit")
_SAID = re.compile(r"[^\n]*?: (?!warning: )([^\n]+)\s*\Z")


def check_cpu(emulator: Qemu, settings: MachineSettings) -> None:
    """Let QEMU make the CPU of a guest.  Raises SpecError where it cannot, InfraError."""
    name, arch = settings.cpu_model, settings.arch
    if cpu.preset(name, arch):
        return
    with tempfile.TemporaryFile() as commands:
        commands.write(b"quit\n")
        commands.seek(0)
        argv = [str(emulator.program), *emulator.arguments, "-no-user-config", "-nodefaults"]
        argv += ["-M", settings.target.machine, "-accel", "tcg", "-cpu", cpu.strict(name, arch)]
        argv += ["-display", "none", "-S", "-monitor", "stdio"]
        env = emulator.environment
        done = process.run(argv, timeout=_CPU_S, env=env, stdin=commands, check=False)
    if done.returncode:
        raise _refused_cpu(emulator, settings, done.stderr)


def _refused_cpu(emulator: Qemu, settings: MachineSettings, said: str) -> SpecError:
    name = settings.cpu_model
    if lacked := tuple(dict.fromkeys(_LACKED.findall(said))):
        cause = f"QEMU {emulator.version} cannot give all of the CPU {name}"
        action = f"write what it gives: {_without(name, lacked)}; or take a preset"
        return SpecError(cause, place="cpu_model", action=action)
    words = _SAID.search(said)
    cause = f"QEMU {emulator.version} has no CPU {name}" + (f": {words[1]}" if words else "")
    action = f"take a preset: {', '.join(cpu.names(settings.arch))}; or max"
    return SpecError(cause, place="cpu_model", action=action)


def _without(name: str, lacked: Sequence[str]) -> str:
    """A model without features: named features are left out, its own are switched off."""
    model, *switches = name.split(",")
    named = {switch: switch.lstrip("+").partition("=")[0] for switch in switches}
    kept = [switch for switch in switches if named[switch] not in lacked]
    off = [f"{feature}=off" for feature in lacked if feature not in named.values()]
    return ",".join([model, *kept, *off])


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
# The begin of its kernel, where firmware loaded that: nobody reads the rest of it again.
BEGIN = "kernel"
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
    classify what is touched (attribution.memory); sharing: with what moves it between CPUs, and
    slabs: where a slab names its cache (disassembly.btf); all need functions.  arguments: which to
    record (attribution.arguments).  pointed: what calls point at, of a program that is watched
    outside its windows, too (plugin/pointed.h); image: where its own code and data end.  windows:
    how many there will be, 0 when unknown; behind the last one the plugin stops preparing code for
    counting, which costs time.
    """

    output: Path
    events: Path
    windows: int = 0
    functions: Path | None = None
    calls: bool = False
    memory: str = ""
    slabs: str = ""
    sharing: bool = False
    arguments: Path | None = None
    pointed: str = ""
    image: int = 0

    def options(self, qemu: Qemu) -> str:
        """As that QEMU's option -plugin has them."""
        files = {"out": self.output, "events": self.events, "functions": self.functions}
        files["arguments"] = self.arguments
        given = {name: _escaped(path) for name, path in files.items() if path}
        words = {"calls": "on" if self.calls else "", "memory": self.memory}
        words |= {"pointed": self.pointed, "image": str(self.image or "")}
        words |= {"slabs": self.slabs, "sharing": "on" if self.sharing else ""}
        words["windows"] = str(self.windows) if self.windows else ""
        words["flags"] = f"{patches.table().flags:#x}" if qemu.patch else ""
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
    that the guest sees as an NVMe disk, which no checkpoint can have.  boot: another number has
    QEMU hand out other random numbers.
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
    boot: int = 1


def find(target: arch.Arch) -> Iterator[Qemu]:
    """The QEMUs for guests of an architecture, examined one by one: the one on PATH first, then
    those that were unpacked from the archive, newest first.
    """
    if on_path := process.which(target.qemu):
        yield _own(on_path, target)
    yield from _fetched(target)


def _fetched(target: arch.Arch, first: str = "") -> Iterator[Qemu]:
    """Those of the archive, newest first, but for packages of one version that come before."""
    newest = reversed(unpacked_qemus(target.debian))
    for unpacked in sorted(newest, key=lambda one: not (first and one.is_version(first))):
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

    The pinned QEMU is fetched from the archive, verified and patched, even when the one on PATH is
    of its version.  When it cannot be had, another one that can count is used, and its version
    stands beside its counts.  Then our plugin is built.  Raises SpecError for a wanted one that
    cannot count, InfraError when there is none.
    """
    if wanted or os.environ.get(_VARIABLE):
        found = choose(target, wanted)
    else:
        found = _pinned(target, progress)
    if found.fault:  # it was ended, or does not start: that says nothing of what it can
        action = "run it by hand to see why, and begin again"
        raise InfraError(found.fault, place=str(found.program), action=action)
    if not counts(found):
        cause = f"QEMU {found.version} cannot count: 10.x with plugins is needed"
        action = f"leave out --qemu and {_VARIABLE}: kdelta then fetches {PINNED} for itself"
        raise SpecError(cause, place=str(found.program), action=action)
    plugin()
    return found


def can_turn(emulator: Qemu) -> bool:
    """True where `in_turns` knows the program."""
    known = patches.table().turns
    return known is not None and known.build_of(emulator.program) is not None


def in_turns(emulator: Qemu) -> Qemu:
    """A copy that tells plugins the right CPU where several take turns.  Raises SpecError."""
    known, sha256 = patches.table().turns, sha256_of(emulator.program)
    if known is None or not can_turn(emulator):
        cause = f"this QEMU {emulator.version} tells plugins a wrong CPU where several take turns"
        action = f"count on amd64 with the {PINNED} that kdelta fetches and patches"
        raise SpecError(cause, place=str(emulator.program), action=action)

    def fill(folder: Path) -> None:
        shutil.copy(emulator.program, folder / emulator.program.name)
        patches.apply(folder / emulator.program.name, known)

    copy = cache.entry("emulators", f"turns-{sha256[:16]}-{known.digest()}", fill)
    banner, version = f"{emulator.banner}{known.mark}", f"{emulator.version}{known.mark}"
    program = copy / emulator.program.name
    return replace(emulator, program=program, banner=banner, version=version, turns=True)


def not_turning(version: str) -> str:
    """The version of what `in_turns` copies, of a copy's; a run to resume knows only that."""
    known = patches.table().turns
    return version.removesuffix(known.mark) if known else version


def obtained(target: arch.Arch, version: str, progress: Progress | None = None) -> bool:
    """True when a QEMU of that version is here or can be fetched now.  Raises InfraError."""
    if any(one.is_version(version) for one in find(target)):
        return True
    plain = not_turning(version).removesuffix(patches.table().mark)
    try:
        return fetch_qemu(plain, target.debian, progress=progress).is_version(version)
    except SpecError:
        return False


def counts(qemu: Qemu) -> bool:
    """True for a QEMU that can count: it has the plugin interface and devices that this takes."""
    return not qemu.fault and qemu.plugins and _FIRST <= qemu.release < _BEYOND


def _pinned(target: arch.Arch, progress: Progress | None) -> Qemu:
    able: list[Qemu] = []
    # Examining a QEMU starts it, so the search ends at the pinned one.
    for one in chain(_fetched(target, PINNED), (own for own in find(target) if not own.package)):
        if counts(one):
            if one.is_version(PINNED) and one.package:
                return one
            able.append(one)
    try:
        return fetch_qemu(PINNED, target.debian, progress=progress)
    except (InfraError, SpecError):
        if able:
            return min(able, key=lambda one: not one.is_version(PINNED))
    return fetch_qemu(_SERIES, target.debian, progress=progress)


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
    return build.source_digest(_plugin_sources())


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
        *(*settings.qemu_options, *_memory(settings, launch), *_clock(qemu, settings, launch)),
        *("-kernel", str(_kernel(launch)), "-initrd", str(launch.initramfs)),
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
        argv += ["-plugin", f"{_escaped(plugin())},{launch.counting.options(qemu)}"]
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
        # Else a timer of the host's clock runs for some rounds, each of which ends a CPU's turn.
        {"execute": "migrate-set-parameters", "arguments": {"announce-rounds": 0}},
        {"execute": "migrate-incoming", "arguments": {"uri": MIGRATION}},
    )
    return b"".join(msgspec.json.encode(order) + b"\n" for order in orders)


def _kernel(launch: Launch) -> Path:
    begin = launch.restore / BEGIN if launch.restore else launch.image
    return begin if begin.is_file() else launch.image


def _machine(settings: MachineSettings, launch: Launch) -> str:
    options = [settings.target.machine]
    if launch.accelerator is Accelerator.KVM and settings.arch == "arm64":
        options.append("gic-version=host")  # the interrupt controller that KVM can give
    if settings.nodes == 1:
        options.append("memory-backend=ram")
    return ",".join(options)


def _clock(qemu: Qemu, settings: MachineSettings, launch: Launch) -> list[str]:
    """A clock that only instructions move, and no randomness: a guest that repeats itself."""
    if launch.accelerator is Accelerator.KVM:
        return []
    # The saved state does not say that the guest was stopped: a restored one runs at once.
    argv = ["-seed", f"{launch.boot}", "-global", "migration.store-global-state=off", "-rtc", _RTC]
    # QEMU 10.0 tells plugins a wrong virtual CPU where several are counted by turns.
    return [*argv, "-icount", _ICOUNT] if settings.cpus == 1 or qemu.turns else argv


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
