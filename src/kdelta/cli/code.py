# SPDX-License-Identifier: GPL-2.0-or-later
"""What of a stored run's code ran, and the source lines that it comes from."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from kdelta.cli.download import reporting
from kdelta.errors import InfraError, SpecError
from kdelta.printable import quoted

if TYPE_CHECKING:
    from pathlib import Path

    from kdelta.analysis.explanation import Explanation
    from kdelta.archive.apt import Progress
    from kdelta.codegen.source_lines import Located, RanFunction
    from kdelta.disassembly.executed import ExecutedInsn
    from kdelta.disassembly.lines import SourceLine
    from kdelta.journal.run import RunRecord
    from kdelta.rendering.explain import ExecutedCode, Places, WithLines
    from kdelta.sample import KernelIdentity

MOST_PLACED = 50  # functions whose lines a view tells; an own build's objects are compiled for it


@dataclass(frozen=True, slots=True)
class LineMeans:
    """How lines may be had.  fetch: their packages may be fetched, and unasked with yes."""

    wanted: bool
    fetch: bool
    yes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RanPiece:
    """A function, or a part that the compiler split off, at its place, with what ran of it."""

    symbol: str
    start: int
    instructions: tuple[ExecutedInsn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RanCode:
    """What ran under one kernel; kernel: None where no trial says."""

    kernel: KernelIdentity | None
    pieces: tuple[RanPiece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begins:
    """Where functions that ran under one kernel begin, by their names in the source."""

    kernel: KernelIdentity | None
    functions: Mapping[str, RanFunction]


def ran(folder: Path, record: RunRecord, side: Sequence[tuple[int, str]], function: str) -> RanCode:
    """What ran of a function in windows of one kernel.  side: trial and phase of each."""
    from kdelta import arch
    from kdelta.analysis.explanation import base_name
    from kdelta.disassembly.executed import executed
    from kdelta.journal import artifacts, raw_counts

    counted: list[tuple[int, bytes, int]] = []
    places: dict[tuple[int, int], str] = {}
    names: dict[int, str] = {}
    kernel = None
    for index, phase in side:
        told = artifacts.kept_details(folder, index).functions
        own = [name for name in told if function in (name, base_name(name))]
        places |= {place: name for name in own for place in told[name]}
        names |= {start: name for name in told for start, _ in told[name]}
        trial = next(one for one in record.trials if one.index == index)
        if trial.result is None:
            continue
        kernel = record.arms[trial.arm].kernel
        counted += raw_counts.typical_windows(folder, index, trial.result)[phase].instructions()
    architecture = arch.of(kernel.arch) if kernel else arch.native()
    return RanCode(
        kernel=kernel,
        pieces=tuple(
            RanPiece(
                symbol=name,
                start=start,
                instructions=executed(counted, start, end, architecture, names),
            )
            for (start, end), name in places.items()
        ),
    )


def reached(
    folder: Path, record: RunRecord, side: Sequence[tuple[int, str]]
) -> tuple[set[int], dict[int, tuple[int, str]]]:
    """The addresses that ran in windows of one kernel, and its functions: start, end and name."""
    from kdelta.journal import artifacts, raw_counts

    addresses: set[int] = set()
    places: dict[int, tuple[int, str]] = {}
    of_trial: dict[int, dict[str, set[int]]] = {}
    for index, phase in side:
        trial = next(one for one in record.trials if one.index == index)
        if trial.result is None:
            continue
        if index not in of_trial:
            of_trial[index] = raw_counts.executed(folder, index, trial.result)
            told = artifacts.kept_details(folder, index).functions
            places |= {start: (end, name) for name in told for start, end in told[name]}
        addresses |= of_trial[index][phase]
    return addresses, places


def reached_functions(
    addresses: Collection[int], places: Mapping[int, tuple[int, str]]
) -> list[RanFunction]:
    """The functions at these places of which addresses ran."""
    from kdelta.codegen.source_lines import RanFunction

    ran = sorted(addresses)
    found = []
    for start, (end, name) in sorted(places.items()):
        own = ran[bisect_left(ran, start) : bisect_left(ran, end)]
        if own:
            found.append(RanFunction(name=name, start=start, addresses=tuple(own)))
    return found


def listing(
    whole: Explanation, function: str, sides: tuple[RanCode, RanCode], means: LineMeans
) -> ExecutedCode:
    """What ran of a function, with source lines if wanted.

    Raises SpecError for a function of which nothing ran.
    """
    from kdelta.rendering.explain import ExecutedCode

    missing: list[str] = []
    code = []
    for side in sides:
        lined = _lined(side, means) if means.wanted else None
        missing += lined.missing if lined else ()
        code.append(
            tuple(
                replace(one, lines=lined.chains.get(piece.start + one.offset, ())) if lined else one
                for piece in side.pieces
                for one in piece.instructions
            )
        )
    if not any(code) and not whole.refused:
        raise SpecError(
            f"nothing of {quoted(function)} ran in these windows",
            action="name one that kdelta explain lists",
        )
    return ExecutedCode(whole, function, code[0], code[1], tuple(dict.fromkeys(missing)))


def placed(
    found: object,
    view: Any,
    names: Sequence[str],
    kept: tuple[Begins, Begins],
    means: LineMeans,
) -> WithLines:
    """A view's findings with where functions begin, the first MOST_PLACED of `names`."""
    from kdelta.rendering.explain import WithLines

    places, missing = whereabouts(names, kept, means)
    return WithLines(view, found, places, missing)


def whereabouts(
    names: Sequence[str], kept: tuple[Begins, Begins], means: LineMeans
) -> tuple[dict[str, Places], tuple[str, ...]]:
    """Where functions begin in the old and in the new kernel, the first MOST_PLACED of `names`.

    And why others are not known, sentences.
    """
    wanted = list(dict.fromkeys(names))[:MOST_PLACED]
    missing: list[str] = []
    sides: list[dict[str, SourceLine]] = []
    for side in kept:
        own = {name: side.functions[name] for name in wanted if name in side.functions}
        told = located(side.kernel, [*own.values()], means)
        missing += told.missing
        first = {name: told.chains.get(each.start, ()) for name, each in own.items()}
        sides.append({name: chain[-1] for name, chain in first.items() if chain})
    places = {name: (sides[0].get(name), sides[1].get(name)) for name in wanted}
    return places, tuple(dict.fromkeys(missing))


def begins(folder: Path, record: RunRecord, side: Sequence[tuple[int, str]]) -> Begins:
    """Where the functions begin that ran in windows of one kernel."""
    from kdelta.analysis.explanation import base_name
    from kdelta.codegen.source_lines import RanFunction
    from kdelta.journal import artifacts

    kernel = None
    found: dict[str, RanFunction] = {}
    for index, _ in side:
        told = artifacts.kept_details(folder, index).functions
        trial = next(one for one in record.trials if one.index == index)
        kernel = record.arms[trial.arm].kernel
        # The shortest name first: a part that was split off begins elsewhere.
        for symbol in sorted(told, key=lambda name: (len(name), name)):
            start = told[symbol][0][0]
            one = RanFunction(name=symbol, start=start, addresses=(start,))
            found.setdefault(base_name(symbol), one)
    return Begins(kernel=kernel, functions=found)


def _lined(side: RanCode, means: LineMeans) -> Located:
    from kdelta.codegen import source_lines

    functions = [
        source_lines.RanFunction(
            name=piece.symbol,
            start=piece.start,
            addresses=tuple(piece.start + one.offset for one in piece.instructions),
        )
        for piece in side.pieces
        if piece.instructions
    ]
    return located(side.kernel, functions, means)


def located(
    kernel: KernelIdentity | None,
    functions: Sequence[RanFunction],
    means: LineMeans,
    under: str = "",
) -> Located:
    """The lines of functions of a kernel, as codegen.lines has them; progress is told."""
    from kdelta.codegen import source_lines

    if kernel is None or not functions:
        return source_lines.Located(chains={})
    with reporting() as progress:
        fetch = partial(_fetched, yes=means.yes, progress=progress) if means.fetch else None
        return source_lines.located(kernel, functions, fetch=fetch, under=under, progress=progress)


def _fetched(kernel: KernelIdentity, *, yes: bool, progress: Progress) -> Path:
    """The line tables of a package's kernel, when whoever asks wants so much fetched."""
    from kdelta.kernels import debug, reference

    archive = reference.opened(kernel.arch)
    package = debug.package_of(kernel.release, kernel.version, archive)
    if package is None:
        raise SpecError(
            f"the archive has no linux-image-{kernel.release}-dbg {kernel.version}",
            action="only kernels that Debian still supports have one",
        )
    size = f"{package.size >> 20} MiB to fetch, about 280 MiB are kept"
    click.echo(f"{package.name} {package.version}: {size}", err=True)
    if not yes and not (sys.stdin.isatty() and click.confirm("fetch it?", err=True)):
        raise InfraError("it was not fetched", action="say yes, or give --yes")
    flavour = kernel.flavour or "cloud"
    found = reference.resolve(f"deb:{kernel.version}", kernel.arch, flavour, progress=progress)
    if found.image_sha256 != kernel.image_sha256:
        raise SpecError("the archive has another image of that version now")
    return debug.fetch(package, found, archive, progress)
