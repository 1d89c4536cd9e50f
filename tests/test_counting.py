# SPDX-License-Identifier: GPL-2.0-or-later
"""From windows and what a workload printed to a trial's counts; whole trials are in boot/."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from counts_stream import ARMED, HEADER, KERNEL, window, write
from kdelta import guest
from kdelta.attribution import insns
from kdelta.attribution.symbols import Symbols
from kdelta.errors import GuestError
from kdelta.guests import checkpoint, qemu
from kdelta.output import Reading, TimedWindow
from kdelta.probes.system_calls import Calls
from kdelta.run import counting, selftest
from kdelta.run.guest_trial import Bench
from kdelta.sample import ExactData
from kdelta.workload import Window, parse_reference
from test_swap import EMULATOR, SETTINGS, kernel

TABLE = Symbols((KERNEL, KERNEL + 0x40), ("first", "second"))
PHASES = (
    Window(id=0, name="scan", operation="page", operations=100),
    Window(id=3, name="touch", operation="page", operations=100),
)


def reading(samples: dict[str, int], layouts: int = 1) -> Reading:
    return Reading(
        phases=PHASES, state=(),
        samples=tuple(
            TimedWindow(phase=name, iteration=at, nanoseconds=1, operations=100)
            for name, times in samples.items()
            for at in range(times)
        ),
        metrics=(), notes=(), exit_code=0, layouts=layouts,
    )  # fmt: skip


def counts(tmp_path: Path, records: Sequence[list[int]]) -> insns.Counts:
    return insns.read(write(tmp_path / "counts", HEADER, *records))


def windows() -> list[list[int]]:
    """Three of each phase, interleaved; the last of `scan` is larger."""
    found = []
    for extra in (0, 0, 9):
        found.append(window({0x1000: 5, KERNEL: 10, KERNEL + 0x44: 3 + extra}, phase=0))
        found.append(window({0x2000: 7}, phase=3))
    return found


def counted(found: insns.Counts, printed: Reading) -> ExactData:
    marked = counting._marked(printed)
    calls = Calls("amd64", {28: "madvise", 228: "clock_gettime"}, (), printed.vdso)
    return insns.counted(found, TABLE, marked, calls.asked, printed.layouts)[1]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mincore:no_thp_pte_scan_4m", 8),
        ("mprotect:shared_dirty_full_toggle_64m", 24),
        ("fault_fork:exit_teardown", 31),
    ],
)
def test_the_plugin_is_told_how_many_windows_come(name: str, expected: int) -> None:
    _, scenario = parse_reference(name)
    assert counting._windows(scenario) == expected


@pytest.mark.parametrize(
    ("layouts", "first", "user", "second", "touched"), [(1, 10, 5, 3, 7), (3, 30, 15, 18, 21)]
)
def test_phases_are_told_apart_and_the_mode_or_all_layouts_are_attributed(
    tmp_path: Path, layouts: int, first: int, user: int, second: int, touched: int
) -> None:
    printed = reading({"scan": 3, "touch": 3}, layouts=layouts)
    data = counted(counts(tmp_path, [ARMED, *windows()]), printed)
    scan, touch = data.phases
    assert (scan.layouts, touch.layouts) == (layouts, layouts)
    assert (scan.phase, scan.user, scan.kernel) == ("scan", (5, 5, 5), (13, 13, 22))
    assert (touch.phase, touch.user, touch.kernel) == ("touch", (7, 7, 7), (0, 0, 0))
    rows = {(row.phase, row.function): (row.insns, row.calls) for row in data.functions}
    assert rows == {
        ("scan", "first"): (first, first), ("scan", "[user]"): (user, 0),
        ("scan", "second"): (second, 0), ("touch", "[user]"): (touched, 0),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("records", "samples", "cause"),
    [
        ([*windows()], 3, "the program made no mark that the plugin saw"),
        ([ARMED, *windows(), [3, 3, 1, 0, 0]], 3,
         "the marks do not fit: a window was opened inside"),
        ([ARMED, *windows()], 4, "phase scan: 3 windows, 4 iterations"),
        ([ARMED], 0, "phase scan: 0 windows, 0 iterations"),
        ([ARMED, *windows()[:-1]], 3, "phase touch: 2 windows, 3 iterations"),
    ],
)  # fmt: skip
def test_counts_that_do_not_fit_the_printed_samples(
    records: list[list[int]], samples: int, cause: str, tmp_path: Path
) -> None:
    printed = reading({"scan": samples, "touch": samples})
    with pytest.raises(GuestError, match=cause):
        counted(counts(tmp_path, records), printed)


@pytest.mark.parametrize("which", ["plugin_digest", "name"])
def test_counts_depend_on_what_their_environment_is_told_by(
    which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same plugin of another source, such as a comment's, is another environment."""
    monkeypatch.setattr(checkpoint, "key", lambda *_: "checkpoint")
    for where, name in ((qemu, "plugin"), (guest, "program")):
        monkeypatch.setattr(where, name, lambda *_, **__: Path(__file__))
    load, scenario = parse_reference("mincore:no_thp_pte_scan_4m")
    bench = Bench(
        emulator=EMULATOR, settings=SETTINGS, fresh_boot=False, timeout_s=1,
        cancelled=threading.Event(),
    )  # fmt: skip
    before = counting.depends_on(bench, kernel(), scenario, load.program)
    where = qemu if which == "plugin_digest" else selftest
    monkeypatch.setattr(where, which, lambda *_: "of another source")
    assert counting.depends_on(bench, kernel(), scenario, load.program) != before
