# SPDX-License-Identifier: GPL-2.0-or-later
import csv
import dataclasses
import io
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click import Command
from click.testing import CliRunner, Result
from msgspec.structs import replace

from kdelta.analysis.claims import claim
from kdelta.analysis.explanation import explain
from kdelta.analysis.findings import report
from kdelta.cli import explain as explain_cli
from kdelta.cli import printing
from kdelta.cli import show as cli
from kdelta.errors import StoreError
from kdelta.journal.run import RunRecord
from kdelta.metric import number
from kdelta.printable import printable
from kdelta.rendering import explain as explain_page
from kdelta.rendering import mail
from kdelta.rendering import show as show_page
from kdelta.rendering.bundle import write_run_files
from kdelta.rendering.formats import written
from kdelta.rendering.sentences import difference_sentences
from kdelta.sample import FunctionCount, Outcome, PhaseCounts, StateField, TrialResult
from kdelta.table.columns import Line, coloured, plain
from kdelta.table.counts import times
from ladder_records import (
    ENVIRONMENT,
    STATE,
    TOTALS,
    Trial,
    failed,
    functions,
    ladder,
    recounted,
    result,
    run,
    trial_of,
    with_kernels,
)
from run_records import kept

RUN_ID = "20261120-101500-5eed"
Check = Callable[[str, str], None]


def part_of(labels: Iterable[str]) -> dict[str, list[Any]]:
    return {label: [result(trial_of(label))] * 4 for label in labels}


def failed_arm() -> RunRecord:
    arms = part_of(["6.16.12", "6.17.13", "6.18.15"])
    arms["6.17.13"][1] = failed(Outcome.GUEST_ERROR, "no end line after 120 s")
    arms["6.18.15"] = [failed(Outcome.BOOT_ERROR, "panic: VFS: unable to mount root")] * 2 + [
        failed(Outcome.SKIP, "shared memory is not supported here"),
        failed(Outcome.INFRA_ERROR, "QEMU ended with status 1"),
    ]
    return run(arms)


def invalid_state() -> RunRecord:
    arms = part_of(["6.16.12", "6.17.13", "6.18.15"])
    huge = StateField(when="before", name="anon_huge_kb", value="16384", want="0")
    arms["6.17.13"] = [
        replace(
            each, outcome=Outcome.INVALID,
            reasons=("page state: anon_huge_kb before is 16384, wanted 0",), state=(STATE[0], huge),
        )
        for each in arms["6.17.13"]
    ]  # fmt: skip
    return run(arms)


def two_qemus() -> RunRecord:
    arms = part_of(["6.16.12", "6.17.13", "6.18.15"])
    old = replace(ENVIRONMENT, qemu_version="7.2.22")
    arms["6.17.13"] = [replace(each, environment=old) for each in arms["6.17.13"]]
    return run(arms)


def unfinished() -> RunRecord:
    return run({label: [None] for label in TOTALS})


def inexact() -> RunRecord:
    arms = part_of(["6.16.12", "6.17.13"])
    base = trial_of("6.17.13")
    arms["6.17.13"] = [
        result(
            dataclasses.replace(
                base, per_page=base.per_page + more, windows=(9, 2, 3, 1, 7, 12, 4, 0)
            )
        )
        for more in (0.0, 0.05, 0.01, 0.02)
    ]
    return run(arms)


def layouts() -> RunRecord:
    """brk() as it is: the same in most layouts, and twice as long at the end of a node."""
    return run(
        {
            label: [over_layouts(usual, dear)]
            for label, usual, dear in (("6.18.15", 9166, 11), ("7.1.13", 9528, 35))
        }
    )


def over_layouts(usual: int, dear: int) -> TrialResult:
    """One trial with a window in each of 240 layouts, so many of them dear."""
    counts = [8 * usual if at < dear else 4 * usual for at in range(240)]
    phase = PhaseCounts(
        phase="pair", operations=4, operation="pair", user=(100,) * 240,
        kernel=tuple(count - 100 for count in counts), layouts=240,
    )  # fmt: skip
    named = functions("pair", sum(counts), {})
    return recounted(result(Trial(per_page=1)), phases=(phase,), functions=tuple(named))


def test_a_mail_says_of_a_mean_over_layouts_that_it_is_one() -> None:
    text = " ".join(mail.written(claim(layouts()), mail.Letter(workloads={})).split())
    assert "exactly the count shown" not in text
    assert "A count is the mean over layouts of the kernel's trees and lists: 6.18.15 " in text


def wide() -> RunRecord:
    """Names as long as they get, and more phases than fit beside the rest."""
    one = result(Trial(per_page=300))
    phases = tuple(
        PhaseCounts(
            phase=f"phase_with_name_{number}", operations=100,
            operation="page" if number else "call", user=(10**9,) * 4,
            kernel=(10**12 * number,) * 4,
        )
        for number in range(6)
    )  # fmt: skip
    return run(
        {
            f"6.{n}.1-rc1-next-20261120-of-a-long-name": [recounted(one, phases=phases)]
            for n in (1, 2)
        }
    )


CASES = {
    "ladder": ladder, "failed-arm": failed_arm, "invalid-state": invalid_state,
    "two-qemus": two_qemus, "unfinished": unfinished, "inexact": inexact, "wide": wide,
    "layouts": layouts,
}  # fmt: skip
EXPLAINED: dict[str, tuple[Callable[[], RunRecord], dict[str, Any]]] = {
    "explain": (ladder, {"top": 5}),
    "explain-same": (ladder, {"top": 3, "phase": "touch"}),
    "explain-invalid": (invalid_state, {}),
    "explain-forced": (invalid_state, {"top": 3, "force": True}),
    "explain-inexact": (inexact, {"top": 3}),
}


def said(record: RunRecord) -> str:
    """The page of a run, without its line breaks."""
    return " ".join(plain(show_page.show(report(record))).split())


@pytest.mark.parametrize("name", CASES)
def test_show_is_as_reviewed(name: str, golden: Check) -> None:
    text = plain(show_page.show(report(CASES[name]())))
    golden(f"show/{name}.txt", text)
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("name", EXPLAINED)
def test_explain_is_as_reviewed(name: str, golden: Check) -> None:
    make, choice = EXPLAINED[name]
    found = explain(make(), "6.16", "6.17", **choice)
    told = difference_sentences(found)
    text = plain(explain_page.show(found, sentences=told))
    golden(f"show/{name}.txt", text)
    assert max(map(len, text.splitlines())) <= 100


def test_machine_formats_are_as_reviewed(golden: Check) -> None:
    record = failed_arm()
    golden("show/failed-arm.json", written("json", show_page, report(record)))
    golden("show/failed-arm.csv", written("csv", show_page, report(record)))
    found = explain(record, "6.16", "6.17", top=2)
    golden("show/explain.json", written("json", explain_page, found))
    golden("show/explain.csv", written("csv", explain_page, found))


def test_layouts_are_in_every_format_and_their_functions_sum_to_the_mean() -> None:
    record = layouts()
    (ladder,) = report(record).ladders
    mean = ladder.rungs[0].total
    assert mean is not None
    assert mean.value == 4 * 9166 * (240 + 11)
    assert mean.per_operation == 9166 * (240 + 11) / 240
    told = json.loads(written("json", show_page, report(record)))["ladders"][0]["rungs"][1]
    assert told["total"]["kind"] == "mean"
    assert told["total"]["layouts"]["hit"] == 35
    assert sorted(told["total"]["layouts"]["counts"]) == [4 * 9528] * 205 + [8 * 9528] * 35
    row = next(csv.DictReader(io.StringIO(written("csv", show_page, report(record)))))
    assert (row["location"], row["layouts"], row["layouts_hit"]) == ("mean", "240", "11")
    explained = explain(record, "6.18", "7.1")
    assert not explained.refused
    assert explained.old_value == mean.value


def test_what_is_left_to_rcu_is_told_apart() -> None:
    record = layouts()
    whole = record.trials[0].result
    assert whole is not None
    calls = [("call_rcu", 480), ("kvfree_call_rcu", 1920), ("__call_rcu_common", 480)]
    asked = [
        FunctionCount(phase="pair", function=name, insns=0, calls=times) for name, times in calls
    ]
    more = recounted(whole, functions=(*whole.exact.functions, *asked))
    both = run({"6.18.15": [whole], "7.1.13": [more]})
    totals = [rung.total for rung in report(both).ladders[0].rungs]
    assert [total.left for total in totals if total] == [{}, {"RCU": 2400}]
    told = f"6.18.15 {number(0)}, 7.1.13 {number(2.5)}"
    assert f"freed later and not counted, requests per pair: {told}" in said(both)
    assert "left to RCU" not in said(record)


def test_windows_that_are_no_whole_round_of_layouts_are_no_counts() -> None:
    whole = layouts().trials[0].result
    assert whole is not None
    (phase,) = whole.exact.phases
    cut = recounted(whole, phases=(replace(phase, user=phase.user[1:], kernel=phase.kernel[1:]),))
    (ladder,) = report(run({"6.18.15": [cut], "7.1.13": [whole]})).ladders
    assert ladder.rungs[0].total is None
    assert "no complete windows" in ladder.failures[0].reason


def test_several_scenarios_have_a_section_each() -> None:
    record = run(part_of(["6.16.12", "6.17.13"]))
    more = tuple(replace(t, index=t.index + 99, scenario="anon") for t in record.trials)
    text = said(replace(record, trials=(*record.trials, *more)))
    step = "from 6.16.12 to 6.17.13: 401.7 -> 769.8 instructions per page (exact-path)."
    assert text.count(step) == 4  # in front of all, and of each
    assert f"kdelta explain {RUN_ID} 6.16.12 6.17.13 --scenario mprotect:anon" in text
    assert text.count("x prev: new/old") == text.count("mode: share of windows") == 1


def test_a_ladder_without_a_step_says_so_and_begins_with_the_size() -> None:
    told = "SAME, x1.000 at 7.1.3: no kernel differs from the one above by more than 1 %."
    assert told in said(run(part_of(["7.0.9", "7.1.3"])))
    builds = {"6.16.12": "gcc 14", "6.17.13": "gcc 15", "6.18.15": "gcc 16"}
    record = with_kernels(run(part_of(builds)), lambda arm: {"compiler": builds[arm.label]})
    told = ": 2 UNDECIDED, the largest x1.916 at 6.17.13: no step above 1 % is proven"
    assert told in said(record)


def hostile(last: str = "\ud800") -> RunRecord:
    """Everything that a guest or a package names, full of what a terminal acts on."""
    evil = f"\x1b[2J\x1b]0;owned\x07[red]\r\n\u202e\x9b=cmd|'/C calc'!A0{last}"
    one = result(Trial(per_page=300, functions={f"@{evil}": 5.0}))
    state = (StateField(when="before", name=evil, value=evil, want="0"),)
    bad = replace(one, outcome=Outcome.INVALID, reasons=(evil,), state=state)
    record = run({"6.16.1": [one], "6.17.1": [bad], "6.18.1": [failed(Outcome.SKIP, evil)]})
    arms = tuple(
        replace(arm, label=f"={arm.label}{evil}", kernel=replace(arm.kernel, release=f"+{evil}"))
        for arm in record.arms
    )
    return replace(record, arms=arms, title=evil, created=evil)


def lines_of(record: RunRecord) -> list[list[Line]]:
    labels = [arm.label for arm in record.arms]
    found = explain(record, labels[0], labels[1], force=True)
    return [show_page.show(report(record)), explain_page.show(found, ())]


def test_nothing_a_terminal_acts_on_is_printed() -> None:
    for lines in lines_of(hostile()):
        text = plain(lines)
        assert all(line.isprintable() for line in text.split("\n"))
        assert max(map(len, text.splitlines())) <= 100
        assert "[red]" in text  # shown as it is, not taken for markup


def test_no_spreadsheet_formula_survives() -> None:
    record = hostile()
    labels = [arm.label for arm in record.arms]
    found = explain(record, labels[0], labels[1], force=True)
    for text in (written("csv", show_page, report(record)), written("csv", explain_page, found)):
        for row in csv.reader(io.StringIO(text, newline="")):
            for cell in row:
                assert cell.isprintable()
                if cell[:1] in ("=", "+", "@", "-"):
                    float(cell)  # a number, not a formula


def test_hostile_text_survives_json_unchanged() -> None:
    with pytest.raises(UnicodeEncodeError):  # half a character: no stored run can hold it
        msgspec.json.encode(hostile())
    record = hostile("\x7f\u00e9\U0001f600")
    text = written("json", show_page, report(record))
    assert text.isascii()
    assert "\x7f" not in text
    assert json.loads(text)["title"] == record.title


def test_colour_changes_no_character() -> None:
    lines = show_page.show(report(failed_arm()))
    stripped = coloured(lines)
    for code in ("0", "1", "2", "31", "32", "33"):
        stripped = stripped.replace(f"\x1b[{code}m", "")
    assert [line.rstrip() for line in stripped.splitlines()] == plain(lines).splitlines()
    assert "\x1b[31mREGRESSION" in coloured(lines)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environ", "wanted"),
    [
        (Terminal(), {"TERM": "xterm"}, True),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "xterm", "NO_COLOR": ""}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {"TERM": "xterm"}, False),
    ],
)
def test_colour_only_where_it_is_wanted(
    stream: io.StringIO, environ: dict[str, str], *, wanted: bool
) -> None:
    assert printing.wants_colour(stream, environ) is wanted


@pytest.mark.parametrize(
    ("value", "text"),
    [(13.957, "13.96"), (99.996, "100.0"), (669.84, "669.8"), (1234567.8, "1234568")],
)
def test_numbers_keep_four_digits_or_more(value: float, text: str) -> None:
    assert number(value) == text


def test_printable_bounds_and_replaces() -> None:
    assert printable("a\tb\x00\u202ec") == "a b??c"
    assert printable("x" * 50, 10) == "xxxxxxx..."


def test_the_answers_of_a_run_lie_beside_it(tmp_path: Path) -> None:
    (tmp_path / "explain-6.1-6.2.txt").write_text("of an earlier state", encoding="utf-8")
    (tmp_path / "run.json").write_bytes(b"kept")
    write_run_files(ladder(), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "explain-6.16.12-6.17.13.csv", "explain-6.16.12-6.17.13.json",
        "explain-6.16.12-6.17.13.txt", "run.json", "show.csv", "show.json", "show.txt",
    ]  # fmt: skip
    assert "prot_commit_flush_ptes" in (tmp_path / "explain-6.16.12-6.17.13.txt").read_text()
    assert (tmp_path / "show.txt").read_text() == plain(show_page.show(report(ladder())))
    assert (tmp_path / "show.csv").read_bytes().count(b"\r\n") == 28


def test_answers_with_hostile_labels_stay_in_the_folder(tmp_path: Path) -> None:
    record = run(part_of(["6.16.12", "6.17.13"]))
    arms = (replace(record.arms[0], label="../../a/b"), replace(record.arms[1], label="\x00c"))
    folder = tmp_path / "runs" / "one"
    folder.mkdir(parents=True)
    write_run_files(replace(record, arms=arms), folder)
    assert (folder / "explain-.._.._a_b-_c.txt").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_answers_that_cannot_be_written_say_where(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=f"kdelta show {RUN_ID}"):
        write_run_files(ladder(1), tmp_path / "absent")


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A runs directory that holds the mprotect steps 6.16 to 6.18, one of them failed."""
    return keep(failed_arm(), tmp_path)


def keep(record: RunRecord, tmp_path: Path) -> Path:
    kept(record, tmp_path / record.run_id)
    return tmp_path


def asked(command: Command, runs: Path, *words: str) -> Result:
    """What a command says of the stored run."""
    return CliRunner().invoke(command, [RUN_ID, *words, "--runs", str(runs)])


def test_show_reads_a_stored_run(stored: Path) -> None:
    done = asked(cli.show, stored)
    assert done.exit_code == 0
    told = " ".join(done.output.split())
    assert "REGRESSION x1.916 from 6.16.12 to 6.17.13: 401.7 -> 769.8" in told
    assert f"kdelta show {RUN_ID} --details" in told
    assert "Limits" not in told
    assert "Limits" in asked(cli.show, stored, "--details").output
    assert "\x1b" not in done.output
    assert "no step above 95 %" in asked(cli.show, stored, "--step-percent", "95").output


def test_the_runs_directory_comes_from_the_environment(stored: Path) -> None:
    environ = {"KDELTA_RUNS": str(stored)}
    done = CliRunner().invoke(cli.show, [RUN_ID, "--json"], env=environ, catch_exceptions=False)
    assert json.loads(done.output)["run_id"] == RUN_ID


def test_explain_reads_a_stored_run(stored: Path) -> None:
    done = asked(explain_cli.explain, stored, "6.16", "6.17", "--csv")
    assert "[sum]" in done.stdout_bytes.decode()
    assert b"\r\n" in done.stdout_bytes
    assert asked(explain_cli.explain, stored, "6.16", "6.17", "--csv", "--work").exit_code == 2


def test_explain_without_kernels_takes_the_step_of_the_report(stored: Path) -> None:
    pairs = (("6.16", "6.17"), (), ("6.16",))
    named, alone, half = (asked(explain_cli.explain, stored, *pair) for pair in pairs)
    assert named.output.startswith(alone.output or "-")
    assert "6.16 is one kernel" in str(half.exception)


@pytest.mark.parametrize(
    "options",
    [
        *(["--step-percent", value] for value in ("nan", "inf", "-1", "101", "x")),
        ["--json", "--csv"],
    ],
)
def test_wrong_usage(stored: Path, options: list[str]) -> None:
    assert asked(cli.show, stored, *options).exit_code == 2


def test_a_refused_explanation_exits_with_1(tmp_path: Path) -> None:
    runs = keep(two_qemus(), tmp_path)
    done = asked(explain_cli.explain, runs, "6.16", "6.17")
    assert done.exit_code == explain_cli.EXIT_INVALID
    assert "qemu_version (10.0.2 against 7.2.22)" in " ".join(done.output.split())
    assert asked(explain_cli.explain, runs, "6.16", "6.17", "--force").exit_code == 0


@pytest.mark.parametrize(
    ("ratio", "told"),
    [(1.0101, "x1.0101"), (0.9903, "x0.9903"), (1.02, "x1.020"), (1.916, "x1.916"), (None, "-")],
)
def test_a_ratio_near_the_threshold_has_a_digit_more(ratio: float | None, told: str) -> None:
    assert times(ratio, 1.0) == told
