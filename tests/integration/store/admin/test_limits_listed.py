"""How limits are listed, what a run makes of them, and why work does not go now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa
from support.graphs import LEASE, SLOT, Crawl
from support.limits_set import HOUR, a_limit, declare, film_crawl, hold, shown, used

from scrapy_itemgraph.model import limits
from scrapy_itemgraph.model.crawl_waits import sentences
from scrapy_itemgraph.model.limits import SlotFeedback, Terms, Use
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store.admin import (
    explain,
    limit_changes,
    limit_reports,
    queue_reports,
    status,
)
from scrapy_itemgraph.store.limits import holdings
from scrapy_itemgraph.store.registry import runs, workers
from scrapy_itemgraph.store.worklist import claims as stored_claims


def why(crawl, name="A", task="parse"):
    """Return the explanation of an item's task."""
    (found,) = explain.explain(crawl.connection, crawl.id, crawl.item_id(name), task)
    return found


def remaining(crawl):
    """Return what is left of a crawl."""
    kinds = stored_claims.open_kinds(crawl.connection, crawl.id, 0, crawl.registration.tasks)
    until = crawl.connection.scalar(engine.NOW)
    numbers = [kind.id for kind in kinds]
    return runs.remaining(crawl.connection, crawl.id, kinds=numbers, until=until)


# What is listed


def test_slots_are_listed_with_their_work(connection):
    """A slot with work is listed, the one with the most first, over all crawls or for one."""
    crawl = Crawl.of(connection)
    crawl.work("A")
    crawl.work("B", data={"url": "http://b.example/"})
    films = film_crawl(crawl)

    everywhere = limit_reports.listed(connection)
    of_books = limit_reports.listed(connection, crawl_id=crawl.id)
    first = limit_reports.listed(connection, limit=1)

    assert [(one.name, one.work) for one in everywhere] == [(SLOT, 2), ("b.example", 1)]
    assert [(one.name, one.work) for one in of_books] == [(SLOT, 1), ("b.example", 1)]
    assert [one.name for one in first] == [SLOT]
    assert [one.name for one in limit_reports.listed(connection, crawl_id=films.id)] == [SLOT]


def test_work_that_cannot_be_claimed_by_itself_is_not_counted(connection):
    """Work that is claimed, or waits for its time, is not work that waits in a slot."""
    crawl = Crawl.of(connection)
    crawl.claimed("A")
    crawl.work("B", not_before=datetime.now(UTC) + HOUR)

    assert shown(connection) is None


def test_holders_and_those_who_wait_are_listed(connection):
    """Who has a slot stands beside who asks for it."""
    crawl = Crawl.of(connection)
    other = crawl.new_worker()
    hold(crawl)
    hold(crawl, worker=other)

    found = shown(connection)

    assert (found.gap, found.work) == (30.0, 0)
    ((holder,), (waiting,)) = (found.holders, found.waiting)
    assert (holder.worker, holder.crawl, holder.host, holder.units) == (
        crawl.worker,
        "books",
        "here",
        1,
    )
    assert (waiting.worker, waiting.units) == (other, 0)


def test_limits_with_names_are_listed_before_slots(connection):
    """Global, group, task and tag limits have the names that `set-limit` takes."""
    crawl = Crawl.of(connection)
    crawl.work("A")
    declare(
        crawl,
        a_limit(limits.GLOBAL, "", 0.1, 8),
        a_limit(limits.GROUP, "par*", 1.0),
        a_limit(),
        a_limit(limits.TAGS, "shop/parse:slow", 60.0, tags=("slow",)),
    )

    found = limit_reports.listed(connection)

    assert [(one.name, one.gap, one.concurrency) for one in found] == [
        ("global", 0.1, 8),
        ("group:par*", 1.0, None),
        ("tags:shop/parse:slow", 60.0, None),
        ("task:shop/parse", 10.0, None),
        (SLOT, 0.0, None),
    ]


def test_a_limit_that_nothing_declares_any_more_is_not_listed(connection):
    """What an earlier version of the code declared is gone from the list, unless it was set."""
    crawl = Crawl.of(connection)
    declare(crawl, a_limit(), a_limit(limits.GROUP, "par*", 1.0))
    declare(crawl, a_limit(limits.GROUP, "par*", 1.0))

    assert shown(connection, "task:shop/parse") is None
    limit_changes.set_limit(connection, "task:shop/parse", "1/s")
    assert shown(connection, "task:shop/parse").set_gap == 1.0


def test_a_slot_that_reads_like_another_limit_has_a_prefix(connection):
    """A slot that is named as a limit can be told from it, and be named."""
    crawl = Crawl.of(connection)
    for name in ("global", "task:shop/parse"):
        crawl.work(name, data={"url": "http://a.example/", "download_slot": name})

    names = [one.name for one in limit_reports.listed(connection)]
    changed = limit_changes.set_delay(connection, "slot:global", 2)

    assert names == ["slot:global", "slot:task:shop/parse"]
    assert not changed.is_new
    assert changed.limit.name == "slot:global"


# What a run makes of it


def test_a_run_leaves_what_a_person_blocked(connection):
    """Work of a slot that a person blocked is not waited for, in whatever state it is."""
    crawl = Crawl.of(connection)
    crawl.work("A")
    crawl.end(crawl.claimed("B"), outcome=Outcome.RETRY, delay=HOUR)
    crawl.end(crawl.claimed("C"), outcome=Outcome.RETRY, delay=timedelta(seconds=-1))
    crawl.work("D")
    crawl.connection.execute(
        sa.text(
            f"UPDATE work SET deaths = 2 WHERE worker_id IS NULL AND item_id = {crawl.item_id('D')}"
        )
    )
    assert remaining(crawl).claimable
    assert remaining(crawl).next_retry is not None

    limit_changes.block(connection, SLOT, for_=HOUR)

    assert remaining(crawl).is_over

    crawl.work("E", data={"url": "http://b.example/"})

    assert remaining(crawl).claimable


def test_a_run_waits_for_what_a_site_blocked(connection):
    """A block that a site asked for passes: the run goes on then."""
    crawl = Crawl.of(connection)
    crawl.work("A")

    holdings.save_feedback(
        connection, crawl.worker, [SlotFeedback(slot=SLOT, blocked_for=9.0, blocked_by="503")]
    )

    assert remaining(crawl).claimable
    assert status.summary(connection, crawl.id).waiting


def test_a_summary_counts_blocked_work_apart(connection):
    """Work of a slot that a person blocked is not said to be waiting, and is counted once."""
    crawl = Crawl.of(connection, parse={"tags": ["page"]}, price={"tags": ["page"]})
    crawl.work("A")
    crawl.work("B")
    crawl.work("C", data={"url": "http://b.example/"})
    crawl.connection.execute(
        sa.text("UPDATE work SET deaths = 2 WHERE item_id = :item"), {"item": crawl.item_id("B")}
    )
    crawl.connection.execute(sa.text("UPDATE tasks SET is_enabled = false WHERE name = 'price'"))
    limit_changes.block(connection, SLOT, for_=HOUR)

    summary = status.summary(connection, crawl.id)

    assert (summary.waiting, summary.disabled, summary.blocked) == (1, 3, 2)
    assert summary.lines()[-1] == (
        "left: 1 waiting; 3 of disabled tasks (scrapy itemgraph enable TASK); "
        "2 of blocked slots (scrapy itemgraph unblock SLOT)"
    )

    limit_changes.block(connection, "b.example", for_=HOUR)

    assert status.summary(connection, crawl.id).waiting == 0


# Why work does not go now


def test_a_blocked_slot_is_explained(connection):
    """Blocked work says until when, by whom, and what would end it."""
    crawl = Crawl.of(connection)
    crawl.work("A")
    limit_changes.block(connection, SLOT, until=datetime(2100, 1, 1, tzinfo=UTC))

    blocked = why(crawl)
    connection.execute(sa.text("UPDATE limits SET blocked_by = '429'"))

    assert not blocked.is_eligible
    assert blocked.reasons == (
        (
            "the slot 'a.example' is blocked until 2100-01-01 00:00:00 UTC by a person; "
            "scrapy itemgraph unblock a.example"
        ),
    )
    assert "by the site (429)" in why(crawl).reasons[0]


def test_a_slot_of_another_crawl_is_explained(connection):
    """Work waits for a worker of another crawl that has its slot, and not for one of its own."""
    crawl = Crawl.of(connection)
    crawl.work("A")
    films = film_crawl(crawl)
    hold(crawl)

    of_films, own = why(films, "F"), why(crawl)

    assert of_films.reasons == (
        (
            f"worker {crawl.worker} of the crawl 'books' (process 1 on here) has the slot "
            "'a.example' for itself, until it gives way or has no work of it"
        ),
    )
    assert own.is_eligible
    assert own.reasons[1].endswith(
        "has the slot 'a.example' for itself, and is the one to start it"
    )


def test_who_has_a_website_and_is_silent_is_explained(connection):
    """A worker whose event loop hangs keeps its slots until its lease is over: that is said."""
    crawl = Crawl.of(connection)
    crawl.work("A")
    films = film_crawl(crawl)
    hold(crawl)
    hold(films)
    connection.execute(
        sa.text(
            "UPDATE processes SET seen_at = clock_timestamp() - interval '40 seconds', "
            "lease_until = clock_timestamp() + interval '25.5 seconds' WHERE id = :worker"
        ),
        {"worker": crawl.worker},
    )
    connection.execute(
        sa.text(
            "UPDATE crawls SET state = 'active', project = 'p', queued_at = now(), concurrency = 1 "
            "WHERE name = 'films'"
        )
    )

    (reason,) = why(films, "F").reasons
    said = list(sentences(queue_reports.waits(connection, "films")))

    who = f"worker {crawl.worker} of the crawl 'books' (process 1 on here)"
    assert reason.startswith(f"{who} has the slot 'a.example' for itself, and gave no sign of life")
    assert reason.endswith("it is taken for dead in 25s if it gives none")
    assert any(
        one.startswith(f"it waits for the slot 'a.example', which {who} has") for one in said
    )


def test_the_next_start_is_explained(connection):
    """Work says how long the delay of its slot still takes."""
    crawl = Crawl.of(connection)
    crawl.work("A")
    hold(crawl, terms=Terms(gap=600.0))
    used(crawl, ago=300.0)

    (reason,) = why(crawl).reasons

    assert reason in {
        f"the next start in the slot 'a.example' is due in {left}: one every 10m"
        for left in ("5m", "4m 59s", "4m 58s")
    }


def test_limits_that_others_use_up_are_explained(connection):
    """Work says which limit of its task, or of its tags, is held or used up by others."""
    crawl = Crawl.of(connection)
    crawl.work("A", tags=("page", "slow"))
    films = film_crawl(crawl)
    of_tags = a_limit(limits.TAGS, "shop/parse:slow", None, 2, tags=("slow",))
    numbers = declare(crawl, a_limit(), of_tags)
    task, tags = (numbers["task", "shop/parse"], numbers["tags", "shop/parse:slow"])
    holdings.acquire(
        connection,
        films.worker,
        [
            Use(limit_id=task, declared=Terms(gap=10.0)),
            Use(limit_id=tags, declared=Terms(concurrency=2), wants=2),
        ],
    )

    found = why(crawl)

    assert not found.is_eligible
    who = f"worker {films.worker} of the crawl 'films' (process 1 on here)"
    until = "until it gives way or has no work of it"
    assert found.reasons == (
        f"the limit 'tags:shop/parse:slow' is used up: 2 at once, by {who}: 2",
        f"{who} has the limit 'task:shop/parse' for itself, {until}",
    )


def test_what_a_dead_worker_had_is_explained(connection):
    """A slot whose holder died says when it is free."""
    crawl = Crawl.of(connection)
    crawl.work("A")
    dead = crawl.new_worker(LEASE)
    hold(crawl, terms=Terms(gap=600.0), worker=dead)
    holdings.outlive(connection, [dead])
    workers.stop(connection, dead, "died")

    (reason,) = why(crawl).reasons

    assert "is free in" in reason
    assert reason.endswith("died, and its requests may still run")
    ((holder,), _) = (shown(connection).holders, None)
    assert holder.free_at is not None
