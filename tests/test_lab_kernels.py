# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernels of several runs: one name for each, none for two, and each beside the one before it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

import ladder_records
from kdelta.analysis import lab
from kdelta.journal.run import RunRecord
from kdelta.rendering import site
from kdelta.sample import KernelIdentity

NAME = f"{ladder_records.WORKLOAD}:{ladder_records.SCENARIO}"


def run(day: int, kernels: Mapping[str, float], **identity: str) -> RunRecord:
    """A run of that day: label -> instructions per page."""
    record = ladder_records.with_kernels(ladder_records.counting(kernels), lambda _: identity)
    return replace(record, run_id=f"run-{day}", created=f"2026-11-{day:02d}")


def of(*records: RunRecord) -> lab.Lab:
    return lab.lab(lab.named(records), most_pairs=130)


def labels(record: RunRecord) -> list[str]:
    return [arm.label for arm in record.arms]


def test_two_packages_of_one_version_are_two_kernels() -> None:
    one = run(1, {"6.12.90": 300.0}, version="6.12.90-1")
    found = of(one, run(2, {"6.12.90": 400.0}, version="6.12.90-2~bpo12+1"))
    assert found.kernels == ("6.12.90-1", "6.12.90-2~bpo12+1")
    assert [point.value for point in found.scenarios[0].points] == [300.0, 400.0]


def test_one_kernel_that_two_runs_call_differently_is_one() -> None:
    plain = run(1, {"7.2.12": 300.0}, version="7.2.12-1~bpo13+1")
    long = run(2, {"deb:7.2.12-1~bpo13+1": 300.0}, version="7.2.12-1~bpo13+1")
    assert [labels(record) for record in lab.named([plain, long])] == [["7.2.12"]] * 2
    assert of(plain, long).kernels == ("7.2.12",)


def test_flavours_and_images_tell_kernels_apart() -> None:
    cloud = run(1, {"7.2.12": 300.0})
    generic = run(2, {"7.2.12": 300.0}, flavour="generic")
    assert [labels(record) for record in lab.named([cloud, generic])] == [
        ["7.2.12-1~bpo13+1 cloud amd64"],
        ["7.2.12-1~bpo13+1 generic amd64"],
    ]
    built = [
        run(day, {"6.17.0+": 300.0}, version="", reference="file:bzImage", image_sha256=sha * 64)
        for day, sha in ((1, "a"), (2, "b"))
    ]
    assert [labels(record) for record in lab.named(built)] == [
        ["6.17.0+ cloud amd64 image aaaaaaaa"],
        ["6.17.0+ cloud amd64 image bbbbbbbb"],
    ]


def test_what_nothing_tells_apart_is_numbered() -> None:
    alike = [
        run(day, {"6.17.0+": 300.0}, version="", reference=f"file:{name}", image_sha256="a" * 64)
        for day, name in ((1, "one"), (2, "other"))
    ]
    assert [labels(record) for record in lab.named(alike)] == [["6.17.0+ (1)"], ["6.17.0+ (2)"]]


def test_names_are_unique_in_a_run_and_a_control_keeps_its_word() -> None:
    record = run(1, {"6.16.12": 300.0, "6.16.12 again": 300.0}, version="6.16.12-1")
    first, again = record.arms
    (found,) = lab.named([replace(record, arms=(first, replace(again, control=True)))])
    assert labels(found) == ["6.16.12", "6.16.12 again"]
    (found,) = lab.named([record])
    assert len(set(labels(found))) == 2


def test_a_point_release_between_takes_the_step_over() -> None:
    """A survey of the newest ones says 6.16 to 6.17; a later run knows which release it was."""
    survey = run(1, {"6.16.12": 300.0, "6.17.13": 400.0})
    found = of(survey, run(2, {"6.17.8": 400.0, "6.17.11": 400.0}))
    assert [(step.explanation.old, step.explanation.new) for step in found.steps] == [
        ("6.16.12", "6.17.8")
    ]
    assert found.steps[0].alone
    points = {point.kernel: point.previous for point in found.scenarios[0].points}
    assert points == {"6.16.12": "", "6.17.8": "6.16.12", "6.17.11": "6.17.8", "6.17.13": "6.17.11"}
    pages = site.written(found, address="")
    (page,) = [pages[n].decode() for n in pages if n.startswith("step/") and n.endswith("html")]
    assert f'{NAME} <span class="whole">--kernels</span> 6.16.12,6.17.8' in page
    assert "kdelta explain" not in page


def test_of_several_runs_that_of_most_seeds_stands() -> None:
    strong = replace(ladder_records.part_of("6.16.12", "6.17.13", rounds=3), run_id="strong")
    weak = run(28, {"6.16.12": 300.0, "6.17.13": 900.0, "6.18.1": 900.0})
    weak = ladder_records.with_kernels(weak, lambda arm: {"flavour": "rt"} if arm.index > 1 else {})
    found = of(weak, strong, run(29, {"6.16.12": 310.0}))
    assert {one.run_id for one in found.scenarios[0].points[:2]} == {"strong"}
    assert [step.run_id for step in found.steps] == ["strong"]
    assert found.pairs["6.16.12", "6.17.13"][0].comparison.verdict == "REGRESSION"


def test_kernels_far_apart_in_one_run_are_no_step() -> None:
    survey = run(1, {"6.16.12": 300.0, "6.17.13": 400.0, "6.18.15": 500.0})
    found = of(survey, run(2, {"6.16.12": 300.0, "6.18.15": 500.0}))
    assert {(step.explanation.old, step.explanation.new) for step in found.steps} == {
        ("6.16.12", "6.17.13"),
        ("6.17.13", "6.18.15"),
    }


def test_another_plugin_later_leaves_what_was_compared_before() -> None:
    """What the newest runs cannot compare stays with an older run that has both."""
    survey = run(1, {"6.16.12": 300.0, "6.17.13": 400.0})
    later = run(2, {"6.17.13": 400.0, "6.18.15": 500.0})
    other = replace(ladder_records.ENVIRONMENT, plugin_sha256="cd" * 32)
    later = ladder_records.with_results(later, lambda _: {"environment": other})
    points = {point.kernel: point for point in of(survey, later).scenarios[0].points}
    judged = [points[kernel].comparison for kernel in ("6.17.13", "6.18.15")]
    assert [one and one.verdict for one in judged] == ["REGRESSION"] * 2


def test_what_is_decided_once_holds_for_kernels_alike_only() -> None:
    """A verdict is shared by kernels of equal counts, state and build, and by no others."""
    values = {"6.17.8": 300.0, "6.17.9": 300.0, "6.17.10": 300.2, "6.17.11": 400.0}
    gcc = {"6.17.9": "gcc-14 (Debian 14.2.0-19) 14.2.0", "6.17.11": "gcc-12 (Debian 12.2.0) 12.2.0"}
    record = run(1, values)
    compilers = {label: gcc.get(label, gcc["6.17.9"]) for label in values}
    record = ladder_records.with_kernels(record, lambda arm: {"compiler": compilers[arm.label]})
    by = {pair: rows[0] for pair, rows in of(record).pairs.items()}
    assert len(by) == 6
    assert (by["6.17.8", "6.17.9"].comparison.verdict, by["6.17.8", "6.17.9"].old) == ("SAME", 300)
    assert by["6.17.9", "6.17.10"].new == pytest.approx(300.2, abs=1e-3)
    for old in ("6.17.8", "6.17.9", "6.17.10"):
        crossed = by[old, "6.17.11"].comparison
        assert crossed.verdict == "UNDECIDED"
        assert crossed.reasons == ("two compilers, gcc 14 -> gcc 12: part of it may be theirs",)


def test_commits_of_a_tree_are_in_the_order_in_which_they_were_counted() -> None:
    def tip(day: int, commit: str, value: float) -> RunRecord:
        label = f"6.17.8-g{commit}"
        reference = f"tree:/src/linux@{commit}+config=min"
        return run(day, {label: value}, version="", name=label, reference=reference)

    archive = run(1, {"6.17.8": 900.0})
    found = of(tip(3, "a1b2c3d4e5f6", 400.0), archive, tip(2, "f9e8d7c6b5a4", 300.0))
    assert found.kernels == ("6.17.8", "6.17.8-gf9e8d7c6b5a4", "6.17.8-ga1b2c3d4e5f6")
    assert [step.explanation.old for step in found.steps] == ["6.17.8-gf9e8d7c6b5a4"]
    assert not any(b"src/linux" in text for text in site.written(found, address="").values())


@pytest.mark.parametrize(
    ("reference", "version", "expected"),
    [
        ("6.17", "6.17.8-1", ("archive", "amd64", "cloud")),
        ("tree:/a@b/linux@12ab", "", ("tree", "/a@b/linux", "", "amd64")),
        ("tree:/l@12ab+config=min", "", ("tree", "/l", "+config=min", "amd64")),
        ("file:bzImage", "", ("alone", "file:bzImage", "00")),
        ("tree:deb:6.17.8+fix", "", ("alone", "tree:deb:6.17.8+fix", "00")),
    ],
)
def test_what_a_kernel_is_one_of(reference: str, version: str, expected: tuple[str, ...]) -> None:
    kernel = KernelIdentity(
        reference=reference, release="", version=version, arch="amd64", flavour="cloud",
        image_sha256="00",
    )  # fmt: skip
    assert lab.line(kernel) == expected


def test_any_two_kernels_are_compared_over_runs() -> None:
    ((pair, rows),) = of(run(1, {"6.16.12": 300.0}), run(2, {"6.17.13": 400.0})).pairs.items()
    assert pair == ("6.16.12", "6.17.13")
    assert rows[0].comparison.verdict == "REGRESSION"
