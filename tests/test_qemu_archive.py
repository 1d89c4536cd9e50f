# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU from the archive: which one is meant, what belongs to it, how it is run from the cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdelta import cache
from kdelta.archive.index import Package
from kdelta.errors import InfraError, SpecError
from kdelta.guests import qemu_archive
from kdelta.guests.qemu_archive import QemuOffer, choose, unpacked

if TYPE_CHECKING:
    from archive_mirror import Mirror

pytest_plugins = ("archive_mirror",)


def offer(version: str, *suites: str) -> QemuOffer:
    return QemuOffer(version=version, suites=suites, guest_arch="amd64", size=1)


OFFERS = (
    offer("1:7.2+dfsg-7+deb12u15", "bookworm-security"),
    offer("1:7.2+dfsg-7+deb12u18+b3", "bookworm"),
    offer("1:10.0.2+ds-2+deb13u1~bpo12+1", "bookworm-backports"),
    offer("1:10.0.2+ds-2+deb13u1", "trixie-security"),
    offer("1:10.0.13+ds-0+deb13u1", "trixie"),
    offer("1:11.1.3+ds-1", "sid"),
)


@pytest.mark.parametrize(
    ("wanted", "codename", "version", "suite"),
    [
        (None, "bookworm", "1:10.0.2+ds-2+deb13u1~bpo12+1", "bookworm-backports"),
        (None, "trixie", "1:10.0.13+ds-0+deb13u1", "trixie"),
        ("bookworm", "bookworm", "1:7.2+dfsg-7+deb12u18+b3", "bookworm"),
        ("sid", "bookworm", "1:11.1.3+ds-1", "sid"),
        ("10.0", "bookworm", "1:10.0.2+ds-2+deb13u1~bpo12+1", "bookworm-backports"),
        ("10.0.2", "bookworm", "1:10.0.2+ds-2+deb13u1~bpo12+1", "bookworm-backports"),
        ("10.0.2", "trixie", "1:10.0.2+ds-2+deb13u1", "trixie-security"),
        ("7.2", "bookworm", "1:7.2+dfsg-7+deb12u18+b3", "bookworm"),
        ("1:10.0.13+ds-0+deb13u1", "bookworm", "1:10.0.13+ds-0+deb13u1", "trixie"),
    ],
)
def test_a_suite_or_version_means_one_qemu(
    wanted: str | None, codename: str, version: str, suite: str
) -> None:
    chosen, origin = choose(wanted, OFFERS, codename)
    assert (chosen.version, origin) == (version, suite)


@pytest.mark.parametrize(("wanted", "codename"), [("9.9", "bookworm"), (None, "noble"), (None, "")])
def test_no_such_qemu(wanted: str | None, codename: str) -> None:
    with pytest.raises(SpecError, match="the archive has no QEMU") as caught:
        choose(wanted, OFFERS, codename)
    assert "kdelta tools qemu list" in caught.value.action


def deb(name: str, version: str, *suites: str) -> Package:
    return Package(
        name=name,
        version=version,
        arch="amd64",
        depends="",
        size=1,
        sha256="0" * 64,
        uri="",
        suites=suites,
    )


PACKAGES = (
    deb("qemu-system-x86", "1:7.2+dfsg-7+deb12u18+b3", "bookworm"),
    deb("qemu-system-common", "1:7.2+dfsg-7+deb12u18+b3", "bookworm"),
    deb("qemu-system-data", "1:7.2+dfsg-7+deb12u15", "bookworm-security"),
    deb("qemu-system-data", "1:7.2+dfsg-7+deb12u18", "bookworm"),
    deb("seabios", "1.16.2-1", "bookworm"),
    deb("qemu-system-x86", "1:10.0.2+ds-2~bpo12+1", "bookworm-backports"),
    deb("qemu-system-common", "1:10.0.2+ds-2~bpo12+1", "bookworm-backports"),
    deb("qemu-system-data", "1:10.0.2+ds-2~bpo12+1", "bookworm-backports"),
    deb("seabios", "1.16.3-2~bpo12+1", "bookworm-backports"),
    deb("seabios", "1.17.0-1", "sid"),
)


def test_companions_come_from_the_same_suites() -> None:
    old = offer("1:7.2+dfsg-7+deb12u18+b3", "bookworm")
    members = qemu_archive.members(PACKAGES, old, "bookworm")
    assert [(p.name, p.version) for p in members] == [
        ("qemu-system-x86", "1:7.2+dfsg-7+deb12u18+b3"),
        ("qemu-system-common", "1:7.2+dfsg-7+deb12u18+b3"),
        ("qemu-system-data", "1:7.2+dfsg-7+deb12u18"),  # not rebuilt, so without +b3
        ("seabios", "1.16.2-1"),
    ]
    new = offer("1:10.0.2+ds-2~bpo12+1", "bookworm-backports")
    members = qemu_archive.members(PACKAGES, new, "bookworm-backports")
    assert [p.version for p in members[2:]] == ["1:10.0.2+ds-2~bpo12+1", "1.16.3-2~bpo12+1"]


def test_firmware_is_the_architecture_s() -> None:
    version = "1:10.0.2+ds-2~bpo12+1"
    packages = (
        *PACKAGES,
        deb("qemu-system-riscv", version, "bookworm-backports"),
        deb("opensbi", "1.1-2", "bookworm"),
        deb("opensbi", "1.5.1-1~bpo12+2", "bookworm-backports"),
    )
    wanted = QemuOffer(version=version, suites=(), guest_arch="riscv64", size=1)
    members = qemu_archive.members(packages, wanted, "bookworm-backports")
    assert [p.name for p in members][0::3] == ["qemu-system-riscv", "opensbi"]
    assert members[3].version == "1.5.1-1~bpo12+2"


def test_a_missing_companion_is_named() -> None:
    old = offer("1:7.2+dfsg-7+deb12u18+b3", "bookworm")
    without = [p for p in PACKAGES if p.name != "seabios"]
    with pytest.raises(InfraError, match="lacks seabios"):
        qemu_archive.members(without, old, "bookworm")


def test_installed_trees_say_how_to_run_them() -> None:
    def make(folder: Path) -> None:
        record = {
            "version": "1:10.0.2+ds-2",
            "guest_arch": "amd64",
        }
        (folder / "kdelta-qemu.json").write_text(json.dumps(record))
        (folder / "usr" / "bin").mkdir(parents=True)
        (folder / "usr" / "bin" / "qemu-system-x86_64").touch()

    prefix = cache.entry("qemu", "10.0.2+ds-2_amd64", make)
    half = cache.entry("qemu", "10.0.2+ds-2_arm64", make)
    (half / "usr" / "bin" / "qemu-system-x86_64").unlink()
    (tree,) = unpacked()
    assert (tree.package, tree.guest) == ("1:10.0.2+ds-2", "amd64")
    assert tree.program == prefix / "usr" / "bin" / "qemu-system-x86_64"
    assert tree.environment["QEMU_MODULE_DIR"] == f"{prefix}/usr/lib/x86_64-linux-gnu/qemu"
    assert tree.arguments[-1] == f"{prefix}/usr/share/seabios"


@pytest.mark.parametrize("name", ["bin/qemu-system-x86_64", "lib/libz.so.1", "share/bios.bin"])
def test_a_qemu_whose_files_changed_is_none_and_goes(name: str) -> None:
    def make(folder: Path) -> None:
        record = {"version": "1:10.0.2+ds-2", "guest_arch": "amd64"}
        (folder / "kdelta-qemu.json").write_text(json.dumps(record))
        for place in ("bin/qemu-system-x86_64", "lib/libz.so.1", "share/bios.bin"):
            (folder / "usr" / place).parent.mkdir(parents=True)
            (folder / "usr" / place).write_text(place)

    prefix = cache.entry("qemu", "10.0.2+ds-2_amd64", make)
    assert len(unpacked()) == 1
    (prefix / "usr" / name).write_text(name.upper())
    assert unpacked() == ()
    assert not prefix.exists()


@pytest.mark.usefixtures("mirror")
def test_an_archive_without_qemu() -> None:
    with pytest.raises(SpecError, match=r"the archive has no QEMU 10\.0"):
        qemu_archive.fetch("10.0", "amd64")
    with pytest.raises(SpecError, match="unknown architecture 's390x'"):
        qemu_archive.fetch("10.0", "s390x")


def test_offline_without_an_index(mirror: Mirror) -> None:
    mirror.stop()
    with pytest.raises(InfraError, match="no index of Packages is cached"):
        qemu_archive.fetch(None, "amd64")
