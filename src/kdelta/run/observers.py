# SPDX-License-Identifier: GPL-2.0-or-later
"""perf and bpftrace beside one process of this host: started before it begins, read at its end."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kdelta import files, process
from kdelta.errors import InfraError
from kdelta.study.tracing import Watch, WatchKind
from kdelta.tracing import observed
from kdelta.tracing.observed import Hits, Unseen
from kdelta.tracing.setting import Refused

_READY_S = 60.0  # until it watches; bpftrace took 25 on an emulated machine
_LAST_S = 20.0  # until it has told all, when the process has ended
_MOST_BYTES = 64 << 20
_ENVIRONMENT = {"LC_ALL": "C"}
_GATE = "gate"


class Observer(ABC):
    """A program that watches a process.  raw: all that it printed, for the trial's folder."""

    def __init__(self, scratch: Path) -> None:
        """scratch: a folder of its own."""
        self.raw = ""
        self._scratch = scratch
        self._child: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def begin(self, pid: int) -> None:
        """Watch a process that has not begun.  Raises Unseen when it cannot."""

    @abstractmethod
    def hits(self) -> tuple[Hits, int]:
        """What the process did, and what was lost of it; once it has ended.  Raises Unseen."""

    def close(self) -> None:
        """End the program, whatever it does."""
        if self._child is not None:
            process.end(self._child)

    def _start(self, *argv: str) -> subprocess.Popen[bytes]:
        if process.which(argv[0]) is None:
            raise Unseen(f"{argv[0]} is not installed (see: kdelta doctor)")
        with (self._out).open("wb") as out, (self._err).open("wb") as err:
            try:
                self._child = process.start(
                    argv,
                    stdout=out,
                    stderr=err,
                    cwd=self._scratch,
                    env=_ENVIRONMENT,
                    die_with_caller=True,
                )
            except InfraError as error:
                raise Unseen(error.cause) from error
        return self._child

    def _waited(self, child: subprocess.Popen[bytes]) -> None:
        """Until it has ended of itself, which is soon.  Raises Unseen."""
        try:
            child.wait(_LAST_S)
        except subprocess.TimeoutExpired as error:
            raise Unseen(f"it did not end within {_LAST_S:.0f} s of what it watched") from error

    @property
    def _out(self) -> Path:
        return self._scratch / "out"

    @property
    def _err(self) -> Path:
        return self._scratch / "err"

    def _text(self, path: Path) -> str:
        with contextlib.suppress(OSError):
            return files.content(path, _MOST_BYTES).decode(errors="replace")
        return ""

    def _why(self, name: str) -> Unseen:
        """Why it does not watch: the first error that it tells, or its last words."""
        lines = [line.strip() for line in self._text(self._err).splitlines()]
        words = [line for line in lines if any(map(str.isalpha, line))]
        errors = [line for line in words if "error" in line.lower()]
        told = next(iter([*errors, *reversed(words)]), "it ended without a word")
        return Unseen(f"{name}: {told[:200]}")

    def _until(self, name: str, ready: Callable[[], bool]) -> None:
        """Wait until it watches.  Raises Unseen when it ends before, or takes too long."""
        child = self._child
        deadline = time.monotonic() + _READY_S
        while child is not None and not ready():
            if child.poll() is not None:
                raise self._why(name)
            if time.monotonic() > deadline:
                raise Unseen(f"{name} did not begin within {_READY_S:.0f} s")
            time.sleep(0.005)


class _Perf(Observer):
    """perf, told by a pipe when to begin, and telling when it has (man perf-stat, --control)."""

    def _attached(self, *argv: str, pid: int) -> None:
        control, told = self._scratch / "control", self._scratch / "told"
        for path in (control, told):
            os.mkfifo(path, 0o600)
        with _pipe(control) as order, _pipe(told) as answer:
            gate = ("-p", str(pid), "-D", "-1", "--control", f"fifo:{control},{told}")
            self._start("perf", *argv, *gate)
            os.write(order, b"enable\n")
            self._until("perf", lambda: bool(select.select([answer], [], [], 0.05)[0]))

    def _ended(self) -> None:
        if self._child is not None:
            self._waited(self._child)


class PerfStat(_Perf):
    """How often an event happened in the process and its threads."""

    def __init__(self, scratch: Path, event: str) -> None:
        """event: as perf list words it."""
        super().__init__(scratch)
        self._event = event

    def begin(self, pid: int) -> None:
        """See Observer."""
        counts = str(self._scratch / "counts")
        self._attached("stat", "-x,", "-e", self._event, "-o", counts, pid=pid)

    def hits(self) -> tuple[Hits, int]:
        """See Observer."""
        self._ended()
        self.raw = self._text(self._scratch / "counts")
        if not self.raw.strip():
            raise self._why("perf")
        return observed.stat(self.raw, self._event), 0


class PerfRecord(_Perf):
    """In which functions an event happened, one of so many each."""

    def __init__(self, scratch: Path, event: str, period: int) -> None:
        """period: events of which one is kept; 1: all."""
        super().__init__(scratch)
        self._event, self._period = event, period

    def begin(self, pid: int) -> None:
        """See Observer."""
        every = ("-c", str(self._period))
        self._attached("record", "-e", self._event, *every, "-o", self._data, pid=pid)

    def hits(self) -> tuple[Hits, int]:
        """See Observer."""
        self._ended()
        argv = ["perf", "script", "-i", self._data, "-F", "ip,sym"]
        done = process.run(argv, timeout=_LAST_S, env=_ENVIRONMENT, check=False)
        if done.returncode:
            raise Unseen(f"perf: {done.last_words}")
        self.raw = done.stdout
        return observed.samples(done.stdout), 0

    @property
    def _data(self) -> str:
        return str(self._scratch / "perf.data")


class Bpftrace(Observer):
    """A bpftrace program, whose first argument, $1, is the process's number.

    It says how many probes it has before it sets any (0.17), so a command of its own tells that
    they are set: that is begun behind them, and bpftrace ends, with its maps, when that does.
    """

    def __init__(self, scratch: Path, program: str) -> None:
        """program: its text."""
        super().__init__(scratch)
        self._program = program
        self._gate: int | None = None

    def begin(self, pid: int) -> None:
        """See Observer."""
        if os.geteuid() != 0:
            raise Unseen("only root may run bpftrace")
        os.mkfifo(self._scratch / _GATE, 0o600)
        command = ("-c", f"{shutil.which('cat') or 'cat'} {_GATE}")
        self._start("bpftrace", "-f", "json", *command, "-e", self._program, str(pid))
        self._until("bpftrace", self._is_attached)
        if told := observed.not_attached(self._text(self._err)):
            raise Unseen(f"bpftrace: {told}")

    def _is_attached(self) -> bool:
        with contextlib.suppress(OSError):  # nobody reads there yet
            self._gate = os.open(self._scratch / _GATE, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        return self._gate is not None

    def hits(self) -> tuple[Hits, int]:
        """See Observer."""
        self._open_gate()
        if self._child is not None:
            self._waited(self._child)
        self.raw = self._text(self._out)
        if told := observed.not_attached(self._text(self._err)):
            raise Unseen(f"bpftrace: {told}")
        return observed.maps(self.raw)

    def close(self) -> None:
        """See Observer."""
        self._open_gate()
        super().close()

    def _open_gate(self) -> None:
        if self._gate is not None:
            os.close(self._gate)
            self._gate = None


@contextmanager
def _pipe(path: Path) -> Iterator[int]:
    """A named pipe, open for both directions, so that nobody waits for the other end."""
    fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


class Observing:
    """The programs beside one run of the workload's, each watching it in its own way."""

    def __init__(
        self, programs: Mapping[str, str], watched: Sequence[Watch], raw: list[str]
    ) -> None:
        """programs: bpftrace's, by name.  raw: gets all that they print."""
        self._programs = programs
        self._watched = watched
        self._raw = raw
        self._held = ExitStack()
        self._observers: dict[Watch, Observer] = {}
        self.refused: list[Refused] = []
        self.told: dict[Watch, tuple[Hits, int]] = {}

    def __enter__(self) -> Observing:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def begin(self, pid: int) -> None:
        """Let each watch a process that has not begun."""
        for one in self._watched:
            folder = self._held.enter_context(tempfile.TemporaryDirectory(prefix="kdelta-watch-"))
            observer = self._observer(one, Path(folder))
            self._held.callback(observer.close)
            try:
                observer.begin(pid)
            except Unseen as reason:
                self.refused.append(Refused(watch=one, reason=str(reason)))
            else:
                self._observers[one] = observer

    def end(self) -> None:
        """Take what each has seen.  Raises GuestError for what is not understood."""
        for one, observer in self._observers.items():
            try:
                self.told[one] = observer.hits()
            except Unseen as reason:
                self.refused.append(Refused(watch=one, reason=str(reason)))
            self._raw.append(f"==> {one.text}\n{observer.raw}\n")

    def _observer(self, one: Watch, scratch: Path) -> Observer:
        if one.kind is WatchKind.PERF:
            return PerfStat(scratch, one.name)
        if one.kind is WatchKind.RECORD:
            return PerfRecord(scratch, one.name, one.period)
        return Bpftrace(scratch, self._programs[one.name])
