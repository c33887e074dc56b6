"""Notices: what people are to be told, written by what makes it true, and sent after it.

Who sends one claims it first: the next try is set to when this one must be over. So a sender that
is killed loses nothing, and two do not send the same one unless the first is slow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.model import input_checks
from scrapy_itemgraph.model.health import Health
from scrapy_itemgraph.model.notices import (
    GIVEN_UP_AFTER,
    Answer,
    Arrival,
    Kind,
    Notice,
    pause_after,
)
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store import health

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import timedelta

    from sqlalchemy import Connection

WRITE = text("""
    INSERT INTO notices (crawl_id, what, project, body, next_at)
    VALUES (:crawl, :what,
        COALESCE(CAST(:project AS text), (SELECT c.project FROM crawls c WHERE c.id = :crawl)),
        CAST(:body AS json), clock_timestamp())
""")

_IS_OF_KIND = "n.what = ANY (CAST(:kinds AS text[]))"
# now() is one moment in a statement: each notice is wanted in both parts, or in none.
_IS_WANTED = f"""{_IS_OF_KIND}
            AND (n.tries > 0 OR n.created_at >= now() - CAST(:longest AS interval))"""
# What nobody is to be told, and what nobody sent in a day, are noted as such on the way: many at a
# time, and beside what is to be sent, which does not wait for them.
CLAIM = text(f"""
    WITH over AS MATERIALIZED (
        SELECT o.id FROM notices o
        WHERE o.next_at <= (SELECT clock_timestamp()) AND o.id = ANY (ARRAY(
            SELECT n.id FROM (
                SELECT n.id, n.what, n.tries, n.created_at FROM notices n
                WHERE n.project = :project AND n.next_at <= (SELECT clock_timestamp())
                ORDER BY n.next_at LIMIT :most) AS n
            WHERE NOT ({_IS_WANTED})))
        FOR UPDATE SKIP LOCKED),
    noted AS (
        UPDATE notices n
        SET next_at = NULL,
            given_up_at = CASE WHEN {_IS_OF_KIND} THEN clock_timestamp() END,
            error = CASE WHEN {_IS_OF_KIND}
                THEN 'nobody sent it on the day when it was written' ELSE n.error END
        FROM over WHERE n.id = over.id),
    due AS MATERIALIZED (
        SELECT n.id FROM notices n
        WHERE n.project = :project AND n.next_at <= (SELECT clock_timestamp())
            AND {_IS_WANTED}
        ORDER BY n.next_at LIMIT :limit
        FOR UPDATE SKIP LOCKED)
    UPDATE notices n
    SET tries = n.tries + 1, next_at = clock_timestamp() + CAST(:lease AS interval)
    FROM due WHERE n.id = due.id
    RETURNING n.id, n.crawl_id, CAST(n.key AS text) AS key, n.what, n.project, n.body,
        n.created_at, n.tries, n.answers
""")  # noqa: S608 - our own text

# Answers of a sender that was slow count, too: another may have sent it since.
ANSWERED = text("""
    UPDATE notices SET answers = answers || CAST(:answers AS jsonb), error = :error,
        sent_at = CASE WHEN :is_sent THEN clock_timestamp() END,
        given_up_at = CASE WHEN :is_given_up THEN clock_timestamp() END,
        next_at = CASE WHEN NOT (:is_sent OR :is_given_up)
            THEN clock_timestamp() + CAST(:pause AS interval) END
    WHERE id = :id AND sent_at IS NULL AND given_up_at IS NULL
    RETURNING id
""")

IS_OVER = text("""
    SELECT created_at + CAST(:longest AS interval)
        < clock_timestamp() + CAST(:pause AS interval) FROM notices WHERE id = :id
""")

LONGEST = 4000  # characters of an error that are kept
_MOST_OVER = 1000  # notices that a claim looks at for those that are not sent


def write(
    connection: Connection,
    crawl_id: int | None,
    what: str,
    *,
    project: str | None = None,
    **body: Any,
) -> None:
    """Have people told of something, once this transaction is committed.

    Those of a project are told, by default those of the crawl's.
    """
    given = {
        "crawl": crawl_id,
        "what": what,
        "project": project,
        "body": input_checks.write_json(body),
    }
    connection.execute(WRITE, given)


def claim(
    connection: Connection,
    project: str,
    *,
    kinds: Collection[str],
    lease: timedelta,
    limit: int,
) -> list[Notice]:
    """Return notices of a project that are to be sent now, and are this process's for a lease."""
    engine.hot_path(connection)
    given = {
        "project": project,
        "kinds": sorted(kinds),
        "lease": lease,
        "longest": GIVEN_UP_AFTER,
        "limit": limit,
        "most": _MOST_OVER,
    }
    rows = connection.execute(CLAIM, given).all()
    broken = _broken(connection, rows)
    return [_notice(row, broken.get(row.crawl_id)) for row in sorted(rows, key=lambda row: row.id)]


def _broken(connection: Connection, rows: Sequence[Any]) -> dict[int, str]:
    """Return why crawls are broken that are said to be finished."""
    crawls = {row.crawl_id for row in rows if row.what == Kind.FINISHED and row.crawl_id}
    found = health.of_each(connection, list(crawls)) if crawls else {}
    return {crawl: one.why for crawl, one in found.items() if one.health is Health.RED}


def _notice(row: Any, broken: str | None) -> Notice:
    body = dict(row.body)
    if broken is not None and row.what == Kind.FINISHED:
        body["reason"] = "; ".join(filter(None, (broken, body.get("reason"))))
    answers = [Answer(channel=name, **one) for name, one in row.answers.items()]
    return Notice(
        id=row.id,
        key=row.key,
        what=row.what,
        project=row.project,
        crawl=body.pop("crawl", None),
        reason=body.pop("reason", None),
        detail=body,
        created_at=row.created_at,
        tries=row.tries,
        done=tuple(one for one in answers if one.arrival != Arrival.FAILED),
    )


def answered(connection: Connection, notice: Notice, answers: Sequence[Answer]) -> bool:
    """Note what the channels answered that were to be tried; return whether it is given up.

    It is sent when all have it, and given up when one refused it or a day has passed.
    """
    failed = [one for one in answers if one.arrival == Arrival.FAILED]
    refused = [one for one in [*notice.done, *answers] if one.arrival == Arrival.REFUSED]
    pause = pause_after(notice.tries)
    is_late = bool(failed) and _is_over(connection, notice.id, pause)
    is_given_up = is_late or (bool(refused) and not failed)
    said = [f"{one.channel}: {one.said}" for one in [*failed, *refused]]
    given = {
        "id": notice.id,
        "answers": input_checks.write_json(
            {one.channel: {"arrival": one.arrival, "said": one.said[:LONGEST]} for one in answers}
        ),
        "error": "\n".join(said)[:LONGEST] or None,
        "is_sent": not (failed or refused),
        "is_given_up": is_given_up,
        "pause": pause,
    }
    has_noted = connection.execute(ANSWERED, given).first() is not None
    return has_noted and is_given_up


def _is_over(connection: Connection, notice: int, pause: timedelta) -> bool:
    given = {"id": notice, "longest": GIVEN_UP_AFTER, "pause": pause}
    return bool(connection.execute(IS_OVER, given).scalar())
