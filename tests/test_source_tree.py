# SPDX-License-Identifier: GPL-2.0-or-later
"""From folders and commits to identified source trees; users' folders stay as they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import kernel_tree
from kdelta import cache
from kdelta.errors import InfraError, SpecError
from kdelta.source import git
from kdelta.source.tree import of_commit, of_folder


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file below a folder with its size and time (git renews the time of objects it uses)."""
    return {
        str(path): (
            path.lstat().st_size,
            0 if "/.git/objects/" in str(path) else path.lstat().st_mtime_ns,
        )
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_commit_is_its_own_tree(tmp_path: Path) -> None:
    root = kernel_tree.committed(tmp_path / "linux")
    tree = of_commit(root, "main")
    assert tree.tree == kernel_tree.git(root, "rev-parse", "HEAD^{tree}")
    assert tree.commit == kernel_tree.git(root, "rev-parse", "HEAD")
    assert tree.name == f"6.17.8-g{tree.commit[:12]}"
    assert of_folder(root) == tree  # nothing is changed


def test_changes_and_new_files_are_part_of_a_work_tree(tmp_path: Path) -> None:
    root = kernel_tree.committed(tmp_path / "linux")
    clean = of_folder(root)
    (root / "mm/mincore.c").write_text("int changed;\n")
    (root / "mm/new.c").write_text("int new;\n")
    (root / "mm/old.o").write_text("an object")
    dirty = of_folder(root)
    assert dirty.name.endswith("-dirty")
    assert not dirty.commit
    assert dirty.line == clean.line
    assert dirty.read("mm/mincore.c") == b"int changed;\n"
    assert dirty.read("mm/new.c") == b"int new;\n"
    assert dirty.read("mm/old.o") is None


def test_what_the_clone_or_its_user_ignores_is_no_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = kernel_tree.committed(tmp_path / "linux")
    clean = of_folder(root)
    (root / ".git/info").mkdir(exist_ok=True)
    (root / ".git/info/exclude").write_text("/mine")  # no newline
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config/git").mkdir(parents=True)
    (tmp_path / "config/git/ignore").write_text("*.swp\n")
    (root / "mine").write_text("x")
    (root / "mm/.mincore.c.swp").write_text("x")
    assert of_folder(root) == clean


def test_an_index_that_git_cannot_use_costs_time_and_nothing_else(tmp_path: Path) -> None:
    root = kernel_tree.committed(tmp_path / "linux")
    clean = of_folder(root)
    (root / ".git/index").write_bytes(b"DIRC, cut short")
    assert of_folder(root) == clean


def test_a_repository_is_not_written(tmp_path: Path) -> None:
    root = kernel_tree.committed(tmp_path / "linux")
    (root / "mm/mincore.c").write_text("int changed;\n")
    before = listing(root)
    of_folder(root)
    of_commit(root, "HEAD")
    assert listing(root) == before


def test_a_folder_without_git_is_read_once_and_never_written(
    tmp_path: Path,
) -> None:
    root = kernel_tree.make(tmp_path / "linux+x")
    (root / "mm/old.o").write_text("an object")
    (root / ".config").write_text("CONFIG_X=y\n")
    before = listing(root)
    first = of_folder(root)
    assert first.name == "6.17.8-linux+x"
    assert first.read(".config") is None
    assert first.read("mm/old.o") is None
    assert listing(root) == before
    (index,) = (cache.root() / "sources").glob("folder-*.index")
    known = index.read_bytes()  # written again when a file is read
    assert of_folder(root) == first
    assert index.read_bytes() == known


@pytest.mark.parametrize("damage", [b"", b"DIRC, cut short"])
def test_an_index_that_is_damaged_is_made_again(tmp_path: Path, damage: bytes) -> None:
    root = kernel_tree.make(tmp_path / "linux")
    first = of_folder(root)
    (index,) = (cache.root() / "sources").glob("folder-*.index")
    index.write_bytes(damage)
    index.with_name(f"{index.name}.lock").touch()  # of a git that was killed
    assert of_folder(root) == first


def test_a_file_that_is_ignored_by_now_is_no_source(tmp_path: Path) -> None:
    root = kernel_tree.make(tmp_path / "linux")
    (root / "mm/notes").write_text("mine\n")
    assert of_folder(root).read("mm/notes") == b"mine\n"
    (root / "mm/.gitignore").write_text("notes\n")
    assert of_folder(root).read("mm/notes") is None


def test_an_edit_of_the_same_size_is_seen(tmp_path: Path) -> None:
    root = kernel_tree.make(tmp_path / "linux")
    first = of_folder(root)
    path = root / "include/linux/mm.h"
    times = path.stat()
    path.write_text("#define FIRST 2\n")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    second = of_folder(root)
    assert second.tree != first.tree
    assert second.line == first.line


def test_folder_and_repository_of_equal_files_are_equal(tmp_path: Path) -> None:
    plain = of_folder(kernel_tree.make(tmp_path / "plain"))
    assert plain.tree == of_folder(kernel_tree.committed(tmp_path / "git")).tree


def test_two_work_trees_of_a_repository_share_a_line(tmp_path: Path) -> None:
    root = kernel_tree.committed(tmp_path / "linux")
    kernel_tree.git(root, "worktree", "add", "--quiet", "--detach", str(tmp_path / "second"))
    assert of_folder(tmp_path / "second").line == of_folder(root).line


def test_git_variables_of_the_caller_do_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = kernel_tree.make(tmp_path / "linux")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "none/index"))
    assert of_folder(root).read("Kbuild") == b"# nothing\n"


@pytest.mark.parametrize("missing", ["Makefile", "Kbuild"])
def test_what_is_no_kernel_is_refused(tmp_path: Path, missing: str) -> None:
    root = kernel_tree.make(tmp_path / "linux")
    (root / missing).unlink()
    with pytest.raises(SpecError, match="not the source of a Linux kernel"):
        of_folder(root)


def test_a_makefile_without_version_is_refused(tmp_path: Path) -> None:
    root = kernel_tree.make(tmp_path / "linux")
    (root / "Makefile").write_text("all:\n")
    with pytest.raises(SpecError, match="says no version"):
        of_folder(root)


def test_unknown_commits_and_folders_are_refused(tmp_path: Path) -> None:
    root = kernel_tree.committed(tmp_path / "linux")
    with pytest.raises(SpecError, match="no commit v9"):
        of_commit(root, "v9")
    with pytest.raises(SpecError, match="not in a git repository"):
        of_commit(kernel_tree.make(tmp_path / "plain"), "HEAD")
    with pytest.raises(SpecError, match="no such folder"):
        of_commit(tmp_path / "nowhere", "HEAD")
    with pytest.raises(SpecError, match="no such folder"):
        of_folder(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "said",
    ["fatal: sha1 file 'objects/pack/tmp_pack_x' write error. Out of diskspace",
     "error: unable to create temporary file: No space left on device"],
)  # fmt: skip
def test_a_full_disk_is_said_plainly(said: str) -> None:
    with pytest.raises(InfraError, match="the disk is full"):
        git.raise_if_full(said)
    git.raise_if_full("fatal: something else")


def test_killed_imports_leave_nothing_behind(tmp_path: Path) -> None:
    left = git.repository() / "objects" / "pack" / "tmp_pack_x"
    left.write_bytes(b"half")
    of_folder(kernel_tree.make(tmp_path / "linux"))
    assert not left.exists()
