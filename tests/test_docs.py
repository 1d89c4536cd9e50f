# SPDX-License-Identifier: GPL-2.0-or-later
"""The documents tell the truth: links lead somewhere, and the tutorial runs as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rooms import RUNG_OF

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted((ROOT / "docs").glob("*.md"))
TUTORIAL = ROOT / "docs" / "tutorial.md"
INTERRUPTED = 130
TIMEOUT_S = 1800.0
DEMO = ("run studies/mprotect-shared-dirty.toml", "explain latest 6.16 6.17")


@dataclass
class Step:
    command: str
    printed: list[str] = field(default_factory=list)


def steps() -> list[Step]:
    """Commands of the tutorial's console blocks with the lines shown below each."""
    found: list[Step] = []
    for block in re.findall(r"^```console\n(.*?)^```$", TUTORIAL.read_text(), re.DOTALL | re.M):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(Step(line[2:]))
            elif line == ">" or line.startswith("> "):
                found[-1].command += "\n" + line[2:]
            else:
                found[-1].printed.append(line)
    return found


def masked(line: str) -> str:
    """A line without what differs from machine to machine: its numbers and its spacing."""
    return re.sub(r"\d+", "N", " ".join(line.split()))


def absent(step: Step, printed: str) -> list[str]:
    """Lines that the tutorial shows below a command and that it did not print, in that order."""
    lines = iter([masked(line) for line in printed.splitlines()])
    shown = [line for line in step.printed if line.strip() and line != "..."]
    return [line for line in shown if masked(line) not in lines]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(document: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text())
    gone = [link for link in links if not (document.parent / link).exists()]
    assert not gone


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_no_table_is_cut(document: Path) -> None:
    """An empty line inside a table makes its second part text."""
    text = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.DOTALL | re.M)
    tables = re.findall(r"(?:^\|.*\n)+", text, re.M)
    cut = [table.splitlines()[0] for table in tables if not re.match(r".*\n\|[-:| ]+\|\n", table)]
    assert not cut


def test_the_demo_is_how_the_tutorial_begins() -> None:
    recipe = re.search(r"^demo:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)
    assert recipe
    for words, step in zip(DEMO, steps(), strict=False):
        assert f"$(KDELTA) {words}" in recipe[1]
        assert step.command == f"kdelta {words}"


def test_a_line_that_is_not_printed_is_noticed() -> None:
    step = Step("kdelta show", ["a 12", "...", "b  3.4"])
    assert absent(step, "x\na 99\ny\nb 0.1\n") == []
    assert absent(step, "b 0.1\na 99\n") == ["b  3.4"]
    assert absent(step, "a 99\n") == ["b  3.4"]


@pytest.mark.boot
def test_the_tutorial_runs_as_printed(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    kdelta = programs / "kdelta"
    start = "from kdelta.cli.main import main; main()"
    kdelta.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{start}" "$@"\n')
    kdelta.chmod(0o755)
    (tmp_path / "studies").symlink_to(ROOT / "studies")
    environment = {
        **os.environ,
        "KDELTA_RESULTS_MIB": "0",
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    for step in steps():
        done = subprocess.run(
            ["bash", "-c", step.command],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        expected = INTERRUPTED if step.command.startswith("timeout ") else 0
        assert done.returncode == expected, f"{step.command}\n{done.stdout}"
        assert not absent(step, done.stdout), f"{step.command}\n{done.stdout}"


def test_one_number_meets_each_room_once() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    way = text.partition("## How one number travels\n")[2].partition("\n## ")[0]
    named = re.findall(r"`([a-z]+)`", way)
    rooms_named = [word for word in named if word in RUNG_OF]
    assert sorted(rooms_named) == sorted(RUNG_OF)
