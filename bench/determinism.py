# SPDX-License-Identifier: GPL-2.0-or-later
"""How often do trials of one scenario on one kernel execute the same instructions?

    .venv/bin/python bench/determinism.py [--restores N] [--boots N] [--kernels A,B] SCENARIO ...

Prints for each scenario and kernel how many of N restores, and of N fresh boots, gave the most
frequent sequence of windows: user and kernel instructions of every window of every phase.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from kdelta import workload
from kdelta.guests import qemu
from kdelta.kernels import reference
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import MachineSettings, with_needs
from kdelta.run.counting import run_trial
from kdelta.run.restoring import Bench
from kdelta.sample import Outcome

_TIMEOUT_S = 300.0
Windows = tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]


def windows(bench: Bench, kernel: Kernel, name: str) -> Windows:
    """The sequence of windows of one trial, per phase."""
    load, scenario = workload.parse_reference(name)
    with tempfile.TemporaryDirectory(prefix="kdelta-determinism-") as folder:
        result = run_trial(bench, kernel, scenario, load.program, Path(folder, "0000"))
    if result.outcome is not Outcome.OK:
        raise SystemExit(f"{name} on {kernel.release}: {result.outcome}: {result.reason}")
    return tuple((phase.phase, phase.user, phase.kernel) for phase in result.exact.phases)


def agreeing(bench: Bench, kernel: Kernel, name: str, count: int, at_once: int) -> Counter[Windows]:
    """How often each sequence was seen."""
    with ThreadPoolExecutor(at_once) as pool:
        tasks = [pool.submit(windows, bench, kernel, name) for _ in range(count)]
        return Counter(task.result() for task in tasks)


def _difference(seen: Counter[Windows]) -> str:
    """The first window in which the two most frequent sequences differ."""
    (first, _), (second, _) = seen.most_common(2)
    for (phase, *one), (_, *other) in zip(first, second, strict=True):
        pairs = (list(zip(*each, strict=True)) for each in (one, other))
        for at, (left, right) in enumerate(zip(*pairs, strict=True)):
            if left != right:
                return f"{phase} {at}: {left} or {right}"
    return ""


def _row(bench: Bench, kernel: Kernel, scenario: str, chosen: argparse.Namespace) -> str:
    restored = agreeing(bench, kernel, scenario, chosen.restores, chosen.jobs)
    anew = replace(bench, fresh_boot=True)
    booted = agreeing(anew, kernel, scenario, chosen.boots, chosen.jobs)
    both = restored + booted
    cells = [
        f"{name} {seen.most_common(1)[0][1] if seen else 0}/{seen.total()}"
        for name, seen in (("restores", restored), ("boots", booted), ("all", both))
    ]
    return "  ".join([*cells, _difference(both) if len(both) > 1 else ""])


def main() -> None:
    """Measure, a line for each scenario and kernel."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--restores", type=int, default=10)
    parser.add_argument("--boots", type=int, default=2)
    parser.add_argument("--kernels", default="6.17")
    parser.add_argument("--arch", default="amd64")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("scenarios", nargs="+")
    chosen = parser.parse_args()
    settings = MachineSettings(arch=chosen.arch)
    emulator = qemu.for_counting(settings.target)
    print(f"QEMU {emulator.version}, seed {chosen.seed}; those that agree / all")
    for name in chosen.kernels.split(","):
        kernel = reference.resolve(name, chosen.arch)
        for scenario in chosen.scenarios:
            needs = workload.parse_reference(scenario)[1].needs
            bench = Bench(
                emulator=emulator,
                settings=with_needs(settings, needs),
                fresh_boot=False,
                timeout_s=_TIMEOUT_S,
                cancelled=threading.Event(),
                seed=chosen.seed,
            )
            print(f"{scenario:32} {name:8} {_row(bench, kernel, scenario, chosen)}", flush=True)


if __name__ == "__main__":
    main()
