# SPDX-License-Identifier: GPL-2.0-or-later
"""From a checked series to its page: the decision, and what is not known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from kdelta import workload
from kdelta.check.claims import DeclaredClaim, judged, scenario_name, sentences
from kdelta.check.page import (
    HOME,
    LEAST_PERCENT,
    CheckPage,
    Effect,
    Elsewhere,
    JudgedClaim,
    PathRow,
    Ruling,
    Since,
)
from kdelta.check.series import CheckedSeries, path_rows
from kdelta.source.patches import PatchSeries

_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How the check was made, in words for the page."""

    config: str
    compiler: str
    qemu: str
    kdelta: str
    command: str
    null: str
    confined: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedArch:
    """The series on one architecture."""

    arch: str
    found: CheckedSeries
    compiler: str
    null: str


def page(
    series: PatchSeries,
    found: CheckedSeries,
    setting: Setting,
    before: CheckPage | None,
    against: str,
    sides: Sequence[CheckedArch] = (),
    declared: Sequence[DeclaredClaim] = (),
) -> CheckPage:
    """The page of a checked series.

    found: on amd64; sides: on the other architectures.  before: the page of the version before,
    from the file `against`.  declared: the claims to judge.
    """
    own = CheckedArch(arch=HOME, found=found, compiler=setting.compiler, null=setting.null)
    home, *elsewhere = map(_side, (own, *sides))
    everywhere = (*home.paths, *(row for each in elsewhere for row in each.paths))
    every = [(HOME, found), *((side.arch, side.found) for side in sides)]
    decision, why = _decided([one for _, one in every], everywhere, found.tolerance)
    made = CheckPage(
        title=series.title,
        base=series.base.title,
        config=setting.config,
        compiler=home.compiler,
        qemu=setting.qemu,
        kdelta=setting.kdelta,
        decision=decision,
        why=why,
        tolerance=found.tolerance,
        patches=home.patches,
        paths=home.paths,
        identical=home.identical,
        unseen=home.unseen,
        null=home.null,
        state=home.state,
        limits=(*filter(None, [series.order]), *_limits(found, setting, sides)),
        claims=tuple(
            claim for arch, one in every for claim in _judged(declared, arch, one, everywhere)
        ),
        sentences=sentences(series),
        since=(),
        against=against,
        command=setting.command,
        program=_program(found, home.paths),
        elsewhere=tuple(elsewhere),
    )
    return compared_with(made, before) if before else made


def _side(side: CheckedArch) -> Elsewhere:
    found = side.found
    # A trial whose facts do not hold has no count.
    results = [one.result for each in found.counts for _, one in each.counted]
    facts = sum(fact.binding for result in results for fact in result.state)
    held = sum(fact.holds and fact.binding for result in results for fact in result.state)
    state = f"{held} of {facts} facts of page state are as wanted, in {len(results)} trials"
    return Elsewhere(
        arch=side.arch,
        compiler=side.compiler,
        null=side.null,
        patches=tuple(found.patches),
        paths=path_rows(found),
        identical=tuple(scenario_name(each.scenario) for each in found.identical),
        unseen=tuple(sorted(found.changed - found.executed)),
        state=(state,),
        limits=tuple(_unmeasured(found)),
    )


def _judged(
    declared: Sequence[DeclaredClaim], arch: str, found: CheckedSeries, paths: Sequence[PathRow]
) -> tuple[JudgedClaim, ...]:
    missing = [row.number for row in found.patches if row.wrong]
    names = [scenario_name(each.scenario) for each in found.identical]
    return judged(declared, arch, paths, names, missing, found.unmeasured)


def _decided(
    every: Sequence[CheckedSeries], paths: Sequence[PathRow], tolerance: float
) -> tuple[Ruling, str]:
    """every: the series on all architectures, amd64 first; paths: of all of them."""
    moved = [row for row in paths if row.change in (Effect.MORE, Effect.LESS)]
    worst = max(moved, key=lambda row: row.percent, default=None)
    best = min(moved, key=lambda row: row.percent, default=None)
    wrong = sorted({row.number for found in every for row in found.patches if row.wrong})
    left = [row for row in paths if row.change is Effect.OPEN]
    if worst and worst.percent > tolerance:
        signs = f"; best {_cell(best)}: signs differ" if best and best.percent < 0 else ""
        return Ruling.REJECT, f"{_cell(worst)}{signs}"
    if wrong:
        numbers = ", ".join(map(str, wrong))
        return Ruling.UNDECIDED, f"there is no kernel of patch {numbers}, see below"
    if left:
        return Ruling.UNDECIDED, f"{len(left)} paths could not be compared, see below"
    if any(found.changed for found in every) and not paths:
        return Ruling.UNDECIDED, "no scenario executes what changed"
    if not moved:
        same = all(row.same_image for found in every for row in found.patches)
        slight = any(row.change is Effect.SLIGHT for row in paths)
        least = f" by {LEAST_PERCENT:g} % or more" if slight else ""
        said = "nothing in the image changed but line numbers" if same else "no path changed"
        return Ruling.ACCEPT, said + least
    if worst and worst.percent > 0:
        signs = f"; best {_cell(best)}" if best and best.percent < 0 else ""
        said = f"worst {_cell(worst)}, within the tolerance of {tolerance:g} %{signs}"
        return Ruling.ACCEPT, said
    return Ruling.ACCEPT, f"no path got longer; best {_cell(best)}" if best else ""


def _cell(row: PathRow | None) -> str:
    where = f", {row.arch}" if row and row.arch != HOME else ""
    return f"{row.scenario} ({row.pages} pages{where}) {row.percent:+.2f} %" if row else ""


def _limits(
    found: CheckedSeries, setting: Setting, sides: Sequence[CheckedArch]
) -> tuple[str, ...]:
    proof = (
        f"{len(found.identical)} of {len(found.counts)} scenarios execute no changed function:"
        " identical by proof, for code. What a patch changes in data or in what is patched at boot"
        " is not seen there."
    )
    said = [proof]
    if found.data_only:
        said.append("A patch changed the image and no function: every scenario was counted again.")
    said += _unmeasured(found)
    had = ", ".join(["x86-64", *(side.arch for side in sides)])
    said.append(f"Not measured: time, caches, contention of CPUs, other architectures than {had}.")
    how = "confined (bubblewrap: no network, no home)" if setting.confined else "as this user"
    said.append(f"The sources were built {how}.")
    return tuple(said)


def _unmeasured(found: CheckedSeries) -> list[str]:
    names = ", ".join(scenario_name(each) for each in list(found.unmeasured)[:_NAMED])
    count = len(found.unmeasured) - _NAMED
    more = f" and {count} more" if count > 0 else ""
    return [f"Not counted on the base: {names}{more}."] if names else []


def compared_with(made: CheckPage, before: CheckPage) -> CheckPage:
    """The page with the answers that differ from those of an earlier page, where both have one."""
    was, now = before.answers, made.answers
    since = tuple(
        Since(scenario=name, was=was[arch, name], now=now[arch, name], arch=arch)
        for arch, name in sorted(was.keys() & now.keys())
        if abs(was[arch, name] - now[arch, name]) >= LEAST_PERCENT
    )
    return replace(made, since=since, apart=len(was.keys() ^ now.keys()))


def _program(found: CheckedSeries, paths: Sequence[PathRow]) -> str:
    if not paths:
        return ""
    most = max(paths, key=lambda row: abs(row.percent)).scenario
    name = next(each.scenario for each in found.executing if scenario_name(each.scenario) == most)
    place, _, scenario = name.rpartition(":")
    if workload.is_file(place):
        return f"{place} is its C file"
    return f"kdelta workload export {place} -o {place}.c    # then: ./{place} {scenario}"
