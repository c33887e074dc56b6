"""A plain spider's crawl of a given size, filled by a few statements: pages, half of them done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from support.filled import emptied, loading, settle

from scrapy_itemgraph.model import tasks
from scrapy_itemgraph.store.registry import crawls
from scrapy_itemgraph.store.registry import tasks as stored_tasks

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

NAME = "pages"
DAYS = 10  # that the run took
# A page links to ten others; one in ten is a list. Those are done first that were found first.
CALLBACKS = tuple(
    tasks.of_callback(name, options)
    for name, options in {"parse": {}, "parse_page": {"ttl": "30d", "max_failures": 10}}.items()
)
NAMED = "'REQ:' || left(encode(sha256(CAST('http://h' || mod({n}, :hosts) || '.example/page/' || {n} AS bytea)), 'hex'), 40)"  # noqa: E501 - one expression
URL = "'http://h' || mod(n, :hosts) || '.example/page/' || n || '/of-usual-length.html'"
CALLBACK = "CASE WHEN mod(n, 10) = 0 THEN 'parse' ELSE 'parse_page' END"
IS_DONE, IS_FAILED, IS_GONE = "n <= :count / 2", "mod(n, :failing) = 7", "mod(n, 200) = 1"
BEGAN = f"now() - interval '{DAYS} days'"
# Half of the pages are done in these days; what a page made is as old as its end.
ENDED = f"{BEGAN} + n * (interval '{DAYS} days' / (:count / 2.0))"
CREATED = f"{BEGAN} + n / 10 * (interval '{DAYS} days' / (:count / 2.0))"

FILL = (
    """
    INSERT INTO limits (name, last_at)
    SELECT 'h' || n || '.example', now() - n * interval '1 minute'
    FROM generate_series(0, :hosts - 1) n ON CONFLICT DO NOTHING
    """,
    """
    INSERT INTO queues (crawl_id, slot_id, is_live)
    SELECT :crawl, id, true FROM limits WHERE name <> ''
    """,
    f"""
    INSERT INTO items (id, crawl_id, slot_id, name, data, created_by, created_at, updated_at)
        OVERRIDING SYSTEM VALUE
    SELECT :first + n, :crawl, s.id, {NAMED.format(n="n")},
        CAST('{{"url": "' || {URL} || '", "request": {{"callback": "' || {CALLBACK}
            || '", "meta": {{"depth": 3, "link_text": "a link"}}}}}}' AS json),
        CASE WHEN n > 10 THEN {NAMED.format(n="(n / 10)")} END, {CREATED}, {CREATED}
    FROM generate_series(1, :count) n
    JOIN limits s ON s.name = 'h' || mod(n, :hosts) || '.example'
    ORDER BY n
    """,
    """
    INSERT INTO aliases (crawl_id, key, name, item_id)
    SELECT :crawl, encode(substring(sha256(convert_to(name, 'UTF8')) FOR 16), 'hex')::uuid AS key,
        name, id FROM items WHERE crawl_id = :crawl ORDER BY id
    """,
    f"""
    INSERT INTO tags (item_id, tag_name, crawl_id)
    SELECT :first + n, 'callback:' || {CALLBACK}, :crawl FROM generate_series(1, :count) n
    """,
    f"""
    INSERT INTO results (item_id, task_id, task_version, is_successful, is_held, completed_at,
        expires_at, due_at, run)
    SELECT :first + n, t.id, t.version, NOT ({IS_FAILED}), {IS_FAILED} OR {IS_GONE},
        CASE WHEN NOT ({IS_FAILED}) THEN {ENDED} END,
        CASE WHEN NOT ({IS_FAILED} OR {IS_GONE}) THEN {ENDED} + t.ttl END,
        CASE WHEN NOT ({IS_FAILED} OR {IS_GONE}) THEN {ENDED} + t.ttl END, 1
    FROM generate_series(1, :count / 2) n
    JOIN tasks t ON t.crawl_id = :crawl AND t.name = {CALLBACK}
    ORDER BY n
    """,
    f"""
    INSERT INTO attempts (item_id, task_id, worker_id, token, task_version, number, outcome, error,
        started_at, ended_at, scraped)
    SELECT :first + n, t.id, 1, gen_random_uuid(), t.version, 1,
        CASE WHEN {IS_FAILED} THEN 'failed' WHEN {IS_GONE} THEN 'gone' ELSE 'ok' END, NULL,
        {ENDED} - interval '1 s', {ENDED}, CASE WHEN mod(n, 10) > 0 THEN 1 END
    FROM generate_series(1, :count / 2) n
    JOIN tasks t ON t.crawl_id = :crawl AND t.name = {CALLBACK}
    ORDER BY n
    """,
    # A page that was fetched again each day.
    """
    INSERT INTO attempts (item_id, task_id, worker_id, token, task_version, number, outcome,
        started_at, ended_at)
    SELECT :first + 1, t.id, 1, gen_random_uuid(), t.version, 1, 'ok', now() - n * interval '1 day',
        now() - n * interval '1 day'
    FROM generate_series(1, 9) n JOIN tasks t ON t.crawl_id = :crawl AND t.name = 'parse_page'
    """,
    f"""
    INSERT INTO failures (item_id, task_id, error, occurred_at, fingerprint)
    SELECT :first + n, t.id, json_build_object('type', kind, 'message', 'no price at ' || {URL},
            'place', 'shop.spiders.pages.parse_page', 'item', {NAMED.format(n="n")},
            'traceback', repeat('  File "shop/spiders/pages.py", line ' || n || E'\\n', 30),
            'snippet', repeat('<td class="price">' || n || '</td>', 30)),
        {ENDED}, CAST(md5(kind) AS uuid)
    FROM generate_series(1, :count / 2) n
    JOIN tasks t ON t.crawl_id = :crawl AND t.name = {CALLBACK}
    CROSS JOIN LATERAL (SELECT 'Error' || mod(n / :failing, 8) AS kind) k
    WHERE {IS_FAILED} ORDER BY n
    """,
    f"""
    INSERT INTO work (item_id, task_id, crawl_id, queue_id, kind_id, is_stale, nice, tries,
        not_before)
    SELECT :first + n, t.id, :crawl, q.id, k.id, false, 0,
        CASE WHEN mod(n, 100) = 0 THEN 1 ELSE 0 END,
        CASE WHEN mod(n, 100) = 0 THEN now() + interval '1 day' END
    FROM generate_series(:count / 2 + 1, :count) n
    JOIN tasks t ON t.crawl_id = :crawl AND t.name = {CALLBACK}
    JOIN kinds k ON k.task_id = t.id
    JOIN items i ON i.id = :first + n
    JOIN queues q ON q.slot_id = i.slot_id AND q.crawl_id = :crawl
    ORDER BY n
    """,
    """
    INSERT INTO journal (crawl_id, item_id, task_id, item_class, fields)
    SELECT :crawl, :first + n * 10 + 1, t.id, 'shop.items.Page', '{"title": "A page", "price": 1.5}'
    FROM generate_series(1, :count / 20) n
    JOIN tasks t ON t.crawl_id = :crawl AND t.name = 'parse_page'
    """,
    """
    INSERT INTO task_minutes (crawl_id, minute, task_id, done, failed, items, scraped, seconds)
    SELECT :crawl, date_trunc('minute', now()) - n * interval '1 minute', t.id, 300, 3, 300, 300, 60
    FROM generate_series(0, 1440) n JOIN tasks t ON t.crawl_id = :crawl
    """,
    """
    INSERT INTO limit_minutes (limit_id, minute, requests)
    SELECT l.id, date_trunc('minute', now()) - n * interval '1 minute', 60
    FROM generate_series(0, 60) n, limits l WHERE l.name <> '' ON CONFLICT DO NOTHING
    """,
    """
    INSERT INTO totals (crawl_id, task_id, done, failed, items, scraped, bytes, statuses)
    SELECT :crawl, id, :count / 2, :count / :failing, :count, :count / 2,
        1000 * CAST(:count AS bigint),
        '{"200": 1000000, "404": 1000}'
    FROM tasks WHERE crawl_id = :crawl
    """,
    f"""
    INSERT INTO runs (crawl_id, number, started_at, worker_id, spider, reason, pages, items)
    SELECT :crawl, n, {BEGAN} - (100 - n) * interval '1 hour', 1, 'pages', 'shutdown', 10, 10
    FROM generate_series(1, 100) n
    """,
    "UPDATE crawls SET run = 100, spider = 'pages', given = '{}' WHERE id = :crawl",
    """
    INSERT INTO processes (kind, crawl_id, host, process_id, lease_until, stopped_at, reason)
    SELECT 'worker', :crawl, 'here', n, now(), now() - n * interval '1 hour', 'shutdown'
    FROM generate_series(1, 200) n
    """,
    "INSERT INTO workers (id, spider) SELECT id, 'pages' FROM processes WHERE crawl_id = :crawl",
    "SELECT setval('items_id_seq', (SELECT max(id) FROM items))",
)


def fill(engine: Engine, count: int, *, of: int = 1, hosts: int = 100, failing: int = 50) -> None:
    """Fill an empty database with so many crawls of `count` pages together, half of them done.

    Of one page in `failing` of these the callback has failed, and one in 200 is gone. What waits
    is in so many slots, and one page in a hundred of it waits for a later time.
    """
    with engine.begin() as connection:
        made = [
            _make(connection, NAME if number == 0 else f"{NAME}:{number}") for number in range(of)
        ]
    each = count // of
    with loading(engine) as connection, emptied(connection):
        for place, crawl in enumerate(made):
            given: dict[str, Any] = {"crawl": crawl, "first": place * each, "count": each}
            given |= {"hosts": hosts, "failing": failing}
            for statement in FILL:
                text = sa.text(statement)
                connection.execute(text, {key: given[key] for key in text._bindparams})
    settle(engine)


def _make(connection: Connection, name: str) -> int:
    crawl = crawls.make_crawl(connection, name)
    stored_tasks.register_callbacks(connection, crawl, NAME, CALLBACKS, None)
    return crawl
