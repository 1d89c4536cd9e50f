# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta calibrate`: published performance changes, and what counts say of each."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kdelta.cli import execution
from kdelta.cli.options import json_option
from kdelta.cli.printing import print_json, write_output
from kdelta.errors import InfraError, SpecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kdelta.archive.apt import Progress
    from kdelta.check.calibration import CaseAnswer, PublishedCase, Series
    from kdelta.kernels.kernel import Kernel

EXIT_WRONG = 1


@click.command()
@click.argument("cases", type=click.Path(path_type=Path, dir_okay=False), required=False)
@click.option("--only", multiple=True, metavar="ID", help="Only this case. May be given again.")
@click.option("--list", "list_only", is_flag=True, help="Only say how each would be counted.")
@click.option("--write", type=click.Path(path_type=Path), help="Write the document, too.")
@json_option
@execution.means_options
def calibrate(
    cases: Path | None,
    only: tuple[str, ...],
    write: Path | None,
    means: execution.Means,
    *,
    list_only: bool,
    as_json: bool,
) -> None:
    """Hold published performance changes against counts.

    CASES is a TOML file of [[case]] tables; by default the set that kdelta brings.  Of each the two
    kernels of the archive are counted between which its release came.  Exits with 1 when counts
    have another sign than was published and expected.
    """
    from kdelta import data
    from kdelta.check import calibration
    from kdelta.rendering import calibration as view

    file = cases or data.directory("calibration") / "cases.toml"
    wanted = [calibration.placed(case) for case in calibration.read(file)]
    if missing := set(only) - {case.id for case in wanted}:
        raise SpecError(f"no case {min(missing)}", place=str(file))
    wanted = [case for case in wanted if not only or case.id in only]
    known = offered()
    if list_only:
        for case in wanted:
            between = calibration.interval(case, known)
            why = calibration.lacking(case, between)
            where = " -> ".join(f"{a}.{b}" for a, b in between or ())
            click.echo(f"{case.id}: {why or f'{case.scenario}, {where}'}")
        return
    answers = _answers(wanted, known, means)
    if write:
        write_output(view.markdown(answers), write)
    if as_json:
        import msgspec

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
    cases: Sequence[PublishedCase], offered: Sequence[Series], means: execution.Means
) -> list[CaseAnswer]:
    """The answers in the order of the cases, interval by interval."""
    from kdelta.check import calibration

    found: dict[str, CaseAnswer] = {}
    groups: dict[tuple[Series, Series], list[PublishedCase]] = defaultdict(list)
    for case in cases:
        between = calibration.interval(case, offered)
        why = calibration.lacking(case, between)
        if why or between is None:
            found[case.id] = calibration.refused(case, why)
        else:
            groups[between].append(case)
    for between, group in sorted(groups.items()):
        found |= {each.case.id: each for each in counted(between, group, means)}
    return [found[case.id] for case in cases]


def counted(
    between: tuple[Series, Series],
    cases: Sequence[PublishedCase],
    means: execution.Means,
) -> list[CaseAnswer]:
    """Count the scenarios of cases on the kernels of both ends of an interval."""
    import tempfile
    import threading

    from kdelta.check import calibration, counter
    from kdelta.cli.download import reporting
    from kdelta.run import exact
    from kdelta.study import spec

    names = [f"{major}.{minor}" for major, minor in between]
    scenarios = list(dict.fromkeys(case.scenario for case in cases))
    study = spec.from_arguments(scenarios, names)
    with reporting() as progress, tempfile.TemporaryDirectory(prefix="kdelta-calibrate-") as place:
        old, new = _kernels(names, progress)
        bench = exact.bench_of(
            study, means.wanted_qemu, threading.Event(), progress, again=means.again
        )
        counting = counter.Counter(study, bench, Path(place), _told, means.jobs)
        before = dict(zip(scenarios, counting.count(old, scenarios), strict=True))
        after = dict(zip(scenarios, counting.count(new, scenarios), strict=True))
    labels = old.version.partition("-")[0], new.version.partition("-")[0]
    (a, b), (c, d) = between
    wide = (c, d) not in ((a, b + 1), (a + 1, 0))
    return [
        calibration.answered(case, before[case.scenario], after[case.scenario], labels, wide=wide)
        for case in cases
    ]


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
