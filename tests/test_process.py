# SPDX-License-Identifier: GPL-2.0-or-later
"""Other programs: bounded in time, ended with all that they started, told as one sentence."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kdelta import process
from kdelta.errors import InfraError

# Starts a process that would live on, notes its number, and does what is put behind it.
LEAVES = "sleep 300 & echo $! > {file}; {then}"


def started(folder: Path, then: str) -> tuple[list[str], Path]:
    file = folder / "pid"
    return ["sh", "-c", LEAVES.format(file=file, then=then)], file


def runs(pid: int) -> bool:
    """True while the process is there and not a zombie that nobody has reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until_gone(file: Path) -> bool:
    pid = int(file.read_text())
    deadline = time.monotonic() + 5
    while runs(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not runs(pid)


@pytest.mark.parametrize("then", ["exit 0", "sleep 300", "trap '' TERM; sleep 1; sleep 300"])
def test_end_ends_the_group_whether_its_leader_lives_or_not(tmp_path: Path, then: str) -> None:
    argv, file = started(tmp_path, then)
    child = process.start(argv)
    while not file.exists() or not file.read_text().endswith("\n"):
        time.sleep(0.01)
    if then == "exit 0":
        child.wait()
    process.end(child)
    assert wait_until_gone(file)


def test_what_a_command_leaves_running_ends_at_its_timeout(tmp_path: Path) -> None:
    """The process that is left holds the pipe, so that only time ends the waiting."""
    argv, file = started(tmp_path, "exit 0")
    with pytest.raises(InfraError, match="sh did not end within 1 s"):
        process.run(argv, timeout=1)
    assert wait_until_gone(file)


def test_what_a_finished_command_leaves_running_ends_with_it(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    done = process.run(
        ["sh", "-c", f"sleep 300 > /dev/null 2>&1 & echo $! > {file}; echo said"], timeout=10
    )
    assert done.stdout == "said\n"
    assert wait_until_gone(file)


def test_a_failed_command_is_told_with_its_last_words() -> None:
    with pytest.raises(InfraError, match="sh failed with exit status 3: the end") as caught:
        process.run(["sh", "-c", "echo begin >&2; echo the end >&2; exit 3"], timeout=10)
    assert "run it by hand to see why: sh -c 'echo begin" in caught.value.action
    done = process.run(["sh", "-c", "echo out; exit 3"], timeout=10, check=False)
    assert (done.returncode, done.last_words) == (3, "out")


def test_a_missing_program_is_named() -> None:
    assert process.which("no-such-program") is None
    with pytest.raises(InfraError, match="no-such-program is not installed"):
        process.run(["no-such-program"], timeout=1)


def test_an_environment_is_added_to_and_input_is_closed() -> None:
    done = process.run(["sh", "-c", 'cat; echo "$A $HOME"'], timeout=10, env={"A": "given"})
    assert done.stdout == f"given {os.environ['HOME']}\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts what becomes another user")
def test_a_command_that_is_stopped_is_told_while_it_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process, "_STOPPED_S", 0.5)
    with pytest.raises(InfraError, match="sh did not end within 3 s: it was stopped"):
        process.run(["sh", "-c", "kill -STOP $$"], timeout=3)
    (told,) = caplog.messages
    assert re.fullmatch(
        r"waiting for sh, \d s so far; it is stopped: kill -CONT \d+ lets it go on", told
    )


def test_a_quick_command_that_only_sleeps_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_REST_S", 1.5)
    with pytest.raises(process.SlowError, match=r"sh did not end within [1-9] s"):
        process.run(["sh", "-c", "sleep 300 & wait"], timeout=60, quick=True)
    works = process.run(["timeout", "4", *BUSY], timeout=60, quick=True, check=False)
    assert works.returncode == 124


@pytest.mark.parametrize("ends", [True, False])
def test_what_became_another_user_ends_with_its_killed_caller(tmp_path: Path, ends: bool) -> None:  # noqa: FBT001
    """The kernel forgets then that it was to end it; whoever kills all our children, kills the one
    that does not forget, too.
    """
    became = "setpriv --reuid 65534 --regid 65534 --clear-groups sleep 300"
    script = f"""if True:
        import os, signal, subprocess, sys
        from kdelta import process
        for _ in range(3):
            process.end(process.start({became.split()!r}, die_with_caller=True))
        subprocess.run(["pkill", "-9", "-P", str(os.getpid()), "sh"])
        child = process.start({became.split()!r}, die_with_caller=True)
        while b"sleep" not in open(f"/proc/{{child.pid}}/comm", "rb").read():
            pass
        print(child.pid, flush=True)
        if {ends}:
            process.end(child)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL
    (tmp_path / "pid").write_text(done.stdout)
    assert wait_until_gone(tmp_path / "pid")


BUSY = ["sh", "-c", "while :; do :; done"]


@pytest.mark.program
@pytest.mark.parametrize(
    ("most", "count", "starved", "least"),
    [
        (1000, 5, False, 0.7),  # what others took does not count
        (2, 9, True, 0.0),  # and what never runs is not waited for without end
    ],
)
def test_patience_beside_others(
    monkeypatch: pytest.MonkeyPatch, most: int, count: int, *, starved: bool, least: float
) -> None:
    monkeypatch.setattr(process, "_MOST_PATIENCE", most)
    cpu = str(min(os.sched_getaffinity(0)))
    loops = [process.start(["taskset", "-c", cpu, *BUSY]) for _ in range(count)]
    try:
        time.sleep(0.2)
        patience = process.Patience(loops[0].pid, 0.5)
        begun = time.monotonic()
        while patience.left:
            time.sleep(0.01)
        assert patience.starved is starved
        assert least < time.monotonic() - begun < 60
    finally:
        for loop in loops:
            process.end(loop)


def test_patience_with_what_idles_is_its_seconds() -> None:
    child = process.start(["sleep", "60"])
    try:
        begun = time.monotonic()
        patience = process.Patience(child.pid, 0.3)
        while patience.left:
            time.sleep(0.01)
        assert 0.3 <= time.monotonic() - begun < 60
        assert not patience.starved
    finally:
        process.end(child)
    assert patience.left == 0.0


def test_a_reaper_that_is_killed_at_once_fails_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sh").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path))
    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda *a, **kw: popen(*a, **kw).wait())
    process._Reaper().tell("started", os.getpid())
