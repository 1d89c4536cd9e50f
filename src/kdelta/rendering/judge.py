# SPDX-License-Identifier: GPL-2.0-or-later
"""A judgement: our verdict first, then what other tools make of the same values; JSON and CSV."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from kdelta.analysis.judgement import (
    Compat,
    Finding,
    FrameworkRow,
    ImportAnswer,
    JudgedPair,
    Judgement,
    change,
)
from kdelta.imports.record import GroupAudit, Pairs, Published
from kdelta.printable import few
from kdelta.rendering.formats import Cell
from kdelta.rendering.times import closes
from kdelta.table.columns import (
    ABSENT,
    VERDICT_TONES,
    Column,
    Line,
    Span,
    Tone,
    first_that_fits,
    paragraph,
    short,
    table_lines,
    tables_that_fit,
    verdict_span,
)
from kdelta.verdict.comparison import Summary, Verdict

_ROWS = 20
_ROOMY = 20
_LONGEST = (36, 28, 24, 20, 19, 17, 15, 13, 11, 9)  # characters of an arm's name
_SENTENCES = 3  # of one kind; JSON has all
_FIRST = (Verdict.REGRESSION, Verdict.IMPROVEMENT, Verdict.INVALID, Verdict.SAME, Verdict.UNDECIDED)
_FEW = 3  # metrics and settings whose details follow the answer unasked
_SMALL = 0.1
_ARM = 28
_SHORT = {"mad": "MAD", "minimum": "min", "maximum": "max"}
_FIELD = 44
_OTHERS = "What other tools make of the same values. None of it entered the verdict above."

_SUMMARY = ("n", "planned", "median", "mean", "sd", "cv", "mad", "minimum", "maximum")
_FRAMEWORK = (
    "value", "median_value", "stdev_value", "cv", "mad_value", "mad_ratio", "classification",
    "status", "stable", "robust_stable", "comparison_reliable", "comparison_robust_reliable",
    "label",
)  # fmt: skip
_HEAD = (
    "import", "group", "metric", "unit", "better", "old_arm", "new_arm", "control_arm", "verdict",
    "grade", "ratio", "ratio_low", "ratio_high", "p", "alpha", "tolerance", "mean_ratio",
    "median_ratio", "drift", "midpoint_ratio", "drop_first_midpoint_ratio",
    *(f"{side}_{name}" for side in ("old", "new") for name in _SUMMARY), "reasons", "warnings",
    *(f"framework_{side}_{name}" for side in ("old", "new") for name in _FRAMEWORK),
)  # fmt: skip


def show(found: Judgement, *, details: bool | None = None) -> list[Line]:
    """The answer and of which import it is, then details (None: where few)."""
    files = few([name for name, *_ in found.sources], 2)
    which = f"import {found.name}: read as {found.read_as}, {found.created[:19]}Z"
    answer = _answer(found.answer, found.findings, f"{files}: ")
    lines = [*answer, *paragraph(which, Tone.FAINT)]
    count = len(found.findings)
    if details or (details is None and count <= _FEW):
        return [*lines, *_details(found)]
    what = f"{count} metrics and settings" if count > 1 else "the metric"
    text = f"details of {what}: --details, or one with --metric NAME"
    return [*lines, (), *paragraph(text, Tone.FAINT)]


def _answer(found: ImportAnswer, findings: Sequence[Finding], about: str) -> Iterator[Line]:
    for word, sentences, tone in (
        ("holds", found.holds, Tone.BOLD),
        ("not decided", found.open, Tone.PLAIN),
        ("not comparable", found.invalid, Tone.BAD),
        ("contradicted", found.contradicted, Tone.WARN),
        ("doubtful", found.doubtful, Tone.WARN),
        ("incomplete", found.missing, Tone.WARN),
    ):
        for text in sentences[:_SENTENCES]:
            yield from paragraph(f"{about}{word}: {text}", tone)
            about = ""
        more = len(sentences) - _SENTENCES
        if more > 0:
            yield from paragraph(f"{word}: and {more} more (--json has all)", Tone.FAINT)
    if found.needs:
        yield from paragraph(f"a verdict needs: {'; '.join(found.needs)}")
    if not (found.counts or found.invalid):
        yield from paragraph(f"{about}nothing was compared", Tone.WARN)
    if sum(count for _, count in found.counts) > 1:
        yield from ((), *_verdicts(findings))


def _verdicts(findings: Sequence[Finding]) -> Iterator[Line]:
    pairs = [(finding, pair) for finding in findings for pair in finding.pairs]
    shown = sorted(pairs, key=lambda each: _FIRST.index(each[1].comparison.verdict))
    rows = pairs if len(pairs) <= _ROWS else shown[:_ROWS]
    found: dict[str, set[str]] = {}
    for finding in findings:
        for name, text in finding.group:
            found.setdefault(name, set()).add(text)
    counts = Counter(name for finding in findings for name, _ in finding.group)
    varying = tuple(
        name for name, texts in found.items() if len(texts) > 1 or counts[name] < len(findings)
    )
    yield from first_that_fits([_columns(rows, varying, longest) for longest in _LONGEST])
    if len(pairs) > len(rows):
        more = len(pairs) - len(rows)
        yield from paragraph(f"and {more} comparisons more: --csv and --json have all", Tone.FAINT)


def _columns(
    rows: Sequence[tuple[Finding, JudgedPair]], varying: Sequence[str], longest: int
) -> list[Column]:
    """The interval of a change is said only where there is room."""
    where = [
        ", ".join(text for name, text in finding.group if name in varying) for finding, _ in rows
    ]
    pairs = [pair for _, pair in rows]
    counts = [(pair.comparison.old, pair.comparison.new) for pair in pairs]
    changes = [change(pair).replace(" %", "") for pair in pairs]
    if longest < _ROOMY:
        changes = [text.partition(" (")[0] for text in changes]
    return [
        Column("metric", (short(finding.metric.name, longest + 6) for finding, _ in rows)),
        *([Column("where", (short(each, longest + 4) for each in where))] if any(where) else []),
        Column("old", (short(pair.old, longest) for pair in pairs)),
        Column("new", (short(pair.new, longest) for pair in pairs)),
        Column("n", (f"{a.n}, {b.n}" if a and b else ABSENT for a, b in counts), right=True),
        Column("change %", (text or ABSENT for text in changes), right=True),
        Column("verdict", (verdict_span(pair.comparison) for pair in pairs)),
    ]


def _details(found: Judgement) -> list[Line]:
    lines: list[Line] = [()] if found.dimensions else []
    for dimension in found.dimensions:
        tone = Tone.PLAIN if dimension.sound else Tone.BAD
        word = "read back" if dimension.sound else "INVALID"
        where = f" ({dimension.where})" if dimension.where else ""
        text = f"dimension {dimension.name}{where}: {word}: {dimension.sentence}"
        lines += paragraph(text, tone)
    for audit in found.audits:
        lines += [(), *_audit(audit)]
    for finding in found.findings:
        lines += [(), *_finding(finding)]
    lines += [()] if found.notes else []
    for note in (*found.how, *found.notes):
        lines += paragraph(f"note: {note}", Tone.FAINT)
    return lines


def _where(group: Pairs) -> str:
    return f" ({', '.join(f'{name} {text}' for name, text in group)})" if group else ""


def _audit(audit: GroupAudit) -> Iterator[Line]:
    yield from paragraph(f"page state and results{_where(audit.group)}", Tone.BOLD)
    for arm, runs in audit.runs:
        ok, _, planned = runs.partition("/")
        if ok != planned:
            yield from paragraph(f"warning: {arm}: {runs} runs were audited", Tone.WARN)
    if not audit.differing:
        count = len(audit.fields)
        whose = f"equal in {len(audit.arms)} arms" if len(audit.arms) > 1 else f"of {audit.arms[0]}"
        told = (f"{name} {next(filter(None, texts), ABSENT)}" for name, texts in audit.fields)
        yield from paragraph(f"{count} field{'s' * (count > 1)} {whose}: {', '.join(told)}")
        return
    rows = [item for item in audit.fields if item[0] in audit.differing]
    names = Column("differs", (short(name, _FIELD) for name, _ in rows), Tone.BAD)
    arms = [
        Column(short(arm, _ARM), (short(texts[at], 20) or ABSENT for _, texts in rows))
        for at, arm in enumerate(audit.arms)
    ]
    yield from tables_that_fit([names], arms)


def _finding(finding: Finding) -> Iterator[Line]:
    metric = finding.metric
    yield from paragraph(f"{metric.name}{_where(finding.group)}", Tone.BOLD)
    yield from paragraph(f"{metric.unit}, {metric.better} is better", Tone.FAINT)
    measured = {arm.arm for arm in finding.arms if arm.n}
    if measured:
        yield from _summaries(finding.arms)
    if silent := [one for one in finding.published if one.arm not in measured]:
        yield from _published(silent)
    for pair in finding.pairs:
        found = pair.comparison
        tone = VERDICT_TONES[found.verdict]
        control = f" (old again: {pair.control})" if pair.control else ""
        text = f"{pair.old} -> {pair.new}{control}: {found.verdict} ({found.grade})"
        first, *rest = found.reasons or ("",)
        yield from paragraph(f"{text}: {first}" if first else text, tone)
        for reason in rest:
            yield from paragraph(reason, tone, indent="  ")
        # The ratios of means and of medians stand beside the estimate.
        ratios = (("means", found.mean_ratio), ("medians", found.median_ratio))
        told = [f"{name} {100 * (ratio - 1):+.2f} %" for name, ratio in ratios if ratio]
        if told and (found.p is not None or found.in_these_boots):
            yield from paragraph(", ".join(told), Tone.FAINT, indent="  ")
    if not finding.pairs:
        yield from paragraph("one arm, so nothing to compare", Tone.WARN)
    for gap in finding.gaps:
        yield from paragraph(closes(gap.share, f"{gap.old} -> {gap.new}"))
    for sentence in dict.fromkeys(caution.sentence for caution in finding.cautions):
        yield from paragraph(f"warning: {sentence}", Tone.WARN)
    if measured and finding.compat.own:  # of others JSON and CSV have it
        yield from _compat(finding.compat)


def _compat(found: Compat) -> Iterator[Line]:
    yield from ((), *paragraph(_OTHERS, Tone.FAINT))
    if rows := found.framework:
        rules = f"baseline {found.baseline}, tolerance {found.tolerance:g}, max_cv {found.max_cv:g}"
        yield from paragraph(f"published framework: {rules}", Tone.FAINT)
        names = [Column("arm", (short(row.arm, _ARM) for row in rows))]
        yield from tables_that_fit(names, _cells(rows, _NUMBERS, right=True))
        labels = Column("label", (row.label for row in rows))
        yield from tables_that_fit(names, [*_cells(rows, _WORDS, right=False), labels])


def _summaries(arms: Sequence[Summary]) -> Iterator[Line]:
    counts = (
        Span(arm.of_planned, Tone.PLAIN if arm.n == arm.planned else Tone.WARN) for arm in arms
    )
    names = ("median", "mean", "sd", "mad", "minimum", "maximum")
    columns = _figure_columns(arms, names, [arm.median for arm in arms])
    columns.insert(3, Column("CV %", (_percent(arm.cv) for arm in arms), right=True))
    arm_names = Column("arm", (short(arm.arm, _ARM) for arm in arms), Tone.BOLD)
    yield from table_lines([arm_names, Column("n", counts, right=True), *columns])
    kinds = ", ".join(dict.fromkeys(f"{arm.replicate}s" for arm in arms))
    yield from paragraph(f"n: {kinds} with values/planned; sd of the sample (n - 1)", Tone.FAINT)


def _published(said: Sequence[Published]) -> Iterator[Line]:
    counts = (
        ABSENT if one.ok is None else f"{one.ok}/{one.ok + (one.failed or 0)}" for one in said
    )
    names = ("median", "mean", "sd") if any(one.sd for one in said) else ("median", "mean")
    # The CV as it was published, else of what was.
    cvs = (
        one.cv if one.cv is not None or one.sd is None or not one.mean else one.sd / abs(one.mean)
        for one in said
    )
    yield from table_lines(
        [
            Column("published", (short(one.arm, 36) for one in said), Tone.BOLD),
            Column("n", counts, right=True),
            *_figure_columns(said, names, [one.mean or one.median for one in said]),
            Column("CV %", map(_percent, cvs), right=True),
        ]
    )


def _figure_columns(
    rows: Sequence[Summary | Published], names: Sequence[str], values: Sequence[float | None]
) -> list[Column]:
    """A column for each figure by its name; small values keep significant digits."""
    sizes = [abs(value) for value in values if value]
    small = bool(sizes) and max(sizes) < _SMALL
    return [
        Column(
            _SHORT.get(name, name),
            (_figure(getattr(row, name), small=small) for row in rows),
            right=True,
        )
        for name in names
    ]


def _figure(value: float | None, *, small: bool = False) -> str:
    if value is None:
        return ABSENT
    if math.isnan(value):
        return "NaN"
    if small:
        return f"{value:.4g}"
    size = abs(value)
    return f"{value:.0f}" if size >= 99_999.5 else f"{value:.{3 if size < 100 else 2}f}"


def _percent(fraction: float | None) -> str:
    return ABSENT if fraction is None else f"{100 * fraction:.2f}"


_NUMBERS = {
    "value": "value",
    "median": "median_value",
    "stdev": "stdev_value",
    "cv": "cv",
    "mad": "mad_value",
    "mad_ratio": "mad_ratio",
    "delta": "delta_vs_baseline",
}
_WORDS = {
    "classification": "classification",
    "status": "status",
    "stable": "stable",
    "robust": "robust_stable",
    "reliable": "comparison_reliable",
    "robust rel.": "comparison_robust_reliable",
}


def _cells(
    rows: Sequence[FrameworkRow], columns: Mapping[str, str], *, right: bool
) -> list[Column]:
    """right: figures, of which long ones lose decimals, so that seven columns fit."""
    most = 10 if right else math.inf
    cells = {head: [row.cell(name) or ABSENT for row in rows] for head, name in columns.items()}
    return [
        Column(head, (t if len(t) <= most else t.partition(".")[0][:10] for t in own), right=right)
        for head, own in cells.items()
    ]


def document(found: Judgement) -> tuple[str, Judgement]:
    """See formats.View: every field."""
    return "judge", found


def table(found: Judgement) -> tuple[Sequence[str], list[tuple[Cell, ...]]]:
    """One row for each comparison."""
    pairs = ((finding, pair) for finding in found.findings for pair in finding.pairs)
    return _HEAD, [_row(found.name, *each) for each in pairs]


def _row(name: str, finding: Finding, pair: JudgedPair) -> tuple[Cell, ...]:
    found, metric, sandwich = pair.comparison, finding.metric, pair.comparison.sandwich
    arms = {row.arm: row for row in reversed(finding.compat.framework)}
    framework = [arms.get(arm) for arm in (pair.old, pair.new)]
    return (
        name, ";".join(f"{key}={text}" for key, text in finding.group),
        metric.name, metric.unit, metric.better,
        pair.old, pair.new, pair.control or "", found.verdict, found.grade,
        found.ratio, found.low, found.high, found.p, found.alpha, found.tolerance,
        found.mean_ratio, found.median_ratio,
        *(getattr(sandwich, each, None) for each in ("drift", "midpoint", "drop_first_midpoint")),
        *(getattr(side, each, None) for side in (found.old, found.new) for each in _SUMMARY),
        "; ".join(found.reasons),
        "; ".join(dict.fromkeys(caution.sentence for caution in finding.cautions)),
        *(row.cell(each) if row else "" for row in framework for each in _FRAMEWORK),
    )  # fmt: skip
