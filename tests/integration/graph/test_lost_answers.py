"""Commits and claims whose answer is lost on the way: each is done once, and known to be done."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
import sqlalchemy as sa
from support.races import claimed, ended

from scrapy_itemgraph import task
from scrapy_itemgraph.graph.worker_graph import WorkerGraph
from scrapy_itemgraph.model.operations import (
    CreateAlias,
    CreateItem,
    DeleteAlias,
    DeleteItem,
    MergeItem,
    RenameItem,
    UpdateData,
)
from scrapy_itemgraph.model.tasks import discover
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.settings import Settings
from scrapy_itemgraph.store import attempts, lost_commit_answers

pytestmark = pytest.mark.server

HERE = "http://here.example/"


class Books:
    @task(tags=["book"])
    def parse(self, response, item): ...


def book(name: str) -> CreateItem:
    """Return a seed that calls for work in the one queue."""
    return CreateItem(name, tags=["book"], data={"url": HERE + name})


def count_up(old: dict) -> dict:
    """Count how often an update was applied."""
    return {"count": old.get("count", 0) + 1}


class Cutter:
    """A proxy in front of the server's socket that can cut a connection at its COMMIT."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.armed: str | None = None
        self.cuts = 0
        self.serving: set[asyncio.Task] = set()

    async def serve(self, reader, writer) -> None:
        self.serving.add(asyncio.current_task())
        if self.host.startswith("/"):
            socket = f"{self.host}/.s.PGSQL.{self.port}"
            up_reader, up_writer = await asyncio.open_unix_connection(socket)
        else:
            up_reader, up_writer = await asyncio.open_connection(self.host, self.port)
        state = {"cutting": False}

        async def forward() -> None:
            while data := await reader.read(65536):
                if b"COMMIT\0" in data and self.armed:
                    armed, self.armed = self.armed, None
                    self.cuts += 1
                    if armed == "before":
                        break
                    state["cutting"] = True
                up_writer.write(data)
                await up_writer.drain()
            if not state["cutting"]:
                up_writer.close()
                writer.close()

        async def back() -> None:
            while data := await up_reader.read(65536):
                if state["cutting"]:
                    break
                writer.write(data)
                await writer.drain()
            writer.close()
            up_writer.close()

        await asyncio.gather(forward(), back(), return_exceptions=True)


@asynccontextmanager
async def cut_off(engine: sa.Engine, directory):
    """Open a crawl's graph through a proxy that cuts."""
    with engine.connect() as probe:
        info = probe.connection.driver_connection.info
        upstream = info.host, info.port
    cutter = Cutter(*upstream)
    server = await asyncio.start_unix_server(cutter.serve, directory / ".s.PGSQL.5432")
    through = engine.url.set(host=None, port=None)
    through = through.update_query_dict({"host": str(directory), "port": "5432"})
    settings = Settings.of(database_url=through.render_as_string(False))
    graph = await WorkerGraph.open(settings, crawl="books", spider="spider", tasks=discover(Books))
    try:
        yield graph, cutter
    finally:
        await graph.close("finished")
        server.close()
        await asyncio.wait(cutter.serving)


@pytest.mark.parametrize("cured", [True, False])
@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_commit_whose_answer_was_lost_is_done_once_and_said_to_be_done(
    engine, tmp_path, monkeypatch, cut, cured
):
    """Asked again, a commit that went through is known by what is on record of its claim."""
    if not cured:
        monkeypatch.setattr(attempts, "recorded", lambda *_: {})

    async def run():
        async with cut_off(engine, tmp_path) as (graph, cutter):
            await graph.commits.seed([book("A")])
            (claim,) = await claimed(graph, 1)
            cutter.armed = cut
            (applied,) = (await graph.commits.commit([ended(claim, UpdateData(count_up))])).applied
            return applied, cutter.cuts

    applied, cuts = asyncio.run(run())

    assert cuts == 1
    assert applied.outcome is (None if cut == "after" and not cured else Outcome.OK)
    with engine.connect() as connection:
        found = connection.execute(sa.text("SELECT data->>'count', outcome FROM items, attempts"))
        assert found.all() == [("1", "ok")]


def test_a_claim_whose_answer_was_lost_is_not_lost(engine, tmp_path):
    """What a claim took before its answer was lost is claimed by nobody, or by the next answer."""

    async def run():
        async with cut_off(engine, tmp_path) as (graph, cutter):
            await graph.commits.seed([book("A"), book("B")])
            cutter.armed = "after"
            claims = await claimed(graph, 1)
            claims += await claimed(graph, 2)
            return sorted(one.item.id for one in claims), cutter.cuts

    assert asyncio.run(run()) == (["A", "B"], 1)


@pytest.mark.parametrize("cured", [True, False])
@pytest.mark.parametrize("cut", ["before", "after"])
def test_what_no_claim_fences_is_done_once_too(engine, tmp_path, monkeypatch, cut, cured):
    """Asked again, a commit of start() or of seeds that went through is known by its token."""
    if not cured:
        monkeypatch.setattr(lost_commit_answers, "take", lambda *_: True)

    async def run():
        async with cut_off(engine, tmp_path) as (graph, cutter):
            await graph.commits.seed([book("A")])
            cutter.armed = cut
            await graph.commits.seed([UpdateData(count_up, id="A")])
            return cutter.cuts

    assert asyncio.run(run()) == 1

    with engine.connect() as connection:
        counted = connection.scalar(sa.text("SELECT data->>'count' FROM items"))
    assert counted == ("2" if cut == "after" and not cured else "1")


TAKE_AWAY = sa.text("""
    UPDATE work SET token = NULL, worker_id = NULL, claimed_at = NULL
    WHERE item_id = (SELECT id FROM items WHERE name = :name)
""")
GONE = {
    "deleted": [DeleteItem()],
    "renamed": [RenameItem("B")],
    "renamed for good": [RenameItem("B"), DeleteAlias("A")],
    "merged": [MergeItem("OTHER")],
    "merged for good": [MergeItem("OTHER"), DeleteAlias("A")],
    "deleted, its name given away": [DeleteItem(), CreateAlias("A", to="OTHER")],
}


@pytest.mark.parametrize("operations", GONE.values(), ids=GONE)
def test_a_commit_that_took_its_own_item_away_is_known_to_be_done(engine, tmp_path, operations):
    """Asked again, a commit is known by its claim's token also where its item or name is gone."""

    async def run():
        async with cut_off(engine, tmp_path) as (graph, cutter):
            await graph.commits.seed([book("A"), CreateItem("OTHER", data={"other": True})])
            (claim,) = await claimed(graph, 1)
            cutter.armed = "after"
            (applied,) = (await graph.commits.commit([ended(claim, *operations)])).applied
            (late,) = (
                await graph.commits.commit([ended(claim, UpdateData({"late": True}))])
            ).applied
            return applied, late, cutter.cuts

    applied, late, cuts = asyncio.run(run())

    assert cuts == 1
    assert applied.outcome is Outcome.OK
    assert late.outcome is None  # that is another commit, and the claim is ended


def test_a_claim_that_was_lost_before_is_not_taken_for_done(engine, tmp_path):
    """Of a batch whose answer was lost, a claim that had been taken away stays lost."""

    async def run():
        async with cut_off(engine, tmp_path) as (graph, cutter):
            await graph.commits.seed([book("A"), book("B")])
            claims = await claimed(graph, 2)
            with engine.begin() as connection:
                connection.execute(TAKE_AWAY, {"name": "A"})
            cutter.armed = "after"
            changesets = [ended(one, DeleteItem()) for one in claims]
            applied = (await graph.commits.commit(changesets)).applied
            return {one.item.id: each.outcome for one, each in zip(claims, applied, strict=True)}

    assert asyncio.run(run()) == {"A": None, "B": Outcome.OK}


def test_each_claim_has_a_token_of_its_own(engine, tmp_path):
    """Of claims made at once, each is fenced by a token that no other has."""

    async def run():
        async with cut_off(engine, tmp_path) as (graph, _):
            await graph.commits.seed([book(f"{number}") for number in range(20)])
            return [one.token for one in await claimed(graph, 20)]

    tokens = asyncio.run(run())

    assert len(set(tokens)) == len(tokens) == 20
