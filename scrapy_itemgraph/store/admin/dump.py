"""A crawl as lines of JSON, of which `load` makes the same crawl again.

One line is one thing: the crawl, a task, a key of its state, a ruleset, a sweep, a queue of its
frontier, an item with all that hangs on it, names that stay taken, how deep a page is and what it
links to, a failure, a scraped item, and in the end how many of what there were.
Data, metadata and errors stand there letter by letter as they are stored. What is null, or usual,
is left out. Items are in the order of their making: two dumps of the same graph differ in their
first line alone.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlalchemy import text

from scrapy_itemgraph.postgres import engine, migrate
from scrapy_itemgraph.store.admin import dump_depths, status
from scrapy_itemgraph.store.blobs import Place
from scrapy_itemgraph.store.registry import crawl_depths
from scrapy_itemgraph.store.sql_conditions import SCHEDULE

if TYPE_CHECKING:
    from sqlalchemy import Connection

Read: TypeAlias = Callable[[Place], Iterator[bytes]]

FORMAT = 1
FORMAT_WITH_BLOBS = 2
STEP = 1000  # items that are read at a time
PART = 3 * 65_536  # bytes of content in a line


def _object(plain: str, **documents: str) -> str:
    """Return SQL for an object: of what is plain without nulls, then documents as they are."""
    parts = [f"json_strip_nulls(json_build_object({plain}))::text"]
    if documents:
        parts = [f"left({parts[0]}, -1)"]
        for name, column in documents.items():
            parts.append(f"""coalesce(',"{name}":' || {column}::text, '')""")
        parts.append("'}'")
    return " || ".join(parts)


_CRAWL = _object(
    """'kind', 'crawl', 'created_at', c.created_at, 'run_started_at', r.started_at,
    'run_finished_at', CASE WHEN r.is_finished THEN r.ended_at END, 'run', c.run,
    'spider', c.spider, 'dripfeed', c.dripfeed, 'tracks_depth', nullif(c.tracks_depth, false),
    'depth_limit', c.depth_limit, 'is_depth_limit_set', nullif(c.is_depth_limit_set, false),
    'frontier', c.frontier""",
    arguments="c.arguments",
    given="c.given",
)
CRAWL = f"""
    SELECT {_CRAWL} FROM crawls c LEFT JOIN runs r ON r.crawl_id = c.id AND r.number = c.run
    WHERE c.id = :crawl
"""

_LIMITS = """(SELECT json_agg(json_build_array(l.kind, l.name) ORDER BY l.kind, l.name)
    FROM limits l WHERE l.id = ANY ({0}.limit_ids) AND {0}.limit_ids <> '{{}}')"""

_TASK = _object(f"""'kind', 'task', 'name', t.name, 'spider', t.spider, 'version', t.version,
    'ttl', t.ttl::text, 'schedule', {SCHEDULE}, 'nice', nullif(t.nice, 0), 'slot', s.name,
    'max_failures', t.max_failures, 'is_item_exclusive', nullif(t.is_item_exclusive, false),
    'is_enabled', nullif(t.is_enabled, true), 'is_registered', nullif(t.is_registered, true),
    'is_callback', nullif(t.is_callback, false), 'definition', t.definition,
    'source', t.source, 'source_changed_at', t.source_changed_at,
    'tags', (SELECT json_agg(tag_name ORDER BY tag_name) FROM task_tags WHERE task_id = t.id),
    'depends_on', (SELECT json_agg(o.name ORDER BY o.name) FROM task_dependencies d
        JOIN tasks o ON o.id = d.depends_on_id WHERE d.task_id = t.id),
    'limits', {_LIMITS.format("t")},
    'tag_limits', (SELECT json_agg(json_build_object('limit', json_build_array(l.kind, l.name),
            'tags', g.tags) ORDER BY l.kind, l.name)
        FROM tag_limits g JOIN limits l ON l.id = g.limit_id WHERE g.task_id = t.id)""")
TASKS = f"""
    SELECT {_TASK} FROM tasks t LEFT JOIN limits s ON s.id = t.slot_id
    WHERE t.crawl_id = :crawl ORDER BY t.id
"""

_STATE = _object("'kind', 'state', 'key', key, 'changed_at', changed_at", value="value")
STATE = f"SELECT {_STATE} FROM spider_state WHERE crawl_id = :crawl ORDER BY key"

_RULESET = _object(
    """'kind', 'ruleset', 'number', r.number, 'created_at', r.created_at,
    'created_by', r.created_by, 'note', r.note,
    'is_in_force', nullif(r.id = (SELECT ruleset_id FROM crawls WHERE id = :crawl), false)""",
    rules="r.rules",
)
RULESETS = f"SELECT {_RULESET} FROM rulesets r WHERE r.crawl_id = :crawl ORDER BY r.number"

_SWEEP = _object("""'kind', 'sweep', 'task', t.name, 'tags', w.tags,
    'unhold', nullif(w.unhold, false), 'opened_at', w.opened_at, 'ruleset', r.number""")
SWEEPS = f"""
    SELECT {_SWEEP} FROM sweeps w LEFT JOIN tasks t ON t.id = w.task_id
    LEFT JOIN rulesets r ON r.id = w.ruleset_id
    WHERE w.crawl_id = :crawl ORDER BY w.id
"""

_QUEUE = _object("""'kind', 'queue', 'slot', s.name, 'delay', f.delay,
    'blocked_until', nullif(f.blocked_until, 0), 'last_served', nullif(f.last_served, 0),
    'limit', f.crawl_limit, 'completed', nullif(f.completed, 0),
    'is_deleting', nullif(f.is_deleting, false)""")
QUEUES = f"""
    SELECT {_QUEUE}, f.queue_id FROM frontier_queues f JOIN queues q ON q.id = f.queue_id
    JOIN limits s ON s.id = q.slot_id
    WHERE f.crawl_id = :crawl AND f.queue_id > :after ORDER BY f.queue_id LIMIT :limit
"""

_RESULT = _object(
    """'task', t.name, 'version', r.task_version, 'is_successful', r.is_successful,
    'is_held', nullif(r.is_held, false), 'created_at', r.created_at,
    'completed_at', r.completed_at, 'invalidated_at', r.invalidated_at,
    'expires_at', r.expires_at, 'due_at', r.due_at,
    'ttl_overridden', nullif(r.ttl_overridden, false), 'run', nullif(r.run, 1),
    'hold', r.hold, 'led_to', r.led_to""",
    metadata="nullif(r.metadata::text, '{}')",
)
_ATTEMPT = _object(
    """'task', t.name, 'token', a.token, 'version', a.task_version, 'number', a.number,
    'outcome', a.outcome, 'started_at', a.started_at, 'ended_at', a.ended_at,
    'scraped', a.scraped,
    'ruleset', (SELECT number FROM rulesets WHERE id = a.ruleset_id)""",
    error="a.error",
    log="a.log",
    page="a.page",
)
_WORK = _object(
    f"""'task', t.name, 'order', w.seq - :first, 'is_stale', nullif(w.is_stale, false),
    'nice', nullif(w.nice, 0), 'tries', nullif(w.tries, 0), 'deaths', nullif(w.deaths, 0),
    'stalls', nullif(w.stalls, 0), 'alone_deaths', nullif(w.alone_deaths, 0),
    'alone_stalls', nullif(w.alone_stalls, 0), 'is_refiled', nullif(w.is_refiled, false),
    'is_claimed', nullif(w.token IS NOT NULL, false),
    'not_before', w.not_before, 'slot', nullif(q.name, s.name), 'limits', {_LIMITS.format("k")}""",
    request="w.request",
)
_ITEM = _object(
    """'kind', 'item', 'id', i.name, 'slot', s.name, 'created_by', i.created_by, 'nice', i.nice,
    'not_before', i.not_before, 'created_at', i.created_at, 'updated_at', i.updated_at,
    'is_from_outside', i.is_from_outside, 'in_frontier', i.in_frontier,
    'aliases', (SELECT json_agg(name ORDER BY name) FROM aliases
        WHERE item_id = i.id AND name <> i.name)""",
    data="i.data",
    tags="""('{' || (SELECT string_agg(to_json(tag_name)::text || ':' ||
        coalesce(value::text, 'null'), ',' ORDER BY tag_name) FROM tags WHERE item_id = i.id)
        || '}')""",
    results=f"""('[' || (SELECT string_agg({_RESULT}, ',' ORDER BY t.name)
        FROM results r JOIN tasks t ON t.id = r.task_id WHERE r.item_id = i.id) || ']')""",
    attempts=f"""('[' || (SELECT string_agg({_ATTEMPT}, ',' ORDER BY a.id)
        FROM attempts a JOIN tasks t ON t.id = a.task_id WHERE a.item_id = i.id) || ']')""",
    work=f"""('[' || (SELECT string_agg({_WORK}, ',' ORDER BY t.name)
        FROM work w JOIN tasks t ON t.id = w.task_id JOIN kinds k ON k.id = w.kind_id
        JOIN queues u ON u.id = w.queue_id JOIN limits q ON q.id = u.slot_id
        WHERE w.item_id = i.id) || ']')""",
)
_BLOB = _object("""'name', b.name, 'sha256', encode(c.sha256, 'hex'), 'mime', b.mime,
    'attached_at', b.attached_at""")
_WITH_BLOBS = f"""left({_ITEM}, -1) || coalesce(',"blobs":[' || (
    SELECT string_agg({_BLOB}, ',' ORDER BY b.name COLLATE "C")
    FROM blobs b JOIN blob_contents c ON c.id = b.content_id WHERE b.item_id = i.id
    ) || ']', '') || '}}'"""
_OF_ITEMS = """
    SELECT {0}, i.id FROM items i JOIN limits s ON s.id = i.slot_id
    WHERE i.crawl_id = :crawl AND i.id > :after ORDER BY i.id LIMIT :limit
"""
ITEMS = _OF_ITEMS.format(_ITEM)
ITEMS_WITH_BLOBS = _OF_ITEMS.format(_WITH_BLOBS)

# By hash, so that two dumps of the same graph are the same.
CONTENTS = text("""
    SELECT DISTINCT ON (c.sha256) c.id, c.sha256, c.size, c.store
    FROM items i JOIN blobs b ON b.item_id = i.id JOIN blob_contents c ON c.id = b.content_id
    WHERE i.crawl_id = :crawl AND i.has_blobs
    ORDER BY c.sha256, c.id
""")

# By key, which the index has; the names of a thousand in one line.
TAKEN = """
    SELECT json_build_object('kind', 'taken', 'names', json_agg(name ORDER BY key))::text,
        max(key::text), count(*)
    FROM (SELECT key, name FROM aliases
        WHERE crawl_id = :crawl AND key > CAST(:after AS uuid) AND item_id IS NULL
        ORDER BY key LIMIT :limit) AS taken
"""

_FAILURE = _object(
    """'kind', 'failure', 'item', i.name, 'task', t.name,
    'is_refusal', nullif(f.is_refusal, false), 'occurred_at', f.occurred_at,
    'handled_at', f.handled_at, 'handled_by', f.handled_by""",
    error="f.error",
)
FAILURES = f"""
    SELECT {_FAILURE}, f.id FROM failures f JOIN tasks t ON t.id = f.task_id
    JOIN items i ON i.id = f.item_id
    WHERE t.crawl_id = :crawl AND f.id > :after ORDER BY f.id LIMIT :limit
"""

_SCRAPED = _object(
    """'kind', 'scraped', 'item', i.name, 'task', t.name, 'class', j.item_class,
    'created_at', j.created_at""",
    fields="j.fields",
)
SCRAPED = f"""
    SELECT {_SCRAPED}, j.id FROM journal j LEFT JOIN items i ON i.id = j.item_id
    LEFT JOIN tasks t ON t.id = j.task_id
    WHERE j.crawl_id = :crawl AND j.id > :after ORDER BY j.id LIMIT :limit
"""

FIRST_WORK = text("SELECT coalesce(min(seq), 0) FROM work WHERE crawl_id = :crawl")
NAME = text("SELECT name FROM crawls WHERE id = :crawl")
NO_KEY = "00000000-0000-0000-0000-000000000000"


def lines(connection: Connection, crawl_id: int, read: Read | None = None) -> Iterator[str]:
    """Yield the lines of a dump, without newlines; the connection's transaction is one snapshot.

    With `read`, which yields a content, blobs are in it.
    """
    connection.execute(text("SET LOCAL timezone = 'UTC'"))
    given = {"crawl": crawl_id}
    head = {
        "itemgraph_dump": FORMAT if read is None else FORMAT_WITH_BLOBS,
        "crawl": connection.execute(NAME, given).scalar_one(),
        "schema": migrate.current(connection),
    }
    yield json.dumps(head, ensure_ascii=False)
    for statement in (CRAWL, TASKS, STATE, RULESETS, SWEEPS, dump_depths.SWEEPS):
        for line in connection.execute(text(statement), given).scalars():
            yield _one_line(line)
    counts = {"items": 0, "failures": 0, "scraped": 0}
    for line in _pages(connection, QUEUES, given):
        counts["queues"] = counts.get("queues", 0) + 1
        yield line
    if read is not None:
        counts["contents"] = 0
        for place in _contents(connection, crawl_id):
            counts["contents"] += 1
            yield from _content(place, read)
    total = status.items(connection, crawl_id)
    items = ITEMS if read is None else ITEMS_WITH_BLOBS
    first = connection.execute(FIRST_WORK, given).scalar_one()
    for name, statement in (("items", items), ("failures", FAILURES), ("scraped", SCRAPED)):
        for line in _pages(connection, statement, {**given, "first": first}):
            counts[name] += 1
            if counts[name] % STEP == 1:
                engine.announce(connection, "dump", counts["items"], total)
            yield line
        if name == "items":
            yield from _taken(connection, given)
            yield from _depths(connection, crawl_id, counts)
    yield json.dumps({"kind": "end", **counts})


def _depths(connection: Connection, crawl_id: int, counts: dict[str, int]) -> Iterator[str]:
    """Yield how deep pages are, where the crawl tracks that; count the lines."""
    if not crawl_depths.tracking(connection, crawl_id).tracks_depth:
        return
    for name, read in (
        ("depths", dump_depths.depths),
        ("links", dump_depths.links),
        ("depth_work", dump_depths.work),
    ):
        counts[name] = 0
        for line in read(connection, crawl_id):
            counts[name] += 1
            yield line


def _contents(connection: Connection, crawl_id: int) -> Iterator[Place]:
    """Go through the contents of a crawl's blobs, a thousand at a time."""
    streamed = {"stream_results": True, "max_row_buffer": STEP}
    given = {"crawl": crawl_id}
    with connection.execute(CONTENTS, given, execution_options=streamed) as rows:
        for number, digest, size, store in rows:
            yield Place(number, bytes(digest), size, store)


def _content(place: Place, read: Read) -> Iterator[str]:
    digest = place.sha256.hex()
    yield json.dumps({"kind": "content", "sha256": digest, "size": place.size})
    for given in read(place):
        for at in range(0, len(given), PART):
            part = base64.b64encode(given[at : at + PART]).decode()
            yield json.dumps({"kind": "part", "base64": part})


def _pages(connection: Connection, statement: str, given: dict[str, Any]) -> Iterator[str]:
    after, read = 0, text(statement)
    while rows := connection.execute(read, {**given, "after": after, "limit": STEP}).all():
        yield from (_one_line(line) for line, _ in rows)
        after = rows[-1][1]


def _taken(connection: Connection, given: dict[str, Any]) -> Iterator[str]:
    after, read = NO_KEY, text(TAKEN)
    while True:
        line, after, count = connection.execute(
            read, {**given, "after": after, "limit": STEP}
        ).one()
        if not count:
            return
        yield line


def _one_line(line: str) -> str:
    """Return JSON without newlines: what stands between its values is white space."""
    return line.replace("\n", " ").replace("\r", " ")
