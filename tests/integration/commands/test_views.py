"""Views of jobs and schedules in the shape of Ssscrape's tables, for the roles of its notes."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest
import sqlalchemy as sa

from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model.crawl_states import NewCrawl
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import urls
from scrapy_itemgraph.postgres.grants import quote
from scrapy_itemgraph.store.registry import crawl_queue

if TYPE_CHECKING:
    from collections.abc import Iterator

# The columns that Ssscrape's notes give both tables, in their order, and three of its code.
COLUMNS = [
    *("id", "type", "program", "args", "state", "message", "output", "hostname", "process_id"),
    *("exit_code", "completed", "scheduled", "start", "end", "last_update"),
    *("attempts", "task_id", "resource_id"),
]


@pytest.fixture
def crawls(database, engine) -> sa.Engine:
    """Make two crawls of one spider, and one that is at its end; return the database's engine."""
    with engine.begin() as connection:
        for name, arguments in (("one", {"cat": "1"}), ("two", {"cat": "2"}), ("over", {})):
            spider = "boats" if name == "over" else "books"
            new = NewCrawl(
                spider=spider, name=name, project="shop", arguments=arguments, settings={}
            )
            crawl_queue.add(connection, new, by="ann")
        connection.execute(sa.text("UPDATE crawls SET state = 'finished' WHERE name = 'over'"))
    return engine


@pytest.fixture
def logins(server_url, database) -> Iterator[dict[str, str]]:
    """Yield URLs of roles that have no rights yet, by the kind that they are to be."""
    names = {kind: f"{kind}%_{uuid.uuid4().hex[:8]}" for kind in ("worker", "scheduler", "reader")}
    admin = engines.sync_engine(server_url)
    with admin.begin() as connection:
        for name in names.values():
            made = f"CREATE ROLE {quote(name)} LOGIN PASSWORD 'sesame'"
            connection.exec_driver_sql(made.replace("%", "%%"))
    url = urls.normalise_url(database)
    yield {
        kind: url.set(username=name, password="sesame").render_as_string(hide_password=False)
        for kind, name in names.items()
    }
    owner = engines.sync_engine(database)
    for engine, statement in ((owner, "DROP OWNED BY {}"), (admin, "DROP ROLE {}")):
        with engine.begin() as connection:
            for name in names.values():
                connection.exec_driver_sql(statement.format(quote(name)).replace("%", "%%"))
        engine.dispose()


def as_(url: str, statement: str, *given: object) -> list[tuple]:
    """Carry SQL out with a role's login, and return the rows, if it has some."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        done = connection.execute(statement, given)
        return done.fetchall() if done.description else []


def role(url: str) -> str:
    """Return the name of a login."""
    return urls.normalise_url(url).username or ""


@pytest.fixture
def views(scrapy, crawls, database, logins) -> dict[str, str]:
    """Make the views, with a job that waits; return URLs of roles by kind, and the owner's."""
    kinds = {"worker": "--worker", "scheduler": "--scheduler", "reader": "--read-only"}
    options = [word for kind, option in kinds.items() for word in (option, role(logins[kind]))]
    assert scrapy("views", "ssscrape", *options, "--apply").code == 0
    as_(database, "INSERT INTO ssscrape.job (program) VALUES ('one')")
    return {**logins, "owner": database}


def test_jobs_are_read_and_asked_for_as_the_notes_say(views, crawls):
    """SS-2, SS-3, SS-5: with rights to the views alone a role adds a job, or says how far it is."""
    soon = datetime.now(UTC) + timedelta(hours=1)
    add = "INSERT INTO ssscrape.job (type, program, args, scheduled) VALUES (%s, %s, %s, %s)"

    as_(views["scheduler"], add, "shop", "books", '{"cat": "2"}', None)
    as_(views["worker"], add, None, "over", None, soon)
    as_(views["worker"], "UPDATE ssscrape.job SET message = 'fetching foo' WHERE program = 'books'")
    waiting = as_(
        views["reader"],
        "SELECT program, args, state, message, completed, scheduled FROM ssscrape.job"
        " WHERE state = 'pending' ORDER BY id",
    )
    with crawls.begin() as connection:
        over = connection.execute(
            sa.text("SELECT state, next_at FROM crawls WHERE name = 'over'")
        ).one()
        by = connection.scalar(sa.text("SELECT \"by\" FROM crawl_events WHERE what = 'revived'"))

    (_, books, boats) = waiting
    assert books[:5] == ("books", '{"cat": "2"}', "pending", "fetching foo", False)
    assert boats[0] == "boats"
    assert boats[-1] == soon
    assert (over.state, over.next_at) == ("active", soon)
    assert by == role(views["worker"])
    for table in ("job", "job_log"):
        with psycopg.connect(views["reader"].replace("+psycopg", "")) as connection:
            shown = connection.execute(f"SELECT * FROM ssscrape.{table}")
            assert [column.name for column in shown.description or ()] == COLUMNS


@pytest.mark.parametrize(
    ("kind", "statement", "said"),
    [
        ("worker", "UPDATE ssscrape.job SET state = 'completed'", "permission denied"),
        ("scheduler", "UPDATE ssscrape.job SET message = 'x'", "permission denied"),
        ("scheduler", "DELETE FROM ssscrape.job", "cannot delete from view"),
        ("owner", "UPDATE ssscrape.job SET attempts = 3", "jobs cancel, retry"),
        ("scheduler", "SELECT * FROM jobs", "permission denied"),
        ("reader", "INSERT INTO ssscrape.job (program) VALUES ('over')", "permission denied"),
        ("worker", "INSERT INTO ssscrape.job (program) VALUES ('no')", "crawls add puts one there"),
        ("worker", "INSERT INTO ssscrape.job (program) VALUES ('books')", "2 crawls are meant"),
        (
            "worker",
            "INSERT INTO ssscrape.job (program, type) VALUES ('over', 'p')",
            "has no crawl over of the project p",
        ),
    ],
)
def test_what_a_role_may_not_is_refused(views, kind, statement, said):
    """SS-2: a worker changes messages alone, a scheduler adds alone; errors say what to do."""
    with pytest.raises(psycopg.Error) as caught:
        as_(views[kind], statement)

    hint = caught.value.diag.message_hint or ""
    assert said in f"{caught.value} {hint}"


def test_schedules_and_resources_are_tasks_and_resources(views, crawls):
    """SS-6: when a task runs, and how long a resource rests between two of its processes."""
    with crawls.begin() as connection:
        connection.execute(
            sa.text(
                "INSERT INTO limits (kind, name, set_gap) VALUES ('resource', 'host:80', 10);"
                "INSERT INTO schedules (crawl_id, kind, spec, starts_at) SELECT id, 'at', '03:15',"
                " now() FROM crawls WHERE name = 'one';"
                "INSERT INTO schedules (crawl_id, kind, spec, starts_at, is_enabled)"
                " SELECT id, 'every', '6h', now(), false FROM crawls WHERE name = 'two'"
            )
        )

    tasks = as_(
        views["reader"],
        "SELECT program, state, periodicity, hour, minute FROM ssscrape.task ORDER BY id",
    )
    resources = as_(views["reader"], 'SELECT name, "interval" FROM ssscrape.resource')

    assert tasks == [("books", "enabled", None, 3, 15), ("books", "disabled", "6h", None, None)]
    assert resources == [("host:80", timedelta(seconds=10))]


def test_views_are_printed_made_again_and_dropped(scrapy, crawls, database):
    """Nothing is done unless it is asked for; what is there is made anew, and goes without loss."""
    printed = scrapy("views", "ssscrape", "--worker", "ann", "--json").document
    with pytest.raises(psycopg.errors.UndefinedTable):
        as_(database, "SELECT FROM ssscrape.job")
    twice = [scrapy("views", "ssscrape", "--apply").code for _ in range(2)]
    unknown = scrapy("views", "ssscrape", "--worker", "nobody", "--apply")
    dropped = scrapy("views", "ssscrape", "--drop", "--apply")

    assert any('ON ssscrape.job TO "ann"' in one for one in printed["statements"])
    assert twice == [0, 0]
    assert "CREATE ROLE nobody" in unknown.err
    assert dropped.out == "the views ssscrape.* are gone\n"
    with ItemGraph.open(database) as graph:
        assert len(graph.queue.list()) == 2
