# SPDX-License-Identifier: GPL-2.0-or-later
"""How counted ladders look: their cells, columns and words; see ladders.LadderView."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from kdelta.ladder.calls import FAULTS
from kdelta.ladder.counts import Measure
from kdelta.ladder.evidence import ITERATION, State
from kdelta.ladder.ladders import Ladder, LadderStep, Rung, RunLadders
from kdelta.metric import number
from kdelta.sample import TOTAL
from kdelta.table.columns import ABSENT, CROSSED, Column, Line, Span, Tone, crossed_by, paragraph
from kdelta.verdict.comparison import Verdict, unlike
from kdelta.verdict.windows import HIT_PERCENT, LocationKind

COUNTED = True
TOLD: tuple[Verdict, ...] = (Verdict.INVALID, Verdict.UNDECIDED)


def scale(ladders: Sequence[Ladder[Measure]]) -> tuple[float, str]:  # noqa: ARG001
    """Instructions are shown one by one."""
    return 1.0, "instructions"


def value(measure: Measure | None, unit: float) -> Span:  # noqa: ARG001
    """Per operation; "~": a median."""
    if measure is None:
        return Span(ABSENT)
    mark = "~" if measure.kind is LocationKind.MEDIAN else ""
    return Span(mark + number(measure.per_operation))


def heading(ladder: Ladder[Measure]) -> str:
    """What is counted, per what."""
    if ladder.operation is None:
        return "nothing measured yet" if not ladder.done else "nothing measured"
    unit = f"per {ladder.operation}"
    if ladder.operation == ITERATION:
        phases = next(rung.phases for rung in ladder.rungs if rung.phases)
        units = ", ".join(f"{measure.phase} per {measure.operation}" for measure in phases)
        unit = f"total per iteration, {units}"
    if ladder.unit == "lines":
        return f"lines that CPUs in turns fetch from each other, {unit}; no time: nobody waits"
    return f"instructions retired by the guest, user + kernel, {unit}; path length, never a time"


def columns(ladder: Ladder[Measure]) -> list[Column]:
    """Ratios, how well the counts repeat, and the audit."""
    rungs = ladder.rungs
    ratios = [rung.ratio(TOTAL) for rung in rungs]
    marks = [CROSSED if r.comparison and r.comparison.crossing else "" for r in rungs]
    compared = [each.first if ladder.baseline else each.previous for each in ratios]
    marked = [times(ratio) + mark for ratio, mark in zip(compared, marks, strict=True)]
    against = [Column("x first", marked, right=True)]
    if not ladder.baseline:
        firsts = Column("x first", (times(ratio.first) for ratio in ratios), right=True)
        against = [firsts, Column("x prev", marked, right=True)]
    elif _closed(ladder):
        closed = [ABSENT if (r := rung.gap_closed) is None else f"{r:.0%}" for rung in rungs]
        against.append(Column("gap closed", closed, right=True))
    return [
        *against,
        *_repeats([rung.total for rung in rungs]),
        Column("state", (_state(rung.state) for rung in rungs)),
        Column("n", (_trials(rung) for rung in rungs)),
    ]


def _repeats(totals: Sequence[Measure | None]) -> list[Column]:
    """How well windows repeat or, of windows that are not alike, how far they are apart."""
    if any(total and total.layouts for total in totals):
        known = [total.layouts if total else None for total in totals]
        hit = (f"{one.hit}/{len(one.counts)}" if one else ABSENT for one in known)
        return [
            Column("hit", hit, right=True),
            Column("range", map(layout_range, totals), right=True),
        ]
    modes = (f"{total.share:.0%}" if total else ABSENT for total in totals)
    return [Column("mode", modes, right=True)]


def layout_range(total: Measure | None) -> str:
    """Per operation, in the cheapest and in the dearest layout."""
    if total is None or total.layouts is None:
        return ABSENT
    counts = total.layouts.counts
    each = len(counts) / total.operations
    return f"{number(min(counts) * each)}..{number(max(counts) * each)}"


def _closed(ladder: Ladder[Measure]) -> bool:
    return any(rung.gap_closed is not None for rung in ladder.rungs)


def _state(state: State) -> Span:
    tones = {State.FAILED: Tone.BAD, State.UNKNOWN: Tone.WARN}
    return Span(ABSENT if state is State.ABSENT else state, tones.get(state, Tone.PLAIN))


def _trials(rung: Rung[Measure]) -> Span:
    tone = Tone.PLAIN if rung.ok == len(rung.trials) else Tone.WARN
    return Span(f"{rung.ok}/{len(rung.trials)}", tone)


_WINDOW = "window"  # the operation of a C file that says none: guest/lone.h
_NEAR = 0.1  # percent from a threshold, within which three digits look like it


def times(ratio: float | None, step_percent: float = 0.0) -> str:
    """A ratio: "x2.222"; near a threshold with one more digit, "x1.0097"."""
    if ratio is None:
        return ABSENT
    if step_percent and abs(abs(ratio - 1) * 100 - step_percent) < _NEAR:
        return f"x{ratio:.4f}"
    return f"x{ratio:.3f}" if ratio < 10 else f"x{ratio:.4g}"


def legend(report: RunLadders[Measure], ladder: Ladder[Measure]) -> Iterator[str]:  # noqa: ARG001
    """What the columns mean, a clause each."""
    first = next((rung.first for rung in ladder.rungs if rung.first), None)
    if first is None:
        return
    if ladder.baseline:
        yield f"x first: new/old against {first}"
    else:
        yield f"x first, x prev: new/old against {first} and against the row above"
    yield from _repeats_legend(ladder)
    if any(rung.state is State.TOLD for rung in ladder.rungs):
        yield "state told: of the pages, as the audit has it; nothing is wanted of it"
    yield f"n: trials ok/planned, {ladder.replicates}"
    above = f"{ladder.baseline} to this one" if ladder.baseline else "the row above"
    yield f"verdict: of the step from {above}, grade {ladder.grade}"
    if _closed(ladder):
        yield "gap closed: of the study's gap, by this kernel"
    # What is done outside the windows: told, since nobody counts it.
    totals = [(rung.label, rung.total) for rung in ladder.rungs if rung.total]
    for who in dict.fromkeys(who for _, total in totals for who in total.left):
        told = (f"{arm} {number(m.left.get(who, 0) / m.operations)}" for arm, m in totals)
        done = {"RCU": "freed later and not counted", "softirqs": "done in the windows or behind"}
        left = f"left to {who}, {done.get(who, 'done elsewhere and not counted')}"
        yield f"{left}, requests per {ladder.operation}: {', '.join(told)}"
    yield from marks(ladder)


def marks(ladder: Ladder[Measure]) -> Iterator[str]:
    """What stands beside a value."""
    if any(m.kind is LocationKind.MEDIAN for rung in ladder.rungs for m in rung.phases):
        yield "~: median, no exact count"
    if how := crossed_by(rung.comparison for rung in ladder.rungs):
        yield f"{CROSSED}: the two were built {how}"


def _repeats_legend(ladder: Ladder[Measure]) -> Iterator[str]:
    totals = (rung.total for rung in ladder.rungs)
    known = next((total.layouts for total in totals if total and total.layouts), None)
    if known is None:
        yield "mode: share of windows with exactly the shown count, in the phase where it is lowest"
        return
    yield f"shown is the mean over {len(known.counts)} layouts of the kernel's trees and lists"
    yield f"hit: layouts that take over {HIT_PERCENT} % more than the median one"
    yield "range: of the layouts"


def conclusion(report: RunLadders[Measure], ladder: Ladder[Measure]) -> Iterator[Line]:
    """The steps, the largest first, and how to see its functions."""
    if ladder.operation is None:
        return
    if gap := _gap(ladder):
        yield from paragraph(gap, Tone.BOLD)
    calls = _most_changed(ladder)
    if not ladder.steps:
        yield from paragraph(f"{ladder.name}: {_no_step(report, ladder)}{calls}", Tone.BOLD)
        yield from paragraph(not_meant(ladder))
        return
    largest, *others = ladder.steps
    yield from paragraph(
        f"{ladder.name}: {change(largest, ladder.unit, report.step_percent)}.{calls}", Tone.BOLD
    )
    yield from paragraph(not_meant(ladder))
    if others:
        yield from paragraph(f"Other steps above {report.step_percent:g} %:")
    for step in others:
        yield from paragraph(change(step, ladder.unit, report.step_percent), indent="  ")
    words = [report.run_id, largest.old, largest.new]
    words += ["--scenario", ladder.reference] if len(report.ladders) > 1 else []
    words += ["--point", ladder.point] if ladder.point else []
    words += ["--sharing"] if ladder.unit == "lines" else []
    yield from paragraph(f"Its functions: `kdelta explain {shlex.join(words)}`")


def huge_pages(ladder: Ladder[Measure]) -> str:
    """What a C file that says nothing of its memory may not have meant; "" without huge pages."""
    known = [rung.total for rung in ladder.rungs if rung.total and rung.total.huge]
    if not known:
        return ""
    taken = any("execve" in phase.syscalls for rung in ladder.rungs for phase in rung.phases)
    mend = "" if taken else ": for base pages add madvise(MADV_NOHUGEPAGE)"
    each = ", ".join(dict.fromkeys(f"{total.huge:g}" for total in known))
    return f"Its memory came in huge pages ({each} a window){mend}."


def not_meant(ladder: Ladder[Measure]) -> str:
    """What the author of a C file or a program may not have meant, "" where nothing is."""
    others = any(rung.total and rung.total.folders for rung in ladder.rungs)
    told = "Folders that its arguments name are the guest's, not yours: --file takes small ones."
    each = "KD_OPS(n) behind KD_END() counts per operation." * (ladder.operation == _WINDOW)
    return " ".join(filter(None, (told * others, huge_pages(ladder), each)))


def by_call(
    ladder: Ladder[Measure],
) -> Iterator[tuple[Sequence[str], Sequence[Measure], list[tuple[str, list[int]]]]]:
    """What programs that make more than two system calls spent in each, the largest change first:
    for each phase the arms on both sides of the largest step, or at the ends of a ladder, what they
    measured, and instructions by call.  In brackets stands what is in no call.
    """
    known = {rung.label: rung for rung in ladder.rungs if rung.phases}
    arms = [*known][:1] + [*known][1:][-1:]
    arms = [ladder.steps[0].old, ladder.steps[0].new] if ladder.steps else arms
    for measures in zip(*(known[arm].phases for arm in arms if arm in known), strict=False):
        if measures[0].program and len(measures[0].syscalls) > 2:
            sides = [{**one.spent, "[user space]": one.user} for one in measures]
            every = ((call, [side.get(call, 0) for side in sides]) for call in {*chain(*sides)})
            named = ((call or "[page faults]", each) for call, each in every)
            yield (
                arms,
                measures,
                sorted(named, key=lambda row: (-abs(row[1][-1] - row[1][0]), -max(row[1]), row[0])),
            )


def by_chance(measures: Sequence[Measure], call: str) -> bool:
    """True where seeds move what a call takes as far as the kernels do, or it was not made here."""
    if call == "[user space]":
        each = [[*(one.program or ())] for one in measures]
    else:
        word = FAULTS if call == "[page faults]" else f"{call}()"
        seeds = [one.places.get("", {}).values() for one in measures]
        each = [sorted(sum(of[word]) for of in own if word in of) for own in seeds]
        if call.isidentifier() and not any(one.syscalls.get(call) for one in measures):
            return True  # wait4() of who started the program
    return all(each) and each[0][0] <= each[-1][-1] and each[-1][0] <= each[0][-1]


def _most_changed(ladder: Ladder[Measure]) -> str:
    """The system calls of a program that changed most, to go on with."""
    told = ""
    for _, measures, calls in by_call(ladder):
        sure = [row for row in calls if row[1][0] != row[1][-1] and not by_chance(measures, row[0])]
        rows = [
            f"{call.strip('[]')} {n[0]:,} -> {n[-1]:,} ({times(n[-1] / n[0]) if n[0] else 'new'})"
            for call, n in sure[:3]
        ]
        each = " per window" * (ladder.operation not in (_WINDOW, "run"))
        told += f" Most changed{each}: {', '.join(rows)}." * bool(rows)
    return told


def two_lengths(ladder: Ladder[Measure], rung: Rung[Measure]) -> str:
    """What the windows of an undecided pair of kernels count, and what to do; "" where all count
    alike, where that forbids no verdict, or where the builds do, too.
    """
    judged = rung.comparison
    if not judged or judged.verdict is not Verdict.UNDECIDED or judged.crossing:
        return ""
    if not (judged.rarely or 3 * (judged.spread or 0) > abs(judged.difference or 0)):
        return ""
    both = (one for one in ladder.rungs if one.label in (rung.previous, rung.label))
    apart = [(one.label, far) for one in both for phase in one.phases for far in phase.rare]
    several = len({far.phase for _, far in apart}) > 1
    told = "; ".join(f"on {on} {unlike(one)}{f' in {one.phase}' * several}" for on, one in apart)
    mend = "let one window hold both, or mark two phases, KD_BEGIN(0) and KD_BEGIN(1)"
    return f"windows do not count alike, {told}, so it is open; {mend}" if apart else ""


def findings(report: RunLadders[Measure]) -> Iterator[str]:
    """A sentence for each of several scenarios, and of variants; one alone has said it already."""
    known = [ladder for ladder in report.ladders if ladder.operation is not None]
    if len(known) < 2 or all(len(ladder.rungs) < 2 for ladder in known):
        return  # of one kernel nothing is found
    for ladder in known:
        found = [gap.removesuffix(".")] if (gap := _gap(ladder)) else []
        found += [change(step, ladder.unit) for step in ladder.steps]
        yield f"{ladder.name}: {'; '.join(found) or _no_step(report, ladder).removesuffix('.')}"
    yield from _lessons(known)


def _lessons(ladders: Sequence[Ladder[Measure]]) -> Iterator[str]:
    """Of each variant of one source: in which scenarios its path is shorter, and where longer."""
    changed: dict[str, dict[Verdict, list[str]]] = {}
    left: Counter[str] = Counter()
    for ladder in ladders:
        for rung in ladder.rungs if ladder.baseline else ():
            if rung.label == ladder.goal or rung.comparison is None:
                continue
            if rung.comparison.verdict.is_step:
                own = changed.setdefault(rung.label, {})
                own.setdefault(rung.comparison.verdict, []).append(ladder.name)
            elif rung.comparison.verdict is not Verdict.SAME:
                left[rung.label] += 1
    for arm, verdicts in changed.items():
        shorter = ", ".join(verdicts.get(Verdict.IMPROVEMENT, []))
        longer = ", ".join(verdicts.get(Verdict.REGRESSION, []))
        if shorter and longer:
            yield f"{arm} does not pass: shorter in {shorter}, but longer in {longer}"
        elif longer:
            yield f"{arm}: longer in {longer}, shorter nowhere"
        else:
            open_ = f"; {left[arm]} not decided" if left[arm] else ""
            yield f"{arm}: shorter in {shorter}, longer in none of {len(ladders)} scenarios{open_}"


def _gap(ladder: Ladder[Measure]) -> str:
    """What there is to close in a scenario of a study with a gap, "" in others."""
    good = next((rung for rung in ladder.rungs if ladder.goal == rung.label), None)
    bad = next((rung for rung in ladder.rungs if ladder.baseline == rung.label), None)
    if not good or not bad or not good.total or not bad.total or not good.comparison:
        return ""
    was, now = good.total.per_operation, bad.total.per_operation
    change = f"from {good.label} to {bad.label}, {number(was)} -> {number(now)}"
    change += f" instructions per {bad.total.operation}, {times(now / was)}"
    if good.comparison.verdict is Verdict.IMPROVEMENT:
        return f"The gap to close is {change}."
    return f"There is no gap to close {change}."


def _no_step(report: RunLadders[Measure], ladder: Ladder[Measure]) -> str:
    rungs = [rung for rung in ladder.rungs if rung.label != ladder.goal]
    others = [(rung, rung.comparison) for rung in rungs if rung.comparison]
    if not others:
        return "no step can be named: there is no pair of kernels to compare."
    percent = f"{report.step_percent:g} %"
    found = [judged.verdict for _, judged in others]
    same = {*found} == {Verdict.SAME}
    sizes = [
        (abs(math.log(judged.ratio)), times(judged.ratio, report.step_percent), rung.label)
        for rung, judged in others
        if judged.ratio and (same or judged.verdict is Verdict.UNDECIDED)
    ]
    _, size, arm = max(sizes, default=(0.0, "", ""))
    largest = f", {'the largest ' * (len(sizes) > 1)}{size} at {arm}" if sizes else ""
    if same:
        above = ladder.baseline or "the one above"
        for rung, one in others:
            percent += one.hidden.replace("within it", f"within {rung.label}")
        return f"SAME{largest}: no kernel differs from {above} by more than {percent}."
    kinds = (Verdict.SAME, Verdict.UNDECIDED, Verdict.INVALID)
    pairs = ", ".join(f"{found.count(kind)} {kind}" for kind in kinds if kind in found)
    pairs = pairs if len(found) > 1 else found[0]
    if lengths := [told for rung in rungs if (told := two_lengths(ladder, rung))]:
        return f"{pairs}{largest}: {lengths[0]}."
    return f"{pairs}{largest}: no step above {percent} is proven."


def change(step: LadderStep, unit: str, step_percent: float = 0.0) -> str:
    """A step in words; unit: what its values count."""
    found = step.comparison
    ratio = f" {times(found.ratio, step_percent)}" if found.ratio is not None else ""
    values = f"{number(step.old_value)} -> {number(step.new_value)} {unit}"
    return (
        f"{found.verdict}{ratio} from {step.old} to {step.new}:"
        f" {values} per {step.operation} ({found.grade}){found.hidden}"
    )
