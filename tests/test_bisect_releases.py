# SPDX-License-Identifier: GPL-2.0-or-later
"""Which releases lie between two, in which order, and where the search looks first."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kdelta.archive.index import Package, upstream_of
from kdelta.bisect import releases
from kdelta.bisect.journal import Point
from kdelta.bisect.search import Found, Mark, next_step
from kdelta.errors import SpecError
from kdelta.kernels.debian import KernelOffer
from kdelta.kernels.kernel import Flavour

# As the archive had them in November 2026: package versions of Debian's cloud kernels.
LADDER = [
    "6.12.43-1~bpo12+1", "6.12.57-1~bpo12+1", "6.12.69-1~bpo12+1", "6.12.73-1~bpo12+1",
    "6.12.74-2~bpo12+1", "6.12.85-1~bpo12+1", "6.12.86-1~bpo12+1", "6.12.88-1~bpo12+1",
    "6.12.90-1~bpo12+1", "6.12.90-1", "6.12.90-2~bpo12+1", "6.12.90-2", "6.12.94-1~bpo12+1",
    "6.12.94-1", "6.12.95-1~bpo12+1", "6.12.95-1", "6.12.96-1", "6.12.100-1~deb12u1", "6.12.100-1",
    "6.12.101-1~deb12u1", "6.12.101-1", "6.12.105-1", "6.12.107-1~deb12u1", "6.12.107-1",
    "6.12.111-1~deb12u1", "6.12.111-1", "6.12.113-1~deb12u1", "6.12.113-1", "6.12.115-1",
    "6.12.115-2~deb12u1", "6.12.115-2", "6.12.116-1", "6.12.117-1~deb12u1", "6.12.117-1",
    "6.16.3-1~bpo13+1", "6.16.12-1~bpo13+1", "6.17.8-1~bpo13+1", "6.17.13-1~bpo13+1",
    "6.18.5-1~bpo13+1", "6.18.9-1~bpo13+1", "6.18.12-1~bpo13+1", "6.18.15-1~bpo13+1",
    "6.19.6-2~bpo13+1", "6.19.8-1~bpo13+1", "6.19.10-1~bpo13+1", "6.19.11-1~bpo13+1",
    "6.19.13-1~bpo13+1", "6.19.14-1~bpo13+1", "7.0.4-1~bpo13+1", "7.0.7-1~bpo13+1",
    "7.0.9-1~bpo13+1", "7.0.10-1~bpo13+1", "7.0.12-2~bpo13+1", "7.0.13-1~bpo13+1",
    "7.1.3-1~bpo13+1", "7.1.7-1~bpo13+1", "7.1.8-1~bpo13+1", "7.1.13-1~bpo13+1", "7.2.6-1~bpo13+1",
    "7.2.9-1~bpo13+1", "7.2.11-1~bpo13+1", "7.2.12-1~bpo13+1", "7.2.12-1", "7.2.13-1",
    "7.3~rc7-1~exp1", "7.3.4-1~bpo13+1",
]  # fmt: skip


def offer(version: str) -> KernelOffer:
    upstream = upstream_of(version)
    package = Package(
        name=f"linux-image-{upstream}-cloud-amd64",
        version=version,
        arch="amd64",
        depends="",
        size=1,
        sha256="0" * 64,
        uri="",
        suites=("trixie",),
    )
    return KernelOffer(
        release=f"{version}-cloud-amd64",
        upstream=upstream,
        flavour=Flavour.CLOUD,
        package=package,
        config_package=None,
    )


OFFERS = tuple(offer(version) for version in LADDER)


def between(good: str, bad: str, *, every_package: bool = False) -> tuple[Point, ...]:
    return releases.between(
        OFFERS, good, bad, arch="amd64", flavour=Flavour.CLOUD, every_package=every_package
    )


def test_one_package_of_each_upstream_version_in_their_order() -> None:
    points = between("6.12.88", "6.16")
    assert [point.label for point in points] == [
        *("6.12.88", "6.12.90", "6.12.94", "6.12.95", "6.12.96", "6.12.100", "6.12.101"),
        *("6.12.105", "6.12.107", "6.12.111", "6.12.113", "6.12.115", "6.12.116", "6.12.117"),
        *("6.16.3", "6.16.12"),
    ]
    assert points[1].key == "deb:6.12.90-2"
    assert len({point.key for point in points}) == len(points)


def test_candidates_come_before_their_release() -> None:
    assert [point.label for point in between("7.2.12", "7.3")] == [
        *("7.2.12", "7.2.13", "7.3-rc7", "7.3.4")
    ]


def test_every_package_when_asked_for() -> None:
    points = between("6.12.88", "6.12.94", every_package=True)
    assert [point.label for point in points][1:-1] == [
        *("6.12.90-1~bpo12+1", "6.12.90-1", "6.12.90-2~bpo12+1", "6.12.90-2"),
        "6.12.94-1~bpo12+1",
    ]


def test_an_end_is_the_package_that_was_named() -> None:
    points = between("deb:6.12.90-1", "6.12.95")
    assert points[0].key == "deb:6.12.90-1"
    assert [point.label for point in points] == ["6.12.90", "6.12.94", "6.12.95"]


def test_backwards_when_the_good_one_is_newer() -> None:
    there, back = between("6.16", "6.19"), between("6.19", "6.16")
    assert back == there[::-1]


@pytest.mark.parametrize(
    ("good", "bad", "cause"),
    [
        ("6.17", "6.17.13", "same kernel"),
        ("6.15", "6.17", "not in the archive"),
        ("nonsense!", "6.17", "not a kernel reference"),
    ],
)
def test_ends_that_are_none(good: str, bad: str, cause: str) -> None:
    with pytest.raises(SpecError, match=cause):
        between(good, bad)


def without(points: tuple[Point, ...], *skip: str) -> tuple[Point, ...]:
    return releases.without(points, OFFERS, skip, arch="amd64", flavour=Flavour.CLOUD)


def test_releases_can_be_left_out() -> None:
    points = between("6.16", "6.18")
    assert [point.label for point in without(points, "6.17.8", "6.18.12")] == [
        *("6.16.12", "6.17.13", "6.18.5", "6.18.9", "6.18.15")
    ]
    with pytest.raises(SpecError, match="is an end"):
        without(points, "6.16.12")
    with pytest.raises(SpecError, match="not in the archive"):
        without(points, "6.99")


def asked(points: Sequence[Point], first_bad: str) -> list[str]:
    labels = [point.label for point in points]
    bad = labels.index(first_bad)
    marks: dict[int, Mark] = {}
    names = []
    while not isinstance(
        step := next_step(len(points), marks, weights=releases.weights(points)), Found
    ):
        names.append(labels[step.point])
        marks[step.point] = Mark.GOOD if step.point < bad else Mark.BAD
    assert (step.good, step.bad) == (bad - 1, bad)
    return names


@pytest.mark.parametrize("first_bad", ["6.17.8", "6.19.6"])
@pytest.mark.parametrize("good", ["6.12", "6.12.43"])
def test_seven_boots_over_all_releases_since_6_12(good: str, first_bad: str) -> None:
    assert len(asked(between(good, "7.3"), first_bad)) <= 7


@pytest.mark.parametrize("good", ["6.12.43", "6.12", "6.16"])
def test_no_step_takes_more_than_halving(good: str) -> None:
    points = between(good, "7.3")
    most = 2 + (len(points) - 2).bit_length()
    steps = [len(asked(points, point.label)) for point in points[1:]]
    assert max(steps) <= most


def test_where_a_series_begins_is_found_sooner_than_halving_would() -> None:
    points = between("6.12.43", "7.3")
    first_of_series = ["6.16.3", "6.17.8", "6.18.5", "6.19.6", "7.0.4", "7.1.3", "7.2.6"]
    spent = [len(asked(points, label)) for label in first_of_series]
    assert sum(spent) / len(spent) < 7.5


def test_weights_count_releases_of_mainline() -> None:
    points = between("6.12.117", "7.0.7")
    found = dict(zip([point.label for point in points[1:]], releases.weights(points), strict=True))
    assert found["6.16.3"] == 4
    assert found["6.17.8"] == found["7.0.4"] == 1
    assert 0 < found["6.17.13"] < 0.1


def test_tags_are_of_mainline_unless_it_is_one_series() -> None:
    points = {point.label: point for point in between("6.12.43", "7.3")}
    assert releases.tags(points["6.16.12"], points["6.17.8"]) == ("v6.16", "v6.17")
    assert releases.tags(points["6.17.8"], points["6.17.13"]) == ("v6.17.8", "v6.17.13")
    assert releases.tags(points["7.2.13"], points["7.3-rc7"]) == ("v7.2", "v7.3-rc7")
