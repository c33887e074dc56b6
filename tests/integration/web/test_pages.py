"""The cockpit's pages, asked for things that no page of theirs asks for."""

from __future__ import annotations

import base64
import json
import re
from urllib.parse import urlencode, urlsplit

import pytest
import sqlalchemy as sa
from support.web_servers import crawl_of

from scrapy_itemgraph.model.work import ErrorRecord, Outcome

POSTS = {
    "expire": ("id", "task"),
    "ask-again": ("task",),
    "set-aside": ("id", "hold", "part", "free"),
    "delete": ("id",),
    "nice": ("id", "nice"),
    "handle": ("failure", "group", "task", "type", "text", "since"),
    "unhandle": ("undo",),
    "enable": ("task",),
    "disable": ("task",),
    "block": ("slot", "for"),
    "unblock": ("slot",),
    "set-delay": ("slot", "delay"),
    "set-limit": ("limit", "rate", "concurrency"),
    "simulate": ("id", "task"),
}
GETS = {
    "worklist": ("task", "slot", "state", "after"),
    "explain": ("id", "task"),
    "failures": ("task", "type", "text", "since", "sort"),
    "failures/list": ("task", "type", "text", "since", "sort", "group", "after"),
    "failures/group": ("group", "after"),
    "item": ("id",),
    "item.json": ("id",),
    "blob": ("id", "name"),
    "search": ("q", "by"),
    "items": ("task", "tag", "state", "since", "column", "after"),
    "done": ("task", "after"),
    "simulate": ("id", "task"),
}
GOOD = {"id": "NEW", "slot": "a.example", "limit": "a.example", "for": "1h", "rate": "1/s"}
WRONG = (
    "a\0b",
    "\u202e" * 2000,
    "9" * 40,
    "1e309",
    "[]",
    '{"since":"9999-12-31T23:59:59-23:59","task":"x"}',
)
CHOOSING = "/crawls/choosing"
OURS = {"sec-fetch-site": "same-origin", "content-type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize("page", POSTS)
def test_a_form_that_says_nonsense_is_refused_in_words(web, page) -> None:
    """Whatever stands in a field, the answer is a page; no error of the server."""
    for field in POSTS[page]:
        for wrong in WRONG:
            form = {name: GOOD.get(name, "") for name in POSTS[page]} | {field: wrong}
            answer = web.ask(
                "POST",
                f"/crawls/books/{page}",
                content=urlencode(form),
                headers=OURS,
                follow_redirects=True,
            )

            assert answer.status_code < 500, (field, wrong)
            assert "<main" in answer.text
    broken = web.ask("POST", f"/crawls/books/{page}", content=b"\xff=1", headers=OURS)
    assert broken.status_code in {303, 400, 404}


@pytest.mark.parametrize("page", GETS)
def test_an_address_that_says_nonsense_is_refused_in_words(web, page) -> None:
    """Whatever stands in a query, the answer is no error of the server."""
    for field in GETS[page]:
        for wrong in WRONG:
            query = {name: GOOD.get(name, "") for name in GETS[page]} | {field: wrong}
            answer = web.ask("GET", f"/crawls/books/{page}?{urlencode(query)}")

            assert answer.status_code < 500, (field, wrong)


def test_runs_are_shown_with_why_they_ended(web, filled, engine_of) -> None:
    """The newest first; what an error says is text."""
    assert "There was no run yet" in web.ask("GET", "/crawls/books/runs").text
    with engine_of(filled).begin() as connection:
        connection.exec_driver_sql("UPDATE crawls SET run = 2 WHERE id = 1")
        connection.exec_driver_sql(
            "INSERT INTO runs (crawl_id, number, started_at, ended_at, is_finished, reason, error, "
            "pages, spider, worker_id, job) VALUES "
            "(1, 1, now(), now(), false, 'shutdown', '<b>no</b>', 1234, 's', 7, 'job'), "
            "(1, 2, now(), now() + interval '90 s', true, 'finished', NULL, 2, NULL, NULL, NULL)"
        )

    shown = web.ask("GET", "/crawls/books/runs").text

    assert shown.index(">2</th>") < shown.index(">1</th>")
    assert "1m 30s" in shown
    assert "shutdown" in shown
    assert "&lt;b&gt;no&lt;/b&gt;" in shown
    assert "<b>no" not in shown
    assert "1,234" in shown
    assert 'href="/crawls/books/runs"' in web.ask("GET", "/crawls/books").text


def test_failures_are_chosen_ticked_handled_and_undone(web, filled) -> None:
    """The list has what its filters say; those that are ticked are handled, and opened again."""
    with crawl_of(filled, "choosing") as crawl:
        crawl.register(parse={"tags": ["page"]})
        for name, kind in (("A", "http 404"), ("B", "http 404"), ("C", "KeyError"), ("D", "Odd")):
            error = ErrorRecord(type=kind, message=f"no {name}", traceback="line <7>")
            crawl.end(crawl.claimed(name), outcome=Outcome.FAILED, error=error)
    listed = f"{CHOOSING}/failures/list"

    def numbers(query=""):
        text = web.ask("GET", f"{listed}?{query}").text
        return [int(one) for one in re.findall(r'name="failure" value="(\d+)"', text)]

    def post(page, **fields):
        content = urlencode({"back": listed, **fields}, doseq=True)
        return web.ask("POST", f"{CHOOSING}/{page}", content=content, headers=OURS)

    d, c, b, a = numbers()
    assert numbers("text=HTTP&sort=oldest") == [a, b]
    assert numbers("type=Odd") == [d]
    assert numbers("since=1h&task=parse") == [d, c, b, a]
    assert "Nothing fits" in web.ask("GET", f"{listed}?text=nothing").text
    groups = web.ask("GET", f"{CHOOSING}/failures?text=keyerror&sort=type").text
    assert groups.count("<article") == 1
    assert "Handle all that these filters choose" in groups
    shown = web.ask("GET", f"{CHOOSING}/failures/{c}").text
    assert "line &lt;7&gt;" in shown
    assert f"/failures/list?group={re.search(r'list.group=(.{32})', shown)[1]}" in shown

    said = post("handle", failure=[a, d], retry="1")
    assert numbers() == [c, b]
    undo = json.loads(base64.urlsafe_b64decode(said.cookies.popitem()[1]))["undo_of"]
    assert ">handled</span>" in web.ask("GET", f"{CHOOSING}/failures/{a}").text
    post("unhandle", undo=undo)
    assert numbers() == [d, c, b, a]
    post("handle", text="404", type="http 404", retry="")
    assert numbers() == [d, c]
    post("handle", retry="1")
    assert numbers() == [d, c]


def test_a_failure_comes_first_with_the_projects_line(web, filled) -> None:
    """Its page has the error as headline and leads to those like it; its item's page begins so."""
    frames = (
        'File "/venv/site-packages/x.py", line 1, in run',
        'File "/shop/books.py", line 30, in parse',
    )
    error = ErrorRecord(
        type="ValueError",
        message="no <price>",
        traceback="\n".join(f"  {frame}\n    run()" for frame in frames),
        place="shop.books.Books.parse",
    )
    with crawl_of(filled, "leading") as crawl:
        crawl.register(parse={"tags": ["page"]})
        for name in ("A", "B", "C"):
            crawl.end(crawl.claimed(name), outcome=Outcome.FAILED, error=error)
    listed = web.ask("GET", "/crawls/leading/failures/list").text
    c, b, a = re.findall(r'name="failure" value="(\d+)"', listed)

    shown = web.ask("GET", f"/crawls/leading/failures/{b}").text
    item = web.ask("GET", "/crawls/leading/item?id=B").text

    assert re.search(r"<h1[^>]*><bdi>ValueError</bdi>: .*no &lt;price&gt;", shown)
    assert f'rel="prev" href="/crawls/leading/failures/{a}"' in shown
    assert f'rel="next" href="/crawls/leading/failures/{c}"' in shown
    assert "the oldest" in web.ask("GET", f"/crawls/leading/failures/{a}").text
    assert re.findall(r'<bdi class="own">  File &#34;(.+?)&#34;', shown) == ["/shop/books.py"]
    assert item.index("/shop/books.py") < item.index(f"/failures/{b}") < item.index("<h2>Item<")


@pytest.mark.parametrize("said", ["e30=", "####", "eyJhIjoxfQ==", "W10=", "bnVsbA=="])
def test_a_message_that_is_none_of_ours_is_not_shown(web, said) -> None:
    """The cookie that a message travels in may have anything in it."""
    cookie = f"itemgraph_said_{urlsplit(web.url).port}={said}"
    answer = web.ask("GET", "/crawls/books/tasks", headers={"cookie": cookie})

    assert answer.status_code == 200
    assert re.search(r'id="messages" role="status">\s*</div>', answer.text)


@pytest.mark.parametrize("data", ["[1]", '"text"', "null", "17", "{}"])
def test_an_item_whose_data_is_no_object_is_shown(web, filled, engine_of, data) -> None:
    """The database may have it from elsewhere: pages and API show it, and it can be deleted."""
    assert web.ask("POST", "/items/ODD", {"tags": ["page"]}).status_code == 201
    with engine_of(filled).begin() as connection:
        connection.execute(
            sa.text("UPDATE items SET data = CAST(:data AS json) WHERE name = 'ODD'"),
            {"data": data},
        )

    for page in ("item?id=ODD", "item.json?id=ODD", "explain?id=ODD", "search?q=OD", "worklist"):
        assert web.ask("GET", f"/crawls/books/{page}").status_code == 200, page
    shown = web.ask("GET", "/crawls/books/item?id=ODD").text
    assert {"[1]": ">1<", '"text"': "text", "null": "null", "17": "17", "{}": "nothing"}[
        data
    ] in shown
    assert web.get("/items/ODD")["data"] == json.loads(data)
    for path in ("/api/v1/crawls/books/items", "/api/v1/crawls/books/items/ODD/explain"):
        assert web.ask("GET", path).status_code in {200, 404}, path
    assert web.ask("DELETE", "/items/ODD").status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/crawls/books/overview", "/crawls/books/item?id=NEW", "/crawls/books/nowhere"),
        *("/crawls/books/live", "/api/v1/crawls", "/metrics", "/static/cockpit.css"),
    ],
)
def test_head_is_answered_like_get_without_a_body(web, path) -> None:
    """Status and headers are those of GET; a stream of events is over with them."""
    asked = {"headers": {"accept": "text/html"}}
    head = web.ask("HEAD", path, **asked)

    assert head.content == b""
    if path.endswith("/live"):
        assert head.headers["content-type"].startswith("text/event-stream")
        return
    get = web.ask("GET", path, **asked)
    assert head.status_code == get.status_code
    varying = {"date", "content-length", "set-cookie"}
    kept = [{k: v for k, v in one.headers.items() if k not in varying} for one in (head, get)]
    assert kept[0] == kept[1]


def test_head_changes_nothing(web) -> None:
    """What only POST does is refused."""
    assert web.ask("HEAD", "/crawls/books/handle").status_code == 405


RED = re.compile(r'<span class="sign bad[^"]*">([^<]+)<')


def test_crawls_in_trouble_come_first_and_say_why(web, filled, engine_of):
    """Broken ones, then those that need a look, then the others by name, page by page."""
    for name in ("z broken", "amber", "y well", "c well"):
        with crawl_of(filled, name) as crawl:
            crawl.register(parse={"tags": ["page"]})
            if name in {"z broken", "amber"}:
                crawl.failed("A")
    with engine_of(filled).begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO runs (crawl_id, number, started_at, pages, failures) "
            "SELECT c.id, n, '2026-03-01 07:34:41+00', CASE c.name WHEN 'amber' THEN 2 ELSE 0 END, "
            "1 FROM crawls c CROSS JOIN generate_series(1, 12) AS n "
            "WHERE c.name IN ('z broken', 'amber')"
        )

    shown = web.ask("GET", "/").text

    names = re.findall(r'<th scope="row" class="id"><a [^>]*title="([^"]+)"', shown)
    assert names[:2] == ["z broken", "amber"]
    assert names.index("c well") < names.index("y well")
    row = shown[shown.index('title="z broken"') : shown.index('title="amber"')]
    why = "runs 3 to 12 did no page, since 2026-03-01 07:34:41Z: ValueError in parse"
    assert why in row
    assert RED.findall(row) == ["broken"]
    assert row.count('class="red"') == 10
    assert "run 12, 2026-03-01 07:34:41 UTC: 0 pages, 1 failure" in row
    further = web.ask("GET", "/?after=amber").text
    assert re.findall(r'<th scope="row" class="id"><a [^>]*title="([^"]+)"', further) == names[2:]
    assert why in web.ask("GET", "/crawls/z%20broken").text


def test_a_bar_and_its_number_are_of_what_the_run_has_to_do(web, filled, engine_of):
    """What was fresh before, and what is gone, is apart; where nothing is to be done is no bar."""
    page = "/crawls/shared"
    with crawl_of(filled, "shared") as crawl:
        crawl.register(parse={"tags": ["page"]})
        for name in ("A", "B", "C"):
            crawl.done(name)
    with engine_of(filled).begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO runs (crawl_id, number, started_at) "
            "SELECT id, 1, now() FROM crawls WHERE name = 'shared'"
        )
        connection.exec_driver_sql("UPDATE crawls SET run = 1 WHERE name = 'shared'")

    nothing = web.ask("GET", page).text
    assert "Nothing is to be done in this run, 3 fresh before." in " ".join(nothing.split())
    assert '<svg class="shares"' not in nothing

    with crawl_of(filled, "shared") as crawl:
        crawl.register(parse={"tags": ["page"]})
        crawl.work("D")
    shown = " ".join(web.ask("GET", page).text.split())
    assert "<strong>0%</strong> <span>0 of 1 in this run, 3 fresh before</span>" in shown
    assert '<rect class="waiting" x="0.0" width="1000.0" height="10"/>' in shown
    assert '<rect class="earlier"' not in shown


def test_red_is_only_what_needs_a_person(web, filled, engine_of):
    """Not workers of a paused crawl, nor the 404 of a robots.txt; a killed worker is a warning."""
    page = "/crawls/calm"
    with crawl_of(filled, "calm") as crawl:
        crawl.register(parse={"tags": ["page"]})
        crawl.done("A")
    with engine_of(filled).begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO runs (crawl_id, number, started_at, statuses, pages) "
            """SELECT id, 1, now() - interval '1 hour', '{"200": 1, "404": 1, "503": 1}', 1 """
            "FROM crawls WHERE name = 'calm'"
        )
        connection.exec_driver_sql("UPDATE crawls SET run = 1 WHERE name = 'calm'")
        connection.exec_driver_sql(
            "INSERT INTO processes (kind, crawl_id, host, process_id, lease_until, stopped_at, "
            "reason) SELECT 'worker', id, 'h', n, now(), now(), "
            "CASE n WHEN 1 THEN 'paused' ELSE 'died' END "
            "FROM crawls CROSS JOIN generate_series(1, 2) AS n WHERE name = 'calm'"
        )
        connection.exec_driver_sql(
            "INSERT INTO workers (id, spider) SELECT p.id, 's' FROM processes p "
            "JOIN crawls c ON c.id = p.crawl_id WHERE c.name = 'calm' AND p.host = 'h'"
        )

    for path in (page, f"{page}/workers", f"{page}/worklist"):
        shown = web.ask("GET", path).text
        assert RED.findall(shown) == []
        if path != f"{page}/worklist":
            assert '<span class="sign held">stopped</span>' in shown
            assert '<span class="sign warn">died</span>' in shown
    answers = " ".join(web.ask("GET", page).text.split())
    assert '<span class="sign ">404</span>' in answers
    assert '<span class="sign warn">503</span>' in answers
    assert "<dt>answers, at least</dt>" in answers
