# SPDX-License-Identifier: GPL-2.0-or-later
"""What a machine is at this moment, for the record, and what makes its times untrustworthy.

Everything is read back, nothing is assumed: what cannot be read is "unknown", what can be read
and is empty is "none".
"""

from __future__ import annotations

import gzip
import hashlib
import itertools
import os
import platform
import re
import threading
import time
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from kdelta import process
from kdelta.errors import InfraError, as_root
from kdelta.procfs import chosen, compiler_in, cpu_list, meminfo

UNKNOWN = "unknown"
NONE = "none"

_MAX_BYTES = 1 << 20
_TOOL_S = 10.0
_CPUS = "sys/devices/system/cpu"
_CLOCK = "sys/devices/system/clocksource/clocksource0/current_clocksource"
_CLOCK_READS = 2000
_CLOCK_S = 0.05
_CPU_LINE = re.compile(r"cpu(\d*) +(\d+(?: \d+){7,})")
_STEAL = 7  # user nice system idle iowait irq softirq steal: proc(5)
_COUNTED = 8  # guest time, behind steal, is within user time already
_IDLE = (3, 4)
_PREEMPT_OPTION = re.compile(
    r"^CONFIG_PREEMPT_(NONE|VOLUNTARY|LAZY|RT)=y|^CONFIG_(PREEMPT)=y", re.M
)
_PREEMPT_BUILD = re.compile(r"\bPREEMPT(?:_(RT|LAZY|DYNAMIC))?\b")
_ARM_CPU = re.compile(r"^CPU (implementer|part)\s*: (\w+)", re.M)

# Read by one instruction, no way out of the guest or through a bus.
_GOOD_CLOCKS = ("tsc", "arch_sys_counter", "riscv_clocksource")
_MOST_LOAD = 0.5  # runnable tasks per CPU, averaged over a minute
_MOST_STEAL = 0.001  # of a CPU's time
_QUIET_S = 0.25
_QUIET_SHARE = 0.9
_QUIET_IN_A_ROW = 3


def facts(root: Path = Path("/"), *, cpus: Collection[int] = ()) -> dict[str, str]:
    """What the machine is: one flat record of words and decimal numbers.

    root: where /proc and /sys are; programs are asked only about the real root.  cpus: those whose
    time is in steal_ticks and total_ticks (all of them when empty).
    """
    return {
        **_kernel(root),
        **_processor(root),
        **_scheduling(root),
        **_clock(root),
        **_memory(root),
        **_mitigations(root),
        **_activity(root, cpus),
        **_system(root),
    }


def steal_between(before: Mapping[str, str], after: Mapping[str, str]) -> float | None:
    """Share (0 to 1) of the CPUs' time that the hypervisor took; None when it cannot be told."""
    numbers = [
        facts.get(key, "") for key in ("steal_ticks", "total_ticks") for facts in (before, after)
    ]
    if not all(number.isdecimal() for number in numbers):
        return None
    stolen_before, stolen_after, before_all, after_all = map(int, numbers)
    if after_all <= before_all or stolen_after < stolen_before:
        return None
    return (stolen_after - stolen_before) / (after_all - before_all)


def clock_tick_ns(facts: Mapping[str, str]) -> int | None:
    """The coarser of what the clock claims and what it was seen to step by, in ns."""
    steps = [facts.get(key, "") for key in ("clock_resolution_ns", "clock_step_ns")]
    known = [int(step) for step in steps if step.isdecimal()]
    return max(known) if known else None


def objections(facts: Mapping[str, str], *, steal: float | None = None) -> tuple[str, ...]:
    """What makes times of this machine untrustworthy, in words, with the command that changes it.

    steal: share of the CPUs' time taken during a measurement (steal_between).  Empty: none known.
    """
    return (
        *_frequency_objections(facts),
        *_clock_objections(facts),
        *_noise_objections(facts, steal),
    )


def settle(timeout: float, cancelled: threading.Event, root: Path = Path("/")) -> bool:
    """Wait for three quiet quarters of a second in a row (at least 90 % idle), as PID 1 does.

    False when the machine was still busy after timeout seconds, or cancelled was set.
    """
    deadline = time.monotonic() + timeout
    quiet = 0
    before = _idle_and_all(root)
    while quiet < _QUIET_IN_A_ROW and time.monotonic() < deadline:
        if cancelled.wait(_QUIET_S):
            return False
        now = _idle_and_all(root)
        idle, total = now[0] - before[0], now[1] - before[1]
        quiet = quiet + 1 if total > 0 and idle >= _QUIET_SHARE * total else 0
        before = now
    return quiet == _QUIET_IN_A_ROW


# ---- reading -------------------------------------------------------------------------------


def _read(path: Path) -> str | None:
    """A small file's text without the blanks around it, None when it cannot be read."""
    try:
        with path.open("rb") as stream:
            return stream.read(_MAX_BYTES).decode(errors="replace").strip()
    except OSError:
        return None


def _word(path: Path) -> str:
    """A sysfs value on one line: "unknown" when unreadable, "none" when empty."""
    text = _read(path)
    if text is None:
        return UNKNOWN
    line = " ".join(text.split())
    return NONE if line in ("", "(null)") else line


def _choice(path: Path) -> str:
    return chosen(_word(path))


def _each_cpu(root: Path, name: str) -> str:
    """The distinct values of a per-CPU file, with commas."""
    values = {_word(path) for path in root.glob(f"{_CPUS}/cpu[0-9]*/{name}")}
    return ",".join(sorted(values)) or UNKNOWN


def _field(text: str, name: str) -> str:
    """The first value of "name : value" lines, as in /proc/cpuinfo."""
    match = re.search(rf"^{re.escape(name)}\s*: *(.*)$", text, re.M)
    return match[1].strip() if match else ""


# ---- groups of facts -----------------------------------------------------------------------


def _kernel(root: Path) -> dict[str, str]:
    version = _word(root / "proc/version")
    return {
        "release": _word(root / "proc/sys/kernel/osrelease"),
        "build": _word(root / "proc/sys/kernel/version"),
        "version": version,
        "compiler": compiler_in(version) or UNKNOWN,
        "build_id": _build_id(root),
        "boot_id": _word(root / "proc/sys/kernel/random/boot_id"),
        "cmdline": _word(root / "proc/cmdline"),
    }


def _build_id(root: Path) -> str:
    """GNU build id of the running kernel, from its ELF notes (elf(5), Elf64_Nhdr)."""
    try:
        notes = (root / "sys/kernel/notes").read_bytes()[:_MAX_BYTES]
    except OSError:
        return UNKNOWN
    at = 0
    while at + 12 <= len(notes):
        name, length, kind = (
            int.from_bytes(notes[at + n : at + n + 4], "little") for n in (0, 4, 8)
        )
        body = at + 12 + (name + 3 & ~3)
        if kind == 3 and notes[at + 12 : at + 12 + name] == b"GNU\0":
            return notes[body : body + length].hex() or UNKNOWN
        at = body + (length + 3 & ~3)
    return UNKNOWN


def _processor(root: Path) -> dict[str, str]:
    info = _read(root / "proc/cpuinfo") or ""
    cpufreq = root / _CPUS / "cpufreq"
    return {
        "machine": platform.machine(),
        "cpu_model": _cpu_model(info),
        "microcode": _field(info, "microcode") or UNKNOWN,
        "cpus": str(len(cpu_list(_word(root / _CPUS / "online"))) or UNKNOWN),
        "governor": _each_cpu(root, "cpufreq/scaling_governor"),
        "epp": _each_cpu(root, "cpufreq/energy_performance_preference"),
        "turbo": _turbo(root / _CPUS / "intel_pstate/no_turbo", cpufreq / "boost"),
        "smt": _word(root / _CPUS / "smt/control"),
    }


def _cpu_model(info: str) -> str:
    name = _field(info, "model name") or _field(info, "uarch")
    return (
        name or " ".join(f"{key} {value}" for key, value in _ARM_CPU.findall(info)[:2]) or UNKNOWN
    )


def _turbo(no_turbo: Path, boost: Path) -> str:
    forbidden, allowed = _word(no_turbo), _word(boost)
    if forbidden in ("0", "1"):
        return "off" if forbidden == "1" else "on"
    return {"0": "off", "1": "on"}.get(allowed, UNKNOWN)


def _scheduling(root: Path) -> dict[str, str]:
    mode, source = _preempt(root)
    isolated, nohz_full = _word(root / _CPUS / "isolated"), _word(root / _CPUS / "nohz_full")
    return {
        "isolcpus": isolated,
        # The file is there only in kernels that have the feature.
        "nohz_full": NONE if nohz_full == UNKNOWN and isolated != UNKNOWN else nohz_full,
        "rcu_nocbs": _parameter(root, "rcu_nocbs"),
        "preempt": mode,
        "preempt_source": source,
    }


def _parameter(root: Path, name: str) -> str:
    """The last value of a kernel parameter; "none" when it was not given."""
    line = _read(root / "proc/cmdline")
    if line is None:
        return UNKNOWN
    values = [word.partition("=")[2] for word in line.split() if word.partition("=")[0] == name]
    return values[-1] or "on" if values else NONE


def _preempt(root: Path) -> tuple[str, str]:
    """How the kernel preempts itself, and what told: the scheduler itself is the best witness."""
    told = _choice(root / "sys/kernel/debug/sched/preempt")
    if told not in (UNKNOWN, NONE):
        return told, "debugfs"
    build = _PREEMPT_BUILD.search(_read(root / "proc/sys/kernel/version") or "")
    if build and build[1] != "DYNAMIC":
        return (build[1] or "full").lower(), "build"
    asked = _parameter(root, "preempt")
    if asked not in (UNKNOWN, NONE):
        return asked, "cmdline"
    option = _PREEMPT_OPTION.search(_configuration(root))
    if option:
        return (option[1] or "full").lower(), "config"
    return UNKNOWN, UNKNOWN


def _configuration(root: Path) -> str:
    try:
        with gzip.open(root / "proc/config.gz") as stream:
            return stream.read(_MAX_BYTES).decode(errors="replace")
    except (OSError, EOFError, zlib.error):
        release = _word(root / "proc/sys/kernel/osrelease").replace("/", "")
        return _read(root / "boot" / f"config-{release}") or ""


def _clock(root: Path) -> dict[str, str]:
    return {
        "clocksource": _word(root / _CLOCK),
        "clock_resolution_ns": str(round(time.clock_getres(time.CLOCK_MONOTONIC) * 1e9)),
        "clock_step_ns": _clock_step(),
    }


def _clock_step() -> str:
    """The smallest step that the clock is seen to take, in ns: an upper bound of its tick."""
    deadline = time.monotonic() + _CLOCK_S
    smallest = 0
    while not smallest and time.monotonic() < deadline:
        seen = [time.clock_gettime_ns(time.CLOCK_MONOTONIC) for _ in range(_CLOCK_READS)]
        smallest = min((b - a for a, b in itertools.pairwise(seen) if b > a), default=0)
    return str(smallest or UNKNOWN)


def _memory(root: Path) -> dict[str, str]:
    fields = meminfo(root)
    total, free = fields.get("SwapTotal"), fields.get("SwapFree")
    thp = root / "sys/kernel/mm/transparent_hugepage"
    nodes = list(root.glob("sys/devices/system/node/node[0-9]*"))
    return {
        "memory_mib": str(fields["MemTotal"] >> 10) if "MemTotal" in fields else UNKNOWN,
        "nodes": str(len(nodes)) if nodes else UNKNOWN,
        "numa_balancing": _word(root / "proc/sys/kernel/numa_balancing"),
        "thp": _choice(thp / "enabled"),
        "thp_shmem": _choice(thp / "shmem_enabled"),
        "thp_defrag": _choice(thp / "defrag"),
        "ksm": _word(root / "sys/kernel/mm/ksm/run"),
        "swap_total_kib": UNKNOWN if total is None else str(total),
        "swap_used_kib": UNKNOWN if total is None or free is None else str(total - free),
    }


def mitigations(root: Path = Path("/")) -> tuple[str, ...]:
    """What the kernel says of each vulnerability, "NAME: TEXT"; none when it does not tell."""
    folder = root / _CPUS / "vulnerabilities"
    return tuple(f"{path.name}: {_word(path)}" for path in sorted(folder.glob("*")))


def _mitigations(root: Path) -> dict[str, str]:
    lines = mitigations(root)
    if not lines:
        return {"mitigations": UNKNOWN, "mitigations_digest": UNKNOWN}
    text = "; ".join(lines)
    return {
        "mitigations": text,
        "mitigations_digest": hashlib.sha256(text.encode()).hexdigest()[:16],
    }


def _activity(root: Path, cpus: Collection[int]) -> dict[str, str]:
    text = _read(root / "proc/stat") or ""
    ticks = list(_ticks(text, cpus))
    switches = re.search(r"^ctxt (\d+)$", text, re.M)
    load = (_read(root / "proc/loadavg") or "").split()
    return {
        "load": load[0] if load else UNKNOWN,
        "steal_ticks": str(sum(row[_STEAL] for row in ticks)) if ticks else UNKNOWN,
        "total_ticks": str(sum(sum(row[:_COUNTED]) for row in ticks)) if ticks else UNKNOWN,
        "context_switches": switches[1] if switches else UNKNOWN,
    }


def _ticks(text: str, cpus: Collection[int]) -> Iterator[tuple[int, ...]]:
    """The counters of /proc/stat (proc(5)): the sum's line, or those of some CPUs."""
    wanted = {str(cpu) for cpu in cpus} or {""}
    for number, counters in _CPU_LINE.findall(text):
        if number in wanted:
            yield tuple(map(int, counters.split()))


def _idle_and_all(root: Path) -> tuple[int, int]:
    ticks = next(_ticks(_read(root / "proc/stat") or "", ()), (0,) * _COUNTED)
    return sum(ticks[n] for n in _IDLE), sum(ticks[:_COUNTED])


def _system(root: Path) -> dict[str, str]:
    real = root == Path("/")
    return {
        "virtualisation": (real and _detected()) or _virtualisation(root),
        "failed_units": failed_units() if real else UNKNOWN,
    }


def _detected() -> str:
    """What systemd knows of the hypervisor ("none" on bare metal); "" when it cannot be asked."""
    if process.which("systemd-detect-virt") is None:
        return ""
    try:
        done = process.run(["systemd-detect-virt", "--vm"], timeout=_TOOL_S, check=False)
    except InfraError:
        return ""
    word = done.stdout.strip()
    return word if re.fullmatch(r"[a-z0-9-]{1,32}", word) else ""


def _virtualisation(root: Path) -> str:
    kind = _word(root / "sys/hypervisor/type")
    if kind not in (UNKNOWN, NONE):
        return kind
    flags = _field(_read(root / "proc/cpuinfo") or "", "flags").split()
    if not flags:
        return UNKNOWN  # only x86 has a flag that tells
    return "hypervisor" if "hypervisor" in flags else NONE


def failed_units() -> str:
    """Names of systemd's failed units with commas; "none", or "unknown" without systemd."""
    if process.which("systemctl") is None:
        return UNKNOWN
    argv = ["systemctl", "--failed", "--plain", "--no-legend", "--no-pager"]
    try:
        done = process.run(argv, timeout=_TOOL_S, check=False)
    except InfraError:
        return UNKNOWN
    if done.returncode:
        return UNKNOWN
    names = [line.split()[0] for line in done.stdout.splitlines() if line.split()]
    return ",".join(names)[:500] or NONE


# ---- objections ----------------------------------------------------------------------------


def _known(facts: Mapping[str, str], key: str) -> str:
    """A fact's value, "" when it is not known."""
    value = facts.get(key, UNKNOWN)
    return "" if value == UNKNOWN else value


def _set(value: str, path: str) -> str:
    """The command that writes a value into a file of the kernel."""
    shell = f"echo {value} > {path}"
    return shell if os.geteuid() == 0 else f"echo {value} | sudo tee {path}"


def _frequency_objections(facts: Mapping[str, str]) -> Iterable[str]:
    governor, epp = _known(facts, "governor"), _known(facts, "epp")
    virtual = _known(facts, "virtualisation")
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
    if _known(facts, "turbo") == "on":
        yield f"turbo is on, so that the frequency follows heat and neighbours: {_no_turbo(facts)}"
    if virtual not in ("", NONE):
        yield (
            f"this machine is virtual ({virtual}): its frequency and its neighbours cannot be seen "
            "from inside; measure on bare metal for a time that others can reproduce"
        )


def _no_turbo(facts: Mapping[str, str]) -> str:
    if "Intel" in facts.get("cpu_model", "") and Path(f"/{_CPUS}/intel_pstate/no_turbo").exists():
        return _set("1", f"/{_CPUS}/intel_pstate/no_turbo")
    return _set("0", f"/{_CPUS}/cpufreq/boost")


def _clock_objections(facts: Mapping[str, str]) -> Iterable[str]:
    source = _known(facts, "clocksource")
    if source and source not in _GOOD_CLOCKS:
        wanted = {"x86_64": "tsc", "aarch64": "arch_sys_counter"}.get(facts.get("machine", ""))
        command = _set(wanted, f"/{_CLOCK}") if wanted else "choose the CPU's own counter"
        yield f"the clocksource is {source}, slow and coarse: {command}"
    tick = clock_tick_ns(facts)
    if tick is not None and tick > 1_000_000:
        yield (
            f"the clock steps by {tick / 1e6:g} ms: boot without highres=off and nohz=off, "
            "with CONFIG_HIGH_RES_TIMERS=y"
        )


def _noise_objections(facts: Mapping[str, str], steal: float | None) -> Iterable[str]:
    load, cpus = _number(facts, "load"), _number(facts, "cpus")
    if load is not None and cpus and load / cpus > _MOST_LOAD:
        yield (
            f"the load is {load:g} on {cpus:g} CPUs, others are at work: "
            "end them (see: top), or wait"
        )
    if steal is not None and steal > _MOST_STEAL:
        yield (
            f"the hypervisor took {steal:.2%} of the CPUs' time (steal): "
            "pin this guest's CPUs on its host, or measure on bare metal"
        )
    if _number(facts, "swap_used_kib"):
        used = int(facts["swap_used_kib"]) / 1024
        yield f"swap is in use ({used:.0f} MiB): {as_root('swapoff -a')}"
    if _number(facts, "numa_balancing") and (_number(facts, "nodes") or 1) > 1:
        yield f"NUMA balancing moves pages: {as_root('sysctl kernel.numa_balancing=0')}"
    if _known(facts, "ksm") == "1":
        yield f"KSM merges pages: {_set('0', '/sys/kernel/mm/ksm/run')}"
    failed = _known(facts, "failed_units")
    if failed and failed != NONE:
        yield f"failed units, which may restart in a loop: {failed}; see: systemctl --failed"


def _number(facts: Mapping[str, str], key: str) -> float | None:
    text = facts.get(key, "")
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else None
