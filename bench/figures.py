# SPDX-License-Identifier: GPL-2.0-or-later
"""Print the figures of docs/reference.md, measured on this machine now: `make bench`.

    python bench/figures.py [--quick] [--repetitions N] [--only PART] [--qemu PATH|VERSION]
        [--json FILE]

Each repetition measures every figure once, one after the other, so that a machine that gets slower
or faster while this runs does so for all of them; the survey and the demo come once, at the end.
Shown are medians, of memory maxima; ratios are of medians.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import platform
import resource
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

import virtme
from boots import boots, plain_boot, program_of
from commands import HERE, BenchError, Usage, cold_cache, kdelta, kdelta_run, wall_s
from kdelta import cache, data
from kdelta.errors import KdeltaError
from kdelta.guests import checkpoint, qemu
from kdelta.guests.qemu import Qemu
from kdelta.kernels import debian, reference
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import MachineSettings
from kdelta.study import plan, spec

_STUDY = "mprotect-shared-dirty.toml"
_KERNEL = "6.17"  # of the comparisons of one kernel
_TIMEOUT_S = 300.0
_GENERIC = "generic"  # the flavour that virtme-ng can boot
_SHORT = "mincore:no_thp_pte_scan_64m"  # less set-up, shorter windows than the study's scenario
_SMALL = "mincore:no_thp_pte_scan_4m"
_SURVEYED = 50
_PARTS = ("trials", "survey", "demo")

_MEANING = {
    "demo_s": "make demo in a new clone with an empty cache: wall time",
    "ladder_cold_s": "nine kernels, all downloaded, nothing made yet: wall time",
    "ladder_warm_s": "nine kernels, checkpoints there: wall time",
    "plain_boots_s": "nine plain boots of the same kernels running the same program",
    "short_boots_s": "the same nine, booted as for counting",
    "kdelta_mib": "peak memory of kdelta itself",
    "qemu_mib": "peak memory of its largest QEMU",
    "help_s": "kdelta --help",
    "plain_trial_s": "one plain boot running the program",
    "fresh_trial_s": "one counting trial that boots (--fresh-boot)",
    "warm_trial_s": "one counting trial that restores",
    "calls_trial_s": "the same with --probe calls",
    "memory_trial_s": "the same with --probe memory",
    "warm_generic_s": "one counting trial of the generic kernel that restores",
    "warm_command_s": "the whole command `kdelta run` around it",
    "virtme_s": "virtme-ng running the same program on the same image under TCG",
    "warm_short_s": "one counting trial of the generic kernel, mincore of 64 MiB",
    "virtme_short_s": "virtme-ng running that",
    "command_s": "the whole command of one trial of 4 MiB",
    "own_cpu_s": "CPU time of kdelta itself in it",
    "boot_cpu_s": "CPU time of a boot that is saved for counting",
    "new_kernel_s": f"{_SURVEYED} scenarios of the survey on a kernel that was never booted",
    "survey_s": f"{_SURVEYED} scenarios of the survey over all series, checkpoints there",
}

# name -> (numerator, denominator, largest that is good enough)
_RATIOS = {
    "warm ladder / nine plain boots": ("ladder_warm_s", "plain_boots_s", 0.15),
    "warm ladder / nine boots as for counting": ("ladder_warm_s", "short_boots_s", None),
    "nine boots as for counting / nine plain boots": ("short_boots_s", "plain_boots_s", None),
    "counting boot / plain boot": ("fresh_trial_s", "plain_trial_s", 1.2),
    "warm trial / plain boot": ("warm_trial_s", "plain_trial_s", None),
    "--probe calls / plain counting": ("calls_trial_s", "warm_trial_s", 3.0),
    "--probe memory / plain counting": ("memory_trial_s", "warm_trial_s", 8.0),
    "warm trial of the generic kernel / virtme-ng": ("warm_generic_s", "virtme_s", 0.10),
    "the same, mincore of 64 MiB": ("warm_short_s", "virtme_short_s", 0.07),
    "whole warm command / virtme-ng": ("warm_command_s", "virtme_s", None),
}
_LIMITS = {
    "help_s": 0.3,
    "kdelta_mib": 200.0,
    "demo_s": 120.0,
    "ladder_cold_s": 65.0,
    "command_s": 1.0,
    "own_cpu_s": 0.4,
    "boot_cpu_s": 7.0,
    "new_kernel_s": 20.0,
    "survey_s": 120.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all measurements share."""

    emulator: Qemu
    qemu_wanted: str
    settings: MachineSettings
    study: Path
    scenario: str
    kernels: tuple[Kernel, ...]
    one: Kernel
    generic: Kernel
    at_once: int

    def arguments(self, flavour: str, *more: str) -> list[str]:
        """Arguments of `kdelta run` for one trial of one kernel."""
        kernel = self.generic if flavour == _GENERIC else self.one
        chosen = [self.scenario, "--kernels", f"deb:{kernel.version}", "--flavour", flavour]
        return [*chosen, *self.qemu_option, *more]

    @property
    def qemu_option(self) -> list[str]:
        """--qemu for kdelta, when one was wanted."""
        return ["--qemu", self.qemu_wanted] if self.qemu_wanted else []


@dataclass(slots=True)
class Results:
    """Readings by figure, and why others are missing."""

    readings: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    missing: dict[str, str] = field(default_factory=dict)

    def take(self, name: str, measure: Callable[[], float]) -> None:
        """Measure once, or keep the reason why it cannot be."""
        if name in self.missing:
            return
        try:
            value = measure()
        except (BenchError, KdeltaError) as error:
            self.missing[name] = str(error)
            return
        self.readings[name].append(value)
        print(f"  {name} {value:.2f}", file=sys.stderr, flush=True)

    def value(self, name: str) -> float | None:
        """Median, of memory the maximum; None when it was not measured."""
        found = self.readings.get(name)
        if not found or name in self.missing:
            return None
        return max(found) if name.endswith("_mib") else median(found)


def prepared(qemu_wanted: str) -> Setting:
    """Resolve and download what is measured."""
    # Where no bytecode is written, a command would compile what was edited each time.
    compileall.compile_dir(HERE.parent / "src", quiet=1)
    path = data.directory("studies") / _STUDY
    study = spec.load(path)
    settings = study.machine
    arch, flavour = study.machine.arch, study.machine.flavour
    print("fetching kernels", file=sys.stderr, flush=True)
    return Setting(
        emulator=qemu.for_counting(settings.target, qemu_wanted),
        qemu_wanted=qemu_wanted,
        settings=settings,
        study=path,
        scenario=study.scenarios[0],
        kernels=tuple(reference.resolve(name, arch, flavour) for name in study.kernels),
        one=reference.resolve(_KERNEL, arch, flavour),
        generic=reference.resolve(_KERNEL, arch, _GENERIC),
        at_once=len(os.sched_getaffinity(0)),
    )


def repetition(setting: Setting, results: Results, rival: virtme.Virtme | None) -> None:
    """Measure every figure once."""
    with cold_cache() as home:
        _ladders(setting, results, home)
        results.take("help_s", lambda: kdelta(home, "--help").wall_s)
        _trials(setting, results, home)
        generic = setting.arguments(_GENERIC)
        results.take("first_generic_s", lambda: kdelta_run(home, *generic).wall_s)
        short = [_SHORT, *generic[1:]]
        results.take("first_short_s", lambda: kdelta_run(home, *short).wall_s)
        # The checkpoint has by then left the page cache's queue for the disk.
        results.take("warm_command_s", lambda: _warm_generic(results, home, generic))
        results.take("warm_short_s", lambda: kdelta_run(home, *short).trials_s[0])
    if rival:
        for name, scenario in (("virtme_s", setting.scenario), ("virtme_short_s", _SHORT)):
            program, arguments = program_of(scenario, setting.settings.target)
            argv = virtme.command(rival, program, arguments, setting.settings.memory_mib)
            results.take(name, partial(virtme.wall_s, rival, argv))


def _warm_generic(results: Results, home: Path, arguments: list[str]) -> float:
    """Wall time of the whole command; the trial in it is taken on the way."""
    usage = kdelta_run(home, *arguments)
    results.take("warm_generic_s", lambda: usage.trials_s[0])
    return usage.wall_s


def _ladders(setting: Setting, results: Results, home: Path) -> None:
    study = [str(setting.study), *setting.qemu_option]

    def measured(usage: Usage) -> float:
        results.take("kdelta_mib", lambda: usage.own_mib)
        results.take("qemu_mib", lambda: usage.qemu_mib)
        return usage.wall_s

    results.take("ladder_cold_s", lambda: measured(kdelta_run(home, *study)))
    results.take("ladder_warm_s", lambda: measured(kdelta_run(home, *study)))
    machine = setting.emulator, setting.settings
    nine = partial(boots, *machine, setting.kernels, setting.scenario, setting.at_once)
    results.take("plain_boots_s", nine)
    results.take("short_boots_s", partial(nine, short=True))


def _trials(setting: Setting, results: Results, home: Path) -> None:
    flavour = setting.one.flavour
    warm = setting.arguments(flavour)
    fresh = setting.arguments(flavour, "--fresh-boot")
    results.take(
        "plain_trial_s",
        lambda: plain_boot(setting.emulator, setting.settings, setting.one, setting.scenario),
    )
    results.take("fresh_trial_s", lambda: kdelta_run(home, *fresh).trials_s[0])
    results.take("warm_trial_s", lambda: kdelta_run(home, *warm).trials_s[0])
    small = [_SMALL, *warm[1:]]
    kdelta_run(home, *small)  # its program is compiled

    def command_s() -> float:
        usage = kdelta_run(home, *small)
        results.take("own_cpu_s", lambda: usage.own_cpu_s)
        return usage.wall_s

    results.take("command_s", command_s)
    results.take("boot_cpu_s", partial(_boot_cpu_s, setting))
    for probe in ("calls", "memory"):
        probed = partial(kdelta_run, home, *warm, "--probe", probe)
        results.take(f"{probe}_trial_s", partial(_trial_s, probed))


def _trial_s(run: Callable[[], Usage]) -> float:
    return run().trials_s[0]


def _boot_cpu_s(setting: Setting) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    machine = setting.emulator, setting.settings, setting.one.image
    with checkpoint.lent(*machine, timeout=_TIMEOUT_S, fresh=True):
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def survey(setting: Setting, results: Results) -> None:
    """The survey's first scenarios: on a new kernel, and on all with checkpoints."""
    names = plan.surveyed()[:_SURVEYED]
    series = debian.every_series(reference.listing(setting.one.arch, setting.one.flavour))
    only = [word for name in names for word in ("--only", name)] + setting.qemu_option
    new, known = series[0], series[-1]

    def counted_s(home: Path, kernels: str, *more: str) -> float:
        return kdelta_run(home, "--kernels", kernels, *more, command="survey").wall_s

    with cold_cache() as home:
        counted_s(home, known, *only)  # the programs are compiled
        results.take("new_kernel_s", lambda: counted_s(home, new, *only))
        counted_s(home, ",".join(series), "--only", names[0], *setting.qemu_option)
        results.take("survey_s", lambda: counted_s(home, ",".join(series), *only))


def demo_s() -> float:
    """`make demo` where nothing is but what the system has.  Raises BenchError."""
    with tempfile.TemporaryDirectory(prefix="kdelta-bench-", dir=cache.root().parent) as scratch:
        clone = f"{scratch}/kdelta"
        wall_s(["git", "clone", "--quiet", str(HERE.parent), clone])
        return wall_s(["make", "-C", clone, "demo"], {"XDG_CACHE_HOME": f"{scratch}/cache"})


def rows(results: Results) -> list[tuple[str, str, str, str]]:
    """The table: figure, value, limit, verdict."""
    found = []
    for name, meaning in _MEANING.items():
        value, limit = results.value(name), _LIMITS.get(name)
        unit = "MiB" if name.endswith("_mib") else "s"
        shown = f"{value:.{0 if unit == 'MiB' else 2}f} {unit}" if value is not None else "-"
        found.append((meaning, shown, *_judged(value, limit)))
    for name, (above, below, limit) in _RATIOS.items():
        value = ratio(results, above, below)
        shown = f"{value:.3f}" if value is not None else "-"
        found.append((name, shown, *_judged(value, limit)))
    return found


def ratio(results: Results, above: str, below: str) -> float | None:
    """Ratio of two medians; None when one is missing."""
    numerator, denominator = results.value(above), results.value(below)
    return numerator / denominator if numerator is not None and denominator else None


def _judged(value: float | None, limit: float | None) -> tuple[str, str]:
    if value is None:
        return (f"<= {limit:g}" if limit else "", "not measured")
    if limit is None:
        return "", ""
    return f"<= {limit:g}", "met" if value <= limit else "MISSED"


def as_json(setting: Setting, results: Results, rival: str) -> str:
    """All readings, medians and ratios."""
    content = {
        "machine": f"{platform.machine()}, {setting.at_once} plain boots at once",
        "qemu": setting.emulator.banner,
        "kernels": [kernel.release for kernel in setting.kernels],
        "virtme_ng": rival,
        "readings": dict(results.readings),
        "medians": {name: results.value(name) for name in results.readings},
        "ratios": {name: ratio(results, a, b) for name, (a, b, _) in _RATIOS.items()},
        "not_measured": results.missing,
    }
    return json.dumps(content, indent=2)


def trials(setting: Setting, results: Results, repetitions: int) -> virtme.Virtme | None:
    """Ladders and trials; what they are compared with, where there is one."""
    with tempfile.TemporaryDirectory(prefix="kdelta-bench-", dir=cache.root().parent) as scratch:
        rival = None
        try:
            rival = virtme.prepared(Path(scratch), setting.generic, setting.emulator)
        except BenchError as error:
            results.missing["virtme_s"] = str(error)
        for number in range(repetitions):
            print(f"repetition {number + 1}", file=sys.stderr, flush=True)
            repetition(setting, results, rival)
    return rival


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure the figures of docs/reference.md.")
    parser.add_argument("--quick", action="store_true", help="one repetition")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--only", choices=_PARTS, help="measure only this part")
    parser.add_argument("--qemu", default="", help="path or version, as kdelta's --qemu")
    parser.add_argument("--json", type=Path, help="also write all readings there")
    chosen = parser.parse_args()
    setting = prepared(chosen.qemu)
    results = Results()
    rival = None
    if chosen.only in (None, "trials"):
        rival = trials(setting, results, 1 if chosen.quick else chosen.repetitions)
    if chosen.only in (None, "survey"):
        survey(setting, results)
    if chosen.only in (None, "demo"):
        results.take("demo_s", demo_s)
    if chosen.json:
        told = as_json(setting, results, rival.version if rival else "")
        chosen.json.write_text(told + "\n")
    print(f"{setting.emulator.banner}; {setting.at_once} plain boots at once")
    for meaning, value, limit, verdict in rows(results):
        print(f"{meaning:66} {value:>9}  {limit:8} {verdict}".rstrip())
    for name, reason in results.missing.items():
        print(f"not measured: {name}: {reason}")


if __name__ == "__main__":
    main()
