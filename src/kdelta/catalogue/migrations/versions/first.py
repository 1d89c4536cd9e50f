# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs and their trials, found by the address of what was counted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables of runs, kernels, cases and trials."""
    op.create_table(
        "runs",
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("folder", sa.String(4096), nullable=False, unique=True),
        sa.Column("content", sa.String(64), nullable=False),
        sa.Column("run_id", sa.String(200), nullable=False),
        sa.Column("title", sa.String(400), nullable=False),
        sa.Column("instrument", sa.String(16), nullable=False),
        sa.Column("created", sa.String(64), nullable=False),
        sa.Column("kdelta_version", sa.String(200), nullable=False),
        sa.Column("planned", sa.Integer, nullable=False),
        sa.Column("ended", sa.Integer, nullable=False),
    )
    op.create_index("runs_by_name", "runs", ["run_id"])
    op.create_table(
        "kernels",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("label", sa.String(200), nullable=False),
        sa.Column("version", sa.String(200), nullable=False),
        sa.Column("image_sha256", sa.String(64), nullable=False),
        sa.Column("place", sa.String(128), nullable=False),
        sa.UniqueConstraint("label", "version", "image_sha256"),
    )
    op.create_table(
        "cases",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("machine", sa.String(400), nullable=False),
        sa.Column("operation", sa.String(200), nullable=False),
        sa.UniqueConstraint("name", "machine"),
    )
    op.create_table(
        "trials",
        _run(),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("round", sa.BigInteger, nullable=False),
        _kernel("kernel_id"),
        _case(),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("reason", sa.String(400), nullable=False),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("wall_s", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "number"),
    )
    op.create_index("trials_by_address", "trials", ["address"])
    op.create_index("trials_by_case", "trials", ["case_id", "kernel_id", "run_id"])


def _run() -> sa.Column[int]:
    key = sa.ForeignKey("runs.id", ondelete="CASCADE")
    return sa.Column("run_id", sa.BigInteger, key, nullable=False)


def _kernel(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, sa.ForeignKey("kernels.id"), nullable=False)


def _case() -> sa.Column[int]:
    return sa.Column("case_id", sa.Integer, sa.ForeignKey("cases.id"), nullable=False)
