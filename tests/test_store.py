# SPDX-License-Identifier: GPL-2.0-or-later
"""The store of results: what is found is what was counted, or nothing is."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import time
from collections.abc import Collection
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec.structs import replace

import kdelta
import ladder_records
import run_records
from command_line import ended
from kdelta import cache, data, files
from kdelta.journal import results
from kdelta.journal.run import RunRecord
from kdelta.kernels.kernel import Kernel
from kdelta.printable import LONGEST
from kdelta.run import store
from kdelta.sample import Outcome, Skip, SkipKind, TrialResult

KERNEL = Kernel(
    reference="file:other", release="6.1.1", arch="amd64", image=Path("bzImage"),
    image_sha256="ab" * 32,
)  # fmt: skip
SKIPPED = TrialResult(
    outcome=Outcome.SKIP, skip=Skip(kind=SkipKind.UNSUPPORTED, sentence="no mseal() here")
)
KEY = store.address(["one"])


@pytest.fixture
def counted(tmp_path: Path) -> TrialResult:
    """The result of a trial, with its artifacts in the run's folder, in the store."""
    folder = tmp_path / "first" / "trials" / "0003"
    folder.mkdir(parents=True)
    for name in ("counts.bin.gz", "console.log"):
        (folder / name).write_text(f"what {name} holds")
    artifacts = {"counts": "trials/0003/counts.bin.gz", "console": "trials/0003/console.log"}
    result = replace(run_records.result_of(3), artifacts=artifacts)
    store.keep(KEY, result, folder)
    return result


def test_what_was_counted_is_found_in_another_run(counted: TrialResult, tmp_path: Path) -> None:
    folder = tmp_path / "second" / "trials" / "0007"
    folder.parent.mkdir(parents=True)
    found = store.found(KEY, KERNEL, folder)
    assert found is not None
    assert found.data == counted.data
    assert found.state == counted.state
    assert found.stored.endswith("+00:00")
    assert found.artifacts == {
        "counts": "trials/0007/counts.bin.gz", "console": "trials/0007/console.log"
    }  # fmt: skip
    assert (folder / "counts.bin.gz").read_text() == "what counts.bin.gz holds"
    assert not (folder / "counts.bin.gz").is_symlink()
    assert (folder / "counts.bin.gz").stat().st_nlink == 1
    # It is a result of the kernel that was asked for, whatever it was called then.
    assert found.kernel is not None
    assert (found.kernel.reference, found.kernel.build_id) == ("file:other", "f0" * 20)


def imported(path: Path, modules: dict[str, Path]) -> set[str]:
    """kdelta's modules that a file imports, wherever in it, with the packages they are in."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import is not followed"
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    found |= {name.rpartition(".")[0] for name in found}
    return (found & modules.keys()) - {"kdelta"}


def closure(*roots: str, border: frozenset[Path]) -> set[Path]:
    """The files that modules import, directly or not; those of the border are not gone into."""
    root = Path(kdelta.__file__).parent
    paths = {path: path.relative_to(root.parent).with_suffix("").parts for path in data.code()}
    modules = {".".join(parts).removesuffix(".__init__"): path for path, parts in paths.items()}
    waiting, seen = list(roots), set[str]()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += imported(modules[name], modules) if modules[name] not in border else ()
    return {modules[name] for name in seen}


def test_what_can_change_a_count_is_in_its_address() -> None:
    decisive = frozenset(data.code(store.DECISIVE))
    border = frozenset(data.code(store.BROUGHT)) - decisive
    reached = closure("kdelta.run.counting", border=border)
    assert not reached - decisive - border, "these can change a count: DECISIVE, or BROUGHT?"
    own = {*data.code(["run/exact.py", "run/store.py", "probes/system_calls.txt"])}  # otherwise
    assert decisive - own <= reached, "these cannot change a count"


def test_decisive_code_imports_nothing_by_a_name_that_is_made_while_it_runs() -> None:
    for path in data.code(store.DECISIVE):
        assert "importlib" not in path.read_text(), path
        assert "__import__" not in path.read_text(), path


@pytest.mark.parametrize(
    "name",
    [
        *("cli/show.py", "rendering/show.py", "host/leases.py", "ladder/counts.py"),
        *("workers/dispatch.py", "workers/worker.py"),
        *("kernels/reference.py", "archive/apt.py", "source/build.py", "cache.py"),
    ],
)
def test_what_cannot_change_a_count_is_not_in_its_address(name: str) -> None:
    (path,) = data.code([name])
    assert path not in data.code(store.DECISIVE)


def test_another_code_of_ours_has_other_addresses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = store._own_code.__wrapped__
    before = own()
    changed = tmp_path / "insns.py"
    changed.write_text(data.code(["attribution/insns.py"])[0].read_text() + "# another\n")
    code = data.code

    def with_change(places: Collection[str]) -> tuple[Path, ...]:
        return tuple(changed if path.name == changed.name else path for path in code(places))

    monkeypatch.setattr(data, "code", with_change)
    assert own() != before
    monkeypatch.setattr(store, "_own_code", own)
    assert store.address(["one"]) != KEY


@pytest.mark.parametrize(
    ("result", "is_kept"),
    [
        (SKIPPED, True),
        (TrialResult(outcome=Outcome.GUEST_ERROR, reasons=("it panicked",)), False),
        (TrialResult(outcome=Outcome.BOOT_ERROR, reasons=("it hung",)), False),
        (TrialResult(outcome=Outcome.INFRA_ERROR, reasons=("no mirror",)), False),
        (TrialResult(outcome=Outcome.INVALID, reasons=("700 MiB; asked for 1024",)), False),
        (replace(SKIPPED, skip=Skip(kind=SkipKind.NOT_PERMITTED, sentence="root")), False),
    ],
)
def test_faults_are_never_kept(result: TrialResult, is_kept: bool, tmp_path: Path) -> None:  # noqa: FBT001
    store.keep(KEY, result, tmp_path)
    assert (store.found(KEY, KERNEL, tmp_path) is not None) == is_kept


def test_a_file_that_is_not_whole_is_no_result(counted: TrialResult, tmp_path: Path) -> None:
    (file,) = (cache.root() / "results").glob("*/*")
    content = file.read_bytes()
    # A file cut at many places, and with a bit of each of many bytes turned.
    step = max(1, len(content) // 60)
    cut = [content[:at] for at in range(0, len(content), step)]
    turned = [
        content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        for at in range(0, len(content), step)
    ]
    for wrong in [*cut, *turned, content + b"x"]:
        file.write_bytes(wrong)
        assert store.found(KEY, KERNEL, tmp_path / "0000") is None
    file.unlink()
    os.mkfifo(file)
    assert store.found(KEY, KERNEL, tmp_path / "0000") is None
    file.unlink()
    file.write_bytes(content)
    again = store.found(KEY, KERNEL, tmp_path / "0000")
    assert again is not None
    assert again.data == counted.data


def test_the_longest_unused_go_and_no_more_is_kept_than_may_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keys = [f"ab{number:062}" for number in range(9)]
    for number, key in enumerate(keys[:8]):
        store.keep(key, SKIPPED, tmp_path)
        os.utime(cache.root() / "results" / "ab" / key, (number, number))
    (size,) = {path.stat().st_size for path in (cache.root() / "results/ab").iterdir()}
    assert store.found(keys[0], KERNEL, tmp_path)  # used now
    monkeypatch.setattr(store, "_FOLDERS", (1 << 20) // (3 * size + 1))
    monkeypatch.setenv("KDELTA_RESULTS_MIB", "1")
    store.keep(keys[8], SKIPPED, tmp_path)
    left = {path.name for path in (cache.root() / "results/ab").iterdir()}
    assert left == {keys[0], keys[7], keys[8]}
    monkeypatch.setenv("KDELTA_RESULTS_MIB", "0")
    store.keep(keys[3], SKIPPED, tmp_path)
    assert not (cache.root() / "results/ab" / keys[3]).exists()
    assert store.found(keys[8], KERNEL, tmp_path) is None


def test_what_a_killed_process_had_not_put_in_place_goes(tmp_path: Path) -> None:
    beside = cache.root() / "results" / KEY[:2]
    beside.mkdir(parents=True)
    for name, age in ((".dead", 3600), (".writing", 1)):
        (beside / name).touch()
        os.utime(beside / name, (time.time() - age, time.time() - age))
    store.keep(KEY, SKIPPED, tmp_path)
    assert {path.name for path in beside.iterdir()} == {KEY, ".writing"}


def test_a_cache_that_cannot_be_written_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    store.keep(KEY, SKIPPED, Path("/nowhere"))
    assert store.found(KEY, KERNEL, Path("/nowhere")) is None


# A store that somebody else filled: no view of it harms the terminal, a page or the disk


HOSTILE = "<script>alert(1)</script>\"'\x1b]0;owned\x07\x9b31m../../etc/passwd\u202e{{ 7*7 }}"
LONG = "long " * (2 << 20)  # a line of 10 MB
DOCUMENTED = {0, 1, 2, 3, 4}  # exit codes


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
    words = dict.fromkeys(("release", "version", "reference", "compiler"), text)
    record = ladder_records.with_kernels(record, lambda _: words)
    record = ladder_records.with_results(record, lambda _: {"reasons": (text,)})
    arms = tuple(replace(arm, label=f"{arm.label}{text}") for arm in record.arms)
    return replace(record, title=text, kdelta_version=text, arms=arms)


def keep(runs: Path, record: RunRecord, name: str) -> Path:
    return run_records.kept(replace(record, run_id=name), runs / name)


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
    ["show", "spoiled"], ["show", "long"], ["show", "spoiled", "--json"],
    ["show", "spoiled", "--csv"], ["show", "spoiled", "--summary"], ["explain", "spoiled"],
    ["runs", "list"], ["report", "spoiled"], ["report", "long"],
    ["gate", "spoiled", "--ktap"], ["gate", "spoiled", "--junit"], ["gate", "long"],
    ["audit", "spoiled"], ["show", "torn"], ["show", "nested"], ["show", "piped"],
    ["show", "leads"],
]  # fmt: skip


@pytest.mark.parametrize("view", VIEWS, ids=" ".join)
def test_a_terminal_gets_words_of_bounded_length(
    view: list[str], lab: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = ended(capsys, *view, "--runs", lab)
    assert done.status in DOCUMENTED, done.err
    told = done.out + done.err
    assert told
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
    done = ended(capsys, "site", out, "--runs", lab, "--address", "https://lab.example")
    err = done.err
    assert done.status == 0, err
    assert not {char for char in done.out + err if not char.isprintable()} - {"\n"}
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
    kept = results.KeptResult(run=record.run_id, index=0, attempts=1, result=first.result)
    results.keep(tmp_path, kept)
    for _ in range(4):
        subprocess.run(
            [sys.executable, "-c", THREADS, str(tmp_path), record.run_id], check=True, timeout=60
        )
