# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a mapping fits the table that it is for."""

from __future__ import annotations

from collections.abc import Sequence

from kdelta.errors import SpecError
from kdelta.foreign.mapping import Mapping
from kdelta.foreign.record import SourceFile
from kdelta.printable import printable, quoted


def columns(source: SourceFile, mapping: Mapping) -> None:
    """Raise SpecError when the mapping names a column that the table does not have."""
    for key, column in mapping.named():
        if column not in source.columns:
            listed = ", ".join(printable(name, 40) for name in source.columns[:20])
            raise SpecError(
                f"there is no column {quoted(column)}, which the mapping's {key} names",
                place=f"{source.name}: line 1",
                action=f"the columns are {listed}",
            )
    for column, split in mapping.split.items():
        at = source.columns.index(column)
        cells = [line.cells[at] for line in source.lines if line.cells[at] not in mapping.missing]
        if cells and not any(split.at in cell for cell in cells):
            raise SpecError(
                f"no cell has {quoted(split.at)}, at which the mapping splits column"
                f" {quoted(column)}",
                place=f"{source.name}: line {source.lines[0].number}",
                action=f"correct at = in [split.{quoted(column)}]",
            )


def order(arms: Sequence[str], source: SourceFile, mapping: Mapping) -> None:
    """Raise SpecError for an order that leaves out arms: where they belong nothing would say."""
    left = [arm for arm in dict.fromkeys(arms) if arm not in mapping.order]
    if mapping.order and left:
        raise SpecError(
            f"the order of the mapping names no {', '.join(map(quoted, left[:5]))}",
            place=source.name,
            action="name every arm in order, oldest first",
        )
