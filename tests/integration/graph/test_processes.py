"""A process that is no worker lives, hears and dies as workers do, and nobody is blamed for it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from support.processes import Popen
from support.races import PATIENCE, Crawl

from scrapy_itemgraph import CreateItem, task
from scrapy_itemgraph.store.registry import processes

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.server

HOUR = timedelta(hours=1)

# A server that says its number, and then each time that it hears of its topic.
SERVER = """
import asyncio, os, sys
from datetime import timedelta

from scrapy_itemgraph.connections.process import OwnProcess
from scrapy_itemgraph.connections.transactions import Transactions
from scrapy_itemgraph.postgres import engine
from scrapy_itemgraph.store.registry import processes

async def run(url, seconds, topic):
    lease = timedelta(seconds=float(seconds))

    def register(connection):
        return processes.register(
            connection, "server", host="here", process_id=os.getpid(), lease=lease
        )

    transactions = Transactions(engine.async_engine(url), timedelta(minutes=1))
    process = OwnProcess(
        transactions, "server", register, lease=lease, patience=timedelta(minutes=1)
    )
    await process.register(register)
    await process.begin()
    news = process.session.subscribe(topic)
    assert await news.wait(0)  # there may have been news before it listened
    print(process.identity.id, flush=True)
    while await news.wait(600):
        print("heard", flush=True)

asyncio.run(run(*sys.argv[1:]))
"""


class Books:
    @task(tags=["book"])
    def parse(self, response, item): ...


@pytest.fixture
def crawl(engine) -> Crawl:
    """Make a crawl with work that a worker of it has claimed, and has in hand."""
    crawl = Crawl(engine, Books)
    crawl.seed(CreateItem("A", tags=["book"]))
    assert len(crawl.claimed(crawl.worker())) == 1
    return crawl


@contextmanager
def server(url: str, *, lease: timedelta = HOUR) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run a server; yield its process and its number."""
    command = [sys.executable, "-c", SERVER, url, str(lease.total_seconds()), "schedules"]
    running = Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield running, int(running.stdout.readline())
    finally:
        running.kill()
        running.wait()
        running.stdout.close()


def end_of(crawl: Crawl, number: int) -> str | None:
    """Have a worker of the crawl look for the dead; return why a process stopped, if it did."""
    crawl.taken_over()
    ((reason,),) = crawl.rows("SELECT reason FROM processes WHERE id = :number", number=number)
    return reason


def until_ended(crawl: Crawl, number: int) -> str:
    """Return why a process stopped, once it is found dead."""
    deadline = time.monotonic() + PATIENCE
    while (reason := end_of(crawl, number)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return reason


def assert_nobody_is_blamed(crawl: Crawl) -> None:
    """Assert that the worker has its claim, and that neither work nor failures tell of a death."""
    assert crawl.outstanding() == [("A", "parse", True)]
    assert crawl.rows("SELECT deaths, stalls, is_suspect FROM work") == [(0, 0, False)]
    assert crawl.attempts() == []
    assert crawl.rows("SELECT count(*) FROM failures") == [(0,)]


def test_a_server_hears_what_is_told_of_its_topic(crawl, database):
    """A topic is whatever those agree on who tell and hear."""
    with server(database) as (running, _):
        crawl.rows("SELECT pg_notify('itemgraph', 'another'), pg_notify('itemgraph', 'schedules')")

        assert running.stdout.readline() == "heard\n"


def test_a_killed_server_is_found_dead_at_once(crawl, database):
    """Its lock dies with it, so nobody waits for a lease of an hour."""
    with server(database) as (running, number):
        with crawl.engine.begin() as connection:
            living = {one.id: one.kind for one in processes.living(connection)}
        assert living[number] == "server"
        assert end_of(crawl, number) is None
        running.kill()
        running.wait()

        assert until_ended(crawl, number) == "died"
    assert_nobody_is_blamed(crawl)


def test_a_stopped_server_is_found_dead_when_its_lease_is_over(crawl, database):
    """It holds its lock, and renews its lease no more."""
    ends = "SELECT lease_until > clock_timestamp() FROM processes WHERE id = :number"
    with server(database, lease=timedelta(seconds=3)) as (running, number):
        running.send_signal(signal.SIGSTOP)
        assert end_of(crawl, number) is None

        assert until_ended(crawl, number) == "stalled"
        assert crawl.rows(ends, number=number) == [(False,)]
    assert_nobody_is_blamed(crawl)
