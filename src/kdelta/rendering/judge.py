# SPDX-License-Identifier: GPL-2.0-or-later
"""A judgement: our verdict first, then what other tools make of the same values; JSON and CSV."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from kdelta.analysis.compat import FrameworkRow, MmtestsCell
from kdelta.analysis.judgement import (
    Compat,
    Finding,
    Gap,
    ImportAnswer,
    JudgedPair,
    Judgement,
    Others,
    change,
)
from kdelta.imports.record import Pairs, Published
from kdelta.imports.series import GroupAudit
from kdelta.rendering.formats import Cell
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
)
from kdelta.verdict.comparison import Caution, Verdict, closes
from kdelta.verdict.series import Summary

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


def show(found: Judgement, *, compat: bool = True, details: bool | None = None) -> list[Line]:
    """What `kdelta judge` prints: the answer, then details.

    compat: with the columns of other tools.  details: of each metric; None: where they are few.
    """
    lines = list(paragraph(f"{found.name}: results of others, read as {found.read_as}", Tone.BOLD))
    count = len(found.sources)
    lines += paragraph(
        f"{count} file{'s' * (count > 1)}, imported {found.created[:19]}Z", Tone.FAINT
    )
    lines += _answer(found.answer, found.findings)
    few = len(found.findings) <= _FEW
    if details is False or (details is None and not few):
        count = len(found.findings)
        what = f"{count} metrics and settings" if count > 1 else "the metric"
        text = f"details of {what}: --details, or one with --metric NAME"
        return [*lines, (), *paragraph(text, Tone.FAINT)]
    return [*lines, *_details(found, compat=compat)]


def _answer(found: ImportAnswer, findings: Sequence[Finding]) -> Iterator[Line]:
    """The paragraph and the table."""
    for word, sentences, tone in (
        ("holds", found.holds, Tone.BOLD),
        ("not decided", found.open, Tone.PLAIN),
        ("not comparable", found.invalid, Tone.BAD),
        ("contradicted", found.contradicted, Tone.WARN),
        ("doubtful", found.doubtful, Tone.WARN),
        ("incomplete", found.missing, Tone.WARN),
    ):
        for text in sentences[:_SENTENCES]:
            yield from paragraph(f"{word}: {text}", tone)
        more = len(sentences) - _SENTENCES
        if more > 0:
            yield from paragraph(f"{word}: and {more} more (--json has all)", Tone.FAINT)
    if found.needs:
        yield from paragraph(f"a verdict needs: {'; '.join(found.needs)}")
    if not (found.counts or found.invalid):
        yield from paragraph("nothing was compared", Tone.WARN)
    if sum(count for _, count in found.counts) > 1:
        yield ()
        yield from _verdicts(findings)


def _verdicts(findings: Sequence[Finding]) -> Iterator[Line]:
    pairs = [(finding, pair) for finding in findings for pair in finding.pairs]
    shown = sorted(pairs, key=lambda each: _FIRST.index(each[1].comparison.verdict))
    rows = pairs if len(pairs) <= _ROWS else shown[:_ROWS]
    varying = _varying(findings)
    yield from first_that_fits([_columns(rows, varying, longest) for longest in _LONGEST])
    if len(pairs) > len(rows):
        more = len(pairs) - len(rows)
        yield from paragraph(f"and {more} comparisons more: --csv and --json have all", Tone.FAINT)


def _columns(
    rows: Sequence[tuple[Finding, JudgedPair]],
    varying: Sequence[str],
    longest: int,
) -> list[Column]:
    verdicts = tuple(
        Span(pair.comparison.verdict, VERDICT_TONES[pair.comparison.verdict]) for _, pair in rows
    )
    where = tuple(_setting(finding, varying) for finding, _ in rows)
    return [
        Column("metric", (short(finding.metric.name, longest + 6) for finding, _ in rows)),
        *([Column("where", (short(each, longest + 4) for each in where))] if any(where) else []),
        Column("old", (short(pair.old, longest) for _, pair in rows)),
        Column("new", (short(pair.new, longest) for _, pair in rows)),
        Column("n", (_counts(pair) for _, pair in rows), right=True),
        Column("change %", (_change(pair, longest) for _, pair in rows), right=True),
        Column("verdict", verdicts),
    ]


def _varying(findings: Sequence[Finding]) -> tuple[str, ...]:
    """The dimensions that are not the same everywhere."""
    found: dict[str, set[str]] = {}
    for finding in findings:
        for name, text in finding.group:
            found.setdefault(name, set()).add(text)
    counts = Counter(name for finding in findings for name, _ in finding.group)
    return tuple(
        name for name, texts in found.items() if len(texts) > 1 or counts[name] < len(findings)
    )


def _setting(finding: Finding, varying: Sequence[str]) -> str:
    """The setting by what varies."""
    return ", ".join(text for name, text in finding.group if name in varying)


def _change(pair: JudgedPair, longest: int) -> str:
    """The change; its interval only where there is room."""
    text = change(pair).replace(" %", "")
    return (text if longest >= _ROOMY else text.partition(" (")[0]) or ABSENT


def _counts(pair: JudgedPair) -> str:
    found = pair.comparison
    return f"{found.old.n}, {found.new.n}" if found.old and found.new else ABSENT


def _details(found: Judgement, *, compat: bool) -> list[Line]:
    lines: list[Line] = []
    if found.dimensions:
        lines.append(())
    for dimension in found.dimensions:
        tone = Tone.PLAIN if dimension.sound else Tone.BAD
        word = "read back" if dimension.sound else "INVALID"
        where = f" ({dimension.where})" if dimension.where else ""
        text = f"dimension {dimension.name}{where}: {word}: {dimension.sentence}"
        lines += paragraph(text, tone)
    for audit in found.audits:
        lines += [(), *_audit(audit)]
    for finding in found.findings:
        lines += [(), *_finding(finding, compat=compat)]
    if found.notes:
        lines.append(())
    for note in (*found.how, *found.notes):
        lines += paragraph(f"note: {note}", Tone.FAINT)
    return lines


def _where(group: Pairs) -> str:
    return ", ".join(f"{name} {text}" for name, text in group)


def _audit(audit: GroupAudit) -> Iterator[Line]:
    where = f" ({_where(audit.group)})" if audit.group else ""
    yield from paragraph(f"page state and results{where}", Tone.BOLD)
    for arm, runs in audit.runs:
        ok, _, planned = runs.partition("/")
        if ok != planned:
            yield from paragraph(f"warning: {arm}: {runs} runs were audited", Tone.WARN)
    if not audit.differing:
        count = len(audit.fields)
        whose = f"equal in {len(audit.arms)} arms" if len(audit.arms) > 1 else f"of {audit.arms[0]}"
        text = f"{count} field{'s' * (count > 1)} {whose}"
        yield from paragraph(f"{text}: {_fields(audit)}")
        return
    rows = [item for item in audit.fields if item[0] in audit.differing]
    names = Column("differs", (short(name, _FIELD) for name, _ in rows), Tone.BAD)
    arms = [
        Column(short(arm, _ARM), (short(texts[at], 20) or ABSENT for _, texts in rows))
        for at, arm in enumerate(audit.arms)
    ]
    yield from tables_that_fit([names], arms)


def _fields(audit: GroupAudit) -> str:
    return ", ".join(
        f"{name} {next((text for text in texts if text), ABSENT)}" for name, texts in audit.fields
    )


def _finding(finding: Finding, *, compat: bool) -> Iterator[Line]:
    metric = finding.metric
    where = f" ({_where(finding.group)})" if finding.group else ""
    yield from paragraph(f"{metric.name}{where}", Tone.BOLD)
    yield from paragraph(f"{metric.unit}, {metric.better} is better", Tone.FAINT)
    measured = {arm.arm for arm in finding.arms if arm.n}
    if measured:
        yield from _summaries(finding.arms)
    silent = [one for one in finding.published if one.arm not in measured]
    if silent:
        yield from _published(silent)
    for pair in finding.pairs:
        yield from _pair(pair)
    if not finding.pairs:
        yield from paragraph("one arm, so nothing to compare", Tone.WARN)
    yield from _gaps(finding.gaps)
    yield from _cautions(finding.cautions)
    if compat and measured:
        yield ()
        yield from paragraph(_OTHERS, Tone.FAINT)
        yield from _compat(finding)


def _summaries(arms: Sequence[Summary]) -> Iterator[Line]:
    counts = tuple(
        Span(arm.of_planned, Tone.PLAIN if arm.n == arm.planned else Tone.WARN) for arm in arms
    )
    cvs = [arm.cv for arm in arms]
    names = ("median", "mean", "sd", "mad", "minimum", "maximum")
    columns = _figure_columns(arms, names, small=_small(arm.median for arm in arms))
    columns.insert(3, Column("CV %", map(_percent, cvs), right=True))
    arm_names = Column("arm", (short(arm.arm, _ARM) for arm in arms), Tone.BOLD)
    yield from table_lines([arm_names, Column("n", counts, right=True), *columns])
    kinds = ", ".join(dict.fromkeys(f"{arm.replicate}s" for arm in arms))
    yield from paragraph(f"n: {kinds} with values/planned; sd of the sample (n - 1)", Tone.FAINT)


def _published(said: Sequence[Published]) -> Iterator[Line]:
    counts = (
        ABSENT if one.ok is None else f"{one.ok}/{one.ok + (one.failed or 0)}" for one in said
    )
    names = ("median", "mean", "sd") if any(one.sd for one in said) else ("median", "mean")
    yield from table_lines(
        [
            Column("published", (short(one.arm, 36) for one in said), Tone.BOLD),
            Column("n", counts, right=True),
            *_figure_columns(said, names, small=_small(one.mean or one.median for one in said)),
            Column("CV %", map(_percent, map(_cv, said)), right=True),
        ]
    )


def _figure_columns(
    rows: Sequence[Summary | Published], names: Sequence[str], *, small: bool
) -> list[Column]:
    """A column for each figure by its name."""
    return [
        Column(
            _SHORT.get(name, name),
            (_figure(getattr(row, name), small=small) for row in rows),
            right=True,
        )
        for name in names
    ]


def _cv(one: Published) -> float | None:
    """As it was published, else of what was."""
    if one.cv is not None or one.sd is None or not one.mean:
        return one.cv
    return one.sd / abs(one.mean)


def _small(values: Iterable[float | None]) -> bool:
    """True for a table of figures of which three decimals would leave little or nothing."""
    sizes = [abs(value) for value in values if value]
    return bool(sizes) and max(sizes) < _SMALL


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


def _pair(pair: JudgedPair) -> Iterator[Line]:
    found = pair.comparison
    tone = VERDICT_TONES[found.verdict]
    control = f" (old again: {pair.control})" if pair.control else ""
    text = f"{pair.old} -> {pair.new}{control}: {found.verdict} ({found.grade})"
    first, *rest = found.reasons or ("",)
    yield from paragraph(f"{text}: {first}" if first else text, tone)
    for reason in rest:
        yield from paragraph(reason, tone, indent="  ")
    if ratios := _other_ratios(pair):
        yield from paragraph(ratios, Tone.FAINT, indent="  ")


def _other_ratios(pair: JudgedPair) -> str:
    """The ratios of means and of medians, which stand beside the estimate."""
    found = pair.comparison
    ratios = (("means", found.mean_ratio), ("medians", found.median_ratio))
    told = [f"{name} {100 * (ratio - 1):+.2f} %" for name, ratio in ratios if ratio]
    return ", ".join(told) if found.p is not None or found.in_these_boots else ""


def _cautions(cautions: Sequence[Caution]) -> Iterator[Line]:
    for sentence in dict.fromkeys(caution.sentence for caution in cautions):
        yield from paragraph(f"warning: {sentence}", Tone.WARN)


def _compat(finding: Finding) -> Iterator[Line]:
    found = finding.compat
    if found.framework:
        yield from _framework(found)
    if found.mmtests:
        yield ()
        yield from _mmtests(found)
    if found.others:
        yield ()
        yield from _pairs(found)


_NUMBERS = (
    ("value", "value"),
    ("median", "median_value"),
    ("stdev", "stdev_value"),
    ("cv", "cv"),
    ("mad", "mad_value"),
    ("mad_ratio", "mad_ratio"),
    ("delta", "delta_vs_baseline"),
)
_WORDS = (
    ("classification", "classification"),
    ("status", "status"),
    ("stable", "stable"),
    ("robust", "robust_stable"),
    ("reliable", "comparison_reliable"),
    ("robust rel.", "comparison_robust_reliable"),
)


def _framework(found: Compat) -> Iterator[Line]:
    rules = f"baseline {found.baseline}, tolerance {found.tolerance:g}, max_cv {found.max_cv:g}"
    whose = "" if found.own else " (its usual limits)"
    yield from paragraph(f"published framework: {rules}{whose}", Tone.FAINT)
    names = Column("arm", (short(row.arm, _ARM) for row in found.framework))
    yield from tables_that_fit([names], list(_cells(found.framework, _NUMBERS, right=True)))
    labels = Column("label", (row.label for row in found.framework))
    words = _cells(found.framework, _WORDS, right=False)
    yield from tables_that_fit([names], [*words, labels])


def _cells(
    rows: Sequence[FrameworkRow], columns: Sequence[tuple[str, str]], *, right: bool
) -> Iterator[Column]:
    for head, name in columns:
        texts = (row.cell(name) or ABSENT for row in rows)
        cells = tuple(Span(_cut(text) if right else text) for text in texts)
        yield Column(head, cells, right=right)


def _cut(cell: str) -> str:
    """A long figure loses decimals, so that seven columns fit."""
    return cell if len(cell) <= 10 else cell.partition(".")[0][:10]


def _mmtests(found: Compat) -> Iterator[Line]:
    yield from paragraph("mmtests: change against the first arm, positive is better", Tone.FAINT)
    names = Column("", (row.name for row in found.mmtests))
    arms = [
        Column(short(arm, 24), (_mmtests_cell(row.cells[at]) for row in found.mmtests), right=True)
        for at, arm in enumerate(found.mmtests_arms)
    ]
    yield from tables_that_fit([names, *arms[:1]], arms[1:])


def _mmtests_cell(cell: MmtestsCell) -> str:
    left, right = ("*", "*") if cell.star else ("(", ")")
    return f"{_figure(cell.value)} {left}{cell.percent:7.2f}%{right}"


def _pairs(found: Compat) -> Iterator[Line]:
    for at, other in enumerate(found.others):
        if at:
            yield ()
        yield from paragraph(f"{other.old} against {other.new}", Tone.FAINT)
        yield from paragraph(f"benchstat: {_benchstat(other)}")


def _benchstat(other: Others) -> str:
    test = other.benchstat
    change = "~" if test.change is None else f"{100 * test.change:+.2f}%"
    sides = (
        (test.old_median, test.old_interval),
        (test.new_median, test.new_interval),
    )
    old, new = (f"{_figure(median)} ± {_spread(median, bounds)}" for median, bounds in sides)
    return f"{old}, {new}, {change} (p={test.p:.3f})"


def _spread(median: float, bounds: tuple[float, float]) -> str:
    """The wider side of an interval in percent, as benchstat shows it."""
    far = max(abs(median - bounds[0]), abs(bounds[1] - median))
    return f"{100 * far / median:.0f}%" if math.isfinite(far) and median else "∞"


def _gaps(gaps: Sequence[Gap]) -> Iterator[Line]:
    for gap in gaps:
        yield from paragraph(closes(gap.share, f"{gap.old} -> {gap.new}"))


def document(found: Judgement) -> tuple[str, Judgement]:
    """See formats.View: every field."""
    return "judge", found


def table(found: Judgement) -> tuple[Sequence[str], list[tuple[Cell, ...]]]:
    """One row for each comparison."""
    pairs = ((finding, pair) for finding in found.findings for pair in finding.pairs)
    return _HEAD, [tuple(_row(found.name, finding, pair)) for finding, pair in pairs]


def _row(name: str, finding: Finding, pair: JudgedPair) -> Iterator[Cell]:
    found, metric = pair.comparison, finding.metric
    sandwich = found.sandwich
    group = ";".join(f"{key}={text}" for key, text in finding.group)
    yield from (name, group, metric.name, metric.unit, metric.better)
    yield from (pair.old, pair.new, pair.control or "", found.verdict, found.grade)
    yield from (found.ratio, found.low, found.high, found.p, found.alpha, found.tolerance)
    yield from (found.mean_ratio, found.median_ratio)
    yield from (
        (sandwich.drift, sandwich.midpoint, sandwich.drop_first_midpoint)
        if sandwich
        else (None, None, None)
    )
    yield from _figures(found.old)
    yield from _figures(found.new)
    yield "; ".join(found.reasons)
    yield "; ".join(dict.fromkeys(caution.sentence for caution in finding.cautions))
    for arm in (pair.old, pair.new):
        row = next((row for row in finding.compat.framework if row.arm == arm), None)
        yield from (_of_framework(row, name) for name in _FRAMEWORK)


def _figures(summary: Summary | None) -> Iterator[Cell]:
    yield from (getattr(summary, name, None) for name in _SUMMARY)


def _of_framework(row: FrameworkRow | None, name: str) -> str:
    return "" if row is None else row.cell(name)
