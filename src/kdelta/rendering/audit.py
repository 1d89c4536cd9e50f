# SPDX-License-Identifier: GPL-2.0-or-later
"""An audit as a table for people; as JSON and KTAP (docs.kernel.org, dev-tools/ktap)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kdelta.analysis.audit import Answer, Audit, FactCheck, MachineCheck, ScenarioAudit
from kdelta.printable import printable
from kdelta.sample import Outcome
from kdelta.table.columns import (
    ABSENT,
    Column,
    Line,
    Span,
    Tone,
    paragraph,
    short,
    shortened,
    table_lines,
)

_TONES = {Answer.YES: Tone.PLAIN, Answer.NO: Tone.BAD, Answer.UNKNOWN: Tone.WARN}
_FACT_TONES = {"ok": Tone.PLAIN, "told": Tone.FAINT, "unknown": Tone.WARN}
_OUTCOMES = {Outcome.OK: Tone.PLAIN, Outcome.SKIP: Tone.FAINT}
# Columns of answers and of what the guest said of itself, by their heads.
_MACHINE = {
    "cpus": "cpus",
    "memory": "memory",
    "cmdline": "cmdline",
    "thp": "thp",
    "preempt": "preempt",
    "clock": "clocksource",
    "exit": "workload_exit",
    "state": "semantic",
}
_FLAGS = {
    "all_cpu_match": Answer.YES,
    "any_noapic": Answer.NO,
    "all_init_exit0": Answer.YES,
    "all_semantic_ok": Answer.YES,
}
_LISTED = 3  # arms that are named beside a value


def show(audit: Audit, *, every: bool) -> list[Line]:
    """What `kdelta audit` prints.  every: also the facts that do not bind."""
    lines = list(paragraph(f"audit of run {audit.run_id}", Tone.BOLD))
    for each in audit.scenarios:
        lines += [(), *_scenario(each, every=every)]
    return [*lines, (), *_summary(audit)]


def _scenario(each: ScenarioAudit, *, every: bool) -> Iterator[Line]:
    yield from paragraph(each.reference, Tone.BOLD)
    yield from table_lines(_machine_columns(each.machines))
    for check in each.machines:
        if check.reason:
            yield from paragraph(f"trial {check.trial} ({check.arm}): {check.reason}", Tone.WARN)
    facts = [fact for fact in each.facts if every or fact.want != "free"]
    yield ()
    if not each.facts:
        yield from paragraph("no trial came as far as the audit of the page state", Tone.WARN)
        return
    alike: dict[tuple[str, str, object], list[FactCheck]] = {}
    for fact in facts:
        alike.setdefault((fact.name, fact.want, fact.values), []).append(fact)
    rows = [(group[0], ", ".join(fact.when for fact in group)) for group in alike.values()]
    yield from table_lines(
        [
            Column("page state", (short(fact.name, 24) for fact, _ in rows)),
            Column("when", (when for _, when in rows)),
            Column("wanted", (ABSENT if f.want == "free" else short(f.want, 16) for f, _ in rows)),
            Column(
                "",
                (Span(fact.verdict, _FACT_TONES.get(fact.verdict, Tone.BAD)) for fact, _ in rows),
            ),
            Column("seen", (short(_seen(fact), 34) for fact, _ in rows)),
        ]
    )
    hidden = len(each.facts) - len(facts)
    if hidden:
        told = f"{hidden} facts that do not bind are shown with --all"
        yield from paragraph(told, Tone.FAINT)


def _machine_columns(checks: Sequence[MachineCheck]) -> list[Column]:
    columns = [
        Column("trial", (str(check.trial) for check in checks), right=True),
        Column("kernel", shortened([check.arm for check in checks], 20), Tone.BOLD),
        Column("ended", map(_ended, checks)),
    ]
    for head, name in _MACHINE.items():
        found = [getattr(check, name) for check in checks]
        columns.append(
            Column(
                head,
                (
                    Span(one, _TONES[one]) if isinstance(one, Answer) else short(one, 12) or ABSENT
                    for one in found
                ),
            )
        )
    return columns


def _ended(check: MachineCheck) -> Span:
    if check.outcome is None:
        return Span("not run", Tone.WARN)
    return Span(check.outcome, _OUTCOMES.get(check.outcome, Tone.BAD))


def _seen(fact: FactCheck) -> str:
    if not fact.differs:
        value, arms = fact.values[0]
        return f"{value} in {'all ' if len(arms) > 1 else ''}{len(arms)}"
    return "; ".join(f"{value}: {_arms(arms)}" for value, arms in fact.values)


def _arms(arms: Sequence[str]) -> str:
    more = len(arms) - _LISTED
    return ", ".join(arms[:_LISTED]) + (f" and {more} more" if more > 0 else "")


def _summary(audit: Audit) -> Iterator[Line]:
    found = [(name, getattr(audit, name), good) for name, good in _FLAGS.items()]
    spans = [
        Span(f"{name} {answer}  ", Tone.GOOD if answer is good else Tone.BAD)
        for name, answer, good in found
    ]
    whole = audit.completed == audit.planned
    skipped = f" ({audit.skipped} skipped)" if audit.skipped else ""
    done = Span(f"completed {audit.completed}/{audit.planned}", Tone.GOOD if whole else Tone.BAD)
    yield (*spans, done, Span(skipped))


def document(audit: Audit) -> tuple[str, Audit]:
    """See formats.View: every field."""
    return "audit", audit


def ktap(audit: Audit) -> str:
    """KTAP, version 1: one test for each trial, one subtest for each fact that binds."""
    lines = ["KTAP version 1", f"1..{audit.planned}"]
    number = 0
    for each in audit.scenarios:
        for check in each.machines:
            number += 1
            lines += _trial_ktap(number, each, check)
    return "".join(f"{printable(line)}\n" for line in lines)


def _trial_ktap(number: int, each: ScenarioAudit, check: MachineCheck) -> list[str]:
    name = f"{each.reference} on {check.arm}, round {check.round}".replace("#", "")
    reason = (check.reason or "no reason was recorded").replace("#", "")
    if check.outcome is Outcome.SKIP:
        return [f"ok {number} {name} # SKIP {reason}"]
    if check.outcome is None:
        return [f"not ok {number} {name} # SKIP not run yet"]
    tests = [*_tests(each.facts, check)]
    lines = ["  KTAP version 1", f"  1..{len(tests)}"] if tests else []
    for at, (passed, text) in enumerate(tests, start=1):
        lines.append(f"  {'ok' if passed else 'not ok'} {at} {text}")
    good = check.outcome is Outcome.OK and all(passed for passed, _ in tests)
    if not good:
        lines.append(f"# {check.outcome}: {reason}")
    return [*lines, f"{'ok' if good else 'not ok'} {number} {name}"]


def _tests(facts: Sequence[FactCheck], check: MachineCheck) -> Iterator[tuple[bool, str]]:
    for name in ("cpus", "memory", "cmdline"):
        if (answer := getattr(check, name)) is not Answer.UNKNOWN:
            yield answer is Answer.YES, f"{name} as requested"
    if check.noapic is not Answer.UNKNOWN:
        yield check.noapic is Answer.NO, "no noapic"
    for fact in facts:
        values = [value for value, arms in fact.values if check.arm in arms]
        if fact.want == "free" or not values:
            continue
        alike = fact.want != "same" and set(values) == {fact.want}
        wanted = "the same in all" if fact.want == "same" else fact.want
        told = f"{fact.name} {fact.when}: {' '.join(values)}, wanted {wanted}"
        yield fact.verdict == "ok" or alike, told
