# SPDX-License-Identifier: GPL-2.0-or-later
"""A PostgreSQL server of one's own: a cluster in a folder, on a socket in it, and gone after."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = "nobody"


def programs() -> Path | None:
    """Where Debian's newest PostgreSQL has its programs, None without one."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=_version)
    return found[-1].parent if found else None


def _version(path: Path) -> int:
    name = path.parts[-3]
    return int(name) if name.isdecimal() else 0


class Cluster:
    """A private cluster.  The server refuses root, so root starts it as nobody."""

    def __init__(self, folder: Path) -> None:
        bin_ = programs()
        if bin_ is None:
            raise FileNotFoundError("PostgreSQL is not installed: apt-get install postgresql")
        self._bin, self.folder = bin_, folder
        self._data = folder / "data"
        self._as: list[str] = []
        if os.geteuid() == 0:
            user = pwd.getpwnam(NOBODY)
            folder.mkdir(parents=True, exist_ok=True)
            os.chown(folder, user.pw_uid, user.pw_gid)
            setpriv = shutil.which("setpriv") or "/usr/bin/setpriv"
            groups = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
            self._as = [setpriv, *groups]

    @property
    def url(self) -> str:
        """What KDELTA_LAB is for its one database."""
        return f"postgresql://kdelta@/postgres?host={self.folder}"

    def make(self) -> None:
        """Make the cluster's files."""
        self._run(
            "initdb", "-D", str(self._data), "-U", "kdelta", "-A", "trust", "-N", "-E", "UTF8"
        )

    def start(self) -> None:
        """Start the server, and wait until it takes connections."""
        # No address, only the socket; nothing of it is on the network.
        own = f"-c listen_addresses='' -c unix_socket_directories='{self.folder}'"
        log = str(self.folder / "log")
        patience = 40
        while True:
            try:
                self._run("pg_ctl", "-D", str(self._data), "-w", "-l", log, "-o", own, "start")
            except subprocess.CalledProcessError:  # sessions of one that was killed are ending
                patience -= 1
                if not patience:
                    raise
                time.sleep(0.25)
            else:
                return

    def stop(self, how: str = "fast") -> None:
        """Stop the server: fast, or immediate, as when its machine lost power."""
        self._run("pg_ctl", "-D", str(self._data), "-m", how, "-w", "stop")

    @property
    def pid(self) -> int:
        """The number of the server's first process."""
        return int((self._data / "postmaster.pid").read_text().splitlines()[0])

    def _run(self, program: str, *arguments: str) -> None:
        argv = [*self._as, str(self._bin / program), *arguments]
        subprocess.run(
            argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL, cwd="/", env={"LC_ALL": "C", "PATH": os.defpath}, timeout=120,
        )  # fmt: skip


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A running cluster, stopped and removed at the end."""
    # Not below a private folder, which the server's user could not enter, nor far down: the path of
    # a socket is short.
    with tempfile.TemporaryDirectory(prefix="kdelta-pg-", dir="/tmp") as scratch:
        Path(scratch).chmod(0o755)
        own = Cluster(Path(scratch) / "own")
        own.make()
        own.start()
        try:
            yield own
        finally:
            with contextlib.suppress(subprocess.CalledProcessError):  # it was killed
                own.stop("immediate")
