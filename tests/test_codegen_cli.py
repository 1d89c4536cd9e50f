# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta codegen` and `kdelta tools compiler` as a user meets them, on images made here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

import kernel_image
import run_records
from kdelta.cli import main as cli_main
from kdelta.codegen import images
from kdelta.journal.run import RunJournal

BANNER = b"Linux version 6.1.%d-test (kd@kd) (gcc (Debian 12.2.0-1) 12.2.0, GNU ld 2.40) #1\n\0"
# xor %eax,%eax; L: add $1,%rax; cmp %rdi,%rax; jne L; ret
LOOP = bytes.fromhex("31c0 4883c001 4839f8 75f7 c3".replace(" ", ""))
# the same with a test in the loop
LONGER = bytes.fromhex("31c0 4883c001 a808 4839f8 75f5 c3".replace(" ", ""))


@pytest.fixture
def kernels(tmp_path: Path) -> str:
    """Two kernels, as --kernels takes them."""
    paths = []
    for number, code in enumerate((LOOP, LONGER), 1):
        path = tmp_path / f"vmlinux-{number}"
        parts = [("T", "scan", code), ("r", "linux_banner", BANNER % number)]
        path.write_bytes(kernel_image.kernel(parts))
        paths.append(f"file:{path}")
    return ",".join(paths)


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli_main.main(["codegen", *arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_two_images_are_compared(
    kernels: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    status = run("scan", "--kernels", kernels, "--side-by-side", "--listing", "--html", str(page))
    said = capsys.readouterr()
    assert status == 0, said.err
    assert f"{len(LOOP)}/5 A" in said.out
    assert f"{len(LONGER)}/6 B" in said.out
    assert "5 rows equal, 0 changed (!), 0 with another target (~), 0 only left" in said.out
    assert "test $0x8,%al" in said.out
    assert "6.1.1-test" in said.out
    assert "test $0x8,%al" in page.read_text()
    nowhere = tmp_path / "absent" / "page.html"
    assert run("scan", "--kernels", kernels, "--html", str(nowhere)) == 2
    assert f"{nowhere}: cannot be written" in capsys.readouterr().err


def test_json(kernels: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("scan", "--kernels", kernels, "--json") == 0
    content = json.loads(capsys.readouterr().out)
    assert content["function"] == "scan"
    assert [cell["code"]["instructions"] for cell in content["cells"]] == [5, 6]
    assert [cell["hot"] for cell in content["cells"]] == [None, None]


def test_a_kernel_without_the_function_is_told(
    kernels: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "vmlinux-3"
    other.write_bytes(kernel_image.kernel([("r", "linux_banner", BANNER % 3)]))
    assert run("scan", "--kernels", f"{kernels},file:{other}") == 0
    assert "6.1.3-test has no function scan" in " ".join(capsys.readouterr().out.split())
    assert run("absent", "--kernels", kernels) == 2
    assert "has no function absent" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("scan",), "either --source or --kernels"),
        (("scan", "--source", "x", "--kernels", "6.1"), "either --source or --kernels"),
        (("scan", "--kernels", "6.1", "--compilers", "gcc-12"), "belong to --source"),
        (("scan", "--kernels", "6.1", "--variants", "a"), "belong to --source"),
        (("scan", "--source", "deb:6.17.8"), "write OBJECT:FUNCTION"),
    ],
)
def test_wrong_usage(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    assert words in capsys.readouterr().err


def test_a_compiler_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli_main.main(["tools", "compiler", "fetch", "icc-12"])
    assert ended.value.code == 2
    assert "not a compiler that kdelta knows" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "the run has 2 scenarios"),
        (("--scenario", "nonsense"), "no one scenario nonsense"),
    ],
)
def test_a_run_of_several_scenarios_needs_one_named(
    kernels: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    said: str,
) -> None:
    RunJournal.create(tmp_path / "runs" / "two", run_records.new_run(run_id="two"))
    where = ("--kernels", kernels, "--run", "two", "--runs", str(tmp_path / "runs"))
    assert run("scan", *where, *options) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert said in error
    assert "name one with --scenario: mprotect:a, mincore:b" in error


def test_counts_of_a_run_are_those_of_the_scenario_that_was_named(
    kernels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    record = run_records.new_run(run_id="two")
    trials = tuple(replace(t, result=run_records.result_of(t.index)) for t in record.trials)
    RunJournal.create(tmp_path / "runs" / "two", replace(record, trials=trials))
    monkeypatch.setattr(RunJournal, "record", lambda _: replace(record, trials=trials))
    monkeypatch.setattr(images, "_executed", lambda _f, _r, trial, *_: seen.append(trial))
    monkeypatch.setattr("kdelta.cli.codegen.marked", lambda table, _: table)
    where = ("--kernels", kernels, "--run", "two", "--runs", str(tmp_path / "runs"))
    assert run("scan", *where, "--scenario", "b") == 0
    assert {trial.scenario for trial in seen} == {"b"}
    assert sorted(trial.arm for trial in seen) == [0, 1, 2]


def test_a_scenario_without_a_run_is_refused(
    kernels: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("scan", "--kernels", kernels, "--scenario", "b") == 2
    assert "--scenario belongs to --run" in capsys.readouterr().err
