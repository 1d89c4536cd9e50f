# SPDX-License-Identifier: GPL-2.0-or-later
"""kdelta's own git repository: source trees are kept, compared and edited as git trees in it.

It lies in the cache and has no history.  Objects of a user's repository are read where they are
(git's alternates) and nothing is ever written there.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from kdelta import cache, process
from kdelta.errors import InfraError

ID = "[0-9a-f]{40,64}"
_MADE = "kdelta-made"
QUICK_S = 120.0
# A file of a stranger's repository may be a pipe, or have no end.
_ASK_S = 8.0
_BOUNDED = ("prlimit", f"--data={1 << 29}", "--")
LONG_S = 1800.0

# No program that a repository names is started, nor anything fetched: it may be a stranger's.
_SETTINGS = (
    "-c", "core.compression=1", "-c", "gc.auto=0", "-c", "checkout.workers=0",
    "-c", "core.autocrlf=false", "-c", "core.fsmonitor=false", "-c", "core.splitIndex=false",
    "-c", "core.symlinks=true", "-c", "core.fileMode=true", "-c", "core.hooksPath=/dev/null",
    "-c", "core.attributesFile=/dev/null", "-c", "submodule.recurse=false",
)  # fmt: skip
_ASKING = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_ATTR_NOSYSTEM": "1",
}
_OWN = _ASKING | {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
# Whole trees are added at once: as "large" files they go into one pack, and no delta is tried.
ONE_PACK = ("-c", "core.bigFileThreshold=1")


def repository() -> Path:
    """The bare repository in the cache, made when it is not there."""
    home = cache.folder("sources") / "objects.git"
    if not (home / _MADE).exists():
        with cache.workplace("sources", home.name), cache.writing(home):
            argv = ["init", "--quiet", "--bare", "--template=", str(home)]
            _git(argv, home.parent, _OWN, check=True)
            (home / _MADE).touch()
    return home


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

    index: the index file; work_tree: the checked-out files, whose own repository is not looked at;
    borrowed: the object directory of another repository, read only; settings: more of git's
    configuration.  Raises InfraError as `process.run` does.
    """
    home = repository()
    # A colon separates directories in the variable of alternates; git takes a C-quoted name.
    lent = str(borrowed).replace("\\", "\\\\").replace('"', '\\"')
    env = {
        **_OWN,
        "GIT_DIR": str(home),
        "GIT_OBJECT_DIRECTORY": str(home / "objects"),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{lent}"' if borrowed else "",
        "GIT_INDEX_FILE": str(index or home / "index"),
        "GIT_WORK_TREE": str(work_tree or home),
    }
    argv = [*settings, *arguments]
    with cache.writing(home):
        done = _git(argv, work_tree or home, env, stdin=stdin, timeout=timeout)
    raise_if_full(done.stderr)
    if check and done.returncode:
        raise InfraError(
            f"git failed: {done.last_words}",
            action=f"run it by hand to see why: {process.quote(done.argv)}",
        )
    return done


def ask(folder: Path, *arguments: str) -> process.Completed:
    """Ask the repository around a folder where it has something, or what a name means in it.

    A git that fails says so in returncode.  Raises InfraError for a repository of another user.
    """
    quick = arguments[0] in ("rev-parse", "config")
    door, timeout = (_BOUNDED, _ASK_S) if quick else ((), QUICK_S)
    try:
        done = _git(["-C", str(folder), *arguments], None, _ASKING, door=door, timeout=timeout)
    except process.SlowError as error:
        action = "look for a pipe or a file without end in its .git, and at: type -a git"
        raise InfraError(error.cause, place=str(folder), action=action) from error
    if done.returncode and "dubious ownership" in done.stderr:
        cause = "git refuses the repository because another user owns it"
        action = "allow it with: git config --global --add safe.directory PATH"
        raise InfraError(cause, place=str(folder), action=action)
    return done


def _git(
    arguments: Sequence[str],
    cwd: Path | None,
    env: Mapping[str, str],
    *,
    door: Sequence[str] = (),
    stdin: IO[bytes] | None = None,
    timeout: float = QUICK_S,
    check: bool = False,
) -> process.Completed:
    # kdelta may itself be called by a git (a hook, git bisect run), which says where it is.
    theirs = sorted(name for name in os.environ if name.startswith("GIT_") and name not in env)
    unset = [word for name in theirs for word in ("-u", name)]
    argv = [*door, *(("env", *unset) if theirs else ()), "git", *_SETTINGS, *arguments]
    return process.run(
        argv, timeout=timeout, cwd=cwd, env=env, stdin=stdin, check=check, name="git"
    )


def raise_if_full(said: str) -> None:
    """Raise InfraError when git's messages say that the cache's disk is full."""
    if re.search(r"No space left on device|Disk quota exceeded|Out of diskspace", said):
        raise cache.disk_full(repository())


def work_tree(tree: str, title: str, folder: Path) -> None:
    """Write a tree of kdelta's repository into a new folder, as a repository with one commit."""
    author = ("-c", "user.name=kdelta", "-c", "user.email=kdelta@localhost")
    commit = run("commit-tree", tree, "-m", title, settings=author).told(ID)
    _git(["init", "--quiet", "--template=", str(folder)], folder.parent, _OWN, check=True)
    with scratch_folder() as scratch:
        (scratch / "wanted").write_text(f"{commit}\n")
        with (scratch / "wanted").open("rb") as stream:
            pack = str(folder / ".git/objects/pack/pack")
            run("pack-objects", "--revs", "--quiet", pack, stdin=stream, settings=ONE_PACK,
                timeout=LONG_S)  # fmt: skip
    done = _git(
        ["-C", str(folder), "reset", "--hard", "--quiet", commit], None, _OWN, timeout=LONG_S
    )
    if done.returncode:
        raise InfraError(f"git failed: {done.last_words}", place=str(folder))


def write_files(tree: str, names: Sequence[str], folder: Path, *, borrowed: Path | None) -> None:
    """Write some files of a tree below a folder."""
    with scratch_index() as index:
        run("read-tree", tree, index=index, borrowed=borrowed)
        how = ("checkout-index", "--force", f"--prefix={folder}/", "--")
        run(*how, *names, index=index, borrowed=borrowed)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder beside the repository that is gone after the context."""
    home = repository()
    with cache.writing(home), tempfile.TemporaryDirectory(dir=home, prefix="scratch-") as name:
        yield Path(name)


@contextmanager
def scratch_index() -> Iterator[Path]:
    """A name for an index file that is gone after the context."""
    with scratch_folder() as folder:
        yield folder / "index"
