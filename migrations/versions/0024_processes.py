"""One table of processes, of which workers are a kind: who lives stands there alone.

Both tables are made anew. Workers keep their numbers, and no number is given again. Whether
somebody holds a lock is not known of workers of before, whose locks have another key: they are dead
when their lease is over.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

# The names of constraints are those of their indexes, and those of NOT NULL are drawn so that no
# other table has them.
RENAME_CONSTRAINTS = """
    DO $$
    DECLARE
        one text;
    BEGIN
        FOR one IN SELECT conname FROM pg_constraint
            WHERE conrelid = 'workers_of_before'::regclass AND starts_with(conname, 'workers_')
        LOOP
            EXECUTE format('ALTER TABLE workers_of_before RENAME CONSTRAINT %I TO %I',
                one, 'old_' || one);
        END LOOP;
    END $$
"""

PROCESSES = """
    INSERT INTO processes (id, kind, crawl_id, host, process_id, code, started_at, lease_until,
        seen_at, memory, stopped_at, reason)
    SELECT id, 'worker', crawl_id, host, process_id, code, started_at, lease_until, seen_at, memory,
        stopped_at, reason
    FROM workers_of_before ORDER BY id
"""

WORKERS = """
    INSERT INTO workers (id, spider, job, has_started, sources)
    SELECT id, spider, job, has_started, sources FROM workers_of_before ORDER BY id
"""

NEXT_NUMBER = """
    SELECT setval(pg_get_serial_sequence('processes', 'id'), last_value, is_called)
    FROM workers_id_seq
"""


def moment(name: str, *, null: bool = True, now: bool = False) -> sa.Column[object]:
    """Declare a column of a moment."""
    default = sa.func.now() if now else None
    return sa.Column(
        name, sa.DateTime(timezone=True), nullable=null and not now, server_default=default
    )


def make_processes() -> None:
    """Make the table of processes."""
    moments = ("started_at", "locked_at", "lease_until", "stopped_at", "seen_at")
    within = "{0} BETWEEN '0001-01-02 00:00:00+00' AND '9999-12-30 00:00:00+00'"
    op.create_table(
        "processes",
        sa.Column("id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False, comment="what it is: worker, …"),
        sa.Column(
            "crawl_id",
            sa.Integer(),
            comment="the crawl that a worker works on; null: it is no worker",
        ),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("process_id", sa.Integer(), nullable=False),
        sa.Column("code", sa.Text(), comment="the version of its code: of its egg, or a digest"),
        moment("started_at", now=True),
        moment("locked_at"),
        moment("lease_until", null=False),
        moment("seen_at", now=True),
        sa.Column(
            "memory",
            sa.BigInteger(),
            comment="bytes that its process has, when it was seen last",
        ),
        moment("stopped_at"),
        sa.Column("reason", sa.Text(), comment="why it stopped"),
        sa.CheckConstraint(
            " AND ".join(map(within.format, moments)), name=op.f("processes_moments_check")
        ),
        sa.ForeignKeyConstraint(
            ["crawl_id"], ["crawls.id"], name="processes_crawl_id_fkey", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="processes_pkey"),
    )
    op.create_index(
        "processes_living_idx",
        "processes",
        ["crawl_id"],
        postgresql_where=sa.text("stopped_at IS NULL"),
    )


def make_workers() -> None:
    """Make the table of workers."""
    op.create_table(
        "workers",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("spider", sa.Text(), nullable=False),
        sa.Column("job", sa.Text(), comment="Scrapyd's job id"),
        sa.Column("has_started", sa.Boolean(), nullable=False, server_default=sa.text("false")),
        sa.Column(
            "sources",
            sa.JSON(),
            nullable=False,
            server_default=sa.text("'{}'"),
            comment="of its tasks, by name: digests of the code that it runs",
        ),
        sa.ForeignKeyConstraint(
            ["id"], ["processes.id"], name="workers_id_fkey", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="workers_pkey"),
    )


def upgrade() -> None:
    op.drop_constraint("handed_worker_id_fkey", "handed")
    op.rename_table("workers", "workers_of_before")
    op.execute(RENAME_CONSTRAINTS)
    make_processes()
    make_workers()
    for statement in (PROCESSES, WORKERS, NEXT_NUMBER):
        op.execute(statement)
    op.drop_table("workers_of_before")
    op.create_foreign_key(
        "handed_worker_id_fkey", "handed", "workers", ["worker_id"], ["id"], ondelete="CASCADE"
    )
