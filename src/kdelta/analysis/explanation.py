# SPDX-License-Identifier: GPL-2.0-or-later
"""Which functions a difference between two kernels is made of: exact, and closed to 100 %."""

from __future__ import annotations

import functools
import re
import shlex
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil

from msgspec.structs import replace as with_arms

from kdelta import options
from kdelta.errors import SpecError
from kdelta.journal.run import RunRecord
from kdelta.ladder.counts import CountEvidence, CountMethod, Measure, counted
from kdelta.ladder.evidence import (
    BuildFacts,
    State,
    compare_arms,
    copies,
    debugging,
    options_apart,
    points,
    scenarios,
)
from kdelta.printable import known as known_names
from kdelta.printable import meant, printable
from kdelta.procfs import compiler_family
from kdelta.sample import TOTAL, ArmRecord, FunctionCount, Outcome, TrialResult
from kdelta.verdict.comparison import Comparison, Verdict

USER = "[user]"  # all user-space code; it has no calls
_SIZES = 4  # times as many instructions a function of another name may take and be the same
_STANDS_OUT = 0.1  # share of the difference from which a function is named in the sentence
_NAMED_AT_MOST = 4
TOP = 15  # functions that are listed unless asked for more
_SUFFIX = re.compile(r"(?<=.)(\.(isra|constprop|part|cold|lto_priv|llvm)(\.\d+)*)+$")
PIECE = re.compile(r"\.(part|cold)\b")


class Presence(StrEnum):
    """Whether a function ran under both kernels."""

    NEW = "new"
    VANISHED = "vanished"
    BOTH = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionDelta:
    """One function, in instructions and calls per window; None: it did not run under that kernel.

    delta = new - old, with an absent side as 0.  share: percent of the whole difference, None
    when the difference is 0.
    """

    function: str
    old: int | None
    new: int | None
    delta: int
    share: float | None
    calls_old: int | None
    calls_new: int | None
    status: Presence
    was: str = ""  # what the old kernel calls it, where one function is taken for the other


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """The functions that are not listed, as one row."""

    count: int
    old: int
    new: int
    delta: int
    share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StringBytes:
    """Bytes per window by string instructions; each is one instruction, however many bytes."""

    old: int
    new: int
    delta: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionShare:
    """What of a difference is surely the code of options that one of the two kernels has alone.

    delta: instructions per window, a lower bound of its size.  functions: its parts, the largest
    first.  options: as the comparison has them; called: what their code is, in words.
    """

    code: str
    called: str
    options: tuple[str, ...]
    delta: int
    functions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """old -> new of one phase (or TOTAL) by function, ranked by the size of the delta.

    comparison.verdict is INVALID also when the functions do not sum to the counted totals.
    refused: nothing may be claimed, so functions is empty and old_value, new_value, rest and
    delta are None.  Otherwise delta = sum of the deltas of functions + rest.delta, exactly, in
    instructions per window of `operations` operations.  strings: None where none was executed.
    Two functions, each of one kernel alone, are one row where name and calls say that they are one.
    folded: (function, the compiler's names that were added up under it).  copies: which of the two
    kernels was not booted, and why, a sentence each.
    """

    run_id: str
    workload: str
    scenario: str
    phase: str
    old: str
    new: str
    old_release: str
    new_release: str
    operation: str
    operations: int
    step_percent: float
    comparison: Comparison
    refused: bool = True
    old_value: int | None = None
    new_value: int | None = None
    delta: int | None = None
    functions: tuple[FunctionDelta, ...] = ()
    rest: Rest | None = None
    strings: StringBytes | None = None
    folded: tuple[tuple[str, tuple[str, ...]], ...] = ()
    rising: tuple[FunctionDelta, ...] = ()  # those that stand out, for the sentence
    falling: tuple[FunctionDelta, ...] = ()
    old_compiler: str = ""  # "gcc 14"; "": not known
    new_compiler: str = ""
    audited: bool = False  # the page states of both hold
    copies: tuple[str, ...] = ()
    options: tuple[OptionShare, ...] = ()
    debugging: tuple[str, ...] = ()

    @property
    def leading(self) -> Sequence[FunctionDelta]:
        """Those that stand out, the largest first, or, of a change that is spread, its first."""
        return _by_size((*self.rising, *self.falling)) or self.functions[:_NAMED_AT_MOST]

    def without(self, row: FunctionDelta | Rest) -> float | None:
        """New/old of all if a function cost nothing on both kernels; None: nothing is left."""
        old, new = (self.old_value or 0) - (row.old or 0), (self.new_value or 0) - (row.new or 0)
        return new / old if old else None

    def names(self, function: str) -> tuple[str, str]:
        """What the old and the new kernel call a function that either calls so."""
        pairs = ((row.was or row.function, row.function) for row in self.functions)
        return next((pair for pair in pairs if function in pair), (function, function))


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Functions of one arm's representative windows, compiler suffixes folded.

    functions: name -> (instructions, calls) per window.  handled: bytes by string instructions.
    """

    functions: dict[str, tuple[int, int]]
    folded: dict[str, set[str]]
    handled: int


def explain(
    record: RunRecord,
    old: str,
    new: str,
    *,
    scenario: str | None = None,
    phase: str | None = None,
    point: str | None = None,
    top: int | None = None,
    step_percent: float | None = None,
    force: bool = False,
) -> Explanation:
    """Rank the functions of the difference old -> new.

    old, new: an arm's label, reference, version or release, or a unique beginning of one.
    phase None: all phases.  top None: list every function, else the first `top`.  force: list
    them although the comparison is INVALID.  Raises SpecError when a name does not fit the run.
    """
    record = find_point(record, point)
    workload, name = find_scenario(record, scenario, old, new, point or "")
    was, now = find_counted(record, (workload, name), old, new)
    if was.arm is now.arm:
        raise SpecError(f"{old} and {new} are one kernel", action="name two")
    part = _find_phase((was, now), phase)
    threshold = record.study.thresholds.step_percent if step_percent is None else step_percent
    profiles = profile(was, part), profile(now, part)
    measured = was.measure(part) or now.measure(part)
    found = Explanation(
        run_id=record.run_id,
        workload=workload,
        scenario=name,
        phase=part,
        old=was.label,
        new=now.label,
        old_release=was.arm.kernel.release,
        new_release=now.arm.kernel.release,
        operation=measured.operation if measured else "",
        operations=measured.operations if measured else 1,
        step_percent=threshold,
        comparison=_compared((was, now), part, threshold),
        old_compiler=compiler_family(was.kernel.compiler),
        new_compiler=compiler_family(now.kernel.compiler),
        audited=was.state is State.OK and now.state is State.OK,
        copies=tuple(copies((was, now))),
        debugging=debugging((was.arm, now.arm)),
    )
    refused = found.comparison.verdict is Verdict.INVALID and not force
    if refused or not (was.measure(part) and now.measure(part)):
        return found
    found = replace(found, options=tuple(_option_shares((was, now), part)))
    return shortened(_ranked(found, profiles), top)


def _compared(
    arms: tuple[CountEvidence, CountEvidence], phase: str, step_percent: float
) -> Comparison:
    """INVALID also where there are no functions."""
    found = compare_arms(CountMethod(step_percent=step_percent), *arms, phase=phase)
    told = ((arm, one) for arm in arms for one in arm.phases if phase in (TOTAL, one.phase))
    lacking = ((arm, one) for arm, one in told if one.value and not stored(arm, one))
    faults = [f"{arm.label}: no functions are stored for {m.phase}" for arm, m in lacking]
    if not faults:
        return found
    reasons = found.reasons if found.verdict is Verdict.INVALID else ()
    return Comparison(verdict=Verdict.INVALID, grade=found.grade, reasons=(*reasons, *faults))


def shortened(found: Explanation, top: int | None, least: float = 0.0) -> Explanation:
    """The explanation with its first `top` functions, the others as one rest; None: with all.

    least: instructions per window below which a change is not listed.
    """
    if top is None or found.refused or found.delta is None:
        return found
    listed = [row for row in found.functions if abs(row.delta) >= least][:top]
    names = {row.function for row in listed}
    return replace(
        found,
        functions=tuple(listed),
        rest=rest([row for row in found.functions if row.function not in names], found.delta),
        folded=tuple(one for one in found.folded if one[0] in names),
    )


def _ranked(found: Explanation, profiles: tuple[Profile, Profile]) -> Explanation:
    was, now = (own.functions for own in profiles)
    old_value, new_value = (sum(i for i, _ in side.values()) for side in (was, now))
    delta = new_value - old_value
    rows = _by_size(_delta(name, was.get(name), now.get(name), delta) for name in {*was, *now})
    folded = [own.folded for own in profiles]
    renamed = _renamed(rows, delta)
    paired = {name for row in renamed for name in (row.function, row.was)}
    single = _by_size((*(row for row in rows if row.function not in paired), *renamed))
    old, new = (own.handled for own in profiles)
    return replace(
        found,
        refused=False,
        old_value=old_value,
        new_value=new_value,
        delta=delta,
        functions=tuple(single),
        rest=rest((), delta),
        strings=StringBytes(old=old, new=new, delta=new - old) if old or new else None,
        folded=tuple(
            (name, tuple(sorted(set().union(*(side.get(name, set()) for side in folded)))))
            for name in sorted({*was, *now} & {*folded[0], *folded[1]})
        ),
        rising=_standing_out([row for row in single if row.delta > 0], delta),
        falling=_standing_out([row for row in single if row.delta < 0], delta),
    )


def _delta(
    name: str, old: tuple[int, int] | None, new: tuple[int, int] | None, whole: int
) -> FunctionDelta:
    delta = (new[0] if new else 0) - (old[0] if old else 0)
    counts_calls = name != USER
    return FunctionDelta(
        function=name,
        old=old[0] if old else None,
        new=new[0] if new else None,
        delta=delta,
        share=_share(delta, whole),
        calls_old=old[1] if old and counts_calls else None,
        calls_new=new[1] if new and counts_calls else None,
        status=Presence.NEW if old is None else Presence.VANISHED if new is None else Presence.BOTH,
    )


def _renamed(rows: Sequence[FunctionDelta], whole: int) -> tuple[FunctionDelta, ...]:
    old = {row.function: row for row in rows if row.status is Presence.VANISHED}
    new = {row.function: row for row in rows if row.status is Presence.NEW}
    pairs = namesakes(
        {name: row.calls_old or 0 for name, row in old.items()},
        {name: row.calls_new or 0 for name, row in new.items()},
    )
    return tuple(
        _by_size(
            replace(
                new[name],
                was=was,
                old=old[was].old,
                calls_old=old[was].calls_old,
                delta=(delta := new[name].delta + old[was].delta),
                share=_share(delta, whole),
                status=Presence.BOTH,
            )
            for name, was in pairs.items()
            if _SIZES * min(sizes := (old[was].old or 0, new[name].new or 0)) >= max(sizes)
        )
    )


def _by_size(rows: Iterable[FunctionDelta]) -> list[FunctionDelta]:
    return sorted(rows, key=lambda row: (-abs(row.delta), row.function))


def rest(others: Sequence[FunctionDelta], whole: int) -> Rest:
    """Functions as one row; whole: the difference that they are a share of."""
    delta = sum(row.delta for row in others)
    return Rest(
        count=len(others),
        old=sum(row.old or 0 for row in others),
        new=sum(row.new or 0 for row in others),
        delta=delta,
        share=_share(delta, whole),
    )


def _share(delta: int, whole: int) -> float | None:
    return 100 * delta / whole if whole else None


def _standing_out(rows: Sequence[FunctionDelta], whole: int) -> tuple[FunctionDelta, ...]:
    return tuple(row for row in rows if abs(row.delta) >= _STANDS_OUT * abs(whole))[:_NAMED_AT_MOST]


def profile(arm: CountEvidence, phase: str) -> Profile:
    """The functions behind an arm's measure of a phase, or of all phases for TOTAL.

    A piece that the compiler split off (.part, .cold) is entered from its own function, so its
    executions are not calls of that function.
    """
    functions: dict[str, tuple[int, int]] = {}
    folded: dict[str, set[str]] = {}
    handled = 0
    for measure in (one for one in arm.phases if phase in (TOTAL, one.phase)):
        counts = stored(arm, measure)
        for count in counts:
            name = base_name(count.function)
            insns, calls = functions.get(name, (0, 0))
            entered = 0 if PIECE.search(count.function[len(name) :]) else count.calls
            functions[name] = (insns + count.insns, calls + entered)
            handled += count.bytes
            if name != count.function:
                folded.setdefault(name, set()).add(count.function)
    return Profile(functions=functions, folded=folded, handled=handled)


def stored(arm: CountEvidence, measure: Measure) -> list[FunctionCount]:
    """Function counts of the window that the measure's value comes from."""
    stored = _result(arm, measure).exact.functions
    return [count for count in stored if count.phase == measure.phase]


def _result(arm: CountEvidence, measure: Measure) -> TrialResult:
    found = next(trial.result for trial in arm.used if trial.index == measure.trial)
    return found or TrialResult(outcome=Outcome.SKIP)


def _option_shares(arms: tuple[CountEvidence, CountEvidence], phase: str) -> Iterator[OptionShare]:
    """Of each pattern that one side has alone: of code on both sides no bound is known."""
    apart = options_apart(*(BuildFacts.of(arm.kernel) for arm in arms))
    told = [[(m, _result(arm, m).options) for m in arm.phases] for arm in arms]
    known = [[code for _, code in side if code] for side in told]
    if any(len(codes) < len(side) for codes, side in zip(known, told, strict=True)):
        return
    for name in dict.fromkeys(one.code for one in apart if one.decides and one.code):
        has = [any(name not in code.absent for code in codes) for codes in known]
        if has[0] == has[1]:
            continue
        sign = 1 if has[1] else -1
        counts: Counter[str] = Counter()
        for measure, code in told[has[1]]:
            for row in code.counts if code and phase in (TOTAL, measure.phase) else ():
                if row.code == name and row.phase == measure.phase:
                    counts[base_name(row.function)] += sign * row.insns
        if counts:
            yield OptionShare(
                code=name,
                called=options.patterns()[name].called,
                options=tuple(one.said for one in apart if one.code == name),
                delta=counts.total(),
                functions=tuple(sorted(counts.items(), key=lambda one: (-abs(one[1]), one[0]))),
            )


@functools.lru_cache(maxsize=1 << 16)
def base_name(function: str) -> str:
    """A function's name in the source: without the suffixes of clones that the compiler made."""
    return _SUFFIX.sub("", function)


def find_point(record: RunRecord, wanted: str | None) -> RunRecord:
    """The part of a run that belongs to one point of its matrix.  Raises SpecError."""
    known = dict(points(record))
    if wanted is None and len(known) == 1:
        return record
    if wanted in known:
        return known[wanted or ""]
    listed = ", ".join(f"'{point}'" for point in known if point)
    cause = "the run has several points" if wanted is None else f"no point {wanted!r}"
    action = f"name one with --point: {listed}" if listed else "leave out --point: it has one"
    raise SpecError(cause, place=record.run_id, action=action)


def find_scenario(
    record: RunRecord, text: str | None, old: str, new: str, point: str
) -> tuple[str, str]:
    """(workload, scenario) named "scenario" or "workload:scenario"; None: the only one.

    old, new, point: of the command, which an error names with the scenario that changed most.
    """
    known = scenarios(record)
    wanted = [pair for pair in known if text in (None, pair[1], ":".join(pair))]
    if len(wanted) == 1:
        return wanted[0]
    if not known:
        raise SpecError("the run has no trials", place=f"run {record.run_id}")

    def size(pair: tuple[str, str]) -> float:
        was, now = find_counted(record, pair, old, new)
        return _compared((was, now), TOTAL, record.study.thresholds.step_percent).factor

    if text is None:
        cause, most = f"the run has {len(known)} scenarios", max(known, key=size)
        words = [record.run_id, old, new, "--scenario", ":".join(most)]
        words += ["--point", point] if point else []
        action = f"name one; that of the largest change: `kdelta explain {shlex.join(words)}`"
    else:
        names = (":".join(pair) if ":" in text else pair[1] for pair in known)
        cause, action = f"no one scenario {text}", known_names(text, names)
    raise SpecError(printable(cause), place=f"run {record.run_id}", action=printable(action))


def find_counted(
    record: RunRecord, scenario: tuple[str, str], *texts: str
) -> tuple[CountEvidence, ...]:
    """The arms that each text names, of those planned for a scenario.  Raises as find_named()."""
    planned = {one.arm for one in record.trials if (one.workload, one.scenario) == scenario}
    arms = [arm for arm in record.arms if arm.index in planned]
    named = [find_named(arms, text) for text in texts]
    own = {arm.index: arm for arm in named}
    found = counted(with_arms(record, arms=tuple(own.values())), *scenario)
    of = {one.arm.index: one for one in found}
    return tuple(of[arm.index] for arm in named)


def find_arm(arms: Sequence[CountEvidence], text: str) -> CountEvidence:
    """The evidence of the arm that text names; raises as find_named()."""
    named = find_named([each.arm for each in arms], text)
    return next(each for each in arms if each.arm is named)


def find_named(arms: Sequence[ArmRecord], text: str) -> ArmRecord:
    """The arm that text names; raises SpecError, listing the arms, unless it is exactly one."""
    names = [
        (arm, (arm.label, arm.kernel.reference, arm.kernel.release, arm.kernel.version))
        for arm in arms
        if text
    ]
    for matches in (str.__eq__, _begins):
        found = [arm for arm, own in names if any(matches(name, text) for name in own)]
        if len(found) == 1:
            return found[0]
        if found:
            break
    cause = f"{text} matches several kernels" if found else f"no kernel of this run matches {text}"
    labels = [arm.label for arm in (found or arms)]
    near = "" if found else meant(text, labels)
    raise SpecError(printable(cause), action=printable(f"{near}name one of: {', '.join(labels)}"))


def _begins(name: str, text: str) -> bool:
    """True for a beginning that does not cut a number: 6.1 begins 6.1.9, and not 6.12."""
    more = name.removeprefix(text)
    return name.startswith(text) and more != "" and not (text[-1] + more[0]).isdigit()


def _find_phase(arms: tuple[CountEvidence, CountEvidence], text: str | None) -> str:
    if text is None or text == TOTAL:
        return TOTAL
    known = dict.fromkeys(measure.phase for arm in arms for measure in arm.phases)
    if text not in known:
        names = ", ".join(known) or "none was measured"
        raise SpecError(
            printable(f"unknown phase {text}"),
            action=f"the phases of this scenario: {printable(names)}",
        )
    return text


# ---- which functions of one kernel are which of the other, by name, work and length --------------


ALIKE = 0.5  # share in common from which two are alike
NEAR = 0.75  # share of the longer that the shorter has at least
_MOST_COMPARED = 100  # trees with one, each function of them


def name_words(name: str) -> frozenset[str]:
    """What a function's name is made of: two are akin where most words are the same."""
    return frozenset(name.split("_")) - {""}


def akin(one: str, other: str) -> bool:
    """Two names are of mostly the same words."""
    return _alike(name_words(one), name_words(other)) >= ALIKE


def _alike(one: AbstractSet[str], other: AbstractSet[str]) -> float:
    """The share of the elements of either that are those of both."""
    return len(one & other) / len(one | other) if one or other else 1.0


def namesakes(old: Mapping[str, int], new: Mapping[str, int]) -> dict[str, str]:
    """Which function of the new kernel alone is which of the old one alone, by name: new -> old.

    old, new: name -> calls.  Names are akin and both are called about as often; where more than one
    fits, on either side, the one with most of its words does, or else none.
    """
    words = {name: name_words(name) for name in (*old, *new)}
    akin = AlikeSets({name: words[name] for name in old})
    fits = {
        name: {other for other in akin.of(words[name]) if calls > 0 and near(calls, old[other])}
        for name, calls in new.items()
    }
    every = {
        (name, other): _alike(words[name], words[other]) for name in fits for other in fits[name]
    }
    found: dict[str, str] = {}
    for least in sorted({*every.values()}, reverse=True):
        pairs = [
            (name, other)
            for (name, other), share in every.items()
            if share >= least and name not in found and other not in found.values()
        ]
        often = Counter(name for pair in pairs for name in pair)
        found |= {name: other for name, other in pairs if often[name] == often[other] == 1}
    return found


def near(one: int, other: int) -> bool:
    """Two lengths are about the same."""
    shorter, longer = sorted((one, other))
    return shorter >= NEAR * longer


def the_one(ways: Iterable[Iterable[str]], among: Container[str]) -> str:
    """The only one that the first way finds that finds any; "" where it finds several."""
    for names in ways:
        found: set[str] = set()
        for name in names:
            if name in among:
                found.add(name)
                if len(found) > 1:
                    return ""
        if found:
            return found.pop()
    return ""


class AlikeSets:
    """Of many sets those that are alike to one.

    Such a set has at least half the elements of the one, so of any more than half it has one: the
    rarest are asked.
    """

    def __init__(self, sets: Mapping[str, AbstractSet[str]]) -> None:
        self._sets = sets
        self._places: dict[str, list[str]] = {}
        for name, held in sets.items():
            for element in held or ("",):
                self._places.setdefault(element, []).append(name)

    def of(self, one: AbstractSet[str]) -> Iterator[str]:
        """The names of all that are alike to one."""
        ranked = sorted(one or ("",), key=lambda each: (len(self._places.get(each, ())), each))
        for element in ranked[: len(one) - ceil(ALIKE * len(one)) + 1]:
            for name in self._places.get(element, ()):
                if _alike(one, self._sets[name]) >= ALIKE:
                    yield name


def alike_work(one: Counter[str], work: Mapping[str, Counter[str]]) -> Iterator[str]:
    """The trees, as instructions by function, that do mostly what one does; not of a crowd."""
    for name, other in work.items() if len(work) <= _MOST_COMPARED else ():
        if (one & other).total() >= ALIKE * (one | other).total() > 0:
            yield name


# ---- which functions of the kernel scenarios executed --------------------------------------------

# Only functions that the compiler left to themselves: what was inlined is its caller.


@dataclass(frozen=True, slots=True, kw_only=True)
class CoveredFunction:
    """A function that ran.  scenarios: that executed it, with the most instructions in a window."""

    function: str
    scenarios: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Of a run: functions by name, and of each scenario how many, and how many it has alone."""

    run_id: str
    kernels: tuple[str, ...]
    functions: tuple[CoveredFunction, ...]
    scenarios: tuple[tuple[str, int, int], ...]


def coverage(record: RunRecord) -> Coverage:
    """What ran in the windows of every scenario of a run, on any of its kernels."""
    found: dict[str, dict[str, int]] = {}
    names = list(dict.fromkeys(scenarios(record)))
    for workload, scenario in names:
        reference = f"{workload}:{scenario}"
        for arm in counted(record, workload, scenario):
            for trial in arm.used:
                for row in trial.result.exact.functions if trial.result else ():
                    name = base_name(row.function)
                    if row.insns and name != USER and not name.startswith("["):
                        own = found.setdefault(name, {})
                        own[reference] = max(own.get(reference, 0), row.insns)
    references = [":".join(name) for name in names]
    alone = [next(iter(own)) for own in found.values() if len(own) == 1]
    return Coverage(
        run_id=record.run_id,
        kernels=tuple(arm.label for arm in record.arms),
        functions=tuple(
            CoveredFunction(
                function=name,
                scenarios=tuple(sorted(own.items(), key=lambda row: (-row[1], row[0]))),
            )
            for name, own in sorted(found.items())
        ),
        scenarios=tuple(
            (one, sum(one in own for own in found.values()), alone.count(one)) for one in references
        ),
    )
