# SPDX-License-Identifier: GPL-2.0-or-later
"""The exact instrument's method: from the windows of trials to counts, and what to say of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from itertools import islice

from kdelta.ladder import calls
from kdelta.ladder.evidence import (
    ITERATION,
    ArmEvidence,
    Method,
    compare_arms,
    gather,
    refuse_traced,
)
from kdelta.ladder.same_code import weighed_by_data
from kdelta.machine import cpu
from kdelta.metric import Grade, plural
from kdelta.sample import (
    TOTAL,
    UNDONE,
    ExactData,
    FunctionCount,
    Outcome,
    PhaseCounts,
    Run,
    TrialRecord,
    TrialResult,
)
from kdelta.verdict.comparison import (
    LEAST_SEEDS,
    STEP_PERCENT,
    Comparison,
    CountReading,
    Share,
    Spent,
    Verdict,
    closed,
    compare,
    unlike,
)
from kdelta.verdict.windows import (
    Chosen,
    Layouts,
    LocationKind,
    bulk,
    calm,
    choose,
    rare,
    representative,
)

LOW_SHARE = 0.5  # a mode that fewer windows than this agree on is warned about
# It moved counts by up to 1 % between seeds, and has a part in both arms (docs/method.md).
UNSEEN_PERCENT = 2.0
# The page allocator, slabs that get or give back pages or objects by batches.
_OF_MEMORY = re.compile(
    r"get_page_from_freelist|_*rmqueue|_*free_unref_|_*free_frozen_page|free_pcppages"
    r"|_*free_one_page|__free_pages_ok|_*alloc_pages_bulk|___slab_alloc|allocate_slab|new_slab"
    r"|__slab_free|_*kmem_cache_free_bulk|_*get_partial_node|put_cpu_partial|_*unfreeze_partials"
    r"|__put_partials|__pcs_replace_|_*refill_(?:objects|sheaf)|barn_"
)
_OF_RANDOM = re.compile("chacha")  # numbers, by batches, unless each call makes its own
_LEAST_BYTES = 64.0  # per operation, by which two differ
_LEAST_PART = 0.02
_MOST_APART = 6  # scenarios of other bytes that are named
_WEAKEST_FIRST = (LocationKind.MEDIAN, LocationKind.MEAN, LocationKind.MODE)
_NOTABLE = 8  # bytes by string instructions for each instruction from which it is said


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure(CountReading):
    """One phase of one arm, or the sum over its phases (phase TOTAL).

    value, minimum, maximum, deviation and trials_range are instructions per window (of `operations`
    operations), of several layouts those of a window in each of them.  value = user + kernel.
    share, windows, minimum, maximum and deviation describe the windows of the one trial (number
    `trial`) that value comes from; for the sum over phases share is the lowest and deviation the
    sum, and windows, minimum, maximum and trial are None.
    trials: those that yielded a value; agree: those that yielded exactly this one; trials_range:
    the largest minus the smallest of them.
    """

    phase: str
    user: int
    kernel: int
    kind: LocationKind
    share: float
    windows: int | None = None
    minimum: int | None = None
    maximum: int | None = None
    deviation: int
    trials: int
    agree: int
    trials_range: int
    trial: int | None = None
    left_out: int = 0  # windows in which another task ran
    layouts: Layouts | None = None  # that the windows went through
    takes_memory: bool = False  # or gives it back: then what the boot left free has a part in it
    spent: dict[str, int] = field(default_factory=dict)  # see PhaseCounts
    syscalls: dict[str, int] = field(default_factory=dict)  # of a phase
    huge: float = 0.0  # pages that a window faulted in, of memory that nobody described
    folders: int = 0  # that a program's arguments name, and of which the guest has its own

    @property
    def reading(self) -> CountReading:
        """What the verdict rules take of it."""
        return CountReading(**{one.name: getattr(self, one.name) for one in fields(CountReading)})


CountEvidence = ArmEvidence[Measure]


class Replicates(StrEnum):
    """What the trials of a scenario repeat: the whole boot, or only what came after it."""

    FRESH_BOOTS = "each a fresh boot"
    CHECKPOINT = "restored from one checkpoint of each kernel, each round with another seed"
    MIXED = "some fresh boots, some restored from a checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class CountMethod(Method[Measure]):
    """The exact instrument: windows to counts, compared by their readings.

    unseen_percent: by how much few seeds may be off where kernels are built differently; 0 where
    they are one series apart, and boot alike.
    """

    step_percent: float = STEP_PERCENT
    unseen_percent: float = UNSEEN_PERCENT
    unit = "instructions"
    explains = True
    baseline = False

    def usable(self, result: TrialResult) -> str:
        """Windows of operations, each with both of its halves."""
        phases = result.exact.phases
        whole = all(c.operations > 0 and len(c.user) == len(c.kernel) > 0 for c in phases)
        whole = whole and all(c.layouts > 0 and len(c.user) % c.layouts == 0 for c in phases)
        whole = whole and all(len(c.switched) in (0, len(c.user)) for c in phases)
        return "" if phases and whole else "the stored result has no complete windows"

    def conditions(self, result: TrialResult) -> Mapping[str, object] | None:
        """The guest and what emulated it."""
        return result.environment.identity if result.environment else None

    def machine(self, result: TrialResult) -> str:
        """The same in words."""
        env = result.environment
        if env is None:
            return ""
        return (
            f"QEMU {env.qemu_version}, {env.accelerator}, {env.machine}, cpu {env.cpu_model},"
            f" {plural(env.cpus, 'CPU')}, {env.memory_mib} MiB"
        )

    def measures(
        self, arm: CountEvidence, varied: Sequence[TrialRecord]
    ) -> tuple[tuple[Measure, ...], Measure | None]:
        """Of each phase the window that stands for all, and the sum of these windows."""
        used = arm.used
        by_phase = zip(*(trial.exact.phases for trial in used), strict=True)
        phases = [_phase_measure(used, counts) for counts in by_phase]
        total = _total(phases, [_sum(trial) for trial in used])
        total = replace(total, seeds=_seeds(used, (trial.exact.phases for trial in used)))
        huge = _fact(used[0], UNDONE + _HUGE_FAULTS) / len(used[0].exact.phases[0].kernel)
        total = replace(total, huge=huge, folders=_fact(used[0], "program_other_folders"))
        moved_by = _moved_by(used[0], varied)
        *phases, total = (replace(one, moved_by=moved_by) for one in (*phases, total))
        return tuple(phases), total

    def compare(
        self, arms: Sequence[CountEvidence], phase: str, forbidden: Sequence[str]
    ) -> Comparison:
        """By the readings alone: counts repeat, so no control says more."""
        was, now = (arm.measure(phase) for arm in arms[:2])
        old, new = (replace(one.reading, unit=self.unit) if one else None for one in (was, now))
        found = self.judged(old, new, forbidden)
        if not old or old.program is None or phase != TOTAL:
            return found
        return weighed_by_data(found, arms[0].used, arms[1].used, old, self.step_percent)

    def judged(
        self, old: CountReading | None, new: CountReading | None, forbidden: Sequence[str]
    ) -> Comparison:
        """The verdict on two readings."""
        found = compare(
            old,
            new,
            step_percent=self.step_percent,
            unseen_percent=self.unseen_percent,
            obstacles=forbidden,
        )
        found = replace(found, grade=self.grade(()))
        if not old or not new:
            return found
        whys = calls.program_apart(found, old, new, self.step_percent)
        found = calls.left_open(found, *islice(whys, 1))
        found = calls.weighed_by_calls(found, old, new, self.step_percent)
        return calls.weighed_by_work_left(found, old, new)

    def shares(self, arms: Sequence[CountEvidence]) -> list[Share]:
        """Of a gap that is a regression; counts have no interval."""
        good, bad, *others = arms
        if compare_arms(self, bad, good).verdict is not Verdict.IMPROVEMENT:
            return []
        was, now = (arm.total.per_operation if arm.total else None for arm in (good, bad))
        return [self._share(arm, was, now, bad) for arm in others]

    def _share(
        self, arm: CountEvidence, was: float | None, now: float | None, bad: CountEvidence
    ) -> Share:
        value = arm.total.per_operation if arm.total else None
        signless = compare_arms(self, bad, arm).signless
        return Share(
            arm=arm.label,
            value=None if signless else closed(was, now, value),
            low=None,
            high=None,
            reason=signless or ("" if arm.total else "it has no counts"),
        )

    def grade(self, arms: Sequence[CountEvidence]) -> Grade:  # noqa: ARG002
        """Path length, whatever the machine."""
        return Grade.EXACT_PATH

    def replicates(self, arms: Sequence[CountEvidence]) -> Replicates | None:
        """Boots, or what comes after one."""
        fresh = {trial.result.fresh_boot for arm in arms for trial in arm.used if trial.result}
        if len(fresh) != 1:
            return Replicates.MIXED if fresh else None
        return Replicates.FRESH_BOOTS if fresh.pop() else Replicates.CHECKPOINT

    def warnings(
        self,
        arms: Sequence[CountEvidence],
        verdicts: Sequence[Comparison],  # noqa: ARG002
    ) -> list[str]:
        """What keeps an exact count from being exact."""
        measured = [(arm.label, measure) for arm in arms for measure in arm.phases]
        found = []
        for phase in dict.fromkeys(measure.phase for _, measure in measured):
            own = [pair for pair in measured if pair[1].phase == phase]
            found += _window_warnings(phase, own)
        totals = [(arm.label, arm.total) for arm in arms if arm.total]
        apart = [(label, total) for label, total in totals if total.trials_range]
        if apart:
            worst = max(one.trials_range / one.value if one.value else 0 for _, one in apart)
            agreed = ", ".join(f"{label} {total.agree} of {total.trials}" for label, total in apart)
            disagree = f"trials disagree, by at most {_percent(worst)}"
            found.append(f"{disagree}; trials that have the very count shown: {agreed}")
        found += _surprises(arms)
        single = [label for label, total in totals if total.trials == 1]
        if single and len(single) == len(totals):
            found.append("one trial per kernel: nothing shows that another trial would agree")
        elif single:
            found.append(f"one valid trial only, agreement not shown: {', '.join(single)}")
        return found

    def limits(self, record: Run) -> Iterator[str]:
        """Emulation, its machine, and the kernels' builds."""
        results = [trial.result for trial in record.trials if trial.result]
        yield (
            "Instructions were counted, under emulation. Nothing here says how long they take:"
            " cycles, caches, TLB and branch prediction do not exist there."
        )
        environments = {(e.machine, e.cpu_model) for r in results if (e := r.environment)}
        for machine, model in sorted(environments):
            kind = f"{machine}, CPU model {cpu.told(model, record.arms[0].kernel.arch)}"
            yield f"One kind of machine: {kind}, and the paths that it selects."
        flavours = {(arm.kernel.arch, arm.kernel.flavour) for arm in record.arms}
        named = ", ".join(sorted(f"{flavour} ({arch})" for arch, flavour in flavours))
        yield (
            f"Kernels as they were built: flavour {named}. Another configuration or compiler"
            " executes another number of instructions."
        )
        # The largest first, whatever the order in which a run measured them.
        apart = sorted(_bytes_apart(record), key=lambda row: (-row[1], row[0]))
        rows = (trial.exact.functions for trial in record.trials)
        if apart or any(sum(r.bytes - _NOTABLE * r.insns for r in own) > 0 for own in rows):
            told = apart if len(apart) <= _MOST_APART else apart[: _MOST_APART - 1]
            most = [f"{name} (up to {more:,.0f} more)" for name, more in told]
            most += [f"{len(apart) - len(told)} others"] if told != apart else []
            where = f", which differ between kernels in {', '.join(most)}" if apart else ""
            yield (
                "A string instruction (clearing and copying pages) is one instruction, however many"
                f" bytes it handles; explain tells these beside the instructions{where}."
            )


def takes_memory(functions: Iterable[FunctionCount], operations: int) -> bool:
    """True for a path that takes or gives back memory, or random numbers, by batches.

    functions: of the windows that stand for it; operations: of all these windows.
    """
    return any(
        _OF_MEMORY.match(row.function)
        or (_OF_RANDOM.match(row.function) and row.calls < operations)
        for row in functions
    )


def counted(record: Run, workload: str, scenario: str) -> tuple[CountEvidence, ...]:
    """What every arm of an exact run counted in a scenario.  Raises SpecError for a traced one."""
    refuse_traced(record)
    return gather(record, workload, scenario, CountMethod())


def _moved_by(first: TrialRecord, varied: Sequence[TrialRecord]) -> tuple[tuple[str, float], ...]:
    """Each part of a seed that was varied alone, and how far it moved the sum, as a share of it."""
    base = _sum(first)
    apart: dict[str, float] = {}
    for trial in varied:
        if base and trial.varies and trial.result and trial.result.outcome is Outcome.OK:
            moved = abs(_sum(trial) - base) / base
            apart[trial.varies] = max(moved, apart.get(trial.varies, 0.0))
    return tuple(apart.items())


def _sum(trial: TrialRecord) -> int:
    """What the windows that stand for the phases of one trial have together."""
    return sum(chosen_windows(one).location.value for one in trial.exact.phases)


def _windows(counts: PhaseCounts) -> list[int]:
    return [user + kernel for user, kernel in zip(counts.user, counts.kernel, strict=True)]


def chosen_windows(counts: PhaseCounts) -> Chosen:
    """Those that stand for a phase."""
    return choose(_windows(counts), counts.switched, counts.layouts)


def _seeds(
    used: Sequence[TrialRecord], each: Iterable[Sequence[PhaseCounts]]
) -> tuple[tuple[int, int, int], ...]:
    """Of trials that were not tried again, which is on a fresh boot: see CountReading."""
    return tuple(
        (
            trial.round,
            sum(chosen_windows(one).location.value for one in phases),
            sum(bulk(_windows(one), one.switched, one.layouts) for one in phases),
        )
        for trial, phases in zip(used, each, strict=True)
        if trial.result and not trial.result.tries
    )


def _phase_measure(used: Sequence[TrialRecord], per_trial: Sequence[PhaseCounts]) -> Measure:
    found = [chosen_windows(counts) for counts in per_trial]
    across = representative([one.location.value for one in found])
    counts, own = per_trial[across.index], found[across.index]
    chosen, indices, layouts = own.location, own.indices, own.layouts
    operations = counts.operations * counts.layouts
    rows = [row for row in used[across.index].exact.functions if row.phase == counts.phase]
    single = chosen.kind is LocationKind.MODE and layouts is None
    pooled = [calm(_windows(each), each.switched) for each in per_trial]
    others = rare(counts.phase, pooled, chosen.value) if single else None
    behind = [(each.behind or 0) * each.layouts for each in per_trial]
    users = [
        sum(counts.user[index] for index in each.indices)
        for counts, each in zip(per_trial, found, strict=True)
    ]
    memory, few, outside = takes_memory(rows, operations), across.n < LEAST_SEEDS, used[0].outside
    return Measure(
        phase=counts.phase,
        operation=counts.operation,
        operations=operations,
        value=chosen.value,
        spread=max(chosen.deviation, across.maximum - across.minimum),
        user=sum(counts.user[index] for index in indices),
        kernel=sum(counts.kernel[index] for index in indices),
        kind=chosen.kind,
        share=chosen.share,
        windows=chosen.n,
        minimum=chosen.minimum,
        maximum=chosen.maximum,
        deviation=chosen.deviation,
        trial=used[across.index].index,
        left_out=chosen.left_out,
        layouts=layouts,
        usual=layouts.usual if layouts and layouts.hit else None,
        takes_memory=memory,
        few_seeds=memory and few,
        unvaried=outside and few,
        rare=(others,) if others else (),
        left=calls.left_by(rows, counts.wakes),
        behind=(min(behind), max(behind)),
        program=(min(users), max(users)) if outside else None,
        faults=max((row.calls for row in rows if row.function in calls.FAULT), default=0),
        by_state=calls.by_state(rows),
        handled=sum(row.bytes for row in rows),
        spent=counts.spent,
        places=calls.places(
            (trial.round, one)
            for trial, one in zip(used, per_trial, strict=True)
            if trial.result and not trial.result.tries
        ),
        syscalls=counts.syscalls or {},
        seeds=_seeds(used, ([one] for one in per_trial)),
        trials=across.n,
        agree=round(across.share * across.n),
        trials_range=across.maximum - across.minimum,
    )


def _total(phases: Sequence[Measure], per_trial: Sequence[int]) -> Measure:
    units = {(measure.operations, measure.operation) for measure in phases}
    operations, operation = units.pop() if len(units) == 1 else (1, ITERATION)
    value = sum(measure.value for measure in phases)
    programs = [measure.program for measure in phases if measure.program]
    return Measure(
        phase=TOTAL,
        operation=operation,
        operations=operations,
        value=value,
        spread=max(sum(measure.deviation for measure in phases), max(per_trial) - min(per_trial)),
        user=sum(measure.user for measure in phases),
        kernel=sum(measure.kernel for measure in phases),
        kind=next(kind for kind in _WEAKEST_FIRST if kind in {one.kind for one in phases}),
        share=min(measure.share for measure in phases),
        deviation=sum(measure.deviation for measure in phases),
        trials=len(per_trial),
        agree=per_trial.count(value),
        trials_range=max(per_trial) - min(per_trial),
        left_out=sum(measure.left_out for measure in phases),
        layouts=_layouts(phases),
        usual=None
        if all(one.usual is None for one in phases)
        else sum(one.value if one.usual is None else one.usual for one in phases),
        takes_memory=any(measure.takes_memory for measure in phases),
        few_seeds=any(measure.few_seeds for measure in phases),
        unvaried=any(measure.unvaried for measure in phases),
        rare=tuple(one for measure in phases for one in measure.rare),
        left=dict(sum((Counter(measure.left) for measure in phases), Counter())),
        behind=(sum(one.behind[0] for one in phases), sum(one.behind[1] for one in phases)),
        program=(sum(own[0] for own in programs), sum(own[1] for own in programs))
        if programs
        else None,
        faults=sum(measure.faults for measure in phases),
        by_state=dict(sum((Counter(measure.by_state) for measure in phases), Counter())),
        handled=sum(measure.handled for measure in phases),
        places={length: own for one in phases for length, own in one.places.items()}
        | {"": _joined(phases)},
    )


def _joined(phases: Sequence[Measure]) -> dict[int, Spent]:
    """Of the common length what calls take in all phases, by seed."""
    return {
        seed: {
            f"{call}{f' in {one.phase}' * (len(phases) > 1)}": own
            for one in phases
            for call, own in one.places[""][seed].items()
        }
        for seed in phases[0].places[""]
    }


def _layouts(phases: Sequence[Measure]) -> Layouts | None:
    """Of the sum over phases that all go through the same."""
    counts = [measure.layouts.counts for measure in phases if measure.layouts]
    if len(counts) < len(phases):
        return None
    return Layouts.of([sum(each) for each in zip(*counts, strict=True)])


def _window_warnings(phase: str, measured: Sequence[tuple[str, Measure]]) -> list[str]:
    found = []
    if apart := [f"on {label} {unlike(far)}" for label, m in measured for far in m.rare]:
        part = "only some of them do a part of the work"
        found.append(f"{phase}: windows do not count alike, {'; '.join(apart)}: {part}")
    if all(m.program and m.windows == 1 for _, m in measured):
        first = "holds what is done only the first time; a loop around the marks has others"
        found.append(f"{phase}: its one window {first}")
    # A few always are: now and then a tick lets others run.
    if left := [f"{label} {m.left_out}" for label, m in measured if m.left_out > (m.windows or 0)]:
        found.append(
            f"{phase}: most windows left out because another task ran in them: {', '.join(left)}"
        )
    if median := [(label, m) for label, m in measured if m.kind is LocationKind.MEDIAN]:
        worst = max(m.deviation / m.value if m.value else 0 for _, m in median)
        names = ", ".join(label for label, _ in median)
        found.append(
            f"{phase}: counts hardly repeat, so the median window is shown (~); four of five"
            f" windows lie within {_percent(worst)} of it: {names}"
        )
    modes = [(label, m) for label, m in measured if m.kind is LocationKind.MODE]
    if low := ", ".join(f"{label} {m.share:.0%}" for label, m in modes if m.share < LOW_SHARE):
        found.append(f"{phase}: fewer than half of the windows have the shown count: {low}")
    return found


# What memory that nobody described may be, besides resident base pages: fact, words, from how much.
_SURPRISING = (
    ("anon_huge_kb", "kB are mapped by huge pages", 1),
    ("shmem_pmd_kb", "kB of shared memory are mapped by huge pages", 1),
    ("compound_pages", "pages are parts of large folios", 1),
    ("zero_pages", "pages are the zero page", 1),
    ("swapped_pages", "pages are swapped out", 1),
    ("absent_pages", "pages of its mappings are not there", 256),
)
_HUGE_FAULTS = "thp_fault_alloc"


def _surprises(arms: Sequence[CountEvidence]) -> list[str]:
    """What was not done for a program that says nothing of its memory, and what that is where it is
    not base pages.
    """
    seen: Counter[str] = Counter()
    undone: dict[str, str] = {}
    for fact in (f for arm in arms for t in arm.used[:1] if t.result for f in t.result.state):
        if fact.name.startswith(UNDONE) and fact.value.strip("0"):
            name = fact.name.removeprefix(UNDONE)
            undone[name] = f"{name} {fact.value}"
        if not fact.binding and fact.value.isdecimal():
            seen[fact.name] = max(int(fact.value), seen[fact.name])
    undone.pop(_HUGE_FAULTS, "")  # stands in the answer
    told = {"dropped, refused or put off": [*undone.values()]}
    for whose, of in (("process", "the program"), ("children", "its children")):
        each = ((seen[f"{whose}_{name}"], words, least) for name, words, least in _SURPRISING)
        told[f"the memory of {of}"] = [f"{n:,} {words}" for n, words, least in each if n >= least]
    return [f"{what}: {', '.join(each)}" for what, each in told.items() if each]


def _fact(trial: TrialRecord, name: str) -> int:
    """A number that a trial's audit told, 0 without."""
    state = trial.result.state if trial.result else ()
    return next((int(f.value) for f in state if f.name == name and f.value.isdecimal()), 0)


def _handled(counts: ExactData) -> float:
    """What string instructions copied, set and compared per operation, over the phases."""
    windows = {phase.phase: phase.operations * phase.layouts for phase in counts.phases}
    return sum(row.bytes / windows.get(row.phase, 1) for row in counts.functions)


def _bytes_apart(record: Run) -> Iterator[tuple[str, float]]:
    """Scenarios whose kernels differ in bytes, and by how many per operation."""
    found: dict[str, list[float]] = {}
    for trial in record.trials:
        if trial.exact.functions:
            name = f"{trial.workload}:{trial.scenario}"
            found.setdefault(name, []).append(_handled(trial.exact))
    for name, each in found.items():
        apart = max(each) - min(each)
        if apart >= max(_LEAST_BYTES, _LEAST_PART * min(each)):
            yield name, apart


def _percent(fraction: float) -> str:
    percent = 100 * fraction
    if 0 < percent < 0.001:
        return "less than 0.001 %"
    return f"{percent:.2g} %" if percent < 10 else f"{percent:.0f} %"
