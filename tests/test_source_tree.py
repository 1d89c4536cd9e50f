# SPDX-License-Identifier: GPL-2.0-or-later
"""From folders and commits to identified source trees; users' folders stay as they are."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import kernel_tree
from kdelta import cache, process
from kdelta.bisect.history import History
from kdelta.errors import InfraError, KdeltaError, SpecError
from kdelta.source import build, git, tree_reference
from kdelta.source.tree import SourceTree, of_commit, of_folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return kernel_tree.make(tmp_path / "linux")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    return kernel_tree.committed(tmp_path / "linux")


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


def test_a_commit_is_its_own_tree(clone: Path) -> None:
    tree = of_commit(clone, "main")
    assert tree.tree == kernel_tree.git(clone, "rev-parse", "HEAD^{tree}")
    assert tree.commit == kernel_tree.git(clone, "rev-parse", "HEAD")
    assert tree.name == f"6.17.8-g{tree.commit[:12]}"
    assert of_folder(clone) == tree  # nothing is changed


def test_changes_and_new_files_are_part_of_a_work_tree(clone: Path) -> None:
    clean = of_folder(clone)
    (clone / "mm/mincore.c").write_text("int changed;\n")
    (clone / "mm/new.c").write_text("int new;\n")
    (clone / "mm/old.o").write_text("an object")
    dirty = of_folder(clone)
    assert dirty.name.endswith("-dirty")
    assert not dirty.commit
    assert dirty.line == clean.line
    assert dirty.read("mm/mincore.c") == b"int changed;\n"
    assert dirty.read("mm/new.c") == b"int new;\n"
    assert dirty.read("mm/old.o") is None


def test_what_the_clone_or_its_user_ignores_is_no_source(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = of_folder(clone)
    (clone / ".git/info").mkdir(exist_ok=True)
    (clone / ".git/info/exclude").write_text("/mine")  # no newline
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    kernel_tree.written(tmp_path / "config/git", {"ignore": "*.swp\n"})
    kernel_tree.written(clone, {"mine": "x", "mm/.mincore.c.swp": "x"})
    assert of_folder(clone) == clean


def test_an_index_that_git_cannot_use_costs_time_and_nothing_else(clone: Path) -> None:
    clean = of_folder(clone)
    (clone / ".git/index").write_bytes(b"DIRC, cut short")
    assert of_folder(clone) == clean


def test_a_repository_is_not_written(clone: Path) -> None:
    (clone / "mm/mincore.c").write_text("int changed;\n")
    before = listing(clone)
    of_folder(clone)
    of_commit(clone, "HEAD")
    assert listing(clone) == before


def test_a_folder_without_git_is_read_once_and_never_written(tmp_path: Path) -> None:
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
def test_an_index_that_is_damaged_is_made_again(root: Path, damage: bytes) -> None:
    first = of_folder(root)
    (index,) = (cache.root() / "sources").glob("folder-*.index")
    index.write_bytes(damage)
    index.with_name(f"{index.name}.lock").touch()  # of a git that was killed
    assert of_folder(root) == first


def test_a_file_that_is_ignored_by_now_is_no_source(root: Path) -> None:
    (root / "mm/notes").write_text("mine\n")
    assert of_folder(root).read("mm/notes") == b"mine\n"
    (root / "mm/.gitignore").write_text("notes\n")
    assert of_folder(root).read("mm/notes") is None


def test_an_edit_of_the_same_size_is_seen(root: Path) -> None:
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


def test_two_work_trees_of_a_repository_share_a_line(clone: Path, tmp_path: Path) -> None:
    kernel_tree.git(clone, "worktree", "add", "--quiet", "--detach", str(tmp_path / "second"))
    assert of_folder(tmp_path / "second").line == of_folder(clone).line


def test_git_variables_of_the_caller_do_not_matter(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "none/index"))
    assert of_folder(root).read("Kbuild") == b"# nothing\n"


@pytest.mark.parametrize("missing", ["Makefile", "Kbuild"])
def test_what_is_no_kernel_is_refused(root: Path, missing: str) -> None:
    (root / missing).unlink()
    with pytest.raises(SpecError, match="not the source of a Linux kernel"):
        of_folder(root)


def test_a_makefile_without_version_is_refused(root: Path) -> None:
    (root / "Makefile").write_text("all:\n")
    with pytest.raises(SpecError, match="says no version"):
        of_folder(root)


@pytest.mark.parametrize("said", ["", "echo /", "echo x", "yes | head -n 9"])
def test_a_git_that_answers_anything_is_told(
    said: str, clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel_tree.script(tmp_path / "git", said)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(InfraError, match="git gave no answer that can be read: "):
        of_commit(clone, "HEAD")


def test_unknown_commits_and_folders_are_refused(clone: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no commit v9"):
        of_commit(clone, "v9")
    with pytest.raises(SpecError, match="not in a git repository"):
        of_commit(kernel_tree.make(tmp_path / "plain"), "HEAD")
    with pytest.raises(SpecError, match="no such folder"):
        of_commit(tmp_path / "nowhere", "HEAD")
    with pytest.raises(SpecError, match="no such folder"):
        of_folder(tmp_path / "nowhere")
    with pytest.raises(SpecError, match="plain/mm: it cannot be read: it is a folder"):
        tree_reference.of_word(f"{tmp_path}/plain/mm")


@pytest.mark.parametrize(
    "said",
    ["fatal: sha1 file 'objects/pack/tmp_pack_x' write error. Out of diskspace",
     "error: unable to create temporary file: No space left on device"],
)  # fmt: skip
def test_a_full_disk_is_said_plainly(said: str) -> None:
    with pytest.raises(InfraError, match="the disk is full"):
        git.raise_if_full(said)
    git.raise_if_full("fatal: something else")


def test_killed_imports_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = git.repository() / "objects" / "pack" / "tmp_pack_x"
    left.write_bytes(b"half")
    of_folder(kernel_tree.make(tmp_path / "linux"))
    assert not left.exists()
    how: dict[str, object] = {}
    monkeypatch.setattr(process, "start", lambda _argv, **own: how.update(own) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        tree_reference._extract(Path(__file__), tmp_path / "new", lambda _percent: None)
    assert how["die_with_caller"]  # tar would go on in the folder that is made anew


# What a user writes for a kernel from source


def test_a_release_with_variants_configuration_and_compiler() -> None:
    found = tree_reference.parse(
        "tree:deb:6.17.8+mincore-present-first+config=xenpv+config=ftrace+cc=gcc-14"
    )
    assert found.release == "6.17.8"
    assert found.path is None
    assert [change.name for change in found.variants] == ["mincore-present-first"]
    assert found.configs == ("xenpv", "ftrace")
    assert found.compiler == "gcc-14"


def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    root = kernel_tree.make(tmp_path / "linux-6.12+deb13@home")
    plain = tree_reference.parse(f"tree:{root}")
    assert (plain.path, plain.commit, plain.configs) == (root, "", ("deb",))
    commit = tree_reference.parse(f"tree:{root}@v6.17+undo={tmp_path}@1234567890abcdef")
    assert (commit.path, commit.commit) == (root, "v6.17")
    (variant,) = commit.variants
    assert (variant.path, variant.name) == (tmp_path, "undo-1234567890abcdef")


def unpackaged(release: str) -> Path:
    raise AssertionError(f"nobody needs the package of {release}")


def test_a_release_is_configured_as_its_package_is(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text('CONFIG_MM=y\nCONFIG_SYSTEM_TRUSTED_KEYS="debian/certs/some.pem"\n')
    more = tmp_path / "more.config"
    more.write_text("CONFIG_MORE=y\n")
    reference = tree_reference.parse(f"tree:deb:6.17.8+fragment={more}")
    found = tree_reference.configured(reference, {"6.17.8": config}.__getitem__)
    assert (found.name, found.whole) == ("package+more.config", True)
    assert found.options == {"MM": "y", "SYSTEM_TRUSTED_KEYS": '""', "MORE": "y"}
    packaged = tree_reference.parse("tree:deb:6.17.8-1~bpo13+1+config=deb")
    assert (packaged.release, packaged.variants) == ("6.17.8-1~bpo13+1", ())
    other = tree_reference.parse("tree:deb:6.12.107+config=6.17.8")
    alike = tree_reference.configured(other, {"6.17.8": config}.__getitem__)
    assert (alike.name, alike.whole, alike.options["MM"]) == ("6.17.8", True, "y")


def test_a_named_configuration_and_a_folder_need_no_package(root: Path) -> None:
    for text in ("tree:deb:6.17.8+config=deb", f"tree:{root}"):
        assert tree_reference.configured(tree_reference.parse(text), unpackaged).name == "deb"


@pytest.mark.parametrize(
    "text", ["tree:.+config=package", "tree:deb:6.17+config=package+config=min"]
)
def test_a_package_s_configuration_stands_alone(text: str) -> None:
    with pytest.raises(SpecError, match="of a release of the archive"):
        tree_reference.configured(tree_reference.parse(text), unpackaged)


def test_files_are_named_by_path(tmp_path: Path) -> None:
    edited = tmp_path / "edited.c"
    edited.write_text("x")
    more = tmp_path / "more.config"
    found = tree_reference.parse(f"tree:{tmp_path}+mm/mincore.c={edited}+fragment={more}")
    assert found.variants[0].target == "mm/mincore.c"
    assert found.fragments == (more,)


@pytest.mark.parametrize(
    "text",
    ["tree:", "deb:6.17", "tree:deb:6.17.8+", "tree:deb:6.17.8+cc=gcc-12+cc=gcc-14",
     "tree:deb:6.17.8+no-such-variant"],
)  # fmt: skip
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        tree_reference.parse(text)


# Repositories of strangers: nothing that their configuration names is ever run


def script(root: Path, name: str) -> str:
    """A program that leaves its name beside the repository, and copies what it is given."""
    path = root.parent / f"run-{name}"
    path.write_text(f"#!/bin/sh\necho ran >> {root.parent}/evil-{name}\ncat 2>/dev/null\n")
    path.chmod(0o755)
    return str(path)


def fsmonitor(root: Path) -> None:
    kernel_tree.git(root, "config", "core.fsmonitor", script(root, "fsmonitor"))


def included(root: Path) -> None:
    more = root.parent / "more"
    more.write_text(f"[core]\n\tfsmonitor = {script(root, 'included')}\n")
    kernel_tree.git(root, "config", "include.path", str(more))


def hooks(root: Path) -> None:
    for name in ("post-index-change", "pre-commit", "post-checkout", "reference-transaction"):
        Path(script(root, name)).rename(root / ".git/hooks" / name)


def filters(root: Path) -> None:
    for how in ("clean", "smudge", "process"):
        kernel_tree.git(root, "config", f"filter.evil.{how}", script(root, how))
    (root / ".gitattributes").write_text("*.c filter=evil diff=evil merge=evil\n")


def own_attributes(root: Path) -> None:
    filters(root)
    (root / ".gitattributes").rename(root / ".git/info/attributes")


def drivers(root: Path) -> None:
    kernel_tree.git(root, "config", "diff.external", script(root, "external"))
    for key in ("diff.evil.textconv", "diff.evil.command", "merge.evil.driver", "core.pager"):
        kernel_tree.git(root, "config", key, script(root, key))
    (root / ".gitattributes").write_text("*.c diff=evil merge=evil\n")


def lazy_objects(root: Path) -> None:
    """A clone that lacks an object, to be had through a program."""
    program = script(root, "remote")
    for key, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.url": f"ext::{program}",
        "remote.origin.promisor": "true",
        "protocol.ext.allow": "always",
    }.items():
        kernel_tree.git(root, "config", key, value)
    commit = kernel_tree.git(root, "rev-parse", "HEAD")
    (root / ".git/objects" / commit[:2] / commit[2:]).unlink()


def submodule(root: Path) -> None:
    """A repository inside, which git looks at by starting itself there."""
    inside = kernel_tree.committed(root / "inside")
    kernel_tree.git(root, "add", "inside")
    kernel_tree.git(root, "commit", "--quiet", "--message=inside")
    (inside / "mm/mincore.c").write_text("int changed;\n")
    kernel_tree.git(inside, "config", "filter.evil.clean", script(root, "submodule"))
    (inside / ".gitattributes").write_text("*.c filter=evil\n")


TRAPS = [
    fsmonitor, included, hooks, filters, own_attributes, drivers, lazy_objects, submodule,
]  # fmt: skip


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: str(trap.__name__))
def test_what_stranger_configured_never_runs(
    trap: Callable[[Path], None], clone: Path, tmp_path: Path
) -> None:
    first = kernel_tree.git(clone, "rev-parse", "HEAD")
    second = kernel_tree.commit(clone, "int second;\n", "second")
    trap(clone)
    (clone / "mm/mincore.c").write_text("int changed;\n")
    try:
        assert of_folder(clone).read("mm/mincore.c") == b"int changed;\n"
        of_commit(clone, first)
        history = History(clone, first, second)
        assert history.row(second)
        history.commit(history.bad)
    except KdeltaError:
        assert trap is lazy_objects
    assert sorted(path.name for path in tmp_path.glob("evil-*")) == []


# A workspace knows which files a tree changed, and how many objects were made of them


MAKEFILE = "VERSION = 6\nPATCHLEVEL = 17\nSUBLEVEL = 8\nEXTRAVERSION =\n"
NOTE = """savedcmd_mm/{name}.o := gcc -I../include -c -o mm/{name}.o ../mm/{name}.c
source_mm/{name}.o := ../mm/{name}.c

deps_mm/{name}.o := \\
  ../include/linux/{header}.h \\
    $(wildcard include/config/SMP) \\

mm/{name}.o: $(deps_mm/{name}.o)
"""


def folder(place: Path, **files: str) -> SourceTree:
    named = {name.replace("__", "/"): text for name, text in files.items()}
    return of_folder(kernel_tree.written(place, named))


def test_files_that_another_tree_has_are_told_when_it_is_checked_out(tmp_path: Path) -> None:
    first = folder(tmp_path / "one", Makefile=MAKEFILE, Kbuild="#\n", mm__a="1\n", mm__b="1\n")
    second = folder(tmp_path / "two", Makefile=MAKEFILE, Kbuild="#\n", mm__a="2\n", mm__c="1\n")
    with build.opened("line") as there:
        assert there.check_out(first) == frozenset()  # nothing was there
        assert there.check_out(first) == frozenset()
        assert there.check_out(second) == {"mm/a", "mm/b", "mm/c"}
        assert (there.source / "mm/a").read_text() == "2\n"


@pytest.mark.parametrize(
    ("changed", "objects"),
    [
        ((), 0), (("mm/x.c",), 1), (("include/linux/mm.h",), 2),
        (("include/linux/mm.h", "mm/y.c", "mm/z.c"), 3),
        (("include/linux/m.h", "linux/mm.h", "Makefile"), 0),
    ],
)  # fmt: skip
def test_objects_that_are_compiled_again_are_counted(
    tmp_path: Path, changed: tuple[str, ...], objects: int
) -> None:
    (tmp_path / "mm").mkdir()
    for name, header in (("x", "mm"), ("y", "mm"), ("z", "fs")):
        (tmp_path / f"mm/.{name}.o.cmd").write_text(NOTE.format(name=name, header=header))
    (tmp_path / "mm/.built-in.a.cmd").write_text("../mm/x.c\n")
    (tmp_path / "mm/.folder.o.cmd").mkdir()
    assert build.outdated(tmp_path, frozenset(changed)) == objects
