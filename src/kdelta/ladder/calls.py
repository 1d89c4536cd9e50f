# SPDX-License-Identifier: GPL-2.0-or-later
"""What windows asked the kernel for, and what they left to others: facts beside an exact count.

A count is evidence only when both arms made the same system calls with the same errors, when no
clock decided how long a window is, and when the work that was counted is all of the work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from kdelta.sample import TOTAL, FunctionCount, PhaseCounts
from kdelta.verdict.comparison import Comparison, CountReading, Verdict

_RCU, _WOKEN = "RCU", "tasks of others"
_DEAREST = 5000  # instructions that freeing one thing takes at most
# Functions that leave work to what no window counts.  Those in one tuple may call each other, or
# be inlined into each other: the most frequent one stands for it.  Not task_work_add(): such work
# is done when the task goes back to user space, which is within the window.
_LEAVE = {
    _RCU: (("call_rcu",), ("call_rcu_hurry",), ("kvfree_call_rcu",)),
    "work queues": (
        ("queue_work_on", "__queue_work"),
        ("queue_work_node",),
        ("queue_delayed_work_on", "mod_delayed_work_on", "__queue_delayed_work"),
    ),
    "kernel threads": (
        ("kthread_queue_work",),
        ("kthread_queue_delayed_work", "kthread_mod_delayed_work"),
    ),
    "softirqs": (
        ("raise_softirq", "raise_softirq_irqoff", "__raise_softirq_irqoff"),
        ("irq_work_queue",),
    ),
    "other CPUs": (
        ("smp_call_function_many_cond",),
        ("smp_call_function_single", "generic_exec_single"),
        ("smp_call_function_single_async",),
        ("irq_work_queue_on",),
    ),
}


def left_by(rows: Iterable[FunctionCount], wakes: int) -> dict[str, int]:
    """Requests to do something outside the windows that these functions ran in, by who does it.

    wakes: of tasks that are not the workload's.
    """
    calls = {row.function: row.calls for row in rows}
    found = {
        who: sum(max(calls.get(name, 0) for name in names) for names in groups)
        for who, groups in _LEAVE.items()
    }
    return {who: times for who, times in {**found, _WOKEN: wakes}.items() if times}


def weighed_by_work_left(found: Comparison, old: CountReading, new: CountReading) -> Comparison:
    """A comparison of counts with what the windows left to others.

    A path that got shorter and leaves more, or longer and leaves less, is UNDECIDED: the work may
    have moved.  What a request may be worth has no bound, but for RCU: it frees one thing.
    """
    if not found.verdict.is_step or not found.difference:
        return found
    was, now = ({who: n / one.operations for who, n in one.left} for one in (old, new))
    less = found.difference < 0
    more = {
        who: (now.get(who, 0) - was.get(who, 0)) * (1 if less else -1) for who in (*_LEAVE, _WOKEN)
    }
    if more[_RCU] * _DEAREST < abs(found.difference):
        del more[_RCU]
    moved = [who for who, requests in more.items() if requests > 0]
    if not moved:
        return found
    sides = (", ".join(f"{who} {side.get(who, 0):.3g}" for who in moved) for side in (was, now))
    return _undecided(
        found,
        f"the path leaves {'more' if less else 'less'} work to others, which is not counted"
        f" (requests per operation: {' -> '.join(sides)}), so the work may have moved",
    )


def weighed_by_clock(
    found: Comparison, phases: Sequence[PhaseCounts], phase: str = TOTAL
) -> Comparison:
    """A comparison with the clocks that the windows of either arm read in a phase, or in any."""
    reads: dict[str, int] = {}
    for own in phases:
        for name, times in (own.clock or {}).items() if phase in (TOTAL, own.phase) else ():
            if name not in own.by_design:
                reads[name] = max(times, reads.get(name, 0))
    named = ", ".join(f"{name} {times} times" for name, times in reads.items())
    if not named or found.verdict is Verdict.INVALID:
        return found
    return _undecided(
        found,
        f"the program reads a clock inside the window ({named}), and time is not what is counted;"
        " count operations instead: a fixed number of them, told by KD_OPS(n)",
    )


def _undecided(found: Comparison, why: str) -> Comparison:
    reason = f"{'; '.join(found.reasons)}; but {why}"
    return replace(found, verdict=Verdict.UNDECIDED, reasons=(reason,))


def differences(old: Sequence[PhaseCounts], new: Sequence[PhaseCounts]) -> list[str]:
    """How the system calls of two trials differ, or their errors, a sentence for each phase.

    What was not recorded is not compared.
    """
    found = []
    for was, now in zip(old, new, strict=False):
        if was.phase != now.phase or was.syscalls is None or now.syscalls is None:
            continue
        told = _apart(was.errors, now.errors) or _apart(was.syscalls, now.syscalls)
        what = "errors of system calls" if was.errors != now.errors else "system calls"
        if told:
            found.append(f"{what} differ in a window of {was.phase}: {told}")
    return found


def _apart(old: Mapping[str, int], new: Mapping[str, int]) -> str:
    return ", ".join(
        f"{name} ({old.get(name, 0)} against {new.get(name, 0)})"
        for name in dict.fromkeys([*old, *new])
        if old.get(name, 0) != new.get(name, 0)
    )


def failing(phases: Iterable[PhaseCounts]) -> str:
    """What the system calls in these windows return that the scenario does not declare; "" for
    nothing.
    """
    told: dict[str, str] = {}
    for own in phases:
        for name, times in own.errors.items():
            call, _, error = name.rpartition(" ")
            of = (own.syscalls or {}).get(call, times)
            if name not in own.by_design:
                told.setdefault(
                    f"{own.phase} {name}", f"{call}() fails with {error}, {times} of {of}"
                )
    if not told:
        return ""
    return f"system calls fail in the windows: {'; '.join(told.values())}"
