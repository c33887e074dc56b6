"""The plans of the hot path, on a million items, on tables never analysed and analysed.

Each statement that a claim or commit really sends is explained, with its parameters and in its
place, before it is sent. What counts is how many rows a plan touches: it must go with the batch.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
from benchmarks.bench_hot_path import ONE, fill
from conftest import new_database
from plans import BATCH, check, explaining
from races import Crawl, ended

from scrapy_itemgraph.model.limits import SlotFeedback, Terms, Use
from scrapy_itemgraph.model.operations import (
    AddTag,
    CreateAlias,
    CreateItem,
    DeleteItem,
    Expire,
    MergeItem,
    RemoveTag,
    RenameItem,
    UpdateData,
    UpdateMetadata,
)
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store import queues as slot_queues
from scrapy_itemgraph.store.limits import holdings
from scrapy_itemgraph.store.registry import runs, sweeps, workers
from scrapy_itemgraph.store.worklist import claims as stored_claims
from scrapy_itemgraph.store.worklist import timers
from scrapy_itemgraph.store.worklist.admission import Admission

if TYPE_CHECKING:
    from collections.abc import Iterator

MILLION = 1_000_000
# Slots that another worker has, with their queues.
TAKEN = 20_000
WHOLE = Terms(gap=1.0, concurrency=8)
UNITS = Terms(concurrency=8)
TAKE_SLOTS = (
    "INSERT INTO limits (name) SELECT 's' || n || '.example' FROM generate_series(1, :count) n",
    """
    INSERT INTO queues (crawl_id, slot_id, is_live, next_at, holder)
    SELECT :crawl, id, true, now() - interval '2 hours', :worker
    FROM limits WHERE name LIKE 's%.example'
    """,
    """
    INSERT INTO holdings (limit_id, worker_id, units, is_exclusive)
    SELECT id, :worker, 1, true FROM limits WHERE name LIKE 's%.example'
    """,
)


@pytest.fixture(scope="module")
def filled(server_url, template) -> Iterator[Crawl]:
    """Make a crawl with a million items, loaded once and never analysed."""
    with new_database(server_url, template) as url:
        engine = engines.sync_engine(url)
        with engine.begin() as connection:
            for table in ("limits", "holdings", "queues"):
                connection.exec_driver_sql(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        yield fill(engine, MILLION)
        engine.dispose()


@pytest.fixture(scope="module", params=["never analysed", "analysed"])
def million(filled, request) -> Crawl:
    """Yield the same crawl, on tables without and then with statistics."""
    if request.param == "analysed":
        filled.execute("ANALYZE")
    ((columns,),) = filled.rows("SELECT count(*) FROM pg_stats WHERE tablename = 'work'")
    assert bool(columns) == (request.param == "analysed")
    return filled


@pytest.fixture
def step(million) -> Iterator[sa.Connection]:
    """Yield a transaction on it that is rolled back."""
    with million.engine.connect() as connection:
        yield connection
        connection.rollback()


def worker_of(crawl: Crawl, connection: sa.Connection) -> int:
    """Register a worker in the test's transaction."""
    return workers.register(
        connection,
        crawl.id,
        spider="spider",
        host="here",
        process_id=1,
        job=None,
        lease=timedelta(hours=1),
    ).id


def take_slots(crawl: Crawl, connection: sa.Connection) -> int:
    """Let another worker have many slots, and return it."""
    worker = worker_of(crawl, connection)
    given = {"count": TAKEN, "crawl": crawl.id, "worker": worker}
    for statement in TAKE_SLOTS:
        text = sa.text(statement)
        connection.execute(text, {key: given[key] for key in text._bindparams})
    return worker


def slots_like(connection: sa.Connection, pattern: str, limit: int = BATCH) -> dict[str, int]:
    """Return some slots by name."""
    found = sa.text("SELECT name, id FROM limits WHERE name LIKE :like ORDER BY id LIMIT :limit")
    rows = connection.execute(found, {"like": pattern, "limit": limit}).all()
    return {row.name: row.id for row in rows}


def limited(
    crawl: Crawl, connection: sa.Connection, worker: int, terms: Terms, **hand: Any
) -> tuple[list[Any], Admission]:
    """Claim where all slots are kept alike."""
    engines.hot_path(connection)
    admission = Admission(slot_terms=lambda _: terms, **hand)
    claims = stored_claims.claim(
        connection,
        crawl_id=crawl.id,
        worker_id=worker,
        tasks=crawl.tasks,
        limit=BATCH,
        admission=admission,
    )
    return claims, admission


def only_queue(connection: sa.Connection) -> None:
    """Let the queue with a million rows be the only live one."""
    others = "FROM limits s WHERE s.id = q.slot_id AND s.name <> :one"
    connection.execute(sa.text(f"UPDATE queues q SET is_live = false {others}"), {"one": ONE})


@pytest.mark.parametrize("queues", ["one", "many"])
def test_a_claim_touches_few_rows(million, step, queues):
    """A claim reads the heads of its queues, past a million rows of a disabled task."""
    worker = worker_of(million, step)
    if queues == "one":
        only_queue(step)

    with explaining(step) as explained:
        claims = million.claim(step, worker, BATCH)

    check(explained)
    assert len(claims) == BATCH
    assert {one.task for one in claims} == {"parse"}
    assert len({one.slot for one in claims}) == (1 if queues == "one" else BATCH)


@pytest.mark.parametrize("terms", [WHOLE, UNITS])
@pytest.mark.parametrize("queues", ["one", "many"])
def test_a_claim_within_limits_touches_few_rows(million, step, queues, terms):
    """A claim that takes the slots it claims from passes over all that others have."""
    take_slots(million, step)
    worker = worker_of(million, step)
    if queues == "one":
        only_queue(step)
        step.execute(sa.text("UPDATE queues SET is_live = true WHERE holder IS NOT NULL"))

    with explaining(step) as explained:
        claims, _ = limited(million, step, worker, terms)

    check(explained)
    assert len(claims) == (1 if queues == "one" and terms is WHOLE else BATCH)


def test_a_claim_from_slots_in_hand_touches_few_rows(million, step):
    """A claim from slots that the worker has looks at those with room, and at what is new."""
    take_slots(million, step)
    worker = worker_of(million, step)
    admission = Admission()
    rooms: dict[int, int] = {}
    for _ in range(8):
        _, admission = limited(million, step, worker, WHOLE, rooms=rooms)
        rooms = dict.fromkeys(admission.rooms, 0)
    some = [number for number, grant in admission.grants.items() if grant.units][:10]

    with explaining(step) as explained:
        claims, _ = limited(million, step, worker, WHOLE, rooms={**rooms, **dict.fromkeys(some, 1)})

    check(explained)
    assert len(claims) == BATCH


def test_a_claim_that_is_refused_touches_few_rows(million, step):
    """A claim whose slots are all blocked or in other hands puts them off, and no others."""
    other = take_slots(million, step)
    slots = slots_like(step, "q%.example", 100)
    uses = [Use(limit_id=number, terms=WHOLE) for number in slots.values()]
    holdings.acquire(step, other, uses)
    blocked = [SlotFeedback(slot=name, blocked_for=60.0, blocked_by="http 429") for name in slots]
    holdings.save_feedback(step, other, blocked[:50])
    first = "UPDATE queues SET next_at = now() - interval '2 days' WHERE slot_id = ANY (:slots)"
    step.execute(sa.text(first), {"slots": list(slots.values())})
    worker = worker_of(million, step)

    with explaining(step) as explained:
        claims, _ = limited(million, step, worker, WHOLE)

    check(explained)
    assert len(claims) == BATCH


@pytest.mark.parametrize("terms", [WHOLE, UNITS])
def test_settling_limits_touches_few_rows(million, step, terms):
    """Taking, keeping, asking for and giving up limits looks at these limits only."""
    other = take_slots(million, step)
    worker = worker_of(million, step)
    theirs = slots_like(step, "s%.example").values()
    own = slots_like(step, "q%.example", 2 * BATCH).values()
    engines.hot_path(step)
    wanted = [Use(limit_id=number, terms=terms, wants=4) for number in own]
    refused = [Use(limit_id=number, terms=terms, wants=4) for number in theirs]
    with explaining(step) as explained:
        taken = holdings.renew(step, worker, wanted)
        holdings.renew(step, worker, [*wanted[:BATCH], *refused])
        told = [
            Use(limit_id=use.limit_id, terms=terms, wants=0, last_ago=0.1, latency=0.2)
            for use in wanted[:BATCH]
        ]
        holdings.renew(step, worker, [*told, *refused])
        holdings.release_all(step, worker, told)

    check(explained)
    assert all(grant.units for grant in taken.values())
    assert other != worker


def test_what_becomes_of_the_limits_of_the_dead_touches_few_rows(million, step):
    """What a dead worker had is found among what all others have."""
    take_slots(million, step)
    dead, heir = (worker_of(million, step) for _ in range(2))
    own = slots_like(step, "q%.example").values()
    uses = [Use(limit_id=number, terms=WHOLE) for number in own]
    holdings.acquire(step, dead, uses)
    step.execute(sa.text("UPDATE workers SET lease_until = now() WHERE id = :id"), {"id": dead})
    engines.hot_path(step)

    with explaining(step) as explained:
        holdings.outlive(step, [dead])
        refused = holdings.renew(step, heir, uses)

    check(explained)
    assert not any(grant.units for grant in refused.values())


def test_freeing_queues_touches_few_rows(million, step):
    """Freeing the queues of some slots does not look at those of others."""
    take_slots(million, step)
    slots = slots_like(step, "s%.example").values()
    engines.hot_path(step)

    with explaining(step) as explained:
        slot_queues.free(step, dict.fromkeys(slots, 0.0))

    check(explained)
    left = "SELECT count(*) FROM queues WHERE holder IS NOT NULL"
    assert step.scalar(sa.text(left)) == TAKEN - BATCH


def test_feedback_touches_few_rows(million, step):
    """What a site's answer taught is written to its slot alone."""
    worker = take_slots(million, step)
    slots = slots_like(step, "s%.example")
    engines.hot_path(step)
    answers = [
        SlotFeedback(slot=name, blocked_for=60.0, blocked_by="http 429", crawl_delay=5.0)
        for name in slots
    ]

    with explaining(step) as explained:
        holdings.save_feedback(step, worker, answers)

    check(explained)


def test_a_claim_that_finds_only_a_disabled_task_touches_few_rows(million, step):
    """A million rows that may not be claimed cost a claim nothing, and their queue is parked."""
    worker = worker_of(million, step)
    only_queue(step)
    step.execute(sa.text("UPDATE tasks SET is_enabled = false WHERE name = 'parse'"))

    with explaining(step) as explained:
        claims = million.claim(step, worker, BATCH)

    check(explained)
    assert claims == []
    assert step.scalar(sa.text("SELECT count(*) FROM queues WHERE is_live")) == 0


def test_claims_that_are_exclusive_to_an_item_touch_few_rows(million, step):
    """A claim that looks for other claims of its items looks at these items only."""
    worker = worker_of(million, step)
    step.execute(sa.text("UPDATE tasks SET is_item_exclusive = true WHERE name = 'parse'"))

    with explaining(step) as explained:
        claims = million.claim(step, worker, BATCH)

    check(explained)
    assert len(claims) == BATCH


def test_a_batch_of_creates_touches_few_rows(million, step):
    """Creating items, most of them known, looks up these names only."""
    names = [f"i{n * 7919 % MILLION + 1}" if n % 10 else f"new{n}" for n in range(10 * BATCH)]
    creates = [CreateItem(n, tags=["page"], data={"url": f"http://{ONE}/{n}"}) for n in names]

    with explaining(step) as explained:
        applied = million.operate(step, *creates)

    check(explained)
    assert Counter(note.label for note in applied.notes) == {"known": 225, "new": 25}


def test_a_commit_of_every_kind_touches_few_rows(million, step):
    """A commit of a batch with operations, merges, deletions and failures stays with its items."""
    worker = worker_of(million, step)
    only_queue(step)
    claims = million.claim(step, worker, BATCH)

    def operations(number: int) -> list[Any]:
        kinds: list[list[Any]] = [
            [RenameItem(to=f"renamed{number}"), CreateAlias(f"alias{number}")],
            [MergeItem(into=f"i{500_000 + number}")],
            [DeleteItem(f"i{600_000 + number}"), AddTag("seen"), RemoveTag("page")],
            [Expire(task="timed"), UpdateData({"seen": number})],
        ]
        return [UpdateMetadata({"title": "A page"}), CreateItem(), *kinds[number % len(kinds)]]

    outcomes = [Outcome.FAILED, Outcome.RETRY, Outcome.RELEASED]
    changesets = [
        ended(claim, *operations(n))
        if n < BATCH - 3
        else ended(claim, outcome=outcomes[n % 3], delay=timedelta(seconds=10))
        for n, claim in enumerate(claims)
    ]
    with explaining(step) as explained:
        applied = million.apply(step, *changesets, worker=worker)

    check(explained)
    assert [one.error for one in applied] == [None] * BATCH


def test_a_sweep_touches_few_rows(million, step):
    """A step of a sweep reads its hundred items and their work, wherever it stands."""
    sweeps.open_sweep(step, million.id, million.task_id("parse"))
    step.execute(sa.text("UPDATE sweeps SET after_item_id = 700000"))
    engines.hot_path(step)

    with explaining(step) as explained:
        assert sweeps.sweep(step, million.id)

    check(explained, sweeps.SWEEP_STEP)


def test_a_take_over_touches_few_rows(million, step):
    """Freeing the claims of the dead reads these claims only."""
    worker, other = (worker_of(million, step) for _ in range(2))
    million.claim(step, worker, BATCH)
    step.execute(sa.text("UPDATE workers SET lease_until = now() WHERE id = :id"), {"id": worker})

    with explaining(step) as explained:
        assert million.take_over(step, other) == BATCH

    check(explained)


def test_looking_for_what_fell_due_touches_few_rows(million, step):
    """A million timers and a million results that are not due cost nothing to look at."""
    engines.hot_path(step)

    with explaining(step) as explained:
        assert timers.stage_timers(step, million.id) == 0
        assert timers.stage_results(step, million.id, datetime.now(UTC)) == 0

    check(explained)


def test_staging_what_fell_due_touches_few_rows(million, step):
    """Staging a few due timers and results touches these alone."""
    worker_of(million, step)
    some = "item_id IN (SELECT id FROM items WHERE id BETWEEN 400001 AND 400025)"
    due = f"UPDATE work SET not_before = now() WHERE not_before IS NOT NULL AND {some}"
    step.execute(sa.text(due))
    step.execute(sa.text(f"UPDATE results SET expires_at = now(), due_at = now() WHERE {some}"))
    engines.hot_path(step)

    with explaining(step) as explained:
        assert timers.stage_timers(step, million.id) == BATCH
        assert timers.stage_results(step, million.id, datetime.now(UTC)) == BATCH

    check(explained)


@pytest.mark.parametrize("is_idle", [True, False])
def test_asking_what_remains_touches_few_rows(million, step, is_idle):
    """Whether a run is over is found out without reading what is not due or not enabled."""
    if is_idle:
        step.execute(sa.text("UPDATE tasks SET is_enabled = false WHERE name = 'parse'"))
        step.execute(sa.text("UPDATE queues SET is_live = false"))
    engines.hot_path(step)
    kinds = [kind.id for kind in stored_claims.open_kinds(step, million.id, million.tasks)]

    with explaining(step) as explained:
        remaining = runs.remaining(step, million.id, kinds=kinds, until=datetime.now(UTC))

    check(explained)
    assert remaining.claimable is not is_idle


def test_the_plans_would_be_bad_without_their_settings(million, step, monkeypatch, request):
    """The check above can fail: the planner left to itself reads or sorts far too much."""
    monkeypatch.setattr(engines, "HOT_PATH", "SELECT clock_timestamp()")
    if request.node.callspec.params["million"] == "analysed":
        pytest.skip("with statistics the planner may do well by itself")
    worker = worker_of(million, step)
    only_queue(step)

    with explaining(step) as explained:
        million.claim(step, worker, BATCH)

    with pytest.raises(AssertionError, match=r"touches|Scan"):
        check(explained)
