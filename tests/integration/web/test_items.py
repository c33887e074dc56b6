"""Items over HTTP: the endpoints of the notes, for the served crawl and for any."""

from __future__ import annotations

import pytest
from support.web_servers import encoded

DONE = "/items/" + encoded("URL:https://a.example/1?x=y")
API = "/api/v1/crawls/books"


@pytest.mark.parametrize("prefix", ["", API])
def test_an_item_is_shown_as_the_command_line_shows_it(web, prefix):
    """SRAP-58: GET /items/ID is what `show --json` writes, for an id with slashes and a `?`."""
    found = web.get(prefix + DONE)

    assert found == web.itemgraph("show", "URL:https://a.example/1?x=y", "--crawl", "books")
    assert found["data"] == {"title": "One"}
    assert [one["task"] for one in found["results"]] == ["parse", "reviews"]


@pytest.mark.parametrize(
    "name", ["a/b", "%2F", "//", "a b", "😀", "a?b#c", "..", "x" * 8192, "😀" * 2048, "add"]
)
def test_ids_are_taken_from_the_path_as_it_was_sent(web, name):
    """SRAP-58: any id can be written, read and deleted; `add` by an address that is encoded."""
    path = "/items/" + (encoded(name) if name != "add" else "%61dd")
    path = path.replace("..", "%2E%2E")

    assert web.ask("POST", path, {"data": {"a": 1}}).status_code == 201
    assert web.get(path)["id"] == name
    assert web.ask("DELETE", path).json() == {"deleted": name, "names_kept": False}
    assert web.ask("GET", path).status_code == 404


def test_an_item_is_added_with_or_without_an_id(web):
    """SRAP-58: POST /items/add adds; a taken id changes nothing and is answered with 200."""
    drawn = web.ask("POST", "/items/add", {"data": {"url": "https://b.example/"}, "tags": ["page"]})
    named = {"id": "ADDED", "data": {"a": 1}, "tags": {"page": None, "size": 3}}

    assert drawn.status_code == 201
    assert drawn.json()["tasks"] == ["parse", "reviews"]
    assert web.ask("POST", "/items/add", named).status_code == 201
    again = web.ask("POST", "/items/add", {**named, "data": {"a": 2}})
    assert (again.status_code, again.json()["created"]) == (200, False)
    assert web.get("/items/ADDED")["data"] == {"a": 1}
    assert web.get("/items/ADDED")["tags"] == {"page": None, "size": 3}


def test_data_and_tags_are_merged_into_an_item(web):
    """POST /items/ID makes an item, or joins data key by key, adds tags and sets their values."""
    made = web.ask("POST", "/items/MERGED", {"data": {"a": 1, "b": 1}, "tags": ["x"]})
    merged = web.ask("POST", "/items/MERGED", {"data": {"b": 2}, "tags": {"x": "y"}})

    assert (made.status_code, merged.status_code) == (201, 200)
    assert merged.json()["data"] == {"a": 1, "b": 2}
    assert merged.json()["tags"] == {"x": "y"}


def test_metadata_is_that_of_the_operations_asked_for(web):
    """SRAP-59: GET …/metadata has the metadata of what ran; an unknown operation is named."""
    assert web.get(DONE + "/metadata") == {"parse": {}}
    assert web.get(DONE + "/metadata?operations=parse&operations=reviews") == {"parse": {}}
    unknown = web.ask("GET", DONE + "/metadata?operations=nope")
    assert unknown.status_code == 404
    assert "'nope'; it has parse, reviews" in unknown.json()["detail"]


def test_operations_of_an_item_have_state_expiry_and_success(web):
    """SRAP-59: GET …/operations lists each task that applies; POST …/expire makes one stale."""
    before = {one["task"]: one for one in web.get(DONE + "/operations")}
    expired = web.ask("POST", DONE + "/operations/parse/expire").json()

    assert (before["parse"]["state"], before["parse"]["is_successful"]) == ("fresh", True)
    assert before["parse"]["expires_at"] is not None
    assert before["reviews"]["state"] == "never run"
    assert [(one["task"], one["state"]) for one in expired] == [("parse", "stale")]


def test_the_worklist_of_a_tag_has_the_work_it_calls_for(web):
    """SRAP-60: GET /tags/TAG/worklist is bounded, of one task on demand, or empty."""
    web.ask("POST", "/items/OTHER", {"tags": ["other"]})

    found = web.get("/tags/page/worklist?task=parse")
    assert "NEW" in [one["item"] for one in found]
    assert {one["task"] for one in found} == {"parse"}
    assert len(web.get("/tags/page/worklist?limit=1")) == 1
    assert web.get("/tags/other/worklist") == web.get("/tags/nobody%2Fhas/worklist") == []
    assert web.ask("GET", "/tags/page/worklist?limit=0").status_code == 422


@pytest.mark.parametrize("path", ["/tags/page/worklist", f"{API}/worklist"])
def test_a_worklist_says_where_it_goes_on(web, path):
    """A list that is not the whole one has a `Link` to the next part, whatever else was asked."""
    for name in ("W1", "W2", "W3"):
        web.ask("POST", "/items/add", {"id": name, "tags": ["page"], "data": {}})
    whole = web.get(f"{path}?task=parse")
    found, address = [], f"{web.url.rstrip('/')}{path}?task=parse&limit=2"
    while address is not None:
        part = web.client.get(address)
        found += part.json()
        following = part.links.get("next")
        address = following and str(part.url.join(following["url"]))

    assert found == whole
    assert len(found) > 3
    assert web.ask("GET", f"{path}?after=x").status_code == 422


def test_failures_of_a_task_are_paged(web):
    """SRAP-60: GET /tasks/TASK/failures has a page, and where the next begins."""
    page = web.get("/tasks/parse/failures?limit=1")
    (failure,) = page["rows"]

    assert (failure["item"], failure["error"]["type"]) == ("FAILED", "ValueError")
    assert web.get(f"/tasks/parse/failures?after={page['next']}") == {"rows": [], "next": None}
    handled = web.ask("POST", f"{API}/failures/{failure['id']}/handle", {"retry": False})
    assert handled.json() == {"handled": 1, "retry": False}
    assert web.ask("POST", f"{API}/failures/{failure['id']}/handle", {}).status_code == 404


def test_another_crawl_is_named_in_the_query(web):
    """The paths of the notes speak of the served crawl, or of `?crawl=`; adding makes one."""
    assert web.ask("GET", "/items/A?crawl=other").status_code == 404
    assert web.ask("POST", "/items/add?crawl=other", {"id": "A", "data": {}}).status_code == 201
    assert web.get("/items/A?crawl=other")["id"] == "A"
    assert web.get("/api/v1/crawls/other/items/A")["id"] == "A"


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-01:00"])
def test_a_not_before_outside_the_calendar_in_utc_is_refused(web, moment):
    """It is a mistake of the request, and nothing is added."""
    sent = {"id": "ODD", "data": {}, "not_before": moment}

    answer = web.ask("POST", "/items/add", sent)

    assert answer.status_code == 422
    assert "outside the years 1 to 9999 in UTC" in answer.text
    assert web.ask("GET", "/items/ODD").status_code == 404
