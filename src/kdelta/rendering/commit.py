# SPDX-License-Identifier: GPL-2.0-or-later
"""What a commit does: one sentence with the largest change, what else is known, and one table."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence

from kdelta import workload
from kdelta.check.commit import VERDICTS, CommitAnswer, largest
from kdelta.check.page import Effect, PathRow, sized
from kdelta.metric import number, plural
from kdelta.printable import few
from kdelta.table.columns import VERDICT_TONES, Line, Span, Tone, figure, paragraph, short, table_of
from kdelta.verdict.comparison import Verdict

_NAMED = 6  # functions or scenarios in a sentence
_PARTS, _TOLD = 3, 2  # functions of a path in the table; in the first sentence
_PATHS = 12
_ALL = " (all: --json)"
_WIDTH = 40  # of a name in the table
_WORDS = {
    Verdict.REGRESSION: "longer",
    Verdict.IMPROVEMENT: "shorter",
    Verdict.SAME: "the same",
    Verdict.UNDECIDED: "undecided",
}


def lines(found: CommitAnswer) -> Iterator[Line]:
    """The answer."""
    tone = VERDICT_TONES[found.verdict] if found.verdict else Tone.BOLD
    yield from paragraph(_headline(found), tone)
    yield from ((), *paragraph(" ".join(_facts(found))))
    told = [row for row in found.paths if VERDICTS[row.change] is not Verdict.SAME]
    if told:
        yield from ((), *_table(told[:_PATHS]))
        if len(told) > _PATHS:
            yield from paragraph(f"and {len(told) - _PATHS} more paths (--json)")
        for row in told:
            if row.reason:
                yield from paragraph(f"{row.scenario}: {row.change}: {row.reason}", Tone.WARN)
    elif found.executing and not found.paths:
        rows = ((short(name, _WIDTH), few(own, 2)) for name, own in found.executing.items())
        yield from ((), *table_of(("scenario", "executes"), rows))
    most = largest(found.paths)
    if most and found.kernels and most.scenario.partition(":")[0] in workload.names():
        run = shlex.join(["kdelta", "run", most.scenario, "--kernels", ",".join(found.kernels)])
        yield from ((), *paragraph(f"A run to explain, audit and mail: `{run}`"))


def _headline(found: CommitAnswer) -> str:
    """Verdict, size and scope in one sentence."""
    name, base, most = found.name, found.base, largest(found.paths)
    looked = f"{found.looked} looked at"
    looked += f", {len(found.skipped)} skipped: {few([*found.skipped], 3)}" * bool(found.skipped)
    if found.verdict is Verdict.SAME and not found.paths:
        return f"{name} changes no code of {base}: SAME."
    if not found.looked:
        return f"No scenario was looked at: none was counted on {base} before."
    if most and most.before is not None and most.after is not None:
        size = number(abs(most.after - most.before))
        way = "more" if most.change is Effect.MORE else "fewer"
        parts = f" ({', '.join(most.named[:_TOLD])})" * bool(most.named)
        return (
            f"{base} with {name} executes {size} {way} instructions per {most.operation} in"
            f" {most.scenario} than without it, {sized(most.percent)}{parts}: {found.verdict}."
        )
    if not found.executing and not found.paths:
        verdict = f": {found.verdict}" * bool(found.verdict)
        return f"No scenario executes what {name} changes in {base} ({looked}){verdict}."
    if not found.verdict:
        told = f"{len(found.executing)} of {plural(found.looked, 'scenario')}"
        return f"What {name} changes in {base} is executed by {told}; nothing was counted."
    count = plural(len(found.paths), "scenario")
    if found.verdict is Verdict.SAME:
        return (
            f"{base} executes as much with {name} as without it in {count} that execute it: SAME."
        )
    return f"What {name} does in {base} is undecided in {count} that execute it: UNDECIDED."


def _facts(found: CommitAnswer) -> Iterator[str]:
    yield f'"{found.title}".'
    if found.since:
        yield f"The first tag with it is {found.since}."
    state = "has it: it is undone there" if found.undone else "is without it: it is put in there"
    yield f"{found.base} {state}."
    yield from found.passed
    if found.functions:
        named = few(found.functions, _NAMED)
        yield f"It changes {plural(len(found.functions), 'function')}: {named}."
        yield "What the compiler inlined is part of its caller."
    if found.executing and found.unseen:
        yield f"In no scenario: {few(found.unseen, _NAMED)}."
    if found.paths:
        count = Counter(VERDICTS[row.change] for row in found.paths)
        told = ", ".join(f"{count[each]} {word}" for each, word in _WORDS.items() if count[each])
        yield f"{len(found.paths)} of {found.looked} paths execute it: {told}."
    if found.skipped:
        yield f"Skipped: {few([f'{name} ({why})' for name, why in found.skipped.items()], _NAMED)}."
    if found.untried and (found.functions or found.paths):
        yield f"Not tried: {few(found.untried, 3)}{_ALL * (len(found.untried) > 3)}."


def _table(rows: Sequence[PathRow]) -> Iterator[Line]:
    heads = ("path", "without", "with", "change", "verdict")
    cells: list[tuple[Span | str, ...]] = []
    for row in rows:
        verdict = VERDICTS[row.change]
        moved = f"{sized(row.percent)}" if row.before and row.after is not None else ""
        end = moved, Span(verdict, VERDICT_TONES[verdict])
        cells.append((short(row.scenario, _WIDTH), figure(row.before), figure(row.after), *end))
        parts = ((short(f"  {one.function}", _WIDTH), one.size) for one in row.functions[:_PARTS])
        cells += [(name, "", "", delta, "") for name, delta in parts]
    return table_of(heads, cells, right=heads[1:4])
