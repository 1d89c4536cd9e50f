# SPDX-License-Identifier: GPL-2.0-or-later
"""Which of the columns that are left tell the rows of an arm apart.

A column of text that separates rows is a dimension, whatever it is called, or there is a doubt: no
column is dropped that would put two different things into one.
"""

from __future__ import annotations

import re

from kdelta.errors import SpecError
from kdelta.foreign import settings, words
from kdelta.foreign.columns import Holds, columns_of
from kdelta.foreign.mapping import Mapping, Split
from kdelta.foreign.record import SourceFile
from kdelta.foreign.wordlists import vocabulary
from kdelta.foreign.words import Part
from kdelta.foreign.work import Work
from kdelta.printable import printable, quoted

# Dimensions by name that are rather what an arm is, where they change with the arm.
_OF_ARMS = vocabulary("config configuration tree flags set group path page")
# What a table of facts alone may be told apart by: other tables of its session have these.
_SHARED = vocabulary(
    "environment cpu memory_mib guest_memory_mib thp_mode scenario case thp memory"
)
# What a machine was: arms that differ in it are not compared.
_MACHINES = vocabulary(
    "host hostname machine platform cpu_model governor compiler hypervisor cluster site cmdline"
    " kernel_cmdline boot_args bootargs command_line microcode turbo smt mitigations"
)
_MACHINE = re.compile(
    r"\d+\s*(?:v?cpus?|cores?|c)\s*(?P<at>[/,x+_-])\s*\d+\s*(?:[GM]i?B?)", re.IGNORECASE
)
_INDEX = ("boot", "round", "position")


def take(work: Work) -> None:
    """Say of every column that is left what it is."""
    for name in work.of(Part.DIMENSION):
        _named(work, name)
    left = [name for name in work.left if work.left[name].part is not Part.METRIC]
    for name in sorted(left, key=lambda name: work.cells(name).holds is not Holds.TEXT):
        _unnamed(work, name)
    _settings(work)


def _settings(work: Work) -> None:
    """What was read back or audited, and was set: rows of one arm differ in it."""
    for fact, name in work.read_back.items():
        by = (*work.arm, *work.dimensions)
        if fact != "returncode" and not work.table.determined(by, name):
            _dimension(work, name, "rows of one arm differ in it")
    for name in work.state:
        by = (*work.arm, *work.dimensions)
        varies = work.arm and work.figures and not work.table.determined(by, name)
        if varies and work.table.balanced(work.arm[0], name):
            _dimension(work, name, "every arm was measured at each of its settings")


def check(source: SourceFile, mapping: Mapping) -> None:
    """Raise SpecError for a column that tells rows of one arm apart and that no key names."""
    table = columns_of(source, frozenset(mapping.missing))
    named = {column for _, column in mapping.named()}
    arm = mapping.columns.arm if mapping.columns.arm in table.cells else None
    by = (arm,) if arm else ()
    for name, cells in table.cells.items():
        if name in named or cells.constant or cells.holds is not Holds.TEXT:
            continue
        if len(cells.distinct) == table.rows or (arm and table.determined(by, name)):
            continue
        if words.said(name).part is not Part.NOTE and (not arm or table.crosses(arm, name)):
            raise SpecError(
                f"column {quoted(name)} tells rows of one arm apart, and no key names it",
                place=f"{source.name}: line 1, column {printable(name, 60)}",
                action="put it under dimensions, or under ignore",
            )


def _named(work: Work, name: str) -> None:
    cells, word = work.cells(name), "_".join(words.words(name))
    if word in _MACHINES and (cells.constant or _of_arm(work, name)):
        work.read_back[word] = name
        work.take(name, f"read_back.{word}", "what the machine was")
        return
    if not cells.constant and _of_arm(work, name) and word in _OF_ARMS:
        work.details[name] = name
        work.take(name, "details", "it changes with the arm")
        return
    if not (work.figures or work.arms) and word not in _SHARED:
        work.leave(name, "the table holds facts alone")
        return
    _dimension(work, name, "its name says so")


def _dimension(work: Work, name: str, why: str) -> None:
    """Take a dimension, or two that stand in one column: 8CPU/16GiB."""
    texts = work.cells(name).distinct
    parts = words.dimensions_in(name)
    found = [_MACHINE.fullmatch(text) for text in texts]
    marks = {one["at"] for one in found if one}
    if len(parts) > 1 and any("/" in text for text in texts):
        work.split[name] = Split(into=parts)
    elif texts and all(found) and len(marks) == 1:
        work.split[name] = Split(into=("cpu", "memory"), at=marks.pop())
    work.dimensions.append(name)
    work.take(name, "dimensions", why)


def _of_arm(work: Work, name: str) -> bool:
    """True when each arm has one value of it."""
    many = work.arm and not work.cells(work.arm[0]).constant
    return bool(many) and work.table.determined(work.arm, name)


def _unnamed(work: Work, name: str) -> None:
    cells = work.cells(name)
    if cells.constant:
        work.leave(name, "it is the same in every row")
    elif _of_arm(work, name):
        work.details[name] = name
        work.take(name, "details", "it changes with the arm")
    elif work.arms and settings.labels_rows(work, name):
        _dimension(work, name, "the figures of all arms change with it")
    elif len(cells.distinct) == work.table.rows and (work.arm or cells.holds is Holds.NUMBERS):
        _different(work, name)
    elif cells.holds is Holds.TEXT:
        _text(work, name)
    elif cells.holds is Holds.NUMBERS:
        _numbers(work, name)
    else:
        work.leave(name, "lists that nobody named")


def _different(work: Work, name: str) -> None:
    """No two rows have the same: it tells runs apart, not what was measured."""
    if work.cells(name).holds is Holds.TEXT and "run" not in work.keys:
        work.key("run", name, "it is different in every row")
    else:
        work.leave(name, "it is different in every row")


def _by(work: Work) -> tuple[str, ...]:
    metric = work.keys.get("metric")
    named = [metric] if isinstance(metric, str) else []
    return (*work.arm, *work.dimensions, *named)


def _counting(work: Work, name: str) -> bool:
    """Take 1, 2, 3 ... that stand once in each setting: rounds, or a dimension that looks so."""
    index = tuple(str(work.keys[key]) for key in _INDEX if key in work.keys)
    if not work.cells(name).counts_up or not work.table.once_in_each((*_by(work), *index), name):
        return False
    if index and work.table.once_in_each(_by(work), name):
        work.leave(name, f"it numbers rows as {index[0]} does")
        return True
    work.doubts.append(f"is {name} the number of a round, a boot, or a dimension?")
    if "round" in work.keys:
        work.leave(name, "it counts up within each round")
    else:
        work.key("round", name, "it counts up within each arm")
    return True


def _text(work: Work, name: str) -> None:
    if _counting(work, name):
        return
    if not work.arm or work.table.crosses(work.arm[0], name):
        _dimension(work, name, "it tells rows of one arm apart")
    elif work.cells(work.arm[0]).constant:
        _dimension(work, name, "it tells rows apart")
    else:
        _nested(work, name)


def _nested(work: Work, name: str) -> None:
    """Text that repeats within one arm and is met in no other."""
    work.doubts.append(f"is {name} a boot, a run, or a dimension? its cells differ from arm to arm")
    if "boot" in work.keys:
        _dimension(work, name, "it tells rows of one arm apart")
    else:
        work.key("boot", name, "several rows of one arm share it")


def _numbers(work: Work, name: str) -> None:
    cells, arm = work.cells(name), work.arm
    if len(cells.distinct) > max(2, work.table.rows // 2):
        work.leave(name, "numbers whose name says neither unit nor direction")
        return
    tells = settings.tells(work, name, list(work.figures), _by(work))
    if arm and not work.table.crosses(arm[0], name):
        if tells:
            work.doubts.append(f"is {name} a dimension? the figures differ by it within an arm")
        work.leave(name, "numbers whose name says neither unit nor direction")
    elif any(key in work.keys for key in _INDEX) and tells:
        _dimension(work, name, "the figures differ by it")
    elif _counting(work, name):
        return
    elif not arm or tells or work.table.balanced(arm[0], name):
        _dimension(work, name, "every arm was measured at each of its settings")
    else:
        work.doubts.append(f"is {name} a dimension? its few numbers stand with several arms")
        work.leave(name, "few numbers whose name says nothing")
