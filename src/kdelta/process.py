# SPDX-License-Identifier: GPL-2.0-or-later
"""The one door to other programs: log the command, bound its time, end its whole group."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import select
import selectors
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kdelta.errors import InfraError
from kdelta.locks import stopped
from kdelta.printable import printable

log = logging.getLogger(__name__)

_KILL_GRACE_S = 2.0
_STOPPED_S, _LOOK_S, TOLD_S, _TOLD_AGAIN_S = 3.5, 1.0, 5.0, 60.0
_REST_S, _POLL_S = 5.0, 0.01
_MOST_BYTES = 256 << 20  # that a command prints
_MOST_PATIENCE = 10
# When its caller is gone, kills the groups that were announced and did not end.
_REAPER = """
trap '' INT TERM HUP
left=
while read -r what pid; do
    others=
    for one in $left; do [ "$one" = "$pid" ] || others="$others $one"; done
    left=$others
    [ "$what" = started ] && left="$left $pid"
done
for one in $left; do kill -9 "-$one"; done
"""
# The caller may end before setpriv asks for its signal: $0 is the number of the caller.
_UNLESS_ORPHANED = '[ "$PPID" = "$0" ] && exec "$@"'


class SlowError(InfraError):
    """A command that did not end in its time, or prints without end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A finished command.  Output is text, undecodable bytes replaced."""

    name: str
    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str

    @property
    def last_words(self) -> str:
        """The last non-empty line it printed, stderr first; for error sentences."""
        lines = [line.strip() for line in (self.stdout + "\n" + self.stderr).splitlines()]
        return next(filter(None, reversed(lines)), "no output")[:300]

    def told(self, form: str) -> str:
        """What it printed, without the last line's end: text of a form.  Raises InfraError."""
        text = self.stdout.removesuffix("\n")
        if not re.fullmatch(form, text, re.DOTALL):
            said = printable(text.partition("\n")[0], 80) or "nothing"
            cause = f"{self.name} gave no answer that can be read: {said}"
            raise InfraError(cause, action=action(self.name))
        return text


def which(program: str) -> Path | None:
    """Path of a program on PATH, or None."""
    found = shutil.which(program)
    return Path(found) if found else None


def action(program: str) -> str:
    """What to do where a program is not what its name says."""
    return f"see what is called so here: type -a {program}"


def quote(argv: Sequence[str]) -> str:
    """The command as a shell would take it."""
    return shlex.join(argv)


def run(
    argv: Sequence[str],
    *,
    timeout: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: IO[bytes] | None = None,
    check: bool = True,
    pass_fds: Sequence[int] = (),
    quick: bool = False,
    name: str = "",
) -> Completed:
    """Run a command to its end.  env: added to this process's.  quick: it waits for nobody, and is
    ended when all of it sleeps.  name: the program that it starts.  Raises InfraError when it is
    missing, takes more than timeout seconds, or (check) exits non-zero.
    """
    name = name or argv[0]
    pipe, by_hand = subprocess.PIPE, f"run it by hand to see why: {quote(argv)}"
    child = start(argv, stdout=pipe, stderr=pipe, stdin=stdin, cwd=cwd, env=env, pass_fds=pass_fds)
    watch = Standstill(child.pid, name, quick=quick)

    def look(ready: Sequence[object]) -> bool:
        watch.look()
        return quick and not ready and watch.rests()

    try:
        said = printed(child, name, timeout, look)
    except SlowError as error:
        cause = error.cause + (": it was stopped" if stopped(child.pid) else "")
        raise SlowError(cause, action=by_hand) from error
    finally:
        end(child)
    out, err = (text.decode(errors="replace") for text in said)
    done = Completed(
        name=name, argv=tuple(argv), returncode=child.returncode, stdout=out, stderr=err
    )
    if check and done.returncode:
        cause = f"{name} failed with exit status {done.returncode}: {done.last_words}"
        raise InfraError(cause, action=by_hand)
    return done


def printed(
    child: subprocess.Popen[bytes],
    name: str,
    seconds: float,
    look: Callable[[Sequence[object]], bool],
    most: int = _MOST_BYTES,
) -> tuple[bytes, bytes]:
    """What a command prints, to its end.  look: called each second at least, with what there is to
    read; True ends it.  Raises SlowError for one that does not end, or prints more than most bytes.
    """
    out, err, begun = bytearray(), bytearray(), time.monotonic()
    with selectors.DefaultSelector() as open_:
        for stream, kept in ((child.stdout, out), (child.stderr, err)):
            if stream:
                open_.register(stream, selectors.EVENT_READ, kept)
        while open_.get_map() or child.poll() is None:  # it may close them and work on
            left = begun + seconds - time.monotonic()
            ready = open_.select(min(_LOOK_S if open_.get_map() else _POLL_S, max(0.0, left)))
            if look(ready) or left <= 0:
                raise SlowError(f"{name} did not end within {time.monotonic() - begun:.0f} s")
            for key, _ in ready:
                key.data.extend(piece := os.read(key.fd, 1 << 16))
                if not piece:
                    open_.unregister(key.fd)
                if len(key.data) > most:
                    raise SlowError(f"{name} printed more than {most >> 20} MiB")
    return bytes(out), bytes(err)


def start(
    argv: Sequence[str],
    *,
    stdout: int | IO[bytes] = subprocess.DEVNULL,
    stderr: int | IO[bytes] = subprocess.DEVNULL,
    stdin: IO[bytes] | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
    die_with_caller: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a command in its own process group.  die_with_caller: the kernel ends it with the
    calling thread (PR_SET_PDEATHSIG by setpriv), but forgets that when root becomes another user: a
    second process ends those.  Raises InfraError when it cannot be started.
    """
    if die_with_caller and which("setpriv"):
        guard = ("setpriv", "--pdeathsig", "KILL", "--", "sh", "-c", _UNLESS_ORPHANED)
        argv = [*guard, str(os.getpid()), *argv]
    log.debug("$ %s", quote(argv))
    merged = {**os.environ, **env} if env else None
    try:
        child = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env=merged,
            pass_fds=tuple(pass_fds),
            start_new_session=True,
        )
    except FileNotFoundError as error:
        action = "see what is missing with: kdelta doctor"
        raise InfraError(f"{argv[0]} is not installed", action=action) from error
    except OSError as error:
        raise InfraError(f"{argv[0]} cannot be started: {error.strerror}") from error
    if die_with_caller and os.geteuid() == 0:
        _reaper.tell("started", child.pid)
    return child


class _Reaper:
    """A process that outlives this one by a moment, and ends the groups announced to it."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._pipe = -1
        self._told: set[int] = set()

    def tell(self, what: str, pid: int) -> None:
        """Announce that a group was started or has ended; ignored for groups it does not watch."""
        with self._mutex:
            if what != "started" and pid not in self._told:
                return
            self._told ^= {pid}
            with contextlib.suppress(OSError):  # there is none, or somebody ended it
                os.write(self._pipe, f"{what} {pid}\n".encode())
                return
            if self._pipe >= 0:
                os.close(self._pipe)
            read, self._pipe = os.pipe()  # nothing that we start inherits our end of the pipe
            subprocess.Popen(
                ["sh", "-c", _REAPER],
                stdin=read,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
            # While our reading end is open, a reaper that was killed already fails no write.
            os.write(self._pipe, "".join(f"started {one}\n" for one in self._told).encode())
            os.close(read)


_reaper = _Reaper()


class Standstill:
    """Tells the user, now and then, that a command is waited for which is stopped, or which should
    have ended (quick).
    """

    def __init__(self, pid: int, name: str, *, quick: bool = False) -> None:
        self._since = self._begun = time.monotonic()
        self._pid, self._name, self._next = pid, name, self._begun + _STOPPED_S
        self._slow = ", and it should have ended" if quick else ""

    def look(self) -> None:
        """Tell it when it is so; called again and again."""
        now = time.monotonic()
        if now >= self._next:
            waited = now - self._begun
            if told := stopped(self._pid) or self._slow:
                log.warning("waiting for %s, %.0f s so far%s", self._name, waited, told)
            again = TOLD_S if waited < _TOLD_AGAIN_S else _TOLD_AGAIN_S
            self._next = now + (again if told else _LOOK_S)

    def rests(self) -> bool:
        """True when all of its group slept for seconds: it waits for what never comes."""
        if not _sleeps(self._pid):
            self._since = time.monotonic()
        return time.monotonic() - self._since >= _REST_S


def _sleeps(group: int) -> bool:
    """True when no process of a group works, or waits for a CPU or a disk."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):  # it has ended
            state, _, own = path.read_text().rpartition(")")[2].split()[:3]
            if own == str(group) and state not in "SZ":
                return False
    return True


class Patience:
    """How long a started command may take: the time in which it was kept from running does not
    count, up to ten times its seconds by the clock.
    """

    def __init__(self, pid: int, seconds: float) -> None:
        self.seconds, self._pid = seconds, pid
        self._begun, self._denied_before = time.monotonic(), _denied_s(pid)

    @property
    def denied(self) -> float:
        """Seconds in which it would have run and could not."""
        return max(0.0, _denied_s(self._pid) - self._denied_before)

    @property
    def left(self) -> float:
        """Seconds that it still has; 0 when its time is over."""
        taken = time.monotonic() - self._begun
        own = self.seconds - taken
        if own <= 0 and taken < _MOST_PATIENCE * self.seconds:
            own += self.denied
        return max(0.0, own)

    @property
    def starved(self) -> bool:
        """True when its time is over by the clock alone: it hardly ran."""
        taken = time.monotonic() - self._begun
        return taken >= _MOST_PATIENCE * self.seconds and taken - self.denied < self.seconds


def _denied_s(pid: int) -> float:
    """Seconds that its busiest thread waited for a CPU (schedstat) or a hypervisor; 0: untold."""
    waited = [0]
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # the thread has ended
            waited.append(int(path.read_text().split()[1]))
    return max(waited) / 1e9 + _stolen_s()


def _stolen_s() -> float:
    with contextlib.suppress(OSError, ValueError, IndexError):
        words = Path("/proc/stat").read_text().partition("\n")[0].split()
        return int(words[8]) / os.sysconf("SC_CLK_TCK") / (os.cpu_count() or 1)
    return 0.0


def end(child: subprocess.Popen[bytes]) -> None:
    """Make sure that a command (it may clean up) and its whole process group are gone."""
    if child.poll() is None:
        _signal_group(child.pid, signal.SIGTERM)
        gone = os.pidfd_open(child.pid)  # Popen.wait() sleeps twice as long each time it looks
        select.select([gone], [], [], _KILL_GRACE_S)
        os.close(gone)
    _signal_group(child.pid, signal.SIGKILL)
    child.wait()
    _reaper.tell("ended", child.pid)
    for stream in (child.stdout, child.stderr):
        if stream is not None:
            stream.close()


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)
