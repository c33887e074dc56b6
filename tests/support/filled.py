"""Graphs of a given size, filled by a few statements: for benchmarks, and for tests of plans."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from scrapy_itemgraph import task
from support.races import Crawl

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDE = 1_000  # queues beside those that hold nearly everything, with ten items each
BIG_TABLES = ("items", "aliases", "tags", "results", "work", "attempts", "failures")
ONE = "one.example"


class Pages:
    """Tasks of which each item has work of all but the last, whose result is fresh."""

    @task(tags=["page"])
    def closed(self, response, item): ...

    @task(tags=["page"])
    def parse(self, response, item): ...

    @task(tags=["page"], request=lambda _: None)  # so its claims have metadata
    def later(self, response, item): ...

    @task(tags=["page"], ttl="1d")
    def timed(self, response, item): ...


FILL = (
    """
    INSERT INTO limits (name)
    SELECT :one UNION ALL SELECT 'q' || n || '.example' FROM generate_series(1, :wide) n
    UNION ALL SELECT 'm' || n || '.example' FROM generate_series(1, :slots) n WHERE :slots > 1
    ON CONFLICT DO NOTHING
    """,
    """
    INSERT INTO queues (crawl_id, slot_id, is_live, next_at)
    SELECT :crawl, id, true, now() - CASE WHEN name LIKE 'q%' THEN interval '1 hour'
        ELSE interval '1 day' END FROM limits WHERE name <> '' ON CONFLICT DO NOTHING
    """,
    """
    INSERT INTO items (id, crawl_id, slot_id, name, data) OVERRIDING SYSTEM VALUE
    SELECT :first + n, :crawl, s.id, 'i' || n,
        '{"url": "http://one.example/a/page/of/usual/length"}'
    FROM generate_series(1, :count) n JOIN limits s ON s.name = CASE WHEN :slots > 1
        THEN 'm' || 1 + mod(n, :slots) || '.example' ELSE :one END
    ORDER BY n
    """,
    """
    INSERT INTO items (id, crawl_id, slot_id, name, data) OVERRIDING SYSTEM VALUE
    SELECT :first + :count + row_number() OVER (), :crawl, s.id, 'w' || row_number() OVER (),
        json_build_object('url', 'http://' || s.name || '/')
    FROM generate_series(1, 10) n, limits s WHERE s.name LIKE 'q%'
    """,
    """
    INSERT INTO aliases (crawl_id, key, name, item_id)
    SELECT :crawl, encode(substring(sha256(convert_to(name, 'UTF8')) FOR 16), 'hex')::uuid AS key,
        name, id FROM items WHERE crawl_id = :crawl ORDER BY key
    """,
    """
    INSERT INTO tags (item_id, tag_name, crawl_id)
    SELECT id, 'page', :crawl FROM items WHERE crawl_id = :crawl
    """,
    """
    INSERT INTO results (item_id, task_id, task_version, is_successful, completed_at, expires_at,
        due_at)
    SELECT i.id, t.id, t.version, true, now(), now() + t.ttl, now() + t.ttl
    FROM items i JOIN tasks t ON t.crawl_id = i.crawl_id
    WHERE t.name = 'timed' AND i.crawl_id = :crawl
    """,
    """
    INSERT INTO work (item_id, task_id, crawl_id, queue_id, kind_id, is_stale, nice, not_before)
    SELECT i.id, t.id, :crawl, q.id, k.id, false, 0,
        CASE WHEN t.name = 'later' THEN now() + interval '1 day' END
    FROM tasks t JOIN kinds k ON k.task_id = t.id JOIN items i ON i.crawl_id = t.crawl_id
    JOIN queues q ON q.slot_id = i.slot_id AND q.crawl_id = t.crawl_id
    WHERE t.name <> 'timed' AND t.crawl_id = :crawl ORDER BY t.id, i.id
    """,
    """
    INSERT INTO results (item_id, task_id, task_version, is_successful, is_held)
    SELECT i.id, t.id, t.version, mod(i.id, greatest(:failing, 1)) = 1, true
    FROM items i JOIN tasks t ON t.crawl_id = i.crawl_id
    WHERE t.name = 'later' AND i.crawl_id = :crawl AND :failing > 0
        AND mod(i.id, greatest(:failing, 1)) IN (0, 1)
    """,
    """
    INSERT INTO failures (item_id, task_id, error, fingerprint)
    SELECT r.item_id, r.task_id, '{"type": "ValueError", "message": "no price"}',
        md5(r.task_id || 'ValueError')::uuid
    FROM results r JOIN tasks t ON t.id = r.task_id
    WHERE r.is_held AND NOT r.is_successful AND t.crawl_id = :crawl
    """,
    "SELECT setval('items_id_seq', (SELECT max(id) FROM items))",
    "UPDATE tasks SET is_enabled = false WHERE name = 'closed'",
)


class Filled(Crawl):
    """A crawl of `count` items, whose numbers begin after `first`."""

    def __init__(self, engine: sa.Engine, count: int, name: str = "books", first: int = 0) -> None:
        super().__init__(engine, Pages, name)
        self.count = count
        self.first = first

    def item_at(self, share: float) -> int:
        """Return the number of the item after a share of all."""
        return self.first + round(self.count * share)


def fill(
    engine: sa.Engine, count: int, *, slots: int = 1, wide: int = WIDE, failing: int = 0
) -> Filled:
    """Fill an empty graph: `count` items in so many slots, and ten in each of `wide` others.

    Of one item in `failing` a task has failed (0: of none).
    """
    crawl = Filled(engine, count)
    with loading(engine) as connection, emptied(connection):
        _fill(connection, crawl, slots, wide, failing)
    return crawl


def add_crawl(engine: sa.Engine, name: str, count: int, *, first: int) -> Filled:
    """Fill one more crawl, whose items have numbers after `first`."""
    crawl = Filled(engine, count, name, first)
    with loading(engine) as connection:
        _fill(connection, crawl, 1, WIDE, 0)
    return crawl


def settle(engine: sa.Engine) -> None:
    """Leave a filled graph as one that stands for long: vacuumed, with statistics."""
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        for table in BIG_TABLES:
            connection.exec_driver_sql(f"ALTER TABLE {table} RESET (autovacuum_enabled)")
        connection.exec_driver_sql("VACUUM ANALYZE")
        connection.exec_driver_sql("CHECKPOINT")


@contextmanager
def loading(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Yield a transaction for large statements, in which no key is checked."""
    with engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        connection.exec_driver_sql("SET LOCAL maintenance_work_mem = '512MB'")
        connection.exec_driver_sql("SET LOCAL work_mem = '256MB'")
        yield connection


@contextmanager
def emptied(connection: sa.Connection) -> Iterator[None]:
    """Empty the large tables, and make their indexes after what is done within."""
    # In the transaction that truncates a table, filling it writes no WAL.
    connection.exec_driver_sql(f"TRUNCATE {', '.join(BIG_TABLES)}")
    for table in BIG_TABLES:
        connection.exec_driver_sql(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
    indexes = connection.exec_driver_sql(
        "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' "
        "AND indexname LIKE '%%_idx' AND tablename = ANY (%s)",
        (list(BIG_TABLES),),
    ).all()
    for name, _ in indexes:
        connection.exec_driver_sql(f"DROP INDEX {name}")
    yield
    for _, definition in indexes:
        connection.exec_driver_sql(definition)


def _fill(connection: sa.Connection, crawl: Filled, slots: int, wide: int, failing: int) -> None:
    given: dict[str, Any] = {"crawl": crawl.id, "count": crawl.count, "first": crawl.first}
    given |= {"wide": wide, "one": ONE, "slots": slots, "failing": failing}
    for statement in FILL:
        text = sa.text(statement)
        connection.execute(text, {key: given[key] for key in text._bindparams})
