# SPDX-License-Identifier: GPL-2.0-or-later
"""The cache: entries appear whole or not at all, whoever makes them and however they end."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kdelta import cache, files
from kdelta.errors import BootError, InfraError, KdeltaError, SpecError
from kdelta.kinds import KINDS, CacheKind
from kdelta.locks import BusyError

SOME = (
    CacheKind(name="kind", holds="", again=""),
    CacheKind(name="large", holds="", again="", read=()),
    CacheKind(name="limited", holds="", again="", limit_mib=1),
    CacheKind(name="placed", holds="", again="", in_place=True),
)


@pytest.fixture(autouse=True)
def _kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in SOME:
        monkeypatch.setitem(KINDS, kind.name, kind)


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
        from kdelta import cache, kinds
        kinds.KINDS["kind"] = kinds.CacheKind(name="kind", holds="", again="")
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
    assert sorted(path.name for path in made.iterdir()) == [".files.json", "file"]
    assert list(made.parent.iterdir()) == [made]


def test_what_killed_processes_left_goes_and_what_is_being_made_stays() -> None:
    """A guest of 110 MB that was half made stayed until one of its kind was made again."""
    for kind, name in (("checkpoints", ".making-dead"), ("images", ".gone-1")):
        (cache.folder(kind) / name / "half").mkdir(parents=True)
    with cache.passing("selftests") as mine:
        cache.sweep()
        assert mine.is_dir()
    assert [*cache.folder("checkpoints").iterdir(), *cache.folder("images").iterdir()] == []


def test_a_kind_of_another_cache_is_not_cleaned(tmp_path: Path) -> None:
    """Its locks are elsewhere: what is made there would go."""
    half = tmp_path / "images" / ".making-other"
    half.mkdir(parents=True)
    cache.folder("checkpoints")
    (cache.root() / "images").symlink_to(half.parent)
    cache.sweep()
    cache.make_room("images")
    assert half.is_dir()


@pytest.mark.parametrize("place", ["/proc/kdelta-cache", "/dev/null", "/a:b"])
def test_an_unusable_place_is_one_sentence(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", place)
    with pytest.raises(KdeltaError, match=r"the cache(?: cannot be|'s path has a colon)") as caught:
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
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with cache.locked("one"):
            taken.set()
            done.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait(10)
    with pytest.raises(BusyError, match="another kdelta has held a lock"), cache.locked("one", 0.1):
        pass
    done.set()
    holder.join()
    with cache.locked("one", 0.1):
        pass


# -- whole entries --------------------------------------------------------------------------------


def relink(made: Path) -> None:
    (made / "link").unlink()
    (made / "link").symlink_to("elsewhere")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "lost": lambda made: (made / "below" / "second").unlink(),
    "cut": lambda made: (made / "file").write_bytes(b""),
    "changed": lambda made: (made / "file").write_text("y"),
    "linked": relink,
    "forgotten": lambda made: (made / ".files.json").unlink(),
    "garbled": lambda made: (made / ".files.json").write_text("{"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_what_is_not_whole_is_made_anew(damage: Callable[[Path], object]) -> None:
    """An eviction that was killed half-way left such folders, and they passed for whole."""
    made = cache.entry("kind", "key", fill_more)
    assert cache.found("kind", "key") == made
    damage(made)
    assert cache.found("kind", "key") is None
    again = cache.entry("kind", "key", fill_more)
    assert again == made
    assert (again / "below" / "second").read_text() == "2"
    assert (again / "file").read_text() == "x"
    assert sorted(path.name for path in again.parent.iterdir()) == ["key"]


def fill_more(folder: Path) -> None:
    fill(folder)
    (folder / "below").mkdir()
    (folder / "below" / "second").write_text("2")
    (folder / "link").symlink_to("file")


@pytest.mark.parametrize("name", [".files.json", "nothing"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(name: str) -> None:
    def make(folder: Path) -> None:
        fill(folder)
        (folder / "nothing").touch()

    made = cache.entry("kind", "key", make)
    (made / name).unlink()
    os.mkfifo(made / name)
    found: list[Path | None] = []
    look = threading.Thread(target=lambda: found.append(cache.found("kind", "key")), daemon=True)
    look.start()
    look.join(20)
    assert found == [None]
    assert (cache.entry("kind", "key", make) / name).is_file()


def test_a_file_that_is_not_read_is_known_by_its_size() -> None:
    made = cache.entry("large", "key", fill)
    (made / "file").write_text("y")
    assert cache.found("large", "key") == made
    assert cache.recorded(made / "file") == hashlib.sha256(b"x").hexdigest()
    assert cache.recorded(made / "other") == ""
    (made / "file").write_text("yy")
    assert not cache.has("large", "key")
    assert cache.entries("large") == ()


def test_what_one_process_compared_no_other_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    made = cache.entry("large", "key", fill_more)
    assert cache.unchanged(made)
    monkeypatch.setattr(files, "_digests", {})  # another process
    with monkeypatch.context() as patched:
        patched.setattr(files, "sha256_of", lambda _: pytest.fail("read again"))
        assert cache.unchanged(made)
        assert cache.entry("large", "key", fill_more) == made


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("compared", [True, False])
def test_a_change_is_seen_whoever_compared_before(
    compared: bool,  # noqa: FBT001
    damage: Callable[[Path], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = cache.entry("large", "key", fill_more)
    times = (made / "file").stat()
    if compared:
        assert cache.unchanged(made)
    damage(made)
    if (made / "file").exists():
        os.utime(made / "file", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert not cache.unchanged(made)
    monkeypatch.setattr(files, "_digests", {})
    assert not cache.unchanged(made)


def test_what_is_made_is_on_the_disk_before_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    cache.entry("kind", "key", fill_more)
    assert {"file", "second", "below", ".making-key"} <= set(synced[:-1])
    assert synced[-1] == "kind"


def test_what_fails_its_check_is_removed() -> None:
    def check(folder: Path) -> None:
        assert folder == cache.root() / "kind" / "key"
        raise InfraError("does not run here")

    with pytest.raises(InfraError, match="does not run here"):
        cache.entry("kind", "key", fill, check)
    assert list((cache.root() / "kind").iterdir()) == []


# -- room -----------------------------------------------------------------------------------------


def used(key: str, when: float, kind: str = "limited") -> Path:
    made = cache.entry(kind, key, lambda folder: fill(folder, "x" * 1000))
    os.utime(made, (when, when))
    return made


def test_the_longest_unused_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        used(str(number), number)
    cache.entry("limited", "0", fill)  # used now
    limit(monkeypatch, 2500)
    cache.make_room("limited")
    assert sorted(path.name for path in cache.entries("limited")) == ["0", "3"]
    limit(monkeypatch, 0)
    cache.make_room("limited", keep=cache.root() / "limited" / "3")
    assert [path.name for path in cache.entries("limited")] == ["3"]
    assert used("4", 4).is_dir()  # what is made makes room for itself
    assert [path.name for path in cache.entries("limited")] == ["4"]


def limit(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(CacheKind, "limit_bytes", size)


def test_a_bad_limit_is_the_user_s_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDELTA_LIMITED_MIB", "much")
    with pytest.raises(SpecError, match="not a number of MiB: 'much'"):
        cache.make_room("limited")
    monkeypatch.setenv("KDELTA_LIMITED_MIB", "3")
    assert KINDS["limited"].limit_bytes == 3 << 20


EVICT = """if True:
    import sys
    from kdelta import cache, kinds
    kinds.KINDS["limited"] = kinds.CacheKind(
        name="limited", holds="", again="", limit_mib=0)
    print("ready", flush=True)
    sys.stdin.readline()
    cache.make_room("limited")
"""


def test_two_may_evict_at_once() -> None:
    """The second met entries that the first had just removed, and failed."""
    for number in range(100):
        used(str(number), number)
    cache._holds().close()  # those who made them ended
    running = [
        subprocess.Popen(
            [sys.executable, "-c", EVICT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    for child in running:
        assert child.stdout is not None
        child.stdout.readline()
    for child in running:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.close()
    assert [child.wait(60) for child in running] == [0, 0, 0]
    for child in running:
        assert child.stdout is not None
        child.stdout.close()
    assert list((cache.root() / "limited").iterdir()) == []


def test_two_that_evict_at_once_remove_no_more_than_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(40):
        used(str(number), number)
    limit(monkeypatch, 20 * 1000)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: cache.make_room("limited"), range(4)))
    assert sorted(int(path.name) for path in cache.entries("limited")) == list(range(20, 40))


def test_what_is_locked_or_being_made_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, 0)
    with cache.workplace("limited", "mine") as place:
        fill(place, "x" * 1000)
        half = place.with_name(".making-other")
        half.mkdir()
        with cache.locked("limited-other"):
            cache.make_room("limited")
        assert place.is_dir()
        assert half.is_dir()
        assert cache.clear("limited") == 1
    cache.make_room("limited")
    assert list((cache.root() / "limited").iterdir()) == []


def test_a_killed_eviction_leaves_nothing_that_passes_for_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used("0", 0)
    with monkeypatch.context() as patch:
        patch.setattr(cache, "_delete", lambda _: None)  # killed just before
        cache.discard(cache.root() / "limited" / "0")
    (left,) = (cache.root() / "limited").iterdir()
    assert left.name.startswith(".gone-")
    assert cache.found("limited", "0") is None
    cache.make_room("limited")
    assert not left.exists()


def test_usage_lists_the_largest_first() -> None:
    assert cache.usage() == ()
    cache.entry("kind", "a", fill)
    cache.entry("large", "a", lambda folder: fill(folder, "x" * 1000))
    cache.entry("large", "b", fill)
    first, second = cache.usage()
    assert (first.kind, first.entries, second.kind, second.entries) == ("large", 2, "kind", 1)
    assert first.size > 1000 > second.size
    assert cache.clear("large") == 0
    assert [row.kind for row in cache.usage()] == ["kind"]


def test_what_nobody_worked_in_is_not_walked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def summed() -> int:
        return sum(row.size for row in cache.usage())

    with cache.workplace("placed", "mine") as place:
        fill(place)
        assert summed() == 1
        fill(place, "xx")
    assert summed() == 2
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", lambda _: pytest.fail("walked"))
        assert summed() == 2
    with cache.workplace("placed", "mine") as place:
        fill(place, "xxx")
    assert summed() == 3
    assert cache.clear("placed") == 0
    assert cache.present() == []


def test_digests_keep_parts_apart() -> None:
    assert cache.digest("ab", "c") != cache.digest("a", "bc")
    assert cache.digest("a") == cache.digest(b"a")
    assert len(cache.digest()) == 64


def _with_hole(folder: Path) -> None:
    with (folder / "memory").open("wb") as file:
        file.truncate(64 << 20)
        file.seek(5 << 20)
        file.write(b"x" * 4096)


def test_a_file_with_holes_counts_by_what_it_stores_and_is_compared_by_it() -> None:
    made = cache.entry("checkpoints", "k", _with_hole)
    (row,) = (one for one in cache.usage() if one.kind == "checkpoints")
    assert 4096 <= row.size < 1 << 20
    assert cache.unchanged(made)
    copy = (made / "memory").read_bytes()  # the holes are filled with zeros
    (made / "memory").write_bytes(copy)
    assert cache.unchanged(made)
    for at in (5 << 20, 40 << 20):
        changed = bytearray(copy)
        changed[at] ^= 1
        (made / "memory").write_bytes(changed)
        assert not cache.unchanged(made)


def test_filled_blocks_are_told_by_their_places(tmp_path: Path) -> None:
    def digest(size: int, **blocks: int) -> str:
        with (tmp_path / "file").open("wb") as file:
            file.truncate(size)
            for name, at in blocks.items():
                file.seek(at)
                file.write(name.encode())
        return files.filled_sha256(tmp_path / "file")

    assert digest(8 << 20) == digest(8 << 20) != digest(9 << 20)
    assert digest(8 << 20, x=1 << 20) != digest(8 << 20, x=2 << 20)
    assert digest(8 << 20, x=1 << 20) != digest(8 << 20, x=(1 << 20) + 1)
    assert digest(8 << 20, x=1 << 20, y=2 << 20) != digest(8 << 20, y=1 << 20, x=2 << 20)
    assert digest((8 << 20) + 3, x=8 << 20) != digest((8 << 20) + 3)


def test_a_passing_folder_is_no_entry_and_leaves_nothing() -> None:
    with cache.passing("checkpoints") as folder:
        (folder / "file").write_text("x")
        assert cache.entries("checkpoints") == ()
        cache.make_room("checkpoints")  # of another process
        assert (folder / "file").is_file()
    assert list((cache.root() / "checkpoints").iterdir()) == []
    assert list((cache.root() / "locks").glob("checkpoints-*")) == []
