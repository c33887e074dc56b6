"""Commands of crawls, and commands as processes of their own."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from support import logs
from support.commands_run import DAY
from support.processes import run

from scrapy_itemgraph.commands import COMMANDS, parsing, printing
from scrapy_itemgraph.commands import status as status_command
from scrapy_itemgraph.store.admin import counting, status
from scrapy_itemgraph.store.registry import crawls, processes, runs, workers


def subprocess_scrapy(*arguments, cwd, **options):
    """Run the real command in a process of its own."""
    ran = run(
        [sys.executable, "-m", "scrapy", "itemgraph", *arguments],
        cwd=cwd,
        capture_output=True,
        check=False,
        timeout=60,
        **options,
    )
    logs.take(ran.stderr.decode())
    return ran


# The crawl


def test_status(scrapy, crawl):
    """`status` counts items and each task's work, and lists workers."""
    crawl.done("A")
    crawl.claimed("B")
    crawl.failed("C")
    crawl.work("D")

    found = scrapy("status", "--json").document
    human = scrapy("status").out

    parse = next(one for one in found["tasks"] if one["name"] == "parse")
    counts = ("waiting", "claimed", "completed", "fresh", "held", "failures")
    assert [parse[name] for name in counts] == [1, 1, 1, 1, 1, 1]
    assert found["items"] == 4
    assert found["workers"][0]["id"] == crawl.worker
    assert parse["ttl"] == DAY
    assert datetime.fromisoformat(found["next_due"]) > datetime.now(UTC)
    assert "next result falls due" in human
    assert "progress               0 of 4 done (0%), 1 fresh before: 2 waiting, 1 running" in human
    assert "WAITING" in human
    assert "FRESH" not in human
    assert "FRESH" in scrapy("status", "--verbose").out


def test_status_has_a_line_for_each_of_several_crawls(scrapy, crawl, monkeypatch):
    """Each crawl's numbers and the state of its run are in one table; one that never ran as well.

    Where there are more than are counted, those that were used last are shown, and it is said.
    """
    crawls.make_crawl(crawl.connection, "films")
    crawl.done("A")
    crawl.claimed("B")
    crawl.failed("C")
    crawl.work("D")
    runs.join(crawl.connection, crawl.id)
    crawl.connection.execute(sa.text("UPDATE runs SET items = 7"))

    document = scrapy("status", "--json").document
    human = scrapy("status").out.splitlines()
    monkeypatch.setattr(status_command, "_MOST_CRAWLS", 1)
    fewer = scrapy("status").out

    assert [one["crawl"] for one in document] == ["books", "films"]
    books = {name: document[0]["progress"][name] for name in ("waiting", "running", "failed")}
    assert books == {"waiting": 2, "running": 1, "failed": 1}
    assert document[0]["run"]["items"] == 7
    assert document[1]["run"] is None
    assert human[0].split() == [
        *("CRAWL", "HEALTH", "RUN", "STATE", "DONE", "WAITING", "RUNNING", "LATER", "FAILED"),
        *("GONE", "SCRAPED"),
    ]
    books = "books needs a look 1 running 1 2 1 0 1 0 7"
    assert human[1].split() == books.split()
    assert human[2].split() == ["films", "well", "never", "run", "0", "0", "0", "0", "0", "0"]
    assert human[4] == "books (needs a look): 1 failure is open, the last: ValueError in parse"
    assert "the 1 of 2 crawls that were used last" in fewer
    assert "films" not in fewer


def test_status_and_the_list_of_crawls_say_whether_a_crawl_is_well_and_why(scrapy, crawl):
    """A run that did no page but failed is broken, in words; red, with the sentence, in JSON."""
    crawls.make_crawl(crawl.connection, "films")
    crawl.failed("A")
    runs.join(crawl.connection, crawl.id)
    crawl.connection.execute(
        sa.text("UPDATE runs SET failures = 1, started_at = '2026-03-01 07:34:41+00'")
    )
    why = "run 1 did no page, since 2026-03-01 07:34:41Z: ValueError in parse"

    shown = scrapy("status", "--crawl", "books")
    listed = scrapy("crawls", "list")
    told = {one["name"]: one for one in scrapy("crawls", "list", "--json").document}
    found = scrapy("status", "--crawl", "books", "--json").document

    assert re.search(rf"^health +broken: {re.escape(why)}$", shown.out, re.MULTILINE)
    assert re.search("^books +none +broken +1 ", listed.out.replace("?", "none"), re.MULTILINE)
    assert re.search(r"^films +. +well ", listed.out, re.MULTILINE)
    assert f"\nbooks (broken): {why}\n" in listed.out
    assert (found["health"], found["why"]) == ("red", why)
    assert (told["books"]["health"], told["books"]["why"]) == ("red", why)
    assert (told["films"]["health"], told["films"]["why"]) == ("green", "there was no run yet")


def test_status_says_at_least_once_a_worker_was_killed(scrapy, crawl):
    """Its last numbers are lost, so that the run scraped that much or more; runs say so as well."""
    runs.join(crawl.connection, crawl.id)
    crawl.connection.execute(sa.text("""UPDATE runs SET items = 7, statuses = '{"200": 9}'"""))
    assert "AT LEAST" not in scrapy("runs").out
    crawl.claimed("A")
    crawl.die()

    shown = " ".join(scrapy("status").out.split())

    assert "scraped at least 7 items in this run answers at least 200: 9; 0 B" in shown
    assert scrapy("status", "--json").document["run"]["at_least"] is True
    assert "AT LEAST" in scrapy("runs").out


def test_status_counts_what_is_due(scrapy, crawl):
    """What fell due and no run has staged yet is due in `status`, and not fresh."""
    crawl.done("A")
    crawl.done("A", task="reviews")
    crawl.failed("B")

    before = scrapy("status").out
    assert scrapy("age", "books", "2d").code == 0
    ran = scrapy("status", "--json").document
    human = scrapy("status", "-v").out

    counts = {one["name"]: (one["due"], one["fresh"], one["completed"]) for one in ran["tasks"]}
    assert counts == {"parse": (1, 0, 1), "reviews": (0, 1, 1)}
    assert "next result falls due" in before
    assert "first result fell due" in human
    assert re.search(r"^parse +0 +0 +0 +1 +1 +0 +1", human, re.MULTILINE)
    summary = status.summary(crawl.connection, crawl.id)
    assert (summary.due, summary.fresh) == (1, 1)
    assert "1 that fell due since (the next run takes them)" in summary.lines()[1]


def test_tasks(scrapy, crawl):
    """`tasks` lists what is declared; times to live are seconds for programs."""
    listed = scrapy("tasks", "--json").document
    human = scrapy("tasks").out

    assert [(one["name"], one["ttl"], one["depends_on"]) for one in listed] == [
        ("parse", DAY, []),
        ("reviews", None, ["parse"]),
    ]
    assert "1d" in human
    assert "never" in human


def test_restart(scrapy, crawl):
    """`restart` says what it would delete, refuses while a worker lives, and then deletes."""
    crawl.done("A")

    asked = scrapy("restart", "books")
    living = scrapy("restart", "books", "--yes")
    assert scrapy("show", "A").code == 0
    workers.stop(crawl.connection, crawl.worker, "finished")
    done = scrapy("restart", "books", "--yes", "--json")

    assert asked.code == living.code == 1
    assert "items 1" in asked.out
    assert "add --yes" in asked.out
    assert f"worker {crawl.worker}" in living.err
    assert done.code == 0
    assert done.document["is_deleted"] is True
    assert done.document["rows"]["items"] == 1
    assert scrapy("status", "--json").document["items"] == 0
    assert len(scrapy("tasks", "--json").document) == 2


def test_restart_after_a_kill(scrapy, crawl):
    """A worker that died does not keep a crawl from being restarted."""
    crawl.work("A")
    processes.mark_locked(crawl.connection, crawl.worker)  # a lock that nobody holds any more

    assert scrapy("restart", "books", "--yes").code == 0


def test_restart_or_age_of_no_crawl(scrapy, crawl):
    """A crawl that does not exist is refused with a near miss, never made."""
    for arguments in (["restart", "book", "--yes"], ["age", "book", "1d"]):
        ran = scrapy(*arguments)

        assert ran.code == 1
        assert "did you mean 'books'?" in ran.err
    assert scrapy("status").code == 0


def test_age(scrapy, crawl):
    """`age` moves every time back."""
    crawl.done("A")
    before = scrapy("show", "A", "--json").document

    ran = scrapy("age", "books", "1d12h", "--json")

    after = scrapy("show", "A", "--json").document
    assert ran.document == {"crawl": "books", "seconds": 1.5 * DAY}
    moved = datetime.fromisoformat(before["created_at"]) - datetime.fromisoformat(
        after["created_at"]
    )
    assert moved == timedelta(days=1.5)


# Small parts


def test_json_without_utf8():
    """For a terminal without UTF-8, JSON is ASCII and lines are escaped."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")

    printing.write(stream, "日 é")

    stream.flush()
    assert stream.buffer.getvalue() == b"\\u65e5 \xe9\n"
    assert printing.dump({"a": "日"}, stream).isascii()


def test_parsing_leaves_nothing_out():
    """Options and positional arguments are told apart in any order."""
    found = parsing.parse(COMMANDS["set-ttl"], ["A", "--task", "T", "1d", "--"])

    assert (found.id, found.ttl, found.task) == ("A", timedelta(days=1), "T")


# The real thing


@pytest.mark.edge
def test_in_a_project(database, tmp_path):
    """In a project's subdirectory its settings count, -s overrides, and stdout is clean."""
    project = tmp_path / "shop"
    (project / "sub").mkdir(parents=True)
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = shop.settings\n")
    (project / "__init__.py").touch()
    (project / "settings.py").write_text(
        f"BOT_NAME = 'shop'\nLOG_LEVEL = 'DEBUG'\nITEMGRAPH_DATABASE_URL = {database!r}\n"
    )
    cwd = project / "sub"

    init = subprocess_scrapy("init", cwd=cwd)
    added = subprocess_scrapy("add", "-s", "ITEMGRAPH_CRAWL=books", "--json", "A", cwd=cwd)
    shown = subprocess_scrapy(
        *("show", "A", "-s", "ITEMGRAPH_CRAWL=books", "--json", "-L", "DEBUG"), cwd=cwd
    )
    other = subprocess_scrapy("show", "A", "-s", "ITEMGRAPH_CRAWL=films", cwd=cwd)

    assert init.returncode == 0, init.stderr
    assert b"ADDONS" in init.stdout
    assert json.loads(added.stdout)["created"] is True
    assert json.loads(shown.stdout)["id"] == "A"
    assert other.returncode == 1
    assert b"Traceback" not in other.stderr


@pytest.mark.edge
def test_no_reactor_and_no_sqlalchemy_are_imported():
    """Loading the command, as every `scrapy` does, imports neither a reactor nor SQLAlchemy."""
    code = (
        "import sys; from scrapy_itemgraph.commands import ItemGraphCommand as C; C();"
        "print([m for m in ('twisted.internet.reactor', 'sqlalchemy', 'psycopg', 'alembic')"
        " if m in sys.modules])"
    )

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)

    assert ran.stdout.strip() == b"[]"


def test_a_reader_that_leaves(scrapy, crawl, database, tmp_path):
    """`| head` ends without a traceback."""
    for number in range(300):
        crawl.item(f"ITEM:{number:0200}", tags=["page"])
    crawl.connection.commit()
    reader, writer = os.pipe()
    os.close(reader)
    arguments = ["worklist", "--limit", "1000", "-s", f"ITEMGRAPH_DATABASE_URL={database}"]
    command = [sys.executable, "-m", "scrapy", "itemgraph", *arguments]

    with os.fdopen(writer, "wb") as pipe:
        ran = run(
            command, cwd=tmp_path, stdout=pipe, stderr=subprocess.PIPE, check=False, timeout=60
        )

    assert ran.stderr == b""
    assert ran.returncode == 0


def test_a_terminal_without_utf8(scrapy, crawl, database, tmp_path):
    """On an ASCII terminal what it cannot show is escaped, not an error."""
    crawl.work("日本")
    crawl.connection.commit()
    ascii_terminal = {**os.environ, "PYTHONIOENCODING": "ascii"}
    url = ["-s", f"ITEMGRAPH_DATABASE_URL={database}"]

    human = subprocess_scrapy("worklist", *url, cwd=tmp_path, env=ascii_terminal)
    machine = subprocess_scrapy("worklist", "--json", *url, cwd=tmp_path, env=ascii_terminal)

    assert b"\\u65e5\\u672c" in human.stdout
    assert json.loads(machine.stdout)[0]["item"] == "日本"
    assert human.stderr == machine.stderr == b""


@pytest.mark.edge
def test_embedded_outside_a_project(tmp_path):
    """Outside a project the embedded database is made under the working directory."""
    made = subprocess_scrapy("init", "--json", cwd=tmp_path)
    empty = subprocess_scrapy("status", cwd=tmp_path)

    assert made.returncode == 0, made.stderr
    place = Path(json.loads(made.stdout)["location"])
    assert place == (tmp_path / ".scrapy/itemgraph").resolve()
    assert empty.returncode == 1
    assert b"none yet" in empty.stderr


def test_estimates_are_marked_by_the_commands_and_in_json(crawl, scrapy, monkeypatch):
    """`status` writes ~ before an estimate; with --json a field beside the numbers names it."""
    for number in range(12):
        crawl.work(f"I{number}")
    crawl.done("I0")
    monkeypatch.setattr(counting, "MOST", 5)

    human, document = scrapy("status").out, scrapy("status", "--json").document

    assert "graph items" not in human
    assert "graph items ~12" in " ".join(scrapy("status", "-v").out.split())
    assert "0 of ~12 done (0%), 1 fresh before: ~12 waiting" in human
    assert "parse 0 ~11 0" in " ".join(human.split())
    assert (document["items"], document["estimated"]) == (12, ["items"])
    (task,) = (one for one in document["tasks"] if one["name"] == "parse")
    assert (task["waiting"], task["fresh"], task["estimated"]) == (11, 1, ["waiting"])
    assert "estimated" in scrapy("tasks", "--json").document[0]


def test_a_killed_run_ends_when_a_worker_was_seen_last(crawl, scrapy):
    """So it is before others note the death and after it; a restart keeps its number."""
    crawl.connection.exec_driver_sql("UPDATE crawls SET run = 3")
    crawl.connection.exec_driver_sql(
        "INSERT INTO runs (crawl_id, number, started_at) "
        "SELECT id, 3, '2026-01-01 10:00Z' FROM crawls"
    )
    crawl.connection.exec_driver_sql(
        "UPDATE processes SET started_at = '2026-01-01 10:00Z', seen_at = '2026-01-01 11:30Z', "
        "lease_until = '2026-01-01 11:31Z'"
    )
    lost = scrapy("status").out
    crawl.connection.exec_driver_sql("UPDATE processes SET stopped_at = now(), reason = 'died'")
    buried = scrapy("status").out
    listed = scrapy("runs").out
    scrapy("restart", "books", "--yes")

    said = "3, stopped (died; last seen 2026-01-01 11:30:00Z)\n"
    assert [said in lost, said in buried] == [True, True]
    assert "2026-01-01 11:30:00Z  died" in listed
    assert scrapy("runs").out == (
        "there was no run since the crawl was restarted; the next is run 4\n"
    )
