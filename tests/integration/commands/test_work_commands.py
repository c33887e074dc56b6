"""Commands of work: the worklist, explain, failures."""

from __future__ import annotations

import os
import pty
import re
import select
import sys
import termios
from datetime import timedelta

import pytest
from support.commands_run import STORED_ERROR, TASKS

from scrapy_itemgraph.commands import printing
from scrapy_itemgraph.model.attempt_logs import LogLine
from scrapy_itemgraph.model.operations import Expire
from scrapy_itemgraph.model.work import ErrorRecord, Outcome

NOT_FOUND = ErrorRecord(type="http 404", message="Ignoring non-200 response")
RUN = """
    INSERT INTO runs (crawl_id, number, started_at, is_finished)
    SELECT id, 1, now(), true FROM crawls
"""
COLOUR = re.compile(r"\x1b\[\d*m")


@pytest.fixture
def terminal(scrapy, monkeypatch):
    """Return a function that runs a command on a terminal of a width, and returns what it shows."""
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

    def run(columns, *arguments):
        master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (24, columns))
        read = b""
        with os.fdopen(slave, "w", encoding="utf-8") as screen, monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", screen)
            ran = scrapy(*arguments)
            screen.flush()
            while select.select([master], [], [], 0)[0]:
                read += os.read(master, 65536)
        os.close(master)
        assert ran.code == 0, ran.err
        return read.decode().replace("\r\n", "\n")

    return run


def test_worklist(scrapy, crawl):
    """`worklist` lists outstanding work, never-run before stale (SRAP-15, SRAP-16)."""
    crawl.done("A")
    crawl.do(Expire(id="A", task="parse"))
    crawl.work("B", nice=7)

    listed = scrapy("worklist", "--json").document
    first = scrapy("worklist", "--limit", "1")
    of_task = scrapy("worklist", "--task", "reviews")
    unknown = scrapy("worklist", "--task", "review")

    assert [(one["item"], one["task"], one["is_stale"]) for one in listed] == [
        ("B", "parse", False),
        ("A", "parse", True),
    ]
    assert listed[0]["slot"] == "a.example"
    assert "never run" in first.out
    assert "--limit shows more" in first.out
    assert of_task.out == "no work is outstanding\n"
    assert unknown.code == 1
    assert "did you mean 'reviews'?" in unknown.err


LONG = "URL:https://a.example/" + "very-long/" * 30 + "end"
ERROR_TEXT = "long " * 90 + "the cause"


def fail_at_length(crawl):
    """Make a failure whose message is longer than three lines."""
    claim = crawl.claimed("A", "parse")
    error = ErrorRecord(type="ValueError", message=ERROR_TEXT)
    crawl.end(claim, outcome=Outcome.FAILED, error=error)


@pytest.mark.parametrize("columns", [50, 100])
def test_long_ids_fit(crawl, terminal, columns):
    """Tables are as wide as the terminal, also with long ids and wide characters."""
    crawl.work(LONG)
    crawl.work("日本" * 60)
    fail_at_length(crawl)

    listed = COLOUR.sub("", terminal(columns, "worklist"))
    failed = COLOUR.sub("", terminal(columns, "failures"))
    grouped = COLOUR.sub("", terminal(columns, "failures", "--groups"))

    for lines in (listed.splitlines(), failed.splitlines()):
        assert columns - 15 <= max(map(printing._width, lines)) <= columns
    assert max(map(printing._width, grouped.splitlines())) <= columns
    assert "end" in listed
    assert "ValueError" in failed
    assert len(failed.splitlines()) == len(grouped.splitlines()) == 2


def test_sentences_and_moments_fit_a_narrow_terminal(crawl, terminal, scrapy):
    """A run is one line at 80 columns; reasons and help are broken between words, and not cut."""
    crawl.connection.exec_driver_sql(RUN)
    crawl.connection.exec_driver_sql(
        "UPDATE runs SET ended_at = now(), spider = 'shop', reason = 'shutdown'"
    )
    crawl.register(**TASKS, callbacks={"parse_page": {}})
    crawl.done("PAGE", task="parse_page", tags=["callback:parse_page"])

    listed = COLOUR.sub("", terminal(80, "runs")).splitlines()
    explained = COLOUR.sub("", terminal(80, "explain", "PAGE", "parse_page"))
    helped = [terminal(80, command, "-h") for command in ("handle", "simulate", "crawls", "jobs")]

    assert len(listed) == 2
    assert re.search(r"  \d\d-\d\d \d\d:\d\dZ  ", listed[1])
    assert "SPIDER" not in listed[0]
    for text in (*listed, *explained.splitlines(), *"\n".join(helped).splitlines()):
        assert printing._width(text) <= 80, text
    whole = scrapy("explain", "PAGE", "parse_page").out
    assert "-s ITEMGRAPH_DEFAULT_TTL=never) or ITEMGRAPH_CALLBACKS says how long" in whole
    assert " ".join(explained.split()) == " ".join(whole.split())


def test_nothing_is_cut_or_coloured_in_a_pipe(scrapy, crawl, monkeypatch):
    """Where nobody looks, lines are whole: ids and errors can be searched for."""
    monkeypatch.delenv("COLUMNS", raising=False)
    crawl.work(LONG)
    fail_at_length(crawl)

    for command, said in (("worklist", LONG), ("failures", ERROR_TEXT)):
        out = scrapy(command).out
        assert said in out
        assert "\x1b" not in out


def test_states_have_colours_on_a_terminal(crawl, terminal, monkeypatch):
    """Heads are bold and states coloured; with NO_COLOR, or a dumb terminal, nothing is.

    Red is what needs a person, and what waits for a new run has no colour.
    """
    crawl.done("A")
    crawl.do(Expire(id="A", task="parse"))
    crawl.failed("B")

    worklist = terminal(100, "worklist")
    shown = terminal(100, "show", "B")
    explained = terminal(100, "explain", "A", "parse")
    monkeypatch.setenv("NO_COLOR", "1")
    plain = terminal(100, "worklist")
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    dumb = terminal(100, "worklist")

    assert worklist.startswith("\x1b[1mITEM")
    assert "stale" in worklist.split()
    assert "\x1b[31mheld\x1b[0m" in shown
    assert "\x1b[31mfailed" in shown
    assert "    \x1b[31mValueError: no price\x1b[0m" in shown
    assert "\x1b[32mmay run now\x1b[0m" in explained
    assert plain == dumb == COLOUR.sub("", worklist)


def reasons(scrapy, item, task="parse"):
    """Return whether the task of an item may run now, and the reasons."""
    (one,) = scrapy("explain", item, task, "--json").document
    human = scrapy("explain", item, task).out
    assert human.count("\n  - ") == len(one["reasons"])
    return one["is_eligible"], one["state"], "; ".join(one["reasons"])


def test_explain_what_runs(scrapy, crawl):
    """Outstanding work that is free says its slot and why it runs."""
    crawl.work("A")

    eligible, state, why = reasons(scrapy, "A")

    assert (eligible, state) == (True, "never run")
    assert "'a.example'" in why


def test_explain_a_dependency(scrapy, crawl):
    """A dependency that is not fresh is named, with its own state (SRAP-21)."""
    crawl.work("A")
    never = reasons(scrapy, "A", "reviews")
    crawl.failed("A")
    held = reasons(scrapy, "A", "reviews")

    assert never[0] is held[0] is False
    assert "depends on 'parse', which is never run" in never[2]
    assert "depends on 'parse', which is held by a failure" in held[2]


def test_explain_a_failure(scrapy, crawl):
    """A failure that holds the pair is named with its number and message (SRAP-18)."""
    crawl.failed("A")
    number = scrapy("failures", "--json").document[0]["id"]

    eligible, state, why = reasons(scrapy, "A")

    assert (eligible, state) == (False, "held")
    assert f"failure {number}: ValueError: no price" in why


@pytest.mark.parametrize("verb", ["skip", "stash", "unskip", "unstash"])
def test_a_variable_that_is_not_set_is_no_part_of_a_url(scrapy, crawl, verb):
    """MNB-7: `--url-part ""` would have all pages set aside, or free, so it is refused."""
    crawl.work("A")

    ran = scrapy("pages", verb, "--url-part", "")

    assert (ran.code, ran.out) == (1, "")
    assert "the part of a URL or id is empty" in ran.err
    assert [one["item"] for one in scrapy("worklist", "--json").document] == ["A"]


def test_pages_that_are_gone_are_listed_and_asked_again(scrapy, crawl):
    """`worklist --gone`, `status` and `items` have them apart; `handle --gone` frees them alone."""
    for name in "AB":
        crawl.end(crawl.claimed(name), outcome=Outcome.GONE, error=NOT_FOUND)
    crawl.failed("C")

    listed = scrapy("worklist", "--gone")
    tasks = {one["name"]: one for one in scrapy("status", "--json").document["tasks"]}
    items = [one["id"] for one in scrapy("items", "--state", "gone", "--json").document]
    may_run, state, why = reasons(scrapy, "A")
    misuse = scrapy("handle", "--gone", "--all")
    one = scrapy("handle", "--gone", "--item", "A", "--task", "parse")
    unknown = scrapy("handle", "--gone", "--item", "X")
    freed = scrapy("handle", "--gone", "--task", "parse")
    none = scrapy("worklist", "--gone")

    rows = sorted(line.split()[:2] for line in listed.out.splitlines()[1:])
    assert rows == [["A", "parse"], ["B", "parse"]]
    assert (tasks["parse"]["gone"], tasks["parse"]["held"]) == (2, 1)
    assert sorted(items) == ["A", "B"]
    assert (may_run, state) == (False, "gone")
    assert re.search("its page is gone; it is asked again in (1d|23h 59m); scrapy itemgraph", why)
    assert misuse.code == 2
    assert "--gone goes with --task and --item alone" in misuse.err
    assert one.out == "1 gone; it is asked again\n"
    assert unknown.code == 1
    assert "the item 'X' does not exist" in unknown.err
    assert freed.out == "1 gone; it is asked again\n"
    assert none.out == "no page is gone\n"
    assert [one["item"] for one in scrapy("failures", "--json").document] == ["C"]


def test_what_was_freed_or_made_stale_says_what_runs_it(scrapy, crawl):
    """`expire` and `handle --gone` say the next start; of a crawl in the queue what frees it."""
    crawl.register(parse={"tags": ["page"]}, callbacks={"list": {}})
    crawl.connection.exec_driver_sql("UPDATE crawls SET run = 1, spider = 'shop'")
    crawl.connection.exec_driver_sql(RUN)
    for name in "AD":
        crawl.done(name)
    crawl.end(crawl.claimed("B"), outcome=Outcome.GONE, error=NOT_FOUND)
    start = ["next", "  scrapy crawl shop -s ITEMGRAPH_CONTINUE=True"]

    by_worker = scrapy("expire", "A").out
    crawl.connection.exec_driver_sql("UPDATE processes SET stopped_at = now()")
    item = scrapy("expire", "A").out.splitlines()
    gone = scrapy("handle", "--gone", "--item", "B").out.splitlines()
    every = scrapy("expire", "--task", "parse").out.splitlines()
    said = []
    for state in ("active", "paused", "aborted", "finished"):
        crawl.connection.exec_driver_sql(f"UPDATE crawls SET state = '{state}'")
        said.append(scrapy("expire", "A").out.splitlines()[2:])

    assert "next" not in by_worker
    assert item[2:4] == every[1:3] == gone[1:3] == start
    steered = [["next", f"  scrapy itemgraph crawls {verb} books"] for verb in ("resume", "revive")]
    assert said == [[], *steered, []]


def test_explain_a_ttl(scrapy, crawl):
    """A fresh result says for how long; an expired one that it did."""
    crawl.done("A")
    fresh = reasons(scrapy, "A")
    crawl.age(days=2)
    stale = reasons(scrapy, "A")

    assert fresh[:2] == (False, "fresh")
    assert "fresh for " in fresh[2]
    assert stale[:2] == (True, "stale")
    assert "expired 1d ago" in stale[2]


def test_explain_a_plain_page_that_is_done(scrapy, crawl):
    """Without a time to live it says which run fetches the page again; with one for how long."""
    crawl.register(parse={"tags": ["page"]})
    crawl.connection.exec_driver_sql("UPDATE crawls SET run = 1")
    crawl.connection.exec_driver_sql(RUN)
    crawl.done("A")
    of_task = reasons(scrapy, "A")
    crawl.connection.exec_driver_sql("UPDATE tasks SET is_callback = true")
    over = reasons(scrapy, "A")
    crawl.connection.exec_driver_sql("UPDATE runs SET is_finished = false")
    goes_on = reasons(scrapy, "A")
    crawl.connection.exec_driver_sql("UPDATE runs SET number = 2")
    crawl.connection.exec_driver_sql("UPDATE crawls SET run = 2")
    later = reasons(scrapy, "A")
    crawl.connection.exec_driver_sql(
        "UPDATE results SET (expires_at, due_at) = (now() + interval '2 days', now() + interval "
        "'2 days')"
    )

    assert of_task == (False, "fresh", "its result never expires")
    assert over[2].startswith("it is done; the next run fetches it again when it comes to it")
    assert goes_on[2].startswith("it is done in run 1, which goes on; a new run fetches it again")
    assert later[2].startswith("it is done; run 2 fetches it again when it comes to it, unless")
    assert re.search(r"its result is fresh for (1d 23h|2d) more", reasons(scrapy, "A")[2])


def test_explain_versions_and_expiry_by_hand(scrapy, crawl):
    """A result of another version, or expired by hand, says so (SRAP-20)."""
    crawl.done("A")
    crawl.do(Expire(id="A", task="parse"))
    by_hand = reasons(scrapy, "A")
    crawl.done("A")
    crawl.register(**{**TASKS, "parse": {**TASKS["parse"], "version": "2"}})
    bumped = reasons(scrapy, "A")

    assert "expired by hand" in by_hand[2]
    assert "version '1', not '2'" in bumped[2]
    assert by_hand[0] is bumped[0] is True


def test_explain_a_claim(scrapy, crawl):
    """A claim names its worker."""
    crawl.claimed("A")

    eligible, _, why = reasons(scrapy, "A")

    assert not eligible
    assert f"worker {crawl.worker} (process 1 on here) has it" in why


def test_explain_a_tag(scrapy, crawl):
    """Tags that do not call for the task are listed, beside those that would."""
    crawl.item("A", tags=["other"])

    eligible, _, why = reasons(scrapy, "A")

    assert not eligible
    assert "none of the tags page; it has other" in why
    assert scrapy("explain", "A").out.startswith("no task is called for")


def test_explain_a_disabled_task(scrapy, crawl):
    """A disabled task says how to enable it."""
    crawl.work("A")
    disabled = scrapy("disable", "parse", "--json")
    off = reasons(scrapy, "A")
    enabled = scrapy("enable", "parse")
    on = reasons(scrapy, "A")

    assert disabled.document == {"task": "parse", "is_enabled": False}
    assert enabled.out == "parse is enabled\n"
    assert off[0] is False
    assert "scrapy itemgraph enable parse" in off[2]
    assert on[0] is True


def test_explain_max_failures(scrapy, crawl):
    """A task that failures stopped says how many they are (SRAP-28)."""
    for name in "ABC":
        crawl.failed(name)
    crawl.work("D")

    eligible, _, why = reasons(scrapy, "D")

    assert not eligible
    assert "3 open failures (max_failures=3)" in why
    assert "stopped by failures" in scrapy("tasks").out


def test_explain_not_before(scrapy, crawl):
    """Work that has to wait says how long, and after how many tries."""
    crawl.work("A", not_before=timedelta(hours=2))
    claim = crawl.claimed("B")
    crawl.end(claim, outcome=Outcome.RETRY, delay=timedelta(minutes=5))

    later, retried = reasons(scrapy, "A"), reasons(scrapy, "B")

    assert later[0] is retried[0] is False
    assert "may not start for another " in later[2]
    assert "after 1 tries" in retried[2]


def test_explain_a_vanished_task(scrapy, crawl):
    """A task that no spider declares any more says so."""
    crawl.done("A")
    crawl.done("A", task="reviews")
    crawl.register(parse=TASKS["parse"])

    eligible, _, why = reasons(scrapy, "A", "reviews")

    assert not eligible
    assert "no spider declares this task any more" in why
    assert "reviews (gone)" in scrapy("tasks").out


def test_explain_a_sweep(scrapy, crawl):
    """An item that an open sweep has not reached says so, and `status` shows the sweep."""
    crawl.item("A", tags=["page", "book"])
    crawl.register(swept=False, **TASKS, card={"tags": ["book"]})

    eligible, _, why = reasons(scrapy, "A", "card")

    assert not eligible
    assert "a sweep" in why
    assert "of the task card is open" in scrapy("status").out
    assert scrapy("status", "--json").document["sweeps"][0]["task"] == "card"


def test_explain_deaths_and_blocked_slots(scrapy, crawl):
    """Work that killed workers, and a slot that is blocked, are said."""
    crawl.work("A")
    crawl.die()
    crawl.die()
    crawl.connection.exec_driver_sql("UPDATE limits SET blocked_until = now() + interval '1 day'")

    eligible, _, why = reasons(scrapy, "A")

    assert not eligible
    assert "2 workers died on it" in why
    assert "'a.example' is blocked until" in why


def test_explain_all_tasks(scrapy, crawl):
    """Without a task each one is explained; an unknown one has a near miss."""
    crawl.work("A")

    every = scrapy("explain", "A", "--json").document
    unknown = scrapy("explain", "A", "pars")

    assert [one["task"] for one in every] == ["parse", "reviews"]
    assert unknown.code == 1
    assert "did you mean 'parse'?" in unknown.err


def test_failures_and_handle(scrapy, crawl):
    """Failures are listed and handled: one, a task's, all; with or without a retry (SRAP-29)."""
    for name in "ABC":
        crawl.failed(name)
    listed = scrapy("failures", "--json").document
    human = scrapy("failures", "--task", "parse").out

    one = scrapy("handle", str(listed[0]["id"]), "--json")
    gone = scrapy("handle", str(listed[0]["id"]))
    held = scrapy("handle", "--no-retry", str(listed[1]["id"]))
    rest = scrapy("handle", "--all")
    none = scrapy("handle", "--task", "parse", "--json")

    assert [(f["item"], f["task"], f["error"]) for f in listed] == [
        (name, "parse", STORED_ERROR) for name in "ABC"
    ]
    assert "ValueError: no price" in human
    assert one.document == {"handled": 1, "retry": True, "left_by": []}
    assert gone.code == 1
    assert "it stays held" in held.out
    assert rest.out == "1 handled; it may run again\n"
    assert none.document["handled"] == 0
    assert scrapy("failures").out == "no failure is open\n"
    assert [w["item"] for w in scrapy("worklist", "--json").document] == ["A", "C"]


@pytest.mark.parametrize(
    "arguments",
    [["failures", "--task"], ["handle", "--task"], ["enable"], ["disable"], ["set-ttl", "--task"]],
)
def test_unknown_tasks(scrapy, crawl, arguments):
    """A task that does not exist is refused with a near miss."""
    more = ["--recompute"] if arguments[0] == "set-ttl" else []

    ran = scrapy(*arguments, "parze", *more)

    assert ran.code == 1
    assert ran.err == "scrapy itemgraph: there is no task 'parze'; did you mean 'parse'?\n"


LOG = [
    LogLine(0.25, "info", "parsed"),
    LogLine(0.5, "warn", "odd\n\x1b[2J"),
    LogLine(1.5, "price", "3 EUR"),
    LogLine(1.5, "price", "4 EUR"),
]


def test_failures_and_show_have_the_log(scrapy, crawl):
    """SRAP-53: levels are shown, other categories are counted, and --category shows them alone."""
    crawl.end(crawl.claimed("A"), outcome=Outcome.FAILED, log=LOG)

    number = str(scrapy("failures", "--json").document[0]["id"])
    for command in (["failures", number], ["show", "A"]):
        plain = scrapy(*command).out
        prices = scrapy(*command, "--category", "price").out
        every = scrapy(*command, "--category", "*").out

        assert "    +0.25s [info] parsed\n    +0.50s [warn] odd \\x1b[2J\n" in plain
        assert "    hidden without --category: price (2)\n" in plain
        assert "EUR" not in plain
        assert "    +1.50s [price] 3 EUR\n    +1.50s [price] 4 EUR\n" in prices
        assert "parsed" not in prices
        assert "info (1), warn (1)" in prices
        assert all(text in every for text in ("parsed", "3 EUR"))
        assert "hidden" not in every


def test_logs_as_json(scrapy, crawl):
    """With --json all lines are there, or those of the categories asked for."""
    crawl.end(crawl.claimed("A"), outcome=Outcome.FAILED, log=LOG)
    crawl.done("B")

    (failure,) = scrapy("failures", "--json").document
    (attempt,) = scrapy("show", "A", "--json", "--category", "warn").document["attempts"]

    assert failure["log"] == [line._asdict() for line in LOG]
    assert [line["category"] for line in attempt["log"]] == ["warn"]
    assert [one["log"] for one in scrapy("show", "B", "--json").document["attempts"]] == [[]]
