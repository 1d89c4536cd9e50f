# SPDX-License-Identifier: GPL-2.0-or-later
"""By what a checkpoint is found again: all that decides a guest's state, and no path."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import threading
from pathlib import Path
from typing import cast

import pytest

import run_records
from kdelta import cache, guest
from kdelta.errors import BootError, InfraError
from kdelta.files import digest_of
from kdelta.guests import checkpoint, qemu
from kdelta.journal.run import RunJournal
from kdelta.machine.axes import MachineSettings
from kdelta.run.exact import ExactTrials
from kdelta.run.runner import AS_PLANNED, How
from kdelta.workers import worker
from kernel_tree import written
from test_dispatch import FakeWorkers, Own, answer, dispatch

SETTINGS = MachineSettings()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a QEMU, its firmware and a kernel."""
    initramfs = tmp_path / "initramfs"
    initramfs.write_bytes(b"cpio")
    monkeypatch.setattr(guest, "initramfs", lambda _: initramfs)
    files = {"bin/qemu": "q", "share/qemu/bios-256k.bin": "b", "image": "k"}
    return written(tmp_path / "here", files)


def key(place: Path, settings: MachineSettings = SETTINGS, *, told: bool = False) -> str:
    found = qemu.Qemu(
        program=place / "bin/qemu", arguments=("-L", str(place / "share/qemu")) if told else (),
        banner="QEMU emulator version 10.0.2", version="10.0.2",
    )  # fmt: skip
    return checkpoint.key(found, settings, place / "image")


@pytest.mark.parametrize("name", ["share/qemu/bios-256k.bin", "image", "bin/qemu"])
def test_other_content_is_another_checkpoint(name: str, place: Path) -> None:
    before = key(place)
    assert key(place) == before
    if name == "image":  # a kernel that is another file
        (place / name).unlink()
    (place / name).write_text("another")
    assert key(place) != before


def test_every_device_is_in_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = key(place)
    monkeypatch.setattr(qemu, "PORT_NAME", "kdelta.1")
    assert key(place) != before


@pytest.mark.parametrize(
    "other", [{"cpus": 2}, {"memory_mib": 512}, {"nodes": 2}, {"cmdline": "x"}, {"arch": "arm64"}]
)
def test_another_machine_is_another_checkpoint(other: dict[str, int], place: Path) -> None:
    assert key(place, MachineSettings(**other)) != key(place)  # type: ignore[arg-type]


def test_what_is_set_in_the_running_guest_is_not_in_it(place: Path) -> None:
    assert key(place, MachineSettings(thp="never", swap="zram")) == key(place)


def test_where_the_files_lie_is_not_in_it(place: Path) -> None:
    moved = place.with_name("there")
    shutil.copytree(place, moved)  # with the times of the files
    assert key(moved) == key(place)
    assert key(place, told=True) == key(place)


def test_a_checkpoint_in_use_is_not_removed_by_a_run_that_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the cache at its limit another run removed it between the look and the reading."""

    def make(folder: Path, *_: object) -> None:
        (folder / "meta.json").write_text('{"settled": true, "build_id": "f0"}')

    emulator = qemu.Qemu(program=Path("qemu"), banner="QEMU", version="10.0.2")
    monkeypatch.setattr(checkpoint, "_make", make)
    monkeypatch.setattr(checkpoint, "key", lambda *_: "ab" * 32)
    monkeypatch.setenv("KDELTA_CHECKPOINTS_MIB", "0")
    with checkpoint.lent(emulator, SETTINGS, Path("x"), timeout=1) as point:
        cache.make_room("checkpoints")
        assert cache.unchanged(point.folder)
        cache.discard(point.folder)  # what is damaged goes, whoever uses it
        assert not point.folder.exists()
        with checkpoint.lent(emulator, SETTINGS, Path("x"), timeout=1) as again:
            assert again == point
        cache.make_room("checkpoints")
        assert point.folder.exists()
    cache.make_room("checkpoints")
    assert not point.folder.exists()


# Checkpoints that go to workers: the same bytes there, and nothing else is taken for one


KEY = "ab" * 32
_HOLE = 8 << 20


def made(place: Path, ram: bytes = b"memory") -> None:
    """A checkpoint's files, with holes at both ends and in the middle."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "meta.json").write_bytes(b'{"settled":true,"build_id":"f0"}')
    (place / "state").write_bytes(os.urandom(3 << 20))
    (place / "console.log").write_bytes(b"")
    with (place / "ram").open("wb") as out:
        out.seek(_HOLE)
        out.write(ram * 1000)
        out.seek(3 * _HOLE)
        out.write(ram)
        out.truncate(4 * _HOLE)


def sent(folder: Path, file: Path) -> worker.SentCheckpoint:
    worker.pack(folder, file)
    return worker.SentCheckpoint(key=KEY, packed=digest_of(file), listed=worker._content(folder))


def test_what_arrives_is_what_was_sent_with_its_holes(tmp_path: Path) -> None:
    made(tmp_path / "a")
    worker.pack(tmp_path / "a", tmp_path / "packed")
    assert (tmp_path / "packed").stat().st_size < 4 << 20
    (tmp_path / "b").mkdir()
    worker.unpack(tmp_path / "packed", tmp_path / "b")
    for name in ("meta.json", "state", "ram", "console.log"):
        assert (tmp_path / "b" / name).read_bytes() == (tmp_path / "a" / name).read_bytes()
    assert (tmp_path / "b/ram").stat().st_blocks * 512 < _HOLE


def test_a_worker_takes_it_instead_of_one_of_another_boot(tmp_path: Path) -> None:
    cache.entry("checkpoints", KEY, lambda place: made(place, b"another boot's"))
    made(tmp_path / "a")
    point = sent(tmp_path / "a", tmp_path / "packed")
    for _ in range(2):  # the second time it is there
        worker.arrive(point, tmp_path / "packed")
    there = cache.found("checkpoints", KEY)
    assert there is not None
    assert (there / "ram").read_bytes() == (tmp_path / "a/ram").read_bytes()
    (tmp_path / "packed").unlink()
    worker.arrive(point, tmp_path / "packed")


def test_a_worker_in_the_controllers_cache_keeps_its_own(tmp_path: Path) -> None:
    own = cache.entry("checkpoints", KEY, made)
    point = sent(own, tmp_path / "packed")
    before = (own / "ram").stat().st_ino
    worker.arrive(point, tmp_path / "packed")
    assert (own / "ram").stat().st_ino == before


def _tar(*members: tuple[str, bytes], kind: bytes = tarfile.REGTYPE) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as packed:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.type, member.size, member.linkname = kind, len(content), "/etc/passwd"
            packed.addfile(member, io.BytesIO(content))
    return out.getvalue()


@pytest.mark.parametrize(
    "packed",
    [
        b"", b"no archive\n", _tar(("../out", b"x")), _tar(("/ram", b"x")),
        _tar(("ram", b"x"), ("ram", b"x")), _tar(("ram", b""), kind=tarfile.SYMTYPE),
        _tar(("ram", b""), kind=tarfile.LNKTYPE), _tar(("ram", b""), kind=tarfile.DIRTYPE),
        _tar(("ram", os.urandom(1 << 16)))[:-1000],
    ],
    ids=[
        "empty", "garbage", "outside", "absolute", "twice", "link", "name-of-another", "folder",
        "cut",
    ],
)  # fmt: skip
def test_what_is_no_checkpoint_is_not_taken(tmp_path: Path, packed: bytes) -> None:
    file = tmp_path / "packed"
    file.write_bytes(packed)
    with pytest.raises(InfraError, match="is damaged"):
        worker.arrive(worker.SentCheckpoint(key=KEY, packed=digest_of(file), listed="x"), file)
    assert cache.found("checkpoints", KEY) is None
    with pytest.raises(InfraError, match="is no SHA-256"):
        worker.arrive(worker.SentCheckpoint(key="../x", packed="", listed=""), file)


class Given(worker.SharedCheckpoints):
    """SharedCheckpoints whose checkpoint is there, or cannot be made."""

    def __init__(self, scratch: Path, folder: Path | None) -> None:
        super().__init__(scratch, threading.Event())
        self.folder, self.asked = folder, 0

    def _found(self, *_: object) -> Path:
        self.asked += 1
        if self.folder is None:
            raise BootError("it panicked")
        return self.folder


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExactTrials:
    monkeypatch.setattr("kdelta.guests.checkpoint.key", lambda *_: KEY)
    monkeypatch.setattr("kdelta.workload.load", lambda _name: _Load())
    monkeypatch.setattr("kdelta.workers.worker.with_needs", lambda settings, _needs: settings)
    image = tmp_path / "bzImage"
    image.write_bytes(b"a kernel")
    return cast("ExactTrials", Own(image))


class _Load:
    needs = None

    def scenario(self, _name: str) -> _Load:
        return self


def test_it_is_an_input_of_each_trial_and_made_once(own: ExactTrials, tmp_path: Path) -> None:
    made(tmp_path / "point")
    journal = RunJournal.create(tmp_path / "run", run_records.new_run(arms=2, rounds=2))
    workers, points = FakeWorkers({"a": answer, "b": answer}), Given(tmp_path, tmp_path / "point")
    assert dispatch(own, workers, journal, checkpoints=points) == ["ok"] * 8
    assert workers.shares.count(digest_of(tmp_path / KEY)) == 8
    assert points.asked == 1


def test_a_kernel_that_does_not_come_up_here_is_left_to_the_workers(
    own: ExactTrials, tmp_path: Path
) -> None:
    journal = RunJournal.create(tmp_path / "run", run_records.new_run(arms=2, rounds=2))
    points = Given(tmp_path, None)
    assert dispatch(own, FakeWorkers({"a": answer}), journal, checkpoints=points) == ["ok"] * 8
    assert points.asked == 1
    trial = journal.record().trials[0]
    given = own.given(trial)
    fresh = points.of(trial, How(fresh_boot=True), *given)
    assert (fresh, points.of(trial, AS_PLANNED, *given)) == (None, None)
