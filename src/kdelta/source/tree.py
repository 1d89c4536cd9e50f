# SPDX-License-Identifier: GPL-2.0-or-later
"""From a folder or a commit to an identified source tree: a git tree id says all of its content.

A folder is read, never written.  What git ignores there (objects, an in-tree configuration) is no
source.  Folders without git have an index in the cache, so that they are read once.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kdelta import cache, process
from kdelta.archive.apt import Progress
from kdelta.errors import SpecError
from kdelta.files import path_of
from kdelta.printable import printable
from kdelta.source import git

_VERSION = re.compile(
    r"^(VERSION|PATCHLEVEL|SUBLEVEL|EXTRAVERSION)[ \t]*=[ \t]*(\S*)", re.MULTILINE
)
_SHORT = 12
_WORD = 24
_MOST_FILES = 500_000
_MOST_FILE_GIB = 4
_MOST_INDEX = 1 << 28  # bytes
_MOST_PATTERNS = 1 << 20  # bytes of a list of names to ignore


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTree:
    """One source of a kernel, ready to be built; cheap to make, its files are not on disk yet.

    line: trees of one line are alike (a release and its variants, the commits of a repository)
    and are built one after the other in one warm build directory.
    """

    name: str  # for people, one word: "6.17.8", "6.18.0-rc3-g1a2b3c4d5e6f"
    tree: str  # git tree id: equal content, equal id
    line: str
    commit: str = ""  # full id, for a tree of a git history without local changes
    objects: Path | None = None  # where git finds what kdelta's own repository lacks
    variants: tuple[str, ...] = ()  # names of what was applied, in order

    @property
    def title(self) -> str:
        """Name and variants: "6.17.8+mincore-present-first"."""
        return "+".join((self.name, *self.variants))

    def read(self, path: str) -> bytes | None:
        """Content of a file of the tree as text's bytes, or None when it has no such file."""
        done = git.run(
            "cat-file", "blob", f"{self.tree}:{path}", borrowed=self.objects, check=False
        )
        return None if done.returncode else done.stdout.encode()


def of_commit(path: Path, commit: str) -> SourceTree:
    """The tree of a commit of the repository at `path`.  Raises SpecError where it is no kernel."""
    root = _root(path)
    if root is None:
        why = printable(git.ask(_folder(path), "rev-parse").last_words)
        cause = f"{path} is not in a git repository that can be read, so it has no commit {commit}"
        raise SpecError(f"{cause}: {why}", action="name the folder alone, or a clone")
    ids = []
    for kind in ("commit", "tree"):
        word = f"{commit}^{{{kind}}}"
        done = git.ask(root, "rev-parse", "--verify", "--quiet", "--end-of-options", word)
        if done.returncode:
            action = "name one it has, or see what is damaged with: git fsck"
            raise SpecError(
                f"the repository has no commit {commit}", place=f"{root}", action=action
            )
        ids.append(done.told(git.ID))
    where = ("--git-path", "objects", "--git-common-dir")
    objects, common = git.ask(root, "rev-parse", *where).told(r"[^\n]+\n[^\n]+").split("\n")
    # Work trees of one repository share a line: their commits are alike.
    line = _line_of((root / common).resolve())
    found = SourceTree(
        name="", tree=ids[1], line=line, commit=ids[0], objects=(root / objects).resolve()
    )
    return replace(found, name=f"{release_of(found, root)}-g{ids[0][:_SHORT]}")


def of_folder(path: Path, *, progress: Progress | None = None) -> SourceTree:
    """The tree of a folder as it is now, with changes.  Raises SpecError, InfraError."""
    root = _folder(path)
    if not (root / "Makefile").is_file() or not (root / "Kbuild").is_file():
        cause = "this is not the source of a Linux kernel: it lacks Makefile or Kbuild"
        action = "name the top folder of a kernel's source"
        raise SpecError(cause, place=str(path), action=action)
    top = _root(root)
    # Git would wait for these, or read them for hours.
    strange = f"( -type p -name .git* -o -size +{_MOST_FILE_GIB}G ) -print -quit".split()
    argv = ["find", str(root), "-name", ".git", "-prune", "-o", *strange]
    if found := process.run(argv, timeout=git.QUICK_S, check=False).stdout.strip():
        cause = f"it is a pipe, or has more than {_MOST_FILE_GIB} GiB"
        raise SpecError(cause, place=found, action="remove it: no kernel's source has it")
    if top is not None and top == root.resolve():
        return _work_tree(top)
    return _plain(root, progress)


def changes(old: SourceTree, new: SourceTree) -> dict[str, str]:
    """The files that differ between two trees: name -> A (added), D, M, T (another kind)."""
    words = ("diff-tree", "-r", "--no-renames", "--name-status", "-z", old.tree, new.tree)
    found = git.run(*words, borrowed=new.objects or old.objects).stdout.split("\0")
    return dict(zip(found[1::2], found[::2], strict=False))


def release_of(tree: SourceTree, place: Path | str) -> str:
    """The version in a tree's Makefile: "6.17.8", "6.18.0-rc3".  Raises SpecError."""
    text = (tree.read("Makefile") or b"").decode(errors="replace")[:4000]
    words: dict[str, str] = dict(_VERSION.findall(text))
    keys = ("VERSION", "PATCHLEVEL", "SUBLEVEL")
    if not all(words.get(key, "").isdigit() for key in keys):
        cause = "this is not the source of a Linux kernel: its Makefile says no version"
        action = "name the top folder of a kernel's source"
        raise SpecError(cause, place=str(place), action=action)
    return ".".join(words[key] for key in keys) + words.get("EXTRAVERSION", "")


def added(
    folder: Path,
    *,
    everything: bool,
    index: Path,
    borrowed: Path | None = None,
    settings: Sequence[str] = git.ONE_PACK,
) -> str:
    """Take the files below a folder into kdelta's repository; returns their tree id.

    everything: also what the folder's .gitignore files name.  borrowed: where the objects of an
    index that is not empty are.  settings: of git.
    """
    with cache.locked("sources"):
        home = git.repository()
        # What killed processes left; nobody else adds now.
        for path in (*home.glob("objects/pack/tmp_*"), *home.parent.glob("folder-*.index.lock")):
            path.unlink(missing_ok=True)
        force = ("--force",) if everything else ()
        git.run(
            "add", "--all", *force, ".",
            index=index, work_tree=folder, borrowed=borrowed, settings=settings,
            timeout=git.LONG_S,
        )  # fmt: skip
        return git.run("write-tree", index=index, borrowed=borrowed).told(git.ID)


def _work_tree(root: Path) -> SourceTree:
    """A git work tree: its commit when nothing is changed, else what git would commit of it.

    Only its index is taken from its own repository, whose configuration names programs.
    """
    head = of_commit(root, "HEAD")
    with git.scratch_index() as index:
        _copy_index(root, index, head)
        excluded = index.with_name("exclude")
        excluded.write_bytes(_ignored(root))
        settings = ("-c", f"core.excludesFile={excluded}")
        tree = added(root, everything=False, index=index, borrowed=head.objects, settings=settings)
    if tree == head.tree:
        return head
    return replace(head, tree=tree, commit="", name=f"{head.name}-dirty")


def _copy_index(root: Path, index: Path, head: SourceTree) -> None:
    """A work tree's index, which tells which files need no reading; none when git cannot use it.

    Without the repositories inside: git would start itself in each.
    """
    own = root / git.ask(root, "rev-parse", "--git-path", "index").stdout.strip()
    if not own.is_file() or own.stat().st_size > _MOST_INDEX:
        return
    shutil.copyfile(own, index)
    listed = git.run("ls-files", "--stage", "-z", index=index, work_tree=root, check=False)
    inside = [row for row in listed.stdout.split("\0") if row.startswith("160000 ")]
    names = [row.partition("\t")[2] for row in inside]
    dropped = names and git.run(
        "update-index", "--force-remove", "--", *names, index=index, work_tree=root,
        borrowed=head.objects, check=False,
    )  # fmt: skip
    if listed.returncode or (dropped and dropped.returncode):
        index.unlink()


def _ignored(root: Path) -> bytes:
    """What to ignore beside .gitignore files: of this clone, of this user."""
    clones = root / git.ask(root, "rev-parse", "--git-path", "info/exclude").stdout.strip()
    named = git.ask(root, "config", "--global", "--type=path", "--get", "core.excludesFile").stdout
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    found = []
    for path in (clones, Path(named.rstrip("\n")) if named else Path(folder) / "git" / "ignore"):
        with contextlib.suppress(OSError):
            if path.is_file() and path.stat().st_size <= _MOST_PATTERNS:
                found.append(path.read_bytes())
    return b"\n".join(found)


def _plain(root: Path, progress: Progress | None) -> SourceTree:
    """A folder without git; its index in the cache tells which files need no reading."""
    line = _line_of(root.resolve())
    index = cache.folder("sources") / f"folder-{line}.index"
    if index.exists() and not _usable(index, root):
        index.unlink(missing_ok=True)
    if progress and not index.exists():
        progress(f"reading {root.name}", 0.0)
    listed = git.run(
        "ls-files", "-z", "--cached", "--others", "--exclude-per-directory=.gitignore",
        index=index, work_tree=root, timeout=git.LONG_S,
    )  # fmt: skip
    count = listed.stdout.count("\0")
    if count > _MOST_FILES:
        raise SpecError(f"{count} files are no kernel's source", place=str(root))
    tree = added(root, everything=False, index=index)
    if progress:
        progress(f"reading {root.name}", 100.0)
    found = SourceTree(name="", tree=tree, line=line)
    release, folder = release_of(found, root), _word(root.name)
    return replace(found, name=folder if release in folder else f"{release}-{folder}")


def _usable(index: Path, root: Path) -> bool:
    """False for an index that is damaged, of a repository that is gone, or with ignored files."""
    ignored = git.run(
        "ls-files", "--cached", "--ignored", "--exclude-per-directory=.gitignore",
        index=index, work_tree=root, check=False,
    )  # fmt: skip
    written = git.run("write-tree", index=index, check=False)
    return not (ignored.stdout or ignored.returncode or written.returncode)


def _folder(path: Path) -> Path:
    folder = path_of(path).absolute()
    if folder.is_dir():
        return folder
    raise SpecError(
        "there is no such folder", place=str(path), action="name a kernel's source folder"
    )


def _root(path: Path) -> Path | None:
    """The top of the git work tree around a path (or its bare repository), or None."""
    folder = _folder(path)
    done = git.ask(folder, "rev-parse", "--show-toplevel")
    if done.returncode == 0:
        return Path(done.told("/.*")).resolve()
    bare = git.ask(folder, "rev-parse", "--is-bare-repository").stdout.strip() == "true"
    return folder.resolve() if bare else None


def _line_of(place: Path) -> str:
    name = place.parent.name if place.name == ".git" else place.name
    return f"{_word(name)}-{hashlib.sha256(os.fsencode(place)).hexdigest()[:_SHORT]}"


def _word(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+-]", "_", name)[:_WORD]
