# SPDX-License-Identifier: GPL-2.0-or-later
"""Which columns of a table hold what was measured, and whether a row is a run or a summary."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from itertools import pairwise

import msgspec

from kdelta.foreign import directions, totals, words
from kdelta.foreign.arm_columns import SUMMARY
from kdelta.foreign.cell_meaning import is_share
from kdelta.foreign.columns import Holds
from kdelta.foreign.mapping import ArmKeys, MetricKeys
from kdelta.foreign.words import Part, Said
from kdelta.foreign.work import Work
from kdelta.metric import Better

_COUNTS = ("ok_runs", "runs", "n", "run_count")  # best first
_INDEX = ("boot", "round", "position", "run")
_FEW_ROWS = 3
_ARMS = 2
_LEVELS = ("", "mean", "median", "values")  # where the others tell how figures scatter
Columns = Mapping[str, str]  # statistic -> column; "" is the quantity itself


def take(work: Work) -> None:
    """Take every column of figures; `settle` says later what they are."""
    for name in work.of(Part.METRIC):
        if "metric" in work.keys or not (work.arms or _values_beside(work)):
            work.left[name] = Said(part=Part.UNKNOWN)
        else:
            work.metrics.clear()
            work.key("metric", name, "its cells are the names of metrics")
    for part, key in ((Part.UNIT, "unit"), (Part.BETTER, "better")):
        for name in work.of(part):
            work.key(key, name, "its name says so")
    for name in work.of(
        Part.COUNT, Part.FAILED, Part.TIME, Part.STATISTIC, Part.VALUE, Part.VALUES
    ):
        work.figures[name] = work.left.pop(name)


def _values_beside(work: Work) -> bool:
    return bool(work.of(Part.VALUE, Part.VALUES, Part.STATISTIC))


def settle(work: Work, *, all_asked: bool = False) -> None:
    """Make metrics of the columns of figures: runs, or summaries of runs.

    all_asked: numbers that nothing names are asked about also where nothing is an arm.
    """
    counts = [name for name, said in work.figures.items() if said.part is Part.COUNT]
    failed = [name for name, said in work.figures.items() if said.part is Part.FAILED]
    bases = _bases(work)
    summary = _summary(work, counts, bases)
    _levels(work, bases, runs=not (summary or work.arms or "metric" in work.keys))
    if work.arms:
        _settle_arms(work, summary=summary)
    elif "metric" in work.keys:
        merged = {stat: column for columns in bases.values() for stat, column in columns.items()}
        work.keys |= _figures(merged, summary=summary)
        _tell(work, merged, "columns")
        _united_by_cells(work)
        work.measured = bool(merged)
    else:
        _settle_wide(work, bases, summary=summary)
        _nameless(work, all_asked=all_asked)
    if summary:
        _settle_counts(work, counts, failed)
    for name in (*counts, *failed):
        if name not in work.keys.values():
            work.leave(name, "a count of runs that is said elsewhere, or of what a run did")
    if work.measured and not summary:
        _repeats(work)


def _settle_counts(work: Work, counts: list[str], failed: list[str]) -> None:
    """Of a summary: how many runs, and what its status says, which fails no run."""
    for key, names in (("n", counts), ("failed", failed)):
        best = sorted(names, key=lambda name: _COUNTS.index(name) if name in _COUNTS else 9)
        if best:
            work.key(key, best[0], "how many runs a row sums up")
    if column := work.keys.get("status"):
        work.ok = (*work.ok, *(t for t in work.cells(str(column)).distinct if t not in work.ok))


def _bases(work: Work) -> dict[str, dict[str, str]]:
    """metric -> statistic -> column; "" is the metric of columns that name none."""
    found: dict[str, dict[str, str]] = {}
    for name, said in work.figures.items():
        if said.part is Part.TIME:
            base = said.metric if said.statistic else name
            found.setdefault(base, {})[said.statistic] = name
    for name, said in work.figures.items():
        if said.part is Part.VALUE:
            found.setdefault("", {})[""] = name
        elif said.part is Part.VALUES:
            found.setdefault(_owner("", found), {})["values"] = name
        elif said.part is Part.STATISTIC:
            if words.is_percentile(said.statistic):
                continue  # see _levels
            if said.statistic not in SUMMARY:
                work.leave(name, f"{said.statistic} is no figure to judge by")
                continue
            base = said.metric if said.metric != "value" else ""
            found.setdefault(_owner(base, found), {})[said.statistic] = name
    return found


def _levels(work: Work, bases: dict[str, dict[str, str]], *, runs: bool) -> None:
    """p50_us, p95_us, p99_us of each run: each is a metric, since one may pay for another.

    runs: rows are runs, and columns metrics; else percentiles are not read, nor are those below 90
    beside the quantity itself, or its mean (a time beside times).
    """
    whole = {
        said.better
        for said in work.figures.values()
        if said.part is Part.TIME and said.statistic in ("", "mean")
    }
    found = [
        name
        for name, said in work.figures.items()
        if said.part is Part.STATISTIC and words.is_percentile(said.statistic)
    ]
    places = list(work.table.cells)
    for name in found:
        better = work.figures[name].better
        tail = _is_tail(work.figures[name].statistic)
        alone = better not in whole or tail
        if runs and alone and work.cells(name).holds is Holds.NUMBERS:
            bases[name] = {"": name}
        else:
            work.leave(name, f"{work.figures[name].statistic} is no figure to judge by")
    for base, columns in list(bases.items()) if found and runs else ():
        middle = columns.get("median", "")
        named = any(map(words.is_percentile, words.words(middle)))
        if named and any(name in bases for name in found):
            del columns["median"]
            bases[middle] = {"": middle}
        if not columns:
            del bases[base]
    ranked = sorted(bases.items(), key=lambda item: min(map(places.index, item[1].values())))
    bases.clear()
    bases |= ranked


def _is_tail(statistic: str) -> bool:
    """True for p90, p99, p999, 99.9th: what few calls pay, and no mean shows."""
    digits = re.sub(r"[^\d.]", "", statistic)
    return digits.startswith("9") and len(digits) > 1


def checked(work: Work, better: Better | None) -> None:
    """What units beside the figures, counts of iterations and a line beside the table say."""
    directions.by_units(work)
    totals.asked(work)
    if better is not None:
        direct(work, better)


def direct(work: Work, better: Better) -> None:
    """Where a line says that lower is better, it is said of all metrics whose names do not tell."""
    if "better" in work.keys:
        return
    for name, keys in list(work.metrics.items()):
        known = keys.better
        if known is None and (found := words.metric_of(name)):
            known = found.better
        if known not in (None, Better.NONE, better):
            work.doubts.append(
                f"a line says that {better} is better, and the name of {name} that {known} is:"
                " which is it?"
            )
        work.metrics[name] = msgspec.structs.replace(keys, better=better)
        work.united = True


def _owner(base: str, found: Mapping[str, Columns]) -> str:
    """The metric that a statistic belongs to: the only one, when its name says no other."""
    normal = {"_".join(words.words(name)): name for name in found}
    if base in normal:
        return normal[base]
    timed = [name for name in found if name]
    part = len(timed) == 1 and set(base.split("_")) <= {"", *words.words(timed[0])}
    return timed[0] if part else base


def _summary(work: Work, counts: list[str], bases: Mapping[str, Columns]) -> bool:
    """True when a row sums up several runs; doubts whether rows that are alike are runs."""
    metric = work.keys.get("metric")
    by = (*work.arm, *work.dimensions, *([metric] if isinstance(metric, str) else []))
    several = [group for group in work.table.groups(by) if len(group) > 1]
    stats = {stat for columns in bases.values() for stat in columns}
    stats |= {
        key for keys in work.arms.values() if isinstance(keys, ArmKeys) for key, _ in keys.named()
    }
    counted = any(set(work.cells(name).distinct) - {"1", "1.0"} for name in counts)
    spread = bool(stats & {"sd", "cv", "cv_percent"}) or {"mean", "median"} <= stats
    if several and counted and not spread and (bins := _bins(work, by)):
        work.doubts.append(
            f"does {bins} hold the ends of buckets, and {counts[0]} how many fell into each? A"
            " histogram is no list of runs: put the runs into the file, or a percentile of each"
        )
    elif several and (counted or spread) and not any(key in work.keys for key in _INDEX):
        lines = " and ".join(str(at + 2) for at in several[0][:2])
        work.doubts.append(
            f"rows {lines} both sum up runs of one arm and setting: what tells them apart?"
        )
    listed = "values" in stats
    return not several and (counted or spread or listed or "mean" in stats or "median" in stats)


def _bins(work: Work, by: tuple[str, ...]) -> str:
    """The column whose figures rise from row to row, the same in each arm and setting; or ""."""
    groups = work.table.groups(by)
    for name, said in work.figures.items():
        listed = {tuple(work.cells(name).texts[at] for at in group) for group in groups}
        if said.part is Part.COUNT or len(listed) > 1 or len(groups) < _ARMS:
            continue
        ends = [_figure(text) for text in listed.pop()]
        if len(ends) >= _FEW_ROWS and all(one < other for one, other in pairwise(ends)):
            return name
    return ""


def _figure(text: str) -> float:
    try:
        return float(text.replace(",", "."))
    except ValueError:
        return math.nan


def _figures(columns: Columns, *, summary: bool) -> dict[str, str]:
    """The keys of a mapping for the columns of one metric."""
    if summary:
        found = {stat: column for stat, column in columns.items() if stat in SUMMARY}
        if "" in columns:
            found.setdefault("mean", columns[""])
        return found if {"mean", "median", "values"} & found.keys() else {}
    if "values" in columns:
        return {"values": columns["values"]}
    best = next((stat for stat in ("", "mean", "median") if stat in columns), None)
    return {} if best is None else {"value": columns[best]}


def _tell(work: Work, columns: Columns, where: str) -> None:
    for stat, column in columns.items():
        work.take(column, f"{where}: {stat or 'value'}", "what was measured")


def _settle_wide(work: Work, bases: dict[str, dict[str, str]], *, summary: bool) -> None:
    timed = {base for base in bases if base and words.said(base).better is not None}
    timed = timed or {base for base, columns in bases.items() if base and _direct(work, columns)}
    varies = not all(_same(work, columns) for columns in bases.values())
    for base, columns in bases.items():
        if varies and _same(work, columns):
            for column in columns.values():
                work.leave(column, "it is the same in every row: what was set, or a result")
            continue
        keys = _figures(columns, summary=summary)
        if not keys or (timed and base not in timed):
            for column in columns.values():
                work.leave(column, "its name says neither unit nor direction")
            continue
        work.measured = True
        name, unit, better = _named(work, base, columns)
        work.united = work.united or better is not None
        if better is None and "unit" not in work.keys:
            better = Better.NONE
        work.metrics[name] = MetricKeys(
            **keys,  # type: ignore[arg-type]
            unit=unit or None,
            better=better,
        )
        _tell(work, columns, f"metrics.{name}")


def _nameless(work: Work, *, all_asked: bool) -> None:
    """Numbers beside an arm, and no name says what they are: that is to be said."""
    if work.measured or not (all_asked or (work.arm and not (work.state or work.read_back))):
        return
    names = [
        name
        for name in work.ignore
        if work.cells(name).holds is Holds.NUMBERS and not work.cells(name).constant
    ]
    if not names:
        return
    work.measured = True
    made = [name for name in names if _made(name) or is_share(work.cells(name))]
    why = "a number that nothing names"
    if len(made) == len(names) and (beside := _of_arms(work)):
        # Of one row for each arm all that is not named changes with the arm.
        names = [*made, *beside]
        work.ignore += beside
    if len(made) == len(names):
        why = "made of what was measured, and no time itself"
        are = "are" if len(made) > 1 else "is"
        work.doubts.append(
            f"{', '.join(made[:4])} {are} made of what was measured: where are the values of each"
            " arm?"
        )
    else:
        names = [name for name in names if name not in made]
        what = "what are" if len(names) > 1 else "what is"
        work.doubts.append(f"{what} {', '.join(names[:4])}: which unit, and is lower better?")
    for name in names:
        work.ignore.remove(name)
        work.metrics[name] = MetricKeys(value=name, better=Better.NONE)
        work.told = [one for one in work.told if one.column != name]
        work.take(name, f"metrics.{name}: value", why)
    for column in list(work.ignore):  # what tells rows apart tells these apart, too
        left = words.said(column).part is Part.DIMENSION and not work.cells(column).constant
        if left and column not in work.metrics:
            work.ignore.remove(column)
            work.dimensions.append(column)
            work.told = [one for one in work.told if one.column != column]
            work.take(column, "dimensions", "its name says so")


def _of_arms(work: Work) -> list[str]:
    """Numbers that were taken for a detail of the arm, and that no name calls one; taken off."""
    found = [
        column
        for column in work.details.values()
        if work.cells(column).holds is Holds.NUMBERS
        and not work.cells(column).constant
        and words.said(column).part is Part.UNKNOWN
    ]
    for key in [key for key, column in work.details.items() if column in found]:
        del work.details[key]
    return found


def _made(name: str) -> bool:
    """True for what was made of figures: a ratio, a spread, an extreme."""
    said = words.said(name)
    level = said.statistic in _LEVELS or words.is_percentile(said.statistic)
    return said.part is Part.DERIVED or (said.part is Part.STATISTIC and not level)


def _same(work: Work, columns: Columns) -> bool:
    """True for figures of which every row has the same."""
    return work.table.rows > _FEW_ROWS and all(
        work.cells(column).constant for column in columns.values()
    )


def _direct(work: Work, columns: Columns) -> bool:
    return any(work.figures[column].better for column in columns.values())


def _named(work: Work, base: str, columns: Columns) -> tuple[str, str, Better | None]:
    """Name, unit and direction of a metric: by its column, else by the name of the file."""
    for text in (base, *columns.values()):
        said = words.said(text)
        if said.better is not None:
            return base, said.unit, said.better
    said = words.said(work.stem if len(work.stem) > 1 else "")  # s.csv is not of seconds
    if said.part is Part.TIME and said.unit:
        return base or work.stem, said.unit, said.better
    if work.beside:
        return base or "value", work.beside.unit, work.beside.better
    return base or "value", "", None


def _settle_arms(work: Work, *, summary: bool) -> None:
    work.measured = True
    if not summary:
        by = (*work.dimensions, *([str(work.keys["metric"])] if "metric" in work.keys else []))
        alone = all(len(group) == 1 for group in work.table.groups(by))
        indexed = any(key in work.keys for key in _INDEX)
        for arm, keys in work.arms.items():
            column = keys.value if isinstance(keys, ArmKeys) else keys
            if column and alone and not indexed and work.table.rows > 0:
                work.arms[arm] = ArmKeys(mean=column)
    if "metric" in work.keys:
        _united_by_cells(work)
        return
    (base,) = work.metrics
    name, unit, better = _named(work, "" if base == "value" else base, {})
    work.united = better is not None
    if better is None and "unit" not in work.keys:
        better = Better.NONE
    work.metrics = {name: MetricKeys(unit=unit or None, better=better)}


def _united_by_cells(work: Work) -> None:
    """Whether the names of metrics in the cells tell units, or the units beside them."""
    texts = work.cells(str(work.keys["metric"])).distinct
    units = work.cells(str(work.keys["unit"])).distinct if "unit" in work.keys else ()
    work.united = any(words.metric_of(text) for text in texts) or any(
        words.said(unit).better for unit in units
    )
    audited = any(words.is_state(text) or words.is_gate(text) for text in texts)
    work.united = work.united or audited
    if not work.united:
        work.metrics = {text: MetricKeys(better=Better.NONE) for text in texts}


def _repeats(work: Work) -> None:
    """Rows of one arm, setting and round: something else tells them apart."""
    if "round" not in work.keys or "position" in work.keys or "boot" in work.keys:
        return
    metric = work.keys.get("metric")
    by = (*work.arm, *work.dimensions, *([str(metric)] if metric else []))
    if "run" not in work.keys and not work.table.once_in_each(by, str(work.keys["round"])):
        cells = list(zip(*(each.texts for each in work.table.cells.values()), strict=True))
        again = len(cells) - len(set(cells))
        copied = f" {again} of them stand there twice: copied? Then cut them" if again else ""
        turn = work.keys["round"]
        work.doubts.append(
            f"several rows are of one arm, setting and {turn}: what tells them apart?{copied}"
        )
