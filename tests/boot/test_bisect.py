# SPDX-License-Identifier: GPL-2.0-or-later
"""Bisections over real kernels: killed, gone on with, and right; by kdelta and by git."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from boot.command import LAUNCH, Command, outputs, until
from git_history import Repository

pytestmark = pytest.mark.boot

SCENARIO = "mprotect:shared_dirty_full_toggle_16m"


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    from kdelta import data

    one = Command(tmp_path / "runs", data.directory("workloads"))
    yield one
    one.no_guests()


def steps(command: Command) -> int:
    """Points that the only bisection has measured so far."""
    for path in command.runs.glob("*/bisect.json"):
        return len(json.loads(path.read_bytes())["steps"])
    return 0


def test_a_killed_bisection_goes_on_and_finds_the_release(command: Command) -> None:
    arguments = ("bisect", "releases", SCENARIO, "--good", "6.16", "--bad", "6.18", "--json")
    first = command.start(*arguments)
    until(lambda: steps(command) >= 2)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    measured = command.results()
    process = command.start(*arguments)
    out, _ = outputs(process)
    assert process.returncode == 0
    found = json.loads(out)
    assert (found["good"]["label"], found["bad"]["label"]) == ("6.16.12", "6.17.8")
    assert found["ending"] == "step"
    assert found["boots"] <= 5
    assert found["ratio"] == pytest.approx(2.22, abs=0.1)
    top = {row["function"] for row in found["functions"]["functions"][:4]}
    assert {"prot_commit_flush_ptes", "change_protection", "change_pte_range"} <= top
    assert {name: command.results()[name] for name in measured} == measured, "measured again"

    again = command.run(*arguments[:-1])
    assert "going on with" in again
    assert "The change is between 6.16.12 and 6.17.8" in again
    assert len(command.results()) == found["boots"]
    (name,) = (path.name for path in command.runs.iterdir())
    assert "6.17.8" in command.run("show", name)


def test_git_bisects_by_the_script_of_the_page(command: Command, tmp_path: Path) -> None:
    from boot import lab

    image = bytearray(lab.kernel("6.17").image.read_bytes())
    middle = len(image) // 2
    image[middle : middle + 4096] = bytes(4096)  # in the compressed part
    broken = tmp_path / "bzImage"
    broken.write_bytes(image)
    kernels = ["6.17.8", "6.17.13", "6.18", "6.19", f"file:{broken}"]  # +0, +3 and +4 %
    repository = Repository(tmp_path / "linux")
    commits = repository.line([(f"c{at}", {"kernel": f"{k}\n"}) for at, k in enumerate(kernels)])
    page = Path(__file__).resolve().parents[2] / "docs" / "bisect.md"
    (script,) = re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)
    script = script.replace("tree:.@v6.16,tree:.", '6.17.8,"$(cat kernel)" --timeout 3')
    count = tmp_path / "count.sh"
    count.write_text(script.replace("_64m", "_16m").replace("--step-percent 5", "--step-percent 2"))
    tool = tmp_path / "kdelta"
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{LAUNCH}" "$@"\n')
    tool.chmod(0o755)
    git = partial(
        subprocess.run, cwd=repository.folder, capture_output=True, text=True, check=False,
        env={**command.environment, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )  # fmt: skip
    repository.git("reset", "-q", "--hard", commits[4])
    assert git(["sh", str(count)]).returncode == 128  # a damaged file ends a bisection
    repository.git("bisect", "start", commits[3], commits[0])
    done = git(["git", "bisect", "run", "sh", str(count)])
    assert f"{commits[2]} is the first bad commit" in done.stdout, done.stdout + done.stderr
