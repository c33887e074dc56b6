"""Claims within limits by name and tag, fairness between slots, and suspects."""

from __future__ import annotations

from collections import Counter

import pytest
from support.admissions import (
    BATCH,
    FREE,
    SECOND,
    Worker,
    fill,
    held_by,
    hold,
    host,
    hosts_of,
    number_of,
)
from support.graphs import committed, spider

from scrapy_itemgraph.model import limits, tasks
from scrapy_itemgraph.model.limits import MANY, Terms
from scrapy_itemgraph.model.operations import AddTag, CreateItem, RemoveTag
from scrapy_itemgraph.model.rates import RateLimit
from scrapy_itemgraph.store.limits import holdings
from scrapy_itemgraph.store.registry import tasks as stored_tasks


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


def test_what_may_not_run_beside_other_work_does_not_let_stale_work_go_first(crawl):
    """Work that wants its item for itself goes before what is stale, though others come first."""
    register(
        crawl,
        slow={"tags": ["page"], "rate_limit": "1/s", "nice": -1},
        alone={"tags": ["page"], "exclusive": "item"},
        again={"tags": ["old"], "ttl": "1h"},
    )
    fill(crawl, ["a.example"], tags=["old"])
    crawl.done("a.example/0", task="again")
    crawl.age(hours=2)
    fill(crawl, ["a.example"], each=4)
    crawl.do(RemoveTag("page", id="a.example/0"))

    worker = Worker(crawl, FREE)
    worker.claim(2)

    claimed = [(one.task, one.item.id) for one in worker.claims]
    assert claimed == [("slow", "a.example/1"), ("alone", "a.example/2")]


def test_no_limit_is_taken_for_work_that_may_not_run_beside_other_work(crawl):
    """A limit that only keeps work of items that others have for themselves is left to others."""
    register(
        crawl,
        alone={"tags": ["page"], "exclusive": "item", "nice": -1},
        slow={"tags": ["page"], "rate_limit": "1/s"},
    )
    fill(crawl, ["a.example"], each=3)
    worker = Worker(crawl, FREE)
    worker.claim()

    assert [one.task for one in worker.claims] == ["alone"] * 3
    assert held_by(crawl, worker.number) == set()


def _claims(crawl, names):
    """Return the claimed work of items."""
    return crawl.rows(
        "SELECT t.name AS task FROM work w JOIN items i ON i.id = w.item_id "
        "JOIN tasks t ON t.id = w.task_id WHERE w.token IS NOT NULL AND i.name = ANY (:names)",
        names=names,
    )
