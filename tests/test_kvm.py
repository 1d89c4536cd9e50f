# SPDX-License-Identifier: GPL-2.0-or-later
"""Timed guests: QEMU's command line, pinned virtual CPUs, and what a KVM that fails is told by.

A program that plays QEMU stands in at the process border, because few machines that run tests have
a KVM that boots kernels.
"""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import pytest

import fake_qemu
from kdelta import arch, guest
from kdelta.errors import InfraError, SpecError
from kdelta.guests import kvm, qemu
from kdelta.guests.qemu import Qemu
from kdelta.machine.axes import MachineSettings

HOST = next((a for a in arch.ARCHES.values() if a.uname == platform.machine()), None)
pytestmark = pytest.mark.skipif(HOST is None, reason="no guest architecture is this machine's")
CPUS = sorted(os.sched_getaffinity(0))


@pytest.fixture
def emulator(tmp_path: Path) -> Qemu:
    return fake_qemu.install(tmp_path, "hangs")


@pytest.fixture(autouse=True)
def _initramfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake reads none."""
    monkeypatch.setattr(guest, "initramfs", lambda *_: tmp_path / "initramfs.cpio")


def settings(cpus: int = 1, name: str = "") -> MachineSettings:
    assert HOST is not None
    return MachineSettings(
        arch=name or HOST.debian, cpus=cpus, memory_mib=512, cpu_model="host", cmdline="quiet"
    )


def started(folder: Path, behaviour: str, cpus: int = 1) -> kvm.KvmGuest:
    emulator = fake_qemu.install(folder, behaviour)
    return kvm.KvmGuest(emulator, settings(cpus), Path("/kernel"), CPUS[:cpus])


def test_every_vcpu_thread_is_pinned_and_the_others_keep_away(tmp_path: Path) -> None:
    count = min(2, len(CPUS))
    with started(tmp_path, "hangs", count) as machine:
        assert list(machine.pinned.values()) == CPUS[:count]
        tasks = {int(path.name) for path in Path(f"/proc/{machine._child.pid}/task").iterdir()}
        assert machine.pinned.keys() < tasks
        for thread, cpu in machine.pinned.items():
            assert os.sched_getaffinity(thread) == {cpu}
        assert os.sched_getaffinity(machine._child.pid) == (set(CPUS[count:]) or set(CPUS))
    assert set(CPUS) == os.sched_getaffinity(0)


def test_kvm_that_stops_is_this_machines_fault_and_known_at_once(tmp_path: Path) -> None:
    begun = time.monotonic()
    with (
        started(tmp_path, "breaks KVM") as machine,
        pytest.raises(InfraError, match=r"KVM cannot run this guest: KVM internal .* Suberror: 1"),
    ):
        machine.finish(60)
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("refuses", r"QEMU: .*invalid option"),
        ("hides a thread", r"QEMU has 0 vCPU threads, 1 were asked for"),
        ("names no thread", r"QEMU does not tell its vCPU threads: .*'all'"),
    ],
)
def test_what_qemu_does_not_do_is_this_machines_fault(
    tmp_path: Path, behaviour: str, words: str
) -> None:
    with pytest.raises(InfraError, match=words):
        started(tmp_path, behaviour)


def test_threads_are_in_order_of_their_cpus() -> None:
    rows = [{"cpu-index": 1, "thread-id": 11}, {"cpu-index": 0, "thread-id": 10}]
    assert kvm.vcpu_threads(rows) == (10, 11)
    for bad in ("text", [3], [{"cpu-index": 0}], [{"cpu-index": 0, "thread-id": 0}]):
        with pytest.raises(InfraError, match="does not tell its vCPU threads"):
            kvm.vcpu_threads(bad)


def test_cpus_must_be_as_many_as_the_guests(emulator: Qemu) -> None:
    with pytest.raises(SpecError, match="2 virtual CPUs cannot be pinned to 1 CPUs"):
        kvm.KvmGuest(emulator, settings(2), Path("/kernel"), CPUS[:1])


def test_cpu_outside_this_machine_is_an_error_and_ends_qemu(emulator: Qemu) -> None:
    with pytest.raises(InfraError, match="cannot be pinned to CPU 4095"):
        kvm.KvmGuest(emulator, settings(), Path("/kernel"), [4095])


def command(emulator: Qemu, wanted: MachineSettings, **launch: object) -> list[str]:
    channels = qemu.Channels(port=3, serial=4, console=5, orders=7, qmp=6)
    files = {"image": Path("/kernel"), "initramfs": Path("/initramfs")}
    return qemu.command(emulator, wanted, qemu.Launch(**files, **launch), channels)  # type: ignore[arg-type]


def test_command_line_of_a_pc(emulator: Qemu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    wanted = settings(2, "amd64")
    firmware = list(emulator.arguments)
    found = command(emulator, wanted, accelerator=qemu.Accelerator.KVM, hugetlb=True)
    assert [str(word) for word in found] == [
        *(str(emulator.program), *firmware),
        *("-no-user-config", "-nodefaults", "-display", "none", "-nic", "none", "-no-reboot"),
        "-sandbox",
        "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
        *("-accel", "kvm", "-M", "q35,memory-backend=ram"),
        *("-smp", "2", "-m", "512", "-cpu", "host"),
        *("-object", "memory-backend-memfd,id=ram,size=512M,hugetlb=on,prealloc=on"),
        *("-kernel", "/kernel", "-initrd", "/initramfs"),
        *("-append", wanted.full_cmdline),
        *("-chardev", "file,id=console,path=/proc/self/fd/5", "-serial", "chardev:console"),
        *("-chardev", "file,id=serial,path=/proc/self/fd/4", "-serial", "chardev:serial"),
        *("-chardev", "file,id=port,path=/proc/self/fd/3"),
        *("-device", "virtio-serial-pci,ioeventfd=off"),
        *("-device", "virtserialport,chardev=port,name=kdelta.0", "-device", "i6300esb"),
        *("-fw_cfg", "name=opt/org.kdelta/orders,file=/proc/self/fd/7"),
        *("-fw_cfg", "name=opt/org.kdelta/program,file=/dev/null"),
        *("-chardev", "socket,id=qmp,fd=6", "-mon", "qmp,mode=control"),
    ]


def test_timed_guest_has_this_machines_cpu_and_no_plugin(tmp_path: Path) -> None:
    with started(tmp_path, "hangs") as machine:
        argv = [str(word) for word in machine.argv]
    assert argv[argv.index("-accel") + 1] == "kvm"
    assert argv[argv.index("-cpu") + 1].partition(",")[0] == "host"
    assert not {"-plugin", "-incoming", "-icount"} & set(argv)


def test_arm_gets_the_hosts_interrupt_controller_and_cpu(emulator: Qemu) -> None:
    wanted = settings(1, "arm64")
    found = command(emulator, wanted, accelerator=qemu.Accelerator.KVM)
    assert "virt,gic-version=host,memory-backend=ram" in found
    assert kvm.cpu_model(wanted) == "host"
    assert "virt,memory-backend=ram" in command(emulator, wanted)  # TCG keeps QEMU's own


MEMINFO = "HugePages_Total:  {}\nHugePages_Free:   {}\nHugepagesize:     2048 kB\n"


def meminfo(root: Path, text: str) -> Path:
    (root / "proc").mkdir()
    (root / "proc/meminfo").write_text(text)
    return root


def test_huge_pages_must_be_there_first(tmp_path: Path) -> None:
    root = meminfo(tmp_path, MEMINFO.format(300, 200))
    kvm.require_hugepages(400, root)
    with pytest.raises(InfraError, match="256 huge pages of 2048 KiB are needed and 200") as caught:
        kvm.require_hugepages(512, root)
    assert caught.value.action == "reserve them with: sudo sysctl vm.nr_hugepages=356"
    with pytest.raises(SpecError, match="401 MiB is no multiple of a huge page of 2 MiB"):
        kvm.require_hugepages(401, root)


@pytest.mark.parametrize("text", ["", "HugePages_Free: many\n", "Hugepagesize: 0 kB\n"])
def test_kernel_without_huge_pages(tmp_path: Path, text: str) -> None:
    with pytest.raises(InfraError, match="this kernel has no huge pages to reserve"):
        kvm.require_hugepages(512, meminfo(tmp_path, text))


def test_guest_of_another_architecture_cannot_be_timed() -> None:
    assert HOST is not None
    other = next(name for name in arch.ARCHES if name != HOST.debian)
    with pytest.raises(SpecError, match=f"KVM runs {HOST.uname} guests on this machine, not "):
        kvm.require(settings(name=other))


def test_machine_without_kvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kvm, "DEVICE", tmp_path / "no-kvm")
    with pytest.raises(InfraError, match=r"no guest can be timed here.*no-kvm") as caught:
        kvm.require(settings())
    assert caught.value.action.endswith('or count with the instrument "exact"')
