# SPDX-License-Identifier: GPL-2.0-or-later
"""From run folders to the catalogue: what changed is indexed again, what is gone leaves it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from kdelta.catalogue import schema
from kdelta.catalogue.database import Catalogue
from kdelta.catalogue.rows import (
    NAME,
    SENTENCE,
    CaseFigure,
    CaseKernel,
    CaseRow,
    RunRows,
    TrialRow,
    content_of,
    rows_of,
    text,
)
from kdelta.errors import StoreError
from kdelta.journal.run import RUNS, RunJournal, RunRecord

_SAME_SECOND = 4096  # runs that one second may have
_AT_ONCE = 5000  # rows of an insertion
_FOLDER = 4096


class Indexed(StrEnum):
    """What came of a folder."""

    NEW = "new"
    AGAIN = "again"
    UNCHANGED = "unchanged"
    REMOVED = "removed"
    LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderIndexed:
    """A folder and what came of it.

    why: it was left out, or of the run there are only its trials.
    """

    folder: str
    what: Indexed
    why: str = ""


def index(
    catalogue: Catalogue, folders: Sequence[Path], roots: Sequence[Path]
) -> Iterator[FolderIndexed]:
    """Index run folders, and those directly below roots; each is one transaction.

    A run that the catalogue has below a root, or under a folder given, and whose folder is gone is
    removed.
    """
    below = [folder for root in roots if root.is_dir() for folder in RUNS.folders(root)]
    for folder in dict.fromkeys(path.absolute() for path in (*folders, *below)):
        try:
            yield _folder(catalogue, folder)
        except StoreError as error:
            why = text(error.sentence(), SENTENCE)
            yield FolderIndexed(folder=str(folder), what=Indexed.LEFT_OUT, why=why)
    yield from _without_folder(catalogue, folders, roots)


def _folder(catalogue: Catalogue, folder: Path) -> FolderIndexed:
    name = str(folder)
    if len(name) > _FOLDER or not name.isprintable():
        raise StoreError("its name is none that a catalogue keeps", place=text(name))
    _check_plain(folder)
    content = content_of(folder)
    with catalogue.reading() as connection:
        query = sa.select(schema.runs.c.content).where(schema.runs.c.folder == name)
        known = connection.execute(query).scalar()
    if known == content:
        return FolderIndexed(folder=name, what=Indexed.UNCHANGED)
    record = RunJournal.open(folder).record()
    rows = rows_of(record)
    with catalogue.writing() as connection:
        connection.execute(sa.delete(schema.runs).where(schema.runs.c.folder == name))
        _insert(connection, name, content, record, rows)
    what = Indexed.NEW if known is None else Indexed.AGAIN
    return FolderIndexed(folder=name, what=what, why=rows.fault)


def _check_plain(folder: Path) -> None:
    """A pipe in place of a file would be waited for; content is read by size and digest."""
    for path in (folder / RUNS.file, folder / "study.toml"):
        try:
            facts = path.lstat()
        except OSError as error:
            raise StoreError(f"it has no {path.name}: not a run", place=str(folder)) from error
        if not stat.S_ISREG(facts.st_mode):
            raise StoreError(f"its {path.name} is no plain file", place=str(folder))


def _without_folder(
    catalogue: Catalogue, folders: Sequence[Path], roots: Sequence[Path]
) -> Iterator[FolderIndexed]:
    asked = {str(path.absolute()) for path in folders}
    above = tuple(f"{path.absolute()}{os.sep}" for path in roots)
    with catalogue.reading() as connection:
        known: Sequence[Any] = connection.execute(sa.select(schema.runs.c.folder)).scalars().all()
    for name in known:
        if name not in asked and not (above and str(name).startswith(above)):
            continue
        if not (Path(name) / RUNS.file).exists():
            with catalogue.writing() as connection:
                connection.execute(sa.delete(schema.runs).where(schema.runs.c.folder == name))
            yield FolderIndexed(folder=name, what=Indexed.REMOVED)


def _insert(
    connection: Connection, name: str, content: str, record: RunRecord, rows: RunRows
) -> None:
    number = _number(connection, record.created)
    connection.execute(
        sa.insert(schema.runs).values(
            id=number,
            folder=name,
            content=content,
            run_id=text(record.run_id),
            title=text(record.title or record.name, SENTENCE),
            instrument=str(record.instrument),
            created=text(record.created, 64),
            kdelta_version=text(record.kdelta_version, NAME),
            planned=len(record.trials),
            ended=sum(trial.result is not None for trial in record.trials),
        )
    )
    places = _Places(connection, number, rows)
    own = ("number", "round", "outcome", "reason", "address", "wall_s")
    _many(connection, schema.trials, places.rows(rows.trials, own))
    told = ("per_operation", "previous", "ratio", "verdict", "note")
    _many(connection, schema.figures, places.rows(rows.figures, told))
    _many(connection, schema.profiles, places.profiles(rows))
    _many(connection, schema.steps, places.steps(rows))


class _Places:
    """The numbers under which the other tables know what the rows of a run name."""

    def __init__(self, connection: Connection, number: int, rows: RunRows) -> None:
        self._run = number
        self._kernels = _Ids(connection, schema.kernels, ("label", "version", "image_sha256"))
        self._cases = _Ids(connection, schema.cases, ("name", "machine"))
        self._functions = _Ids(connection, schema.functions, ("name",))
        named: list[TrialRow | CaseFigure] = [*rows.trials, *rows.figures]
        self._kernels.know(asdict(each) for each in dict.fromkeys(one.kernel for one in named))
        self._cases.know(asdict(each) for each in dict.fromkeys(one.case for one in named))
        own = dict.fromkeys(one.function for one in rows.profiles)
        self._functions.know({"name": each} for each in own)

    def _at(self, case: CaseRow, kernel: CaseKernel) -> dict[str, Any]:
        return {
            "run_id": self._run,
            "case_id": self._cases.of(case.name, case.machine),
            "kernel_id": self._kernel(kernel),
        }

    def _kernel(self, row: CaseKernel) -> int:
        return self._kernels.of(row.label, row.version, row.image_sha256)

    def rows(
        self, found: Sequence[TrialRow | CaseFigure], names: tuple[str, ...]
    ) -> Iterator[dict[str, Any]]:
        """Of trials all, of figures the first of each case and kernel."""
        once: set[object] = set()
        for row in found:
            key = row.number if isinstance(row, TrialRow) else (row.case, row.kernel)
            if key not in once:
                once.add(key)
                told = {name: getattr(row, name) for name in names}
                yield {**self._at(row.case, row.kernel), **told}

    def profiles(self, rows: RunRows) -> Iterator[dict[str, Any]]:
        """The first of each function, case and kernel."""
        once = {(one.function, one.case, one.kernel): one for one in reversed(rows.profiles)}
        for one in once.values():
            function = self._functions.of(one.function)
            cost = one.per_operation
            yield {**self._at(one.case, one.kernel), "function_id": function, "per_operation": cost}

    def steps(self, rows: RunRows) -> Iterator[dict[str, Any]]:
        """All, in their order."""
        for number, one in enumerate(rows.steps):
            told = {name: getattr(one, name) for name in ("phase", "ratio", "size", "functions")}
            yield {
                **told,
                "run_id": self._run,
                "number": number,
                "verdict": one.verdict,
                "case_id": self._cases.of(one.case.name, one.case.machine),
                "old_id": self._kernel(one.old),
                "new_id": self._kernel(one.new),
            }


def _many(connection: Connection, table: sa.Table, rows: Iterable[dict[str, Any]]) -> None:
    every = list(rows)
    for start in range(0, len(every), _AT_ONCE):
        connection.execute(sa.insert(table), every[start : start + _AT_ONCE])


def _number(connection: Connection, created: str) -> int:
    """A run's number: larger for a newer run, and nobody else's."""
    try:
        when = datetime.fromisoformat(created)
    except ValueError:
        when = datetime.fromtimestamp(0, UTC)
    seconds = int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp())
    first = max(0, min(seconds, 1 << 40)) * _SAME_SECOND
    taken = schema.runs.c.id.between(first, first + _SAME_SECOND - 1)
    highest: int | None = connection.execute(
        sa.select(sa.func.max(schema.runs.c.id)).where(taken)
    ).scalar()
    if highest is None:
        return first
    if highest + 1 < first + _SAME_SECOND:
        return highest + 1
    raise StoreError(f"{_SAME_SECOND} runs say that they were made in one second", place=created)


class _Ids:
    """The numbers of rows that many runs share; who writes is alone, so none is made twice."""

    def __init__(self, connection: Connection, table: sa.Table, key: tuple[str, ...]) -> None:
        self._connection, self._table, self._key = connection, table, key
        columns = [table.c.id, *(table.c[name] for name in key)]
        found: Sequence[Any] = connection.execute(sa.select(*columns)).all()
        self._known: dict[tuple[str, ...], int] = {tuple(row[1:]): row[0] for row in found}

    def know(self, rows: Iterable[dict[str, Any]]) -> None:
        """Insert those that are not there."""
        absent = {}
        for row in rows:
            key = tuple(row[name] for name in self._key)
            if key not in self._known:
                absent[key] = row
        last = max(self._known.values(), default=0)
        new = [{**row, "id": last + at} for at, row in enumerate(absent.values(), start=1)]
        _many(self._connection, self._table, new)
        self._known |= {key: last + at for at, key in enumerate(absent, start=1)}

    def of(self, *key: str) -> int:
        """The number of a row that is known."""
        return self._known[key]
