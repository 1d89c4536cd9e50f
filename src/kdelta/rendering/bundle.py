# SPDX-License-Identifier: GPL-2.0-or-later
"""The files beside a run that a stranger reads without kdelta; what bundles prove and say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from kdelta.analysis import explanation, findings
from kdelta.analysis.merging import Merged, MergedCount
from kdelta.errors import StoreError
from kdelta.files import write_aside
from kdelta.journal.bundle import RUN, Difference, differing
from kdelta.journal.run import RunRecord
from kdelta.metric import number, plural
from kdelta.rendering import show
from kdelta.rendering.formats import FORMATS, View, picked, written
from kdelta.rendering.times import ratio
from kdelta.table.columns import (
    ABSENT,
    VERDICT_TONES,
    Column,
    Line,
    Tone,
    paragraph,
    plain,
    shortened,
    table_of,
    tables_that_fit,
    verdict_span,
)
from kdelta.table.counts import times
from kdelta.verdict.comparison import Comparison


def write_run_files(record: RunRecord, folder: Path) -> None:
    """Write show.{txt,json,csv}, show.csv and explain-OLD-NEW.{txt,json,csv} into a run folder.

    There is one explanation for the largest step of each scenario that has one; those of an
    earlier state of the run are removed.  Each file is replaced whole.  Raises StoreError when
    the folder cannot be written.
    """
    files = dict(run_files(record))
    try:
        for name, content in files.items():
            write_aside(folder / name, content.encode())
        for stale in folder.glob("explain-*"):
            if stale.suffix[1:] in ("txt", *FORMATS) and stale.name not in files:
                stale.unlink()
    except OSError as error:
        cause = f"the answers cannot be written: {error.strerror or error}"
        action = f"the measurements are kept; print them with: kdelta show {record.run_id}"
        raise StoreError(cause, place=str(folder), action=action) from error


def run_files(record: RunRecord) -> Iterator[tuple[str, str]]:
    """Every file that says what a run measured: name and content."""
    if seen := findings.traced(record):
        yield "show.txt", plain(show.show_traces(seen))
        yield from _in_formats("show", show.TRACES_VIEW, seen)
        return
    report = findings.report(record)
    yield "show.txt", plain(show.show(report))
    yield from _in_formats("show", show, report)
    for ladder in report.ladders:
        if not ladder.steps or not record.instrument.traits.repeats:
            continue
        from kdelta.rendering import explain, sentences

        step = ladder.steps[0]
        scenario, point = f"{ladder.workload}:{ladder.scenario}", ladder.point or None
        found = explanation.explain(record, step.old, step.new, scenario=scenario, point=point)
        prefix = f"{ladder.scenario}-" if len(report.ladders) > 1 else ""
        prefix += f"{ladder.point}-" if ladder.point else ""
        name = re.sub(r"[^A-Za-z0-9._+~-]", "_", f"explain-{prefix}{step.old}-{step.new}")[:200]
        own = explanation.shortened(found, explanation.TOP)
        yield f"{name}.txt", plain(explain.show(own, sentences.difference_sentences(found)))
        yield from _in_formats(name, explain, found)


def _in_formats(name: str, view: object, found: object) -> Iterator[tuple[str, str]]:
    for form in FORMATS:
        yield f"{name}.{form}", written(form, view, found)


_SHOWN = 20
_TOLD = ("show", "explain-")
_ONLY_THERE = (
    "the machine that measured knows: what guests printed, on the console too; raw counts; the"
    " SHA-256 of program, initramfs and plugin, the self-test; address, times, tries and attempts;"
    " kdelta's version; the seed beyond the order of trials"
)


# One thing that was checked, what of it in words, and how it differs; None: that is not known.
Verified = tuple[str, str, tuple[Difference, ...] | None]


def verified_files(folder: Path, record: RunRecord) -> Verified:
    """The answers that lie beside a run against those that its results give now."""
    answers, seen = dict(run_files(record)), 0
    there = [path.name for path in folder.iterdir() if path.suffix in (".txt", ".json", ".csv")]
    stale = [name for name in there if name.startswith(_TOLD) and name not in answers]
    found = [Difference(file=f"{RUN}/{name}", what="is no answer of this run") for name in stale]
    for name, text in answers.items():
        path = folder / name
        what = "" if path.is_file() else "is missing"
        if not what:
            seen += 1
            stored = path.read_bytes()
            what = "" if stored == text.encode() else _first_difference(name, stored, text)
        if what:
            found.append(Difference(file=f"{RUN}/{name}", what=what))
    told = f"{plural(seen, 'file')} of figures, each made again from the results"
    return "figures", told, tuple(found)


def _first_difference(name: str, stored: bytes, text: str) -> str:
    if name.endswith(".json"):
        try:
            values = json.loads(stored), json.loads(text)
            where = next(differing(*values, "", "by the results"), "")
        except (ValueError, RecursionError):
            return "is no JSON"
        if where:
            return f"differs from what the results give: {where}"
    lines = stored.decode(errors="replace").splitlines()
    for at, (old, new) in enumerate(zip(lines, text.splitlines(), strict=False), start=1):
        if old != new:
            return f'differs from what the results give: line {at}: "{old[:120]}"'
    return "is longer or shorter than what the results give"


def show_verified(
    parts: Sequence[Verified], absent: Sequence[str], says: str, unknown: Sequence[str], then: str
) -> list[Line]:
    """What `kdelta bundle verify` prints.  says: the first sentence of the run's answer; then: what
    to do with a bundle that holds.
    """
    wrong = sum(bool(differences) for _, _, differences in parts)
    left = [f"{what} are not verified: {why}" for what, why, differs in parts if differs is None]
    held = f"{len(parts) - len(left)} of {len(parts)}" if left else f"All {len(parts)}"
    held = f"{'; '.join([f'{held} parts hold', *left])}. It says: {says}"
    first = f"{wrong} of {plural(len(parts), 'part')} cannot be true." if wrong else held
    lines: list[Line] = [*paragraph(first, Tone.BOLD), ()]
    for what, looked_at, differences in parts:
        word, tone = ("DIFFERS", Tone.BAD) if differences else ("ok", Tone.GOOD)
        word, tone = ("not verified", Tone.WARN) if differences is None else (word, tone)
        lines += paragraph(f"{word}: {what}: {looked_at}", tone)
        lines += _listed([f"{each.file}: {each.what}" for each in differences or ()])
    for text in unknown:
        lines += paragraph(f"not verified: {text}", Tone.WARN)
    lines += paragraph(f"not verified, since only {_ONLY_THERE}", Tone.WARN)
    for text in absent:
        lines += paragraph(f"not in the bundle: {text}", Tone.WARN)
    return [*lines, (), *paragraph(then)] if then else lines


def _listed(texts: Sequence[str]) -> Iterator[Line]:
    for text in texts[:_SHOWN]:
        yield from paragraph(text, indent="  ")
    if (more := len(texts) - _SHOWN) > 0:
        yield from paragraph(f"and {more} more", indent="  ")


# ---- what the same run says on several machines --------------------------------------------------

_FIELDS = ("verdict", "grade", "reasons", "ratio", "low", "high", "p", "alpha", "tolerance")


def _show_merged(found: Merged) -> list[Line]:
    """What is equal on the machines, the machines, and the verdicts."""
    lines: list[Line] = []
    if not found.timed:
        equal, tone = sum(one.equal for one in found.counts), Tone.GOOD if found.equal else Tone.BAD
        told = f"{equal} of {plural(len(found.counts), 'count')} are equal to the instruction"
        every = "both" if len(found.machines) == 2 else f"all {len(found.machines)}"
        lines += paragraph(f"{told} on {every} machines.", tone)
        lines += _listed([_unequal(row) for row in found.counts if not row.equal])
    lines += paragraph(found.title, Tone.BOLD)
    names = shortened([one.name for one in found.machines], 32)
    runs = shortened([one.run_id for one in found.machines], 40)
    numbers = [str(at + 1) for at in range(len(names))]
    lines += table_of(("", "bundle", "run"), zip(numbers, names, runs, strict=True), right=("",))
    for at, one in enumerate(found.machines, start=1):
        lines += paragraph(f"{at}: {one.told or 'nothing is known of it'}", Tone.FAINT)
    for reason in found.reasons:
        lines += paragraph(f"differs: {reason}", Tone.WARN)
    if not found.equal and not found.reasons:
        lines += paragraph("nothing that was recorded explains it", Tone.WARN)

    def shown(one: Comparison | None) -> str:
        return ratio(one) if found.timed else times(one.ratio if one else None)

    titles = [
        Column("scenario", shortened([row.scenario for row in found.pairs], 36), Tone.BOLD),
        Column("old", shortened([row.old for row in found.pairs], 20)),
        Column("new", shortened([row.new for row in found.pairs], 20)),
        Column("verdict", (verdict_span(row.merged) for row in found.pairs)),
    ]
    columns = [
        Column("all", (shown(row.merged) for row in found.pairs), Tone.BOLD, right=True),
        *(
            Column(str(at + 1), (shown(row.each[at]) for row in found.pairs), right=True)
            for at in range(len(found.machines))
        ),
    ]
    lines += [(), *tables_that_fit(titles, columns)]
    for pair in found.pairs:
        verdict, reasons = pair.merged.verdict, "; ".join(pair.merged.reasons)
        told = f"{pair.scenario}, {pair.old} -> {pair.new}: {verdict}: {reasons}"
        lines += paragraph(told, VERDICT_TONES[verdict])
    return lines


def _unequal(row: MergedCount) -> str:
    values = ", ".join(ABSENT if value is None else number(value) for value in row.values)
    return f"{row.scenario}, {row.arm}, {row.phase}: {values}"


def _merged_document(found: Merged) -> tuple[str, object]:
    """See formats.View."""
    pairs = [
        {
            **picked(pair, ("scenario", "old", "new", "operation")),
            "merged": picked(pair.merged, _FIELDS),
            "each": [picked(one, _FIELDS) if one else None for one in pair.each],
        }
        for pair in found.pairs
    ]
    names = ("timed", "title", "machines", "counts", "equal", "reasons")
    return "merge", {**picked(found, names), "pairs": pairs}


MERGED_VIEW = View(show=_show_merged, document=_merged_document)
