# SPDX-License-Identifier: GPL-2.0-or-later
"""Published performance changes of Linux, and what counts say of each.

    .venv/bin/python bench/calibrate.py [CASES] [--only ID] [--list] [--no-builds] [--table|--why]

CASES is a TOML file of [[case]] tables, by default bench/calibration.toml;
bench/calibration-second.toml is another.  Its form is PublishedCase of bench/calibration.py.
--list says how each case would be counted, --table prints the rows of docs/calibration.md, --why
asks `kdelta why` about the interval of each and prints rows of what it says.  A whole run takes a
night.  A patch of bench/variants is put into the release; where that cannot be, two
kernels are built.  Exits 1 where counts have another sign than expected.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

import calibration
import commands
from calibration import CaseAnswer, PublishedCase, Series
from kdelta.check import compare
from kdelta.check.compare import changed_code
from kdelta.cli.printing import reporting
from kdelta.errors import SpecError
from kdelta.kernels import reference
from kdelta.transplant.objects import NotTransplantedError

_HERE = Path(__file__).resolve().parent


def main() -> None:
    """Count the cases, and print what the counts say."""
    parser = argparse.ArgumentParser(description="Hold published changes against counts.")
    parser.add_argument("cases", type=Path, nargs="?", default=_HERE / "calibration.toml")
    parser.add_argument("--only", action="append", metavar="ID", help="only this case")
    parser.add_argument("--list", action="store_true", help="only say how each would be counted")
    parser.add_argument("--no-builds", action="store_true", help="count released kernels only")
    parser.add_argument("--table", action="store_true", help="print the rows of the document")
    parser.add_argument("--why", action="store_true", help="ask `kdelta why` about the intervals")
    chosen = parser.parse_args()
    cases = calibration.read(chosen.cases)
    if unknown := set(chosen.only or ()) - {case.id for case in cases}:
        sys.exit(f"{chosen.cases} has no case {min(unknown)}")
    cases = tuple(case for case in cases if not chosen.only or case.id in chosen.only)
    if chosen.no_builds:
        cases = tuple(msgspec.structs.replace(case, undone_by="", done_by="") for case in cases)
    logging.basicConfig(level=logging.WARNING)
    offered = offered_series()
    if chosen.list:
        print("\n".join(_plan(case, offered) for case in cases))
        return
    answers = list(_of_why(cases, offered)) if chosen.why else _answers(cases, offered)
    form = calibration.table if chosen.table else calibration.details
    lines = (calibration.why_table if chosen.why else form)(answers)
    print("\n".join([calibration.summary(answers), "", *lines]))
    sys.exit(any(each.right is False for each in answers))


def offered_series() -> list[Series]:
    """The series that the archive has a release of."""
    with reporting() as progress:
        offers = reference.listing(progress=progress)
    found = {offer.series for offer in offers if not offer.is_candidate}
    return sorted((int(major), int(minor)) for major, minor in (s.split(".") for s in found))


def _plan(case: PublishedCase, offered: Sequence[Series]) -> str:
    between = calibration.interval(case, offered)
    if case.is_built:
        return f"{case.id}: {case.scenario}, {' -> '.join(_names(case))}"
    if case.lacks:
        return f"{case.id}: {case.lacks}"
    if between is None:
        return f"{case.id}: no two series of the archive have {case.release} between them"
    return f"{case.id}: {case.scenario}, {' -> '.join(f'{a}.{b}' for a, b in between)}"


def _of_why(cases: Sequence[PublishedCase], offered: Sequence[Series]) -> Iterator[CaseAnswer]:
    with tempfile.TemporaryDirectory(prefix="kdelta-why-") as runs:
        for case in cases:
            if not case.lacks and (between := calibration.interval(case, offered)):
                ends = (f"{major}.{minor}" for major, minor in between)
                text = commands.said("why", case.scenario, *ends, "--runs", runs)
                yield calibration.of_why(case, text)


def _answers(cases: Sequence[PublishedCase], offered: Sequence[Series]) -> list[CaseAnswer]:
    """The answers in the order of the cases; each pair of kernels is counted once."""
    found: dict[str, CaseAnswer] = {}
    intervals: dict[tuple[Series, Series], list[PublishedCase]] = defaultdict(list)
    builds: dict[tuple[str, str], list[PublishedCase]] = defaultdict(list)
    for case in cases:
        between = calibration.interval(case, offered)
        if case.is_built:
            builds[_names(case)].append(case)
        elif case.lacks:
            found[case.id] = calibration.not_counted(case, case.lacks)
        elif between is None:
            found[case.id] = calibration.not_counted(case, f"{case.release} is in no interval")
        else:
            intervals[between].append(case)
    for between, group in sorted(intervals.items()):
        found |= {each.case.id: each for each in _of_interval(between, group)}
    for names, group in builds.items():
        found |= {each.case.id: each for each in _of_builds(names, group)}
    return [found[case.id] for case in cases]


def _of_interval(
    between: tuple[Series, Series], cases: Sequence[PublishedCase]
) -> Iterator[CaseAnswer]:
    old, new = (f"{major}.{minor}" for major, minor in between)
    wide = calibration.is_wide(between)
    for case, (before, after) in zip(cases, _counts(old, new, cases), strict=True):
        versions = [side.kernel.version.partition("-")[0] for side in (before, after)]
        yield calibration.answered(case, before, after, (versions[0], versions[1]), wide=wide)


def _of_builds(names: tuple[str, str], cases: Sequence[PublishedCase]) -> Iterator[CaseAnswer]:
    undone, done = cases[0].undone_by, cases[0].done_by
    base = cases[0].base
    labels = "without" if undone else base, "with" if done else base
    try:
        try:
            sides = _counts(*names, cases)
        except NotTransplantedError as error:
            print(f"{cases[0].id}: {error.cause}; so two kernels are built", file=sys.stderr)
            sides = _counts(*_names(cases[0], f"tree:deb:{base}+config=deb"), cases)
            labels = f"{labels[0]} (built)", f"{labels[1]} (built)"
        changed, _ = changed_code(sides[0][0].kernel, sides[0][1].kernel)
    except SpecError as error:
        yield from (calibration.not_counted(case, error.cause[:200]) for case in cases)
        return
    for case, (before, after) in zip(cases, sides, strict=True):
        own = calibration.own_functions(before, after, changed)
        yield calibration.answered(case, before, after, labels, built=True, changed=own)


def _names(case: PublishedCase, source: str = "") -> tuple[str, str]:
    """The references of both kernels."""
    source = source or case.base
    undone, done = (
        f"{source}+{_HERE / 'variants' / f'{name}.patch'}" if name else source
        for name in (case.undone_by, case.done_by)
    )
    return undone, done


def _counts(
    old: str, new: str, cases: Sequence[PublishedCase]
) -> list[tuple[compare.Counted, compare.Counted]]:
    """Both counts of each case."""
    names = list(dict.fromkeys(case.scenario for case in cases))
    with reporting() as progress:
        pairs = compare.count_pair(
            old, new, names, lambda line: print(line, file=sys.stderr), progress=progress
        )
    found = dict(zip(names, pairs, strict=True))
    return [found[case.scenario] for case in cases]


if __name__ == "__main__":
    main()
