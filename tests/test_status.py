# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta runs status`: what the folder of a run says to another terminal."""

from __future__ import annotations

import gzip
import json
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import counts_stream as stream
import run_records
from kdelta import arch
from kdelta.analysis.explanation import explain
from kdelta.cli import explain as explain_cli
from kdelta.cli.show import status as command
from kdelta.disassembly.code import ExecutedInsn, executed_code
from kdelta.errors import SpecError, StoreError
from kdelta.journal import artifacts, results, status
from kdelta.journal.artifacts import TrialDetails
from kdelta.journal.run import RunJournal
from kdelta.rendering.explain import ExecutedCode, code_document
from kdelta.run import timed
from kdelta.sample import TrialResult
from ladder_records import PAGES, ladder
from test_explained_work import stored


@pytest.fixture
def journal(tmp_path: Path) -> RunJournal:
    return RunJournal.create(tmp_path / "demo", run_records.new_run(arms=2, rounds=2))


def told(journal: RunJournal, *words: str) -> str:
    found = CliRunner().invoke(command, ["--runs", str(journal.folder.parent), *words])
    assert found.exit_code == 0, found.output
    return found.stdout


def test_who_does_what_while_it_is_executed(journal: RunJournal) -> None:
    run_records.execute(journal, 3)
    work = status.Assignments(journal.folder)
    for at, when in ((0, 1000.0), (1, 1010.0), (2, 1020.0)):
        os.utime(journal.folder / "trials" / f"{at:04d}" / "result.json", (when, when))
    work.tell(3, "tcp://a\x1b[31m")
    work.tell(4, "b")
    work.tell(4, "")
    found = status.status(journal.record(), journal.folder, executing=True, now=1020.0)
    assert (found.ended, found.total, found.left_s) == (3, 8, 50.0)
    assert [(trial.index, who) for trial, who, _ in found.busy] == [(3, "tcp://a?[31m")]
    with journal.executing():
        assert "3 of 8 trials have ended, 5 are left; done in about" in told(journal)
        assert json.loads(told(journal, "--json"))["busy"][0]["trial"] == 3
    assert "nobody works on it: kdelta resume\n  demo" in told(journal)
    assert "tcp" not in told(journal)


def test_a_damaged_file_costs_only_who(journal: RunJournal) -> None:
    (journal.folder / status.NAME).write_text("{")
    with journal.executing():
        assert "nobody can say yet" in told(journal)
    run_records.execute(journal)
    assert told(journal).strip().endswith("8 of 8 trials have ended, 0 are left.")


def test_a_run_on_a_pool_says_how_it_goes_on(journal: RunJournal) -> None:
    timed.note(journal.folder, "nodes")
    assert "kdelta resume\n  demo --on LAB.TOML, with the pool nodes" in told(journal)
    (journal.folder / "placed.json").write_text("[")
    found = CliRunner().invoke(command, ["--runs", str(journal.folder.parent)])
    assert isinstance(found.exception, StoreError)


# What ran of a function, as instructions, out of the counts that a trial kept


AT = stream.KERNEL
LOAD, JUMP, CALL = (bytes.fromhex(code) for code in ("488b07", "75fb", "e8fb0f0000"))


def test_instructions_are_told_from_the_function_s_begin() -> None:
    ran = [(AT, LOAD, 5), (AT + 3, JUMP, 5), (AT, LOAD, 2), (AT + 0x100, LOAD, 9), (8, LOAD, 1)]
    found = executed_code([*ran, (AT + 5, CALL, 1)], AT, AT + 0x40, arch.of("amd64"))
    assert [(one.offset, one.size, one.count) for one in found] == [(0, 3, 7), (3, 2, 5), (5, 5, 1)]
    assert [one.text for one in found] == ["mov (%rdi),%rax", "jne +0x0", f"call {AT + 0x1005:#x}"]
    named = executed_code(
        [(AT + 5, CALL, 1)], AT, AT + 0x40, arch.of("amd64"), {AT + 0x1005: "zap"}
    )
    assert named[0].text == "call zap"
    assert executed_code([], AT, AT + 1, arch.of("amd64")) == ()


def test_what_differs_in_places_alone_is_side_by_side() -> None:
    old, new = (
        tuple(ExecutedInsn(at, 1, 1, text) for at, text in enumerate(texts))
        for texts in (
            ("push %rbx", "call 0xffffffff81000100", "ret"),
            ("push %rbx", "mov %rax,%rbx", "call 0xffffffff81000200", "ret"),
        )
    )
    found = ExecutedCode(explain(ladder(), "6.16", "6.17"), "f", old, new)
    assert [*found.pairs()] == [
        (old[0], new[0]), (None, new[1]), (old[1], new[2]), (old[2], new[3]),
    ]  # fmt: skip


def test_json_has_the_same_rows() -> None:
    old = (ExecutedInsn(0, 1, 16384, "push %rbx"), ExecutedInsn(1, 1, 9, "ret"))
    found = ExecutedCode(explain(ladder(), "6.16", "6.17"), "f", old, old[:1])
    kind, told = code_document(found)
    assert kind == "code"
    assert told["old_code"][1] == {"offset": 1, "size": 1, "count": 9, "text": "ret"}
    assert [len(told[name]) for name in ("old_code", "new_code")] == [2, 1]


def keep_counts(place: Path, result: TrialResult) -> None:
    """Raw counts of the result's windows: one instruction of the kernel, and one of the user."""
    records = [
        stream.HEADER, stream.ARMED, *(stream.code(1, AT), stream.encodings(1, LOAD)),
        *(stream.code(2, 0x1000), stream.encodings(2, LOAD)),
    ]  # fmt: skip
    for number, phase in enumerate(result.exact.phases):
        for user, kernel in zip(phase.user, phase.kernel, strict=True):
            records.append(stream.bare([(1, kernel), (2, user)], user, kernel, number))
    raw = stream.write(place / "raw", *records)
    (place / "counts.bin.gz").write_bytes(gzip.compress(raw.read_bytes()))
    raw.unlink()


def listed(place: Path, function: str, *, damaged: bool = False, raw: bool = True) -> Result:
    """What `kdelta explain --code` says of a run in which walk.isra.0 alone ran."""
    record = stored(place)
    for trial in record.trials:
        assert trial.result
        folder = results.trial_folder(place / record.run_id, trial.index)
        folder.mkdir(parents=True, exist_ok=True)
        artifacts.keep(
            folder, artifacts.DETAILS, TrialDetails(functions={"walk.isra.0": ((AT, AT + 0x40),)})
        )
        if raw:
            keep_counts(folder, trial.result)
        if damaged:
            (folder / "counts.bin.gz").write_bytes(b"garbage")
    words = [record.run_id, "6.16", "6.17", "--code", function, "--runs", str(place)]
    return CliRunner().invoke(explain_cli.explain, words)


def test_the_command_lists_what_ran_by_its_counts(tmp_path: Path) -> None:
    done = listed(tmp_path, "walk")
    assert done.exit_code == 0, done.output + str(done.exception)
    found = explain(ladder(), "6.16", "6.17")
    trial = ladder().trials[0].result
    assert trial
    user = sum(phase.user[0] for phase in trial.exact.phases)
    old, new = ((value or 0) - user for value in (found.old_value, found.new_value))
    row = re.search(r"([\d.]+) +\+0x0 +([\d.]+) +\+0x0 +mov \(%rdi\),%rax", done.output)
    assert row, done.output
    assert float(row[1]) == pytest.approx(old / PAGES, abs=0.5)  # three digits are printed
    assert float(row[2]) == pytest.approx(new / PAGES, abs=0.5)  # three digits are printed


def test_a_function_of_which_nothing_ran_is_refused(tmp_path: Path) -> None:
    done = listed(tmp_path, "nobody")
    assert isinstance(done.exception, SpecError)
    assert 'nothing of "nobody" ran' in done.exception.cause


def test_counts_that_are_gone_or_damaged_are_told(tmp_path: Path) -> None:
    gone = listed(tmp_path / "gone", "walk", raw=False)
    assert isinstance(gone.exception, SpecError)
    assert "kept no raw counts" in gone.exception.cause
    assert isinstance(listed(tmp_path / "damaged", "walk", damaged=True).exception, StoreError)
