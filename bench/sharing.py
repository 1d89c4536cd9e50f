# SPDX-License-Identifier: GPL-2.0-or-later
"""What does `--probe sharing` cost, beside plain counting, and do restores repeat?

    .venv/bin/python bench/sharing.py [--kernel 6.17] [--cpus 2] [--repetitions N] [SCENARIO ...]

Prints for each scenario of the workload `turns` (none given: all that want so many CPUs) the CPU
seconds of QEMU with the probe and without (medians), their ratio, and how many of the restores
moved the same lines in every window as the first.  amd64; times are worth something on a quiet
machine only, the ratio elsewhere, too.
"""

from __future__ import annotations

import argparse
import hashlib
import resource
import tempfile
import threading
from pathlib import Path
from statistics import median

from kdelta import workload
from kdelta.guests import qemu
from kdelta.journal import artifacts
from kdelta.kernels import reference
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import MachineSettings, with_needs
from kdelta.run.counting import run_trial
from kdelta.run.guest_trial import Bench
from kdelta.sample import Outcome
from kdelta.study.probes import SHARING

_TIMEOUT_S = 300.0


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def trial(bench: Bench, kernel: Kernel, name: str) -> tuple[float, str]:
    """CPU seconds of the guest of one trial, and a digest of the lines that its windows moved."""
    load, scenario = workload.parse_reference(f"turns:{name}")
    with tempfile.TemporaryDirectory(prefix="kdelta-sharing-") as folder:
        before = _children_s()
        result = run_trial(bench, kernel, scenario, load.program, Path(folder))
        spent = _children_s() - before
        if result.outcome is not Outcome.OK:
            raise SystemExit(f"{name}: {result.reason}")
        windows = artifacts.read_counts(Path(folder, "counts.bin.gz"), whole=True).windows
    lines = [part.shared.tobytes() for window in windows for part in window.touched]
    return spent, hashlib.sha256(repr(lines).encode()).hexdigest()


def main() -> None:
    """Measure each scenario."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kernel", default="6.17")
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("scenarios", nargs="*")
    chosen = parser.parse_args()
    kernel = reference.resolve(chosen.kernel, "amd64")
    settings = MachineSettings(cpus=chosen.cpus)
    emulator = qemu.in_turns(qemu.for_counting(settings.target))
    every = workload.load("turns").scenarios
    print(f"{'':32}{'with':>8}{'plain':>8}{'ratio':>8}{'same':>10}")
    for name in chosen.scenarios or [one.name for one in every]:
        needs = workload.load("turns").scenario(name).needs
        plain, probed = (
            Bench(
                emulator=emulator, settings=with_needs(settings, needs), fresh_boot=False,
                timeout_s=_TIMEOUT_S, cancelled=threading.Event(), probes=probes,
            )
            for probes in ((), (SHARING,))
        )  # fmt: skip
        trial(plain, kernel, name)  # all is made now
        without = median(trial(plain, kernel, name)[0] for _ in range(3))
        spent, moved = zip(
            *(trial(probed, kernel, name) for _ in range(chosen.repetitions)), strict=True
        )
        same = f"{moved.count(moved[0])} of {len(moved)}"
        ratio = median(spent) / without
        print(f"{name:32}{median(spent):8.2f}{without:8.2f}{ratio:8.2f}{same:>10}", flush=True)


if __name__ == "__main__":
    main()
