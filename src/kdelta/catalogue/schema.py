# SPDX-License-Identifier: GPL-2.0-or-later
"""The tables of the catalogue as queries see them; what makes them are the migrations.

A run's number holds when it was made, so the larger of two is the newer: "the newest run of each
kernel" is then a maximum, which an index answers.  A case is a scenario on one kind of machine:
counts of different machines never meet in a row.
"""

from __future__ import annotations

import sqlalchemy as sa

MOST = 200  # characters of a name
LONGER = 400  # of a sentence, or a folder

metadata = sa.MetaData()

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("folder", sa.String(4096), nullable=False, unique=True),
    sa.Column("content", sa.String(64), nullable=False),
    sa.Column("run_id", sa.String(MOST), nullable=False),
    sa.Column("title", sa.String(LONGER), nullable=False),
    sa.Column("instrument", sa.String(16), nullable=False),
    sa.Column("created", sa.String(64), nullable=False),
    sa.Column("kdelta_version", sa.String(MOST), nullable=False),
    sa.Column("planned", sa.Integer, nullable=False),
    sa.Column("ended", sa.Integer, nullable=False),
)
kernels = sa.Table(
    "kernels",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("label", sa.String(MOST), nullable=False),
    sa.Column("version", sa.String(MOST), nullable=False),
    sa.Column("image_sha256", sa.String(64), nullable=False),
    sa.Column("place", sa.String(128), nullable=False),
    sa.UniqueConstraint("label", "version", "image_sha256"),
)
cases = sa.Table(
    "cases",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(MOST), nullable=False),
    sa.Column("machine", sa.String(LONGER), nullable=False),
    sa.Column("operation", sa.String(MOST), nullable=False),
    sa.UniqueConstraint("name", "machine"),
)
_run = ("run_id", sa.BigInteger, "runs.id")


def _of(name: str, kind: type[sa.types.TypeEngine[int]], target: str) -> sa.Column[int]:
    """A column that points at another table; what hangs on a run goes with it."""
    gone = "CASCADE" if target == "runs.id" else None
    key = sa.ForeignKey(target, ondelete=gone)
    return sa.Column(name, kind, key, nullable=False)


trials = sa.Table(
    "trials",
    metadata,
    _of(*_run),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Column("round", sa.BigInteger, nullable=False),
    _of("kernel_id", sa.Integer, "kernels.id"),
    _of("case_id", sa.Integer, "cases.id"),
    sa.Column("outcome", sa.String(16), nullable=False),
    sa.Column("reason", sa.String(LONGER), nullable=False),
    sa.Column("address", sa.String(64), nullable=False),
    sa.Column("wall_s", sa.Float, nullable=False),
    sa.PrimaryKeyConstraint("run_id", "number"),
)
figures = sa.Table(
    "figures",
    metadata,
    _of("case_id", sa.Integer, "cases.id"),
    _of("kernel_id", sa.Integer, "kernels.id"),
    _of(*_run),
    sa.Column("per_operation", sa.Float),
    sa.Column("previous", sa.String(MOST), nullable=False),
    sa.Column("ratio", sa.Float),
    sa.Column("verdict", sa.String(32), nullable=False),
    sa.Column("note", sa.String(MOST), nullable=False),
    sa.PrimaryKeyConstraint("case_id", "kernel_id", "run_id"),
)
functions = sa.Table(
    "functions",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(MOST), nullable=False, unique=True),
)
profiles = sa.Table(
    "profiles",
    metadata,
    _of("function_id", sa.Integer, "functions.id"),
    _of("case_id", sa.Integer, "cases.id"),
    _of("kernel_id", sa.Integer, "kernels.id"),
    _of(*_run),
    sa.Column("per_operation", sa.Float, nullable=False),
    sa.PrimaryKeyConstraint("function_id", "case_id", "kernel_id", "run_id"),
)
steps = sa.Table(
    "steps",
    metadata,
    _of(*_run),
    sa.Column("number", sa.Integer, nullable=False),
    _of("case_id", sa.Integer, "cases.id"),
    sa.Column("phase", sa.String(MOST), nullable=False),
    _of("old_id", sa.Integer, "kernels.id"),
    _of("new_id", sa.Integer, "kernels.id"),
    sa.Column("ratio", sa.Float, nullable=False),
    sa.Column("size", sa.Float, nullable=False),
    sa.Column("verdict", sa.String(32), nullable=False),
    sa.Column("functions", sa.String(LONGER), nullable=False),
    sa.PrimaryKeyConstraint("run_id", "number"),
)
