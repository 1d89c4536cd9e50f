# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU of other Debian suites, unpacked into kdelta's cache without root.

<cache>/qemu/<version>_<guest>/ holds the packages of one QEMU and the libraries it needs.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec
from debian.debian_support import Version

from kdelta import arch, cache
from kdelta.archive import programs
from kdelta.archive.apt import Progress
from kdelta.archive.index import Package
from kdelta.archive.root import Archive
from kdelta.errors import InfraError, SpecError
from kdelta.files import decoded
from kdelta.guests.emulator import Qemu, examine, means

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


def offers(archive: Archive, guest_arch: str) -> tuple[QemuOffer, ...]:
    """Every QEMU for a guest architecture in the index, oldest version first."""
    name = arch.of(guest_arch).qemu_package
    found = [package for package in _packages(archive) if package.name == name]
    return tuple(
        QemuOffer(version=p.version, suites=p.suites, guest_arch=guest_arch, size=p.size)
        for p in sorted(found, key=lambda p: Version(p.version))
    )


def unpacked() -> tuple[Qemu, ...]:
    """The QEMUs unpacked in the cache, oldest version first; none is examined.

    A damaged one is removed; it would be found again otherwise.
    """
    places = cache.entries("qemu")
    whole = [path for path in places if cache.unchanged(path) and cache.keep(path)]
    for path in set(places) - set(whole):
        cache.discard(path)
    found = [_unpacked(path) for path in whole]
    return tuple(sorted(found, key=lambda qemu: Version(qemu.package)))


def fetch(
    wanted: str | None,
    guest_arch: str,
    *,
    progress: Progress | None = None,
    refresh: bool = False,
) -> Qemu:
    """The QEMU of a suite, or of a Debian or upstream version, unpacked and seen to run.

    None means the newest of this machine's Debian release and its backports.  Raises SpecError
    when there is none, InfraError when it cannot be fetched or does not run here.
    """
    archive = Archive(arch.native().debian)
    archive.refresh(force=refresh, progress=progress)
    offer, suite = choose(wanted, offers(archive, guest_arch), _codename())
    number = offer.version.rpartition(":")[2]  # a colon would end a path in a search list
    key = f"{number}_{guest_arch}"
    final = cache.folder("qemu") / key
    path = cache.entry(
        "qemu",
        key,
        lambda folder: _fill(folder, final, archive, offer, suite, progress),
        check=_check,
    )
    return examine(_unpacked(path))


def choose(
    wanted: str | None, offered: tuple[QemuOffer, ...], codename: str
) -> tuple[QemuOffer, str]:
    """The offer that a suite or version means, and the suite to take its companions from.

    Of several that fit, those built for this machine's release (codename) come first, then the
    newest version.
    """
    own = (codename, f"{codename}-security", f"{codename}-updates", f"{codename}-backports")
    fitting = [
        (bool(set(offer.suites) & set(own)), at, offer)
        for at, offer in enumerate(offered)
        if wanted in offer.suites or (wanted is not None and means(wanted, offer.version))
    ]
    if wanted is None:
        fitting = [(True, at, o) for at, o in enumerate(offered) if set(o.suites) & set(own)]
    if fitting:
        _, _, offer = max(fitting, key=lambda row: row[:2])
        mine = [suite for suite in offer.suites if suite in (wanted, *own)]
        return offer, (mine or list(offer.suites))[-1]
    what = f"QEMU {wanted}" if wanted else f"QEMU for this machine's release ({codename or '?'})"
    raise SpecError(
        f"the archive has no {what}", action="see what is offered with: kdelta tools qemu list"
    )


def _packages(archive: Archive) -> tuple[Package, ...]:
    return archive.packages("qemu", _MAIN)


def _fill(
    folder: Path,
    final: Path,
    archive: Archive,
    offer: QemuOffer,
    suite: str,
    progress: Progress | None,
) -> None:
    own = members(_packages(archive), offer, suite)
    programs.unpack(
        own, folder, final=final, archive=archive, suite=suite, linked=own, progress=progress
    )
    record = _Record(version=offer.version, guest_arch=offer.guest_arch)
    (folder / _RECORD).write_bytes(msgspec.json.encode(record))


def members(packages: Iterable[Package], offer: QemuOffer, suite: str) -> list[Package]:
    """The packages that make up one QEMU: its program, what it shares, its firmware."""
    target = arch.of(offer.guest_arch)
    near = [p for p in packages if set(p.suites) & set(programs.family(suite))]
    this = Version(offer.version)

    def newest(name: str, *, of_this_version: bool = False, rebuilt: bool = True) -> Package:
        fitting = [p for p in near if p.name == name]
        if of_this_version:
            fitting = [p for p in fitting if p.version == offer.version]
        if not rebuilt:  # qemu-system-data is not rebuilt with the others (+b3)
            fitting = [
                p
                for p in fitting
                if Version(p.version).upstream_version == this.upstream_version
                and Version(p.version) <= this
            ]
        if not fitting:
            raise InfraError(
                f"the archive's {suite} lacks {name} for QEMU {offer.version}",
                action="choose another version from: kdelta tools qemu list",
            )
        return max(fitting, key=lambda p: Version(p.version))

    return [
        newest(target.qemu_package, of_this_version=True),
        newest("qemu-system-common", of_this_version=True),
        newest("qemu-system-data", rebuilt=False),
        newest(target.firmware_package),
    ]


def _codename() -> str:
    try:
        return platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    except OSError:
        return ""


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
