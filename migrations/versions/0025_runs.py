"""Runs are rows: who began them, why they ended, and what they did.

Of a crawl that ran before there is a row of its present or last run. Nothing is known of its
counts; where it did not finish, its last worker tells when and why it ended.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

_SAYABLE = "{0} BETWEEN '0001-01-02 00:00:00+00' AND '9999-12-30 00:00:00+00'"

_LAST_RUNS = """
    INSERT INTO runs
        (crawl_id, number, started_at, ended_at, is_finished, worker_id, spider, job, reason)
    SELECT c.id, c.run, c.run_started_at,
        CASE WHEN c.run_finished_at IS NOT NULL THEN c.run_finished_at
            WHEN NOT lives.some THEN last.stopped_at END,
        c.run_finished_at IS NOT NULL, first.id, coalesce(first.spider, c.spider), first.job,
        CASE WHEN c.run_finished_at IS NOT NULL THEN 'finished'
            WHEN NOT lives.some THEN last.reason END
    FROM crawls c
    CROSS JOIN LATERAL (SELECT EXISTS (
        SELECT FROM processes p WHERE p.crawl_id = c.id AND p.stopped_at IS NULL) AS some) AS lives
    LEFT JOIN LATERAL (
        SELECT w.id, w.spider, w.job FROM processes p JOIN workers w ON w.id = p.id
        WHERE p.crawl_id = c.id AND p.started_at >= c.run_started_at
        ORDER BY w.id LIMIT 1) AS first ON true
    LEFT JOIN LATERAL (
        SELECT p.stopped_at, p.reason FROM processes p
        WHERE p.crawl_id = c.id AND p.stopped_at >= c.run_started_at
        ORDER BY p.stopped_at DESC LIMIT 1) AS last ON true
    WHERE c.run_started_at IS NOT NULL
"""


def upgrade() -> None:
    op.create_table(
        "runs",
        sa.Column("crawl_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.Column(
            "is_finished",
            sa.Boolean(),
            nullable=False,
            server_default=sa.text("false"),
            comment="all its work was done; else a later start goes on with it",
        ),
        sa.Column("worker_id", sa.Integer(), comment="that began it"),
        sa.Column("spider", sa.Text(), comment="that worker's"),
        sa.Column("job", sa.Text(), comment="that worker's"),
        sa.Column("reason", sa.Text(), comment="finished, or why its last worker ended"),
        sa.Column("error", sa.Text(), comment="of the last of its workers that ended by an error"),
        *(
            sa.Column(name, sa.BigInteger(), nullable=False, server_default=sa.text("0"))
            for name in ("pages", "items", "failures")
        ),
        sa.CheckConstraint(
            " AND ".join(map(_SAYABLE.format, ("started_at", "ended_at"))), name="moments"
        ),
        sa.ForeignKeyConstraint(
            ["crawl_id"], ["crawls.id"], name="runs_crawl_id_fkey", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("crawl_id", "number", name="runs_pkey"),
    )
    op.execute(_LAST_RUNS)
    op.add_column(
        "feeds",
        sa.Column("run", sa.Integer(), comment="the number of the run that it takes part in"),
    )
    op.execute("""
        UPDATE feeds f SET run = c.run FROM crawls c
        WHERE c.id = f.crawl_id AND f.run_started_at = c.run_started_at
    """)
    op.drop_column("feeds", "run_started_at")
    op.drop_constraint(op.f("crawls_moments_check"), "crawls")
    op.drop_column("crawls", "run_started_at")
    op.drop_column("crawls", "run_finished_at")
    op.create_check_constraint("moments", "crawls", _SAYABLE.format("created_at"))
