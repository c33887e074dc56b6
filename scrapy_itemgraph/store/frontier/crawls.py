"""Crawls with a frontier: their task `fetch`, and how work of it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model import frontier
from scrapy_itemgraph.store import notify
from scrapy_itemgraph.store.columns import typed
from scrapy_itemgraph.store.registry import crawls, item_sweeps

if TYPE_CHECKING:
    from sqlalchemy import Connection

# What commits make of URLs from now on is the frontier's.
ANNOUNCE = text("UPDATE crawls SET frontier = 1 WHERE id = :crawl AND frontier IS NULL")

IS_JOINED = text("SELECT frontier = 2 FROM crawls WHERE id = :crawl")

JOIN = text("UPDATE crawls SET frontier = 2 WHERE id = :crawl AND frontier = 1")

HAS_TAGGED = text("""
    SELECT EXISTS (SELECT FROM tags g WHERE g.crawl_id = :crawl AND g.tag_name = :tag)
""")

MAKE_TASK = text("""
    INSERT INTO tasks (crawl_id, name, spider, version, definition)
    VALUES (:crawl, :name, :spider, '1', :definition)
    ON CONFLICT DO NOTHING RETURNING id
""")

CALL_FOR_TASK = text("""
    INSERT INTO task_tags (crawl_id, tag_name, task_id) VALUES (:crawl, :tag, :task)
    ON CONFLICT DO NOTHING
""")

MAKE_KIND = text("""
    INSERT INTO kinds (task_id)
    SELECT t.id FROM tasks t WHERE t.crawl_id = :crawl AND t.name = :name
    ON CONFLICT DO NOTHING
""")

# A plain task is the only one of its tag, keeps to no slot and no limits of its own, and depends on
# nothing: what is outstanding of a new URL is known without a look at it.
FETCH = text("""
    SELECT t.id AS task_id, k.id AS kind_id, t.version,
        t.is_registered AND t.slot_id IS NULL
            AND NOT EXISTS (SELECT FROM tag_limits l WHERE l.task_id = t.id)
            AND NOT EXISTS (SELECT FROM task_dependencies d WHERE d.task_id = t.id)
            AND ARRAY(SELECT tt.task_id FROM task_tags tt
                WHERE tt.crawl_id = t.crawl_id AND tt.tag_name = :tag) = ARRAY[t.id] AS is_plain
    FROM tasks t JOIN kinds k ON k.task_id = t.id AND k.limit_ids = '{}'
    WHERE t.crawl_id = :crawl AND t.name = :name
""")


class Fetch(NamedTuple):
    """The task `fetch` of a crawl. Where it `is_plain`, its work follows from the URL alone."""

    task_id: int
    kind_id: int
    version: str
    is_plain: bool


def announce(connection: Connection, name: str) -> int:
    """Return the number of a crawl that has a frontier or is about to; it is made if need be.

    It is committed before `make`: a commit that begins later knows of it, and `make` waits for
    those that began before.

    Raises:
        InvalidIdError: it cannot be a crawl's name.

    """
    crawl_id = crawls.make_crawl(connection, name)
    connection.execute(ANNOUNCE, {"crawl": crawl_id})
    return crawl_id


def make(connection: Connection, crawl_id: int) -> None:
    """Give a crawl its frontier, which was announced, unless it has it.

    It gets a task `fetch` if no spider has declared one. What spiders made before becomes the
    frontier's by a sweep.
    """
    given = {"crawl": crawl_id, "name": frontier.TASK}
    here = {"crawl": crawl_id}
    has_task = connection.execute(FETCH, {**given, "tag": frontier.TAG}).first() is not None
    if has_task and connection.scalar(IS_JOINED, here):
        return
    crawls.own_crawl(connection, crawl_id)
    task = {**given, "spider": frontier.SPIDER, "definition": frontier.DEFINITION}
    made = connection.execute(MAKE_TASK, task).scalar()
    if made is not None:
        called = {"crawl": crawl_id, "tag": frontier.TAG, "task": made}
        connection.execute(CALL_FOR_TASK, called)
    connection.execute(MAKE_KIND, given)
    is_first = connection.execute(JOIN, here).rowcount
    if is_first and connection.scalar(HAS_TAGGED, {**here, "tag": frontier.TAG}):
        item_sweeps.open_sweep(connection, crawl_id, None, tags=[frontier.TAG])
        notify.notify(connection, crawl_id)


def fetch(connection: Connection, crawl_id: int) -> Fetch | None:
    """Return a crawl's task `fetch`; None: the crawl is gone, or has none yet."""
    given = {"crawl": crawl_id, "name": frontier.TASK, "tag": frontier.TAG}
    found = typed(connection.execute(FETCH, given), Fetch)
    return found[0] if found else None
