# SPDX-License-Identifier: GPL-2.0-or-later
"""Warm build directories: one private checkout for each line of trees, brought from tree to tree.

    <cache>/trees/LINE/src            the files of one tree at a time
    <cache>/trees/LINE/src/kdelta-KEY what make made of it for one configuration and compiler

git changes only the files that differ and gives them the time of now, so make compiles again what
depends on them and nothing else: a variant, and the way back, cost the files they change.  The
output lies inside the source because kbuild then writes relative paths: what it makes does not
depend on where the cache is.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from kdelta import cache
from kdelta.errors import InfraError
from kdelta.source import git
from kdelta.source.tree import SourceTree

_ORPHANS_S = 60.0
_MOST_NOTE = 4 << 20
_MARKER = ".kdelta-building"
_READY = ".kdelta-ready"
_OURS = threading.local()  # lines that a thread has: waiting for itself would take for ever


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """The checkout of one line, ours alone while its context lasts."""

    folder: Path
    busy: int  # a locked file descriptor; programs that inherit it keep the workspace locked

    @property
    def source(self) -> Path:
        """The checked-out files."""
        return self.folder / "src"

    def check_out(self, tree: SourceTree) -> frozenset[str]:
        """Make the files those of a tree, whatever state they are in; the names of those that were
        others before, as far as that is known.  Raises InfraError.
        """
        index = self.folder / "index"
        index.with_name("index.lock").unlink(missing_ok=True)  # a killed git's: we hold the lock
        others = frozenset[str]()
        if index.exists():
            found = git.run(
                "diff-index", "--cached", "--name-only", "-z", tree.tree,
                index=index, borrowed=tree.objects, timeout=git.LONG_S, check=False,
            )  # fmt: skip
            others = frozenset(filter(None, found.stdout.split("\0")))
        unclean = self.folder / "unclean"
        with cache.writing(self.folder):
            self.source.mkdir(parents=True, exist_ok=True)
            if unclean.exists():
                git.run("clean", "-d", "--force", "--force", "-x", "--quiet", "--exclude=/kdelta-*",
                        index=index, work_tree=self.source, timeout=git.LONG_S)  # fmt: skip
            unclean.touch()
        git.run(
            "read-tree", "--reset", "-u", tree.tree,
            index=index, work_tree=self.source, borrowed=tree.objects, timeout=git.LONG_S,
        )  # fmt: skip
        unclean.unlink()
        return others

    def output(self, key: str) -> Path:
        """The build directory of a configuration and compiler; empty when it is new."""
        folder = self.source / f"kdelta-{key[:16]}"
        if not folder.is_dir():
            cache.make_room("trees", keep=self.folder)
        with cache.writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        return folder


@contextlib.contextmanager
def opened(line: str) -> Iterator[Workspace]:
    """The workspace of a line; others wait.  Compilers that a killed kdelta left are ended."""
    if re.search(r"[\s:]", str(cache.root())):
        raise InfraError(
            "kernels cannot be built in a folder with a space or colon in its path",
            place=str(cache.root()),
            action="point XDG_CACHE_HOME elsewhere",
        )
    mine: set[str] = _OURS.__dict__.setdefault("lines", set())
    if line in mine:
        raise RuntimeError(f"this thread already has the workspace of {line}")
    with cache.workplace("trees", line) as folder:
        with cache.writing(folder):
            busy = (folder / "busy").open("ab")
        with busy:
            _flock(busy.fileno(), folder)
            mine.add(line)
            try:
                yield Workspace(folder=folder, busy=busy.fileno())
            finally:
                mine.discard(line)


@contextlib.contextmanager
def building(output: Path) -> Iterator[None]:
    """Around a make in a build directory: what it leaves half-made is removed before the next."""
    marker = output / _MARKER
    with cache.writing(output):
        if marker.exists():
            _drop_unfinished(output, marker.stat().st_mtime_ns)
        marker.touch()
    yield
    with cache.writing(output):
        marker.unlink(missing_ok=True)


def ready(output: Path) -> str:
    """What `set_ready` last said of a build directory, or "" for a new one."""
    with contextlib.suppress(OSError):
        return (output / _READY).read_text()
    return ""


def outdated(output: Path, changed: Collection[str]) -> int:
    """How many objects of a build directory were made of files that changed, by kbuild's notes."""
    if not changed:
        return 0
    names = {f"../{name}".encode() for name in changed}
    found = 0
    for note in output.rglob(".*.o.cmd"):
        with contextlib.suppress(OSError), note.open("rb") as stream:
            found += not names.isdisjoint(stream.read(_MOST_NOTE).split())
    return found


def set_ready(output: Path, state: str) -> None:
    """Remember for which state a build directory is configured."""
    with cache.writing(output):
        (output / _READY).write_text(state)


def _drop_unfinished(output: Path, since_ns: int) -> None:
    """Remove what an interrupted make may have left cut off.

    kbuild notes the command of a file (.FILE.cmd) when the file is done, and believes a file that
    is newer than its sources.  So a file that is newer than its note goes, and so does a note
    that does not end as fixdep ends it.
    """
    for parent, _, names in os.walk(output):
        for name in names:
            note = Path(parent) / f".{name}.cmd"
            path = Path(parent) / name
            with contextlib.suppress(FileNotFoundError):
                when = path.lstat().st_mtime_ns
                if when < since_ns:
                    continue
                if name.endswith(".cmd") and name.startswith("."):
                    text = path.read_text(errors="replace")
                    if "\nsource_" in text and "\n$(deps_" not in text:
                        path.unlink()
                elif note.exists() and note.stat().st_mtime_ns < when:
                    path.unlink()


def _flock(descriptor: int, folder: Path) -> None:
    """Lock the file that programs of a build inherit; end those that a killed kdelta left."""
    deadline = time.monotonic() + _ORPHANS_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise InfraError(
                    "programs of an earlier build still run in its folder",
                    place=str(folder),
                    action="end them, and run again",
                ) from error
            _end_holders(folder / "busy")
            time.sleep(0.1)
        else:
            return


def _end_holders(busy: Path) -> None:
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended, or is another user's
            links = {str(link.readlink()) for link in (process / "fd").iterdir()}
            if str(busy) in links and int(process.name) != os.getpid():
                os.kill(int(process.name), signal.SIGKILL)
