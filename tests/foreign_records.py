# SPDX-License-Identifier: GPL-2.0-or-later
"""Imports for tests: the published evidence, copies of it with other numbers, and judgements."""

from __future__ import annotations

import csv
import random
import shutil
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from kdelta.analysis import judgement
from kdelta.analysis.judgement import Finding, Judgement, JudgementChoice
from kdelta.foreign import loading, reader
from kdelta.foreign.record import Foreign, ImportFormat

EVIDENCE = Path(__file__).resolve().parent / "data" / "evidence"
Rows = list[dict[str, str]]


def evidence(*names: str) -> list[Path]:
    return [EVIDENCE / name for name in names]


def imported(*paths: Path, kind: ImportFormat | None = None) -> Foreign:
    sources, contents, found = reader.read(paths, loading.Wish(kind=kind))
    return Foreign(
        name="test", created="2026-11-20T12:00:00Z", kind=found, sources=sources, contents=contents
    )


def noise(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311  numbers to measure, not secrets


@lru_cache
def judged(*paths: Path, choice: JudgementChoice | None = None) -> Judgement:
    return judgement.judge("test", imported(*paths), choice or JudgementChoice())


def finding(found: Judgement, metric: str, **group: str) -> Finding:
    """The one finding of that metric in a group that has these parts."""
    (one,) = [
        each
        for each in found.findings
        if each.metric.name == metric and set(group.items()) <= set(each.group)
    ]
    return one


def traps(one: Finding, arm: str = "") -> set[str]:
    return {str(c.trap) for c in one.cautions if arm in c.sentence}


def altered(name: str, folder: Path, change: Callable[[Rows], Rows], file: str = "raw.csv") -> Path:
    """A copy of a published folder whose `file` has other rows."""
    copy = folder / "copy" / Path(name).name
    shutil.copytree(EVIDENCE / name, copy)
    path = copy / file
    delimiter = "\t" if path.suffix == ".tsv" else ","
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter=delimiter))
    write_table(path, change(rows))
    return copy


def write_table(path: Path, rows: Rows) -> None:
    delimiter = "\t" if path.suffix == ".tsv" else ","
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
