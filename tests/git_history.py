# SPDX-License-Identifier: GPL-2.0-or-later
"""Small git repositories for tests: real ones, made commit by commit."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernel_tree import written

_ALONE = ("-c", "gc.auto=0", "-c", "maintenance.auto=false")  # no second git after each commit


_VERSION = {"Makefile": "VERSION = 6\nPATCHLEVEL = 17\nSUBLEVEL = 0\n"}  # else it is no kernel


class Repository:
    """A git repository in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main", "--template=")
        self._clock = 1_700_000_000

    def git(self, *arguments: str, text: str | None = None) -> str:
        """Run git in it; what it printed."""
        who = ("-c", "user.name=A U Thor", "-c", "user.email=author@example.org", *_ALONE)
        done = subprocess.run(
            ["git", *who, *arguments], cwd=self.folder,
            env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"},
            input=text, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def commit(self, subject: str, files: Mapping[str, str]) -> str:
        """Write files and commit them; the commit's id."""
        written(self.folder, {**_VERSION, **files})
        self._clock += 60
        date = f"--date={self._clock} +0000"
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", subject, date)
        return self.git("rev-parse", "HEAD").strip()

    def line(self, changes: Sequence[tuple[str, Mapping[str, str]]]) -> list[str]:
        """Commits (subject, files with their content), one on the other; their ids.  Quick."""
        stream = []
        for number, (subject, files) in enumerate(changes, 1):
            self._clock += 60
            who = f"A U Thor <author@example.org> {self._clock} +0000"
            stream += ["commit refs/heads/main", f"mark :{number}", f"author {who}"]
            stream += [f"committer {who}", f"data {len(subject.encode())}", subject]
            for name, text in {**_VERSION, **files}.items():
                stream += [f"M 100644 inline {name}", f"data {len(text.encode())}", text]
        marks = self.folder / ".git" / "made"
        self.git("fast-import", "--quiet", f"--export-marks={marks}", text="\n".join(stream))
        ids = dict(row.split() for row in marks.read_text().splitlines())
        return [ids[f":{number}"] for number in range(1, len(changes) + 1)]

    def state(self) -> dict[str, bytes]:
        """Content of every file below the folder, git's own included."""
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file()
        }
