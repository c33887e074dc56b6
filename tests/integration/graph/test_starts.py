"""A server that goes away while a worker starts: the start goes on when it is back."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
import sqlalchemy as sa

from scrapy_itemgraph import task
from scrapy_itemgraph.connections.lease import Lease
from scrapy_itemgraph.graph import worker_start
from scrapy_itemgraph.graph.worker_graph import WorkerGraph
from scrapy_itemgraph.model.tasks import discover
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.settings import Settings
from scrapy_itemgraph.store.registry import processes

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
