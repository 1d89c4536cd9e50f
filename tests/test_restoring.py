# SPDX-License-Identifier: GPL-2.0-or-later
"""A checkpoint that is damaged, gone, or made again by another trial meanwhile."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kdelta import cache
from kdelta.guests import checkpoint
from kdelta.guests.qemu import Qemu
from kdelta.guests.session import RestoreError
from kdelta.kernels.kernel import Kernel
from kdelta.machine.axes import MachineSettings
from kdelta.run.guest_trial import Bench, RestoredGuest


class Store:
    """One checkpoint, made when it is not there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made = self.discarded = 0

    def make(self) -> None:
        scratch = self.folder.with_name(f"scratch{self.made}")
        scratch.mkdir()
        (scratch / "state").write_text(f"{self.made}")
        (scratch / "meta.json").write_text('{"settled": true, "build_id": "id"}')
        shutil.rmtree(self.folder, ignore_errors=True)
        scratch.rename(self.folder)
        self.made += 1

    @contextmanager
    def lent(self, *_machine: object, **_bounds: object) -> Iterator[checkpoint.Checkpoint]:
        if not self.folder.is_dir():
            self.make()
        yield checkpoint._at(self.folder)

    def discard(self, place: Path) -> None:
        self.discarded += 1
        shutil.rmtree(place)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    found = Store(tmp_path / "point")
    monkeypatch.setattr(checkpoint, "lent", found.lent)
    monkeypatch.setattr(cache, "discard", found.discard)
    return found


@pytest.fixture
def guest(tmp_path: Path) -> RestoredGuest:
    bench = Bench(
        emulator=Qemu(program=Path("qemu")), settings=MachineSettings(), fresh_boot=False,
        timeout_s=1, cancelled=threading.Event(),
    )  # fmt: skip
    kernel = Kernel(
        reference="6.17", release="6.17.1", arch="amd64", image=tmp_path / "image", image_sha256=""
    )
    return RestoredGuest(bench, kernel)


def test_one_that_is_not_taken_is_made_again_once(store: Store, guest: RestoredGuest) -> None:
    seen: list[str] = []

    def refuse(point: checkpoint.Checkpoint) -> str:
        seen.append((point.folder / "state").read_text())
        if len(seen) == 1:
            raise RestoreError("QEMU does not take it")
        return "done"

    assert guest.used(refuse)[1] == "done"
    assert (seen, store.discarded) == (["0", "1"], 1)


def test_what_another_trial_made_again_is_kept(store: Store, guest: RestoredGuest) -> None:
    """Two trials find one damaged: the second used to throw away what the first had made."""
    seen: list[str] = []

    def look(point: checkpoint.Checkpoint) -> None:
        seen.append((point.folder / "state").read_text())
        if len(seen) == 1:
            store.make()
            raise RestoreError("the saved guest is damaged")

    guest.used(look)
    assert (seen, store.discarded) == (["0", "1"], 0)


def test_one_that_goes_before_it_is_looked_at_is_made_again(
    store: Store, guest: RestoredGuest
) -> None:
    store.folder.mkdir()  # another process has just removed its files
    real = store.lent

    @contextmanager
    def lent(*machine: object, **bounds: object) -> Iterator[checkpoint.Checkpoint]:
        try:
            with real(*machine, **bounds) as point:
                yield point
        finally:
            shutil.rmtree(store.folder, ignore_errors=True)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(checkpoint, "lent", lent)
        assert guest.used(lambda point: (point.folder / "state").read_text())[1] == "0"
