# SPDX-License-Identifier: GPL-2.0-or-later
"""What was found along a series as its page: decision, claims, what is not known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from kdelta import workload
from kdelta.check import answering
from kdelta.check.answering import Walk
from kdelta.check.page import (
    HOME,
    LEAST_PERCENT,
    CheckPage,
    Effect,
    Elsewhere,
    PathRow,
    Ruling,
    Since,
)
from kdelta.check.promises import promises
from kdelta.source.series import PatchSeries

_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How it was made: words for the page."""

    config: str
    compiler: str
    qemu: str
    kdelta: str
    command: str
    null: str
    confined: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossWalk:
    """The series on another architecture."""

    arch: str
    found: Walk
    compiler: str
    null: str


def page(
    series: PatchSeries,
    found: Walk,
    setting: Setting,
    before: CheckPage | None,
    against: str,
    sides: Sequence[CrossWalk] = (),
) -> CheckPage:
    """The page of a checked series.  before: that of the version before, called `against`."""
    paths = answering.paths(found)
    unseen = tuple(sorted(found.changed - found.executed))
    elsewhere = tuple(map(_elsewhere, sides))
    everywhere = (*paths, *(row for each in elsewhere for row in each.paths))
    walks = [found, *(side.found for side in sides)]
    decision, why = _decided(walks, everywhere, found.tolerance)
    said = "\n\n".join([*series.cover.split("\n", 1), *(step.text for step in series.steps)])
    made = CheckPage(
        title=series.title,
        base=series.base.title,
        config=setting.config,
        compiler=setting.compiler,
        qemu=setting.qemu,
        kdelta=setting.kdelta,
        decision=decision,
        why=why,
        tolerance=found.tolerance,
        patches=tuple(found.patches),
        paths=paths,
        identical=tuple(_name(each.scenario) for each in found.identical),
        unseen=unseen,
        null=setting.null,
        state=_state(found),
        limits=(*filter(None, [series.order]), *_limits(found, setting, sides)),
        promises=promises(said, everywhere, [_name(each.scenario) for each in found.identical]),
        since=(),
        against=against,
        command=setting.command,
        program=_program(found, paths),
        elsewhere=elsewhere,
    )
    return held_against(made, before) if before else made


def _elsewhere(side: CrossWalk) -> Elsewhere:
    found = side.found
    return Elsewhere(
        arch=side.arch,
        compiler=side.compiler,
        null=side.null,
        patches=tuple(found.patches),
        paths=answering.paths(found),
        identical=tuple(_name(each.scenario) for each in found.identical),
        unseen=tuple(sorted(found.changed - found.executed)),
        state=_state(found),
        limits=tuple(_unmeasured(found)),
    )


def _decided(
    walks: Sequence[Walk], paths: Sequence[PathRow], tolerance: float
) -> tuple[Ruling, str]:
    """walks: of all architectures, amd64 first; paths: of all of them."""
    moved = [row for row in paths if row.change in (Effect.MORE, Effect.LESS)]
    worst = max(moved, key=lambda row: row.percent, default=None)
    best = min(moved, key=lambda row: row.percent, default=None)
    wrong = sorted({row.number for found in walks for row in found.patches if row.wrong})
    left = [row for row in paths if row.change is Effect.OPEN]
    if worst and worst.percent > tolerance:
        signs = f"; best {_cell(best)}: signs differ" if best and best.percent < 0 else ""
        return Ruling.REJECT, f"{_cell(worst)}{signs}"
    if wrong:
        numbers = ", ".join(map(str, wrong))
        return Ruling.UNDECIDED, f"there is no kernel of patch {numbers}, see below"
    if left:
        return Ruling.UNDECIDED, f"{len(left)} paths could not be compared, see below"
    if any(found.changed for found in walks) and not paths:
        return Ruling.UNDECIDED, "no scenario executes what changed"
    if not moved:
        same = all(row.same_image for found in walks for row in found.patches)
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


def _state(found: Walk) -> tuple[str, ...]:
    """Each fact of each trial was looked at: what did not hold is no count, and stands as such."""
    results = [one.result for each in found.traced for _, one in each.counted]
    facts = sum(fact.binding for result in results for fact in result.state)
    held = sum(fact.holds and fact.binding for result in results for fact in result.state)
    said = f"{held} of {facts} facts of page state are as wanted, in {len(results)} trials"
    return (said,)


def _limits(found: Walk, setting: Setting, sides: Sequence[CrossWalk]) -> tuple[str, ...]:
    proof = (
        f"{len(found.identical)} of {len(found.traced)} scenarios execute no changed function:"
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


def _unmeasured(found: Walk) -> list[str]:
    if not found.unmeasured:
        return []
    names = ", ".join(_name(each) for each in list(found.unmeasured)[:_NAMED])
    count = len(found.unmeasured) - _NAMED
    more = f" and {count} more" if count > 0 else ""
    return [f"Not counted on the base: {names}{more}."]


def held_against(made: CheckPage, before: CheckPage) -> CheckPage:
    """The page with what became of the answers of the one before; what one of them did not ask
    is no answer.
    """
    was, now = before.answers, made.answers
    since = tuple(
        Since(scenario=name, was=was[arch, name], now=now[arch, name], arch=arch)
        for arch, name in sorted(was.keys() & now.keys())
        if abs(was[arch, name] - now[arch, name]) >= LEAST_PERCENT
    )
    return replace(made, since=since, apart=len(was.keys() ^ now.keys()))


def _program(found: Walk, paths: Sequence[PathRow]) -> str:
    """How to get the C file of the path that changed most."""
    if not paths:
        return ""
    most = max(paths, key=lambda row: abs(row.percent)).scenario
    name = next(each.scenario for each in found.executing if _name(each.scenario) == most)
    place, _, scenario = name.rpartition(":")
    if workload.is_file(place):
        return f"{place} is its C file"
    return f"kdelta workload export {place} -o {place}.c    # then: ./{place} {scenario}"


def _name(scenario: str) -> str:
    return scenario.rpartition("/")[2].replace(".c:", ":")
