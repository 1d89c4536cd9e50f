# SPDX-License-Identifier: GPL-2.0-or-later
"""The answer to an import, with which its page begins: a paragraph, then a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from kdelta.analysis.answer import Decision, ImportAnswer, change
from kdelta.analysis.judgement import Finding, JudgedPair
from kdelta.foreign.sets import SET, told_apart
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
)
from kdelta.verdict.comparison import Verdict

_ROWS = 20
_ROOMY = 20
_LONGEST = (36, 28, 24, 20, 19, 17, 15, 13, 11, 9)  # characters of an arm's name
_SENTENCES = 3  # of one kind; JSON has all
_FIRST = (Verdict.REGRESSION, Verdict.IMPROVEMENT, Verdict.INVALID, Verdict.SAME, Verdict.UNDECIDED)


def lines(found: ImportAnswer, findings: Sequence[Finding]) -> Iterator[Line]:
    """The paragraph and the table."""
    for decision in found.decisions:
        tone = Tone.GOOD if decision.decision is Decision.ACCEPT else Tone.BAD
        yield from paragraph(decision.sentence, tone)
    for word, sentences, tone in (
        ("holds", found.holds, Tone.BOLD),
        ("not decided", found.open, Tone.PLAIN),
        ("not comparable", found.invalid, Tone.BAD),
        ("not reproduced", found.unlike, Tone.WARN),
        ("reproduced", found.reproduced, Tone.PLAIN),
        ("doubtful", found.doubtful, Tone.WARN),
        ("incomplete", found.missing, Tone.WARN),
    ):
        for text in sentences[:_SENTENCES]:
            yield from paragraph(f"{word}: {text}", tone)
        more = len(sentences) - _SENTENCES
        if more > 0:
            yield from paragraph(f"{word}: and {more} more (--json has all)", Tone.FAINT)
    waited = [text for text in found.needs if text not in found.unknown]
    if waited:
        yield from paragraph(f"for a verdict there is missing: {'; '.join(waited)}")
    if found.unknown:
        yield from paragraph(f"the data do not say: {'; '.join(found.unknown)}")
    if not (found.counts or found.invalid):
        yield from paragraph("nothing was compared", Tone.WARN)
    if sum(count for _, count in found.counts) > 1:
        yield ()
        yield from _table(findings)


def _table(findings: Sequence[Finding]) -> Iterator[Line]:
    pairs = [(finding, pair) for finding in findings for pair in finding.pairs]
    shown = sorted(pairs, key=lambda each: _FIRST.index(each[1].comparison.verdict))
    rows = pairs if len(pairs) <= _ROWS else shown[:_ROWS]
    varying = _varying(findings)
    homes = [text for finding in findings for name, text in finding.group if name == SET]
    sets = told_apart(homes)
    yield from first_that_fits([_columns(rows, varying, sets, longest) for longest in _LONGEST])
    if len(pairs) > len(rows):
        more = len(pairs) - len(rows)
        yield from paragraph(f"and {more} comparisons more: --csv and --json have all", Tone.FAINT)


def _columns(
    rows: Sequence[tuple[Finding, JudgedPair]],
    varying: Sequence[str],
    sets: Mapping[str, str],
    longest: int,
) -> list[Column]:
    verdicts = tuple(
        Span(pair.comparison.verdict, VERDICT_TONES[pair.comparison.verdict]) for _, pair in rows
    )
    where = tuple(_where(finding, varying, sets) for finding, _ in rows)
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


def _where(finding: Finding, varying: Sequence[str], sets: Mapping[str, str]) -> str:
    """The setting by what varies; of a set what tells it apart."""
    return ", ".join(
        sets.get(text, text) if name == SET else text
        for name, text in finding.group
        if name in varying
    )


def _change(pair: JudgedPair, longest: int) -> str:
    """The change; its interval only where there is room."""
    text = change(pair).replace(" %", "")
    return (text if longest >= _ROOMY else text.partition(" (")[0]) or ABSENT


def _counts(pair: JudgedPair) -> str:
    found = pair.comparison
    return f"{found.old.n}, {found.new.n}" if found.old and found.new else ABSENT
