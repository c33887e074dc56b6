"""A server that the tests of a module share, on a database of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from conftest import new_database
from support import web_servers

from scrapy_itemgraph.postgres import engine as engines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import sqlalchemy as sa
    from support.web_servers import Server


@pytest.fixture(scope="module")
def filled(server_url, template) -> Iterator[str]:
    """Yield a database with a crawl `books`, in which one item is done, one failed, one is not."""
    with new_database(server_url, template) as url, web_servers.crawl_of(url) as crawl:
        crawl.done("URL:https://a.example/1?x=y", data={"title": "One"})
        crawl.failed("FAILED")
        crawl.work("NEW")
        crawl.connection.commit()
        yield url


@pytest.fixture(scope="module")
def web(filled) -> Iterator[Server]:
    """Yield a server of that database without tokens."""
    with web_servers.serving(filled, "--crawl", "books") as server:
        yield server


@pytest.fixture
def engine_of() -> Iterator[Callable[[str], sa.Engine]]:
    """Yield a function that makes an engine, which is closed after the test."""
    made = []

    def of(url: str) -> sa.Engine:
        made.append(engines.sync_engine(url))
        return made[-1]

    yield of
    for engine in made:
        engine.dispose()
