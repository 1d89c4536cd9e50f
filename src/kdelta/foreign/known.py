# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables whose head line names the program that wrote them: what their columns mean is known."""

from __future__ import annotations

from collections.abc import Mapping as Dict

import msgspec

from kdelta.foreign.mapping import ColumnKeys, Mapping, MetricKeys
from kdelta.foreign.work import ColumnReason, Guess
from kdelta.metric import Better


def _will_it_scale() -> Mapping:
    """Operations a second of so many processes or threads; a row for each count of tasks."""
    rate = MetricKeys(unit="ops/s", better=Better.HIGHER)
    return Mapping(
        columns=ColumnKeys(dimensions=("tasks",)),
        ignore=("processes_idle", "threads_idle", "linear"),
        metrics={
            name: msgspec.structs.replace(rate, value=name) for name in ("processes", "threads")
        },
    )


_HEADS: Dict[tuple[str, ...], tuple[str, Mapping]] = {
    ("tasks", "processes", "processes_idle", "threads", "threads_idle", "linear"): (
        "will-it-scale",
        _will_it_scale(),
    ),
}


def known(columns: tuple[str, ...], base: Mapping) -> Guess | None:
    """What a table with that head line is; None: its program is not known.

    base: encoding and delimiter of the file.
    """
    if columns not in _HEADS:
        return None
    program, mapping = _HEADS[columns]
    found = msgspec.structs.replace(mapping, delimiter=base.delimiter, encoding=base.encoding)
    reason = f"{program} writes tables with this head line"
    return Guess(
        mapping=found,
        told=tuple(ColumnReason(column, key, reason) for key, column in mapping.named()),
        doubts=(),
        measured=True,
        armless=True,
        united=True,
    )
