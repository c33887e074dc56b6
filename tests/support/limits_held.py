"""Workers that ask for limits, hold them and give them up."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from scrapy_itemgraph.model.limits import SlotTerms, Terms, Use
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store.limits import holdings
from scrapy_itemgraph.store.worklist import claims
from scrapy_itemgraph.store.worklist.admission import Admission

GAP = 5.0
WHOLE = Terms(gap=GAP)
SLACK = 0.25
AGED = (
    """
    UPDATE limits SET last_at = last_at - make_interval(secs => :s),
        blocked_until = blocked_until - make_interval(secs => :s)
    """,
    """
    UPDATE holdings SET since = since - make_interval(secs => :s),
        asked_at = asked_at - make_interval(secs => :s),
        until = until - make_interval(secs => :s)
    """,
    "UPDATE queues SET next_at = next_at - make_interval(secs => :s)",
)
HELD = """
    SELECT h.limit_id, h.worker_id, h.units, h.is_exclusive, h.asked_at IS NOT NULL AS asks,
        extract(epoch FROM h.until - clock_timestamp()) AS free_in
    FROM holdings h ORDER BY h.limit_id, h.worker_id
"""


def limit(connection, name="a.example", *, kind="slot", **columns):
    """Make a limit, and return its number."""
    names = ", ".join(["kind", "name", *columns])
    places = ", ".join([":kind", ":name", *(f":{one}" for one in columns)])
    made = sa.text(f"INSERT INTO limits ({names}) VALUES ({places}) RETURNING id")
    return connection.execute(made, {"kind": kind, "name": name, **columns}).scalar_one()


def later(connection, seconds):
    """Let time pass."""
    for statement in AGED:
        connection.execute(sa.text(statement), {"s": seconds})


def held(connection):
    """Return who has units of what, the dead included: {(limit, worker): units}."""
    rows = connection.execute(sa.text(HELD)).all()
    return {(row.limit_id, row.worker_id): row.units for row in rows if row.units}


def asking(connection):
    """Return who waits without any unit."""
    rows = connection.execute(sa.text(HELD)).all()
    return {row.worker_id for row in rows if row.asks and not row.units}


def ask(connection, worker, number, terms=WHOLE, *, how=holdings.renew, learns=True, **use):
    """Say what a worker has and wants of one limit, and return what it may do."""
    return how(connection, worker, [Use(limit_id=number, declared=terms, **use)], learns=learns)[
        number
    ]


def look(connection, worker, number, terms=WHOLE, **use):
    """Ask as a claim does, which has no work in hand yet."""
    return ask(connection, worker, number, terms, how=holdings.acquire, looking=True, **use)


def give_up(connection, worker, number, terms=WHOLE, **use):
    """Let a worker give a limit up."""
    return ask(connection, worker, number, terms, wants=0, **use)


def lose_sign_of(connection, worker):
    """End a worker's lease."""
    ended = "UPDATE processes SET lease_until = now() - interval '1 s' WHERE id = :worker"
    connection.execute(sa.text(ended), {"worker": worker})


def claim(crawl, worker, terms=WHOLE, limit=25):
    """Claim with nothing in hand; all slots are kept alike."""
    admission = Admission(slot_terms=SlotTerms(terms))
    given = {
        "crawl_id": crawl.id,
        "worker_id": worker,
        "tasks": crawl.registration.tasks,
        "limit": limit,
        "admission": admission,
    }
    engine.hot_path(crawl.connection)
    return claims.claim(crawl.connection, **given)


def is_about(seconds, between=0.0):
    """Compare durations that the database measured, at most so many seconds after each other."""
    return pytest.approx(seconds, abs=SLACK + between)
