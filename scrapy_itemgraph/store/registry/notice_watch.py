"""What people are told that lasts: nothing is done in a crawl, or too much of it fails.

Each is told once, until it is over and begins again. What lasts stands in `notices.holds`, of which
an index allows one row of a crawl and kind, so that any number of processes may look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import text

from scrapy_itemgraph.model import next_commands
from scrapy_itemgraph.model.health import Health
from scrapy_itemgraph.model.notices import Kind
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store import health
from scrapy_itemgraph.tools.wording import format_period

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection, TextClause

    from scrapy_itemgraph.model.notices import Watch

_LIVING = """
    SELECT p.crawl_id, min(p.started_at) AS since FROM processes p
    WHERE p.crawl_id IS NOT NULL AND p.stopped_at IS NULL GROUP BY p.crawl_id"""

# Retries are nothing done. A minute's row is of what was done until its end.
_WAS_DONE = """EXISTS (
        SELECT FROM task_minutes m
        WHERE m.crawl_id = {crawl} AND m.minute >= {since} - interval '1 minute'
            AND (m.done, m.failed, m.refused, m.gone, m.items, m.scraped) <> (0, 0, 0, 0, 0, 0))"""

_PERIOD_AGO = "(SELECT clock_timestamp()) - CAST(:period AS interval)"


def _writing(found: str) -> TextClause:
    """Return what writes a notice of each crawl (id, name) that is found, unless one holds."""
    return text(f"""
        INSERT INTO notices (crawl_id, what, project, body, next_at, holds)
        SELECT found.id, :what, :project,
            json_build_object('crawl', found.name, 'reason', CAST(:reason AS text)),
            clock_timestamp(), true
        FROM ({found}) AS found
        ON CONFLICT (crawl_id, what) WHERE holds DO NOTHING
        RETURNING id, crawl_id AS crawl
    """)  # noqa: S608 - our own statements


# Crawls with processes, the oldest of which has lived for the period. Without any: the first of
# the queue, if nothing has happened to it for the period; those behind it wait for it.
IDLE = _writing(f"""
    SELECT c.id, c.name FROM ({_LIVING}) AS lives JOIN crawls c ON c.id = lives.crawl_id
    WHERE (c.project = :project OR c.id = :own) AND lives.since < {_PERIOD_AGO}
        AND NOT {_WAS_DONE.format(crawl="c.id", since=_PERIOD_AGO)}
    UNION ALL
    SELECT c.id, c.name FROM (
        SELECT c.id, c.name FROM crawls c
        WHERE c.state = 'active' AND c.project = :project AND c.concurrency > 0
            AND (c.next_at IS NULL OR c.next_at <= (SELECT clock_timestamp()))
        ORDER BY c.nice, c.queued_at, c.id LIMIT 1) AS c
    WHERE NOT EXISTS (SELECT FROM processes p WHERE p.crawl_id = c.id AND p.stopped_at IS NULL)
        AND (SELECT e.at FROM crawl_events e WHERE e.crawl_id = c.id ORDER BY e.id DESC LIMIT 1)
            < {_PERIOD_AGO}
        AND NOT {_WAS_DONE.format(crawl="c.id", since=_PERIOD_AGO)}
""")  # noqa: S608 - our own conditions

NO_LONGER_IDLE = text(f"""
    UPDATE notices n SET holds = false
    WHERE n.holds AND n.what = :what AND n.project = :project AND (n.crawl_id IS NULL
        OR {_WAS_DONE.format(crawl="n.crawl_id", since="n.created_at + interval '2 minutes'")}
        OR NOT EXISTS (
            SELECT FROM crawls c WHERE c.id = n.crawl_id AND (c.state = 'active'
                OR EXISTS (SELECT FROM processes p
                    WHERE p.crawl_id = c.id AND p.stopped_at IS NULL))))
""")  # noqa: S608 - our own condition

_ARE_MANY = """(
        SELECT count(*) FROM (
            SELECT FROM tasks t JOIN failures f ON f.task_id = t.id AND f.handled_at IS NULL
            WHERE t.crawl_id = {crawl} LIMIT :most + 1) AS counted) > :most"""

FAILING = _writing(f"""
    SELECT c.id, c.name FROM crawls c
    WHERE c.id IN (
            SELECT lives.crawl_id FROM ({_LIVING}) AS lives UNION ALL SELECT CAST(:own AS int))
        AND (c.project = :project OR c.id = :own) AND {_ARE_MANY.format(crawl="c.id")}
""")  # noqa: S608 - our own conditions

NO_LONGER_FAILING = text(f"""
    UPDATE notices n SET holds = false
    WHERE n.holds AND n.what = :what AND n.project = :project AND (n.crawl_id IS NULL
        OR NOT {_ARE_MANY.format(crawl="n.crawl_id")})
""")  # noqa: S608 - our own condition


# The last of each task, and of its refusals: the end of their part of the index of open ones.
LAST_FAILURE = text("""
    SELECT f.id, t.name AS task, f.error ->> 'type' AS error
    FROM tasks t CROSS JOIN (VALUES (false), (true)) AS k (is_refusal) CROSS JOIN LATERAL (
        SELECT f.id, f.error FROM failures f
        WHERE f.handled_at IS NULL
            AND (f.task_id, f.is_refusal) >= (t.id, k.is_refusal)
            AND (f.task_id, f.is_refusal) <= (t.id, k.is_refusal)
        ORDER BY f.task_id DESC, f.is_refusal DESC, f.id DESC LIMIT 1) AS f
    WHERE t.crawl_id = :crawl ORDER BY f.id DESC LIMIT 1
""")

SAY = text("""
    UPDATE notices SET body = json_strip_nulls(json_build_object('crawl', body -> 'crawl',
        'reason', CAST(:reason AS text), 'failure', CAST(:failure AS bigint)))
    WHERE id = :id
""")


def watch(connection: Connection, watched: Watch, project: str, own: int = 0) -> None:
    """Write what began to last, of crawls of a project and of `own`; note what is over."""
    engine.hot_path(connection)
    here = {"project": project, "own": own}
    if watched.idle is not None:
        idle = {"what": Kind.IDLE, **here}
        connection.execute(NO_LONGER_IDLE, {"what": Kind.IDLE, "project": project})
        said = f"for {format_period(watched.idle.total_seconds())} or more"
        begun = connection.execute(IDLE, {**idle, "period": watched.idle, "reason": said})
        _say_why(connection, {notice.crawl: notice.id for notice in begun}, said)
    if watched.failures is not None:
        failing = {"what": Kind.FAILURES, "project": project, "most": watched.failures}
        connection.execute(NO_LONGER_FAILING, failing)
        said = f"more than {watched.failures:,}"
        begun = connection.execute(FAILING, {**failing, "own": own, "reason": said})
        for notice in begun.all():
            _say_which(connection, notice.id, notice.crawl, said)


def _say_why(connection: Connection, notices: Mapping[int, int], said: str) -> None:
    """Add to notices, given by crawl, why these crawls are not well."""
    for crawl, found in health.of_each(connection, list(notices)).items():
        if found.health is not Health.GREEN:
            why = {"reason": f"{said}; {found.why}", "failure": None}
            connection.execute(SAY, {"id": notices[crawl], **why})


def _say_which(connection: Connection, notice: int, crawl: int, said: str) -> None:
    """Add the last failure of a crawl to a notice: what it is and where, not what a page said."""
    last = connection.execute(LAST_FAILURE, {"crawl": crawl}).first()
    if last is None:  # it was handled just now
        return
    look = next_commands.command("failures", str(last.id))
    reason = f"{said}; the last: {last.error or 'an error'} in {last.task}, see {look}"
    connection.execute(SAY, {"id": notice, "reason": reason, "failure": last.id})
