"""Limits by `ItemGraph` and by commands."""

from __future__ import annotations

import io
import sys
from dataclasses import asdict
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from scrapy import cmdline
from scrapy.settings import Settings
from support.commands_run import Ran
from support.graphs import SLOT
from support.limits_set import HOUR, a_limit, declare, film_crawl, hold, shown

from scrapy_itemgraph.exceptions import NotFoundError
from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model.limits import Terms
from scrapy_itemgraph.store.admin import counting, limit_changes


@pytest.fixture
def scrapy(capsys, monkeypatch, tmp_path, database, crawl):
    """Return a function that runs `scrapy itemgraph` in this process, outside a project."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments) -> Ran:
        crawl.connection.commit()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
        given = Settings({"ITEMGRAPH_DATABASE_URL": database}, priority="project")
        capsys.readouterr()
        with pytest.raises(SystemExit) as exited:
            cmdline.execute(["scrapy", "itemgraph", *arguments], given)
        written = capsys.readouterr()
        return Ran(exited.value.code, written.out, written.err)

    return run


def test_the_door(database, crawl):
    """`ItemGraph` shows and changes limits, for all crawls or one."""
    crawl.work("A")
    film_crawl(crawl)
    declare(crawl, a_limit())
    crawl.connection.commit()

    with ItemGraph.open(database, "films") as graph:
        assert [one.name for one in graph.limits.list()] == ["task:shop/parse", SLOT]
        assert [(one.name, one.work) for one in graph.limits.list(of_crawl=True)] == [(SLOT, 1)]
        assert graph.limits.block(SLOT, for_=HOUR).limit.blocked_by == "person"
        assert graph.limits.set_delay(SLOT, 2).limit.gap == 2.0
        assert graph.limits.set_rate("task:shop/parse", "1/s").limit.set_gap == 1.0
        assert graph.limits.unblock(SLOT).is_changed
        with pytest.raises(NotFoundError):
            graph.limits.unblock("b.example")


def test_slots_of_a_finished_crawl(database, crawl):
    """A crawl's slots are listed also when nothing waits there any more."""
    crawl.work("A")
    crawl.connection.execute(sa.text("DELETE FROM work"))
    crawl.connection.commit()

    with ItemGraph.open(database, "books") as graph:
        assert [(one.name, one.work) for one in graph.limits.list(of_crawl=True)] == [(SLOT, 0)]


def test_slots(scrapy, crawl):
    """`slots` shows limits and slots in two tables, and all of it in JSON."""
    crawl.work("A")
    hold(crawl)
    declare(crawl, a_limit(gap=0.1, concurrency=2))
    limit_changes.block(crawl.connection, SLOT, until=datetime(2100, 1, 1, tzinfo=UTC))
    limit_changes.set_delay(crawl.connection, SLOT, 90)

    human, document = scrapy("slots"), scrapy("slots", "--json").document

    assert human.code == 0
    named, of_slots = human.out.split("\n\n")
    assert named.splitlines() == [
        "LIMIT            DELAY  AT ONCE",
        "task:shop/parse  0.1s         2",
    ]
    assert of_slots.splitlines() == [
        "SLOT       WORK  DELAY   HELD BY  BLOCKED UNTIL         BY      KNOWN",
        "a.example     1  1m 30s  1        2100-01-01 00:00:00Z  person  set 1m 30s",
    ]
    assert [one["name"] for one in document] == ["task:shop/parse", SLOT]
    assert set(document[1]) == set(asdict(shown(crawl.connection)))
    assert document[1]["holders"][0]["worker"] == crawl.worker


def test_slots_of_a_crawl_and_few(scrapy, crawl):
    """`slots --crawl` leaves out other crawls' slots, --limit all but the first."""
    for name in ("b.example", "c.example"):
        crawl.work(name, data={"url": f"http://{name}/"})
    film_crawl(crawl)

    of_films = scrapy("slots", "--crawl", "films", "--json").document
    first = scrapy("slots", "--limit", "2").out

    assert [one["name"] for one in of_films] == [SLOT]
    assert len(first.splitlines()) == 4
    assert first.endswith("(the first 2 slots; --limit shows more)\n")
    assert scrapy("slots", "--crawl", "flims").code == 1


def test_slots_shows_what_is_meant_and_what_is_estimated(scrapy, crawl, monkeypatch):
    """DELAY is the DOWNLOAD_DELAY and not what jitter makes of it; WORK may be estimated."""
    for name in "ABC":
        crawl.work(name)
    crawl.work("D", data={"url": "http://b.example/"})
    hold(crawl, terms=Terms(gap=2.0, delay=4.0))
    monkeypatch.setattr(counting, "MOST", 2)

    human, document = scrapy("slots").out, scrapy("slots", "--json").document

    assert human.splitlines()[1].split() == [SLOT, "~3", "4s", str(crawl.worker)]
    assert human.splitlines()[2].split() == ["b.example", "1"]
    assert [(one["work"], one["is_counted"]) for one in document] == [(3, False), (1, True)]
    assert (document[0]["gap"], document[0]["delay"]) == (2.0, 4.0)


def test_no_slots(scrapy, crawl):
    """Where there is nothing to show, that is said."""
    assert scrapy("slots").out == "no slot has work, and nothing was set or learned of one\n"
    assert scrapy("slots", "--json").document == []


def test_block_and_unblock(scrapy, crawl):
    """`block` says until when, `unblock` whether there was a block."""
    crawl.work("A")

    blocked = scrapy("block", "http://a.example/1", "--until", "2100-01-01")
    longer = scrapy("block", SLOT, "--for", "2h", "--json")
    ended, none = scrapy("unblock", SLOT), scrapy("unblock", SLOT, "--json")

    assert blocked.out == "a.example is blocked until 2100-01-01 00:00:00Z\n"
    assert longer.document["blocked_by"] == "person"
    assert (longer.document["is_new"], longer.document["is_changed"]) == (False, True)
    assert ended.out == "a.example is not blocked any more\n"
    assert none.code == 0
    assert none.document["is_changed"] is False
    assert scrapy("unblock", SLOT).out == "a.example was not blocked\n"


def test_a_new_slot_is_said_to_be_new(scrapy, crawl):
    """A slip of the pen in a slot's name shows."""
    crawl.work("A")

    ran = scrapy("block", "a.exmple", "--for", "1h")

    assert ran.code == 0
    assert ran.out.splitlines()[1] == (
        "new: no work names this slot yet; did you mean 'a.example'?"
    )


def test_set_delay(scrapy, crawl):
    """`set-delay` says what is kept, also where the settings or robots.txt ask for more."""
    crawl.work("A")
    hold(crawl, terms=Terms(gap=2.0))

    more = scrapy("set-delay", SLOT, "1m")
    less = scrapy("set-delay", SLOT, "0.5")
    none = scrapy("set-delay", SLOT, "none", "--json")
    crawl.connection.execute(sa.text("UPDATE limits SET crawl_delay = 20"))

    assert more.out == "a.example keeps a delay of 1m\n"
    assert less.out == (
        "a.example keeps a delay of 2s, which the settings ask for, and which is more than 0.5s\n"
    )
    assert (none.document["set_gap"], none.document["gap"]) == (None, 2.0)
    assert scrapy("set-delay", SLOT, "none").out == (
        "a.example keeps the delay of the settings, and at least the 20s of its robots.txt\n"
    )


def test_set_limit(scrapy, crawl):
    """`set-limit` sets a rate, a concurrency or both, and takes them back."""
    crawl.work("A")
    declare(crawl, a_limit())

    both = scrapy("set-limit", "task:shop/parse", "5/s", "--concurrency", "2")
    one = scrapy("set-limit", "task:shop/parse", "none", "--concurrency", "3", "--json")
    none = scrapy("set-limit", "task:shop/parse", "none")
    slot = scrapy("set-limit", SLOT, "1/2s", "--concurrency", "2")

    assert both.out == "task:shop/parse: 5/s, 2 at once\n"
    assert (one.document["set_gap"], one.document["set_concurrency"]) == (None, 3)
    assert none.out == "task:shop/parse is as the code says\n"
    assert slot.out == "a.example: 1/2s, 2 at once; it keeps a delay of 2s and 2 at once\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["block", SLOT], 2, "give one of --until TIME and --for PERIOD"),
        (["block", SLOT, "--for", "1h", "--until", "2100-01-01"], 2, "give one of"),
        (["block", SLOT, "--for", "soon"], 2, "write a number of seconds"),
        (["block", SLOT, "--until", "soon"], 2, "is no moment"),
        (["block", SLOT, "--until", "2020-01-01"], 1, "is past"),
        (["block", SLOT, "--until", "2300-01-01"], 1, "hundred years"),
        (["block", SLOT, "--for", "1h", "--crawl", "books"], 2, "leave --crawl out"),
        (["block", "task:shop/parse", "--for", "1h"], 1, "is no slot"),
        (["block", "file:///x", "--for", "1h"], 1, "has no host"),
        (["unblock"], 2, "required: SLOT"),
        (["unblock", "b.example"], 1, "ever named the slot 'b.example'"),
        (["set-delay", SLOT], 2, "required: SECONDS"),
        (["set-delay", SLOT, "0"], 2, "above 0"),
        (["set-delay", SLOT, "nan"], 2, '"none"'),
        (["set-delay", SLOT, "-5"], 2, "unknown option -5"),
        (["set-delay", SLOT, "slow"], 2, '"none"'),
        (["set-delay", SLOT, "365d"], 1, "at most 86,400 (a day)"),
        (["set-limit", SLOT, "fast"], 2, '"30/min"'),
        (["set-limit", SLOT, "0/s"], 2, "above zero"),
        (["set-limit", SLOT, "none", "--concurrency", "0"], 2, "whole number from 1"),
        (["set-limit", "global", "1/s"], 1, "there is none yet"),
        (["slots", "--limit", "0"], 2, "whole number from 1"),
    ],
)
def test_what_is_refused(scrapy, crawl, arguments, code, said):
    """What cannot be done is said in a line, changes nothing, and has its exit code."""
    crawl.work("A")

    ran = scrapy(*arguments)

    assert ran.code == code
    assert ran.out == ""
    assert said in ran.err
    assert "Traceback" not in ran.err
    assert [one["name"] for one in scrapy("slots", "--json").document] == [SLOT]
