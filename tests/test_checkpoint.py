# SPDX-License-Identifier: GPL-2.0-or-later
"""By what a checkpoint is found again: all that decides a guest's state, and no path."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kdelta import cache, guest
from kdelta.guests import checkpoint, qemu
from kdelta.guests.emulator import Qemu
from kdelta.machine.axes import MachineSettings

SETTINGS = MachineSettings()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a QEMU, its firmware and a kernel."""
    initramfs = tmp_path / "initramfs"
    initramfs.write_bytes(b"cpio")
    monkeypatch.setattr(guest, "initramfs", lambda _: initramfs)
    folder = tmp_path / "here"
    for name, content in (("bin/qemu", "q"), ("share/qemu/bios-256k.bin", "b"), ("image", "k")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def key(place: Path, settings: MachineSettings = SETTINGS, *, told: bool = False) -> str:
    found = Qemu(
        program=place / "bin/qemu",
        arguments=("-L", str(place / "share/qemu")) if told else (),
        banner="QEMU emulator version 10.0.2",
        version="10.0.2",
    )
    return checkpoint.key(found, settings, place / "image")


def newer_bios(place: Path) -> None:
    (place / "share/qemu/bios-256k.bin").write_text("another")


def other_kernel(place: Path) -> None:
    (place / "image").unlink()
    (place / "image").write_text("another")


def rebuilt(place: Path) -> None:
    (place / "bin/qemu").write_text("another")


@pytest.mark.parametrize("change", [newer_bios, other_kernel, rebuilt])
def test_other_content_is_another_checkpoint(change: Callable[[Path], None], place: Path) -> None:
    before = key(place)
    assert key(place) == before
    change(place)
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

    emulator = Qemu(program=Path("qemu"), banner="QEMU", version="10.0.2")
    monkeypatch.setattr(checkpoint, "_make", make)
    monkeypatch.setattr(checkpoint, "key", lambda *_: "ab" * 32)
    monkeypatch.setenv("KDELTA_CHECKPOINTS_MIB", "0")
    with checkpoint.lent(emulator, SETTINGS, Path("x"), timeout=1) as point:
        cache.make_room("checkpoints")
        assert checkpoint.intact(point)
        checkpoint.discard(point)  # what is damaged goes, whoever uses it
        assert not point.folder.exists()
        with checkpoint.lent(emulator, SETTINGS, Path("x"), timeout=1) as again:
            assert again == point
        cache.make_room("checkpoints")
        assert point.folder.exists()
    cache.make_room("checkpoints")
    assert not point.folder.exists()
