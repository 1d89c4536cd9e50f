# SPDX-License-Identifier: GPL-2.0-or-later
"""Timed guests: QEMU's command line, pinned virtual CPUs, and what a KVM that fails is told by.

A program that speaks like QEMU (its control channel) and like PID 1 (orders and answers) stands in
at the process border, because few machines that run tests have a KVM that boots kernels.
"""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
from pathlib import Path

import pytest

from kdelta import arch, guest
from kdelta.errors import BootError, Cancelled, InfraError, SpecError
from kdelta.guests import kvm, orders, qemu
from kdelta.guests.qemu import Qemu, examine
from kdelta.machine.axes import MachineSettings, mismatches

FAKE_QEMU = r'''#!PYTHON -IS
"""QEMU and PID 1 of a guest in one.  MODE says what goes wrong."""
import json, os, re, socket, subprocess, sys, threading, time

if "--version" in sys.argv:
    print("QEMU emulator version 10.0.2 (made up)")
    sys.exit()
mode = os.environ.get("MODE", "")
words = " ".join(sys.argv)
qmp = socket.socket(fileno=int(re.search(r"socket,id=qmp,fd=(\d+)", words)[1]))
ends = {name: open(path, "wb", buffering=0)
        for name, path in re.findall(r"file,id=(\w+),path=(\S+)", words)}
files = dict(re.findall(r"name=opt/org.kdelta/(\w+),file=(\S+)", words))
cpus = int(re.search(r"-smp (\d+)", words)[1])
memory = int(re.search(r"-m (\d+)", words)[1])
if mode == "refused":
    sys.exit("qemu-system-x86_64: error: failed to set MSR 0x10a to 0x400000000a008021")
stop = threading.Event()
threads = [threading.Thread(target=stop.wait, daemon=True) for _ in range(cpus)]
for thread in threads:
    thread.start()

def control():
    """QMP over a socket: a client need not end its orders with a newline."""
    def tell(message):
        qmp.sendall(json.dumps(message).encode() + b"\r\n")

    version = {"qemu": {"major": 10, "minor": 0, "micro": 2}, "package": ""}
    tell({"QMP": {"version": version, "capabilities": []}})
    heard = ""
    while more := qmp.recv(4096).decode():
        heard = (heard + more).lstrip()
        try:
            order, end = json.JSONDecoder().raw_decode(heard)
        except ValueError:
            continue
        heard = heard[end:]
        answer = {}
        if order["execute"] == "query-cpus-fast":
            rows = [{"cpu-index": i, "thread-id": t.native_id} for i, t in enumerate(threads)]
            answer = rows[::-1] if mode != "one less" else rows[1:]
            if mode == "garbage":
                answer = [{"cpu-index": 0, "thread-id": "all"}]
        tell({"return": answer, "id": order.get("id")})

threading.Thread(target=control, daemon=True).start()
if mode == "internal":
    stop.wait(0.2)
    print("KVM internal error. Suberror: 1", file=sys.stderr, flush=True)
    stop.wait()  # QEMU stays, its guest stopped
if mode == "panic":
    stop.wait(0.2)
    ends["console"].write(b"Kernel panic - not syncing: VFS: Unable to mount root fs\n")
    sys.exit()
IDENTITY = """port virtio
release 6.18.15
machine MACHINE
build #1 SMP
version Linux version 6.18.15 (x@y) (gcc (GCC) 15.3.0) #1 SMP
build-id 00ff
cmdline CMDLINE
cpus CPUS
memory-mib MEMORY
nodes 1
swap
thp always [madvise] never
thp-shmem never
preempt none (full)
clocksource tsc
cpu GenuineIntel 606a6
"""
wanted = sys.argv[sys.argv.index("-append") + 1]
filled = {"MACHINE": os.uname().machine, "CMDLINE": wanted, "CPUS": cpus, "MEMORY": memory}
for name, value in filled.items():
    IDENTITY = IDENTITY.replace(name, str(value))
port = ends["port"]
greeting = IDENTITY.encode()
port.write(b"kdelta-ready 2 1 %d\n" % len(greeting) + greeting)

def answer(text, status=0):
    port.write(b"kdelta-answer %d %d\n" % (status, len(text)) + text)

stop.wait(0.5)  # it is pinned meanwhile
with open(files["orders"]) as orders:
    for line in orders:
        order = line.split()
        if order == ["identity"]:
            answer(IDENTITY.encode())
        elif order[:1] == ["run"]:
            done = subprocess.run([files["program"], *order[1:]], stdout=subprocess.PIPE)
            answer(done.stdout, done.returncode)
        elif order[:1] == ["hang"]:
            stop.wait()
os._exit(0)
'''
HOST = next((a for a in arch.ARCHES.values() if a.uname == platform.machine()), None)
pytestmark = pytest.mark.skipif(HOST is None, reason="no guest architecture is this machine's")
CPUS = sorted(os.sched_getaffinity(0))
IDENTITY = orders.Order("identity")


@pytest.fixture
def emulator(tmp_path: Path) -> Qemu:
    path = tmp_path / "qemu-fake"
    path.write_text(FAKE_QEMU.replace("PYTHON", sys.executable))
    path.chmod(0o755)
    return examine(Qemu(program=path))


@pytest.fixture(autouse=True)
def _initramfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake reads none."""
    monkeypatch.setattr(guest, "initramfs", lambda *_: tmp_path / "initramfs.cpio")


def settings(cpus: int = 1, name: str = "") -> MachineSettings:
    assert HOST is not None
    return MachineSettings(
        arch=name or HOST.debian, cpus=cpus, memory_mib=512, cpu_model="host", cmdline="quiet"
    )


def started(
    emulator: Qemu,
    monkeypatch: pytest.MonkeyPatch,
    mode: str = "",
    cpus: int = 1,
    told: tuple[orders.Order, ...] = (IDENTITY,),
    program: Path | None = None,
) -> kvm.KvmGuest:
    monkeypatch.setenv("MODE", mode)
    return kvm.KvmGuest(
        emulator, settings(cpus), Path("/kernel"), CPUS[:cpus], orders=told, program=program
    )


def test_guest_boots_and_runs_a_program(
    emulator: Qemu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\necho "$1 and $2"\nexit 7\n')
    program.chmod(0o755)
    told = (IDENTITY, orders.run(["this", "that"]))
    with started(emulator, monkeypatch, told=told, program=program) as machine:
        answers = machine.finish(20)
    identity = answers.identity(settings())
    assert answers.ran() == ("this and that\n", 7)
    assert identity.seen.clocksource == "tsc"
    assert mismatches(settings(), "6.18.15", identity) == ()


def test_every_vcpu_thread_is_pinned_and_the_others_keep_away(
    emulator: Qemu, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = min(2, len(CPUS))
    with started(emulator, monkeypatch, cpus=count) as machine:
        assert list(machine.pinned.values()) == CPUS[:count]
        tasks = {int(path.name) for path in Path(f"/proc/{machine._child.pid}/task").iterdir()}
        assert machine.pinned.keys() < tasks
        for thread, cpu in machine.pinned.items():
            assert os.sched_getaffinity(thread) == {cpu}
        assert os.sched_getaffinity(machine._child.pid) == (set(CPUS[count:]) or set(CPUS))
    assert set(CPUS) == os.sched_getaffinity(0)


def test_cancelling_ends_the_wait(emulator: Qemu) -> None:
    cancelled = threading.Event()
    image, hang = Path("/kernel"), [orders.Order("hang")]
    with kvm.KvmGuest(
        emulator, settings(), image, CPUS[:1], orders=hang, cancelled=cancelled
    ) as machine:
        cancelled.set()
        with pytest.raises(Cancelled):
            machine.finish(20)


def test_kvm_that_stops_is_this_machines_fault_and_known_at_once(
    emulator: Qemu, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = time.monotonic()
    with (
        started(emulator, monkeypatch, "internal") as machine,
        pytest.raises(InfraError, match=r"KVM cannot run this guest: KVM internal .* Suberror: 1"),
    ):
        machine.finish(60)
    assert time.monotonic() - begun < 20


def test_kernel_that_panics_is_the_kernels_fault(
    emulator: Qemu, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        pytest.raises(BootError, match="Kernel panic - not syncing: VFS"),
        started(emulator, monkeypatch, "panic") as machine,
    ):
        machine.finish(20)


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("refused", r"QEMU: .*failed to set MSR 0x10a"),
        ("one less", r"QEMU has 0 vCPU threads, 1 were asked for"),
        ("garbage", r"QEMU does not tell its vCPU threads: .*'all'"),
    ],
)
def test_what_qemu_does_not_do_is_this_machines_fault(
    emulator: Qemu, monkeypatch: pytest.MonkeyPatch, mode: str, words: str
) -> None:
    with pytest.raises(InfraError, match=words):
        started(emulator, monkeypatch, mode)


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


def test_timed_guest_has_this_machines_cpu_and_no_plugin(
    emulator: Qemu, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started(emulator, monkeypatch) as machine:
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


def test_nothing_is_counted_or_restored_under_kvm() -> None:
    counting = qemu.CountingFiles(output=Path("a"), events=Path("b"))
    for what in ({"counting": counting}, {"restore": Path("state")}):
        with pytest.raises(SpecError, match="instructions are counted under TCG only"):
            qemu.Launch(
                image=Path("i"), initramfs=Path("r"), accelerator=qemu.Accelerator.KVM, **what
            )


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
