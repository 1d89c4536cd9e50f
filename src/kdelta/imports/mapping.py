# SPDX-License-Identifier: GPL-2.0-or-later
"""A mapping says what each column of a table is; users write it as TOML (docs/imports.md).

Nothing else decides what a table means.  A mapping also gives the direction of what a declared
format measures without one, and the order of arms that no format puts in order.  A table whose
columns are all in a fixed list of names, which leaves nothing blank, needs none.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import math
import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from kdelta.errors import SpecError
from kdelta.files import toml_of
from kdelta.imports.record import Roles, SourceFile
from kdelta.metric import Assume, Better, Metric, ReplicateUnit
from kdelta.printable import known, printable, quoted

_Text = Annotated[str, Meta(min_length=1, max_length=200)]
_Blank = Annotated[str, Meta(max_length=200)]  # "": to be filled in
_Names = Annotated[tuple[_Text, ...], Meta(max_length=500)]
_Direction = Literal["less", "more", ""]
DOCS = "see docs/imports.md"
NO_ARM = 'write arm = "COLUMN" under [columns]'
_OF_A_ROW = ("boot", "round", "position", "run", "reason")
# Column name -> the key of [columns]; with a unit and a direction the metric of that name.
NAMES: dict[str, str | tuple[str, str]] = {
    **{key: key for key in ("arm", "role", "boot", "round", "position", "metric", "unit")},
    **{key: key for key in ("value", "values", "mean", "median", "sd", "cv", "n", "failed")},
    **dict.fromkeys(("cpu", "cpus", "threads", "benchmark", "scenario"), "dimensions"),
    "kernel": "arm",
    "iteration": "round",
    "order": "position",
    "run_id": "run",
    "stddev": "sd",
    "runs": "n",
    "status": "success",
    "failure_reason": "reason",
    **{unit: (unit, "less") for unit in ("ns", "us", "ms")},
    "seconds": ("s", "less"),
    "ns_per_op": ("ns/op", "less"),
    "ns_per_page": ("ns/page", "less"),
    "ops_per_s": ("ops/s", "more"),
    "mib_per_s": ("MiB/s", "more"),
}


class Figures(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The columns with the figures of one metric; cv is a fraction."""

    value: _Text | None = None
    values: _Text | _Names | None = None
    mean: _Text | None = None
    median: _Text | None = None
    sd: _Text | None = None
    cv: _Text | None = None
    cv_percent: _Text | None = None
    n: _Text | None = None
    failed: _Text | None = None

    def named(self) -> Iterator[str]:
        """Every column that is named."""
        for key in Figures.__struct_fields__:
            found = getattr(self, key)
            yield from (found,) if isinstance(found, str) else found or ()

    @property
    def measured(self) -> bool:
        """True when a column with figures is named; a count or a spread alone is none."""
        return any((self.value, self.values, self.mean, self.median))


class MetricKeys(Figures, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[metrics.NAME]: its columns where no column names the metric; its unit and direction."""

    unit: _Blank | None = None
    better: _Direction | None = None
    assume: Assume = Assume.NOTHING


class ColumnKeys(Figures, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[columns]: the column for each part of a row; the cells of role are old, new or control."""

    arm: _Blank | None = None
    role: _Text | None = None
    metric: _Text | None = None
    unit: _Text | None = None
    boot: _Text | None = None
    round: _Text | None = None
    position: _Text | None = None
    run: _Text | None = None
    reason: _Text | None = None
    dimensions: _Names = ()
    state: _Names = ()

    def roles(self) -> Iterator[tuple[str, str]]:
        """(key, column) of every column that holds no figures."""
        for key in (*("arm", "role", "metric", "unit"), *_OF_A_ROW):
            if column := getattr(self, key):
                yield key, column
        yield from (("dimensions", column) for column in self.dimensions)
        yield from (("state", column) for column in self.state)


class RoleKeys(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """[roles]: the names of the arms that are compared."""

    old: _Text
    new: _Text | _Names
    control: _Blank = ""


class Mapping(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mapping file; docs/imports.md has its keys."""

    columns: ColumnKeys = ColumnKeys()
    metrics: dict[_Text, MetricKeys] = {}
    arms: dict[_Text, _Text | Figures] = {}
    roles: RoleKeys | None = None
    order: Annotated[tuple[_Blank, ...], Meta(max_length=500)] = ()
    unit: _Blank | None = None
    better: _Direction | None = None
    replicate: Literal["boot", "round", "none", ""] | None = None
    planned: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    success: dict[_Text, str | int | tuple[str | int, ...]] = {}
    states: _Names = ()
    skip: _Names = ()
    ignore: _Names = ()
    missing: Annotated[tuple[str, ...], Meta(max_length=50)] = ("",)
    facts: dict[_Text, _Text] = {}
    read_back: dict[_Text, _Text] = {}
    files: _Names = ()

    def takes(self, name: str) -> bool:
        """True when this mapping is for the file of that name."""
        base = name.rpartition("/")[2]
        return not self.files or any(
            fnmatch.fnmatchcase(text, one) for one in self.files for text in (name, base)
        )

    @property
    def of_table(self) -> bool:
        """True for a mapping of columns; False: it only adds to a declared format."""
        return self.columns != ColumnKeys() or bool(self.arms)

    @property
    def unit_of_replicate(self) -> ReplicateUnit | None:
        """What was repeated; None where nothing is said apart."""
        units = {"boot": ReplicateUnit.BOOT, "round": ReplicateUnit.PROCESS_ROUND}
        return units.get(self.replicate or "")

    def good_cells(self) -> Iterator[tuple[str, list[str]]]:
        """(column, the cells of a run that counts) of [success]."""
        for column, wanted in self.success.items():
            yield column, [str(one) for one in (wanted if isinstance(wanted, tuple) else (wanted,))]

    @property
    def declared_roles(self) -> Roles | None:
        """The arms that are compared, where the mapping names them."""
        if self.roles is None:
            return None
        new = (self.roles.new,) if isinstance(self.roles.new, str) else self.roles.new
        return Roles(old=self.roles.old, new=new, control=self.roles.control)

    def figures_of_arms(self) -> Iterator[tuple[str, Figures]]:
        """(arm, its columns) of a table with a column for each arm."""
        for arm, keys in self.arms.items():
            yield arm, Figures(value=keys) if isinstance(keys, str) else keys

    def named(self) -> Iterator[str]:
        """Every column that the mapping names, also those that are ignored."""
        yield from (column for _, column in self.columns.roles())
        for figures in self.figures():
            yield from figures.named()
        yield from (*self.success, *self.read_back.values(), *self.ignore)

    def figures(self) -> Iterator[Figures]:
        """All parts of the mapping that name columns with figures."""
        yield self.columns
        yield from (figures for _, figures in self.figures_of_arms())
        yield from self.metrics.values()

    def metric(self, name: str, unit: str = "") -> Metric:
        """A metric by its declared unit and direction; unit: as a cell of its row says."""
        keys = self.metrics.get(name, MetricKeys())
        better = keys.better or self.better
        return Metric(
            name=name,
            unit=keys.unit or unit or self.unit or "",
            better=direction(better) if better else Better.NONE,
            assume=keys.assume,
        )


def direction(text: str) -> Better:
    """What `better = "less"` or "more" means."""
    return Better.LOWER if text == "less" else Better.HIGHER


def parse(text: str, name: str) -> Mapping:
    """The mapping that a TOML file holds.  Raises SpecError naming the line and the key."""
    try:
        found = msgspec.convert(toml_of(text), Mapping)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"not TOML: {error}", place=name, action="correct the line") from error
    except msgspec.ValidationError as error:
        raise _fault(str(error), text, name) from error
    if wrong := [*_blanks(found), *_contradictions(found)]:
        causes, actions, keys = zip(*dict.fromkeys(wrong), strict=True)
        place = _line_of(keys[0], text, name) if len(keys) == 1 else name
        raise SpecError("; ".join(causes), place=place, action="; ".join(dict.fromkeys(actions)))
    return found


UNKNOWN_REPEATED = "nothing says what was repeated"


def _blanks(found: Mapping) -> Iterator[tuple[str, str, str]]:
    """(what is left blank, the line to write, its key)."""
    yield from _wanting(found)
    for column, wanted in found.success.items():
        if wanted in ("", ()):
            told = f'write the cell of a good run, as {_key(column)} = "ok", under [success]'
            yield f"success of {quoted(column)} is blank", told, column
    if "" in found.order:
        told = 'write order = ["OLDEST", "NEWEST"], every arm'
        yield "the order of the arms is blank", told, "order"
    if doubled := [arm for at, arm in enumerate(found.order) if arm in found.order[:at]]:
        yield f"the order has {quoted(doubled[0])} twice", "name each arm once", "order"
    if found.of_table and not found.replicate and _has_figures(found):
        told = 'write replicate = "boot" (a row, or each boot, is one), "round" or "none"'
        yield UNKNOWN_REPEATED, told, "replicate"


def _wanting(found: Mapping) -> Iterator[tuple[str, str, str]]:
    """Metrics without a unit or a direction, and a table without arms."""
    if not found.of_table:
        return
    if not (found.columns.arm or found.arms):
        yield "no column is the arm", NO_ARM, "arm"
    names = list(found.metrics) or ([""] if _has_figures(found) else [])
    for name in names:
        keys = found.metrics.get(name, MetricKeys())
        where = f" under [metrics.{_key(name)}]" if name else ""
        shown = f" of {printable(name, 60)}" if name else ""
        if not (keys.better or found.better):
            told = f'write better = "less" or better = "more"{where}'
            yield f"nothing says whether less or more{shown} is better", told, "better"
        if not (keys.unit or found.unit or found.columns.unit):
            yield f"nothing says the unit{shown}", f'write unit = "UNIT"{where}', "unit"


def toml_text(text: str) -> str:
    """A text in quotes as TOML has it, harmless to a terminal."""
    told = json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in told)


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_text(name)


def _has_figures(found: Mapping) -> bool:
    figures = (keys.measured for keys in found.metrics.values())
    named = (found.columns.measured or bool(found.arms)) and "*" not in found.states
    return named or any(figures)


def _contradictions(found: Mapping) -> Iterator[tuple[str, str, str]]:
    if not found.of_table:
        return
    columns = found.columns
    wide = any(keys.measured for keys in found.metrics.values())
    if found.columns.measured + wide + bool(found.arms) > 1:
        yield "the figures stand in one place: [columns], [metrics.NAME] or [arms.NAME]", DOCS, ""
    if not (_has_figures(found) or columns.state or "*" in found.states):
        told = 'write value = "COLUMN" under [metrics.NAME]'
        yield "it names no column with figures", told, "metrics"
    if (columns.measured or found.arms) and not columns.metric and len(found.metrics) != 1:
        told = 'write metric = "COLUMN" under [columns], or one [metrics.NAME]'
        yield "nothing says what the values are", told, "metric"
    if found.arms and (columns.arm or columns.role):
        yield "columns.arm and role exclude [arms]", "leave one of them out", ""
    if found.roles and columns.role:
        yield "columns.role and [roles] exclude each other", "leave one of them out", "role"
    yield from _said_twice(found)


def _said_twice(found: Mapping) -> Iterator[tuple[str, str, str]]:
    seen: dict[str, str] = {}
    figures = dict.fromkeys(column for each in found.figures() for column in each.named())
    named = [*found.columns.roles(), *(("a column of figures", column) for column in figures)]
    for key, column in (*named, *(("ignore", column) for column in found.ignore)):
        if column in seen and not {seen[column], key} <= set(_OF_A_ROW):
            both = f"{seen[column]} and {key}"
            yield f"column {quoted(column)} is {both}", "leave one of them out", ""
        seen[column] = key
    for column in found.ignore:
        if column in found.success or column in found.read_back.values():
            yield f"column {quoted(column)} is ignored and read", "leave one of them out", ""


_PARTS = {"columns": ColumnKeys, "metrics": MetricKeys, "arms": Figures, "roles": RoleKeys}
_CHOICES = {
    "better": 'write better = "less" or better = "more"',
    "replicate": 'write replicate = "boot", "round" or "none"',
    "assume": 'write assume = "nothing" or "exact"',
}


def _fault(message: str, text: str, name: str) -> SpecError:
    """The error of a mapping whose TOML is no mapping: the key, its line, and what may stand."""
    what, _, path = message.partition(" - at `$")
    parts = [part for part in re.split(r"[.\[\]]+", path.rstrip("`")) if part]
    unknown = re.search(r"unknown field `([^`]*)`", what)
    if unknown:
        place = f"[{'.'.join(parts)}]" if parts else "a mapping"
        keys = (_PARTS.get(parts[0], Struct) if parts else Mapping).__struct_fields__
        cause = f"{place} has no key {quoted(unknown[1])}"
        action = known(unknown[1], keys)
        return SpecError(cause, place=_line_of(unknown[1], text, name), action=action)
    key = next((part for part in reversed(parts) if part.isidentifier()), "")
    cause = f"{'.'.join(parts)}: {printable(what.replace('`', ''), 200)}"
    action = _CHOICES.get(key, DOCS)
    if "length >= 1" in what:
        cause, action = f"{'.'.join(parts)} is blank", "write a name, or take the line out"
    elif "got `bool`" in what:
        action = 'write the cell in quotes, as "true" or "True"'
    return SpecError(cause, place=_line_of(key, text, name), action=action)


def _line_of(key: str, text: str, name: str) -> str:
    """The file with the line of the key, where just one line has it."""
    named = re.compile(rf"(?<![\w-]){re.escape(key)}(?![\w-])")
    lines = [at for at, line in enumerate(text.splitlines(), start=1) if named.search(line)]
    return f"{name}: line {lines[0]}" if key and len(lines) == 1 else name


def of_known_names(source: SourceFile, repeated: str = "") -> str:
    """The text of a mapping for a table by NAMES; what they do not settle is blank in it ("").

    repeated: what was.  Where they name no figures, every other column of numbers is a metric
    without unit; or it is an arm, in a table that has no column left for them.
    """
    keys, metrics = _settled(source)
    told = metrics or keys.keys() & {"value", "values", "mean", "median"}
    figures = [] if told else list(_figures(source))
    left = [column for column in source.columns if column not in (*NAMES, *figures)]
    wide = len(figures) > 1 and not left and "arm" not in keys
    if figures and not wide and "metric" in keys:
        keys["value"] = figures
    elif not wide:
        blank = 'unit = "", better = ""'
        metrics += [f"{_key(one)} = {{ value = {toml_text(one)}, {blank} }}" for one in figures]
    one = wide or (not metrics and keys.keys() & {"value", "values", "mean", "median"})
    summary = not metrics and keys.keys() & {"mean", "median"} and "value" not in keys
    known = next((key for key in ("boot", "round") if key in keys), "none" if summary else "")
    lines = [f'replicate = "{repeated or known}"']
    if left and ("arm" in keys or len(left) > 1):
        lines.append(f"ignore = [{', '.join(map(toml_text, left))}]")
    if "metric" in keys:
        lines += ['better = ""'] if "unit" in keys else ['unit = ""', 'better = ""']
    if keys or not wide:
        lines += ["[columns]", *([] if wide or "arm" in keys else [f'arm = ""{_among(left)}'])]
        lines += _columns(keys)
    lines += ["[arms]", *(f"{_key(one)} = {toml_text(one)}" for one in figures)] if wide else []
    lines += ["[metrics]", *metrics] if metrics else []
    lines += ["[metrics.value]", 'unit = ""', 'better = ""'] if one and "metric" not in keys else []
    for column in keys.get("success", ()):
        lines += ["[success]", f'{column} = ""']
    return "\n".join(lines) + "\n"


def _settled(source: SourceFile) -> tuple[dict[str, list[str]], list[str]]:
    """Columns by their key, and lines of metrics, as NAMES has them."""
    keys: dict[str, list[str]] = {}
    metrics = []
    for column in source.columns:
        known = NAMES.get(column)
        if isinstance(known, tuple):
            unit, better = known
            shown = f'value = {toml_text(column)}, unit = "{unit}", better = "{better}"'
            metrics.append(f"{column} = {{ {shown} }}")
        elif known:
            keys.setdefault(known, []).append(column)
    return keys, metrics


def _figures(source: SourceFile) -> Iterator[str]:
    """The columns that NAMES does not have and whose cells are all numbers, or empty."""
    for column in (each for each in source.columns if each not in NAMES):
        with contextlib.suppress(ValueError):
            if all(math.isfinite(float(cell)) for cell in source.cells(column) if cell):
                yield column


def _columns(keys: dict[str, list[str]]) -> Iterator[str]:
    for key, columns in keys.items():
        if key == "dimensions":
            yield f"dimensions = [{', '.join(map(toml_text, columns))}]"
        elif key != "success":
            yield (
                f"{key} = {toml_text(columns[0])}"
                if len(columns) == 1
                else f'{key} = ""{_among(columns)}'
            )


def _among(names: Sequence[str]) -> str:
    """A comment with what may stand in a blank."""
    return f"  # of {', '.join(map(toml_text, names[:5]))}" if names else ""
