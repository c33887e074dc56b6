"""Numbers that limits, tasks and runs cannot be kept by are refused by the database.

What stands there by now is mended first, so that no row keeps a database from being migrated.
"""

from __future__ import annotations

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

MOMENT = "{0} BETWEEN '0001-01-02 00:00:00+00' AND '9999-12-30 00:00:00+00'"
# By table: moments, each with what it becomes where it is none that Python can say.
MOMENTS = {
    "crawls": {"created_at": "now()", "run_started_at": "NULL", "run_finished_at": "NULL"},
    "holdings": {"since": "now()", "asked_at": "NULL", "until": "now()"},
    "limits": {"last_at": "NULL", "blocked_until": "NULL"},
    "queues": {"next_at": "now()"},
    "workers": {
        "started_at": "now()",
        "locked_at": "NULL",
        "lease_until": "now()",
        "stopped_at": "now()",
        "seen_at": "now()",
    },
}
# A task whose period is mended is registered anew by the next start of its spider.
MEND = (
    """
    UPDATE limits SET
        gap = CASE WHEN gap >= 0 AND gap < 'Infinity' THEN gap END,
        delay = CASE WHEN delay >= 0 AND delay < 'Infinity' THEN delay END,
        throttle = CASE WHEN throttle >= 0 AND throttle < 'Infinity' THEN throttle END,
        latency = CASE WHEN latency >= 0 AND latency < 'Infinity' THEN latency END,
        set_gap = CASE WHEN set_gap >= 0.001 AND set_gap < 'Infinity'
            THEN least(set_gap, 86400) END,
        crawl_delay = CASE WHEN crawl_delay >= 0.001 AND crawl_delay < 'Infinity'
            THEN least(crawl_delay, 60) END,
        concurrency = CASE WHEN concurrency >= 1 THEN concurrency END,
        set_concurrency = CASE WHEN set_concurrency >= 1 THEN set_concurrency END
    """,
    "UPDATE holdings SET units = 0 WHERE units < 0",
    (
        "UPDATE tasks SET max_failures = NULL, definition = CAST(repeat('0', 32) AS uuid) "
        "WHERE max_failures < 1"
    ),
    "UPDATE crawls SET names_freed = 0 WHERE NOT names_freed BETWEEN 0 AND 4611686018427387904",
    "UPDATE logins SET generation = 0 WHERE NOT generation BETWEEN 0 AND 1073741824",
    """
    UPDATE tasks SET definition = CAST(repeat('0', 32) AS uuid),
        ttl = CASE WHEN ttl > interval '0' THEN interval '36525 days' END
    WHERE ttl <= interval '0' OR ttl > interval '36525 days'
    """,
    """
    UPDATE crawls SET run_finished_at = NULL
    WHERE run_started_at IS NULL AND run_finished_at IS NOT NULL
    """,
)
CHECKS = {
    "limits": {
        "delays": "gap >= 0 AND gap < 'Infinity' AND delay >= 0 AND delay < 'Infinity' "
        "AND throttle >= 0 AND throttle < 'Infinity' AND latency >= 0 AND latency < 'Infinity'",
        "set_gap": "set_gap BETWEEN 0.001 AND 86400",
        "crawl_delay": "crawl_delay BETWEEN 0.001 AND 86400",
        "concurrency": "concurrency >= 1 AND set_concurrency >= 1",
    },
    "holdings": {"units": "units >= 0"},
    "tasks": {
        "ttl": "ttl > '0' AND ttl <= '36525 days'",
        "max_failures": "max_failures >= 1",
    },
    "crawls": {"names_freed": "names_freed BETWEEN 0 AND 4611686018427387904"},
    "logins": {"generation": "generation BETWEEN 0 AND 1073741824"},
}


def upgrade() -> None:
    for table, columns in MOMENTS.items():
        for column, instead in columns.items():
            is_moment = MOMENT.format(column)
            op.execute(f"UPDATE {table} SET {column} = {instead} WHERE NOT ({is_moment})")  # noqa: S608
    for statement in MEND:
        op.execute(statement)
    for table, columns in MOMENTS.items():
        condition = " AND ".join(map(MOMENT.format, columns))
        op.create_check_constraint(op.f(f"{table}_moments_check"), table, condition)
    for table, checks in CHECKS.items():
        for name, condition in checks.items():
            op.create_check_constraint(op.f(f"{table}_{name}_check"), table, condition)
