# SPDX-License-Identifier: GPL-2.0-or-later
"""What `kdelta bisect` refuses before it measures anything, and what it leaves in a folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from bisect_bench import Bench, journal, question
from git_history import Repository
from kdelta.bisect.bisection import ReleaseBisection
from kdelta.bisect.measuring import PointCounting
from kdelta.cli.bisect import Asked, bisect, carried_out, one_scenario, tell
from kdelta.errors import SpecError
from kdelta.journal.run import RUNS, RunJournal
from kdelta.study import spec

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
        (
            ["commits", "--bad", "6.16", "--tree", "."],
            "--good and --bad are both 6.16; name two kernels",
        ),
        (["commits", "--tree", ".", "--arch", "arm64"], "built for amd64 only"),
    ],
)
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


def test_a_scenario_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SpecError):
        one_scenario("mprotect:nonsense", None, ("6.16", "6.17"), {})


@pytest.fixture
def finished(tmp_path: Path) -> Callable[..., str]:
    """Carries out a bisection over numbers and returns what is printed."""

    def carry(values: list[float], *, as_json: bool = False, status: int = 0) -> str:
        study = spec.from_arguments([SCENARIO], ["old", "new"])
        known = {f"k{at}": value for at, value in enumerate(values)}
        bench = Bench(known)
        asked = replace(question(), study=study)
        own = journal(tmp_path / "runs", list(known), asked)
        instrument = PointCounting(own, bench.measure)
        search = ReleaseBisection(own, instrument, bench.resolve, tell)
        wanted = Asked(
            study=study, phase="total", runs=tmp_path / "runs", wanted_qemu="", again=False,
            fresh=False, as_json=as_json, top=3,
        )  # fmt: skip

        @click.command()
        def command() -> None:
            carried_out(wanted, search, "n kernels", lambda _: ([], {"more": 1}))

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
