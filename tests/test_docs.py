# SPDX-License-Identifier: GPL-2.0-or-later
"""The documents tell the truth: links lead somewhere, and the tutorial runs as printed."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.shell_completion import ShellComplete

import kernel_tree
import run_records
from kdelta import process
from kdelta.cli.main import cli
from kdelta.disassembly import identity
from kdelta.journal.run import RunJournal
from kdelta.kernels import debian
from rooms import RUNG_OF

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
DOCUMENTS = [*PAGES, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
KDELTA = f'exec "{sys.executable}" -c "from kdelta.cli.main import main; main()" "$@"'
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
def test_links_lead_to_files_and_their_headings(document: Path) -> None:
    links = re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", document.read_text())
    assert not [link for link, _ in links if not (document.parent / link).exists()]
    parts = [(link, part) for link, part in links if part]
    lost = [one for one in parts if one[1] not in anchors(document.parent / one[0], document)]
    assert not lost


def anchors(page: Path, here: Path) -> set[str]:
    """Where a link may lead in a page, as GitHub names its headings."""
    text = (page if page.is_file() else here).read_text()
    heads = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_a_page_begins_with_who_needs_it_and_the_readme_is_short() -> None:
    assert not [page.name for page in PAGES if page.read_text().splitlines()[2][:4] != "For "]
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 120
    assert max(map(len, lines)) <= 100


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
    kernel_tree.script(programs / "kdelta", KDELTA)
    (tmp_path / "studies").symlink_to(ROOT / "studies")
    environment = {
        **os.environ, "KDELTA_RESULTS_MIB": "0", "PATH": f"{programs}:{os.environ['PATH']}",
    }  # fmt: skip
    for step in steps():
        done = subprocess.run(
            ["bash", "-c", step.command], cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_S,
            check=False,
        )  # fmt: skip
        expected = INTERRUPTED if step.command.startswith("timeout ") else 0
        assert done.returncode == expected, f"{step.command}\n{done.stdout}"
        assert not absent(step, done.stdout), f"{step.command}\n{done.stdout}"


def test_one_number_meets_each_room_once() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    way = text.partition("## How one number travels\n")[2].partition("\n## ")[0]
    named = re.findall(r"`([a-z]+)`", way)
    assert sorted([word for word in named if word in RUNG_OF]) == sorted(RUNG_OF)


# Code of arm64 that moved is the same, and what is another thing is not


NOP, RET = 0xD503201F, 0xD65F03C0
OLD, NEW = 0x10000, 0x14000
# What lies where: the same in both kernels, 0x4000 higher in the new one.
PLACES = {0x20000: "callee", 0x30010: "data", 0x30020: "other"}


def bl(target: int, at: int) -> int:
    return 0x94000000 | ((target - at) >> 2 & 0x3FFFFFF)


def adrp(register: int, target: int, at: int) -> int:
    pages = (target >> 12) - (at >> 12)
    return 0x90000000 | (pages & 3) << 29 | (pages >> 2 & 0x7FFFF) << 5 | register


def add(register: int, offset: int) -> int:
    return 0x91000000 | (offset & 0xFFF) << 10 | register << 5 | register


def load(register: int, base: int, offset: int) -> int:
    return 0xF9400000 | (offset >> 3) << 10 | base << 5 | register


def alike(one: list[int], other: list[int], shift: int = 0x4000) -> bool:
    def same(x: int, y: int) -> bool:
        return x in PLACES and PLACES[x] == PLACES.get(y - shift)

    mine, theirs = (struct.pack(f"<{len(code)}I", *code) for code in (one, other))
    return identity.same_words(mine, theirs, OLD, NEW, same)


def test_a_call_of_the_same_function_is_the_same() -> None:
    one, other = [NOP, bl(0x20000, OLD + 4), RET], [NOP, bl(0x24000, NEW + 4), RET]
    assert alike(one, other)
    assert not alike(one, [NOP, bl(0x24004, NEW + 4), RET])
    assert not alike(one, [NOP, bl(0x24000, NEW + 4) & ~0x80000000, RET])


@pytest.mark.parametrize("use", [lambda low: [add(0, low)], lambda low: [load(1, 0, low)],
                                 lambda low: [NOP, load(0, 0, low)]])  # fmt: skip
def test_an_address_of_two_instructions_is_taken_together(use) -> None:  # type: ignore[no-untyped-def]
    one = [adrp(0, 0x30010, OLD), *use(0x10)]
    assert alike(one, [adrp(0, 0x34010, NEW), *use(0x10)])
    assert not alike(one, [adrp(0, 0x34020, NEW), *use(0x20)])
    assert not alike(one, [adrp(0, 0x35010, NEW), *use(0x10)])


def test_a_page_that_nothing_completes_is_not_known_to_be_the_same() -> None:
    assert not alike([adrp(0, 0x30010, OLD), RET], [adrp(0, 0x34010, NEW), RET])
    # Read for the page of another register, which says nothing of this one.
    assert not alike(
        [adrp(0, 0x30010, OLD), load(1, 2, 0x10)], [adrp(0, 0x34010, NEW), load(1, 2, 0x10)]
    )


def test_any_other_difference_is_one() -> None:
    assert alike([NOP, RET], [NOP, RET])
    assert not alike([NOP, RET], [RET, NOP])
    assert not alike([load(1, 2, 8)], [load(1, 2, 16)])
    assert not alike([NOP], [NOP, NOP])


# Completion, as the reference says


ZSH = 'eval "$(_KDELTA_COMPLETE=zsh_source kdelta)"'


@pytest.mark.parametrize(
    ("words", "typed", "expected"),
    [
        (["why"], "unmap:munmap_t", ["unmap:munmap_thp"]),
        (["why"], "munmap_thp", ["unmap:munmap_thp"]),
        (["bisect", "releases"], "unmap:munmap_t", ["unmap:munmap_thp"]),
        (["ask", "--scenario"], "unmap:munmap_t", ["unmap:munmap_thp"]),
        (["workload", "show"], "unmap:munmap_t", ["unmap:munmap_thp"]),
        (["check", "--only"], "unmap:munmap_t", ["unmap:munmap_thp"]),
        (["check", "--base"], "6.17.", ["6.17.8"]),
        (["commit", "--base"], "6.17.", ["6.17.8"]),
        (["bisect", "releases", "--good"], "6.17.", ["6.17.8"]),
        (["kernels", "fetch"], "6.17.", ["6.17.8"]),
        (["explain", "mprotect-1"], "", ["6.0", "6.1"]),
        (["gate", "mprotect-1", "--against"], "6.1", ["6.1"]),
        (["explain", "mprotect-1", "--scenario"], "mp", ["mprotect:a"]),
        (["why", "munmap"], "6.1", ["6.17", "6.17.8"]),
        (["run", "munmap", "--kernels"], "6.16,6.17.", ["6.16,6.17.8"]),
        (["explain"], "mpro", ["mprotect-1"]),
        (["explain", "--runs", "absent"], "", []),
    ],
)
def test_scenarios_kernels_and_runs_are_completed(
    words: list[str], typed: str, expected: list[str], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    offers = [SimpleNamespace(series="6.17", upstream="6.17.8")]
    monkeypatch.setattr(debian, "offers", lambda *_: offers)
    monkeypatch.setenv("KDELTA_RUNS", str(tmp_path))
    record = run_records.new_run(arms=2, run_id="mprotect-1")
    RunJournal.create(tmp_path / record.run_id, record)
    found = ShellComplete(cli, {}, "kdelta", "_KDELTA_COMPLETE").get_completions(words, typed)
    assert [one.value for one in found] == expected


@pytest.mark.parametrize(
    ("shell", "script"),
    [
        ("bash", 'eval "$(_KDELTA_COMPLETE=bash_source kdelta)"; complete -p kdelta'),
        ("zsh", f"autoload -U compinit; compinit -D; {ZSH}; print -r -- $_comps[kdelta]"),
        ("fish", '_KDELTA_COMPLETE=fish_source kdelta | source; complete -C "kdelta surv"'),
    ],
)
def test_completion_works_as_the_reference_says(shell: str, script: str, tmp_path: Path) -> None:
    if process.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    assert f"_KDELTA_COMPLETE={shell}_source kdelta" in (ROOT / "docs/reference.md").read_text()
    kernel_tree.script(tmp_path / "kdelta", KDELTA)
    done = subprocess.run(
        [shell, "-c", script],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {"bash": "_kdelta_completion", "zsh": "_kdelta_completion", "fish": "survey"}[
        shell
    ] in done.stdout
