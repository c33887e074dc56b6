"""Holdings: which worker has which limit, so that a limit has one holder at a time.

A limit with a gap between starts is held whole, by one worker; it paces itself while it holds it.
A limit on what runs at once is held in units, whose sum never exceeds it. Who is refused asks, in
a row of its own; a holder sees that and gives way. What a worker had that died stays taken for as
long as its requests may still run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from scrapy_itemgraph.model.limits import Grant
from scrapy_itemgraph.model.rates import LONGEST_GAP
from scrapy_itemgraph.postgres import server_clock
from scrapy_itemgraph.store import queues, sql_conditions
from scrapy_itemgraph.store.columns import columns
from scrapy_itemgraph.store.limits import sharing
from scrapy_itemgraph.store.limits.sharing import Holding, StoredLimit
from scrapy_itemgraph.store.notify import TELL
from scrapy_itemgraph.store.slots import LOCK_LIMITS, intern_slots, lock_limits
from scrapy_itemgraph.store.sql_conditions import IS_SURELY_DEAD, seconds_since, seconds_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Connection

    from scrapy_itemgraph.model.limits import SlotFeedback, Use


def _columns_of(terms: str) -> dict[str, str]:
    """Return the columns of how a limit is kept, by the name of an attribute that is `Terms`."""
    parts = {"gaps": "gap", "concurrencies": "concurrency", "delays": "delay"}
    return {column: f"{terms}.{part}" for column, part in parts.items()}


_DECLARED, _IN_FORCE = _columns_of("declared"), _columns_of("in_force")

# What nobody else decides about just now.
LOCK_FREE_LIMITS = text("""
    SELECT l.id FROM unnest(CAST(:limits AS int[])) AS wanted(id)
    JOIN limits l ON l.id = wanted.id
    FOR NO KEY UPDATE OF l SKIP LOCKED
""")

# Locked limits that nobody has or asks for, that nothing was learned of, and that may be used now.
TAKE_FREE = text("""
    WITH free AS MATERIALIZED (
        SELECT l.id, l.kind, l.name, l.throttle, wanted.units, wanted.gap, wanted.concurrency,
            wanted.delay, (l.gap, l.concurrency, l.delay)
                IS DISTINCT FROM (wanted.gap, wanted.concurrency, wanted.delay) AS is_news
        FROM unnest(CAST(:limits AS int[]), CAST(:units AS int[]), CAST(:gaps AS float8[]),
            CAST(:concurrencies AS int[]), CAST(:delays AS float8[]))
            AS wanted(id, units, gap, concurrency, delay)
        JOIN limits l ON l.id = wanted.id
        WHERE l.set_gap IS NULL AND l.set_concurrency IS NULL AND l.crawl_delay IS NULL
            AND (l.blocked_until IS NULL OR l.blocked_until <= clock_timestamp())
            AND (l.last_at IS NULL
                OR l.last_at <= clock_timestamp() - make_interval(secs => wanted.gap))
            AND NOT EXISTS (SELECT FROM holdings h WHERE h.limit_id = l.id OFFSET 0)),
    kept AS (
        UPDATE limits l
        SET gap = free.gap, concurrency = free.concurrency, delay = free.delay
        FROM free WHERE l.id = free.id AND free.kind = 'slot' AND free.is_news),
    taken AS (
        INSERT INTO holdings (limit_id, worker_id, units, is_exclusive, since)
        SELECT free.id, :worker, free.units, free.gap > 0, clock_timestamp() FROM free)
    SELECT free.id, free.kind, free.name, free.throttle FROM free
""")

# Locked limits and who has them; read after the lock, in a statement of its own.
STATES = text(f"""
    SELECT {sharing.STORED_TERMS}, l.throttle, l.latency,
        {seconds_until("l.blocked_until")} AS blocked_in, {seconds_since("l.last_at")} AS last_ago,
        h.worker_id, h.units, h.is_exclusive,
        {seconds_since("h.since")} AS age, {seconds_since("h.asked_at")} AS asked_ago,
        {seconds_until("h.until")} AS free_in,
        h.worker_id <> :worker AND (p.id IS NULL OR {IS_SURELY_DEAD}) AS is_gone,
        p.crawl_id IS DISTINCT FROM (
            SELECT own.crawl_id FROM processes own WHERE own.id = :worker) AS is_foreign
    FROM unnest(CAST(:limits AS int[])) AS wanted(id)
    JOIN limits l ON l.id = wanted.id
    LEFT JOIN LATERAL (
        SELECT * FROM holdings WHERE holdings.limit_id = l.id OFFSET 0) AS h ON true
    LEFT JOIN processes p ON p.id = h.worker_id
""")  # noqa: S608 - our own condition

# What a worker has or asks for, and how slots are kept by whoever has them.
# IS TRUE keeps the index of kind and name out, by which all slots would be read.
HOLD = text("""
    WITH slots AS (
        UPDATE limits l
        SET gap = kept.gap, concurrency = kept.concurrency, delay = kept.delay
        FROM unnest(CAST(:kept AS int[]), CAST(:gaps AS float8[]), CAST(:concurrencies AS int[]),
            CAST(:delays AS float8[])) AS kept(id, gap, concurrency, delay)
        WHERE l.id = kept.id AND (l.kind = 'slot') IS TRUE)
    INSERT INTO holdings AS h (limit_id, worker_id, units, is_exclusive, since, asked_at)
    SELECT held.limit_id, :worker, held.units, held.is_exclusive, clock_timestamp(),
        CASE WHEN held.asks THEN clock_timestamp() END
    FROM unnest(CAST(:limits AS int[]), CAST(:units AS int[]), CAST(:exclusive AS bool[]),
        CAST(:asks AS bool[])) AS held(limit_id, units, is_exclusive, asks)
    ON CONFLICT (limit_id, worker_id) DO UPDATE
    SET units = excluded.units, is_exclusive = excluded.is_exclusive,
        asked_at = excluded.asked_at, until = NULL,
        since = CASE WHEN (h.units > 0) = (excluded.units > 0) AND h.until IS NULL
                AND (h.units > 0
                    OR h.asked_at >= excluded.since - make_interval(secs => :forgotten))
            THEN h.since ELSE excluded.since END
""")

LET_GO = text("""
    DELETE FROM holdings WHERE ctid = ANY (ARRAY(
        SELECT h.ctid
        FROM unnest(CAST(:limits AS int[]), CAST(:workers AS int[])) AS gone(limit_id, worker_id)
        CROSS JOIN LATERAL (
            SELECT x.ctid FROM holdings x
            WHERE x.limit_id = gone.limit_id AND x.worker_id = gone.worker_id OFFSET 0) AS h))
""")

# What the dead had: nobody's, but not free before its requests have ended.
OUTLIVE = text("""
    UPDATE holdings h
    SET until = clock_timestamp() + make_interval(secs => left_by.seconds), asked_at = NULL
    FROM (
        SELECT x.at, gone.seconds
        FROM unnest(CAST(:limits AS int[]), CAST(:workers AS int[]), CAST(:seconds AS float8[]))
            AS gone(limit_id, worker_id, seconds)
        CROSS JOIN LATERAL (
            SELECT y.ctid AS at FROM holdings y
            WHERE y.limit_id = gone.limit_id AND y.worker_id = gone.worker_id
                AND (y.until IS NULL
                    OR y.until > clock_timestamp() + make_interval(secs => gone.seconds))
            OFFSET 0) AS x) AS left_by
    WHERE h.ctid = left_by.at
""")

# Limits whose last start is in the future: the server's clock was set back since.
FORGET_FUTURE = text("""
    UPDATE limits l SET last_at = clock_timestamp()
    WHERE l.id = ANY (CAST(:limits AS int[])) AND l.last_at > clock_timestamp()
""")

USED = text("""
    UPDATE limits l
    SET last_at = greatest(
            CASE WHEN l.last_at <= clock_timestamp() THEN l.last_at END,
            clock_timestamp() - make_interval(secs => used.last_ago)),
        throttle = coalesce(used.throttle, l.throttle), latency = coalesce(used.latency, l.latency)
    FROM unnest(CAST(:limits AS int[]), CAST(:last_ago AS float8[]),
        CAST(:throttles AS float8[]), CAST(:latencies AS float8[]))
        AS used(id, last_ago, throttle, latency)
    WHERE l.id = used.id
""")

STRAYS = text("""
    SELECT h.limit_id FROM holdings h
    WHERE h.worker_id = :worker AND h.limit_id <> ALL (CAST(:limits AS int[]))
        AND (h.units > 0 OR h.asked_at < clock_timestamp() - interval '10 seconds')
""")

OF_WORKERS = text("""
    SELECT h.limit_id, h.worker_id, h.units, l.latency, l.gap, l.set_gap, l.crawl_delay
    FROM unnest(CAST(:workers AS int[])) AS dead(id)
    CROSS JOIN LATERAL (
        SELECT * FROM holdings WHERE holdings.worker_id = dead.id OFFSET 0) AS h
    JOIN limits l ON l.id = h.limit_id
    WHERE h.until IS NULL
""")

BLOCK = text("""
    UPDATE limits l
    SET blocked_until = greatest(l.blocked_until,
            clock_timestamp() + make_interval(secs => taught.seconds)),
        blocked_by = CASE WHEN l.blocked_by = 'person' AND l.blocked_until > clock_timestamp()
            THEN l.blocked_by ELSE taught.reason END
    FROM unnest(CAST(:slots AS text[]), CAST(:seconds AS float8[]), CAST(:reasons AS text[]))
        AS taught(slot, seconds, reason)
    WHERE l.kind = 'slot' AND l.name = taught.slot
    RETURNING l.id
""")

SLOW_DOWN = text("""
    UPDATE limits l SET crawl_delay = taught.delay
    FROM unnest(CAST(:slots AS text[]), CAST(:delays AS float8[])) AS taught(slot, delay)
    WHERE l.kind = 'slot' AND l.name = taught.slot AND l.crawl_delay IS DISTINCT FROM taught.delay
    RETURNING l.id
""")

HOLDERS = text("""
    SELECT DISTINCT h.worker_id FROM unnest(CAST(:limits AS int[])) AS changed(id)
    CROSS JOIN LATERAL (
        SELECT * FROM holdings WHERE holdings.limit_id = changed.id OFFSET 0) AS h
    WHERE h.worker_id <> :worker AND h.units > 0
""")


def acquire(
    connection: Connection, worker_id: int, uses: Iterable[Use], *, learns: bool = True
) -> dict[int, Grant]:
    """Take what is free of the limits, and ask for the rest; return what came of it, by limit.

    A limit about which somebody else decides just now is left out. With `learns`, delays that were
    learned hold as well as those that are declared.
    """
    wanted = {use.limit_id: use for use in uses}
    locked = _locked(connection, LOCK_FREE_LIMITS, wanted)
    free: dict[int, Grant] = {}
    # Soon after a jump the server's clock does not tell how long ago a request started.
    if server_clock.since_jump(connection) > LONGEST_GAP:
        free = _take_free(connection, worker_id, locked, learns=learns)
    rest = [use for use in locked if use.limit_id not in free]
    return free | _decide(connection, worker_id, rest, learns=learns)


def renew(
    connection: Connection, worker_id: int, uses: Iterable[Use], *, learns: bool = True
) -> dict[int, Grant]:
    """Settle all that a worker has or wants: give up, shrink, grow, ask; by limit.

    What the database has under the worker's name beside that is let go. A worker that was given up
    for dead gets nothing.
    """
    if not sql_conditions.lives(connection, worker_id):
        return {}
    known = {use.limit_id: use for use in uses}
    given = {"worker": worker_id, "limits": list(known)}
    strays = list(connection.execute(STRAYS, given).scalars())
    locked = _locked(connection, LOCK_LIMITS, known)
    grants = _decide(connection, worker_id, locked, learns=learns)
    whole = [one.limit_id for one in grants.values() if one.units and one.in_force.is_exclusive]
    queues.hold_of_slots(connection, whole, worker_id)
    _let_go(connection, worker_id, strays)
    return grants


def keep_only(connection: Connection, worker_id: int, limit_ids: Iterable[int]) -> None:
    """Let go of what a worker has and does not know of, for the answer to a claim was lost."""
    given = {"worker": worker_id, "limits": list(limit_ids)}
    _let_go(connection, worker_id, list(connection.execute(STRAYS, given).scalars()))


def release_all(connection: Connection, worker_id: int, uses: Iterable[Use]) -> None:
    """Give up all limits of a worker that stops, and note how it used them."""
    uses = list(uses)
    ids = sorted(use.limit_id for use in uses)
    lock_limits(connection, ids)
    _note(connection, uses)
    keep_only(connection, worker_id, [])


def save_feedback(connection: Connection, worker_id: int, answers: Sequence[SlotFeedback]) -> None:
    """Save what was learned of slots, and tell the other workers that have them."""
    known = intern_slots(connection, [one.slot for one in answers])
    lock_limits(connection, known.values())
    changed: list[int] = []
    longest = sorted(
        (one for one in answers if one.blocked_for), key=lambda one: one.blocked_for or 0
    )
    blocks = list({one.slot: one for one in longest}.values())
    if blocks:
        given = columns(blocks, slots="slot", seconds="blocked_for", reasons="blocked_by")
        changed += connection.execute(BLOCK, given).scalars()
    delays = {one.slot: one.crawl_delay for one in answers if one.crawl_delay is not None}
    if delays:
        given = {"slots": list(delays), "delays": [one or None for one in delays.values()]}
        changed += connection.execute(SLOW_DOWN, given).scalars()
    tell_holders(connection, changed, worker_id)


def tell_holders(connection: Connection, limit_ids: Sequence[int], worker_id: int = 0) -> None:
    """Tell the workers that have limits, but one, that these have changed."""
    for worker in connection.execute(
        HOLDERS, {"limits": list(limit_ids), "worker": worker_id}
    ).scalars():
        connection.execute(TELL, {"worker": worker})


def outlive(connection: Connection, workers: Sequence[int]) -> None:
    """Let what dead workers had become free when the requests they left have ended."""
    rows = connection.execute(OF_WORKERS, {"workers": list(workers)})
    left = [
        (limit_id, worker_id, sharing.outlived(units, gaps, latency))
        for limit_id, worker_id, units, latency, *gaps in rows
    ]
    _outlive(connection, left)


def _locked(connection: Connection, lock: Any, wanted: Mapping[int, Use]) -> list[Use]:
    if not wanted:
        return []
    locked = connection.execute(lock, {"limits": sorted(wanted)}).scalars()
    return [wanted[one] for one in locked]


def _take_free(
    connection: Connection, worker_id: int, uses: Sequence[Use], *, learns: bool
) -> dict[int, Grant]:
    """Take those of the locked limits about which there is nothing to decide."""
    uses = [use for use in uses if use.wants]
    if not uses:
        return {}
    units = {use.limit_id: sharing.undivided(use) for use in uses}
    given = {
        "worker": worker_id,
        "limits": list(units),
        "units": list(units.values()),
        **columns(uses, **_DECLARED),
    }
    taken = {row.id: row for row in connection.execute(TAKE_FREE, given)}
    return {
        use.limit_id: Grant(
            limit_id=use.limit_id,
            kind=row.kind,
            name=row.name,
            in_force=use.declared,
            units=units[use.limit_id],
            throttle=sharing.learned(row.throttle) if learns else None,
        )
        for use in uses
        if (row := taken.get(use.limit_id)) is not None
    }


def _decide(
    connection: Connection, worker_id: int, uses: Sequence[Use], *, learns: bool
) -> dict[int, Grant]:
    """Decide about locked limits, each by all who have it or ask for it."""
    if not uses:
        return {}
    locked = [use.limit_id for use in uses]
    states = _states(connection, worker_id, locked)
    _note(connection, [use for use in uses if use.last_ago is not None])
    if later := [one.id for one in states.values() if (one.last_ago or 0.0) < 0]:
        connection.execute(FORGET_FUTURE, {"limits": later})
    others = {one: sharing.others_of(states[one], worker_id) for one in locked}
    _clear(connection, [states[one] for one in locked])
    decisions = {
        use.limit_id: sharing.decide(
            use, states[use.limit_id], others[use.limit_id], worker_id, learns=learns
        )
        for use in uses
    }
    _write(connection, worker_id, decisions, states)
    _tell(connection, decisions, others, states, worker_id)
    return {one: decision.grant for one, decision in decisions.items()}


# Statements


def _states(
    connection: Connection, worker_id: int, limit_ids: Sequence[int]
) -> dict[int, StoredLimit]:
    """Read locked limits and their holdings, as a worker sees them."""
    states: dict[int, StoredLimit] = {}
    width = len(Holding._fields)
    given = {
        "limits": limit_ids,
        "worker": worker_id,
        "untrusted": server_clock.untrusted(connection),
    }
    passed = server_clock.since_jump(connection)
    for row in connection.execute(STATES, given):
        limit = states.get(row.id)
        if limit is None:
            limit = states[row.id] = StoredLimit(*row[:-width]).passed_at_most(passed)
        if row.worker_id is not None:
            limit.holdings[row.worker_id] = limit.not_before(Holding(*row[-width:]), passed)
    return states


def _note(connection: Connection, uses: Sequence[Use]) -> None:
    if uses:
        used = columns(
            uses, limits="limit_id", last_ago="last_ago", throttles="throttle", latencies="latency"
        )
        connection.execute(USED, used)


def _clear(connection: Connection, limits: Iterable[StoredLimit]) -> None:
    """Bury what stands in the names of the dead."""
    held = [(limit, one) for limit in limits for one in limit.holdings.values()]
    left = [
        (limit.id, one.worker_id, limit.outlived(one.units))
        for limit, one in held
        if one.units and limit.is_to_outlive(one)
    ]
    _outlive(connection, left)
    over = [
        (limit.id, one.worker_id)
        for limit, one in held
        if (one.free_in is not None and one.free_in <= 0) or (one.is_gone and not one.units)
    ]
    if over:
        connection.execute(LET_GO, columns(over, limits=0, workers=1))


def _outlive(connection: Connection, left: Sequence[tuple[int, int, float]]) -> None:
    """Note in how many seconds it is free what workers left of limits, which they had."""
    if left:
        connection.execute(OUTLIVE, columns(left, limits=0, workers=1, seconds=2))
        queues.free(connection, {limit_id: after for limit_id, _, after in left})


def _write(
    connection: Connection,
    worker_id: int,
    decisions: Mapping[int, sharing.Decision],
    states: Mapping[int, StoredLimit],
) -> None:
    before = {one: states[one].holdings.get(worker_id) for one in decisions}
    held = [one for one, decision in decisions.items() if sharing.differs(decision, before[one])]
    kept = [
        decision.grant
        for one, decision in decisions.items()
        if decision.grant.units and sharing.is_news(decision.grant, states[one])
    ]
    if held or kept:
        given = {
            "worker": worker_id,
            "limits": held,
            **columns(
                [decisions[one] for one in held],
                units="units",
                exclusive="is_exclusive",
                asks="asks",
            ),
            "forgotten": sharing.FORGOTTEN,
            **columns(kept, kept="limit_id", **_IN_FORCE),
        }
        connection.execute(HOLD, given)
    gone = [one for one, decision in decisions.items() if not decision.is_held and before[one]]
    _let_go(connection, worker_id, gone)
    opened = [
        one
        for one, decision in decisions.items()
        if (row := before[one]) is not None and row.is_exclusive and not decision.is_exclusive
    ]
    queues.free(connection, dict.fromkeys(opened, 0.0))


def _let_go(connection: Connection, worker_id: int, limits: Sequence[int]) -> None:
    if limits:
        given = {"limits": list(limits), "workers": [worker_id] * len(limits)}
        connection.execute(LET_GO, given)
        queues.free(connection, dict.fromkeys(limits, 0.0))


def _tell(
    connection: Connection,
    decisions: Mapping[int, sharing.Decision],
    others: Mapping[int, sharing.Others],
    states: Mapping[int, StoredLimit],
    worker_id: int,
) -> None:
    """Tell holders that somebody new asks, and those who ask that there is something to have."""
    told: set[int] = set()
    for one, decision in decisions.items():
        mine = states[one].holdings.get(worker_id)
        if decision.asks and (mine is None or mine.asked_ago is None):
            told.update(others[one].holders)
        if mine is not None and mine.units > decision.units:
            told.update(asking.worker_id for asking in others[one].asking)
    for worker in sorted(told):
        connection.execute(TELL, {"worker": worker})
