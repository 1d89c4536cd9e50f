# SPDX-License-Identifier: GPL-2.0-or-later
"""From a series to its page: build each patch, find what changed, count only what executes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from msgspec.structs import replace

from kdelta.check.comparing import path_row
from kdelta.check.counter import Counted, Counter, Told
from kdelta.check.own import changed_code
from kdelta.check.page import TOLERANCE, Effect, PatchRow, PathRow
from kdelta.disassembly import image
from kdelta.disassembly.identity import functions_of
from kdelta.errors import SpecError
from kdelta.kernels.kernel import Kernel
from kdelta.sample import Outcome
from kdelta.source.build import BUILT_FOR
from kdelta.source.series import PatchSeries, SeriesStep
from kdelta.source.tree import SourceTree

Builder = Callable[[SourceTree], Kernel]
_LONGEST = 200
_AGAIN = "the patch does not apply: "


@dataclass(slots=True)
class Traced:
    """One scenario along the series: what was counted, by the number of the patch; 0 is the base.

    Between two of them its code is the same, and so is its count.
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
class Walk:
    """What was found along a series.

    unmeasured: scenarios without a count of the base; also: all names of a changed function, of
    which counts have one.  tolerance: percent by which a path may get longer.
    """

    base: Kernel
    last: Kernel
    tolerance: float = TOLERANCE
    patches: list[PatchRow] = field(default_factory=list)
    traced: list[Traced] = field(default_factory=list)
    unmeasured: dict[str, str] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    also: dict[str, frozenset[str]] = field(default_factory=dict)
    data_only: bool = False

    @property
    def executing(self) -> list[Traced]:
        """Those that execute changed code."""
        return [each for each in self.traced if len(each.counted) > 1]

    @property
    def identical(self) -> list[Traced]:
        """Those of which all executed code is the same."""
        return [each for each in self.traced if len(each.counted) == 1]

    @property
    def executed(self) -> frozenset[str]:
        """All functions that a scenario executed, on the base or later."""
        every = [one.functions for each in self.traced for _, one in each.counted]
        executed = functions_of({name for names in every for name in names})
        return frozenset(executed.union(*(self.also.get(name, ()) for name in executed)))


def checked(
    series: PatchSeries,
    scenarios: Sequence[str],
    build: Builder,
    counter: Counter,
    told: Told,
    tolerance: float = TOLERANCE,
) -> Walk:
    """Build and count a series.

    Raises SourceError for a base that does not build, SpecError for one that nothing can be counted
    on.
    """
    base = build(series.base)
    found = Walk(base=base, last=base, tolerance=tolerance)
    _count_base(found, scenarios, counter, told)
    for number, step in enumerate(series.steps, start=1):
        found.patches.append(_patch(found, number, step, build, counter, told))
    return found


def _count_base(found: Walk, scenarios: Sequence[str], counter: Counter, told: Told) -> None:
    base = found.base
    told(f"counting {len(scenarios)} scenarios on the base{_on(base)}, once")
    for each in _counted(counter, base, scenarios):
        if each.result.outcome is Outcome.OK:
            found.traced.append(Traced(scenario=each.scenario, counted=[(0, each)]))
        else:
            found.unmeasured[each.scenario] = each.result.reason or str(each.result.outcome)
    if not found.traced:
        why = next(iter(found.unmeasured.values()), "there is none")
        raise SpecError(
            f"no scenario can be counted on the base{_on(base)}: {why}", place=base.name
        )


def _on(kernel: Kernel) -> str:
    return "" if kernel.arch == BUILT_FOR else f" of {kernel.arch}"


def _patch(
    found: Walk, number: int, step: SeriesStep, build: Builder, counter: Counter, told: Told
) -> PatchRow:
    """One patch, held against the last that could be."""
    row = PatchRow(number=number, title=step.title)
    if step.tree is None:
        return _wrong(row, f"does not apply: {step.wrong.removeprefix(_AGAIN)}")
    try:
        kernel = build(step.tree)
        if kernel.image_sha256 == found.last.image_sha256:
            return PatchRow(number=number, title=step.title, same_image=True)
        names, lines = changed_code(found.last, kernel)
        found.also |= _also(kernel, names)
    except SpecError as error:
        return _wrong(row, error.cause)
    if lines:
        return PatchRow(number=number, title=step.title, same_image=True)
    affected = [
        each for each in found.traced if not names or functions_of(each.last.functions) & names
    ]
    many = f"functions changed: {len(names)}, scenarios that execute them: {len(affected)}"
    told(f"patch {number}{_on(kernel)}: {many}")
    # Also a kernel whose changes no scenario executes has to boot: one shows it.
    shown = affected or found.traced[:1]
    again = _counted(counter, kernel, [each.scenario for each in shown])
    if again[0].result.outcome is Outcome.BOOT_ERROR:
        return _wrong(row, f"does not boot: {again[0].result.reason}")
    found.data_only |= not names
    found.changed |= names
    found.last = kernel
    for each, new in zip(affected, again, strict=bool(affected)):
        each.counted.append((number, new))
    rows = [path_row(each.counted[-2][1], each.last, found.tolerance) for each in affected]
    return _told_by_paths(row, names, rows)


def _wrong(row: PatchRow, why: str) -> PatchRow:
    return PatchRow(number=row.number, title=row.title, wrong=why[:_LONGEST])


def _told_by_paths(row: PatchRow, names: frozenset[str], paths: Sequence[PathRow]) -> PatchRow:
    moved = [path for path in paths if path.change in (Effect.MORE, Effect.LESS)]
    worst = max(moved, key=lambda path: path.percent, default=None)
    return PatchRow(
        number=row.number,
        title=row.title,
        functions=tuple(sorted(names)),
        longer=sum(path.change is Effect.MORE for path in moved),
        shorter=sum(path.change is Effect.LESS for path in moved),
        worst=worst.scenario if worst else "",
        worst_percent=worst.percent if worst else 0.0,
    )


def _also(kernel: Kernel, names: frozenset[str]) -> dict[str, frozenset[str]]:
    """Each of these functions with all names that the kernel has for it: a system call has two."""
    extents = image.opened(kernel.image, kernel.name or "the patched").extents()
    by_place: dict[object, set[str]] = {}
    for name in names & extents.keys():
        by_place.setdefault(extents[name], set()).add(name)
    return {name: frozenset(own) for own in by_place.values() for name in own if len(own) > 1}


def _counted(counter: Counter, kernel: Kernel, scenarios: Sequence[str]) -> list[Counted]:
    """All of them, unless the first shows that the kernel does not boot."""
    first = counter.count(kernel, scenarios[:1])
    if first and first[0].result.outcome is Outcome.BOOT_ERROR:
        return first
    return first + counter.count(kernel, scenarios[1:])


def paths(found: Walk) -> tuple[PathRow, ...]:
    """What became of each scenario that executes changed code, and by which patch most."""
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
