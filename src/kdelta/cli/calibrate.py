# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta calibrate`: published performance changes, and what counts say of each."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kdelta.cli.means import Means, means_options
from kdelta.cli.options import json_option
from kdelta.cli.printing import print_json, write_output
from kdelta.errors import InfraError, SpecError
from kdelta.printable import meant, printable, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdelta.archive.apt import Progress
    from kdelta.check.calibration import CaseAnswer, PublishedCase, Series
    from kdelta.check.counter import Counted
    from kdelta.kernels.kernel import Kernel

EXIT_WRONG = 1
_NAMED = 40
BUILT_FROM = "6.17.8"  # the source of the archive in which variants take changes back


@click.command()
@click.argument("cases", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--only", multiple=True, metavar="ID", help="Only this case. May be given again.")
@click.option("--list", "list_only", is_flag=True, help="Only say how each would be counted.")
@click.option("--no-builds", is_flag=True, help="Count packages of the archive only.")
@click.option("--write", type=click.Path(path_type=Path), help="Write the document, too.")
@json_option
@means_options
def calibrate(
    cases: Path | None,
    only: tuple[str, ...],
    write: Path | None,
    means: Means,
    *,
    list_only: bool,
    no_builds: bool,
    as_json: bool,
) -> None:
    """Hold published performance changes against counts.

    CASES is a TOML file of [[case]] tables; by default the set that kdelta brings.  Of each the two
    kernels of the archive are counted between which its release came.  Where a variant takes the
    change back it is built: a source of the archive without the change and with it.  Exits with 1
    when counts have another sign than was published and expected.
    """
    import msgspec

    from kdelta import data
    from kdelta.check import calibration
    from kdelta.rendering import calibration as view

    brought = data.directory("calibration") / "cases.toml"
    file = cases or brought
    known = calibration.read(brought)
    wanted = [calibration.placed(case, known) for case in calibration.read(file)]
    if missing := set(only) - {case.id for case in wanted}:
        wrong, names = min(missing), [case.id for case in wanted]
        raise SpecError(
            f"no case {quoted(wrong)}",
            place=str(file),
            action=f"{meant(wrong, names)}known: {', '.join(names[:_NAMED])}"
            f"{' ...' if len(names) > _NAMED else ''}",
        )
    wanted = [case for case in wanted if not only or case.id in only]
    if no_builds:
        wanted = [msgspec.structs.replace(case, undone_by="", done_by="") for case in wanted]
    series = offered()
    if list_only:
        for case in wanted:
            if case.is_built:
                old, new = (" with ".join(filter(None, (BUILT_FROM, name))) for name in _pair(case))
                click.echo(f"{case.id}: {case.scenario}, {old} -> {new}")
                continue
            between = calibration.interval(case, series)
            why = calibration.lacking(case, between)
            where = " -> ".join(f"{a}.{b}" for a, b in between or ())
            click.echo(f"{case.id}: {why or f'{case.scenario}, {where}'}")
        return
    answers = _answers(wanted, series, means)
    if write:
        write_output(view.markdown(answers, of=printable(file.name, 60) if cases else ""), write)
    if as_json:
        print_json(msgspec.to_builtins(answers))
    else:
        click.echo(view.text(answers), nl=False)
    if any(each.right is False for each in answers):
        click.get_current_context().exit(EXIT_WRONG)


def offered() -> list[Series]:
    """The series of which the archive has a release."""
    from kdelta.cli.download import reporting
    from kdelta.kernels import reference

    with reporting() as progress:
        offers = reference.listing(progress=progress)
    found = {offer.series for offer in offers if not offer.is_candidate}
    return sorted((int(major), int(minor)) for major, minor in (s.split(".") for s in found))


def _answers(
    cases: Sequence[PublishedCase], offered: Sequence[Series], means: Means
) -> list[CaseAnswer]:
    """The answers in the order of the cases, interval by interval."""
    from kdelta.check import calibration

    found: dict[str, CaseAnswer] = {}
    groups: dict[tuple[Series, Series], list[PublishedCase]] = defaultdict(list)
    pairs: dict[tuple[str, str], list[PublishedCase]] = defaultdict(list)
    for case in cases:
        if case.is_built:
            pairs[_pair(case)].append(case)
            continue
        between = calibration.interval(case, offered)
        why = calibration.lacking(case, between)
        if why or between is None:
            found[case.id] = calibration.refused(case, why)
        else:
            groups[between].append(case)
    for between, group in sorted(groups.items()):
        found |= {each.case.id: each for each in counted(between, group, means)}
    for pair, group in pairs.items():
        found |= {each.case.id: each for each in built(pair, group, means)}
    return [found[case.id] for case in cases]


def counted(
    between: tuple[Series, Series],
    cases: Sequence[PublishedCase],
    means: Means,
) -> list[CaseAnswer]:
    """Count the scenarios of cases on the kernels of both ends of an interval."""
    from kdelta.check import calibration

    both, sides = _counts([f"{major}.{minor}" for major, minor in between], cases, means)
    labels = both[0].version.partition("-")[0], both[1].version.partition("-")[0]
    (a, b), (c, d) = between
    wide = (c, d) not in ((a, b + 1), (a + 1, 0))
    return [calibration.answered(case, *sides[case.scenario], labels, wide=wide) for case in cases]


def built(pair: tuple[str, str], cases: Sequence[PublishedCase], means: Means) -> list[CaseAnswer]:
    """Count them on one source with either of two variants, of which one may be none."""
    from kdelta.check import calibration, own

    source = f"tree:deb:{BUILT_FROM}+config=deb"
    names = ["+".join(filter(None, (source, variant))) for variant in pair]
    undone, done = pair
    labels = (
        BUILT_FROM + (" without it" if undone else ""),
        BUILT_FROM + (" with it" if done else ""),
    )
    try:
        kernels, sides = _counts(names, cases, means)
        changed, _ = own.changed_code(*kernels)
    except SpecError as error:
        return [calibration.refused(case, error.cause[:200]) for case in cases]
    return [
        calibration.answered(
            case, old, new, labels, built=True, changed=own.own_functions(old, new, changed)
        )
        for case in cases
        for old, new in [sides[case.scenario]]
    ]


def _pair(case: PublishedCase) -> tuple[str, str]:
    return case.undone_by, case.done_by


def _counts(
    names: Sequence[str], cases: Sequence[PublishedCase], means: Means
) -> tuple[list[Kernel], dict[str, tuple[Counted, Counted]]]:
    """Two kernels, and each scenario of the cases on both."""
    import tempfile
    import threading

    from kdelta.check import counter
    from kdelta.cli.download import reporting
    from kdelta.run import exact
    from kdelta.study import spec

    scenarios = list(dict.fromkeys(case.scenario for case in cases))
    study = spec.from_arguments(scenarios, names)
    with reporting() as progress, tempfile.TemporaryDirectory(prefix="kdelta-calibrate-") as place:
        kernels = _kernels(names, progress)
        bench = exact.bench_of(
            study, means.wanted_qemu, threading.Event(), progress, again=means.again
        )
        counting = counter.Counter(study, bench, Path(place), _told, means.jobs)
        old, new = (counting.count(kernel, scenarios) for kernel in kernels)
    return kernels, dict(zip(scenarios, zip(old, new, strict=True), strict=True))


def _kernels(names: Sequence[str], progress: Progress) -> list[Kernel]:
    from kdelta.kernels import reference
    from kdelta.kernels.kernel import Kernel

    found = reference.resolve_all(names, progress=progress)
    for each in found:
        if isinstance(each, InfraError):
            raise each
    return [each for each in found if isinstance(each, Kernel)]


def _told(line: str) -> None:
    click.echo(line, err=True)
