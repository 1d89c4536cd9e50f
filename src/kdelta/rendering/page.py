# SPDX-License-Identifier: GPL-2.0-or-later
"""A run as one HTML file: the verdict first, then all that it rests on; nothing in it runs."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kdelta.analysis.audit import ScenarioAudit
from kdelta.analysis.claims import Claim
from kdelta.analysis.explanation import Explanation, FunctionDelta
from kdelta.ladder.ladders import Ladder, Rung
from kdelta.metric import number, plural
from kdelta.procfs import compiler_short
from kdelta.rendering import plots, step, wording
from kdelta.rendering.explain import renamed
from kdelta.rendering.plots import Plot
from kdelta.rendering.step import StepDetail
from kdelta.rendering.templates import asset, template
from kdelta.rendering.times import level, scale
from kdelta.rendering.wording import TRUST, effort, more
from kdelta.sample import UNKNOWN
from kdelta.table.ladders import failures_told
from kdelta.verdict.comparison import Comparison
from kdelta.workload import Workload

_SMALL = 0.05  # percent of the difference below which a function is one of the others
_BAR = 100.0  # width of the longest bar of the table of functions, of each side


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """One kernel of a ladder's table, in words."""

    arm: str
    value: str
    phases: tuple[str, ...]
    against: str
    verdict: str
    n: str
    state: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One scenario: its table, its plots, and what speaks against it."""

    ladder: Ladder[Any]
    unit: str
    beside: str
    rows: tuple[KernelRow, ...]
    plots: tuple[tuple[str, Plot], ...]
    failures: tuple[str, ...]
    builds: tuple[str, ...]
    audit: ScenarioAudit | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionRow:
    """A line of the table of functions; bar: how long, of _BAR; worse: it is more work."""

    name: str
    old: str
    new: str
    change: str
    share: str
    calls: str
    bar: float
    worse: bool


def written(
    found: Claim, workloads: Mapping[str, Workload], detail: StepDetail | None = None
) -> str:
    """The whole file; its templates lie beside this module.

    detail: what the run kept beside the counts of the headline.
    """
    sections = tuple(_section(found, ladder) for ladder in _ordered(found))
    return template("page.html").render(
        style=asset("report.css"),
        found=found,
        sentence=_sentence(found, workloads),
        ends=wording.releases(found) if found.headline and found.headline.worse else None,
        largest="" if found.timed or not found.headline else wording.largest(found),
        verdict=_verdict(found),
        sections=sections,
        explained=found.explanation,
        functions=list(_functions(found.explanation)),
        renamed=_renamed(found.explanation),
        bar=_BAR,
        kernels=_kernels(found),
        uri=_uri,
        plural=plural,
        trust=TRUST,
        **_mechanism(found.explanation, detail or StepDetail()),
    )


def _mechanism(explained: Explanation | None, detail: StepDetail) -> dict[str, Any]:
    return {} if explained is None or explained.refused else step.context(explained, detail)


def _uri(svg: bytes) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


def _ordered(found: Claim) -> list[Ladder[Any]]:
    head = found.headline.ladder if found.headline else None
    rest = [ladder for ladder in found.report.ladders if ladder is not head]
    return [*([head] if head else []), *rest]


def _verdict(found: Claim) -> str:
    if found.headline:
        return found.headline.step.comparison.verdict
    return "SAME" if found.decided else "UNDECIDED"


def _sentence(found: Claim, workloads: Mapping[str, Workload]) -> str:
    if found.headline is not None:
        return wording.first_sentence(found, found.headline, workloads)
    if not found.decided:
        return "No comparison of this run is decided."
    return (
        f"Nothing differs by more than {found.report.step_percent:g} % where a comparison was"
        " possible."
    )


def _section(found: Claim, ladder: Ladder[Any]) -> Section:
    divisor, unit = scale([ladder]) if found.timed else (1.0, "instructions")
    audits = (a for a in found.audits if (a.workload, a.scenario, a.point) == _names(ladder))
    return Section(
        ladder=ladder,
        unit=f"{unit} per {ladder.operation or 'operation'}",
        beside=ladder.baseline or "the row above",
        rows=tuple(_row(found, ladder, rung, divisor) for rung in ladder.rungs),
        plots=tuple(_plots(found, ladder)),
        failures=tuple(failures_told(ladder.failures)),
        builds=tuple(_builds(ladder)),
        audit=next(audits, None),
    )


def _names(ladder: Ladder[Any]) -> tuple[str, str, str]:
    return ladder.workload, ladder.scenario, ladder.point


def _plots(found: Claim, ladder: Ladder[Any]) -> Iterator[tuple[str, Plot]]:
    if any(rung.total for rung in ladder.rungs):
        yield "Kernel by kernel", plots.ladder_plot(ladder, timed=found.timed)
    if found.timed and (taken := plots.readings(found.record, ladder)):
        yield "Every sample", plots.samples_plot(ladder, taken)
        yield "In the order of measuring", plots.order_plot(ladder, taken)


def _row(found: Claim, ladder: Ladder[Any], rung: Rung[Any], divisor: float) -> KernelRow:
    comparison = rung.comparison
    phases = {measure.phase: measure for measure in rung.phases}
    return KernelRow(
        arm=rung.arm,
        value=_value(rung.total, divisor) if rung.total else "none",
        phases=tuple(
            _value(phases[name], divisor) if name in phases else "none"
            for name in (ladder.phases if len(ladder.phases) > 1 else ())
        ),
        against=_against(found, comparison) if comparison and rung.total else _alone(rung),
        verdict=comparison.verdict if comparison else "",
        n=f"{rung.ok} of {rung.planned}",
        state=rung.state,
        reasons=comparison.reasons if comparison and comparison.verdict != "SAME" else (),
    )


def _value(measure: Any, divisor: float) -> str:
    return number(measure.per_operation / divisor)


def _alone(rung: Rung[Any]) -> str:
    if rung.skipped:
        return "not supported there"
    return "the same kernel again" if rung.control else "the first" if rung.total else "failed"


def _against(found: Claim, comparison: Comparison) -> str:
    words = effort(comparison, timed=found.timed)
    if comparison.ratio is None:
        return words
    text = f"x{comparison.ratio:.3f}, {words}"
    if comparison.interval:
        low, high = comparison.interval
        text += f" ({level(comparison.alpha)} interval {low:.3f} to {high:.3f})"
    return text + (f"; {comparison.crossing}" if comparison.crossing else "")


def _builds(ladder: Ladder[Any]) -> Iterator[str]:
    for rung in ladder.rungs:
        if rung.previous and rung.comparison and rung.comparison.differences:
            yield f"{rung.previous} to {rung.arm}: {', '.join(rung.comparison.differences)}"


def _renamed(explained: Explanation | None) -> str:
    shown = [row.function for row in _telling(explained)] if explained else ()
    return renamed(explained, shown) if explained else ""


def _telling(explained: Explanation) -> list[FunctionDelta]:
    return [row for row in explained.functions if abs(row.share or 0) >= _SMALL]


def _functions(explained: Explanation | None) -> Iterator[FunctionRow]:
    """Those that matter, then all others as one, so that the table adds up."""
    if explained is None or explained.refused:
        return
    longest = max((abs(row.delta) for row in explained.functions), default=0) or 1
    shown = _telling(explained)
    rest = explained.functions[len(shown) :]
    for row in shown:
        calls = f"{_calls(row.calls_old, explained)} to {_calls(row.calls_new, explained)}"
        told = f"{calls} {row.status}".strip()
        counts = row.old, row.new, row.delta
        yield _function(row.function, counts, explained, told, 1 / longest)
    if rest:
        old, new = sum(row.old or 0 for row in rest), sum(row.new or 0 for row in rest)
        name = plural(len(rest), "other")
        yield _function(name, (old, new, new - old), explained, "", 1 / longest)
    counts = explained.old_value, explained.new_value, explained.delta or 0
    yield _function("sum", counts, explained, "", 0)


def _function(
    name: str,
    counts: tuple[int | None, int | None, int],
    explained: Explanation,
    calls: str,
    by: float,
) -> FunctionRow:
    """by: what a bar is long for each instruction, of 1."""
    old, new, delta = counts
    per = explained.operations
    share = 100 * delta / explained.delta if explained.delta else 0.0
    return FunctionRow(
        name=name,
        old="none" if old is None else number(old / per),
        new="none" if new is None else number(new / per),
        change=more(delta / per),
        share=f"{share:z.1f} %",
        calls=calls,
        bar=round(_BAR * abs(delta) * by, 2),
        worse=delta > 0,
    )


def _calls(calls: int | None, explained: Explanation) -> str:
    if calls is None:
        return "none"
    each = calls / explained.operations
    return "<0.001" if 0 < each < 0.001 else f"{each:.3g}"


def _kernels(found: Claim) -> Sequence[tuple[str, ...]]:
    """Of each: name, release, package, compiler, build id, image."""
    told = {}
    identities = {arm.label: arm.kernel for arm in found.record.arms}
    for ladder in found.report.ladders:
        for rung in ladder.rungs:
            kernel = identities.get(rung.arm)
            told[rung.arm] = (
                rung.arm,
                rung.release or UNKNOWN,
                rung.version or "none",
                compiler_short(rung.compiler) or UNKNOWN,
                rung.build_id[:16] or UNKNOWN,
                (kernel.image_sha256[:16] if kernel else "") or UNKNOWN,
            )
    return tuple(told.values())
