"""Plain callbacks as tasks, registered by whoever meets them first; and the runs of a crawl."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from support.races import Crawl, ended, watched

from scrapy_itemgraph import AddTag, CreateItem, Expire, SetTTL, task
from scrapy_itemgraph.exceptions import ConfigurationError
from scrapy_itemgraph.graph import WorkerGraph
from scrapy_itemgraph.model import tasks
from scrapy_itemgraph.model.request_operations import EnqueueRequest
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.settings import Settings
from scrapy_itemgraph.store.registry import runs, workers
from scrapy_itemgraph.store.registry import tasks as stored_tasks

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.server

HOUR = timedelta(hours=1)


class Nothing:
    """A spider of plain callbacks."""


class Parsing:
    """The same spider once `parse` is a task."""

    @task(tags=["page"])
    def parse(self, response, item): ...


@pytest.fixture
def crawl(engine) -> Iterator[Crawl]:
    """Make a crawl without tasks, and check its worklist at the end."""
    with watched(engine, Nothing) as crawl:
        yield crawl


def meet(
    connection: Any, crawl: Crawl, *names: str, spider: str = "spider", **options: Any
) -> dict[int, Any]:
    """Register callbacks in the caller's transaction."""
    given = [tasks.of_callback(name, options) for name in names]
    return stored_tasks.register_callbacks(connection, crawl.id, spider, given, None)


def met(crawl: Crawl, *names: str, spider: str = "spider", **options: Any) -> dict[int, Any]:
    """Register callbacks and commit."""
    with crawl.engine.begin() as connection:
        return meet(connection, crawl, *names, spider=spider, **options)


def start(crawl: Crawl, spider: type, **versions: str) -> Any:
    """Register a spider's tasks as a start does, with versions of ITEMGRAPH_CALLBACKS."""

    def of_callback(name: str) -> tasks.Task:
        options = {"version": versions[name]} if name in versions else {}
        return tasks.of_callback(name, options)

    with crawl.engine.begin() as connection:
        registration = stored_tasks.register_tasks(
            connection, crawl.id, "spider", tasks.discover(spider), None, of_callback=of_callback
        )
    crawl.sweep()
    return registration


def request(name: str, callback: str = "parse") -> EnqueueRequest:
    """Return the operation for a request of a callback."""
    return EnqueueRequest(
        id=name,
        tags=(tasks.callback_tag(callback),),
        data={"url": f"http://here.example/{name}", "request": {"callback": callback}},
    )


def names(registered: dict[int, Any]) -> list[str]:
    """Return the names of registered callbacks."""
    return sorted(one.name for one in registered.values())


# Meeting callbacks


def test_two_workers_that_meet_a_callback_at_once_register_it_once(crawl, pair):
    """The second waits for the first, and works by the same number and definition."""
    one, other = pair

    first = one.run(meet, crawl, "parse", "first")
    answer = other.start(meet, crawl, "parse", "second")
    other.until_blocked()
    one.commit()
    second = answer.result()
    other.commit()

    assert names(first) == ["first", "parse"]
    assert names(second) == ["first", "parse", "second"]
    assert first.items() <= second.items()
    assert len(crawl.rows("SELECT FROM tasks WHERE name = 'parse'")) == 1


def test_what_was_registered_before_stays(crawl):
    """A worker that meets a callback does not change what it means for the others."""
    before = met(crawl, "parse")

    after = met(crawl, "parse", version="2")

    assert after == before
    assert crawl.rows("SELECT version FROM tasks") == [("1",)]


def test_requests_enqueued_with_their_callback_are_work_at_once(crawl):
    """No sweep is needed for a callback that is registered before its first request."""
    crawl.tasks = met(crawl, "parse")

    crawl.seed(request("A"))

    assert crawl.outstanding() == [("A", "parse", False)]
    assert crawl.rows("SELECT FROM sweeps") == []
    assert [claim.item.id for claim in crawl.claimed(crawl.worker())] == ["A"]


def test_a_worker_claims_only_callbacks_that_it_knows(crawl):
    """What another worker met is claimed once `known_callbacks` was asked."""
    known = met(crawl, "parse")
    met(crawl, "later")
    crawl.seed(request("A", "later"))
    worker = crawl.worker()

    before = crawl.claimed(worker, tasks=known)
    with crawl.engine.begin() as connection:
        learnt = stored_tasks.known_callbacks(connection, crawl.id, "spider")
    after = crawl.claimed(worker, tasks=learnt)

    assert before == []
    assert [claim.item.id for claim in after] == ["A"]


def test_meeting_a_callback_waits_for_commits(crawl, pair):
    """A commit under way, and one that comes later, each see one state of the tasks."""
    one, other = pair
    met(crawl, "parse")

    one.run(lambda connection: crawl.operate(connection, request("A")))
    answer = other.start(meet, crawl, "more")
    other.until_blocked()
    one.commit()

    assert names(answer.result()) == ["more", "parse"]
    other.commit()


# From start to start


def test_a_start_keeps_the_callbacks_that_have_had_requests(crawl):
    """A spider whose code does not show its callbacks loses none of their work."""
    met(crawl, "parse")
    crawl.seed(request("A"))

    registration = start(crawl, Nothing)

    assert registration.callbacks == {"parse"}
    assert registration.vanished == ()
    assert crawl.outstanding() == [("A", "parse", False)]


def test_a_start_with_another_version_makes_results_stale(crawl):
    """ITEMGRAPH_CALLBACKS is what counts at a start."""
    crawl.tasks = met(crawl, "parse")
    crawl.seed(request("A"))
    worker = crawl.worker()
    (claim,) = crawl.claimed(worker)
    with crawl.engine.begin() as connection:
        crawl.apply(connection, ended(claim), worker=worker)

    same = start(crawl, Nothing)
    before = crawl.outstanding()
    bumped = start(crawl, Nothing, parse="2")

    assert same.changed == ()
    assert before == []
    assert bumped.changed == ("parse",)
    assert crawl.outstanding() == [("A", "parse", False)]


def test_a_callback_that_becomes_a_task_leaves_its_requests_alone(crawl):
    """What waits for the callback stays work, of a task of its own, and is not the new task's."""
    met(crawl, "parse")
    crawl.seed(request("A"))

    registration = start(crawl, Parsing)
    crawl.seed(CreateItem("B", tags=["page"]))

    assert registration.callbacks == {"callback.parse"}
    crawl.sweep()
    assert crawl.outstanding() == [("A", "callback.parse", False), ("B", "parse", False)]


@pytest.mark.parametrize("operations", [(), (SetTTL(HOUR),), (Expire(),)])
def test_what_runs_while_its_callback_becomes_a_task_completes_what_it_ran(crawl, operations):
    """An old process ends its request of the callback; the new task has no result of it."""
    crawl.tasks = met(crawl, "parse")
    crawl.seed(request("A"))
    worker = crawl.worker()
    (claim,) = crawl.claimed(worker)

    start(crawl, Parsing)
    with crawl.engine.begin() as connection:
        crawl.apply(connection, ended(claim, *operations), worker=worker)
    crawl.sweep()

    is_expired = Expire() in operations
    assert crawl.outstanding() == [("A", "callback.parse", False)] * is_expired
    assert crawl.rows("SELECT t.name FROM results r JOIN tasks t ON t.id = r.task_id") == [
        ("callback.parse",)
    ]


def test_a_task_that_becomes_a_callback_again_gets_its_requests_back(crawl):
    """What waited for the callback is claimed as before when the task is gone again."""
    met(crawl, "parse")
    crawl.seed(request("A"))
    start(crawl, Parsing)
    start(crawl, Nothing)

    crawl.tasks = met(crawl, "callback.parse")
    crawl.sweep()

    assert crawl.outstanding() == [("A", "callback.parse", False)]
    assert [claim.item.id for claim in crawl.claimed(crawl.worker())] == ["A"]


def test_a_callback_may_have_a_tag_of_a_task(crawl):
    """A request that a callback tags is work of a task too."""
    start(crawl, Parsing)
    met(crawl, "more")
    crawl.seed(request("A", "more"), AddTag("page", id="A"))

    assert crawl.outstanding() == [("A", "more", False), ("A", "parse", False)]


# Spiders that share a crawl


def test_requests_of_another_spider_are_refused(crawl):
    """Their callbacks are methods of that spider, so a crawl has those of one spider only."""
    met(crawl, "parse")

    with pytest.raises(ConfigurationError, match=r"of the spider 'spider'.*ITEMGRAPH_CRAWL"):
        met(crawl, "other", spider="stranger")
    with (
        pytest.raises(ConfigurationError, match=r"of the spider 'spider'.*restart"),
        crawl.engine.begin() as connection,
    ):
        stored_tasks.register_tasks(connection, crawl.id, "stranger", {}, None)

    assert crawl.rows("SELECT name, spider FROM tasks") == [("parse", "spider")]


def test_a_crawl_of_another_spiders_tasks_takes_requests(crawl):
    """Tasks may be of several spiders; only their names must not meet."""
    start(crawl, Parsing)

    assert names(met(crawl, "more", spider="stranger")) == ["more"]
    with pytest.raises(ConfigurationError, match="the callback parse has the name of a task"):
        met(crawl, "parse", spider="stranger")


# Runs


def join(
    connection: Any, crawl: Crawl, lease: timedelta = HOUR, *, in_start: bool = False
) -> tuple[int, int]:
    """Join the crawl's run and register a worker, as a start does; it is through with `start()`."""
    engines.hot_path(connection)
    run = runs.join(connection, crawl.id).number
    worker = workers.register(
        connection, crawl.id, spider="spider", host="here", process_id=1, job=None, lease=lease
    )
    if not in_start:
        workers.mark_started(connection, worker.id)
    return run, worker.id


def joined(crawl: Crawl, **options: Any) -> tuple[int, int]:
    """Join and commit."""
    with crawl.engine.begin() as connection:
        return join(connection, crawl, **options)


def finish(crawl: Crawl, run: int) -> None:
    """Finish a run and commit."""
    with crawl.engine.begin() as connection:
        runs.finish(connection, crawl.id, run)


def stop(crawl: Crawl, worker: int) -> None:
    """Let a worker end in good order."""
    with crawl.engine.begin() as connection:
        workers.stop(connection, worker, "finished")


def test_two_starts_at_once_make_one_run(crawl, pair):
    """The second waits for the first to have registered, and joins its run."""
    one, other = pair

    first, _ = one.run(join, crawl)
    answer = other.start(join, crawl)
    other.until_blocked()
    one.commit()
    second, _ = answer.result()
    other.commit()

    assert first == second


def test_a_start_after_the_end_begins_a_run(crawl):
    """Once a run is finished the next start is another one, later than it."""
    first, worker = joined(crawl)
    finish(crawl, first)
    stop(crawl, worker)

    second, _ = joined(crawl)

    assert second > first


def leave(connection: Any, crawl: Crawl, run: int, worker: int) -> None:
    """Let a worker end in good order, and leave its run."""
    workers.stop(connection, worker, "shutdown")
    runs.leave(connection, crawl.id, run, reason="shutdown", error=None)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_run_that_one_leaves_as_another_joins_goes_on(crawl, pair, is_first):
    """Whichever comes first: the run has not ended, for a worker of it lives."""
    met(crawl, "parse")
    run, worker = joined(crawl)
    crawl.seed(request("A"))
    one, other = pair
    acts = [(leave, crawl, run, worker), (join, crawl)]
    first, second = acts if is_first else acts[::-1]

    one.run(*first)
    answer = other.start(*second)
    other.until_blocked()
    one.commit()
    answer.result()
    other.commit()

    assert crawl.rows("SELECT number, ended_at, reason FROM runs") == [(run, None, None)]


def test_a_start_while_work_is_left_goes_on_with_the_run(crawl):
    """A crawl that was stopped or killed before its end is the same run."""
    met(crawl, "parse")
    first, worker = joined(crawl)
    crawl.seed(request("A"))
    stop(crawl, worker)

    second, _ = joined(crawl)

    assert second == first


def test_a_start_beside_a_living_worker_joins_its_run(crawl):
    """Though nothing is left to do: the other has yet to find that."""
    first, _ = joined(crawl)

    second, _ = joined(crawl)

    assert second == first


@pytest.mark.parametrize("how", ["stopped", "dead"])
def test_a_start_with_nothing_left_begins_a_run(crawl, how):
    """A worker that ended before it could say that all is done does not keep its run open."""
    first, worker = joined(crawl)
    if how == "stopped":
        stop(crawl, worker)
    else:
        crawl.expire_lease(worker)

    second, _ = joined(crawl)

    assert second > first


def test_who_finishes_an_old_run_finishes_no_other(crawl):
    """A worker that was cut off and comes back does not end the run of those who came later."""
    old, worker = joined(crawl)
    stop(crawl, worker)
    new, _ = joined(crawl)
    assert new > old

    finish(crawl, old)
    joining, _ = joined(crawl)
    finish(crawl, new)

    assert joining == new
    assert crawl.rows("SELECT number, is_finished FROM runs ORDER BY 1") == [
        (old, True),
        (new, True),
    ]


def test_a_run_that_another_worker_finished_is_over_for_a_late_joiner(crawl):
    """Who starts when it is finished begins another run, also beside one that is about to end."""
    first, _ = joined(crawl)
    finish(crawl, first)

    second, _ = joined(crawl)

    assert second > first


def test_a_run_is_not_over_while_a_worker_is_in_start(crawl):
    """Who has nothing left does not finish a run that another one still adds to."""
    run, _ = joined(crawl)
    joined(crawl, in_start=True)

    finish(crawl, run)

    assert joined(crawl)[0] == run


def test_a_run_whose_start_was_interrupted_goes_on(crawl):
    """Nothing is left of it, but its start() has not said all yet."""
    run, worker = joined(crawl, in_start=True)
    stop(crawl, worker)

    assert joined(crawl)[0] == run


def test_a_worker_leaves_callbacks_to_newer_code(crawl):
    """A callback that another worker registers, and this one's spider lacks, it does not claim."""

    async def run() -> tuple[bool, list[str]]:
        graph = await WorkerGraph.open(
            Settings.of(database_url=crawl.engine.url.render_as_string(hide_password=False)),
            crawl="books",
            spider="spider",
            tasks={},
            has_callback=lambda name: name == "parse",
        )
        met(crawl, "parse", "parse_new")
        has_new = await graph.callbacks.learn()
        names = [one.name for one in graph.callbacks.tasks.values()]
        await graph.close("finished")
        return has_new, names

    assert asyncio.run(run()) == (True, ["parse"])


def test_a_run_is_not_over_while_a_worker_has_claims(crawl):
    """Newer code may have claims of callbacks that an older worker does not count."""
    run, worker = joined(crawl)
    crawl.tasks = met(crawl, "parse")
    crawl.seed(request("A"))
    crawl.claimed(worker)

    finish(crawl, run)

    assert joined(crawl)[0] == run
