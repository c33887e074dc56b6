"""Which work a claim takes where limits hold: what may start soon, and no less than that."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest
import races
import sqlalchemy as sa
from graphs import Crawl, committed, spider

from scrapy_itemgraph import task
from scrapy_itemgraph.graph.worker_graph import WorkerGraph
from scrapy_itemgraph.model import limits, tasks
from scrapy_itemgraph.model.limits import LOOKAHEAD, MANY, SlotFeedback, Terms, Use
from scrapy_itemgraph.model.operations import AddTag, CreateItem, RemoveTag
from scrapy_itemgraph.model.rates import RateLimit
from scrapy_itemgraph.model.work import ClaimBudget
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.settings import Settings
from scrapy_itemgraph.store import queues
from scrapy_itemgraph.store import slots as stored_slots
from scrapy_itemgraph.store.admin import limits_report
from scrapy_itemgraph.store.limits import holdings
from scrapy_itemgraph.store.registry import tasks as stored_tasks
from scrapy_itemgraph.store.worklist import claims
from scrapy_itemgraph.store.worklist.admission import Admission

if TYPE_CHECKING:
    from collections.abc import Mapping

BATCH = 25
SECOND = Terms(gap=1.0)
FREE = Terms()


class Worker:
    """A worker that claims as `Claimer` does, with what it has in hand given by the test."""

    def __init__(self, crawl: Crawl, terms: Terms = SECOND, number: int | None = None) -> None:
        self.crawl = crawl
        self.number = number or crawl.worker
        self.terms = terms
        self.admission = Admission()

    def claim(
        self, limit: int = BATCH, *, rooms: Mapping[int, int] | None = None, alone: bool = False
    ) -> list[str]:
        """Claim, and return the items."""
        self.admission = admission_of(self.crawl, self.terms, rooms)
        with committed(self.crawl.connection):
            engines.hot_path(self.crawl.connection)
            self.claims = claims.claim(
                self.crawl.connection,
                crawl_id=self.crawl.id,
                worker_id=self.number,
                tasks=self.crawl.registration.tasks,
                limit=limit,
                alone=alone,
                admission=self.admission,
            )
        return [one.item.id for one in self.claims]

    def release(self) -> None:
        """Give back what was claimed, and all limits."""
        self.crawl.release(*self.claims, worker=self.number)
        self.give_up()

    def give_up(self) -> None:
        """Give all limits up."""
        holdings.renew(self.crawl.connection, self.number, [])


def admission_of(crawl, terms, rooms=None) -> Admission:
    """Return what a worker's claim is decided by; all slots are kept alike."""
    known = crawl.registration.limits
    return Admission(
        rooms=dict(rooms or {}),
        limits_of=known.of_task,
        terms={
            number: Terms(gap=one.gap or 0.0, concurrency=one.concurrency)
            for number, one in known.declared.items()
        },
        slot_terms=lambda _: terms,
    )


def register(crawl, *, rate_limit=None, rate_groups=None, swept=True, **declared) -> None:
    """Register tasks with their limits, as a start of the spider does."""
    with committed(crawl.connection):
        crawl.registration = stored_tasks.register_tasks(
            crawl.connection,
            crawl.id,
            crawl.spider,
            tasks.discover(spider(**declared)),
            None,
            limits_of=lambda one: limits.of_task(
                one, spider=crawl.spider, rate_limit=rate_limit, rate_groups=rate_groups or {}
            ),
        )
    if swept:
        crawl.sweep()


def host(number: int, prefix: str = "h") -> str:
    """Return a host's name."""
    return f"{prefix}{number:03}.example"


def fill(crawl, hosts, *, each=1, tags=("page",)) -> None:
    """Make work of several hosts."""
    crawl.do(
        *(
            CreateItem(f"{one}/{n}", tags=tags, data={"url": f"http://{one}/{n}"})
            for one in hosts
            for n in range(each)
        )
    )


def number_of(crawl, name, kind="slot") -> int:
    """Return a limit's number."""
    if kind == "slot":
        return stored_slots.intern_slots(crawl.connection, [name])[name]
    (row,) = crawl.rows("SELECT id FROM limits WHERE kind = :k AND name = :n", k=kind, n=name)
    return row.id


def hold(crawl, worker, number, terms=SECOND) -> None:
    """Let a worker have a limit."""
    use = Use(limit_id=number, terms=terms)
    assert holdings.acquire(crawl.connection, worker, [use])[number].units


def hosts_of(names) -> list[str]:
    """Return the hosts of items."""
    return [name.split("/")[0] for name in names]


def queue_rows(crawl) -> dict:
    """Return the queues of hosts: {host: (holder, seconds until its turn)}."""
    rows = crawl.rows(
        "SELECT l.name, q.holder, extract(epoch FROM q.next_at - clock_timestamp()) AS turn_in "
        "FROM queues q JOIN limits l ON l.id = q.slot_id WHERE q.crawl_id = :crawl",
        crawl=crawl.id,
    )
    return {row.name: (row.holder, float(row.turn_in)) for row in rows}


def held_by(crawl, worker) -> set[str]:
    """Return the names of what a worker has."""
    rows = crawl.rows(
        "SELECT l.name FROM holdings h JOIN limits l ON l.id = h.limit_id "
        "WHERE h.worker_id = :worker AND h.units > 0",
        worker=worker,
    )
    return {row.name for row in rows}


@pytest.fixture
def crawl(connection) -> Crawl:
    """Make a crawl with one task."""
    return Crawl.of(connection)


@pytest.fixture
def other(crawl) -> int:
    """Register another worker of the crawl."""
    return crawl.new_worker()


# What may start soon


@pytest.mark.parametrize(("gap", "most"), [(5.0, 1), (0.2, 2), (0.16, 2), (0.05, 7)])
def test_only_what_may_start_soon_is_claimed(crawl, gap, most):
    """Of a slot with a delay a claim takes as much as may start within the time looked ahead."""
    fill(crawl, ["a.example"], each=20)

    claimed = Worker(crawl, Terms(gap=gap)).claim()

    assert most - 1 <= len(claimed) <= most
    assert claimed


def test_what_may_not_start_soon_is_not_claimed(crawl):
    """A free slot whose delay is not over is left, and it is said when to look again."""
    fill(crawl, ["a.example"], each=2)
    worker = Worker(crawl, Terms(gap=5.0))
    number = number_of(crawl, "a.example")
    hold(crawl, worker.number, number, worker.terms)
    uses = [Use(limit_id=number, terms=worker.terms, wants=0, last_ago=1.0)]
    holdings.renew(crawl.connection, worker.number, uses)

    assert worker.claim() == []
    assert worker.admission.again_in == pytest.approx(4.0 - LOOKAHEAD, abs=0.2)
    assert held_by(crawl, worker.number) == set()


def test_a_slot_is_claimed_from_as_far_as_there_is_room(crawl):
    """Of a slot in hand a claim takes what the worker has use for, and no more."""
    fill(crawl, ["a.example", "b.example"], each=5)
    worker = Worker(crawl)
    worker.claim()
    first, second = (number_of(crawl, f"{one}.example") for one in "ab")

    assert hosts_of(worker.claim(rooms={first: 0, second: 2})) == ["b.example"] * 2
    assert worker.claim(rooms={first: 0, second: 0}) == []


def test_nothing_is_limited_without_limits(crawl):
    """Slots without a delay or a cap are claimed from as ever, and nobody has them."""
    fill(crawl, ["a.example"], each=30)

    assert len(Worker(crawl, FREE).claim()) == BATCH
    assert held_by(crawl, crawl.worker) == set()
    assert queue_rows(crawl)["a.example"][0] is None


def test_a_capped_slot_is_shared(crawl, other):
    """A slot with a cap alone is nobody's own: each worker claims from it with its units."""
    fill(crawl, ["a.example"], each=6)
    terms = Terms(concurrency=4)

    assert len(Worker(crawl, terms).claim(2)) == 2
    assert len(Worker(crawl, terms, other).claim(2)) == 2
    assert queue_rows(crawl)["a.example"][0] is None


# Slots in other hands


def test_a_claimed_slot_is_its_claimers_own(crawl, other):
    """Nobody else looks into the queue of a slot that a worker has, until that gives it up."""
    fill(crawl, ["a.example"], each=3)
    holder, heir = Worker(crawl), Worker(crawl, number=other)

    assert len(holder.claim()) == 1
    assert queue_rows(crawl)["a.example"][0] == holder.number
    assert heir.claim() == []
    assert heir.admission.grants == {}
    holder.give_up()
    assert queue_rows(crawl)["a.example"][0] is None
    assert len(heir.claim()) == 1


@pytest.mark.parametrize("whose", ["this crawl's", "another crawl's"])
def test_slots_in_other_hands_do_not_hide_free_ones(connection, crawl, other, whose):
    """One claim finds the few slots that are free behind many that others have."""
    taken = [host(n) for n in range(60)]
    fill(crawl, taken, each=2)
    if whose == "this crawl's":
        holder = Worker(crawl, number=other)
        while holder.claim():
            pass
    else:
        films = Crawl(connection, "films", "cinema")
        for one in taken:
            hold(crawl, films.worker, number_of(crawl, one))
    free = [host(n, "free") for n in range(3)]
    fill(crawl, free, each=2)

    claimed = Worker(crawl).claim()

    assert sorted(hosts_of(claimed)) == free


def test_a_slot_that_is_decided_about_is_looked_at_again_soon(engine):
    """What another transaction has locked is passed over for the moment, not for long."""
    shop = races.Crawl(engine, Shop)
    shop.seed(CreateItem("A", tags=["page"], data={"url": "http://a.example/"}))
    ((number,),) = shop.rows("SELECT id FROM limits WHERE name = 'a.example'")
    one, two = shop.worker(), shop.worker()
    with races.actors(engine, 2) as (deciding, claiming):
        deciding.run(holdings.renew, one, [Use(limit_id=number, terms=SECOND)])
        admission = Admission(slot_terms=lambda _: SECOND)

        def claim(connection):
            engines.hot_path(connection)
            return claims.claim(
                connection,
                crawl_id=shop.id,
                worker_id=two,
                tasks=shop.tasks,
                limit=BATCH,
                admission=admission,
            )

        assert claiming.run(claim) == []
        claiming.commit()
        deciding.commit()

    assert admission.again_in is not None
    assert admission.again_in <= 1.0


class Shop:
    @task(tags=["page"])
    def parse(self, response, item): ...


# Claims whose answer is lost


def test_a_claim_that_is_undone_leaves_no_limits(crawl, other):
    """What only the lost try took is free for anybody; what the worker knows of stays its own."""
    fill(crawl, ["known.example"], each=2)
    worker = Worker(crawl)
    worker.claim()
    known = number_of(crawl, "known.example")
    fill(crawl, ["a.example", "b.example"])
    assert worker.claim(rooms={known: 0}) != []

    claims.unclaim(crawl.connection, [one.token for one in worker.claims], worker.number)
    holdings.keep_only(crawl.connection, worker.number, [known])

    assert held_by(crawl, worker.number) == {"known.example"}
    holders = {one: holder for one, (holder, _) in queue_rows(crawl).items()}
    assert holders == {"known.example": worker.number, "a.example": None, "b.example": None}
    assert sorted(Worker(crawl, number=other).claim()) == ["a.example/0", "b.example/0"]


@pytest.mark.parametrize("terms", [SECOND, Terms(concurrency=1)])
def test_a_claim_whose_answer_was_lost_takes_its_work_and_limits_again(database, terms):
    """The second try claims what the first one did, though that had taken the slot."""
    lost = []

    def lose(connection) -> None:
        connection.connection.dbapi_connection.commit()
        lost.append(connection)
        connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")

    async def run():
        found = tasks.discover(Shop)
        settings = Settings(database_url=database)
        graph = await WorkerGraph.open(settings, crawl="books", spider="spider", tasks=found)
        try:
            await graph.seed([CreateItem("A", tags=["page"], data={"url": "http://a.example/"})])
            budget = ClaimBudget(most=1, slot_terms=lambda _: terms)
            sa.event.listen(graph._transactions.engine.sync_engine, "commit", lose, once=True)
            result = await graph.claim(budget)
            return [one.item.id for one in result.claims], [one.units for one in result.grants]
        finally:
            await graph.close("finished")

    assert asyncio.run(run()) == (["A"], [1])
    assert len(lost) == 1


# Blocked slots


@pytest.mark.parametrize("beside", [0, 2])
def test_a_blocked_slot_is_put_off(crawl, beside):
    """Nobody looks into a blocked slot until its block is over, whatever else there is."""
    fill(crawl, ["blocked.example", *(host(n) for n in range(beside))], each=3)
    answer = SlotFeedback(slot="blocked.example", blocked_for=60.0, blocked_by="http 429")
    holdings.save_feedback(crawl.connection, crawl.worker, [answer])

    assert len(Worker(crawl).claim()) == beside

    _, turn_in = queue_rows(crawl)["blocked.example"]
    assert turn_in == pytest.approx(60.0, abs=1.0)


@pytest.mark.parametrize("terms", [SECOND, Terms(concurrency=8)])
def test_a_block_that_is_lifted_lets_its_slot_be_claimed(crawl, terms):
    """Work of a blocked slot is found as soon as a person lifts the block."""
    fill(crawl, ["a.example"])
    answer = SlotFeedback(slot="a.example", blocked_for=60.0, blocked_by="http 429")
    holdings.save_feedback(crawl.connection, crawl.worker, [answer])
    worker = Worker(crawl, terms)

    assert worker.claim() == []
    assert worker.admission.again_in == pytest.approx(60.0, abs=1.0)
    limits_report.unblock(crawl.connection, "a.example")
    assert worker.claim() == ["a.example/0"]


@pytest.mark.parametrize("number", [2, 40, 400])
def test_blocked_slots_do_not_keep_claims_busy(crawl, number):
    """Many blocked slots are put off within a few claims, which then say when to look again."""
    blocked = [host(n) for n in range(number)]
    fill(crawl, blocked)
    answers = [SlotFeedback(slot=one, blocked_for=60.0, blocked_by="http 429") for one in blocked]
    holdings.save_feedback(crawl.connection, crawl.worker, answers)
    worker = Worker(crawl)

    for _ in range(3):
        assert worker.claim() == []

    assert worker.admission.again_in > 30
    assert worker.admission.grants == {}


def test_a_turn_that_a_clock_set_back_put_far_off_is_mended(crawl):
    """Nobody puts a turn off for so long; what is put off for minutes stays so."""
    fill(crawl, ["a.example", "b.example"])
    worker = Worker(crawl)
    for name, seconds in (("a.example", 3600), ("b.example", 240)):
        moved = (
            "UPDATE queues SET next_at = now() + make_interval(secs => :seconds) "
            "WHERE slot_id = (SELECT id FROM limits WHERE name = :name)"
        )
        crawl.connection.execute(sa.text(moved), {"name": name, "seconds": seconds})
    assert worker.claim() == []

    queues.mend(crawl.connection, crawl.id)

    assert worker.claim() == ["a.example/0"]


def test_a_block_does_not_hide_other_slots(crawl):
    """One claim finds what may go behind many slots that may not."""
    blocked = [host(n) for n in range(60)]
    fill(crawl, blocked)
    answers = [SlotFeedback(slot=one, blocked_for=60.0, blocked_by="http 429") for one in blocked]
    holdings.save_feedback(crawl.connection, crawl.worker, answers)
    fill(crawl, ["free.example"])

    assert Worker(crawl).claim() == ["free.example/0"]


# Limits with names


def test_a_global_limit_holds_over_slots(crawl):
    """Work of all slots shares the global limit; what is exempt does not keep to it."""
    register(
        crawl,
        rate_limit=RateLimit("1/s"),
        parse={"tags": ["page"]},
        exempt={"tags": ["other"], "exempt_global": True},
    )
    fill(crawl, [host(n) for n in range(10)])
    fill(crawl, [host(n, "x") for n in range(10)], tags=["other"])

    claimed = Worker(crawl, FREE).claim()

    assert Counter(one.task for one in _claims(crawl, claimed)) == {"parse": 1, "exempt": 10}


def test_slots_are_taken_only_for_what_is_claimed(crawl):
    """A worker that a named limit lets start little does not take slots for more."""
    register(crawl, rate_limit=RateLimit("1/s"), parse={"tags": ["page"]})
    fill(crawl, [host(n) for n in range(10)])
    worker = Worker(crawl)

    claimed = worker.claim()

    assert len(claimed) == 1
    assert held_by(crawl, worker.number) == {"", *hosts_of(claimed)}


def test_no_slot_is_taken_for_work_of_a_limit_in_other_hands(crawl, other):
    """While others have a task's limit, its work takes no slot from anybody."""
    register(crawl, parse={"tags": ["page"], "rate_limit": "1/s"})
    fill(crawl, [host(n) for n in range(5)])
    hold(crawl, other, number_of(crawl, "shop/parse", "task"))
    worker = Worker(crawl)

    assert worker.claim() == []
    assert held_by(crawl, worker.number) == set()


@pytest.mark.parametrize("hosts", [1, 3])
def test_a_task_in_other_hands_does_not_hide_other_tasks(crawl, other, hosts):
    """However much work of a task whose limit others have stands ahead, the rest is claimed."""
    register(
        crawl,
        slow={"tags": ["slow"], "rate_limit": "1/s"},
        quick={"tags": ["quick"]},
    )
    names = [host(n) for n in range(hosts)]
    fill(crawl, names, each=3 * BATCH, tags=["slow"])
    crawl.do(
        *(
            CreateItem(f"quick{n}", tags=["quick"], data={"url": f"http://{one}/quick"})
            for n, one in enumerate(names)
        )
    )
    hold(crawl, other, number_of(crawl, "shop/slow", "task"))

    assert sorted(Worker(crawl, FREE).claim()) == [f"quick{n}" for n in range(hosts)]


def test_a_task_without_room_does_not_hide_other_tasks(crawl):
    """A worker that has a task's limit and no use for more of it claims other tasks' work."""
    register(
        crawl,
        slow={"tags": ["slow"], "rate_limit": "1/s"},
        quick={"tags": ["quick"]},
    )
    fill(crawl, ["a.example"], each=3 * BATCH, tags=["slow"])
    crawl.do(CreateItem("quick", tags=["quick"], data={"url": "http://a.example/quick"}))
    limit = number_of(crawl, "shop/slow", "task")
    hold(crawl, crawl.worker, limit)

    assert Worker(crawl, FREE).claim(rooms={limit: 0}) == ["quick"]


def test_a_group_limits_its_tasks_together(crawl):
    """Tasks that a group names share its limit."""
    register(
        crawl,
        rate_groups={"shop:*": RateLimit("1/s")},
        one={"tags": ["one"], "name": "shop:one"},
        two={"tags": ["two"], "name": "shop:two"},
        three={"tags": ["three"], "name": "blog:three"},
    )
    fill(crawl, ["a.example"], each=3, tags=["one", "two", "three"])

    claimed = Worker(crawl, FREE)
    claimed.claim()

    counts = Counter(one.task.split(":")[0] for one in claimed.claims)
    assert counts == {"shop": 1, "blog": 3}


# Limits by tag


def kinds_of(crawl) -> dict[str, list[str]]:
    """Return the limits by tag of each item's work, by their tags."""
    rows = crawl.rows(
        "SELECT i.name, ARRAY(SELECT array_to_string(t.tags, '+') FROM tag_limits t "
        "WHERE t.task_id = w.task_id AND t.limit_id = ANY (k.limit_ids) ORDER BY 1) AS tags "
        "FROM work w JOIN items i ON i.id = w.item_id JOIN kinds k ON k.id = w.kind_id"
    )
    return {row.name: row.tags for row in rows}


def by_tag(**rates) -> dict:
    """Return a task with limits by tag; an underscore joins the tags of a set."""
    limited = {tuple(tags.split("_")): rate for tags, rate in rates.items()}
    return {"tags": ["page"], "rate_limit_by_tag": limited}


def test_tags_decide_which_limits_work_keeps_to(crawl):
    """Work keeps to each limit whose tags its item has, all of them."""
    register(crawl, parse=by_tag(slow="1/s", big_slow="1/10s"))
    for name, tags in {"A": [], "B": ["slow"], "C": ["big"], "D": ["big", "slow"]}.items():
        crawl.work(name, tags=["page", *tags])

    assert kinds_of(crawl) == {"A": [], "B": ["slow"], "C": [], "D": ["big+slow", "slow"]}


def test_a_tag_that_comes_or_goes_moves_work(crawl):
    """Adding or removing a tag moves the work of its item to other limits."""
    register(crawl, parse=by_tag(slow="1/s"))
    crawl.work("A")
    crawl.work("B", tags=["page", "slow"])

    crawl.do(AddTag("slow", id="A"), RemoveTag("slow", id="B"))

    assert kinds_of(crawl) == {"A": ["slow"], "B": []}


def test_changed_limits_by_tag_reach_standing_work(crawl):
    """A start with other limits by tag sweeps the items, so that their work keeps to them."""
    register(crawl, parse=by_tag(slow="1/s"))
    crawl.work("A", tags=["page", "slow"])
    crawl.work("B", tags=["page", "big"])

    register(crawl, parse=by_tag(big="1/s"))
    assert kinds_of(crawl) == {"A": [], "B": ["big"]}
    register(crawl, parse={"tags": ["page"]})
    assert kinds_of(crawl) == {"A": [], "B": []}
    assert Worker(crawl, FREE).claim() == ["A", "B"]


def test_work_keeps_to_all_limits_of_its_tags(crawl, other):
    """Work of an item with two limited tags waits for both limits; other work goes on."""
    register(crawl, parse=by_tag(slow="1/s", big="1/s"))
    for name, tags in {"A": ["slow", "big"], "B": ["slow"], "C": ["big"], "D": []}.items():
        crawl.work(name, tags=["page", *tags])
    hold(crawl, other, number_of(crawl, "shop/parse:big", "tags"))

    assert Worker(crawl, FREE).claim() == ["B", "D"]


# Fairness


@pytest.mark.parametrize("terms", [FREE, Terms(concurrency=8), SECOND])
def test_every_slot_gets_its_turn(crawl, terms):
    """A slot with a thousand pages goes round with fifty that have five each."""
    fill(crawl, ["large.example"], each=1000)
    small = [host(n) for n in range(50)]
    fill(crawl, small, each=5)
    worker = Worker(crawl, terms)
    seen: Counter[str] = Counter()
    turns: dict[str, int] = {}

    for turn in range(1, 7):
        # Each round everything that was begun is over, and nothing is in hand.
        hosts = hosts_of(worker.claim())
        worker.give_up()
        seen.update(hosts)
        for one in hosts:
            turns.setdefault(one, turn)

    assert turns.keys() == {"large.example", *small}
    assert max(turns.values()) <= 3
    assert max(seen.values()) - min(seen.values()) <= 1


def test_slots_in_hand_and_others_take_turns(crawl):
    """A worker that goes on with slots in hand looks into new ones as well."""
    fill(crawl, [host(n) for n in range(30)], each=40)
    worker = Worker(crawl)
    rooms: dict[int, int] = {}
    seen: Counter[str] = Counter()

    for _ in range(8):
        # Where rows lie on disk is chance, and says nothing about whose turn it is.
        crawl.connection.exec_driver_sql("CLUSTER queues USING queues_pkey")
        hosts = hosts_of(worker.claim(rooms=rooms))
        seen.update(hosts)
        rooms |= {number_of(crawl, one): 1 for one in hosts}

    assert len(seen) == 30
    assert max(seen.values()) - min(seen.values()) <= 1


def test_slots_without_room_do_not_fill_a_claim(crawl):
    """A hundred slots in hand that have no use for more do not hide one that is new."""
    fill(crawl, [host(n) for n in range(100)], each=2)
    worker = Worker(crawl)
    rooms: dict[int, int] = {}
    while claimed := worker.claim(rooms=rooms):
        rooms |= {number_of(crawl, one): 0 for one in hosts_of(claimed)}
    fill(crawl, ["new.example"])

    assert len(rooms) == 100
    assert worker.claim(rooms=rooms) == ["new.example/0"]


# Suspects


def test_a_suspect_obeys_limits(crawl, other):
    """Work that workers died on is claimed alone, and not while its slot is in other hands."""
    fill(crawl, ["a.example"])
    crawl.die()
    crawl.die()
    number = number_of(crawl, "a.example")
    hold(crawl, other, number)
    worker = Worker(crawl)

    assert worker.claim(1, alone=True) == []
    assert worker.admission.again_in is not None
    holdings.renew(crawl.connection, other, [])
    assert worker.claim(1, alone=True) == ["a.example/0"]
    assert held_by(crawl, worker.number) == {"a.example"}
    assert worker.claims[0].is_alone


def test_a_suspect_does_not_hide_another(crawl, other):
    """A suspect whose slot is in other hands does not hold up one whose slot is free."""
    fill(crawl, ["a.example", "b.example"])
    crawl.die()
    crawl.die()
    hold(crawl, other, number_of(crawl, "a.example"))

    assert Worker(crawl).claim(1, alone=True) == ["b.example/0"]


def test_an_item_for_one_alone_is_claimed_within_limits(crawl):
    """A task that wants its items for itself keeps to limits as others do."""
    register(
        crawl,
        first={"tags": ["page"], "exclusive": "item"},
        second={"tags": ["page"]},
    )
    fill(crawl, ["a.example", "b.example"], each=3)
    worker = Worker(crawl)

    assert sorted(hosts_of(worker.claim())) == ["a.example", "b.example"]
    assert worker.claim(rooms=dict.fromkeys(worker.admission.rooms, MANY)) != []
    pairs = crawl.rows("SELECT item_id FROM work WHERE token IS NOT NULL")
    assert len(pairs) == len(set(pairs))


def _claims(crawl, names):
    """Return the claimed work of items."""
    return crawl.rows(
        "SELECT t.name AS task FROM work w JOIN items i ON i.id = w.item_id "
        "JOIN tasks t ON t.id = w.task_id WHERE w.token IS NOT NULL AND i.name = ANY (:names)",
        names=names,
    )
