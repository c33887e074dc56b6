"""The plans of the hot path, on a million items, with statistics that are old, missing or right.

Each statement that a claim or commit really sends is explained, with its parameters and in its
place, before it is sent. What counts is how many rows a plan touches: it must go with the batch.
"""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
from conftest import new_database
from support import flights
from support.filled import ONE, Filled, add_crawl, fill
from support.plans import BATCH, BUDGETS, EXPLAINED, check, explaining, touched
from support.races import Crawl, ended

from scrapy_itemgraph.changesets import kept_links
from scrapy_itemgraph.changesets.state import State
from scrapy_itemgraph.model.failure_filters import EVERY, FailureFilter
from scrapy_itemgraph.model.limits import SlotFeedback, SlotTerms, Terms, Use
from scrapy_itemgraph.model.operations import (
    AddTag,
    Changeset,
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
from scrapy_itemgraph.model.request_operations import EnqueueRequest
from scrapy_itemgraph.model.rules import PageRule, Ruleset
from scrapy_itemgraph.model.validators import Validators
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store import (
    gone_pages,
    in_flight,
    lost_commit_answers,
    open_failures,
    page_search,
)
from scrapy_itemgraph.store import queues as slot_queues
from scrapy_itemgraph.store import tags as stored_tags
from scrapy_itemgraph.store.admin import (
    activity,
    counting,
    crawl_contents,
    done_lists,
    expirable,
    explain,
    failure_counts,
    failure_groups,
    item_pages,
    limit_reports,
    neighbours,
    outstanding,
    overview,
    status,
    work_pages,
)
from scrapy_itemgraph.store.limits import holdings
from scrapy_itemgraph.store.registry import (
    code_changes,
    crawl_ends,
    crawls,
    duties,
    item_sweeps,
    rule_sweeps,
    rulesets,
    runs,
    workers,
)
from scrapy_itemgraph.store.worklist import claims as stored_claims
from scrapy_itemgraph.store.worklist import expired_results, timers
from scrapy_itemgraph.store.worklist.admission import Admission

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

THOUSAND, MANY, MILLION = 1_000, 20_000, 1_000_000
# Slots that another worker has, with their queues.
TAKEN = 5_000
TASK = 2  # whichever it is
LONG_AGO, LATER = datetime(2020, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
RAN: set[str] = set()
NO_PAGE = "https://a.example/that/nobody/has"
COUNTED = 1_000  # rows of a group that reports count one by one here


def to_be_expired(step: sa.Connection, crawl: Filled, *, tag: str | None) -> None:
    """Look for what can be expired as the command does, which is about to commit it."""
    engines.hot_path(step)
    expirable.look(step, crawl.id, task="parse", tag=tag, after=crawl.item_at(0.3))


def tags(step: sa.Connection, crawl: Filled) -> None:
    """Look for a tag that no item has, and for those that there are."""
    engines.hot_path(step)
    stored_tags.is_there(step, crawl.id, "none")
    stored_tags.names(step, crawl.id)


def work(step: sa.Connection, crawl: Filled, state: str | None, slot: str | None = None) -> Any:
    """Read the first page of work in a state."""
    none: Any = dict.fromkeys(("task", "task_id", "tag", "after"))
    return work_pages.page(step, crawl.id, **none, slot=slot, state=state, limit=100)


REPORTS: dict[str, Callable[[sa.Connection, Filled], Any]] = {
    "status": lambda step, crawl: status.status(step, crawl.id),
    "the lines of a run": lambda step, crawl: status.summary(step, crawl.id),
    "tags": tags,
    "worklist": lambda step, crawl: outstanding.worklist(step, crawl.id, task=None, limit=100),
    "worklist of a task": lambda step, crawl: outstanding.worklist(
        step, crawl.id, task="later", limit=100
    ),
    "failures": lambda step, crawl: open_failures.page(step, crawl.id, EVERY, limit=100),
    "the newest failures": lambda step, crawl: open_failures.page(
        step, crawl.id, EVERY, limit=100, newest_first=True
    ),
    "failures by a text that none has": lambda step, crawl: open_failures.page(
        step, crawl.id, FailureFilter(text="no such error"), limit=100
    ),
    "failures of the last hour, the newest first": lambda step, crawl: open_failures.page(
        step,
        crawl.id,
        FailureFilter(occurred_since=datetime.now(UTC) - timedelta(hours=1)),
        limit=100,
        newest_first=True,
    ),
    "items to be expired": lambda step, crawl: to_be_expired(step, crawl, tag=None),
    "items with a tag to be expired": lambda step, crawl: to_be_expired(step, crawl, tag="page"),
    "what a crawl has": lambda step, crawl: crawl_contents.holds(step, crawl.id),
    "how many failures are open": lambda step, crawl: failure_counts.pairs(step, crawl.id, EVERY),
    "how many failures have a text": lambda step, crawl: failure_counts.pairs(
        step, crawl.id, FailureFilter(text="no such error")
    ),
    "slots": lambda step, crawl: limit_reports.listed(step, crawl_id=crawl.id, limit=9),
    "slots of all crawls": lambda step, crawl: limit_reports.listed(step, limit=9),
    "the newest failure": lambda step, crawl: open_failures.newest(step),
    "one failure": lambda step, crawl: open_failures.details(
        step, crawl.id, step.scalar(sa.text("SELECT max(id) FROM failures"))
    ),
    "explain": lambda step, crawl: explain.explain(step, crawl.id, crawl.item_at(0.3)),
    "a page by its URL": lambda step, crawl: page_search.find(step, crawl.id, NO_PAGE),
    "a page by its URL in all crawls": lambda step, crawl: page_search.find(step, None, NO_PAGE),
    "pages that are spelled alike": lambda step, crawl: page_search.near(step, crawl.id, NO_PAGE),
    "overview": lambda step, crawl: overview.overview(step, names=None, after="", limit=9),
    "groups of failures": lambda step, crawl: failure_groups.groups(step, crawl.id, limit=9),
    "groups of failures by a text": lambda step, crawl: failure_groups.groups(
        step, crawl.id, FailureFilter(text="error"), sort="count", limit=9
    ),
    "failures of a group": lambda step, crawl: open_failures.page(
        step,
        crawl.id,
        FailureFilter(group=step.scalar(sa.text("SELECT fingerprint FROM failures LIMIT 1"))),
        limit=100,
    ),
    "neighbours": lambda step, crawl: neighbours.neighbours(
        step, crawl.id, crawl.item_at(0.3), limit=9
    ),
    **{
        f"items: {name}": lambda step, crawl, wanted=wanted, back=back: item_pages.page(
            step, crawl.id, item_pages.Wanted(**wanted), limit=100, newest_first=back
        )
        for back in (True, False)
        for name, wanted in {
            f"all {'back' if back else 'on'}": {},
            f"of a tag {'back' if back else 'on'}": {"tag": "page"},
            f"held {'back' if back else 'on'}": {"state": "held"},
            f"held of a tag {'back' if back else 'on'}": {"state": "held", "tag": "page"},
            f"of a task {'back' if back else 'on'}": {"task": TASK, "state": "stale"},
            f"gone {'back' if back else 'on'}": {"state": "gone"},
            f"never run since {'back' if back else 'on'}": {
                "state": "never run",
                "since": LONG_AGO,
            },
            f"of no state {'back' if back else 'on'}": {"state": "stale"},
            f"of no moment {'back' if back else 'on'}": {"since": LATER, "tag": "page"},
        }.items()
    },
    "pages that are gone": lambda step, crawl: gone_pages.found(
        step, crawl.id, task=None, after=(0, 0), limit=100
    ),
    "what was done last": lambda step, crawl: done_lists.done(
        step, crawl.id, None, since=LONG_AGO, before=None, limit=100
    ),
    "workers": lambda step, crawl: activity.workers(step, crawl.id, stopped=9),
    "seconds": lambda step, crawl: activity.seconds(step, crawl.id, LONG_AGO),
    "when failures of groups were": lambda step, crawl: failure_groups.times(
        step, [one.group for one in failure_groups.groups(step, crawl.id, limit=9)]
    ),
    "minutes": lambda step, crawl: activity.minutes(step, crawl.id, timedelta(hours=1)),
    **{
        f"{state or 'outstanding'} work": lambda step, crawl, state=state: work(step, crawl, state)
        for state in (None, *work_pages.WorkState)
    },
    "held work of a slot": lambda step, crawl: work(
        step, crawl, "held", step.scalar(sa.text("SELECT min(name) FROM limits WHERE name <> ''"))
    ),
    "held work of a slot that has none": lambda step, crawl: work(
        step, crawl, "held", step.scalar(sa.text("SELECT max(name) FROM limits"))
    ),
}
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
def filled(server_url, template) -> Iterator[Filled]:
    """Make a crawl with a million items; its statistics are those of a thousand."""
    with new_database(server_url, template) as url:
        engine = engines.sync_engine(url)
        with engine.begin() as connection:
            # What autovacuum counts in one table and not yet in another is different each time.
            for table in sa.inspect(connection).get_table_names():
                connection.exec_driver_sql(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        fill(engine, THOUSAND, failing=100).execute("ANALYZE")
        yield fill(engine, MILLION, failing=100)
        engine.dispose()


@pytest.fixture(
    scope="module",
    params=["old statistics", "no statistics", "statistics", "a crawl that statistics do not know"],
)
def million(filled, request) -> Filled:
    """Yield this crawl, on tables with other statistics each time.

    Last comes a crawl that was made after the tables were analysed, with many items.
    """
    if request.param == "no statistics":
        filled.execute("DELETE FROM pg_statistic")
        filled.execute("UPDATE pg_class SET reltuples = -1, relpages = 0 WHERE relkind = 'r'")
    elif request.param != "old statistics":
        filled.execute("ANALYZE")
    ((columns,),) = filled.rows("SELECT count(*) FROM pg_stats WHERE tablename = 'work'")
    assert bool(columns) == (request.param != "no statistics")
    if request.param == "a crawl that statistics do not know":
        return add_crawl(filled.engine, "new", MANY, first=2 * MILLION)
    return filled


@pytest.fixture
def step(million) -> Iterator[sa.Connection]:
    """Yield a transaction on it that is rolled back."""
    with million.engine.connect() as connection:
        yield connection
        connection.rollback()


@pytest.fixture(autouse=True)
def _ran(request) -> None:
    """Note which tests run in this process."""
    RAN.add(request.node.originalname)


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
    admission = Admission(slot_terms=SlotTerms(terms), **hand)
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
    uses = [Use(limit_id=number, declared=WHOLE) for number in slots.values()]
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
    wanted = [Use(limit_id=number, declared=terms, wants=4) for number in own]
    refused = [Use(limit_id=number, declared=terms, wants=4) for number in theirs]
    with explaining(step) as explained:
        taken = holdings.renew(step, worker, wanted)
        holdings.renew(step, worker, [*wanted[:BATCH], *refused])
        told = [
            Use(limit_id=use.limit_id, declared=terms, wants=0, last_ago=0.1, latency=0.2)
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
    uses = [Use(limit_id=number, declared=Terms(gap=3600.0, concurrency=8)) for number in own]
    holdings.acquire(step, dead, uses)
    step.execute(sa.text("UPDATE processes SET lease_until = now() WHERE id = :id"), {"id": dead})
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
    live = sa.text("SELECT count(*) FROM queues WHERE is_live AND crawl_id = :crawl")
    assert step.scalar(live, {"crawl": million.id}) == 0


def test_claims_that_are_exclusive_to_an_item_touch_few_rows(million, step):
    """A claim that looks for other claims of its items looks at these items only."""
    worker = worker_of(million, step)
    step.execute(sa.text("UPDATE tasks SET is_item_exclusive = true WHERE name = 'parse'"))

    with explaining(step) as explained:
        claims = million.claim(step, worker, BATCH)

    check(explained)
    assert len(claims) == BATCH


def test_a_claim_that_asks_for_validators_touches_few_rows(million, step):
    """A claim of pages that are asked for changes alone looks at their results only."""
    worker = worker_of(million, step)
    asking = {
        number: one._replace(revalidates=one.name == "parse")
        for number, one in million.tasks.items()
    }

    with explaining(step) as explained:
        engines.hot_path(step)
        claims = stored_claims.claim(
            step, crawl_id=million.id, worker_id=worker, tasks=asking, limit=BATCH
        )

    check(explained)
    assert len(claims) == BATCH


def test_what_frames_claims_and_commits_touches_few_rows(million, step):
    """What a worker asks before a claim, and notes beside one and with a commit, reads few rows."""
    worker = worker_of(million, step)
    engines.hot_path(step)

    with explaining(step) as explained:
        before = stored_claims.before_claim(step, million.id, worker)
        claims = million.claim(step, worker, BATCH)
        in_flight.write(step, worker, [(claim.item_id, claim.task_id) for claim in claims])
        freed = crawls.share_crawl(step, million.id)
        assert lost_commit_answers.take(step, uuid.uuid4())
        lost_commit_answers.note(step, [claim.token for claim in claims[5:]])
        assert stored_claims.release(step, claims[:5], worker) == 5

    check(explained)
    assert before == (False, False, 0, None, None, False)
    assert freed.names_freed == 0


def test_a_claim_of_suspected_work_touches_few_rows(million, step):
    """Work that two workers died on is found among a million rows that may run beside others."""
    worker = worker_of(million, step)
    first = {"first": million.item_at(0.5), "last": million.item_at(0.5) + BATCH}
    dead = "UPDATE work SET deaths = 2 WHERE item_id BETWEEN :first AND :last"
    step.execute(sa.text(dead), first)

    with explaining(step) as explained:
        claims = million.claim(step, worker, BATCH, alone=True)

    check(explained)
    assert len(claims) == 1


def test_names_that_go_from_item_to_item_touch_few_rows(million, step):
    """Names that are freed, kept as taken and given anew are looked up, and no others read."""
    names = [f"i{million.count // 3 + number}" for number in range(BATCH)]
    deletes = [DeleteItem(name, forget=number % 2 == 0) for number, name in enumerate(names)]
    creates = [CreateItem(name, tags=["page"]) for name in names]

    with explaining(step) as explained:
        gone = million.operate(step, *deletes)
        again = million.operate(step, *creates)
        renamed = million.operate(step, *(RenameItem(f"{n}x", id=n) for n in names[::2]))

    check(explained)
    assert [one.error for one in (gone, again, renamed)] == [None] * 3


def test_a_batch_of_creates_touches_few_rows(million, step):
    """Creating items, most of them known, looks up these names only."""
    names = [f"i{n * 7919 % million.count + 1}" if n % 10 else f"new{n}" for n in range(10 * BATCH)]
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
            [MergeItem(into=f"i{million.count // 2 + number}")],
            [DeleteItem(f"i{million.count // 4 + number}"), AddTag("seen"), RemoveTag("page")],
            [Expire(task="timed"), UpdateData({"seen": number})],
        ]
        return [UpdateMetadata({"title": "A page"}), CreateItem(), *kinds[number % len(kinds)]]

    outcomes = [Outcome.FAILED, Outcome.RETRY, Outcome.RELEASED]
    changesets = [
        ended(claim, *operations(n), items_scraped=n)
        if n < BATCH - 3
        else ended(claim, outcome=outcomes[n % 3], delay=timedelta(seconds=10))
        for n, claim in enumerate(claims)
    ]
    with explaining(step) as explained:
        applied = million.apply(step, *changesets, worker=worker)

    check(explained)
    assert [one.error for one in applied] == [None] * BATCH


def test_links_of_a_later_run_touch_few_rows(million, step):
    """Which known pages are of an earlier run, or before a hint, is looked up by their items."""
    worker = worker_of(million, step)
    links = [
        EnqueueRequest(
            id=f"i{number}",
            tags=("page",),
            data={"url": "http://a.example"},
            again=2,
            changed_at=datetime.now(UTC),
        )
        for number in range(BATCH)
    ]

    with explaining(step) as explained:
        (applied,) = million.apply(
            step, Changeset(operations=tuple(links), outcome=Outcome.OK), worker=worker
        )

    check(explained)
    assert applied.error is None
    assert {"load.OF_EARLIER_RUNS", "load.OF_BEFORE"} <= {one.name for one in explained}


def test_links_of_unchanged_pages_touch_few_rows(million, step):
    """They are kept by page, and found by page and name."""
    worker = worker_of(million, step)
    claims = million.claim(step, worker, BATCH // 2)
    validators = Validators(url="http://a.example", etag='"1"')
    read = [
        Changeset(
            operations=tuple(
                EnqueueRequest(id=f"i{2 * number + more}", tags=("page",), data={"url": "http://a"})
                for more in range(2)
            ),
            outcome=Outcome.OK,
            claim=claim,
            is_of_callback=True,
            validators=validators,
        )
        for number, claim in enumerate(claims)
    ]
    unchanged = [replace(one, operations=(), outcome=Outcome.UNCHANGED) for one in read]
    state = State(million.id, datetime.now(UTC), {}, run=2)

    with explaining(step) as explained:
        engines.hot_path(step)
        applied = million.apply(step, *read, worker=worker)
        kept_links.find(step, state, unchanged, ())

    check(explained)
    assert [one.error for one in applied] == [None] * (BATCH // 2)
    assert {"kept_links.KEEP", "kept_links.LINKED"} <= {one.name for one in explained}


def test_a_sweep_touches_few_rows(million, step):
    """A step of a sweep reads its hundred items and their work, wherever it stands."""
    item_sweeps.open_sweep(step, million.id, million.task_id("parse"))
    after = {"item": million.item_at(0.7)}
    step.execute(sa.text("UPDATE sweeps SET after_item_id = :item"), after)
    engines.hot_path(step)

    with explaining(step) as explained:
        assert item_sweeps.sweep(step, million.id)

    check(explained, item_sweeps.SWEEP_STEP)


def test_applying_rules_touches_few_rows(million, step, monkeypatch):
    """MNB-11: a step of rules looks at the next work of all crawls, and at what is skipped."""
    monkeypatch.setattr(rule_sweeps, "STEP", BATCH)
    engines.hot_path(step)
    rule = PageRule(match="one\\.example", skip=True)
    rulesets.put(step, million.id, Ruleset(rules=(rule,)), after=0, by="a test")
    rule_sweeps.begin(step, million.id)
    middle = {"at": million.item_at(0.5), "task": None}
    at = sa.text("UPDATE sweeps SET after_item_id = :at, task_id = :task")
    step.execute(at, middle)

    with explaining(step) as explained:
        item_sweeps.sweep(step, million.id)
    check(explained)
    rulesets.put(step, million.id, Ruleset(), after=1, by="a test")
    step.execute(at, middle | {"task": million.task_id("parse")})
    with explaining(step) as explained:
        item_sweeps.sweep(step, million.id)

    check(explained)
    counts = step.execute(sa.text("SELECT held, freed FROM sweeps")).one()
    assert counts.held > 0
    assert counts.held == counts.freed


def test_a_take_over_touches_few_rows(million, step):
    """Freeing the claims of the dead, and giving some up, reads these claims only."""
    worker, other = (worker_of(million, step) for _ in range(2))
    flights.begin(step, worker, million.claim(step, worker, BATCH))
    fatal = "UPDATE work SET deaths = 2, alone_deaths = 2 WHERE worker_id = :id AND item_id % 2 = 0"
    step.execute(sa.text(fatal), {"id": worker})
    step.execute(sa.text("UPDATE processes SET lease_until = now() WHERE id = :id"), {"id": worker})

    with explaining(step) as explained:
        assert million.take_over(step, other) == BATCH

    check(explained)


def test_looking_for_what_fell_due_touches_few_rows(million, step):
    """A million timers and a million results that are not due cost nothing to look at."""
    engines.hot_path(step)

    with explaining(step) as explained:
        assert timers.stage_timers(step, million.id) == 0
        assert expired_results.stage_results(step, million.id, datetime.now(UTC)) == 0

    check(explained)


def test_staging_what_fell_due_touches_few_rows(million, step):
    """Staging a few due timers and results touches these alone."""
    worker_of(million, step)
    some = f"item_id BETWEEN {million.item_at(0.4) + 1} AND {million.item_at(0.4) + BATCH}"
    due = f"UPDATE work SET not_before = now() WHERE not_before IS NOT NULL AND {some}"
    step.execute(sa.text(due))
    fresh = f"NOT is_held AND {some}"
    step.execute(sa.text(f"UPDATE results SET expires_at = now(), due_at = now() WHERE {fresh}"))
    engines.hot_path(step)

    with explaining(step) as explained:
        assert timers.stage_timers(step, million.id) == BATCH
        assert expired_results.stage_results(step, million.id, datetime.now(UTC)) == BATCH

    check(explained)


@pytest.mark.parametrize("is_idle", [True, False])
def test_asking_what_remains_touches_few_rows(million, step, is_idle):
    """Whether a run is over is found out without reading what is not due or not enabled."""
    if is_idle:
        step.execute(sa.text("UPDATE tasks SET is_enabled = false WHERE name = 'parse'"))
        step.execute(sa.text("UPDATE queues SET is_live = false"))
    engines.hot_path(step)
    kinds = [kind.id for kind in stored_claims.open_kinds(step, million.id, 0, million.tasks)]

    with explaining(step) as explained:
        remaining = runs.remaining(step, million.id, kinds=kinds, until=datetime.now(UTC))

    check(explained)
    assert remaining.claimable is not is_idle


def test_looking_for_crawls_that_nobody_runs_touches_few_rows(million, step):
    """One statement finds all crawls with something due, whatever else there is in them."""
    engines.hot_path(step)
    here = {"untrusted": 0.0, "limit": 20, "crawl": million.id}

    with explaining(step) as explained:
        step.execute(duties.UNATTENDED, here)
        step.execute(duties.STILL_UNATTENDED, here)
        step.execute(runs.UNSETTLED, here)

    check(explained)


def test_the_plans_would_be_bad_without_their_settings(million, step, monkeypatch, request):
    """The check above can fail: the planner left to itself reads or sorts far too much."""
    monkeypatch.setattr(engines, "HOT_PATH", "SELECT clock_timestamp()")
    if request.node.callspec.params["million"] != "no statistics":
        pytest.skip("with statistics the planner may do well by itself")
    worker = worker_of(million, step)
    only_queue(step)

    with explaining(step) as explained:
        million.claim(step, worker, BATCH)

    with pytest.raises(AssertionError, match=r"touches|Scan"):
        check(explained)


def test_whether_failures_stop_a_task_is_read_of_its_own(million, step):
    """A task without failures does not look through those of another, which may be very many."""
    step.execute(sa.text("UPDATE tasks SET max_failures = 10"))
    engines.hot_path(step)

    with explaining(step) as explained:
        stored_claims.open_kinds(step, million.id, 0, million.tasks)
        explain.explain(step, million.id, million.item_at(0.3))

    counted = [one for one in explained if "t.max_failures <=" in one.statement]
    assert len(counted) >= 2
    nodes = [node for one in counted for node in one.nodes]
    indexes = {node.get("Index Name") for node in nodes if node.get("Relation Name") == "failures"}
    assert indexes - {None} == {"failures_open_idx"}
    assert all(one.rows < THOUSAND for one in explained if one.name == "claims.OPEN_KINDS")


def test_open_failures_of_tasks_are_read_of_their_own(million, step):
    """What a handling and the end of a crawl ask of tasks reads no failures of others."""
    engines.hot_path(step)
    with explaining(step, is_prepared=False) as explained:
        asked = {"crawl": million.id, "task": "parse", "tasks": None}
        assert not step.execute(code_changes.FAILED_TASKS, asked).all()
        step.execute(crawl_ends.LEFT, {"crawl": million.id, "kinds": [], "most": BATCH})

    nodes = [node for one in explained for node in one.nodes]
    found = [node for node in nodes if node.get("Relation Name") == "failures"]
    assert {node.get("Index Name") for node in found} == {"failures_open_idx"}
    assert sum(touched(node) for node in found) <= BATCH


@pytest.fixture
def _counting_little(monkeypatch) -> None:
    """Let reports count few rows one by one, and draw small samples."""
    monkeypatch.setattr(counting, "MOST", COUNTED)
    monkeypatch.setattr(counting, "AT_FIRST", COUNTED)
    monkeypatch.setattr(counting, "LEAST", 1)
    monkeypatch.setattr(counting, "PAGES", 5)


@pytest.mark.usefixtures("_counting_little")
@pytest.mark.parametrize("report", ["status", "overview", "the lines of a run"])
def test_a_sample_is_read_once(million, step, report):
    """However many tasks there are; and a pair's failures are found by the pair alone."""
    with explaining(step, is_prepared=False) as explained:
        REPORTS[report](step, million)

    nodes = [node for one in explained for node in one.nodes]
    samples = [node for node in nodes if node["Node Type"] == "Sample Scan"]
    assert samples
    assert {node["Actual Loops"] for node in samples} == {1}
    filters = [node.get("Filter", "") for node in nodes if node.get("Relation Name") == "failures"]
    assert not any("item_id" in one for one in filters)


@pytest.mark.usefixtures("_counting_little")
@pytest.mark.parametrize("report", REPORTS)
def test_a_report_reads_few_rows(million, step, monkeypatch, report):
    """What people ask reads of each group as much as is counted, and no table to its end.

    `explain` leaves the planner to itself, as it is for people.
    """
    monkeypatch.setattr(crawl_contents, "FEW", COUNTED)
    monkeypatch.setattr(failure_counts, "COUNTED", COUNTED)
    monkeypatch.setattr(item_pages, "MOST_LOOKED_AT", COUNTED)
    monkeypatch.setattr(open_failures, "LOOKED_AT", COUNTED)
    monkeypatch.setattr(activity, "MOST_LOOKED_AT", COUNTED)
    monkeypatch.setattr(work_pages, "MOST_LOOKED_AT", COUNTED)

    with explaining(step, is_prepared=False) as explained:
        REPORTS[report](step, million)

    assert explained
    nodes = [node for one in explained for node in one.nodes if "Relation Name" in node]
    far = {str(node): touched(node) for node in nodes if touched(node) > 5 * COUNTED}
    assert not far


def test_every_pinned_statement_has_been_explained():
    """A budget of rows is one that a plan was held to: none is left of statements that went."""
    if {name for name in globals() if name.startswith("test_")} - RAN:
        pytest.skip("not all tests of this file ran in this process")

    assert set(BUDGETS) - EXPLAINED <= {"engine.BEGIN"}
