# SPDX-License-Identifier: GPL-2.0-or-later
"""What subcommands print: tables that fit and lose nothing, text that cannot act on a terminal."""

from __future__ import annotations

import json
import os
import re
import sys
from math import inf
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

import ladder_records
from kdelta import workload
from kdelta.analysis.explanation import explain
from kdelta.analysis.findings import report
from kdelta.cli.main import cli
from kdelta.cli.printing import print_json, print_lines, print_table, say
from kdelta.cli.run import study_file
from kdelta.errors import SpecError
from kdelta.journal.run import RUNS, RunJournal
from kdelta.printable import known, meant, quoted
from kdelta.rendering import show
from kdelta.sample import FunctionCount, TrialResult
from kdelta.source import tree_reference
from kdelta.table.columns import Span, paragraph, plain
from ladder_records import part_of, result, run, trial_of

ROWS = [("change_pte_range", "7", "of 4 KiB " * 20), (), ("[unknown]\x1b[2J", "1234", "")]


def table(capsys: pytest.CaptureFixture[str], heads: tuple[str, str, str]) -> list[str]:
    print_table(heads, ROWS, right=("calls",), indent=2)
    return capsys.readouterr().out.splitlines()


def test_a_table_fits_and_loses_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    lines = table(capsys, ("function", "calls", "what"))
    assert lines[0] == "  function          calls  what"
    assert lines[1].startswith("  change_pte_range      7  of 4 KiB of")
    assert sum(line.count("KiB") for line in lines) == 20
    assert lines[-1] == "  [unknown]?[2J      1234"
    assert all(len(line) <= 80 and line == line.rstrip() for line in lines)


def test_a_column_that_may_not_wrap_is_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("run", "trials"), [("r" * 150, "of a run that was aborted")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"{'r' * 150}  of a run that was"
    assert " ".join(lines).split()[3:] == ["of", "a", "run", "that", "was", "aborted"]


def test_a_sentence_fits_and_a_path_in_it_stays_whole(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"\nEverything of this run: {'/run' * 30}", "[1/9] " + "word " * 40, err=True)
    empty, first, path, *rest = capsys.readouterr().err.splitlines()
    assert (empty, first, path) == ("", "Everything of this run:", f"  {'/run' * 30}")
    assert max(map(len, rest)) <= 80


def test_labels_in_commands_to_copy_are_quoted() -> None:
    record = ladder_records.ladder(rounds=1)
    arms = tuple(replace(arm, label=f"$(id) {arm.label}") for arm in record.arms)
    text = " ".join(plain(show.show(report(replace(record, arms=arms)))).split())
    assert re.search(r"Its functions: `kdelta explain \S+ '\$\(id\) \S+' '\$\(id\) \S+'", text)


def test_json_has_no_infinities(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"low": -inf, "names": ("a", "é")})
    assert json.loads(capsys.readouterr().out) == {"low": None, "names": ["a", "é"]}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("nothing", '"nothing"'),
        ('a "b"', r'"a \"b\""'),
        ("\x1b[2J\u202e\x7f\udcff\n", r'"\x1b[2J\u202e\x7f\udcff\n"'),
        ("x" * 81, '"' + "x" * 77 + '..."'),
    ],
)
def test_quoted_text_is_safe_and_bounded(text: str, shown: str) -> None:
    assert quoted(text) == shown


def test_a_page_longer_than_the_terminal_goes_through_the_pager(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paged: list[str] = []
    monkeypatch.setattr("click.echo_via_pager", lambda text, color: paged.append(f"{color}{text}"))
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((80, 10)))
    monkeypatch.setenv("NO_COLOR", "1")
    for at_a_terminal, lines, wanted in ((True, 11, 1), (True, 10, 0), (False, 11, 0)):
        monkeypatch.setattr(sys.stdout, "isatty", lambda known=at_a_terminal: known)
        paged.clear()
        print_lines([(Span("x"),)] * lines, paged=True)
        assert len(paged) == wanted
        assert capsys.readouterr().out.count("x") == (0 if wanted else lines)


@pytest.mark.parametrize(
    ("told", "terminals", "wanted"),
    [
        ("", {"stdout": 80}, 80), ("", {"stdout": 200}, 100), ("", {"stdout": 10}, 40),
        ("", {"stdout": 0, "stderr": 72}, 72), ("", {}, 80),
        ("", {"stderr": 90}, 90),  # a pager shows it on that
        ("100", {}, 100), ("60", {"stdout": 80}, 60), ("wide", {"stdout": 70}, 70), ("0", {}, 80),
    ],
)  # fmt: skip
def test_a_page_is_as_wide_as_is_said_or_as_the_terminal(
    told: str,
    terminals: dict[str, int],
    wanted: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    numbers = {"stdout": 91, "stderr": 92}
    for name, number in numbers.items():
        monkeypatch.setattr(getattr(sys, name), "fileno", lambda known=number: known)
    sizes = {numbers[name]: columns for name, columns in terminals.items()}

    def size(stream: int) -> os.terminal_size:
        if stream not in sizes:
            raise OSError(25, "Inappropriate ioctl for device")
        return os.terminal_size((sizes[stream], 50))

    monkeypatch.setattr("os.get_terminal_size", size)
    monkeypatch.setenv("COLUMNS", told)
    monkeypatch.setenv("NO_COLOR", "1")
    print_lines([*paragraph("a path length is never a time " * 20)])
    assert wanted - 8 < max(map(len, capsys.readouterr().out.splitlines())) <= wanted


def test_commits_are_called_by_their_subjects() -> None:
    record = part_of("6.16.12", "6.17.13")
    subjects = {"6.17.13": "mm: mprotect:\x1b[2J " + "batches of many words " * 20}
    page = plain(show.show(report(replace(record, subjects=subjects))))
    (line,) = [line for line in page.splitlines() if line.startswith("6.17.13: ")]
    assert line.startswith("6.17.13: mm: mprotect:?[2J batches of many")
    assert line.endswith(" ...")
    assert len(line) <= 80
    found = report(replace(record, subjects={"6.17.13": "mm: batches"}))  # for programs, too
    _, fields = show.document(found)
    assert isinstance(fields, dict)
    assert fields["subjects"] == {"6.17.13": "mm: batches"}
    head, rows = show.table(found)
    told = {(row[head.index("arm")], row[head.index("subject")]) for row in rows}
    assert told == {("6.16.12", ""), ("6.17.13", "mm: batches")}


def copying(one: TrialResult, bytes_: int) -> TrialResult:
    row = FunctionCount(phase="touch", function="rep movsb in f", insns=0, calls=1, bytes=bytes_)
    exact = one.exact
    return replace(one, data=replace(exact, functions=(*exact.functions, row)))


@pytest.mark.parametrize(("more", "told"), [(1 << 26, True), (1 << 10, False)])
def test_a_run_says_where_kernels_copy_another_number_of_bytes(more: int, *, told: bool) -> None:
    old, new = (result(trial_of(label)) for label in ("6.16.12", "6.17.13"))
    found = run({"6.16.12": [copying(old, 1 << 20)], "6.17.13": [copying(new, (1 << 20) + more)]})
    page = " ".join(plain(show.show(report(found))).split())
    where = "differ between kernels in mprotect:shared_dirty_full_toggle_64m (up to 4,096 more)"
    assert (where in page) is told


def test_what_holds_of_all_scenarios_of_a_run_is_said_once() -> None:
    record = part_of("6.16.12", "6.17.13")
    more = tuple(replace(t, index=t.index + 9, scenario="anon_full_toggle") for t in record.trials)
    page = plain(show.show(report(replace(record, trials=(*record.trials, *more)))))
    assert page.count("warning: one trial per kernel") == 1
    assert page.count("path length, never a time") == 1
    assert page.count("retired by the guest, user + kernel, per page") == 2


# A mistyped name is answered with the one that was meant, wherever one can be given


def test_what_is_near_comes_first_and_what_is_not_is_not_guessed() -> None:
    assert meant("mprotct", ["mincore", "mprotect"]) == "did you mean mprotect? "
    assert meant("xyzzy", ["mincore", "mprotect"]) == ""
    assert known("mprotct", iter(("mincore", "mprotect"))) == (
        "did you mean mprotect? known: mincore, mprotect"
    )
    assert known("x", []) == "known: none"


def test_names_in_commands() -> None:
    for text, name in (
        ("mprotct:anon_toggle_4m", "mprotect"),
        ("mprotect:anon_togle_4m", "anon_toggle_4m"),
    ):
        with pytest.raises(SpecError) as caught:
            workload.parse_reference(text)
        assert caught.value.action.startswith(f"did you mean {name}? known: ")
    with pytest.raises(SpecError) as caught:
        study_file("mprotect-shared-dirt")
    assert caught.value.action.startswith("did you mean mprotect-shared-dirty? give WORKLOAD:")
    with pytest.raises(SpecError) as caught:
        tree_reference.of_word("mincore-no-batchng")
    assert caught.value.action.startswith("did you mean mincore-no-batch? name a patch")
    done = CliRunner().invoke(cli, ["shwo", "latest"])
    assert done.exit_code == 2
    assert "No such command 'shwo'; did you mean show?\n" in done.output
    done = CliRunner().invoke(cli, ["source", "6.17"])
    assert "No such command 'source'; did you mean kernels source?\n" in done.output


def test_names_in_a_run(tmp_path: Path) -> None:
    record = ladder_records.ladder(rounds=1)
    RunJournal.create(tmp_path / "mprotect-ladder", record)
    with pytest.raises(SpecError) as caught:
        RUNS.find(tmp_path, "mprotct-ladder")
    assert caught.value.action.startswith("did you mean mprotect-ladder? there are ")
    for words, name in (
        (("6.16.21", "6.17.13"), "6.16.12"),
        (("6.16", "6.17", "shared_dirty_full_togle_64m"), ladder_records.SCENARIO),
    ):
        with pytest.raises(SpecError) as caught:
            explain(record, *words[:2], scenario=words[2] if len(words) > 2 else None)
        assert caught.value.action.startswith(f"did you mean {name}? ")
