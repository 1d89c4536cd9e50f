# SPDX-License-Identifier: GPL-2.0-or-later
"""What a check counts: scenarios in their page sizes, and trials outside a run folder."""

from __future__ import annotations

import collections
import itertools
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kdelta import folios, workload
from kdelta.archive.apt import Progress
from kdelta.errors import InfraError, SpecError
from kdelta.host import leases
from kdelta.kernels import reference
from kdelta.kernels.kernel import Kernel
from kdelta.metric import plural
from kdelta.printable import known, quoted
from kdelta.run import exact
from kdelta.run.guest_trial import Bench
from kdelta.sample import Outcome, TrialResult
from kdelta.study import spec
from kdelta.study.spec import Study

BASE_PAGES = "4K"
PAGE_SIZES = (BASE_PAGES, *folios.CELLS)

Report = Callable[[str], None]  # gets each line of progress


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
    lack = "no cells of folios for"
    said = (f"{lack} {plural(count, 'scenario')}: {reason}" for reason, count in why.items())
    return found, sorted(said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """One scenario on one kernel."""

    scenario: str
    kernel: Kernel
    result: TrialResult

    @property
    def functions(self) -> frozenset[str]:
        """The functions that its windows executed."""
        return frozenset(row.function for row in self.result.exact.functions)


class Counter:
    """Counts several guests at once.  What the store holds already is not counted again."""

    def __init__(
        self, study: Study, bench: Bench, folder: Path, report: Report, jobs: int | None = None
    ) -> None:
        """study: for the machine and its time limits; folder: gets the artifacts of the trials."""
        self._trials = exact.SingleTrials(study, bench, jobs)
        self._folder = folder
        self._report = report
        self._jobs = jobs or leases.at_once(exact.guests_of(study))
        self._numbers = itertools.count()

    def count(self, kernel: Kernel, scenarios: Sequence[str]) -> list[Counted]:
        """One trial of each scenario.  A fault of this machine is a result that says so."""
        with ThreadPoolExecutor(max_workers=self._jobs, thread_name_prefix="check") as pool:
            waiting = [pool.submit(self._one, kernel, name) for name in scenarios]
            try:
                return [each.result() for each in waiting]
            except BaseException:
                self._trials.cancelled.set()
                for each in waiting:
                    each.cancel()
                raise

    def _one(self, kernel: Kernel, scenario: str) -> Counted:
        try:
            result = self._trials.of(kernel, next(self._numbers), scenario, self._folder)
        except InfraError as error:
            result = TrialResult(outcome=Outcome.INFRA_ERROR, reasons=(error.sentence()[:400],))
        why = f" ({result.reason})" if result.outcome is not Outcome.OK else ""
        self._report(f"{kernel.name} {scenario}: {result.outcome}{why}")
        return Counted(scenario=scenario, kernel=kernel, result=result)


def count_pair(
    old: str,
    new: str,
    scenarios: Sequence[str],
    report: Report,
    *,
    wanted_qemu: str = "",
    jobs: int | None = None,
    again: bool = False,
    progress: Progress | None = None,
) -> list[tuple[Counted, Counted]]:
    """Each scenario on two kernels, given as references.  Raises SpecError, InfraError."""
    study = spec.from_arguments(scenarios, [old, new])
    kernels = reference.resolve_all([old, new], progress=progress)
    bench = exact.bench_of(study, wanted_qemu, threading.Event(), progress, again=again)
    with tempfile.TemporaryDirectory(prefix="kdelta-pair-") as folder:
        counter = Counter(study, bench, Path(folder), report, jobs)
        sides = []
        for kernel in kernels:
            if isinstance(kernel, InfraError):
                raise kernel
            sides.append(counter.count(kernel, scenarios))
    return list(zip(*sides, strict=True))
