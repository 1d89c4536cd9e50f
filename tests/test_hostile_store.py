# SPDX-License-Identifier: GPL-2.0-or-later
"""A store that somebody else filled: no view of it harms the terminal, a page or the disk."""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec.structs import replace

import ladder_records
from kdelta import cache, files
from kdelta.cli.main import main
from kdelta.journal import results
from kdelta.journal.results import KeptResult
from kdelta.journal.run import RunJournal, RunRecord
from kdelta.printable import LONGEST

HOSTILE = "<script>alert(1)</script>\"'\x1b]0;owned\x07\x9b31m../../etc/passwd\u202e{{ 7*7 }}"
LONG = "long " * (2 << 20)  # a line of 10 MB
DOCUMENTED = {0, 1, 2, 3, 4}  # exit codes


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """Exit code, standard output, and what went to standard error."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    told = capsys.readouterr()
    return int(ended.value.code or 0), told.out, told.err


class Tags(HTMLParser):
    """Every element of a page, its attributes, and whether it is one of ours."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.scripts: list[dict[str, str | None]] = []
        self.handlers: list[str] = []
        self.links: list[str] = []
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "script":
            self.scripts.append(dict(attrs))
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]


def spoiled(record: RunRecord, text: str) -> RunRecord:
    """The record with `text` wherever a run has words of its own."""
    arms = tuple(
        replace(
            arm,
            label=f"{arm.label}{text}",
            kernel=replace(arm.kernel, release=text, version=text, reference=text, compiler=text),
        )
        for arm in record.arms
    )
    trials = tuple(
        replace(
            trial,
            result=trial.result
            and replace(
                trial.result,
                reasons=(text,),
                kernel=trial.result.kernel and replace(trial.result.kernel, release=text),
            ),
        )
        for trial in record.trials
    )
    return replace(record, title=text, kdelta_version=text, arms=arms, trials=trials)


def keep(runs: Path, record: RunRecord, name: str) -> Path:
    record = replace(record, run_id=name)
    folder = runs / name
    RunJournal.create(folder, record)
    for trial in record.trials:
        if trial.result:
            kept = KeptResult(run=name, index=trial.index, attempts=1, result=trial.result)
            results.keep(folder, kept)
    return folder


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs that are spoiled, too long, no files, or not there at all; beside them a diary."""
    place = tmp_path_factory.mktemp("hostile")
    runs = place / "runs"
    old, new = (ladder_records.result(ladder_records.Trial(per_page=v)) for v in (300.0, 400.0))
    record = ladder_records.run({"6.16.12": [old], "6.17.13": [new]})
    keep(runs, spoiled(record, HOSTILE), "spoiled")
    first, *others = record.arms
    keep(runs, replace(record, title=LONG, arms=(replace(first, label=LONG), *others)), "long")
    (keep(runs, record, "torn") / "run.json").write_text('{"format": 2, "title": "' + LONG)
    (keep(runs, record, "nested") / "run.json").write_text("[" * 1_000_000)
    piped = keep(runs, record, "piped") / "run.json"
    piped.unlink()
    os.mkfifo(piped)
    mine = place / "mine"
    keep(mine, record, "private")
    (mine / "diary").write_text("dear diary")
    (runs / "link").symlink_to(mine / "private")
    leads = keep(runs, record, "leads")
    (leads / "run.json").unlink()
    (leads / "run.json").symlink_to(mine / "diary")
    return runs


VIEWS = [
    ["show", "spoiled"],
    ["show", "long"],
    ["show", "spoiled", "--json"],
    ["show", "spoiled", "--tsv"],
    ["show", "spoiled", "--summary"],
    ["explain", "spoiled"],
    ["runs", "list"],
    ["report", "spoiled", "--mail"],
    ["report", "long", "--mail"],
    ["gate", "spoiled", "--markdown"],
    ["gate", "spoiled", "--junit"],
    ["gate", "long"],
    ["audit", "spoiled"],
    ["show", "torn"],
    ["show", "nested"],
    ["show", "piped"],
    ["show", "leads"],
]


@pytest.mark.parametrize("view", VIEWS, ids=" ".join)
def test_a_terminal_gets_words_of_bounded_length(
    view: list[str], lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, *view, "--runs", lab)
    assert code in DOCUMENTED, err
    assert out or err
    told = out + err
    assert not {char for char in told if not char.isprintable()} - {"\n", "\r", "\t"}
    if view[-1] != "--json":
        assert max(map(len, told.splitlines())) < 40 * LONGEST
    assert "dear diary" not in told


def test_a_site_shows_it_as_text_and_leads_nowhere(
    lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in lab.parent.rglob("mine/**/*") if path.is_file()}
    assert before
    out = tmp_path / "site"
    code, told, err = run(capsys, "site", out, "--runs", lab, "--address", "https://lab.example")
    assert code == 0, err
    assert not {char for char in told + err if not char.isprintable()} - {"\n"}
    assert [name for name in ("torn", "nested", "piped", "leads") if f"/{name}" not in err] == []
    for path in out.rglob("*"):
        assert not path.is_symlink()
        content = path.read_bytes().decode() if path.is_file() else ""
        assert not {char for char in content if not char.isprintable()} - {"\n"}, path
        assert len(content) < 1 << 20
        if path.suffix == ".html":
            page = Tags(content)
            for script in page.scripts:
                assert script.get("src", "site.js") in ("site.js", "../site.js")
                assert "src" in script or script["type"] == "application/json"
            assert page.handlers == []
            assert not [link for link in page.links if link.startswith(("javascript", "/", "http"))]
            assert "private" not in content
    assert before == {path: path.read_bytes() for path in before}


def test_an_entry_of_the_cache_whose_list_is_no_text_is_made_anew() -> None:
    def fill(folder: Path) -> None:
        (folder / "file").write_text("x")

    place = cache.entry("vmlinux", "key", fill)
    listed = place / files._LIST
    listed.chmod(0o600)
    listed.write_bytes(b'[{"path": "\xff"}]')
    assert files.listed(place) == ()
    assert (cache.entry("vmlinux", "key", fill) / "file").read_text() == "x"


THREADS = """
import sys, threading
from pathlib import Path
from kdelta.journal import results

sys.setswitchinterval(1e-6)
ready, found = threading.Barrier(4), []

def read():
    ready.wait()
    found.append(results.kept(Path(sys.argv[1]), sys.argv[2], 0))

threads = [threading.Thread(target=read) for _ in range(4)]
for one in threads:
    one.start()
for one in threads:
    one.join()
assert len(found) == 4 and all(found)
"""


def test_threads_that_first_read_a_result_at_once_do_not_crash(tmp_path: Path) -> None:
    """As msgspec 0.22 does by itself, in most of such processes."""
    record = ladder_records.ladder()
    (first, *_) = record.trials
    assert first.result
    kept = KeptResult(run=record.run_id, index=0, attempts=1, result=first.result)
    results.keep(tmp_path, kept)
    for _ in range(4):
        subprocess.run(
            [sys.executable, "-c", THREADS, str(tmp_path), record.run_id], check=True, timeout=60
        )
