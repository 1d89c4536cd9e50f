# SPDX-License-Identifier: GPL-2.0-or-later
"""What this machine is, what of that spoils its times, and waiting until it is quiet.

Everything is read back, nothing is assumed: what cannot be read is None, what can be read and is
empty is "none".
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import os
import platform
import re
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kdelta import elf, process
from kdelta.errors import InfraError, as_root
from kdelta.machine.identity import MachineSeen
from kdelta.metric import plural
from kdelta.printable import printable
from kdelta.procfs import chosen, compiler_in, cpu_list, meminfo
from kdelta.sample import HostFacts, MachineFacts
from kdelta.source import kconfig

NONE = "none"

_MAX_BYTES = 2 << 20  # /proc/sys refuses to be read by 4 MiB at once
_TOOL_S = 10.0
_CPUS = "sys/devices/system/cpu"
_CLOCK = "sys/devices/system/clocksource/clocksource0/current_clocksource"
_THP = "sys/kernel/mm/transparent_hugepage"
_WORDS = {
    "release": "proc/sys/kernel/osrelease",
    "build": "proc/sys/kernel/version",
    "version": "proc/version",
    "boot_id": "proc/sys/kernel/random/boot_id",
    "smt": f"{_CPUS}/smt/control",
    "numa_balancing": "proc/sys/kernel/numa_balancing",
    "ksm": "sys/kernel/mm/ksm/run",
}
_EACH_CPU = {"governor": "scaling_governor", "epp": "energy_performance_preference"}
_CLOCK_READS, _CLOCK_S = 2000, 0.05
_CPU_LINE = re.compile(r"cpu(\d*) +(\d+(?: \d+){7,})")
_STEAL = 7  # user nice system idle iowait irq softirq steal: proc(5)
_COUNTED = 8  # guest time, behind steal, is within user time already
_IDLE = (3, 4)
_DMI_UNKNOWN, _DMI_EXTENDED, _DMI_IN_KIB = 0xFFFF, 0x7FFF, 0x8000  # sizes of a memory module
# In the order of kernel/Kconfig.preempt.
_PREEMPT_OPTIONS = {
    "PREEMPT_NONE": "none",
    "PREEMPT_VOLUNTARY": "voluntary",
    "PREEMPT": "full",
    "PREEMPT_LAZY": "lazy",
    "PREEMPT_RT": "rt",
}
_PREEMPT_BUILD = re.compile(r"\bPREEMPT(?:_(RT|LAZY|DYNAMIC))?\b")
_ARM_CPU = re.compile(r"^CPU (implementer|part)\s*: (\w+)", re.M)


def read(root: Path = Path("/"), *, cpus: Collection[int] = ()) -> HostFacts:
    """What this machine is.  root: of /proc and /sys; programs are asked about the real one only.
    cpus: whose time is in steal_ticks and total_ticks; all when empty.
    """
    words: dict[str, Any] = {name: _word(root / path) for name, path in _WORDS.items()}
    for name, file in _EACH_CPU.items():
        paths = root.glob(f"{_CPUS}/cpu[0-9]*/cpufreq/{file}")
        words[name] = ",".join(sorted({_word(path) or "unknown" for path in paths})) or None
    memory = meminfo(root)
    swap, free = memory.get("SwapTotal"), memory.get("SwapFree")
    real = root == Path("/")
    info = text_of(root / "proc/cpuinfo")
    no_turbo = text_of(root / _CPUS / "intel_pstate/no_turbo")
    boost = text_of(root / _CPUS / "cpufreq/boost")
    arm = " ".join(f"{key} {value}" for key, value in _ARM_CPU.findall(info)[:2])
    deadline = time.monotonic() + _CLOCK_S
    smallest = 0
    while not smallest and time.monotonic() < deadline:
        seen = [time.clock_gettime_ns(time.CLOCK_MONOTONIC) for _ in range(_CLOCK_READS)]
        smallest = min((b - a for a, b in itertools.pairwise(seen) if b > a), default=0)
    return HostFacts(
        seen=_seen(root),
        **words,
        **_activity(root, cpus),
        machine=platform.machine(),
        cpu_model=_field(info, "model name") or _field(info, "uarch") or arm or None,
        microcode=_field(info, "microcode") or None,
        turbo={"1": "off", "0": "on"}.get(no_turbo) or {"0": "off", "1": "on"}.get(boost),
        compiler=compiler_in(words["version"] or "") or None,
        build_id=_build_id(root),
        clock_resolution_ns=round(time.clock_getres(time.CLOCK_MONOTONIC) * 1e9),
        clock_step_ns=smallest or None,
        installed_mib=_installed_mib(root),
        swap_used_kib=None if swap is None or free is None else swap - free,
        virtualisation=(real and _detected()) or _virtualisation(root, info),
        failed_units=failed_units() if real else None,
    )


def idle_ticks(root: Path) -> tuple[int, int]:
    """Ticks in which this machine's CPUs were idle, and all of them."""
    ticks = next(_ticks(text_of(root / "proc/stat"), ()), (0,) * _COUNTED)
    return sum(ticks[n] for n in _IDLE), sum(ticks[:_COUNTED])


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as stream:
            return stream.read(_MAX_BYTES).decode(errors="replace").strip()
    except OSError:
        return None


def text_of(path: Path) -> str:
    """A small file's text without the blanks around it, "" when it cannot be read."""
    return _read(path) or ""


def _word(path: Path) -> str | None:
    """A sysfs value on one line: None when unreadable, "none" when empty."""
    text = _read(path)
    if text is None:
        return None
    line = " ".join(text.split())
    return NONE if line in ("", "(null)") else line


def _choice(path: Path) -> str | None:
    word = _word(path)
    return word and chosen(word)


def _field(text: str, name: str) -> str:
    match = re.search(rf"^{re.escape(name)}\s*: *(.*)$", text, re.M)
    return match[1].strip() if match else ""


def _seen(root: Path) -> MachineSeen:
    memory = meminfo(root).get("MemTotal")
    vulnerabilities = sorted((root / _CPUS / "vulnerabilities").glob("*"))
    return MachineSeen(
        cpus=len(cpu_list(text_of(root / _CPUS / "online"))) or None,
        memory_mib=None if memory is None else memory >> 10,
        nodes=len(list(root.glob("sys/devices/system/node/node[0-9]*"))) or None,
        cmdline=_word(root / "proc/cmdline"),
        thp=_choice(root / _THP / "enabled"),
        preempt=_preempt(root),
        clocksource=_word(root / _CLOCK),
        mitigations=tuple(f"{path.name}: {_word(path) or 'unknown'}" for path in vulnerabilities),
    )


def _build_id(root: Path) -> str | None:
    with contextlib.suppress(OSError):
        return elf.build_id((root / "sys/kernel/notes").read_bytes()[:_MAX_BYTES]) or None
    return None


def _preempt(root: Path) -> str | None:
    """How the kernel preempts itself: the scheduler itself is the best witness."""
    told = _choice(root / "sys/kernel/debug/sched/preempt")
    if told not in (None, NONE):
        return told
    build = _PREEMPT_BUILD.search(text_of(root / "proc/sys/kernel/version"))
    if build and build[1] != "DYNAMIC":
        return (build[1] or "full").lower()
    if asked := re.findall(r"(?<!\S)preempt=(\S+)", text_of(root / "proc/cmdline")):
        return str(asked[-1])
    options = kconfig.parse(_configuration(root))
    return next((how for name, how in _PREEMPT_OPTIONS.items() if options.get(name) == "y"), None)


def _configuration(root: Path) -> str:
    try:
        with gzip.open(root / "proc/config.gz") as stream:
            return stream.read(_MAX_BYTES).decode(errors="replace")
    except (OSError, EOFError, zlib.error):
        release = text_of(root / "proc/sys/kernel/osrelease").replace("/", "")
        return text_of(root / "boot" / f"config-{release}")


def _installed_mib(root: Path) -> int | None:
    """The sum of the memory modules that the firmware tells (DMI type 17, SMBIOS 7.18)."""
    found = 0
    for path in root.glob("sys/firmware/dmi/entries/17-*/raw"):
        entry = b""
        with contextlib.suppress(OSError):  # only root may
            entry = path.read_bytes()
        size = int.from_bytes(entry[12:14], "little")
        if len(entry) < 14 or size == _DMI_UNKNOWN:
            return None
        if size == _DMI_EXTENDED:
            size = int.from_bytes(entry[28:32], "little") & 0x7FFFFFFF
        elif size & _DMI_IN_KIB:
            size = (size & ~_DMI_IN_KIB) >> 10
        found += size
    return found or None


def _activity(root: Path, cpus: Collection[int]) -> dict[str, Any]:
    text = text_of(root / "proc/stat")
    ticks = list(_ticks(text, cpus))
    load = re.match(r"\d+\.\d+ ", text_of(root / "proc/loadavg"))
    return {
        "load": float(load[0]) if load else None,
        "steal_ticks": sum(row[_STEAL] for row in ticks) if ticks else None,
        "total_ticks": sum(sum(row[:_COUNTED]) for row in ticks) if ticks else None,
    }


def _ticks(text: str, cpus: Collection[int]) -> Iterator[tuple[int, ...]]:
    """The counters of /proc/stat (proc(5)): the sum's line, or those of some CPUs."""
    wanted = {str(cpu) for cpu in cpus} or {""}
    for number, counters in _CPU_LINE.findall(text):
        if number in wanted:
            yield tuple(map(int, counters.split()))


def _printed(*argv: str) -> process.Completed | None:
    with contextlib.suppress(InfraError):
        return process.run(argv, timeout=_TOOL_S, check=False)
    return None


def _detected() -> str:
    """What systemd knows of the hypervisor ("none" on bare metal); "" when it cannot be asked."""
    done = _printed("systemd-detect-virt", "--vm")
    word = done.stdout.strip() if done else ""
    return word if re.fullmatch(r"[a-z0-9-]{1,32}", word) else ""


def _virtualisation(root: Path, info: str) -> str | None:
    kind = _word(root / "sys/hypervisor/type")
    if kind not in (None, NONE):
        return kind
    flags = _field(info, "flags").split()  # only x86 has a flag that tells
    return ("hypervisor" if "hypervisor" in flags else NONE) if flags else None


def failed_units() -> str | None:
    """Names of systemd's failed units with commas; "none", or None without systemd."""
    done = _printed("systemctl", "--failed", "--plain", "--no-legend", "--no-pager")
    return units_of(done.stdout) if done and not done.returncode else None


def units_of(text: str) -> str:
    """Names of the units in a table of systemctl's, with commas, or "none"."""
    names = [line.split()[0] for line in text.splitlines() if line.split()]
    return printable(",".join(names), 500) or NONE


# Read by one instruction, no way out of the guest or through a bus.
_GOOD_CLOCKS = ("tsc", "arch_sys_counter", "riscv_clocksource")
_MOST_LOAD = 0.5  # runnable tasks per CPU, averaged over a minute
_MOST_STEAL = 0.001  # of a CPU's time
_QUIET_S, _QUIET_SHARE, _QUIET_IN_A_ROW = 0.25, 0.9, 3


def steal_between(before: HostFacts, after: HostFacts) -> float | None:
    """Share (0 to 1) of the CPUs' time that the hypervisor took; None when it cannot be told."""
    numbers = (before.steal_ticks, after.steal_ticks, before.total_ticks, after.total_ticks)
    stolen_before, stolen, all_before, every = (number or 0 for number in numbers)
    known = None not in numbers and every > all_before and stolen >= stolen_before
    return (stolen - stolen_before) / (every - all_before) if known else None


def since(before: HostFacts, leased: Sequence[int], after: HostFacts | None = None) -> MachineFacts:
    """A timed trial's machine before it, and what was taken until `after` (now) of its CPUs."""
    steal = steal_between(before, after or read(cpus=leased))
    return MachineFacts(host=before, doubts=objections(before, steal=steal))


def clock_tick_ns(host: HostFacts) -> int | None:
    """The coarser of what the clock claims and what it was seen to step by, in ns."""
    return max(filter(None, (host.clock_resolution_ns, host.clock_step_ns)), default=None)


def emulated(host: HostFacts) -> bool:
    """True where a program plays the CPU, so that times are that program's."""
    return host.virtualisation == "qemu" or "TCG" in (host.cpu_model or "")


def objections(host: HostFacts, *, steal: float | None = None) -> tuple[str, ...]:
    """What spoils times of this machine, and what changes that.  steal: of steal_between."""
    return (*_frequency_objections(host), *_clock_objections(host), *_noise_objections(host, steal))


def settle(
    timeout: float, cancelled: threading.Event, root: Path, ticks: Callable[[Path], tuple[int, int]]
) -> bool:
    """Wait for three quiet quarters of a second in a row (at least 90 % idle), as PID 1 does; False
    when it is busy for timeout seconds, or cancelled.  ticks: reads idle ticks, and all.
    """
    deadline, quiet, before = time.monotonic() + timeout, 0, ticks(root)
    while quiet < _QUIET_IN_A_ROW and time.monotonic() < deadline:
        if cancelled.wait(_QUIET_S):
            return False
        now = ticks(root)
        idle, total = now[0] - before[0], now[1] - before[1]
        quiet = quiet + 1 if total > 0 and idle >= _QUIET_SHARE * total else 0
        before = now
    return quiet == _QUIET_IN_A_ROW


def _set(value: str, path: str) -> str:
    shell = f"echo {value} > {path}"
    return shell if os.geteuid() == 0 else f"echo {value} | sudo tee {path}"


def _frequency_objections(host: HostFacts) -> Iterable[str]:
    governor, epp, virtual = host.governor, host.epp, host.virtualisation
    if governor and governor != "performance":
        command = as_root("cpupower frequency-set -g performance")
        yield f"the frequency governor is {governor}, not performance: {command}"
    elif epp and epp not in ("performance", "0"):
        path = f"/{_CPUS}/cpu*/cpufreq/energy_performance_preference"
        command = as_root(f"sh -c 'for f in {path}; do echo performance > $f; done'")
        yield f"the energy preference is {epp}, not performance: {command}"
    if not governor and virtual == NONE:
        yield "the frequency governor cannot be read: set the frequency fixed in the firmware"
    if host.turbo == "on":
        switch, off = Path(f"/{_CPUS}/intel_pstate/no_turbo"), _set("0", f"/{_CPUS}/cpufreq/boost")
        intel = "Intel" in (host.cpu_model or "") and switch.exists()
        off = _set("1", str(switch)) if intel else off
        yield f"turbo is on, so that the frequency follows heat and neighbours: {off}"
    if virtual not in (None, NONE):
        mend = "measure on bare metal for a time that others can reproduce"
        unseen = "its frequency and its neighbours cannot be seen from inside"
        yield f"this machine is virtual ({virtual}): {unseen}; {mend}"


def _clock_objections(host: HostFacts) -> Iterable[str]:
    source = host.seen.clocksource
    if source and source not in _GOOD_CLOCKS:
        wanted = {"x86_64": "tsc", "aarch64": "arch_sys_counter"}.get(host.machine or "")
        command = _set(wanted, f"/{_CLOCK}") if wanted else "choose the CPU's own counter"
        yield f"the clocksource is {source}, slow and coarse: {command}"
    tick = clock_tick_ns(host)
    if tick is not None and tick > 1_000_000:
        mend = "boot without highres=off and nohz=off, with CONFIG_HIGH_RES_TIMERS=y"
        yield f"the clock steps by {tick / 1e6:g} ms: {mend}"


def _noise_objections(host: HostFacts, steal: float | None) -> Iterable[str]:
    load, cpus = host.load, host.seen.cpus
    if load is not None and cpus and load / cpus > _MOST_LOAD:
        mend = "end them (see: top), or wait"
        yield f"the load is {load:g} on {plural(cpus, 'CPU')}, others are at work: {mend}"
    if steal is not None and steal > _MOST_STEAL:
        mend = "pin this guest's CPUs on its host, or measure on bare metal"
        yield f"the hypervisor took {steal:.2%} of the CPUs' time (steal): {mend}"
    if host.swap_used_kib:
        yield f"swap is in use ({host.swap_used_kib / 1024:.0f} MiB): {as_root('swapoff -a')}"
    if host.numa_balancing in ("1", "2", "3") and (host.seen.nodes or 1) > 1:
        yield f"NUMA balancing moves pages: {as_root('sysctl kernel.numa_balancing=0')}"
    if host.ksm == "1":
        yield f"KSM merges pages: {_set('0', '/sys/kernel/mm/ksm/run')}"
    if host.failed_units not in (None, NONE):
        why = f"failed units, which may restart in a loop: {host.failed_units}"
        yield f"{why}; see: systemctl --failed"
