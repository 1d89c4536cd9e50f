# SPDX-License-Identifier: GPL-2.0-or-later
"""What the runs show: figures, functions, steps.  For it runs are indexed again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables, and forget of each run what was indexed, so that it is indexed again."""
    op.create_table(
        "figures",
        _case(),
        _kernel("kernel_id"),
        _run(),
        sa.Column("per_operation", sa.Float),
        sa.Column("previous", sa.String(200), nullable=False),
        sa.Column("ratio", sa.Float),
        sa.Column("verdict", sa.String(32), nullable=False),
        sa.Column("note", sa.String(200), nullable=False),
        sa.PrimaryKeyConstraint("case_id", "kernel_id", "run_id"),
        sqlite_with_rowid=False,
    )
    op.create_index("figures_by_kernel", "figures", ["kernel_id", "case_id", "run_id"])
    op.create_index("figures_by_run", "figures", ["run_id"])
    op.create_table(
        "functions",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(200), nullable=False, unique=True),
    )
    op.create_table(
        "profiles",
        sa.Column("function_id", sa.Integer, sa.ForeignKey("functions.id"), nullable=False),
        _case(),
        _kernel("kernel_id"),
        _run(),
        sa.Column("per_operation", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("function_id", "case_id", "kernel_id", "run_id"),
        sqlite_with_rowid=False,
    )
    op.create_index("profiles_by_run", "profiles", ["run_id"])
    op.create_table(
        "steps",
        _run(),
        sa.Column("number", sa.Integer, nullable=False),
        _case(),
        sa.Column("phase", sa.String(200), nullable=False),
        _kernel("old_id"),
        _kernel("new_id"),
        sa.Column("ratio", sa.Float, nullable=False),
        sa.Column("size", sa.Float, nullable=False),
        sa.Column("verdict", sa.String(32), nullable=False),
        sa.Column("functions", sa.String(400), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "number"),
    )
    op.create_index("steps_by_new_kernel", "steps", ["new_id", "size"])
    op.create_index("steps_by_size", "steps", ["size"])
    op.execute("UPDATE runs SET content = ''")


def _run() -> sa.Column[int]:
    key = sa.ForeignKey("runs.id", ondelete="CASCADE")
    return sa.Column("run_id", sa.BigInteger, key, nullable=False)


def _kernel(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, sa.ForeignKey("kernels.id"), nullable=False)


def _case() -> sa.Column[int]:
    return sa.Column("case_id", sa.Integer, sa.ForeignKey("cases.id"), nullable=False)
