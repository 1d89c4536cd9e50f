# SPDX-License-Identifier: GPL-2.0-or-later
"""This host's tracing: an instance of tracefs for us alone, and all given back behind us."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kdelta import files
from kdelta.errors import InfraError, SpecError, as_root
from kdelta.host import leases

ROOT = Path("/sys/kernel/tracing")
_NAMESPACE = Path("/proc/self/ns/pid")
_FIRST_NAMESPACE = Path("pid:[4026531836]")  # PROC_PID_INIT_INO of include/linux/proc_ns.h
_MOST_BYTES = 64 << 20
_OURS = re.compile(r"kdelta_(\d{1,10})")
_PROBE = re.compile(r"[pr]\d*:(\S+) .*")
GRAPH = "function_graph"
# Of a graph: keep the beginning, no ticks; room on each CPU.
GRAPH_SETTINGS = {
    "options/overwrite": "0",
    "options/funcgraph-irqs": "0",
    "buffer_size_kb": "8192",
    "tracing_on": "1",
}
_USUAL = {"options/overwrite": "1", "options/funcgraph-irqs": "1", "tracing_on": "1"}
_CHOSEN = ("set_graph_function", "set_ftrace_pid", "trace")  # emptied by being opened anew
_EXPANDED = re.compile(r"(\d+)(?: \(expanded: (\d+)\))?")
_SEND = "or trace kernels in guests: name one such as 6.17"


@dataclass(slots=True)
class HostTracefs:
    """An instance below tracefs.  group: of our kprobes; raw: all that was asked and told."""

    root: Path
    group: str
    raw: list[str] = field(default_factory=list)
    before: dict[str, str] = field(default_factory=dict)  # of what is everybody's

    @property
    def place(self) -> Path:
        """The instance's folder."""
        return self.root / "instances" / self.group

    def define(self, probe: str) -> int:
        """Make a kprobe; all instances have it.  0, or an errno."""
        return self._write(self.root / "kprobe_events", probe)

    def write(self, file: str, value: str) -> int:
        """Write into a file of the instance.  0, or an errno."""
        return self._write(self.place / file, value)

    def set(self, file: str, value: str) -> int:
        """Write into a file of tracefs itself, until `reset`.  0, or an errno."""
        if file in GRAPH_SETTINGS:
            self.before.setdefault(file, _line(self.root / file))
        return self._write(self.root / file, value)

    def reset(self) -> None:
        """Give back all that was set."""
        _ungraph(self.root, self.before)
        self.before.clear()

    def read(self, file: str, *, whole: bool = False) -> str | None:
        """A file of the instance, or of tracefs as a whole; None when it cannot be read."""
        path = (self.root if whole else self.place) / file
        try:
            text = files.content(path, _MOST_BYTES).decode(errors="replace")
        except OSError as error:
            self.raw.append(f"==> read {file}\n{error.strerror}\n")
            return None
        self.raw.append(f"==> read {file}\n{text}\n")
        return text

    def _write(self, path: Path, value: str) -> int:
        status = _written(path, value)
        self.raw.append(f"==> write {path.relative_to(self.root)} {value}\n{status}\n")
        return status


@contextmanager
def instance(cancelled: threading.Event, root: Path = ROOT) -> Iterator[HostTracefs]:
    """Trace on this host; one kdelta of a user after the other.

    Raises SpecError for who is not root, InfraError where there is no tracefs, and where somebody
    else traces.
    """
    check(root)
    with ExitStack() as held:
        leases.wait("tracing", held, cancelled)
        _clear(root)
        _refuse_others(root)
        found = HostTracefs(root=root, group=f"kdelta_{os.getpid()}")
        held.callback(_give_back, root, found.group)
        held.callback(found.reset)
        try:
            found.place.mkdir(mode=0o700)
        except OSError as error:
            raise InfraError(
                f"no instance of tracefs can be made: {error.strerror}",
                place=str(found.place),
                action=f"is it locked down? see: kdelta doctor; {_SEND}",
            ) from error
        yield found


def check(root: Path = ROOT) -> None:
    """Raise when this user cannot trace here."""
    if os.geteuid() != 0:
        raise SpecError("only root may trace this host", action=f"sudo kdelta ..., {_SEND}")
    if _NAMESPACE.readlink() != _FIRST_NAMESPACE:
        raise InfraError(
            "process numbers in this container are not those that the kernel traces",
            action=f"run kdelta outside of it, {_SEND}",
        )
    if not (root / "instances").is_dir():
        mount = as_root(f"mount -t tracefs tracefs {ROOT}")
        raise InfraError("tracefs is not mounted", place=str(root), action=f"{mount}, {_SEND}")


def _refuse_others(root: Path) -> None:
    """What somebody else traces, tracing of ours would disturb, and the other way round."""
    tracer = _line(root / "current_tracer")
    if tracer not in ("", "nop"):
        raise _busy(root, f"the tracer {tracer} is on")
    if _line(root / "set_event"):
        raise _busy(root, "events are traced")
    if _line(root / "kprobe_events"):
        raise _busy(root, "kprobes are set")
    others = sorted(path.name for path in (root / "instances").iterdir() if path.is_dir())
    if others:
        raise _busy(root, f"there is an instance {others[0]}")


def _busy(root: Path, what: str) -> InfraError:
    return InfraError(
        f"somebody else traces: {what}", place=str(root), action=f"end that first, {_SEND}"
    )


def _line(path: Path) -> str:
    """The first line of a file, "" when it cannot be read."""
    with contextlib.suppress(OSError):
        return files.content(path, _MOST_BYTES).decode(errors="replace").partition("\n")[0].strip()
    return ""


def _clear(root: Path) -> None:
    """Give back what a kdelta that was killed has left."""
    for path in (root / "instances").iterdir():
        left = _OURS.fullmatch(path.name)
        if left and not Path("/proc", left[1]).exists():
            if _line(root / "current_tracer") == GRAPH:  # it was nobody's when that one began
                _ungraph(root, _USUAL)
            _give_back(root, path.name)


def _ungraph(root: Path, before: Mapping[str, str]) -> None:
    """Give tracefs's own tracer back.  before: what settings were; without any nothing was set."""
    if not before:
        return
    _written(root / "current_tracer", "nop")
    for file in _CHOSEN:
        with contextlib.suppress(OSError):
            os.close(os.open(root / file, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC))
    for file, value in before.items():
        size = _EXPANDED.fullmatch(value)
        if size:
            _written(root / file, size[2] or size[1])


def _give_back(root: Path, group: str) -> None:
    """Remove an instance, with its triggers, and then our kprobes, which are nobody's now."""
    with contextlib.suppress(OSError):
        (root / "instances" / group).rmdir()
    with contextlib.suppress(OSError):
        text = files.content(root / "kprobe_events", _MOST_BYTES).decode(errors="replace")
        for line in text.splitlines():
            probe = _PROBE.fullmatch(line)
            if probe and probe[1].startswith(f"{group}/"):
                _written(root / "kprobe_events", f"-:{probe[1]}")


def _written(path: Path, value: str) -> int:
    """0, or an errno.  What was there before is not cut off: tracefs takes that for an order."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    except OSError as error:
        return error.errno or -1
    try:
        os.write(fd, f"{value}\n".encode())
    except OSError as error:
        return error.errno or -1
    finally:
        os.close(fd)
    return 0
