# SPDX-License-Identifier: GPL-2.0-or-later
"""What makes the times of this machine untrustworthy, and waiting until it is quiet."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from kdelta.errors import as_root
from kdelta.host import facts
from kdelta.host.facts import NONE, idle_ticks
from kdelta.metric import plural
from kdelta.sample import HostFacts, MachineFacts

_CPUS = "sys/devices/system/cpu"
_CLOCK = "sys/devices/system/clocksource/clocksource0/current_clocksource"
# Read by one instruction, no way out of the guest or through a bus.
_GOOD_CLOCKS = ("tsc", "arch_sys_counter", "riscv_clocksource")
_MOST_LOAD = 0.5  # runnable tasks per CPU, averaged over a minute
_MOST_STEAL = 0.001  # of a CPU's time
_QUIET_S = 0.25
_QUIET_SHARE = 0.9
_QUIET_IN_A_ROW = 3


def steal_between(before: HostFacts, after: HostFacts) -> float | None:
    """Share (0 to 1) of the CPUs' time that the hypervisor took; None when it cannot be told."""
    numbers = (before.steal_ticks, after.steal_ticks, before.total_ticks, after.total_ticks)
    stolen_before, stolen_after, before_all, after_all = (number or 0 for number in numbers)
    if None in numbers or after_all <= before_all or stolen_after < stolen_before:
        return None
    return (stolen_after - stolen_before) / (after_all - before_all)


def since(before: HostFacts, leased: Sequence[int], after: HostFacts | None = None) -> MachineFacts:
    """Of a timed trial that has just ended: its machine before it, and what was taken since.

    leased: the CPUs that were the trial's; after: that machine now, by default this one.
    """
    steal = steal_between(before, after or facts.read(cpus=leased))
    return MachineFacts(
        host=before,
        steal_share=steal,
        leased=tuple(leased),
        doubts=objections(before, steal=steal),
    )


def clock_tick_ns(host: HostFacts) -> int | None:
    """The coarser of what the clock claims and what it was seen to step by, in ns."""
    return max(filter(None, (host.clock_resolution_ns, host.clock_step_ns)), default=None)


def emulated(host: HostFacts) -> bool:
    """True where a program plays the CPU, so that times are that program's."""
    return host.virtualisation == "qemu" or "TCG" in (host.cpu_model or "")


def objections(host: HostFacts, *, steal: float | None = None) -> tuple[str, ...]:
    """What makes times of this machine untrustworthy, in words, with the command that changes it.

    steal: share of the CPUs' time taken during a measurement (steal_between).  Empty: none known.
    """
    return (
        *_frequency_objections(host),
        *_clock_objections(host),
        *_noise_objections(host, steal),
    )


def settle(
    timeout: float,
    cancelled: threading.Event,
    root: Path = Path("/"),
    ticks: Callable[[Path], tuple[int, int]] = idle_ticks,
) -> bool:
    """Wait for three quiet quarters of a second in a row (at least 90 % idle), as PID 1 does.

    ticks: how the machine's idle ticks, and all of them, are read.  False when it was still busy
    after timeout seconds, or cancelled was set.
    """
    deadline = time.monotonic() + timeout
    quiet = 0
    before = ticks(root)
    while quiet < _QUIET_IN_A_ROW and time.monotonic() < deadline:
        if cancelled.wait(_QUIET_S):
            return False
        now = ticks(root)
        idle, total = now[0] - before[0], now[1] - before[1]
        quiet = quiet + 1 if total > 0 and idle >= _QUIET_SHARE * total else 0
        before = now
    return quiet == _QUIET_IN_A_ROW


def _set(value: str, path: str) -> str:
    """The command that writes a value into a file of the kernel."""
    shell = f"echo {value} > {path}"
    return shell if os.geteuid() == 0 else f"echo {value} | sudo tee {path}"


def _frequency_objections(host: HostFacts) -> Iterable[str]:
    governor, epp, virtual = host.governor, host.epp, host.virtualisation
    if governor and governor != "performance":
        yield (
            f"the frequency governor is {governor}, not performance: "
            + as_root("cpupower frequency-set -g performance")
        )
    elif epp and epp not in ("performance", "0"):
        path = f"/{_CPUS}/cpu*/cpufreq/energy_performance_preference"
        yield (
            f"the energy preference is {epp}, not performance: "
            + as_root(f"sh -c 'for f in {path}; do echo performance > $f; done'")
        )
    if not governor and virtual == NONE:
        yield "the frequency governor cannot be read: set the frequency fixed in the firmware"
    if host.turbo == "on":
        yield f"turbo is on, so that the frequency follows heat and neighbours: {_no_turbo(host)}"
    if virtual not in (None, NONE):
        yield (
            f"this machine is virtual ({virtual}): its frequency and its neighbours cannot be seen "
            "from inside; measure on bare metal for a time that others can reproduce"
        )


def _no_turbo(host: HostFacts) -> str:
    if "Intel" in (host.cpu_model or "") and Path(f"/{_CPUS}/intel_pstate/no_turbo").exists():
        return _set("1", f"/{_CPUS}/intel_pstate/no_turbo")
    return _set("0", f"/{_CPUS}/cpufreq/boost")


def _clock_objections(host: HostFacts) -> Iterable[str]:
    source = host.seen.clocksource
    if source and source not in _GOOD_CLOCKS:
        wanted = {"x86_64": "tsc", "aarch64": "arch_sys_counter"}.get(host.machine or "")
        command = _set(wanted, f"/{_CLOCK}") if wanted else "choose the CPU's own counter"
        yield f"the clocksource is {source}, slow and coarse: {command}"
    tick = clock_tick_ns(host)
    if tick is not None and tick > 1_000_000:
        yield (
            f"the clock steps by {tick / 1e6:g} ms: boot without highres=off and nohz=off, "
            "with CONFIG_HIGH_RES_TIMERS=y"
        )


def _noise_objections(host: HostFacts, steal: float | None) -> Iterable[str]:
    load, cpus = host.load, host.seen.cpus
    if load is not None and cpus and load / cpus > _MOST_LOAD:
        yield (
            f"the load is {load:g} on {plural(cpus, 'CPU')}, others are at work: "
            "end them (see: top), or wait"
        )
    if steal is not None and steal > _MOST_STEAL:
        yield (
            f"the hypervisor took {steal:.2%} of the CPUs' time (steal): "
            "pin this guest's CPUs on its host, or measure on bare metal"
        )
    if host.swap_used_kib:
        yield f"swap is in use ({host.swap_used_kib / 1024:.0f} MiB): {as_root('swapoff -a')}"
    if host.numa_balancing in ("1", "2", "3") and (host.seen.nodes or 1) > 1:
        yield f"NUMA balancing moves pages: {as_root('sysctl kernel.numa_balancing=0')}"
    if host.ksm == "1":
        yield f"KSM merges pages: {_set('0', '/sys/kernel/mm/ksm/run')}"
    if host.failed_units not in (None, NONE):
        why = f"failed units, which may restart in a loop: {host.failed_units}"
        yield f"{why}; see: systemctl --failed"
