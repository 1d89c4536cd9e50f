# SPDX-License-Identifier: GPL-2.0-or-later
"""A mapping says what each column of a table is; users write it as TOML (docs/foreign.md).

It is the only way from a table to rows: `guess` makes one where the user gave none.
"""

from __future__ import annotations

import codecs
import fnmatch
import tomllib
from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from kdelta.errors import SpecError
from kdelta.foreign import mapping_faults
from kdelta.foreign.wordlists import vocabulary
from kdelta.metric import Assume, Better
from kdelta.printable import quoted
from kdelta.verdict.series import ReplicateUnit

_Text = Annotated[str, Meta(min_length=1, max_length=200)]
_Names = Annotated[tuple[_Text, ...], Meta(max_length=500)]

OK = vocabulary(
    "ok pass passed success successful succeeded done completed complete good valid yes"
    " true 0 1 clean finished exited"
)
_FIGURES = ("value", "values", "mean", "median", "sd", "cv", "cv_percent")
UNITS = "units"  # a fact: that the units of all arms are the same
MISSING = (
    *("", "-", "--", "N/A", "n/a", "NA", "#N/A", "null", "NULL", "nan", "NaN", "NAN"),
    *("\N{EN DASH}", "\N{EM DASH}"),
)


class Figures(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The columns with the figures of one metric.

    value:  one measured value a row.
    values: all values of an arm in one cell, or a column for each of them.
    mean .. failed: what somebody computed of values that are not shown; cv is a fraction.
    """

    value: _Text | None = None
    values: _Text | _Names | None = None
    mean: _Text | None = None
    median: _Text | None = None
    sd: _Text | None = None
    cv: _Text | None = None
    cv_percent: _Text | None = None
    n: _Text | None = None
    failed: _Text | None = None

    def named(self) -> Iterator[tuple[str, str]]:
        """(key, column) of every column that is named."""
        for key in Figures.__struct_fields__:
            found = getattr(self, key)
            for column in (found,) if isinstance(found, str) else found or ():
                yield key, column

    @property
    def measured(self) -> bool:
        """True when a column with figures is named; a count alone is none."""
        return any(key not in ("n", "failed") for key, _ in self.named())


class MetricKeys(Figures, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[metrics.NAME]: its columns in a wide table; unit and direction where no column tells."""

    unit: _Text | None = None
    better: Better | None = None
    assume: Assume = Assume.NOTHING


class ArmKeys(Figures, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[arms.NAME]: the columns of that arm, in a table that has a column for each arm."""


class ColumnKeys(Figures, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[columns]: the column for each part of a row."""

    arm: _Text | None = None
    role: _Text | None = None
    metric: _Text | None = None
    boot: _Text | None = None
    position: _Text | None = None
    round: _Text | None = None
    run: _Text | None = None
    status: _Text | None = None
    failure: _Text | None = None
    unit: _Text | None = None
    better: _Text | None = None
    dimensions: _Names = ()
    state: _Names = ()
    gates: _Names = ()


class Split(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[split.COLUMN]: the dimensions whose settings stand in its cells, separated by `at`."""

    into: Annotated[tuple[_Text, ...], Meta(min_length=2, max_length=6)]
    at: Annotated[str, Meta(min_length=1, max_length=5)] = "/"


class Mapping(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mapping file."""

    columns: ColumnKeys = ColumnKeys()
    files: _Names = ()
    delimiter: Annotated[str, Meta(pattern=r"\A(?:[,;\t|]|blanks)\Z")] | None = None
    encoding: _Text = "utf-8"
    decimal: Annotated[str, Meta(pattern=r"\A[.,]\Z")] = "."
    missing: Annotated[tuple[str, ...], Meta(max_length=50)] = MISSING
    replicate: ReplicateUnit | None = None
    planned: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    ok: Annotated[tuple[str, ...], Meta(max_length=200)] = OK  # "": a cell that says nothing
    order: _Names = ()
    ignore: _Names = ()
    facts: dict[_Text, _Text] = {}
    details: dict[_Text, _Text] = {}
    read_back: dict[_Text, _Text] = {}
    split: dict[_Text, Split] = {}
    arms: dict[_Text, _Text | ArmKeys] = {}
    metrics: dict[_Text, MetricKeys] = {}

    @property
    def settings(self) -> tuple[str, ...]:
        """The columns of dimensions; what is split is one, too."""
        listed = self.columns.dimensions
        return (*listed, *(column for column in self.split if column not in listed))

    def takes(self, name: str) -> bool:
        """True when this mapping is for the file of that name."""
        base = name.rpartition("/")[2]
        return not self.files or any(
            fnmatch.fnmatchcase(text, one) for one in self.files for text in (name, base)
        )

    def arm_keys(self) -> Iterator[tuple[str, ArmKeys]]:
        """(arm, its columns) of a table with a column for each arm."""
        for arm, keys in self.arms.items():
            yield arm, ArmKeys(value=keys) if isinstance(keys, str) else keys

    def named(self) -> Iterator[tuple[str, str]]:
        """(key, column) of every column that the mapping names, as a user would write the key."""
        keys = self.columns
        for key in ColumnKeys.__struct_fields__:
            found = getattr(keys, key)
            for column in (found,) if isinstance(found, str) else found or ():
                yield f"columns.{key}", column
        for arm, arm_keys in self.arm_keys():
            yield from ((f"arms.{arm}.{key}", column) for key, column in arm_keys.named())
        for name, metric in self.metrics.items():
            yield from ((f"metrics.{name}.{key}", column) for key, column in metric.named())
        for table, pairs in (("details", self.details), ("read_back", self.read_back)):
            yield from ((f"{table}.{key}", column) for key, column in pairs.items())
        yield from (("split", column) for column in self.split)
        yield from (("ignore", column) for column in self.ignore)


_KEYS = {
    "": Mapping.__struct_fields__,
    "columns": ColumnKeys.__struct_fields__,
    "split.*": Split.__struct_fields__,
    "arms.*": ArmKeys.__struct_fields__,
    "metrics.*": MetricKeys.__struct_fields__,
}


def parse(text: str, name: str) -> Mapping:
    """The mapping that a TOML file holds.  Raises SpecError naming the key."""
    try:
        found = msgspec.convert(tomllib.loads(text), Mapping)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"not TOML: {error}", place=name, action="correct the line") from error
    except msgspec.ValidationError as error:
        raise mapping_faults.fault(error, text, name, _KEYS) from error
    for cause, place in _contradictions(found):
        raise SpecError(cause, place=f"{name}: {place}", action="see docs/foreign.md")
    return found


def _contradictions(found: Mapping) -> Iterator[tuple[str, str]]:
    columns = found.columns
    long = columns.measured
    wide = any(keys.measured for keys in found.metrics.values())
    if long + wide + bool(found.arms) > 1:
        yield "the figures stand in one place: [columns], [metrics.NAME] or [arms.NAME]", "columns"
    rest = found.metrics or columns.state or columns.gates or found.read_back or found.details
    if not (long or found.arms or rest):
        yield "it names no column with figures", "columns"
    if long and not columns.metric and len(found.metrics) != 1:
        yield (
            "either columns.metric, or one [metrics.NAME] that says what the values are",
            "columns",
        )
    if found.arms and columns.arm:
        yield "columns.arm and [arms.NAME] exclude each other", "arms"
    if found.arms and not columns.metric and len(found.metrics) != 1:
        yield "columns.metric, or one [metrics.NAME], says what the arms' columns hold", "arms"
    told = columns.state or columns.gates or found.read_back or found.details
    if columns.arm and found.metrics and not (wide or long or told):
        first = next(iter(found.metrics))
        yield 'it names no column with figures, as value = "COLUMN" does', f"metrics.{first}"
    yield from _said_twice(found)
    try:
        codecs.lookup(found.encoding)
    except LookupError:
        yield f"no encoding is called {quoted(found.encoding)}", "encoding"


def _said_twice(found: Mapping) -> Iterator[tuple[str, str]]:
    """Columns of which a mapping says two things that exclude each other."""
    roles = {column: key for key, column in found.named() if _is_role(key)}
    for key, column in found.named():
        if key.rpartition(".")[2] in _FIGURES and column in roles:
            yield f"column {quoted(column)} has figures, and is {roles[column]}, too", key
    named = {column: key for key, column in found.named() if key != "ignore"}
    for column in found.ignore:
        if column in named:
            yield f"column {quoted(column)} is ignored, and is {named[column]}, too", "ignore"


def _is_role(key: str) -> bool:
    table, _, name = key.partition(".")
    return (table == "columns" and name not in Figures.__struct_fields__) or key == "split"


def audit_only(found: Mapping) -> Mapping:
    """A mapping without its figures: states and facts only."""
    keys = dict.fromkeys((*Figures.__struct_fields__, "metric", "unit", "better"))
    return msgspec.structs.replace(
        found, columns=msgspec.structs.replace(found.columns, **keys), metrics={}, arms={}
    )
