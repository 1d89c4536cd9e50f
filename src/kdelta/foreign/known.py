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


def _rt_app() -> Mapping:
    """How late each task of a thread woke, in us; the rest was set, or is made of moments."""
    rest = "idx perf run period start end rel_st slack c_duration c_period"
    return Mapping(
        ignore=tuple(rest.split()),
        metrics={"wu_lat": MetricKeys(value="wu_lat", unit="us", better=Better.LOWER)},
    )


_HEADS: Dict[tuple[str, ...], tuple[str, Mapping]] = {
    ("tasks", "processes", "processes_idle", "threads", "threads_idle", "linear"): (
        "will-it-scale",
        _will_it_scale(),
    ),
    (*_rt_app().ignore, "wu_lat"): ("rt-app", _rt_app()),
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
