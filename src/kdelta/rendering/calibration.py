# SPDX-License-Identifier: GPL-2.0-or-later
"""Published changes and what counts say of them: a page, and docs/calibration.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from kdelta.check.calibration import EXPECTED, CaseAnswer, CountsSay, PublishedCase
from kdelta.printable import printable, quoted

_ABOUT = {
    "contention": "needs several CPUs: a count of one task says only how much of it is path length",
    "wrong-sign": "the sign of the path length is not the sign of the time, and no count can tell",
    "layout": "fields moved, the path stays: the count has to be the same",
    "device": "a device's time",
    "memory": "cache lines, which no count sees",
    "numa": "memory of several nodes: how far it is no count sees",
    "tlb": "what the processor keeps of page tables, which no count sees",
    "open": "not settled in public",
    "state": "other pages, which the audit tells: then the counts are of two things",
    "null": "nothing changes: the count has to be the same",
    "path": "",
    "": "",
}
_HEAD = """\
# Calibration{of}

<!-- written by kdelta calibrate --write -->

Published performance changes of Linux, and what counts of instructions say of them: for each the
two kernels of the archive whose interval holds it, the scenario, and the functions of the change.
An interval holds other changes too; so the sign is that of the change's own functions, and the
whole path decides only where the interval is of one release and no function is known. A change
without either is undecided, and so is one whose functions and path differ in sign over several
releases, or whose functions moved by less than 1 % there.{builds}

"""
_BUILDS = """ "6.17.8 without it" is a source that was
built here twice, once with the change taken back by a variant (`variants/calibrate-*.patch`): there
nothing else differs, and the whole path decides, to the instruction. "6.17.8 with it" is the change
as it first came, written into a source that has it in another form by now, or not at all. Functions
of two builds are the change's own where their code differs (what it adds may be inlined), or where
these call them more or less often."""


def summary(answers: Sequence[CaseAnswer]) -> str:
    """The result in one sentence."""
    judged = [each for each in answers if each.right is not None]
    right = sum(bool(each.right) for each in judged)
    absent = sum(each.said is CountsSay.NOT_HAD for each in answers)
    open_ = sum(each.said is CountsSay.UNDECIDED for each in answers)
    share = f" ({100 * right / len(judged):.0f} %)" if judged else ""
    return (
        f"{right} of {len(judged)} published changes that could be judged have the sign that counts"
        f" give{share}; {open_} undecided, {absent} cannot be had here, of {len(answers)}."
        f"{_paths(answers)}"
    )


def _paths(answers: Sequence[CaseAnswer]) -> str:
    """How many changes of a path were found, and which were not: a sentence, "" without any."""
    paths = [each for each in answers if "path" in each.case.kinds]
    if not paths:
        return ""
    found = [each for each in paths if each.right or (each.case.expect == "both" and each.found)]
    named = sum(bool(each.found) for each in found)
    missed = ", ".join(each.case.id for each in paths if each not in found)
    left = f"; not found: {missed}" if missed else ""
    first = sum(bool(each.first) for each in found)
    return (
        f" Of {len(paths)} changes of a path {len(found)} were found"
        f" ({100 * len(found) / len(paths):.0f} %), {named} with a function of theirs, {first} of"
        f" them with one that the explanation begins with{left}."
    )


def text(answers: Sequence[CaseAnswer]) -> str:
    """The summary, the matrix, and a line for each case."""
    lines = [summary(answers), "", *_matrix_text(answers), ""]
    for each in answers:
        mark = {True: "right", False: "WRONG", None: "-"}[each.right]
        lines.append(printable(f"{each.case.id}: {mark}: {_told(each)}", 400))
    return "\n".join(lines) + "\n"


def markdown(answers: Sequence[CaseAnswer], *, of: str = "") -> str:
    """The document.  of: the file of cases, where it is not the one that kdelta brings."""
    builds = _BUILDS if any(each.built for each in answers) else ""
    absent = _absent(answers) if any(each.said is CountsSay.NOT_HAD for each in answers) else ()
    return _HEAD.format(of=f" by {of}" if of else "", builds=builds) + "\n".join(
        [summary(answers), "", *_matrix(answers), "", *_table(answers), "", *absent]
    )


def explained(each: CaseAnswer, published: float, *, of_time: bool = False) -> str:
    """How much of a published change of a rate a path length explains.

    published: in percent.  A path of p percent more instructions, at the same time an instruction,
    is a rate of 100 / (100 + p); where it is of_time, p percent more of that.
    """
    if each.said in (CountsSay.UNDECIDED, CountsSay.NOT_HAD) or each.total is None:
        if each.total is None:
            return f"Cannot be said: {each.why}."
        what = "This change alone, by two builds" if each.built else "All changes between"
        return f"Cannot be said: {each.why}.\n{what}: {_where(each)}."
    moved = each.own if each.own and not each.built else each.total
    rate = moved if of_time else 100 * (100 / (100 + moved) - 1)
    where = _where(each)
    own = f", its own functions {each.own:+.2f} % ({', '.join(each.found)})" if each.own else ""
    if each.said is CountsSay.SAME:
        said = "Not a path length"
    elif rate * published <= 0:
        said = "Not a path length, which went the other way"
        if not each.built:
            said = (
                "Not explained by path length: between the two it went the other way, and what"
                " this commit alone did to it is not seen"
            )
    else:
        part = min(abs(rate), abs(published))
        said = f"Path length explains {part:.1f} of {abs(published):g} %"
    beside = (
        "Two builds of one source, which differ in this change alone"
        if each.built
        else "The interval holds other changes too"
    )
    about = _about(each.case)
    return (
        f"{said} ({where}{own}).\n{beside}; a path length is never a time, and contention, caches"
        f" and devices are not in it.{f' Known of it: {about}.' if about else ''}"
    )


def _where(each: CaseAnswer) -> str:
    return f"{each.scenario}, {each.old} -> {each.new}: path {each.total:+.2f} %"


def _told(each: CaseAnswer) -> str:
    about = _about(each.case)
    if each.case.expect not in (*EXPECTED, ""):
        unknown = f"{quoted(each.case.expect)} is no expectation: {', '.join(EXPECTED)}"
        about = f"{unknown}; {about}" if about else unknown
    about = f" [{about}]" if about else ""
    if each.said is CountsSay.NOT_HAD:
        return f"not had: {each.why}{about}"
    own = f", its own functions {each.own:+.1f} %" if each.own is not None else ""
    found = f" ({', '.join(each.found)})" if each.found else ""
    return (
        f"expected {each.case.expect or 'is not said'}, counts say {each.said} by {each.why}:"
        f" {each.scenario}, {each.old} -> {each.new}, {_path(each)}{own}{found}{_note(each)}{about}"
    )


def _about(case: PublishedCase) -> str:
    """What has to be known of a kind of change: "path+contention" is of two."""
    told = [
        _ABOUT.get(kind, f"{quoted(kind)} is no kind that is known here") for kind in case.kinds
    ]
    return "; ".join(filter(None, told))


def _note(each: CaseAnswer) -> str:
    """What its count found, where that is not what was expected."""
    return f"; {each.case.note}" if each.case.note and each.right is not True else ""


def _path(each: CaseAnswer) -> str:
    if each.built and each.total == 0:
        return "0"
    return f"{each.total:+.2f} %" if each.built else f"{each.total:+.1f} %"


def _counted(answers: Sequence[CaseAnswer]) -> Iterator[tuple[str, list[int]]]:
    """What was expected, and how often counts said each of what they can say."""
    counts = Counter((each.case.expect, each.said) for each in answers)
    for expected in dict.fromkeys((*EXPECTED, *(each.case.expect for each in answers))):
        row = [counts[expected, said] for said in CountsSay]
        if any(row):
            yield expected, row


def _matrix(answers: Sequence[CaseAnswer]) -> Iterator[str]:
    yield f"| expected | {' | '.join(CountsSay)} |"
    yield "|---" * (len(CountsSay) + 1) + "|"
    for expected, row in _counted(answers):
        yield _row(expected, *(str(count or "") for count in row))


def _matrix_text(answers: Sequence[CaseAnswer]) -> Iterator[str]:
    """The same in columns, rows what was expected."""
    rows = list(_counted(answers))
    yield "".join([f"{'expected':<16}", *(f"{said:>11}" for said in CountsSay)])
    for expected, row in rows:
        name = printable(expected or "not said", 15)
        yield "".join([f"{name:<16}", *(f"{count or '.':>11}" for count in row)])


def _table(answers: Sequence[CaseAnswer]) -> Iterator[str]:
    yield "| case | published | kernels | scenario | path | own functions | counts say | right |"
    yield "|---|---|---|---|---|---|---|---|"
    for each in answers:
        if each.said is CountsSay.NOT_HAD:
            continue
        own = f"{each.own:+.1f} %" if each.own is not None else ""
        found = f" {', '.join(f'`{name}`' for name in each.found)}" if each.found else ""
        right = {True: "yes", False: "no", None: ""}[each.right]
        yield _row(
            f"{each.case.id}: {each.case.title} ({each.case.source})",
            f"{each.case.reported}; {each.case.kind}, expected {each.case.expect}",
            f"{each.old}, {each.new}",
            f"`{each.scenario}`",
            _path(each),
            f"{own}{found}",
            f"{each.said}: {each.why}{_note(each)}",
            right,
        )


def _absent(answers: Sequence[CaseAnswer]) -> Iterator[str]:
    yield "## What cannot be had"
    yield ""
    for each in answers:
        if each.said is CountsSay.NOT_HAD:
            about = _about(each.case)
            yield f"- {each.case.id} ({each.case.kind}; {each.case.reported}): {each.why}" + (
                f"; {about}." if about else "."
            )
    yield ""


def _row(*cells: str) -> str:
    return "| " + " | ".join(printable(cell, 300).replace("|", "/") for cell in cells) + " |"
