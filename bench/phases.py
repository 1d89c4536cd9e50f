# SPDX-License-Identifier: GPL-2.0-or-later
"""What does QEMU translate and execute in each phase of a warm trial, and what does it cost?

    .venv/bin/python bench/phases.py [--kernel 6.17] [--repetitions N] SCENARIO ...

Prints CPU seconds of QEMU with the counting plugin and without any (medians), then for
each phase of one counted trial: milliseconds of CPU, blocks and instructions translated, the same
executed.  amd64; guests are restored from the user's cache.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from boots import program_of
from kdelta import build, cache, guest, workload
from kdelta.files import digest_of
from kdelta.guests import checkpoint, orders, qemu
from kdelta.guests.orders import FIRST_SEED, Order
from kdelta.guests.session import Guest
from kdelta.kernels import reference
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import MachineSettings, with_needs
from kdelta.run import counting
from kdelta.run.guest_trial import Bench, RestoredGuest, events_file

_HERE = Path(__file__).resolve().parent
_TIMEOUT_S = 300.0
_COLUMNS = ("CPU ms", "blocks translated", "instructions", "blocks executed", "instructions")
_AUDITS = ("/proc/self/smaps", "/proc/self/status")


@contextmanager
def plugin_beside(out: Path) -> Iterator[None]:
    """Every QEMU that starts meanwhile has bench/phases.c, too; the last one's lines stay."""
    sources = [_HERE / "phases.c", _HERE.parent / "plugin" / "qemu_api.h"]
    flags = ["-std=gnu11", "-O2", "-fPIC", "-shared"]
    made = build.compiled("phases.so", sources, compiler="gcc", flags=flags, package="gcc")
    command = qemu.command
    qemu.command = lambda *given: [*command(*given), "-plugin", f"{made},out={out}"]
    try:
        yield
    finally:
        qemu.command = command


@dataclass(frozen=True, slots=True)
class Line:
    """Five numbers, all so far, and what came then."""

    numbers: tuple[int, ...]
    what: str


def lines(text: str) -> list[Line]:
    """What bench/phases.c wrote; a last line that is cut is left out."""
    found = []
    for row in text.split("\n")[:-1]:
        *numbers, what = row.split(" ", 5)
        found.append(Line(tuple(map(int, numbers)), what))
    return found


def phases(rows: Sequence[Line]) -> dict[str, tuple[int, ...]]:
    """The numbers of each phase of a trial."""
    marks = [at for at, row in enumerate(rows) if row.what.startswith("mark")]
    begun = next(at for at, row in enumerate(rows) if row.what.startswith("sys 59 "))
    audits = [at for at, row in enumerate(rows) if at > begun and row.what.endswith(_AUDITS)]
    printed = [at for at, row in enumerate(rows) if row.what.startswith("sys 1 1 ")]
    ends = {
        "orders, seed": begun,
        "exec": begun + 1,
        "start, set-up": audits[0],
        "audit before": marks[0],
        "windows": marks[-1],
        "audit after": printed[-1],
        "end": len(rows) - 1,
    }
    at: tuple[int, ...] = (0,) * 5
    found = {}
    for name, end in ends.items():
        now = rows[end].numbers
        found[name] = tuple(new - old for new, old in zip(now, at, strict=True))
        at = now
    return found


class Trials:
    """Guests of one kernel that run one scenario."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        _, self._scenario = workload.parse_reference(name)
        self._settings = with_needs(MachineSettings(), self._scenario.needs)
        self._program, self._arguments = program_of(name, self._settings.target)
        self._kernel = kernel
        self._emulator = qemu.for_counting(self._settings.target)
        guest = self._emulator, self._settings, kernel.image
        with checkpoint.lent(*guest, timeout=_TIMEOUT_S) as self._point:
            cache.keep(self._point.folder)

    def cpu_s(self, counted: Path | None) -> float:
        """CPU seconds of QEMU for one; counted: where its counts go."""
        told = (Order("identity"), FIRST_SEED.order, orders.run(self._arguments))
        launch = qemu.Launch(
            image=self._kernel.image,
            initramfs=guest.initramfs(self._settings.target, self._kernel.image),
            orders=told,
            program=self._program,
            restore=self._point.folder,
            counting=self._counting(counted) if counted else None,
        )
        before = _children_s()
        with Guest(self._emulator, self._settings, launch) as machine:
            printed, status = machine.finish(_TIMEOUT_S).ran()
        if status:
            raise SystemExit(f"the program failed: {printed[-500:]}")
        return _children_s() - before

    def _counting(self, output: Path) -> qemu.CountingFiles:
        bench = Bench(
            emulator=self._emulator,
            settings=self._settings,
            fresh_boot=False,
            timeout_s=_TIMEOUT_S,
            cancelled=threading.Event(),
        )
        table = RestoredGuest(bench, self._kernel).symbols(self._point)
        layouts = self._scenario.layouts
        rounds = -(-counting.WINDOWS // layouts) * layouts
        return qemu.CountingFiles(
            output=output,
            events=events_file(digest_of(self._kernel.image), lambda: table, self._settings.target),
            windows=rounds * len(self._scenario.windows),
        )


def _children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Measure each scenario."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kernel", default="6.17")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("scenarios", nargs="+")
    chosen = parser.parse_args()
    kernel = reference.resolve(chosen.kernel, "amd64")
    for name in chosen.scenarios:
        trials = Trials(kernel, name)
        with tempfile.TemporaryDirectory(prefix="kdelta-phases-") as folder:
            counts, told = Path(folder, "counts"), Path(folder, "lines")
            trials.cpu_s(counts)  # all is made now
            both = [(trials.cpu_s(counts), trials.cpu_s(None)) for _ in range(chosen.repetitions)]
            with plugin_beside(told):
                trials.cpu_s(counts)
            rows = lines(told.read_text())
        counted, bare = map(median, zip(*both, strict=True))
        print(f"\n{name} on {chosen.kernel}: {counted:.3f} s of CPU, {bare:.3f} without a plugin")
        print(f"{'':16}" + "".join(f"{head:>20}" for head in _COLUMNS))
        for phase, (cpu_us, *others) in phases(rows).items():
            print(f"{phase:16}{cpu_us / 1000:20.1f}" + "".join(f"{one:20}" for one in others))


if __name__ == "__main__":
    main()
