# SPDX-License-Identifier: GPL-2.0-or-later
"""Repositories of strangers: nothing that their configuration names is ever run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import kernel_tree
from kdelta.bisect.commits import History
from kdelta.errors import KdeltaError
from kdelta.source.tree import of_commit, of_folder


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
def test_what_a_stranger_configured_never_runs(
    trap: Callable[[Path], None], tmp_path: Path
) -> None:
    root = kernel_tree.committed(tmp_path / "linux")
    first = kernel_tree.git(root, "rev-parse", "HEAD")
    second = kernel_tree.commit(root, "int second;\n", "second")
    trap(root)
    (root / "mm/mincore.c").write_text("int changed;\n")
    try:
        tree = of_folder(root)
        assert tree.read("mm/mincore.c") == b"int changed;\n"
        of_commit(root, first)
        history = History(root, first, second)
        assert history.row(second)
        history.commit(history.bad)
    except KdeltaError:
        assert trap is lazy_objects
    assert sorted(path.name for path in tmp_path.glob("evil-*")) == []
