# SPDX-License-Identifier: GPL-2.0-or-later
"""What `kdelta show` prints of a run: ladders, figures, a survey, traces; text, JSON and CSV."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from kdelta.analysis.findings import (
    FigureTable,
    HitsCell,
    HitsRow,
    MetricCell,
    MetricTable,
    Report,
    RunTraces,
    TraceTable,
)
from kdelta.errors import SpecError
from kdelta.ladder.counts import Measure
from kdelta.ladder.ladders import Ladder, LadderStep, Rung
from kdelta.metric import number, plural
from kdelta.probes.calls import PathNode
from kdelta.procfs import compiler_short
from kdelta.rendering import times
from kdelta.rendering.formats import COUNTED, Cell, View, json_fields, picked
from kdelta.sample import TOTAL, Instrument
from kdelta.study import spec
from kdelta.table import counts
from kdelta.table.columns import (
    ABSENT,
    CROSSED,
    VERDICT_TONES,
    Column,
    Line,
    Span,
    Tone,
    builds_apart,
    crossed_by,
    first_that_fits,
    headline,
    paragraph,
    short,
    shortened,
    table_of,
    tables_that_fit,
)
from kdelta.table.ladders import LadderView, page
from kdelta.verdict.comparison import LEAST_SEEDS, Verdict
from kdelta.workload import is_file

if TYPE_CHECKING:
    from kdelta.analysis.calls import Cause
    from kdelta.analysis.lab import Survey, SurveyCell, SurveyRow, SurveyStep

_SUBJECT = 80  # columns of a commit's label and subject
_CALLS = 8  # of which the function is told
_Data = Callable[[Any], dict[str, Any]]
_Rows = Callable[[Any], Iterator[tuple[Cell, ...]]]
Kept = Callable[[int, str], Sequence[PathNode]]
_PAGES: dict[Instrument, LadderView] = {Instrument.EXACT: counts, Instrument.TIME: times}


def show(report: Report[Any], *, details: bool = True, kept: Kept | None = None) -> list[Line]:
    """The whole page, or without what the answer rests on.  kept: call paths that the run has."""
    tables = [*show_metrics(report.metrics), *show_figures(report.figures)]
    instrument = report.record.instrument
    tables += _calls(report.ladders, details=details) if instrument.traits.repeats else []
    with suppress(SpecError):  # of a run that was told to keep them, and did not
        tables += [*_within(report, kept, details=details)] if kept else []
    lines = page(report, _PAGES[instrument], tables, details=details)
    lines += _details(report) if details else _where_more(report.run_id)
    return [*lines, *_deciding(report)]


def _where_more(run_id: str) -> Iterator[Line]:
    told = f"machine, legend, builds, limits: `kdelta show {run_id} --details`"
    yield from ((), *paragraph(told, Tone.FAINT))


def _deciding(report: Report[Any]) -> Iterator[Line]:
    """The command that counts what lacks seeds again, where it needs no more words than these."""
    study = report.record.study
    every = [(one, rung) for one in (*report.ladders, *report.beside) for rung in one.rungs]
    few = [one for one, rung in every if rung.comparison and rung.comparison.few_seeds]
    usual = spec.from_arguments(study.scenarios, study.kernels, rounds=study.plan.rounds)
    if replace(usual, name=study.name, title=study.title) == study:
        names = dict.fromkeys(one.reference for one in few if not is_file(one.workload))
        words = [*names, "--kernels", ",".join(study.kernels), "--rounds", f"{LEAST_SEEDS}"]
        told = f"With {LEAST_SEEDS} seeds: `kdelta run {shlex.join(words)}`"
        yield from ((), *paragraph(told)) if names else ()


def _details(report: Report[Any]) -> Iterator[Line]:
    """On what the page rests."""
    yield from _facts(report)
    if _PAGES[report.record.instrument].COUNTED:
        known = {
            rung.label: rung
            for each in report.ladders
            for rung in each.rungs
            if rung.kernel.compiler
        }
        every = {rung.label: rung for each in report.ladders for rung in each.rungs}
        yield from ((), *_kernels(list({**every, **known}.values()), report.record.subjects))
    if report.done:
        yield from _limits(report)


def _facts(report: Report[Any]) -> Iterator[Line]:
    """What run it was."""
    run = report.record
    yield from ((), *paragraph(run.title or run.name, Tone.BOLD))
    yield from paragraph(
        f"run {run.run_id}, study {run.name}, {run.created}, seed {run.seed},"
        f" rounds {run.rounds}, kdelta {run.kdelta_version}"
    )


def _limits(report: Report[Any]) -> Iterator[Line]:
    yield from ((), *paragraph("Limits", Tone.BOLD)) if report.limits else ()
    for sentence in report.limits:
        yield from paragraph(f"- {sentence}")


def _kernels(rungs: Sequence[Rung[Any]], subjects: Mapping[str, str]) -> Iterator[Line]:
    names = shortened([rung.label for rung in rungs], 24)
    banners = (compiler_short(rung.kernel.compiler) for rung in rungs)
    columns = [
        Column("release", (short(rung.kernel.release, 36) or ABSENT for rung in rungs)),
        Column("package", (short(rung.kernel.version, 24) or ABSENT for rung in rungs)),
        Column("compiler", (short(banner, 10) or ABSENT for banner in banners)),
    ]
    yield from tables_that_fit([Column("kernel", names)], columns)
    for rung, name in zip(rungs, names, strict=True):
        if rung.label in subjects:
            yield (Span(headline(f"{name}: {subjects[rung.label]}", _SUBJECT)),)


def document(report: Report[Any]) -> tuple[str, dict[str, Any]]:
    """See formats.View."""
    kind, data, _, _ = _FIELDS[report.record.instrument]
    return kind, {
        **picked(report.record, _RUN_FIELDS),
        **data(report),
        "subjects": report.record.subjects,
    }


def table(report: Report[Any]) -> tuple[Sequence[str], Iterator[Sequence[Cell]]]:
    """One row for each scenario, kernel and phase, the sum of the phases last; then one for each
    scenario and kernel whose lines were counted.  Its last cell is what the arm's commit is called.
    """
    _, _, head, rows = _FIELDS[report.record.instrument]
    arm = head.index("arm")
    told = ((*row, report.record.subjects.get(str(row[arm]), "")) for row in rows(report))
    return (*head, "subject"), told


_RUN_FIELDS = ("run_id", "name", "title", "created", "seed", "rounds", "kdelta_version")
_REPORT_FIELDS = ("step_percent", "ladders", "done", "planned", "metrics", "figures", "limits")
_LADDER_FIELDS = (
    "workload", "scenario", "point", "baseline", "goal", "phases", "operation", "rungs",
    "failing", "steps", "warnings", "beside", "failures", "machines", "replicates", "done",
    "planned",
)  # fmt: skip
_RUNG_FIELDS = (
    "arm", "reference", "release", "version", "build_id", "compiler", "total", "phases",
    "first", "previous", "ratios", "state", "ok", "done", "planned", "skipped", "comparison",
    "gap_closed",
)  # fmt: skip
_STEP_FIELDS = ("old", "new", "old_value", "new_value", "operation", "comparison")
_WINDOW = (
    "operation", "operations", "value", "user", "kernel", "per_operation", "kind", "share",
    "windows", "minimum", "maximum", "deviation",
)  # fmt: skip
_INSTRUCTIONS = ("value", "user", "kernel")
_COUNT_HEAD: tuple[str, ...] = (
    "run", "workload", "scenario", "point", "arm", "release", "package", "phase",
    "operation", "operations", "instructions", "instructions_user", "instructions_kernel",
    "per_operation", "location", "share", "windows", "minimum", "maximum", "deviation",
    "layouts", "layouts_hit",
    "trials", "trials_agreeing", "trials_range", "first", "ratio_first", "previous",
    "ratio_previous", "state", "trials_ok", "trials_planned", "verdict", "grade", "reasons",
)  # fmt: skip


def _count_data(report: Report[Measure]) -> dict[str, Any]:
    data = picked(report, _REPORT_FIELDS, ladders=[*map(_ladder_data, report.ladders)])
    return data | ({"lines": [*map(_ladder_data, report.beside)]} if report.beside else {})


def _ladder_data(ladder: Ladder[Measure]) -> dict[str, Any]:
    return picked(
        ladder,
        _LADDER_FIELDS,
        rungs=[
            picked(
                rung,
                _RUNG_FIELDS,
                **picked(rung.kernel, ("reference", "release", "version", "build_id")),
                arm=rung.label,
                compiler=compiler_short(rung.kernel.compiler),
                planned=len(rung.trials),
                skipped=bool(rung.skipped),
                comparison=picked(rung.comparison, COUNTED) if rung.comparison else None,
            )
            for rung in ladder.rungs
        ],
        steps=[*map(_step_data, ladder.steps)],
        machines=[picked(machine, ("environment", "arms")) for machine in ladder.machines],
    )


def _step_data(step: LadderStep) -> dict[str, Any]:
    return picked(step, _STEP_FIELDS, comparison=picked(step.comparison, COUNTED))


def answer(
    kind: str, told: Sequence[str], scenario: str = "", step: LadderStep | None = None, **own: Any
) -> dict[str, Any]:
    """What `why` and `ask` answer, as JSON.  step: between the two kernels that were asked for."""
    asked = {"sentences": told, "scenario": scenario, "step": step and _step_data(step)}
    return json_fields(kind, asked | own)


def _count_rows(report: Report[Measure]) -> Iterator[tuple[Cell, ...]]:
    every = (*report.ladders, *report.beside)
    for ladder, rung in ((each, rung) for each in every for rung in each.rungs):
        of_lines = ladder.unit == "lines"
        for measure in (*rung.phases, rung.total) if rung.total else (None,):
            phase = measure.phase if measure else TOTAL
            ratios = rung.ratio(phase)
            layouts = measure.layouts if measure else None
            known = {name: getattr(measure, name, None) for name in _WINDOW}
            known |= dict.fromkeys(_INSTRUCTIONS) if of_lines else {}
            # The verdict is on the sum of the phases, so only that row carries it.
            verdict = rung.comparison if phase == TOTAL else None
            yield (
                report.run_id, ladder.workload, ladder.scenario, ladder.point, rung.label,
                rung.kernel.release, rung.kernel.version, ladder.unit if of_lines else phase,
                *known.values(),
                len(layouts.counts) if layouts else None, layouts.hit if layouts else None,
                *(getattr(measure, name, None) for name in ("trials", "agree", "trials_range")),
                rung.first, ratios.first, rung.previous, ratios.previous,
                rung.state, rung.ok, len(rung.trials),
                getattr(verdict, "verdict", None), getattr(verdict, "grade", None),
                "; ".join(verdict.reasons) if verdict else None,
            )  # fmt: skip


# Of each instrument the kind and the fields of JSON, the head and the rows of CSV.
_FIELDS: dict[Instrument, tuple[str, _Data, tuple[str, ...], _Rows]] = {
    Instrument.EXACT: ("show", _count_data, _COUNT_HEAD, _count_rows),
    Instrument.TIME: ("show-time", times.data, times.HEAD, times.rows),
}


def _calls(ladders: Sequence[Ladder[Measure]], *, details: bool) -> Iterator[Line]:
    """Without details of the calls that changed, and all others as one; of one kernel of all."""

    def row(
        call: str, often: Sequence[int | None], total: Sequence[int], mark: str = ""
    ) -> tuple[str, ...]:
        calls = " -> ".join(str(n or ABSENT) for n in dict.fromkeys(often))
        each = (f"{n / of:,.0f}" if of else ABSENT for n, of in zip(total, often, strict=True))
        delta = [f"{mark}{total[-1] - total[0]:+,}"] * (len(total) - 1)
        return (call, calls, *each, *(f"{n:,}" for n in total), *delta)

    for ladder in ladders:
        for arms, measures, spent in counts.by_call(ladder):
            rows, equal = [], []
            for call, total in spent:
                often = [one.syscalls.get(call) for one in measures]
                if details or len({*total}) != 1 or len(total) < 2 or len({*often}) > 1:
                    mark = "~" * (len(total) > 1 and counts.by_chance(measures, call))
                    rows.append(row(call, often, total, mark))
                else:
                    equal.append(total)
            if rows:
                sums = {"[equal on both]": equal, "[in all]": [total for _, total in spent]}
                added = {name: [*map(sum, zip(*of, strict=True))] for name, of in sums.items()}
                rows += [row(name, [None] * len(of), of) for name, of in added.items() if of]
            sides = ("old", "new") if len(arms) > 1 else ("",)
            named = ", ".join(
                f"{arm} {side}".strip() for arm, side in zip(arms, sides, strict=True)
            )
            told = f"instructions of one window of {measures[0].phase} by system call, {named}:"
            each = [f"each {side}".strip() for side in sides]
            heads = ("call", "calls", *each, *(side or "total" for side in sides))
            heads += ("delta",) * (len(arms) - 1)
            if rows:
                table = table_of(heads, rows, right=heads[1:])
                yield from ((), *paragraph(told, Tone.BOLD), *table)
                if any("~" in one[-1] for one in rows):
                    yield from ((), *paragraph("~: the seeds move it as far as the kernels do"))


def _within(report: Report[Measure], kept: Kept, *, details: bool) -> Iterator[Line]:
    """The function behind each system call, by the call paths; without details of the first."""
    from kdelta.analysis.calls import window_of, within
    from kdelta.rendering.explain import Scale, cause_sentence

    def row(call: str, told: tuple[Cause | None, int, tuple[str, int]]) -> tuple[str, str, str]:
        cause, outside, (function, insns) = told
        if cause and abs(cause.delta) >= abs(outside):
            return call, f"{cause.delta:+,}", cause_sentence(cause, Scale(1, 0))
        if outside:
            return call, f"{outside:+,}", "on the way in and out"
        return call, f"{insns:,}", function

    for ladder in report.ladders:
        for _, measures, spent in counts.by_call(ladder):
            windows = [window_of(report.record, one) for one in measures]
            trees = [kept(*window) for window in windows if window]
            rows = []
            for call, total in spent:
                often = [one.syscalls.get(call, 0) for one in measures]
                told = within(call, [*zip(trees, often, total, strict=True)])
                chance = not details and len(total) > 1 and counts.by_chance(measures, call)
                rows += [row(call, told)] if told and not chance else []
            if rows := rows if details else rows[:_CALLS]:
                changed = "changed most (with its sign), or " * (len(measures) > 1)
                head = f"function of each that {changed}takes most:"
                table = table_of(("call", "of it", "function"), rows, right=("of it",))
                yield from ((), *paragraph(head, Tone.BOLD), *table)


def show_metrics(tables: Sequence[MetricTable]) -> list[Line]:
    """All tables, each after an empty line; no lines when there are none."""
    return [line for table in tables for line in ((), *_metric_lines(table))]


def _metric_lines(table: MetricTable) -> Iterator[Line]:
    at = f", {table.point}" if table.point else ""
    rows, arms = table.rows, shortened(table.arms, 24)
    names = [row.name if row.unit == "1" else f"{row.name} ({row.unit})" for row in rows]
    yield from paragraph(f"{table.workload}:{table.scenario}{at}: what it tells", Tone.BOLD)
    columns = [
        Column(short(name, 40), map(_both, row.cells), right=True)
        for name, row in zip(names, rows, strict=True)
    ]
    yield from tables_that_fit([Column("kernel", arms, Tone.BOLD)], columns)
    against = f"; x: new/old against {table.arms[0]}" * (len(arms) > 1)
    yield from paragraph(f"median [range] over the trials that ended ok{against}", Tone.FAINT)
    for text in _absences([table]):
        yield from paragraph(f"absent: {text}", Tone.WARN)


def _both(cell: MetricCell) -> str:
    value, ratio = _metric_value(cell), _ratio(cell)
    return value if ratio in (ABSENT, "x1.000") else f"{value} {ratio}"


def _metric_value(cell: MetricCell) -> str:
    if cell.median is None or cell.minimum is None or cell.maximum is None:
        return "absent" if cell.absent else ABSENT
    if cell.minimum == cell.maximum:
        return _metric_number(cell.median)
    median, *ends = map(_metric_number, (cell.median, cell.minimum, cell.maximum))
    return f"{median} [{'-'.join(ends)}]"


def _metric_number(value: float) -> str:
    whole = 1e4 <= abs(value) < 1e15 or value == round(value)
    return f"{value:,.0f}" if whole else f"{value:,.4g}"


def _ratio(cell: MetricCell | HitsCell) -> str:
    return ABSENT if cell.ratio is None else f"x{cell.ratio:.3f}"


def show_figures(tables: Sequence[FigureTable]) -> list[Line]:
    """A table for each scenario, its arms at all points below each other; no lines for none."""
    groups: dict[tuple[str, str], list[FigureTable]] = {}
    for table in tables:
        groups.setdefault((table.workload, table.scenario), []).append(table)
    lines: list[Line] = []
    for (workload, scenario), group in groups.items():
        lines += [(), *paragraph(f"{workload}:{scenario}: figures of the study", Tone.BOLD)]
        lines += _figure_group(group)
    if tables:
        lines.append(())
    # What the figures mean, where the study says it.
    for row in tables[0].rows if tables else ():
        if row.what:
            lines += paragraph(f"{row.name}: {' '.join(row.what.split())}", Tone.FAINT)
    return lines


def _figure_group(group: Sequence[FigureTable]) -> Iterator[Line]:
    arms = [(table.point, arm) for table in group for arm in table.arms]
    names = [Column("kernel", shortened([arm for _, arm in arms], 24), Tone.BOLD)]
    if any(point for point, _ in arms):
        names.append(Column("machine", (short(point, 28) for point, _ in arms)))
    columns = []
    for at, row in enumerate(group[0].rows):
        cells = [cell for table in group for cell in table.rows[at].cells]
        shown = (ABSENT if one.value is None else _metric_number(one.value) for one in cells)
        columns.append(Column(short(row.name, 40), shown, right=True))
    if columns:
        yield from tables_that_fit(names, columns)
    for text in _absences(group):
        yield from paragraph(f"absent: {text}", Tone.FAINT)


def _absences(tables: Sequence[MetricTable | FigureTable]) -> Iterator[str]:
    """Why values are absent, a sentence for each reason: of which arms, unless it is all of them,
    and which values, unless it is all.
    """
    alike: dict[str, dict[str, set[str]]] = {}
    for table in tables:
        for row in table.rows:
            for cell in row.cells:
                arm = f"{cell.arm} {table.point}".strip()
                reasons = (cell.absent,) if isinstance(cell.absent, str) else cell.absent
                for reason in filter(None, reasons):
                    alike.setdefault(reason, {}).setdefault(arm, set()).add(row.name)
    every = {row.name for row in tables[0].rows}
    for reason, arms in alike.items():
        names = set().union(*arms.values())
        which = "" if names == every else f"{', '.join(sorted(names))}: "
        yield f"{which}{', '.join(arms)}: {reason}"


_NAME_WIDTHS: Final = (34, 28)
_KERNEL_WIDTH: Final = 16
_NOTES = {"skip": Tone.FAINT, "invalid": Tone.WARN, "failed": Tone.BAD, "not run": Tone.WARN}
_SAME = "."
_LAID_OUT = "#"
_UNDECIDED = "?"


def show_survey(found: Survey, *, details: bool = True) -> list[Line]:
    """What `kdelta survey` prints."""
    report = found.report
    lines = [line for warned in report.debugging for line in paragraph(warned, Tone.BAD)]
    if report.done < report.planned:
        left = f"{report.done}/{report.planned} trials done; resume with: kdelta resume"
        lines += paragraph(f"{left} {report.run_id}", Tone.WARN)
    lines += [*_survey_lines(report), *_survey_steps(found), (), *_survey_table(found)]
    marks = paragraph("; ".join(_survey_marks(found)), Tone.FAINT)
    lines += _survey_legend(found) if details else marks
    lines += _survey_builds(found)
    lines += (*_facts(report), *_limits(report)) if details else _where_more(report.run_id)
    return lines


def _survey_table(found: Survey) -> Iterator[Line]:
    """The first kernel's column tells counts, the others changes."""
    rows = [row for each in found.rows for row in _survey_rows(each)]
    columns = []
    for at, label in enumerate(shortened(found.kernels, _KERNEL_WIDTH)):
        shown = [_survey_span(cells, at, found.report.step_percent) for _, cells in rows]
        mark = CROSSED * any(cells[at].crossing for _, cells in rows)
        columns.append(Column(label + mark, shown, right=True))
    yield from _of_kernels("scenario", [name for name, _ in rows], columns)


def _of_kernels(head: str, names: Sequence[str], columns: Sequence[Column]) -> Iterator[Line]:
    """One table, its names cut as far as it takes, or as many as the width asks for."""
    wide, narrow = (Column(head, (short(one, most) for one in names)) for most in _NAME_WIDTHS)
    tables = tables_that_fit([narrow], columns)
    yield from first_that_fits([[wide, *columns], [narrow, *columns]], *tables)


def _survey_lines(report: Report[Measure]) -> Iterator[Line]:
    """The lines that CPUs fetch from each other: the steps, and all kernels side by side."""
    if not report.beside:
        return
    for ladder in report.beside:
        for step in ladder.steps:
            yield from paragraph(f"{ladder.name}: {counts.change(step, ladder.unit)}.", Tone.BOLD)
    kernels = dict.fromkeys(rung.label for ladder in report.beside for rung in ladder.rungs)
    columns = []
    for kernel, label in zip(kernels, shortened([*kernels], _KERNEL_WIDTH), strict=True):
        rungs = [{one.label: one for one in each.rungs}.get(kernel) for each in report.beside]
        columns.append(Column(label, map(_lines_span, rungs), right=True))
    yield from _of_kernels("lines fetched", [one.name for one in report.beside], columns)
    yield from paragraph(f"per operation; {_UNDECIDED}: UNDECIDED, !: INVALID", Tone.FAINT)
    yield ()


def _lines_span(rung: Rung[Measure] | None) -> Span:
    if rung is None or rung.total is None:
        return Span(ABSENT, Tone.FAINT)
    judged = rung.comparison.verdict if rung.comparison else Verdict.SAME
    mark = {Verdict.UNDECIDED: _UNDECIDED, Verdict.INVALID: "!"}.get(judged, "")
    return Span(number(rung.total.per_operation) + mark, VERDICT_TONES[judged])


def _survey_rows(row: SurveyRow) -> Iterator[tuple[str, tuple[SurveyCell, ...]]]:
    mark = "~" * row.inexact + _LAID_OUT * (row.layouts > 1)
    yield f"{mark}{row.name}", row.cells
    for phase, cells in row.phases.items():
        yield f"  {phase}", cells


def _survey_span(cells: Sequence[SurveyCell], at: int, step_percent: float) -> Span:
    cell = cells[at]
    first = all(one.per_operation is None for one in cells[:at])
    if cell.per_operation is not None and first:
        return Span(number(cell.per_operation), Tone.BOLD)
    if cell.per_operation is None or cell.ratio is None:
        return Span(cell.note or ABSENT, _NOTES.get(cell.note, Tone.PLAIN))
    percent = 100 * (cell.ratio - 1)
    if abs(percent) <= step_percent:
        return Span(_SAME + _UNDECIDED, Tone.WARN) if cell.undecided else Span(_SAME, Tone.FAINT)
    told = f"x{cell.ratio:.2f}" if cell.ratio >= 2 else f"{percent:+.0f}%"
    if cell.crossing:
        return Span(told + CROSSED, Tone.WARN)
    if cell.undecided:
        return Span(told + _UNDECIDED, Tone.WARN)
    return Span(told, Tone.BAD if percent > 0 else Tone.GOOD)


def _survey_marks(found: Survey) -> Iterator[str]:
    """What stands in front of the scenarios."""
    if any(row.inexact for row in found.rows):
        yield "~: a median, the counts hardly repeat"
    if layouts := sorted({row.layouts for row in found.rows} - {1}):
        several = " or ".join(map(str, layouts))
        yield f"{_LAID_OUT}: the mean over {several} layouts of the kernel's trees and lists"


def _survey_legend(found: Survey) -> Iterator[Line]:
    against = " or ".join(sorted({each.baseline for each in found.report.ladders} - {""}))
    before = against or "the kernel before"
    unit = "instructions per operation (page, call) in the first kernel with a count"
    told = [
        f"{unit}, then the change from {before}",
        f"{_SAME}: at most {found.report.step_percent:g} %",
        "skip: not supported there",
        "invalid: page state or environment differ",
        *_survey_marks(found),
    ]
    if any(row.phases for row in found.rows):
        told.append("below a scenario: its phases that changed where the sum over them did not")
    cells = [cell for row in found.rows for _, cells in _survey_rows(row) for cell in cells]
    if any(cell.undecided for cell in cells):
        told.append(f"{_UNDECIDED}: UNDECIDED, `kdelta explain` says why")
    comparisons = [rung.comparison for each in found.report.ladders for rung in each.rungs]
    if apart := _apart(found):
        alike = "are of one compiler, what is between is not"
        if any(judged and judged.options for judged in comparisons):
            alike = "were built alike, what is between was not"
        told.append(f"but {', '.join(apart)}: they {alike}")
    yield from paragraph("; ".join(told), Tone.FAINT)


def _survey_builds(found: Survey) -> Iterator[Line]:
    comparisons = [rung.comparison for each in found.report.ladders for rung in each.rungs]
    columns = zip(*(row.cells for row in found.rows), strict=True)
    # In some scenarios it is proven of an option that none of its code ran: all that is left.
    crossings = [
        f"{kernel} ({longest})"
        for kernel, cells in zip(found.kernels, columns, strict=False)
        if (longest := max((cell.crossing for cell in cells), key=len))
    ]
    if crossings:
        how = crossed_by(comparisons)
        told = f"{CROSSED}: UNDECIDED, built {how}: {', '.join(crossings)}"
        yield from paragraph(told, Tone.WARN)
    differing = (
        builds_apart(rung.previous, rung.label, rung.comparison)
        for ladder in found.report.ladders
        for rung in ladder.rungs
        if rung.previous and rung.comparison and rung.comparison.differences
    )
    for line in dict.fromkeys(differing):
        yield from paragraph(line, Tone.WARN)


def _apart(found: Survey) -> list[str]:
    """Kernels that are compared with another than the one before, for its compiler's sake."""
    neighbours = (pair for ladder in found.report.ladders for pair in pairwise(ladder.rungs))
    apart = (
        rung for above, rung in neighbours if rung.passed and above.total and not above.skipped
    )
    return list(dict.fromkeys(f"{rung.label} from {rung.previous}" for rung in apart))


def _survey_steps(found: Survey) -> Iterator[Line]:
    over = f"{plural(len(found.rows), 'scenario')} over {plural(len(found.kernels), 'kernel')}"
    above = f"above {found.report.step_percent:g} % in {over}"
    left = [
        (ladder, rung, judged)
        for ladder in found.report.ladders
        for rung in ladder.rungs
        if (judged := rung.comparison) and judged.verdict is Verdict.UNDECIDED
    ]
    largest = max(left, key=lambda each: each[2].factor, default=None)
    many = plural(len(left), "undecided comparison")
    if largest and (apart := largest[2].crossing):
        many += f", the largest of builds that differ ({apart})"
    also, none = (f" and {many}", f" is decided: {many}") if left else ("", "")
    steps = f"{plural(len(found.changes), 'step')} {above}{also}, the largest first:"
    head = steps if found.changes else f"No step {above}{none}."
    yield from paragraph(head, Tone.BOLD)
    for change in found.changes:
        yield from _survey_step(change)
    if largest:
        ladder, rung, judged = largest
        where = f"{ladder.name}, {rung.previous} -> {rung.label}"
        told = f"The largest that is undecided: {where}: {'; '.join(judged.reasons)}."
        yield from paragraph(told, Tone.BOLD)


def _survey_step(change: SurveyStep) -> Iterator[Line]:
    explanation = change.explanation
    ratio = explanation.comparison.ratio
    tone = Tone.BAD if (ratio or 1) > 1 else Tone.GOOD
    name = change.name + f", {explanation.phase} alone" * (explanation.phase != TOTAL)
    head = f"{name}: {explanation.old} -> {explanation.new}"
    head += f", x{ratio:.3f}" if ratio else ""
    if change.phases:
        head += f" ({', '.join(f'{phase} x{own:.3f}' for phase, own in change.phases)})"
    if change.hit:
        head += f"; layouts hit: {change.hit[0]} -> {change.hit[1]}"
    yield from paragraph(head, tone)
    from kdelta.rendering.sentences import difference_sentences  # only where a table has a step

    yield from paragraph(" ".join(difference_sentences(explanation)), indent="  ")


_WIDEST = 46
_MOST_KEYS = 24  # values of one watched thing that text lists
_TRACES_HEAD = (
    "workload", "scenario", "point", "watch", "key", "per", "arm", "fewest", "most",
    "ratio_first", "absent",
)  # fmt: skip
_HITS_LEGEND = (
    "Hits are what the kernel's own tracing counted while it disturbed the kernel: they say which"
    " way was taken and how often, never how long it took, and no verdict is made of them."
    " a..b: they differed from run to run, by set-up or other tasks.  The raw output is in the"
    " folder of each trial, tracefs.txt.gz. Durations in it are of an emulated clock, and mean"
    " nothing."
)


def show_traces(found: RunTraces) -> list[Line]:
    """All tables."""
    lines: list[Line] = [*paragraph(f"{found.title} (trace; run {found.run_id})", Tone.BOLD)]
    for table in found.tables:
        lines += [(), *_trace_lines(table)]
    return [*lines, (), *paragraph(_HITS_LEGEND, Tone.FAINT)]


def _trace_lines(table: TraceTable) -> Iterator[Line]:
    at = f", {table.point}" if table.point else ""
    yield from paragraph(f"{table.workload}:{table.scenario}{at}: hits per {table.per}", Tone.BOLD)
    done = ", ".join(f"{one.phase}: {one.operations} x {one.operation}" for one in table.phases)
    if done:
        yield from paragraph(f"an iteration is {done}", Tone.FAINT)
    yield from _hits(table, [row for row in table.rows if not row.whole], "watched")
    graphs = [row for row in table.rows if row.whole]
    for watch in dict.fromkeys(row.watch for row in graphs):
        yield ()
        yield from paragraph(
            f"{watch}: calls below it in one run of the program with one iteration, set-up and"
            " audit included"
        )
        yield from _hits(table, [row for row in graphs if row.watch == watch], "function")
    for text in (*table.doubts, *table.reasons):
        yield from paragraph(text, Tone.WARN)


def _hits(table: TraceTable, every: Sequence[HitsRow], head: str) -> Iterator[Line]:
    seen: Counter[str] = Counter()
    rows = []
    for row in every:  # of each watched thing at most so many values
        seen[row.watch] += 1
        if seen[row.watch] <= _MOST_KEYS + 1:
            rows.append(row)
    if not rows:
        return
    columns = []
    for at, label in enumerate(shortened(table.arms, 24)):
        cells = [row.cells[at] for row in rows]
        columns.append(Column(label, map(_hits_cell, cells), right=True))
        if at:
            columns.append(Column("x first", map(_ratio, cells), right=True))
    yield from tables_that_fit([Column(head, map(_hits_name, rows))], columns)
    if cut := len(every) - len(rows):
        yield from paragraph(f"{cut} more: --csv has them", Tone.FAINT)


def _hits_name(row: HitsRow) -> str:
    if not row.key:
        return short(row.watch, _WIDEST)
    told = f"  {row.key}" if row.key.startswith("[") else f"  = {row.key}"
    return short(row.key if row.whole else told, _WIDEST)


def _hits_cell(cell: HitsCell) -> str:
    if cell.fewest is None or cell.most is None:
        return ABSENT
    if cell.repeats:
        return _metric_number(cell.fewest)
    return f"{_metric_number(cell.fewest)}..{_metric_number(cell.most)}"


def _traces_table(found: RunTraces) -> tuple[Sequence[str], list[tuple[Cell, ...]]]:
    return _TRACES_HEAD, [
        (
            each.workload, each.scenario, each.point, row.watch, row.key,
            "run" if row.whole else each.per, cell.arm, cell.fewest, cell.most,
            cell.ratio, cell.absent or None,
        )
        for each in found.tables
        for row in each.rows
        for cell in row.cells
    ]  # fmt: skip


TRACES_VIEW = View(
    show=show_traces,
    document=lambda found: ("traces", picked(found, ("run_id", "title", "tables"))),
    table=_traces_table,
)
