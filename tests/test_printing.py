# SPDX-License-Identifier: GPL-2.0-or-later
"""What subcommands print: tables that fit and lose nothing, text that cannot act on a terminal."""

from __future__ import annotations

import json
import os
import sys
from math import inf

import pytest
from msgspec.structs import replace

from kdelta.analysis.findings import report
from kdelta.cli.printing import print_json, print_lines, print_table
from kdelta.printable import quoted
from kdelta.rendering import show
from kdelta.rendering.columns import Span, paragraph, plain
from ladder_records import result, run, trial_of

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
    assert all(len(line) <= 100 and line == line.rstrip() for line in lines)


def test_a_column_that_may_not_wrap_is_never_cut(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("run", "trials"), [("r" * 150, "of a run that was aborted")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f"{'r' * 150}  of a run that was"
    assert " ".join(lines).split()[3:] == ["of", "a", "run", "that", "was", "aborted"]


def test_a_table_without_heads_has_no_line_for_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert table(capsys, ("", "", ""))[0].startswith("  change_pte_range")


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


def test_a_page_is_as_wide_as_the_terminal_and_no_wider_than_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    words = "a path length is never a time " * 20
    for at_a_terminal, columns, wanted in (
        (True, 80, 80),
        (True, 200, 100),
        (True, 10, 40),
        (False, 80, 100),
    ):
        size = os.terminal_size((columns, 50))
        monkeypatch.setattr("shutil.get_terminal_size", lambda known=size: known)
        monkeypatch.setattr(sys.stdout, "isatty", lambda known=at_a_terminal: known)
        print_lines([*paragraph(words)])
        assert wanted - 8 < max(map(len, capsys.readouterr().out.splitlines())) <= wanted


def test_what_holds_of_all_scenarios_of_a_run_is_said_once() -> None:
    record = run({label: [result(trial_of(label))] for label in ("6.16.12", "6.17.13")})
    more = tuple(replace(t, index=t.index + 9, scenario="anon_full_toggle") for t in record.trials)
    both = replace(record, trials=(*record.trials, *more))
    assert plain(show.show(report(both))).count("warning: one trial per kernel") == 1
