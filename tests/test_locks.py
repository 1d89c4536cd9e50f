# SPDX-License-Identifier: GPL-2.0-or-later
"""Locks and holds between processes: what is used stays, and who waits is told for what."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kdelta import cache, locks
from kdelta.kinds import KINDS, CacheKind
from kdelta.locks import BusyError

_OTHER = """if True:
    import sys
    from kdelta import cache, kinds, locks
    kinds.KINDS["limited"] = kinds.CacheKind(
        name="limited", holds="", again="", limit_mib=0)
    def say(*words):
        print(*words, flush=True)
        sys.stdin.readline()
"""
_USER = 'say(cache.found("limited", "a") is not None)'
_LENT = """
    with cache.lent("limited", "a", None):
        say("lent")
    say("ended")
"""
_HOLD = """
    with cache.locked("builds-1"):
        say("mine")
"""


@pytest.fixture(autouse=True)
def _kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = CacheKind(name="limited", holds="", again="", limit_mib=0)
    monkeypatch.setitem(KINDS, kind.name, kind)


def fill(folder: Path) -> None:
    (folder / "file").write_text("x")


@contextlib.contextmanager
def other(work: str) -> Iterator[subprocess.Popen[str]]:
    """Another kdelta at work; the first thing that it says has been read."""
    argv = [sys.executable, "-c", _OTHER + ("" if work.startswith("\n") else "    ") + work]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(argv, text=True, **pipes) as child:  # type: ignore[call-overload]
        try:
            assert child.stdout.readline().strip() in {"True", "lent", "mine"}
            yield child
        finally:
            child.kill()


def goes_on(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def opened() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def evicted() -> bool:
    cache.make_room("limited")
    return not (cache.root() / "limited" / "a").exists()


@pytest.mark.parametrize("how", [_USER, _LENT])
def test_what_another_process_uses_stays_until_it_ends(how: str) -> None:
    made = cache.entry("limited", "a", fill)
    with other(how) as user:
        assert not evicted()
        assert cache.clear("limited") == 1
        assert (made / "file").read_text() == "x"
        goes_on(user)
        if how == _LENT:
            assert user.stdout is not None
            assert user.stdout.readline() == "ended\n"
        else:
            user.wait(30)
        assert evicted()


def test_a_killed_user_leaves_nothing() -> None:
    cache.entry("limited", "a", fill)
    with other(_LENT) as user:
        assert not evicted()
        user.send_signal(signal.SIGKILL)
        user.wait(30)
        assert evicted()


def test_what_a_thread_uses_no_other_thread_of_it_evicts() -> None:
    with cache.lent("limited", "a", fill), cache.lent("limited", "a", fill) as again:
        assert (again / "file").is_file()
        assert not evicted()
    assert evicted()
    cache.entry("limited", "a", fill)  # kept, and not in use: it makes room as always
    assert evicted()


def test_while_one_is_removed_nobody_comes_to_hold_it() -> None:
    holds = locks.Holdings(cache.root() / "locks" / "entries")
    rival = locks.Holdings(holds.path)  # as in another process
    with holds.removing("a") as free:
        assert free
        assert not rival.keep("a")
        assert not rival.take("a")
        assert rival.take("b")
    assert rival.take("a")
    with holds.removing("a") as free:
        assert not free
    rival.drop("a")
    with holds.removing("a") as free:
        assert free
    for each in (holds, rival):
        each.close()


def test_a_thousand_holds_leave_no_file_open() -> None:
    cache.entry("limited", "first", fill)
    gc.collect()  # files that tests before this one left
    before = opened()
    holds = cache._holds()
    for number in range(1000):
        assert holds.keep(f"limited-kept-{number}")
        assert holds.take(f"limited-{number}")
    assert opened() == before
    rival = locks.Holdings(holds.path)
    with rival.removing("limited-999") as free:
        assert not free
    for number in range(1000):
        holds.drop(f"limited-{number}")
    with rival.removing("limited-999") as free:
        assert free
    rival.close()
    with contextlib.ExitStack() as held:
        for _ in range(1000):
            held.enter_context(cache.lent("limited", "first", fill))
    assert opened() == before


def refusing(monkeypatch: pytest.MonkeyPatch, place: Path, number: int, how: int = 0) -> None:
    """That file cannot be opened for this error, unless with none of these flags."""
    real = os.open

    def refused(path: Path, flags: int, *mode: int) -> int:
        if path == place and (flags & how or not how):
            raise OSError(number, os.strerror(number))
        return real(path, flags, *mode)

    monkeypatch.setattr(os, "open", refused)


@pytest.mark.parametrize("there", [True, False])
def test_a_cache_that_cannot_be_written_is_held_where_the_file_is(
    there: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache.entry("limited", "a", fill)
    place = cache.root() / "locks" / "entries"
    cache._holds().close()
    if not there:
        place.unlink()
    refusing(monkeypatch, place, errno.EROFS, os.O_RDWR | os.O_CREAT)
    with cache.lent("limited", "a", fill) as folder:
        assert (folder / "file").is_file()
        monkeypatch.undo()
        rival = locks.Holdings(place)
        with rival.removing("limited-a") as free:
            assert free != there
        rival.close()


def test_a_full_disk_holds_nothing_and_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    made = cache.entry("limited", "a", fill)
    cache._holds().close()
    place = cache.root() / "locks" / "entries"
    place.unlink()
    refusing(monkeypatch, place, errno.ENOSPC)
    assert cache.found("limited", "a") == made
    with cache.lent("limited", "a", fill) as folder:
        assert folder == made


# -- who waits ------------------------------------------------------------------------------------


def waited(child: subprocess.Popen[str], name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Wait for a lock of another process, which goes on when that was said."""

    def end() -> None:
        deadline = time.monotonic() + 60
        while not caplog.messages and time.monotonic() < deadline:
            time.sleep(0.01)
        goes_on(child)

    thread = threading.Thread(target=end)
    thread.start()
    with cache.locked(name):
        pass
    thread.join()


@pytest.fixture
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_SILENT_S", 0.05)


@pytest.mark.usefixtures("_hasty")
def test_waiting_for_another_process_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with other(_HOLD) as child:
        waited(child, "builds-1", caplog)
        said = f"waiting for another kdelta (process {child.pid}): it has builds-1"
    assert caplog.messages[0] == said


@pytest.mark.usefixtures("_hasty")
def test_it_is_said_again_and_of_one_that_is_stopped_what_to_do(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(locks, "_AGAIN_S", 0.05)
    with other(_HOLD) as child:
        child.send_signal(signal.SIGSTOP)
        with pytest.raises(BusyError, match="another kdelta has held"), cache.locked("builds-1", 1):
            pass
        child.send_signal(signal.SIGCONT)
        again = f"; it is stopped: kill -CONT {child.pid} lets it go on"
    assert len(caplog.messages) > 1
    assert caplog.messages[-1].endswith(again)


@pytest.mark.usefixtures("_hasty")
def test_waiting_for_an_own_thread_is_not_said(caplog: pytest.LogCaptureFixture) -> None:
    begun = threading.Event()

    def work() -> None:
        with cache.locked("builds-1"):
            begun.set()
            time.sleep(0.3)

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    with cache.locked("builds-1"):
        pass
    thread.join()
    assert caplog.messages == []
