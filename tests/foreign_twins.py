# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables of other people whose truth is known by construction, from a seed.

`layout(seed)` draws arms, settings, metrics and runs, and writes them down in one of the ways in
which people lay out tables: other names, other order, rows or columns for arms, metrics and runs,
lists in cells, two settings in a cell, decimal commas, figures of others beside.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kdelta.errors import SpecError
from kdelta.foreign import loading, mapping, reader
from kdelta.foreign.record import Contents

# (arm, settings, direction) -> sorted values, or one figure where only means are shown.
Truth = dict[tuple[str, frozenset[str], str], tuple[float, ...]]

ARMS = (
    ("6.16", "6.17"),
    ("v6.12.77", "v6.19.9", "v7.0.9-preempt"),
    ("6.9.3", "6.12.1"),
    ("base", "patched"),
    ("vanilla", "mm-fix"),
    ("parent", "child"),
    ("alpha", "beta"),
)
ARM_NAMES = ("kernel", "Version", "Kernel Version", "build", "variant", "release", "image", "point")
ODD_ARM_NAMES = ("was", "Kern", "config_name", "Prüfling", "subject_under_test", "k")
SETTINGS = {
    "scenario": ("no_thp_64m", "thp_64m"),
    "CPUs": ("1", "4", "8"),
    "thp mode": ("always", "never"),
    "threads": ("1", "2", "16"),
    "CPU/mem": ("1CPU/4GiB", "8CPU/16GiB"),
    "zustand": ("kalt", "warm"),
    "flavour_of_run": ("quick", "full"),
    "page kind": ("anon", "file", "shmem"),
}
QUANTITIES = (
    ("ns_per_page", "lower"),
    ("latency_us", "lower"),
    ("Elapsed (ms)", "lower"),
    ("time_s", "lower"),
    ("MB/s", "higher"),
    ("requests_per_sec", "higher"),
    ("mincore_ns_per_1k_pages", "lower"),
    ("cycles_per_op", "lower"),
)
REPLICATES = ("boot", "boot_id", "round", "iteration", "Run #", "repeat", "")
ODD_REPLICATES = ("durchgang", "versuch_nr")
WAYS = ("rows", "long", "arms", "runs", "list", "means")


@dataclass(slots=True)
class Layout:
    """A table as text, and what it says."""

    seed: int
    way: str
    head: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    delimiter: str = ","
    comma: bool = False
    truth: Truth = field(default_factory=dict)

    def text(self, jitter: random.Random) -> str:
        """The table with its columns in any order."""
        order = list(range(len(self.head)))
        jitter.shuffle(order)
        lines = [[row[at] for at in order] for row in [self.head, *self.rows]]
        return "".join(self.delimiter.join(map(self._quoted, line)) + "\n" for line in lines)

    def _quoted(self, cell: str) -> str:
        return f'"{cell}"' if self.delimiter in cell else cell


@dataclass(slots=True)
class _Plan:
    arms: tuple[str, ...]
    settings: dict[str, tuple[str, ...]]
    quantities: tuple[tuple[str, str], ...]
    n: int
    comma: bool
    values: dict[tuple[str, tuple[str, ...], str], list[float]] = field(default_factory=dict)

    def number(self, value: float) -> str:
        text = f"{value:.4f}"
        return text.replace(".", ",") if self.comma else text


def layout(seed: int) -> Layout:
    """The layout of a seed; every seed has its own way of writing, names and values."""
    jitter = random.Random(seed)  # noqa: S311  tables, not secrets
    way = WAYS[seed % len(WAYS)]
    plan = _plan(jitter, way)
    found = Layout(
        seed=seed,
        way=way,
        comma=plan.comma,
        delimiter=";" if plan.comma else jitter.choice(",,;\t|"),
    )
    {
        "rows": _rows,
        "long": _long,
        "arms": _arms,
        "runs": _runs,
        "list": _list,
        "means": _means,
    }[way](jitter, plan, found)
    for (arm, settings, name), values in plan.values.items():
        better = dict(plan.quantities)[name]
        key = (arm, frozenset(_settings(plan, settings)), f"{name} {better}")
        shown = [sum(values) / len(values)] if way == "means" else values
        found.truth[key] = tuple(sorted(round(value, 4) for value in shown))
    return found


def _settings(plan: _Plan, settings: tuple[str, ...]) -> Iterator[str]:
    for name, text in zip(plan.settings, settings, strict=True):
        if name == "CPU/mem":
            cpu, memory = text.split("/")
            yield from (cpu.removesuffix("CPU"), memory)
        else:
            yield text


def _plan(jitter: random.Random, way: str) -> _Plan:
    names = jitter.sample(sorted(SETTINGS), jitter.choice((0, 1, 1, 2)))
    count = 1 if way in ("arms", "runs", "list") else jitter.choice((1, 1, 2))
    plan = _Plan(
        arms=jitter.choice(ARMS),
        settings={name: SETTINGS[name] for name in names},
        quantities=tuple(jitter.sample(QUANTITIES, count)),
        n=jitter.choice((5, 6, 9)),
        comma=jitter.random() < 0.2,
    )
    cells: list[tuple[str, ...]] = [()]
    for texts in plan.settings.values():
        cells = [(*cell, text) for cell in cells for text in texts]
    for name, _ in plan.quantities:
        level = jitter.uniform(20, 900)
        for cell in cells:
            shift = jitter.uniform(1, 9)
            for at, arm in enumerate(plan.arms):
                middle = level * shift * (1 + 0.2 * at)
                plan.values[arm, cell, name] = [
                    round(jitter.gauss(middle, middle / 50), 4) for _ in range(plan.n)
                ]
    return plan


def _arm_name(jitter: random.Random) -> str:
    return jitter.choice(ODD_ARM_NAMES if jitter.random() < 0.25 else ARM_NAMES)


def _cells(plan: _Plan) -> list[tuple[str, ...]]:
    return list(dict.fromkeys(cell for _, cell, _ in plan.values))


def _beside(jitter: random.Random, found: Layout, values: list[float]) -> None:
    """Columns that must not be taken for times, and that tell nothing apart."""
    scale = sum(values) / len(values)
    for head in (*_SCALED, *_WORDS, "delta_pct", "log"):
        if jitter.random() < 0.25:
            found.head.append(head)
            for at, row in enumerate(found.rows):
                if head in _WORDS:
                    row.append(jitter.choice(_WORDS[head]))
                elif head == "log":
                    row.append(f"serial-{found.seed}-{at}.log")
                else:
                    low, high = _SCALED.get(head, (-0.2, 0.2))
                    text = f"{jitter.uniform(low, high) * scale:.3f}"
                    row.append(text.replace(".", ",") if found.comma else text)


_SCALED = {"stdev_ns": (0.01, 0.03), "min_ns": (0.7, 0.9)}
_WORDS = {
    "comment": ("", "warm", "after lunch"),
    "rack": ("north",),
    "semantic_ok": ("true",),
    "unexpected_results": ("0",),
    "status": ("ok",),
}


def _replicate(jitter: random.Random) -> str:
    return jitter.choice(ODD_REPLICATES if jitter.random() < 0.15 else REPLICATES)


def _rows(jitter: random.Random, plan: _Plan, found: Layout) -> None:
    """A row for each run, a column for each metric."""
    turn = _replicate(jitter)
    found.head = [_arm_name(jitter), *plan.settings, *([turn] if turn else [])]
    found.head += [name for name, _ in plan.quantities]
    for at in range(plan.n):
        for cell in _cells(plan):
            for arm in plan.arms:
                figures = [plan.number(plan.values[arm, cell, q][at]) for q, _ in plan.quantities]
                found.rows.append([arm, *cell, *([str(at + 1)] if turn else []), *figures])
    _beside(jitter, found, next(iter(plan.values.values())))
    if jitter.random() < 0.5:
        jitter.shuffle(found.rows)


def _long(jitter: random.Random, plan: _Plan, found: Layout) -> None:
    """A row for each run and metric."""
    turn = _replicate(jitter)
    value = jitter.choice(("value", "reading", "val"))
    name = jitter.choice(("metric", "measurement", "quantity"))
    found.head = [_arm_name(jitter), *plan.settings, *([turn] if turn else []), name, value]
    for (arm, cell, quantity), values in plan.values.items():
        for at, one in enumerate(values):
            head = [arm, *cell, *([str(at + 1)] if turn else [])]
            found.rows.append([*head, quantity, plan.number(one)])


def _arms(jitter: random.Random, plan: _Plan, found: Layout) -> None:
    """A column for each arm."""
    ((quantity, _),) = plan.quantities
    turn = _replicate(jitter)
    said = jitter.choice(("{arm}_{q}", "{q} {arm}", "{arm} ({q})"))
    found.head = [*plan.settings, *([turn] if turn else [])]
    found.head += [said.format(arm=arm, q=quantity) for arm in plan.arms]
    for at in range(plan.n):
        for cell in _cells(plan):
            figures = [plan.number(plan.values[arm, cell, quantity][at]) for arm in plan.arms]
            found.rows.append([*cell, *([str(at + 1)] if turn else []), *figures])


def _runs(jitter: random.Random, plan: _Plan, found: Layout) -> None:
    """A column for each run."""
    ((quantity, _),) = plan.quantities
    word = jitter.choice(("run{at}", "r{at}", "rep_{at}", "sample {at}"))
    found.head = [_arm_name(jitter), *plan.settings, "metric"]
    found.head += [word.format(at=at + 1) for at in range(plan.n)]
    for arm in plan.arms:
        for cell in _cells(plan):
            values = plan.values[arm, cell, quantity]
            found.rows.append([arm, *cell, quantity, *map(plan.number, values)])


def _list(jitter: random.Random, plan: _Plan, found: Layout) -> None:
    """All values of an arm in a cell."""
    ((quantity, _),) = plan.quantities
    between = jitter.choice((" ", ";", "; "))
    found.head = [_arm_name(jitter), *plan.settings, "n", f"mean_{quantity}", "values"]
    for arm in plan.arms:
        for cell in _cells(plan):
            values = plan.values[arm, cell, quantity]
            mean = plan.number(sum(values) / len(values))
            listed = between.join(map(plan.number, values))
            found.rows.append([arm, *cell, str(plan.n), mean, listed])


def _means(jitter: random.Random, plan: _Plan, found: Layout) -> None:
    """Mean, standard deviation and n, of one metric after the other."""
    words = jitter.choice((("mean", "sd", "n"), ("avg", "stdev", "runs"), ("mean", "stddev", "N")))
    found.head = [_arm_name(jitter), *plan.settings, "metric", *words, "min", "max"]
    for (arm, cell, quantity), values in plan.values.items():
        mean = sum(values) / len(values)
        sd = (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5
        figures = [plan.number(each) for each in (mean, sd)]
        ends = [plan.number(each) for each in (min(values), max(values))]
        found.rows.append([arm, *cell, quantity, *figures, str(plan.n), *ends])
    if jitter.random() < 0.5:
        jitter.shuffle(found.rows)


def said_by(contents: Contents) -> Truth:
    """What an import says, in the terms of a truth; names of settings and metrics are free."""
    better = {metric.name: f"{metric.name} {metric.better}" for metric in contents.metrics}
    found: dict[tuple[str, frozenset[str], str], list[float]] = {}
    listed = {(item.arm, item.group, item.metric) for item in contents.readings}
    for item in contents.readings:
        key = (item.arm, frozenset(text for _, text in item.group), better[item.metric])
        found.setdefault(key, []).append(item.value if item.value is not None else float("nan"))
    for one in contents.published:
        if (one.arm, one.group, one.metric) not in listed and one.mean is not None:
            key = (one.arm, frozenset(text for _, text in one.group), better[one.metric])
            found.setdefault(key, []).append(one.mean)
    return {
        key: tuple(sorted(round(value, 4) for value in values)) for key, values in found.items()
    }


def alike(said: Truth, truth: Truth) -> bool:
    """True when both have the same figures for the same arms, settings and directions."""

    def plain(table: Truth) -> list[tuple[str, list[str], str, tuple[float, ...]]]:
        return sorted(
            (arm, sorted(settings), name.split()[-1], values)
            for (arm, settings, name), values in table.items()
        )

    return plain(said) == plain(truth)


def read(found: Layout, folder: Path) -> tuple[str, Truth]:
    """("read" or "proposed" or a sentence, what it says) of a layout written into `folder`."""
    path = folder / f"layout-{found.seed}.csv"
    path.write_text(found.text(random.Random(found.seed)))  # noqa: S311
    try:
        _, contents, _ = reader.read([path])
    except reader.UndescribedError as error:
        return "proposed", _nearest(path, error.proposal, found.truth)
    except SpecError as error:
        return error.sentence(), {}
    return "read", said_by(contents)


def _nearest(path: Path, proposal: str, truth: Truth) -> Truth:
    """What the proposal says, or what it says after one edit when that is the truth."""
    first: Truth | None = None
    for text in (proposal, *_edits(proposal)):
        try:
            _, contents, _ = reader.read(
                [path], loading.Wish(mappings=(mapping.parse(text, "proposal"),))
            )
        except SpecError:
            continue
        said = said_by(contents)
        if alike(said, truth):
            return said
        first = first if first is not None else said
    return first or {}


def _edits(proposal: str) -> Iterator[str]:
    """The proposal with one column used as something else, or one line left out."""
    lines = proposal.splitlines()
    columns = [
        name
        for line in lines
        if line.startswith("#   ") and ": " in line
        for name in [line[4:].split(": ")[0]]
    ]
    for at, line in enumerate(lines):
        key = line.partition(" = ")[0]
        if key in ("arm", "boot", "round", "run", "metric", "position"):
            yield "\n".join([*lines[:at], *lines[at + 1 :]])
            for column in columns:
                yield "\n".join([*lines[:at], f'{key} = "{column}"', *lines[at + 1 :]])
    start = lines.index("[columns]") + 1
    for column in columns:
        for key in ("arm", "round"):
            yield "\n".join([*lines[:start], f'{key} = "{column}"', *lines[start:]])
        if not any(line.startswith("dimensions") for line in lines):
            yield "\n".join([*lines[:start], f'dimensions = ["{column}"]', *lines[start:]])


def is_toml(text: str) -> bool:
    """True when a proposal can be read as TOML."""
    return bool(tomllib.loads(text))
