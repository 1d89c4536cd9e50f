# SPDX-License-Identifier: GPL-2.0-or-later
"""The figures of a table that somebody computed: mean, median, sd, CV and how many runs."""

from __future__ import annotations

import re
from dataclasses import replace

from kdelta.foreign.mapping import Figures, Mapping
from kdelta.foreign.record import Pairs, Published
from kdelta.foreign.tables import TableCell, TableRow


def of_row(
    number: int,
    row: TableRow,
    key: tuple[str, Pairs],
    metric: str,
    figures: Figures,
    mapping: Mapping,
    failure: str = "",
) -> Published | None:
    """What a row says of an arm without showing the values; None: nothing.  Raises SpecError.

    failure: why runs of the row failed, as its status and gates say.
    """
    shared = mapping.columns
    cv, percent = row.text(figures.cv), row.text(figures.cv_percent)
    mean, median = row.text(figures.mean), row.text(figures.median)
    if not (mean or median):
        return None
    ok, failed = row.text(figures.n or shared.n), row.text(figures.failed or shared.failed)
    spread = _cell(row, figures.cv if cv else figures.cv_percent)
    return Published(
        source=number,
        line=row.line,
        arm=key[0],
        metric=metric,
        group=key[1],
        mean=_number(row, figures.mean),
        median=_number(row, figures.median),
        sd=_number(row, figures.sd),
        cv=spread.number() if cv and spread else _percent(spread) if percent and spread else None,
        cv_digits=_digits(cv) if cv else _digits(percent) + 2 if percent else 0,
        ok=_count(row, figures.n or shared.n) if ok else None,
        failed=_count(row, figures.failed or shared.failed) if failed else None,
        status=row.text(shared.status),
        failure=row.text(shared.failure) or failure,
    )


def _cell(row: TableRow, column: str | None) -> TableCell | None:
    return row[column] if column and row.text(column) else None


def _number(row: TableRow, column: str | None) -> float | None:
    cell = _cell(row, column)
    return cell.number() if cell else None


def _percent(cell: TableCell) -> float:
    return replace(cell, text=cell.text.removesuffix("%").strip()).number() / 100


def _count(row: TableRow, column: str | None) -> int | None:
    """A count, which some write as 9.0."""
    cell = _cell(row, column)
    if cell is None:
        return None
    return replace(cell, text=re.sub(r"\.0+\Z", "", cell.text)).integer()


def _digits(text: str) -> int:
    return len(text.removesuffix("%").strip().replace(",", ".").partition(".")[2])
