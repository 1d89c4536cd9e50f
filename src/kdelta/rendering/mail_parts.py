# SPDX-License-Identifier: GPL-2.0-or-later
"""What stands in a mail below its claim: failures, page state, mechanism, limits, identities."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from kdelta.analysis.audit import FactCheck, ScenarioAudit
from kdelta.analysis.claims import Claim
from kdelta.analysis.explanation import Presence
from kdelta.ladder.ladders import Ladder
from kdelta.metric import number, plural
from kdelta.printable import printable
from kdelta.procfs import compiler_short
from kdelta.rendering.explain import renamed
from kdelta.rendering.wording import more
from kdelta.sample import KernelIdentity
from kdelta.table.columns import ABSENT, Column, filled, plain, short, shortened, table_lines
from kdelta.table.ladders import failures_told

COLUMNS = 72
_FUNCTIONS = 8  # of the mechanism
_SMALL = 0.005  # share of the difference below which a function is one of the others
_NAME = 32
OTHERS = 5  # scenarios beside that of the headline: a mail is of one finding
_PRESENCE = {Presence.NEW: " (new)", Presence.VANISHED: " (gone)", Presence.BOTH: ""}


def told_ladders(found: Claim) -> list[Ladder[Any]]:
    """The headline's scenario first; of many others the few that changed most."""
    head = found.headline
    rest = [ladder for ladder in found.report.ladders if not head or ladder is not head.ladder]
    if len(rest) > OTHERS:
        moved = sorted((ladder for ladder in rest if ladder.steps), key=size, reverse=True)
        rest = moved[:OTHERS]
    return [*([head.ladder] if head else []), *rest]


def size(ladder: Ladder[Any]) -> float:
    """How much the largest step of a scenario changes, whichever way."""
    return max((abs(math.log(s.comparison.ratio or 1)) for s in ladder.steps), default=0)


def failures(found: Claim) -> Iterator[str]:
    """Every trial without data, by its reason."""
    told = [text for each in found.report.ladders for text in failures_told(each.failures)]
    report = found.report
    planned = sum(ladder.planned for ladder in report.ladders)
    failed = sum(len(ladder.failures) for ladder in report.ladders)
    yield "Failures"
    if not told:
        yield from wrapped(f"None: all of {plural(planned, 'trial')} ended ok.", "  ")
        return
    yield from wrapped(
        f"{failed} of {plural(planned, 'trial')} carry no data; none was replaced or left out"
        " of n:",
        "  ",
    )
    for text in dict.fromkeys(told):
        yield from wrapped(text, "    ")


def state(found: Claim) -> Iterator[str]:
    """What the audit of the pages says: the facts that bind, and their values."""
    yield "State of the pages"
    for audit in _first_audits(found):
        bound = [fact for fact in audit.facts if fact.verdict != "told"]
        wrong = [fact for fact in bound if fact.verdict != "ok"]
        if not audit.facts:
            yield from wrapped(f"{audit.reference}: it was not audited.", "  ")
        elif wrong:
            yield from wrapped(
                f"{audit.reference}: {len(wrong)} of {plural(len(bound), 'wanted fact')} do not"
                f" hold: {_facts(wrong)}.",
                "  ",
            )
        else:
            yield from wrapped(
                f"{audit.reference}: {plural(len(bound), 'wanted fact')}; each holds, and is the"
                " same on every kernel that ran, before the windows and after them:"
                f" {_facts(bound)}.",
                "  ",
            )


def _first_audits(found: Claim) -> list[ScenarioAudit]:
    names = {(ladder.workload, ladder.scenario, ladder.point) for ladder in told_ladders(found)}
    return [a for a in found.audits if (a.workload, a.scenario, a.point) in names]


def _facts(facts: Sequence[FactCheck]) -> str:
    values: dict[str, dict[str, None]] = {}
    for fact in facts:
        for value, _ in fact.values:
            values.setdefault(fact.name, {})[value] = None
    return ", ".join(f"{name} {' or '.join(each)}" for name, each in values.items())


def mechanism(found: Claim) -> Iterator[str]:
    """Apart from the claim: it names functions, and is no proof that they cost time."""
    explained = found.explanation
    if explained is None:
        return
    yield "Mechanism (the same counts by function; they add up to the difference)"
    if explained.refused or not explained.functions:
        reasons = "; ".join(explained.comparison.reasons)
        yield from wrapped(f"No function can be named: {reasons}.", "  ")
        return
    scale_by = explained.operations
    least = _SMALL * abs(explained.delta or 0)
    shown = [row for row in explained.functions if abs(row.delta) > least][:_FUNCTIONS]
    rest = explained.functions[len(shown) :]
    rows = [(short(r.function, _NAME), r.old, r.new, r.delta, _PRESENCE[r.status]) for r in shown]
    if rest:
        rows.append(
            (
                f"{len(rest)} others",
                sum(r.old or 0 for r in rest),
                sum(r.new or 0 for r in rest),
                sum(r.delta for r in rest),
                "",
            )
        )
    rows.append(("sum", explained.old_value, explained.new_value, explained.delta or 0, ""))
    yield ""
    yield from indented(
        [
            Column("function", (row[0] for row in rows)),
            Column(
                short(explained.old, 12), (_count(row[1], scale_by) for row in rows), right=True
            ),
            Column(
                short(explained.new, 12), (_count(row[2], scale_by) for row in rows), right=True
            ),
            Column(
                "per " + explained.operation, (more(row[3] / scale_by) + row[4] for row in rows)
            ),
        ]
    )
    if same := renamed(explained, (row.function for row in shown)):
        yield ""
        yield from wrapped(same, "  ")
    if found.headline and found.headline.step.comparison.differences:
        yield ""
        yield from wrapped(
            "The two builds also differ in what is no commit: "
            + ", ".join(found.headline.step.comparison.differences)
            + ".",
            "  ",
        )


def _count(count: int | None, operations: int) -> str:
    return ABSENT if count is None else number(count / operations)


def not_claimed(found: Claim) -> Iterator[str]:
    """The limits of the run, and of any made program."""
    yield "What is not claimed"
    own = [
        "That an application regressed: the program is made for this path alone.",
        *found.report.limits,
    ]
    for text in own:
        yield from wrapped(f"- {text}", "  ", "    ")


def identities(found: Claim) -> Iterator[str]:
    """What measured what: runs, machine, and a row for each kernel."""
    yield "Tool and identities"
    runs = {found.record.run_id: found.record}
    if found.exact is not None:
        runs[found.exact.run_id] = found.exact
    for record in runs.values():
        yield from wrapped(
            f"kdelta {record.kdelta_version}, run {record.run_id}, {record.created}, seed"
            f" {record.seed}",
            "  ",
        )
    ladder = found.headline.ladder if found.headline else found.report.ladders[0]
    for machine in ladder.machines:
        yield from wrapped(machine.told, "  ")
    yield ""
    arms = {arm.label: arm.kernel for arm in found.record.arms}
    rungs = [rung for rung in ladder.rungs if not rung.control]
    columns = [
        Column("kernel", shortened([rung.arm for rung in rungs], 14)),
        Column("package or release", (short(r.version or r.release or ABSENT, 22) for r in rungs)),
        Column("compiler", (short(compiler_short(rung.compiler) or ABSENT, 12) for rung in rungs)),
        Column("image sha256", (_digest(arms.get(rung.arm)) for rung in rungs)),
    ]
    yield from indented(columns)


def _digest(kernel: KernelIdentity | None) -> str:
    return kernel.image_sha256[:12] if kernel and kernel.image_sha256 else ABSENT


def wrapped(text: str, indent: str = "", later: str | None = None) -> Iterator[str]:
    """Text in lines of at most COLUMNS; later: the indent of all lines but the first."""
    own = indent if later is None else later
    yield from filled(printable(text, 20_000), COLUMNS, indent, own)


def indented(columns: Sequence[Column]) -> Iterator[str]:
    """A table, cut to COLUMNS."""
    for line in plain(table_lines(columns)).splitlines():
        yield f"  {line}"[:COLUMNS].rstrip()
