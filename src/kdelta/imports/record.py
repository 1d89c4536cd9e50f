# SPDX-License-Identifier: GPL-2.0-or-later
"""What an import keeps of others' results: each source whole, and the readings made from it.

An import is a folder, RUNS/NAME-TIME, with import.json; its presence makes a folder an import.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from kdelta.errors import SpecError, StoreError
from kdelta.files import is_full, sync, write_aside
from kdelta.journal import files
from kdelta.metric import Metric, ReplicateUnit
from kdelta.stats.series import Boot, Series

FORMAT = 3  # of import.json
IMPORTS = files.FolderKind(
    file="import.json", word="import", first="import some with: kdelta import PATH"
)
SET = "set"  # the dimension that keeps the tables and bundles of one import apart
Pairs = tuple[tuple[str, str], ...]
_ALL = ("readings", "published", "audited", "rules")  # of contents, each in a group
_MAX_BYTES = 2**27
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

    def cells(self, column: str) -> list[str]:
        """Those of one column of a table."""
        at = self.columns.index(column)
        return [line.cells[at] for line in self.lines]


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
            return scratch.rename(files.new_folder(root, found.name, now))
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
    found = files.read(path, Import, most=_MAX_BYTES, action="import it again")
    if found is None or found.format != FORMAT:
        cause = f"format {found.format if found else 0} where this version reads {FORMAT}"
        raise StoreError(cause, place=str(path), action="import it again")
    if msgspec.json.encode(found) != path.read_bytes():
        raise files.damaged(path, "it has more than an import writes", action="import it again")
    return found


# ---- from contents to what can be judged: for each group and metric, the series of every arm -----


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One metric in one group.

    series:    of each arm, oldest first where that is declared; without boots when only
               summaries were published.
    published: what others printed of the arms.
    ordered:   the arms stand in a declared order, or in that of their versions.
    roles:     which arms are compared, where that was declared.
    details:   of each arm what is no condition of the machine: how many runs ended ok ...
    """

    group: Pairs
    metric: Metric
    series: tuple[Series, ...]
    published: tuple[Published, ...] = ()
    ordered: bool = True
    roles: Roles | None = None
    details: tuple[tuple[str, Pairs], ...] = ()
    rules: PublishedRules | None = None

    def detail(self, arm: str, name: str) -> str:
        """One detail of an arm; "" when it is not known."""
        return dict(dict(self.details).get(arm, ())).get(name, "")

    def arm(self, name: str) -> Series | None:
        """The series of that arm."""
        return next((series for series in self.series if series.arm == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAudit:
    """The page state of the arms of one group; runs: arm -> how many of how many were audited."""

    group: Pairs
    arms: tuple[str, ...]
    fields: tuple[tuple[str, tuple[str, ...]], ...]
    runs: Pairs

    @property
    def differing(self) -> tuple[str, ...]:
        """Fields that are not the same in every arm that has them."""
        return tuple(name for name, texts in self.fields if len({t for t in texts if t}) > 1)


def cases(contents: Contents) -> tuple[Case, ...]:
    """Every (group, metric) with its arms, in the order of the sources."""
    metrics = {metric.name: metric for metric in contents.metrics}
    readings: defaultdict[_Key, dict[str, list[ImportReading]]] = defaultdict(dict)
    for item in contents.readings:
        readings[item.group, item.metric].setdefault(item.arm, []).append(item)
    said: defaultdict[_Key, list[Published]] = defaultdict(list)
    for one in contents.published:
        said[one.group, one.metric].append(one)
    known, found = _Known(contents), []
    for key in dict.fromkeys([*readings, *said]):
        (group, name), own, published = key, readings[key], said[key]
        metric = metrics[name]
        arms, ordered = known.ranked([*own, *(one.arm for one in published)])
        series = (_series(arm, metric, group, own.get(arm, []), published, known) for arm in arms)
        case = Case(
            group=group,
            metric=metric,
            series=tuple(series),
            published=tuple(published),
            ordered=ordered,
            roles=contents.roles,
            details=tuple((arm, tuple(known.details(arm, group).items())) for arm in arms),
            rules=next(iter(known.rules.of("", group)), None),
        )
        found.append(case)
    return tuple(found)


def audits(contents: Contents) -> tuple[GroupAudit, ...]:
    """What was audited, for each group; "" where an arm has no value of a field."""
    known, found = _Known(contents), []
    by_group: defaultdict[Pairs, list[Audited]] = defaultdict(list)
    for item in contents.audited:
        by_group[item.group].append(item)
    for group, mine in by_group.items():
        arms, _ = known.ranked(item.arm for item in mine)
        texts = {(item.arm, item.field): ", ".join(item.values) for item in mine}
        details = {arm: known.details(arm, group) for arm in arms}
        names = dict.fromkeys(item.field for item in mine)
        said = tuple((n, tuple(texts.get((arm, n), "") for arm in arms)) for n in names)
        runs = tuple((arm, details[arm]["runs"]) for arm in arms if "runs" in details[arm])
        found.append(GroupAudit(group=group, arms=tuple(arms), fields=said, runs=runs))
    return tuple(found)


_T = TypeVar("_T")
_Key = tuple[Pairs, str]  # group, metric


class _ByGroup(Generic[_T]):
    """Items of arms and groups; an item holds for every group that has the pairs of its own.

    They are found by the names in their groups, of which there are few sets: a search through all
    items for each of thousands of settings would take minutes.
    """

    def __init__(self, items: Iterable[tuple[str, Pairs, _T]]) -> None:
        self._names: dict[str, dict[frozenset[str], None]] = {}
        self._items: dict[tuple[str, frozenset[tuple[str, str]]], list[_T]] = {}
        for arm, group, item in items:
            self._names.setdefault(arm, {})[frozenset(name for name, _ in group)] = None
            self._items.setdefault((arm, frozenset(group)), []).append(item)

    def of(self, arm: str, group: Pairs) -> list[_T]:
        """What holds for that arm in that group."""
        keys = (frozenset(p for p in group if p[0] in names) for names in self._names.get(arm, {}))
        return [item for key in dict.fromkeys(keys) for item in self._items.get((arm, key), ())]


class _Known:
    """The facts, states and rules of contents, found by arm and group."""

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        self.arms = _ByGroup((one.arm, one.group, one) for one in contents.arms)
        self.states = _ByGroup(
            (one.arm, one.group, (one.field, ", ".join(one.values))) for one in contents.audited
        )
        self.rules = _ByGroup(("", one.group, one) for one in contents.rules)
        figures: Iterable[ImportReading | Published] = (*contents.readings, *contents.published)
        names = [*(item.arm for item in figures), *(item.arm for item in contents.audited)]
        self._met = {arm: at for at, arm in enumerate(dict.fromkeys(names))}

    def ranked(self, names: Iterable[str]) -> tuple[list[str], bool]:
        """The arms, oldest first, and True; as the whole import has them, where nothing tells."""
        arms, order = sorted(set(names), key=self._met.__getitem__), self.contents.order
        if all(arm in order for arm in arms):
            return sorted(arms, key=order.index), True
        known = in_order(arms)
        return (arms, len(arms) < 2) if known is None else (known, True)

    def details(self, arm: str, group: Pairs) -> dict[str, str]:
        about = self.arms.of(arm, group)
        found = dict(pair for item in about for pair in item.details)
        return found if any(item.replicate for item in about) else found | {"replicate": "not said"}


def _series(
    arm: str,
    metric: Metric,
    group: Pairs,
    readings: Sequence[ImportReading],
    said: Sequence[Published],
    known: _Known,
) -> Series:
    about = known.arms.of(arm, group)
    boots = tuple(_boots(readings))
    counts = [(one.ok or 0) + (one.failed or 0) for one in said if one.arm == arm]
    planned = [item.planned for item in about if item.planned]
    planned += [len(boots) or max(counts, default=0)]
    replicates = [item.replicate for item in about if item.replicate]
    return Series(
        arm=arm,
        metric=metric,
        boots=boots,
        planned=planned[0],
        facts=tuple(dict(pair for item in about for pair in item.facts).items()),
        state=tuple(sorted(dict(known.states.of(arm, group)).items())),
        replicate=[*replicates, ReplicateUnit.PROCESS_ROUND][0],
    )


def _boots(readings: Sequence[ImportReading]) -> list[Boot]:
    """Replicates in the order of the session where known, each with its samples in order."""
    grouped: defaultdict[str, list[ImportReading]] = defaultdict(list)
    for item in readings:
        grouped[item.replicate].append(item)
    made = []
    for label, items in grouped.items():
        first, values = items[0], tuple(item.value for item in items if item.value is not None)
        boot = Boot(
            label=label,
            position=first.position,
            values=values,
            failure="" if values else next((i.failure for i in items if i.failure), "no value"),
            refilled=any(item.refilled for item in items),
            boot_id=first.boot_id,
            run=first.run,
        )
        made.append(boot)
    if all(boot.position is not None for boot in made):
        made.sort(key=lambda boot: boot.position or 0)
    return made
