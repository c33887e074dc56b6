"""What a server does for crawls that nobody runs, where its role may."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from conftest import new_database
from support import web_servers
from support.projects import until

from scrapy_itemgraph import SetTTL
from scrapy_itemgraph.model.roles import RoleKind
from scrapy_itemgraph.store.registry import runs, workers

if TYPE_CHECKING:
    from collections.abc import Iterator

C = "/api/v1/crawls/books"
NUMBERS = """
    SELECT (SELECT count(*) FROM work w JOIN tasks t ON t.id = w.task_id
            WHERE w.token IS NULL AND t.name = 'parse'),
        (SELECT count(*) FROM results WHERE due_at < now()),
        (SELECT count(*) FROM processes WHERE stopped_at IS NULL)
"""


@pytest.fixture
def idle(server_url, template) -> Iterator[str]:
    """Yield a database whose one worker is dead; a result fell due, and a claim is left."""
    with new_database(server_url, template) as url, web_servers.crawl_of(url) as crawl:
        runs.join(crawl.connection, crawl.id)
        workers.mark_started(crawl.connection, crawl.worker)
        crawl.done("OLD", SetTTL("1s"))
        crawl.claimed("LEFT")
        for past in (
            "results SET due_at = now() - interval '1 s', expires_at = now() - interval '1 s'",
            "processes SET lease_until = now() - interval '1 s'",
        ):
            crawl.connection.execute(sa.text(f"UPDATE {past}"))
        crawl.connection.commit()
        yield url


def numbers(url: str) -> tuple[int, int, int]:
    """Return how much work of a task waits, how many results are past, and workers left."""
    return tuple(web_servers.rows(url, NUMBERS)[0])


def test_servers_do_what_is_due_of_a_crawl_that_nobody_runs(idle):
    """Two at once: each thing is done once, and pages and status show it."""
    before = numbers(idle)
    with ExitStack() as stack:
        one, other = (stack.enter_context(web_servers.serving(idle)) for _ in range(2))
        until(lambda: numbers(idle)[1:] == (0, 0))
        status = one.get(C)
        (run,) = other.get(f"{C}/runs")
        assert [server.stop()[0] for server in (one, other)] == [0, 0]

    assert (before, numbers(idle)) == ((0, 1, 1), (2, 0, 0))
    assert (run["state"], run["reason"]) == ("stopped", "died")
    (parse,) = [task for task in status["tasks"] if task["name"] == "parse"]
    assert (parse["waiting"], parse["due"]) == (2, 0)
    died = "SELECT count(*) FROM attempts WHERE outcome = 'died'"
    assert web_servers.rows(idle, died) == [(1,)]
    assert web_servers.rows(idle, "SELECT sum(deaths) FROM work") == [(1,)]


@pytest.mark.parametrize("kind", [RoleKind.READ_ONLY, RoleKind.SCHEDULER])
def test_a_server_whose_role_may_not_says_so_once_and_does_none(idle, kind):
    """What fell due stays so; the server serves as it did."""
    before = numbers(idle)
    name = f"{kind}_{uuid.uuid4().hex[:8]}"
    with web_servers.role_of(idle, name, kind) as url, web_servers.serving(url) as server:
        (task,) = [one for one in server.get(f"{C}/tasks") if one["due"]]
        code, said = server.stop()

    assert numbers(idle) == before
    assert task["due"] == 1
    assert code == 0
    assert said.count("are left to workers and other servers") == 1, said
