# SPDX-License-Identifier: GPL-2.0-or-later
"""The catalogue's database: opened, brought to this schema, and its faults told in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import event, exc
from sqlalchemy.engine import Connection, Engine

from kdelta.catalogue import place
from kdelta.errors import InfraError, KdeltaError, SpecError, StoreError
from kdelta.printable import printable

MIGRATIONS = Path(__file__).parent / "migrations"
_ONE_WRITER = 0x6B64656C  # the number of PostgreSQL's lock that who indexes holds
_BUSY_S = 10
_MEMORY_KIB = 64 << 10  # that SQLite keeps pages in
_INDEX = "kdelta lab index"


class Catalogue:
    """An open catalogue."""

    def __init__(self, engine: Engine, url: str) -> None:
        self._engine = engine
        self._place = place.hidden(url)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection to ask questions.  Raises InfraError, StoreError."""
        with self._told(), self._engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that all others who write wait for: all of it is kept, or nothing."""
        writer = self._engine.execution_options(writes=True)
        with self._told(), writer.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ONE_WRITER})")
            yield connection

    def check(self) -> None:
        """Raise StoreError for a schema that this kdelta does not know, or not any more."""
        with self.reading() as connection:
            found = MigrationContext.configure(connection).get_current_revision()
        if found is None:
            raise StoreError(
                "the catalogue is empty", place=self._place, action=f"fill it: {_INDEX}"
            )
        self._check_known(found)
        if found != _scripts().get_current_head():
            raise StoreError(
                "the catalogue is of an earlier kdelta",
                place=self._place,
                action=f"bring it up to date: {_INDEX}",
            )

    def upgrade(self) -> None:
        """Bring the schema to this kdelta's, from none or an earlier one; runs are kept."""
        scripts = _scripts()
        with self.writing() as connection:
            found = MigrationContext.configure(connection).get_current_revision()
            self._check_known(found)
            if found == scripts.get_current_head():
                return
            _migrate(connection, scripts)

    def _check_known(self, found: str | None) -> None:
        try:
            known = found is None or _scripts().get_revision(found) is not None
        except CommandError:
            known = False
        if not known:
            raise StoreError(
                f"the catalogue is of a newer kdelta (schema {printable(str(found), 40)})",
                place=self._place,
                action=f"use that kdelta, or name another catalogue in {place.VARIABLE}",
            )

    def settle(self) -> None:
        """Let SQLite look how its rows are spread, so that it chooses the right index."""
        if self._engine.dialect.name == "sqlite":
            with self.writing() as connection:
                connection.exec_driver_sql("PRAGMA analysis_limit=1000")
                connection.exec_driver_sql("ANALYZE")

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except KdeltaError:
            raise
        except exc.SQLAlchemyError as error:
            raise _worded(error, self._place) from error
        except OSError as error:
            raise InfraError(
                f"the catalogue cannot be reached: {error.strerror or error}", place=self._place
            ) from error


@contextmanager
def opened(url: str, *, fresh: bool = False) -> Iterator[Catalogue]:
    """The catalogue at a URL (place.address).

    fresh: it may be empty or of an earlier kdelta, and is brought up to date.  Raises SpecError,
    InfraError, StoreError, one sentence each.
    """
    catalogue = Catalogue(_engine(url), url)
    try:
        if fresh:
            catalogue.upgrade()
        else:
            catalogue.check()
        yield catalogue
    finally:
        catalogue.close()


def _engine(url: str) -> Engine:
    try:
        parsed = sa.make_url(url)
        if parsed.get_backend_name() == "sqlite" and parsed.database:
            Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
        # What a connection is given: a time limit, so that a server that is gone is told.
        extra: dict[str, Any] = (
            {"timeout": _BUSY_S}
            if parsed.get_backend_name() == "sqlite"
            else {"connect_timeout": _BUSY_S, "client_encoding": "utf8"}
        )
        engine = sa.create_engine(parsed, connect_args=extra, pool_pre_ping=True)
    except (exc.ArgumentError, exc.NoSuchModuleError, ValueError) as error:
        raise SpecError(
            f"is no address of a catalogue: {printable(str(error), 200)}",
            place=place.VARIABLE,
            action="give postgresql://USER@HOST/NAME, or sqlite:////absolute/path",
        ) from error
    except ImportError as error:
        raise InfraError(
            f"this catalogue needs {error.name}, which is not installed", action=place.EXTRA
        ) from error
    except OSError as error:
        raise InfraError(
            f"the catalogue's folder cannot be made: {error.strerror}", place=place.hidden(url)
        ) from error
    if engine.dialect.name == "sqlite":
        _as_sqlite(engine)
    return engine


def _as_sqlite(engine: Engine) -> None:
    """Foreign keys hold, and a transaction begins where we say: who writes waits for its turn."""

    def connected(connection: Any, _record: object) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute(f"PRAGMA cache_size=-{_MEMORY_KIB}")

    def begun(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", begun)


def _scripts() -> ScriptDirectory:
    return ScriptDirectory(str(MIGRATIONS))


def _migrate(connection: Connection, scripts: ScriptDirectory, target: str = "head") -> None:
    """Run the migrations that are missing, inside the connection's transaction."""
    from alembic.config import Config

    def steps(revision: Any, _context: object) -> Any:
        return scripts._upgrade_revs(target, revision)  # noqa: SLF001 alembic's own env.py does so

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with EnvironmentContext(config, scripts, fn=steps) as environment:
        environment.configure(connection=connection)
        environment.run_migrations()


def _worded(error: exc.SQLAlchemyError, where: str) -> KdeltaError:
    """What a fault of the database is, as one sentence."""
    cause = str(getattr(error, "orig", None) or error)
    first = printable(cause.strip().splitlines()[0] if cause.strip() else "no reason given", 200)
    words = first.lower()
    if "locked" in words or "lock timeout" in words:
        return InfraError(
            f"another program has held the catalogue for {_BUSY_S} s",
            place=where,
            action="wait for it to end, and try again",
        )
    if "not a database" in words or "malformed" in words:
        return StoreError(
            "the catalogue is damaged, or no catalogue at all",
            place=where,
            action=f"remove the file and fill it again from the runs: {_INDEX}",
        )
    if "no such table" in words or ("does not exist" in words and "relation" in words):
        return StoreError(
            f"the catalogue lacks a table: {first}",
            place=where,
            action=f"begin a new one and fill it from the runs: {_INDEX}",
        )
    if "readonly" in words or "unable to open" in words:
        return InfraError(
            f"the catalogue cannot be used: {first}",
            place=where,
            action=f"make it writable, or name another one in {place.VARIABLE}",
        )
    return InfraError(
        f"the database does not do what it should: {first}",
        place=where,
        action="is its server there? start it, and try again; nothing but the catalogue is lost",
    )
