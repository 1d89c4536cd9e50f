# SPDX-License-Identifier: GPL-2.0-or-later
"""kdelta's own git repository: source trees are kept, compared and edited as git trees in it.

It lies in the cache and has no history.  Objects of a user's repository are read where they are
(git's alternates) and nothing is ever written there.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from kdelta import cache, process
from kdelta.errors import InfraError

_MADE = "kdelta-made"
QUICK_S = 120.0
LONG_S = 1800.0

_SETTINGS = (
    "-c", "core.compression=1", "-c", "gc.auto=0", "-c", "checkout.workers=0",
    "-c", "core.autocrlf=false", "-c", "core.fsmonitor=false", "-c", "core.splitIndex=false",
    "-c", "core.symlinks=true", "-c", "core.fileMode=true",
)  # fmt: skip
# Whole trees are added at once: as "large" files they go into one pack, and no delta is tried.
ONE_PACK = ("-c", "core.bigFileThreshold=1")


def repository() -> Path:
    """The bare repository in the cache, made when it is not there."""
    home = cache.folder("sources") / "objects.git"
    if not (home / _MADE).exists():
        with cache.workplace("sources", home.name), cache.writing(home):
            argv = ["git", "init", "--quiet", "--bare", str(home)]
            process.run(argv, timeout=QUICK_S, env=_BARE)
            (home / _MADE).touch()
    return home


_BARE = {
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
}


def run(
    *arguments: str,
    index: Path | None = None,
    work_tree: Path | None = None,
    borrowed: Path | None = None,
    settings: Sequence[str] = (),
    stdin: IO[bytes] | None = None,
    timeout: float = QUICK_S,
    check: bool = True,
) -> process.Completed:
    """Run git on kdelta's repository, whatever git's environment and configuration here are.

    index: the index file; work_tree: the checked-out files; borrowed: the object directory of
    another repository, read only; settings: more of git's configuration.
    Raises InfraError as `process.run` does.
    """
    home = repository()
    env = _BARE | {
        "GIT_DIR": str(home),
        "GIT_OBJECT_DIRECTORY": str(home / "objects"),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(borrowed),
        "GIT_INDEX_FILE": str(index or home / "index"),
        "GIT_WORK_TREE": str(work_tree or home),
    }
    argv = ["git", *_SETTINGS, *settings, *arguments]
    with cache.writing(home):
        done = process.run(
            argv, timeout=timeout, cwd=work_tree or home, env=env, stdin=stdin, check=False
        )
    raise_if_full(done.stderr)
    if check and done.returncode:
        raise InfraError(
            f"git failed: {done.last_words}",
            action=f"run it by hand to see why: {process.quote(argv)}",
        )
    return done


def of_user(
    folder: Path, *arguments: str, index: Path | None = None, timeout: float = QUICK_S
) -> process.Completed:
    """Run git in a user's work tree; objects and the index that it writes are kdelta's own.

    Never raises for a git that fails: see returncode.
    """
    env = {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    if index is not None:
        found = of_user(folder, "rev-parse", "--git-path", "objects").stdout.strip()
        env |= {
            "GIT_INDEX_FILE": str(index),
            "GIT_OBJECT_DIRECTORY": str(repository() / "objects"),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(folder / found),
        }
    # kdelta may itself be called by a git (a hook, git bisect run), which says where it is.
    unset = [word for name in _CALLERS if name not in env for word in ("-u", name)]
    argv = ["env", *unset, "git", "-C", str(folder), *_SETTINGS, *arguments]
    return process.run(argv, timeout=timeout, env=env, check=False)


def raise_if_full(said: str) -> None:
    """Raise InfraError when git's messages say that the cache's disk is full."""
    if re.search(r"No space left on device|Disk quota exceeded|Out of diskspace", said):
        raise cache.disk_full(repository())


_CALLERS = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_PREFIX", "GIT_NAMESPACE",
    "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES",
)  # fmt: skip


@contextmanager
def scratch_index() -> Iterator[Path]:
    """A name for an index file that is gone after the context."""
    home = repository()
    with cache.writing(home), tempfile.TemporaryDirectory(dir=home, prefix="scratch-") as name:
        yield Path(name) / "index"


def lines(arguments: Sequence[str], *, borrowed: Path | None = None) -> list[str]:
    """Lines that git prints."""
    return run(*arguments, borrowed=borrowed).stdout.splitlines()


def _quoted(path: Path | None) -> str:
    # A colon separates directories in this variable; git takes a C-quoted name.
    if path is None:
        return ""
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
