"""A worker whose database is on another server: what it gives back, registers anew, and says."""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from support import servers
from support.races import claimed, ended

from scrapy_itemgraph import CreateItem, task
from scrapy_itemgraph.exceptions import DatabaseError
from scrapy_itemgraph.graph.worker_graph import WorkerGraph
from scrapy_itemgraph.model.tasks import discover
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from scrapy_itemgraph.model.work import Claim

SAID = "The database went back: "


class Books:
    @task(tags=["book"])
    def parse(self, response, item): ...


class Memory:
    """What a worker has in memory; a test says which claims it has in hand."""

    def __init__(self) -> None:
        self.claims: list[Claim] = []
        self.has_start: bool | None = None

    def in_hand(self):
        """Return the tokens of the claims in hand."""
        return {claim.token for claim in self.claims}

    def limits(self):
        """Return no limits."""
        return []

    def renumber(self, numbers) -> None:
        """Have no limits to number."""

    def went_back(self, *, has_start: bool) -> None:
        """Note that the database went back."""
        self.has_start = has_start


async def opened(url: str, crawl: str = "books") -> tuple[WorkerGraph, Memory]:
    """Start a worker that has nothing in hand."""
    settings = Settings.of(database_url=url)
    graph = await WorkerGraph.open(settings, crawl=crawl, spider="spider", tasks=discover(Books))
    graph.recovery.memory = memory = Memory()
    return graph, memory


async def seeded(graph: WorkerGraph, *names: str) -> None:
    """Make books that call for work."""
    await graph.commits.seed([CreateItem(name, tags=["book"]) for name in names])


def on_servers(scene: Callable[[str, Callable[[], None], Callable[[], None]], Awaitable[None]]):
    """Run a scene with a server's URL, what copies it, and what starts the copy in its place."""
    with servers.own_postgres() as primary, ExitStack() as stack:
        copies: list[servers.Server] = []

        def copy() -> None:
            copies.append(stack.enter_context(servers.backup(primary)))

        def restore() -> None:
            if not copies:
                primary.stop()
                primary.start()
                return
            primary.kill()
            copies.pop().start()

        asyncio.run(scene(primary.url, copy, restore))


def test_claims_that_are_not_in_hand_are_given_back_and_it_is_said(caplog):
    """A claim whose commit is lost is to be had again; one in hand is still committed."""

    async def scene(url, copy, restore) -> None:
        graph, memory = await opened(url)
        await seeded(graph, "lost", "in hand")
        lost, kept = await claimed(graph, 5)
        names = graph.commits.names_freed
        copy()
        await graph.commits.commit([ended(lost)])
        memory.claims = [kept]
        restore()

        (again,) = await claimed(graph, 5)

        assert again.item.id == lost.item.id
        assert again.token != lost.token
        assert (await graph.commits.commit([ended(kept)])).applied[0].outcome is Outcome.OK
        assert graph.commits.names_freed != names
        assert memory.has_start is True
        await graph.close("finished")

    on_servers(scene)

    assert SAID in caplog.text


def test_a_database_that_is_replaced_on_a_running_server_is_noticed(server_url, database, caplog):
    """A dump that is restored under the database's name needs no restart of its server."""
    name = sa.make_url(database).database

    async def scene() -> None:
        graph, _ = await opened(database)
        await seeded(graph, "lost")
        (lost,) = await claimed(graph, 5)
        servers.alone(server_url, name, f"CREATE DATABASE {name}_copy TEMPLATE {name}")
        await graph.commits.commit([ended(lost)])
        servers.alone(
            server_url,
            name,
            f"BEGIN; ALTER DATABASE {name} RENAME TO {name}_old; "
            f"ALTER DATABASE {name}_copy RENAME TO {name}; COMMIT",
        )

        (again,) = await claimed(graph, 5)

        assert again.item.id == lost.item.id
        await graph.close("finished")

    try:
        asyncio.run(scene())
    finally:
        servers.alone(server_url, name, f"DROP DATABASE IF EXISTS {name}_old")

    assert SAID in caplog.text


def test_a_restart_alone_gives_nothing_back_and_is_no_warning(caplog):
    """Names are forgotten, claims stay, and what was committed is not done again."""
    caplog.set_level(logging.INFO)

    async def scene(url, _, restart) -> None:
        graph, memory = await opened(url)
        await seeded(graph, "done", "in hand")
        done, kept = await claimed(graph, 5)
        await graph.commits.commit([ended(done)])
        memory.claims = [kept]
        names = graph.commits.names_freed
        restart()

        assert await claimed(graph, 5) == []
        assert (await graph.commits.commit([ended(kept)])).applied[0].outcome is Outcome.OK
        assert graph.commits.names_freed != names
        assert memory.has_start is None
        await graph.close("finished")

    on_servers(scene)

    assert SAID not in caplog.text
    assert "nothing that this worker saw committed is missing" in caplog.text


def test_a_worker_that_the_database_does_not_know_is_registered_anew(caplog):
    """Its number may be somebody else's by then; it goes on with another one, and claims."""

    async def scene(url, copy, restore) -> None:
        first, _ = await opened(url)
        await seeded(first, "a")
        copy()
        late, memory = await opened(url)
        restore()
        other, _ = await opened(url)  # it may get the number that the late one had

        (claim,) = await claimed(late, 5)

        assert len({first.worker_id, late.worker_id, other.worker_id}) == 3
        assert memory.has_start is False
        assert (await late.commits.commit([ended(claim)])).applied[0].outcome is Outcome.OK
        assert await late.upkeep.take_over() == 0
        for graph in (first, late, other):
            await graph.close("finished")

    on_servers(scene)

    assert SAID in caplog.text


def test_a_crawl_that_the_database_does_not_know_ends(caplog):
    """Nothing of it is there to go on with: the error says to start it again."""

    async def scene(url, copy, restore) -> None:
        first, _ = await opened(url, "other")
        copy()
        graph, _ = await opened(url)
        restore()

        with pytest.raises(DatabaseError, match="before the crawl books was there"):
            await claimed(graph, 5)

        for one in (first, graph):
            try:
                await one.close("finished")
            except DatabaseError:
                assert one is graph

    on_servers(scene)
    assert "Traceback" not in caplog.text
