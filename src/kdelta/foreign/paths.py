# SPDX-License-Identifier: GPL-2.0-or-later
"""Which files an import has, and what to call each of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from kdelta.errors import SpecError
from kdelta.foreign import proposal
from kdelta.foreign.arms import is_version
from kdelta.foreign.stack import without_suffix

MAX_FILES = 1000
_MAX_DEPTH = 8
_RUNS = "kdelta-runs"
_DOTTED = re.compile(r"(?<!\d)[2-9]\.\d{1,2}(?!\d)", re.ASCII)


def found_in(paths: Sequence[Path]) -> list[tuple[Path, str]]:
    """(file, name to call it) of all files, in the order of the names within each path.

    Files that were given one by one and have one name are called with the folders that differ.
    """
    found: list[tuple[Path, str]] = []
    alone = [path for path in paths if not _is_folder(path)]
    for path in paths:
        label = path.name or path.resolve().name
        if path not in alone:
            inside = sorted(_walk(path, 0))
            found += [(file, f"{label}/{file.relative_to(path).as_posix()}") for file in inside]
        else:
            found.append((path, _told_apart(path, alone)))
        if len(found) > MAX_FILES:
            raise SpecError(
                f"more than {MAX_FILES} files", place=str(path), action="import a part of them"
            )
    return found


def _is_folder(path: Path) -> bool:
    """False also for what this user may not look at: reading it says why."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _told_apart(path: Path, others: Sequence[Path]) -> str:
    parts = path.absolute().parts
    alike = [other.absolute().parts for other in others if other.name == path.name]
    alike = [other for other in alike if other != parts]
    for count in range(1, len(parts)):
        if all(other[-count:] != parts[-count:] for other in alike):
            return "/".join(parts[-count:])
    return path.name


def labels_of(names: Sequence[str]) -> list[str]:
    """What tells files apart: their stems, else the folders in which they differ."""
    stems = [name.rpartition("/")[2].partition(".")[0] for name in names]
    dotted = [without_suffix(name.rpartition("/")[2]) for name in names]
    dots = any(is_version(name) or _DOTTED.search(name) for name in dotted)
    versions = _shared_cut(dotted) if dots else stems  # 6.6.csv is no 6
    for each in (versions, stems, dotted):
        if len(set(each)) == len(each):
            return each
    folders = [name.split("/")[:-1] for name in names]
    for at in range(max(map(len, folders), default=0)):
        parts = [folder[at] if at < len(folder) else "" for folder in folders]
        if len(set(parts)) == len(parts):
            return parts
    return list(names)


def _shared_cut(names: Sequence[str]) -> list[str]:
    """bench-6.16.1, bench-6.17.3 without what they share, where versions are left."""
    first, last = min(names), max(names)
    alike = next(
        (at for at, pair in enumerate(zip(first, last, strict=False)) if len({*pair}) > 1), 0
    )
    cut = max(first[:alike].rfind(mark) for mark in "-_ ") + 1
    bare = [name[cut:] for name in names]
    return bare if all(map(is_version, bare)) and len(set(bare)) == len(bare) > 1 else list(names)


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    """Plain files below a folder; links are not followed.

    What kdelta wrote there itself, proposals and runs, is none of the data.
    """
    if depth > _MAX_DEPTH:
        raise SpecError(
            f"more than {_MAX_DEPTH} folders deep", place=str(folder), action="import a part of it"
        )
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        raise SpecError(
            f"it cannot be read: {error.strerror}", place=str(folder), action="check the path"
        ) from error
    for entry in entries[: MAX_FILES + 1]:
        if entry.is_dir(follow_symlinks=False):
            if entry.name != _RUNS:
                yield from _walk(Path(entry.path), depth + 1)
        elif entry.name.startswith(".") or entry.name.endswith(proposal.ENDING):
            continue
        elif entry.is_file(follow_symlinks=False):
            yield Path(entry.path)
