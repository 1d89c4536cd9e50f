# SPDX-License-Identifier: GPL-2.0-or-later
"""A QEMU: where it lies, how it is started, what it is, and which CPUs it can give.

QEMUs of other Debian suites are unpacked into kdelta's cache without root:
<cache>/qemu/<version>_<guest>/ holds the packages of one QEMU and the libraries it needs.
"""

from __future__ import annotations

import contextlib
import platform
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache as remember
from pathlib import Path

import msgspec
from debian.debian_support import Version

from kdelta import arch, cache, elf, process
from kdelta.arch import Arch
from kdelta.archive import deb
from kdelta.archive.apt import Archive, Progress
from kdelta.archive.index import Package
from kdelta.errors import InfraError, SpecError
from kdelta.files import decoded, read_once
from kdelta.machine import cpu
from kdelta.machine.axes import MachineSettings

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
    version, plugins = ".".join(match.groups()), _has_plugins(place.program, modified)
    return replace(place, banner=banner, version=version, plugins=plugins)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class QemuOffer:
    """A QEMU that the archive offers for this machine and one guest architecture."""

    version: str  # Debian package version
    suites: tuple[str, ...]
    guest_arch: str
    size: int  # bytes of the program's package


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    guest_arch: str


def qemu_offers(archive: Archive, guest_arch: str) -> tuple[QemuOffer, ...]:
    """Every QEMU for a guest architecture in the index, oldest version first."""
    name = arch.of(guest_arch).qemu_package
    own = [package for package in archive.packages("qemu", _MAIN) if package.name == name]
    return tuple(
        QemuOffer(version=p.version, suites=p.suites, guest_arch=guest_arch, size=p.size)
        for p in sorted(own, key=lambda p: Version(p.version))
    )


def unpacked_qemus() -> tuple[Qemu, ...]:
    """The QEMUs unpacked in the cache, oldest first, not examined; a damaged one is removed."""
    found = []
    for path in cache.entries("qemu"):
        if cache.unchanged(path) and cache.keep(path):
            found.append(_unpacked(path))
        else:
            cache.discard(path)
    return tuple(sorted(found, key=lambda qemu: Version(qemu.package)))


def fetch_qemu(
    wanted: str | None, guest_arch: str, *, progress: Progress | None = None, refresh: bool = False
) -> Qemu:
    """The QEMU of a suite, or of a Debian or upstream version, unpacked and seen to run.

    None means the newest of this machine's Debian release and its backports.  Raises SpecError
    when there is none, InfraError when it cannot be fetched or does not run here.
    """
    archive = Archive(arch.native().debian)
    archive.refresh(force=refresh, progress=progress)
    codename = ""
    with contextlib.suppress(OSError):
        codename = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    offer, suite = choose_offer(wanted, qemu_offers(archive, guest_arch), codename)
    number = offer.version.rpartition(":")[2]  # a colon would end a path in a search list
    key = f"{number}_{guest_arch}"

    def fill(folder: Path) -> None:
        own = qemu_members(archive.packages("qemu", _MAIN), offer, suite)
        place = cache.folder("qemu") / key
        deb.unpack_programs(
            own, folder, final=place, archive=archive, suite=suite, linked=own, progress=progress
        )
        record = _Record(version=offer.version, guest_arch=offer.guest_arch)
        (folder / _RECORD).write_bytes(msgspec.json.encode(record))

    return examine(_unpacked(cache.entry("qemu", key, fill, check=_check)))


def choose_offer(
    wanted: str | None, offered: tuple[QemuOffer, ...], codename: str
) -> tuple[QemuOffer, str]:
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


def qemu_members(packages: Iterable[Package], offer: QemuOffer, suite: str) -> list[Package]:
    """The packages that make up one QEMU: its program, what it shares, its firmware."""
    target = arch.of(offer.guest_arch)
    near = [p for p in packages if set(p.suites) & set(deb.family(suite))]
    this = Version(offer.version)
    own = [p for p in near if p.version == offer.version]
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
        newest(target.qemu_package, own),
        newest("qemu-system-common", own),
        newest("qemu-system-data", [p for p in same if versions[p.version] <= this]),
        newest(target.firmware_package, near),
    ]


def _unpacked(root: Path) -> Qemu:
    """How to run an unpacked QEMU with its own modules and firmware."""
    record = decoded((root / _RECORD).read_bytes(), _Record)
    return Qemu(
        program=root / "usr" / "bin" / arch.of(record.guest_arch).qemu,
        environment={"QEMU_MODULE_DIR": str(root / "usr/lib" / arch.native().gnu / "qemu")},
        arguments=("-L", str(root / "usr/share/qemu"), "-L", str(root / "usr/share/seabios")),
        guest=record.guest_arch,
        package=record.version,
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
    """The error for a CPU that QEMU does not make, by its own words."""
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
