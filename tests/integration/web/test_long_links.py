"""Links that are longer than URLLENGTH_LIMIT, over HTTP and in the cockpit."""

from __future__ import annotations

import pytest
from conftest import new_database
from support import web_servers

RUNS = """
    INSERT INTO runs (crawl_id, number, started_at, long_links, url_limit)
    SELECT id, run, now(), {} FROM crawls
"""


@pytest.fixture(scope="module")
def filled(server_url, template):
    """Yield a database with a crawl `books`, which has had no run."""
    with new_database(server_url, template) as url, web_servers.crawl_of(url) as crawl:
        crawl.connection.commit()
        yield url


def test_a_run_says_how_many_links_it_left_out(web, filled, engine_of):
    """The status, the list of runs, and their pages of the cockpit say so, where there are some."""
    found, pages = [], []
    for numbers in ("0, NULL", "1, 2083", "12345, 2083"):
        with engine_of(filled).begin() as connection:
            connection.exec_driver_sql("DELETE FROM runs")
            connection.exec_driver_sql(RUNS.format(numbers))
        (listed,) = web.get("/api/v1/crawls/books/runs")
        run = web.get("/api/v1/crawls/books")["run"]
        assert {name: listed[name] for name in run} == run
        found.append((run["long_links"], run["url_limit"]))
        pages.append([web.ask("GET", f"/crawls/books{path}").text for path in ("", "/runs")])

    assert found == [(0, None), (1, 2083), (12345, 2083)]
    for none, one, many in zip(*pages, strict=True):
        assert "URLLENGTH_LIMIT" not in none
        assert "1 link longer than URLLENGTH_LIMIT (2,083) was left out" in one
        assert "12,345 links longer than URLLENGTH_LIMIT (2,083) were left out" in many
