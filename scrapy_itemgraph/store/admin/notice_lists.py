"""Notices as people see them: what was written, who has it, and what is tried again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import text

from scrapy_itemgraph.postgres import engine

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from sqlalchemy import Connection

State = Literal["waits", "failed", "sent", "given up", "kept"]

# Newest first, by number. `crawl` as it was called then: it may be deleted since.
_LIST = """
    SELECT n.id, CAST(n.key AS text) AS key, n.what, n.project, n.body ->> 'crawl' AS crawl,
        n.body ->> 'reason' AS reason, n.body, n.created_at, n.tries, n.next_at, n.sent_at,
        n.given_up_at, n.error, n.answers
    FROM notices n
    WHERE {which} ORDER BY {order} LIMIT :limit
"""
OF_ALL = text(_LIST.format(which="n.id < :before", order="n.id DESC"))

# Compared as rows, and in this order, which the index by crawl alone has: a planner that is asked
# for an equal crawl may look through the notices of all crawls.
OF_CRAWL = text(
    _LIST.format(
        which="""(n.body ->> 'crawl', n.id) > (:crawl, 0)
        AND (n.body ->> 'crawl', n.id) < (:crawl, :before)""",
        order="n.body ->> 'crawl' DESC, n.id DESC",
    )
)

LAST = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeLine:
    """A notice: what people are told, and how far that is.

    `key` is the id that receivers get. `state` is "waits" (nobody has tried yet), "failed" (it is
    tried again at `next_at`), "sent" (all channels have it), "given up" (one did not take it) or
    "kept" (the project's settings say not to send it). `answers` has for each channel what became
    of it and what was said, `error` what went wrong at the last try.
    """

    id: int
    key: str
    what: str
    state: State
    project: str | None
    crawl: str | None
    reason: str | None
    detail: Mapping[str, Any]
    created_at: datetime
    tries: int
    next_at: datetime | None
    sent_at: datetime | None
    given_up_at: datetime | None
    error: str | None
    answers: Mapping[str, Mapping[str, str]]


def notices(
    connection: Connection, *, crawl: str | None, before: int | None, limit: int
) -> list[NoticeLine]:
    """Return notices, the newest first: those of a crawl, and with numbers below `before`."""
    engine.hot_path(connection)
    given = {"crawl": crawl, "before": LAST if before is None else before, "limit": limit}
    statement = OF_ALL if crawl is None else OF_CRAWL
    return [_line(dict(row)) for row in connection.execute(statement, given).mappings()]


def _line(row: dict[str, Any]) -> NoticeLine:
    body = row.pop("body")
    detail = {name: value for name, value in body.items() if name not in {"crawl", "reason"}}
    return NoticeLine(**row, detail=detail, state=_state(row))


def _state(row: Mapping[str, Any]) -> State:
    if row["sent_at"] is not None:
        return "sent"
    if row["given_up_at"] is not None:
        return "given up"
    if row["next_at"] is None:
        return "kept"
    return "failed" if row["error"] is not None else "waits"
