# SPDX-License-Identifier: GPL-2.0-or-later
"""A function's history: columns are kernels at which it changed, and equal rows stand once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kdelta.analysis.history import FunctionHistory
from kdelta.metric import number


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTable:
    """kernels: the first, and those at which a figure is another than at the kernel before.

    rows: scenarios that have the same figures, and these; "" where it did not run.
    fewer: a figure stands for the kernels up to the next column, too.
    """

    name: str
    kernels: tuple[str, ...]
    rows: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    fewer: bool

    @property
    def scenarios(self) -> int:
        """That execute it."""
        return sum(len(names) for names, _ in self.rows)


def table(function: FunctionHistory, kernels: Sequence[str]) -> FunctionTable:
    """Of all kernels, oldest first."""
    figures = [[_figure(cell) for cell in cells] for _, cells in function.rows]
    columns = list(zip(*figures, strict=True))
    told = [at for at, own in enumerate(columns) if at == 0 or own != columns[at - 1]]
    alike: dict[tuple[str, ...], list[str]] = {}
    for (name, _), cells in zip(function.rows, figures, strict=True):
        alike.setdefault(tuple(cells[at] for at in told), []).append(name)
    return FunctionTable(
        name=function.name,
        kernels=tuple(kernels[at] for at in told),
        rows=tuple((tuple(names), cells) for cells, names in alike.items()),
        fewer=len(told) < len(kernels),
    )


def document(found: FunctionTable) -> dict[str, Any]:
    """As JSON: the figures as numbers, null where it did not run."""
    return {
        "name": found.name,
        "kernels": found.kernels,
        "rows": [
            [names, [float(cell) if cell else None for cell in cells]]
            for names, cells in found.rows
        ],
    }


def _figure(value: float | None) -> str:
    return "" if value is None else number(value)
