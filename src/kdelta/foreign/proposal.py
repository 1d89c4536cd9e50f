# SPDX-License-Identifier: GPL-2.0-or-later
"""A guess as a file: the mapping that --mapping takes, with a reason for each column."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import msgspec

from kdelta.foreign.mapping import ArmKeys, ColumnKeys, Figures, Mapping, MetricKeys
from kdelta.foreign.record import SourceFile
from kdelta.foreign.wordlists import vocabulary
from kdelta.foreign.work import Guess
from kdelta.printable import printable

ENDING = ".mapping.toml"  # of the names of files that hold one
_PLAIN = vocabulary("delimiter encoding decimal missing replicate planned ok order ignore")
_HEAD = """\
# What the columns of this table are.  kdelta is not sure; check the lines marked with "?",
# correct what is wrong, and import again with --mapping and the name of this file.
# All keys: docs/foreign.md.
"""
_LEGEND = """\

# What a column may be, as KEY = "COLUMN" under [columns]:
#   arm (what is compared), role, boot, round (within a boot), run (its name), position (order
#   of execution), status; dimensions = ["COLUMN", ...] are settings: arms are compared where all
#   are equal; state = [...] is page state; gates = [...] must be zero or true.
# Above [columns]: ignore = ["COLUMN"] is not read; order = ["OLD", "NEW"] are the arms.
# Under [metrics."NAME"]: value, or mean, sd and n, = "COLUMN"; unit = "us"; better = "lower",
#   "higher" or "none", which is told and not judged.
"""


def text(source: SourceFile, guess: Guess, names: Sequence[str] = ()) -> str:
    """The proposal as TOML that `mapping.parse` reads; names: of the files that it is for."""
    lines = [_HEAD]
    lines += [f"# ? {printable(doubt, 300)}" for doubt in guess.doubts]
    lines += ["#", "# column: what it would be (why)"]
    lines += [
        f"#   {printable(one.column, 60)}: {one.what} ({printable(one.why, 200)})"
        for one in guess.told
    ]
    files = tuple(dict.fromkeys(names)) or (source.name.rpartition("/")[2],)
    lines += ["", f"files = {_value(files)}", *_mapping(_bare(guess.mapping))]
    return "\n".join(lines) + "\n" + _LEGEND


def _bare(mapping: Mapping) -> Mapping:
    """The same without the arm among its dimensions: it is never one."""
    keys = mapping.columns
    kept = tuple(name for name in keys.dimensions if name != keys.arm)
    return msgspec.structs.replace(mapping, columns=msgspec.structs.replace(keys, dimensions=kept))


def sentence(guess: Guess) -> str:
    """What the columns of a table were taken for, in one line."""
    mapping = guess.mapping
    keys = mapping.columns
    parts = [f"arm {keys.arm}"] if keys.arm else []
    parts += [f"arms {', '.join(mapping.arms)}"] if mapping.arms else []
    parts += [f"dimensions {', '.join(keys.dimensions)}"] if keys.dimensions else []
    parts += [
        f"{key} {getattr(keys, key)}"
        for key in ("boot", "position", "round", "run", "metric", "status")
        if getattr(keys, key)
    ]
    for name, metric in mapping.metrics.items():
        unit = f" ({metric.unit}, {metric.better})" if metric.unit else ""
        what = ", ".join(key for key, _ in metric.named()) or "arms"
        parts.append(f"{name}{unit}: {what}")
    parts += [f"{key} {column}" for key, column in keys.named()]
    left = [one.column for one in guess.told if one.what == "not read"]
    parts += [f"not read: {', '.join(left)}"] if left else []
    return printable("; ".join(parts), 1000)


def _mapping(mapping: Mapping) -> Iterator[str]:
    default = Mapping()
    for key in _PLAIN:
        found = getattr(mapping, key)
        if found != getattr(default, key):
            yield f"{key} = {_value(found)}"
    yield from ("", "[columns]")
    yield from _keys(mapping.columns, ColumnKeys())
    for table in ("facts", "details", "read_back"):
        pairs = getattr(mapping, table)
        if pairs:
            yield from ("", f"[{table}]")
            yield from (f"{_key(key)} = {_value(column)}" for key, column in pairs.items())
    for column, split in mapping.split.items():
        yield from ("", f"[split.{_key(column)}]", f"into = {_value(split.into)}")
        yield f"at = {_value(split.at)}"
    for arm, keys in mapping.arm_keys():
        yield from ("", f"[arms.{_key(arm)}]", *_keys(keys, ArmKeys()))
    for name, metric in mapping.metrics.items():
        yield from ("", f"[metrics.{_key(name)}]", *_keys(metric, MetricKeys()))


def _keys(found: Figures, default: Figures) -> Iterator[str]:
    for key in found.__struct_fields__:
        value = getattr(found, key)
        if value != getattr(default, key):
            yield f"{key} = {_value(value)}"


def _key(text: str) -> str:
    return _value(text)


def _value(found: object) -> str:
    """A string, a number or a list of strings as TOML, whose strings are JSON's."""
    plain = msgspec.to_builtins(found)
    if isinstance(plain, tuple | list):
        return "[" + ", ".join(_value(each) for each in plain) + "]"
    return json.dumps(plain).replace("\x7f", "\\u007f")
