"""Errors in the midst of the COPY by which items are added."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from scrapy_itemgraph import CreateItem
from scrapy_itemgraph.exceptions import DatabaseError, DatabaseUnavailableError
from scrapy_itemgraph.graph import ItemGraph

pytestmark = pytest.mark.server

GIVEN = [CreateItem(f"A{number}", tags=["page"]) for number in range(10)]


@pytest.fixture
def graph(database):
    """Yield a graph with nothing in it."""
    with ItemGraph.open(database, "books") as graph:
        yield graph


def fail_once(engine: sa.Engine, table: str, how: str) -> None:
    """Have the first fifth row that is written to a table do something."""
    body = f"BEGIN IF nextval('rows_written') = 5 THEN {how}; END IF; RETURN NEW; END"
    with engine.begin() as connection:
        for statement in (
            "CREATE SEQUENCE rows_written",
            f"CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $${body}$$",
            f"CREATE TRIGGER fail BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION fail()",
        ):
            connection.execute(sa.text(statement))


def added(engine: sa.Engine) -> list[int]:
    """Return how many items, tags and names there are."""
    with engine.connect() as connection:
        tables = ("items", "tags", "aliases")
        return [connection.scalar(sa.text(f"SELECT count(*) FROM {one}")) for one in tables]


@pytest.mark.parametrize("table", ["items", "tags"])
def test_a_deadlock_amid_a_copy_is_tried_again(graph, engine, table):
    """What PostgreSQL ended for the sake of another is done again, and each item is added once."""
    fail_once(engine, table, "RAISE EXCEPTION 'deadlock' USING ERRCODE = '40P01'")

    notes = graph.apply(GIVEN)

    assert [note.label for note in notes] == ["new"] * 10
    assert added(engine) == [10, 10, 10]


@pytest.mark.parametrize("table", ["items", "tags"])
def test_a_connection_that_is_lost_amid_a_copy_leaves_nothing(graph, engine, table):
    """The error says that the database is not there; the next try adds each item once."""
    fail_once(engine, table, "PERFORM pg_terminate_backend(pg_backend_pid())")

    with pytest.raises(DatabaseUnavailableError):
        graph.apply(GIVEN)

    assert added(engine) == [0, 0, 0]
    graph.apply(GIVEN)
    assert added(engine) == [10, 10, 10]


def test_what_the_database_refuses_amid_a_copy_is_one_clear_line(graph, engine):
    """An error about a row is told as that of a statement is, and nothing is added."""
    fail_once(engine, "tags", "RAISE EXCEPTION 'no more tags here'")

    with pytest.raises(DatabaseError, match=r"The database refuses: .*no more tags here"):
        graph.apply(GIVEN)

    assert added(engine) == [0, 0, 0]
