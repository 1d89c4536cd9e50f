# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU of other Debian suites, unpacked into kdelta's cache: no root, the system's stays as it is.

<cache>/qemu/<version>_<x86|arm>/ holds the packages of one QEMU as unpacked.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kdelta import arch, cache, process
from kdelta.archive import deb, version
from kdelta.archive.apt import Progress
from kdelta.archive.index import Package
from kdelta.archive.root import Archive
from kdelta.errors import InfraError, SpecError
from kdelta.guests.emulator import Qemu, examine, means

_MAIN = r"qemu-system-(?:x86|arm|common|data)|seabios"
_SONAME = re.compile(r"(lib[\w.+-]+?)\.so\.(\d+)[\w.]*")
_LIBRARY_ROUNDS = 8
_CHECK_S = 60.0
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
    host_arch: str
    packages: tuple[tuple[str, str], ...]


def offers(archive: Archive, guest_arch: str) -> tuple[QemuOffer, ...]:
    """Every QEMU for a guest architecture in the index, oldest version first."""
    name = arch.of(guest_arch).qemu_package
    found = [package for package in _packages(archive) if package.name == name]
    return tuple(
        QemuOffer(version=p.version, suites=p.suites, guest_arch=guest_arch, size=p.size)
        for p in sorted(found, key=lambda p: version.key(p.version))
    )


def unpacked() -> tuple[Qemu, ...]:
    """The QEMUs unpacked in the cache, oldest version first; none is examined."""
    found = [_unpacked(path, _record(path)) for path in cache.entries("qemu")]
    return tuple(sorted(found, key=lambda qemu: version.key(qemu.package)))


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
    number = offer.version.rpartition(":")[2]  # a colon would end a path in LD_LIBRARY_PATH
    key = f"{number}_{arch.of(guest_arch).qemu_package.removeprefix('qemu-system-')}"
    path = cache.entry("qemu", key, lambda root: _fill(root, archive, offer, suite, progress))
    return examine(_unpacked(path, _record(path)))


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
        f"the archive has no {what}", action="see what is offered with: kdelta qemu list"
    )


def _packages(archive: Archive) -> tuple[Package, ...]:
    return archive.packages("qemu", _MAIN)


def _fill(
    root: Path, archive: Archive, offer: QemuOffer, suite: str, progress: Progress | None
) -> None:
    taken = members(_packages(archive), offer, suite)
    for package in taken:
        _unpack(root, archive, package, progress)
    record = _Record(
        version=offer.version, guest_arch=offer.guest_arch, host_arch=archive.arch, packages=()
    )
    place = _unpacked(root, record)
    _check_symbols(place, suite)  # no library of ours can mend that
    taken += _add_libraries(place, root, archive, suite, taken, progress)
    _check(place, suite)
    packages = tuple((package.name, package.version) for package in taken)
    record = msgspec.structs.replace(record, packages=packages)
    (root / _RECORD).write_bytes(msgspec.json.encode(record))


def members(packages: Iterable[Package], offer: QemuOffer, suite: str) -> list[Package]:
    """The packages that make up one QEMU: its program, what it shares, its firmware."""
    program = arch.of(offer.guest_arch).qemu_package
    near = [p for p in packages if set(p.suites) & set(_family(suite))]
    upstream = version.split(offer.version)[1]

    def newest(name: str, *, of_this_version: bool = False, at_most: str = "") -> Package:
        fitting = [p for p in near if p.name == name]
        if of_this_version:
            fitting = [p for p in fitting if p.version == offer.version]
        if at_most:  # qemu-system-data is not rebuilt with the others (+b3)
            fitting = [
                p
                for p in fitting
                if version.split(p.version)[1] == upstream
                and version.compare(p.version, at_most) <= 0
            ]
        if not fitting:
            raise InfraError(
                f"the archive's {suite} lacks {name} for QEMU {offer.version}",
                action="choose another version from: kdelta qemu list",
            )
        return max(fitting, key=lambda p: version.key(p.version))

    return [
        newest(program, of_this_version=True),
        newest("qemu-system-common", of_this_version=True),
        newest("qemu-system-data", at_most=offer.version),
        newest("seabios"),
    ]


def _family(suite: str) -> tuple[str, ...]:
    """Suites whose packages are built to work with those of `suite`."""
    base = suite.partition("-")[0]
    family = (base, f"{base}-security", f"{base}-updates")
    return family if suite in family else (*family, suite)


def _unpack(root: Path, archive: Archive, package: Package, progress: Progress | None) -> None:
    with archive.fetched(package, progress) as path:
        deb.unpack(path, root)


def _add_libraries(
    place: Qemu,
    root: Path,
    archive: Archive,
    suite: str,
    members: list[Package],
    progress: Progress | None,
) -> list[Package]:
    """Fetch the packages of shared libraries that this machine lacks, theirs included."""
    added: list[Package] = []
    for _ in range(_LIBRARY_ROUNDS):
        absent, _ = _ldd(place)
        names = {n for package in (*members, *added) for n in _dependencies(package.depends)}
        names -= {package.name for package in added}
        chosen = sorted({n for soname in absent for n in names if provides(n, soname)})
        if not chosen:
            break
        pattern = "|".join(re.escape(name) for name in chosen)
        for package in _newest(archive.packages("qemu-libraries", pattern), suite):
            _unpack(root, archive, package, progress)
            added.append(package)
    return added


def _newest(packages: Iterable[Package], suite: str) -> list[Package]:
    best: dict[str, Package] = {}
    for package in packages:
        if set(package.suites) & set(_family(suite)):
            known = best.get(package.name)
            if known is None or version.compare(package.version, known.version) > 0:
                best[package.name] = package
    return list(best.values())


def _dependencies(depends: str) -> set[str]:
    """Names of all alternatives in a Depends field."""
    return {part.split("(")[0].split(":")[0].strip() for part in re.split(r"[,|]", depends)}


def provides(package_name: str, soname: str) -> bool:
    """True when by Debian's naming rule a package holds a library: libfuse3-3, libfuse3.so.3."""
    match = _SONAME.fullmatch(soname)
    if match is None:
        return False
    plain = re.sub(r"[-_]", "", match[1] + match[2]).lower()
    return bool(re.fullmatch(re.escape(plain) + r"(?:t64|turbo)?", package_name.replace("-", "")))


def _ldd(place: Qemu) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Shared libraries not found, and symbol versions not found ("GLIBC_2.38")."""
    done = process.run(
        ["ldd", str(place.program)], timeout=_CHECK_S, env=place.environment, check=False
    )
    text = done.stdout + done.stderr
    absent = re.findall(r"^\s*(\S+) => not found", text, re.MULTILINE)
    versions = re.findall(r"version `([^']+)' not found", text)
    return tuple(dict.fromkeys(absent)), tuple(dict.fromkeys(versions))


def _check_symbols(place: Qemu, suite: str) -> None:
    _, versions = _ldd(place)
    if versions:
        raise InfraError(
            f"QEMU {place.package} of {suite} needs newer libraries than this machine has "
            f"({', '.join(versions)})",
            action="choose one of this machine's release or its backports from: kdelta qemu list",
        )


def _check(place: Qemu, suite: str) -> None:
    _check_symbols(place, suite)
    absent, _ = _ldd(place)
    if absent:
        raise InfraError(
            f"QEMU {place.package} of {suite} needs shared libraries that are not here: "
            f"{', '.join(absent)}",
            action=f"install what the package {arch.of(place.guest).qemu_package} depends on",
        )
    if fault := examine(place).fault:
        raise InfraError(f"QEMU {place.package} of {suite} does not run here: {fault}")


def _codename() -> str:
    try:
        return platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    except OSError:
        return ""


def _record(root: Path) -> _Record:
    return msgspec.json.decode((root / _RECORD).read_bytes(), type=_Record)


def _unpacked(root: Path, record: _Record) -> Qemu:
    """How to run what lies there: its libraries, its modules and its firmware are its own."""
    triple = arch.of(record.host_arch).gnu
    libraries = [root / top / triple for top in ("usr/lib", "lib")]
    return Qemu(
        program=root / "usr" / "bin" / arch.of(record.guest_arch).qemu,
        environment={
            "QEMU_MODULE_DIR": str(libraries[0] / "qemu"),
            "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
        },
        arguments=("-L", str(root / "usr/share/qemu"), "-L", str(root / "usr/share/seabios")),
        guest=record.guest_arch,
        package=record.version,
    )
