"""Sessions of browsers: what a cookie is good for, where, and for how long."""

from __future__ import annotations

import hashlib
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from conftest import new_database
from starlette.applications import Starlette
from starlette.routing import Mount
from support import web_servers
from support.graphs import Crawl
from support.web_servers import asked

from scrapy_itemgraph.model.roles import RoleKind
from scrapy_itemgraph.store.admin import access_tokens as stored_tokens
from scrapy_itemgraph.web import access
from scrapy_itemgraph.web.app import create_app
from scrapy_itemgraph.web.graphs import Graphs

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

ITEM = "/items/A"
HOST = "localhost:8808"
BASIC = {"authorization": "Basic YTpi"}


@pytest.fixture
def graphs(database, engine, monkeypatch) -> Iterator[Graphs]:
    """Yield the graphs of a database with one item; what lets in is read for each request."""
    monkeypatch.setattr(access, "REMEMBERED", 0.0)
    with engine.begin() as connection:
        Crawl.of(connection).work("A")
    with Graphs.open(database, "books") as one:
        yield one


@pytest.fixture
def secret(graphs) -> str:
    """Make a token, and return its secret."""
    return graphs.served.tokens.add("anna", "operate")


@pytest.fixture
def app(graphs, secret):
    """Return an application that has a token."""
    return create_app(graphs, allowed_hosts=["crawl.example"])


def logged_in(app, secret, path="", **options) -> httpx.Response:
    """Log in with a token."""
    form = {"token": secret, "then": "/"}
    answer = asked(app, "POST", f"{path}/login", data=form, **{"host": HOST, **options})
    assert answer.status_code == 303
    return answer


def cookie(answer) -> dict[str, str]:
    """Return the header that has the cookie of an answer."""
    return {"cookie": answer.headers["set-cookie"].partition(";")[0]}


def status(app, cookie, **options) -> int:
    """Return the status of the answer that has an item."""
    return asked(app, "GET", ITEM, headers=cookie, **{"host": HOST, **options}).status_code


@contextmanager
def graphs_of(database, kind) -> Iterator[Graphs]:
    """Open the graphs with a role of the database's server that is of a kind."""
    role = f"{kind}_{uuid.uuid4().hex[:8]}"
    with web_servers.role_of(database, role, kind) as url, Graphs.open(url, "books") as one:
        yield one


def test_the_cookie_is_a_session_of_its_own(app, secret, database):
    """What a browser keeps is random, stored by its digest, and neither the token nor one."""
    first, second = (cookie(logged_in(app, secret)) for _ in range(2))
    values = [one["cookie"].partition("=")[2] for one in (first, second)]
    rows = web_servers.rows(database, "SELECT digest, token_name FROM web_sessions")

    assert values[0] != values[1]
    assert secret not in values
    assert {(bytes(digest), name) for digest, name in rows} == {
        (hashlib.sha256(value.encode()).digest(), "anna") for value in values
    }
    assert status(app, first) == status(app, second) == 200
    assert status(app, {"authorization": f"Bearer {values[0]}"}) == 401
    assert status(app, {"cookie": f"{first['cookie'].partition('=')[0]}={secret}"}) == 401


def test_logging_out_ends_the_session_on_the_server(app, graphs, secret):
    """What was in the cookie lets nobody in any more, on no server of the database."""
    other = create_app(graphs)
    one, kept = cookie(logged_in(app, secret)), cookie(logged_in(app, secret))
    assert [status(app, one), status(other, one)] == [200, 200]
    out = asked(app, "POST", "/logout", host=HOST, headers=one)

    assert out.headers["set-cookie"].startswith(one["cookie"].partition("=")[0] + '="";')
    assert [status(app, one), status(other, one)] == [401, 401]
    assert status(app, kept) == 200


def test_logging_in_again_ends_the_session_before(app, secret):
    """A browser has one session: that which it had when it logged in is over."""
    first = cookie(logged_in(app, secret))
    second = cookie(logged_in(app, secret, headers=first))

    assert [status(app, first), status(app, second)] == [401, 200]


def test_removing_a_token_ends_its_sessions(app, graphs, secret):
    """Those of other tokens go on; one of the same name that is made later has none of them."""
    other = graphs.served.tokens.add("bob", "read")
    one, others = cookie(logged_in(app, secret)), cookie(logged_in(app, other))
    graphs.served.tokens.remove("anna")
    assert [status(app, one), status(app, others)] == [401, 200]
    graphs.served.tokens.add("anna", "operate")
    assert status(app, one) == 401


def test_a_session_ends_by_itself(app, secret, engine, database):
    """It is given for thirty days, by the database's clock; what is over goes with a log-in."""
    answer = logged_in(app, secret)
    days = "SELECT (expires_at - created_at) BETWEEN '30 days' AND '30 days 1 minute'"
    assert web_servers.rows(database, f"{days} FROM web_sessions") == [(True,)]
    assert f"Max-Age={30 * 86400}" in answer.headers["set-cookie"]
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE web_sessions SET expires_at = clock_timestamp()")
    assert status(app, cookie(answer)) == 401
    logged_in(app, secret)
    assert web_servers.rows(database, "SELECT count(*) FROM web_sessions") == [(1,)]


def test_a_token_has_a_hundred_sessions_at_most(graphs, secret, database, monkeypatch):
    """Who logs in for ever fills no table: the oldest sessions go."""
    monkeypatch.setattr(stored_tokens, "MOST_SESSIONS", 3)
    made = [graphs.served.tokens.add_session(secret) for _ in range(5)]
    kept = {hashlib.sha256(one.encode()).digest() for one in made[-3:]}

    rows = web_servers.rows(database, "SELECT digest FROM web_sessions")
    assert {bytes(digest) for (digest,) in rows} == kept


def test_a_new_session_is_known_to_each_server_at_once(graphs, secret, monkeypatch):
    """Behind a balancer the next request may go to another server, which has read before."""
    one, other = create_app(graphs), create_app(graphs)
    monkeypatch.setattr(access, "REMEMBERED", 3600.0)
    monkeypatch.setattr(access, "FRESH", 0.0)
    assert status(other, {"authorization": f"Bearer {secret}"}) == 200

    assert status(other, cookie(logged_in(one, secret))) == 200


def test_tokens_and_sessions_are_read_together_and_remembered(graphs, secret, monkeypatch):
    """Requests with a session that is known ask the database for no token and no session."""
    app = create_app(graphs)
    session = cookie(logged_in(app, secret))
    monkeypatch.setattr(access, "REMEMBERED", 3600.0)
    assert status(app, session) == 200
    reads = []
    read = stored_tokens.keys
    monkeypatch.setattr(stored_tokens, "keys", lambda given: reads.append(1) or read(given))

    assert [status(app, session) for _ in range(3)] == [200] * 3
    assert reads == []


@pytest.mark.parametrize(
    ("headers", "scheme", "is_secure"),
    [
        ({}, "http", False),
        ({}, "https", True),
        ({"x-forwarded-proto": "https"}, "http", True),
        ({"origin": "https://crawl.example"}, "http", True),
        ({"origin": "http://crawl.example"}, "http", False),
    ],
)
def test_by_https_the_cookie_is_the_hosts_alone(app, secret, headers, scheme, is_secure):
    """Where TLS is, here or at a proxy, the cookie is Secure and has the prefix __Host-."""
    where = {"host": "crawl.example", "scheme": scheme}
    answer = logged_in(app, secret, headers=headers, **where)
    name, *attributes = answer.headers["set-cookie"].split("; ")

    assert name.startswith("__Host-itemgraph_session=") == is_secure
    assert ("Secure" in attributes) == is_secure
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(attributes)
    assert status(app, cookie(answer), **where) == 200


def test_by_https_a_cookie_set_by_http_does_not_count(app, secret):
    """Somebody on the way can set one by http, and have a browser be logged in as somebody."""
    set_by_http = cookie(logged_in(app, secret, host="crawl.example"))

    assert status(app, set_by_http, host="crawl.example", scheme="https") == 401


def test_servers_on_other_ports_have_other_cookies(app, secret):
    """A browser sends cookies to all ports of a host: a log-in elsewhere ends none here."""
    names = set()
    for host in ("localhost:8808", "localhost:8809", "localhost", "[::1]:8808"):
        answer = logged_in(app, secret, host=host)
        names.add((host.rpartition(":")[2], answer.headers["set-cookie"].partition("=")[0]))

    assert names == {
        ("8808", "itemgraph_session_8808"),
        ("8809", "itemgraph_session_8809"),
        ("localhost", "itemgraph_session"),
    }


def test_applications_on_one_port_have_other_cookies(graphs, secret):
    """Mounted at several paths each has its own, also where the prefix wants the path /."""
    outer = Starlette(
        routes=[Mount("/a", create_app(graphs)), Mount("/b/c", create_app(graphs))],
    )
    for scheme, prefix, paths in (("http", "", ("/a", "/b/c")), ("https", "__Host-", ("/", "/"))):
        given = [
            logged_in(outer, secret, path, scheme=scheme).headers["set-cookie"]
            for path in ("/a", "/b/c")
        ]
        assert [one.partition("=")[0] for one in given] == [
            f"{prefix}itemgraph_session_8808_a",
            f"{prefix}itemgraph_session_8808_b_c",
        ]
        for one, path in zip(given, paths, strict=True):
            assert f"Path={path}" in one.split("; ")


def test_a_session_is_of_one_database(app, secret, template, server_url):
    """On a server of another database it is worth nothing, though the token's name is the same."""
    session = cookie(logged_in(app, secret))
    with new_database(server_url, template) as url, Graphs.open(url) as others:
        others.served.tokens.add("anna", "operate")
        assert status(create_app(others), session) == 401


def test_credentials_of_a_proxy_are_no_hindrance(app, secret):
    """A browser adds HTTP Basic for the proxy before us; the cookie lets in, and nothing else."""
    session = cookie(logged_in(app, secret, headers=BASIC))

    assert status(app, {**session, **BASIC}) == 200
    assert status(app, BASIC) == 401
    assert status(app, {**session, "authorization": "Bearer wrong"}) == 401
    page = asked(app, "GET", "/", host=HOST, headers={"accept": "text/html", **BASIC})
    assert page.headers["location"].startswith("/login")


def test_a_role_that_may_not_write_has_sessions_of_the_process(graphs, secret, database):
    """Served with a read-only role, a browser is logged in until the server ends."""
    graphs.served.tokens.add("bob", "read")
    with graphs_of(database, RoleKind.READ_ONLY) as ours:
        app, other = create_app(ours), create_app(graphs)
        session = cookie(logged_in(app, secret))
        gone = cookie(logged_in(app, secret))
        asked(app, "POST", "/logout", host=HOST, headers=gone)

        assert web_servers.rows(database, "SELECT count(*) FROM web_sessions") == [(0,)]
        assert [status(app, session), status(app, gone), status(other, session)] == [200, 401, 401]
        graphs.served.tokens.remove("anna")
        graphs.served.tokens.add("anna", "read")
        assert status(app, session) == 401


def test_a_scheduler_has_sessions_that_others_know(graphs, secret, database):
    """Served with a role that may change items, sessions are the database's."""
    with graphs_of(database, RoleKind.SCHEDULER) as ours:
        app, other = create_app(ours), create_app(graphs)
        session = cookie(logged_in(app, secret))

        assert status(other, session) == 200
        asked(app, "POST", "/logout", host=HOST, headers=session)
        assert status(other, session) == 401
