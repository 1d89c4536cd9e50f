# SPDX-License-Identifier: GPL-2.0-or-later
"""Which QEMU is chosen, what it is asked to do, and our plugin."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from msgspec.structs import replace as replace_struct

from kdelta import arch, process
from kdelta.errors import BuildError, InfraError, SpecError
from kdelta.guests import qemu
from kdelta.guests.patches import table
from kdelta.machine.axes import MachineSettings
from kernel_tree import script

AMD64 = arch.of("amd64")
SETTINGS = MachineSettings(cpus=2, memory_mib=768, cpu_model="Skylake-Client", cmdline="a=b")
CHANNELS = qemu.Channels(port=3, serial=4, console=5, orders=6, qmp=7)


def program(folder: Path, says: str) -> Path:
    """A program that says this when asked for its version."""
    return script(folder / AMD64.qemu, f"echo '{says}'")


def of_version(version: str) -> qemu.Qemu:
    return qemu.Qemu(program=Path("/q"), version=version, plugins=True)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No QEMU but what a test makes."""
    monkeypatch.delenv("KDELTA_QEMU", raising=False)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin")
    real = process.which
    monkeypatch.setattr(
        process,
        "which",
        lambda name: (
            None
            if name.startswith("qemu") and str(real(name)).startswith(("/usr", "/bin"))
            else real(name)
        ),
    )


def test_the_one_on_path(tmp_path: Path) -> None:
    path = program(tmp_path / "bin", "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)")
    chosen = qemu.choose(AMD64)
    assert (chosen.program, chosen.version, chosen.release) == (path, "7.2.22", (7, 2))
    assert chosen.banner == "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)"
    assert qemu.choose(AMD64, "7.2") == chosen


@pytest.mark.parametrize(
    ("version", "plugins", "counts"),
    [
        ("7.2.22", True, False), ("9.2.4", True, False), ("10.0.2", True, True),
        ("10.0.2", False, False), ("10.2.1", True, True), ("11.1.0", True, False),
    ],
)  # fmt: skip
def test_what_counts(version: str, *, plugins: bool, counts: bool) -> None:
    assert qemu.counts(replace(of_version(version), plugins=plugins)) is counts
    assert not qemu.counts(replace(of_version(version), fault="does not start"))


def test_none_at_all() -> None:
    with pytest.raises(InfraError, match="qemu-system-x86_64 is not installed") as caught:
        qemu.choose(AMD64)
    assert "apt-get install qemu-system-x86" in caught.value.action
    assert "kdelta tools qemu fetch" in caught.value.action


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is fetched from the archive, which has every version."""
    wanted: list[str] = []

    def fetch(version: str, _guest: str, **_options: object) -> qemu.Qemu:
        wanted.append(version)
        return of_version(version)

    monkeypatch.setattr(qemu, "fetch_qemu", fetch)
    monkeypatch.setattr(qemu, "plugin", lambda: Path("/insns.so"))
    return wanted


def test_the_pinned_one_is_fetched_where_the_machines_own_is_another(
    tmp_path: Path, fetched: list[str]
) -> None:
    for own in ("7.2.22", "10.0.13", "11.1.0"):
        program(tmp_path / "bin", f"QEMU emulator version {own}")
        assert qemu.for_counting(AMD64).version == "10.0.2"
    program(tmp_path / "bin", "QEMU emulator version 10.0.2")  # not patched, so another
    assert qemu.for_counting(AMD64).program == Path("/q")
    assert fetched == ["10.0.2"] * 4


def test_where_the_pinned_one_is_fetched_no_other_is_started(
    tmp_path: Path, fetched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked = [
        qemu.Qemu(
            program=program(tmp_path / number, f"QEMU emulator version {number}"),
            guest="amd64",
            package=f"1:{number}+ds-1",
        )
        for number in ("10.0.2", "10.0.13")
    ]
    started: list[str] = []
    looked_at = qemu.examine

    def examine(place: qemu.Qemu) -> qemu.Qemu:
        started.append(place.package)
        return looked_at(place)

    monkeypatch.setattr(qemu, "unpacked_qemus", lambda _guest="": tuple(unpacked))
    monkeypatch.setattr(qemu, "examine", examine)
    assert qemu.for_counting(AMD64).version == "10.0.2"
    assert started == ["1:10.0.2+ds-1"]
    assert fetched == []
    assert next(qemu.find(AMD64)).version == "10.0.13"  # of others the newest is first


def test_another_of_its_series_where_the_archive_has_lost_the_pinned_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fetch(version: str, _guest: str, **_options: object) -> qemu.Qemu:
        if version == "10.0.2":
            raise SpecError("the archive has no QEMU 10.0.2")
        return of_version("10.0.14")

    monkeypatch.setattr(qemu, "fetch_qemu", fetch)
    monkeypatch.setattr(qemu, "plugin", lambda: Path("/insns.so"))
    assert qemu.for_counting(AMD64).version == "10.0.14"


def test_a_patched_one_is_another_emulator(
    tmp_path: Path, fetched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, mark = program(tmp_path / "own", "QEMU emulator version 10.0.2 (x)"), table().mark
    place = qemu.Qemu(program=path, guest="amd64", package="1:10.0.2+ds-1", patch=mark)
    found = qemu.examine(place)
    assert (found.version, found.release) == (f"10.0.2{mark}", (10, 0))
    assert found.banner == f"QEMU emulator version 10.0.2 (x) {mark}"
    assert found.is_version("10.0.2")
    assert found.is_version(f"10.0.2{mark}")
    assert not qemu.examine(replace(place, patch="")).is_version(f"10.0.2{mark}")
    # Where it is not here, the archive's is patched again, or is not the wanted one.
    assert not qemu.obtained(AMD64, f"10.0.2{mark}")
    assert fetched == ["10.0.2"]
    monkeypatch.setattr(qemu, "unpacked_qemus", lambda _guest="": (place,))
    assert qemu.obtained(AMD64, f"10.0.2{mark}")
    # A run that is resumed knows the copy's alone.
    assert qemu.not_turning(f"10.0.2{mark}+turns") == f"10.0.2{mark}"


def test_a_newer_one_serves_where_the_pinned_one_cannot_be_had(
    tmp_path: Path, fetched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(*_: object, **_options: object) -> qemu.Qemu:
        raise InfraError("no mirror answers")

    monkeypatch.setattr(qemu, "fetch_qemu", offline)
    program(tmp_path / "bin", "QEMU emulator version 7.2.22")
    with pytest.raises(InfraError, match="no mirror answers"):
        qemu.for_counting(AMD64)
    program(tmp_path / "bin", "QEMU emulator version 10.2.1")
    assert qemu.for_counting(AMD64).version == "10.2.1"
    program(tmp_path / "bin", "QEMU emulator version 10.0.2")
    assert qemu.for_counting(AMD64).version == "10.0.2"
    assert fetched == []


def test_a_wanted_version_that_is_not_here(tmp_path: Path) -> None:
    program(tmp_path / "bin", "QEMU emulator version 7.2.22")
    for wanted in ("10.0", "7.20", "7.2.2"):
        with pytest.raises(SpecError, match=f"no QEMU {wanted} here"):
            qemu.choose(AMD64, wanted)


def test_a_wanted_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program(tmp_path / "other", "QEMU emulator version 9.1.0")
    assert qemu.choose(AMD64, str(path)).program == path
    monkeypatch.setenv("KDELTA_QEMU", str(path))
    assert qemu.choose(AMD64).version == "9.1.0"
    with pytest.raises(SpecError, match="no such QEMU"):
        qemu.choose(AMD64, str(tmp_path / "nothing"))


def test_not_a_qemu_and_too_old_a_one(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="not a QEMU: it says 'GNU bash"):
        qemu.choose(AMD64, str(program(tmp_path / "a", "GNU bash, version 5")))
    old = str(program(tmp_path / "b", "QEMU emulator version 7.2.22"))
    assert qemu.choose(AMD64, old).version == "7.2.22"
    with pytest.raises(SpecError, match=r"QEMU 7\.2\.22 cannot count: 10\.x with") as caught:
        qemu.for_counting(AMD64, old)
    assert "kdelta then fetches 10.0.2" in caught.value.action


def test_a_qemu_that_was_ended_is_not_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    killed = replace(of_version(""), fault="qemu failed with exit status -9: no output")
    monkeypatch.setattr(qemu, "_pinned", lambda *_: killed)
    with pytest.raises(InfraError, match="exit status -9"):
        qemu.for_counting(AMD64)


LAUNCH = qemu.Launch(image=Path("/k/bzImage"), initramfs=Path("/k/initramfs"))


def line(launch: qemu.Launch, settings: MachineSettings = SETTINGS) -> list[tuple[str, str]]:
    """Options of the command line with their values."""
    return list(itertools.pairwise(qemu.command(of_version("10.0.2"), settings, launch, CHANNELS)))


def test_the_command_line() -> None:
    options = dict(line(replace(LAUNCH, program=Path("/p,q"), restore=Path("/c,d"))))
    assert options["-accel"] == "tcg"
    assert options["-cpu"] == "Skylake-Client"
    assert (options["-smp"], options["-m"]) == ("2", "768")
    assert options["-append"] == SETTINGS.full_cmdline
    assert options["-append"].endswith("jent_mod_init a=b")
    assert options["-incoming"] == "defer"
    assert options["-nic"] == "none"
    assert options["-fw_cfg"].endswith("file=/p,,q")
    assert options["-object"].endswith(",mem-path=/c,,d/ram,share=off,readonly=on,rom=off")
    assert {"-no-reboot", "-nodefaults", "-no-user-config"} <= options.keys()
    assert options["-sandbox"].startswith("on,")
    assert "-action" not in options


def test_a_restored_guest_gets_only_the_begin_of_its_kernel(tmp_path: Path) -> None:
    launch = replace(LAUNCH, restore=tmp_path)
    assert dict(line(launch))["-kernel"] == "/k/bzImage"  # a saved guest of before
    (tmp_path / qemu.BEGIN).touch()
    assert dict(line(launch))["-kernel"] == str(tmp_path / "kernel")
    assert dict(line(replace(LAUNCH, save=tmp_path)))["-kernel"] == "/k/bzImage"


def test_only_one_cpu_is_clocked_by_its_instructions() -> None:
    one = dict(line(LAUNCH, replace_struct(SETTINGS, cpus=1)))
    assert one["-icount"] == "shift=1,sleep=off"
    assert one["-rtc"] == "base=2026-01-01T00:00:00,clock=vm"
    assert one["-seed"] == "1"
    assert "-icount" not in dict(line(LAUNCH))


def test_the_memory_of_a_guest_that_is_saved_is_in_files() -> None:
    saved = line(replace(LAUNCH, save=Path("/c")))
    assert ("-object", "memory-backend-file,id=ram,size=768M,mem-path=/c/ram,share=on") in saved
    assert ("-action", "watchdog=pause") in saved
    assert ("-M", "q35,memory-backend=ram") in saved
    both = line(replace(LAUNCH, save=Path("/c")), replace_struct(SETTINGS, nodes=2))
    for node in (0, 1):
        backend = f"id=node{node},size=384M,mem-path=/c/node{node},share=on"
        assert ("-object", f"memory-backend-file,{backend}") in both
        assert ("-numa", f"node,nodeid={node},memdev=node{node},cpus={node}") in both
    assert ("-M", "q35") in both


def test_what_restores_is_told_before_qemu_starts() -> None:
    told = [json.loads(order) for order in qemu.restoring().splitlines()]
    assert [order["execute"] for order in told] == [
        "qmp_capabilities", "migrate-set-capabilities", "migrate-set-parameters",
        "migrate-incoming",
    ]  # fmt: skip
    assert told[-1]["arguments"] == {"uri": "file:/dev/fdset/1"}
    channels = replace(CHANNELS, state=9)
    argv = qemu.command(of_version("10.0.2"), SETTINGS, LAUNCH, channels)
    assert argv[argv.index("-add-fd") + 1] == "fd=9,set=1"
    assert 9 in channels.inherited
    assert "-add-fd" not in dict(line(LAUNCH))


@pytest.mark.parametrize(
    ("uid", "version", "elevates", "becomes"),
    [
        (1000, "10.0.2", "deny", None),
        (0, "10.0.2", "allow", ("-run-with", "user=65534:65534")),
        (0, "7.2.22", "allow", ("-runas", "65534:65534")),
    ],
)
def test_root_does_not_run_a_guest(
    uid: int,
    version: str,
    elevates: str,
    becomes: tuple[str, str] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: uid)
    argv = qemu.command(of_version(version), SETTINGS, LAUNCH, CHANNELS)
    told = list(itertools.pairwise(argv))
    assert f"elevateprivileges={elevates}," in dict(told)["-sandbox"]
    assert (becomes in told) if becomes else not {"-run-with", "-runas"} & set(argv)


def test_channels_that_are_not_there_are_not_inherited() -> None:
    assert CHANNELS.inherited == (3, 4, 5, 6, 7)
    assert qemu.Channels(port=3, serial=4, console=5, orders=6).inherited == (3, 4, 5, 6)


@pytest.mark.program
def test_the_plugin_is_named_with_its_files(tmp_path: Path) -> None:
    counting = qemu.CountingFiles(output=tmp_path / "a,b", events=tmp_path / "events")
    launch = qemu.Launch(image=Path("i"), initramfs=Path("r"), counting=counting)
    argv = qemu.command(of_version("10.0.2"), SETTINGS, launch, CHANNELS)
    library, output, events = argv[argv.index("-plugin") + 1].split(",", 1)[0], "a,,b", "events"
    assert Path(library).is_file()
    assert argv[argv.index("-plugin") + 1].endswith(
        f",out={tmp_path}/{output},events={tmp_path}/{events}"
    )
    told = qemu.CountingFiles(output=Path("a"), events=Path("b"), windows=24)
    assert told.options(of_version("10.0.2")) == "out=a,events=b,windows=24"
    patched = replace(of_version("10.0.2"), patch="+rep")
    assert told.options(patched) == "out=a,events=b,windows=24,flags=0x2c8"


@pytest.mark.program
def test_the_plugin_needs_only_what_its_interface_has() -> None:
    with qemu.plugin().open("rb") as stream:
        table = ELFFile(stream).get_section_by_name(".dynsym")
        assert isinstance(table, SymbolTableSection)
        symbols = {
            symbol.name: symbol["st_shndx"] != "SHN_UNDEF" for symbol in table.iter_symbols()
        }
    assert symbols["qemu_plugin_version"]
    assert symbols["qemu_plugin_install"]
    wanted = {name for name, defined in symbols.items() if name.startswith("qemu_") and not defined}
    assert "qemu_plugin_scoreboard_new" in wanted
    own = {name for name, defined in symbols.items() if defined and not name.startswith("_")}
    assert own == {"qemu_plugin_version", "qemu_plugin_install"}


def test_without_a_compiler_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qemu, "_CC", "no-such-gcc")
    with pytest.raises(BuildError, match="no C compiler no-such-gcc") as caught:
        qemu.plugin()
    assert "apt-get install gcc" in caught.value.action
