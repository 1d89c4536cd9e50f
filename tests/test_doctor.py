# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta doctor` on this machine, on one that has nothing, and on ones that misbehave."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from kdelta import cache, process
from kdelta.arch import ARCHES
from kdelta.cli.machines import doctor
from kdelta.doctor import capabilities
from kdelta.doctor.capabilities import EXACT_NEEDS, Capability, Usability, inventory, lacking
from kdelta.guests import kvm, qemu
from kdelta.guests.qemu import Qemu, examine
from kdelta.source import make
from kernel_tree import script
from test_kernels import bzimage

NAMES = {
    *("Python", "QEMU (amd64)", "QEMU (arm64)", "QEMU (riscv64)"),
    *("C compiler (amd64)", "C compiler (arm64)", "C compiler (riscv64)"),
    *("memory", "cache", "Debian sources", "KVM"),
    *("kernel builds", "clang", "bubblewrap"),
    *("ccache", "ssh"),
}


@pytest.fixture
def no_kvm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Unit tests boot nothing."""
    monkeypatch.setattr(kvm, "DEVICE", tmp_path / "no-kvm")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_kvm: None) -> Path:  # noqa: ARG001
    """A machine on which no program is installed; the directory that is its PATH, and apt's."""
    path = tmp_path / "bin"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setenv("KDELTA_APT_ETC", str(path))
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
        assert row.remedy or row.state is not Usability.MISSING


@pytest.mark.usefixtures("bare")
def test_bare_machine_lacks_everything_and_says_how_to_add_it(tmp_path: Path) -> None:
    rows = by_name(inventory(tmp_path))
    assert {"QEMU (amd64)", "C compiler (amd64)"} <= lacking(rows.values())
    assert rows["QEMU (amd64)"].state is Usability.MISSING
    assert rows["QEMU (amd64)"].remedy == ("bring a QEMU 10.0.2 here and name it: KDELTA_QEMU=PATH")
    for name, package in (
        ("C compiler (amd64)", "gcc libc6-dev"),
        ("C compiler (arm64)", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"),
        ("ccache", "ccache"),
        ("bubblewrap", "bubblewrap"),
        ("ssh", "openssh-client"),
    ):
        assert rows[name].state is Usability.MISSING
        assert rows[name].remedy.endswith(f"apt-get install {package}")
    assert rows["Debian sources"].state is Usability.ABSENT


def test_what_the_packages_configurations_need_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "missing", lambda options=frozenset(): ("dwarves",) * bool(options))
    assert "DEBUG_INFO_BTF" in make.OF_PACKAGES
    found = capabilities._builds()
    assert found.state is Usability.OK
    assert "config=package" in found.detail
    assert found.remedy.endswith("apt-get install dwarves")


@pytest.mark.usefixtures("bare")
def test_command_exits_with_3_and_names_what_lacks() -> None:
    done = CliRunner().invoke(doctor, [])
    assert done.exit_code == 3
    assert "Exact runs are not possible on this machine yet; it lacks:" in done.output
    assert "C compiler (amd64), QEMU (amd64)" in " ".join(done.output.split())
    lines = done.output.splitlines()
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if line != line.rstrip()]
    assert "\x1b" not in done.output
    assert done.stderr.startswith("finding out what this machine can do\n")
    assert "finding out" not in done.stdout
    assert not Path(os.environ["XDG_CACHE_HOME"]).exists()  # a look leaves nothing behind


@pytest.mark.usefixtures("bare")
def test_json_says_the_same_as_the_table() -> None:
    done = CliRunner().invoke(doctor, ["--json"])
    document = json.loads(done.stdout)
    assert done.exit_code == 3
    assert document["exact_runs_possible"] is False
    rows = {row["name"]: row for row in document["capabilities"]}
    assert set(rows) == NAMES
    assert rows["QEMU (amd64)"] == {
        "name": "QEMU (amd64)", "state": "missing",
        "detail": "no qemu-system-x86_64 that counts, and none can be fetched: "
        "no apt here: only file:PATH and tree:PATH kernels",
        "purpose": "exact runs, amd64", "remedy": rows["QEMU (amd64)"]["remedy"], "exact": True,
    }  # fmt: skip
    assert {name for name, row in rows.items() if row["exact"]} == EXACT_NEEDS


def test_exact_runs_need_one_usable_qemu_of_several() -> None:
    def row(name: str, state: Usability) -> Capability:
        return Capability(name=name, state=state, detail="", purpose="")

    others = [row(name, Usability.OK) for name in EXACT_NEEDS if name != "QEMU (amd64)"]
    broken, good = row("QEMU (amd64)", Usability.UNUSABLE), row("QEMU (amd64)", Usability.OK)
    assert lacking([*others, broken]) == {"QEMU (amd64)"}
    assert not lacking([*others, broken, good])
    assert not lacking([*others, broken, row("QEMU (amd64)", Usability.FETCHED)])
    assert lacking([]) == EXACT_NEEDS


def test_a_qemu_that_the_first_run_fetches_lacks_nothing(bare: Path, tmp_path: Path) -> None:
    """A fresh machine, as of Debian 12: apt, perhaps a QEMU that does not count, none of ours."""
    script(bare / "apt-get", "")
    sources = bare / "sources.list"
    sources.write_text("deb http://deb.example/debian bookworm main\n")
    for old in (False, True):
        if old:
            script(bare / "qemu-system-x86_64", "echo QEMU emulator version 7.2.22")
        tried: list[str] = []
        rows = inventory(tmp_path, tries=tried.append)
        *here, last = [row for row in rows if row.name == "QEMU (amd64)"]
        assert [row.state for row in here] == [Usability.UNUSABLE] * old
        assert last.state is Usability.FETCHED
        assert last.detail.startswith("10.0.2 is fetched by the first run that needs it; ")
        assert "configured: http://deb.example/debian (not contacted)" in last.detail
        assert not last.remedy
        assert "QEMU (amd64)" not in lacking(rows)
        assert tried == list(dict.fromkeys(row.name for row in rows))
    sources.write_text("deb http://deb.example/ubuntu jammy main\n")
    *_, last = [row for row in inventory(tmp_path) if row.name == "QEMU (amd64)"]
    assert last.state is Usability.MISSING
    assert last.detail.endswith("none can be fetched: no Debian mirror is configured")
    assert "add an apt source with a Debian suite" in last.remedy


def test_fetched_qemu_is_found_with_what_it_needs_to_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = script(tmp_path / "qemu", 'echo "QEMU emulator version $NUMBER"')
    place = Qemu(program=program, environment={"NUMBER": "10.0.2"}, guest="arm64", package="1:10")
    monkeypatch.setattr(qemu, "unpacked_qemus", lambda _guest="": (place,))
    *_, found = qemu.find(ARCHES["arm64"])
    assert (found.program, found.version, found.package) == (program, "10.0.2", "1:10")


def test_qemu_that_does_not_start(tmp_path: Path) -> None:
    broken = script(tmp_path / "broken", "echo libx.so.1: cannot open >&2; exit 127")
    other = script(tmp_path / "other", "echo hello")
    found = [examine(Qemu(program=path)) for path in (broken, other, tmp_path / "none")]
    assert [(one.version, one.plugins) for one in found] == [("", False)] * 3
    assert "libx.so.1: cannot open" in found[0].fault
    assert found[1].fault == "not a QEMU: it says 'hello'"
    assert found[2].fault == "cannot be read: No such file or directory"


def test_a_program_without_plugins_says_so_by_its_symbols() -> None:
    assert not qemu._has_plugins(Path(sys.executable).resolve())


@pytest.mark.skipif(process.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize(("suffix", "plugins"), [("", True), ("_of_another", False)])
def test_a_program_with_plugins_exports_their_interface(
    tmp_path: Path, suffix: str, *, plugins: bool
) -> None:
    built = tmp_path / "built"
    source = f"void qemu_plugin_register_vcpu_tb_trans_cb{suffix}(void) {{}}\n"
    subprocess.run(
        ["gcc", "-shared", "-nostdlib", "-x", "c", "-", "-o", built],
        input=source.encode(),
        check=True,
    )
    assert qemu._has_plugins(built) is plugins


def test_hanging_program_is_bounded(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capabilities, "_TIMEOUT_S", 0.3)
    monkeypatch.setattr(qemu, "_TIMEOUT_S", 0.3)
    for name in ("qemu-system-x86_64", "ccache"):
        script(bare / name, "exec /bin/sleep 60")
    started = time.monotonic()
    rows = inventory(tmp_path)
    assert time.monotonic() - started < 10
    assert by_name(rows)["ccache"].state is Usability.UNUSABLE
    hung = next(row for row in rows if row.name == "QEMU (amd64)")
    assert hung.state is Usability.UNUSABLE
    assert "did not end within" in hung.detail


def test_compiler_without_static_libc_is_unusable(bare: Path) -> None:
    target = next(a for a in ARCHES.values() if a.uname == os.uname().machine)
    script(bare / "gcc", "echo cannot find -lc >&2; exit 1")
    row = capabilities.guest_compiler(target)
    assert row.state is Usability.UNUSABLE
    assert "cannot find -lc" in row.detail
    assert row.remedy.endswith("apt-get install gcc libc6-dev")


def test_cache_that_cannot_be_written_or_is_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert capabilities.disk(tmp_path / "not" / "yet").state is Usability.OK
    monkeypatch.setattr(capabilities, "NEEDED_DISK", 1 << 60)
    assert capabilities.disk(tmp_path).state is Usability.UNUSABLE
    monkeypatch.setattr(capabilities, "NEEDED_DISK", 0)
    (tmp_path / "file").touch()
    assert capabilities.disk(tmp_path / "file" / "kdelta").state is Usability.UNUSABLE
    row = capabilities.disk(Path("/proc/kdelta"))
    assert row.state is Usability.UNUSABLE
    assert "not writable" in row.detail
    assert "XDG_CACHE_HOME" in row.remedy


@pytest.mark.usefixtures("no_kvm")
def test_kvm_without_a_device() -> None:
    seen = kvm.probe(Qemu(program=Path("/nonexistent/qemu")))
    assert (seen.boots, seen.detail.endswith("/no-kvm")) == (False, True)


def vmlinuz(place: Path, release: str) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(bzimage(release))
    return place


def test_a_kernel_at_hand_is_one_of_the_cache_else_of_boot(tmp_path: Path) -> None:
    assert kvm.kernel_at_hand(tmp_path / "boot") is None
    own = vmlinuz(tmp_path / "boot" / "vmlinuz-6.1.0-9", "6.1.0-9")
    (tmp_path / "boot" / "vmlinuz-broken").write_bytes(b"MZ" * 6000)
    assert kvm.kernel_at_hand(tmp_path / "boot") == (own, "6.1.0-9")

    def fetched(place: Path) -> None:
        vmlinuz(place / "vmlinuz", "6.17.8")

    folder = cache.entry("images", "a", fetched)
    assert kvm.kernel_at_hand(tmp_path / "boot") == (folder / "vmlinuz", "6.17.8")


def test_what_else_lies_in_the_cache_is_not_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source tree's half-built image, newer than all others, is no stock kernel."""
    vmlinuz(cache.root() / "trees" / "linux" / "arch" / "x86" / "boot" / "bzImage", "6.99")
    monkeypatch.setattr(os, "walk", lambda *_: pytest.fail("walks"))
    assert kvm.kernel_at_hand(tmp_path) is None


STUCK = r"Probing EDD (edd=off to disable)... ok\nKVM internal error. Suberror: 1\nextra data[0]\n"


@pytest.mark.parametrize(
    ("says", "boots", "told"),
    [
        (
            f"printf '{STUCK}'; sleep 60",
            False,
            "does not start: KVM internal error. Suberror: 1, an",
        ),
        ("exit 0", False, "6.17.8 does not start: QEMU ended with status 0: "),
        ("echo qemu: bad kernel; exit 1", False, "QEMU ended with status 1: qemu: bad kernel"),
        ("echo Booting; sleep 60", False, 'no kernel message in 1 s, last words "Booting"'),
        ("echo Linux version 6.17.8+ x; sleep 60", True, "stock kernel 6.17.8+ starts"),
    ],
)
def test_kvm_is_tried_with_a_stock_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, told: str, *, boots: bool
) -> None:
    monkeypatch.setattr(kvm, "DEVICE", Path("/dev/null"))
    monkeypatch.setattr(kvm, "_KERNEL_S", 1.0)
    program = tmp_path / "qemu"
    script(program, says)
    monkeypatch.setattr(kvm, "kernel_at_hand", lambda: None)
    assert kvm.probe(Qemu(program=program)).detail == "no kernel at hand to try"
    monkeypatch.setattr(kvm, "kernel_at_hand", lambda: (tmp_path / "vmlinuz", "6.17.8"))
    seen = kvm.probe(Qemu(program=program))
    assert seen.boots is boots
    assert told in seen.detail


# A plugin from the future: QEMU refuses it and names the newest interface it has.
FUTURE_PLUGIN = """\
int qemu_plugin_version = 1000000;
int qemu_plugin_install(void) { return 0; }
"""


@pytest.mark.boot
def test_a_qemu_that_counts_has_the_interface_of_our_plugin(tmp_path: Path) -> None:
    (tmp_path / "future.c").write_text(FUTURE_PLUGIN)
    argv = ["gcc", "-shared", "-fPIC", "-o", "future.so", "future.c"]
    subprocess.run(argv, cwd=tmp_path, check=True)
    qemu.for_counting(ARCHES["amd64"])
    for found in qemu.find(ARCHES["amd64"]):
        asked = [str(found.program), *found.arguments, "-machine", "none", "-display", "none"]
        asked += ["-plugin", str(tmp_path / "future.so")]
        told = process.run(asked, timeout=20, check=False, env=found.environment).stderr
        newest = re.search(r"this QEMU supports only up to version (\d+)", told)
        assert newest, told
        assert not qemu.counts(found) or int(newest[1]) >= 4, "see plugin/qemu_api.h"


@pytest.mark.boot
def test_doctor_on_this_machine_allows_exact_runs() -> None:
    qemu.for_counting(ARCHES["amd64"])  # as the first run does
    argv = [sys.executable, "-c", "from kdelta.cli.main import main; main()", "doctor", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {(row["name"], row["state"]) for row in json.loads(done.stdout)["capabilities"]}
    assert ("QEMU (amd64)", "ok") in found
    assert Path("/dev/kvm").exists() or ("KVM", "absent") in found
