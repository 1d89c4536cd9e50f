# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables of a run's store; a field of kdelta.sample and its column have one name."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import sqlalchemy as sa

_BIG = re.compile(r"-?[0-9]{1,4000}")


class Status(StrEnum):
    """Where a trial stands; RUNNING is also what a killed process leaves behind."""

    PLANNED = "planned"
    RUNNING = "running"
    DONE = "done"


class _Count(sa.types.UserDefinedType[int]):
    """A whole number of any size: SQLite's own up to 64 bits, decimal text beyond.

    The column has no declared type, because INTEGER affinity would round such text to a float.
    """

    cache_ok = True

    def get_col_spec(self, **_options: object) -> str:
        return ""

    def bind_processor(self, dialect: sa.Dialect) -> Callable[[Any], int | str]:  # noqa: ARG002
        return lambda value: value if -(2**63) <= value < 2**63 else str(value)

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> Callable[[Any], Any]:  # noqa: ARG002
        return lambda value: (
            int(value) if isinstance(value, str) and _BIG.fullmatch(value) else value
        )


METADATA = sa.MetaData()
_JSON = sa.JSON(none_as_null=True)


def _columns(kind: Any, *names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False) for name in names]


META = sa.Table(
    "meta", METADATA, sa.Column("key", sa.Text, primary_key=True), *_columns(sa.Text, "value")
)
RUN = sa.Table(
    "run",
    METADATA,
    *_columns(sa.Text, "run_id", "name", "title", "created", "kdelta_version"),
    *_columns(sa.Text, "study_toml", "study_digest", "instrument"),
    *_columns(_Count, "seed", "rounds"),
)
ARM = sa.Table(
    "arm",
    METADATA,
    sa.Column("index", sa.Integer, primary_key=True),
    *_columns(sa.Text, "label"),
    *_columns(_JSON, "kernel", "axes"),
    *_columns(sa.Boolean, "control"),
)
TRIAL = sa.Table(
    "trial",
    METADATA,
    sa.Column("index", sa.Integer, primary_key=True),
    *_columns(sa.Integer, "round"),
    sa.Column("arm", sa.ForeignKey("arm.index"), nullable=False),
    *_columns(sa.Text, "workload", "scenario", "status"),
    *_columns(sa.Integer, "attempts"),
    # NULL until the trial is done.
    sa.Column("outcome", sa.Text),
    sa.Column("result", _JSON),
)
