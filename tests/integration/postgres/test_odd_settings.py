"""What a database or a role has as default of PostgreSQL's settings changes nothing of a crawl."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from conftest import new_database
from support.races import claimed

from scrapy_itemgraph import AddTag, CreateItem, SetTTL, UpdateData, UpdateMetadata, task
from scrapy_itemgraph.graph import ItemGraph, WorkerGraph
from scrapy_itemgraph.model.operations import Changeset
from scrapy_itemgraph.model.tasks import discover
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.settings import Settings

pytestmark = pytest.mark.server

TEXT = "ü ☃ \U0001f600 \\ ' \" \n NULL"
ODD = [
    ("DateStyle", "SQL, DMY"),
    ("DateStyle", "German"),
    ("DateStyle", "Postgres, MDY"),
    ("IntervalStyle", "sql_standard"),
    ("IntervalStyle", "iso_8601"),
    ("TimeZone", "Asia/Kathmandu"),
    ("array_nulls", "off"),
    ("backslash_quote", "off"),
    ("bytea_output", "escape"),
    ("client_encoding", "LATIN1"),
    ("client_encoding", "SQL_ASCII"),
    ("default_transaction_deferrable", "on"),
    ("default_transaction_isolation", "serializable"),
    ("enable_indexscan", "off"),
    ("enable_nestloop", "off"),
    ("extra_float_digits", "-15"),
    ("from_collapse_limit", "1"),
    ("geqo_threshold", "2"),
    ("join_collapse_limit", "1"),
    ("lc_messages", "C"),
    ("plan_cache_mode", "force_generic_plan"),
    ("quote_all_identifiers", "on"),
    ("row_security", "off"),
    ("session_replication_role", "local"),
    ("standard_conforming_strings", "off"),
    ("synchronize_seqscans", "off"),
    ("transform_null_equals", "on"),
    ("work_mem", "64kB"),
]
DELAY = 0.12345678901234566  # seconds, of as many digits as a float has


class Books:
    @task(tags=["book"], ttl=timedelta(days=1, hours=2, seconds=3))
    def parse(self, response, item): ...


def set_default(engine, setting: str, value: str) -> None:
    """Give the database a default of its own."""
    with engine.begin() as connection:
        name = connection.engine.url.database
        connection.exec_driver_sql(f"ALTER DATABASE \"{name}\" SET {setting} TO '{value}'")
    engine.dispose()


async def crawl(url: str) -> list[str]:
    """Crawl as a worker does: seed, claim, commit, fail, and tell what came of it."""
    settings = Settings.of(database_url=url)
    graph = await WorkerGraph.open(settings, crawl="books", spider="spider", tasks=discover(Books))
    try:
        await graph.commits.seed(
            [CreateItem(name, tags={"book": None, TEXT: 1}, data={"t": TEXT}) for name in "ABC"]
        )
        done = (
            UpdateData({"n": DELAY, "null": None}),
            UpdateMetadata({"t": TEXT}),
            SetTTL(timedelta(days=2)),
            CreateItem("D", tags=["book"], not_before=timedelta(days=1)),
            CreateItem("E" + TEXT, tags=["book"], aliases=["F\\"]),
            AddTag("more", TEXT),
        )
        outcomes = zip(
            await claimed(graph, 3), (Outcome.OK, Outcome.OK, Outcome.RETRY), strict=True
        )
        result = await graph.commits.commit(
            [
                Changeset(
                    operations=done if outcome is Outcome.OK else (),
                    outcome=outcome,
                    claim=claim,
                    delay=timedelta(hours=1) if outcome is Outcome.RETRY else None,
                )
                for claim, outcome in outcomes
            ]
        )
        return [one.outcome for one in result.applied]
    finally:
        await graph.close("finished")


def look(url: str) -> dict:
    """Change and look as people do; return what may not depend on settings."""
    with ItemGraph.open(url, "books") as graph:
        graph.limits.set_delay("one.example", DELAY)
        graph.set_nice("B", -7)
        (delay,) = (one.delay for one in graph.limits.list() if one.name == "one.example")
        results = [(one.id, result) for one in graph.items() for result in graph.results(one.id)]
        dumped = list(graph.crawls.dump())
        seen = {
            "delay": delay,
            "items": [(one.id, one.data, one.tags, one.aliases) for one in graph.items()],
            "metadata": [(name, one.metadata, one.state) for name, one in results],
            "ttl": [one.expires_at - one.completed_at for _, one in results if one.expires_at],
            "found": sorted(one.item for one in graph.lookup.search("E").items),
            "explained": [(one.task, one.state) for one in graph.explain("C")],
            "overview": len(graph.crawls.overview()),
            "failures": graph.failures.list(),
            "groups": graph.failures.groups(),
            "tasks": [one.ttl for one in graph.tasks.list()],
            "workers": len(graph.activity.workers()),
        }
        assert graph.status()
    with ItemGraph.open(url, "moved") as moved:
        moved.crawls.load(dumped)
        seen["moved"] = [(one.id, one.data, one.tags, one.aliases) for one in moved.items()]
        moved.delete("A")
        assert moved.get("A") is None
    return seen


@pytest.fixture(scope="module")
def plain(server_url, template):
    """Return what a database without defaults of its own shows."""
    with new_database(server_url, template) as url:
        return asyncio.run(crawl(url)), look(url)


@pytest.mark.parametrize(("setting", "value"), ODD)
def test_a_default_of_the_database_changes_nothing_of_a_crawl(
    database, engine, plain, setting, value
):
    """Dates, nulls, digits, encodings and plans are our connections' own."""
    set_default(engine, setting, value)

    assert (asyncio.run(crawl(database)), look(database)) == plain
