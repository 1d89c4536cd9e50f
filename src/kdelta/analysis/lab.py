# SPDX-License-Identifier: GPL-2.0-or-later
"""A run of many scenarios as a table; many runs as one lab: its kernels in order, their steps, any
two of them, a function's history.

A run calls a kernel by its upstream version, which is enough in it.  Of several runs two packages
may be called the same, or one kernel differently, so kernels are named anew.  Of any two kernels
those of one run are compared where one has both, else what stands of each.  A lab of many point
releases has thousands of pairs, and most of its kernels count the same: what was decided of two
kernels holds for all that are like them.
"""

from __future__ import annotations

import re
from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import chain, compress, pairwise
from typing import NamedTuple, TypeVar

from msgspec import structs

from kdelta.analysis.explanation import Explanation, explain, profile
from kdelta.analysis.findings import Report, report
from kdelta.journal.run import RunRecord
from kdelta.ladder.calls import weighed_by_phases
from kdelta.ladder.counts import CountEvidence, CountMethod, Measure
from kdelta.ladder.evidence import (
    BuildFacts,
    compare_arms,
    counted_phases,
    nearest,
    obstacles,
    points,
    weighed,
    weighed_by_asked,
)
from kdelta.ladder.ladders import Ladder, Rung, baseline, ladders
from kdelta.machine.axes import MachineSettings
from kdelta.printable import told_name
from kdelta.sample import TOTAL, ArmRecord, KernelIdentity
from kdelta.verdict.comparison import Comparison, CountReading, Verdict

# ---- a run of many scenarios: which path changed where, by which functions -----------------------

STEP_PERCENT = 5.0  # of the study that a survey is: it looks for what matters
S = TypeVar("S", bound="SurveyStep")


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyCell:
    """One kernel in one scenario.  ratio: new/old against the nearest kernel above with a count.

    ratio None: there is none, for the reason in `note` ("skip", "invalid", "failed", "not run"),
    or because it is the first count.  undecided: but for the builds; a phase's, when
    it changed beyond the threshold and is no step.
    """

    per_operation: float | None
    ratio: float | None
    note: str
    crossing: str = ""  # "gcc 14 -> gcc 16": the two were built by different compilers
    undecided: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyRow:
    """One scenario: a cell for each kernel, in the run's order.

    inexact: counts hardly repeat; layouts: of the kernel's trees and lists, that it is a mean over.
    phases: by name, those that changed where the sum over the phases did not.
    """

    name: str
    inexact: bool
    layouts: int
    cells: tuple[SurveyCell, ...]
    phases: dict[str, tuple[SurveyCell, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyStep:
    """A step between two neighbouring kernels of a scenario, with its functions.

    It is one of the sum over the phases, or of a phase where that is none (explanation.phase).
    phases: of a sum, what the phases did beyond the threshold, by name: new/old.  hit: layouts that
    were hit, old and new, of a scenario that goes over layouts.
    """

    point: str
    explanation: Explanation
    phases: tuple[tuple[str, float], ...] = ()
    hit: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """The scenario, at its point of the matrix."""
        own = self.explanation
        return f"{own.workload}:{own.scenario} {self.point}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """A whole run as a table.  changes: the largest first, each beyond the threshold."""

    report: Report[Measure]
    kernels: tuple[str, ...]
    rows: tuple[SurveyRow, ...]
    changes: tuple[SurveyStep, ...]


def surveyed(record: RunRecord, *, step_percent: float | None = None) -> Survey:
    """Analyse a stored exact run of many scenarios; step_percent None: the study's threshold."""
    found = report(record, step_percent=step_percent)
    kernels = tuple(dict.fromkeys(rung.label for each in found.ladders for rung in each.rungs))
    parts = dict(points(record))
    every = [[*_steps(parts[each.point], each, found.step_percent)] for each in found.ladders]
    changes, _ = _parted(chain.from_iterable(every))
    return Survey(
        report=found,
        kernels=kernels,
        rows=tuple(
            _row(ladder, kernels, found.step_percent, own)
            for ladder, own in zip(found.ladders, every, strict=True)
        ),
        changes=changes,
    )


def _is_open(step: SurveyStep) -> bool:
    return not step.explanation.comparison.verdict.is_step


def _parted(steps: Iterable[S]) -> tuple[tuple[S, ...], tuple[S, ...]]:
    """The steps, and the changes that are undecided; the largest first."""
    ordered = sorted(steps, key=lambda one: -one.explanation.comparison.factor)
    return tuple(one for one in ordered if not _is_open(one)), tuple(filter(_is_open, ordered))


def _steps(record: RunRecord, ladder: Ladder[Measure], step_percent: float) -> Iterator[SurveyStep]:
    """Those of the sums, also undecided, and where the sum has none, those of the phases."""
    explained = partial(explain, record, scenario=ladder.reference, step_percent=step_percent)
    rungs = {rung.label: rung for rung in ladder.rungs}
    for rung in ladder.rungs:
        # A scenario with one phase has that as its sum.
        moved = tuple(
            (phase, ratio)
            for phase in ladder.phases
            if len(ladder.phases) > 1 and (ratio := rung.ratio(phase).previous)
            if _beyond(ratio, step_percent)
        )
        judged = rung.comparison
        open_ = (
            judged and judged.verdict is Verdict.UNDECIDED and _beyond(judged.ratio, step_percent)
        )
        if rung.previous and judged and (judged.verdict.is_step or open_):
            totals = rungs[rung.previous].total, rung.total
            was, now = (total.layouts if total else None for total in totals)
            yield SurveyStep(
                point=ladder.point,
                explanation=explained(rung.previous, rung.label, phase=TOTAL),
                phases=moved,
                hit=(was.hit, now.hit) if was and now else None,
            )
            if judged.verdict.is_step or judged.crossing:
                continue
        for phase, _ in moved:
            found = explained(rung.previous or "", rung.label, phase=phase)
            if found.comparison.verdict.is_step:
                yield SurveyStep(point=ladder.point, explanation=found)


def _beyond(ratio: float | None, step_percent: float) -> bool:
    return abs(100 * ((ratio or 1) - 1)) > step_percent


def _row(
    ladder: Ladder[Measure],
    kernels: tuple[str, ...],
    step_percent: float,
    steps: Sequence[SurveyStep],
) -> SurveyRow:
    rungs = {rung.label: rung for rung in ladder.rungs}
    inexact = any(m.kind == "median" for rung in ladder.rungs for m in rung.phases)
    layouts = [rung.total.layouts for rung in ladder.rungs if rung.total]
    decided = {(s.explanation.phase, s.explanation.new) for s in steps if not _is_open(s)}

    def of(phase: str) -> tuple[SurveyCell, ...]:
        known = {kernel for moved, kernel in decided if moved in (TOTAL, phase)}
        cells = (_cell(rungs.get(k), phase, step_percent, decided=k in known) for k in kernels)
        return tuple(cells)

    cells = of(TOTAL)
    still = [not _beyond(total.ratio, step_percent) for total in cells]
    phases = {phase: of(phase) for phase in ladder.phases}
    return SurveyRow(
        name=f"{ladder.reference} {ladder.point}".strip(),
        inexact=inexact,
        layouts=max((len(each.counts) for each in layouts if each), default=1),
        cells=cells,
        phases={
            phase: cells
            for phase, cells in phases.items()
            if any(_beyond(cell.ratio, step_percent) for cell in compress(cells, still))
        },
    )


def _cell(
    rung: Rung[Measure] | None, phase: str, step_percent: float, *, decided: bool
) -> SurveyCell:
    if rung is None or not rung.done:
        return SurveyCell(per_operation=None, ratio=None, note="not run")
    if rung.total is None:
        return SurveyCell(per_operation=None, ratio=None, note="skip" if rung.skipped else "failed")
    judged = rung.comparison
    measure = next((one for one in (rung.total, *rung.phases) if one.phase == phase), None)
    ratio, crossing = rung.ratio(phase).previous, judged.crossing if judged else ""
    note = "invalid" if judged and judged.verdict is Verdict.INVALID else ""
    open_ = bool(phase == TOTAL and judged and judged.verdict is Verdict.UNDECIDED)
    moved = not crossing and not note and _beyond(ratio, step_percent)
    return SurveyCell(
        per_operation=measure.per_operation if measure else None,
        ratio=ratio,
        note=note,
        crossing=crossing,
        undecided=(open_ and not crossing) or (moved and not decided),
    )


# ---- many runs as one lab ------------------------------------------------------------------------


_NUMBERS = re.compile(r"\d+|rc")
_COMMIT = re.compile(r"-g[0-9a-f]{7,40}")
_OF_TREE = re.compile(r"tree:(?P<place>.+)@(?P<commit>[^@+]+)(?P<more>(?:\+.*)?)")
_SHORT = 8
_Key = tuple[str, ...]
_Counts = tuple[RunRecord, Rung[Measure]]
Counted = Mapping[str, Sequence[_Counts]]
"""Of one scenario by kernel the runs: first that of most trials, the newest of several."""


def version_key(kernel: str) -> tuple[tuple[int, int], ...]:
    """Orders kernels by the numbers in their names; a candidate is before its release.

    Of a name that has a commit in it, the numbers before that: a digest has no order.
    """
    words = _NUMBERS.findall(_COMMIT.split(kernel, maxsplit=1)[0])
    return tuple((0, 0) if word == "rc" else (1, min(int(word), 1 << 62)) for word in words[:12])


def line(kernel: KernelIdentity) -> _Key:
    """What a kernel is one of: a flavour of the archive, or the commits of a tree.

    Only kernels of a line are each other's neighbours whichever run counted them: others differ in
    their configuration, and stand beside what their run put them beside.
    """
    if kernel.version:
        return "archive", kernel.arch, kernel.flavour
    if found := _OF_TREE.fullmatch(kernel.reference):
        return "tree", found["place"], found["more"], kernel.arch
    return "alone", kernel.reference, kernel.image_sha256


def named(records: Iterable[RunRecord]) -> list[RunRecord]:
    """The runs, with one name for each kernel in all of them, and no two kernels of one name.

    It is the shortest that any of the runs has for it, where another has that name, too, the
    package's version, and where that is not enough the flavour or the image.
    """
    every = list(records)
    shortest: dict[_Key, str] = {}
    kernels: dict[_Key, KernelIdentity] = {}
    for arm in (arm for record in every for arm in record.arms if not arm.control):
        key = _kernel_key(arm)
        kernels[key] = arm.kernel
        shortest[key] = min(
            shortest.get(key, arm.label), arm.label, key=lambda name: (len(name), name)
        )
    own = _apart(shortest, kernels)
    return [structs.replace(record, arms=tuple(_renamed(record.arms, own))) for record in every]


def without_folders(records: Iterable[RunRecord]) -> tuple[list[RunRecord], dict[str, str]]:
    """The runs, as others may read them, and the name there of each C file of the user's own.

    It is the end of the file's path, as short as no other file of these runs has it.  Files of one
    name that were the same program are one.
    """
    every = list(records)
    first, same = dict[str, str](), dict[tuple[str, str], str]()
    for file, program in chain.from_iterable(map(_programs, every)):
        first.setdefault(file, same.setdefault((_ends(file)[0], program or file), file))
    ends = Counter(end for file in {*first.values()} for end in _ends(file))
    told = {}
    for file, one in first.items():
        *short, whole = _ends(one)
        told[file] = f"./{next((end for end in short if ends[end] == 1), whole)}"

    def carried(record: RunRecord) -> RunRecord:
        trials = (
            structs.replace(one, workload=told.get(one.workload, one.workload))
            for one in record.trials
        )
        return structs.replace(record, trials=tuple(trials))

    return [carried(record) for record in every], told


def _ends(file: str) -> list[str]:
    """The ends of a path, from its name on."""
    parts = [part for part in file.split("/") if part != "."]
    return ["/".join(parts[at:]) for at in reversed(range(len(parts)))]


def reference(name: str, kernel: KernelIdentity) -> str:
    """What means a kernel in a command, of one that is called so; "" of a path of this machine."""
    if kernel.version:
        return f"deb:{kernel.version}" if name == kernel.version or " " in name else name
    return "" if "/" in kernel.reference else kernel.reference


def ordered(records: Iterable[RunRecord], names: Iterable[str]) -> tuple[str, ...]:
    """Names of kernels, oldest first; commits of one release as they were first counted."""
    seen: dict[str, tuple[str, int]] = {}
    for record in records:
        for arm in record.arms:
            at = (record.created, arm.index)
            seen[arm.label] = min(seen.get(arm.label, at), at)
    return tuple(sorted(names, key=lambda name: (version_key(name), seen.get(name, ("", 0)), name)))


def _kernel_key(arm: ArmRecord) -> _Key:
    kernel = arm.kernel
    if kernel.version:
        return kernel.version, kernel.arch, kernel.flavour
    return kernel.name, kernel.reference, kernel.image_sha256


def _apart(shortest: dict[_Key, str], kernels: dict[_Key, KernelIdentity]) -> dict[_Key, str]:
    """Names by kernel: of equal ones, longer ones until they are not."""
    same: dict[str, list[_Key]] = defaultdict(list)
    for key, name in shortest.items():
        same[name].append(key)
    found: dict[_Key, str] = {}
    for name, keys in same.items():
        forms = []
        for kernel in (kernels[key] for key in keys):
            package = kernel.version or name
            flavour = f"{package} {kernel.flavour} {kernel.arch}".strip()
            image = f"{flavour} image {kernel.image_sha256[:_SHORT]}"
            forms.append((name, package, flavour, image))  # the shortest first
        wide = [own for own in zip(*forms, strict=True) if len(set(own)) == len(keys)]
        counted = [f"{name} ({at})" for at in range(1, len(keys) + 1)]
        chosen: Sequence[str] = wide[0] if wide else counted
        found.update(zip(keys, chosen, strict=True))
    return found


def _renamed(arms: Sequence[ArmRecord], own: dict[_Key, str]) -> Iterable[ArmRecord]:
    """A control keeps what it adds to its kernel's name; a name is unique in its run and point."""
    used: set[tuple[str, str]] = set()
    for arm in arms:
        name = own.get(_kernel_key(arm), arm.label)
        name = f"{name} again" if arm.control else name
        if (arm.point, name) in used:
            name = arm.label
        used.add((arm.point, name))
        yield structs.replace(arm, label=name)


def is_ladder(record: RunRecord) -> bool:
    """True for a run of kernels in their order: no variants of one source, no control, no gap."""
    return not (
        record.gap or any(arm.control for arm in record.arms) or baseline(record, CountMethod())
    )


def _neighbours(every: Counted, kernels: Sequence[str]) -> Iterator[tuple[_Counts, _Counts]]:
    """Each kernel with a value behind the one before it in its line.  kernels: oldest first."""
    above: list[list[_Counts]] = []
    for kernel in kernels:
        counted = every.get(kernel, ())
        own = [(run, arm) for run, arm in counted if arm.total and is_ladder(run)]
        if not own:
            continue
        seen = own[0][1]
        own_line = line(seen.arm.kernel)
        able = [one for one in above if line(one[0][1].arm.kernel) == own_line]
        if able:
            before = able[nearest(seen.kernel, [one[0][1].kernel for one in able])]
            both = ((was, now) for was in before for now in own if was[0] is now[0])
            yield next(both, (before[0], own[0]))
        if seen.sound:
            above.append(own)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRow:
    """A scenario on two kernels.

    comparison: it says in which way their builds differ, and names no kernel.
    """

    name: str
    operation: str
    old: float
    new: float
    comparison: Comparison


Pairs = Mapping[tuple[str, str], Sequence[PairRow]]
"""Two kernels, old and new, in every scenario that has both; the largest change first."""


def all_pairs(arms: Mapping[str, Counted], kernels: Sequence[str], *, most: int) -> Pairs:
    """All pairs.  kernels: oldest first; beyond so many neighbours, and each with the newest."""
    scenarios = [_Scenario(name, every) for name, every in arms.items()]
    wanted = [(a, b) for at, a in enumerate(kernels) for b in kernels[at + 1 :]]
    if len(wanted) > most:
        near = set(pairwise(kernels)) | {(a, kernels[-1]) for a in kernels[:-1]}
        wanted = [pair for pair in wanted if pair in near][:most]
    every = {pair: [row for one in scenarios if (row := one.row(*pair))] for pair in wanted}
    return {
        pair: sorted(rows, key=lambda row: -row.comparison.factor)
        for pair, rows in every.items()
        if rows
    }


class _Kind(NamedTuple):
    """What sound arms share where no comparison can tell one from the other."""

    setting: tuple[object, ...]
    reading: CountReading
    phases: tuple[tuple[str, CountReading], ...]
    build: BuildFacts


class _Arm(NamedTuple):
    """What a pair takes of a kernel in a run.  kind: None of an arm that is not sound."""

    record: RunRecord
    evidence: CountEvidence
    total: Measure
    kind: _Kind | None


class _Scenario:
    """One scenario, and what was decided so far, by the identities of kinds."""

    def __init__(self, name: str, every: Counted) -> None:
        self._name = name
        self._kinds: dict[_Kind, _Kind] = {}
        self._decided: dict[tuple[int, int, float], Comparison] = {}
        self._of: dict[str, list[_Arm]] = {}
        for kernel, own in every.items():
            for record, arm in own:
                if total := arm.total:
                    kind = self._kind(arm, total.reading) if arm.sound else None
                    self._of.setdefault(kernel, []).append(_Arm(record, arm, total, kind))

    def row(self, old: str, new: str) -> PairRow | None:
        before, after = self._of.get(old), self._of.get(new)
        if not before or not after:
            return None
        both = ((was, now) for was in before for now in after if was.record is now.record)
        was, now = next(both, (before[0], after[0]))
        return PairRow(
            name=self._name,
            operation=now.total.operation,
            old=was.total.per_operation,
            new=now.total.per_operation,
            comparison=self._comparison(was, now),
        )

    def _comparison(self, was: _Arm, now: _Arm) -> Comparison:
        percent = now.record.study.thresholds.step_percent
        method = CountMethod(step_percent=percent)
        if was.kind is None or now.kind is None:  # why not names the kernel
            return compare_arms(method, was.evidence, now.evidence)
        key = id(was.kind), id(now.kind), percent
        if key not in self._decided:
            forbidden = obstacles(method, was.evidence, now.evidence)
            judged = method.judged(was.kind.reading, now.kind.reading, forbidden)
            both = zip(was.kind.phases, now.kind.phases, strict=False)
            each = {phase: method.judged(a, b, ()) for (phase, a), (_, b) in both}
            judged = weighed_by_phases(judged, each) if len(each) > 1 else judged
            judged = weighed_by_asked(judged, (was.evidence, now.evidence))
            self._decided[key] = _general(judged, was.kind, now.kind)
        return self._decided[key]

    def _kind(self, arm: CountEvidence, reading: CountReading) -> _Kind:
        """Its setting is all of a sound arm that obstacles look at."""
        result = arm.used[0].result
        outside = arm.used[0].outside
        setting: tuple[object, ...] = (
            arm.state,
            tuple(measure.phase for measure in arm.phases),
            result.state if result else (),
            repr(CountMethod().conditions(result)) if result else "",
            *(
                (repr(one.syscalls), repr(one.errors), repr(one.clock))
                + (repr(one.scalars), repr(one.outside)) * outside
                for one in counted_phases(arm)
            ),
        )
        phases = tuple((measure.phase, measure.reading) for measure in arm.phases)
        own = _Kind(setting, reading, phases, BuildFacts.of(arm.kernel, arm.used))
        return self._kinds.setdefault(own, own)


def _general(found: Comparison, old: _Kind, new: _Kind) -> Comparison:
    """With what the builds differ in as `weighed` has it, but without the names of kernels."""
    judged = weighed(found, old.build, new.build, lambda _: "")
    if not judged.crossing or (judged.verdict is found.verdict and not found.signless):
        return judged
    compilers = judged.crossing != ", ".join(judged.options)
    what = ["two compilers"] * compilers + ["two configurations"] * bool(judged.options)
    why = f"{' and '.join(what)}, {judged.crossing}: part of it may be theirs"
    return replace(judged, reasons=(why,))


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPoint:
    """One kernel in one scenario, by the run of most trials that are valid, the newest of several.

    value: instructions per operation, None for the reason in `note`; of its phases, where there are
    several, each.  comparison: with the kernel `previous`.
    """

    kernel: str
    value: float | None
    phases: tuple[tuple[str, float], ...]
    note: str
    previous: str
    comparison: Comparison | None
    operation: str
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioHistory:
    """A scenario over all kernels, oldest first."""

    name: str
    operation: str
    points: tuple[HistoryPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabStep(SurveyStep):
    """A step with the run that shows it.

    called: the scenario on pages.  alone: that run has the newer kernel only, and another the
    older.  kernels: what means the two in a command, "" where nothing does elsewhere.
    """

    called: str
    run_id: str
    alone: bool
    kernels: tuple[str, str]
    created: str


FunctionRows = Sequence[tuple[str, tuple[float | None, ...]]]
"""Of a function that a step names instructions per operation, by scenario and kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """All that the runs of a lab show together.  left_out: a sentence for each run that is not.

    left_open: changes that are undecided.
    """

    machine: str
    newest: str
    kernels: tuple[str, ...]
    scenarios: tuple[ScenarioHistory, ...]
    steps: tuple[LabStep, ...]
    left_open: tuple[LabStep, ...]
    pairs: Pairs
    functions: Mapping[str, FunctionRows]
    runs: tuple[tuple[str, str, str], ...]
    left_out: tuple[str, ...]


def lab(records: Iterable[RunRecord], *, most_pairs: int, aside: Collection[str] = ()) -> Lab:
    """The runs as one; most_pairs: beyond so many, neighbours and each with the newest only.

    records: with names of kernels that are unique in all of them (`lines.named`).  aside: runs, by
    id, of which only the steps are taken: commits that were bisected are no kernels of the lab.
    """
    every = sorted(records, key=lambda one: one.created, reverse=True)
    used, machine, left_out = _of_one_machine(every)
    all_of = _Gathered(_names(used))
    for own in used:
        all_of.add(own, only_steps=own.record.run_id in aside)
    names = {kernel for every in all_of.arms.values() for kernel in every}
    kernels = ordered((one.record for one in used), names)
    all_of.climb(kernels)
    steps, left_open = _parted(chain.from_iterable(own for _, own in all_of.steps.values()))
    return Lab(
        machine=machine,
        newest=used[0].record.created if used else "",
        kernels=kernels,
        scenarios=tuple(
            ScenarioHistory(
                name=name,
                operation=next((p.operation for p in own.values() if p.operation), "operation"),
                points=tuple(own[kernel] for kernel in kernels if kernel in own),
            )
            for name, own in sorted(all_of.points.items())
        ),
        steps=steps,
        left_open=left_open,
        pairs=all_pairs(all_of.arms, kernels, most=most_pairs),
        functions=_functions(steps, kernels, all_of.arms),
        runs=tuple(
            (one.run_id, one.created, one.title or one.name)
            for one in (found.record for found in used)
        ),
        left_out=left_out,
    )


def _names(used: Iterable[Report[Measure]]) -> dict[str, str]:
    """What pages call each scenario; two files of one name by the end of their path, too."""
    every = [ladder for own in used for ladder in own.ladders]
    short = {one.reference: told_name(one.workload, one.scenario) for one in every}
    often = Counter(short.values())
    return {
        key: name if often[name] == 1 else key.removeprefix("./") for key, name in short.items()
    }


@dataclass(slots=True)
class _Gathered:
    """What the runs have, by scenario and kernel.  steps: with the trials of the newer kernel."""

    names: Mapping[str, str]
    points: dict[str, dict[str, HistoryPoint]] = field(default_factory=dict)
    steps: dict[tuple[str, str, str], tuple[int, list[LabStep]]] = field(default_factory=dict)
    references: dict[str, str] = field(default_factory=dict)
    arms: dict[str, dict[str, list[_Counts]]] = field(default_factory=dict)

    def add(self, own: Report[Measure], *, only_steps: bool) -> None:
        """A run, of all the newest first."""
        record = own.record
        for arm in record.arms:
            self.references.setdefault(arm.label, reference(arm.label, arm.kernel))
        lines = {line(arm.kernel) for arm in record.arms}
        beside = only_steps or len(lines) > 1 or not is_ladder(record)
        parts = dict(points(record))
        for ladder in own.ladders:
            name = f"{self.names[ladder.reference]} {ladder.point}".strip()
            found = _steps(parts[ladder.point], ladder, own.step_percent) if beside else ()
            steps = self._of_lab(found, record, name, alone=False)
            for rung in ladder.rungs:
                pair = name, rung.previous or "", rung.label
                if beside and rung.ok > self.steps.get(pair, (-1, []))[0]:
                    changes = [step for step in steps if step.explanation.new == rung.label]
                    self.steps[pair] = rung.ok, changes
                if not only_steps:
                    arms = self.arms.setdefault(name, {}).setdefault(rung.label, [])
                    insort(arms, (record, rung), key=lambda one: -one[1].ok)

    def _of_lab(
        self, found: Iterable[SurveyStep], record: RunRecord, name: str, *, alone: bool
    ) -> list[LabStep]:
        known = self.references
        return [
            LabStep(
                **{each.name: getattr(change, each.name) for each in fields(change)},
                called=name,
                run_id=record.run_id,
                alone=alone,
                kernels=(known.get(own.old, own.old), known.get(own.new, own.new)),
                created=record.created,
            )
            for change in found
            for own in [change.explanation]
        ]

    def climb(self, kernels: Sequence[str]) -> None:
        """Put each kernel beside its neighbour, with the steps between them."""
        for name, every in self.arms.items():
            self.points[name] = {kernel: _point(*own[0]) for kernel, own in every.items()}
            for (other, old), (record, new) in _neighbours(every, kernels):
                method = CountMethod(step_percent=record.study.thresholds.step_percent)
                previous, kernel = old.label, new.label
                point = self.points[name][kernel]
                own = (point.run_id, point.previous) == (record.run_id, previous)
                known = point.comparison if own and other is record else None
                comparison = known or compare_arms(method, old, new)
                self.points[name][kernel] = replace(point, previous=previous, comparison=comparison)
                steps: Iterable[SurveyStep] = ()
                if comparison.verdict is not Verdict.SAME or comparison.within:
                    two = [*enumerate((old, new))]
                    arms = tuple(structs.replace(one.arm, index=at) for at, one in two)
                    trials = (structs.replace(t, arm=at) for at, one in two for t in one.trials)
                    run = structs.replace(record, arms=arms, trials=tuple(trials))
                    (ladder,) = ladders(run, method)
                    steps = _steps(run, ladder, method.step_percent)
                found = self._of_lab(steps, record, name, alone=other is not record)
                self.steps[name, previous, kernel] = new.ok, found


_OF_KERNELS = ("arch", "flavour")  # asked for with a machine: the lab has lines of kernels for them


def _of_one_machine(
    every: Sequence[RunRecord],
) -> tuple[list[Report[Measure]], str, tuple[str, ...]]:
    left_out: list[str] = []
    machines: list[tuple[str, Report[Measure]]] = []
    weight: Counter[str] = Counter()
    for record in every:
        if not record.instrument.traits.repeats:
            left_out.append(f"{record.run_id}: it is of times, and these pages are of counts")
            continue
        found = report(record)
        told = {machine.told for ladder in found.ladders for machine in ladder.machines}
        if len(told) != 1:
            why = "it has no value yet" if not told else "its trials were on several machines"
            left_out.append(f"{record.run_id}: {why}")
            continue
        asked = structs.asdict(record.study.machine)
        usual = structs.asdict(MachineSettings()) | {one: asked[one] for one in _OF_KERNELS}
        own = [f"{name} {n}" for name, n in asked.items() if n != usual[name]]
        machine = ", ".join([*told, *own])
        machines.append((machine, found))
        weight[machine] += sum(bool(r.total) for one in found.ladders for r in one.rungs)
    if not weight:
        return [], "", tuple(left_out)
    chosen = weight.most_common(1)[0][0]
    used, programs = list[Report[Measure]](), dict[str, str]()
    for machine, one in machines:
        if machine != chosen:
            left_out.append(f"{one.record.run_id}: counted on another machine ({machine})")
        elif apart := _another_program(one.record, programs):
            left_out.append(f"{one.record.run_id}: {apart} was another program")
        else:
            used.append(one)
    return used, chosen, tuple(left_out)


def _another_program(record: RunRecord, newest: dict[str, str]) -> str:
    """A file of the user's own that was another program than in the newest run with it."""
    ran = ((file, own) for file, own in _programs(record) if own)
    return next((file for file, own in ran if newest.setdefault(file, own) != own), "")


def _programs(record: RunRecord) -> Iterator[tuple[str, str]]:
    """The files of the user's own, each with the digest of the program that ran, "" for none."""
    for trial in (one for one in record.trials if one.outside):
        known = trial.result and trial.result.environment
        yield trial.workload, known.program_sha256 if known else ""


def _point(record: RunRecord, rung: Rung[Measure]) -> HistoryPoint:
    several = len(rung.phases) > 1
    return HistoryPoint(
        kernel=rung.label,
        value=rung.total.per_operation if rung.total else None,
        phases=tuple((one.phase, one.per_operation) for one in rung.phases) if several else (),
        note="" if rung.total else "not supported" if rung.skipped else "no value",
        previous=rung.previous or "",
        comparison=rung.comparison if rung.total else None,
        operation=rung.total.operation if rung.total else "",
        run_id=record.run_id,
    )


def _functions(
    steps: Iterable[LabStep],
    kernels: Sequence[str],
    arms: Mapping[str, Counted],
) -> dict[str, FunctionRows]:
    named = {
        name
        for step in steps
        for row in (*step.explanation.rising, *step.explanation.falling)
        for name in (row.function, row.was)
        if name
    }
    table: dict[str, dict[str, dict[str, float]]] = {}
    for name, every in arms.items():
        for kernel, own in every.items():
            for _, arm in own:
                if not arm.total:
                    continue
                for function, counts in profile(arm, TOTAL).functions.items():
                    if function in named:
                        row = table.setdefault(function, {}).setdefault(name, {})
                        row.setdefault(kernel, counts[0] / arm.total.operations)
    return {
        function: [
            (name, tuple(own.get(kernel) for kernel in kernels))
            for name, own in sorted(rows.items())
        ]
        for function, rows in sorted(table.items())
    }
