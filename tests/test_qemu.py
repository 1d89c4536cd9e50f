# SPDX-License-Identifier: GPL-2.0-or-later
"""Which QEMU is chosen, what it is asked to do, and our plugin for each of its interfaces."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from kdelta import arch, process
from kdelta.errors import BuildError, InfraError, SpecError
from kdelta.guests import qemu
from kdelta.guests.emulator import Qemu, examine
from kdelta.guests.qemu import Channels, CountingFiles, Launch
from kdelta.machine.axes import MachineSettings

AMD64 = arch.of("amd64")
SETTINGS = MachineSettings(cpus=2, memory_mib=768, cpu_model="Skylake-Client", cmdline="a=b")
CHANNELS = Channels(port=3, serial=4, console=5, incoming=7)


def program(folder: Path, says: str) -> Path:
    """A program that says this when asked for its version."""
    folder.mkdir(exist_ok=True)
    path = folder / AMD64.qemu
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def of_version(version: str) -> Qemu:
    return Qemu(program=Path("/q"), banner="", version=version, api=1)


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
    ("version", "api"),
    [
        ("4.2.0", 1),
        ("7.2.22", 1),
        ("8.2.9", 1),
        ("9.0.0", 2),
        ("9.1.3", 3),
        ("9.2.0", 4),
        ("10.0.2", 4),
        ("11.1.0", 4),
    ],
)
def test_the_interface_follows_the_version(version: str, api: int, tmp_path: Path) -> None:
    path = program(tmp_path / "bin", f"QEMU emulator version {version}")
    assert examine(Qemu(program=path)).api == api


def test_none_at_all() -> None:
    with pytest.raises(InfraError, match="qemu-system-x86_64 is not installed") as caught:
        qemu.choose(AMD64)
    assert "apt-get install qemu-system-x86" in caught.value.action
    assert "kdelta qemu fetch" in caught.value.action


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
    old = qemu.choose(AMD64, str(program(tmp_path / "b", "QEMU emulator version 4.1.1")))
    with pytest.raises(InfraError, match=r"QEMU 4\.1\.1 has no usable plugin interface"):
        qemu.plugin(old)


def test_the_command_line() -> None:
    launch = Launch(
        image=Path("/k/bzImage"),
        initramfs=Path("/k/initramfs"),
        counting=None,
        program=Path("/p,q"),
        restore=Path("/state"),
    )
    argv = qemu.command(of_version("7.2.22"), SETTINGS, launch, CHANNELS)
    options = dict(itertools.pairwise(argv))
    assert options["-accel"] == "tcg"
    assert options["-cpu"] == "Skylake-Client"
    assert (options["-smp"], options["-m"]) == ("2", "768")
    assert options["-append"] == "console=ttyS0 quiet nokaslr panic=-1 a=b"
    assert options["-incoming"] == "fd:7"
    assert options["-nic"] == "none"
    assert options["-fw_cfg"].endswith("file=/p,,q")
    assert {"-no-reboot", "-nodefaults", "-no-user-config"} <= set(argv)
    assert options["-sandbox"].startswith("on,")
    newer = qemu.command(of_version("10.0.2"), SETTINGS, launch, CHANNELS)
    assert newer[newer.index("-incoming") + 1] == "file:/state"
    assert qemu.needs_open_checkpoint(of_version("7.2.22"))
    assert not qemu.needs_open_checkpoint(of_version("8.2.0"))


def test_channels_that_are_not_there_are_not_inherited() -> None:
    assert CHANNELS.inherited == (3, 4, 5, 7)
    assert Channels(port=3, serial=4, console=5).inherited == (3, 4, 5)


@pytest.mark.skipif(process.which("gcc") is None, reason="gcc is not installed")
def test_the_plugin_is_named_with_its_files(tmp_path: Path) -> None:
    counting = CountingFiles(output=tmp_path / "a,b", events=tmp_path / "events")
    launch = Launch(image=Path("i"), initramfs=Path("r"), counting=counting)
    argv = qemu.command(of_version("7.2.22"), SETTINGS, launch, CHANNELS)
    library, output, events = argv[argv.index("-plugin") + 1].split(",", 1)[0], "a,,b", "events"
    assert Path(library).is_file()
    assert f"out={tmp_path}/{output},events={tmp_path}/{events}" in argv[argv.index("-plugin") + 1]


@pytest.mark.skipif(process.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize("api", [1, 2, 3, 4])
def test_the_plugin_needs_only_what_its_interface_has(api: int) -> None:
    path = qemu.plugin(Qemu(program=Path("/q"), banner="", version="10.0.2", api=api))
    with path.open("rb") as stream:
        table = ELFFile(stream).get_section_by_name(".dynsym")
        assert isinstance(table, SymbolTableSection)
        symbols = {
            symbol.name: symbol["st_shndx"] != "SHN_UNDEF" for symbol in table.iter_symbols()
        }
    assert symbols["qemu_plugin_version"]
    assert symbols["qemu_plugin_install"]
    wanted = {name for name, defined in symbols.items() if name.startswith("qemu_") and not defined}
    assert ("qemu_plugin_scoreboard_new" in wanted) == (api >= 2)
    assert ("qemu_plugin_register_vcpu_insn_exec_inline" in wanted) == (api == 1)
    own = {name for name, defined in symbols.items() if defined and not name.startswith("_")}
    assert own == {"qemu_plugin_version", "qemu_plugin_install"}


def test_without_a_compiler_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qemu, "_CC", "no-such-gcc")
    with pytest.raises(BuildError, match="no C compiler no-such-gcc") as caught:
        qemu.plugin(of_version("7.2.22"))
    assert "apt-get install gcc" in caught.value.action
