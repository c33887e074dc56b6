"""Long work: operations in thousands, and what people see of how far it is."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import sqlalchemy as sa
from scrapy import cmdline
from scrapy.settings import Settings
from support import processes
from support.graphs import Crawl

from scrapy_itemgraph import ItemGraph
from scrapy_itemgraph.commands import streams
from scrapy_itemgraph.model.operations import DeleteItem
from scrapy_itemgraph.postgres import engine as engines
from scrapy_itemgraph.postgres import migrate
from scrapy_itemgraph.store.admin import crawl_changes, status
from scrapy_itemgraph.store.registry import item_sweeps
from scrapy_itemgraph.tools import progress


class Terminal(io.StringIO):
    """Standard error on a terminal."""

    encoding = "utf-8"

    def isatty(self):
        return True


def line(name, **fields):
    """Return an operation that creates an item, as a line."""
    return json.dumps({"op": "createItem", "id": name, "tags": ["page"], **fields}).encode() + b"\n"


@pytest.fixture
def items(engine):
    """Return a function that counts the items there are."""

    def count():
        with engine.connect() as connection:
            return connection.scalar(sa.text("SELECT count(*) FROM items"))

    return count


@pytest.fixture
def scrapy(capsys, monkeypatch, tmp_path, database):
    """Return a function that runs `scrapy itemgraph` for the crawl `books`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(streams, "STEP", 3)
    monkeypatch.setattr(streams, "STEP_OF_ADDITIONS", 3)

    def run(*arguments, stdin=b""):
        read = io.BytesIO(stdin) if isinstance(stdin, bytes) else stdin
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=read))
        given = {"ITEMGRAPH_DATABASE_URL": database, "ITEMGRAPH_CRAWL": "books"}
        capsys.readouterr()
        settings = Settings(given, priority="project")
        with pytest.raises(SystemExit) as exited:
            cmdline.execute(["scrapy", "itemgraph", *arguments], settings)
        written = capsys.readouterr()
        return SimpleNamespace(code=exited.value.code, out=written.out, err=written.err)

    return run


# Operations in thousands


@pytest.mark.parametrize("bad", [b"{\n", b'{"op": "updateData", "id": "nobody", "merge": {}}\n'])
def test_a_bad_line_leaves_the_transactions_before_it(scrapy, items, tmp_path, bad):
    """An error names the line, says what is applied, and how to go on from there."""
    lines = [line(f"{number}") for number in range(1, 12)]
    (tmp_path / "lines").write_bytes(b"".join([*lines[:7], bad, *lines[8:]]))

    ran = scrapy("apply", "lines")
    after = items()
    (tmp_path / "lines").write_bytes(b"".join(lines))
    rest = scrapy("apply", "lines", "--from", "7")

    assert ran.code == 1
    assert ran.err.startswith("scrapy itemgraph: line 8: ")
    assert ran.err.endswith(
        "; the 6 operations before line 7 are applied; to go on, mend what is wrong and add "
        "--from 7\n"
    )
    assert ran.out.splitlines() == [*(f"[new] {n}" for n in range(1, 7)), "6 operations applied"]
    assert after == 6
    assert rest.out.splitlines()[-1] == "5 operations applied"
    assert items() == 11


def test_json_is_whole_also_after_an_error(scrapy):
    """What was applied before a bad line is one document, written as it grew."""
    good = b"".join(line(f"{number}") for number in range(4))

    whole = scrapy("apply", "-", "--json", stdin=good)
    broken = scrapy("apply", "-", "--json", stdin=good + b"{\n")
    none = scrapy("apply", "-", "--json", stdin=b"{\n")

    document = json.loads(whole.out)
    assert [(one["label"], one["text"]) for one in document["notes"]] == [
        ("new", f"{number}") for number in range(4)
    ]
    assert document["operations"] == 4
    assert json.loads(broken.out)["operations"] == 3
    assert (broken.code, none.code, none.out) == (1, 1, "")
    assert "3 operations before line 4 are applied" in broken.err


def test_lines_are_read_as_they_are_needed(scrapy, items):
    """While a transaction's lines are read the ones before are committed; nothing is gathered."""
    seen = []

    class Pipe(io.RawIOBase):
        """A pipe that notes how many items there were when each line was asked for."""

        def readline(self, _):
            seen.append(items())
            return line(f"{len(seen)}") if len(seen) < 8 else b""

    ran = scrapy("apply", "-", stdin=Pipe())

    assert ran.code == 0
    assert seen == [0, 0, 0, 3, 3, 3, 6, 6]


def test_long_lines_make_small_transactions(scrapy, items, monkeypatch):
    """A transaction ends by its bytes too, and a line without an end is refused."""
    monkeypatch.setattr(streams, "STEP_BYTES", 300)
    monkeypatch.setattr(streams, "LINE_BYTES", 400)
    lines = [line("A", data={"t": "x" * 250}), line("B"), line("C", data={"t": "x" * 500})]

    ran = scrapy("apply", "-", stdin=b"".join(lines))

    assert ran.err.startswith("scrapy itemgraph: line 3: it has more than 400 bytes; the 1 ")
    assert items() == 1


def test_ctrl_c_says_what_is_applied(scrapy, items):
    """Stopped in the midst, `apply` says how to go on, and exits as a command that was stopped."""
    lines = [line(f"{number}") for number in range(1, 6)]

    class Pipe(io.RawIOBase):
        def readline(self, _):
            if not lines:
                raise KeyboardInterrupt
            return lines.pop(0)

    ran = scrapy("apply", "-", stdin=Pipe())

    assert ran.code == 130
    assert "stopped; the 3 operations before line 4 are applied; to go on" in ran.err
    assert items() == 3


def test_a_reader_that_leaves_does_not_stop_operations(database, items, tmp_path):
    """`apply | head` applies everything."""
    reader, writer = os.pipe()
    os.close(reader)
    url = f"ITEMGRAPH_DATABASE_URL={database}"
    command = ["-m", "scrapy", "itemgraph", "apply", "-", "--crawl", "books", "-s", url]

    with os.fdopen(writer, "wb") as pipe:
        ran = processes.run(
            [sys.executable, *command],
            input=b"".join(line(f"{number:0200}") for number in range(2500)),
            cwd=tmp_path,
            stdout=pipe,
            stderr=subprocess.PIPE,
            check=False,
            timeout=100,
        )

    assert b"Traceback" not in ran.stderr
    assert ran.returncode == 0
    assert items() == 2500


def test_ids_are_added_from_standard_input(scrapy, items, database):
    """`add -` adds an item for each line; a URL is its data's url as well."""
    urls = b"http://a.example/1\n\nSKU:2\nhttp://a.example/1\n"

    ran = scrapy("add", "-", "--tag", "page", "--nice", "3", stdin=urls)
    bad = scrapy("add", "-", stdin=b"A\nB\nC\n\xff\n")

    assert ran.out.splitlines() == [
        "[new] http://a.example/1",
        "[new] SKU:2",
        "[known] http://a.example/1",
        "3 operations applied",
    ]
    with ItemGraph.open(database, "books") as graph:
        assert graph.get("http://a.example/1").data == {"url": "http://a.example/1"}
        assert graph.get("SKU:2").data == {}
        assert graph.get("SKU:2").tags == {"page": None}
    assert "line 4: 'utf-8' codec" in bad.err
    assert "--from 4" in bad.err
    assert items() == 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["add", "-", "--alias", "A"], "not for standard input"),
        (["add", "-", "--url", "http://a.example"], "not for standard input"),
        (["add", "A", "--from", "2"], "give - as ID"),
        (["apply", "-", "--from", "0"], "whole number from 1"),
    ],
)
def test_misuse_of_streams(scrapy, arguments, said):
    """What one item may have, and many may not, is refused."""
    ran = scrapy(*arguments)

    assert ran.code == 2
    assert said in ran.err


# How far it is


def test_a_bar_is_on_standard_error_alone(scrapy, monkeypatch):
    """On a terminal a bar is shown and taken away; standard output has the document alone."""
    terminal = Terminal()
    monkeypatch.setattr(progress, "_BAR_AFTER", 0.0)
    monkeypatch.setattr(sys, "stderr", terminal)

    ran = scrapy("apply", "-", "--json", stdin=b"".join(line(f"{n}") for n in range(5)))

    assert json.loads(ran.out)["operations"] == 5
    assert "scrapy itemgraph: apply" in terminal.getvalue()
    assert "3 operations" in terminal.getvalue()


def test_lines_are_on_standard_error_alone(scrapy, monkeypatch, tmp_path):
    """Without a terminal a line is said now and then, with the share of the file that is read."""
    monkeypatch.setattr(progress, "_QUIET", 0.0)
    monkeypatch.setattr(progress, "_EVERY", 0.0)
    (tmp_path / "lines").write_bytes(b"".join(line(f"{n}") for n in range(6)))

    ran = scrapy("apply", "lines", "--json")

    assert json.loads(ran.out)["operations"] == 6
    first, second, made = ran.err.splitlines()
    assert first.startswith("scrapy itemgraph: apply: 3 operations (50%)")
    assert second.startswith("scrapy itemgraph: apply: 6 operations (100%)")
    assert made == "scrapy itemgraph: made the crawl 'books'"


def test_a_restart_says_how_far_it_is_and_deletes_all(engine, database, monkeypatch):
    """Rows go with their items, some at a time, in one transaction that `status` can see."""
    monkeypatch.setattr(crawl_changes, "RESTART_STEP", 2)
    with engine.begin() as connection:
        crawl = Crawl.of(connection)
        kept = Crawl(connection, "films")
        kept.register(parse={"tags": ["page"]})
        kept.done("F")
        crawl.done("A")
        crawl.failed("B")
        for name in "CDE":
            crawl.work(name)
        crawl.do(DeleteItem("E", forget=False))
        connection.execute(sa.text("UPDATE processes SET stopped_at = now()"))
    reached, seen = [], []

    with ItemGraph.open(database, "books") as graph, ItemGraph.open(database, "films") as other:
        before = graph.crawls.restart(dry_run=True)

        def look(done, total):
            reached.append((done, total))
            seen.extend(other.status()["under_way"])

        counts = graph.crawls.restart(reached=look)
        after = graph.crawls.restart(dry_run=True)

    assert reached == [(2, 4), (4, 4)]
    assert [(one["what"], one["done"], one["total"]) for one in seen] == [
        ("restart", 2, 4),
        ("restart", 4, 4),
    ]
    assert counts == before
    assert {"items": 4, "aliases": 5, "failures": 1}.items() <= counts.items()
    assert not any(after.values())
    with engine.connect() as connection:
        for table in ("items", "results", "attempts", "aliases", "tags"):
            assert connection.scalar(sa.text(f"SELECT count(*) FROM {table}")) > 0, table


def test_status_shows_work_of_other_processes(scrapy, engine, database):
    """Numbers of long work elsewhere are in `status`, for people and for programs."""
    with ItemGraph.open(database, "books") as graph:
        graph.apply([])
    with engine.begin() as connection:
        databases = sa.text("SELECT set_config('application_name', :name, true)")
        connection.execute(databases, {"name": "scrapy-itemgraph: apply 3000"})

        human, document = scrapy("status").out, json.loads(scrapy("status", "--json").out)

    assert "apply is under way in another process: 3,000\n" in human
    (work,) = document["under_way"]
    assert (work["what"], work["done"], work["total"]) == ("apply", 3000, None)
    assert json.loads(scrapy("status", "--json").out)["under_way"] == []


def test_a_migration_says_which_version_it_has_made(empty_database, caplog):
    """Each version is told of; an older database that is migrated unasked says so in the log."""
    versions = sorted(migrate._revisions())
    reached = []

    ItemGraph.migrate(empty_database, reached=lambda *given: reached.append(given))

    assert reached == [(n, len(versions)) for n in range(1, len(versions) + 1)]
    assert "Migrated" not in caplog.text
    engine = engines.sync_engine(empty_database)
    with caplog.at_level(logging.INFO), engine.connect() as connection:
        from alembic import command

        older = migrate.config(connection)
        connection.exec_driver_sql("DROP SCHEMA public CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA public")
        command.upgrade(older, versions[0])
        migrate.ensure(connection, auto=True)
        assert migrate.current(connection) == versions[-1]
        connection.rollback()
    engine.dispose()
    assert f"to version {versions[-1]} ({len(versions) - 1} of {len(versions) - 1})" in caplog.text


def test_an_open_sweep_is_counted(connection, monkeypatch):
    """`status` and a run's last lines say how far a sweep is, and that numbers are not final."""
    monkeypatch.setattr(item_sweeps, "SWEEP_STEP", 2)
    crawl = Crawl.of(connection)
    for name in "ABCDE":
        crawl.item(name, tags=["page", "book"] if name < "C" else ["book"])
    crawl.register(swept=False, parse={"tags": ["page", "book"]})

    opened = status.status(connection, crawl.id)["sweeps"]
    crawl.sweep_step()
    (sweep,) = status.status(connection, crawl.id)["sweeps"]
    lines = status.summary(connection, crawl.id).lines()
    crawl.sweep()

    assert [(one["swept"], one["left"]) for one in opened] == [(0, 5)]
    assert (sweep["task"], sweep["swept"], sweep["left"]) == ("parse", 2, 3)
    assert lines[-1] == (
        "these numbers are not final: a change of the task 'parse' has reached 2 of 5 items; the "
        "next run goes on with it"
    )
    assert len(status.summary(connection, crawl.id).lines()) == 2


def test_status_says_how_far_a_sweep_is(scrapy, engine, monkeypatch):
    """`scrapy itemgraph status` has the numbers of an open sweep."""
    monkeypatch.setattr(item_sweeps, "SWEEP_STEP", 1)
    with engine.begin() as connection:
        crawl = Crawl.of(connection)
        for name in "ABCD":
            crawl.work(name)
        crawl.register(swept=False, parse={"tags": ["page"], "version": "2"})
        crawl.sweep_step()

    ran = scrapy("status")

    assert (
        "a sweep after a change of the task parse is open: 1 of 4 items (25%); the next run goes on"
        in ran.out
    )
