# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta doctor` on this machine, on one that has nothing, and on ones that misbehave."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from kdelta import process
from kdelta.arch import ARCHES
from kdelta.cli.doctor import WIDTH, doctor
from kdelta.doctor import hardware, toolchain
from kdelta.doctor.capabilities import (
    EXACT_NEEDS,
    Capability,
    State,
    exact_runs_possible,
)
from kdelta.doctor.inventory import inventory
from kdelta.guests import emulators, kvm, qemu_archive
from kdelta.guests.emulators import Program
from kdelta.guests.kvm import Reach

NAMES = {
    *("Python", "QEMU (amd64)", "QEMU (arm64)", "QEMU (riscv64)"),
    *("C compiler (amd64)", "C compiler (arm64)", "C compiler (riscv64)"),
    *("memory", "cache", "Debian sources", "KVM", "PMU", "hugepages", "tracefs"),
    *("user namespaces", "kernel builds", "perf", "llvm-mca", "clang", "ccache"),
}


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def no_kvm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Unit tests boot nothing."""
    monkeypatch.setattr(kvm, "DEVICE", tmp_path / "no-kvm")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_kvm: None) -> Path:  # noqa: ARG001
    """A machine on which no program is installed; the directory that is its PATH."""
    path = tmp_path / "bin"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    return path


def by_name(rows: tuple[Capability, ...]) -> dict[str, Capability]:
    return {row.name: row for row in rows}


@pytest.mark.usefixtures("no_kvm")
def test_every_question_is_answered(tmp_path: Path) -> None:
    rows = inventory(tmp_path)
    assert {row.name for row in rows} == NAMES
    assert EXACT_NEEDS <= NAMES
    for row in rows:
        assert row.detail
        assert row.purpose
        assert row.remedy or row.state is not State.MISSING


@pytest.mark.usefixtures("bare")
def test_bare_machine_lacks_everything_and_says_how_to_add_it(tmp_path: Path) -> None:
    rows = by_name(inventory(tmp_path))
    assert not exact_runs_possible(rows.values())
    for name, package in (
        ("QEMU (amd64)", "qemu-system-x86, or without root: kdelta qemu fetch"),
        ("C compiler (amd64)", "gcc libc6-dev"),
        ("C compiler (arm64)", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"),
        ("perf", "linux-perf"),
        ("ccache", "ccache"),
    ):
        assert rows[name].state is State.MISSING
        assert rows[name].remedy.endswith(f"apt-get install {package}")
    assert rows["Debian sources"].state is State.ABSENT


@pytest.mark.usefixtures("bare")
def test_command_exits_with_3_and_names_what_lacks(tmp_path: Path) -> None:
    done = CliRunner().invoke(doctor, [])
    assert done.exit_code == 3
    assert "Exact runs are not possible on this machine yet; it lacks:" in done.output
    assert "C compiler (amd64), QEMU (amd64)" in done.output
    lines = done.output.splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert not [line for line in lines if line != line.rstrip()]
    assert "\x1b" not in done.output
    assert not (tmp_path / "xdg-cache").exists()  # a look leaves nothing behind


@pytest.mark.usefixtures("bare")
def test_json_says_the_same_as_the_table() -> None:
    done = CliRunner().invoke(doctor, ["--json"])
    document = json.loads(done.output)
    assert done.exit_code == 3
    assert document["exact_runs_possible"] is False
    rows = {row["name"]: row for row in document["capabilities"]}
    assert set(rows) == NAMES
    assert rows["QEMU (amd64)"] == {
        "name": "QEMU (amd64)",
        "state": "missing",
        "detail": "no qemu-system-x86_64",
        "purpose": "exact runs, amd64",
        "remedy": rows["QEMU (amd64)"]["remedy"],
        "exact": True,
    }
    assert {name for name, row in rows.items() if row["exact"]} == EXACT_NEEDS


def test_exact_runs_need_one_usable_qemu_of_several() -> None:
    def row(name: str, state: State) -> Capability:
        return Capability(name=name, state=state, detail="", purpose="")

    others = [row(name, State.OK) for name in EXACT_NEEDS if name != "QEMU (amd64)"]
    broken, good = row("QEMU (amd64)", State.UNUSABLE), row("QEMU (amd64)", State.OK)
    assert not exact_runs_possible([*others, broken])
    assert exact_runs_possible([*others, broken, good])
    assert not exact_runs_possible([])


def test_qemu_is_found_on_path_first(bare: Path) -> None:
    on_path = script(bare / "qemu-system-x86_64", "exit 0")
    assert emulators.find(ARCHES["amd64"]) == (Program(path=on_path),)
    assert emulators.find(ARCHES["arm64"]) == ()


def test_fetched_qemu_is_found_with_what_it_needs_to_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tree = qemu_archive.QemuTree(
        version="1:10.0.2+ds-2", guest_arch="arm64", prefix=tmp_path, host_arch="amd64"
    )
    script(tree.program, 'echo "QEMU emulator version $LD_LIBRARY_PATH"')
    monkeypatch.setattr(qemu_archive, "installed", lambda: (tree,))
    *_, found = emulators.find(ARCHES["arm64"])
    assert found.path == tree.program
    assert found.arguments == tree.arguments
    assert str(tmp_path) in process.run([str(found.path)], timeout=5, env=found.environment).stdout


def test_qemu_tells_its_newest_plugin_api(tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.fail("needs gcc: make setup")
    qemu = script(
        tmp_path / "qemu",
        'case "$*" in *--version*) echo "QEMU emulator version 10.0.2 (Debian 1)";; *)\n'
        'echo "Could not load plugin: plugin requires API version 1000000, but '
        'this QEMU supports only up to version 4" >&2; exit 1;; esac',
    )
    (found,) = emulators.examine([Program(path=qemu)])
    assert (found.version, found.plugin_api, found.proof) == ("10.0.2", 4, "asked")


def test_qemu_without_plugins_or_that_does_not_start(tmp_path: Path) -> None:
    banner = 'case "$*" in *--version*) echo "QEMU emulator version 8.0.0";; *) exit 1;; esac'
    without = script(tmp_path / "without", banner)
    broken = script(tmp_path / "broken", "echo libx.so.1: cannot open >&2; exit 127")
    other = script(tmp_path / "other", "echo hello")
    found = emulators.examine([Program(path=path) for path in (without, broken, other)])
    assert [(one.version, one.plugin_api) for one in found] == [
        ("8.0.0", None),
        ("", None),
        ("", None),
    ]
    assert "libx.so.1: cannot open" in found[1].proof
    assert found[2].proof == "is not QEMU"


def test_symbols_say_that_a_program_takes_no_plugins() -> None:
    api, why = emulators._api_of_symbols(Path(sys.executable).resolve())
    assert api is None
    assert why in {"built without plugins", "exports no symbols"}


def test_hanging_program_is_bounded(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "_TIMEOUT_S", 0.3)
    monkeypatch.setattr(emulators, "_TIMEOUT_S", 0.3)
    for name in ("qemu-system-x86_64", "ccache", "apt-get"):
        script(bare / name, "exec /bin/sleep 60")
    started = time.monotonic()
    rows = by_name(inventory(tmp_path))
    assert time.monotonic() - started < 10
    assert rows["ccache"].state is State.UNUSABLE
    assert rows["QEMU (amd64)"].state is State.UNUSABLE
    assert "did not end within" in rows["QEMU (amd64)"].detail
    assert "did not end within" in rows["Debian sources"].detail


def test_compiler_without_static_libc_is_unusable(bare: Path) -> None:
    target = next(a for a in ARCHES.values() if a.uname == os.uname().machine)
    script(bare / "gcc", "echo cannot find -lc >&2; exit 1")
    row = toolchain.compiler(target)
    assert row.state is State.UNUSABLE
    assert "cannot find -lc" in row.detail
    assert row.remedy.endswith("apt-get install gcc libc6-dev")


def test_debian_sources_are_those_of_apt(bare: Path) -> None:
    script(
        bare / "apt-get",
        "echo bookworm http://example.org/debian/\n"
        "echo stable https://example.com/repo/\n"
        "echo jammy http://example.net/ubuntu/",
    )
    row = toolchain.debian_sources(online=False)
    assert row.state is State.OK
    assert row.detail == "configured: bookworm, stable (not contacted)"
    script(bare / "apt-get", "echo jammy http://example.net/ubuntu/")
    assert toolchain.debian_sources(online=False).state is State.MISSING


def test_cache_that_cannot_be_written_or_is_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hardware.disk(tmp_path / "not" / "yet").state is State.OK
    monkeypatch.setattr(hardware, "NEEDED_DISK", 1 << 60)
    assert hardware.disk(tmp_path).state is State.UNUSABLE
    monkeypatch.setattr(hardware, "NEEDED_DISK", 0)
    row = hardware.disk(Path("/proc/kdelta"))
    assert row.state is State.UNUSABLE
    assert "not writable" in row.detail
    assert "XDG_CACHE_HOME" in row.remedy


def test_pmu_is_counted_or_absent_never_zero() -> None:
    row = hardware.pmu()
    if row.state is State.OK:
        counted = re.search(r"counted (\d+) ", row.detail)
        assert counted
        assert int(counted[1]) > 1000
    else:
        assert row.state in {State.ABSENT, State.UNUSABLE}
        assert "perf_event_open: E" in row.detail or row.detail == "counts nothing"


def test_kvm_without_a_device(tmp_path: Path, no_kvm: None) -> None:  # noqa: ARG001
    seen = kvm.probe(Program(path=Path("/nonexistent/qemu")), tmp_path)
    assert seen.reach is Reach.NO_DEVICE


def test_kernel_is_recognised_by_its_magic(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "vmlinuz-broken").write_bytes(b"MZ" * 600)
    assert kvm.find_kernel((tmp_path,)) is None
    image = bytearray(1024)
    image[0x202:0x206] = b"HdrS"
    (tmp_path / "a" / "vmlinuz-6.17.8").write_bytes(image)
    found = kvm.find_kernel((tmp_path / "none", tmp_path))
    assert found == tmp_path / "a" / "vmlinuz-6.17.8"
    assert kvm.release_of(found) == "vmlinuz-6.17.8"
    image[0x20E:0x210] = (0x100).to_bytes(2, "little")
    image[0x300:0x310] = b"6.17.8-x (a@b) #"
    found.write_bytes(image)
    assert kvm.release_of(found) == "6.17.8-x"


STUCK = b"""Probing EDD (edd=off to disable)... ok
KVM internal error. Suberror: 1
extra data[0]: 0x0000000000000001
"""


@pytest.mark.parametrize(
    ("ended", "log", "why"),
    [
        (None, STUCK, "KVM internal error. Suberror: 1, an instruction it cannot emulate"),
        (None, b"", "no kernel message in 20 s"),
        (None, b"Booting\n", 'no kernel message in 20 s, last words "Booting"'),
        (1, b"qemu: bad kernel\n", "QEMU ended with status 1: qemu: bad kernel"),
    ],
)
def test_why_a_stock_kernel_does_not_start(ended: int | None, log: bytes, why: str) -> None:
    assert kvm._why(ended, log) == why


def test_boot_sector_is_one_sector_that_a_bios_takes() -> None:
    assert len(kvm.BOOT_SECTOR) == 512
    assert kvm.BOOT_SECTOR[510:] == b"\x55\xaa"


@pytest.mark.boot
def test_boot_sector_runs_under_emulation() -> None:
    qemu = shutil.which("qemu-system-x86_64")
    assert qemu, "needs qemu-system-x86_64: make setup"
    with tempfile.TemporaryDirectory() as scratch:
        assert kvm.run_boot_sector(Program(path=Path(qemu)), "tcg", Path(scratch)) == ""


@pytest.mark.boot
def test_boot_sector_that_does_nothing_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe tells a sector that ran from one that only sits there."""
    qemu = shutil.which("qemu-system-x86_64")
    assert qemu, "needs qemu-system-x86_64: make setup"
    halting = b"\xfa\xf4\xeb\xfd".ljust(510, b"\0") + b"\x55\xaa"
    monkeypatch.setattr(kvm, "BOOT_SECTOR", halting)
    monkeypatch.setattr(kvm, "_SECTOR_S", 2.0)
    with tempfile.TemporaryDirectory() as scratch:
        assert "does not run" in kvm.run_boot_sector(Program(path=Path(qemu)), "tcg", Path(scratch))


@pytest.mark.boot
def test_real_qemu_says_which_plugin_api_it_has() -> None:
    (found, *_) = emulators.examine(emulators.find(ARCHES["amd64"]))
    assert found.proof == "asked"
    major, minor = (int(part) for part in found.version.split(".")[:2])
    assert found.plugin_api is not None
    if (major, minor) >= (9, 2):
        assert found.plugin_api >= 4
    else:
        assert found.plugin_api == {(9, 0): 2, (9, 1): 3}.get((major, minor), 1)
    by_symbols, _ = emulators._api_of_symbols(found.program.path)
    assert by_symbols is not None
    assert by_symbols <= found.plugin_api


@pytest.mark.boot
def test_doctor_on_this_machine_allows_exact_runs() -> None:
    argv = [sys.executable, "-c", "from kdelta.cli.main import main; main()", "doctor", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)["capabilities"]}
    assert rows["QEMU (amd64)"]["state"] == "ok"
    if not Path("/dev/kvm").exists():
        assert rows["KVM"]["state"] == "absent"
