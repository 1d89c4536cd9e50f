# SPDX-License-Identifier: GPL-2.0-or-later
"""From a series to its page: build each patch, find what changed, count only what executes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from msgspec.structs import replace

from kdelta.check.compare import changed_code, path_row
from kdelta.check.counting import Counted, Counter, Report
from kdelta.check.page import TOLERANCE, Effect, PatchRow, PathRow
from kdelta.disassembly import image
from kdelta.disassembly.identity import functions_of
from kdelta.errors import SpecError
from kdelta.kernels.kernel import Kernel
from kdelta.sample import Outcome
from kdelta.source.build import BUILT_FOR
from kdelta.source.patches import PatchSeries, SeriesStep
from kdelta.source.tree import SourceTree

Builder = Callable[[SourceTree], Kernel]
_LONGEST = 200
_APPLY_ERROR = "the patch does not apply: "


@dataclass(slots=True)
class ScenarioCounts:
    """The counts of one scenario along the series, each with the number of its patch; 0: the base.

    Between two of them the code that it executes is the same, and so is its count.
    """

    scenario: str
    counted: list[tuple[int, Counted]]

    @property
    def first(self) -> Counted:
        """On the base."""
        return self.counted[0][1]

    @property
    def last(self) -> Counted:
        """With the whole series."""
        return self.counted[-1][1]


@dataclass(slots=True)
class CheckedSeries:
    """What was found along a series.

    counts: of each scenario that could be counted on the base; unmeasured: the others, with the
    reason.  changed: names of functions; aliases: every name of those that have several, as counts
    have one of them.  data_only: a patch changed the image and no function.  tolerance: percent by
    which a path may get longer.
    """

    base: Kernel
    last: Kernel
    tolerance: float = TOLERANCE
    patches: list[PatchRow] = field(default_factory=list)
    counts: list[ScenarioCounts] = field(default_factory=list)
    unmeasured: dict[str, str] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    aliases: dict[str, frozenset[str]] = field(default_factory=dict)
    data_only: bool = False

    @property
    def executing(self) -> list[ScenarioCounts]:
        """Those that execute changed code."""
        return [each for each in self.counts if len(each.counted) > 1]

    @property
    def identical(self) -> list[ScenarioCounts]:
        """Those that execute no changed code."""
        return [each for each in self.counts if len(each.counted) == 1]

    @property
    def executed(self) -> frozenset[str]:
        """All functions that a scenario executed, on the base or later."""
        every = [one.functions for each in self.counts for _, one in each.counted]
        executed = functions_of({name for names in every for name in names})
        return frozenset(executed.union(*(self.aliases.get(name, ()) for name in executed)))


def checked(
    series: PatchSeries,
    scenarios: Sequence[str],
    build: Builder,
    counter: Counter,
    report: Report,
    tolerance: float = TOLERANCE,
) -> CheckedSeries:
    """Build and count a series.  Raises SourceError, SpecError where its base cannot be counted."""
    base = build(series.base)
    found = CheckedSeries(base=base, last=base, tolerance=tolerance)
    _count_base(found, scenarios, counter, report)
    for number, step in enumerate(series.steps, start=1):
        found.patches.append(_patch(found, number, step, build, counter, report))
    return found


def _count_base(
    found: CheckedSeries, scenarios: Sequence[str], counter: Counter, report: Report
) -> None:
    base = found.base
    report(f"counting {len(scenarios)} scenarios on the base{_on(base)}, once")
    for each in _counted(counter, base, scenarios):
        if each.result.outcome is Outcome.OK:
            found.counts.append(ScenarioCounts(scenario=each.scenario, counted=[(0, each)]))
        else:
            found.unmeasured[each.scenario] = each.result.reason or str(each.result.outcome)
    if not found.counts:
        why = next(iter(found.unmeasured.values()), "there is none")
        raise SpecError(
            f"no scenario can be counted on the base{_on(base)}: {why}", place=base.name
        )


def _on(kernel: Kernel) -> str:
    return "" if kernel.arch == BUILT_FOR else f" of {kernel.arch}"


def _patch(
    found: CheckedSeries,
    number: int,
    step: SeriesStep,
    build: Builder,
    counter: Counter,
    report: Report,
) -> PatchRow:
    row = PatchRow(number=number, title=step.title)
    if step.tree is None:
        return _wrong(row, f"does not apply: {step.wrong.removeprefix(_APPLY_ERROR)}")
    try:
        kernel = build(step.tree)
        if kernel.image_sha256 == found.last.image_sha256:
            return replace(row, same_image=True)
        names, lines = changed_code(found.last, kernel)
        found.aliases |= _aliases(kernel, names)
    except SpecError as error:
        return _wrong(row, error.cause)
    if lines:
        return replace(row, same_image=True)
    affected = [
        each for each in found.counts if not names or functions_of(each.last.functions) & names
    ]
    many = f"functions changed: {len(names)}, scenarios that execute them: {len(affected)}"
    report(f"patch {number}{_on(kernel)}: {many}")
    # A kernel whose changes no scenario executes has to boot, too: one scenario shows it.
    shown = affected or found.counts[:1]
    again = _counted(counter, kernel, [each.scenario for each in shown])
    if again[0].result.outcome is Outcome.BOOT_ERROR:
        return _wrong(row, f"does not boot: {again[0].result.reason}")
    found.data_only |= not names
    found.changed |= names
    found.last = kernel
    for each, new in zip(affected, again, strict=bool(affected)):
        each.counted.append((number, new))
    rows = [path_row(each.counted[-2][1], each.last, found.tolerance) for each in affected]
    return _summed(row, names, rows)


def _wrong(row: PatchRow, why: str) -> PatchRow:
    return replace(row, wrong=why[:_LONGEST])


def _summed(row: PatchRow, names: frozenset[str], paths: Sequence[PathRow]) -> PatchRow:
    moved = [path for path in paths if path.change in (Effect.MORE, Effect.LESS)]
    worst = max(moved, key=lambda path: path.percent, default=None)
    return replace(
        row,
        functions=tuple(sorted(names)),
        longer=sum(path.change is Effect.MORE for path in moved),
        shorter=sum(path.change is Effect.LESS for path in moved),
        worst=worst.scenario if worst else "",
        worst_percent=worst.percent if worst else 0.0,
    )


def _aliases(kernel: Kernel, names: frozenset[str]) -> dict[str, frozenset[str]]:
    """Each of these functions with all its names in the kernel: a system call has two."""
    extents = image.opened(kernel.image, kernel.name or "the patched").extents()
    by_place: dict[object, set[str]] = {}
    for name in names & extents.keys():
        by_place.setdefault(extents[name], set()).add(name)
    return {name: frozenset(own) for own in by_place.values() for name in own if len(own) > 1}


def _counted(counter: Counter, kernel: Kernel, scenarios: Sequence[str]) -> list[Counted]:
    """The counts of all, or of the first alone where that shows that the kernel does not boot."""
    first = counter.count(kernel, scenarios[:1])
    if first and first[0].result.outcome is Outcome.BOOT_ERROR:
        return first
    return first + counter.count(kernel, scenarios[1:])


def path_rows(found: CheckedSeries) -> tuple[PathRow, ...]:
    """The row of each scenario that executes changed code, with the patch of the largest part."""
    rows = []
    for each in found.executing:
        row = path_row(each.first, each.last, found.tolerance)
        steps = [
            (abs(part.percent), number)
            for (_, old), (number, new) in pairwise(each.counted)
            if (part := path_row(old, new, found.tolerance)).change in (Effect.MORE, Effect.LESS)
        ]
        patch = max(steps)[1] if steps else 0
        rows.append(replace(row, arch=found.base.arch, patch=patch))
    return tuple(rows)
