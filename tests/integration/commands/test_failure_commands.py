"""Commands of failures: lists, one of them, groups, handling several, and taking that back."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from uuid import UUID

import pytest
from support import graphs
from support.commands_run import TASKS

from scrapy_itemgraph.commands.call import Call
from scrapy_itemgraph.model.attempt_logs import LogLine
from scrapy_itemgraph.model.work import ErrorRecord, Outcome
from scrapy_itemgraph.store import group_tallies, open_failures
from scrapy_itemgraph.store.admin import costs

TRACEBACK = """Traceback (most recent call last):
  File "/shop/spiders.py", line 7, in parse
    price = row["price"]
KeyError: 'price'
"""
BROKEN = ErrorRecord(
    type="KeyError",
    message="'price' of row 7",
    traceback=TRACEBACK,
    url="https://a.example/elsewhere",
    spider="shop",
    place="shop.spiders.Shop.parse",
    snippet="<html>\n<p>sold out</p>",
    status=200,
)


def fail(crawl, name, error, task="parse"):
    """Let a task of an item fail with an error."""
    log = [LogLine(0.25, "info", "parsed")]
    crawl.end(crawl.claimed(name, task), outcome=Outcome.FAILED, error=error, log=log)


def http(status):
    """Return the error of a page that was answered with a status."""
    return ErrorRecord(type=f"http {status}", message="Ignoring non-200 response", status=status)


@pytest.fixture
def failing(crawl, monkeypatch):
    """Yield a crawl with three pages that are gone, one that is broken, and one of another task."""
    monkeypatch.delenv("COLUMNS", raising=False)
    crawl.register(parse={"tags": ["page"]}, reviews=TASKS["reviews"])
    for name in "ABC":
        fail(crawl, name, http(404))
    fail(crawl, "D", BROKEN)
    crawl.done("E")
    fail(crawl, "E", ErrorRecord(type="ValueError", message="no review"), "reviews")
    return crawl


def numbers(scrapy, *arguments):
    """Return the numbers that a list of failures has."""
    return [one["id"] for one in scrapy("failures", *arguments, "--json").document]


def test_each_failure_is_a_line(scrapy, failing):
    """A line begins with the number, and has the task, the error and the URL."""
    listed = numbers(scrapy)
    _, *lines = scrapy("failures").out.splitlines()

    assert [int(line.split()[0]) for line in lines] == listed
    assert len(lines) == 5
    assert re.fullmatch(
        rf"\s*{listed[3]}  +\d\S*  +parse  +KeyError: 'price' of row 7  +http://a.example/D",
        lines[3],
    )


def test_lists_are_of_a_task_a_text_a_time_or_a_group(scrapy, failing):
    """What is given holds together; a text is of type or message, in capitals or not."""
    every = numbers(scrapy)

    assert numbers(scrapy, "--task", "reviews") == every[4:]
    assert numbers(scrapy, "--error", "HTTP 404") == every[:3]
    assert numbers(scrapy, "--error", "keyerror: 'price'") == every[3:4]
    assert numbers(scrapy, "--error", "http", "--task", "reviews") == []
    assert numbers(scrapy, "--group", str(every[1])) == every[:3]
    assert numbers(scrapy, "--newest", "--limit", "2") == every[:2:-1]
    assert numbers(scrapy, "--after", str(every[2])) == every[3:]
    assert numbers(scrapy, "--since", "1h") == every[::-1]
    failing.connection.exec_driver_sql(
        f"UPDATE failures SET occurred_at = now() - interval '2 days' WHERE id < {every[3]}"
    )
    assert numbers(scrapy, "--since", "1d") == every[:2:-1]
    assert scrapy("failures", "--error", "50 %").out == "no such failure is open\n"
    assert scrapy("failures", "--task", "reviewz").code == 1


def test_a_search_says_when_it_looked_no_further(scrapy, failing, monkeypatch):
    """A text is looked for in so many failures, and --after goes on where it ended."""
    monkeypatch.setattr(open_failures, "LOOKED_AT", 2)
    every = numbers(scrapy)

    first = scrapy("failures", "--error", "price")

    assert first.out == "no such failure is open\n"
    assert f"up to number {every[1]}; --after {every[1]} looks further" in first.err
    assert numbers(scrapy, "--error", "price", "--after", str(every[1])) == every[3:4]


def test_one_failure_is_shown_with_all_that_is_known(scrapy, failing):
    """Traceback, page, status, what was logged, the attempt, and the commands that come next."""
    number = str(numbers(scrapy)[3])

    shown = scrapy("failures", number)
    document = scrapy("failures", number, "--json").document

    assert shown.out.startswith(f"failure {number}: open\n")
    for line in (
        "error        KeyError: 'price' of row 7",
        "raised in    shop.spiders.Shop.parse",
        "page         http://a.example/D",
        "status       200",
        "answered by  https://a.example/elsewhere",
        "attempt      1",
        '    File "/shop/spiders.py", line 7, in parse',
        '      price = row["price"]',
        "  <p>sold out</p>",
        "    +0.25s [info] parsed",
        "  scrapy itemgraph simulate --crawl books shop parse D",
        f"  scrapy itemgraph handle {number}",
    ):
        assert f"\n{line}\n" in shown.out, line
    assert (document["id"], document["item"], document["spider"]) == (int(number), "D", "shop")
    assert document["error"]["traceback"] == TRACEBACK
    assert (document["attempt"], document["is_callback"]) == (1, False)


def test_a_failure_is_found_by_its_page(scrapy, failing):
    """A URL or an id takes the place of the number; a page without a failure is explained."""
    number = str(numbers(scrapy)[3])

    by_url = scrapy("failures", "http://a.example/D")
    fine = scrapy("failures", "http://a.example/E")
    gone = scrapy("failures", "nowhere")

    assert by_url.out == scrapy("failures", number).out == scrapy("failures", "D").out
    assert fine.code == 0
    assert "no review" in fine.out
    assert (gone.code, "the item 'nowhere' does not exist" in gone.err) == (1, True), gone.err
    assert scrapy("failures", "0").code == 2


def test_a_page_without_an_open_failure_says_how_it_is(scrapy, failing):
    """What was handled meanwhile is no failure any more; `explain` knows how the page is."""
    scrapy("handle", str(numbers(scrapy)[3]))

    shown = scrapy("failures", "http://a.example/D")

    assert shown.code == 1
    assert "scrapy itemgraph explain http://a.example/D says how it is" in shown.err


def test_a_failure_of_a_plain_callback_is_simulated_by_its_url(scrapy, crawl):
    """The command has two words, the spider and the URL, and no digest; a shell can read it."""
    crawl.register(**TASKS, callbacks={"parse_author": {}})
    data = {"url": "http://a.example/?a=1&b=2", "request": {"callback": "parse_author"}}
    crawl.item("REQ:00ff", data=data)
    crawl.rows("""
        WITH tasks AS (SELECT id FROM tasks WHERE name = 'parse_author' LIMIT 1),
        held AS (INSERT INTO results (item_id, task_id, task_version, is_successful, is_held)
            SELECT i.id, t.id, '1', false, true FROM items i, tasks t WHERE i.name = 'REQ:00ff'
            RETURNING item_id, task_id)
        INSERT INTO failures (item_id, task_id, error, fingerprint)
        SELECT item_id, task_id, '{"type": "ValueError"}', gen_random_uuid() FROM held
        RETURNING 1
    """)
    (number,) = numbers(scrapy)

    shown = scrapy("failures", str(number)).out

    (line,) = [line for line in shown.splitlines() if "simulate" in line]
    assert shlex.split(line)[2:] == [
        "simulate",
        "--crawl",
        "books",
        "shop",
        "http://a.example/?a=1&b=2",
    ]
    assert "REQ:" not in shown
    assert "callback  parse_author\n" in shown


def test_a_failure_that_is_handled_can_still_be_shown(scrapy, failing):
    """It says when and by whom, and `handle` says where to look; one that never was is refused."""
    number = str(numbers(scrapy)[0])
    scrapy("handle", number)

    shown = scrapy("failures", number).out
    again = scrapy("handle", number)

    assert re.match(rf"failure {number}: handled \S+ \S+, a person\n", shown)
    assert f"scrapy itemgraph unhandle {number}" in shown
    assert again.code == 1
    assert f"it is handled, as scrapy itemgraph failures {number} shows; " in again.err
    assert scrapy("failures", "99999").code == 1
    assert scrapy("failures", number, "--task", "parse").code == 2


def test_groups_are_a_line_each(scrapy, failing):
    """A group has its number, how many, since when, what is alike, and who raised it."""
    every = numbers(scrapy)

    _, *lines = scrapy("failures", "--groups").out.splitlines()
    by_count = scrapy("failures", "--groups", "--sort", "count", "--json").document
    some = scrapy("failures", "--groups", "--error", "price", "--json").document

    assert [int(line.split()[0]) for line in lines] == [every[4], every[3], every[2]]
    assert re.search(r" 3  \d\S*  +\d\S*  +parse  +http 404: Ignor", lines[2])
    assert re.search(r"KeyError: 'price' of row …  +Shop\.parse$", lines[1])
    assert [one["count"] for one in by_count] == [3, 1, 1]
    assert [one["example"]["id"] for one in some] == [every[3]]
    assert scrapy("failures", "--groups", "--task", "reviews").out.count("\n") == 2


def test_several_are_handled_by_their_numbers_and_taken_back(scrapy, failing):
    """Numbers that are not open are named, and then nothing is handled (SRAP-29)."""
    every = numbers(scrapy)

    refused = scrapy("handle", str(every[0]), "99999")
    after_refusal = numbers(scrapy)
    handled = scrapy("handle", *map(str, every[:2]))
    undone = scrapy("unhandle", str(every[0]))
    again = scrapy("unhandle", str(every[0]))

    assert refused.code == 1
    assert "there is no open failure 99999" in refused.err
    assert after_refusal == every
    assert handled.out == "2 handled; they may run again\n"
    assert undone.out == "1 failure is open again; what failed is held\n"
    assert numbers(scrapy) == [every[0], *every[2:]]
    assert again.code == 1
    assert "nothing was undone" in again.err
    assert scrapy("unhandle").code == 2


def test_what_has_run_since_is_not_taken_back(scrapy, failing):
    """A page that was fetched after it was handled keeps its new result."""
    number = str(numbers(scrapy)[0])
    scrapy("handle", number)
    failing.done("A")

    assert scrapy("unhandle", number).code == 1


def test_a_group_a_text_or_a_time_is_handled_at_once(scrapy, failing):
    """Options hold together; --dry-run counts and changes nothing."""
    every = numbers(scrapy)
    group = ["handle", "--group", str(every[0])]

    tried = scrapy(*group, "--dry-run")
    counted = scrapy("handle", "--error", "404", "--task", "reviews", "--dry-run", "--json")
    after_trial = numbers(scrapy)
    broken = scrapy("handle", "--error", "keyerror", "--since", "1h")
    of_group = scrapy(*group, "--no-retry")

    assert tried.out == "would handle 3; nothing was changed\n"
    none = {"handled": 0, "would_handle": 0, "is_estimated": False, "retry": True}
    assert counted.document == none
    assert after_trial == every
    assert broken.out == "1 handled; it may run again\n"
    assert of_group.out == "3 handled; they stay held\n"
    assert numbers(scrapy) == every[4:]
    assert scrapy("handle").code == 2
    assert scrapy("handle", str(every[4]), "--all").code == 2


def test_only_workers_of_the_tasks_concerned_are_told_from_newer_code(scrapy, failing):
    """Handling a group leaves tasks alone whose failures stay open."""
    failing.connection.exec_driver_sql("UPDATE tasks SET left_by = '{7}'")
    every = numbers(scrapy)

    scrapy("handle", "--any-code", "--group", str(every[4]))

    left = failing.rows("SELECT name, left_by FROM tasks ORDER BY name")
    assert [tuple(one) for one in left] == [("parse", [7]), ("reviews", [])]


def test_a_number_finds_its_crawl(scrapy, failing):
    """Numbers are of the whole database: without --crawl the crawl of the number is meant."""
    other = graphs.Crawl(failing.connection, "other")
    other.register(**TASKS)
    fail(other, "X", BROKEN)
    number = scrapy("failures", "--crawl", "other", "--json").document[0]["id"]

    shown = scrapy("failures", str(number))
    handled = scrapy("handle", "--group", str(number))

    assert "KeyError" in shown.out
    assert handled.out == "1 handled; it may run again\n"
    assert scrapy("failures", "99999").code == 1


def test_commands_say_what_they_cost_before_they_do_it(scrapy, failing, monkeypatch):
    """How many pages `handle`, `expire` and `crawls set --depth` free; many are not counted."""
    left = []
    note = Call.note

    def noted(call, line):
        left.append(len(failing.failures()))
        note(call, line)

    monkeypatch.setattr(Call, "note", noted)
    one, *_ = numbers(scrapy)

    said = [scrapy("handle", str(one)).err, scrapy("handle", "--no-retry", "--task", "reviews").err]
    monkeypatch.setattr(costs, "MANY", 3)
    said += [scrapy("handle", "--all").err, scrapy("expire", "--all").err]
    scrapy("crawls", "set", "books", "--depth", "0")
    failing.connection.exec_driver_sql(
        "INSERT INTO depths (item_id, crawl_id, depth) "
        "SELECT id, crawl_id, 1 FROM items WHERE name = 'A'"
    )
    said.append(scrapy("crawls", "set", "books", "--depth", "2").err)

    assert said == [
        "scrapy itemgraph: 1 page to fetch\n",
        "",
        "scrapy itemgraph: 3 or more pages to fetch\n",
        "scrapy itemgraph: 3 or more pages to fetch\n",
        "scrapy itemgraph: 1 page to fetch\n",
    ]
    assert left == [5, 3, 0, 0]


@pytest.mark.parametrize(
    ("is_finished", "settings", "said"),
    [
        (True, {}, "scrapy crawl shop -a tag=love -s ITEMGRAPH_CONTINUE=True"),
        (True, {"ITEMGRAPH_DEFAULT_TTL": "7d"}, "scrapy crawl shop -a tag=love"),
        (True, {"ITEMGRAPH_CALLBACKS": {"list": {"ttl": "1d"}}}, "scrapy crawl shop -a tag=love"),
        (False, {}, "scrapy crawl shop -a tag=love"),
    ],
)
def test_handle_says_which_start_runs_it_again(scrapy, failing, is_finished, settings, said):
    """A new run of plain callbacks needs a time to live, lest it fetch all; a worker no start."""
    failing.register(parse={"tags": ["page"]}, reviews=TASKS["reviews"], callbacks={"list": {}})
    every = numbers(scrapy)
    failing.connection.exec_driver_sql(
        "UPDATE crawls SET run = 1, spider = 'shop', given = '{\"tag\": \"love\"}'"
    )
    failing.connection.exec_driver_sql(
        "INSERT INTO runs (crawl_id, number, started_at, is_finished) "
        f"SELECT id, 1, now(), {is_finished} FROM crawls"
    )

    running = scrapy("handle", str(every[0]), **settings).out
    failing.connection.exec_driver_sql("UPDATE processes SET stopped_at = now()")
    stopped = scrapy("handle", str(every[1]), **settings).out
    held = scrapy("handle", str(every[2]), "--no-retry", **settings).out

    assert running == "1 handled; it may run again\n"
    assert stopped.splitlines()[1:3] == ["next", f"  {said}"]
    assert ("without -s" in stopped) == ("-s" in said)
    assert held == "1 handled; it stays held\n"


def test_a_narrow_list_keeps_the_end_of_a_url(scrapy, failing, monkeypatch):
    """Of a page that does not fit the scheme goes first, then the middle; its end stays."""
    end = "/docs/15/sql-createtable-and-more.html"
    fail(failing, f"W{end}", BROKEN)

    monkeypatch.setenv("COLUMNS", "100")
    wide = scrapy("failures", "--newest").out.splitlines()[1]
    monkeypatch.setenv("COLUMNS", "80")
    narrow = scrapy("failures", "--newest").out.splitlines()[1]

    assert len(wide) <= 100
    assert len(narrow) <= 80
    assert wide.endswith("more.html")
    assert re.search(r"  a\S*\.\.\.\S*-more\.html$", narrow)


def test_a_group_has_its_number_and_its_trend(scrapy, failing):
    """Its line and JSON say how many each run had, handled ones too, if several runs had some."""
    crawl = failing
    every = scrapy("failures", "--groups", "--json").document
    for run, times in ((1, 2), (2, 1_000), (3, 1)):
        told = [Counter({UUID(every[-1]["group"]): times}), Counter({UUID(every[0]["group"]): 1})]
        group_tallies.add(crawl.connection, crawl.id, run, told if run == 1 else told[:1])

    head, *lines = scrapy("failures", "--groups").out.splitlines()
    *_, last = scrapy("failures", "--groups", "--json").document

    assert head.split()[:6] == ["GROUP", "FAILURES", "NO", "ALL", "BY", "RUN"]
    assert re.search(r" 1  #2  +\d\S*  +\d", lines[0])
    assert re.search(r" 3  #1  1,003  2 1,000 1  \d", lines[2])
    assert (last["number"], last["count"], last["times"]) == (1, 3, 1_003)
    assert last["runs"][:2] == [{"run": 1, "times": 2}, {"run": 2, "times": 1_000}]
    assert last["first_seen"] <= last["first_at"]
