# SPDX-License-Identifier: GPL-2.0-or-later
"""Progress on stderr: a line per trial in a log, a bar on a terminal."""

from __future__ import annotations

import io
import sys
import time

import pytest
from msgspec.structs import replace

import run_records
from kdelta.archive import apt
from kdelta.cli import printing
from kdelta.run.runner import Event, TrialStep
from kdelta.sample import Copied, Outcome, TrialResult

RECORD = run_records.new_run(arms=2, rounds=1)
GOOD = replace(run_records.result_of(0), wall_s=1.25)
BAD = TrialResult(outcome=Outcome.BOOT_ERROR, reasons=("Kernel panic [bold]now[/bold]",))


def event(step: TrialStep, index: int, done: int, result: TrialResult | None = None) -> Event:
    return Event(
        step=step, trial=RECORD.trials[index], done=done, total=4,
        reason="QEMU was ended" if step is TrialStep.RETRIED else "", result=result,
    )  # fmt: skip


EVENTS = (
    event(TrialStep.STARTED, 0, 0), event(TrialStep.RETRIED, 0, 0),
    event(TrialStep.FINISHED, 0, 1, GOOD), event(TrialStep.STARTED, 1, 1),
    event(TrialStep.FINISHED, 1, 2, BAD),
)  # fmt: skip


def names(index: int) -> str:
    trial = RECORD.trials[index]
    return f"{RECORD.arms[trial.arm].label} {trial.workload}:{trial.scenario}"


def test_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with printing.showing(RECORD) as report:
        for one in EVENTS:
            report(one)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        f"demo: 4 trials, 2 kernels, seed {RECORD.seed}",
        f"[0/4] {names(0)}: again, because QEMU was ended",
        f"[1/4] {names(0)}: ok, 1.2 s",
        f"[2/4] {names(1)}: boot-error: Kernel panic [bold]now[/bold]",
    ]


def test_the_time_that_is_left_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with printing.showing(RECORD) as report:  # resumed: one trial had ended before
        report(event(TrialStep.STARTED, 1, 1))
        now[0] = 130.0
        report(event(TrialStep.FINISHED, 1, 2, GOOD))
        report(event(TrialStep.FINISHED, 2, 3, GOOD))
        report(event(TrialStep.FINISHED, 3, 4, GOOD))
    told = [line.partition("; ")[2] for line in capsys.readouterr().err.splitlines()[1:]]
    assert told == ["about 4 min left", "about 1 min left", ""]


def test_what_was_not_booted_took_no_time(capsys: pytest.CaptureFixture[str]) -> None:
    copied = replace(
        GOOD,
        wall_s=0.0,
        copied=Copied(sentence="same image as 6.17, to the byte", trial=0),
    )
    with printing.showing(RECORD) as report:
        report(event(TrialStep.FINISHED, 0, 1, copied))
    line = f"[1/4] {names(0)}: not booted: same image as 6.17, to the byte"
    assert capsys.readouterr().err.splitlines()[1] == line


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_leaves_with_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    with printing.reporting() as progress:
        progress("one.tar.xz", 3.0)
        progress("one.tar.xz", apt.ENDED)
        progress("two.tar.xz", 4.0)
        terminal.truncate(terminal.seek(0))
        time.sleep(0.3)
    assert "two.tar.xz" in terminal.getvalue()
    assert "one.tar.xz" not in terminal.getvalue()


def test_a_bar_on_a_terminal_still_prints_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with printing.showing(RECORD) as report:
        for one in EVENTS:
            report(one)
    shown = terminal.getvalue()
    assert "Kernel panic [bold]now[/bold]" in shown
    assert "again, because QEMU was ended" in shown
    assert "2/4" in shown
    assert "ok, 1.2 s" not in shown


def test_a_build_that_takes_minutes_tells_how_many_are_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter((0, 0, 0, 300, 300, 600, 600, 890, 890, 3, 3, 4, 8, 8, 9, 9))
    monkeypatch.setattr("kdelta.cli.printing.time.monotonic", lambda: next(clock))
    with printing.reporting() as report:
        for percent in (0.0, 25.0, 50.0, 99.0):
            report("building 6.17.8", percent)
        for percent in (0.0, 1.0, 3.0, 50.0):  # a line where none was for five seconds
            report("fetching", percent)
    assert capsys.readouterr().err.splitlines() == [
        "building 6.17.8: 0 %", "building 6.17.8: 25 %, about 15 min left",
        "building 6.17.8: 50 %, about 10 min left", "building 6.17.8: 99 %", "fetching: 0 %",
        "fetching: 3 %, about 3 min left", "fetching: 50 %",
    ]  # fmt: skip


def test_work_that_says_nothing_is_told_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(printing, "_SILENT_S", 0.01)
    told = ""
    with printing.reporting():
        while not told:
            told = capsys.readouterr().err
    assert told.startswith("at work for 0 s\n")
