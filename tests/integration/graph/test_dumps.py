"""Whole crawls as lines of JSON: what is dumped and loaded again is the same graph."""

from __future__ import annotations

import itertools
import json
from datetime import datetime, timedelta
from functools import partial

import pytest
import sqlalchemy as sa
from conftest import new_database
from support import graphs, oracle

from scrapy_itemgraph.exceptions import OperationError
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model import operations as ops
from scrapy_itemgraph.model.moments import EARLIEST, LATEST
from scrapy_itemgraph.model.work import Outcome
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.store.admin import load

pytestmark = pytest.mark.server

TASKS = {
    "parse": {"tags": ["page"], "version": "2", "ttl": "30d"},
    "index": {"tags": ["list", "page"], "nice": 5, "slot": "elsewhere.example", "max_failures": 9},
    "review": {"tags": ["page"], "depends_on": ["parse"]},
    "rated": {
        "tags": ["rated"],
        "at": "3:00",
        "time_zone": "Asia/Tokyo",
        "rate_limit_by_tag": {"rated": "1/s"},
    },
}

# A document as only other programs write it: digits, escapes and white space of its own.
STRANGE = sa.text("UPDATE items SET data = CAST(:data AS json) WHERE name = 'D'")
DATA = '{"a": 1.10, "b": 1e5,\n "c": "\\u00fc \\ud83d\\ude00", "d": ' + "9" * 5000 + ', "a": [ ]}'


JOURNAL = """
    INSERT INTO journal (crawl_id, item_id, task_id, item_class, fields)
    SELECT 1, min(i.id), min(t.id), 'dict', '{"price": 1.50}' FROM items i, tasks t
"""

LED_TO_C = """
    UPDATE results SET led_to = (SELECT key FROM aliases WHERE name = 'C')
    WHERE item_id = 1 AND completed_at IS NOT NULL"""
RULES = (
    """
    INSERT INTO rulesets (crawl_id, number, rules, created_by, note) VALUES
        (1, 1, '{"accept": false, "rules": []}', 'ann', NULL),
        (1, 2, '{"accept": true, "rules": [{"match": "/junk/", "skip": true}]}', 'bob', 'no end')
    """,
    "UPDATE crawls SET ruleset_id = (SELECT id FROM rulesets WHERE number = 2)",
    "UPDATE attempts SET ruleset_id = (SELECT id FROM rulesets WHERE number = 1) WHERE id = 1",
    "INSERT INTO sweeps (crawl_id, tags, ruleset_id) SELECT 1, '{}', max(id) FROM rulesets",
)


def fill(connection):
    """Make a crawl that has some of everything."""
    crawl = graphs.Crawl(connection)
    crawl.register(**TASKS, default_ttl=timedelta(days=7))
    crawl.do(
        ops.CreateItem("A", ["page"], {"url": "http://a.example/A", "ü": ["☃", None, 0.1, 2**70]}),
        ops.CreateItem(
            "B", {"page": {"x": [1, "y"]}, "rated": "high"}, {}, aliases=["B2", 'B"3\\']
        ),
        ops.CreateItem("C", ["list"], {"url": "http://c.example/"}, nice=-3, created_by="A"),
        ops.CreateItem("D", ["page"], not_before=timedelta(days=1)),
        ops.CreateItem("E", ["page"]),
        ops.CreateItem("gone"),
        ops.DeleteItem("gone", forget=False),
    )
    crawl.done("A", ops.UpdateMetadata({"pages": 3}), ops.SetTTL(timedelta(hours=1)))
    crawl.failed("B")
    crawl.failed("E")
    crawl.end(crawl.claimed("C", "index"), outcome=Outcome.RETRY, delay=timedelta(hours=2))
    crawl.end(crawl.claimed("A", "index"), outcome=Outcome.REFUSED)
    with_failures = "UPDATE failures SET handled_at = now(), handled_by = 'a person' WHERE id = 1"
    for statement in (
        with_failures,
        LED_TO_C,
        "UPDATE work SET deaths = 2, alone_deaths = 1 WHERE item_id = (SELECT max(id) FROM items)",
        'UPDATE work SET request = \'{"url": "http://c.example/2"}\' WHERE tries > 0',
        'UPDATE attempts SET log = \'[{"message": "hm"}]\', scraped = 2 WHERE id = 1',
        "INSERT INTO spider_state (crawl_id, key, value) VALUES (1, '\"n\"', '[1, 2]')",
        "INSERT INTO spider_state (crawl_id, key) VALUES (1, '\"gone\"')",
        JOURNAL,
        "INSERT INTO journal (crawl_id, item_class, fields) VALUES (1, 'shop.Item', '{}')",
        *RULES,
    ):
        connection.exec_driver_sql(statement)
    crawl.claim(1)
    crawl.register(**TASKS, more={"tags": ["list"]}, default_ttl=timedelta(days=7), swept=False)
    return crawl


@pytest.fixture
def filled(database, engine):
    """Yield a database with a crawl `books` that has some of everything."""
    with engine.begin() as connection:
        fill(connection)
    return database


def lines_of(database, crawl="books"):
    """Return a dump."""
    with ItemGraph.open(database, crawl) as graph:
        return list(graph.crawls.dump())


def without_claims(connection, crawl_id):
    """Return outstanding work in the order in which it is done."""
    rows = connection.execute(
        sa.text("""
            SELECT i.name, t.name, l.name, w.is_stale, w.nice, w.tries, w.deaths, w.not_before
            FROM work w JOIN items i ON i.id = w.item_id JOIN tasks t ON t.id = w.task_id
            JOIN queues q ON q.id = w.queue_id JOIN limits l ON l.id = q.slot_id
            WHERE w.crawl_id = :crawl ORDER BY w.seq
        """),
        {"crawl": crawl_id},
    )
    return [tuple(row) for row in rows]


CLAIMED = ',"is_claimed":true'


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_round_trip_gives_the_same_graph(filled, engine, server_url, template, elsewhere):
    """A loaded crawl is dumped as the one it came from, here and on a server of other numbers."""
    dumped = lines_of(filled)
    with new_database(server_url, template) as other:
        target = other if elsewhere else filled
        with ItemGraph.open(target, "moved") as graph:
            counts = graph.crawls.load(dumped)
        again = lines_of(target, "moved")
        loaded = engines.sync_engine(target)
        with loaded.connect() as connection, engine.connect() as origin:
            crawl_id = connection.scalar(sa.text("SELECT id FROM crawls WHERE name = 'moved'"))
            oracle.assert_worklist_is_true(connection, crawl_id)
            oracle.assert_rows_have_items(connection)
            assert graphs.graph_state(connection, crawl_id) == graphs.graph_state(origin, 1)
            assert without_claims(connection, crawl_id) == without_claims(origin, 1)
        loaded.dispose()

    assert again[1:] == [line.replace(CLAIMED, "") for line in dumped[1:]]
    assert any('"scraped":2' in line for line in again)
    assert counts == {"items": 5, "failures": 3, "scraped": 2}
    assert {json.loads(line).get("kind") for line in dumped[1:]} == {
        *("crawl", "task", "state", "ruleset", "sweep", "item", "taken", "failure", "scraped"),
        "end",
    }
    assert any('"ruleset":1' in line for line in again if '"kind":"item"' in line)


def test_documents_keep_every_letter(filled, engine):
    """Digits, escapes and keys that occur twice are as they were; only newlines are blanks."""
    with engine.begin() as connection:
        connection.execute(STRANGE, {"data": DATA})
    dumped = lines_of(filled)

    with ItemGraph.open(filled, "moved") as graph:
        graph.crawls.load(dumped)

    with engine.connect() as connection:
        found = connection.execute(
            sa.text("SELECT CAST(data AS text) FROM items WHERE name = 'D' ORDER BY id")
        ).scalars()
        assert list(found) == [DATA, DATA.replace("\n", " ")]


def test_escapes_beside_the_number_of_a_ruleset_do_no_harm(filled, engine):
    """An item whose data another program escaped names its rules, as do rules that need escapes."""
    with engine.begin() as connection:
        connection.exec_driver_sql("""UPDATE items SET data = '{"a": "\\u00fc", "b": 1.10}'""")
        connection.exec_driver_sql("UPDATE rulesets SET note = 'a\x01b'")
    dumped = lines_of(filled)

    with ItemGraph.open(filled, "moved") as graph:
        graph.crawls.load(dumped)

    again = lines_of(filled, "moved")
    assert "u00fc" in "".join(dumped)
    assert again[1:] == [line.replace(CLAIMED, "") for line in dumped[1:]]


def test_what_is_loaded_is_worked_on(filled, engine):
    """A start of its spider finds nothing changed in a loaded crawl, and claims its work."""
    dumped = lines_of(filled)
    with ItemGraph.open(filled, "moved") as graph:
        graph.crawls.load(dumped)

    with engine.begin() as connection:
        moved = graphs.Crawl(connection, "moved")
        registered = moved.register(**TASKS, more={"tags": ["list"]}, default_ttl=timedelta(days=7))
        claims = moved.claim()
        assert not registered.changed
        assert {(claim.item.id, claim.task) for claim in claims} >= {("A", "review"), ("C", "more")}
        assert all(moved.end(claim).outcome is Outcome.OK for claim in claims)
        moved.work("F")
        assert moved.claim_pair("F") is not None


def test_claimed_work_that_nothing_calls_for_is_not_loaded(database, engine):
    """A claim stands though its reason goes; loaded it would be work that nobody takes away."""
    with engine.begin() as connection:
        crawl = graphs.Crawl.of(connection)
        crawl.item("A", tags=["page"])
        crawl.item("B", tags=["page"])
        assert len(crawl.claim()) == 2
        crawl.do(ops.RemoveTag("page", id="A"))
        before = crawl.rows("SELECT count(*) FROM work")

    with ItemGraph.open(database, "moved") as graph:
        graph.crawls.load(lines_of(database))

    with engine.begin() as connection:
        moved = graphs.Crawl(connection, "moved")
        oracle.assert_worklist_is_true(connection, moved.id)
        assert before == [(2,)]
        assert moved.worklist() == ["B parse"]


def test_nobody_sees_a_crawl_before_it_is_whole(filled):
    """While lines are read others find no such crawl; when a line is wrong there never was one."""
    dumped = lines_of(filled)
    seen = []

    def lines():
        for line in dumped:
            with ItemGraph.open(filled) as other:
                seen.append(other.crawls.names())
            yield line
        yield '{"kind": "item"}'

    with ItemGraph.open(filled, "moved") as graph:
        with pytest.raises(OperationError, match=f"line {len(dumped) + 1}: there is a line after"):
            graph.crawls.load(lines())
        assert seen == [["books"]] * len(dumped)
        assert graph.crawls.names() == ["books"]


def changed(kind, lines, name=None, **members):
    """Return lines of which the first of a kind, or of its name, has other members."""
    read = [json.loads(line) for line in lines]
    found = next(one for one in read if one.get("kind") == kind and name in {None, one.get("id")})
    found.update(members)
    return [json.dumps(one) for one in read]


def expiring(lines, seconds=0, moment=None):
    """Return lines whose first result expires so long after its completion."""
    read = [json.loads(line) for line in lines]
    result = next(
        one
        for line in read
        for one in line.get("results", ())
        if one["task"] == "parse" and one.get("completed_at")
    )
    expires = datetime.fromisoformat(result["completed_at"]) + timedelta(seconds=seconds)
    result["expires_at"] = moment or expires.isoformat()
    return [json.dumps(one) for one in read]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda lines: lines[:-1], "no line of the kind 'end': it was cut off, so nothing"),
        (lambda lines: [*lines[:-2], lines[-1]], "lines are missing"),
        (lambda lines: lines[1:], "line 1: this is no dump of a crawl"),
        (lambda _: ["x"], "line 1: this is no dump of a crawl"),
        (lambda _: [], "line 1: this is no dump of a crawl"),
        (lambda _: ['{"itemgraph_dump": 3, "crawl": "x"}'], "format 3 was made by a newer version"),
        (lambda lines: [lines[0], lines[1][:-9]], "line 2: it is not JSON"),
        (lambda lines: [lines[0], "[]"], "line 2: it is not a JSON object"),
        (lambda lines: [lines[0], "[" * 100_000], "line 2: it is not JSON"),
        (lambda lines: [lines[0], '{"kind": "cookie"}'], "line 2: there is no kind 'cookie'"),
        (
            lambda lines: [lines[0], '{"kind": "task"}'],
            "line 2: there is no 'name'",
        ),
        (
            lambda lines: [line for line in lines if '"task"' not in line[:20]],
            "line 8: the dump has no task",
        ),
        (
            lambda lines: [
                *lines[:-1],
                next(line for line in lines if '"item"' in line),
                lines[-1],
            ],
            "duplicate key",
        ),
        (
            lambda lines: [line.replace('"id":"A"', '"id":""') for line in lines],
            "line [0-9]+: id is empty",
        ),
        *(
            (partial(changed, "item", name="E", data=data), "line [0-9]+: 'data' is no JSON object")
            for data in ([1], "x", None, 1.5)
        ),
        (
            lambda lines: [
                line.replace('"data":{}', '"data":[1.10]') if '"id":"E"' in line else line
                for line in lines
            ],
            r"line [0-9]+: 'data' is no JSON object: '\[1.10\]'",
        ),
        (partial(changed, "failure", error=[]), "lines? [0-9]+.*: 'error' is no JSON object"),
        (partial(changed, "scraped", fields="x"), "lines? [0-9]+.*: 'fields' is no JSON object"),
        (partial(changed, "crawl", arguments=[1]), "line 2: 'arguments' is no JSON object"),
        (partial(expiring, seconds=0), "line [0-9]+: a result of the task 'parse' expires at"),
        (partial(expiring, seconds=-5), "line [0-9]+: a result of the task 'parse' expires at"),
        (
            partial(expiring, moment="-infinity"),
            "line [0-9]+: a result of the task 'parse' expires",
        ),
        *(
            (partial(changed, "task", ttl=ttl), "line 3: ttl of the task 'parse' is")
            for ttl in ("0", "-1 day", "200 years")
        ),
    ],
)
def test_a_damaged_dump_is_refused(filled, change, error):
    """The error names the line and what is wrong, and nothing is loaded."""
    damaged = change(lines_of(filled))

    with ItemGraph.open(filled, "moved") as graph:
        with pytest.raises(OperationError, match=error):
            graph.crawls.load(damaged)
        assert graph.crawls.names() == ["books"]


def test_a_run_that_is_loaded_did_not_begin_in_the_future(filled, engine):
    """Or whatever falls due before that moment would be done again and again at once."""
    later = {"run_started_at": "2999-01-01T00:00:00Z", "run_finished_at": "2999-01-01T00:00:00Z"}
    with ItemGraph.open(filled, "moved") as graph:
        graph.crawls.load(changed("crawl", lines_of(filled), **later))

    with engine.begin() as connection:
        row = connection.exec_driver_sql(
            "SELECT r.started_at <= now(), r.ended_at <= now()"
            " FROM runs r JOIN crawls c ON c.id = r.crawl_id WHERE c.name = 'moved'"
        ).one()
    assert row == (True, True)


def test_long_lines_are_written_few_at_a_time(database, engine, monkeypatch):
    """What waits to be written is bounded by its length, and not by its number alone."""
    with engine.begin() as connection:
        crawl = graphs.Crawl(connection)
        crawl.register(**TASKS)
        crawl.do(*(ops.CreateItem(f"I{n}", ["page"], {"x": "x" * 1000}) for n in range(50)))
    dumped = lines_of(database)
    steps = []
    monkeypatch.setattr(load, "STEP_CHARACTERS", 5_000)
    write = load.Load._items
    monkeypatch.setattr(
        load.Load, "_items", lambda self, lines: (steps.append(len(lines)), write(self, lines))
    )

    with ItemGraph.open(database, "moved") as graph:
        graph.crawls.load(dumped)

    assert sum(steps) == 50
    assert max(steps) < 6


def test_a_crawl_that_exists_is_not_loaded_into(filled):
    """A dump is loaded into a new crawl alone; without a name that is the dump's own."""
    with (
        ItemGraph.open(filled) as graph,
        pytest.raises(OperationError, match="there is a crawl 'books' already"),
    ):
        graph.crawls.load(lines_of(filled))


def test_many_items_are_written_in_parts(database, engine, monkeypatch):
    """However many items, names that stay taken and scraped items there are, all arrive."""
    monkeypatch.setattr(load, "STEP", 7)
    with engine.begin() as connection:
        crawl = graphs.Crawl.of(connection)
        names = [f"i{number}" for number in range(60)]
        crawl.do(*(ops.CreateItem(name, ["page"]) for name in names))
        crawl.do(*(ops.DeleteItem(name, forget=False) for name in names[::2]))
    dumped = lines_of(database)

    with ItemGraph.open(database, "moved") as graph:
        assert graph.crawls.load(dumped)["items"] == 30
        assert [item.id for item in graph.items()] == names[1::2]

    assert lines_of(database, "moved")[1:] == dumped[1:]


def test_a_dump_is_of_one_moment(filled):
    """What is committed while lines are read is not in them."""
    with ItemGraph.open(filled, "books") as graph, ItemGraph.open(filled, "books") as other:
        lines = graph.crawls.dump()
        read = list(itertools.islice(lines, 3))
        other.apply([ops.CreateItem("later"), ops.DeleteItem("A")])
        rest = list(lines)

    ids = [json.loads(line).get("id") for line in (*read, *rest)]
    assert "A" in ids
    assert "later" not in ids


def test_status_shows_a_dump_and_a_load_under_way(filled):
    """Others see what is dumped or loaded, and how many items that is so far."""
    seen = {}
    with ItemGraph.open(filled, "books") as graph, ItemGraph.open(filled, "books") as other:
        graph.apply([ops.CreateItem(f"N{number}") for number in range(4500)])

        def look(_lines: int) -> None:
            for one in other.status()["under_way"]:
                seen.setdefault(one["what"], []).append((one["done"], one["total"]))

        dumped = []
        for number, line in enumerate(graph.crawls.dump()):
            dumped.append(line)
            if number % 1000 == 500:
                look(number)
        with ItemGraph.open(filled, "moved") as moved:
            moved.crawls.load(dumped, reached=look)
        assert other.status()["under_way"] == []

    assert seen["dump"][-1] == (4001, 4505)
    assert seen["load"][-1] == (2000, None)


def test_moments_that_python_cannot_say_are_loaded_as_the_nearest(database, tmp_path):
    """What a dump has of them stops neither the load nor whoever reads the items afterwards."""
    with ItemGraph.open(database, "books") as graph:
        graph.apply([ops.CreateItem("A", ["page"], {"url": "http://a.example/"})])
    engine = engines.sync_engine(database)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE items SET not_before = '294276-12-31', created_at = '4713-01-01 BC', "
            "updated_at = '-infinity'"
        )
    with ItemGraph.open(database, "books") as graph:
        lines = list(graph.crawls.dump())
    assert "294276" in "".join(lines)
    with ItemGraph.open(database, "copy") as graph:
        graph.crawls.load(lines)
        item = graph.get("A")
        assert (item.created_at, item.updated_at) == (EARLIEST, EARLIEST)
        graph.delete("A")
    with engine.begin() as connection:
        left = connection.exec_driver_sql("SELECT not_before FROM items").scalars().all()
    engine.dispose()
    assert left == [LATEST]
