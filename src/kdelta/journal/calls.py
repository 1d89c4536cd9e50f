# SPDX-License-Identifier: GPL-2.0-or-later
"""The call paths that a trial kept: FOLDER/trials/0007/calls.json.gz, by phase."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from kdelta import files
from kdelta.attribution.calls import PathNode
from kdelta.errors import SpecError, StoreError
from kdelta.journal.results import trial_folder

NAME = "calls.json.gz"
_MAX_BYTES = 256 << 20
_MAX_NODES = 1 << 20

Trees = dict[str, tuple[PathNode, ...]]
"""Of each phase the call tree of the window that stands for it, callers first."""


def keep(place: Path, trees: Mapping[str, tuple[PathNode, ...]]) -> None:
    """Write them into a trial's folder."""
    content = gzip.compress(msgspec.json.encode(trees), compresslevel=3, mtime=0)
    (place / NAME).write_bytes(content)


def kept(folder: Path, index: int) -> Trees:
    """Those of a trial of the run in a folder.

    Raises SpecError when it kept none, StoreError when they are damaged or too large.
    """
    path = trial_folder(folder, index) / NAME
    try:
        packed = files.content(path, _MAX_BYTES)
        with gzip.open(io.BytesIO(packed)) as stream:
            text = stream.read(_MAX_BYTES + 1)
        if len(text) > _MAX_BYTES:
            raise StoreError(f"it unpacks to more than {_MAX_BYTES >> 20} MiB", place=str(path))
        trees = msgspec.json.decode(text, type=Trees)
    except FileNotFoundError:
        raise SpecError(
            "the run kept no call paths",
            place=str(folder),
            action="count them with: kdelta run ... --probe calls",
        ) from None
    except (OSError, EOFError, zlib.error, msgspec.DecodeError) as error:
        raise StoreError(f"its call paths cannot be read: {error}", place=str(path)) from error
    if not all(map(_is_tree, trees.values())):
        raise StoreError("its call paths are no trees", place=str(path))
    return trees


def _is_tree(nodes: tuple[PathNode, ...]) -> bool:
    return len(nodes) <= _MAX_NODES and all(
        -1 <= node.parent < at and node.calls >= 0 and node.insns >= 0
        for at, node in enumerate(nodes)
    )
