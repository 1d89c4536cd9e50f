# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta judge`: verdicts on imports, the answer that sums them up, and the page."""

from __future__ import annotations

import csv
import io
import json
import random
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from command_line import ended
from imports_evidence import EVIDENCE, MAPPINGS, TABLES, evidence, imported, judged
from kdelta.analysis.judgement import Judgement
from kdelta.cli import options
from kdelta.data import is_clone
from kdelta.errors import InfraError, SpecError, StoreError
from kdelta.imports import mapping, record
from kdelta.rendering import judge as page
from kdelta.sample import Instrument
from kdelta.table.columns import plain
from kdelta.verdict.comparison import Verdict

CAC1 = "mprotect-baremetal/exact-cac1/measurements.tsv"
BOOTS = 9
KEYS = """
replicate = "boot"
unit = "us"
better = "less"
{order}[columns]
arm = "kernel"
boot = "boot"
position = "order"
{more}[metrics]
t_us.value = "t_us"
"""


@pytest.fixture(autouse=True)
def _runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDELTA_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)


def kdelta(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    done = ended(capsys, *arguments)
    assert done.status == code, done.err
    return done.out if code in (0, 1) else done.err


def cac1(capsys: pytest.CaptureFixture[str]) -> str:
    """Import the session of exact-cac1, as "measurements"."""
    given = MAPPINGS / f"{TABLES[CAC1]}.toml"
    return kdelta(capsys, "import", EVIDENCE / CAC1, "--mapping", given)


def measured(path: Path, levels: dict[str, float], **columns: str) -> Path:
    """A table of boots in turn: arm -> level; columns: of every row."""
    jitter = random.Random(5)  # noqa: S311  numbers to measure, not secrets
    head = ["order", "kernel", "boot", "t_us", *columns]
    rows: list[list[str]] = []
    for boot in range(BOOTS):
        for arm, level in levels.items():
            value = f"{jitter.gauss(level, level / 300):.3f}"
            rows.append([str(len(rows)), arm, f"{arm} b{boot}", value, *columns.values()])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(",".join(row) + "\n" for row in [head, *rows]))
    return path


def read(path: Path, *, order: str = "", more: str = "", tail: str = "") -> record.Import:
    toml = KEYS.format(order=order, more=more) + tail
    return imported(path, mappings=(mapping.parse(toml, "m.toml"),))


def verdicts(found: Judgement) -> list[Verdict]:
    return [pair.comparison.verdict for one in found.findings for pair in one.pairs]


def text(found: Judgement) -> str:
    return plain(page.show(found))


# Verdicts and the answer.


@pytest.mark.parametrize(
    ("new", "again", "verdict"),
    [
        (96.0, 80.0, Verdict.REGRESSION),
        (64.0, 80.0, Verdict.IMPROVEMENT),
        (80.0, 80.0, Verdict.SAME),
        (96.0, 88.0, Verdict.UNDECIDED),  # the base drifts by 10 %
    ],
)
def test_a_sandwich_is_declared_by_its_roles(
    new: float, again: float, verdict: Verdict, tmp_path: Path
) -> None:
    path = measured(tmp_path / "a.csv", {"b1": 80.0, "patched": new, "b2": again})
    roles = '[roles]\nold = "b1"\nnew = "patched"\ncontrol = "b2"\n'
    (pair,) = judged(read(path, tail=roles)).findings[0].pairs
    assert (pair.old, pair.new, pair.control) == ("b1", "patched", "b2")
    assert pair.comparison.verdict is verdict


def test_the_answer_names_what_holds_and_what_is_incomplete(tmp_path: Path) -> None:
    path = measured(tmp_path / "a.csv", {"6.16": 25, "6.17": 37}, status="ok")
    lines = path.read_text().splitlines()
    lines[2] = lines[2].replace(",ok", ",crashed")
    path.write_text("\n".join(lines) + "\n")
    found = judged(read(path, tail='[success]\nstatus = "ok"\n'))
    (holds,) = found.answer.holds
    assert holds.startswith("6.16 -> 6.17: REGRESSION in t_us +4")
    assert found.answer.missing == ("runs without a value: 6.17 8/9 boots (t_us)",)
    told = text(found)
    assert told.startswith("a.csv: holds: 6.16 -> 6.17: REGRESSION in t_us +4")
    assert f"import {found.name}: read as table, 20" in told


def test_a_state_that_differs_makes_a_pair_invalid_without_a_change(tmp_path: Path) -> None:
    path = measured(tmp_path / "a.csv", {"6.16": 25, "6.17": 37}, huge_kb="0")
    lines = [
        line[:-1] + "2048" if ",6.17," in line else line for line in path.read_text().splitlines()
    ]
    path.write_text("\n".join(lines) + "\n")
    found = judged(read(path, more='state = ["huge_kb"]\n'))
    assert verdicts(found) == [Verdict.INVALID]
    assert "page state differs: huge_kb 0 (6.16) against 2048 (6.17)" in found.answer.invalid[0]
    assert found.findings[0].pairs[0].comparison.ratio is None


def test_arms_are_compared_in_the_declared_order(tmp_path: Path) -> None:
    path = measured(tmp_path / "a.csv", {"zeta": 25, "alpha": 37})
    for order, verdict in (("zeta alpha", "REGRESSION"), ("alpha zeta", "IMPROVEMENT")):
        names = ", ".join(f'"{name}"' for name in order.split())
        (pair,) = judged(read(path, order=f"order = [{names}]\n")).findings[0].pairs
        assert f"{pair.old} {pair.new}" == order
        assert str(pair.comparison.verdict) == verdict


def test_later_arms_close_a_part_of_the_step(tmp_path: Path) -> None:
    path = measured(tmp_path / "a.csv", {"6.12": 25, "6.16": 37, "6.17": 31})
    (gap,) = judged(read(path)).findings[0].gaps
    assert (gap.old, gap.new, gap.share.arm) == ("6.12", "6.16", "6.17")
    assert gap.share.value == pytest.approx(0.5, abs=0.02)


VALUES = (
    'replicate = "none"\n[columns]\narm = "kernel"\n[metrics]\n'
    'ns = { value = "ns", unit = "ns", better = "less" }\n'
)
SUMMED = (
    'replicate = "none"\nunit = "ns"\nbetter = "less"\n[columns]\narm = "kernel"\nn = "n"\n'
    '[metrics]\nns = { mean = "mean", sd = "sd", median = "median" }\n'
)


@pytest.mark.parametrize(
    ("table", "toml", "needs"),
    [
        ("kernel,ns\n6.16,30\n6.16,31\n6.17,30\n6.17,33\n", VALUES,
         ("the boot of each value", "the order", "the page state")),
        ("kernel,mean,sd,median,n\n6.16,30,2,,6\n6.17,31,2,,6\n", SUMMED,
         ("the values themselves",)),
    ],
)  # fmt: skip
def test_what_a_verdict_waits_for_is_said(
    table: str, toml: str, needs: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(table)
    found = imported(tmp_path / "a.csv", mappings=(mapping.parse(toml, "m.toml"),))
    answer = judged(found).answer
    assert answer.open
    assert all(any(said.startswith(need) for said in answer.needs) for need in needs), answer.needs


def summarised(folder: Path, *rows: str) -> Judgement:
    (folder / "s.csv").write_text("\n".join(("kernel,mean,sd,median,n", *rows)) + "\n")
    return judged(imported(folder / "s.csv", mappings=(mapping.parse(SUMMED, "m.toml"),)))


def test_summaries_tell_the_published_change_and_decide_nothing(tmp_path: Path) -> None:
    (pair,) = summarised(tmp_path, "6.1,100,2.0,,9", "6.2,105,2.0,,9").findings[0].pairs
    found = pair.comparison
    assert found.verdict is Verdict.UNDECIDED
    assert found.ratio == pytest.approx(1.05)
    assert found.interval is None
    assert "only summaries are published, no values: nothing can be tested" in found.reasons[0]
    assert "the published means differ by +5.00 %" in found.reasons[0]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("100,0", "120,3", "6.16: a standard deviation of 0 is of a clock or a print"),
        ("-5,1", "120,3", "6.16: a negative mean (-5)"),
        ("100,2", "0,0", "6.17: a mean of 0, below what the clock or the print can tell"),
        ("100,", "120,", "the published means differ by +20.00 %"),
    ],
)
def test_summaries_that_no_time_has_say_so(old: str, new: str, told: str, tmp_path: Path) -> None:
    (pair,) = summarised(tmp_path, f"6.16,{old},,9", f"6.17,{new},,9").findings[0].pairs
    assert told in pair.comparison.reasons[0]
    assert pair.comparison.interval is None


def test_medians_alone_still_tell_the_change(tmp_path: Path) -> None:
    found = summarised(tmp_path, "6.16,,,100,9", "6.17,,,112,9")
    assert "medians differ by +12.00 %" in found.answer.open[0]


# The page.


def test_an_import_of_arms_without_an_order_ends_with_the_whole_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("a.csv").write_text("kernel,ns\nbase,1\nfix,2\n")
    said = kdelta(capsys, "import", "a.csv", "--replicate", "boot")
    assert " --old ARM --new ARM, which are base, fix" in " ".join(said.split())
    asked = ("--replicate", "boot", "--old", "base", "--new", "fix")
    assert kdelta(capsys, "import", "a.csv", *asked).startswith("a.csv: not decided: base -> fix")


def test_import_and_judge_within_100_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert "1 file as table, 180 values, 9 audited fields" in cac1(capsys)
    shown = kdelta(capsys, "judge", "measurements", "--metric", "iteration")
    assert "parent-a -> child (old again: parent-b): UNDECIDED" in shown
    assert "published framework" not in shown
    assert max(map(len, shown.splitlines())) <= 100
    assert "in these boots +39." in " ".join(shown.split())


@pytest.mark.parametrize(
    "name",
    [
        "mprotect-qemu/mm-unstable-20260520/16cpu",
        "mprotect-qemu/reproducer-smp-20260526/summary.csv",
        "mprotect-qemu/state-audit-20260520/16cpu", "mincore-qemu/v6.16-fastpath-ab.summary.csv",
        "madvise-qemu/ftrace-1cpu.profile.csv", "madvise-qemu/state-1cpu.csv",
    ],
)  # fmt: skip
def test_pages_fit_100_columns(name: str) -> None:
    shown = plain(page.show(judged(evidence(name)), details=True))
    assert max(map(len, shown.splitlines())) <= 100


def test_many_findings_are_one_page() -> None:
    found = judged(evidence("madvise-qemu/ftrace-1cpu.profile.csv"))
    shown = plain(page.show(found)).splitlines()
    assert len(shown) <= 60
    assert "--details" in shown[-1]


def test_judge_as_json_and_csv(capsys: pytest.CaptureFixture[str]) -> None:
    cac1(capsys)
    found = json.loads(kdelta(capsys, "judge", "measurements", "--json"))
    assert (found["format"], found["kind"]) == (1, "judge")
    (one,) = [f for f in found["findings"] if f["metric"]["name"] == "iteration_ns_per_page"]
    assert one["pairs"][0]["comparison"]["in_these_boots"] is True
    rows = list(csv.DictReader(io.StringIO(kdelta(capsys, "judge", "measurements", "--csv"))))
    (row,) = [row for row in rows if row["metric"] == "iteration_ns_per_page"]
    assert float(row["midpoint_ratio"]) == pytest.approx(1.39773716)
    assert float(row["drift"]) == pytest.approx(0.00874126, abs=1e-8)
    assert (row["verdict"], row["framework_new_label"]) == ("UNDECIDED", "reliable")


def test_comparison_asked_for_that_is_invalid_exits_with_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = "madvise-qemu/state-1cpu.csv"
    given = MAPPINGS / f"{TABLES[name]}.toml"
    kdelta(capsys, "import", EVIDENCE / name, "--mapping", given)
    arms = ("--old", "6.12", "--new", "6.19", "--metric", "cycle")
    assert "INVALID" in kdelta(capsys, "judge", "latest", *arms, code=1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("judge", "gone"), 'no import is called "gone"'),
        (("judge", "measurements", "--metric", "x"), 'no metric is called "x"'),
        (
            ("judge", "measurements", "--old", "x", "--new", "child"),
            'no metric has arms called "x, child"',
        ),
        (("judge", "measurements", "--old", "child"), "--old and --new go together"),
        (("judge", "measurements", "--json", "--csv"), "exclude each other"),
        (("judge", "measurements", "--alpha-percent", "0"), "range 0<x<100"),
        (("import", EVIDENCE / CAC1, "--mapping", "gone.toml"), "it cannot be read"),
    ],
)
def test_wrong_usage_is_a_sentence(
    arguments: tuple[object, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cac1(capsys)
    assert sentence in kdelta(capsys, *arguments, code=2)


@pytest.mark.parametrize(
    ("clone", "action"), [(True, "make setup"), (False, "pip install 'kdelta[time]'")]
)
def test_what_judges_times_is_installed_as_kdelta_was(
    clone: bool,  # noqa: FBT001  a parameter of the test
    action: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "scipy" else name)
    monkeypatch.setattr("kdelta.cli.options.is_clone", lambda: clone)
    with pytest.raises(InfraError) as caught:
        options.need(Instrument.TIME)
    assert (caught.value.action, "scipy" in caught.value.cause) == (action, True)


def test_this_clone_is_one() -> None:
    assert is_clone()


def test_foreign_text_cannot_drive_a_terminal_or_a_spreadsheet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = ("=cmd()", "\x1b[31mred\u202e")
    rows = "".join(f"{arm},{n},{n + 100}\n" for arm in arms for n in range(6))
    (tmp_path / "evil.csv").write_text("kernel,boot,ns\n" + rows)
    order = json.dumps(arms).replace("\\u001b", "\\u001B")
    (tmp_path / "m.toml").write_text(
        f'replicate = "boot"\norder = {order}\n[columns]\narm = "kernel"\nboot = "boot"\n'
        '[metrics]\nns = { value = "ns", unit = "ns", better = "less" }\n'
    )
    kdelta(capsys, "import", "evil.csv", "--mapping", "m.toml")
    shown = kdelta(capsys, "judge", "latest")
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    (row,) = csv.DictReader(io.StringIO(kdelta(capsys, "judge", "latest", "--csv")))
    assert row["old_arm"] == "'=cmd()"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ([1000.5, 1003, 998, 1001, 1007], [1003, 1007, 1000.5, 998, 1001], "is a copy"),
        ([10.5, 10.5, 10.8, 10.8, 10.1, 10.1, 10.3, 10.3] * 2, [19.1, 19.5] * 8, "counted twice"),
    ],
)
def test_what_no_session_gives_is_no_verdict(
    old: list[float], new: list[float], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stored and read again, since that is what is judged."""
    rows = [
        f"{arm},{boot},{2 * boot + at},{value:.10g}"
        for boot, values in enumerate(zip(old, new, strict=True))
        for at, (arm, value) in enumerate(zip(("6.16", "6.17"), values, strict=True))
    ]
    (tmp_path / "a.csv").write_text("\n".join(("kernel,boot,order,us", *rows)) + "\n")
    kdelta(capsys, "import", "a.csv")
    said = " ".join(kdelta(capsys, "judge", "latest").split())
    assert why in said.partition("warning")[0]
    assert "holds" not in said


# The folder of an import.


def test_imports_are_found_by_name_beginning_and_path(tmp_path: Path) -> None:
    root, found = tmp_path / "runs", evidence(CAC1)
    with pytest.raises(SpecError, match="no imports yet"):
        record.IMPORTS.find(root, "latest")
    first = record.write(root, found, datetime(2026, 1, 1, tzinfo=UTC))
    again = record.write(root, found, datetime(2026, 1, 1, tzinfo=UTC))
    assert (first.name, again.name) == ("test-20260101-000000", "test-20260101-000000-2")
    assert record.IMPORTS.find(root, first.name) == first
    assert record.IMPORTS.find(root, str(first)) == first
    assert record.IMPORTS.find(root, "latest") == again
    with pytest.raises(SpecError, match="beginning of 2 imports"):
        record.IMPORTS.find(root, "test")
    assert sorted(path.name for path in root.iterdir()) == [first.name, again.name]
    assert record.load(first) == found


@pytest.mark.parametrize("content", ["", "{", '{"format": 1}', "[" * 100_000])
def test_damaged_import_is_a_sentence(tmp_path: Path, content: str) -> None:
    place = record.write(tmp_path, evidence(CAC1), datetime(2026, 1, 1, tzinfo=UTC))
    (place / record.IMPORTS.file).write_text(content)
    with pytest.raises(StoreError, match="import it again"):
        record.load(place)


def test_newer_format_is_refused(tmp_path: Path) -> None:
    newer = replace(evidence(CAC1), format=99)
    place = record.write(tmp_path, newer, datetime(2026, 1, 1, tzinfo=UTC))
    with pytest.raises(StoreError, match="format 99"):
        record.load(place)
