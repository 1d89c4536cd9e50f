# SPDX-License-Identifier: GPL-2.0-or-later
"""The catalogue on a real PostgreSQL: the same answers, also when its server is killed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

import ladder_records
from kdelta.catalogue import database, indexing, place, queries
from kdelta.catalogue.indexing import Indexed
from kdelta.errors import InfraError
from private_postgres import Cluster, cluster
from test_catalogue import SCENARIO, addressed, kept

pytestmark = pytest.mark.program


@pytest.fixture(scope="module")
def server() -> Iterator[Cluster]:
    with cluster() as own:
        yield own


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for at in range(3):
        record = replace(addressed(ladder_records.ladder(1)), created=f"2026-11-2{at}T10:15:00Z")
        kept(tmp_path / "runs" / f"run-{at}", record)
    return tmp_path / "runs"


def url_of(server: Cluster, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(place.VARIABLE, server.url)
    return place.address()


def answers(url: str) -> list[object]:
    with database.opened(url) as catalogue, catalogue.reading() as connection:
        return [
            queries.all_runs(connection),
            queries.grid(connection),
            queries.history(connection, SCENARIO),
            queries.pair(connection, "6.16.12", "6.17.13"),
            queries.steps_of(connection),
            queries.steps_of(connection, "6.17"),
            queries.function_history(connection, "prot_commit_flush_ptes"),
            queries.named_functions(connection, "pro"),
            queries.counted(connection, "0" * 60),
            queries.trials_of(connection, run="run-1"),
        ]


def test_it_answers_as_sqlite_does_and_survives_its_server(
    server: Cluster, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = f"sqlite:///{tmp_path}/own.sqlite"
    with database.opened(own, fresh=True) as catalogue:
        list(indexing.index(catalogue, [], [runs]))
    expected = answers(own)
    assert all(expected)
    url = url_of(server, monkeypatch)
    with database.opened(url, fresh=True) as catalogue:
        found = indexing.index(catalogue, [], [runs])
        assert next(found).what is Indexed.NEW
        os.kill(server.pid, signal.SIGKILL)  # with its sessions: the postmaster's death ends them
        with pytest.raises(InfraError, match="is its server there"):
            list(found)
    with pytest.raises(InfraError, match="is its server there"):
        answers(url)
    server.start()
    with database.opened(url, fresh=True) as catalogue:
        assert [one.what for one in indexing.index(catalogue, [], [runs])].count(Indexed.NEW) == 2
    assert answers(url) == expected


def test_who_indexes_at_once_makes_nothing_twice(
    server: Cluster, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = url_of(server, monkeypatch)
    faults: list[BaseException] = []

    def work() -> None:
        try:
            with database.opened(url, fresh=True) as catalogue:
                list(indexing.index(catalogue, [], [runs]))
        except BaseException as error:  # noqa: BLE001 told below
            faults.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    with database.opened(url) as catalogue, catalogue.reading() as connection:
        names = [row["folder"] for row in queries.all_runs(connection)]
    assert sorted(name for name in names if str(runs) in name) == sorted(map(str, runs.iterdir()))
