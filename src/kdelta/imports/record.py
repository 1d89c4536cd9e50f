# SPDX-License-Identifier: GPL-2.0-or-later
"""What an import keeps of others' results: each source whole, and the readings made from it.

An import is a folder, RUNS/NAME-TIME, with import.json; its presence makes a folder an import.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from kdelta.errors import SpecError, StoreError
from kdelta.files import is_full, sync, write_aside
from kdelta.journal import files
from kdelta.journal.files import FolderKind, new_folder
from kdelta.metric import Metric
from kdelta.verdict.series import ReplicateUnit

FORMAT = 3  # of import.json
IMPORTS = FolderKind(
    file="import.json", word="import", first="import some with: kdelta import PATH"
)
SET = "set"  # the dimension that keeps the tables and bundles of one import apart
Pairs = tuple[tuple[str, str], ...]
_ALL = ("readings", "published", "audited", "rules")  # of contents, each in a group
_MAX_BYTES = 2**28  # of a file that `files.read` reads
_VERSION = re.compile(r"v?(\d)\.(\d{1,3})(?:\.(\d{1,3}))?(?:-rc(\d{1,2}))?", re.ASCII)


class Line(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One line of a table: its number from 1, and its cells as they were written."""

    number: int
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One imported file, whole: a table's columns and lines, or the text of a declared format."""

    name: str
    sha256: str
    size: int
    columns: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()
    text: str = ""


class ImportReading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One value that somebody measured, or that is missing with a reason.

    source, line: index of the source, and the line in it; the raw text is there.
    group:    what must be equal to compare two readings, such as (("cpu", "2"),).
    value:    None when the run failed.
    run:      identity of the run; boot_id: the boot it ran in; "" when unknown.
    replicate: which replicate of its arm it belongs to; readings of one are its samples.
    """

    source: int
    line: int
    arm: str
    metric: str
    value: float | None
    replicate: str
    group: Pairs = ()
    position: int | None = None
    round: int | None = None
    run: str = ""
    boot_id: str = ""
    failure: str = ""
    refilled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What somebody says of one arm and metric without showing the values; None: not said.

    ok, failed: runs counted in and left out.  cv is a fraction, not percent; digits: how many
    decimals it was printed with.
    """

    source: int
    line: int
    arm: str
    metric: str
    group: Pairs = ()
    mean: float | None = None
    median: float | None = None
    sd: float | None = None
    cv: float | None = None
    cv_digits: int = 0
    ok: int | None = None
    failed: int | None = None
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """A field of page state that was read for an arm: the distinct values, sorted."""

    arm: str
    group: Pairs
    field: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFacts:
    """What is known of an arm in a group.

    facts:     what the machine was; arms whose facts differ are not compared.
    details:   what happened to the arm: arms may differ in these.
    replicate: what was repeated; None: the data do not say.
    """

    arm: str
    group: Pairs
    facts: Pairs = ()
    details: Pairs = ()
    replicate: ReplicateUnit | None = None
    planned: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """The arms that are compared: each new one with the old one; control is the old one again."""

    old: str
    new: tuple[str, ...]
    control: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRules:
    """The decision rules that a published framework ran with, for its columns only."""

    group: Pairs
    tolerance: float
    max_cv: float
    baseline: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What a reader makes of sources.

    order: arms as they were declared, oldest first; empty: nobody declared an order.
    roles: the declared roles; None: neighbours in the order are compared.
    how:   sentences on how each source was read.
    notes: sentences on what was left alone and why.
    """

    metrics: tuple[Metric, ...] = ()
    readings: tuple[ImportReading, ...] = ()
    published: tuple[Published, ...] = ()
    audited: tuple[Audited, ...] = ()
    arms: tuple[ArmFacts, ...] = ()
    rules: tuple[PublishedRules, ...] = ()
    order: tuple[str, ...] = ()
    roles: Roles | None = None
    how: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """An import as import.json holds it; kind: the format that it was read as."""

    name: str
    created: str
    kind: str
    sources: tuple[SourceFile, ...]
    contents: Contents
    format: int = FORMAT
    kdelta_version: str = ""


def merged(parts: Iterable[Contents]) -> Contents:
    """Several contents as one, in order; a metric is kept once."""
    each = tuple(parts)
    metrics = {metric.name: metric for part in reversed(each) for metric in part.metrics}
    joined: dict[str, Any] = {}
    for key in (*_ALL, "arms", "how", "notes"):
        items = [item for part in each for item in getattr(part, key)]
        joined[key] = tuple(items if key in _ALL else dict.fromkeys(items))
    return Contents(
        metrics=tuple(metrics[name] for name in sorted(metrics)),
        order=next((part.order for part in each if part.order), ()),
        roles=next((part.roles for part in each if part.roles), None),
        **joined,
    )


def at(part: Contents, group: Pairs) -> Contents:
    """The same contents in a group, which keeps them apart from all others."""
    moved: dict[str, Any] = {}
    for key in (*_ALL, "arms"):
        change = msgspec.structs.replace if key == "readings" else replace
        moved[key] = tuple(change(one, group=(*group, *one.group)) for one in getattr(part, key))
    return replace(part, **moved)


def audited(states: Mapping[tuple[str, Pairs, str], Iterable[str]]) -> tuple[Audited, ...]:
    """What was read of each (arm, group, field)."""
    return tuple(
        Audited(arm=arm, group=group, field=field, values=tuple(sorted(texts)))
        for (arm, group, field), texts in states.items()
    )


def version_key(name: str) -> tuple[int, ...] | None:
    """What sorts 6.9 before 6.12, and 7.1-rc3 before 7.1; None: no version and nothing else."""
    found = _VERSION.fullmatch(name)
    if not found:
        return None
    major, minor, stable, candidate = found.groups()
    return (int(major), int(minor), int(stable or 0), int(candidate or 1000))


def release_key(name: str) -> tuple[int, ...] | None:
    """The same for what `uname -r` says: a version, and after a dash what its builder added."""
    found = _VERSION.match(name)
    if not found or name[found.end() : found.end() + 1] not in ("", "-"):
        return None
    return version_key(found[0])


def in_order(
    arms: Iterable[str], key: Callable[[str], tuple[int, ...] | None] = version_key
) -> list[str] | None:
    """The arms, oldest first; None unless each is called by a version of its own."""
    keys = {arm: key(arm) for arm in arms}
    known = sorted((found, arm) for arm, found in keys.items() if found is not None)
    if len(known) < len(keys) or len(dict(known)) < len(known):
        return None
    return [arm for _, arm in known]


def write(root: Path, found: Import, now: datetime) -> Path:
    """Store an import under `root`, whole or not at all: its folder.  SpecError, StoreError."""
    data = msgspec.json.encode(found)
    if len(data) > _MAX_BYTES:
        size, most = (f"{size / 2**20:,.0f}" for size in (len(data), _MAX_BYTES))
        cause = f"it would be stored in {size} MiB, more than {most}"
        action = "import a part of it: fewer files or fewer lines"
        raise SpecError(cause, place=found.sources[0].name, action=action)
    try:
        root.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=root, prefix=f".{found.name}-"))
        try:
            scratch.chmod(0o755)
            write_aside(scratch / IMPORTS.file, data)
            sync(scratch)
            return scratch.rename(new_folder(root, found.name, now))
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
    except OSError as error:
        action = "check that the folder exists and belongs to you, or give another with --runs"
        if is_full(error):
            action = "free some space, then import it again"
        cause = f"nothing was stored: {error.strerror or error}"
        raise StoreError(cause, place=str(root), action=action) from error


def load(folder: Path) -> Import:
    """The import in a folder.  Raises StoreError when it cannot be read."""
    path = folder / IMPORTS.file
    with files.disk_errors(folder):
        if path.stat().st_size > _MAX_BYTES:
            raise StoreError(f"the file is larger than {_MAX_BYTES >> 20} MiB", place=str(path))
    found = files.read(path, Import, action="import it again")
    if found is None or found.format != FORMAT:
        cause = f"format {found.format if found else 0} where this version reads {FORMAT}"
        raise StoreError(cause, place=str(path), action="import it again")
    return found
