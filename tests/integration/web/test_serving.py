"""The server as a process: where it listens, how it ends, a database that goes away."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time

import httpx
import pytest
from support import processes, proxies, web_servers
from support.graphs import Crawl
from support.web_servers import SCRAPY, serving

PATIENCE = 120.0  # seconds


def refused(database, *arguments):
    """Return the one line with which `serve` is refused."""
    setting = f"ITEMGRAPH_DATABASE_URL={database}"
    done = processes.run(
        [*SCRAPY, "serve", *arguments, "-s", setting],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        cwd="/tmp",
    )
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    return line


def test_where_it_cannot_listen_is_said_in_a_line(database):
    """A port in use, an address of another machine and a name that is none are refused."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        line = refused(database, "--port", str(taken.getsockname()[1]))
    assert "Address already in use" in line
    assert "--port N takes another" in line
    assert "cannot listen at nobody.invalid" in refused(database, "--host", "nobody.invalid")


def test_without_tokens_others_are_not_served(database):
    """An address that others reach is refused without tokens, with the command that makes one."""
    for arguments in (["--host", "0.0.0.0"], ["--allow-host", "a.example"]):
        line = refused(database, "--port", "0", *arguments)
        assert "scrapy itemgraph token add NAME --role operate" in line


def test_with_tokens_others_are_served_under_its_names(database):
    """Bound to all addresses it answers under numbers and the names that were allowed."""
    secret = web_servers.run(database, "token", "add", "a", "--role", "read")["token"]
    bearer = {"authorization": f"Bearer {secret}"}
    arguments = ["--host", "0.0.0.0", "--allow-host", "Crawl.example"]
    with serving(database, *arguments) as server:
        assert "those who have a token" in server.line
        for host, status in {
            "192.0.2.1": 200,
            "crawl.example:80": 200,
            "evil.example": 421,
        }.items():
            answer = server.ask("GET", "/api/v1/crawls", headers={"host": host, **bearer})
            assert answer.status_code == status


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_well_with_streams_open(database, engine, how):
    """Streams of events are ended, nothing is written to standard error, and the code is 0."""
    with engine.begin() as connection:
        Crawl.of(connection)
    with serving(database) as server:
        paths = ["api/v1/crawls/books/events", "crawls/books/live"]
        streams = [server.client.stream("GET", server.url + path) for path in paths]
        opened = [stream.__enter__() for stream in streams]
        for one in opened:
            assert next(one.iter_raw())
        began = time.monotonic()
        assert server.stop(how) == (0, "")
        assert time.monotonic() - began < 10
        for stream in streams:
            stream.__exit__(None, None, None)


def test_a_request_under_way_is_finished(database, engine):
    """What waits for a lock at SIGTERM is carried out and answered, if that is soon."""
    with engine.connect() as connection, serving(database, "--crawl", "books") as server:
        Crawl.of(connection)
        connection.commit()
        connection.exec_driver_sql("LOCK TABLE items IN EXCLUSIVE MODE")
        answers = []
        asking = threading.Thread(
            target=lambda: answers.append(server.ask("POST", "/items/A", {"data": {"a": 1}}))
        )
        asking.start()
        time.sleep(1)
        server.process.terminate()
        connection.rollback()
        asking.join(PATIENCE)

        assert [one.status_code for one in answers] == [201]
        assert server.process.wait(PATIENCE) == 0


def test_it_says_that_the_database_is_away_and_comes_back(database, engine):
    """Cut off it answers 503 with the CLI's sentence; once the database is back, as before."""
    with engine.begin() as connection:
        Crawl.of(connection).work("A")
    with proxies.proxy(engine) as (proxy, url), serving(url, "--crawl", "books") as server:
        assert server.ask("GET", "/items/A").status_code == 200
        stream = server.client.stream("GET", server.url + "api/v1/crawls/books/events")
        events = stream.__enter__().iter_lines()
        assert next(events) == "event: status"
        upstream = proxy.lead("/nowhere")
        proxy.cut()
        answer = server.ask("GET", "/items/A")
        assert answer.status_code == 503, answer.text
        assert answer.headers["retry-after"] == "5"
        assert "PostgreSQL" in answer.json()["detail"]
        assert server.ask("GET", "/healthz").status_code == 503
        assert "event: problem" in events
        proxy.lead(upstream)
        until = time.monotonic() + PATIENCE
        while server.ask("GET", "/healthz").status_code != 200:
            assert time.monotonic() < until
            time.sleep(0.2)
        assert server.ask("GET", "/items/A").status_code == 200
        assert "event: status" in events
        stream.__exit__(None, None, None)


def test_a_database_that_hangs_hangs_nothing_else(database, engine):
    """Of a database that says nothing more /healthz tells so in seconds, and files are served."""
    with engine.begin() as connection:
        Crawl.of(connection).work("A")
    with proxies.proxy(engine) as (proxy, url), serving(url, "--crawl", "books") as server:
        assert server.ask("GET", "/items/A").status_code == 200
        time.sleep(2.5)  # so that tokens are read again
        proxy.freeze()
        assert server.ask("GET", "/healthz").status_code == 503
        assert server.ask("GET", "/static/cockpit.css").status_code == 200
        codes = []

        def ask():
            with httpx.Client(trust_env=False, timeout=PATIENCE) as client:
                codes.append(client.get(server.url + "items/A").status_code)

        threads = [threading.Thread(target=ask) for _ in range(60)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + PATIENCE
        while len(codes) < 50:
            assert time.monotonic() < until
            time.sleep(0.2)
        assert set(codes) == {503}
        assert server.ask("GET", "/static/cockpit.css").status_code == 200
        proxy.thaw()
        for thread in threads:
            thread.join(PATIENCE)
        until = time.monotonic() + PATIENCE
        while server.ask("GET", "/healthz").status_code != 200:
            assert time.monotonic() < until
            time.sleep(0.2)


def test_it_ends_though_the_database_never_answers(database, engine):
    """A request that waits for a database that hangs is given up seconds after SIGTERM."""
    with engine.begin() as connection:
        Crawl.of(connection).work("A")
    with proxies.proxy(engine) as (proxy, url), serving(url, "--crawl", "books") as server:
        assert server.ask("GET", "/items/A").status_code == 200
        proxy.freeze()

        def ask():
            with contextlib.suppress(httpx.HTTPError):
                server.ask("GET", "/items/A")

        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(1)
        server.process.terminate()
        assert server.process.wait(PATIENCE) == 0
        asking.join(PATIENCE)
        proxy.thaw()


def test_the_embedded_server_runs_as_long_as_it_is_served(tmp_path):
    """Without a database of one's own the embedded server is held, and stopped at the end."""
    directory = f"ITEMGRAPH_DATA_DIR={tmp_path}/graph"
    made = processes.run([*SCRAPY, "init", "-s", directory], cwd=tmp_path, check=False)
    assert made.returncode == 0
    with serving(None, "-s", directory, cwd=tmp_path) as server:
        assert server.get("/healthz") == {"status": "ok"}
        assert server.ask("HEAD", "/healthz").status_code == 200
        assert list(tmp_path.rglob("postmaster.pid"))
        assert server.stop() == (0, "")
    assert not list(tmp_path.rglob("postmaster.pid"))


def test_fifty_clients_share_eight_connections(database, engine):
    """However many ask at once, eight connections answer all, beside that of the duties."""
    with engine.begin() as connection:
        Crawl.of(connection).work("A")
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'scrapy-itemgraph'"
    with serving(database, "--crawl", "books") as server:
        codes, most = [], []

        def ask():
            with httpx.Client(trust_env=False, timeout=PATIENCE) as client:
                codes.extend(client.get(server.url + "items/A").status_code for _ in range(3))

        threads = [threading.Thread(target=ask) for _ in range(50)]
        for thread in threads:
            thread.start()
        with engine.connect() as connection:
            while any(thread.is_alive() for thread in threads):
                of_others = connection.exec_driver_sql(
                    f"{count} AND pid <> pg_backend_pid() AND datname = current_database()"
                )
                most.append(of_others.scalar_one())
                time.sleep(0.05)
        assert codes == [200] * 150
        assert max(most) <= 8 + 1  # that of duties


def test_it_needs_its_extra_and_says_so(database, tmp_path):
    """Without the libraries of the extra the command is refused with what to install."""
    (tmp_path / "fastapi.py").write_text("raise ModuleNotFoundError('no', name='fastapi')")
    done = subprocess.run(
        [*SCRAPY, "serve", "-s", f"ITEMGRAPH_DATABASE_URL={database}"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        cwd="/tmp",
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )

    assert done.returncode == 1
    assert 'pip install "scrapy-itemgraph[web]"' in done.stderr
