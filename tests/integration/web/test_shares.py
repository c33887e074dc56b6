"""What one may have of the server: searches, streams, and connections to the database."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import httpx
import pytest
from support.graphs import Crawl
from support.web_servers import asked

from scrapy_itemgraph.graph.parts.database import Database
from scrapy_itemgraph.web import graphs as web_graphs
from scrapy_itemgraph.web import searches, streams
from scrapy_itemgraph.web.app import create_app
from scrapy_itemgraph.web.graphs import Graphs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

ITEM = "/items/A"
API = "/api/v1/crawls/books"
LOCK = "LOCK TABLE items IN ACCESS EXCLUSIVE MODE"
WAITING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


@pytest.fixture
def graphs(database, engine, monkeypatch) -> Iterator[Graphs]:
    """Yield the graphs of a database with one item; a lock is waited for as long as a test is."""
    monkeypatch.setattr(web_graphs, "LOCK_WAIT", 600.0)
    with engine.begin() as connection:
        Crawl.of(connection).work("A")
    with Graphs.open(database, "books") as one:
        yield one


@pytest.fixture
def bearers(graphs) -> list[dict[str, str]]:
    """Return the headers of two tokens that may read."""
    secrets = [graphs.served.tokens.add(name, "read") for name in ("anna", "grafana")]
    return [{"authorization": f"Bearer {secret}"} for secret in secrets]


def together(app, talk: Callable[[httpx.AsyncClient], Awaitable[None]], holder=None) -> None:
    """Have a conversation with an application, of requests that are under way at once.

    The locks of `holder` end with it, however it ends.
    """

    async def run() -> None:
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            try:
                await talk(client)
            finally:
                if holder is not None:
                    holder.rollback()

    asyncio.run(run())


async def waiting(engine, number: int) -> None:
    """Wait until so many connections wait for a lock."""

    def wait() -> None:
        limit = time.monotonic() + 120
        with engine.connect() as connection:
            while connection.exec_driver_sql(WAITING).scalar_one() < number:
                connection.rollback()  # for another look
                assert time.monotonic() < limit
                time.sleep(0.05)

    await asyncio.get_running_loop().run_in_executor(None, wait)


def test_health_is_told_while_all_connections_and_threads_are_busy(graphs, engine):
    """It has a connection and a thread of its own, so that work is not taken for an outage."""
    app = create_app(graphs)
    with engine.connect() as holder:
        holder.exec_driver_sql(LOCK)

        async def talk(client) -> None:
            asking = [asyncio.create_task(client.get(ITEM)) for _ in range(60)]
            await waiting(engine, web_graphs.CONNECTIONS)
            assert (await client.get("/healthz")).status_code == 200
            holder.rollback()
            await asyncio.gather(*asking)

        together(app, talk, holder)


def test_whoever_asks_for_health_keeps_one_connection_busy(graphs, monkeypatch):
    """A hundred at once share one look at the database, and so does who comes right after."""
    looks = []
    ping = Database.ping
    monkeypatch.setattr(Database, "ping", lambda one: looks.append(one) or ping(one))

    async def talk(client) -> None:
        answers = await asyncio.gather(*(client.get("/healthz") for _ in range(100)))
        assert {one.status_code for one in answers} == {200}

    together(create_app(graphs), talk)
    assert looks == [graphs.health.database]
    assert graphs.health is not graphs.served


def test_two_searches_run_at_once_and_one_of_a_token(graphs, engine, bearers, monkeypatch):
    """A third waits shortly and is refused for now; a token leaves the others room to search."""
    monkeypatch.setattr(searches, "PATIENCE", 0.1)
    more = graphs.served.tokens.add("more", "read")
    third = {"authorization": f"Bearer {more}"}
    first, second = bearers

    with engine.connect() as holder:
        holder.exec_driver_sql(LOCK)

        async def talk(client) -> None:
            async def search(headers, path=f"{API}/search") -> httpx.Response:
                return await client.get(path, params={"q": "$.a", "by": "path"}, headers=headers)

            running = [asyncio.create_task(search(first))]
            await waiting(engine, 1)
            refused = await search(first)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
            running.append(asyncio.create_task(search(second)))
            await waiting(engine, 2)
            for path in (f"{API}/search", "/crawls/books/search"):
                assert (await search(third, path)).status_code == 503
            assert (await client.get("/api/v1/slots", headers=third)).status_code == 200
            monkeypatch.setattr(searches, "PATIENCE", 60.0)
            later = asyncio.create_task(search(third))
            holder.rollback()
            assert (await later).status_code == 200
            await asyncio.gather(*running)

        together(create_app(graphs), talk, holder)


def test_without_tokens_two_searches_run_at_once(graphs, engine, monkeypatch):
    """Who is on this machine has all of the server, and still not all of its connections."""
    monkeypatch.setattr(searches, "PATIENCE", 0.1)
    with engine.connect() as holder:
        holder.exec_driver_sql(LOCK)

        async def talk(client) -> None:
            path = f"{API}/search?q=A&by=part"
            running = [asyncio.create_task(client.get(path)) for _ in range(2)]
            await waiting(engine, 2)
            assert (await client.get(path)).status_code == 503
            holder.rollback()
            assert [(await one).status_code for one in running] == [200, 200]
            assert (await client.get(path)).status_code == 200

        together(create_app(graphs), talk, holder)


def test_a_token_has_its_share_of_the_streams(graphs, bearers, monkeypatch):
    """A quarter of them at most; those of another token, and one more once one has ended, go on."""
    monkeypatch.setattr(streams, "MOST", 4)
    monkeypatch.setattr(streams, "MOST_OF_TOKEN", 1)
    app = create_app(graphs)
    path = f"{API}/events"

    async def run() -> None:
        first, second = bearers
        async with _stream(app, path, first) as one, _stream(app, path, second) as other:
            assert (await one(), await other()) == (200, 200)
            async with _stream(app, path, first) as more:
                assert await more() == 503
        async with _stream(app, path, first) as one:
            assert await one() == 200

    asyncio.run(run())
    assert not app.state.streams._open


def test_the_description_of_the_api_needs_a_token_like_the_api(graphs, bearers):
    """`/api/v1/openapi.json` is for those who have a token, as soon as there is one."""
    app = create_app(graphs)
    path = "/api/v1/openapi.json"

    assert asked(app, "GET", path).status_code == 401
    found = asked(app, "GET", path, headers=bearers[0]).json()
    assert found["info"]["title"] == "scrapy-itemgraph"
    assert path not in found["paths"]
    assert asked(app, "GET", "/healthz").status_code == 200


class _stream:  # noqa: N801 - it is used as a function
    """Asks an application for a stream, until the block ends; gives the status of the answer."""

    def __init__(self, app, path: str, headers: dict[str, str]) -> None:
        self._app = app
        sent = [(b"host", b"localhost")]
        sent += [(name.encode(), value.encode()) for name, value in headers.items()]
        self._scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": sent,
            "client": ("127.0.0.1", 1),
            "server": ("localhost", 80),
        }
        self._status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._gone = asyncio.Event()

    async def __aenter__(self) -> Callable[[], Awaitable[int]]:
        async def receive() -> dict[str, str]:
            await self._gone.wait()
            return {"type": "http.disconnect"}

        async def send(message) -> None:
            if message["type"] == "http.response.start":
                self._status.set_result(message["status"])

        self._task = asyncio.create_task(self._app(self._scope, receive, send))

        async def status() -> int:
            return await self._status

        return status

    async def __aexit__(self, *_: object) -> None:
        self._gone.set()
        await self._task
