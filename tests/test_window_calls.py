# SPDX-License-Identifier: GPL-2.0-or-later
"""System calls, errors and clocks of windows: read from the stream, and what they forbid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from counts_stream import (
    ARMED,
    HEADER,
    KERNEL,
    bare,
    code,
    encodings,
    outside,
    scalars,
    syscalls,
    write,
)
from kdelta import guest, workload
from kdelta.analysis.claims import claim
from kdelta.analysis.findings import report
from kdelta.arch import ARCHES, of
from kdelta.attribution import insns
from kdelta.attribution.symbols import Symbols
from kdelta.cli.main import cli
from kdelta.errors import InfraError, SpecError
from kdelta.journal.run import RunRecord
from kdelta.ladder.calls import weighed_by_phases
from kdelta.ladder.counts import CountMethod
from kdelta.ladder.evidence import compare_arms, gather
from kdelta.metric import Grade
from kdelta.probes.calls import PathNode
from kdelta.probes.system_calls import Calls, pointed, table
from kdelta.rendering import show as show_page
from kdelta.rendering.mail import Letter, written
from kdelta.sample import FunctionCount, PhaseCounts, StateField, TrialResult
from kdelta.table.columns import plain
from kdelta.verdict.comparison import Comparison, Verdict
from ladder_records import PAGES, SCENARIO, WORKLOAD, recounted, result, run, trial_of

TABLE = Symbols((KERNEL, KERNEL + 0x40), ("first", "second"))
NAMES = {28: "madvise", 228: "clock_gettime"}
VDSO = range(0x7FFF0000, 0x7FFF2000)


def of_calls(arch: str) -> Calls:
    return Calls(arch, NAMES, ("madvise ENOSYS",), VDSO)


def read(path: Path, calls: Calls, *records: list[int], windows: int = 2) -> PhaseCounts:
    counts = insns.read(write(path / "counts", HEADER, ARMED, *records))
    marked = insns.Marked(id=0, name="scan", operation="page", operations=10, windows=windows)
    return insns.counted(counts, TABLE, [marked], calls.asked)[1].phases[0]


def test_calls_are_named_and_belong_to_the_window_that_stands(tmp_path: Path) -> None:
    asked = syscalls((28, 0, 3), (28, 22, 1), (28, 38, 2), (999, 0, 1), (999, 4000, 1), wakes=2)
    told = [*code(1, KERNEL), *encodings(1, b"\x90")]
    one = [*asked, *bare([(1, 5)], 0, 5)]
    phase = read(tmp_path, of_calls("amd64"), told, one, one)
    assert phase.syscalls == {"call 999": 1, "madvise": 3}
    assert phase.errors == {"call 999 4000": 1, "madvise EINVAL": 1, "madvise ENOSYS": 2}
    assert (phase.clock, phase.wakes, phase.by_design) == ({}, 2, ("madvise ENOSYS",))


def test_a_number_that_no_call_has_is_not_taken_for_another_way_to_call() -> None:
    calls = Calls("amd64", {20: "writev"})
    rows = ((1 << 30) + 20, 0, 1, (1 << 32) - 1, 0, 2, (1 << 32) + 20, 0, 3)
    traps = ((9 << 32) + 13, 0, 4, 8 << 32, 0, 5)
    assert calls.of(rows)[0] == {"call 1073741844": 1, "call 4294967295": 2, "int 0x80": 3}
    assert calls.of(traps)[0] == {"an emulated instruction": 5, "exception 13": 4}


def test_a_stream_of_before_has_no_calls_and_is_read(tmp_path: Path) -> None:
    told = [*code(2, KERNEL), *encodings(2, b"\x90")]
    window = bare([(2, 5)], 0, 5)
    phase = read(tmp_path, of_calls("amd64"), told, window, window)
    assert (phase.syscalls, phase.errors, phase.clock, phase.wakes) == (None, {}, None, 0)
    with pytest.raises(InfraError, match="damaged"):
        read(tmp_path, of_calls("amd64"), [14, 2, 1, 1])


def test_arguments_and_results_are_those_of_all_windows(tmp_path: Path) -> None:
    told = [*code(3, KERNEL), *encodings(3, b"\x90")]
    one, window = syscalls((7, 0, 1)), bare([(3, 5)], 0, 5)
    # poll(fds, 64, -1) and poll(fds, 9, -1); its first argument is an address.
    forever = (1 << 64) - 1
    first = scalars(
        (7, 0, 4096, 4096, 4096, 1), (7, 1, 64, 64, 64, 5), (7, 2, forever, forever, forever, 9),
        (7, 6, 2, 2, 2, 3), (999, 1, 1, 1, 1, 1),
    )  # fmt: skip
    other = scalars((7, 1, 9, 9, 9, 6), (7, 2, forever, forever, forever, 9), (7, 6, 2, 2, 2, 3))
    windows = ([*one, *first, 17, 1, 900, *window], [*one, *other, 17, 1, 300, *window])
    phase = read(tmp_path, Calls("amd64", {7: "poll"}), told, *windows)
    assert phase.scalars == {
        "poll argument 2": (9, 64, 73, 11),
        "poll argument 3": (-1, -1, 0, 0),
        "poll result": (2, 2, 0, 0),
    }
    assert phase.behind == 300


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("fcntl", "7.0.26.1.0.1.6:7.3.13.1.0.0.0:7.1.30.1.0.0.0"),
        ("ioctl", "7.0.26.1.0.1.2:7.3.14.1.0.0.0"),  # open files, numbers
        ("symlink", "7.1.0.1.0.0.0:7.2.0.1.0.0.0:7.1.32.1.0.0.0"),
        # As many times 8 bytes as its second argument says.
        ("poll", "7.0.26.1.0.0.6:7.1.2.8.2.0.0"),
        ("clone3", "7.0.26.1.0.0.2:7.0.33.1.0.0.0:7.1.2.1.2.0.430"),  # words that are addresses
        ("kill", "7.0.26.1.0.0.3:7.0.34.1.0.0.1"),  # a task
        ("msgsnd", "7.0.26.1.0.0.12:7.2.2.1.3.8.0"),
        ("sendmsg", "7.0.26.1.0.1.4:7.2.9.56.0.0.0"),
        ("read", "7.0.26.1.0.1.4:7.2.1.1.0.0.0:7.2.18.1.0.0.0"),
        ("write", "7.0.26.1.0.1.4:7.2.7.1.3.0.0:7.0.21.1.0.0.0"),
        ("dup2", "7.0.26.1.0.3.0:7.1.30.1.0.0.0"),
        ("sched_yield", "7.0.28.1.0.0.0"),
        ("getppid", ""),
        ("shmat", "7.0.26.1.0.0.4:7.2.17.1.0.0.0"),
    ],
)
def test_what_the_plugin_reads_at_arguments(name: str, rows: str) -> None:
    assert pointed({7: name}) == rows


def test_strings_and_what_is_asked_outside_are_read(tmp_path: Path) -> None:
    names = {1: "write", 165: "mount", 157: "prctl", 28: "madvise", 61: "wait4", 201: "time"}
    calls = Calls("amd64", names)
    window = [*code(4, KERNEL), *encodings(4, b"\x90"), *syscalls(), *bare([(4, 5)], 0, 5)]
    first = outside(7, syscalls((157, 0, 2), (157, 22, 1)))
    more = outside(
        900, syscalls((157, 0, 2), (157, 22, 1), (165, 0, 1), (1, 0, 2), (61, 0, 1), (201, 0, 4),
                      (2 << 32, 0, 3), (3 << 32, 0, 1), (5 << 32, 0, 1)),
        scalars((165, 12, 9, 9, 9, 1 << 40 | 77), (1, 6, 5, 5, 5, 5), (1, 9, 3, 8, 11, 70),
                (1, 2, 64, 64, 64, 3), (28, 8, 3, 3, 3, 4), (1, 14, 1, 1, 1, 5),
                (61, 3, 4096, 4096, 4096, 1), (1, 256 + 9, 1, 2, 3, 4), (6 << 32, 14, 1, 1, 1, 6),
                (7 << 32, 256, 8, 8, 7, 7)),
    )  # fmt: skip
    first += [20, 10, 28, 50, 28, 8 | 6 << 52, 28, 5 | 2 << 52, 165, 60]  # at places
    first += [(1 << 64) - 1, 7, 21, 4, 3, 11, 0, 0, 22, 2, 6, 0]
    more += [21, 6, 5, 12, 40, 1 << 32 | 13, 6, 1 << 32 | 7, 22, 2, 1 << 32 | 2, 9]
    again = window[window.index(14) :]
    phase = read(tmp_path, calls, [*first, *window], [*more, *again])
    assert phase.outside == {
        "prctl EINVAL": (1, 1, 0, 0), "mount": (1, 1, 0, 0), "prctl": (2, 2, 0, 0),
        "write": (2, 2, 0, 0), "instructions": (900, 900, 0, 0), "write result": (5, 5, 0, 0),
        "mount string 5": (0, 0, 0, 77), "write argument 3": (64, 64, 0, 0),
        "write data 2": (0, 0, 0, 70), "madvise address 1": (0, 0, 0, 4),
        "write contents": (0, 0, 0, 5), "pages touched": (40, 40, 0, 13),
        "pages touched in another order": (0, 0, 0, 7),
        "order of calls, place 1": (8, 8, 7, 7), "wait4": (1, 1, 0, 0), "time": (4, 4, 0, 0),
        "rdtsc": (3, 3, 0, 0), "vDSO": (1, 1, 0, 0), "auxv contents": (0, 0, 0, 6),
        "a pointer within an argument": (1, 1, 0, 0), "write data 2, place 1": (1, 2, 3, 4),
    }  # fmt: skip
    told = {"rdtsc": 3, "time": 4, "vDSO": 1, "wait4": 1}
    assert phase.clock == {f"{name} outside the windows": n for name, n in told.items()}
    assert phase.scalars == {
        "pages touched": (3, 5, 8, 23), "pages touched in another order": (0, 0, 0, 6)
    }  # fmt: skip
    assert phase.spent == {"": 7, "madvise": 63, "mount": 60}
    assert phase.places == {"": (7,), "madvise": (50, 5, 8), "mount": (60,)}


def test_a_place_takes_what_it_takes_in_windows_that_asked_for_the_same(tmp_path: Path) -> None:
    told = [*code(5, KERNEL), *encodings(5, b"\x90")]
    first = outside(7, syscalls((28, 0, 2)))
    windows = [
        [*first, 20, 4, 28, 1 << 52 | one, 28, 2 << 52 | other, 22, 2, order, 0,
         *syscalls((28, 0, 2)), *bare([(5, insns)], 0, insns)]
        for one, other, order, insns in (
            (900, 20, 6, 5), (30, 800, 6, 5), (30, 20, 6, 5), (7, 7, 9, 5), (8, 8, 9, 5),
            (40, 50, 7, 9), (40, 60, 7, 9), (40, 70, 8, 80),
        )
    ]  # fmt: skip
    phase = read(tmp_path, of_calls("amd64"), told, *windows, windows=8)
    assert (phase.spent, phase.places) == ({"madvise": 920}, {"madvise": (30, 20)})
    assert phase.rarer == {5: {"madvise": (40, 50)}}  # one of 80 is no length


@pytest.mark.parametrize(
    ("arch", "clocks", "others"),
    [
        ("amd64", ["0f31", "0f33", "0f01f9", "660f31", "f3480f31"], ["0f30", "0f05", "480f05"]),
        ("arm64", ["40e03bd5", "21e03bd5", "c7e03bd5"], ["00e03bd5", "00e01bd5"]),
        ("riscv64", ["732510c0", "f32700c0", "732520c0"], ["732530c0", "73000000"]),
    ],
)
def test_what_reads_a_clock_in_user_space(
    tmp_path: Path, arch: str, clocks: Sequence[str], others: Sequence[str]
) -> None:
    for at, (text, reads) in enumerate(
        [*((c, True) for c in clocks), *((o, False) for o in others)]
    ):
        user, kernel = 2 * at + 10, 2 * at + 11
        told = [
            *code(user, 0x401000 + at), *encodings(user, bytes.fromhex(text)),
            *code(kernel, KERNEL + at), *encodings(kernel, bytes.fromhex(text)),
        ]  # fmt: skip
        own = [*syscalls(), *bare([(user, 7), (kernel, 2)], 7, 2)]
        name = {"amd64": "rdtsc", "arm64": "cntvct_el0", "riscv64": "rdtime"}[arch]
        phase = read(tmp_path, of_calls(arch), told, own, own)
        assert phase.clock == ({name: 14} if reads else {}), text


@pytest.mark.parametrize(
    ("made", "clock"),
    [
        ({"adjtimex": 2}, {"adjtimex": 2}),
        ({"utimensat": 3}, {}),
        ({"utimensat": 3, "fstat": 1}, {"utimensat": 3}),  # a file's stamp is looked at
    ],
)
def test_other_clocks(tmp_path: Path, made: Mapping[str, int], clock: Mapping[str, int]) -> None:
    names = dict(enumerate(made))
    told = [*code(60, KERNEL), *encodings(60, b"\x90")]
    own = [*syscalls(*((number, 0, made[name]) for number, name in names.items()))]
    window = [*told, *own, *bare([(60, 5)], 0, 5)]
    assert read(tmp_path, Calls("amd64", names), window, windows=1).clock == clock


def test_a_clock_call_and_the_vdso_are_clocks_in_any_window(tmp_path: Path) -> None:
    told = [*code(50, KERNEL), *encodings(50, b"\x90"), *code(51, VDSO[0]), *encodings(51, b"\x90")]
    one = [*syscalls(), *bare([(50, 5)], 0, 5)]
    other = [*syscalls((228, 0, 4)), *bare([(50, 9), (51, 3)], 3, 9)]
    phase = read(tmp_path, of_calls("amd64"), told, one, other)
    assert phase.clock == {"clock_gettime": 4, "vDSO": 3}


@pytest.mark.parametrize(
    ("reads", "made", "failed", "clock"),
    [
        (1, 1, 0, {"rdtsc of the loader": 1}),
        (2, 3, 1, {"rdtsc of the loader": 2}),
        (2, 1, 0, {"rdtsc": 2}),  # it may wait
        (1, 1, 1, {"rdtsc": 1}),  # nothing was started
    ],
)
def test_a_clock_that_a_loader_reads_once_for_each_start_is_named_apart(
    tmp_path: Path, reads: int, made: int, failed: int, clock: Mapping[str, int]
) -> None:
    told = [
        *code(60, KERNEL), *encodings(60, b"\x90"),
        *code(61, 0x7FFFF7FC8000), *encodings(61, b"\x0f\x31"),
    ]  # fmt: skip
    errors = [(59, 2, failed)] * bool(failed)
    own = [*syscalls((59, 0, made), *errors), *bare([(60, 5), (61, reads)], reads, 5)]
    calls = Calls("amd64", {59: "execve"}, loader=range(0x7FFFF7FC8000, 0x7FFFF7FCA000))
    assert read(tmp_path, calls, [*told, *own], windows=1).clock == clock


# ---- rules -----------------------------------------------------------------------------------


def trial(
    phase: Mapping[str, Any] | None = None, calls: Mapping[str, int] | None = None, ratio: float = 1
) -> TrialResult:
    """One of 6.16.12; ratio: of the kernel's instructions.  calls: of functions."""
    whole = result(trial_of("6.16.12"))
    asked: dict[str, Any] = {"syscalls": {"mprotect": 2}, "clock": {}, **(phase or {})}
    phases = tuple(
        replace(one, **asked, kernel=tuple(int(n * ratio) for n in one.kernel))
        for one in whole.exact.phases
    )
    rows = tuple(
        FunctionCount(phase=phases[0].phase, function=name, insns=0, calls=times)
        for name, times in (calls or {}).items()
    )
    return recounted(whole, phases=phases, functions=(*whole.exact.functions, *rows))


def judged(old: TrialResult, new: TrialResult) -> Comparison:
    method = CountMethod()
    arms = gather(run({"6.16.12": [old], "6.17.13": [new]}), WORKLOAD, SCENARIO, method)
    return compare_arms(method, *arms)


def shown(old: TrialResult, new: TrialResult, *, details: bool = True) -> str:
    page = show_page.show(report(run({"6.16.12": [old], "6.17.13": [new]})), details=details)
    return " ".join(plain(page).split())


ERROR = {"errors": {"mprotect EINVAL": 2}}


@pytest.mark.parametrize(
    ("phase", "words"),
    [
        ({"syscalls": {"mprotect": 2, "brk": 1}},
         "system calls differ in a window of protect: brk"),
        ({"syscalls": {"mprotect": 2, "exception 13": 1}}, "or exceptions differ in a window of"),
        (ERROR,
         "errors of system calls differ in a window of protect: mprotect EINVAL (0 against 2)"),
    ],
)  # fmt: skip
def test_other_calls_or_errors_forbid_a_verdict(phase: Mapping[str, Any], words: str) -> None:
    found = judged(trial(), trial(phase, ratio=2))
    assert found.verdict is Verdict.INVALID
    assert words in " ".join(found.reasons)
    unrecorded = trial({"syscalls": None, "clock": None}, ratio=2)
    assert judged(trial(phase), unrecorded).verdict is Verdict.REGRESSION


def test_errors_that_all_kernels_return_are_told_first() -> None:
    both = judged(trial(ERROR), trial(ERROR, ratio=2))
    assert both.verdict is Verdict.REGRESSION
    assert both.failing.endswith("mprotect() fails with EINVAL, 2 of 2")
    text = shown(trial(ERROR), trial(ERROR))
    assert text.index("mprotect() fails with EINVAL") < text.index("x first")
    told = written(
        claim(run({"6.16.12": [trial(ERROR)], "6.17.13": [trial(ERROR, ratio=2)]})),
        Letter(workloads={}),
    )
    assert "Hi,\n\nNote first that system calls fail in the windows: mprotect()" in told
    expected = trial({**ERROR, "by_design": ("mprotect EINVAL",)})
    assert judged(expected, expected).failing == ""
    before = trial({**ERROR, "errors": {}, "outside": {"mount ENODEV": (1, 1, 1, 0)}})
    assert judged(before, before).failing == (
        "system calls fail outside the windows: mount() fails with ENODEV"
    )


@pytest.mark.parametrize("ratio", [1, 2])
def test_a_clock_in_a_window_is_undecided(ratio: float) -> None:
    found = judged(trial(), trial({"clock": {"rdtsc": 9}}, ratio=ratio))
    assert found.verdict is Verdict.UNDECIDED
    assert "may decide how long a window is (rdtsc 9 times in 8 windows)" in found.reasons[0]
    assert "KD_OPS(n)" in found.reasons[0]
    ran = {"clock": {"sysinfo": 2}, "syscalls": {"execve": 1}}
    why = " ".join(judged(trial(ran), trial(ran, ratio=ratio)).reasons)
    assert "(sysinfo, which tells the uptime, 2 times in 8 windows)" in why
    assert "KD_OPS" not in why
    started = trial({"clock": {"rdtsc of the loader": 9}}, ratio=ratio)
    assert "clock" not in " ".join(judged(trial(), started).reasons)
    beside = {"clock": {"rdtsc outside the windows": 1}}
    found = judged(trial(), trial(beside, ratio=ratio))
    assert found.verdict is Verdict.UNDECIDED
    assert "reads or sets a clock outside its windows (rdtsc), and may choose" in found.reasons[0]
    for clock in ({"clock": {"rdtsc": 9}}, beside):
        meant = trial({**clock, "by_design": ("rdtsc",)})
        assert judged(trial(), meant).verdict is Verdict.SAME


@pytest.mark.parametrize(
    ("times", "was", "now", "verdict"),
    [
        (1, (5, 5, 6), (5, 6, 5), Verdict.SAME),  # a name that is drawn once more in one seed
        (2, (5, 5, 5), (5, 5, 5), Verdict.UNDECIDED),  # two looks measure a time
        (1, (5, 5), (5, 5), Verdict.UNDECIDED),
        (1, (5, 5, 6), (6, 5, 6), Verdict.UNDECIDED),
    ],
)
def test_one_look_at_a_clock_that_moved_nothing(
    times: int, was: Sequence[int], now: Sequence[int], verdict: Verdict
) -> None:
    clock = {"rdtsc outside the windows": times}
    arms = (asked(*({"instructions": 9000 + n} for n in arm)) for arm in (was, now))
    found = judged_own(*(own(*({**one, "clock": clock} for one in arm)) for arm in arms))
    assert found.verdict is verdict


@pytest.mark.parametrize(
    ("ratio", "was", "now", "verdict", "words"),
    [
        (0.5, {}, {"call_rcu": PAGES}, Verdict.UNDECIDED, "leaves more work to others"),
        # What so few things that are freed take is less than the difference.
        (0.5, {"call_rcu": 1}, {"call_rcu": 2}, Verdict.IMPROVEMENT, "down by"),
        (0.5, {}, {"queue_work_on": 1, "__queue_work": 1}, Verdict.UNDECIDED, "work queues"),
        (0.5, {}, {"raise_softirq": 1}, Verdict.UNDECIDED, "softirqs"),
        (0.5, {}, {"smp_call_function_many_cond": 1}, Verdict.UNDECIDED, "other CPUs"),
        (2, {"kthread_queue_work": 1}, {}, Verdict.UNDECIDED, "leaves less work to others"),
        (2, {}, {"call_rcu": PAGES}, Verdict.REGRESSION, "up by"),
    ],
)
def test_work_that_may_have_moved_is_undecided(
    ratio: float, was: dict[str, int], now: dict[str, int], verdict: Verdict, words: str
) -> None:
    found = judged(trial(calls=was), trial(calls=now, ratio=ratio))
    assert (found.verdict, words in found.reasons[0]) == (verdict, True)
    woken = judged(trial(), trial({"wakes": 3}, ratio=0.5))
    assert "tasks of others 0 -> tasks of others" in woken.reasons[0]


def own(*phases: Mapping[str, Any], ratio: float = 1) -> list[TrialResult]:
    """Trials of a C file of the user's own."""
    return [trial(phase, ratio=ratio) for phase in phases]


def run_own(old: list[TrialResult], new: list[TrialResult]) -> RunRecord:
    record = run({"6.16.12": old, "6.17.13": new})
    return replace(record, trials=tuple(replace(t, workload="/own.c") for t in record.trials))


def judged_own(old: list[TrialResult], new: list[TrialResult]) -> Comparison:
    method = CountMethod()
    return compare_arms(method, *gather(run_own(old, new), "/own.c", SCENARIO, method))


LIMIT = "a timer is set, or a limit of time"
RING = "by io_uring or io_submit(), and how that ends, is not read"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"outside": {"uname": (1, 1, 0, 0)}}, "asks which kernel it runs on (uname)"),
        ({"outside": {}, "syscalls": {"uname": 2}}, "asks which kernel it runs on (uname)"),
        ({"outside": {"a look at the vDSO": (1, 1, 0, 0)}}, "the kernel's own code (vDSO)"),
        ({"outside": {}, "syscalls": {"a look at the vDSO": 2}}, "the kernel's own code (vDSO)"),
        ({"outside": {"int 0x80": (9, 9, 0, 0)}}, "makes system calls by int 0x80"),
        ({"outside": {"a pointer within an argument": (9, 9, 0, 0)}}, "where kdelta does not look"),
        ({"outside": {"uname": (1, 1, 0, 0)}, "by_design": ("uname",)}, ""),
        ({"syscalls": {"uname": 2}}, ""),  # a shipped scenario
        ({"outside": {"prlimit64 argument 2": (3, 7, 20, 9)}}, ""),
        ({"outside": {"prlimit64 argument 2": (0, 7, 20, 9)}}, LIMIT),  # RLIMIT_CPU
        ({"outside": {"setrlimit argument 1": (15, 15, 0, 0)}}, LIMIT),  # RLIMIT_RTTIME
        ({"outside": {"io_uring_enter": (9, 9, 0, 0)}}, RING),
        ({"outside": {}, "syscalls": {"io_uring_enter": 9}}, RING),
        ({"outside": {"io_uring_enter": (9, 9, 0, 0)}, "by_design": ("io_uring_enter",)}, ""),
        ({"outside": {}, "syscalls": {"io_uring_enter": 9}, "by_design": ("io_uring_enter",)}, ""),
    ],
)
@pytest.mark.parametrize(("ratio", "verdict"), [(1, Verdict.SAME), (2, Verdict.REGRESSION)])
def test_what_a_program_must_not_ask_for_is_undecided(
    asked: Mapping[str, Any], words: str, ratio: float, verdict: Verdict
) -> None:
    found = judged_own(own(asked, asked, asked), own(asked, asked, asked, ratio=ratio))
    kind = Verdict.UNDECIDED if words else verdict
    assert (found.verdict, words in found.reasons[0]) == (kind, True)


def told(name: str, *each: int) -> list[Mapping[str, Any]]:
    """Trials that asked for it with these values, or for data of these digests."""
    number = " argument " in name
    return [{"scalars": {name: (n, n, 0, 0) if number else (0, 0, 0, n)}} for n in each]


@pytest.mark.parametrize(
    ("name", "was", "now", "words"),
    [
        ("poll argument 2", (64, 64, 64), (128, 128, 128), "poll argument 2 (64 against 128)"),
        ("poll argument 2", (64, 64, 64), (64, 64, 64), ""),
        # A seed moves it, in the same range or in another.
        ("poll argument 2", (7, 9, 8), (9, 8, 7), ""),
        ("poll argument 2", (7, 9, 8), (3, 9, 1), "poll argument 2 (7 to 9 against 1 to 9)"),
        ("poll argument 2", (7,), (8,), "; one seed may draw that, 3 (--rounds 3) tell"),
        ("pages touched", (7, 7, 7), (8, 8, 8), "pages touched (digest 00000007 against digest 0"),
        ("pages touched in another order", (7, 7, 7), (8, 8, 8), "pages touched in another order"),
        ("pages touched in another order", (7, 8, 9), (8, 7, 9), ""),
        ("read contents", (5, 5, 5), (6, 6, 6), "read contents (digest 00000005 against digest 0"),
    ],
)
def test_what_windows_asked_for_is_compared_where_it_stays(
    name: str, was: Sequence[int], now: Sequence[int], words: str
) -> None:
    old, new = own(*told(name, *was)), own(*told(name, *now), ratio=2)
    found = judged_own(old, new)
    assert found.verdict is (Verdict.UNDECIDED if words else Verdict.REGRESSION)
    assert words in found.reasons[0]
    if len(was) == 3 and words:
        assert "did not ask both kernels for the same in its windows: " in found.reasons[0]
        assert judged(old[0], new[0]).verdict is Verdict.REGRESSION  # shipped: by construction
        assert judged_own(own({}, {}, {}), new).verdict is Verdict.REGRESSION  # not recorded
        meant = own(*({**each, "by_design": (name,)} for each in told(name, *was)))
        assert judged_own(meant, new).verdict is Verdict.REGRESSION


@pytest.mark.parametrize(
    ("ratio", "now", "verdict", "words"),
    [
        (1, {"read": 1, "mprotect": 1}, Verdict.SAME, ""),
        (1, {"read": 0.5, "mprotect": 1.5}, Verdict.UNDECIDED,
         "the system calls go two ways (mprotect() in touch +"),
        (1, {"read": 1, "mprotect": 1.5}, Verdict.SAME, "within it: mprotect() in touch +"),
        (2, {"read": 3, "mprotect": 0.5}, Verdict.REGRESSION, "within it: mprotect() in touch -"),
        (2, {"read": 2, "mprotect": 2}, Verdict.REGRESSION, ""),
    ],
)  # fmt: skip
def test_system_calls_of_a_window_that_go_two_ways(
    ratio: float, now: Mapping[str, float], verdict: Verdict, words: str
) -> None:
    half = min(trial().exact.phases[0].kernel) // 2
    was = {"places": dict.fromkeys(now, (half,))}
    after = {"places": {name: (int(half * n),) for name, n in now.items()}}
    found = judged_own(own(was, was, was), own(after, after, after, ratio=ratio))
    assert (found.verdict, words in found.reasons[0]) == (verdict, True)
    assert bool(found.within) is ("within" in words)


@pytest.mark.parametrize("ratio", [1, 2])
def test_the_first_line_names_the_calls_that_changed_most(ratio: int) -> None:
    both = {"syscalls": dict.fromkeys(("brk", "mmap", "read"), 1)}
    spent = ({"brk": 7, "mmap": 900, "read": 100}, {"brk": 7, "mmap": 870, "read": 140, "": 60})
    old, new = ([{**both, "spent": each}] * 3 for each in spent)
    record = run_own(own(*old), own(*new, ratio=ratio))
    found = report(record)
    first, *rest = plain(show_page.show(found, details=False)).split("\n\n")
    told = "Most changed per window: page faults 0 -> 60 (new), read 100 -> 140 (x1.400), mmap 900 "
    assert told in " ".join(first.split())
    assert ("brk" in "".join(rest), "brk" in plain(show_page.show(found))) == (False, True)

    def kept(trial: int, _phase: str) -> list[PathNode]:
        own = 70 + 30 * record.trials[trial].arm
        return [PathNode(-1, "__x64_sys_read", 1, 0), PathNode(0, "vfs_read", 1, own)]

    told = plain(show_page.show(found, kept=kept)).partition("takes most:")[2].splitlines()[2]
    assert told.split(maxsplit=2) == ["read", "+30", "vfs_read: its own code, called once"]


def test_calls_that_seeds_move_as_far_are_told_as_chance() -> None:
    both = {"syscalls": dict.fromkeys(("brk", "mmap", "read"), 1)}
    spent = {"brk": 7, "mmap": 900, "read": 100, "wait4": 5}, {"brk": 7, "mmap": 870, "read": 140}
    arms = [
        [{**both, "spent": side, "places": {"mmap": (n,), "read": (read,)}} for n in mmap]
        for side, mmap, read in zip(
            spent, ((900, 860, 880), (870, 890, 850)), (100, 140), strict=True
        )
    ]
    found = report(run_own(own(*arms[0]), own(*arms[1], ratio=2)))
    page = plain(show_page.show(found, details=False))
    assert "Most changed per window: read 100 -> 140 (x1.400)." in " ".join(page.split())
    assert ("~-30" in page, "~-5" in page, "+40" in page) == (True, True, True)


@pytest.mark.parametrize(
    ("call", "was", "now", "verdict"),
    [
        ("read", "5555 5555 5555", "6464 6464 6464", Verdict.UNDECIDED),
        ("", "5555 5555 5555", "6464 6464 6464", Verdict.UNDECIDED),
        ("read", "4455 5544 4455", "4554 5445 4554", Verdict.UNDECIDED),  # a seed orders them
        ("read", "4455 4455 4455", "4554 4455 4554", Verdict.SAME),  # not in each
        ("", "46 46 46", "464 464 464", Verdict.SAME),  # the n-th of more is another one
    ],
)
def test_calls_of_one_kind_go_two_ways_by_their_places(
    call: str, was: str, now: str, verdict: Verdict
) -> None:
    unit = min(trial().exact.phases[0].kernel) // 900
    old, new = (
        own(*({"places": {call: tuple(unit * int(n) for n in 50 * seed)}} for seed in side.split()))
        for side in (was, now)
    )
    found = judged_own(old, new)
    which = "100 of 200, from number 1 on" if "6" in now else "50 of 200, from number 2 on"
    told = f"{'read()' if call else 'page faults'} in touch ({which}) +"
    assert (found.verdict, told in found.reasons[0]) == (verdict, verdict is Verdict.UNDECIDED)


@pytest.mark.parametrize(
    ("whole", "parts", "verdict", "words"),
    [
        (Verdict.SAME, {"load": 0.5, "guard": 1.5}, Verdict.UNDECIDED,
         "the phases go two ways (load x0.500, guard x1.500)"),
        (Verdict.SAME, {"load": 1, "guard": 1.5}, Verdict.SAME, "within it: guard x1"),
        (Verdict.IMPROVEMENT, {"load": 0.5, "guard": 1.5}, Verdict.IMPROVEMENT,
         "within it: guard x1.500"),
        (Verdict.IMPROVEMENT, {"load": 0.5, "guard": 1}, Verdict.IMPROVEMENT, ""),
        (Verdict.INVALID, {"load": 0.5, "guard": 1.5}, Verdict.INVALID, ""),
        (Verdict.UNDECIDED, {"load": 1, "guard": 1.5}, Verdict.UNDECIDED,
         "within it: guard x1.500"),
    ],
)  # fmt: skip
def test_phases_that_do_not_go_as_their_sum(
    whole: Verdict, parts: Mapping[str, float], verdict: Verdict, words: str
) -> None:
    kinds = {0.5: Verdict.IMPROVEMENT, 1: Verdict.SAME, 1.5: Verdict.REGRESSION}
    grade = Grade.EXACT_PATH
    each = {
        name: Comparison(verdict=kinds[ratio], grade=grade, reasons=("",), ratio=ratio)
        for name, ratio in parts.items()
    }
    rarely = "two lengths" * (whole is Verdict.UNDECIDED)
    sums = Comparison(verdict=whole, grade=grade, reasons=("by",), ratio=1.0, rarely=rarely)
    found = weighed_by_phases(sums, each)
    assert (found.verdict, words in found.reasons[0]) == (verdict, True)
    assert bool(found.within) is ("within" in words)


def asked(*each: Mapping[str, int | tuple[int, ...]]) -> list[Mapping[str, Any]]:
    """What trials asked for outside, by name a number, or a digest in front of nothing else."""
    rows = ({n: (v, v, 0, 0) if isinstance(v, int) else v for n, v in one.items()} for one in each)
    return [{"outside": {"instructions": (9000, 9000, 0, 0), **row}} for row in rows]


def drawn(*each: int, more: int = 0) -> list[dict[str, int | tuple[int, ...]]]:
    """Digests of a path, and those of its bytes by their places, of which each trial draws two."""
    row = "openat string 2"
    return [{row: (0, 0, 0, 90 + n), f"{row}, place 1": (7, n, more, 9 * n)} for n in each]


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        (drawn(1, 2, 3, more=5), drawn(4, 5, 6, more=7),
         ": openat string 2, in part"),
        (drawn(1, 2, 3, more=5), drawn(4, 5, 6, more=5), ""),
        *(([{f"order of calls, place {n}": (drawn, 0, 5, 0)} for drawn in (7, 8, 9)],
           [{f"order of calls, place {n}": (drawn, 0, 6, 0)} for drawn in (1, 2, 3)],
           ": order of calls, in part") for n in (1, 2)),
        # What is asked otherwise is named, and not its order.
        ([{"order of calls, place 1": (0, 0, 0, 1), "read argument 3": 1}] * 3,
         [{"order of calls, place 1": (0, 0, 0, 2), "read argument 3": 2}] * 3,
         "windows: read argument 3 (1 against 2)"),
        ([{"read": 1, "read contents": (0, 0, 0, n)} for n in (5, 6, 5)],
         [{"read": 1, "read contents": (0, 0, 0, 6)}] * 3, "read contents ("),  # maybe a clock
        ([{"prctl": 1}] * 3, [{"prctl": 1, "prctl EINVAL": 1}] * 3,
         "prctl fails with EINVAL on the new kernel only"),
        ([{"clone": 8}] * 3, [{"clone": 9}] * 3, "clone (8 against 9)"),
        ([{"mount": 1, "mount string 5": (0, 0, 0, 1)}] * 3,
         [{"mount": 1, "mount string 5": (0, 0, 0, 2)}] * 3,
         "mount string 5 (digest 00000001 against digest 00000002)"),
        ([{"instructions": 11000}] * 3, [{"instructions": 12200}] * 3, "instructions (11000"),
        ([{f"call {n}": 1 for n in range(7)}] * 3, [{}] * 3, "call 4 (1 against 0) and 2 more"),
        # Each seed draws a number, from a range of its kernel's, or from the same.
        ([{"fcntl": 1, "fcntl argument 3": n} for n in (64, 90, 70)],
         [{"fcntl": 1, "fcntl argument 3": n} for n in (99, 70, 86)],
         "fcntl argument 3 (64 to 90 against 70 to 99)"),
        ([{"poll": 1, "poll result": n} for n in (1, 2, 1)],
         [{"poll": 1, "poll result": n} for n in (2, 1, 2)], ""),
        ([{"auxv": 2, "auxv contents": (0, 0, 0, 5)}] * 3,
         [{"auxv": 2, "auxv contents": (0, 0, 0, 6)}] * 3, "auxv contents (digest 00000005 aga"),
        # A library's few, one in a hundred of many, what a seed moves, and what timing moves.
        ([{"instructions": 11000}] * 3, [{"instructions": 11900}] * 3, ""),
        ([{"instructions": 10**6}] * 3, [{"instructions": 1009000}] * 3, ""),
        ([{"read": 3}, {"read": 4}, {"read": 3}], [{"read": 5}] * 3, ""),
        ([{"futex": 3}] * 3, [{"futex": 5}] * 3, ""),
    ],
)  # fmt: skip
def test_what_a_program_did_outside_its_windows_is_compared(
    was: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]], words: str
) -> None:
    for ratio, verdict in ((1, Verdict.SAME), (2, Verdict.REGRESSION)):
        old, new = own(*asked(*was)), own(*asked(*now), ratio=ratio)
        found = judged_own(old, new)
        assert found.verdict is (Verdict.UNDECIDED if words else verdict)
        told = "the program did not ask both kernels for the same outside its windows"
        assert (told in found.reasons[0]) == bool(words)
        assert ("order of calls" in found.reasons[0]) == ("order" in words)
        assert words in found.reasons[0]
        assert judged_own(own({}, {}, {}), new).verdict is verdict  # not recorded
    design = tuple(name.partition(", place")[0] for name in (*was[0], *now[0]))
    old, new = (own(*({**one, "by_design": design} for one in asked(*arm))) for arm in (was, now))
    assert judged_own(old, new).verdict is Verdict.SAME


@pytest.mark.parametrize(
    ("more", "faults", "verdict"),
    [
        (1.25, 0, Verdict.UNDECIDED),
        (1.005, 0, Verdict.REGRESSION),
        # Of pages that one kernel was not asked for; each may count an instruction once more.
        (1.25, 10**9, Verdict.UNDECIDED),
    ],
)
def test_a_program_that_executes_more_itself_does_more(
    more: float, faults: int, verdict: Verdict
) -> None:
    old, new = own({}, {}, {}), own({}, {}, {}, ratio=2)
    for at, each in enumerate(new):
        phases = each.exact.phases
        users = (
            replace(one, user=tuple(int(n * more) for n in one.user), outside=None)
            for one in phases
        )
        row = FunctionCount(phase=phases[0].phase, function="exc_page_fault", insns=0, calls=faults)
        new[at] = recounted(each, phases=tuple(users), functions=(*each.exact.functions, row))
    found = judged_own(old, new)
    assert found.verdict is verdict
    told = "page faults where it took 0" if faults else "the program itself executed other"
    assert (told in found.reasons[0]) == (verdict is Verdict.UNDECIDED)


@pytest.mark.parametrize(
    ("name", "ratio", "parts", "verdict"),
    [
        ("lookup_fast", 2, (10**6, 10**6), Verdict.REGRESSION),
        ("lookup_fast", 2, (10**6, 2 * 10**6), Verdict.UNDECIDED),
        ("lookup_fast", 1, (2 * 10**6, 10**6), Verdict.UNDECIDED),
        ("lookup_fast", 2, (0, 10**6), Verdict.REGRESSION),  # inlined on the old kernel
        ("__zone_watermark_ok", 2, (0, 10**6), Verdict.UNDECIDED),
        ("__text_poke", 2, (10**6, 2 * 10**6), Verdict.UNDECIDED),
        ("__zone_watermark_ok", 1, (10**6, 10**6), Verdict.SAME),
    ],
)
def test_what_the_state_of_the_machine_decides_is_no_step(
    name: str, ratio: float, parts: tuple[int, int], verdict: Verdict
) -> None:
    arms = [own({}, {}, {}), own({}, {}, {}, ratio=ratio)]
    for at, calls in enumerate(parts):
        (row,) = (FunctionCount(phase=p.phase, function=name, insns=0, calls=calls)
                  for p in arms[at][0].exact.phases[:1])  # fmt: skip
        more = (row,) if calls else ()
        arms[at] = [recounted(e, functions=(*e.exact.functions, *more)) for e in arms[at]]
    found = judged_own(*arms)
    assert found.verdict is verdict
    assert ("a window meets other" in found.reasons[0]) == (verdict is Verdict.UNDECIDED)


BEHIND = 10**9  # more than the windows have


@pytest.mark.parametrize(
    ("ratio", "was", "now", "verdict"),
    [
        (0.5, (0, 0, 0), (BEHIND,) * 3, Verdict.UNDECIDED),
        (2, (BEHIND,) * 3, (0, 0, 0), Verdict.UNDECIDED),
        (1, (0, 0, 0), (BEHIND,) * 3, Verdict.UNDECIDED),
        (2, (0, 0, 0), (BEHIND,) * 3, Verdict.REGRESSION),
        (0.5, (0, 0, 0), (9, 9, 9), Verdict.IMPROVEMENT),
        # A seed moves it.
        (0.5, (0, 2 * BEHIND, 0), (BEHIND,) * 3, Verdict.IMPROVEMENT),
    ],
)
def test_work_that_tasks_of_the_programs_own_do_behind_the_windows(
    ratio: float, was: Sequence[int], now: Sequence[int], verdict: Verdict
) -> None:
    old = own(*({"behind": each} for each in was))
    new = own(*({"behind": each} for each in now), ratio=ratio)
    found = judged_own(old, new)
    assert found.verdict is verdict
    told = "other tasks of the program's own do other work in the kernel outside the windows"
    assert (told in found.reasons[0]) == (verdict is Verdict.UNDECIDED)
    shipped = judged(old[0], new[0])
    assert told not in shipped.reasons[0]


def test_states_of_the_machine_stand_beside_the_count_where_they_differ() -> None:
    old, new = (
        replace(own := trial(), state=(*own.state, *(
            StateField(when="before", name=f"machine_{name}", value=value, want="free")
            for name, value in (("tasks", tasks), ("mounts", "20"))
        )))
        for tasks in ("61", "64")
    )  # fmt: skip
    assert "tasks of the machine before the windows: 6.16.12 61, 6.17.13 64" in shown(old, new)
    assert "mounts of the machine" not in shown(old, new)
    assert "tasks of the machine" not in shown(old, new, details=False)


# ---- before any boot -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it has no marks"),
        ("KD_BEGIN(3);", r"windows of phases \[3\] begin, and of none end"),
    ],
)
def test_a_file_without_windows_is_refused_before_a_boot(
    tmp_path: Path, text: str, words: str
) -> None:
    file = tmp_path / "own.c"
    file.write_text(f'#include "kdelta.h"\nint main(void) {{ {text} return 0; }}\n')
    with pytest.raises(SpecError, match=words):
        guest.check_marks(workload.load(str(file)), of("amd64"))
    done = CliRunner().invoke(cli, ["run", str(file), "--kernels", "6.17"])
    assert isinstance(done.exception, SpecError)
    file.write_text('#include "kdelta.h"\nint main(void) { KD_BEGIN(3); KD_END(3); return 0; }\n')
    for arch in ARCHES.values():
        guest.check_marks(workload.load(str(file)), arch)


def test_a_phase_that_only_the_toml_has_is_refused_before_a_boot(tmp_path: Path) -> None:
    toml = workload.load("mincore").program.with_suffix(".toml").read_text()
    text = workload.load("mincore").program.read_text()
    (tmp_path / "mincore.c").write_text(text)
    (tmp_path / "mincore.toml").write_text(toml)
    guest.check_marks(workload.load(str(tmp_path / "mincore.c")), of("amd64"))
    (tmp_path / "mincore.toml").write_text(
        toml.replace("scan = ", "scam = ").replace('"scan"', '"scam"')
    )
    load = workload.load(str(tmp_path / "mincore.c"))
    with pytest.raises(SpecError, match="phase scam with id"):
        guest.check_marks(load, of("amd64"))


def test_the_names_of_system_calls_are_those_of_the_architecture() -> None:
    for arch, number in (("amd64", 28), ("arm64", 233), ("riscv64", 233)):
        names = guest.syscall_names(of(arch))
        assert (names[number], names[462]) == ("madvise", "mseal")
        assert {*names.values()} <= table().keys()
    assert guest.syscall_names(of("arm64"))[25] == "fcntl"
