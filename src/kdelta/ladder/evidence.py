# SPDX-License-Identifier: GPL-2.0-or-later
"""What each arm of a stored run says of one scenario, and whether two arms may be compared.

The rules are those of every instrument; how an instrument measures and decides is its Method.
"""

import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar, Generic, Protocol, Self, TypeVar

from msgspec import structs

from kdelta import options
from kdelta.errors import SpecError
from kdelta.ladder import calls
from kdelta.metric import Grade
from kdelta.options import OptionDifference
from kdelta.procfs import compiler_family, compiler_short
from kdelta.sample import (
    TOTAL,
    UNDONE,
    UNKNOWN,
    ArmRecord,
    KernelIdentity,
    Outcome,
    PhaseCounts,
    Run,
    SkipKind,
    StateField,
    TrialRecord,
    TrialResult,
)
from kdelta.verdict.comparison import Comparison, Share, Verdict

# ---- how two kernels were built ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BuildFacts:
    """How a kernel was built; "" and (): not known.

    compiler: family and major version.  options: of its configuration, with the format of the
    record.  tree: of its source.  absent: patterns of options' code that no function has that ran.
    """

    compiler: str
    options: tuple[str, ...]
    options_format: int
    tree: str
    absent: frozenset[str] = frozenset()

    @classmethod
    def of(cls, kernel: KernelIdentity, used: Sequence[TrialRecord] = ()) -> Self:
        """A kernel's; used: its trials, of which all must prove what is absent."""
        told = [trial.result.options if trial.result else None for trial in used]
        absent = [one.absent if one else frozenset() for one in told]
        return cls(
            compiler_family(kernel.compiler),
            kernel.options,
            kernel.options_format,
            kernel.source.partition(",")[0],
            absent[0].intersection(*absent) if absent else frozenset(),
        )


def options_apart(old: BuildFacts, new: BuildFacts) -> tuple[OptionDifference, ...]:
    """The options in which two builds differ, of every kind."""
    return options.differences(old.options, new.options, (old.options_format, new.options_format))


def weighed(
    found: Comparison, old: BuildFacts, new: BuildFacts, mend: Callable[[bool], str]
) -> Comparison:
    """A comparison with what the builds of the two differ in.

    A step between kernels of different compilers or instrumenting options is UNDECIDED, since part
    of it may be theirs; of one and the same source it is theirs alone, and stands.  So is one
    without a sign.  mend: what to run instead; of kernels that differ in options, or not.
    """
    deciding = [one for one in options_apart(old, new) if one.decides]
    absent = old.absent & new.absent
    left = tuple(one.said for one in deciding if one.code not in absent)
    proven = tuple(one.said for one in deciding if one.code in absent)
    compilers = _compilers(old, new)
    crossed = "; ".join(filter(None, (compilers, ", ".join(left))))
    found = replace(found, crossing=crossed, options=left, proven=proven)
    told = found.verdict.is_step or found.signless
    if not told or not (crossed or proven):
        return found
    reasons = "; ".join(found.reasons)
    if proven:
        reasons += f"; no function that ran has code of {', '.join(proven)}"
    if not crossed or (old.tree and old.tree == new.tree):
        if left:
            reasons += f"; the two are of one source, so it is of {', '.join(left)} alone"
        return replace(found, reasons=(reasons,))
    differ = [f"the compilers differ ({compilers})"] if compilers else []
    differ += [f"the configurations differ ({', '.join(left)})"] if left else []
    why = f"{' and '.join(differ)}, and part of that may be theirs{mend(bool(left))}".rstrip()
    return calls.left_open(replace(found, reasons=(reasons,)), why)


def _compilers(old: BuildFacts, new: BuildFacts) -> str:
    """ "gcc 14 -> gcc 16", "" when they are the same or not known: family and major version."""
    known = old.compiler and new.compiler and old.compiler != new.compiler
    return f"{old.compiler} -> {new.compiler}" if known else ""


def crossing(old: KernelIdentity, new: KernelIdentity) -> str:
    """Compilers and options of the two that forbid to call a step between them the kernel's."""
    was, now = BuildFacts.of(old), BuildFacts.of(new)
    apart = ", ".join(one.said for one in options_apart(was, now) if one.decides)
    return "; ".join(filter(None, (_compilers(was, now), apart)))


def nearest(kernel: KernelIdentity, above: Sequence[KernelIdentity]) -> int:
    """Which of the kernels above one it is compared with: the last that was built alike, since no
    other can tell what the commits between them did; else the last, -1.
    """
    alike = (at for at in reversed(range(len(above))) if not crossing(above[at], kernel))
    return next(alike, -1)


NOT_KNOWN = "is not known"  # the end of what is said of a configuration


def differences(old: KernelIdentity, new: KernelIdentity) -> tuple[str, ...]:
    """What else differs in how the two were built, or may, where one of them does not say."""
    was, now = (compiler_short(kernel.compiler) for kernel in (old, new))
    found = [f"{was} -> {now}"] if was and now and was != now else []
    unknown = [kernel.version for kernel in (old, new) if kernel.version and not kernel.options]
    if len(unknown) == 1 and (old.options or new.options):
        found.append(f"the configuration of {unknown[0]} {NOT_KNOWN}")
    return (*found, *(one.said for one in options_apart(BuildFacts.of(old), BuildFacts.of(new))))


def _mend(old: KernelIdentity, new: KernelIdentity, scenario: str, *, apart: bool) -> str:
    """What to run instead; apart: their options differ, both get the new one's or ours."""
    references = [_series(kernel) for kernel in (old, new)]
    own = "".join(re.findall(r"[+](?:config|fragment)=[^+]*", new.reference)) or "+config=deb"
    compiler, config = compiler_family(new.compiler), own if apart else ""
    whole = len({*references}) > 1  # of a series the archive has some source, of a release not
    sources = [_source(kernel, compiler, config, whole=whole) for kernel in (old, new)]
    words = [{*each.reference.split("+")} for each in (old, new)]
    if words == [{*each.split("+")} for each in sources]:
        sources = []  # they are built so already
    slow = "two kernel builds, up to a quarter of an hour each"
    ways = {f"build both {'alike' if apart else 'by one'} ({slow})": sources}
    if not apart:
        ways = {"take packages of one compiler, where the archive has them": references, **ways}
    runs = [
        f"{what}: `{shlex.join(['kdelta', 'run', scenario, '--kernels', ','.join(names)])}`"
        for what, names in ways.items()
        if all(names) and len(set(names)) > 1
    ]
    what = "configuration" if apart else "compiler"
    told = "; or ".join(runs) or f"build both with one {what} (+fragment=FILE), and compare those"
    return f"To decide, {told}"


def _series(kernel: KernelIdentity) -> str:
    match = re.match(r"\d+\.\d+", kernel.version)
    if match is None:
        return ""
    return f"{match[0]}-rc" if "~rc" in kernel.version else match[0]


def _source(kernel: KernelIdentity, compiler: str, config: str, *, whole: bool) -> str:
    """A reference that builds a kernel, or its series' newest (whole); config: "" for its own."""
    if kernel.arch != "amd64" or kernel.flavour == "rt":
        return ""  # is not built from source here
    chosen = f"{config}+cc={compiler.replace(' ', '-')}" if compiler else config
    if kernel.reference.startswith("tree:"):
        keys = "cc|config|fragment" if config else "cc"
        return re.sub(rf"[+](?:{keys})=[^+]*", "", kernel.reference) + chosen
    upstream = re.match(r"\d+\.\d+(?:\.\d+)?(?=-)", kernel.version)
    release = upstream and (_series(kernel) if whole else upstream[0])
    return f"tree:deb:{release}{chosen}" if release else ""


def debugging(arms: Iterable[ArmRecord]) -> tuple[str, ...]:
    """Which kernels are for debugging, though all of a run be: their counts are no other's.  And
    what kernels without an option may still have of it, which they say behind their source.
    """
    arms = [arm for arm in arms if not arm.control]
    kept = [(arm.label, arm.kernel.source.partition("; ")[2]) for arm in arms]
    found: dict[tuple[str, ...], list[str]] = {}
    for arm in arms:
        if names := options.heavy(arm.kernel.options):
            found.setdefault(names, []).append(arm.label)
    heavy = (
        f"{', '.join(labels)}: built for debugging ({', '.join(names)}), so what is counted is"
        " largely that"
        for names, labels in found.items()
    )
    return (*heavy, *(f"{label}: {what}" for label, what in kept if what))


# ---- arms of a run -------------------------------------------------------------------------------


ITERATION = "iteration"  # the operation of a sum over phases of unequal operations


class State(StrEnum):
    """What the audit of the page state says of an arm."""

    OK = "ok"
    TOLD = "told"  # nothing is wanted of it
    FAILED = "FAILED"
    UNKNOWN = "unknown"
    ABSENT = "absent"  # no trial came as far as the audit


_AUDITED = {State.OK, State.TOLD}


class Measured(Protocol):
    """What an instrument measured of one phase of one arm, or of the sum over its phases (TOTAL).

    per_operation: the value, and operation, what it is per.
    """

    @property
    def phase(self) -> str: ...  # noqa: D102
    @property
    def operation(self) -> str: ...  # noqa: D102
    @property
    def per_operation(self) -> float: ...  # noqa: D102


M = TypeVar("M", bound=Measured)
R = TypeVar("R", bound=Run)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmEvidence(Generic[M]):
    """All trials of one arm in one scenario, and what they amount to.

    trials: those that were planned and not found superfluous.  used: the trials that the measures
    come from: those that ended ok, or, when there are none, those that ran but are INVALID (then
    objections is not empty).
    phases is empty and total None when no trial yielded a value.
    objections: why no comparison with this arm is allowed.
    """

    arm: ArmRecord
    trials: tuple[TrialRecord, ...]
    used: tuple[TrialRecord, ...]
    ok: int
    state: State
    objections: tuple[str, ...]
    phases: tuple[M, ...] = ()
    total: M | None = None

    @property
    def label(self) -> str:
        """What tables call it."""
        return self.arm.label

    @property
    def sound(self) -> bool:
        """True when this arm can be one side of a comparison."""
        return self.total is not None and not self.objections

    @property
    def kernel(self) -> KernelIdentity:
        """Its kernel, as its booted guest told it where one did."""
        told = (trial.result.kernel for trial in self.used if trial.result and trial.result.kernel)
        return next(told, self.arm.kernel)

    @property
    def scenario(self) -> str:
        """What its trials measured."""
        return next((f"{trial.workload}:{trial.scenario}" for trial in self.trials), "")

    @property
    def done(self) -> int:
        """Trials that have ended."""
        return sum(trial.result is not None for trial in self.trials)

    @property
    def skipped(self) -> str:
        """Why all trials that have ended were skipped, "" when one was not."""
        ended = [trial.result for trial in self.trials if trial.result]
        if not ended or any(result.outcome is not Outcome.SKIP for result in ended):
            return ""
        return ended[0].reason or "it gave no reason"

    def measure(self, phase: str) -> M | None:
        """The measure of a phase (or TOTAL), None when there is none."""
        if phase == TOTAL:
            return self.total
        return next((measure for measure in self.phases if measure.phase == phase), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioEvidence(Generic[M]):
    """The evidence of every arm of a scenario at a point of the matrix; part: of the run, that."""

    point: str
    part: Run
    workload: str
    scenario: str
    arms: tuple[ArmEvidence[M], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Method(ABC, Generic[M]):
    """How one instrument measures and decides; chosen once for a run.

    step_percent: a change of up to so much is SAME.  alpha: the share of false alarms that is
    allowed, None: counts repeat.  unit: what a value counts ("instructions").  explains: functions
    explain a difference.  baseline: every arm is compared with the first, not with the one above.
    """

    step_percent: float
    alpha: float | None = None
    unit: ClassVar[str]
    explains: ClassVar[bool]
    baseline: ClassVar[bool]

    @abstractmethod
    def usable(self, result: TrialResult) -> str:
        """Why the data of a result cannot be data, "" when they can."""

    @abstractmethod
    def conditions(self, result: TrialResult) -> Mapping[str, object] | None:
        """What must be equal in trials that are compared, by name; None: it was not recorded."""

    @abstractmethod
    def machine(self, result: TrialResult) -> str:
        """What it was measured on, in words."""

    @abstractmethod
    def measures(
        self, arm: ArmEvidence[M], varied: Sequence[TrialRecord]
    ) -> tuple[tuple[M, ...], M | None]:
        """The phases and their sum, over an arm's used trials, which all have the same.  varied:
        trials in which a part of the seed was varied alone.
        """

    @abstractmethod
    def compare(
        self, arms: Sequence[ArmEvidence[M]], phase: str, forbidden: Sequence[str]
    ) -> Comparison:
        """The verdict on arms: old, new and, where there is one, old again (the control).

        forbidden: why there is none but INVALID.
        """

    @abstractmethod
    def shares(self, arms: Sequence[ArmEvidence[M]]) -> Sequence[Share]:
        """What each arm after the first two, the good and the bad one, closes of their gap."""

    @abstractmethod
    def grade(self, arms: Sequence[ArmEvidence[M]]) -> Grade:
        """What verdicts on these arms may claim."""

    @abstractmethod
    def replicates(self, arms: Sequence[ArmEvidence[M]]) -> StrEnum | None:
        """What the trials repeat, None when there are none."""

    @abstractmethod
    def warnings(
        self, arms: Sequence[ArmEvidence[M]], verdicts: Sequence[Comparison]
    ) -> Sequence[str]:
        """What spoils the values, or could."""

    def family(self, verdicts: Sequence[Comparison]) -> Sequence[Comparison]:
        """The verdicts on one pair of arms, judged together: counts need no correction."""
        return verdicts

    @abstractmethod
    def limits(self, record: Run) -> Iterator[str]:
        """What a run of this instrument cannot say."""


def refuse_traced(record: Run) -> None:
    """Raise SpecError for a traced run: its hits are no evidence."""
    if not record.instrument.traits.judged:
        cause = "a traced run has hits, of which no verdict is made"
        action = f"see them with: kdelta show {record.run_id}"
        raise SpecError(cause, place=f"run {record.run_id}", action=action)


def gather(
    record: Run, workload: str, scenario: str, method: Method[M]
) -> tuple[ArmEvidence[M], ...]:
    """The evidence of every arm that the run planned for a scenario, in the study's order."""
    own: dict[int, list[TrialRecord]] = {}
    for trial in record.trials:
        if trial.scenario == scenario and trial.workload == workload:
            own.setdefault(trial.arm, []).append(trial)
    return tuple(
        arm_evidence(arm, own[arm.index], method) for arm in record.arms if arm.index in own
    )


def points(record: R) -> tuple[tuple[str, R], ...]:
    """The points of a run's matrix, in the study's order: what tables call it, and its part."""
    found: dict[str, list[ArmRecord]] = {}
    for arm in record.arms:
        found.setdefault(arm.point, []).append(arm)
    if len(found) == 1:
        return ((next(iter(found)), record),)
    return tuple((point, record.part(arms)) for point, arms in found.items())


def scenarios(record: Run) -> tuple[tuple[str, str], ...]:
    """(workload, scenario) of a run, each once, in the order of its study."""
    order = {name: at for at, name in enumerate(record.scenarios)}
    found = {(trial.workload, trial.scenario) for trial in record.trials}
    return tuple(sorted(found, key=lambda n: (order.get(":".join(n), len(order)), n)))


def parts(record: R) -> Iterator[tuple[str, R, str, str]]:
    """(point, its part of the run, workload, scenario) of all that the run measured, in order."""
    for point, part in points(record):
        for workload, scenario in scenarios(part):
            yield point, part, workload, scenario


def gathered(record: Run, method: Method[M]) -> tuple[ScenarioEvidence[M], ...]:
    """All evidence of a run, in order.  No threshold is in it."""
    return tuple(
        ScenarioEvidence(
            point=point,
            part=part,
            workload=workload,
            scenario=scenario,
            arms=gather(part, workload, scenario, method),
        )
        for point, part, workload, scenario in parts(record)
    )


def weighed_by_asked(
    found: Comparison, arms: Sequence[ArmEvidence[M]], phase: str = TOTAL
) -> Comparison:
    """A comparison with clocks that windows read, timers over them, what was done outside, limits
    that cut it, and what the program may have learned of its kernel.
    """
    if found.verdict is Verdict.INVALID:
        return found
    results = [trial.result for arm in arms for trial in arm.used if trial.result]
    timers = any(
        one.name == "process_timers" and one.value not in ("0", UNKNOWN)
        for result in results
        for one in result.state
    )
    counted = [one for arm in arms for one in counted_phases(arm)]
    was, now = ([trial.exact.phases for trial in arm.used] for arm in arms[:2])
    told = [
        {(f.name, f.value) for t in arm.used if t.result for f in t.result.state} for arm in arms
    ]
    whys = [*calls.clocks(was, now, phase, timers=timers)]
    if any(trial.outside for trial in arms[0].used):
        whys.append(calls.unlike_asked(was, now, phase))
    whys += calls.cut_by_limits(told, counted), calls.questions(counted)
    return calls.left_open(found, *filter(None, whys))


def compare_arms(method: Method[M], *arms: ArmEvidence[M] | None, phase: str = TOTAL) -> Comparison:
    """The verdict on old -> new (-> old again, if any) for one phase, or for the sum."""
    known = [arm for arm in arms if arm]
    reasons = [text for arm in known[1:] for text in obstacles(method, known[0], arm)]
    found = method.compare(known, phase, tuple(dict.fromkeys(reasons)))
    if phase == TOTAL and len(known[0].phases) > 1:
        each = {one.phase: method.compare(known, one.phase, ()) for one in known[0].phases}
        found = calls.weighed_by_phases(found, each)
    found = weighed_by_asked(found, known, phase)
    found = replace(
        found, failing=calls.failing(one for arm in known for one in counted_phases(arm))
    )
    old, new = known[:2]
    kernels = old.kernel, new.kernel
    found = replace(found, differences=differences(*kernels))
    was, now = (BuildFacts.of(arm.kernel, arm.used) for arm in (old, new))
    return weighed(found, was, now, lambda apart: f". {_mend(*kernels, new.scenario, apart=apart)}")


def counted_phases(arm: ArmEvidence[M]) -> list[PhaseCounts]:
    """The counts of the trials that an arm's measures come from; none of another instrument."""
    return [one for trial in arm.used for one in trial.exact.phases]


def copies(arms: Sequence[ArmEvidence[M]]) -> list[str]:
    """Say which kernels were not booted, and why that is no loss."""
    return [
        f"{arm.label} was not booted: {why}"
        for arm in arms
        for why in dict.fromkeys(
            t.result.copied.sentence for t in arm.used if t.result and t.result.copied
        )
    ]


def obstacles(method: Method[M], old: ArmEvidence[M], new: ArmEvidence[M]) -> list[str]:
    """Why two arms must not be compared, one sentence each; empty when they may be."""
    reasons = [f"{side.label}: {objection}" for side in (old, new) for objection in side.objections]
    if old.used and new.used:
        reasons += _environment_differences(method, old.used[0], new.used[0])
        if {old.state, new.state} <= _AUDITED:
            reasons += _rounds_apart(old.used, new.used) or _undone_apart(old.used, new.used)
        # What a seed moves in the calls is spread.
        was, now = ([trial.exact.phases for trial in own] for own in (old.used, new.used))
        alike = not any(calls.differences(own[0], each) for own in (was, now) for each in own)
        reasons += calls.differences(was[0], now[0]) if alike else []
        one, other = (", ".join(own.phase for own in side.phases) for side in (old, new))
        reasons += [f"phases differ: {one or 'none'} against {other}"] if one != other else []
    return reasons


def result_of(trial: TrialRecord, method: Method[M]) -> TrialResult | None:
    """A trial's result, where stored data that cannot be data end as a failure."""
    result = trial.result
    fault = method.usable(result) if result and result.outcome is Outcome.OK else ""
    if result is None or not fault:
        return result
    return TrialResult(outcome=Outcome.INFRA_ERROR, reasons=(fault,), artifacts=result.artifacts)


def arm_evidence(
    arm: ArmRecord, planned: Sequence[TrialRecord], method: Method[M]
) -> ArmEvidence[M]:
    """What the trials of one arm in one scenario amount to."""
    trials = tuple(
        structs.replace(trial, result=result_of(trial, method))
        for trial in planned
        if not ((one := trial.result) and one.skip and one.skip.kind is SkipKind.NOT_NEEDED)
    )
    varied = tuple(trial for trial in trials if trial.varies)
    trials = tuple(trial for trial in trials if not trial.varies)
    ended = [(trial, trial.result) for trial in trials if trial.result is not None]
    good = [pair for pair in ended if pair[1].outcome is Outcome.OK]
    invalid = [pair for pair in ended if pair[1].outcome is Outcome.INVALID]
    judged = good or invalid
    used = tuple(trial for trial, result in judged if not method.usable(result))
    state, objections = _state([result for _, result in judged])
    if not good and not objections:
        objections = sorted({result.reason or "no trial is valid" for _, result in invalid})
    objections += _apart(_environment_differences(method, used[0], trial) for trial in used)
    if state in _AUDITED and (
        apart := _apart(_state_differences(used[0], trial, wanted=True) for trial in used)
    ):
        state, objections = State.FAILED, [*objections, *apart]
    mixed = len({_shape(trial) for trial in used}) > 1
    if mixed:
        objections.append("its trials have different phases or operations")
    found: ArmEvidence[M] = ArmEvidence(
        arm=arm,
        trials=trials,
        used=used,
        ok=len(good),
        state=state,
        objections=tuple(objections),
    )
    if mixed or not used:
        return found
    phases, total = method.measures(found, varied)
    return replace(found, phases=phases, total=total)


def _state(results: Sequence[TrialResult]) -> tuple[State, list[str]]:
    if not results:
        return State.ABSENT, []
    if any(not result.state for result in results):
        return State.UNKNOWN, ["page state was not audited"]
    broken = {field: None for result in results for field in result.state if not field.holds}
    if not broken:
        wanted = any(field.binding for result in results for field in result.state)
        return (State.OK if wanted else State.TOLD), []
    known = [field for field in broken if field.value != UNKNOWN]
    faults = [f"page state does not hold: {_fact(field)}" for field in known]
    faults += [f"page state is unknown: {_fact(f)}" for f in broken if f.value == UNKNOWN]
    return (State.FAILED if known else State.UNKNOWN), faults


def _fact(field: StateField) -> str:
    if not field.binding:
        return f"/proc of the program cannot be read {field.when} the windows"
    return f"{field.name} {field.when} the windows is {field.value}, wanted {field.want}"


def _shape(trial: TrialRecord) -> tuple[tuple[str, int, str], ...]:
    data = trial.result.data if trial.result else None
    return tuple((one.phase, one.operations, one.operation) for one in data.phases) if data else ()


def _apart(texts: Iterable[Sequence[str]]) -> list[str]:
    """How an arm's trials differ from the first of them, each sentence once."""
    return list(dict.fromkeys(text for own in texts for text in own))


def _environment_differences(method: Method[M], old: TrialRecord, new: TrialRecord) -> list[str]:
    was, now = (method.conditions(each.result) if each.result else None for each in (old, new))
    if was is None or now is None:
        return ["the environment of a trial was not recorded"]
    named = calls.unlike(was, now, None, _short)
    return [f"environments differ: {named}"] if named else []


def _short(value: object) -> str:
    """A condition in words; of a SHA-256 enough to tell it from another."""
    text = str(value) or "not recorded"
    return f"{text[:12]}..." if re.fullmatch(r"[0-9a-f]{64}", text) else text


def _facts_differ(old: StateField | None, new: StateField | None) -> bool:
    """A fact that nobody wants may be unknown to one kernel."""
    if old and new:
        return old.value != new.value
    return any(one and one.binding for one in (old, new))


def _rounds_apart(old: Sequence[TrialRecord], new: Sequence[TrialRecord]) -> list[str]:
    """What the page states of two arms differ in, in the first round in which they do.

    Another seed lays a program out otherwise, so only trials of one round are held together.
    """
    other = {trial.round: trial for trial in new}
    pairs = [(trial, other[trial.round]) for trial in old if trial.round in other]
    apart = (_state_differences(*pair) for pair in pairs or [(old[0], new[0])])
    return next((found for found in apart if found), [])


def _undone_apart(old: Sequence[TrialRecord], new: Sequence[TrialRecord]) -> list[str]:
    """What two arms dropped, refused, put off or took as huge pages in other numbers; what a seed
    moves is chance.
    """
    was, now = (_undone(own) for own in (old, new))
    named = calls.unlike(was, now, [], lambda each: f"{each[0]:,}", _far_apart)
    return [f"counters of the kernel differ: {named}"] if named else []


def _undone(trials: Sequence[TrialRecord]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for fact in (one for trial in trials if trial.result for one in trial.result.state):
        if fact.name.startswith(UNDONE) and fact.value.isdecimal():
            found.setdefault(fact.name.removeprefix(UNDONE), []).append(int(fact.value))
    return found


def _far_apart(one: list[int], other: list[int]) -> bool:
    """Further apart than either is in itself; what a kernel does not count is unknown."""
    gap = max(min(one) - max(other), min(other) - max(one)) if one and other else 0
    return gap > max(max(each, default=0) - min(each, default=0) for each in (one, other))


def _state_differences(old: TrialRecord, new: TrialRecord, *, wanted: bool = False) -> list[str]:
    """wanted: only facts that the contract wants."""
    if old.result and new.result and old.result.state == new.result.state:
        return []  # as nearly always, and a survey compares thousands of times
    was, now = (
        {
            f"{one.name} {one.when}": one
            for one in trial.result.state
            if (one.binding if wanted else one.compared)
        }
        if trial.result
        else {}
        for trial in (old, new)
    )
    named = calls.unlike(
        was, now, None, lambda one: one.value if one else "not audited", _facts_differ
    )
    return [f"page states differ: {named}"] if named else []
