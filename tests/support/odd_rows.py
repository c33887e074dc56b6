"""A database that has rows of each kind, and what crawls of its clones bring with odd numbers.

As a script it crawls one database after another in one process, those that a file names, and writes
a line of JSON about each.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from scrapy_itemgraph import CreateItem
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres.tables import metadata
from support.projects import kill, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from support.projects import Project

# What has odd numbers is of the host `localhost` where a row is of a host, and of an item whose
# name begins with ODD where it is of an item.
SPIDER = """
class S(scrapy.Spider):
    name = "s"

    @task(tags=["page"], ttl="1h", rate_limit="900/s")
    def t_page(self, response, item):
        self.state["seen"] = 1
        yield UpdateData({"title": response.css("h1::text").get()})
        yield {"item": item.id}
        if item.data.get("fails"):
            raise ValueError("odd")

    @task(tags=["tagged"], rate_limit_by_tag={"tagged": "900/s"}, max_failures=3, autothrottle=True)
    def t_tagged(self, response, item):
        yield UpdateData({"tagged": True})

    @task(tags=["page"], depends_on=["t_page"], download=False)
    def t_after(self, response, item):
        yield UpdateData({"after": True})
"""
SETTINGS = """
ITEMGRAPH_KEEP_ITEMS = True
ITEMGRAPH_KEEP_PAGES = True
ITEMGRAPH_LEASE = 20
ITEMGRAPH_IDLE = "close"
AUTOTHROTTLE_START_DELAY = 0.001
AUTOTHROTTLE_MAX_DELAY = 0.002
FEEDS = {"kept.jsonl": {"format": "jsonlines"}}
"""
LATE = datetime(2100, 1, 1, tzinfo=UTC)
GOOD = ("GOOD-1", "GOOD-2")
SECONDS = 40.0  # that a crawl of a few pages may last; a day of delay lasts longer

MOMENTS = (
    "infinity",
    "-infinity",
    "294276-12-31 23:59:59+00",
    "4713-01-01 00:00:00+00 BC",
    "0001-01-01 00:00:00+14",
    "9999-12-31 23:59:59.999999+00",
)
FLOATS = ("Infinity", "-Infinity", "NaN", "5e-324", "-1", "0", "1e308")
PERIODS = ("178000000 years", "-178000000 years", "0", "-1 day", "0.000001 seconds")
JSONS = ("1e400", "-1e400", "9" * 5000, '{"url": 1e400, "n": -1e400}', "null", "[]")


# Integers that name rows of other tables.
REFERENCES = {
    *("crawl_id", "item_id", "task_id", "worker_id", "slot_id", "queue_id", "kind_id", "holder"),
    *("content_id", "limit_ids", "items", "tasks", "after_item_id"),
}


def _integers(bits: int) -> tuple[str, ...]:
    return str(2 ** (bits - 1) - 1), str(-(2 ** (bits - 1))), "0", "-1"


OF_TYPES: tuple[tuple[type[sa.types.TypeEngine[Any]], tuple[str, ...]], ...] = (
    (sa.DateTime, MOMENTS),
    (sa.Double, FLOATS),
    (sa.Interval, PERIODS),
    (sa.JSON, JSONS),
    (sa.BigInteger, _integers(64)),
    (sa.SmallInteger, _integers(16)),
    (sa.Integer, _integers(32)),
)
# Which rows of a table have the odd number; all of one that is not here.
ODD_ITEM = "(SELECT id FROM items WHERE name LIKE 'ODD%')"
ODD_SLOT = "(SELECT id FROM limits WHERE name = 'localhost')"
ROWS = {
    "items": "name LIKE 'ODD%'",
    "limits": "name = 'localhost' OR kind <> 'slot'",
    "queues": f"slot_id IN {ODD_SLOT}",
    "tasks": "name <> 't_page'",
    "kinds": "task_id IN (SELECT id FROM tasks WHERE name <> 't_page')",
    **dict.fromkeys(
        ("aliases", "tags", "work", "results", "failures", "attempts"), f"item_id IN {ODD_ITEM}"
    ),
}


@dataclass(frozen=True)
class Odd:
    """An odd number for a column."""

    table: str
    column: str
    type: str
    value: str

    @property
    def is_reference(self) -> bool:
        """Whether the column names a row of another table."""
        return self.column in REFERENCES

    def __str__(self) -> str:
        return f"{self.table}.{self.column} = {self.value:.40}"

    def put_into(self, url: str) -> int | None:
        """Put it into a database's rows; return how many there are, None where it is refused."""
        where = ROWS.get(self.table, "true")
        value = f"ARRAY[{self.value}]" if self.type.endswith("[]") else f"'{self.value}'"
        statement = (
            f"UPDATE {self.table} SET {self.column} = CAST({value} AS {self.type}) WHERE {where}"
        )
        engine = engines.sync_engine(url)
        try:
            with engine.begin() as connection:
                return connection.exec_driver_sql(statement.replace("%", "%%")).rowcount
        except (sa.exc.IntegrityError, sa.exc.DataError):
            return None
        finally:
            engine.dispose()


def every() -> Iterator[Odd]:
    """Yield each odd number of each column."""
    dialect = sa.make_url("postgresql+psycopg://").get_dialect()()
    for table in metadata.sorted_tables:
        for column in table.columns:
            if column.primary_key or column.computed is not None:
                continue
            kind: Any = column.type
            item = kind.item_type if isinstance(kind, sa.ARRAY) else kind
            values = next((values for of, values in OF_TYPES if isinstance(item, of)), ())
            for value in values:
                yield Odd(table.name, column.name, kind.compile(dialect=dialect), value)


def fill(project: Project, arrived: Callable[[], bool]) -> None:
    """Make a database with rows of each kind: done, failed, outstanding, and those of a kill."""
    project.write(SPIDER, SETTINGS)
    host = project.site_url
    odd_host = host.replace("127.0.0.1", "localhost")
    odd = {"url": odd_host + "/page/odd"}
    with ItemGraph.open(project.url, "s") as graph:
        graph.apply(
            [
                CreateItem("ODD-DONE", ["page", "tagged"], odd, nice=1),
                CreateItem("ODD-FAILED", ["page"], {**odd, "fails": True}),
            ]
        )
    project.crawl()
    with ItemGraph.open(project.url, "s") as graph:
        graph.apply(
            [
                CreateItem("ODD-LATE", ["page"], odd, not_before=LATE),
                CreateItem("ODD-HELD", ["page"], {"url": odd_host + "/gate"}),
            ]
        )
    killed = project.start("crawl", "s")
    until(arrived, project.log)
    until(lambda: project.claimed() > 0, project.log)
    kill(killed)
    with ItemGraph.open(project.url, "s") as graph:
        graph.apply(
            [
                *(CreateItem(name, ["page"], {"url": host + "/page/good"}) for name in GOOD),
                CreateItem("ODD-NEW", {"page": 1, "tagged": 2}, odd, nice=5),
            ]
        )
    engine = engines.sync_engine(project.url)
    with engine.begin() as connection:
        for statement in MORE:
            connection.execute(sa.text(statement))
    engine.dispose()


# What the crawls above leave no row of.
MORE = (
    (
        "UPDATE limits SET blocked_until = now() - interval '1 s', blocked_by = 'http 503', "
        "last_at = now(), throttle = 0.001 WHERE name = 'localhost'"
    ),
    "INSERT INTO sweeps (crawl_id, tags) SELECT id, '{page}' FROM crawls",
    "INSERT INTO logins (crawl_id) SELECT id FROM crawls ON CONFLICT DO NOTHING",
    (
        "INSERT INTO cookies (crawl_id, jar, domain, path, name, cookie, expires_at) "
        "SELECT id, 'null', 'localhost', '/', 'a', "
        '\'{"name": "a", "value": "1"}\', now() + interval \'1 day\' FROM crawls'
    ),
    (
        "INSERT INTO blob_contents (sha256, size, store, state, content, stored_at, collect_at) "
        "VALUES ('\\x00', 1, 'database', 'stored', '\\x00', now(), now() + interval '1 day')"
    ),
    (
        "INSERT INTO blobs (item_id, name, content_id, attached_at) "
        "SELECT i.id, 'page', c.id, now() FROM items i CROSS JOIN blob_contents c "
        "WHERE i.name = 'ODD-DONE'"
    ),
    "INSERT INTO tokens (name, digest, role) VALUES ('t', '\\x00', 'read')",
)


def crawl(project: Project, urls: list[str]) -> dict[str, dict[str, Any]]:
    """Crawl databases one after another; return how each crawl ended, by the database's URL."""
    ended: dict[str, dict[str, Any]] = {}
    while left := [url for url in urls if url not in ended]:
        names = project.directory / "urls.json"
        names.write_text(json.dumps(left))
        tests = str(Path(__file__).parents[1])
        process = project.start_python(__file__, str(names), PYTHONPATH=tests)
        run = project.finish(process, 3600)
        found = dict(map(json.loads, run.output.splitlines()))
        assert found, run.log
        ended |= found
    return ended


# The script


def main() -> None:
    """Crawl the databases that a file names, each with the project's spider."""
    from scrapy.utils.log import configure_logging
    from scrapy.utils.project import get_project_settings
    from scrapy.utils.reactor import install_reactor

    install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor")
    from twisted.internet import reactor

    settings = get_project_settings()
    configure_logging(settings)
    urls = json.loads(Path(sys.argv[1]).read_text())

    async def crawls() -> None:
        for url in urls:
            _say(url, await _crawled(settings.copy(), url))
        reactor.stop()

    reactor.callWhenRunning(lambda: asyncio.ensure_future(crawls()))
    reactor.run()


async def _crawled(settings: Any, url: str) -> dict[str, Any]:
    from scrapy.crawler import AsyncCrawlerRunner

    settings.set("ITEMGRAPH_DATABASE_URL", url)
    runner = AsyncCrawlerRunner(settings)
    crawler = runner.create_crawler("s")
    running = runner.crawl(crawler)
    done, _ = await asyncio.wait([running], timeout=SECONDS)
    if not done:
        _say(url, {"reason": "hangs"})
        os._exit(3)
    error = running.exception()
    stats = crawler.stats.get_stats() if crawler.stats else {}
    return {
        "reason": repr(error) if error else stats.get("finish_reason"),
        "errors": stats.get("log_count/ERROR", 0),
    }


def _say(url: str, how: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps([url, how]) + "\n")
    sys.stdout.flush()


def wrongs_of(url: str) -> list[str]:
    """Return what is wrong after a crawl: good items that were not done, commands that fail."""
    wrong = []
    with ItemGraph.open(url, "s") as graph:
        wrong += [
            f"{name} was not done" for name in GOOD if graph.get(name).data.get("after") is not True
        ]
        acts: Iterable[tuple[str, Callable[[], Any]]] = (
            ("status", graph.status),
            ("slots", graph.limits.list),
            ("worklist", graph.worklist),
            ("failures", graph.failures.list),
            ("tasks", graph.tasks.list),
            ("crawls", graph.crawls.names),
            ("get", lambda: graph.get("ODD-NEW")),
            ("results", lambda: graph.results("ODD-NEW")),
            ("explain", lambda: graph.explain("ODD-NEW")),
            ("delete", lambda: graph.delete("ODD-NEW")),
        )
        for name, act in acts:
            try:
                act()
            except Exception as error:
                wrong.append(f"{name}: {type(error).__name__}: {error!s:.300}")
    return wrong


if __name__ == "__main__":
    main()
