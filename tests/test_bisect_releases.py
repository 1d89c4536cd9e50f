# SPDX-License-Identifier: GPL-2.0-or-later
"""Which releases lie between two, in which order, and where the search looks first."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from bisect_bench import Bench, journal, of_releases, question
from git_history import Repository
from kdelta.archive.index import Package, upstream_of
from kdelta.bisect import history
from kdelta.bisect.journal import Point
from kdelta.bisect.search import Found, Mark, next_step
from kdelta.cli.bisect import Asked, bisect, carried_out, one_scenario, tell
from kdelta.errors import SpecError
from kdelta.journal.run import RUNS, RunJournal
from kdelta.kernels.debian import KernelOffer
from kdelta.kernels.kernel import Flavour
from kdelta.study import spec

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
        name=f"linux-image-{upstream}-cloud-amd64", version=version, arch="amd64", depends="",
        size=1, sha256="0" * 64, uri="", suites=("trixie",),
    )  # fmt: skip
    return KernelOffer(
        release=f"{version}-cloud-amd64", upstream=upstream, flavour=Flavour.CLOUD, package=package,
        config_package=None,
    )  # fmt: skip


OFFERS = tuple(offer(version) for version in LADDER)


def between(good: str, bad: str) -> tuple[Point, ...]:
    return history.between(OFFERS, good, bad, arch="amd64", flavour=Flavour.CLOUD)


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


def asked(points: Sequence[Point], first_bad: str) -> list[str]:
    labels = [point.label for point in points]
    bad = labels.index(first_bad)
    marks: dict[int, Mark] = {}
    names = []
    while not isinstance(step := next_step(marks, history.weights(points)), Found):
        names.append(labels[step.point])
        marks[step.point] = Mark.GOOD if step.point < bad else Mark.BAD
    assert (step.good, step.bad) == (bad - 1, bad)
    return names


@pytest.mark.parametrize("first_bad", ["6.17.8", "6.19.6"])
def test_seven_boots_over_all_releases_since_6_12(first_bad: str) -> None:
    assert len(asked(between("6.12.43", "7.3"), first_bad)) <= 7


@pytest.mark.parametrize("good", ["6.12.43", "6.12", "6.16"])
def test_no_step_takes_more_than_halving(good: str) -> None:
    points = between(good, "7.3")
    most = 2 + (len(points) - 2).bit_length()
    assert max([len(asked(points, point.label)) for point in points[1:]]) <= most


def test_where_a_series_begins_is_found_sooner_than_halving_would() -> None:
    points = between("6.12.43", "7.3")
    first_of_series = ["6.16.3", "6.17.8", "6.18.5", "6.19.6", "7.0.4", "7.1.3", "7.2.6"]
    spent = [len(asked(points, label)) for label in first_of_series]
    assert sum(spent) / len(spent) < 7.5


def test_weights_count_releases_of_mainline() -> None:
    points = between("6.12.117", "7.0.7")
    found = dict(zip([point.label for point in points[1:]], history.weights(points), strict=True))
    assert found["6.16.3"] == 4
    assert found["6.17.8"] == found["7.0.4"] == 1
    assert 0 < found["6.17.13"] < 0.1


def test_tags_are_of_mainline_unless_it_is_one_series() -> None:
    points = {point.label: point for point in between("6.12.43", "7.3")}
    assert history.tags(points["6.16.12"], points["6.17.8"]) == ("v6.16", "v6.17")
    assert history.tags(points["6.17.8"], points["6.17.13"]) == ("v6.17.8", "v6.17.13")
    assert history.tags(points["7.2.13"], points["7.3-rc7"]) == ("v7.2", "v7.3-rc7")


# What `kdelta bisect` refuses before it measures anything, and what it leaves in a folder


SCENARIO = "mprotect:shared_dirty_full_toggle_64m"


def refused(kind: str, *arguments: str) -> str:
    ends = ["--good", "6.16", "--bad", "6.17"]
    found = CliRunner().invoke(bisect, [kind, SCENARIO, *ends, *arguments])
    assert isinstance(found.exception, SpecError), found.output
    return found.exception.sentence()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["releases", "--bad", "6.16"], "--good and --bad are both 6.16; name two kernels"),
        (["commits", "--bad", "6.16", "--tree", "."],
         "--good and --bad are both 6.16; name two kernels"),
        (["commits", "--tree", ".", "--arch", "arm64"], "built for amd64 only"),
    ],
)  # fmt: skip
def test_questions_that_are_none(arguments: list[str], words: str) -> None:
    assert words in refused(*arguments)


def test_a_repository_without_the_commit_leaves_no_folder(tmp_path: Path) -> None:
    Repository(tmp_path / "linux").line([("one", {"a": "1"})])
    assert "no commit 6.16" in refused(
        "commits", "--tree", str(tmp_path / "linux"), "--runs", str(tmp_path / "runs")
    )
    assert not (tmp_path / "runs").exists()


def study_file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "study.toml"
    path.write_text('name = "x"\ntitle = "x"\nkernels = ["6.1", "6.2"]\n' + text)
    return str(path)


def test_one_scenario_of_a_study(tmp_path: Path) -> None:
    both = f'scenarios = ["{SCENARIO}", "mincore:no_thp_pte_scan_4m"]\n[machine]\ncpus = 2\n'
    path = study_file(tmp_path, both)
    study = one_scenario(path, "no_thp_pte_scan_4m", ("6.16", "6.17"), {"memory_mib": 2048})
    assert study.scenarios == ("mincore:no_thp_pte_scan_4m",)
    assert study.kernels == ("6.16", "6.17")
    assert (study.machine.cpus, study.machine.memory_mib) == (2, 2048)
    with pytest.raises(SpecError, match="name one with --scenario"):
        one_scenario(path, None, ("6.16", "6.17"), {})
    with pytest.raises(SpecError, match="no one scenario nonsense"):
        one_scenario(path, "nonsense", ("6.16", "6.17"), {})


def test_a_matrix_of_machines_is_refused(tmp_path: Path) -> None:
    path = study_file(tmp_path, f'scenarios = ["{SCENARIO}"]\n[matrix]\ncpus = [1, 2]\n')
    with pytest.raises(SpecError, match="matrix"):
        one_scenario(path, None, ("6.16", "6.17"), {})


@pytest.fixture
def finished(tmp_path: Path) -> Callable[..., str]:
    """Carries out a bisection over numbers and returns what is printed."""

    def carry(values: list[float], *, as_json: bool = False, status: int = 0) -> str:
        study = spec.from_arguments([SCENARIO], ["old", "new"])
        known = {f"k{at}": value for at, value in enumerate(values)}
        bench = Bench(known)
        own = journal(tmp_path / "runs", list(known), replace(question(), study=study))
        search = of_releases(own, bench)
        search.tell = tell
        wanted = Asked(
            study=study, phase="total", runs=tmp_path / "runs", wanted_qemu="", again=False,
            fresh=False, as_json=as_json, top=3,
        )  # fmt: skip

        @click.command()
        def command() -> None:
            carried_out(wanted, search, "n kernels", lambda *_: ([], {"more": 1}))

        found = CliRunner().invoke(command, [])
        assert found.exit_code == status, found.output
        return found.stdout

    return carry


def test_it_leaves_a_run_for_show_and_explain(tmp_path: Path, finished: Callable[..., str]) -> None:
    printed = finished([301.7, 301.7, 669.8, 669.8])
    assert "The change is between k1 and k2: 301.7 -> 669.8" in " ".join(printed.split())
    assert "Everything of it:" in printed
    (folder,) = RUNS.folders(tmp_path / "runs")
    assert RUNS.find(tmp_path / "runs", "latest") == folder
    stored = RunJournal.open(folder).record()
    assert [arm.label for arm in stored.arms] == ["k0", "k1", "k2", "k3"]
    assert (folder / "show.txt").is_file()
    assert (folder / "explain-k1-k2.json").is_file()


def test_json_is_one_document_with_functions(finished: Callable[..., str]) -> None:
    found = json.loads(finished([301.7, 669.8], as_json=True))
    assert found["ending"] == "step"
    assert found["more"] == 1
    assert found["functions"]["functions"]


def test_ends_that_do_not_differ_exit_with_1(finished: Callable[..., str]) -> None:
    assert "nothing to find" in finished([301.7, 301.7], status=1)
