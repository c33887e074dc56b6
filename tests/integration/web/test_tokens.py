"""Tokens: who is let in, to do what, and how a browser logs in."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from conftest import new_database
from support import web_servers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.web_servers import Server

PAGE = {"accept": "text/html"}
REMEMBERED = 2.0  # seconds


@pytest.fixture(scope="module")
def secrets() -> dict[str, str]:
    """Return the secrets of tokens, by name."""
    return {}


@pytest.fixture(scope="module")
def server(server_url, template, secrets) -> Iterator[Server]:
    """Yield a server with a token that may read and one that may operate."""
    with new_database(server_url, template) as url:
        for name, role in (("grafana", "read"), ("anna", "operate")):
            made = web_servers.run(url, "token", "add", name, "--role", role)
            secrets[name] = made["token"]
        with web_servers.serving(url, "--crawl", "books") as server:
            yield server


def bearer(secret: str) -> dict[str, str]:
    """Return the header that has a token."""
    return {"authorization": f"Bearer {secret}"}


def test_a_token_may_what_its_role_says(server, secrets):
    """Who may operate adds an item, who may read looks at it and changes nothing."""
    item = {"id": "A", "data": {}}
    operator, reader = bearer(secrets["anna"]), bearer(secrets["grafana"])

    assert server.ask("POST", "/items/add", item, headers=operator).status_code == 201
    assert server.ask("GET", "/items/A", headers=reader).status_code == 200
    refused = server.ask("DELETE", "/items/A", headers=reader)
    assert refused.status_code == 403
    assert "'grafana' may read" in refused.json()["detail"]
    assert server.ask("GET", "/metrics", headers=reader).status_code == 200


@pytest.mark.parametrize(
    "given",
    [None, "Bearer wrong", "Bearer", "Bearer \xff", "Basic YTpi", "bearer itemgraph_", "\xe9"],
)
def test_without_a_known_token_nobody_is_let_in(server, given):
    """A missing, wrong or malformed token is refused with 401, and told how one is sent."""
    headers = {} if given is None else {"authorization": given.encode("latin-1")}

    for path in ("/items/A", "/api/v1/crawls", "/metrics", "/api/v1/crawls/books/events"):
        answer = server.ask("GET", path, headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert server.ask("GET", "/healthz", headers=headers).status_code == 200


def test_only_digests_are_stored(server, secrets):
    """The database has the SHA-256 of a token, and `token list` its name and role."""
    found = web_servers.rows(server.database, "SELECT name, role, digest FROM tokens ORDER BY name")

    assert [(name, role) for name, role, _ in found] == [("anna", "operate"), ("grafana", "read")]
    assert bytes(found[0][2]) == hashlib.sha256(secrets["anna"].encode()).digest()
    assert len(secrets["anna"]) > 50
    listed = server.itemgraph("token", "list")
    assert [(one["name"], one["role"]) for one in listed] == [
        ("anna", "operate"),
        ("grafana", "read"),
    ]


def test_a_token_that_is_removed_lets_nobody_in(server):
    """A removed token is refused within two seconds."""
    secret = server.itemgraph("token", "add", "gone", "--role", "read")["token"]
    until = time.monotonic() + 5 * REMEMBERED
    while server.ask("GET", "/items/A", headers=bearer(secret)).status_code == 401:
        assert time.monotonic() < until
        time.sleep(0.1)
    server.itemgraph("token", "remove", "gone")
    time.sleep(REMEMBERED)

    assert server.ask("GET", "/items/A", headers=bearer(secret)).status_code == 401


def test_a_browser_logs_in_once(server, secrets):
    """A page leads to the form, which gives a cookie and leads back; logging out takes it."""
    sent = server.ask("GET", "/crawls/books/overview", headers=PAGE)
    assert sent.status_code == 303
    assert sent.headers["location"] == "/login?then=" + quote("/crawls/books/overview", safe="")
    form = {"token": secrets["anna"], "then": "/crawls/books/overview"}
    answer = server.client.post(server.url + "login", data=form)

    assert (answer.status_code, answer.headers["location"]) == (303, "/crawls/books/overview")
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    logged_in = {"cookie": cookie.partition(";")[0]}
    server.client.cookies.clear()
    assert server.ask("GET", "/items/A", headers=logged_in).status_code == 200
    assert server.ask("GET", "/login", headers=logged_in).status_code == 303
    out = server.ask("POST", "/logout", headers=logged_in)
    assert out.headers["set-cookie"].startswith(f'{cookie.partition("=")[0]}=""')


@pytest.mark.parametrize(
    "target", ["https://evil.example/", "//evil.example", "/\\evil.example", ""]
)
def test_the_form_leads_to_this_server_alone(server, secrets, target):
    """Where the form leads to is a path of this server, whatever was given."""
    form = {"token": secrets["anna"], "then": target}
    answer = server.client.post(server.url + "login", data=form)
    server.client.cookies.clear()

    assert answer.headers["location"] == "/"


def test_a_wrong_token_is_refused_by_the_form(server):
    """The form says that a token is not known, and gives no cookie."""
    answer = server.client.post(server.url + "login", data={"token": "<b>wrong", "then": "/"})

    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert "not known" in answer.text
    assert server.client.post(server.url + "login", content=b"\xff").status_code == 400


def test_a_link_on_another_site_leads_in(server, secrets):
    """The cookie is not sent with a click elsewhere: the form asks again, by itself, once."""
    clicked = {"sec-fetch-site": "cross-site", **PAGE}
    path = "/login?then=%2Fcrawls%2Fbooks%2Foverview"
    first = server.ask("GET", path, headers=clicked)
    again = first.headers["refresh"].removeprefix("0; url=")
    form = {"token": secrets["anna"], "then": "/"}
    given = server.client.post(server.url + "login", data=form).headers["set-cookie"]
    server.client.cookies.clear()
    cookie = {"cookie": given.partition(";")[0]}

    assert server.ask("GET", again, headers=cookie).headers["location"] == "/crawls/books/overview"
    assert "refresh" not in server.ask("GET", again, headers=clicked).headers


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["add", "anna", "--role", "read"], "already"),
        (["add", "a b", "--role", "read"], "cannot name a token"),
        (["remove", "ann"], "did you mean 'anna'?"),
    ],
)
def test_tokens_that_cannot_be_made_or_removed(server, arguments, said):
    """A name that is taken, that is none, or that nobody has, is refused in one line."""
    with pytest.raises(AssertionError, match="scrapy itemgraph: ") as refused:
        server.itemgraph("token", *arguments)

    assert said in str(refused.value)
