# SPDX-License-Identifier: GPL-2.0-or-later
"""The store of results: what is found is what was counted, or nothing is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

import run_records
from kdelta import cache, data
from kdelta.kernels.kernel import Kernel
from kdelta.run import store
from kdelta.sample import Outcome, Skip, SkipKind, TrialResult

KERNEL = Kernel(
    reference="file:other", release="6.1.1", version="", arch="amd64", flavour="",
    image=Path("bzImage"), image_sha256="ab" * 32, config=None, config_sha256="", build_id="",
    suite="", package="",
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


def test_nothing_is_found_elsewhere(counted: TrialResult, tmp_path: Path) -> None:
    assert counted
    assert store.found(store.address(["two"]), KERNEL, tmp_path / "0000") is None
    assert not (tmp_path / "0000").exists()


def test_another_code_of_ours_has_other_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {str(path) for path in data.code(except_rooms=("cli",))}
    assert any(name.endswith("run/counting.py") for name in names)
    assert any(name.endswith("attribution/insns.py") for name in names)
    assert not any("/cli/" in name for name in names)
    monkeypatch.setattr(store, "_own_code", lambda: "another")
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


def spoilt(content: bytes) -> list[bytes]:
    """A file cut at many places, and with a bit of each of many bytes turned."""
    step = max(1, len(content) // 60)
    cut = [content[:at] for at in range(0, len(content), step)]
    turned = [
        content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        for at in range(0, len(content), step)
    ]
    return [*cut, *turned, content + b"x"]


def test_a_file_that_is_not_whole_is_no_result(counted: TrialResult, tmp_path: Path) -> None:
    (file,) = (cache.root() / "results").glob("*/*")
    content = file.read_bytes()
    for wrong in spoilt(content):
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


def test_a_cache_that_cannot_be_written_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    store.keep(KEY, SKIPPED, Path("/nowhere"))
    assert store.found(KEY, KERNEL, Path("/nowhere")) is None
