# SPDX-License-Identifier: GPL-2.0-or-later
"""The source lines of the code that ran in a stored run, fetched or compiled when asked."""

from __future__ import annotations

import sys
from collections.abc import Sequence
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
    from kdelta.codegen.recorded import Begins, RanCode
    from kdelta.codegen.source_lines import Located, RanFunction
    from kdelta.disassembly.addr2line import SourceLine
    from kdelta.rendering.explain import ExecutedCode, Places, WithLines
    from kdelta.sample import KernelIdentity

MOST_PLACED = 50  # functions whose lines a view tells; an own build's objects are compiled for it


@dataclass(frozen=True, slots=True)
class LineMeans:
    """How lines may be had.  fetch: their packages may be fetched, and unasked with yes."""

    wanted: bool
    fetch: bool
    yes: bool


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
    """The lines of functions of a kernel, as codegen.source_lines has them; progress is told."""
    from kdelta.codegen import source_lines

    if kernel is None or not functions:
        return source_lines.Located(chains={})
    with reporting() as progress:
        fetch = partial(_fetched, yes=means.yes, progress=progress) if means.fetch else None
        return source_lines.located(kernel, functions, fetch=fetch, under=under, progress=progress)


def _fetched(kernel: KernelIdentity, *, yes: bool, progress: Progress) -> Path:
    """The line tables of a package's kernel, when whoever asks wants so much fetched."""
    from kdelta.kernels import packages, reference

    archive = reference.opened(kernel.arch)
    package = packages.debug_package(kernel.release, kernel.version, archive)
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
    return packages.fetch_lines(package, found, archive, progress)
