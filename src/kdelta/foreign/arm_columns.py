# SPDX-License-Identifier: GPL-2.0-or-later
"""Columns that are called after arms: 6.16, base_ns, parent_a; and numbers that may be arms."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from kdelta.foreign import arms, samples, settings, wide, words, written
from kdelta.foreign.columns import Holds
from kdelta.foreign.mapping import ArmKeys, MetricKeys
from kdelta.foreign.words import Part, Said
from kdelta.foreign.work import Work

SUMMARY = ("mean", "median", "sd", "cv", "cv_percent", "values")
_REFERENCES = 4  # rows with one figure, at least
_ALIKE = 3.0  # times: figures of one kind
_MAY_BE_ARMS = (Part.UNKNOWN, Part.STATISTIC, Part.TIME, Part.POSITION)
_PIECES = re.compile(r"[\s_:()\[\]/]+")


def arms_in_columns(work: Work) -> None:
    """Columns that are called after arms: 6.16, v6.12.77_mean, base_ns, parent_a."""
    _in_unlike_units(work)
    found: dict[str, dict[tuple[str, ...], str]] = {}
    for name, said in work.left.items():
        if _is_reference(work, name):
            continue
        may_be = said.part in _MAY_BE_ARMS or (said.part is Part.DERIVED and _is_side(name))
        if may_be and (cut := wide.arm_and_rest(name)):
            found.setdefault(cut[0], {})[cut[1]] = name
    runs = _numbered(found)
    shared = Counter(rest for columns in found.values() for rest in columns)
    found = {
        arm: {rest: column for rest, column in columns.items() if shared[rest] > 1}
        for arm, columns in found.items()
    }
    found = {arm: columns for arm, columns in found.items() if columns}
    held = (column for columns in found.values() for column in columns.values())
    if len(found) < 2 or all(work.cells(column).holds is Holds.TEXT for column in held):
        return
    if runs:
        _arms_of_runs(work, runs)
        return
    metrics = {wide.base(rest) for columns in found.values() for rest in columns}
    timed = [base for base in metrics if words.said(base).part is Part.TIME] or sorted(metrics)
    if len(metrics - {""}) > 1:
        work.doubts.append(f"the columns of each arm hold several metrics; only {timed[0]} is read")
    for arm, columns in found.items():
        keys = {
            wide.statistic(rest) or "value": c
            for rest, c in columns.items()
            if wide.base(rest) in (timed[0], "")
        }
        work.arms[arm] = ArmKeys(
            **{key: c for key, c in keys.items() if key in ("value", *SUMMARY, "n")}
        )
        for key, column in keys.items():
            work.take(column, f"arms.{arm}.{key}", "it is called after an arm")
    if not any(keys.measured for keys in work.arms.values() if isinstance(keys, ArmKeys)):
        work.doubts.append(
            "are the columns of the arms counts? A histogram is no list of runs: put the runs into"
            " the file, or a percentile of each"
        )
    work.metrics[timed[0] or "value"] = MetricKeys()
    _likewise(work, next(iter(next(iter(found.values())))))


def _in_unlike_units(work: Work) -> None:
    """6.12 (ms) beside 6.17 (us): arms that a mapping cannot compare, since it has one unit."""
    cut = {name: wide.arm_and_rest(name) for name in work.of(Part.TIME)}
    units = {
        name: one[1] for name, one in cut.items() if one and one[1] and written.is_unit(one[1][0])
    }
    arms_ = {one[0] for name, one in cut.items() if one and name in units}
    if len(units) == len(arms_) > 1 and len(set(units.values())) == len(arms_):
        listed = " and ".join(units)
        work.doubts.insert(0, f"{listed} are in unlike units: put all into one, in the file")


def _is_reference(work: Work, name: str) -> bool:
    """True for one figure in every row, though rows are of several kinds: it was set, not measured.

    The baseline that each configuration is held against is no arm of its own.
    """
    cells = work.cells(name)
    if cells.holds is not Holds.NUMBERS or not cells.constant or work.table.rows < _REFERENCES:
        return False
    return any(
        1 < len(work.cells(other).distinct) < work.table.rows
        and work.cells(other).holds is Holds.TEXT
        for other in work.of(Part.DIMENSION, Part.UNKNOWN)
    )


def _is_side(name: str) -> bool:
    """True for "baseline" alone, which is no figure made of others."""
    return len(words.words(name)) == 1 and arms.side(name) != 0


def sides(work: Work) -> list[str]:
    """Columns of one quantity of an old arm and of a new one, by words: base_us and patched_us."""
    found: dict[tuple[str, ...], dict[int, str]] = {}
    for name, said in work.left.items():
        cut = wide.arm_and_rest(name) if said.part in _MAY_BE_ARMS else None
        if cut and not arms.is_version(cut[0]) and work.cells(name).holds is Holds.NUMBERS:
            found.setdefault(cut[1], {})[arms.side(cut[0])] = name
    both = (each for each in found.values() if -1 in each and 1 in each)
    return next(([each[-1], each[1]] for each in both), [])


def arms_by_difference(work: Work, *, apart: bool = False) -> None:
    """Columns of one quantity whose names differ in one word may be arms: ns alpha, ns beta.

    apart: only where a blank or a bracket sets that word off, which few do within a name.
    """
    found: dict[tuple[str, ...], dict[str, str]] = {}
    for name in work.of(Part.TIME):
        if apart and not re.search(r"[\s(:]", name):
            continue
        pieces = [piece for piece in _PIECES.split(name) if piece]
        for arm, rest in ((pieces[0], pieces[1:]), (pieces[-1], pieces[:-1])):
            mean = words.said(arm).part is Part.STATISTIC
            if rest and not mean and words.said(" ".join(rest)).part is Part.TIME:
                found.setdefault(tuple(rest), {})[arm] = name
    best = max(found, key=lambda rest: len(found[rest]), default=())
    columns = found.get(best, {})
    if len(columns) < 2:
        return
    work.doubts.append(f"are {', '.join(columns)} what is compared?")
    for arm, name in columns.items():
        work.arms[arm] = ArmKeys(value=name)
        work.take(name, f"arms.{arm}.value", "its name differs from others in one word")
    work.metrics[wide.base(words.words(" ".join(best)))] = MetricKeys()


def arms_alike(work: Work) -> None:
    """Nothing names arms or figures: columns of numbers that are alike may be the arms."""
    if work.arm or work.arms or work.of(Part.TIME, Part.VALUE, Part.VALUES, Part.STATISTIC):
        return
    numbers = [
        name
        for name in work.of(Part.UNKNOWN)
        if work.cells(name).holds is Holds.NUMBERS and not work.cells(name).counts_up
    ]
    first = work.cells(numbers[0]) if len(numbers) > 2 else None
    if first and first.whole and first.rises and first.name == next(iter(work.table.cells)):
        work.left[numbers.pop(0)] = Said(part=Part.DIMENSION)  # 1, 4, 16, 64: of what, not how long
    middles = [samples.middle(work.cells(name)) for name in numbers]
    if len(numbers) < 2 or not 0 < max(middles) <= _ALIKE * min(middles):
        return
    work.doubts.append(f"are {', '.join(numbers[:6])} what is compared, and in which unit?")
    for name in numbers:
        work.arms[name] = ArmKeys(value=name)
        work.take(name, f"arms.{name}.value", "its figures are like those of the others")
    work.metrics["value"] = MetricKeys()


def _numbered(
    found: Mapping[str, Mapping[tuple[str, ...], str]],
) -> dict[str, dict[tuple[str, ...], tuple[str, ...]]]:
    """arm -> words without the number of a run -> its columns; empty: they are not so numbered."""
    runs: dict[str, dict[tuple[str, ...], tuple[str, ...]]] = {}
    for arm, columns in found.items():
        for rest, column in columns.items():
            bare = tuple(word for word in rest if not samples.is_run(word))
            if len(bare) == len(rest):
                return {}
            of_arm = runs.setdefault(arm, {})
            of_arm[bare] = (*of_arm.get(bare, ()), column)
    return runs if all(len(each) == 1 for each in runs.values()) else {}


def _arms_of_runs(
    work: Work, runs: Mapping[str, Mapping[tuple[str, ...], tuple[str, ...]]]
) -> None:
    """A column for each arm and run: 6.16_run1_ns."""
    for arm, by_rest in runs.items():
        for rest, columns in by_rest.items():
            work.arms[arm] = ArmKeys(values=columns)
            work.metrics = {wide.base(rest) or "value": MetricKeys()}
            for column in columns:
                work.take(column, f"arms.{arm}.values", "it is called after an arm and a run")


def _likewise(work: Work, rest: tuple[str, ...]) -> None:
    """Numbers beside the columns of arms: another arm, surely where each row is a metric."""
    for name in work.of(Part.UNKNOWN, Part.STATISTIC):
        cells = work.cells(name)
        if cells.holds is not Holds.NUMBERS or (cells.constant and work.table.rows > 1):
            continue
        if cells.counts_up or (rest and words.words(name)[-len(rest) :] != rest):
            continue
        if settings.labels_rows(work, name) or settings.tells(work, name, (), ()):
            continue
        statistic = work.left[name].statistic
        if statistic and statistic not in SUMMARY:
            continue  # ci95, max: a figure of the arms
        key = statistic if statistic in SUMMARY else "value"
        sure = work.of(Part.METRIC) and _like_the_arms(work, name)
        if not (sure or arms.is_version(name)):
            work.doubts.append(f"is {name} an arm?")
        arm = words.said(name).metric if key == statistic else name
        work.arms[arm or name] = ArmKeys(**{key: name})
        work.take(name, f"arms.{name}.{key}", "numbers beside those of arms")


def _like_the_arms(work: Work, name: str) -> bool:
    """True when a figure is like one of the arms' in every row, of whatever metric that is."""
    others = [
        column
        for keys in work.arms.values()
        for _, column in ([("", keys)] if isinstance(keys, str) else keys.named())
    ]
    for row, text in enumerate(work.cells(name).texts):
        beside = [_figure(work.cells(other).texts[row]) for other in others]
        own, known = _figure(text), [abs(each) for each in beside if each]
        if own and known and not min(known) / _ALIKE <= abs(own) <= _ALIKE * max(known):
            return False
    return True


def _figure(text: str) -> float:
    try:
        return float(text.replace(",", "."))
    except ValueError:
        return 0.0
