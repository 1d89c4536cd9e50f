# SPDX-License-Identifier: GPL-2.0-or-later
"""The releases between a good and a bad one: which they are, in order, and where changes enter."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from itertools import pairwise

from debian.debian_support import Version

from kdelta.archive.index import upstream_of
from kdelta.bisect.journal import Point
from kdelta.errors import SpecError
from kdelta.kernels import debian
from kdelta.kernels.debian import KernelOffer
from kdelta.kernels.kernel import Flavour

log = logging.getLogger(__name__)

# Beside a whole release of mainline, how likely a stable point release brings the change.
_POINT_RELEASE = 0.02
_NUMBERS = re.compile(r"(\d{1,6})\.(\d{1,6})")


def between(
    offers: Sequence[KernelOffer],
    good: str,
    bad: str,
    *,
    arch: str,
    flavour: Flavour,
    every_package: bool = False,
) -> tuple[Point, ...]:
    """The releases from good to bad, both included; backwards when bad is the older one.

    good, bad: references, as `kdelta run` takes them.  Of several packages of one upstream version
    only the newest, unless every_package; all of one compiler, when the ends are.  Raises
    SpecError for references that are not in the archive, or are one kernel.
    """
    picked = debian.choose_together((good, bad), offers, arch, flavour)
    first, last = (pick.offer for pick in picked)
    for told in (pick.told for pick in picked if pick.told):
        log.warning("%s", told)
    if first == last:
        raise SpecError(
            f"{good} and {bad} are the same kernel, {first.version}",
            action="name a good and a bad one; see what there is with: kdelta kernels list",
        )
    low, high = sorted((first, last), key=_order)
    inside = [
        offer
        for offer in sorted(offers, key=_order)
        if _order(low) < _order(offer) < _order(high)
        and (first.compiler != last.compiler or offer.compiler in ("", first.compiler))
    ]
    if not every_package:
        newest = {offer.upstream: offer for offer in inside}
        ends = {low.upstream, high.upstream}
        inside = [offer for name, offer in newest.items() if name not in ends]
    chosen = [low, *inside, high]
    names = [offer.upstream for offer in chosen]
    labels = (o.upstream if names.count(o.upstream) == 1 else o.version for o in chosen)
    releases = tuple(
        Point(key=f"deb:{offer.version}", label=label)
        for offer, label in zip(chosen, labels, strict=True)
    )
    return releases if first == low else releases[::-1]


def package_version(point: Point) -> str:
    """Version of a point's package."""
    return point.key.removeprefix("deb:")


def tags(good: Point, bad: Point) -> tuple[str, str]:
    """Tags between which a history of commits runs through the change.

    Point releases of one series follow each other; those of two series are on branches of their
    own, and the change is on mainline between the releases that these began with.
    """
    whole = _series(good) == _series(bad)

    def tag(point: Point) -> str:
        name = upstream_of(package_version(point))
        return f"v{name}" if whole or "-rc" in name else "v{}.{}".format(*_series(point))

    return tag(good), tag(bad)


def weights(points: Sequence[Point]) -> list[float]:
    """How likely the change is between each release and the next, for search.next_step.

    A release of mainline has some 13000 commits and a point release some hundred, so where a
    series begins is where to look first.
    """
    return [
        float(_mainline_releases(one, other)) or _POINT_RELEASE
        for one, other in pairwise(_series(point) for point in points)
    ]


def _order(offer: KernelOffer) -> tuple[object, object]:
    """Upstream version first: a package of an older upstream may have been made later."""
    whole = Version(offer.version)
    return Version(whole.upstream_version or ""), whole


def _series(point: Point) -> tuple[int, int]:
    """(6, 17) of 6.17.8; (0, 0) when a version has no such form."""
    match = _NUMBERS.match(upstream_of(package_version(point)))
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _mainline_releases(one: tuple[int, int], other: tuple[int, int]) -> int:
    """Releases of mainline from one series to the other: 6.12 to 6.16 are 4, 6.19 to 7.0 is 1."""
    low, high = sorted((one, other))
    # The number of the last minor release is not in the version.
    return high[1] - low[1] if low[0] == high[0] else 1 + high[1]
