"""What `ItemGraph` can, under /api/v1, in the words of the command line."""

from __future__ import annotations

import base64
import re
from collections import Counter
from pathlib import Path
from uuid import UUID

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from support.web_servers import crawl_of, encoded

from scrapy_itemgraph.model.work import ErrorRecord, Outcome
from scrapy_itemgraph.store import group_tallies

API = "/api/v1/crawls/books"
HTTP_PAGE = Path(__file__).parents[3] / "docs" / "howto" / "http.md"
JOURNAL = """
    INSERT INTO journal (crawl_id, item_class, fields)
    SELECT 1, 'dict', '{}' FROM generate_series(1, 3)
"""


@pytest.mark.parametrize(
    ("path", "command"),
    [
        ("", ["status"]),
        ("/worklist", ["worklist"]),
        ("/items/NEW/explain", ["explain", "NEW"]),
        ("/tasks", ["tasks"]),
        ("/slots", ["slots"]),
        ("/runs", ["runs"]),
    ],
)
def test_documents_are_those_of_the_command_line(web, path, command):
    """What is read over HTTP is what the command writes with --json."""
    assert web.get(API + path) == web.itemgraph(*command, "--crawl", "books")


def test_items_are_paged_by_what_follows(web):
    """Pages of items have each once, in the order in which they were made, and end with null."""
    names, after = [], "0"
    while after is not None:
        page = web.get(f"{API}/items?limit=2&after={after}")
        names += [one["id"] for one in page["rows"]]
        after = page["next"]

    assert names[:3] == ["URL:https://a.example/1?x=y", "FAILED", "NEW"]
    assert len(names) == len(set(names))


def test_tasks_are_disabled_enabled_and_recomputed(web):
    """What is done to a task holds; an unknown one is refused with what it resembles."""
    assert web.ask("POST", f"{API}/tasks/parse/disable").json() == {
        "task": "parse",
        "enabled": False,
    }
    assert not web.get(f"{API}/tasks")[0]["is_enabled"]
    web.ask("POST", f"{API}/tasks/parse/enable")
    assert web.get(f"{API}/tasks")[0]["is_enabled"]
    assert web.ask("POST", f"{API}/tasks/parse/recompute-ttl").json()["task"] == "parse"
    refused = web.ask("POST", f"{API}/tasks/pars/enable")
    assert refused.status_code == 404
    assert refused.json()["detail"] == "there is no task 'pars'; did you mean 'parse'?"
    assert refused.headers["content-type"] == "application/problem+json"


def test_slots_are_blocked_and_set(web):
    """A slot is blocked for a period and let go, and delays and limits are set and taken back."""
    slot = "/api/v1/slots/a.example"

    assert web.ask("PUT", f"{slot}/block", {"for": "1h"}).json()["blocked_by"] == "person"
    assert web.ask("DELETE", f"{slot}/block").json()["blocked_until"] is None
    assert web.ask("PUT", f"{slot}/delay", {"seconds": 2}).json()["set_gap"] == 2
    assert web.ask("PUT", f"{slot}/delay", {"seconds": None}).json()["set_gap"] is None
    limited = web.ask("PUT", f"/api/v1/limits/{encoded('slot:a.example')}", {"rate": "1/2s"})
    assert limited.json()["set_gap"] == 2
    both = web.ask("PUT", f"{slot}/block", {"for": "1h", "until": "2030-01-01T00:00"})
    assert both.status_code == 422


def test_operations_are_applied_all_or_none(web):
    """Operations are one transaction, and an error names the one that cannot be carried out."""
    create = {"op": "createItem", "id": "OP", "data": {}}
    rename = {"op": "renameItem", "id": "NOWHERE", "to": "ELSEWHERE"}

    refused = web.ask("POST", f"{API}/operations", {"operations": [create, rename]})
    assert refused.status_code == 422
    assert refused.json()["detail"].startswith("operation 2: ")
    assert web.ask("GET", f"{API}/items/OP").status_code == 404
    assert web.ask("POST", f"{API}/operations", {"operations": [create]}).json() == [
        {"operation": "create_item", "label": "new", "text": "OP"}
    ]
    unknown = web.ask("POST", f"{API}/operations", {"operations": [{"op": "fly"}]})
    assert "operation 1: unknown operation 'fly'" in unknown.json()["detail"]


def test_when_results_expire_is_set(web):
    """A TTL is given in seconds or in words, for one task or all; nonsense is refused."""
    path = f"{API}/items/{encoded('URL:https://a.example/1?x=y')}/ttl"

    (set_,) = web.ask("PUT", path, {"ttl": "2d", "task": "parse"}).json()
    assert set_["expires_at"] is not None
    assert web.ask("PUT", path, {"ttl": "never"}).status_code == 200
    assert web.ask("PUT", path, {"ttl": "soon"}).status_code == 422


@pytest.mark.parametrize(
    ("mime", "shown", "placed"),
    [
        ("image/png", "image/png", "inline"),
        ("IMAGE/JPEG; q=1", "image/jpeg", "inline"),
        ("image/svg+xml", "image/svg+xml", "attachment"),
        ("text/html", "application/octet-stream", "attachment"),
        (None, "application/octet-stream", "attachment"),
    ],
)
def test_a_blob_is_a_picture_or_saved(web, mime, shown, placed):
    """Pictures are shown, all else is saved under its name, and nothing of it runs."""
    content = b"<script>alert(1)</script>" * 100_000
    attached = {
        "op": "attachBlob",
        "id": "NEW",
        "name": 'a/"ü',
        "content": base64.b64encode(content).decode(),
        **({} if mime is None else {"mime": mime}),
    }
    assert web.ask("POST", f"{API}/operations", {"operations": [attached]}).status_code == 200
    (listed,) = web.get("/items/NEW/blobs")
    blob = web.ask("GET", f"/items/NEW/blobs/{encoded(listed['name'])}")

    assert (listed["size"], listed["mime"]) == (len(content), mime)
    assert blob.content == content
    assert blob.headers["content-type"] == shown
    assert blob.headers["content-disposition"] == f"{placed}; filename*=UTF-8''a%2F%22%C3%BC"
    assert blob.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert blob.headers["x-content-type-options"] == "nosniff"
    assert web.ask("GET", "/items/NEW/blobs/other").status_code == 404


def test_failures_are_grouped_handled_and_opened_again(web, filled):
    """A group of failures is listed with an example, handled, and undone while nothing ran."""
    with crawl_of(filled, "failing") as crawl:
        for name in ("A1", "A2", "B1"):
            crawl.failed(name, task="parse")
    api = "/api/v1/crawls/failing"
    since = web.get(f"{api}/items/A1")["created_at"]
    (group,) = web.get(f"{api}/failure-groups")

    assert (group["count"], group["task"], group["example"]["item"]) == (3, "parse", "B1")
    assert (group["number"], group["times"], group["runs"]) == (None, 3, [])
    assert group["first_seen"] == group["first_at"]
    with crawl_of(filled, "failing") as crawl:
        for run, times in ((1, 4), (2, 3)):
            told = [Counter({UUID(group["group"]): times})]
            group_tallies.add(crawl.connection, crawl.id, run, told)
    page = web.ask("GET", "/crawls/failing/failures").text
    assert all(
        part in page for part in (">#1</span>", "7 times in all", "by run: 4 in run 1, 3 in run 2")
    )
    listed = web.get(f"{api}/failures?group={group['group']}")["rows"]
    assert [one["item"] for one in listed] == ["A1", "A2", "B1"]
    of_group = {"group": group["group"]}
    assert web.ask("POST", f"{api}/failures/handle", of_group).json()["handled"] == 3
    undone = web.ask("POST", f"{api}/failures/unhandle", {"since": since, **of_group})
    assert undone.json() == {"undone": 3}
    assert web.ask("POST", f"{api}/failures/handle", {}).status_code == 422


def test_failures_are_chosen_by_task_type_text_and_time(web, filled):
    """What is given holds together, in lists, in groups, and in what is handled and undone."""
    with crawl_of(filled, "choosing") as crawl:
        crawl.register(parse={"tags": ["page"]})
        for name, kind in (("A", "http 404"), ("B", "http 404"), ("C", "KeyError"), ("D", "Odd")):
            error = ErrorRecord(type=kind, message=f"no {name}")
            crawl.end(crawl.claimed(name), outcome=Outcome.FAILED, error=error)
    api = "/api/v1/crawls/choosing"

    def items(query):
        return [one["item"] for one in web.get(f"{api}/failures?{query}")["rows"]]

    assert items("type=http%20404") == ["A", "B"]
    assert items("type=http") == []
    assert items("text=HTTP&newest=true") == ["B", "A"]
    assert items("since=2100-01-01T00:00Z") == []
    assert items("task=parse&text=no%20c") == ["C"]
    first = web.get(f"{api}/failures?newest=true&limit=1")
    assert items(f"newest=true&limit=1&after={first['next']}") == ["C"]
    groups = web.get(f"{api}/failure-groups?sort=count")
    assert [one["count"] for one in groups] == [1, 1, 1, 1]
    (found,) = web.get(f"{api}/failure-groups?type=KeyError")
    one = web.get(f"{api}/failures/{found['example']['id']}")
    assert (one["item"], one["spider"], one["attempt"]) == ("C", "shop", 1)
    assert one["handled_at"] is None
    assert web.ask("GET", f"{api}/failures/999999").status_code == 404
    assert web.ask("GET", f"{api}/failure-groups?sort=size").status_code == 422

    def handle(which):
        return web.ask("POST", f"{api}/failures/handle", which)

    assert handle({"type": "http 404", "text": "no b"}).json()["handled"] == 1
    assert handle({"failures": [first["rows"][0]["id"], one["id"]]}).json()["handled"] == 2
    assert handle({"failures": [one["id"]]}).status_code == 404
    assert handle({"all": True, "text": "x"}).status_code == 422
    undone = {"since": "2026-01-01T00:00Z", "failures": [one["id"]]}
    assert web.ask("POST", f"{api}/failures/unhandle", undone).json() == {"undone": 1}
    assert items("") == ["A", "C"]


def test_crawls_are_seen_from_above(web):
    """Crawls are listed with their numbers, what they did by the minute, and who works."""
    (books, *_) = web.get("/api/v1/crawls?limit=1")["rows"]

    assert (books["crawl"], books["state"]) == ("books", "running")
    assert web.get(f"{API}/overview")["crawl"] == "books"
    (worker,) = web.get(f"{API}/workers")
    assert (worker["spider"], worker["host"]) == ("shop", "here")
    assert web.get(f"{API}/minutes?minutes=5") == []
    assert web.get("/api/v1/requests") == []


def test_work_is_paged_and_turned(web):
    """Work of a state is listed page by page, and an item's nice decides whose turn is first."""
    web.ask("POST", "/items/LATE", {"tags": ["page"]})
    nice = web.ask("PUT", "/items/LATE/nice", {"nice": -7})
    first = web.get(f"{API}/work?task=parse&state=ready&limit=1")

    assert nice.status_code == 200
    assert [one["item"] for one in first["rows"]] == ["LATE"]
    rest = web.get(f"{API}/work?task=parse&state=ready&after={first['next']}")
    assert "LATE" not in [one["item"] for one in rest["rows"]]
    assert web.ask("GET", f"{API}/work?after=x").status_code == 422
    assert web.ask("GET", f"{API}/work?state=odd").status_code == 422


def test_items_are_found_and_have_neighbours(web):
    """Items are found by a part of a name or a JSON path, and one knows who made it."""
    made = {"op": "createItem", "id": "CHILD", "created_by": "NEW", "data": {"price": 7}}
    web.ask("POST", f"{API}/operations", {"operations": [made]})

    by_path = web.get(f"{API}/search?by=path&q={encoded('$.price ? (@ > 6)')}")
    assert [one["item"] for one in by_path["items"]] == ["CHILD"]
    assert by_path["is_whole"]
    assert web.get(f"{API}/search?q=HIL")["items"][0]["item"] == "CHILD"
    assert web.ask("GET", f"{API}/search?by=path&q=nonsense(").status_code == 422
    assert web.get(f"{API}/items/CHILD/neighbours")["created_by"]["item"] == "NEW"


def test_the_journal_is_paged(web, filled, engine_of):
    """Scraped items that were kept are read by number."""
    with engine_of(filled).begin() as connection:
        connection.exec_driver_sql(JOURNAL)

    page = web.get(f"{API}/journal?limit=2&since=2020-01-01")
    assert [one["item_class"] for one in page["rows"]] == ["dict", "dict"]
    assert len(web.get(f"{API}/journal?after={page['next']}")["rows"]) == 1
    assert web.get(f"{API}/journal?item_class=other")["rows"] == []


TOTALS = """
    INSERT INTO totals (crawl_id, task_id, done, gone, scraped, bytes, statuses)
    SELECT crawl_id, id, 7, 1, 9, 1234, '{"200": 7, "404": 1, "298": 3, "299": 2, "none": 4}'
    FROM tasks WHERE name = 'parse'
"""
LATENCIES = """
    INSERT INTO task_latencies (crawl_id, task_id, answers, seconds)
    SELECT crawl_id, id, '{0,3,0,0,0,0,1,0,0,0,0,2}', 500.5 FROM tasks WHERE name = 'parse';
    INSERT INTO slot_latencies (limit_id, told_at, answers, seconds)
    SELECT id, now() - n * interval '50 minutes', '{1,1,1}', 0.5
    FROM (SELECT id, row_number() OVER (ORDER BY id) - 1 AS n FROM limits
        WHERE kind = 'slot') AS slots
"""
A_RUN = """
    INSERT INTO runs (crawl_id, number, started_at, ended_at, is_finished, reason)
    SELECT id, run, to_timestamp(1700000000), to_timestamp(1700000060), true, 'finished' FROM crawls
"""


@pytest.fixture(scope="module")
def metrics(web, filled):
    """Return what /metrics says once there are totals, and a run."""
    with crawl_of(filled) as crawl:
        crawl.connection.exec_driver_sql(TOTALS)
        crawl.connection.exec_driver_sql(A_RUN)
        crawl.connection.exec_driver_sql(
            "INSERT INTO limits (kind, name) VALUES ('slot', 'y.example'), ('slot', 'z.example')"
        )
        crawl.connection.exec_driver_sql(LATENCIES)
    return web.ask("GET", "/metrics")


def test_health_and_metrics(web, metrics):
    """/healthz tells that the database answers, and /metrics counts by crawl and task.

    Counters come from the totals, statuses that HTTP does not know are one; a run's end has its
    time and reason.
    """
    assert web.get("/healthz") == {"status": "ok"}
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    of_task = 'crawl="books",{}task="parse"'
    for name, label, number in (
        ("completed", "", 1),
        ("pages_total", 'outcome="done",', 7),
        ("pages_total", 'outcome="gone",', 1),
        ("items_scraped_total", "", 9),
        ("response_bytes_total", "", 1234),
    ):
        assert f"itemgraph_{name}{{{of_task.format(label)}}} {number}.0" in metrics.text
    for status, number in (("200", 7), ("404", 1), ("other", 5), ("none", 4)):
        labels = f'crawl="books",status="{status}",task="parse"'
        assert f"itemgraph_requests_total{{{labels}}} {number}.0" in metrics.text
    assert 'itemgraph_last_run_end_timestamp_seconds{crawl="books"} 1.70000006e+09' in metrics.text
    info = 'itemgraph_last_run_info{crawl="books",reason="finished",state="finished"} 1.0'
    assert info in metrics.text
    (totals,) = web.get(f"{API}/totals")
    assert (totals["task"], totals["done"], totals["statuses"]["404"]) == ("parse", 7, 1)


def test_latencies_are_histograms_by_task_and_by_slot(metrics):
    """MNB-13: each bound counts all that came within it; slots are those of the last hour."""
    families = {one.name: one for one in text_string_to_metric_families(metrics.text)}
    of_task = families["itemgraph_latency_seconds"]
    assert of_task.type == "histogram"
    counted = {one.labels.get("le", one.name): one.value for one in of_task.samples}
    assert {one.labels["task"] for one in of_task.samples} == {"parse"}
    wanted = {"0.05": 0, "0.1": 3, "2.5": 3, "5.0": 4, "180.0": 4, "+Inf": 6}
    assert {bound: counted[bound] for bound in wanted} == wanted
    assert counted["itemgraph_latency_seconds_sum"] == 500.5
    of_slots = families["itemgraph_slot_latency_seconds"]
    assert 1 <= len({one.labels["slot"] for one in of_slots.samples}) <= 2


def test_rules_for_alerts_name_what_is_exported(metrics):
    """The rules are YAML as Prometheus has it, of metrics, labels and values that are exported."""
    page = HTTP_PAGE.read_text()
    (rules,) = [
        group["rules"]
        for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
        for group in yaml.safe_load(block)["groups"]
    ]
    exported: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(metrics.text):
        for sample in family.samples:
            exported.setdefault(sample.name, set()).update(sample.labels)

    assert len({rule["alert"] for rule in rules}) == len(rules) > 3
    assert set(re.findall(r"`(itemgraph_\w+)`", page)) <= set(exported)
    for rule in rules:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        names = set(re.findall(r"itemgraph_\w+", rule["expr"]))
        assert names
        assert names <= set(exported)
        known = set.union(*(exported[name] for name in names))
        grouped = re.findall(r"(?:by|on) \(([\w, ]+)\)", rule["expr"])
        used = {one.strip() for group in grouped for one in group.split(",")}
        used |= set(re.findall(r'(\w+)(?:=~|=|!=|!~)"', rule["expr"]))
        assert used <= known
        shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        assert shown <= (used & known if grouped else known)
        assert rule["expr"].count("(") == rule["expr"].count(")")
    outcomes = re.findall(r'outcome="(\w+)"', str(rules))
    assert all(f'outcome="{one}"' in metrics.text for one in outcomes)


def test_what_is_not_there_is_said_so(web):
    """An unknown path, method, crawl and number of a row are refused in a sentence each."""
    assert "/api/v1/openapi.json" in web.ask("GET", "/api/v2/x").json()["detail"]
    assert web.ask("PATCH", f"{API}/items/A").status_code == 405
    unknown = web.ask("GET", "/api/v1/crawls/boks")
    assert unknown.status_code == 404
    assert "did you mean 'books'?" in unknown.json()["detail"]
    assert web.ask("GET", f"{API}/items?after=x").json()["errors"][0]["at"] == "query.after"
