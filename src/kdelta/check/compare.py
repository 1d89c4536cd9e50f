# SPDX-License-Identifier: GPL-2.0-or-later
"""Counts scenarios in their page sizes, and compares two kernels: their code, and one scenario."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import re
import tempfile
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from kdelta import workload
from kdelta.analysis.explanation import Explanation, FunctionDelta, explain
from kdelta.analysis.gate import GateCase, GateResult, gate
from kdelta.analysis.work import FAULTS, objects_moved, shared
from kdelta.archive.apt import Progress
from kdelta.check.page import LEAST_PERCENT, Effect, FunctionPart, PathRow
from kdelta.disassembly import image
from kdelta.disassembly.identity import difference, functions_of, only_lines
from kdelta.errors import InfraError, SpecError
from kdelta.host import leases
from kdelta.journal.artifacts import TrialDetails, kept_details
from kdelta.journal.results import trial_folder
from kdelta.journal.run import RunRecord
from kdelta.kernels import image as image_file
from kdelta.kernels.kernel import Kernel
from kdelta.metric import Grade, plural
from kdelta.printable import known, quoted
from kdelta.run import exact, store
from kdelta.run.guest_trial import Bench
from kdelta.run.runner import tried
from kdelta.sample import ArmRecord, Outcome, PhaseCounts, TrialRecord, TrialResult
from kdelta.study import spec
from kdelta.study.probes import SHARING
from kdelta.transplant import releases
from kdelta.verdict.comparison import LEAST_SEEDS, Verdict
from kdelta.verdict.windows import LEAST_CALM, representative

BASE_PAGES = "4K"
PAGE_SIZES = (BASE_PAGES, *workload.CELLS)

_USED = "/sys/module/kdelta_transplant/parameters/used"  # guest/transplant/transplant.c

Report = Callable[[str], None]  # gets each line of progress
Found = TypeVar("Found")


def page_sizes(words: str) -> tuple[str, ...]:
    """The sizes of "4K,64K,2M,2M-ptes".  Raises SpecError for an unknown size, and for none."""
    wanted = tuple(dict.fromkeys(word.strip() for word in words.split(",") if word.strip()))
    for word in wanted:
        if word not in PAGE_SIZES:
            raise SpecError(f"no pages of {quoted(word)}", action=known(word, PAGE_SIZES))
    if not wanted:
        raise SpecError("no size of pages is named", action=known("", PAGE_SIZES))
    return wanted


def in_sizes(scenarios: Sequence[str], wanted: Sequence[str]) -> tuple[list[str], list[str]]:
    """Each scenario in each wanted size that it has, and a sentence for each reason of a lack."""
    found: list[str] = []
    why: collections.Counter[str] = collections.Counter()
    for name in scenarios:
        found += [name] if BASE_PAGES in wanted else []
        scenario = workload.parse_reference(name)[1]
        given = set(scenario.folios)
        found += [f"{name}.{size}" for size in wanted if size in given]
        lacks = [size for size in wanted if size != BASE_PAGES and size not in given]
        if lacks and not given:
            why[workload.without_folios(scenario, lacks[0])] += 1
    alone = "counted in one size of page alone"
    said = (f"{plural(count, 'scenario')} {alone}: {reason}" for reason, count in why.items())
    return found, sorted(said)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """One scenario on one kernel.  more: of further seeds.  used: see Counter.one.

    told: what CPUs share, where lines are asked for, and not the length of the path.
    """

    scenario: str
    kernel: Kernel
    result: TrialResult
    more: tuple[TrialResult, ...] = ()
    used: bool | None = None
    told: TrialDetails | None = None

    @property
    def grade(self) -> Grade:
        """Of which its count is."""
        return Grade.EXACT_LINES if self.told else Grade.EXACT_PATH

    @property
    def functions(self) -> frozenset[str]:
        """The functions that its windows executed."""
        return frozenset(row.function for row in self.result.exact.functions)

    @property
    def faults(self) -> float:
        """Page faults per operation."""
        done = sum(phase.operations for phase in self.result.exact.phases)
        rows = self.result.exact.functions
        return sum(r.calls for r in rows if re.fullmatch(FAULTS, r.function)) / (done or 1)


class Counter:
    """Counts several guests at once.  What the store holds already is not counted again."""

    def __init__(
        self, study: spec.Study, bench: Bench, folder: Path, report: Report, jobs: int | None = None
    ) -> None:
        """study: for the machine and its time limits; folder: gets the artifacts of the trials."""
        self._bench, self._attempts = bench, study.plan.max_attempts
        self.grade = Grade.EXACT_LINES if SHARING in bench.probes else Grade.EXACT_PATH
        self._folder = folder
        self._report = report
        self._wanted = jobs
        self._jobs = jobs or leases.at_once(exact.guests_of(study))
        self._numbers = itertools.count()

    def each(
        self, count: Callable[[str], Found], scenarios: Sequence[str]
    ) -> Generator[Found, None, None]:
        """What `count` makes of each scenario, several at once, in the order in which they end."""
        with ThreadPoolExecutor(max_workers=self._jobs, thread_name_prefix="check") as pool:
            waiting = [pool.submit(count, name) for name in scenarios]
            try:
                for each in as_completed(waiting):
                    yield each.result()
            except BaseException:
                self._bench.cancelled.set()
                for each in waiting:
                    each.cancel()
                raise

    def one(self, kernel: Kernel, scenario: str, *, used: bool | None = None) -> Counted:
        """One trial, of lines with as many seeds as a decision needs.

        used: whether functions that were put into a release are executed; None: they are, as the
        guest was saved.  True and False leave everything else alike, to the instruction.
        """
        result, told = self._trial(kernel, scenario, 0, used=used)
        found = Counted(scenario=scenario, kernel=kernel, result=result, used=used, told=told)
        return self.with_seeds(found) if told else found

    def _trial(
        self, kernel: Kernel, scenario: str, seed: int, *, used: bool | None
    ) -> tuple[TrialResult, TrialDetails | None]:
        """A fault of this machine is a result that says so."""
        first = () if used is None else (f"write {_USED} {used:d}",)
        trials, trial, own = self._planned(kernel, scenario, seed, first)
        try:
            with trials.slot(trial):
                result = tried(trials, trial, own, self._attempts, lambda _failed: None)
        except InfraError as error:
            result = TrialResult(outcome=Outcome.INFRA_ERROR, reasons=(error.sentence()[:400],))
        if result.outcome is Outcome.OK and self.grade is Grade.EXACT_LINES:
            return result, TrialDetails(sharing=kept_details(self._folder, trial.index).sharing)
        return result, None

    def with_seeds(self, counted: Counted) -> Counted:
        """The same with as many seeds as a decision needs."""
        seeds, own = range(1, LEAST_SEEDS), (counted.kernel, counted.scenario)
        more = tuple(self._trial(*own, seed, used=counted.used)[0] for seed in seeds)
        return dataclasses.replace(counted, more=more)

    def stored(self, kernel: Kernel, scenario: str) -> Counted | None:
        """What was counted before, None for nothing; no guest is started."""
        trials, trial, own = self._planned(kernel, scenario, 0)
        key = trials.address(trial)
        result = store.found(key, kernel, own) if key else None
        return Counted(scenario=scenario, kernel=kernel, result=result) if result else None

    def executed(
        self, kernel: Kernel, scenarios: Sequence[str], *, seeds: int = 1, stored: bool = False
    ) -> frozenset[str]:
        """The functions that scenarios execute on a kernel.  stored: no guest is started.

        Raises SpecError where none of them is counted.
        """
        name, told = kernel.reference, "which decides what is compiled"
        how = f"reading what was counted of {name}" if stored else f"counting what {name} executes"
        self._report(f"{how}, {told}")

        def counted(name: str) -> list[Counted | None]:
            if stored:
                return [self.stored(kernel, name)]
            made = (self._trial(kernel, name, seed, used=None)[0] for seed in range(seeds))
            return [Counted(scenario=name, kernel=kernel, result=each) for each in made]

        found = [one for each in self.each(counted, scenarios) for one in each if one]
        if not (ran := functions_of({name for one in found for name in one.functions})):
            cause = f"no scenario is counted on {kernel.reference}, which says what to compile"
            raise SpecError(f"{cause}: name one that can be counted, and leave out --no-count")
        return frozenset(ran)

    def _planned(
        self, kernel: Kernel, scenario: str, seed: int, first: tuple[str, ...] = ()
    ) -> tuple[exact.ExactTrials, TrialRecord, Path]:
        trial = _trial(scenario, next(self._numbers), round_=seed)
        own = trial_folder(self._folder, trial.index)
        bench = dataclasses.replace(self._bench, first=first)
        return exact.ExactTrials(bench, [kernel], jobs=self._wanted), trial, own


def _trial(scenario: str, index: int, *, round_: int = 0, arm: int = 0) -> TrialRecord:
    place, _, name = scenario.rpartition(":")
    return TrialRecord(index=index, round=round_, arm=arm, workload=place, scenario=name)


def count_pair(
    old: str,
    new: str,
    scenarios: Sequence[str],
    report: Report,
    *,
    wanted_qemu: str = "",
    jobs: int | None = None,
    again: bool = False,
    trust: bool = False,
    progress: Progress | None = None,
    probes: Sequence[str] | None = None,
) -> list[tuple[Counted, Counted]]:
    """Each scenario on two kernels, given as references.  Raises SpecError, InfraError."""
    study = spec.from_arguments(scenarios, [old, new], probes=probes)
    kernels: list[Kernel] = []
    for kernel in releases.resolve_all([old, new], trust=trust, progress=progress):
        if isinstance(kernel, InfraError):
            raise kernel
        kernels.append(kernel)
    bench = exact.bench_of(study, wanted_qemu, threading.Event(), progress, again=again)
    with tempfile.TemporaryDirectory(prefix="kdelta-pair-") as folder:
        counter = Counter(study, bench, Path(folder), report, jobs)

        def both(scenario: str) -> list[Counted]:
            return [counter.one(kernel, scenario) for kernel in kernels]

        found = {pair[0].scenario: pair for pair in counter.each(both, scenarios)}
    return [(found[name][0], found[name][1]) for name in scenarios]


_OLD, _NEW = "before", "after"
_SHOWN = 4  # functions of a path that have a row of their own
_LEAST_SPREADS = 3  # a difference of fewer spreads counts as spread


def changed_code(old: Kernel, new: Kernel) -> tuple[frozenset[str], bool]:
    """Functions that the two do not have in common; True when only line numbers differ."""
    was, now = (image_file.transplanted(kernel.image) for kernel in (old, new))
    if was or now:
        before, after = (each.code if each else {} for each in (was, now))
        every = before.keys() | after.keys()
        changed = {name for name in every if before.get(name) != after.get(name)}
        changed |= {*(now.gone if now else ())} ^ {*(was.gone if was else ())}
        return frozenset(changed), not changed
    one = image.opened(old.image, old.name or "the base")
    other = image.opened(new.image, new.name or "the patched")
    names = difference(one, other).names
    return names, not names and only_lines(one, other)


def path_row(before: Counted, after: Counted, tolerance: float) -> PathRow:
    """The row of a scenario.  tolerance: percent by which a path may get longer."""
    load, scenario = workload.parse_reference(before.scenario)
    record, seeds = record_of(before, after), before.told is not None
    judge = partial(gate, record, alike=True, grade=before.grade)
    case = judge(step_percent=LEAST_PERCENT).cases[0]
    pairs = window_pairs(before.result.exact.phases, after.result.exact.phases)
    found, lost = case.comparison, _lost(before, after)
    effect, reason = _effect(found.verdict, case.old, case.new, found.spread, pairs, seeds=seeds)
    if lost or effect is Effect.OPEN:
        effect, reason = Effect.OPEN, case.skipped or lost or "; ".join(found.reasons)
    elif effect is not Effect.SPREAD and (why := _open_by_bytes(judge, tolerance)):
        effect, reason = Effect.OPEN, why
    elif effect is Effect.EQUAL and found.signless:
        reason = f"{found.handled:+,.0f} bytes that string instructions copy or clear"
    parts: tuple[FunctionPart, ...] = ()
    if effect in (Effect.MORE, Effect.LESS, Effect.SLIGHT):
        parts = objects(before, after) if seeds else _parts(record)
    return PathRow(
        scenario=f"{load.name}:{scenario.name}",
        what=f"{load.title}, {scenario.summary}" if not scenario.declared else scenario.summary,
        pages=pages_of(scenario),
        operation=case.operation,
        before=case.old,
        after=case.new,
        change=effect,
        reason=reason,
        functions=parts,
    )


def _lost(*arms: Counted) -> str:
    """Why a kernel has no count of the scenario, "" when all have one."""
    every = ((one.kernel.name, result) for one in arms for result in (one.result, *one.more))
    return "; ".join(f"{name}: {result.reason}" for name, result in every if result.data is None)


def _effect(
    verdict: Verdict,
    old: float | None,
    new: float | None,
    spread: float | None,
    pairs: WindowPairs | None = None,
    *,
    seeds: bool = False,
) -> tuple[Effect, str]:
    """seeds: the verdict is by them, and not by windows."""
    if verdict is Verdict.INVALID or old is None or new is None:
        return Effect.OPEN, ""
    scattered = seeds and verdict is Verdict.UNDECIDED
    if old == new and not scattered:
        return Effect.EQUAL, ""
    clear = pairs is not None and pairs.clear and (pairs.difference > 0) == (new > old)
    within = not seeds and spread and abs(new - old) < _LEAST_SPREADS * spread and not clear
    if scattered or within:
        whose = f"its {'seeds' if seeds else 'windows'} differ by {spread or 0:.4g}"
        return Effect.SPREAD, f"{new - old:+.4g}, and {whose}"
    if 100 * abs(new - old) < LEAST_PERCENT * old:
        return Effect.SLIGHT, f"{new - old:+.4g}"
    return (Effect.MORE if new > old else Effect.LESS), ""


def _open_by_bytes(judge: Callable[..., GateResult], tolerance: float) -> str:
    """Why copied bytes leave open whether a path got longer, or by how much; else ""."""
    # A path with few more instructions may have many more bytes, so both thresholds are asked.
    for percent in (LEAST_PERCENT, tolerance):
        found = judge(step_percent=percent).cases[0].comparison
        less = (found.difference or 0.0) <= 0 and (found.handled or 0.0) < 0
        if found.signless and not less:
            return found.signless
    return ""


def pages_of(scenario: workload.Scenario) -> str:
    """How a scenario declares its mappings: "base", "64K", "2M", "PTE-mapped 2M", "hugetlb"."""
    wants = {fact.name: int(fact.want) for fact in scenario.contract if fact.want.isdecimal()}
    if wants.get("huge_pages"):  # pages of hugetlb
        return "hugetlb"
    if heads := wants.get("compound_heads"):
        kib = 4 * (heads + wants.get("compound_tails", 0)) // heads
        cells = [cell for cell in workload.CELLS.values() if cell.kib == kib]
        by_ptes = wants.get("anon_huge_kb") == 0 and cells[0].huge if cells else False
        return next((cell.pages for cell in cells if cell.by_ptes == by_ptes), f"{kib}K")
    return workload.CELLS["2M"].pages if workload.Feature.THP in scenario.features else "base"


def between(before: Counted, after: Counted) -> tuple[GateCase, str]:
    """Two kernels that may be built differently, and why their counts give no answer, or ""."""
    judge = partial(gate, record_of(before, after), grade=before.grade)
    case = judge().cases[0]
    reason = case.skipped or case.why
    if case.old is None or case.new is None:
        return case, f"it was not counted: {reason}"
    if signless := judge(step_percent=LEAST_PERCENT).cases[0].comparison.signless:
        return case, signless
    if case.comparison.verdict in (Verdict.UNDECIDED, Verdict.INVALID):
        return case, reason or "the count scatters more than it differs"
    return case, ""


def record_of(before: Counted, after: Counted) -> RunRecord:
    """The two as a run."""
    arch = before.kernel.arch
    study = spec.from_arguments([before.scenario], [_OLD, _NEW], name="check", arch=arch)
    arms, trials = list[ArmRecord](), list[TrialRecord]()
    for at, (label, side) in enumerate(((_OLD, before), (_NEW, after))):
        arms.append(ArmRecord(index=at, label=label, kernel=side.kernel.identity()))
        for round_, result in enumerate((side.result, *side.more)):
            own = _trial(before.scenario, len(trials), round_=round_, arm=at)
            trials.append(replace(own, result=result))
    return RunRecord(
        run_id="check",
        name=study.name,
        title=study.title,
        seed=0,
        rounds=1 + len(before.more),
        created="",
        kdelta_version="",
        study=study,
        arms=tuple(arms),
        trials=tuple(trials),
    )


# ---- windows in pairs -------------------------------------------------------------------------
#
# Kernels that were built alike go through the same windows: what refills a list in the third window
# of one does so in the third window of the other.  So the windows of a scenario may lie far apart
# while each pair of them differs by one number, to the instruction.


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WindowPairs:
    """What each pair of windows differs by, all phases together, in instructions.

    deviation: how far the pairs lie from that; one odd pair in a few is left out.
    """

    difference: int
    deviation: int

    @property
    def clear(self) -> bool:
        """True when the pairs agree on a difference."""
        return bool(self.difference) and abs(self.difference) >= _LEAST_SPREADS * self.deviation


def window_pairs(old: Sequence[PhaseCounts], new: Sequence[PhaseCounts]) -> WindowPairs | None:
    """The difference by pairs; None where windows have none, or too few are undisturbed."""
    if [_shape(one) for one in old] != [_shape(one) for one in new]:
        return None
    difference = deviation = 0
    for mine, theirs in zip(old, new, strict=True):
        disturbed = [a or b for a, b in zip(_switched(mine), _switched(theirs), strict=True)]
        totals = zip(mine.user, mine.kernel, theirs.user, theirs.kernel, disturbed, strict=True)
        each = [c + d - a - b for a, b, c, d, bad in totals if not bad]
        if len(each) < LEAST_CALM or mine.layouts > 1:
            return None
        found = representative(each)
        difference += found.value
        deviation += found.deviation
    return WindowPairs(difference=difference, deviation=deviation)


def _shape(counts: PhaseCounts) -> tuple[str, int, str, int, int]:
    return counts.phase, counts.operations, counts.operation, counts.layouts, len(counts.user)


def _switched(counts: PhaseCounts) -> Sequence[bool]:
    return counts.switched or (False,) * len(counts.user)


def explained(record: RunRecord) -> Explanation | None:
    """The functions of the difference; None where nothing may be claimed of them."""
    try:
        found = explain(record, _OLD, _NEW, step_percent=0.0)
    except SpecError:
        return None
    return None if found.refused or found.delta is None else found


def objects(before: Counted, after: Counted) -> tuple[FunctionPart, ...]:
    """Objects of which another number of lines is fetched, in the first seed."""
    if not before.told or not after.told:
        return ()
    old, new = ([(told, at) for at in told.sharing or ()] for told in (before.told, after.told))
    (counts,) = before.result.exact.phases
    moved = objects_moved(shared(old, new) or (), counts.operations * counts.layouts)
    return tuple(FunctionPart(function=said, delta=lines) for said, lines in moved)


def part_of(row: FunctionDelta, found: Explanation) -> FunctionPart:
    """A function's part of a difference."""
    name = f"{row.function} (before: {row.was})" if row.was else row.function
    return FunctionPart(function=name, delta=row.delta / found.operations)


def _parts(record: RunRecord) -> tuple[FunctionPart, ...]:
    """What the difference is made of, per operation: the largest parts, and the rest as one."""
    found = explained(record)
    if found is None:
        return ()
    rows = [part_of(row, found) for row in found.functions if row.delta]
    shown, rest = rows[:_SHOWN], rows[_SHOWN:]
    if rest:
        left = sum(row.delta for row in rest)
        shown.append(FunctionPart(function=f"{len(rest)} others", delta=left))
    return tuple(shown)
