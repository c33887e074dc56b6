"""Rules that are applied to what waits, step by step: to outstanding work, and to what is skipped.

First the outstanding work is looked through, then what is skipped, of one task after the other. A
page that was skipped by a person alone, of no rule's kind, stays so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import text

from scrapy_itemgraph.model.rule_matching import AnyPattern, CompiledRules, any_of, compiled
from scrapy_itemgraph.model.set_aside import Hold
from scrapy_itemgraph.store import notify, set_aside
from scrapy_itemgraph.store.registry import rulesets
from scrapy_itemgraph.store.registry.crawls import share_crawl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Row, TextClause

    from scrapy_itemgraph.model.rules import Ruleset

STEP = 1000  # rows that are looked at in a transaction
MOST_COMPARED = 10_000  # pages
MOST_LOOKED_AT = 100_000  # rows, of other crawls as well
_EXAMPLES = 3

_URL = """CASE WHEN i.url_key IS NOT NULL AND json_typeof(i.data->'url') = 'string'
        THEN i.data->>'url' END AS url"""

# The next work of all crawls: work has an index by item, and none by crawl and item. What is
# claimed keeps to the rules of its claim.
WAITING = text(f"""
    SELECT w.item_id, {_URL}
    FROM (
        SELECT n.item_id, n.crawl_id = :crawl AND n.token IS NULL AS is_meant FROM work n
        WHERE n.item_id > :after ORDER BY n.item_id LIMIT :limit) AS w
    LEFT JOIN items i ON i.id = w.item_id AND w.is_meant
    ORDER BY w.item_id
""")  # noqa: S608 - our own expression

SKIPPED = text(f"""
    SELECT r.item_id, {_URL}
    FROM (
        SELECT s.item_id FROM results s
        WHERE s.task_id = :task AND s.hold = 'skipped' AND s.item_id > :after
        ORDER BY s.task_id, s.hold, s.item_id LIMIT :limit) AS r
    JOIN items i ON i.id = r.item_id
    ORDER BY r.item_id
""")  # noqa: S608 - our own expression

EVER_SKIPPED = text("""
    SELECT DISTINCT rule->>'match' AS match
    FROM rulesets r CROSS JOIN LATERAL json_array_elements(r.rules->'rules') AS rule
    WHERE r.crawl_id = :crawl AND rule->>'skip' = 'true'
""")

NEXT_TASK = text("SELECT min(id) FROM tasks WHERE crawl_id = :crawl AND id > :task")

OPEN = text("""
    INSERT INTO sweeps (crawl_id, tags, ruleset_id)
    SELECT :crawl, '{}', c.ruleset_id FROM crawls c
    WHERE c.id = :crawl AND c.ruleset_id IS NOT NULL
""")

ADVANCE = text("""
    UPDATE sweeps SET task_id = :task, after_item_id = :after, held = held + :held,
        freed = freed + :freed, swept = least(swept, 4000000000000000000) + :count
    WHERE id = :sweep
""")

CLOSE = text("DELETE FROM sweeps WHERE id = :sweep")

LOCK_NEXT = text("""
    SELECT * FROM sweeps WHERE crawl_id = :crawl AND ruleset_id IS NOT NULL
    ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
""")

IS_OPEN = text("""
    SELECT EXISTS (SELECT FROM sweeps WHERE crawl_id = :crawl AND ruleset_id IS NOT NULL)
""")


class Counts(NamedTuple):
    """How many pages a step has looked at, set aside, and taken back."""

    looked_at: int
    held: int
    freed: int


class Difference(NamedTuple):
    """What rules would make of pages that wait, and of those that are skipped; at most 10,000 each.

    Of `waiting` pages they would set aside `skipped`, and would not take in `refused` if links to
    them were found now. Of `set_aside` ones they would take back `freed`. `is_all`: there are no
    more. `examples` are URLs, up to three of a kind.
    """

    waiting: int
    skipped: int
    refused: int
    set_aside: int
    freed: int
    is_all: bool
    examples: dict[str, list[str]]


def compare(connection: Connection, crawl_id: int, ruleset: Ruleset) -> Difference:
    """Return what rules would change of what waits now, if they were applied."""
    rules = compiled(ruleset)
    waiting, has_all_work = _urls(connection, WAITING, {"crawl": crawl_id, "task": None})
    skipped = [url for url in waiting if rules.skips(url)]
    refused = [url for url in waiting if not rules.accepts(url)]
    set_aside_: list[str] = []
    freed: list[str] = []
    has_all = has_all_work
    ever_skipped = _ever_skipped(connection, crawl_id)
    task = connection.scalar(NEXT_TASK, {"crawl": crawl_id, "task": 0})
    while task is not None and len(set_aside_) < MOST_COMPARED:
        urls, is_all = _urls(connection, SKIPPED, {"crawl": crawl_id, "task": task})
        set_aside_ += urls
        freed += [url for url in urls if not rules.skips(url) and ever_skipped.matches(url)]
        has_all = has_all and is_all
        task = connection.scalar(NEXT_TASK, {"crawl": crawl_id, "task": task})
    kinds = {"skipped": skipped, "refused": refused, "freed": freed}
    return Difference(
        waiting=len(waiting),
        skipped=len(skipped),
        refused=len(refused),
        set_aside=len(set_aside_),
        freed=len(freed),
        is_all=has_all and task is None,
        examples={name: urls[:_EXAMPLES] for name, urls in kinds.items()},
    )


def _urls(
    connection: Connection, statement: TextClause, of: dict[str, Any]
) -> tuple[list[str], bool]:
    """Return the URLs of pages, 10,000 at most, and whether these are all."""
    found: list[str] = []
    after, rows_left = 0, MOST_LOOKED_AT
    while rows_left > 0 and len(found) < MOST_COMPARED:
        rows = connection.execute(statement, {**of, "after": after, "limit": STEP}).all()
        found += [one.url for one in rows if one.url is not None]
        if len(rows) < STEP:
            return found, True
        after, rows_left = rows[-1].item_id, rows_left - len(rows)
    return found, False


def do_step(connection: Connection, crawl_id: int) -> bool:
    """Do a step of applying rules, unless another process does one; tell if that goes on."""
    share_crawl(connection, crawl_id)
    row = connection.execute(LOCK_NEXT, {"crawl": crawl_id}).first()
    if row is not None:
        step(connection, crawl_id, row)
    return is_open(connection, crawl_id)


def begin(connection: Connection, crawl_id: int) -> bool:
    """Have the rules in force applied to what waits; tell whether the crawl has rules.

    One that is under way begins anew with them.
    """
    if rulesets.restart_sweep(connection, crawl_id):
        return True
    made = connection.execute(OPEN, {"crawl": crawl_id}).rowcount
    notify.notify(connection, crawl_id)
    return bool(made)


def is_open(connection: Connection, crawl_id: int) -> bool:
    """Tell whether rules are being applied."""
    return bool(connection.execute(IS_OPEN, {"crawl": crawl_id}).scalar_one())


def step(connection: Connection, crawl_id: int, row: Row[Any]) -> Counts:
    """Do a step of a sweep whose row is locked; the caller shares the crawl's lock.

    Raises:
        ConfigurationError: google-re2 is not installed.

    """
    stored = rulesets.one(connection, row.ruleset_id)
    if stored is None:  # with its crawl
        connection.execute(CLOSE, {"sweep": row.id})
        return Counts(0, 0, 0)
    rules = compiled(stored.ruleset)
    at = {"crawl": crawl_id, "task": row.task_id, "after": row.after_item_id, "limit": STEP}
    if row.task_id is None:
        rows = connection.execute(WAITING, at).all()
        found = [one.item_id for one in rows if one.url is not None and rules.skips(one.url)]
        held = len(set_aside.hold(connection, sorted(set(found)), Hold.SKIPPED)) if found else 0
        done = Counts(sum(one.url is not None for one in rows), held, 0)
    else:
        rows = connection.execute(SKIPPED, at).all()
        back = _not_skipped_any_more(connection, crawl_id, rows, rules)
        freed = len(set_aside.free(connection, back, Hold.SKIPPED)) if back else 0
        done = Counts(len(rows), 0, freed)
    task, after = row.task_id, rows[-1].item_id if len(rows) == STEP else None
    if after is None:
        task = connection.scalar(NEXT_TASK, {"crawl": crawl_id, "task": row.task_id or 0})
        if task is None:
            connection.execute(CLOSE, {"sweep": row.id})
            return done
    advanced = {"sweep": row.id, "task": task, "after": after or 0, "count": done.looked_at}
    connection.execute(ADVANCE, {**advanced, "held": done.held, "freed": done.freed})
    return done


def _not_skipped_any_more(
    connection: Connection, crawl_id: int, rows: Sequence[Row[Any]], rules: CompiledRules
) -> list[int]:
    """Return the items that some rule of the crawl has skipped, and the present ones do not."""
    wanted = [one for one in rows if one.url is not None and not rules.skips(one.url)]
    if not wanted:
        return []
    ever_skipped = _ever_skipped(connection, crawl_id)
    return [one.item_id for one in wanted if ever_skipped.matches(one.url)]


def _ever_skipped(connection: Connection, crawl_id: int) -> AnyPattern:
    """Return all patterns by which a crawl's rules have ever skipped pages."""
    return any_of(tuple(sorted(connection.execute(EVER_SKIPPED, {"crawl": crawl_id}).scalars())))
