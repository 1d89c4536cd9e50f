# SPDX-License-Identifier: GPL-2.0-or-later
"""How long the catalogue takes to answer with ten million rows, in SQLite and in PostgreSQL.

    PYTHONPATH=tests .venv/bin/python bench/catalogue.py [--rows 10000000] [--only DATABASE]

The rows are synthetic: surveys of 94 scenarios over 11 kernels, made up by arithmetic; only their
number and how they are spread is that of real ones.  Wants about 3 GB of disk.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from sqlalchemy.engine import Connection

import private_postgres
from kdelta.catalogue import queries, schema
from kdelta.catalogue.database import Catalogue, opened

KERNELS, CASES, FUNCTIONS, ROUNDS, STEPS = 11, 94, 97, 1, 40
EVERY_CASE = 20  # functions that each scenario executes, as the entry of a system call
ALL_FUNCTIONS = 4000
REPEATS = 7
_BATCH = 20_000
LIMIT_MS = 200.0
Row = tuple[Any, ...]


def runs_for(rows: int) -> int:
    """How many runs have so many rows in the table of functions."""
    return max(1, rows // (KERNELS * CASES * FUNCTIONS))


def tables(runs: int) -> Iterator[tuple[str, Iterator[Row]]]:
    """Every table with its rows, in an order in which foreign keys hold."""
    numbers = [1_700_000_000 * 4096 + run * 4096 * 3600 for run in range(runs)]
    yield "runs", (
        (number, f"/lab/run-{at}", "0" * 64, f"run-{at}", "synthetic", "exact",
         "2026-01-01T00:00:00+00:00", "0", KERNELS * CASES, KERNELS * CASES)
        for at, number in enumerate(numbers)
    )  # fmt: skip
    yield "kernels", ((k, f"6.{k}.1", f"6.{k}.1-1", f"{k:064x}", f"{k:08}") for k in range(KERNELS))
    yield "cases", ((c, f"load:case_{c}", "machine", "call") for c in range(CASES))
    yield "functions", ((f, f"function_{f}") for f in range(ALL_FUNCTIONS))
    cells = [(case, kernel) for case in range(CASES) for kernel in range(KERNELS)]
    yield (
        "trials",
        (
            (number, at, 0, kernel, case, "ok", "", f"{at:08x}{run:056x}", 1.0)
            for run, number in enumerate(numbers)
            for at, (case, kernel) in enumerate(cells)
        ),
    )
    yield (
        "figures",
        (
            (case, kernel, number, 100.0 + case, "", 1.0, "SAME", "")
            for number in numbers
            for case, kernel in cells
        ),
    )
    yield (
        "steps",
        (
            (
                number,
                at,
                at % CASES,
                "total",
                at % 10,
                at % 10 + 1,
                1.1,
                1.0 + at / 100,
                "REGRESSION",
                "",
            )
            for number in numbers
            for at in range(STEPS)
        ),
    )
    yield "profiles", _profiles(numbers)


def _profiles(numbers: list[int]) -> Iterator[Row]:
    """In the order of the key, as a table that has grown over years is after a VACUUM."""
    cases_of: dict[int, list[int]] = {}
    for case in range(CASES):
        for own in _functions(case):
            cases_of.setdefault(own, []).append(case)
    for own in sorted(cases_of):
        for case in cases_of[own]:
            for kernel in range(KERNELS):
                for number in numbers:
                    yield own, case, kernel, number, 10.0 + kernel


def _functions(case: int) -> list[int]:
    others = ALL_FUNCTIONS - EVERY_CASE
    own = [EVERY_CASE + (case * 83 + at * 37) % others for at in range(FUNCTIONS)]
    return [*range(EVERY_CASE), *dict.fromkeys(own)][:FUNCTIONS]


def fill(connection: Connection, runs: int) -> dict[str, int]:
    """Put the rows in, by the quickest door of each database."""
    raw: Any = connection.connection.driver_connection
    sizes = {}
    for name, rows in tables(runs):
        columns = [column.name for column in schema.metadata.tables[name].columns]
        count = _copied if connection.dialect.name == "postgresql" else _inserted
        sizes[name] = count(raw, name, columns, rows)
    return sizes


def _copied(raw: Any, name: str, columns: list[str], rows: Iterator[Row]) -> int:
    count = 0
    with (
        raw.cursor() as cursor,
        cursor.copy(f"COPY {name} ({', '.join(columns)}) FROM STDIN") as copy,
    ):
        for row in rows:
            copy.write_row(row)
            count += 1
    return count


def _inserted(raw: Any, name: str, columns: list[str], rows: Iterator[Row]) -> int:
    count = 0
    marks = ", ".join("?" * len(columns))
    statement = f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608

    def counted() -> Iterator[Row]:
        nonlocal count
        for row in rows:
            count += 1
            yield row

    raw.executemany(statement, counted())
    return count


QUERIES: dict[str, Callable[[Connection], object]] = {
    "all runs": queries.all_runs,
    "the grid: every scenario on every kernel": queries.grid,
    "a scenario over all kernels": lambda c: queries.history(c, "load:case_7"),
    "any two kernels": lambda c: queries.pair(c, "6.3.1", "6.9.1"),
    "the largest steps of all": queries.steps_of,
    "all steps of a release": lambda c: queries.steps_of(c, "6.5.1"),
    "a function that few scenarios execute": lambda c: queries.function_history(c, "function_999"),
    "a function that every scenario executes": lambda c: queries.function_history(c, "function_3"),
    "functions by the beginning of their name": lambda c: queries.named_functions(c, "function_39"),
    "has this trial been counted": lambda c: queries.counted(c, f"{9:08x}{1:056x}"),
    "the trials of a run": lambda c: queries.trials_of(c, run="run-1"),
}  # fmt: skip


def measure(catalogue: Catalogue) -> dict[str, tuple[float, float, float]]:
    """Of each query the median and the slowest of REPEATS, and the CPU time of this process, in ms.

    SQLite works in this process, so on a busy machine its CPU time says more than the clock.
    """
    found = {}
    for name, ask in QUERIES.items():
        times, own = [], []
        for _ in range(REPEATS):
            with catalogue.reading() as connection:
                begun, cpu = time.perf_counter(), time.process_time()
                ask(connection)
                times.append((time.perf_counter() - begun) * 1000)
                own.append((time.process_time() - cpu) * 1000)
        found[name] = statistics.median(times), max(times), statistics.median(own)
    return found


def bench(url: str, rows: int) -> dict[str, tuple[float, float, float]]:
    """Fill a catalogue and ask it."""
    with opened(url, fresh=True) as catalogue:
        begun = time.perf_counter()
        with catalogue.writing() as connection:
            sizes = fill(connection, runs_for(rows))
        took = time.perf_counter() - begun
        told = f"{sum(sizes.values()):,} rows ({sizes['profiles']:,} of functions) in {took:.0f} s"
        print(f"{url.partition(':')[0]}: {told}, synthetic", flush=True)
        catalogue.settle()
        if not url.startswith("sqlite"):  # its autovacuum does so by itself, a minute later
            with catalogue.reading() as connection:
                connection.exec_driver_sql("ANALYZE")
        return measure(catalogue)


def main() -> None:
    """Print the table of docs/lab.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--only", choices=["sqlite", "postgresql"])
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()))
    chosen = parser.parse_args()
    found: dict[str, dict[str, tuple[float, float, float]]] = {}
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=chosen.scratch)))
        if chosen.only != "postgresql":
            found["SQLite"] = bench(f"sqlite:///{scratch}/lab.sqlite", chosen.rows)
        if chosen.only != "sqlite" and private_postgres.programs():
            own = stack.enter_context(private_postgres.cluster())
            url = own.url.replace("postgresql://", "postgresql+psycopg://")
            found["PostgreSQL"] = bench(url, chosen.rows)
    print("| query | " + " | ".join(f"{name}, ms (slowest; CPU)" for name in found) + " |")
    print("|---|" + "--:|" * len(found))
    for name in QUERIES:
        cells = [
            f"{own[name][0]:.1f} ({own[name][1]:.1f}; {own[name][2]:.1f})" for own in found.values()
        ]
        print(f"| {name} | {' | '.join(cells)} |")
    slow = [name for own in found.values() for name, (_, most, _) in own.items() if most > LIMIT_MS]
    print(f"above {LIMIT_MS:.0f} ms: {', '.join(slow) or 'none'}")


if __name__ == "__main__":
    main()
