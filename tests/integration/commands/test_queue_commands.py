"""Commands of the queue: a crawl is added, looked at, steered and ended on the terminal."""

from __future__ import annotations

import gzip
import os
import socket
import threading
import time

import pytest
import sqlalchemy as sa
from support.plans import explaining, touched

from scrapy_itemgraph.store.admin import crawl_lists

SPIDERS = """
import scrapy

class BooksSpider(scrapy.Spider):
    name = "books"

class BoatsSpider(scrapy.Spider):
    name = "boats"
"""


@pytest.fixture
def queued(scrapy, database, tmp_path, monkeypatch):
    """Return a function that runs a command in a project with two spiders."""
    name = f"spiders_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(SPIDERS)
    monkeypatch.syspath_prepend(tmp_path)

    def run(*arguments, **settings):
        return scrapy(*arguments, BOT_NAME="shop", SPIDER_MODULES=[name], **settings)

    return run


def test_a_crawl_is_added_with_all_that_it_is_started_with(queued):
    """MNB-1: spider, arguments, settings, feeds, terms; the answer says what it waits for."""
    added = queued(
        *("crawls", "add", "books", "fast", "-a", "cat=1", "-s", "LOG_LEVEL=INFO", "-o", "a.csv"),
        *("--nice", "-5", "--tag", "big", "--concurrency", "2", "--time-limit", "1h"),
        *("--note", "for ann", "--resource", "proxy", "--keeps-fresh"),
    )
    shown = queued("crawls", "show", "fast", "--json").document

    assert added.code == 0
    assert added.out.startswith("the crawl fast is in the queue of the project shop, active\n")
    assert added.out.count("place") == 1
    assert "no runner of the project shop lives" in added.out
    assert "has the tag 'big' yet" in added.err
    assert shown["arguments"] == {"cat": "1"}
    assert shown["settings"] == {"LOG_LEVEL": "INFO", "FEEDS": {"a.csv": {"format": "csv"}}}
    terms = ("nice", "tag", "concurrency", "time_limit", "note", "resource", "keeps_fresh")
    assert [shown[name] for name in terms] == [-5, "big", 2, 3600, "for ann", "proxy", True]
    assert shown["created_by"].count("@") == 1
    assert [event["what"] for event in shown["history"]] == ["added"]


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["bocks"], "there is no spider 'bocks'; did you mean 'books'?", 1),
        (["sit"], "there is no spider 'sit'; did you mean 'site'?", 1),
        (["site"], "the spider site cannot be started so: it was not told where to begin", 1),
        (["site", "-a", "url=a.example"], "-a url=a.example is no URL of a page; write one", 1),
        (["site", "-a", "urls=x", "-a", "depth=3"], "it has no argument depth; it has url, ", 1),
        (["site", "-a", "urls=x", "-a", "extent=all"], "extent=all is none of host, path, ", 1),
        (["books", "a{b}"], "it has braces", 1),
        (
            ["books", "x", "-o", "a.csv", "-s", "ITEMGRAPH_KEEP_ITEMS=False"],
            "each process of the crawl would write a.csv by itself",
            1,
        ),
        (["books", "x", "-o", "-:csv"], "its job's log; name a file", 2),
        (["books", "x", "-o", "a.cvs"], "Unrecognized output format 'cvs'", 2),
        (["books", "x", "-s", "ITEMGRAPH_CRAWL=y"], "crawls add SPIDER NAME", 2),
        (["books", "x", "-a", "token=1"], "write -a token=@env:TOKEN", 1),
        (["books", "x", "-s", "API_KEY=1"], "write -s API_KEY=@env:API_KEY", 1),
        (["books", "x", "--concurrency", "-1"], "how many processes may run at once", 1),
        (["books", "x", "--time-limit", "soon"], "--time-limit", 2),
    ],
)
def test_what_cannot_be_added_is_refused_with_what_to_do(queued, arguments, said, code):
    """A wrong spider, name, feed, secret or term is found before anything is stored."""
    refused = queued("crawls", "add", *arguments)

    assert refused.code == code
    assert said in refused.err
    assert "x" not in queued("crawls", "list").out.split()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import nowhere_at_all", "ModuleNotFoundError: No module named 'nowhere_at_all', in"),
        ("def parse(:", "SyntaxError: invalid syntax, in"),
        ("raise RuntimeError('no key')", "RuntimeError: no key, in"),
    ],
)
def test_a_module_that_cannot_be_imported_is_said_with_its_line(
    scrapy, tmp_path, monkeypatch, code, said
):
    """`crawls add` and `simulate` say the file, the line and the reason, and have no traceback."""
    name = f"broken_{abs(hash((code, tmp_path)))}"
    path = tmp_path / f"{name}.py"
    path.write_text(f"import scrapy\n\n{code}\n")
    monkeypatch.syspath_prepend(tmp_path)

    for command in (("crawls", "add", "books"), ("simulate", "books", "http://a.example/")):
        refused = scrapy(*command, SPIDER_MODULES=[name])

        assert refused.code == 1
        assert f"cannot be loaded: {said} line 3 of {path}" in refused.err
        assert "Traceback" not in refused.err


def test_a_list_of_jobs_that_is_empty_says_what_makes_one(queued):
    """Of the database, of a crawl, or of those that are not over."""
    queued("crawls", "add", "books")

    assert "`scrapy itemgraph work` runs them" in queued("jobs", "list").out
    assert "scrapy itemgraph crawls explain books" in queued("jobs", "list", "--crawl", "books").out
    assert queued("jobs", "list", "--open").out == "no job is open\n"


def test_feeds_that_keep_items_may_be_begun_anew(queued):
    """`-O` is taken, for each item is in the file once, however many processes there are."""
    queued("crawls", "add", "books", "-O", "a.csv")

    settings = queued("crawls", "show", "books", "--json").document["settings"]
    assert settings["FEEDS"] == {"a.csv": {"format": "csv", "overwrite": True}}


def test_arguments_that_do_not_count_make_no_crawl_of_their_own(queued):
    """The crawl is the one that a start by hand has; its processes get all arguments."""
    arguments = ("-a", "day=1", "-a", "_trace=2", "-a", "cat=3")
    queued("crawls", "add", "books", *arguments, ITEMGRAPH_IGNORED_ARGUMENTS="day")

    shown = queued("crawls", "show", "books:cat=3", "--json").document
    assert shown["arguments"] == {"day": "1", "_trace": "2", "cat": "3"}


def test_crawls_are_steered_by_name_and_their_history_says_who_did_it(queued):
    """MNB-3: several at once; each change is answered, and what cannot be done says what can."""
    for name in ("one", "two"):
        queued("crawls", "add", "books", name)

    paused = queued("crawls", "pause", "one", "two", "--reason", "the site is down", "--json")
    explained = queued("crawls", "explain", "one").out
    again = queued("crawls", "pause", "one")
    queued("crawls", "resume", "one")
    aborted = queued("crawls", "abort", "one", "--json").document
    queued("crawls", "revive", "one")
    events = queued("crawls", "history", "one", "--json").document

    assert paused.document == [{"name": name, "state": "paused"} for name in ("one", "two")]
    assert "it is paused by" in explained
    assert "the site is down" in explained
    assert "scrapy itemgraph crawls resume one" in explained
    assert (again.code, "is paused already" in again.err) == (1, True)
    assert aborted == [{"name": "one", "state": "aborted"}]
    assert [one["what"] for one in events] == ["revived", "aborted", "resumed", "paused", "added"]
    assert all("@" in one["by"] for one in events)


def test_the_list_has_the_queue_in_its_order_and_then_the_others(queued, scrapy, crawl):
    """MNB-4: by nice, then by time; then paused ones; a crawl that nobody steers has no state."""
    for name, nice in (("later", "0"), ("first", "-5"), ("resting", "-9")):
        queued("crawls", "add", "books", name, "--nice", nice)
    queued("crawls", "pause", "resting")

    listed = queued("crawls", "list").out.splitlines()
    documents = {one["name"]: one for one in queued("crawls", "list", "--json").document}

    assert [line.split()[0] for line in listed[1:4]] == ["first", "later", "resting"]
    states = {name: one["state"] for name, one in documents.items()}
    assert states.pop(crawl.name) is None
    assert states == {"first": "active", "later": "active", "resting": "paused"}
    assert (documents["first"]["place"], documents["resting"]["place"]) == (1, None)
    limited = queued("crawls", "list", "--limit", "1")
    assert (
        limited.out.splitlines()[-1] == "(of 1 crawls, the active ones first; --limit shows more)"
    )


def test_feeds_are_not_split_by_a_setting_that_comes_later(queued):
    """`crawls set` refuses to keep no items of a crawl with feeds, its own or its project's."""
    queued("crawls", "add", "books", "-o", "a.csv")
    queued("crawls", "add", "boats")
    anew = ("-s", "ITEMGRAPH_KEEP_ITEMS=False")

    own = queued("crawls", "set", "books", *anew)
    of_project = queued("crawls", "set", "boats", *anew, FEEDS={"b.csv": {"format": "csv"}})
    none = queued("crawls", "set", "boats", *anew)

    assert (own.code, "would write a.csv by itself" in own.err) == (1, True)
    assert (of_project.code, "would write b.csv by itself" in of_project.err) == (1, True)
    assert none.code == 0
    assert queued("crawls", "show", "books", "--json").document["settings"].keys() == {"FEEDS"}


def test_terms_are_changed_and_taken_away(queued):
    """What `set` does not name stays; settings come beside those that are there."""
    queued("crawls", "add", "books", "--tag", "big", "--nice", "2", "-s", "A=1")

    queued("crawls", "set", "books", "--no-tag", "--concurrency", "0", "-s", "B=2")
    nothing = queued("crawls", "set", "books")
    renamed = queued("crawls", "set", "books", "-s", "ITEMGRAPH_CRAWL=x")
    both = queued("crawls", "set", "books", "--tag", "x", "--no-tag")
    queued("rules", "add", "/calendar/", "--skip", "--crawl", "books")
    shown = queued("crawls", "show", "books", "--json").document

    assert (shown["tag"], shown["nice"], shown["concurrency"], shown["ruleset"]) == (None, 2, 0, 1)
    assert "1, of 1 rule" in queued("crawls", "show", "books").out
    assert shown["settings"] == {"A": "1", "B": "2"}
    assert "--concurrency 1" in " ".join(shown["explained"])
    assert (nothing.code, "say what is to be changed" in nothing.err) == (2, True)
    assert (renamed.code, "and keeps it" in renamed.err) == (2, True)
    assert (both.code, "give one of --tag and --no-tag" in both.err) == (2, True)


@pytest.fixture
def box(queued, engine):
    """Make a crawl and a runner of two places, which has gone."""
    queued("crawls", "add", "books")
    with engine.begin() as connection:
        connection.execute(
            sa.text(
                "WITH r AS (INSERT INTO runners (name, project, places) VALUES ('box', 'shop', 2) "
                "RETURNING id) INSERT INTO places (runner_id, number) SELECT r.id, n FROM r, "
                "generate_series(1, 2) AS n"
            )
        )


@pytest.mark.usefixtures("box")
def test_a_place_is_kept_for_a_crawl(queued):
    """MNB-5: a place of a runner is locked and unlocked; a runner that is not there is said."""
    unknown = queued("crawls", "lock", "books", "bax")
    locked = queued("crawls", "lock", "books", "box:2", "--until-finished")
    unlocked = queued("crawls", "unlock", "books", "--json").document

    assert "did you mean 'box'?" in unknown.err
    assert (
        "place 2 of the runner box is kept for the crawl books until it is finished" in locked.out
    )
    assert unlocked == [{"runner": "box", "place": 2}]


@pytest.mark.usefixtures("box")
def test_runners_are_looked_at_and_told_what_they_take(queued):
    """SS-5: one that is gone stays in the list; what it takes when it comes back is set."""
    listed = queued("runners", "list", "--json").document
    queued("runners", "drain", "box")
    again = queued("runners", "drain", "box")
    queued("runners", "tag", "box", "big", "fast")
    queued("runners", "set", "box", "--only-tagged", "yes")
    shown = queued("runners", "show", "box", "--json").document
    unknown = queued("runners", "show", "bax")

    assert [(one["name"], one["state"], one["places"]) for one in listed] == [("box", "gone", 2)]
    assert "as before" in again.out
    assert (shown["tags"], shown["only_tagged"]) == (["big", "fast"], True)
    assert [one["number"] for one in shown["in_places"]] == [1, 2]
    assert (unknown.code, "did you mean 'box'?" in unknown.err) == (1, True)


@pytest.mark.usefixtures("box")
def test_jobs_are_looked_at_and_cancelled(queued, engine):
    """SS-4: a job that waits is cancelled, one that is over is not, and one that is not there."""
    with engine.begin() as connection:
        connection.execute(
            sa.text("INSERT INTO jobs (crawl_id, origin) SELECT id, 'runner' FROM crawls")
        )

    (listed,) = queued("jobs", "list", "--open", "--json").document
    table = queued("jobs", "list").out
    number = str(listed["id"])
    log = queued("jobs", "log", number)
    cancelled = queued("jobs", "cancel", number)
    again = queued("jobs", "cancel", number)
    shown = queued("jobs", "show", number, "--json").document

    assert (listed["crawl"], listed["state"]) == ("books", "pending")
    assert table.split() == ["JOB", "CRAWL", "STATE", "BY", number, "books", "pending", "runner"]
    assert (log.code, "has not begun" in log.err) == (1, True)
    assert cancelled.code == 0
    assert (again.code, "is over: cancelled" in again.err) == (1, True)
    assert (shown["state"], shown["ended_at"] is not None) == ("cancelled", True)
    assert "there is no job 99" in queued("jobs", "show", "99").err
    assert "there is no runner 'nobody'" in queued("reclaim", "nobody", "--reason", "x").err


@pytest.mark.usefixtures("box")
def test_a_log_that_was_lost_with_its_runner_is_said_to_be_there(queued, engine):
    """SS-4: of a job whose runner was killed the log is not empty, but on the runner's host."""
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO jobs (crawl_id, runner_id, origin, state, host, log, started_at, ended_at)"
            " SELECT c.id, r.id, 'runner', 'temporary-error', 'far', '/srv/books/1.log', now(),"
            " now() FROM crawls c, runners r"
        )

    (job,) = queued("jobs", "list", "--json").document
    for options in ([], ["--json"]):
        log = queued("jobs", "log", str(job["id"]), *options)
        assert (log.code, log.out) == (1, ""), options
        assert "on far, in /srv/books/1.log" in log.err
    assert " box " in queued("jobs", "list").out


@pytest.mark.usefixtures("box")
def test_a_log_is_a_file_that_a_runner_writes_and_no_other(queued, engine, tmp_path):
    """SS-3: a row may name any file; printed is JOB.log of the crawl's folder, with its parts."""
    folder = tmp_path / "books"
    folder.mkdir()

    def job(path) -> str:
        with engine.begin() as connection:
            number = connection.execute(
                sa.text(
                    "INSERT INTO jobs (crawl_id, origin, state, host, started_at, ended_at) "
                    "SELECT id, 'runner', 'completed', :host, now(), now() FROM crawls "
                    "RETURNING id"
                ),
                {"host": socket.gethostname()},
            ).scalar_one()
            named = {"log": str(path).replace("JOB", str(number)), "id": number}
            connection.execute(sa.text("UPDATE jobs SET log = :log WHERE id = :id"), named)
        return str(number)

    (tmp_path / "secret").write_text("s3same\n")
    own, linked, waiting = (job(folder / "JOB.log") for _ in range(3))
    (folder / f"{own}.log").write_text("second\n")
    with gzip.open(folder / f"{own}.log.1.gz", "wt") as file:
        file.write("first\n")
    (folder / f"{linked}.log").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / f"{waiting}.log")

    assert queued("jobs", "log", own).out == "first\nsecond\n"
    (folder / f"{own}.log.1.gz").unlink()
    (folder / f"{own}.log.1.gz").symlink_to(tmp_path / "secret")
    others = [job(one) for one in (tmp_path / "secret", tmp_path / "JOB.log", folder / "JOB.txt")]
    (tmp_path / f"{others[1]}.log").write_text("s3same\n")
    (folder / f"{others[2]}.txt").write_text("s3same\n")
    for number in (own, linked, waiting, *others):
        refused = queued("jobs", "log", number)
        assert (refused.code, "s3same" in refused.out) == (1, False), (number, refused.err)


def test_drain_waits_until_no_process_runs_the_crawl(queued, engine):
    """`drain` returns when the last process has ended, also where the crawl is paused already."""
    queued("crawls", "add", "books")
    queued("crawls", "pause", "books")
    with engine.begin() as connection:
        connection.execute(
            sa.text(
                "INSERT INTO jobs (crawl_id, origin, state, started_at) "
                "SELECT id, 'hand', 'running', now() FROM crawls"
            )
        )

    def end():
        time.sleep(0.5)
        with engine.begin() as connection:
            connection.execute(sa.text("UPDATE jobs SET ended_at = now(), state = 'completed'"))

    ending = threading.Thread(target=end)
    ending.start()
    where = queued("crawls", "whereis", "books", "--json").document
    drained = queued("crawls", "drain", "books")
    ending.join()

    assert [one["origin"] for one in where] == ["hand"]
    assert "1 process of books still at work" in drained.err
    assert drained.code == 0
    assert "no process runs it" in queued("crawls", "whereis", "books").out


def test_the_list_reads_as_many_crawls_as_it_shows(connection):
    """MNB-4: with tens of thousands of crawls that are over, the queue is found by its states.

    Also by a planner whose statistics are of before, when all crawls were active.
    """
    connection.execute(
        sa.text(
            "INSERT INTO crawls (name, state, queued_at) SELECT 'early ' || n, 'active', now() "
            "FROM generate_series(1, 200) AS n"
        )
    )
    connection.execute(sa.text("ANALYZE crawls"))
    connection.execute(sa.text("DELETE FROM crawls WHERE name LIKE 'early %'"))
    connection.execute(
        sa.text(
            "INSERT INTO crawls (name, state, queued_at) SELECT 'over ' || n, 'finished', now() "
            "FROM generate_series(1, 50000) AS n"
        )
    )
    connection.execute(
        sa.text("INSERT INTO crawls (name, state, queued_at) VALUES ('active', 'active', now())")
    )

    with explaining(connection, is_prepared=False) as explained:
        found = crawl_lists.listed(connection, limit=10)

    nodes = [node for one in explained for node in one.nodes if "Relation Name" in node]
    assert (len(found), found[0].crawl) == (10, "active")
    assert nodes
    assert not [node for node in nodes if touched(node) > 100]
