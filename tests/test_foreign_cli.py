# SPDX-License-Identifier: GPL-2.0-or-later
"""`kdelta import` and `kdelta judge` as a user meets them."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from foreign_records import EVIDENCE, imported
from kdelta.cli import main as cli_main
from kdelta.errors import SpecError, StoreError
from kdelta.foreign import folder
from kdelta.foreign.record import Foreign

CAC1 = EVIDENCE / "mprotect-baremetal" / "exact-cac1"


@pytest.fixture(autouse=True)
def _runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDELTA_RUNS", str(tmp_path / "runs"))


def kdelta(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    with pytest.raises(SystemExit) as ended:
        cli_main.main([str(each) for each in arguments])
    shown = capsys.readouterr()
    assert ended.value.code == code, shown.err
    return shown.out if code in (0, 1) else shown.err


def test_import_stores_sources_with_their_digests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = kdelta(capsys, "import", CAC1)
    assert "5 files as table, 180 values, 15 published summaries" in said
    (place,) = (tmp_path / "runs").iterdir()
    assert place.name.startswith("exact-cac1-")
    stored = folder.load(place)
    digests = {source.name.partition("/")[2]: source.sha256 for source in stored.sources}
    assert digests == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in CAC1.iterdir()
    }
    assert stored == imported_again(stored)


def imported_again(stored: Foreign) -> Foreign:
    return replace(
        imported(CAC1),
        name=stored.name,
        created=stored.created,
        kdelta_version=stored.kdelta_version,
    )


def test_judge_prints_the_verdict_and_other_tools_within_100_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kdelta(capsys, "import", CAC1, "--name", "cac1")
    text = kdelta(capsys, "judge", "cac1", "--metric", "iteration")
    assert "parent-a -> child (old again: parent-b): UNDECIDED" in text
    for words in ("published framework", "mmtests", "benchstat", "%stddev", "BAmean-95"):
        assert words in text
    short = kdelta(capsys, "judge", "cac1", "--metric", "iteration", "--no-compat")
    assert "mmtests" not in short
    assert "in these boots +39." in short


@pytest.mark.parametrize(
    "name",
    [
        "mprotect-qemu/mm-unstable-20260520/16cpu",
        "mprotect-qemu/reproducer-nonsmp-20260525",
        "mprotect-qemu/reproducer-smp-20260526",
        "mprotect-qemu/state-audit-20260520/16cpu",
        "mincore-qemu",
        "mprotect-baremetal/kernel-queue",
        "fsnotify-baremetal",
        "madvise-qemu/state-1cpu.csv",
    ],
)
def test_pages_fit_100_columns(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    kdelta(capsys, "import", EVIDENCE / name)
    text = kdelta(capsys, "judge", "latest")
    assert max(map(len, text.splitlines())) <= 100


def test_judge_as_json_and_csv(capsys: pytest.CaptureFixture[str]) -> None:
    kdelta(capsys, "import", CAC1, "--name", "cac1")
    found = json.loads(kdelta(capsys, "judge", "cac1", "--json"))
    assert (found["format"], found["kind"]) == (1, "judge")
    (one,) = [f for f in found["findings"] if f["metric"]["name"] == "iteration_ns_per_page"]
    assert one["pairs"][0]["comparison"]["in_these_boots"] is True
    rows = list(csv.DictReader(io.StringIO(kdelta(capsys, "judge", "cac1", "--csv"))))
    (row,) = [row for row in rows if row["metric"] == "iteration_ns_per_page"]
    assert float(row["midpoint_ratio"]) == pytest.approx(1.39773716)
    assert float(row["median_ratio"]) == pytest.approx(1.4, abs=0.02)
    assert float(row["drift"]) == pytest.approx(0.00874126, abs=1e-8)
    assert (row["verdict"], row["framework_new_label"]) == ("UNDECIDED", "reliable")


def test_judge_as_benchmarks(capsys: pytest.CaptureFixture[str]) -> None:
    kdelta(capsys, "import", CAC1, "--name", "cac1")
    text = kdelta(capsys, "judge", "cac1", "--benchfmt")
    assert text.count("BenchmarkIteration_ns_per_page 1 ") == 45


def test_comparison_asked_for_that_is_invalid_exits_with_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kdelta(capsys, "import", EVIDENCE / "madvise-qemu" / "state-1cpu.csv", "--name", "m")
    arms = ("--old", "6.12", "--new", "6.19", "--metric", "cycle")
    assert "INVALID" in kdelta(capsys, "judge", "m", *arms, code=1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("judge", "gone"), 'no import is called "gone"'),
        (("judge", "cac1", "--metric", "x"), 'no metric is called "x"'),
        (("judge", "cac1", "--old", "x", "--new", "child"), 'no metric has arms called "x, child"'),
        (("judge", "cac1", "--old", "child"), "--old and --new go together"),
        (("judge", "cac1", "--json", "--csv"), "exclude each other"),
        (("judge", "cac1", "--alpha-percent", "0"), "between 0 and 100"),
        (("import", CAC1, "--name", "../x"), "letters, digits"),
        (("import", CAC1 / "gone"), "it cannot be read"),
        (("import", CAC1, "--mapping", "gone.toml"), "it cannot be read"),
    ],
)
def test_wrong_usage_is_a_sentence(
    arguments: tuple[object, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kdelta(capsys, "import", CAC1, "--name", "cac1")
    assert sentence in kdelta(capsys, *arguments, code=2)


def test_failed_import_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.csv").write_text("kernel,x_ns\n6.1,?\n")
    message = kdelta(capsys, "import", tmp_path / "bad.csv", code=2)
    assert message.startswith("kdelta: bad.csv: line 2, column x_ns:")
    assert not (tmp_path / "runs").exists()


def test_imports_are_found_by_name_beginning_and_path(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    with pytest.raises(SpecError, match="no imports yet"):
        folder.IMPORTS.find(root, "latest")
    first = folder.write(root, imported(CAC1), datetime(2026, 1, 1, tzinfo=UTC))
    again = folder.write(root, imported(CAC1), datetime(2026, 1, 1, tzinfo=UTC))
    assert (first.name, again.name) == ("test-20260101-000000", "test-20260101-000000-2")
    assert folder.IMPORTS.find(root, first.name) == first
    assert folder.IMPORTS.find(root, "test-20260101-000000-") == again
    assert folder.IMPORTS.find(root, str(first)) == first
    assert folder.IMPORTS.find(root, "latest") == again
    with pytest.raises(SpecError, match="beginning of 2 imports"):
        folder.IMPORTS.find(root, "test")
    assert sorted(path.name for path in root.iterdir()) == [first.name, again.name]


@pytest.mark.parametrize("content", ["", "{", '{"format": 1}', "[" * 100_000])
def test_damaged_import_is_a_sentence(tmp_path: Path, content: str) -> None:
    place = folder.write(tmp_path, imported(CAC1), datetime(2026, 1, 1, tzinfo=UTC))
    (place / folder.IMPORTS.file).write_text(content)
    with pytest.raises(StoreError, match="import it again"):
        folder.load(place)


def test_newer_format_is_refused(tmp_path: Path) -> None:
    place = folder.write(tmp_path, imported(CAC1), datetime(2026, 1, 1, tzinfo=UTC))
    stored = json.loads((place / folder.IMPORTS.file).read_text())
    (place / folder.IMPORTS.file).write_text(json.dumps(stored | {"format": 99}))
    with pytest.raises(StoreError, match="format 99"):
        folder.load(place)


def test_foreign_text_cannot_drive_a_terminal_or_a_spreadsheet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = ("=cmd()", "\x1b[31mred\u202e")
    rows = "".join(f"{arm},{n},{n + 100}\n" for arm in arms for n in range(6))
    (tmp_path / "evil.csv").write_text("kernel,step,x_ns\n" + rows)
    kdelta(capsys, "import", tmp_path / "evil.csv", "--name", "evil")
    text = kdelta(capsys, "judge", "evil")
    assert "\x1b" not in text
    assert "\u202e" not in text
    (row,) = csv.DictReader(io.StringIO(kdelta(capsys, "judge", "evil", "--csv")))
    assert row["old_arm"] == "'=cmd()"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ([1000.5, 1003, 998, 1001, 1007], [1.0, 1.002, 0.999, 1.004, 0.997], "are the units"),
        ([1000.5, 1003, 998, 1001, 1007], [1003, 1007, 1000.5, 998, 1001], "is a copy"),
        ([12e6] * 9, [12e6] * 9, "how coarse the clock is nobody can tell"),
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
    (tmp_path / "a.csv").write_text("\n".join(("kernel,boot,seq,time", *rows)) + "\n")
    kdelta(capsys, "import", tmp_path / "a.csv")
    said = " ".join(kdelta(capsys, "judge", "latest").split())
    assert why in said.partition("warning")[0]
    assert "holds" not in said
