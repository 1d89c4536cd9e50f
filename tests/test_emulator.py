# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU from the archive: which one is meant, what belongs to it, how it is run from the cache.

A CPU that a study asks for and a QEMU does not have is refused before anything is measured.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from kdelta import arch, cache, elf
from kdelta.archive.index import Package
from kdelta.errors import InfraError, SpecError
from kdelta.guests import patches, qemu
from kdelta.machine.axes import MachineSettings
from kernel_tree import script, written

if TYPE_CHECKING:
    from archive_mirror import Mirror

pytest_plugins = ("archive_mirror",)
TABLE = patches.table()


def deb(name: str, version: str, *suites: str) -> Package:
    return Package(
        name=name, version=version, arch="amd64", depends="", size=1, sha256="0" * 64, uri="",
        suites=suites,
    )  # fmt: skip


def offer(version: str, *suites: str) -> Package:
    return deb("qemu-system-x86", version, *suites)


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
        ("10.0", "bookworm", "1:10.0.2+ds-2+deb13u1~bpo12+1", "bookworm-backports"),
        ("10.0.2", "bookworm", "1:10.0.2+ds-2+deb13u1~bpo12+1", "bookworm-backports"),
        ("10.0.2", "trixie", "1:10.0.2+ds-2+deb13u1", "trixie-security"),
        ("1:10.0.13+ds-0+deb13u1", "bookworm", "1:10.0.13+ds-0+deb13u1", "trixie"),
    ],
)
def test_a_suite_or_version_means_one_qemu(
    wanted: str | None, codename: str, version: str, suite: str
) -> None:
    chosen, origin = qemu.choose_offer(wanted, OFFERS, codename)
    assert (chosen.version, origin) == (version, suite)


@pytest.mark.parametrize(("wanted", "codename"), [("9.9", "bookworm"), (None, "noble"), (None, "")])
def test_no_such_qemu(wanted: str | None, codename: str) -> None:
    with pytest.raises(SpecError, match="the archive has no QEMU") as caught:
        qemu.choose_offer(wanted, OFFERS, codename)
    assert "kdelta tools qemu list" in caught.value.action


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
    members = qemu.qemu_members(PACKAGES, old, "bookworm", arch.of("amd64"))
    assert [(p.name, p.version) for p in members] == [
        ("qemu-system-x86", "1:7.2+dfsg-7+deb12u18+b3"),
        ("qemu-system-common", "1:7.2+dfsg-7+deb12u18+b3"),
        ("qemu-system-data", "1:7.2+dfsg-7+deb12u18"),  # not rebuilt, so without +b3
        ("seabios", "1.16.2-1"),
    ]
    new = offer("1:10.0.2+ds-2~bpo12+1", "bookworm-backports")
    members = qemu.qemu_members(PACKAGES, new, "bookworm-backports", arch.of("amd64"))
    assert [p.version for p in members[2:]] == ["1:10.0.2+ds-2~bpo12+1", "1.16.3-2~bpo12+1"]


def test_firmware_is_the_architecture_s() -> None:
    version = "1:10.0.2+ds-2~bpo12+1"
    packages = (
        *PACKAGES,
        deb("qemu-system-riscv", version, "bookworm-backports"),
        deb("opensbi", "1.1-2", "bookworm"),
        deb("opensbi", "1.5.1-1~bpo12+2", "bookworm-backports"),
    )
    wanted = deb("qemu-system-riscv", version)
    members = qemu.qemu_members(packages, wanted, "bookworm-backports", arch.of("riscv64"))
    assert [p.name for p in members][0::3] == ["qemu-system-riscv", "opensbi"]
    assert members[3].version == "1.5.1-1~bpo12+2"


def test_a_missing_companion_is_named() -> None:
    old = offer("1:7.2+dfsg-7+deb12u18+b3", "bookworm")
    without = [p for p in PACKAGES if p.name != "seabios"]
    with pytest.raises(InfraError, match="lacks seabios"):
        qemu.qemu_members(without, old, "bookworm", arch.of("amd64"))


RECORD = {"version": "1:10.0.2+ds-2", "guest_arch": "amd64", "patch": TABLE.mark, "plugins": True}


def test_installed_trees_say_how_to_run_them() -> None:
    def make(folder: Path) -> None:
        files = {"kdelta-qemu.json": json.dumps(RECORD), "usr/bin/qemu-system-x86_64": ""}
        written(folder, files)

    prefix = cache.entry("emulators", f"10.0.2_amd64_{TABLE.digest()}", make)
    cache.entry("emulators", "10.0.2_amd64", make)  # of a kdelta without this table
    half = cache.entry("emulators", f"10.0.2_arm64_{TABLE.digest()}", make)
    (half / "usr" / "bin" / "qemu-system-x86_64").unlink()
    (tree,) = qemu.unpacked_qemus()
    assert (tree.package, tree.guest) == ("1:10.0.2+ds-2", "amd64")
    assert (tree.patch, tree.plugins) == (TABLE.mark, True)
    assert tree.program == prefix / "usr" / "bin" / "qemu-system-x86_64"
    assert tree.environment["QEMU_MODULE_DIR"] == f"{prefix}/usr/lib/x86_64-linux-gnu/qemu"
    assert tree.arguments[-1] == f"{prefix}/usr/share/seabios"


@pytest.mark.parametrize("name", ["bin/qemu-system-x86_64", "lib/libz.so.1", "share/bios.bin"])
def test_a_qemu_whose_files_changed_is_none_and_goes(name: str) -> None:
    def make(folder: Path) -> None:
        places = ("bin/qemu-system-x86_64", "lib/libz.so.1", "share/bios.bin")
        written(folder, {"kdelta-qemu.json": json.dumps(RECORD)})
        written(folder / "usr", dict(zip(places, places, strict=True)))

    prefix = cache.entry("emulators", f"10.0.2_amd64_{TABLE.digest()}", make)
    assert len(qemu.unpacked_qemus()) == 1
    (prefix / "usr" / name).write_text(name.upper())
    assert qemu.unpacked_qemus() == ()
    assert not prefix.exists()


def test_the_table_of_patches_is_whole() -> None:
    assert TABLE.mark == "".join(f"+{edit.name}" for edit in TABLE.edit)
    assert len({build.sha256 for build in TABLE.build}) == len(TABLE.build)
    for build in TABLE.build:
        assert len(build.bytes) == sum(edit.places for edit in TABLE.edit)
        for place in build.bytes:
            old, new, pattern = map(patches.octets, (place.old, place.new, place.pattern))
            assert len(old) == len(new)
            assert old != new
            assert old in pattern
    assert TABLE.digest() != msgspec.structs.replace(TABLE, build=TABLE.build[1:]).digest()


def table(content: bytes, *places: patches.PatchPlace) -> patches.PatchTable:
    build = patches.PatchedBuild("q", hashlib.sha256(content).hexdigest(), places)
    return patches.PatchTable("+x", TABLE.edit, (build,))


def test_a_build_is_known_wherever_its_folder_is(tmp_path: Path) -> None:
    """An unpacked program has the path of its libraries in itself, outside of its code."""
    program, moved, none = tmp_path / "q", tmp_path / "moved", tmp_path / "none"
    program.write_bytes(Path(sys.executable).read_bytes())
    moved.write_bytes(program.read_bytes() + b"/home/somebody")
    none.write_text("#!/bin/sh\n")
    digest = hashlib.sha256(elf.section(program, ".text")).hexdigest()
    build = patches.PatchedBuild("q", digest, ())
    known = patches.PatchTable("+x", (), (build,), section=".text")
    assert known.build_of(program) is known.build_of(moved) is build
    assert known.build_of(none) is None
    assert msgspec.structs.replace(known, section="").build_of(program) is None
    assert TABLE.turns is not None
    assert TABLE.turns.section


def test_a_known_program_is_patched_and_no_other(tmp_path: Path) -> None:
    program, content = tmp_path / "q", b"abc\x28def\x28abc\x53"
    places = patches.PatchPlace(3, "28", "08", "286465"), patches.PatchPlace(11, "53", "c3", "6353")
    program.write_bytes(content)
    assert patches.apply(program, table(content, *places)) == "+x"
    assert program.read_bytes() == b"abc\x08def\x28abc\xc3"
    assert patches.apply(program, table(content, *places)) == ""
    assert program.read_bytes() == b"abc\x08def\x28abc\xc3"


@pytest.mark.parametrize(
    ("offset", "old", "pattern"),
    [
        (3, "28", "28"),  # twice in the program
        (3, "29", "286465"),  # other bytes are there
        (3, "28", "286466"),  # nowhere
        (3, "28", "6465"),  # beside the pattern
        (7, "28", "286465"),
    ],
)
def test_a_table_that_does_not_fit_changes_nothing(
    offset: int, old: str, pattern: str, tmp_path: Path
) -> None:
    program, content = tmp_path / "q", b"abc\x28def\x28abc\x53"
    program.write_bytes(content)
    first = patches.PatchPlace(11, "53", "c3", "6353")
    wrong = patches.PatchPlace(offset, old, "08", pattern)
    with pytest.raises(InfraError, match=f"does not fit q at {offset:#x}"):
        patches.apply(program, table(content, first, wrong))
    assert program.read_bytes() == content


@pytest.mark.usefixtures("mirror")
def test_an_archive_without_qemu() -> None:
    with pytest.raises(SpecError, match=r"the archive has no QEMU 10\.0"):
        qemu.fetch_qemu("10.0", "amd64")
    with pytest.raises(SpecError, match="unknown architecture 's390x'"):
        qemu.fetch_qemu("10.0", "s390x")


def test_offline_without_an_index(mirror: Mirror) -> None:
    mirror.stop()
    with pytest.raises(InfraError, match="no index of Packages is cached"):
        qemu.fetch_qemu(None, "amd64")


# -- CPUs ----------------------------------------------------------------------------------------


LACKING = """\
q: warning: TCG doesn't support requested feature: CPUID.01H:ECX.pcid [bit 17]
q: warning: TCG doesn't support requested feature: CPUID.07H:EBX.avx512f [bit 16]
q: TCG doesn't support requested features
"""


def saying(folder: Path, words: str, status: int) -> qemu.Qemu:
    """A QEMU that ends so; its command line is kept beside it."""
    heard = f'printf "%s\\n" "$@" > {folder}/told; cat > {folder}/heard\n'
    ends = f"printf %s {shlex.quote(words)} >&2; exit {status}"
    return qemu.Qemu(program=script(folder / "qemu", heard + ends), version="10.0.2")


def asked(name: str, arch: str = "amd64") -> MachineSettings:
    return MachineSettings(cpu_model=name, arch=arch)


@pytest.mark.parametrize(
    ("name", "said", "told"),
    [
        ("foo", "q: unable to find CPU model 'foo'\n", "has no CPU foo: unable to find CPU model"),
        ("qemu64,+foo", "q: Property 'x.foo' not found\n", "Property 'x.foo' not found; take a"),
        ("foo", "", "has no CPU foo; take a preset: everyday, icelake, zen3; or max"),
        ("Sky", LACKING, "write what it gives: Sky,pcid=off,avx512f=off; or"),
        ("qemu64,+pcid,+avx2,avx512f=on", LACKING, "write what it gives: qemu64,+avx2; or"),
        ("Sky,+avx512f", LACKING, "cannot give all of the CPU Sky,+avx512f; write what it"),
    ],
)
def test_what_qemu_does_not_give_is_wrong_input(
    name: str, said: str, told: str, tmp_path: Path
) -> None:
    with pytest.raises(SpecError) as caught:
        qemu.check_cpu(saying(tmp_path, said, 1), asked(name))
    assert told in caught.value.sentence()


def test_a_cpu_is_made_whole_and_its_machine_ends(tmp_path: Path) -> None:
    qemu.check_cpu(saying(tmp_path, "", 0), asked("qemu64,+avx2"))
    words = (tmp_path / "told").read_text().splitlines()
    assert words[words.index("-cpu") + 1] == "qemu64,+avx2,enforce=on"
    assert (tmp_path / "heard").read_text() == "quit\n"
    qemu.check_cpu(saying(tmp_path, "", 0), asked("cortex-a57", "arm64"))
    assert "cortex-a57" in (tmp_path / "told").read_text().splitlines()


def test_presets_start_nothing(tmp_path: Path) -> None:
    qemu.check_cpu(saying(tmp_path, "no", 1), asked("everyday"))
    assert not (tmp_path / "told").exists()
