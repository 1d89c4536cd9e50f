# SPDX-License-Identifier: GPL-2.0-or-later
"""docs/experiments.md, as a reader repeats it: one thing changes, and what must happen happens."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import mode

import pytest
from click.testing import CliRunner

from kdelta.cli.main import cli
from kdelta.journal.run import RUNS, RunJournal

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/experiments.md"


def counted(*words: str) -> tuple[str, list[dict[str, int]]]:
    """What the run prints, and of each kernel what a window of each phase takes."""
    done = CliRunner().invoke(cli, ["run", "./experiment.c", "--runs", "runs", *words])
    assert done.exit_code == 0, done.output
    shown = CliRunner().invoke(cli, ["show", "latest", "--runs", "runs", "--json"]).output
    (ladder,) = json.loads(shown)["ladders"]
    rungs = [{one["phase"]: one["value"] for one in each["phases"]} for each in ladder["rungs"]]
    return " ".join(done.output.split()), rungs


@pytest.mark.boot
def test_the_page_of_experiments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = re.search(r"```c\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found
    (tmp_path / "experiment.c").write_text(found[1])
    monkeypatch.chdir(tmp_path)
    _, (first,) = counted("--kernels", "6.17")
    assert first["nothing"] == 0
    assert 0.49 < first["half"] / first["all"] < 0.52
    rounds = RunJournal.open(RUNS.find(Path("runs"), "latest")).record().trials
    calls = {mode(one.result.exact.phases[3].kernel) for one in rounds if one.result}
    assert len(calls) == 1, "another seed moves no system call"
    assert counted("--kernels", "6.17", "--again")[1] == [first]
    _, (audited,) = counted("--kernels", "6.17", "--cmdline", "audit=1")
    more, rest = divmod(audited["calls"] - first["calls"], 1000)
    assert more > 100
    assert rest == 0
    assert abs(audited["all"] - first["all"]) < 0.01 * first["all"]
    said, _ = counted("--kernels", "6.12,6.16")
    assert "UNDECIDED" in said
    assert "+UBSAN_BOUNDS" in said


@pytest.mark.boot
@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("docs/explain.md", "explained.py --write {}/explain.md"),
        ("docs/examples/mincore.mail.txt", "examples.py mincore --to {0} --runs {0}"),
    ],
)
def test_a_page_is_made_by_its_command(page: str, words: str, tmp_path: Path) -> None:
    """In its words and lines; of the examples the one of fewest counts: all take minutes."""
    made = shutil.copy(ROOT / page, tmp_path)
    argv = [sys.executable, *f"{ROOT}/bench/{words}".format(tmp_path).split()]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    texts = (Path(one).read_text() for one in (ROOT / page, made))
    first, second = (re.sub(r"\b[0-9a-f]{12}\b|[-+\d., ]+", " ", text) for text in texts)
    assert first == second
