# SPDX-License-Identifier: GPL-2.0-or-later
"""What keeps a verdict on others' data from standing, though the statistics found no fault.

These are facts of the whole import, which no comparison of two series knows: nothing says which
arm is older, whether two arms have one unit, and page state that was audited in another place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kdelta.foreign.mapping import UNITS
from kdelta.foreign.record import Pairs
from kdelta.foreign.series import Case, GroupAudit
from kdelta.metric import Better
from kdelta.verdict.comparison import Caution, Comparison, Trap, Verdict
from kdelta.verdict.series import Series

UNORDERED = "nothing says which arm is the old one"
SAME_UNITS = f'say {UNITS} = "same" under [facts] of a mapping if they are'
ELSEWHERE = "the page state of these arms differs where it was audited"


def limited(
    old: Series,
    new: Series,
    comparison: Comparison,
    audits: Sequence[GroupAudit],
    *,
    table: bool,
) -> Comparison:
    """The comparison, UNDECIDED where the import as a whole does not let its verdict stand.

    table: the data is a table that people made, and no program that names its units wrote it.
    """
    if comparison.verdict is Verdict.INVALID:
        return comparison
    decided = comparison.verdict is not Verdict.UNDECIDED
    units = _units(old, new, comparison) if table and decided else ()
    reasons = (*units, *_elsewhere(old, new, audits))
    if not reasons:
        return comparison
    told = (*reasons, *comparison.reasons)
    return replace(comparison, verdict=Verdict.UNDECIDED, reasons=told, more=None)


def _units(old: Series, new: Series, comparison: Comparison) -> Iterator[str]:
    """Tables of which one arm is ten, or a thousand, times the other may mix units."""
    if old.fact(UNITS) and old.fact(UNITS) == new.fact(UNITS):
        return
    for caution in comparison.cautions:
        if caution.trap is Trap.UNITS:
            yield f"{caution.sentence} {SAME_UNITS}"


def _elsewhere(old: Series, new: Series, audits: Sequence[GroupAudit]) -> Iterator[str]:
    """Fields that differ between these arms where they were audited, and were not audited here."""
    here = dict(old.state).keys() & dict(new.state).keys()
    for audit in audits:
        arms = {without_v(arm): at for at, arm in enumerate(audit.arms)}
        was, now = arms.get(without_v(old.arm)), arms.get(without_v(new.arm))
        if was is None or now is None or was == now:
            continue
        for name, texts in audit.fields:
            if name not in here and texts[was] and texts[now] and texts[was] != texts[now]:
                told = f"{name} {texts[was]} against {texts[now]}"
                yield f"{ELSEWHERE}{_where(audit.group)}: {told}; here it was not audited"
                return


def without_v(arm: str) -> str:
    """v6.12.77 is 6.12.77."""
    return arm.lower().removeprefix("v")


def _where(group: Pairs) -> str:
    return f" ({', '.join(f'{name} {text}' for name, text in group)})" if group else ""


def untold(case: Case, *, asked: bool) -> Iterator[Caution]:
    """Sentences that nothing says which direction is better, or which arm is the old one."""
    if case.metric.better is Better.NONE:
        text = (
            f"{case.metric.name}: nothing says which direction is better, so none is judged: give"
            " unit and better in a mapping, or a name of the column that has the unit"
        )
        yield Caution(trap=Trap.FACTS, sentence=text)
    if len(case.series) > 1 and not case.ordered and not asked and not case.roles:
        names = ", ".join(series.arm for series in case.series[:4])
        text = f"{UNORDERED}, so they stand as in the data: {names}; --old and --new say it"
        yield Caution(trap=Trap.ORDER, sentence=text)
