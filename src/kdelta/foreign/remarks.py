# SPDX-License-Identifier: GPL-2.0-or-later
"""Columns that say of some rows that they do not count: remarks, errors, flags of outliers."""

from __future__ import annotations

from kdelta.foreign import words
from kdelta.foreign.columns import Holds
from kdelta.foreign.mapping import OK
from kdelta.foreign.wordlists import vocabulary
from kdelta.foreign.words import Part
from kdelta.foreign.work import Work

FAILED = vocabulary(
    "fail failed failure error crash crashed timeout timedout killed invalid skipped"
    " unsupported hung oom aborted bad no false broken lost panic hang missing n"
    " interrupted"
)
_BROKE = {*FAILED} - {"n", "no", "false", "bad", "error", "missing"}
_BROKE |= {*vocabulary("segfault segfaulted sigsegv died rebooted crashes stuck deadlock")}
_BROKE |= {*vocabulary("discard discarded exclude excluded outlier ignore ignored unusable")}
_YES, _NO = vocabulary("yes y true t 1 x"), vocabulary("no n false f 0")
_APART = vocabulary("outlier outliers ignore ignored drop dropped rejected reject bad")
_USED = vocabulary("use used keep kept include included accept accepted counted")
_NO_ERROR = {"none", "no", "nothing", "nil", "null"}


def take(work: Work) -> None:
    """Remarks on some rows that name a failure (OOM-killed): did those runs fail?  It is asked."""
    summed = work.of(Part.COUNT, Part.STATISTIC)  # rows that sum up runs did not fail
    for name in () if summed else work.of(Part.FAILURE, Part.NOTE, Part.UNKNOWN):
        cells = work.cells(name)
        own = work.left[name].part is Part.FAILURE
        good = [text for text in cells.distinct if not _names_failure(text, own=own)]
        if apart := _set_apart(work, name):
            work.doubts.append(f"are rows with {name} {apart[0]} to be left out, as it says?")
            work.ok = (*(text for text in cells.distinct if text not in apart),)
            work.key("status", name, "it says which rows count")
            return
        bad = [text for text in cells.distinct if text not in good]
        some = "" in cells.texts or (good and work.left[name].part is not Part.UNKNOWN)
        if not bad or not some or cells.holds is not Holds.TEXT:
            continue
        listed = ", ".join(bad[:3])
        if any(_has_figure(work, at) for at, text in enumerate(cells.texts) if text in bad):
            work.doubts.append(
                f"did the runs fail of which {name} says {listed}? (ok has the rest)"
            )
        elif own:
            continue
        work.ok = (*OK, "", *good)
        work.key("status", name, "some of its cells name a failure")
        return


def _set_apart(work: Work, name: str) -> list[str]:
    """The cells with which a column such as outlier or used says that a row does not count."""
    texts = work.cells(name).distinct
    word = "_".join(words.words(name)).removeprefix("is_")
    lower = {text.lower() for text in texts}
    if len(texts) != 2 or not lower <= {*_YES, *_NO} or word not in (*_APART, *_USED):
        return []
    return [text for text in texts if (text.lower() in _YES) == (word in _APART)]


def _names_failure(text: str, *, own: bool) -> bool:
    """True for oom-killed, "segfault in worker"; of a column of errors for all but none and ok."""
    named = {*words.words(text)}
    if own:
        return not named <= {*OK, *_NO_ERROR}
    return bool({part for word in named for part in word.split("-")} & _BROKE)


def _has_figure(work: Work, at: int) -> bool:
    """True when some column of figures has one in that row."""
    figures = work.of(Part.TIME, Part.VALUE, Part.VALUES, Part.STATISTIC)
    return any(work.cells(name).texts[at] for name in figures)
