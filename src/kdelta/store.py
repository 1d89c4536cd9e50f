# SPDX-License-Identifier: GPL-2.0-or-later
"""A run's store: the journal of its trials and all their rows, in SQLite.

A trial's result is renamed into place as a file before the transaction that stores it, so the
store can always be rebuilt from the files, and a process killed in between loses nothing.  The
rollback journal (not WAL) is used because one file then is the whole store, and a run on
read-only media can still be read.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa
from filelock import FileLock, Timeout
from msgspec.structs import replace

from kdelta import runfolder, sample, schema
from kdelta.errors import StoreError
from kdelta.files import write_aside
from kdelta.runfolder import RUN_FILE, STORE_FILE, STUDY_FILE

log = logging.getLogger(__name__)

FORMAT = 1
_BUSY_S = 30.0
_NOT_ROWS = (msgspec.MsgspecError, RecursionError)


class Store:
    """One run's folder.  Reading needs no lock; writing happens inside `executing()`.

    Safe to use from several threads.  Every method raises StoreError when the folder or the store
    cannot be read or written, with what to do about it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._engine = _engine(folder / STORE_FILE)
        self._mutex = threading.Lock()
        self._lock = FileLock(folder / "lock", thread_local=False)

    @classmethod
    def create(cls, folder: Path, run: sample.RunRecord) -> Store:
        """Make `folder` the run `run`, whose trials are planned and have no results yet."""
        with _guarded(folder):
            folder.mkdir(parents=True, exist_ok=True)
            if (folder / RUN_FILE).exists():
                raise StoreError("there is a run already", place=str(folder))
            (folder / "trials").mkdir(exist_ok=True)
            write_aside(folder / STUDY_FILE, run.study_toml.encode())
            _build(folder / STORE_FILE, run)
            runfolder.write_run(folder, run)
        return cls(folder)

    @classmethod
    def open(cls, folder: Path) -> Store:
        """The store of an existing run, checked to be whole and of a format known here."""
        if not (folder / RUN_FILE).is_file():
            raise StoreError(
                f"not a run: it has no {RUN_FILE}", place=str(folder), action=runfolder.LIST_RUNS
            )
        if not (folder / STORE_FILE).is_file():
            raise _corrupt(folder, "the file is missing")
        store = cls(folder)
        with store._reading() as connection:
            _check(connection, folder)
        return store

    @contextmanager
    def executing(self) -> Iterator[None]:
        """Hold the run for this process.  Raises StoreError while another process holds it."""
        with self._held():
            self._adopt()
            yield

    def pending(self) -> list[sample.TrialRecord]:
        """Trials that are not done, in plan order; some may have been begun by a killed process.

        Call it before claiming: what this process itself is running is not told apart.
        """
        with self._reading() as connection:
            return _load_trials(connection, done=False)

    def claim(self, index: int) -> int:
        """Mark a trial as running and return the number of this attempt, from 1.

        Raises ValueError for a trial that is done or not of this run.
        """
        update = (
            schema.TRIAL.update()
            .where(schema.TRIAL.c.index == index, schema.TRIAL.c.status != schema.Status.DONE)
            .values(status=schema.Status.RUNNING, attempts=schema.TRIAL.c.attempts + 1)
            .returning(schema.TRIAL.c.attempts)
        )
        with self._writing() as connection:
            attempts = connection.execute(update).scalar_one_or_none()
        if attempts is None:
            raise ValueError(f"trial {index} is done or not planned")
        return int(attempts)

    def finish(self, index: int, result: sample.TrialResult) -> None:
        """Keep a claimed trial's result: file first, then all rows in one transaction.

        Raises ValueError for a trial that is not running.
        """
        claimed = sa.select(schema.TRIAL.c.attempts).where(
            schema.TRIAL.c.index == index, schema.TRIAL.c.status == schema.Status.RUNNING
        )
        with self._writing() as connection:
            attempts = connection.execute(claimed).scalar_one_or_none()
            if attempts is None:
                raise ValueError(f"trial {index} is not running")
            runfolder.write_result(self.folder, index, attempts, result)
            _insert_result(connection, index, result)

    def set_arm_kernel(
        self, index: int, kernel: sample.KernelIdentity, *, label: str | None = None
    ) -> None:
        """Say which kernel an arm turned out to be, and under which label tables show it.

        Raises ValueError for an arm that the run does not have.
        """
        values = {"kernel": msgspec.to_builtins(kernel), "label": label or schema.ARM.c.label}
        update = schema.ARM.update().where(schema.ARM.c.index == index).values(values)
        with self._writing() as connection:
            if connection.execute(update).rowcount != 1:
                raise ValueError(f"the run has no arm {index}")
            runfolder.write_run(self.folder, _load_run(connection))

    def replan_failures(self) -> int:
        """Plan again the trials that ended for a fault of this machine; how many they are.

        What they left is no data: an infra-error only says that there was none to be had then.
        """
        failed = sa.select(schema.TRIAL.c.index).where(
            schema.TRIAL.c.outcome == sample.Outcome.INFRA_ERROR
        )
        cleared = {"outcome": None, "result": None}
        with self._writing() as connection:
            indices = list(connection.execute(failed).scalars())
            for index in indices:
                runfolder.forget_result(self.folder, index)
            update = schema.TRIAL.update().where(schema.TRIAL.c.index.in_(indices))
            connection.execute(update.values(status=schema.Status.PLANNED, attempts=0, **cleared))
        return len(indices)

    def is_finished(self) -> bool:
        """True when every trial is done, whatever its outcome."""
        return not self.pending()

    def record(self) -> sample.RunRecord:
        """Everything the store holds, as one value."""
        with self._reading() as connection:
            run = _load_run(connection)
            results = _load_results(connection)
        trials = tuple(replace(one, result=results.get(one.index)) for one in run.trials)
        return replace(run, trials=trials)

    @contextmanager
    def _held(self) -> Iterator[None]:
        owner = self.folder / "lock.pid"
        with _guarded(self.folder):
            try:
                self._lock.acquire(blocking=False)
            except Timeout:
                number = owner.read_text(errors="replace").strip() if owner.is_file() else ""
                holder = number if number.isdecimal() else "unknown"
                raise StoreError(
                    f"run {self.folder.name} is being executed by process {holder}",
                    action="wait for it, or end that process first",
                ) from None
        try:
            with _guarded(self.folder):
                owner.write_text(f"{os.getpid()}\n")
            yield
        finally:
            self._lock.release()

    def _adopt(self) -> None:
        """Take in results whose process was killed between the file and the transaction."""
        for trial in self.pending():
            result = runfolder.read_result(self.folder, trial).result
            if result is not None:
                log.info("trial %d: taking in the result of a killed process", trial.index)
                with self._writing() as connection:
                    _insert_result(connection, trial.index, result)

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        with _guarded(self.folder), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        if not self._lock.is_locked:
            raise RuntimeError("the store is written to outside executing()")
        with (
            _guarded(self.folder),
            self._mutex,
            self._engine.connect() as connection,
            connection.execution_options(begin="BEGIN IMMEDIATE").begin(),
        ):
            yield connection


def rebuild(folder: Path) -> Store:
    """Make the store anew from run.json and the trials' result files; the old one is kept aside.

    A trial without a readable result file is planned again.  Raises StoreError, also while
    another process executes the run.
    """
    run = runfolder.read_run(folder)
    path = folder / STORE_FILE
    store = Store(folder)
    with store._held(), _guarded(folder):  # noqa: SLF001
        trials = tuple(runfolder.read_result(folder, trial) for trial in run.trials)
        # A hot journal left of the old store would be rolled back into the new one.
        for old in (path.with_name(f"{STORE_FILE}-journal"), path):
            if old.exists():
                old.replace(folder / old.name.replace(STORE_FILE, f"{STORE_FILE}.corrupt"))
        _build(path, replace(run, trials=trials))
    return store


def unfinished(root: Path, digest: str) -> Path | None:
    """The newest run under `root` of the study with this digest that has trials to do, if any."""
    for folder in runfolder.runs(root):
        if runfolder.head(folder).study_digest == digest and not Store.open(folder).is_finished():
            return folder
    return None


def _engine(path: Path) -> sa.Engine:
    """An engine on an existing file, with transactions as SQLite has them."""

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=_BUSY_S, isolation_level=None
        )
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    engine = sa.create_engine(
        "sqlite://",
        creator=connect,
        poolclass=sa.NullPool,
        json_serializer=lambda value: msgspec.json.encode(value).decode(),
        json_deserializer=msgspec.json.decode,
    )

    @sa.event.listens_for(engine, "begin")
    def begin(connection: sa.Connection) -> None:
        # A writer that begins as a reader could find itself unable to go on.
        connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))

    return engine


def _build(path: Path, run: sample.RunRecord) -> None:
    """Write a whole store aside, then rename it to `path`."""
    aside = path.with_name(f"{path.name}.new")
    journal = path.with_name(f"{path.name}.new-journal")
    try:
        journal.unlink(missing_ok=True)
        aside.write_bytes(b"")
        with _engine(aside).begin() as connection:
            schema.METADATA.create_all(connection)
            _insert_run(connection, run)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def _insert_run(connection: sa.Connection, run: sample.RunRecord) -> None:
    meta = {"format": str(FORMAT), "kdelta": run.kdelta_version}
    connection.execute(schema.META.insert(), [{"key": key, "value": meta[key]} for key in meta])
    connection.execute(
        schema.RUN.insert(), {one.name: getattr(run, one.name) for one in schema.RUN.c}
    )
    if run.arms:
        connection.execute(schema.ARM.insert(), [msgspec.to_builtins(arm) for arm in run.arms])
    for trial in run.trials:
        names = ("index", "round", "arm", "workload", "scenario", "attempts")
        values = {name: getattr(trial, name) for name in names}
        connection.execute(schema.TRIAL.insert(), {**values, "status": schema.Status.PLANNED})
        if trial.result is not None:
            _insert_result(connection, trial.index, trial.result)


def _insert_result(connection: sa.Connection, index: int, result: sample.TrialResult) -> None:
    """Make a trial done, within the caller's transaction."""
    values = {"outcome": result.outcome, "result": msgspec.to_builtins(result)}
    update = schema.TRIAL.update().where(schema.TRIAL.c.index == index)
    connection.execute(update.values(status=schema.Status.DONE, **values))


def _load_run(connection: sa.Connection) -> sample.RunRecord:
    """The run with its arms and trials, and no results."""
    run = _named(schema.RUN.c, connection.execute(sa.select(schema.RUN)).one())
    arms = connection.execute(sa.select(schema.ARM).order_by(schema.ARM.c.index))
    run["arms"] = [_named(schema.ARM.c, arm) for arm in arms]
    record = msgspec.convert({**run, "trials": ()}, sample.RunRecord)
    return replace(record, trials=tuple(_load_trials(connection)))


def _load_trials(connection: sa.Connection, *, done: bool = True) -> list[sample.TrialRecord]:
    """The trials in plan order, without results; not done: only those not done."""
    names = [name for name in sample.TrialRecord.__struct_fields__ if name != "result"]
    columns = [schema.TRIAL.c[name] for name in names]
    query = sa.select(*columns).order_by(schema.TRIAL.c.index)
    if not done:
        query = query.where(schema.TRIAL.c.status != schema.Status.DONE)
    rows = connection.execute(query)
    return [msgspec.convert(_named(columns, row), sample.TrialRecord) for row in rows]


def _load_results(connection: sa.Connection) -> dict[int, sample.TrialResult]:
    """The results of the trials that are done, by trial index."""
    query = sa.select(schema.TRIAL.c.index, schema.TRIAL.c.result)
    done = schema.TRIAL.c.status == schema.Status.DONE
    return {
        index: msgspec.convert(result, sample.TrialResult)
        for index, result in connection.execute(query.where(done))
    }


def _named(columns: Iterable[sa.Column[Any]], row: Iterable[Any]) -> dict[str, Any]:
    """A row's values by column; msgspec takes no subclass of str for a key, as SQLAlchemy has."""
    return dict(zip([str(one.name) for one in columns], row, strict=True))


def _check(connection: sa.Connection, folder: Path) -> None:
    """Raise StoreError unless the store is whole and of this kdelta's format."""
    rows = {row.key: row.value for row in connection.execute(sa.select(schema.META))}
    written = rows.get("format", "")
    if not (written.isascii() and written.isdecimal()):
        raise _corrupt(folder, "it does not say its format")
    if int(written) > FORMAT:
        raise StoreError(
            f"the store has format {written}, this kdelta knows up to {FORMAT}",
            place=str(folder / STORE_FILE),
            action=f"use kdelta {rows.get('kdelta', '')} or newer, which wrote it",
        )
    if (said := connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()) != "ok":
        raise _corrupt(folder, said)
    for table in schema.METADATA.sorted_tables:
        connection.execute(sa.select(table).limit(1)).all()


@contextmanager
def _guarded(folder: Path) -> Iterator[None]:
    """Turn what SQLite, the disk or garbage in the store does to the body into a StoreError."""
    try:
        with runfolder.disk_errors(folder):
            yield
    except sa.exc.DBAPIError as error:
        raise _failure(folder, error.orig) from error
    except (sa.exc.NoResultFound, sa.exc.MultipleResultsFound, *_NOT_ROWS) as error:
        raise _corrupt(folder, str(error)) from error


def _failure(folder: Path, error: object) -> StoreError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return runfolder.disk_full(folder)
    if code in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return _corrupt(folder, str(error))
    return StoreError(
        f"the store cannot be read or written: {error}",
        place=str(folder / STORE_FILE),
        action="check that the folder is writable and that no other program holds the file",
    )


def _corrupt(folder: Path, why: str) -> StoreError:
    return StoreError(
        f"the store is corrupt: {' '.join(why.split())}",
        place=str(folder / STORE_FILE),
        action=f"nothing measured is lost, rebuild it with: kdelta rebuild {folder.name}",
    )
