# SPDX-License-Identifier: GPL-2.0-or-later
"""The cache: entries appear whole or not at all, whoever makes them and however they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kdelta import cache
from kdelta.errors import BootError, InfraError


def fill(folder: Path, text: str = "x") -> None:
    (folder / "file").write_text(text)


def test_made_once_and_kept() -> None:
    made = []

    def make(folder: Path) -> None:
        made.append(folder)
        fill(folder)

    first = cache.entry("kind", "key", make)
    assert cache.entry("kind", "key", make) == first == cache.root() / "kind" / "key"
    assert len(made) == 1
    assert made[0] != first
    assert (first / "file").read_text() == "x"


def test_what_fails_leaves_nothing_and_passes_through() -> None:
    def fail(folder: Path) -> None:
        fill(folder)
        raise BootError("no")

    with pytest.raises(BootError):
        cache.entry("kind", "key", fail)
    assert list((cache.root() / "kind").iterdir()) == []
    assert (cache.entry("kind", "key", fill) / "file").is_file()


def test_threads_wait_for_one_maker() -> None:
    made = []

    def make(folder: Path) -> None:
        made.append(1)
        time.sleep(0.2)
        fill(folder)

    with ThreadPoolExecutor(4) as pool:
        both = list(pool.map(lambda _: cache.entry("kind", "key", make), range(4)))
    assert len(made) == 1
    assert len(set(both)) == 1


def test_a_killed_maker_leaves_no_lock_and_no_rubbish() -> None:
    script = """if True:
        import time
        from kdelta import cache
        def make(folder):
            (folder / "half").write_text("x")
            print("half", flush=True)
            time.sleep(60)
        cache.entry("kind", "key", make)
    """
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as maker:
        assert maker.stdout is not None
        assert maker.stdout.readline() == b"half\n"
        maker.send_signal(signal.SIGKILL)
    made = cache.entry("kind", "key", fill)
    assert [path.name for path in made.iterdir()] == ["file"]
    assert list(made.parent.iterdir()) == [made]


@pytest.mark.parametrize("place", ["/proc/kdelta-cache", "/dev/null"])
def test_an_unusable_place_is_one_sentence(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", place)
    with pytest.raises(InfraError, match="the cache cannot be") as caught:
        cache.entry("kind", "key", fill)
    assert caught.value.place.startswith(place)
    assert "XDG_CACHE_HOME" in caught.value.action


def test_a_full_disk_is_named() -> None:
    def full(_folder: Path) -> None:
        with Path("/dev/full").open("wb", buffering=0) as stream:
            stream.write(b"x")

    with pytest.raises(InfraError, match="the disk is full"):
        cache.entry("kind", "key", full)


def test_a_lock_held_elsewhere_times_out() -> None:
    path = cache.root() / "locks" / "one"
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with cache.locked(path):
            taken.set()
            done.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait(10)
    with pytest.raises(InfraError, match="another kdelta has held a lock"), cache.locked(path, 0.1):
        pass
    done.set()
    holder.join()
    with cache.locked(path, 0.1):
        pass


def test_the_longest_unused_go_first() -> None:
    for number in range(4):
        made = cache.entry("kind", str(number), lambda folder: fill(folder, "x" * 1000))
        os.utime(made, (number, number))
    cache.entry("kind", "0", fill)  # used now
    removed = cache.evict("kind", 2500)
    assert [path.name for path in removed] == ["1", "2"]
    assert sorted(path.name for path in (cache.root() / "kind").iterdir()) == ["0", "3"]
    keep = cache.root() / "kind" / "3"
    assert [path.name for path in cache.evict("kind", 0, keep)] == ["0"]
    assert keep.is_dir()
    assert cache.evict("no such kind", 0) == []


def test_usage_lists_the_largest_first() -> None:
    assert cache.usage() == ()
    cache.entry("small", "a", fill)
    cache.entry("large", "a", lambda folder: fill(folder, "x" * 100))
    cache.entry("large", "b", fill)
    rows = [(row.kind, row.entries, row.size) for row in cache.usage()]
    assert rows == [("large", 2, 101), ("small", 1, 1)]


def test_digests_keep_parts_apart() -> None:
    assert cache.digest("ab", "c") != cache.digest("a", "bc")
    assert cache.digest("a") == cache.digest(b"a")
    assert len(cache.digest()) == 64
