# SPDX-License-Identifier: GPL-2.0-or-later
"""What `kdelta show` prints of a run of either instrument, as text, JSON and CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from kdelta.analysis.findings import Report
from kdelta.rendering import count_fields, figures, metrics, times
from kdelta.rendering.formats import Cell
from kdelta.sample import Instrument
from kdelta.table import counts
from kdelta.table.columns import Line
from kdelta.table.ladders import LadderView, page


class FieldsView(Protocol):
    """The ladders of one instrument for programs: a module for each."""

    KIND: str
    """Of JSON."""
    HEAD: tuple[str, ...]
    """Of CSV."""

    def data(self, report: Report[Any]) -> dict[str, Any]:
        """The fields of JSON."""

    def rows(self, report: Report[Any]) -> Iterator[tuple[Cell, ...]]:
        """The rows of CSV."""


_PAGES: dict[Instrument, LadderView] = {Instrument.EXACT: counts, Instrument.TIME: times}
_FIELDS: dict[Instrument, FieldsView] = {Instrument.EXACT: count_fields, Instrument.TIME: times}


def show(report: Report[Any]) -> list[Line]:
    """The whole page."""
    tables = [*metrics.show(report.metrics), *figures.show(report.figures)]
    return page(report, _PAGES[report.instrument], tables)


def document(report: Report[Any]) -> tuple[str, object]:
    """See formats.View."""
    view = _FIELDS[report.instrument]
    return view.KIND, {**view.data(report), "subjects": report.subjects}


def table(report: Report[Any]) -> tuple[Sequence[str], Iterator[Sequence[Cell]]]:
    """One row for each scenario, kernel and phase, the sum of the phases last.

    Its last cell is what the arm's commit is called.
    """
    view = _FIELDS[report.instrument]
    arm = view.HEAD.index("arm")
    rows = ((*row, report.subjects.get(str(row[arm]), "")) for row in view.rows(report))
    return (*view.HEAD, "subject"), rows
