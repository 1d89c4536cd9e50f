# SPDX-License-Identifier: GPL-2.0-or-later
"""What windows asked the kernel for, and what they left to others: facts beside an exact count.

A count is evidence only when both arms made the same system calls with the same errors, when no
clock decided how long a window is, and when the work that was counted is all of the work.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeVar

from kdelta.metric import plural
from kdelta.printable import few
from kdelta.sample import (
    EMULATED,
    INSTRUCTIONS,
    OF_FILE,
    OF_LOADER,
    OF_POINTER,
    OF_VDSO,
    OLD_CALL,
    ORDER,
    OUTSIDE,
    PLACE,
    REORDERED,
    TOTAL,
    FunctionCount,
    PhaseCounts,
)
from kdelta.verdict.comparison import LEAST_SEEDS, Comparison, CountReading, Spent, Verdict

T = TypeVar("T")
Arm = Sequence[Sequence[PhaseCounts]]  # of its trials
FAULTS = "page faults"
_RCU, _WOKEN = "RCU", "tasks of others"
# Functions that run as often as the state of the machine says -> instructions of one at most, and
# what it means.  None: of a kernel that has it inlined nothing is known.
_BY_STATE = {
    "lookup_fast": (2000, None, "parts of paths: a link, as those of /sys, may lead elsewhere"),
    "__zone_watermark_ok": (500, 0, "zones of memory nearly full: other memory is free at boot"),
    "__text_poke": (500, 0, "places of code that the kernel patches, of a static key"),
}
_LIMITS = ("setrlimit argument 1", "prlimit64 argument 2")
# RLIMIT_CPU is the lowest number of all, and RLIMIT_RTTIME the highest.
_LIMIT_OF_CPU, _LIMIT_OF_REAL_TIME = 0, 15
# How often these are made depends on who comes first.
_FUTEX_OPERATION = "futex argument 2"
_BY_TIME = ("futex", "sched_yield", "restart_syscall", "rt_sigreturn")
_COMPLETED = (
    "what it asks for by io_uring or io_submit(), and how that ends, is not read: a program that"
    " checks it lists the call in by_design of its TOML"
)
_QUESTIONS = {
    "uname": "the program asks which kernel it runs on (uname), and may do other things on another:"
    " take that out, or list uname in by_design of its TOML if nothing depends on it",
    OF_VDSO: "the program reads the kernel's own code (vDSO), and may do other things on another:"
    " take that out",
    EMULATED: "the kernel executes an instruction in the program's place (smsw, sgdt), which may do"
    " other things by the result: take that out",
    OLD_CALL: "it makes system calls by int 0x80 or sysenter, whose arguments are not read",
    OF_POINTER: "it hands the kernel a pointer within an argument (ioctl, bpf), where kdelta does"
    " not look",
    OF_FILE: "it takes what /proc, /sys or /dev/kmsg says in a way that kdelta does not follow"
    " (mmap, readv, sendfile, splice, dup, a folder's names): take it by read()",
    **dict.fromkeys(("io_uring_enter", "io_submit"), _COMPLETED),
}
_TELLS = {"sysinfo": "sysinfo, which tells the uptime,"}  # a time that the name does not say
_BUFFERS = (7, 8)  # SO_SNDBUF, SO_RCVBUF
_FEW = 1000  # instructions in user space that a library may take more on one kernel
_MOST_NAMED = 5
_FAULT_LEAST = 500  # instructions that a page fault takes at least
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


# Of x86-64, arm64 and riscv64: they call each other.
FAULT = ("exc_page_fault", "do_page_fault", "__do_page_fault", "do_mem_abort", "handle_page_fault")


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
    was, now = ({who: n / one.operations for who, n in one.left.items()} for one in (old, new))
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
    return left_open(
        found,
        f"the path leaves {'more' if less else 'less'} work to others, which is not counted"
        f" (requests per operation: {' -> '.join(sides)}), so the work may have moved",
    )


def by_state(rows: Sequence[FunctionCount]) -> dict[str, int]:
    """How often functions were entered that the state of the machine decides on."""
    each = {name: sum(row.calls for row in rows if row.function == name) for name in _BY_STATE}
    return {name: times for name, times in each.items() if times}


def program_apart(
    found: Comparison, old: CountReading, new: CountReading, step_percent: float
) -> Iterator[str]:
    """What else a program of the user's own did or may have failed, the surest first."""
    if found.verdict is Verdict.INVALID or old.program is None or new.program is None:
        return
    step, apart = step_percent * old.value / 100, abs(new.faults - old.faults)
    difference, is_step = new.value - old.value, found.verdict.is_step
    (least, most), (low, high) = old.program, new.program
    own = max(low - most, 0) - max(least - high, 0)
    decides = is_step is not (abs(difference - own) > step) or (difference - own) * difference < 0
    # An instruction that faults may be counted once more.
    if abs(own) > apart and (abs(own) - apart > step_percent * most / 100 or decides):
        yield (
            f"the program itself executed other instructions ({most:,} -> {high:,} a"
            " window, in user space), so it did not ask the two kernels for the same"
        )
    (least, most), (low, high) = old.behind, new.behind
    more = max(low - most, 0) - max(least - high, 0)  # what a seed moves is chance
    whole = difference + more
    stands = not is_step or whole * difference > 0
    kept = is_step == (abs(whole) > step) and found.verdict is not Verdict.UNDECIDED
    if abs(more) > step and not (kept and stands):
        was, now = (most, low) if more > 0 else (least, high)
        yield (
            "other tasks of the program's own do other work in the kernel outside the windows"
            f" ({was:,} -> {now:,} instructions a window), which is not counted: it may have moved"
        )
    for name, (each, absent, why) in _BY_STATE.items():
        first, last = (side.by_state.get(name, absent) for side in (old, new))
        if first is None or last is None or found.verdict is Verdict.UNDECIDED:
            continue
        if abs(last - first) * each > step:
            yield f"a window meets other {why} ({name}: {first:,} -> {last:,})"
    touched = 100 * apart > step_percent * max(old.faults, new.faults)
    if touched and apart * _FAULT_LEAST > step and found.verdict is not Verdict.UNDECIDED:
        yield (
            f"a window takes {new.faults} page faults where it took {old.faults}: either it touched"
            " other pages, or the kernel maps more at once"
        )


def weighed_by_phases(found: Comparison, each: Mapping[str, Comparison]) -> Comparison:
    """A comparison of sums with those of its phases: a sum hides what goes another way."""
    ratios = {n: own for n, own in each.items() if own.verdict.is_step and own.ratio}
    named = {n: f"{n} x{own.ratio:.3f}" for n, own in ratios.items()}
    two = len({own.verdict for own in ratios.values()}) > 1
    apart = [named[n] for n, own in ratios.items() if own.verdict is not found.verdict]
    return _weighed_by_parts(found, "phases", [*named.values()] if two else [], apart)


def weighed_by_calls(
    found: Comparison, old: CountReading, new: CountReading, step_percent: float
) -> Comparison:
    """The same of the system calls and page faults of a window, of a program of the user's own.

    By their places: all that rose counts together, and all that fell, in the seed of the least.
    Of each length of a window apart.
    """
    for length, was in old.places.items() if old.program else ():
        now = new.places.get(length, {})
        sides = [(was[seed], now[seed]) for seed in was if was[seed] and now.get(seed)]
        all_have_it = old.rare and new.rare and len(sides) == len(old.places[""])
        if found.verdict is Verdict.UNDECIDED or not sides or (length and not all_have_it):
            continue
        each = [_ways(*pair, alike=old.faults == new.faults) for pair in sides]
        rose, fell = min(each, key=lambda ways: min(sum(n for n, _ in way) for way in ways))
        whole = max(sum(map(sum, own.values())) for own, _ in sides) if length else old.value
        up, down = (_large(way, step_percent * whole / 100) for way in (rose, fell))
        apart = down if (found.difference or 0) > 0 else up
        if found.verdict is Verdict.SAME:
            apart = [*up, *down]
        two = [*up, *down] if up and down else []
        found = _weighed_by_parts(found, "system calls", two, apart)
    return found


def _ways(
    was: Spent, now: Spent, *, alike: bool
) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """How much each call rises and how much it falls, with words, over the places that do.

    Where one kernel has more of them, the n-th of one is not that of the other: their sums count.
    alike: both take as many page faults.
    """
    ways: dict[bool, list[tuple[int, str]]] = {True: [], False: []}
    for call in dict.fromkeys([*was, *now]):
        pairs = [*zip(was.get(call, ()), now.get(call, ()), strict=False)]
        if len(was.get(call, ())) != len(now.get(call, ())) or (FAULTS in call and not alike):
            pairs = [(sum(was.get(call, ())), sum(now.get(call, ())))]
        more = {at: new - old for at, (old, new) in enumerate(pairs, start=1) if new != old}
        for rises in {n > 0 for n in more.values()}:
            own = {at: n for at, n in more.items() if (n > 0) is rises}
            part = f" ({len(own)} of {len(pairs)}, from number {min(own)} on)"
            words = f"{call}{part * (len(own) < len(pairs))} {sum(own.values()):+,}"
            ways[rises].append((abs(sum(own.values())), words))
    return ways[True], ways[False]


def _large(parts: Sequence[tuple[int, str]], least: float) -> list[str]:
    """What is more than that, or most, where all of it together is more."""
    ranked = sorted(parts, reverse=True)
    if sum(n for n, _ in ranked) <= least:
        return []
    return [words for n, words in ranked if n > least] or [ranked[0][1]]


def places(trials: Iterable[tuple[int, PhaseCounts]]) -> dict[str, dict[int, Spent]]:
    """What each call takes, and each page fault, by words; in windows of each length, by seed."""
    found: dict[str, dict[int, Spent]] = {"": {}}
    for seed, own in trials:
        of = f" of {own.phase}'s windows like number"
        rarer = {f"{of} {at + 1}": rows for at, rows in own.rarer.items()}
        for length, rows in {"": own.places, **rarer}.items():
            words = {name: name + "()" * name.isidentifier() or FAULTS for name in rows}
            named = {words[name] + length: n for name, n in rows.items()}
            found.setdefault(length, {})[seed] = named
    return found


def _weighed_by_parts(
    found: Comparison, parts: str, two: Sequence[str], apart: Sequence[str]
) -> Comparison:
    """two: all that step, where they go two ways; apart: those that do not step as the sum does."""
    if found.verdict is Verdict.SAME and two:
        return left_open(
            found,
            f"the {parts} go two ways ({', '.join(two)}), and the sum hides it"
            f"{': mark each as a phase of its own' * (parts != 'phases')}",
        )
    undecided = found.verdict is Verdict.UNDECIDED and not found.rarely
    if not apart or undecided or found.verdict is Verdict.INVALID:
        return found
    within = ", ".join(filter(None, (found.within, *apart)))
    reason = f"{'; '.join(found.reasons)}; within it: {', '.join(apart)}"
    return replace(found, within=within, reasons=(reason,))


def clocks(old: Arm, new: Arm, phase: str, *, timers: bool) -> Iterator[str]:
    """What may be decided by clocks that the windows of either arm read in a phase, or in any.

    Of a program of the user's own those of all windows count, and what it reads outside of them:
    but one look measures nothing, and moved nothing where it executed the same on both kernels.
    timers: one is set while they run, whose signal may end one.
    """
    phases = [*chain(*old, *new)]
    reads: dict[str, tuple[int, int]] = {}  # how often, in how many windows
    for own in phases:
        limits = ((own.outside or {}).get(name) for name in {*_LIMITS} - {*own.by_design})
        told = {n for row in limits if row for n in row[:2]}
        timers |= not told.isdisjoint({_LIMIT_OF_CPU, _LIMIT_OF_REAL_TIME})
        asked = phase in (TOTAL, own.phase) or own.outside is not None
        for name, times in (own.clock or {}).items() if asked else ():
            meant = name.removesuffix(OUTSIDE) in own.by_design
            if not meant and not name.endswith(OF_LOADER):
                reads[name] = max((times, len(own.user)), reads.get(name, (0, 0)))
    each = [
        f"{_TELLS.get(name, name)} {plural(n, 'time')} in {plural(windows, 'window')}"
        for name, (n, windows) in reads.items()
        if OUTSIDE not in name
    ]
    named = ", ".join([*each, *["a timer is set, or a limit of time"] * timers])
    looks = {name.removesuffix(OUTSIDE): n for name, (n, _) in reads.items() if OUTSIDE in name}
    once = {*looks.values()} == {1} and not timers and _executed_alike(old, new)
    if named:
        taken = any("execve" in (own.syscalls or {}) for own in phases)  # what calls no KD_OPS()
        instead = "" if taken else "; count operations instead: a fixed number, told by KD_OPS(n)"
        yield (
            f"a clock may decide how long a window is ({named}), and time is not what is"
            f" counted{instead}"
        )
    if looks and not once:
        yield (
            f"the program reads or sets a clock outside its windows ({', '.join(looks)}), and may"
            " choose by it what they do: take that out, or list it in by_design of its TOML if"
            " nothing depends on it"
        )


def _executed_alike(*arms: Arm) -> bool:
    """Did a program execute as many instructions of its own in most seeds of either kernel?"""
    each = [Counter((own[-1].outside or {}).get(INSTRUCTIONS) for own in arm) for arm in arms]
    (one, times), (other, often) = (counter.most_common(1)[0] for counter in each)
    enough = min(map(len, arms)) >= LEAST_SEEDS
    return enough and one == other and 2 * min(times, often) > max(map(len, arms))


def unlike_asked(old: Arm, new: Arm, phase: str) -> str:
    """What a program of the user's own did not ask both kernels for alike, in its first windows
    that differ, or outside them; "" where it did.

    Things differ that are each the same in all trials of an arm, and numbers whose ranges do; the
    others are chance, and of few seeds all may be.
    """
    few_seeds = min(len(old), len(new)) < LEAST_SEEDS
    seeds = f"; one seed may draw that, {LEAST_SEEDS} (--rounds {LEAST_SEEDS}) tell" * few_seeds
    for was, now in zip(zip(*old, strict=False), zip(*new, strict=False), strict=False):
        if phase not in (TOTAL, was[0].phase):
            continue
        each = {"in": _apart(was, now, "scalars"), "outside": _apart(was, now, "outside")}
        told = [f"{n} its windows: {few(own, _MOST_NAMED)}" for n, own in each.items() if own]
        if told:
            return f"the program did not ask both kernels for the same {'; '.join(told)}{seeds}"
    return ""


def cut_by_limits(told: Sequence[set[tuple[str, str]]], phases: Sequence[PhaseCounts]) -> str:
    """Limits of the kernels that may have cut what a program set, of sockets that were gone where
    facts are read, or "".  told: facts of each arm.
    """
    rows = [rows for own in phases for rows in (own.outside, own.scalars) if rows]
    options = [row for own in rows if (row := own.get("setsockopt argument 3"))]
    made = any(low <= _BUFFERS[-1] and high >= _BUFFERS[0] for low, high, *_ in options)
    seen = re.compile("(?:process|children)_(?:send|receive)_buffers").fullmatch
    live = any(seen(name) and value != "0" for own in told for name, value in own)
    limits = [{name: n for name, n in sorted(own) if name.startswith("limit_of_")} for own in told]
    if not made or live or limits[0] == limits[1]:
        return ""
    return (
        "the program may set buffers of sockets (setsockopt) that are closed when kdelta looks, and"
        f" the kernels have other limits: {unlike(limits[0], limits[1], '')}"
    )


def questions(phases: Sequence[PhaseCounts]) -> str:
    """What a program of the user's own may have learned of its kernel, or hidden, or "".

    What a program does after it has asked for the release may be another thing on another kernel.
    """
    made = {
        name
        for own in phases
        if own.outside is not None
        for name in (*own.outside, *(own.syscalls or ()))
        if name not in own.by_design
    }
    return "; ".join(dict.fromkeys(why for name, why in _QUESTIONS.items() if name in made))


def left_open(found: Comparison, *whys: str) -> Comparison:
    """A comparison that each of these leaves open; as it is without any."""
    reason = "; but ".join(("; ".join(found.reasons), *whys))
    open_ = replace(found, verdict=Verdict.UNDECIDED, reasons=(reason,), few_seeds=False)
    return open_ if whys else found


def differences(old: Sequence[PhaseCounts], new: Sequence[PhaseCounts]) -> list[str]:
    """How the system calls of two trials differ, or their errors, a sentence for each phase.

    What was not recorded is not compared.
    """
    found = []
    for was, now in zip(old, new, strict=False):
        if was.phase != now.phase or was.syscalls is None or now.syscalls is None:
            continue
        told = unlike(was.errors, now.errors, 0) or unlike(was.syscalls, now.syscalls, 0)
        what = "errors of system calls" if was.errors != now.errors else "system calls"
        what += " or exceptions" * ("exception " in told)
        if told:
            found.append(f"{what} differ in a window of {was.phase}: {told}")
    return found


Rows = Sequence[tuple[int, int, int, int]]  # of one name, in each trial


Recorded = Sequence[Mapping[str, tuple[int, int, int, int]]]  # by name, of each trial


def _usual(arms: Sequence[Recorded]) -> list[Recorded]:
    """The trials of each side that make as many calls as most: one more, by chance, is another
    place for all behind it (mkstemp() draws again for one value in twenty-two).
    """
    left_out = (INSTRUCTIONS, *_BY_TIME)
    made = [
        [sum(row[0] for n, row in one.items() if " " not in n and n not in left_out) for one in arm]
        for arm in arms
    ]
    most = Counter(chain(*made)).most_common(1)[0][0]
    pairs = (zip(arm, calls, strict=True) for arm, calls in zip(arms, made, strict=True))
    return [[one for one, calls in side if calls == most] for side in pairs]


def _compared(
    was: Sequence[PhaseCounts], now: Sequence[PhaseCounts], rows: str
) -> Iterator[tuple[str, str, Rows, Rows]]:
    """A name, its row, and the values of both sides, where all recorded any."""
    arms = [[getattr(one, rows) for one in arm] for arm in (was, now)]
    if None in chain(*arms):
        return
    usual = _usual(arms)
    for name in dict.fromkeys(chain.from_iterable(chain(*arms))):
        row = name.partition(PLACE)[0]
        sides = usual if row == ORDER and all(len(arm) > 1 for arm in usual) else arms
        one, other = ([row.get(name, (0, 0, 0, 0)) for row in arm] for arm in sides)
        call, _, rest = row.partition(" ")
        # "argument 1": where an arm makes no call, calls differ
        made = row == ORDER or not rest[:1].islower() or all(row in each for each in chain(*arms))
        by_time = rows == "outside" and call in _BY_TIME and row != _FUTEX_OPERATION
        if made and row not in was[0].by_design and not by_time:
            yield name, row, one, other


def _difference(name: str, row: str, one: Rows, other: Rows, *, outside: bool) -> str:
    """In words; "" where there is none, or chance."""
    call, _, rest = row.partition(" ")
    columns = zip(zip(*one, strict=True), zip(*other, strict=True), strict=True)
    sides = columns if PLACE in name else [(one, other)]
    differ = any(len({*old}) == len({*new}) == 1 and old[0] != new[0] for old, new in sides)
    if PLACE in name:
        return f"{row}, in part" * differ
    differ |= outside and rest == "contents" and len({*one, *other}) > 1  # it may be a clock
    low, least = (min(row[0] for row in side) for side in (one, other))
    high, most = (max(row[1] for row in side) for side in (one, other))
    if name == INSTRUCTIONS:
        differ = max(low - most, least - high) > max(_FEW, high // 100)
    if rest.startswith("E") and differ and 0 in (low, least):
        return f"{call} fails with {rest} on the {'old' if low else 'new'} kernel only"
    if differ or (rest[:1].islower() and (low, high) != (least, most)):
        return f"{name} ({_said(low, high, one)} against {_said(least, most, other)})"
    return ""


def _said(low: int, high: int, rows: Rows) -> str:
    digests = {row[3] for row in rows} - {0}
    told = [f"{low}" if low == high else f"{low} to {high}"] if high or not digests else []
    return ", ".join((*told, *(f"digest {one:08x}" for one in digests if len(digests) == 1)))


def _apart(was: Sequence[PhaseCounts], now: Sequence[PhaseCounts], rows: str) -> list[str]:
    first: dict[str, str] = {}  # of a row, itself in front of its places
    for name, row, one, other in _compared(was, now, rows):
        if told := _difference(name, row, one, other, outside=rows == "outside"):
            first.setdefault(row, told)
    # What was asked or touched otherwise has another digest of the order, too.
    things = [told for row, told in first.items() if row not in (ORDER, REORDERED)]
    return things or [*first.values()]


def unlike(
    old: Mapping[str, T],
    new: Mapping[str, T],
    missing: T,
    said: Callable[[T], str] = str,
    differ: Callable[[T, T], bool] = operator.ne,
) -> str:
    """How two mappings differ, such as "cpus (1 against 2), ..."; said: a value in words."""
    pairs = {n: (old.get(n, missing), new.get(n, missing)) for n in dict.fromkeys([*old, *new])}
    return ", ".join(
        f"{name} ({said(was)} against {said(now)})"
        for name, (was, now) in pairs.items()
        if differ(was, now)
    )


def failing(phases: Iterable[PhaseCounts]) -> str:
    """What fails in these windows, or outside them, and the scenario does not declare, or ""."""
    told: dict[str, str] = {}
    beside: dict[str, str] = {}
    for own in phases:
        for name in own.outside or {}:
            call, _, error = name.partition(" ")
            if error[:1] == "E" and PLACE not in error and name not in own.by_design:
                beside[name] = f"{call}() fails with {error}"
        for name, times in own.errors.items():
            call, _, error = name.rpartition(" ")
            of = (own.syscalls or {}).get(call, times)
            if name not in own.by_design:
                told.setdefault(
                    f"{own.phase} {name}", f"{call}() fails with {error}, {times} of {of}"
                )
    return "; ".join(
        f"system calls fail {where}: {', '.join(each.values())}"
        for where, each in (("in the windows", told), ("outside the windows", beside))
        if each
    )
