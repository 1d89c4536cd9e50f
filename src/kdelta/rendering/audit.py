# SPDX-License-Identifier: GPL-2.0-or-later
"""An audit as a table for people, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kdelta.analysis.audit import Answer, Audit, FactCheck, MachineCheck, ScenarioAudit
from kdelta.metric import plural
from kdelta.printable import few
from kdelta.sample import Outcome
from kdelta.table.columns import ABSENT, Line, Span, Tone, paragraph, short, shortened, table_of

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
    "all_cpu_match": (Answer.YES, "CPUs were not proven to be those that were asked for"),
    "any_noapic": (Answer.NO, "a guest may have no APIC"),
    "all_init_exit0": (Answer.YES, "a program did not end with 0"),
    "all_semantic_ok": (Answer.YES, "a trial's page state does not hold"),
}


def show(audit: Audit, *, every: bool) -> list[Line]:
    """What `kdelta audit` prints.  every: also the facts that do not bind."""
    lines = list(paragraph(_conclusion(audit), Tone.GOOD if audit.passed else Tone.BAD))
    for each in audit.scenarios:
        lines += [(), *_scenario(each, every=every)]
    return [*lines, (), *_summary(audit)]


def _conclusion(audit: Audit) -> str:
    whole = f"{audit.completed} of {plural(audit.planned, 'trial')} ended well"
    if audit.passed:
        return f"As the study asks: {whole}, machines and page states hold (run {audit.run_id})."
    against = [why for name, (good, why) in _FLAGS.items() if getattr(audit, name) is not good]
    every = (fact.verdict for each in audit.scenarios for fact in each.facts)
    if bad := sum(verdict not in ("ok", "told") for verdict in every):
        against.append(f"{plural(bad, 'fact')} of a page state not as wanted")
    return f"NOT as the study asks: {'; '.join([whole, *against])} (run {audit.run_id})."


def _scenario(each: ScenarioAudit, *, every: bool) -> Iterator[Line]:
    yield from paragraph(each.reference, Tone.BOLD)
    heads = ("trial", "kernel", "ended", *_MACHINE)
    names = shortened([check.arm for check in each.machines], 20)
    yield from table_of(heads, map(_machine, each.machines, names), right=heads[:1])
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
    yield from table_of(("page state", "when", "wanted", "", "seen"), map(_fact, alike.values()))
    if hidden := len(each.facts) - len(facts):
        told = f"{hidden} facts that do not bind are shown with --all"
        yield from paragraph(told, Tone.FAINT)


def _fact(group: Sequence[FactCheck]) -> Iterator[Span | str]:
    """Cells of a fact that is the same at several times."""
    fact = group[0]
    yield short(fact.name, 24)
    yield ", ".join(one.when for one in group)
    yield ABSENT if fact.want == "free" else short(fact.want, 16)
    yield Span(fact.verdict, _FACT_TONES.get(fact.verdict, Tone.BAD))
    yield _seen(fact)


def _machine(check: MachineCheck, arm: str) -> Iterator[Span | str]:
    yield str(check.trial)
    yield Span(arm, Tone.BOLD)
    tone = _OUTCOMES.get(check.outcome, Tone.BAD) if check.outcome else Tone.WARN
    yield Span(check.outcome or "not run", tone)
    for name in _MACHINE.values():
        one = getattr(check, name)
        yield Span(one, _TONES[one]) if isinstance(one, Answer) else short(one, 12) or ABSENT


def _seen(fact: FactCheck) -> str:
    if not fact.differs:
        value, arms = fact.values[0]
        return f"{value} in {'all ' if len(arms) > 1 else ''}{len(arms)}"
    return "; ".join(f"{value}: {few(arms)}" for value, arms in fact.values)


def _summary(audit: Audit) -> Iterator[Line]:
    flags = [(name, getattr(audit, name), good) for name, (good, _) in _FLAGS.items()]
    told = [(f"{name} {answer}", answer is good) for name, answer, good in flags]
    skipped = f" ({audit.skipped} skipped)" if audit.skipped else ""
    done = f"completed {audit.completed}/{audit.planned}{skipped}"
    for text, good in (*told, (done, audit.completed == audit.planned)):
        yield (Span(text, Tone.GOOD if good else Tone.BAD),)


def document(audit: Audit) -> tuple[str, Audit]:
    """See formats.View: every field."""
    return "audit", audit
