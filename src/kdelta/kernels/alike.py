# SPDX-License-Identifier: GPL-2.0-or-later
"""Chooses the packages of one study together, so that one compiler built them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kdelta.errors import SpecError
from kdelta.kernels import debian
from kdelta.kernels.debian import KernelOffer
from kdelta.kernels.kernel import Flavour

_RANGE = re.compile(r"(\d+\.\d+[^.:/]*(?:\.\d[^.:/]*)?)\.\.(\d+\.\d+.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    """What a reference means among others.  told: a sentence, when that is not obvious."""

    offer: KernelOffer
    told: str = ""


def pick(
    references: Sequence[str],
    offered: Sequence[KernelOffer],
    arch: str,
    flavour: Flavour,
    *,
    others: Sequence[str] = (),
) -> tuple[Picked, ...]:
    """The offer of each reference, all of one compiler as far as the archive has them.

    A series or a candidate means the newest package of the compiler that most arms can have; any
    other reference names its package, whoever built it.  others: compilers of further arms ("gcc
    14"), which are not the archive's.  Raises SpecError for an unknown reference.
    """
    newest = [debian.choose(name, offered, arch, flavour) for name in references]
    ways = [
        {each.compiler: each for each in debian.fitting(name, offered)}
        if debian.is_open(name)
        else {first.compiler: first}
        for name, first in zip(references, newest, strict=True)
    ]
    votes = Counter([name for way in ways for name in way if name] + [o for o in others if o])
    wanted = max(votes, key=lambda name: (votes[name], _among(name, newest), name), default="")
    return tuple(
        _picked(name, first, way.get(wanted, first), wanted)
        for name, first, way in zip(references, newest, ways, strict=True)
    )


def fresh(
    offered: Sequence[KernelOffer], watched: Sequence[KernelOffer], known: Collection[str]
) -> tuple[KernelOffer, ...]:
    """The watched kernels that are not known yet, in the archive's order."""
    chosen = {offer.version for offer in watched} - set(known)
    return tuple(offer for offer in offered if offer.version in chosen)


def beside(
    offered: Sequence[KernelOffer], new: Sequence[KernelOffer], known: Collection[str]
) -> tuple[KernelOffer, ...]:
    """The new kernels, each with the kernel before it, which is known or new itself.

    That is the nearest older one of the same compiler, else the nearest.  offered: oldest first.
    """
    able = [offer for offer in offered if offer in new or offer.version in known]
    chosen = set()
    for offer in new:
        older = [one for one in able[: able.index(offer)] if one.upstream != offer.upstream]
        alike = [one for one in older if one.compiler == offer.compiler]
        chosen |= {offer.version, *(one.version for one in (alike or older)[-1:])}
    return tuple(offer for offer in able if offer.version in chosen)


def every_series(offered: Sequence[KernelOffer]) -> tuple[str, ...]:
    """References to the newest of each series and to each candidate, oldest first."""
    named = (f"{one.series}-rc" if one.is_candidate else one.series for one in offered)
    return tuple(dict.fromkeys(named))


def expanded(references: Sequence[str], offered: Sequence[KernelOffer]) -> tuple[str, ...]:
    """The references with every A..B replaced by A, the series between the two, and B.

    Raises SpecError when the archive lacks an end, and for a range that runs backwards.
    """
    series = list(dict.fromkeys(each.series for each in offered if not each.is_candidate))
    found: list[str] = []
    for reference in references:
        match = _RANGE.fullmatch(reference)
        found += _between(match[1], match[2], offered, series) if match else [reference]
    return tuple(dict.fromkeys(found) if len(found) > len(references) else found)


def _among(name: str, offers: Sequence[KernelOffer]) -> int:
    return sum(each.compiler == name for each in offers)


def _picked(reference: str, newest: KernelOffer, chosen: KernelOffer, wanted: str) -> Picked:
    here = f"{reference}: {chosen.version} ({chosen.compiler})"
    if chosen is not newest:
        instead = f"{newest.version} is {newest.compiler or 'of an unknown compiler'}"
        return Picked(offer=chosen, told=f"{here}, since the other arms are {wanted}; {instead}")
    if not chosen.compiler or chosen.compiler == wanted:
        return Picked(offer=chosen)
    none = f"no {reference} of the archive is {wanted}" if debian.is_open(reference) else "as named"
    return Picked(offer=chosen, told=f"{here}, the other arms are {wanted}: {none}")


def _between(
    first: str, last: str, offered: Sequence[KernelOffer], series: Sequence[str]
) -> list[str]:
    ends = []
    for end in (first, last):
        fitting = debian.fitting(end, offered)
        if not fitting:
            near = ", ".join(debian.nearest(end, offered)) or "none"
            raise SpecError(
                f"the archive has no {end}, an end of {first}..{last}",
                action=f"the nearest are {near}; see: kdelta kernels list",
            )
        ends.append(_number(fitting[-1].series))
    low, high = ends
    if low > high:
        raise SpecError(
            f"{first}..{last} runs backwards", action=f"write the older end first: {last}..{first}"
        )
    inside = [name for name in series if low < _number(name) < high]
    return list(dict.fromkeys([first, *sorted(inside, key=_number), last]))


def _number(series: str) -> tuple[int, ...]:
    return tuple(int(part) for part in series.split("."))
