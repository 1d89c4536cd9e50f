# SPDX-License-Identifier: GPL-2.0-or-later
"""What a patch series claims, and what the counts say of it.

A claim is declared: `SCENARIO less|more|same [PERCENT]`, a trailer `Kdelta-claim:` of a mail or the
value of `--claim`.  It is about the whole series.  Sentences with figures are quoted, never judged.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kdelta import workload
from kdelta.check.page import LEAST_PERCENT, ClaimVerdict, Direction, Effect, JudgedClaim, PathRow
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


def declared(series: PatchSeries, options: Sequence[str]) -> tuple[DeclaredClaim, ...]:
    """The claims of options and mails, each once.  Raises SpecError, also for too many."""
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
    value, is_same, is_more = float(text), direction is Direction.SAME, direction is Direction.MORE
    if (not value and not is_same) or (value > _MOST_LESS and not is_more):
        least, most = "0" if is_same else "above 0", "99999" if is_more else f"{_MOST_LESS:g}"
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


def judged(
    claims: Iterable[DeclaredClaim],
    arch: str,
    paths: Sequence[PathRow],
    identical: Collection[str],
    missing: Sequence[int],
    unmeasured: Mapping[str, str],
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
