# SPDX-License-Identifier: GPL-2.0-or-later
"""A difference in sentences, each made of figures of the run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import combinations, takewhile
from operator import itemgetter
from typing import Any

from kdelta.analysis.calls import Branch, CallDifference, CallExplanation, Cause, walked
from kdelta.analysis.claims import Claim, Headline
from kdelta.analysis.explanation import Explanation, FunctionDelta, Presence
from kdelta.analysis.work import Called, KindDelta, WorkExplanation
from kdelta.ladder.evidence import ITERATION
from kdelta.ladder.ladders import Ladder, Rung
from kdelta.metric import Grade, number, plural
from kdelta.printable import told_name
from kdelta.probes.work import Kind
from kdelta.rendering import times
from kdelta.rendering.explain import Scale, called, kind_named, option_sentences
from kdelta.rendering.explain import cause_sentence as cause_told
from kdelta.rendering.times import scale
from kdelta.sample import TOTAL
from kdelta.table import counts
from kdelta.table.columns import short
from kdelta.verdict.comparison import Comparison, Verdict
from kdelta.workload import Scenario, Workload

_TELLING = 0.1  # share of the difference from which a cause or a function is kind_named
_FEWEST, _NAMED = 2, 3  # of the causes or functions that are as large
_REST = 0.2  # share of the difference that may lie elsewhere than below the one function
_MANY = 0.05  # share of the difference from which loads and stores are said
_RARE = 0.01  # executions per operation from which all other kinds are
_CANCELS = 0.25  # what is left of two changes that nearly cancel, of the larger
_LINES = 0.05  # lines per operation from which a kind of memory is, and
_SHARE = 0.01  # of all lines: a random begin of the stack moves some
_FUNCTION_WIDTH = 40
# How a kernel is entered, and what hands a system call on: who lies below it is in the kernel.
_ENTRY = re.compile(
    r"entry_SYSCALL\w*|entry_INT80\w*|asm_(?:exc|sysvec)_\w+|exc_page_fault|do_user_addr_fault"
    r"|do_syscall_64|x64_sys_call|vectors|el[01]t?_?\w*|(?:do_)?el0_svc\w*|invoke_syscall\w*"
    r"|do_mem_abort|do_page_fault|handle_exception|do_trap_\w+|handle_page_fault|ret_from_fork\w*"
    r"|(?:__)?(?:x64|arm64|riscv|se|do)_sys_\w+"
)
_SYSCALL = re.compile(
    r"entry_SYSCALL\w*|do_syscall_64|(?:do_)?el0t?_\w*|invoke_syscall\w*|do_trap_ecall_u"
)
_KIND_WORDS: dict[str, str] = {
    Kind.TLB: "instructions of TLB maintenance",
    Called.RESCHED: "calls of cond_resched()",
}
_PLAIN = (Kind.LOAD, Kind.STORE)
_MOVED = ", which may be code that moved."


def difference_sentences(
    found: Explanation, calls: CallDifference | None = None, work: WorkExplanation | None = None
) -> list[str]:
    """Three to six sentences; none where nothing is claimed.

    calls, work: of a run that has them.
    """
    if found.refused or found.delta is None:
        return []
    scale = Scale.of(found)
    if not found.delta:
        return [_net(found, scale)]
    why = _why(found, calls, scale)
    if why.endswith(_MOVED):
        why = f"{why[:-1]}: a run with --probe calls tells."
    told = [_net(found, scale), why, *option_sentences(found)]
    if work:
        told += [_kinds(found, work, scale), _calls(work, scale), _memory(found, work, scale)]
    old, new = found.old_compiler, found.new_compiler
    if old and new and old != new:
        both = f"{old} built the old kernel and {new} the new one"
        told.append(f"{both}, so part may be the compiler's.")
    if found.comparison.differences:
        told.append("They were configured differently, or may be, and part may be that.")
    return [one for one in told if one]


def _net(found: Explanation, scale: Scale) -> str:
    old, new = found.old_value or 0, found.new_value or 0
    head = f"Per {found.operation or 'operation'}, {scale.plain(new)} instructions are executed"
    if new == old:
        return f"{head}, as many as before."
    if abs(new - old) < scale.least:
        way = "more" if new > old else "fewer"
        return f"{head}, {scale.each(abs(new - old))} {way} than before."
    ratio = f", x{new / old:.3f}" if old else ""
    return f"{head} where {scale.plain(old)} were ({scale.signed(new - old)}{ratio})."


def _why(found: Explanation, calls: CallDifference | None, scale: Scale) -> str:
    """The first causes, or without call paths the functions; of next to nothing none."""
    if abs(found.delta or 0) < scale.least:
        return ""
    if calls:
        return _why_by_calls(calls, scale)
    ranked = found.leading[:_NAMED]
    rows = [(called(row), row.delta, str(row.status)) for row in ranked]
    parts = parts_of(rows, found.delta or 0, scale)
    spread = "spread, the largest parts are " if len(parts) > len(ranked) else ""
    text = f"By function it is {spread}{', '.join(parts)}." if parts else ""
    return text + _moved(found, ranked, scale)


def parts_of(rows: Sequence[tuple[str, int, str]], whole: int, scale: Scale) -> list[str]:
    """Names with what they are of a change, and their mark; all others where these are not most."""
    rest = whole - sum(delta for _, delta, _ in rows)
    parts = [
        f"{name} {scale.signed(delta)}{f' ({mark})' * bool(mark)}" for name, delta, mark in rows
    ]
    most = 2 * abs(rest) <= abs(whole)
    return parts if most or not parts else [*parts, f"all others {scale.signed(rest)}"]


def _moved(found: Explanation, ranked: Sequence[FunctionDelta], scale: Scale) -> str:
    """Two of those named that nearly cancel, else what either kernel alone runs: code moves into
    or out of a function that one kernel alone runs; of two others nobody knows.
    """
    apart = [
        (abs(one.delta + other.delta) / abs(one.delta), one, other)
        for one, other in combinations(ranked, 2)
        if one.delta * other.delta < 0 and (one.status or other.status)
    ]
    left, one, other = min(apart, key=itemgetter(0), default=(1.0, None, None))
    if one and other and left <= _CANCELS:
        both = scale.signed(one.delta + other.delta)
        return f" {called(one)} and {called(other)} sum to {both}{_MOVED}"
    alone = [
        sum(row.delta for row in found.functions if row.status is each)
        for each in (Presence.NEW, Presence.VANISHED)
    ]
    cut = found.rest is None or found.rest.count
    named = any(row.status for row in ranked)
    if cut or not named or min(map(abs, alone)) < _TELLING * abs(found.delta or 0):
        return ""
    return f" What one kernel alone runs is {' and '.join(map(scale.signed, alone))} of it{_MOVED}"


def _why_by_calls(calls: CallDifference, scale: Scale) -> str:
    told = _causes(calls)
    lead = _function_around(calls.root)
    where = [f"At least 80 % of it lies in {lead} and below."] if lead else []
    parts = [f"{scale.signed(cause.delta)}, {cause_told(cause, scale)}" for cause in told]
    if parts:
        where.append(f"Largest cause: {'. Then '.join(parts)}.")
    others = len(calls.causes) - len(told)
    rest = calls.root.delta - sum(cause.delta for cause in told)
    if parts and others and abs(rest) >= scale.least:
        where.append(f"All else, {plural(others, 'cause')}, sums to {scale.signed(rest)}.")
    return " ".join(where)


def _causes(calls: CallDifference) -> Sequence[Cause]:
    """The first causes, until these are most of the difference and not more than it."""
    whole = calls.root.delta
    large = [cause for cause in calls.causes if abs(cause.delta) >= _TELLING * abs(whole)]
    for count in range(_FEWEST, _NAMED):
        if abs(whole - sum(cause.delta for cause in large[:count])) <= _REST * abs(whole):
            return large[:count]
    return large[:_NAMED]


def _function_around(root: Branch) -> str:
    """The lowest function of the kernel below which most of the difference lies, of what one kernel
    alone runs the topmost; "" where that is an entry, which all goes through.
    """
    at, inside = root, False
    while not at.one_sided and (
        below := [
            one for one in at.children if abs(one.delta - root.delta) < _REST * abs(root.delta)
        ]
    ):
        inside = inside or _ENTRY.fullmatch(at.function) is not None
        at = below[0]
    # What calls the kernel is the user's, also where its path began in it, as a thread's does.
    user = any(above and _SYSCALL.fullmatch(one.function) for above, one in walked(at))
    told = inside and not _ENTRY.fullmatch(at.function) and not user
    return short(at.function, _FUNCTION_WIDTH) if told else ""


def _kinds(found: Explanation, work: WorkExplanation, scale: Scale) -> str:
    least = _MANY * abs(found.delta or 0)
    own = [row for row in work.work if row.group == "work"]
    plain = [row for row in own if row.kind in _PLAIN and abs(row.delta) >= least]
    rare = [row for row in own if row.kind not in _PLAIN]
    changed = [*plain, *(row for row in rare if _is_told(row, scale, _RARE))]
    told = [f"{_more(row, scale)}{_handled(found, row, scale)}" for row in changed]
    return f"It takes {_listed(told)} per {found.operation or 'operation'}." if told else ""


def _calls(work: WorkExplanation, scale: Scale) -> str:
    rows = [row for row in work.work if row.group == "calls" and _is_told(row, scale, _RARE)]
    if not rows:
        return ""
    told = _listed([_more(row, scale) for row in rows])
    return f"There {'is' if told.startswith('1 ') else 'are'} {told}."


def _memory(found: Explanation, work: WorkExplanation, scale: Scale) -> str:
    if work.memory is None:
        return ""
    lines = [row for row in work.memory if row.group == "lines"]
    whole = sum(row.new for row in lines)
    least = max(_LINES, _SHARE * whole / scale.operations)
    rows = [row for row in lines if _is_told(row, scale, least)]
    parts = []
    for row in rows:
        mostly = f", in {short(row.where[0][0], _FUNCTION_WIDTH)}" if row.where else ""
        change = f"{scale.plain(row.old)} -> {scale.plain(row.new)}{mostly}"
        parts.append(f"{scale.signed(row.delta)} of {row.kind} ({change})")
    lines_of = f"Lines of 64 bytes touched per {found.operation or 'operation'}"
    return f"{lines_of}: {_listed(parts)}." if parts else ""


def _is_told(row: KindDelta, scale: Scale, least: float) -> bool:
    return abs(row.delta) >= least * scale.operations


def _more(row: KindDelta, scale: Scale) -> str:
    direction = "more" if row.delta > 0 else "fewer"
    count = scale.each(abs(row.delta))
    words = _KIND_WORDS.get(row.kind, kind_named(row))
    if count == "1":
        head, of, what = words.partition(" of ")
        words = head.removesuffix("es" if head.endswith("ches") else "s") + of + what
    return f"{count} {direction} {words}"


def _handled(found: Explanation, row: KindDelta, scale: Scale) -> str:
    """What string instructions handled: fewer of them may clear as much."""
    strings = found.strings
    if row.kind != Kind.STRING or strings is None:
        return ""
    return f" ({scale.plain(strings.old)} -> {scale.plain(strings.new)} bytes)"


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


_BACK = 0.1  # share of a step that may be left where the newest kernel no longer has it
_TWICE = 1.995  # from here on "times" reads better than percent

# What a verdict of a grade rests on, for who has never seen one.
TRUST = {
    Grade.EXACT_PATH: "counted exactly, under emulation; how long it takes was not measured",
    Grade.GUEST_TIME: "timed in KVM guests",
    Grade.HOST_TIME: "timed on a machine that is itself a guest, or may be",
    Grade.METAL_TIME: "timed on real hardware",
}
_EXACTLY, _HARDLY = "counted exactly,", "counted (~: a median, since counts hardly repeat)"
# A summary that names its call, or begins with the name of a request: others tell of memory.
_CALL = re.compile(r"\w\(|^[A-Z]+_[A-Z]")
# Titles that name a set of operations: what each is stands in its scenario.
_SETS = re.compile(r"loops|controls|a process or")


def change(ratio: float | None, what: str) -> str:
    """How much more or less: "2.22 times the instructions", "3.1 % fewer instructions".

    what: "instructions" or "time".
    """
    if ratio is None:
        return f"{what} where there were none"
    if ratio >= _TWICE:
        return f"{ratio:.2f} times the {what}"
    if ratio == 1:
        return f"the same {what}"
    size = 100 * abs(ratio - 1)
    percent = f"{size:.2g}" if abs(ratio - 1) < 0.1 else f"{size:.0f}"
    less = "fewer" if what.endswith("s") else "less"
    return f"{percent} % {'more' if ratio > 1 else less} {what}"


def effort(verdict: Verdict, *, timed: bool = False) -> str:
    """A verdict in words that need no convention."""
    what = "time" if timed else "work"
    return {
        Verdict.REGRESSION: f"more {what}",
        Verdict.IMPROVEMENT: f"less {what}",
        Verdict.SAME: f"the same {what}",
        Verdict.UNDECIDED: "undecided",
        Verdict.INVALID: "cannot be compared",
    }[verdict]


# What belongs to a scenario.
Named = Ladder[Any] | Explanation


def first_sentence(found: Claim, head: Headline, workloads: Mapping[str, Workload]) -> str:
    """What was done, from how much to how much, and how that is known."""
    step, ladder = head.step, head.ladder
    divisor, unit = scale([ladder]) if found.timed else (1.0, "instructions")
    was, now = (claimed_value(rung.total, divisor, found) for rung in head.rungs)
    work = "" if found.timed else f", which is {effort(step.comparison.verdict)}"
    return (
        f"{subject(ladder, ladder.point, workloads)} went from {was} {unit} per"
        f" {per(step.operation)} on {step.old} to {now} on {step.new}:"
        f" {change(step.comparison.ratio, noun(found))}{work} ({trust(ladder)})"
        f"{_options(step.comparison)}."
    )


def trust(ladder: Ladder[Any]) -> str:
    """What its verdicts rest on."""
    told, rungs = TRUST[ladder.grade], ladder.rungs
    if ladder.grade is not Grade.EXACT_PATH:
        return told
    exact = all(counts.value(rung.total, 1.0).text[:1] != "~" for rung in rungs)
    return told if exact else told.replace(_EXACTLY, _HARDLY)


def first_of_counts(found: Explanation, point: str, workloads: Mapping[str, Workload]) -> str:
    """The same of a step between two kernels of a lab, where all is counted."""
    was, now = (
        "no" if value is None else number(value / found.operations)
        for value in (found.old_value, found.new_value)
    )
    phase = "" if found.phase == TOTAL else f", phase {found.phase}"
    judged = found.comparison
    told = judged.crossing or judged.verdict.is_step  # else a reader knows it
    work = f", which is {effort(judged.verdict)}" if told else ""
    return (
        f"{subject(found, point, workloads)}{phase} went from {was} instructions per"
        f" {per(found.operation)} on {found.old} to {now} on {found.new}:"
        f" {change(judged.ratio, 'instructions')}{work}{_options(judged)}."
    )


def _options(found: Comparison) -> str:
    """What a step has to do with the options in which its two kernels differ."""
    if found.crossing and not found.verdict.is_step:
        return f"; the two differ in {found.crossing}, and part of it may be that"
    own = f"; the two are one source with other options ({', '.join(found.options)})"
    none = f"; no function that ran has code of {', '.join(found.proven)}, in which they differ"
    return own * bool(found.options) + none * bool(found.proven)


def subject(named: Named, point: str, workloads: Mapping[str, Workload]) -> str:
    """What was done, as a sentence begins."""
    workload = workloads.get(named.workload)
    scenario = scenario_of(named, workloads)
    if workload is None or scenario is None:
        text = told_name(named.workload, named.scenario)
    elif _CALL.search(scenario.summary) or is_set(workload):
        text = scenario.summary
        if ", " in re.sub(r"\(.*?\)", "", text):  # no verb can follow a list
            text = f'"{text}"'
    else:
        text = f"{re.split(r':|, by ', workload.title)[0]} ({scenario.summary})"
    if scenario and not re.match(r"\w+\(|\w+:", text):  # the name of a call stays as it is
        text = text[:1].upper() + text[1:]
    return text + (f" ({point})" if point else "")


def by_function(found: Explanation | None) -> str:
    """The functions that a difference of counts is made of; nothing where there is none."""
    if found is None or found.refused or not found.delta:
        return ""
    return _why(found, None, Scale.of(found))


def may_have_moved(found: Explanation) -> bool:
    """Whether functions alone leave open what of the difference is code that moved."""
    return by_function(found).endswith(_MOVED)


def by_path(found: CallExplanation) -> str:
    """The same by call paths, where code that moved is netted; nothing where it is refused."""
    own = found.explanation
    return _why(own, found.difference, Scale.of(own)) if found.difference else ""


def is_set(workload: Workload) -> bool:
    """True for a workload whose scenarios have only their form in common: each has its own path."""
    return _SETS.match(workload.title) is not None


def scenario_of(named: Named, workloads: Mapping[str, Workload]) -> Scenario | None:
    """The scenario as its workload has it here."""
    workload = workloads.get(named.workload)
    every = workload.scenarios if workload else ()
    return next((one for one in every if one.name == named.scenario), None)


def per(operation: str) -> str:
    """What a value is per, in words."""
    return "iteration" if operation == ITERATION else operation


def releases(found: Claim) -> tuple[str, str] | None:
    """The tags of two releases that differ in time; None for trees, patches and files."""
    if found.headline is None or found.timed:
        return None
    old, new = ends(found.headline)
    tags = old != new and all(re.match(r"v\d", each) for each in (old, new))
    plain = all(rung.kernel.version for rung in found.headline.rungs)
    return (old, new) if tags and plain else None


def ends(head: Headline) -> tuple[str, str]:
    """The series of both kernels; of two of one series their own names."""
    old, new = (series(rung) for rung in head.rungs)
    return (old, new) if old != new else (head.rungs[0].label, head.rungs[1].label)


def series(rung: Rung[Any]) -> str:
    """The v6.17 of 6.17.13; of anything else its name."""
    match = re.match(r"(\d+\.\d+)(?:[.+~-]|$)(?:.*?(rc\d+))?", rung.kernel.release)
    if match is None:
        return rung.label
    return f"v{match[1]}-{match[2]}" if match[2] else f"v{match[1]}"


def newest(head: Headline) -> str:
    """Whether the newest kernel still has the step: where all between are decided."""
    step, rungs = head.step, head.ladder.rungs
    last = next((one for one in reversed(head.ladder.rungs) if one.total), None)
    if last is None or last.total is None or last.label == step.new:
        return f"{step.new} is the newest kernel here."
    at = [rung.label for rung in rungs].index(step.new)
    if any(
        rung.comparison is None or rung.comparison.verdict in (Verdict.UNDECIDED, Verdict.INVALID)
        for rung in rungs[at + 1 :]
    ):
        return f"Whether {last.label}, the newest here, still has it is open."
    size = step.new_value - step.old_value
    shares = [(r, (r.total.per_operation - step.old_value) / size) for r in rungs[at:] if r.total]
    left = shares[-1][1]
    still = "still" if left > 1 - _BACK else "in part" if left > _BACK else "no longer"
    gone = [rung for rung, _ in takewhile(lambda each: each[1] <= _BACK, reversed(shares))]
    still += f" since {gone[-1].label}" if len(gone) > 1 else ""
    value = counts.value(last.total, 1.0).text
    return f"{last.label}, the newest here, has it {still}: {value} per {step.operation}."


def in_all(head: Headline) -> str:
    """What a ladder of more kernels comes to, where all between are decided."""
    known = [(rung.label, rung.total.per_operation) for rung in head.ladder.rungs if rung.total]
    judged = (rung.comparison for rung in head.ladder.rungs if rung.total and rung.comparison)
    if len(known) <= 2 or {one.verdict for one in judged} & {Verdict.UNDECIDED, Verdict.INVALID}:
        return ""
    (first, was), (last, now) = known[0], known[-1]
    return f" From {first} to {last} it is {counts.times(now / was)} in all."


def noun(found: Claim) -> str:
    """What there is more or less of."""
    return "time" if found.timed else "instructions"


def claimed_value(measure: Any, divisor: float, found: Claim) -> str:
    """A value of a claim, as the page of the run has it."""
    shown = times.value(measure, divisor) if found.timed else counts.value(measure, divisor)
    return shown.text
