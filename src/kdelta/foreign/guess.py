# SPDX-License-Identifier: GPL-2.0-or-later
"""What a table that nobody described would be: a mapping, a reason for each column, and the doubts.

A name says what its column may be (`words`), the cells say whether it can be that (`columns`), and
the whole table says what tells its rows apart.  A guess with a doubt is never read: it is proposed.
"""

from __future__ import annotations

import re
from collections import Counter

from kdelta.foreign import (
    arm_columns,
    arms,
    cell_meaning,
    dimensions,
    directions,
    marked,
    measures,
    remarks,
    samples,
    settings,
    wide,
    words,
)
from kdelta.foreign.columns import Cells, Holds, columns_of
from kdelta.foreign.mapping import MISSING, OK, Mapping
from kdelta.foreign.record import SourceFile
from kdelta.foreign.stack import ROUND, STACKED
from kdelta.foreign.tidy import is_moment
from kdelta.foreign.words import Part, Said
from kdelta.foreign.work import Guess, Work
from kdelta.metric import Better

_FUNCTIONS = frozenset(("function", "func", "symbol", "symbols"))
_CALLS = frozenset(("hits", "hit", "calls", "called", "self"))
_FEW = 24
_MOST_PLANNED = 1_000_000
_OFTEN = 5  # fewer numbers than that may be arms, each in at least one row less


def guess(
    source: SourceFile,
    base: Mapping,
    *,
    arms_wanted: bool = False,
    all_asked: bool = False,
    by_file: bool = False,
    asked: tuple[str, ...] = (),
    better: Better | None = None,
) -> Guess:
    """What the columns of a loaded table would be.  base: encoding and delimiter of the file.

    arms_wanted: no other file has the other arm, so something in this one must name it.
    by_file: the file is an arm, so no column is.
    all_asked: propose something for every number, since nothing else can be judged.
    asked: doubts about how the table was written.
    better: the direction that a line beside the table says is better.
    """
    table = columns_of(source, frozenset(MISSING))
    stem = source.name.rpartition("/")[2].partition(".")[0]
    work = Work(table, stem, {name: words.said(name) for name in source.columns})
    names = {word for name in source.columns for word in words.words(name)}
    work.profile = bool(names & _FUNCTIONS and names & _CALLS)
    work.doubts += asked
    if table.doubtful:
        work.doubts.append(table.doubtful)
    cell_meaning.queries(work)
    for name in source.columns:
        if by_file and work.left[name].part in (Part.ARM, Part.ROLE):
            work.left[name] = Said(part=Part.UNKNOWN)
        cell_meaning.correct(work, name)
    _plans(work)
    samples.columns(work)
    _arms_of_columns(work, by_file=by_file)
    _long(work)
    if not work.arms and not by_file:
        _arm(work)
    settings.with_units(work)
    if arms_wanted and not work.arm and not work.arms:
        _arm_of_numbers(work)
    if arms_wanted and not work.arm and not work.arms:
        _arm_of_settings(work)
    if arms_wanted and not work.arm and not work.arms:
        arm_columns.arms_by_difference(work)
        arm_columns.arms_alike(work)
    _names_doubted(work)
    _statuses(work)
    _replicates(work)
    _plain(work)
    measures.take(work)
    dimensions.take(work)
    measures.settle(work, all_asked=all_asked)
    measures.checked(work, better)
    wide.arms_in_metrics(work)
    return work.guess(base)


def _arms_of_columns(work: Work, *, by_file: bool) -> None:
    """Columns that are called after arms, where no other column names the arms."""
    named = work.of(Part.ARM)
    if all(work.cells(name).constant for name in named):
        arm_columns.arms_in_columns(work)
        for name in named if work.arms else ():
            work.leave(name, "the same in every row, and columns are called after arms")
    elif not by_file and (sides := arm_columns.sides(work)):
        # Rows are of commits, and columns are called base and patched.
        for name in named:
            work.left[name] = Said(part=Part.DIMENSION)
        arm_columns.arms_in_columns(work)
        listed = f"are {' and '.join(sides)} what is compared, and {' and '.join(named)} settings"
        work.doubts.append(f"{listed}, or is it the other way round?")


def _plans(work: Work) -> None:
    """A column that says how many runs were asked for, the same number in every row."""
    for name in list(work.left):
        cells = work.cells(name)
        if not marked.is_plan(name) or not (cells.distinct and cells.constant and cells.whole):
            continue
        if work.planned is None and 0 < int(cells.distinct[0][:9]) <= _MOST_PLANNED:
            work.planned = int(cells.distinct[0][:9])
            work.take(name, "planned", "how many runs were asked for, of each arm")


def _names_doubted(work: Work) -> None:
    """A number as a version may have lost its last digit; Base and base may be one arm."""
    names = [text for column in work.arm for text in work.cells(column).distinct]
    spelled: dict[str, list[str]] = {}
    for text in names or work.arms:
        spelled.setdefault(re.sub(r"[\s_-]+", "-", text.casefold().strip()), []).append(text)
    for alike in spelled.values():
        if len(alike) > 1:
            listed = " and ".join(map(repr, alike[:3]))
            work.doubts.append(f"are {listed} one arm? Then write it in one way in the file")
    if cut := arms.lost_zero(names or work.arms):
        work.doubts.append(
            f"is the arm {cut} really {cut}0, cut by a spreadsheet or by JSON? If so, correct it"
            " in the file"
        )


def _long(work: Work) -> None:
    """A column of metrics is one only where a column of values is beside it."""
    named = work.of(Part.METRIC)
    figures = work.of(Part.VALUE, Part.VALUES)
    figures += [name for name in work.of(Part.STATISTIC) if not _own_metric(work.left[name])]
    texts = [
        name
        for name in work.of(Part.UNKNOWN, Part.NOTE, Part.DIMENSION)
        if work.cells(name).holds is Holds.TEXT
        and all(words.metric_of(text) for text in work.cells(name).distinct)
        and (work.left[name].part is not Part.DIMENSION or _all_united(work.cells(name)))
    ]
    if not named and texts and (figures or work.arms):
        work.left[texts[0]] = Said(part=Part.METRIC)
    if not named and not texts:
        _unit_owner(work)
    for name in named:
        direct = [one for one in work.of(Part.TIME) if work.left[one].unit]
        if direct and not figures:
            work.left[name] = Said(part=Part.DIMENSION)


def _all_united(cells: Cells) -> bool:
    """True when every cell names a unit: mmap (us), fork (us)."""
    return all(words.said(text).unit for text in cells.distinct)


def _unit_owner(work: Work) -> None:
    """Where each row has a unit or direction of its own, what that belongs to is the metric."""
    both = work.of(Part.UNIT, Part.BETTER)
    units = [name for name in both if not work.cells(name).constant]
    owners = [
        name
        for name in work.of(Part.UNKNOWN, Part.NOTE, Part.DIMENSION)
        if units
        and work.cells(name).holds is Holds.TEXT
        and work.table.determined((name,), units[0])
    ]
    if not owners:
        return
    # Of a benchmark and its mode, which both tell the unit, the benchmark is what was measured.
    owner = max(owners, key=lambda name: len(work.cells(name).distinct))
    work.left[owner] = Said(part=Part.METRIC)
    scores = [name for name in work.of(Part.TIME) if directions.is_empty(name)]
    if len(scores) == 1 and not work.of(Part.VALUE, Part.VALUES):
        work.left[scores[0]] = Said(part=Part.VALUE)


def _own_metric(said: Said) -> bool:
    return said.metric not in ("", "value")


def _arm(work: Work) -> None:
    """The column that names what is compared."""
    named = sorted(work.of(Part.ARM), key=words.arm_rank)
    varying = [name for name in named if not work.cells(name).constant]
    if varying:
        _among(work, varying)
        _sandwiched(work)
    elif named and not _by_words(work):
        work.key("arm", named[0], "its name says so; it is the same in every row")
    elif not named and _by_words(work):
        _sandwiched(work)
    elif not named:
        arm_columns.arms_by_difference(work, apart=True)
        if not work.arms:
            _unnamed(work)
    for name in work.of(Part.ARM):
        work.details[name] = name
        work.take(name, "details", "it says more of the arm")


def _sandwiched(work: Work) -> None:
    """Where a leg (A1, B, A2) says more than the arm, it is the arm, and the other its role."""
    (arm,) = work.arm
    for name in work.of(Part.ROLE):
        finer = work.table.determined((name,), arm) and not work.table.determined((arm,), name)
        if finer:
            work.key("arm", name, f"it tells {arm} apart")
            work.keys["role"] = arm
            return


def _among(work: Work, named: list[str]) -> None:
    """Of several columns that could name the arm, the first that tells the most apart."""
    chosen = named[0]
    for other in named[1:]:
        if work.table.determined((chosen,), other):
            continue
        if work.table.determined((other,), chosen):
            if 2 * len(work.cells(other).distinct) <= work.table.rows or work.table.rows <= _FEW:
                chosen = other
            continue
        work.doubts.append(
            f"both {chosen} and {other} could be the arm: say which, the other is a dimension"
        )
        work.dimensions.append(other)
        work.take(other, "dimensions", f"it could be the arm as well as {chosen}")
    work.key("arm", chosen, "its name says so")


def _by_words(work: Work) -> bool:
    """True when a column of text was found whose cells are versions, or old and new."""
    versions, sides = [], []
    for name in work.of(Part.UNKNOWN, Part.DIMENSION, Part.ROLE, Part.RUN, Part.NOTE, Part.STATUS):
        texts = work.cells(name).distinct
        if not 1 < len(texts) <= _FEW:
            continue
        # 6.16 is a number, too; as the name of a folder, or a kernel, it is a version.
        called = name in STACKED or "kernel" in words.words(name)
        if work.cells(name).holds is not Holds.TEXT and not called:
            continue
        if all(arms.is_version(text) for text in texts):
            versions.append(name)
        elif min(map(arms.side, texts)) < 0 < max(map(arms.side, texts)):
            sides.append(name)
    if not versions and not sides:
        return False
    chosen = (versions or sides)[0]
    listed = ", ".join(work.cells(chosen).distinct[:4])
    why = "are versions of a kernel" if versions else f"say old and new: {listed}"
    for other in versions[1:]:
        table = work.table
        if not table.determined((chosen,), other) and not table.determined((other,), chosen):
            work.doubts.append(f"both {chosen} and {other} are versions: which is compared?")
    work.key("arm", chosen, f"its cells {why}")
    return True


def _unnamed(work: Work) -> None:
    """A column of few words that repeat may be the arm, and that is a doubt."""
    found = sorted(
        (name for name in work.of(Part.ROLE, Part.UNKNOWN) if _few_words(work.cells(name))),
        key=lambda name: (
            words.names_a_setting(name),
            not _versions(work.cells(name)),
            len(work.cells(name).distinct) != 2,
        ),
    )
    if not found:
        return
    work.unnamed = True
    listed = ", ".join(work.cells(found[0]).distinct[:4])
    work.key("arm", found[0], f"no name says arm; its cells are few words: {listed}")
    if work.of(Part.TIME, Part.VALUE, Part.VALUES, Part.STATISTIC):
        work.doubts.append(f"is {found[0]} ({listed}) what is compared?")
        # So that one edit, of the arm, is enough: the arm is never a dimension.
        work.dimensions.append(found[0])


def _arm_of_numbers(work: Work) -> None:
    """A switch that is 0 or 1, or a count of patches, may be the arm, and that is a doubt."""
    for name in work.of(Part.UNKNOWN):
        cells = work.cells(name)
        times = set(Counter(cells.texts).values())
        if cells.whole and 1 < len(cells.distinct) < _OFTEN and len(times) == 1:
            if min(times) < _OFTEN - 1:
                continue
            listed = ", ".join(cells.distinct)
            work.key("arm", name, f"no name says arm; its cells are few numbers: {listed}")
            work.doubts.append(f"is {name} ({listed}) what is compared?")
            work.dimensions.append(name)
            return


def _arm_of_settings(work: Work) -> None:
    """Nothing else names what is compared: a setting of the fewest words may be it (A1, B, A2)."""
    found = [
        name
        for name in work.of(Part.DIMENSION)
        if work.cells(name).holds is Holds.TEXT
        and 1 < len(work.cells(name).distinct) <= _OFTEN
        and words.words(name) != ("bucket",)
    ]
    if found and work.of(Part.TIME, Part.VALUE, Part.VALUES, Part.STATISTIC):
        name = min(found, key=lambda name: len(work.cells(name).distinct))
        listed = ", ".join(work.cells(name).distinct)
        work.key("arm", name, f"nothing else may be compared; its cells are few words: {listed}")
        work.doubts.append(f"is {name} ({listed}) what is compared?")
        work.dimensions.append(name)


def _few_words(cells: Cells) -> bool:
    few = 1 < len(cells.distinct) <= _FEW and not cells.counts_up
    return few and (cells.holds is Holds.TEXT or _versions(cells))


def _versions(cells: Cells) -> bool:
    """6.16 and 6.17 are numbers, and may be kernels."""
    return all(re.fullmatch(r"[2-9]\.\d{1,2}", text) for text in cells.distinct)


def _statuses(work: Work) -> None:
    """What the words of a status mean."""
    for name in work.of(Part.STATUS):
        cells = work.cells(name)
        texts = {text.lower() for text in cells.distinct}
        if "status" in work.keys:
            if texts <= {*OK, *remarks.FAILED}:
                work.gates.append(name)
                work.take(name, "gates", "another status")
            continue
        if not texts & {*OK, *remarks.FAILED}:
            work.left[name] = Said(part=Part.UNKNOWN)
            continue
        unknown = sorted(texts - {*OK, *remarks.FAILED, "partial"})
        if texts == {"0", "1"}:
            unknown, work.ok = ["1"], tuple(word for word in OK if word != "1")
        if unknown:
            work.doubts.append(
                f"does {name} {', '.join(unknown)} mean a good run? (ok lists those)"
            )
        work.key("status", name, "its cells say how runs ended")
    if "status" not in work.keys:
        remarks.take(work)
    for name in work.of(Part.FAILURE):
        if "failure" in work.keys:
            work.leave(name, "a second column of reasons")
        else:
            work.key("failure", name, "its name says so")


def _replicates(work: Work) -> None:
    """Boots, rounds, places and runs."""
    for part, key in (
        (Part.BOOT, "boot"),
        (Part.POSITION, "position"),
        (Part.ROUND, "round"),
        (Part.RUN, "run"),
    ):
        for name in work.of(part):
            if part is Part.POSITION and not _is_place(work, name):
                work.leave(name, "it only numbers the lines")
            elif part is Part.ROUND and settings.named_by_rows(work, name):
                work.doubts.append(f"is {name} a setting? the figures of all arms follow it")
                work.dimensions.append(name)
                work.take(name, "dimensions", "the figures of all arms follow it")
            elif part is Part.RUN and _no_identity(work, name):
                work.left[name] = Said(part=Part.DIMENSION)
            elif name == ROUND and settings.as_numbers_of_runs(work, name):
                work.doubts.append(f"is {name} a setting? the figures of all arms follow it")
                work.dimensions.append(name)
                work.take(name, "dimensions", "the figures of all arms follow it")
            elif key in work.keys:
                work.leave(name, f"{work.keys[key]} is the {key}")
            else:
                work.key(key, name, "its name says so")


def _no_identity(work: Work, name: str) -> bool:
    """True for words that stand several times with every arm: jobs or tests, no single runs."""
    if not work.arm or work.cells(name).holds is not Holds.TEXT or work.of(Part.METRIC):
        return False
    pairs = Counter(zip(work.cells(work.arm[0]).texts, work.cells(name).texts, strict=True))
    arms_, names = work.cells(work.arm[0]).distinct, work.cells(name).distinct
    every = len(arms_) > 1 and len(pairs) == len(arms_) * len(names)
    digits = any(character.isdigit() for text in names for character in text)
    return every and not digits and min(pairs.values()) > 1


def _is_place(work: Work, name: str) -> bool:
    """False for the number of the line, which data tools add, and for what does not sort."""
    texts = work.cells(name).texts
    if words.words(name) in (("index",), ("idx",)):
        return [text for text in texts if text.isdecimal()] != [
            str(at + int(texts[0] == "1")) for at in range(len(texts))
        ]
    return all(is_moment(text) or text.replace(".", "", 1).isdecimal() for text in texts) or (
        work.cells(name).holds is Holds.NUMBERS or words.words(name)[-1] in ("step", "order")
    )


def _plain(work: Work) -> None:
    """Columns whose name alone says what they are."""
    for name in work.of(Part.ROLE):
        if "role" in work.keys:
            continue
        work.key("role", name, "its name says so")
    for name in work.of(Part.READ_BACK):
        fact = work.left[name].fact
        if fact not in work.read_back:
            work.read_back[fact] = name
            work.take(name, f"read_back.{fact}", "the machine as it was seen")
    for name in work.of(Part.STATE):
        work.state.append(name)
        work.take(name, "state", "a field of the audit")
    for name in work.of(Part.GATE):
        texts = work.cells(name).distinct
        failed = {*remarks.FAILED} & {text.lower() for text in texts}
        if words.never_good(name, texts) and not failed:
            work.doubts.append(f"does {name} {', '.join(texts[:3])} mean a good run?")
            work.leave(name, "none of its cells is known to mean a good run")
            continue
        work.gates.append(name)
        work.take(name, "gates", "a result that must be zero, or true")
    for name in work.of(Part.DERIVED):
        work.leave(name, "it is made of other figures")
    for name in work.of(Part.NOTE):
        work.leave(name, "a remark")
