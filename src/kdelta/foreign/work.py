# SPDX-License-Identifier: GPL-2.0-or-later
"""A guess in the making: which columns of a table have been taken for what, and why."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from kdelta.foreign.columns import Cells, Columns
from kdelta.foreign.mapping import OK, ArmKeys, ColumnKeys, Mapping, MetricKeys, Split
from kdelta.foreign.words import Part, Said
from kdelta.verdict.series import ReplicateUnit


@dataclass(frozen=True, slots=True)
class ColumnReason:
    """What a column would be, and why."""

    column: str
    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """A mapping for one table.

    told:     of each column what it was taken for.
    doubts:   sentences; with one of them the mapping is a proposal.
    measured: there is something in it that can be judged, or could.
    armless:  no column names an arm: the file may be one.
    unnamed:  no name says which column is the arm: one of few words is proposed.
    profile:  it counts calls of functions, so its times are those of a traced kernel.
    united:   the direction of some figures is known, so it is a table of measurements.
    """

    mapping: Mapping
    told: tuple[ColumnReason, ...]
    doubts: tuple[str, ...]
    measured: bool
    armless: bool
    united: bool
    profile: bool = False
    unnamed: bool = False


@dataclass(slots=True)
class Work:
    """What has been found so far.

    left:    columns that are not yet taken for anything, with what their names say.
    keys:    of [columns], apart from lists.
    figures: columns of figures: they never tell rows apart.
    beside:  what the head of a column of text says of the figures beside: benchmark (us).
    samples: what stands for a column for each run, and these columns.
    """

    table: Columns
    stem: str
    left: dict[str, Said]
    figures: dict[str, Said] = field(default_factory=dict)
    told: list[ColumnReason] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    keys: dict[str, str | tuple[str, ...]] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)
    read_back: dict[str, str] = field(default_factory=dict)
    dimensions: list[str] = field(default_factory=list)
    state: list[str] = field(default_factory=list)
    gates: list[str] = field(default_factory=list)
    split: dict[str, Split] = field(default_factory=dict)
    ignore: list[str] = field(default_factory=list)
    arms: dict[str, str | ArmKeys] = field(default_factory=dict)
    metrics: dict[str, MetricKeys] = field(default_factory=dict)
    ok: tuple[str, ...] = OK
    samples: dict[str, tuple[str, ...]] = field(default_factory=dict)
    beside: Said | None = None
    replicate: ReplicateUnit | None = None
    planned: int | None = None
    measured: bool = False
    united: bool = False
    profile: bool = False
    unnamed: bool = False

    @property
    def arm(self) -> tuple[str, ...]:
        """The column of the arm; empty: there is none."""
        column = self.keys.get("arm")
        return (column,) if isinstance(column, str) else ()

    def cells(self, column: str) -> Cells:
        """The cells of a column."""
        return self.table.cells[column]

    def take(self, column: str, what: str, why: str) -> None:
        """Say what a column is."""
        self.left.pop(column, None)
        self.told.append(ColumnReason(column, what, why))

    def key(self, name: str, column: str, why: str) -> None:
        """A column of [columns]."""
        self.keys[name] = column
        self.take(column, name, why)

    def leave(self, column: str, why: str) -> None:
        """A column that is not read."""
        self.ignore.append(column)
        self.take(column, "not read", why)

    def of(self, *parts: Part) -> list[str]:
        """Columns left over whose names say one of these."""
        return [name for name, said in self.left.items() if said.part in parts]

    def guess(self, base: Mapping) -> Guess:
        """The guess as far as it is; base: how the file was read."""
        for one, listed in self.samples.items():
            self._spread(one, listed)
        columns = ColumnKeys(
            **self.keys,  # type: ignore[arg-type]
            dimensions=tuple(self.dimensions),
            state=tuple(self.state),
            gates=tuple(self.gates),
        )
        mapping = msgspec.structs.replace(
            base,
            columns=columns,
            decimal=self.table.decimal,
            ok=self.ok,
            replicate=self._repeated(),
            planned=self.planned or base.planned,
            ignore=tuple(self.ignore),
            details=self.details,
            read_back=self.read_back,
            split=self.split,
            arms=self.arms,
            metrics=self.metrics,
        )
        return Guess(
            mapping=mapping,
            told=tuple(self.told),
            doubts=tuple(self.doubts),
            measured=self.measured,
            armless=not self.arm and not self.arms,
            united=self.united,
            profile=self.profile,
            unnamed=self.unnamed,
        )

    def _spread(self, one: str, listed: tuple[str, ...]) -> None:
        """Put the columns of runs where what stood for all of them was named."""
        if self.keys.get("values") == one:
            self.keys["values"] = listed
        for name, metric in self.metrics.items():
            if metric.values == one:
                self.metrics[name] = msgspec.structs.replace(metric, values=listed)

    def _repeated(self) -> ReplicateUnit | None:
        """A step of its own for each row is a boot in the published tables (docs/foreign.md)."""
        if self.replicate:
            return self.replicate
        position = self.keys.get("position")
        if position != "step" or "boot" in self.keys or "round" in self.keys:
            return None
        cells = self.cells(position)
        return ReplicateUnit.BOOT if len(cells.distinct) == self.table.rows else None
