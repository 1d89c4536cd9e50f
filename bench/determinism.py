# SPDX-License-Identifier: GPL-2.0-or-later
"""How often do trials of one scenario on one kernel execute the same instructions?

    .venv/bin/python bench/determinism.py [--restores N] [--boots N] [--kernels A,B] [SCENARIO ...]

Without a scenario: all of the survey, with --field those that robots and suites have, too.  Each of
the boots is saved in a cache of its own and restored N times.  Prints for each scenario and kernel
how many of all these restores gave the most frequent sequence of windows: user and kernel
instructions of every window of every phase, in their order; and where the others differ from it.
Exits 1 when a scenario did not repeat.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kdelta import cache, workload
from kdelta.guests import qemu
from kdelta.guests.orders import Seed
from kdelta.kernels import reference
from kdelta.kernels.kernel import Kernel
from kdelta.kinds import KINDS
from kdelta.machine.axes import MachineSettings, with_needs
from kdelta.run.counting import run_trial
from kdelta.run.guest_trial import Bench
from kdelta.sample import Outcome
from kdelta.study.plan import surveyed

_TIMEOUT_S = 300.0
_OWN = ("checkpoints", "results", "locks")  # kinds that a boot has for itself
Windows = tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]


class NoCountsError(Exception):
    """A trial that counted nothing, and why."""


@contextmanager
def boots_of_its_own() -> Iterator[Path]:
    """A cache that has no booted guest yet, and all else of the user's."""
    with tempfile.TemporaryDirectory(prefix="kdelta-boots-") as folder:
        home = Path(folder, "kdelta")
        home.mkdir()
        for kind in set(KINDS) - set(_OWN):
            (home / kind).symlink_to(cache.folder(kind))
        yield home.parent


def windows(bench: Bench, kernel: Kernel, name: str) -> Windows:
    """The sequence of windows of one trial, per phase.  Raises NoCountsError."""
    load, scenario = workload.parse_reference(name)
    with tempfile.TemporaryDirectory(prefix="kdelta-determinism-") as folder:
        result = run_trial(bench, kernel, scenario, load.program, Path(folder, "0000"))
    if result.outcome is not Outcome.OK:
        raise NoCountsError(f"{result.outcome}: {result.reason}")
    return tuple((phase.phase, phase.user, phase.kernel) for phase in result.exact.phases)


def agreeing(bench: Bench, kernel: Kernel, name: str, count: int, at_once: int) -> Counter[Windows]:
    """How often each sequence was seen."""
    with ThreadPoolExecutor(at_once) as pool:
        tasks = [pool.submit(windows, bench, kernel, name) for _ in range(count)]
        return Counter(task.result() for task in tasks)


def _difference(seen: Counter[Windows]) -> str:
    """In how many windows the two most frequent sequences differ, and how in the first of them."""
    (first, _), (second, _) = seen.most_common(2)
    found = []
    for (phase, *one), (_, *other) in zip(first, second, strict=True):
        pairs = (list(zip(*each, strict=True)) for each in (one, other))
        for at, (left, right) in enumerate(zip(*pairs, strict=True)):
            if left != right:
                found.append(f"{phase} {at}: {left} or {right}")
    return f"{len(found)} windows differ; {found[0]}"


def _row(
    bench: Bench, kernel: Kernel, name: str, homes: list[Path], chosen: argparse.Namespace
) -> tuple[bool, str]:
    """Whether all agree, and the line's end; what the kernel lacks agrees with itself."""
    by_boot = []
    for home in homes:
        os.environ["XDG_CACHE_HOME"] = str(home)
        try:
            by_boot.append(agreeing(bench, kernel, name, chosen.restores, chosen.jobs))
        except NoCountsError as error:
            return str(error).startswith(Outcome.SKIP), str(error)
    both = sum(by_boot, Counter())
    most = both.most_common(1)[0]
    shares = ", ".join(f"{one[most[0]]}/{one.total()}" for one in by_boot)
    told = f"  {_difference(both)}" if len(both) > 1 else ""
    return len(both) == 1, f"{most[1]}/{both.total()} ({shares}){told}"


def main() -> None:
    """Measure, a line for each scenario and kernel."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--restores", type=int, default=10, help="of each boot")
    parser.add_argument("--boots", type=int, default=2)
    parser.add_argument("--kernels", default="6.17")
    parser.add_argument("--arch", default="amd64")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--field", action="store_true")
    parser.add_argument("scenarios", nargs="*")
    chosen = parser.parse_args()
    settings = MachineSettings(arch=chosen.arch)
    emulator = qemu.for_counting(settings.target)
    print(f"QEMU {emulator.version}, seed {chosen.seed}; those that agree / all (of each boot)")
    names = chosen.scenarios or surveyed(field=chosen.field)
    kernels = [(name, reference.resolve(name, chosen.arch)) for name in chosen.kernels.split(",")]
    agreed: list[bool] = []
    for kernel_name, kernel in kernels:
        with ExitStack() as open_caches:
            homes = [open_caches.enter_context(boots_of_its_own()) for _ in range(chosen.boots)]
            for name in names:
                bench = Bench(
                    emulator=emulator,
                    settings=with_needs(settings, workload.parse_reference(name)[1].needs),
                    fresh_boot=False,
                    timeout_s=_TIMEOUT_S,
                    cancelled=threading.Event(),
                    seed=Seed(ticks=chosen.seed, memory=chosen.seed, random=chosen.seed),
                )
                same, row = _row(bench, kernel, name, homes, chosen)
                agreed.append(same)
                print(f"{name:32} {kernel_name:8} {row}", flush=True)
    print(f"{sum(agreed)} of {len(agreed)} repeat in {chosen.boots} x {chosen.restores} restores")
    sys.exit(not all(agreed))


if __name__ == "__main__":
    main()
