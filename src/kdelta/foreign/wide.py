# SPDX-License-Identifier: GPL-2.0-or-later
"""Columns that are called after arms (6.16, base_ns, mmap-6.16), also for several metrics.

Where every arm has a column for each of several metrics, the table is put below each other: a row
for each arm, and one column a metric.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kdelta.foreign import arms, samples, words
from kdelta.foreign.wordlists import vocabulary
from kdelta.foreign.words import Part
from kdelta.foreign.work import Work

KERNEL = "kernel"  # the column that says which arm a row is of
_PIECES = re.compile(r"[\s_:()\[\]/]+")
_BEHIND = re.compile(r"(?P<rest>[A-Za-z]\w*)[-.@](?P<arm>v?[2-9]\.\d{1,2}(?:[.-]\w+)*)")
_RATE = re.compile(r"\b([A-Za-z]+)/([A-Za-z]+)\b")  # jobs/min, and not base/ns
_FLAVOURS = {*vocabulary("lts stable mainline git rt debug default generic lowlatency kernel")}
_MADE_OF_TWO = vocabulary("vs versus delta pct ratio midpoint change")


def arm_and_rest(name: str) -> tuple[str, tuple[str, ...]] | None:
    """The arm that a column is called after, and the other words of its name."""
    if words.said(name).part is Part.DERIVED and not (arms.is_version(name) or arms.side(name)):
        return None
    if any(word in _MADE_OF_TWO for word in words.words(name)):
        return None
    if (behind := _BEHIND.fullmatch(name)) and not arms.is_version(name):
        return behind["arm"], words.words(behind["rest"])
    whole = _RATE.sub(lambda cut: cut[0] if arms.side(cut[1]) else f"{cut[1]} per {cut[2]}", name)
    pieces = [piece for piece in _PIECES.split(whole) if piece]
    if len(pieces) > 1 and pieces[0].lower() in ("linux", "kernel") and arms.is_version(name):
        pieces = [f"{pieces[0]} {pieces[1]}", *pieces[2:]]
    if arms.is_version(pieces[0]) and {piece.lower() for piece in pieces[1:]} <= _FLAVOURS:
        return name.strip(), ()
    for at in (0, len(pieces) - 1):
        piece = pieces[at]
        if not (
            arms.is_version(piece)
            or (arms.side(piece) and len(re.findall(r"[a-z]+", piece.lower())) < 3)
        ):
            continue
        rest = pieces[1:] if at == 0 else pieces[:-1]
        arm = piece
        if rest and words.said(" ".join(rest)).part is Part.UNKNOWN and not arms.is_version(piece):
            return name, ()  # with patch, old kernel: all of it names the arm
        if rest and at == 0 and re.fullmatch(r"[0-9a-zA-Z]", rest[0]) and rest[0] not in ("n", "s"):
            arm, rest = f"{piece}_{rest[0]}", rest[1:]
        return arm, words.words(" ".join(rest))
    return None


def statistic(rest: tuple[str, ...]) -> str:
    """Which statistic the words beside an arm name; "" for the quantity itself."""
    if rest in (("n",), ("runs",), ("count",)):
        return "n"
    return words.said(" ".join(rest)).statistic if rest else ""


def base(rest: tuple[str, ...]) -> str:
    """The metric in the words that are left of a column's name."""
    if not rest or rest in (("n",), ("runs",), ("count",)):
        return ""
    said = words.said(" ".join(rest))
    return said.metric if said.part in (Part.TIME, Part.STATISTIC) else "_".join(rest)


def metrics_of_arms(columns: Sequence[str]) -> dict[str, dict[str, int]]:
    """arm -> name of a column without it -> place, where arms have several metrics each.

    Empty: there is another column of arms, arms have different columns, or one metric.
    """
    found: dict[str, dict[str, int]] = {}
    for at, name in enumerate(columns):
        if words.said(name).part is Part.ARM:
            return {}
        cut = arm_and_rest(name)
        if cut and cut[1] and not any(map(samples.is_run, cut[1])):
            found.setdefault(cut[0], {})["_".join(cut[1])] = at
    rests = [set(each) for each in found.values()]
    if len(found) < 2 or any(each != rests[0] for each in rests) or KERNEL in columns:
        return {}
    levels = {rest for rest in rests[0] if any(map(words.is_percentile, rest.split("_")))}
    metrics = {base(tuple(rest.split("_"))) for rest in rests[0] - levels} - {""} | levels
    return found if len(metrics) > 1 else {}


def arms_in_metrics(work: Work) -> None:
    """Columns that are called after the very arms that another column names are theirs."""
    named = {text for column in work.arm for text in work.cells(column).distinct}
    for column in work.figures:
        found = next((arm for arm in named if arms.is_version(arm) and arm in column), "")
        if found and len(named) > 1:
            work.doubts.append(f"is {column} a figure of {found} alone? its name says so")
            return
