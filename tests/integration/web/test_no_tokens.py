"""Without tokens: who is served before the first one, and that nobody is after the last."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.graphs import Crawl
from support.web_servers import asked

from scrapy_itemgraph.web import access
from scrapy_itemgraph.web.app import create_app
from scrapy_itemgraph.web.graphs import Graphs

if TYPE_CHECKING:
    from collections.abc import Iterator

ITEM = "/items/A"
MAKE = "scrapy itemgraph token add NAME --role operate"


@pytest.fixture
def graphs(database, engine, monkeypatch) -> Iterator[Graphs]:
    """Yield the graphs of a database with one item; tokens are read for each request."""
    monkeypatch.setattr(access, "REMEMBERED", 0.0)
    with engine.begin() as connection:
        Crawl.of(connection).work("A")
    with Graphs.open(database, "books") as one:
        yield one


def add(graphs) -> dict[str, str]:
    """Make a token, and return the header that has it."""
    return {"authorization": f"Bearer {graphs.served.tokens.add('anna', 'operate')}"}


def status(app, **options) -> int:
    """Return the status of the answer that has an item."""
    return asked(app, "GET", ITEM, **options).status_code


def test_removing_the_last_token_lets_nobody_in(graphs):
    """Who ever needed a token needs one, also when there is none; a new one lets in again."""
    app = create_app(graphs)
    assert status(app) == 200
    add(graphs)
    assert status(app) == 401
    graphs.served.tokens.remove("anna")
    for method, path in (("GET", ITEM), ("POST", "/items/add"), ("GET", "/metrics")):
        refused = asked(app, method, path)
        assert refused.status_code == 403
        assert MAKE in refused.json()["detail"]
    assert status(app, headers=add(graphs)) == 200


def test_that_there_were_tokens_outlasts_the_server(graphs):
    """An application that is made after the last token was removed lets nobody in, too."""
    add(graphs)
    graphs.served.tokens.remove("anna")

    assert status(create_app(graphs)) == 403


def test_a_token_that_came_and_went_unseen_counts(graphs):
    """A token that was made and removed while nobody asked ends what was open before it."""
    apps = [create_app(graphs), create_app(graphs, without_tokens=True)]
    assert [status(app) for app in apps] == [200, 200]
    add(graphs)
    graphs.served.tokens.remove("anna")

    assert [status(app) for app in apps] == [403, 403]


def test_a_server_that_has_seen_tokens_stays_closed(graphs, engine):
    """Also where the database forgets that it had some, as one that is restored."""
    app = create_app(graphs)
    add(graphs)
    assert status(app) == 401
    with engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM tokens")
        connection.exec_driver_sql("DELETE FROM tokens_made")

    assert status(app) == 403
    assert status(create_app(graphs)) == 200


def test_no_tokens_are_wanted_once_that_is_said(graphs):
    """Told so, an application serves this machine, and it alone, until there is another token."""
    add(graphs)
    graphs.served.tokens.remove("anna")
    app = create_app(graphs, without_tokens=True)

    assert status(app) == 200
    assert status(app, client=("192.0.2.1", 1)) == 403
    assert status(app, headers={"x-forwarded-for": "192.0.2.1"}) == 403
    add(graphs)
    assert status(app) == 401
    graphs.served.tokens.remove("anna")
    assert status(app) == 403


@pytest.mark.parametrize(
    "options", [{"any_address": True}, {"allowed_hosts": ["a.example"]}, {"allowed_hosts": ["*"]}]
)
def test_a_server_that_others_reach_never_goes_without(graphs, options):
    """With other names than this machine's, or addresses, all is refused without tokens."""
    apps = [create_app(graphs, **options), create_app(graphs, without_tokens=True, **options)]

    assert [status(app) for app in apps] == [403, 403]
    header = add(graphs)
    assert [status(app, headers=header) for app in apps] == [200, 200]
