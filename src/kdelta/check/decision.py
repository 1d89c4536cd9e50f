# SPDX-License-Identifier: GPL-2.0-or-later
"""From a checked series to its page: the decision, the declared claims, and what is not known.

A claim is `SCENARIO less|more|same [PERCENT]`: a trailer `Kdelta-claim:` of a mail, or the value of
`--claim`.  It is about the whole series.  Sentences with figures are quoted and never judged.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from msgspec.structs import replace

from kdelta import workload
from kdelta.check.page import (
    HOME,
    LEAST_PERCENT,
    CheckPage,
    ClaimVerdict,
    Direction,
    Effect,
    Elsewhere,
    JudgedClaim,
    PathRow,
    Ruling,
    Since,
)
from kdelta.check.series import CheckedSeries, path_rows
from kdelta.errors import SpecError
from kdelta.printable import known, quoted
from kdelta.source.patches import PatchSeries

MOST_CLAIMS = 100
MOST_SENTENCES = 50
_LONGEST = 1000  # characters of a sentence
_OPTION = "--claim"
_TRAILER = re.compile(r"^Kdelta-claim:(.*)$", re.MULTILINE | re.IGNORECASE)
_PERCENT = re.compile(r"\d{1,5}(?:\.\d{1,6})?", re.ASCII)
_FORM = "write SCENARIO less|more|same [PERCENT], for example: unmap:munmap less 12"
_MOST_LESS = 100.0  # percent: a path cannot get shorter by more
# Lines that tools write below a message, and no sentences.
_METADATA = re.compile(
    r"^(?:[a-z-]+-by|cc|link|closes|fixes|message-id|kdelta-claim|base-commit|change-id):.*$",
    re.MULTILINE | re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n\s*\n")
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredClaim:
    """One claim.  percent: the least change, of `same` the largest one; None: none is declared.

    scenario: as it can be counted: of a C file with the file's whole path.  place: who declared it.
    """

    scenario: str
    direction: Direction
    percent: float | None
    place: str


# ---- claims: reading ----------------------------------------------------------------------------


def declared(series: PatchSeries, options: Sequence[str]) -> tuple[DeclaredClaim, ...]:
    """The claims of the options and of the mails of a series, each once.

    Raises SpecError for a claim that is not in the form, for a scenario that does not exist, and
    for more than MOST_CLAIMS.
    """
    texts = [("the cover letter", series.cover)]
    texts += [(f"patch {at}", step.text) for at, step in enumerate(series.steps, start=1)]
    found = [(words, _OPTION) for words in options]
    found += [(words, place) for place, text in texts for words in _TRAILER.findall(text)]
    if len(found) > MOST_CLAIMS:
        raise SpecError(
            f"the series declares {len(found)} claims, more than {MOST_CLAIMS}",
            place=found[-1][1],
            action="keep the claims that matter",
        )
    once: dict[tuple[str, Direction, float | None], DeclaredClaim] = {}
    for words, place in found:
        claim = parse(words, place)
        once.setdefault((claim.scenario, claim.direction, claim.percent), claim)
    return tuple(once.values())


def parse(text: str, place: str = _OPTION) -> DeclaredClaim:
    """One claim.  Raises SpecError for what is not in the form, and for an unknown scenario."""
    words = text.split()
    if len(words) not in (2, 3):
        raise SpecError(f"{quoted(text.strip())} is no claim", place=place, action=_FORM)
    name, direction, *percent = words
    if direction not in [*Direction]:
        raise SpecError(
            f"{quoted(direction)} is no direction of a claim",
            place=place,
            action=known(direction, Direction),
        )
    return DeclaredClaim(
        scenario=_scenario(name, place),
        direction=Direction(direction),
        percent=_percent(percent[0], Direction(direction), place) if percent else None,
        place=place,
    )


def _scenario(name: str, place: str) -> str:
    """The scenario as it can be counted.  A mail, which a stranger wrote, names no file."""
    if place == _OPTION:
        name = workload.absolute(name, Path.cwd())
    elif workload.is_file(name.rpartition(":")[0]):
        raise SpecError(
            f"{quoted(name)} is a file, and a mail can name a shipped scenario only",
            place=place,
            action=f"declare it with {_OPTION}",
        )
    try:
        workload.parse_reference(name)
    except SpecError as error:
        raise SpecError(error.cause, place=place, action=error.action) from error
    return name


def _percent(text: str, direction: Direction, place: str) -> float:
    if not _PERCENT.fullmatch(text):
        raise SpecError(
            f"{quoted(text)} is no percent of a claim",
            place=place,
            action="write a number alone, without a sign: 12 or 0.5",
        )
    value = float(text)
    if (not value and direction is not Direction.SAME) or (
        value > _MOST_LESS and direction is not Direction.MORE
    ):
        least = "0" if direction is Direction.SAME else "above 0"
        most = "99999" if direction is Direction.MORE else f"{_MOST_LESS:g}"
        raise SpecError(
            f"{text} percent is out of range for {quoted(direction)}",
            place=place,
            action=f"write a number from {least} to {most}",
        )
    return value


def sentences(series: PatchSeries) -> tuple[str, ...]:
    """Each sentence of the mails that has a digit, as it stands there but for line breaks.

    The title of the cover letter and the lines that tools write are left out.
    """
    texts = [series.cover.partition("\n")[2], *(step.text for step in series.steps)]
    found: dict[str, None] = {}
    for text in texts:
        for part in _SENTENCE_END.split(_METADATA.sub("", text)):
            if re.search(r"\d", part) and len(found) < MOST_SENTENCES:
                found[" ".join(part.split())[:_LONGEST]] = None
    return tuple(found)


# ---- claims: judging ----------------------------------------------------------------------------


def judged(
    claims: Iterable[DeclaredClaim],
    arch: str,
    paths: Sequence[PathRow],
    identical: Collection[str],
    missing: Sequence[int],
    unmeasured: Mapping[str, str] = MappingProxyType({}),
) -> tuple[JudgedClaim, ...]:
    """What the counts of one architecture say of each claim.

    identical: the counted scenarios that execute no changed code.  missing: numbers of the patches
    that have no kernel.  unmeasured: scenarios without a count on the base, with the reason.
    """
    rows = {row.scenario: row for row in paths if row.arch == arch}
    found = []
    for claim in claims:
        name = scenario_name(claim.scenario)
        row = rows.get(name)
        if missing:
            numbers = ", ".join(map(str, missing))
            verdict, why = ClaimVerdict.UNDECIDED, f"there is no kernel of patch {numbers}"
        elif row is not None:
            verdict, why = _of_row(claim, row)
        elif name in identical:
            verdict, why = _of_change(claim, 0.0), "it executes no changed code"
        else:
            reason = unmeasured.get(claim.scenario, "it is not on the page")
            verdict, why = ClaimVerdict.UNDECIDED, f"it was not counted: {reason}"
        found.append(
            JudgedClaim(
                scenario=name,
                direction=claim.direction,
                percent=claim.percent,
                place=claim.place,
                verdict=verdict,
                why=why,
                before=row.before if row else None,
                after=row.after if row else None,
                arch=arch,
            )
        )
    return tuple(found)


def _of_row(claim: DeclaredClaim, row: PathRow) -> tuple[ClaimVerdict, str]:
    if row.change in (Effect.OPEN, Effect.SPREAD) or row.before is None or row.after is None:
        return ClaimVerdict.UNDECIDED, f"{row.change}: {row.reason}"
    figures = f"{row.before:.2f} -> {row.after:.2f} a {row.operation} ({row.percent:+.2f} %)"
    return _of_change(claim, row.percent), figures


def _of_change(claim: DeclaredClaim, percent: float) -> ClaimVerdict:
    """percent: the change that was counted."""
    bound = LEAST_PERCENT if claim.percent is None else claim.percent
    if claim.direction is Direction.SAME:
        holds = abs(percent) <= bound + _ROUNDING
    elif claim.direction is Direction.LESS:
        holds = percent <= -bound + _ROUNDING
    else:
        holds = percent >= bound - _ROUNDING
    return ClaimVerdict.SUPPORTED if holds else ClaimVerdict.CONTRADICTED


def scenario_name(scenario: str) -> str:
    """A scenario as the page calls it: that of a C file without its folder."""
    return scenario.rpartition("/")[2].replace(".c:", ":")


# ---- the page ------------------------------------------------------------------------------------


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
    paths = path_rows(found)
    elsewhere = tuple(map(_elsewhere, sides))
    everywhere = (*paths, *(row for each in elsewhere for row in each.paths))
    every = [(HOME, found), *((side.arch, side.found) for side in sides)]
    decision, why = _decided([one for _, one in every], everywhere, found.tolerance)
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
        identical=_names(found),
        unseen=tuple(sorted(found.changed - found.executed)),
        null=setting.null,
        state=_state(found),
        limits=(*filter(None, [series.order]), *_limits(found, setting, sides)),
        claims=tuple(
            claim for arch, one in every for claim in _judged(declared, arch, one, everywhere)
        ),
        sentences=sentences(series),
        since=(),
        against=against,
        command=setting.command,
        program=_program(found, paths),
        elsewhere=elsewhere,
    )
    return compared_with(made, before) if before else made


def _elsewhere(side: CheckedArch) -> Elsewhere:
    found = side.found
    return Elsewhere(
        arch=side.arch,
        compiler=side.compiler,
        null=side.null,
        patches=tuple(found.patches),
        paths=path_rows(found),
        identical=_names(found),
        unseen=tuple(sorted(found.changed - found.executed)),
        state=_state(found),
        limits=tuple(_unmeasured(found)),
    )


def _names(found: CheckedSeries) -> tuple[str, ...]:
    return tuple(scenario_name(each.scenario) for each in found.identical)


def _judged(
    declared: Sequence[DeclaredClaim], arch: str, found: CheckedSeries, paths: Sequence[PathRow]
) -> tuple[JudgedClaim, ...]:
    missing = [row.number for row in found.patches if row.wrong]
    return judged(declared, arch, paths, _names(found), missing, found.unmeasured)


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


def _state(found: CheckedSeries) -> tuple[str, ...]:
    """Every fact of every trial; a trial whose facts do not hold has no count."""
    results = [one.result for each in found.counts for _, one in each.counted]
    facts = sum(fact.binding for result in results for fact in result.state)
    held = sum(fact.holds and fact.binding for result in results for fact in result.state)
    said = f"{held} of {facts} facts of page state are as wanted, in {len(results)} trials"
    return (said,)


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
    if not found.unmeasured:
        return []
    names = ", ".join(scenario_name(each) for each in list(found.unmeasured)[:_NAMED])
    count = len(found.unmeasured) - _NAMED
    more = f" and {count} more" if count > 0 else ""
    return [f"Not counted on the base: {names}{more}."]


def compared_with(made: CheckPage, before: CheckPage) -> CheckPage:
    """The page with the answers that differ from those of an earlier page.

    A scenario that only one of the two pages counted has no answer to compare.
    """
    was, now = before.answers, made.answers
    since = tuple(
        Since(scenario=name, was=was[arch, name], now=now[arch, name], arch=arch)
        for arch, name in sorted(was.keys() & now.keys())
        if abs(was[arch, name] - now[arch, name]) >= LEAST_PERCENT
    )
    return replace(made, since=since, apart=len(was.keys() ^ now.keys()))


def _program(found: CheckedSeries, paths: Sequence[PathRow]) -> str:
    """How to get the C file of the path that changed most."""
    if not paths:
        return ""
    most = max(paths, key=lambda row: abs(row.percent)).scenario
    name = next(each.scenario for each in found.executing if scenario_name(each.scenario) == most)
    place, _, scenario = name.rpartition(":")
    if workload.is_file(place):
        return f"{place} is its C file"
    return f"kdelta workload export {place} -o {place}.c    # then: ./{place} {scenario}"
