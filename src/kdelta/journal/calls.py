# SPDX-License-Identifier: GPL-2.0-or-later
"""The call paths that a trial kept: FOLDER/trials/0007/calls.json.gz, by phase."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kdelta.errors import StoreError
from kdelta.journal import packed
from kdelta.probes.calls import PathNode

NAME = "calls.json.gz"
_MAX_NODES = 1 << 20

Trees = dict[str, tuple[PathNode, ...]]
"""Of each phase the call tree of the window that stands for it, callers first."""


def keep(place: Path, trees: Mapping[str, tuple[PathNode, ...]]) -> None:
    """Write them into a trial's folder."""
    packed.keep(place, NAME, trees)


def kept(folder: Path, index: int) -> Trees:
    """Those of a trial of the run in a folder.

    Raises SpecError when it kept none, StoreError when they are damaged or too large.
    """
    action = "count them with: kdelta run ... --probe calls"
    path, trees = packed.kept(folder, index, NAME, Trees, what="call paths", action=action)
    if not all(map(_is_tree, trees.values())):
        raise StoreError("its call paths are no trees", place=str(path))
    return trees


def _is_tree(nodes: tuple[PathNode, ...]) -> bool:
    return len(nodes) <= _MAX_NODES and all(
        -1 <= node.parent < at and node.calls >= 0 and node.insns >= 0
        for at, node in enumerate(nodes)
    )
