"""Rules over HTTP and in the cockpit: read, tried, changed by who may, and applied."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest
from support import steering, web_servers

from scrapy_itemgraph.graph import ItemGraph
from scrapy_itemgraph.model.access_tokens import Role
from scrapy_itemgraph.web.app import create_app
from scrapy_itemgraph.web.graphs import Graphs

if TYPE_CHECKING:
    from collections.abc import Iterator

API = "/api/v1/crawls/c/rules"
FORM = {"sec-fetch-site": "same-origin", "content-type": "application/x-www-form-urlencoded"}
CALENDAR = {"match": "/calendar/", "accept": False, "skip": True}


@pytest.fixture
def graph(database) -> Iterator[ItemGraph]:
    """Yield the graph of a database with a crawl of the queue, and one that is not in it."""
    steering.committed(database, steering.add, name="c")
    with ItemGraph.open(database, "c") as one:
        one.of("by-hand").apply([])
        yield one


@pytest.fixture
def ask(graph):
    """Return a function that sends a request, with a body as JSON; or the fields of a form."""
    app = create_app(Graphs(graph))

    def ask(method, path, body=None, *, fields=None, token=None):
        given = {} if body is None else {"json": body}
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        if fields is not None:
            given = {"content": urlencode(fields), "follow_redirects": True}
            headers |= FORM
        return web_servers.asked(app, method, path, headers=headers, **given)

    return ask


def test_a_put_of_nothing_changes_nothing(ask, graph):
    """What a PUT puts in the place of what is there has to be in its body: `{}` is refused."""
    assert ask("POST", API, CALENDAR).status_code == 201
    found = ask("GET", "/api/v1/openapi.json").json()["paths"]
    puts = [path for path, methods in found.items() if "put" in methods]
    here = {"crawl": "c", "item": "ID", "slot": "a.example", "name": "slot:a.example"}

    assert len(puts) > 7
    for path in puts:
        answer = ask("PUT", path.format(**here), {})
        assert answer.status_code == 422, (path, answer.text)
    assert "rules" in ask("PUT", API, {"accept": True}).text
    assert graph.rules.get().number == 1
    assert ask("PUT", API, {"rules": []}).json()["rules"] == []


def test_rules_are_read_changed_and_tried_over_http(ask):
    """MNB-11: each change answers the ruleset in force then; of a conflict nobody loses a rule."""
    assert ask("GET", API).json()["number"] == 0
    added = ask("POST", API, CALENDAR | {"note": "no end", "apply": True})
    assert added.status_code == 201, added.text
    assert (added.json()["number"], added.json()["note"]) == (1, "no end")
    more = {"match": "^https://museum\\.example/", "accept": True, "at": 1, "only_after": 1}
    assert ask("POST", API, more).json()["number"] == 2
    late = ask("POST", API, more)
    assert (late.status_code, "ruleset 2 is in force" in late.text) == (422, True)
    assert ask("POST", f"{API}/1/move", {"to": 2}).json()["rules"][0]["match"] == "/calendar/"
    tried = ask("GET", f"{API}/test?url=https://museum.example/calendar/1&url=https://x/").json()
    first, second = tried["urls"]
    assert (tried["number"], first["accept"]) == (3, {"value": True, "rule": 2})
    assert first["skip"] == {"value": True, "rule": 1}
    assert second["skip"] == {"value": False, "rule": None}
    put = ask("PUT", API, {"accept": False, "rules": [more | {"x": 1}]})
    assert (put.status_code, "rule 1 has" in put.text) == (422, True)
    assert ask("PUT", API, {"accept": False, "rules": [CALENDAR]}).json()["accept"] is False
    assert ask("DELETE", f"{API}/1").json()["rules"] == []
    assert ask("DELETE", f"{API}/1").status_code == 404
    assert [one["number"] for one in ask("GET", f"{API}/versions").json()["rows"]] == [
        *(5, 4, 3, 2, 1)
    ]
    assert ask("GET", f"{API}?number=1").json()["rules"][0]["match"] == "/calendar/"
    assert ask("GET", f"{API}?number=9").status_code == 404
    assert ask("GET", f"{API}/diff").json()["waiting"] == 0
    assert ask("POST", f"{API}/apply").json() == {"number": 5}
    for wrong in ({"match": ""}, {"match": "(?!x)", "skip": True}, {"match": "x"}):
        assert ask("POST", API, wrong).status_code == 422
    history = ask("GET", "/api/v1/queue/c/history").json()["rows"]
    assert [one["detail"]["number"] for one in history if one["what"] == "rules"] == [5, 4, 3, 2, 1]


def test_a_list_of_patterns_is_added_over_http(ask):
    """MNB-11: one ruleset more with a rule for each; all that are no patterns are named at once."""
    added = ask("POST", API, {"match": ["/a/", "/b/"], "skip": True})
    assert added.status_code == 201
    assert [one["match"] for one in added.json()["rules"]] == ["/a/", "/b/"]
    assert added.json()["number"] == 1

    refused = ask("POST", API, {"match": ["(", "/c/", "["], "skip": True})
    assert refused.status_code == 422
    assert ("rule 3: '('" in refused.text, "rule 5: '['" in refused.text) == (True, True)


def test_who_may_queue_changes_rules_of_the_queue_and_names_no_new_hook(ask, graph):
    """MNB-11: a token with the role queue has ignores, and calls no code that is not called."""
    tokens = {role: graph.tokens.add(f"{role}-token", role) for role in Role}

    def status(role, method, path, body=None):
        return ask(method, path, body, token=tokens[role]).status_code

    assert status(Role.READ, "POST", API, CALENDAR) == 403
    assert status(Role.READ, "GET", API) == 200
    assert status(Role.QUEUE, "POST", API, CALENDAR) == 201
    assert status(Role.QUEUE, "POST", f"{API}/apply") == 202
    hooked = {"match": "/api/", "hook": "signed"}
    refused = ask("POST", API, hooked, token=tokens[Role.QUEUE])
    assert refused.status_code == 403
    assert "name no hook that they do not call yet (signed)" in refused.json()["detail"]
    assert status(Role.OPERATE, "POST", API, hooked) == 201
    assert status(Role.QUEUE, "POST", f"{API}/2/move", {"to": 1}) == 200
    by_hand = API.replace("/c/", "/by-hand/")
    assert status(Role.QUEUE, "POST", by_hand, CALENDAR) == 404
    assert status(Role.QUEUE, "POST", f"{by_hand}/apply") == 404
    assert status(Role.OPERATE, "POST", by_hand, CALENDAR) == 201


def test_a_crawl_is_added_over_http_with_what_it_takes_in(ask, graph):
    """MNB-11: patterns of a new crawl are its first ruleset, on the API and in the form."""
    given = {"spider": "s", "project": "p", "name": "d", "accept": ["^https://a/"]}
    assert ask("POST", "/api/v1/queue", given).status_code == 201
    fields = {"spider": "s", "project": "p", "name": "e", "accept": "^https://a/\n^https://b/"}
    assert "e is in the queue." in ask("POST", "/queue/add", fields=fields).text
    for name, count in {"d": 1, "e": 2}.items():
        stored = graph.of(name).rules.get()
        assert (stored.number, stored.ruleset.accept, len(stored.ruleset.rules)) == (
            1,
            False,
            count,
        )
    wrong = ask("POST", "/api/v1/queue", given | {"name": "f", "accept": ["("]})
    assert (wrong.status_code, "is no pattern" in wrong.text) == (422, True)
    assert "f" not in [one.name for one in graph.queue.list()]


def test_rules_are_tried_changed_and_applied_in_the_cockpit(ask):
    """MNB-11: the page has a tester, counts, and buttons; what was outrun is said."""
    at = "/crawls/c/rules"
    assert "No rules yet" in ask("GET", at).text
    fields = {"back": at, "match": "/calendar/", "accept": "no", "skip": "yes", "only_after": "0"}
    said = ask("POST", at, fields=fields | {"note": "no end"}).text
    assert "Ruleset 1 is in force from the next claim on." in said
    assert "no accept, skip" in said
    assert "the rules were changed meanwhile" in ask("POST", at, fields=fields).text
    tried = ask("GET", f"{at}?url=https://x/calendar/1").text
    assert "by rule 1" in tried
    ask("POST", at, fields={"match": "/cal/", "user_agent": "<b>me</b>", "at": "1"})
    shown = ask("POST", f"{at}/1/move", fields={"to": "2"}).text
    assert shown.index("/calendar/") < shown.index("/cal/")
    assert "<b>me" not in shown
    assert "would be skipped" in ask("GET", f"{at}?counts=1").text
    assert "are refused" in ask("POST", f"{at}/default", fields={"accept": "no"}).text
    assert "Ruleset 5" in ask("POST", f"{at}/2/remove", fields={"apply": "1"}).text
    assert "is being applied" in ask("GET", at).text
    assert "are applied to what waits" in ask("POST", f"{at}/apply", fields={}).text
    assert "an earlier one" in ask("GET", f"{at}?number=1").text
    for wrong in ({"match": ""}, {"match": "(", "skip": "yes"}, {"match": "x", "at": "1" * 30}):
        assert ask("POST", at, fields=wrong).status_code < 500
    for field in ("match", "user_agent", "hook", "at", "note", "only_after"):
        for value in ("a\0b", "\u202e" * 999, "9" * 40, "[]"):
            good = {"match": "x", "skip": "yes"}
            assert ask("POST", at, fields=good | {field: value}).status_code < 500, (field, value)
