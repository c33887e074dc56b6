"""A server that is starting or stopping when a crawl or a command starts is waited for."""

from __future__ import annotations

import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest
from support import servers
from support.projects import ONE_ITEM, Project, until

from scrapy_itemgraph import CreateItem, ItemGraph
from scrapy_itemgraph.exceptions import DatabaseStartingError, DatabaseUnavailableError
from scrapy_itemgraph.postgres import engine as engines

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Server]:
    """Run a server that these tests stop and start; each leaves it running."""
    with servers.own_postgres() as one:
        yield one


@contextmanager
def starting(server: servers.Server) -> Iterator[None]:
    """Have the server say that it is starting up, until the block ends."""
    server.stop()
    go = server.directory / "go"
    go.unlink(missing_ok=True)
    data = server.directory / "data"
    waits = f"while [ ! -e {go} ]; do sleep 0.05; done; false"
    with (data / "postgresql.conf").open("a") as file:
        file.write(f"restore_command = '{waits}'\n")
    (data / "recovery.signal").touch()
    server.run("pg_ctl", "-W", "-l", data / "log", "start", stdout=subprocess.DEVNULL)
    until(lambda: "starting up" in answer(server) or "not yet accepting" in answer(server))
    try:
        yield
    finally:
        go.touch()
        until(lambda: answer(server) == "up")


def answer(server: servers.Server) -> str:
    """Return what the server says to a connection; "up" once it takes writes."""
    try:
        with psycopg.connect(server.url) as connection:
            (is_standby,) = connection.execute("SELECT pg_is_in_recovery()").fetchone()
    except psycopg.OperationalError as error:
        return str(error)
    return "in recovery" if is_standby else "up"


def test_a_crawl_waits_for_a_server_that_is_starting(server, tmp_path):
    """It says so once, and then crawls as if nothing had been."""
    project = Project(tmp_path, server.url).write(ONE_ITEM)
    with starting(server):
        process = project.start("crawl", "s")
        project.wait_for("is starting or stopping")
        assert process.poll() is None
    run = project.finish(process)

    assert run.code == 0, run.log
    assert run.log.count("is starting or stopping") == 1
    assert project.outcomes() == {"ITEM": ["ok"]}


def test_a_crawl_waits_no_longer_than_its_patience(server, tmp_path):
    """ITEMGRAPH_PATIENCE bounds the start too; then the error says what the server says."""
    project = Project(tmp_path, server.url).write(ONE_ITEM, "ITEMGRAPH_PATIENCE = 1")
    with starting(server):
        run = project.crawl()

    assert run.code == 1
    errors = [line for line in run.log.splitlines() if "] ERROR:" in line]
    assert "is starting or stopping" in errors[0]


def test_a_command_waits_for_a_server_that_stops_and_comes_back(server, monkeypatch, caplog):
    """Shutting down, then nobody there, then there again: the command waits, and says so."""
    monkeypatch.setattr(engines, "QUIET_WAIT", 0)
    with ItemGraph.open(server.url, "books", auto_migrate=True) as graph:
        graph.apply([CreateItem("A")])
    found = []

    def command() -> None:
        with ItemGraph.open(server.url, "books") as graph:
            found.append(graph.get("A").id)

    client = psycopg.connect(server.url)
    server.run("pg_ctl", "-m", "smart", "-W", "stop", stdout=subprocess.DEVNULL)
    until(lambda: "shutting down" in answer(server))
    waiting = threading.Thread(target=command)
    waiting.start()
    until(lambda: "is starting or stopping" in caplog.text)
    client.close()
    until(lambda: "refused" in answer(server))
    server.start()
    waiting.join(timeout=60)

    assert found == ["A"]
    assert caplog.text.count("Waiting for it up to 30 s") == 1


def test_a_command_gives_up_in_the_end(server, monkeypatch):
    """Its wait is bounded, and ends with what the server says."""
    monkeypatch.setattr(engines, "COMMAND_PATIENCE", 0.5)

    with starting(server), pytest.raises(DatabaseStartingError, match="starting or stopping"):
        ItemGraph.migrate(server.url)


def test_what_no_wait_mends_is_an_error_at_once(server, monkeypatch):
    """Nobody at the address, or a wrong password, is not waited for."""
    monkeypatch.setattr(engines.time, "sleep", lambda _: pytest.fail("it waits"))
    for url in (server.url_for(password="wrong"), "postgresql://u@127.0.0.1:1/d"):
        with pytest.raises(DatabaseUnavailableError):
            ItemGraph.migrate(url)
