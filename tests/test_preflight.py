# SPDX-License-Identifier: GPL-2.0-or-later
"""What a machine says of itself, on made-up ones and on this one, and what is objected to it."""

from __future__ import annotations

import gzip
import os
import platform
import threading
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from kdelta import procfs
from kdelta.host import facts
from kdelta.machine.identity import MachineSeen
from kdelta.sample import HostFacts
from kernel_tree import script

CPU = "sys/devices/system/cpu"
CLOCK = "sys/devices/system/clocksource/clocksource0/current_clocksource"
THP = "sys/kernel/mm/transparent_hugepage"
VERSION = (
    "Linux version 6.18.15+deb13-amd64 (x@y) (x86_64-linux-gnu-gcc-14 (Debian 14.2.0-19) 14.2.0, "
    "GNU ld (GNU Binutils) 2.44) #1 SMP PREEMPT_DYNAMIC Debian 6.18.15-1 (2026-01-01)\n"
)

GOOD = {
    "proc/sys/kernel/osrelease": "6.18.15+deb13-amd64\n",
    "proc/sys/kernel/version": "#1 SMP PREEMPT_DYNAMIC Debian 6.18.15-1 (2026-01-01)\n",
    "proc/version": VERSION,
    "proc/sys/kernel/random/boot_id": "7d63b9b8-dc72-4907-ab2f-200c21b25cb2\n",
    "proc/sys/kernel/numa_balancing": "0\n",
    "proc/cmdline": "root=/dev/sda1 isolcpus=2,3 rcu_nocbs=2-3 preempt=full\n",
    "proc/cpuinfo": (
        "processor\t: 0\nmodel name\t: Some CPU @ 2.30GHz\nmicrocode\t: 0x2b\nflags\t: fpu\n\n"
        "processor\t: 1\nmodel name\t: Some CPU @ 2.30GHz\nmicrocode\t: 0x2b\nflags\t: fpu\n"
    ),
    "proc/loadavg": "0.20 0.10 0.05 1/100 4242\n",
    "proc/meminfo": "MemTotal:  16384000 kB\nSwapTotal:   1048576 kB\nSwapFree:    1048576 kB\n",
    "proc/stat": (
        "cpu  100 0 50 800 5 0 5 40 7 0\n"
        "cpu0 60 0 30 390 5 0 5 10 7 0\ncpu1 40 0 20 410 0 0 0 30 0 0\n"
        "intr 1 2 3\nbtime 1\n"
    ),
    f"{CPU}/online": "0-3\n",
    f"{CPU}/smt/control": "off\n", f"{CPU}/intel_pstate/no_turbo": "1\n",
    f"{CPU}/cpu0/cpufreq/scaling_governor": "performance\n",
    f"{CPU}/cpu1/cpufreq/scaling_governor": "performance\n",
    f"{CPU}/cpu0/cpufreq/energy_performance_preference": "performance\n",
    f"{CPU}/vulnerabilities/meltdown": "Not affected\n",
    f"{CPU}/vulnerabilities/spectre_v2": "Mitigation: Retpolines\n", CLOCK: "tsc\n",
    f"{THP}/enabled": "always [madvise] never\n", "sys/kernel/mm/ksm/run": "0\n",
    "sys/devices/system/node/node0/cpulist": "0-3\n",
    "sys/kernel/debug/sched/preempt": "none voluntary (full) lazy\n",
}  # fmt: skip


def machine(root: Path, **changes: str | None) -> Path:
    """A root directory with a machine in it; changes by path, None takes a file away."""
    for name, content in {**GOOD, **changes}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is not None:
            path.write_text(content)
    return root


def changed(root: Path, changes: dict[str, str | None]) -> HostFacts:
    return facts.read(machine(root, **changes))


def test_everything_is_read_back(tmp_path: Path) -> None:
    found = facts.read(machine(tmp_path))
    assert found.machine == platform.machine()
    assert found.seen == MachineSeen(
        cpus=4, memory_mib=16000, nodes=1,
        cmdline="root=/dev/sda1 isolcpus=2,3 rcu_nocbs=2-3 preempt=full", thp="madvise",
        preempt="full", clocksource="tsc",
        mitigations=("meltdown: Not affected", "spectre_v2: Mitigation: Retpolines"),
    )  # fmt: skip
    wanted = {
        "release": "6.18.15+deb13-amd64",
        "build": "#1 SMP PREEMPT_DYNAMIC Debian 6.18.15-1 (2026-01-01)", "version": VERSION.strip(),
        "compiler": "x86_64-linux-gnu-gcc-14 (Debian 14.2.0-19) 14.2.0", "build_id": None,
        "boot_id": "7d63b9b8-dc72-4907-ab2f-200c21b25cb2", "cpu_model": "Some CPU @ 2.30GHz",
        "microcode": "0x2b", "governor": "performance", "epp": "performance", "turbo": "off",
        "smt": "off", "numa_balancing": "0", "ksm": "0", "swap_used_kib": 0, "load": 0.2,
        "steal_ticks": 40,
        "total_ticks": 1000,  # without the guest column, which user time holds already
        "virtualisation": "none", "failed_units": None,
    }  # fmt: skip
    assert {key: getattr(found, key) for key in wanted} == wanted
    assert facts.objections(found) == ()


def module(size: int, extended: int = 0) -> bytes:
    """A memory module as the firmware describes it: DMI type 17."""
    head = bytes((17, 40, 0, 16)) + bytes(8) + size.to_bytes(2, "little") + bytes(14)
    return head + extended.to_bytes(4, "little") + bytes(8)


@pytest.mark.parametrize(
    ("modules", "installed"),
    [
        ([], None),
        ([module(0), module(0)], None),  # two empty slots
        ([module(8192), module(0), module(8192)], 16384), ([module(0x7FFF, 65536)], 65536),
        ([module(0x8000 | 2048)], 2), ([module(8192), module(0xFFFF)], None),
        ([module(8192), b"cut"], None),
    ],
)  # fmt: skip
def test_installed_memory_is_what_the_firmware_tells(
    tmp_path: Path, modules: list[bytes], installed: int | None
) -> None:
    root = machine(tmp_path)
    for number, entry in enumerate(modules):
        path = root / f"sys/firmware/dmi/entries/17-{number}/raw"
        path.parent.mkdir(parents=True)
        path.write_bytes(entry)
    assert facts.read(root).installed_mib == installed


def test_what_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    found = facts.read(tmp_path)
    own = {"machine", "clock_resolution_ns", "clock_step_ns", "seen"}
    assert {getattr(found, key) for key in set(HostFacts.__struct_fields__) - own} == {None}
    assert found.seen == MachineSeen()
    assert facts.objections(found) == ()  # nothing is held against what nobody knows


def test_bare_metal_without_a_governor_is_objected_to(tmp_path: Path) -> None:
    root = machine(tmp_path)
    for path in root.glob(f"{CPU}/cpu*/cpufreq/*"):
        path.unlink()
    (objection,) = facts.objections(facts.read(root))
    assert "governor cannot be read" in objection


def test_garbage_and_binary_files_do_no_harm(tmp_path: Path) -> None:
    machine(tmp_path)
    for name in GOOD:
        (tmp_path / name).write_bytes(b"\xff\x00garbage" * 1000)
    found = facts.read(tmp_path)
    assert found.seen.cpus is None
    assert found.steal_ticks is None
    assert found.swap_used_kib is None
    facts.objections(found)


def test_ticks_of_chosen_cpus(tmp_path: Path) -> None:
    found = facts.read(machine(tmp_path), cpus=(1,))
    assert (found.steal_ticks, found.total_ticks) == (30, 500)


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [
        ((10, 1000), (11, 2000), 0.001),
        ((10, 1000), (10, 2000), 0.0),
        ((10, 1000), (10, 1000), None),  # no time has passed
        ((None, 1000), (11, 2000), None),
        ((10, 1000), (9, 2000), None),  # counters of two boots
    ],
)
def test_steal_between(
    before: tuple[int | None, int], after: tuple[int, int], share: float | None
) -> None:
    one, two = (HostFacts(steal_ticks=pair[0], total_ticks=pair[1]) for pair in (before, after))
    assert facts.steal_between(one, two) == share


def test_turbo_of_other_drivers(tmp_path: Path) -> None:
    none = machine(tmp_path)
    (none / CPU / "intel_pstate/no_turbo").unlink()
    assert facts.read(none).turbo is None
    (none / CPU / "cpufreq").mkdir()
    for value, turbo in (("1", "on"), ("0", "off")):
        (none / CPU / "cpufreq/boost").write_text(value)
        assert facts.read(none).turbo == turbo


DEBUG = "sys/kernel/debug/sched/preempt"
NO_WISH = {"proc/cmdline": "quiet\n"}


@pytest.mark.parametrize(
    ("changes", "config", "answer"),
    [
        ({}, "", "full"),
        (NO_WISH, "CONFIG_PREEMPT_LAZY=y\n", "lazy"),
        (NO_WISH, "# CONFIG_PREEMPT_NONE is not set\nCONFIG_PREEMPT=y\n", "full"),
        ({"proc/sys/kernel/version": "#1 SMP PREEMPT_RT x"}, "", "rt"),
        ({"proc/sys/kernel/version": "#1 SMP PREEMPT x"}, "", "full"),
        (NO_WISH, "", None),
    ],
)
def test_preemption_without_debugfs(
    tmp_path: Path, changes: dict[str, str], config: str, answer: str | None
) -> None:
    root = machine(tmp_path, **changes)
    (root / DEBUG).unlink()
    (root / "proc/config.gz").write_bytes(gzip.compress(config.encode()))
    assert facts.read(root).seen.preempt == answer


def test_preemption_by_the_configuration_in_boot(tmp_path: Path) -> None:
    root = machine(tmp_path, **NO_WISH)
    (root / DEBUG).unlink()
    (root / "boot").mkdir()
    (root / "boot/config-6.18.15+deb13-amd64").write_text("CONFIG_PREEMPT_VOLUNTARY=y\n")
    assert facts.read(root).seen.preempt == "voluntary"


def test_build_id_among_other_notes(tmp_path: Path) -> None:
    def note(kind: int, body: bytes, name: bytes = b"GNU\0") -> bytes:
        head = b"".join(n.to_bytes(4, "little") for n in (len(name), len(body), kind))
        return (
            head
            + name.ljust(-(-len(name) // 4) * 4, b"\0")
            + body.ljust(-(-len(body) // 4) * 4, b"\0")
        )

    root = machine(tmp_path)
    (root / "sys/kernel").mkdir(exist_ok=True, parents=True)
    notes = root / "sys/kernel/notes"
    notes.write_bytes(note(257, b"xyz", b"Linux\0") + note(3, bytes(range(20))))
    assert facts.read(root).build_id == bytes(range(20)).hex()
    notes.write_bytes(b"\xff" * 30)
    assert facts.read(root).build_id is None


ARM = "processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"


def test_arm_machines_name_their_cpu_otherwise(tmp_path: Path) -> None:
    found = changed(tmp_path, {"proc/cpuinfo": ARM, CLOCK: "arch_sys_counter"})
    assert found.cpu_model == "implementer 0x41 part 0xd0c"
    assert found.microcode is None
    assert found.virtualisation is None  # only x86 has a flag that tells
    assert facts.objections(found) == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({f"{CPU}/cpu1/cpufreq/scaling_governor": "powersave"}, "cpupower frequency-set"),
        ({f"{CPU}/cpu0/cpufreq/energy_performance_preference": "balance_power"},
         "energy preference is balance_power"),
        ({f"{CPU}/intel_pstate/no_turbo": "0"}, "turbo is on"),
        ({"proc/loadavg": "2.40 1 1 1/1 1"}, "the load is 2.4 on 4 CPUs"),
        ({CLOCK: "acpi_pm"}, "the clocksource is acpi_pm"),
        ({"proc/meminfo": "SwapTotal:   4096 kB\nSwapFree:    2048 kB\n"},
         "swap is in use (2 MiB)"),
        ({"proc/cpuinfo": "flags\t: fpu hypervisor\n"}, "this machine is virtual (hypervisor)"),
        ({"sys/hypervisor/type": "xen"}, "this machine is virtual (xen)"),
        ({"sys/kernel/mm/ksm/run": "1"}, "KSM merges pages"),
        ({"proc/sys/kernel/numa_balancing": "1", "sys/devices/system/node/node1/cpulist": "2-3"},
         "sysctl kernel.numa_balancing=0"),
    ],
)  # fmt: skip
def test_objections_say_what_is_wrong(tmp_path: Path, changes: dict[str, str], words: str) -> None:
    found = facts.objections(facts.read(machine(tmp_path, **changes)))
    assert len(found) == 1
    assert words in found[0]


def test_objections_carry_the_command_for_this_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = replace(changed(tmp_path, {CLOCK: "hpet"}), machine="x86_64")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert f"echo tsc | sudo tee /{CLOCK}" in facts.objections(found)[0]
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert f"echo tsc > /{CLOCK}" in facts.objections(found)[0]


def test_steal_clock_and_units_are_objected_to(tmp_path: Path) -> None:
    found = facts.read(machine(tmp_path))
    assert facts.objections(found, steal=0.001) == ()
    assert "took 0.25% of the CPUs' time" in facts.objections(found, steal=0.0025)[0]
    worse = replace(found, failed_units="a.service,b.service", clock_resolution_ns=4_000_000)
    first, second = facts.objections(worse)
    assert "the clock steps by 4 ms" in first
    assert "a.service,b.service" in second


def test_this_machine_answers_in_words() -> None:
    found = facts.read()
    assert found.release == platform.release()
    assert found.machine == platform.machine()
    assert found.seen.cpus
    assert found.seen.cpus >= len(os.sched_getaffinity(0))
    assert found.total_ticks
    assert found.clock_step_ns
    assert 0 < found.clock_step_ns < 20_000_000
    assert found.clock_resolution_ns
    tick = facts.clock_tick_ns(found)
    assert tick is not None
    assert tick >= found.clock_resolution_ns
    words = [getattr(found, name) for name in HostFacts.__struct_fields__]
    assert all(word.isprintable() for word in words if isinstance(word, str))
    assert all(": " in line for line in facts.objections(found))


def tool(folder: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script(folder / name, text)
    monkeypatch.setenv("PATH", str(folder))


def test_failed_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "bin"
    line = "x.service loaded failed failed A thing"
    tool(folder, "systemctl", f'echo "{line}"; echo "y.mount loaded failed failed B"', monkeypatch)
    assert facts.failed_units() == "x.service,y.mount"
    tool(folder, "systemctl", "true", monkeypatch)
    assert facts.failed_units() == "none"
    tool(folder, "systemctl", "exit 1", monkeypatch)
    assert facts.failed_units() is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert facts.failed_units() is None


def test_hypervisor_as_systemd_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path / "bin", "systemd-detect-virt", 'test "$1" = --vm && echo microsoft', monkeypatch)
    assert facts.read().virtualisation == "microsoft"
    tool(tmp_path / "bin", "systemd-detect-virt", "echo none; exit 1", monkeypatch)
    assert facts.read().virtualisation == "none"


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-3,8", (0, 1, 2, 3, 8)), ("5", (5,)), ("", ()), ("none", ()), ("0-99999999", ()),
        ("3-1", ()),
    ],
)  # fmt: skip
def test_cpu_lists(text: str, cpus: tuple[int, ...]) -> None:
    assert procfs.cpu_list(text) == cpus


def test_settling_waits_for_quiet_and_no_longer(tmp_path: Path) -> None:
    root, stop = machine(tmp_path), threading.Event()
    stat = root / "proc/stat"

    def pass_time(busy: int) -> None:
        for second in range(1000):
            idle = 0 if busy else 10
            stat.write_text(f"cpu  {second * 10 if busy else 0} 0 0 {second * idle} 0 0 0 0 0 0\n")
            if stop.wait(0.02):
                return

    for busy, quiet, timeout in ((0, True, 10.0), (1, False, 1.0)):
        stop.clear()
        clock = threading.Thread(target=pass_time, args=(busy,))
        clock.start()
        assert facts.settle(timeout, threading.Event(), root, facts.idle_ticks) is quiet
        stop.set()
        clock.join()


def test_settling_ends_when_cancelled(tmp_path: Path) -> None:
    cancelled = threading.Event()
    cancelled.set()
    begun = time.monotonic()
    assert not facts.settle(60.0, cancelled, machine(tmp_path), facts.idle_ticks)
    assert time.monotonic() - begun < 20
