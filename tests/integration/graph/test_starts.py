"""Starts of workers: while their server goes away, and beside others that they are not to join."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from scrapy_itemgraph import task
from scrapy_itemgraph.connections.lease import Lease
from scrapy_itemgraph.exceptions import ConfigurationError
from scrapy_itemgraph.graph import worker_start
from scrapy_itemgraph.graph.worker_graph import WorkerGraph
from scrapy_itemgraph.model.crawl_arguments import CrawlStart
from scrapy_itemgraph.model.tasks import discover
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.settings import Settings
from scrapy_itemgraph.store.registry import processes

if TYPE_CHECKING:
    from collections.abc import Coroutine

pytestmark = pytest.mark.server

STOPPED = sa.text("UPDATE processes SET stopped_at = now(), reason = 'died' WHERE id = :id")


class Books:
    @task(tags=["book"])
    def parse(self, response, item): ...


def opened_and_closed(url: str) -> bool:
    """Start a worker and end it; tell whether it lived in between."""

    async def run() -> bool:
        settings = Settings.of(database_url=url, lease=timedelta(minutes=1))
        graph = await WorkerGraph.open(settings, crawl="s", spider="s", tasks=discover(Books))
        lives = graph.process.lives
        await graph.close("finished")
        return lives

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("module", "name"),
    [(engines, "check_version"), (worker_start, "ensure_schema"), (processes, "renew")],
)
def test_a_start_goes_on_where_the_server_breaks_its_connection(
    database, monkeypatch, module, name
):
    """Whatever it was about: the server has let the worker in, so its address is right."""
    original, broken = getattr(module, name), []

    def breaks_once(connection, *given, **named):
        if not broken:
            broken.append(name)
            connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")
        return original(connection, *given, **named)

    monkeypatch.setattr(module, name, breaks_once)

    assert opened_and_closed(database)
    assert broken == [name]


def test_a_start_goes_on_where_the_server_goes_before_the_first_statement(database, monkeypatch):
    """A connection that was made and lost at once tells as much of its address."""
    original, broken = engines._set_up_transaction, []

    def breaks_once(connection, *given, **named):
        if not broken:
            broken.append(connection)
            connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")
        return original(connection, *given, **named)

    monkeypatch.setattr(engines, "_set_up_transaction", breaks_once)

    assert opened_and_closed(database)
    assert broken


def test_a_worker_that_is_given_up_before_its_first_beat_registers_again(
    database, engine, monkeypatch
):
    """The server was away for longer than the lease, and others looked for the dead first."""
    original, given_up = Lease.begin, []

    def is_late(self, session):
        if not given_up:
            given_up.append(self._own.id)
            with engine.begin() as connection:
                connection.execute(STOPPED, {"id": self._own.id})
        original(self, session)

    monkeypatch.setattr(Lease, "begin", is_late)

    assert opened_and_closed(database)
    with engine.connect() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM workers")) == 2


@pytest.mark.parametrize("host", [None, "elsewhere"])
def test_a_start_is_refused_beside_one_whose_arguments_do_not_all_count(database, engine, host):
    """Of the same process or of another host; beside one that has died it is not."""

    def change(statement: str) -> None:
        with engine.begin() as connection:
            connection.exec_driver_sql(statement)

    def opened(*uncounted: str) -> Coroutine[Any, Any, WorkerGraph]:
        start = CrawlStart("s", {"day": "1"}, uncounted=uncounted)
        settings = Settings.of(database_url=database)
        return WorkerGraph.open(settings, crawl=start, spider="s", tasks=discover(Books))

    async def run() -> str:
        first = await opened("since", "window")
        if host is not None:
            change("UPDATE processes SET host = 'elsewhere'")
        with pytest.raises(ConfigurationError) as refused:
            await opened()
        change("UPDATE processes SET stopped_at = now(), reason = 'died'")
        await (await opened()).close("finished")
        await first.close("finished")
        return str(refused.value)

    error = asyncio.run(run())

    assert "another start of the spider s runs in the same crawl" in error
    assert "do not count: since, window." in error
    assert "ITEMGRAPH_IGNORED_ARGUMENTS = 'since,window'" in error
