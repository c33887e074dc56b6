"""The queue over HTTP: crawls added, listed and steered; their jobs with logs; runners."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest
import sqlalchemy as sa
from support import filled_queue, steering, web_servers

from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.store.registry import job_ends
from scrapy_itemgraph.web.app import create_app
from scrapy_itemgraph.web.crawl_terms import CrawlTerms
from scrapy_itemgraph.web.graphs import Graphs
from scrapy_itemgraph.web.pages import queue as queue_page
from scrapy_itemgraph.web.pages import runners as runners_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

Q = "/api/v1/queue"


@pytest.fixture
def graph(database) -> Iterator[ItemGraph]:
    """Yield the graph of an empty database."""
    with ItemGraph.open(database) as one:
        yield one


@pytest.fixture
def ask(graph) -> Callable[..., httpx.Response]:
    """Return a function that sends a request to a server without a project's code."""
    return asking(graph)


def asking(graph, **terms) -> Callable[..., httpx.Response]:
    """Return a function that sends a request, with a body as JSON."""
    app = create_app(Graphs(graph), crawl_terms=CrawlTerms(**terms))

    def ask(method, path, body=None, **options) -> httpx.Response:
        given = {} if body is None else {"json": body}
        return web_servers.asked(app, method, path, **given, **options)

    return ask


def test_a_crawl_is_added_steered_and_seen(ask) -> None:
    """MNB-3: added, listed with why it waits, set, paused, resumed, aborted, revived; by whom."""
    crawl = {"spider": "books", "project": "shop", "arguments": {"page": 2}, "time_limit": "1h"}
    added = ask("POST", Q, crawl | {"settings": {"DOWNLOAD_DELAY": 2}, "tag": "big"})

    assert added.status_code == 201, added.text
    assert added.json()["name"] == "books:page=2"
    assert added.json()["arguments"] == {"page": "2"}
    assert added.json()["time_limit"] == 3600
    assert "does not have the code of the project shop" in added.json()["warnings"][0]
    assert "no runner of the project 'shop' has the tag 'big'" in added.json()["warnings"][1]
    one = f"{Q}/{web_servers.encoded('books:page=2')}"
    (listed,) = ask("GET", Q).json()["rows"]
    assert listed["why"] == "no runner of the project shop lives"
    changed = ask("PATCH", one, {"nice": -5, "tag": None, "settings": {"LOG_LEVEL": "INFO"}})
    assert (changed.json()["nice"], changed.json()["tag"]) == (-5, None)
    assert changed.json()["settings"] == {"DOWNLOAD_DELAY": "2", "LOG_LEVEL": "INFO"}
    paused = ask("POST", f"{one}/pause", {"reason": "the site is down"}).json()
    assert paused == {"name": "books:page=2", "state": "paused", "processes": 0}
    assert ask("POST", f"{one}/drain").json()["state"] == "paused"
    shown = ask("GET", one).json()
    assert "the site is down" in shown["explained"][0]
    assert ask("GET", Q).json()["rows"][0]["why"] == "the site is down"
    for verb, state in {"resume": "active", "abort": "aborted", "revive": "active"}.items():
        assert ask("POST", f"{one}/{verb}").json()["state"] == state
    history = ask("GET", f"{one}/history?limit=3").json()
    assert [each["what"] for each in history["rows"]] == ["revived", "aborted", "resumed"]
    assert {each["by"] for each in history["rows"]} == {f"http@{socket.gethostname()}"}
    older = ask("GET", f"{one}/history?after={history['next']}").json()
    assert [each["what"] for each in older["rows"]] == ["paused", "set", "added"]
    assert ask("GET", f"{one}/explain").json()["runners"] == []
    assert ask("GET", f"{one}/whereis").json() == []


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"spider": "s"}, 422, 'say which project\'s runners take it, as "project"'),
        ({"spider": "-o", "project": "p"}, 422, "no spider's name"),
        ({"spider": "s", "project": "p", "name": "a{b}"}, 422, "braces"),
        ({"spider": "s", "project": "p", "arguments": {"token": "x"}}, 422, "-a token=@env:TOKEN"),
        ({"spider": "s", "project": "p", "arguments": {"a": "ftp://u:x@h"}}, 422, "-a a=@env:A"),
        ({"spider": "s", "project": "p", "arguments": {"a": "@env:HOME"}}, 422, "--allow-variable"),
        (
            {"spider": "s", "project": "p", "settings": {"FEEDS": "{}"}},
            422,
            "--allow-setting FEEDS",
        ),
        ({"spider": "s", "project": "p", "arguments": {"a=b": "c"}}, 422, "is no name for -a"),
        ({"spider": "s", "project": "p", "arguments": {"name": "../x"}}, 422, "does not have"),
        ({"spider": "s", "project": "p", "settings": {"LOG_LEVEL": "X"}}, 422, "'X' is no level"),
        ({"spider": "s", "project": "p", "settings": {"DOWNLOAD_DELAY": -1}}, 422, "0 to 86400"),
        ({"spider": "s", "project": "p", "concurrency": -1}, 422, "concurrency"),
        ({"spider": "s", "project": "p", "time_limit": "soon"}, 422, "soon"),
    ],
)
def test_what_cannot_be_a_crawl_is_refused_in_words(ask, body, status, said) -> None:
    """Names, values and settings that no crawl may have over HTTP are refused, and say why."""
    answer = ask("POST", Q, body)

    assert answer.status_code == status
    assert said in answer.text.replace('\\"', '"')


def test_what_whoever_serves_allows_may_be_given(graph) -> None:
    """Settings and variables that the server was started with may be given over HTTP."""
    ask = asking(graph, settings=["FEEDS"], variables=["SHOP_TOKEN"])
    body = {"spider": "s", "project": "p", "arguments": {"token": "@env:SHOP_TOKEN"}}
    added = ask("POST", Q, body | {"settings": {"FEEDS": '{"a.jsonl": {}}'}})

    assert added.status_code == 201
    assert added.json()["arguments"] == {"token": "@env:SHOP_TOKEN"}


def test_spiders_are_those_of_the_project_that_is_served(graph) -> None:
    """A server with a project's code adds crawls of its own spiders, and names those near."""
    ask = asking(graph, project="shop", list_spiders=["printf", "books\\ncats\\n"])

    assert ask("POST", Q, {"spider": "books"}).json()["project"] == "shop"
    late = ask("PATCH", f"{Q}/books", {"settings": {"CONCURRENT_REQUESTS": "inf"}})
    assert (late.status_code, "a whole number from 1, not 'inf'" in late.text) == (422, True)
    unknown = ask("POST", Q, {"spider": "bocks"})
    assert unknown.status_code == 404
    assert "did you mean 'books'?; the project has books, cats" in unknown.json()["detail"]
    other = ask("POST", Q, {"spider": "bocks", "project": "other"})
    assert "does not have the code of the project other" in other.json()["warnings"][0]
    listed = asking(graph, project="shop", list_spiders=["printf", "s\\tname\\turls\\n"])
    for name, said in {"name": "would replace", "urls": "give it on the command line"}.items():
        refused = listed("POST", Q, {"spider": "s", "arguments": {name: "/etc/passwd"}})
        assert (refused.status_code, said in refused.text) == (422, True), refused.text
        at = posted(listed, "/queue/add", spider="s", arguments=f"{name}=/etc/passwd")
        assert (at.status_code, said in at.text) == (422, True)
    broken = asking(graph, project="shop", list_spiders=["ls", "/nowhere"])
    assert "cannot be loaded" in broken("POST", Q, {"spider": "x"}).json()["detail"]


def test_a_spider_of_the_package_is_refused_whatever_the_project(graph) -> None:
    """MNB-3: another project, or a server without code, is no way around it; an own spider is."""
    here = asking(graph, project="shop", list_spiders=["printf", "books\\n"])
    nowhere = asking(graph)
    site = {"spider": "site", "arguments": {"url": "http://10.0.0.1/"}}

    for ask, body in ((here, site), (here, site | {"project": "other"})):
        assert_is_refused(ask("POST", Q, body))
    assert_is_refused(nowhere("POST", Q, site | {"project": "shop"}))
    assert graph.queue.list() == []
    own = asking(graph, project="shop", list_spiders=["printf", "site\\n"])
    assert own("POST", Q, site).status_code == 201


def assert_is_refused(answer: httpx.Response) -> None:
    """Hold that a spider was refused because it comes with the package."""
    assert answer.status_code == 404
    assert "comes with scrapy-itemgraph" in answer.json()["detail"]


def test_pages_of_the_queue_follow_its_order(ask, database) -> None:
    """Active crawls come in the order of their turns, then the others, page by page, by tag too."""
    for name, given in {
        "late": {"nice": 5},
        "early": {"nice": -5, "tag": "big"},
        "first": {},
        "second": {"tag": "big"},
        "resting": {"is_paused": True},
    }.items():
        steering.committed(database, steering.add, name, name=name, **given)
    for name in ("old", "new"):
        steering.committed(database, steering.add, name, name=name, tag="big")
        steering.committed(database, steering.change, name, "abort")
    seen, after = [], None
    while after != "":
        found = ask("GET", Q, params={"limit": 2} | ({"after": after} if after else {})).json()
        seen += [one["name"] for one in found["rows"]]
        after = found["next"] or ""
    big = ask("GET", Q, params={"tag": "big", "limit": 2}).json()
    more = ask("GET", Q, params={"tag": "big", "after": big["next"]}).json()

    assert seen == ["early", "first", "second", "late", "resting", "new", "old"]
    assert [one["name"] for one in big["rows"]] == ["early", "second"]
    assert [one["name"] for one in more["rows"]] == ["new", "old"]
    (resting,) = ask("GET", f"{Q}?state=paused").json()["rows"]
    assert (resting["name"], resting["by"]) == ("resting", steering.ANNA)
    assert ask("GET", f"{Q}?after=x").status_code == 422


FORM = {"content-type": "application/x-www-form-urlencoded", "accept": "text/html"}


def posted(ask, path, **fields) -> httpx.Response:
    """Send a form, as a button on a page does."""
    return ask("POST", path, headers=FORM, content=urlencode(fields))


def test_forms_add_set_and_steer_as_the_command_line_does(ask, graph) -> None:
    """The cockpit's forms put a crawl into the queue and change it; what is wrong stays in them."""
    new = {"spider": "s", "project": "p", "arguments": "page=2\n", "time_limit": "1h", "nice": "3"}
    wrong = posted(ask, "/queue/add", **new, settings="FEEDS={}", note="for ann")
    assert (wrong.status_code, "--allow-setting FEEDS" in wrong.text) == (422, True)
    assert 'value="for ann"' in wrong.text
    assert "is not NAME=VALUE" in posted(ask, "/queue/add", **new | {"arguments": "x"}).text
    added = posted(ask, "/queue/add", **new, settings="LOG_LEVEL = INFO", tag="")
    assert added.headers["location"] == "/crawls/s%3Apage%3D2/queue"
    one = graph.queue.get("s:page=2")
    assert (one.nice, one.tag, one.settings) == (3, None, {"LOG_LEVEL": "INFO"})
    at = "/queue/s%3Apage%3D2"
    same = {"nice": "3", "concurrency": "1", "time_limit": "1h"}
    posted(ask, f"{at}/set", **same)
    posted(ask, f"{at}/set", **same | {"tag": "big", "nice": "-1"}, settings="DOWNLOAD_DELAY=2")
    assert graph.queue.history("s:page=2", limit=1)[0].detail["changed"] == [
        "nice",
        "start_settings",
        "tag",
    ]
    assert len(graph.queue.history("s:page=2")) == 2
    for verb, state in (("pause", "paused"), ("resume", "active"), ("abort", "aborted")):
        posted(ask, f"{at}/{verb}", reason="because")
        assert graph.queue.get("s:page=2").state == state
    refused = posted(ask, f"{at}/pause", back="/queue")
    assert refused.headers["location"] == "/queue"
    posted(ask, f"{at}/revive")
    assert graph.queue.get("s:page=2").state == "active"
    assert posted(ask, f"{at}/lock", runner="box").status_code == 404
    posted(ask, f"{at}/unlock")


def test_feeds_of_a_crawl_that_keeps_no_items_are_refused_by_api_and_form(graph) -> None:
    """As by `crawls add`: by the project, by the crawl itself, and when its settings change."""
    own = {"project": "shop", "list_spiders": ["printf", "s\\n"], "feeds": ["out/a.csv"]}
    told = asking(graph, **own, keeps=False)
    ask = asking(graph, **own)
    split, anew = "would write out/a.csv by itself", {"ITEMGRAPH_KEEP_ITEMS": "False"}

    refused = [
        told("POST", Q, {"spider": "s"}),
        ask("POST", Q, {"spider": "s", "settings": anew}),
        posted(ask, "/queue/add", spider="s", settings="ITEMGRAPH_KEEP_ITEMS=False"),
    ]
    assert told("POST", Q, {"spider": "s", "project": "other"}).status_code == 201
    assert ask("POST", Q, {"spider": "s", "name": "kept"}).status_code == 201
    refused.append(ask("PATCH", f"{Q}/kept", {"settings": anew}))
    late = posted(ask, "/queue/kept/set", settings="ITEMGRAPH_KEEP_ITEMS=False", back="/queue")

    assert [(one.status_code, split in one.text) for one in refused] == [(422, True)] * 4
    assert late.headers["location"] == "/queue"
    assert graph.queue.get("kept").settings == {}


def on_mars(connection: sa.Connection) -> None:
    """Give all schedules a time zone that cannot be read, as only a statement can."""
    connection.execute(sa.text("UPDATE schedules SET time_zone = 'Mars/Gale'"))


def test_schedules_are_added_changed_and_removed(ask, graph, database) -> None:
    """A crawl is started by schedules over HTTP and by forms; the next times are told."""
    steering.committed(database, steering.add, name="c")
    given = {"crawl": "c", "at": "03:00", "time_zone": "Europe/Berlin", "jitter": "30m"}
    added = ask("POST", "/api/v1/schedules", given)
    assert added.status_code == 201, added.text
    made = added.json()
    assert (made["rule"], made["jitter"], made["is_enabled"]) == (
        "at 03:00 Europe/Berlin",
        1800,
        True,
    )
    one = f"/api/v1/schedules/{made['id']}"
    assert ask("PATCH", one, {"at": "3:00"}).json()["rule"] == "at 03:00 Europe/Berlin"
    due = ask("GET", f"{one}/next?count=2&after=2026-03-28T12:00Z").json()
    assert [each["due"] for each in due] == [
        "2026-03-29T01:00:00+00:00",
        "2026-03-30T01:00:00+00:00",
    ]
    changed = ask("PATCH", one, {"every": "6h", "jitter": None}).json()
    assert (changed["rule"], changed["jitter"]) == ("every 6h", None)
    assert ask("POST", f"{one}/disable").json()["is_enabled"] is False
    assert ask("POST", f"{one}/enable").json()["is_enabled"] is True
    wrong = ask("POST", "/api/v1/schedules", {"crawl": "c", "cron": "x"})
    assert (wrong.status_code, "five" in wrong.json()["detail"]) == (422, True)
    assert ask("GET", "/api/v1/schedules?crawl=c").json()["rows"] == [ask("GET", one).json()]
    assert ask("DELETE", one).json() == {"id": made["id"]}
    assert ask("GET", one).status_code == 404

    rule = {"kind": "cron", "when": "30 2 * * 1-5", "time_zone": "UTC"}
    more = {"catch_up": "none", "overlap": "queue", "grace": "5m", "jitter": "", "time_limit": ""}
    posted(ask, "/schedules", crawl="c", **rule, **more)
    (one,) = graph.schedules.list()
    assert (str(one.rule), one.catch_up, one.overlap) == ("cron 30 2 * * 1-5 UTC", "none", "queue")
    shown = ask("GET", f"/schedules/{one.id}", headers=FORM).text
    assert "The next times" in shown
    steering.committed(database, on_mars)
    shown = ask("GET", f"/schedules/{one.id}", headers=FORM).text
    assert "there is no time zone &#39;Mars/Gale&#39;" in shown
    posted(ask, f"/schedules/{one.id}/set", **rule | {"when": "0 4 * * *"}, **more)
    assert str(graph.schedules.get(one.id).rule) == "cron 0 4 * * * UTC"
    posted(ask, f"/schedules/{one.id}/disable")
    assert "disabled" in ask("GET", "/schedules", headers=FORM).text
    assert "due again" not in ask("GET", "/queue", headers=FORM).text
    posted(ask, f"/schedules/{one.id}/enable")
    assert "due again" in ask("GET", "/queue", headers=FORM).text
    posted(ask, f"/schedules/{one.id}/remove")
    assert graph.schedules.list() == []
    body = {"spider": "s", "project": "p", "name": "nightly", "at": "03:00"}
    assert ask("POST", Q, body | {"paused": True}).status_code == 422
    assert ask("POST", Q, body).json()["state"] != "active"


def test_notices_are_listed_and_tested(ask, graph, database) -> None:
    """A notice is shown with its delivery; a test says where this server tells nobody."""
    steering.committed(database, steering.add, name="c")
    ask("POST", f"{Q}/c/abort", {"reason": "enough"})
    (one,) = ask("GET", "/api/v1/notices?crawl=c").json()["rows"]

    assert (one["what"], one["crawl"], one["tries"]) == ("aborted", "c", 0)
    refused = ask("POST", "/api/v1/notices/test")
    assert (refused.status_code, "tells nobody" in refused.text) == (422, True)
    page = ask("GET", "/notices", headers=FORM).text
    assert "aborted" in page
    assert "tells nobody" in page


WRONG = ("a\0b", "\u202e" * 2000, "9" * 40, "1e309", "[]", '["active", "p", 0, "x", 1]')
FORMS = {
    "/queue/add": ("spider", "name", "project", "arguments", "nice", "time_limit", "kind", "when"),
    "/queue/c/set": ("nice", "concurrency", "tag", "note", "resource", "time_limit", "settings"),
    "/queue/c/pause": ("reason", "back"),
    "/queue/c/lock": ("runner", "place"),
    "/schedules": ("crawl", "kind", "when", "time_zone", "catch_up", "grace", "jitter"),
    "/runners/box/set": ("tags",),
    "/runners/box/reclaim": ("reason",),
}
QUERIES = {
    "/queue": ("state", "tag", "after"),
    "/jobs": ("crawl", "open", "after"),
    "/schedules": ("crawl", "after"),
    "/notices": ("crawl", "after"),
    "/crawls/c/queue": ("before",),
}


def test_nonsense_is_refused_in_words(ask, database, ran) -> None:
    """Whatever stands in a field or an address of these pages, the answer is a page, and no 5xx."""
    steering.committed(database, steering.add, name="c")
    ran("INSERT INTO runners (name, project, places) VALUES ('box', 'proj', 1)")
    ran("INSERT INTO places (runner_id, number) SELECT id, 1 FROM runners")
    good = {"spider": "s", "project": "p", "crawl": "c", "runner": "box", "kind": "at"}
    for path, names in FORMS.items():
        for name in names:
            for wrong in WRONG:
                answer = posted(ask, path, **good | {name: wrong})
                assert answer.status_code < 500, (path, name, wrong, answer.text)
    for path, names in QUERIES.items():
        for name in names:
            for wrong in WRONG:
                answer = ask("GET", path, params={name: wrong}, headers=FORM)
                assert answer.status_code < 500, (path, name, wrong, answer.text)


@pytest.fixture
def ran(database) -> Callable[[str], None]:
    """Return a function that runs a statement."""

    def run(statement: str) -> None:
        steering.committed(database, lambda connection: connection.execute(sa.text(statement)))

    return run


def test_jobs_are_listed_read_and_steered(ask, database, ran) -> None:
    """A job's log is read from a line on, until it is over; jobs are cancelled and retried."""
    steering.committed(database, steering.add, name="c")
    for _ in range(2):
        ran("INSERT INTO jobs (crawl_id, origin) SELECT id, 'runner' FROM crawls")
    first, second = (one["id"] for one in ask("GET", "/api/v1/jobs").json()["rows"][::-1])
    log = f"/api/v1/jobs/{first}/log"
    assert ask("GET", log).json()["has_begun"] is False
    ran(f"UPDATE jobs SET state = 'running', started_at = now() WHERE id = {first}")
    steering.committed(database, job_ends.keep_output, first, "three\nfour\nfi", 4, 0)

    part = ask("GET", log).json()
    assert (part["text"], part["next"], part["left_out"]) == ("three\nfour\n", 4, 2)
    assert ask("GET", f"{log}?after=3").json()["text"] == "four\n"
    steering.committed(
        database, job_ends.end, first, by="runner r", exit_code=0, output="five\nsix", lines=5
    )
    part = ask("GET", f"{log}?after=4").json()
    assert (part["text"], part["next"], part["is_over"]) == ("five\nsix\n", 6, True)
    assert ask("GET", f"{log}?after=6").json()["text"] == ""
    assert ask("POST", f"/api/v1/jobs/{second}/cancel").json() == {"job": second, "crawl": "c"}
    again = ask("POST", f"/api/v1/jobs/{second}/retry").json()
    listed = ask("GET", "/api/v1/jobs?open=true&crawl=c").json()
    assert [one["id"] for one in listed["rows"]] == [again["job"]]
    assert ask("GET", "/api/v1/jobs/999").status_code == 404
    assert ask("POST", f"/api/v1/jobs/{again['job']}/reclaim", {"reason": "x"}).status_code == 422


def test_runners_are_listed_set_drained_and_reclaimed(ask, database, ran) -> None:
    """A runner is shown with its places, takes other crawls when told, and starts nothing more."""
    steering.committed(database, steering.add, name="c")
    ran("INSERT INTO runners (name, project, places) VALUES ('box 1', 'proj', 1)")
    ran("INSERT INTO places (runner_id, number) SELECT id, 1 FROM runners")
    runner = "/api/v1/runners/box%201"

    assert [one["state"] for one in ask("GET", "/api/v1/runners").json()] == ["gone"]
    changed = ask("PATCH", runner, {"tags": ["big"], "only_tagged": True}).json()
    assert (changed["tags"], changed["only_tagged"]) == (["big"], True)
    assert ask("PATCH", runner, {"tags": []}).status_code == 422
    drained = ask("POST", f"{runner}/drain").json()
    assert drained == {"runner": "box 1", "drains": True, "is_changed": True}
    assert ask("POST", f"{runner}/undrain").json()["drains"] is False
    locked = ask("PUT", f"{Q}/c/lock", {"runner": "box 1"})
    assert locked.json() == {"name": "c", "runner": "box 1", "place": 1}
    assert ask("GET", runner).json()["in_places"][0]["locked_to"] == "c"
    assert ask("DELETE", f"{Q}/c/lock").json() == [{"runner": "box 1", "place": 1}]
    taken = ask("POST", f"{runner}/reclaim", {"reason": "it burned down"})
    assert taken.json() == {"target": "box 1", "reason": "it burned down"}
    assert ask("GET", "/api/v1/runners/box").status_code == 404
    assert ask("POST", "/api/v1/workers/7/reclaim", {"reason": "x"}).status_code == 404


def test_pages_of_the_queue_say_what_the_api_says(ask, database, ran) -> None:
    """The queue, a crawl of it, runners and jobs are pages; without a queue no page leads there."""
    page = {"headers": {"accept": "text/html"}}
    assert "/queue" not in ask("GET", "/", **page).text
    assert "The queue is empty" in ask("GET", "/queue", **page).text
    steering.committed(database, steering.add, name="a/b", tag="big", note="<b>for ann</b>")
    steering.committed(database, steering.add, name="resting", is_paused=True)
    ran("INSERT INTO jobs (crawl_id, origin) SELECT id, 'runner' FROM crawls WHERE name = 'a/b'")
    ran("INSERT INTO runners (name, project, places) VALUES ('box', 'proj', 1)")
    ran("INSERT INTO places (runner_id, number) SELECT id, 1 FROM runners")
    (job,) = ask("GET", "/api/v1/jobs").json()["rows"]
    queue = ask("GET", "/queue", **page).text

    assert queue.index("a/b") < queue.index("resting")
    assert "no runner of the project proj lives" in queue
    assert "&lt;b&gt;for ann&lt;/b&gt;" in queue
    assert "resting" not in ask("GET", "/queue?state=active&tag=big", **page).text
    assert ask("GET", "/queue?state=nope", **page).status_code == 422
    crawl = ask("GET", "/crawls/a%2Fb/queue", **page).text
    assert f'href="/jobs/{job["id"]}"' in crawl
    assert "anna@desk" in crawl
    assert "gone" in ask("GET", "/runners", **page).text
    assert "a/b" in ask("GET", "/jobs", **page).text
    assert "it has not begun" in ask("GET", f"/jobs/{job['id']}", **page).text
    with web_servers.crawl_of(database, "by hand"):
        pass
    assert "is not in the queue" in ask("GET", "/crawls/by%20hand/queue", **page).text
    assert ask("GET", "/crawls/nope/queue", **page).status_code == 404


def test_the_queue_says_which_crawls_are_broken_and_why(ask, database, ran) -> None:
    """In the list and on the crawl's page; a crawl that has never run, and is paused, is well."""
    page = {"headers": {"accept": "text/html"}}
    steering.committed(database, steering.add, name="broken")
    steering.committed(database, steering.add, name="resting", is_paused=True)
    ran(
        "INSERT INTO runs (crawl_id, number, started_at, error) "
        "SELECT id, 1, '2026-03-01 07:34:41+00', 'OSError: no disk' FROM crawls "
        "WHERE name = 'broken'"
    )
    why = "run 1 did no page, since 2026-03-01 07:34:41Z: OSError: no disk"

    queue = ask("GET", "/queue", **page).text
    of_crawl = ask("GET", "/crawls/broken/queue", **page).text

    broken, resting = queue[: queue.index("resting")], queue[queue.index("resting") :]
    for shown in (broken, of_crawl):
        assert why in shown
        assert '<span class="sign bad">broken</span>' in shown
        assert 'class="red" x="-4"' in shown
    assert '<span class="sign good quiet">well</span>' in resting
    assert "not begun" in resting


def test_what_is_sent_as_it_changes_is_what_the_pages_have(ask, graph, database) -> None:
    """The parts of the queue, of a crawl and of runners that move are those of their pages."""
    filled_queue.fill(database)
    page = {"headers": FORM}
    streamed = {
        "/queue": queue_page.parts_of_queue(graph, "", True, state="", tag="", after=""),
        "/crawls/books/queue": queue_page.parts_of_crawl(graph.of("books"), "", True),
        "/runners": runners_page.parts_of_runners(graph, "", True),
    }
    for path, sent in streamed.items():
        shown = without_times(ask("GET", path, **page).text)
        for name, part in sent["parts"].items():
            assert name == "failures-badge" or without_times(part) in shown, path


def without_times(html: str) -> str:
    """Return HTML without what changes from one second to the next, and without spaces."""
    return re.sub(r"<time.*?</time>|[0-9]+[smhd]\b|\s+", "", html)
