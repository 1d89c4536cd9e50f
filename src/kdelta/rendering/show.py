# SPDX-License-Identifier: GPL-2.0-or-later
"""What `kdelta show` prints of a counted run, as text, JSON and CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kdelta.analysis.evidence import ITERATION, Measure, State
from kdelta.analysis.findings import Failure, Ladder, LadderStep, Machine, Report, Rung
from kdelta.analysis.variants import conclusions
from kdelta.metric import number
from kdelta.rendering import figures, metrics
from kdelta.rendering.columns import (
    ABSENT,
    VERDICT_TONES,
    WIDTH,
    Column,
    Line,
    Span,
    Tone,
    paragraph,
    short,
    shortened,
    table_lines,
    table_width,
    tables_that_fit,
)
from kdelta.rendering.formats import Cell, csv_text, json_text
from kdelta.rendering.overview import overview
from kdelta.sample import TOTAL, Outcome
from kdelta.stats.exact import LocationKind
from kdelta.stats.verdict import Verdict

_HEAD = (
    "run",
    "workload",
    "scenario",
    "point",
    "arm",
    "release",
    "package",
    "phase",
    "operation",
    "operations",
    "instructions",
    "instructions_user",
    "instructions_kernel",
    "per_operation",
    "location",
    "share",
    "windows",
    "minimum",
    "maximum",
    "deviation",
    "trials",
    "trials_agreeing",
    "trials_range",
    "first",
    "ratio_first",
    "previous",
    "ratio_previous",
    "state",
    "trials_ok",
    "trials_planned",
    "verdict",
    "grade",
    "reasons",
)


def show(report: Report) -> list[Line]:
    """What `kdelta show` prints."""
    lines = list(paragraph(report.title, Tone.BOLD))
    facts = (
        f"run {report.run_id}, study {report.name}, {report.created}, seed {report.seed},"
        f" rounds {report.rounds}, kdelta {report.kdelta_version}"
    )
    lines += paragraph(facts)
    if report.done < report.planned:
        state = f"{report.done}/{report.planned} trials done; resume with: kdelta resume "
        lines += paragraph(state + report.run_id, Tone.WARN)
    lines += overview(report.ladders, number)
    for ladder in report.ladders:
        lines += [(), *_ladder(report, ladder)]
    if len(report.ladders) > 1:
        known = {rung.arm: rung for each in report.ladders for rung in each.rungs if rung.compiler}
        every = {rung.arm: rung for each in report.ladders for rung in each.rungs}
        lines += [(), *_kernels(list({**every, **known}.values()))]
    lines += metrics.show(report.metrics)
    lines += figures.show(report.figures)
    if report.done:
        lines += [*_findings(report), *limits_of(report.limits)]
    return lines


def _findings(report: Report) -> Iterator[Line]:
    """A sentence for each of several scenarios; one alone has said it already."""
    known = [ladder for ladder in report.ladders if ladder.operation is not None]
    if len(known) < 2:
        return
    yield from ((), *paragraph("Findings", Tone.BOLD))
    for ladder in known:
        name = f"{ladder.workload}:{ladder.scenario} {ladder.point}".strip()
        found = [gap.removesuffix(".")] if (gap := _gap(ladder)) else []
        found += [f"{step.old} -> {step.new} {_change(step)}" for step in ladder.steps]
        said = "; ".join(found) or _no_step(report, ladder).removesuffix(".")
        yield from paragraph(f"- {name}: {said}.")
    for sentence_ in conclusions(known):
        yield from paragraph(f"- {sentence_}.", Tone.BOLD)


def limits_of(limits: Sequence[str]) -> Iterator[Line]:
    """What a run cannot say, as a list."""
    if limits:
        yield from ((), *paragraph("Limits", Tone.BOLD))
    for sentence in limits:
        yield from paragraph(f"- {sentence}")


def _ladder(report: Report, ladder: Ladder) -> Iterator[Line]:
    at = f", {ladder.point}" if ladder.point else ""
    yield from paragraph(f"{ladder.workload}:{ladder.scenario}{at}", Tone.BOLD)
    yield from _machines(ladder.machines)
    if ladder.operation is None:
        yield from paragraph("nothing measured yet" if not ladder.done else "nothing measured")
    else:
        yield from paragraph(
            f"instructions retired by the guest, user + kernel, {_unit(ladder)};"
            " path length, never a time"
        )
    yield ()
    yield from _ladder_tables(ladder)
    yield from _legend(ladder)
    yield from _problems(ladder)
    if ladder.operation is not None:
        yield ()
        yield from _steps(report, ladder)
    if len(report.ladders) == 1:
        yield from ((), *_kernels(ladder.rungs))


def _unit(ladder: Ladder) -> str:
    if ladder.operation != ITERATION:
        return f"per {ladder.operation}"
    phases = next(rung.phases for rung in ladder.rungs if rung.phases)
    units = ", ".join(f"{measure.phase} per {measure.operation}" for measure in phases)
    return f"total per iteration, {units}"


def _machines(machines: Sequence[Machine]) -> Iterator[Line]:
    for machine in machines:
        env = machine.environment
        text = (
            f"QEMU {env.qemu_version}, {env.accelerator}, {env.machine}, cpu {env.cpu_model},"
            f" {env.cpus} CPU{'s' * (env.cpus != 1)}, {env.memory_mib} MiB"
        )
        alone = len(machines) == 1
        yield from paragraph(
            text if alone else f"{text}: {', '.join(machine.arms)}",
            Tone.PLAIN if alone else Tone.WARN,
        )


def _ladder_tables(ladder: Ladder) -> Iterator[Line]:
    """One table, or two when the phases do not fit beside the rest."""
    labels = shortened([rung.arm for rung in ladder.rungs], 24)
    names = Column("kernel", tuple(Span(label, Tone.BOLD) for label in labels))
    total = Column("total", tuple(_value(rung.total) for rung in ladder.rungs), right=True)
    phases = [_phase_column(ladder, phase) for phase in ladder.phases]
    rest = _rest_columns(ladder)
    if len(phases) == 1:
        phases = []  # it is the total
    whole = [names, total, *phases, *rest]
    if table_width(whole) <= WIDTH:
        yield from table_lines(whole)
        return
    yield from table_lines([names, total, *rest])
    if phases:
        yield ()
        yield from tables_that_fit([names], phases)


def _phase_column(ladder: Ladder, phase: str) -> Column:
    measures = (
        next((measure for measure in rung.phases if measure.phase == phase), None)
        for rung in ladder.rungs
    )
    return Column(short(phase, 16), tuple(_value(m) for m in measures), right=True)


def _rest_columns(ladder: Ladder) -> list[Column]:
    rungs = ladder.rungs
    ratios = [rung.ratio(TOTAL) for rung in rungs]
    against = [Column("x first", tuple(Span(_ratio(ratio.first)) for ratio in ratios), right=True)]
    if not ladder.baseline:
        previous = tuple(Span(_ratio(ratio.previous)) for ratio in ratios)
        against.append(Column("x prev", previous, right=True))
    elif any(rung.gap_closed is not None for rung in rungs):
        closed = [ABSENT if r.gap_closed is None else f"{r.gap_closed:.0%}" for r in rungs]
        against.append(Column("gap closed", tuple(Span(text) for text in closed), right=True))
    return [
        *against,
        Column("mode", tuple(_share(rung.total) for rung in rungs), right=True),
        Column("state", tuple(_state(rung.state) for rung in rungs)),
        Column("n", tuple(_trials(rung) for rung in rungs)),
        Column("verdict", tuple(_verdict(rung) for rung in rungs)),
    ]


def _share(total: Measure | None) -> Span:
    return Span(f"{total.share:.0%}" if total else ABSENT)


def _state(state: State) -> Span:
    tones = {State.FAILED: Tone.BAD, State.UNKNOWN: Tone.WARN}
    return Span(ABSENT if state is State.ABSENT else state, tones.get(state, Tone.PLAIN))


def _trials(rung: Rung) -> Span:
    tone = Tone.PLAIN if rung.ok == rung.planned else Tone.WARN
    return Span(f"{rung.ok}/{rung.planned}", tone)


def _verdict(rung: Rung) -> Span:
    comparison = rung.comparison
    if comparison is None:
        return Span("skip" if rung.skipped else ABSENT)
    return Span(comparison.verdict, VERDICT_TONES[comparison.verdict])


def _value(measure: Measure | None) -> Span:
    if measure is None:
        return Span(ABSENT)
    mark = "~" if measure.kind is LocationKind.MEDIAN else ""
    return Span(mark + number(measure.per_operation))


def _ratio(ratio: float | None) -> str:
    if ratio is None:
        return ABSENT
    return f"x{ratio:.3f}" if ratio < 10 else f"x{ratio:.4g}"


def _legend(ladder: Ladder) -> Iterator[Line]:
    first = next((rung.first for rung in ladder.rungs if rung.first), None)
    if first is None:
        return
    above = f"{ladder.baseline} to this one" if ladder.baseline else "the row above"
    ratios = f"x first, x prev: new/old against {first} and against the row above;"
    text = (
        f"{f'x first: new/old against {first};' if ladder.baseline else ratios}"
        " mode: share of windows with exactly the shown count, in the phase where it is lowest;"
        f" n: trials ok/planned, {ladder.replicates}; verdict: of the step from {above},"
        " grade exact-path"
    )
    if any(rung.gap_closed is not None for rung in ladder.rungs):
        text += "; gap closed: of the study's gap, by this kernel"
    if any(measure.kind is LocationKind.MEDIAN for rung in ladder.rungs for measure in rung.phases):
        text += "; ~: median, no exact count"
    yield from paragraph(text, Tone.FAINT)


def _problems(ladder: Ladder) -> Iterator[Line]:
    blocks = [
        *(
            paragraph(text, Tone.FAINT if text.startswith("skipped") else Tone.BAD)
            for text in _failures(ladder.failures)
        ),
        *(
            paragraph(
                f"{rung.arm}: {rung.comparison.verdict}: {reason.removeprefix(f'{rung.arm}: ')}",
                Tone.WARN,
            )
            for rung in ladder.rungs
            if rung.comparison and rung.comparison.verdict in (Verdict.INVALID, Verdict.UNDECIDED)
            for reason in rung.comparison.reasons
        ),
        *(paragraph(f"warning: {warning}", Tone.WARN) for warning in ladder.warnings),
    ]
    if blocks:
        yield ()
    for block in blocks:
        yield from block


def _failures(failures: Sequence[Failure]) -> Iterator[str]:
    """One sentence for each way that an arm failed; it names the trials that failed so."""
    alike: dict[tuple[str, str, str], list[Failure]] = {}
    for failure in failures:
        alike.setdefault((failure.arm, failure.outcome, failure.reason), []).append(failure)
    for (arm, outcome, reason), group in alike.items():
        trials = ", ".join(str(failure.trial) for failure in group)
        many = len(group) > 1
        console = next((f"trial {f.trial}: {f.console}" for f in group if f.console), "")
        if outcome == Outcome.SKIP:
            yield f"skipped: trial{'s' * many} {trials} ({arm}): {reason}"
            continue
        yield (
            f"failed: trial{'s' * many} {trials} ({arm}): {outcome}:"
            f" {reason or 'no reason was recorded'}"
            + (f"; console of {console}" if console else "")
        )


def _gap(ladder: Ladder) -> str:
    """What there is to close in a scenario of a study with a gap, "" in others."""
    good = next((rung for rung in ladder.rungs if ladder.goal == rung.arm), None)
    bad = next((rung for rung in ladder.rungs if ladder.baseline == rung.arm), None)
    if not good or not bad or not good.total or not bad.total or not good.comparison:
        return ""
    was, now = good.total.per_operation, bad.total.per_operation
    change = f"from {good.arm} to {bad.arm}, {number(was)} -> {number(now)}"
    change += f" instructions per {bad.total.operation}, {_ratio(now / was)}"
    if good.comparison.verdict is Verdict.IMPROVEMENT:
        return f"The gap to close is {change}."
    return f"There is no gap to close {change}."


def _steps(report: Report, ladder: Ladder) -> Iterator[Line]:
    if gap := _gap(ladder):
        yield from paragraph(gap, Tone.BOLD)
    if not ladder.steps:
        yield from paragraph(_no_step(report, ladder), Tone.BOLD)
    else:
        largest, *others = ladder.steps
        name = f"The step is between {largest.old} and {largest.new}: "
        if ladder.baseline:
            name = f"{largest.old} -> {largest.new}: "
        yield from paragraph(name + _change(largest) + ".", Tone.BOLD)
        if others:
            what = "Others" if ladder.baseline else "Other steps"
            yield from paragraph(f"{what} above {report.step_percent:g} %:")
        for step in others:
            yield from paragraph(f"{step.old} -> {step.new}: {_change(step)}", indent="  ")
        scenario = f" --scenario {ladder.scenario}" if len(report.ladders) > 1 else ""
        scenario += f" --point '{ladder.point}'" if ladder.point else ""
        yield from paragraph(
            f"Its functions: kdelta explain {report.run_id} {largest.old} {largest.new}{scenario}"
        )


def _no_step(report: Report, ladder: Ladder) -> str:
    others = [rung for rung in ladder.rungs if rung.arm != ladder.goal]
    found = [rung.comparison.verdict for rung in others if rung.comparison]
    same = found.count(Verdict.SAME)
    if not found:
        return "No step can be named: there is no pair of kernels to compare."
    if same == len(found):
        return (
            f"No step: no kernel differs from {ladder.baseline or 'the one above'} by more than"
            f" {report.step_percent:g} %."
        )
    open_pairs = ", ".join(
        f"{found.count(verdict)} {verdict}"
        for verdict in (Verdict.SAME, Verdict.UNDECIDED, Verdict.INVALID)
        if verdict in found
    )
    return (
        f"No step above {report.step_percent:g} % was found, and not every pair is decided:"
        f" {open_pairs}."
    )


def _change(step: LadderStep) -> str:
    values = f"{number(step.old_value)} -> {number(step.new_value)}"
    ratio = f", {_ratio(step.comparison.ratio)}" if step.comparison.ratio is not None else ""
    claim = f"({step.comparison.verdict}, {step.comparison.grade})"
    return f"{values} instructions per {step.operation}{ratio} {claim}"


def _kernels(rungs: Sequence[Rung]) -> Iterator[Line]:
    columns = [
        Column("kernel", tuple(map(Span, shortened([rung.arm for rung in rungs], 24)))),
        Column("release", tuple(Span(short(rung.release, 36) or ABSENT) for rung in rungs)),
        Column("package", tuple(Span(short(rung.version, 24) or ABSENT) for rung in rungs)),
        Column("compiler", tuple(Span(short(rung.compiler, 10) or ABSENT) for rung in rungs)),
    ]
    yield from table_lines(columns)


def show_json(report: Report) -> str:
    """The report as JSON, format 1, every field of Report and what it holds."""
    return json_text("show", report)


def show_csv(report: Report) -> str:
    """One row for each scenario, kernel and phase, the sum of the phases last (RFC 4180)."""
    rows: list[Sequence[Cell]] = []
    for ladder in report.ladders:
        for rung in ladder.rungs:
            measures = (*rung.phases, rung.total) if rung.total else (None,)
            rows += [_row(report, ladder, rung, measure) for measure in measures]
    return csv_text(_HEAD, rows)


def _row(report: Report, ladder: Ladder, rung: Rung, measure: Measure | None) -> tuple[Cell, ...]:
    comparison = rung.comparison
    phase = measure.phase if measure else TOTAL
    ratios = rung.ratio(phase)
    counts: tuple[Cell, ...] = (None,) * 14
    if measure:
        counts = (
            measure.operation,
            measure.operations,
            measure.value,
            measure.user,
            measure.kernel,
            measure.per_operation,
            measure.kind,
            measure.share,
            measure.windows,
            measure.minimum,
            measure.maximum,
            measure.deviation,
            measure.trials,
            measure.agree,
        )
    # The verdict is on the sum of the phases, so only that row carries it.
    verdict = comparison if phase == TOTAL else None
    return (
        report.run_id,
        ladder.workload,
        ladder.scenario,
        ladder.point,
        rung.arm,
        rung.release,
        rung.version,
        phase,
        *counts,
        measure.trials_range if measure else None,
        rung.first,
        ratios.first,
        rung.previous,
        ratios.previous,
        rung.state,
        rung.ok,
        rung.planned,
        verdict.verdict if verdict else None,
        verdict.grade if verdict else None,
        "; ".join(verdict.reasons) if verdict else None,
    )
