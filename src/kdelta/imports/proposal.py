# SPDX-License-Identifier: GPL-2.0-or-later
"""A mapping from a fixed table of exact column names; what the table does not settle stays blank.

No cell is looked at, but for the names of the arms, which stand in the line of their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kdelta.imports.mapping import toml_text
from kdelta.imports.record import SourceFile
from kdelta.imports.versions import in_order
from kdelta.printable import printable

# Column name -> the key of [columns]; with a unit and a direction the metric of that name.
NAMES: dict[str, str | tuple[str, str]] = {
    "kernel": "arm",
    "arm": "arm",
    "role": "role",
    "boot": "boot",
    "round": "round",
    "iteration": "round",
    "position": "position",
    "order": "position",
    "run_id": "run",
    "metric": "metric",
    "unit": "unit",
    "value": "value",
    "values": "values",
    "mean": "mean",
    "median": "median",
    "sd": "sd",
    "stddev": "sd",
    "cv": "cv",
    "n": "n",
    "runs": "n",
    "failed": "failed",
    "status": "success",
    "failure_reason": "reason",
    "cpu": "dimensions",
    "cpus": "dimensions",
    "threads": "dimensions",
    "benchmark": "dimensions",
    "scenario": "dimensions",
    "ns": ("ns", "less"),
    "us": ("us", "less"),
    "ms": ("ms", "less"),
    "seconds": ("s", "less"),
    "ns_per_op": ("ns/op", "less"),
    "ns_per_page": ("ns/page", "less"),
    "ops_per_s": ("ops/s", "more"),
    "mib_per_s": ("MiB/s", "more"),
}
_BETTER = 'better = ""  # "less" or "more"'


def proposed(source: SourceFile) -> str:
    """The text of a mapping for a table; a blank ("") is for the user to fill in."""
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
    lines = [*_head(source, keys, wide=bool(metrics)), "", "[columns]", *_columns(keys)]
    if not metrics and not keys.keys() & {"value", "values", "mean", "median"}:
        shown = 'value = "COLUMN", unit = "", better = ""'
        metrics = [f"# NAME = {{ {shown} }}  # a line for each column that was measured"]
    if metrics:
        lines += ["", "[metrics]", *metrics]
    elif "metric" not in keys:
        lines += ["", "[metrics.value]", 'unit = ""', _BETTER]
    for column in keys.get("success", ()):
        lines += ["", "[success]", f'{column} = ""  # the cell of a run that counts']
    return "\n".join(lines) + "\n"


def _head(source: SourceFile, keys: dict[str, list[str]], *, wide: bool) -> Iterator[str]:
    yield f"# How kdelta reads {printable(source.name, 200)}; docs/imports.md has every key."
    left = [column for column in source.columns if column not in NAMES]
    if left:
        yield f"# To be mapped, or named in ignore: {', '.join(map(toml_text, left))}"
        yield "ignore = []"
    summary = not wide and keys.keys() & {"mean", "median"} and "value" not in keys
    replicate = "boot" if "boot" in keys else "round" if "round" in keys else ""
    replicate = replicate or ("none" if summary else "")
    told = "" if replicate else '  # what a row is: "boot", "round" or "none"'
    yield f'replicate = "{replicate}"{told}'
    if "metric" in keys:
        if "unit" not in keys:
            yield 'unit = ""  # of every metric'
        yield f"{_BETTER}, of every metric"
    arms = _arms(source, keys.get("arm", []))
    if len(arms) > 1 and "role" not in keys and in_order(arms) is None:
        names = ", ".join(toml_text(arm) for arm in arms[:20])
        yield f'order = [""]  # every arm, oldest first, of {names}'


def _columns(keys: dict[str, list[str]]) -> Iterator[str]:
    if "arm" not in keys:
        yield 'arm = ""  # the column with what is compared, as the kernel'
    for key, columns in keys.items():
        if key == "dimensions":
            yield f"dimensions = [{', '.join(map(toml_text, columns))}]"
        elif len(columns) > 1:
            names = " or ".join(map(toml_text, columns))
            yield f'{key} = ""  # {names}; name the other in ignore'
        elif key != "success":
            yield f"{key} = {toml_text(columns[0])}"


def _arms(source: SourceFile, columns: Sequence[str]) -> list[str]:
    if not columns:
        return []
    at = source.columns.index(columns[0])
    return list(dict.fromkeys(line.cells[at] for line in source.lines))
