# SPDX-License-Identifier: GPL-2.0-or-later
"""What the catalogue answers: each question is one or two queries that indexes serve.

Of several runs of a kernel on one kind of machine the newest stands for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from kdelta.catalogue.schema import (
    cases,
    figures,
    functions,
    kernels,
    profiles,
    runs,
    steps,
    trials,
)

MOST = 2000  # rows of an answer
Rows = list[dict[str, Any]]


def all_runs(connection: Connection, most: int = MOST) -> Rows:
    """The runs, newest first."""
    columns = (runs.c.run_id, runs.c.created, runs.c.instrument, runs.c.ended, runs.c.planned)
    return _rows(
        connection,
        sa.select(*columns, runs.c.title, runs.c.folder).order_by(runs.c.id.desc()).limit(most),
    )


def counted(connection: Connection, address: str, most: int = MOST) -> Rows:
    """The trials whose result has an address, or one that begins so; newest first."""
    column = trials.c.address
    exact = column == address if len(address) == 64 else column.between(address, address + "g")
    return _trials(connection, exact & (column != ""), most)


def trials_of(
    connection: Connection, *, run: str = "", case: str = "", kernel: str = "", most: int = MOST
) -> Rows:
    """The trials of a run, of a scenario, of a kernel, or of what of these is given."""
    wanted: sa.ColumnElement[bool] = sa.true()
    if run:
        wanted &= trials.c.run_id.in_(sa.select(runs.c.id).where(runs.c.run_id == run))
    if case:
        wanted &= trials.c.case_id.in_(_ids(connection, cases, case))
    if kernel:
        wanted &= trials.c.kernel_id.in_(_ids(connection, kernels, kernel))
    return _trials(connection, wanted, most)


def _trials(connection: Connection, wanted: sa.ColumnElement[bool], most: int) -> Rows:
    own = (trials.c.number, trials.c.outcome, trials.c.reason, trials.c.address)
    named = (cases.c.name.label("scenario"), kernels.c.label.label("kernel"))
    query = (
        sa.select(runs.c.run_id.label("run"), *named, *own, runs.c.created)
        .select_from(trials.join(runs).join(cases).join(kernels))
        .where(wanted)
        .order_by(trials.c.run_id.desc(), trials.c.number)
        .limit(most)
    )
    return _rows(connection, query)


def function_history(
    connection: Connection, name: str, *, case: str = "", most: int = MOST
) -> Rows:
    """Instructions per operation of a function: by scenario and machine, kernels in their order."""
    number = connection.execute(sa.select(functions.c.id).where(functions.c.name == name)).scalar()
    if number is None:
        return []
    wanted = profiles.c.function_id == number
    if case:
        wanted &= profiles.c.case_id.in_(_ids(connection, cases, case))
    newest = _newest(profiles, wanted)
    own = profiles.alias()
    same = (own.c.function_id == number) & _is_newest(own, newest)
    joined = newest.join(own, same)
    return _rows(connection, _named(joined, newest, [own.c.per_operation], most))


def history(connection: Connection, case: str, most: int = MOST) -> Rows:
    """A scenario over all kernels."""
    return _figures(connection, figures.c.case_id.in_(_ids(connection, cases, case)), most)


def grid(connection: Connection, most: int = 20_000) -> Rows:
    """Every scenario on every kernel."""
    return _figures(connection, sa.true(), most)


def _figures(connection: Connection, wanted: sa.ColumnElement[bool], most: int) -> Rows:
    newest = _newest(figures, wanted)
    own = figures.alias()
    told = [own.c.per_operation, own.c.previous, own.c.ratio, own.c.verdict, own.c.note]
    joined = newest.join(own, _is_newest(own, newest))
    return _rows(connection, _named(joined, newest, told, most))


def pair(connection: Connection, old: str, new: str, most: int = MOST) -> Rows:
    """Two kernels in every case that has both, by the newest run of each."""
    sides = []
    for label in (old, new):
        newest = _newest(figures, figures.c.kernel_id.in_(_ids(connection, kernels, label)))
        own = figures.alias()
        sides.append(
            sa.select(own.c.case_id, own.c.per_operation)
            .select_from(newest.join(own, _is_newest(own, newest)))
            .where(own.c.per_operation.is_not(None))
            .subquery()
        )
    was, now = sides
    query = (
        sa.select(
            cases.c.name.label("scenario"),
            cases.c.machine,
            was.c.per_operation.label("old"),
            now.c.per_operation.label("new"),
        )
        .select_from(was.join(now, was.c.case_id == now.c.case_id))
        .join(cases, cases.c.id == was.c.case_id)
        .order_by(cases.c.name, cases.c.machine)
        .limit(most)
    )
    return _rows(connection, query)


def steps_of(connection: Connection, release: str = "", most: int = MOST) -> Rows:
    """The steps to a kernel, or all, the largest first; a step that several runs show is told once,
    by the newest.
    """
    wanted: sa.ColumnElement[bool] = sa.true()
    if release:
        wanted = steps.c.new_id.in_(_ids(connection, kernels, release))
    old, new = kernels.alias(), kernels.alias()
    same = (steps.c.case_id, steps.c.phase, steps.c.old_id, steps.c.new_id)
    told = (steps.c.phase, steps.c.ratio, steps.c.size, steps.c.verdict, steps.c.functions)
    # The largest few times as many as are asked for: each may be there in several runs.
    largest = (
        sa.select(steps).where(wanted).order_by(steps.c.size.desc()).limit(most * 50).subquery()
    )
    columns = {each.name: largest.c[each.name] for each in (*same, *told, steps.c.run_id)}
    place = sa.func.row_number().over(
        partition_by=[columns[each.name] for each in same], order_by=columns["run_id"].desc()
    )
    newest = sa.select(*columns.values(), place.label("place")).subquery()
    query = (
        sa.select(
            cases.c.name.label("scenario"),
            *(newest.c[each.name] for each in told),
            old.c.label.label("old"),
            new.c.label.label("new"),
            cases.c.machine,
            runs.c.run_id.label("run"),
        )
        .select_from(newest.join(cases, cases.c.id == newest.c.case_id))
        .join(old, old.c.id == newest.c.old_id)
        .join(new, new.c.id == newest.c.new_id)
        .join(runs, runs.c.id == newest.c.run_id)
        .where(newest.c.place == 1)
        .order_by(newest.c.size.desc(), cases.c.name)
        .limit(most)
    )
    return _rows(connection, query)


def named_functions(connection: Connection, start: str = "", most: int = MOST) -> Rows:
    """Functions whose name begins so."""
    wanted = functions.c.name.startswith(start, autoescape=True) if start else sa.true()
    query = sa.select(functions.c.name).where(wanted).order_by(functions.c.name).limit(most)
    return _rows(connection, query)


def sizes(connection: Connection) -> Mapping[str, int]:
    """How many runs, trials and functions there are."""
    return {
        table.name: connection.execute(sa.select(sa.func.count()).select_from(table)).scalar() or 0
        for table in (runs, trials, functions, steps)
    }


def _ids(connection: Connection, table: sa.Table, name: str) -> Sequence[int]:
    """The numbers of a scenario on each machine, or of a kernel by its label or its version."""
    if table is cases:
        wanted = (cases.c.name == name) | cases.c.name.startswith(f"{name} ", autoescape=True)
    else:
        # 6.17 is the series: every kernel 6.17.x
        series = kernels.c.label.startswith(f"{name}.", autoescape=True)
        wanted = (kernels.c.label == name) | (kernels.c.version == name) | series
    found: Sequence[int] = connection.execute(sa.select(table.c.id).where(wanted)).scalars().all()
    return found


def _newest(table: sa.Table, wanted: sa.ColumnElement[bool]) -> sa.Subquery:
    """Of each case and kernel the newest run."""
    return (
        sa.select(table.c.case_id, table.c.kernel_id, sa.func.max(table.c.run_id).label("run_id"))
        .where(wanted)
        .group_by(table.c.case_id, table.c.kernel_id)
        .subquery()
    )


def _is_newest(own: Any, newest: Any) -> sa.ColumnElement[bool]:
    names = ("case_id", "kernel_id", "run_id")
    return sa.and_(*(own.c[name] == newest.c[name] for name in names))


def _named(joined: Any, newest: Any, columns: Sequence[Any], most: int) -> Any:
    """Columns with the names of their case, kernel and run, kernels in their order."""
    return (
        sa.select(
            cases.c.name.label("scenario"),
            cases.c.machine,
            cases.c.operation,
            kernels.c.label.label("kernel"),
            *columns,
            runs.c.run_id.label("run"),
        )
        .select_from(joined)
        .join(cases, cases.c.id == newest.c.case_id)
        .join(kernels, kernels.c.id == newest.c.kernel_id)
        .join(runs, runs.c.id == newest.c.run_id)
        .order_by(cases.c.name, cases.c.machine, kernels.c.place, kernels.c.id)
        .limit(most)
    )


def _rows(connection: Connection, query: Any) -> Rows:
    return [dict(row) for row in connection.execute(query).mappings()]
