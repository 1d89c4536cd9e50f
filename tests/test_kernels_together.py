# SPDX-License-Identifier: GPL-2.0-or-later
"""References of one study mean packages of one compiler, found out of the archive's index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kdelta.bisect import history
from kdelta.errors import SpecError
from kdelta.kernels import debian, reference
from kdelta.kernels.kernel import Flavour
from test_kernels import deb

if TYPE_CHECKING:
    from archive_mirror import Mirror

pytest_plugins = ("archive_mirror",)


# As the archive has them: headers of old backports are gone, their images are not.
ARCHIVED = (
    deb("linux-image-6.1.0-9-cloud-amd64", "6.1.27-1"),
    deb("linux-image-6.1.0-56-cloud-amd64", "6.1.192-2"),
    deb("linux-headers-6.1.0-56-cloud-amd64", "6.1.192-2", "linux-compiler-gcc-12-x86"),
    deb("linux-image-6.12.117+deb12-cloud-amd64", "6.12.117-1~deb12u1"),
    deb("linux-headers-6.12.117+deb12-cloud-amd64", "6.12.117-1~deb12u1", "linux-base, gcc-12"),
    deb("linux-image-6.12.117+deb13-cloud-amd64", "6.12.117-1"),
    deb("linux-headers-6.12.117+deb13-cloud-amd64", "6.12.117-1", "linux-base, gcc-14"),
    deb("linux-image-6.17.13+deb13-cloud-amd64", "6.17.13-1~bpo13+1"),
    deb("linux-image-7.2.11+deb13-cloud-amd64", "7.2.11-1~bpo13+1"),
    deb("linux-image-7.2.12+deb13-cloud-amd64", "7.2.12-1~bpo13+1"),
    deb("linux-headers-7.2.12+deb13-cloud-amd64", "7.2.12-1~bpo13+1", "gcc-14-for-host, pahole"),
    deb("linux-headers-7.2.12+deb13-cloud-arm64", "7.2.12-1~bpo13+1", "gcc-13-for-host"),
    deb("linux-image-7.2.13+deb14-cloud-amd64", "7.2.13-1"),
    deb("linux-headers-7.2.13+deb14-cloud-amd64", "7.2.13-1", "gcc-16-for-host, linux-base"),
    deb("linux-image-7.3-cloud-amd64", "7.3~rc7-1~exp1"),
    deb("linux-headers-7.3-cloud-amd64", "7.3~rc7-1~exp1", "gcc-16-for-host"),
)
OFFERED = debian.assemble(ARCHIVED, "amd64", Flavour.CLOUD)


def picked(*references: str, others: Sequence[str] = ()) -> dict[str, debian.KernelOffer]:
    found = debian.choose_together(references, OFFERED, "amd64", Flavour.CLOUD, others=others)
    return dict(zip(references, found, strict=True))


def versions(*references: str, others: Sequence[str] = ()) -> list[str]:
    return [pick.version for pick in picked(*references, others=others).values()]


def test_the_index_tells_who_built_a_package() -> None:
    assert {offer.version: offer.compiler for offer in OFFERED} == {
        "6.1.27-1": "gcc 12", "6.1.192-2": "gcc 12", "6.12.117-1~deb12u1": "gcc 12",
        "6.12.117-1": "gcc 14", "6.17.13-1~bpo13+1": "gcc 14", "7.2.11-1~bpo13+1": "gcc 14",
        "7.2.12-1~bpo13+1": "gcc 14", "7.2.13-1": "gcc 16", "7.3~rc7-1~exp1": "gcc 16",
    }  # fmt: skip


def test_a_compiler_is_not_guessed_where_packages_of_one_mark_disagree() -> None:
    other = deb("linux-headers-6.18.1+deb13-cloud-amd64", "6.18.1-1", "gcc-15")
    found = debian.assemble((*ARCHIVED, other), "amd64", Flavour.CLOUD)
    told = {offer.version: offer.compiler for offer in found}
    assert told["6.17.13-1~bpo13+1"] == ""
    assert told["6.12.117-1"] == "gcc 14"


def test_a_series_means_its_newest_package_of_the_others_compiler(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = picked("6.12", "6.17", "7.2")
    assert [pick.version for pick in found.values()] == [
        *("6.12.117-1", "6.17.13-1~bpo13+1", "7.2.12-1~bpo13+1")
    ]
    assert caplog.messages == [
        "7.2: 7.2.12-1~bpo13+1 (gcc 14), since the other arms are gcc 14; 7.2.13-1 is gcc 16",
    ]


def test_alone_a_series_is_its_newest_package(caplog: pytest.LogCaptureFixture) -> None:
    assert versions("7.2") == ["7.2.13-1"]
    assert not caplog.messages


def test_the_compiler_is_the_one_that_most_arms_can_have(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert versions("6.1", "6.12") == ["6.1.192-2", "6.12.117-1~deb12u1"]
    assert versions("7.2", "7.3-rc") == ["7.2.13-1", "7.3~rc7-1~exp1"]
    assert picked("6.1", "6.12", "6.17", "7.2")["6.12"].version == "6.12.117-1"
    assert (
        "6.1: 6.1.192-2 (gcc 12), the other arms are gcc 14: no 6.1 of the archive is gcc 14"
    ) in caplog.messages


@pytest.mark.parametrize("exact", ["deb:7.2.13-1", "7.2.13", "7.2.13+deb14-cloud-amd64"])
def test_an_exact_reference_is_taken_as_it_stands(
    exact: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert picked("6.12", "6.17", exact)[exact].version == "7.2.13-1"
    assert f"{exact}: 7.2.13-1 (gcc 16), the other arms are gcc 14: as named" in caplog.messages


def test_trees_and_files_count_among_the_arms() -> None:
    assert versions("7.2", others=["gcc 14"]) == ["7.2.12-1~bpo13+1"]
    assert versions("7.2", others=["gcc 16"]) == ["7.2.13-1"]
    assert versions("7.2", others=[""]) == ["7.2.13-1"]


@pytest.mark.parametrize(
    ("references", "expanded"),
    [
        (["6.12..7.2"], ("6.12", "6.17", "7.2")),
        (["6.1", "6.12..7.2"], ("6.1", "6.12", "6.17", "7.2")),
        (["6.12..6.17", "6.17..7.3-rc"], ("6.12", "6.17", "7.2", "7.3-rc")),
        (["6.12.117..7.2.11"], ("6.12.117", "6.17", "7.2.11")),
        (["6.12..6.12"], ("6.12",)),
        (["tree:../linux", "file:../image", "6.12"], ("tree:../linux", "file:../image", "6.12")),
    ],
)
def test_a_range_is_every_series_between_ends_included(
    references: list[str], expanded: tuple[str, ...]
) -> None:
    assert debian.expanded(references, OFFERED) == expanded


@pytest.mark.parametrize(
    ("reference", "cause"),
    [("6.13..7.2", "no 6.13, an end of 6.13..7.2"), ("7.2..6.12", "runs backwards")],
)
def test_a_range_that_is_none(reference: str, cause: str) -> None:
    with pytest.raises(SpecError, match=cause):
        debian.expanded([reference], OFFERED)


def between(good: str, bad: str) -> list[str]:
    points = history.between(OFFERED, good, bad, arch="amd64", flavour=Flavour.CLOUD)
    return [point.key for point in points]


def test_a_bisection_over_releases_stays_with_one_compiler() -> None:
    assert between("6.12", "7.2") == [
        *("deb:6.12.117-1", "deb:6.17.13-1~bpo13+1", "deb:7.2.11-1~bpo13+1"),
        "deb:7.2.12-1~bpo13+1",
    ]


def test_kernels_of_a_study_are_resolved_together(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def offers(*_: object) -> tuple[debian.KernelOffer, ...]:
        real = {offer.version: offer for offer in listed}
        older, newer = real["6.17.8-1~bpo13+1"], real["7.2.6-1~bpo13+1"]
        return (replace(older, compiler="gcc 14"), replace(newer, compiler="gcc 16"))

    listed = reference.listing()
    monkeypatch.setattr(debian, "offers", offers)
    assert mirror.requests
    found = reference.resolve_all(["6.17", "7.2"])
    assert [kernel.reference for kernel in found if not isinstance(kernel, Exception)] == [
        *("6.17", "7.2")
    ]
    assert "the other arms are gcc 16" in caplog.text
